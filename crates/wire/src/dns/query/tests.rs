use super::*;
use crate::dns::Message;
use crate::dns::edns::option;

/// `www.EXAMPLE`, type A, class IN.
const QUESTION: &[u8] = b"\x03www\x07EXAMPLE\0\0\x01\0\x01";

/// A query with these flags and counts, and the bytes after the header.
fn message(flags: [u8; 2], counts: [u8; 4], body: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, flags[0], flags[1]];
    bytes.extend(counts.iter().flat_map(|&count| [0, count]));
    bytes.extend(body.concat());
    bytes
}

/// A query for [`QUESTION`] with these additional records.
fn with_additional(records: &[&[u8]]) -> Vec<u8> {
    let mut body = vec![QUESTION];
    body.extend(records);
    message([1, 0], [1, 0, 0, records.len() as u8], &body)
}

fn opt(udp_bytes: u16, flags: u32, options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 41];
    bytes.extend(udp_bytes.to_be_bytes());
    bytes.extend(flags.to_be_bytes());
    bytes.extend((options.len() as u16).to_be_bytes());
    bytes.extend(options);
    bytes
}

fn refusal(bytes: &[u8]) -> Option<Refusal> {
    Query::read(bytes, &mut KeyBuf::new()).err().map(|refused| refused.refusal)
}

/// Every field of a query is read, and the key is the name in lower case, type, class and the
/// addition.
#[test]
fn fields_and_key() {
    let mut key = KeyBuf::new();
    let bytes = message([0x01, 0x30], [1, 0, 0, 0], &[QUESTION]);
    let query = Query::read(&bytes, &mut key).expect("a good query");
    assert_eq!((query.id, query.qtype, query.qclass), (0x1234, 1, 1));
    assert!(query.recursion_desired && query.authentic_data && query.checking_disabled);
    assert_eq!((query.name(), query.question()), (&b"\x03www\x07EXAMPLE\0"[..], QUESTION));
    assert_eq!(query.edns, None);
    assert_eq!(key.as_bytes(), b"\x03www\x07example\0\0\x01\0\x01");
    assert_eq!(key.finish(&[7, 8]), b"\x03www\x07example\0\0\x01\0\x01\x07\x08");

    let bytes = message([0, 0], [1, 0, 0, 0], &[b"\0\0\x02\0\x01"]);
    let query = Query::read(&bytes, &mut key).expect("the root's servers");
    assert!(!query.recursion_desired && !query.authentic_data && !query.checking_disabled);
    assert_eq!((query.name(), key.as_bytes()), (&b"\0"[..], &b"\0\0\x02\0\x01"[..]));
}

/// Type and class are not folded though they may look like letters, nor are bytes other than ASCII
/// letters.
#[test]
fn only_the_name_is_folded() {
    let mut key = KeyBuf::new();
    let bytes = message([0, 0], [1, 0, 0, 0], &[b"\x04@[`\xc4\0AZAZ"]);
    let query = Query::read(&bytes, &mut key).expect("a good query");
    assert_eq!((query.qtype, query.qclass), (0x415a, 0x415a));
    assert_eq!(key.as_bytes(), b"\x04@[`\xc4\0AZAZ");
}

/// Names of every length up to 255 bytes are folded as the obvious loop folds them, also where the
/// buffer held another name before; one byte more is no name.
#[test]
fn every_length() {
    let mut key = KeyBuf::new();
    for name_bytes in (3..=256usize).rev() {
        let mut name = Vec::new();
        while name.len() + 1 < name_bytes {
            // With one byte left, a last label would have no byte.
            let room = name_bytes - 2 - name.len();
            let length = if room == 64 { 62 } else { room.min(63) };
            name.push(length as u8);
            name.extend((0..length).map(|at| b"AbCdEfGhZ@["[at % 11]));
        }
        name.push(0);
        assert_eq!(name.len(), name_bytes);
        let bytes = message([0, 0], [1, 0, 0, 0], &[&name, b"\0\x1c\0\x01"]);
        let read = Query::read(&bytes, &mut key);
        if name_bytes > 255 {
            assert_eq!(read.err().map(|refused| refused.refusal), Some(Refusal::Malformed));
            continue;
        }
        assert_eq!(read.expect("a good query").name(), name);
        let plain = [&name.to_ascii_lowercase()[..], b"\0\x1c\0\x01"].concat();
        assert_eq!(key.as_bytes(), plain);
        // The key of the engine: unchanged, or a digest that is unlike any name.
        let whole = [&plain[..], b"extra"].concat();
        let key = key.finish(b"extra");
        assert!(key.len() <= KEY_BYTES_MAX);
        if whole.len() <= KEY_BYTES_MAX {
            assert_eq!(key, whole);
        } else {
            assert_eq!((key.len(), key[0]), (33, 0xff));
            assert_eq!(key[1..], *Sha256::digest(&whole));
        }
    }
}

/// A message that is no query gets the right response, or none.
#[test]
fn refusals() {
    let good = message([1, 0], [1, 0, 0, 0], &[QUESTION]);
    assert_eq!(refusal(&good), None);
    for bytes in (0..good.len()).map(|end| &good[..end]) {
        let short = if bytes.len() < 12 { Refusal::Silence } else { Refusal::Malformed };
        assert_eq!(refusal(bytes), Some(short), "{} bytes", bytes.len());
    }
    for (flags, counts, body, expected) in [
        ([0x80, 0], [1, 0, 0, 0], QUESTION, Some(Refusal::Silence)),
        ([0xa8, 0], [1, 0, 0, 0], QUESTION, Some(Refusal::Silence)),
        ([0x08, 0], [1, 0, 0, 0], QUESTION, Some(Refusal::NotImplemented)),
        ([0x28, 0], [0, 0, 0, 0], b"", Some(Refusal::NotImplemented)),
        ([0, 0], [0, 0, 0, 0], b"", Some(Refusal::Malformed)),
        ([0, 0], [2, 0, 0, 0], QUESTION, Some(Refusal::Malformed)),
        ([0, 0], [1, 1, 0, 0], QUESTION, Some(Refusal::Malformed)),
        ([0, 0], [1, 0, 1, 0], QUESTION, Some(Refusal::Malformed)),
        ([0, 0], [1, 0, 0, 1], QUESTION, Some(Refusal::Malformed)),
        ([0, 0], [1, 0, 0, 0], b"\xc0\x0c\0\x01\0\x01", Some(Refusal::Malformed)),
        ([0, 0], [1, 0, 0, 0], b"\x01a\xc0\x0c\0\x01\0\x01", Some(Refusal::Malformed)),
        ([0, 0], [1, 0, 0, 0], b"\x40a\0\0\x01\0\x01", Some(Refusal::Malformed)),
        // Z and a response code in a query mean nothing; TC and AA neither.
        ([0x07, 0x4f], [1, 0, 0, 0], QUESTION, None),
    ] {
        assert_eq!(refusal(&message(flags, counts, &[body])), expected, "{flags:?} {counts:?}");
    }
    assert_eq!(refusal(&[&good[..], b"more"].concat()), None, "what follows is passed over");
}

/// OPT is found among other records, and its options by number. Two OPT records, or one with an
/// owner, are refused, and so is another version, whatever its options look like.
#[test]
fn edns() {
    let cookie = b"\0\x0a\0\x08\x01\x02\x03\x04\x05\x06\x07\x08\0\x08\0\x04\0\x01\0\0";
    let other = &b"\x01x\0\0\x01\0\x01\0\0\0\0\0\x02ab"[..];
    let first = &opt(1232, 0x8000, cookie)[..];
    for records in [&[first][..], &[other, first], &[first, other]] {
        let bytes = with_additional(records);
        let query = Query::read(&bytes, &mut KeyBuf::new()).expect("a good query");
        let edns = query.edns.expect("an OPT record");
        assert_eq!((edns.udp_bytes, edns.dnssec_ok, query.dnssec_ok()), (1232, true, true));
        assert_eq!(edns.option(option::COOKIE), Some(&[1, 2, 3, 4, 5, 6, 7, 8][..]));
        assert_eq!(edns.option(option::CLIENT_SUBNET), Some(&[0, 1, 0, 0][..]));
        assert_eq!(edns.option(option::EXTENDED_ERROR), None);
    }
    let unread = b"\0\x0a\0\x09\0";
    let owned = [&b"\x01a"[..], &opt(1232, 0, b"")].concat();
    for (records, expected, has_edns) in [
        (&[first, first][..], Refusal::Malformed, true),
        (&[&owned[..]], Refusal::Malformed, true),
        (&[&opt(1232, 0, unread)[..]], Refusal::Malformed, true),
        (&[&opt(1232, 0, b"\0\x0a\0")[..]], Refusal::Malformed, true),
        (&[&first[..first.len() - 1]], Refusal::Malformed, false),
        (&[first, &b"\0\0\x01"[..]], Refusal::Malformed, true),
        (&[&opt(1232, 1 << 16, b"")[..]], Refusal::Version, true),
        (&[&opt(1232, 255 << 16, unread)[..]], Refusal::Version, true),
    ] {
        let bytes = with_additional(records);
        let refused = Query::read(&bytes, &mut KeyBuf::new()).expect_err("to be refused");
        assert_eq!((refused.refusal, refused.has_edns), (expected, has_edns), "{records:x?}");
    }
}

/// The room over UDP is the client's, between 512 and the server's limit.
#[test]
fn room_over_udp() {
    for (client, server, expected) in [
        (None, 1232, 512),
        (Some(0), 1232, 512),
        (Some(700), 1232, 700),
        (Some(4096), 1232, 1232),
        (Some(4096), 0, 512),
    ] {
        let record = opt(client.unwrap_or(0), 0, b"");
        let records: &[&[u8]] = if client.is_some() { &[&record] } else { &[] };
        let bytes = with_additional(records);
        let query = Query::read(&bytes, &mut KeyBuf::new()).expect("a good query");
        assert_eq!(query.udp_bytes_max(server), expected, "{client:?}");
    }
}

/// A refusal repeats ID, operation, RD, CD and the question, and has BADVERS in OPT, with the same
/// DO. It fails without enough room.
#[test]
fn refusals_are_written() {
    let written = |bytes: &[u8]| {
        let refused = Query::read(bytes, &mut KeyBuf::new()).expect_err("to be refused");
        let mut out = [0xee; 512];
        let len = refused.write(bytes, 1232, &mut out)?;
        for room in 0..len {
            assert_eq!(refused.write(bytes, 1232, &mut out[..room]), None);
        }
        assert!(len <= bytes.len() + 11);
        Some(out[..len].to_vec())
    };
    let response = message([0x81, 0], [1, 0, 0, 0], &[QUESTION]);
    assert_eq!(written(&response), None);
    assert_eq!(written(b"\x12\x34\x01"), None);

    let update = message([0x29, 0x10], [1, 0, 0, 0], &[QUESTION]);
    assert_eq!(written(&update).expect("NOTIMP"), b"\x12\x34\xa9\x94\0\0\0\0\0\0\0\0");

    let records = message([0x01, 0x20], [1, 1, 0, 0], &[QUESTION]);
    let expected = [b"\x12\x34\x81\x81\0\x01\0\0\0\0\0\0", QUESTION].concat();
    assert_eq!(written(&records).expect("FORMERR"), expected);

    let version = with_additional(&[&opt(4096, 7 << 16 | 0x8000, b"")]);
    let opt = b"\0\0\x29\x04\xd0\x01\0\x80\0\0\0";
    let expected = [b"\x12\x34\x81\x80\0\x01\0\0\0\0\0\x01", QUESTION, opt].concat();
    assert_eq!(written(&version).expect("BADVERS"), expected);
    let answer = Message::parse(&expected).expect("a message");
    assert_eq!((answer.rcode(), answer.extended_rcode()), (0, rcode::BADVERS));
    let cut = Message::parse(&expected[..expected.len() - 1]).expect("a header");
    assert_eq!((cut.opt(), cut.extended_rcode()), (None, 0));
}

/// The caller's own refusal has the client's ID, flags and case; OPT with DO and options only where
/// the client has OPT; and a code that needs OPT is SERVFAIL without.
#[test]
fn empty_answers_are_written() {
    let mut out = [0; 512];
    let prohibited = b"\0\x0f\0\x02\0\x12";
    let plain = message([0x01, 0x10], [1, 0, 0, 0], &[QUESTION]);
    let query = Query::read(&plain, &mut KeyBuf::new()).expect("a good query");
    let len = query.write_empty(rcode::REFUSED, 1232, prohibited, &mut out).expect("room");
    assert_eq!(out[..len], [b"\x12\x34\x81\x95\0\x01\0\0\0\0\0\0", QUESTION].concat());
    let len = query.write_empty(rcode::BADCOOKIE, 1232, b"", &mut out).expect("room");
    assert_eq!((len, out[3]), (12 + QUESTION.len(), 0x92));

    let bytes = with_additional(&[&opt(4096, 0x8000, b"")]);
    let query = Query::read(&bytes, &mut KeyBuf::new()).expect("a good query");
    let len = query.write_empty(rcode::REFUSED, 1232, prohibited, &mut out).expect("room");
    let head = b"\x12\x34\x81\x85\0\x01\0\0\0\0\0\x01";
    let opt = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x06\0\x0f\0\x02\0\x12";
    assert_eq!(out[..len], [&head[..], QUESTION, opt].concat());
    let len = query.write_empty(rcode::BADCOOKIE, 1232, b"", &mut out).expect("room");
    assert_eq!((out[3] & 15, out[len - 6]), (7, 1), "23 is 1 in OPT and 7 in the header");
    assert_eq!(query.write_empty(rcode::REFUSED, 1232, b"", &mut out[..len - 1]), None);
}
