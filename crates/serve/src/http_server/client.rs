//! One client: its request, and how much of the response it was sent.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use larder_io::epoll::{Interest, Watched};
use larder_io::tcp as transfer;

use super::request::{self, FIELDS_MAX, Read, Wishes};
use super::response::{self, Framing, Piece, Sending};
use super::{Limits, Mode, Respond, TURN_BYTES};

/// Bytes read at once.
const READ_BYTES: usize = 4 << 10;

/// Reads in a turn of bytes that are dropped.
const DROPS_MAX: usize = 16;

/// The next step for the client.
pub enum Step {
    /// Wait for its socket, or to be woken.
    Wait(Interest),
    /// The client is served, or has disconnected.
    Close,
}

/// See the module.
#[derive(Debug)]
pub struct Client<B> {
    pub socket: Watched<OwnedFd>,
    /// The address of this machine to which it connected; `None`: over a Unix socket.
    local: Option<IpAddr>,
    /// The events that the poller watches for.
    pub interest: Interest,
    /// When it is too slow, except while its body has no bytes.
    deadline_ms: u64,
    /// Bytes received and not parsed (invariant 3).
    pub(super) received: Vec<u8>,
    /// Bytes to send before more of the body, and how many of them are sent.
    unsent: Vec<u8>,
    unsent_at: usize,
    body: Option<Sending<B>>,
    /// Its body has no bytes yet.
    waits: bool,
    /// It has ended its side, and sends no more.
    has_ended: bool,
    /// The connection stays open after this response.
    keeps: bool,
}

/// The result of sending.
enum Sent {
    /// The socket is full.
    Full,
    /// The body has no bytes yet.
    Later,
    /// A turn's worth was sent.
    Turn,
    /// All of the response.
    All,
    /// The body is cut (invariant 2).
    Cut,
}

impl<B> Client<B> {
    /// A client without a request yet.
    pub fn new(socket: OwnedFd, local: Option<IpAddr>, deadline_ms: u64) -> Client<B> {
        Client {
            socket: Watched::new(socket),
            local,
            interest: Interest::READ,
            deadline_ms,
            received: Vec::new(),
            unsent: Vec::new(),
            unsent_at: 0,
            body: None,
            waits: false,
            has_ended: false,
            keeps: true,
        }
    }

    /// Begins the body of a client that requests nothing; false if there is none.
    pub fn greet(&mut self, respond: &mut impl Respond<Body = B>) -> bool {
        let Some((first, body)) = respond.greet() else { return false };
        self.unsent = first;
        self.body = Some(Sending { body, framing: Framing::ToEnd, piece_left: 0 });
        self.keeps = false;
        true
    }

    /// True while the client has all bytes that the body had.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// The body that it is being sent.
    pub fn body(&mut self) -> Option<&mut B> {
        self.body.as_mut().map(|sending| &mut sending.body)
    }

    /// When it is too slow; `None` while the client has all bytes that the body had.
    pub fn deadline_ms(&self) -> Option<u64> {
        (!self.waits).then_some(self.deadline_ms)
    }

    /// Continues as far as possible without waiting.
    pub fn turn(
        &mut self,
        limits: &Limits,
        mode: Mode,
        respond: &mut impl Respond<Body = B>,
        now_ms: u64,
    ) -> io::Result<Step> {
        let renewed_ms = now_ms + limits.stall_ms;
        if std::mem::take(&mut self.waits) {
            self.deadline_ms = renewed_ms;
        }
        let progress_ms = (mode != Mode::OneRequest).then_some(renewed_ms);
        if mode == Mode::KeepAlive && !self.has_ended {
            let is_busy = self.body.is_some() || self.unsent_at < self.unsent.len();
            if self.receive(limits, progress_ms)? {
                // During a response it means that the client has disconnected; behind a request, that
                // this is its last one.
                if is_busy || self.received.is_empty() {
                    return Ok(Step::Close);
                }
                self.has_ended = true;
            } else if self.received.len() >= limits.head_bytes_max && self.body.is_some() {
                return Ok(Step::Close);
            }
        } else if mode == Mode::Push {
            self.drop_received()?;
        } else if mode == Mode::OneRequest && self.keeps {
            self.has_ended = self.receive(limits, progress_ms)?;
        }
        let mut left = TURN_BYTES;
        loop {
            // Only now does the server read the next request (invariant 1).
            if self.body.is_none() && self.unsent_at == self.unsent.len() {
                if !self.keeps {
                    // Bytes that were not read would reset the connection, and the client would
                    // lose the end of its response.
                    let _ = transfer::read_into(&self.socket, &mut [0; READ_BYTES]);
                    return Ok(Step::Close);
                }
                if !self.begin(limits, mode, respond) {
                    let step =
                        if self.has_ended { Step::Close } else { Step::Wait(Interest::READ) };
                    return Ok(step);
                }
                self.deadline_ms = renewed_ms;
            }
            match self.send(respond, progress_ms, &mut left)? {
                Sent::All => {}
                // After a turn the poller reports at once that the socket is writable; other
                // clients have their turns first.
                Sent::Full | Sent::Turn => {
                    let reads = self.reads(limits, mode);
                    let interest = if reads { Interest::BOTH } else { Interest::WRITE };
                    return Ok(Step::Wait(interest));
                }
                Sent::Later => {
                    self.waits = true;
                    let reads = self.reads(limits, mode);
                    return Ok(Step::Wait(if reads { Interest::READ } else { Interest::NONE }));
                }
                Sent::Cut => {
                    let _ = transfer::reset_on_close(&self.socket);
                    return Ok(Step::Close);
                }
            }
        }
    }

    /// Whether the server has room for bytes that the client sends during a response (invariant 4).
    fn reads(&self, limits: &Limits, mode: Mode) -> bool {
        match mode {
            Mode::OneRequest => false,
            Mode::KeepAlive => !self.has_ended && self.received.len() < limits.head_bytes_max,
            Mode::Push => !self.has_ended,
        }
    }

    /// Reads and drops bytes of the client, until there are none or a turn is over: so that its end
    /// is seen.
    fn drop_received(&mut self) -> io::Result<()> {
        let mut bytes = [0; READ_BYTES];
        for _ in 0..DROPS_MAX {
            if self.has_ended {
                break;
            }
            match transfer::read_into(&self.socket, &mut bytes) {
                Ok(count) => self.has_ended = count == 0,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the bytes that have arrived, as far as there is room; true at the end of input.
    fn receive(&mut self, limits: &Limits, progress_ms: Option<u64>) -> io::Result<bool> {
        let mut bytes = [0; READ_BYTES];
        loop {
            let room = limits.head_bytes_max.saturating_sub(self.received.len()).min(READ_BYTES);
            if room == 0 {
                return Ok(false);
            }
            match transfer::read_into(&self.socket, &mut bytes[..room]) {
                Ok(0) => return Ok(true),
                Ok(count) => {
                    // A head has its time from its first byte on: else a byte now and then would keep the
                    // place of another client.
                    if self.received.is_empty() {
                        self.deadline_ms = progress_ms.unwrap_or(self.deadline_ms);
                    }
                    self.received.extend_from_slice(&bytes[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins the response to the next request; false if the request is not complete.
    fn begin(&mut self, limits: &Limits, mode: Mode, respond: &mut impl Respond<Body = B>) -> bool {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let read = request::read(&self.received, &mut fields, limits, mode, self.local);
        let (response, wishes, bytes) = match read {
            Read::More => return false,
            Read::Refused(status) => (respond.refuse(status), Wishes::NONE, 0),
            Read::Request(request, bytes) => (respond.respond(&request), request.wishes, bytes),
        };
        self.received.drain(..bytes);
        self.unsent.clear();
        self.unsent_at = 0;
        (self.body, self.keeps) = response::begin(response, wishes, &mut self.unsent);
        true
    }

    /// Sends as much as possible.
    fn send(
        &mut self,
        respond: &mut impl Respond<Body = B>,
        progress_ms: Option<u64>,
        left: &mut u64,
    ) -> io::Result<Sent> {
        loop {
            while self.unsent_at < self.unsent.len() {
                match transfer::write(&self.socket, &self.unsent[self.unsent_at..]) {
                    Ok(bytes) => {
                        self.unsent_at += bytes;
                        self.deadline_ms = progress_ms.unwrap_or(self.deadline_ms);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Ok(Sent::Full);
                    }
                    Err(error) => return Err(error),
                }
            }
            let Some(sending) = &mut self.body else { return Ok(Sent::All) };
            if *left == 0 {
                return Ok(Sent::Turn);
            }
            self.unsent.clear();
            self.unsent_at = 0;
            if sending.piece_left == 0 {
                let framing = sending.framing;
                let piece = match framing.piece_bytes_max() {
                    0 => Piece::End,
                    bytes_max => respond.next(&mut sending.body, bytes_max),
                };
                match (piece, framing) {
                    (Piece::Bytes(bytes), _) => {
                        sending.piece_left = bytes.get();
                        framing.begin_piece(bytes.get(), &mut self.unsent);
                    }
                    (Piece::Later, _) => return Ok(Sent::Later),
                    // The client expects more bytes.
                    (Piece::End, Framing::Length(1..)) | (Piece::Broken, _) => {
                        return Ok(Sent::Cut);
                    }
                    (Piece::End, _) => {
                        framing.end(&mut self.unsent);
                        self.body = None;
                    }
                }
                continue;
            }
            let socket = self.socket.as_fd();
            match respond.send(&mut sending.body, socket, sending.piece_left) {
                Ok(0) => return Ok(Sent::Cut),
                Ok(bytes) => {
                    let bytes = bytes as u64;
                    *left = left.saturating_sub(bytes);
                    sending.framing.sent(bytes);
                    sending.piece_left = sending.piece_left.saturating_sub(bytes);
                    if sending.piece_left == 0 {
                        sending.framing.end_piece(&mut self.unsent);
                    }
                    self.deadline_ms = progress_ms.unwrap_or(self.deadline_ms);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Full),
                Err(error) => return Err(error),
            }
        }
    }
}
