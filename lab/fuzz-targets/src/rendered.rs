//! A server's questions and answers: keys as the obvious loop makes them, replies that keep their room, and stored
//! responses that come out as they went in.

use larder_wire::dns::edns::{OPT_BYTES, rcode};
use larder_wire::dns::query::{KEY_BYTES_MAX, KeyBuf, Query, Refusal};
use larder_wire::dns::rendered::{Kind, QueryInfo, Renderer, Reply, Rules, write};
use larder_wire::dns::{HEADER_BYTES, MESSAGE_BYTES_MAX, Message, NameBuf, rtype, skip_name};

use super::{Cut, assert_inside};

/// What a reply is written into; what is not written keeps this.
const UNTOUCHED: u8 = 0xee;

/// A message from a client.
pub fn dns_query(input: &[u8]) {
    let mut key = KeyBuf::new();
    let mut out = vec![UNTOUCHED; input.len() + OPT_BYTES];
    let query = match Query::read(input, &mut key) {
        Ok(query) => query,
        Err(refused) => {
            assert!(refused.repeated_bytes <= input.len());
            match refused.write(input, 1232, &mut out) {
                None => assert_eq!(refused.refusal, Refusal::Silence),
                Some(len) => check_reply(&out[..len], input),
            }
            return;
        }
    };
    assert_inside(query.question(), input);
    let question_end = skip_name(input, HEADER_BYTES).expect("a name that was read") + 4;
    assert_eq!(query.question(), &input[HEADER_BYTES..question_end]);
    assert_eq!(key.as_bytes()[..query.name().len()], query.name().to_ascii_lowercase());
    assert_eq!(key.as_bytes()[query.name().len()..], input[question_end - 4..question_end]);
    let message = Message::parse(input).expect("a header that was read");
    assert!(!message.is_response() && message.opcode() == 0);
    assert_eq!((query.id, query.recursion_desired), (message.id(), message.recursion_desired()));
    if let Some(edns) = query.edns {
        (0..16)
            .filter_map(|number| edns.option(number))
            .for_each(|part| assert_inside(part, input));
    }

    // In another case it has the same key, that fits the engine.
    let mut shouted = input.to_vec();
    shouted[HEADER_BYTES..question_end - 4].make_ascii_uppercase();
    let mut other_key = KeyBuf::new();
    let _ = Query::read(&shouted, &mut other_key);
    assert_eq!(key.finish(&[1; 12]), other_key.finish(&[1; 12]));
    assert!(key.as_bytes().len() <= KEY_BYTES_MAX);

    let len = query.write_empty(rcode::REFUSED, 1232, &[], &mut out).expect("room");
    check_reply(&out[..len], input);
    assert_eq!(out[HEADER_BYTES..question_end], input[HEADER_BYTES..question_end]);
}

/// A reply without records: of the same ID, readable, and never answered again.
fn check_reply(reply: &[u8], to: &[u8]) {
    let message = Message::parse(reply).expect("a header");
    assert!(message.is_response() && message.id().to_be_bytes() == to[..2]);
    assert!(message.records().all(|record| record.is_ok_and(|record| record.rtype == rtype::OPT)));
    let refused = Query::read(reply, &mut KeyBuf::new()).expect_err("a response");
    assert_eq!(refused.refusal, Refusal::Silence);
}

/// Choices, the room of a client, the age of the answer, then a response. It is held against its own question.
pub fn dns_rendered(input: &[u8]) {
    let mut input = Cut(input);
    let choices = input.u8();
    let has = |bit: u8| choices >> bit & 1 == 1;
    let (bytes_max, age_s) = (usize::from(input.u16()), u32::from(input.u16()));
    let message = input.0;
    let question = skip_name(message, HEADER_BYTES).ok();
    let question = question.and_then(|end| message.get(HEADER_BYTES..end + 4));
    let question = question.unwrap_or(b"\x01a\0\0\x01\0\x01");
    let rules = Rules {
        ttl_min_s: if has(0) { 10 } else { 0 },
        believes_ad: has(1),
        is_minimal: has(2),
        ..Rules::default()
    };
    let info = QueryInfo { question, is_case_random: true, dnssec_ok: has(3) };
    let mut renderer = Renderer::new();
    let Ok(facts) = renderer.render(message, &info, 1000, &rules) else {
        assert!(renderer.stored().is_empty());
        return;
    };
    let stored = renderer.stored();
    assert!(facts.ttl_s <= rules.ttl_max_s && facts.aliases <= 16);
    assert!(facts.kind != Kind::Inconclusive || facts.ttl_s == 0);
    assert!(stored.len() <= 8 + MESSAGE_BYTES_MAX + MESSAGE_BYTES_MAX / 4);

    // Whole, as for a client without limits, and rendered again: nothing is lost on the way.
    let client =
        [b"\x12\x34\x01\x20\0\x01\0\0\0\0\0\x01", question, b"\0\0\x29\xff\xff\0\0\x80\0\0\0"];
    let client = client.concat();
    let Ok(query) = Query::read(&client, &mut KeyBuf::new()) else { return };
    let reply = Reply {
        now_s: 1000,
        bytes_max: MESSAGE_BYTES_MAX,
        udp_bytes: 1232,
        stale_ttl_s: 0,
        options: &[],
    };
    let mut out = vec![UNTOUCHED; MESSAGE_BYTES_MAX];
    let len = write(stored, &query, &reply, &mut out).expect("room for any message");
    let whole = out[..len].to_vec();
    if whole[2] & 2 == 0 {
        let mut again = Renderer::new();
        let more = again.render(&whole, &info, 1000, &rules).expect("what was written is sound");
        assert_eq!(again.stored(), stored);
        assert_eq!((more.kind, more.ttl_s, more.aliases), (facts.kind, facts.ttl_s, facts.aliases));
        assert_eq!(more.unrelated, 0);
    }

    // For any room and age: within the room, the same records from the first on, their TTLs less.
    out.fill(UNTOUCHED);
    let reply = Reply { now_s: 1000 + age_s, bytes_max, ..reply };
    let Some(len) = write(stored, &query, &reply, &mut out) else {
        assert!(bytes_max < HEADER_BYTES + question.len() + OPT_BYTES);
        return;
    };
    assert!(len <= bytes_max && out[len..].iter().all(|&byte| byte == UNTOUCHED));
    let (all, left) = (records(&whole), records(&out[..len]));
    assert!(left.len() <= all.len());
    for ((ttl_s, record), (ttl_left_s, left)) in all.iter().zip(&left) {
        assert_eq!((record, ttl_s.saturating_sub(age_s)), (left, *ttl_left_s));
    }
    assert!(
        out[2] & 2 != 0
            || left.iter().filter(|(_, (section, ..))| *section < 2).count()
                == all.iter().filter(|(_, (section, ..))| *section < 2).count()
    );
}

/// TTL and all else of the records but OPT, which is the last.
type Rest = (u8, Vec<u8>, u16, u16, Vec<u8>);

fn records(bytes: &[u8]) -> Vec<(u32, Rest)> {
    let message = Message::parse(bytes).expect("a header");
    let mut records = Vec::new();
    for record in message.records() {
        let record = record.expect("a sound record");
        let mut owner = NameBuf::new();
        message.read_name(record.owner_offset, &mut owner).expect("a sound name");
        let rest = (
            record.section as u8,
            owner.as_bytes().to_vec(),
            record.rtype,
            record.class,
            message.rdata(&record).to_vec(),
        );
        records.push((record.ttl_raw, rest));
    }
    let (_, opt) = records.pop().expect("OPT");
    assert_eq!(opt.2, rtype::OPT);
    records
}
