//! Memory that can be lent: one arena, one log, many readers, no lock and no shared write on a read.
//!
//! A [`Shard`] is an array of 64-byte [`Bucket`]s whose ways own *slots* of one arena. Whoever holds
//! the shard's lock ([`Guard`]) is *main*: it alone changes the authoritative array, and it writes each
//! change down in the delta log. Every core reads its own copy of the array ([`Reader`]) and brings
//! that copy forward by applying the log. A slot is immutable once published, so only the buckets are
//! copied, never the bytes they lead to.
//!
//! ```text
//! slot     free -> owned -> filled -> live ----------> retired(p) --> revoked --> free
//! who      main    writer   writer    anyone reads     main           leases     main
//! by       alloc   fill     put       replaced at p    p < min_active count 0
//! reader   absent -> active <-> parked
//! ```
//!
//! # The protocol
//!
//! `R` records, one cursor a reader, each on its own cache lines. **The log position is the only
//! clock**: no sequentially consistent access, no fence, no compare-and-swap.
//!
//! 1. *Publish.* A writer fills a slot it alone owns ([`OwnedSlot`]), outside the lock. Under the lock
//!    a record names one bucket and holds absolute values (`way := tag, slot`, `mask := value`). Records
//!    are written plain; then `tail.store(Release)`, once a batch. The mutex is the happens-before from
//!    the writer to main, `tail` the one from main to the readers.
//! 2. *Every prefix of the log is a legal index*, so a reader may stop at any position.
//! 3. *Refresh* (`&self`): `tail.load(Acquire)`, then blind stores. Slots it can now reach are fully
//!    visible. Views lead to slots, not into the copy, so they live across a refresh.
//! 4. *Sync* (`&mut self`, so the borrow checker has proved that no view of this reader is alive):
//!    refresh, then `cursor.store(applied, Release)`: "I hold no slot retired before `applied`, and
//!    shall not read log records before it."
//! 5. *Reclaim*: `min_active` is the least `cursor.load(Acquire)` over active readers, `tail` if there
//!    are none. A slot retired at `p` is free when `p < min_active` and it has no lease; the record at `p` may be
//!    overwritten then, and no earlier. The log itself is the limbo list: a record names the slot it
//!    retired.
//! 6. *Shared* readers ([`IndexMode::Shared`]) have no copy and look at main's array: they load tags and
//!    slot words atomically, main stores a slot word with Release before `tail`. The key in the slot settles
//!    what was torn; an entry that moves at that moment may be missed once. They always see the present:
//!    a refresh is nothing, and a sync stores `tail` in the cursor.
//! 7. *Park* stores `PARKED` in the cursor. *Unpark* and *register* happen under the lock: near enough,
//!    the cursor takes up `applied` again; else it takes `tail`, the array is copied in chunks, each
//!    under the lock, and the log replayed to a tail read after the last chunk.
//!
//! Invariants (`SAFETY` comments name them)
//! * **I1** A slot that a reader's copy or one of its views leads to was live at some position in
//!   `[cursor, applied]` (of a shared reader: at or after `cursor`, because its sync's Acquire of `tail`
//!   shows it every older change), so it was retired, if at all, at `p >= cursor >= min_active`, so by 5 it is
//!   not free. Everything rests on this sentence.
//! * **I2** An [`OwnedSlot`] is the only way to a slot's bytes between `alloc` and `put` or `free`.
//! * **I3** The plain bytes of a slot do not change between `put` and its return to the free list;
//!   `expires` alone does, and it is atomic.
//! * **I4** `header + key_len + value_len + version, if any, <= size of the slot's class` at all times,
//!   from `alloc` on.
//! * **I5** The record at position `p` is written only by main, only while `p >= tail` as readers see
//!   it and `p - R < min_active`; readers read it only when `cursor <= p < tail`.
//!
//! * **I6** A slot whose lease count is above zero is not freed: main looks at the count after the
//!   cursors, and the count leaves zero only while a cursor protects the slot.
//!
//! Bounds: the arena, the log (and so limbo) and the number of readers are fixed when the shard is
//! built; a reader that never syncs makes main say [`Stalled`], never grow and never wait.
//!
//! `slab` keeps objects instead of bytes under a protocol of the same kind, and stands by itself.
//!
//! [`object`] keeps bodies, which are longer than a slot and are read while they arrive: chunks of one memfd, written
//! by one, leased by many, under a protocol of its own. It shares nothing with the shard but the seam to the model
//! checker.
//!
//! `unsafe` lives in `region` (mappings), `table` (buckets), `arena` (slots), `log` (records), `slab`, `object` (its
//! mapping, its rooms and its leases), `fork` and the prefetch below; `shard`, `reader` and `lease` call those with the
//! invariant that allows it, and no other crate of the engine has any.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::disallowed_methods))]

mod arena;
mod class;
mod config;
#[cfg(all(not(loom), any(test, feature = "counting")))]
pub mod counted;
mod error;
mod fork;
mod lease;
mod leases;
mod log;
pub mod object;
mod pages;
mod reader;
mod region;
mod shard;
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
pub use lease::Lease;
pub use log::{LogPosition, RECORD_BYTES};
pub use pages::{ClassUse, PageUse};
pub use reader::{CopyView, MainView, Parked, Reader, View};
pub use region::{Memory, Region, Zeroed};
pub use shard::{Guard, Main, ReaderLag, Shard, ToMove};
#[cfg(loom)]
pub use slab::SlabFault;
pub use slab::{
    ParkedSlabReader, SLAB_ID_BYTES, SLAB_OBJECT_BYTES_MAX, Slab, SlabId, SlabReader, SlabSlot,
};
pub use table::{Bucket, Probe, TAG_BITS_LOW, WAYS};

/// Asks the CPU to bring the cache line where `value` begins. Changes nothing but time.
#[inline(always)]
pub fn prefetch_read<T>(value: &T) {
    prefetch((value as *const T).cast());
}

/// Asks the CPU to bring the cache line where `slice[index]` begins; an index past the end is ignored.
#[inline(always)]
pub fn prefetch_slice<T>(slice: &[T], index: usize) {
    if let Some(value) = slice.get(index) {
        prefetch_read(value);
    }
}

/// The same for the first `lines` cache lines of `slice[index]`.
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
    // SAFETY: a prefetch is a hint: it reads nothing into the program and never faults, whatever
    // the address; SSE is part of every x86_64.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    let _ = address;
}
