//! Records a core's messages with dnstap.
//!
//! Without a tap a core only checks, once for each message, whether it has one. Cost with a tap: a
//! copy of each message, and two system calls for a query to an upstream (its address and port).
//!
//! The record of a response to a client has no time of its query, which is in the query's own
//! record.

use std::net::SocketAddr;

use crate::clock::Clock;
use crate::core::{Client, Now};
use crate::dnstap::{Event, Kind, Protocol, Tap};

/// A core's tap.
#[derive(Debug)]
pub struct CoreTap {
    tap: Tap,
    clock: Clock,
    now_ns: u64,
    /// Address of each listening socket.
    listeners: Vec<SocketAddr>,
}

/// A message to or from an upstream.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamMessage<'a> {
    /// The transport.
    pub protocol: Protocol,
    /// The local address, if it is known.
    pub local: Option<SocketAddr>,
    /// The upstream's address.
    pub upstream: SocketAddr,
    /// The message in wire form.
    pub message: &'a [u8],
}

impl CoreTap {
    /// `listeners` are the addresses of the UDP sockets, by number.
    pub fn new(tap: Tap, clock: Clock, listeners: Vec<SocketAddr>) -> CoreTap {
        CoreTap { tap, clock, now_ns: 0, listeners }
    }

    /// Begins a turn.
    pub fn begin(&mut self, now: Now) {
        self.now_ns = self.clock.unix_ns(now);
    }

    /// Ends a turn: passes the records to the writer.
    pub fn flush(&mut self) {
        self.tap.flush();
    }

    /// Records dropped because the buffer was full.
    pub fn dropped(&self) -> u64 {
        self.tap.dropped()
    }

    /// Records a query of a client.
    pub fn client_query(&mut self, client: &Client, message: &[u8]) {
        self.client(Kind::ClientQuery, client, message);
    }

    /// Records a response to a client.
    pub fn client_response(&mut self, client: &Client, message: &[u8]) {
        self.client(Kind::ClientResponse, client, message);
    }

    fn client(&mut self, kind: Kind, client: &Client, message: &[u8]) {
        let (protocol, query_address, response_address) = self.ends(client);
        self.record(kind, protocol, Some(query_address), response_address, message);
    }

    /// Records a query to an upstream.
    pub fn upstream_query(&mut self, sent: &UpstreamMessage<'_>) {
        self.upstream(Kind::ForwarderQuery, sent);
    }

    /// Records a response of an upstream.
    pub fn upstream_response(&mut self, received: &UpstreamMessage<'_>) {
        self.upstream(Kind::ForwarderResponse, received);
    }

    fn upstream(&mut self, kind: Kind, it: &UpstreamMessage<'_>) {
        self.record(kind, it.protocol, it.local, Some(it.upstream), it.message);
    }

    fn record(
        &mut self,
        kind: Kind,
        protocol: Protocol,
        query_address: Option<SocketAddr>,
        response_address: Option<SocketAddr>,
        message: &[u8],
    ) {
        let is_query = matches!(kind, Kind::ClientQuery | Kind::ForwarderQuery);
        let query_ns = is_query.then_some(self.now_ns);
        let response_ns = (!is_query).then_some(self.now_ns);
        self.tap.record(&Event {
            kind,
            protocol,
            query_address,
            response_address,
            query_ns,
            response_ns,
            message,
        });
    }

    fn ends(&self, client: &Client) -> (Protocol, SocketAddr, Option<SocketAddr>) {
        match client {
            Client::Stream { peer, .. } | Client::Side { peer, .. } => {
                (client.protocol(), *peer, None)
            }
            Client::Frame { letter, .. } => (Protocol::Udp, letter.peer, Some(letter.local)),
            Client::Udp { socket, route } => {
                let bound = self.listeners.get(usize::from(*socket));
                let response_address = bound.map(|bound| match route.local {
                    Some(local) => SocketAddr::new(local.address, bound.port()),
                    None => *bound,
                });
                (Protocol::Udp, route.peer, response_address)
            }
        }
    }
}
