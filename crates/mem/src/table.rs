//! Buckets: the 64-byte lines of an index, at main and in every reader's replica.
//!
//! ```text
//! tag u16[10] | mask u16 | spare u16 | slot u32[10]        one cache line, ten ways
//! ```
//!
//! A tag word is 14 bits of hash above two low bits that the owner may use, main and every reader
//! for itself: they are not copied. 0 means an empty way. This module gives no meaning to tags or
//! masks: placement is the engine's.
//!
//! A bucket has one *owner* at a time (its reader, or the lock's holder), which alone writes it.
//! The owner reads it plainly ([`Bucket`] is not `Sync`). Readers without a replica read main's
//! through [`MainTable`], which only loads atomically, so every store of main's is atomic: the slot
//! with Release, then the word of four lanes that has its tag. Such a reader may see a way torn
//! between two states; comparing the key in the slot detects that.

use std::cell::Cell;
use std::marker::PhantomData;

#[cfg(loom)]
use crate::config::Fault;
use crate::error::Error;
use crate::region::Memory;
#[cfg(not(loom))]
use crate::region::Region;
#[cfg(not(loom))]
use crate::region::Zeroed;
use crate::sync::{AtomicU32, AtomicU64, CacheLines, Ordering, fence};

/// Ways of a bucket. (Few under the model checker, which explores every access.)
pub const WAYS: usize = if cfg!(loom) { 2 } else { 10 };

/// Low bits of a tag word that are not part of the tag.
pub const TAG_BITS_LOW: u32 = 2;

const LOW_BITS: u16 = (1 << TAG_BITS_LOW) - 1;

/// Words of four lanes that hold the tags, the mask and a spare lane.
const WORDS: usize = (WAYS + 2) / 4;

/// The lane of the mask.
const MASK_LANE: usize = WAYS;

/// One in each lane.
#[cfg(any(loom, miri, not(target_arch = "x86_64")))]
const ONES: u64 = 0x0001_0001_0001_0001;

/// Eight lanes.
#[cfg(all(not(any(loom, miri)), target_arch = "x86_64"))]
type Lanes = core::arch::x86_64::__m128i;

/// The part of each word that is copied: all but the low bits of tags.
const COPIED: [u64; WORDS] = {
    let mut words = [u64::MAX; WORDS];
    let mut way = 0;
    while way < WAYS {
        words[way / 4] &= !((LOW_BITS as u64) << (way % 4 * 16));
        way += 1;
    }
    words
};

/// One line of the index, as its owner accesses it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Bucket {
    words: [AtomicU64; WORDS],
    slots: [AtomicU32; WAYS],
    /// Not `Sync`: only the owner reads plainly.
    owned: PhantomData<Cell<()>>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64, "a bucket is one cache line");

// SAFETY: integers; zero is an empty bucket and there is nothing to drop.
#[cfg(not(loom))]
unsafe impl Zeroed for Bucket {}

/// An array of buckets.
#[cfg(not(loom))]
pub(crate) type Table = Region<Bucket>;
#[cfg(loom)]
pub(crate) type Table = Box<[Bucket]>;

/// Maps `buckets` empty buckets.
pub(crate) fn table(memory: &Memory, buckets: usize) -> Result<Table, Error> {
    #[cfg(not(loom))]
    return memory.region(buckets).map_err(Error::Memory);
    #[cfg(loom)]
    let _ = memory;
    #[cfg(loom)]
    return Ok((0..buckets)
        .map(|_| Bucket {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            slots: std::array::from_fn(|_| AtomicU32::new(0)),
            owned: PhantomData,
        })
        .collect());
}

/// The result of searching a bucket for one tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// A bit for each way with the tag searched for, ignoring low bits.
    pub candidates: u32,
    /// The bucket's mask.
    pub mask: u16,
}

impl Bucket {
    /// The tags, then the mask and the spare lane, read plainly.
    #[cfg(not(loom))]
    #[inline(always)]
    fn lanes(&self) -> &[u16; 4 * WORDS] {
        // SAFETY: the words' bytes are the lanes. No thread writes them while the owner, which
        // `self` not being `Sync` makes us, reads; atomic loads by others do not conflict with
        // plain reads.
        unsafe { &*(&raw const self.words).cast::<[u16; 4 * WORDS]>() }
    }

    #[inline(always)]
    fn lane(&self, lane: usize) -> u16 {
        #[cfg(not(loom))]
        return self.lanes()[in_memory(lane)];
        #[cfg(loom)]
        return (self.words[lane / 4].load(Ordering::Relaxed) >> (lane % 4 * 16)) as u16;
    }

    #[inline(always)]
    fn set_lane(&self, lane: usize, value: u16) {
        let (word, shift) = (&self.words[lane / 4], lane % 4 * 16);
        let rest = word.load(Ordering::Relaxed) & !(0xffff << shift);
        word.store(rest | u64::from(value) << shift, Ordering::Relaxed);
    }

    /// The tag word of a way, 0 if it is empty.
    #[inline(always)]
    pub fn tag(&self, way: usize) -> u16 {
        debug_assert!(way < WAYS);
        self.lane(way)
    }

    /// The bucket's mask, as its owner set it.
    #[inline(always)]
    pub fn mask(&self) -> u16 {
        self.lane(MASK_LANE)
    }

    #[inline(always)]
    pub(crate) fn slot(&self, way: usize) -> u32 {
        self.slots[way].load(Ordering::Relaxed)
    }

    /// A bit for each way whose tag equals that of `tag_word`, ignoring low bits.
    #[cfg(all(not(any(loom, miri)), target_arch = "x86_64"))]
    #[inline(always)]
    pub fn matches(&self, tag_word: u16) -> u32 {
        use core::arch::x86_64::{_mm_loadl_epi64, _mm_loadu_si128};
        const { assert!(WORDS == 3, "eight lanes and four") };
        let words = self.words.as_ptr();
        // SAFETY: SSE2 is part of every x86_64. The loads are of the three words, plain as in `lanes`.
        unsafe {
            same_lanes(
                _mm_loadu_si128(words.cast()),
                _mm_loadl_epi64(words.add(2).cast()),
                tag_word,
            )
        }
    }

    /// A bit for each way whose tag equals that of `tag_word`, ignoring low bits.
    #[cfg(all(not(loom), target_endian = "little", any(miri, not(target_arch = "x86_64"))))]
    #[inline(always)]
    pub fn matches(&self, tag_word: u16) -> u32 {
        let mut found = 0;
        for (way, tag) in self.lanes()[..WAYS].iter().enumerate() {
            let same = (tag ^ tag_word) >> TAG_BITS_LOW == 0;
            found |= u32::from(same) << way;
        }
        found
    }

    /// A bit for each way whose tag equals that of `tag_word`, ignoring low bits.
    #[cfg(any(loom, target_endian = "big"))]
    pub fn matches(&self, tag_word: u16) -> u32 {
        self.probe_shared(tag_word).candidates
    }

    /// The candidates and the mask.
    #[inline(always)]
    pub fn probe(&self, tag_word: u16) -> Probe {
        Probe { candidates: self.matches(tag_word), mask: self.mask() }
    }

    /// As [`Bucket::probe`], by three atomic loads.
    #[cfg(all(not(any(loom, miri)), target_arch = "x86_64"))]
    #[inline(always)]
    fn probe_shared(&self, tag_word: u16) -> Probe {
        use core::arch::x86_64::{_mm_cvtsi64_si128, _mm_unpacklo_epi64};
        let [first, next, last] = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        // SAFETY: SSE2 is part of every x86_64, and nothing here touches memory.
        let candidates = unsafe {
            let word = |word: u64| _mm_cvtsi64_si128(word as i64);
            same_lanes(_mm_unpacklo_epi64(word(first), word(next)), word(last), tag_word)
        };
        Probe { candidates, mask: (last >> (MASK_LANE % 4 * 16)) as u16 }
    }

    /// As [`Bucket::probe`], by atomic loads: three, and a comparison of four lanes at a time.
    #[cfg(any(loom, miri, not(target_arch = "x86_64")))]
    #[inline(always)]
    fn probe_shared(&self, tag_word: u16) -> Probe {
        const TAGS: u64 = (u16::MAX >> TAG_BITS_LOW) as u64 * ONES;
        // The lanes' top bits, which are free after tags are shifted down.
        const TOPS: u64 = 0x8000 * ONES;
        let wanted = u64::from(tag_word >> TAG_BITS_LOW) * ONES;
        let (mut candidates, mut last) = (0, 0);
        for (number, word) in self.words.iter().enumerate() {
            last = word.load(Ordering::Relaxed);
            let differs = (last >> TAG_BITS_LOW & TAGS) ^ wanted;
            // A lane that differs carries into its top bit, and none carries beyond.
            let same = (!(differs + (TOPS - ONES)) & TOPS) >> 15;
            // Gathers the four lanes' bits: no two products overlap.
            let side_by_side = same.wrapping_mul(0x0001_0002_0004_0008) >> 48 & 15;
            candidates |= (side_by_side as u32) << (4 * number);
        }
        const { assert!(MASK_LANE / 4 == WORDS - 1, "the mask is in the last word") };
        let mask = (last >> (MASK_LANE % 4 * 16)) as u16;
        Probe { candidates: candidates & ((1 << WAYS) - 1), mask }
    }

    /// The first empty way.
    #[inline]
    pub fn vacant(&self) -> Option<usize> {
        // Without a branch per way, which would be unpredictable.
        let empty = self.matches(0);
        (empty != 0).then_some(empty.trailing_zeros() as usize)
    }

    /// True if every way leads to a slot.
    pub fn is_full(&self) -> bool {
        self.vacant().is_none()
    }

    /// Sets a lane by a store of its own two bytes.
    ///
    /// # Safety
    /// The bucket is part of a private replica: only the owner accesses it.
    #[inline(always)]
    unsafe fn set_lane_private(&self, lane: usize, value: u16) {
        #[cfg(not(loom))]
        // SAFETY: the words' bytes are the lanes, in cells; by this function's contract no other
        // thread reads or writes them.
        unsafe {
            self.words.as_ptr().cast::<u16>().cast_mut().add(in_memory(lane)).write(value);
        }
        #[cfg(loom)]
        self.set_lane(lane, value);
    }

    /// Applies a log record to a private replica's bucket: the mask, and a way unless it is none,
    /// with the low bits of its tag zero. (With main's atomic stores a record took 17.1 ns instead
    /// of 14.8.)
    ///
    /// # Safety
    /// As [`Bucket::set_lane_private`]'s.
    #[inline(always)]
    pub(crate) unsafe fn apply(&self, mask: u16, way: Option<usize>, tag_word: u16, slot: u32) {
        // SAFETY: this function's contract is the same.
        unsafe {
            self.set_lane_private(MASK_LANE, mask);
            if let Some(way) = way {
                self.slots[way].store(slot, Ordering::Relaxed);
                self.set_lane_private(way, tag_word & !LOW_BITS);
            }
        }
    }

    /// The slot first, with `order`: a reader that finds the new tag with the old slot finds
    /// another key there, or none.
    #[inline(always)]
    pub(crate) fn set_way(&self, way: usize, tag_word: u16, slot: u32, order: Ordering) {
        self.slots[way].store(slot, order);
        self.set_lane(way, tag_word);
    }

    #[inline(always)]
    pub(crate) fn set_mask(&self, mask: u16) {
        self.set_lane(MASK_LANE, mask);
    }

    /// Sets the low bits of an occupied way in a private replica; false if they already were, or
    /// the way is empty.
    ///
    /// # Safety
    /// As [`Bucket::set_lane_private`]'s.
    #[inline(always)]
    pub(crate) unsafe fn mark(&self, way: usize, bits: u16) -> bool {
        let old = self.tag(way);
        let new = old & !LOW_BITS | bits & LOW_BITS;
        if old == 0 || old == new {
            return false;
        }
        // SAFETY: this function's contract is the same.
        unsafe { self.set_lane_private(way, new) };
        true
    }

    /// Copies main's bucket, without the low bits of tags, which begin as zero.
    pub(crate) fn copy_from(&self, other: &Bucket) {
        for ((mine, other), copied) in self.words.iter().zip(&other.words).zip(COPIED) {
            mine.store(other.load(Ordering::Relaxed) & copied, Ordering::Relaxed);
        }
        for (mine, other) in self.slots.iter().zip(&other.slots) {
            mine.store(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// True if both have the same ways and mask, ignoring low bits of tag words.
    pub(crate) fn same(&self, other: &Bucket) -> bool {
        self.mask() == other.mask()
            && (0..WAYS).all(|way| {
                (self.tag(way) ^ other.tag(way)) & !LOW_BITS == 0
                    && (self.tag(way) == 0 || self.slot(way) == other.slot(way))
            })
    }
}

/// A bit for each way whose lane equals `tag_word`, ignoring low bits: of eight lanes and four
/// more.
///
/// # Safety
/// The processor has SSE2, as every x86_64 does.
#[cfg(all(not(any(loom, miri)), target_arch = "x86_64"))]
#[inline(always)]
unsafe fn same_lanes(first: Lanes, rest: Lanes, tag_word: u16) -> u32 {
    use core::arch::x86_64::{
        _mm_and_si128, _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16,
    };
    // SAFETY: this function's contract; nothing here touches memory.
    unsafe {
        let tag = _mm_set1_epi16(!LOW_BITS as i16);
        let wanted = _mm_set1_epi16((tag_word & !LOW_BITS) as i16);
        let same = |lanes| _mm_cmpeq_epi16(_mm_and_si128(lanes, tag), wanted);
        _mm_movemask_epi8(_mm_packs_epi16(same(first), same(rest))) as u32 & ((1 << WAYS) - 1)
    }
}

/// The index of a lane in the words' bytes.
#[cfg(not(loom))]
#[inline(always)]
fn in_memory(lane: usize) -> usize {
    if cfg!(target_endian = "little") { lane } else { lane ^ 3 }
}

/// Main's buckets: main owns them under the lock, and readers without a replica read them at any
/// time.
#[derive(Debug)]
pub(crate) struct MainTable {
    buckets: Table,
    /// Twice the number of entries that have moved to another way; odd while one moves.
    moves: CacheLines<AtomicU64>,
    #[cfg(loom)]
    fault: Fault,
}

// SAFETY: every store to a bucket is atomic, and so is every load without the lock (`probe`,
// `slot`); plain reads go through `owned`, whose contract is the lock.
unsafe impl Sync for MainTable {}

impl MainTable {
    pub fn new(memory: &Memory, config: &crate::config::Config) -> Result<Self, Error> {
        Ok(MainTable {
            buckets: table(memory, config.buckets)?,
            moves: CacheLines(AtomicU64::new(0)),
            #[cfg(loom)]
            fault: config.fault,
        })
    }

    /// The buckets as main has them.
    ///
    /// # Safety
    /// The caller holds the shard's lock as long as it uses the result.
    #[inline(always)]
    pub unsafe fn owned(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The order of main's stores of slots. Pairs with the Acquire in [`MainTable::slot`].
    #[inline(always)]
    pub fn store_order(&self) -> Ordering {
        #[cfg(loom)]
        if self.fault == Fault::SlotWordRelaxed {
            return Ordering::Relaxed;
        }
        Ordering::Release
    }

    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Runs `step`, which moves an entry from one way to another, under the lock. A reader that
    /// sees any store of it sees the odd number too: the fence is before all of them.
    #[inline]
    pub fn moving(&self, step: impl FnOnce()) {
        let before = self.moves.0.load(Ordering::Relaxed);
        #[cfg(loom)]
        if self.fault == Fault::MoveUncounted {
            return step();
        }
        self.moves.0.store(before + 1, Ordering::Relaxed);
        #[cfg(loom)]
        let is_fenced = self.fault != Fault::MoveUnfenced;
        #[cfg(not(loom))]
        let is_fenced = true;
        if is_fenced {
            fence(Ordering::Release);
        }
        step();
        self.moves.0.store(before + 2, Ordering::Release);
    }

    /// The count of moves, for a search that begins.
    #[inline(always)]
    pub fn moves(&self) -> u64 {
        self.moves.0.load(Ordering::Acquire)
    }

    /// True if no entry moved during a search that began at this count: what it did not find was
    /// not there.
    #[inline(always)]
    pub fn is_unmoved(&self, before: u64) -> bool {
        fence(Ordering::Acquire);
        before.is_multiple_of(2) && self.moves.0.load(Ordering::Relaxed) == before
    }

    /// Searches without the lock.
    #[inline(always)]
    pub fn probe(&self, bucket: usize, tag_word: u16) -> Probe {
        self.buckets[bucket].probe_shared(tag_word)
    }

    /// The slot that a way led to at some moment since the caller's last sync, 0 for none. Pairs
    /// with main's Release: the slot is filled.
    #[inline(always)]
    pub fn slot(&self, bucket: usize, way: usize) -> u32 {
        self.buckets[bucket].slots[way].load(Ordering::Acquire)
    }

    /// Prefetches a bucket's line.
    #[inline(always)]
    pub fn prefetch(&self, bucket: usize) {
        crate::prefetch_slice(&self.buckets, bucket);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The low bits of a tag word belong to each owner: a replica begins without them, may set
    /// them, and still counts as the same bucket; its mask is copied whole.
    #[test]
    fn low_bits_are_private() {
        let buckets = table(&Memory::new(0).unwrap(), 2).unwrap();
        let (main, copy) = (&buckets[0], &buckets[1]);
        // SAFETY: no other thread accesses either.
        let mark = |way, bits| unsafe { copy.mark(way, bits) };
        main.set_way(3, 0x5541, 7, Ordering::Relaxed);
        main.set_mask(0xffff);
        copy.copy_from(main);
        assert_eq!((copy.tag(3), main.tag(3), copy.mask()), (0x5540, 0x5541, 0xffff));
        assert!(mark(3, 2) && !mark(3, 2) && mark(3, 3));
        assert!(!mark(4, 1), "an empty way stays empty");
        assert_eq!((copy.tag(3), copy.tag(4), copy.matches(0x5540)), (0x5543, 0, 1 << 3));
        assert!(copy.same(main));
        // SAFETY: as above.
        unsafe { copy.apply(0xffff, Some(3), 0x5541, 8) };
        assert_eq!(copy.tag(3), 0x5540, "another value has not been marked");
        assert!(!copy.same(main));
    }

    /// The owner's search and the atomic one agree with a simple comparison, for tags that differ
    /// in one bit, in low bits only, or not at all, in every way.
    #[test]
    fn looks_agree() {
        let buckets = table(&Memory::new(0).unwrap(), 1).unwrap();
        let bucket = &buckets[0];
        let mut state = 1u64;
        for round in 0..20_000u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (way, bits) = ((state >> 33) as usize % WAYS, (state >> 40) as u16);
            let tag = match bits % 4 {
                0 => 0,
                1 => 0xfff4 | bits & 3,
                2 => 1 << (bits % 16),
                _ => bits,
            };
            bucket.set_way(way, tag, round, Ordering::Relaxed);
            bucket.set_mask(bits.rotate_left(5));
            assert_eq!((bucket.tag(way), bucket.slot(way)), (tag, round));
            for wanted in [tag, tag ^ 1, tag ^ 4, 4, 0xfff4, bits] {
                let obvious = (0..WAYS)
                    .filter(|&way| bucket.tag(way) >> TAG_BITS_LOW == wanted >> TAG_BITS_LOW)
                    .fold(0, |found, way| found | 1 << way);
                let expected = Probe { candidates: obvious, mask: bits.rotate_left(5) };
                assert_eq!(
                    (bucket.probe(wanted), bucket.probe_shared(wanted)),
                    (expected, expected)
                );
            }
        }
    }
}
