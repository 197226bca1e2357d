//! The clients of an event loop, and what each of them waits for.
//!
//! ```text
//! idle -> headers -> answered at once -> idle
//!                 -> waiting (shared fetch, or one of its own) -> delivering -> idle
//! idle, headers, waiting, delivering -> closed
//! ```
//!
//! Bytes that come while a request is being answered are stored up to the longest headers; then the
//! client is not read.
//!
//! Invariants
//! 1. A client is taken out of the table while an event of it is handled, so nothing else reaches
//!    it: outcomes and notices for it are queued, and handled later in the turn.
//! 2. A client waits in one list, and the list states for what: for the next request in `IDLE`, for
//!    the end of its headers in `HEAD`.
//! 3. No client sees an end of a body that fails: its connection is reset.

mod access;
mod admission;
mod requests;
mod upload;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use larder_io::table::{Id, Table};
use larder_io::tcp;
use larder_serve::connection_limit::{ConnectionLimit, Permit};

use self::access::Noted;
use super::CLIENTS;
use super::base::Base;
use super::delivery::Delivery;
use crate::coalescing::Outcome;
use crate::core::{Exchange, Upload};
use crate::handoff::{CloseState, Handoff};
use crate::message::{self, Scheme};

/// What a client waits for, by list.
const LISTS: usize = 6;
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
pub struct Arrival {
    pub(super) socket: OwnedFd,
    pub(super) peer: Option<SocketAddr>,
    pub(super) close_state: Option<CloseState>,
    pub(super) peer_close_state: Option<CloseState>,
    pub(super) speaks_http2: bool,
}

impl Arrival {
    /// Accepted by a listener.
    pub fn new(socket: OwnedFd, peer: Option<SocketAddr>) -> Arrival {
        let (close_state, peer_close_state, speaks_http2) = (None, None, false);
        Arrival { socket, peer, close_state, peer_close_state, speaks_http2 }
    }
}

impl From<Handoff> for Arrival {
    fn from(handoff: Handoff) -> Arrival {
        let Handoff { socket, peer, close_state, peer_close_state, speaks_http2 } = handoff;
        let (peer, close_state, peer_close_state) =
            (Some(peer), Some(close_state), Some(peer_close_state));
        Arrival { socket: socket.into(), peer, close_state, peer_close_state, speaks_http2 }
    }
}

/// What happened to a client.
#[derive(Debug)]
pub enum ClientEvent<'a> {
    /// Bytes of it came.
    Received(&'a [u8]),
    /// It sends no more.
    Finished,
    /// The kernel has all that was sent.
    Sent,
    /// What it waited for has come: its socket is ready, more of a body is there, or memory.
    Ready,
    /// Its connection failed.
    Failed,
    /// Its request has an outcome.
    Outcome(Outcome),
}

/// The clients of an event loop.
#[derive(Debug)]
pub struct Clients {
    table: Table<Option<Box<Client>>, LISTS>,
    limit: Arc<ConnectionLimit>,
}

/// A connection of a client.
#[derive(Debug)]
struct Client {
    id: Id,
    token: u64,
    socket: OwnedFd,
    peer: Option<SocketAddr>,
    /// It came over TLS: the TLS bridge learns from this how the responses ended.
    close_state: Option<CloseState>,
    /// The TLS bridge states here how the requests ended.
    peer_close_state: Option<CloseState>,
    /// It carries requests of HTTP/2, one after the other; for the log.
    speaks_http2: bool,
    /// Bytes that came and were not read yet.
    inbox: Vec<u8>,
    /// This many of them are known not to end the headers.
    looked_at: usize,
    is_paused: bool,
    /// It sends no more.
    is_finished: bool,
    /// A response was aborted.
    is_broken: bool,
    /// It is closed when what is being sent has been sent.
    closes: bool,
    /// It may still send, and is to receive the response all the same.
    lingers: bool,
    /// larder sends no more; bytes that come are discarded.
    is_shut: bool,
    /// The reactor has bytes to send.
    is_sending: bool,
    /// Bytes to send after those.
    queued: Vec<u8>,
    exchange: Option<Box<Exchange>>,
    delivery: Option<Box<Delivery>>,
    upload: Option<Box<Upload>>,
    /// What the log will state about its exchange.
    noted: Option<Box<Noted>>,
    /// Its exchange waits, and is neither logged nor noted for the page.
    is_unnoted: bool,
    /// A proxy has not stated its address yet.
    expects_proxy: bool,
    /// Its place among the connections of its address, where they are limited.
    permit: Option<Permit>,
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
    fn peer(&self) -> Option<SocketAddr> {
        self.peer.or_else(|| tcp::peer(&self.socket).ok())
    }

    /// The scheme of its requests.
    fn scheme(&self) -> Scheme {
        if self.close_state.is_some() { Scheme::Https } else { Scheme::Http }
    }

    /// True where the next request may be read.
    fn takes_requests(&self) -> bool {
        self.exchange.is_none()
            && self.delivery.is_none()
            && self.upload.is_none()
            && !self.closes
            && self.queued.is_empty()
    }

    /// Lets the client see a failure: its connection is reset, not ended.
    fn reset(&mut self) {
        self.is_broken = true;
        // If it cannot be reset, it is closed all the same, before the length that was stated.
        let _ = tcp::reset_on_close(&self.socket);
    }

    /// All responses were sent; unless one was aborted, which the TLS bridge learns from the close
    /// state.
    fn end_whole(&self) {
        if let Some(close_state) = self.close_state.as_ref().filter(|_| !self.is_broken) {
            close_state.set_whole();
        }
    }
}

impl Clients {
    pub fn new(clients_max: usize, limit: Arc<ConnectionLimit>) -> Clients {
        Clients { table: Table::new(CLIENTS, clients_max), limit }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True for the token of a client, also of one that is gone.
    pub fn owns(&self, token: u64) -> bool {
        self.table.owns(token)
    }

    /// True while this client is connected.
    pub fn has(&self, token: u64) -> bool {
        self.table.id_of(token).is_some()
    }

    pub fn handle(&mut self, base: &mut Base, token: u64, event: ClientEvent<'_>) {
        let Some(id) = self.table.id_of(token) else { return };
        self.with(base, id, |clients, base, client| match event {
            ClientEvent::Received(bytes) => clients.receive(base, client, bytes),
            ClientEvent::Finished => clients.finished(base, client),
            ClientEvent::Sent => clients.sent(base, client),
            ClientEvent::Ready => clients.go_on(base, client),
            ClientEvent::Failed => false,
            ClientEvent::Outcome(outcome) => clients.deliver(base, client, outcome),
        });
    }

    /// Handles an event of a client (invariant 1); false from `act` closes it.
    fn with(
        &mut self,
        base: &mut Base,
        id: Id,
        act: impl FnOnce(&mut Clients, &mut Base, &mut Client) -> bool,
    ) {
        let Some(mut client) = self.table.get_mut(id).and_then(Option::take) else { return };
        if act(self, base, &mut client) {
            if let Some(place) = self.table.get_mut(id) {
                *place = Some(client);
            }
        } else {
            self.close(base, id, *client);
        }
    }

    /// True where the event loop had room for it.
    pub fn accept(&mut self, base: &mut Base, arrival: Arrival) -> bool {
        let Arrival { socket, peer, close_state, peer_close_state, speaks_http2 } = arrival;
        base.core.counts.connections += 1;
        // The TLS bridge has stated its address.
        let expects_proxy = base.core.options.expects_proxy && close_state.is_none();
        // While the server drains, a connection over TLS comes with a request that has to be read
        // first.
        let has_request = base.core.is_draining && close_state.is_some();
        let list = if expects_proxy || has_request { HEAD } else { IDLE };
        let Ok(id) = self.table.insert(None, list, base.now.ms) else {
            base.core.counts.refused_full += 1;
            return false;
        };
        let token = self.table.token(id);
        if base.reactor.receive(&socket, token).is_err() {
            self.table.remove(id);
            base.core.counts.accept_failures += 1;
            return false;
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
            is_unnoted: false,
            expects_proxy,
            permit: None,
        };
        // Logs have the address also of a client that is soon gone.
        if base.access_log.is_some() || base.notes.is_some() {
            client.known_peer();
        }
        // Connections over TLS were counted before, and a client of HTTP/2 has one for each of its
        // requests.
        if client.close_state.is_none() && !expects_proxy && !self.admit(base, &mut client) {
            self.close(base, id, client);
            return false;
        }
        if let Some(place) = self.table.get_mut(id) {
            *place = Some(Box::new(client));
        }
        true
    }

    /// How long clients may wait, by list.
    fn waits_ms(base: &Base) -> [u64; LISTS] {
        let patience = &base.core.options.patience;
        let idle_ms = match base.core.is_draining {
            true => patience.idle_ms.min(patience.drain_idle_ms),
            false => patience.idle_ms,
        };
        [idle_ms, patience.head_ms, u64::MAX, patience.client_ms, patience.client_ms, LINGER_MS]
    }

    /// How long until a wait of a client times out.
    pub fn wait_ms(&self, base: &Base) -> Option<u64> {
        self.table.wait_ms(Clients::waits_ms(base), base.now.ms)
    }

    /// Ends waits that have timed out.
    pub fn look_at_clock(&mut self, base: &mut Base) {
        while let Some((id, list)) = self.table.overdue(Clients::waits_ms(base), base.now.ms) {
            self.with(base, id, |clients, base, client| clients.overdue(base, client, list));
        }
    }

    fn wait_in(&mut self, base: &Base, client: &Client, list: usize) {
        self.table.wait_in(client.id, list, base.now.ms);
    }

    /// Waits for an outcome; `sends`: and for more of the client's body.
    fn waits_for_origin(&mut self, base: &Base, client: &Client, sends: bool) {
        // A client that receives a response already has its time for that.
        if client.delivery.is_none() {
            self.wait_in(base, client, if sends { SENDING_BODY } else { WAITING });
        }
    }

    /// A wait of a client has timed out.
    fn overdue(&mut self, base: &mut Base, client: &mut Client, list: usize) -> bool {
        match list {
            LINGERING => {}
            IDLE => base.core.counts.closed_idle += 1,
            HEAD if client.expects_proxy => base.core.counts.closed_slow += 1,
            HEAD if !client.is_sending => {
                base.core.counts.closed_slow += 1;
                let begun = std::mem::take(&mut client.inbox);
                let is_open = self.refuse(base, client, 408, "the request did not come in time");
                client.note_refused(base, &begun, "timeout");
                return is_open;
            }
            _ => {
                base.core.counts.closed_slow += 1;
                client.reset();
            }
        }
        false
    }

    /// The server drains. A client without a request may be sending one: it has a moment for it,
    /// and is answered with `Connection: close`.
    pub fn drain(&mut self, base: &mut Base) {
        let ids: Vec<Id> = self.table.ids().collect();
        for id in ids {
            self.with(base, id, |clients, base, client| {
                if client.is_done() && client.inbox.is_empty() {
                    clients.wait_in(base, client, IDLE);
                }
                true
            });
        }
    }

    fn close(&mut self, base: &mut Base, id: Id, mut client: Client) {
        client.note_closed(base);
        client.permit = None;
        self.table.remove(id);
        client.drop_upload(base);
        if client.is_done() {
            client.end_whole();
        }
        let Client { socket, token, exchange, delivery, .. } = client;
        if let Some(exchange) = exchange {
            base.outbox.leave(exchange.flight, token);
        }
        // Dropping its reader notifies the filler.
        drop(delivery);
        base.reactor.close(socket, token);
    }

    /// Bytes of a client came.
    fn receive(&mut self, base: &mut Base, client: &mut Client, bytes: &[u8]) -> bool {
        if client.expects_proxy {
            return self.receive_proxy(base, client, bytes);
        }
        if client.is_shut {
            return true;
        }
        let is_ready = client.inbox.is_empty() && client.takes_requests();
        if is_ready {
            let used = self.requests(base, client, bytes);
            client.inbox.extend_from_slice(&bytes[used.min(bytes.len())..]);
        } else {
            client.inbox.extend_from_slice(bytes);
        }
        self.go_on(base, client)
    }

    fn finished(&mut self, base: &mut Base, client: &mut Client) -> bool {
        client.is_finished = true;
        // Over TCP that is not known: a client that sends no more may wait for its response.
        let is_there = client.peer_close_state.as_ref().is_none_or(CloseState::is_whole);
        is_there && !client.expects_proxy && self.go_on(base, client)
    }

    /// The kernel has all that was sent.
    fn sent(&mut self, base: &mut Base, client: &mut Client) -> bool {
        client.is_sending = false;
        if !client.queued.is_empty() {
            let queued = std::mem::take(&mut client.queued);
            if !client.send(base, queued) {
                return false;
            }
        }
        self.go_on(base, client)
    }

    /// Does what there is to do for a client: its body, its response, its next requests. False: it
    /// is to be closed.
    fn go_on(&mut self, base: &mut Base, client: &mut Client) -> bool {
        if client.upload.is_some() && !self.take_upload(base, client) {
            return false;
        }
        if client.delivery.is_some() && !client.is_sending && !self.pump(base, client) {
            return false;
        }
        while client.takes_requests() && !client.inbox.is_empty() {
            if !message::may_end_head(&client.inbox, client.looked_at)
                && client.inbox.len() < base.core.options.limits.head_bytes_max
            {
                client.looked_at = client.inbox.len();
                break;
            }
            let inbox = std::mem::take(&mut client.inbox);
            client.looked_at = 0;
            let used = self.requests(base, client, &inbox).min(inbox.len());
            let rest = [&inbox[used..], &client.inbox[..]].concat();
            client.inbox = rest;
            if used == 0 {
                client.looked_at = client.inbox.len();
                break;
            }
            if client.upload.is_some() && !self.take_upload(base, client) {
                return false;
            }
            if client.delivery.is_some() && !client.is_sending && !self.pump(base, client) {
                return false;
            }
        }
        self.settle(base, client)
    }

    /// Ends sending, and waits for the client to end too; false: there is nothing to wait for.
    fn linger(&mut self, base: &mut Base, client: &mut Client) -> bool {
        if !client.lingers || client.is_finished {
            return false;
        }
        if !client.is_shut {
            client.is_shut = true;
            client.inbox.clear();
            client.drop_upload(base);
            self.wait_in(base, client, LINGERING);
            client.end_whole();
            if tcp::shutdown_write(&client.socket).is_err() {
                return false;
            }
        }
        if client.is_paused {
            client.is_paused = false;
            return base.reactor.receive(&client.socket, client.token).is_ok();
        }
        true
    }

    /// Sets what a client waits for now, and whether it is read; false: it waits for nothing.
    fn settle(&mut self, base: &mut Base, client: &mut Client) -> bool {
        let is_done = client.is_done();
        if is_done && (client.closes || client.is_finished) {
            return self.linger(base, client);
        }
        if is_done {
            let list = if client.inbox.is_empty() { IDLE } else { HEAD };
            // The headers have one time limit in all, however their bytes come (invariant 2).
            if self.table.list_of(client.id) != Some(list) || list == IDLE {
                self.wait_in(base, client, list);
            }
        } else if client.is_sending && client.delivery.is_none() && client.exchange.is_none() {
            self.wait_in(base, client, TAKING);
        }
        let is_full = client.inbox.len() >= base.core.options.limits.head_bytes_max;
        if is_full && !client.is_paused {
            client.is_paused = true;
            base.reactor.pause(&client.socket, client.token);
        } else if !is_full && client.is_paused && !client.is_finished {
            client.is_paused = false;
            return base.reactor.receive(&client.socket, client.token).is_ok();
        }
        true
    }
}
