//! Clients: from bytes to requests, and from decisions of the core to responses.
//!
//! ```text
//! idle -> headers -> answered at once -> idle
//!                 -> waiting (shared fetch, or one of its own) -> delivering -> idle
//! idle, headers, waiting, delivering -> closed
//! ```
//!
//! Bytes that come while a request is being answered are stored up to the longest
//! headers; then the client is not read.

mod access;
mod admission;
mod requests;
mod upload;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use larder_io::table::Id;
use larder_io::tcp;

use self::access::Noted;
use super::Driver;
use super::delivery::Delivery;
use crate::core::{Exchange, Upload};
use crate::message::{self, Scheme};
use crate::tls_bridge::{CloseState, Handoff};

/// What a client waits for, by list.
pub const CLIENT_LISTS: usize = 6;
const IDLE: usize = 0;
const HEAD: usize = 1;
const WAITING: usize = 2;
const TAKING: usize = 3;
const SENDING_BODY: usize = 4;
const LINGERING: usize = 5;

/// How long the bytes of a client are discarded after a response that came early, milliseconds: a
/// socket that is closed while it has unread bytes resets the connection, and the response with it.
const LINGER_MS: u64 = 1_000;

/// A new connection of a client.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) socket: OwnedFd,
    pub(super) peer: Option<SocketAddr>,
    pub(super) close_state: Option<CloseState>,
    pub(super) peer_close_state: Option<CloseState>,
    pub(super) speaks_http2: bool,
}

impl From<Handoff> for Arrival {
    fn from(handoff: Handoff) -> Arrival {
        let Handoff { socket, peer, close_state, peer_close_state, speaks_http2 } = handoff;
        let (peer, close_state, peer_close_state) =
            (Some(peer), Some(close_state), Some(peer_close_state));
        Arrival { socket: socket.into(), peer, close_state, peer_close_state, speaks_http2 }
    }
}

/// A connection of a client.
#[derive(Debug)]
pub struct Client {
    pub(super) id: Id,
    pub(super) token: u64,
    pub(super) socket: OwnedFd,
    pub(super) peer: Option<SocketAddr>,
    /// It came over TLS: the TLS bridge learns from this how the responses ended.
    pub(super) close_state: Option<CloseState>,
    /// The TLS bridge states here how the requests ended.
    peer_close_state: Option<CloseState>,
    /// It carries requests of HTTP/2, one after the other; for the log.
    pub(super) speaks_http2: bool,
    /// Bytes that came and were not read yet.
    pub(super) inbox: Vec<u8>,
    /// This many of them are known not to end the headers.
    looked_at: usize,
    pub(super) is_paused: bool,
    /// It sends no more.
    pub(super) is_finished: bool,
    /// A response was aborted.
    pub(super) is_broken: bool,
    /// It is closed when what is being sent has been sent.
    pub(super) closes: bool,
    /// It may still send, and is to receive the response all the same.
    pub(super) lingers: bool,
    /// larder sends no more; bytes that come are discarded.
    is_shut: bool,
    /// The reactor has bytes to send.
    pub(super) is_sending: bool,
    /// Bytes to send after those.
    queued: Vec<u8>,
    pub(super) exchange: Option<Box<Exchange>>,
    pub(super) delivery: Option<Box<Delivery>>,
    pub(super) upload: Option<Box<Upload>>,
    /// What the log will state about its exchange.
    pub(super) noted: Option<Box<Noted>>,
    /// A proxy has not stated its address yet.
    pub(super) expects_proxy: bool,
    /// Its place among the connections of its address, where they are limited.
    pub(super) permit: Option<larder_serve::connection_limit::Permit>,
}

impl Client {
    /// It has no request, and nothing of a response is left.
    fn is_done(&self) -> bool {
        self.exchange.is_none()
            && self.delivery.is_none()
            && !self.is_sending
            && self.queued.is_empty()
    }

    /// Its address. One that is gone already may have none.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.peer.or_else(|| tcp::peer(&self.socket).ok())
    }

    /// The scheme of its requests.
    pub(super) fn scheme(&self) -> Scheme {
        if self.close_state.is_some() { Scheme::Https } else { Scheme::Http }
    }

    /// All responses were sent; unless one was aborted, which the TLS bridge learns from the close
    /// state.
    fn end_whole(&self) {
        if let Some(close_state) = self.close_state.as_ref().filter(|_| !self.is_broken) {
            close_state.set_whole();
        }
    }
}

impl Driver {
    pub(super) fn accept(&mut self, arrival: Arrival) {
        let Arrival { socket, peer, close_state, peer_close_state, speaks_http2 } = arrival;
        self.core.counts.connections += 1;
        // The TLS bridge has stated its address.
        let expects_proxy = self.core.options.expects_proxy && close_state.is_none();
        // While the server drains, a connection over TLS comes with a request that has to be read
        // first.
        let has_request = self.core.is_draining && close_state.is_some();
        let list = if expects_proxy || has_request { HEAD } else { IDLE };
        let Ok(id) = self.clients.insert(None, list, self.now.ms) else {
            self.core.counts.refused_full += 1;
            return;
        };
        let token = self.clients.token(id);
        if self.reactor.receive(&socket, token).is_err() {
            self.clients.remove(id);
            self.core.counts.accept_failures += 1;
            return;
        }
        let mut client = Client {
            id,
            token,
            socket,
            peer,
            close_state,
            peer_close_state,
            speaks_http2,
            inbox: Vec::new(),
            looked_at: 0,
            is_paused: false,
            is_finished: false,
            is_broken: false,
            closes: false,
            lingers: false,
            is_shut: false,
            is_sending: false,
            queued: Vec::new(),
            exchange: None,
            delivery: None,
            upload: None,
            noted: None,
            expects_proxy,
            permit: None,
        };
        // Connections over TLS were counted before, and a client of HTTP/2 has one for each of its
        // requests.
        if client.close_state.is_none() && !expects_proxy && !self.admit(&mut client) {
            return self.close_client(id, client);
        }
        if let Some(place) = self.clients.get_mut(id) {
            *place = Some(Box::new(client));
        }
    }

    pub(super) fn client_waits_ms(&self) -> [u64; CLIENT_LISTS] {
        let patience = &self.core.options.patience;
        let idle_ms = match self.core.is_draining {
            true => patience.idle_ms.min(patience.drain_idle_ms),
            false => patience.idle_ms,
        };
        [idle_ms, patience.head_ms, u64::MAX, patience.client_ms, patience.client_ms, LINGER_MS]
    }

    fn wait_in(&mut self, client: &Client, list: usize) {
        self.clients.wait_in(client.id, list, self.now.ms);
    }

    pub(super) fn waits_to_take(&mut self, client: &Client) {
        self.wait_in(client, TAKING);
    }

    /// Waits for an outcome; `sends`: and for more of the client's body.
    pub(super) fn waits_for_origin(&mut self, client: &Client, sends: bool) {
        // A client that receives a response already has its time for that.
        if client.delivery.is_none() {
            self.wait_in(client, if sends { SENDING_BODY } else { WAITING });
        }
    }

    /// A wait of a client has timed out.
    pub(super) fn client_overdue(&mut self, client: &mut Client, list: usize) -> bool {
        match list {
            LINGERING => {}
            IDLE => self.core.counts.closed_idle += 1,
            HEAD if client.expects_proxy => self.core.counts.closed_slow += 1,
            HEAD if !client.is_sending => {
                self.core.counts.closed_slow += 1;
                let begun = std::mem::take(&mut client.inbox);
                let is_open = self.refuse(client, 408, "the request did not come in time");
                self.note_refused(client, &begun, "timeout");
                return is_open;
            }
            _ => {
                self.core.counts.closed_slow += 1;
                super::delivery::reset(client);
            }
        }
        false
    }

    /// The server drains. A client without a request may be sending one: it has a moment for it,
    /// and is answered with `Connection: close`.
    pub(super) fn drain_client(&mut self, client: &mut Client) -> bool {
        if client.is_done() && client.inbox.is_empty() {
            self.wait_in(client, IDLE);
        }
        true
    }

    pub(super) fn client_failed(&mut self, _client: &mut Client) -> bool {
        false
    }

    pub(super) fn close_client(&mut self, id: Id, mut client: Client) {
        self.note_closed(&mut client);
        client.permit = None;
        self.clients.remove(id);
        self.drop_upload(&mut client);
        if client.is_done() {
            client.end_whole();
        }
        let Client { socket, token, exchange, delivery, .. } = client;
        if let Some(exchange) = exchange {
            self.leave(exchange.flight, token);
        }
        // Dropping its reader notifies the filler.
        drop(delivery);
        self.reactor.close(socket, token);
    }

    /// Bytes of a client came.
    pub(super) fn receive(&mut self, client: &mut Client, bytes: &[u8]) -> bool {
        if client.expects_proxy {
            return self.hear_proxy(client, bytes);
        }
        if client.is_shut {
            return true;
        }
        let is_ready = client.inbox.is_empty() && self.takes_requests(client);
        if is_ready {
            let used = self.requests(client, bytes);
            client.inbox.extend_from_slice(&bytes[used.min(bytes.len())..]);
        } else {
            client.inbox.extend_from_slice(bytes);
        }
        self.go_on(client)
    }

    /// True where the next request may be read.
    fn takes_requests(&self, client: &Client) -> bool {
        client.exchange.is_none()
            && client.delivery.is_none()
            && client.upload.is_none()
            && !client.closes
            && client.queued.is_empty()
    }

    pub(super) fn finished(&mut self, client: &mut Client) -> bool {
        client.is_finished = true;
        // Over TCP that is not known: a client that sends no more may wait for its response.
        let is_there = client.peer_close_state.as_ref().is_none_or(CloseState::is_whole);
        is_there && !client.expects_proxy && self.go_on(client)
    }

    /// The kernel has all that was sent.
    pub(super) fn sent(&mut self, client: &mut Client) -> bool {
        client.is_sending = false;
        if !client.queued.is_empty() {
            let queued = std::mem::take(&mut client.queued);
            if !self.send(client, queued) {
                return false;
            }
        }
        self.go_on(client)
    }

    /// Does what there is to do for a client: its body, its response, its next requests. False: it
    /// is to be closed.
    pub(super) fn go_on(&mut self, client: &mut Client) -> bool {
        if client.upload.is_some() && !self.take_upload(client) {
            return false;
        }
        if client.delivery.is_some() && !client.is_sending && !self.pump(client) {
            return false;
        }
        while self.takes_requests(client) && !client.inbox.is_empty() {
            if !message::may_end_head(&client.inbox, client.looked_at)
                && client.inbox.len() < self.core.options.limits.head_bytes_max
            {
                client.looked_at = client.inbox.len();
                break;
            }
            let inbox = std::mem::take(&mut client.inbox);
            client.looked_at = 0;
            let used = self.requests(client, &inbox).min(inbox.len());
            let rest = [&inbox[used..], &client.inbox[..]].concat();
            client.inbox = rest;
            if used == 0 {
                client.looked_at = client.inbox.len();
                break;
            }
            if client.upload.is_some() && !self.take_upload(client) {
                return false;
            }
            if client.delivery.is_some() && !client.is_sending && !self.pump(client) {
                return false;
            }
        }
        self.settle(client)
    }

    /// Ends sending, and waits for the client to end too; false: there is nothing to wait for.
    fn linger(&mut self, client: &mut Client) -> bool {
        if !client.lingers || client.is_finished {
            return false;
        }
        if !client.is_shut {
            client.is_shut = true;
            client.inbox.clear();
            self.drop_upload(client);
            self.wait_in(client, LINGERING);
            client.end_whole();
            if tcp::shutdown_write(&client.socket).is_err() {
                return false;
            }
        }
        if client.is_paused {
            client.is_paused = false;
            return self.reactor.receive(&client.socket, client.token).is_ok();
        }
        true
    }

    /// Sets what a client waits for now, and whether it is read; false: it waits for nothing.
    fn settle(&mut self, client: &mut Client) -> bool {
        let is_done = client.is_done();
        if is_done && (client.closes || client.is_finished) {
            return self.linger(client);
        }
        if is_done {
            let list = if client.inbox.is_empty() { IDLE } else { HEAD };
            // The headers have one time limit in all, however their bytes come.
            if self.clients.list_of(client.id) != Some(list) || list == IDLE {
                self.wait_in(client, list);
            }
        } else if client.is_sending && client.delivery.is_none() && client.exchange.is_none() {
            self.wait_in(client, TAKING);
        }
        let is_full = client.inbox.len() >= self.core.options.limits.head_bytes_max;
        if is_full && !client.is_paused {
            client.is_paused = true;
            self.reactor.pause(&client.socket, client.token);
        } else if !is_full && client.is_paused && !client.is_finished {
            client.is_paused = false;
            return self.reactor.receive(&client.socket, client.token).is_ok();
        }
        true
    }
}
