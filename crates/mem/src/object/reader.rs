//! A reader: reads a range of an object once, by leases.

use std::ops::Range;
use std::task::{Context, Poll, Waker};

use super::body::{Chunks, Object, State};
use super::directory::Chunk;
use super::fifo::Ticket;
use super::lease::{Account, Lease};
use super::{Failure, Leased, Phase, ReaderOptions};
use crate::sync::{Arc, AtomicU64, Mutex};

/// Reads a range of an object, in order, once. Dropping it cancels its requests; its leases stay
/// valid.
pub struct Reader {
    account: Arc<Account>,
    position: u64,
    /// The end of the range; `u64::MAX` is the end of the body.
    end: u64,
    /// The number of its current chunk, once it has found one.
    chunk: Option<u64>,
    /// Its place in the queue of wakers.
    ticket: Option<Ticket>,
}

impl Reader {
    /// Called by `Object::open`, which has counted it.
    pub(crate) fn new(object: &Arc<Object>, range: Range<u64>, options: ReaderOptions) -> Self {
        Reader {
            account: Arc::new(Account {
                object: object.clone(),
                loop_number: options.loop_number,
                lease_bytes_max: options.lease_bytes_max.max(1),
                leased_bytes: AtomicU64::new(0),
                returned_waker: Mutex::new(None),
            }),
            position: range.start,
            end: range.end,
            chunk: None,
            ticket: None,
        }
    }

    /// Adds leases of the next bytes to `out`: up to `bytes_max` bytes, in as few pieces as
    /// possible. Never blocks. [`Leased::Later`] means that a notice will come.
    pub fn lease(&mut self, out: &mut Vec<Lease>, bytes_max: u64) -> Leased {
        match self.lease_at(self.object().load(), out, bytes_max) {
            Leased::Later => {
                let state = self.object().register(1 << self.account.loop_number);
                #[cfg(loom)]
                if self.object().store.fault == super::ObjectFault::NoSecondLook {
                    return Leased::Later;
                }
                self.lease_at(state, out, bytes_max)
            }
            leased => leased,
        }
    }

    /// The same for threads and tasks: pending instead of [`Leased::Later`]. Then the waker of the
    /// last call is woken, in the order in which readers began to wait.
    pub fn poll_lease(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<Lease>,
        bytes_max: u64,
    ) -> Poll<Leased> {
        let mut leased = self.lease_at(self.object().load(), out, bytes_max);
        if leased == Leased::Later {
            let state = self.account.object.register_waker(&mut self.ticket, cx.waker());
            leased = self.lease_at(state, out, bytes_max);
            if leased == Leased::Later {
                return Poll::Pending;
            }
        }
        self.remove_waker();
        Poll::Ready(leased)
    }

    /// After [`Leased::ReturnFirst`]: true if `waker` will be woken when a lease returns, false if
    /// one has.
    pub(crate) fn poll_returned(&self, waker: &Waker) -> bool {
        self.account.poll_returned(waker)
    }

    fn remove_waker(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.object().remove_waker(ticket);
        }
    }

    /// Returns leases, also those of other readers.
    pub fn give_back(&mut self, leases: impl IntoIterator<Item = Lease>) {
        let account = &self.account;
        let own = leases
            .into_iter()
            .filter_map(|mut lease| Arc::ptr_eq(lease.account(), account).then(|| lease.leave()));
        match account.object.chunks {
            Chunks::Stored(_) => account.settle(own),
            // The caller's iterator does not run under the ring's lock.
            Chunks::Transit(_) => account.settle(own.collect::<Vec<_>>().into_iter()),
        }
    }

    /// The start of the next lease.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The object that it reads.
    pub fn object(&self) -> &Arc<Object> {
        &self.account.object
    }

    /// The result in `state`, without asking for a notice.
    fn lease_at(&mut self, state: State, out: &mut Vec<Lease>, bytes_max: u64) -> Leased {
        let (phase, published) = (state.phase(), state.published());
        if let Phase::Failed(failure @ Failure::Damaged) = phase {
            return Leased::Failed(failure);
        }
        let end = if phase == Phase::Sealed { self.end.min(published) } else { self.end };
        if self.position >= end {
            return Leased::End;
        }
        let there = end.min(published).saturating_sub(self.position);
        if there == 0 {
            return match phase {
                Phase::Failed(failure) => Leased::Failed(failure),
                _ => Leased::Later,
            };
        }
        let budget = self.account.budget();
        if budget == 0 {
            return Leased::ReturnFirst;
        }
        let bytes = there.min(budget).min(bytes_max.max(1));
        if self.extend(out, bytes).is_err() {
            self.object().abort(Failure::Damaged);
            self.object().revoke();
            return Leased::Failed(Failure::Damaged);
        }
        Leased::Some { bytes, is_end: self.position == end }
    }

    /// Leases the next `bytes`, which are published; fails if they differ from the written ones.
    fn extend(&mut self, out: &mut Vec<Lease>, bytes: u64) -> Result<(), ()> {
        let (start, end, before) = (self.position, self.position + bytes, out.len());
        let mut number = match self.chunk {
            Some(number) => number,
            None => self.object().find(self.position),
        };
        while self.position < end {
            let chunk = self.object().chunk(number);
            let piece_end = chunk.end().min(end);
            if self.check(&chunk, piece_end).is_err() {
                self.account.book(self.position - start);
                out.truncate(before);
                return Err(());
            }
            let len = (piece_end - self.position) as usize;
            out.push(Lease::new(&self.account, number, chunk.offset(self.position), len));
            self.position += len as u64;
            if self.position == chunk.end() {
                // In transit this chunk may be freed when the next is needed.
                number += 1;
            }
        }
        self.account.book(bytes);
        self.chunk = Some(number);
        Ok(())
    }

    /// Checks the bytes of `chunk` from here to `end`.
    fn check(&self, chunk: &Chunk, end: u64) -> Result<(), ()> {
        let Some(digests) = &self.object().digests else { return Ok(()) };
        let memory = &self.object().store.memory;
        digests.check(self.position, end, |position, len| {
            let offset = chunk.offset(position);
            memory.note_read(offset, len);
            // SAFETY: this unit's digest was stored under a lock after its bytes, which do not
            // change from then on. The object has the unit, because the bytes that we are about to
            // lease were not returned (O4).
            unsafe { std::slice::from_raw_parts(memory.at(offset, len), len) }
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.remove_waker();
        self.object().close();
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("object", self.object())
            .field("position", &self.position)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}
