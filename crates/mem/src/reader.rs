//! A reader: one core's replica of the buckets, or its access to main's, and the cursor that
//! protects the slots that they lead to.
//!
//! ```text
//! absent -> register -> active -> park -> parked -> unpark -> active -> drop -> absent
//! ```
//!
//! `refresh*` updates the replica (`&self`: views stay valid), `sync*` also releases retired slots
//! (`&mut self`: no view is alive). Both cost what changed, not the size of the table. A reader is
//! `Send` and not `Sync`. A forgotten active reader stalls main: safe, and visible in `Main::lags`.

use std::cell::Cell;

use crate::arena::{Arena, Slot};
#[cfg(loom)]
use crate::config::Fault;
use crate::config::IndexMode;
use crate::error::Error;
use crate::lease::Lease;
use crate::log::{LogPosition, PARKED};
use crate::region::Memory;
use crate::shard::{Guard, Shard};
use crate::sync::{Arc, Ordering};
use crate::table::{Bucket, MainTable, Probe, Table, table};

/// How many records ahead the bucket is prefetched when the log is applied.
const APPLY_AHEAD: u64 = 16;

/// One core's access to a shard.
#[derive(Debug)]
pub struct Reader<S> {
    registration: Registration<S>,
    /// Its replica; `None` for a shared reader, which reads main's.
    table: Option<Table>,
    /// The position of the replica; unused by a shared reader.
    applied: Cell<u64>,
    /// The position in the cursor.
    synced: u64,
}

/// A parked reader. It holds nothing, and does not block main.
#[derive(Debug)]
pub struct Parked<S> {
    registration: Registration<S>,
    table: Option<Table>,
    applied: u64,
}

/// The index that a reader reads.
#[derive(Debug, Clone, Copy)]
pub enum View<'a> {
    /// Its own replica.
    Copy(CopyView<'a>),
    /// Main's index.
    Main(MainView<'a>),
}

/// A reader's replica of the index, and the slots that it leads to.
#[derive(Debug, Clone, Copy)]
pub struct CopyView<'a> {
    table: &'a [Bucket],
    arena: &'a Arena,
}

/// Main's index, read outside the lock, and the slots that it leads to.
#[derive(Debug, Clone, Copy)]
pub struct MainView<'a> {
    table: &'a MainTable,
    arena: &'a Arena,
}

impl<'a> CopyView<'a> {
    /// Searches a bucket for a tag.
    #[inline(always)]
    pub fn probe(self, bucket: usize, tag_word: u16) -> Probe {
        self.table[bucket].probe(tag_word)
    }

    /// Prefetches a bucket's line.
    #[inline(always)]
    pub fn prefetch_bucket(self, bucket: usize) {
        crate::prefetch_slice(self.table, bucket);
    }

    /// Prefetches the first line of the slot that a way leads to.
    #[inline(always)]
    pub fn prefetch_slot(self, bucket: usize, way: usize) {
        self.arena.prefetch_entry(self.table[bucket].slot(way));
    }

    /// The slot that a way leads to; `None` for an empty way.
    #[inline(always)]
    pub fn slot(self, bucket: usize, way: usize) -> Option<Slot<'a>> {
        // The log clears an empty way's slot with its tag.
        let id = self.table[bucket].slot(way);
        if id == 0 {
            return None;
        }
        // SAFETY: I1: the reader's copy leads to it, and its cursor moves only in `sync` and `park`, which
        // this view's borrow of the reader excludes.
        Some(unsafe { self.arena.view(id) })
    }

    /// Sets the low bits of a way's tag in this replica; false if they already were, or the way is
    /// empty. They belong to this reader, and are zero again when main gives the way another entry,
    /// value or slot.
    #[inline(always)]
    pub fn mark(self, bucket: usize, way: usize, bits: u16) -> bool {
        // SAFETY: the replica is ours alone: the view is on the reader's thread, like the reader.
        unsafe { self.table[bucket].mark(way, bits) }
    }
}

impl<'a> MainView<'a> {
    /// How often an entry has begun or ended to move to another way: to be read before a search.
    #[inline(always)]
    pub fn moves(self) -> u64 {
        self.table.moves()
    }

    /// True if no entry moved since [`MainView::moves`] returned `before`. A search in which this
    /// is false may have missed an entry that was there all the time.
    #[inline(always)]
    pub fn is_unmoved(self, before: u64) -> bool {
        self.table.is_unmoved(before)
    }

    /// Searches a bucket for a tag.
    #[inline(always)]
    pub fn probe(self, bucket: usize, tag_word: u16) -> Probe {
        self.table.probe(bucket, tag_word)
    }

    /// Prefetches a bucket's line.
    #[inline(always)]
    pub fn prefetch_bucket(self, bucket: usize) {
        self.table.prefetch(bucket);
    }

    /// Prefetches the first line of the slot that a way leads to.
    #[inline(always)]
    pub fn prefetch_slot(self, bucket: usize, way: usize) {
        self.arena.prefetch_entry(self.table.slot(bucket, way));
    }

    /// The slot that a way leads to; `None` for an empty way.
    #[inline(always)]
    pub fn slot(self, bucket: usize, way: usize) -> Option<Slot<'a>> {
        // Main clears an empty way's slot with its tag.
        let id = self.table.slot(bucket, way);
        if id == 0 {
            return None;
        }
        // SAFETY: I1: main's index led to it at some moment since the reader's last sync, and its cursor
        // moves only in `sync` and `park`, which this view's borrow of the reader excludes.
        Some(unsafe { self.arena.view(id) })
    }
}

/// A registered cursor. Dropping it frees the cursor.
#[derive(Debug)]
struct Registration<S> {
    shard: Arc<Shard<S>>,
    reader: usize,
}

impl<S> Drop for Registration<S> {
    fn drop(&mut self) {
        self.shard.core.log.set_cursor(self.reader, PARKED, Ordering::Release);
        // A poisoned shard registers no readers, so its cursors need not be freed.
        if let Ok(mut guard) = self.shard.lock() {
            guard.parts().0.leave_reader(self.reader);
        }
    }
}

impl<S> Reader<S> {
    /// Registers a reader and updates its replica to the present.
    pub fn register(shard: &Arc<Shard<S>>) -> Result<Self, Error> {
        Reader::register_as(shard, None)
    }

    /// As [`Reader::register`], under a number that the caller chooses and that must be free;
    /// `None` for any.
    pub fn register_as(shard: &Arc<Shard<S>>, number: Option<usize>) -> Result<Self, Error> {
        let memory = Memory::new(shard.core.config.copy_bytes()).map_err(Error::Memory)?;
        Reader::register_in(&memory, shard, number)
    }

    /// As [`Reader::register_as`], with the replica in
    /// [`Config::copy_bytes`](crate::Config::copy_bytes) of the caller's mapping.
    pub fn register_in(
        memory: &Memory,
        shard: &Arc<Shard<S>>,
        number: Option<usize>,
    ) -> Result<Self, Error> {
        let table = match shard.core.config.index_mode {
            IndexMode::Replicated => Some(table(memory, shard.core.config.buckets)?),
            IndexMode::Shared => None,
        };
        let reader = shard.lock()?.parts().0.take_reader(number)?;
        let registration = Registration { shard: shard.clone(), reader };
        match table {
            Some(table) => copy_all(registration, table),
            None => share(registration),
        }
    }

    /// This reader's number, below `readers_max`.
    pub fn number(&self) -> usize {
        self.registration.reader
    }

    /// The shard it reads.
    pub fn shard(&self) -> &Arc<Shard<S>> {
        &self.registration.shard
    }

    /// The log position of this reader's replica.
    #[inline]
    pub fn position(&self) -> LogPosition {
        LogPosition(self.applied.get())
    }

    /// True if main has published more than this reader has applied. One shared load.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.registration.shard.core.log.tail() != self.applied.get()
    }

    /// True if more than half the log is reserved for this reader alone, as far as it can tell:
    /// time to sync. One shared load.
    #[inline]
    pub fn is_far_behind(&self) -> bool {
        let log = &self.registration.shard.core.log;
        log.tail() - self.synced > log.records() / 2
    }

    /// Updates the replica to the present. Views stay valid.
    #[inline]
    pub fn refresh(&self) -> LogPosition {
        self.refresh_to(LogPosition::END)
    }

    /// Updates the replica to `position`, or to the present if that comes first. Never goes back.
    #[inline]
    pub fn refresh_to(&self, position: LogPosition) -> LogPosition {
        let tail = self.registration.shard.core.log.tail();
        self.apply(tail.min(position.0));
        self.position()
    }

    /// Refreshes, and lets main reuse everything that was retired before.
    #[inline]
    pub fn sync(&mut self) -> LogPosition {
        self.sync_to(LogPosition::END)
    }

    /// As [`Reader::sync`], but not beyond `position`.
    #[inline]
    pub fn sync_to(&mut self, position: LogPosition) -> LogPosition {
        self.refresh_to(position);
        let order = match () {
            #[cfg(loom)]
            () if self.registration.shard.core.config.fault == Fault::CursorRelaxed => {
                Ordering::Relaxed
            }
            () => Ordering::Release,
        };
        // `&mut self`: no view of ours is alive, so we hold nothing retired before `applied` (I1).
        self.synced = self.applied.get();
        self.registration.shard.core.log.set_cursor(self.registration.reader, self.synced, order);
        self.position()
    }

    #[inline]
    fn apply(&self, to: u64) {
        let from = self.applied.get();
        if from >= to {
            return;
        }
        let Some(table) = &self.table else {
            self.applied.set(to);
            return;
        };
        let log = &self.registration.shard.core.log;
        for position in from..to {
            let ahead = position + APPLY_AHEAD;
            if cfg!(not(loom)) && ahead < to {
                // SAFETY: as below.
                let place = unsafe { log.read(ahead) }.place;
                crate::prefetch_slice(table, place.bucket());
            }
            // SAFETY: I5: our cursor is at most `applied <= position`, and `position < to <= tail`.
            let record = unsafe { log.read(position) };
            let line = &table[record.place.bucket()];
            let way = record.place.changed_way();
            // SAFETY: the replica is ours alone.
            unsafe { line.apply(record.mask, way, record.tag, record.slot) };
        }
        self.applied.set(to);
    }

    /// The number of buckets.
    #[inline(always)]
    pub fn buckets(&self) -> usize {
        self.registration.shard.core.table.len()
    }

    /// The index to read: decided once per lookup, so that neither kind pays for the other.
    #[inline(always)]
    pub fn view(&self) -> View<'_> {
        let core = &self.registration.shard.core;
        match &self.table {
            Some(table) => View::Copy(CopyView { table, arena: &core.arena }),
            None => View::Main(MainView { table: &core.table, arena: &core.arena }),
        }
    }

    /// The slot that a way leads to; `None` for an empty way.
    #[inline]
    pub fn slot(&self, bucket: usize, way: usize) -> Option<Slot<'_>> {
        match self.view() {
            View::Copy(view) => view.slot(bucket, way),
            View::Main(view) => view.slot(bucket, way),
        }
    }

    /// Leases the entry of a view: its bytes outlive the view, this reader and the entry. Small
    /// values are copied. `None` if leases would hold more than `lease_bytes_max`.
    pub fn lease(&self, slot: &Slot<'_>) -> Option<Lease<S>> {
        Lease::new(&self.registration.shard, slot)
    }

    /// Releases everything: a parked reader does not block main.
    pub fn park(self) -> Parked<S> {
        self.registration.shard.core.log.set_cursor(
            self.registration.reader,
            PARKED,
            Ordering::Release,
        );
        Parked { registration: self.registration, table: self.table, applied: self.applied.get() }
    }

    /// Compares the replica with main's index, if it is at main's position.
    pub fn validate(&self) -> Result<(), String> {
        let Ok(mut guard) = self.registration.shard.lock() else { return Ok(()) };
        let books = guard.books();
        if books.tail != self.applied.get() {
            return Ok(());
        }
        let Some(table) = &self.table else { return Ok(()) };
        match guard.table().iter().zip(table.iter()).position(|(main, copy)| !main.same(copy)) {
            Some(bucket) => {
                Err(format!("reader {}: bucket {bucket} differs", self.registration.reader))
            }
            None => Ok(()),
        }
    }
}

impl<S> Parked<S> {
    /// Returns to an active reader, at the present.
    pub fn unpark(self) -> Result<Reader<S>, Error> {
        let Parked { registration, table, applied } = self;
        let Some(table) = table else { return share(registration) };
        let core = &registration.shard.core;
        #[cfg(loom)]
        if core.config.fault == Fault::UnparkUnlocked {
            core.log.set_cursor(registration.reader, applied, Ordering::Release);
            let reader = Reader {
                registration,
                table: Some(table),
                applied: Cell::new(applied),
                synced: applied,
            };
            reader.refresh();
            return Ok(reader);
        }
        let mut guard = registration.shard.lock()?;
        let records = core.log.records();
        #[cfg(loom)]
        let records = records + u64::from(core.config.fault == Fault::UnparkLapped);
        if guard.books().hold_log(applied, records) {
            core.log.set_cursor(registration.reader, applied, Ordering::Release);
            drop(guard);
            let mut reader = Reader {
                registration,
                table: Some(table),
                applied: Cell::new(applied),
                synced: applied,
            };
            reader.sync();
            return Ok(reader);
        }
        drop(guard);
        copy_all(registration, table)
    }
}

/// Makes a reader use main's index from now on.
fn share<S>(registration: Registration<S>) -> Result<Reader<S>, Error> {
    #[cfg(loom)]
    if registration.shard.core.config.fault == Fault::UnparkUnlocked {
        let tail = registration.shard.core.log.tail();
        registration.shard.core.log.set_cursor(registration.reader, tail, Ordering::Release);
        return Ok(Reader { registration, table: None, applied: Cell::new(tail), synced: tail });
    }
    let mut guard = registration.shard.lock()?;
    let tail = guard.books().tail;
    // Under the lock: main frees nothing for us that it retires from here on.
    registration.shard.core.log.set_cursor(registration.reader, tail, Ordering::Release);
    drop(guard);
    Ok(Reader { registration, table: None, applied: Cell::new(tail), synced: tail })
}

/// Copies main's index in chunks, each under the lock, then replays what was written meanwhile.
fn copy_all<S>(registration: Registration<S>, table: Table) -> Result<Reader<S>, Error> {
    let core = &registration.shard.core;
    let mut start = None;
    let mut tail = 0;
    let mut done = 0;
    while done < table.len() {
        let mut guard: Guard<'_, S> = registration.shard.lock()?;
        tail = guard.books().tail;
        if start.is_none() {
            // From here on no slot that the replica will lead to is freed, and no record
            // overwritten.
            core.log.set_cursor(registration.reader, tail, Ordering::Release);
            start = Some(tail);
            // Nothing was ever published. The index is as empty as a new table, and copying it
            // would only make the system allocate memory for both.
            if tail == 0 {
                break;
            }
        }
        #[cfg(loom)]
        if core.config.fault == Fault::CopyUnheld {
            core.log.set_cursor(registration.reader, tail, Ordering::Release);
        }
        let end = table.len().min(done + core.config.copy_buckets);
        for bucket in done..end {
            table[bucket].copy_from(&guard.table()[bucket]);
        }
        done = end;
    }
    let synced = start.unwrap_or(0);
    let reader = Reader { registration, table: Some(table), applied: Cell::new(synced), synced };
    #[cfg(loom)]
    if reader.registration.shard.core.config.fault == Fault::NoReplay {
        reader.applied.set(tail);
        return Ok(reader);
    }
    // The tail as main had it at the last chunk. It was published before that lock hold began or by
    // the one before, so it is at most what `refresh_to` sees.
    reader.refresh();
    debug_assert!(reader.applied.get() >= tail);
    Ok(reader)
}
