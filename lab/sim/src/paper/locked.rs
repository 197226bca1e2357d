//! The textbook cache as a contestant: a map, a replacement policy and one lock around both. With LRU, it is how we
//! read the LRU of the paper that larder began with.
//!
//! Each entry has a fixed place, so that an insert into a full cache allocates nothing. Several locks, or other
//! people's code, take part in the workspace `bench/`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use foldhash::fast::FixedState;
use larder::Error;
use larder::policy::{Entries, EntryNumber, Replacement};
use larder_bench::data::{Key, VALUE_BYTES_MAX, number_of};
use larder_bench::peer::{Handle, Peer, Shape};

/// A cache under one lock.
#[derive(Debug)]
pub struct Locked<P>(Mutex<Inside<P>>);

#[derive(Debug)]
struct Inside<P> {
    places: HashMap<Key, EntryNumber, FixedState>,
    entries: Vec<Entry>,
    entries_max: usize,
    policy: P,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    value: [u8; VALUE_BYTES_MAX],
    value_len: u8,
}

/// Policies that remember no keys of evicted entries ask nothing.
struct Nothing;

impl Entries for Nothing {
    fn is_expired(&self, _: EntryNumber) -> bool {
        false
    }

    fn key(&self, _: EntryNumber) -> u64 {
        0
    }
}

impl<P: Replacement> Locked<P> {
    /// Empty, under a policy for a number of entries, which `policy` makes.
    pub fn new(
        shape: &Shape,
        policy: impl FnOnce(usize) -> Result<P, Error>,
    ) -> Result<Locked<P>, Error> {
        let entries_max = shape.entries.clamp(1, EntryNumber::MAX as usize);
        Ok(Locked(Mutex::new(Inside {
            places: HashMap::with_capacity_and_hasher(entries_max, FixedState::default()),
            entries: Vec::with_capacity(entries_max),
            entries_max,
            policy: policy(entries_max)?,
        })))
    }
}

impl<P: Replacement> Inside<P> {
    fn put(&mut self, key: &Key, value: &[u8]) {
        let value = &value[..value.len().min(VALUE_BYTES_MAX)];
        let place = match self.places.get(key) {
            Some(&place) => {
                self.policy.updated(place);
                place
            }
            None => {
                let Some(place) = self.vacant() else { return };
                self.entries[place as usize].key = *key;
                self.places.insert(*key, place);
                self.policy.inserted(place);
                place
            }
        };
        let entry = &mut self.entries[place as usize];
        entry.value[..value.len()].copy_from_slice(value);
        entry.value_len = value.len() as u8;
    }

    /// A place for a new key.
    fn vacant(&mut self) -> Option<EntryNumber> {
        if self.entries.len() < self.entries_max {
            self.entries.push(Entry { key: Key::default(), value: [0; _], value_len: 0 });
            return Some(self.entries.len() as EntryNumber - 1);
        }
        let place = self.policy.evict(None, &Nothing)?;
        self.places.remove(&self.entries[place as usize].key);
        Some(place)
    }
}

impl<P: Replacement + Send> Peer for Locked<P> {
    type Handle<'a>
        = &'a Locked<P>
    where
        P: 'a;

    fn handle(&self) -> &Locked<P> {
        self
    }
}

impl<P: Replacement + Send> Handle for &Locked<P> {
    fn get(&mut self, key: &Key) -> Option<u64> {
        let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = *inside.places.get(key)?;
        inside.policy.hit(place, 0);
        let entry = &inside.entries[place as usize];
        Some(number_of(&entry.value[..usize::from(entry.value_len)]))
    }

    fn put(&mut self, key: &Key, value: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(key, value);
    }
}

#[cfg(test)]
mod tests {
    use larder_bench::data::{ValueBuffer, key};

    use super::*;
    use crate::policy::Lru;

    /// The least recent entry is evicted, a read and a second put save an entry, and values are those of their keys.
    #[test]
    fn the_least_recent_leaves() {
        let cache = Locked::new(&Shape { entries: 3, threads: 1 }, Lru::new).unwrap();
        let mut handle = cache.handle();
        let mut buffer = ValueBuffer::default();
        for number in [1, 2, 3] {
            handle.put(&key(number), buffer.value(number));
        }
        assert_eq!(handle.get(&key(1)), Some(1));
        handle.put(&key(2), buffer.value(2));
        handle.put(&key(4), buffer.value(4));
        let held = [1, 2, 3, 4].map(|number| handle.get(&key(number)));
        assert_eq!(held, [Some(1), Some(2), None, Some(4)]);
    }
}
