//! The engine's part of the experiments of the paper that larder began with (Han, Guo and Zeng, "Research on
//! Multicore Key-Value Storage System for Domain Name Storage", Applied Sciences 11(16), 2021).
//!
//! ```text
//! figures 7 to 9     time of an insert, by how full the table is, on 1, 4 and 8 cores; here also 2 and 16
//! figures 10 to 12   throughput of puts alone and of mixes of puts and gets, and the same a core
//! table 1            when readers are synchronised, or not at all: throughput and hits
//! ```
//!
//! `larder-lab sim paper` sets them beside what the paper reports, with the parts that need no clock (`larder-sim`).
//! Numbers of cores that the machine lacks are left out. Differences from the paper are the report's to tell.
//!
//! Contestants run once a round in rotated order, the first round warms up; figures are medians with their
//! 95 % interval. Every value that a get finds is checked.

use std::time::Instant;

use larder::{PaperRules, Policy, Ttl};

use crate::data::{ValueBuffer, Zipf, key, mix, scatter};
use crate::engine::{Core, Engine, NOW, Variant};
use crate::locked::Locked;
use crate::peer::{Handle, Peer, Shape};
use crate::sample::Median;
use crate::stand::{ZIPF_EXPONENT, measure, put};

/// Numbers of cores that every experiment has a place for.
pub const CORES: [usize; 5] = [1, 2, 4, 8, 16];

/// Tenths of the table that are filled one after the other.
pub const STEPS: usize = 10;

/// Shares of puts, in percent: figure 10; the caption of figure 11; the text of section 4.2.
pub const PUT_PERCENTS: [u32; 3] = [100, 70, 30];

/// Requests of a core from one sync to the next in the asynchronous mode.
pub const PERIOD: usize = 1024;

/// The LRU that takes part: one list and one lock, as the paper's must have had.
pub const LOCKED: &str = "LRU, one lock";

/// The engine's ways that take part; the first one is larder as it comes.
const ENGINES: [Variant; 4] = [
    Variant { name: "larder", note: "three partitions, as it comes", configure: |builder| builder },
    Variant {
        name: "larder, Algorithm 1",
        note: "the paper's replacement as listed",
        configure: |builder| builder.policy(Policy::Paper(PaperRules::default())),
    },
    Variant {
        name: "larder, FIFO",
        note: "first in, first out",
        configure: |builder| builder.policy(Policy::Fifo),
    },
    Variant {
        name: "larder, LRU",
        note: "least recently used, as far as reads are reported",
        configure: |builder| builder.policy(Policy::Lru),
    },
];

const CONTESTANTS: usize = ENGINES.len() + 1;

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

impl Size {
    fn cores(&self) -> impl Iterator<Item = usize> {
        let most = self.cores;
        CORES.into_iter().filter(move |&cores| cores <= most)
    }
}

/// A figure of one contestant on some cores.
#[derive(Debug, Clone)]
pub struct Point {
    /// Who.
    pub name: &'static str,
    /// On so many cores.
    pub cores: usize,
    /// How full the table is, or the share of puts, in percent.
    pub percent: usize,
    /// The figure.
    pub figure: Median,
}

/// A contestant whose type is forgotten.
trait Contestant {
    /// Fills the empty table on some cores, tenth by tenth: nanoseconds that an insert takes its core in each.
    fn fill(&self, entries: usize, cores: usize) -> Vec<f64>;

    /// Puts and gets of keys uniform over twice what fits: million operations a second, all cores together.
    fn mixed(&self, mix: &Mix) -> Result<f64, String>;
}

/// What a round of throughput does.
struct Mix {
    cores: usize,
    operations: usize,
    keys: u32,
    put_percent: u32,
    round: usize,
}

/// Contestants, larder first.
pub fn names() -> impl Iterator<Item = &'static str> {
    (0..CONTESTANTS).map(name)
}

/// Who stands for the paper's own replacement, its FIFO and its LRU.
pub const STANDS_FOR: [&str; 3] = [ENGINES[1].name, ENGINES[2].name, LOCKED];

fn name(at: usize) -> &'static str {
    ENGINES.get(at).map_or(LOCKED, |variant| variant.name)
}

fn build(at: usize, shape: &Shape) -> Result<Box<dyn Contestant>, String> {
    let failed = |error: larder::Error| format!("{}: {error}", name(at));
    Ok(match ENGINES.get(at) {
        Some(variant) => Box::new(Engine::new(variant, shape).map_err(failed)?),
        None => Box::new(Locked::new(shape).map_err(failed)?),
    })
}

/// Figures 7 to 9: nanoseconds that an insert takes its core, at each tenth of load.
///
/// # Errors
/// A table could not be built.
pub fn insert_latency(size: &Size) -> Result<Vec<Point>, String> {
    let mut points = Vec::new();
    for cores in size.cores() {
        let shape = Shape { entries: size.entries, threads: cores };
        let mut figures = vec![vec![Vec::new(); STEPS]; CONTESTANTS];
        for round in 0..=size.rounds {
            for turn in 0..CONTESTANTS {
                let at = (turn + round) % CONTESTANTS;
                let steps = build(at, &shape)?.fill(size.entries, cores);
                for (figures, step) in figures[at].iter_mut().zip(steps) {
                    figures.extend((round > 0).then_some(step));
                }
            }
        }
        for (at, steps) in figures.iter().enumerate() {
            points.extend(steps.iter().enumerate().map(|(step, figures)| Point {
                name: name(at),
                cores,
                percent: (step + 1) * 100 / STEPS,
                figure: Median::of(figures),
            }));
        }
    }
    Ok(points)
}

/// Figures 10 to 12: million operations a second for each share of puts, in tables that are full.
///
/// # Errors
/// A table could not be built, or answered wrongly.
pub fn throughput(size: &Size) -> Result<Vec<Point>, String> {
    let shape = Shape { entries: size.entries, threads: size.cores().last().unwrap_or(1) };
    let mut contestants = Vec::with_capacity(CONTESTANTS);
    for at in 0..CONTESTANTS {
        let contestant = build(at, &shape)?;
        contestant.fill(2 * size.entries, 1);
        contestants.push(contestant);
    }
    let mut points = Vec::new();
    for put_percent in PUT_PERCENTS {
        for cores in size.cores() {
            let mut figures = vec![Vec::new(); CONTESTANTS];
            for round in 0..=size.rounds {
                for turn in 0..CONTESTANTS {
                    let at = (turn + round) % CONTESTANTS;
                    let (operations, keys) = (size.operations, 2 * size.entries as u32);
                    let mix = Mix { cores, operations, keys, put_percent, round };
                    let figure = contestants[at].mixed(&mix);
                    let figure = figure.map_err(|error| format!("{}: {error}", name(at)))?;
                    figures[at].extend((round > 0).then_some(figure));
                }
            }
            points.extend(figures.iter().enumerate().map(|(at, figures)| Point {
                name: name(at),
                cores,
                percent: put_percent as usize,
                figure: Median::of(figures),
            }));
        }
    }
    Ok(points)
}

impl<P: Peer> Contestant for P {
    fn fill(&self, entries: usize, cores: usize) -> Vec<f64> {
        let each = (entries / STEPS / cores).max(1) as u32;
        (0..STEPS as u32)
            .map(|step| {
                let (figure, _) = measure(self, cores, each as usize * cores, |handle, thread| {
                    let start = (step * cores as u32 + thread as u32) * each;
                    put(handle, start..start + each);
                });
                // Several threads have a rate: million operations a second, all together.
                if cores == 1 { figure } else { cores as f64 * 1e3 / figure }
            })
            .collect()
    }

    fn mixed(&self, mix: &Mix) -> Result<f64, String> {
        let each = (mix.operations / mix.cores).max(1);
        let (figure, wrong) = measure(self, mix.cores, each * mix.cores, |handle, thread| {
            let seed = (mix.round * mix.cores + thread) as u64;
            serve_mix(handle, seed, each as u64, mix)
        });
        match wrong.iter().sum() {
            0u64 => Ok(if mix.cores == 1 { 1e3 / figure } else { figure }),
            wrong => Err(format!("{wrong} wrong answers")),
        }
    }
}

/// One thread's share of a mix: how many answers were wrong.
#[inline(never)]
fn serve_mix<H: Handle>(handle: &mut H, seed: u64, operations: u64, of: &Mix) -> u64 {
    let mut buffer = ValueBuffer::default();
    let mut wrong = 0;
    for i in 0..operations {
        let number = scatter(seed, i, of.keys);
        if mix(seed ^ i.rotate_left(32)) % 100 < u64::from(of.put_percent) {
            handle.put(&key(number), buffer.value(number));
        } else if let Some(found) = handle.get(&key(number)) {
            wrong += u64::from(found != u64::from(number));
        }
    }
    handle.settle();
    wrong
}

/// When a core sees what others stored: the modes of the paper's table 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Every put is published, and every get looks for news first: the paper's synchronous mode.
    Each,
    /// After [`PERIOD`] requests of the core: its asynchronous mode.
    Periodic,
    /// Never: every core has a cache of its own, with its share of the memory.
    Never,
}

impl Sync {
    /// All, in the table's order.
    pub const ALL: [Sync; 3] = [Sync::Each, Sync::Periodic, Sync::Never];
}

/// What a mode gave: million requests a second, and the share of hits in the second half.
#[derive(Debug, Clone, Copy)]
pub struct SyncFigure {
    /// The mode.
    pub mode: Sync,
    /// Million requests a second, all cores together, the puts after misses included.
    pub mops: Median,
    /// Hits a request.
    pub hits: f64,
}

/// Table 1: requests by Zipf's law over 17 keys where 8 fit, as in the paper; a miss is followed by a put.
///
/// # Errors
/// A table could not be built.
pub fn sync_modes(size: &Size) -> Result<Vec<SyncFigure>, String> {
    let ids = size.entries * 17 / 8;
    let law = Zipf::new(ids, ZIPF_EXPONENT);
    let each = (size.operations / size.cores.max(1)).max(1);
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
    let caches = if mode == Sync::Never { size.cores.max(1) } else { 1 };
    let shape =
        Shape { entries: size.entries / caches, threads: if caches == 1 { size.cores } else { 1 } };
    let engine = |_| Engine::new(&ENGINES[0], &shape).map_err(|error| error.to_string());
    let engines: Vec<Engine> = (0..caches).map(engine).collect::<Result<_, _>>()?;
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
        if (mode == Sync::Each && core.reader.is_behind()) || i % PERIOD == 0 {
            core.reader.sync();
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
                core.reader.sync();
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
        let points = insert_latency(&size).unwrap();
        assert_eq!(points.len(), CONTESTANTS * 2 * STEPS);
        assert!(points.iter().all(|point| point.figure.value > 0.0));
        let points = throughput(&size).unwrap();
        assert_eq!(points.len(), CONTESTANTS * 2 * PUT_PERCENTS.len());
        assert!(points.iter().all(|point| point.figure.value > 0.0));
        let modes = sync_modes(&size).unwrap();
        assert!(
            modes.iter().all(|mode| mode.mops.value > 0.0 && mode.hits > 0.3 && mode.hits < 1.0)
        );
    }
}
