//! Least recently used: a hit, read or write, makes an entry the newest. 8 bytes per entry.

use larder::Error;
use larder::policy::{Entries, EntryNumber, Replacement};

use super::list::Lists;

/// Least recently used.
#[derive(Debug)]
pub struct Lru {
    lists: Lists<1>,
}

impl Lru {
    /// For entry numbers below `numbers`.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        Ok(Lru { lists: Lists::new(numbers)? })
    }
}

impl Replacement for Lru {
    #[inline]
    fn len(&self) -> u64 {
        self.lists.len(0)
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        self.lists.push(0, entry);
    }

    #[inline]
    fn updated(&mut self, entry: EntryNumber) {
        self.lists.renew(0, 0, entry);
    }

    #[inline]
    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        self.lists.renew(0, 0, entry);
    }

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        self.lists.remove(0, entry);
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        self.lists.rename(0, from, to);
    }

    #[inline]
    fn evict(&mut self, except: Option<EntryNumber>, _: &impl Entries) -> Option<EntryNumber> {
        let victim = self.lists.oldest(0, except)?;
        self.lists.remove(0, victim);
        Some(victim)
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        self.lists.oldest_two(0)
    }

    #[inline]
    fn prefetch(&self, entry: EntryNumber) {
        self.lists.prefetch(entry);
    }

    fn validate(&self) -> Result<(), String> {
        self.lists.validate()
    }
}
