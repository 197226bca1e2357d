//! The access log: where lines go, and a loop's way to write them ([`crate::access_log::format`] says how they look).
//!
//! ```text
//! a loop: record, record, ... flush, some times a second -> record channel -> a thread: lines to a file, or to standard output
//! ```
//!
//! A loop never waits. A file or reader that does not keep up, or fails, costs lines, and they are counted.
//!
//! Bounds: those of [`larder_serve::record_channel`]. Cost: some 300 ns and 150 bytes a line.

pub mod format;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use larder_serve::log::Log;
use larder_serve::log_file::{self, LogFile};
use larder_serve::record_channel::RecordSender;
use larder_serve::writer::Writer;

use crate::access_log::format::{Exchange, push_combined, push_json};

/// How long a line may wait for others, milliseconds.
const GATHER_MS: u64 = 100;

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As Apache and nginx write them.
    Combined,
    /// An object of JSON a line.
    Json,
}

/// What is logged, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The file; `-` is standard output.
    pub path: PathBuf,
    /// How lines look.
    pub format: Format,
    /// A file that has so many bytes is renamed and another begun; 0: never.
    pub bytes_max: u64,
    /// Files that are kept beside the one that is written.
    pub files_max: u32,
}

/// One loop's way to log.
#[derive(Debug)]
pub struct AccessLog {
    feed: RecordSender,
    format: Format,
    /// When what was recorded is handed over.
    due_ms: Option<u64>,
}

/// The log of all loops.
#[derive(Debug)]
pub struct Shared {
    /// Its thread. It ends when it is told to, or when no loop has the log any more.
    pub writer: Writer,
    feed: Arc<AccessLog>,
    file: Arc<Mutex<log_file::Options>>,
}

/// Starts the thread that writes.
pub fn start(options: Options, log: &Log) -> io::Result<Shared> {
    let format = options.format;
    let file = Arc::new(Mutex::new(file(options)));
    let (writer, feed) = Writer::start(LogFile::following(file.clone()), log)?;
    Ok(Shared { writer, feed: Arc::new(AccessLog { feed, format, due_ms: None }), file })
}

fn file(options: Options) -> log_file::Options {
    let Options { path, bytes_max, files_max, .. } = options;
    log_file::Options { name: "access log", path, bytes_max, files_max }
}

impl Shared {
    /// What each loop has another of, by [`AccessLog::another`].
    pub fn feed(&self) -> Arc<AccessLog> {
        self.feed.clone()
    }

    /// Other settings: for the file at once, for the form of lines with the feeds that are taken from now on.
    pub fn change(&mut self, options: Options) {
        self.feed = Arc::new(AccessLog { format: options.format, ..self.feed.another() });
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file(options);
        self.writer.reopen();
    }
}

impl AccessLog {
    /// One for another loop.
    pub fn another(&self) -> AccessLog {
        AccessLog { feed: self.feed.another(), format: self.format, due_ms: None }
    }

    /// Writes a line.
    pub fn record(&mut self, exchange: &Exchange<'_>, now_ms: u64) {
        let push = match self.format {
            Format::Combined => push_combined,
            Format::Json => push_json,
        };
        self.feed.record(|out| push(out, exchange));
        self.due_ms.get_or_insert(now_ms + GATHER_MS);
    }

    /// Milliseconds until [`AccessLog::flush_due`] has something to do; `None`: nothing.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.due_ms.map(|due_ms| due_ms.saturating_sub(now_ms))
    }

    /// Hands over what has waited long enough.
    pub fn flush_due(&mut self, now_ms: u64) {
        if self.due_ms.is_some_and(|due_ms| now_ms >= due_ms) {
            self.flush();
        }
    }

    /// Hands over all.
    pub fn flush(&mut self) {
        self.due_ms = None;
        self.feed.flush();
    }

    /// Lines that found no room.
    pub fn dropped(&self) -> u64 {
        self.feed.dropped()
    }
}
