//! Checks what is extracted from responses, and what must not be. The tests build messages by hand,
//! so that order, compression and damage are visible.

use super::super::name::steps;
use super::super::{HEADER_BYTES, LABELS_MAX, POINTERS_MAX};
use super::*;

/// A message under construction; the builder updates its counts.
struct Builder(Vec<u8>);

fn wire(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(u8::try_from(label.len()).expect("a label"));
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out
}

impl Builder {
    fn response() -> Builder {
        Builder(b"\x12\x34\x81\x80\0\0\0\0\0\0\0\0".to_vec())
    }

    fn bump(&mut self, count_at: usize) {
        let count = u16::from_be_bytes([self.0[count_at], self.0[count_at + 1]]) + 1;
        self.0[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
    }

    fn query(mut self, name: &str, qtype: u16) -> Builder {
        self.bump(4);
        self.0.extend(wire(name));
        self.0.extend(qtype.to_be_bytes());
        self.0.extend(class::IN.to_be_bytes());
        self
    }

    fn raw(mut self, owner: &[u8], rtype: u16, class: u16, ttl: u32, rdata: &[u8]) -> Builder {
        self.bump(6);
        self.0.extend(owner);
        self.0.extend(rtype.to_be_bytes());
        self.0.extend(class.to_be_bytes());
        self.0.extend(ttl.to_be_bytes());
        self.0.extend(u16::try_from(rdata.len()).expect("short").to_be_bytes());
        self.0.extend(rdata);
        self
    }

    fn a(self, owner: &str, ttl: u32, last: u8) -> Builder {
        self.raw(&wire(owner), rtype::A, class::IN, ttl, &[192, 0, 2, last])
    }

    fn named(self, rtype: u16, owner: &str, ttl: u32, target: &str) -> Builder {
        self.raw(&wire(owner), rtype, class::IN, ttl, &wire(target))
    }

    fn cname(self, owner: &str, ttl: u32, target: &str) -> Builder {
        self.named(rtype::CNAME, owner, ttl, target)
    }
}

/// One line a fact, in an order that does not depend on that of the records' kinds.
fn extracted(out: &Extract) -> Vec<String> {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let aliases = out
        .aliases()
        .map(|alias| format!("{} = {} {}", text(alias.owner), text(alias.target), alias.ttl_s));
    let addresses = out.addresses().map(|address| {
        let hint = if address.hint { " hint" } else { "" };
        format!("{} {} {}{hint}", text(address.owner), address.addr, address.ttl_s)
    });
    let reverses = out
        .reverses()
        .map(|reverse| format!("{} <- {} {}", reverse.addr, text(reverse.name), reverse.ttl_s));
    aliases.chain(addresses).chain(reverses).collect()
}

fn run(bytes: &[u8], read: fn(&Message<'_>, &mut Extract) -> Result<(), DnsError>) -> Extract {
    let mut out = Extract::new();
    let message = Message::parse(bytes).expect("a header");
    assert_eq!(read(&message, &mut out), Ok(()));
    out
}

/// The usual response: an alias, then addresses of its target; the least TTL counts.
#[test]
fn alias_and_addresses() {
    let bytes = Builder::response()
        .query("WWW.example.com", rtype::A)
        .cname("www.example.com", 60, "cdn.example.net")
        .a("cdn.example.net", 300, 1)
        .a("cdn.example.net", 20, 2)
        .0;
    let out = run(&bytes, extract);
    assert_eq!(out.qname(), Some(&b"www.example.com"[..]));
    assert_eq!(out.qtype(), Some(rtype::A));
    assert_eq!(
        extracted(&out),
        [
            "www.example.com = cdn.example.net 60",
            "cdn.example.net 192.0.2.1 60",
            "cdn.example.net 192.0.2.2 20",
        ]
    );
    assert_eq!((out.unrelated(), out.overflowed(), out.chain_was_cut()), (0, 0, false));
}

/// Records may come in any order, and every member of the chain may own addresses.
#[test]
fn any_order() {
    let bytes = Builder::response()
        .query("a.test", rtype::A)
        .a("c.test", 9, 3)
        .cname("b.test", 5, "c.test")
        .a("a.test", 9, 1)
        .cname("a.test", 7, "b.test")
        .0;
    assert_eq!(
        extracted(&run(&bytes, extract)),
        ["a.test = b.test 7", "b.test = c.test 5", "c.test 192.0.2.3 5", "a.test 192.0.2.1 9"]
    );
}

/// A record about another name is ignored: otherwise names could be forged.
#[test]
fn unrelated_records() {
    let bytes = Builder::response()
        .query("evil.test", rtype::A)
        .a("bank.test", 60, 1)
        .cname("bank.test", 60, "evil.test")
        .named(rtype::DNAME, "shop.test", 60, "evil.test")
        .a("evil.test", 60, 2)
        .0;
    let out = run(&bytes, extract);
    assert_eq!(extracted(&out), ["evil.test 192.0.2.2 60"]);
    assert_eq!(out.unrelated(), 3);
}

/// Aliases without an address are extracted, since the rest may come in another response.
#[test]
fn aliases_only() {
    let bytes = Builder::response().query("a.test", rtype::AAAA).cname("a.test", 7, "b.test").0;
    assert_eq!(extracted(&run(&bytes, extract)), ["a.test = b.test 7"]);
}

/// A ring of aliases and a chain without end are cut, and the result states it.
#[test]
fn endless_chains() {
    let ring = Builder::response()
        .query("a.test", rtype::A)
        .cname("a.test", 7, "b.test")
        .cname("b.test", 7, "a.test")
        .a("b.test", 9, 1)
        .0;
    let out = run(&ring, extract);
    assert_eq!(extracted(&out), ["a.test = b.test 7", "b.test 192.0.2.1 7"]);
    assert!(out.chain_was_cut());

    let mut long = Builder::response().query("n0.test", rtype::A);
    for step in 0..20 {
        long = long.cname(&format!("n{step}.test"), 7, &format!("n{}.test", step + 1));
    }
    let out = run(&long.a("n16.test", 9, 1).a("n17.test", 9, 2).0, extract);
    assert_eq!(out.aliases().len(), CHAIN_MAX);
    assert_eq!(extracted(&out)[CHAIN_MAX..], ["n16.test 192.0.2.1 7"]);
    assert!(out.chain_was_cut());
}

/// A DNAME leads on below its owner, with the CNAME that a server makes of it and without; not at
/// its owner, and not across an escaped dot.
#[test]
fn dname() {
    let made = ["w.old.test = w.new.test 5", "w.new.test 192.0.2.1 5"];
    let bare = Builder::response()
        .query("w.old.test", rtype::A)
        .named(rtype::DNAME, "old.test", 5, "new.test")
        .a("w.new.test", 9, 1);
    assert_eq!(extracted(&run(&bare.0, extract)), made);

    let beside = Builder::response()
        .query("w.old.test", rtype::A)
        .named(rtype::DNAME, "old.test", 5, "new.test")
        .cname("w.old.test", 5, "w.new.test")
        .a("w.new.test", 9, 1);
    let out = run(&beside.0, extract);
    assert_eq!(extracted(&out), made);
    assert_eq!(out.unrelated(), 0);

    let at_owner = Builder::response().query("old.test", rtype::A).named(
        rtype::DNAME,
        "old.test",
        5,
        "new.test",
    );
    assert!(run(&at_owner.0, extract).is_empty());

    assert_eq!(labels_below(br"w\.old.test", b"old.test"), None);
    assert_eq!(labels_below(br"w\\.old.test", b"old.test"), Some(&br"w\\"[..]));
}

/// A DNAME that would make a name of more than 255 bytes makes none (RFC 6672, section 2.2).
#[test]
fn dname_too_long() {
    let long = [["a".repeat(62).as_str(); 3].join("."), "b".repeat(59)].join(".");
    for (target, fits) in [("cccc", true), ("ccccc", false)] {
        let bytes = Builder::response()
            .query(&format!("{long}.x"), rtype::A)
            .named(rtype::DNAME, "x", 5, target)
            .0;
        let out = run(&bytes, extract);
        assert_eq!(out.aliases().len() == 1, fits, "{target}");
        let made = format!("{long}.{target}");
        assert_eq!(wire_bytes(made.as_bytes()) <= NAME_WIRE_BYTES_MAX, fits);
        assert_eq!(wire(&made).len() <= NAME_WIRE_BYTES_MAX, fits);
    }
}

/// Hints of service bindings are addresses, of the target if there is one; alias mode has none.
#[test]
fn service_hints() {
    let hint = |priority: u8, target: &str| {
        let mut rdata = vec![0, priority];
        rdata.extend(wire(target));
        rdata.extend(b"\0\x04\0\x04\xc0\0\x02\x01");
        let answer = Builder::response().query("a.test", rtype::HTTPS);
        answer.raw(&wire("a.test"), rtype::HTTPS, class::IN, 30, &rdata).0
    };
    assert_eq!(extracted(&run(&hint(1, ""), extract)), ["a.test 192.0.2.1 30 hint"]);
    assert_eq!(extracted(&run(&hint(1, "svc.test"), extract)), ["svc.test 192.0.2.1 30 hint"]);
    assert!(run(&hint(0, "svc.test"), extract).is_empty());
}

/// Reverse lookups, plain and through a classless delegation.
#[test]
fn reverse_names() {
    let name = "9.2.0.192.in-addr.arpa";
    let plain =
        Builder::response().query(name, rtype::PTR).named(rtype::PTR, name, 60, "host.test").0;
    assert_eq!(extracted(&run(&plain, extract)), ["192.0.2.9 <- host.test 60"]);

    let delegated = "9.0-31.2.0.192.in-addr.arpa";
    let classless = Builder::response()
        .query(name, rtype::PTR)
        .cname(name, 50, delegated)
        .named(rtype::PTR, delegated, 60, "host.test")
        .0;
    let alias = format!("{name} = {delegated} 50");
    assert_eq!(extracted(&run(&classless, extract)), [&alias, "192.0.2.9 <- host.test 50"]);
}

/// TTLs with the top bit set are the longest there is (RFC 8767, section 4); classes other than IN
/// are not ours.
#[test]
fn ttl_and_class() {
    let bytes = Builder::response()
        .query("a.test", rtype::A)
        .a("a.test", 0x8000_0001, 1)
        .raw(&wire("a.test"), rtype::A, class::CH, 60, &[192, 0, 2, 2])
        .0;
    assert_eq!(extracted(&run(&bytes, extract)), ["a.test 192.0.2.1 2147483647"]);
}

/// Queries, failures and responses without a question give no names and no errors.
#[test]
fn not_answers() {
    let answer = || Builder::response().query("a.test", rtype::A).a("a.test", 60, 1).0;
    let mut query = answer();
    query[2] &= 0x7f;
    let mut failure = answer();
    failure[3] |= 2;
    let mut update = answer();
    update[2] |= 5 << 3;
    let unsolicited = Builder::response().a("a.test", 60, 1).0;
    for bytes in [query, failure, update, unsolicited] {
        let out = run(&bytes, extract);
        assert!(out.is_empty());
        assert_eq!(out.qname(), None);
    }
}

/// Nothing is extracted from a response with two questions, and the error states the reason.
#[test]
fn two_questions() {
    let bytes = Builder::response().query("a.test", 1).query("a.test", 1).a("a.test", 60, 1).0;
    let message = Message::parse(&bytes).expect("a header");
    let mut out = Extract::new();
    assert_eq!(extract(&message, &mut out), Err(DnsError::ManyQuestions));
    assert!(out.is_empty());
}

/// Each prefix of a response gives the facts of the whole records in it, and the error that it was
/// cut.
#[test]
fn cut_answers() {
    let bytes = Builder::response()
        .query("a.test", rtype::A)
        .cname("a.test", 60, "b.test")
        .a("b.test", 60, 1)
        .a("b.test", 60, 2)
        .0;
    let whole = extracted(&run(&bytes, extract));
    let mut out = Extract::new();
    let mut facts_seen = 0;
    for cut in HEADER_BYTES..bytes.len() {
        let message = Message::parse_captured(&bytes[..cut], bytes.len()).expect("a header");
        assert_eq!(extract(&message, &mut out), Err(DnsError::SectionTruncated), "cut at {cut}");
        let facts = extracted(&out);
        assert_eq!(facts[..], whole[..facts.len()], "cut at {cut}");
        assert!(facts.len() >= facts_seen);
        facts_seen = facts.len();
    }
    assert_eq!(facts_seen, whole.len() - 1);
}

/// A record with impossible data is skipped; those after it still count, and the error is returned.
#[test]
fn damaged_record() {
    let bytes = Builder::response()
        .query("a.test", rtype::A)
        .raw(&wire("a.test"), rtype::A, class::IN, 60, &[192, 0, 2])
        .a("a.test", 60, 2)
        .0;
    let mut out = Extract::new();
    let message = Message::parse(&bytes).expect("a header");
    assert_eq!(extract(&message, &mut out), Err(DnsError::RdataMalformed));
    assert_eq!(extracted(&out), ["a.test 192.0.2.2 60"]);
}

/// Multicast DNS: each record names its own owner, in answer and additional section; the flush bit
/// is no part of the class, and only names below `local` are trusted.
#[test]
fn multicast() {
    let flush = class::IN | class::MDNS_TOP_BIT;
    let mut bytes = Builder::response()
        .named(rtype::PTR, "_ipp._tcp.local", 4500, "Printer._ipp._tcp.local")
        .named(rtype::PTR, "7.2.0.192.in-addr.arpa", 120, "Mac.local")
        .raw(&wire("Mac.local"), rtype::A, flush, 120, &[192, 0, 2, 7])
        .a("bank.test", 120, 8)
        .raw(&wire("printer.local"), rtype::A, class::IN, 0, &[192, 0, 2, 9])
        .0;
    // The last record is moved to the additional section, and an unrelated one before it to the
    // authority section.
    let last = bytes.split_off(bytes.len() - wire("printer.local").len() - 14);
    let doubtful = Builder::response().a("mine.local", 120, 10).0;
    bytes.extend(&doubtful[HEADER_BYTES..]);
    bytes.extend(last);
    (bytes[7], bytes[9], bytes[11]) = (bytes[7] - 1, 1, 1);
    let out = run(&bytes, extract_mdns);
    assert_eq!(out.qname(), None);
    assert_eq!(
        extracted(&out),
        ["mac.local 192.0.2.7 120", "printer.local 192.0.2.9 0", "192.0.2.7 <- mac.local 120"]
    );
    assert_eq!(out.unrelated(), 1);
    assert!(run(&bytes, extract).is_empty(), "without a question no unicast answer");

    bytes[2] &= 0x7f;
    assert!(run(&bytes, extract_mdns).is_empty(), "a query teaches nothing");
}

/// Items above a bound are counted, and the others stay.
#[test]
fn bounds() {
    let mut names = Builder::response().query("a.test", rtype::A);
    for index in 0..NAMES_MAX {
        names = names.a(&format!("n{index}.test"), 60, 1);
    }
    let out = run(&names.a("a.test", 60, 2).0, extract);
    assert_eq!(extracted(&out), ["a.test 192.0.2.2 60"]);
    assert_eq!((out.overflowed(), out.unrelated()), (1, NAMES_MAX as u32 - 1));

    let mut addresses = Builder::response().query("a.test", rtype::A);
    for _ in 0..ADDRESSES_MAX + 3 {
        addresses = addresses.a("a.test", 60, 1);
    }
    let out = run(&addresses.0, extract);
    assert_eq!((out.addresses().len(), out.overflowed()), (ADDRESSES_MAX, 3));
}

/// The dearest message we can think of (each record's owner is the foot of the longest ladder of
/// pointers) costs a fixed number of steps a record: time is linear in the message.
#[test]
fn linear_time() {
    let cost = |records: usize| {
        // The ladder is in the data of a first record: 12 + 5 bytes, then 11 of its header.
        let first_rung = HEADER_BYTES + 5 + 11;
        let mut ladder = vec![0, 0];
        let mut under = first_rung;
        for _ in 0..POINTERS_MAX - 1 {
            ladder.extend((0xc000 | under as u16).to_be_bytes());
            under += 2;
        }
        let foot = (0xc000 | under as u16).to_be_bytes();
        let mut message = Builder::response().query("", rtype::A).raw(&[0], 99, 1, 0, &ladder);
        for _ in 0..records {
            message = message.raw(&foot, rtype::A, class::IN, 60, &[192, 0, 2, 1]);
        }
        let parsed = Message::parse(&message.0).expect("a header");
        let mut out = Extract::new();
        let steps = steps::of(|| assert_eq!(extract(&parsed, &mut out), Ok(())));
        assert_eq!(out.addresses().len() + out.overflowed() as usize, records);
        steps as usize
    };
    let (small, large) = (cost(400), cost(4000));
    assert!(small <= 400 * (POINTERS_MAX + LABELS_MAX + 4), "{small} steps");
    assert!(large <= 11 * small, "{small} and {large} steps");
}
