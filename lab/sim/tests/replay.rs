//! A simulated cache beside the most obvious one, and runs of many caches next to each other.

use std::sync::atomic::Ordering;

use larder::policy::{Fifo, Replacement};
use larder_sim::hit_ratio::{Capacity, Contestant, Error, Plan, Results, Row, Shape, Watch, run};
use larder_sim::intern::{Batch, Detail, Intake};
use larder_sim::policy::{Kind, Lru, Visitor};
use larder_sim::replay::{By, Counts, Replay, Rules, Simulation};
use larder_sim::request::{Op, Request, TTL_NONE};
use larder_sim::sample::Sampling;
use larder_sim::trace::random::mix;
use larder_sim::trace::{BATCH_REQUESTS, Damage, Source};
use proptest::prelude::*;

/// FIFO or LRU as one would write it down: a list, oldest first.
struct Model {
    entries: Vec<(u64, u32, u64)>,
    capacity: u64,
    rules: Rules,
    is_lru: bool,
    counts: Counts,
}

impl Model {
    fn charge(&self, bytes: u32) -> u64 {
        if self.rules.by == By::Bytes { u64::from(bytes.max(1)) } else { 1 }
    }

    fn request(&mut self, request: &Request) {
        let bytes = u64::from(request.bytes.max(1));
        self.counts.requests += 1;
        let found = self.entries.iter().position(|entry| entry.0 == request.key);
        match request.op {
            Op::Get => {
                self.counts.gets += 1;
                self.counts.get_bytes += bytes;
                match found {
                    Some(at) if request.time_s < self.entries[at].1 => {
                        self.counts.hits += 1;
                        self.counts.hit_bytes += bytes;
                        if self.is_lru {
                            let entry = self.entries.remove(at);
                            self.entries.push(entry);
                        }
                    }
                    _ if self.rules.fill => self.store(request, found),
                    _ => {}
                }
            }
            Op::Set => self.store(request, found),
            Op::Remove => {
                found.map(|at| self.entries.remove(at));
            }
        }
    }

    fn store(&mut self, request: &Request, found: Option<usize>) {
        let charge = self.charge(request.bytes);
        if charge > self.capacity {
            self.counts.bypassed += 1;
            found.map(|at| self.entries.remove(at));
            return;
        }
        let ends = match request.ttl_s {
            TTL_NONE => u32::MAX,
            ttl => request.time_s.saturating_add(ttl),
        };
        let entry = (request.key, ends, charge);
        match found {
            Some(at) if self.is_lru => {
                self.entries.remove(at);
                self.entries.push(entry);
            }
            Some(at) => self.entries[at] = entry,
            None => self.entries.push(entry),
        }
        while self.entries.iter().map(|entry| entry.2).sum::<u64>() > self.capacity {
            let oldest = self.entries.iter().position(|entry| entry.0 != request.key).unwrap();
            self.entries.remove(oldest);
            self.counts.evicted += 1;
        }
    }
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let request = (0..24u64, 0..20u32, any::<bool>(), 0..4u32, 0..8u32);
    let request = request.prop_map(|(key, ttl_s, has_ttl, bytes, op)| Request {
        key: key.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        time_s: 0,
        ttl_s: if has_ttl { ttl_s } else { TTL_NONE },
        bytes: bytes * bytes,
        op: [Op::Get, Op::Set, Op::Remove][op.saturating_sub(5) as usize],
    });
    prop::collection::vec(request, 0..400).prop_map(|mut requests| {
        for (index, request) in requests.iter_mut().enumerate() {
            request.time_s = index as u32 / 4;
        }
        requests
    })
}

/// A trace whose first part is of plain lookups, so that both loops run, and change over.
fn mixed() -> impl Strategy<Value = Vec<Request>> {
    (prop::collection::vec(0..24u64, 0..200), requests()).prop_map(|(gets, rest)| {
        let gets =
            gets.into_iter().map(|key| Request::get(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        gets.chain(rest).collect()
    })
}

fn check<P: Replacement + Send>(
    policy: P,
    is_lru: bool,
    capacity: u64,
    rules: Rules,
    requests: &[Request],
    batch: usize,
) -> Result<(), TestCaseError> {
    let mut model =
        Model { entries: Vec::new(), capacity, rules, is_lru, counts: Counts::default() };
    let mut simulation = Simulation::new(policy, capacity, rules);
    let mut intake = Intake::new();
    for part in requests.chunks(batch) {
        simulation.replay(&intake.batch(part).unwrap());
        part.iter().for_each(|request| model.request(request));
        prop_assert_eq!(simulation.counts(), model.counts);
        prop_assert_eq!(simulation.validate(), Ok(()));
    }
    Ok(())
}

proptest! {
    /// Whatever the requests (stores, removals, ends, sizes), rules, capacity and batches: hits, evictions and
    /// objects passed by are those of the obvious cache.
    #[test]
    fn simulations_are_the_obvious_cache(
        requests in mixed(),
        capacity in 1..40u64,
        fill: bool,
        is_by_bytes: bool,
        is_lru: bool,
        batch in 1..100usize,
    ) {
        let rules = Rules { fill, by: if is_by_bytes { By::Bytes } else { By::Entries } };
        match is_lru {
            true => check(Lru::new(64).unwrap(), true, capacity, rules, &requests, batch)?,
            false => check(Fifo::new(64).unwrap(), false, capacity, rules, &requests, batch)?,
        }
    }
}

/// A cache and the box it is in, both as a policy's visitor leaves them.
struct Both<'a> {
    batches: &'a [Batch],
    capacity: u64,
}

impl Visitor for Both<'_> {
    type Output = (Counts, Result<(), String>);

    fn visit<P: Replacement + Send + 'static>(self, policy: P) -> Self::Output {
        let mut simulation = Simulation::new(policy, self.capacity, Rules::default());
        self.batches.iter().for_each(|batch| simulation.replay(batch));
        (simulation.counts(), simulation.validate())
    }
}

/// The loop for plain lookups does what the general one does, for every policy, those with a surplus too.
#[test]
fn both_loops_are_one() {
    let (mut intake, requests) = (Intake::new(), skewed(30_000, 3_000));
    let plain: Vec<Batch> =
        requests.chunks(7_000).map(|part| intake.batch(part).unwrap()).collect();
    let general: Vec<Batch> = plain
        .iter()
        .map(|batch| Batch { details: vec![Detail::PLAIN; batch.ids.len()], ..batch.clone() })
        .collect();
    for kind in Kind::ALL.into_iter().chain(["paper:fixed".parse().unwrap()]) {
        let run = |batches| kind.build(150, 5, Both { batches, capacity: 150 }).unwrap();
        let (counts, valid) = run(&plain);
        assert_eq!((counts, valid), run(&general), "{kind}");
        assert!(run(&plain).1.is_ok() && counts.hits > 3_000, "{kind}: {counts:?}");
    }
}

/// Requests from memory, in batches of any size.
struct Slice {
    requests: Vec<Request>,
    at: usize,
    batch: usize,
}

impl Source for Slice {
    fn next(&mut self, batch: &mut Vec<Request>) -> std::io::Result<()> {
        let end = (self.at + self.batch).min(self.requests.len());
        batch.clear();
        batch.extend_from_slice(&self.requests[self.at..end]);
        self.at = end;
        Ok(())
    }

    fn damage(&self) -> Damage {
        Damage { records: 3, first: Some("line 7: odd".to_owned()) }
    }
}

/// Lookups, few keys often and many seldom: about as Zipf's law has it.
fn skewed(requests: u64, keys: u64) -> Vec<Request> {
    let key = |number| {
        let uniform = (mix(number) >> 11) as f64 / (1u64 << 53) as f64;
        mix((keys as f64).powf(uniform) as u64)
    };
    (0..requests).map(|number| Request::get(key(number))).collect()
}

fn run_on(plan: &Plan, requests: &[Request], batch: usize) -> Result<Results, Error> {
    let requests = requests.to_vec();
    let open = move || {
        let source = Slice { requests: requests.clone(), at: 0, batch };
        Ok(Box::new(source) as Box<dyn Source>)
    };
    run(plan, &open, &Watch::default())
}

/// What must be the same in every run.
fn fixed(results: &Results) -> Vec<Row> {
    results.rows.iter().map(|row| Row { ns_per_request: 0.0, ..row.clone() }).collect()
}

fn some_plan(capacities: Vec<Capacity>) -> Plan {
    let kinds = [Kind::Partitioned, Kind::Lru, Kind::S3Fifo, Kind::Clock];
    Plan::new(kinds.map(Contestant::from).into(), capacities)
}

/// One core and several, one pass and two, what is kept and what is read again: the same rows.
#[test]
fn results_do_not_depend_on_how_they_are_come_by() {
    let requests = skewed(60_000, 5_000);
    let distinct = {
        let mut intake = Intake::new();
        intake.batch(&requests).unwrap().keys as u64
    };
    let shares = vec![Capacity::Share(0.01), Capacity::Share(0.1), Capacity::Share(0.3)];
    let mut plan = some_plan(shares);
    let whole = run_on(&plan, &requests, 1_000).unwrap();
    assert_eq!((whole.keys, whole.requests, whole.rows.len()), (distinct, 60_000, 12));
    assert_eq!(whole.damage.records, 3, "the damage of both passes is that of one");
    for (cores, kept_bytes_max) in [(2, usize::MAX), (5, 0), (1, 10_000)] {
        plan = Plan { cores, kept_bytes_max, ..plan };
        let again = run_on(&plan, &requests, 777).unwrap();
        assert_eq!(fixed(&again), fixed(&whole), "{cores} cores, {kept_bytes_max} kept");
        assert_eq!(again.damage.records, 3);
    }
    let absolute = |share: u64| Capacity::Absolute(distinct * share / 100);
    let one_pass = some_plan(vec![absolute(1), absolute(10), absolute(30)]);
    assert_eq!(fixed(&run_on(&one_pass, &requests, 4_096).unwrap()), fixed(&whole));
}

/// Rows come in the order asked for, compared with a FIFO that need not be asked for.
#[test]
fn rows_are_compared_with_fifo() {
    let requests = skewed(30_000, 5_000);
    let hidden = run_on(&some_plan(vec![Capacity::Absolute(200)]), &requests, 1_000).unwrap();
    let mut plan = some_plan(vec![Capacity::Absolute(200), Capacity::Absolute(200)]);
    plan.contestants.insert(1, Kind::Fifo.into());
    let shown = run_on(&plan, &requests, 1_000).unwrap();
    let names: Vec<&str> = shown.rows.iter().map(|row| row.policy.as_str()).collect();
    assert_eq!(names, ["partitioned", "fifo", "lru", "s3-fifo", "clock"], "a capacity counts once");
    assert_eq!(shown.rows[1].miss_reduction_vs_fifo, Some(0.0));
    let fifo_misses = (shown.rows[1].requests - shown.rows[1].hits) as f64;
    for row in &shown.rows {
        let misses = (row.requests - row.hits) as f64;
        let reduction = row.miss_reduction_vs_fifo.unwrap();
        assert!((reduction - (fifo_misses - misses) / fifo_misses).abs() < 1e-9);
    }
    let others: Vec<Row> = fixed(&shown).into_iter().filter(|row| row.policy != "fifo").collect();
    assert_eq!(fixed(&hidden), others);
}

/// By bytes, capacities are bytes and shares are of the bytes of different objects, and no cache is over.
#[test]
fn bytes_are_counted() {
    let size = |request: &Request| 1 + (mix(request.key) % 1000) as u32;
    let requests: Vec<Request> = skewed(30_000, 2_000)
        .into_iter()
        .map(|request| Request { bytes: size(&request), ..request })
        .collect();
    let mut plan = some_plan(vec![Capacity::Share(0.1), Capacity::Absolute(900)]);
    plan.rules.by = By::Bytes;
    let results = run_on(&plan, &requests, 5_000).unwrap();
    let mut keys: Vec<&Request> = requests.iter().collect();
    keys.sort_by_key(|request| request.key);
    keys.dedup_by_key(|request| request.key);
    let total: u64 = keys.iter().map(|request| u64::from(request.bytes)).sum();
    assert_eq!(results.rows[0].capacity, total / 10);
    for row in &results.rows {
        assert_ne!(row.byte_hit_ratio, row.hit_ratio);
        assert_eq!(row.bypassed > 0, row.capacity == 900, "{row:?}");
    }
}

/// An empty trace, one that is only damage, and a stop before the first request say what is wrong.
#[test]
fn a_run_without_results_reports_why() {
    let plan = some_plan(vec![Capacity::Absolute(10)]);
    let error = run_on(&plan, &[], 10).unwrap_err();
    assert!(error.to_string().contains("line 7: odd"), "{error}");
    let watch = Watch::default();
    watch.stop.store(true, Ordering::Relaxed);
    let open =
        || Ok(Box::new(Slice { requests: skewed(10, 5), at: 0, batch: 5 }) as Box<dyn Source>);
    assert!(matches!(run(&plan, &open, &watch), Err(Error::Stopped)));
}

/// A trace that must be read twice and is gone the second time, as a pipe is, gives no row.
#[test]
fn what_cannot_be_read_again_is_refused() {
    let requests = skewed(3_000, 500);
    let run_once = |plan: &Plan| {
        let rest = std::sync::Mutex::new(requests.clone());
        let open = || {
            let requests = std::mem::take(&mut *rest.lock().unwrap());
            Ok(Box::new(Slice { requests, at: 0, batch: 1_000 }) as Box<dyn Source>)
        };
        run(plan, &open, &Watch::default())
    };
    let shares = some_plan(vec![Capacity::Share(0.1)]);
    assert!(run_once(&shares).is_ok(), "it was kept");
    let too_large = Plan { kept_bytes_max: 1_000, ..some_plan(vec![Capacity::Share(0.1)]) };
    assert!(matches!(run_once(&too_large), Err(Error::Changed)));
    let auto = Plan { sampling: Sampling::Auto, ..some_plan(vec![Capacity::Absolute(10)]) };
    assert!(matches!(run_once(&auto), Err(Error::Changed)));
}

/// A stop while caches replay leaves rows of what was read until then, of a sample the same that these requests
/// alone would give; before a share is known, and in a kept sample, there is nothing to say.
#[test]
fn a_stopped_run_reports_what_is_known() {
    struct StopsItself<'a>(Slice, &'a Watch);
    impl Source for StopsItself<'_> {
        fn next(&mut self, batch: &mut Vec<Request>) -> std::io::Result<()> {
            self.1.stop.store(self.0.at >= 2_000, Ordering::Relaxed);
            self.0.next(batch)
        }
    }
    static WATCH: std::sync::LazyLock<Watch> = std::sync::LazyLock::new(Watch::default);
    let open = || {
        let slice = Slice { requests: skewed(10_000, 500), at: 0, batch: 1_000 };
        Ok(Box::new(StopsItself(slice, &WATCH)) as Box<dyn Source>)
    };
    let results = run(&some_plan(vec![Capacity::Absolute(10)]), &open, &WATCH).unwrap();
    assert!(results.is_stopped);
    assert_eq!((results.requests, results.rows[0].requests), (3_000, 3_000));
    WATCH.stop.store(false, Ordering::Relaxed);
    let surveyed = run(&some_plan(vec![Capacity::Share(0.1)]), &open, &WATCH);
    assert!(matches!(surveyed, Err(Error::Stopped)), "what a tenth is was not known yet");

    let sampled = |capacity| Plan { sampling: Sampling::Rate(0.5), ..some_plan(vec![capacity]) };
    WATCH.stop.store(false, Ordering::Relaxed);
    let stopped = run(&sampled(Capacity::Absolute(100)), &open, &WATCH).unwrap();
    let whole = run_on(&sampled(Capacity::Absolute(100)), &skewed(10_000, 500)[..3_000], 1_000);
    let what = |results: &Results| -> Vec<_> {
        let rows = results.rows.iter();
        rows.map(|row| (row.requests, row.hits, row.hit_ratio, row.hit_ratio_error)).collect()
    };
    assert!(stopped.is_stopped && stopped.rows[0].hit_ratio_error.is_some());
    assert_eq!(what(&stopped), what(&whole.unwrap()));

    struct Stops(Box<dyn Replay>);
    impl Replay for Stops {
        fn replay(&mut self, batch: &Batch) {
            WATCH.stop.store(true, Ordering::Relaxed);
            self.0.replay(batch);
        }
        fn counts(&self) -> Counts {
            self.0.counts()
        }
    }
    for (plan, has_result) in
        [(some_plan(vec![Capacity::Share(0.1)]), true), (sampled(Capacity::Share(0.1)), false)]
    {
        let fifo = |shape: &Shape| -> Result<Box<dyn Replay>, larder::Error> {
            Ok(Box::new(Stops(shape.simulate(Fifo::new(shape.places as usize)?))))
        };
        let plan = Plan { contestants: vec![Contestant::own("stops", fifo)], ..plan };
        WATCH.stop.store(false, Ordering::Relaxed);
        let open = || {
            let requests = skewed(10_000, 500);
            Ok(Box::new(Slice { requests, at: 0, batch: 1_000 }) as Box<dyn Source>)
        };
        match run(&plan, &open, &WATCH) {
            Ok(results) => assert!(has_result && results.is_stopped && results.requests < 10_000),
            Err(error) => assert!(!has_result && matches!(error, Error::Stopped)),
        }
    }
}

/// The bound is refused, or left out of `all` with a word, where it would not be one.
#[test]
fn the_bound_is_not_computed_of_what_it_does_not_bound() {
    let ends = Request { ttl_s: 3, ..Request::get(1) };
    let bound: Contestant = "belady".parse().unwrap();
    let plan = Plan::new(vec![bound], vec![Capacity::Absolute(10)]);
    let error = run_on(&plan, &[ends], 10).unwrap_err();
    assert!(matches!(error, Error::Bound(why) if why.contains("end by themselves")), "{error}");
    let plan = Plan::new(Contestant::all(), vec![Capacity::Absolute(10)]);
    let results = run_on(&plan, &[ends], 10).unwrap();
    assert!(results.notes.iter().any(|note| note.contains("belady is left out")));
    assert_eq!(results.rows.len(), Kind::ALL.len());
    let plan = Plan { kept_bytes_max: 0, ..plan };
    let results = run_on(&plan, &skewed(10, 4), BATCH_REQUESTS).unwrap();
    assert!(results.notes.iter().any(|note| note.contains("too large")), "{:?}", results.notes);
}
