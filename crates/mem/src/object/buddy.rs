//! The arena's allocator: blocks of a power of two of units, split and joined again.
//!
//! An order is a set of free blocks of `2^order` units, as a bitmap with summaries above it, so
//! that the lowest free block is found in a few loads however large the arena is. Taking the lowest
//! one first keeps used memory together, and leaves the far end for large blocks.
//!
//! An allocation need not be a power of two: the unused tail of its block is free again at once.
//! [`Buddy::free`] takes any extent, cut in any way, and joins what was split.
//!
//! Invariants
//! 1. A unit is in one free block, or in none while it is allocated.
//! 2. No two halves of a block are both free: they would be that block.
//!
//! Cost: 2.03 bits per unit; `alloc` and `free` take O(orders) per block.

use super::{CHUNK_UNITS_MAX, ORDERS};

/// Contiguous units of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub unit: u32,
    pub units: u32,
}

impl Extent {
    /// Cuts off the part after the first `units`.
    pub fn split_off(&mut self, units: u32) -> Extent {
        assert!(units <= self.units, "a tail is within its extent");
        let tail = Extent { unit: self.unit + units, units: self.units - units };
        self.units = units;
        tail
    }
}

/// A set of small numbers; a bit of each level tells that a word of the level below is not 0.
#[derive(Debug)]
struct Bits {
    levels: Vec<Box<[u64]>>,
}

impl Bits {
    fn new(len: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = len;
        loop {
            words = words.div_ceil(64).max(1);
            levels.push(vec![0; words].into_boxed_slice());
            if words == 1 {
                return Bits { levels };
            }
        }
    }

    fn contains(&self, mut number: usize) -> bool {
        let bit = number % 64;
        number /= 64;
        self.levels[0][number] >> bit & 1 == 1
    }

    fn insert(&mut self, mut number: usize) {
        for level in &mut self.levels {
            let word = &mut level[number / 64];
            let was_empty = *word == 0;
            *word |= 1 << (number % 64);
            if !was_empty {
                return;
            }
            number /= 64;
        }
    }

    /// True if it was in the set.
    fn remove(&mut self, mut number: usize) -> bool {
        if !self.contains(number) {
            return false;
        }
        for level in &mut self.levels {
            let word = &mut level[number / 64];
            *word &= !(1 << (number % 64));
            if *word != 0 {
                break;
            }
            number /= 64;
        }
        true
    }

    fn first(&self) -> Option<usize> {
        let mut number = 0;
        for level in self.levels.iter().rev() {
            let word = level[number];
            if word == 0 {
                return None;
            }
            number = number * 64 + word.trailing_zeros() as usize;
        }
        Some(number)
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.levels[0].iter().enumerate().flat_map(|(index, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index * 64 + bit)
        })
    }
}

#[derive(Debug)]
pub(crate) struct Buddy {
    orders: [Bits; ORDERS],
    units: u32,
    free_units: u32,
}

impl Buddy {
    /// An allocator with all of `units` free; a multiple of the largest block.
    pub fn new(units: u32) -> Self {
        assert!(units.is_multiple_of(CHUNK_UNITS_MAX), "an arena of whole blocks");
        let mut buddy = Buddy {
            orders: std::array::from_fn(|order| Bits::new(units as usize >> order)),
            units,
            free_units: units,
        };
        for block in 0..units / CHUNK_UNITS_MAX {
            buddy.orders[ORDERS - 1].insert(block as usize);
        }
        buddy
    }

    pub fn free_units(&self) -> u32 {
        self.free_units
    }

    pub fn units(&self) -> u32 {
        self.units
    }

    /// Allocates exactly `units` (at most a chunk) in one piece. If there is no such piece,
    /// allocates the largest there is; `None` if nothing is free.
    pub fn alloc(&mut self, units: u32) -> Option<Extent> {
        let units = units.clamp(1, CHUNK_UNITS_MAX);
        let wanted = units.next_power_of_two().trailing_zeros() as usize;
        let find = |order: usize| self.orders[order].first().map(|block| (order, block));
        let (order, block) =
            (wanted..ORDERS).find_map(find).or_else(|| (0..wanted).rev().find_map(find))?;
        self.orders[order].remove(block);
        self.free_units -= 1 << order;
        let mut extent = Extent { unit: (block << order) as u32, units: 1 << order };
        if extent.units > units {
            let tail = extent.split_off(units);
            self.free(tail);
        }
        Some(extent)
    }

    /// Frees allocated units; an empty extent is allowed.
    pub fn free(&mut self, extent: Extent) {
        let Extent { mut unit, units } = extent;
        let end = unit + units;
        debug_assert!(
            (unit..end).all(|unit| !self.is_free(unit)),
            "invariant 1: freed twice: {extent:?}"
        );
        while unit < end {
            // The largest block that begins here and ends within the extent.
            let order = (unit.trailing_zeros().min((end - unit).ilog2()) as usize).min(ORDERS - 1);
            self.free_block(unit as usize >> order, order);
            unit += 1 << order;
        }
        self.free_units += units;
        assert!(self.free_units <= self.units, "more is free than there is");
    }

    fn free_block(&mut self, mut block: usize, mut order: usize) {
        while order < ORDERS - 1 && self.orders[order].remove(block ^ 1) {
            block >>= 1;
            order += 1;
        }
        self.orders[order].insert(block);
    }

    fn is_free(&self, unit: u32) -> bool {
        (0..ORDERS).any(|order| self.orders[order].contains(unit as usize >> order))
    }

    /// Checks all invariants.
    pub fn validate(&self) -> Result<(), String> {
        let mut is_free = vec![false; self.units as usize];
        for (order, bits) in self.orders.iter().enumerate() {
            for block in bits.iter() {
                if order < ORDERS - 1 && bits.contains(block ^ 1) {
                    return Err(format!("invariant 2: both halves of {block}, order {order}"));
                }
                let units = &mut is_free[block << order..(block + 1) << order];
                if units.contains(&true) {
                    return Err(format!("invariant 1: a unit of {block}, order {order}, twice"));
                }
                units.fill(true);
            }
            for level in 1..bits.levels.len() {
                for (number, &word) in bits.levels[level - 1].iter().enumerate() {
                    if (bits.levels[level][number / 64] >> (number % 64) & 1 == 1) != (word != 0) {
                        return Err(format!("summary {level} of order {order} at {number}"));
                    }
                }
            }
        }
        let free = is_free.iter().filter(|&&is_free| is_free).count();
        if free != self.free_units as usize {
            return Err(format!("{free} units are free, {} are counted", self.free_units));
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Allocations have exactly the requested size and never overlap. When all are freed in another
    /// order, cut differently, the arena is one piece again. Random sizes from a fixed seed.
    #[test]
    fn splits_and_joins() {
        let units = 4 * CHUNK_UNITS_MAX;
        let mut buddy = Buddy::new(units);
        let mut seed = 1u64;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as u32 % below
        };
        let mut held: Vec<Extent> = Vec::new();
        let mut owner = vec![false; units as usize];
        for _ in 0..2000 {
            if random(3) > 0 {
                let wish = 1 + random(CHUNK_UNITS_MAX);
                let free = buddy.free_units();
                let Some(extent) = buddy.alloc(wish) else {
                    assert_eq!(free, 0, "something was free");
                    continue;
                };
                assert!(extent.units <= wish);
                assert_eq!(buddy.free_units(), free - extent.units);
                for unit in extent.unit..extent.unit + extent.units {
                    assert!(!std::mem::replace(&mut owner[unit as usize], true));
                }
                held.push(extent);
            } else if !held.is_empty() {
                let index = random(held.len() as u32) as usize;
                let mut extent = held.swap_remove(index);
                if random(2) == 0 {
                    let tail = extent.split_off(random(extent.units + 1));
                    buddy.free(tail);
                    owner[tail.unit as usize..][..tail.units as usize].fill(false);
                    held.push(extent);
                } else {
                    buddy.free(extent);
                    owner[extent.unit as usize..][..extent.units as usize].fill(false);
                }
            }
        }
        buddy.validate().unwrap();
        for extent in held {
            buddy.free(extent);
        }
        buddy.validate().unwrap();
        assert_eq!(buddy.free_units(), units);
        for chunk in 0..4 {
            let whole = Extent { unit: chunk * CHUNK_UNITS_MAX, units: CHUNK_UNITS_MAX };
            assert_eq!(buddy.alloc(CHUNK_UNITS_MAX), Some(whole));
        }
        assert_eq!(buddy.alloc(1), None);
    }

    /// If no large block is free the largest smaller one is taken: half a chunk, then the largest
    /// remaining ones.
    #[test]
    fn takes_the_largest_there_is() {
        let mut buddy = Buddy::new(CHUNK_UNITS_MAX);
        let first = buddy.alloc(1).unwrap();
        let sizes: Vec<u32> = std::iter::from_fn(|| buddy.alloc(CHUNK_UNITS_MAX))
            .map(|extent| extent.units)
            .collect();
        let halves: Vec<u32> = (0..ORDERS as u32 - 1).rev().map(|order| 1 << order).collect();
        assert_eq!(sizes, halves);
        assert_eq!(first, Extent { unit: 0, units: 1 });
        buddy.validate().unwrap();
    }
}
