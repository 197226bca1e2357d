//! What the tables of an event loop use in common: the core, the kernel, the time, and the messages
//! of one table to another.
//!
//! ```text
//! clients -> fetches, departures -> origins, as soon as the client's event has been handled
//! both    -> outcomes            -> clients, later in the turn
//! both    -> outcomes, departures for other event loops -> their mailboxes
//! ```
//!
//! Invariant: no handler of a table runs inside a handler of another one. A departure is read after
//! the fetches that were wanted before it, so it finds its fetch.

use std::collections::VecDeque;
use std::sync::Arc;

use larder_io::clock::Clock;
use larder_io::reactor::Reactor;

use super::clients::Clients;
use super::deliveries::Deliveries;
use crate::access_log::AccessLog;
use crate::coalescing::{Flight, Left, Outcome, Waiter};
use crate::core::{Core, Fetch, Net};
use crate::loop_channel::{LoopChannels, Message};
use crate::notes::Notes;

/// A point in time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Now {
    pub us: u64,
    pub ms: u64,
    /// Since 1970.
    pub wall_s: u64,
}

/// What clients and connections to origins both use.
#[derive(Debug)]
pub struct Base {
    pub core: Core,
    pub reactor: Reactor,
    pub clock: Clock,
    pub now: Now,
    pub deliveries: Deliveries,
    pub outbox: Outbox,
    pub access_log: Option<AccessLog>,
    /// Exchanges for the page.
    pub notes: Option<Notes>,
}

impl Base {
    /// An exchange begins: how many the page's note of it stands for; 0: it is not noted.
    #[inline]
    pub fn draw(&mut self) -> u32 {
        self.notes.as_mut().map_or(0, Notes::draw)
    }

    pub fn update_time(&mut self) {
        let us = self.clock.us();
        let wall_s = self.clock.unix_us(us) / 1_000_000;
        self.now = Now { us, ms: us / 1_000, wall_s };
    }

    /// The core, and what it asks of this event loop.
    pub fn split<'a>(&'a mut self, clients: &'a Clients) -> (&'a mut Core, Wire<'a>) {
        (&mut self.core, Wire { outbox: &mut self.outbox, clients })
    }
}

/// A fetch whose last client left before its response came.
#[derive(Debug)]
pub enum Departure {
    /// Of this client alone.
    Own(u64),
    /// A shared fetch.
    Shared(Arc<Flight>),
}

/// Messages between the tables, and to other event loops.
#[derive(Debug)]
pub struct Outbox {
    pub channels: LoopChannels,
    loop_number: u32,
    /// Fetches that the core wants.
    pub fetches: VecDeque<Box<Fetch>>,
    pub departures: VecDeque<Departure>,
    /// Outcomes for clients of this event loop.
    pub outcomes: VecDeque<(u64, Outcome)>,
}

impl Outbox {
    pub fn new(channels: LoopChannels, loop_number: u32) -> Outbox {
        let (fetches, departures, outcomes) = Default::default();
        Outbox { channels, loop_number, fetches, departures, outcomes }
    }

    /// A client that waited is gone: for a shared fetch, or for one of its own.
    pub fn leave(&mut self, flight: Option<Arc<Flight>>, client: u64) {
        let Some(flight) = flight else { return self.departures.push_back(Departure::Own(client)) };
        match flight.leave(Waiter { loop_number: self.loop_number, client }) {
            Left::Others => {}
            Left::Nobody { home } if home == self.loop_number => {
                self.departures.push_back(Departure::Shared(flight));
            }
            Left::Nobody { home } => self.channels.post(home, Message::Abandoned(flight)),
        }
    }
}

/// What the core asks of its event loop: fetches begin when it has returned, outcomes come later in
/// the turn.
pub struct Wire<'a> {
    outbox: &'a mut Outbox,
    clients: &'a Clients,
}

impl Net for Wire<'_> {
    fn fetch(&mut self, fetch: Box<Fetch>) {
        self.outbox.fetches.push_back(fetch);
    }

    fn complete(&mut self, waiter: Waiter, outcome: Outcome) {
        if waiter.loop_number == self.outbox.loop_number {
            self.outbox.outcomes.push_back((waiter.client, outcome));
        } else {
            self.outbox.channels.notify(waiter, outcome);
        }
    }

    fn is_connected(&self, client: u64) -> bool {
        self.clients.has(client)
    }
}
