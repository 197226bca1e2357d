//! Random replacement.
//!
//! Any entry leaves, each with the same chance; hits change nothing. Bytes: 8 an entry number.

use larder::Error;
use larder::policy::{Entries, EntryNumber, Replacement};
use larder_mem::Region;

use crate::trace::random;

/// Random replacement.
#[derive(Debug)]
pub struct Random {
    /// The entries, in no order that means anything: the first `len`.
    entries: Region<u32>,
    /// Where in `entries` each entry is.
    positions: Region<u32>,
    len: u64,
    generator: random::Random,
}

impl Random {
    /// For entry numbers below `numbers`. The same seed makes the same choices.
    pub fn new(numbers: usize, seed: u64) -> Result<Self, Error> {
        let entries = Region::new(numbers).map_err(Error::Memory)?;
        let positions = Region::new(numbers).map_err(Error::Memory)?;
        Ok(Random { entries, positions, len: 0, generator: random::Random::from_counter(seed) })
    }

    #[inline]
    fn set(&mut self, position: u32, entry: EntryNumber) {
        self.entries[position as usize] = entry;
        self.positions[entry as usize] = position;
    }
}

impl Replacement for Random {
    #[inline]
    fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        self.set(self.len as u32, entry);
        self.len += 1;
    }

    #[inline]
    fn updated(&mut self, _entry: EntryNumber) {}

    #[inline]
    fn hit(&mut self, _entry: EntryNumber, _lag: u64) {}

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        self.len -= 1;
        let last = self.entries[self.len as usize];
        self.set(self.positions[entry as usize], last);
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        self.set(self.positions[from as usize], to);
    }

    #[inline]
    fn evict(&mut self, except: Option<EntryNumber>, _: &impl Entries) -> Option<EntryNumber> {
        // The one excepted stands aside at the end.
        let mut choices = self.len;
        if let Some(except) = except {
            choices = choices.checked_sub(1)?;
            let last = self.entries[choices as usize];
            self.set(self.positions[except as usize], last);
            self.set(choices as u32, except);
        }
        if choices == 0 {
            return None;
        }
        let victim = self.entries[self.generator.below(choices).0 as usize];
        self.removed(victim);
        Some(victim)
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        let mut later = self.generator.clone();
        let next = |_| self.entries[later.below(self.len).0 as usize];
        if self.len == 0 { [None; 2] } else { [(), ()].map(next).map(Some) }
    }

    fn validate(&self) -> Result<(), String> {
        for position in 0..self.len as u32 {
            let entry = self.entries[position as usize];
            if self.positions[entry as usize] != position {
                return Err(format!("entry {entry} is not at {position}"));
            }
        }
        Ok(())
    }
}
