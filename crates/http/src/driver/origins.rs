//! The origins, and the connections of an event loop to them.
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
//! Invariants
//! 1. A connection is taken out of the table while an event of it is handled, so nothing else
//!    reaches it.
//! 2. A fetch belongs to one connection or to the queue. However it ends, its shared fetch is
//!    completed or its client gets an outcome, if it is still connected.
//! 3. `open` of an origin counts its connections in the table, and `idle` has those in the list
//!    `IDLE`.

mod abandon;
mod exchange;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use larder_io::reactor::Interest;
use larder_io::table::{Id, Table};
use larder_io::tcp::{self, ConnectOptions};

use super::ORIGINS;
use super::base::{Base, Wire};
use super::clients::Clients;
use super::delivery::Delivery;
use crate::core::{Core, Fetch, Incoming};
use crate::descriptors::is_shortage;
use crate::handoff::CloseState;
use crate::health::Health;
use crate::options::{Options, OriginAddress};
use crate::tls_bridge;

/// What a connection waits for, by list.
const LISTS: usize = 6;
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
/// Bytes that are read at once from an origin where a body has no memory yet, or has to be decoded.
const SCRATCH_BYTES: usize = 64 << 10;
/// How long an origin that could not be reached is passed over, where there are others,
/// milliseconds.
const SICK_MS: u64 = 2_000;

/// The longest time until readers get a notice of bytes that came, microseconds.
const ANNOUNCE_US: u64 = 1_000;

/// The origins, and the connections to them.
#[derive(Debug)]
pub struct Origins {
    table: Table<Option<Box<Origin>>, LISTS>,
    /// The origins in force, and former ones that still respond.
    backends: Vec<Backend>,
    /// Those in force, in the order of the options.
    in_force: Vec<usize>,
    /// The one that is asked next.
    next: usize,
    /// Fetches that wait for a connection.
    queue: VecDeque<Box<Fetch>>,
    /// Connections that read bytes without a notice to the readers yet, and since when.
    unannounced: Vec<(Id, u64)>,
    /// When a body was last aborted for lack of memory.
    gave_way_ms: u64,
    scratch: Box<[u8]>,
    health: Arc<Health>,
    tls_bridge: Option<Arc<dyn tls_bridge::Running>>,
}

/// What a handler of a connection uses of its event loop.
pub struct Context<'a> {
    pub base: &'a mut Base,
    pub clients: &'a Clients,
}

impl Context<'_> {
    /// The core, and what it asks of this event loop.
    fn split(&mut self) -> (&mut Core, Wire<'_>) {
        self.base.split(self.clients)
    }

    /// The origin gave no response to a fetch.
    fn fail(&mut self, fetch: &Fetch, status: u16) {
        let (core, mut net) = self.split();
        core.failed(&mut net, fetch, status);
    }
}

/// What happened to a connection to an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginEvent {
    /// Its socket is ready or has failed, or more of the request's body has come.
    Ready,
    /// There is memory for its body, or no client wants the body any more.
    HasRoom,
}

/// One origin, and the connections to it that are not in use.
#[derive(Debug)]
struct Backend {
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
    Requesting,
    Head,
    Body,
    Idle,
}

/// A connection to an origin.
#[derive(Debug)]
struct Origin {
    id: Id,
    token: u64,
    socket: OwnedFd,
    backend: usize,
    state: State,
    fetch: Option<Box<Fetch>>,
    /// The body of the request, on its way.
    upload: Option<Delivery>,
    /// Bytes of the request's headers that were sent.
    sent_bytes: usize,
    /// When they began to be sent.
    asked_us: u64,
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
    fn requested_fetch(&self) -> Option<&Fetch> {
        self.fetch.as_deref().filter(|_| self.state != State::Body)
    }

    /// The origin may have received some of the request.
    fn has_sent(&self) -> bool {
        self.sent_bytes > 0
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

/// Connections to one origin that an event loop may have.
fn share(options: &Options) -> usize {
    options.origin_connections_max.div_ceil(options.loops).max(1)
}

impl Origins {
    /// None is in force yet.
    pub fn new(
        loop_number: u32,
        health: Arc<Health>,
        tls_bridge: Option<Arc<dyn tls_bridge::Running>>,
    ) -> Origins {
        Origins {
            table: Table::new(ORIGINS, 0),
            backends: Vec::new(),
            in_force: Vec::new(),
            next: loop_number as usize,
            queue: VecDeque::new(),
            unannounced: Vec::new(),
            gave_way_ms: 0,
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            health,
            tls_bridge,
        }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True for the token of a connection, also of one that is closed.
    pub fn owns(&self, token: u64) -> bool {
        self.table.owns(token)
    }

    pub fn handle(&mut self, cx: &mut Context<'_>, token: u64, event: OriginEvent) {
        let Some(id) = self.table.id_of(token) else { return };
        self.with(cx, id, |origins, cx, origin| match event {
            OriginEvent::Ready => origins.ready(cx, origin),
            OriginEvent::HasRoom => origin.state != State::Body || origins.read_body(cx, origin),
        });
    }

    /// Handles an event of a connection (invariant 1); false from `act` closes it.
    fn with(
        &mut self,
        cx: &mut Context<'_>,
        id: Id,
        act: impl FnOnce(&mut Origins, &mut Context<'_>, &mut Origin) -> bool,
    ) {
        let Some(mut origin) = self.table.get_mut(id).and_then(Option::take) else { return };
        if act(self, cx, &mut origin) {
            if let Some(place) = self.table.get_mut(id) {
                *place = Some(origin);
            }
        } else {
            self.close(cx, id, *origin);
        }
    }

    /// How long until a wait of a connection times out.
    pub fn wait_ms(&self, base: &Base) -> Option<u64> {
        self.table.wait_ms(Origins::waits_ms(base), base.now.ms)
    }

    /// Ends waits that have timed out.
    pub fn look_at_clock(&mut self, cx: &mut Context<'_>) {
        let now_ms = cx.base.now.ms;
        while let Some((id, list)) = self.table.overdue(Origins::waits_ms(cx.base), now_ms) {
            self.with(cx, id, |origins, cx, origin| origins.overdue(cx, origin, list));
        }
    }

    /// How long until readers get a notice of bytes that came, microseconds.
    pub fn announce_us(&self, now_us: u64) -> Option<u64> {
        let due_us = self.unannounced.iter().map(|(_, since_us)| since_us + ANNOUNCE_US).min();
        due_us.map(|due_us| due_us.saturating_sub(now_us))
    }

    /// Notifies readers of bytes that came a while ago; true where none are left that came later.
    pub fn announce(&mut self, now_us: u64) -> bool {
        let Origins { table, unannounced, .. } = self;
        unannounced.retain(|&(id, since_us)| {
            let is_due = now_us >= since_us + ANNOUNCE_US;
            if is_due
                && let Some(origin) = table.get_mut(id).and_then(Option::as_mut)
                && let Some(incoming) = &mut origin.incoming
            {
                incoming.filler.publish_now();
            }
            !is_due
        });
        unannounced.is_empty()
    }

    /// How long connections may wait, by list.
    fn waits_ms(base: &Base) -> [u64; LISTS] {
        let it = &base.core.options.patience;
        [
            it.connect_ms,
            it.first_byte_ms,
            it.between_bytes_ms,
            it.origin_idle_ms,
            u64::MAX,
            it.memory_ms,
        ]
    }

    fn wait_in(&mut self, cx: &Context<'_>, origin: &Origin, list: usize) {
        self.table.wait_in(origin.id, list, cx.base.now.ms);
    }

    /// Puts the origins of the options in force. Connections to those that stay are used again. Of
    /// the others, connections without a request are closed, and the rest as soon as they have
    /// responded.
    pub fn follow(&mut self, cx: &mut Context<'_>, health: Arc<Health>) {
        self.health = health;
        let options = cx.base.core.options.clone();
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
        self.in_force = places.into_iter().flatten().collect();
        // Connections to former origins end in their time.
        self.table
            .grow(self.table.len() + share(&cx.base.core.options) * options.origins.len().max(1));
        let retired = self.backends.iter_mut().filter(|it| it.number.is_none());
        let unused: Vec<Id> = retired.flat_map(|it| it.idle.drain(..)).collect();
        for id in unused {
            self.with(cx, id, |_, _, _| false);
        }
        // A fetch that waited for the former origins may find a connection at once.
        for fetch in std::mem::take(&mut self.queue) {
            self.start(cx, fetch);
        }
    }

    /// Sends a request to an origin, now or as soon as there is a connection.
    pub fn start(&mut self, cx: &mut Context<'_>, fetch: Box<Fetch>) {
        if let Some(fetch) = self.try_start(cx, fetch) {
            if self.queue.len() < cx.base.core.options.queue_max {
                self.queue.push_back(fetch);
            } else {
                cx.base.core.counts.queue_full += 1;
                cx.fail(&fetch, 503);
            }
        }
    }

    /// Gives the fetch back where there is no connection for it.
    fn try_start(&mut self, cx: &mut Context<'_>, mut fetch: Box<Fetch>) -> Option<Box<Fetch>> {
        let count = self.in_force.len();
        let share = share(&cx.base.core.options);
        let now_ms = cx.base.now.ms;
        let first = self.next;
        self.next = (self.next + 1) % count.max(1);
        // Origins that fail come last.
        let mut order: Vec<usize> = (0..count).map(|at| (first + at) % count).collect();
        order.sort_by_key(|&at| !self.health.is_good(at, now_ms));
        let may_reuse = fetch.tries < TRIES_MAX - 1;
        let (mut is_full, mut is_short) = (false, false);
        for number in order {
            let Some(&backend) = self.in_force.get(number) else { continue };
            while may_reuse && let Some(id) = self.backends[backend].idle.pop_back() {
                debug_assert_eq!(self.table.list_of(id), Some(IDLE), "invariant 3");
                let mut rest = Some(fetch);
                self.with(cx, id, |origins, cx, origin| {
                    let fetch = rest.take().expect("it is called once");
                    origins.retry_on(cx, origin, fetch)
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
            match self.connect(cx, backend, fetch) {
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
        cx.fail(&fetch, if is_short { 503 } else { 502 });
        None
    }

    fn connect(
        &mut self,
        cx: &mut Context<'_>,
        backend: usize,
        mut fetch: Box<Fetch>,
    ) -> Result<(), (Box<Fetch>, Undialed)> {
        let (socket, close_state) = match self.dial(backend) {
            Ok(dialed) => dialed,
            Err(error) if is_shortage(&error) => {
                cx.base.core.counts.shortages += 1;
                return Err((fetch, Undialed::Shortage));
            }
            Err(error) => {
                self.sicken(cx, backend, &error);
                return Err((fetch, Undialed::Unreachable));
            }
        };
        let Ok(id) = self.table.insert(None, CONNECTING, cx.base.now.ms) else {
            return Err((fetch, Undialed::Shortage));
        };
        let token = self.table.token(id);
        let interest = if close_state.is_some() { Interest::READ } else { Interest::WRITE };
        if cx.base.reactor.watch(&socket, token, interest).is_err() {
            self.table.remove(id);
            return Err((fetch, Undialed::Shortage));
        }
        cx.base.core.counts.origin_connections += 1;
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
            sent_bytes: 0,
            asked_us: 0,
            inbox: Vec::new(),
            incoming: None,
            is_reused: false,
            has_ended: false,
            close_state,
        };
        if let Some(place) = self.table.get_mut(id) {
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

    fn retry_on(
        &mut self,
        cx: &mut Context<'_>,
        origin: &mut Origin,
        mut fetch: Box<Fetch>,
    ) -> bool {
        fetch.tries += 1;
        origin.fetch = Some(fetch);
        origin.sent_bytes = 0;
        origin.is_reused = true;
        cx.base.reactor.unwatch(&origin.socket, origin.token);
        self.send_request(cx, origin)
    }

    fn sicken(&mut self, cx: &mut Context<'_>, backend: usize, why: &io::Error) {
        cx.base.core.counts.origin_failures += 1;
        if let Some(number) = self.backends[backend].number {
            self.health.pass_over(number, cx.base.now.ms + SICK_MS, why);
        }
    }

    /// A socket is ready, or what else it waited for has come. False: it is to be closed.
    fn ready(&mut self, cx: &mut Context<'_>, origin: &mut Origin) -> bool {
        match origin.state {
            State::Connecting => match Origins::connected(origin) {
                Ok(()) => self.send_request(cx, origin),
                Err(error) => {
                    self.sicken(cx, origin.backend, &error);
                    false
                }
            },
            State::Requesting => self.send_request(cx, origin),
            State::Head => self.read_head(cx, origin),
            State::Body => self.read_body(cx, origin),
            // The origin closed it, or sent something without a request.
            State::Idle => false,
        }
    }

    /// Evicts bodies that were stored since a body began to wait for memory.
    pub fn make_room_for_waiters(&self, base: &mut Base) {
        if [ROOM, HELD_UP].iter().any(|&list| self.table.oldest(list).is_some()) {
            base.core.make_room();
        }
    }

    /// Sets a connection aside for the next request, or sends one that waits.
    fn rest_origin(
        &mut self,
        cx: &mut Context<'_>,
        origin: &mut Origin,
        keeps_alive: bool,
    ) -> bool {
        let is_configured = self.backends[origin.backend].number.is_some();
        if !keeps_alive || !is_configured || !origin.inbox.is_empty() || cx.base.core.is_draining {
            return false;
        }
        if let Some(fetch) = self.queue.pop_front() {
            return self.retry_on(cx, origin, fetch);
        }
        origin.state = State::Idle;
        self.backends[origin.backend].idle.push_back(origin.id);
        self.wait_in(cx, origin, IDLE);
        cx.base.reactor.watch(&origin.socket, origin.token, Interest::READ).is_ok()
    }

    fn overdue(&mut self, cx: &mut Context<'_>, origin: &mut Origin, list: usize) -> bool {
        if list != IDLE && list != ROOM {
            cx.base.core.counts.origin_timeouts += 1;
        }
        if list == ROOM {
            // Bodies that are read slowly, or wait like this one, hold the memory. One is aborted
            // for the others, and its clients see it fail; those that waited as long wait again.
            if cx.base.now.ms < self.gave_way_ms + cx.base.core.options.patience.memory_ms {
                self.wait_in(cx, origin, ROOM);
                return true;
            }
            self.gave_way_ms = cx.base.now.ms;
            cx.base.core.counts.no_memory += 1;
        } else if list == CONNECTING {
            self.sicken(cx, origin.backend, &ErrorKind::TimedOut.into());
        } else if let Some(fetch) = origin.fetch.take_if(|_| list == HEAD) {
            cx.fail(&fetch, 504);
        }
        false
    }

    fn close(&mut self, cx: &mut Context<'_>, id: Id, origin: Origin) {
        self.table.remove(id);
        let Origin { socket, token, backend, fetch, incoming, state, is_reused, inbox, .. } =
            origin;
        cx.base.reactor.close(socket, token);
        let pool = &mut self.backends[backend];
        pool.open -= 1;
        pool.idle.retain(|it| *it != id);
        self.unannounced.retain(|(it, _)| *it != id);
        let had_body = incoming.is_some() || state == State::Body;
        if let Some(incoming) = incoming {
            cx.base.deliveries.unset_filler(incoming.object().id());
        }
        if let Some(fetch) = fetch {
            let has_not_begun = state == State::Connecting && fetch.tries < TRIES_MAX;
            let may_be_stale = is_reused && inbox.is_empty() && fetch.may_retry();
            if had_body {
                cx.base.core.end_flight(&fetch);
            } else if has_not_begun || (may_be_stale && fetch.tries < TRIES_MAX) {
                self.start(cx, fetch);
            } else {
                cx.fail(&fetch, 502);
            }
        }
        if let Some(fetch) = self.queue.pop_front() {
            self.start(cx, fetch);
        }
    }
}
