//! A log that lives long: cut by size and time, compressed, under a budget, and whole after whatever happened.
//!
//! ```text
//! DIR/NAME.EXT                           the file that is written; DIR/current leads to it
//! DIR/NAME.2026-11-23T10-00-00Z.EXT      closed; begun at that time; -1, -2 … before EXT where that is taken
//! DIR/NAME.2026-11-23T10-00-00Z.EXT.gz   compressed
//! DIR/.NAME.EXT.lock                     who writes, since when; gone after `finish`
//! ```
//!
//! phase     on disk                                        leaves by
//! writing   a header, whole records, perhaps a torn one    the next period, `bytes_max`, `reopen`, `finish`
//! closing   and the footer, perhaps torn                   a rename
//! closed    header, records, footer                        compression, written beside and renamed
//! packed    the same, by gzip                              the budget, oldest first
//!
//! Invariants
//! 1. A file is cut between records only, and a record is in one file. What cannot be written whole is taken off again.
//! 2. A closed file begins with the header and ends with the footer. Killed while writing or closing, the next
//!    `open` cuts off what is torn, writes the footer and closes it.
//! 3. At every instant a closed file's records are under its name or that with `.gz`: of the latter it has all.
//! 4. Nobody else writes: the lock is held as long as we live.
//! 5. What is removed was made here: the name has a time of our form. What others put at NAME is set aside, not lost.
//! 6. There is no clock: `now` is an argument, of the wall or of packets. A time that goes back by more than a period
//!    begins the period anew, in the same file.
//!
//! Records end in a line feed and have no other. Those that cannot be written are dropped, counted, and told of once;
//! every flush tries again.
//!
//! Bounds: a file has at most `bytes_max` bytes and a footer, or one record; all files together at most
//! `budget_bytes`, or the one that is written, and a flush; besides, one that is being compressed. [`BUFFER_BYTES`] wait
//! to be written. Cost: a copy into a buffer; a thread of the lowest priority that compresses.

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

use gzip::Gzip;
use larder_io::access::Access;
use larder_io::input::display_name;
use larder_io::output::OutputError;
use lock::Lock;
use name::{Names, Stamp};

use crate::log::Log;

/// Bytes of records that are gathered before the system is called.
pub const BUFFER_BYTES: usize = 256 << 10;

/// Writes the first or the last lines of a file: at a time, ns since 1970.
pub type Lines = Box<dyn FnMut(i64, &mut Vec<u8>) + Send>;

/// Where, and when it is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollingOptions {
    /// The file that is written.
    pub path: PathBuf,
    /// A file that would have more is closed, and another begun; 0: never.
    pub bytes_max: u64,
    /// A file is closed when a multiple of so many seconds since 1970 (UTC) has passed: 3600, on the hour; 0: never.
    pub every_s: u64,
    /// Closed files are compressed.
    pub compress: bool,
    /// All files together have at most so many bytes: the oldest are removed; 0: they stay.
    pub budget_bytes: u64,
    /// A link in the same folder that leads to the file; made unless something else has that name.
    pub link: Option<String>,
    /// Who may read the files.
    pub access: Access,
}

/// What has become of records and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollingCounts {
    /// Records handed to the system.
    pub records_written: u64,
    /// Records that could not be written, and were dropped.
    pub records_lost: u64,
    /// Files closed.
    pub files_closed: u64,
    /// Files compressed.
    pub files_compressed: u64,
    /// Files removed for the budget.
    pub files_removed: u64,
}

/// See the module. Dropped without [`Rolling::finish`] it writes what it holds; the next `open` closes the file.
#[must_use = "only `finish` closes the file"]
pub struct Rolling {
    options: RollingOptions,
    header: Lines,
    footer: Lines,
    names: Names,
    lock: Lock,
    current: Option<Current>,
    /// Records for it.
    buffer: Vec<u8>,
    /// Oldest first.
    closed: Vec<Closed>,
    /// The newest that there was.
    last: Option<Stamp>,
    gzip: Option<Gzip>,
    counts: RollingCounts,
    log: Log,
    is_failing: bool,
    /// Bytes that a disk of a test still takes.
    #[cfg(test)]
    room_bytes: Option<u64>,
}

/// The file that is written.
struct Current {
    file: File,
    /// Bytes of it that are whole: header and records.
    whole_bytes: u64,
    /// It is closed before it has more.
    full_bytes: u64,
    /// The time of its first record, or when it was opened; `None` before the header.
    begin_ns: Option<i64>,
    /// What it is measured by: `begin_ns`, but for a time that went back.
    period: i64,
    has_records: bool,
}

/// A file that was closed.
#[derive(Debug)]
struct Closed {
    stamp: Stamp,
    bytes: u64,
    is_packed: bool,
}

impl Rolling {
    /// Takes the lock, closes what was left, and begins a file. Its header is written at once if the time is known;
    /// otherwise the first record tells it.
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

    /// Accepts whole records. What cannot be written is dropped and counted.
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
                // One that can't be closed is written on.
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

    /// Hands what was accepted to the system, closes the file if its period is over, and looks after closed ones. To be
    /// called now and then.
    pub fn tick(&mut self, now_ns: i64) {
        self.flush();
        if self.is_due(now_ns) {
            self.rotate(now_ns);
        }
        // Who looks at it sees that we are there.
        self.begin(now_ns);
        self.take_packed();
        self.keep_budget();
    }

    /// After the file was renamed by somebody else: ends it there, and begins anew. If it was not, it is closed.
    pub fn reopen(&mut self, now_ns: i64) {
        self.flush();
        let is_empty = self.current.as_ref().is_none_or(|current| !current.has_records);
        if !is_empty || !self.is_in_place() {
            self.rotate(now_ns);
        }
        self.begin(now_ns);
    }

    /// What has become of records and files.
    pub fn counts(&self) -> RollingCounts {
        self.counts
    }

    /// Closes the file, waits until closed ones are compressed, and gives the lock back. Records that were lost are no error:
    /// they are logged and counted. An error: the file could not be closed.
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

    /// The first record of a file gives it its time.
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

    /// True when the file's period is over.
    fn is_due(&mut self, now_ns: i64) -> bool {
        let now = self.period(now_ns);
        let Some(current) = &mut self.current else { return false };
        if now + 1 < current.period {
            current.period = now;
        }
        current.has_records && now > current.period
    }

    /// Bytes of records that the file still takes: up to the end of one.
    fn fitting(&self, records: &[u8]) -> usize {
        let Some(current) = &self.current else { return records.len() };
        let used = current.whole_bytes + self.buffer.len() as u64;
        let room = current.full_bytes.saturating_sub(used);
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(records.len());
        let end_of = |found: Option<usize>| found.map(|at| at + 1);
        match end_of(records[..room].iter().rposition(|octet| *octet == b'\n')) {
            Some(end) => end,
            None if current.has_records => 0,
            None => first_record(records),
        }
    }

    /// Bytes after which a file is full. One has at most half of the budget, or there would be none to remove.
    fn limit(&self) -> u64 {
        let or_never = |bytes: u64| if bytes == 0 { u64::MAX } else { bytes };
        or_never(self.options.bytes_max).min(or_never(self.options.budget_bytes / 2))
    }

    /// Creates the file. What lies there is not ours, and is set aside.
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

    /// Makes sure that there is a file with a header; false where that fails.
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

    /// Writes to the file. Where that fails, `lines` says whether whole lines of it stay; nothing else does. Bytes
    /// that stand there.
    fn put(&mut self, octets: &[u8], lines: bool) -> (usize, io::Result<()>) {
        let mut written = 0;
        let result = loop {
            if written == octets.len() {
                break Ok(());
            }
            match self.write_some(&octets[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let mut keep = written;
        if result.is_err() {
            let last = octets[..written].iter().rposition(|octet| *octet == b'\n');
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

    /// One call of the system.
    fn write_some(&mut self, octets: &[u8]) -> io::Result<usize> {
        let Some(current) = &mut self.current else { return Err(io::ErrorKind::NotFound.into()) };
        #[cfg(test)]
        if let Some(room) = &mut self.room_bytes {
            let fits = octets.len().min(usize::try_from(*room).unwrap_or(usize::MAX));
            if fits == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= fits as u64;
            return current.file.write_all(&octets[..fits]).map(|()| fits);
        }
        current.file.write(octets)
    }

    /// Hands the buffer to the system.
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

    /// Closes the file; false where it cannot be: then it is written on, until it has grown by as much once more.
    fn rotate(&mut self, now_ns: i64) -> bool {
        self.flush();
        let found = self.current.as_ref().map(|current| (current.begin_ns, current.whole_bytes));
        let Some((Some(begin_ns), whole_bytes)) = found else {
            // It has nothing yet, not even a header. Moved away, it stays so.
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

    /// Gives the file the name of a closed one, unless it has another by now.
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

    /// True when the file is where it was made.
    fn is_in_place(&self) -> bool {
        let Some(current) = &self.current else { return false };
        let Ok(there) = fs::symlink_metadata(self.names.path()) else { return false };
        current
            .file
            .metadata()
            .is_ok_and(|ours| (there.ino(), there.dev()) == (ours.ino(), ours.dev()))
    }

    fn add_closed(&mut self, stamp: Stamp, bytes: u64, is_packed: bool) {
        if let Some(gzip) = &self.gzip
            && !is_packed
        {
            gzip.pack(stamp.clone(), self.names.closed(&stamp));
        }
        if self.last.as_ref() < Some(&stamp) {
            self.last = Some(stamp.clone());
        }
        let at = self.closed.partition_point(|other| other.stamp < stamp);
        self.closed.insert(at, Closed { stamp, bytes, is_packed });
    }

    /// Hears of what was compressed.
    fn take_packed(&mut self) {
        while let Some((stamp, result)) = self.gzip.as_ref().and_then(Gzip::done) {
            let found = self.closed.iter_mut().find(|closed| closed.stamp == stamp);
            match (result, found) {
                (Ok(bytes), Some(closed)) => {
                    (closed.bytes, closed.is_packed) = (bytes, true);
                    self.counts.files_compressed += 1;
                }
                // The budget was faster.
                (Ok(_), None) => drop(fs::remove_file(self.names.packed(&stamp))),
                (Err(_), None) => {}
                (Err(error), Some(_)) => {
                    let name = display_name(&self.names.closed(&stamp));
                    let hint = "the next start tries again";
                    let line = self.log.warn("log not compressed").text("path", name);
                    line.text("error", error).text("hint", hint);
                }
            }
        }
    }

    /// Removes the oldest files until all fit.
    fn keep_budget(&mut self) {
        if self.options.budget_bytes == 0 {
            return;
        }
        self.take_packed();
        let current = self.current.as_ref().map_or(0, |current| current.whole_bytes);
        let mut sum: u64 = current + self.closed.iter().map(|closed| closed.bytes).sum::<u64>();
        let mut gone = 0;
        while sum > self.options.budget_bytes && gone < self.closed.len() {
            let closed = &self.closed[gone];
            // Whichever is there: it may be being compressed.
            let _ = fs::remove_file(self.names.closed(&closed.stamp));
            let _ = fs::remove_file(self.names.packed(&closed.stamp));
            sum -= closed.bytes;
            gone += 1;
        }
        self.closed.drain(..gone);
        self.counts.files_removed += gone as u64;
    }

    /// Finds what earlier runs closed; ends what they began to compress.
    fn find_closed(&mut self) -> io::Result<()> {
        for (stamp, plain, packed) in self.names.list()? {
            if packed.is_some() && plain.is_some() {
                // Invariant 3: the packed one has all.
                fs::remove_file(self.names.closed(&stamp))?;
            }
            match (packed, plain) {
                (Some(bytes), _) => self.add_closed(stamp, bytes, true),
                (None, Some(bytes)) => self.add_closed(stamp, bytes, false),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Closes what a run left that was killed.
    fn close_left(&mut self, left: Option<lock::Note>) -> io::Result<()> {
        let Some(note) = left else { return Ok(()) };
        let mut foot = Vec::new();
        let footer = &mut self.footer;
        let found = left::mend(&self.names, note, self.last.as_ref(), |last_ns| {
            footer(last_ns, &mut foot);
            std::mem::take(&mut foot)
        })?;
        if let Some((stamp, bytes)) = found {
            self.counts.files_closed += 1;
            self.add_closed(stamp, bytes, false);
        }
        Ok(())
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

/// Bytes of the first one.
fn first_record(records: &[u8]) -> usize {
    records.iter().position(|octet| *octet == b'\n').map_or(records.len(), |at| at + 1)
}

/// Records in whole lines.
fn count(records: &[u8]) -> u64 {
    records.iter().filter(|octet| **octet == b'\n').count() as u64
}
