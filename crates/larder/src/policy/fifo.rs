//! First in, first out: an update does not move an entry, and a read changes nothing.
//!
//! A doubly linked list of entry numbers, oldest to newest, 8 bytes per entry number. Everything
//! but the walks is O(1). Link words of entries that are not in the list are never read, so a new
//! array needs no initialization.
//!
//! Walks over all entries may be in progress. Each keeps its place through every change: when an
//! entry is removed, its successor takes the place.

use larder_mem::{Memory, Region, prefetch_slice};

use super::walks::{WalkId, Walks};
use super::{Entries, EntryNumber, Replacement, unmapped};
use crate::error::Error;

const NONE: u32 = u32::MAX;
const OLDER: usize = 0;
const NEWER: usize = 1;

/// The older and the newer neighbor.
type Link = [u32; 2];

/// First in, first out.
#[derive(Debug)]
pub struct Fifo {
    links: Region<Link>,
    oldest: u32,
    newest: u32,
    len: u64,
    walks: Walks<Walk>,
}

/// The position of a walk in progress.
#[derive(Debug)]
struct Walk {
    entry: u32,
    /// Steps that it may still take, because inserts may keep adding entries ahead of it.
    left: u64,
}

impl Fifo {
    /// For entry numbers below `numbers`.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        Self::new_in(&unmapped()?, numbers)
    }

    pub(super) fn new_in(memory: &Memory, numbers: usize) -> Result<Self, Error> {
        let links = memory.region(numbers).map_err(Error::Memory)?;
        Ok(Fifo { links, oldest: NONE, newest: NONE, len: 0, walks: Walks::default() })
    }

    /// Bytes of the policy.
    pub(super) fn bytes(numbers: usize) -> usize {
        numbers * size_of::<Link>()
    }

    /// The oldest entry, other than `except`.
    #[inline]
    fn oldest(&self, except: Option<EntryNumber>) -> Option<EntryNumber> {
        let mut entry = self.oldest;
        if entry != NONE && Some(entry) == except {
            entry = self.links[entry as usize][NEWER];
        }
        (entry != NONE).then_some(entry)
    }

    /// Makes `newer` follow the older neighbor of a link, and `older` precede the newer one.
    #[inline]
    fn join(&mut self, link: Link, newer: u32, older: u32) {
        match link[OLDER] {
            NONE => self.oldest = newer,
            before => self.links[before as usize][NEWER] = newer,
        }
        match link[NEWER] {
            NONE => self.newest = older,
            after => self.links[after as usize][OLDER] = older,
        }
    }

    /// Begins a walk at the oldest entry.
    pub(super) fn walk_start(&mut self) -> WalkId {
        self.walks.start(Walk { entry: self.oldest, left: 2 * self.len })
    }

    /// Ends a walk.
    pub(super) fn walk_end(&mut self, walk: WalkId) {
        self.walks.end(walk);
    }

    /// The walk's next entry, oldest first.
    pub(super) fn walk_next(&mut self, walk: WalkId) -> Option<EntryNumber> {
        let walk = self.walks.place(walk)?;
        let entry = walk.entry;
        if entry == NONE || walk.left == 0 {
            return None;
        }
        walk.left -= 1;
        walk.entry = self.links[entry as usize][NEWER];
        Some(entry)
    }

    /// The entries, oldest first.
    fn iter(&self) -> impl Iterator<Item = EntryNumber> + '_ {
        std::iter::successors(self.oldest(None), |&entry| {
            let newer = self.links[entry as usize][NEWER];
            (newer != NONE).then_some(newer)
        })
    }

    /// Calls `act` with every entry, oldest first.
    pub(super) fn each(&self, act: impl FnMut(EntryNumber)) {
        self.iter().for_each(act);
    }
}

impl Replacement for Fifo {
    #[inline]
    fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        let older = std::mem::replace(&mut self.newest, entry);
        self.links[entry as usize] = [older, NONE];
        match older {
            NONE => self.oldest = entry,
            older => self.links[older as usize][NEWER] = entry,
        }
        self.len += 1;
    }

    #[inline]
    fn updated(&mut self, _entry: EntryNumber) {}

    #[inline]
    fn hit(&mut self, _entry: EntryNumber, _lag: u64) {}

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        let [older, newer] = self.links[entry as usize];
        self.join([older, newer], newer, older);
        self.len -= 1;
        for walk in self.walks.each().filter(|walk| walk.entry == entry) {
            walk.entry = newer;
        }
        // The oldest are evicted in turn: prefetch the link after the next one.
        if older == NONE && newer != NONE {
            prefetch_slice(&self.links, self.links[newer as usize][NEWER] as usize);
        }
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        let link = self.links[from as usize];
        self.links[to as usize] = link;
        self.join(link, to, to);
        for walk in self.walks.each().filter(|walk| walk.entry == from) {
            walk.entry = to;
        }
    }

    #[inline]
    fn evict(&mut self, except: Option<EntryNumber>, _: &impl Entries) -> Option<EntryNumber> {
        let victim = self.oldest(except)?;
        self.removed(victim);
        Some(victim)
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        let first = self.oldest(None);
        [first, first.and_then(|_| self.oldest(first))]
    }

    #[inline]
    fn prefetch(&self, entry: EntryNumber) {
        prefetch_slice(&self.links, entry as usize);
    }

    /// Walks the list both ways.
    fn validate(&self) -> Result<(), String> {
        let (mut entry, mut before, mut len) = (self.oldest, NONE, 0);
        while entry != NONE {
            len += 1;
            if self.links[entry as usize][OLDER] != before || len > self.len {
                return Err(format!("entry {entry} is linked wrongly"));
            }
            (before, entry) = (entry, self.links[entry as usize][NEWER]);
        }
        if before != self.newest || len != self.len {
            return Err(format!("{len} entries, {} counted", self.len));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(entries: impl Iterator<Item = EntryNumber>) -> Fifo {
        let mut fifo = Fifo::new(100).unwrap();
        entries.for_each(|entry| fifo.inserted(entry));
        fifo
    }

    /// Entries keep their order through renames and removals, and the excepted one is skipped.
    #[test]
    fn order_is_kept() {
        let mut fifo = filled([3, 1, 4].into_iter());
        fifo.moved(1, 5);
        assert_eq!(fifo.iter().collect::<Vec<_>>(), [3, 5, 4]);
        assert_eq!((fifo.oldest(None), fifo.oldest(Some(3))), (Some(3), Some(5)));
        fifo.removed(5);
        fifo.moved(4, 2);
        fifo.validate().unwrap();
        assert_eq!((fifo.upcoming(), fifo.len()), ([Some(3), Some(2)], 2));
        fifo.removed(2);
        assert_eq!((fifo.oldest(Some(3)), fifo.oldest(None)), (None, Some(3)));
        fifo.removed(3);
        assert_eq!((fifo.oldest(None), fifo.len()), (None, 0));
        fifo.validate().unwrap();
    }

    /// A walk returns every entry that stays, with any inserts, removals and moves meanwhile, and
    /// ends although inserts keep adding entries ahead of it.
    #[test]
    fn walks_keep_their_place() {
        let mut fifo = filled(0..30);
        let walk = fifo.walk_start();
        let mut met = Vec::new();
        while let Some(entry) = fifo.walk_next(walk) {
            met.push(entry);
            match met.len() {
                3 => fifo.removed(3),
                4 => fifo.moved(5, 99),
                _ => {}
            }
            // Its number is free again: a new entry has it.
            if (10..99).contains(&entry) {
                fifo.removed(entry);
                fifo.inserted(entry);
            }
        }
        for stays in (0..30).filter(|entry| ![3, 5].contains(entry)).chain([99]) {
            assert!(met.contains(&stays), "{stays} was missed: {met:?}");
        }
        assert_eq!(met.len(), 60);
        fifo.validate().unwrap();
    }
}
