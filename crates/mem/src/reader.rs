//! A reader: one core's copy of the buckets, and the cursor that protects what it leads to.
//!
//! ```text
//! absent -> register -> active -> park -> parked -> unpark -> active -> drop -> absent
//! ```
//!
//! `refresh*` moves the copy forward (`&self`: views stay valid), `sync*` also lets go of what was
//! retired (`&mut self`: no view is alive). Both cost what changed, not the size of the table. A reader
//! is `Send` and not `Sync`. A forgotten active reader stalls main: safe, and visible in `Main::lags`.

use std::cell::Cell;

use crate::arena::Slot;
use crate::log::{LogPosition, PARKED, WAY_NONE};
use crate::region::Region;
#[cfg(loom)]
use crate::shard::Fault;
use crate::shard::{Error, Guard, Shard};
use crate::sync::{Arc, Ordering};
use crate::table::Bucket;

/// How many records ahead the bucket is prefetched when the log is applied.
const APPLY_AHEAD: u64 = 16;

/// One core's way into a shard.
#[derive(Debug)]
pub struct Reader<S> {
    seat: Seat<S>,
    table: Region<Bucket>,
    /// The copy is the index at this position.
    applied: Cell<u64>,
}

/// A reader that holds nothing, and so holds nobody up.
#[derive(Debug)]
pub struct Parked<S> {
    seat: Seat<S>,
    table: Region<Bucket>,
    applied: u64,
}

/// The right to a cursor; gives it back when dropped.
#[derive(Debug)]
struct Seat<S> {
    shard: Arc<Shard<S>>,
    reader: usize,
}

impl<S> Drop for Seat<S> {
    fn drop(&mut self) {
        self.shard.core.log.set_cursor(self.reader, PARKED, Ordering::Release);
        // A poisoned shard registers nobody, so its seats need not come back.
        if let Ok(mut guard) = self.shard.lock() {
            guard.parts().0.leave_reader(self.reader);
        }
    }
}

impl<S> Reader<S> {
    /// Registers a reader and brings its copy to the present.
    pub fn register(shard: &Arc<Shard<S>>) -> Result<Self, Error> {
        let table = Region::new(shard.core.config.buckets).map_err(Error::Memory)?;
        let reader = shard.lock()?.parts().0.take_reader()?;
        let seat = Seat { shard: shard.clone(), reader };
        copy_all(seat, table)
    }

    /// This reader's number, below `readers_max`.
    pub fn number(&self) -> usize {
        self.seat.reader
    }

    /// The shard it reads.
    pub fn shard(&self) -> &Arc<Shard<S>> {
        &self.seat.shard
    }

    /// Where in the log this reader's copy is.
    #[inline]
    pub fn position(&self) -> LogPosition {
        LogPosition(self.applied.get())
    }

    /// True when main has published more than this reader has applied. One shared load.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.seat.shard.core.log.tail() != self.applied.get()
    }

    /// Brings the copy to the present. Views stay as they are.
    #[inline]
    pub fn refresh(&self) -> LogPosition {
        self.refresh_to(LogPosition::END)
    }

    /// Brings the copy forward to `position`, or to the present if that comes first. Never back.
    #[inline]
    pub fn refresh_to(&self, position: LogPosition) -> LogPosition {
        let tail = self.seat.shard.core.log.tail();
        self.apply(tail.min(position.0));
        self.position()
    }

    /// Refreshes, and lets main reuse everything retired before.
    #[inline]
    pub fn sync(&mut self) -> LogPosition {
        self.sync_to(LogPosition::END)
    }

    /// As [`Reader::sync`], no further than `position`.
    #[inline]
    pub fn sync_to(&mut self, position: LogPosition) -> LogPosition {
        self.refresh_to(position);
        let order = match () {
            #[cfg(loom)]
            () if self.seat.shard.core.config.fault == Fault::CursorRelaxed => Ordering::Relaxed,
            () => Ordering::Release,
        };
        // `&mut self`: no view of ours is alive, so we hold nothing retired before `applied` (I1).
        self.seat.shard.core.log.set_cursor(self.seat.reader, self.applied.get(), order);
        self.position()
    }

    #[inline]
    fn apply(&self, to: u64) {
        let from = self.applied.get();
        if from >= to {
            return;
        }
        let log = &self.seat.shard.core.log;
        for position in from..to {
            let ahead = position + APPLY_AHEAD;
            if cfg!(not(loom)) && ahead < to {
                // SAFETY: as below.
                let bucket = unsafe { log.read(ahead) }.bucket;
                crate::prefetch_slice(&self.table, bucket as usize);
            }
            // SAFETY: I5: our cursor is at most `applied <= position`, and `position < to <= tail`.
            let record = unsafe { log.read(position) };
            let line = &self.table[record.bucket as usize];
            line.set_mask(record.mask);
            if record.way != WAY_NONE {
                line.copy_way(record.way as usize, record.tag, record.slot);
            }
        }
        self.applied.set(to);
    }

    /// How many buckets there are.
    #[inline(always)]
    pub fn buckets(&self) -> usize {
        self.table.len()
    }

    /// A bucket of this reader's copy.
    #[inline(always)]
    pub fn bucket(&self, bucket: usize) -> &Bucket {
        &self.table[bucket]
    }

    /// Sets the low bits of a way's tag in this copy; false if they were so before, or the way is empty.
    /// They are this reader's own, and zero again when main gives the way another entry or value.
    #[inline(always)]
    pub fn mark(&self, bucket: usize, way: usize, bits: u16) -> bool {
        let line = &self.table[bucket];
        line.tag(way) != 0 && line.mark(way, bits)
    }

    /// Brings a bucket's line near.
    #[inline(always)]
    pub fn prefetch_bucket(&self, bucket: usize) {
        crate::prefetch_slice(&self.table, bucket);
    }

    /// Brings near the first line of the slot that a way leads to.
    #[inline(always)]
    pub fn prefetch_slot(&self, bucket: usize, way: usize) {
        self.seat.shard.core.arena.prefetch(self.table[bucket].slot(way));
    }

    /// The slot that a way leads to; `None` for an empty way.
    #[inline(always)]
    pub fn slot(&self, bucket: usize, way: usize) -> Option<Slot<'_>> {
        let line = &self.table[bucket];
        if line.tag(way) == 0 {
            return None;
        }
        // SAFETY: I1: our copy leads to it, and our cursor moves only in `sync` and `park`, which the
        // view's borrow of `self` excludes.
        Some(unsafe { self.seat.shard.core.arena.view(line.slot(way)) })
    }

    /// Lets go of everything: a parked reader holds nobody up.
    pub fn park(self) -> Parked<S> {
        self.seat.shard.core.log.set_cursor(self.seat.reader, PARKED, Ordering::Release);
        Parked { seat: self.seat, table: self.table, applied: self.applied.get() }
    }

    /// Compares the copy with main's index, if it is at main's position.
    pub fn validate(&self) -> Result<(), String> {
        let Ok(mut guard) = self.seat.shard.lock() else { return Ok(()) };
        let books = guard.books();
        if books.tail != self.applied.get() {
            return Ok(());
        }
        match books.table.iter().zip(self.table.iter()).position(|(main, copy)| !main.same(copy)) {
            Some(bucket) => Err(format!("reader {}: bucket {bucket} differs", self.seat.reader)),
            None => Ok(()),
        }
    }
}

impl<S> Parked<S> {
    /// Takes the reader up again, at the present.
    pub fn unpark(self) -> Result<Reader<S>, Error> {
        let Parked { seat, table, applied } = self;
        let core = &seat.shard.core;
        #[cfg(loom)]
        if core.config.fault == Fault::UnparkUnlocked {
            core.log.set_cursor(seat.reader, applied, Ordering::Release);
            let reader = Reader { seat, table, applied: Cell::new(applied) };
            reader.refresh();
            return Ok(reader);
        }
        let mut guard = seat.shard.lock()?;
        if guard.books().hold_log(applied, core.log.records()) {
            core.log.set_cursor(seat.reader, applied, Ordering::Release);
            drop(guard);
            let mut reader = Reader { seat, table, applied: Cell::new(applied) };
            reader.sync();
            return Ok(reader);
        }
        drop(guard);
        copy_all(seat, table)
    }
}

/// Copies main's index in chunks, each under the lock, then replays what was written meanwhile.
fn copy_all<S>(seat: Seat<S>, table: Region<Bucket>) -> Result<Reader<S>, Error> {
    let core = &seat.shard.core;
    let mut start = None;
    let mut tail = 0;
    let mut done = 0;
    while done < table.len() {
        let mut guard: Guard<'_, S> = seat.shard.lock()?;
        let books = guard.books();
        tail = books.tail;
        if start.is_none() {
            // From here on nothing that the copy will lead to is freed, and no record overwritten.
            core.log.set_cursor(seat.reader, tail, Ordering::Release);
            start = Some(tail);
            // Nothing was ever published: the index is as empty as a new table, and copying it would only
            // make the system find memory for both.
            if tail == 0 {
                break;
            }
        }
        let end = table.len().min(done + core.config.copy_buckets);
        for bucket in done..end {
            table[bucket].copy_from(&books.table[bucket]);
        }
        done = end;
    }
    let reader = Reader { seat, table, applied: Cell::new(start.unwrap_or(0)) };
    #[cfg(loom)]
    if reader.seat.shard.core.config.fault == Fault::NoReplay {
        reader.applied.set(tail);
        return Ok(reader);
    }
    // The tail as main had it at the last chunk: published before that lock hold began or with the
    // one before, so it is at most what `refresh_to` sees.
    reader.refresh();
    debug_assert!(reader.applied.get() >= tail);
    Ok(reader)
}
