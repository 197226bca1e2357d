//! Buckets: the 64-octet lines that an index is made of, at main and in every reader's copy.
//!
//! ```text
//! tag u16[10] | slot u32[10] | mask u16 | spare u16        one cache line, ten ways
//! ```
//!
//! A tag word is 14 bits of hash above two low bits that the owner may use; 0 means an empty way. This
//! module gives no meaning to tags or masks: placement is the engine's. A bucket is only ever touched by
//! one thread at a time (its reader, or the lock's holder), so cells suffice.

use std::cell::Cell;

use crate::region::Zeroed;

/// Ways of a bucket.
pub const WAYS: usize = 10;

/// Low bits of a tag word that are not part of the tag.
pub const TAG_BITS_LOW: u32 = 2;

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

    pub(crate) fn copy_from(&self, other: &Bucket) {
        for way in 0..WAYS {
            self.set_way(way, other.tag(way), other.slot(way));
        }
        self.mask.set(other.mask.get());
        self.spare.set(other.spare.get());
    }

    /// True when both hold the same ways and mask.
    pub(crate) fn same(&self, other: &Bucket) -> bool {
        self.mask() == other.mask()
            && (0..WAYS).all(|way| {
                self.tag(way) == other.tag(way)
                    && (self.tag(way) == 0 || self.slot(way) == other.slot(way))
            })
    }
}
