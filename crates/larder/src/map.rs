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
//!   closure given to [`Map::with`] blocks them while it runs, so keep it short. (Other threads
//!   still read. A write that needs the memory waits a second, then fails.)
//! * An insert is applied at once, by itself. For millions of writes per second, use a
//!   [`crate::Writer`], which applies them in batches, or [`Map::insert_many`].
//!
//! Bounds: the budget; [`LOADS_MAX`] loads in flight.

use std::borrow::Borrow;
use std::future::Future;
use std::io::Read;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::build::Builder;
use crate::cache::Cache;
use crate::clock::Clock;
use crate::codec::{Key, Value, with_engine_key};
use crate::error::Error;
use crate::flight::{Begin, Flight, Token};
use crate::reader_pool::ReaderPool;
use crate::save::{self, Loaded, SaveError};
use crate::time::{Seconds, Ttl};

/// Keys that can be loaded at once, at most. Further ones are loaded by each caller that misses,
/// and not stored.
pub const LOADS_MAX: usize = 65_536;

/// How long a load keeps other callers from loading the same key, in seconds.
const LOAD_S_MAX: u32 = 30;

/// Readers that [`Map::new`] pays for, at most. More threads share them.
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
    flight: Flight<Arc<[u8]>>,
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
    /// time. It has an index replica per core, up to 16, and a secret hash seed.
    pub fn new(budget: u64) -> Result<Self, Error> {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let builder = Cache::builder().budget(budget).readers_max(cores.min(POOL_READERS_MAX));
        let builder = builder.random_seed();
        Self::build(builder, Clock::system())
    }

    /// Creates a map with the caller's settings and clock. The hash seed is the builder's: see
    /// [`Builder::random_seed`]. The cache's readers are the map's pool, so set as many as threads
    /// read at the same moment.
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
        self.with(key, V::from_value).flatten()
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

    /// True if the key has a value.
    pub fn contains<Q: Key + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.with(key, |_| ()).is_some()
    }

    /// Stores a value until it is replaced, removed or evicted. The error states whether it was
    /// stored; nothing is applied later.
    pub fn insert<Q: Key + ?Sized>(&self, key: &Q, value: V) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        self.insert_ttl(key, value, Ttl::FOREVER)
    }

    /// As [`Map::insert`], for at most `ttl` from now.
    pub fn insert_ttl<Q: Key + ?Sized>(&self, key: &Q, value: V, ttl: Ttl) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        key.with_key(|key| {
            self.inner.flight.supersede(key);
            value.with_value(|value| self.inner.store(key, value, ttl))
        })
    }

    /// Stores many values, in order, in batches: about one and a half times as fast as single
    /// inserts. All are applied when it returns. On an error, those before the failed one are.
    pub fn insert_many<Q>(
        &self,
        entries: impl IntoIterator<Item = (Q, V)>,
        ttl: Ttl,
    ) -> Result<(), Error>
    where
        Q: Borrow<K>,
    {
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
            with_engine_key(key, |key, _| self.inner.pool.write(|writer| writer.remove(key)))
        })
    }

    /// The value of a key; on a miss the result of `load`, which is stored. Of many threads that
    /// miss a key at once, one loads and the others wait. An insert or a removal of the key while
    /// `load` runs is not overwritten. If `load` panics, the next waiter loads. After 30 s, others
    /// no longer wait for a load.
    ///
    /// Blocks: in a task use [`Map::get_or_insert_async`]. A value that can't be stored, for its
    /// size or because all memory is in use, is still returned.
    pub fn get_or_insert_with<Q: Key + ?Sized>(&self, key: &Q, load: impl FnOnce() -> V) -> V
    where
        K: Borrow<Q>,
    {
        self.get_or_insert_ttl_with(key, || (load(), Ttl::FOREVER))
    }

    /// As [`Map::get_or_insert_with`], with a TTL from `load`.
    pub fn get_or_insert_ttl_with<Q: Key + ?Sized>(
        &self,
        key: &Q,
        load: impl FnOnce() -> (V, Ttl),
    ) -> V
    where
        K: Borrow<Q>,
    {
        key.with_key(|bytes| {
            loop {
                let mut waiter = match self.inner.begin::<V>(bytes) {
                    Found::Value(value) => return value,
                    Found::Lead(token) => {
                        let (value, ttl) = load();
                        self.inner.land(token, &value, ttl);
                        return value;
                    }
                    Found::Full => return load().0,
                    Found::Wait(waiter) => waiter,
                };
                // A load that needs its own result would wait forever.
                if waiter.is_led_here() {
                    return load().0;
                }
                match waiter.wait_for(Duration::from_secs(u64::from(LOAD_S_MAX))) {
                    Poll::Ready(Some(bytes)) => match V::from_value(&bytes) {
                        Some(value) => return value,
                        None => return load().0,
                    },
                    Poll::Ready(None) => {}
                    Poll::Pending => return load().0,
                }
            }
        })
    }

    /// As [`Map::get_or_insert_with`], for tasks of any runtime. Only the leader awaits `load`; the
    /// others drop it unpolled. If the leader's task is dropped, the next waiter leads. Time alone
    /// wakes no waiter, so put your runtime's timeout around `load`.
    pub async fn get_or_insert_async<Q: Key + ?Sized>(
        &self,
        key: &Q,
        load: impl Future<Output = V>,
    ) -> V
    where
        K: Borrow<Q>,
    {
        let bytes: Box<[u8]> = key.with_key(|bytes| bytes.into());
        loop {
            match self.inner.begin::<V>(&bytes) {
                Found::Value(value) => return value,
                Found::Lead(token) => {
                    let value = load.await;
                    self.inner.land(token, &value, Ttl::FOREVER);
                    return value;
                }
                Found::Full => return load.await,
                Found::Wait(waiter) => {
                    if let Some(bytes) = waiter.await {
                        match V::from_value(&bytes) {
                            Some(value) => return value,
                            None => return load.await,
                        }
                    }
                }
            }
        }
    }

    /// The number of values, including expired ones that no lookup has found yet. Takes main's
    /// lock.
    pub fn len(&self) -> Result<u64, Error> {
        Ok(self.cache().stats()?.entries)
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
        for entry in self.cache().iter(Seconds(0)) {
            self.inner.pool.write(|writer| writer.remove(entry.key()))?;
        }
        Ok(())
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

/// The result of a lookup that may load.
enum Found<V> {
    Value(V),
    Lead(Token<Arc<[u8]>>),
    Wait(crate::flight::Waiter<Arc<[u8]>>),
    Full,
}

impl Inner {
    #[inline]
    fn read<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        with_engine_key(key, |key, rest| {
            self.pool.read(key, self.clock.now(), |stored| Some(read(rest.value_in(stored?)?)))
        })
    }

    fn store(&self, key: &[u8], value: &[u8], ttl: Ttl) -> Result<(), Error> {
        let now = self.clock.now();
        with_engine_key(key, |key, rest| {
            rest.with_stored(value, |stored| {
                self.pool.write(|writer| writer.insert(key, stored, ttl, now))
            })
        })
    }

    fn store_batch(&self, batch: &Batch, ttl: Ttl) -> Result<(), Error> {
        let now = self.clock.now();
        let mut entries = batch.iter();
        let mut next = entries.next();
        // Run again after a stall, it continues where it was.
        self.pool.write(|writer| {
            while let Some((key, value)) = next {
                writer.insert(key, value, ttl, now)?;
                next = entries.next();
            }
            Ok(())
        })
    }

    fn begin<V: Value>(&self, key: &[u8]) -> Found<V> {
        let get = || self.read(key, V::from_value).flatten();
        if let Some(value) = get() {
            return Found::Value(value);
        }
        match self.flight.begin(key, self.clock.now(), LOAD_S_MAX) {
            Begin::Full => Found::Full,
            Begin::Wait(waiter) => Found::Wait(waiter),
            // Another caller's load may have landed between our miss and our lead.
            Begin::Lead(token) => match get() {
                Some(value) => Found::Value(value),
                None => Found::Lead(token),
            },
        }
    }

    fn land(&self, token: Token<Arc<[u8]>>, value: &impl Value, ttl: Ttl) {
        let key: Box<[u8]> = token.key().into();
        let bytes = value.with_value(|bytes| Arc::<[u8]>::from(bytes));
        token.land(bytes, |bytes| {
            // If it is refused, it is not stored; the waiters get it all the same.
            let _ = self.store(&key, bytes, ttl);
        });
    }
}
