//! Conditions of operations, decided by main under the lock of the key's shard.

use larder_mem::Slot;

use crate::expiry::{Ends, Stored};
use crate::time::{Seconds, is_expired};

/// The condition of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When<'a> {
    Always,
    /// No entry is under the key, or it has expired.
    Absent,
    /// As `Absent`; also if the entry's version is lower, or it has none.
    Newer,
    /// An entry is under the key that has not expired, and is this one.
    Equal(&'a Expected),
}

impl When<'_> {
    /// True if an operation on the entry that is there, if any, must not be applied.
    #[inline]
    pub fn refuses(self, there: Option<Slot<'_>>, version: Option<u64>, now: Seconds) -> bool {
        let there = there.filter(|there| !is_expired(there.expires(), now));
        match self {
            When::Always => false,
            When::Absent => there.is_some(),
            // `None` is less than any version.
            When::Newer => there.is_some_and(|there| Ends::of(&there).serial() >= version),
            When::Equal(expected) => there.is_none_or(|there| !expected.is(there)),
        }
    }
}

/// An entry as a caller found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    pub value: Box<[u8]>,
    pub ends: Ends,
    /// It is another one once its time to idle has begun again, by a read or an insert.
    pub is_idle: bool,
}

impl Expected {
    pub fn of(slot: Slot<'_>) -> Self {
        Expected { value: slot.value().into(), ends: Ends::of(&slot), is_idle: false }
    }

    fn is(&self, there: Slot<'_>) -> bool {
        let ends = Ends::of(&there);
        let has_ends = if self.is_idle { self.ends == ends } else { self.ends.are_of(ends) };
        there.value() == &*self.value && has_ends
    }

    pub fn stored(&self) -> Stored<'_> {
        Stored { value: &self.value, ends: self.ends }
    }

    /// The condition that it is still there.
    pub fn when(&self) -> When<'_> {
        When::Equal(self)
    }
}
