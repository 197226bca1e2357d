//! Doubly linked lists of entry numbers, for several policies.
//!
//! `N` lists share one array of links, 8 bytes per entry number. An entry is in one of them or in
//! none, and the caller knows in which. Everything but the walks is O(1). Link words of entries in
//! no list are never read, so a new array needs no initialization.
//!
//! Walks over all entries may be in progress. Each keeps its place through every change: when an
//! entry is removed, its successor takes the place. An entry that moves to a newer end may be
//! returned twice.

use larder_mem::{Memory, Region, prefetch_slice};

use super::EntryNumber;
use super::walks::{WalkId, Walks};
use crate::error::Error;

const NONE: u32 = u32::MAX;
const OLDER: usize = 0;
const NEWER: usize = 1;

/// The older and the newer neighbor.
type Link = [u32; 2];

/// Bytes per entry number.
pub(super) const LINK_BYTES: usize = size_of::<Link>();

#[derive(Debug, Clone, Copy)]
struct List {
    oldest: u32,
    newest: u32,
    len: u64,
}

/// `N` lists of entries, oldest to newest.
#[derive(Debug)]
pub(super) struct Lists<const N: usize> {
    links: Region<Link>,
    lists: [List; N],
    walks: Walks<Walk>,
}

/// The position of a walk in progress.
#[derive(Debug)]
struct Walk {
    entry: u32,
    list: usize,
    /// Steps that it may still take, because hits may keep moving entries ahead of it.
    left: u64,
}

impl<const N: usize> Lists<N> {
    /// For entry numbers below `numbers`.
    pub fn new(memory: &Memory, numbers: usize) -> Result<Self, Error> {
        Ok(Lists {
            links: memory.region(numbers).map_err(Error::Memory)?,
            lists: [List { oldest: NONE, newest: NONE, len: 0 }; N],
            walks: Walks::default(),
        })
    }

    /// Entries in a list.
    #[inline]
    pub fn len(&self, list: usize) -> u64 {
        self.lists[list].len
    }

    /// Entries in all lists.
    #[inline]
    pub fn total(&self) -> u64 {
        self.lists.iter().map(|list| list.len).sum()
    }

    /// A list's oldest entry, other than `except`.
    #[inline]
    pub fn oldest(&self, list: usize, except: Option<EntryNumber>) -> Option<EntryNumber> {
        let mut entry = self.lists[list].oldest;
        if entry != NONE && Some(entry) == except {
            entry = self.links[entry as usize][NEWER];
        }
        (entry != NONE).then_some(entry)
    }

    /// A list's two oldest entries.
    #[inline]
    pub fn oldest_two(&self, list: usize) -> [Option<EntryNumber>; 2] {
        let first = self.oldest(list, None);
        [first, first.and_then(|_| self.oldest(list, first))]
    }

    /// A list's newest entry.
    #[cfg(test)]
    pub fn newest(&self, list: usize) -> Option<EntryNumber> {
        let entry = self.lists[list].newest;
        (entry != NONE).then_some(entry)
    }

    /// Adds an entry that is in no list, as the newest.
    #[inline]
    pub fn push(&mut self, list: usize, entry: EntryNumber) {
        let List { oldest, newest, len } = &mut self.lists[list];
        let older = std::mem::replace(newest, entry);
        self.links[entry as usize] = [older, NONE];
        match older {
            NONE => *oldest = entry,
            older => self.links[older as usize][NEWER] = entry,
        }
        *len += 1;
    }

    /// Removes an entry from its list.
    #[inline]
    pub fn remove(&mut self, list: usize, entry: EntryNumber) {
        let [older, newer] = self.links[entry as usize];
        let List { oldest, newest, len } = &mut self.lists[list];
        match older {
            NONE => *oldest = newer,
            older => self.links[older as usize][NEWER] = newer,
        }
        match newer {
            NONE => *newest = older,
            newer => self.links[newer as usize][OLDER] = older,
        }
        *len -= 1;
        for walk in self.walks.each().filter(|walk| walk.entry == entry) {
            walk.entry = newer;
        }
        // The oldest are evicted in turn: prefetch the link after the next one.
        if older == NONE && newer != NONE {
            prefetch_slice(&self.links, self.links[newer as usize][NEWER] as usize);
        }
    }

    /// Moves an entry to the newest end of a list, the same or another.
    #[inline]
    pub fn renew(&mut self, from: usize, to: usize, entry: EntryNumber) {
        if from == to && self.lists[to].newest == entry {
            return;
        }
        self.remove(from, entry);
        self.push(to, entry);
    }

    /// Gives an entry another number at its old place.
    #[inline]
    pub fn rename(&mut self, list: usize, from: EntryNumber, to: EntryNumber) {
        let link = self.links[from as usize];
        self.links[to as usize] = link;
        let List { oldest, newest, .. } = &mut self.lists[list];
        let [older, newer] = link;
        match older {
            NONE => *oldest = to,
            older => self.links[older as usize][NEWER] = to,
        }
        match newer {
            NONE => *newest = to,
            newer => self.links[newer as usize][OLDER] = to,
        }
        for walk in self.walks.each().filter(|walk| walk.entry == from) {
            walk.entry = to;
        }
    }

    /// Prefetches the links of an entry.
    #[inline]
    pub fn prefetch(&self, entry: EntryNumber) {
        prefetch_slice(&self.links, entry as usize);
    }

    /// Begins a walk at the first list's oldest entry.
    pub fn walk_start(&mut self) -> WalkId {
        // Twice as many steps as entries: entries that do not move are all returned in half of
        // them.
        let left = 2 * self.total();
        self.walks.start(Walk { entry: self.lists[0].oldest, list: 0, left })
    }

    /// Ends a walk.
    pub fn walk_end(&mut self, walk: WalkId) {
        self.walks.end(walk);
    }

    /// The walk's next entry: list by list, oldest first.
    pub fn walk_next(&mut self, walk: WalkId) -> Option<EntryNumber> {
        let walk = self.walks.place(walk)?;
        while walk.entry == NONE && walk.list + 1 < N {
            walk.list += 1;
            walk.entry = self.lists[walk.list].oldest;
        }
        let entry = walk.entry;
        if entry == NONE || walk.left == 0 {
            return None;
        }
        walk.left -= 1;
        walk.entry = self.links[entry as usize][NEWER];
        Some(entry)
    }

    /// A list's entries, oldest first.
    pub fn iter(&self, list: usize) -> impl Iterator<Item = EntryNumber> + '_ {
        let mut next = self.lists[list].oldest;
        std::iter::from_fn(move || {
            let entry = next;
            (entry != NONE).then(|| {
                next = self.links[entry as usize][NEWER];
                entry
            })
        })
    }

    /// Calls `act` with every entry.
    pub fn each(&self, act: impl FnMut(EntryNumber)) {
        (0..N).flat_map(|list| self.iter(list)).for_each(act)
    }

    /// Walks every list both ways; `Err` states what is wrong.
    pub fn validate(&self) -> Result<(), String> {
        for (number, list) in self.lists.iter().enumerate() {
            let (mut entry, mut before, mut len) = (list.oldest, NONE, 0);
            while entry != NONE {
                len += 1;
                if self.links[entry as usize][OLDER] != before || len > list.len {
                    return Err(format!("list {number}: entry {entry} is linked wrongly"));
                }
                (before, entry) = (entry, self.links[entry as usize][NEWER]);
            }
            if before != list.newest || len != list.len {
                return Err(format!("list {number}: {len} entries, {} counted", list.len));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries keep their order through renames, renewals and removals, and the excepted one is
    /// passed over.
    #[test]
    fn order_is_kept() {
        let mut lists = Lists::<2>::new(&Memory::new(0).unwrap(), 8).unwrap();
        for entry in [3, 1, 4] {
            lists.push(0, entry);
        }
        lists.rename(0, 1, 5);
        assert_eq!(lists.iter(0).collect::<Vec<_>>(), [3, 5, 4]);
        assert_eq!((lists.oldest(0, None), lists.oldest(0, Some(3))), (Some(3), Some(5)));
        lists.renew(0, 0, 3);
        lists.renew(0, 1, 5);
        assert_eq!(lists.iter(0).collect::<Vec<_>>(), [4, 3]);
        assert_eq!((lists.len(0), lists.len(1), lists.total()), (2, 1, 3));
        lists.remove(0, 4);
        lists.validate().unwrap();
        assert_eq!((lists.oldest(0, Some(3)), lists.newest(0)), (None, Some(3)));
        lists.remove(0, 3);
        assert_eq!((lists.oldest(0, None), lists.newest(0)), (None, None));
    }

    /// A walk returns every entry that stays, whatever is inserted, removed and moved meanwhile,
    /// and ends although hits keep moving entries ahead of it.
    #[test]
    fn walks_keep_their_place() {
        let mut lists = Lists::<2>::new(&Memory::new(0).unwrap(), 100).unwrap();
        (0..30).for_each(|entry| lists.push(usize::from(entry >= 10), entry));
        let walk = lists.walk_start();
        let mut met = Vec::new();
        while let Some(entry) = lists.walk_next(walk) {
            met.push(entry);
            match met.len() {
                3 => lists.remove(0, 3),
                4 => lists.rename(0, 5, 50),
                5 => lists.renew(0, 1, 6),
                6 => lists.push(1, 60),
                _ => {}
            }
            if lists.newest(1) != Some(entry) && (10..30).contains(&entry) {
                lists.renew(1, 1, entry);
            }
        }
        for stays in (0..30).filter(|entry| ![3, 5].contains(entry)).chain([50]) {
            assert!(met.contains(&stays), "{stays} was missed: {met:?}");
        }
        assert!(met.len() <= 60);
        lists.validate().unwrap();
    }
}
