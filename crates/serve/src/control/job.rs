//! What takes long, on a thread of its own: a client may read as slowly as it likes.
//!
//! ```text
//! start -> the job says lines, hears lines -> its result is the last line -> the thread ends
//! ```
//!
//! Invariants
//! 1. A job waits for its client only: for room for what it says ([`Talk::say`]), or for what it is to hear
//!    ([`Talk::hear`]). The supervisor never waits for a job; it is woken when one has something for it.
//! 2. When the client is gone, what the job says fails with [`Gone`], and it hears no more lines: it
//!    ends.
//!
//! Bounds: a thread a client; [`CHUNKS`] chunks of [`CHUNK_BYTES`] and [`LINES`] lines between it and the loop.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use super::{Fields, closing_line};
use larder_io::epoll::Waker;

/// Bytes said at once.
pub const CHUNK_BYTES: usize = 32 << 10;

/// Chunks that wait for the loop.
pub const CHUNKS: usize = 2;

/// Lines heard that wait for the job.
pub const LINES: usize = 64;

/// Work that talks to a client, and what comes of it.
pub type Job = Box<dyn FnOnce(&mut Talk) -> Result<Fields, String> + Send>;

/// The client is gone: nobody wants the rest.
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
    heard: Receiver<Vec<u8>>,
    waker: Arc<Waker>,
}

impl fmt::Debug for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Talk").finish_non_exhaustive()
    }
}

/// What comes from a job.
#[derive(Debug)]
enum Said {
    /// Whole lines.
    Lines(String),
    /// The last line: it has ended.
    Last(String),
}

impl Talk {
    /// Says a line, given with its end. It goes out with others, and waits for room.
    pub fn say(&mut self, line: &str) -> Result<(), Gone> {
        if self.chunk.len() + line.len() > CHUNK_BYTES {
            self.send_chunk()?;
        }
        self.chunk.push_str(line);
        Ok(())
    }

    /// Waits for the client's next line, without its end; `None` after its last.
    pub fn hear(&mut self) -> Result<Option<Vec<u8>>, Gone> {
        let line = self.heard.recv().ok();
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
        // It fails only for a descriptor that is none; then the loop looks when its client does something.
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

/// A job as the loop sees it.
#[derive(Debug)]
pub(super) struct Running {
    said: Receiver<Said>,
    /// Where lines for the job go; `None` when it shall hear no more.
    lines: Option<SyncSender<Vec<u8>>>,
    /// A line that found no room yet.
    pending: Option<Vec<u8>>,
}

/// What the loop gets of a job.
pub(super) enum Next {
    /// Lines for the client.
    Lines(String),
    /// The last ones: the job is over.
    Last(String),
    /// Nothing for now; the waker tells when to look again.
    Nothing,
}

impl Running {
    /// Starts a job on a thread of its own.
    pub fn start(job: Job, waker: &Arc<Waker>) -> Result<Running, String> {
        let (say, said) = sync_channel(CHUNKS);
        let (lines, heard) = sync_channel(LINES);
        let wakes = WakesAtEnd(Arc::clone(waker));
        let waker = Arc::clone(waker);
        let talk = Talk { said: say, chunk: String::new(), heard, waker };
        thread::Builder::new()
            .name("larder-ctl".to_owned())
            .spawn(move || {
                // Dropped after the job's side, also when the job panics: the loop then finds it gone.
                let _wakes = wakes;
                talk.run(job);
            })
            .map_err(|error| format!("no thread could be started: {error}; try again later"))?;
        Ok(Running { said, lines: Some(lines), pending: None })
    }

    /// What the job says next, without waiting (invariant 1).
    pub fn next(&mut self) -> Next {
        use std::sync::mpsc::TryRecvError;
        match self.said.try_recv() {
            Ok(Said::Lines(lines)) => Next::Lines(lines),
            Ok(Said::Last(line)) => Next::Last(line),
            Err(TryRecvError::Empty) => Next::Nothing,
            // A panic ended it. What it had begun is whole: a cache is changed by whole entries.
            Err(TryRecvError::Disconnected) => {
                Next::Last(closing_line(Err("the server failed in this; see its log".to_owned())))
            }
        }
    }

    /// Hands lines over as long as `line` has one and the job has room for it, without waiting
    /// (invariant 1). True if any was.
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
                // It has heard enough, and will soon say so.
                Err(TrySendError::Disconnected(_)) => moved = true,
            }
        }
        moved
    }

    /// Whether it may be given lines.
    pub fn hears(&self) -> bool {
        self.lines.is_some()
    }

    /// Whether the next move is the client's: to say a line.
    pub fn is_hungry(&self) -> bool {
        self.hears() && self.pending.is_none()
    }

    /// The client has said its last line.
    pub fn end_lines(&mut self) {
        if self.pending.is_none() {
            self.lines = None;
        }
    }
}
