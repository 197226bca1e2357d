//! The files that the disk writer writes.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use larder_io::access::Access;
use larder_io::disk::{FileWriter, O_DIRECT, Space};
use larder_mem::object::Lease;

/// The files of segments; tests replace them by slow or full ones.
#[doc(hidden)]
pub trait Disk: Send + fmt::Debug {
    /// Creates the two files of a segment that grows; the second begins with `header`.
    fn begin(&mut self, packets: &Path, journal: &Path, header: &[u8]) -> io::Result<()>;
    /// Appends to the packets.
    fn write(&mut self, lease: Lease);
    /// Appends to the events.
    fn append_journal(&mut self, frames: &[u8]) -> io::Result<()>;
    /// Waits until all bytes are in the files.
    fn flush(&mut self) -> io::Result<()>;
    /// Ends the segment; `sync`: and waits until it is on the disk.
    fn end(&mut self, sync: bool) -> io::Result<()>;
    /// Writes a whole file next to its place, then renames it.
    fn save(&mut self, path: &Path, aside: &Path, bytes: &[u8], sync: bool) -> io::Result<()>;
    /// The time of day.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
    /// The space of the file system of a folder.
    fn space(&mut self, directory: &Path) -> io::Result<Space> {
        larder_io::disk::space(directory)
    }
}

/// The real files.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Files {
    packets: FileWriter,
    journal: Option<File>,
    access: Access,
}

impl Files {
    /// Files with the mode and group of `access`.
    pub fn new(access: Access) -> Files {
        Files { access, ..Files::default() }
    }
}

impl Disk for Files {
    fn begin(&mut self, packets: &Path, journal: &Path, header: &[u8]) -> io::Result<()> {
        let mut file = self.access.create(journal)?;
        file.write_all(header)?;
        self.journal = Some(file);
        let file = self.access.create(packets)?;
        // Not every file system supports it.
        let direct = OpenOptions::new().write(true).custom_flags(O_DIRECT).open(packets).ok();
        self.packets.begin_direct(file, direct);
        Ok(())
    }

    fn write(&mut self, lease: Lease) {
        self.packets.write(lease);
    }

    fn append_journal(&mut self, frames: &[u8]) -> io::Result<()> {
        self.journal.as_mut().map_or(Ok(()), |file| file.write_all(frames))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.packets.flush().map(|_| ())
    }

    fn end(&mut self, sync: bool) -> io::Result<()> {
        self.journal = None;
        match self.packets.end() {
            Some(file) if sync => file.sync_data(),
            _ => Ok(()),
        }
    }

    fn save(&mut self, path: &Path, aside: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
        let mut file = self.access.create(aside)?;
        file.write_all(bytes)?;
        if sync {
            file.sync_data()?;
        }
        fs::rename(aside, path)
    }
}

/// The disk, or this user's quota, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
