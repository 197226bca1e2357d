//! A map of bounded memory from a hash to a value. The entry that was added first makes room for a new one.
//!
//! So what is forgotten depends on the order of changes only, not on reads. A value that changes keeps its place.
//!
//! Bounds: `budget_bytes` for entries, their places, and what values have on the heap; at the moment when the
//! table or the queue grows, half as much again. Cost: O(1) amortized.

use std::collections::{HashMap, VecDeque};

/// What a value has beside itself.
pub(super) trait HeapBytes {
    /// Bytes on the heap.
    fn heap_bytes(&self) -> usize;
}

/// See the module.
pub(super) struct Fifo<V> {
    /// Keys with their values, the oldest first.
    entries: VecDeque<(u64, V)>,
    /// Number of the oldest entry, counted since the beginning.
    first: u64,
    /// Key -> number of its entry.
    numbers: HashMap<u64, u64, foldhash::fast::RandomState>,
    bytes: usize,
    budget_bytes: usize,
}

impl<V: Default + HeapBytes> Fifo<V> {
    /// Bytes of an entry at the worst: a queue that has just grown is half full, and a table that removals made grow
    /// has 32/7 slots for each entry (hashbrown).
    const ENTRY_BYTES: usize = 2 * size_of::<(u64, V)>() + (size_of::<(u64, u64)>() + 1) * 32 / 7;

    pub fn new(budget_bytes: usize) -> Fifo<V> {
        let (entries, numbers) = (VecDeque::new(), HashMap::default());
        Fifo { entries, first: 0, numbers, bytes: 0, budget_bytes }
    }

    pub fn get(&self, key: u64) -> Option<&V> {
        let number = self.numbers.get(&key)?;
        self.entries.get((number - self.first) as usize).map(|(_, value)| value)
    }

    /// Changes a value; an unknown key has the default one.
    pub fn change(&mut self, key: u64, change: impl FnOnce(&mut V)) {
        let number = *self.numbers.entry(key).or_insert_with(|| {
            self.entries.push_back((key, V::default()));
            self.bytes += Self::ENTRY_BYTES;
            self.first + self.entries.len() as u64 - 1
        });
        let (_, value) = &mut self.entries[(number - self.first) as usize];
        self.bytes -= value.heap_bytes();
        change(value);
        self.bytes += value.heap_bytes();
        while self.bytes > self.budget_bytes
            && let Some((oldest, value)) = self.entries.pop_front()
        {
            self.first += 1;
            self.numbers.remove(&oldest);
            self.bytes -= Self::ENTRY_BYTES + value.heap_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl HeapBytes for Vec<u8> {
        fn heap_bytes(&self) -> usize {
            self.capacity()
        }
    }

    /// The oldest entries make room, whatever was read or changed since; one larger than all room goes itself.
    #[test]
    fn the_oldest_makes_room() {
        let mut fifo = Fifo::<Vec<u8>>::new(3 * Fifo::<Vec<u8>>::ENTRY_BYTES + 64);
        for key in 1..=3 {
            fifo.change(key, |value| value.push(key as u8));
        }
        fifo.change(1, |value| value.push(9));
        assert_eq!(fifo.get(1), Some(&vec![1, 9]));
        fifo.change(4, |value| value.push(4));
        assert_eq!([1, 2, 3, 4].map(|key| fifo.get(key).is_some()), [false, true, true, true]);
        fifo.change(3, |value| value.resize(64, 0));
        assert_eq!([2, 3, 4].map(|key| fifo.get(key).is_some()), [false, true, true]);
        fifo.change(5, |value| value.resize(1 << 10, 0));
        assert_eq!((fifo.numbers.len(), fifo.entries.len(), fifo.bytes), (0, 0, 0));
    }

    /// What is counted covers the room of the table and of the queue, also after many removals.
    #[test]
    fn the_budget_holds() {
        let budget_bytes = 1 << 20;
        let mut fifo = Fifo::<Vec<u8>>::new(budget_bytes);
        for key in 0..100_000 {
            fifo.change(key, |_| ());
            let slots = fifo.numbers.capacity() * 8 / 7;
            let queue = fifo.entries.capacity() * size_of::<(u64, Vec<u8>)>();
            let room = slots * (size_of::<(u64, u64)>() + 1) + queue;
            assert!(fifo.bytes <= budget_bytes && room <= budget_bytes, "{room} bytes");
        }
        assert!(fifo.entries.len() > 7_000, "{} entries", fifo.entries.len());
    }
}
