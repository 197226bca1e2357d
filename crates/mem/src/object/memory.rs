//! The bytes: one memfd, mapped once, shared with the kernel by offset.
//!
//! `sendfile` hands the pages themselves to a socket and returns. Nothing tells when the peer has
//! received them, and bytes that are written to them meanwhile are what the peer gets (measured:
//! all of 65 536 bytes). So a page that the kernel may still hold is never written again. It is
//! *punched*: the file releases it, its other holders keep the old bytes, and the next access to
//! the range allocates a new page.
//!
//! This depends on a punch releasing whole pages. A huge page that is being sent cannot be split: a
//! hole in a part of it is made by zeroing that part in place, and later writes go to the same page
//! (measured on a tmpfs of huge pages: again all of 65 536 bytes, in spite of the punch). So the
//! mapping declines huge pages.
//!
//! # Large chunks
//!
//! A chunk with the size and alignment of a huge page, which its object owns whole until it is
//! punched whole, may be one huge page (O8). It is requested before anything is written: with one
//! byte of the chunk present, `MADV_COLLAPSE` (Linux 6.1) makes one page of the range, whatever the
//! machine's setting for shared memory, unless that is `deny`. The kernel is then passed one piece
//! instead of 512. Measured, 2 MiB: filled in 0.41 ms in all (else 1.05, of which 0.8 are page
//! faults), punched in 6 us (else 110), and sent by `sendfile` in 0.70 to 0.77 of the processor's
//! time, as a file in the page cache is.
//!
//! On other systems than Linux, and under loom and Miri, the memory is a region and there is no
//! file. Under loom each byte has a shadow, so that the model checker sees each access.

use std::io;

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod shared {
    use std::fs::File;
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::ptr::NonNull;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::{Mutex, PoisonError};

    use super::super::CHUNK_BYTES_MAX;

    /// Linux 6.1; the `libc` crate defines it for glibc only.
    const MADV_COLLAPSE: libc::c_int = 25;

    /// Chunks that are not enlarged after one that could not be.
    const SKIPS: u32 = 256;

    #[derive(Debug)]
    pub struct Shared {
        reserved: NonNull<u8>,
        reserved_bytes: usize,
        /// Within the reserved range.
        pub base: NonNull<u8>,
        pub file: File,
        /// Chunks to skip before the next try: a machine without free huge pages searches for them
        /// at length.
        skips: AtomicU32,
        /// Chunks in which the kernel may make huge pages by itself, because it refused our advice.
        /// None is free again before it accepts. While there are some no other is enlarged, so they
        /// are as many as threads that enlarged at once.
        stuck: Mutex<Vec<usize>>,
        /// There are stuck chunks.
        pub is_stuck: AtomicBool,
    }

    // SAFETY: an address range and a file; the module's invariants state who may access what in it.
    unsafe impl Send for Shared {}
    // SAFETY: as above.
    unsafe impl Sync for Shared {}

    impl Shared {
        /// `bytes` is not 0.
        pub fn new(bytes: usize) -> io::Result<Self> {
            // SAFETY: the name is a string with its end; the kernel makes a new file of our own.
            let fd = unsafe {
                let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
                libc::memfd_create(c"larder-objects".as_ptr(), flags)
            };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: just created, and not used elsewhere.
            let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
            file.set_len(bytes as u64)?;
            // The file can never be truncated below the mapping, whichever program gets it.
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            // SAFETY: a system call on a file of our own, which touches no memory.
            if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
                return Err(io::Error::last_os_error());
            }
            // More addresses than needed, so that chunks can be aligned like huge pages.
            let reserved_bytes =
                bytes.checked_add(CHUNK_BYTES_MAX).ok_or(io::ErrorKind::OutOfMemory)?;
            // SAFETY: addresses of the kernel's choice, at which nothing is.
            let reserved = unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
                libc::mmap(std::ptr::null_mut(), reserved_bytes, libc::PROT_NONE, flags, -1, 0)
            };
            if reserved == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let reserved = NonNull::new(reserved.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
            let before = reserved.as_ptr().align_offset(CHUNK_BYTES_MAX);
            // SAFETY: `before` is below the size of a chunk, by which more was reserved than `bytes`.
            let base = unsafe { reserved.add(before) };
            let shared = Shared {
                reserved,
                reserved_bytes,
                base,
                file,
                skips: AtomicU32::new(0),
                stuck: Mutex::default(),
                is_stuck: AtomicBool::new(false),
            };
            // SAFETY: the range is in what was just reserved and is unused. The file is as long as
            // it, and stays so: only we have the descriptor with more than the right to borrow it.
            let mapped = unsafe {
                libc::mmap(
                    base.as_ptr().cast(),
                    bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED,
                    shared.file.as_raw_fd(),
                    0,
                )
            };
            if mapped == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            // Advice: a kernel without huge pages refuses, and has none to decline.
            let _ = shared.advise(0, bytes, libc::MADV_NOHUGEPAGE);
            Ok(shared)
        }

        /// Advises the kernel on a range within the mapping.
        fn advise(&self, offset: usize, bytes: usize, advice: libc::c_int) -> io::Result<()> {
            // SAFETY: a range of our own mapping (the callers'), and advice that changes no byte of it.
            match unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), bytes, advice) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }

        /// True, and counted, if a chunk is to be skipped.
        pub fn skips(&self) -> bool {
            let skips = self.skips.load(Ordering::Relaxed);
            // Not one atomic operation: of two concurrent counts one may be lost, which only
            // changes when the next try is.
            self.skips.store(skips.saturating_sub(1), Ordering::Relaxed);
            skips > 0 || self.is_stuck.load(Ordering::Relaxed)
        }

        /// Makes one page of a chunk, which is within the mapping and has a page. False: it has
        /// none, of any size.
        pub fn enlarge(&self, offset: usize) -> bool {
            // If this is refused nothing has changed: the kernel has no huge pages, or no memory
            // for the range.
            let is_wished = self.advise(offset, CHUNK_BYTES_MAX, libc::MADV_HUGEPAGE).is_ok();
            let is_enlarged =
                is_wished && self.advise(offset, CHUNK_BYTES_MAX, MADV_COLLAPSE).is_ok();
            if !is_enlarged {
                self.skips.store(SKIPS, Ordering::Relaxed);
            }
            if !is_wished {
                return false;
            }
            // Equal to its neighbors again: one range for the kernel, in which it makes no huge
            // page by itself.
            let is_declined = self.decline(offset);
            // The call may have made the page and failed afterwards, or the kernel made it by
            // itself while it was allowed to.
            is_enlarged
                || !is_declined
                || self.punch(offset as u64, CHUNK_BYTES_MAX as u64).is_err()
        }

        /// Tells the kernel to make no huge page of a chunk by itself; false, and recorded, if it
        /// refuses.
        fn decline(&self, offset: usize) -> bool {
            let is_heeded = self.advise(offset, CHUNK_BYTES_MAX, libc::MADV_NOHUGEPAGE).is_ok();
            if !is_heeded {
                self.note_stuck(offset);
            }
            is_heeded
        }

        pub fn note_stuck(&self, offset: usize) {
            self.stuck.lock().unwrap_or_else(PoisonError::into_inner).push(offset);
            self.is_stuck.store(true, Ordering::Relaxed);
        }

        /// Tries that again, for the chunks of a range; false if the kernel still refuses.
        fn declines_again(&self, offset: u64, bytes: u64) -> bool {
            let mut stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
            let is_in =
                |at: usize| offset < (at + CHUNK_BYTES_MAX) as u64 && (at as u64) < offset + bytes;
            stuck.retain(|&at| {
                let stays = || self.advise(at, CHUNK_BYTES_MAX, libc::MADV_NOHUGEPAGE).is_err();
                !is_in(at) || stays()
            });
            self.is_stuck.store(!stuck.is_empty(), Ordering::Relaxed);
            !stuck.iter().any(|&at| is_in(at))
        }

        pub fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
            // What was recorded for this range's chunk is visible: the thread that freed the chunk
            // owned it since then.
            if self.is_stuck.load(Ordering::Relaxed) && !self.declines_again(offset, bytes) {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let too_large = |_| io::ErrorKind::InvalidInput;
            let offset = libc::off_t::try_from(offset).map_err(too_large)?;
            let bytes = libc::off_t::try_from(bytes).map_err(too_large)?;
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            super::again_if_interrupted(|| {
                // SAFETY: a system call on our own file; `Memory::punch` has the contract for
                // memory that may be in use.
                unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset, bytes) as isize }
            })?;
            Ok(())
        }
    }

    impl Drop for Shared {
        fn drop(&mut self) {
            // SAFETY: `new` reserved this range, and the mapping is in it; borrowers of the mapping
            // own the store, which owns us.
            let _ = unsafe { libc::munmap(self.reserved.as_ptr().cast(), self.reserved_bytes) };
        }
    }
}

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
use shared::Shared as Mapping;

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
type Mapping = crate::region::Region<u8>;

/// The arena's bytes, by offset.
#[derive(Debug)]
pub(crate) struct Memory {
    mapping: Mapping,
    bytes: u64,
    #[cfg(loom)]
    shadows: Box<[crate::sync::RaceCell<()>]>,
}

/// Repeats a system call that a signal interrupted; its result is negative if it failed.
#[cfg(all(unix, not(miri), not(loom)))]
fn again_if_interrupted(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(count) => return Ok(count),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

// SAFETY: under loom the shadows are not `Sync`; loom itself checks each access to them.
#[cfg(loom)]
unsafe impl Sync for Memory {}
// SAFETY: as above.
#[cfg(loom)]
unsafe impl Send for Memory {}

impl Memory {
    pub fn new(bytes: u64) -> io::Result<Self> {
        let len = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if isize::try_from(len).is_err() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Memory {
            mapping: Mapping::new(len)?,
            bytes,
            #[cfg(loom)]
            shadows: (0..len).map(|_| crate::sync::RaceCell::new(())).collect(),
        })
    }

    /// The file, if there is one. All bytes can be changed through it, so only callers that
    /// guarantee the contract may have it.
    #[cfg(all(target_os = "linux", not(miri), not(loom)))]
    pub fn file(&self) -> std::os::fd::BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.mapping.file.as_fd()
    }

    /// Sends the `len` bytes at `offset` to a socket by their pages, without a copy; returns how
    /// many it took.
    #[cfg(all(target_os = "linux", not(miri), not(loom)))]
    pub fn send(
        &self,
        socket: std::os::fd::BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        use std::os::fd::AsRawFd;
        let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let mut offset = libc::off64_t::try_from(offset).map_err(too_far)?;
        let (to, from) = (socket.as_raw_fd(), self.mapping.file.as_raw_fd());
        again_if_interrupted(|| {
            // SAFETY: both descriptors are open while they are borrowed; the kernel reads and writes `offset`, and only
            // reads the file.
            unsafe { libc::sendfile64(to, from, &raw mut offset, len) }
        })
    }

    /// Sends a copy of the `len` bytes at `offset` to a socket; returns how many it took.
    #[cfg(all(unix, not(any(target_os = "linux", miri, loom))))]
    pub fn send(
        &self,
        socket: std::os::fd::BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        use std::os::fd::AsRawFd;
        let (to, from) = (socket.as_raw_fd(), self.at(offset, len));
        again_if_interrupted(|| {
            // SAFETY: the descriptor is open while it is borrowed; the kernel reads `len` bytes within the mapping
            // (`at` asserts that), which are published and do not change (O3).
            unsafe { libc::send(to, from.cast(), len, libc::MSG_DONTWAIT) }
        })
    }

    /// The address of `len` bytes at `offset`.
    pub fn at(&self, offset: u64, len: usize) -> *mut u8 {
        assert!(
            offset <= self.bytes && len as u64 <= self.bytes - offset,
            "{len} bytes at {offset} of an arena of {}",
            self.bytes
        );
        #[cfg(all(target_os = "linux", not(miri), not(loom)))]
        let base = self.mapping.base.as_ptr();
        #[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
        let base = self.mapping.base().as_ptr();
        // SAFETY: the range ends inside the mapping (the assertion), which is no longer than `isize::MAX`.
        unsafe { base.add(offset as usize) }
    }

    /// Reports a write to the model checker.
    #[cfg(loom)]
    pub fn note_write(&self, offset: u64, len: usize) {
        for shadow in &self.shadows[offset as usize..][..len] {
            shadow.with_mut(|_| ());
        }
    }

    /// Reports a read to the model checker.
    #[cfg(loom)]
    pub fn note_read(&self, offset: u64, len: usize) {
        for shadow in &self.shadows[offset as usize..][..len] {
            shadow.with(|_| ());
        }
    }

    /// Nothing to report.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn note_write(&self, _offset: u64, _len: usize) {}

    /// Nothing to report.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn note_read(&self, _offset: u64, _len: usize) {}

    /// Makes one huge page of the chunk of [`super::CHUNK_BYTES_MAX`] at `offset`, if the kernel
    /// does; its bytes are lost. False: it is unchanged, or empty, and no huge page. True: it may
    /// be one.
    ///
    /// # Safety
    /// As for [`Memory::punch`]. If true, the chunk is punched whole before any of it is free (O8).
    pub unsafe fn enlarge(&self, offset: u64) -> bool {
        #[cfg(all(target_os = "linux", not(miri), not(loom)))]
        {
            let first = self.at(offset, super::CHUNK_BYTES_MAX);
            // Small pages that are still there would be copied one by one, at ten times their cost.
            if self.mapping.skips()
                || self.mapping.punch(offset, super::CHUNK_BYTES_MAX as u64).is_err()
            {
                return false;
            }
            // SAFETY: within the mapping, and not in use (this function's contract). The kernel
            // makes no huge page of an empty range.
            unsafe { first.write(0) };
            self.mapping.enlarge(offset as usize)
        }
        #[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
        {
            let _ = offset;
            false
        }
    }

    /// Releases the pages of a range, which reads as zeroes afterwards.
    ///
    /// # Safety
    /// There is no reference into the range: it is neither free nor an object's.
    pub unsafe fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset);
        #[cfg(all(target_os = "linux", not(miri), not(loom)))]
        return self.mapping.punch(offset, bytes);
        #[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
        {
            self.note_write(offset, bytes as usize);
            // SAFETY: within the region, and not in use (this function's contract).
            unsafe { self.at(offset, bytes as usize).write_bytes(0, bytes as usize) };
            Ok(())
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri), not(loom)))]
mod tests {
    use super::*;

    /// Bytes written through the mapping are read through the file at the same offset. A punched
    /// range reads as zeroes in both, and its neighbors stay.
    #[test]
    fn file_and_mapping_are_one() {
        use std::os::unix::fs::FileExt;
        let memory = Memory::new(2 << 20).unwrap();
        // SAFETY: within the mapping, and we are alone.
        unsafe { memory.at(4096, 3 * 4096).write_bytes(7, 3 * 4096) };
        let file = std::fs::File::from(memory.file().try_clone_to_owned().unwrap());
        let mut bytes = [0; 5 * 4096];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[4096..4 * 4096].iter().all(|&byte| byte == 7));
        // SAFETY: there is no reference into it.
        unsafe { memory.punch(2 * 4096, 4096) }.unwrap();
        file.read_exact_at(&mut bytes, 0).unwrap();
        for (page, expected) in [0, 7, 0, 7, 0].into_iter().enumerate() {
            assert!(bytes[page * 4096..][..4096].iter().all(|&byte| byte == expected), "{page}");
        }
        // SAFETY: as above.
        assert_eq!(unsafe { memory.at(2 * 4096, 1).read() }, 0);
    }

    /// A chunk for which the kernel once refused our advice is tried again before it is punched,
    /// and is freed once the kernel accepts. Others are punched as usual.
    #[test]
    fn memory_is_requested_again() {
        use std::sync::atomic::Ordering;

        use super::super::CHUNK_BYTES_MAX;

        let chunk = CHUNK_BYTES_MAX as u64;
        let shared = shared::Shared::new(2 * CHUNK_BYTES_MAX).unwrap();
        shared.note_stuck(CHUNK_BYTES_MAX);
        assert!(shared.skips());
        shared.punch(0, chunk).unwrap();
        assert!(shared.is_stuck.load(Ordering::Relaxed), "it is another's");
        shared.punch(0, 2 * chunk).unwrap();
        assert!(!shared.is_stuck.load(Ordering::Relaxed) && !shared.skips());
    }
}
