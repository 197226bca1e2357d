//! A map that evicts entries without recent use.
//!
//! It has two generations. Each insertion and each look-up moves an entry to the young generation. A full
//! young generation becomes the old one, and the previous old generation is evicted. So the map has at
//! most `2 * young_max` entries, and an entry stays if its next use comes within `young_max` other ones.
//!
//! Cost: one or two look-ups; sometimes the map frees a whole generation.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// See the header of the file.
#[derive(Debug)]
pub struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    young_max: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// A map of at most `entries_max` entries.
    pub fn new(entries_max: usize) -> Recent<K, V> {
        let young_max = (entries_max / 2).max(1);
        Recent { young: HashMap::new(), old: HashMap::new(), young_max }
    }

    /// The value of a key. The entry becomes young.
    pub fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        if !self.young.contains_key(key) {
            let (key, value) = self.old.remove_entry(key)?;
            self.insert(key, value);
        }
        self.young.get_mut(key)
    }

    /// Inserts a value, or replaces the previous one.
    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.young_max && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    /// The number of entries.
    pub fn count(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries in use stay, others are evicted, and the map never exceeds its limit.
    #[test]
    fn the_recent_stay() {
        let mut recent = Recent::new(8);
        for key in 0..100 {
            recent.insert(key, -key);
            assert_eq!(recent.get(&0), Some(&mut 0), "used after {key}");
            assert!(recent.count() <= 8);
        }
        assert_eq!(recent.get(&99), Some(&mut -99));
        assert_eq!(recent.get(&50), None);
        recent.insert(99, 1);
        assert_eq!(recent.get(&99), Some(&mut 1));
    }
}
