//! The file of a log, renamed when it is full; or standard output.
//!
//! ```text
//! F --bytes_max--> F.1 -> F.2 -> ... -> F.files_max -> deleted
//! ```
//!
//! larder appends to the file, so a restart loses nothing. If the file cannot be renamed, larder
//! continues to write to it, and tries again after `bytes_max` more bytes: a file that is too long
//! is better than no log.
//!
//! Bounds: a file has at most `bytes_max` bytes and a batch. Cost: a rename for each older file,
//! when a file is full.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::writer::{Sink, write_whole};

/// Clients' requests are in the file, so not everyone may read it.
const MODE: u32 = 0o640;

/// The settings of a log's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The name of the log, in words of an operator.
    pub name: &'static str,
    /// The file; `-` is standard output, which is never full.
    pub path: PathBuf,
    /// A file of this size is renamed, and a new one begun; 0: never.
    pub bytes_max: u64,
    /// The number of older files that are not deleted: `.1` is the newest, then `.2` and so on.
    pub files_max: u32,
}

/// The file, open or not.
#[derive(Debug)]
pub struct LogFile {
    options: Options,
    /// The settings for the next time it is opened, if they may change.
    next: Option<Arc<Mutex<Options>>>,
    /// The file, and how many of its bytes are whole lines.
    file: Option<(File, u64)>,
    /// The file is renamed at this size.
    full_bytes: u64,
}

impl LogFile {
    /// The file, not yet opened.
    pub fn new(options: Options) -> LogFile {
        let full_bytes = limit(&options);
        LogFile { options, next: None, file: None, full_bytes }
    }

    /// A file whose operator may change its settings: new ones apply when
    /// [`super::writer::Writer::reopen`] closes the file.
    pub fn following(next: Arc<Mutex<Options>>) -> LogFile {
        let options = next.lock().unwrap_or_else(PoisonError::into_inner).clone();
        LogFile { next: Some(next), ..LogFile::new(options) }
    }

    fn is_stdout(&self) -> bool {
        self.options.path.as_os_str() == "-"
    }

    /// Renames the file and the older ones.
    fn rotate(&mut self) -> io::Result<()> {
        let Options { path, files_max, .. } = &self.options;
        for number in (1..*files_max).rev() {
            match fs::rename(numbered(path, number), numbered(path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if *files_max == 0 { fs::remove_file(path) } else { fs::rename(path, numbered(path, 1)) }
    }
}

/// Bytes after which a file is full.
fn limit(options: &Options) -> u64 {
    if options.bytes_max == 0 { u64::MAX } else { options.bytes_max }
}

/// `F.7`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

impl Sink for LogFile {
    fn name(&self) -> &'static str {
        self.options.name
    }

    fn is_open(&self) -> bool {
        self.file.is_some() || self.is_stdout()
    }

    fn open(&mut self) -> io::Result<()> {
        if self.is_stdout() {
            return Ok(());
        }
        // Not opened to append: a line that could not be written whole is truncated, and
        // overwritten.
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .open(&self.options.path)?;
        // A file that is not a plain one has no end to seek to.
        let whole = file.seek(SeekFrom::End(0)).unwrap_or(0);
        self.file = Some((file, whole));
        self.full_bytes = limit(&self.options);
        Ok(())
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_stdout() {
            let mut out = io::stdout().lock();
            return out.write_all(lines).and_then(|()| out.flush());
        }
        let Some((file, whole)) = &mut self.file else { return Ok(()) };
        write_whole(file, whole, lines)?;
        if *whole >= self.full_bytes {
            let whole = *whole;
            if self.rotate().is_ok() {
                self.close();
                return self.open();
            }
            self.full_bytes = whole.saturating_add(limit(&self.options));
        }
        Ok(())
    }

    fn close(&mut self) {
        self.file = None;
        if let Some(next) = &self.next {
            self.options = next.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
    }

    fn place(&self) -> (&Path, &'static str) {
        (&self.options.path, "make room there, or name another file")
    }
}
