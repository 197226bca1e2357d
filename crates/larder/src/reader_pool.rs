//! A pool of readers and writers that any thread may use, so that no thread has to own one.
//!
//! A reader belongs to one core, must be synced, and blocks writers when its owner sleeps. The pool
//! has as many pairs of a reader and a writer as the cache allows, each behind a light lock. A
//! thread uses the pair that it used last time. One write needs none (`direct`):
//!
//! ```text
//! read    lock own reader, catch up, look up, use, unlock        taken? the next reader that is free;
//!                                                                none: wait 100 us for the own one;
//!                                                                then look up at main, and copy
//! put     lock the key's shard, insert, unlock                   `Stalled`: sync all idle readers, retry;
//!                                                                then wait for those in use
//! many    lock own writer, insert, publish, unlock               as for one
//! ```
//!
//! A reader in a thread-local would be worse. A thread that sleeps forever with an active reader
//! stops reclamation for all, and only that thread could sync. Parking after each use would take
//! main's lock twice per read. Under a light lock any thread can sync an idle reader, so **a
//! stalled write syncs all idle readers and continues**. No destructor runs when a thread ends, and
//! there may be any number of threads.
//!
//! Cost (`benches/map.rs`, 2,000 entries in the CPU's cache, two shared vCPUs of an EPYC, 101 rounds,
//! three runs): a read in place takes 23 ns at the median, a read with a copy 34; with a reader of its
//! own, 8. The lock is a [`Latch`], of which one exchange of a line that no other thread uses is seen in
//! each read: with a lock that has two, the same reads took 27 and 38 ns. On tables larger than the
//! cache, what counts is that a lookup has few instructions: only then does the core fetch the memory
//! of the next one meanwhile (`docs/decisions/0025`).
//!
//! Invariants
//! 1. No entry of a pooled reader is borrowed while its lock is free, so any thread that takes the
//!    lock may sync it.
//! 2. A writer's queue is empty while its lock is free: operations that returned are applied. So an
//!    operation takes effect at one moment between its call and its return, for all threads. A
//!    write is published before it returns, and a read first catches up with all that is published.
//!    (A shared index shows all of it; its readers sync now and then, to release memory.)
//! 3. The caller's code that runs under the lock of a reader may call the pool again; none runs under
//!    that of a writer. A read waits 100 us at most for a reader, and not at all within a read. A write
//!    waits at most [`PATIENCE`] for reads in progress, and not at all within one. (Readers sync by
//!    themselves before each `read`, and after [`READS_PER_SYNC`] of `get`.) So nothing
//!    deadlocks. A read that prolongs an entry ends with a write, which needs no memory and so waits
//!    for no reader.

mod wait;

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use larder_mem::sync::CacheLines;
use larder_mem::{Latch, LatchGuard};
use parking_lot::{Mutex, MutexGuard};

use crate::cache::Cache;
use crate::condition::{Expected, When};
use crate::error::Error;
use crate::evicted::Batch;
use crate::expiry::{Ends, Stored};
use crate::reader::Reader;
use crate::time::Seconds;
use crate::writer::Writer;
use wait::{if_free, wait_until};

/// How long a stalled write waits for the reads that stall it. Their threads may have been
/// preempted.
const PATIENCE: Duration = Duration::from_secs(1);
/// For how long it looks at those in use, awake, before it sleeps and tries again: their threads may
/// sync by themselves.
const AWAKE: Duration = Duration::from_micros(100);
/// And how long it sleeps.
const PAUSE: Duration = Duration::from_millis(1);

/// How long a read waits for its own reader if all are taken, before it reads from main.
const READ_PATIENCE: Duration = Duration::from_micros(100);

/// Reads of a reader of the shared index from one sync to the next.
const READS_PER_SYNC: u32 = 1024;

/// A reader and a writer, for one thread each at a time.
struct Pair {
    reader: Latch<PooledReader>,
    writer: Mutex<Writer>,
}

#[expect(clippy::large_enum_variant, reason = "most are registered, and few stay unused")]
enum PooledReader {
    /// Not used yet, so no index was copied.
    Unused,
    /// With the number of its reads since its last sync.
    Registered(Reader, u32),
    /// The cache has no reader left; the pool does not try again.
    Refused,
}

/// When a reader syncs before a lookup.
#[derive(Clone, Copy)]
enum CatchUp {
    /// If it is behind.
    Always,
    /// As `Always` with a replica, which would not show what is published otherwise; in a shared
    /// index after [`READS_PER_SYNC`] reads.
    Seldom,
}

/// All pairs of a cache.
pub(crate) struct ReaderPool {
    cache: Cache,
    /// Its readers look keys up in one index ([`crate::IndexMode::Shared`]).
    is_shared: bool,
    pairs: Box<[CacheLines<Pair>]>,
}

/// The pair that a thread used last, in any pool, and how many reads it is in.
struct ThreadState {
    pair: Cell<usize>,
    reads: Cell<u32>,
}

static ARRIVED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD_STATE: ThreadState =
        const { ThreadState { pair: Cell::new(usize::MAX), reads: Cell::new(0) } };
}

/// A read in progress on this thread.
struct Reading;

impl Reading {
    #[inline]
    fn begin() -> Reading {
        THREAD_STATE.with(|state| state.reads.set(state.reads.get() + 1));
        Reading
    }
}

impl Drop for Reading {
    #[inline]
    fn drop(&mut self) {
        THREAD_STATE.with(|state| state.reads.set(state.reads.get() - 1));
    }
}

/// True within a read on this thread: waiting for its reader here would never end.
fn is_reading() -> bool {
    THREAD_STATE.with(|state| state.reads.get() > 0)
}

/// Sleeps a moment. False within a read, which may be what is waited for.
#[allow(clippy::disallowed_methods, reason = "a write of a map waits for readers, and not forever")]
fn pause() -> bool {
    let may = !is_reading();
    if may {
        std::thread::sleep(PAUSE);
    }
    may
}

/// Evictions that the listener has not heard of, since other threads may wait for the caller. When it is dropped, it
/// calls the listener; if the thread unwinds, a later report does.
pub(crate) struct Unreported<'a> {
    cache: &'a Cache,
    evicted: Batch,
}

impl Drop for Unreported<'_> {
    fn drop(&mut self) {
        self.cache.report_evicted(std::mem::take(&mut self.evicted));
    }
}

impl ReaderPool {
    /// A pool with as many pairs as the cache has readers. A reader is registered on its first use.
    pub fn new(cache: Cache) -> Self {
        let pairs = (0..cache.readers_max())
            .map(|_| {
                let writer = Mutex::new(cache.writer_in_lock());
                CacheLines(Pair { reader: Latch::new(PooledReader::Unused), writer })
            })
            .collect();
        ReaderPool { is_shared: cache.is_shared(), cache, pairs }
    }

    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Looks a key up in all that is published, and passes the value to `with`, in place. `with` may
    /// be any code, which may write to the cache: so the reader holds nothing that was retired
    /// before.
    #[inline]
    pub fn read<R>(
        &self,
        key: &[u8],
        now: Seconds,
        with: impl FnOnce(Option<Stored<'_>>) -> R,
    ) -> R {
        self.read_in(CatchUp::Always, key, now, with)
    }

    /// As [`ReaderPool::read`], for a `with` that only decodes: the reader of a shared index syncs
    /// now and then.
    #[inline]
    pub fn get<R>(
        &self,
        key: &[u8],
        now: Seconds,
        with: impl FnOnce(Option<Stored<'_>>) -> R,
    ) -> R {
        self.read_in(CatchUp::Seldom, key, now, with)
    }

    #[inline(always)]
    fn read_in<R>(
        &self,
        when: CatchUp,
        key: &[u8],
        now: Seconds,
        with: impl FnOnce(Option<Stored<'_>>) -> R,
    ) -> R {
        if let Some(mut pooled) = self.pooled()
            && let Some((reader, reads)) = self.registered(&mut pooled)
        {
            self.catch_up(reader, reads, when);
            let _reading = Reading::begin();
            // The entry borrows the locked reader, so it ends before the lock is free (invariant
            // 1).
            return with(reader.get(key, now).map(|entry| Stored::of(entry.slot)));
        }
        self.look_up_at_main(key, now, with)
    }

    /// Looks keys up together, in all that is published, and passes each value to `each`, in order.
    pub fn read_many(
        &self,
        keys: &[&[u8]],
        now: Seconds,
        mut each: impl FnMut(usize, Option<Stored<'_>>),
    ) {
        let mut pooled = self.pooled();
        let Some((reader, reads)) = pooled.as_mut().and_then(|pooled| self.registered(pooled))
        else {
            drop(pooled);
            for (at, key) in keys.iter().enumerate() {
                self.look_up_at_main(key, now, |stored| each(at, stored));
            }
            return;
        };
        self.catch_up(reader, reads, CatchUp::Always);
        let _reading = Reading::begin();
        // Entries end before the lock is free (invariant 1).
        reader.get_many(keys, now, |at, entry| each(at, entry.map(|entry| Stored::of(entry.slot))));
    }

    /// Makes a reader show what is published. A replica applies the log; the shared index needs
    /// nothing, but the memory that its reader protects is released now and then.
    #[inline(always)]
    fn catch_up(&self, reader: &mut Reader, reads: &mut u32, when: CatchUp) {
        *reads += 1;
        let may_wait = self.is_shared && matches!(when, CatchUp::Seldom);
        if !may_wait || *reads >= READS_PER_SYNC {
            self.catch_up_now(reader, reads);
        }
    }

    #[inline(never)]
    fn catch_up_now(&self, reader: &mut Reader, reads: &mut u32) {
        let is_due = self.is_shared && *reads >= READS_PER_SYNC;
        if is_due || reader.is_behind() {
            *reads = 0;
            reader.sync();
        }
    }

    /// Reads a copy, made under main's lock; independent of the locks of readers. Fails on a
    /// poisoned cache, which only readers can read.
    #[cold]
    fn look_up_at_main<R>(
        &self,
        key: &[u8],
        now: Seconds,
        with: impl FnOnce(Option<Stored<'_>>) -> R,
    ) -> R {
        let copy = self.cache.look_up_at_main(key, now, |entry| Expected::of(entry.slot));
        with(copy.ok().flatten().as_ref().map(Expected::stored))
    }

    /// The reader of this thread, or another that is free.
    #[inline]
    fn pooled(&self) -> Option<LatchGuard<'_, PooledReader>> {
        let own = self.own();
        match self.pairs[own].0.reader.try_lock() {
            Some(pooled) => Some(pooled),
            None => self.reader_elsewhere(own),
        }
    }

    #[inline]
    fn own(&self) -> usize {
        THREAD_STATE.with(|state| {
            if state.pair.get() >= self.pairs.len() {
                // A new thread, or one whose last pool was larger.
                state.pair.set(ARRIVED.fetch_add(1, Ordering::Relaxed) % self.pairs.len());
            }
            state.pair.get()
        })
    }

    #[cold]
    #[allow(clippy::disallowed_methods, reason = "a read waits for a reader, and not for long")]
    fn reader_elsewhere(&self, own: usize) -> Option<LatchGuard<'_, PooledReader>> {
        for pair in (own + 1..self.pairs.len()).chain(0..own) {
            if let Some(pooled) = if_free(&self.pairs[pair].0.reader) {
                // Two threads met. This one stays with the pair that is free.
                THREAD_STATE.with(|state| state.pair.set(pair));
                return Some(pooled);
            }
        }
        let reader = &self.pairs[own].0.reader;
        if is_reading() { None } else { wait_until(reader, Instant::now() + READ_PATIENCE) }
    }

    #[inline]
    fn registered<'a>(
        &self,
        pooled: &'a mut PooledReader,
    ) -> Option<(&'a mut Reader, &'a mut u32)> {
        if matches!(pooled, PooledReader::Unused) {
            self.register(pooled);
        }
        match pooled {
            PooledReader::Registered(reader, reads) => Some((reader, reads)),
            _ => None,
        }
    }

    #[cold]
    fn register(&self, pooled: &mut PooledReader) {
        *pooled = match self.cache.reader() {
            Ok(reader) => PooledReader::Registered(reader, 0),
            Err(_) => PooledReader::Refused,
        };
    }

    /// Stores a value under a key. If readers block it, it removes the cause and tries again. On an
    /// error nothing has changed, but for what [`Error::Stalled`] says.
    #[inline]
    pub fn put(&self, key: &[u8], value: (&[u8], Ends), now: Seconds) -> Result<(), Error> {
        self.cache.shared().admit_insert()?;
        let mut unreported = self.unreported();
        self.retry(|| self.cache.put(key, value, When::Always, now, &mut unreported.evicted))?;
        Ok(())
    }

    /// Removes the entry under a key, if there is one.
    pub fn remove(&self, key: &[u8]) -> Result<(), Error> {
        let mut unreported = self.unreported();
        // Whether it has expired makes no difference.
        let now = Seconds(0);
        self.retry(|| self.cache.remove(key, When::Always, now, &mut unreported.evicted))?;
        Ok(())
    }

    /// Stores a value under a key, or removes it, on condition that its entry is still `there`, or
    /// that there is none. False if it is not.
    pub fn change(
        &self,
        key: &[u8],
        there: Option<&Expected>,
        value: Option<(&[u8], Ends)>,
        now: Seconds,
    ) -> Result<bool, Error> {
        self.change_silently(key, there, value, now, &mut self.unreported())
    }

    /// As [`ReaderPool::change`], but what it evicts is reported when `unreported` is dropped.
    pub fn change_silently(
        &self,
        key: &[u8],
        there: Option<&Expected>,
        value: Option<(&[u8], Ends)>,
        now: Seconds,
        unreported: &mut Unreported<'_>,
    ) -> Result<bool, Error> {
        if value.is_some() {
            self.cache.shared().admit_insert()?;
        }
        let when = there.map_or(When::Absent, Expected::when);
        self.retry(|| match value {
            Some(value) => self.cache.put(key, value, when, now, &mut unreported.evicted),
            None => self.cache.remove(key, when, now, &mut unreported.evicted),
        })
    }

    /// Runs `operate` on a writer and publishes the result. If readers block it, it removes the
    /// cause and runs `operate` again. On an error the operations may have been applied or not;
    /// none of them is applied later.
    pub fn write(
        &self,
        operate: impl FnMut(&mut Writer) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (written, evicted) = match self.writer() {
            Some(mut writer) => self.write_with(&mut writer, operate),
            None => self.write_with(&mut self.cache.writer_in_lock(), operate),
        };
        // The cache's listener may write: all is done, and no lock is held.
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
            writer.publish()
        });
        if let Err(error) = &written {
            // Operations before the one that was refused are applied. After a stall, which
            // lasted, nothing is applied any more (invariant 2).
            if !matches!(error, Error::Stalled { .. }) {
                let _ = self.retry(|| writer.publish());
            }
            writer.discard();
        }
        (written, writer.take_evicted())
    }

    /// Nothing yet.
    pub fn unreported(&self) -> Unreported<'_> {
        Unreported { cache: &self.cache, evicted: self.cache.shared().batch() }
    }

    /// Runs `run` and removes any cause that blocks it, until it succeeds, fails for another
    /// reason, or a read in progress blocks it for too long.
    #[inline]
    pub fn retry<R>(&self, mut run: impl FnMut() -> Result<R, Error>) -> Result<R, Error> {
        match run() {
            Ok(result) => Ok(result),
            Err(error) => self.retry_after(error, run),
        }
    }

    #[cold]
    #[allow(
        clippy::disallowed_methods,
        reason = "a write of a map waits for readers, and not forever"
    )]
    fn retry_after<R>(
        &self,
        mut error: Error,
        mut run: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let deadline = Instant::now() + PATIENCE;
        let (mut is_synced, mut is_flushed) = (false, false);
        loop {
            // Then this is the last attempt.
            let is_late = Instant::now() > deadline;
            let goes_on = match &error {
                // Most readers are idle, and those in use most likely synced not long ago.
                Error::Stalled { .. } if !is_synced => {
                    is_synced = true;
                    self.sync_all(None);
                    true
                }
                Error::Stalled { .. } => {
                    let are_all = self.sync_all(Some(Instant::now() + AWAKE));
                    // What blocks may also be a reader of the caller's, outside of the pool.
                    pause() || are_all
                }
                // Within a read once: others may wait for it.
                Error::Starved if !is_reading() || !is_flushed => {
                    is_flushed = true;
                    self.flush_others()
                }
                _ => false,
            };
            if !goes_on {
                return Err(error);
            }
            match run() {
                Ok(result) => return Ok(result),
                Err(next) if is_late => return Err(next),
                Err(next) => error = next,
            }
        }
    }

    /// This thread's writer, or another that is free. Writers are in use for moments only, so
    /// waiting for one is like waiting for main. `None` within a read, for which one might wait.
    fn writer(&self) -> Option<MutexGuard<'_, Writer>> {
        let own = self.own();
        let others = (own..self.pairs.len()).chain(0..own);
        let mut free = others.filter_map(|pair| self.pairs[pair].0.writer.try_lock());
        free.next().or_else(|| (!is_reading()).then(|| self.pairs[own].0.writer.lock()))
    }

    /// Syncs all readers that no thread is using, which publishes their figures.
    pub fn sync_idle(&self) {
        self.sync_all(None);
    }

    /// Syncs all readers, so that none blocks writers. Waits until `deadline`, if any, for those
    /// that other threads are using. Returns false if some could not be locked.
    #[cold]
    fn sync_all(&self, deadline: Option<Instant>) -> bool {
        let deadline = deadline.filter(|_| !is_reading());
        let mut are_all = true;
        for pair in &self.pairs {
            let reader = &pair.0.reader;
            let mut pooled = match (if_free(reader), deadline) {
                (None, Some(deadline)) => wait_until(reader, deadline),
                (pooled, _) => pooled,
            };
            match pooled.as_deref_mut() {
                Some(PooledReader::Registered(reader, _)) => {
                    reader.sync();
                }
                Some(_) => {}
                None => are_all = false,
            }
        }
        are_all
    }

    /// Makes idle writers return their spare slots.
    #[cold]
    fn flush_others(&self) -> bool {
        for pair in &self.pairs {
            if let Some(mut writer) = pair.0.writer.try_lock() {
                // Its queue is empty, so only a poisoned lock could fail, and the retry reports
                // that.
                let _ = writer.flush();
            }
        }
        std::thread::yield_now();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::time::Ttl;

    /// A writer in use may wait for the reader within which this write is.
    #[test]
    fn a_write_within_a_read_waits_for_no_writer() {
        let now = Seconds(1);
        let pool = Arc::new(ReaderPool::new(Cache::builder().readers_max(1).build().unwrap()));
        let (done, is_done) = mpsc::channel();
        let busy = pool.pairs[0].0.writer.lock();
        let theirs = pool.clone();
        let thread = std::thread::spawn(move || {
            let insert = |writer: &mut Writer| writer.insert(b"k", b"v", Ttl::FOREVER, now);
            let _ = done.send(theirs.read(b"k", now, |_| theirs.write(insert)));
        });
        is_done.recv_timeout(Duration::from_secs(60)).expect("it waits for the writer").unwrap();
        drop(busy);
        thread.join().unwrap();
        assert!(pool.get(b"k", now, |stored| stored.is_some()));
    }

    /// Reads back to back, each of which is slow, do not stall a write for long: each syncs when it begins, however
    /// seldom its reader is free.
    #[test]
    fn slow_reads_do_not_starve_a_write() {
        let now = Seconds(1);
        let builder = Cache::builder().budget(1 << 20).shards(1).readers_max(2);
        let builder = builder.index_mode(crate::IndexMode::Shared);
        let pool = ReaderPool::new(builder.build().unwrap());
        let put = |number: u64| {
            let value = (&[7; 200][..], Ends::NEVER);
            pool.put(&(number % 100).to_le_bytes(), value, now)
        };
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        pool.read(&0u64.to_le_bytes(), now, |_| {
                            std::thread::sleep(Duration::from_millis(2));
                        });
                    }
                });
            }
            let written = (0..20_000).try_for_each(put);
            is_done.store(true, Ordering::Relaxed);
            written.unwrap();
        });
    }
}
