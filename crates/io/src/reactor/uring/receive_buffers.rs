//! Memory that the kernel fills at any time: buffers for receiving, and the ring by which the
//! kernel gets them.
//!
//! ```text
//! ours -> give -> the kernel's -> a completion names it -> taken: an event may be read -> give ...
//! ```
//!
//! Invariants
//! 1. A region's memory is mapped as long as anyone shares the region.
//! 2. Bytes of a buffer that is the kernel's are not looked at; those of a buffer that was taken
//!    are not written to. A buffer is taken by the completion that names it, and given again when
//!    no event can name it: at a wait, for which the batch is borrowed and empty.
//! 3. The kernel reads entries of the ring below `tail`, and never writes them.
//! 4. While the kernel may write to buffers their region is shared: by the [`ReceiveBuffers`], which
//!    outlive the operations that use them, or are leaked (contract of [`ReceiveBuffers::register`]).
//!
//! Bounds: [`BUFFERS_MAX`] buffers. Cost: a store a buffer and one a batch, no system call.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// The kernel's limit: a power of two in sixteen bits.
pub(super) const BUFFERS_MAX: usize = 1 << 15;

/// The only group of buffers of a ring.
pub(super) const GROUP: u16 = 0;

/// Pages of zeros, mapped.
#[derive(Debug)]
pub(in crate::reactor) struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, and returns nothing but pointers and, by invariant 2, bytes that no
// code writes.
unsafe impl Send for Region {}
// SAFETY: the same.
unsafe impl Sync for Region {}

impl Region {
    fn new(bytes: usize) -> io::Result<Region> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory in use.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at zero");
        Ok(Region { start, bytes })
    }

    /// Bytes of a buffer that was taken.
    ///
    /// # Safety
    /// No code writes to the bytes while they are borrowed.
    pub(in crate::reactor) unsafe fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at <= self.bytes && len <= self.bytes - at, "within the region");
        // SAFETY: mapped, by invariant 1, and set from the start; not written, by the contract.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at), len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; no other owner is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// ReceiveBuffers of equal size, and the ring.
#[derive(Debug)]
pub(super) struct ReceiveBuffers {
    region: Arc<Region>,
    ring: Region,
    count: u16,
    buffer_bytes: usize,
    tail: u16,
    /// Taken since the last wait.
    taken: Vec<u16>,
}

impl ReceiveBuffers {
    /// At least `count` buffers, registered with `uring`, which has them all.
    ///
    /// # Safety
    /// The buffers are dropped when no operation that receives into them is under way, and none is
    /// begun afterwards; or they are leaked.
    pub(super) unsafe fn register(
        uring: &IoUring,
        count: usize,
        buffer_bytes: usize,
    ) -> io::Result<ReceiveBuffers> {
        let count = count.clamp(1, BUFFERS_MAX).next_power_of_two();
        let ring = Region::new(count * size_of::<BufRingEntry>())?;
        let region = Arc::new(Region::new(count * buffer_bytes)?);
        let count = count as u16;
        let address = ring.start.as_ptr() as u64;
        // SAFETY: `count` entries are mapped there, and stay so while anything is received.
        unsafe { uring.submitter().register_buf_ring_with_flags(address, count, GROUP, 0) }?;
        let taken = (0..count).collect();
        let mut buffers = ReceiveBuffers { region, ring, count, buffer_bytes, tail: 0, taken };
        buffers.give_taken();
        Ok(buffers)
    }

    pub(super) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// A completion names this buffer: where its bytes begin in the region.
    pub(super) fn take(&mut self, id: u16) -> usize {
        assert!(id < self.count, "the kernel names buffers that it was given");
        self.taken.push(id);
        usize::from(id) * self.buffer_bytes
    }

    /// Gives back what was taken (invariant 2: at a wait).
    pub(super) fn give_taken(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let entries: *mut BufRingEntry = self.ring.start.as_ptr().cast();
        for id in self.taken.drain(..) {
            let place = usize::from(self.tail & (self.count - 1));
            let at = usize::from(id) * self.buffer_bytes;
            // SAFETY: `place` is below the count of entries. The kernel does not read
            // it (invariant 3): of `count` buffers it has fewer, so this entry was consumed.
            let entry = unsafe { &mut *entries.add(place) };
            entry.set_addr(self.region.start.as_ptr() as u64 + at as u64);
            entry.set_len(self.buffer_bytes as u32);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
        }
        // SAFETY: the first entry is mapped; its last two bytes are the tail, and aligned.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(entries).cast_mut()) };
        // Release: pairs with the kernel's load, after which it reads the entries.
        tail.store(self.tail, Ordering::Release);
    }
}
