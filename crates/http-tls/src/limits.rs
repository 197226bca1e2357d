//! Limits of clients and origins over TLS, and counters.
//!
//! | limit | at the limit |
//! |---|---|
//! | connections, all and of one client (an IPv4 address, a /64) | a new one is closed before its handshake |
//! | handshake: time | the connection is closed |
//! | no request on HTTP/2, less as the table fills: time | the client gets GOAWAY, then the connection is closed |
//! | a client receives nothing: time | HTTP/1.1 is reset; a stream of HTTP/2 is |
//! | streams of a connection | HTTP/2 sends the limit to the client; more are refused |
//! | headers of a request | HTTP/2 responds with 431 |
//!
//! A reload may change most of them ([`Limits::follow`]). A connection keeps the limits with which
//! it began, except for the number of connections of its client.
//!
//! The event loops have all other limits, such as the time of a request's headers or body. Cost:
//! relaxed atomics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use larder_http::connection::ClientLimits;
use larder_serve::metrics::Metric;

/// Limits of all connections over TLS.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections of clients at once.
    pub connections_max: usize,
    /// Of those, of one client.
    pub per_client_max: u32,
    /// Streams of a connection at once.
    pub streams_max: u32,
    /// Bytes of a request's headers, unpacked.
    pub head_bytes_max: u32,
    /// For a client's handshake.
    pub handshake: Duration,
    /// For a connection to an origin, with its handshake.
    pub connect: Duration,
    /// Without a request.
    pub idle: Duration,
    /// For the other side to receive bytes that were sent.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 10_000,
            per_client_max: 10_000,
            streams_max: 128,
            head_bytes_max: 32 << 10,
            handshake: Duration::from_secs(10),
            connect: Duration::from_secs(4),
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(60),
        }
    }
}

impl Limits {
    /// Applies the settings that may change at run time. The limits of all connections and of
    /// streams stay as at the start.
    pub fn follow(&mut self, settings: &ClientLimits) {
        let patience = &settings.patience;
        // 0 means no limit, as for clients without TLS.
        let per_client = Some(settings.per_address).filter(|&it| it > 0);
        self.per_client_max = per_client.unwrap_or(u32::MAX);
        self.head_bytes_max = u32::try_from(settings.head_bytes_max).unwrap_or(u32::MAX);
        self.handshake = Duration::from_millis(patience.head_ms);
        self.connect = Duration::from_millis(patience.connect_ms);
        self.idle = Duration::from_millis(patience.idle_ms);
        self.stall = Duration::from_millis(patience.client_ms);
    }
}

/// The limits in force, which all clones share.
#[derive(Debug, Clone)]
pub(crate) struct InForce(Arc<Mutex<Arc<Limits>>>);

impl InForce {
    pub(crate) fn new(limits: Limits) -> InForce {
        InForce(Arc::new(Mutex::new(Arc::new(limits))))
    }

    /// The limits of a connection that begins now.
    pub(crate) fn now(&self) -> Arc<Limits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the limits in force.
    pub(crate) fn follow(&self, settings: &ClientLimits) {
        let mut limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut limits).follow(settings);
    }
}

/// An event that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A client's connection was accepted; its handshake is not done yet.
    Opened,
    /// A connection was refused: a limit.
    Refused,
    /// A handshake is done.
    Shaken,
    /// Its handshake failed, or took too long.
    HandshakeFailed,
    /// A client uses HTTP/2.
    Http2,
    /// A request over HTTP/2.
    Stream,
    /// A response was aborted: the client gets a reset.
    Reset,
    /// A client broke the rules of HTTP/2.
    Violated,
    /// A client received nothing for too long, or sent no request.
    TimedOut,
    /// A connection to an origin was made.
    OriginShaken,
    /// A connection to an origin failed.
    OriginUnreachable,
    /// An origin had no valid certificate.
    OriginUnproven,
    /// An origin ended a connection without `close_notify`.
    OriginCut,
}

const EVENTS: [(&str, &str); 13] = [
    ("tls_connections_opened_total", "Connections of clients over TLS taken"),
    ("tls_connections_refused_total", "Connections of clients over TLS not taken: a limit"),
    ("tls_handshakes_total", "Handshakes of clients made"),
    ("tls_handshakes_failed_total", "Handshakes of clients that failed or took too long"),
    ("http2_connections_total", "Connections of clients that speak HTTP/2"),
    ("http2_streams_total", "Requests over HTTP/2"),
    (
        "tls_resets_total",
        "Responses over TLS that were aborted: HTTP/2 streams and whole connections",
    ),
    ("http2_violations_total", "Connections and streams that broke the rules of HTTP/2"),
    (
        "tls_timeouts_total",
        "Connections and streams over TLS closed because their client took too long",
    ),
    ("tls_origin_handshakes_total", "Connections over TLS made to origins"),
    ("tls_origin_unreachable_total", "Connections over TLS to origins that could not be had"),
    ("tls_origin_unproven_total", "Connections to origins whose certificate is not theirs"),
    ("tls_origin_cut_total", "Connections over TLS that origins ended without saying so"),
];

/// Counters, by event.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; EVENTS.len()]);

impl Counters {
    pub(crate) fn note(&self, event: Event) {
        self.0[event as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn metrics(&self) -> impl Iterator<Item = Metric> + '_ {
        let all = EVENTS.iter().zip(&self.0);
        all.map(|(&(name, help), value)| Metric::new(name, help, value.load(Relaxed) as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each event is counted under its own name, also the last.
    #[test]
    fn events_are_counted() {
        let counters = Counters::default();
        counters.note(Event::OriginCut);
        counters.note(Event::Opened);
        let noted: Vec<_> = counters.metrics().filter(|it| it.value > 0.0).collect();
        let names: Vec<_> = noted.iter().map(|metric| metric.field()).collect();
        assert_eq!(names, ["tls_connections_opened", "tls_origin_cut"]);
    }
}
