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
//! | `base` | what all of them use: the core, the kernel, the time, messages between tables |
//! | `listeners` | sockets at which connections are accepted |
//! | `clients` | connections of clients, and what each waits for |
//! | `clients::admission` | the client's address, and whether the client is accepted |
//! | `clients::requests` | from bytes to requests, and from decisions to responses |
//! | `clients::upload` | a request's body on its way to an origin |
//! | `clients::access` | lines of the access log |
//! | `delivery` | a body on its way to a client: leases, chunks, `sendfile` |
//! | `deliveries` | bodies that wait for more bytes, for memory, or for their next turn |
//! | `origins` | connections to origins, and those that wait for reuse |
//! | `origins::exchange` | a request on such a connection, and its response |
//! | `origins::abandon` | fetches whose clients left before a response came |
//!
//! Nothing in a turn waits, and no connection has a thread. A client that cannot receive more holds
//! what it has leased and no more; an origin whose body no client receives is not read. Event loops
//! send each other messages ([`LoopChannels`](crate::loop_channel::LoopChannels)).
//!
//! Clients, connections to origins, and bodies that wait have a table each, which nothing else
//! reaches into: what one table wants of another is a message (`base`).

mod base;
mod clients;
mod deliveries;
mod delivery;
mod listeners;
mod origins;

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use larder_io::reactor::{self, Batch, Event, Reactor};
use larder_mem::object::{News, Notice};
use larder_serve::lifecycle::{Lifecycle, Stage};

use self::base::{Base, Now, Outbox};
use self::clients::{Arrival, ClientEvent, Clients};
use self::deliveries::Deliveries;
use self::listeners::Listeners;
use self::origins::{Context, OriginEvent, Origins};
use crate::access_log::AccessLog;
use crate::common::Common;
use crate::core::Core;
use crate::counts::Shared;
use crate::descriptors::is_shortage;
use crate::loop_channel::Message;
use crate::reload::{Config, ConfigFollower};

/// Kinds of tokens.
const CLIENTS: u8 = 1;
const ORIGINS: u8 = 2;
const LISTENERS: u8 = 3;

/// The longest wait, milliseconds.
const WAIT_MS_MAX: u64 = 1_000;

/// How often counters are published, milliseconds.
const PUBLISH_MS: u64 = 100;

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
    base: Base,
    clients: Clients,
    origins: Origins,
    listeners: Listeners,
    messages: VecDeque<Message>,
    shared: Arc<Shared>,
    publish_ms: u64,
    lifecycle: Arc<Lifecycle>,
    follower: ConfigFollower,
    /// Lines that earlier logs dropped.
    log_dropped_before: u64,
    /// It has no clients any more.
    is_drained: bool,
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
            notes,
            ..
        } = common;
        let mut follower = config_watch.follower();
        let Config { options, health, access_log } = (*follower.current()).clone();
        let reactor_options = reactor::Options { choice: options.io, ..Default::default() };
        let (mut reactor, batch) = Reactor::new(&reactor_options)?;
        channels.set_waker(number, reactor.waker());
        let listeners = Listeners::new(listeners, &mut reactor)?;
        let clients_max = options.clients_max.div_ceil(options.loops).max(1);
        let mut driver = Driver {
            clients: Clients::new(clients_max, connections),
            origins: Origins::new(number, health.clone(), tls_bridge),
            base: Base {
                core: Core::new(number, options, store).map_err(io::Error::other)?,
                reactor,
                clock,
                now: Now::default(),
                deliveries: Deliveries::new(),
                outbox: Outbox::new(channels, number),
                access_log: access_log.map(|log| log.another()),
                notes: notes.map(|notes| notes.another()),
            },
            listeners,
            messages: VecDeque::new(),
            shared,
            publish_ms: 0,
            lifecycle,
            follower,
            log_dropped_before: 0,
            is_drained: false,
        };
        driver.with_origins(|origins, cx| origins.follow(cx, health));
        Ok((driver, batch))
    }

    /// How it waits for the kernel, and why not by io_uring, where that was wished for.
    pub fn io(&self) -> (reactor::Backend, Option<&str>) {
        (self.base.reactor.backend(), self.base.reactor.fallback())
    }

    /// Serves until it is told to stop. An error is the kernel's, and ends the event loop.
    pub fn run(&mut self, batch: &mut Batch) -> io::Result<()> {
        let mut result = Ok(());
        while result.is_ok() && self.goes_on() {
            result = self.turn(batch);
        }
        self.base.outbox.channels.close(self.base.core.number);
        self.publish();
        if let Some(log) = &mut self.base.access_log {
            log.flush();
        }
        result
    }

    fn goes_on(&mut self) -> bool {
        match self.lifecycle.get() {
            Stage::Serves => true,
            Stage::Drains => {
                if !self.base.core.is_draining {
                    self.drain();
                }
                if self.clients.len() > 0 {
                    return true;
                }
                if !std::mem::replace(&mut self.is_drained, true) && self.shared.drained() {
                    self.base.outbox.channels.wake_all();
                }
                // Clients of other event loops may read a body that is fetched here.
                !self.shared.are_all_drained()
            }
            Stage::Ends => false,
        }
    }

    /// Accepts no new connections; clients without a request may send another for a moment.
    fn drain(&mut self) {
        self.base.core.is_draining = true;
        for (stream, peer) in self.listeners.close(&mut self.base.reactor) {
            self.clients.accept(&mut self.base, Arrival::new(stream.into(), Some(peer)));
        }
        self.clients.drain(&mut self.base);
    }

    /// Continues with other settings.
    fn follow(&mut self, config: &Config) {
        let Config { options, health, access_log } = config.clone();
        if let Some(mut log) = self.base.access_log.take() {
            log.flush();
            self.log_dropped_before += log.dropped();
        }
        self.base.access_log = access_log.map(|log| log.another());
        self.base.core.options = options;
        self.with_origins(|origins, cx| origins.follow(cx, health));
    }

    fn turn(&mut self, batch: &mut Batch) -> io::Result<()> {
        self.base.update_time();
        let number = self.base.core.number;
        let may_sleep = self.base.outbox.channels.may_sleep(number);
        let wait = if may_sleep { self.wait() } else { Duration::ZERO };
        self.base.reactor.wait(batch, Some(wait))?;
        self.base.update_time();
        self.base.core.begin(self.base.now.wall_s);
        if let Some(config) = self.follower.take_next() {
            self.follow(&config);
        }
        while let Some(event) = batch.next() {
            self.handle(event);
        }
        self.read_messages();
        self.deliver_outcomes();
        for token in self.base.deliveries.take_again() {
            self.handle_client(token, ClientEvent::Ready);
        }
        if self.origins.announce(self.base.now.us) {
            // Notices of this turn to this event loop are in its own mailbox; they need no other
            // turn.
            self.read_messages();
        }
        self.deliver_outcomes();
        self.origins.make_room_for_waiters(&mut self.base);
        self.base.core.finish();
        self.clients.look_at_clock(&mut self.base);
        self.begin_fetches();
        self.with_origins(Origins::look_at_clock);
        self.listeners.listen_again(&mut self.base.reactor, self.base.now.ms);
        if let Some(log) = &mut self.base.access_log {
            log.flush_due(self.base.now.ms);
        }
        if self.base.now.ms >= self.publish_ms {
            self.publish();
        }
        Ok(())
    }

    /// How long there is nothing to do if nothing comes.
    fn wait(&self) -> Duration {
        let base = &self.base;
        if base.deliveries.has_again() || !base.outbox.outcomes.is_empty() {
            return Duration::ZERO;
        }
        let waits = [
            self.clients.wait_ms(base),
            self.origins.wait_ms(base),
            self.listeners.wait_ms(base.now.ms),
            base.access_log.as_ref().and_then(|log| log.wait_ms(base.now.ms)),
        ];
        let wait_ms = waits.into_iter().flatten().fold(WAIT_MS_MAX, u64::min);
        // A millisecond more, so that the time is over then.
        let wait_us = (wait_ms + 1) * 1_000;
        let announce_us = self.origins.announce_us(base.now.us);
        Duration::from_micros(announce_us.map_or(wait_us, |us| us.min(wait_us)))
    }

    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Accepted { socket, peer, .. } => {
                self.clients.accept(&mut self.base, Arrival::new(socket, peer));
            }
            Event::Received { token, bytes } => {
                self.handle_client(token, ClientEvent::Received(bytes));
            }
            Event::Finished { token } => self.handle_client(token, ClientEvent::Finished),
            Event::Sent { token } => self.handle_client(token, ClientEvent::Sent),
            Event::Ready { token, .. } if self.origins.owns(token) => {
                self.handle_origin(token, OriginEvent::Ready);
                // Bytes that came go on at once, while they are in the processor's cache and their
                // memory is wanted for the next.
                self.deliver_outcomes();
                self.read_messages();
            }
            Event::Ready { token, .. } => self.handle_client(token, ClientEvent::Ready),
            Event::Failed { token, error } => self.failed(token, &error),
            Event::Woken => {}
        }
    }

    fn failed(&mut self, token: u64, error: &io::Error) {
        if self.clients.owns(token) {
            self.handle_client(token, ClientEvent::Failed);
        } else if self.origins.owns(token) {
            self.handle_origin(token, OriginEvent::Ready);
        } else {
            self.base.core.counts.accept_failures += 1;
            self.base.core.counts.shortages += u64::from(is_shortage(error));
            self.listeners.has_failed(token, self.base.now.ms);
        }
    }

    fn read_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.base.outbox.channels.take(self.base.core.number, &mut messages);
        for message in messages.drain(..) {
            match message {
                Message::Outcome(client, outcome) => {
                    self.base.outbox.outcomes.push_back((client, outcome));
                }
                Message::Handoff(handoff) => {
                    let close_state = handoff.close_state.clone();
                    if self.clients.accept(&mut self.base, handoff.into()) {
                        close_state.set_taken();
                    }
                }
                Message::Abandoned(flight) => {
                    self.with_origins(|origins, cx| origins.abandon(cx, &flight));
                }
                Message::Forget(url, say) => {
                    // The operator who asked may have given up.
                    let _ = say.try_send(self.base.core.forget(&url));
                }
                Message::Notice(notice) => self.notice(&notice),
            }
        }
        self.messages = messages;
    }

    /// News of a body, for those that read it here, or fill it.
    fn notice(&mut self, notice: &Notice) {
        match notice.news {
            News::More => {
                for token in self.base.deliveries.take_readers(notice.object) {
                    self.go_on(token, OriginEvent::Ready);
                }
            }
            News::Room => {
                if let Some(token) = self.base.deliveries.filler(notice.object) {
                    self.go_on(token, OriginEvent::HasRoom);
                }
            }
        }
    }

    /// What a client or a connection to an origin waited for has come.
    fn go_on(&mut self, token: u64, event: OriginEvent) {
        if self.origins.owns(token) {
            self.handle_origin(token, event);
        } else {
            self.handle_client(token, ClientEvent::Ready);
        }
    }

    /// Gives outcomes to clients that wait here.
    fn deliver_outcomes(&mut self) {
        while let Some((token, outcome)) = self.base.outbox.outcomes.pop_front() {
            self.handle_client(token, ClientEvent::Outcome(outcome));
        }
    }

    fn handle_client(&mut self, token: u64, event: ClientEvent<'_>) {
        self.clients.handle(&mut self.base, token, event);
        self.begin_fetches();
    }

    fn handle_origin(&mut self, token: u64, event: OriginEvent) {
        self.with_origins(|origins, cx| origins.handle(cx, token, event));
    }

    fn with_origins(&mut self, act: impl FnOnce(&mut Origins, &mut Context<'_>)) {
        let Driver { base, clients, origins, .. } = self;
        act(origins, &mut Context { base, clients });
    }

    /// Begins the fetches that clients want, then aborts those that none wants any more.
    fn begin_fetches(&mut self) {
        // After a hit there are none.
        if !self.base.outbox.fetches.is_empty() || !self.base.outbox.departures.is_empty() {
            self.begin_and_abort();
        }
    }

    #[inline(never)]
    fn begin_and_abort(&mut self) {
        let Driver { base, clients, origins, .. } = self;
        while let Some(fetch) = base.outbox.fetches.pop_front() {
            origins.start(&mut Context { base, clients }, fetch);
        }
        while let Some(departure) = base.outbox.departures.pop_front() {
            origins.depart(&mut Context { base, clients }, &departure);
        }
    }

    fn publish(&mut self) {
        let Base { core, now, access_log, notes, .. } = &mut self.base;
        self.publish_ms = now.ms + PUBLISH_MS;
        core.counts.clients_open = self.clients.len() as u64;
        core.counts.origins_open = self.origins.len() as u64;
        if let Some(notes) = notes {
            notes.flush();
            core.counts.page_notes_dropped = notes.dropped();
        }
        core.counts.log_dropped =
            self.log_dropped_before + access_log.as_ref().map_or(0, AccessLog::dropped);
        self.shared.counts.publish(core.number as usize, &core.counts);
    }
}
