//! What a simulation of hit ratios is given, and what it returns: capacities, contestants, a plan, rows, errors.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64};

use larder::policy::Replacement;

use crate::intern::KEYS_MAX;
use crate::policy::{Kind, UnknownPolicy};
use crate::replay::{Replay, Rules, Simulation};
use crate::sample::Sampling;
use crate::trace::{Damage, Source};

/// Most bytes of numbered requests that are kept between survey and replay, by default: 268 million plain lookups, or
/// 53 million with sizes, ends or stores. It is also the most that the bound can be computed of.
pub const KEPT_BYTES_MAX: usize = 1 << 30;

/// How large a cache is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Capacity {
    /// A number of entries, or of bytes, by [`Rules::by`].
    Absolute(u64),
    /// This part of the trace's different keys, or of the bytes of its different objects.
    Share(f64),
}

/// What a policy for a simulated cache has to know.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Entry numbers are below this, and there are never more entries.
    pub places: u32,
    /// In entries or bytes.
    pub capacity: u64,
    /// How requests are taken.
    pub rules: Rules,
    /// For what is left to chance.
    pub seed: u64,
}

impl Shape {
    /// A cache of this shape that follows `policy`, which is new and empty.
    pub fn simulate<P: Replacement + Send + 'static>(&self, policy: P) -> Box<dyn Replay> {
        Box::new(Simulation::new(policy, self.capacity, self.rules))
    }
}

/// Makes a cache of a shape.
pub(crate) type Make = dyn Fn(&Shape) -> Result<Box<dyn Replay>, larder::Error> + Send + Sync;

/// A policy that takes part.
pub struct Contestant {
    pub(crate) name: String,
    pub(crate) entrant: Entrant,
}

pub(crate) enum Entrant {
    Named(Kind),
    Own(Box<Make>),
    Bound { is_optional: bool },
}

impl Contestant {
    /// The name of the bound.
    pub const BOUND: &'static str = "belady";

    /// A policy of your own: `make` makes a cache that follows it, see [`Shape::simulate`].
    pub fn own(
        name: impl Into<String>,
        make: impl Fn(&Shape) -> Result<Box<dyn Replay>, larder::Error> + Send + Sync + 'static,
    ) -> Contestant {
        Contestant { name: name.into(), entrant: Entrant::Own(Box::new(make)) }
    }

    /// All that have a name, the bound last: it is left out where it cannot be computed.
    pub fn all() -> Vec<Contestant> {
        let bound = Contestant {
            name: Self::BOUND.to_owned(),
            entrant: Entrant::Bound { is_optional: true },
        };
        Kind::ALL.into_iter().map(Contestant::from).chain([bound]).collect()
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl From<Kind> for Contestant {
    fn from(kind: Kind) -> Contestant {
        Contestant { name: kind.to_string(), entrant: Entrant::Named(kind) }
    }
}

impl FromStr for Contestant {
    type Err = UnknownPolicy;

    /// A name of [`Kind`], or `belady`.
    fn from_str(name: &str) -> Result<Contestant, UnknownPolicy> {
        match name {
            Self::BOUND => Ok(Contestant {
                name: name.to_owned(),
                entrant: Entrant::Bound { is_optional: false },
            }),
            _ => Ok(Contestant { name: name.to_owned(), ..name.parse::<Kind>()?.into() }),
        }
    }
}

impl fmt::Debug for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contestant({})", self.name)
    }
}

/// What is to be simulated.
#[derive(Debug)]
pub struct Plan {
    /// Policies.
    pub contestants: Vec<Contestant>,
    /// Capacities.
    pub capacities: Vec<Capacity>,
    /// How requests are taken.
    pub rules: Rules,
    /// How much of the trace is taken.
    pub sampling: Sampling,
    /// For samples, and what policies leave to chance.
    pub seed: u64,
    /// Threads that replay.
    pub cores: usize,
    /// Most bytes of numbered requests that are kept between survey and replay.
    pub kept_bytes_max: usize,
}

impl Plan {
    /// The whole trace, entries, with fill, on one core.
    pub fn new(contestants: Vec<Contestant>, capacities: Vec<Capacity>) -> Plan {
        Plan {
            contestants,
            capacities,
            rules: Rules::default(),
            sampling: Sampling::Whole,
            seed: 0,
            cores: 1,
            kept_bytes_max: KEPT_BYTES_MAX,
        }
    }
}

/// The progress of a run, and the flag that stops it.
#[derive(Debug, Default)]
pub struct Watch {
    /// Requests read so far, in all passes.
    pub requests: AtomicU64,
    /// Set by another thread: finish what was read, and return what is known.
    pub stop: AtomicBool,
}

/// One policy at one capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The policy's name.
    pub policy: String,
    /// In entries or bytes; of the whole cache where a miniature was simulated.
    pub capacity: u64,
    /// Lookups.
    pub requests: u64,
    /// Lookups answered; of a sample, what is estimated of the whole.
    pub hits: u64,
    /// Hits a lookup; `None` without lookups.
    pub hit_ratio: Option<f64>,
    /// Bytes answered a byte looked up; `None` where it is not known (the bound of objects with sizes).
    pub byte_hit_ratio: Option<f64>,
    /// By how much fewer misses than FIFO's at this capacity, as a part of those.
    pub miss_reduction_vs_fifo: Option<f64>,
    /// Nanoseconds of a processor a request replayed, those of reading and numbering apart.
    pub ns_per_request: f64,
    /// By how much `hit_ratio` may be off, with 95 % confidence; `None` where nothing was sampled.
    pub hit_ratio_error: Option<f64>,
    /// Objects larger than the cache, of those replayed.
    pub bypassed: u64,
}

/// What came of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// Policy by policy, capacity by capacity.
    pub rows: Vec<Row>,
    /// Requests of any kind that were read.
    pub requests: u64,
    /// Different keys replayed.
    pub keys: u64,
    /// The part of the keys that was replayed, where not all were.
    pub rate: Option<f64>,
    /// What could not be read.
    pub damage: Damage,
    /// What a reader of the rows should know.
    pub notes: Vec<String>,
    /// The run was stopped; the rows are of what was read until then.
    pub is_stopped: bool,
}

/// Why there is no result. Every message states what to do next.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The trace cannot be opened: the error.
    Open(Box<dyn std::error::Error + Send + Sync>),
    /// The trace cannot be read on.
    Read(std::io::Error),
    /// There is no request in it; perhaps it is of another format.
    Empty(Damage),
    /// Read again, it was another trace: write it to a file first.
    Changed,
    /// More keys than can be numbered: sample.
    TooManyKeys,
    /// The bound was asked for and cannot be computed: leave it out, or do what the text states.
    Bound(&'static str),
    /// This policy cannot be had at this capacity.
    Policy {
        /// Its name.
        policy: String,
        /// In entries or bytes.
        capacity: u64,
        /// Why.
        error: larder::Error,
    },
    /// Stopped before there was anything to say: while keys were counted, or while the sample kept of that
    /// pass was replayed, which does not state of how many lookups its beginning is.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Open(error) => error.fmt(f),
            Error::Read(error) => {
                write!(f, "reading stopped: {error}; copy the file and try again")
            }
            Error::Empty(Damage { records: 0, .. }) => {
                f.write_str("there is no request in it (0 requests); is it the right file?")
            }
            Error::Empty(Damage { records, first }) => write!(
                f,
                "there is no request in it, but {records} records that cannot be read (the first: {}); \
                 is it of another format?",
                first.as_deref().unwrap_or("unknown")
            ),
            Error::Changed => f.write_str(
                "it has to be read twice, and the second time it was not the same; a pipe has to be \
                 written to a file first",
            ),
            Error::TooManyKeys => {
                write!(f, "more than {KEYS_MAX} different keys; simulate a sample of them")
            }
            Error::Bound(why) => write!(f, "{}: {why}", Contestant::BOUND),
            Error::Policy { policy, capacity, error } => {
                write!(f, "{policy} at capacity {capacity}: {error}")
            }
            Error::Stopped => f.write_str("stopped before there was a result"),
        }
    }
}

impl std::error::Error for Error {}

/// Opens the trace; every time the same requests.
pub type Open<'a> =
    &'a dyn Fn() -> Result<Box<dyn Source>, Box<dyn std::error::Error + Send + Sync>>;
