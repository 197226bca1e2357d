//! The access log: where lines go, and a loop's way to write them ([`crate::log`] says how they look).
//!
//! ```text
//! a loop: record, record, ... flush, some times a second -> handover -> a thread: lines to a file, or to standard output
//! ```
//!
//! A loop never waits. A file or reader that does not keep up, or fails, costs lines, and they are counted.
//!
//! Bounds: those of [`larder_io::service::handover`]. Cost: some 300 ns and 150 octets a line.

use std::io;
use std::path::PathBuf;

use larder_io::service::handover::Feed;
use larder_io::service::log_file::{self, LogFile};
use larder_io::service::writer::Writer;

use crate::log::{Exchange, push_combined, push_json};

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
    /// A file that has so many octets is renamed and another begun; 0: never.
    pub bytes_max: u64,
    /// Files that are kept beside the one that is written.
    pub files_max: u32,
}

/// One loop's way to log.
#[derive(Debug)]
pub struct AccessLog {
    feed: Feed,
    format: Format,
    /// When what was recorded is handed over.
    due_ms: Option<u64>,
}

/// Starts the thread that writes. The log is a loop's; others get [`AccessLog::another`].
pub fn start(options: Options) -> io::Result<(Writer, AccessLog)> {
    let Options { path, format, bytes_max, files_max } = options;
    let file = log_file::Options { name: "access log", path, bytes_max, files_max };
    let (writer, feed) = Writer::start(LogFile::new(file))?;
    Ok((writer, AccessLog { feed, format, due_ms: None }))
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
