//! Tests of what is learned from statements, and of the confidence.

use super::*;
use crate::confidence::{before_trials, of_stated};
use crate::names::Rival;
use crate::options::NameSources;

const D: &str = "edge.cdn.example";
const S: &str = "www.shop.example";
const SERVER: (Addr, u16) = (Addr::v4([192, 0, 2, 1]), 443);

fn name(text: &str) -> Name {
    Name::from_canonical(text.as_bytes())
}

fn client(last: u8) -> Addr {
    Addr::v4([10, 0, 0, last])
}

fn evidence() -> Evidence {
    Evidence::new(&Options::default(), None)
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
    let meaning = Meaning::new(stated, &name(D));
    learn(evidence, scope, client, FlowStart { flow, start_ns: 0 }, stated, Some(&meaning));
    flow
}

/// A flow to [`SERVER`] states a name.
fn learn(
    evidence: &mut Evidence,
    scope: Scope,
    client: Addr,
    flow: FlowStart,
    stated: &Name,
    meaning: Option<&Meaning>,
) {
    let hashes = evidence.hashes();
    let keys = Parties::of(hashes, scope, client, SERVER).keys(hashes, stated);
    evidence.learn(scope, client, flow, &keys, meaning);
}

/// The name that a flow of `client` gets whose address has the one name `looked_up`.
fn decided(evidence: &mut Evidence, client: Addr, text: &str) -> (String, NameSource, u8) {
    let mut end = End::of(SERVER.0);
    end.naming = Some(looked_up(text));
    end.candidates = vec![name(text)];
    evidence.decide(&Subject::new(Scope::NONE, 0, client, SERVER), &mut end);
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
        server: SERVER,
        naming: looked_up(text),
        candidates: vec![name(text)],
        origins: Vec::new(),
        features: Vec::new(),
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
    let mut evidence = Evidence::new(&options, None);
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

/// After the first minutes, one flow of eight is tried, whatever the period of the traffic is. All are before.
#[test]
fn later_flows_are_a_sample() {
    let began_ns = 1_700_000_000_000_000_000;
    for period_ns in [1, 1_000, 8_000_000, 1_000_000_000, 60_000_000_000] {
        let tried = |from_ns| {
            let starts = (0..32_768).map(|flow| from_ns + flow * period_ns);
            starts.filter(|start_ns| is_tried(*start_ns, began_ns)).count()
        };
        assert!((3_850..=4_350).contains(&tried(began_ns + TRIED_NS)), "{period_ns}");
        let earlier = (1..=4_096).map(|flow| began_ns + TRIED_NS - flow * period_ns);
        assert!(earlier.into_iter().all(|start_ns| is_tried(start_ns, began_ns)), "{period_ns}");
    }
}

/// A statement of a flow, number `packet`, at a time, with a trial.
fn stated_at(evidence: &Evidence, packet: u64, time_ns: i64, trial: Trial) -> Statement {
    let keys = Parties::of(evidence.hashes(), Scope::NONE, client(1), SERVER)
        .keys(evidence.hashes(), &trial.stated);
    Statement {
        packet,
        time_ns,
        flow: FlowStart { flow: packet, start_ns: time_ns },
        key: key(packet as u16),
        client: trial.client.0,
        keys,
        meaning: Some(Meaning::new(&trial.stated, &name(D))),
        trial: Some(Box::new(Trial { packet, ..trial })),
    }
}

fn key(port: u16) -> FlowKey {
    FlowKey {
        low: client(1),
        high: client(2),
        low_port: port,
        high_port: 443,
        protocol: 6,
        scope: Scope::NONE,
    }
}

/// A trial counts when a statement comes that is 5 s younger, and no sooner: what other flows state meanwhile is
/// weighed. A choice in between changes nothing, and a clock that goes back waits.
#[test]
fn trials_wait_for_other_statements() {
    const S_NS: i64 = 1_000_000_000;
    let confidence = |evidence: &mut Evidence| decided(evidence, client(9), D).2;
    let mut evidence = evidence();
    let shipped = confidence(&mut evidence);
    let take = |evidence: &mut Evidence, packet, time_ns, stated| {
        let mut statement = stated_at(evidence, packet, time_ns, trial(D, stated));
        evidence.take(&mut statement);
    };
    // Each client means S, so the trial is right once another flow has stated S: the first one's after 4.9 s.
    take(&mut evidence, 1, 10 * S_NS, S);
    assert_eq!(confidence(&mut evidence), shipped);
    take(&mut evidence, 2, 15 * S_NS - 1, S);
    take(&mut evidence, 3, 2 * S_NS, S);
    assert_eq!(confidence(&mut evidence), shipped, "nothing was due");
    take(&mut evidence, 4, 15 * S_NS, S);
    let mut learned = trial(D, S);
    evidence.try_out(&mut learned);
    let of_learned = learned.naming.confidence;
    assert_eq!(learned.naming.source, NameSource::Learned);
    let mut others = self::evidence();
    others.counters.count(Cell::of(&learned.naming, 1), true);
    assert_eq!(of_learned, others.counters.confidence(Cell::of(&learned.naming, 1)), "one, right");
}

/// However many trials wait, the oldest counts at once where there are too many.
#[test]
fn waiting_trials_are_bounded() {
    let mut evidence = evidence();
    for packet in 0..10_000 {
        let mut statement = stated_at(&evidence, packet, 0, trial(D, S));
        evidence.take(&mut statement);
        assert!(statement.trial.is_none());
    }
    let judged = evidence.counters.all();
    assert!((5_000..9_999).contains(&judged), "{judged} of 10,000 at one time");
}

/// A client that states one name again and again is written twice. Each of its flows is judged by another one.
#[test]
fn a_repeated_statement_leaves_another_for_each_trial() {
    let mut evidence = evidence();
    let flows = [(); 4].map(|()| state(&mut evidence, Scope::NONE, client(1), &name(S)));
    for flow in flows {
        let mut trial = Trial { packet: flow, ..trial(D, S) };
        evidence.judge(&mut trial);
        assert!(trial.is_right(), "{flow}");
    }
    state(&mut evidence, Scope::NONE, client(1), &name(D));
    assert_eq!(decided(&mut evidence, client(1), D).0, D, "the last statement counts");
}

/// Invariant 3: doubts that a forger can cause cap the confidence, whatever the trials say.
#[test]
fn doubts_cap_the_confidence() {
    let mut evidence = evidence();
    for _ in 0..1_000 {
        evidence.judge(&mut trial(S, S));
    }
    for flag in [NameFlags::UNSOLICITED, NameFlags::ONE_SIDED, NameFlags::CLAIMED] {
        let mut end = End::of(SERVER.0);
        end.naming = Some(Naming { flags: flag, ..looked_up(S) });
        end.candidates = vec![name(S)];
        evidence.decide(&Subject::new(Scope::NONE, 0, client(1), SERVER), &mut end);
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
    let mut evidence = Evidence::new(&Options::default(), Some(observer));
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
    let origin = Origin { source: NameSource::DnsAddress, time_ns: 0, flags: NameFlags::NONE };
    let found = |flags, rivals: &[&str]| Found {
        name: name(D),
        source: NameSource::DnsAddress,
        time_ns: 0,
        flags,
        rivals: rivals.iter().map(|rival| Rival { name: name(rival), origin }).collect(),
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
    let hashes = Hashes::new(7);
    let keys = Parties::of(&hashes, Scope::NONE, client(1), SERVER).keys(&hashes, &name(S));
    let statement = |packet, port| Statement {
        packet,
        time_ns: 0,
        flow: FlowStart { flow: packet, start_ns: 0 },
        key: key(port),
        client: client(1),
        keys,
        meaning: None,
        trial: None,
    };
    let mut by_worker =
        [vec![statement(5, 2), statement(7, 1)], vec![], vec![statement(4, 1), statement(5, 1)]];
    let mut statements = InOrder::default();
    let mut next = |packet| {
        let next = statements.next_until(packet, by_worker.iter_mut().map(|it| &mut it[..]));
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

const RIVAL: &str = "static.shop.example";

/// The destination of a flow to [`SERVER`] at 100 s, with two names of lookups in the second before: [`D`] and
/// [`RIVAL`].
fn end_with_two() -> End {
    let origin = |ms: i64| Origin {
        source: NameSource::DnsAddress,
        time_ns: 99_000_000_000 + ms * 1_000_000,
        flags: NameFlags::NONE,
    };
    let mut end = End::of(SERVER.0);
    let flags = NameFlags::AMBIGUOUS;
    end.naming = Some(Naming { source: NameSource::DnsAddress, flags, ..looked_up(D) });
    end.candidates = vec![name(D), name(RIVAL)];
    end.origins = vec![origin(900), origin(800)];
    end
}

/// A flow of `client` states `text` at [`SERVER`], `ms` after second 99.
fn state_at(evidence: &mut Evidence, client: Addr, text: &str, ms: i64) -> u64 {
    let flow = 1_000 + ms as u64;
    let start = FlowStart { flow, start_ns: 99_000_000_000 + ms * 1_000_000 };
    learn(evidence, Scope::NONE, client, start, &name(text), None);
    flow
}

fn choice_of(evidence: &mut Evidence, client: Addr, port: u16, mut end: End) -> (End, bool) {
    let subject = Subject::new(Scope::NONE, 100_000_000_000, client, (SERVER.0, port));
    let is_other = evidence.decide(&subject, &mut end);
    (end, is_other)
}

/// Of two names the one that the client just stated is chosen, with its own source, age and flags. At the port of
/// another service, and before anything was stated, the order of lookups stays.
#[test]
fn a_client_means_what_it_just_stated() {
    let mut evidence = evidence();
    assert!(!choice_of(&mut evidence, client(1), 443, end_with_two()).1);
    for ms in [950, 960, 970] {
        state_at(&mut evidence, client(1), RIVAL, ms);
    }
    let (end, is_other) = choice_of(&mut evidence, client(1), 443, end_with_two());
    let naming = end.naming.expect("a name");
    assert!(is_other && naming.name == name(RIVAL), "{naming:?}");
    assert_eq!(end.candidates, [name(RIVAL), name(D)]);
    assert_eq!((naming.age_ms, naming.flags), (200, NameFlags::AMBIGUOUS));
    assert!(!choice_of(&mut evidence, client(1), 5222, end_with_two()).1);
}

/// Invariant 2, for the choice: one client that states a name again and again does not choose for others, and many do.
#[test]
fn one_client_does_not_choose_for_others() {
    let mut evidence = evidence();
    for ms in 0..100 {
        state_at(&mut evidence, client(1), RIVAL, ms);
    }
    assert!(!choice_of(&mut evidence, client(2), 443, end_with_two()).1);
    for last in 10..40 {
        state_at(&mut evidence, client(last), RIVAL, 100 + i64::from(last));
    }
    assert!(choice_of(&mut evidence, client(2), 443, end_with_two()).1);
}

/// Invariant 1, for the choice: a trial is judged as if its flow had stated nothing, whatever was stated before it.
#[test]
fn a_choice_does_not_see_the_own_statement() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let observer: Observer = Box::new({
        let seen = std::sync::Arc::clone(&seen);
        move |trial: &Trial| seen.lock().expect("no panic").push(trial.features.clone())
    });
    let mut evidence = Evidence::new(&Options::default(), Some(observer));
    let trial_of = |flow| {
        let End { naming, candidates, origins, .. } = end_with_two();
        let naming = naming.expect("a name");
        let start_ns = 100_000_000_000;
        Trial { packet: flow, start_ns, naming, candidates, origins, ..trial(D, RIVAL) }
    };
    state_at(&mut evidence, client(1), D, 500);
    // A flow without a statement, and one that stated the rival before its record is due.
    evidence.judge(&mut trial_of(7));
    let own = state_at(&mut evidence, client(1), RIVAL, 1_000);
    evidence.judge(&mut trial_of(own));
    let seen = seen.lock().expect("no panic");
    assert_eq!(seen[0].len(), 2, "both candidates were weighed");
    assert_eq!(seen[0], seen[1]);
}

/// A name that a forger can give to any address is no rival, and is not replaced by what flows stated.
#[test]
fn doubtful_names_are_not_chosen() {
    let mut evidence = evidence();
    for ms in [950, 960, 970] {
        state_at(&mut evidence, client(1), RIVAL, ms);
    }
    for doubt in [NameFlags::UNSOLICITED, NameFlags::ONE_SIDED, NameFlags::CLAIMED] {
        let mut end = end_with_two();
        end.origins[1].flags = doubt;
        assert!(!choice_of(&mut evidence, client(1), 443, end).1, "{doubt:?}");
    }
    let mut end = end_with_two();
    for origin in &mut end.origins {
        origin.flags = NameFlags::UNSOLICITED;
    }
    if let Some(naming) = &mut end.naming {
        naming.flags = NameFlags::UNSOLICITED;
    }
    assert!(!choice_of(&mut evidence, client(1), 443, end).1);
}
