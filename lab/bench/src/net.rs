//! The bare limits of a network, and a load that checks every answer.
//!
//! ```text
//! load      a generator: many questions in flight, each answer matched and checked, latencies
//! echo      the least that a server of UDP can do: the limit of answers from a cache
//! relay     the least that a forwarder can do: the limit of answers that an upstream must give
//! place     cores, folder and ports of a comparison
//! ```
//!
//! Contestants and limits are asked by one generator, on a core of its own, over loopback, in a network
//! that nothing else uses. Where generator and server share two cores, the generator spends as much on a
//! message as a bare echo does, since the kernel's work on both sides of loopback is alike; what the
//! server's core could do is then known from the time that its thread ran, not by the clock.

pub mod echo;
pub mod host;
pub mod load;
pub mod relay;

/// What a server's loop did until it was stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Served {
    /// Answers that left.
    pub answers: u64,
    /// Nanoseconds that its thread ran.
    pub ran_ns: f64,
    /// Times that it received something; `answers` by this is how full batches were.
    pub rounds: u64,
}

/// Longest time that a loop sleeps before it looks whether it should stop.
const STOP_CHECK_MS: u64 = 10;

/// Bytes of the kernel's buffers: room for every question in flight.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Bytes of the longest message in any of these loops.
pub const MESSAGE_BYTES_MAX: usize = 1500;
