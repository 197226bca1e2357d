//! The simple API: a map that every thread and task may use, without owning, syncing or flushing
//! anything.
//!
//! ```
//! let map: larder::Map<str, u64> = larder::Map::new(1 << 20)?;
//! map.insert("lynx", 7)?;
//! assert_eq!(map.get("lynx"), Some(7));
//! assert_eq!(map.get_or_insert_with("otter", || 9), 9); // one caller computes, the others wait for it
//! map.with("otter", |bytes| assert_eq!(bytes, 9u64.to_le_bytes())); // read in place
//! # Ok::<(), larder::Error>(())
//! ```
//!
//! It is made of the engine's readers and writers in a `reader_pool`, whose header explains their
//! locks and cost, of `flight`, which coalesces loads, and of a [`Clock`].
//!
//! Guarantees
//! * Every operation takes effect at one moment between its call and its return, on any thread. A
//!   thread that is notified of another's write reads the written value, unless it was evicted or
//!   has expired.
//! * Nothing borrowed outlives a call, so nothing is held across an await point. A thread that
//!   sleeps or ends never blocks the writers, and there may be any number of threads. Only a
//!   closure given to [`Map::with`] or [`Map::get_many`], and [`Value::from_value`], block them
//!   while they run, so keep them short. (Other threads still read. A write that needs the memory
//!   waits a second, then fails.)
//! * An insert is applied at once, by itself. For millions of writes per second, use a
//!   [`crate::Writer`], which applies them in batches, or [`Map::insert_many`].
//!
//! Bounds: the budget; [`LOADS_MAX`] loads in flight.

mod change;
mod loading;
mod object_map;
mod walk;

use std::borrow::Borrow;
use std::io::Read;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::build::Builder;
use crate::cache::Cache;
use crate::clock::Clock;
use crate::codec::{Key, Rest, Value, is_engine_key, rest_len, with_engine_key};
use crate::error::Error;
use crate::expiry::{Ends, Expiry, Stored};
use crate::flight::Flight;
use crate::index::IndexMode;
use crate::reader_pool::ReaderPool;
use crate::save::{self, Loaded, SaveError};
use crate::shared::VALUE_BYTES_MAX;
use crate::stats::Stats;
use crate::time::Seconds;
use loading::Landed;

pub use change::Change;
pub use object_map::ObjectMap;

/// Keys that can be loaded at once, at most. Further ones are loaded by each caller that misses,
/// and not stored.
pub const LOADS_MAX: usize = 65_536;

/// Keys whose memory [`Map::get_many`] fetches together.
const KEYS_TOGETHER: usize = 32;

/// Readers that [`Map::builder`] sets, at most. More threads share them.
const POOL_READERS_MAX: usize = 16;

/// A cache from `K` to `V` that any number of threads and tasks share. Cloning is cheap, and a
/// clone is the same map. The module's text states the guarantees between threads.
///
/// `K` is passed by reference and may be unsized: a `Map<str, V>` takes every `&str`.
pub struct Map<K: ?Sized, V> {
    inner: Arc<Inner>,
    types: PhantomData<fn(&K) -> V>,
}

struct Inner {
    pool: ReaderPool,
    clock: Clock,
    flight: Flight<Landed>,
}

impl<K: ?Sized, V> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Map { inner: self.inner.clone(), types: PhantomData }
    }
}

impl<K: ?Sized, V> std::fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map").field("clock", &self.inner.clock).finish_non_exhaustive()
    }
}

impl<K: Key + ?Sized, V: Value> Map<K, V> {
    /// Creates a map that takes at most `budget` bytes, everything counted, and uses the system's
    /// time: [`Map::builder`] with a budget, built.
    pub fn new(budget: u64) -> Result<Self, Error> {
        Self::build(Self::builder().budget(budget), Clock::system())
    }

    /// The settings of [`Map::new`], to be changed and passed to [`Map::build`]. They suit many
    /// threads that read and write:
    ///
    /// * a reader per core, up to 16, and an index that they share;
    /// * up to four shards per core and 64 in all, with at least 12 MiB of the budget each, which is
    ///   enough for values of almost 32 KiB, or 1.5 to 3 MiB where values are known to be short;
    /// * a secret hash seed;
    /// * the size of an entry, if `K` and `V` have a fixed number of bytes. Otherwise state its mean
    ///   by [`Builder::entry_bytes_mean`], which decides how much of the budget is index, and its
    ///   limit by [`Builder::value_bytes_max`], which decides how many shards there are.
    pub fn builder() -> Builder {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let builder = Cache::builder().readers_max(cores.min(POOL_READERS_MAX)).random_seed();
        let builder = builder.index_mode(IndexMode::Shared).for_cores(cores);
        match (K::BYTES, V::VALUE_BYTES) {
            (Some(key), Some(value)) => builder
                .entry_bytes_mean((key + value + 8).clamp(16, 4096))
                .value_bytes_max((rest_len(key) + value).min(VALUE_BYTES_MAX)),
            _ => builder,
        }
    }

    /// Creates a map with the caller's settings and clock. Begin with [`Map::builder`]. The cache's
    /// readers are the map's pool, so set as many as threads read at the same moment.
    pub fn build(builder: Builder, clock: Clock) -> Result<Self, Error> {
        let pool = ReaderPool::new(builder.build()?);
        let inner = Inner { pool, clock, flight: Flight::new(LOADS_MAX) };
        Ok(Map { inner: Arc::new(inner), types: PhantomData })
    }

    /// The underlying cache, for its figures and [`Cache::save_to`]. Its keys are the bytes of this
    /// map's.
    pub fn cache(&self) -> &Cache {
        self.inner.pool.cache()
    }

    /// The map's time.
    pub fn now(&self) -> Seconds {
        self.inner.clock.now()
    }

    /// The value of a key, decoded.
    #[inline]
    pub fn get<Q: Key + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        key.with_key(|bytes| self.inner.get(bytes, V::from_value)).flatten()
    }

    /// Looks many keys up together, 32 at a time, so that their memory is fetched in parallel. Calls
    /// `each` in order, with the index of each key and its value. `each` may use the map, with the
    /// limit that [`Map::with`] states. A table that is larger than the CPU's cache is read two to
    /// four times as fast as by single lookups.
    ///
    /// ```
    /// # let map: larder::Map<str, u64> = larder::Map::new(1 << 20)?;
    /// map.insert("lynx", 7)?;
    /// let mut found = Vec::new();
    /// map.get_many(&["otter", "lynx"], |_, value| found.push(value));
    /// assert_eq!(found, [None, Some(7)]);
    /// # Ok::<(), larder::Error>(())
    /// ```
    pub fn get_many<Q: Borrow<K>>(&self, keys: &[Q], mut each: impl FnMut(usize, Option<V>)) {
        self.with_many(keys, |at, value| each(at, value.and_then(V::from_value)));
    }

    /// As [`Map::get_many`], and passes the bytes of each value to `each` in place.
    pub fn with_many<Q: Borrow<K>>(&self, keys: &[Q], mut each: impl FnMut(usize, Option<&[u8]>)) {
        let mut batch = KeyBatch::new();
        for (number, keys) in keys.chunks(KEYS_TOGETHER).enumerate() {
            let first = number * KEYS_TOGETHER;
            batch.clear();
            keys.iter().for_each(|key| key.borrow().with_key(|key| batch.push(key)));
            if batch.is_plain {
                let mut room = [&[][..]; KEYS_TOGETHER];
                self.inner.read_many(batch.keys(&mut room), |at, value| each(first + at, value));
                continue;
            }
            for (at, key) in keys.iter().enumerate() {
                if self.with::<K, _>(key.borrow(), |value| each(first + at, Some(value))).is_none()
                {
                    each(first + at, None);
                }
            }
        }
    }

    /// Passes a value's bytes to `read`, in place; `None` for a miss. `read` may use the map. A
    /// write there fails with [`Error::Stalled`] in cases in which a write elsewhere would wait.
    #[inline]
    pub fn with<Q: Key + ?Sized, R>(&self, key: &Q, read: impl FnOnce(&[u8]) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        key.with_key(|bytes| self.inner.read(bytes, read))
    }

    /// True if the key has a value. It is no read: a time to idle does not begin again.
    pub fn contains<Q: Key + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        key.with_key(|bytes| self.inner.contains(bytes))
    }

    /// Stores a value until it is replaced, removed or evicted. The error states whether it was
    /// stored; nothing is applied later.
    pub fn insert<Q: Key + ?Sized>(&self, key: &Q, value: V) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        self.insert_ttl(key, value, Expiry::NEVER)
    }

    /// As [`Map::insert`], for at most `ttl` from now: a [`crate::Ttl`] in whole seconds, a
    /// [`std::time::Duration`] to the millisecond, or an [`Expiry`] with a time to idle.
    pub fn insert_ttl<Q: Key + ?Sized>(
        &self,
        key: &Q,
        value: V,
        ttl: impl Into<Expiry>,
    ) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        let ends = ttl.into().ends(&self.inner.clock);
        key.with_key(|key| {
            self.inner.flight.supersede(key);
            value.with_value(|value| self.inner.store(key, value, ends))
        })
    }

    /// Stores many values in batches, each shard's in order, with fewer locks than single inserts.
    /// All are applied when it returns. On an error, those before the refused one are, unless the
    /// error is [`Error::Stalled`]: then any of its batch of 64 may be missing.
    pub fn insert_many<Q>(
        &self,
        entries: impl IntoIterator<Item = (Q, V)>,
        ttl: impl Into<Expiry>,
    ) -> Result<(), Error>
    where
        Q: Borrow<K>,
    {
        let ttl = ttl.into();
        let mut batch = Batch::default();
        for (key, value) in entries {
            key.borrow().with_key(|key| {
                self.inner.flight.supersede(key);
                value.with_value(|value| batch.push(key, value));
            });
            if batch.is_full() {
                self.inner.store_batch(&batch, ttl)?;
                batch.clear();
            }
        }
        self.inner.store_batch(&batch, ttl)
    }

    /// Removes a value, if there is one.
    pub fn remove<Q: Key + ?Sized>(&self, key: &Q) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        key.with_key(|key| {
            self.inner.flight.supersede(key);
            with_engine_key(key, |key, _| self.inner.pool.remove(key))
        })
    }

    /// The number of values, including expired ones, which stay until their memory is needed. Takes
    /// each lock for a moment.
    pub fn len(&self) -> Result<u64, Error> {
        Ok(self.cache().stats()?.entries)
    }

    /// The cache's figures. Of lookups, those of threads that are reading at this moment may be missing.
    /// Takes each lock for a moment.
    pub fn stats(&self) -> Result<Stats, Error> {
        self.inner.pool.sync_idle();
        self.cache().stats()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// Inserts the entries that [`Cache::save_to`] wrote, of a map with the same types; bytes that
    /// are no `V` are a miss.
    pub fn load_from(&self, input: &mut impl Read) -> Result<Loaded, SaveError> {
        let Inner { pool, clock, flight } = &*self.inner;
        let now = clock.now();
        flight.supersede_all();
        // A separate writer: those of the pool are never held while a caller's code runs, here
        // `input`'s.
        let mut writer = self.cache().writer();
        let loaded = save::load(input, now, |entry| pool.retry(|| entry.insert(&mut writer, now)))?;
        pool.retry(|| writer.flush().map(drop))?;
        Ok(loaded)
    }

    /// Removes all values that are present at the call. Values inserted meanwhile may stay or not.
    pub fn clear(&self) -> Result<(), Error> {
        self.inner.flight.supersede_all();
        // At second 0 nothing has expired yet, so expired entries are removed too.
        let mut entries = self.cache().iter(Seconds(0));
        for entry in entries.by_ref() {
            self.inner.pool.remove(entry.key())?;
        }
        entries.was_whole()
    }
}

/// Keys to be looked up together, one behind the other.
struct KeyBatch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The engine takes all of them as they are.
    is_plain: bool,
}

impl KeyBatch {
    fn new() -> Self {
        let bytes = Vec::with_capacity(KEYS_TOGETHER * 16);
        KeyBatch { bytes, ends: Vec::with_capacity(KEYS_TOGETHER), is_plain: true }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.is_plain = true;
    }

    fn push(&mut self, key: &[u8]) {
        self.is_plain &= is_engine_key(key);
        if self.is_plain {
            self.bytes.extend_from_slice(key);
            self.ends.push(self.bytes.len());
        }
    }

    /// The keys, in `room`, which has a place for each.
    fn keys<'a, 'k>(&'k self, room: &'a mut [&'k [u8]; KEYS_TOGETHER]) -> &'a [&'k [u8]] {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        for (place, (start, &end)) in room.iter_mut().zip(starts.zip(&self.ends)) {
            *place = &self.bytes[start..end];
        }
        &room[..self.ends.len()]
    }
}

/// Entries to be stored together, as the engine takes them. They are encoded before any lock is
/// taken.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// The end of each key, and of each value.
    ends: Vec<(usize, usize)>,
}

impl Batch {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        with_engine_key(key, |key, rest| {
            rest.with_stored(value, |stored| {
                self.bytes.extend_from_slice(key);
                let key_end = self.bytes.len();
                self.bytes.extend_from_slice(stored);
                self.ends.push((key_end, self.bytes.len()));
            });
        });
    }

    /// True at the number of entries that a writer applies together, or the number of bytes worth
    /// copying at once.
    fn is_full(&self) -> bool {
        self.ends.len() >= 64 || self.bytes.len() >= 64 << 10
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|&(_, end)| end));
        starts.zip(&self.ends).map(|(start, &(key_end, end))| {
            (&self.bytes[start..key_end], &self.bytes[key_end..end])
        })
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

impl Inner {
    /// As [`Inner::read`], for a `read` that only decodes.
    #[inline]
    fn get<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let now = self.clock.now();
        with_engine_key(key, |key, rest| {
            let mut idle = Idle::default();
            let found = self.pool.get(key, now, |stored| {
                Some(read(rest.value_in(idle.value(self, now, stored?)?)?))
            });
            idle.begins_again(self, &[key]);
            found
        })
    }

    #[inline]
    fn read<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let now = self.clock.now();
        with_engine_key(key, |key, rest| {
            let mut idle = Idle::default();
            let found = self.pool.read(key, now, |stored| {
                Some(read(rest.value_in(idle.value(self, now, stored?)?)?))
            });
            idle.begins_again(self, &[key]);
            found
        })
    }

    fn contains(&self, key: &[u8]) -> bool {
        let now = self.clock.now();
        with_engine_key(key, |key, rest| {
            self.pool.get(key, now, |stored| {
                stored.and_then(|stored| self.alive(rest, stored)).is_some()
            })
        })
    }

    /// The value in what is stored, if it is this key's and its deadline has not passed.
    fn alive<'a>(&self, rest: Rest<'a>, stored: Stored<'a>) -> Option<&'a [u8]> {
        rest.value_in(stored.value).filter(|_| !stored.ends.is_past(&self.clock))
    }

    /// Looks up at most [`KEYS_TOGETHER`] keys.
    fn read_many(&self, keys: &[&[u8]], mut each: impl FnMut(usize, Option<&[u8]>)) {
        let now = self.clock.now();
        let mut idle = Idle::default();
        self.pool.read_many(keys, now, |at, stored| {
            idle.at = at;
            each(at, stored.and_then(|stored| idle.value(self, now, stored)));
        });
        idle.begins_again(self, keys);
    }

    fn store(&self, key: &[u8], value: &[u8], ends: Ends) -> Result<(), Error> {
        let now = self.clock.now();
        with_engine_key(key, |key, rest| {
            rest.with_stored(value, |stored| self.pool.put(key, (stored, ends), now))
        })
    }

    fn store_batch(&self, batch: &Batch, ttl: Expiry) -> Result<(), Error> {
        let (ends, now) = (ttl.ends(&self.clock), self.clock.now());
        let mut entries = batch.iter();
        let mut next = entries.next();
        // Run again after a stall, it continues where it was.
        self.pool.write(|writer| {
            while let Some((key, value)) = next {
                writer.insert_ending(key, value, ends, now)?;
                next = entries.next();
            }
            Ok(())
        })
    }
}

/// The reads of a call that found entries whose time to idle begins again.
#[derive(Default)]
struct Idle {
    /// The key that is read, of at most [`KEYS_TOGETHER`].
    at: usize,
    /// A bit a key.
    keys: u32,
}

impl Idle {
    /// The value that was found, unless its deadline has passed.
    #[inline(always)]
    fn value<'a>(&mut self, map: &Inner, now: Seconds, stored: Stored<'a>) -> Option<&'a [u8]> {
        if stored.ends.may_have_term() && !self.note(map, now, stored.ends) {
            return None;
        }
        Some(stored.value)
    }

    #[cold]
    fn note(&mut self, map: &Inner, now: Seconds, ends: Ends) -> bool {
        let is_alive = !ends.is_past(&map.clock);
        self.keys |= u32::from(is_alive && ends.prolonged(now).is_some()) << self.at;
        is_alive
    }

    /// Lets those entries stay. No reader is locked here.
    #[inline(always)]
    fn begins_again(self, map: &Inner, keys: &[&[u8]]) {
        if self.keys != 0 {
            self.prolong(map, keys);
        }
    }

    #[cold]
    fn prolong(self, map: &Inner, keys: &[&[u8]]) {
        for at in (0..keys.len()).filter(|at| self.keys >> at & 1 == 1) {
            // A poisoned cache tells writes.
            let _ = map.pool.cache().prolong(keys[at], map.clock.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_mem::WAYS;

    use super::*;
    use crate::index::Placement;

    /// An entry that stays in the map is found while writes move it between its two buckets.
    #[test]
    fn an_entry_is_found_while_it_moves() {
        let builder = Cache::builder().index_mode(IndexMode::Shared).readers_max(2).shards(1);
        let map: Map<u64, u64> =
            Map::build(builder.budget(128 << 10), Clock::manual(Seconds(1))).unwrap();
        let buckets = map.cache().stats().unwrap().entries_max as usize / 8;
        let placement = Placement::new(buckets, 1);
        let mut next = 0;
        let mut key = |home, second: Option<usize>| loop {
            next += 1;
            let hash = map.cache().hash(&u64::to_le_bytes(next));
            let other = placement.second(home, placement.tag_word(hash));
            if placement.home(hash) == home && second.is_none_or(|second| second == other) {
                return next;
            }
        };
        let insert = |key| map.insert(&key, key).unwrap();
        // It is in the first way of bucket 0, the only one that can move; buckets 0 and 2 are full,
        // and in bucket 1 the first way is empty.
        let (moving, to_0, to_1) = (key(0, Some(1)), key(0, Some(2)), key(1, Some(2)));
        insert(moving);
        (1..WAYS).for_each(|_| insert(key(0, None)));
        let first_of_1 = key(1, None);
        insert(first_of_1);
        (1..WAYS).for_each(|_| insert(key(1, None)));
        (0..WAYS).for_each(|_| insert(key(2, None)));
        map.remove(&first_of_1).unwrap();
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| {
                for _ in 0..50_000 {
                    // Bucket 0 has no room: the entry moves to bucket 1. Then the other way round.
                    for key in [to_0, to_1] {
                        insert(key);
                        map.remove(&key).unwrap();
                    }
                }
            });
            while !writes.is_finished() {
                assert_eq!(map.get(&moving), Some(moving));
            }
        });
        assert_eq!(map.cache().stats().unwrap().conflicts, 0);
        map.cache().validate().unwrap();
    }

    /// In a poisoned shard every change fails, and none claims that it was done; reads continue.
    #[test]
    fn changes_of_a_poisoned_map_fail() {
        let builder = Cache::builder().shards(1).readers_max(2).budget(1 << 20);
        let map: Map<u64, u64> = Map::build(builder, Clock::manual(Seconds(1))).unwrap();
        (0..9).for_each(|key| map.insert(&key, key).unwrap());
        assert_eq!(map.get(&1), Some(1));
        map.cache().poison();
        let poisoned = |result: Result<Option<u64>, Error>| {
            assert!(matches!(result, Err(Error::Poisoned)), "{result:?}");
        };
        poisoned(map.insert(&1, 1).map(|()| None));
        poisoned(map.insert_many([(1, 1)], Expiry::NEVER).map(|()| None));
        poisoned(map.remove(&1).map(|()| None));
        poisoned(map.take(&1));
        poisoned(map.replace(&1, 2));
        poisoned(map.compute(&1, |_| Change::Update(2)));
        poisoned(map.clear().map(|()| None));
        poisoned(map.retain(|_, _| false).map(Some));
        poisoned(map.len().map(Some));
        assert_eq!((map.get(&1), map.get_or_insert_with(&20, || 21)), (Some(1), 21));
    }
}
