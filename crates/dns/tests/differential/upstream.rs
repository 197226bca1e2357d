//! The upstream of both servers: the responses of `answer.rs`, over UDP and TCP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_testkit::dns::{Server, Transport};

use super::answer::UpstreamQuery;

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
        let query = UpstreamQuery::read(message)?;
        let is_udp = transport == Transport::Udp;
        if is_udp { &its.packets } else { &its.streams }.fetch_add(1, Ordering::Relaxed);
        let answer = query.answer();
        let is_cut = is_udp && (query.is_truncated() || answer.len() > query.udp_bytes_max());
        Some(if is_cut { query.truncated() } else { answer })
    });
    (server, counts)
}
