//! Ghosts: keys of entries that have left, in the order in which they did.
//!
//! What 2Q calls A1out, ARC B1 and B2, S3-FIFO the ghost queue, LIRS non-resident blocks: two lists of keys,
//! found by key in O(1) and taken out of the middle. Keys are the 64-bit hashes that the policy is told; two
//! keys with one hash are one ghost.
//!
//! ```text
//! number     0..numbers, dense: of a ghost while it is one, then of another
//! slots      open addressing by linear probing, at most two thirds full: tag 32 | number + 1; 0 is empty.
//!            A ghost's home is its tag spread over the slots; a removal shifts back those behind it, so
//!            that no tombstones gather
//! ```
//!
//! Octets: 29 a ghost (key 8, links 8, slots 12, list 1).

use larder::Error;
use larder::mem::Region;
use larder::prefetch_slice;

use super::list::Lists;

/// The list of numbers that are no ghosts any more, beside the two that hold ghosts.
const FREE: usize = 2;

/// Two lists of departed keys.
#[derive(Debug)]
pub(super) struct Ghosts {
    slots: Region<u64>,
    keys: Region<u64>,
    /// The list of each number.
    homes: Region<u8>,
    lists: Lists<3>,
    /// Numbers that were ever given out.
    used: u32,
}

impl Ghosts {
    /// For at most `ghosts_max` ghosts, below 2^31.
    pub fn new(ghosts_max: usize) -> Result<Self, Error> {
        Ok(Ghosts {
            slots: Region::new(ghosts_max + ghosts_max / 2 + 1).map_err(Error::Memory)?,
            keys: Region::new(ghosts_max).map_err(Error::Memory)?,
            homes: Region::new(ghosts_max).map_err(Error::Memory)?,
            lists: Lists::new(ghosts_max)?,
            used: 0,
        })
    }

    /// Ghosts in a list, 0 or 1.
    #[inline]
    pub fn len(&self, list: usize) -> u64 {
        self.lists.len(list)
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// The first slot at or after a key's home that is empty or whose word `is_it`.
    #[inline]
    fn probe(&self, key: u64, is_it: impl Fn(u64) -> bool) -> usize {
        let mut slot = self.home(key as u32);
        while self.slots[slot] != 0 && !is_it(self.slots[slot]) {
            slot = self.next(slot);
        }
        slot
    }

    /// The number of a key's ghost.
    #[inline]
    pub fn find(&self, key: u64) -> Option<u32> {
        let slot = self.probe(key, |word| {
            (word >> 32) as u32 == key as u32 && self.keys[number_of(word) as usize] == key
        });
        (self.slots[slot] != 0).then(|| number_of(self.slots[slot]))
    }

    /// The list that a ghost is in.
    #[inline]
    pub fn list(&self, number: u32) -> usize {
        usize::from(self.homes[number as usize])
    }

    /// The list that a key's ghost was in, which is a ghost no more.
    #[inline]
    pub fn take(&mut self, key: u64) -> Option<usize> {
        let number = self.find(key)?;
        let list = self.list(number);
        self.remove(number);
        Some(list)
    }

    /// Adds a key that has none as a list's newest ghost, after the oldest of that list are forgotten so
    /// that it holds `len_max` at most; its number.
    #[inline]
    pub fn push(&mut self, list: usize, key: u64, len_max: u64) -> u32 {
        self.trim(list, len_max.saturating_sub(1));
        let number = match self.lists.oldest(FREE, None) {
            Some(number) => {
                self.lists.remove(FREE, number);
                number
            }
            None => {
                self.used += 1;
                self.used - 1
            }
        };
        self.keys[number as usize] = key;
        self.homes[number as usize] = list as u8;
        self.lists.push(list, number);
        let slot = self.probe(key, |_| false);
        self.slots[slot] = u64::from(key as u32) << 32 | u64::from(number + 1);
        number
    }

    /// Forgets a list's oldest until it holds `len_max` at most.
    #[inline]
    pub fn trim(&mut self, list: usize, len_max: u64) {
        while self.len(list) > len_max
            && let Some(oldest) = self.oldest(list)
        {
            self.remove(oldest);
        }
    }

    /// A list's oldest ghost.
    #[inline]
    pub fn oldest(&self, list: usize) -> Option<u32> {
        self.lists.oldest(list, None)
    }

    /// Forgets a ghost; its number may come again.
    #[inline]
    pub fn remove(&mut self, number: u32) {
        self.lists.renew(self.list(number), FREE, number);
        let key = self.keys[number as usize];
        let mut hole = self.probe(key, |word| number_of(word) == number);
        let mut slot = hole;
        loop {
            slot = self.next(slot);
            let word = self.slots[slot];
            if word == 0 {
                break;
            }
            // It may fill the hole unless its home lies behind the hole, on the way round to where it is.
            let home = self.home((word >> 32) as u32);
            let stays =
                if hole < slot { hole < home && home <= slot } else { hole < home || home <= slot };
            if !stays {
                self.slots[hole] = word;
                hole = slot;
            }
        }
        self.slots[hole] = 0;
    }

    /// Brings near what a look for a key begins with.
    #[inline]
    pub fn prefetch(&self, key: u64) {
        prefetch_slice(&self.slots, self.home(key as u32));
    }

    /// A list's keys, oldest first.
    #[cfg(test)]
    pub fn iter(&self, list: usize) -> impl Iterator<Item = u64> + '_ {
        self.lists.iter(list).map(|number| self.keys[number as usize])
    }

    /// Walks everything; `Err` says what is wrong.
    pub fn validate(&self) -> Result<(), String> {
        self.lists.validate()?;
        for list in [0, 1] {
            for number in self.lists.iter(list) {
                let slot = self.probe(self.keys[number as usize], |word| number_of(word) == number);
                if self.slots[slot] == 0 || self.list(number) != list {
                    return Err(format!("ghost {number} of list {list} is not found"));
                }
            }
        }
        let full = self.slots.iter().filter(|&&word| word != 0).count() as u64;
        if full != self.len(0) + self.len(1) {
            return Err(format!("{full} slots for {} and {} ghosts", self.len(0), self.len(1)));
        }
        Ok(())
    }
}

#[inline]
fn number_of(word: u64) -> u32 {
    word as u32 - 1
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against two plain queues, with keys whose homes meet and wrap round the end of the slots: the same
        /// keys are remembered in the same order.
        #[test]
        fn ghosts_are_two_queues(
            steps in prop::collection::vec((0..3usize, 0..40u64, 1..9u64), 0..400)
        ) {
            let mut ghosts = Ghosts::new(16).unwrap();
            let mut queues = [VecDeque::new(), VecDeque::new()];
            for (act, which, len_max) in steps {
                // Eight tags, three of them at the very end; five keys each.
                let tag = [0, 1, 1 << 28, 1 << 30, 3 << 30, u32::MAX - 2, u32::MAX - 1, u32::MAX];
                let key = (which / 8) << 32 | u64::from(tag[which as usize % 8]);
                let known = queues.iter().position(|queue| queue.contains(&key));
                prop_assert_eq!(ghosts.find(key).map(|number| ghosts.list(number)), known);
                match (act, known) {
                    (2, _) | (_, Some(_)) => {
                        prop_assert_eq!(ghosts.take(key), known);
                        queues.iter_mut().for_each(|queue| queue.retain(|&other| other != key));
                    }
                    (list, None) => {
                        ghosts.push(list, key, len_max.min(8));
                        let queue = &mut queues[list];
                        queue.push_back(key);
                        queue.drain(..queue.len().saturating_sub(len_max.min(8) as usize));
                    }
                }
                ghosts.validate().unwrap();
                for list in [0, 1] {
                    prop_assert!(ghosts.iter(list).eq(queues[list].iter().copied()));
                }
            }
        }
    }
}
