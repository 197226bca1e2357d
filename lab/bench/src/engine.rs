//! larder as a contestant.
//!
//! A handle of the engine is a writer and a reader, as a core has them. The reader syncs after every 1024 puts, and
//! when a writer is stalled: that time is part of the measured time. [`Simple`] is the API that most programs use, a
//! `Map` that all threads share; [`Objects`] is an `ObjectMap`.

use std::sync::Arc;

use larder::{
    Builder, Cache, Clock, Error, IndexMode, Map, ObjectMap, Policy, Reader, Seconds, Ttl, Value,
    Writer,
};

use crate::data::{KEY_BYTES, Key, VALUE_BYTES_MAX, number_of};
use crate::peer::{Handle, Peer, Shape};

/// One way to build the engine. The first one stands for larder; the others take part as peers.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// What rows call it.
    pub name: &'static str,
    /// What a reader should know of it.
    pub note: &'static str,
    /// What is set beyond budget, readers and entry size.
    pub configure: fn(Builder) -> Builder,
}

/// Every way in which the engine takes part: a line for each policy, reader, or number of shards.
pub const VARIANTS: &[Variant] = &[
    Variant {
        name: "larder",
        note: "as it comes: three partitions, an index replica a core, shards by its budget",
        configure: |builder| builder,
    },
    Variant {
        name: "larder, FIFO",
        note: "FIFO; an index replica a core, shards by its budget",
        configure: |builder| builder.policy(Policy::Fifo),
    },
    Variant {
        name: "larder, shared",
        note: "three partitions, no replicas, shards by its budget",
        configure: |builder| builder.index_mode(IndexMode::Shared),
    },
    Variant {
        name: "larder, 1 shard",
        note: "three partitions in one shard, an index replica a core",
        configure: |builder| builder.shards(1),
    },
    Variant {
        name: "larder, 4 shards",
        note: "three partitions in four shards, an index replica a core",
        configure: |builder| builder.shards(4),
    },
];

/// The time that every operation is given.
pub const NOW: Seconds = Seconds(1);

/// Header, key and value of a usual entry, rounded up to its size class.
pub const ENTRY_BYTES_MEAN: usize = 48;

const PUTS_A_SYNC: u32 = 1024;

/// A cache, and what it was given.
#[derive(Debug)]
pub struct Engine {
    cache: Cache,
    budget: u64,
}

impl Engine {
    /// A cache with room for the shape's entries.
    pub fn new(variant: &Variant, shape: &Shape) -> Result<Engine, Error> {
        let builder = (variant.configure)(Cache::builder().readers_max(shape.threads));
        let (builder, budget) = sized(builder, shape)?;
        Ok(Engine { cache: builder.build()?, budget })
    }

    /// The cache itself, for works that only larder has.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// A handle; the error is that `Shape::threads` was too small.
    pub fn core(&self) -> Result<Core, Error> {
        Ok(Core { writer: self.cache.writer(), reader: self.cache.reader()?, puts: 0 })
    }
}

/// Finds the budget that holds the shape's entries. Building maps memory and does not touch it, so a few tries are
/// cheap.
fn sized(builder: Builder, shape: &Shape) -> Result<(Builder, u64), Error> {
    let builder = builder.entry_bytes_mean(ENTRY_BYTES_MEAN);
    let index_bytes = 8 * (1 + shape.threads) + 9;
    let mut budget = (shape.entries * (ENTRY_BYTES_MEAN + index_bytes)) as u64 + (1 << 20);
    for _ in 0..4 {
        let stats = builder.clone().budget(budget).build()?.stats()?;
        let entries = stats.entries_max.min(stats.charge_bytes_max / ENTRY_BYTES_MEAN as u64);
        let scaled = u128::from(budget) * shape.entries as u128 / u128::from(entries.max(1));
        budget = u64::try_from(scaled).unwrap_or(u64::MAX).max(64 << 10);
        // A handful of entries: the least there is.
        if let Err(Error::BudgetTooSmall { bytes_min, .. }) = builder.clone().budget(budget).build()
        {
            budget = bytes_min;
        }
    }
    Ok((builder.budget(budget), budget))
}

impl Peer for Engine {
    type Handle<'a> = Core;

    fn handle(&self) -> Core {
        self.core().expect("as many readers as the shape has threads, dropped after each run")
    }

    fn own_bytes(&self) -> Option<u64> {
        Some(self.budget)
    }
}

/// One core's writer and reader.
#[derive(Debug)]
pub struct Core {
    /// Its writer.
    pub writer: Writer,
    /// Its reader.
    pub reader: Reader,
    puts: u32,
}

impl Handle for Core {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.reader.get(key, NOW).map(|entry| number_of(&entry))
    }

    #[inline]
    fn get_many(&mut self, keys: &[Key], mut each: impl FnMut(Option<u64>)) {
        self.reader.get_many(keys, NOW, |_, entry| each(entry.map(|entry| number_of(&entry))));
    }

    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) {
        while let Err(error) = self.writer.insert(key, value, Ttl::FOREVER, NOW) {
            if !self.make_room(&error) {
                return;
            }
        }
        self.puts += 1;
        if self.puts == PUTS_A_SYNC {
            self.puts = 0;
            self.reader.sync();
        }
    }

    fn settle(&mut self) {
        while let Err(error) = self.writer.flush() {
            if !self.make_room(&error) {
                return;
            }
        }
        self.reader.sync();
    }
}

impl Core {
    /// Does what an error asks for; false when nothing can be done, which the caller's check finds.
    #[cold]
    fn make_room(&mut self, error: &Error) -> bool {
        self.reader.sync();
        std::thread::yield_now();
        matches!(error, Error::Stalled { .. } | Error::Starved)
    }
}

/// A [`Map`] of a given shape, told that its values are short.
#[derive(Debug)]
pub struct Simple {
    map: Map<Key, Payload>,
    budget: u64,
}

impl Simple {
    /// A map with room for the shape's entries.
    pub fn new(shape: &Shape) -> Result<Simple, Error> {
        let builder = Map::<Key, Payload>::builder().readers_max(shape.threads);
        let (builder, budget) = sized(builder.value_bytes_max(VALUE_BYTES_MAX), shape)?;
        Ok(Simple { map: Map::build(builder, Clock::system())?, budget })
    }
}

/// A value that needs no allocation.
#[derive(Debug)]
struct Payload {
    bytes: [u8; VALUE_BYTES_MAX],
    len: usize,
}

impl Value for Payload {
    #[inline]
    fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        with(&self.bytes[..self.len])
    }

    #[inline]
    fn from_value(stored: &[u8]) -> Option<Payload> {
        let mut bytes = [0; VALUE_BYTES_MAX];
        bytes.get_mut(..stored.len())?.copy_from_slice(stored);
        Some(Payload { bytes, len: stored.len() })
    }
}

impl Peer for Simple {
    type Handle<'a> = &'a Simple;

    fn handle(&self) -> &Simple {
        self
    }

    fn own_bytes(&self) -> Option<u64> {
        Some(self.budget)
    }
}

/// Reads are in place, as of the other caches that can. A copy would cost a tenth to a quarter more, since its length
/// is known only when the value is there.
impl Handle for &Simple {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.map.with(key, number_of)
    }

    #[inline]
    fn get_many(&mut self, keys: &[Key], mut each: impl FnMut(Option<u64>)) {
        self.map.with_many(keys, |_, value| each(value.map(number_of)));
    }

    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) {
        // A value that is refused is missed by the check of the answers.
        if let Some(value) = Payload::from_value(value) {
            let _ = self.map.insert(key, value);
        }
    }
}

/// An [`ObjectMap`] as its `new` makes it. Its objects are of the type that other caches of objects get.
#[derive(Debug)]
pub struct Objects(ObjectMap<Key, Arc<[u8]>>);

impl Objects {
    /// A map of the shape's number of entries.
    pub fn new(shape: &Shape) -> Result<Objects, Error> {
        let builder = ObjectMap::<Key, Arc<[u8]>>::builder(shape.entries as u64);
        Ok(Objects(ObjectMap::build(builder.readers_max(shape.threads), Clock::system())?))
    }
}

impl Peer for Objects {
    type Handle<'a> = &'a Objects;

    fn handle(&self) -> &Objects {
        self
    }
}

impl Handle for &Objects {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.0.get(key).map(|value| number_of(&value))
    }

    #[inline]
    fn get_many(&mut self, keys: &[Key], mut each: impl FnMut(Option<u64>)) {
        self.0.get_many(keys, |_, value| each(value.map(|value| number_of(&value))));
    }

    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) {
        // An object that is refused is missed by the check of the answers.
        let _ = self.0.insert(key, value.into());
    }
}

const _: () = assert!(KEY_BYTES <= larder::KEY_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    /// The budget found holds as many entries as were asked for, to a percent.
    #[test]
    fn shapes_are_met() {
        for threads in [1, 2] {
            let engine = Engine::new(&VARIANTS[0], &Shape { entries: 100_000, threads }).unwrap();
            let stats = engine.cache().stats().unwrap();
            let fits = stats.entries_max.min(stats.charge_bytes_max / ENTRY_BYTES_MEAN as u64);
            assert!((99_000..=101_500).contains(&fits), "{fits}");
        }
    }
}
