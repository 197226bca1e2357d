//! What a full budget evicts, to the packet.
//!
//! First in, first out: an entry lives until others of `capacity` have been learned after it, and what it grows by
//! counts, too. Each value begins with its *birth*: how much was learned before its entry. So whether an entry lives
//! at a packet follows from what was learned before that packet, and not from where batches end. The engine also
//! evicts, in the order of births, and has more room: what it evicts is dead, or dies in the same batch ([`Leavers`]).
//!
//! ```text
//! value    = birth: u64, little-endian | candidates or alias
//! costs    in units of 16 bytes, so that the distance of two births fits 32 bits
//! ```
//!
//! Invariants: the costs of all living entries are at most `capacity`; a dead entry is none: a name that comes again is
//! born again.
//!
//! Cost: 8 bytes an entry, and 4 for the list of births; a comparison for each lookup.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder::Stats;

/// Bytes of a birth before each value.
pub(super) const BIRTH_BYTES: usize = 8;
/// A unit of cost, bytes.
const UNIT_BYTES: usize = 16;
/// Header of an entry in the engine, and the least that it counts as, since the engine's index is as large as for such
/// entries.
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES_MIN: usize = 128;
/// Room of the engine for sizes of slots that are in use, bytes.
const SIZES_BYTES: u64 = 128 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Lives {
    /// Costs of all that was ever learned.
    learned: u64,
    capacity: u64,
    /// The distance of each living entry's birth from the one before.
    births: VecDeque<u32>,
    /// The birth of the oldest living entry, and of the youngest.
    oldest: u64,
    youngest: u64,
    dead: u64,
}

impl Lives {
    /// For an engine of these sizes.
    pub fn new(stats: &Stats) -> Lives {
        let room = stats.charge_bytes_max.min(stats.entries_max * ENTRY_BYTES_MIN as u64);
        let capacity = (room / 8 * 7).saturating_sub(SIZES_BYTES).max(room / 2) / UNIT_BYTES as u64;
        let births = VecDeque::new();
        Lives { learned: 0, capacity, births, oldest: 0, youngest: 0, dead: 0 }
    }

    /// Entries that were born before this are dead.
    pub fn horizon(&self) -> u64 {
        self.learned.saturating_sub(self.capacity)
    }

    /// A stored value without its birth; empty if its entry is dead, or is none.
    pub fn living<'a>(&self, stored: &'a [u8]) -> &'a [u8] {
        match birth_of(stored) >= self.horizon() {
            true => value_of(stored),
            false => &[],
        }
    }

    /// Writes what is stored of `value`, the new one of a key of `key_len` bytes that had `old`.
    pub fn store(&mut self, key_len: usize, old: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let cost = |len: usize| {
            // Slots are up to an eighth larger than what is in them.
            let bytes = (HEADER_BYTES + BIRTH_BYTES + key_len + len) * 9 / 8;
            bytes.max(ENTRY_BYTES_MIN).div_ceil(UNIT_BYTES) as u64
        };
        let (birth, living) = (birth_of(old), self.living(old).len());
        let growth = cost(value.len()).saturating_sub(cost(living));
        // What is learned now lives, even if it has no room where it was.
        let birth = if living > 0 && birth + self.capacity >= self.learned + growth {
            self.learned += growth;
            birth
        } else {
            self.bear(cost(value.len()))
        };
        self.bury();
        out.clear();
        out.extend_from_slice(&birth.to_le_bytes());
        out.extend_from_slice(value);
    }

    /// Living entries, and dead ones.
    pub fn counts(&self) -> (u64, u64) {
        (self.births.len() as u64, self.dead)
    }

    fn bear(&mut self, cost: u64) -> u64 {
        let birth = self.learned;
        if self.births.is_empty() {
            self.oldest = birth;
            self.youngest = birth;
        }
        self.births.push_back((birth - self.youngest) as u32);
        self.youngest = birth;
        self.learned += cost;
        birth
    }

    fn bury(&mut self) {
        while self.oldest < self.horizon() && self.births.pop_front().is_some() {
            self.dead += 1;
            self.oldest += self.births.front().map_or(0, |&distance| u64::from(distance));
        }
    }
}

/// Entries that the engine evicts in a commit, and that lived at a packet of the batch: its readers still need them.
#[derive(Debug, Default)]
pub(super) struct Leavers {
    /// Those that were born before were dead all the time.
    horizon: AtomicU64,
    entries: Mutex<Left>,
}

/// Keys and stored values one after the other, and the length of each.
#[derive(Debug, Default)]
struct Left {
    bytes: Vec<u8>,
    lens: Vec<(usize, usize)>,
}

impl Leavers {
    /// Begins a commit.
    pub fn begin(&self, horizon: u64) {
        // Relaxed: the thread that commits also evicts.
        self.horizon.store(horizon, Ordering::Relaxed);
    }

    /// The engine evicts an entry.
    pub fn take(&self, key: &[u8], stored: &[u8]) {
        if birth_of(stored) >= self.horizon.load(Ordering::Relaxed) {
            let mut left = self.left();
            left.bytes.extend_from_slice(key);
            left.bytes.extend_from_slice(stored);
            left.lens.push((key.len(), stored.len()));
        }
    }

    /// Ends a commit: gives away each key and its stored value.
    pub fn end(&self, mut give: impl FnMut(&[u8], &[u8])) {
        let left = &mut *self.left();
        let mut at = 0;
        for &(key, stored) in &left.lens {
            let (behind_key, behind) = (at + key, at + key + stored);
            give(&left.bytes[at..behind_key], &left.bytes[behind_key..behind]);
            at = behind;
        }
        left.bytes.clear();
        left.lens.clear();
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the entry of a stored value was born; what is not stored was born first.
pub(super) fn birth_of(stored: &[u8]) -> u64 {
    stored.first_chunk().map_or(0, |birth| u64::from_le_bytes(*birth))
}

/// A stored value without its birth.
pub(super) fn value_of(stored: &[u8]) -> &[u8] {
    stored.get(BIRTH_BYTES..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is learned, renewed and grown: the living ones are those that were born last, no more than there is
    /// room for, and their number and that of the dead are known.
    #[test]
    fn the_oldest_die() {
        let stats = || {
            let cache = larder::Cache::builder().budget(1 << 20).shards(1).build().expect("room");
            cache.stats().expect("figures")
        };
        let mut lives = Lives::new(&stats());
        let capacity_bytes = lives.capacity as usize * UNIT_BYTES;
        assert!((256 << 10..1 << 20).contains(&capacity_bytes), "{capacity_bytes}");
        let mut random = larder_testkit::random::Random(3);
        // By key: what is stored. And the keys in the order of their births.
        let mut all: Vec<Vec<u8>> = vec![Vec::new(); 20_000];
        let (mut order, mut born) = (VecDeque::new(), 0);
        for _ in 0..60_000 {
            let key = random.below(all.len() as u64) as usize;
            let value = vec![7; 1 + random.below(200) as usize];
            let mut stored = Vec::new();
            lives.store(20, &all[key], &value, &mut stored);
            assert_eq!(lives.living(&stored), value, "what was just learned is alive");
            if birth_of(&stored) != birth_of(&all[key]) || all[key].is_empty() {
                order.push_back((key, birth_of(&stored)));
                born += 1;
            }
            all[key] = stored;
            while order.front().is_some_and(|(_, birth)| *birth < lives.horizon()) {
                order.pop_front();
            }
            assert_eq!(lives.counts(), (order.len() as u64, born - order.len() as u64));
        }
        let is_alive = |(key, birth): &(usize, u64)| birth_of(&all[*key]) == *birth;
        assert!(order.iter().filter(|one| is_alive(one)).count() * 10 > order.len() * 9);
        let bytes: usize = order.iter().map(|&(key, _)| all[key].len() + 20).sum();
        assert!(
            bytes <= capacity_bytes && bytes > capacity_bytes / 3,
            "{bytes} of {capacity_bytes}"
        );
    }
}
