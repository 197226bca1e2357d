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

mod abandon;
mod exchange;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use larder_io::reactor::Interest;
use larder_io::table::Id;
use larder_io::tcp::{self, ConnectOptions};

use super::Driver;
use super::delivery::Delivery;
use crate::core::{Fetch, Incoming};
use crate::descriptors::is_shortage;
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
