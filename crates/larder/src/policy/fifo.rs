//! First in, first out: an update does not move an entry, and a read changes nothing. 8 bytes per
//! entry.

use larder_mem::Memory;

use super::list::Lists;
use super::{Entries, EntryNumber, Replacement, unmapped};
use crate::error::Error;

/// First in, first out.
#[derive(Debug)]
pub struct Fifo {
    pub(super) lists: Lists<1>,
}

impl Fifo {
    /// For entry numbers below `numbers`.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        Self::new_in(&unmapped()?, numbers)
    }

    pub(super) fn new_in(memory: &Memory, numbers: usize) -> Result<Self, Error> {
        Ok(Fifo { lists: Lists::new(memory, numbers)? })
    }
}

impl Replacement for Fifo {
    #[inline]
    fn len(&self) -> u64 {
        self.lists.len(0)
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        self.lists.push(0, entry);
    }

    #[inline]
    fn updated(&mut self, _entry: EntryNumber) {}

    #[inline]
    fn hit(&mut self, _entry: EntryNumber, _lag: u64) {}

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
