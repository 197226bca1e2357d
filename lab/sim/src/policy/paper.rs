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

use larder::Error;
use larder::policy::{Entries, EntryNumber, STEPS_MAX};

use super::listed::{Listed, Records, Reference};

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

/// The mark of an entry with the flag.
const FLAG: u8 = 1;

/// Algorithm 1. See the source's header for its rules.
pub type Paper = Listed<Rules, 3>;

/// The rules of [`Paper`].
#[derive(Debug)]
pub struct Rules {
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
        let mut rules = Rules { rules, temporary_target: 0, hot_target: 0, recycle_target: 0 };
        rules.resize(entries_max);
        Listed::with(numbers, rules)
    }
}

impl Rules {
    fn resize(&mut self, capacity: u64) {
        let share = |percent: u8| (capacity * u64::from(percent) / 100).max(1);
        self.temporary_target = share(self.rules.temporary_percent);
        self.recycle_target = share(self.rules.recycle_percent);
        self.hot_target =
            capacity.saturating_sub(self.temporary_target + self.recycle_target).max(1);
    }

    fn heat(&self, records: &mut Records<3>, entry: EntryNumber) {
        records.restart(HOT, entry);
        // Without borrowing, hot never exceeds its share: its oldest makes room.
        if !self.rules.borrow
            && records.len(HOT) > self.hot_target
            && let Some(oldest) = records.oldest(HOT, None)
        {
            records.restart(RECYCLE, oldest);
        }
    }

    #[inline]
    fn access(&self, records: &mut Records<3>, entry: EntryNumber, is_write: bool) {
        let at_once = match self.rules.promotion {
            Promotion::Listing => !is_write,
            Promotion::SecondAccess => true,
            Promotion::ThirdAccess => false,
        };
        match records.list(entry) {
            HOT => {}
            TEMPORARY if !at_once && records.mark(entry) != FLAG => records.set_mark(entry, FLAG),
            _ => self.heat(records, entry),
        }
    }
}

impl Reference<3> for Rules {
    #[inline]
    fn inserted(&mut self, records: &mut Records<3>, entry: EntryNumber) {
        records.push(TEMPORARY, entry);
    }

    #[inline]
    fn updated(&mut self, records: &mut Records<3>, entry: EntryNumber) {
        self.access(records, entry, true);
    }

    #[inline]
    fn hit(&mut self, records: &mut Records<3>, entry: EntryNumber) {
        self.access(records, entry, false);
    }

    fn victim(
        &mut self,
        records: &mut Records<3>,
        except: Option<EntryNumber>,
        _: &impl Entries,
    ) -> Option<EntryNumber> {
        if self.rules.borrow {
            self.resize(records.total());
        }
        let mut steps = STEPS_MAX;
        loop {
            let oldest = |list| records.oldest(list, except);
            let (temporary, hot) = (oldest(TEMPORARY), oldest(HOT));
            let spills = !self.rules.borrow && records.len(RECYCLE) > self.recycle_target;
            if let Some(entry) = temporary
                && records.len(TEMPORARY) >= self.temporary_target
                && !spills
            {
                if records.mark(entry) != FLAG || steps == 0 {
                    return Some(entry);
                }
                steps -= 1;
                match self.rules.flagged {
                    Flagged::Evicted => return Some(entry),
                    Flagged::StaysOnce => records.restart(TEMPORARY, entry),
                    Flagged::ToHot => self.heat(records, entry),
                    Flagged::ToRecycle => records.restart(RECYCLE, entry),
                }
            } else if let Some(entry) = hot
                && records.len(HOT) > self.hot_target
                && steps > 0
            {
                steps -= 1;
                records.restart(RECYCLE, entry);
            } else {
                return oldest(RECYCLE).or(temporary).or(hot);
            }
        }
    }

    #[inline]
    fn has_surplus(&self, records: &Records<3>) -> bool {
        !self.rules.borrow
            && (records.len(TEMPORARY) >= self.temporary_target
                || records.len(RECYCLE) > self.recycle_target)
    }

    #[inline]
    fn upcoming(&self, records: &Records<3>) -> [Option<EntryNumber>; 2] {
        let full = records.len(TEMPORARY) >= self.temporary_target;
        records.oldest_two(if full { TEMPORARY } else { RECYCLE })
    }
}
