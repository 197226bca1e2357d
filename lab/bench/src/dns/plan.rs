//! What is asked and how much, and what comes of it: the words that a run and its reader share.

use std::time::Duration;

use super::stub::StubOptions;
use crate::servers;

pub use crate::servers::Error;

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// As reports call it.
    pub name: String,
    /// Names that are asked again and again.
    pub hot: u32,
    /// Of a hundred questions, how many are for those.
    pub hit_percent: u32,
}

impl Work {
    /// The same as a part of one.
    pub(super) fn hit_share(&self) -> f64 {
        f64::from(self.hit_percent) / 100.0
    }
}

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Rounds that count.
    pub rounds: usize,
    /// How long each contestant is asked in a round.
    pub measured: Duration,
    /// Cores of a server.
    pub cores: usize,
    /// Questions in flight.
    pub in_flight: usize,
    /// Whether questions have an OPT record, as those of many stubs have (RFC 6891).
    pub edns: bool,
    /// How the upstream behaves.
    pub upstream: StubOptions,
    /// Whether servers find their way from a root instead of asking one upstream.
    pub hierarchy: bool,
    /// Whether to measure how long clients wait.
    pub latency: bool,
}

/// What rounds gave, round by round.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Answers a second of the server's processor time.
    pub per_cpu_s: Vec<f64>,
    /// Answers a second by the clock.
    pub per_s: Vec<f64>,
    /// Share of its cores' time that it ran.
    pub busy: Vec<f64>,
    /// Its answers a second of processor time over the limit's.
    pub of_limit: Vec<f64>,
    /// Questions that the upstream got for each miss; for each question where there are no misses.
    pub upstream: Vec<f64>,
    /// Microseconds at half the rate of the slowest that half, 99 % and 99.9 % of the answers took at most.
    pub latency_us: [Vec<f64>; 3],
    /// Wrong answers, in all rounds.
    pub wrong: u64,
    /// Questions given up, in all rounds.
    pub lost: u64,
    /// Bytes in memory when it had just begun to answer.
    pub empty_bytes: Option<u64>,
    /// Bytes in memory with the hot names.
    pub filled_bytes: Option<u64>,
}

/// A contestant's part in a work.
pub type Entry = servers::Entry<Figures>;

/// What a run reports while it goes on.
pub type Event = servers::Event<Measured>;

/// A work that was measured.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Which.
    pub work: Work,
    /// The number of cores of a server.
    pub cores: usize,
    /// Rounds.
    pub rounds: usize,
    /// Questions a second by the clock at which waiting was measured; 0 where it was not.
    pub rate_per_s: u32,
    /// All that took part.
    pub entries: Vec<Entry>,
}
