//! Leases: views of cached bytes that outlive the reader that found them, on any thread.
//!
//! A slow client may take a minute to accept a body. Its reader must sync meanwhile, or writers
//! stall, so only the slot is held. A slot of a large class has a lease count. A small value is
//! copied, because a copy costs less than the shared cache line of a count.
//!
//! ```text
//! live, count 0 -> leased -> retired -> passed by all cursors -> revoked -> last lease dropped -> free
//! by      Reader::lease   main       reclaim                              reclaim, later
//! ```
//!
//! Counts are outside the arena, not in the slots, so that taking a lease does not take the
//! header's line from readers. There is one per `lease_slot_bytes` of arena, and no two slots of at
//! least that size begin in the same part. If `lease_bytes_max` is 0 there are none.
//!
//! *Order.* `lease` adds one (Relaxed) while some cursor protects the slot; the next Release of
//! that cursor, which main reads before the count, carries it. `drop` subtracts one (Release),
//! which pairs with main's Acquire: the holder's reads are done before the slot is free.
//!
//! Cost: two read-modify-writes to take a lease and two to drop it. `lease_bytes_max` bounds the
//! bytes of all leases, copies included, and so the revoked slots too.
use crate::arena::Slot;
use crate::shard::Shard;
use crate::sync::{Arc, Ordering};

/// A hold on one entry. Its bytes do not change until this is dropped, whatever happens to the
/// entry, the reader and the shard's handles.
#[derive(Debug)]
pub struct Lease<S> {
    shard: Arc<Shard<S>>,
    held: Held,
    /// Bytes counted against the limit.
    bytes: u64,
}

#[derive(Debug)]
enum Held {
    /// The slot's count includes us.
    Slot(u32),
    Copy {
        key: Box<[u8]>,
        value: Box<[u8]>,
    },
}

impl<S> Lease<S> {
    /// Leases the entry of a view of this shard. `None` if that would exceed `lease_bytes_max`, or
    /// if the view is of another shard.
    pub(crate) fn new(shard: &Arc<Shard<S>>, slot: &Slot<'_>) -> Option<Self> {
        let id = shard.core.arena.id_of(slot)?;
        let leases = &shard.core.leases;
        let class = slot.class();
        let counts = leases.counts(class);
        let bytes = match counts {
            true => shard.core.classes.size(class),
            false => slot.key().len() + slot.value().len(),
        } as u64;
        if !leases.book(bytes) {
            return None;
        }
        let held = if counts {
            leases.count(id).fetch_add(1, Ordering::Relaxed);
            Held::Slot(id)
        } else {
            Held::Copy { key: slot.key().into(), value: slot.value().into() }
        };
        Some(Lease { shard: shard.clone(), held, bytes })
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        match &self.held {
            Held::Slot(id) => self.view(*id).key(),
            Held::Copy { key, .. } => key,
        }
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        match &self.held {
            Held::Slot(id) => self.view(*id).value(),
            Held::Copy { value, .. } => value,
        }
    }

    /// True if the value is a copy, not the slot.
    pub fn is_copy(&self) -> bool {
        matches!(self.held, Held::Copy { .. })
    }

    fn view(&self, id: u32) -> Slot<'_> {
        // SAFETY: our lease keeps the count above zero, so by I6 the slot is not freed while
        // `self`, which the view borrows, lives.
        unsafe { self.shard.core.arena.view(id) }
    }
}

impl<S> Drop for Lease<S> {
    fn drop(&mut self) {
        let leases = &self.shard.core.leases;
        if let Held::Slot(id) = self.held {
            leases.count(id).fetch_sub(1, Ordering::Release);
        }
        leases.bytes.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
