//! Least recently used: a hit, read or write, makes an entry the newest. 8 bytes per entry.
//!
//! Read reports come late and once per epoch, so "recently" is as precise as the reports.

use larder_mem::Memory;

use super::list::Lists;
use super::{Entries, EntryNumber, Replacement, unmapped};
use crate::error::Error;

/// Least recently used.
#[derive(Debug)]
pub struct Lru {
    pub(super) lists: Lists<1>,
}

impl Lru {
    /// For entry numbers below `numbers`.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        Self::new_in(&unmapped()?, numbers)
    }

    pub(super) fn new_in(memory: &Memory, numbers: usize) -> Result<Self, Error> {
        Ok(Lru { lists: Lists::new(memory, numbers)? })
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
