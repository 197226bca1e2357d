//! Cuts input into batches of records, the same ones whatever the octets came from.
//!
//! Batch *k* is the records whose headers begin in `[k * B, (k + 1) * B)` of the uncompressed
//! input, B = [`SourceOptions::batch_bytes`]; every *k* up to the end comes once, in order, also
//! when no record begins there. A mapped file, a pipe and a compressed file of the same content
//! thus give the same batches.
//!
//! input                    who finds the record starts
//! mapped pcap              the worker, by `Capture::find_record`: `start` is `None`, and whoever
//!                          joins the results checks that batch k ended where k + 1 began
//! mapped pcapng            the source, by walking the blocks: `start` is exact
//! stream, merged inputs    the source likewise, in a buffer that the batch then owns
//!
//! A worker reads a batch with its `capture` from `start` until an offset >= `limit`, passing
//! `at_end`; what lies behind `limit` is there so that the last record, and the search after
//! damage, see what they need.
//!
//! A live stream (a pipe) that is slow gives a batch in pieces: each but the last is `partial`
//! and has the same `index`. A complete record waits [`LIVE_DELAY_MS`] at most.
//!
//! Bounds: [`SourceOptions::in_flight`] batches exist at once; the source waits for one to be
//! dropped. A stream's buffer is `B + LOOKAHEAD_BYTES` at most.

use std::io::{self, Read};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use larder_wire::capture::{Capture, CaptureDamage, HEADER_BYTES, Step};

use crate::decode;
use crate::input::{Content, Input, InputError};
use crate::mapped::Mapped;
use crate::merge::Merge;

/// The longest that a complete record of a live stream waits for its batch to fill.
pub const LIVE_DELAY_MS: u64 = 200;

/// Octets read, or decoded, at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Chunks between the thread that reads and the source.
const CHUNKS: usize = 4;

/// How long a wait may last before the caller's wish to stop is looked at.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Mapped octets that are behind every batch in flight before they are released together.
const RELEASE_BYTES: usize = 16 << 20;

/// How input is cut.
#[derive(Clone, Copy, Debug)]
pub struct SourceOptions {
    /// Octets of input in a batch.
    pub batch_bytes: usize,
    /// Most batches that exist at once; at least as many as the pipeline holds while it waits for
    /// the next.
    pub in_flight: usize,
}

impl Default for SourceOptions {
    fn default() -> SourceOptions {
        SourceOptions { batch_bytes: 1 << 20, in_flight: 16 }
    }
}

/// Some records of the input, and what is needed to read them.
#[derive(Debug)]
pub struct Batch {
    /// Number of the batch.
    pub index: u64,
    /// Number of the input, as given to [`Source::new`].
    pub file: u32,
    /// Offset of `bytes[0]` in the uncompressed input.
    pub base_offset: u64,
    /// The octets, and some that follow.
    pub bytes: Bytes,
    /// The reader's state at `start`.
    pub capture: Capture,
    /// Where in `bytes` to begin; `None`: at the place that `Capture::find_record` guesses.
    pub start: Option<usize>,
    /// Records that begin here or later in `bytes` belong to the next batch.
    pub limit: usize,
    /// The input ends where `bytes` does.
    pub at_end: bool,
    /// More of the same batch follows.
    pub partial: bool,
}

impl Batch {
    /// Where to begin: `start`, or the guess that stands for it; `None` where nothing can be
    /// guessed. A guess may lie at or behind `limit`: then no record begins in this batch.
    pub fn begin(&self) -> Option<usize> {
        self.start.or_else(|| self.capture.find_record(&self.bytes, 0))
    }
}

/// Something wrong with an input, found by the source and not by the reader of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceDamage {
    /// The input's name.
    pub file: String,
    /// Offset in the uncompressed input, octets.
    pub offset: u64,
    /// What is wrong.
    pub kind: SourceDamageKind,
}

/// What is wrong with an input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceDamageKind {
    /// In one of several merged captures; the damage of a single one is in its batches.
    Capture(CaptureDamage),
    /// The compressed stream, or the device, ends in an error. Holds what was said.
    Stream(String),
    /// The file became shorter while it was read.
    Torn,
}

impl SourceDamageKind {
    /// The spelling in the summary.
    pub const fn as_str(&self) -> &'static str {
        match self {
            SourceDamageKind::Capture(kind) => kind.as_str(),
            SourceDamageKind::Stream(_) => "input_stream",
            SourceDamageKind::Torn => "input_torn",
        }
    }
}

/// The octets of a batch: part of a mapped file, or a buffer that is used again.
#[derive(Debug)]
pub struct Bytes {
    content: BytesContent,
    pool: Arc<Pool>,
}

#[derive(Debug)]
enum BytesContent {
    Mapped { mapped: Arc<Mapped>, from: usize },
    Owned(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.content {
            BytesContent::Mapped { mapped, from } => mapped.bytes().get(*from..).unwrap_or(&[]),
            BytesContent::Owned(bytes) => bytes,
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let buffer = match &mut self.content {
            BytesContent::Mapped { .. } => None,
            BytesContent::Owned(bytes) => Some(std::mem::take(bytes)),
        };
        self.pool.give_back(buffer);
    }
}

/// Counts the batches in flight and keeps their buffers.
#[derive(Debug)]
struct Pool {
    state: Mutex<PoolState>,
    given_back: Condvar,
    in_flight_max: usize,
    /// Buffers that grew longer than this (by a search after damage) are not kept.
    keep_bytes_max: usize,
}

#[derive(Debug, Default)]
struct PoolState {
    in_flight: usize,
    free: Vec<Vec<u8>>,
}

impl Pool {
    /// Counts one batch more; waits while there are too many. `false`: told to stop.
    fn take(&self, stop: &AtomicBool) -> bool {
        let mut state = lock(&self.state);
        while state.in_flight >= self.in_flight_max {
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            let wait = self.given_back.wait_timeout(state, STOP_CHECK);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.in_flight += 1;
        true
    }

    fn buffer(&self) -> Vec<u8> {
        lock(&self.state).free.pop().unwrap_or_default()
    }

    fn give_back(&self, buffer: Option<Vec<u8>>) {
        let mut state = lock(&self.state);
        state.in_flight -= 1;
        if let Some(mut buffer) = buffer.filter(|buffer| buffer.capacity() <= self.keep_bytes_max) {
            buffer.clear();
            state.free.push(buffer);
        }
        drop(state);
        self.given_back.notify_one();
    }
}

/// Locks; a panic elsewhere left plain counts and lists, which are sound.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the batches of one input, or of several merged.
#[derive(Debug)]
pub struct Source {
    name: String,
    file: u32,
    batch_bytes: usize,
    pool: Arc<Pool>,
    /// Number of the next batch.
    index: u64,
    /// State of the reader at `offset`.
    capture: Capture,
    /// Where the next record begins, in the input.
    offset: u64,
    feed: Feed,
    damage: Arc<Mutex<Vec<SourceDamage>>>,
}

#[derive(Debug)]
enum Feed {
    Mapped { mapped: Arc<Mapped>, released: usize },
    Stream(Stream),
}

impl Source {
    /// Opens one input directly, several as one in order of time. Waits for the headers.
    pub fn open(
        mut inputs: Vec<Input>,
        options: SourceOptions,
        stop: &AtomicBool,
    ) -> Result<Source, InputError> {
        if inputs.len() == 1
            && let Some(input) = inputs.pop()
        {
            return Source::new(input, 0, options, stop);
        }
        let damage = Arc::default();
        let merge = Merge::open(inputs, Arc::clone(&damage))?;
        let stream = Stream::start(move || Ok(Box::new(merge) as Box<dyn Read + Send>), false);
        Source::from_stream("merged inputs".to_owned(), stream, 0, options, damage, stop)
    }

    /// Opens one input; `file` is repeated in its batches. Waits for the header.
    pub fn new(
        input: Input,
        file: u32,
        options: SourceOptions,
        stop: &AtomicBool,
    ) -> Result<Source, InputError> {
        let Input { name, content } = input;
        match content {
            Content::Stream { file: handle, live } => {
                let stream = Stream::start(move || decode::decoder(handle).map(|(r, _)| r), live);
                Source::from_stream(name, stream, file, options, Arc::default(), stop)
            }
            Content::Memory(bytes) => {
                let stream = Stream::start(move || Ok(Box::new(bytes)), false);
                Source::from_stream(name, stream, file, options, Arc::default(), stop)
            }
            Content::Mapped(mapped) => match Capture::open(mapped.bytes()) {
                Ok((capture, consumed)) => {
                    let feed = Feed::Mapped { mapped, released: 0 };
                    let damage = Arc::default();
                    Ok(Source::with(name, file, options, capture, consumed, feed, damage))
                }
                Err(source) => Err(InputError::NotCapture { name, source }),
            },
        }
    }

    fn from_stream(
        name: String,
        mut stream: Stream,
        file: u32,
        options: SourceOptions,
        damage: Arc<Mutex<Vec<SourceDamage>>>,
        stop: &AtomicBool,
    ) -> Result<Source, InputError> {
        while stream.buffer.len() < HEADER_BYTES && !stream.ended {
            if stop.load(Ordering::Relaxed) {
                return Err(InputError::Stopped);
            }
            stream.receive(STOP_CHECK);
        }
        match (Capture::open(&stream.buffer), stream.failure.take()) {
            (Ok((capture, consumed)), failure) => {
                stream.buffer.drain(..consumed);
                stream.base = consumed as u64;
                stream.failure = failure;
                let feed = Feed::Stream(stream);
                Ok(Source::with(name, file, options, capture, consumed, feed, damage))
            }
            (Err(_), Some(why)) => Err(InputError::Unreadable { name, why }),
            (Err(source), None) => Err(InputError::NotCapture { name, source }),
        }
    }

    fn with(
        name: String,
        file: u32,
        options: SourceOptions,
        capture: Capture,
        consumed: usize,
        feed: Feed,
        damage: Arc<Mutex<Vec<SourceDamage>>>,
    ) -> Source {
        // A batch shorter than a header would leave the first one without its start.
        let batch_bytes = options.batch_bytes.max(HEADER_BYTES + 1);
        let pool = Pool {
            state: Mutex::default(),
            given_back: Condvar::new(),
            in_flight_max: options.in_flight.max(1),
            keep_bytes_max: 2 * batch_bytes + 4 * CHUNK_BYTES,
        };
        let (pool, offset) = (Arc::new(pool), consumed as u64);
        Source { name, file, batch_bytes, pool, index: 0, capture, offset, feed, damage }
    }

    /// The next batch; `None` at the end of input, or soon after `stop` is set, and then always.
    /// Waits for input, and for a batch to be dropped when too many are in flight.
    pub fn next_batch(&mut self, stop: &AtomicBool) -> Option<Batch> {
        if !self.pool.take(stop) {
            return None;
        }
        // From here on this value gives the permit back if no batch takes it along.
        let permit = Bytes { content: BytesContent::Owned(Vec::new()), pool: self.pool.clone() };
        let limit = (self.index + 1).saturating_mul(self.batch_bytes as u64);
        match &self.feed {
            Feed::Mapped { .. } => self.next_mapped(permit, limit),
            Feed::Stream(_) => self.next_piece(permit, limit, stop),
        }
    }

    fn next_mapped(&mut self, mut permit: Bytes, limit: u64) -> Option<Batch> {
        let Feed::Mapped { mapped, released } = &mut self.feed else { return None };
        let bytes = mapped.bytes();
        let base = usize::try_from(limit).ok()? - self.batch_bytes;
        if base >= bytes.len() {
            return None;
        }
        let capture = self.capture.clone();
        let limit = base + self.batch_bytes;
        let first = self.offset as usize;
        let start = if !capture.can_split() {
            self.offset = walk(&mut self.capture, bytes, first, limit, true).0 as u64;
            Some(first - base)
        } else if self.index == 0 {
            Some(first)
        } else {
            None
        };
        let behind = base.saturating_sub(self.pool.in_flight_max * self.batch_bytes);
        if behind - *released >= RELEASE_BYTES {
            mapped.release(*released..behind);
            *released = behind;
        }
        permit.content = BytesContent::Mapped { mapped: Arc::clone(mapped), from: base };
        let index = self.index;
        self.index += 1;
        Some(Batch {
            index,
            file: self.file,
            base_offset: base as u64,
            bytes: permit,
            capture,
            start,
            limit: limit - base,
            at_end: true,
            partial: false,
        })
    }

    /// A batch of a stream, or a piece of one.
    fn next_piece(&mut self, permit: Bytes, limit: u64, stop: &AtomicBool) -> Option<Batch> {
        let Feed::Stream(stream) = &mut self.feed else { return None };
        let first = limit - self.batch_bytes as u64;
        let capture = self.capture.clone();
        let base = stream.base;
        let limit = usize::try_from(limit.saturating_sub(base)).ok()?;
        let mut waiting_since = None;
        let mut at = (self.offset - base) as usize;
        let partial = loop {
            let need_more;
            (at, need_more) = walk(&mut self.capture, &stream.buffer, at, limit, stream.ended);
            if !need_more {
                break false;
            }
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let mut patience = STOP_CHECK;
            if stream.live && at > 0 {
                let since = *waiting_since.get_or_insert_with(Instant::now);
                let delay = Duration::from_millis(LIVE_DELAY_MS);
                patience = patience.min(delay.saturating_sub(since.elapsed()));
                if patience.is_zero() {
                    break true;
                }
            }
            stream.receive(patience);
        };
        if let Some(why) = stream.failure.take() {
            let (file, offset) = (self.name.clone(), stream.length());
            let kind = SourceDamageKind::Stream(why);
            lock(&self.damage).push(SourceDamage { file, offset, kind });
        }
        if stream.ended && first >= stream.length() {
            return None;
        }
        self.offset = base + at as u64;
        // The batch takes the buffer with all that the walk saw; what is past its end is copied.
        let mut rest = self.pool.buffer();
        rest.extend_from_slice(&stream.buffer[at..]);
        let mut bytes = permit;
        bytes.content = BytesContent::Owned(std::mem::replace(&mut stream.buffer, rest));
        stream.base = self.offset;
        let index = self.index;
        self.index += u64::from(!partial);
        Some(Batch {
            index,
            file: self.file,
            base_offset: base,
            bytes,
            capture,
            start: Some(0),
            limit: if partial { at } else { limit },
            at_end: stream.ended,
            partial,
        })
    }

    /// The input's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Octets of uncompressed input in all; `None` where nobody knows.
    pub fn total_bytes(&self) -> Option<u64> {
        match &self.feed {
            Feed::Mapped { mapped, .. } => Some(mapped.bytes().len() as u64),
            Feed::Stream(_) => None,
        }
    }

    /// What was wrong with the input itself. Complete once every batch was read.
    pub fn damage(&self) -> Vec<SourceDamage> {
        let mut damage = lock(&self.damage).clone();
        if let Feed::Mapped { mapped, .. } = &self.feed
            && let Some(offset) = mapped.torn_at()
        {
            let (file, offset) = (self.name.clone(), offset as u64);
            damage.push(SourceDamage { file, offset, kind: SourceDamageKind::Torn });
        }
        damage
    }
}

/// Steps from `offset` to the first record at or past `limit`. Also says whether more bytes are
/// needed to get there.
fn walk(
    capture: &mut Capture,
    bytes: &[u8],
    mut offset: usize,
    limit: usize,
    at_end: bool,
) -> (usize, bool) {
    while offset < limit {
        offset = match capture.next(bytes, offset, at_end) {
            Step::Record(record) => record.next_offset,
            Step::Meta { next_offset } | Step::Damaged { next_offset, .. } => next_offset,
            Step::NeedMore => return (offset, true),
            Step::End => break,
        };
    }
    (offset, false)
}

/// What the reading thread says.
enum Chunk {
    /// A buffer, and how much of it counts.
    Data(Vec<u8>, usize),
    Failed(String),
    End,
}

/// A stream as the source sees it. A thread of its own reads (and decodes), so that a slow pipe
/// can be waited for with a limit. It ends with the input, or when the source is gone and its
/// next read returns; it is not waited for, since a pipe may stay silent for ever.
#[derive(Debug)]
struct Stream {
    chunks: Receiver<Chunk>,
    used: SyncSender<Vec<u8>>,
    live: bool,
    ended: bool,
    failure: Option<String>,
    /// Offset of `buffer[0]` in the input.
    base: u64,
    buffer: Vec<u8>,
}

impl Stream {
    /// Starts the thread. `open` runs on it, since it may wait for the first octets.
    fn start<F>(open: F, live: bool) -> Stream
    where
        F: FnOnce() -> io::Result<Box<dyn Read + Send>> + Send + 'static,
    {
        let (chunk_sender, chunks) = sync_channel(CHUNKS);
        let (used, used_receiver) = sync_channel(CHUNKS);
        let thread = thread::Builder::new().name("larder-read".to_owned());
        let failure = thread
            .spawn(move || {
                let last = match open().and_then(|r| read_chunks(r, &chunk_sender, &used_receiver))
                {
                    Ok(()) => Chunk::End,
                    Err(error) => Chunk::Failed(error.to_string()),
                };
                // The source may be gone; then nobody wants to know.
                let _ = chunk_sender.send(last);
            })
            .err()
            .map(|error| error.to_string());
        let ended = failure.is_some();
        Stream { chunks, used, live, ended, failure, base: 0, buffer: Vec::new() }
    }

    /// Waits for a chunk at most `patience`, then takes what else is there, up to a chunk's length:
    /// a search after damage begins anew with each call, so calls must bring much if they can.
    fn receive(&mut self, patience: Duration) {
        let want = self.buffer.len() + CHUNK_BYTES;
        match self.chunks.recv_timeout(patience) {
            Ok(chunk) => self.accept(chunk),
            Err(RecvTimeoutError::Timeout) => return,
            Err(RecvTimeoutError::Disconnected) => return self.lose_thread(),
        }
        while !self.ended && self.buffer.len() < want {
            let Ok(chunk) = self.chunks.try_recv() else { break };
            self.accept(chunk);
        }
    }

    fn accept(&mut self, chunk: Chunk) {
        match chunk {
            Chunk::Data(data, count) => {
                self.buffer.extend_from_slice(&data[..count]);
                // A full channel means that the thread has enough of them.
                let _ = self.used.try_send(data);
            }
            Chunk::End => self.ended = true,
            Chunk::Failed(why) => {
                self.ended = true;
                self.failure = Some(why);
            }
        }
    }

    /// The thread is gone without a word: a decoder panicked. What came before counts.
    fn lose_thread(&mut self) {
        self.ended = true;
        self.failure = Some("the decoder failed on this input".to_owned());
    }

    /// Octets of input received so far.
    fn length(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }
}

/// Reads until the end, an error, or nobody listens.
fn read_chunks(
    mut reader: Box<dyn Read + Send>,
    chunks: &SyncSender<Chunk>,
    used: &Receiver<Vec<u8>>,
) -> io::Result<()> {
    loop {
        let mut buffer = used.try_recv().unwrap_or_else(|_| vec![0; CHUNK_BYTES]);
        let count = loop {
            match reader.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if count == 0 || chunks.send(Chunk::Data(buffer, count)).is_err() {
            return Ok(());
        }
    }
}
