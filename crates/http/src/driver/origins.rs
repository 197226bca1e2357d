//! Connections to origins: requests, responses, connections that wait for reuse.
//!
//! ```text
//! connecting -> asking (headers, then the request's body) -> headers -> body -> idle, in its backend's pool
//! any        -> closed, and the fetch failed, or is sent again
//! ```
//!
//! The origin may have closed a connection that was used before: a request that may be sent twice
//! is sent again on another. A request that gets no connection within
//! [`Options::origin_connections_max`](crate::options::Options) waits in a queue; if that is full,
//! it fails at once.
//!
//! A body of a known length is read straight into the memory in which it is stored.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use larder::mem::object::Room;
use larder_io::reactor::Interest;
use larder_io::table::Id;
use larder_io::tcp::{self, ConnectOptions};

use super::Driver;
use super::delivery::{Delivery, Ran};
use crate::coalescing::Outcome;
use crate::core::{Fetch, Incoming, Next, Reading, Remaining, Taken};
use crate::descriptors::is_shortage;
use crate::message::forward::push_kept_head;
use crate::message::{self, FieldRoom, Framing};
use crate::options::OriginAddress;
use crate::tls_bridge::CloseState;

/// What a connection waits for, by list.
pub const ORIGIN_LISTS: usize = 6;
const CONNECTING: usize = 0;
const HEAD: usize = 1;
const BODY: usize = 2;
const IDLE: usize = 3;
/// For the client that receives the body.
const HELD_UP: usize = 4;
/// For memory to store a body.
const ROOM: usize = 5;

/// Connections on which one request is sent.
const TRIES_MAX: u8 = 3;
/// Reads of one connection in a turn.
const READS_MAX: usize = 8;
/// The same for a body of one client: it goes on before more comes, so that little memory is used
/// again and again.
const READS_PRIVATE_MAX: usize = 2;
/// Bytes read at once into memory.
const READ_BYTES: usize = 1 << 20;
/// How long an origin that could not be reached is passed over, where there are others,
/// milliseconds.
const SICK_MS: u64 = 2_000;

/// One origin, and the connections to it that are not in use.
#[derive(Debug)]
pub struct Backend {
    origin: OriginAddress,
    /// Its place in the options; `None`: it is not in force any more.
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
    /// The body of the request, on its way.
    upload: Option<Delivery>,
    /// Bytes of the request's headers that were sent.
    asked_bytes: usize,
    /// Bytes that came and were not used yet.
    inbox: Vec<u8>,
    incoming: Option<Box<Incoming>>,
    /// It has carried a response before.
    is_reused: bool,
    has_ended: bool,
    /// It is over TLS: the TLS bridge states here how it ended.
    close_state: Option<CloseState>,
}

impl Origin {
    /// The origin meant the end that was seen: over TLS anybody between could cut a body.
    fn ended_whole(&self) -> bool {
        self.close_state.as_ref().is_none_or(CloseState::is_whole)
    }

    /// Its fetch, where the headers of the response have not come yet.
    pub(super) fn asks(&self) -> Option<&Fetch> {
        self.fetch.as_deref().filter(|_| self.state != State::Body)
    }

    /// The origin may have received some of the request.
    pub(super) fn has_asked(&self) -> bool {
        self.asked_bytes > 0
    }

    /// The place of its origin.
    pub(super) fn backend(&self) -> usize {
        self.backend
    }

    /// Notifies readers of bytes that came.
    pub(super) fn announce(&mut self) {
        if let Some(incoming) = &mut self.incoming {
            incoming.filler.publish_now();
        }
    }
}

/// Why no connection to an origin was begun.
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
    /// It used up its share of the turn.
    Share,
    /// There is no memory, or no client receives what is there.
    NoRoom,
    /// The body is complete.
    Complete,
    /// The body is not complete, and nothing more comes.
    Broken,
}

impl Driver {
    pub(super) fn origin_waits_ms(&self) -> [u64; ORIGIN_LISTS] {
        let it = &self.core.options.patience;
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

    /// Connections to one origin that this event loop may have.
    pub(super) fn share(&self) -> usize {
        self.core.options.origin_connections_max.div_ceil(self.core.options.loops).max(1)
    }

    /// Puts the origins of the options in force. Connections to those that stay are used again. Of
    /// the others, connections without a request are closed, and the rest as soon as they have
    /// responded.
    pub(super) fn ask_origins(&mut self) {
        let options = self.core.options.clone();
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
            // The place of one that has no connections any more.
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
        // Connections to former origins end in their time.
        self.origins.grow(self.origins.len() + self.share() * options.origins.len().max(1));
        let retired = self.backends.iter_mut().filter(|it| it.number.is_none());
        let unused: Vec<Id> = retired.flat_map(|it| it.idle.drain(..)).collect();
        for id in unused {
            self.with_origin(id, |_, _| false);
        }
        // A fetch that waited for the former origins may find a connection at once.
        for fetch in std::mem::take(&mut self.queue) {
            self.start(fetch);
        }
    }

    /// Sends a request to an origin, now or as soon as there is a connection.
    pub(super) fn start(&mut self, fetch: Box<Fetch>) {
        if let Some(fetch) = self.try_start(fetch) {
            if self.queue.len() < self.core.options.queue_max {
                self.queue.push_back(fetch);
            } else {
                self.core.counts.queue_full += 1;
                self.fail(&fetch, 503);
            }
        }
    }

    /// Gives the fetch back where there is no connection for it.
    fn try_start(&mut self, mut fetch: Box<Fetch>) -> Option<Box<Fetch>> {
        let count = self.asked.len();
        let share = self.share();
        let now_ms = self.now.ms;
        let first = self.turn;
        self.turn = (self.turn + 1) % count.max(1);
        // Origins that fail come last.
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
                    // It goes on as soon as one of those connections has a response.
                    is_full |= why == Undialed::Shortage && self.backends[backend].open > 0;
                }
            }
        }
        if is_full {
            return Some(fetch);
        }
        self.fail(&fetch, if is_short { 503 } else { 502 });
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
                self.core.counts.shortages += 1;
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
        self.core.counts.origin_connections += 1;
        self.backends[backend].open += 1;
        fetch.tries += 1;
        let origin = Origin {
            id,
            token,
            socket,
            backend,
            state: State::Connecting,
            fetch: Some(fetch),
            upload: None,
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

    /// Begins a connection. One over TLS sends one byte when it is there.
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
        self.core.counts.origin_failures += 1;
        if let Some(number) = self.backends[backend].number {
            self.health.pass_over(number, self.now.ms + SICK_MS, why);
        }
    }

    /// A socket is ready, or what else it waited for has come. False: it is to be closed.
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
            // The origin closed it, or sent something without a request.
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
        origin.upload = fetch.upload.take().map(Delivery::new).or(origin.upload.take());
        let Some(upload) = &mut origin.upload else {
            origin.state = State::Head;
            self.origin_waits_in(origin, HEAD);
            return self.reactor.watch(&origin.socket, origin.token, Interest::READ).is_ok();
        };
        let mut sent_bytes = 0;
        let lease_bytes_max = self.core.options.window_bytes;
        let ran = upload.run(&origin.socket, self.core.number, lease_bytes_max, &mut sent_bytes);
        let object = upload.object().id();
        let interest = match ran {
            Ran::Complete => {
                origin.upload = None;
                origin.state = State::Head;
                self.origin_waits_in(origin, HEAD);
                return self.read_head(origin);
            }
            Ran::Waits => {
                self.wait_for_more(object, origin.token);
                // A response may come before the request's end.
                Interest::READ
            }
            Ran::Blocked | Ran::Share => Interest::BOTH,
            // The client left; or the origin has, and may have stated why.
            Ran::Failed => return false,
            Ran::Gone => {
                origin.upload = None;
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

    /// Reads the headers of a response.
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

    /// Looks for complete headers in the inbox; `None`: more has to come.
    fn look_for_head(&mut self, origin: &mut Origin) -> Option<bool> {
        loop {
            let inbox = std::mem::take(&mut origin.inbox);
            let mut room = FieldRoom::new();
            let method =
                origin.fetch.as_ref().map_or("GET", |fetch| fetch.method.as_str()).to_owned();
            let head =
                match message::response(&inbox, &mut room, &method, &self.core.options.limits) {
                    Ok(Some(head)) => head,
                    Ok(None) => {
                        origin.inbox = inbox;
                        return None;
                    }
                    Err(_) => {
                        self.core.counts.bad_responses += 1;
                        if let Some(fetch) = origin.fetch.take() {
                            self.fail(&fetch, 502);
                        }
                        return Some(false);
                    }
                };
            let rest = &inbox[head.head_bytes..];
            if head.status < 200 {
                // An interim response: 102 and 103 are of use to the client that waits, 100 is for
                // larder.
                let fetch = origin.fetch.as_deref_mut().filter(|_| head.status != 100);
                if let Some(client) = fetch.and_then(Fetch::takes_interim) {
                    let mut interim = Vec::new();
                    push_kept_head(&mut interim, head.status, head.fields, |_| false);
                    interim.extend_from_slice(b"\r\n");
                    self.outcomes.push_back((client, Outcome::Interim(interim.into())));
                }
                origin.inbox = rest.to_vec();
                continue;
            }
            let keeps_alive = head.keeps_alive && origin.upload.is_none();
            let (next, used) = match &mut origin.fetch {
                Some(fetch) => {
                    let (core, mut net) = self.split();
                    core.response(&mut net, fetch, &head, rest)
                }
                None => (Next::Unwanted, 0),
            };
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

    fn begin_body(&mut self, origin: &mut Origin, incoming: Box<Incoming>) -> bool {
        origin.state = State::Body;
        self.rooms.insert(incoming.object().id(), origin.token);
        origin.incoming = Some(incoming);
        self.origin_waits_in(origin, BODY);
        self.read_body(origin)
    }

    /// Reads what there is of a body.
    fn read_body(&mut self, origin: &mut Origin) -> bool {
        let Some(mut incoming) = origin.incoming.take() else { return false };
        let Some(fetch) = origin.fetch.take() else { return false };
        let reading = self.core.before_reading(&fetch, &mut incoming);
        let read = match reading {
            Reading::Abort => {
                self.rooms.remove(&incoming.object().id());
                origin.fetch = Some(fetch);
                return false;
            }
            Reading::Wait => Read::NoRoom,
            Reading::Read => self.fill_body(origin, &mut incoming),
            Reading::ReadPart { before } => {
                self.rooms.insert(incoming.object().id(), origin.token);
                self.rooms.remove(&before);
                self.fill_body(origin, &mut incoming)
            }
        };
        self.core.after_reading(&fetch, &mut incoming);
        match read {
            Read::Complete => {
                let keeps_alive = incoming.keeps_alive;
                self.rooms.remove(&incoming.object().id());
                self.core.completed(&fetch, *incoming);
                self.unannounced.retain(|(id, _)| *id != origin.id);
                return self.rest_origin(origin, keeps_alive && !origin.has_ended);
            }
            Read::Broken => {
                self.rooms.remove(&incoming.object().id());
                self.core.broken(*incoming);
                origin.fetch = Some(fetch);
                return false;
            }
            Read::NoRoom => {
                incoming.filler.publish_now();
                self.core.make_room();
                let list = if incoming.is_kept() { ROOM } else { HELD_UP };
                if self.origins.list_of(origin.id) != Some(list) {
                    self.origin_waits_in(origin, list);
                }
                (origin.incoming, origin.fetch) = (Some(incoming), Some(fetch));
                return true;
            }
            Read::Blocked | Read::Share => {}
        }
        (origin.incoming, origin.fetch) = (Some(incoming), Some(fetch));
        if !self.unannounced.iter().any(|(id, _)| *id == origin.id) {
            self.unannounced.push((origin.id, self.now.us));
        }
        self.origin_waits_in(origin, BODY);
        self.reactor.watch(&origin.socket, origin.token, Interest::READ).is_ok()
    }

    fn fill_body(&mut self, origin: &mut Origin, incoming: &mut Incoming) -> Read {
        let reads_max = if incoming.is_kept() { READS_MAX } else { READS_PRIVATE_MAX };
        let Incoming { filler, remaining, .. } = incoming;
        // The bytes of the last read are used too: if nothing comes after them, the socket is not
        // ready again.
        for reads in 0..=reads_max {
            if !origin.inbox.is_empty() {
                let inbox = std::mem::take(&mut origin.inbox);
                let (used, taken) = remaining.take(&inbox, filler);
                // Its memory is freed when all is used: else what is left of a first read would
                // stay with each connection.
                if used < inbox.len() {
                    origin.inbox = inbox;
                    origin.inbox.drain(..used);
                }
                match taken {
                    Taken::More => {}
                    Taken::Complete => return Read::Complete,
                    Taken::NoRoom => return Read::NoRoom,
                    Taken::Broken => return Read::Broken,
                }
            }
            if origin.has_ended {
                return match remaining {
                    Remaining::UntilClose if origin.ended_whole() => Read::Complete,
                    _ => Read::Broken,
                };
            }
            if matches!(remaining, Remaining::Length(0)) {
                return Read::Complete;
            }
            if reads == reads_max {
                break;
            }
            let result = match remaining {
                Remaining::Length(left) => {
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
                Ok(bytes) => self.core.counts.received_bytes += bytes as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Read::Blocked,
                Err(_) => return Read::Broken,
            }
        }
        Read::Share
    }

    /// Evicts bodies that were stored since a body began to wait for memory.
    pub(super) fn make_room_for_waiters(&mut self) {
        if [ROOM, HELD_UP].iter().any(|&list| self.origins.oldest(list).is_some()) {
            self.core.make_room();
        }
    }

    /// Sets a connection aside for the next request, or sends one that waits.
    fn rest_origin(&mut self, origin: &mut Origin, keeps_alive: bool) -> bool {
        let is_asked = self.backends[origin.backend].number.is_some();
        if !keeps_alive || !is_asked || !origin.inbox.is_empty() || self.core.is_draining {
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
            self.core.counts.origin_timeouts += 1;
        }
        if list == ROOM {
            // Bodies that are read slowly, or wait like this one, hold the memory. One is aborted
            // for the others, and its clients see it fail; those that waited as long wait again.
            if self.now.ms < self.gave_way_ms + self.core.options.patience.memory_ms {
                self.origin_waits_in(origin, ROOM);
                return true;
            }
            self.gave_way_ms = self.now.ms;
            self.core.counts.no_memory += 1;
        } else if list == CONNECTING {
            self.sicken(origin.backend, &ErrorKind::TimedOut.into());
        } else if let Some(fetch) = origin.fetch.take_if(|_| list == HEAD) {
            self.fail(&fetch, 504);
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
            self.rooms.remove(&incoming.object().id());
        }
        if let Some(fetch) = fetch {
            let has_not_begun = state == State::Connecting && fetch.tries < TRIES_MAX;
            let may_be_stale = is_reused && inbox.is_empty() && fetch.may_be_asked_again();
            if had_body {
                self.core.end_flight(&fetch);
            } else if has_not_begun || (may_be_stale && fetch.tries < TRIES_MAX) {
                self.start(fetch);
            } else {
                self.fail(&fetch, 502);
            }
        }
        if let Some(fetch) = self.queue.pop_front() {
            self.start(fetch);
        }
    }
}
