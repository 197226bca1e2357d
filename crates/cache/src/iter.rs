//! A walk over all entries, those that would leave first coming first, in short lock holds.
//!
//! The policy gives the order and keeps the walk's place through whatever comes, goes and moves between two
//! holds. There is one such place, so one walk at a time.

use std::collections::VecDeque;

use larder_mem::WAYS;
use parking_lot::MutexGuard;

use crate::cache::{Shared, with_engine};
use crate::time::{Seconds, end_of, is_expired};

/// Entries copied a lock hold.
const ENTRIES_PER_HOLD: usize = 64;

/// A copy of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedEntry {
    bytes: Box<[u8]>,
    key_len: u8,
    expires: u32,
    version: Option<u64>,
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

    /// The first second in which the entry is gone; `None` for never.
    pub fn expires(&self) -> Option<Seconds> {
        end_of(self.expires)
    }

    /// The version that [`crate::Writer::insert_if_newer`] gave it.
    pub fn version(&self) -> Option<u64> {
        self.version
    }
}

/// See [`crate::Cache::iter`].
pub struct Iter<'a> {
    shared: &'a Shared,
    now: Seconds,
    chunk: VecDeque<OwnedEntry>,
    /// The shard being walked, and whether the walk of it has begun.
    shard: usize,
    started: bool,
    _only: MutexGuard<'a, ()>,
}

impl<'a> Iter<'a> {
    pub(crate) fn new(shared: &'a Shared, now: Seconds) -> Self {
        let only = shared.walk.lock();
        Iter { shared, now, chunk: VecDeque::new(), shard: 0, started: false, _only: only }
    }

    /// Copies the next entries of this shard; false at its end.
    fn fill(&mut self) -> bool {
        let shard = &self.shared.shards[self.shard];
        // A poisoned shard has no more to tell: its list may be half changed.
        let Ok(mut guard) = shard.lock() else { return false };
        let (now, chunk) = (self.now, &mut self.chunk);
        let start = !std::mem::replace(&mut self.started, true);
        with_engine(shard, &mut guard, |engine| {
            if start {
                engine.state.policy.walk_start();
            }
            for _ in 0..ENTRIES_PER_HOLD {
                let Some(entry) = engine.state.policy.walk_next() else { return !chunk.is_empty() };
                let (bucket, way) = (entry as usize / WAYS, entry as usize % WAYS);
                let Some(slot) = engine.main.slot(bucket, way) else { continue };
                let expires = slot.expires();
                if !is_expired(expires, now) {
                    let (key, value) = (slot.key(), slot.value());
                    chunk.push_back(OwnedEntry {
                        bytes: [key, value].concat().into(),
                        key_len: key.len() as u8,
                        expires,
                        version: slot.version(),
                    });
                }
            }
            true
        })
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
                self.shard += 1;
                self.started = false;
            }
        }
        self.chunk.pop_front()
    }
}

impl Drop for Iter<'_> {
    /// A walk given up before its end is over: nobody keeps a place for it.
    fn drop(&mut self) {
        if let Some(shard) = self.shared.shards.get(self.shard)
            && self.started
            && let Ok(mut guard) = shard.lock()
        {
            with_engine(shard, &mut guard, |engine| engine.state.policy.walk_end());
        }
    }
}
