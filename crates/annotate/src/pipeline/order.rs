//! The order of steps, checked in debug builds before each task is given.

use super::Schedule;

impl Schedule {
    /// Invariant 1 of `pipeline`.
    pub(super) fn is_in_order(&self, depth: u64) -> bool {
        self.flows_next.iter().all(|next| (self.write_next..=self.edge_next).contains(next))
            && self.edge_next <= self.read_next
            && self.read_next <= self.write_next + depth
    }
}
