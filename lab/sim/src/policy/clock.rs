//! CLOCK: first in, first out, with another round for what was hit (Corbató, *A paging experiment with the
//! Multics system*, 1969).
//!
//! Each entry counts its hits up to `count_max`; the hand takes the first entry of count 0 and lowers the
//! counts of those that it passes by one. A maximum of 1 is the classic second chance; with 3 (two bits) an
//! entry may be passed three times. A new entry begins with 0, just behind the hand.
//!
//! Bytes: 9 an entry. O(1) amortized: every step of the hand takes back a hit.

use larder::Error;
use larder::mem::Region;
use larder::policy::{Entries, EntryNumber, Replacement};

use super::list::Lists;

/// CLOCK. See the source's head for its rules.
#[derive(Debug)]
pub struct Clock {
    lists: Lists<1>,
    counts: Region<u8>,
    count_max: u8,
}

impl Clock {
    /// For entry numbers below `numbers`; `count_max` is 1 for the classic one.
    pub fn new(numbers: usize, count_max: u8) -> Result<Self, Error> {
        let counts = Region::new(numbers).map_err(Error::Memory)?;
        Ok(Clock { lists: Lists::new(numbers)?, counts, count_max })
    }
}

impl Replacement for Clock {
    #[inline]
    fn len(&self) -> u64 {
        self.lists.len(0)
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        self.lists.push(0, entry);
        self.counts[entry as usize] = 0;
    }

    #[inline]
    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }

    #[inline]
    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        let count = &mut self.counts[entry as usize];
        *count = (*count + 1).min(self.count_max);
    }

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        self.lists.remove(0, entry);
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        self.lists.rename(0, from, to);
        self.counts[to as usize] = self.counts[from as usize];
    }

    #[inline]
    fn evict(&mut self, except: Option<EntryNumber>, _: &impl Entries) -> Option<EntryNumber> {
        loop {
            let oldest = self.lists.oldest(0, except)?;
            let count = &mut self.counts[oldest as usize];
            if *count == 0 {
                self.lists.remove(0, oldest);
                return Some(oldest);
            }
            *count -= 1;
            self.lists.renew(0, 0, oldest);
        }
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
        self.lists.validate()?;
        match self.lists.iter(0).find(|&entry| self.counts[entry as usize] > self.count_max) {
            Some(entry) => Err(format!("entry {entry} counts above {}", self.count_max)),
            None => Ok(()),
        }
    }
}
