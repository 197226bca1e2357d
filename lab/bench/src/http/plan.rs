//! What is asked and how much, and what comes of it: the words that a run and its reader share.

use std::time::Duration;

use super::calls::Calls;
use crate::sample::Median;
use crate::servers;

pub use crate::servers::Error;

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Answers what it holds.
    Hits,
    /// Passes on what it must not keep, from itself: both ways cost it.
    Pass,
    /// The same from the origin.
    Through,
    /// Answers many clients at once with what is still coming.
    Busy,
}

/// All kinds, with the words for them and the lengths measured by default.
pub const KINDS: [(Kind, &str, &[u64]); 4] = [
    (Kind::Hits, "hits", &[1 << 10, 10 << 10, 1 << 20, 64 << 20]),
    (Kind::Pass, "pass", &[64 << 20]),
    (Kind::Through, "through", &[64 << 20]),
    (Kind::Busy, "busy", &[16 << 20, 64 << 20]),
];

/// One kind with bodies of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Which kind.
    pub kind: Kind,
    /// Bytes of a body.
    pub bytes: u64,
}

impl Work {
    /// As reports call it: `hits 10 KB`.
    pub fn name(&self) -> String {
        let kind =
            KINDS.iter().find(|(kind, ..)| *kind == self.kind).map_or("", |(_, name, _)| name);
        let (number, unit) = match self.bytes {
            bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => (bytes >> 20, "MB"),
            bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => (bytes >> 10, "KB"),
            bytes => (bytes, "B"),
        };
        format!("{kind} {number} {unit}")
    }

    /// Whether a figure for each request says more than one for each gigabyte.
    pub fn is_short(&self) -> bool {
        self.bytes <= 64 << 10
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
    /// Connections that ask again and again.
    pub connections: usize,
    /// Clients that request at once a resource that still arrives.
    pub clients: usize,
    /// How long the origin takes for that.
    pub takes: Duration,
    /// Whether to count system calls.
    pub strace: bool,
}

/// What rounds gave, round by round.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Microseconds of the server's processor time a response.
    pub cpu_us_per_request: Vec<f64>,
    /// Seconds of it a gigabyte (10^9 bytes of bodies).
    pub cpu_s_per_gb: Vec<f64>,
    /// Responses a second by the clock.
    pub requests_per_s: Vec<f64>,
    /// Gigabytes a second.
    pub gb_per_s: Vec<f64>,
    /// Share of its cores' time that it ran.
    pub busy: Vec<f64>,
    /// Share of as many cores' time that the clients ran.
    pub clients_busy: Vec<f64>,
    /// Times a second that its threads left a processor.
    pub switches_per_s: Vec<f64>,
    /// Microseconds from request to last byte that half of the responses took at most.
    pub p50_us: Vec<f64>,
    /// And 99 %.
    pub p99_us: Vec<f64>,
    /// Requests that the origin got.
    pub fetches: Vec<f64>,
    /// Milliseconds from the origin's first byte to a client's, for half of the clients.
    pub first_ms: Vec<f64>,
    /// And for the last.
    pub first_ms_most: Vec<f64>,
    /// Seconds from request to last byte, for half of the clients.
    pub last_s: Vec<f64>,
    /// Most threads.
    pub threads: u64,
    /// Most bytes in memory.
    pub peak_bytes: u64,
    /// Wrong responses, in all rounds.
    pub wrong: u64,
    /// Connections that ended early, in all rounds.
    pub failed: u64,
    /// The first fault of those.
    pub first_fault: Option<String>,
    /// System calls.
    pub calls: Option<Calls>,
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
    /// How much.
    pub plan: Plan,
    /// All that took part.
    pub entries: Vec<Entry>,
}

impl Measured {
    /// What an entry's processor time is compared by: by requests where bodies are short, else by gigabytes.
    pub fn costs<'a>(&self, figures: &'a Figures) -> &'a [f64] {
        match self.work.is_short() {
            true => &figures.cpu_us_per_request,
            false => &figures.cpu_s_per_gb,
        }
    }

    /// The other server, not `own`, whose figures have the least median.
    pub fn least<'a>(
        &'a self,
        own: &str,
        of: impl Fn(&'a Figures) -> &'a [f64],
    ) -> Option<&'a [f64]> {
        let others = self.entries.iter().filter(|entry| !entry.is_limit && entry.name != own);
        let medians =
            others.map(|entry| (Median::of(of(&entry.figures)).value, of(&entry.figures)));
        let known = medians.filter(|(median, _)| median.is_finite());
        known.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, figures)| figures)
    }
}
