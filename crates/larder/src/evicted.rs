//! Reports of evictions to the cache's listener, and of removed and replaced entries if it wants
//! those.
//!
//! ```text
//! evicted under the lock: copied into the batch -> lock released -> listener called, entry by entry
//! ```
//!
//! The batch belongs to the writer, or the operation of a map, that evicted. Its thread calls the listener, in the
//! order of eviction, as the last step of an operation: it holds no lock and no slot, and the
//! operation is done or queued. A full batch (256 entries or 64 KiB) ends the lock hold early, and
//! the remaining operations are applied after the calls. So every eviction is reported, and memory
//! is bounded by the batch and the evictions of one operation.
//!
//! *Calls from within.* A listener may use its cache through any API. Evictions by its own writes
//! are not reported within them, but appended to the outermost call's batch. So the stack does not
//! grow, and no entry is left out. A listener that inserts on every eviction would never end. So
//! inserts from within are counted: after [`INSERTS_EACH`] for every entry that the outermost call
//! began with, and [`INSERTS_MORE`], they fail with [`Error::ListenerInserts`].
//!
//! *Panics.* An entry whose call panicked counts as reported. All others of the batch stay, and the
//! next operation that may evict reports them. The batch of a writer whose thread unwinds stays too,
//! since a second panic would end the process.
//!
//! A cache without a listener pays nothing for this.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::Error;

const ENTRIES_MAX: usize = 256;
const BYTES_MAX: usize = 64 << 10;
/// Bytes of a batch whose memory is kept between two calls of a map.
const SPARE_BYTES_MAX: usize = 4 << 10;

/// Inserts from within a listener for each reported entry that such inserts did not evict.
const INSERTS_EACH: usize = 4;
/// Further inserts from within a listener, per outermost call.
const INSERTS_MORE: usize = 16;

/// Why an entry left the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The budget, of bytes, of entries or of their weight, was used up, and the policy chose the entry.
    Budget,
    /// As `Budget`, but the entry had expired, stale window included. Nothing was lost.
    Expired,
    /// Its bucket and all buckets around were full. Rare: none in ten million inserts.
    Conflict,
    /// A caller removed it, expired or not. See [`crate::Builder::on_removed`], also for `Replaced`.
    Removed,
    /// A caller stored another value under its key, after it had expired or before.
    Replaced,
}

/// An entry that was evicted, removed or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evicted<'a> {
    /// Its key in the cache. Of a [`crate::Map`], see [`crate::Map::decode`] for both.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Why it left.
    pub cause: Cause,
}

/// The function to call. See [`crate::Builder::on_evicted`].
#[derive(Clone)]
pub(crate) struct Listener(pub Arc<dyn Fn(Evicted<'_>) + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Copies of evicted entries, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    key_len: u8,
    value_len: u16,
    cause: Cause,
}

impl Batch {
    pub fn push(&mut self, key: &[u8], value: &[u8], cause: Cause) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let (key_len, value_len) = (key.len() as u8, value.len() as u16);
        self.entries.push(Place { key_len, value_len, cause });
    }

    /// Bytes of entries for which it has memory.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.bytes.len() >= BYTES_MAX
    }

    /// Adds the entries of another batch, which is empty afterwards.
    pub fn append(&mut self, other: &mut Batch) {
        if other.is_empty() {
            // Each keeps its memory.
        } else if self.is_empty() {
            std::mem::swap(self, other);
        } else {
            self.bytes.append(&mut other.bytes);
            self.entries.append(&mut other.entries);
        }
    }

    /// An empty batch, with memory that this thread used before, if there is some.
    pub fn reused() -> Batch {
        SPARE.try_with(Cell::take).unwrap_or_default()
    }

    /// Keeps the memory of an empty batch for this thread's next one, unless it is large: each shard and writer
    /// would come to have as much.
    pub fn reuse(self) {
        debug_assert!(self.is_empty(), "its entries were reported");
        let bytes = self.bytes.capacity();
        if (1..=SPARE_BYTES_MAX).contains(&bytes) && self.entries.capacity() <= ENTRIES_MAX {
            let _ = SPARE.try_with(|spare| spare.set(self));
        }
    }

    /// Clears the batch. Its memory is reused by the next one, unless one operation made it
    /// unusually large.
    fn clear(&mut self) {
        if self.bytes.capacity() > 4 * BYTES_MAX {
            *self = Batch::default();
        } else {
            self.bytes.clear();
            self.entries.clear();
        }
    }
}

/// The listener of a cache, and the entries still to report.
#[derive(Debug)]
pub(crate) struct Notifier {
    listener: Listener,
    /// Entries left by a panic, or by a writer that could not report.
    unreported: Mutex<Batch>,
    has_unreported: AtomicBool,
}

/// A call of a listener that is in progress on this thread.
struct Call {
    /// The address of its notifier.
    notifier: usize,
    /// Entries to report before the call ends; the listener's own writes add to them.
    waiting: Batch,
    /// Inserts that the listener may still make.
    inserts: usize,
}

thread_local! {
    /// The memory of this thread's last batch.
    static SPARE: Cell<Batch> = const { Cell::new(Batch { bytes: Vec::new(), entries: Vec::new() }) };
    /// Of different caches, the innermost last.
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

impl Notifier {
    pub fn new(listener: Listener) -> Self {
        Notifier { listener, unreported: Mutex::default(), has_unreported: AtomicBool::new(false) }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Runs `act` on this listener's call in progress on this thread, if there is one. (A thread
    /// that is ending has lost its list, and so has none.)
    fn with_call<R>(&self, act: impl FnOnce(&mut Call) -> R) -> Option<R> {
        CALLS
            .try_with(|calls| {
                let mut calls = calls.borrow_mut();
                calls.iter_mut().find(|call| call.notifier == self.address()).map(act)
            })
            .ok()
            .flatten()
    }

    /// Checks whether an insert may begin: always, except from within the listener.
    pub fn admit_insert(&self) -> Result<(), Error> {
        let admitted = self.with_call(|call| {
            let left = call.inserts.checked_sub(1);
            call.inserts = left.unwrap_or(0);
            left.is_some()
        });
        if admitted == Some(false) { Err(Error::ListenerInserts) } else { Ok(()) }
    }

    /// Stores entries that cannot be reported here, for a later report.
    pub fn keep(&self, batch: &mut Batch) {
        if !batch.is_empty() {
            let mut unreported = self.unreported.lock();
            unreported.append(batch);
            self.has_unreported.store(true, Ordering::Relaxed);
        }
    }

    /// Calls the listener for each entry of the batch and for those stored before. Both are empty
    /// afterwards.
    #[inline]
    pub fn report(&self, batch: &mut Batch) {
        // If this misses entries that another thread stores right now, the next report has them.
        if !batch.is_empty() || self.has_unreported.load(Ordering::Relaxed) {
            self.report_some(batch);
        }
    }

    #[cold]
    fn report_some(&self, batch: &mut Batch) {
        if self.with_call(|call| call.waiting.append(batch)).is_some() {
            return;
        }
        // A thread that unwinds, or that has lost its list because it ends, reports nothing.
        if std::thread::panicking() || CALLS.try_with(|_| ()).is_err() {
            return self.keep(batch);
        }
        let mut waiting = {
            let mut unreported = self.unreported.lock();
            self.has_unreported.store(false, Ordering::Relaxed);
            std::mem::take(&mut *unreported)
        };
        waiting.append(batch);
        let inserts = waiting.entries.len() * INSERTS_EACH + INSERTS_MORE;
        CALLS.with_borrow_mut(|calls| {
            calls.push(Call { notifier: self.address(), waiting, inserts });
        });
        let mut reporting = Reporting { notifier: self, batch: Batch::default(), entry: 0, at: 0 };
        while reporting.next_batch() {
            while let Some(evicted) = reporting.next() {
                (self.listener.0)(evicted);
            }
        }
        // The writer gets the memory back.
        std::mem::swap(batch, &mut reporting.batch);
    }
}

/// The outermost call of a listener. If it is dropped early, it stores the remaining entries.
struct Reporting<'a> {
    notifier: &'a Notifier,
    batch: Batch,
    /// Entries of the batch that were reported, and their bytes.
    entry: usize,
    at: usize,
}

impl Reporting<'_> {
    /// Takes the waiting entries; false if there are none.
    fn next_batch(&mut self) -> bool {
        self.batch.clear();
        (self.entry, self.at) = (0, 0);
        self.notifier.with_call(|call| self.batch.append(&mut call.waiting));
        !self.batch.is_empty()
    }

    fn next(&mut self) -> Option<Evicted<'_>> {
        let place = *self.batch.entries.get(self.entry)?;
        let key_end = self.at + usize::from(place.key_len);
        let end = key_end + usize::from(place.value_len);
        let (key, value) = (&self.batch.bytes[self.at..key_end], &self.batch.bytes[key_end..end]);
        self.entry += 1;
        self.at = end;
        Some(Evicted { key, value, cause: place.cause })
    }
}

impl Drop for Reporting<'_> {
    fn drop(&mut self) {
        self.batch.bytes.drain(..self.at);
        self.batch.entries.drain(..self.entry);
        self.notifier.keep(&mut self.batch);
        let call = CALLS.try_with(|calls| calls.borrow_mut().pop());
        if let Ok(Some(mut call)) = call {
            self.notifier.keep(&mut call.waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::OnceLock;

    /// Reports arrive in the order of eviction. A panic loses only the entry being reported, and
    /// the next report has the entries of a thread that unwinds.
    #[test]
    fn a_panic_loses_no_entry() {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let reporting = reported.clone();
        let notifier = Notifier::new(Listener(Arc::new(move |evicted: Evicted<'_>| {
            reporting.lock().push((evicted.key.to_vec(), evicted.value.len()));
            if evicted.cause == Cause::Conflict {
                resume_unwind(Box::new(()));
            }
        })));
        let mut batch = Batch::default();
        batch.push(b"a", b"", Cause::Budget);
        batch.push(b"bc", &[7; 40_000], Cause::Expired);
        assert!(!batch.is_full());
        batch.push(b"d", &[7; 40_000], Cause::Conflict);
        batch.push(b"e", b"5", Cause::Budget);
        assert!(batch.is_full());
        let report = |batch: &mut Batch| catch_unwind(AssertUnwindSafe(|| notifier.report(batch)));
        report(&mut batch).unwrap_err();
        assert!(batch.is_empty() && !batch.is_full());
        let first = [(b"a".to_vec(), 0), (b"bc".to_vec(), 40_000), (b"d".to_vec(), 40_000)];
        assert_eq!(std::mem::take(&mut *reported.lock()), first);
        // A writer that is dropped in a panic.
        struct Dropped<'a>(&'a Notifier, Batch);
        impl Drop for Dropped<'_> {
            fn drop(&mut self) {
                self.0.report(&mut self.1);
            }
        }
        batch.push(b"f", b"", Cause::Budget);
        let dropped = Dropped(&notifier, batch);
        let unwinding = AssertUnwindSafe(|| {
            let _dropped = dropped;
            resume_unwind(Box::new(()));
        });
        assert!(catch_unwind(unwinding).is_err() && reported.lock().is_empty());
        report(&mut Batch::default()).unwrap();
        assert_eq!(*reported.lock(), [(b"e".to_vec(), 1), (b"f".to_vec(), 0)]);
        assert!(!notifier.has_unreported.load(Ordering::Relaxed));
    }

    /// The memory of a batch is used for the next one, on each way through writers; that of a large one is not.
    #[test]
    fn memory_is_used_again() {
        let notifier = Notifier::new(Listener(Arc::new(|_: Evicted<'_>| {})));
        let (mut of_shard, mut of_queue) = (Batch::default(), Batch::default());
        let mut at = Vec::new();
        for value in [&[7; 100][..]; 6].into_iter().chain([&[7; 8000][..], &[7; 100]]) {
            of_shard.push(b"a", value, Cause::Budget);
            of_queue.append(&mut of_shard);
            let mut taken = Batch::reused();
            taken.append(&mut Batch::default());
            taken.append(&mut of_queue);
            at.push(taken.bytes.as_ptr());
            notifier.report(&mut taken);
            assert!(taken.is_empty());
            taken.reuse();
            // Another call, which reports nothing, loses nothing.
            Batch::reused().reuse();
            Batch::default().reuse();
            let spare = Batch::reused();
            assert_eq!(spare.bytes.capacity() > 0, value.len() <= 100, "{}", value.len());
            spare.reuse();
        }
        let kept = [&of_shard, &of_queue, &Batch::reused()].map(|batch| batch.bytes.capacity());
        assert!(kept.iter().all(|&bytes| bytes <= SPARE_BYTES_MAX), "{kept:?}");
        at.truncate(6);
        at.sort_unstable();
        at.dedup();
        assert!(at.len() <= 3, "of the shard, of the queue, and of the thread: {at:?}");
    }

    /// Evictions by a listener's own inserts are reported once each, after it returned and before
    /// the outermost call does. It may insert a bounded number of times, counted per outermost
    /// call.
    #[test]
    fn what_a_listener_evicts_is_reported_after_it() {
        static NOTIFIER: OnceLock<Notifier> = OnceLock::new();
        static REPORTED: Mutex<Vec<u8>> = Mutex::new(Vec::new());
        let notifier = NOTIFIER.get_or_init(|| {
            Notifier::new(Listener(Arc::new(|evicted: Evicted<'_>| {
                let notifier = NOTIFIER.get().unwrap();
                let before = REPORTED.lock().len();
                // As an insert that evicts one entry.
                if notifier.admit_insert().is_ok() {
                    let mut batch = Batch::default();
                    batch.push(&[evicted.key[0] + 1], b"", Cause::Budget);
                    notifier.report(&mut batch);
                    assert!(batch.is_empty());
                }
                assert_eq!(REPORTED.lock().len(), before, "no call within a call");
                REPORTED.lock().push(evicted.key[0]);
            })))
        });
        for _ in 0..2 {
            notifier.admit_insert().unwrap();
            let mut batch = Batch::default();
            batch.push(&[10], b"", Cause::Budget);
            notifier.report(&mut batch);
            let chain = (INSERTS_EACH + INSERTS_MORE) as u8;
            assert_eq!(
                std::mem::take(&mut *REPORTED.lock()),
                (10..=10 + chain).collect::<Vec<u8>>()
            );
        }
    }
}
