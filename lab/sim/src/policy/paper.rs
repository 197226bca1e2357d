//! The hybrid of FIFO and LRU as Shi et al. print it (section 3.3, Algorithm 1), to reproduce their
//! figures.
//!
//! There are three FIFO partitions, all of which hold data: temporary for new entries, hot for
//! entries that were hit again, recycle for entries that hot has no room for. The listing says:
//!
//! ```text
//! new             to temporary, flag 0
//! in temporary    a write sets the flag, a write with the flag set moves it to hot; a read moves it to hot
//! in hot          nothing
//! in recycle      a hit moves it to hot
//! ```
//!
//! Their text says otherwise ("moved on the third hit", the first being the insertion). Neither
//! gives the partitions' shares, what happens to a flagged entry that temporary has no room for, or
//! whether a partition may use the free room of another. [`PaperRules`] names these choices. The
//! printed rules: hot's oldest moves to recycle; recycle's oldest and temporary's unflagged oldest
//! are evicted. If several could make room, temporary does when it is full, then hot when it is
//! over its share, then recycle.
//!
//! Zipf streams (exponents 0.8 to 1.1, 1 to 9 seventeenths of 200,000 names, mean hits): the
//! listing 80.8 % with fixed shares and 81.0 with borrowing, the third access 73.7 and 81.4; LRU
//! 78.4, Partitioned 81.9.
//!
//! Bytes: 9 per entry number.

use larder::mem::Region;
use larder::policy::{Entries, EntryNumber, Replacement, STEPS_MAX};
use larder::{Error, prefetch_slice};

use super::list::Lists;

/// When an entry moves from temporary to hot. The insertion is the first access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promotion {
    /// As listed: at the first read after the insertion, or at the second write.
    Listing,
    /// At the second access, read or write.
    SecondAccess,
    /// At the third access, read or write, as the text says.
    ThirdAccess,
}

/// What happens to temporary's oldest entry if it is flagged and temporary is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flagged {
    /// It is evicted, as an unflagged one is.
    Evicted,
    /// It loses the flag and becomes temporary's newest.
    StaysOnce,
    /// It moves to hot.
    ToHot,
    /// It moves to recycle.
    ToRecycle,
}

/// The choices that the paper leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaperRules {
    /// When an entry moves from temporary to hot.
    pub promotion: Promotion,
    /// What happens to a flagged entry that temporary has no room for.
    pub flagged: Flagged,
    /// Share of temporary in percent, 1 to 98.
    pub temporary_percent: u8,
    /// Share of recycle in percent, 1 to 98. Hot has the rest, at least 1.
    pub recycle_percent: u8,
    /// True if a partition may use the free room of others until the whole is full. Otherwise
    /// entries are evicted from a full partition of an empty cache, and the shares are those of the
    /// largest possible number of entries.
    pub borrow: bool,
}

impl Default for PaperRules {
    /// The listing, shares of 25, 50 and 25 %, flagged entries to recycle, borrowing.
    fn default() -> Self {
        PaperRules {
            promotion: Promotion::Listing,
            flagged: Flagged::ToRecycle,
            temporary_percent: 25,
            recycle_percent: 25,
            borrow: true,
        }
    }
}

/// The lists' numbers, in the order of eviction.
const RECYCLE: usize = 0;
const TEMPORARY: usize = 1;
const HOT: usize = 2;

/// Set in an entry's record, next to the partition.
const FLAG: u8 = 4;

/// Algorithm 1. See the source's header for its rules.
#[derive(Debug)]
pub struct Paper {
    lists: Lists<3>,
    /// `partition | FLAG` of each entry.
    records: Region<u8>,
    rules: PaperRules,
    temporary_target: u64,
    hot_target: u64,
    recycle_target: u64,
}

impl Paper {
    /// For entry numbers below `numbers` and at most `entries_max` entries at once.
    pub fn new(numbers: usize, entries_max: u64, rules: PaperRules) -> Result<Self, Error> {
        let PaperRules { temporary_percent, recycle_percent, .. } = rules;
        let sum = u32::from(temporary_percent) + u32::from(recycle_percent);
        if temporary_percent == 0 || recycle_percent == 0 || sum > 99 {
            return Err(Error::Setting("each of the paper's partitions needs at least 1 percent"));
        }
        let mut policy = Paper {
            lists: Lists::new(numbers)?,
            records: Region::new(numbers).map_err(Error::Memory)?,
            rules,
            temporary_target: 0,
            hot_target: 0,
            recycle_target: 0,
        };
        policy.resize(entries_max);
        Ok(policy)
    }

    fn resize(&mut self, capacity: u64) {
        let share = |percent: u8| (capacity * u64::from(percent) / 100).max(1);
        self.temporary_target = share(self.rules.temporary_percent);
        self.recycle_target = share(self.rules.recycle_percent);
        self.hot_target =
            capacity.saturating_sub(self.temporary_target + self.recycle_target).max(1);
    }

    #[inline]
    fn partition(&self, entry: EntryNumber) -> usize {
        usize::from(self.records[entry as usize] & !FLAG)
    }

    /// Moves an entry to the newest end of a partition, unflagged.
    #[inline]
    fn carry(&mut self, entry: EntryNumber, to: usize) {
        self.lists.renew(self.partition(entry), to, entry);
        self.records[entry as usize] = to as u8;
    }

    fn heat(&mut self, entry: EntryNumber) {
        self.carry(entry, HOT);
        // Without borrowing, hot never exceeds its share: its oldest makes room.
        if !self.rules.borrow
            && self.lists.len(HOT) > self.hot_target
            && let Some(oldest) = self.lists.oldest(HOT, None)
        {
            self.carry(oldest, RECYCLE);
        }
    }

    #[inline]
    fn access(&mut self, entry: EntryNumber, is_write: bool) {
        let at_once = match self.rules.promotion {
            Promotion::Listing => !is_write,
            Promotion::SecondAccess => true,
            Promotion::ThirdAccess => false,
        };
        match self.partition(entry) {
            HOT => {}
            TEMPORARY if !at_once && self.records[entry as usize] & FLAG == 0 => {
                self.records[entry as usize] |= FLAG;
            }
            _ => self.heat(entry),
        }
    }

    fn leave(&mut self, entry: EntryNumber) -> Option<EntryNumber> {
        self.removed(entry);
        Some(entry)
    }
}

impl Replacement for Paper {
    #[inline]
    fn len(&self) -> u64 {
        self.lists.total()
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        self.lists.push(TEMPORARY, entry);
        self.records[entry as usize] = TEMPORARY as u8;
    }

    #[inline]
    fn updated(&mut self, entry: EntryNumber) {
        self.access(entry, true);
    }

    #[inline]
    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        self.access(entry, false);
    }

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        self.lists.remove(self.partition(entry), entry);
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        self.lists.rename(self.partition(from), from, to);
        self.records[to as usize] = self.records[from as usize];
    }

    fn evict(&mut self, except: Option<EntryNumber>, _: &impl Entries) -> Option<EntryNumber> {
        if self.rules.borrow {
            self.resize(self.len());
        }
        let mut steps = STEPS_MAX;
        loop {
            let oldest = |list| self.lists.oldest(list, except);
            let (temporary, hot) = (oldest(TEMPORARY), oldest(HOT));
            let spills = !self.rules.borrow && self.lists.len(RECYCLE) > self.recycle_target;
            if let Some(entry) = temporary
                && self.lists.len(TEMPORARY) >= self.temporary_target
                && !spills
            {
                if self.records[entry as usize] & FLAG == 0 || steps == 0 {
                    return self.leave(entry);
                }
                steps -= 1;
                match self.rules.flagged {
                    Flagged::Evicted => return self.leave(entry),
                    Flagged::StaysOnce => self.carry(entry, TEMPORARY),
                    Flagged::ToHot => self.heat(entry),
                    Flagged::ToRecycle => self.carry(entry, RECYCLE),
                }
            } else if let Some(entry) = hot
                && self.lists.len(HOT) > self.hot_target
                && steps > 0
            {
                steps -= 1;
                self.carry(entry, RECYCLE);
            } else {
                let entry = oldest(RECYCLE).or(temporary).or(hot)?;
                return self.leave(entry);
            }
        }
    }

    #[inline]
    fn has_surplus(&self) -> bool {
        !self.rules.borrow
            && (self.lists.len(TEMPORARY) >= self.temporary_target
                || self.lists.len(RECYCLE) > self.recycle_target)
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        let full = self.lists.len(TEMPORARY) >= self.temporary_target;
        self.lists.oldest_two(if full { TEMPORARY } else { RECYCLE })
    }

    #[inline]
    fn prefetch(&self, entry: EntryNumber) {
        self.lists.prefetch(entry);
        prefetch_slice(&self.records, entry as usize);
    }

    fn validate(&self) -> Result<(), String> {
        self.lists.validate_by(|entry| self.partition(entry))
    }
}
