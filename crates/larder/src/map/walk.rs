//! Walks over a map: [`Map::iter`] and [`Map::retain`]; and what they and listeners find, decoded.

use super::Map;
use crate::codec::{Key, Value, with_key_of};
use crate::condition::Expected;
use crate::decode_key::DecodeKey;
use crate::error::Error;
use crate::iter::OwnedEntry;
use crate::time::Seconds;

impl<K: DecodeKey + ?Sized, V: Value> Map<K, V> {
    /// Copies of all keys and values, a few at a time, in no order to rely on. One that is
    /// inserted, removed, changed or read meanwhile may be returned once, twice or not at all. It
    /// blocks no other operation; see [`crate::Cache::iter`]. Bytes that are no `K` or no `V` are
    /// skipped.
    ///
    /// ```
    /// let map: larder::Map<str, u64> = larder::Map::new(1 << 20)?;
    /// map.insert("lynx", 7)?;
    /// assert_eq!(map.iter().collect::<Vec<_>>(), [("lynx".to_owned(), 7)]);
    /// # Ok::<(), larder::Error>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (K::Owned, V)> + '_ {
        let alive = |entry: &OwnedEntry| !entry.ends().is_past(&self.inner.clock);
        let entries = self.cache().iter(self.now()).filter(alive);
        entries.filter_map(|entry| Self::decode(entry.key(), entry.value()))
    }

    /// Removes the values for which `keep` returns false, and returns how many those were. `keep`
    /// runs without a lock, and may use the map. A value that is replaced meanwhile stays: `keep`
    /// has not seen the newer one. Results of loads that are in flight are not stored, as they may be
    /// older. Otherwise the walk is that of [`Map::iter`]. After an error, some are removed.
    ///
    /// ```
    /// let map: larder::Map<str, u64> = larder::Map::new(1 << 20)?;
    /// map.insert("lynx", 7)?;
    /// map.insert("otter", 9)?;
    /// assert_eq!(map.retain(|key, value| key != "lynx" || *value > 7)?, 1);
    /// assert_eq!((map.get("lynx"), map.get("otter")), (None, Some(9)));
    /// # Ok::<(), larder::Error>(())
    /// ```
    pub fn retain(&self, mut keep: impl FnMut(&K::Owned, &V) -> bool) -> Result<u64, Error> {
        self.inner.flight.supersede_all();
        self.remove_if(false, |entry| {
            !entry.ends().is_past(&self.inner.clock)
                && Self::decode(entry.key(), entry.value())
                    .is_some_and(|(key, value)| !keep(&key, &value))
        })
    }

    /// The key and the value of bytes that an [`crate::OwnedEntry`] or an [`crate::Evicted`] of this
    /// map's cache has. They are not always the bytes of [`crate::Key`] and [`Value`]: of an empty key
    /// and of one of more than 254 bytes, a part is in front of the value. `None` if they are no `K`
    /// or no `V`.
    pub fn decode(key: &[u8], value: &[u8]) -> Option<(K::Owned, V)> {
        with_key_of(key, value, |key, value| Some((K::from_key(key)?, V::from_value(value)?)))
    }
}

impl<K: Key + ?Sized, V: Value> Map<K, V> {
    /// Removes the values that have expired, and returns how many those were; a listener hears of each as removed.
    /// They need not be removed, as they stay only until their memory is needed. One that is replaced meanwhile
    /// stays, while those that [`crate::Reader::get_stale`] would still find are removed. The walk is that of
    /// [`Map::iter`]: it takes a lock for 64 entries at a time, of all that there are. After an error, some are
    /// removed.
    ///
    /// ```
    /// use larder::{Clock, Map, Seconds, Ttl};
    ///
    /// let clock = Clock::manual(Seconds(1));
    /// let map: Map<str, u64> = Map::build(Map::<str, u64>::builder().budget(1 << 20), clock.clone())?;
    /// map.insert_ttl("lynx", 7, Ttl::seconds(5))?;
    /// clock.set(Seconds(6));
    /// assert_eq!((map.get("lynx"), map.len()?), (None, 1));
    /// assert_eq!((map.remove_expired()?, map.len()?), (1, 0));
    /// # Ok::<(), larder::Error>(())
    /// ```
    pub fn remove_expired(&self) -> Result<u64, Error> {
        let now = self.now();
        let has_expired = |entry: &OwnedEntry| {
            entry.expires().is_some_and(|expires| expires <= now)
                || entry.ends().is_past(&self.inner.clock)
        };
        self.remove_if(true, has_expired)
    }

    /// Removes the entries for which `leaves` returns true, and returns how many those were. It is asked of those
    /// that have not expired, or of all, to remove expired ones.
    fn remove_if(
        &self,
        expired: bool,
        mut leaves: impl FnMut(&OwnedEntry) -> bool,
    ) -> Result<u64, Error> {
        // At second 0 nothing has expired yet, so the engine finds all of them.
        let now = || if expired { Seconds(0) } else { self.now() };
        let mut removed = 0;
        let mut entries = self.cache().iter(now());
        for entry in entries.by_ref() {
            if leaves(&entry) {
                let (value, ends) = (entry.value().into(), entry.ends());
                let there = Expected { value, ends, is_idle: expired };
                let is_removed = self.inner.pool.change(entry.key(), Some(&there), None, now())?;
                removed += u64::from(is_removed);
            }
        }
        entries.was_whole()?;
        Ok(removed)
    }
}
