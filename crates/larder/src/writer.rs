//! A writer: one core's handle for writes. It fills slots without the lock.
//!
//! ```text
//! insert -> queued (private, in a slot that the writer owns) -> applied (by flush, in order) -> seen by readers
//! ```
//!
//! The writer queues 64 operations before it publishes them if the lock is free. It waits for the
//! lock only when 256 are queued (BP-Wrapper, ICDE 2009). `flush` publishes at once. An operation
//! never waits for a reader: it is accepted, or refused with nothing changed. One writer's
//! operations are applied in its order; the order between writers is up to the callers.

mod queue;

use std::sync::Arc;

use self::queue::{Act, Condition, ShardQueue};
use crate::error::Error;
use crate::evicted::Batch;
use crate::expiry::Ends;
use crate::hash::KeyHash;
use crate::position::LogPosition;
use crate::shared::Shared;
use crate::time::{Seconds, Ttl};

/// One core's handle for writes.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    /// By shard.
    queues: Box<[ShardQueue]>,
}

/// A value that is being built in its final place. See [`Writer::insert_with`].
#[derive(Debug)]
pub struct Build<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl Build<'_> {
    /// Appends `bytes`. If they do not fit, appends nothing and returns false.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.room.get_mut(self.len..self.len + bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        true
    }

    /// The next `len` bytes of the value, for the caller to write (they contain old data until
    /// then); `None` if that many do not fit.
    #[inline]
    pub fn spare(&mut self, len: usize) -> Option<&mut [u8]> {
        let start = self.len;
        let room = self.room.get_mut(start..start.checked_add(len)?)?;
        self.len += len;
        Some(room)
    }

    /// Bytes of the value so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True while nothing is written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Writer {
    /// A writer whose operations end with calls of the listener if `reports`. Otherwise the owner
    /// makes them, because the writer is behind a lock that the listener may need.
    pub(crate) fn new(shared: &Arc<Shared>, reports: bool) -> Self {
        let queues = (shared.shards.iter().enumerate())
            .map(|(number, shard)| ShardQueue::new(number, shard.classes().count(), reports))
            .collect();
        Writer { shared: shared.clone(), queues }
    }

    /// The evictions since the last call, of a writer that does not report.
    pub(crate) fn take_evicted(&mut self) -> Batch {
        let mut evicted = self.shared.batch();
        if self.shared.notifier.is_some() {
            self.queues.iter_mut().for_each(|queue| evicted.append(&mut queue.evicted));
        }
        evicted
    }

    /// The shared state, and our queue for a key's shard.
    #[inline(always)]
    fn parts(&mut self, hash: KeyHash) -> (&Shared, &mut ShardQueue) {
        let Writer { shared, queues } = self;
        let queue = &mut queues[shared.placement.shard(hash)];
        (shared, queue)
    }

    /// Stores a value under a key, and replaces an older one. If it fails, nothing has changed.
    #[inline]
    pub fn insert(
        &mut self,
        key: &[u8],
        value: &[u8],
        ttl: Ttl,
        now: Seconds,
    ) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        self.insert_hashed(hash, key, value, ttl, now)
    }

    /// As [`Writer::insert`], for a key that is already hashed.
    pub fn insert_hashed(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        value: &[u8],
        ttl: Ttl,
        now: Seconds,
    ) -> Result<(), Error> {
        self.insert_when(Condition::Always, hash, key, value, Ends::after(ttl, now), now)
    }

    /// As [`Writer::insert`], with an end that a [`crate::Expiry`] gives.
    #[inline]
    pub(crate) fn insert_ending(
        &mut self,
        key: &[u8],
        value: &[u8],
        ends: Ends,
        now: Seconds,
    ) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        self.insert_when(Condition::Always, hash, key, value, ends, now)
    }

    #[inline]
    fn insert_when(
        &mut self,
        condition: Condition,
        hash: KeyHash,
        key: &[u8],
        value: &[u8],
        ends: Ends,
        now: Seconds,
    ) -> Result<(), Error> {
        let (shared, queue) = self.parts(hash);
        queue.home(shared).prefetch_bucket(shared.placement.home(hash));
        let stored = queue.slot_for(shared, key, value.len(), ends).and_then(|mut slot| {
            queue.home(shared).fill(&mut slot, key, value, ends.expires, ends.version);
            queue.enqueue(shared, hash, slot, condition, now)
        });
        queue.report(shared);
        stored
    }

    /// Stores a value if no entry is under the key when the operation is applied; an expired one
    /// does not count, even in its stale window. A lookup afterwards and [`crate::Stats::refused`]
    /// show whether it was stored.
    pub fn insert_if_absent(
        &mut self,
        key: &[u8],
        value: &[u8],
        ttl: Ttl,
        now: Seconds,
    ) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        self.insert_when(Condition::Absent, hash, key, value, Ends::after(ttl, now), now)
    }

    /// Stores a value and its version, unless an entry of the same or a greater version is under
    /// the key when the operation is applied. So a value that was fetched earlier never replaces
    /// one that was fetched later, whichever writer is first. No version is older than any.
    ///
    /// The caller chooses the version (a serial, a time of fetching), and it is explicit. Comparing
    /// expiry times instead would prefer an old record to a new one with a shorter TTL, which is
    /// what an operator publishes before a change. A comparison by the caller would be foreign code
    /// under the lock. The version is in the slot, in 8 bytes after the value. A [`crate::Map`] takes those
    /// with the top five bits 10110 for an [`crate::Expiry`]; times and serials have others.
    pub fn insert_if_newer(
        &mut self,
        key: &[u8],
        value: &[u8],
        version: u64,
        ttl: Ttl,
        now: Seconds,
    ) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        let ends = Ends { expires: ttl.expires(now), version: Some(version) };
        self.insert_when(Condition::Newer, hash, key, value, ends, now)
    }

    /// Stores a value that `build` writes in its final place, at most `len_max` bytes. Its length
    /// is the number of written bytes. No lock is held while `build` runs.
    pub fn insert_with(
        &mut self,
        key: &[u8],
        len_max: usize,
        ttl: Ttl,
        now: Seconds,
        build: impl FnOnce(&mut Build<'_>),
    ) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        let (shared, queue) = self.parts(hash);
        let stored = queue.slot_for(shared, key, len_max, Ends::NEVER).and_then(|slot| {
            queue.build_in(shared, hash, slot, (key, len_max), (ttl.expires(now), now), build)
        });
        queue.report(shared);
        stored
    }

    /// Removes an entry, if there is one.
    pub fn remove(&mut self, key: &[u8]) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        let (shared, queue) = self.parts(hash);
        let queued = queue.enqueue_key(shared, hash, key, Act::Remove, 0);
        queue.report(shared);
        queued
    }

    /// Sets an entry's expiry to `ttl` from `now`, if there is one. Readers see it once applied. An entry
    /// that a [`crate::Map`] stored with an [`crate::Expiry`] other than a [`Ttl`] stays as it is:
    /// [`crate::Map::touch`] changes that.
    pub fn touch(&mut self, key: &[u8], ttl: Ttl, now: Seconds) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        let (shared, queue) = self.parts(hash);
        let queued = queue.enqueue_key(shared, hash, key, Act::Touch, ttl.expires(now));
        queue.report(shared);
        queued
    }

    /// Applies and publishes all queued operations, and returns spare slots if memory is short. A
    /// reader at the returned position, or after it, shows this writer's operations. On
    /// [`Error::Stalled`] the operations not yet applied stay queued, in order.
    pub fn flush(&mut self) -> Result<LogPosition, Error> {
        let Writer { shared, queues } = self;
        let mut position = LogPosition::default();
        let mut refused = None;
        // A stall in one shard does not hold up the others.
        for queue in queues {
            match queue.flush(shared, true) {
                Ok(at) => position.add(queue.shard(), at),
                Err(error) => refused = refused.or(Some(error)),
            }
            queue.report(shared);
        }
        refused.map_or(Ok(position), Err)
    }

    /// As [`Writer::flush`], but takes only the locks of shards that operations wait for.
    pub(crate) fn publish(&mut self) -> Result<(), Error> {
        let Writer { shared, queues } = self;
        let mut refused = None;
        for queue in queues.iter_mut().filter(|queue| queue.pending() > 0) {
            refused = refused.or(queue.flush(shared, false).err());
            queue.report(shared);
        }
        refused.map_or(Ok(()), Err)
    }

    /// Drops all queued operations. They are not applied.
    pub(crate) fn discard(&mut self) {
        let Writer { shared, queues } = self;
        queues.iter_mut().for_each(|queue| queue.discard(shared));
    }

    /// Operations queued.
    pub fn pending(&self) -> usize {
        self.queues.iter().map(ShardQueue::pending).sum()
    }
}

impl Drop for Writer {
    /// Publishes the queue; operations that a reader stalls are dropped. Flush first to find out.
    fn drop(&mut self) {
        let Writer { shared, queues } = self;
        for queue in queues.iter_mut() {
            queue.close(shared);
        }
        // Last, since the listener may panic. A writer in a lock lets its owner make the calls.
        let reports = queues.iter().all(ShardQueue::reports);
        let mut evicted = self.take_evicted();
        if let Some(notifier) = &self.shared.notifier {
            if reports { notifier.report(&mut evicted) } else { notifier.keep(&mut evicted) }
        }
    }
}
