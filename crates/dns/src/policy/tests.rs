//! Tests of a policy's responses, as hickory parses them.

use super::*;
use crate::name::WireName;
use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::Record;
use larder_wire::dns::class;
use proptest::prelude::*;

const A: u16 = rtype::A;
const AAAA: u16 = rtype::AAAA;
const TXT: u16 = 16;

fn builder() -> Builder {
    Builder::new(7, &[1; 16])
}

fn question(name: &str, qtype: u16, qclass: u16) -> Vec<u8> {
    let name = WireName::parse(name.as_bytes(), &WireName::ROOT).unwrap();
    [name.as_bytes(), &qtype.to_be_bytes(), &qclass.to_be_bytes()].concat()
}

/// The response as text, as hickory parses it. Checks that it is a whole response to the question.
fn read(question: &[u8], local: &Local, answer: &[u8]) -> String {
    if local.is_dropped {
        return "dropped".into();
    }
    let message = Message::from_vec(answer).unwrap();
    let metadata = &message.metadata;
    assert_eq!((metadata.id, metadata.message_type), (0, MessageType::Response));
    assert!(metadata.recursion_available && !metadata.truncation && answer.len() < 1 << 14);
    assert_eq!(answer[12..12 + question.len()], *question);
    assert_eq!((message.queries.len(), message.additionals.len()), (1, 0));
    let line = |record: &Record| {
        format!("{} {} {} {}", record.name, record.ttl, record.record_type(), record.data)
    };
    let mut parts = vec![match u16::from(metadata.response_code) {
        0 => "NOERROR".to_string(),
        3 => "NXDOMAIN".into(),
        5 => "REFUSED".into(),
        other => panic!("{other}"),
    }];
    parts.extend(metadata.authoritative.then(|| "aa".into()));
    parts.extend(message.answers.iter().map(line));
    for soa in &message.authorities {
        assert_eq!(soa.record_type(), hickory_proto::rr::RecordType::SOA);
        parts.push(format!("soa {} {}", soa.name, soa.ttl));
    }
    parts.extend(local.extended_error.map(|code| format!("ede {code}")));
    let alias = local.alias.clone();
    parts.extend(alias.map(|at| format!("ask {}", answer[at].escape_ascii())));
    parts.join(", ")
}

fn query(policy: &Policy, view: u16, name: &str, qtype: u16) -> String {
    query_class(policy, view, name, qtype, class::IN)
}

fn query_class(policy: &Policy, view: u16, name: &str, qtype: u16, qclass: u16) -> String {
    let question = question(name, qtype, qclass);
    let mut answer = b"what was there before".to_vec();
    let local = policy.local(view, &question, &mut answer);
    let wire = &question[..question.len() - 4];
    assert!(local.is_none() || !policy.is_silent(wire, qclass), "{name} is known");
    match local {
        Some(local) => read(&question, &local, &answer),
        None => "upstream".into(),
    }
}

/// The names of a hosts file have its addresses and nothing else. An address has the first name
/// listed with it.
#[test]
fn hosts_files() {
    let mut builder = builder();
    let file = "192.0.2.1 Box.lan box # the box\n2001:db8::1 box.lan\n\n192.0.2.2 box.lan\n\
                fe80::1%lo0 x\n0.0.0.0 nothing\n192.0.2.9\n192.0.2.1 late\n127.0.0.1 localhost b\u{fc}x\n";
    let loaded = builder.hosts(Views::ALL, "hosts", file.as_bytes()).unwrap();
    assert_eq!((loaded.taken, loaded.skipped), (7, 3));
    let policy = builder.build().unwrap();
    assert_eq!(
        query(&policy, 0, "box.lan", A),
        "NOERROR, aa, box.lan. 60 A 192.0.2.1, box.lan. 60 A 192.0.2.2"
    );
    assert_eq!(query(&policy, 0, "box", A), "NOERROR, aa, box. 60 A 192.0.2.1");
    assert_eq!(query(&policy, 0, "box.lan", AAAA), "NOERROR, aa, box.lan. 60 AAAA 2001:db8::1");
    assert_eq!(query(&policy, 0, "box.lan", rtype::MX), "NOERROR, aa, soa box.lan. 60");
    assert_eq!(query(&policy, 0, "a.box.lan", A), "upstream");
    let reverse = "1.2.0.192.in-addr.arpa";
    assert_eq!(
        query(&policy, 0, reverse, rtype::PTR),
        "NOERROR, aa, 1.2.0.192.in-addr.arpa. 60 PTR box.lan."
    );
    let v6 = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
    assert!(query(&policy, 0, v6, rtype::PTR).ends_with(" 60 PTR box.lan."));
}

/// Each kind of zone has its result for a name with records, for another name, and for a name above
/// one with records.
#[test]
fn zones_of_every_kind() {
    let mut builder = builder();
    for line in [
        "zone static.example static",
        "static.example 900 SOA ns.static.example. host.static.example. 1 2 3 4 300",
        "deep.er.static.example 60 A 192.0.2.1",
        "zone open.static.example transparent",
        "far.below.the.static.example 60 A 192.0.2.5",
        "zone redirect.example redirect",
        "redirect.example 60 A 192.0.2.2",
        "zone refuse.example refuse",
        "one.refuse.example A 192.0.2.3",
        "zone nx.example nxdomain",
        "one.nx.example A 192.0.2.4",
        "zone open.example transparent",
        "one.open.example TXT \"a b\" c",
        "alone.example 60 IN MX 5 mail.example.",
    ] {
        builder.local(Views::ALL, line).unwrap();
    }
    let policy = builder.build().unwrap();
    for (name, qtype, expected) in [
        ("deep.er.static.example", A, "NOERROR, aa, deep.er.static.example. 60 A 192.0.2.1"),
        ("deep.er.static.example", AAAA, "NOERROR, aa, soa static.example. 300"),
        ("er.static.example", A, "NOERROR, aa, soa static.example. 300"),
        (
            "far.below.the.static.example",
            A,
            "NOERROR, aa, far.below.the.static.example. 60 A 192.0.2.5",
        ),
        ("the.static.example", A, "NOERROR, aa, soa static.example. 300"),
        ("static.example", A, "NOERROR, aa, soa static.example. 300"),
        ("no.static.example", A, "NXDOMAIN, aa, soa static.example. 300"),
        ("x.open.static.example", A, "upstream"),
        ("any.redirect.example", A, "NOERROR, aa, any.redirect.example. 60 A 192.0.2.2"),
        ("any.redirect.example", AAAA, "NOERROR, aa, soa redirect.example. 60"),
        ("one.refuse.example", A, "NOERROR, aa, one.refuse.example. 3600 A 192.0.2.3"),
        ("one.refuse.example", AAAA, "REFUSED, ede 15"),
        ("refuse.example", A, "REFUSED, ede 15"),
        ("one.nx.example", A, "NXDOMAIN, aa, soa nx.example. 60, ede 15"),
        ("nx.example", A, "NXDOMAIN, aa, soa nx.example. 60, ede 15"),
        ("one.open.example", A, "NOERROR, aa, soa open.example. 60"),
        ("open.example", A, "upstream"),
        ("alone.example", rtype::MX, "NOERROR, aa, alone.example. 60 MX 5 mail.example."),
        ("alone.example", A, "NOERROR, aa, soa alone.example. 60"),
        ("x.alone.example", A, "upstream"),
        ("example", A, "upstream"),
    ] {
        assert_eq!(query(&policy, 0, name, qtype), expected, "{name} {qtype}");
    }
    assert!(query(&policy, 0, "one.open.example", TXT).contains("a b"));
}

/// The policy follows aliases within local data. An alias to another name gives the name to query,
/// and a loop of aliases ends.
#[test]
fn aliases() {
    let mut builder = builder();
    builder.hosts(Views::ALL, "hosts", "192.0.2.1 end".as_bytes()).unwrap();
    for line in [
        "one 60 CNAME two",
        "two 60 CNAME end",
        "out 60 CNAME www.example.com",
        "ring 60 CNAME ring",
        "zone s static",
        "gone 60 CNAME none.s",
    ] {
        builder.local(Views::ALL, line).unwrap();
    }
    let policy = builder.build().unwrap();
    assert_eq!(
        query(&policy, 0, "one", A),
        "NOERROR, aa, one. 60 CNAME two., two. 60 CNAME end., end. 60 A 192.0.2.1"
    );
    assert_eq!(query(&policy, 0, "one", rtype::CNAME), "NOERROR, aa, one. 60 CNAME two.");
    assert_eq!(
        query(&policy, 0, "one", AAAA),
        "NOERROR, aa, one. 60 CNAME two., two. 60 CNAME end., soa end. 60"
    );
    assert_eq!(
        query(&policy, 0, "out", A),
        "NOERROR, aa, out. 60 CNAME www.example.com., ask \\x03www\\x07example\\x03com\\x00"
    );
    assert_eq!(query(&policy, 0, "gone", A), "NXDOMAIN, aa, gone. 60 CNAME none.s., soa s. 60");
    assert_eq!(query(&policy, 0, "ring", A).matches("CNAME").count(), ALIASES_MAX + 1);
}

/// All syntaxes of lists are read. Other lines are counted, and the first few are reported. A
/// listed name blocks all names below it, and no other.
#[test]
fn blocklists() {
    let mut builder = builder();
    let file = "[Adblock Plus]\n! title\n# comment\nplain.example # why\n*.star.example\n.dot.example\n\
                ||rule.example^\n0.0.0.0 hosts.example other.example\n127.0.0.1 localhost\n::1 ip6-localhost\n\
                0.0.0.0 0.0.0.0\nPLAIN.example.\nsub.plain.example\nxn--bcher-kva.example\n\
                ||bad.example^$script\n@@||bad.example^\n<html>\n192.0.2.1 bad.example\nb\u{fc}cher.example\n\
                two words\n.\na..b\n";
    let loaded = builder.blocklist(List::default(), "list", file.as_bytes()).unwrap();
    assert_eq!((loaded.taken, loaded.covered, loaded.skipped), (7, 2, 8));
    assert_eq!(loaded.problems.len(), 5);
    assert!(loaded.problems[4].1.contains("xn--"), "{:?}", loaded.problems);
    builder.allowlist(Views::ALL, "allow", "good.plain.example".as_bytes()).unwrap();
    let policy = builder.build().unwrap();
    assert_eq!(policy.blocked().0, 7);
    for name in ["plain", "star", "dot", "rule", "hosts", "other"] {
        let expected = format!("NXDOMAIN, soa {name}.example. 60, ede 15");
        assert_eq!(query(&policy, 0, &format!("{name}.example"), A), expected);
        assert_eq!(query(&policy, 0, &format!("a.b.{name}.example"), AAAA), expected);
        assert_eq!(query(&policy, 0, &format!("x{name}.example"), A), "upstream");
    }
    assert_eq!(query(&policy, 0, "a.good.plain.example", A), "upstream");
    assert_eq!(query(&policy, 0, "bad.example", A), "upstream");
    assert_eq!(query(&policy, 0, "example", A), "upstream");
}

/// Each kind of response for blocked names, for the views of a list, with the extended error of its
/// reason.
#[test]
fn answers_to_blocked_names() {
    let mut builder = builder();
    let kids = builder.assign("192.168.7.0/24 kids").unwrap();
    assert_eq!((kids, builder.view("default").unwrap()), (1, 0));
    let all = List { answer: BlockAnswer::Zero, ..List::default() };
    let first = builder.blocklist(all, "zero", "zero.example".as_bytes()).unwrap();
    let own =
        List { views: Views::of(&[kids]), answer: BlockAnswer::Refused, reason: Reason::Client };
    let second = builder.blocklist(own, "kids", "games.example".as_bytes()).unwrap();
    assert_eq!((first.number, second.number), (0, 1));
    let policy = builder.build().unwrap();
    assert_eq!(policy.admit("192.168.7.9".parse().unwrap()), Admission::Allowed { view: kids });
    assert_eq!(policy.admit("192.168.8.9".parse().unwrap()), Admission::Allowed { view: 0 });
    assert_eq!(policy.admit("8.8.8.8".parse().unwrap()), Admission::Refused);
    assert_eq!((policy.generation(), policy.views()[1].as_str()), (7, "kids"));
    assert_eq!(
        query(&policy, kids, "zero.example", A),
        "NOERROR, zero.example. 60 A 0.0.0.0, ede 4"
    );
    assert_eq!(query(&policy, 0, "zero.example", AAAA), "NOERROR, zero.example. 60 AAAA ::, ede 4");
    assert_eq!(query(&policy, 0, "zero.example", TXT), "NOERROR, soa zero.example. 60, ede 15");
    assert_eq!(query(&policy, kids, "games.example", A), "REFUSED, ede 17");
    assert_eq!(query(&policy, 0, "games.example", A), "upstream");
    assert_eq!(query(&policy, 9_999, "zero.example", A), "upstream", "no such view");
    let question = question("games.example", A, class::IN);
    let local = policy.local(kids, &question, &mut Vec::new()).unwrap();
    assert_eq!(local.source, Source::Block { list: 1 });
}

/// Each rule of a response policy zone has its effect. A rule for the name itself precedes a star,
/// and a longer star a shorter one. Unsupported rules are counted.
#[test]
fn response_policy_zones() {
    let file = "$TTL 30\n@ SOA localhost. root.localhost. 1 2 3 4 5\n  NS localhost.\n\
                nx.example CNAME .\n*.nx.example CNAME *.\ngood.nx.example CNAME rpz-passthru.\n\
                drop.example CNAME rpz-drop.\nown.example A 192.0.2.1\nown.example A 192.0.2.2\n\
                *.wide.example CNAME garden.example.\n*.deep.wide.example.rpz.local. CNAME .\n\
                own.example CNAME .\n24.0.2.0.192.rpz-ip CNAME .\ntcp.example CNAME rpz-tcp-only.\n\
                outside. CNAME .\nbroken.example A ( 192.0.2.1\nlost.example CNAME .\n";
    let mut builder = builder();
    let loaded = builder.rpz(Views::ALL, "rpz.local", "rpz", file.as_bytes()).unwrap();
    assert_eq!((loaded.taken, loaded.skipped), (8, 5), "{:?}", loaded.problems);
    assert_eq!(loaded.problems[4].0, 16, "where the entry began");
    let second = "nx.example A 192.0.2.9\ngood.nx.example CNAME .\nlast.example CNAME .";
    let second = builder.rpz(Views::ALL, "rpz.local", "rpz2", second.as_bytes()).unwrap();
    assert_eq!((second.number, second.taken), (1, 3));
    let policy = builder.build().unwrap();
    for (name, qtype, expected) in [
        ("nx.example", A, "NXDOMAIN, soa nx.example. 60, ede 15"),
        ("a.b.nx.example", A, "NOERROR, soa nx.example. 60, ede 15"),
        ("good.nx.example", A, "upstream"),
        ("drop.example", A, "dropped"),
        (
            "own.example",
            A,
            "NOERROR, own.example. 30 A 192.0.2.1, own.example. 30 A 192.0.2.2, ede 4",
        ),
        ("own.example", AAAA, "NOERROR, soa own.example. 60, ede 15"),
        ("x.own.example", A, "upstream"),
        ("wide.example", A, "upstream"),
        ("a.deep.wide.example", A, "NXDOMAIN, soa deep.wide.example. 60, ede 15"),
        ("tcp.example", A, "upstream"),
        ("last.example", A, "NXDOMAIN, soa last.example. 60, ede 15"),
    ] {
        assert_eq!(query(&policy, 0, name, qtype), expected, "{name}");
    }
    let garden = query(&policy, 0, "a.wide.example", A);
    assert!(garden.contains("CNAME garden.example., ede 4, ask"), "{garden}");
}

/// Names of special use get the responses of their RFCs, unless an exempt name or a local zone
/// contains them.
#[test]
fn names_of_special_use() {
    let mut builder = builder();
    builder.exempt("10.in-addr.arpa").unwrap();
    builder.exempt("office.test").unwrap();
    builder.exempt("100.in-addr.arpa").unwrap();
    builder.local(Views::ALL, "zone home.arpa transparent").unwrap();
    builder.local(Views::ALL, "zone . transparent").unwrap();
    let policy = builder.build().unwrap();
    for (name, qtype, expected) in [
        ("localhost", A, "NOERROR, aa, localhost. 10800 A 127.0.0.1"),
        ("a.localhost", AAAA, "NOERROR, aa, a.localhost. 10800 AAAA ::1"),
        ("localhost", rtype::MX, "NOERROR, aa, soa localhost. 10800"),
        ("1.0.0.127.in-addr.arpa", 12, "NOERROR, aa, 1.0.0.127.in-addr.arpa. 10800 PTR localhost."),
        ("2.0.0.127.in-addr.arpa", 12, "NXDOMAIN, aa, soa 127.in-addr.arpa. 10800"),
        ("invalid", A, "NXDOMAIN, aa, soa invalid. 10800"),
        ("a.test", A, "NXDOMAIN, aa, soa test. 10800"),
        ("a.office.test", A, "upstream"),
        ("a.onion", A, "NXDOMAIN, aa, soa onion. 10800"),
        ("1.1.168.192.in-addr.arpa", 12, "NXDOMAIN, aa, soa 168.192.in-addr.arpa. 10800"),
        ("1.31.172.in-addr.arpa", 12, "NXDOMAIN, aa, soa 31.172.in-addr.arpa. 10800"),
        ("1.32.172.in-addr.arpa", 12, "upstream"),
        ("1.10.in-addr.arpa", 12, "upstream"),
        ("1.64.100.in-addr.arpa", 12, "upstream"),
        (
            "16.172.in-addr.arpa",
            rtype::NS,
            "NOERROR, aa, 16.172.in-addr.arpa. 10800 NS 16.172.in-addr.arpa.",
        ),
        ("16.172.in-addr.arpa", A, "NOERROR, aa, soa 16.172.in-addr.arpa. 10800"),
        ("a.home.arpa", A, "upstream"),
        ("_dns.resolver.arpa", rtype::SVCB, "NOERROR, aa, soa resolver.arpa. 10800"),
        ("use-application-dns.net", A, "upstream"),
        ("local", A, "upstream"),
    ] {
        assert_eq!(query(&policy, 0, name, qtype), expected, "{name}");
    }
    let soa = query(&policy, 0, "16.172.in-addr.arpa", rtype::SOA);
    assert!(soa.contains("SOA 16.172.in-addr.arpa. nobody.invalid. 1 "), "{soa}");
    let plain = super::Builder::new(0, &[0; 16]).build().unwrap();
    assert_eq!(query(&plain, 0, "a.home.arpa", A), "NXDOMAIN, aa, soa home.arpa. 10800");
    assert_eq!(query(&plain, 0, "home.arpa", rtype::DS), "upstream");
}

/// Names of class CHAOS are refused unless a text was given. Other classes have no local response.
#[test]
fn chaos() {
    let mut builder = builder();
    builder.version("larder").unwrap();
    assert!(builder.id(&"x".repeat(256)).is_err());
    let policy = builder.build().unwrap();
    let version = query_class(&policy, 0, "version.bind", TXT, class::CH);
    assert_eq!(version, "NOERROR, aa, version.bind. 0 TXT larder");
    assert_eq!(query_class(&policy, 0, "id.server", TXT, class::CH), "REFUSED");
    assert_eq!(query_class(&policy, 0, "example", A, class::CH), "REFUSED");
    assert_eq!(query_class(&policy, 0, "localhost", A, 4), "upstream");
}

/// A mistake in a setting is an error that shows the setting and what to write.
#[test]
fn mistakes() {
    let mut builder = builder();
    for (setting, says) in [
        ("zone x stattic", "static, transparent"),
        ("zone b\u{fc}cher static", "xn--"),
        ("a 60 A 192.0.2.1.2", "no IPv4"),
        ("a 60 A", "too soon"),
        ("", "NAME TTL TYPE DATA"),
        ("a 60 A ( 192.0.2.1", "parenthesis"),
    ] {
        let error = builder.local(Views::ALL, setting).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(&format!("{setting:?}")), "{error}");
    }
    builder.local(Views::ALL, "a CNAME b").unwrap();
    assert!(builder.local(Views::ALL, "a A 192.0.2.1").is_err());
    for setting in ["10.0.0.0/8", "10.0.0.0/8 alow", "10.0.0.0/8 allow x", "10.0.0.1/8 allow"] {
        assert!(builder.access(setting).is_err(), "{setting}");
    }
    for number in 1..VIEWS_MAX {
        builder.view(&format!("v{number}")).unwrap();
    }
    assert!(builder.view("one more").is_err());
}

/// Access rules of the operator replace the default ones.
#[test]
fn access_lists() {
    let mut builder = builder();
    builder.access("10.0.0.0/8 allow").unwrap();
    builder.access("10.1.0.0/16 drop").unwrap();
    builder.access("10.1.1.0/24 refuse").unwrap();
    let policy = builder.build().unwrap();
    for (client, expected) in [
        ("10.9.9.9", Admission::Allowed { view: 0 }),
        ("10.1.9.9", Admission::Dropped),
        ("10.1.1.9", Admission::Refused),
        ("127.0.0.1", Admission::Refused),
        ("::1", Admission::Refused),
    ] {
        assert_eq!(policy.admit(client.parse().unwrap()), expected, "{client}");
    }
}

/// A file that cannot be read is an error that names it.
#[test]
fn unreadable_files() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("gone"))
        }
    }
    let error = builder().blocklist(List::default(), "list.txt", Broken).unwrap_err();
    assert_eq!(error.to_string(), "list.txt: cannot be read: gone");
}

/// Names of few labels, so that sources and queries match often.
fn any_name() -> impl Strategy<Value = String> {
    let label = prop_oneof![
        4 => "[abc]",
        1 => Just("test".to_string()),
        1 => Just("localhost".to_string()),
        1 => Just("arpa".to_string()),
        1 => Just("home".to_string()),
        1 => Just(r"\000\255".to_string()),
        1 => Just("x".repeat(60)),
    ];
    prop::collection::vec(label, 1..5).prop_map(|labels| labels.join("."))
}

fn any_record() -> impl Strategy<Value = String> {
    let data = prop_oneof![
        Just("A 192.0.2.1".to_string()),
        Just("AAAA 2001:db8::1".to_string()),
        Just("TXT \"a b\" c".to_string()),
        Just("SOA a. b. 1 2 3 4 5".to_string()),
        Just("CAA 0 issue ca.example".to_string()),
        any_name().prop_map(|name| format!("CNAME {name}.")),
        any_name().prop_map(|name| format!("MX 1 {name}.")),
        any_name().prop_map(|name| format!("SRV 1 2 3 {name}.")),
        any_name().prop_map(|name| format!("NS {name}.")),
        Just("CNAME .".to_string()),
        Just("CNAME *.".to_string()),
        Just("CNAME rpz-passthru.".to_string()),
    ];
    (any_name(), 0_u32..9_999, data)
        .prop_map(|(name, ttl_s, data)| format!("{name} {ttl_s} {data}"))
}

proptest! {
    /// For any sources and any query: hickory parses the response, its answer records form a chain
    /// from the question, and a negative response has a SOA record. Invariant 1.
    #[test]
    fn every_answer_is_read_by_others(
        hosts in prop::collection::vec(any_name(), 0..4),
        records in prop::collection::vec(any_record(), 0..12),
        zones in prop::collection::vec((any_name(), 0_usize..5), 0..4),
        rules in prop::collection::vec((any::<bool>(), any_record()), 0..8),
        blocked in prop::collection::vec(any_name(), 0..3),
        answer in 0..3,
        queried in prop::collection::vec((any_name(), 0_usize..10), 1..20),
    ) {
        let mut builder = builder();
        let hosts: String = hosts.iter().map(|name| format!("192.0.2.7 {name}\n")).collect();
        builder.hosts(Views::ALL, "hosts", hosts.as_bytes()).unwrap();
        for record in &records {
            // An alias next to other records is refused, which is fine here.
            let _ = builder.local(Views::ALL, record);
        }
        for (name, kind) in &zones {
            let kind = ["static", "transparent", "redirect", "refuse", "nxdomain"][*kind];
            builder.local(Views::ALL, &format!("zone {name} {kind}")).unwrap();
        }
        let rule = |(star, rule): &(bool, String)| format!("{}{rule}\n", if *star { "*." } else { "" });
        let rules: String = rules.iter().map(rule).collect();
        builder.rpz(Views::ALL, "rpz", "rpz", rules.as_bytes()).unwrap();
        let answer = [BlockAnswer::NxDomain, BlockAnswer::Zero, BlockAnswer::Refused][answer as usize];
        let list = List { answer, ..List::default() };
        builder.blocklist(list, "list", blocked.join("\n").as_bytes()).unwrap();
        let policy = builder.build().unwrap();
        for (name, qtype) in queried {
            let qtype = [A, AAAA, 2, 5, 6, 15, TXT, 33, 257, 255][qtype];
            let question = question(&name, qtype, class::IN);
            let mut answer = Vec::new();
            let Some(local) = policy.local(0, &question, &mut answer) else { continue };
            let text = read(&question, &local, &answer);
            if local.is_dropped {
                continue;
            }
            let message = Message::from_vec(&answer).unwrap();
            let mut owner = message.queries[0].name.clone();
            for record in &message.answers {
                prop_assert_eq!(&record.name, &owner, "{}", text);
                if let hickory_proto::rr::RData::CNAME(target) = &record.data {
                    owner = target.0.clone();
                }
            }
            let is_negative = message.answers.is_empty() && !text.starts_with("REFUSED");
            prop_assert!(!is_negative || message.authorities.len() == 1, "{}", text);
        }
    }

    /// No question and no file of any kind cause a panic.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "[a.*\\\\ \n|^#(){}\"$0:/-]{0,80}") {
        let mut builder = builder();
        for file in [&bytes[..], text.as_bytes()] {
            builder.hosts(Views::ALL, "f", file).unwrap();
            builder.blocklist(List::default(), "f", file).unwrap();
            builder.allowlist(Views::ALL, "f", file).unwrap();
            builder.rpz(Views::ALL, "z", "f", file).unwrap();
        }
        let _ = (builder.local(Views::ALL, &text), builder.access(&text), builder.assign(&text));
        let policy = builder.build().unwrap();
        policy.local(0, &bytes, &mut Vec::new());
        policy.local(0, text.as_bytes(), &mut Vec::new());
    }
}
