//! What streams may take, why they end, and what is counted: the plain values beside the machine in
//! the file above.

use crate::tcp_framing::MESSAGE_BYTES_MAX;
use larder_io::table::ENTRIES_MAX;

/// The least `unsent_bytes_max`: two of the longest answers.
const UNSENT_BYTES_MIN: usize = 2 * (2 + MESSAGE_BYTES_MAX);

/// What clients may take of one core. Values beyond their range are brought within.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Streams at once; 1 to 2^24. Where they are reached a new one takes the place of the one that
    /// has been idle for longest, and is refused where none is.
    pub streams_max: usize,
    /// Streams of one client: an IPv4 address, or the /64 of an IPv6 address, which is what one
    /// host is given.
    pub per_client_max: u32,
    /// Questions of a stream that wait for their answers; at least 1.
    pub unanswered_max: usize,
    /// Octets of a question, 1 to 65,535. A longer one ends the stream.
    pub message_bytes_max: usize,
    /// Octets of answers to a stream that the kernel has not taken, lengths included; at least
    /// 131,074. From half of them on no more questions are read, and the stream is reset where an
    /// answer would exceed them.
    pub unsent_bytes_max: usize,
    /// Time without a question until a stream is closed, milliseconds, while the table is less than
    /// half full. It shrinks from there, to a sixteenth (RFC 7766, section 6.2.3).
    pub idle_ms: u64,
    /// Time in which a question must be whole; it shrinks as `idle_ms` does.
    pub message_ms: u64,
    /// Time in which a client must take what was unsent when the kernel first had no room.
    pub stall_ms: u64,
    /// Time after its last question in which all answers to a stream are expected of the caller.
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
    /// The client had finished, and has its answers.
    Finished,
    /// The connection was reset, or failed otherwise.
    Lost,
    /// Nothing was asked for too long.
    Idle,
    /// It had been idle for longest when a new one needed its place.
    Crowded,
    /// A question was not whole in its time.
    SlowWriter,
    /// Answers were not taken in their time, or too many of them.
    SlowReader,
    /// A question of no octets, or of too many.
    BadLength,
    /// The caller answered too late.
    Unanswered,
    /// [`ClientTcp::drain`](super::ClientTcp::drain).
    Drained,
    /// [`ClientTcp::close`](super::ClientTcp::close).
    Closed,
}

impl Cause {
    /// All of them, in order.
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

/// What happened since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Streams that were accepted.
    pub opened: u64,
    /// Connections refused because the table was full of streams in use, or because of
    /// [`ClientTcp::drain`](super::ClientTcp::drain).
    pub refused_full: u64,
    /// Connections refused because their client had enough.
    pub refused_client: u64,
    /// Connections lost between accepting and watching, by a lack of the kernel's memory.
    pub refused_unwatched: u64,
    /// Streams closed, by [`Cause`] in the order of [`Cause::ALL`]; see [`Counters::closed_by`].
    pub closed: [u64; Cause::ALL.len()],
    /// Questions handed out.
    pub questions: u64,
    /// Answers taken for sending.
    pub answers: u64,
    /// Octets read, lengths included.
    pub octets_in: u64,
    /// Octets that the kernel took, lengths included.
    pub octets_out: u64,
}

impl Counters {
    /// Streams closed for a cause.
    pub fn closed_by(&self, cause: Cause) -> u64 {
        self.closed[cause as usize]
    }
}
