//! Replacement: which entry leaves when another needs its room.
//!
//! A policy sees entries as numbers (`bucket * WAYS + way`) and is told of every event in the order
//! in which main applies operations. It knows neither slots, nor limbo, nor who has synced, so that what it
//! chooses is a function of the operations alone. Whatever else it is told is a hint.
//!
//! [`Fifo`] is a doubly linked list through the ways: 8 octets an entry, every event O(1). An update
//! keeps the entry's place.

use larder_mem::{Region, prefetch_slice};

use crate::error::Error;

/// `bucket * WAYS + way` at main.
pub(crate) type EntryNumber = u32;

const NONE: u32 = u32::MAX;
const OLDER: usize = 0;
const NEWER: usize = 1;

/// What the engine tells a policy, and asks it.
pub(crate) trait Policy {
    /// A new entry was placed.
    fn inserted(&mut self, entry: EntryNumber);
    /// An entry was given a new value at its old place.
    fn updated(&mut self, entry: EntryNumber);
    /// An entry left, whether evicted or removed.
    fn removed(&mut self, entry: EntryNumber);
    /// An entry has another number from now on.
    fn moved(&mut self, from: EntryNumber, to: EntryNumber);
    /// The entry, or one beside it, will soon be named.
    fn prefetch(&self, entry: EntryNumber);
    /// Who should leave next, `except` apart.
    fn victim(&mut self, except: Option<EntryNumber>) -> Option<EntryNumber>;
}

/// The older and the newer neighbour.
type Link = [u32; 2];

/// First in, first out.
#[derive(Debug)]
pub(crate) struct Fifo {
    /// Read only for entries in the list, so that what it holds at first means nothing.
    links: Region<Link>,
    oldest: u32,
    newest: u32,
    len: u64,
    /// Where the one walk in progress goes on; kept right by every event.
    walker: u32,
}

/// Octets that the list takes of the budget, an entry.
pub(crate) const POLICY_BYTES: usize = size_of::<Link>();

impl Fifo {
    pub fn new(entries: usize) -> Result<Self, Error> {
        let links = Region::new(entries).map_err(Error::Memory)?;
        Ok(Fifo { links, oldest: NONE, newest: NONE, len: 0, walker: NONE })
    }

    /// How many entries are in the list.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Begins a walk at the oldest entry.
    pub fn walk_start(&mut self) {
        self.walker = self.oldest;
    }

    /// The walk's next entry, oldest first.
    pub fn walk_next(&mut self) -> Option<EntryNumber> {
        let entry = self.walker;
        if entry == NONE {
            return None;
        }
        self.walker = self.links[entry as usize][NEWER];
        Some(entry)
    }

    /// All entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = EntryNumber> + '_ {
        let mut next = self.oldest;
        std::iter::from_fn(move || {
            let entry = next;
            (entry != NONE).then(|| {
                next = self.links[entry as usize][NEWER];
                entry
            })
        })
    }

    /// Walks the list both ways; `Err` says what is wrong.
    pub fn validate(&self) -> Result<(), String> {
        let (mut entry, mut before, mut len) = (self.oldest, NONE, 0);
        while entry != NONE {
            len += 1;
            if self.links[entry as usize][OLDER] != before || len > self.len {
                return Err(format!("entry {entry} is linked wrongly"));
            }
            (before, entry) = (entry, self.links[entry as usize][NEWER]);
        }
        if before != self.newest || len != self.len {
            return Err(format!("{len} entries listed, {} counted", self.len));
        }
        Ok(())
    }
}

impl Policy for Fifo {
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
    fn removed(&mut self, entry: EntryNumber) {
        let [older, newer] = self.links[entry as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize][NEWER] = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize][OLDER] = older,
        }
        if self.walker == entry {
            self.walker = newer;
        }
        self.len -= 1;
        // The oldest leave one after the other: have the link after the next one at hand.
        if older == NONE && newer != NONE {
            prefetch_slice(&self.links, self.links[newer as usize][NEWER] as usize);
        }
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        let link = self.links[from as usize];
        self.links[to as usize] = link;
        let [older, newer] = link;
        match older {
            NONE => self.oldest = to,
            older => self.links[older as usize][NEWER] = to,
        }
        match newer {
            NONE => self.newest = to,
            newer => self.links[newer as usize][OLDER] = to,
        }
        if self.walker == from {
            self.walker = to;
        }
    }

    #[inline]
    fn prefetch(&self, entry: EntryNumber) {
        prefetch_slice(&self.links, entry as usize);
        // A bucket's links lie on two lines.
        prefetch_slice(&self.links, entry as usize + 8);
    }

    #[inline]
    fn victim(&mut self, except: Option<EntryNumber>) -> Option<EntryNumber> {
        let mut entry = self.oldest;
        if Some(entry) == except {
            entry = self.links[entry as usize][NEWER];
        }
        (entry != NONE).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries leave in the order in which they came, also when moved, and the one excepted is passed over.
    #[test]
    fn first_in_first_out() {
        let mut fifo = Fifo::new(8).unwrap();
        for entry in [3, 1, 4] {
            fifo.inserted(entry);
        }
        fifo.moved(1, 5);
        fifo.updated(3);
        assert_eq!(fifo.iter().collect::<Vec<_>>(), [3, 5, 4]);
        assert_eq!(fifo.victim(None), Some(3));
        assert_eq!(fifo.victim(Some(3)), Some(5));
        fifo.removed(3);
        fifo.removed(4);
        fifo.validate().unwrap();
        assert_eq!(fifo.victim(Some(5)), None);
        fifo.removed(5);
        assert_eq!(fifo.victim(None), None);
        assert_eq!(fifo.len(), 0);
    }
}
