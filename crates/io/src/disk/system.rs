//! Writes that the kernel has, by io_uring.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use super::PAGE_BYTES;

/// The flag that a descriptor is opened with that bypasses the page cache.
pub const O_DIRECT: i32 = libc::O_DIRECT;

/// Most bytes of one write: whole pages in 32 bits.
pub(super) const WRITE_BYTES_MAX: usize = (u32::MAX - (PAGE_BYTES as u32 - 1)) as usize;

pub(super) struct Ring(IoUring);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ring")
    }
}

impl Ring {
    /// A ring for this many writes, or `None` if the kernel does not permit io_uring.
    pub fn new(entries: u32) -> Option<Ring> {
        IoUring::new(entries).ok().map(Ring)
    }

    /// Submits a write of bytes for `offset` of the file.
    ///
    /// # Safety
    /// The bytes do not change and the file is open until [`Ring::done`] returns `number`, or for
    /// ever. The ring has a place.
    pub unsafe fn write(&mut self, file: &File, bytes: &[u8], offset: u64, number: u64) {
        let file = types::Fd(file.as_raw_fd());
        let entry = opcode::Write::new(file, bytes.as_ptr(), bytes.len() as u32)
            .offset(offset)
            .build()
            .user_data(number);
        // SAFETY: the contract.
        let pushed = unsafe { self.0.submission().push(&entry) };
        pushed.expect("the ring has a place");
        // Entries that the kernel did not accept now are submitted by the next call, or by the
        // wait.
        let _ = self.0.submit();
    }

    /// The kernel keeps what it has: memory and entries.
    pub fn leak(self) {
        std::mem::forget(self);
    }

    /// Waits for a completion. After an error nothing is known about the writes.
    pub fn wait(&mut self) -> io::Result<()> {
        match self.0.submit_and_wait(1) {
            Err(error)
                if !matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                ) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Writes that are over, by their numbers, with the bytes written, or an error below 0.
    pub fn done(&mut self) -> Vec<(u64, i32)> {
        self.0.completion().map(|entry| (entry.user_data(), entry.result())).collect()
    }
}
