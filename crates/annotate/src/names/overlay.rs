//! What one batch changed, and what was ever learned at a glance.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use larder::prefetch_read;

/// A hasher for keys that are hashes already.
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

/// What one batch changed: for each key its value before the batch and after each change.
///
/// Changes lie in one list, keys and values in one arena; a key's changes are chained from the
/// newest to the value before the batch, so that a lookup ends at the first that is old enough.
#[derive(Default)]
pub struct Overlay {
    /// Hash of a key -> its newest change. Keys of one hash share a chain.
    newest: HashMap<u64, u32, BuildHasherDefault<Prehashed>>,
    pub(super) changes: Vec<Change>,
    bytes: Vec<u8>,
}

const NO_CHANGE: u32 = u32::MAX;

#[derive(Clone, Copy)]
pub(super) struct Change {
    pub key: (u32, u32),
    pub value: Option<(u32, u32)>,
    /// The change acts on packets after this one; 0 = the value before the batch.
    packet: u64,
    /// The change before, of the same hash.
    older: u32,
}

impl Overlay {
    /// Room for half as much again as the batch before needed: most batches are like it, and what
    /// grows while it is filled is moved.
    pub(super) fn like(other: &Overlay) -> Overlay {
        let room = |len: usize| len + len / 2;
        Overlay {
            newest: HashMap::with_capacity_and_hasher(room(other.newest.len()), Default::default()),
            changes: Vec::with_capacity(room(other.changes.len())),
            bytes: Vec::with_capacity(room(other.bytes.len())),
        }
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

    /// The value of a key just before packet `packet`; outer `None` when the batch leaves the key
    /// as it is in the engine.
    pub(super) fn get(&self, hash: u64, key: &[u8], packet: u64) -> Option<Option<&[u8]>> {
        let change = self.find(hash, key, packet)?;
        Some(change.value.map(|range| self.slice(range)))
    }

    /// Notes the first change of a key in the batch, and what the key had before; the number of
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

    /// Notes one more change of a key that [`Overlay::begin`] put at `key`.
    pub(super) fn add(&mut self, hash: u64, key: (u32, u32), packet: u64, value: &[u8]) {
        let value = Some(self.keep(value));
        let at = self.changes.len() as u32;
        let older = self.newest.insert(hash, at).unwrap_or(NO_CHANGE);
        self.changes.push(Change { key, value, packet, older });
    }

    /// True when the batch taught nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// A set of hashes that only grows and may err on the side of a collision. One bit each, so that a
/// question whose answer is mostly no touches few lines.
pub struct Sieve {
    words: Box<[AtomicU64]>,
}

impl Sieve {
    /// Room for about `count` hashes; rounded up to a power of two, at least 64.
    pub fn new(count: usize) -> Sieve {
        let words = count.next_power_of_two().div_ceil(64);
        Sieve { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
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

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.words.iter_mut().for_each(|word| *word.get_mut() = 0);
    }

    /// Asks for the word of a hash.
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

/// LearnedMarks that only grow, kept a hash slot each, with the batch that taught them. They answer
/// "why is there no name", may err on the side of a collision, and never name anything.
pub struct Marks {
    slots: Box<[AtomicU32]>,
    /// A bit for each slot in use: a thirty-second of the memory says no for most.
    used: Sieve,
}

impl Marks {
    /// Room for about `count` learned, at least 64.
    pub fn new(count: usize) -> Marks {
        let count = count.next_power_of_two().max(64);
        Marks { slots: (0..count).map(|_| AtomicU32::new(0)).collect(), used: Sieve::new(count) }
    }

    #[inline]
    fn slot(&self, hash: u64) -> &AtomicU32 {
        &self.slots[hash as usize & (self.slots.len() - 1)]
    }

    /// Notes a fact learned in batch `batch`. One writer; first come stays.
    #[inline]
    pub fn set(&self, hash: u64, batch: u64) {
        // Relaxed: whoever may act on batch `batch` has synchronised with the name learner through the
        // scheduler's lock, and later batches' marks are told apart by their number. Who sees the
        // bit and not yet the slot is of an earlier batch, and reads 0 there, which is no too.
        if !self.used.has(hash) {
            self.slot(hash).store((batch as u32).saturating_add(1), Ordering::Relaxed);
            self.used.add(hash);
        }
    }

    /// Asks for what [`Marks::set`] reads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.used.prefetch(hash);
    }

    /// False when the fact was noted in no batch; cheaper than [`Marks::has`].
    #[inline]
    pub fn may_have(&self, hash: u64) -> bool {
        self.used.has(hash)
    }

    /// True when the fact was noted in batch `batch` or before.
    #[inline]
    pub fn has(&self, hash: u64, batch: u64) -> bool {
        if !self.may_have(hash) {
            return false;
        }
        let noted = self.slot(hash).load(Ordering::Relaxed);
        noted != 0 && u64::from(noted) <= batch + 1
    }
}

/// What was ever learned, at a glance: most addresses have no name, and are not looked up in vain.
pub struct LearnedMarks {
    /// Addresses that were named by DNS: no name in the cache then means that it was evicted.
    pub named: Marks,
    /// Addresses whose hosts said their own name. Few, so that these marks stay near.
    pub hosts: Marks,
    /// Clients that use encrypted DNS.
    pub encrypted: Marks,
    /// Names that were learned of no network count in all: they come from where networks are not told. Set before the first
    /// packet, so that all workers see it.
    pub of_all_networks: AtomicBool,
}
