//! Leases: bytes of an object that outlive the call that returned them, on any thread.

use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::task::Waker;

use super::body::{Chunks, Object};
use super::ring::Returned;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

/// The state that a reader and its leases share.
pub(crate) struct Account {
    pub object: Arc<Object>,
    pub loop_number: u32,
    pub lease_bytes_max: u64,
    /// Bytes that its leases hold; `WAITS` if a waker is to be woken when they return.
    pub leased_bytes: AtomicU64,
    pub returned_waker: Mutex<Option<Waker>>,
}

const WAITS: u64 = 1 << 63;

/// The right to read some bytes of an object, in one piece, until it is dropped or returned. The
/// bytes do not change meanwhile, whatever happens to the object.
pub struct Lease {
    account: Arc<Account>,
    data: NonNull<u8>,
    len: usize,
    offset: u64,
    chunk: u64,
    is_shown: AtomicBool,
    /// It was returned, and only its reference to the account is left.
    is_returned: bool,
    /// For the owner: a connection's number, an offset into a response. Begins as 0.
    pub user: u64,
}

// SAFETY: a shared slice in memory that the account keeps mapped and unchanged (O3, O4).
unsafe impl Send for Lease {}
// SAFETY: as above; what changes behind `&self` is atomic.
unsafe impl Sync for Lease {}

impl Lease {
    /// Bytes `offset .. offset + len` of the arena, which are in `chunk`, are published, and were
    /// not leased by this account before.
    pub(crate) fn new(account: &Arc<Account>, chunk: u64, offset: u64, len: usize) -> Self {
        let data = account.object.store.memory.at(offset, len);
        Lease {
            account: account.clone(),
            data: NonNull::new(data).expect("no mapping begins at 0"),
            len,
            offset,
            chunk,
            is_shown: AtomicBool::new(false),
            is_returned: false,
            user: 0,
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.account.object.store.memory.note_read(self.offset, self.len);
        // SAFETY: they are published, so they do not change (O3) as long as the object has their
        // unit. It does, because this lease was not returned (O4), and cannot be while `self` is
        // borrowed.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    /// Sends them to a socket, from byte `skip` on, by their pages and without a copy; returns how
    /// many it took. The socket must be non-blocking. The kernel may hold the pages after the call
    /// has returned and the lease is dropped; they are not written again (O5).
    ///
    /// Reusing the memory then needs a punch and new pages: for 2 MiB 0.3 to 0.6 ms and 1.6 to 2.1
    /// ms, where filling present pages takes 0.1 ms. So use this for bodies that are stored and
    /// sent often, and send those in transit by copy. On systems other than Linux it is a copy.
    ///
    /// # Panics
    /// If `skip` is more than its length.
    #[cfg(all(unix, not(miri), not(loom)))]
    pub fn send(&self, socket: &impl std::os::fd::AsFd, skip: usize) -> std::io::Result<usize> {
        assert!(skip <= self.len, "{skip} of {} bytes are skipped", self.len);
        let (offset, len) = self.file_range();
        let memory = &self.account.object.store.memory;
        memory.send(socket.as_fd(), offset + skip as u64, len - skip)
    }

    /// Their range in the store's file: offset and length. From now on the kernel may have them
    /// (O5).
    #[doc(hidden)]
    pub fn file_range(&self) -> (u64, usize) {
        self.is_shown.store(true, Ordering::Relaxed);
        (self.offset, self.len)
    }

    /// The number of bytes.
    #[expect(clippy::len_without_is_empty, reason = "a lease is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Takes the bytes that it returns, once; dropping it does nothing afterwards.
    pub(crate) fn leave(&mut self) -> Returned {
        debug_assert!(!self.is_returned, "given back twice");
        self.is_returned = true;
        let is_shown = self.is_shown.load(Ordering::Relaxed);
        Returned { chunk: self.chunk, bytes: self.len as u64, is_shown }
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// The object that the account reads.
    pub fn object(&self) -> &Arc<Object> {
        &self.account.object
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_returned {
            let returned = self.leave();
            self.account.settle(std::iter::once(returned));
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("object", &self.account.object.id())
            .field("offset", &self.offset)
            .field("len", &self.len)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Account {
    /// Bytes that it may still lease.
    pub fn budget(&self) -> u64 {
        self.lease_bytes_max.saturating_sub(self.leased_bytes.load(Ordering::Relaxed) & !WAITS)
    }

    /// Wakes `waker` when a lease returns; false if one just did, and then the caller need not
    /// wait. As when a reader asks for more, the returned value is checked.
    pub fn poll_returned(&self, waker: &Waker) -> bool {
        let waker = Some(waker.clone());
        let before = std::mem::replace(&mut *self.returned_waker.lock(), waker);
        drop(before);
        let before = self.leased_bytes.fetch_or(WAITS, Ordering::AcqRel) & !WAITS;
        #[cfg(loom)]
        if self.object.store.fault == super::ObjectFault::NoSecondLook {
            return true;
        }
        before >= self.lease_bytes_max
    }

    /// Counts new leases.
    pub fn book(&self, bytes: u64) {
        self.leased_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.object.store.stripe(self.loop_number).fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts returned leases of this account. This needs no memory order: their holders' reads are
    /// before the ring's lock, or before the drop of their handle of the object.
    pub fn settle(&self, returned: impl Iterator<Item = Returned>) {
        let mut bytes = 0;
        let returned = returned.inspect(|lease| bytes += lease.bytes);
        match &self.object.chunks {
            Chunks::Stored(directory) => {
                returned
                    .filter(|lease| lease.is_shown)
                    .for_each(|lease| directory.note_shown(lease.chunk as usize));
            }
            Chunks::Transit(ring) => {
                let step = ring.give_back(returned, self.object.store.share_units());
                self.object.take_step(step);
            }
        }
        if bytes == 0 {
            return;
        }
        self.object.store.stripe(self.loop_number).fetch_sub(bytes, Ordering::Relaxed);
        if self.leased_bytes.fetch_sub(bytes, Ordering::AcqRel) & WAITS != 0 {
            self.leased_bytes.fetch_and(!WAITS, Ordering::AcqRel);
            let waker = self.returned_waker.lock().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}
