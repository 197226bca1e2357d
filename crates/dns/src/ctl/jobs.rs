//! What takes long, on a thread of its own: to walk over a cache takes a second a million entries or so, and a client
//! may read as slowly as it likes.
//!
//! ```text
//! start -> the job says lines, hears lines -> its result is the last line -> the thread ends
//! ```
//!
//! Invariants
//! 1. A job waits for its client only: for room for what it says ([`Talk::say`]), or for what it is to hear
//!    ([`Talk::hear`]). The supervisor never waits for a job; it is woken when one has something for it.
//! 2. When the client is gone, the next of either fails with [`Gone`], and the job ends.
//!
//! Bounds: a thread a client; [`CHUNKS`] chunks of [`CHUNK_BYTES`] and [`LINES`] lines between it and the loop. One
//! walk of a cache at a time ([`Cache::iter`]): a second one, that of a snapshot as well, waits for the first.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use larder::{Cache, Error, Seconds};
use larder_io::event::Waker;

use super::entry::{self, LINE_BYTES_MAX};
use super::{Fields, closing_line};
use crate::key::{Parts, is_within, question_of};

/// Octets said at once.
pub const CHUNK_BYTES: usize = 32 << 10;

/// Chunks that wait for the loop.
pub const CHUNKS: usize = 2;

/// Lines heard that wait for the job.
pub const LINES: usize = 64;

/// How often a write is tried again that a proxy is in the way of; a millisecond lies between.
const TRIES: u32 = 10_000;

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

/// What comes from a job.
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

    /// What the job says next, without waiting.
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

    /// Hands lines over as long as `line` has one and the job has room for it. True if any was.
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

/// Says all entries alive at `now`, a line each.
pub fn dump(cache: Cache, now: Seconds) -> Job {
    Box::new(move |talk| {
        let mut line = String::with_capacity(LINE_BYTES_MAX);
        let mut entries = 0u64;
        for entry in cache.iter(now) {
            if entry::write(&mut line, &entry, now) {
                talk.say(&line)?;
                entries += 1;
            }
        }
        Ok(fields([("entries", entries)]))
    })
}

/// Hears entries as [`dump`] says them, up to the line that closes a dump or the end of what the client sends,
/// and puts them into the cache. Lines that are no entries are counted and passed over.
pub fn load(cache: Cache, now: Seconds) -> Job {
    Box::new(move |talk| {
        let mut writer = cache.writer();
        let (mut number, mut loaded, mut ended, mut refused) = (0u64, 0u64, 0u64, 0u64);
        let mut first_refused = None;
        while let Some(line) = talk.hear()? {
            number += 1;
            if line.starts_with(super::CLOSING.as_bytes()) {
                break;
            }
            let inserted = match entry::read(&line, now) {
                Ok(entry::Read { ttl: None, .. }) => {
                    ended += 1;
                    continue;
                }
                Ok(entry::Read { key, value, ttl: Some(ttl) }) => {
                    match patiently(|| writer.insert(&key, &value, ttl, now)) {
                        Err(error @ Error::ValueTooLarge { .. }) => Err(error.to_string()),
                        other => other.map(Ok).map_err(|error| error.to_string())?,
                    }
                }
                Err(what) => Err(what.to_owned()),
            };
            match inserted {
                Ok(()) => loaded += 1,
                Err(what) => {
                    refused += 1;
                    first_refused.get_or_insert_with(|| format!("line {number}: {what}"));
                }
            }
        }
        patiently(|| writer.flush()).map_err(|error| error.to_string())?;
        let mut result = fields([("loaded", loaded), ("ended", ended), ("refused", refused)]);
        if let Some(first) = first_refused {
            result.insert("first_refused".to_owned(), first.into());
        }
        Ok(result)
    })
}

/// Takes out all answers to questions for a name, given in wire form: whatever type, class, flags, view and generation.
pub fn flush_name(cache: Cache, name: Vec<u8>) -> Job {
    Box::new(move |_| remove(&cache, |asked| asked.eq_ignore_ascii_case(&name)))
}

/// Takes out all answers to questions for a name and all names below it.
pub fn flush_zone(cache: Cache, zone: Vec<u8>) -> Job {
    Box::new(move |_| remove(&cache, |asked| is_within(asked, &zone)))
}

/// Walks over the cache and takes out what `is_wanted` says of the name asked for.
fn remove(cache: &Cache, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Fields, String> {
    let mut writer = cache.writer();
    let mut removed = 0u64;
    // At the first of all seconds nothing has ended: what is kept past its end goes as well.
    for entry in cache.iter(Seconds(0)) {
        let key = entry.key();
        let name = match Parts::of(key) {
            Some(parts) => Some(parts.name),
            None => question_of(entry.value()).map(|(name, _, _)| name),
        };
        if name.is_some_and(&is_wanted) {
            patiently(|| writer.remove(key)).map_err(|error| error.to_string())?;
            removed += 1;
        }
    }
    patiently(|| writer.flush()).map_err(|error| error.to_string())?;
    Ok(fields([("removed", removed)]))
}

/// Does it again while proxies have not caught up, or others hold all spare memory: cores sync at every turn of
/// their loops, so that this is over soon or something is wrong.
fn patiently<R>(mut act: impl FnMut() -> Result<R, Error>) -> Result<R, Error> {
    for _ in 0..TRIES {
        match act() {
            Err(Error::Stalled { .. } | Error::Starved) => {
                thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
    act()
}

fn fields<const N: usize>(counts: [(&str, u64); N]) -> Fields {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect()
}
