//! Limits, causes of closing, and counters of TCP from clients.

use crate::tcp_framing::MESSAGE_BYTES_MAX;
use larder_io::table::ENTRIES_MAX;

/// The least `unsent_bytes_max`: two of the longest responses.
const UNSENT_BYTES_MIN: usize = 2 * (2 + MESSAGE_BYTES_MAX);

/// Limits of TCP from clients, for one core. Values outside their range are brought within.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Streams at once; 1 to 2^24. At the limit a new one replaces the one that has been idle for
    /// longest. If none is idle, it replaces one with an incomplete query, or is refused.
    pub streams_max: usize,
    /// Streams of one client: an IPv4 address, or the /64 of an IPv6 address, which one host gets.
    pub per_client_max: u32,
    /// Queries of a stream without a response; at least 1.
    pub unanswered_max: usize,
    /// Bytes of a query, 1 to 65,535. A longer one ends the stream.
    pub message_bytes_max: usize,
    /// Bytes of responses to a stream that the kernel has not taken, lengths included; at least
    /// 131,074. From half of them on the stream is not read, and it is reset if a response would
    /// exceed them.
    pub unsent_bytes_max: usize,
    /// Time without a query after which a stream is closed, milliseconds, while the table is less
    /// than half full. It shrinks from there, to a sixteenth (RFC 7766, section 6.2.3).
    pub idle_ms: u64,
    /// Time for a query to be complete; it shrinks as `idle_ms` does.
    pub message_ms: u64,
    /// Time for a client to receive the bytes that were unsent when the kernel first had no room.
    pub stall_ms: u64,
    /// Time after a stream's last query within which the caller must respond to all.
    pub answer_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            streams_max: 1024,
            per_client_max: 64,
            unanswered_max: 128,
            message_bytes_max: 4096,
            unsent_bytes_max: 256 << 10,
            idle_ms: 10_000,
            message_ms: 5_000,
            stall_ms: 5_000,
            answer_ms: 30_000,
        }
    }
}

impl Limits {
    /// Each value within its range.
    pub(super) fn within(self) -> Limits {
        Limits {
            streams_max: self.streams_max.clamp(1, ENTRIES_MAX),
            per_client_max: self.per_client_max.max(1),
            unanswered_max: self.unanswered_max.max(1),
            message_bytes_max: self.message_bytes_max.clamp(1, MESSAGE_BYTES_MAX),
            unsent_bytes_max: self.unsent_bytes_max.max(UNSENT_BYTES_MIN),
            ..self
        }
    }
}

/// Why a stream was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The client finished, and has its responses.
    Finished,
    /// The connection was reset, or failed in another way.
    Lost,
    /// No query arrived for too long.
    Idle,
    /// It had been idle for longest when a new one needed its slot.
    Crowded,
    /// A query was not complete in time.
    SlowWriter,
    /// The client did not receive its responses in time, or had too many unsent.
    SlowReader,
    /// A query of 0 bytes, or of too many.
    BadLength,
    /// The caller did not respond in time.
    Unanswered,
    /// [`ClientTcp::drain`](super::ClientTcp::drain).
    Drained,
    /// [`ClientTcp::close`](super::ClientTcp::close).
    Closed,
}

impl Cause {
    /// All causes, in order.
    pub const ALL: [Cause; 10] = [
        Cause::Finished,
        Cause::Lost,
        Cause::Idle,
        Cause::Crowded,
        Cause::SlowWriter,
        Cause::SlowReader,
        Cause::BadLength,
        Cause::Unanswered,
        Cause::Drained,
        Cause::Closed,
    ];
}

/// Counters since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Streams accepted.
    pub opened: u64,
    /// Connections refused because the table was full of streams in use, or because of
    /// [`ClientTcp::drain`](super::ClientTcp::drain).
    pub refused_full: u64,
    /// Connections refused because their client had too many.
    pub refused_client: u64,
    /// Connections lost between accept and registration, since the kernel had no memory.
    pub refused_unwatched: u64,
    /// Streams closed, by [`Cause`] in the order of [`Cause::ALL`]; see [`Counters::closed_by`].
    pub closed: [u64; Cause::ALL.len()],
    /// Queries passed on.
    pub queries: u64,
    /// Responses queued.
    pub answers: u64,
    /// Bytes read, lengths included.
    pub bytes_in: u64,
    /// Bytes that the kernel took, lengths included.
    pub bytes_out: u64,
}

impl Counters {
    /// Streams closed for a cause.
    pub fn closed_by(&self, cause: Cause) -> u64 {
        self.closed[cause as usize]
    }
}
