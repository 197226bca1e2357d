//! ReaderPool: readers and writers that any thread may use, so that nobody has to own one.
//!
//! A reader is one core's, must be synced, and holds writers up when its owner sleeps. Here as many as the
//! cache allows stand in a row, each behind a light lock, and a thread takes the one that it took last time:
//!
//! ```text
//! read    lock own seat, sync if behind, look up, use, unlock   free? else the next seat that is free;
//!                                                               none: wait 100 us for the own one;
//!                                                               then look up at main, and copy
//! write   lock own writer, insert, flush, unlock                `Stalled`: sync every idle seat, retry;
//!                                                               then wait for those being read from
//! ```
//!
//! Why a lock and not a reader in a thread-local: a thread that sleeps forever with an active reader stops
//! reclamation for all, and only it could sync. Parking after each use would take main's lock twice a read.
//! Under a light lock anybody can sync an idle seat, so **a stalled write syncs all idle seats and goes on**;
//! no destructor runs when a thread ends, and there may be any number of threads.
//!
//! What it costs (`benches/map.rs`, 2,000 entries in the CPU's cache, two shared vCPUs of an EPYC Milan, 301 rounds,
//! three runs): a read 45 to 50 ns at the median and 31 at best, where a reader of one's own takes 18 and 13. The
//! lock's two atomic swaps, of a line that nobody else uses, are most of it; on tables larger than the cache they
//! also keep one lookup's memory from being fetched while the last one's is awaited.
//!
//! Invariants
//! 1. No seat's reader has a view alive when its lock is free, so whoever takes the lock may sync it.
//! 2. A writer's queue is empty when its lock is free: what returned is applied. So an operation takes effect
//!    at one moment between its call and its return, for all threads: a write is published before it returns,
//!    and a read begins by catching up with what is published.
//! 3. What runs the caller's code under a seat's lock may be called again from within: a read waits for a seat
//!    100 us at most, and not at all within a read; a write within a write takes a writer of its own; a write
//!    waits at most [`PATIENCE`] for reads in progress, and not at all within one. So nothing deadlocks.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use larder_mem::sync::CacheLines;
use parking_lot::{Mutex, MutexGuard};

use crate::cache::Cache;
use crate::error::Error;
use crate::evicted::Batch;
use crate::reader::Reader;
use crate::time::Seconds;
use crate::writer::Writer;

/// How long a write that is stalled waits for the reads that stall it, each of which may have lost its core
/// to somebody else.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a read waits for its own seat when all are taken, before it goes to main.
const READ_PATIENCE: Duration = Duration::from_micros(100);

/// One thread's place at a time.
struct Pair {
    reader: Mutex<PooledReader>,
    writer: Mutex<Writer>,
}

#[expect(clippy::large_enum_variant, reason = "a place is made for a reader, and few stay unused")]
enum PooledReader {
    /// Nobody sat here yet: no index copy was made.
    Unused,
    Registered(Reader),
    /// The cache gave no reader, and is not asked again.
    Refused,
}

/// All seats of a cache.
pub(crate) struct ReaderPool {
    cache: Cache,
    pairs: Box<[CacheLines<Pair>]>,
}

/// Where a thread sat last, in any row of seats, and how many reads and writes it is in.
struct Here {
    pair: Cell<usize>,
    reads: Cell<u32>,
    writes: Cell<u32>,
}

static ARRIVED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static HERE: Here =
        const { Here { pair: Cell::new(usize::MAX), reads: Cell::new(0), writes: Cell::new(0) } };
}

/// A read or a write in progress on this thread.
struct Busy(fn(&Here) -> &Cell<u32>);

impl Busy {
    #[inline]
    fn with(count: fn(&Here) -> &Cell<u32>) -> Busy {
        HERE.with(|here| count(here).set(count(here).get() + 1));
        Busy(count)
    }
}

impl Drop for Busy {
    #[inline]
    fn drop(&mut self) {
        HERE.with(|here| (self.0)(here).set((self.0)(here).get() - 1));
    }
}

/// True within a read on this thread, whose seat nobody can wait for here.
fn is_reading() -> bool {
    HERE.with(|here| here.reads.get() > 0)
}

impl ReaderPool {
    /// As many seats as the cache has readers. A reader is registered when its seat is first taken.
    pub fn new(cache: Cache) -> Self {
        let pairs = (0..cache.readers_max())
            .map(|_| {
                let writer = Mutex::new(cache.writer_in_lock());
                CacheLines(Pair { reader: Mutex::new(PooledReader::Unused), writer })
            })
            .collect();
        ReaderPool { cache, pairs }
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Looks a key up among all that was published, and gives `with` the value, where it lies.
    #[inline]
    pub fn read<R>(&self, key: &[u8], now: Seconds, with: impl FnOnce(Option<&[u8]>) -> R) -> R {
        if let Some(mut place) = self.pooled()
            && let Some(reader) = self.registered(&mut place)
        {
            if reader.is_behind() {
                reader.sync();
            }
            let _reading = Busy::with(|here| &here.reads);
            // The view borrows the locked place, so it ends before the lock is free (invariant 1).
            return with(reader.get(key, now).as_deref());
        }
        self.read_at_main(key, now, with)
    }

    /// Reads a copy, made under main's lock: correct whoever holds the seats. A poisoned cache is read
    /// through readers only.
    #[cold]
    fn read_at_main<R>(
        &self,
        key: &[u8],
        now: Seconds,
        with: impl FnOnce(Option<&[u8]>) -> R,
    ) -> R {
        let copy = self.cache.read_at_main(key, now, <[u8]>::to_vec).ok().flatten();
        with(copy.as_deref())
    }

    /// The seat of this thread, or another that is free.
    #[inline]
    fn pooled(&self) -> Option<MutexGuard<'_, PooledReader>> {
        let own = self.own();
        match self.pairs[own].0.reader.try_lock() {
            Some(place) => Some(place),
            None => self.reader_elsewhere(own),
        }
    }

    #[inline]
    fn own(&self) -> usize {
        HERE.with(|here| {
            if here.pair.get() >= self.pairs.len() {
                // A new thread, or one that comes from a longer row.
                here.pair.set(ARRIVED.fetch_add(1, Ordering::Relaxed) % self.pairs.len());
            }
            here.pair.get()
        })
    }

    #[cold]
    fn reader_elsewhere(&self, own: usize) -> Option<MutexGuard<'_, PooledReader>> {
        for pair in (own + 1..self.pairs.len()).chain(0..own) {
            if let Some(place) = self.pairs[pair].0.reader.try_lock() {
                // Two threads met; this one stays where it found room.
                HERE.with(|here| here.pair.set(pair));
                return Some(place);
            }
        }
        let reader = &self.pairs[own].0.reader;
        if is_reading() { None } else { reader.try_lock_for(READ_PATIENCE) }
    }

    #[inline]
    fn registered<'a>(&self, place: &'a mut PooledReader) -> Option<&'a mut Reader> {
        if matches!(place, PooledReader::Unused) {
            self.register(place);
        }
        match place {
            PooledReader::Registered(reader) => Some(reader),
            _ => None,
        }
    }

    #[cold]
    fn register(&self, place: &mut PooledReader) {
        *place = self.cache.reader().map_or(PooledReader::Refused, PooledReader::Registered);
    }

    /// Runs `operate` on a writer and publishes what it did. `operate` is run again when what stood in its
    /// way was moved out of it. On an error the operation may have been done or not; nothing of it happens
    /// later.
    pub fn write(
        &self,
        operate: impl FnMut(&mut Writer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (written, evicted) = {
            let _writing = Busy::with(|here| &here.writes);
            match self.writer() {
                Some(mut writer) => self.write_with(&mut writer, operate),
                // A write from within a write.
                None => self.write_with(&mut self.cache.writer_in_lock(), operate),
            }
        };
        // The cache's listener may write; all is done and free.
        self.cache.report_evicted(evicted);
        written
    }

    fn write_with(
        &self,
        writer: &mut Writer,
        mut operate: impl FnMut(&mut Writer) -> Result<(), Error>,
    ) -> (Result<(), Error>, Batch) {
        let mut is_queued = false;
        let written = self.retry(|| {
            if !is_queued {
                operate(writer)?;
                is_queued = true;
            }
            writer.flush().map(drop)
        });
        if written.is_err() {
            // The old writer applies or drops what it has queued (invariant 2).
            *writer = self.cache.writer_in_lock();
        }
        (written, writer.take_evicted())
    }

    /// Runs what idle seats may stand in the way of, until they don't: it succeeds, or fails for another
    /// reason, or a read that is in progress stays in its way too long.
    #[allow(
        clippy::disallowed_methods,
        reason = "a write of a map waits for readers, and not forever"
    )]
    pub fn retry(&self, mut run: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
        let mut deadline = None;
        loop {
            let Err(error) = run() else { return Ok(()) };
            let goes_on = match (&error, deadline) {
                // Who is reading just now has synced just now: most likely the idle ones are the matter.
                (Error::Stalled { .. }, None) => {
                    self.sync_all(None);
                    true
                }
                (Error::Stalled { .. }, Some(_)) => self.sync_all(deadline),
                (Error::Starved, _) => self.flush_others(),
                _ => false,
            };
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
            if !goes_on || Instant::now() > deadline {
                return Err(error);
            }
        }
    }

    /// This thread's writer, or another that is free. Writers are held for moments only, so that waiting for
    /// one is no more than waiting for main; but `None` where this thread might wait for itself.
    fn writer(&self) -> Option<MutexGuard<'_, Writer>> {
        let own = self.own();
        let others = (own..self.pairs.len()).chain(0..own);
        let mut free = others.filter_map(|pair| self.pairs[pair].0.writer.try_lock());
        free.next().or_else(|| {
            let is_within = HERE.with(|here| here.writes.get() > 1);
            if is_within { None } else { Some(self.pairs[own].0.writer.lock()) }
        })
    }

    /// Brings the readers of all seats to the present, so that none holds writers up; waits until `deadline`,
    /// if any, for those that are being read from by other threads. False when some could not be had.
    #[cold]
    fn sync_all(&self, deadline: Option<Instant>) -> bool {
        let deadline = deadline.filter(|_| !is_reading());
        let mut are_all = true;
        for pair in &self.pairs {
            let reader = &pair.0.reader;
            let mut place = match (reader.try_lock(), deadline) {
                (None, Some(deadline)) => reader.try_lock_until(deadline),
                (place, _) => place,
            };
            match place.as_deref_mut() {
                Some(PooledReader::Registered(reader)) => {
                    reader.sync();
                }
                Some(_) => {}
                None => are_all = false,
            }
        }
        are_all
    }

    /// Makes the writers that nobody uses give back the slots that they hold to spare.
    #[cold]
    fn flush_others(&self) -> bool {
        for pair in &self.pairs {
            if let Some(mut writer) = pair.0.writer.try_lock() {
                // Its queue is empty, so there is nothing that could fail but a poisoned lock, which the
                // retry will report.
                let _ = writer.flush();
            }
        }
        std::thread::yield_now();
        true
    }
}
