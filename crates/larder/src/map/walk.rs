//! Walks over a map: [`Map::iter`] and [`Map::retain`].

use super::Map;
use crate::codec::{Value, with_key_of};
use crate::condition::Expected;
use crate::decode_key::DecodeKey;
use crate::error::Error;
use crate::iter::OwnedEntry;

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
        self.cache().iter(self.now()).filter_map(|entry| decoded::<K, V>(&entry))
    }

    /// Removes the values for which `keep` returns false, and returns how many those were. `keep`
    /// runs without a lock, and may use the map. A value that is replaced meanwhile stays: `keep`
    /// has not seen the newer one. Otherwise the walk is that of [`Map::iter`].
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
        let mut removed = 0;
        let mut entries = self.cache().iter(self.now());
        for entry in entries.by_ref() {
            if decoded::<K, V>(&entry).is_none_or(|(key, value)| keep(&key, &value)) {
                continue;
            }
            let there = Expected { value: entry.value().into(), expires: entry.expires() };
            let is_removed = self.inner.pool.change(entry.key(), Some(&there), None, self.now())?;
            removed += u64::from(is_removed);
        }
        entries.was_whole()?;
        Ok(removed)
    }
}

fn decoded<K: DecodeKey + ?Sized, V: Value>(entry: &OwnedEntry) -> Option<(K::Owned, V)> {
    with_key_of(entry.key(), entry.value(), |key, value| {
        Some((K::from_key(key)?, V::from_value(value)?))
    })
}
