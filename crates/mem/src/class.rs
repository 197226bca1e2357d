//! Size classes: 4-byte steps to 64, 8 to 128, then an eighth more each time, up to a whole page.
//!
//! A class is as large as the number of its slots in a page allows. Two sizes with equally many
//! slots per page are one class, and little of a page is left over. There may be many classes: a
//! class costs nothing before it is used, and then at most a page and a half.
//!
//! A class's *charge* is a page's bytes divided by the slots that fit it, so the charges of a full
//! page add up to the page, and no waste is uncounted. It is counted in [`CHARGE_UNITS`] of a byte;
//! rounded up to whole bytes it would be 0.8 bytes per slot too much. With its first live slot a
//! class is *opened*, and charged the rest of that page and half of one more
//! ([`Classes::opening`]). However its slots are scattered, pages can be emptied until less than a
//! page is idle. The half page covers changes of its number of slots while readers hold retired
//! ones.

/// The smallest slot: a header and a key of up to 8 bytes.
pub const CLASS_BYTES_MIN: usize = 16;

/// Bytes of the largest page.
pub(crate) const PAGE_BYTES_MAX: usize = 64 << 10;

/// Units of charge per byte.
pub const CHARGE_UNITS: u64 = 64;

/// Sizes and offsets of slots are multiples of this.
pub(crate) const SLOT_ALIGN: usize = 4;

/// Sizes up to here are looked up by `SLOT_ALIGN`, longer ones by `STRIDE`.
const SHORT_BYTES: usize = 1 << 10;
/// Less than the difference of two neighboring classes from `SHORT_BYTES` on.
const STRIDE: usize = 64;

/// The sizes of slots, for one page size.
#[derive(Debug, Clone)]
pub struct Classes {
    page_bytes: usize,
    /// Bytes of a slot, by class, increasing.
    sizes: Vec<u32>,
    /// Class by bytes needed, rounded up, in units of `SLOT_ALIGN`.
    short: Box<[u8]>,
    /// The class that holds the bytes needed, rounded down, in units of `STRIDE`: it or the next
    /// holds them.
    long: Box<[u8]>,
}

impl Classes {
    /// The classes of pages of `page_bytes`, a power of two from 64 to 64 KiB.
    ///
    /// # Panics
    /// If `page_bytes` is anything else: page sizes come from code, not from input.
    pub fn new(page_bytes: usize) -> Self {
        assert!(page_bytes.is_power_of_two() && (64..=PAGE_BYTES_MAX).contains(&page_bytes));
        let mut sizes: Vec<u32> = Vec::new();
        let mut size = CLASS_BYTES_MIN;
        while size <= page_bytes {
            let widest = (page_bytes / (page_bytes / size)) & !(SLOT_ALIGN - 1);
            if sizes.last() != Some(&(widest as u32)) {
                sizes.push(widest as u32);
            }
            size = match size {
                0..64 => size + 4,
                64..128 => size + 8,
                _ => size + size / 8,
            };
        }
        if sizes.last() != Some(&(page_bytes as u32)) {
            sizes.push(page_bytes as u32);
        }
        assert!(sizes.len() < 128, "a class number has seven bits");
        let table = |bytes_max: usize, stride: usize| -> Box<[u8]> {
            let smallest = |bytes| sizes.partition_point(|&size| (size as usize) < bytes) as u8;
            (0..=bytes_max / stride).map(|units| smallest(units * stride)).collect()
        };
        let short = table(page_bytes.min(SHORT_BYTES), SLOT_ALIGN);
        let long = table(page_bytes, STRIDE);
        Classes { page_bytes, sizes, short, long }
    }

    /// The number of classes.
    pub fn count(&self) -> usize {
        self.sizes.len()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The smallest class whose slots hold `bytes`, if there is one.
    #[inline]
    pub fn of(&self, bytes: usize) -> Option<u8> {
        if let Some(&class) = self.short.get(bytes.div_ceil(SLOT_ALIGN)) {
            return Some(class);
        }
        let class = *self.long.get(bytes / STRIDE)? as usize;
        let next = class + usize::from((self.sizes[class] as usize) < bytes);
        (next < self.sizes.len()).then_some(next as u8)
    }

    /// Bytes of a slot of `class`.
    #[inline]
    pub fn size(&self, class: u8) -> usize {
        self.sizes[class as usize] as usize
    }

    /// Slots of `class` in a page.
    #[inline]
    pub fn slots_per_page(&self, class: u8) -> usize {
        self.page_bytes / self.size(class)
    }

    /// A slot's share of its page, in [`CHARGE_UNITS`], rounded up.
    #[inline]
    pub fn charge(&self, class: u8) -> u64 {
        (self.page_bytes as u64 * CHARGE_UNITS).div_ceil(self.slots_per_page(class) as u64)
    }

    /// The cost of the first live slot of `class` in addition to its charge: the other slots of a
    /// page, and half of another page's.
    pub fn opening(&self, class: u8) -> u64 {
        opening_slots(self.slots_per_page(class) as u64) * self.charge(class)
    }
}

/// Slots that a class is charged for when it is opened, without its first, given its slots per
/// page.
pub(crate) fn opening_slots(slots_per_page: u64) -> u64 {
    slots_per_page * 3 / 2 - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The class found is the smallest that fits, for every length and page size. The charges of a
    /// page's slots cover the page and little more, and no two classes have equally many slots in
    /// it.
    #[test]
    fn smallest_that_fits() {
        for page_bytes in (6..=16).map(|shift| 1usize << shift) {
            let classes = Classes::new(page_bytes);
            for bytes in 0..=page_bytes {
                let class = classes.of(bytes).unwrap();
                assert!(classes.size(class) >= bytes);
                assert!(class == 0 || classes.size(class - 1) < bytes);
            }
            assert_eq!(classes.of(page_bytes + 1), None);
            assert_eq!(classes.of(usize::MAX), None);
            for class in 0..classes.count() as u8 {
                assert_eq!(classes.size(class) % SLOT_ALIGN, 0);
                let page = classes.charge(class) * classes.slots_per_page(class) as u64;
                let data = page_bytes as u64 * CHARGE_UNITS;
                assert!((data..data + CHARGE_UNITS * 64).contains(&page));
                let opened = classes.charge(class) + classes.opening(class);
                assert!((page..=page * 3 / 2).contains(&opened));
                let fewer = |less| classes.slots_per_page(less) > classes.slots_per_page(class);
                assert!(class == 0 || fewer(class - 1));
            }
        }
    }

    /// The cost of rounding up: at most 3 bytes up to 64, 7 and the rest of the page up to 128,
    /// then an eighth and that.
    #[test]
    fn rounding_is_bounded() {
        let classes = Classes::new(64 << 10);
        for bytes in CLASS_BYTES_MIN..=2 << 10 {
            let spare = classes.size(classes.of(bytes).unwrap()) - bytes;
            let bound = match bytes {
                ..=64 => 3,
                65..=128 => 8,
                _ => bytes / 8 + bytes * bytes / (64 << 10) + SLOT_ALIGN,
            };
            assert!(spare <= bound, "{bytes}: {spare}");
        }
    }
}
