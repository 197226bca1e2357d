//! Limits of one zone and one server, so that slow servers leave room for the queries of other
//! zones. Invariant 5 of `resolver`.

use super::task::Task;
use super::{Resolver, decrease};
use crate::names::and_above;

/// Under load, the part of all queries in flight that a zone may have, and a server: one in this many.
const ZONE_SHARE: usize = 8;
pub(super) const SERVER_SHARE: usize = 4;

impl<C> Resolver<C> {
    /// True if more than half of the queries that may be in flight are.
    pub(super) fn is_half_full(&self) -> bool {
        self.clients > self.options.queries_max.max(1) / 2
    }

    /// True if the limits apply to the zone of a task. They do not for the root and top levels,
    /// which serve all queries.
    pub(super) fn is_limited(task: &Task<C>) -> bool {
        and_above(task.zone()).count() > 2
    }

    /// The queries in one of this many parts of the maximum.
    pub(super) fn share(&self, parts: usize) -> usize {
        (self.options.queries_max / parts).max(1)
    }

    /// Counts a task in its zone. Returns false if the zone is at its limit.
    pub(super) fn enter_zone(&mut self, task: &mut Task<C>) -> bool {
        let count = self.in_zone.get(task.zone()).copied().unwrap_or(0);
        if count >= self.share(ZONE_SHARE) && self.is_half_full() && Self::is_limited(task) {
            self.counts.crowded += 1;
            return false;
        }
        match self.in_zone.get_mut(task.zone()) {
            Some(count) => *count += 1,
            None => {
                self.in_zone.insert(task.zone().into(), 1);
            }
        }
        task.is_counted_in_zone = true;
        true
    }

    pub(super) fn leave_zone(&mut self, task: &mut Task<C>) {
        if std::mem::take(&mut task.is_counted_in_zone) {
            decrease(&mut self.in_zone, task.zone());
        }
    }
}
