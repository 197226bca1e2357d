//! Reports of entries that were evicted, to the cache's listener.
//!
//! ```text
//! evicted under the lock: copied into the batch -> lock released -> listener called, entry by entry
//! ```
//!
//! The batch belongs to the writer whose operations evicted; its thread makes the calls, in the order of
//! eviction, as the last step of an operation: no lock is held, no slot is in its hands, and what was asked for has
//! been done or is queued. A full batch (256 entries or 64 KiB) ends the lock hold early, and what is left to apply
//! goes on after the calls: nothing is left out, and memory is bounded by the batch and one operation's
//! evictions.
//!
//! *From within.* A listener may use its cache, by any API. What its own writes evict is not reported within them but
//! appended to what the outermost call has still to report: the stack does not grow, and no entry is left out. A
//! listener that answers each eviction with an insert that evicts would never end. So inserts from within are
//! counted: after [`INSERTS_EACH`] for every entry that the outermost call began with, and [`INSERTS_MORE`], they are
//! refused with [`Error::ListenerInserts`].
//!
//! *Panics.* A listener that panics has had its entry; all others of the batch stay, and the next operation of
//! any writer reports them. So do those that a writer has when its thread unwinds, since a second panic would end the
//! process.
//!
//! Without a listener none of this costs anything.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::Error;

const ENTRIES_MAX: usize = 256;
const BYTES_MAX: usize = 64 << 10;

/// Inserts from within a listener for each entry that is reported and was not evicted by such inserts.
const INSERTS_EACH: usize = 4;
/// Inserts from within a listener beyond those, in one outermost call.
const INSERTS_MORE: usize = 16;

/// Why an entry left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The budget, of bytes or of entries, was used up, and replacement chose it.
    Budget,
    /// Likewise, and its life was over, stale window and all: nothing was lost.
    Expired,
    /// Its bucket and all those around were full. Rare: none in ten million inserts.
    Conflict,
}

/// An entry that left to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evicted<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Why it left.
    pub cause: Cause,
}

/// Who is told. See [`crate::Builder::on_evicted`].
#[derive(Clone)]
pub(crate) struct Listener(pub Arc<dyn Fn(Evicted<'_>) + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Copies of entries that left, oldest first.
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

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.bytes.len() >= BYTES_MAX
    }

    /// Adds the entries of another batch, which is empty then.
    pub fn append(&mut self, other: &mut Batch) {
        if self.is_empty() {
            std::mem::swap(self, other);
        } else {
            self.bytes.append(&mut other.bytes);
            self.entries.append(&mut other.entries);
        }
    }

    /// Empties it. The memory is for the next batch, unless one operation made it unusually large.
    fn clear(&mut self) {
        if self.bytes.capacity() > 4 * BYTES_MAX {
            *self = Batch::default();
        } else {
            self.bytes.clear();
            self.entries.clear();
        }
    }
}

/// The listener of a cache, and what it has still to be told.
#[derive(Debug)]
pub(crate) struct Notifier {
    listener: Listener,
    /// What a panic left, or a writer that could report nothing.
    unreported: Mutex<Batch>,
    has_unreported: AtomicBool,
}

/// A call of a listener in progress on this thread.
struct Call {
    /// The address of its notifier.
    notifier: usize,
    /// What is to be reported before the call ends: the listener's own writes add to it.
    waiting: Batch,
    /// Inserts that the listener may do yet.
    inserts: usize,
}

thread_local! {
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

    /// Runs `act` on the call of this listener that is in progress on this thread; `None` when there is none. (A thread
    /// that ends, and has lost its list, has none either.)
    fn with_call<R>(&self, act: impl FnOnce(&mut Call) -> R) -> Option<R> {
        CALLS
            .try_with(|calls| {
                let mut calls = calls.borrow_mut();
                calls.iter_mut().find(|call| call.notifier == self.address()).map(act)
            })
            .ok()
            .flatten()
    }

    /// Whether an insert may begin: always, but from within the listener.
    pub fn admit_insert(&self) -> Result<(), Error> {
        let admitted = self.with_call(|call| {
            let left = call.inserts.checked_sub(1);
            call.inserts = left.unwrap_or(0);
            left.is_some()
        });
        if admitted == Some(false) { Err(Error::ListenerInserts) } else { Ok(()) }
    }

    /// Keeps what cannot be reported here; a later report has it.
    pub fn keep(&self, batch: &mut Batch) {
        if !batch.is_empty() {
            let mut unreported = self.unreported.lock();
            unreported.append(batch);
            self.has_unreported.store(true, Ordering::Relaxed);
        }
    }

    /// Calls the listener for each entry of the batch, which is empty then, and for those that were kept before.
    #[inline]
    pub fn report(&self, batch: &mut Batch) {
        // A report that misses what another thread kept just now leaves it to the next.
        if !batch.is_empty() || self.has_unreported.load(Ordering::Relaxed) {
            self.report_some(batch);
        }
    }

    #[cold]
    fn report_some(&self, batch: &mut Batch) {
        if self.with_call(|call| call.waiting.append(batch)).is_some() {
            return;
        }
        // A thread that unwinds, or ends and has lost its list, reports nothing.
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
        // The memory goes back to the writer.
        std::mem::swap(batch, &mut reporting.batch);
    }
}

/// The outermost call of a listener. Dropped before all is reported, it keeps the rest.
struct Reporting<'a> {
    notifier: &'a Notifier,
    batch: Batch,
    /// Entries of the batch that were reported, and the bytes of them.
    entry: usize,
    at: usize,
}

impl Reporting<'_> {
    /// Takes what waits; false when nothing does.
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

    /// Reports come in the order of eviction; a panic costs the entry that was being reported and no other, and what a
    /// thread that unwinds has is reported by the next.
    #[test]
    fn a_panic_loses_no_entry() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hearing = heard.clone();
        let notifier = Notifier::new(Listener(Arc::new(move |evicted: Evicted<'_>| {
            hearing.lock().push((evicted.key.to_vec(), evicted.value.len()));
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
        assert_eq!(std::mem::take(&mut *heard.lock()), first);
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
        assert!(catch_unwind(unwinding).is_err() && heard.lock().is_empty());
        report(&mut Batch::default()).unwrap();
        assert_eq!(*heard.lock(), [(b"e".to_vec(), 1), (b"f".to_vec(), 0)]);
        assert!(!notifier.has_unreported.load(Ordering::Relaxed));
    }

    /// What a listener evicts itself is reported after it returned and before the outermost call does, each entry once;
    /// and it may insert a bounded number of times, counted anew for the next outermost call.
    #[test]
    fn what_a_listener_evicts_is_reported_after_it() {
        static NOTIFIER: OnceLock<Notifier> = OnceLock::new();
        static HEARD: Mutex<Vec<u8>> = Mutex::new(Vec::new());
        let notifier = NOTIFIER.get_or_init(|| {
            Notifier::new(Listener(Arc::new(|evicted: Evicted<'_>| {
                let notifier = NOTIFIER.get().unwrap();
                let before = HEARD.lock().len();
                // As an insert does that evicts one entry.
                if notifier.admit_insert().is_ok() {
                    let mut batch = Batch::default();
                    batch.push(&[evicted.key[0] + 1], b"", Cause::Budget);
                    notifier.report(&mut batch);
                    assert!(batch.is_empty());
                }
                assert_eq!(HEARD.lock().len(), before, "no call within a call");
                HEARD.lock().push(evicted.key[0]);
            })))
        });
        for _ in 0..2 {
            notifier.admit_insert().unwrap();
            let mut batch = Batch::default();
            batch.push(&[10], b"", Cause::Budget);
            notifier.report(&mut batch);
            let chain = (INSERTS_EACH + INSERTS_MORE) as u8;
            assert_eq!(std::mem::take(&mut *HEARD.lock()), (10..=10 + chain).collect::<Vec<u8>>());
        }
    }
}
