//! What upstream_tcp may take, how they end, and what is counted: the plain values beside the
//! machine in the file above.

use std::io;

use crate::tcp_framing::MESSAGE_BYTES_MAX;
use larder_io::table::ENTRIES_MAX;

/// The most `in_flight_max`: a quarter of all IDs, so that a random one is free most of the time.
const IN_FLIGHT_MAX: usize = 1 << 14;

/// The least `unsent_bytes_max`: one of the longest questions.
const UNSENT_BYTES_MIN: usize = 2 + MESSAGE_BYTES_MAX;

/// What questions over TCP may take of one core. Values beyond their range are brought within.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections to all upstreams; 1 to 2^24. Where they are reached the one that has been idle
    /// for longest is closed for a new one.
    pub connections_max: usize,
    /// Connections to one upstream from one local address; at least 1. Another is opened only when
    /// all others are full.
    pub per_upstream_max: usize,
    /// Questions on a connection, cancelled ones included until they are answered; 1 to 16,384.
    pub in_flight_max: usize,
    /// Octets of questions on a connection that the kernel has not taken, lengths included; at
    /// least 65,537.
    pub unsent_bytes_max: usize,
    /// Time in which a connection must be there, milliseconds; like all times here at least 1.
    pub connect_ms: u64,
    /// Time without an answer after which a connection with questions counts as dead.
    pub silent_ms: u64,
    /// Time for which a connection is kept without questions.
    pub idle_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 256,
            per_upstream_max: 4,
            in_flight_max: 128,
            unsent_bytes_max: 128 << 10,
            connect_ms: 2_000,
            silent_ms: 5_000,
            idle_ms: 10_000,
        }
    }
}

impl Limits {
    /// Each value within its range.
    pub(super) fn within(self) -> Limits {
        Limits {
            connections_max: self.connections_max.clamp(1, ENTRIES_MAX),
            per_upstream_max: self.per_upstream_max.max(1),
            in_flight_max: self.in_flight_max.clamp(1, IN_FLIGHT_MAX),
            unsent_bytes_max: self.unsent_bytes_max.max(UNSENT_BYTES_MIN),
            connect_ms: self.connect_ms.max(1),
            silent_ms: self.silent_ms.max(1),
            idle_ms: self.idle_ms.max(1),
        }
    }
}

/// Why a question was not taken. Nothing else will be heard of it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refused {
    /// All connections that there may be are full. Ask another upstream, or later.
    Full,
    /// The message is shorter than a head, or longer than a length can tell. Don't ask it.
    BadLength,
    /// A question with this tag has not come to its end. Cancel it first.
    TagInUse,
    /// This machine can't connect: no route, no descriptor, no such local address. Ask another
    /// upstream.
    Machine(io::Error),
}

/// Why a question that was taken failed. Ask another upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection came about.
    NotConnected,
    /// The connection was lost, and asking once more was no use, or not called for.
    Lost,
    /// No answer to any question of the connection came for too long.
    Silent,
    /// The upstream sent what can't be an answer: too short, or too many that nobody asked for.
    Broken,
}

impl Failure {
    /// All of them, in order.
    pub const ALL: [Failure; 4] =
        [Failure::NotConnected, Failure::Lost, Failure::Silent, Failure::Broken];
}

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The message that has its ID, of 12 octets at least and otherwise not looked at. Its ID is
    /// the connection's, not that of the message which was given to
    /// [`UpstreamTcp::ask`](super::UpstreamTcp::ask).
    Answer(&'a [u8]),
    /// There will be none.
    Failed(Failure),
}

impl<'a> Outcome<'a> {
    /// The message, if there is one.
    pub fn answer(self) -> Option<&'a [u8]> {
        match self {
            Outcome::Answer(octets) => Some(octets),
            Outcome::Failed(_) => None,
        }
    }
}

/// What happened since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections begun.
    pub opened: u64,
    /// Connections that failed, by [`Failure`] in the order of [`Failure::ALL`]; see
    /// [`Counters::ended_by`].
    pub ended: [u64; Failure::ALL.len()],
    /// Connections that the upstream closed while they were idle.
    pub ended_idle: u64,
    /// Connections closed because nothing was asked for `idle_ms`.
    pub ended_unused: u64,
    /// Connections closed while idle because another needed the place.
    pub ended_crowded: u64,
    /// Questions taken.
    pub asked: u64,
    /// Questions taken that went to a connection which was there.
    pub reused: u64,
    /// Questions refused because all connections were full.
    pub refused_full: u64,
    /// Questions asked once more, on a new connection.
    pub retried: u64,
    /// Questions answered.
    pub answered: u64,
    /// Questions that failed.
    pub failed: u64,
    /// Answers to cancelled questions.
    pub late: u64,
    /// Messages that answered nothing.
    pub strays: u64,
    /// Octets read, lengths included.
    pub octets_in: u64,
    /// Octets that the kernel took, lengths included.
    pub octets_out: u64,
}

impl Counters {
    /// Connections that failed in a way.
    pub fn ended_by(&self, failure: Failure) -> u64 {
        self.ended[failure as usize]
    }
}
