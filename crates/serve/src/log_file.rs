//! A log's file, which is renamed when it is full; or standard output.
//!
//! ```text
//! F --bytes_max--> F.1 -> F.2 -> ... -> F.files_max -> gone
//! ```
//!
//! The file is added to, so that a restart loses nothing. A file that cannot be renamed is written on, and tried again when it
//! has grown by as much once more: a full log is better than none.
//!
//! Bounds: a file has at most `bytes_max` bytes and a batch. Cost: a rename for each file that is kept, when one is full.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::writer::{Sink, write_whole};

/// Who asked what is not for everybody to read.
const MODE: u32 = 0o640;

/// What is written, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What it is called, in words of an operator.
    pub name: &'static str,
    /// The file; `-` is standard output, which is never full.
    pub path: PathBuf,
    /// A file that has so many bytes is renamed and another begun; 0: never.
    pub bytes_max: u64,
    /// Files that are kept beside the one that is written, as `.1`, the newest, `.2` and so on.
    pub files_max: u32,
}

/// The file, open or not.
#[derive(Debug)]
pub struct LogFile {
    options: Options,
    /// What it is to be when it is next opened, if that may change.
    next: Option<Arc<Mutex<Options>>>,
    /// With the bytes of it that are whole lines.
    file: Option<(File, u64)>,
    /// It is renamed when it has so many.
    full_bytes: u64,
}

impl LogFile {
    /// The file, not yet opened.
    pub fn new(options: Options) -> LogFile {
        let full_bytes = limit(&options);
        LogFile { options, next: None, file: None, full_bytes }
    }

    /// A file that its operator may change: what stands there holds when it is next closed, by [`super::writer::Writer::reopen`].
    pub fn following(next: Arc<Mutex<Options>>) -> LogFile {
        let options = next.lock().unwrap_or_else(PoisonError::into_inner).clone();
        LogFile { next: Some(next), ..LogFile::new(options) }
    }

    fn is_stdout(&self) -> bool {
        self.options.path.as_os_str() == "-"
    }

    /// Renames the file and those before it.
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
        // Not opened to append: what could not be written whole is cut off, and written over.
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .open(&self.options.path)?;
        // What is no plain file has no end to go to.
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
