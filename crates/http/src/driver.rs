//! One core's loop: clients, origins, and what is kept between them.
//!
//! ```text
//! turn     wait for the kernel, and for other loops
//!          events: connections, octets of clients, sockets of origins that are ready
//!          messages of other loops: more of a body, memory, answers
//!          answers for those who wait here
//!          bodies that had their share and go on
//!          show what was kept; patience that is at its end
//! ```
//!
//! | module | duty |
//! |---|---|
//! | `admission` | who a client is, whether it may stay, how it leaves |
//! | `clients` | from octets to requests, from requests to answers or waits |
//! | `delivery` | a body on its way to a client: leases, chunks, `sendfile` |
//! | `upload` | a request's body on its way to an origin |
//! | `origins` | connections to origins: asking, reading, keeping them |
//! | `abandon` | fetches whose clients left before a head came |
//! | `purge` | what is forgotten because somebody says so |
//! | `access` | what the log says of an exchange |
//! | `fetch` | what comes of a response: who gets it, whether it is kept |
//!
//! Nothing in a turn waits, and nobody has a thread. A client that cannot take more holds what it leased and no more; an origin whose
//! body nobody takes is not read. What a loop says to another is a message in its [`crate::loop_channel::LoopChannels`].
//!
//! Invariants
//! 1. A client, and a connection to an origin, is taken out of its table while something is done with it, so nothing that happens
//!    meanwhile reaches it: what concerns it is put in a queue and done later in the turn.
//! 2. A fetch belongs to one connection or to the queue; whatever ends it lands its flight or tells its client, if any is left.
//! 3. Of a body that fails no client sees the end: its connection is reset.

mod abandon;
mod access;
mod admission;
mod clients;
mod delivery;
mod fetch;
mod origins;
mod purge;
mod upload;

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashMapExt};
use larder::Seconds;
use larder::mem::object::{News, Notice, ObjectId};
use larder_io::clock::Clock;
use larder_io::reactor::{self, Batch, Event, Reactor};
use larder_io::table::{Id, Table};
use larder_io::tcp;
use larder_serve::connection_limit::ConnectionLimit;

use self::access::Told;
use self::clients::{Arrival, CLIENT_LISTS, Client};
use self::fetch::Fetch;
use self::origins::{Backend, ORIGIN_LISTS, Origin};
use crate::access_log::AccessLog;
use crate::coalescing::{Flight, Outcome};
use crate::counts::{Counts, Shared};
use crate::descriptors::is_shortage;
use crate::health::Health;
use crate::loop_channel::{LoopChannels, Message};
use crate::options::Options;
use crate::reload::{Config, ConfigFollower};
use crate::server::Common;
use crate::store::{Store, StoreHandle};
use crate::tls_bridge;
use larder_serve::lifecycle::{Lifecycle, Stage};

/// Spaces of tokens.
const CLIENTS: u8 = 1;
const ORIGINS: u8 = 2;
const LISTENERS: u8 = 3;

/// The longest wait, milliseconds.
const WAIT_MS_MAX: u64 = 1_000;

/// How long octets that came may be unannounced to those who wait for them, microseconds.
const ANNOUNCE_US: u64 = 1_000;

/// How often what was counted is shown, milliseconds.
const PUBLISH_MS: u64 = 100;

/// How long a listener that failed is left alone, milliseconds.
const LISTEN_AGAIN_MS: u64 = 100;

/// Octets that are read of an origin at once where a body has no memory yet, and of what has to be decoded.
const SCRATCH_BYTES: usize = 64 << 10;

fn listener_token(which: usize) -> u64 {
    u64::from(LISTENERS) << larder_io::table::ID_BITS | which as u64
}

/// A moment.
#[derive(Debug, Clone, Copy, Default)]
struct Now {
    us: u64,
    ms: u64,
    /// Since 1970.
    wall_s: u64,
}

impl Now {
    fn seconds(self) -> Seconds {
        Seconds(u32::try_from(self.wall_s).unwrap_or(u32::MAX - 1))
    }
}

/// What a loop is made of.
#[derive(Debug)]
pub struct Parts {
    /// Its number.
    pub number: u32,
    /// Where it listens.
    pub listeners: Vec<TcpListener>,
    /// What it shares.
    pub common: Common,
}

/// One core's loop.
#[derive(Debug)]
pub struct Driver {
    number: u32,
    options: Arc<Options>,
    store: Arc<Store>,
    handle: StoreHandle,
    channels: LoopChannels,
    messages: VecDeque<Message>,
    reactor: Reactor,
    listeners: Vec<TcpListener>,
    /// When to listen again, by listener that failed.
    deaf: Vec<(usize, u64)>,
    clients: Table<Option<Box<Client>>, CLIENT_LISTS>,
    origins: Table<Option<Box<Origin>>, ORIGIN_LISTS>,
    /// Those that are asked, and those that are not any more and still answer.
    backends: Vec<Backend>,
    /// Which of them are asked, in the order of the options.
    asked: Vec<usize>,
    /// The one that is asked next.
    turn: usize,
    /// Fetches that wait for a connection.
    queue: VecDeque<Box<Fetch>>,
    /// Who waits for more of a body: clients, and connections to origins for a client's.
    waits: HashMap<ObjectId, Vec<u64>>,
    /// Who fills a body: told when there is room, and when nobody wants it any more.
    rooms: HashMap<ObjectId, u64>,
    /// Answers for clients of this loop.
    outcomes: VecDeque<(u64, Outcome)>,
    /// Deliveries that had their share of a turn.
    again: Vec<u64>,
    /// Connections that read octets nobody was told of yet, and since when.
    unannounced: Vec<(Id, u64)>,
    scratch: Box<[u8]>,
    url: Vec<u8>,
    note: Vec<u8>,
    clock: Clock,
    now: Now,
    counts: Counts,
    shared: Arc<Shared>,
    publish_ms: u64,
    /// When a body was last broken off for want of memory.
    gave_way_ms: u64,
    lifecycle: Arc<Lifecycle>,
    health: Arc<Health>,
    connections: Arc<ConnectionLimit>,
    follower: ConfigFollower,
    access_log: Option<AccessLog>,
    /// Lines that found no room in logs before.
    log_dropped_before: u64,
    /// What was told last, for the log.
    told: Told,
    tls_bridge: Option<Arc<dyn tls_bridge::Running>>,
    is_draining: bool,
    /// It has no clients any more.
    is_drained: bool,
}

impl Driver {
    /// Takes the parts; what comes is to be handed to [`Driver::run`].
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
        let handle = store.handle().map_err(io::Error::other)?;
        let share = |all: usize| all.div_ceil(options.loops).max(1);
        let mut driver = Driver {
            number,
            handle,
            store,
            channels,
            messages: VecDeque::new(),
            reactor,
            listeners,
            deaf: Vec::new(),
            clients: Table::new(CLIENTS, share(options.clients_max)),
            origins: Table::new(ORIGINS, 0),
            backends: Vec::new(),
            asked: Vec::new(),
            turn: number as usize,
            queue: VecDeque::new(),
            waits: HashMap::new(),
            rooms: HashMap::new(),
            outcomes: VecDeque::new(),
            again: Vec::new(),
            unannounced: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            url: Vec::new(),
            note: Vec::new(),
            now: Now::default(),
            clock,
            counts: Counts::default(),
            shared,
            publish_ms: 0,
            gave_way_ms: 0,
            lifecycle,
            health,
            connections,
            follower,
            access_log: access_log.map(|log| log.another()),
            log_dropped_before: 0,
            told: Told::default(),
            tls_bridge,
            is_draining: false,
            is_drained: false,
            options,
        };
        driver.ask_origins();
        Ok((driver, batch))
    }

    /// How it talks to the kernel, and why not by io_uring, where that was wished for.
    pub fn io(&self) -> (reactor::Backend, Option<&str>) {
        (self.reactor.backend(), self.reactor.fallback())
    }

    /// Serves until told to stop. An error is the kernel's, and there is no going on.
    pub fn run(&mut self, batch: &mut Batch) -> io::Result<()> {
        let mut result = Ok(());
        while result.is_ok() && self.goes_on() {
            result = self.turn(batch);
        }
        self.channels.close(self.number);
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
                if !self.is_draining {
                    self.drain();
                }
                if !self.clients.is_empty() {
                    return true;
                }
                if !std::mem::replace(&mut self.is_drained, true) && self.shared.drained() {
                    self.channels.wake_all();
                }
                // Clients of others may read what comes here.
                !self.shared.are_all_drained()
            }
            Stage::Ends => false,
        }
    }

    /// Takes no new connections; those without a request have a moment for another.
    fn drain(&mut self) {
        self.is_draining = true;
        for (at, listener) in std::mem::take(&mut self.listeners).into_iter().enumerate() {
            self.reactor.unlisten(&listener, listener_token(at));
            // Who has connected already is not reset.
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

    /// Goes on with other settings.
    fn follow(&mut self, config: &Config) {
        let Config { options, health, access_log } = config.clone();
        if let Some(mut log) = self.access_log.take() {
            log.flush();
            self.log_dropped_before += log.dropped();
        }
        self.access_log = access_log.map(|log| log.another());
        (self.options, self.health) = (options, health);
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
        let wait = if self.channels.may_sleep(self.number) { wait } else { Duration::ZERO };
        self.reactor.wait(batch, Some(wait))?;
        self.tell_time();
        self.handle.sync(&self.store);
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
        self.handle.flush();
        self.look_at_clock();
        if let Some(log) = &mut self.access_log {
            log.flush_due(self.now.ms);
        }
        if self.now.ms >= self.publish_ms {
            self.publish();
        }
        Ok(())
    }

    /// How long nothing is to be done if nothing comes.
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
        // A millisecond more, so that what is waited for is over.
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
            Event::Received { token, bytes: octets } => {
                self.with_client_of(token, |driver, client| driver.receive(client, octets));
            }
            Event::Finished { token } => self.with_client_of(token, Driver::finished),
            Event::Sent { token } => self.with_client_of(token, Driver::sent),
            Event::Ready { token, .. } if self.origins.owns(token) => {
                self.with_origin_of(token, Driver::origin_ready);
                // What came goes on at once, while it is in the processor's cache and its memory is wanted for the next.
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
            self.counts.accept_failures += 1;
            self.counts.shortages += u64::from(is_shortage(error));
            let which = (token & ((1 << larder_io::table::ID_BITS) - 1)) as usize;
            self.deaf.push((which, self.now.ms + LISTEN_AGAIN_MS));
        }
    }

    fn read_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.channels.take(self.number, &mut messages);
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
                    // Who asked may have given up.
                    let _ = say.try_send(self.forget(&url));
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

    /// Gives answers to those who wait for them here.
    fn deliver_outcomes(&mut self) {
        while let Some((token, outcome)) = self.outcomes.pop_front() {
            self.with_client_of(token, |driver, client| driver.deliver(client, outcome));
        }
    }

    /// Lands a flight: clients of this loop in this turn, the others by message.
    fn complete_flight(&mut self, flight: &Arc<Flight>, outcome: &Outcome) {
        for waiter in flight.complete(outcome.clone()) {
            if waiter.loop_number == self.number {
                self.outcomes.push_back((waiter.client, outcome.clone()));
            } else {
                self.channels.tell(&[waiter], outcome);
            }
        }
    }

    /// Tells of octets that came a while ago, or of all.
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
        // Posts of this turn to this loop are in its own mail; they need no other turn.
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
        self.counts.clients_open = self.clients.len() as u64;
        self.counts.origins_open = self.origins.len() as u64;
        let dropped = self.access_log.as_ref().map_or(0, AccessLog::dropped);
        self.counts.log_dropped = self.log_dropped_before + dropped;
        self.shared.publish(self.number as usize, &self.counts);
    }

    fn with_client_of(&mut self, token: u64, act: impl FnOnce(&mut Driver, &mut Client) -> bool) {
        if let Some(id) = self.clients.id_of(token) {
            self.with_client(id, act);
        }
    }

    /// Does something with a client (invariant 1); where `act` says so it is gone then.
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

    /// The same for a connection to an origin.
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
