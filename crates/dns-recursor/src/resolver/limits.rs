//! The share of all queries in flight that one zone and one server may have.

use super::task::Task;
use super::{Resolver, decrease};
use crate::names::and_above;

/// The share of all questions that a zone may have in flight where they are scarce, and a server.
const ZONE_SHARE: usize = 8;
pub(super) const SERVER_SHARE: usize = 4;

impl<C> Resolver<C> {
    /// True where half of all questions that may be in flight are: the rest is shared out.
    pub(super) fn is_half_full(&self) -> bool {
        self.clients > self.options.queries_max.max(1) / 2
    }

    /// True where a task's zone has no more than its share: not the root or a top level, where everybody passes.
    pub(super) fn is_limited(task: &Task<C>) -> bool {
        and_above(task.zone()).count() > 2
    }

    /// How many there may be of so many parts of all questions.
    pub(super) fn share(&self, parts: usize) -> usize {
        (self.options.queries_max / parts).max(1)
    }

    /// A task begins to ask servers of its zone. False where too many do.
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
