//! CLOCK: first in, first out, with another round for what was hit (Corbató, *A paging experiment with the
//! Multics system*, 1969).
//!
//! Each entry counts its hits up to `count_max`; the hand takes the first entry of count 0 and lowers the
//! counts of those that it passes by one. A maximum of 1 is the classic second chance; with 3 (two bits) an
//! entry may be passed three times. A new entry begins with 0, just behind the hand.
//!
//! O(1) amortized: every step of the hand takes back a hit.

use larder::Error;
use larder::policy::{Entries, EntryNumber};

use super::listed::{Listed, Records, Reference};

/// CLOCK. See the source's head for its rules.
pub type Clock = Listed<Rules, 1>;

/// The rules of [`Clock`]; the mark of an entry is its count.
#[derive(Debug)]
pub struct Rules {
    count_max: u8,
}

impl Clock {
    /// For entry numbers below `numbers`; `count_max` is 1 for the classic one.
    pub fn new(numbers: usize, count_max: u8) -> Result<Self, Error> {
        Listed::with(numbers, Rules { count_max })
    }
}

impl Reference<1> for Rules {
    #[inline]
    fn hit(&mut self, records: &mut Records<1>, entry: EntryNumber) {
        records.set_mark(entry, (records.mark(entry) + 1).min(self.count_max));
    }

    #[inline]
    fn victim(
        &mut self,
        records: &mut Records<1>,
        except: Option<EntryNumber>,
        _: &impl Entries,
    ) -> Option<EntryNumber> {
        loop {
            let oldest = records.oldest(0, except)?;
            let Some(count) = records.mark(oldest).checked_sub(1) else { return Some(oldest) };
            records.set_mark(oldest, count);
            records.renew(0, oldest);
        }
    }

    fn validate(&self, records: &Records<1>) -> Result<(), String> {
        match records.iter(0).find(|&entry| records.mark(entry) > self.count_max) {
            Some(entry) => Err(format!("entry {entry} counts above {}", self.count_max)),
            None => Ok(()),
        }
    }
}
