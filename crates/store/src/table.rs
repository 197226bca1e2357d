//! Finds the elements of a list by the hashes of their keys.
//!
//! The list stays with its owner, in order of insertion, and grows without a copy of what it has;
//! the table has its indexes, by open addressing. Senders of packets choose the keys, so hashes
//! have a secret seed.
//!
//! Cost: 8 to 16 bytes an element; a look-up reads one slot and one element, seldom more.

/// Slots of a table that is not empty, at least.
const SLOTS_MIN: usize = 1024;

/// A free slot.
const FREE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Table {
    /// At most half of them are used; a power of two.
    slots: Vec<u32>,
}

impl Table {
    /// The index of the element for which `is_it` holds, among those with this hash and others.
    pub fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let found = self.slots[slot(&self.slots, hash, is_it)];
        (found != FREE).then_some(found)
    }

    /// The same; if there is none, `len`, the length of the list, to which the caller then adds it.
    /// `hash_of`: the hash of an element.
    pub fn find_or_add(
        &mut self,
        hash: u64,
        len: usize,
        is_it: impl Fn(u32) -> bool,
        hash_of: impl Fn(u32) -> u64,
    ) -> u32 {
        if (len + 1) * 2 > self.slots.len() {
            self.grow(len, hash_of);
        }
        let at = slot(&self.slots, hash, is_it);
        if self.slots[at] == FREE {
            self.slots[at] = len as u32;
        }
        self.slots[at]
    }

    #[cold]
    fn grow(&mut self, len: usize, hash_of: impl Fn(u32) -> u64) {
        self.slots = vec![FREE; (self.slots.len() * 2).max(SLOTS_MIN)];
        for number in 0..len as u32 {
            let at = slot(&self.slots, hash_of(number), |_| false);
            self.slots[at] = number;
        }
    }
}

/// The place of the element for which `is_it` holds, or the free one for it.
#[inline]
fn slot(slots: &[u32], hash: u64, is_it: impl Fn(u32) -> bool) -> usize {
    let mask = slots.len() - 1;
    let mut at = hash as usize & mask;
    while slots[at] != FREE && !is_it(slots[at]) {
        at = (at + 1) & mask;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::Table;

    /// Each element is found again, under hashes that are equal too, and others are not.
    #[test]
    fn elements_are_found_again() {
        for hash_of in [|key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15), |key| key / 7, |_| 3] {
            let (mut table, mut list) = (Table::default(), Vec::<u64>::new());
            assert_eq!(table.find(hash_of(1), |_| true), None);
            for key in (0..3000).chain(0..3000) {
                let key = key * key % 3001;
                let is_it = |number: u32| list[number as usize] == key;
                let known = table.find(hash_of(key), is_it);
                let hash = |number: u32| hash_of(list[number as usize]);
                let found = table.find_or_add(hash_of(key), list.len(), is_it, hash);
                assert_eq!(known, list.iter().position(|of| *of == key).map(|at| at as u32));
                assert_eq!(found, known.unwrap_or(list.len() as u32));
                if known.is_none() {
                    list.push(key);
                }
            }
            assert_eq!(table.find(hash_of(9999), |number| list[number as usize] == 9999), None);
        }
    }
}
