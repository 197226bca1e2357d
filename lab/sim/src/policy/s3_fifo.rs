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
//! Bytes: 9 an entry, and 32 a ghost. O(1) amortized: every entry passed over takes back a hit.

use larder::Error;
use larder::mem::Region;
use larder::policy::{Entries, EntryNumber, Replacement};

use super::ghosts::Ghosts;
use super::list::Lists;

const SMALL: usize = 0;
const MAIN: usize = 1;

const COUNT: u8 = 3;
/// Set next to the count of an entry in main.
const IN_MAIN: u8 = 4;

/// S3-FIFO. See the source's head for its rules.
#[derive(Debug)]
pub struct S3Fifo {
    lists: Lists<2>,
    /// `IN_MAIN | count` of each entry.
    records: Region<u8>,
    ghosts: Ghosts,
    /// `C`.
    capacity: u64,
    /// `S`.
    small_target: u64,
    /// `G`.
    ghosts_max: u64,
    /// What arrives was a ghost.
    to_main: bool,
}

fn ghosts_max(capacity: u64) -> u64 {
    (capacity * 9 / 10).max(1)
}

impl S3Fifo {
    /// For entry numbers below `numbers` and at most as many entries.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        let mut policy = S3Fifo {
            lists: Lists::new(numbers)?,
            records: Region::new(numbers).map_err(Error::Memory)?,
            ghosts: Ghosts::new(ghosts_max(numbers as u64) as usize)?,
            capacity: 0,
            small_target: 0,
            ghosts_max: 0,
            to_main: false,
        };
        policy.resize(numbers as u64);
        Ok(policy)
    }

    #[inline]
    fn resize(&mut self, capacity: u64) {
        if capacity != self.capacity {
            self.capacity = capacity;
            self.small_target = (capacity / 10).max(1);
            self.ghosts_max = ghosts_max(capacity);
        }
    }

    #[inline]
    fn list(&self, entry: EntryNumber) -> usize {
        usize::from(self.records[entry as usize] & IN_MAIN != 0)
    }
}

impl Replacement for S3Fifo {
    #[inline]
    fn len(&self) -> u64 {
        self.lists.total()
    }

    #[inline]
    fn arriving(&mut self, key: u64) {
        self.to_main = self.ghosts.take(key).is_some();
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        let to_main = std::mem::take(&mut self.to_main);
        self.lists.push(usize::from(to_main), entry);
        self.records[entry as usize] = if to_main { IN_MAIN } else { 0 };
    }

    #[inline]
    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }

    #[inline]
    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        let record = &mut self.records[entry as usize];
        *record += u8::from(*record & COUNT < COUNT);
    }

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        self.lists.remove(self.list(entry), entry);
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        self.lists.rename(self.list(from), from, to);
        self.records[to as usize] = self.records[from as usize];
    }

    #[inline]
    fn evict(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        self.resize(self.len());
        loop {
            let main = self.lists.oldest(MAIN, except);
            if (self.lists.len(SMALL) >= self.small_target || main.is_none())
                && let Some(oldest) = self.lists.oldest(SMALL, except)
            {
                if self.records[oldest as usize] & COUNT >= 2 {
                    self.lists.renew(SMALL, MAIN, oldest);
                    self.records[oldest as usize] = IN_MAIN;
                    continue;
                }
                self.lists.remove(SMALL, oldest);
                self.ghosts.push(0, entries.key(oldest), self.ghosts_max);
                return Some(oldest);
            }
            let oldest = main?;
            if self.records[oldest as usize] & COUNT == 0 {
                self.lists.remove(MAIN, oldest);
                return Some(oldest);
            }
            self.records[oldest as usize] -= 1;
            self.lists.renew(MAIN, MAIN, oldest);
        }
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        self.lists.oldest_two(usize::from(self.lists.len(SMALL) < self.small_target))
    }

    #[inline]
    fn prefetch(&self, entry: EntryNumber) {
        self.lists.prefetch(entry);
    }

    #[inline]
    fn prefetch_key(&self, key: u64) {
        self.ghosts.prefetch(key);
    }

    fn validate(&self) -> Result<(), String> {
        self.lists.validate_by(|entry| self.list(entry))?;
        self.ghosts.validate()
    }
}
