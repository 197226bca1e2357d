//! Replacement: which entry is evicted when another needs room.
//!
//! A policy knows entries by number (`bucket * WAYS + way` in the engine; any dense numbers
//! elsewhere). It gets every event, in the order in which main applies operations:
//!
//! ```text
//! a new key     arriving, evict while there is no room, inserted
//! a new value   evict while there is no room (that entry apart), updated
//! a read        hit, some time later, or never
//! otherwise     removed (on request), moved (another number for the same entry)
//! ```
//!
//! It has no access to slots, limbo, the clock or readers. Evictions depend only on these calls and
//! on the answers of [`Entries`], which the operations alone determine. Read reports are such calls
//! too; a program whose results must not depend on who reads when turns them off
//! (`Builder::feedback`).
//!
//! Sizes are counted in entries. The engine's limit is a sum of charges, so the capacity `C` that a
//! policy divides is the number of entries when room was last needed, and until then the largest
//! possible number. That is exact if entries have one size, and follows a drift of sizes otherwise.
//!
//! Bounds: every call is O(1), but `evict` may move up to [`STEPS_MAX`] entries, each of them once
//! per hit.

mod entry_states;
mod fifo;
#[cfg(test)]
mod model;
pub mod partitioned;
mod recycle;
pub mod size_aware;
mod walks;

use larder_mem::Memory;

use crate::error::Error;

pub use fifo::Fifo;
pub use partitioned::Partitioned;
pub use size_aware::SizeAware;
pub(crate) use walks::WalkId;

/// Identifies an entry to a policy. Dense, from 0.
pub type EntryNumber = u32;

/// Entries that one `evict` passes over because of hits, at most. Then it evicts the next one, so
/// that the lock is not held for longer than about 50 microseconds.
pub const STEPS_MAX: u32 = 1024;

/// No mapping: each table of a policy that is used alone has its own.
fn unmapped() -> Result<Memory, Error> {
    Memory::new(0).map_err(Error::Memory)
}

/// The properties of entries that a policy may read.
pub trait Entries {
    /// True if the entry has expired at the time of the operation being applied.
    fn is_expired(&self, entry: EntryNumber) -> bool;

    /// The key that [`Replacement::arriving`] got, or would get, for the entry.
    fn key(&self, entry: EntryNumber) -> u64;

    /// The bytes that the entry's eviction frees. [`SizeAware`] asks for them; 1 for all if they
    /// don't matter.
    #[inline]
    fn size(&self, _entry: EntryNumber) -> u64 {
        1
    }
}

/// A replacement policy. The events come in the order of the operations.
pub trait Replacement {
    /// The number of entries.
    fn len(&self) -> u64;

    /// True if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A key that is not in the cache is about to be stored; room is made next. `key` is a mixed
    /// 64-bit hash, the same each time this key arrives.
    #[inline]
    fn arriving(&mut self, _key: u64) {}

    /// The arriving entry was placed.
    fn inserted(&mut self, entry: EntryNumber);

    /// The entry got a new value at its old place: a hit, for policies that count writes.
    fn updated(&mut self, entry: EntryNumber);

    /// The entry was read. Since then about `lag` new entries were applied.
    fn hit(&mut self, entry: EntryNumber, lag: u64);

    /// The entry was removed on request.
    fn removed(&mut self, entry: EntryNumber);

    /// The entry has another number from now on.
    fn moved(&mut self, from: EntryNumber, to: EntryNumber);

    /// Chooses an entry to evict, other than `except`, and forgets it; `None` if there is no other.
    fn evict(&mut self, except: Option<EntryNumber>, entries: &impl Entries)
    -> Option<EntryNumber>;

    /// True if an entry should be evicted for a new one although there is room. No policy of the
    /// engine has a surplus; references that larder-lab simulates have.
    #[inline]
    fn has_surplus(&self) -> bool {
        false
    }

    /// The entries that will most likely be evicted next and after that. A prefetch hint: it may
    /// name an entry that is gone.
    fn upcoming(&self) -> [Option<EntryNumber>; 2];

    /// Prefetches the record of an entry.
    #[inline]
    fn prefetch(&self, _entry: EntryNumber) {}

    /// Prefetches the lines that the arrival of this key reads.
    #[inline]
    fn prefetch_key(&self, _key: u64) {}

    /// Checks all invariants; `Err` states what is wrong.
    fn validate(&self) -> Result<(), String>;
}

/// The replacement policy of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// An adaptive S3-FIFO-like policy: three partitions, as in Shi et al., with counters and a
    /// second chance for evicted keys (see [`partitioned`]). Best hit ratio; 2 bytes per index way
    /// and 3.3 per entry.
    #[default]
    Partitioned,
    /// First in, first out. 8 bytes per index way, and reads cost nothing. The same operations
    /// result in the same entries, whatever is read.
    Fifo,
}

impl Policy {
    /// The length of a mapping for this many entry numbers and entries: the tables below, each
    /// rounded up to a cache line.
    pub(crate) fn mapped_bytes(&self, numbers: usize, entries_max: u64) -> usize {
        const TABLES_MAX: usize = 3;
        self.bytes(numbers, entries_max) + TABLES_MAX * Memory::bytes_for::<u8>(1)
    }

    /// Bytes of records for this many entry numbers and entries.
    pub(crate) fn bytes(&self, numbers: usize, entries_max: u64) -> usize {
        match self {
            Policy::Partitioned => Partitioned::bytes(numbers, entries_max),
            Policy::Fifo => Fifo::bytes(numbers),
        }
    }

    /// True if the policy uses reads.
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
            Policy::Fifo => Chosen::Fifo(Fifo::new_in(memory, numbers)?),
        })
    }
}

/// The policy that a cache was built with.
#[derive(Debug)]
pub(crate) enum Chosen {
    Partitioned(Partitioned),
    Fifo(Fifo),
}

macro_rules! each {
    ($chosen:expr, $policy:ident => $act:expr) => {
        match $chosen {
            Chosen::Partitioned($policy) => $act,
            Chosen::Fifo($policy) => $act,
        }
    };
}

impl Chosen {
    /// True if it remembers the keys of evicted entries.
    #[inline]
    pub fn remembers(&self) -> bool {
        matches!(self, Chosen::Partitioned(_))
    }

    /// Begins a walk over all entries. It costs a little until [`Chosen::walk_end`].
    pub fn walk_start(&mut self) -> WalkId {
        match self {
            Chosen::Partitioned(policy) => policy.states.walk_start(),
            Chosen::Fifo(policy) => policy.walk_start(),
        }
    }

    /// The walk's next entry: list by list or partition by partition. Entries to be evicted first
    /// come first.
    pub fn walk_next(&mut self, walk: WalkId) -> Option<EntryNumber> {
        match self {
            Chosen::Partitioned(policy) => policy.states.walk_next(walk),
            Chosen::Fifo(policy) => policy.walk_next(walk),
        }
    }

    /// Ends a walk, at its last entry or before.
    pub fn walk_end(&mut self, walk: WalkId) {
        match self {
            Chosen::Partitioned(policy) => policy.states.walk_end(walk),
            Chosen::Fifo(policy) => policy.walk_end(walk),
        }
    }

    /// Calls `act` with every entry.
    pub fn each_entry(&self, act: impl FnMut(EntryNumber)) {
        match self {
            Chosen::Partitioned(policy) => policy.states.each(act),
            Chosen::Fifo(policy) => policy.each(act),
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
