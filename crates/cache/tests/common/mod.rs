//! The slow and obvious cache, and what the tests share with it.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;

use larder::mem::{Classes, HEADER_BYTES};
use larder::{Cache, Proxy, Seconds, Ttl};

/// A small generator: the same numbers from the same seed, everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// Octets of a length below `max`, short ones more often.
    pub fn bytes(&mut self, max: usize) -> Vec<u8> {
        let max = if self.below(4) > 0 { max.min(100) } else { max };
        let len = self.below(max as u64 + 1) as usize;
        let first = self.next() as u8;
        (0..len).map(|i| first.wrapping_add(i as u8)).collect()
    }
}

/// A key of 5 to 33 octets, as addresses and address pairs have.
pub fn key_of(number: u64) -> Vec<u8> {
    let mut key = number.to_be_bytes().repeat(4);
    key.truncate(8 + (number % 25) as usize);
    key
}

struct ModelEntry {
    value: Vec<u8>,
    end: Option<u32>,
    born: u64,
    charge: u64,
}

/// First in, first out, within a sum of charges: the whole of what the engine promises about content.
pub struct Model {
    classes: Classes,
    charge_max: u64,
    entries_max: usize,
    born: u64,
    charge: u64,
    entries: BTreeMap<Vec<u8>, ModelEntry>,
    by_age: BTreeMap<u64, Vec<u8>>,
}

impl Model {
    pub fn of(cache: &Cache) -> Model {
        let stats = cache.stats().unwrap();
        let page_bytes = stats.classes.last().unwrap().slot_bytes as usize;
        Model {
            classes: Classes::new(page_bytes),
            charge_max: stats.charge_bytes_max,
            entries_max: stats.entries_max as usize,
            born: 0,
            charge: 0,
            entries: BTreeMap::new(),
            by_age: BTreeMap::new(),
        }
    }

    pub fn insert(&mut self, key: &[u8], value: &[u8], ttl: Ttl, now: Seconds) {
        let class = self.classes.of(HEADER_BYTES + key.len() + value.len()).unwrap();
        let charge = self.classes.charge(class) as u64;
        let old = self.entries.remove(key);
        self.charge -= old.as_ref().map_or(0, |old| old.charge);
        let born = old.as_ref().map_or(self.born, |old| old.born);
        self.born += 1;
        let full = |model: &Model| {
            model.charge + charge > model.charge_max
                || (old.is_none() && model.entries.len() >= model.entries_max)
        };
        while full(self) {
            let (&oldest, _) = self.by_age.iter().find(|&(&age, _)| age != born).unwrap();
            let gone = self.by_age.remove(&oldest).unwrap();
            self.charge -= self.entries.remove(&gone).unwrap().charge;
        }
        self.charge += charge;
        self.by_age.insert(born, key.to_vec());
        let entry = ModelEntry { value: value.to_vec(), end: end_of(ttl, now), born, charge };
        self.entries.insert(key.to_vec(), entry);
    }

    pub fn remove(&mut self, key: &[u8]) {
        if let Some(old) = self.entries.remove(key) {
            self.charge -= old.charge;
            self.by_age.remove(&old.born);
        }
    }

    pub fn touch(&mut self, key: &[u8], ttl: Ttl, now: Seconds) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.end = end_of(ttl, now);
        }
    }

    pub fn get(&self, key: &[u8], now: Seconds) -> Option<&[u8]> {
        let entry = self.entries.get(key)?;
        entry.end.is_none_or(|end| now.0 < end).then_some(&entry.value)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

fn end_of(ttl: Ttl, now: Seconds) -> Option<u32> {
    ttl.as_seconds().map(|seconds| now.0.saturating_add(seconds).max(1))
}

/// The cache holds what the model holds, in the model's order, and the proxy reads it.
pub fn assert_same(cache: &Cache, proxy: &Proxy, model: &Model, now: Seconds, seed: u64) {
    let stats = cache.stats().unwrap();
    assert_eq!(stats.conflicts, 0, "seed {seed}: the model knows no conflicts");
    assert_eq!(
        (stats.entries, stats.charge_bytes),
        (model.len() as u64, model.charge),
        "seed {seed}"
    );
    let mut entries = cache.iter(now);
    let mut live = Vec::new();
    for key in model.by_age.values() {
        let Some(value) = model.get(key, now) else {
            assert!(proxy.get(key, now).is_none(), "seed {seed}: {key:02x?} should have ended");
            continue;
        };
        let entry = entries.next().unwrap_or_else(|| panic!("seed {seed}: {key:02x?} is missing"));
        assert_eq!((entry.key(), entry.value()), (&key[..], value), "seed {seed}");
        assert_eq!(entry.expires().map(|end| end.0), model.entries[key].end, "seed {seed}");
        assert_eq!(proxy.get(key, now).as_deref(), Some(value), "seed {seed}: {key:02x?}");
        live.push(key.clone());
    }
    assert_eq!(entries.next(), None, "seed {seed}: more entries than the model has");
    let absent = (0..50).map(|number| key_of(u64::MAX - number));
    let keys: Vec<Vec<u8>> = live.into_iter().chain(absent).collect();
    let mut seen = 0;
    proxy.get_many(&keys, now, |i, entry| {
        assert_eq!((i, entry.as_deref()), (seen, model.get(&keys[i], now)), "seed {seed}");
        seen += 1;
    });
    assert_eq!(seen, keys.len());
}

/// Every live entry, copied out, in the cache's order.
pub fn dump(cache: &Cache) -> Vec<larder::OwnedEntry> {
    cache.iter(Seconds(0)).collect()
}
