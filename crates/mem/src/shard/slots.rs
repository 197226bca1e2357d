//! Free slots: taken by writers, and given back.

use super::Main;
use crate::arena::OwnedSlot;

impl Main<'_> {
    /// Takes a free slot of `class`; `None` if there is none, limbo included. Prefetches the one that will most
    /// likely be next.
    #[inline]
    pub fn alloc(&mut self, class: u8) -> Option<OwnedSlot> {
        let id = self.books.pages.take(class).or_else(|| self.take_scarce(class))?;
        // Its memory is most likely in no cache yet.
        if let Some(next) = self.books.pages.upcoming(class) {
            self.core.arena.prefetch_lines(next, self.core.classes.size(class));
        }
        let mut slot = OwnedSlot::new(id, class, self.core.id);
        self.core.arena.clear(&mut slot);
        Some(slot)
    }

    /// A slot of a class that seems to have none: one that readers or leases have released since,
    /// or one of a page that is being emptied.
    fn take_scarce(&mut self, class: u8) -> Option<u32> {
        self.reclaim();
        if let Some(id) = self.books.pages.take(class) {
            return Some(id);
        }
        self.revisit_revoked(usize::MAX);
        let pages = &mut self.books.pages;
        pages.take(class).or_else(|| pages.take_draining(class))
    }

    /// Takes up to `count` free slots of `class`, into `slots`. Their lines are fetched in
    /// parallel, where [`Main::alloc`] in a loop would wait for each.
    pub fn alloc_many(&mut self, class: u8, count: usize, slots: &mut Vec<OwnedSlot>) {
        let first = slots.len();
        for _ in 0..count {
            let Some(id) = self.books.pages.take(class) else { break };
            self.core.arena.prefetch(id);
            slots.push(OwnedSlot::new(id, class, self.core.id));
        }
        for slot in &mut slots[first..] {
            self.core.arena.clear(slot);
        }
        if slots.len() == first {
            slots.extend(self.alloc(class));
        }
    }

    /// Returns an owned slot. It was never published, so it is free at once.
    pub fn free(&mut self, slot: OwnedSlot) {
        assert_eq!(slot.shard(), self.core.id, "a slot goes back to the shard it came from");
        self.books.pages.give_back(slot.id());
    }
}
