//! A small HTTP/1 server in the event loop of another module: a listener and its clients. It
//! accepts connections, reads requests, frames responses and drops clients that are too slow. A
//! [`Respond`] decides each response, and makes bodies that are too long for memory.
//!
//! | state of a client | what happens | how it ends |
//! |---|---|---|
//! | request | the server reads its headers | a response begins; end of the connection; too slow |
//! | response | the server sends it | all is sent: next request or closed; too slow; cut |
//! | waiting | the body has no bytes yet | [`HttpServer::wake`]: response; end of the connection |
//!
//! [`Mode::OneRequest`] closes after one response; request and response may each last
//! [`Limits::stall_ms`] in all. [`Mode::KeepAlive`] serves any number of requests, in their order.
//! It closes a client that sends and receives nothing for that time, or that ends its side.
//! [`Mode::Push`] is no HTTP: the body of [`Respond::greet`] begins when a client has connected, without headers.
//!
//! Invariants
//! 1. The server reads the next request after it has sent the response before it completely (test
//!    `requests_are_answered_in_their_order`).
//! 2. A client recognizes a body that is cut: the last chunk follows only the whole body. If a body
//!    ends before its length, or breaks, the connection is reset (test `a_cut_body_looks_cut`).
//! 3. For each client the server holds at most [`Limits::head_bytes_max`] bytes of requests,
//!    whatever the client sends (test `hostile_requests_are_bounded`).
//! 4. A client that receives nothing costs no turn of the event loop: the poller watches only for
//!    what the client's next step needs (test `who_does_not_read_costs_no_turns`).
//! 5. An event is a hint. An event of a closed client, whose slot another client has, only gives
//!    that other client an early turn.
//!
//! There is no TLS. Cost: the headers of each request are copied once and parsed in place; the
//! response's headers are one text. A body is sent by [`Respond::send`] to the socket. A turn sends
//! at most [`TURN_BYTES`], and then other clients have a turn.

mod client;
mod listener;
mod request;
mod response;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use larder_io::epoll::{Event, Interest, Poller};

use self::client::{Client, Step};
pub use self::listener::Listener;
pub use self::request::Request;
pub use self::response::{Body, Piece, Response};

/// How long the server accepts no client after the system had no descriptor for one.
pub const PAUSE_MS: u64 = 1_000;

/// The most bytes of a chunk.
pub const CHUNK_BYTES: u64 = 1 << 20;

/// About how many bytes of a body a client gets in one turn.
pub const TURN_BYTES: u64 = 4 << 20;

/// Limits of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Clients at once, at least 1; further ones are closed.
    pub clients_max: usize,
    /// Bytes of a request's headers.
    pub head_bytes_max: usize,
    /// How long a client may take, in milliseconds: see [`Mode`].
    pub stall_ms: u64,
}

impl Default for Limits {
    /// 8 clients, 8 KiB, 10 s.
    fn default() -> Limits {
        Limits { clients_max: 8, head_bytes_max: 8 << 10, stall_ms: 10_000 }
    }
}

/// How long connections last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One response each. Sending the request may take [`Limits::stall_ms`] in all, and so may
    /// receiving the response. Content of the request is not read.
    OneRequest,
    /// As the client wishes. [`Limits::stall_ms`] begins with the first byte of a request, and again with
    /// each byte of its response. A request with content is refused, because the content would be read
    /// as the next request.
    KeepAlive,
    /// No requests: each client gets the body of [`Respond::greet`] until it ends. The server drops bytes
    /// that the client sends, and continues if the client ends its side: it may still receive.
    Push,
}

/// Decides the responses of a server, and makes their bodies.
pub trait Respond {
    /// A body that is made while it is sent.
    type Body;

    /// The response to a request.
    fn respond(&mut self, request: &Request<'_>) -> Response<Self::Body>;

    /// The response to bytes that are no valid request, with this status: 400, 405 or 431. The
    /// connection is closed afterwards.
    fn refuse(&mut self, status: u16) -> Response<Self::Body>;

    /// The first bytes for a client of [`Mode::Push`], and its body; `None` closes the connection.
    fn greet(&mut self) -> Option<(Vec<u8>, Self::Body)> {
        None
    }

    /// The next piece of a body, at most `bytes_max` bytes, after all earlier ones were sent.
    fn next(&mut self, body: &mut Self::Body, bytes_max: u64) -> Piece;

    /// Sends from the piece that [`Respond::next`] returned, of which `bytes_left` are left. It
    /// does not block, and returns how many bytes the socket accepted. 0: there are no more, and
    /// the connection is reset.
    fn send(
        &mut self,
        body: &mut Self::Body,
        socket: BorrowedFd<'_>,
        bytes_left: u64,
    ) -> io::Result<usize>;

    /// How much longer than [`Limits::stall_ms`] a client of this body may receive nothing, in
    /// milliseconds: some clients wait for other servers first.
    fn patience_ms(&self, _body: &Self::Body) -> u64 {
        0
    }

    /// Counts an event of a client.
    fn count(&mut self, _change: Change) {}
}

/// An event of a client, for counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was accepted.
    Accepted,
    /// It was closed at once, because there were [`Limits::clients_max`].
    Surplus,
    /// It was closed: it was too slow.
    Stalled,
}

/// A listener and its clients, whose bodies are of type `B`.
#[derive(Debug)]
pub struct HttpServer<B> {
    listener: Listener,
    limits: Limits,
    mode: Mode,
    first_token: u64,
    clients: Vec<Option<Client<B>>>,
    /// The server accepts no client before this time.
    paused_until_ms: Option<u64>,
}

impl<B> HttpServer<B> {
    /// Adds `listener` to `poller`. The caller passes events with tokens from `first_token` on to
    /// [`HttpServer::handle`]: one token for the listener, and one for each of the clients at once.
    pub fn open(
        listener: Listener,
        limits: Limits,
        mode: Mode,
        poller: &Poller,
        first_token: u64,
    ) -> io::Result<HttpServer<B>> {
        poller.add(&listener, first_token, Interest::READ)?;
        let limits = Limits { clients_max: limits.clients_max.max(1), ..limits };
        let (clients, paused_until_ms) = (Vec::new(), None);
        Ok(HttpServer { listener, limits, mode, first_token, clients, paused_until_ms })
    }

    /// The listener's address; an error for a Unix socket.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.address()
    }

    /// True while there is only the listener: no client, and no pause.
    pub fn is_idle(&self) -> bool {
        self.clients.is_empty() && self.paused_until_ms.is_none()
    }

    /// Handles an event.
    pub fn handle(
        &mut self,
        event: Event,
        poller: &Poller,
        now_ms: u64,
        respond: &mut impl Respond<Body = B>,
    ) {
        let Some(slot) = event.token.wrapping_sub(self.first_token).checked_sub(1) else {
            return self.accept(poller, now_ms, respond);
        };
        let slot = slot as usize;
        let Some(Some(client)) = self.clients.get(slot) else { return };
        // The poller reports this without a request until the socket is closed: both directions
        // have ended.
        if event.closed && client.interest == Interest::NONE {
            self.close(slot);
        } else {
            self.turn(slot, poller, now_ms, respond);
        }
    }

    /// Gives a turn to each client whose body had no bytes the last time.
    pub fn wake(&mut self, poller: &Poller, now_ms: u64, respond: &mut impl Respond<Body = B>) {
        for slot in 0..self.clients.len() {
            // A turn may have removed empty slots from the end.
            if matches!(self.clients.get(slot), Some(Some(client)) if client.waits()) {
                self.turn(slot, poller, now_ms, respond);
            }
        }
    }

    /// The bodies that are being sent.
    pub fn bodies(&mut self) -> impl Iterator<Item = &mut B> {
        self.clients.iter_mut().flatten().filter_map(Client::body)
    }

    /// Milliseconds until [`HttpServer::expire`] has something to do; `None`: nothing. It visits
    /// each client.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        let due = self.clients.iter().flatten().filter_map(Client::deadline_ms);
        due.chain(self.paused_until_ms).min().map(|first| first.saturating_sub(now_ms))
    }

    /// Drops clients that were too slow, and accepts again after a pause.
    pub fn expire(&mut self, poller: &Poller, now_ms: u64, respond: &mut impl Respond<Body = B>) {
        for place in &mut self.clients {
            let deadline_ms = place.as_mut().and_then(|client| {
                let patience_ms = client.body().map_or(0, |body| respond.patience_ms(body));
                Some(client.deadline_ms()?.saturating_add(patience_ms))
            });
            if deadline_ms.is_some_and(|deadline_ms| now_ms >= deadline_ms) {
                *place = None;
                respond.count(Change::Stalled);
            }
        }
        self.trim();
        if self.paused_until_ms.is_some_and(|until_ms| now_ms >= until_ms) {
            self.paused_until_ms = None;
            // This fails only for a descriptor that is not watched; this one is.
            let _ = poller.modify(&self.listener, self.first_token, Interest::READ);
        }
    }

    /// Bytes of requests held for each client.
    #[cfg(test)]
    pub(crate) fn received(&self) -> Vec<usize> {
        self.clients.iter().flatten().map(|client| client.received.len()).collect()
    }

    fn accept(&mut self, poller: &Poller, now_ms: u64, respond: &mut impl Respond<Body = B>) {
        loop {
            let (socket, local) = match self.listener.accept() {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return,
                Err(_) => {
                    // Most likely there is no descriptor. The listener stays readable, and the
                    // poller would report it again and again.
                    self.paused_until_ms = Some(now_ms + PAUSE_MS);
                    let _ = poller.modify(&self.listener, self.first_token, Interest::NONE);
                    return;
                }
            };
            let free = self.clients.iter().position(Option::is_none);
            let slot = free.unwrap_or(self.clients.len());
            if slot >= self.limits.clients_max {
                respond.count(Change::Surplus);
                continue;
            }
            let token = self.first_token + 1 + slot as u64;
            if poller.add(&socket, token, Interest::READ).is_err() {
                continue;
            }
            respond.count(Change::Accepted);
            let mut client = Client::new(socket, local, now_ms + self.limits.stall_ms);
            let is_pushed = self.mode == Mode::Push;
            if is_pushed && !client.greet(respond) {
                continue;
            }
            match self.clients.get_mut(slot) {
                Some(place) => *place = Some(client),
                None => self.clients.push(Some(client)),
            }
            if is_pushed {
                self.turn(slot, poller, now_ms, respond);
            }
        }
    }

    /// Does all for a client that is possible without waiting.
    fn turn(
        &mut self,
        slot: usize,
        poller: &Poller,
        now_ms: u64,
        respond: &mut impl Respond<Body = B>,
    ) {
        let Some(Some(client)) = self.clients.get_mut(slot) else { return };
        let token = self.first_token + 1 + slot as u64;
        let is_kept = match client.turn(&self.limits, self.mode, respond, now_ms) {
            Ok(Step::Wait(interest)) if client.interest == interest => true,
            Ok(Step::Wait(interest)) => {
                client.interest = interest;
                poller.modify(&client.socket, token, interest).is_ok()
            }
            Ok(Step::Close) | Err(_) => false,
        };
        if !is_kept {
            self.close(slot);
        }
    }

    /// Closes a client, and ends watching its socket.
    fn close(&mut self, slot: usize) {
        self.clients[slot] = None;
        self.trim();
    }

    fn trim(&mut self) {
        while self.clients.last().is_some_and(Option::is_none) {
            self.clients.pop();
        }
    }
}

#[cfg(test)]
mod tests;
