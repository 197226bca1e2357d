//! Size classes: 8-octet steps to 64, 16 to 128, then a quarter more each time, up to a whole page.
//!
//! A class's *charge* is a page's octets divided by the slots that fit it, so that the charges of a
//! full page add up to the page: accounting by charge leaves no waste uncounted.

/// The smallest slot: a header and a key of up to 8 octets.
pub const CLASS_BYTES_MIN: usize = 16;

/// The sizes that slots come in, for one page size.
#[derive(Debug, Clone)]
pub struct Classes {
    page_bytes: usize,
    /// Octets of a slot, by class, rising.
    sizes: Vec<u32>,
    /// Class by octets wanted, in units of 8, rounded up.
    by_units: Box<[u8]>,
}

impl Classes {
    /// The classes of pages of `page_bytes`, a power of two from 64 to 64 KiB.
    ///
    /// # Panics
    /// When `page_bytes` is anything else: page sizes come from code, not from input.
    pub fn new(page_bytes: usize) -> Self {
        assert!(page_bytes.is_power_of_two() && (64..=65_536).contains(&page_bytes));
        let mut sizes = Vec::new();
        let mut size = CLASS_BYTES_MIN;
        while size <= page_bytes / 2 {
            sizes.push(size as u32);
            size = match size {
                0..64 => size + 8,
                64..128 => size + 16,
                _ => (size + size / 4).next_multiple_of(8),
            };
        }
        // Between half a page and a page one slot fits whatever its size: one class.
        for size in [page_bytes / 2, page_bytes] {
            if sizes.last() != Some(&(size as u32)) {
                sizes.push(size as u32);
            }
        }
        let mut by_units = Vec::with_capacity(page_bytes / 8 + 1);
        let mut class = 0;
        for units in 0..=page_bytes / 8 {
            while (sizes[class] as usize) < units * 8 {
                class += 1;
            }
            by_units.push(class as u8);
        }
        assert!(sizes.len() < 128, "a class number has seven bits");
        Classes { page_bytes, sizes, by_units: by_units.into_boxed_slice() }
    }

    /// How many classes there are.
    pub fn count(&self) -> usize {
        self.sizes.len()
    }

    /// Octets of a page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The smallest class whose slots hold `bytes`, if any does.
    #[inline]
    pub fn of(&self, bytes: usize) -> Option<u8> {
        self.by_units.get(bytes.div_ceil(8)).copied()
    }

    /// Octets of a slot of `class`.
    #[inline]
    pub fn size(&self, class: u8) -> usize {
        self.sizes[class as usize] as usize
    }

    /// Slots of `class` in a page.
    #[inline]
    pub fn slots_per_page(&self, class: u8) -> usize {
        self.page_bytes / self.size(class)
    }

    /// What a slot of `class` costs of its page, rounded up.
    #[inline]
    pub fn charge(&self, class: u8) -> usize {
        self.page_bytes.div_ceil(self.slots_per_page(class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The class found is the smallest that fits, for every length and page size, and the charges of
    /// a page's slots cover the page.
    #[test]
    fn smallest_that_fits() {
        for page_bytes in [64, 1024, 2048, 65_536] {
            let classes = Classes::new(page_bytes);
            for bytes in 0..=page_bytes {
                let class = classes.of(bytes).unwrap();
                assert!(classes.size(class) >= bytes);
                assert!(class == 0 || classes.size(class - 1) < bytes);
            }
            assert_eq!(classes.of(page_bytes + 1), None);
            for class in 0..classes.count() as u8 {
                assert_eq!(classes.size(class) % 8, 0);
                assert!(classes.charge(class) * classes.slots_per_page(class) >= page_bytes);
            }
        }
    }
}
