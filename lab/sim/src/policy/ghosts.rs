//! Ghosts: keys of entries that have left, in the order in which they did.
//!
//! What 2Q calls A1out, ARC B1 and B2, S3-FIFO the ghost queue, LIRS non-resident blocks: two lists of keys,
//! found by key in O(1) and taken out of the middle. Keys are the 64-bit hashes that the policy gets; two
//! keys with one hash are one ghost.
//!
//! ```text
//! number     0..numbers, dense: of a ghost while it is one, then of another
//! chains     2 for a ghost: `number + 1` of the first ghost of each, 0 for none; chosen by the key's low bits
//! nodes      key, and `list 32 | next of the chain + 1`
//! ```
//!
//! Chains, because every departure forgets another ghost: with open addressing, two thirds full, closing the
//! holes in long runs made S3-FIFO take 62 ns a request instead of 26 (Zipf 0.9, a tenth of 200,000 keys).
//!
//! Bytes: 32 a ghost (chains 8, node 16, links 8).

use larder::Error;
use larder_mem::Region;
use larder_mem::prefetch_slice;

use super::list::Lists;

/// The list of free numbers, next to the two lists of ghosts.
const FREE: usize = 2;

/// The words of a node.
const KEY: usize = 0;
const REST: usize = 1;

/// Two lists of departed keys.
#[derive(Debug)]
pub struct Ghosts {
    chains: Region<u32>,
    nodes: Region<[u64; 2]>,
    lists: Lists<3>,
    /// Numbers that were ever given out.
    used: u32,
}

impl Ghosts {
    /// For at most `ghosts_max` ghosts, below 2^31.
    pub fn new(ghosts_max: usize) -> Result<Self, Error> {
        Ok(Ghosts {
            chains: Region::new(2 * ghosts_max).map_err(Error::Memory)?,
            nodes: Region::new(ghosts_max).map_err(Error::Memory)?,
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
    fn chain(&self, key: u64) -> usize {
        (((key & 0xffff_ffff) * self.chains.len() as u64) >> 32) as usize
    }

    #[inline]
    fn key(&self, number: u32) -> u64 {
        self.nodes[number as usize][KEY]
    }

    /// `number + 1` of the next ghost of a chain.
    #[inline]
    fn next(&self, number: u32) -> u32 {
        self.nodes[number as usize][REST] as u32
    }

    /// The number of a key's ghost.
    #[inline]
    pub fn find(&self, key: u64) -> Option<u32> {
        let mut link = self.chains[self.chain(key)];
        while link != 0 && self.key(link - 1) != key {
            link = self.next(link - 1);
        }
        link.checked_sub(1)
    }

    /// The list that a ghost is in.
    #[inline]
    pub fn list(&self, number: u32) -> usize {
        (self.nodes[number as usize][REST] >> 32) as usize
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
        let chain = self.chain(key);
        let next = std::mem::replace(&mut self.chains[chain], number + 1);
        self.nodes[number as usize] = [key, (list as u64) << 32 | u64::from(next)];
        self.lists.push(list, number);
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
        let chain = self.chain(self.key(number));
        let next = self.next(number);
        let mut link = self.chains[chain];
        if link == number + 1 {
            self.chains[chain] = next;
            return;
        }
        // It is on this chain, so the end is not reached.
        while self.next(link - 1) != number + 1 {
            link = self.next(link - 1);
        }
        let rest = &mut self.nodes[link as usize - 1][REST];
        *rest = *rest >> 32 << 32 | u64::from(next);
    }

    /// Brings near what a look for a key begins with.
    #[inline]
    pub fn prefetch(&self, key: u64) {
        prefetch_slice(&self.chains, self.chain(key));
    }

    /// A list's keys, oldest first.
    #[cfg(test)]
    pub fn iter(&self, list: usize) -> impl Iterator<Item = u64> + '_ {
        self.lists.iter(list).map(|number| self.key(number))
    }

    /// Walks everything; `Err` states what is wrong.
    pub fn validate(&self) -> Result<(), String> {
        self.lists.validate()?;
        for list in [0, 1] {
            let lost =
                |&number: &u32| self.list(number) != list || self.find(self.key(number)).is_none();
            if let Some(number) = self.lists.iter(list).find(lost) {
                return Err(format!("ghost {number} of list {list} is not found"));
            }
        }
        let mut chained = 0;
        for &first in self.chains.iter() {
            let mut link = first;
            while link != 0 && chained <= self.nodes.len() as u64 {
                (chained, link) = (chained + 1, self.next(link - 1));
            }
        }
        if chained != self.len(0) + self.len(1) {
            return Err(format!("{chained} chained of {} and {} ghosts", self.len(0), self.len(1)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against two plain queues, with keys that meet in a few chains: the same keys are remembered in the same
        /// order.
        #[test]
        fn ghosts_are_two_queues(
            steps in prop::collection::vec((0..3usize, 0..40u64, 1..9u64), 0..400)
        ) {
            let mut ghosts = Ghosts::new(16).unwrap();
            let mut queues = [VecDeque::new(), VecDeque::new()];
            for (act, which, len_max) in steps {
                // Five keys a chain.
                let key = (which / 8) << 32 | (which % 8) << 29;
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
