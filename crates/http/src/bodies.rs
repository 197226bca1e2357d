//! Bodies that are too long for a record: objects by number, and the policy that evicts them.
//!
//! ```text
//! insert -> cached: get() counts a hit -> remove(), with the record
//!                                      -> evict(), to free memory: the record then leads to no body, which is a miss
//! ```
//!
//! A policy decides that knows their lengths ([`larder::policy::size_aware`]). An evicted body is
//! revoked: its readers continue, and its memory is free when the last one is done.
//!
//! Invariant: a [`BodyId`] has a generation, so the ID of a deleted body never finds another body.
//!
//! Bounds: the limit of [`Bodies::new`]. Cost: a lock, held while the policy works; some 80 bytes a
//! body.

use std::sync::Arc;

use larder::policy::{Entries, EntryNumber, Replacement, SizeAware};
use larder_mem::object::Object;
use parking_lot::Mutex;

use crate::key::Key;
use crate::record::BodyId;

/// The most bodies at once.
pub const BODIES_MAX: usize = 1 << 24;

/// The bodies of a cache.
#[derive(Debug)]
pub struct Bodies {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    slots: Vec<Slot>,
    slots_max: usize,
    free: Vec<EntryNumber>,
    policy: SizeAware,
    evicted: u64,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    key: u64,
    /// Memory that its eviction frees. Its filler has ended, so it stays as it is.
    bytes: u64,
    object: Option<Arc<Object>>,
}

/// The data that the policy may read.
struct Known<'a>(&'a [Slot]);

impl Entries for Known<'_> {
    fn is_expired(&self, _entry: EntryNumber) -> bool {
        // A 304 may renew a stale body; its record states when it expires.
        false
    }

    fn key(&self, entry: EntryNumber) -> u64 {
        self.0.get(entry as usize).map_or(0, |slot| slot.key)
    }

    fn size(&self, entry: EntryNumber) -> u64 {
        self.0.get(entry as usize).map_or(1, |slot| slot.bytes)
    }
}

impl BodyId {
    fn new(number: EntryNumber, generation: u32) -> BodyId {
        BodyId(u64::from(generation) << 32 | u64::from(number))
    }

    fn parts(self) -> (usize, u32) {
        (self.0 as u32 as usize, (self.0 >> 32) as u32)
    }
}

impl Bodies {
    /// Room for this many bodies.
    pub fn new(bodies_max: usize) -> Result<Bodies, larder::Error> {
        let slots_max = bodies_max.clamp(16, BODIES_MAX);
        let policy = SizeAware::new(slots_max, slots_max as u64)?;
        let inner = Inner { slots: Vec::new(), slots_max, free: Vec::new(), policy, evicted: 0 };
        Ok(Bodies { inner: Mutex::new(inner) })
    }

    /// Adds a body, whole. Where all numbers are taken, it evicts another.
    pub fn insert(&self, key: &Key, object: Arc<Object>) -> BodyId {
        let key = u64::from_le_bytes(*key.first_chunk().expect("a key is longer"));
        let mut left = None;
        let id = {
            let mut inner = self.inner.lock();
            inner.policy.arriving(key);
            if inner.free.is_empty() && inner.slots.len() == inner.slots_max {
                left = inner.evict();
            }
            let number = match inner.free.pop() {
                Some(number) => number,
                None => {
                    inner.slots.push(Slot { generation: 0, key: 0, bytes: 0, object: None });
                    (inner.slots.len() - 1) as EntryNumber
                }
            };
            let slot = &mut inner.slots[number as usize];
            (slot.key, slot.bytes) = (key, object.bytes_held());
            slot.object = Some(object);
            let id = BodyId::new(number, slot.generation);
            inner.policy.inserted(number);
            id
        };
        revoke(left);
        id
    }

    /// The body, if it is cached; counts a hit.
    pub fn get(&self, id: BodyId) -> Option<Arc<Object>> {
        let mut inner = self.inner.lock();
        let number = inner.number(id)?;
        inner.policy.hit(number, 0);
        inner.slots[number as usize].object.clone()
    }

    /// Deletes a body.
    pub fn remove(&self, id: BodyId) {
        let object = {
            let mut inner = self.inner.lock();
            let Some(number) = inner.number(id) else { return };
            inner.policy.removed(number);
            inner.take(number)
        };
        revoke(object);
    }

    /// Evicts bodies until this many bytes of memory are free, or will be when their readers are
    /// done. Returns that number of bytes.
    pub fn evict(&self, bytes: u64) -> u64 {
        let mut freed = 0;
        while freed < bytes {
            let left = self.inner.lock().evict();
            let Some(object) = left else { break };
            freed += object.bytes_held();
            revoke(Some(object));
        }
        freed
    }

    /// The number of cached bodies, and of evicted ones.
    pub fn counts(&self) -> (usize, u64) {
        let inner = self.inner.lock();
        (inner.slots.len() - inner.free.len(), inner.evicted)
    }
}

impl Inner {
    fn number(&self, id: BodyId) -> Option<EntryNumber> {
        let (index, generation) = id.parts();
        let slot = self.slots.get(index)?;
        (slot.generation == generation && slot.object.is_some()).then_some(index as EntryNumber)
    }

    fn evict(&mut self) -> Option<Arc<Object>> {
        let number = self.policy.evict(None, &Known(&self.slots))?;
        self.evicted += 1;
        self.take(number)
    }

    fn take(&mut self, number: EntryNumber) -> Option<Arc<Object>> {
        let slot = &mut self.slots[number as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(number);
        slot.object.take()
    }
}

/// Frees memory. The caller holds no lock, since the call may notify others.
fn revoke(object: Option<Arc<Object>>) {
    if let Some(object) = object {
        object.revoke();
    }
}

#[cfg(test)]
mod tests {
    use larder_mem::object::{Kind, Notice, ObjectStore, Plan, Post, Room, StoreOptions};

    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl Post for Nowhere {
        fn post(&self, _notice: Notice) {}
    }

    fn body(store: &ObjectStore, bytes: usize) -> Arc<Object> {
        let plan = Plan { loop_number: 0, bytes: Some(bytes as u64), kind: Kind::Stored };
        let mut filler = store.create(plan);
        let mut rest = bytes;
        while rest > 0 {
            let Room::Memory(room) = filler.room(rest) else { panic!("there is room") };
            let part = room.len().min(rest);
            room[..part].fill(7);
            filler.wrote(part);
            rest -= part;
        }
        let object = filler.object().clone();
        filler.seal();
        object
    }

    /// Of bodies that were requested alike, a large one is evicted first; one that was requested
    /// often stays.
    #[test]
    fn large_bodies_are_evicted_first() {
        let store = ObjectStore::new(StoreOptions::of(64 << 20), Arc::new(Nowhere)).unwrap();
        let bodies = Bodies::new(100).unwrap();
        let mut ids = Vec::new();
        for number in 0u8..30 {
            let bytes = if number % 10 == 9 { 4 << 20 } else { 20 << 10 };
            ids.push(bodies.insert(&[number; size_of::<Key>()], body(&store, bytes)));
        }
        (0..15).for_each(|_| _ = bodies.get(ids[29]));
        assert!(bodies.evict(7 << 20) >= 7 << 20);
        let there: Vec<bool> = ids.iter().map(|id| bodies.get(*id).is_some()).collect();
        let expected: Vec<bool> = (0..30).map(|number| number != 9 && number != 19).collect();
        assert_eq!(there, expected);
        assert_eq!(bodies.counts(), (28, 2));
    }
}
