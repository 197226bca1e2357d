//! How a core sends: [`Net`] over sockets, TCP connections and backends.
//!
//! A `Transport` borrows its parts for one call of the core and owns nothing. TCP connections are
//! separate from the sockets: they call back with queries and take responses within the same call.
//! The callback makes a new `Transport` from the parts that it has.

use std::net::SocketAddr;

use super::sockets::Sockets;
use super::upstream_sockets::UpstreamSocket;
use crate::client_tcp::{ClientTcp, StreamId};
use crate::core::{Client, Core, Net};
use crate::core_tap::UpstreamMessage;
use crate::dnstap::Protocol;
use crate::query_log::Source;
use crate::upstream_tcp::{Outcome, UpstreamTcp};

/// The parts through which a core sends.
pub(super) struct Transport<'a> {
    pub sockets: &'a mut Sockets,
    pub client_tcp: &'a mut ClientTcp,
    pub upstream_tcp: &'a mut UpstreamTcp,
}

impl Net for Transport<'_> {
    #[inline]
    fn respond(
        &mut self,
        client: &Client,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        match client {
            Client::Udp { socket, route } => self.sockets.respond(*socket, route, bytes_max, write),
            Client::Frame { queue, letter } => {
                self.sockets.respond_by_frame(*queue, letter, bytes_max, write)
            }
            Client::Stream { stream, .. } => {
                let observers = &mut self.sockets.observers;
                self.client_tcp.answer(StreamId::from_bits(*stream), bytes_max, |room| {
                    let length = write(room)?;
                    observers.response(client, &room[..length]);
                    Some(length)
                })
            }
            Client::Side { slot, .. } => {
                let Sockets { inbox, observers, .. } = &mut *self.sockets;
                let answered = inbox.as_mut().and_then(|it| it.answer(*slot, bytes_max, write));
                answered.map(|bytes| observers.response(client, bytes)).is_some()
            }
        }
    }

    fn describe(&mut self, source: Source, since_us: Option<u64>) {
        self.sockets.observers.describe(source, since_us);
    }

    fn drop_query(&mut self, client: &Client) {
        match client {
            Client::Udp { .. } | Client::Frame { .. } => {}
            Client::Stream { stream, .. } => {
                self.client_tcp.drop_query(StreamId::from_bits(*stream));
            }
            Client::Side { slot, .. } => {
                if let Some(inbox) = &mut self.sockets.inbox {
                    inbox.ignore(*slot);
                }
            }
        }
    }

    fn query_udp(
        &mut self,
        upstream: usize,
        write: impl FnOnce(u32, &mut [u8]) -> Option<usize>,
    ) -> bool {
        let Sockets {
            upstream_sockets, origin, numbers, random, poller, now_ms, observers, ..
        } = &mut *self.sockets;
        let Some(pool) = upstream_sockets.pool_mut(upstream) else { return false };
        let mut written = Vec::new();
        let sent = pool.query(*now_ms, origin, numbers, random, poller, |socket, room| {
            let length = write(socket, room)?;
            if observers.tap.is_some() {
                written.extend_from_slice(&room[..length]);
            }
            Some(length)
        });
        if let (Some(tap), Ok(socket)) = (&mut observers.tap, &sent) {
            tap.upstream_query(&pool.message(*socket, &written));
        }
        observers.counts.unsent_queries += u64::from(sent.is_err());
        sent.is_ok()
    }

    fn query_stream(&mut self, upstream: usize, tag: u64, message: &[u8]) -> bool {
        let Sockets { upstream_sockets, backends, origin, poller, now_ms, observers, .. } =
            &mut *self.sockets;
        let address = match upstream_sockets.get(upstream) {
            Some(UpstreamSocket::Server(pool)) => pool.address(),
            Some(UpstreamSocket::Backend(to)) => {
                backends.cancel(tag);
                return backends.query(to.number, tag, message, to.wait_ms);
            }
            None => return false,
        };
        let local = origin.address_for(address);
        // A tag is reused only after a query has had so many streams that the first one ended long
        // ago.
        self.upstream_tcp.cancel(tag);
        let is_sent =
            self.upstream_tcp.query(address, local, tag, message, poller, *now_ms).is_ok();
        if let (Some(tap), true) = (&mut observers.tap, is_sent) {
            tap.upstream_query(&by_stream(address, message));
        }
        is_sent
    }

    fn cancel(&mut self, tag: u64) {
        self.sockets.backends.cancel(tag);
    }
}

impl Transport<'_> {
    /// Passes a client's query over TCP to the core.
    pub fn client_query(
        &mut self,
        core: &mut Core,
        stream: StreamId,
        peer: SocketAddr,
        message: &[u8],
    ) {
        let client = Client::Stream { stream: stream.to_bits(), peer };
        self.sockets.observers.query(&client, message);
        core.queries(std::iter::once((client, message)), self);
    }

    /// Passes the outcome of a query over TCP to the core.
    pub fn upstream_outcome(&mut self, core: &mut Core, tag: u64, outcome: Outcome<'_>) {
        let bytes = outcome.answer();
        let Sockets { upstream_sockets, observers, .. } = &mut *self.sockets;
        if let (Some(tap), Some(bytes)) = (&mut observers.tap, bytes)
            && let Some(upstream) = core.upstream_of_stream(tag)
            && let Some(pool) = upstream_sockets.pool(upstream)
        {
            tap.upstream_response(&by_stream(pool.address(), bytes));
        }
        core.stream_response(tag, bytes, self);
    }
}

/// A message to or from an upstream over TCP; the local address is not known here.
fn by_stream(upstream: SocketAddr, message: &[u8]) -> UpstreamMessage<'_> {
    UpstreamMessage { protocol: Protocol::Tcp, local: None, upstream, message }
}
