//! The thread that writes the records of the cores to a file or socket that may fail and recover.
//!
//! ```text
//! closed --open()--> open --write()--> open
//!    ^ a second later, then two, up to half a minute     | an error, or Writer::reopen
//!    +---------------------------------------------------+
//! ```
//!
//! Records that the thread gets while it cannot write are dropped and counted. The log has a line
//! on each failure and recovery, however often the thread tries in between.
//!
//! Bounds: those of [`super::record_channel`]. Cost: a thread, which checks for `reopen` and the
//! end ten times a second.

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

/// How often the thread checks whether to reopen or end.
const LOOK: Duration = Duration::from_millis(100);

/// The first and the longest time between two tries to open.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The destination of records. Its methods run on the writer's thread, and may wait.
pub trait Sink: Send + 'static {
    /// The kind of the records, in words of an operator; also the thread's name.
    fn name(&self) -> &'static str;

    /// True between [`Sink::open`] and [`Sink::close`], or until an error after which it must be
    /// opened again.
    fn is_open(&self) -> bool;

    /// Opens it.
    fn open(&mut self) -> io::Result<()>;

    /// Writes whole records.
    fn write(&mut self, records: &[u8]) -> io::Result<()>;

    /// Closes it.
    fn close(&mut self);

    /// Its path, and what an operator can do when it fails.
    fn place(&self) -> (&Path, &'static str);
}

/// The thread. If it is dropped without [`Writer::finish`], it ends when the last [`RecordSender`]
/// is dropped.
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

    /// The kind of its records.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Makes the thread reopen the file, or connect the socket again: after a rotation.
    pub fn reopen(&self) {
        self.shared.reopens.store(true, Ordering::Relaxed);
    }

    /// Records written, and records lost because the file or socket failed.
    pub fn counts(&self) -> (u64, u64) {
        self.shared.counts()
    }

    /// Writes the records that were sent before, closes the sink, and waits for that.
    pub fn finish(self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // The panic of that thread has been printed, and nothing is left to do.
        let _ = self.thread.join();
    }

    /// Does what [`Writer::finish`] does, but waits at most this long, so a reader that has stopped
    /// reading delays nothing. False if some records were not written by then; they are lost.
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

    /// Its counters, for metrics.
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
    /// The kind of the records.
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

/// The state of the thread.
struct Work<S> {
    sink: S,
    shared: Arc<Shared>,
    log: Log,
    backoff: Duration,
    /// When to try again; `None`: at once, since nothing has failed.
    next_try: Option<Instant>,
}

impl<S: Sink> Work<S> {
    fn run(mut self, batches: &Receiver<Batch>) {
        self.open();
        loop {
            // Read before the batches, so that all records sent before the end are written.
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

    /// Opens the sink if it is closed, and a try is due.
    fn open(&mut self) {
        if self.sink.is_open() || !self.is_due() {
            return;
        }
        match self.sink.open() {
            Ok(()) => self.recover(),
            Err(error) => self.fail(&error),
        }
    }

    /// Records that the sink works, and logs that if it failed before.
    fn recover(&mut self) {
        if self.next_try.take().is_some() {
            let lost = self.shared.lost.load(Ordering::Relaxed);
            let line = self.log.info("output recovered").text("output", self.sink.name());
            line.number("records_lost", lost);
        }
        self.backoff = BACKOFF_MIN;
    }

    /// Records a failure, and logs it if the sink worked before.
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

/// Writes records to a file of which `whole` bytes are whole records. If it cannot write them all,
/// it truncates the file to the whole records before, so that later records begin at the right
/// place.
pub fn write_whole(file: &mut File, whole: &mut u64, records: &[u8]) -> io::Result<()> {
    let written = file.write_all(records);
    if written.is_ok() {
        *whole += records.len() as u64;
    } else {
        // Only a file that is not a plain one cannot be truncated, and that has no position to
        // restore.
        let _ = file.set_len(*whole).and_then(|()| file.seek(SeekFrom::Start(*whole)));
    }
    written
}
