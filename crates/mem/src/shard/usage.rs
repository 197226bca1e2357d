//! What the memory of a shard is used for, and the check of its invariants.

use super::Main;
use crate::log::PARKED;
use crate::pages::{ClassUse, PageUse};
use crate::table::WAYS;

/// One reader's lag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderLag {
    /// The reader's number.
    pub reader: usize,
    /// Records between its cursor and the tail; `None` while it is parked.
    pub behind: Option<u64>,
}

impl Main<'_> {
    /// The use of the arena's pages.
    pub fn page_use(&self) -> PageUse {
        self.books.pages.page_use()
    }

    /// The use of each size class.
    pub fn class_use(&self) -> impl Iterator<Item = ClassUse> + '_ {
        self.books.pages.class_use()
    }

    /// Retired slots that are not yet free, and their bytes.
    pub fn limbo(&self) -> (u64, u64) {
        (self.books.limbo_slots, self.books.limbo_bytes)
    }

    /// Slots that wait for a lease to be dropped, as far as main knows, and the bytes that leases
    /// hold (which include live slots and copies).
    pub fn leased(&self) -> (u64, u64) {
        (self.books.revoked.len() as u64, self.core.leases.bytes())
    }

    /// Every registered reader and its lag.
    pub fn lags(&self) -> impl Iterator<Item = ReaderLag> + '_ {
        (0..self.core.log.cursors()).filter(|&reader| self.books.taken[reader]).map(|reader| {
            let cursor = self.core.log.cursor(reader);
            let behind = (cursor != PARKED).then(|| self.books.tail - cursor);
            ReaderLag { reader, behind }
        })
    }

    /// Checks all invariants of the memory; `Err` states what is wrong.
    pub fn validate(&self) -> Result<(), String> {
        self.books.pages.validate()?;
        let mut limbo = 0;
        for position in self.books.limbo_head..self.books.tail {
            // SAFETY: `self` exists only under the lock.
            limbo += u64::from(unsafe { self.core.log.read(position) }.retired != 0);
        }
        if limbo != self.books.limbo_slots {
            return Err(format!("{limbo} slots in limbo, books say {}", self.books.limbo_slots));
        }
        for &slot in &self.books.revoked {
            if self.books.pages.is_live(slot) {
                return Err(format!("slot {slot} is revoked and live"));
            }
        }
        let ways = self.table().iter();
        let ways = ways.map(|line| (0..WAYS).filter(|&way| line.tag(way) != 0).count() as u64);
        let (owned, live) =
            (ways.sum::<u64>(), self.class_use().map(|c| u64::from(c.slots_live)).sum());
        if owned != live {
            return Err(format!("{owned} ways own a slot, {live} slots are live"));
        }
        Ok(())
    }
}
