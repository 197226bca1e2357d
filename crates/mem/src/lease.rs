//! Leases: views of cached bytes that outlive the reader that found them, on any thread.
//!
//! A slow client may take a minute to accept a body. Its reader must sync meanwhile, or writers stall; so
//! the slot alone is held. A slot of a large class has a lease count; what is small is copied, since a
//! copy costs less than the shared line of a count.
//!
//! ```text
//! live, count 0 -> leased -> retired -> passed by all cursors -> revoked -> last lease dropped -> free
//! by      Reader::lease   main       reclaim                              reclaim, later
//! ```
//!
//! Counts lie beside the arena, not in the slots, so that taking a lease does not take the header's line away
//! from readers: one a `lease_slot_bytes` of arena, and no two slots that large begin in the same. They
//! are not there at all where `lease_bytes_max` is 0.
//!
//! *Order.* `lease` adds one (Relaxed) while some cursor protects the slot; the next Release of that
//! cursor, which main reads before it looks at the count, carries it. `drop` takes one away (Release), which
//! pairs with main's Acquire: what the holder read is read before the slot is free.
//!
//! Cost: two read-modify-writes to take a lease and two to drop it. `lease_bytes_max` bounds what all
//! leases hold together, copies included, so it bounds the revoked slots too.
use crate::arena::Slot;
use crate::shard::Shard;
use crate::sync::{Arc, Ordering};

/// One entry, held: its bytes stay as they are until this is dropped, whatever becomes of the entry,
/// the reader and the shard's handles.
#[derive(Debug)]
pub struct Lease<S> {
    shard: Arc<Shard<S>>,
    held: Held,
    /// Bytes booked.
    bytes: u64,
}

#[derive(Debug)]
enum Held {
    /// Its count has one for us.
    Slot(u32),
    Copy {
        key: Box<[u8]>,
        value: Box<[u8]>,
    },
}

impl<S> Lease<S> {
    /// Leases what a view of this shard shows. `None`: it would be more than `lease_bytes_max`, or the
    /// view is another shard's.
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

    /// True when the value is a copy, not the slot.
    pub fn is_copy(&self) -> bool {
        matches!(self.held, Held::Copy { .. })
    }

    fn view(&self, id: u32) -> Slot<'_> {
        // SAFETY: our lease keeps the count above zero, so by I6 the slot is not freed as long as
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
