//! Limits and counters of clients, for all transports together.
//!
//! | limit | at the limit |
//! |---|---|
//! | connections, all and of one client (an IPv4 address, a /64) | a new one is closed before its handshake |
//! | time for a handshake, for the rest of a query, for a stalled client | the connection is closed |
//! | idle time, less as the table fills | the connection is closed, as its transport provides |
//! | queries of a connection without a response | nothing more is read; HTTP/2 and QUIC tell the client |
//! | queries that wait for a core | SERVFAIL |
//! | unsent bytes of responses, all together | further responses are dropped |
//!
//! Each of them is counted. [`larder_tls::ConnectionLimit`] counts connections. Cost: relaxed
//! atomics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use larder_dns::dnstap::Protocol;
use larder_dns::metrics::Metric;

/// Limits of all encrypted transports together.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once.
    pub connections_max: usize,
    /// Connections of one client.
    pub per_client_max: u32,
    /// Queries of a connection whose responses are not sent.
    pub unanswered_max: usize,
    /// Unsent bytes of responses.
    pub unsent_bytes_max: usize,
    /// Time for a handshake.
    pub handshake: Duration,
    /// Time for a query, since the last query or response of its connection.
    pub idle: Duration,
    /// Time for a client to receive its responses.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 4_096,
            per_client_max: 64,
            unanswered_max: 100,
            unsent_bytes_max: 64 << 20,
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(30),
            stall: Duration::from_secs(10),
        }
    }
}

/// Events that are counted, for each transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A connection was accepted, before its handshake.
    Opened,
    /// A connection was refused: a limit.
    Refused,
    /// A handshake failed, or took too long.
    HandshakeFailed,
    /// A connection was closed because a query was not complete in time, or the client did not
    /// receive its responses in time.
    TimedOut,
    /// A connection or stream broke the rules of its transport.
    Violated,
    /// A query got SERVFAIL because its core's queue was full.
    Overloaded,
    /// A response was dropped because too many were unsent.
    Unsent,
}

const EVENTS: [(&str, &str); 7] = [
    ("encrypted_connections_opened_total", "Connections of encrypted transports taken"),
    (
        "encrypted_connections_refused_total",
        "Connections of encrypted transports not taken: a limit",
    ),
    ("encrypted_handshakes_failed_total", "Handshakes that failed or took too long"),
    (
        "encrypted_timeouts_total",
        "Connections and requests closed because their client took too long",
    ),
    (
        "encrypted_violations_total",
        "Connections and requests that broke the rules of their transport",
    ),
    ("encrypted_overloads_total", "Queries that got SERVFAIL because no core had room"),
    (
        "encrypted_unsent_total",
        "Responses dropped because the client had not received earlier ones",
    ),
];

const PROTOCOLS: [(Protocol, &str); 3] =
    [(Protocol::Tls, "tls"), (Protocol::Https, "https"), (Protocol::Quic, "quic")];

fn place(protocol: Protocol) -> usize {
    PROTOCOLS.iter().position(|(each, _)| *each == protocol).unwrap_or(0)
}

/// Counters, by event and transport.
#[derive(Debug, Default)]
pub(crate) struct Counters([[AtomicU64; PROTOCOLS.len()]; EVENTS.len()]);

impl Counters {
    pub(crate) fn note(&self, event: Event, protocol: Protocol) {
        self.0[event as usize][place(protocol)].fetch_add(1, Relaxed);
    }

    pub(crate) fn metrics(&self) -> impl Iterator<Item = Metric> + '_ {
        EVENTS.iter().zip(&self.0).flat_map(|(&(name, help), values)| {
            PROTOCOLS.iter().zip(values).map(move |((_, transport), value)| {
                Metric::new(name, help, value.load(Relaxed) as f64).of("transport", transport)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each event is counted for its transport alone.
    #[test]
    fn events_are_counted() {
        let counters = Counters::default();
        counters.note(Event::Unsent, Protocol::Quic);
        let noted: Vec<_> = counters.metrics().filter(|it| it.value > 0.0).collect();
        assert_eq!(noted.len(), 1);
        assert_eq!(noted[0].field(), "encrypted_unsent");
        assert_eq!(noted[0].label, Some(("transport", "quic".to_owned())));
        assert_eq!(counters.metrics().count(), EVENTS.len() * PROTOCOLS.len());
    }
}
