//! Connections by number, each in one of a few lists that are ordered by time.
//!
//! A table of slots: each entry gets an [`Id`] of slot and generation, which also make the token
//! under which a poller watches it. So an event for a connection that was closed finds nothing,
//! even if its slot has another entry.
//!
//! Every entry is in exactly one list, for the event that it waits for. It is appended to the list
//! at the time at which the wait began. All entries of a list wait for the same time, so its first
//! entry is due first. No timers are set or cancelled, and the time that a list's entries may wait
//! can be changed at any moment.
//!
//! ```text
//! free -> insert() -> in a list -> wait_in() another, or the same from now -> remove() -> free, generation + 1
//! ```
//!
//! Invariants
//! 1. A slot is in the free list, or has a value and is in one list of the `LISTS`.
//! 2. Along a list `since_ms` never falls.
//! 3. An `Id` is valid for one use of its slot (for 2^28 uses; then it repeats).
//!
//! Bounds: the number of entries given to `new`; their memory is allocated as they are added. Cost:
//! O(1) per call.

/// Bits of a token that name the slot.
const INDEX_BITS: u32 = 24;

/// Generations of a slot, after which it begins again.
const GENERATIONS: u32 = 1 << 28;

/// Bits of a token for slot and generation; the four bits above identify the table. A token has 56
/// bits; the byte above is for the caller.
pub const ID_BITS: u32 = 52;

/// Tables whose tokens differ.
pub const SPACES: u8 = 16;

/// Entries of a table, at most.
pub const ENTRIES_MAX: usize = 1 << INDEX_BITS;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// Names an entry of a table while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id {
    index: u32,
    generation: u32,
}

impl Id {
    /// Both parts in a word.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The inverse of [`Id::to_bits`].
    pub fn from_bits(bits: u64) -> Id {
        Id { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// Entries in `LISTS` lists.
#[derive(Debug)]
pub struct Table<T, const LISTS: usize> {
    slots: Vec<Slot<T>>,
    entries_max: usize,
    count: usize,
    /// First of the free slots, linked by `next`.
    free: u32,
    /// First and last slot of each list.
    ends: [(u32, u32); LISTS],
    /// The highest bits of the tokens.
    space: u8,
}

#[derive(Debug)]
struct Slot<T> {
    /// `None` when free.
    value: Option<T>,
    generation: u32,
    next: u32,
    previous: u32,
    list: usize,
    since_ms: u64,
}

impl<T, const LISTS: usize> Table<T, LISTS> {
    /// Room for `entries_max` entries (at most [`ENTRIES_MAX`]) with tokens that begin with
    /// `space`, below [`SPACES`].
    pub fn new(space: u8, entries_max: usize) -> Table<T, LISTS> {
        assert!(space < SPACES, "a token has four bits for its table");
        let entries_max = entries_max.min(ENTRIES_MAX);
        let ends = [(NONE, NONE); LISTS];
        Table { slots: Vec::new(), entries_max, count: 0, free: NONE, ends, space }
    }

    /// Raises the limit of entries, to at most [`ENTRIES_MAX`]; it never falls.
    pub fn grow(&mut self, entries_max: usize) {
        self.entries_max = self.entries_max.max(entries_max.min(ENTRIES_MAX));
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the table has no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Most entries.
    pub fn entries_max(&self) -> usize {
        self.entries_max
    }

    /// Puts an entry at the end of a list; gives it back where there is no room.
    pub fn insert(&mut self, value: T, list: usize, now_ms: u64) -> Result<Id, T> {
        let index = match self.free {
            NONE if self.slots.len() == self.entries_max => return Err(value),
            NONE => {
                let (next, previous) = (NONE, NONE);
                self.slots.push(Slot {
                    value: Some(value),
                    generation: 0,
                    next,
                    previous,
                    list,
                    since_ms: 0,
                });
                (self.slots.len() - 1) as u32
            }
            index => {
                let slot = &mut self.slots[index as usize];
                self.free = slot.next;
                slot.value = Some(value);
                index
            }
        };
        self.count += 1;
        self.link(index, list, now_ms);
        Ok(Id { index, generation: self.slots[index as usize].generation })
    }

    /// The entry, while it exists.
    pub fn get(&self, id: Id) -> Option<&T> {
        self.slot(id)?.value.as_ref()
    }

    /// The entry, while it exists.
    pub fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        self.slot(id)?;
        self.slots[id.index as usize].value.as_mut()
    }

    /// Takes an entry out.
    pub fn remove(&mut self, id: Id) -> Option<T> {
        self.slot(id)?;
        self.unlink(id.index);
        let slot = &mut self.slots[id.index as usize];
        slot.generation = (slot.generation + 1) % GENERATIONS;
        slot.next = std::mem::replace(&mut self.free, id.index);
        self.count -= 1;
        slot.value.take()
    }

    /// The list that an entry is in.
    pub fn list_of(&self, id: Id) -> Option<usize> {
        self.slot(id).map(|slot| slot.list)
    }

    /// Moves an entry to the end of a list, from now on.
    pub fn wait_in(&mut self, id: Id, list: usize, now_ms: u64) {
        if self.slot(id).is_some() {
            self.unlink(id.index);
            self.link(id.index, list, now_ms);
        }
    }

    /// The entry that has been in a list for longest, and since when.
    pub fn oldest(&self, list: usize) -> Option<(Id, u64)> {
        let index = self.ends[list].0;
        let slot = self.slots.get(index as usize)?;
        Some((Id { index, generation: slot.generation }, slot.since_ms))
    }

    /// The next entry that has been in its list for at least the time that `waits_ms` has for that
    /// list.
    pub fn overdue(&self, waits_ms: [u64; LISTS], now_ms: u64) -> Option<(Id, usize)> {
        (0..LISTS).find_map(|list| {
            let (id, since_ms) = self.oldest(list)?;
            (now_ms >= since_ms.saturating_add(waits_ms[list])).then_some((id, list))
        })
    }

    /// Milliseconds until [`Table::overdue`] has an entry; `None` without entries.
    pub fn wait_ms(&self, waits_ms: [u64; LISTS], now_ms: u64) -> Option<u64> {
        let ends_ms = (0..LISTS).filter_map(|list| {
            let (_, since_ms) = self.oldest(list)?;
            Some(since_ms.saturating_add(waits_ms[list]))
        });
        ends_ms.min().map(|end_ms| end_ms.saturating_sub(now_ms))
    }

    /// All entries, in no order. O(slots that were ever used at once).
    pub fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.value.is_some());
        used.map(|(index, slot)| Id { index: index as u32, generation: slot.generation })
    }

    /// The token of an entry for a poller.
    pub fn token(&self, id: Id) -> u64 {
        u64::from(self.space) << ID_BITS
            | u64::from(id.generation) << INDEX_BITS
            | u64::from(id.index)
    }

    /// True for tokens of this table, of present and former entries.
    pub fn owns(&self, token: u64) -> bool {
        token >> ID_BITS == u64::from(self.space)
    }

    /// The entry that a token was made for, if it is still there.
    pub fn id_of(&self, token: u64) -> Option<Id> {
        let index = token as u32 & (ENTRIES_MAX as u32 - 1);
        let generation = (token >> INDEX_BITS) as u32 % GENERATIONS;
        let id = Id { index, generation };
        (self.owns(token) && self.slot(id).is_some()).then_some(id)
    }

    fn slot(&self, id: Id) -> Option<&Slot<T>> {
        let slot = self.slots.get(id.index as usize)?;
        (slot.generation == id.generation && slot.value.is_some()).then_some(slot)
    }

    fn link(&mut self, index: u32, list: usize, now_ms: u64) {
        let last = self.ends[list].1;
        // A clock that goes backwards counts as stopped (invariant 2).
        let least_ms = self.slots.get(last as usize).map_or(0, |slot| slot.since_ms);
        let slot = &mut self.slots[index as usize];
        (slot.list, slot.since_ms) = (list, now_ms.max(least_ms));
        (slot.previous, slot.next) = (last, NONE);
        match self.slots.get_mut(last as usize) {
            Some(before) => before.next = index,
            None => self.ends[list].0 = index,
        }
        self.ends[list].1 = index;
    }

    fn unlink(&mut self, index: u32) {
        let Slot { next, previous, list, .. } = self.slots[index as usize];
        match self.slots.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None => self.ends[list].0 = next,
        }
        match self.slots.get_mut(next as usize) {
            Some(after) => after.previous = previous,
            None => self.ends[list].1 = previous,
        }
    }

    /// Checks the invariants, for tests: panics where one does not hold. O(slots).
    pub fn validate(&self) {
        let mut listed = 0;
        for (list, &(first, last)) in self.ends.iter().enumerate() {
            let (mut index, mut previous, mut least_ms) = (first, NONE, 0);
            while index != NONE {
                let slot = &self.slots[index as usize];
                assert!(slot.value.is_some() && slot.list == list, "invariant 1");
                assert!(slot.since_ms >= least_ms, "invariant 2");
                assert_eq!(slot.previous, previous, "lists lead back");
                listed += 1;
                assert!(listed <= self.count, "lists end");
                (previous, index, least_ms) = (index, slot.next, slot.since_ms);
            }
            assert_eq!(last, previous, "the last is the last");
        }
        assert_eq!(listed, self.count, "invariant 1");
        let (mut index, mut unused) = (self.free, 0);
        while index != NONE {
            assert!(self.slots[index as usize].value.is_none(), "invariant 1");
            unused += 1;
            index = self.slots[index as usize].next;
        }
        assert_eq!(listed + unused, self.slots.len(), "invariant 1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WAITS_MS: [u64; 3] = [10, 200, 3000];

    #[derive(Debug, Clone)]
    enum Step {
        Insert { list: usize },
        Remove { which: usize },
        Wait { which: usize, list: usize },
        Pass { by_ms: u64 },
        Grow { entries_max: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0usize..3).prop_map(|list| Step::Insert { list }),
            2 => any::<usize>().prop_map(|which| Step::Remove { which }),
            3 => (any::<usize>(), 0usize..3).prop_map(|(which, list)| Step::Wait { which, list }),
            2 => (0u64..300).prop_map(|by_ms| Step::Pass { by_ms }),
            1 => (0usize..20).prop_map(|entries_max| Step::Grow { entries_max }),
        ]
    }

    proptest! {
        /// A table does the same as a plain vector: the same entries, found by their ids and tokens
        /// only while they exist, the same one longest in each list, the same waits. Invariant 3.
        #[test]
        fn tables_are_vectors(steps in prop::collection::vec(step(), 1..120)) {
            let mut table: Table<usize, 3> = Table::new(7, 12);
            // Name, id, list, and the time of the append; in the order in which they were appended.
            let mut model: Vec<(usize, Id, usize, u64)> = Vec::new();
            let mut gone = Vec::new();
            let (mut now_ms, mut entries_max) = (5, 12);
            for (name, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert { list } => match table.insert(name, list, now_ms) {
                        Ok(id) => model.push((name, id, list, now_ms)),
                        Err(back) => prop_assert_eq!((back, model.len()), (name, entries_max)),
                    },
                    Step::Remove { which } if !model.is_empty() => {
                        let (name, id, ..) = model.remove(which % model.len());
                        prop_assert_eq!(table.remove(id), Some(name));
                        gone.push(id);
                    }
                    Step::Wait { which, list } if !model.is_empty() => {
                        let (name, id, ..) = model.remove(which % model.len());
                        table.wait_in(id, list, now_ms);
                        model.push((name, id, list, now_ms));
                    }
                    Step::Pass { by_ms } => now_ms += by_ms,
                    Step::Grow { entries_max: wanted } => {
                        table.grow(wanted);
                        entries_max = entries_max.max(wanted);
                    }
                    Step::Remove { .. } | Step::Wait { .. } => {}
                }
                table.validate();
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.ids().count(), model.len());
                for (name, id, list, _) in &model {
                    prop_assert_eq!(table.get(*id), Some(name));
                    prop_assert_eq!(table.list_of(*id), Some(*list));
                    prop_assert_eq!(table.id_of(table.token(*id)), Some(*id));
                }
                for id in &gone {
                    prop_assert!(table.get(*id).is_none() && table.id_of(table.token(*id)).is_none());
                }
                for list in 0..3 {
                    let first = model.iter().find(|entry| entry.2 == list);
                    prop_assert_eq!(table.oldest(list), first.map(|entry| (entry.1, entry.3)));
                }
                let end_ms = model.iter().map(|entry| entry.3 + WAITS_MS[entry.2]).min();
                let wait_ms = end_ms.map(|end_ms| end_ms.saturating_sub(now_ms));
                prop_assert_eq!(table.wait_ms(WAITS_MS, now_ms), wait_ms);
                prop_assert_eq!(table.overdue(WAITS_MS, now_ms).is_some(), wait_ms == Some(0));
            }
        }
    }

    /// Tokens of another table, and of slots that never were, name nothing.
    #[test]
    fn foreign_tokens() {
        let mut table: Table<(), 1> = Table::new(0xe, 4);
        let id = table.insert((), 0, 0).unwrap();
        let token = table.token(id);
        assert_eq!(token, 0xe << ID_BITS);
        assert!(table.owns(token) && table.id_of(token) == Some(id));
        assert!(!table.owns(0) && table.id_of(0).is_none());
        for bit in 0..64 {
            assert_eq!(table.id_of(token ^ 1 << bit), None, "bit {bit}");
        }
    }
}
