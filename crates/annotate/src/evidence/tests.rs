//! Tests of what is learned from statements, and of the confidence.

use super::*;
use crate::confidence::{before_trials, of_stated};
use crate::options::NameSources;

const D: &str = "edge.cdn.example";
const S: &str = "www.shop.example";

fn name(text: &str) -> Name {
    Name::from_canonical(text.as_bytes())
}

fn client(last: u8) -> Addr {
    Addr::v4([10, 0, 0, last])
}

fn evidence() -> Evidence {
    Evidence::new(&Options::default(), None).expect("room for aliases")
}

fn looked_up(text: &str) -> Naming {
    Naming {
        name: name(text),
        source: NameSource::DnsPair,
        age_ms: 100,
        flags: NameFlags::NONE,
        confidence: 0,
        conflict_grade: None,
    }
}

/// A flow of `client` to an address with the one name [`D`] states `stated`. Returns the flow's
/// number.
fn state(evidence: &mut Evidence, scope: Scope, client: Addr, stated: &Name) -> u64 {
    static FLOWS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let flow = FLOWS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    evidence.learn(scope, client, &name(D), Own { flow, stated: stated.as_bytes() });
    flow
}

/// The name that a flow of `client` gets whose address has the one name `looked_up`.
fn decided(evidence: &mut Evidence, client: Addr, text: &str) -> (String, NameSource, u8) {
    let mut end = End::of(Addr::v4([192, 0, 2, 1]));
    end.naming = Some(looked_up(text));
    end.candidates = vec![name(text)];
    evidence.decide(Scope::NONE, client, &mut end);
    let naming = end.naming.expect("a name");
    assert_eq!(end.candidates.first(), Some(&naming.name), "the chosen name is the first");
    (naming.name.to_string(), naming.source, naming.confidence)
}

fn trial(text: &str, stated: &str) -> Trial {
    Trial {
        packet: 1,
        scope: Scope::NONE,
        start_ns: 0,
        client: (client(1), 50_000),
        server: (Addr::v4([192, 0, 2, 1]), 443),
        naming: looked_up(text),
        candidates: vec![name(text)],
        stated: name(stated),
    }
}

/// Invariant 2: one client's statement renames its own flows only; with a second client it counts
/// for all, also for clients that stated nothing. One client that repeats itself stays one.
#[test]
fn aliases_of_one_client_are_its_own() {
    let mut evidence = evidence();
    for _ in 0..3 {
        state(&mut evidence, Scope::NONE, client(1), &name(S));
    }
    let of = |evidence: &mut Evidence, last| {
        let (name, source, _) = decided(evidence, client(last), D);
        (name, source)
    };
    assert_eq!(of(&mut evidence, 1), (S.to_owned(), NameSource::Learned));
    assert_eq!(of(&mut evidence, 2), (D.to_owned(), NameSource::DnsPair));
    state(&mut evidence, Scope::NONE, client(2), &name(S));
    assert_eq!(of(&mut evidence, 3), (S.to_owned(), NameSource::Learned));
}

/// A client that states the looked-up name itself means that name, whatever others mean by it.
#[test]
fn a_client_that_means_the_looked_up_name_keeps_it() {
    let mut evidence = evidence();
    for last in [1, 2] {
        state(&mut evidence, Scope::NONE, client(last), &name(S));
    }
    state(&mut evidence, Scope::NONE, client(3), &name(D));
    assert_eq!(decided(&mut evidence, client(3), D).0, D);
    assert_eq!(decided(&mut evidence, client(4), D).0, S);
}

/// A name that clients mean by itself is not renamed for others by two that state another, nor for
/// them before one of them did: it takes more clients than those that count for the name.
#[test]
fn a_site_is_not_renamed_by_two_clients() {
    let mut evidence = evidence();
    state(&mut evidence, Scope::NONE, client(9), &name(D));
    for last in [1, 2] {
        state(&mut evidence, Scope::NONE, client(last), &name(S));
        assert_eq!(decided(&mut evidence, client(last), D).0, S, "its own flows");
    }
    assert_eq!(decided(&mut evidence, client(3), D).0, D);
    state(&mut evidence, Scope::NONE, client(4), &name(S));
    assert_eq!(decided(&mut evidence, client(3), D).0, S);
}

/// Of several stated names, the one of the most clients counts. A fifth one replaces a name that
/// one client stated, never the one of two.
#[test]
fn the_name_of_most_clients_counts() {
    let mut evidence = evidence();
    for last in [1, 2] {
        state(&mut evidence, Scope::NONE, client(last), &name(S));
    }
    for number in 3..20 {
        let other = name(&format!("n{number}.example"));
        state(&mut evidence, Scope::NONE, client(number), &other);
    }
    assert_eq!(decided(&mut evidence, client(99), D).0, S);
}

/// Networks with equal addresses have clients of their own.
#[test]
fn aliases_belong_to_a_network() {
    let mut evidence = evidence();
    let vlan = Scope::NONE.tagged(10);
    state(&mut evidence, vlan, client(1), &name(S));
    assert_eq!(decided(&mut evidence, client(1), D).0, D);
}

/// Without `learned` in `--names`, statements change no name.
#[test]
fn learned_names_can_be_left_out() {
    let options =
        Options { names: NameSources::parse("dns").expect("a word"), ..Options::default() };
    let mut evidence = Evidence::new(&options, None).expect("no room is needed");
    state(&mut evidence, Scope::NONE, client(1), &name(S));
    assert_eq!(decided(&mut evidence, client(1), D).0, D);
}

/// The confidence begins at the shipped share and follows the trials, in both directions.
#[test]
fn the_confidence_follows_the_trials() {
    let mut evidence = evidence();
    let first = decided(&mut evidence, client(1), S).2;
    assert_eq!(first, before_trials(&looked_up(S), 1));
    for _ in 0..200 {
        evidence.judge(&mut trial(S, S));
    }
    let sure = decided(&mut evidence, client(1), S).2;
    for _ in 0..400 {
        evidence.judge(&mut trial(S, "other.example"));
    }
    let unsure = decided(&mut evidence, client(1), S).2;
    assert_eq!((sure, unsure), (99, 33), "200 of 600");
}

/// Invariant 3: doubts that a forger can cause cap the confidence, whatever the trials say.
#[test]
fn doubts_cap_the_confidence() {
    let mut evidence = evidence();
    for _ in 0..1_000 {
        evidence.judge(&mut trial(S, S));
    }
    for flag in [NameFlags::UNSOLICITED, NameFlags::ONE_SIDED, NameFlags::CLAIMED] {
        let mut end = End::of(Addr::v4([192, 0, 2, 1]));
        end.naming = Some(Naming { flags: flag, ..looked_up(S) });
        end.candidates = vec![name(S)];
        evidence.decide(Scope::NONE, client(1), &mut end);
        assert!(end.naming.expect("a name").confidence <= 50, "{flag:?}");
    }
    assert!(of_stated(NameFlags::UNCONFIRMED) <= 50);
    assert!(of_stated(NameFlags::CONFLICT) < of_stated(NameFlags::UNCONFIRMED));
}

/// Invariant 1: the statement of a flow is learned before its record is due, and its trial leaves it
/// out: of its own client's, and of the two that count for all. A statement of another flow counts.
#[test]
fn a_trial_does_not_see_its_own_statement() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let observer: Observer = Box::new({
        let seen = std::sync::Arc::clone(&seen);
        move |trial: &Trial| {
            let naming = &trial.naming;
            seen.lock().expect("no panic").push((naming.source, naming.confidence));
        }
    });
    let mut evidence = Evidence::new(&Options::default(), Some(observer)).expect("room");
    let first = state(&mut evidence, Scope::NONE, client(1), &name(S));
    evidence.judge(&mut Trial { packet: first, ..trial(D, S) });
    let second = state(&mut evidence, Scope::NONE, client(1), &name(S));
    evidence.judge(&mut Trial { packet: second, ..trial(D, S) });
    evidence.judge(&mut Trial { packet: first, ..trial(D, S) });
    // Another client: with its own statement there are two, without it there is one.
    let other = state(&mut evidence, Scope::NONE, client(2), &name(S));
    let mut of_other = Trial { packet: other, client: (client(2), 1), ..trial(D, S) };
    evidence.judge(&mut of_other.clone());
    state(&mut evidence, Scope::NONE, client(3), &name(S));
    evidence.judge(&mut of_other);
    let seen = seen.lock().expect("no panic");
    let sources: Vec<NameSource> = seen.iter().map(|(source, _)| *source).collect();
    use NameSource::{DnsPair, Learned};
    assert_eq!(sources, [DnsPair, Learned, Learned, DnsPair, Learned]);
    let shipped = before_trials(&looked_up(D), 1);
    assert_eq!(seen[0].1, shipped);
    assert!(seen[3].1 < shipped, "the first trial was wrong, and counts for the fourth");
}

/// A statement teaches where lookups gave one name; and with rivals, where it is that name or the head
/// of its chain. A name that a forger can give to any address teaches nothing.
#[test]
fn what_a_statement_teaches() {
    let found = |flags, rivals: &[&str]| Found {
        name: name(D),
        source: NameSource::DnsAddress,
        time_ns: 0,
        flags,
        rivals: rivals.iter().map(|rival| name(rival)).collect(),
        support: Default::default(),
    };
    let asks_nothing = || -> bool { panic!("the chain does not matter") };
    assert!(teaches(&found(NameFlags::NONE, &[]), &name(S), asks_nothing));
    assert!(teaches(&found(NameFlags::AMBIGUOUS, &[S]), &name(D), asks_nothing));
    assert!(teaches(&found(NameFlags::AMBIGUOUS, &[S]), &name(S), || true));
    assert!(!teaches(&found(NameFlags::AMBIGUOUS, &[S]), &name(S), || false));
    assert!(!teaches(&found(NameFlags::AMBIGUOUS, &["x.example"]), &name(S), asks_nothing));
    let of_pair = Found { source: NameSource::DnsPair, ..found(NameFlags::AMBIGUOUS, &[S]) };
    assert!(!teaches(&of_pair, &name(S), || true), "the client looked this one up itself");
    for forged in [NameFlags::UNSOLICITED, NameFlags::CLAIMED] {
        assert!(!teaches(&found(forged, &[]), &name(S), asks_nothing));
    }
    let of_host = Found { source: NameSource::Mdns, ..found(NameFlags::NONE, &[]) };
    assert!(!teaches(&of_host, &name(S), asks_nothing));
}

/// Statements of several workers come in the order of packets, and by flow where a packet has two.
#[test]
fn statements_are_in_order() {
    let key = |port| FlowKey {
        low: client(1),
        high: client(2),
        low_port: port,
        high_port: 443,
        protocol: 6,
        scope: Scope::NONE,
    };
    let statement = |packet, port| Statement {
        packet,
        first_packet: packet,
        key: key(port),
        client: client(1),
        name: name(S),
        looked_up: name(D),
    };
    let by_worker =
        [vec![statement(5, 2), statement(7, 1)], vec![], vec![statement(4, 1), statement(5, 1)]];
    let mut statements = InOrder::default();
    let mut next = |packet| {
        let next = statements.next_until(packet, by_worker.iter().map(|it| &it[..]));
        next.map(|statement| (statement.packet, statement.key.low_port))
    };
    assert_eq!(next(3), None);
    assert_eq!(next(5), Some((4, 1)));
    assert_eq!(next(5), Some((5, 1)));
    assert_eq!(next(5), Some((5, 2)));
    assert_eq!(next(6), None);
    assert_eq!(next(u64::MAX), Some((7, 1)));
    assert_eq!(next(u64::MAX), None);
}

/// Names below the least confidence are left out with a reason, and stay candidates.
#[test]
fn unsure_names_are_left_out() {
    let mut ends = [End::of(client(1)), End::of(client(2))];
    for (end, confidence) in ends.iter_mut().zip([79, 80]) {
        end.naming = Some(Naming { confidence, ..looked_up(S) });
        end.candidates = vec![name(S)];
    }
    let [low, high] = &mut ends;
    leave_out([low, high], 80);
    assert_eq!((&low.naming, low.unnamed_reason), (&None, Some(UnnamedReason::LowConfidence)));
    assert_eq!(low.candidates, [name(S)]);
    assert!(high.naming.is_some() && high.unnamed_reason.is_none());
}
