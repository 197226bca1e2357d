//! Connections to origins: asking, reading, keeping them for the next.
//!
//! ```text
//! connecting -> asking (head, then the request's body) -> head -> body -> idle, in its backend's pool
//! any        -> closed, and what was asked failed, or is asked again
//! ```
//!
//! A connection that was used before may have been closed by the origin meanwhile: a request that may be asked twice is asked again
//! on another. Where none can be had within [`Options::origin_connections_max`](crate::options::Options) a request waits in a
//! queue; where that is full it fails at once.
//!
//! Bodies of a known length are read straight into the memory that they are kept in.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use larder::mem::object::{Failure, Filler, Kind, Object, Plan, Room};
use larder_io::reactor::Interest;
use larder_io::table::Id;
use larder_io::tcp::{self, ConnectOptions};

use super::Driver;
use super::delivery::Ran;
use super::fetch::{Fetch, Next, Purpose, Rendered};
use super::upload::{end_with, fill};
use crate::answer::Trailers;
use crate::cacheability::Stored;
use crate::coalescing::Outcome;
use crate::descriptors::is_shortage;
use crate::key::Key;
use crate::message::forward::push_kept_head;
use crate::message::{self, Chunked, FieldRoom, Framing, Piece};
use crate::options::OriginAddress;
use crate::parts::Parts;
use crate::store::Promise;
use crate::tls_bridge::CloseState;

/// What a connection waits for, by list.
pub const ORIGIN_LISTS: usize = 6;
const CONNECTING: usize = 0;
const HEAD: usize = 1;
const BODY: usize = 2;
const IDLE: usize = 3;
/// For the client for whom it reads.
const HELD_UP: usize = 4;
/// For memory to keep a body in.
const ROOM: usize = 5;

/// Times that one request is asked.
const TRIES_MAX: u8 = 3;
/// Reads of one connection in a turn.
const READS_MAX: usize = 8;
/// The same of what is one client's own: it goes on before more comes, so that little memory is used again and again.
const READS_PRIVATE_MAX: usize = 2;
/// Octets read at once into memory.
const READ_BYTES: usize = 1 << 20;
/// How long an origin that could not be reached is passed over, where there are others, milliseconds.
const SICK_MS: u64 = 2_000;

/// One origin, and connections to it that are not in use.
#[derive(Debug)]
pub struct Backend {
    origin: OriginAddress,
    /// Its place in the options; `None`: it is not asked any more.
    number: Option<usize>,
    idle: VecDeque<Id>,
    open: usize,
}

impl Backend {
    fn new(origin: OriginAddress, number: usize) -> Backend {
        Backend { origin, number: Some(number), idle: VecDeque::new(), open: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Asking,
    Head,
    Body,
    Idle,
}

/// A connection to an origin.
#[derive(Debug)]
pub struct Origin {
    id: Id,
    token: u64,
    socket: OwnedFd,
    backend: usize,
    state: State,
    pub(super) fetch: Option<Box<Fetch>>,
    /// Octets of the request's head that were sent.
    asked_bytes: usize,
    /// Octets that came and were not used yet.
    inbox: Vec<u8>,
    incoming: Option<Box<Incoming>>,
    /// It answered before.
    is_reused: bool,
    has_ended: bool,
    /// Somebody else encrypts it, and says so whether it ended as it should.
    close_state: Option<CloseState>,
}

/// A body that comes.
#[derive(Debug)]
pub struct Incoming {
    filler: Filler,
    remaining: Remaining,
    keeps_alive: bool,
    keep: Option<Keep>,
    trailers: Option<Arc<Trailers>>,
    /// Where it goes on, should it be too long to be kept.
    parts: Option<Parts>,
}

/// What is to be kept when the body is whole.
#[derive(Debug)]
pub struct Keep {
    /// Under this.
    pub key: Key,
    /// What is known of it.
    pub stored: Stored,
    /// Its head.
    pub rendered: Rendered,
    /// Memory for it.
    pub _promise: Option<Promise>,
}

#[derive(Debug)]
enum Remaining {
    Octets(u64),
    Chunks(Box<Chunked>),
    UntilClose,
}

impl Incoming {
    pub(super) fn new(
        filler: Filler,
        framing: Framing,
        keeps_alive: bool,
        keep: Option<Keep>,
        trailers: Option<Arc<Trailers>>,
        parts: Option<Parts>,
    ) -> Incoming {
        let remaining = match framing {
            Framing::None => Remaining::Octets(0),
            Framing::Length(bytes) => Remaining::Octets(bytes),
            Framing::Chunked => Remaining::Chunks(Box::default()),
            Framing::UntilClose => Remaining::UntilClose,
        };
        Incoming { filler, remaining, keeps_alive, keep, trailers, parts }
    }

    /// It was to be kept and is too long: it is given to those who read it, part by part.
    fn is_streamed(&self) -> bool {
        self.keep.is_none() && self.parts.is_some()
    }

    /// Nobody wants what is not kept.
    fn is_unwanted(&self) -> bool {
        match &self.parts {
            Some(parts) => self.keep.is_none() && parts.is_unread(),
            None => self.keep.is_none() && self.filler.is_unwanted(),
        }
    }
}

impl Origin {
    /// The end that was seen is one that the origin meant: over TLS anybody between could cut a body.
    fn ended_whole(&self) -> bool {
        self.close_state.as_ref().is_none_or(CloseState::is_whole)
    }

    /// What is asked on it, where the head of no answer came yet.
    pub(super) fn asks(&self) -> Option<&Fetch> {
        self.fetch.as_deref().filter(|_| self.state != State::Body)
    }

    /// The origin may have seen something of what is asked.
    pub(super) fn has_asked(&self) -> bool {
        self.asked_bytes > 0
    }

    /// Its origin's place.
    pub(super) fn backend(&self) -> usize {
        self.backend
    }

    /// Tells of what came.
    pub(super) fn announce(&mut self) {
        if let Some(incoming) = &mut self.incoming {
            incoming.filler.publish_now();
        }
    }
}

/// Why a connection to an origin was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Undialed {
    /// The origin cannot be reached.
    Unreachable,
    /// This machine has no more open files, or ports: the origin is as good as before.
    Shortage,
}

/// How far reading came.
enum Read {
    /// Nothing more is there.
    Blocked,
    /// It has had its share.
    Share,
    /// No memory, or nobody takes what is there.
    NoRoom,
    /// The body is whole.
    Complete,
    /// It is not, and nothing more comes.
    Broken,
}

/// Who is at the other end of a socket.
pub(super) fn peer_of(socket: &OwnedFd) -> Option<SocketAddr> {
    tcp::peer(socket).ok()
}

impl Driver {
    pub(super) fn origin_waits_ms(&self) -> [u64; ORIGIN_LISTS] {
        let it = &self.options.patience;
        [
            it.connect_ms,
            it.first_byte_ms,
            it.between_bytes_ms,
            it.origin_idle_ms,
            u64::MAX,
            it.memory_ms,
        ]
    }

    fn origin_waits_in(&mut self, origin: &Origin, list: usize) {
        self.origins.wait_in(origin.id, list, self.now.ms);
    }

    /// Connections to one origin that this loop may have.
    pub(super) fn share(&self) -> usize {
        self.options.origin_connections_max.div_ceil(self.options.loops).max(1)
    }

    /// Asks the origins of the options from now on. Connections to those that are still there are used again; to others those are
    /// closed that are not in use, and the rest as soon as they have answered.
    pub(super) fn ask_origins(&mut self) {
        let options = self.options.clone();
        self.backends.iter_mut().for_each(|it| it.number = None);
        let mut places = vec![None; options.origins.len()];
        for (number, origin) in options.origins.iter().enumerate() {
            let is_it = |it: &Backend| it.number.is_none() && it.origin == *origin;
            places[number] = self.backends.iter().position(is_it);
            if let Some(place) = places[number] {
                self.backends[place].number = Some(number);
            }
        }
        for (number, origin) in options.origins.iter().enumerate() {
            if places[number].is_some() {
                continue;
            }
            let backend = Backend::new(origin.clone(), number);
            // Where one was that nobody is connected to.
            let place = self.backends.iter().position(|it| it.number.is_none() && it.open == 0);
            places[number] = Some(match place {
                Some(place) => {
                    self.backends[place] = backend;
                    place
                }
                None => {
                    self.backends.push(backend);
                    self.backends.len() - 1
                }
            });
        }
        self.asked = places.into_iter().flatten().collect();
        // Beside those to origins that are gone, which end in their time.
        self.origins.grow(self.origins.len() + self.share() * options.origins.len().max(1));
        let retired = self.backends.iter_mut().filter(|it| it.number.is_none());
        let unused: Vec<Id> = retired.flat_map(|it| it.idle.drain(..)).collect();
        for id in unused {
            self.with_origin(id, |_, _| false);
        }
        // Who waited for the others may find a connection at once.
        for fetch in std::mem::take(&mut self.queue) {
            self.start(fetch);
        }
    }

    /// Asks an origin, now or as soon as there is a connection.
    pub(super) fn start(&mut self, fetch: Box<Fetch>) {
        if let Some(fetch) = self.try_start(fetch) {
            if self.queue.len() < self.options.queue_max {
                self.queue.push_back(fetch);
            } else {
                self.counts.queue_full += 1;
                self.fail_fetch(&fetch, 503);
            }
        }
    }

    /// Gives the fetch back where no connection is to be had.
    fn try_start(&mut self, mut fetch: Box<Fetch>) -> Option<Box<Fetch>> {
        let count = self.asked.len();
        let share = self.share();
        let now_ms = self.now.ms;
        let first = self.turn;
        self.turn = (self.turn + 1) % count.max(1);
        // Those that are not good come last.
        let mut order: Vec<usize> = (0..count).map(|at| (first + at) % count).collect();
        order.sort_by_key(|&at| !self.health.is_good(at, now_ms));
        let may_reuse = fetch.tries < TRIES_MAX - 1;
        let (mut is_full, mut is_short) = (false, false);
        for number in order {
            let Some(&backend) = self.asked.get(number) else { continue };
            while may_reuse && let Some(id) = self.backends[backend].idle.pop_back() {
                let mut rest = Some(fetch);
                self.with_origin(id, |driver, origin| {
                    let fetch = rest.take().expect("it is called once");
                    driver.ask_again_on(origin, fetch)
                });
                match rest {
                    None => return None,
                    Some(it) => fetch = it,
                }
            }
            if self.backends[backend].open >= share {
                is_full = true;
                continue;
            }
            match self.connect(backend, fetch) {
                Ok(()) => return None,
                Err((it, why)) => {
                    fetch = it;
                    is_short |= why == Undialed::Shortage;
                    // It goes on as soon as one of those that are there has answered.
                    is_full |= why == Undialed::Shortage && self.backends[backend].open > 0;
                }
            }
        }
        if is_full {
            return Some(fetch);
        }
        self.fail_fetch(&fetch, if is_short { 503 } else { 502 });
        None
    }

    fn connect(
        &mut self,
        backend: usize,
        mut fetch: Box<Fetch>,
    ) -> Result<(), (Box<Fetch>, Undialed)> {
        let (socket, close_state) = match self.dial(backend) {
            Ok(dialed) => dialed,
            Err(error) if is_shortage(&error) => {
                self.counts.shortages += 1;
                return Err((fetch, Undialed::Shortage));
            }
            Err(error) => {
                self.sicken(backend, &error);
                return Err((fetch, Undialed::Unreachable));
            }
        };
        let Ok(id) = self.origins.insert(None, CONNECTING, self.now.ms) else {
            return Err((fetch, Undialed::Shortage));
        };
        let token = self.origins.token(id);
        let interest = if close_state.is_some() { Interest::READ } else { Interest::WRITE };
        if self.reactor.watch(&socket, token, interest).is_err() {
            self.origins.remove(id);
            return Err((fetch, Undialed::Shortage));
        }
        self.counts.origin_connections += 1;
        self.backends[backend].open += 1;
        fetch.tries += 1;
        let origin = Origin {
            id,
            token,
            socket,
            backend,
            state: State::Connecting,
            fetch: Some(fetch),
            asked_bytes: 0,
            inbox: Vec::new(),
            incoming: None,
            is_reused: false,
            has_ended: false,
            close_state,
        };
        if let Some(place) = self.origins.get_mut(id) {
            *place = Some(Box::new(origin));
        }
        Ok(())
    }

    /// Begins a connection. One over TLS says so by an octet once it is there.
    fn dial(&self, backend: usize) -> io::Result<(OwnedFd, Option<CloseState>)> {
        let origin = &self.backends[backend].origin;
        if !origin.is_secure {
            let stream = tcp::connect(origin.address, &ConnectOptions::default())?;
            return Ok((stream.into(), None));
        }
        let tls_bridge = self.tls_bridge.as_ref().ok_or(ErrorKind::Unsupported)?;
        let (stream, close_state) = tls_bridge.connect(origin)?;
        Ok((stream.into(), Some(close_state)))
    }

    /// Whether a connection that was begun is there.
    fn connected(origin: &Origin) -> io::Result<()> {
        match &origin.close_state {
            None => tcp::take_error(&origin.socket)?.map_or(Ok(()), Err),
            Some(_) => match tcp::read_into(&origin.socket, &mut [0])? {
                1 => Ok(()),
                _ => Err(ErrorKind::UnexpectedEof.into()),
            },
        }
    }

    fn ask_again_on(&mut self, origin: &mut Origin, mut fetch: Box<Fetch>) -> bool {
        fetch.tries += 1;
        origin.fetch = Some(fetch);
        origin.asked_bytes = 0;
        origin.is_reused = true;
        self.reactor.unwatch(&origin.socket, origin.token);
        self.ask_origin(origin)
    }

    fn sicken(&mut self, backend: usize, why: &io::Error) {
        self.counts.origin_failures += 1;
        if let Some(number) = self.backends[backend].number {
            self.health.pass_over(number, self.now.ms + SICK_MS, why);
        }
    }

    /// A socket is ready, or something else that it waited for has come. False: it is to be closed.
    pub(super) fn origin_ready(&mut self, origin: &mut Origin) -> bool {
        match origin.state {
            State::Connecting => match Driver::connected(origin) {
                Ok(()) => self.ask_origin(origin),
                Err(error) => {
                    self.sicken(origin.backend, &error);
                    false
                }
            },
            State::Asking => self.ask_origin(origin),
            State::Head => self.read_head(origin),
            State::Body => self.read_body(origin),
            // It was closed, or says something that nobody asked.
            State::Idle => false,
        }
    }

    pub(super) fn origin_has_room(&mut self, origin: &mut Origin) -> bool {
        origin.state != State::Body || self.read_body(origin)
    }

    /// Sends what is left of the request.
    fn ask_origin(&mut self, origin: &mut Origin) -> bool {
        origin.state = State::Asking;
        let Some(fetch) = &mut origin.fetch else { return false };
        while origin.asked_bytes < fetch.request.len() {
            match tcp::write(&origin.socket, &fetch.request[origin.asked_bytes..]) {
                Ok(bytes) => origin.asked_bytes += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.origin_waits_in(origin, HEAD);
                    return self
                        .reactor
                        .watch(&origin.socket, origin.token, Interest::WRITE)
                        .is_ok();
                }
                Err(_) => return false,
            }
        }
        let Some(upload) = &mut fetch.upload else {
            origin.state = State::Head;
            self.origin_waits_in(origin, HEAD);
            return self.reactor.watch(&origin.socket, origin.token, Interest::READ).is_ok();
        };
        let mut sent_bytes = 0;
        let lease_bytes_max = self.options.window_bytes;
        let ran = upload.run(&origin.socket, self.number, lease_bytes_max, &mut sent_bytes);
        let object = upload.object().id();
        let interest = match ran {
            Ran::Complete => {
                fetch.upload = None;
                origin.state = State::Head;
                self.origin_waits_in(origin, HEAD);
                return self.read_head(origin);
            }
            Ran::Waits => {
                self.wait_for_more(object, origin.token);
                // An answer may come before the request's end.
                Interest::READ
            }
            Ran::Blocked | Ran::Share => Interest::BOTH,
            // The client left; or the origin has, and may have said why.
            Ran::Failed => return false,
            Ran::Gone => {
                fetch.upload = None;
                origin.state = State::Head;
                return self.read_head(origin);
            }
        };
        if matches!(ran, Ran::Waits) {
            self.origin_waits_in(origin, HELD_UP);
        } else {
            self.origin_waits_in(origin, HEAD);
        }
        if self.reactor.watch(&origin.socket, origin.token, interest).is_err() {
            return false;
        }
        self.read_head(origin)
    }

    /// Reads the head of an answer.
    fn read_head(&mut self, origin: &mut Origin) -> bool {
        for _ in 0..READS_MAX {
            match tcp::read_into(&origin.socket, &mut self.scratch) {
                Ok(0) => return false,
                Ok(bytes) => origin.inbox.extend_from_slice(&self.scratch[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if origin.state == State::Asking {
                        return true;
                    }
                    return self
                        .reactor
                        .watch(&origin.socket, origin.token, Interest::READ)
                        .is_ok();
                }
                Err(_) => return false,
            }
            if let Some(goes_on) = self.look_for_head(origin) {
                return goes_on;
            }
        }
        self.reactor.watch(&origin.socket, origin.token, Interest::READ).is_ok()
    }

    /// Looks for a head in the inbox; `None`: it is not whole.
    fn look_for_head(&mut self, origin: &mut Origin) -> Option<bool> {
        loop {
            let inbox = std::mem::take(&mut origin.inbox);
            let mut room = FieldRoom::new();
            let method =
                origin.fetch.as_ref().map_or("GET", |fetch| fetch.method.as_str()).to_owned();
            let head = match message::response(&inbox, &mut room, &method, &self.options.limits) {
                Ok(Some(head)) => head,
                Ok(None) => {
                    origin.inbox = inbox;
                    return None;
                }
                Err(_) => {
                    self.counts.bad_responses += 1;
                    if let Some(fetch) = origin.fetch.take() {
                        self.fail_fetch(&fetch, 502);
                    }
                    return Some(false);
                }
            };
            let rest = &inbox[head.head_bytes..];
            if head.status < 200 {
                // What is only on the way: 102, 103 are of use to who waits, 100 is ours.
                let fetch = origin.fetch.as_deref_mut().filter(|_| head.status != 100);
                if fetch.is_some_and(Fetch::takes_interim) {
                    let mut interim = Vec::new();
                    push_kept_head(&mut interim, head.status, head.fields, |_| false);
                    interim.extend_from_slice(b"\r\n");
                    self.pass_interim(origin, &interim);
                }
                origin.inbox = rest.to_vec();
                continue;
            }
            let is_unfinished = origin.fetch.as_ref().is_some_and(|fetch| fetch.upload.is_some());
            let keeps_alive = head.keeps_alive && !is_unfinished;
            let (next, used) = self.answered(origin, &head, rest);
            origin.inbox = rest[used..].to_vec();
            return Some(match next {
                Next::Body(mut incoming) => {
                    incoming.keeps_alive = keeps_alive;
                    self.begin_body(origin, incoming)
                }
                Next::Done => {
                    origin.fetch = None;
                    let has_body = matches!(head.framing, Framing::Chunked | Framing::UntilClose);
                    self.rest_origin(origin, keeps_alive && !has_body)
                }
                Next::Again => {
                    if let Some(fetch) = origin.fetch.take() {
                        self.start(fetch);
                    }
                    false
                }
                Next::Unwanted => {
                    origin.fetch = None;
                    false
                }
            });
        }
    }

    /// Tells the client that asked, or asked first.
    fn pass_interim(&mut self, origin: &Origin, head: &[u8]) {
        let client = origin.fetch.as_ref().and_then(|fetch| match &fetch.purpose {
            Purpose::Private { client, .. } => Some(*client),
            Purpose::Shared { leader, .. } => *leader,
        });
        if let Some(client) = client {
            self.outcomes.push_back((client, Outcome::Interim(head.into())));
        }
    }

    fn begin_body(&mut self, origin: &mut Origin, incoming: Box<Incoming>) -> bool {
        origin.state = State::Body;
        self.rooms.insert(incoming.filler.object().id(), origin.token);
        origin.incoming = Some(incoming);
        self.origin_waits_in(origin, BODY);
        self.read_body(origin)
    }

    /// Reads what there is of a body.
    fn read_body(&mut self, origin: &mut Origin) -> bool {
        let Some(mut incoming) = origin.incoming.take() else { return false };
        if incoming.is_unwanted() {
            // The one who wanted it is gone.
            self.counts.fetches_abandoned += 1;
            self.rooms.remove(&incoming.filler.object().id());
            return false;
        }
        if self.is_abandoned(origin, &incoming) {
            self.counts.fetches_abandoned += 1;
            self.rooms.remove(&incoming.filler.object().id());
            return false;
        }
        let is_full =
            incoming.is_streamed() && incoming.filler.written() >= self.options.window_bytes;
        let read = match is_full && !self.begin_part(origin, &mut incoming) {
            true => Read::NoRoom,
            false => self.fill_body(origin, &mut incoming),
        };
        incoming.filler.publish();
        let is_too_long = incoming.filler.written() > self.kept_bytes_max();
        if let (Some(keep), Some(fetch)) = (incoming.keep.take_if(|_| is_too_long), &origin.fetch) {
            self.note_too_long(fetch, &keep.key);
        }
        match read {
            Read::Complete => return self.end_body(origin, incoming),
            Read::Broken => {
                self.counts.bodies_broken += 1;
                self.rooms.remove(&incoming.filler.object().id());
                incoming.filler.fail(Failure::Origin);
                return false;
            }
            Read::NoRoom => {
                incoming.filler.publish_now();
                self.make_room();
                let list = if incoming.keep.is_some() { ROOM } else { HELD_UP };
                if self.origins.list_of(origin.id) != Some(list) {
                    self.origin_waits_in(origin, list);
                }
                origin.incoming = Some(incoming);
                return true;
            }
            Read::Blocked | Read::Share => {}
        }
        origin.incoming = Some(incoming);
        if !self.unannounced.iter().any(|(id, _)| *id == origin.id) {
            self.unannounced.push((origin.id, self.now.us));
        }
        self.origin_waits_in(origin, BODY);
        self.reactor.watch(&origin.socket, origin.token, Interest::READ).is_ok()
    }

    /// Goes on in another part; false: those before are still read, and this loop is told when one is not.
    fn begin_part(&mut self, origin: &Origin, incoming: &mut Incoming) -> bool {
        let Some(parts) = &mut incoming.parts else { return false };
        if !parts.may_go_on() {
            return false;
        }
        let plan = Plan { loop_number: self.number, bytes: None, kind: Kind::Stored };
        let filler = self.store.objects.create(plan);
        let object = filler.object().clone();
        self.rooms.insert(object.id(), origin.token);
        parts.go_on(object);
        let before = std::mem::replace(&mut incoming.filler, filler);
        self.rooms.remove(&before.object().id());
        before.seal();
        true
    }

    /// True where nobody reads what may be kept any more, nobody will, and too much of it is left to finish it all the same.
    fn is_abandoned(&mut self, origin: &Origin, incoming: &Incoming) -> bool {
        let left_bytes = match &incoming.remaining {
            Remaining::Octets(left) => Some(*left),
            Remaining::Chunks(_) | Remaining::UntilClose => None,
        };
        let finishes = incoming.keep.is_none() || self.options.abandoned.finishes(left_bytes);
        let Some(fetch) = origin.fetch.as_ref().filter(|_| !finishes) else { return false };
        let is_unread = || {
            let handles = match &fetch.purpose {
                Purpose::Shared { leader: None, .. } => None,
                Purpose::Shared { flight, .. } => flight.body_handles(),
                Purpose::Private { .. } => Some(0),
            };
            // One is the filler's. Who was given the answer and does not read yet has one too.
            let handles_now = Arc::strong_count(incoming.filler.object());
            handles.is_some_and(|its| handles_now == its + 1)
        };
        if !is_unread() {
            return false;
        }
        // Who comes now asks anew; who came before that has a handle.
        self.end_flight(fetch);
        is_unread()
    }

    fn fill_body(&mut self, origin: &mut Origin, incoming: &mut Incoming) -> Read {
        let reads_max = if incoming.keep.is_some() { READS_MAX } else { READS_PRIVATE_MAX };
        let Incoming { filler, remaining, .. } = incoming;
        // What the last read brought is used too: nothing may come after it by which the socket would be ready again.
        for reads in 0..=reads_max {
            if !origin.inbox.is_empty() {
                let inbox = std::mem::take(&mut origin.inbox);
                let (used, read) = remaining.take(&inbox, filler);
                // Its memory goes when all is used: what is left of a first read would stay with each connection.
                if used < inbox.len() {
                    origin.inbox = inbox;
                    origin.inbox.drain(..used);
                }
                if let Some(read) = read {
                    return read;
                }
            }
            if origin.has_ended {
                return match remaining {
                    Remaining::UntilClose if origin.ended_whole() => Read::Complete,
                    _ => Read::Broken,
                };
            }
            if matches!(remaining, Remaining::Octets(0)) {
                return Read::Complete;
            }
            if reads == reads_max {
                break;
            }
            let result = match remaining {
                Remaining::Octets(left) => {
                    let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(READ_BYTES);
                    match filler.room(wanted) {
                        Room::Memory(memory) => {
                            let wanted = memory.len().min(wanted);
                            let result = tcp::read_into(&origin.socket, &mut memory[..wanted]);
                            if let Ok(bytes) = result {
                                filler.wrote(bytes);
                                *left -= bytes as u64;
                            }
                            result
                        }
                        Room::Later => return Read::NoRoom,
                    }
                }
                _ => {
                    let result = tcp::read_into(&origin.socket, &mut self.scratch);
                    if let Ok(bytes) = result {
                        origin.inbox.extend_from_slice(&self.scratch[..bytes]);
                    }
                    result
                }
            };
            match result {
                Ok(0) => origin.has_ended = true,
                Ok(bytes) => self.counts.received_bytes += bytes as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Read::Blocked,
                Err(_) => return Read::Broken,
            }
        }
        Read::Share
    }

    /// A body is whole.
    fn end_body(&mut self, origin: &mut Origin, incoming: Box<Incoming>) -> bool {
        let Incoming { filler, keep, keeps_alive, trailers, remaining, .. } = *incoming;
        let object: Arc<Object> = filler.object().clone();
        self.rooms.remove(&object.id());
        // Before the seal, so that who sees the body's end sees what comes after it.
        if let (Some(trailers), Remaining::Chunks(chunked)) = (trailers, &remaining) {
            end_with(&trailers, chunked);
        }
        filler.seal();
        if let Some(fetch) = origin.fetch.take() {
            if let Some(keep) = keep {
                self.keep_whole(&fetch, keep, &object);
            }
            self.end_flight(&fetch);
        }
        self.unannounced.retain(|(id, _)| *id != origin.id);
        self.rest_origin(origin, keeps_alive && !origin.has_ended)
    }

    /// Gives up what was kept since somebody began to wait for memory.
    pub(super) fn make_room_for_waiters(&mut self) {
        if [ROOM, HELD_UP].iter().any(|&list| self.origins.oldest(list).is_some()) {
            self.make_room();
        }
    }

    /// Keeps a connection for the next request, or asks one that waits.
    fn rest_origin(&mut self, origin: &mut Origin, keeps_alive: bool) -> bool {
        let is_asked = self.backends[origin.backend].number.is_some();
        if !keeps_alive || !is_asked || !origin.inbox.is_empty() || self.is_draining {
            return false;
        }
        if let Some(fetch) = self.queue.pop_front() {
            return self.ask_again_on(origin, fetch);
        }
        origin.state = State::Idle;
        self.backends[origin.backend].idle.push_back(origin.id);
        self.origin_waits_in(origin, IDLE);
        self.reactor.watch(&origin.socket, origin.token, Interest::READ).is_ok()
    }

    pub(super) fn origin_overdue(&mut self, origin: &mut Origin, list: usize) -> bool {
        if list != IDLE && list != ROOM {
            self.counts.origin_timeouts += 1;
        }
        if list == ROOM {
            // Bodies that are read slowly, or wait like this one, hold what there is. One makes way for the others, and is seen to
            // fail; those that waited as long wait again.
            if self.now.ms < self.gave_way_ms + self.options.patience.memory_ms {
                self.origin_waits_in(origin, ROOM);
                return true;
            }
            self.gave_way_ms = self.now.ms;
            self.counts.no_memory += 1;
        } else if list == CONNECTING {
            self.sicken(origin.backend, &ErrorKind::TimedOut.into());
        } else if let Some(fetch) = origin.fetch.take_if(|_| list == HEAD) {
            self.fail_fetch(&fetch, 504);
        }
        false
    }

    pub(super) fn close_origin(&mut self, id: Id, origin: Origin) {
        self.origins.remove(id);
        let Origin { socket, token, backend, fetch, incoming, state, is_reused, inbox, .. } =
            origin;
        self.reactor.close(socket, token);
        let pool = &mut self.backends[backend];
        pool.open -= 1;
        pool.idle.retain(|it| *it != id);
        self.unannounced.retain(|(it, _)| *it != id);
        let had_body = incoming.is_some() || state == State::Body;
        if let Some(incoming) = incoming {
            self.rooms.remove(&incoming.filler.object().id());
        }
        if let Some(fetch) = fetch {
            let has_not_begun = state == State::Connecting && fetch.tries < TRIES_MAX;
            let may_be_stale = is_reused && inbox.is_empty() && fetch.may_be_asked_again();
            if had_body {
                self.end_flight(&fetch);
            } else if has_not_begun || (may_be_stale && fetch.tries < TRIES_MAX) {
                self.start(fetch);
            } else {
                self.fail_fetch(&fetch, 502);
            }
        }
        if let Some(fetch) = self.queue.pop_front() {
            self.start(fetch);
        }
    }
}

impl Remaining {
    /// Moves octets of the body into its object: how many octets that were, and how it stands unless more is to be read.
    fn take(&mut self, octets: &[u8], filler: &mut Filler) -> (usize, Option<Read>) {
        match self {
            Remaining::Octets(left) => {
                let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(octets.len());
                let moved = fill(filler, &octets[..wanted]);
                *left -= moved as u64;
                let read = match *left {
                    0 => Some(Read::Complete),
                    _ if moved < wanted => Some(Read::NoRoom),
                    _ => None,
                };
                (moved, read)
            }
            Remaining::UntilClose => {
                let moved = fill(filler, octets);
                (moved, (moved < octets.len()).then_some(Read::NoRoom))
            }
            Remaining::Chunks(chunked) => {
                let mut used = 0;
                loop {
                    match chunked.next(&octets[used..]) {
                        Ok(Piece::Data { octets: data, consumed }) => {
                            let moved = fill(filler, data);
                            let left = data.len() - moved;
                            chunked.put_back(left);
                            used += consumed - left;
                            if left > 0 {
                                return (used, Some(Read::NoRoom));
                            }
                        }
                        Ok(Piece::More { consumed }) => return (used + consumed, None),
                        Ok(Piece::End { consumed }) => {
                            return (used + consumed, Some(Read::Complete));
                        }
                        Err(_) => return (octets.len(), Some(Read::Broken)),
                    }
                }
            }
        }
    }
}
