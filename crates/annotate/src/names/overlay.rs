//! What one batch changed, and what was ever learned at a glance.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};

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
    /// Room for about as much as the batch before needed.
    pub(super) fn like(other: &Overlay) -> Overlay {
        Overlay {
            newest: HashMap::with_capacity_and_hasher(other.newest.len(), Default::default()),
            changes: Vec::with_capacity(other.changes.len()),
            bytes: Vec::with_capacity(other.bytes.len()),
        }
    }

    pub(super) fn slice(&self, range: (u32, u32)) -> &[u8] {
        &self.bytes[range.0 as usize..range.1 as usize]
    }

    pub(super) fn keep(&mut self, bytes: &[u8]) -> (u32, u32) {
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

    pub(super) fn add(
        &mut self,
        hash: u64,
        key: (u32, u32),
        packet: u64,
        value: Option<&[u8]>,
    ) -> u32 {
        let value = value.map(|value| self.keep(value));
        let at = self.changes.len() as u32;
        let older = self.newest.insert(hash, at).unwrap_or(NO_CHANGE);
        self.changes.push(Change { key, value, packet, older });
        at
    }

    /// True when the batch taught nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Facts that only grow, kept a hash slot each, with the batch that taught them. They answer
/// "why is there no name", may err on the side of a collision, and never name anything.
pub struct Marks {
    slots: Box<[AtomicU32]>,
}

impl Marks {
    /// Room for about `count` facts.
    pub fn new(count: usize) -> Marks {
        Marks { slots: (0..count.next_power_of_two()).map(|_| AtomicU32::new(0)).collect() }
    }

    fn slot(&self, hash: u64) -> &AtomicU32 {
        &self.slots[hash as usize & (self.slots.len() - 1)]
    }

    /// Notes a fact learned in batch `batch`. One writer; first come stays.
    pub fn set(&self, hash: u64, batch: u64) {
        let slot = self.slot(hash);
        // Relaxed: whoever may act on batch `batch` has synchronised with the edge through the
        // scheduler's lock, and later batches' marks are told apart by their number.
        if slot.load(Ordering::Relaxed) == 0 {
            slot.store((batch as u32).saturating_add(1), Ordering::Relaxed);
        }
    }

    /// True when the fact was noted in batch `batch` or before.
    pub fn has(&self, hash: u64, batch: u64) -> bool {
        let noted = self.slot(hash).load(Ordering::Relaxed);
        noted != 0 && u64::from(noted) <= batch + 1
    }
}

/// What was ever learned, at a glance: most addresses have no name, and are not looked up in vain.
pub struct Facts {
    /// Addresses that were named by DNS: no name in the cache then means that it was evicted.
    pub named: Marks,
    /// Addresses whose hosts said their own name. Few, so that these marks stay near.
    pub hosts: Marks,
    /// Clients that use encrypted DNS.
    pub encrypted: Marks,
}
