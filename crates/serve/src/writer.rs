//! The thread that writes what the cores hand over, to something that may fail and come back.
//!
//! ```text
//! closed --open()--> open --write()--> open
//!    ^ a second later, then two, up to half a minute     | an error, or Writer::reopen
//!    +---------------------------------------------------+
//! ```
//!
//! What is handed over while nothing can be written is dropped and counted. The log has a line on each loss and return, however
//! often it is tried in between.
//!
//! Bounds: those of [`super::record_channel`]. Cost: a thread, which looks around ten times a second.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::log::Log;
use super::record_channel::{Batch, RecordSender, channel};

/// How often the thread looks whether it shall reopen or end.
const LOOK: Duration = Duration::from_millis(100);

/// The first and the longest time between two tries to open.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// What records are written to. Its methods are called on the writer's thread, and may wait.
pub trait Sink: Send + 'static {
    /// What the records are, in words of an operator; also the thread's name.
    fn name(&self) -> &'static str;

    /// True between [`Sink::open`] and [`Sink::close`], or an error after which it must be opened anew.
    fn is_open(&self) -> bool;

    /// Opens it.
    fn open(&mut self) -> io::Result<()>;

    /// Writes whole records.
    fn write(&mut self, records: &[u8]) -> io::Result<()>;

    /// Ends what was opened.
    fn close(&mut self);

    /// Where it is, and what to do where it fails.
    fn place(&self) -> (&Path, &'static str);
}

/// The thread. Dropped without [`Writer::finish`] it ends when the last [`RecordSender`] is gone.
#[derive(Debug)]
pub struct Writer {
    name: &'static str,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    reopens: AtomicBool,
    ends: AtomicBool,
    written: AtomicU64,
    lost: AtomicU64,
}

impl Writer {
    /// Starts the thread, which logs losses.
    pub fn start<S: Sink>(sink: S, log: &Log) -> io::Result<(Writer, RecordSender)> {
        let (sender, batches) = channel();
        let shared = Arc::new(Shared::default());
        let log = log.clone();
        let work =
            Work { sink, shared: Arc::clone(&shared), log, backoff: BACKOFF_MIN, next_try: None };
        let sink_name = work.sink.name();
        let name = format!("larder-{}", sink_name.replace(' ', "-"));
        let thread = thread::Builder::new().name(name).spawn(move || work.run(&batches))?;
        Ok((Writer { name: sink_name, shared, thread }, sender))
    }

    /// What it writes.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Has the file begun anew, or the socket connected again: after a rotation.
    pub fn reopen(&self) {
        self.shared.reopens.store(true, Ordering::Relaxed);
    }

    /// Records written, and records lost because the file or socket failed.
    pub fn counts(&self) -> (u64, u64) {
        self.shared.counts()
    }

    /// Writes what was handed over, ends the stream, and waits for that.
    pub fn finish(self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // A panic there has been printed, and there is nothing left to do.
        let _ = self.thread.join();
    }

    /// Does what [`Writer::finish`] does, but waits at most this long: a reader that has stopped
    /// reading delays nothing. False if something was not written by then, which is lost.
    pub fn finish_within(self, patience: Duration) -> bool {
        self.shared.ends.store(true, Ordering::Relaxed);
        let start = Instant::now();
        while !self.thread.is_finished() {
            if start.elapsed() >= patience {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Its counters, for who tells of them.
    pub fn meter(&self) -> Meter {
        Meter { name: self.name, shared: Arc::clone(&self.shared) }
    }
}

/// The counters of a [`Writer`].
#[derive(Debug, Clone)]
pub struct Meter {
    name: &'static str,
    shared: Arc<Shared>,
}

impl Meter {
    /// What is written.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Records written, and records lost because the file or socket failed.
    pub fn counts(&self) -> (u64, u64) {
        self.shared.counts()
    }
}

impl Shared {
    fn counts(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }
}

/// The thread's own.
struct Work<S> {
    sink: S,
    shared: Arc<Shared>,
    log: Log,
    backoff: Duration,
    /// When it may be tried again; `None`: at once, and nothing is wrong.
    next_try: Option<Instant>,
}

impl<S: Sink> Work<S> {
    fn run(mut self, batches: &Receiver<Batch>) {
        self.open();
        loop {
            // Before the look for batches, so that what was handed over before the wish to end is written.
            let ends = self.shared.ends.load(Ordering::Relaxed);
            if self.shared.reopens.swap(false, Ordering::Relaxed) {
                self.sink.close();
                self.next_try = None;
            }
            match batches.recv_timeout(if ends { Duration::ZERO } else { LOOK }) {
                Ok(batch) => self.write(&batch),
                Err(RecvTimeoutError::Timeout) if !ends => {}
                Err(_) => break,
            }
            self.open();
        }
        self.sink.close();
    }

    fn is_due(&self) -> bool {
        self.next_try.is_none_or(|next| Instant::now() >= next)
    }

    fn write(&mut self, batch: &Batch) {
        self.open();
        if !self.sink.is_open() || !self.is_due() {
            self.shared.lost.fetch_add(batch.records, Ordering::Relaxed);
            return;
        }
        match self.sink.write(&batch.bytes) {
            Ok(()) => {
                self.shared.written.fetch_add(batch.records, Ordering::Relaxed);
                self.recover();
            }
            Err(error) => {
                self.fail(&error);
                self.shared.lost.fetch_add(batch.records, Ordering::Relaxed);
            }
        }
    }

    /// Opens the sink if it is not, and it is time.
    fn open(&mut self) {
        if self.sink.is_open() || !self.is_due() {
            return;
        }
        match self.sink.open() {
            Ok(()) => self.recover(),
            Err(error) => self.fail(&error),
        }
    }

    /// Notes that all is well, and tells of it if it was not.
    fn recover(&mut self) {
        if self.next_try.take().is_some() {
            let lost = self.shared.lost.load(Ordering::Relaxed);
            let line = self.log.info("output recovered").text("output", self.sink.name());
            line.number("records_lost", lost);
        }
        self.backoff = BACKOFF_MIN;
    }

    /// Notes a failure, and tells of it if all was well before.
    fn fail(&mut self, error: &io::Error) {
        if self.next_try.is_none() {
            let (path, next) = self.sink.place();
            let line = self.log.error("output failed").text("output", self.sink.name());
            line.text("path", path.display()).text("error", error).text("hint", next);
        }
        self.next_try = Some(Instant::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }
}

/// Writes records to a file of which `whole` bytes are whole records. Of what cannot be written whole, nothing stays: what
/// comes later is in step.
pub fn write_whole(file: &mut File, whole: &mut u64, records: &[u8]) -> io::Result<()> {
    let written = file.write_all(records);
    if written.is_ok() {
        *whole += records.len() as u64;
    } else {
        // Only what is no plain file can't be cut, and that has no records to be in step with.
        let _ = file.set_len(*whole).and_then(|()| file.seek(SeekFrom::Start(*whole)));
    }
    written
}
