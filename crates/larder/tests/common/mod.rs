//! The slow and simple cache, and what the tests share with it.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::{BTreeMap, BTreeSet};

use larder::{Cache, Cause, Policy, Reader, Seconds, Ttl};
use larder_mem::{CHARGE_UNITS, Classes, HEADER_BYTES, VERSION_BYTES};
pub use larder_testkit::random::Random;

/// All policies.
pub const POLICIES: [Policy; 2] = [Policy::Partitioned, Policy::Fifo];

/// Added to a test's seeds, so that a long run can try others: a thousand times `LARDER_SEED`.
pub fn seed_added() -> u64 {
    let wanted = std::env::var("LARDER_SEED").map(|seed| seed.parse::<u64>().expect("a number"));
    1000 * wanted.unwrap_or(0)
}

/// Bytes of a length below `max`, short ones more often.
pub fn bytes(random: &mut Random, max: usize) -> Vec<u8> {
    let max = if random.below(4) > 0 { max.min(100) } else { max };
    let len = random.index(max + 1);
    let first = random.next() as u8;
    (0..len).map(|i| first.wrapping_add(i as u8)).collect()
}

/// A key of 5 to 33 bytes, as addresses and address pairs have.
pub fn key_of(number: u64) -> Vec<u8> {
    let mut key = number.to_be_bytes().repeat(4);
    key.truncate(8 + (number % 25) as usize);
    key
}

struct ModelEntry {
    value: Vec<u8>,
    version: Option<u64>,
    end: Option<u32>,
    born: u64,
    charge: u64,
}

impl ModelEntry {
    fn is_over(&self, now: Seconds) -> bool {
        self.end.is_some_and(|end| now.0 >= end)
    }
}

/// First in, first out, within a sum of charges: all that the engine promises about content. If
/// another policy chooses, the engine reports the evictions, and the model checks everything else.
#[derive(Default)]
struct ModelShard {
    born: u64,
    charge: u64,
    /// Classes ever used.
    sizes: BTreeSet<u8>,
    entries: BTreeMap<Vec<u8>, ModelEntry>,
    by_age: BTreeMap<u64, Vec<u8>>,
}

/// One such cache per shard of the cache, each for its keys.
pub struct Model {
    cache: Cache,
    classes: Classes,
    charge_max: u64,
    entries_max: usize,
    stale: u32,
    is_reported: bool,
    shards: Vec<ModelShard>,
}

impl Model {
    pub fn of(cache: &Cache) -> Model {
        Model::with(cache, 0, Policy::Fifo)
    }

    /// Of a cache with a stale window and a policy.
    pub fn with(cache: &Cache, stale: u32, policy: Policy) -> Model {
        let stats = cache.stats().unwrap();
        let page_bytes = stats.classes.last().unwrap().slot_bytes as usize;
        Model {
            cache: cache.clone(),
            classes: Classes::new(page_bytes),
            charge_max: stats.charge_bytes_max * CHARGE_UNITS / cache.shards() as u64,
            entries_max: stats.entries_max as usize / cache.shards(),
            stale,
            is_reported: policy != Policy::Fifo,
            shards: (0..cache.shards()).map(|_| ModelShard::default()).collect(),
        }
    }

    fn shard_of(&self, key: &[u8]) -> usize {
        (self.cache.hash(key).get() >> 16) as usize % self.shards.len()
    }

    fn entry(&self, key: &[u8]) -> Option<&ModelEntry> {
        self.shards[self.shard_of(key)].entries.get(key)
    }

    pub fn insert(&mut self, key: &[u8], value: &[u8], ttl: Ttl, now: Seconds) {
        self.store(key, value, None, ttl, now);
    }

    pub fn insert_if_absent(&mut self, key: &[u8], value: &[u8], ttl: Ttl, now: Seconds) {
        if self.entry(key).is_none_or(|entry| entry.is_over(now)) {
            self.store(key, value, None, ttl, now);
        }
    }

    pub fn insert_if_newer(
        &mut self,
        key: &[u8],
        value: &[u8],
        version: u64,
        ttl: Ttl,
        now: Seconds,
    ) {
        let there = self.entry(key).filter(|entry| !entry.is_over(now));
        if there.and_then(|entry| entry.version).is_none_or(|there| there < version) {
            self.store(key, value, Some(version), ttl, now);
        }
    }

    fn store(&mut self, key: &[u8], value: &[u8], version: Option<u64>, ttl: Ttl, now: Seconds) {
        let version_len = if version.is_some() { VERSION_BYTES } else { 0 };
        let class = self.classes.of(HEADER_BYTES + key.len() + value.len() + version_len).unwrap();
        let charge = self.classes.charge(class);
        let (charge_max, entries_max) = (self.charge_max, self.entries_max);
        let number = self.shard_of(key);
        let shard = &mut self.shards[number];
        if shard.sizes.insert(class) {
            shard.charge += self.classes.opening(class);
        }
        let old = shard.entries.remove(key);
        shard.charge -= old.as_ref().map_or(0, |old| old.charge);
        let born = old.as_ref().map_or(shard.born, |old| old.born);
        shard.born += 1;
        let full = |shard: &ModelShard| {
            shard.charge + charge > charge_max
                || (old.is_none() && shard.entries.len() >= entries_max)
        };
        while !self.is_reported && full(shard) {
            let (&oldest, _) = shard.by_age.iter().find(|&(&age, _)| age != born).unwrap();
            let gone = shard.by_age.remove(&oldest).unwrap();
            shard.charge -= shard.entries.remove(&gone).unwrap().charge;
        }
        shard.charge += charge;
        shard.by_age.insert(born, key.to_vec());
        let value = value.to_vec();
        let entry = ModelEntry { value, version, end: end_of(ttl, now), born, charge };
        shard.entries.insert(key.to_vec(), entry);
    }

    /// The engine reports an entry evicted for the last insert, which was of `stored`.
    pub fn left(&mut self, key: &[u8], value: &[u8], cause: Cause, stored: &[u8], now: Seconds) {
        assert!(key != stored, "an insert never evicts itself");
        let entry = self.entry(key).expect("an evicted entry was there");
        assert_eq!(entry.value, value);
        let is_dead = entry.is_over(Seconds(now.0.saturating_sub(self.stale)));
        assert_eq!(cause, if is_dead { Cause::Expired } else { Cause::Budget });
        if self.is_reported {
            self.remove(key);
        }
    }

    pub fn remove(&mut self, key: &[u8]) {
        let number = self.shard_of(key);
        let shard = &mut self.shards[number];
        if let Some(old) = shard.entries.remove(key) {
            shard.charge -= old.charge;
            shard.by_age.remove(&old.born);
        }
    }

    pub fn touch(&mut self, key: &[u8], ttl: Ttl, now: Seconds) {
        let number = self.shard_of(key);
        if let Some(entry) = self.shards[number].entries.get_mut(key) {
            entry.end = end_of(ttl, now);
        }
    }

    pub fn get(&self, key: &[u8], now: Seconds) -> Option<&[u8]> {
        let entry = self.entry(key)?;
        (!entry.is_over(now)).then_some(&entry.value)
    }

    pub fn get_stale(&self, key: &[u8], now: Seconds) -> Option<&[u8]> {
        self.get(key, Seconds(now.0.saturating_sub(self.stale)))
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.entries.len()).sum()
    }

    fn charge(&self) -> u64 {
        self.shards.iter().map(|shard| shard.charge / CHARGE_UNITS).sum()
    }
}

fn end_of(ttl: Ttl, now: Seconds) -> Option<u32> {
    ttl.as_seconds().map(|seconds| now.0.saturating_add(seconds).max(1))
}

/// The cache holds the model's entries, in the model's order, and the reader reads them.
pub fn assert_same(cache: &Cache, reader: &Reader, model: &Model, now: Seconds, seed: u64) {
    let stats = cache.stats().unwrap();
    assert_eq!(stats.conflicts, 0, "seed {seed}: the model knows no conflicts");
    assert_eq!(
        (stats.entries, stats.charge_bytes),
        (model.len() as u64, model.charge()),
        "seed {seed}"
    );
    let mut entries: Vec<_> = cache.iter(now).collect();
    if model.is_reported {
        // Whatever the policy's order: in the model's.
        entries.sort_by_cached_key(|entry| {
            let shard = model.shard_of(entry.key());
            model.shards[shard].entries.get(entry.key()).map(|entry| (shard, entry.born))
        });
    }
    let mut entries = entries.into_iter();
    let mut live = Vec::new();
    for key in model.shards.iter().flat_map(|shard| shard.by_age.values()) {
        let stale = reader.get_stale(key, now);
        assert_eq!(stale.as_deref(), model.get_stale(key, now), "seed {seed}: {key:02x?}");
        let Some(value) = model.get(key, now) else {
            assert!(reader.get(key, now).is_none(), "seed {seed}: {key:02x?} should have ended");
            assert!(stale.is_none_or(|entry| entry.is_stale(now)));
            continue;
        };
        let expected = model.entry(key).unwrap();
        let entry = entries.next().unwrap_or_else(|| panic!("seed {seed}: {key:02x?} is missing"));
        assert_eq!((entry.key(), entry.value()), (&key[..], value), "seed {seed}");
        assert_eq!(entry.expires().map(|end| end.0), expected.end, "seed {seed}");
        assert_eq!(entry.version(), expected.version, "seed {seed}");
        assert_eq!(reader.get(key, now).as_deref(), Some(value), "seed {seed}: {key:02x?}");
        live.push(key.clone());
    }
    assert_eq!(entries.next(), None, "seed {seed}: more entries than the model has");
    let absent = (0..50).map(|number| key_of(u64::MAX - number));
    let keys: Vec<Vec<u8>> = live.into_iter().chain(absent).collect();
    let mut seen = 0;
    reader.get_many(&keys, now, |i, entry| {
        assert_eq!((i, entry.as_deref()), (seen, model.get(&keys[i], now)), "seed {seed}");
        seen += 1;
    });
    assert_eq!(seen, keys.len());
}

/// Every live entry, copied out, in the cache's order.
pub fn dump(cache: &Cache) -> Vec<larder::OwnedEntry> {
    cache.iter(Seconds(0)).collect()
}
