//! Three partitions: temporary for new entries, hot for entries that were used again, recycle for
//! the keys of evicted entries.
//!
//! The partitions are those of Shi et al. (the hybrid of FIFO and LRU: cheap, and few locks). The
//! decision to move between them is made later and on more evidence, after S3-FIFO (SOSP 2023:
//! quick demotion, a ghost queue) and TinyLFU (admission by frequency). `C` is the capacity in
//! entries; temporary should have `T = max(1, C/10)` of them and hot `H = C - T`.
//!
//! ```text
//! hit on x     x in temporary, and fewer than T/4 entries came into it since x: nothing (a second
//!              query for the same name, or the first packet after a response: no sign of further interest)
//!              else ref += 1, to 3; freq = min(7, aged freq + 1)
//! x arrives    remembered as evicted from temporary: to hot. Else to temporary, with the freq remembered plus 1
//! make room    1. hot over H, temporary empty, or x goes to a hot that is full: evict hot's victim
//!              else, c being temporary's oldest:
//!              2. hot below H: c to hot if it was hit or hot is empty, else evict c
//!              3. c.ref >= 2, or aged freq of c above that of hot's victim: evict that one, c to hot
//!              4. else evict c; also at 2 and 3 if it has expired
//!              Instead of every sixteenth such c, evict hot's weakest if it has expired
//! victim       a hand goes from group to group of ten records: after an eviction there, and after those sixteen.
//!              Weakest of the hot entries in the group, of those that are old, half the length of hot, and have
//!              ref 0, the one of least freq, then the oldest; if there is none, the oldest. If it has ref 0 or
//!              has expired it is the victim, and stays so while the hand is there and it has ref 0; else
//!              ref -= 1, it counts as new, and the hand goes on
//! eviction     the key is remembered, with its freq and its partition, for 0.9 C evictions, at least 16
//! aging        every 20 C accesses the epoch moves on, and every freq halves
//! ```
//!
//! An access is an arrival, or a hit that counts. An entry moved to hot begins there with ref 0.
//! `C` follows the number of entries in steps of 1/64. The module `entry_states` has the entries'
//! partitions and states, two bytes each.
//!
//! Temporary's queue has room for an eighth of all possible entries. So while a new cache fills,
//! the oldest of temporary move to hot unconditionally, with freq 0 if they have no hit, so that
//! any candidate replaces them. Bounds: hot's hand goes around once at worst, two bytes per entry.

use larder_mem::Memory;

use super::entry_states::{Clock, EPOCHS, EntryStates, FREQ_MAX, GROUP, REF_MAX, Record, aged};
use super::recycle::{Ghost, Recycle};
use super::{Entries, EntryNumber, Replacement, STEPS_MAX, unmapped};
use crate::error::Error;

/// Accesses per epoch, as a multiple of the capacity.
const EPOCH_CAPACITIES: u64 = 20;

/// Changes of the capacity by less than this part are ignored.
const STEADY_SHARE: u64 = 64;

/// Candidates after which hot's hand moves on without an eviction there, because other entries may
/// have expired.
const STANDS_MAX: u32 = 16;

/// The data about a key that is about to be stored.
#[derive(Debug, Clone, Copy, Default)]
struct Arrival {
    to_hot: bool,
    freq: u8,
}

/// Three partitions with counters. See the [module](self).
#[derive(Debug)]
pub struct Partitioned {
    pub(super) states: EntryStates,
    recycle: Recycle,
    /// `C`.
    capacity: u64,
    /// `T`.
    temporary_target: u64,
    /// Counts the entries that became new in hot: promoted, arrived, or given another round.
    hot_clock: Clock,
    /// The first record of the group where hot's hand is.
    hot_hand: usize,
    /// The victim there, once it was searched for.
    victim: Option<EntryNumber>,
    /// Candidates that lost against it.
    stood: u32,
    accesses: u64,
    epoch: u8,
    arrival: Arrival,
}

impl Partitioned {
    /// For entry numbers below `numbers` and at most `entries_max` entries at once.
    pub fn new(numbers: usize, entries_max: u64) -> Result<Self, Error> {
        Self::new_in(&unmapped()?, numbers, entries_max)
    }

    pub(super) fn new_in(memory: &Memory, numbers: usize, entries_max: u64) -> Result<Self, Error> {
        let mut policy = Partitioned {
            states: EntryStates::new(memory, numbers, entries_max)?,
            recycle: Recycle::new(memory, entries_max)?,
            capacity: 0,
            temporary_target: 0,
            hot_clock: Clock::new(entries_max),
            hot_hand: 0,
            victim: None,
            stood: 0,
            accesses: 0,
            epoch: 0,
            arrival: Arrival::default(),
        };
        policy.resize(entries_max);
        Ok(policy)
    }

    /// Bytes of the policy.
    pub(super) fn bytes(numbers: usize, entries_max: u64) -> usize {
        EntryStates::bytes(numbers, entries_max) + Recycle::bytes(entries_max)
    }

    /// Sets the capacity to the number of entries when room is needed. If room is counted in bytes,
    /// that number varies a little all the time, and small changes are ignored. Otherwise hot would
    /// lose entries with every decrease, and with every increase take in entries that were hit only
    /// once.
    fn resize(&mut self, entries: u64) {
        let capacity = entries.max(1);
        if capacity.abs_diff(self.capacity) > self.capacity / STEADY_SHARE {
            self.capacity = capacity;
            self.temporary_target = (capacity / 10).max(1);
            self.recycle.resize(capacity);
        }
    }

    /// `H`.
    #[inline]
    fn hot_target(&self) -> u64 {
        self.capacity - self.temporary_target
    }

    #[inline]
    fn aged(&self, freq: u8, epoch: u8) -> u8 {
        aged(freq, epoch, self.epoch)
    }

    #[inline]
    fn count_access(&mut self) {
        self.accesses += 1;
        if self.accesses >= EPOCH_CAPACITIES * self.capacity {
            self.accesses = 0;
            self.epoch = (self.epoch + 1) % EPOCHS;
        }
    }

    /// Removes an entry from its partition and remembers its key.
    #[inline]
    fn depart(&mut self, entry: EntryNumber, entries: &impl Entries) -> Option<EntryNumber> {
        let Record { hot, freq, epoch, .. } = self.states.take(entry);
        let freq = self.aged(freq, epoch);
        self.recycle.push(entries.key(entry), Ghost { temporary: !hot, freq, epoch: self.epoch });
        Some(entry)
    }

    /// Makes room in the queue for one more: if necessary, temporary's oldest moves to hot
    /// unconditionally.
    #[inline]
    fn make_queue_room(&mut self) {
        if self.states.is_queue_full()
            && let Some(oldest) = self.states.oldest_temporary(None)
        {
            let record = self.states.take(oldest);
            let freq = if record.referenced > 0 { record.freq } else { 0 };
            self.add_hot(oldest, Record { freq, ..record });
        }
    }

    /// Moves an entry from temporary to hot.
    #[inline]
    fn promote(&mut self, entry: EntryNumber) {
        let record = self.states.take(entry);
        self.add_hot(entry, record);
    }

    #[inline]
    fn add_hot(&mut self, entry: EntryNumber, record: Record) {
        let seq = self.hot_clock.tick();
        self.states.add(entry, Record { hot: true, referenced: 0, seq, ..record });
    }

    /// The next entry to evict from hot. The hand stays at its group, and the victim is remembered.
    fn victim(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
        steps: &mut u32,
    ) -> Option<EntryNumber> {
        if let Some(victim) = self.known_victim(except) {
            return Some(victim);
        }
        let groups = self.states.numbers() / GROUP;
        let mut empty = 0;
        while empty < groups {
            let Some(entry) = self.weakest(self.hot_hand, except) else {
                empty += 1;
                self.pass_group();
                continue;
            };
            empty = 0;
            let record = self.states.record(entry);
            if record.referenced == 0 || *steps == 0 || entries.is_expired(entry) {
                self.victim = Some(entry);
                return Some(entry);
            }
            *steps -= 1;
            let (referenced, seq) = (record.referenced - 1, self.hot_clock.tick());
            self.states.set(entry, Record { referenced, seq, ..record });
            self.pass_group();
        }
        None
    }

    /// The victim found before, unless it was hit or removed since.
    #[inline]
    fn known_victim(&self, except: Option<EntryNumber>) -> Option<EntryNumber> {
        self.victim.filter(|&entry| self.victim != except && self.states.is_idle_hot(entry))
    }

    /// Of the hot entries in the hand's group, or the next one, the first to evict.
    #[inline]
    fn weakest(&self, group: usize, except: Option<EntryNumber>) -> Option<EntryNumber> {
        let old = self.hot_clock.units(self.states.hot() / 2);
        self.states.weakest(group, (self.hot_clock.now(), old, self.epoch), except)
    }

    /// The group after the hand's.
    #[inline]
    fn next_group(&self) -> usize {
        let next = self.hot_hand + GROUP;
        if next < self.states.numbers() { next } else { 0 }
    }

    #[inline]
    fn pass_group(&mut self) {
        self.stood = 0;
        self.victim = None;
        self.hot_hand = self.next_group();
        self.states.prefetch(self.next_group());
    }

    /// Evicts a candidate. After several of them, evicts hot's weakest instead if it has expired,
    /// and moves the hand on.
    #[inline]
    fn depart_beaten(
        &mut self,
        candidate: EntryNumber,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        self.stood += 1;
        if self.stood < STANDS_MAX {
            return self.depart(candidate, entries);
        }
        let weakest = self.known_victim(except).or_else(|| self.weakest(self.hot_hand, except));
        let ended = weakest.filter(|&weakest| entries.is_expired(weakest));
        self.pass_group();
        self.depart(ended.unwrap_or(candidate), entries)
    }

    /// Evicts hot's victim, and moves the hand on.
    #[inline]
    fn depart_hot(&mut self, victim: EntryNumber, entries: &impl Entries) -> Option<EntryNumber> {
        self.pass_group();
        self.depart(victim, entries)
    }
}

impl Replacement for Partitioned {
    #[inline]
    fn len(&self) -> u64 {
        self.states.temporary() + self.states.hot()
    }

    #[inline]
    fn arriving(&mut self, key: u64) {
        self.arrival = match self.recycle.take(key) {
            None => Arrival { to_hot: false, freq: 1 },
            Some(Ghost { temporary, freq, epoch }) => {
                Arrival { to_hot: temporary, freq: (self.aged(freq, epoch) + 1).min(FREQ_MAX) }
            }
        };
        self.count_access();
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        let Arrival { to_hot, freq } = std::mem::take(&mut self.arrival);
        let seq = if to_hot {
            self.hot_clock.tick()
        } else {
            self.make_queue_room();
            self.states.queue(entry)
        };
        let freq = freq.max(1);
        self.states.add(entry, Record { hot: to_hot, referenced: 0, freq, epoch: self.epoch, seq });
    }

    #[inline]
    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }

    #[inline]
    fn hit(&mut self, entry: EntryNumber, lag: u64) {
        let record = self.states.record(entry);
        let window = self.temporary_target / 4 + lag;
        if !record.hot && self.states.clock.since(record.seq) < window {
            return;
        }
        let aged = self.aged(record.freq, record.epoch);
        // Without a branch, which would often be mispredicted.
        let freq = aged + u8::from(aged < FREQ_MAX);
        let referenced = record.referenced + u8::from(record.referenced < REF_MAX);
        self.states.set(entry, Record { referenced, freq, epoch: self.epoch, ..record });
        self.count_access();
    }

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        self.states.take(entry);
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        self.states.rename(from, to);
    }

    fn evict(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        self.resize(self.len());
        let hot_target = self.hot_target();
        let mut steps = STEPS_MAX;
        loop {
            let hot_len = self.states.hot();
            let hot_pays = hot_len > hot_target || (self.arrival.to_hot && hot_len == hot_target);
            if hot_pays && let Some(victim) = self.victim(except, entries, &mut steps) {
                return self.depart_hot(victim, entries);
            }
            let Some(candidate) = self.states.oldest_temporary(except) else {
                let victim = self.victim(except, entries, &mut steps)?;
                return self.depart_hot(victim, entries);
            };
            let record = self.states.record(candidate);
            if hot_len < hot_target {
                let stays = (record.referenced > 0 || hot_len == 0)
                    && steps > 0
                    && !entries.is_expired(candidate);
                if !stays {
                    return self.depart_beaten(candidate, except, entries);
                }
                steps -= 1;
                self.promote(candidate);
                continue;
            }
            let Some(victim) = self.victim(except, entries, &mut steps) else {
                return self.depart(candidate, entries);
            };
            let rival = self.states.record(victim);
            // Tested last: most candidates lose anyway, and their expiry is in another cache line.
            let wins = (record.referenced >= 2
                || self.aged(record.freq, record.epoch) > self.aged(rival.freq, rival.epoch))
                && !entries.is_expired(candidate);
            if !wins {
                return self.depart_beaten(candidate, except, entries);
            }
            self.depart_hot(victim, entries);
            self.promote(candidate);
            return Some(victim);
        }
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        if self.states.hot() > self.hot_target() {
            return [self.hot_hand, self.next_group()].map(|group| self.weakest(group, None));
        }
        self.states.upcoming_temporary()
    }

    #[inline]
    fn prefetch(&self, entry: EntryNumber) {
        self.states.prefetch(entry as usize);
    }

    #[inline]
    fn prefetch_key(&self, key: u64) {
        self.recycle.prefetch(key);
    }

    fn validate(&self) -> Result<(), String> {
        self.states.validate()?;
        self.recycle.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All keys differ, and no entry expires.
    struct Plain;

    impl Entries for Plain {
        fn is_expired(&self, _: EntryNumber) -> bool {
            false
        }

        fn key(&self, entry: EntryNumber) -> u64 {
            u64::from(entry).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }
    }

    /// Any entry can be evicted, however few there are and however far apart; the excepted one
    /// last.
    #[test]
    fn sparse_tables_empty() {
        let mut policy = Partitioned::new(200_000, 100_000).unwrap();
        let entries: Vec<EntryNumber> = (0..40).map(|at| at * 4999).collect();
        for &entry in &entries {
            policy.arriving(Plain.key(entry));
            policy.inserted(entry);
        }
        let kept = entries[17];
        let mut left = Vec::new();
        while let Some(victim) = policy.evict(Some(kept), &Plain) {
            left.push(victim);
            policy.validate().unwrap();
        }
        left.sort_unstable();
        assert_eq!(left, entries.iter().copied().filter(|&at| at != kept).collect::<Vec<_>>());
        assert_eq!((policy.evict(None, &Plain), policy.len()), (Some(kept), 0));
        assert_eq!(policy.evict(None, &Plain), None);
    }

    /// The first hint is usually evicted next, in a stream of keys that each come once.
    #[test]
    fn hints_are_mostly_right() {
        let mut policy = Partitioned::new(1250, 1000).unwrap();
        let mut right = 0;
        let mut free: Vec<EntryNumber> = (0..1250).rev().collect();
        for step in 0..5000u32 {
            let key = Plain.key(100_000 + step);
            policy.arriving(key);
            if policy.len() == 1000 {
                let hint = policy.upcoming()[0];
                let victim = policy.evict(None, &Plain).unwrap();
                right += u32::from(hint == Some(victim));
                free.push(victim);
            }
            policy.inserted(free.pop().unwrap());
        }
        assert!(right > 3000, "{right} of 4000");
    }
}
