//! The places of a stored object's chunks: append-only, read without a lock while it grows.
//!
//! The first entries are in the object itself, since most bodies need no more. The others are in
//! levels, each of which has twice as many as the one before and never moves.
//!
//! *Order.* Its one writer stores an entry (Relaxed), then the count (Release), then publishes
//! bytes in that chunk (Release of the state word). Readers load the count (Acquire) only after
//! they have seen published bytes, so the chunk of each byte that they know of is below the count.

use std::sync::OnceLock;

use super::UNIT_BYTES;
use super::buddy::Extent;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Entries in the object itself.
const INLINE: usize = 2;

/// Entries of the first level.
const LEVEL: usize = 4;

/// More than there are unit numbers.
const LEVELS: usize = 30;

#[derive(Debug)]
pub(crate) struct Directory {
    count: AtomicU32,
    inline: [Entry; INLINE],
    levels: OnceLock<Box<Levels>>,
}

type Levels = [OnceLock<Box<[Entry]>>; LEVELS];

#[derive(Debug)]
struct Entry {
    /// The chunk's first byte in the object.
    start: AtomicU64,
    /// `unit << 32 | units`. Its last change is a trim, which removes what was never published:
    /// readers may see either.
    place: AtomicU64,
    /// Not 0 if some of it was passed to the kernel.
    is_shown: AtomicU32,
}

/// A chunk as readers see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk {
    pub start: u64,
    pub extent: Extent,
}

impl Chunk {
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.extent.units) * UNIT_BYTES as u64
    }

    /// The arena offset of a byte of the object.
    pub fn offset(&self, position: u64) -> u64 {
        u64::from(self.extent.unit) * UNIT_BYTES as u64 + (position - self.start)
    }
}

impl Directory {
    pub fn new() -> Self {
        Directory {
            count: AtomicU32::new(0),
            inline: std::array::from_fn(|_| Entry::new()),
            levels: OnceLock::new(),
        }
    }

    /// Chunks so far.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire) as usize
    }

    /// Called by the filler alone: adds a chunk that begins at `start`, and returns its index.
    pub fn push(&self, start: u64, extent: Extent) -> usize {
        let index = self.count.load(Ordering::Relaxed) as usize;
        let entry = match index.checked_sub(INLINE) {
            None => &self.inline[index],
            Some(index) => {
                let (level, index) = locate(index);
                let levels =
                    self.levels.get_or_init(|| Box::new(std::array::from_fn(|_| OnceLock::new())));
                &levels[level].get_or_init(|| (0..LEVEL << level).map(|_| Entry::new()).collect())
                    [index]
            }
        };
        entry.start.store(start, Ordering::Relaxed);
        entry.set(extent);
        self.count.store(index as u32 + 1, Ordering::Release);
        index
    }

    /// Called by the filler alone: the chunk shrinks to `extent`.
    pub fn trim(&self, index: usize, extent: Extent) {
        self.entry(index).set(extent);
    }

    pub fn chunk(&self, index: usize) -> Chunk {
        let entry = self.entry(index);
        Chunk { start: entry.start.load(Ordering::Relaxed), extent: entry.extent() }
    }

    /// The chunk of a published byte.
    pub fn find(&self, position: u64) -> usize {
        // The first that begins after it.
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.chunk(middle).start <= position { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1).expect("the first chunk begins at 0")
    }

    /// Records that some of it was passed to the kernel.
    pub fn note_shown(&self, index: usize) {
        let is_shown = &self.entry(index).is_shown;
        // A cache line that many lease from is written only once.
        if is_shown.load(Ordering::Relaxed) == 0 {
            is_shown.store(1, Ordering::Relaxed);
        }
    }

    /// The units of its chunks.
    pub fn units(&self) -> u64 {
        (0..self.count()).map(|index| u64::from(self.chunk(index).extent.units)).sum()
    }

    /// All extents, and whether the kernel got some of each: for when the object is dropped.
    pub fn extents(&self) -> Vec<(Extent, bool)> {
        let extent = |index| {
            let entry = self.entry(index);
            (entry.extent(), entry.is_shown.load(Ordering::Relaxed) != 0)
        };
        (0..self.count()).map(extent).collect()
    }

    fn entry(&self, index: usize) -> &Entry {
        let Some(index) = index.checked_sub(INLINE) else { return &self.inline[index] };
        let (level, index) = locate(index);
        let levels = self.levels.get().expect("its index was below the count");
        &levels[level].get().expect("its index was below the count")[index]
    }
}

/// The level of the entry with `index`, and its position there.
fn locate(index: usize) -> (usize, usize) {
    let level = (index / LEVEL + 1).ilog2() as usize;
    (level, index - LEVEL * ((1 << level) - 1))
}

impl Entry {
    fn new() -> Self {
        Entry { start: AtomicU64::new(0), place: AtomicU64::new(0), is_shown: AtomicU32::new(0) }
    }

    fn extent(&self) -> Extent {
        let place = self.place.load(Ordering::Relaxed);
        Extent { unit: (place >> 32) as u32, units: place as u32 }
    }

    fn set(&self, extent: Extent) {
        let place = u64::from(extent.unit) << 32 | u64::from(extent.units);
        self.place.store(place, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A thousand chunks of different sizes: each byte is found in its own, by search and by index.
    #[test]
    fn finds_each_chunk() {
        let directory = Directory::new();
        let mut start = 0;
        let mut starts = Vec::new();
        for index in 0..1000u32 {
            let extent = Extent { unit: index * 600, units: 1 + index % 512 };
            assert_eq!(directory.push(start, extent), index as usize);
            starts.push(start);
            start += u64::from(extent.units) * UNIT_BYTES as u64;
        }
        for (index, &start) in starts.iter().enumerate() {
            let chunk = directory.chunk(index);
            assert_eq!((chunk.start, chunk.extent.unit), (start, index as u32 * 600));
            for position in [start, chunk.end() - 1] {
                assert_eq!(directory.find(position), index);
            }
            assert_eq!(
                chunk.offset(start + 5),
                u64::from(chunk.extent.unit) * UNIT_BYTES as u64 + 5
            );
        }
        directory.note_shown(700);
        let extents = directory.extents();
        assert_eq!(extents.len(), 1000);
        assert!(
            extents.iter().enumerate().all(|(index, &(_, is_shown))| is_shown == (index == 700))
        );
    }

    /// Levels follow one another without a gap.
    #[test]
    fn levels_follow_one_another() {
        let mut expected = (0, 0);
        for index in 0..10_000 {
            assert_eq!(locate(index), expected);
            expected.1 += 1;
            if expected.1 == LEVEL << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }
}
