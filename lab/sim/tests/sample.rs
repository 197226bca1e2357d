//! Miniatures: what they estimate is what the whole trace gives, as nearly as they say.

use larder_sim::hit_ratio::{Capacity, Contestant, Plan, Results, Watch, run};
use larder_sim::policy::Kind;
use larder_sim::replay::By;
use larder_sim::sample::Sampling;
use larder_sim::trace::{Format, Spec};

fn run_on(plan: &Plan, trace: &str) -> Results {
    let spec = Spec::parse(trace).unwrap();
    run(plan, &|| Ok(spec.open(Format::Auto, 7)?), &Watch::default()).unwrap()
}

fn plan() -> Plan {
    let kinds = [Kind::Fifo, Kind::Lru, Kind::S3Fifo, Kind::Partitioned];
    let capacities = [0.05, 0.1, 0.3].map(Capacity::Share);
    Plan::new(kinds.map(Contestant::from).into(), capacities.into())
}

/// The interval that is stated covers the exact ratio about as often as it says, whatever the policy, the size
/// and the keys that chance chose, and is narrow enough to be of use.
#[test]
fn the_error_stated_covers_the_exact_result() {
    let trace = "zipf:0.9:100000:1000000";
    let exact = run_on(&plan(), trace);
    let (mut covered, mut all, mut widest) = (0, 0, 0f64);
    for seed in 0..10 {
        let sampled = run_on(&Plan { sampling: Sampling::Rate(0.1), seed, ..plan() }, trace);
        assert_eq!(sampled.rows.len(), exact.rows.len());
        for (sampled, exact) in sampled.rows.iter().zip(&exact.rows) {
            assert_eq!((&sampled.policy, sampled.requests), (&exact.policy, exact.requests));
            let error = sampled.hit_ratio_error.unwrap();
            let off = sampled.hit_ratio.unwrap() - exact.hit_ratio.unwrap();
            widest = widest.max(error);
            covered += u32::from(off.abs() <= error);
            all += 1;
        }
    }
    println!("{covered} of {all} covered, the widest interval {widest:.4}");
    assert!(covered * 100 >= all * 90, "{covered} of {all}");
    assert!(widest < 0.05, "{widest}");
}

/// Shares mean the same in a sample, a count of entries is scaled, and a capacity that leaves a handful of
/// entries to a miniature comes with a warning.
#[test]
fn capacities_are_scaled() {
    let trace = "zipf:0.8:50000:300000";
    let exact = run_on(&plan(), trace);
    let sampled = run_on(&Plan { sampling: Sampling::Rate(0.2), ..plan() }, trace);
    assert!((sampled.rate.unwrap() - 0.2).abs() < 1e-6);
    for (sampled, exact) in sampled.rows.iter().zip(&exact.rows) {
        let ratio = sampled.capacity as f64 / exact.capacity as f64;
        assert!((0.95..1.05).contains(&ratio), "{} for {}", sampled.capacity, exact.capacity);
    }
    assert!(sampled.notes.iter().any(|note| note.contains("is coarse")), "{:?}", sampled.notes);
    let capacities = vec![Capacity::Absolute(10_000)];
    let plan = Plan { capacities, sampling: Sampling::Rate(0.2), ..plan() };
    assert_eq!(run_on(&plan, trace).rows[0].capacity, 10_000);
}

/// A small trace is taken whole by `auto`, whatever the unit; a larger one is sampled as much as is needed.
#[test]
fn automatic_rates_fit_the_trace() {
    let auto = |rules_by| {
        let mut plan = Plan { sampling: Sampling::Auto, ..plan() };
        plan.rules.by = rules_by;
        plan
    };
    assert_eq!(run_on(&auto(By::Entries), "zipf:0.8:2000:20000").rate, None);
    assert_eq!(run_on(&auto(By::Bytes), "zipf:0.8:2000:20000").rate, None);
    let large = run_on(&auto(By::Entries), "uniform:400000:1000000");
    let rate = large.rate.unwrap();
    assert!((0.1..0.2).contains(&rate), "{rate}");
    assert!(large.keys > 50_000 && large.notes.is_empty(), "{} {:?}", large.keys, large.notes);
}

/// On a Zipf stream the partitions reach the hit ratio measured for their definition: at 1/17 of the names 8
/// points more than LRU, at 7/17 more than 2; and never less than the paper's listing, which has more than LRU.
#[test]
fn partitions_beat_lists() {
    let kinds = ["partitioned", "paper", "lru", "fifo"];
    let contestants = kinds.map(|name| name.parse().unwrap()).into();
    let sizes = [(1.0, 7.0), (3.0, 4.5), (7.0, 1.8)];
    let capacities = sizes.map(|(part, _)| Capacity::Share(part / 17.0)).into();
    let results = run_on(&Plan::new(contestants, capacities), "zipf:0.9:20000:300000");
    for (at, (part, over_lru)) in sizes.into_iter().enumerate() {
        let rows = results.rows.iter().skip(at).step_by(sizes.len());
        let [partitioned, paper, lru, fifo] =
            rows.map(|row| 100.0 * row.hit_ratio.unwrap()).collect::<Vec<_>>()[..]
        else {
            panic!("one row for each policy and capacity: {:?}", results.rows)
        };
        let all = format!("{part}/17: {partitioned:.2} {paper:.2} {lru:.2} {fifo:.2}");
        assert!(partitioned > lru + over_lru, "{all}");
        assert!(partitioned > paper && paper > lru && lru > fifo, "{all}");
    }
}
