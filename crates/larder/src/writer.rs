//! A writer: one core's way to write. Slots are filled outside the lock, published in batches under it.
//!
//! ```text
//! insert -> queued (private, in a slot that the writer owns) -> applied (by flush, in order) -> seen by readers
//! ```
//!
//! Up to 64 operations wait for company; then the writer publishes them if the lock is free, and waits for
//! it only when 256 are queued (BP-Wrapper, ICDE 2009). `flush` publishes at once. An operation never
//! waits for a reader: it is taken, or refused with nothing changed. One writer's operations are applied in
//! its order; between writers there is no order but the callers' own.

use std::collections::VecDeque;
use std::sync::Arc;

use larder_mem::{
    Guard, HEADER_BYTES, LogPosition as ShardPosition, OwnedSlot, Shard, Stalled, VERSION_BYTES,
};

use crate::build::KEY_BYTES_MAX;
use crate::cache::{Shared, value_bytes_max, with_engine};
use crate::engine::{Engine, State, When};
use crate::error::Error;
use crate::evicted::Batch;
use crate::hash::KeyHash;
use crate::position::LogPosition;
use crate::time::{Seconds, Ttl};

/// Operations queued before the writer first looks for the lock.
const QUEUE_TRY: usize = 64;
/// Operations queued at most.
const QUEUE_MAX: usize = 256;
/// Bytes of slots of a class taken at a time: small slots by the handful, large ones one by one.
const REFILL_BYTES: usize = 2048;
/// The same while few pages are free. One by one would mean the lock for each slot.
const REFILL_TIGHT_BYTES: usize = 512;
/// Slots of a class taken at a time at most.
const REFILL_MAX: usize = 32;
/// How often a full writer asks for the lock before it goes to sleep: as long as some hundred operations take. A
/// sleeper costs whoever unlocks a system call, and comes back too late to find the lock free.
const LOCK_SPINS: u32 = 1000;

/// Operations whose lines are fetched before their turn.
const APPLY_AHEAD: usize = 12;

/// An operation that waits. Plain words, so that queueing one is a few stores.
#[derive(Debug)]
struct Operation {
    hash: KeyHash,
    /// What an insert stores; nothing for the others.
    slot: Option<OwnedSlot>,
    /// An insert's time, a touch's end.
    at: u32,
    act: Act,
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Insert(When),
    /// Its key is the next in [`Own::keys`].
    Remove,
    /// Likewise.
    Touch,
}

/// One core's way to write.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    /// By shard.
    own: Box<[Own]>,
}

/// What a writer alone holds, of one shard. Its methods are given what is shared, so that no operation has to count a
/// reference on a line that other cores use.
#[derive(Debug)]
struct Own {
    /// The shard's number.
    shard: usize,
    queue: VecDeque<Operation>,
    /// The keys of the queue's operations without a slot, in order.
    keys: VecDeque<Box<[u8]>>,
    /// Bytes of the slots in the queue.
    queue_bytes: usize,
    /// Free slots taken ahead, by class.
    spare: Box<[Vec<OwnedSlot>]>,
    /// Classes that spare slots were used of: more are taken when the lock is held anyway.
    wanted: Wanted,
    /// What our operations evicted and the listener was not told yet.
    evicted: Batch,
    /// Operations end by telling it; else whoever has the writer does, by [`Writer::take_evicted`].
    reports: bool,
}

/// A value being built in its final place. See [`Writer::insert_with`].
#[derive(Debug)]
pub struct Build<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl Build<'_> {
    /// Appends `bytes`; false, and nothing appended, when they do not fit.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.room.get_mut(self.len..self.len + bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        true
    }

    /// The next `len` bytes of the value, to be written by the caller (they hold leftovers until
    /// then); `None` when so many do not fit.
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

    /// True while nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Writer {
    /// One whose operations end with calls of the listener, unless they are left to the caller (who has the writer
    /// behind a lock, which the listener may want).
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

    /// What its operations evicted since it was taken last, for a writer that does not report.
    pub(crate) fn take_evicted(&mut self) -> Batch {
        let mut evicted = Batch::default();
        for own in &mut self.own {
            evicted.append(&mut own.evicted);
        }
        evicted
    }

    /// What is shared, and what is our own of a key's shard.
    #[inline(always)]
    fn parts(&mut self, hash: KeyHash) -> (&Shared, &mut Own) {
        let Writer { shared, own } = self;
        let own = &mut own[shared.placement.shard(hash)];
        (shared, own)
    }

    /// Stores a value under a key, in the place of an older one. Refused, nothing was changed.
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

    /// As [`Writer::insert`], for a key hashed before.
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

    /// Stores a value where none lives under the key when the operation is applied; one past its end
    /// does not count, stale window or not. Whether it was stored shows in a reader afterwards, and in
    /// [`crate::Stats::refused`].
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

    /// Stores a value and its version, unless an entry of the same or a greater version lives under
    /// the key when the operation is applied: so what was fetched earlier never replaces what was fetched
    /// later, whichever writer comes first. An entry stored without a version is older than any.
    ///
    /// The version is the caller's (a serial, a time of fetching) and explicit: comparing ends of life
    /// instead would keep an old record alive against a new one with a shorter TTL, which is just what
    /// an operator publishes before a change; and a comparison of the caller's would be foreign code under
    /// the lock. It lies in the slot, 8 bytes after the value; other entries do not pay for it.
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

    /// Stores a value that `build` writes, at most `len_max` bytes, straight into its final place. The
    /// value's length is what was written. No lock is held while `build` runs.
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

    /// Takes an entry out, if there is one.
    pub fn remove(&mut self, key: &[u8]) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        let (shared, own) = self.parts(hash);
        let queued = own.enqueue_key(shared, hash, key, Act::Remove, 0);
        own.report(shared);
        queued
    }

    /// Gives an entry a new end, `ttl` from `now`, if there is one. Readers see it when it is applied,
    /// not at a log position.
    pub fn touch(&mut self, key: &[u8], ttl: Ttl, now: Seconds) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        let expires = ttl.expires(now);
        let (shared, own) = self.parts(hash);
        let queued = own.enqueue_key(shared, hash, key, Act::Touch, expires);
        own.report(shared);
        queued
    }

    /// Applies and publishes everything queued; gives spare slots back where memory is short. The
    /// position is the one after it: a reader there shows this writer's operations. On
    /// [`Error::Stalled`] those not yet applied stay queued, in order.
    pub fn flush(&mut self) -> Result<LogPosition, Error> {
        let Writer { shared, own } = self;
        let mut position = LogPosition::default();
        let mut refused = None;
        // A stall in one shard is no reason to keep the others waiting.
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
    /// Publishes what is queued; what can't be, because a reader stalls it, is dropped. Flush first to know.
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
        // Last, since the listener may panic. Others call it where this writer may not.
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

    /// Runs `act` under the lock. What that evicted is to be reported when nothing is in hand that a panic would lose.
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

    /// Tells the listener what was evicted. No slot is in hand, and no lock.
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

    /// Has `build` write the value of an insert, and queues it. Should that panic, the slot goes back to the spare ones.
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

    /// Queues an insert that room was made for.
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

    /// An operation was queued: publish if there is company. A stall is no failure of that operation,
    /// which is queued safely; it shows when the queue is full.
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

    /// Makes sure that one more operation can be queued.
    #[inline]
    fn make_queue_room(&mut self, shared: &Shared) -> Result<(), Error> {
        if self.is_full(shared) {
            self.flush(shared)?;
        }
        Ok(())
    }

    /// Applies the queue in order, with the lines of the operations ahead on their way. `None`: operations
    /// are left, because the listener must be told first what the others evicted.
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

    /// Takes spare slots of the classes that want some.
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

    /// A slot that holds the key, a value of `len` bytes and `extra` more, and room in the queue for it.
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
                // The next one's lines come while this one is filled.
                if let Some(next) = spare.last() {
                    shard.prefetch(next);
                }
                self.wanted.add(class);
                Ok(slot)
            }
            None => self.refill(shared, class),
        }
    }

    /// Takes slots of a class, one to use and some to spare. Where none is left, publishes what is queued
    /// (so that it evicts), gives back the spares of other classes, and empties a page.
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
                        // It caught up meanwhile: what it let go of is there to be had now.
                        _ if before.behind > 0 => Ok(None),
                        _ => Err(Error::Starved),
                    }
                })
            })?;
            if let Some(slot) = slot {
                // What that evicted is reported when the slot has gone its way.
                return Ok(slot);
            }
            self.report(shared);
        }
    }

    /// Gives all spare slots back.
    fn give_back(&mut self, guard: &mut Guard<'_, State>) {
        let mut main = guard.parts().0;
        for slot in self.spare.iter_mut().flat_map(|spare| spare.drain(..)) {
            main.free(slot);
        }
    }
}

/// How many spare slots of a class a writer may take now: few where pages are few.
fn ample(engine: &Engine<'_>, class: u8) -> usize {
    let bytes = if engine.is_tight() { REFILL_TIGHT_BYTES } else { REFILL_BYTES };
    (bytes / engine.shard.classes().size(class)).clamp(1, REFILL_MAX)
}

/// The lock, first without sleeping.
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

    /// Its members, which leave it.
    fn take(&mut self) -> impl Iterator<Item = u8> + use<> {
        let mut bits = std::mem::take(&mut self.0);
        std::iter::from_fn(move || {
            let class = bits.trailing_zeros() as u8;
            bits &= bits.wrapping_sub(1);
            (class < 128).then_some(class)
        })
    }
}

/// A slot taken for a value being built; goes back to the spares unless it is taken out.
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
