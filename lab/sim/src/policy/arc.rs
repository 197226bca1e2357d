//! ARC, the adaptive replacement cache (Megiddo, Modha, *ARC: a self-tuning, low overhead replacement cache*,
//! FAST 2003, figure 4).
//!
//! T1 holds what came once lately, T2 what came again; B1 and B2 are the keys that left them. All are LRU
//! lists. `c` is the capacity, `p` what T1 should hold: a real number, as published.
//!
//! ```text
//! hit           to T2's newest end
//! x in B1       p += max(1, |B2|/|B1|), to c; make room; to T2
//! x in B2       p -= max(1, |B1|/|B2|), to 0; make room; to T2
//! x in neither  make room; to T1; then |T1| + |B1| <= c and |T1| + |T2| + |B1| + |B2| <= 2c, for which B1's,
//!               then B2's oldest are forgotten
//! make room     T1's oldest to B1, if there is one and |T1| > p, or |T1| = p and x is in B2; else T2's to B2
//! ```
//!
//! The figure bounds the directory before it makes room and we after the insertion, which forgets the same
//! keys, and still bounds them where entries leave on request (then B2 holds no more than `c`).
//!
//! Bytes: 9 an entry, and 32 for each of 2c ghosts.

use larder::Error;
use larder::mem::Region;
use larder::policy::{Entries, EntryNumber, Replacement};

use super::ghosts::Ghosts;
use super::list::Lists;

/// Lists of entries, and with the same numbers the ghosts of each.
const T1: usize = 0;
const T2: usize = 1;

/// ARC. See the source's head for its rules.
#[derive(Debug)]
pub struct Arc {
    lists: Lists<2>,
    /// The list of each entry.
    records: Region<u8>,
    /// B1 and B2.
    ghosts: Ghosts,
    /// `c`.
    capacity: u64,
    /// `p`.
    target: f64,
    /// The list of ghosts that what arrives was in.
    arrival: Option<usize>,
}

impl Arc {
    /// For entry numbers below `numbers` and at most as many entries.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        Ok(Arc {
            lists: Lists::new(numbers)?,
            records: Region::new(numbers).map_err(Error::Memory)?,
            ghosts: Ghosts::new(2 * numbers)?,
            capacity: numbers as u64,
            target: 0.0,
            arrival: None,
        })
    }

    #[inline]
    fn list(&self, entry: EntryNumber) -> usize {
        usize::from(self.records[entry as usize])
    }

    #[inline]
    fn bound_ghosts(&mut self) {
        let c = self.capacity;
        self.ghosts.trim(T1, c.saturating_sub(self.lists.len(T1)));
        let others = self.len() + self.ghosts.len(T1);
        self.ghosts.trim(T2, (2 * c).saturating_sub(others));
    }
}

impl Replacement for Arc {
    #[inline]
    fn len(&self) -> u64 {
        self.lists.total()
    }

    #[inline]
    fn arriving(&mut self, key: u64) {
        let [b1, b2] = [self.ghosts.len(T1) as f64, self.ghosts.len(T2) as f64];
        self.arrival = self.ghosts.take(key);
        match self.arrival {
            Some(T1) => {
                self.target = (self.target + (b2 / b1).max(1.0)).min(self.capacity as f64);
            }
            Some(_) => self.target = (self.target - (b1 / b2).max(1.0)).max(0.0),
            None => {}
        }
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        let list = if self.arrival.take().is_some() { T2 } else { T1 };
        self.lists.push(list, entry);
        self.records[entry as usize] = list as u8;
        self.bound_ghosts();
    }

    #[inline]
    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }

    #[inline]
    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        self.lists.renew(self.list(entry), T2, entry);
        self.records[entry as usize] = T2 as u8;
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
        self.capacity = self.len().max(1);
        self.target = self.target.min(self.capacity as f64);
        let len = self.lists.len(T1) as f64;
        let t1_pays = len > self.target || (len == self.target && self.arrival == Some(T2));
        let (first, second) = if t1_pays { (T1, T2) } else { (T2, T1) };
        let oldest = |list| Some((list, self.lists.oldest(list, except)?));
        let (list, victim) = oldest(first).or_else(|| oldest(second))?;
        self.lists.remove(list, victim);
        self.ghosts.push(list, entries.key(victim), self.capacity);
        Some(victim)
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        let t1_pays = self.lists.len(T1) as f64 > self.target;
        self.lists.oldest_two(if t1_pays { T1 } else { T2 })
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
        self.ghosts.validate()?;
        if !(0.0..=self.capacity as f64).contains(&self.target) {
            return Err(format!("p is {}, c {}", self.target, self.capacity));
        }
        Ok(())
    }
}
