//! Handles long requests, each on a thread of its own, so that a slow client delays nothing.
//!
//! ```text
//! start -> the job sends and receives lines -> its result is the last line -> the thread ends
//! ```
//!
//! Invariants
//! 1. A job waits only for its client: for room to send ([`Talk::say`]), or for a line to receive
//!    ([`Talk::receive`]). The supervisor never waits for a job. A job wakes it when it has sent
//!    something.
//! 2. When the client has disconnected, sending fails with [`Gone`] and receiving returns no more
//!    lines, so the job ends.
//!
//! Bounds: one thread for each client, and [`CHUNKS`] chunks of [`CHUNK_BYTES`] and [`LINES`] lines
//! between it and the event loop.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use super::{Fields, closing_line};
use larder_io::epoll::Waker;

/// Bytes of a chunk.
pub const CHUNK_BYTES: usize = 32 << 10;

/// Chunks that may wait for the event loop.
pub const CHUNKS: usize = 2;

/// Received lines that may wait for the job.
pub const LINES: usize = 64;

/// A job: it talks to its client and returns the last line.
pub type Job = Box<dyn FnOnce(&mut Talk) -> Result<Fields, String> + Send>;

/// The client has disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

impl From<Gone> for String {
    fn from(Gone: Gone) -> String {
        "the client is gone".to_owned()
    }
}

/// A job's side of the conversation.
pub struct Talk {
    said: SyncSender<Said>,
    chunk: String,
    received: Receiver<Vec<u8>>,
    waker: Arc<Waker>,
}

impl fmt::Debug for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Talk").finish_non_exhaustive()
    }
}

/// A message of a job to the event loop.
#[derive(Debug)]
enum Said {
    /// Whole lines.
    Lines(String),
    /// The last line: the job has ended.
    Last(String),
}

impl Talk {
    /// Sends a line, which has its line feed. Lines are sent in chunks; this waits for room.
    pub fn say(&mut self, line: &str) -> Result<(), Gone> {
        if self.chunk.len() + line.len() > CHUNK_BYTES {
            self.send_chunk()?;
        }
        self.chunk.push_str(line);
        Ok(())
    }

    /// Waits for the client's next line, without its line feed; `None` after the last one.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, Gone> {
        let line = self.received.recv().ok();
        self.wake();
        Ok(line)
    }

    fn send_chunk(&mut self) -> Result<(), Gone> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::take(&mut self.chunk);
        self.send(Said::Lines(chunk))
    }

    fn send(&self, said: Said) -> Result<(), Gone> {
        self.said.send(said).map_err(|_| Gone)?;
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        // It fails only for an invalid descriptor. Then the loop looks at the job at the client's
        // next event.
        let _ = self.waker.wake();
    }

    fn run(mut self, job: Job) {
        let result = job(&mut self);
        let _ = self.send_chunk();
        let _ = self.send(Said::Last(closing_line(result)));
    }
}

struct WakesAtEnd(Arc<Waker>);

impl Drop for WakesAtEnd {
    fn drop(&mut self) {
        let _ = self.0.wake();
    }
}

/// The event loop's side of a job.
#[derive(Debug)]
pub(super) struct Running {
    said: Receiver<Said>,
    /// The queue of lines for the job; `None` when it receives no more.
    lines: Option<SyncSender<Vec<u8>>>,
    /// A line that waits for room in the queue.
    pending: Option<Vec<u8>>,
}

/// The next result of a job for the event loop.
pub(super) enum Next {
    /// Lines for the client.
    Lines(String),
    /// The last lines: the job has ended.
    Last(String),
    /// Nothing yet; the job wakes the loop when it has sent something.
    Nothing,
}

impl Running {
    /// Starts a job on a thread of its own.
    pub fn start(job: Job, waker: &Arc<Waker>) -> Result<Running, String> {
        let (say, said) = sync_channel(CHUNKS);
        let (lines, received) = sync_channel(LINES);
        let wakes = WakesAtEnd(Arc::clone(waker));
        let waker = Arc::clone(waker);
        let talk = Talk { said: say, chunk: String::new(), received, waker };
        thread::Builder::new()
            .name("larder-ctl".to_owned())
            .spawn(move || {
                // Dropped after the job's side, also when the job panics, so the loop sees that it
                // has ended.
                let _wakes = wakes;
                talk.run(job);
            })
            .map_err(|error| format!("no thread could be started: {error}; try again later"))?;
        Ok(Running { said, lines: Some(lines), pending: None })
    }

    /// The next result of the job, without waiting (invariant 1).
    pub fn next(&mut self) -> Next {
        use std::sync::mpsc::TryRecvError;
        match self.said.try_recv() {
            Ok(Said::Lines(lines)) => Next::Lines(lines),
            Ok(Said::Last(line)) => Next::Last(line),
            Err(TryRecvError::Empty) => Next::Nothing,
            // The job panicked. A cache is changed by whole entries, so it is consistent.
            Err(TryRecvError::Disconnected) => {
                Next::Last(closing_line(Err("the server failed in this; see its log".to_owned())))
            }
        }
    }

    /// Passes lines to the job as long as `line` returns one and the queue has room, without
    /// waiting (invariant 1). True if it passed one.
    pub fn feed(&mut self, mut line: impl FnMut() -> Option<Vec<u8>>) -> bool {
        let Some(lines) = &self.lines else { return false };
        let mut moved = false;
        while let Some(next) = self.pending.take().or_else(&mut line) {
            match lines.try_send(next) {
                Ok(()) => moved = true,
                Err(TrySendError::Full(next)) => {
                    self.pending = Some(next);
                    break;
                }
                // The job receives no more, and will end soon.
                Err(TrySendError::Disconnected(_)) => moved = true,
            }
        }
        moved
    }

    /// Whether the job receives lines.
    pub fn receives(&self) -> bool {
        self.lines.is_some()
    }

    /// Whether the job waits for the client's next line.
    pub fn is_hungry(&self) -> bool {
        self.receives() && self.pending.is_none()
    }

    /// Notes that the client has sent its last line.
    pub fn end_lines(&mut self) {
        if self.pending.is_none() {
            self.lines = None;
        }
    }
}
