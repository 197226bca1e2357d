//! An index that a policy looks after: which names are here, with which value.
//!
//! The calls to the policy come in the engine's order (`larder::policy`): a new name arrives, others leave
//! until there is room, up to two more leave where the policy has a surplus, then it is placed. Values are
//! numbers of versions. Every insert, change and eviction is reported to the caller. A name takes what it is
//! charged; one that would not fit alone is not stored.
//!
//! Bounds: 4 bytes a name of the stream, 16 an entry, and the policy's own. Cost: O(1) an operation.

use larder::policy::{Entries, EntryNumber, Replacement};

use super::stream::{Name, Version};
use crate::trace::random::mix;

/// Entries that may leave beyond the need when a new one comes, as in the engine.
const SURPLUS_MAX: usize = 2;
const PLACE_NONE: EntryNumber = EntryNumber::MAX;

/// What lies at a place.
#[derive(Debug, Clone, Copy)]
struct Entry {
    name: Name,
    version: Version,
    charge: u32,
}

/// The places, as the policy may ask about them. Nothing ends here but by the policy's choice.
struct Places<'a>(&'a [Entry]);

impl Entries for Places<'_> {
    fn is_expired(&self, _: EntryNumber) -> bool {
        false
    }

    fn key(&self, entry: EntryNumber) -> u64 {
        mix(u64::from(self.0[entry as usize].name))
    }
}

/// Names and their versions, of at most `capacity` in sum of charges.
#[derive(Debug)]
pub(crate) struct Table<P> {
    policy: P,
    capacity: u64,
    charged: u64,
    /// Place of each name, [`PLACE_NONE`] where it is not here.
    place_of: Vec<EntryNumber>,
    places: Vec<Entry>,
    vacant: Vec<EntryNumber>,
    /// New names so far.
    arrivals: u64,
}

impl<P: Replacement> Table<P> {
    /// `policy` is new and was built for the most entries that can be charged to `capacity`.
    pub fn new(policy: P, capacity: u64) -> Self {
        let (place_of, places, vacant) = (Vec::new(), Vec::new(), Vec::new());
        Table { policy, capacity, charged: 0, place_of, places, vacant, arrivals: 0 }
    }

    /// New names so far: what the policy's `lag` is counted in.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    fn place(&self, name: Name) -> Option<EntryNumber> {
        self.place_of.get(name as usize).copied().filter(|&place| place != PLACE_NONE)
    }

    /// The version held of a name. The policy learns nothing of it.
    pub fn get(&self, name: Name) -> Option<Version> {
        self.place(name).map(|place| self.places[place as usize].version)
    }

    /// Tells the policy of a read, `lag` arrivals ago, unless the name has left since.
    pub fn hit(&mut self, name: Name, lag: u64) {
        if let Some(place) = self.place(name) {
            self.policy.hit(place, lag);
        }
    }

    /// Stores a version of a name; calls `changed` with every name that is not as it was. A name has the same
    /// charge each time.
    pub fn store(
        &mut self,
        name: Name,
        version: Version,
        charge: u32,
        mut changed: impl FnMut(Name),
    ) {
        if u64::from(charge) > self.capacity {
            return;
        }
        if let Some(place) = self.place(name) {
            self.places[place as usize].version = version;
            self.policy.updated(place);
        } else {
            self.policy.arriving(mix(u64::from(name)));
            while self.charged + u64::from(charge) > self.capacity && self.evict(&mut changed) {}
            for _ in 0..SURPLUS_MAX {
                if self.policy.has_surplus() {
                    self.evict(&mut changed);
                }
            }
            self.settle(Entry { name, version, charge });
        }
        changed(name);
    }

    fn settle(&mut self, entry: Entry) {
        let place = match self.vacant.pop() {
            Some(place) => {
                self.places[place as usize] = entry;
                place
            }
            None => {
                self.places.push(entry);
                self.places.len() as EntryNumber - 1
            }
        };
        let name = entry.name as usize;
        if self.place_of.len() <= name {
            self.place_of.resize(name + 1, PLACE_NONE);
        }
        self.place_of[name] = place;
        self.charged += u64::from(entry.charge);
        self.policy.inserted(place);
        self.arrivals += 1;
    }

    /// Takes a name out, if it is here.
    pub fn remove(&mut self, name: Name, mut changed: impl FnMut(Name)) {
        if let Some(place) = self.place(name) {
            self.policy.removed(place);
            self.vacate(place, &mut changed);
        }
    }

    fn evict(&mut self, changed: &mut impl FnMut(Name)) -> bool {
        let victim = self.policy.evict(None, &Places(&self.places));
        victim.inspect(|&place| self.vacate(place, changed)).is_some()
    }

    fn vacate(&mut self, place: EntryNumber, changed: &mut impl FnMut(Name)) {
        let Entry { name, charge, .. } = self.places[place as usize];
        self.place_of[name as usize] = PLACE_NONE;
        self.charged -= u64::from(charge);
        self.vacant.push(place);
        changed(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Lru;
    use larder::policy::Fifo;

    /// Two places under LRU: a read saves a name, the other one is evicted for the third, and each change is reported.
    #[test]
    fn the_policy_chooses_and_changes_are_reported() {
        let mut table = Table::new(Lru::new(2).unwrap(), 2);
        let mut changes = Vec::new();
        table.store(7, 1, 1, |name| changes.push(name));
        table.store(9, 1, 1, |name| changes.push(name));
        table.hit(7, 0);
        table.store(3, 4, 1, |name| changes.push(name));
        assert_eq!(changes, [7, 9, 9, 3]);
        assert_eq!([table.get(7), table.get(9), table.get(3)], [Some(1), None, Some(4)]);
        changes.clear();
        table.store(7, 2, 1, |name| changes.push(name));
        table.remove(3, |name| changes.push(name));
        table.remove(3, |name| changes.push(name));
        assert_eq!((table.get(7), table.get(3), changes), (Some(2), None, vec![7, 3]));
        assert_eq!(table.arrivals(), 3);
        table.hit(1000, 0);
    }

    /// A table never holds more than its capacity, and places are used again.
    #[test]
    fn the_capacity_is_kept() {
        let mut table = Table::new(Fifo::new(3).unwrap(), 3);
        for name in 0..1000 {
            table.store(name, 0, 1, |_| ());
            assert!(table.places.len() <= 3);
        }
        assert_eq!((0..1000).filter(|&name| table.get(name).is_some()).count(), 3);
    }

    /// A long name takes the room of several, and one that fits nowhere changes nothing.
    #[test]
    fn charges_are_summed() {
        let mut table = Table::new(Fifo::new(10).unwrap(), 10);
        for name in 0..3 {
            table.store(name, 0, 3, |_| ());
        }
        assert_eq!(table.charged, 9);
        table.store(3, 0, 11, |_| panic!("it does not fit"));
        table.store(4, 0, 5, |_| ());
        assert_eq!((table.get(0), table.get(1), table.get(2)), (None, None, Some(0)));
        assert_eq!(table.charged, 8);
    }
}
