//! Writes a file from start to end, from memory that is leased for as long as the kernel reads it.
//!
//! ```text
//! begin(file) -> write(lease).. -> flush() -> write(lease).. -> flush() -> end()
//! ```
//!
//! [`FileWriter::write`] submits a piece and returns; a few are in flight at a time, and then it
//! waits for the oldest. [`FileWriter::flush`] waits for all. If io_uring is refused (by an old
//! kernel, a container's filter, an administrator), the writer makes one `pwrite` after the other.
//!
//! Whole pages bypass the system's page cache ([`FileWriter::begin_direct`], `O_DIRECT`); the rest
//! at both ends of a piece goes through it. Most of the cost of writing is copying into that cache
//! and emptying it, and the disk is not faster for it: with 625 MB/s of 1,500 byte packets, this
//! cost 700 ns a packet. Pages of memory and of the file then coincide: the bytes of an object have
//! the same offset in a page of memory as in the object.
//!
//! Invariants
//! 1. Each lease that the kernel has is held until its completion, and its bytes do not change
//!    meanwhile (a lease guarantees that). If completions cannot be awaited any more, leases in
//!    flight are leaked.
//! 2. The file stays open while a write to it is in flight.
//! 3. [`FileWriter::written`] is the length of the prefix that the kernel has written: pieces count
//!    in order. After the first failure nothing counts, and nothing is written until `begin`.
//! 4. The file's length is that of a prefix that is written: with a direct descriptor, whose writes
//!    the kernel does in parallel, one piece is in flight at a time. (Writes through the cache are
//!    done in order.)
//!
//! Bounds: [`IN_FLIGHT_MAX`] pieces.

#[cfg_attr(any(feature = "portable", not(target_os = "linux")), path = "disk/portable.rs")]
mod system;

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder_mem::object::Lease;

use crate::socket::check;
pub use system::O_DIRECT;
use system::Ring;

/// Most pieces that the kernel has at a time.
pub const IN_FLIGHT_MAX: usize = 4;

/// Alignment and unit of writes that bypass the page cache, in memory and in the file: every disk
/// accepts it.
pub const PAGE_BYTES: u64 = 4096;

/// Space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Bytes of all of it.
    pub total_bytes: u64,
}

/// The space of the file system in which `path` is.
pub fn space(path: &Path) -> io::Result<Space> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all zeros is a valid `statvfs`, which the kernel fills; the path ends with a zero and
    // lives through the call.
    let about = unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        check(libc::statvfs(path.as_ptr(), &raw mut about))?;
        about
    };
    let bytes = |blocks: u64| blocks.saturating_mul(about.f_frsize as u64);
    Ok(Space {
        free_bytes: bytes(about.f_bavail as u64),
        total_bytes: bytes(about.f_blocks as u64),
    })
}

/// Writes files, one after the other.
#[derive(Debug)]
pub struct FileWriter {
    ring: Option<Ring>,
    file: Option<File>,
    /// The same file, opened to bypass the page cache.
    direct: Option<File>,
    /// Pieces that the kernel has, in order.
    flights: VecDeque<Flight>,
    /// The number of the first of them.
    first: u64,
    /// Offset of the next piece.
    end: u64,
    written: u64,
    failed: Option<io::Error>,
}

#[derive(Debug)]
struct Flight {
    lease: Lease,
    offset: u64,
    /// Bytes of it that are in the file.
    done: usize,
    /// The part that the kernel has bypasses the page cache.
    is_direct: bool,
    is_over: bool,
}

impl FileWriter {
    /// By io_uring, unless the kernel refuses.
    pub fn new() -> FileWriter {
        FileWriter::of(Ring::new(2 * IN_FLIGHT_MAX as u32))
    }

    /// By `pwrite`.
    pub fn plain() -> FileWriter {
        FileWriter::of(None)
    }

    fn of(ring: Option<Ring>) -> FileWriter {
        FileWriter {
            ring,
            file: None,
            direct: None,
            flights: VecDeque::new(),
            first: 0,
            end: 0,
            written: 0,
            failed: None,
        }
    }

    /// Starts to write `file`, which is empty. Waits for the writes in flight to the file before.
    pub fn begin(&mut self, file: File) {
        self.begin_direct(file, None);
    }

    /// Like [`FileWriter::begin`], with `direct`, the same file opened with `O_DIRECT`, for whole
    /// pages. If the file system refuses such a write, all writes use `file` from then on.
    pub fn begin_direct(&mut self, file: File, direct: Option<File>) {
        self.drain();
        (self.file, self.direct) = (Some(file), direct);
        (self.end, self.written, self.failed) = (0, 0, None);
    }

    /// The file that is written.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Appends the leased bytes, now or later. After a failure the lease is dropped.
    pub fn write(&mut self, lease: Lease) {
        let Some(file) = self.file.as_ref().filter(|_| self.failed.is_none()) else { return };
        let offset = self.end;
        self.end += lease.len() as u64;
        if self.ring.is_none() {
            match file.write_all_at(lease.as_bytes(), offset) {
                Ok(()) => self.written = self.end,
                Err(error) => self.failed = Some(error),
            }
            return;
        }
        // Invariant 4: the kernel may do several direct writes in any order.
        let in_flight_max = if self.direct.is_some() { 1 } else { IN_FLIGHT_MAX };
        while self.flights.len() >= in_flight_max {
            self.reap();
        }
        let number = self.first + self.flights.len() as u64;
        self.flights.push_back(Flight { lease, offset, done: 0, is_direct: false, is_over: false });
        self.hand_over(number);
    }

    /// Waits until all leases are in the file (not on the disk: [`File::sync_data`] does that), or
    /// have failed.
    pub fn flush(&mut self) -> io::Result<u64> {
        self.drain();
        match &self.failed {
            None => Ok(self.written),
            Some(error) => Err(match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => error.kind().into(),
            }),
        }
    }

    /// Bytes from the start that are in the file for sure.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Waits for the writes in flight, and returns the file.
    pub fn end(&mut self) -> Option<File> {
        self.drain();
        self.direct = None;
        self.file.take()
    }

    fn drain(&mut self) {
        while !self.flights.is_empty() {
            self.reap();
        }
    }

    /// Submits the rest of a flight to the kernel.
    fn hand_over(&mut self, number: u64) {
        let (Some(ring), Some(file)) = (&mut self.ring, &self.file) else { return };
        let flight = &mut self.flights[(number - self.first) as usize];
        let rest = &flight.lease.as_bytes()[flight.done..];
        let offset = flight.offset + flight.done as u64;
        let (file, len) = match part(rest, offset, self.direct.as_ref()) {
            Some((direct, len)) => {
                flight.is_direct = true;
                (direct, len)
            }
            // Writes up to the next page, if the bytes from there can bypass the cache.
            None if self.direct.is_some() => {
                flight.is_direct = false;
                let page = (PAGE_BYTES - offset % PAGE_BYTES) as usize;
                (file, rest.len().min(page))
            }
            None => (file, rest.len()),
        };
        let len = len.min(system::WRITE_BYTES_MAX);
        // SAFETY: the bytes are leased and the file is open until the completion (invariants 1
        // and 2). The ring has twice as many places as there are flights.
        unsafe { ring.write(file, &rest[..len], offset, number) };
    }

    /// Waits for a completion, handles it, and releases finished flights in order.
    fn reap(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        if let Err(error) = ring.wait() {
            // The ring is not used any more, and it keeps its entries (invariant 1).
            self.failed.get_or_insert(error);
            self.first += self.flights.len() as u64;
            self.flights.drain(..).for_each(std::mem::forget);
            // The descriptor too (invariant 2).
            std::mem::forget(self.file.take());
            if let Some(ring) = self.ring.take() {
                ring.leak();
            }
            return;
        }
        for (number, result) in ring.done() {
            self.complete(number, result);
        }
        while self.flights.front().is_some_and(|flight| flight.is_over) {
            let Some(flight) = self.flights.pop_front() else { return };
            self.first += 1;
            if flight.done == flight.lease.len() && self.written == flight.offset {
                self.written += flight.done as u64;
            }
        }
    }

    fn complete(&mut self, number: u64, result: i32) {
        let Some(flight) = self.flights.get_mut((number - self.first) as usize) else { return };
        match result {
            code if code < 0 && matches!(-code, libc::EINTR | libc::EAGAIN) => {}
            // This file system, or this disk, requires other alignments, or does not support it.
            code if -code == libc::EINVAL && flight.is_direct => self.direct = None,
            code if code < 0 => {
                self.failed.get_or_insert(io::Error::from_raw_os_error(-code));
                flight.is_over = true;
            }
            0 => {
                self.failed.get_or_insert(io::ErrorKind::WriteZero.into());
                flight.is_over = true;
            }
            bytes => {
                flight.done += bytes as usize;
                flight.is_over = flight.done == flight.lease.len();
            }
        }
        if !flight.is_over {
            self.hand_over(number);
        }
    }
}

/// How many of `bytes`, for `offset` of the file, can bypass the page cache at once.
fn part<'a>(bytes: &[u8], offset: u64, direct: Option<&'a File>) -> Option<(&'a File, usize)> {
    let page = PAGE_BYTES as usize;
    let whole = bytes.len() / page * page;
    let is_aligned =
        offset.is_multiple_of(PAGE_BYTES) && bytes.as_ptr().addr().is_multiple_of(page);
    direct.filter(|_| is_aligned && whole > 0).map(|direct| (direct, whole))
}

impl Default for FileWriter {
    fn default() -> Self {
        FileWriter::new()
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        self.drain();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_mem::object::{
        Kind, Leased, Notice, ObjectStore, Plan, Post, ReaderOptions, Room, StoreOptions,
    };

    use super::*;

    struct Nobody;

    impl Post for Nobody {
        fn post(&self, _: Notice) {}
    }

    /// Leases of `len` bytes of an object, in pieces of `piece`.
    fn leases(len: usize, piece: u64) -> (Vec<u8>, Vec<Lease>) {
        let store = ObjectStore::new(StoreOptions::of(32 << 20), Arc::new(Nobody)).unwrap();
        let mut filler = store.create(Plan { loop_number: 0, bytes: None, kind: Kind::Stored });
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 / 5) as u8).collect();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let Room::Memory(room) = filler.room(rest.len()) else { panic!("no room") };
            let part = room.len();
            room.copy_from_slice(&rest[..part]);
            filler.wrote(part);
            rest = &rest[part..];
        }
        filler.publish();
        let options = ReaderOptions { loop_number: 0, lease_bytes_max: u64::MAX };
        let mut reader = filler.object().open(0..len as u64, options).unwrap();
        let mut out = Vec::new();
        while matches!(reader.lease(&mut out, piece), Leased::Some { .. }) {}
        (bytes, out)
    }

    /// Pieces written by either way are in the file, whole and in order; and the writer can start a
    /// second file. Invariant 3.
    #[test]
    fn pieces_are_written_in_order() {
        for mut writer in [FileWriter::new(), FileWriter::plain()] {
            for (len, piece) in [(5 << 20, 100_003), (10, 3), (300_000, 1 << 20)] {
                let (bytes, leases) = leases(len, piece);
                let file = tempfile::NamedTempFile::new().unwrap();
                writer.begin(file.reopen().unwrap());
                leases.into_iter().for_each(|lease| writer.write(lease));
                assert_eq!(writer.flush().unwrap(), len as u64);
                assert_eq!(std::fs::read(file.path()).unwrap(), bytes);
            }
        }
    }

    /// Any pieces written past the page cache are read back unchanged, also if a disk refuses such
    /// writes. A descriptor without the flag accepts any write; a file system that does not support
    /// the flag gives none.
    #[test]
    fn whole_pages_go_past_the_cache() {
        use std::os::unix::fs::OpenOptionsExt;
        let mut writer = FileWriter::new();
        for flag in [0, O_DIRECT] {
            for (len, piece) in
                [(5 << 20, 100_003), (5 << 20, 1 << 20), (4096, 4096), (10, 3), (300_001, 65_536)]
            {
                let (bytes, leases) = leases(len, piece);
                let file = tempfile::NamedTempFile::new_in(".").unwrap();
                let direct =
                    std::fs::OpenOptions::new().write(true).custom_flags(flag).open(file.path());
                writer.begin_direct(file.reopen().unwrap(), direct.ok());
                let mut given = 0;
                for lease in leases {
                    given += lease.len() as u64;
                    writer.write(lease);
                    if given % 7 == 0 {
                        assert_eq!(writer.flush().unwrap(), given);
                        // The length is that of the whole pieces.
                        assert_eq!(file.as_file().metadata().unwrap().len(), given);
                    }
                }
                assert_eq!(writer.flush().unwrap(), len as u64);
                assert_eq!(std::fs::read(file.path()).unwrap(), bytes);
            }
        }
    }

    /// A file that cannot be written fails: nothing counts as written, and the next file is not
    /// held to it. The second half of invariant 3.
    #[test]
    fn a_failure_is_reported_and_forgotten() {
        for mut writer in [FileWriter::new(), FileWriter::plain()] {
            let (bytes, leases) = leases(100_000, 10_000);
            writer.begin(File::open("/dev/null").unwrap());
            leases.into_iter().for_each(|lease| writer.write(lease));
            assert_eq!(writer.flush().unwrap_err().raw_os_error(), Some(libc::EBADF));
            assert_eq!(writer.written(), 0);
            let (_, leases) = super::tests::leases(bytes.len(), 1 << 20);
            writer.begin(tempfile::tempfile().unwrap());
            leases.into_iter().for_each(|lease| writer.write(lease));
            assert_eq!(writer.flush().unwrap(), bytes.len() as u64);
        }
    }
}
