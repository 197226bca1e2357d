//! Limits, outcomes and counters of TCP to upstreams.

use std::io;

use crate::tcp_framing::MESSAGE_BYTES_MAX;
use larder_io::table::ENTRIES_MAX;

/// The most `in_flight_max`: a quarter of all IDs, so that a random one is free most of the time.
const IN_FLIGHT_MAX: usize = 1 << 14;

/// The least `unsent_bytes_max`: one of the longest queries.
const UNSENT_BYTES_MIN: usize = 2 + MESSAGE_BYTES_MAX;

/// Limits of TCP to upstreams, for one core. Values outside their range are brought within.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections to all upstreams; 1 to 2^24. At the limit a new one replaces the one that has
    /// been idle for longest.
    pub connections_max: usize,
    /// Connections to one upstream from one local address; at least 1. Another is opened only when
    /// all others are full.
    pub per_upstream_max: usize,
    /// Queries on a connection, canceled ones included until their response; 1 to 16,384.
    pub in_flight_max: usize,
    /// Bytes of queries on a connection that the kernel has not taken, lengths included; at least
    /// 65,537.
    pub unsent_bytes_max: usize,
    /// Time to connect, milliseconds; like all times here at least 1.
    pub connect_ms: u64,
    /// Time without a response after which a connection with queries counts as dead.
    pub silent_ms: u64,
    /// Time after which a connection without queries is closed.
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

/// Why a query was not accepted. It has no outcome.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refused {
    /// All connections are full. Query another upstream, or later.
    Full,
    /// The message is shorter than a header, or longer than a length can state.
    BadLength,
    /// A query with this tag has not ended. Cancel it first.
    TagInUse,
    /// The system cannot connect: no route, no descriptor, no such local address. Query another
    /// upstream.
    Machine(io::Error),
}

/// Why a query failed. Query another upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The connection could not be established.
    NotConnected,
    /// The connection was lost, and a retry failed too, or was not appropriate.
    Lost,
    /// No response to any query of the connection arrived for too long.
    Silent,
    /// The upstream sent messages that cannot be responses: too short, or too many without a query.
    Broken,
}

impl Failure {
    /// All failures, in order.
    pub const ALL: [Failure; 4] =
        [Failure::NotConnected, Failure::Lost, Failure::Silent, Failure::Broken];
}

/// The outcome of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The message with its ID, of at least 12 bytes and otherwise unchecked. Its ID is the
    /// connection's, not the one given to [`UpstreamTcp::query`](super::UpstreamTcp::query).
    Answer(&'a [u8]),
    /// No response.
    Failed(Failure),
}

impl<'a> Outcome<'a> {
    /// The message, if there is one.
    pub fn answer(self) -> Option<&'a [u8]> {
        match self {
            Outcome::Answer(bytes) => Some(bytes),
            Outcome::Failed(_) => None,
        }
    }
}

/// Counters since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections opened.
    pub opened: u64,
    /// Connections that failed, by [`Failure`] in the order of [`Failure::ALL`]; see
    /// [`Counters::ended_by`].
    pub ended: [u64; Failure::ALL.len()],
    /// Connections that the upstream closed while they were idle.
    pub ended_idle: u64,
    /// Connections closed after `idle_ms` without a query.
    pub ended_unused: u64,
    /// Idle connections closed to make room for another.
    pub ended_crowded: u64,
    /// Queries accepted.
    pub queries: u64,
    /// Queries accepted on an existing connection.
    pub reused: u64,
    /// Queries refused because all connections were full.
    pub refused_full: u64,
    /// Queries retried on a new connection.
    pub retried: u64,
    /// Queries with a response.
    pub answered: u64,
    /// Queries that failed.
    pub failed: u64,
    /// Responses to canceled queries.
    pub late: u64,
    /// Messages that match no query.
    pub strays: u64,
    /// Bytes read, lengths included.
    pub bytes_in: u64,
    /// Bytes that the kernel took, lengths included.
    pub bytes_out: u64,
}

impl Counters {
    /// Connections that failed for a reason.
    pub fn ended_by(&self, failure: Failure) -> u64 {
        self.ended[failure as usize]
    }
}
