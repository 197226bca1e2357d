//! A log that is rotated by size and time, compressed, kept within a budget of bytes, and complete
//! after a crash.
//!
//! ```text
//! DIR/NAME.EXT                           the current file; DIR/current is a link to it
//! DIR/NAME.2026-11-23T10-00-00Z.EXT      closed; begun at that time; -1, -2 … before EXT if the name exists
//! DIR/NAME.2026-11-23T10-00-00Z.EXT.gz   compressed
//! DIR/.NAME.EXT.lock                     the lock: process and start time; removed by `finish`
//! ```
//!
//! phase     on disk                                        ends by
//! writing   header, whole records, perhaps a torn one      the next period, `bytes_max`, `reopen`, `finish`
//! closing   the same and the footer, perhaps torn          a rename
//! closed    header, records, footer                        compression into another file, and a rename
//! packed    the same, compressed with gzip                 deletion for the budget, oldest first
//!
//! Invariants
//! 1. Rotation happens only between records. A record that cannot be written completely is
//!    truncated from the file.
//! 2. A closed file begins with the header and ends with the footer. After a kill while writing or
//!    closing, the next `open` truncates the torn record, writes the footer and closes the file.
//! 3. At every moment the records of a closed file are in the file of its name, or all of them in
//!    that with `.gz`.
//! 4. No other process writes: the lock is held as long as the process runs.
//! 5. Only files of this log are deleted: their names have a time in this form. A foreign file at
//!    NAME is renamed, not lost.
//! 6. The module reads no clock: `now` is an argument, of the system clock or of packets. A time
//!    that goes back by more than a period restarts the period, in the same file.
//!
//! A record is one line with its line feed. A record that cannot be written is dropped and counted;
//! the first is logged. Every flush tries again.
//!
//! Bounds: a file has at most `bytes_max` bytes and a footer, or one record. All files together
//! have at most `budget_bytes`, or the current file and a flush, and in addition one file that is
//! being compressed. [`BUFFER_BYTES`] wait to be written. Cost: one copy into a buffer, and a
//! thread of the lowest priority for compression.

mod closed;
mod gzip;
mod left;
mod lock;
mod name;
#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use closed::Closed;
use gzip::Gzip;
use larder_io::access::Access;
use larder_io::input::display_name;
use larder_io::output::OutputError;
use lock::Lock;
use name::{Names, Stamp};

use crate::log::Log;

/// Bytes of records that are buffered before a system call.
pub const BUFFER_BYTES: usize = 256 << 10;

/// Writes the header or the footer of a file, for a time in ns since 1970.
pub type Lines = Box<dyn FnMut(i64, &mut Vec<u8>) + Send>;

/// The file, and when it is rotated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollingOptions {
    /// The current file.
    pub path: PathBuf,
    /// Rotate before a file exceeds this size; 0: never.
    pub bytes_max: u64,
    /// Rotate at each multiple of this many seconds since 1970 (UTC); 3600: every full hour; 0:
    /// never.
    pub every_s: u64,
    /// Compress closed files.
    pub compress: bool,
    /// Delete the oldest files when all files together have more bytes; 0: never.
    pub budget_bytes: u64,
    /// A link to the current file in the same folder; it is not created if another file has that
    /// name.
    pub link: Option<String>,
    /// The access to the files.
    pub access: Access,
}

/// Counts of records and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollingCounts {
    /// Records written.
    pub records_written: u64,
    /// Records dropped because writing failed.
    pub records_lost: u64,
    /// Files closed.
    pub files_closed: u64,
    /// Files compressed.
    pub files_compressed: u64,
    /// Files deleted for the budget.
    pub files_removed: u64,
}

/// See the module. If it is dropped without [`Rolling::finish`], it writes its buffer, and the next
/// `open` closes the file.
#[must_use = "only `finish` closes the file"]
pub struct Rolling {
    options: RollingOptions,
    header: Lines,
    footer: Lines,
    names: Names,
    lock: Lock,
    current: Option<Current>,
    /// Buffered records.
    buffer: Vec<u8>,
    /// Oldest first.
    closed: Vec<Closed>,
    /// The latest time of any call.
    last: Option<Stamp>,
    gzip: Option<Gzip>,
    counts: RollingCounts,
    log: Log,
    is_failing: bool,
    /// In tests: bytes that the disk has room for.
    #[cfg(test)]
    room_bytes: Option<u64>,
}

/// The current file.
struct Current {
    file: File,
    /// Bytes of the header and of whole records.
    whole_bytes: u64,
    /// It is rotated before it has more bytes.
    full_bytes: u64,
    /// The time of its first record, or when it was opened; `None` before the header.
    begin_ns: Option<i64>,
    /// The start of its period: `begin_ns`, unless the time went back.
    period: i64,
    has_records: bool,
}

impl Rolling {
    /// Takes the lock, closes the file of an earlier run, and begins a file. Its header is written
    /// now if the time is known; otherwise with the first record.
    pub fn open(
        options: RollingOptions,
        header: Lines,
        footer: Lines,
        now_ns: Option<i64>,
        log: &Log,
    ) -> Result<Rolling, OutputError> {
        let failed = |error| OutputError::new(&display_name(&options.path), error);
        let names = Names::of(&options.path).map_err(failed)?;
        let (lock, left) = Lock::take(&names.lock(), options.access).map_err(failed)?;
        let mut rolling = Rolling {
            gzip: options.compress.then(|| Gzip::start(options.access)),
            options: options.clone(),
            header,
            footer,
            names,
            lock,
            current: None,
            buffer: Vec::new(),
            closed: Vec::new(),
            last: None,
            counts: RollingCounts::default(),
            log: log.clone(),
            is_failing: false,
            #[cfg(test)]
            room_bytes: None,
        };
        rolling.find_closed().map_err(failed)?;
        rolling.close_left(left).map_err(failed)?;
        rolling.current = Some(rolling.create().map_err(failed)?);
        rolling.link();
        if let Some(now_ns) = now_ns {
            rolling.begin(now_ns);
        }
        rolling.keep_budget();
        Ok(rolling)
    }

    /// Accepts whole records. Records that cannot be written are dropped and counted.
    pub fn write(&mut self, records: &[u8], now_ns: i64) {
        if self.is_due(now_ns) {
            self.rotate(now_ns);
        }
        let mut rest = records;
        while !rest.is_empty() {
            if !self.begin(now_ns) {
                return self.lose(rest);
            }
            let mut piece = self.fitting(rest);
            if piece == 0 {
                if self.rotate(now_ns) {
                    continue;
                }
                // If the file cannot be closed, writing continues in it.
                piece = first_record(rest);
            }
            if self.buffer.len() + piece > BUFFER_BYTES {
                self.flush();
            }
            self.buffer.extend_from_slice(&rest[..piece]);
            self.note_record(now_ns);
            rest = &rest[piece..];
        }
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Writes the buffer, closes the file if its period has ended, and compresses and deletes
    /// closed files. Call it regularly.
    pub fn tick(&mut self, now_ns: i64) {
        self.flush();
        if self.is_due(now_ns) {
            self.rotate(now_ns);
        }
        // An operator who looks at the lock sees a current time.
        self.begin(now_ns);
        self.take_packed();
        self.keep_budget();
    }

    /// Begins a new file. If another program has renamed the current file, it is completed there;
    /// otherwise it is closed.
    pub fn reopen(&mut self, now_ns: i64) {
        self.flush();
        let is_empty = self.current.as_ref().is_none_or(|current| !current.has_records);
        if !is_empty || !self.is_in_place() {
            self.rotate(now_ns);
        }
        self.begin(now_ns);
    }

    /// The counts of records and files.
    pub fn counts(&self) -> RollingCounts {
        self.counts
    }

    /// Closes the file, waits until closed files are compressed, and releases the lock. Fails if
    /// the file cannot be closed. Lost records are not an error here: they were logged and counted.
    pub fn finish(mut self, now_ns: i64) -> Result<RollingCounts, OutputError> {
        self.flush();
        let begun = self.begin(now_ns);
        let closed = begun && self.rotate(now_ns);
        if let Some(gzip) = &mut self.gzip {
            gzip.finish();
        }
        self.take_packed();
        if self.counts.records_lost > 0 {
            let line = self.log.warn("records lost").text("path", self.names.shown());
            line.number("count", self.counts.records_lost);
        }
        if closed {
            self.unlink();
            self.lock.remove();
            return Ok(self.counts);
        }
        let lost = self.counts.records_lost;
        let what = format!(
            "it could not be closed, and {lost} records were dropped; make room there, the next start closes it"
        );
        Err(OutputError::new(&self.names.shown(), io::Error::new(io::ErrorKind::StorageFull, what)))
    }

    /// Sets the time of a file from its first record.
    fn note_record(&mut self, now_ns: i64) {
        let period = self.period(now_ns);
        let Some(current) = self.current.as_mut().filter(|current| !current.has_records) else {
            return;
        };
        current.has_records = true;
        if current.begin_ns != Some(now_ns) {
            (current.begin_ns, current.period) = (Some(now_ns), period);
            self.lock.note(now_ns, None);
        }
    }

    fn period(&self, now_ns: i64) -> i64 {
        match i64::try_from(self.options.every_s) {
            Ok(every_s @ 1..) => now_ns.div_euclid(1_000_000_000).div_euclid(every_s),
            _ => 0,
        }
    }

    /// True when the file's period has ended.
    fn is_due(&mut self, now_ns: i64) -> bool {
        let now = self.period(now_ns);
        let Some(current) = &mut self.current else { return false };
        if now + 1 < current.period {
            current.period = now;
        }
        current.has_records && now > current.period
    }

    /// Bytes of records that the file has room for, up to the end of one.
    fn fitting(&self, records: &[u8]) -> usize {
        let Some(current) = &self.current else { return records.len() };
        let used = current.whole_bytes + self.buffer.len() as u64;
        let room = current.full_bytes.saturating_sub(used);
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(records.len());
        let end_of = |found: Option<usize>| found.map(|at| at + 1);
        match end_of(records[..room].iter().rposition(|byte| *byte == b'\n')) {
            Some(end) => end,
            None if current.has_records => 0,
            None => first_record(records),
        }
    }

    /// Bytes after which a file is full: at most half of the budget, so that there is another file
    /// to delete.
    fn limit(&self) -> u64 {
        let or_never = |bytes: u64| if bytes == 0 { u64::MAX } else { bytes };
        or_never(self.options.bytes_max).min(or_never(self.options.budget_bytes / 2))
    }

    /// Creates the file. A foreign file of that name is renamed.
    fn create(&mut self) -> io::Result<Current> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let (access, path) = (self.options.access, self.names.path());
        let file = match access.open(&mut options, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                left::set_aside(&self.names, self.last.as_ref())?;
                access.open(&mut options, &path)?
            }
            file => file?,
        };
        Ok(Current {
            file,
            whole_bytes: 0,
            full_bytes: self.limit(),
            begin_ns: None,
            period: 0,
            has_records: false,
        })
    }

    /// Creates the file with its header if there is none; false if that fails.
    fn begin(&mut self, now_ns: i64) -> bool {
        if self.current.as_ref().is_some_and(|current| current.begin_ns.is_some()) {
            return true;
        }
        if self.current.is_none() {
            match self.create() {
                Ok(current) => self.current = Some(current),
                Err(error) => {
                    self.fail(&error);
                    return false;
                }
            }
        }
        let mut head = Vec::new();
        (self.header)(now_ns, &mut head);
        let put = self.put(&head, false).1;
        let period = self.period(now_ns);
        match (put, &mut self.current) {
            (Ok(()), Some(current)) => {
                (current.begin_ns, current.period) = (Some(now_ns), period);
                self.lock.note(now_ns, None);
                true
            }
            (put, _) => {
                if let Err(error) = put {
                    self.fail(&error);
                }
                false
            }
        }
    }

    /// Writes to the file and returns the bytes written. After a failure the file keeps only whole
    /// lines if `lines` is set, and otherwise nothing of `bytes`.
    fn put(&mut self, bytes: &[u8], lines: bool) -> (usize, io::Result<()>) {
        let mut written = 0;
        let result = loop {
            if written == bytes.len() {
                break Ok(());
            }
            match self.write_some(&bytes[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let mut keep = written;
        if result.is_err() {
            let last = bytes[..written].iter().rposition(|byte| *byte == b'\n');
            keep = if lines { last.map_or(0, |at| at + 1) } else { 0 };
        }
        if let Some(current) = &mut self.current {
            current.whole_bytes += keep as u64;
            if keep < written {
                let _ = left::cut(&mut current.file, current.whole_bytes);
            }
        }
        #[cfg(test)]
        if let Some(room) = &mut self.room_bytes {
            *room += (written - keep) as u64;
        }
        (keep, result)
    }

    /// One system call.
    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(current) = &mut self.current else { return Err(io::ErrorKind::NotFound.into()) };
        #[cfg(test)]
        if let Some(room) = &mut self.room_bytes {
            let fits = bytes.len().min(usize::try_from(*room).unwrap_or(usize::MAX));
            if fits == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= fits as u64;
            return current.file.write_all(&bytes[..fits]).map(|()| fits);
        }
        current.file.write(bytes)
    }

    /// Writes the buffer.
    fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let buffer = std::mem::take(&mut self.buffer);
        let (written, result) = self.put(&buffer, true);
        self.counts.records_written += count(&buffer[..written]);
        match result {
            Ok(()) => self.recover(),
            Err(error) => {
                self.fail(&error);
                self.lose(&buffer[written..]);
            }
        }
        self.buffer = buffer;
        self.buffer.clear();
        self.keep_budget();
    }

    /// Closes the file. False if that fails: then writing continues in it, until it has grown by
    /// the same size again.
    fn rotate(&mut self, now_ns: i64) -> bool {
        self.flush();
        let found = self.current.as_ref().map(|current| (current.begin_ns, current.whole_bytes));
        let Some((Some(begin_ns), whole_bytes)) = found else {
            // The file is still empty, without a header. If it was renamed, it stays empty.
            if !self.is_in_place() {
                self.current = None;
            }
            return false;
        };
        self.lock.note(begin_ns, Some(whole_bytes));
        let mut foot = Vec::new();
        (self.footer)(now_ns, &mut foot);
        let closed = self.put(&foot, false).1.and_then(|()| self.rename(begin_ns));
        let (limit, period) = (self.limit(), self.period(now_ns));
        if let (Err(error), Some(current)) = (&closed, &mut self.current) {
            let _ = left::cut(&mut current.file, whole_bytes);
            current.whole_bytes = whole_bytes;
            current.full_bytes = whole_bytes.saturating_add(limit);
            current.period = period;
            self.lock.note(begin_ns, None);
            self.fail(error);
            return false;
        }
        self.current = None;
        self.keep_budget();
        true
    }

    /// Renames the file to the name of a closed one, unless another program has renamed it.
    fn rename(&mut self, begin_ns: i64) -> io::Result<()> {
        if !self.is_in_place() {
            return Ok(());
        }
        let stamp = self.names.free(begin_ns, self.last.as_ref());
        fs::rename(self.names.path(), self.names.closed(&stamp))?;
        let bytes = self.current.as_ref().map_or(0, |current| current.whole_bytes);
        self.counts.files_closed += 1;
        self.add_closed(stamp, bytes, false);
        Ok(())
    }

    /// True if the file still has its name.
    fn is_in_place(&self) -> bool {
        let Some(current) = &self.current else { return false };
        let Ok(there) = fs::symlink_metadata(self.names.path()) else { return false };
        current
            .file
            .metadata()
            .is_ok_and(|ours| (there.ino(), there.dev()) == (ours.ino(), ours.dev()))
    }

    fn link(&mut self) {
        let Some(link) = self.options.link.clone() else { return };
        if let Err(error) = self.names.link(&link) {
            self.log.warn("no link to the log").text("link", link).text("error", error);
        }
    }

    fn unlink(&self) {
        if let Some(link) = &self.options.link {
            self.names.unlink(link);
        }
    }

    fn lose(&mut self, records: &[u8]) {
        self.counts.records_lost += count(records);
    }

    fn fail(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let line = self.log.error("output failed").text("path", self.names.shown());
            line.text("error", error).text("hint", "make room there");
        }
    }

    fn recover(&mut self) {
        if std::mem::replace(&mut self.is_failing, false) {
            let line = self.log.info("output recovered").text("path", self.names.shown());
            line.number("records_lost", self.counts.records_lost);
        }
    }
}

impl Drop for Rolling {
    fn drop(&mut self) {
        self.flush();
    }
}

impl std::fmt::Debug for Rolling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rolling").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Bytes of the first line.
fn first_record(records: &[u8]) -> usize {
    records.iter().position(|byte| *byte == b'\n').map_or(records.len(), |at| at + 1)
}

/// The number of lines.
fn count(records: &[u8]) -> u64 {
    records.iter().filter(|byte| **byte == b'\n').count() as u64
}
