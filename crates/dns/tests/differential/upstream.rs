//! The upstream of both servers: the responses of `answer.rs`, over UDP and TCP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_testkit::dns::{Server, Transport};

use super::answer::Asked;

/// Counters of queries.
#[derive(Debug, Default)]
pub struct Counts {
    /// Queries over UDP.
    pub packets: AtomicU64,
    /// Queries over TCP.
    pub streams: AtomicU64,
}

/// Starts the upstream.
pub fn start() -> (Server, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let its = counts.clone();
    let server = Server::start(move |message, transport| {
        let asked = Asked::read(message)?;
        let is_udp = transport == Transport::Udp;
        if is_udp { &its.packets } else { &its.streams }.fetch_add(1, Ordering::Relaxed);
        let answer = asked.answer();
        let is_cut = is_udp && (asked.is_truncated() || answer.len() > asked.udp_bytes_max());
        Some(if is_cut { asked.truncated() } else { answer })
    });
    (server, counts)
}
