//! The query log: a line for an answer to a client, or for one in so many.
//!
//! ```text
//! a core: log.describe(source), log.answered(client, answer)   one in so many is written as a line
//!         log.flush(), once a turn -> record channel -> a thread: lines to a file, renamed when it is full
//! ```
//!
//! Which answers are logged is drawn, the gaps between them at random, so that traffic with a rhythm of its own is
//! not seen from one side only. A line says what the answer says (`line`); what it does not say (where it comes from,
//! since when its client waits) the core tells before it answers.
//!
//! Bounds: those of [`larder_serve::record_channel`], files of [`Options::bytes_max`] and a batch, [`Options::files_max`] of them
//! ([`log_file`]). Cost for an answer that is not logged: an addition. For one that is: a walk over its records, some 100
//! bytes, the clock.

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

/// What is logged, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The file.
    pub path: PathBuf,
    /// How lines look.
    pub format: Format,
    /// One answer in so many is logged; at least 1.
    pub sample: u32,
    /// How much of a client's address is logged; `None`: all, with the port.
    pub prefix: Option<Prefix>,
    /// A file that has so many bytes is renamed and another begun; 0: never.
    pub bytes_max: u64,
    /// Files that are kept beside the one that is written, as `.1`, the newest, `.2` and so on.
    pub files_max: u32,
}

/// One core's way to log.
#[derive(Debug)]
pub struct QueryLog {
    sender: RecordSender,
    clock: Clock,
    format: Format,
    prefix: Option<Prefix>,
    sample: u32,
    /// Answers until the next that is logged, that one included.
    gap: u32,
    random: Random,
    /// The turn's moment, and what is known of the answers that come next.
    now_us: u64,
    source: Source,
    /// Since when their clients wait; `None`: since the turn began.
    since_us: Option<u64>,
}

/// Starts the thread that writes. The log is a core's; others get [`QueryLog::another`].
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

    /// One for another core.
    pub fn another(&self) -> QueryLog {
        QueryLog::new(self.sender.another(), self.clock, self.format, self.sample, self.prefix)
    }

    /// A gap of the mean length of the sample: 1 to twice that, less 1.
    fn draw(&mut self) -> u32 {
        let bound = self.sample.saturating_mul(2).saturating_sub(1);
        // Without random numbers the log has a rhythm of its own.
        1 + self.random.below(bound).unwrap_or(self.sample - 1)
    }

    /// A turn begins.
    pub fn begin(&mut self, now: Now) {
        self.now_us = now.us;
    }

    /// What answers from now on come from, and since when their clients wait, by the clock of [`Now`]; `None`: since the
    /// turn began.
    #[inline]
    pub fn describe(&mut self, source: Source, since_us: Option<u64>) {
        (self.source, self.since_us) = (source, since_us);
    }

    /// An answer goes to a client.
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

    /// A turn ends: what was logged is handed over.
    pub fn flush(&mut self) {
        self.sender.flush();
    }

    /// Lines that found no room.
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

    /// Logs so many answers, a turn each, and waits until each is written or lost.
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

    /// All cores' lines are in the file at the end, after those that were there; what the core told is in them.
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

    /// A sample is about as large as it was asked for, and all of them where all were.
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

    /// A full file is renamed and another begun; the oldest beyond those kept goes, and no line is lost but with it.
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
        // Of some 80 bytes each: two reach the limit.
        assert_eq!((lines(&all(1)), lines(&all(2))), (2, 2));
        assert_eq!(lines(&path), 1);
        assert!(!all(3).exists());
    }

    /// Asked to, it opens the file anew: somebody else has moved it away.
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

    /// A full disk, and a folder that is not there, are told of once; lines are lost and counted; the log goes on.
    #[test]
    fn failures_are_told_once() {
        let folder = tempfile::tempdir().unwrap();
        for path in [Path::new("/dev/full"), &folder.path().join("none/log")] {
            let told = Log::new("dns", Level::Info, LogFormat::Text);
            let (writer, mut log) = start(options(path), Clock::start(), &told).unwrap();
            super::tests::log(&writer, &mut log, 3);
            assert_eq!(writer.counts(), (0, 3));
            let lines = told.take();
            let failed = r#"error dns: output failed output="query log" path="#;
            assert!(lines.len() == 1 && lines[0].starts_with(failed), "{lines:?}");
            writer.finish();
        }
    }
}
