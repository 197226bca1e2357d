//! Main copies live slots out of pages that are nearly empty, so that those pages become free.

use super::Main;
use crate::arena::Slot;

/// Identifies a live slot that should be copied to another page. Valid until the next change.
#[derive(Debug)]
pub struct ToMove {
    id: u32,
    shard: u32,
}

impl Main<'_> {
    /// True while fewer than `pages_low` pages are free, or a page is half drained: time for
    /// [`Main::next_to_move`].
    #[inline]
    pub fn is_low(&self, pages_low: u32) -> bool {
        self.books.pages.is_low(pages_low)
    }

    /// A live slot of the page that is being emptied, which should be copied elsewhere by
    /// [`Main::copy_forward`]. If no page is being emptied, `start` chooses one.
    pub fn next_to_move(&mut self, start: bool) -> Option<ToMove> {
        let id = self.books.pages.next_to_move(start)?;
        Some(ToMove { id, shard: self.core.id })
    }

    /// The slot that should move.
    pub fn slot_to_move(&self, ticket: &ToMove) -> Slot<'_> {
        assert_eq!(ticket.shard, self.core.id, "a ticket is used in the shard that gave it");
        assert!(self.books.pages.is_live(ticket.id), "a ticket is used before the next change");
        // SAFETY: the slot is live, and retiring it needs `&mut self`, which the view excludes.
        unsafe { self.core.arena.view(ticket.id) }
    }

    /// True if this way leads to the slot that should move.
    pub fn leads_to(&self, bucket: usize, way: usize, ticket: &ToMove) -> bool {
        let line = &self.table()[bucket];
        line.tag(way) != 0 && line.slot(way) == ticket.id
    }

    /// Copies a way's slot to another of its class, and retires the old one. One record; `false`,
    /// and nothing changed, if the class has no free slot.
    pub fn copy_forward(&mut self, bucket: usize, way: usize) -> bool {
        let line = &self.table()[bucket];
        assert!(line.tag(way) != 0, "only an occupied way is copied");
        let (tag_word, id) = (line.tag(way), line.slot(way));
        let class = self.books.pages.class_of(id);
        let Some(mut copy) = self.alloc(class) else { return false };
        {
            // SAFETY: the slot is live until `put` below retires it, and we hold the lock.
            let old = unsafe { self.core.arena.view(id) };
            let (key, value) = (old.key(), old.value());
            let size = self.core.classes.size(class);
            self.core.arena.begin(&mut copy, key, value.len(), size).copy_from_slice(value);
            let key_len = key.len() as u8;
            let (value_len, version) = (value.len() as u16, old.version());
            self.core.arena.finish(&mut copy, key_len, value_len, old.expires(), version);
        }
        self.put(bucket, way, tag_word, copy);
        true
    }
}
