//! A reader: one walk through a range of an object, by leases.

use std::ops::Range;

use super::body::{Object, State};
use super::lease::{Account, Lease};
use super::{Failure, Leased, Phase, ReaderOptions};
use crate::sync::{Arc, AtomicU64};

/// Reads a range of an object, in order, once. Dropping it cancels whatever it asked for; its leases stay good.
pub struct Reader {
    account: Arc<Account>,
    position: u64,
    /// Where the range ends; `u64::MAX` is wherever the body does.
    end: u64,
    /// The number of the chunk in which it is, once it has found one.
    chunk: Option<u64>,
}

impl Reader {
    /// By `Object::open`, which has counted it.
    pub(crate) fn new(object: &Arc<Object>, range: Range<u64>, options: ReaderOptions) -> Self {
        Reader {
            account: Arc::new(Account {
                object: object.clone(),
                loop_number: options.loop_number,
                lease_bytes_max: options.lease_bytes_max.max(1),
                leased_bytes: AtomicU64::new(0),
            }),
            position: range.start,
            end: range.end,
            chunk: None,
        }
    }

    /// Adds leases of what comes next to `out`: up to `bytes_max` octets, in as few pieces as there are. Never
    /// blocks. [`Leased::Later`] has asked for a notice.
    pub fn lease(&mut self, out: &mut Vec<Lease>, bytes_max: u64) -> Leased {
        match self.lease_at(self.object().look(), out, bytes_max) {
            Leased::Later => {
                let state = self.object().ask(1 << self.account.loop_number);
                self.lease_at(state, out, bytes_max)
            }
            leased => leased,
        }
    }

    /// Gives leases back, those of other readers too.
    pub fn give_back(&mut self, leases: impl IntoIterator<Item = Lease>) {
        let (mut own, others): (Vec<Lease>, Vec<Lease>) =
            leases.into_iter().partition(|lease| Arc::ptr_eq(lease.account(), &self.account));
        if !own.is_empty() {
            self.account.settle(own.iter_mut().map(Lease::leave));
        }
        drop(others);
    }

    /// Where the next lease begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What it reads.
    pub fn object(&self) -> &Arc<Object> {
        &self.account.object
    }

    /// What is to be had in `state`; `Later` has asked for nothing.
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
        self.extend(out, bytes);
        Leased::Some { bytes, is_end: self.position == end }
    }

    /// Leases the next `bytes`, which are published.
    fn extend(&mut self, out: &mut Vec<Lease>, bytes: u64) {
        self.account.book(bytes);
        let end = self.position + bytes;
        let mut number = match self.chunk {
            Some(number) => number,
            None => self.object().find(self.position),
        };
        while self.position < end {
            let chunk = self.object().chunk(number);
            let len = (chunk.end().min(end) - self.position) as usize;
            out.push(Lease::new(&self.account, number, chunk.offset(self.position), len));
            self.position += len as u64;
            if self.position == chunk.end() {
                // Of a body in transit this one may be gone when the next is wanted.
                number += 1;
            }
        }
        self.chunk = Some(number);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
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
