//! Aliases, and the records that belong to the query.

use super::*;

/// A query for aliases, or for ANY, gets the records of the name itself.
#[test]
fn aliases_as_data() {
    for qtype in [rtype::CNAME, rtype::ANY] {
        let question = question_of("www.test", qtype);
        let answers = vec![cname("www.test", 100, "cdn.test"), a("cdn.test", 60, 1)];
        let message = response(&question, 0, [answers, vec![], vec![]]);
        let (facts, _) = rendered(&message, &info(&question, false), &RULES).expect("an answer");
        assert_eq!((facts.kind, facts.ttl_s, facts.aliases), (Kind::Data, 100, 0));
        assert_eq!(facts.unrelated, 1);
        assert_eq!(answered(&question, &message, false, &RULES), without(&message, &[1]));
    }
}

/// The records of the answer section that belong to the query stay, in the order of its aliases,
/// wherever they are.
#[test]
fn what_belongs() {
    let question = question_of("www.test", rtype::A);
    let (first, second) = (cname("www.test", 9, "b.test"), cname("b.test", 8, "c.test"));
    let (data, more) = (a("c.test", 7, 1), a("c.test", 7, 2));
    let order = |answers: &[&Vec<u8>], unrelated: u16, expected: &[usize]| {
        let answers: Records = answers.iter().map(|&record| record.clone()).collect();
        let message = response(&question, 0, [answers, vec![], vec![]]);
        let (facts, _) = rendered(&message, &info(&question, false), &RULES).expect("an answer");
        assert_eq!((facts.kind, facts.aliases, facts.unrelated), (Kind::Data, 2, unrelated));
        let all = shown(&message);
        let expected: Vec<String> = expected.iter().map(|&at| all[at].clone()).collect();
        assert_eq!(answered(&question, &message, false, &RULES), expected);
    };
    order(&[&first, &second, &data, &more], 0, &[0, 1, 2, 3]);
    order(&[&data, &second, &more, &first], 0, &[3, 1, 0, 2]);
    order(&[&second, &first, &data], 0, &[1, 0, 2]);
    let strange = [
        a("other.test", 5, 9),
        a("www.test", 5, 9),
        cname("c.test.x", 5, "d.test"),
        cname("www.test", 5, "other.test"),
        record("c.test", 28, 5, &[7; 16]),
        raw_record(&name("c.test"), rtype::A, 3, 5, &[192, 0, 2, 9]),
        record("c.test", rtype::DNAME, 5, &name("other.test")),
        soa("test", 5, 5),
        rrsig("other.test", rtype::A),
        rrsig("test", rtype::A),
    ];
    for record in &strange {
        order(&[&first, record, &second, &data], 1, &[0, 2, 3]);
        order(&[&first, &second, &data, record], 1, &[0, 1, 2]);
    }
}

/// A DNAME leads on also where its CNAME is missing, and over a CNAME that contradicts it.
#[test]
fn dname() {
    let question = question_of("a.b.old.test", rtype::A);
    let moved = record("old.test", rtype::DNAME, 60, &name("new.test"));
    let (alias, data) = (cname("a.b.old.test", 60, "a.b.new.test"), a("a.b.new.test", 60, 1));
    let forged = cname("a.b.old.test", 60, "evil.test");
    for (answers, left_out) in [
        (vec![moved.clone(), alias.clone(), data.clone()], vec![]),
        (vec![alias.clone(), moved.clone(), data.clone()], vec![]),
        (vec![moved.clone(), data.clone()], vec![]),
        (vec![moved.clone(), forged, data.clone(), a("evil.test", 60, 2)], vec![1, 3]),
        (vec![moved.clone(), alias.clone(), data.clone(), a("x.new.test", 60, 2)], vec![3]),
    ] {
        let message = response(&question, 0, [answers, vec![], vec![]]);
        let (facts, _) = rendered(&message, &info(&question, false), &RULES).expect("an answer");
        assert_eq!((facts.kind, facts.aliases), (Kind::Data, 1));
        assert_eq!(answered(&question, &message, false, &RULES), without(&message, &left_out));
    }
    // Signed: signatures of the DNAME stand at its owner.
    let signed =
        vec![moved, rrsig("old.test", rtype::DNAME), alias, data, rrsig("a.b.new.test", 1)];
    let message = response(&question, 0, [signed, vec![], vec![]]);
    assert_eq!(answered(&question, &message, true, &RULES), without(&message, &[]));
    assert_eq!(answered(&question, &message, false, &RULES), without(&message, &[1, 4]));
    // The query is for the DNAME itself, at its owner.
    let question = question_of("old.test", rtype::DNAME);
    let moved = record("old.test", rtype::DNAME, 60, &name("new.test"));
    assert_eq!(facts(&question, 0, [vec![moved], vec![], vec![]], &RULES).kind, Kind::Data);
}

/// Sixteen aliases are followed in any order; a seventeenth, or a circle, has its own error.
#[test]
fn long_chains() {
    let question = question_of("n0.test", rtype::A);
    let link = |from: usize, to: usize| cname(&format!("n{from}.test"), 60, &format!("n{to}.test"));
    let outcome = |answers: Records| {
        let message = response(&question, 0, [answers, vec![], vec![]]);
        rendered(&message, &info(&question, false), &RULES)
            .map(|(facts, _)| (facts.kind, facts.aliases))
    };
    for aliases in [1, 2, 16] {
        let mut answers: Records = (0..aliases).map(|at| link(at, at + 1)).collect();
        answers.push(a(&format!("n{aliases}.test"), 60, 1));
        assert_eq!(outcome(answers.clone()), Ok((Kind::Data, aliases as u8)));
        answers.reverse();
        assert_eq!(outcome(answers), Ok((Kind::Data, aliases as u8)));
    }
    let answers: Records = (0..17).map(|at| link(at, at + 1)).collect();
    assert_eq!(outcome(answers), Err(Unfit::AliasChain));
    assert_eq!(outcome(vec![link(0, 0)]), Err(Unfit::AliasChain));
    // A DNAME that applies to its own result has no end, with any other records.
    let endless = record("test", rtype::DNAME, 60, &name("a.test"));
    for beside in [link(0, 5), link(3, 4)] {
        assert_eq!(outcome(vec![endless.clone(), beside]), Err(Unfit::AliasChain));
    }
    assert_eq!(outcome(vec![endless]), Err(Unfit::AliasChain));
    assert_eq!(outcome(vec![link(0, 1), link(1, 0)]), Err(Unfit::AliasChain));
    assert_eq!(outcome(vec![link(1, 2), link(2, 1), link(0, 1)]), Err(Unfit::AliasChain));
    // An alias that leads out of the circle before it closes is followed.
    let answers = vec![link(0, 1), link(1, 2), link(1, 0), a("n2.test", 60, 1)];
    assert_eq!(outcome(answers), Ok((Kind::Data, 2)));
}

/// Local aliases come before an upstream's response. They have their own TTLs, which do not age
/// with the response. Response code and SOA are the upstream's, and the letters of the question the
/// client's.
#[test]
fn aliases_before_an_answer() {
    let target = question_of("c.test", rtype::A);
    let ours = question_of("a.lan", rtype::A);
    let aliases = vec![cname("a.lan", 60, "b.lan"), cname("b.lan", 900, "c.test")];
    let local = response(&ours, 0, [aliases, vec![], vec![]]);
    let data = vec![cname("c.test", 300, "d.test"), a("d.test", 200, 1)];
    let denied = vec![soa("test", 500, 500)];
    let question = question_of("A.lan", rtype::A);
    let mut renderer = Renderer::new();
    for (rcode, sections, expected) in [
        (
            0,
            [data, vec![], vec![]],
            &[
                "an a.lan 5 60 b.lan ",
                "an b.lan 5 900 c.test ",
                "an c.test 5 200 d.test ",
                "an d.test 1 100 c0000201",
            ][..],
        ),
        (
            3,
            [vec![], denied, vec![]],
            &["an a.lan 5 60 b.lan ", "an b.lan 5 900 c.test ", "au test 6 400 "],
        ),
    ] {
        let message = response(&target, rcode, sections);
        let (_, stored) = rendered(&message, &info(&target, false), &RULES).unwrap();
        assert_eq!(renderer.put_behind(&local, &stored, &info(&question, false), 1100), Ok(()));
        let reply = Reply { now_s: 1100, ..REPLY };
        let answer = written(renderer.stored(), &query(&question, None), &reply).unwrap();
        let lines = shown(&answer);
        assert_eq!(lines.len(), expected.len());
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{lines:?}");
        }
        assert_eq!(Message::parse(&answer).unwrap().rcode(), rcode);
        assert_eq!(answer[12..12 + question.len()], question);
    }
}

/// Aliases to which the upstream's response leads back are a circle. Aliases that do not lead to
/// the stored response, and bytes that are no message, are refused, and nothing is stored then.
#[test]
fn aliases_that_do_not_lead_on() {
    let target = question_of("c.test", rtype::A);
    let question = question_of("a.lan", rtype::A);
    let render = |sections| {
        rendered(&response(&target, 0, sections), &info(&target, false), &RULES).unwrap().1
    };
    let back = render([vec![cname("c.test", 9, "a.lan"), a("a.lan", 9, 1)], vec![], vec![]]);
    let good = render([vec![a("c.test", 9, 1)], vec![], vec![]]);
    let local = |owner: &str| {
        let alias = vec![cname(owner, 60, "c.test")];
        response(&question, 0, [alias, vec![], vec![]])
    };
    let mut renderer = Renderer::new();
    for (local, stored, expected) in [
        (local("a.lan"), &good[..], Ok(())),
        (local("a.lan"), &back, Err(Unfit::AliasChain)),
        (local("other.lan"), &good, Err(Unfit::OtherQuestion)),
        (local("a.lan"), &[], Err(Unfit::OtherQuestion)),
        (local("a.lan")[..40].to_vec(), &good, Err(Unfit::Damaged(DnsError::SectionTruncated))),
    ] {
        let outcome = renderer.put_behind(&local, stored, &info(&question, false), 1000);
        assert_eq!(outcome, expected);
        assert_eq!(renderer.stored().is_empty(), expected.is_err());
    }
    for end in 0..good.len() {
        let _ = renderer.put_behind(&local("a.lan"), &good[..end], &info(&question, false), 1000);
    }
}
