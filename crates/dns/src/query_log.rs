//! The query log: one line for each response to a client, or for a random sample of the responses.
//!
//! ```text
//! a core: log.describe(source), log.answered(client, answer)   writes a line for each sampled response
//!         log.flush(), once a turn -> record channel -> a thread: writes lines to a file, renames it when full
//! ```
//!
//! The gaps between logged responses are random, so that periodic traffic is not sampled from one
//! side only. The module `line` takes a line's fields from the response. The core states the others
//! before it responds: the source of the response, and the time since which its client waits.
//!
//! Bounds: those of [`larder_serve::record_channel`]. A file has at most [`Options::bytes_max`] and
//! one batch, and [`Options::files_max`] rotated files remain ([`log_file`]). Cost for a response
//! that is not logged: one subtraction. Cost for a logged one: a walk over its records, some 100
//! bytes, and a read of the clock.

pub mod line;

use std::io;
use std::path::PathBuf;

use larder_io::random::Random;

pub use self::line::{Format, Prefix};
use self::line::{Line, put};
use crate::clock::Clock;
use crate::clock::Now;
use crate::core::Client;
pub use crate::core::Source;
use larder_serve::log::Log;
use larder_serve::log_file::{self, LogFile};
use larder_serve::record_channel::RecordSender;
use larder_serve::writer::Writer;

/// Settings of the query log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The file.
    pub path: PathBuf,
    /// The format of a line.
    pub format: Format,
    /// Log about one of every `sample` responses; at least 1.
    pub sample: u32,
    /// How many bits of a client's address to log; `None`: the whole address, and the port.
    pub prefix: Option<Prefix>,
    /// The log renames a file of this size and begins another; 0: never.
    pub bytes_max: u64,
    /// How many rotated files remain: `.1` is the newest, then `.2` and so on.
    pub files_max: u32,
}

/// The query log of one core.
#[derive(Debug)]
pub struct QueryLog {
    sender: RecordSender,
    clock: Clock,
    format: Format,
    prefix: Option<Prefix>,
    sample: u32,
    /// Responses until the next logged one, which is included.
    gap: u32,
    random: Random,
    /// When the turn began, and the source of the next responses.
    now_us: u64,
    source: Source,
    /// Since when the clients of the next responses wait; `None`: since the turn began.
    since_us: Option<u64>,
}

/// Starts the writer thread. The returned log is for one core; [`QueryLog::another`] makes those of
/// the others.
pub fn start(options: Options, clock: Clock, log: &Log) -> io::Result<(Writer, QueryLog)> {
    let Options { format, sample, prefix, .. } = options;
    let Options { path, bytes_max, files_max, .. } = options;
    let file = log_file::Options { name: "query log", path, bytes_max, files_max };
    let (writer, sender) = Writer::start(LogFile::new(file), log)?;
    Ok((writer, QueryLog::new(sender, clock, format, sample, prefix)))
}

impl QueryLog {
    fn new(
        sender: RecordSender,
        clock: Clock,
        format: Format,
        sample: u32,
        prefix: Option<Prefix>,
    ) -> QueryLog {
        let mut log = QueryLog {
            sender,
            clock,
            format,
            prefix,
            sample: sample.max(1),
            gap: 0,
            random: Random::new(),
            now_us: 0,
            source: Source::Local,
            since_us: None,
        };
        log.gap = log.draw();
        log
    }

    /// A log for another core.
    pub fn another(&self) -> QueryLog {
        QueryLog::new(self.sender.another(), self.clock, self.format, self.sample, self.prefix)
    }

    /// Draws a gap from 1 to twice the sample less 1, so that the sample is the mean.
    fn draw(&mut self) -> u32 {
        let bound = self.sample.saturating_mul(2).saturating_sub(1);
        // Without random numbers the gap is always the sample.
        1 + self.random.below(bound).unwrap_or(self.sample - 1)
    }

    /// Begins a turn.
    pub fn begin(&mut self, now: Now) {
        self.now_us = now.us;
    }

    /// Sets the source of the responses from now on, and since when their clients wait, by the
    /// clock of [`Now`]; `None`: since the turn began.
    #[inline]
    pub fn describe(&mut self, source: Source, since_us: Option<u64>) {
        (self.source, self.since_us) = (source, since_us);
    }

    /// The core sends a response to a client.
    #[inline]
    pub fn answered(&mut self, client: &Client, answer: &[u8]) {
        self.gap -= 1;
        if self.gap == 0 {
            self.gap = self.draw();
            self.log(client, answer);
        }
    }

    #[cold]
    fn log(&mut self, client: &Client, answer: &[u8]) {
        let now = self.clock.now();
        let line = Line {
            unix_us: self.clock.unix_ns(now) / 1_000,
            client: client.peer(),
            prefix: self.prefix,
            protocol: client.protocol(),
            source: self.source,
            duration_us: now.us.saturating_sub(self.since_us.unwrap_or(self.now_us)),
            answer,
        };
        let format = self.format;
        self.sender.record(|out| put(out, format, &line));
    }

    /// Ends a turn: hands its lines to the writer thread.
    pub fn flush(&mut self) {
        self.sender.flush();
    }

    /// Lines dropped because the channel was full.
    pub fn dropped(&self) -> u64 {
        self.sender.dropped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_serve::log::{Format as LogFormat, Level};
    use std::fs;
    use std::path::Path;
    use std::thread;
    use std::time::{Duration, Instant};

    const ANSWER: &[u8] = b"\0\0\x81\x80\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    fn options(path: &Path) -> Options {
        let (sample, bytes_max, files_max) = (1, 0, 2);
        Options {
            path: path.to_owned(),
            format: Format::Text,
            sample,
            prefix: None,
            bytes_max,
            files_max,
        }
    }

    fn client() -> Client {
        Client::Stream { stream: 0, peer: "192.0.2.7:4242".parse().unwrap() }
    }

    fn wait(mut is_done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_done() {
            assert!(start.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Logs `count` responses, each in its own turn. Waits until the writer has written or lost
    /// each line.
    fn log(writer: &Writer, log: &mut QueryLog, count: u64) {
        for _ in 0..count {
            let (written, lost) = writer.counts();
            log.answered(&client(), ANSWER);
            log.flush();
            wait(|| writer.counts().0 + writer.counts().1 > written + lost);
        }
    }

    fn lines(path: &Path) -> usize {
        fs::read_to_string(path).unwrap().lines().count()
    }

    /// The file has the lines of all cores after its old lines, and the source that a core
    /// described.
    #[test]
    fn lines_are_added() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "before\n").unwrap();
        let (writer, mut first) = start(options(&path), Clock::start(), &Log::default()).unwrap();
        let mut second = first.another();
        first.describe(Source::Stale, Some(0));
        first.answered(&client(), ANSWER);
        second.answered(&client(), ANSWER);
        first.flush();
        second.flush();
        writer.finish();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("before\n"), "{text}");
        assert_eq!(text.lines().count(), 3);
        assert_eq!(text.lines().filter(|line| line.contains(" stale ")).count(), 1);
    }

    /// A sample has about the requested size; a sample of 1 has every response.
    #[test]
    fn samples_are_drawn() {
        let folder = tempfile::tempdir().unwrap();
        for (sample, least, most) in [(1, 10_000, 10_000), (10, 800, 1_250)] {
            let path = folder.path().join(sample.to_string());
            let options = Options { sample, ..options(&path) };
            let (writer, mut log) = start(options, Clock::start(), &Log::default()).unwrap();
            for _ in 0..10_000 {
                log.answered(&client(), ANSWER);
            }
            log.flush();
            writer.finish();
            assert_eq!(log.dropped(), 0);
            assert!((least..=most).contains(&lines(&path)), "{sample}: {}", lines(&path));
        }
    }

    /// The log renames a full file and begins another. It deletes only the oldest file, and no
    /// other line is lost.
    #[test]
    fn files_are_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let all = |number: u32| folder.path().join(format!("log.{number}"));
        let (writer, mut log) =
            start(Options { bytes_max: 150, ..options(&path) }, Clock::start(), &Log::default())
                .unwrap();
        super::tests::log(&writer, &mut log, 9);
        assert_eq!(writer.counts(), (9, 0));
        writer.finish();
        // A line has some 80 bytes: two reach the limit.
        assert_eq!((lines(&all(1)), lines(&all(2))), (2, 2));
        assert_eq!(lines(&path), 1);
        assert!(!all(3).exists());
    }

    /// `reopen` opens the file again by its name, after another process has moved it.
    #[test]
    fn files_are_reopened() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("log"), folder.path().join("moved"));
        let (writer, mut log) = start(options(&path), Clock::start(), &Log::default()).unwrap();
        super::tests::log(&writer, &mut log, 2);
        fs::rename(&path, &moved).unwrap();
        writer.reopen();
        wait(|| path.exists());
        super::tests::log(&writer, &mut log, 1);
        writer.finish();
        assert_eq!((lines(&moved), lines(&path)), (2, 1));
    }

    /// A full disk and a missing directory are reported once. Their lines are lost and counted, and
    /// the log continues.
    #[test]
    fn failures_are_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        for path in [Path::new("/dev/full"), &folder.path().join("none/log")] {
            let errors = Log::new("dns", Level::Info, LogFormat::Text);
            let (writer, mut log) = start(options(path), Clock::start(), &errors).unwrap();
            super::tests::log(&writer, &mut log, 3);
            assert_eq!(writer.counts(), (0, 3));
            let lines = errors.take();
            let failed = r#"error dns: output failed output="query log" path="#;
            assert!(lines.len() == 1 && lines[0].starts_with(failed), "{lines:?}");
            writer.finish();
        }
    }
}
