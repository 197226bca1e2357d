//! LIRS (Jiang, Zhang, *LIRS: an efficient low inter-reference recency set replacement policy*, SIGMETRICS
//! 2002).
//!
//! LIR entries were asked for again soon, HIR ones were not, or not yet. The stack S holds by recency all LIR
//! entries and what came after the oldest of them; the queue Q holds the HIR entries of the cache. Keys of HIR
//! entries that left stay in S as ghosts. `C` is the capacity, of which HIR entries have
//! `max(1, C/100)`; ghosts are at most `2C`, the one that left first forgotten first (the paper bounds the
//! stack, and does not say by which rule).
//!
//! ```text
//! hit on LIR        to S's top
//! hit on HIR        in S: becomes LIR, leaves Q. Not in S: stays HIR, to Q's end. Both to S's top
//! x arrives         LIR if there are too few, or if it is a ghost; else HIR, to Q's end. To S's top
//! too many LIR      the one at S's bottom becomes HIR, leaves S, to Q's end
//! after each        S is pruned: what lies below the last LIR entry leaves it, ghosts are forgotten
//! make room         Q's front leaves, and stays in S as a ghost if it was there
//! ```
//!
//! S is a list through the numbers of the entries and, behind them, those of the ghosts: an entry that leaves
//! hands its place in S to its ghost.
//!
//! Bytes: 17 an entry, and 40 for each of 2C ghosts. O(1) amortized: what a pruning takes off S was put there
//! by as many accesses.

use larder::Error;
use larder::policy::{Entries, EntryNumber, Replacement};
use larder_mem::Region;

use super::ghosts::Ghosts;
use super::list::Lists;

/// The one list of `stack` and of `queue`.
const ALL: usize = 0;

/// In Q only.
const HIR: u8 = 0;
/// In Q and in S.
const HIR_IN_STACK: u8 = 1;
/// In S.
const LIR: u8 = 2;

/// LIRS. See the source's head for its rules.
#[derive(Debug)]
pub struct Lirs {
    /// S, of entries and, from `numbers` on, ghosts.
    stack: Lists<1>,
    /// Q, of entries.
    queue: Lists<1>,
    /// What each entry is.
    records: Region<u8>,
    /// In the order in which they left.
    ghosts: Ghosts,
    /// The number in S of the first ghost.
    numbers: u32,
    lir_len: u64,
    /// LIR entries that there should be.
    lir_target: u64,
    /// Ghosts kept, and that as a multiple of `C`.
    ghosts_max: u64,
    ghosts_share: u64,
    /// What arrives was a ghost in S.
    to_lir: bool,
}

impl Lirs {
    /// For entry numbers below `numbers` and at most as many entries; departed keys are remembered up to
    /// `ghosts_share` times the capacity, 2 usually and 1 at least.
    ///
    /// # Errors
    /// [`Error::Setting`] where that is beyond 2^31 keys; [`Error::Memory`] when the system gives none.
    pub fn new(numbers: usize, ghosts_share: u32) -> Result<Self, Error> {
        let ghosts_share = ghosts_share.max(1);
        let ghosts = numbers.saturating_mul(ghosts_share as usize);
        if ghosts > 1 << 31 || numbers > 1 << 30 {
            return Err(Error::Setting("LIRS remembers at most 2147483648 keys"));
        }
        let mut policy = Lirs {
            stack: Lists::new(numbers + ghosts)?,
            queue: Lists::new(numbers)?,
            records: Region::new(numbers).map_err(Error::Memory)?,
            ghosts: Ghosts::new(ghosts)?,
            numbers: numbers as u32,
            lir_len: 0,
            lir_target: 0,
            ghosts_max: 0,
            ghosts_share: ghosts_share.into(),
            to_lir: false,
        };
        policy.resize(numbers as u64);
        Ok(policy)
    }

    #[inline]
    fn resize(&mut self, capacity: u64) {
        self.lir_target = capacity - (capacity / 100).max(1).min(capacity);
        self.ghosts_max = self.ghosts_share * capacity;
    }

    #[inline]
    fn kind(&self, entry: EntryNumber) -> u8 {
        self.records[entry as usize]
    }

    #[inline]
    fn set_kind(&mut self, entry: EntryNumber, kind: u8) {
        self.records[entry as usize] = kind;
    }

    /// Takes off S what lies below its last LIR entry.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.oldest(ALL, None) {
            if bottom >= self.numbers {
                self.ghosts.remove(bottom - self.numbers);
            } else if self.kind(bottom) == LIR {
                return;
            } else {
                self.set_kind(bottom, HIR);
            }
            self.stack.remove(ALL, bottom);
        }
    }

    /// An entry in neither list becomes LIR, at S's top.
    #[inline]
    fn promote(&mut self, entry: EntryNumber) {
        self.stack.push(ALL, entry);
        self.set_kind(entry, LIR);
        self.lir_len += 1;
        self.demote(self.lir_target);
    }

    /// LIR entries at S's bottom become HIR until there are `lir_len_max` at most.
    #[inline]
    fn demote(&mut self, lir_len_max: u64) {
        while self.lir_len > lir_len_max
            && let Some(bottom) = self.stack.oldest(ALL, None)
        {
            self.lir_len -= 1;
            self.stack.remove(ALL, bottom);
            self.set_kind(bottom, HIR);
            self.queue.push(ALL, bottom);
            self.prune();
        }
    }

    /// Forgets the ghosts that are too many, one place kept free.
    fn trim_ghosts(&mut self) {
        while self.ghosts.len(ALL) >= self.ghosts_max
            && let Some(oldest) = self.ghosts.oldest(ALL)
        {
            self.ghosts.remove(oldest);
            self.stack.remove(ALL, self.numbers + oldest);
        }
    }
}

impl Replacement for Lirs {
    #[inline]
    fn len(&self) -> u64 {
        self.lir_len + self.queue.len(ALL)
    }

    #[inline]
    fn arriving(&mut self, key: u64) {
        let ghost = self.ghosts.find(key);
        self.to_lir = ghost.is_some();
        if let Some(ghost) = ghost {
            self.ghosts.remove(ghost);
            self.stack.remove(ALL, self.numbers + ghost);
        }
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        let to_lir = std::mem::take(&mut self.to_lir);
        if to_lir || self.lir_len < self.lir_target {
            self.promote(entry);
        } else {
            self.stack.push(ALL, entry);
            self.queue.push(ALL, entry);
            self.set_kind(entry, HIR_IN_STACK);
            self.prune();
        }
    }

    #[inline]
    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }

    #[inline]
    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        match self.kind(entry) {
            LIR => {
                self.stack.renew(ALL, ALL, entry);
                self.prune();
            }
            HIR_IN_STACK => {
                self.stack.remove(ALL, entry);
                self.queue.remove(ALL, entry);
                self.promote(entry);
            }
            _ => {
                self.stack.push(ALL, entry);
                self.queue.renew(ALL, ALL, entry);
                self.set_kind(entry, HIR_IN_STACK);
                self.prune();
            }
        }
    }

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        let kind = self.kind(entry);
        if kind != HIR {
            self.stack.remove(ALL, entry);
        }
        if kind == LIR {
            self.lir_len -= 1;
            self.prune();
        } else {
            self.queue.remove(ALL, entry);
        }
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        let kind = self.kind(from);
        if kind != HIR {
            self.stack.rename(ALL, from, to);
        }
        if kind != LIR {
            self.queue.rename(ALL, from, to);
        }
        self.set_kind(to, kind);
    }

    fn evict(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        self.resize(self.len());
        self.demote(self.lir_target);
        if self.queue.oldest(ALL, except).is_none() {
            // Q has only the excepted entry.
            self.demote(self.lir_len.saturating_sub(1));
        }
        let victim = self.queue.oldest(ALL, except)?;
        self.queue.remove(ALL, victim);
        if self.kind(victim) == HIR_IN_STACK {
            self.trim_ghosts();
            let ghost = self.ghosts.push(ALL, entries.key(victim), self.ghosts_max);
            self.stack.rename(ALL, victim, self.numbers + ghost);
        }
        Some(victim)
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        self.queue.oldest_two(ALL)
    }

    #[inline]
    fn prefetch(&self, entry: EntryNumber) {
        self.stack.prefetch(entry);
    }

    #[inline]
    fn prefetch_key(&self, key: u64) {
        self.ghosts.prefetch(key);
    }

    fn validate(&self) -> Result<(), String> {
        self.stack.validate()?;
        self.queue.validate()?;
        self.ghosts.validate()?;
        let (mut lir, mut hir, mut ghosts) = (0, 0, 0);
        for number in self.stack.iter(ALL) {
            if lir == 0 && (number >= self.numbers || self.kind(number) != LIR) {
                return Err(format!("{number} lies below the last LIR entry"));
            }
            match number {
                ghost if ghost >= self.numbers => ghosts += 1,
                entry if self.kind(entry) == LIR => lir += 1,
                _ => hir += 1,
            }
        }
        let both = self.queue.iter(ALL).filter(|&entry| self.kind(entry) == HIR_IN_STACK).count();
        let expected = (self.lir_len, both, self.ghosts.len(ALL));
        if (lir, hir, ghosts) != expected
            || self.queue.iter(ALL).any(|entry| self.kind(entry) == LIR)
        {
            return Err(format!("S has {lir} LIR, {hir} HIR, {ghosts} ghosts; not {expected:?}"));
        }
        Ok(())
    }
}
