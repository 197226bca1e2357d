//! Messages that are encoded again.

use super::*;

/// A message that is encoded again has all its names, shorter if they occurred before in any case.
/// Names of types that must not be compressed are not, and no old pointer is left.
#[test]
fn written_anew() {
    let question = question_of("www.test", rtype::ANY);
    let naptr = [&[0, 1, 0, 2, 1, b'u', 0, 3, b'a', b'b', b'c'][..], b"\xc0\x0c"].concat();
    let pointer = [0xc0, 12];
    let answers = vec![
        a("other.test", 60, 1), // omitted: all later records move
        raw_record(
            &pointer,
            rtype::SOA,
            1,
            60,
            &[&b"\x02NS\xc0\x0c\xc0\x10"[..], &[7; 20]].concat(),
        ),
        raw_record(&pointer, rtype::MX, 1, 60, b"\0\x0a\x02ns\xc0\x0c"),
        raw_record(&pointer, rtype::SRV, 1, 60, b"\0\x01\0\x02\0\x03\xc0\x0c"),
        raw_record(&pointer, 35, 1, 60, &naptr),
        raw_record(&pointer, rtype::DNAME, 1, 60, &pointer),
        raw_record(&pointer, 16, 1, 60, b"\x02\xc0\x0c"),
        raw_record(b"\x03wWw\x04TEST\0", rtype::PTR, 1, 60, b"\x03new\x04test\0"),
    ];
    let message = response(&question, 0, [answers, vec![], vec![record("new.test", 2, 60, b"\0")]]);
    let (facts, stored) = rendered(&message, &info(&question, true), &RULES).expect("an answer");
    assert_eq!(facts.unrelated, 1);
    let answer = written(&stored, &query(&question, None), &REPLY).expect("room");
    assert_eq!(shown(&answer), without(&message, &[0]));
    let expected = [
        raw_record(
            &pointer,
            rtype::SOA,
            1,
            60,
            &[&b"\x02NS\xc0\x0c\xc0\x10"[..], &[7; 20]].concat(),
        ),
        raw_record(&pointer, rtype::MX, 1, 60, b"\0\x0a\xc0\x26"),
        raw_record(&pointer, rtype::SRV, 1, 60, b"\0\x01\0\x02\0\x03\x03www\x04test\0"),
        raw_record(&pointer, 35, 1, 60, &[&naptr[..11], b"\x03www\x04test\0"].concat()),
        raw_record(&pointer, rtype::DNAME, 1, 60, b"\x03www\x04test\0"),
        raw_record(&pointer, 16, 1, 60, b"\x02\xc0\x0c"),
        raw_record(&pointer, rtype::PTR, 1, 60, b"\x03new\xc0\x10"),
    ];
    let expected = expected.concat();
    assert_eq!(answer[12 + question.len()..][..expected.len()], expected);
}

/// More names than the table of the encoder holds: some are written out, all are right, and most
/// are still led to.
#[test]
fn many_names_anew() {
    let question = question_of("www.test", rtype::MX);
    let target =
        |at: usize| [&[0, 7][..], &name(&format!("a{at}.b{}.example.test", at / 2))].concat();
    let mut answers = vec![a("other.test", 60, 1)];
    answers.extend((0..600).map(|at| record("www.test", rtype::MX, 60, &target(at))));
    let message = response(&question, 0, [answers, vec![], vec![]]);
    let (_, stored) = rendered(&message, &info(&question, false), &RULES).expect("an answer");
    let answer = written(&stored, &query(&question, None), &REPLY).expect("room");
    assert_eq!(shown(&answer), without(&message, &[0]));
    assert!(answer.len() < message.len() * 2 / 3, "{} of {}", answer.len(), message.len());
}

/// The work for a response that was made to cost is linear in its records: owners that are ladders
/// of pointers, aliases in reverse, and a maximum of records.
#[test]
fn hostile_work() {
    let question = question_of("n0.test", rtype::A);
    let mut answers: Records = (0..16)
        .rev()
        .map(|at| cname(&format!("n{at}.test"), 60, &format!("n{}.test", at + 1)))
        .collect();
    let mut offset = 12 + question.len() + answers.concat().len();
    let mut above = offset;
    answers.push(a("x.test", 60, 1));
    offset += answers[16].len();
    for at in 0..3000 {
        let owner = (0xc000 | above as u16).to_be_bytes();
        answers.push(raw_record(&owner, rtype::A, 1, 60, &[192, 0, 2, 1]));
        if at < 120 {
            above = offset;
        }
        offset += 16;
    }
    let records = answers.len() as u64;
    let message = response(&question, 0, [answers, vec![], vec![]]);
    let mut outcome = None;
    let taken = steps::of(|| outcome = Some(rendered(&message, &info(&question, false), &RULES)));
    let (facts, _) = outcome.expect("it was run").expect("an answer");
    assert_eq!((facts.kind, facts.aliases, facts.unrelated), (Kind::Inconclusive, 16, 3001));
    // A ladder has 121 rungs; each alias walks over the answers once.
    assert!(taken < records * (121 + 2 * 20), "{taken} steps for {records} records");
}

/// A response that grows beyond a message when it is encoded again is dropped before it has grown
/// far.
#[test]
fn too_long_anew() {
    let question = question_of("www.test", rtype::ANY);
    let long =
        [&b"\x3f"[..], &[b'x'; 63], b"\x3f", &[b'y'; 63], b"\x3f", &[b'z'; 63], &[0]].concat();
    let mut answers = vec![a("other.test", 60, 1)];
    let at = 12 + question.len() + answers[0].len() + 2 + 10 + 6;
    answers.push(raw_record(&[0xc0, 12], rtype::SRV, 1, 60, &[&[0; 6][..], &long].concat()));
    let target = [&[0; 6][..], &(0xc000 | at as u16).to_be_bytes()].concat();
    answers.extend((0..2000).map(|_| raw_record(&[0xc0, 12], rtype::SRV, 1, 60, &target)));
    let message = response(&question, 0, [answers, vec![], vec![]]);
    let mut renderer = Renderer::new();
    let outcome = renderer.render(&message, &info(&question, false), 1000, &RULES);
    assert_eq!(outcome, Err(Unfit::TooLong));
    assert!(renderer.stored().is_empty() && renderer.stored.capacity() < 4 * MESSAGE_BYTES_MAX);
}

/// Data that contradicts a type which may hold compressed names makes the whole unreadable,
/// wherever it stands.
#[test]
fn damaged_data() {
    let question = question_of("www.test", rtype::A);
    for (rtype, data) in [
        (rtype::NS, &b""[..]),
        (rtype::NS, b"\x01a"),
        (rtype::NS, b"\0\0"),
        (rtype::NS, b"\xc0\xff"),
        (rtype::SOA, b"\0\0"),
        (rtype::SOA, &[0; 23]),
        (rtype::MX, b"\0"),
        (rtype::MX, b"\0\x01"),
        (35, b"\0\x01\0\x02\x09"),
        (35, b"\0\x01\0\x02\0\0\0"),
        (rtype::RRSIG, b"\0\x01"),
    ] {
        let damaged = record("test", rtype, 60, data);
        for section in 0..3 {
            let mut sections = [vec![a("www.test", 60, 1)], vec![], vec![]];
            sections[section].push(damaged.clone());
            let message = response(&question, 0, sections);
            let outcome = rendered(&message, &info(&question, true), &RULES);
            assert!(matches!(outcome, Err(Unfit::Damaged(_))), "{rtype} {data:x?}: {outcome:?}");
        }
    }
}

/// A name that uses the bytes of a TTL changes when the TTL is overwritten: such a message is not
/// copied but encoded again, with the original name.
#[test]
fn names_made_of_ttls() {
    let question = question_of("a.example", 15);
    // Type, class, TTL, length: a pointer to the second byte of the TTL makes a name of `01 02
    // 00`, the label 02.
    let ttl = 0x0f01_0200;
    let fixed = 12 + question.len() + 2 + 4 + 1;
    let exchange = [&[0, 10][..], &(0xc000 | fixed as u16).to_be_bytes()].concat();
    let record = raw_record(&[0xc0, 12], 15, 1, ttl, &exchange);
    let message = response(&question, 0, [vec![record], vec![], vec![]]);
    let rules = Rules { ttl_max_s: 300, ..RULES };
    let (facts, stored) = rendered(&message, &info(&question, false), &rules).unwrap();
    assert_eq!((facts.kind, facts.ttl_s), (Kind::Data, 300));
    for age_s in [0, 1, 299] {
        let reply = Reply { now_s: 1000 + age_s, ..REPLY };
        let answer = written(&stored, &query(&question, None), &reply).unwrap();
        let expected = format!("an a.example 15 {} 000a\\x02 ", 300 - age_s);
        assert_eq!(shown(&answer), [expected]);
    }
}
