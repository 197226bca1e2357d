//! Memory that can be leased: one arena, one log, many readers. A read takes no lock and makes no
//! shared write.
//!
//! A [`Shard`] is an array of 64-byte [`Bucket`]s whose ways own *slots* of one arena. The thread
//! that holds the shard's lock ([`Guard`]) is *main*: it alone changes the authoritative array, and
//! it writes each change to the delta log. Every core reads its own replica of the array
//! ([`Reader`]) and updates it by applying the log. A slot is immutable once published, so only the
//! buckets are copied, never the bytes that they lead to.
//!
//! ```text
//! slot     free -> owned -> filled -> live ----------> retired(p) --> revoked --> free
//! owner    main    writer   writer    any reader       main           leases     main
//! by       alloc   fill     put       replaced at p    p < min_active count 0
//! reader   absent -> active <-> parked
//! ```
//!
//! # The protocol
//!
//! `R` records, one cursor per reader, each on its own cache lines. **The log position is the only
//! clock**: there is no sequentially consistent access and no compare-and-swap, and only rule
//! 6 has fences.
//!
//! 1. *Publish.* A writer fills a slot that it alone owns ([`OwnedSlot`]), outside the lock. Under
//!    the lock a record names one bucket and holds absolute values (`way := tag, slot`, `mask :=
//!    value`). Records are written plain; then `tail.store(Release)`, once per batch. The mutex is
//!    the happens-before from the writer to main, `tail` the one from main to the readers.
//! 2. *Every prefix of the log is a valid index*, so a reader may stop at any position.
//! 3. *Refresh* (`&self`): `tail.load(Acquire)`, then blind stores. Slots that become reachable are
//!    fully visible. Views refer to slots, not to the replica, so they stay valid across a refresh.
//! 4. *Sync* (`&mut self`, so the borrow checker has proved that no view of this reader is alive):
//!    refresh, then `cursor.store(applied, Release)`. It means: this reader holds no slot retired
//!    before `applied`, and will not read log records before it.
//! 5. *Reclaim*: `min_active` is the least `cursor.load(Acquire)` over active readers, `tail` if
//!    there are none. A slot retired at `p` is free when `p < min_active` and it has no lease. Only
//!    then may the record at `p` be overwritten. The log itself is the limbo list: a record names
//!    the slot that it retired.
//! 6. *Shared* readers ([`IndexMode::Shared`]) have no replica and read main's array. They load
//!    tags and slot words atomically; main stores a slot word with Release before `tail`. Comparing
//!    the key in the slot detects a torn read. Main counts the entries that it moves between ways,
//!    before and after each move, with a fence behind the first count. A search that found nothing
//!    while the count changed is repeated, since the entry may have moved from where it had yet to
//!    look to where it had looked. Shared readers always see the present: a refresh does nothing,
//!    and a sync stores `tail` in the cursor.
//! 7. *Park* stores `PARKED` in the cursor. *Unpark* and *register* happen under the lock. If
//!    `applied` is still in the log, the cursor is set to it. Otherwise the cursor is set to
//!    `tail`, the array is copied in chunks, each under the lock, and the log is replayed to a tail
//!    read after the last chunk.
//!
//! Invariants (`SAFETY` comments name them)
//! * **I1** A slot that a reader's replica or one of its views leads to was live at some position
//!   in `[cursor, applied]` (for a shared reader: at or after `cursor`, because its sync's Acquire
//!   of `tail` shows it every older change). So it was retired, if at all, at `p >= cursor >=
//!   min_active`, and by 5 it is not free. Everything depends on this.
//! * **I2** An [`OwnedSlot`] is the only access to a slot's bytes between `alloc` and `put` or
//!   `free`.
//! * **I3** The plain bytes of a slot do not change between `put` and its return to the free list;
//!   only `expires` does, and it is atomic.
//! * **I4** `header + key_len + value_len + version, if any, <= size of the slot's class` at all
//!   times, from `alloc` on.
//! * **I5** The record at position `p` is written only by main, only while `p >= tail` as readers
//!   see it and `p - R < min_active`; readers read it only when `cursor <= p < tail`.
//! * **I6** A slot whose lease count is above zero is not freed: main reads the count after the
//!   cursors, and the count increases from zero only while a cursor protects the slot.
//!
//! Bounds: the arena, the log (and so limbo) and the number of readers are fixed when the shard is
//! built. If a reader never syncs, main returns [`Stalled`]; it never grows and never waits.
//!
//! `slab` stores objects instead of bytes under a similar protocol, and is independent.
//!
//! [`object`] stores bodies, which are longer than a slot and are read while they arrive: chunks of
//! one memfd, written by one thread and leased by many, under a protocol of its own. It shares only
//! the model checker's types with the shard.
//!
//! `unsafe` is in `region` (mappings), `table` (buckets), `arena` (slots), `log` (records), `slab`,
//! `object` (its mapping, its rooms and its leases), `latch`, `fork`, `signals` and the prefetch below. `shard`,
//! `reader` and `lease` call those with the invariant that allows it, and no other crate of the
//! engine has any.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::disallowed_methods))]

mod arena;
mod class;
mod config;
#[cfg(all(not(loom), any(test, feature = "counting")))]
pub mod counted;
mod error;
mod fork;
mod latch;
mod lease;
mod leases;
mod log;
pub mod object;
mod pages;
mod reader;
mod region;
mod shard;
mod signals;
mod sizes;
mod slab;
pub mod sync;
mod table;

pub use arena::{EXPIRES_NEVER, HEADER_BYTES, OwnedSlot, Slot, VERSION_BYTES};
pub use class::{CHARGE_UNITS, CLASS_BYTES_MIN, Classes};
#[cfg(loom)]
pub use config::Fault;
pub use config::{Config, IndexMode};
pub use error::{Error, Stalled};
pub use fork::run_in_children;
pub use latch::{Latch, LatchGuard};
pub use lease::Lease;
pub use log::{LogPosition, RECORD_BYTES};
pub use pages::{ClassUse, PageUse};
pub use reader::{CopyView, MainView, Parked, Reader, View};
pub use region::{Memory, Region, Zeroed, zeroed};
pub use shard::{Guard, Main, ReaderLag, Shard, ToMove};
pub use signals::without_signals;
#[cfg(loom)]
pub use slab::SlabFault;
pub use slab::{
    ParkedSlabReader, SLAB_ID_BYTES, SLAB_OBJECT_BYTES_MAX, Slab, SlabId, SlabReader, SlabSlot,
};
pub use table::{Bucket, Probe, TAG_BITS_LOW, WAYS};

/// Prefetches the cache line where `value` begins. Changes nothing but timing.
#[inline(always)]
pub fn prefetch_read<T>(value: &T) {
    prefetch((value as *const T).cast());
}

/// Prefetches the cache line where `slice[index]` begins; an index past the end is ignored.
#[inline(always)]
pub fn prefetch_slice<T>(slice: &[T], index: usize) {
    if let Some(value) = slice.get(index) {
        prefetch_read(value);
    }
}

/// Prefetches the first `lines` cache lines of `slice[index]`.
#[inline(always)]
pub fn prefetch_lines<T>(slice: &[T], index: usize, lines: usize) {
    const LINE_BYTES: usize = 64;
    if let Some(value) = slice.get(index) {
        for line in 0..lines {
            prefetch((value as *const T).cast::<u8>().wrapping_add(line * LINE_BYTES));
        }
    }
}

#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: a prefetch is a hint: it loads nothing into the program and never faults, whatever
    // the address; SSE is part of every x86_64.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    let _ = address;
}
