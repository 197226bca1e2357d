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

#[derive(Debug)]
enum Operation {
    Insert { hash: KeyHash, slot: OwnedSlot },
    Remove { hash: KeyHash, key: Box<[u8]> },
    Touch { hash: KeyHash, key: Box<[u8]>, expires: u32 },
}

/// One core's way to write.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
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
            queue: VecDeque::with_capacity(QUEUE_MAX),
            queue_bytes: 0,
            spare: (0..classes).map(|_| Vec::new()).collect(),
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
        let mut slot = self.slot_for(key, value.len())?;
        self.shared.shard.fill(&mut slot, key, value, ttl.expires(now));
        self.enqueue_insert(hash, slot)
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
        let slot = self.slot_for(key, len_max)?;
        let shared = self.shared.clone();
        // Should `build` panic, the slot goes back to the spare ones.
        let mut held = Held { writer: self, slot: Some(slot) };
        if let Some(slot) = &mut held.slot {
            let mut value = Build { room: shared.shard.build(slot, key, len_max), len: 0 };
            build(&mut value);
            let len = value.len;
            shared.shard.finish(slot, key.len(), len, ttl.expires(now));
        }
        match held.slot.take() {
            Some(slot) => held.writer.enqueue_insert(shared.hasher.hash(key), slot),
            None => Ok(()),
        }
    }

    /// Takes an entry out, if there is one.
    pub fn remove(&mut self, key: &[u8]) -> Result<(), Error> {
        self.make_queue_room()?;
        let hash = self.shared.hasher.hash(key);
        self.queue.push_back(Operation::Remove { hash, key: key.into() });
        self.flush_if_due()
    }

    /// Gives an entry a new end, `ttl` from `now`, if there is one. Proxies see it when it is applied,
    /// not at a log position.
    pub fn touch(&mut self, key: &[u8], ttl: Ttl, now: Seconds) -> Result<(), Error> {
        self.make_queue_room()?;
        let hash = self.shared.hasher.hash(key);
        let expires = ttl.expires(now);
        self.queue.push_back(Operation::Touch { hash, key: key.into(), expires });
        self.flush_if_due()
    }

    /// Applies and publishes everything queued. The position is the one after it: a proxy there shows
    /// this writer's operations. On [`Error::Stalled`] those not yet applied stay queued, in order.
    pub fn flush(&mut self) -> Result<LogPosition, Error> {
        let shared = self.shared.clone();
        let mut guard = shared.lock()?;
        self.apply(&mut guard)
    }

    /// Operations queued.
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    fn enqueue_insert(&mut self, hash: KeyHash, slot: OwnedSlot) -> Result<(), Error> {
        self.queue_bytes += self.slot_bytes(slot.class());
        self.queue.push_back(Operation::Insert { hash, slot });
        self.flush_if_due()
    }

    fn slot_bytes(&self, class: u8) -> usize {
        self.shared.shard.classes().size(class)
    }

    /// An operation was queued: publish if there is company. A stall is no failure of that operation,
    /// which is queued safely; it shows when the queue is full.
    #[inline]
    fn flush_if_due(&mut self) -> Result<(), Error> {
        if self.queue.len() < QUEUE_TRY && self.queue_bytes < self.shared.queue_bytes_max {
            return Ok(());
        }
        self.flush_now()
    }

    #[cold]
    fn flush_now(&mut self) -> Result<(), Error> {
        let shared = self.shared.clone();
        let must = self.queue.len() >= QUEUE_MAX || self.queue_bytes >= shared.queue_bytes_max;
        let guard = match shared.shard.try_lock() {
            None if must => Some(shared.shard.lock()),
            guard => guard,
        };
        let Some(guard) = guard else { return Ok(()) };
        match self.apply(&mut guard?) {
            Ok(_) | Err(Error::Stalled { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes sure that one more operation can be queued.
    #[inline]
    fn make_queue_room(&mut self) -> Result<(), Error> {
        if self.queue.len() >= QUEUE_MAX || self.queue_bytes >= self.shared.queue_bytes_max {
            self.flush()?;
        }
        Ok(())
    }

    fn apply(&mut self, guard: &mut Guard<'_, State>) -> Result<LogPosition, Error> {
        let shared = self.shared.clone();
        with_engine(&shared, guard, |engine| {
            while let Some(operation) = self.queue.pop_front() {
                if let Err((error, operation)) = self.apply_one(engine, operation) {
                    self.queue.push_front(operation);
                    return Err(error);
                }
            }
            Ok(engine.main.position())
        })
    }

    fn apply_one(
        &mut self,
        engine: &mut Engine<'_>,
        operation: Operation,
    ) -> Result<(), (Error, Operation)> {
        match operation {
            Operation::Insert { hash, slot } => {
                let bytes = self.slot_bytes(slot.class());
                match engine.insert(hash, slot) {
                    Ok(()) => self.queue_bytes -= bytes,
                    Err((stalled, slot)) => {
                        return Err((stalled.into(), Operation::Insert { hash, slot }));
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
    fn slot_for(&mut self, key: &[u8], len: usize) -> Result<OwnedSlot, Error> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Error::KeyLength { bytes: key.len() });
        }
        let bytes_max = value_bytes_max(&self.shared, key.len());
        if len > bytes_max {
            return Err(Error::ValueTooLarge { bytes: len, bytes_max });
        }
        self.make_queue_room()?;
        let class = self.shared.shard.classes().of(HEADER_BYTES + key.len() + len);
        let Some(class) = class else {
            return Err(Error::ValueTooLarge { bytes: len, bytes_max });
        };
        match self.spare[class as usize].pop() {
            Some(slot) => Ok(slot),
            None => self.refill(class),
        }
    }

    /// Takes slots of a class, one to use and some to spare. Where none is left, publishes what is queued
    /// (so that it evicts), gives back the spares of other classes, and empties a page.
    #[cold]
    fn refill(&mut self, class: u8) -> Result<OwnedSlot, Error> {
        let shared = self.shared.clone();
        let mut guard = shared.lock()?;
        let count = (REFILL_BYTES / self.slot_bytes(class)).clamp(1, REFILL_MAX);
        let spare = &mut self.spare[class as usize];
        with_engine(&shared, &mut guard, |engine| {
            spare.extend((0..count).map_while(|_| engine.main.alloc(class)));
        });
        if let Some(slot) = spare.pop() {
            return Ok(slot);
        }
        self.apply(&mut guard)?;
        self.give_back(&mut guard);
        with_engine(&shared, &mut guard, |engine| match engine.alloc(class) {
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

impl Drop for Writer {
    /// Publishes what is queued; what can't be, because a proxy stalls it, is dropped. Flush first to know.
    fn drop(&mut self) {
        let shared = self.shared.clone();
        let Ok(mut guard) = shared.lock() else { return };
        let _ = self.apply(&mut guard);
        for operation in self.queue.drain(..) {
            if let Operation::Insert { slot, .. } = operation {
                guard.parts().0.free(slot);
            }
        }
        self.give_back(&mut guard);
    }
}

/// A slot taken for a value being built; goes back to the spares unless it is taken out.
struct Held<'a> {
    writer: &'a mut Writer,
    slot: Option<OwnedSlot>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.writer.spare[slot.class() as usize].push(slot);
        }
    }
}
