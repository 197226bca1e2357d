//! The state that all handles, readers and writers of a cache share.

use std::sync::Arc;

use larder_mem::sync::CacheLines;
use larder_mem::{Guard, HEADER_BYTES, Shard, VERSION_BYTES};
use parking_lot::Mutex;

use crate::engine::{Engine, Limits, State};
use crate::error::Error;
use crate::evicted::{Batch, Notifier};
use crate::expiry::Ends;
use crate::hash::Hasher;
use crate::index::Placement;
use crate::lookups::PublishedLookups;
use crate::time::SyncMode;

/// The longest value of any cache, in bytes, whatever its budget.
pub const VALUE_BYTES_MAX: usize = 32 << 10;

/// Pauses of a thread that tries to get a lock, before it sleeps: as long as about a hundred
/// operations on short values take. A thread that sleeps costs the unlocking one a system call, and
/// wakes too late.
const LOCK_PAUSES: u32 = 1000;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 255;

/// The state that all handles, readers and writers of a cache share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// By [`Placement::shard`].
    pub shards: Box<[Arc<Shard<State>>]>,
    pub placement: Placement,
    pub hasher: Hasher,
    pub budget: u64,
    pub limits: Limits,
    /// Seconds after its expiry in which an entry can still be looked up.
    pub stale: u32,
    pub sync: SyncMode,
    /// Reports evictions to the listener.
    pub notifier: Option<Notifier>,
    /// Bytes of the largest entry, header included.
    pub slot_bytes_max: usize,
    /// Bytes that a writer may hold in unpublished slots.
    pub queue_bytes_max: usize,
    /// Log records per report epoch, as a power of two; `None` if reads are not reported.
    pub report_shift: Option<u32>,
    pub lookups: Box<[CacheLines<PublishedLookups>]>,
    /// Which reader numbers are taken. A reader has the same number in every shard.
    pub reader_ids: Mutex<Box<[bool]>>,
}

impl Shared {
    /// An empty batch for what operations evict.
    pub fn batch(&self) -> Batch {
        if self.notifier.is_some() { Batch::reused() } else { Batch::default() }
    }

    /// Checks whether an insert may begin: always, except too often from within the listener.
    #[inline]
    pub fn admit_insert(&self) -> Result<(), Error> {
        self.notifier.as_ref().map_or(Ok(()), Notifier::admit_insert)
    }
}

/// Runs `act` on main and the engine's state, under a lock that the caller holds.
pub(crate) fn with_engine<R>(
    shard: &Shard<State>,
    guard: &mut Guard<'_, State>,
    act: impl FnOnce(&mut Engine<'_>) -> R,
) -> R {
    let (main, state) = guard.parts();
    act(&mut Engine { shard, main, state })
}

pub(crate) fn value_bytes_max(shared: &Shared, key_len: usize) -> usize {
    let room = shared.slot_bytes_max.saturating_sub(HEADER_BYTES + key_len);
    room.min(VALUE_BYTES_MAX)
}

/// The size class of an entry with a value of `len` bytes.
#[inline]
pub(crate) fn class_for(shared: &Shared, key: &[u8], len: usize, ends: Ends) -> Result<u8, Error> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Error::KeyLength { bytes: key.len() });
    }
    let extra = if ends.version.is_some() { VERSION_BYTES } else { 0 };
    let bytes_max = value_bytes_max(shared, key.len() + extra);
    let too_large = Error::ValueTooLarge { bytes: len, bytes_max };
    if len > bytes_max {
        return Err(too_large);
    }
    // All shards have the same classes.
    shared.shards[0].classes().of(HEADER_BYTES + key.len() + len + extra).ok_or(too_large)
}

/// Takes a shard's lock, spinning before it sleeps.
#[inline]
pub(crate) fn lock_soon(shard: &Shard<State>) -> Result<Guard<'_, State>, larder_mem::Error> {
    shard.try_lock().unwrap_or_else(|| spin_for(shard))
}

/// Looks at the lock less and less often: each look takes its line from the thread that holds it.
#[cold]
fn spin_for(shard: &Shard<State>) -> Result<Guard<'_, State>, larder_mem::Error> {
    const PAUSES_AT_ONCE: u32 = 32;
    let (mut paused, mut pauses) = (0, 1);
    while paused < LOCK_PAUSES {
        for _ in 0..pauses {
            std::hint::spin_loop();
        }
        if let Some(guard) = shard.try_lock() {
            return guard;
        }
        paused += pauses;
        pauses = (2 * pauses).min(PAUSES_AT_ONCE);
    }
    shard.lock()
}
