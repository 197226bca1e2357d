//! Cuts input into batches of records. The batches do not depend on the kind of input.
//!
//! Batch *k* is the records whose headers begin in `[k * B, (k + 1) * B)` of the uncompressed
//! input, B = [`SourceOptions::batch_bytes`]. Every *k* up to the end comes once, in order, also
//! when no record begins there. So a mapped file, a pipe and a compressed file of the same content
//! give the same batches.
//!
//! ```text
//!  input                    which code finds the record starts
//!  mapped pcap              the worker, by `Capture::find_record`: `start` is `None`, and the code that
//!                           joins the results checks that batch k ended where k + 1 began
//!  mapped pcapng            the source, by walking the blocks: `start` is exact
//!  stream, merged inputs    the source as well, in a buffer that the batch then owns
//! ```
//!
//! A worker reads a batch with its `capture` from `start` (or [`Batch::begin`]) until an offset of
//! `limit` or more, with the batch's `at_end`; the bytes after `limit` are for the last record, and
//! for the search after damage. It reports where it ended. If the next batch began elsewhere (and
//! not both at or behind its `limit`), the guess was wrong: that batch is read again from this end,
//! with the reader's state at the end of this batch, and so on until a guess fits.
//!
//! A live stream (a pipe) that is slow gives a batch in pieces: each but the last is `partial`
//! and has the same `index`. A complete record waits [`LIVE_DELAY_MS`] at most.
//!
//! Interfaces ([`Source::live`]) return the frames that they have received, in batches of any
//! length. Each has the whole records of a time, from `start` 0 to the end of `bytes`. When too
//! many batches are in flight nothing is read, and the kernel drops frames.
//!
//! Bounds: [`SourceOptions::in_flight`] batches exist at once; the source waits for one to be
//! dropped. A stream's buffer is `B + LOOKAHEAD_BYTES` at most.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use larder_wire::capture::{Capture, HEADER_BYTES, Step};

pub use crate::batch_memory::Bytes;
use crate::batch_memory::{BatchMemory, BytesContent, lock};
use crate::damage;
pub use crate::damage::{SourceDamage, SourceDamageKind};
use crate::decode;
use crate::input::{Content, Input, InputError, waiting};
use crate::live::{Filled, Live};
use crate::mapped::{Mapped, RELEASE_BYTES};
use crate::merge::{Captures, Merge};
use crate::reading::{Counted, Reading};
pub use crate::selection::Purpose;
use crate::selection::Selection;
use crate::stream::{CHUNK_BYTES, STOP_CHECK, Stream};

/// The longest that a complete record of a live stream waits for its batch to fill.
pub const LIVE_DELAY_MS: u64 = 200;

/// How input is cut.
#[derive(Clone, Copy, Debug)]
pub struct SourceOptions {
    /// Bytes of input in a batch.
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

/// Some records of the input, and the state needed to read them.
#[derive(Debug)]
pub struct Batch {
    /// Number of the batch.
    pub index: u64,
    /// Number of the input, as given to [`Source::new`].
    pub file: u32,
    /// Offset of `bytes[0]` in the uncompressed input.
    pub base_offset: u64,
    /// The bytes, and some that follow.
    pub bytes: Bytes,
    /// The reader's state at `start`.
    pub capture: Capture,
    /// Where in `bytes` to begin; `None`: at the record that `Capture::find_record` guesses.
    pub start: Option<usize>,
    /// Records that begin here or later in `bytes` belong to the next batch.
    pub limit: usize,
    /// The input ends where `bytes` does.
    pub at_end: bool,
    /// More of the same batch follows, unless the source is stopped.
    pub partial: bool,
    /// For a live capture: how far the time of day was set, in ns, since the batch before; times of
    /// both batches may be on either side. Otherwise 0.
    pub clock_step_ns: i64,
    /// Packets are read for several purposes: [`Batch::purpose`].
    pub has_purposes: bool,
    /// For a silent live capture: the time of day in ns, so that time advances. Such a batch has no
    /// records.
    pub silent_at_ns: Option<i64>,
}

impl Batch {
    /// The beginning: `start`, or else the guess; `None` if nothing can be guessed. A guess may be
    /// at or after `limit`: then no record begins in this batch.
    pub fn begin(&self) -> Option<usize> {
        self.start.or_else(|| self.capture.find_record(&self.bytes, 0))
    }

    /// What packets of this interface are read for.
    pub fn purpose(&self, interface: u32) -> Purpose {
        if self.has_purposes { Purpose::of_interface(interface) } else { Purpose::All }
    }
}

/// The result of [`Source::poll_batch`].
#[derive(Debug)]
pub enum Polled {
    /// The next batch.
    Batch(Box<Batch>),
    /// Nothing yet; try again.
    Later,
    /// The input has ended, or the caller wanted to stop.
    End,
}

/// Gives the batches of one input, or of several merged.
#[derive(Debug)]
pub struct Source {
    name: String,
    file: u32,
    batch_bytes: usize,
    memory: Arc<BatchMemory>,
    /// Number of the next batch.
    index: u64,
    /// State of the reader at `offset`.
    capture: Capture,
    /// Offset of the next record in the input.
    offset: u64,
    feed: Feed,
    damage: Arc<Mutex<Vec<SourceDamage>>>,
    /// See [`Batch::has_purposes`].
    has_purposes: bool,
    reading: Arc<Reading>,
}

#[derive(Debug)]
enum Feed {
    Mapped { mapped: Arc<Mapped>, released: usize },
    Stream(Stream),
    Live(Box<Live>),
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
        Source::merged([inputs, Vec::new()], Selection::default(), options, stop)
    }

    /// Like [`Source::open`], for the records that are selected, and reads `for_names` with `inputs`, in
    /// order of time.
    pub fn open_selected(
        inputs: Vec<Input>,
        for_names: Vec<Input>,
        selection: Selection,
        options: SourceOptions,
        stop: &AtomicBool,
    ) -> Result<Source, InputError> {
        if for_names.is_empty() && selection.is_all() {
            return Source::open(inputs, options, stop);
        }
        Source::merged([inputs, for_names], selection, options, stop)
    }

    fn merged(
        [inputs, for_names]: [Vec<Input>; 2],
        selection: Selection,
        options: SourceOptions,
        stop: &AtomicBool,
    ) -> Result<Source, InputError> {
        let is_all = selection.is_all();
        let live = !is_all && inputs.iter().any(Input::is_live);
        let name = if is_all { "merged inputs" } else { "selected packets" };
        let has_purposes = !for_names.is_empty() || selection.from_ns.is_some();
        let reading = Arc::new(Reading::of(&[&inputs, &for_names]));
        let damage = Arc::default();
        let reports = (Arc::clone(&damage), Arc::clone(&reading));
        // It waits for the first record of each, and one may be a silent pipe.
        let merge = waiting(stop, move || Merge::open(inputs, for_names, selection, reports))?;
        let stream = Stream::start(move || Ok(Box::new(merge) as Box<dyn Read + Send>), live);
        let source = Source::from_stream(name.to_owned(), stream, 0, options, damage, stop)?;
        Ok(Source { has_purposes, reading, ..source })
    }

    /// Opens one input; `file` is repeated in its batches. Waits for the header.
    pub fn new(
        input: Input,
        file: u32,
        options: SourceOptions,
        stop: &AtomicBool,
    ) -> Result<Source, InputError> {
        let reading = Arc::new(Reading::of(&[std::slice::from_ref(&input)]));
        let Input { name, content } = input;
        let counts = Arc::clone(&reading);
        let source = match content {
            Content::Stream { file: handle, live } => {
                let counted = Counted { inner: handle, reading: counts };
                let stream = Stream::start(move || decode::decoder(counted).map(|(r, _)| r), live);
                Source::from_stream(name, stream, file, options, Arc::default(), stop)?
            }
            Content::Senders(senders) => {
                let damage = Arc::default();
                let captures = Captures::of(*senders, Arc::clone(&damage), counts);
                let stream = Stream::start(move || Ok(Box::new(captures)), true);
                Source::from_stream(name, stream, file, options, damage, stop)?
            }
            Content::Memory(bytes) => {
                let counted = Counted { inner: bytes, reading: counts };
                let stream = Stream::start(move || Ok(Box::new(counted)), false);
                Source::from_stream(name, stream, file, options, Arc::default(), stop)?
            }
            Content::Mapped(mapped) => match Capture::open(mapped.bytes()) {
                Ok((capture, consumed)) => {
                    let feed = Feed::Mapped { mapped, released: 0 };
                    let damage = Arc::default();
                    Source::with(name, file, options, capture, consumed, feed, damage)
                }
                Err(source) => return Err(InputError::NotCapture { name, source }),
            },
        };
        Ok(Source { reading, ..source })
    }

    /// Reads from interfaces. Ends when `stop` is set, after everything received until then.
    pub fn live(live: Live, options: SourceOptions) -> Source {
        let header = live.header();
        // The bytes come from our own writer, so the reader consumes all of them.
        let (mut capture, consumed) =
            Capture::open(&header).expect("our own header is one of a capture");
        let (end, _) = walk(&mut capture, &header, consumed, header.len(), true);
        let (name, feed) = (live.name(), Feed::Live(Box::new(live)));
        Source::with(name, 0, options, capture, end, feed, Arc::default())
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
        let memory = BatchMemory::new(options.in_flight.max(1), 2 * batch_bytes + 4 * CHUNK_BYTES);
        let offset = consumed as u64;
        Source {
            name,
            file,
            batch_bytes,
            memory,
            index: 0,
            capture,
            offset,
            feed,
            damage,
            has_purposes: false,
            reading: Arc::default(),
        }
    }

    /// The next batch; `None` at the end of input. Waits for input, and for a batch to be dropped
    /// when too many are in flight. Once `stop` is set nothing more is read. A stream then still
    /// gives the whole records that it has received, as far as that needs no wait; `None` follows.
    pub fn next_batch(&mut self, stop: &AtomicBool) -> Option<Batch> {
        loop {
            match self.poll_batch(stop) {
                Polled::Batch(batch) => return Some(*batch),
                Polled::Later => {}
                Polled::End => return None,
            }
        }
    }

    /// Like [`Source::next_batch`], for a caller with other work while a pipe is silent: a wait for
    /// the next record returns [`Polled::Later`] after a tenth of a second.
    pub fn poll_batch(&mut self, stop: &AtomicBool) -> Polled {
        self.poll_batch_for(stop, STOP_CHECK)
    }

    /// Like [`Source::poll_batch`], for a caller that must not wait: interfaces return
    /// [`Polled::Later`] at once if they have nothing.
    pub fn poll_batch_now(&mut self, stop: &AtomicBool) -> Polled {
        self.poll_batch_for(stop, Duration::ZERO)
    }

    fn poll_batch_for(&mut self, stop: &AtomicBool, patience: Duration) -> Polled {
        if let Feed::Live(_) = &self.feed {
            return self.next_live(stop, patience);
        }
        // Gives its place back if no batch takes it along.
        let Some(permit) = self.memory.take(stop) else { return Polled::End };
        let limit = (self.index + 1).saturating_mul(self.batch_bytes as u64);
        let batch = match &self.feed {
            Feed::Mapped { .. } if stop.load(Ordering::Relaxed) => None,
            Feed::Mapped { .. } => self.next_mapped(permit, limit),
            Feed::Stream(_) | Feed::Live(_) => return self.next_piece(permit, limit, stop),
        };
        batch.map_or(Polled::End, |batch| Polled::Batch(Box::new(batch)))
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
        // If a worker still uses these pages, the kernel maps them again.
        let behind = base.saturating_sub(self.memory.in_flight_max * self.batch_bytes);
        if behind - *released >= RELEASE_BYTES {
            mapped.release(*released..behind);
            *released = behind;
        }
        self.reading.add_bytes(self.batch_bytes.min(bytes.len() - base));
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
            clock_step_ns: 0,
            has_purposes: self.has_purposes,
            silent_at_ns: None,
        })
    }

    /// A batch of a stream, or a piece of one.
    fn next_piece(&mut self, permit: Bytes, limit: u64, stop: &AtomicBool) -> Polled {
        let Feed::Stream(stream) = &mut self.feed else { return Polled::End };
        let first = limit - self.batch_bytes as u64;
        let capture = self.capture.clone();
        let base = stream.base;
        let Ok(limit) = usize::try_from(limit.saturating_sub(base)) else { return Polled::End };
        let mut waiting_since = None;
        let mut at = (self.offset - base) as usize;
        let partial = loop {
            let need_more;
            (at, need_more) = walk(&mut self.capture, &stream.buffer, at, limit, stream.ended);
            if !need_more {
                break false;
            }
            if stop.load(Ordering::Relaxed) {
                // Records that arrived whole are still delivered.
                match at {
                    _ if stream.drain() => continue,
                    0 => return Polled::End,
                    _ => break true,
                }
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
            let received = stream.length();
            stream.receive(patience);
            if at == 0 && !stream.ended && stream.length() == received {
                // Nothing was taken and nothing changed: the next call begins where this one did.
                return Polled::Later;
            }
        };
        if let Some(why) = stream.failure.take() {
            let (offset, kind) = (stream.length(), SourceDamageKind::Stream(why));
            damage::add(&self.damage, &self.name, offset, kind);
        }
        if stream.ended && first >= stream.length() {
            return Polled::End;
        }
        self.offset = base + at as u64;
        // The batch takes the buffer with all bytes that were walked; the bytes after its end are
        // copied.
        let mut rest = self.memory.buffer();
        rest.extend_from_slice(&stream.buffer[at..]);
        let mut bytes = permit;
        bytes.content = BytesContent::Owned(std::mem::replace(&mut stream.buffer, rest));
        stream.base = self.offset;
        let index = self.index;
        self.index += u64::from(!partial);
        Polled::Batch(Box::new(Batch {
            index,
            file: self.file,
            base_offset: base,
            bytes,
            capture,
            start: Some(0),
            limit: if partial { at } else { limit },
            at_end: stream.ended,
            partial,
            clock_step_ns: 0,
            has_purposes: self.has_purposes,
            silent_at_ns: None,
        }))
    }

    /// Delivers the frames that interfaces have received.
    fn next_live(&mut self, stop: &AtomicBool, patience: Duration) -> Polled {
        let Feed::Live(live) = &mut self.feed else { return Polled::End };
        live.keep_house();
        let Some(mut bytes) = self.memory.take_soon() else {
            return if live.gives_up(stop) { Polled::End } else { Polled::Later };
        };
        let mut buffer = self.memory.buffer();
        let filled = live.fill(&mut buffer, self.batch_bytes, stop, patience);
        let limit = buffer.len();
        // If nothing arrived, dropping the batch returns the buffer and its place.
        bytes.content = BytesContent::Owned(buffer);
        let silent_at_ns = match filled {
            Filled::Some => None,
            Filled::Nothing => match live.silent_at_ns() {
                None => return Polled::Later,
                silent => silent,
            },
            Filled::End => return Polled::End,
        };
        let (index, base_offset) = (self.index, self.offset);
        self.index += 1;
        self.offset += limit as u64;
        Polled::Batch(Box::new(Batch {
            index,
            file: self.file,
            base_offset,
            bytes,
            capture: self.capture.clone(),
            start: Some(0),
            limit,
            at_end: true,
            partial: false,
            clock_step_ns: live.clock_step_ns(),
            has_purposes: self.has_purposes,
            silent_at_ns,
        }))
    }

    /// The input's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why a live capture ended by itself, and what to do next.
    pub fn failure(&self) -> Option<&str> {
        match &self.feed {
            Feed::Live(live) => live.failure(),
            Feed::Mapped { .. } | Feed::Stream(_) => None,
        }
    }

    /// How much of the files is read; grows while they are.
    pub fn reading(&self) -> Arc<Reading> {
        Arc::clone(&self.reading)
    }

    /// Damage of the input itself. Complete once every batch was read.
    pub fn damage(&self) -> Vec<SourceDamage> {
        let mut damage = lock(&self.damage).clone();
        if let Feed::Mapped { mapped, .. } = &self.feed
            && let Some(offset) = mapped.torn_at()
        {
            let (file, offset) = (self.name.clone(), offset as u64);
            damage.push(SourceDamage { file, offset, kind: SourceDamageKind::Torn, count: 1 });
        }
        damage
    }
}

/// Steps from `offset` to the first record at or past `limit`. Also returns whether this needs more
/// bytes.
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
