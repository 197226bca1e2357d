//! The bytes: one memfd, mapped once, shared with the kernel by offset.
//!
//! `sendfile` hands the pages themselves to a socket and returns; nothing tells when the peer has read them, and
//! what is written to them meanwhile is what the peer gets (measured: all of 65 536 bytes). So a page that the
//! kernel may still have in its hands is never written again. It is *punched*: the file lets go of it, whoever still
//! holds it keeps the old bytes, and the next touch of the range brings a fresh page.
//!
//! That a punch lets go of whole pages is what it rests on. A huge page that is in flight cannot be split; a hole in
//! a part of it is made by zeroing that part in place, and what is written next goes to the same page (measured on a
//! tmpfs of huge pages: again all of 65 536 bytes, in spite of the punch). So huge pages are declined for the mapping.
//!
//! # Large chunks
//!
//! A chunk that is a huge page's size and place, and that its object has whole until it is punched whole, may be one
//! huge page (O8). It is asked for before anything is written: with one byte of the chunk there, `MADV_COLLAPSE` (Linux
//! 6.1) makes one page of the range, whatever the machine's setting for shared memory, unless that is `deny`. The kernel
//! is then handed one piece where it was handed 512. Measured, 2 MiB: filled in 0.41 ms with all that belongs to it
//! (else 1.05, of which 0.8 are faults of pages), punched in 6 us (else 110), and sent by `sendfile` in 0.70 to 0.77 of
//! the processor's time, as a file in the page cache is.
//!
//! Elsewhere than on Linux, and under loom and Miri, the memory is a region and there is no file. Under loom each
//! byte has a shadow, so that the model checker sees each access.

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

    /// Linux 6.1; the `libc` crate names it for glibc alone.
    const MADV_COLLAPSE: libc::c_int = 25;

    /// Chunks that are left as they are after one that could not be enlarged.
    const SKIPS: u32 = 256;

    #[derive(Debug)]
    pub struct Shared {
        reserved: NonNull<u8>,
        reserved_bytes: usize,
        /// Within what is reserved.
        pub base: NonNull<u8>,
        pub file: File,
        /// Chunks that are left as they are before one is tried again: a machine without free huge pages looks for them at length.
        skips: AtomicU32,
        /// Chunks in which the kernel may make huge pages by itself, since it did not heed us: none is free again before it
        /// does. While there are some no other is enlarged, so they are as many as threads that were at it at once.
        stuck: Mutex<Vec<usize>>,
        /// There are some.
        pub is_stuck: AtomicBool,
    }

    // SAFETY: an address range and a file; who may touch what in it is the business of the module's invariants.
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
            // SAFETY: just made, and nobody else has it.
            let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
            file.set_len(bytes as u64)?;
            // Of what is mapped nothing is ever cut off, whoever came to have the file.
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            // SAFETY: a system call on a file of our own, which touches no memory.
            if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
                return Err(io::Error::last_os_error());
            }
            // Addresses first, more than are wanted, so that a chunk's place is a huge page's.
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
            // SAFETY: the range lies in what was just reserved, where nobody has anything; the file is as long as it,
            // and stays so: nobody but us has the descriptor with a right to more than to borrow it.
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
            // Advice: a kernel without huge pages says no, and has none to decline.
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

        /// True, and counted, when a chunk is to be left as it is.
        pub fn skips(&self) -> bool {
            let skips = self.skips.load(Ordering::Relaxed);
            // Not one operation: of two that count at once one may be lost, and a try more or less is no matter.
            self.skips.store(skips.saturating_sub(1), Ordering::Relaxed);
            skips > 0 || self.is_stuck.load(Ordering::Relaxed)
        }

        /// Makes one page of a chunk, which lies within the mapping and has a page. False: it has none, of any size.
        pub fn enlarge(&self, offset: usize) -> bool {
            // Where this is not heeded nothing has changed: the kernel has no huge pages, or no room in its books.
            let is_wished = self.advise(offset, CHUNK_BYTES_MAX, libc::MADV_HUGEPAGE).is_ok();
            let is_enlarged =
                is_wished && self.advise(offset, CHUNK_BYTES_MAX, MADV_COLLAPSE).is_ok();
            if !is_enlarged {
                self.skips.store(SKIPS, Ordering::Relaxed);
            }
            if !is_wished {
                return false;
            }
            // Again as its neighbors: one range in the kernel's books, in which it makes no huge page by itself.
            let is_declined = self.decline(offset);
            // It may have made the page and failed at what comes after, or made it by itself while it was allowed to.
            is_enlarged
                || !is_declined
                || self.punch(offset as u64, CHUNK_BYTES_MAX as u64).is_err()
        }

        /// Has the kernel make no huge page of a chunk by itself; false, and noted, where it does not heed us.
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

        /// Tries again to be heeded, in the chunks of a range; false where the kernel still does not.
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
            // What this range's chunk noted comes before: who gave the chunk up had it since then.
            if self.is_stuck.load(Ordering::Relaxed) && !self.declines_again(offset, bytes) {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let too_large = |_| io::ErrorKind::InvalidInput;
            let offset = libc::off_t::try_from(offset).map_err(too_large)?;
            let bytes = libc::off_t::try_from(bytes).map_err(too_large)?;
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            loop {
                // SAFETY: a system call on a file of our own; what it does to memory that somebody may look at is
                // the business of `Memory::punch`.
                if unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset, bytes) } == 0 {
                    return Ok(());
                }
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }

    impl Drop for Shared {
        fn drop(&mut self) {
            // SAFETY: `new` reserved this range, and the mapping lies in it; whoever borrows from it holds the store that
            // holds us.
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

    /// The file, where there is one. Through it all bytes can be changed behind their owners' backs, so only those who
    /// answer for what is done with it may have it.
    #[cfg(all(target_os = "linux", not(miri), not(loom)))]
    pub fn file(&self) -> std::os::fd::BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.mapping.file.as_fd()
    }

    /// Sends the `len` bytes at `offset` to a socket by their pages, without a copy: how many it took.
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
        loop {
            // SAFETY: both descriptors are open while they are borrowed; the kernel reads and writes `offset`, and only
            // reads the file.
            let sent = unsafe { libc::sendfile64(to, from, &raw mut offset, len) };
            match usize::try_from(sent) {
                Ok(sent) => return Ok(sent),
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }

    /// Where `len` bytes at `offset` lie.
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

    /// Tells the model checker of a write.
    #[cfg(loom)]
    pub fn note_write(&self, offset: u64, len: usize) {
        for shadow in &self.shadows[offset as usize..][..len] {
            shadow.with_mut(|_| ());
        }
    }

    /// Tells the model checker of a read.
    #[cfg(loom)]
    pub fn note_read(&self, offset: u64, len: usize) {
        for shadow in &self.shadows[offset as usize..][..len] {
            shadow.with(|_| ());
        }
    }

    /// Nothing to tell.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn note_write(&self, _offset: u64, _len: usize) {}

    /// Nothing to tell.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn note_read(&self, _offset: u64, _len: usize) {}

    /// Makes one huge page of the chunk of [`super::CHUNK_BYTES_MAX`] at `offset`, if the kernel will; its bytes are lost. False:
    /// it is as it was, or empty, and no huge page. True: it may be one.
    ///
    /// # Safety
    /// As for [`Memory::punch`]. When true, the chunk is punched whole before any of it is free (O8).
    pub unsafe fn enlarge(&self, offset: u64) -> bool {
        #[cfg(all(target_os = "linux", not(miri), not(loom)))]
        {
            let first = self.at(offset, super::CHUNK_BYTES_MAX);
            // Small pages that are still there would be copied one by one, which costs ten times what they do.
            if self.mapping.skips()
                || self.mapping.punch(offset, super::CHUNK_BYTES_MAX as u64).is_err()
            {
                return false;
            }
            // SAFETY: within the mapping, and nobody looks (this function's contract). Of nothing the kernel makes no page.
            unsafe { first.write(0) };
            self.mapping.enlarge(offset as usize)
        }
        #[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
        {
            let _ = offset;
            false
        }
    }

    /// Lets go of the pages of a range; it reads as zeroes then.
    ///
    /// # Safety
    /// Nobody has a reference into the range: it is neither free for anybody to take nor any object's.
    pub unsafe fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset);
        #[cfg(all(target_os = "linux", not(miri), not(loom)))]
        return self.mapping.punch(offset, bytes);
        #[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
        {
            self.note_write(offset, bytes as usize);
            // SAFETY: within the region, and nobody looks (this function's contract).
            unsafe { self.at(offset, bytes as usize).write_bytes(0, bytes as usize) };
            Ok(())
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri), not(loom)))]
mod tests {
    use super::*;

    /// What is written through the mapping is read through the file at the same offset; a punched range reads as
    /// zeroes in both, and its neighbors stay.
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
        // SAFETY: nobody has a reference into it.
        unsafe { memory.punch(2 * 4096, 4096) }.unwrap();
        file.read_exact_at(&mut bytes, 0).unwrap();
        for (page, expected) in [0, 7, 0, 7, 0].into_iter().enumerate() {
            assert!(bytes[page * 4096..][..4096].iter().all(|&byte| byte == expected), "{page}");
        }
        // SAFETY: as above.
        assert_eq!(unsafe { memory.at(2 * 4096, 1).read() }, 0);
    }

    /// A chunk in which the kernel once did not heed us is asked about again before it is punched, and is free like any other once
    /// it does; others are punched as if nothing were.
    #[test]
    fn the_kernel_is_asked_again() {
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
