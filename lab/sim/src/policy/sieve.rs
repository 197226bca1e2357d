//! SIEVE (Zhang, Yang, Yue, Vigfusson, Rashmi, *SIEVE is simpler than LRU*, NSDI 2024).
//!
//! One queue, and a hand that walks from its oldest entry to its newest and then begins again. A hit marks an
//! entry; the hand takes marks away, and takes the first entry that has none. Unlike CLOCK's, what it passes
//! stays where it is. A new entry becomes the newest, without a mark.
//!
//! O(1) amortized: every step of the hand takes back a hit.

use larder::Error;
use larder::policy::{Entries, EntryNumber};

use super::listed::{Listed, Records, Reference};

/// SIEVE. See the source's head for its rules.
pub type Sieve = Listed<Rules, 1>;

/// The rules of [`Sieve`].
#[derive(Debug, Default)]
pub struct Rules {
    /// Where the hand stands; the oldest when nowhere.
    hand: Option<EntryNumber>,
}

impl Sieve {
    /// For entry numbers below `numbers`.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        Listed::with(numbers, Rules::default())
    }
}

impl Rules {
    #[inline]
    fn at_hand(&self, records: &Records<1>) -> Option<EntryNumber> {
        self.hand.or_else(|| records.oldest(0, None))
    }
}

impl Reference<1> for Rules {
    #[inline]
    fn hit(&mut self, records: &mut Records<1>, entry: EntryNumber) {
        records.set_mark(entry, 1);
    }

    #[inline]
    fn leaving(&mut self, records: &Records<1>, entry: EntryNumber) {
        if self.hand == Some(entry) {
            self.hand = records.newer(entry);
        }
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        if self.hand == Some(from) {
            self.hand = Some(to);
        }
    }

    #[inline]
    fn victim(
        &mut self,
        records: &mut Records<1>,
        except: Option<EntryNumber>,
        _: &impl Entries,
    ) -> Option<EntryNumber> {
        // Without another entry the hand would never stop.
        records.oldest(0, except)?;
        loop {
            let entry = self.at_hand(records)?;
            self.hand = records.newer(entry);
            if Some(entry) == except {
                continue;
            }
            if records.mark(entry) == 0 {
                return Some(entry);
            }
            records.set_mark(entry, 0);
        }
    }

    #[inline]
    fn upcoming(&self, records: &Records<1>) -> [Option<EntryNumber>; 2] {
        let first = self.at_hand(records);
        [first, first.and_then(|first| records.newer(first))]
    }

    fn validate(&self, records: &Records<1>) -> Result<(), String> {
        match self.hand {
            Some(hand) if !records.iter(0).any(|entry| entry == hand) => {
                Err(format!("the hand stands at {hand}, which is gone"))
            }
            _ => Ok(()),
        }
    }
}
