mod chain;
mod encode;
mod write;

use super::super::DnsError;
use super::super::edns::OPT_BYTES;
use super::super::name::steps;
use super::super::query::{KeyBuf, Query};
use super::super::rdata::layout;
use super::*;

/// A name in wire form.
fn name(text: &str) -> Vec<u8> {
    let labels = text.split('.').filter(|label| !label.is_empty());
    let mut bytes: Vec<u8> =
        labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
    bytes.push(0);
    bytes
}

fn record(owner: &str, rtype: u16, ttl_s: u32, data: &[u8]) -> Vec<u8> {
    raw_record(&name(owner), rtype, 1, ttl_s, data)
}

fn raw_record(owner: &[u8], rtype: u16, class: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = owner.to_vec();
    bytes.extend(rtype.to_be_bytes());
    bytes.extend(class.to_be_bytes());
    bytes.extend(ttl.to_be_bytes());
    bytes.extend((data.len() as u16).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn a(owner: &str, ttl_s: u32, last: u8) -> Vec<u8> {
    record(owner, rtype::A, ttl_s, &[192, 0, 2, last])
}

fn cname(owner: &str, ttl_s: u32, target: &str) -> Vec<u8> {
    record(owner, rtype::CNAME, ttl_s, &name(target))
}

fn soa(owner: &str, ttl_s: u32, minimum_s: u32) -> Vec<u8> {
    let numbers = [1, 2, 3, 4, minimum_s].map(u32::to_be_bytes).concat();
    record(owner, rtype::SOA, ttl_s, &[name("ns.test"), name("mail.test"), numbers].concat())
}

fn rrsig(owner: &str, covered: u16) -> Vec<u8> {
    let data = [&covered.to_be_bytes()[..], &[9; 16], &name("test"), &[7; 20]].concat();
    record(owner, rtype::RRSIG, 300, &data)
}

fn nsec(owner: &str) -> Vec<u8> {
    record(owner, rtype::NSEC, 300, &[name("next.test"), vec![0, 1, 0x40]].concat())
}

fn opt(udp_bytes: u16, flags: u32, options: &[u8]) -> Vec<u8> {
    raw_record(&[0], rtype::OPT, udp_bytes, flags, options)
}

fn question_of(text: &str, qtype: u16) -> Vec<u8> {
    [name(text), qtype.to_be_bytes().to_vec(), vec![0, 1]].concat()
}

type Records = Vec<Vec<u8>>;

/// A response of a response code.
fn response(question: &[u8], rcode: u8, sections: [Records; 3]) -> Vec<u8> {
    let mut bytes = vec![0xab, 0xcd, 0x81, 0xa0 | rcode];
    bytes.extend(u16::from(!question.is_empty()).to_be_bytes());
    bytes.extend(sections.iter().flat_map(|records| (records.len() as u16).to_be_bytes()));
    bytes.extend(question);
    bytes.extend(sections.concat().concat());
    bytes
}

/// A query of ID 0x1234 with RD; with EDNS its size and DO.
fn query(question: &[u8], edns: Option<(u16, bool)>) -> Vec<u8> {
    let mut bytes = b"\x12\x34\x01\0\0\x01\0\0\0\0\0".to_vec();
    bytes.push(u8::from(edns.is_some()));
    bytes.extend(question);
    if let Some((udp_bytes, dnssec_ok)) = edns {
        bytes.extend(opt(udp_bytes, if dnssec_ok { 0x8000 } else { 0 }, b""));
    }
    bytes
}

const RULES: Rules = Rules {
    ttl_min_s: 0,
    ttl_max_s: u32::MAX,
    negative_ttl_max_s: u32::MAX,
    failure_ttl_s: 5,
    believes_ad: true,
    is_minimal: false,
};

fn info(question: &[u8], dnssec_ok: bool) -> QueryInfo<'_> {
    QueryInfo { question, is_case_random: false, dnssec_ok }
}

/// The stored bytes, at second 1000.
fn rendered(
    message: &[u8],
    asked: &QueryInfo<'_>,
    rules: &Rules,
) -> Result<(Facts, Vec<u8>), Unfit> {
    let mut renderer = Renderer::new();
    let outcome = renderer.render(message, asked, 1000, rules);
    assert_eq!(outcome.is_ok(), !renderer.stored().is_empty());
    outcome.map(|facts| (facts, renderer.stored().to_vec()))
}

const REPLY: Reply<'static> =
    Reply { now_s: 1000, bytes_max: 65_535, udp_bytes: 1232, stale_ttl_s: 0, options: &[] };

fn written(stored: &[u8], query: &[u8], reply: &Reply<'_>) -> Option<Vec<u8>> {
    let query = Query::read(query, &mut KeyBuf::new()).expect("a good query");
    let mut out = vec![0xee; 65_535];
    let len = write(stored, &query, reply, &mut out)?;
    Some(out[..len].to_vec())
}

/// A record in words: section, owner, type, TTL, data with its names read.
fn show(message: &Message<'_>, record: &Record) -> String {
    let read = |at: usize| {
        let mut name = NameBuf::new();
        let end = message.read_name(at, &mut name).expect("a sound name");
        (name.as_bytes().escape_ascii().to_string(), end)
    };
    let mut data = String::new();
    let mut at = record.rdata_offset;
    if let Some(layout) = layout(message, record).expect("sound data") {
        data.extend(
            message.rdata(record)[..layout.before].iter().map(|byte| format!("{byte:02x}")),
        );
        at += layout.before;
        for _ in 0..layout.names {
            let (name, end) = read(at);
            data.push_str(&name);
            data.push(' ');
            at = end;
        }
    }
    data.extend(message.bytes()[at..record.rdata_end()].iter().map(|byte| format!("{byte:02x}")));
    let section = ["an", "au", "ad"][record.section as usize];
    let (owner, rtype, ttl) = (read(record.owner_offset).0, record.rtype, record.ttl_raw);
    format!("{section} {owner} {rtype} {ttl} {data}")
}

fn shown(bytes: &[u8]) -> Vec<String> {
    let message = Message::parse(bytes).expect("a header");
    let records = message.records().map(|record| show(&message, &record.expect("a sound record")));
    records.collect()
}

/// The records that a client without EDNS is sent of this response.
fn answered(question: &[u8], message: &[u8], dnssec_ok: bool, rules: &Rules) -> Vec<String> {
    let (_, stored) = rendered(message, &info(question, dnssec_ok), rules).expect("an answer");
    shown(&written(&stored, &query(question, None), &REPLY).expect("room"))
}

/// The records in their order, without those at the given numbers.
fn without(bytes: &[u8], out: &[usize]) -> Vec<String> {
    let all = shown(bytes).into_iter().enumerate();
    all.filter(|(at, _)| !out.contains(at)).map(|(_, text)| text).collect()
}

fn facts(question: &[u8], rcode: u8, sections: [Records; 3], rules: &Rules) -> Facts {
    let message = response(question, rcode, sections);
    rendered(&message, &info(question, false), rules).expect("an answer").0
}

/// One response byte by byte, as a resolver sends it and as a client with EDNS, which wrote the
/// name in another case, gets it 20 seconds later.
#[test]
fn golden() {
    #[rustfmt::skip]
    let upstream: &[u8] = &[
        0x5d, 0x1c,             // ID
        0x81, 0xa0,             // QR RD; RA AD NOERROR
        0, 1, 0, 3, 0, 0, 0, 1, // one question, three answers, OPT
        // 12: www.example.org
        3, b'w', b'w', b'w', 7, b'e', b'x', b'a', b'm', b'p', b'l', b'e', 3, b'o', b'r', b'g', 0,
        0, 1, 0, 1,             // 29: A IN
        0xc0, 12,               // 33: the name asked
        0, 5, 0, 1, 0, 0, 1, 0x2c, 0, 6, // CNAME IN, 300 s, 6 bytes
        3, b'c', b'd', b'n', 0xc0, 16, // 45: cdn.example.org
        0xc0, 45, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1, // 51: A IN, 60 s
        0xc0, 45, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 2, // 67
        0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 12, // 83: OPT, 1232 bytes, 12 of options
        0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, // a cookie, which is for one client
    ];
    let question = &upstream[12..33];
    let mut renderer = Renderer::new();
    let facts = renderer.render(upstream, &info(question, false), 0x0102_0304, &RULES);
    let expected = Facts {
        kind: Kind::Data,
        rcode: 0,
        ttl_s: 60,
        aliases: 1,
        unrelated: 0,
        extended_error: None,
    };
    assert_eq!(facts, Ok(expected));
    let stored = [
        &[1, 2, 3, 4, 0, 3, 0, 0][..], // born; three TTLs; NOERROR
        &[0, 0, 0x80, 0x20, 0, 1, 0, 3, 0, 0, 0, 0], // of the header AD and the counts
        &upstream[12..83],
        &[0, 39, 0, 57, 0, 73], // the TTLs' places
    ];
    assert_eq!(renderer.stored(), stored.concat());

    let client = [
        &[0xbe, 0xef, 0x01, 0x10, 0, 1, 0, 0, 0, 0, 0, 1][..], // RD; CD
        b"\x03wWw\x07eXaMpLe\x03oRg\0\0\x01\0\x01",
        &[0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 0], // 4096 bytes; DO
    ]
    .concat();
    let reply = Reply { now_s: 0x0102_0304 + 20, ..REPLY };
    let expected = [
        &[0xbe, 0xef, 0x81, 0xb0, 0, 1, 0, 3, 0, 0, 0, 1][..], // QR RD; RA AD CD
        b"\x03wWw\x07eXaMpLe\x03oRg\0\0\x01\0\x01",
        &[0xc0, 12, 0, 5, 0, 1, 0, 0, 1, 0x18, 0, 6, 3, b'c', b'd', b'n', 0xc0, 16], // 280 s
        &[0xc0, 45, 0, 1, 0, 1, 0, 0, 0, 40, 0, 4, 192, 0, 2, 1],                    // 40 s
        &[0xc0, 45, 0, 1, 0, 1, 0, 0, 0, 40, 0, 4, 192, 0, 2, 2],
        &[0, 0, 41, 4, 0xd0, 0, 0, 0x80, 0, 0, 0], // OPT: our 1232 bytes, DO given back
    ];
    let answer = written(renderer.stored(), &client, &reply).expect("room");
    assert_eq!(answer, expected.concat());
}

/// A message that is no response to the query is ignored, whatever its content. A response that
/// cannot be read is damaged. Truncation is reported first.
#[test]
fn what_answers_the_query() {
    let question = question_of("www.test", rtype::A);
    let good = response(&question, 0, [vec![a("www.test", 60, 1)], vec![], vec![]]);
    let outcome = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut message = good.clone();
        change(&mut message);
        rendered(&message, &info(&question, false), &RULES).err()
    };
    let other = Some(Unfit::OtherQuestion);
    assert_eq!(outcome(&|_| ()), None);
    assert_eq!(outcome(&|message| message[2] &= 0x7f), other, "a query");
    assert_eq!(outcome(&|message| message[2] |= 0x20), other, "of another operation");
    assert_eq!(outcome(&|message| message[13] = b'x'), other, "another name");
    assert_eq!(outcome(&|message| message[13] = b'W'), None, "another case");
    assert_eq!(outcome(&|message| message[23] = 28), other, "another type");
    assert_eq!(outcome(&|message| message[25] = 3), other, "another class");
    assert_eq!(outcome(&|message| message[5] = 2), other, "two questions");
    assert_eq!(outcome(&|message| message[5] = 0), other, "data without a question");
    for len in 0..12 + question.len() {
        assert_eq!(outcome(&|message| message.truncate(len)), other, "{len} bytes");
    }
    for len in 12 + question.len()..good.len() {
        let damaged = outcome(&|message| message.truncate(len));
        assert!(matches!(damaged, Some(Unfit::Damaged(_))), "{len} bytes: {damaged:?}");
    }
    let cut = outcome(&|message| {
        message[2] |= 2;
        message.truncate(12 + question.len());
    });
    assert_eq!(cut, Some(Unfit::Truncated));

    let random = QueryInfo { is_case_random: true, ..info(&question, false) };
    assert!(rendered(&good, &random, &RULES).is_ok());
    let mut other_case = good.clone();
    other_case[13] = b'W';
    assert_eq!(rendered(&other_case, &random, &RULES).err(), Some(Unfit::OtherCase));
}

/// A failure may omit the question; the stored response has it, and nothing else. A response
/// without a question cannot state that there is no data or no such name.
#[test]
fn errors_without_a_question() {
    let question = question_of("www.test", rtype::A);
    for code in [1, 2, 4, 5] {
        let message =
            response(b"", code, [vec![a("www.test", 60, 1)], vec![], vec![opt(512, 0, b"")]]);
        let (facts, stored) =
            rendered(&message, &info(&question, false), &RULES).expect("an answer");
        assert_eq!((facts.kind, facts.rcode, facts.ttl_s), (Kind::Failure, u16::from(code), 5));
        let answer = written(&stored, &query(&question, None), &REPLY).expect("room");
        let head = [0x12, 0x34, 0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(answer[4..], [&head[4..], &question].concat());
        assert_eq!(answer[3] & 0x9f, head[3]);
    }
    for code in [0, 3] {
        let message = response(b"", code, [vec![], vec![], vec![]]);
        let outcome = rendered(&message, &info(&question, false), &RULES);
        assert_eq!(outcome.err(), Some(Unfit::OtherQuestion));
    }
}

/// The kind of a response, and its lifetime in the cache: data, no data with its SOA, no such name,
/// both after aliases; an inconclusive one is not cached.
#[test]
fn kinds() {
    let question = question_of("www.test", rtype::A);
    let alias = || cname("www.test", 100, "cdn.test");
    let ns = || record("test", rtype::NS, 50, &name("ns.test"));
    let kind = |rcode, sections| {
        let facts = facts(&question, rcode, sections, &RULES);
        (facts.kind, facts.ttl_s, facts.aliases)
    };
    for (rcode, answers, authority, expected) in [
        (0, vec![a("www.test", 60, 1)], vec![], (Kind::Data, 60, 0)),
        (0, vec![alias(), a("cdn.test", 200, 1)], vec![], (Kind::Data, 100, 1)),
        (0, vec![a("www.test", 60, 1)], vec![ns()], (Kind::Data, 50, 0)),
        (0, vec![], vec![soa("test", 90, 80)], (Kind::NoData, 80, 0)),
        (0, vec![], vec![soa("test", 70, 80)], (Kind::NoData, 70, 0)),
        (0, vec![], vec![ns(), soa("test", 90, 80)], (Kind::NoData, 50, 0)),
        (0, vec![], vec![soa("www.test", 90, 80)], (Kind::NoData, 80, 0)),
        (0, vec![], vec![soa("", 90, 80)], (Kind::NoData, 80, 0)),
        (0, vec![alias()], vec![soa("test", 90, 80)], (Kind::NoData, 80, 1)),
        (3, vec![], vec![soa("test", 90, 80)], (Kind::NoName, 80, 0)),
        (3, vec![alias()], vec![soa("test", 900, 800)], (Kind::NoName, 100, 1)),
        (3, vec![], vec![], (Kind::NoName, 0, 0)),
        // A referral, one upwards, aliases that are not followed, nothing.
        (0, vec![], vec![ns()], (Kind::Inconclusive, 0, 0)),
        (0, vec![], vec![record("", rtype::NS, 50, &name("a.test"))], (Kind::Inconclusive, 0, 0)),
        (0, vec![alias()], vec![], (Kind::Inconclusive, 0, 1)),
        (0, vec![alias()], vec![ns()], (Kind::Inconclusive, 0, 1)),
        (0, vec![], vec![], (Kind::Inconclusive, 0, 0)),
        // The SOA of a zone that does not have the name states nothing about it.
        (0, vec![], vec![soa("w.test", 90, 80)], (Kind::Inconclusive, 0, 0)),
        (0, vec![], vec![soa("x.www.test", 90, 80)], (Kind::Inconclusive, 0, 0)),
        (3, vec![], vec![soa("other", 90, 80)], (Kind::NoName, 0, 0)),
        (
            3,
            vec![cname("www.test", 90, "www.other")],
            vec![soa("test", 90, 80)],
            (Kind::NoName, 0, 1),
        ),
        // Data of another name or type does not count as data.
        (0, vec![a("mail.test", 60, 1)], vec![], (Kind::Inconclusive, 0, 0)),
        (0, vec![record("www.test", 28, 60, &[7; 16])], vec![], (Kind::Inconclusive, 0, 0)),
        (2, vec![], vec![soa("test", 90, 80)], (Kind::Failure, 5, 0)),
        (6, vec![], vec![], (Kind::Failure, 5, 0)),
    ] {
        let got = kind(rcode, [answers.clone(), authority.clone(), vec![]]);
        assert_eq!(got, expected, "{rcode} {answers:x?} {authority:x?}");
    }
}

/// TTLs are clamped, each on its own; a TTL of 0 stays 0, and the response is not cached; one with
/// the top bit set is the longest possible (RFC 8767, section 4).
#[test]
fn limits() {
    let question = question_of("www.test", rtype::A);
    let rules = Rules { ttl_min_s: 10, ttl_max_s: 1000, negative_ttl_max_s: 100, ..RULES };
    let shown = |rcode, sections: [Records; 3]| {
        let message = response(&question, rcode, sections);
        let (facts, stored) =
            rendered(&message, &info(&question, false), &rules).expect("an answer");
        let answer = written(&stored, &query(&question, None), &REPLY).expect("room");
        let answer = Message::parse(&answer).expect("a header");
        let ttls_s: Vec<u32> =
            answer.records().map(|record| record.expect("sound").ttl_raw).collect();
        (facts.ttl_s, ttls_s)
    };
    let data = |ttls: &[u32]| {
        shown(0, [ttls.iter().map(|&ttl| a("www.test", ttl, 1)).collect(), vec![], vec![]])
    };
    assert_eq!(data(&[5, 500, 5000]), (10, vec![10, 500, 1000]));
    assert_eq!(data(&[0x7fff_ffff]), (1000, vec![1000]));
    assert_eq!(data(&[0, 500]), (0, vec![0, 500]));
    assert_eq!(data(&[0x8000_0001, 500]), (500, vec![1000, 500]));
    assert_eq!(data(&[u32::MAX]), (1000, vec![1000]));
    let negative =
        |ttl_s, minimum_s| shown(3, [vec![], vec![soa("test", ttl_s, minimum_s)], vec![]]);
    assert_eq!(negative(500, 400), (100, vec![100]));
    assert_eq!(negative(50, 400), (50, vec![50]));
    assert_eq!(negative(400, 5), (10, vec![10]));
    assert_eq!(negative(400, 0), (0, vec![0]));
    assert_eq!(negative(400, 0x8000_0000), (100, vec![100]));
    assert_eq!(negative(0x8000_0000, 50), (50, vec![50]));
}

/// Without DO no DNSSEC records are left, except of the query type; with it, all are.
#[test]
fn dnssec_only_on_request() {
    let ds = record("test", rtype::DS, 60, &[1, 2, 3, 4]);
    let answers = || vec![a("www.test", 60, 1), rrsig("www.test", 1), a("www.test", 60, 2)];
    let authority =
        || vec![nsec("test"), rrsig("test", 47), record("test", 2, 60, &name("www.test"))];
    let additional =
        || vec![rrsig("x.test", 1), record("n3.test", rtype::NSEC3, 60, &[1; 9]), ds.clone()];
    for (qtype, left_out) in [
        (rtype::A, vec![1, 3, 4, 6, 7, 8]),
        (rtype::RRSIG, vec![0, 2, 3, 7, 8]),
        (rtype::ANY, vec![]),
    ] {
        let question = question_of("www.test", qtype);
        let message = response(&question, 0, [answers(), authority(), additional()]);
        assert_eq!(
            answered(&question, &message, false, &RULES),
            without(&message, &left_out),
            "{qtype}"
        );
    }
    let question = question_of("www.test", rtype::A);
    let message = response(&question, 0, [answers(), authority(), additional()]);
    assert_eq!(answered(&question, &message, true, &RULES), without(&message, &[]));
    // A minimal response keeps the proofs, which the response of a wildcard needs; without DO it
    // has none.
    let minimal = Rules { is_minimal: true, ..RULES };
    assert_eq!(answered(&question, &message, true, &minimal), without(&message, &[6, 7, 8]));
    let rest = without(&message, &[1, 3, 4, 5, 6, 7, 8]);
    assert_eq!(answered(&question, &message, false, &minimal), rest);
    // A response without data is not cut by it.
    let negative = [vec![], vec![soa("test", 60, 60), nsec("www.test"), rrsig("test", 6)], vec![]];
    let message = response(&question, 0, negative);
    assert_eq!(answered(&question, &message, true, &minimal), without(&message, &[]));
    assert_eq!(answered(&question, &message, false, &minimal), without(&message, &[1, 2]));
}

/// OPT, TSIG and SIG(0) are not forwarded, wherever they are; the records after them are.
#[test]
fn between_neighbours() {
    let question = question_of("www.test", rtype::MX);
    let tsig = raw_record(&name("key.test"), rtype::TSIG, 255, 0, &[1; 20]);
    let sig = |covered: u16| {
        let data = [&covered.to_be_bytes()[..], &[9; 16], &name("test"), &[7; 20]].concat();
        record("", rtype::SIG, 0, &data)
    };
    let additional = vec![
        a("mail.test", 60, 1),
        opt(1232, 0x0100_8000, b"\0\x0f\0\x04\0\x12no"),
        a("mail.test", 60, 2),
        sig(0),
        raw_record(&name("mail.test"), rtype::A, 3, 60, &[1; 4]),
        a("mail.test", 60, 3),
        tsig,
    ];
    let mx = record("www.test", rtype::MX, 60, &[&[0, 5][..], &name("mail.test")].concat());
    let message = response(&question, 2, [vec![mx], vec![opt(1, 0, b"")], additional]);
    let (facts, stored) = rendered(&message, &info(&question, true), &RULES).expect("an answer");
    assert_eq!((facts.rcode, facts.kind), (18, Kind::Failure), "its upper bits are in OPT");
    assert_eq!(facts.extended_error, Some(18));
    let answer = written(&stored, &query(&question, Some((4096, true))), &REPLY).expect("room");
    let mut expected = without(&message, &[1, 3, 5, 6, 8]);
    expected.push(format!("ad  41 {} ", 0x8000));
    assert_eq!(shown(&answer), expected);
    assert_eq!(answer[3] & 15, 2, "the upstream's trouble with us is a failure");
}

/// A stored response is written for its own query only, in any case.
#[test]
fn other_questions() {
    let question = question_of("www.test", rtype::A);
    let message = response(&question, 0, [vec![a("www.test", 60, 1)], vec![], vec![]]);
    let (_, stored) = rendered(&message, &info(&question, false), &RULES).expect("an answer");
    let is_answered = |question: &[u8]| written(&stored, &query(question, None), &REPLY).is_some();
    assert!(is_answered(&question) && is_answered(&question_of("WWW.test", rtype::A)));
    assert!(!is_answered(&question_of("wwx.test", rtype::A)));
    assert!(!is_answered(&question_of("ww.test", rtype::A)));
    assert!(!is_answered(&question_of("www.testt", rtype::A)));
    assert!(!is_answered(&question_of("www.test", 28)));
    for len in 0..stored.len() {
        let cut = &stored[..len];
        if let Some(answer) = written(cut, &query(&question, None), &REPLY) {
            assert!(answer.len() <= stored.len(), "no bytes from beyond");
        }
    }
}

/// A renderer that was used before gives the same result as a new one.
#[test]
fn reuse() {
    let question = question_of("www.test", rtype::A);
    let long: Records = (0..9).map(|last| a("www.test", 60, last)).collect();
    let messages = [
        response(&question, 0, [long, vec![], vec![]]),
        response(&question, 0, [vec![a("x.test", 60, 1), a("www.test", 60, 1)], vec![], vec![]]),
        response(&question, 3, [vec![], vec![soa("test", 60, 60)], vec![]]),
        response(&question, 0, [vec![cname("www.test", 60, "www.test")], vec![], vec![]]),
        response(&question, 0, [vec![a("www.test", 60, 1)], vec![], vec![]]),
    ];
    let mut used = Renderer::new();
    for message in messages.iter().chain(&messages) {
        let outcome = used.render(message, &info(&question, false), 1000, &RULES);
        match rendered(message, &info(&question, false), &RULES) {
            Ok((facts, stored)) => assert_eq!((outcome, used.stored()), (Ok(facts), &stored[..])),
            Err(unfit) => assert_eq!(outcome, Err(unfit)),
        }
    }
}

/// RFC 8020: the denial of a name applies to the names below it, with its own SOA and the age of
/// the response, in the spelling of the query; and to no other name.
#[test]
fn a_denied_name_denies_those_below() {
    let denied = question_of("nx.example", 1);
    let message =
        response(&denied, 3, [vec![], vec![soa("example", 900, 300), nsec("example")], vec![]]);
    let (_, stored) = rendered(&message, &info(&denied, true), &RULES).unwrap();
    let mut renderer = Renderer::new();
    for (name, is_denied) in [
        ("a.nx.example", true),
        ("b.A.NX.example", true),
        ("nx.example", false),
        ("anx.example", false),
        ("example", false),
        ("a.other.example", false),
    ] {
        let below = question_of(name, 28);
        assert_eq!(renderer.deny_below(&stored, &info(&below, false)), is_denied, "{name}");
        assert_eq!(renderer.stored().is_empty(), !is_denied);
        if is_denied {
            let reply = Reply { now_s: 1100, ..REPLY };
            let answer = written(renderer.stored(), &query(&below, None), &reply).unwrap();
            let lines = shown(&answer);
            assert!(lines.len() == 1 && lines[0].starts_with("au example 6 200 "), "{lines:?}");
            assert_eq!(Message::parse(&answer).unwrap().rcode(), 3);
            assert_eq!(answer[12..12 + below.len()], below);
        }
    }
    let (_, stored) = rendered(
        &response(&denied, 0, [vec![a("nx.example", 60, 1)], vec![], vec![]]),
        &info(&denied, false),
        &RULES,
    )
    .unwrap();
    assert!(!renderer.deny_below(&stored, &info(&question_of("a.nx.example", 1), false)));
    assert!(!renderer.deny_below(&[], &info(&question_of("a.nx.example", 1), false)));
}
