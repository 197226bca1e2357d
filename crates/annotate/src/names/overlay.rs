//! The changes of one batch, and marks of all that was ever learned.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use larder_mem::{prefetch_read, zeroed};

use super::lives::birth_of;

/// A hasher for keys that are already hashes.
#[derive(Default)]
pub struct Prehashed(u64);

impl Hasher for Prehashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only u64 keys are hashed");
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The changes of one batch: for each key its value before the batch and after each change.
///
/// Changes are in one list, keys and values in one arena. The changes of a key are chained from the
/// newest to the value before the batch, so a lookup ends at the first that is old enough.
#[derive(Default)]
pub struct Overlay {
    /// Hash of a key -> its newest change. Keys of one hash share a chain.
    newest: HashMap<u64, u32, BuildHasherDefault<Prehashed>>,
    pub(super) changes: Vec<Change>,
    bytes: Vec<u8>,
    /// Entries that were born before this were dead at the start of the batch, and are at its end.
    horizon: u64,
    last_horizon: u64,
    /// Packets after which more are dead, and the horizon then.
    horizons: Vec<(u64, u64)>,
    /// An entry of the batch died in it, and was born again: first changes are not in the order of births.
    has_reborn: bool,
}

const NO_CHANGE: u32 = u32::MAX;

#[derive(Clone, Copy)]
pub(super) struct Change {
    pub key: (u32, u32),
    pub value: Option<(u32, u32)>,
    /// The change acts on packets after this one; 0 = the value before the batch.
    packet: u64,
    /// The previous change of the same hash.
    older: u32,
}

impl Overlay {
    /// Reserves half as much again as the previous batch needed: most batches are alike, and
    /// growing later would copy. Entries that were born before `horizon` are dead.
    pub(super) fn like(other: &Overlay, horizon: u64) -> Overlay {
        let room = |len: usize| len + len / 2;
        Overlay {
            newest: HashMap::with_capacity_and_hasher(room(other.newest.len()), Default::default()),
            changes: Vec::with_capacity(room(other.changes.len())),
            bytes: Vec::with_capacity(room(other.bytes.len())),
            horizon,
            last_horizon: horizon,
            horizons: Vec::new(),
            has_reborn: false,
        }
    }

    /// Entries that were born before `horizon` are dead for packets after `packet`.
    pub(super) fn move_horizon(&mut self, packet: u64, horizon: u64) {
        if horizon == self.last_horizon {
            return;
        }
        self.last_horizon = horizon;
        match self.horizons.last_mut() {
            Some(last) if last.0 == packet => last.1 = horizon,
            _ => self.horizons.push((packet, horizon)),
        }
    }

    /// The horizon at the start of the batch.
    pub(super) fn first_horizon(&self) -> u64 {
        self.horizon
    }

    /// Keeps an entry that the batch does not change, and that readers of the batch do not have any more.
    pub(super) fn keep_entry(&mut self, hash: u64, key: &[u8], stored: &[u8]) {
        if self.find(hash, key, u64::MAX).is_none() {
            let key = self.keep(key);
            self.push(hash, key, 0, stored);
        }
    }

    /// True when the first changes of entries are not in the order of births.
    pub(super) fn has_reborn(&self) -> bool {
        self.has_reborn
    }

    /// The birth of the entry whose value before the batch is change `first`, as it is at the end of the batch.
    pub(super) fn birth(&self, hash: u64, first: u32) -> u64 {
        let key = self.slice(self.changes[first as usize].key);
        self.get(hash, key, u64::MAX).flatten().map_or(0, birth_of)
    }

    /// Whether the entry of a stored value lives just before packet `packet`.
    #[inline]
    pub(super) fn is_alive(&self, stored: &[u8], packet: u64) -> bool {
        let birth = birth_of(stored);
        birth >= self.last_horizon || birth >= self.horizon_before(packet)
    }

    #[cold]
    fn horizon_before(&self, packet: u64) -> u64 {
        let behind = self.horizons.partition_point(|&(after, _)| after < packet);
        behind.checked_sub(1).map_or(self.horizon, |at| self.horizons[at].1)
    }

    pub(super) fn slice(&self, range: (u32, u32)) -> &[u8] {
        &self.bytes[range.0 as usize..range.1 as usize]
    }

    fn keep(&mut self, bytes: &[u8]) -> (u32, u32) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        (start, self.bytes.len() as u32)
    }

    /// The latest change of a key that acts on packet `packet`.
    pub(super) fn find(&self, hash: u64, key: &[u8], packet: u64) -> Option<&Change> {
        let mut at = *self.newest.get(&hash)?;
        while let Some(change) = self.changes.get(at as usize) {
            if change.packet < packet && self.slice(change.key) == key {
                return Some(change);
            }
            at = change.older;
        }
        None
    }

    /// The value of a key just before packet `packet`; outer `None` when the batch does not change
    /// the key.
    pub(super) fn get(&self, hash: u64, key: &[u8], packet: u64) -> Option<Option<&[u8]>> {
        let change = self.find(hash, key, packet)?;
        Some(change.value.map(|range| self.slice(range)))
    }

    /// Adds the first change of a key in the batch, and the value before it; returns the number of
    /// the latter.
    pub(super) fn begin(
        &mut self,
        hash: u64,
        key: &[u8],
        before: Option<&[u8]>,
        packet: u64,
        value: &[u8],
    ) -> u32 {
        let key = self.keep(key);
        let before = before.map(|before| self.keep(before));
        let value = Some(self.keep(value));
        let first = self.changes.len() as u32;
        let older = self.newest.insert(hash, first + 1).unwrap_or(NO_CHANGE);
        self.changes.push(Change { key, value: before, packet: 0, older });
        self.changes.push(Change { key, value, packet, older: first });
        first
    }

    /// Adds another change of the key of `latest`.
    pub(super) fn add(&mut self, hash: u64, latest: &Change, packet: u64, value: &[u8]) {
        let before = latest.value.map(|before| birth_of(self.slice(before)));
        self.has_reborn |= before != Some(birth_of(value));
        self.push(hash, latest.key, packet, value);
    }

    fn push(&mut self, hash: u64, key: (u32, u32), packet: u64, value: &[u8]) {
        let value = Some(self.keep(value));
        let at = self.changes.len() as u32;
        let older = self.newest.insert(hash, at).unwrap_or(NO_CHANGE);
        self.changes.push(Change { key, value, packet, older });
    }

    /// True when the batch learned nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// A set of hashes that only grows. It may contain a hash that was not added (a collision). With
/// one bit a hash, a lookup that mostly fails touches few lines.
pub struct Sieve {
    words: Box<[AtomicU64]>,
}

impl Sieve {
    /// A sieve for about `count` hashes; rounded up to a power of two, at least 64.
    pub fn new(count: usize) -> Sieve {
        let words = count.next_power_of_two().div_ceil(64);
        Sieve { words: zeroed(words) }
    }

    /// The word of a hash and its bit there: the low bits choose both, as in [`Marks`].
    #[inline]
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        let word = (hash as usize / 64) & (self.words.len() - 1);
        (&self.words[word], 1 << (hash % 64))
    }

    /// Adds a hash. One writer.
    #[inline]
    pub fn add(&self, hash: u64) {
        let (word, bit) = self.place(hash);
        // Relaxed, and no read-modify-write: one writer, and see `Marks::set`.
        word.store(word.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
    }

    /// Removes all hashes.
    pub fn clear(&mut self) {
        self.words.iter_mut().for_each(|word| *word.get_mut() = 0);
    }

    /// Prefetches the word of a hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch_read(self.place(hash).0);
    }

    /// False when the hash was not added.
    #[inline]
    pub fn has(&self, hash: u64) -> bool {
        let (word, bit) = self.place(hash);
        word.load(Ordering::Relaxed) & bit != 0
    }
}

/// Marks that only grow: a slot for each hash, with the packet that set it. They tell why a name is
/// absent, may contain a collision, and never name anything.
pub struct Marks {
    slots: Box<[AtomicU64]>,
    /// A bit for each slot in use. It is a thirty-second of the memory, and most lookups end there.
    used: Sieve,
}

impl Marks {
    /// Marks for about `count` hashes, at least 64.
    pub fn new(count: usize) -> Marks {
        let count = count.next_power_of_two().max(64);
        Marks { slots: zeroed(count), used: Sieve::new(count) }
    }

    #[inline]
    fn slot(&self, hash: u64) -> &AtomicU64 {
        &self.slots[hash as usize & (self.slots.len() - 1)]
    }

    /// Sets a mark by packet `packet`; 0: before the first one. One writer; the first packet stays.
    #[inline]
    pub fn set(&self, hash: u64, packet: u64) {
        // Relaxed: a worker that handles the packet's batch has synchronized with the name learner
        // through the scheduler's lock, and marks of later packets are distinguished by their
        // number. A reader that sees the bit and not yet the slot handles an earlier batch and
        // reads 0, which means no as well.
        if !self.used.has(hash) {
            self.slot(hash).store(packet.saturating_add(1), Ordering::Relaxed);
            self.used.add(hash);
        }
    }

    /// Prefetches the memory that [`Marks::set`] reads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.used.prefetch(hash);
    }

    /// False when no packet set the mark; cheaper than [`Marks::has`].
    #[inline]
    pub fn may_have(&self, hash: u64) -> bool {
        self.used.has(hash)
    }

    /// True when the mark was set before packet `packet`, as with names ([`Overlay`]).
    #[inline]
    pub fn has(&self, hash: u64, packet: u64) -> bool {
        if !self.may_have(hash) {
            return false;
        }
        let noted = self.slot(hash).load(Ordering::Relaxed);
        noted != 0 && noted <= packet
    }
}

/// Marks of all that was ever learned: most addresses have no name, and are not looked up in the
/// engine.
pub struct LearnedMarks {
    /// Addresses that DNS named: if the cache has no name, it was evicted.
    pub named: Marks,
    /// Addresses whose hosts stated their own name. They are few, so these marks stay in the CPU's
    /// cache.
    pub hosts: Marks,
    /// Clients that use encrypted DNS.
    pub encrypted: Marks,
    /// Names without a network count in all networks: their source does not tell networks apart.
    /// Set before the first packet, so all workers see it.
    pub of_all_networks: AtomicBool,
}
