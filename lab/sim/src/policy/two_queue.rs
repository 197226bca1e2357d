//! 2Q, full version (Johnson, Shasha, *2Q: a low overhead high performance buffer management replacement
//! algorithm*, VLDB 1994).
//!
//! `C` is the capacity, `Kin = max(1, C/4)` and `Kout = max(1, C/2)` the sizes that the paper advises.
//!
//! ```text
//! hit          in Am: becomes its newest. In A1in: nothing
//! x arrives    its key is in A1out: to Am, and the key leaves A1out. Else to A1in
//! make room    A1in above Kin, or Am empty: A1in's oldest leaves, its key goes to A1out, which keeps Kout
//!              else Am's oldest leaves
//! ```
//!
//! The paper does not say whether a key leaves A1out before or after room is made; here, before.
//!
//! Bytes: 9 an entry, and 32 a ghost.

use larder::Error;
use larder::mem::Region;
use larder::policy::{Entries, EntryNumber, Replacement};

use super::ghosts::Ghosts;
use super::list::Lists;

const A1IN: usize = 0;
const AM: usize = 1;

/// 2Q. See the source's head for its rules.
#[derive(Debug)]
pub struct TwoQueue {
    lists: Lists<2>,
    /// The list of each entry.
    records: Region<u8>,
    /// A1out.
    ghosts: Ghosts,
    /// What arrives was in A1out.
    to_am: bool,
}

fn share(capacity: u64, parts: u64) -> u64 {
    (capacity / parts).max(1)
}

impl TwoQueue {
    /// For entry numbers below `numbers` and at most as many entries.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        Ok(TwoQueue {
            lists: Lists::new(numbers)?,
            records: Region::new(numbers).map_err(Error::Memory)?,
            ghosts: Ghosts::new(share(numbers as u64, 2) as usize)?,
            to_am: false,
        })
    }

    #[inline]
    fn list(&self, entry: EntryNumber) -> usize {
        usize::from(self.records[entry as usize])
    }
}

impl Replacement for TwoQueue {
    #[inline]
    fn len(&self) -> u64 {
        self.lists.total()
    }

    #[inline]
    fn arriving(&mut self, key: u64) {
        self.to_am = self.ghosts.take(key).is_some();
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        let list = if std::mem::take(&mut self.to_am) { AM } else { A1IN };
        self.lists.push(list, entry);
        self.records[entry as usize] = list as u8;
    }

    #[inline]
    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }

    #[inline]
    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        if self.list(entry) == AM {
            self.lists.renew(AM, AM, entry);
        }
    }

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        self.lists.remove(self.list(entry), entry);
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        self.lists.rename(self.list(from), from, to);
        self.records[to as usize] = self.records[from as usize];
    }

    #[inline]
    fn evict(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        let capacity = self.len();
        let am = self.lists.oldest(AM, except);
        if (self.lists.len(A1IN) > share(capacity, 4) || am.is_none())
            && let Some(oldest) = self.lists.oldest(A1IN, except)
        {
            self.lists.remove(A1IN, oldest);
            self.ghosts.push(0, entries.key(oldest), share(capacity, 2));
            return Some(oldest);
        }
        self.lists.remove(AM, am?);
        am
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        let a1in_pays = self.lists.len(A1IN) > share(self.len(), 4);
        self.lists.oldest_two(if a1in_pays { A1IN } else { AM })
    }

    #[inline]
    fn prefetch(&self, entry: EntryNumber) {
        self.lists.prefetch(entry);
    }

    #[inline]
    fn prefetch_key(&self, key: u64) {
        self.ghosts.prefetch(key);
    }

    fn validate(&self) -> Result<(), String> {
        self.lists.validate_by(|entry| self.list(entry))?;
        self.ghosts.validate()
    }
}
