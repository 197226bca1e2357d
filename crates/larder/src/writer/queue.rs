//! A writer's queue of operations for one shard, and the free slots that it holds.
//!
//! ```text
//! slot_for -> a slot of the writer, filled by the caller -> enqueue -> apply (under the lock, in order)
//! ```
//!
//! Invariant: the key of each queued operation without a slot is in `keys`, in the same order.
//! Cost: `enqueue` is a few stores; `apply` takes the shard's lock once for all that is queued.

use std::collections::VecDeque;

use larder_mem::{Guard, LogPosition as ShardPosition, OwnedSlot, Shard, Stalled};

use super::Build;
use crate::condition::When;
use crate::engine::{Engine, State};
use crate::error::Error;
use crate::evicted::Batch;
use crate::expiry::Ends;
use crate::hash::KeyHash;
use crate::shared::{Shared, class_for, lock_soon, with_engine};
use crate::time::Seconds;

/// Operations queued before the writer first tries the lock.
const QUEUE_TRY: usize = 64;
/// Operations queued, at most.
const QUEUE_MAX: usize = 256;

/// How many operations ahead lines are prefetched.
const APPLY_AHEAD: usize = 12;

/// A queued operation. Plain words, so that queueing it is a few stores.
#[derive(Debug)]
struct Operation {
    hash: KeyHash,
    /// The slot of an insert; `None` for other operations.
    slot: Option<OwnedSlot>,
    /// The time of the operation; of a touch, the new expiry.
    at: u32,
    act: Act,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Insert(Condition),
    /// Its key is the next in [`ShardQueue::keys`].
    Remove,
    /// As for `Remove`.
    Touch,
}

/// A [`When`] without an argument, which would make each operation longer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Condition {
    Always,
    Absent,
    Newer,
}

impl Condition {
    fn when(self) -> When<'static> {
        match self {
            Condition::Always => When::Always,
            Condition::Absent => When::Absent,
            Condition::Newer => When::Newer,
        }
    }
}

/// A writer's own state for one shard. Its methods take the shared state as an argument, so that no
/// operation counts a reference in a cache line that other cores use.
#[derive(Debug)]
pub(super) struct ShardQueue {
    /// The shard's number.
    shard: usize,
    operations: VecDeque<Operation>,
    /// The keys of the queue's operations without a slot, in order.
    keys: VecDeque<Box<[u8]>>,
    /// Bytes of the slots in the queue.
    queue_bytes: usize,
    /// Free slots taken in advance, by class.
    spare: Box<[Vec<OwnedSlot>]>,
    /// Classes whose spare slots were used; more are taken when the lock is held anyway.
    wanted: Wanted,
    /// Evictions by our operations that are not reported yet.
    pub(super) evicted: Batch,
    /// Whether operations report evictions; otherwise the owner does (`Writer::take_evicted`).
    reports: bool,
}

impl ShardQueue {
    /// Without operations and slots yet.
    pub(super) fn new(shard: usize, classes: usize, reports: bool) -> Self {
        ShardQueue {
            shard,
            operations: VecDeque::new(),
            keys: VecDeque::new(),
            queue_bytes: 0,
            spare: (0..classes).map(|_| Vec::new()).collect(),
            wanted: Wanted::default(),
            evicted: Batch::default(),
            reports,
        }
    }

    /// Its shard.
    #[inline(always)]
    pub(super) fn home<'a>(&self, shared: &'a Shared) -> &'a Shard<State> {
        &shared.shards[self.shard]
    }

    /// Frees the slots of the queued operations, and forgets them.
    pub(super) fn discard(&mut self, shared: &Shared) {
        if self.operations.is_empty() {
            return;
        }
        if let Ok(mut guard) = self.home(shared).lock() {
            self.forget_operations(&mut guard);
        }
        // In a poisoned shard the slots do not matter any more.
        self.operations.clear();
        self.keys.clear();
        self.queue_bytes = 0;
    }

    fn forget_operations(&mut self, guard: &mut Guard<'_, State>) {
        for slot in self.operations.drain(..).filter_map(|operation| operation.slot) {
            guard.parts().0.free(slot);
        }
    }

    /// Publishes the operations, and returns all slots; those that a reader stalls are dropped.
    pub(super) fn close(&mut self, shared: &Shared) {
        if self.operations.is_empty() && self.spare.iter().all(Vec::is_empty) {
            return;
        }
        while let Ok(None) = self.locked(shared, |queue, guard| queue.apply(shared, guard)) {}
        if let Ok(mut guard) = self.home(shared).lock() {
            self.forget_operations(&mut guard);
            self.give_back(&mut guard);
        }
    }

    /// The number of its shard.
    pub(super) fn shard(&self) -> usize {
        self.shard
    }

    /// Operations queued.
    pub(super) fn pending(&self) -> usize {
        self.operations.len()
    }

    /// True if its operations report evictions themselves.
    pub(super) fn reports(&self) -> bool {
        self.reports
    }

    /// Applies and publishes all, and reports evictions meanwhile. Then returns spare slots if writers own many, or
    /// if `rests` and few pages are free.
    pub(super) fn flush(&mut self, shared: &Shared, rests: bool) -> Result<ShardPosition, Error> {
        loop {
            let applied = self.locked(shared, |queue, guard| {
                let applied = queue.apply(shared, guard);
                let is_short = with_engine(queue.home(shared), guard, |engine| {
                    engine.is_hoarded() || rests && engine.is_tight()
                });
                if is_short {
                    queue.give_back(guard);
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
        let guard = lock_soon(self.home(shared))?;
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
    pub(super) fn report(&mut self, shared: &Shared) {
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
    pub(super) fn build_in(
        &mut self,
        shared: &Shared,
        hash: KeyHash,
        slot: OwnedSlot,
        (key, len_max): (&[u8], usize),
        (expires, now): (u32, Seconds),
        build: impl FnOnce(&mut Build<'_>),
    ) -> Result<(), Error> {
        let shard = self.home(shared);
        let mut held = Held { queue: self, slot: Some(slot) };
        if let Some(slot) = &mut held.slot {
            let mut value = Build { room: shard.build(slot, key, len_max), len: 0 };
            build(&mut value);
            let len = value.len;
            shard.finish(slot, key.len(), len, expires, None);
        }
        match held.slot.take() {
            Some(slot) => held.queue.enqueue(shared, hash, slot, Condition::Always, now),
            None => Ok(()),
        }
    }

    /// Queues an insert that has room in the queue.
    #[inline(always)]
    pub(super) fn enqueue(
        &mut self,
        shared: &Shared,
        hash: KeyHash,
        slot: OwnedSlot,
        condition: Condition,
        now: Seconds,
    ) -> Result<(), Error> {
        self.queue_bytes += self.home(shared).classes().size(slot.class());
        let act = Act::Insert(condition);
        self.operations.push_back(Operation { hash, slot: Some(slot), at: now.0, act });
        self.flush_if_due(shared)
    }

    /// Queues an operation that stores nothing.
    pub(super) fn enqueue_key(
        &mut self,
        shared: &Shared,
        hash: KeyHash,
        key: &[u8],
        act: Act,
        at: u32,
    ) -> Result<(), Error> {
        self.make_queue_room(shared)?;
        self.keys.push_back(key.into());
        self.operations.push_back(Operation { hash, slot: None, at, act });
        self.flush_if_due(shared)
    }

    /// Called after an operation was queued: publishes if there are enough. A stall is no failure
    /// of that operation, which stays queued; it is reported when the queue is full.
    #[inline]
    fn flush_if_due(&mut self, shared: &Shared) -> Result<(), Error> {
        if self.operations.len() < QUEUE_TRY && self.queue_bytes < shared.queue_bytes_max {
            return Ok(());
        }
        self.flush_unless_busy(shared)
    }

    #[cold]
    fn flush_unless_busy(&mut self, shared: &Shared) -> Result<(), Error> {
        let shard = self.home(shared);
        let guard = match shard.try_lock() {
            None if self.is_full(shared) => Some(lock_soon(shard)),
            guard => guard,
        };
        let Some(guard) = guard else { return Ok(()) };
        match self.with_guard(guard?, |queue, guard| queue.apply(shared, guard)) {
            Ok(_) | Err(Error::Stalled { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn is_full(&self, shared: &Shared) -> bool {
        self.operations.len() >= QUEUE_MAX || self.queue_bytes >= shared.queue_bytes_max
    }

    /// Makes room in the queue for one more operation.
    #[inline]
    fn make_queue_room(&mut self, shared: &Shared) -> Result<(), Error> {
        if self.is_full(shared) {
            self.flush(shared, false)?;
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
        with_engine(self.home(shared), guard, |engine| {
            for operation in self.operations.iter().take(APPLY_AHEAD) {
                engine.prefetch(operation.hash);
            }
            if let [operation] = self.operations.as_slices().0 {
                engine.prefetch_way(operation.hash);
            }
            while let Some(operation) = self.operations.pop_front() {
                if let Some(ahead) = self.operations.get(APPLY_AHEAD - 1) {
                    engine.prefetch(ahead.hash);
                }
                if let Some(ahead) = self.operations.get(APPLY_AHEAD / 2) {
                    engine.prefetch_way(ahead.hash);
                }
                if let Err((error, operation)) = self.apply_one(engine, operation) {
                    self.operations.push_front(operation);
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

    /// Takes spare slots of the wanted classes that have few. Their lines are fetched together, so
    /// a writer that applies each operation alone does not wait for one each time.
    fn restock(&mut self, engine: &mut Engine<'_>) {
        for class in self.wanted.take() {
            let spare = &mut self.spare[class as usize];
            let ample = engine.ample(class);
            if spare.len() <= ample / 2 {
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
        if let (Act::Insert(condition), Some(slot)) = (act, slot) {
            let bytes = engine.shard.classes().size(slot.class());
            if let Err((stalled, slot)) = engine.insert(hash, slot, condition.when(), Seconds(at)) {
                return refused(stalled, Some(slot));
            }
            self.queue_bytes -= bytes;
            return Ok(());
        }
        let key = self.keys.front().expect("every operation without a slot has a key");
        if let Act::Touch = act {
            engine.touch(hash, key, at);
        } else if let Err(stalled) = engine.remove(hash, key, When::Always, Seconds(at)) {
            return refused(stalled, None);
        }
        self.keys.pop_front();
        Ok(())
    }

    /// A slot for the key, a value of `len` bytes and its end, with room in the queue for it.
    #[inline]
    pub(super) fn slot_for(
        &mut self,
        shared: &Shared,
        key: &[u8],
        len: usize,
        ends: Ends,
    ) -> Result<OwnedSlot, Error> {
        let class = class_for(shared, key, len, ends)?;
        self.make_queue_room(shared)?;
        let shard = self.home(shared);
        let spare = &mut self.spare[class as usize];
        let slot = match spare.pop() {
            Some(slot) => {
                // Prefetches the next one while this one is filled.
                if let Some(next) = spare.last() {
                    shard.prefetch(next);
                }
                self.wanted.add(class);
                slot
            }
            None => self.refill(shared, class)?,
        };
        // Last: an insert that found no room is tried again, and counts once.
        match shared.admit_insert() {
            Ok(()) => Ok(slot),
            Err(error) => {
                self.spare[class as usize].push(slot);
                Err(error)
            }
        }
    }

    /// Takes slots of a class, one to use and some spare. If none is left, publishes the queue (so
    /// that it evicts), returns the spare slots of other classes, and empties a page.
    #[cold]
    fn refill(&mut self, shared: &Shared, class: u8) -> Result<OwnedSlot, Error> {
        let shard = self.home(shared);
        loop {
            let slot = self.locked(shared, |queue, guard| {
                let spare = &mut queue.spare[class as usize];
                with_engine(shard, guard, |engine| {
                    engine.main.alloc_many(class, engine.ample(class), spare);
                });
                if let Some(slot) = spare.pop() {
                    return Ok(Some(slot));
                }
                let applied = queue.apply(shared, guard)?;
                queue.give_back(guard);
                match with_engine(shard, guard, |engine| engine.alloc(class)) {
                    Err(_) if applied.is_none() => Ok(None),
                    slot => slot.map(Some),
                }
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
    queue: &'a mut ShardQueue,
    slot: Option<OwnedSlot>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.queue.spare[slot.class() as usize].push(slot);
        }
    }
}
