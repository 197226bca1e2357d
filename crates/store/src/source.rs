//! The bytes of a segment's file, compressed or not.
//!
//! Of a compressed segment, the frames that are needed are decoded, and the last ones that were used
//! are kept ([`CACHED_MAX`]). The content of a damaged frame reads as zeros, which are no block: a
//! walk skips them as it skips any damage, and packets in them are counted as damaged.
//!
//! A reader that knows which places it will read says so ([`Source::expect`]): then frames are decoded
//! ahead, some at a time, on all cores.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use larder_io::mapped::Mapped;
use larder_io::zstd_frames::{Decoder, FrameList};

use crate::files::{self, HEADER_BYTES_MAX, Identity, Kind};
use crate::options::SEGMENT_BYTES_MAX;

/// Decoded frames that are kept: a block may lie in two, and packets of a flow are near each other.
const CACHED_MAX: usize = 4;

/// Frames that are decoded ahead, at most, and threads that do it.
const AHEAD_MAX: usize = 32;
const THREADS_MAX: usize = 8;
/// Fewer frames are not worth a thread.
const OF_THREAD_MIN: usize = 8;

/// Decoders for the next segments: a new one costs more than a frame.
static DECODERS: Mutex<Vec<Decoder>> = Mutex::new(Vec::new());

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
        // The next one is at the end.
        expected.reverse();
        compressed.expected = expected;
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
                compressed.expected = (0..compressed.frames.frames().len()).rev().collect();
                let mut out = Vec::new();
                while (out.len() as u64) < bytes.min(compressed.bytes()) {
                    let (Ok(from) | Err(from)) = compressed.from(out.len() as u64)?;
                    out.extend_from_slice(from);
                }
                out.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
                Ok(Whole::Decoded(out))
            }
        }
    }
}

/// A compressed segment.
#[derive(Debug)]
pub(crate) struct Compressed {
    file: File,
    frames: FrameList,
    /// The last used first.
    cached: Vec<Cached>,
    /// Frames that will be used; the next one is the last.
    expected: Vec<usize>,
}

#[derive(Debug)]
struct Cached {
    frame: usize,
    content: Vec<u8>,
    is_damaged: bool,
}

impl Compressed {
    /// Reads the places of its frames.
    pub fn new(file: File) -> io::Result<Compressed> {
        let frames = FrameList::read(&file)?;
        let (cached, expected) = Default::default();
        Ok(Compressed { file, frames, cached, expected })
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
                let numbers = self.with_next(number);
                let decoded = decode_all(&self.file, &self.frames, &numbers)?;
                self.cached.truncate(CACHED_MAX - 1);
                self.cached.splice(..0, decoded);
            }
        }
        Ok(&self.cached[0])
    }

    /// This frame, and those that are expected after it.
    fn with_next(&mut self, number: usize) -> Vec<usize> {
        while self.expected.last().is_some_and(|expected| *expected < number) {
            self.expected.pop();
        }
        let mut numbers = vec![number];
        if self.expected.pop_if(|expected| *expected == number).is_some() {
            while numbers.len() < AHEAD_MAX
                && let Some(next) = self.expected.pop()
            {
                numbers.push(next);
            }
        }
        numbers
    }
}

/// Decodes frames, on several threads if they are many.
fn decode_all(file: &File, frames: &FrameList, numbers: &[usize]) -> io::Result<Vec<Cached>> {
    let threads = match numbers.len() / OF_THREAD_MIN {
        0 | 1 => 1,
        most => thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX).min(most),
    };
    let mut parts = numbers.chunks(numbers.len().div_ceil(threads));
    let own = parts.next().unwrap_or_default();
    thread::scope(|scope| {
        let others: Vec<_> = parts
            .map(|part| {
                (part, thread::Builder::new().spawn_scoped(scope, || decode(file, frames, part)))
            })
            .collect();
        let mut decoded = decode(file, frames, own)?;
        for (part, other) in others {
            // Without another thread this one does it.
            decoded.extend(match other.ok().and_then(|thread| thread.join().ok()) {
                Some(of_other) => of_other?,
                None => decode(file, frames, part)?,
            });
        }
        Ok(decoded)
    })
}

fn decode(file: &File, frames: &FrameList, numbers: &[usize]) -> io::Result<Vec<Cached>> {
    let pool = || DECODERS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut decoder = pool().pop().unwrap_or_default();
    let mut encoded = Vec::new();
    let mut decoded = Vec::with_capacity(numbers.len());
    for number in numbers {
        let frame = frames.frames()[*number];
        let content_bytes = frame.content_bytes as usize;
        let mut content = Vec::new();
        encoded.resize(frame.bytes as usize, 0);
        let is_damaged = match file.read_exact_at(&mut encoded, frame.start) {
            // Another program made the file shorter.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => true,
            Err(error) => return Err(error),
            Ok(()) => decoder.frame(&encoded, content_bytes, &mut content).is_err(),
        };
        content.resize(content_bytes, 0);
        decoded.push(Cached { frame: *number, content, is_damaged });
    }
    let mut pool = pool();
    if pool.len() < THREADS_MAX {
        pool.push(decoder);
    }
    Ok(decoded)
}
