//! A writer: one core's way to write. Slots are filled outside the lock, published in batches under it.
//!
//! ```text
//! insert -> queued (private, in a slot that the writer owns) -> applied (by flush, in order) -> seen by proxies
//! ```
//!
//! Up to 32 operations wait for company; then the writer publishes them if the lock is free, and waits for
//! it only when 256 are queued (BP-Wrapper, ICDE 2009). `flush` publishes at once. An operation never
//! waits for a proxy: it is taken, or refused with nothing changed. One writer's operations are applied in
//! its order; between writers there is no order but the callers' own.

use std::collections::VecDeque;
use std::sync::Arc;

use larder_mem::{Guard, HEADER_BYTES, LogPosition, OwnedSlot};

use crate::build::KEY_BYTES_MAX;
use crate::cache::{Shared, value_bytes_max, with_engine};
use crate::engine::{Engine, State};
use crate::error::Error;
use crate::hash::KeyHash;
use crate::time::{Seconds, Ttl};

/// Operations queued before the writer first looks for the lock.
const QUEUE_TRY: usize = 32;
/// Operations queued at most.
const QUEUE_MAX: usize = 256;
/// Octets of slots taken at a time: small slots by the handful, large ones one by one.
const REFILL_BYTES: usize = 2048;
/// Slots taken at a time at most.
const REFILL_MAX: usize = 16;

/// Operations whose lines are fetched before their turn.
const APPLY_AHEAD: usize = 12;

#[derive(Debug)]
enum Operation {
    Insert { hash: KeyHash, slot: OwnedSlot, now: Seconds },
    Remove { hash: KeyHash, key: Box<[u8]> },
    Touch { hash: KeyHash, key: Box<[u8]>, expires: u32 },
}

impl Operation {
    #[inline]
    fn hash(&self) -> KeyHash {
        match self {
            Operation::Insert { hash, .. }
            | Operation::Remove { hash, .. }
            | Operation::Touch { hash, .. } => *hash,
        }
    }
}

/// One core's way to write.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    own: Own,
}

/// What a writer alone holds. Its methods are given what is shared, so that no operation has to count a
/// reference on a line that other cores use.
#[derive(Debug)]
struct Own {
    queue: VecDeque<Operation>,
    /// Octets of the slots in the queue.
    queue_bytes: usize,
    /// Free slots taken ahead, by class.
    spare: Box<[Vec<OwnedSlot>]>,
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

    /// The next `len` octets of the value, to be written by the caller (they hold leftovers until
    /// then); `None` when so many do not fit.
    #[inline]
    pub fn spare(&mut self, len: usize) -> Option<&mut [u8]> {
        let start = self.len;
        let room = self.room.get_mut(start..start.checked_add(len)?)?;
        self.len += len;
        Some(room)
    }

    /// Octets of the value so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True while nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Writer {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let classes = shared.shard.classes().count();
        Writer {
            shared: shared.clone(),
            own: Own {
                queue: VecDeque::with_capacity(QUEUE_MAX),
                queue_bytes: 0,
                spare: (0..classes).map(|_| Vec::new()).collect(),
            },
        }
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
        let Writer { shared, own } = self;
        let mut slot = own.slot_for(shared, key, value.len())?;
        shared.shard.fill(&mut slot, key, value, ttl.expires(now));
        own.enqueue_insert(shared, hash, slot, now)
    }

    /// Stores a value that `build` writes, at most `len_max` octets, straight into its final place. The
    /// value's length is what was written. No lock is held while `build` runs.
    pub fn insert_with(
        &mut self,
        key: &[u8],
        len_max: usize,
        ttl: Ttl,
        now: Seconds,
        build: impl FnOnce(&mut Build<'_>),
    ) -> Result<(), Error> {
        let Writer { shared, own } = self;
        let slot = own.slot_for(shared, key, len_max)?;
        // Should `build` panic, the slot goes back to the spare ones.
        let mut held = Held { own, slot: Some(slot) };
        if let Some(slot) = &mut held.slot {
            let mut value = Build { room: shared.shard.build(slot, key, len_max), len: 0 };
            build(&mut value);
            let len = value.len;
            shared.shard.finish(slot, key.len(), len, ttl.expires(now));
        }
        match held.slot.take() {
            Some(slot) => held.own.enqueue_insert(shared, shared.hasher.hash(key), slot, now),
            None => Ok(()),
        }
    }

    /// Takes an entry out, if there is one.
    pub fn remove(&mut self, key: &[u8]) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        self.enqueue(Operation::Remove { hash, key: key.into() })
    }

    /// Gives an entry a new end, `ttl` from `now`, if there is one. Proxies see it when it is applied,
    /// not at a log position.
    pub fn touch(&mut self, key: &[u8], ttl: Ttl, now: Seconds) -> Result<(), Error> {
        let hash = self.shared.hasher.hash(key);
        let expires = ttl.expires(now);
        self.enqueue(Operation::Touch { hash, key: key.into(), expires })
    }

    fn enqueue(&mut self, operation: Operation) -> Result<(), Error> {
        let Writer { shared, own } = self;
        own.make_queue_room(shared)?;
        own.queue.push_back(operation);
        own.flush_if_due(shared)
    }

    /// Applies and publishes everything queued; gives spare slots back where memory is short. The
    /// position is the one after it: a proxy there shows this writer's operations. On
    /// [`Error::Stalled`] those not yet applied stay queued, in order.
    pub fn flush(&mut self) -> Result<LogPosition, Error> {
        self.own.flush(&self.shared)
    }

    /// Operations queued.
    pub fn pending(&self) -> usize {
        self.own.queue.len()
    }
}

impl Drop for Writer {
    /// Publishes what is queued; what can't be, because a proxy stalls it, is dropped. Flush first to know.
    fn drop(&mut self) {
        let Writer { shared, own } = self;
        let Ok(mut guard) = shared.lock() else { return };
        let _ = own.apply(shared, &mut guard);
        for operation in own.queue.drain(..) {
            if let Operation::Insert { slot, .. } = operation {
                guard.parts().0.free(slot);
            }
        }
        own.give_back(&mut guard);
    }
}

impl Own {
    fn flush(&mut self, shared: &Shared) -> Result<LogPosition, Error> {
        let mut guard = shared.lock()?;
        let applied = self.apply(shared, &mut guard);
        if with_engine(shared, &mut guard, |engine| engine.is_tight()) {
            self.give_back(&mut guard);
        }
        applied
    }

    #[inline]
    fn enqueue_insert(
        &mut self,
        shared: &Shared,
        hash: KeyHash,
        slot: OwnedSlot,
        now: Seconds,
    ) -> Result<(), Error> {
        self.queue_bytes += shared.shard.classes().size(slot.class());
        self.queue.push_back(Operation::Insert { hash, slot, now });
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
        let guard = match shared.shard.try_lock() {
            None if self.is_full(shared) => Some(shared.shard.lock()),
            guard => guard,
        };
        let Some(guard) = guard else { return Ok(()) };
        match self.apply(shared, &mut guard?) {
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

    /// Applies the queue in order, with the lines of the operations ahead on their way.
    fn apply(
        &mut self,
        shared: &Shared,
        guard: &mut Guard<'_, State>,
    ) -> Result<LogPosition, Error> {
        with_engine(shared, guard, |engine| {
            for operation in self.queue.iter().take(APPLY_AHEAD) {
                engine.prefetch(operation.hash());
            }
            while let Some(operation) = self.queue.pop_front() {
                if let Some(ahead) = self.queue.get(APPLY_AHEAD - 1) {
                    engine.prefetch(ahead.hash());
                }
                if let Some(ahead) = self.queue.get(APPLY_AHEAD / 2) {
                    engine.prefetch_slot(ahead.hash());
                }
                if let Err((error, operation)) = self.apply_one(shared, engine, operation) {
                    self.queue.push_front(operation);
                    return Err(error);
                }
            }
            Ok(engine.main.position())
        })
    }

    fn apply_one(
        &mut self,
        shared: &Shared,
        engine: &mut Engine<'_>,
        operation: Operation,
    ) -> Result<(), (Error, Operation)> {
        match operation {
            Operation::Insert { hash, slot, now } => {
                let bytes = shared.shard.classes().size(slot.class());
                match engine.insert(hash, slot, now) {
                    Ok(()) => self.queue_bytes -= bytes,
                    Err((stalled, slot)) => {
                        return Err((stalled.into(), Operation::Insert { hash, slot, now }));
                    }
                }
            }
            Operation::Remove { hash, key } => {
                if let Err(stalled) = engine.remove(hash, &key) {
                    return Err((stalled.into(), Operation::Remove { hash, key }));
                }
            }
            Operation::Touch { hash, key, expires } => {
                engine.touch(hash, &key, expires);
            }
        }
        Ok(())
    }

    /// A slot that holds the key and a value of `len` octets, and room in the queue for it.
    #[inline]
    fn slot_for(&mut self, shared: &Shared, key: &[u8], len: usize) -> Result<OwnedSlot, Error> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Error::KeyLength { bytes: key.len() });
        }
        let bytes_max = value_bytes_max(shared, key.len());
        if len > bytes_max {
            return Err(Error::ValueTooLarge { bytes: len, bytes_max });
        }
        self.make_queue_room(shared)?;
        let Some(class) = shared.shard.classes().of(HEADER_BYTES + key.len() + len) else {
            return Err(Error::ValueTooLarge { bytes: len, bytes_max });
        };
        match self.spare[class as usize].pop() {
            Some(slot) => Ok(slot),
            None => self.refill(shared, class),
        }
    }

    /// Takes slots of a class, one to use and some to spare. Where none is left, publishes what is queued
    /// (so that it evicts), gives back the spares of other classes, and empties a page.
    #[cold]
    fn refill(&mut self, shared: &Shared, class: u8) -> Result<OwnedSlot, Error> {
        let mut guard = shared.lock()?;
        let ample = (REFILL_BYTES / shared.shard.classes().size(class)).clamp(1, REFILL_MAX);
        let spare = &mut self.spare[class as usize];
        with_engine(shared, &mut guard, |engine| {
            let count = if engine.is_tight() { 1 } else { ample };
            spare.extend((0..count).map_while(|_| engine.main.alloc(class)));
        });
        if let Some(slot) = spare.pop() {
            return Ok(slot);
        }
        self.apply(shared, &mut guard)?;
        self.give_back(&mut guard);
        with_engine(shared, &mut guard, |engine| match engine.alloc(class) {
            Some(slot) => Ok(slot),
            None => match engine.main.slowest() {
                stalled if stalled.behind > 0 => Err(stalled.into()),
                _ => Err(Error::Starved),
            },
        })
    }

    /// Gives all spare slots back.
    fn give_back(&mut self, guard: &mut Guard<'_, State>) {
        let mut main = guard.parts().0;
        for slot in self.spare.iter_mut().flat_map(|spare| spare.drain(..)) {
            main.free(slot);
        }
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
