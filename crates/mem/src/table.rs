//! Buckets: the 64-octet lines that an index is made of, at main and in every reader's copy.
//!
//! ```text
//! tag u16[10] | slot u32[10] | mask u16 | spare u16        one cache line, ten ways
//! ```
//!
//! A tag word is 14 bits of hash above two low bits that the owner may use, main and every reader for
//! itself: they are not copied. 0 means an empty way. This module gives no meaning to tags or masks:
//! placement is the engine's. A bucket is only ever touched by
//! one thread at a time (its reader, or the lock's holder), so cells suffice.

use std::cell::Cell;

use crate::region::Zeroed;

/// Ways of a bucket.
pub const WAYS: usize = 10;

/// Low bits of a tag word that are not part of the tag.
pub const TAG_BITS_LOW: u32 = 2;

const LOW_BITS: u16 = (1 << TAG_BITS_LOW) - 1;

/// One line of the index.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Bucket {
    tags: [Cell<u16>; WAYS],
    slots: [Cell<u32>; WAYS],
    mask: Cell<u16>,
    spare: Cell<u16>,
}

const _: () = assert!(size_of::<Bucket>() == 64, "a bucket is one cache line");

// SAFETY: integers in cells; zero is an empty bucket and there is nothing to drop.
unsafe impl Zeroed for Bucket {}

impl Bucket {
    /// The tag word of a way, 0 if it is empty.
    #[inline(always)]
    pub fn tag(&self, way: usize) -> u16 {
        self.tags[way].get()
    }

    /// The bucket's mask, as its owner set it.
    #[inline(always)]
    pub fn mask(&self) -> u16 {
        self.mask.get()
    }

    #[inline(always)]
    pub(crate) fn slot(&self, way: usize) -> u32 {
        self.slots[way].get()
    }

    /// A bit for each way whose tag, low bits apart, equals that of `tag_word`.
    #[inline(always)]
    pub fn matches(&self, tag_word: u16) -> u32 {
        let mut found = 0;
        for (way, tag) in self.tags.iter().enumerate() {
            let same = (tag.get() ^ tag_word) >> TAG_BITS_LOW == 0;
            found |= u32::from(same) << way;
        }
        found
    }

    /// The first empty way.
    #[inline]
    pub fn vacant(&self) -> Option<usize> {
        self.tags.iter().position(|tag| tag.get() == 0)
    }

    /// True for each way that leads to a slot.
    pub fn is_full(&self) -> bool {
        self.vacant().is_none()
    }

    #[inline(always)]
    pub(crate) fn set_way(&self, way: usize, tag_word: u16, slot: u32) {
        self.tags[way].set(tag_word);
        self.slots[way].set(slot);
    }

    #[inline(always)]
    pub(crate) fn set_mask(&self, mask: u16) {
        self.mask.set(mask);
    }

    /// As [`Bucket::set_way`], in a copy: the low bits begin as zero.
    #[inline(always)]
    pub(crate) fn copy_way(&self, way: usize, tag_word: u16, slot: u32) {
        self.set_way(way, tag_word & !LOW_BITS, slot);
    }

    /// Sets the low bits of an occupied way; false if they were so before.
    #[inline(always)]
    pub(crate) fn mark(&self, way: usize, bits: u16) -> bool {
        let old = self.tags[way].get();
        let new = old & !LOW_BITS | bits & LOW_BITS;
        if old == new {
            return false;
        }
        self.tags[way].set(new);
        true
    }

    pub(crate) fn copy_from(&self, other: &Bucket) {
        for way in 0..WAYS {
            self.copy_way(way, other.tag(way), other.slot(way));
        }
        self.mask.set(other.mask.get());
        self.spare.set(other.spare.get());
    }

    /// True when both hold the same ways and mask, low bits of tag words apart.
    pub(crate) fn same(&self, other: &Bucket) -> bool {
        self.mask() == other.mask()
            && (0..WAYS).all(|way| {
                (self.tag(way) ^ other.tag(way)) & !LOW_BITS == 0
                    && (self.tag(way) == 0 || self.slot(way) == other.slot(way))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The low bits of a tag word are each owner's own: a copy begins without them, may set them, and still
    /// counts as the same bucket.
    #[test]
    fn low_bits_are_private() {
        let bucket = || Bucket {
            tags: Default::default(),
            slots: Default::default(),
            mask: Cell::new(0),
            spare: Cell::new(0),
        };
        let (main, copy) = (bucket(), bucket());
        main.set_way(3, 0x5541, 7);
        copy.copy_from(&main);
        assert_eq!((copy.tag(3), main.tag(3)), (0x5540, 0x5541));
        assert!(copy.mark(3, 2) && !copy.mark(3, 2) && copy.mark(3, 3));
        assert_eq!((copy.tag(3), copy.matches(0x5540)), (0x5543, 1 << 3));
        assert!(copy.same(&main));
        copy.copy_way(3, 0x5541, 8);
        assert_eq!(copy.tag(3), 0x5540, "another value has not been marked");
        assert!(!copy.same(&main));
    }
}
