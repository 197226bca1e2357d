//! What a cache that several cores share gives, by how they share it: hits, old values, and work of keeping
//! replicas alike. Cores are virtual, so that the answer is the same on any machine.
//!
//! ```text
//! synchronous        one main, a proxy a core; proxies show every change at once
//! periodic           the same, but replicas show main as it was at the last sync
//! independent        a cache a core, with its share of the memory
//! independent-full   a cache a core, each of them as large as main would be
//! sharded            a part of the cache a core; a request is handed to the core that its name belongs to
//! ```
//!
//! These are the modes of the paper that larder began with (Han, Guo and Zeng 2021, section 4.4 and Table 1), and
//! two that it leaves out: what independent caches give with as much memory for each, and shards by key, which
//! are what any replication must be compared with. Capacities are those of main, in entries.
//!
//! | module | duty |
//! |---|---|
//! | `stream` | requests to accesses: names numbered, chances drawn, versions counted |
//! | `table` | an index that a policy looks after |
//! | `replicated` | one main and proxies |
//! | `lone` | caches side by side, and shards |
//! | [`report`] | outcomes as rows |
//!
//! *Old* means the worst case: every set changes the value, and a hit is old when what it gave had been
//! replaced before, at whatever core. Ends of life are left out: they are the same in every mode.
//!
//! Work is counted four ways, as there are four ways to do it: a record for every change, which is what the
//! engine's log holds; every changed entry once a sync; every entry of each part of the table in which
//! anything changed, as the paper copies sub-tables (with [`SUB_TABLES`] of them, by hash); and requests that
//! are handed to another core, which is what shards cost instead.
//!
//! A result is a function of requests, settings and seed; the number of threads changes nothing.

mod lone;
mod replicated;
pub mod report;
mod stream;
pub(crate) mod table;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::str::FromStr;

use foldhash::fast::FixedState;
use larder::policy::Replacement;

use crate::policy::{Kind, Visitor};
use crate::trace::Source;

use lone::Lone;
use replicated::Replicated;
use stream::{Access, Stream, Version};

/// Parts that the table is taken to have where whole parts are copied.
pub const SUB_TABLES: usize = 64;

/// Bytes of a record in the engine's log.
pub const RECORD_BYTES: usize = larder_mem::RECORD_BYTES;

/// Most virtual cores.
pub const CORES_MAX: u32 = 1024;

/// How cores share a cache. See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Proxies show every change at once.
    Synchronous,
    /// Proxies show main as it was at the last sync.
    Periodic,
    /// A cache a core, memory divided.
    Independent,
    /// A cache a core, memory multiplied.
    IndependentFull,
    /// A part of the names a core.
    Sharded,
}

impl Mode {
    /// All, in the order of reports.
    pub const ALL: [Mode; 5] = [
        Mode::Synchronous,
        Mode::Periodic,
        Mode::Independent,
        Mode::IndependentFull,
        Mode::Sharded,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Synchronous => "synchronous",
            Mode::Periodic => "periodic",
            Mode::Independent => "independent",
            Mode::IndependentFull => "independent-full",
            Mode::Sharded => "sharded",
        }
    }
}

/// Which core a request comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spread {
    /// Any.
    #[default]
    Random,
    /// A flow stays with its core: lookups of a name within a thousand requests are one flow, of four lookups in
    /// the mean.
    Flow,
    /// A name stays with its core.
    Key,
}

impl Spread {
    /// All.
    pub const ALL: [Spread; 3] = [Spread::Random, Spread::Flow, Spread::Key];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Spread::Random => "random",
            Spread::Flow => "flow",
            Spread::Key => "key",
        }
    }
}

macro_rules! by_name {
    ($type:ty) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = Unknown;

            fn from_str(text: &str) -> Result<Self, Unknown> {
                let known = <$type>::ALL.into_iter();
                known.clone().find(|known| known.name() == text).ok_or_else(|| Unknown {
                    name: text.to_owned(),
                    known: known.map(<$type>::name).collect(),
                })
            }
        }
    };
}

by_name!(Mode);
by_name!(Spread);

/// There is no mode, or spread, of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// What was given.
    pub name: String,
    /// What there is.
    pub known: Vec<&'static str>,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no {:?}; there are {}", self.name, self.known.join(" "))
    }
}

impl std::error::Error for Unknown {}

/// What all simulations of a run have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Virtual cores, 1 to [`CORES_MAX`].
    pub cores: u32,
    /// Requests, over all cores, from one sync to the next; at least 1. Of the periodic mode.
    pub period: u64,
    /// Which core a request comes to.
    pub spread: Spread,
    /// Share of a reader's hits that are reported to main, 0 to 1. Caches without a main always see their own.
    pub report_share: f64,
    /// Whether a miss is followed by a set of the origin's value, as in a resolver; otherwise only sets store.
    pub fills: bool,
    /// Share of the trace's lookups that are taken for sets, 0 to 1.
    pub set_share: f64,
    /// Whether a name that a proxy does not show is looked for in main; the engine's proxies don't.
    pub falls_through: bool,
    /// Requests at the start that warm the caches and do not count.
    pub warm_up: u64,
    /// Of all chances.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            cores: 8,
            period: 10_000,
            spread: Spread::Random,
            report_share: 1.0,
            fills: true,
            set_share: 0.1,
            falls_through: false,
            warm_up: 0,
            seed: 1,
        }
    }
}

/// One thing to find out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// How cores share.
    pub mode: Mode,
    /// The replacement policy.
    pub policy: Kind,
    /// Entries of main; of all parts together where the memory is divided. At least a core's share is 1.
    pub capacity: u32,
}

/// What came of it, after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Requests.
    pub requests: u64,
    /// Those that look up.
    pub gets: u64,
    /// Lookups that found something.
    pub hits: u64,
    /// Hits on a value that had been replaced.
    pub old: u64,
    /// Changes of main's entries: new, replaced, gone.
    pub changes: u64,
    /// Records that proxies applied: each change at each proxy.
    pub records: u64,
    /// Entries that proxies copy if each changed one is copied once a sync.
    pub entries: u64,
    /// Entries that proxies copy if every part with a change in it is copied whole.
    pub whole: u64,
    /// Requests that were handed to another core.
    pub moved: u64,
}

impl Outcome {
    /// Hits a lookup.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hits, self.gets)
    }

    /// Old values a hit.
    pub fn old_ratio(&self) -> f64 {
        ratio(self.old, self.hits)
    }

    /// Of one of the counts of work, how many a request.
    pub fn a_request(&self, count: u64) -> f64 {
        ratio(count, self.requests)
    }

    fn got(&mut self, found: Option<Version>, now: Version) {
        self.gets += 1;
        if let Some(version) = found {
            self.hits += 1;
            self.old += u64::from(version != now);
        }
    }

    fn add(&mut self, other: &Outcome) {
        self.requests += other.requests;
        self.gets += other.gets;
        self.hits += other.hits;
        self.old += other.old;
        self.changes += other.changes;
        self.records += other.records;
        self.entries += other.entries;
        self.whole += other.whole;
        self.moved += other.moved;
    }
}

/// 0 of nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Why a run was not done.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The trace could not be read.
    Trace(io::Error),
    /// A policy could not be built: change its capacity, or give less of them.
    Policy(larder::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Trace(error) => write!(f, "the trace cannot be read: {error}"),
            Error::Policy(error) => write!(f, "a policy cannot be built: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// One policy in one mode, at one capacity.
trait Simulation: Send {
    /// Does what is asked, in order.
    fn feed(&mut self, batch: &[Access]);

    /// Brings proxies up to date; what came of it all.
    fn finish(&mut self) -> Outcome;
}

/// Replays all that `source` gives in every way of `points`, on so many threads: what came of each.
///
/// # Errors
/// The trace cannot be read, or a policy cannot have its capacity.
pub fn run(
    source: &mut dyn Source,
    settings: &Settings,
    points: &[Point],
    threads: usize,
) -> Result<Vec<Outcome>, Error> {
    let mut simulations = Vec::new();
    for (number, point) in points.iter().enumerate() {
        for simulation in build(point, settings).map_err(Error::Policy)? {
            simulations.push((number, simulation));
        }
    }
    let mut stream = Stream::new(settings);
    let (mut requests, mut accesses) = (Vec::new(), Vec::new());
    let share = simulations.len().div_ceil(threads.max(1)).max(1);
    loop {
        source.next(&mut requests).map_err(Error::Trace)?;
        if requests.is_empty() {
            break;
        }
        accesses.clear();
        stream.take(&requests, &mut accesses);
        std::thread::scope(|scope| {
            for part in simulations.chunks_mut(share) {
                let accesses = &accesses;
                scope.spawn(move || part.iter_mut().for_each(|(_, one)| one.feed(accesses)));
            }
        });
    }
    let mut outcomes = vec![Outcome::default(); points.len()];
    for (number, mut simulation) in simulations {
        outcomes[number].add(&simulation.finish());
    }
    Ok(outcomes)
}

/// How many names a trace has: for capacities that are shares of them.
///
/// # Errors
/// The trace cannot be read.
pub fn survey(source: &mut dyn Source) -> Result<u64, Error> {
    let mut names: HashSet<u64, FixedState> = HashSet::default();
    let mut requests = Vec::new();
    loop {
        source.next(&mut requests).map_err(Error::Trace)?;
        if requests.is_empty() {
            return Ok(names.len() as u64);
        }
        names.extend(requests.iter().map(|request| request.key));
    }
}

/// Makes what a point needs: one simulation, or one a core.
fn build(point: &Point, settings: &Settings) -> Result<Vec<Box<dyn Simulation>>, larder::Error> {
    let Point { mode, policy, capacity } = *point;
    let cores = settings.cores.clamp(1, CORES_MAX);
    let settings = &Settings { cores, period: settings.period.max(1), ..settings.clone() };
    let replicated = |period| {
        let maker = Maker { settings, capacity, part: Part::Main { period } };
        Ok(vec![policy.build(capacity, settings.seed, maker)?])
    };
    let lone = |is_shard, is_divided| {
        let one = |core: u32| {
            let share = (u64::from(capacity) + u64::from(core)) / u64::from(cores);
            let capacity = if is_divided { (share as u32).max(1) } else { capacity };
            let maker = Maker { settings, capacity, part: Part::Lone { core, is_shard } };
            policy.build(capacity, settings.seed.wrapping_add(u64::from(core)), maker)
        };
        (0..cores).map(one).collect()
    };
    match mode {
        Mode::Synchronous => replicated(1),
        Mode::Periodic => replicated(settings.period),
        Mode::Independent => lone(false, true),
        Mode::IndependentFull => lone(false, false),
        Mode::Sharded => lone(true, true),
    }
}

/// Puts a policy to work.
struct Maker<'a> {
    settings: &'a Settings,
    capacity: u32,
    part: Part,
}

enum Part {
    Main { period: u64 },
    Lone { core: u32, is_shard: bool },
}

impl Visitor for Maker<'_> {
    type Output = Box<dyn Simulation>;

    fn visit<P: Replacement + Send + 'static>(self, policy: P) -> Box<dyn Simulation> {
        match self.part {
            Part::Main { period } => {
                Box::new(Replicated::new(policy, self.capacity, period, self.settings))
            }
            Part::Lone { core, is_shard } => {
                Box::new(Lone::new(policy, self.capacity, core, is_shard, self.settings))
            }
        }
    }
}
