//! SIEVE (Zhang, Yang, Yue, Vigfusson, Rashmi, *SIEVE is simpler than LRU*, NSDI 2024).
//!
//! One queue, and a hand that walks from its oldest entry to its newest and then begins again. A hit marks an
//! entry; the hand takes marks away, and takes the first entry that has none. Unlike CLOCK's, what it passes
//! stays where it is. A new entry becomes the newest, without a mark.
//!
//! Bytes: 9 an entry. O(1) amortized: every step of the hand takes back a hit.

use larder::Error;
use larder::mem::Region;
use larder::policy::{Entries, EntryNumber, Replacement};

use super::list::Lists;

/// SIEVE. See the source's head for its rules.
#[derive(Debug)]
pub struct Sieve {
    lists: Lists<1>,
    marks: Region<u8>,
    /// Where the hand stands; the oldest when nowhere.
    hand: Option<EntryNumber>,
}

impl Sieve {
    /// For entry numbers below `numbers`.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        let marks = Region::new(numbers).map_err(Error::Memory)?;
        Ok(Sieve { lists: Lists::new(numbers)?, marks, hand: None })
    }

    #[inline]
    fn at_hand(&self) -> Option<EntryNumber> {
        self.hand.or_else(|| self.lists.oldest(0, None))
    }
}

impl Replacement for Sieve {
    #[inline]
    fn len(&self) -> u64 {
        self.lists.len(0)
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        self.lists.push(0, entry);
        self.marks[entry as usize] = 0;
    }

    #[inline]
    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }

    #[inline]
    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        self.marks[entry as usize] = 1;
    }

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        if self.hand == Some(entry) {
            self.hand = self.lists.newer(entry);
        }
        self.lists.remove(0, entry);
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        self.lists.rename(0, from, to);
        self.marks[to as usize] = self.marks[from as usize];
        if self.hand == Some(from) {
            self.hand = Some(to);
        }
    }

    #[inline]
    fn evict(&mut self, except: Option<EntryNumber>, _: &impl Entries) -> Option<EntryNumber> {
        // Without another entry the hand would go round for ever.
        self.lists.oldest(0, except)?;
        loop {
            let entry = self.at_hand()?;
            self.hand = self.lists.newer(entry);
            if Some(entry) == except {
                continue;
            }
            if self.marks[entry as usize] == 0 {
                self.lists.remove(0, entry);
                return Some(entry);
            }
            self.marks[entry as usize] = 0;
        }
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        let first = self.at_hand();
        [first, first.and_then(|first| self.lists.newer(first))]
    }

    #[inline]
    fn prefetch(&self, entry: EntryNumber) {
        self.lists.prefetch(entry);
    }

    fn validate(&self) -> Result<(), String> {
        self.lists.validate()?;
        match self.hand {
            Some(hand) if !self.lists.iter(0).any(|entry| entry == hand) => {
                Err(format!("the hand stands at {hand}, which is gone"))
            }
            _ => Ok(()),
        }
    }
}
