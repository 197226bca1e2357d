//! The experiments of the paper that larder began with (Han, Guo and Zeng, "Research on Multicore Key-Value
//! Storage System for Domain Name Storage", Applied Sciences 11(16), 2021), done with larder and with an LRU.
//!
//! ```text
//! figures 7 to 9     time of an insert, by how full the table is, on 1, 4 and 8 cores; here also 2 and 16
//! figures 10 to 12   throughput of puts alone, of 70 % puts, and the same a core
//! table 1            when proxies are synchronised, or not at all: throughput and hits
//! ```
//!
//! Differences from the paper, with the reason for each, are in `docs/results/paper/README.md`. Numbers of cores that the
//! machine lacks are given as not measured.

use std::time::Instant;

use larder::Ttl;
use larder_bench::data::{ValueBuffer, Zipf, key, mix};
use larder_bench::engine::{Core, Engine, NOW, VARIANTS, Variant};
use larder_bench::field::{Entrant, Plan, compare, own_entrants};
use larder_bench::peer::{Handle, Peer, Shape};
use larder_bench::row::Row;
use larder_bench::sample::Median;
use larder_bench::stand::{Work, ZIPF_EXPONENT, measure, put};

use crate::peers::Lru;

/// Numbers of cores that every experiment has a place for.
pub const CORES: [usize; 5] = [1, 2, 4, 8, 16];

/// Tenths of the table that are filled one after the other.
pub const STEPS: usize = 10;

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Size {
    /// Entries of each table.
    pub entries: usize,
    /// Operations of a round of throughput.
    pub operations: usize,
    /// Rounds that count; the paper has ten.
    pub rounds: usize,
    /// Cores of the machine.
    pub cores: usize,
}

/// A figure of one contestant on some cores.
#[derive(Debug, Clone)]
pub struct Point {
    /// Who.
    pub name: String,
    /// On so many cores.
    pub cores: usize,
    /// Load, or nothing; what the horizontal axis shows.
    pub load: usize,
    /// The figure.
    pub figure: Median,
}

/// The LRU that takes part: one list and one lock, as the paper's must have had.
const LRU: &str = "LRU, one lock";

/// Figures 7 to 9: nanoseconds that an insert takes its thread, at each tenth of load.
pub fn insert_latency(size: &Size) -> Result<Vec<Point>, String> {
    let mut points = Vec::new();
    for cores in CORES.into_iter().filter(|&cores| cores <= size.cores) {
        let shape = Shape { entries: size.entries, threads: cores };
        let mut figures = vec![vec![Vec::new(); STEPS]; VARIANTS.len() + 1];
        for round in 0..=size.rounds {
            for turn in 0..=VARIANTS.len() {
                let at = (turn + round) % (VARIANTS.len() + 1);
                let steps = fill_contestant(at, &shape, cores)?;
                for (figures, step) in figures[at].iter_mut().zip(steps) {
                    // The first round warms up.
                    figures.extend((round > 0).then_some(step));
                }
            }
        }
        for (at, steps) in figures.iter().enumerate() {
            let name = VARIANTS.get(at).map_or(LRU, |variant| variant.name).to_owned();
            points.extend(steps.iter().enumerate().map(|(step, figures)| Point {
                name: name.clone(),
                cores,
                load: (step + 1) * 100 / STEPS,
                figure: Median::of(figures),
            }));
        }
    }
    Ok(points)
}

fn fill_contestant(at: usize, shape: &Shape, cores: usize) -> Result<Vec<f64>, String> {
    match VARIANTS.get(at) {
        Some(variant) => {
            let engine = engine(variant, shape)?;
            Ok(fill(&engine, shape, cores))
        }
        None => {
            let Ok(lru) = Lru::new(shape, 1);
            Ok(fill(&lru, shape, cores))
        }
    }
}

fn engine(variant: &Variant, shape: &Shape) -> Result<Engine, String> {
    Engine::new(variant, shape).map_err(|error| error.to_string())
}

/// Fills an empty table on some cores, tenth by tenth: the time of an insert in each.
fn fill<P: Peer>(peer: &P, shape: &Shape, cores: usize) -> Vec<f64> {
    let each = (shape.entries / STEPS / cores).max(1) as u32;
    (0..STEPS as u32)
        .map(|step| {
            let (figure, _) = measure(peer, cores, each as usize * cores, |handle, thread| {
                let start = (step * cores as u32 + thread as u32) * each;
                put(handle, start..start + each);
            });
            // Several threads have a rate: million operations a second, all together.
            if cores == 1 { figure } else { cores as f64 * 1e3 / figure }
        })
        .collect()
}

/// Figures 10 to 12: million operations a second, puts alone and 70 % of them. `load` is the share of puts.
pub fn throughput(size: &Size) -> Result<Vec<Point>, String> {
    let mut entrants = own_entrants();
    entrants.push(Entrant::new(LRU, "", true, |shape| Lru::new(shape, 1)));
    let plan = Plan {
        entries: size.entries,
        operations: size.operations,
        rounds: size.rounds,
        threads: CORES.into_iter().filter(|&cores| cores <= size.cores).collect(),
    };
    let mut points: Vec<Point> = Vec::new();
    let mut add = |name: &str, load, cores, figure: Median| {
        let rate = |value: f64| if cores == 1 { 1e3 / value } else { value };
        let (a, b) = (rate(figure.low), rate(figure.high));
        let figure =
            Median { value: rate(figure.value), low: a.min(b), high: a.max(b), runs: figure.runs };
        if !points.iter().any(|p| (p.name.as_str(), p.load, p.cores) == (name, load, cores)) {
            points.push(Point { name: name.to_owned(), cores, load, figure });
        }
    };
    for (work, load) in [(Work::Put, 100), (Work::Mixed, 70)] {
        compare(&entrants, &[work], &plan, |row: Row| {
            add(VARIANTS[0].name, load, row.threads, row.larder);
            if let Some(peer) = row.peer {
                add(&peer.name, load, row.threads, peer.figure);
            }
        })?;
    }
    Ok(points)
}

/// When a core sees what others stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Every put is published, and every get looks for news first: the paper's synchronous mode.
    Each,
    /// After 1024 requests: its asynchronous mode.
    Periodic,
    /// Never: every core has a cache of its own, with its share of the memory.
    Never,
}

impl Sync {
    /// The modes of the paper's table 1.
    pub const ALL: [Sync; 3] = [Sync::Each, Sync::Periodic, Sync::Never];

    /// As the table calls it.
    pub fn name(self) -> &'static str {
        match self {
            Sync::Each => "one main, synchronous",
            Sync::Periodic => "one main, asynchronous",
            Sync::Never => "each core by itself",
        }
    }
}

/// What a mode gave: million requests a second, and the share of hits in the second half.
#[derive(Debug, Clone, Copy)]
pub struct SyncFigure {
    /// The mode.
    pub mode: Sync,
    /// Million requests a second, all cores together.
    pub mops: Median,
    /// The share of hits.
    pub hits: f64,
}

/// Table 1: requests by Zipf's law for 17 keys where 8 fit, a miss followed by a put, on all cores.
pub fn sync_modes(size: &Size) -> Result<Vec<SyncFigure>, String> {
    let ids = size.entries * 17 / 8;
    let law = Zipf::new(ids, ZIPF_EXPONENT);
    let each = size.operations / size.cores;
    let orders: Vec<Vec<u32>> = (0..size.cores as u64)
        .map(|core| {
            let number = |i| (mix(u64::from(law.rank(50 + core, i))) >> 33) as u32;
            (0..each as u64).map(number).collect()
        })
        .collect();
    let mut figures = vec![(Vec::new(), 0.0); Sync::ALL.len()];
    for round in 0..=size.rounds {
        for turn in 0..Sync::ALL.len() {
            let at = (turn + round) % Sync::ALL.len();
            let (mops, hits) = request(Sync::ALL[at], size, &orders)?;
            if round > 0 {
                figures[at].0.push(mops);
                figures[at].1 = hits;
            }
        }
    }
    let figure = |(mode, (mops, hits)): (Sync, (Vec<f64>, f64))| SyncFigure {
        mode,
        mops: Median::of(&mops),
        hits,
    };
    Ok(Sync::ALL.into_iter().zip(figures).map(figure).collect())
}

fn request(mode: Sync, size: &Size, orders: &[Vec<u32>]) -> Result<(f64, f64), String> {
    let caches = if mode == Sync::Never { size.cores } else { 1 };
    let shape =
        Shape { entries: size.entries / caches, threads: if caches == 1 { size.cores } else { 1 } };
    let engines: Vec<Engine> =
        (0..caches).map(|_| engine(&VARIANTS[0], &shape)).collect::<Result<_, _>>()?;
    let start = Instant::now();
    let hits: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (orders.iter().enumerate())
            .map(|(number, order)| {
                let engine = &engines[number % caches];
                scope.spawn(move || serve(&mut engine.handle(), mode, order))
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum()
    });
    let elapsed = start.elapsed().as_secs_f64().max(1e-9);
    let requests: usize = orders.iter().map(Vec::len).sum();
    let counted: usize = orders.iter().map(|order| order.len() - order.len() / 2).sum();
    Ok((requests as f64 / elapsed / 1e6, hits as f64 / counted.max(1) as f64))
}

/// Serves one core's requests: its hits in the second half.
fn serve(core: &mut Core, mode: Sync, order: &[u32]) -> u64 {
    let mut buffer = ValueBuffer::default();
    let mut hits = 0;
    for (i, &number) in order.iter().enumerate() {
        if (mode == Sync::Each && core.proxy.is_behind()) || i % 1024 == 0 {
            core.proxy.sync();
        }
        let key = key(number);
        if core.get(&key).is_some() {
            hits += u64::from(i >= order.len() / 2);
            continue;
        }
        let value = buffer.value(number);
        if mode == Sync::Each {
            while core.writer.insert(&key, value, Ttl::FOREVER, NOW).is_err()
                || core.writer.flush().is_err()
            {
                core.proxy.sync();
                std::thread::yield_now();
            }
        } else {
            core.put(&key, value);
        }
    }
    core.settle();
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every experiment runs tiny and gives a figure for each contestant, number of cores and step.
    #[test]
    fn experiments_run() {
        let size = Size { entries: 3000, operations: 3000, rounds: 1, cores: 2 };
        let contestants = VARIANTS.len() + 1;
        let points = insert_latency(&size).unwrap();
        assert_eq!(points.len(), contestants * 2 * STEPS);
        assert!(points.iter().all(|point| point.figure.value > 0.0));
        let points = throughput(&size).unwrap();
        assert_eq!(points.len(), contestants * 2 * 2);
        assert!(points.iter().all(|point| point.figure.value > 0.0));
        let modes = sync_modes(&size).unwrap();
        assert!(
            modes.iter().all(|mode| mode.mops.value > 0.0 && mode.hits > 0.3 && mode.hits < 1.0)
        );
    }
}
