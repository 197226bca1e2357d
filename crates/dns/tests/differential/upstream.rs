//! The upstream of both servers: what `answer.rs` says, over UDP and TCP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_testkit::dns::{Server, Transport};

use super::answer::Asked;

/// What was asked.
#[derive(Debug, Default)]
pub struct Counts {
    /// Questions over UDP.
    pub packets: AtomicU64,
    /// Questions over TCP.
    pub streams: AtomicU64,
}

/// Starts it.
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
