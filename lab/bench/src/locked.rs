//! The textbook cache as a contestant: a map, a list of recency and one lock around both. It is how we read the
//! LRU of the paper that larder began with.
//!
//! The list is `larder::policy::Lru`; entries have a fixed place each, so that an insert into a full cache
//! allocates nothing. Several locks, or other people's code, take part in the workspace `bench/`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use foldhash::fast::FixedState;
use larder::Error;
use larder::policy::{Entries, EntryNumber, Lru, Replacement};

use crate::data::{Key, VALUE_BYTES_MAX, number_of};
use crate::peer::{Handle, Peer, Shape};

/// A cache under one lock.
#[derive(Debug)]
pub struct Locked(Mutex<Inside>);

#[derive(Debug)]
struct Inside {
    places: HashMap<Key, EntryNumber, FixedState>,
    entries: Vec<Entry>,
    entries_max: usize,
    order: Lru,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    value: [u8; VALUE_BYTES_MAX],
    value_len: u8,
}

/// An LRU asks nothing.
struct Nothing;

impl Entries for Nothing {
    fn is_expired(&self, _: EntryNumber) -> bool {
        false
    }

    fn key(&self, _: EntryNumber) -> u64 {
        0
    }
}

impl Locked {
    /// Empty, for so many entries.
    pub fn new(shape: &Shape) -> Result<Locked, Error> {
        let entries_max = shape.entries.clamp(1, EntryNumber::MAX as usize);
        Ok(Locked(Mutex::new(Inside {
            places: HashMap::with_capacity_and_hasher(entries_max, FixedState::default()),
            entries: Vec::with_capacity(entries_max),
            entries_max,
            order: Lru::new(entries_max)?,
        })))
    }
}

impl Inside {
    fn put(&mut self, key: &Key, value: &[u8]) {
        let value = &value[..value.len().min(VALUE_BYTES_MAX)];
        let place = match self.places.get(key) {
            Some(&place) => {
                self.order.updated(place);
                place
            }
            None => {
                let Some(place) = self.vacant() else { return };
                self.entries[place as usize].key = *key;
                self.places.insert(*key, place);
                self.order.inserted(place);
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
        let place = self.order.evict(None, &Nothing)?;
        self.places.remove(&self.entries[place as usize].key);
        Some(place)
    }
}

impl Peer for Locked {
    type Handle<'a> = &'a Locked;

    fn handle(&self) -> &Locked {
        self
    }
}

impl Handle for &Locked {
    fn get(&mut self, key: &Key) -> Option<u64> {
        let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = *inside.places.get(key)?;
        inside.order.hit(place, 0);
        let entry = &inside.entries[place as usize];
        Some(number_of(&entry.value[..usize::from(entry.value_len)]))
    }

    fn put(&mut self, key: &Key, value: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{ValueBuffer, key};

    /// The least recent leaves, a read and a second put save, and values are those of their keys.
    #[test]
    fn the_least_recent_leaves() {
        let cache = Locked::new(&Shape { entries: 3, threads: 1 }).unwrap();
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
