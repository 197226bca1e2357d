//! Changes of a map that depend on the value that is there.
//!
//! ```text
//! copy the value -> decide (the caller's code, without any lock) -> write, if the value is still the same
//!        ^----------------------------------------------------------- else
//! ```
//!
//! What is compared is the value's bytes and when it expires, under the lock of the key's shard. That
//! an entry was replaced by an equal one in between makes no difference to the result. One of several
//! threads that change a key always succeeds, so together they never stand still.

use std::borrow::Borrow;

use super::{Inner, Map};
use crate::codec::{Key, Rest, Value, with_engine_key};
use crate::condition::Expected;
use crate::entry::Entry;
use crate::error::Error;
use crate::expiry::{Ends, Expiry};
use crate::reader_pool::Unreported;
use crate::time::Seconds;

/// What [`Map::compute`] does with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<V> {
    /// Nothing.
    Keep,
    /// Stores a value for at most a time from now.
    Insert(V, Expiry),
    /// Stores a value that expires when the present one would; without one, never.
    Update(V),
    /// Removes the value.
    Remove,
}

impl<K: Key + ?Sized, V: Value> Map<K, V> {
    /// Calls `change` with the value of a key, if there is one, and does what it returns, as one
    /// step: if another write of the key comes between, calls `change` again with the newer value.
    /// Returns the value that was there. `change` runs without a lock. It must not write the same
    /// key, which would make it run again, every time.
    ///
    /// ```
    /// use larder::{Change, Map, Ttl};
    ///
    /// let requests: Map<str, u32> = Map::new(1 << 20)?;
    /// // At most 100 in a minute: the minute begins with the first one.
    /// let count = |count: Option<&u32>| match count {
    ///     None => Change::Insert(1, Ttl::seconds(60).into()),
    ///     Some(100) => Change::Keep,
    ///     Some(count) => Change::Update(count + 1),
    /// };
    /// assert_eq!(requests.compute("192.0.2.1", count)?, None);
    /// assert_eq!(requests.compute("192.0.2.1", count)?, Some(1));
    /// # Ok::<(), larder::Error>(())
    /// ```
    pub fn compute<Q: Key + ?Sized>(
        &self,
        key: &Q,
        change: impl FnMut(Option<&V>) -> Change<V>,
    ) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
    {
        self.change(key, change)
    }

    /// As [`Map::insert`], and returns the value that was there.
    pub fn replace<Q: Key + ?Sized>(&self, key: &Q, value: V) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
    {
        let insert = Change::Insert(value, Expiry::NEVER);
        self.change(key, |_| &insert)
    }

    /// As [`Map::remove`], and returns the value that was there.
    pub fn take<Q: Key + ?Sized>(&self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
    {
        self.change(key, |_| Change::Remove)
    }

    /// The value of a key and the first second in which it has expired, by the clock of
    /// [`Map::now`], if it is not read meanwhile; `None` for never. Copies the value under the lock of
    /// its shard; the policy does not learn of the read.
    ///
    /// ```
    /// use larder::{Map, Ttl};
    ///
    /// let map: Map<str, u64> = Map::new(1 << 20)?;
    /// map.insert_ttl("lynx", 7, Ttl::seconds(60))?;
    /// let (value, expires) = map.get_with_expiry("lynx")?.expect("it was just inserted");
    /// assert!(value == 7 && expires.is_some_and(|expires| expires <= larder::Seconds(map.now().0 + 60)));
    /// # Ok::<(), larder::Error>(())
    /// ```
    pub fn get_with_expiry<Q: Key + ?Sized>(
        &self,
        key: &Q,
    ) -> Result<Option<(V, Option<Seconds>)>, Error>
    where
        K: Borrow<Q>,
    {
        key.with_key(|key| {
            let (found, there) = self.inner.find(key)?;
            Ok(there.map(|value| (value, found.and_then(|found| found.ends.second()))))
        })
    }

    /// Makes the value of a key expire `ttl` from now. False if there is none. The value stays where
    /// it is, so no listener is called. It is stored again, as by [`Map::replace`], if it had or gets
    /// an expiry that is exact, or a time to idle.
    pub fn touch<Q: Key + ?Sized>(&self, key: &Q, ttl: impl Into<Expiry>) -> Result<bool, Error>
    where
        K: Borrow<Q>,
    {
        let ttl = ttl.into();
        key.with_key(|key| match self.inner.touch_in_place(key, ttl)? {
            Some(is_touched) => Ok(is_touched),
            None => self.inner.store_again(key, ttl),
        })
    }

    /// Does what `decide` returns, which may be the same change every time.
    fn change<Q: Key + ?Sized, C: Borrow<Change<V>>>(
        &self,
        key: &Q,
        mut decide: impl FnMut(Option<&V>) -> C,
    ) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
    {
        key.with_key(|key| self.inner.change(key, |there| Some(decide(there))))
    }
}

impl Inner {
    /// Does what `decide` returns for the value of a key, and returns that value. `None`: the value is out of date, and
    /// looked up again.
    pub(super) fn change<V: Value, C: Borrow<Change<V>>>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<&V>) -> Option<C>,
    ) -> Result<Option<V>, Error> {
        loop {
            let (found, there) = self.find(key)?;
            let Some(change) = decide(there.as_ref()) else { continue };
            if self.apply(key, found, there.is_some(), change.borrow())? {
                return Ok(there);
            }
        }
    }

    /// The entry under the engine's key, and its value if it is one of this key and type.
    fn find<V: Value>(&self, key: &[u8]) -> Result<(Option<Expected>, Option<V>), Error> {
        with_engine_key(key, |engine_key, rest| {
            let found = self.found_at(engine_key)?;
            let stored = found.as_ref().map(Expected::stored);
            let value = stored.and_then(|stored| V::from_value(self.alive(rest, stored)?));
            Ok((found, value))
        })
    }

    /// True if this value is stored under a key, expired or not. It is no read.
    pub(super) fn has<V: Value + PartialEq>(&self, key: &[u8], value: &V) -> bool {
        with_engine_key(key, |engine_key, rest| {
            let is_it = |entry: Entry<'_>| {
                rest.value_in(entry.slot.value()).and_then(V::from_value).as_ref() == Some(value)
            };
            // At second 0 nothing has expired yet.
            let found = self.pool.cache().read_at_main(engine_key, Seconds(0), is_it);
            found.ok().flatten() == Some(true)
        })
    }

    fn found_at(&self, engine_key: &[u8]) -> Result<Option<Expected>, Error> {
        let copy = |entry: Entry<'_>| Expected::of(entry.slot);
        self.pool.cache().read_at_main(engine_key, self.clock.now(), copy)
    }

    /// The entry under the engine's key, if it is one of this key and has not expired.
    fn alive_at(&self, engine_key: &[u8], rest: Rest<'_>) -> Result<Option<Expected>, Error> {
        let alive = |found: &Expected| self.alive(rest, found.stored()).is_some();
        Ok(self.found_at(engine_key)?.filter(alive))
    }

    /// Changes the second of expiry of a value where it is, and returns whether there is one. `None` if it must be
    /// stored again instead.
    pub(super) fn touch_in_place(&self, key: &[u8], ttl: Expiry) -> Result<Option<bool>, Error> {
        with_engine_key(key, |engine_key, rest| {
            loop {
                let Some(found) = self.alive_at(engine_key, rest)? else { return Ok(Some(false)) };
                let ends = ttl.ends(&self.clock);
                if ends.version.is_some() || found.ends.has_term() {
                    return Ok(None);
                }
                // A write that comes between has its value touched, or none: as if it had come before
                // or after this. One with a term is refused (invariant 3 of `expiry`).
                if self.pool.cache().touch(engine_key, ends.expires)? {
                    return Ok(Some(true));
                }
            }
        })
    }

    /// Stores a value again, with another expiry; false if there is none.
    fn store_again(&self, key: &[u8], ttl: Expiry) -> Result<bool, Error> {
        with_engine_key(key, |engine_key, rest| {
            loop {
                let Some(found) = self.alive_at(engine_key, rest)? else { return Ok(false) };
                let value = Some((&found.value[..], ttl.ends(&self.clock)));
                if self.pool.change(engine_key, Some(&found), value, self.clock.now())? {
                    return Ok(true);
                }
            }
        })
    }

    /// Does a change if the entry under the key is still the one that was found; false if not.
    /// `is_value`: that entry is a value of this key and type.
    fn apply<V: Value>(
        &self,
        key: &[u8],
        found: Option<Expected>,
        is_value: bool,
        change: &Change<V>,
    ) -> Result<bool, Error> {
        let now = self.clock.now();
        let (value, ends) = match change {
            Change::Keep => return Ok(true),
            Change::Remove if found.is_none() => return Ok(true),
            Change::Remove => (None, Ends::NEVER),
            Change::Insert(value, ttl) => (Some(value), ttl.ends(&self.clock)),
            Change::Update(value) => {
                let found = found.as_ref().filter(|_| is_value);
                (Some(value), found.map_or(Ends::NEVER, |found| found.ends.inherited(now)))
            }
        };
        self.flight.supersede(key);
        let mut unreported = self.pool.unreported();
        self.write_over(key, found.as_ref(), value, ends, now, &mut unreported)
    }

    /// Stores a value, or removes the entry, if the entry under the key is still the one that was
    /// found; false if not.
    fn write_over<V: Value>(
        &self,
        key: &[u8],
        found: Option<&Expected>,
        value: Option<&V>,
        ends: Ends,
        now: Seconds,
        unreported: &mut Unreported<'_>,
    ) -> Result<bool, Error> {
        with_engine_key(key, |engine_key, rest| match value {
            None => self.pool.change_silently(engine_key, found, None, now, unreported),
            Some(value) => value.with_value(|value| {
                rest.with_stored(value, |stored| {
                    let value = Some((stored, ends));
                    self.pool.change_silently(engine_key, found, value, now, unreported)
                })
            }),
        })
    }

    /// Stores a loaded value, unless there is one: a write that the load did not see came first. True
    /// if it is stored.
    pub(super) fn store_loaded<V: Value>(
        &self,
        key: &[u8],
        value: &V,
        ends: Ends,
        unreported: &mut Unreported<'_>,
    ) -> Result<bool, Error> {
        loop {
            let (found, there) = self.find::<V>(key)?;
            if there.is_some() {
                return Ok(false);
            }
            let now = self.clock.now();
            if self.write_over(key, found.as_ref(), Some(value), ends, now, unreported)? {
                return Ok(true);
            }
        }
    }
}
