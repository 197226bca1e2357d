//! A map of bounded size that removes its oldest entry for a new one.
//!
//! Bounds: `limit` entries, and twice as many keys in order of insertion. Cost: O(1) amortized.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// See the module.
pub(super) struct Ring<K, V> {
    map: HashMap<K, V, foldhash::fast::RandomState>,
    order: VecDeque<K>,
    limit: usize,
}

impl<K: Clone + Eq + Hash, V> Ring<K, V> {
    /// An empty map for `limit` entries.
    pub fn new(limit: usize) -> Ring<K, V> {
        Ring { map: HashMap::default(), order: VecDeque::new(), limit }
    }

    /// Inserts or replaces; returns the value that was displaced.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(place) = self.map.get_mut(&key) {
            return Some(std::mem::replace(place, value));
        }
        let mut displaced = None;
        while self.map.len() >= self.limit {
            let Some(oldest) = self.order.pop_front() else { break };
            displaced = self.map.remove(&oldest).or(displaced);
        }
        // Removed keys stay in `order`; they are swept before it outgrows the map.
        if self.order.len() >= 2 * self.limit {
            let map = &self.map;
            self.order.retain(|key| map.contains_key(key));
        }
        self.order.push_back(key.clone());
        self.map.insert(key, value);
        displaced
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.map.get_mut(key)
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.map.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oldest entry is removed, a replaced value is returned, and removed keys do not count, however
    /// many there were.
    #[test]
    fn the_oldest_entry_is_removed() {
        let mut ring = Ring::new(2);
        assert_eq!(ring.insert(1, "a"), None);
        assert_eq!(ring.insert(1, "b"), Some("a"));
        assert_eq!(ring.insert(2, "c"), None);
        assert_eq!(ring.insert(3, "d"), Some("b"), "1 was the oldest");
        assert!([1, 2, 3].map(|key| ring.map.contains_key(&key)) == [false, true, true]);
        for key in 10..1000 {
            assert_eq!(ring.remove(&(key - 1)).is_some(), key > 10);
            ring.insert(key, "e");
            assert!(ring.map.len() <= 2 && ring.order.len() <= 4);
        }
    }
}
