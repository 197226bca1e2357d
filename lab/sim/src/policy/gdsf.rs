//! GDSF, GreedyDual-Size with frequency: Cherkasova, "Improving WWW Proxies Performance with
//! Greedy-Dual-Size-Frequency Caching Policy" (HP Labs, 1998), with a cost of 1 for each object.
//!
//! ```text
//! worth      L + freq / size, at the entry's last access; L: the worth of what was evicted last
//! evict      the least worth, of equals the lowest number
//! ```
//!
//! The size of an entry is known only while one is evicted. L does not change in between, so the
//! entries that were accessed get their worth then.

use std::collections::BTreeSet;

use larder::Error;
use larder::policy::{Entries, EntryNumber, Replacement};

/// GDSF. See the source's head for its rules.
#[derive(Debug)]
pub struct Gdsf {
    /// The worth of each entry that has one, by its bits: those of positive numbers have their order.
    order: BTreeSet<(u64, EntryNumber)>,
    entries: Vec<Entry>,
    /// Numbers whose entries were accessed since their worth was computed, each once; some are gone.
    accessed: Vec<EntryNumber>,
    /// `L`.
    least: f64,
    len: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// 0: there is none.
    freq: u32,
    /// The bits of its worth, if it is in the order.
    worth: Option<u64>,
    /// Its number is in `accessed`.
    waits: bool,
}

impl Gdsf {
    /// For entry numbers below `numbers`.
    ///
    /// # Errors
    /// [`Error::Setting`] for 0.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        if numbers == 0 {
            return Err(Error::Setting("a cache has an entry"));
        }
        let (order, entries, accessed) = Default::default();
        Ok(Gdsf { order, entries, accessed, least: 0.0, len: 0 })
    }

    fn accessed(&mut self, entry: EntryNumber) {
        let of = &mut self.entries[entry as usize];
        if let Some(worth) = of.worth.take() {
            self.order.remove(&(worth, entry));
        }
        if !std::mem::replace(&mut of.waits, true) {
            self.accessed.push(entry);
        }
    }
}

impl Replacement for Gdsf {
    fn len(&self) -> u64 {
        self.len
    }

    fn inserted(&mut self, entry: EntryNumber) {
        let at = entry as usize;
        if at >= self.entries.len() {
            self.entries.resize(at + 1, Entry::default());
        }
        self.accessed(entry);
        self.entries[at].freq = 1;
        self.len += 1;
    }

    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }

    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        self.accessed(entry);
        let freq = &mut self.entries[entry as usize].freq;
        *freq = freq.saturating_add(1);
    }

    fn removed(&mut self, entry: EntryNumber) {
        let of = &mut self.entries[entry as usize];
        of.freq = 0;
        if let Some(worth) = of.worth.take() {
            self.order.remove(&(worth, entry));
        }
        self.len -= 1;
    }

    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        let Entry { freq, .. } = self.entries[from as usize];
        self.removed(from);
        self.inserted(to);
        self.entries[to as usize].freq = freq;
    }

    fn evict(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        for entry in self.accessed.drain(..) {
            let of = &mut self.entries[entry as usize];
            of.waits = false;
            if of.freq == 0 {
                continue;
            }
            let worth = self.least + f64::from(of.freq) / entries.size(entry).max(1) as f64;
            of.worth = Some(worth.to_bits());
            self.order.insert((worth.to_bits(), entry));
        }
        let (worth, entry) = *self.order.iter().find(|(_, entry)| Some(*entry) != except)?;
        self.least = f64::from_bits(worth);
        self.removed(entry);
        Some(entry)
    }

    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        let mut least = self.order.iter().map(|(_, entry)| *entry);
        [least.next(), least.next()]
    }

    fn validate(&self) -> Result<(), String> {
        let waits = self.entries.iter().filter(|entry| entry.freq > 0 && entry.waits).count();
        let known = self.order.len() + waits;
        let present = self.entries.iter().filter(|entry| entry.freq > 0).count();
        let agrees = |(worth, entry): &(u64, EntryNumber)| {
            self.entries[*entry as usize].worth == Some(*worth)
        };
        match known as u64 == self.len && present == known && self.order.iter().all(agrees) {
            true => Ok(()),
            false => Err(format!("{present} entries, {known} in order, {} counted", self.len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sizes([u64; 4]);

    impl Entries for Sizes {
        fn is_expired(&self, _: EntryNumber) -> bool {
            false
        }

        fn key(&self, entry: EntryNumber) -> u64 {
            entry.into()
        }

        fn size(&self, entry: EntryNumber) -> u64 {
            self.0[entry as usize]
        }
    }

    /// Worths by hand: 1/10, 2/10, 1/2, and 3/100 leaves first; then L counts for what comes.
    #[test]
    fn the_least_frequency_by_size_leaves() {
        let sizes = Sizes([10, 10, 2, 100]);
        let mut policy = Gdsf::new(4).unwrap();
        (0..4).for_each(|entry| policy.inserted(entry));
        policy.hit(1, 0);
        policy.hit(3, 0);
        policy.hit(3, 0);
        assert_eq!(policy.evict(None, &sizes), Some(3));
        // L is 3/100: 13/100 for entry 3 of size 10, 10/100 for entry 0 from before.
        policy.inserted(3);
        let smaller = Sizes([10, 10, 2, 10]);
        assert_eq!(policy.evict(Some(0), &smaller), Some(3));
        assert_eq!(policy.evict(None, &smaller), Some(0));
        policy.validate().unwrap();
        assert_eq!(policy.evict(None, &smaller), Some(1));
        assert_eq!(policy.evict(Some(2), &smaller), None);
        assert_eq!(policy.len(), 1);
    }
}
