//! One event loop: the sockets of clients and origins around a [`Core`], which decides.
//!
//! ```text
//! turn     wait for the kernel, and for other event loops
//!          events: connections, bytes of clients, sockets of origins that are ready
//!          messages of other event loops: more of a body, memory, outcomes
//!          outcomes for clients that wait here
//!          deliveries that used up their share and go on
//!          make what was stored visible; close connections that timed out
//! ```
//!
//! | module | duty |
//! |---|---|
//! | `clients` | connections of clients, and what each waits for |
//! | `clients::admission` | the client's address, and whether the client is accepted |
//! | `clients::requests` | from bytes to requests, and from decisions to responses |
//! | `clients::upload` | a request's body on its way to an origin |
//! | `clients::access` | lines of the access log |
//! | `delivery` | a body on its way to a client: leases, chunks, `sendfile` |
//! | `origins` | connections to origins, and those that wait for reuse |
//! | `origins::exchange` | a request on such a connection, and its response |
//! | `origins::abandon` | fetches whose clients left before a response came |
//!
//! Nothing in a turn waits, and no connection has a thread. A client that cannot receive more holds
//! what it has leased and no more; an origin whose body no client receives is not read. Event loops
//! send each other messages ([`LoopChannels`]).
//!
//! Invariants
//! 1. A client, and a connection to an origin, is taken out of its table while an event of it is
//!    handled, so nothing else reaches it: outcomes and notices for it are queued, and handled later in
//!    the turn.
//! 2. A fetch belongs to one connection or to the queue. However it ends, its shared fetch is completed
//!    or its client gets an outcome, if it is still connected.
//! 3. No client sees an end of a body that fails: its connection is reset.

mod clients;
mod delivery;
mod origins;

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashMapExt};
use larder::mem::object::{News, Notice, ObjectId};
use larder_io::clock::Clock;
use larder_io::reactor::{self, Batch, Event, Reactor};
use larder_io::table::{Id, Table};
use larder_io::tcp;
use larder_serve::connection_limit::ConnectionLimit;

use self::clients::{Arrival, CLIENT_LISTS, Client};
use self::origins::{Backend, ORIGIN_LISTS, Origin};
use crate::access_log::AccessLog;
use crate::coalescing::{Outcome, Waiter};
use crate::core::{Core, Fetch, Net};
use crate::counts::Shared;
use crate::descriptors::is_shortage;
use crate::health::Health;
use crate::loop_channel::{LoopChannels, Message};
use crate::reload::{Config, ConfigFollower};
use crate::server::Common;
use crate::tls_bridge;
use larder_serve::lifecycle::{Lifecycle, Stage};

/// Kinds of tokens.
const CLIENTS: u8 = 1;
const ORIGINS: u8 = 2;
const LISTENERS: u8 = 3;

/// The longest wait, milliseconds.
const WAIT_MS_MAX: u64 = 1_000;

/// The longest time until readers get a notice of bytes that came, microseconds.
const ANNOUNCE_US: u64 = 1_000;

/// How often counters are published, milliseconds.
const PUBLISH_MS: u64 = 100;

/// How long until a listener that failed listens again, milliseconds.
const LISTEN_AGAIN_MS: u64 = 100;

/// Bytes that are read at once from an origin where a body has no memory yet, or has to be decoded.
const SCRATCH_BYTES: usize = 64 << 10;

fn listener_token(which: usize) -> u64 {
    u64::from(LISTENERS) << larder_io::table::ID_BITS | which as u64
}

/// A point in time.
#[derive(Debug, Clone, Copy, Default)]
struct Now {
    us: u64,
    ms: u64,
    /// Since 1970.
    wall_s: u64,
}

/// What an event loop is made of.
#[derive(Debug)]
pub struct Parts {
    /// Its number.
    pub number: u32,
    /// Its listeners.
    pub listeners: Vec<TcpListener>,
    /// What it shares with the others.
    pub common: Common,
}

/// One event loop.
#[derive(Debug)]
pub struct Driver {
    core: Core,
    channels: LoopChannels,
    messages: VecDeque<Message>,
    reactor: Reactor,
    listeners: Vec<TcpListener>,
    /// Listeners that failed, and when each listens again.
    deaf: Vec<(usize, u64)>,
    clients: Table<Option<Box<Client>>, CLIENT_LISTS>,
    origins: Table<Option<Box<Origin>>, ORIGIN_LISTS>,
    /// The origins in force, and former ones that still respond.
    backends: Vec<Backend>,
    /// Those in force, in the order of the options.
    asked: Vec<usize>,
    /// The one that is asked next.
    turn: usize,
    /// Fetches that wait for a connection.
    queue: VecDeque<Box<Fetch>>,
    /// Readers that wait for more of a body: clients, and connections to origins for a client's
    /// body.
    waits: HashMap<ObjectId, Vec<u64>>,
    /// Fillers of bodies: they get a notice when there is room, and when no client wants the body
    /// any more.
    rooms: HashMap<ObjectId, u64>,
    /// Fetches that the core wants; they begin when it has returned.
    fetches: VecDeque<Box<Fetch>>,
    /// Outcomes for clients of this event loop.
    outcomes: VecDeque<(u64, Outcome)>,
    /// Deliveries that used up their share of a turn.
    again: Vec<u64>,
    /// Connections that read bytes without a notice to the readers yet, and since when.
    unannounced: Vec<(Id, u64)>,
    scratch: Box<[u8]>,
    clock: Clock,
    now: Now,
    shared: Arc<Shared>,
    publish_ms: u64,
    /// When a body was last aborted for lack of memory.
    gave_way_ms: u64,
    lifecycle: Arc<Lifecycle>,
    health: Arc<Health>,
    connections: Arc<ConnectionLimit>,
    follower: ConfigFollower,
    access_log: Option<AccessLog>,
    /// Lines that earlier logs dropped.
    log_dropped_before: u64,
    tls_bridge: Option<Arc<dyn tls_bridge::Running>>,
    /// It has no clients any more.
    is_drained: bool,
}

/// What the core asks of its event loop: fetches begin when it has returned, outcomes come later in
/// the turn.
struct Wire<'a> {
    clients: &'a Table<Option<Box<Client>>, CLIENT_LISTS>,
    fetches: &'a mut VecDeque<Box<Fetch>>,
    outcomes: &'a mut VecDeque<(u64, Outcome)>,
    channels: &'a LoopChannels,
    loop_number: u32,
}

impl Net for Wire<'_> {
    fn fetch(&mut self, fetch: Box<Fetch>) {
        self.fetches.push_back(fetch);
    }

    fn complete(&mut self, waiter: Waiter, outcome: Outcome) {
        if waiter.loop_number == self.loop_number {
            self.outcomes.push_back((waiter.client, outcome));
        } else {
            self.channels.tell(waiter, outcome);
        }
    }

    fn is_connected(&self, client: u64) -> bool {
        self.clients.id_of(client).is_some()
    }
}

impl Driver {
    /// An event loop; [`Driver::run`] gets the batch.
    pub fn new(parts: Parts) -> io::Result<(Driver, Batch)> {
        let Parts { number, listeners, common } = parts;
        let Common {
            store,
            shared,
            config_watch,
            channels,
            clock,
            lifecycle,
            connections,
            tls_bridge,
            ..
        } = common;
        let mut follower = config_watch.follower();
        let Config { options, health, access_log } = (*follower.current()).clone();
        let reactor_options = reactor::Options { choice: options.io, ..Default::default() };
        let (mut reactor, batch) = Reactor::new(&reactor_options)?;
        channels.set_waker(number, reactor.waker());
        for (at, listener) in listeners.iter().enumerate() {
            reactor.listen(listener, listener_token(at))?;
        }
        let share = |all: usize| all.div_ceil(options.loops).max(1);
        let mut driver = Driver {
            clients: Table::new(CLIENTS, share(options.clients_max)),
            core: Core::new(number, options, store).map_err(io::Error::other)?,
            channels,
            messages: VecDeque::new(),
            reactor,
            listeners,
            deaf: Vec::new(),
            origins: Table::new(ORIGINS, 0),
            backends: Vec::new(),
            asked: Vec::new(),
            turn: number as usize,
            queue: VecDeque::new(),
            waits: HashMap::new(),
            rooms: HashMap::new(),
            fetches: VecDeque::new(),
            outcomes: VecDeque::new(),
            again: Vec::new(),
            unannounced: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            now: Now::default(),
            clock,
            shared,
            publish_ms: 0,
            gave_way_ms: 0,
            lifecycle,
            health,
            connections,
            follower,
            access_log: access_log.map(|log| log.another()),
            log_dropped_before: 0,
            tls_bridge,
            is_drained: false,
        };
        driver.ask_origins();
        Ok((driver, batch))
    }

    /// How it waits for the kernel, and why not by io_uring, where that was wished for.
    pub fn io(&self) -> (reactor::Backend, Option<&str>) {
        (self.reactor.backend(), self.reactor.fallback())
    }

    /// Serves until it is told to stop. An error is the kernel's, and ends the event loop.
    pub fn run(&mut self, batch: &mut Batch) -> io::Result<()> {
        let mut result = Ok(());
        while result.is_ok() && self.goes_on() {
            result = self.turn(batch);
        }
        self.channels.close(self.core.number);
        self.publish();
        if let Some(log) = &mut self.access_log {
            log.flush();
        }
        result
    }

    fn goes_on(&mut self) -> bool {
        match self.lifecycle.get() {
            Stage::Serves => true,
            Stage::Drains => {
                if !self.core.is_draining {
                    self.drain();
                }
                if !self.clients.is_empty() {
                    return true;
                }
                if !std::mem::replace(&mut self.is_drained, true) && self.shared.drained() {
                    self.channels.wake_all();
                }
                // Clients of other event loops may read a body that is fetched here.
                !self.shared.are_all_drained()
            }
            Stage::Ends => false,
        }
    }

    /// Accepts no new connections; clients without a request may send another for a moment.
    fn drain(&mut self) {
        self.core.is_draining = true;
        for (at, listener) in std::mem::take(&mut self.listeners).into_iter().enumerate() {
            self.reactor.unlisten(&listener, listener_token(at));
            // A client that has connected already is not reset.
            while let Ok(Some((stream, peer))) = tcp::accept(&listener) {
                let (socket, peer) = (stream.into(), Some(peer));
                self.accept(Arrival {
                    socket,
                    peer,
                    close_state: None,
                    peer_close_state: None,
                    speaks_http2: false,
                });
            }
        }
        let ids: Vec<Id> = self.clients.ids().collect();
        for id in ids {
            self.with_client(id, |driver, client| driver.drain_client(client));
        }
    }

    /// Continues with other settings.
    fn follow(&mut self, config: &Config) {
        let Config { options, health, access_log } = config.clone();
        if let Some(mut log) = self.access_log.take() {
            log.flush();
            self.log_dropped_before += log.dropped();
        }
        self.access_log = access_log.map(|log| log.another());
        (self.core.options, self.health) = (options, health);
        self.ask_origins();
    }

    fn tell_time(&mut self) {
        let us = self.clock.us();
        let wall_s = self.clock.unix_us(us) / 1_000_000;
        self.now = Now { us, ms: us / 1_000, wall_s };
    }

    fn turn(&mut self, batch: &mut Batch) -> io::Result<()> {
        self.tell_time();
        let wait = self.wait();
        let wait = if self.channels.may_sleep(self.core.number) { wait } else { Duration::ZERO };
        self.reactor.wait(batch, Some(wait))?;
        self.tell_time();
        self.core.begin(self.now.wall_s);
        if let Some(config) = self.follower.take_next() {
            self.follow(&config);
        }
        while let Some(event) = batch.next() {
            self.handle(event);
        }
        self.read_messages();
        self.deliver_outcomes();
        for token in std::mem::take(&mut self.again) {
            self.with_client_of(token, Driver::go_on);
        }
        self.announce(false);
        self.deliver_outcomes();
        self.make_room_for_waiters();
        self.core.finish();
        self.look_at_clock();
        if let Some(log) = &mut self.access_log {
            log.flush_due(self.now.ms);
        }
        if self.now.ms >= self.publish_ms {
            self.publish();
        }
        Ok(())
    }

    /// How long there is nothing to do if nothing comes.
    fn wait(&self) -> Duration {
        let is_busy = !self.again.is_empty() || !self.outcomes.is_empty();
        if is_busy {
            return Duration::ZERO;
        }
        let now_ms = self.now.ms;
        let waits = [
            self.clients.wait_ms(self.client_waits_ms(), now_ms),
            self.origins.wait_ms(self.origin_waits_ms(), now_ms),
            self.deaf.iter().map(|(_, due_ms)| due_ms.saturating_sub(now_ms)).min(),
            self.access_log.as_ref().and_then(|log| log.wait_ms(now_ms)),
        ];
        let wait_ms = waits.into_iter().flatten().fold(WAIT_MS_MAX, u64::min);
        let announce_us = self.unannounced.iter().map(|(_, since_us)| since_us + ANNOUNCE_US).min();
        let announce_us = announce_us.map(|due_us| due_us.saturating_sub(self.now.us));
        // A millisecond more, so that the time is over then.
        let wait_us = (wait_ms + 1) * 1_000;
        Duration::from_micros(announce_us.map_or(wait_us, |us| us.min(wait_us)))
    }

    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Accepted { socket, peer, .. } => {
                self.accept(Arrival {
                    socket,
                    peer,
                    close_state: None,
                    peer_close_state: None,
                    speaks_http2: false,
                });
            }
            Event::Received { token, bytes } => {
                self.with_client_of(token, |driver, client| driver.receive(client, bytes));
            }
            Event::Finished { token } => self.with_client_of(token, Driver::finished),
            Event::Sent { token } => self.with_client_of(token, Driver::sent),
            Event::Ready { token, .. } if self.origins.owns(token) => {
                self.with_origin_of(token, Driver::origin_ready);
                // Bytes that came go on at once, while they are in the processor's cache and their
                // memory is wanted for the next.
                self.deliver_outcomes();
                self.read_messages();
            }
            Event::Ready { token, .. } => self.with_client_of(token, Driver::go_on),
            Event::Failed { token, error } => self.failed(token, &error),
            Event::Woken => {}
        }
    }

    fn failed(&mut self, token: u64, error: &io::Error) {
        if self.clients.owns(token) {
            self.with_client_of(token, Driver::client_failed);
        } else if self.origins.owns(token) {
            self.with_origin_of(token, Driver::origin_ready);
        } else {
            self.core.counts.accept_failures += 1;
            self.core.counts.shortages += u64::from(is_shortage(error));
            let which = (token & ((1 << larder_io::table::ID_BITS) - 1)) as usize;
            self.deaf.push((which, self.now.ms + LISTEN_AGAIN_MS));
        }
    }

    fn read_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.channels.take(self.core.number, &mut messages);
        for message in messages.drain(..) {
            match message {
                Message::Outcome(client, outcome) => self.outcomes.push_back((client, outcome)),
                Message::Handoff(handoff) => {
                    let (close_state, before) = (handoff.close_state.clone(), self.clients.len());
                    self.accept(handoff.into());
                    if self.clients.len() > before {
                        close_state.set_taken();
                    }
                }
                Message::Abandoned(flight) => self.abandon(&flight),
                Message::Forget(url, say) => {
                    // The operator who asked may have given up.
                    let _ = say.try_send(self.core.forget(&url));
                }
                Message::Notice(Notice { object, news: News::More, .. }) => {
                    for token in self.waits.remove(&object).unwrap_or_default() {
                        if self.origins.owns(token) {
                            self.with_origin_of(token, Driver::origin_ready);
                        } else {
                            self.with_client_of(token, Driver::go_on);
                        }
                    }
                }
                Message::Notice(Notice { object, news: News::Room, .. }) => {
                    match self.rooms.get(&object).copied() {
                        Some(token) if self.origins.owns(token) => {
                            self.with_origin_of(token, Driver::origin_has_room);
                        }
                        Some(token) => self.with_client_of(token, Driver::upload_has_room),
                        None => {}
                    }
                }
            }
        }
        self.messages = messages;
    }

    /// Gives outcomes to clients that wait here.
    fn deliver_outcomes(&mut self) {
        while let Some((token, outcome)) = self.outcomes.pop_front() {
            self.with_client_of(token, |driver, client| driver.deliver(client, outcome));
        }
    }

    /// The core, and what it asks of this event loop.
    fn split(&mut self) -> (&mut Core, Wire<'_>) {
        let Driver { core, clients, fetches, outcomes, channels, .. } = self;
        let loop_number = core.number;
        (core, Wire { clients, fetches, outcomes, channels, loop_number })
    }

    /// The origin gave no response to a fetch.
    fn fail(&mut self, fetch: &Fetch, status: u16) {
        let (core, mut net) = self.split();
        core.failed(&mut net, fetch, status);
    }

    /// Begins the fetches that the core wants.
    fn start_fetches(&mut self) {
        while let Some(fetch) = self.fetches.pop_front() {
            self.start(fetch);
        }
    }

    /// Notifies readers of bytes that came a while ago, or of all.
    fn announce(&mut self, all: bool) {
        let mut at = 0;
        while let Some(&(id, since_us)) = self.unannounced.get(at) {
            if all || self.now.us >= since_us + ANNOUNCE_US {
                self.unannounced.swap_remove(at);
                self.with_origin(id, |_, origin| {
                    origin.announce();
                    true
                });
            } else {
                at += 1;
            }
        }
        if !self.unannounced.is_empty() || all {
            return;
        }
        // Notices of this turn to this event loop are in its own mailbox; they need no other turn.
        self.read_messages();
    }

    fn look_at_clock(&mut self) {
        let now_ms = self.now.ms;
        while let Some((id, list)) = self.clients.overdue(self.client_waits_ms(), now_ms) {
            self.with_client(id, |driver, client| driver.client_overdue(client, list));
        }
        while let Some((id, list)) = self.origins.overdue(self.origin_waits_ms(), now_ms) {
            self.with_origin(id, |driver, origin| driver.origin_overdue(origin, list));
        }
        let mut at = 0;
        while let Some(&(which, due_ms)) = self.deaf.get(at) {
            if now_ms < due_ms {
                at += 1;
                continue;
            }
            self.deaf.swap_remove(at);
            if let Some(listener) = self.listeners.get(which)
                && self.reactor.listen(listener, listener_token(which)).is_err()
            {
                self.deaf.push((which, now_ms + LISTEN_AGAIN_MS));
                break;
            }
        }
    }

    fn publish(&mut self) {
        self.publish_ms = self.now.ms + PUBLISH_MS;
        self.core.counts.clients_open = self.clients.len() as u64;
        self.core.counts.origins_open = self.origins.len() as u64;
        let dropped = self.access_log.as_ref().map_or(0, AccessLog::dropped);
        self.core.counts.log_dropped = self.log_dropped_before + dropped;
        self.shared.publish(self.core.number as usize, &self.core.counts);
    }

    fn with_client_of(&mut self, token: u64, act: impl FnOnce(&mut Driver, &mut Client) -> bool) {
        if let Some(id) = self.clients.id_of(token) {
            self.with_client(id, act);
        }
    }

    /// Handles an event of a client (invariant 1); false from `act` closes it.
    fn with_client(&mut self, id: Id, act: impl FnOnce(&mut Driver, &mut Client) -> bool) {
        let Some(mut client) = self.clients.get_mut(id).and_then(Option::take) else { return };
        if act(self, &mut client) {
            if let Some(place) = self.clients.get_mut(id) {
                *place = Some(client);
            }
        } else {
            self.close_client(id, *client);
        }
    }

    fn with_origin_of(&mut self, token: u64, act: impl FnOnce(&mut Driver, &mut Origin) -> bool) {
        if let Some(id) = self.origins.id_of(token) {
            self.with_origin(id, act);
        }
    }

    /// Handles an event of a connection to an origin; false from `act` closes it.
    fn with_origin(&mut self, id: Id, act: impl FnOnce(&mut Driver, &mut Origin) -> bool) {
        let Some(mut origin) = self.origins.get_mut(id).and_then(Option::take) else { return };
        if act(self, &mut origin) {
            if let Some(place) = self.origins.get_mut(id) {
                *place = Some(origin);
            }
        } else {
            self.close_origin(id, *origin);
        }
    }
}
