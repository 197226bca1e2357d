//! Free slots and pages of a shard: what writers may hold, and what is emptied while few are free.

use larder_mem::OwnedSlot;

use super::Engine;
use crate::error::Error;
use crate::index::find;

/// Slots moved per operation while memory is low.
const MOVES_PER_STEP: usize = 8;
/// Bytes of slots of a class that a writer takes at a time, at most, while few pages are free. Taking one slot at a
/// time would mean one lock per slot.
const SPARE_BYTES_TIGHT: usize = 512;
/// Slots of a class taken at a time, at most.
const SPARE_SLOTS_MAX: usize = 32;

impl Engine<'_> {
    /// Empties sparse pages, a few slots per step, while few pages are free. Changes where entries
    /// are in memory, never which entries there are.
    pub(super) fn maintain(&mut self) {
        if !self.main.is_low(self.state.limits.pages_low) {
            return;
        }
        if self.state.drain_rest > 0 {
            self.state.drain_rest -= 1;
            return;
        }
        let spare = self.shard.config().log_records as u64 / 4;
        for step in 0..MOVES_PER_STEP {
            if self.main.reserve(spare).is_err() || !self.move_one(true) {
                // The search for a page to empty walks all pages, so it runs rarely.
                self.state.drain_rest = if step == 0 { self.main.page_use().total / 4 } else { 0 };
                return;
            }
        }
    }

    /// Copies one slot out of the page that is being emptied; false if there is none.
    fn move_one(&mut self, start: bool) -> bool {
        let Some(ticket) = self.main.next_to_move(start) else { return false };
        let key = self.main.slot_to_move(&ticket).key();
        let hash = self.state.hasher.hash(key);
        let Some(found) = find(&self.main, &self.state.placement, hash, key) else { return false };
        let (bucket, way) = (found.bucket, found.way);
        debug_assert!(self.main.leads_to(bucket, way, &ticket), "a key has one live slot");
        let moved = self.main.copy_forward(bucket, way);
        self.state.counts.moved_slots += u64::from(moved);
        moved
    }

    /// True while few pages are free. Writers then take few slots in reserve. Where entries are replaced all the time,
    /// that is the normal state: the other pages that are not needed wait for readers.
    pub fn is_tight(&self) -> bool {
        self.main.page_use().free < self.state.limits.pages_low / 2
    }

    /// True while writers own more than what makes pages few. Each then returns the slots that it does not need at
    /// once; otherwise those that pause would leave none to others.
    pub fn is_hoarded(&self) -> bool {
        let few = u64::from(self.state.limits.pages_low / 2);
        self.main.page_use().owned_bytes > few * self.shard.config().page_bytes as u64
    }

    /// How many spare slots of a class a writer may take now: few if pages are few.
    pub fn ample(&self, class: u8) -> usize {
        let most = self.state.limits.spare_bytes;
        let bytes = if self.is_tight() { SPARE_BYTES_TIGHT.min(most) } else { most };
        (bytes / self.shard.classes().size(class)).clamp(1, SPARE_SLOTS_MAX)
    }

    /// A free slot of `class`, if necessary by emptying a page now. The error states whether readers hold what
    /// is missing.
    #[cold]
    pub fn alloc(&mut self, class: u8) -> Result<OwnedSlot, Error> {
        loop {
            let before = self.main.slowest();
            if let Some(slot) = self.find_slot(class) {
                return Ok(slot);
            }
            match self.main.slowest() {
                stalled if stalled.behind > 0 => return Err(stalled.into()),
                // The reader caught up meanwhile, so its slots are free now.
                _ if before.behind > 0 => {}
                _ => return Err(Error::Starved),
            }
        }
    }

    fn find_slot(&mut self, class: u8) -> Option<OwnedSlot> {
        // Two rounds: the page that is already half empty may be of this class.
        for _ in 0..2 {
            if let Some(slot) = self.main.alloc(class) {
                return Some(slot);
            }
            let mut start = true;
            while self.main.reserve(1).is_ok() && self.move_one(start) {
                start = false;
            }
        }
        self.main.alloc(class)
    }
}

#[cfg(test)]
mod tests {
    use crate::build::Builder;
    use crate::cache::Cache;
    use crate::stats::PageUse;
    use crate::time::{Seconds, Ttl};

    const NOW: Seconds = Seconds(1);
    /// Of the cache below: pages that hold no entries.
    const RESERVE_BYTES: u64 = 14 * 2048;

    /// Writers that take turns with entries of nine sizes. How the pages are used afterwards.
    fn after_turns_of(writers: usize, builder: Builder) -> PageUse {
        let builder = builder.budget(3 << 19).shards(1).readers_max(8).entry_bytes_mean(35);
        let cache = builder.build().unwrap();
        let mut writers: Vec<_> = (0..writers).map(|_| cache.writer()).collect();
        for number in 0..100_000u32 {
            let turn = number as usize / 100 % writers.len();
            let value = &[0; 40][..8 + number as usize % 31];
            writers[turn].insert(&number.to_be_bytes(), value, Ttl::FOREVER, NOW).unwrap();
            writers[turn].flush().unwrap();
        }
        cache.stats().unwrap().pages
    }

    /// Writers that pause own a small part of the reserve, so that those that work find slots
    /// without a search. If there are more than was planned for, they give slots back.
    #[test]
    fn pausing_writers_own_little() {
        for (writers, parts) in [(1, 16), (8, 3), (100, 2)] {
            let used = after_turns_of(writers, Cache::builder().for_cores(4));
            assert!(used.owned_bytes <= RESERVE_BYTES / parts, "{writers} writers: {used:?}");
        }
        // Of a cache whose writers work in batches, each may have more.
        for writers in [1, 8, 100] {
            let used = after_turns_of(writers, Cache::builder());
            assert!(used.owned_bytes <= RESERVE_BYTES, "{writers} writers: {used:?}");
        }
    }
}
