//! The engine's part of the experiments of the paper that larder began with (Han, Guo and Zeng, "Research on
//! Multicore Key-Value Storage System for Domain Name Storage", Applied Sciences 11(16), 2021).
//!
//! ```text
//! figures 7 to 9     time of an insert, by how full the table is, on 1, 4 and 8 cores; here also 2 and 16
//! figures 10 to 12   throughput of puts alone and of mixes of puts and gets, and the same a core
//! table 1            when readers are synchronized, or not at all: throughput and hits
//! ```
//!
//! Numbers of cores that the machine lacks are left out. The report states the differences from the paper.
//!
//! Contestants run once a round in rotated order, and the first round warms up; figures are medians with their
//! 95 % interval. Every value that a get finds is checked.

use std::time::Instant;

use larder::{Policy, Ttl};
use larder_bench::data::{ValueBuffer, Zipf, key, mix, scatter};
use larder_bench::engine::{Core, Engine, NOW, Variant};
use larder_bench::peer::{Handle, Peer, Shape};
use larder_bench::runner::{ZIPF_EXPONENT, measure, put};
use larder_bench::sample::{Median, rounds};

use super::locked::Locked;
use super::{Measured, Mode, Timed, TimedMode};
use crate::policy::{Lru, Paper, PaperRules};

/// Numbers of cores that every experiment has a place for.
const CORES: [usize; 5] = [1, 2, 4, 8, 16];

/// Tenths of the table that are filled one after the other.
const STEPS: usize = 10;

/// Shares of puts, in percent: figure 10; the caption of figure 11; the text of section 4.2.
const PUT_PERCENTS: [u32; 3] = [100, 70, 30];

/// The modes of table 1, in its order.
const MODES: [Mode; 3] = [Mode::Synchronous, Mode::Asynchronous, Mode::Single];

/// Requests of a core from one sync to the next in the asynchronous mode.
const PERIOD: usize = 1024;

/// The engine's policies that take part; the first one is larder as it comes.
const ENGINES: [Variant; 2] = [
    Variant { name: "larder", note: "three partitions, as it comes", configure: |builder| builder },
    Variant {
        name: "larder, FIFO",
        note: "first in, first out",
        configure: |builder| builder.policy(Policy::Fifo),
    },
];

/// The paper's own policies that the engine does not have: each in a map with one lock, as the paper's LRU must have
/// been.
const LOCKED: [&str; 2] = ["Algorithm 1, one lock", "LRU, one lock"];

const CONTESTANTS: usize = ENGINES.len() + LOCKED.len();

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

/// Runs the experiments; `progress` gets a line before each. `machine` describes the machine, in words.
///
/// # Errors
/// A table could not be built, or a cache gave a wrong value.
pub fn measured(size: &Size, machine: String, progress: fn(&str)) -> Result<Measured, String> {
    progress("figures 7 to 9: time of an insert");
    let inserts = insert_latency(size)?;
    progress("figures 10 to 12: throughput");
    let throughput = throughput(size)?;
    progress("table 1: throughput of sync modes");
    let modes = sync_modes(size)?;
    Ok(Measured {
        machine,
        cores: size.cores,
        entries: size.entries,
        rounds: size.rounds,
        contestants: (0..CONTESTANTS).map(|at| name(at).to_owned()).collect(),
        stands_for: STANDS_FOR.map(str::to_owned),
        inserts,
        throughput,
        modes,
    })
}

fn interval(figures: &[f64]) -> [f64; 3] {
    let Median { value, low, high, .. } = Median::of(figures);
    [value, low, high]
}

/// A figure of a contestant.
fn timed(at: usize, cores: usize, percent: usize, figures: &[f64]) -> Timed {
    Timed { name: name(at).to_owned(), cores, percent, value: interval(figures) }
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

/// The contestants that stand for the paper's system, its FIFO and its LRU.
const STANDS_FOR: [&str; 3] = [ENGINES[0].name, ENGINES[1].name, LOCKED[1]];

fn name(at: usize) -> &'static str {
    ENGINES.get(at).map_or_else(|| LOCKED[at - ENGINES.len()], |variant| variant.name)
}

fn build(at: usize, shape: &Shape) -> Result<Box<dyn Contestant>, String> {
    let failed = |error: larder::Error| format!("{}: {error}", name(at));
    Ok(match ENGINES.get(at) {
        Some(variant) => Box::new(Engine::new(variant, shape).map_err(failed)?),
        None if name(at) == LOCKED[0] => {
            let policy = |entries| Paper::new(entries, entries as u64, PaperRules::default());
            Box::new(Locked::new(shape, policy).map_err(failed)?)
        }
        None => Box::new(Locked::new(shape, Lru::new).map_err(failed)?),
    })
}

/// Figures 7 to 9: nanoseconds that an insert takes its core, at each tenth of load.
fn insert_latency(size: &Size) -> Result<Vec<Timed>, String> {
    let mut points = Vec::new();
    for cores in size.cores() {
        let shape = Shape { entries: size.entries, threads: cores };
        let figures = rounds(CONTESTANTS, size.rounds, |_, at| {
            Ok::<_, String>(build(at, &shape)?.fill(size.entries, cores))
        })?;
        for (at, fills) in figures.iter().enumerate() {
            for step in 0..STEPS {
                let times: Vec<f64> = fills.iter().map(|steps| steps[step]).collect();
                points.push(timed(at, cores, (step + 1) * 100 / STEPS, &times));
            }
        }
    }
    Ok(points)
}

/// Figures 10 to 12: million operations a second for each share of puts, in tables that are full.
fn throughput(size: &Size) -> Result<Vec<Timed>, String> {
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
            let figures = rounds(CONTESTANTS, size.rounds, |round, at| {
                let (operations, keys) = (size.operations, 2 * size.entries as u32);
                let mix = Mix { cores, operations, keys, put_percent, round };
                let figure = contestants[at].mixed(&mix);
                figure.map_err(|error| format!("{}: {error}", name(at)))
            })?;
            let figures = figures.iter().enumerate();
            points.extend(
                figures.map(|(at, figures)| timed(at, cores, put_percent as usize, figures)),
            );
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

/// Table 1: requests by Zipf's law over 17 keys where 8 fit, as in the paper; a miss is followed by a put.
fn sync_modes(size: &Size) -> Result<Vec<TimedMode>, String> {
    let ids = size.entries * 17 / 8;
    let law = Zipf::new(ids, ZIPF_EXPONENT);
    let each = (size.operations / size.cores.max(1)).max(1);
    let orders: Vec<Vec<u32>> = (0..size.cores as u64)
        .map(|core| {
            let number = |i| (mix(u64::from(law.rank(50 + core, i))) >> 33) as u32;
            (0..each as u64).map(number).collect()
        })
        .collect();
    let figures = rounds(MODES.len(), size.rounds, |_, at| request(MODES[at], size, &orders))?;
    let figure = |(mode, rounds): (Mode, &Vec<(f64, f64)>)| {
        let mops: Vec<f64> = rounds.iter().map(|(mops, _)| *mops).collect();
        let hit_ratio = rounds.last().map_or(0.0, |(_, hits)| *hits);
        TimedMode { mode, mops: interval(&mops), hit_ratio }
    };
    Ok(MODES.into_iter().zip(&figures).map(figure).collect())
}

fn request(mode: Mode, size: &Size, orders: &[Vec<u32>]) -> Result<(f64, f64), String> {
    let caches = if mode == Mode::Single { size.cores.max(1) } else { 1 };
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
fn serve(core: &mut Core, mode: Mode, order: &[u32]) -> u64 {
    let mut buffer = ValueBuffer::default();
    let mut hits = 0;
    for (i, &number) in order.iter().enumerate() {
        if (mode == Mode::Synchronous && core.reader.is_behind()) || i % PERIOD == 0 {
            core.reader.sync();
        }
        let key = key(number);
        if core.get(&key).is_some() {
            hits += u64::from(i >= order.len() / 2);
            continue;
        }
        let value = buffer.value(number);
        if mode == Mode::Synchronous {
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
        assert!(points.iter().all(|point| point.value[0] > 0.0));
        let points = throughput(&size).unwrap();
        assert_eq!(points.len(), CONTESTANTS * 2 * PUT_PERCENTS.len());
        assert!(points.iter().all(|point| point.value[0] > 0.0));
        let modes = sync_modes(&size).unwrap();
        assert!(
            modes.iter().all(|mode| mode.mops[0] > 0.0 && (0.3..1.0).contains(&mode.hit_ratio))
        );
    }
}
