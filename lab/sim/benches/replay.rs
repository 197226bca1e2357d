//! Nanoseconds a request of a simulated cache: the loop alone, its stream made and numbered beforehand.
//!
//! `cargo bench -p larder-sim` is for real; `cargo test` runs it tiny, so that it does not rot. Parameters, as
//! `--name value` after `--`: policies (a list with commas), alpha, items, requests, percent (of the different
//! keys, what the cache holds), rounds. `--write FILE` writes the stream in libCacheSim's format oracle-general
//! instead, so that other simulators can be measured next to it.
//!
//! Policies take turns, a round each; figures are the median and the least of the rounds, in time that the
//! thread ran. The hits are the same in every round and on every machine.

use std::fs;
use std::io::{BufWriter, Write};
use std::time::Instant;

use larder::policy::Replacement;
use larder_sim::intern::{Batch, Intake};
use larder_sim::policy::{Kind, Visitor};
use larder_sim::replay::{Counts, Replay, Rules, Simulation};
use larder_sim::trace::{Format, Spec};

struct Parameters {
    kinds: Vec<Kind>,
    trace: String,
    percent: f64,
    rounds: usize,
    write: Option<String>,
}

fn parameters() -> Parameters {
    let arguments: Vec<String> = std::env::args().collect();
    let is_real = arguments.iter().any(|argument| argument == "--bench");
    let read = |name: &str, real: &str, tiny: &str| {
        let position = arguments.iter().position(|argument| argument == name);
        let given = position.and_then(|at| arguments.get(at + 1)).cloned();
        given.unwrap_or_else(|| if is_real { real } else { tiny }.to_owned())
    };
    let number = |text: String| text.parse().unwrap_or_else(|_| panic!("{text} is no number"));
    let policies = read("--policies", "fifo,clock,s3-fifo,partitioned,lru", "fifo,partitioned");
    let write = Some(read("--write", "", "")).filter(|path| !path.is_empty());
    let kind = |name: &str| name.parse().unwrap_or_else(|error| panic!("{error}"));
    let alpha = read("--alpha", "0.9", "0.9");
    let items = read("--items", "200000", "2000");
    let requests = read("--requests", "10000000", "20000");
    Parameters {
        kinds: policies.split(',').map(kind).collect(),
        trace: format!("zipf:{alpha}:{items}:{requests}"),
        percent: number(read("--percent", "10", "10")),
        rounds: number(read("--rounds", "7", "2")) as usize,
        write,
    }
}

/// Nanoseconds that this thread has run, where the system says so: on a busy machine they tell more than
/// the clock on the wall.
fn ran_ns() -> Option<u64> {
    // The kernel adds a slice up when it ends: let this one end.
    std::thread::yield_now();
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// A round of one policy.
struct Round<'a> {
    capacity: u64,
    batches: &'a [Batch],
}

impl Visitor for Round<'_> {
    type Output = (f64, Counts);

    fn visit<P: Replacement + Send>(self, policy: P) -> (f64, Counts) {
        let mut simulation = Simulation::new(policy, self.capacity, Rules::default());
        let (wall, ran) = (Instant::now(), ran_ns());
        self.batches.iter().for_each(|batch| simulation.replay(batch));
        let wall_ns = wall.elapsed().as_nanos() as f64;
        let ran_ns = ran_ns().zip(ran).map_or(wall_ns, |(end, start)| (end - start) as f64);
        let counts = simulation.counts();
        (ran_ns / counts.requests as f64, counts)
    }
}

/// Records of 24 bytes: time (u32), key (u64), size (u32), the next request for the key (i64, unknown).
fn write_oracle_general(path: &str, batches: &[Batch]) {
    let mut file = BufWriter::new(fs::File::create(path).expect("the file can be made"));
    for (number, id) in batches.iter().flat_map(|batch| &batch.ids).enumerate() {
        let mut record = [0; 24];
        record[..4].copy_from_slice(&(number as u32 / 1000).to_le_bytes());
        record[4..12].copy_from_slice(&u64::from(*id).to_le_bytes());
        record[12..16].copy_from_slice(&1u32.to_le_bytes());
        record[16..].copy_from_slice(&(-1i64).to_le_bytes());
        file.write_all(&record).expect("there is room");
    }
    file.flush().expect("there is room");
}

fn main() {
    let Parameters { kinds, trace, percent, rounds, write } = parameters();
    let spec = Spec::parse(&trace).expect("the parameters name a stream");
    let mut source = spec.open(Format::Auto, 1).expect("a stream that is made up can be opened");
    let (mut intake, mut batches, mut batch) = (Intake::new(), Vec::new(), Vec::new());
    loop {
        source.next(&mut batch).expect("it is made up");
        if batch.is_empty() {
            break;
        }
        batches.push(intake.batch(&batch).expect("there are few keys"));
    }
    let capacity = (intake.keys() as f64 * percent / 100.0) as u64;
    println!("{trace}: {} different keys, {capacity} in the cache", intake.keys());
    if let Some(path) = write {
        return write_oracle_general(&path, &batches);
    }
    let mut times = vec![Vec::with_capacity(rounds); kinds.len()];
    let mut hits = vec![None; kinds.len()];
    for _ in 0..rounds {
        for (number, kind) in kinds.iter().enumerate() {
            let round = Round { capacity, batches: &batches };
            let (ns, counts) = kind.build(capacity as u32, 1, round).expect("there is memory");
            times[number].push(ns);
            let before = *hits[number].get_or_insert(counts.hits);
            assert_eq!(before, counts.hits, "{kind} does the same in every round");
        }
    }
    for ((kind, mut times), hits) in kinds.iter().zip(times).zip(hits) {
        times.sort_by(f64::total_cmp);
        let (least, median) = (times[0], times[times.len() / 2]);
        let rate = 1e3 / median;
        let hits = hits.unwrap_or(0);
        println!(
            "{kind:16} {median:6.2} ns/request (least {least:6.2}) {rate:6.1} M/s  hits {hits}"
        );
    }
}
