//! The bytes of a segment's file, compressed or not.
//!
//! Of a compressed segment, the frames that are needed are decoded, and the last ones that were used
//! are kept ([`CACHED_MAX`]). The content of a damaged frame reads as zeros, which are no block: a
//! walk skips them as it skips any damage, and packets in them are counted as damaged.
//!
//! A reader that knows which places it will read says so ([`Source::expect`]): then threads decode the
//! next frames, [`BATCH`] each, while the reader is busy with those before.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use larder_io::mapped::Mapped;
use larder_io::zstd_frames::{CONTENT_BYTES, Decoder, Frame, FrameList};

use crate::files::{self, HEADER_BYTES_MAX, Identity, Kind};
use crate::options::SEGMENT_BYTES_MAX;

/// Decoded frames that are kept besides a batch: a block may lie in two, and packets of a flow are
/// near each other.
const CACHED_MAX: usize = 4;

/// Frames that a thread decodes; for two batches or fewer none is started.
const BATCH: usize = 8;

/// Threads that decode ahead, at most, besides the one that is waited for. There is one for each
/// core.
const THREADS_MAX: usize = 8;
static THREADS: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX));

/// What the next segments need: a new decoder costs more than a frame, and memory that is new to the
/// process a fifth as much as its content.
static SPARE: Mutex<Spare> = Mutex::new(Spare { workers: Vec::new(), contents: Vec::new() });

#[derive(Debug)]
struct Spare {
    /// At most [`THREADS_MAX`].
    workers: Vec<Worker>,
    /// Of [`CONTENT_BYTES`] at most; no more than a segment has at a time.
    contents: Vec<Vec<u8>>,
}

impl Spare {
    fn lock() -> MutexGuard<'static, Spare> {
        SPARE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&mut self, contents: impl Iterator<Item = Vec<u8>>) {
        let room = (THREADS_MAX * BATCH + CACHED_MAX).saturating_sub(self.contents.len());
        let contents = contents.filter(|content| content.capacity() <= CONTENT_BYTES);
        self.contents.extend(contents.take(room));
    }
}

/// Decodes frames of a file.
#[derive(Debug, Default)]
struct Worker {
    decoder: Decoder,
    encoded: Vec<u8>,
}

impl Worker {
    /// Fills `content`. The content of a damaged frame is zeros; returns whether it is damaged.
    fn decode(&mut self, file: &File, frame: Frame, content: &mut [u8]) -> io::Result<bool> {
        self.encoded.resize(frame.bytes as usize, 0);
        match file.read_exact_at(&mut self.encoded, frame.start) {
            // Another program made the file shorter.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                content.fill(0);
                Ok(true)
            }
            Err(error) => Err(error),
            Ok(()) => Ok(self.decoder.frame(&self.encoded, content).is_err()),
        }
    }
}

/// Content of a compressed segment, at most; more is not read. The last batch of a segment may
/// exceed its size.
const CONTENT_BYTES_MAX: u64 = 2 * SEGMENT_BYTES_MAX;

/// True for a folder with stored packets: it has a segment, or the lock file of a writer.
pub(crate) fn is_store(directory: &Path) -> io::Result<bool> {
    let listed = files::list(directory)?;
    let is_ours = |(number, kind, _): &(u64, Kind, u64)| match kind {
        Kind::Closed | Kind::Compressed | Kind::Growing => {
            matches!(Source::identity(&files::path(directory, *number, *kind), *kind), Ok(Some(_)))
        }
        Kind::CompressedPart => false,
        Kind::Journal | Kind::Index | Kind::IndexPart | Kind::Hooked => true,
    };
    Ok(files::lock(directory).is_file() || listed.iter().any(is_ours))
}

/// The bytes of a segment.
#[derive(Debug)]
pub(crate) enum Source {
    Plain(File),
    Compressed(Box<Compressed>),
}

/// All bytes of a segment.
#[derive(Debug)]
pub(crate) enum Whole {
    /// An empty file cannot be mapped.
    Empty,
    Mapped(Mapped),
    Decoded(Vec<u8>),
}

impl Whole {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Whole::Empty => &[],
            Whole::Mapped(mapped) => mapped.bytes(),
            Whole::Decoded(bytes) => bytes,
        }
    }
}

impl Source {
    /// Opens a file of this kind.
    pub fn open(path: &Path, kind: Kind) -> io::Result<Source> {
        let file = File::open(path)?;
        Ok(match kind {
            Kind::Compressed => Source::Compressed(Box::new(Compressed::new(file)?)),
            _ => Source::Plain(file),
        })
    }

    /// The identity in a file; `None` for a foreign file.
    pub fn identity(path: &Path, kind: Kind) -> io::Result<Option<Identity>> {
        Source::open(path, kind)?.own_identity()
    }

    /// The same of an open one.
    pub fn own_identity(&mut self) -> io::Result<Option<Identity>> {
        let mut head = [0; HEADER_BYTES_MAX];
        let read = self.read_at(&mut head, 0)?;
        Ok(Identity::parse(&head[..read]))
    }

    /// Bytes of the segment: of a growing one, now.
    pub fn bytes(&self) -> io::Result<u64> {
        match self {
            Source::Plain(file) => Ok(file.metadata()?.len()),
            Source::Compressed(compressed) => Ok(compressed.bytes()),
        }
    }

    /// The places that will be read, `bytes` at each, in order.
    pub fn expect(&mut self, places: impl Iterator<Item = u64>, bytes: u64) {
        let Source::Compressed(compressed) = self else { return };
        let (mut expected, mut end) = (Vec::new(), 0);
        for place in places {
            for offset in [place, place + bytes - 1] {
                // Most are in the frame of the one before.
                if offset >= end
                    && let Some(number) = compressed.frames.at(offset)
                {
                    let frame = compressed.frames.frames()[number];
                    end = frame.content_start + u64::from(frame.content_bytes);
                    expected.push(number);
                }
            }
        }
        compressed.expect(expected);
    }

    /// Bytes of the file that are no frames.
    pub fn lost_bytes(&self) -> u64 {
        match self {
            Source::Plain(_) => 0,
            Source::Compressed(compressed) => compressed.frames.lost_bytes(),
        }
    }

    /// Reads as many bytes as there are.
    pub fn read_at(&mut self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<usize> {
        let mut sum = 0;
        while !buffer.is_empty() {
            let read = match self {
                Source::Plain(file) => match file.read_at(buffer, offset) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read?,
                },
                Source::Compressed(compressed) => {
                    let (Ok(from) | Err(from)) = compressed.from(offset)?;
                    let read = from.len().min(buffer.len());
                    buffer[..read].copy_from_slice(&from[..read]);
                    read
                }
            };
            if read == 0 {
                break;
            }
            (sum, offset) = (sum + read, offset + read as u64);
            buffer = &mut buffer[read..];
        }
        Ok(sum)
    }

    /// The bytes from `offset` on, as far as they are in memory already.
    pub fn at_hand(&mut self, offset: u64) -> io::Result<&[u8]> {
        match self {
            Source::Plain(_) => Ok(&[]),
            Source::Compressed(compressed) => {
                let (Ok(from) | Err(from)) = compressed.from(offset)?;
                Ok(from)
            }
        }
    }

    /// The first `bytes` of it, or all if there are fewer.
    pub fn whole(&mut self, bytes: u64) -> io::Result<Whole> {
        match self {
            Source::Plain(file) => match usize::try_from(bytes) {
                Ok(0) => Ok(Whole::Empty),
                bytes => Mapped::read_only(file, bytes.unwrap_or(usize::MAX)).map(Whole::Mapped),
            },
            Source::Compressed(compressed) => {
                compressed.expect((0..compressed.frames.frames().len()).collect());
                let bytes = bytes.min(compressed.bytes());
                let mut out = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
                while (out.len() as u64) < bytes {
                    let (Ok(from) | Err(from)) = compressed.from(out.len() as u64)?;
                    let rest = usize::try_from(bytes - out.len() as u64).unwrap_or(usize::MAX);
                    out.extend_from_slice(&from[..from.len().min(rest)]);
                }
                Ok(Whole::Decoded(out))
            }
        }
    }
}

/// A compressed segment.
#[derive(Debug)]
pub(crate) struct Compressed {
    file: Arc<File>,
    frames: Arc<FrameList>,
    /// The last used first.
    cached: Vec<Cached>,
    /// Frames that will be used; the next one is the last.
    expected: Vec<usize>,
    /// The next ones of them, in work.
    ahead: VecDeque<Ahead>,
}

#[derive(Debug)]
struct Cached {
    frame: usize,
    content: Vec<u8>,
    is_damaged: bool,
}

/// Frames that a thread decodes.
#[derive(Debug)]
struct Ahead {
    numbers: Vec<usize>,
    thread: JoinHandle<io::Result<Vec<Cached>>>,
}

impl Compressed {
    /// Reads the places of its frames.
    pub fn new(file: File) -> io::Result<Compressed> {
        let frames = Arc::new(FrameList::read(&file)?);
        let (cached, expected, ahead) = Default::default();
        Ok(Compressed { file: Arc::new(file), frames, cached, expected, ahead })
    }

    /// Numbers of frames that will be used, in order.
    fn expect(&mut self, mut numbers: Vec<usize>) {
        self.ahead.clear();
        numbers.reverse();
        self.expected = numbers;
    }

    /// Bytes of the content.
    pub fn bytes(&self) -> u64 {
        self.frames.content_bytes().min(CONTENT_BYTES_MAX)
    }

    /// The content from `offset` up to the end of its frame, none at the end. `Err`: the frame is
    /// damaged, and these are zeros.
    pub fn from(&mut self, offset: u64) -> io::Result<Result<&[u8], &[u8]>> {
        let Some(number) = self.frames.at(offset).filter(|_| offset < self.bytes()) else {
            return Ok(Ok(&[]));
        };
        let start = self.frames.frames()[number].content_start;
        let cached = self.frame(number)?;
        let content = cached.content.get((offset - start) as usize..).unwrap_or_default();
        Ok(if cached.is_damaged { Err(content) } else { Ok(content) })
    }

    fn frame(&mut self, number: usize) -> io::Result<&Cached> {
        match self.cached.iter().position(|cached| cached.frame == number) {
            Some(0) => {}
            Some(at) => self.cached[..=at].rotate_right(1),
            None => {
                let decoded = match self.take_ahead(number) {
                    Some(decoded) => {
                        self.let_go(CACHED_MAX - 1);
                        decoded?
                    }
                    // Those of the batch that were not used yet stay.
                    None => {
                        self.let_go(CACHED_MAX + BATCH - 1);
                        decode(&self.file, &self.frames, &[number])?
                    }
                };
                self.cached.splice(..0, decoded);
                let at = self.cached.iter().position(|cached| cached.frame == number);
                self.cached[..=at.unwrap_or(0)].rotate_right(1);
            }
        }
        Ok(&self.cached[0])
    }

    /// Gives back the frames that were used least lately, all but `kept`.
    fn let_go(&mut self, kept: usize) {
        let old = self.cached.drain(kept.min(self.cached.len())..);
        Spare::lock().give_back(old.map(|cached| cached.content));
    }

    /// The frames that were decoded ahead with this one, if it was expected; those before it are not
    /// any more.
    fn take_ahead(&mut self, number: usize) -> Option<io::Result<Vec<Cached>>> {
        while self.ahead.front().is_some_and(|ahead| ahead.numbers.last() < Some(&number)) {
            self.ahead.pop_front();
        }
        if self.ahead.is_empty() {
            while self.expected.last().is_some_and(|expected| *expected < number) {
                self.expected.pop();
            }
            let is_worth_it = *THREADS > 1 && self.expected.len() > 2 * BATCH;
            if self.expected.last() != Some(&number) || !is_worth_it {
                return None;
            }
        }
        self.start();
        let ahead = self.ahead.pop_front_if(|ahead| ahead.numbers.contains(&number))?;
        self.start();
        // Without the other thread this one does it.
        ahead.thread.join().ok()
    }

    /// Starts threads for the next expected frames.
    fn start(&mut self) {
        while self.ahead.len() < *THREADS && !self.expected.is_empty() {
            let from = self.expected.len().saturating_sub(BATCH);
            let numbers: Vec<usize> = self.expected[from..].iter().rev().copied().collect();
            let (file, frames) = (Arc::clone(&self.file), Arc::clone(&self.frames));
            let of_thread = numbers.clone();
            let decode = move || decode(&file, &frames, &of_thread);
            match thread::Builder::new().name("find-decode".into()).spawn(decode) {
                Ok(thread) => self.ahead.push_back(Ahead { numbers, thread }),
                // Frames are then decoded when they are used.
                Err(_) => return,
            }
            self.expected.truncate(from);
        }
    }
}

fn decode(file: &File, frames: &FrameList, numbers: &[usize]) -> io::Result<Vec<Cached>> {
    let (mut worker, mut contents) = {
        let mut spare = Spare::lock();
        let from = spare.contents.len().saturating_sub(numbers.len());
        (spare.workers.pop().unwrap_or_default(), spare.contents.split_off(from))
    };
    let mut decoded = Vec::with_capacity(numbers.len());
    for number in numbers {
        let frame = frames.frames()[*number];
        let (mut content, len) = (contents.pop().unwrap_or_default(), frame.content_bytes as usize);
        content.reserve_exact(len.saturating_sub(content.len()));
        content.resize(len, 0);
        let is_damaged = worker.decode(file, frame, &mut content)?;
        decoded.push(Cached { frame: *number, content, is_damaged });
    }
    let mut spare = Spare::lock();
    if spare.workers.len() < THREADS_MAX {
        spare.workers.push(worker);
    }
    Ok(decoded)
}

impl Drop for Compressed {
    fn drop(&mut self) {
        self.let_go(0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use larder_io::zstd_frames::Encoder;

    use super::*;

    const FRAMES: usize = 60;
    const DAMAGED: [usize; 2] = [0, 37];

    /// A segment of many frames, two of them damaged, and what it reads as.
    fn segment() -> (File, Vec<u8>) {
        let (mut encoder, mut list) = (Encoder::default(), FrameList::default());
        let (mut file, mut whole) = (tempfile::tempfile().unwrap(), Vec::new());
        let mut random = larder_testkit::random::Random(1);
        for number in 0..FRAMES {
            // The last one is shorter.
            let bytes = if number + 1 < FRAMES { CONTENT_BYTES } else { 1000 };
            let mut content = vec![number as u8 + 1; bytes];
            content[..bytes / 2].fill_with(|| random.below(256) as u8 | 1);
            let mut frame = Vec::new();
            encoder.frame(&content, &mut frame);
            list.push(frame.len(), content.len());
            if DAMAGED.contains(&number) {
                // Its checksum.
                *frame.last_mut().unwrap() ^= 1;
                content.fill(0);
            }
            file.write_all(&frame).unwrap();
            whole.extend(content);
        }
        file.write_all(&list.table()).unwrap();
        (file, whole)
    }

    /// Whatever is expected and then read, in any order, the bytes are those of the segment, and
    /// zeros where it is damaged.
    #[test]
    fn what_threads_decode_is_the_segment() {
        let (file, whole) = segment();
        let compressed = || Compressed::new(file.try_clone().unwrap()).unwrap();
        let mut random = larder_testkit::random::Random(2);
        for round in 0..30 {
            let mut source = Source::Compressed(Box::new(compressed()));
            if round % 3 == 0 {
                let all = source.whole(whole.len() as u64).unwrap();
                let at = all.bytes().iter().zip(&whole).position(|(a, b)| a != b);
                assert_eq!((all.bytes().len(), at), (whole.len(), None), "round {round}");
            }
            let share = 1 + random.below(5);
            let mut places: Vec<u64> = (0..whole.len() as u64 - 2000).step_by(17_000).collect();
            places.retain(|_| random.below(5) < share);
            source.expect(places.iter().copied(), 1024);
            for place in places {
                // Some of them longer than expected, some elsewhere, some not at all.
                let place = if random.below(20) == 0 { random.below(7_000_000) } else { place };
                let mut bytes = vec![1; 1 + random.below(200_000) as usize];
                if random.below(10) > 0 {
                    let read = source.read_at(&mut bytes, place).unwrap();
                    let right = &whole[place as usize..];
                    assert_eq!(read, bytes.len().min(right.len()));
                    assert!(bytes[..read] == right[..read], "round {round} at {place}");
                }
                let at_hand = source.at_hand(place).unwrap();
                assert!(!at_hand.is_empty() && whole[place as usize..].starts_with(at_hand));
            }
            let Source::Compressed(compressed) = &source else { panic!("it is compressed") };
            assert!(
                compressed.cached.len() < CACHED_MAX + 2 * BATCH,
                "{}",
                compressed.cached.len()
            );
        }
    }
}
