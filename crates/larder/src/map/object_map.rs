//! A cache of values as they are: whatever is `Clone`, such as an `Arc` of anything.
//!
//! ```
//! use std::sync::Arc;
//!
//! // At most 10,000 objects.
//! let pages: larder::ObjectMap<str, Arc<String>> = larder::ObjectMap::new(10_000)?;
//! pages.insert("/", Arc::new("hello".into()))?;
//! let page = pages.get("/").expect("it was just inserted");
//! assert_eq!(*pages.get_or_insert_with("/b", || Arc::new(page.to_uppercase())), "HELLO");
//! # Ok::<(), larder::Error>(())
//! ```
//!
//! A [`Map`] decides which keys stay. Its values are ids of objects that are in [`cells`]: it gives every guarantee
//! of `Map` between threads, expiry, loads and changes. The engine reports each id that leaves, for whatever
//! reason, and the object is dropped then, by the thread whose operation removed it, at the end of that operation.
//!
//! Invariants
//! 1. An id is in the map only while its object lives. It is reported when it has left the map; what was never
//!    stored is retired by the operation that put it ([`Put`]), even one that panics. So a lookup that finds an id
//!    without its object was overtaken by a removal, and looks again ([`ObjectMap::found`]).
//! 2. An id is in the map once: an object that is stored again gets another one.
//! 3. The caller's `clone` and functions run while no reader of the map is held.
//!
//! Bounds: the builder's budget for keys and ids; and in addition a cell of `size_of::<V>()` and about 28 bytes for
//! each entry, and what the objects own.

mod cells;

use std::borrow::Borrow;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use super::loading::{self, Fill, Landed};
use super::{Change, Inner, KEYS_TOGETHER, Map};
use crate::build::{Builder, Weigher};
use crate::clock::Clock;
use crate::codec::{Key, Value, with_key_of};
use crate::decode_key::DecodeKey;
use crate::error::Error;
use crate::evicted::{Cause, Evicted};
use crate::expiry::{Ends, Expiry};
use crate::flight::Token;
use crate::shared::VALUE_BYTES_MAX;
use crate::stats::Stats;
use crate::time::Seconds;
use cells::{Cells, Id};

/// Bytes of a key that [`ObjectMap::builder`] assumes where the type does not say.
const KEY_BYTES: usize = 32;

/// Bytes of an entry besides its key and id: the header, and its places in the index and the policy's tables.
const ENTRY_BYTES_MORE: u64 = 64;

/// Entries up to this size need no large pages.
const SHORT_ENTRY_BYTES: usize = 1 << 10;
/// Entries from this size on need an eighth more, and a header of 32 bytes: sizes are rounded up.
const ROUNDED_ENTRY_BYTES: usize = 128;
/// Budget besides that of the entries: for small maps. Pages are 4 KiB then, or for the longest keys.
const SHORT_BUDGET_MORE: u64 = 3 << 20;
const LONG_BUDGET_MORE: u64 = 12 << 20;

/// A cache from `K` to objects that are cloned for each reader, for any number of threads and tasks. Cloning the
/// map is cheap, and a clone is the same map.
///
/// The calls are those of [`Map`], but for `insert_many`, and those that need a value's bytes (`with`, `with_many`,
/// `load_from`). What differs is this:
///
/// * The limit is the number of objects, whatever they own: [`ObjectMap::new`]; or in addition what they weigh:
///   [`Builder::weigher`]. Where a value is bytes, text or numbers, a `Map` takes less memory, and counts all of it.
/// * An object that leaves (evicted, removed or replaced) is dropped within the call that made it leave; if another
///   thread is cloning it at that moment, by a later call that stores or removes one. What a load brought has
///   further clones until all who waited for it have theirs.
/// * One that has expired is no longer found, but stays until its room is needed, or until
///   [`ObjectMap::remove_expired`] is called.
/// * `clone` may use the map, but must not write its own key: a call that changes it would begin again, every time.
///   `drop` may, too, but an object whose `drop` stores such objects would never end.
/// * A key may be as long as a value of a `Map`: up to almost 32 KiB, and with a small budget less. A longer one is
///   refused with [`Error::ValueTooLarge`].
pub struct ObjectMap<K: ?Sized, V> {
    map: Map<K, Id>,
    cells: Arc<Cells<V>>,
    weigher: Option<Weigher<V>>,
}

impl<K: ?Sized, V> Clone for ObjectMap<K, V> {
    fn clone(&self) -> Self {
        let ObjectMap { map, cells, weigher } = self;
        ObjectMap { map: map.clone(), cells: cells.clone(), weigher: weigher.clone() }
    }
}

impl<K: ?Sized, V> std::fmt::Debug for ObjectMap<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectMap").field("map", &self.map).finish_non_exhaustive()
    }
}

impl<K: Key + ?Sized, V: Clone + Send + Sync + 'static> ObjectMap<K, V> {
    /// Creates a map of at most `entries_max` objects, which uses the system's time: [`ObjectMap::builder`], built.
    pub fn new(entries_max: u64) -> Result<Self, Error> {
        Self::build(Self::builder(entries_max), Clock::system())
    }

    /// The settings of [`ObjectMap::new`]: those of [`Map::builder`], with [`Builder::entries_max`], and a budget
    /// that is enough for as many keys of the type's size or of 32 bytes. For longer ones set [`Builder::budget`]
    /// and [`Builder::entry_bytes_mean`] (a key and 20 bytes): of too long keys the map holds fewer. There are up
    /// to four shards per core, so that threads seldom wait for each other, each with at least 4,096 entries; with a
    /// weigher there are up to four.
    pub fn builder(entries_max: u64) -> Builder {
        let entry_bytes = K::BYTES.unwrap_or(KEY_BYTES) + 20;
        let is_short = entry_bytes <= SHORT_ENTRY_BYTES;
        let more = if is_short { SHORT_BUDGET_MORE } else { LONG_BUDGET_MORE };
        let rounding = if entry_bytes < ROUNDED_ENTRY_BYTES { 0 } else { entry_bytes / 8 + 32 };
        let all_bytes = (entry_bytes + rounding) as u64 + ENTRY_BYTES_MORE;
        let budget = entries_max.saturating_mul(all_bytes);
        Map::<K, Id>::builder()
            .budget(budget.saturating_add(more))
            .entry_bytes_mean(entry_bytes.clamp(16, 4096))
            .entries_max(entries_max)
            .value_bytes_max(entry_bytes.min(VALUE_BYTES_MAX))
    }

    /// Creates a map with the caller's settings and clock. Begin with [`ObjectMap::builder`]. A builder that has a
    /// listener is refused: it would hear of ids. See [`ObjectMap::build_reporting`].
    pub fn build(builder: Builder, clock: Clock) -> Result<Self, Error> {
        let cells = Arc::new(Cells::new());
        let retired = cells.clone();
        Self::build_with(builder, clock, cells, move |evicted| {
            if let Some(id) = id_of(&evicted) {
                retired.retire(id);
            }
        })
    }

    fn build_with(
        mut builder: Builder,
        clock: Clock,
        cells: Arc<Cells<V>>,
        on_removed: impl Fn(Evicted<'_>) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        if builder.has_listener() {
            return Err(Error::Setting("a map of objects has a listener by build_reporting"));
        }
        let weigher = builder.take_weigher()?;
        let map = Map::build(builder.on_removed(on_removed), clock)?;
        if map.cache().stats()?.entries_max > Cells::<V>::MAX / 2 {
            return Err(Error::Setting("a map has at most 2147483640 objects: set entries_max"));
        }
        Ok(ObjectMap { map, cells, weigher })
    }

    /// The map's time.
    pub fn now(&self) -> Seconds {
        self.map.now()
    }

    /// A clone of the object of a key. `clone` runs without a lock that others wait for.
    pub fn get<Q: Key + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        key.with_key(|key| self.look_up(key))
    }

    /// As [`Map::get_many`]: looks many keys up together, and calls `each` in order, with the index of each key and
    /// a clone of its object. `each` may use the map.
    pub fn get_many<Q: Borrow<K>>(&self, keys: &[Q], mut each: impl FnMut(usize, Option<V>)) {
        for (number, keys) in keys.chunks(KEYS_TOGETHER).enumerate() {
            // Cloned when no reader is held (invariant 3).
            let mut ids = [None; KEYS_TOGETHER];
            self.map.get_many(keys, |at, id| ids[at] = id);
            for (at, (key, id)) in keys.iter().zip(ids).enumerate() {
                let object =
                    id.and_then(|id| self.cells.get(id).or_else(|| self.get(key.borrow())));
                each(number * KEYS_TOGETHER + at, object);
            }
        }
    }

    /// The object of a key and when it expires: see [`Map::get_with_expiry`].
    pub fn get_with_expiry<Q: Key + ?Sized>(
        &self,
        key: &Q,
    ) -> Result<Option<(V, Option<Seconds>)>, Error>
    where
        K: Borrow<Q>,
    {
        self.found(|| self.map.get_with_expiry(key))
    }

    /// True if the key has an object. It is no read: a time to idle does not begin again.
    pub fn contains<Q: Key + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.map.contains(key)
    }

    /// Stores an object until it is replaced, removed or evicted. The error states whether it was stored; the
    /// object is dropped then.
    pub fn insert<Q: Key + ?Sized>(&self, key: &Q, object: V) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        self.insert_ttl(key, object, Expiry::NEVER)
    }

    /// As [`ObjectMap::insert`], for at most `ttl` from now: see [`Map::insert_ttl`].
    pub fn insert_ttl<Q: Key + ?Sized>(
        &self,
        key: &Q,
        object: V,
        ttl: impl Into<Expiry>,
    ) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        // The caller's code runs before there is an id that could be lost.
        let ends = ttl.into().ends(&self.map.inner.clock);
        key.with_key(|key| {
            let put = self.put(key, object)?;
            self.map.inner.flight.supersede(key);
            put.id.with_value(|id| self.map.inner.store(key, id, ends))?;
            put.stored();
            Ok(())
        })
    }

    /// Removes the object of a key, if there is one.
    pub fn remove<Q: Key + ?Sized>(&self, key: &Q) -> Result<(), Error>
    where
        K: Borrow<Q>,
    {
        self.map.remove(key)
    }

    /// As [`Map::compute`]: calls `change` with the object of a key, and does what it returns, as one step.
    pub fn compute<Q: Key + ?Sized>(
        &self,
        key: &Q,
        mut change: impl FnMut(Option<&V>) -> Change<V>,
    ) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
    {
        key.with_key(|key| {
            let (mut there, mut put, mut before, mut refused) = (None, None, None, None);
            self.map.inner.change(key, |id: Option<&Id>| {
                // The change before was not stored: another write came between.
                put = None;
                there = id.and_then(|&id| self.cells.get(id));
                if there.is_none() && id.is_some() && before != id.copied() {
                    before = id.copied();
                    return None;
                }
                let mut put = |object| Ok(put.insert(self.put(key, object)?).id);
                let change = match change(there.as_ref()) {
                    Change::Keep => Ok(Change::Keep),
                    Change::Remove => Ok(Change::Remove),
                    Change::Insert(object, ttl) => put(object).map(|id| Change::Insert(id, ttl)),
                    Change::Update(object) => put(object).map(Change::Update),
                };
                Some(change.unwrap_or_else(|error| {
                    refused = Some(error);
                    Change::Keep
                }))
            })?;
            if let Some(put) = put {
                put.stored();
            }
            refused.map_or(Ok(there), Err)
        })
    }

    /// As [`ObjectMap::insert`], and returns the object that was there.
    pub fn replace<Q: Key + ?Sized>(&self, key: &Q, object: V) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
    {
        self.compute(key, |_| Change::Insert(object.clone(), Expiry::NEVER))
    }

    /// As [`ObjectMap::remove`], and returns the object that was there.
    pub fn take<Q: Key + ?Sized>(&self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
    {
        self.compute(key, |_| Change::Remove)
    }

    /// Makes the object of a key expire `ttl` from now. False if there is none. If it had or gets an expiry that is
    /// exact, or a time to idle, it is replaced by a clone.
    pub fn touch<Q: Key + ?Sized>(&self, key: &Q, ttl: impl Into<Expiry>) -> Result<bool, Error>
    where
        K: Borrow<Q>,
    {
        let ttl = ttl.into();
        if let Some(is_touched) = key.with_key(|key| self.map.inner.touch_in_place(key, ttl))? {
            return Ok(is_touched);
        }
        // A clone, so that the id is in the map once (invariant 2).
        let again = |there: Option<&V>| match there {
            Some(object) => Change::Insert(object.clone(), ttl),
            None => Change::Keep,
        };
        Ok(self.compute(key, again)?.is_some())
    }

    /// Removes the objects that have expired, and returns how many those were: see [`Map::remove_expired`]. Call it
    /// now and then if expired objects own something that others wait for.
    pub fn remove_expired(&self) -> Result<u64, Error> {
        self.map.remove_expired()
    }

    /// The number of objects, including expired ones, which stay until their room is needed. Takes each lock for a
    /// moment.
    pub fn len(&self) -> Result<u64, Error> {
        self.map.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> Result<bool, Error> {
        self.map.is_empty()
    }

    /// The figures of the cache of keys and ids.
    pub fn stats(&self) -> Result<Stats, Error> {
        self.map.stats()
    }

    /// Removes all objects that are present at the call. Objects inserted meanwhile may stay or not.
    pub fn clear(&self) -> Result<(), Error> {
        self.map.clear()
    }

    /// As [`Map::get_or_insert_with`]: on a miss the result of `load`, which is stored.
    pub fn get_or_insert_with<Q: Key + ?Sized>(&self, key: &Q, load: impl FnOnce() -> V) -> V
    where
        K: Borrow<Q>,
    {
        self.get_or_insert_ttl_with(key, || (load(), Expiry::NEVER))
    }

    /// As [`Map::get_or_insert_ttl_with`].
    pub fn get_or_insert_ttl_with<Q: Key + ?Sized, T: Into<Expiry>>(
        &self,
        key: &Q,
        load: impl FnOnce() -> (V, T),
    ) -> V
    where
        K: Borrow<Q>,
    {
        let loaded = self.try_get_or_insert_ttl_with(key, || Ok::<_, Infallible>(load()));
        loaded.unwrap_or_else(|never| match *never {})
    }

    /// As [`Map::try_get_or_insert_with`]: every caller that waited gets the error.
    pub fn try_get_or_insert_with<Q: Key + ?Sized, E: Send + Sync + 'static>(
        &self,
        key: &Q,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, Arc<E>>
    where
        K: Borrow<Q>,
    {
        self.try_get_or_insert_ttl_with(key, || Ok((load()?, Expiry::NEVER)))
    }

    /// As [`Map::try_get_or_insert_ttl_with`].
    pub fn try_get_or_insert_ttl_with<Q, T, E>(
        &self,
        key: &Q,
        load: impl FnOnce() -> Result<(V, T), E>,
    ) -> Result<V, Arc<E>>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
        T: Into<Expiry>,
        E: Send + Sync + 'static,
    {
        key.with_key(|key| loading::load(self, key, load))
    }

    /// As [`Map::get_or_insert_async`].
    pub async fn get_or_insert_async<Q: Key + ?Sized>(
        &self,
        key: &Q,
        load: impl Future<Output = V>,
    ) -> V
    where
        K: Borrow<Q>,
    {
        self.get_or_insert_ttl_async(key, async { (load.await, Expiry::NEVER) }).await
    }

    /// As [`Map::get_or_insert_ttl_async`].
    pub async fn get_or_insert_ttl_async<Q: Key + ?Sized, T: Into<Expiry>>(
        &self,
        key: &Q,
        load: impl Future<Output = (V, T)>,
    ) -> V
    where
        K: Borrow<Q>,
    {
        let load = async { Ok::<_, Infallible>(load.await) };
        self.try_get_or_insert_ttl_async(key, load).await.unwrap_or_else(|never| match *never {})
    }

    /// As [`Map::try_get_or_insert_async`].
    pub async fn try_get_or_insert_async<Q: Key + ?Sized, E: Send + Sync + 'static>(
        &self,
        key: &Q,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<V, Arc<E>>
    where
        K: Borrow<Q>,
    {
        self.try_get_or_insert_ttl_async(key, async { Ok((load.await?, Expiry::NEVER)) }).await
    }

    /// As [`Map::try_get_or_insert_ttl_async`].
    pub async fn try_get_or_insert_ttl_async<Q, T, E>(
        &self,
        key: &Q,
        load: impl Future<Output = Result<(V, T), E>>,
    ) -> Result<V, Arc<E>>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
        T: Into<Expiry>,
        E: Send + Sync + 'static,
    {
        let key: Box<[u8]> = key.with_key(|key| key.into());
        loading::load_async(self, &key, load).await
    }
}

impl<K: DecodeKey + ?Sized, V: Clone + Send + Sync + 'static> ObjectMap<K, V> {
    /// As [`ObjectMap::build`], and calls `on_removed` for each object that leaves, with its key and the reason, as
    /// [`Builder::on_removed`] does; there it says what such a function may do. It gets the object itself, or a
    /// clone if another thread is cloning it at that moment.
    ///
    /// ```
    /// use larder::{Cause, Clock, ObjectMap};
    ///
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let builder = ObjectMap::<str, String>::builder(1000);
    /// let map = ObjectMap::<str, String>::build_reporting(builder, Clock::system(), move |key, value, cause| {
    ///     let _ = sender.send((key, value, cause));
    /// })?;
    /// map.insert("lynx", "cat".to_owned())?;
    /// map.remove("lynx")?;
    /// assert_eq!(receiver.recv(), Ok(("lynx".to_owned(), "cat".to_owned(), Cause::Removed)));
    /// # Ok::<(), larder::Error>(())
    /// ```
    pub fn build_reporting(
        builder: Builder,
        clock: Clock,
        on_removed: impl Fn(K::Owned, V, Cause) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let cells = Arc::new(Cells::new());
        let retired = cells.clone();
        Self::build_with(builder, clock, cells, move |evicted| {
            let Some(id) = id_of(&evicted) else { return };
            // Taken first: whatever the caller's code does, the map keeps nothing.
            let object = retired.take(id);
            let key = Map::<K, Id>::decode(evicted.key, evicted.value);
            if let (Some((key, _)), Some(object)) = (key, object) {
                on_removed(key, object, evicted.cause);
            }
            retired.retire_late();
        })
    }

    /// As [`Map::iter`]: copies of all keys, and clones of their objects.
    pub fn iter(&self) -> impl Iterator<Item = (K::Owned, V)> + '_ {
        self.map.iter().filter_map(|(key, id)| Some((key, self.cells.get(id)?)))
    }

    /// As [`Map::retain`]: removes the objects for which `keep` returns false, and returns how many those were. It
    /// passes over those that have expired: see [`ObjectMap::remove_expired`].
    pub fn retain(&self, mut keep: impl FnMut(&K::Owned, &V) -> bool) -> Result<u64, Error> {
        // One whose object has left meanwhile is no longer there to be removed.
        self.map.retain(|key, id| self.cells.get(*id).is_none_or(|object| keep(key, &object)))
    }
}

fn id_of(evicted: &Evicted<'_>) -> Option<Id> {
    with_key_of(evicted.key, evicted.value, |_, id| Id::from_value(id))
}

impl<K: ?Sized, V: Clone> ObjectMap<K, V> {
    /// A clone of the object whose id `find` returns, with what it returns besides.
    #[inline]
    fn found<T, E>(
        &self,
        find: impl Fn() -> Result<Option<(Id, T)>, E>,
    ) -> Result<Option<(V, T)>, E> {
        let mut before = None;
        while let Some((id, more)) = find()? {
            if let Some(object) = self.cells.get(id) {
                return Ok(Some((object, more)));
            }
            // Overtaken by a removal, so the next one finds another id, or none (invariant 1).
            if before.replace(id) == Some(id) {
                break;
            }
        }
        Ok(None)
    }

    /// Gives an object an id, unless it is too heavy.
    fn put<'a>(&'a self, key: &'a [u8], object: V) -> Result<Put<'a, V>, Error> {
        let weight = self.weigher.as_ref().map(|weigher| weigher.weight(&object)).transpose()?;
        let id = self.cells.put(object).with_weight(weight);
        Ok(Put { map: &self.map.inner, cells: &self.cells, key, id })
    }
}

/// An object that is being stored. If it is dropped, by an error or a panic, the object is retired, unless it is in
/// the map.
struct Put<'a, V> {
    map: &'a Inner,
    cells: &'a Cells<V>,
    key: &'a [u8],
    id: Id,
}

impl<V> Put<'_, V> {
    /// It is in the map, or has already left it.
    fn stored(self) {
        std::mem::forget(self);
    }
}

impl<V> Drop for Put<'_, V> {
    fn drop(&mut self) {
        // A listener may panic after the object was stored, or after it was refused. (One that has then replaced
        // the object itself does not hear of that.)
        if !self.map.has(self.key, &self.id) {
            self.cells.retire(self.id);
        }
    }
}

impl<K: Key + ?Sized, V: Clone + Send + Sync + 'static> Fill<V> for ObjectMap<K, V> {
    fn inner(&self) -> &Inner {
        &self.map.inner
    }

    #[inline]
    fn look_up(&self, key: &[u8]) -> Option<V> {
        let find = || {
            let id = self.map.inner.get(key, Id::from_value).flatten();
            Ok::<_, Infallible>(id.map(|id| (id, ())))
        };
        let Ok(found) = self.found(find);
        found.map(|(object, ())| object)
    }

    fn shared(landed: &Landed) -> Option<V> {
        match landed {
            Landed::Object(object) => object.downcast_ref::<V>().cloned(),
            _ => None,
        }
    }

    fn store(&self, token: Token<Landed>, key: &[u8], object: V, ends: Ends) -> V {
        let shared = Landed::Object(Arc::new(object.clone()));
        match self.put(key, object.clone()) {
            Ok(put) => {
                if self.map.inner.land_value(token, key, shared, &put.id, ends) {
                    put.stored();
                }
            }
            // Too heavy to be stored. Those who wait get it all the same.
            Err(_) => {
                token.land(shared, |_| {});
            }
        }
        object
    }
}
