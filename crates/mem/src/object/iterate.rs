//! Readers for tasks and for threads, on top of the reader that never blocks: a stream of leases,
//! and a blocking iterator.
//!
//! The crate depends on no runtime. [`LeaseStream`] has the method that `futures::Stream` needs,
//! and becomes one in three lines, in a crate that has both:
//!
//! ```text
//! impl futures::Stream for Body { type Item = Result<Lease, Failure>;
//!     fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
//!         Pin::new(&mut self.0).poll_next(cx) } }                       // struct Body(LeaseStream);
//! ```

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Failure, Lease, Leased, Reader};

/// The leases of a reader, one by one. At their limit, it waits until one of them is dropped.
#[derive(Debug)]
pub struct LeaseStream {
    reader: Reader,
    bytes_max: u64,
    ready: VecDeque<Lease>,
    has_ended: bool,
}

impl LeaseStream {
    /// Leases up to `bytes_max` bytes at a time.
    pub fn new(reader: Reader, bytes_max: u64) -> Self {
        LeaseStream { reader, bytes_max, ready: VecDeque::new(), has_ended: false }
    }

    /// The next lease; a failure once; then `None`.
    pub fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Lease, Failure>>> {
        let this = &mut *self;
        loop {
            if let Some(lease) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(lease)));
            }
            if this.has_ended {
                return Poll::Ready(None);
            }
            let mut leases = Vec::from(std::mem::take(&mut this.ready));
            let leased = this.reader.poll_lease(cx, &mut leases, this.bytes_max);
            this.ready = leases.into();
            match leased {
                Poll::Pending | Poll::Ready(Leased::Later) => return Poll::Pending,
                Poll::Ready(Leased::Some { is_end, .. }) => this.has_ended = is_end,
                Poll::Ready(Leased::ReturnFirst) => {
                    if this.reader.poll_returned(cx.waker()) {
                        return Poll::Pending;
                    }
                }
                Poll::Ready(Leased::End) => this.has_ended = true,
                Poll::Ready(Leased::Failed(failure)) => {
                    this.has_ended = true;
                    return Poll::Ready(Some(Err(failure)));
                }
            }
        }
    }
}

#[cfg(not(loom))]
pub use threads::iterate;

#[cfg(not(loom))]
mod threads {
    use std::ops::{ControlFlow, Range};
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread::{self, Thread};

    use crate::object::{Gone, Leased, Object, ReaderOptions};

    /// The largest piece in bytes: bytes that a check has read are still in the cache when the
    /// visitor reads them. (With pieces of a whole chunk an iteration with a check took 1.36 times
    /// as long.)
    const PIECE_BYTES_MAX: u64 = 64 << 10;

    /// Wakes a parked thread.
    struct Parked(Thread);

    impl Wake for Parked {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            self.0.unpark();
        }
    }

    /// Passes the bytes of `range` to `visit`, piece by piece, until it breaks or they end; the
    /// thread sleeps while there are none. A failure meanwhile is `Gone::Failed`.
    pub fn iterate<B>(
        object: &Arc<Object>,
        range: Range<u64>,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, Gone> {
        let options = ReaderOptions { loop_number: 0, lease_bytes_max: PIECE_BYTES_MAX };
        let mut reader = object.open(range, options)?;
        let waker = Waker::from(Arc::new(Parked(thread::current())));
        let mut cx = Context::from_waker(&waker);
        let mut leases = Vec::new();
        loop {
            match reader.poll_lease(&mut cx, &mut leases, PIECE_BYTES_MAX) {
                // If it was woken before, this returns at once; after a spurious wake-up it asks
                // again.
                Poll::Pending | Poll::Ready(Leased::Later) => thread::park(),
                Poll::Ready(Leased::Some { .. }) => {
                    for lease in &leases {
                        if let ControlFlow::Break(value) = visit(lease.as_bytes()) {
                            return Ok(ControlFlow::Break(value));
                        }
                    }
                    reader.give_back(leases.drain(..));
                }
                Poll::Ready(Leased::End) => return Ok(ControlFlow::Continue(())),
                Poll::Ready(Leased::Failed(failure)) => return Err(Gone::Failed(failure)),
                Poll::Ready(Leased::ReturnFirst) => unreachable!("all were given back"),
            }
        }
    }
}
