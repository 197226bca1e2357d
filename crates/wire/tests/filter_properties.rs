//! Hostile filters: no text causes a panic, compiled programs are valid, and errors name the
//! position and the next step.

mod filter_support;

use filter_support::{Grammar, by_hand};
use larder_wire::filter::{
    INSTRUCTIONS_MAX, Instruction, LinkType, NESTING_MAX, Origin, TEXT_BYTES_MAX, compile, run,
    run_live,
};
use proptest::prelude::*;

/// The kernel's rules for a program. Jumps go forward and stay inside, and the last instruction
/// returns. Scratch words are written before they are read on every path. No division is by a
/// constant 0.
fn assert_sound(program: &[Instruction]) {
    assert!((1..=INSTRUCTIONS_MAX).contains(&program.len()));
    assert!(matches!(program.last().expect("one").code, 0x06), "the end returns");
    let mut written: Vec<Option<u16>> = vec![None; program.len()];
    written[0] = Some(0);
    for (at, step) in program.iter().enumerate() {
        let Some(mut known) = written[at] else { continue };
        let nexts: Vec<usize> = match step.code {
            0x06 => vec![],
            0x05 => vec![at + 1 + step.k as usize],
            code if code & 7 == 5 => {
                vec![at + 1 + usize::from(step.jt), at + 1 + usize::from(step.jf)]
            }
            _ => vec![at + 1],
        };
        match step.code {
            0x02 => known |= 1 << step.k,
            0x60 | 0x61 => {
                assert!(known & 1 << step.k != 0, "a scratch word is read before it is written")
            }
            0x34 | 0x94 => assert!(step.k != 0, "a division by 0"),
            0x64 | 0x74 => assert!(step.k < 32, "a shift by too much"),
            _ => {}
        }
        for next in nexts {
            assert!(next < program.len(), "a jump leaves the program");
            written[next] = Some(written[next].map_or(known, |other| other & known));
        }
    }
}

const LINKS: [LinkType; 5] =
    [LinkType::Ethernet, LinkType::RawIp, LinkType::Cooked, LinkType::Cooked2, LinkType::Loopback];

fn all(text: &str) {
    for link in LINKS {
        for origin in [Origin::File, Origin::Live] {
            match compile(text, link, origin, 65535) {
                Ok(program) => {
                    assert_sound(&program);
                    run_live(&program, &[0x45; 60], 60, Some(7));
                }
                Err(error) => assert!(error.at_bytes <= text.len() && !error.what.is_empty()),
            }
        }
    }
}

/// A text of words of the language, of anything else, and of pieces of filters.
fn hostile() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "and",
        "or",
        "not",
        "!",
        "(",
        ")",
        "[",
        "]",
        ":",
        "tcp",
        "ip6",
        "vlan",
        "port",
        "host",
        "net",
        "src",
        "dst",
        "proto",
        "80",
        "10.0.0.1",
        "fe80::1",
        "/",
        "8",
        "mask",
        "len",
        "-",
        "+",
        "*",
        "%",
        "^",
        "<<",
        "=",
        "!=",
        "ether",
        "1:2:3:4:5:6",
        "\\tcp",
        "portrange",
        "1-2",
        "tcp[13]",
        "less",
        "multicast",
        "4294967295",
        "0",
        "tcpflags",
        "gateway",
        "inbound",
        "\u{e9}",
        "\0",
    ]);
    prop_oneof![
        prop::collection::vec(word, 0..24).prop_map(|words| words.join(" ")),
        any::<String>(),
        (prop::sample::select(by_hand()), any::<prop::sample::Index>(), any::<char>()).prop_map(
            |(filter, at, with)| {
                let at = at.index(filter.len() + 1);
                format!("{}{with}{}", &filter[..at], &filter[at..])
            }
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Any text compiles to a valid program, or is rejected with a position in it. Invariant 1 of
    /// `filter`.
    #[test]
    fn no_text_panics(text in hostile()) {
        all(&text);
    }

    /// Any program of any instructions ends on any frame. Invariant 1 of `filter`.
    #[test]
    fn no_program_panics(
        steps in prop::collection::vec((any::<u16>(), any::<u8>(), any::<u8>(), prop_oneof![0..20u32, any::<u32>()]), 0..40),
        frame in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let program: Vec<Instruction> =
            steps.into_iter().map(|(code, jt, jf, k)| Instruction { code: code & 0xbf, jt: jt & 7, jf: jf & 7, k }).collect();
        run(&program, &frame, 80);
    }
}

/// Filters from the grammar compile to programs that are valid by the kernel's rules. Invariant 2
/// of `filter`.
#[test]
fn generated_filters_are_sound() {
    let mut grammar = Grammar::new(4, LinkType::Ethernet);
    for _ in 0..2000 {
        let filter = grammar.filter();
        assert!(compile(&filter, LinkType::Ethernet, Origin::Live, 96).is_ok(), "{filter}");
        all(&filter);
    }
}

/// The limits on nesting and length apply, and one for jumps too far for a byte. Nothing below them
/// overflows a stack.
#[test]
fn limits_hold() {
    let nested = |depth: usize| format!("{}tcp{}", "(".repeat(depth), ")".repeat(depth));
    let file = |text: &str| compile(text, LinkType::Ethernet, Origin::File, 1);
    assert!(file(&nested(NESTING_MAX)).is_ok());
    assert!(file(&nested(NESTING_MAX + 1)).is_err());
    assert!(file(&"not ".repeat(TEXT_BYTES_MAX / 4)).is_err());
    assert!(file(&"(".repeat(TEXT_BYTES_MAX)).is_err());
    assert!(file(&"-".repeat(TEXT_BYTES_MAX)).is_err());
    assert!(file(&"tcp[".repeat(TEXT_BYTES_MAX / 4)).is_err());
    assert!(file(&format!("1{} = 1", "+1".repeat(20_000))).is_err());
    assert!(file(&"x".repeat(TEXT_BYTES_MAX + 1)).is_err());
    let many = |count: usize| {
        (0..count)
            .map(|n| format!("host 10.0.{}.{}", n / 256, n % 256))
            .collect::<Vec<_>>()
            .join(" or ")
    };
    for count in [10, 100, 150] {
        let program = file(&many(count)).expect("that many addresses fit");
        assert_sound(&program);
        let mut frame = vec![0; 12];
        frame.extend_from_slice(&[
            8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0, 1, 1, 1, 1, 10, 0, 0, 0,
        ]);
        for last in [0, count - 1, count] {
            frame[33] = last as u8;
            assert_eq!(run(&program, &frame, 34) != 0, last < count, "{last} of {count}");
        }
    }
    assert!(file(&many(3000)).unwrap_err().what.contains("too long"));
}

/// An error names the position, and what to write instead.
#[test]
fn refusals_help() {
    for (text, at_bytes, word) in [
        ("tcp and host example.com", 13, "never asks DNS"),
        ("example.com", 0, "never looked up"),
        ("tcp and mpls 5", 8, "do not know \"mpls\""),
        ("10.0.0.1", 0, "\"host\""),
        ("ip broadcast", 3, "netmask"),
        ("ip proto tcp", 9, "backslash"),
        ("tcp host 10.0.0.1", 9, "join it by \"and\""),
        ("net 10.0.0.1/8", 4, "first address"),
        ("port 80 and (tcp", 16, "\")\""),
        ("ip proto 256", 9, "255"),
        ("port 70000", 5, "65535"),
        ("ether host 10.0.0.1", 11, "no IPv4 addresses"),
        ("tcp[0:3] = 1", 6, "1, 2 or 4"),
        ("len = 08", 6, "octal"),
        ("tcp ; udp", 4, "means nothing"),
    ] {
        let error = compile(text, LinkType::Ethernet, Origin::File, 1).expect_err(text);
        assert!(error.what.contains(word) && error.at_bytes == at_bytes, "{text:?}: {error}");
    }
    assert!(LinkType::of(105).unwrap_err().what.contains("105"));
    for link in LINKS.into_iter().filter(|link| *link != LinkType::Ethernet) {
        for text in ["vlan", "ether host 1:2:3:4:5:6", "multicast"] {
            assert!(compile(text, link, Origin::File, 1).is_err(), "{link:?} {text}");
        }
    }
}
