//! S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi, *FIFO queues are all you need for cache eviction*, SOSP 2023).
//!
//! `C` is the capacity, `S = max(1, C/10)` what small should hold, `G = max(1, 0.9 C)` the ghosts kept.
//!
//! ```text
//! hit          count += 1, to 3
//! x arrives    a ghost: to main. Else to small. Count 0
//! make room    small holds S or more, or main is empty: small's oldest goes to main with count 0 if it
//!              counts 2 or more, and the search goes on; else it leaves and its key becomes a ghost
//!              else: main's oldest leaves if it counts 0, else it goes round, count -= 1
//! ```
//!
//! The paper's artefact keeps the ghosts as stamps in a hash table, where a key that came back still counts
//! among the `G`; here it makes room for another, as in libCacheSim.
//!
//! Bytes: 32 a ghost besides the records. O(1) amortized: every entry passed over takes back a hit.

use larder::Error;
use larder::policy::{Entries, EntryNumber};

use super::ghosts::Ghosts;
use super::listed::{Listed, Records, Reference};

const SMALL: usize = 0;
const MAIN: usize = 1;

const COUNT_MAX: u8 = 3;

/// S3-FIFO. See the source's head for its rules.
pub type S3Fifo = Listed<Rules, 2>;

/// The rules of [`S3Fifo`]; the mark of an entry is its count.
#[derive(Debug)]
pub struct Rules {
    ghosts: Ghosts,
    /// `S`.
    small_target: u64,
    /// What arrives was a ghost.
    to_main: bool,
}

/// `S`.
fn small_target(capacity: u64) -> u64 {
    (capacity / 10).max(1)
}

/// `G`.
fn ghosts_max(capacity: u64) -> u64 {
    (capacity * 9 / 10).max(1)
}

impl S3Fifo {
    /// For entry numbers below `numbers` and at most as many entries.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        let ghosts = Ghosts::new(ghosts_max(numbers as u64) as usize)?;
        let small_target = small_target(numbers as u64);
        Listed::with(numbers, Rules { ghosts, small_target, to_main: false })
    }
}

impl Reference<2> for Rules {
    #[inline]
    fn arriving(&mut self, _: &mut Records<2>, key: u64) {
        self.to_main = self.ghosts.take(key).is_some();
    }

    #[inline]
    fn inserted(&mut self, records: &mut Records<2>, entry: EntryNumber) {
        let list = if std::mem::take(&mut self.to_main) { MAIN } else { SMALL };
        records.push(list, entry);
    }

    #[inline]
    fn hit(&mut self, records: &mut Records<2>, entry: EntryNumber) {
        records.set_mark(entry, (records.mark(entry) + 1).min(COUNT_MAX));
    }

    #[inline]
    fn victim(
        &mut self,
        records: &mut Records<2>,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        let capacity = records.total();
        self.small_target = small_target(capacity);
        loop {
            let main = records.oldest(MAIN, except);
            if (records.len(SMALL) >= self.small_target || main.is_none())
                && let Some(oldest) = records.oldest(SMALL, except)
            {
                if records.mark(oldest) >= 2 {
                    records.restart(MAIN, oldest);
                    continue;
                }
                self.ghosts.push(0, entries.key(oldest), ghosts_max(capacity));
                return Some(oldest);
            }
            let oldest = main?;
            let Some(count) = records.mark(oldest).checked_sub(1) else { return Some(oldest) };
            records.set_mark(oldest, count);
            records.renew(MAIN, oldest);
        }
    }

    #[inline]
    fn upcoming(&self, records: &Records<2>) -> [Option<EntryNumber>; 2] {
        records.oldest_two(if records.len(SMALL) < self.small_target { MAIN } else { SMALL })
    }

    #[inline]
    fn ghosts(&self) -> Option<&Ghosts> {
        Some(&self.ghosts)
    }
}
