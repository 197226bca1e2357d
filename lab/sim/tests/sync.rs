//! How cores share a cache, simulated: what must hold whatever the policy, and small cases worked by hand.

use std::io;

use larder_sim::policy::Kind;
use larder_sim::request::{Op, Request};
use larder_sim::sync::{Mode, Outcome, Point, Settings, Spread, run};
use larder_sim::trace::{BATCH_REQUESTS, Source};
use proptest::prelude::*;

/// Requests from memory.
struct Given(Vec<Request>);

impl Source for Given {
    fn next(&mut self, batch: &mut Vec<Request>) -> io::Result<()> {
        batch.clear();
        batch.extend(self.0.drain(..self.0.len().min(BATCH_REQUESTS)));
        Ok(())
    }
}

fn outcomes(requests: &[Request], settings: &Settings, points: &[Point]) -> Vec<Outcome> {
    run(&mut Given(requests.to_vec()), settings, points, 2).expect("memory for small tables")
}

/// Of one mode under LRU.
fn outcome(text: &str, settings: &Settings, mode: Mode, capacity: u32) -> Outcome {
    outcomes(&script(text), settings, &[Point { mode, policy: Kind::Lru, capacity }])[0]
}

/// `a` is a lookup of a, `A` a set of it, `-a` its removal.
fn script(text: &str) -> Vec<Request> {
    let mut removes = false;
    let mut requests = Vec::new();
    for letter in text.bytes() {
        if letter == b'-' {
            removes = true;
            continue;
        }
        let op = match letter {
            _ if removes => Op::Remove,
            letter if letter.is_ascii_uppercase() => Op::Set,
            _ => Op::Get,
        };
        removes = false;
        requests.push(Request { op, ..Request::get(u64::from(letter.to_ascii_lowercase())) });
    }
    requests
}

/// Lookups of some names, of small ones more often.
fn skewed(count: u64, names: u64) -> Vec<Request> {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count).map(|_| Request::get(draw() % (draw() % names + 1))).collect()
}

const BY_HAND: Settings = Settings {
    cores: 2,
    period: 4,
    spread: Spread::Random,
    report_share: 1.0,
    fills: false,
    set_share: 0.0,
    falls_through: false,
    warm_up: 0,
    seed: 1,
};

/// Worked by hand, two proxies, a sync after every fourth request: what is set shows after the next sync, what was
/// replaced is given until then, and what was removed too.
#[test]
fn proxies_show_main_as_of_the_last_sync() {
    // set, miss, set, miss; hit, set, old, old; hit, removal, old, old; miss
    let text = "AaBbaAaaa-aaaa";
    let got = outcome(text, &BY_HAND, Mode::Periodic, 10);
    assert_eq!((got.requests, got.gets, got.hits, got.old), (13, 9, 6, 4));
    // Two names, one, one: at each of two proxies.
    assert_eq!((got.changes, got.records, got.entries), (4, 8, 8));

    // At once: the first misses hit, and what was removed misses.
    let got = outcome(text, &BY_HAND, Mode::Synchronous, 10);
    assert_eq!((got.hits, got.old), (6, 0));
    assert_eq!((got.changes, got.records, got.entries), (4, 8, 8));

    // Who falls through to main finds the first two as well.
    let settings = Settings { falls_through: true, ..BY_HAND };
    let got = outcome(text, &settings, Mode::Periodic, 10);
    assert_eq!((got.hits, got.old), (8, 4));
}

/// Worked by hand: two places. A read that is reported saves its name from the next new one; unreported, or
/// reported after that one came, it does not.
#[test]
fn reports_reach_main_at_the_sync() {
    let hits = |period, report_share, text| {
        let settings = Settings { period, report_share, ..BY_HAND };
        outcome(text, &settings, Mode::Periodic, 2).hits
    };
    // Synced after B, the second a, c: main is told of a before C comes, and b leaves.
    assert_eq!(hits(2, 1.0, "ABaaCcaa"), 4);
    assert_eq!(hits(2, 0.0, "ABaaCcaa"), 2);
    // Synced after the third x and the second c: main is told of a when a has left for C.
    assert_eq!(hits(5, 1.0, "ABxxxaaCccaa"), 2);
    assert_eq!(hits(1, 1.0, "ABxxxaaCccaa"), 6);
}

/// A miss fills, and is shown from the next sync on; until then it is filled again by whoever misses.
#[test]
fn misses_fill() {
    let settings = Settings { fills: true, ..BY_HAND };
    // Four misses: main changes four times, proxies copy one entry; then hits.
    let got = outcome("aaaaaaaa", &settings, Mode::Periodic, 10);
    assert_eq!((got.hits, got.changes, got.records, got.entries), (4, 4, 8, 2));
    let got = outcome("aaaaaaaa", &settings, Mode::Synchronous, 10);
    assert_eq!((got.hits, got.changes, got.records, got.entries), (7, 1, 2, 2));
}

/// A name is in one part of the table: in a table of one name a part is one entry.
#[test]
fn whole_parts_are_counted() {
    let got = outcome("AAAAAAAA", &BY_HAND, Mode::Periodic, 10);
    assert_eq!((got.changes, got.records, got.entries, got.whole), (8, 16, 4, 4));
}

/// With one core all modes that show changes at once are one: a plain cache.
#[test]
fn one_core_shares_with_nobody() {
    let requests = skewed(20_000, 2_000);
    let modes = [Mode::Synchronous, Mode::Independent, Mode::IndependentFull, Mode::Sharded];
    for policy in Kind::ALL {
        for fills in [false, true] {
            let settings = Settings { cores: 1, fills, ..Settings::default() };
            let points = modes.map(|mode| Point { mode, policy, capacity: 200 });
            let all = outcomes(&requests, &settings, &points);
            for (mode, one) in modes.iter().zip(&all) {
                let of = |outcome: &Outcome| (outcome.gets, outcome.hits, outcome.old);
                assert_eq!(of(one), of(&all[0]), "{policy} {mode}");
                assert!(one.hits > 0 && one.old == 0 && one.moved == 0);
            }
        }
    }
}

/// A sync after every request is the synchronous mode.
#[test]
fn a_period_of_one_is_synchronous() {
    let requests = skewed(20_000, 2_000);
    for fills in [false, true] {
        let settings = Settings { period: 1, fills, ..Settings::default() };
        let points = [Mode::Synchronous, Mode::Periodic].map(|mode| Point {
            mode,
            policy: Kind::Partitioned,
            capacity: 200,
        });
        let all = outcomes(&requests, &settings, &points);
        assert_eq!(all[0], all[1]);
    }
}

/// Caches that see each name's requests all together are shards, and nothing in them is old; from a random spread
/// seven in eight requests are handed over, and the same ones hit.
#[test]
fn independent_by_key_is_sharded() {
    let requests = skewed(50_000, 5_000);
    let points = [Mode::Sharded, Mode::Independent, Mode::Synchronous].map(|mode| Point {
        mode,
        policy: Kind::Lru,
        capacity: 1_000,
    });
    let settings = Settings { spread: Spread::Key, ..Settings::default() };
    let by_key = outcomes(&requests, &settings, &points);
    assert_eq!(by_key[0], by_key[1]);
    assert_eq!((by_key[0].old, by_key[0].moved), (0, 0));
    // Shards are not equally full; that is all that they lose.
    assert!((by_key[0].hit_ratio() - by_key[2].hit_ratio()).abs() < 0.02);

    let random = outcomes(&requests, &Settings::default(), &points);
    assert_eq!(random[0].hits, by_key[0].hits);
    assert!((random[0].a_request(random[0].moved) - 7.0 / 8.0).abs() < 0.01);
    assert!(random[1].hit_ratio() < random[0].hit_ratio() && random[1].old > 0);
}

/// Without sets nothing is ever old, in any mode.
#[test]
fn nothing_is_old_where_nothing_changes() {
    let requests = skewed(20_000, 2_000);
    let settings = Settings { set_share: 0.0, ..Settings::default() };
    let points = Mode::ALL.map(|mode| Point { mode, policy: Kind::Lru, capacity: 500 });
    for one in outcomes(&requests, &settings, &points) {
        assert!(one.old == 0 && one.hits > 0 && one.gets == 20_000);
    }
}

/// What warms the caches counts nowhere.
#[test]
fn the_warm_up_does_not_count() {
    let requests = skewed(20_000, 2_000);
    let points = Mode::ALL.map(|mode| Point { mode, policy: Kind::Lru, capacity: 500 });
    let cold = outcomes(&requests, &Settings::default(), &points);
    let settings = Settings { warm_up: 10_000, ..Settings::default() };
    for (cold, warm) in cold.iter().zip(outcomes(&requests, &settings, &points)) {
        assert_eq!((cold.requests, warm.requests), (20_000, 10_000));
        assert!(warm.hit_ratio() > cold.hit_ratio() && warm.records <= cold.records);
    }
}

/// A policy that cannot have its capacity is an error.
#[test]
fn impossible_capacities_are_refused() {
    let point = Point { mode: Mode::Periodic, policy: Kind::Lru, capacity: 0 };
    let error = run(&mut Given(Vec::new()), &BY_HAND, &[point], 1).unwrap_err();
    assert!(error.to_string().contains("policy"), "{error}");
}

/// Names of modes read back; others are refused with those that there are.
#[test]
fn modes_have_names() {
    for mode in Mode::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    for spread in Spread::ALL {
        assert_eq!(spread.to_string().parse(), Ok(spread));
    }
    let error = "shard".parse::<Mode>().unwrap_err().to_string();
    assert!(error.contains("sharded") && error.contains("\"shard\""), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Of any requests: every change is applied once at every proxy, hits and old ones are parts of wholes, and
    /// the same seed gives the same on any number of threads.
    #[test]
    fn what_goes_in_comes_out(
        letters in proptest::collection::vec(0u8..40, 0..400),
        cores in 1u32..9,
        period in 1u64..50,
        capacity in 1u32..12,
        reports in 0u8..3,
        fills: bool,
        falls_through: bool,
    ) {
        let request = |&letter: &u8| {
            let op = [Op::Get, Op::Get, Op::Set, Op::Remove][usize::from(letter % 4)];
            Request { op, ..Request::get(u64::from(letter / 4)) }
        };
        let requests: Vec<Request> = letters.iter().map(request).collect();
        let report_share = f64::from(reports) / 2.0;
        let settings = Settings { cores, period, report_share, fills, falls_through, ..Settings::default() };
        let points: Vec<Point> = Mode::ALL
            .into_iter()
            .flat_map(|mode| [Kind::Lru, Kind::Partitioned].map(|policy| Point { mode, policy, capacity }))
            .collect();
        let all = outcomes(&requests, &settings, &points);
        for (one, point) in all.iter().zip(&points) {
            prop_assert_eq!(one.requests, requests.len() as u64);
            prop_assert!(one.old <= one.hits && one.hits <= one.gets && one.gets <= one.requests);
            prop_assert_eq!(one.records, one.changes * u64::from(cores));
            prop_assert!(one.entries <= one.records);
            let is_replicated = matches!(point.mode, Mode::Synchronous | Mode::Periodic);
            prop_assert!(is_replicated || one.records == 0);
            prop_assert!(point.mode == Mode::Sharded || one.moved == 0);
            prop_assert!(!matches!(point.mode, Mode::Synchronous | Mode::Sharded) || one.old == 0);
        }
        let again = run(&mut Given(requests), &settings, &points, 1).expect("memory");
        prop_assert_eq!(all, again);
    }
}
