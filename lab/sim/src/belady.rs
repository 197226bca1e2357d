//! MIN: the most hits that any cache of a size can have, with the future known.
//!
//! Belady, *A study of replacement algorithms for a virtual-storage computer* (1966), with bypass: a key that
//! is asked for need not be kept. Entries have one size and no end. Between two requests for a key the cache
//! either holds it all the time, which gives a hit, or need not hold it at all; so the question is which of
//! these intervals to keep, with at most `capacity` of them open at once. Keeping always those that end first
//! is best: an interval opens at every request that is not a key's last, and when there are too many, the one
//! that ends last is given up.
//!
//! Two passes: back through the trace for the ends, then forth. O(n log C) time for n requests. Memory: 4 bytes
//! a request (8 from 2^32 - 1 requests on) and one bit, 4 for each number up to the largest (8), 8 for each
//! entry of the capacity (16).

use std::collections::BinaryHeap;

/// Hits of the best cache of `capacity` entries on these requests. Keys are numbers from 0, dense: memory goes
/// with the largest.
pub fn belady(ids: &[u32], capacity: u64) -> u64 {
    if ids.len() < u32::MAX as usize {
        hits::<u32>(ids, capacity)
    } else {
        hits::<u64>(ids, capacity)
    }
}

/// Where a request is in the trace.
trait Position: Copy + Ord {
    /// No request.
    const NONE: Self;
    fn new(index: usize) -> Self;
    fn index(self) -> usize;
}

impl Position for u32 {
    const NONE: u32 = u32::MAX;
    fn new(index: usize) -> u32 {
        index as u32
    }
    fn index(self) -> usize {
        self as usize
    }
}

impl Position for u64 {
    const NONE: u64 = u64::MAX;
    fn new(index: usize) -> u64 {
        index as u64
    }
    fn index(self) -> usize {
        self as usize
    }
}

/// For each request, the next one for the same key.
fn ends<P: Position>(ids: &[u32]) -> Vec<P> {
    let keys = ids.iter().max().map_or(0, |&id| id as usize + 1);
    let mut later = vec![P::NONE; keys];
    let mut ends = vec![P::NONE; ids.len()];
    for (index, &id) in ids.iter().enumerate().rev() {
        ends[index] = std::mem::replace(&mut later[id as usize], P::new(index));
    }
    ends
}

fn hits<P: Position>(ids: &[u32], capacity: u64) -> u64 {
    let ends = ends::<P>(ids);
    // Whether the interval is kept that ends with a request. At most one ends there.
    let mut kept = Bits(vec![0; ids.len().div_ceil(64)]);
    // The ends of those that are open, and of some that are over, which are smaller than all others.
    let mut open = BinaryHeap::<P>::new();
    let heap_max = 2 * usize::try_from(capacity).unwrap_or(usize::MAX).min(ids.len());
    let (mut open_len, mut hits) = (0, 0);
    for (index, &end) in ends.iter().enumerate() {
        if kept.has(index) {
            open_len -= 1;
            hits += 1;
        }
        if end == P::NONE {
            continue;
        }
        if open_len < capacity {
            open_len += 1;
            // At least half of the open ends are over; they were pushed since the last time.
            if open.len() >= heap_max {
                open.retain(|end| end.index() > index);
            }
            open.push(end);
        } else {
            match open.peek_mut() {
                Some(mut last) if *last > end => {
                    kept.flip(last.index());
                    *last = end;
                }
                _ => continue,
            }
        }
        kept.flip(end.index());
    }
    hits
}

/// A bit a request.
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    fn flip(&mut self, index: usize) {
        self.0[index / 64] ^= 1 << (index % 64);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The most hits, by trying every choice of what to keep after each request.
    fn best(ids: &[u32], cache: &[u32], capacity: usize) -> u64 {
        let Some((&id, rest)) = ids.split_first() else { return 0 };
        let hit = u64::from(cache.contains(&id));
        let mut all: Vec<u32> = cache.iter().copied().filter(|&other| other != id).collect();
        all.push(id);
        let mut most = 0;
        if all.len() <= capacity {
            most = best(rest, &all, capacity);
        } else {
            for gone in 0..all.len() {
                let mut others = all.clone();
                others.remove(gone);
                most = most.max(best(rest, &others, capacity));
            }
        }
        hit + most
    }

    proptest! {
        /// On short streams, the same number of hits as the best of all ways, for both widths of positions.
        #[test]
        fn nothing_is_better(ids in prop::collection::vec(0..6u32, 0..12), capacity in 1..4usize) {
            let most = best(&ids, &[], capacity);
            prop_assert_eq!(belady(&ids, capacity as u64), most);
            prop_assert_eq!(hits::<u64>(&ids, capacity as u64), most);
        }
    }

    /// The ends: nothing to hold, nothing asked for, and room for everything.
    #[test]
    fn ends_of_the_range() {
        assert_eq!(belady(&[], 3), 0);
        assert_eq!(belady(&[1, 1, 1], 0), 0);
        assert_eq!(belady(&[5, 6, 5, 7, 6, 5], u64::MAX), 3);
        let round: Vec<u32> = (0..1000).map(|index| index % 10).collect();
        // Nine of ten could be kept, with one that bypasses them.
        assert_eq!(belady(&round, 9), 9 * 99);
    }
}
