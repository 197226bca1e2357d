//! Where an entry is: two possible buckets per key, its home first.
//!
//! ```text
//! tag word   14 bits of hash (never 0) | 0 | second     second: the entry is in its second bucket
//! home   = (hash_high * buckets) >> 32
//! shard  = bits 16 and up of the hash, which neither home nor tag uses
//! second = home + 1 + d(tag)            modulo buckets; invertible from the tag alone
//! mask   bit (tag & 15) of home: an entry displaced from here with such a tag is in its second
//! ```
//!
//! An insert tries home, then the second bucket. If both are full, an entry of either moves to its
//! own other bucket. So a miss reads one line, and a second one only if the mask says so (8 % at 80
//! % load). Placement depends only on the operations, not on the state of memory.

use larder_mem::{
    CopyView, Main, MainView, Memory, Probe, Region, Slot, TAG_BITS_LOW, prefetch_read,
    prefetch_slice,
};

use crate::error::Error;
use crate::hash::KeyHash;

/// Which index readers look keys up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IndexMode {
    /// A replica per reader, which the reader updates from the log when it syncs. No other thread
    /// writes to a cache line that the reader reads.
    #[default]
    Replicated,
    /// One index, which all readers share. It needs no memory and no work per sync, but each change
    /// takes a cache line from the cores that read it. Lookups always show the present.
    Shared,
}

impl From<IndexMode> for larder_mem::IndexMode {
    fn from(mode: IndexMode) -> Self {
        match mode {
            IndexMode::Replicated => larder_mem::IndexMode::Replicated,
            IndexMode::Shared => larder_mem::IndexMode::Shared,
        }
    }
}

/// Low bit of a tag word: the entry is in its second bucket.
pub(crate) const SECOND: u16 = 1;

/// The arithmetic of shards, buckets and tags, for shards with the same number of buckets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement {
    buckets: u32,
    shard_mask: u32,
}

impl Placement {
    /// At least two buckets, so that home and second differ.
    pub fn new(buckets: usize, shards: usize) -> Self {
        assert!(buckets >= 2 && buckets <= u32::MAX as usize);
        assert!(shards.is_power_of_two() && shards <= 1 << 16, "home takes the bits above");
        Placement { buckets: buckets as u32, shard_mask: shards as u32 - 1 }
    }

    /// The shard of a key. (With the top bits, home would need a shift by their number: 2 ns per
    /// lookup in a batch, also with one shard.)
    #[inline(always)]
    pub fn shard(&self, hash: KeyHash) -> usize {
        ((hash.0 as u32 >> 16) & self.shard_mask) as usize
    }

    #[inline(always)]
    pub fn home(&self, hash: KeyHash) -> usize {
        (((hash.0 >> 32) * u64::from(self.buckets)) >> 32) as usize
    }

    /// The tag word of an entry at home.
    #[inline(always)]
    pub fn tag_word(&self, hash: KeyHash) -> u16 {
        let tag = hash.0 as u16 >> TAG_BITS_LOW;
        tag.max(1) << TAG_BITS_LOW
    }

    #[inline(always)]
    fn distance(&self, tag_word: u16) -> u32 {
        let spread = u64::from((u32::from(tag_word) >> TAG_BITS_LOW).wrapping_mul(0x9e37_79b1));
        1 + ((spread * u64::from(self.buckets - 1)) >> 32) as u32
    }

    /// The second bucket of an entry whose home is `home`.
    #[inline(always)]
    pub fn second(&self, home: usize, tag_word: u16) -> usize {
        let bucket = home as u64 + u64::from(self.distance(tag_word));
        let wrap = if bucket >= u64::from(self.buckets) { u64::from(self.buckets) } else { 0 };
        (bucket - wrap) as usize
    }

    /// The home of an entry that is in its second bucket.
    #[inline]
    pub fn home_of_second(&self, second: usize, tag_word: u16) -> usize {
        let distance = self.distance(tag_word) as usize;
        if second >= distance {
            second - distance
        } else {
            second + self.buckets as usize - distance
        }
    }

    /// The home of the entry with this tag word in this bucket.
    #[inline]
    pub fn home_of(&self, bucket: usize, tag_word: u16) -> usize {
        if tag_word & SECOND == 0 { bucket } else { self.home_of_second(bucket, tag_word) }
    }

    /// Identifies a key after its entry was evicted: its home and tag, mixed. Computed from an
    /// entry's place, without the key.
    #[inline]
    pub fn fingerprint(&self, hash: KeyHash) -> u64 {
        fingerprint(self.home(hash), self.tag_word(hash))
    }

    /// The fingerprint of the entry with this tag word in this bucket.
    #[inline]
    pub fn fingerprint_at(&self, bucket: usize, tag_word: u16) -> u64 {
        fingerprint(self.home_of(bucket, tag_word), tag_word)
    }
}

#[inline]
fn fingerprint(home: usize, tag_word: u16) -> u64 {
    let word = (home as u64) << 14 | u64::from(tag_word >> TAG_BITS_LOW);
    let mixed = u128::from(word ^ 0x9e37_79b9_7f4a_7c15) * 0xd1b5_4a32_d192_ed03;
    mixed as u64 ^ (mixed >> 64) as u64
}

/// The number of the mask bit for a tag, 0 to 15.
#[inline(always)]
pub(crate) fn mask_bit(tag_word: u16) -> u32 {
    u32::from(tag_word >> TAG_BITS_LOW) & 15
}

/// A table with buckets that lead to slots: main, or a reader's view.
pub(crate) trait Lines<'a>: Copy {
    fn probe(self, bucket: usize, tag_word: u16) -> Probe;
    fn slot(self, bucket: usize, way: usize) -> Option<Slot<'a>>;
    fn prefetch_bucket(self, bucket: usize);
    fn prefetch_slot(self, bucket: usize, way: usize);
}

impl<'a> Lines<'a> for &'a Main<'_> {
    #[inline(always)]
    fn probe(self, bucket: usize, tag_word: u16) -> Probe {
        self.bucket(bucket).probe(tag_word)
    }

    #[inline(always)]
    fn slot(self, bucket: usize, way: usize) -> Option<Slot<'a>> {
        Main::slot(self, bucket, way)
    }

    #[inline(always)]
    fn prefetch_bucket(self, bucket: usize) {
        prefetch_read(self.bucket(bucket));
    }

    #[inline(always)]
    fn prefetch_slot(self, bucket: usize, way: usize) {
        Main::prefetch_slot(self, bucket, way);
    }
}

/// The methods that a view has itself.
macro_rules! lines_of_view {
    ($view:ident) => {
        impl<'a> Lines<'a> for $view<'a> {
            #[inline(always)]
            fn probe(self, bucket: usize, tag_word: u16) -> Probe {
                $view::probe(self, bucket, tag_word)
            }

            #[inline(always)]
            fn slot(self, bucket: usize, way: usize) -> Option<Slot<'a>> {
                $view::slot(self, bucket, way)
            }

            #[inline(always)]
            fn prefetch_bucket(self, bucket: usize) {
                $view::prefetch_bucket(self, bucket);
            }

            #[inline(always)]
            fn prefetch_slot(self, bucket: usize, way: usize) {
                $view::prefetch_slot(self, bucket, way);
            }
        }
    };
}

lines_of_view!(CopyView);
lines_of_view!(MainView);

/// When a key's home line is cached, prefetches the line that a lookup reads next. True if that is
/// its second bucket.
#[inline(always)]
pub(crate) fn stage<'a, L: Lines<'a>>(lines: L, placement: &Placement, hash: KeyHash) -> bool {
    let (home, tag_word) = (placement.home(hash), placement.tag_word(hash));
    let probe = lines.probe(home, tag_word);
    if probe.candidates != 0 {
        lines.prefetch_slot(home, probe.candidates.trailing_zeros() as usize);
        return false;
    }
    let goes_on = probe.mask >> mask_bit(tag_word) & 1 == 1;
    if goes_on {
        lines.prefetch_bucket(placement.second(home, tag_word));
    }
    goes_on
}

/// With a key's second bucket here, prefetches the slot that it leads to.
#[inline(always)]
pub(crate) fn stage_second<'a, L: Lines<'a>>(lines: L, placement: &Placement, hash: KeyHash) {
    let tag_word = placement.tag_word(hash);
    let second = placement.second(placement.home(hash), tag_word);
    let candidates = lines.probe(second, tag_word).candidates;
    if candidates != 0 {
        lines.prefetch_slot(second, candidates.trailing_zeros() as usize);
    }
}

/// The result of a lookup: the place and the slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'a> {
    pub bucket: usize,
    pub way: usize,
    pub slot: Slot<'a>,
}

/// Looks a key up.
#[inline]
pub(crate) fn find<'a, L: Lines<'a>>(
    lines: L,
    placement: &Placement,
    hash: KeyHash,
    key: &[u8],
) -> Option<Found<'a>> {
    find_here(lines, placement, hash, key)
}

/// As [`find`], where a call would be too much.
#[inline(always)]
pub(crate) fn find_here<'a, L: Lines<'a>>(
    lines: L,
    placement: &Placement,
    hash: KeyHash,
    key: &[u8],
) -> Option<Found<'a>> {
    let tag_word = placement.tag_word(hash);
    let home = placement.home(hash);
    let probe = lines.probe(home, tag_word);
    let found = find_in(lines, home, probe.candidates, key);
    if found.is_some() || probe.mask >> mask_bit(tag_word) & 1 == 0 {
        return found;
    }
    let second = placement.second(home, tag_word);
    find_in(lines, second, lines.probe(second, tag_word).candidates, key)
}

/// Compares two keys. Most have 8 to 16 bytes: two words each, and no call.
#[inline(always)]
fn same(a: &[u8], b: &[u8]) -> bool {
    let word = |chunk: Option<&[u8; 8]>| chunk.map_or(0, |chunk| u64::from_ne_bytes(*chunk));
    match a.len() {
        len if len != b.len() => false,
        8..=16 => {
            let first = word(a.first_chunk()) ^ word(b.first_chunk());
            let last = word(a.last_chunk()) ^ word(b.last_chunk());
            first | last == 0
        }
        _ => a == b,
    }
}

#[inline(always)]
fn find_in<'a, L: Lines<'a>>(
    lines: L,
    bucket: usize,
    mut candidates: u32,
    key: &[u8],
) -> Option<Found<'a>> {
    while candidates != 0 {
        let way = candidates.trailing_zeros() as usize;
        candidates &= candidates - 1;
        if let Some(slot) = lines.slot(bucket, way)
            && same(slot.key(), key)
        {
            return Some(Found { bucket, way, slot });
        }
    }
    None
}

/// Counts the displaced entries behind each bit of each bucket's mask: sixteen counts of three bits
/// per bucket. A count that reaches [`Displaced::MANY`] stays there, and so does its mask bit:
/// slower, never wrong. (With 0.08 behind a bit on average, the probability is 1 in 4e12.)
#[derive(Debug)]
pub(crate) struct Displaced {
    counts: Region<Counts>,
}

/// Sixteen counts, little-endian.
type Counts = [u8; 6];

/// Bytes of the counts, per bucket.
pub(crate) const DISPLACED_BYTES: usize = size_of::<Counts>();

impl Displaced {
    /// This number, or more.
    pub const MANY: u64 = 7;

    pub fn new(memory: &Memory, buckets: usize) -> Result<Self, Error> {
        Ok(Displaced { counts: memory.region(buckets).map_err(Error::Memory)? })
    }

    /// Prefetches a bucket's counts.
    #[inline(always)]
    pub fn prefetch(&self, bucket: usize) {
        prefetch_slice(&self.counts, bucket);
    }

    #[inline]
    fn word(&self, bucket: usize) -> u64 {
        let [a, b, c, d, e, f] = self.counts[bucket];
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    #[inline]
    fn set_word(&mut self, bucket: usize, word: u64) {
        let [a, b, c, d, e, f, _, _] = word.to_le_bytes();
        self.counts[bucket] = [a, b, c, d, e, f];
    }

    pub fn count(&self, bucket: usize, bit: u32) -> u64 {
        self.word(bucket) >> (bit * 3) & Self::MANY
    }

    /// Counts one more; returns the mask that the bucket should have.
    pub fn add(&mut self, bucket: usize, bit: u32, mask: u16) -> u16 {
        if self.count(bucket, bit) < Self::MANY {
            self.set_word(bucket, self.word(bucket) + (1 << (bit * 3)));
        }
        mask | 1 << bit
    }

    /// Counts one less; returns the mask that the bucket should have.
    pub fn remove(&mut self, bucket: usize, bit: u32, mask: u16) -> u16 {
        match self.count(bucket, bit) {
            Self::MANY => return mask,
            0 => {}
            _ => self.set_word(bucket, self.word(bucket) - (1 << (bit * 3))),
        }
        if self.count(bucket, bit) == 0 { mask & !(1 << bit) } else { mask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of every length equal themselves, and no key that differs in one byte or in length.
    #[test]
    fn keys_compare() {
        let key: Vec<u8> = (0..40).collect();
        for len in 0..=key.len() {
            let key = &key[..len];
            assert!(same(key, key));
            assert!(len == 0 || !same(key, &key[1..]));
            for byte in 0..len {
                let mut other = key.to_vec();
                other[byte] ^= 0x40;
                assert!(!same(key, &other) && !same(&other, key), "{len} {byte}");
            }
        }
    }

    /// The second bucket is never home, and leads back to it, for every number of buckets and tag.
    #[test]
    fn second_is_invertible() {
        for buckets in [2usize, 3, 10, 1021, 65_536] {
            let placement = Placement::new(buckets, 1);
            for tag in (1..1u16 << 14).step_by(if buckets > 100 { 97 } else { 1 }) {
                let tag_word = tag << TAG_BITS_LOW;
                for home in [0, 1, buckets / 2, buckets - 1] {
                    let second = placement.second(home, tag_word);
                    assert_ne!(second, home);
                    assert!(second < buckets);
                    assert_eq!(placement.home_of_second(second, tag_word), home);
                    assert_eq!(
                        placement.fingerprint_at(second, tag_word | SECOND),
                        placement.fingerprint_at(home, tag_word),
                        "a key is known by the same wherever its entry lay"
                    );
                }
            }
        }
    }
}
