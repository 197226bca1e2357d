//! Fetches whose clients left before a head came.
//!
//! ```text
//! one client's own          broken off
//! asked for all, Drop       broken off
//!                Finish     goes on
//!                FinishUpTo goes on, as one of as many as half of its origin's connections; the oldest of more is broken off.
//!                           One that has no connection yet is not asked at all
//! asked for nobody          goes on
//! ```
//!
//! So whoever asks and leaves at once, again and again, does not keep an origin from the others. A connection whose answer has not come
//! is of no use for another request, and is closed.
//!
//! What an origin was asked to change it may have changed: what is kept of it is forgotten, as it is where the origin says so.
//!
//! Cost: a look at each of the loop's connections, and where it is on none at the queue, for each client that leaves so.

use std::sync::Arc;

use larder_io::table::Id;

use super::Driver;
use super::fetch::{Fetch, Purpose};
use super::origins::Origin;
use crate::coalescing::{Flight, Left, Waiter};
use crate::freshness::is_unsafe;
use crate::loop_channel::Message;
use crate::options::Abandoned;

impl Driver {
    /// A client that waited is gone: with others, or alone.
    pub(super) fn leave(&mut self, flight: Option<Arc<Flight>>, client: u64) {
        let Some(flight) = flight else { return self.break_off_of(client) };
        match flight.leave(Waiter { loop_number: self.number, client }) {
            Left::Others => {}
            Left::Nobody { home } if home == self.number => self.abandon(&flight),
            Left::Nobody { home } => self.channels.post(home, Message::Abandoned(flight)),
        }
    }

    /// The fetch of one client, which has left.
    fn break_off_of(&mut self, client: u64) {
        let is_its = |fetch: &Fetch| match fetch.purpose {
            Purpose::Private { client: its, .. } => its == client,
            Purpose::Shared { .. } => false,
        };
        match self.place_of(is_its) {
            Some((id, _)) => self.break_off(id),
            None => self.unqueue(is_its),
        }
    }

    /// Nobody waits for what this loop fetches; unless somebody came meanwhile.
    pub(super) fn abandon(&mut self, flight: &Arc<Flight>) {
        let held_max = match self.options.abandoned {
            Abandoned::Finish => return,
            Abandoned::Drop => 0,
            Abandoned::FinishUpTo(_) => self.share() / 2,
        };
        let is_its = |fetch: &Fetch| fetch.flight().is_some_and(|it| Arc::ptr_eq(it, flight));
        let Some((_, backend)) = self.place_of(is_its) else {
            if self.store.flights.give_up(flight) {
                self.unqueue(is_its);
            }
            return;
        };
        let mut abandoned: Vec<(u64, Id, Arc<Flight>)> = self
            .asking()
            .filter(|(_, origin)| origin.backend() == backend)
            .filter_map(|(id, origin)| {
                let fetch = origin.asks()?;
                let flight = fetch.flight().filter(|it| it.is_abandoned())?;
                Some((fetch.serial, id, flight.clone()))
            })
            .collect();
        let excess = abandoned.len().saturating_sub(held_max);
        abandoned.sort_unstable_by_key(|(serial, ..)| *serial);
        for (_, id, flight) in abandoned.into_iter().take(excess) {
            if self.store.flights.give_up(&flight) {
                self.break_off(id);
            }
        }
    }

    /// Connections to origins.
    fn asking(&self) -> impl Iterator<Item = (Id, &Origin)> {
        self.origins.ids().filter_map(|id| Some((id, self.origins.get(id)?.as_deref()?)))
    }

    /// The connection on which this is asked, and its origin.
    fn place_of(&self, is_it: impl Fn(&Fetch) -> bool) -> Option<(Id, usize)> {
        let mut asking = self.asking();
        let on = asking.find(|(_, origin)| origin.asks().is_some_and(&is_it));
        on.map(|(id, origin)| (id, origin.backend()))
    }

    /// A connection on which something is asked is closed, and that is not asked again.
    fn break_off(&mut self, id: Id) {
        self.with_origin(id, |driver, origin| {
            driver.counts.fetches_abandoned += 1;
            let fetch = origin.fetch.take().filter(|_| origin.has_asked());
            if let Some(fetch) = fetch.filter(|fetch| is_unsafe(&fetch.method)) {
                driver.invalidate(&fetch.url, &[]);
            }
            false
        });
    }

    /// What waits for a connection is not asked. What left last came last, most likely.
    fn unqueue(&mut self, is_it: impl Fn(&Fetch) -> bool) {
        if let Some(at) = self.queue.iter().rposition(|fetch| is_it(fetch)) {
            self.queue.remove(at);
            self.counts.fetches_abandoned += 1;
        }
    }
}
