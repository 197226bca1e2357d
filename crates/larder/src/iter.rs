//! A walk over all entries, in short lock holds. Entries to be evicted first come first.
//!
//! The policy gives the order, and keeps each walk's place while entries are inserted, removed and
//! moved between two holds. Walks do not wait for each other.

use std::collections::VecDeque;

use larder_mem::WAYS;

use crate::error::Error;
use crate::expiry::Ends;
use crate::policy::WalkId;
use crate::shared::{Shared, with_engine};
use crate::time::{Seconds, is_expired};

/// Entries copied per lock hold.
const ENTRIES_PER_HOLD: usize = 64;

/// A copy of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedEntry {
    bytes: Box<[u8]>,
    key_len: u8,
    ends: Ends,
}

impl OwnedEntry {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len as usize]
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        &self.bytes[self.key_len as usize..]
    }

    /// The first second in which the entry has expired; `None` for never.
    pub fn expires(&self) -> Option<Seconds> {
        self.ends.second()
    }

    /// The version that [`crate::Writer::insert_if_newer`] stored.
    pub fn version(&self) -> Option<u64> {
        self.ends.serial()
    }

    pub(crate) fn ends(&self) -> Ends {
        self.ends
    }
}

/// See [`crate::Cache::iter`].
pub struct Iter<'a> {
    shared: &'a Shared,
    now: Seconds,
    chunk: VecDeque<OwnedEntry>,
    /// The shard being walked, and its walk once it has begun.
    shard: usize,
    walk: Option<WalkId>,
    /// A shard was skipped.
    is_poisoned: bool,
}

impl<'a> Iter<'a> {
    pub(crate) fn new(shared: &'a Shared, now: Seconds) -> Self {
        Iter { shared, now, chunk: VecDeque::new(), shard: 0, walk: None, is_poisoned: false }
    }

    /// Copies the next entries of this shard; false at its end.
    fn fill(&mut self) -> bool {
        let shard = &self.shared.shards[self.shard];
        // A poisoned shard is skipped: its list may be half changed.
        let Ok(mut guard) = shard.lock() else {
            self.is_poisoned = true;
            return false;
        };
        let (now, chunk) = (self.now, &mut self.chunk);
        with_engine(shard, &mut guard, |engine| {
            let walk = *self.walk.get_or_insert_with(|| engine.state.policy.walk_start());
            for _ in 0..ENTRIES_PER_HOLD {
                let Some(entry) = engine.state.policy.walk_next(walk) else {
                    return !chunk.is_empty();
                };
                let (bucket, way) = (entry as usize / WAYS, entry as usize % WAYS);
                let Some(slot) = engine.main.slot(bucket, way) else { continue };
                let ends = Ends::of(&slot);
                if !is_expired(ends.expires, now) {
                    let (key, value) = (slot.key(), slot.value());
                    chunk.push_back(OwnedEntry {
                        bytes: [key, value].concat().into(),
                        key_len: key.len() as u8,
                        ends,
                    });
                }
            }
            true
        })
    }

    /// An error if a part of the cache was skipped because a panic had interrupted a change there, of
    /// what was walked up to now.
    pub fn was_whole(&self) -> Result<(), Error> {
        if self.is_poisoned { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// Ends the walk of this shard, if one has begun, so that the policy frees its place.
    fn end_walk(&mut self) {
        if let Some(walk) = self.walk.take()
            && let Some(shard) = self.shared.shards.get(self.shard)
            && let Ok(mut guard) = shard.lock()
        {
            with_engine(shard, &mut guard, |engine| engine.state.policy.walk_end(walk));
        }
    }
}

impl Iterator for Iter<'_> {
    type Item = OwnedEntry;

    fn next(&mut self) -> Option<OwnedEntry> {
        while self.chunk.is_empty() {
            if self.shard == self.shared.shards.len() {
                return None;
            }
            if !self.fill() {
                self.end_walk();
                self.shard += 1;
            }
        }
        self.chunk.pop_front()
    }
}

impl Drop for Iter<'_> {
    fn drop(&mut self) {
        self.end_walk();
    }
}
