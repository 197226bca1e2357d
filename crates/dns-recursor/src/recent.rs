//! A map that forgets what was not asked for lately.
//!
//! Two generations: what is put in or asked for is young. When there are as many young ones as may be, they become the
//! old ones, and the old ones of before are forgotten. So at most `2 * young_max` are held, and what is asked for again
//! within as many others stays.
//!
//! Cost: one or two look-ups; now and then the freeing of a whole generation.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// See the head of the file.
#[derive(Debug)]
pub struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    young_max: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// For `entries_max` at most.
    pub fn new(entries_max: usize) -> Recent<K, V> {
        let young_max = (entries_max / 2).max(1);
        Recent { young: HashMap::new(), old: HashMap::new(), young_max }
    }

    /// What is held for a key, which is young from now on.
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

    /// Holds a value, in the place of the one before.
    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.young_max && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    /// How many are held.
    pub fn count(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked for stays, what is not goes, and there are never more than may be.
    #[test]
    fn the_recent_stay() {
        let mut recent = Recent::new(8);
        for key in 0..100 {
            recent.insert(key, -key);
            assert_eq!(recent.get(&0), Some(&mut 0), "asked for after {key}");
            assert!(recent.count() <= 8);
        }
        assert_eq!(recent.get(&99), Some(&mut -99));
        assert_eq!(recent.get(&50), None);
        recent.insert(99, 1);
        assert_eq!(recent.get(&99), Some(&mut 1));
    }
}
