//! Replacement: which entry leaves when another needs its room.
//!
//! A policy sees entries as numbers (`bucket * WAYS + way` in the engine; any dense numbers elsewhere) and
//! is told of every event in the order in which main applies operations:
//!
//! ```text
//! a new key     arriving, evict while there is no room, inserted
//! a new value   evict while there is no room (that entry apart), updated
//! a read        hit, some time later, or never
//! otherwise     removed (on request), moved (another number for the same entry)
//! ```
//!
//! It knows neither slots, nor limbo, nor the clock, nor who has synced: what leaves is a function of these
//! calls and of what [`Entries`] answers, which the operations alone determine. Read reports are such calls
//! too: where results must not depend on who reads when, they are turned off (`Builder::feedback`).
//!
//! Lengths are counted in entries. The engine's limit is a sum of charges, so the capacity `C` that a policy
//! divides is the number of entries there were when room was last needed; until then, the most there can
//! be. That is exact where entries have one size and follows a drift of sizes where they do not.
//!
//! Bounds: every call is O(1), but `evict` may carry up to [`STEPS_MAX`] entries from one place to
//! another, each of them once for a hit it had.

mod entry_states;
mod fifo;
mod list;
mod lru;
#[cfg(test)]
mod model;
pub mod paper;
pub mod partitioned;
mod recycle;
mod walks;

use larder_mem::Memory;

use crate::error::Error;

pub use fifo::Fifo;
pub use lru::Lru;
pub use paper::{Flagged, Paper, PaperRules, Promotion};
pub use partitioned::Partitioned;
pub(crate) use walks::WalkId;

/// What a policy knows an entry by. Dense, from 0.
pub type EntryNumber = u32;

/// Entries that one `evict` passes over at most, because they were hit. Then it takes what comes: so many hot
/// entries in a row are no reason to hold the lock for longer than some 50 microseconds.
pub const STEPS_MAX: u32 = 1024;

/// Entries that may leave beyond the need, one insert: see [`Replacement::has_surplus`].
pub(crate) const SURPLUS_MAX: u64 = 2;

/// No mapping: each table of a policy that stands by itself has its own.
fn unmapped() -> Result<Memory, Error> {
    Memory::new(0).map_err(Error::Memory)
}

/// What a policy may ask about the entries it knows.
pub trait Entries {
    /// True when the entry's life is over at the time of the operation being applied.
    fn is_expired(&self, entry: EntryNumber) -> bool;

    /// What [`Replacement::arriving`] was or would be told of the entry's key.
    fn key(&self, entry: EntryNumber) -> u64;
}

/// A replacement policy. The events come in the order of the operations.
pub trait Replacement {
    /// Entries it knows.
    fn len(&self) -> u64;

    /// True when it knows none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A key that is not in the cache is about to be stored; room is made next. `key` is a mixed 64-bit
    /// hash, the same whenever this key comes.
    #[inline]
    fn arriving(&mut self, _key: u64) {}

    /// The entry that arrived was placed.
    fn inserted(&mut self, entry: EntryNumber);

    /// The entry was given a new value at its old place: a hit, for policies that count writes.
    fn updated(&mut self, entry: EntryNumber);

    /// Somebody read the entry. `lag` new entries, roughly, were applied since.
    fn hit(&mut self, entry: EntryNumber, lag: u64);

    /// The entry was taken out on request.
    fn removed(&mut self, entry: EntryNumber);

    /// The entry has another number from now on.
    fn moved(&mut self, from: EntryNumber, to: EntryNumber);

    /// Chooses who leaves, `except` apart, and forgets it; `None` when there is nobody else.
    fn evict(&mut self, except: Option<EntryNumber>, entries: &impl Entries)
    -> Option<EntryNumber>;

    /// True when somebody should leave for a new entry though there is room.
    #[inline]
    fn has_surplus(&self) -> bool {
        false
    }

    /// Who will leave next and after that, most likely: a hint for prefetching, and it may name one who has left.
    fn upcoming(&self) -> [Option<EntryNumber>; 2];

    /// Brings near what is kept for an entry.
    #[inline]
    fn prefetch(&self, _entry: EntryNumber) {}

    /// Brings near what will be looked at when this key arrives.
    #[inline]
    fn prefetch_key(&self, _key: u64) {}

    /// Walks everything; `Err` says what is wrong.
    fn validate(&self) -> Result<(), String>;
}

/// Which replacement policy a cache follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Three partitions, as in Shi et al., with counters and a second look at departed keys (see
    /// [`partitioned`]). Best hit ratio; 2 bytes an index way, and 3.3 an entry.
    #[default]
    Partitioned,
    /// Least recently used, as far as reads are reported. 8 bytes an index way.
    Lru,
    /// First in, first out. 8 bytes an index way, and reads cost nothing at all.
    Fifo,
    /// The paper's Algorithm 1 as printed (see [`paper`]). 9 bytes an index way.
    Paper(PaperRules),
}

impl Policy {
    /// Bytes of a mapping for so many entry numbers and entries: the tables below, each rounded up to a line.
    pub(crate) fn mapped_bytes(&self, numbers: usize, entries_max: u64) -> usize {
        const TABLES_MAX: usize = 3;
        self.bytes(numbers, entries_max) + TABLES_MAX * Memory::bytes_for::<u8>(1)
    }

    /// Bytes of side records for so many entry numbers and entries.
    pub(crate) fn bytes(&self, numbers: usize, entries_max: u64) -> usize {
        match self {
            Policy::Partitioned => Partitioned::bytes(numbers, entries_max),
            Policy::Lru | Policy::Fifo => numbers * list::LINK_BYTES,
            Policy::Paper(_) => Paper::bytes(numbers),
        }
    }

    /// True when reads matter to it.
    pub(crate) fn wants_reads(&self) -> bool {
        !matches!(self, Policy::Fifo)
    }

    pub(crate) fn build(
        &self,
        memory: &Memory,
        numbers: usize,
        entries_max: u64,
    ) -> Result<Chosen, Error> {
        Ok(match *self {
            Policy::Partitioned => {
                Chosen::Partitioned(Partitioned::new_in(memory, numbers, entries_max)?)
            }
            Policy::Lru => Chosen::Lru(Lru::new_in(memory, numbers)?),
            Policy::Fifo => Chosen::Fifo(Fifo::new_in(memory, numbers)?),
            Policy::Paper(rules) => {
                Chosen::Paper(Paper::new_in(memory, numbers, entries_max, rules)?)
            }
        })
    }
}

/// The policy that a cache was built with.
#[derive(Debug)]
pub(crate) enum Chosen {
    Partitioned(Partitioned),
    Lru(Lru),
    Fifo(Fifo),
    Paper(Paper),
}

macro_rules! each {
    ($chosen:expr, $policy:ident => $act:expr) => {
        match $chosen {
            Chosen::Partitioned($policy) => $act,
            Chosen::Lru($policy) => $act,
            Chosen::Fifo($policy) => $act,
            Chosen::Paper($policy) => $act,
        }
    };
}

impl Chosen {
    /// True when it remembers the keys of entries that leave.
    #[inline]
    pub fn remembers(&self) -> bool {
        matches!(self, Chosen::Partitioned(_))
    }

    /// Begins a walk over all entries. It goes on, and costs a little, until [`Chosen::walk_end`].
    pub fn walk_start(&mut self) -> WalkId {
        match self {
            Chosen::Partitioned(policy) => policy.states.walk_start(),
            Chosen::Lru(policy) => policy.lists.walk_start(),
            Chosen::Fifo(policy) => policy.lists.walk_start(),
            Chosen::Paper(policy) => policy.lists.walk_start(),
        }
    }

    /// The walk's next entry: list by list or partition by partition, those that leave first coming first.
    pub fn walk_next(&mut self, walk: WalkId) -> Option<EntryNumber> {
        match self {
            Chosen::Partitioned(policy) => policy.states.walk_next(walk),
            Chosen::Lru(policy) => policy.lists.walk_next(walk),
            Chosen::Fifo(policy) => policy.lists.walk_next(walk),
            Chosen::Paper(policy) => policy.lists.walk_next(walk),
        }
    }

    /// Ends a walk, at its last entry or before.
    pub fn walk_end(&mut self, walk: WalkId) {
        match self {
            Chosen::Partitioned(policy) => policy.states.walk_end(walk),
            Chosen::Lru(policy) => policy.lists.walk_end(walk),
            Chosen::Fifo(policy) => policy.lists.walk_end(walk),
            Chosen::Paper(policy) => policy.lists.walk_end(walk),
        }
    }

    /// Calls `act` with every entry.
    pub fn each_entry(&self, act: impl FnMut(EntryNumber)) {
        match self {
            Chosen::Partitioned(policy) => policy.states.each(act),
            Chosen::Lru(policy) => policy.lists.each(act),
            Chosen::Fifo(policy) => policy.lists.each(act),
            Chosen::Paper(policy) => policy.lists.each(act),
        }
    }
}

impl Replacement for Chosen {
    #[inline]
    fn len(&self) -> u64 {
        each!(self, policy => policy.len())
    }

    #[inline]
    fn arriving(&mut self, key: u64) {
        each!(self, policy => policy.arriving(key))
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        each!(self, policy => policy.inserted(entry))
    }

    #[inline]
    fn updated(&mut self, entry: EntryNumber) {
        each!(self, policy => policy.updated(entry))
    }

    #[inline]
    fn hit(&mut self, entry: EntryNumber, lag: u64) {
        each!(self, policy => policy.hit(entry, lag))
    }

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        each!(self, policy => policy.removed(entry))
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        each!(self, policy => policy.moved(from, to))
    }

    #[inline]
    fn evict(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        each!(self, policy => policy.evict(except, entries))
    }

    #[inline]
    fn has_surplus(&self) -> bool {
        each!(self, policy => policy.has_surplus())
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        each!(self, policy => policy.upcoming())
    }

    #[inline]
    fn prefetch(&self, entry: EntryNumber) {
        each!(self, policy => policy.prefetch(entry))
    }

    #[inline]
    fn prefetch_key(&self, key: u64) {
        each!(self, policy => policy.prefetch_key(key))
    }

    fn validate(&self) -> Result<(), String> {
        each!(self, policy => policy.validate())
    }
}
