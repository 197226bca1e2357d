//! The response that each client gets from a stored one.

use super::*;

/// TTLs count down to 0; an expired response served stale has the caller's TTL; a clock that steps
/// back ages nothing.
#[test]
fn ageing() {
    let question = question_of("www.test", rtype::A);
    let answers = vec![cname("www.test", 100, "cdn.test"), a("cdn.test", 60, 1)];
    let message = response(&question, 0, [answers, vec![], vec![]]);
    let (_, stored) = rendered(&message, &info(&question, false), &RULES).expect("an answer");
    for (now_s, stale_ttl_s, expected) in [
        (1000, 0, [100, 60]),
        (1059, 0, [41, 1]),
        (1060, 0, [40, 0]),
        (5000, 0, [0, 0]),
        (1060, 30, [40, 30]),
        (5000, 30, [30, 30]),
        (999, 30, [100, 60]),
        (u32::MAX, 0, [0, 0]),
    ] {
        let reply = Reply { now_s, stale_ttl_s, ..REPLY };
        let answer = written(&stored, &query(&question, Some((512, false))), &reply).expect("room");
        let answer = Message::parse(&answer).expect("a header");
        let ttls_s: Vec<u32> =
            answer.records().map(|record| record.expect("sound").ttl_raw).collect();
        assert_eq!(ttls_s[..2], expected, "at {now_s}");
        assert_eq!(ttls_s[2], 0, "OPT has none");
    }
}

/// A code beyond the header's four bits reaches clients with EDNS; others get SERVFAIL.
#[test]
fn wide_codes() {
    let question = question_of("www.test", rtype::A);
    let message = response(&question, 9, [vec![], vec![], vec![opt(1232, 0x0200_0000, b"")]]);
    let (facts, stored) = rendered(&message, &info(&question, false), &RULES).expect("an answer");
    assert_eq!((facts.rcode, facts.kind), (0x29, Kind::Failure));
    let answer = written(&stored, &query(&question, None), &REPLY).expect("room");
    assert_eq!(answer[3] & 15, 2);
    let answer = written(&stored, &query(&question, Some((512, false))), &REPLY).expect("room");
    assert_eq!((answer[3] & 15, answer[answer.len() - 6]), (9, 2));
}

/// AD is sent to clients that set AD or DO, if the upstream set it and is trusted; AA, TC, Z and
/// other flags of the upstream are not sent.
#[test]
fn flags() {
    let bytes = question_of("www.test", rtype::A);
    let mut message = response(&bytes, 0, [vec![a("www.test", 60, 1)], vec![], vec![]]);
    message[2] |= 0x04;
    message[3] |= 0x50;
    for (has_ad, believes_ad) in [(true, true), (true, false), (false, true)] {
        message[3] = message[3] & !0x20 | u8::from(has_ad) << 5;
        let rules = Rules { believes_ad, ..RULES };
        let (_, stored) = rendered(&message, &info(&bytes, true), &rules).expect("an answer");
        for (flags, edns, wants) in [
            ([0, 0], None, false),
            ([1, 0x20], None, true),
            ([0, 0x10], Some((512, true)), true),
            ([1, 0x30], Some((512, false)), true),
            ([1, 0], Some((512, false)), false),
        ] {
            let mut bytes = query(&bytes, edns);
            bytes[2..4].copy_from_slice(&flags);
            let answer = written(&stored, &bytes, &REPLY).expect("room");
            let ad = u8::from(has_ad && believes_ad && wants) << 5;
            assert_eq!(answer[2..4], [0x80 | flags[0], 0x80 | ad | flags[1] & 0x10]);
        }
    }
}

/// A response that is too long loses whole sets from its end, and gets TC, except if only
/// additional records are missing and it is no referral. OPT stays, options are dropped last, and
/// the room is never exceeded.
#[test]
fn too_long() {
    let question = question_of("www.test", rtype::MX);
    let mx =
        |last: u8| record("www.test", rtype::MX, 60, &[&[0, last][..], &name("m.test")].concat());
    let ns = || record("test", rtype::NS, 60, &name("m.test"));
    let sections = [vec![mx(1), mx(2)], vec![ns()], vec![a("m.test", 60, 1), a("m.test", 60, 2)]];
    let message = response(&question, 0, sections);
    let (_, stored) = rendered(&message, &info(&question, false), &RULES).expect("an answer");
    let whole = shown(&message);
    let option = b"\0\x0f\0\x02\0\x03";
    let client = query(&question, Some((512, false)));
    let reply = Reply { options: option, ..REPLY };
    let full = written(&stored, &client, &reply).expect("room").len();
    let least = 12 + question.len() + OPT_BYTES;
    let mut seen = Vec::new();
    for bytes_max in (0..=full).rev() {
        let Some(answer) = written(&stored, &client, &Reply { bytes_max, ..reply }) else {
            assert!(bytes_max < least);
            continue;
        };
        assert!(least <= bytes_max && answer.len() <= bytes_max);
        let mut records = shown(&answer);
        let opt = records.pop().expect("OPT is always there");
        assert!(opt.starts_with("ad  41 "));
        let has_option = answer.ends_with(option);
        assert_eq!(has_option, bytes_max >= least + option.len());
        assert_eq!(records, whole[..records.len()]);
        let state = (records.len(), answer[2] & 2 != 0, has_option);
        if seen.last() != Some(&state) {
            seen.push(state);
        }
    }
    let expected =
        [(5, false, true), (3, false, true), (2, true, true), (0, true, true), (0, true, false)];
    assert_eq!(seen, expected);

    // Addresses belong to a referral.
    let message = response(&question, 0, [vec![], vec![ns()], vec![a("m.test", 60, 1)]]);
    let (_, stored) = rendered(&message, &info(&question, false), &RULES).expect("an answer");
    let reply = Reply { bytes_max: message.len() - 1, ..REPLY };
    let answer = written(&stored, &query(&question, None), &reply).expect("room");
    assert_eq!((shown(&answer).len(), answer[2] & 2), (1, 2));
}
