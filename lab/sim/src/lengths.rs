//! Lengths of domain names, and what it costs in hits to keep names of different lengths apart.
//!
//! The paper that larder began with splits its cache into sub-tables by length (Han, Guo and Zeng 2021, section
//! 3.2, Figures 2 and 3): each holds entries of one size, so that none leaves a hole, and gets a fixed part of
//! the memory, more of it where names are short. A fixed part can be the wrong part, and a size is rounded up to
//! its class. Here the same requests go to a cache whose memory is split in one of four ways, in classes of some
//! width, and to one that counts bytes and splits nothing; the difference in hits is the cost.
//!
//! ```text
//! moving      one policy over all, each name charged its class: the engine, whose pages move between classes
//! universe    a class gets memory as the names there are would need it
//! popularity  a class gets memory by the square root of how often each of its names is asked for
//! geometric   the paper's example, drawn out: 50 for names of 3 bytes, 1 for those of 65, and so on
//! ```
//!
//! Names are asked for by Zipf's law, in the order of the list (the first one most often), or, to take length and
//! popularity apart, in a shuffled order. A miss is followed by a set.
//!
//! Memory is that of the names alone: keys of an index and headers cost the same whatever the split.

pub mod names;
pub mod report;
mod split;

use crate::policy::Kind;
use crate::trace::random::Random;
use crate::trace::zipf::Table as Law;

use names::Names;
use split::{Classes, Memory};

/// How memory is divided among classes of length. See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Not at all: memory goes where it is needed.
    Moving,
    /// As the names there are would need it.
    Universe,
    /// By the square root of each name's popularity.
    Popularity,
    /// By the paper's example.
    Geometric,
}

impl Split {
    /// All.
    pub const ALL: [Split; 4] =
        [Split::Moving, Split::Universe, Split::Popularity, Split::Geometric];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Split::Moving => "moving",
            Split::Universe => "universe",
            Split::Popularity => "popularity",
            Split::Geometric => "geometric",
        }
    }
}

/// What is found out.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The replacement policy, in each class or in all.
    pub policies: Vec<Kind>,
    /// Widths of classes in bytes, 1 to 253.
    pub widths: Vec<u8>,
    /// Sizes of the memory, as shares of the bytes of all names.
    pub memory_shares: Vec<f64>,
    /// Zipf's exponent.
    pub alpha: f64,
    /// Whether a name's position in the list is independent of its frequency.
    pub is_shuffled: bool,
    /// Requests; the first third warms up.
    pub requests: u64,
    /// Of all chances.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            policies: vec![Kind::Lru, Kind::Partitioned],
            widths: vec![1, 8, 16, 32],
            memory_shares: vec![1.0 / 17.0, 8.0 / 17.0],
            alpha: 0.9,
            is_shuffled: false,
            requests: 3_000_000,
            seed: 1,
        }
    }
}

/// What one way of dividing gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// The replacement policy.
    pub policy: Kind,
    /// How the memory was divided.
    pub split: Split,
    /// Width of a class, bytes.
    pub width: u8,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Requests that count.
    pub requests: u64,
    /// Hits among them.
    pub hits: u64,
    /// Share of the memory that holds bytes of names, at the end.
    pub used: f64,
    /// Points of hit ratio below the same policy with bytes counted and nothing split.
    pub loss_points: f64,
}

impl Row {
    /// Hits a request.
    pub fn hit_ratio(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.hits as f64 / self.requests as f64 }
    }
}

/// Requests drawn at a time.
const BATCH_REQUESTS: u64 = 1 << 16;

/// Replays requests for `names` in every way of `settings`, on so many threads. Rows come by policy, memory,
/// split and width.
///
/// # Errors
/// A policy could not be built.
pub fn run(names: &Names, settings: &Settings, threads: usize) -> Result<Vec<Row>, larder::Error> {
    let lengths = ordered(names.lengths(), settings);
    let law = Law::new(lengths.len() as u32, settings.alpha, 0.0);
    let mut widths: Vec<u8> = settings.widths.iter().map(|&width| width.max(1)).collect();
    if !widths.contains(&1) {
        widths.push(1);
    }
    let classes: Vec<Classes> = widths.iter().map(|&width| Classes::new(&lengths, width)).collect();
    let sum: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
    let mut ways = Vec::new();
    for &policy in &settings.policies {
        for &share in &settings.memory_shares {
            let memory_bytes = (sum as f64 * share.clamp(0.0, 1.0)) as u64;
            for split in Split::ALL {
                for classes in &classes {
                    let memory = Memory::new(classes, split, memory_bytes, policy, settings)?;
                    let hits = 0;
                    ways.push(Way { policy, split, memory_bytes, classes, memory, hits });
                }
            }
        }
    }
    let counted_from = settings.requests / 3;
    let mut random = Random::new(settings.seed);
    let share = ways.len().div_ceil(threads.max(1)).max(1);
    let mut batch: Vec<u32> = Vec::new();
    let mut done = 0;
    while done < settings.requests && !lengths.is_empty() {
        let count = BATCH_REQUESTS.min(settings.requests - done);
        batch.clear();
        batch.extend((0..count).map(|_| law.rank(&mut random)));
        let warm_up = counted_from.saturating_sub(done).min(count) as usize;
        std::thread::scope(|scope| {
            for part in ways.chunks_mut(share) {
                let batch = &batch;
                scope.spawn(move || part.iter_mut().for_each(|way| way.feed(batch, warm_up)));
            }
        });
        done += count;
    }
    let rows: Vec<Row> = ways.iter().map(|way| way.row(done - counted_from.min(done))).collect();
    Ok(with_losses(rows, &settings.widths))
}

/// Lengths by popularity.
fn ordered(lengths: &[u8], settings: &Settings) -> Vec<u8> {
    let mut lengths = lengths.to_vec();
    if settings.is_shuffled {
        let mut random = Random::new(!settings.seed);
        for last in (1..lengths.len()).rev() {
            lengths.swap(last, random.below(last as u64 + 1).0 as usize);
        }
    }
    lengths
}

/// One way of dividing, at work.
struct Way<'a> {
    policy: Kind,
    split: Split,
    memory_bytes: u64,
    classes: &'a Classes,
    memory: Memory,
    hits: u64,
}

impl Way<'_> {
    fn feed(&mut self, batch: &[u32], warm_up: usize) {
        for (i, &name) in batch.iter().enumerate() {
            let is_hit = self.memory.request(self.classes, name);
            self.hits += u64::from(is_hit && i >= warm_up);
        }
    }

    fn row(&self, requests: u64) -> Row {
        let Way { policy, split, memory_bytes, classes, memory, hits } = self;
        let used = memory.named_bytes(classes) as f64 / (*memory_bytes).max(1) as f64;
        Row {
            policy: *policy,
            split: *split,
            width: classes.width(),
            memory_bytes: *memory_bytes,
            requests,
            hits: *hits,
            used,
            loss_points: 0.0,
        }
    }
}

/// Sets the losses, and drops the rows that were only there to compare with.
fn with_losses(mut rows: Vec<Row>, widths: &[u8]) -> Vec<Row> {
    let whole: Vec<Row> =
        rows.iter().filter(|row| row.split == Split::Moving && row.width == 1).copied().collect();
    for row in &mut rows {
        let same =
            |other: &&Row| (other.policy, other.memory_bytes) == (row.policy, row.memory_bytes);
        let best = whole.iter().find(same).map_or(0.0, Row::hit_ratio);
        row.loss_points = 100.0 * (best - row.hit_ratio());
    }
    rows.retain(|row| widths.contains(&row.width));
    rows
}
