//! The access log: where larder writes its lines, and how an event loop adds one.
//! [`crate::access_log::format`] defines the form of the lines.
//!
//! ```text
//! event loop: record, record, ... flush, some times a second -> record channel
//!          -> a thread: lines to a file, or to standard output
//! ```
//!
//! An event loop never waits. If the file or reader is too slow, or fails, lines are dropped and
//! counted.
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

/// How long a line may wait in the buffer for more lines, milliseconds.
const GATHER_MS: u64 = 100;

/// The form of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The format of Apache and nginx.
    Combined,
    /// One JSON object a line.
    Json,
}

/// The settings of an access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The file; `-` is standard output.
    pub path: PathBuf,
    /// The form of lines.
    pub format: Format,
    /// A file of this size is renamed, and a new one begun; 0: never.
    pub bytes_max: u64,
    /// The number of older files that are not deleted.
    pub files_max: u32,
}

/// The access log of one event loop.
#[derive(Debug)]
pub struct AccessLog {
    feed: RecordSender,
    format: Format,
    /// When the recorded lines go to the thread.
    due_ms: Option<u64>,
}

/// The access log of all event loops.
#[derive(Debug)]
pub struct Shared {
    /// The thread that writes. It ends when the server stops it, or when no event loop has the log
    /// any more.
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
    /// The log that each event loop copies with [`AccessLog::another`].
    pub fn feed(&self) -> Arc<AccessLog> {
        self.feed.clone()
    }

    /// Applies new settings: to the file at once, to the form of lines in each feed that is taken
    /// from now on.
    pub fn change(&mut self, options: Options) {
        self.feed = Arc::new(AccessLog { format: options.format, ..self.feed.another() });
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file(options);
        self.writer.reopen();
    }
}

impl AccessLog {
    /// For another event loop.
    pub fn another(&self) -> AccessLog {
        AccessLog { feed: self.feed.another(), format: self.format, due_ms: None }
    }

    /// Adds a line.
    pub fn record(&mut self, exchange: &Exchange<'_>, now_ms: u64) {
        let push = match self.format {
            Format::Combined => push_combined,
            Format::Json => push_json,
        };
        self.feed.record(|out| push(out, exchange));
        self.due_ms.get_or_insert(now_ms + GATHER_MS);
    }

    /// Milliseconds until [`AccessLog::flush_due`] has lines to flush; `None`: there are none.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.due_ms.map(|due_ms| due_ms.saturating_sub(now_ms))
    }

    /// Sends the lines to the thread if they have waited long enough.
    pub fn flush_due(&mut self, now_ms: u64) {
        if self.due_ms.is_some_and(|due_ms| now_ms >= due_ms) {
            self.flush();
        }
    }

    /// Sends all lines to the thread.
    pub fn flush(&mut self) {
        self.due_ms = None;
        self.feed.flush();
    }

    /// Lines dropped because the buffer was full.
    pub fn dropped(&self) -> u64 {
        self.feed.dropped()
    }
}
