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
//! Bytes: 32 for each of 2c ghosts besides the records.

use larder::Error;
use larder::policy::{Entries, EntryNumber};

use super::ghosts::Ghosts;
use super::listed::{Listed, Records, Reference};

/// Lists of entries, and with the same numbers the ghosts of each.
const T1: usize = 0;
const T2: usize = 1;

/// ARC. See the source's head for its rules.
pub type Arc = Listed<Rules, 2>;

/// The rules of [`Arc`].
#[derive(Debug)]
pub struct Rules {
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
        let ghosts = Ghosts::new(2 * numbers)?;
        let rules = Rules { ghosts, capacity: numbers as u64, target: 0.0, arrival: None };
        Listed::with(numbers, rules)
    }
}

impl Reference<2> for Rules {
    #[inline]
    fn arriving(&mut self, _: &mut Records<2>, key: u64) {
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
    fn inserted(&mut self, records: &mut Records<2>, entry: EntryNumber) {
        records.push(if self.arrival.take().is_some() { T2 } else { T1 }, entry);
        let c = self.capacity;
        self.ghosts.trim(T1, c.saturating_sub(records.len(T1)));
        let others = records.total() + self.ghosts.len(T1);
        self.ghosts.trim(T2, (2 * c).saturating_sub(others));
    }

    #[inline]
    fn hit(&mut self, records: &mut Records<2>, entry: EntryNumber) {
        records.renew(T2, entry);
    }

    #[inline]
    fn victim(
        &mut self,
        records: &mut Records<2>,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        self.capacity = records.total().max(1);
        self.target = self.target.min(self.capacity as f64);
        let len = records.len(T1) as f64;
        let t1_pays = len > self.target || (len == self.target && self.arrival == Some(T2));
        let (first, second) = if t1_pays { (T1, T2) } else { (T2, T1) };
        let victim = records.oldest(first, except).or_else(|| records.oldest(second, except))?;
        self.ghosts.push(records.list(victim), entries.key(victim), self.capacity);
        Some(victim)
    }

    #[inline]
    fn upcoming(&self, records: &Records<2>) -> [Option<EntryNumber>; 2] {
        let t1_pays = records.len(T1) as f64 > self.target;
        records.oldest_two(if t1_pays { T1 } else { T2 })
    }

    #[inline]
    fn ghosts(&self) -> Option<&Ghosts> {
        Some(&self.ghosts)
    }

    fn validate(&self, _: &Records<2>) -> Result<(), String> {
        if !(0.0..=self.capacity as f64).contains(&self.target) {
            return Err(format!("p is {}, c {}", self.target, self.capacity));
        }
        Ok(())
    }
}
