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

use std::collections::VecDeque;
use std::sync::Arc;

use larder_mem::{
    Guard, HEADER_BYTES, LogPosition as ShardPosition, OwnedSlot, Shard, Stalled, VERSION_BYTES,
};

use crate::engine::{Engine, State, When};
use crate::error::Error;
use crate::evicted::Batch;
use crate::hash::KeyHash;
use crate::position::LogPosition;
use crate::shared::{KEY_BYTES_MAX, Shared, value_bytes_max, with_engine};
use crate::time::{Seconds, Ttl};

/// Operations queued before the writer first tries the lock.
const QUEUE_TRY: usize = 64;
/// Operations queued, at most.
const QUEUE_MAX: usize = 256;
/// Bytes of slots of a class taken at a time: several small slots, or one large one.
const REFILL_BYTES: usize = 2048;
/// The same while few pages are free. Taking one slot at a time would mean one lock per slot.
const REFILL_TIGHT_BYTES: usize = 512;
/// Slots of a class taken at a time, at most.
const REFILL_MAX: usize = 32;
/// How often a full writer tries the lock before it sleeps: as long as about a hundred operations
/// take. A sleeping writer costs the unlocking thread a system call, and wakes too late.
const LOCK_SPINS: u32 = 1000;

/// How many operations ahead lines are prefetched.
const APPLY_AHEAD: usize = 12;

/// A queued operation. Plain words, so that queueing it is a few stores.
#[derive(Debug)]
struct Operation {
    hash: KeyHash,
    /// The slot of an insert; `None` for other operations.
    slot: Option<OwnedSlot>,
    /// The time of an insert, or the new expiry of a touch.
    at: u32,
    act: Act,
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Insert(When),
    /// Its key is the next in [`Own::keys`].
    Remove,
    /// As for `Remove`.
    Touch,
}

/// One core's handle for writes.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    /// By shard.
    own: Box<[Own]>,
}

/// A writer's own state for one shard. Its methods take the shared state as an argument, so that no
/// operation counts a reference in a cache line that other cores use.
#[derive(Debug)]
struct Own {
    /// The shard's number.
    shard: usize,
    queue: VecDeque<Operation>,
    /// The keys of the queue's operations without a slot, in order.
    keys: VecDeque<Box<[u8]>>,
    /// Bytes of the slots in the queue.
    queue_bytes: usize,
    /// Free slots taken in advance, by class.
    spare: Box<[Vec<OwnedSlot>]>,
    /// Classes whose spare slots were used; more are taken when the lock is held anyway.
    wanted: Wanted,
    /// Evictions by our operations that are not reported yet.
    evicted: Batch,
    /// Whether operations report evictions; otherwise the owner does ([`Writer::take_evicted`]).
    reports: bool,
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
        let own = (shared.shards.iter().enumerate())
            .map(|(number, shard)| Own {
                shard: number,
                queue: VecDeque::with_capacity(QUEUE_MAX),
                keys: VecDeque::new(),
                queue_bytes: 0,
                spare: (0..shard.classes().count()).map(|_| Vec::new()).collect(),
                wanted: Wanted::default(),
                evicted: Batch::default(),
                reports,
            })
            .collect();
        Writer { shared: shared.clone(), own }
    }

    /// The evictions since the last call, of a writer that does not report.
    pub(crate) fn take_evicted(&mut self) -> Batch {
        let mut evicted = Batch::default();
        for own in &mut self.own {
            evicted.append(&mut own.evicted);
        }
        evicted
    }

    /// The shared state, and our own for a key's shard.
    #[inline(always)]
    fn parts(&mut self, hash: KeyHash) -> (&Shared, &mut Own) {
        let Writer { shared, own } = self;
        let own = &mut own[shared.placement.shard(hash)];
        (shared, own)
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
        self.insert_when(When::Always, hash, key, value, ttl, now)
    }

    #[inline]
    fn insert_when(
        &mut self,
        when: When,
        hash: KeyHash,
        key: &[u8],
        value: &[u8],
        ttl: Ttl,
        now: Seconds,
    ) -> Result<(), Error> {
        let (shared, own) = self.parts(hash);
        let stored = own.slot_for(shared, key, value.len(), 0).and_then(|mut slot| {
            own.shard(shared).fill(&mut slot, key, value, ttl.expires(now));
            own.enqueue(shared, hash, slot, when, now)
        });
        own.report(shared);
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
        self.insert_when(When::Absent, hash, key, value, ttl, now)
    }

    /// Stores a value and its version, unless an entry of the same or a greater version is under
    /// the key when the operation is applied. So a value that was fetched earlier never replaces
    /// one that was fetched later, whichever writer is first. No version is older than any.
    ///
    /// The caller chooses the version (a serial, a time of fetching), and it is explicit. Comparing
    /// expiry times instead would prefer an old record to a new one with a shorter TTL, which is
    /// what an operator publishes before a change. A comparison by the caller would be foreign code
    /// under the lock. The version is in the slot, in 8 bytes after the value.
    pub fn insert_if_newer(
        &mut self,
        key: &[u8],
        value: &[u8],
        version: u64,
        ttl: Ttl,
        now: Seconds,
    ) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        let (shared, own) = self.parts(hash);
        let stored = own.slot_for(shared, key, value.len(), VERSION_BYTES).and_then(|mut slot| {
            let shard = own.shard(shared);
            shard.build(&mut slot, key, value.len()).copy_from_slice(value);
            shard.finish(&mut slot, key.len(), value.len(), ttl.expires(now), Some(version));
            own.enqueue(shared, hash, slot, When::Newer, now)
        });
        own.report(shared);
        stored
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
        let (shared, own) = self.parts(hash);
        let stored = own.slot_for(shared, key, len_max, 0).and_then(|slot| {
            own.build_in(shared, hash, slot, (key, len_max), (ttl.expires(now), now), build)
        });
        own.report(shared);
        stored
    }

    /// Removes an entry, if there is one.
    pub fn remove(&mut self, key: &[u8]) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        let (shared, own) = self.parts(hash);
        let queued = own.enqueue_key(shared, hash, key, Act::Remove, 0);
        own.report(shared);
        queued
    }

    /// Sets an entry's expiry to `ttl` from `now`, if there is one. Readers see it once applied.
    pub fn touch(&mut self, key: &[u8], ttl: Ttl, now: Seconds) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        let expires = ttl.expires(now);
        let (shared, own) = self.parts(hash);
        let queued = own.enqueue_key(shared, hash, key, Act::Touch, expires);
        own.report(shared);
        queued
    }

    /// Applies and publishes all queued operations, and returns spare slots if memory is short. A
    /// reader at the returned position, or after it, shows this writer's operations. On
    /// [`Error::Stalled`] the operations not yet applied stay queued, in order.
    pub fn flush(&mut self) -> Result<LogPosition, Error> {
        let Writer { shared, own } = self;
        let mut position = LogPosition::default();
        let mut refused = None;
        // A stall in one shard does not hold up the others.
        for own in own {
            match own.flush(shared) {
                Ok(at) => position.set(own.shard, at),
                Err(error) => refused = refused.or(Some(error)),
            }
            own.report(shared);
        }
        refused.map_or(Ok(position), Err)
    }

    /// Operations queued.
    pub fn pending(&self) -> usize {
        self.own.iter().map(|own| own.queue.len()).sum()
    }
}

impl Drop for Writer {
    /// Publishes the queue; operations that a reader stalls are dropped. Flush first to find out.
    fn drop(&mut self) {
        let Writer { shared, own } = self;
        for own in own.iter_mut() {
            while let Ok(None) = own.locked(shared, |own, guard| own.apply(shared, guard)) {}
            if let Ok(mut guard) = own.shard(shared).lock() {
                for slot in own.queue.drain(..).filter_map(|operation| operation.slot) {
                    guard.parts().0.free(slot);
                }
                own.give_back(&mut guard);
            }
        }
        // Last, since the listener may panic. A writer in a lock lets its owner make the calls.
        let reports = own.iter().all(|own| own.reports);
        let mut evicted = self.take_evicted();
        if let Some(notifier) = &self.shared.notifier {
            if reports { notifier.report(&mut evicted) } else { notifier.keep(&mut evicted) }
        }
    }
}

impl Own {
    #[inline(always)]
    fn shard<'a>(&self, shared: &'a Shared) -> &'a Shard<State> {
        &shared.shards[self.shard]
    }

    fn flush(&mut self, shared: &Shared) -> Result<ShardPosition, Error> {
        loop {
            let applied = self.locked(shared, |own, guard| {
                let applied = own.apply(shared, guard);
                if with_engine(own.shard(shared), guard, |engine| engine.is_tight()) {
                    own.give_back(guard);
                }
                applied
            })?;
            if let Some(position) = applied {
                return Ok(position);
            }
            self.report(shared);
        }
    }

    /// Runs `act` under the lock. The caller reports the evictions later.
    fn locked<R>(
        &mut self,
        shared: &Shared,
        act: impl FnOnce(&mut Self, &mut Guard<'_, State>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let guard = self.shard(shared).lock()?;
        self.with_guard(guard, act)
    }

    fn with_guard<R>(
        &mut self,
        mut guard: Guard<'_, State>,
        act: impl FnOnce(&mut Self, &mut Guard<'_, State>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let result = act(self, &mut guard);
        if let Some(batch) = &mut guard.parts().1.evicted {
            self.evicted.append(batch);
        }
        result
    }

    /// Reports evictions to the listener. The writer holds no slot and no lock here.
    #[inline(always)]
    fn report(&mut self, shared: &Shared) {
        if !self.evicted.is_empty() {
            self.report_evicted(shared);
        }
    }

    #[cold]
    fn report_evicted(&mut self, shared: &Shared) {
        if let Some(notifier) = &shared.notifier
            && self.reports
        {
            notifier.report(&mut self.evicted);
        }
    }

    /// Lets `build` write the value of an insert, and queues it. A panic returns the slot.
    fn build_in(
        &mut self,
        shared: &Shared,
        hash: KeyHash,
        slot: OwnedSlot,
        (key, len_max): (&[u8], usize),
        (expires, now): (u32, Seconds),
        build: impl FnOnce(&mut Build<'_>),
    ) -> Result<(), Error> {
        let shard = self.shard(shared);
        let mut held = Held { own: self, slot: Some(slot) };
        if let Some(slot) = &mut held.slot {
            let mut value = Build { room: shard.build(slot, key, len_max), len: 0 };
            build(&mut value);
            let len = value.len;
            shard.finish(slot, key.len(), len, expires, None);
        }
        match held.slot.take() {
            Some(slot) => held.own.enqueue(shared, hash, slot, When::Always, now),
            None => Ok(()),
        }
    }

    /// Queues an insert that has room in the queue.
    #[inline(always)]
    fn enqueue(
        &mut self,
        shared: &Shared,
        hash: KeyHash,
        slot: OwnedSlot,
        when: When,
        now: Seconds,
    ) -> Result<(), Error> {
        self.queue_bytes += self.shard(shared).classes().size(slot.class());
        let act = Act::Insert(when);
        self.queue.push_back(Operation { hash, slot: Some(slot), at: now.0, act });
        self.flush_if_due(shared)
    }

    /// Queues an operation that stores nothing.
    fn enqueue_key(
        &mut self,
        shared: &Shared,
        hash: KeyHash,
        key: &[u8],
        act: Act,
        at: u32,
    ) -> Result<(), Error> {
        self.make_queue_room(shared)?;
        self.keys.push_back(key.into());
        self.queue.push_back(Operation { hash, slot: None, at, act });
        self.flush_if_due(shared)
    }

    /// Called after an operation was queued: publishes if there are enough. A stall is no failure
    /// of that operation, which stays queued; it is reported when the queue is full.
    #[inline]
    fn flush_if_due(&mut self, shared: &Shared) -> Result<(), Error> {
        if self.queue.len() < QUEUE_TRY && self.queue_bytes < shared.queue_bytes_max {
            return Ok(());
        }
        self.flush_unless_busy(shared)
    }

    #[cold]
    fn flush_unless_busy(&mut self, shared: &Shared) -> Result<(), Error> {
        let shard = self.shard(shared);
        let guard = match shard.try_lock() {
            None if self.is_full(shared) => Some(lock_soon(shard)),
            guard => guard,
        };
        let Some(guard) = guard else { return Ok(()) };
        match self.with_guard(guard?, |own, guard| own.apply(shared, guard)) {
            Ok(_) | Err(Error::Stalled { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn is_full(&self, shared: &Shared) -> bool {
        self.queue.len() >= QUEUE_MAX || self.queue_bytes >= shared.queue_bytes_max
    }

    /// Makes room in the queue for one more operation.
    #[inline]
    fn make_queue_room(&mut self, shared: &Shared) -> Result<(), Error> {
        if self.is_full(shared) {
            self.flush(shared)?;
        }
        Ok(())
    }

    /// Applies the queue in order, prefetching the lines of the operations ahead. `None`: some
    /// operations are left, because evictions must be reported first.
    fn apply(
        &mut self,
        shared: &Shared,
        guard: &mut Guard<'_, State>,
    ) -> Result<Option<ShardPosition>, Error> {
        with_engine(self.shard(shared), guard, |engine| {
            for operation in self.queue.iter().take(APPLY_AHEAD) {
                engine.prefetch(operation.hash);
            }
            while let Some(operation) = self.queue.pop_front() {
                if let Some(ahead) = self.queue.get(APPLY_AHEAD - 1) {
                    engine.prefetch(ahead.hash);
                }
                if let Some(ahead) = self.queue.get(APPLY_AHEAD / 2) {
                    engine.prefetch_way(ahead.hash);
                }
                if let Err((error, operation)) = self.apply_one(engine, operation) {
                    self.queue.push_front(operation);
                    return Err(error);
                }
                if engine.state.evicted.as_ref().is_some_and(Batch::is_full) {
                    return Ok(None);
                }
            }
            self.restock(engine);
            Ok(Some(engine.main.position()))
        })
    }

    /// Takes spare slots of the wanted classes.
    fn restock(&mut self, engine: &mut Engine<'_>) {
        for class in self.wanted.take() {
            let spare = &mut self.spare[class as usize];
            let ample = ample(engine, class);
            if spare.len() < ample {
                engine.main.alloc_many(class, ample - spare.len(), spare);
            }
        }
    }

    #[inline]
    fn apply_one(
        &mut self,
        engine: &mut Engine<'_>,
        operation: Operation,
    ) -> Result<(), (Error, Operation)> {
        let Operation { hash, slot, at, act } = operation;
        let refused =
            |stalled: Stalled, slot| Err((Error::from(stalled), Operation { hash, slot, at, act }));
        if let (Act::Insert(when), Some(slot)) = (act, slot) {
            let bytes = engine.shard.classes().size(slot.class());
            if let Err((stalled, slot)) = engine.insert(hash, slot, when, Seconds(at)) {
                return refused(stalled, Some(slot));
            }
            self.queue_bytes -= bytes;
            return Ok(());
        }
        let key = self.keys.front().expect("every operation without a slot has a key");
        match act {
            Act::Touch => _ = engine.touch(hash, key, at),
            _ => {
                if let Err(stalled) = engine.remove(hash, key) {
                    return refused(stalled, None);
                }
            }
        }
        self.keys.pop_front();
        Ok(())
    }

    /// A slot for the key, a value of `len` bytes and `extra` more, with room in the queue for it.
    #[inline]
    fn slot_for(
        &mut self,
        shared: &Shared,
        key: &[u8],
        len: usize,
        extra: usize,
    ) -> Result<OwnedSlot, Error> {
        if let Some(notifier) = &shared.notifier {
            notifier.admit_insert()?;
        }
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Error::KeyLength { bytes: key.len() });
        }
        let bytes_max = value_bytes_max(shared, key.len() + extra);
        if len > bytes_max {
            return Err(Error::ValueTooLarge { bytes: len, bytes_max });
        }
        self.make_queue_room(shared)?;
        let shard = &shared.shards[self.shard];
        let Some(class) = shard.classes().of(HEADER_BYTES + key.len() + len + extra) else {
            return Err(Error::ValueTooLarge { bytes: len, bytes_max });
        };
        let shard = self.shard(shared);
        let spare = &mut self.spare[class as usize];
        match spare.pop() {
            Some(slot) => {
                // Prefetches the next one while this one is filled.
                if let Some(next) = spare.last() {
                    shard.prefetch(next);
                }
                self.wanted.add(class);
                Ok(slot)
            }
            None => self.refill(shared, class),
        }
    }

    /// Takes slots of a class, one to use and some spare. If none is left, publishes the queue (so
    /// that it evicts), returns the spare slots of other classes, and empties a page.
    #[cold]
    fn refill(&mut self, shared: &Shared, class: u8) -> Result<OwnedSlot, Error> {
        let shard = self.shard(shared);
        loop {
            let slot = self.locked(shared, |own, guard| {
                let spare = &mut own.spare[class as usize];
                with_engine(shard, guard, |engine| {
                    engine.main.alloc_many(class, ample(engine, class), spare);
                });
                if let Some(slot) = spare.pop() {
                    return Ok(Some(slot));
                }
                let applied = own.apply(shared, guard)?;
                own.give_back(guard);
                with_engine(shard, guard, |engine| {
                    let before = engine.main.slowest();
                    if let Some(slot) = engine.alloc(class) {
                        return Ok(Some(slot));
                    }
                    match engine.main.slowest() {
                        _ if applied.is_none() => Ok(None),
                        stalled if stalled.behind > 0 => Err(stalled.into()),
                        // The reader caught up meanwhile, so its slots are free now.
                        _ if before.behind > 0 => Ok(None),
                        _ => Err(Error::Starved),
                    }
                })
            })?;
            if let Some(slot) = slot {
                // Evictions are reported after the slot is in use.
                return Ok(slot);
            }
            self.report(shared);
        }
    }

    /// Returns all spare slots.
    fn give_back(&mut self, guard: &mut Guard<'_, State>) {
        let mut main = guard.parts().0;
        for slot in self.spare.iter_mut().flat_map(|spare| spare.drain(..)) {
            main.free(slot);
        }
    }
}

/// How many spare slots of a class a writer may take now: few if pages are few.
fn ample(engine: &Engine<'_>, class: u8) -> usize {
    let bytes = if engine.is_tight() { REFILL_TIGHT_BYTES } else { REFILL_BYTES };
    (bytes / engine.shard.classes().size(class)).clamp(1, REFILL_MAX)
}

/// Takes the lock, spinning before it sleeps.
fn lock_soon(shard: &Shard<State>) -> Result<Guard<'_, State>, larder_mem::Error> {
    for _ in 0..LOCK_SPINS {
        if let Some(guard) = shard.try_lock() {
            return guard;
        }
        std::hint::spin_loop();
    }
    shard.lock()
}

/// A set of classes.
#[derive(Debug, Default)]
struct Wanted(u128);

impl Wanted {
    #[inline(always)]
    fn add(&mut self, class: u8) {
        self.0 |= 1 << class;
    }

    /// Removes its members and returns them.
    fn take(&mut self) -> impl Iterator<Item = u8> + use<> {
        let mut bits = std::mem::take(&mut self.0);
        std::iter::from_fn(move || {
            let class = bits.trailing_zeros() as u8;
            bits &= bits.wrapping_sub(1);
            (class < 128).then_some(class)
        })
    }
}

/// A slot taken for a value being built; dropping it returns the slot to the spares.
struct Held<'a> {
    own: &'a mut Own,
    slot: Option<OwnedSlot>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.own.spare[slot.class() as usize].push(slot);
        }
    }
}
