//! Size-aware: a large entry must be used more than a small one to stay.
//!
//! ```text
//! hit on x     freq += 1, to 15; age 0
//! x arrives    freq 1, and the freq remembered of its evicted key, to 7
//! make room    of the next 32 entries of a list, evict one that has expired, or else the one of the
//!              least freq² / (size · age), age in accesses since its last one; the last entry of the
//!              list takes its place there, and the next 32 begin behind
//! eviction     the key is remembered, with its freq, for 0.9 times as many evictions as there are entries,
//!              or as a part of those that there can be, if that is more; at least 16
//! ```
//!
//! GDSF (Cherkasova, HP Labs 1998) evicts the least freq / size, plus the worth of what was evicted
//! before. Hyperbolic caching (Blankstein et al., USENIX ATC 2017) takes the age for that, and the
//! least of a sample for the least of all, so that no order need be kept. The square root of the
//! size, which is the square of freq here, is a compromise: GDSF answers more requests and fewer
//! bytes. `docs/decisions/0026` has the figures.
//!
//! For entries of one size [`Partitioned`](super::Partitioned) has more hits.
//!
//! Bounds: 13 bytes for each number and three for each key that can be remembered. `evict` looks at up
//! to 33 entries and up to six lines of remembered keys.

use larder_mem::{Region, prefetch_slice};

use super::recycle::{Ghost, Recycle};
use super::{Entries, EntryNumber, Replacement, unmapped};
use crate::error::Error;

/// Entries of which the one of least worth is evicted.
const SAMPLE: usize = 32;

const FREQ_MAX: u8 = 15;
/// The most that is remembered of an evicted key.
const GHOST_FREQ_MAX: u8 = 7;

/// The number of keys that are remembered shrinks by this part for each eviction, at most: where one
/// long object takes the room of many, they soon come back.
const SHRINK_SHARE: u64 = 64;

/// Keys of this part of all possible entries are remembered at least. Fewer would be swept from all of
/// their lines within a few evictions.
const REMEMBERED_SHARE: u64 = 64;

/// Evicts by frequency, size and age. See the [module](self).
#[derive(Debug)]
pub struct SizeAware {
    /// Of each number, accesses of its entry; 0: there is none.
    freqs: Region<u8>,
    /// Of each number, `accesses` at the last access of its entry.
    times: Region<u32>,
    /// The numbers of the entries, `len` of them, in no order; and where each is in it.
    listed: Region<u32>,
    places: Region<u32>,
    recycle: Recycle,
    /// Arrivals and hits, modulo 2^32. An age beyond that is taken for a small one.
    accesses: u32,
    /// The place in the list after the last one that was examined.
    hand: usize,
    len: usize,
    entries_max: u64,
    /// The number of entries for which keys are remembered.
    capacity: u64,
    /// The freq of the entry that arrives.
    arrival: u8,
}

impl SizeAware {
    /// For entry numbers below `numbers` and at most `entries_max` entries at once.
    pub fn new(numbers: usize, entries_max: u64) -> Result<Self, Error> {
        let memory = &unmapped()?;
        Ok(SizeAware {
            freqs: memory.region(numbers).map_err(Error::Memory)?,
            times: memory.region(numbers).map_err(Error::Memory)?,
            listed: memory.region(numbers).map_err(Error::Memory)?,
            places: memory.region(numbers).map_err(Error::Memory)?,
            recycle: Recycle::new(memory, entries_max)?,
            accesses: 0,
            hand: 0,
            len: 0,
            entries_max,
            capacity: entries_max.max(1),
            arrival: 1,
        })
    }

    /// Counts an access; returns its time.
    #[inline]
    fn tick(&mut self) -> u32 {
        self.accesses = self.accesses.wrapping_add(1);
        self.accesses
    }

    /// What the entry is worth for its bytes.
    fn worth(&self, entry: usize, size: u64) -> f64 {
        let freq = u32::from(self.freqs[entry]);
        let age = u64::from(self.accesses.wrapping_sub(self.times[entry])) + 1;
        // Sizes and ages of any length: no integer would hold the product.
        f64::from(freq * freq) / (size.max(1) as f64 * age as f64)
    }

    /// The next entry to evict. The hand is behind the last one that was examined.
    fn victim(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        let mut least: Option<(f64, EntryNumber)> = None;
        // One may be the excepted one.
        for _ in 0..self.len.min(SAMPLE + 1) {
            if self.hand >= self.len {
                self.hand = 0;
            }
            let entry = self.listed[self.hand];
            self.hand += 1;
            if except == Some(entry) {
                continue;
            }
            if entries.is_expired(entry) {
                return Some(entry);
            }
            let worth = self.worth(entry as usize, entries.size(entry));
            if least.is_none_or(|(least, _)| worth < least) {
                least = Some((worth, entry));
            }
        }
        least.map(|(_, entry)| entry)
    }

    /// Sets how many keys are remembered.
    fn resize(&mut self) {
        let shrunk = self.capacity - self.capacity / SHRINK_SHARE - 1;
        let least = shrunk.max(self.entries_max / REMEMBERED_SHARE).max(1);
        self.capacity = least.max(self.len as u64);
        self.recycle.resize(self.capacity);
    }
}

impl Replacement for SizeAware {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn arriving(&mut self, key: u64) {
        self.arrival = 1 + self.recycle.take(key).map_or(0, |ghost| ghost.freq);
    }

    fn inserted(&mut self, entry: EntryNumber) {
        let at = entry as usize;
        self.freqs[at] = std::mem::replace(&mut self.arrival, 1);
        self.times[at] = self.tick();
        (self.listed[self.len], self.places[at]) = (entry, self.len as u32);
        self.len += 1;
    }

    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }

    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        let at = entry as usize;
        self.freqs[at] = (self.freqs[at] + 1).min(FREQ_MAX);
        self.times[at] = self.tick();
    }

    fn removed(&mut self, entry: EntryNumber) {
        let place = self.places[entry as usize];
        self.freqs[entry as usize] = 0;
        self.len -= 1;
        let last = self.listed[self.len];
        (self.listed[place as usize], self.places[last as usize]) = (last, place);
    }

    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        let (from, to) = (from as usize, to as usize);
        self.freqs[to] = std::mem::replace(&mut self.freqs[from], 0);
        self.times[to] = self.times[from];
        self.places[to] = self.places[from];
        self.listed[self.places[to] as usize] = to as EntryNumber;
    }

    fn evict(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        self.resize();
        let entry = self.victim(except, entries)?;
        let freq = self.freqs[entry as usize].min(GHOST_FREQ_MAX);
        self.recycle.push(entries.key(entry), Ghost { temporary: true, freq, epoch: 0 });
        self.removed(entry);
        Some(entry)
    }

    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        // Which of a sample leaves is not known before it is examined.
        [None, None]
    }

    fn prefetch(&self, entry: EntryNumber) {
        prefetch_slice(&self.freqs, entry as usize);
        prefetch_slice(&self.times, entry as usize);
    }

    fn prefetch_key(&self, key: u64) {
        self.recycle.prefetch(key);
    }

    fn validate(&self) -> Result<(), String> {
        let present = self.freqs.iter().filter(|freq| **freq > 0).count();
        if present != self.len {
            return Err(format!("{present} entries are present, and {} were counted", self.len));
        }
        let is_listed = |(place, entry): (usize, &EntryNumber)| {
            self.places[*entry as usize] as usize == place && self.freqs[*entry as usize] > 0
        };
        if !self.listed[..self.len].iter().enumerate().all(is_listed) {
            return Err("an entry is not where the list has it".to_owned());
        }
        if self.freqs.iter().any(|freq| *freq > FREQ_MAX) {
            return Err(format!("an entry has a freq above {FREQ_MAX}"));
        }
        self.recycle.validate()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sizes by number. Numbers in `expired` have expired.
    struct Sizes<'a> {
        sizes: &'a [u64],
        expired: Option<EntryNumber>,
    }

    impl Entries for Sizes<'_> {
        fn is_expired(&self, entry: EntryNumber) -> bool {
            self.expired == Some(entry)
        }

        fn key(&self, entry: EntryNumber) -> u64 {
            u64::from(entry).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }

        fn size(&self, entry: EntryNumber) -> u64 {
            self.sizes[entry as usize]
        }
    }

    fn filled(count: u32) -> SizeAware {
        let mut policy = SizeAware::new(count as usize, count.into()).unwrap();
        for entry in 0..count {
            policy.arriving(entry.into());
            policy.inserted(entry);
        }
        policy
    }

    /// Of entries that were used alike, the largest leaves; a large one that was used stays before a
    /// small one that was not; an expired one leaves first; the excepted one stays.
    #[test]
    fn the_least_worth_leaves() {
        let sizes: Vec<u64> = (0..20).map(|at| if at == 7 { 1 << 20 } else { 1000 }).collect();
        let plain = Sizes { sizes: &sizes, expired: None };
        let mut policy = filled(20);
        assert_eq!(policy.evict(Some(7), &plain), Some(0), "the longest unused");
        assert_eq!(policy.evict(None, &plain), Some(7));
        // 1 MiB and a thousandth of that: many hits make up for it, a few do not.
        for (hits, left) in [(3, 7), (14, 0)] {
            let mut policy = filled(20);
            (0..hits).for_each(|_| policy.hit(7, 0));
            assert_eq!(policy.evict(None, &plain), Some(left));
        }
        let alike = Sizes { sizes: &[1000; 20], expired: Some(5) };
        let mut policy = filled(20);
        (0..19).for_each(|entry| policy.hit(entry, 0));
        assert_eq!(policy.evict(None, &alike), Some(5));
        assert_eq!(policy.evict(None, &Sizes { expired: None, ..alike }), Some(19));
        policy.validate().unwrap();
    }

    /// A key that comes again after its eviction begins with what it had.
    #[test]
    fn evicted_keys_are_remembered() {
        let sizes = [1000; 40];
        let entries = Sizes { sizes: &sizes, expired: None };
        let mut policy = filled(40);
        (0..3).for_each(|_| policy.hit(0, 0));
        for entry in 1..40 {
            (0..9).for_each(|_| policy.hit(entry, 0));
        }
        assert_eq!(policy.evict(None, &entries), Some(0));
        policy.arriving(entries.key(0));
        policy.inserted(0);
        assert_eq!(policy.freqs[0], 5);
        policy.arriving(entries.key(0));
        assert_eq!(policy.arrival, 1, "remembered once");
    }

    /// From many entries to few, at once: no key of long ago is remembered.
    #[test]
    fn few_entries_follow_many() {
        let sizes = [1000; 700];
        let entries = Sizes { sizes: &sizes, expired: None };
        for few in [1, 2, 3, 5, 20] {
            let mut policy = filled(700);
            let fill = |policy: &mut SizeAware| {
                let left = policy.evict(None, &entries).unwrap();
                policy.arriving(entries.key(left).rotate_left(7));
                policy.inserted(left);
                assert_eq!(policy.validate(), Ok(()));
            };
            (0..2000).for_each(|_| fill(&mut policy));
            (few..700).for_each(|entry| policy.removed(entry));
            (0..2000).for_each(|_| fill(&mut policy));
        }
    }

    proptest! {
        /// After any events, exactly the entries that are there leave, each once.
        #[test]
        fn any_events(
            events in prop::collection::vec((0u32..60, 0u8..5, 1u64..5000), 1..300),
        ) {
            let mut policy = SizeAware::new(60, 60).unwrap();
            let (mut sizes, mut is_there) = (vec![1; 60], [false; 60]);
            for (entry, event, size) in events {
                let at = entry as usize;
                match (event, is_there[at]) {
                    (0 | 1, false) => {
                        policy.arriving(entry.into());
                        policy.inserted(entry);
                        (sizes[at], is_there[at]) = (size, true);
                    }
                    (0, true) => policy.hit(entry, 3),
                    (1, true) => policy.updated(entry),
                    (2, true) => {
                        policy.removed(entry);
                        is_there[at] = false;
                    }
                    (3, _) => {
                        let entries = Sizes { sizes: &sizes, expired: None };
                        match policy.evict(Some(entry), &entries) {
                            Some(left) => {
                                prop_assert!(left != entry && is_there[left as usize]);
                                is_there[left as usize] = false;
                            }
                            None => prop_assert!((0..60).all(|at| at == entry || !is_there[at as usize])),
                        }
                    }
                    (4, true) => {
                        if let Some(to) = is_there.iter().position(|is_there| !is_there) {
                            policy.moved(entry, to as EntryNumber);
                            (is_there[at], is_there[to], sizes[to]) = (false, true, sizes[at]);
                        }
                    }
                    _ => {}
                }
                let count = is_there.iter().filter(|is_there| **is_there).count() as u64;
                prop_assert_eq!(policy.len(), count);
                prop_assert_eq!(policy.validate(), Ok(()));
            }
        }
    }
}
