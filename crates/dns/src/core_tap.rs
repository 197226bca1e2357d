//! What a core tells of the messages that come and go, for those who want to know: dnstap.
//!
//! A core without one does nothing here but look whether it has one, once a message. Cost with one:
//! a copy of each message, and two system calls for a question to an upstream (its address and
//! port).
//!
//! An answer to a client has no time of its question: that is in the question's own record, and in
//! that of the answer only where a server keeps both together.

use std::net::SocketAddr;

use crate::clock::Clock;
use crate::core::{Client, Now};
use crate::dnstap::{Event, Kind, Protocol, Tap};

/// A core's way to tell.
#[derive(Debug)]
pub struct CoreTap {
    tap: Tap,
    clock: Clock,
    now_ns: u64,
    /// Where each socket is bound.
    listeners: Vec<SocketAddr>,
}

/// An exchange with an upstream, as it is told of.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamMessage<'a> {
    /// What carried it.
    pub protocol: Protocol,
    /// Our address, where it is known.
    pub local: Option<SocketAddr>,
    /// The upstream's.
    pub upstream: SocketAddr,
    /// The message in wire form.
    pub message: &'a [u8],
}

impl CoreTap {
    /// Tells by `tap`. `listeners` are the addresses of the UDP sockets, by their numbers.
    pub fn new(tap: Tap, clock: Clock, listeners: Vec<SocketAddr>) -> CoreTap {
        CoreTap { tap, clock, now_ns: 0, listeners }
    }

    /// A turn begins.
    pub fn begin(&mut self, now: Now) {
        self.now_ns = self.clock.unix_ns(now);
    }

    /// A turn ends: what was told is handed over.
    pub fn flush(&mut self) {
        self.tap.flush();
    }

    /// What found no room.
    pub fn dropped(&self) -> u64 {
        self.tap.dropped()
    }

    /// A client's question came.
    pub fn asked(&mut self, client: &Client, message: &[u8]) {
        let (protocol, asker, asked) = self.ends(client);
        let (query_ns, response_ns) = (Some(self.now_ns), None);
        let kind = Kind::ClientQuery;
        let asker = Some(asker);
        self.tap.record(&Event { kind, protocol, asker, asked, query_ns, response_ns, message });
    }

    /// An answer goes to a client.
    pub fn answered(&mut self, client: &Client, message: &[u8]) {
        let (protocol, asker, asked) = self.ends(client);
        let (query_ns, response_ns) = (None, Some(self.now_ns));
        let kind = Kind::ClientResponse;
        let asker = Some(asker);
        self.tap.record(&Event { kind, protocol, asker, asked, query_ns, response_ns, message });
    }

    /// A question goes to an upstream.
    pub fn forwarded(&mut self, exchange: &UpstreamMessage<'_>) {
        let times = (Some(self.now_ns), None);
        self.record(Kind::ForwarderQuery, exchange, times);
    }

    /// An upstream's answer came.
    pub fn heard(&mut self, exchange: &UpstreamMessage<'_>) {
        let times = (None, Some(self.now_ns));
        self.record(Kind::ForwarderResponse, exchange, times);
    }

    fn record(
        &mut self,
        kind: Kind,
        exchange: &UpstreamMessage<'_>,
        times: (Option<u64>, Option<u64>),
    ) {
        let &UpstreamMessage { protocol, local, upstream, message } = exchange;
        let (query_ns, response_ns) = times;
        let (asker, asked) = (local, Some(upstream));
        self.tap.record(&Event { kind, protocol, asker, asked, query_ns, response_ns, message });
    }

    fn ends(&self, client: &Client) -> (Protocol, SocketAddr, Option<SocketAddr>) {
        match client {
            Client::Stream { peer, .. } | Client::Side { peer, .. } => {
                (client.protocol(), *peer, None)
            }
            Client::Frame { letter, .. } => (Protocol::Udp, letter.peer, Some(letter.local)),
            Client::Udp { socket, route } => {
                let bound = self.listeners.get(usize::from(*socket));
                let asked = bound.map(|bound| match route.local {
                    Some(local) => SocketAddr::new(local.address, bound.port()),
                    None => *bound,
                });
                (Protocol::Udp, route.peer, asked)
            }
        }
    }
}
