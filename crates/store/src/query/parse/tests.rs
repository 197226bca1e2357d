use proptest::prelude::*;

use crate::query::{Expression, Query, QueryError, Term};

const NOW_NS: i64 = 1_000_000_000_000_000;

/// A query in one form of many: prefix notation of its conditions.
fn plain(text: &str) -> String {
    fn write(query: &Query, expression: &Expression) -> String {
        let joined = |word: &str, parts: &[Expression]| {
            let parts: Vec<String> = parts.iter().map(|part| write(query, part)).collect();
            format!("{word}({})", parts.join(" "))
        };
        match expression {
            Expression::All(parts) => joined("and", parts),
            Expression::Any(parts) => joined("or", parts),
            Expression::Not(inner) => format!("not({})", write(query, inner)),
            Expression::Term(term) => match &query.terms[*term] {
                Term::Name(pattern) => {
                    format!("name {}", String::from_utf8_lossy(&pattern.prefix().0))
                }
                Term::Net(first, last) => format!("{first}..{last}"),
                Term::Flow(..) => "flow".to_owned(),
                other => format!("{other:?}"),
            },
        }
    }
    let query = Query::read(text, NOW_NS).unwrap_or_else(|error| panic!("{text}: {error}"));
    write(&query, &query.expression)
}

/// Users of Stenographer, tcpdump and Wireshark write the same query in their words.
#[test]
fn words_of_the_field_are_read() {
    for (text, expected) in [
        ("port 443 and host 192.0.2.1", "and(Port(443, 443) 192.0.2.1..192.0.2.1)"),
        (
            "tcp.port==443 && ip.addr==192.0.2.1",
            "and(and(Protocol(6) Port(443, 443)) 192.0.2.1..192.0.2.1)",
        ),
        ("tcp port 443", "and(Protocol(6) Port(443, 443))"),
        ("a.example 192.0.2.1", "or(name example.a 192.0.2.1..192.0.2.1)"),
        ("a.example or b.example and tcp", "or(name example.a and(name example.b Protocol(6)))"),
        ("(a.example b.example) and tcp", "and(or(name example.a name example.b) Protocol(6))"),
        ("a.example\u{c}b.example", "or(name example.a name example.b)"),
        ("IP proto 47", "and(IsV4(true) Protocol(47))"),
        ("(a.example or b.example) and tcp", "and(or(name example.a name example.b) Protocol(6))"),
        ("not a.example and tcp", "and(not(name example.a) Protocol(6))"),
        ("!(udp||icmp)", "not(or(Protocol(17) Protocol(1)))"),
        ("NAME~WWW.Example.com.", "name com.example.www"),
        ("name != tcp", "not(name tcp)"),
        ("\"tcp\" or \"a b\"", "or(name tcp name a b)"),
        ("host www.example.com", "name com.example.www"),
        ("net 192.0.2.9/24", "192.0.2.0..192.0.2.255"),
        ("net 10.0.0.0 mask 255.0.0.0", "10.0.0.0..10.255.255.255"),
        ("port 8000-8099", "Port(8000, 8099)"),
        ("portrange 1-2", "Port(1, 2)"),
        ("port >= 1024", "Port(1024, 65535)"),
        ("port<1024", "Port(0, 1023)"),
        ("port > 5-9", "Port(10, 65535)"),
        ("ip proto 47", "and(IsV4(true) Protocol(47))"),
        ("ip6 and proto udp", "and(IsV4(false) Protocol(17))"),
        ("vlan", "Vlan(None)"),
        ("vlan and vlan.id == 10", "and(Vlan(None) Vlan(Some(10)))"),
        ("vni 42", "Vni(42)"),
        (
            "community_id 1:LQU9qZlK+B5F3KDmev6m5PMibrg=",
            "Community(\"1:LQU9qZlK+B5F3KDmev6m5PMibrg=\")",
        ),
        (
            "1:LQU9qZlK+B5F3KDmev6m5PMibrg= and tcp",
            "and(Community(\"1:LQU9qZlK+B5F3KDmev6m5PMibrg=\") Protocol(6))",
        ),
        ("confidence >= 90", "Confidence(90, 100)"),
        ("confidence<50%", "Confidence(0, 49)"),
        ("name_confidence 50-89", "Confidence(50, 89)"),
        ("confidence != 7", "not(Confidence(7, 7))"),
        ("flag Conflict && name_source==SNI", "and(Flag(NameFlags(8)) Source(Sni))"),
        ("192.0.2.1:443-*/tcp and before 2", "and(flow Before(2000000000))"),
        ("flow *:443", "flow"),
        ("after -15m", "After(999100000000000)"),
        (
            "after 15m ago and before 1h30m ago",
            "and(After(999100000000000) Before(994600000000000))",
        ),
        ("after 1970-01-02", "After(86400000000000)"),
        ("after 1970-01-01T00:00:01.5Z", "After(1500000000)"),
        ("after -1.5s or a=b", ""),
        ("foo=bar", "name foo=bar"),
    ] {
        match expected {
            "" => assert!(Query::read(text, NOW_NS).is_err(), "{text}"),
            expected => assert_eq!(plain(text), expected, "{text}"),
        }
    }
}

/// An error names the column, what was found there, and what could be there.
#[test]
fn errors_point_at_the_column() {
    for (text, column, found, expected) in [
        ("port https", 6, "https", "a port from 0 to 65535"),
        ("name ~ a.example and", 21, "", "a condition"),
        ("a.example and (b.example", 25, "", "closing parenthesis"),
        ("a.example) and tcp", 10, ")", "no parenthesis is open"),
        ("tcp 192.0.2.1", 5, "192.0.2.1", "and, or, or the end"),
        ("foo == 1", 5, "==", "and, or, or the end"),
        ("host = 192.0.2.0/24", 8, "192.0.2.0/24", "an address or a name"),
        ("net 192.0.2.0/33", 5, "192.0.2.0/33", "a network"),
        ("net 10.0.0.0 mask 255.0.255.0", 19, "255.0.255.0", "a mask"),
        ("vlan 4095", 6, "4095", "a VLAN ID"),
        ("port ~ 5", 6, "~", "=, !=, <"),
        ("name >= x", 6, ">=", "~, = or !="),
        ("after yesterday", 7, "yesterday", "a time"),
        ("after -15", 7, "-15", "a time"),
        ("src host 192.0.2.1", 1, "src", "whichever end began"),
        ("é.example and port x", 20, "x", "a port"),
        ("name = \"open", 8, "\"open", "a second \""),
        ("name", 5, "", "a name"),
        ("community_id 1:x", 14, "1:x", "a Community ID"),
        ("flow a-b", 6, "a-b", "a flow"),
        ("port 9-3", 6, "9-3", "a range"),
        ("port < 0", 8, "0", "a port"),
        ("confidence 101", 12, "101", "percent"),
        ("confidence < 0", 14, "0", "percent"),
        ("confidence ~ 9", 12, "~", "=, !=, <"),
        ("flag sure", 6, "sure", "stale, late"),
        ("name_source > sni", 13, ">", "= or !="),
        ("name_source tls", 13, "tls", "quic_sni"),
        ("and", 1, "and", "a condition"),
    ] {
        let error = Query::read(text, NOW_NS).expect_err(text);
        let QueryError::Syntax { column: at, found: word, expected: what } = &error else {
            panic!("{text}: {error}");
        };
        assert_eq!((*at, &word[..]), (column, found), "{text}: {error}");
        assert!(what.contains(expected), "{text}: {error}");
    }
    assert_eq!(Query::read(" \t", 0), Err(QueryError::Empty));
}

/// Depth, conditions, times and bytes are bounded.
#[test]
fn queries_are_bounded() {
    let nested = |depth: usize| format!("{}tcp{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Query::read(&nested(63), 0).is_ok());
    for text in [
        nested(64),
        nested(100_000),
        "not ".repeat(65) + "tcp",
        vec!["after 1"; 33].join(" or "),
        vec!["tcp"; 4097].join(" or "),
        "a".repeat(1025),
        format!("name ~ {}", "*".repeat(1025)),
        " ".repeat(1 << 20),
    ] {
        assert!(Query::read(&text, 0).is_err(), "{}", &text[..20]);
    }
    assert!(Query::read(&vec!["after 1"; 32].join(" or "), 0).is_ok());
    assert!(Query::read(&vec!["tcp"; 4096].join(" or "), 0).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    /// No text panics, and the column of an error is in the text or at its end.
    #[test]
    fn any_text_is_judged(
        words in prop::collection::vec(
            prop_oneof![
                prop::sample::select(vec![
                    "and", "or", "not", "(", ")", "!", "!=", "\u{b}", "\u{c}", "\r", "\u{85}",
                    "==", "~", "<", "name", "host",
                    "net", "port", "vlan", "after", "ago", "mask", "flow", "tcp", "ip", "src",
                    "\"", "443", "1-", "192.0.2.1", "192.0.2.0/24", "-1h", "*", "\\", "é",
                ]).prop_map(str::to_owned),
                ".{0,6}",
            ],
            0..12,
        ),
        by in prop::sample::select(vec!["", " "]),
    ) {
        let text = words.join(by);
        if let Err(QueryError::Syntax { column, .. }) = Query::read(&text, NOW_NS) {
            prop_assert!(column >= 1 && column <= text.chars().count() + 1);
        }
    }
}
