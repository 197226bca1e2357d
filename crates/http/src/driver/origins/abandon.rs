//! Fetches whose clients left before a response came.
//!
//! ```text
//! for one client                aborted
//! shared, Drop                  aborted
//!         Finish                goes on
//!         FinishUpTo            goes on, as one of at most half of its origin's connections; the oldest
//!                               of more is aborted. One without a connection yet is not sent at all
//! shared, for no client at all  goes on
//! ```
//!
//! So clients that ask and leave at once, again and again, do not keep an origin from the others. A
//! connection whose response has not come is of no use for another request, and is closed.
//!
//! An origin may have done what an aborted request asked for: the cached response of its URL is
//! deleted, as it is where the origin reports success.
//!
//! Cost: a look at each of the event loop's connections, and at the queue, for each such client.

use std::sync::Arc;

use larder_io::table::Id;

use super::super::base::Departure;
use super::{Context, Origin, Origins, share};
use crate::coalescing::Flight;
use crate::core::{Fetch, Purpose};
use crate::options::Abandoned;

impl Origins {
    /// The last client that waited for a fetch is gone.
    pub fn depart(&mut self, cx: &mut Context<'_>, departure: &Departure) {
        match departure {
            Departure::Own(client) => self.break_off_of(cx, *client),
            Departure::Shared(flight) => self.abandon(cx, flight),
        }
    }

    /// The fetch of one client, which has left.
    fn break_off_of(&mut self, cx: &mut Context<'_>, client: u64) {
        let is_its = |fetch: &Fetch| match fetch.purpose {
            Purpose::Private { client: its, .. } => its == client,
            Purpose::Shared { .. } => false,
        };
        match self.place_of(is_its) {
            Some((id, _)) => self.break_off(cx, id),
            None => self.unqueue(cx, is_its),
        }
    }

    /// No client waits for a fetch of this event loop; unless one came meanwhile.
    pub fn abandon(&mut self, cx: &mut Context<'_>, flight: &Arc<Flight>) {
        let held_max = match cx.base.core.options.abandoned {
            Abandoned::Finish => return,
            Abandoned::Drop => 0,
            Abandoned::FinishUpTo(_) => share(&cx.base.core.options) / 2,
        };
        let is_its = |fetch: &Fetch| fetch.flight().is_some_and(|it| Arc::ptr_eq(it, flight));
        let Some((_, backend)) = self.place_of(is_its) else {
            if cx.base.core.store.flights.give_up(flight) {
                self.unqueue(cx, is_its);
            }
            return;
        };
        let mut abandoned: Vec<(u64, Id, Arc<Flight>)> = self
            .requesting()
            .filter(|(_, origin)| origin.backend == backend)
            .filter_map(|(id, origin)| {
                let fetch = origin.requested_fetch()?;
                let flight = fetch.flight().filter(|it| it.is_abandoned())?;
                Some((fetch.serial, id, flight.clone()))
            })
            .collect();
        let excess = abandoned.len().saturating_sub(held_max);
        abandoned.sort_unstable_by_key(|(serial, ..)| *serial);
        for (_, id, flight) in abandoned.into_iter().take(excess) {
            if cx.base.core.store.flights.give_up(&flight) {
                self.break_off(cx, id);
            }
        }
    }

    /// Connections to origins.
    fn requesting(&self) -> impl Iterator<Item = (Id, &Origin)> {
        self.table.ids().filter_map(|id| Some((id, self.table.get(id)?.as_deref()?)))
    }

    /// The connection of a fetch, and its origin.
    fn place_of(&self, is_it: impl Fn(&Fetch) -> bool) -> Option<(Id, usize)> {
        let mut requesting = self.requesting();
        let on = requesting.find(|(_, origin)| origin.requested_fetch().is_some_and(&is_it));
        on.map(|(id, origin)| (id, origin.backend))
    }

    /// Closes a connection and gives up its fetch.
    fn break_off(&mut self, cx: &mut Context<'_>, id: Id) {
        self.with(cx, id, |_, cx, origin| {
            cx.base.core.counts.fetches_abandoned += 1;
            let fetch = origin.fetch.take().filter(|_| origin.has_sent());
            if let Some(fetch) = fetch {
                cx.base.core.aborted(&fetch);
            }
            false
        });
    }

    /// Gives up a fetch in the queue. The last one that a client left is most likely near the end.
    fn unqueue(&mut self, cx: &mut Context<'_>, is_it: impl Fn(&Fetch) -> bool) {
        if let Some(at) = self.queue.iter().rposition(|fetch| is_it(fetch)) {
            self.queue.remove(at);
            cx.base.core.counts.fetches_abandoned += 1;
        }
    }
}
