//! How often keys came lately, about: a count-min sketch of four-bit counters, halved now and then.
//!
//! ```text
//! block      8 words of 64 bits, a cache line, chosen by the key; 16 counters a word
//! row        two words of a block, four rows; in each the key has one of 32 counters
//! count      the least of its four counters, which another key can only raise; 0 to 15
//! ```
//!
//! Every counter is halved when the increments reach the sample (Einziger, Friedman, Manes, *TinyLFU*, ACM
//! Transactions on Storage 2017). That all rows lie in one block is Caffeine's layout. Words: one for an
//! entry, rounded up to a power of two, at least one block.

use larder::Error;
use larder_mem::Region;

const BLOCK_WORDS: usize = 8;
const ROWS: usize = 4;
const COUNT_MAX: u64 = 15;
/// The lowest bit of each counter, and all but the highest.
const ODD: u64 = 0x1111_1111_1111_1111;
const HALF: u64 = 0x7777_7777_7777_7777;

/// A count-min sketch.
#[derive(Debug)]
pub(super) struct Sketch {
    blocks: Region<[u64; BLOCK_WORDS]>,
    /// Increments, half of those before the last halving, and so on.
    increments: u64,
}

impl Sketch {
    /// For a cache of `entries` entries.
    pub fn new(entries: usize) -> Result<Self, Error> {
        let blocks = entries.next_power_of_two().div_ceil(BLOCK_WORDS);
        Ok(Sketch { blocks: Region::new(blocks).map_err(Error::Memory)?, increments: 0 })
    }

    /// The block of a mixed key.
    #[inline]
    fn block(&self, key: u32) -> usize {
        // A power of two: these are the key's highest bits.
        ((u64::from(key) * self.blocks.len() as u64) >> 32) as usize
    }

    /// How often a key was counted lately.
    #[inline]
    pub fn count(&self, key: u32) -> u64 {
        let block = &self.blocks[self.block(key)];
        places(key)
            .map(|(word, shift)| block[word] >> shift & COUNT_MAX)
            .into_iter()
            .min()
            .unwrap_or(0)
    }

    /// Counts a key; all are halved at `sample` increments.
    #[inline]
    pub fn increment(&mut self, key: u32, sample: u64) {
        let block = self.block(key);
        let block = &mut self.blocks[block];
        let mut grew = false;
        for (word, shift) in places(key) {
            if block[word] >> shift & COUNT_MAX != COUNT_MAX {
                block[word] += 1 << shift;
                grew = true;
            }
        }
        self.increments += u64::from(grew);
        if grew && self.increments >= sample {
            self.halve();
        }
    }

    fn halve(&mut self) {
        let mut lost = 0;
        for word in self.blocks.iter_mut().flatten() {
            lost += u64::from((*word & ODD).count_ones());
            *word = *word >> 1 & HALF;
        }
        // An increment raised up to four counters.
        self.increments = self.increments.saturating_sub(lost / ROWS as u64) / 2;
    }
}

/// The word and the bits of a key's counter in each row.
#[inline]
fn places(key: u32) -> [(usize, u32); ROWS] {
    // The block took the highest bits, so these are mixed again; by 2^32 divided by the golden ratio.
    let mixed = (key ^ key >> 15).wrapping_mul(0x9e37_79b1);
    let mixed = mixed ^ mixed >> 13;
    std::array::from_fn(|row| {
        let bits = mixed >> (8 * row);
        (2 * row + (bits & 1) as usize, (bits >> 1 & 15) * 4)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A count is never below the truth before a halving, stops at 15, and halves.
    #[test]
    fn counts_bound_the_truth_from_above() {
        let mut sketch = Sketch::new(64).unwrap();
        let key = |number: u32| number.wrapping_mul(0x85eb_ca6b);
        for number in 0..64 {
            (0..number % 20).for_each(|_| sketch.increment(key(number), u64::MAX));
        }
        for number in 0..64 {
            let count = sketch.count(key(number));
            assert!((u64::from(number % 20).min(15)..=15).contains(&count), "{number}: {count}");
        }
        // 64 blocks of a counter for each number would do; by chance some share one.
        let exact = (0..64).filter(|&n| sketch.count(key(n)) == u64::from(n % 20).min(15)).count();
        assert!(exact > 48, "{exact}");
        let before: Vec<u64> = (0..64).map(|number| sketch.count(key(number))).collect();
        sketch.halve();
        assert!((0..64).all(|n| sketch.count(key(n)) == before[n as usize] / 2));
    }

    /// At the sample's size, and not before, everything is halved, and about half the increments remain.
    #[test]
    fn the_sample_ends() {
        let mut sketch = Sketch::new(1024).unwrap();
        (0..999u32).for_each(|number| sketch.increment(number.wrapping_mul(0x85eb_ca6b), 1000));
        assert_eq!(sketch.increments, 999);
        sketch.increment(7, 1000);
        assert!(sketch.increments < 200 && sketch.count(7) <= 1, "{}", sketch.increments);
    }
}
