//! The body of a response: bytes of a segment, or of the growing one and those after it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use larder_io::tcp as transfer;
use larder_mem::object::{Lease, Leased, Object, Reader, ReaderOptions};
use larder_serve::http_server::Piece;

use super::LEASE_BYTES_MAX;
use crate::catalog::{Catalog, Content, Segment};
use crate::source::Compressed;

/// Readers here have an event loop number of their own; wakers wake them.
const LOOP: u32 = 62;

/// Shorter leases are copied to the socket: a page for `sendfile` must be fresh when it is used
/// again.
const COPY_BYTES: usize = 16 << 10;

/// Bytes of a file that one call sends, at most.
const SEND_BYTES_MAX: u64 = 1 << 30;

/// Tries to open a segment: its memory may be revoked, and its file compressed, between two looks.
pub const TRIES: usize = 4;

/// A body that is being sent.
pub struct Packets {
    /// Later segments follow this one.
    is_live: bool,
    /// The current segment.
    number: u64,
    /// End of the body in it.
    end: u64,
    from: From,
}

enum From {
    /// Leases of an object, the first partly sent.
    Memory { reader: Reader, leases: VecDeque<Lease>, sent: usize },
    /// Bytes of a file.
    File { file: File, at: u64, end: u64 },
    /// Content of a compressed file: one frame at a time is decoded, when the client has room for it.
    Compressed { compressed: Box<Compressed>, at: u64, end: u64 },
    /// The live stream is at the end of a segment, and the next has not begun.
    Between,
    /// There was no segment when the live stream began.
    Nothing,
    /// The segment was deleted meanwhile.
    Gone,
}

/// Bytes of a segment from `first` up to `end`; `None`: they are deleted.
fn open(segment: &Segment, first: u64, end: u64) -> Option<From> {
    match &segment.content {
        Content::Memory(object) => lease_from(object, first, end),
        Content::File(path, bytes) => {
            // After an error of the disk the file has less than there was in memory.
            let file = File::open(path).ok().filter(|_| first <= *bytes)?;
            Some(From::File { file, at: first, end: end.min(*bytes) })
        }
        Content::Compressed(path, _) => {
            let compressed = Box::new(Compressed::new(File::open(path).ok()?).ok()?);
            let bytes = compressed.bytes();
            (first <= bytes).then(|| From::Compressed {
                compressed,
                at: first,
                end: end.min(bytes),
            })
        }
    }
}

/// The same of the segment that the catalog has now. It may be in another file before that is
/// opened: then the catalog is asked again.
fn open_again(catalog: &Catalog, number: u64, first: u64, end: u64) -> Option<From> {
    (0..TRIES).find_map(|_| open(&catalog.get(number)?, first, end))
}

fn lease_from(object: &Arc<Object>, first: u64, end: u64) -> Option<From> {
    let options = ReaderOptions { loop_number: LOOP, lease_bytes_max: LEASE_BYTES_MAX };
    let reader = object.open(first..end, options).ok()?;
    Some(From::Memory { reader, leases: VecDeque::new(), sent: 0 })
}

impl Packets {
    /// Bytes of a segment from `first` up to `end`; `None`: they are deleted.
    pub fn of(segment: &Segment, first: u64, end: u64) -> Option<Packets> {
        let from = open(segment, first, end)?;
        Some(Packets { is_live: false, number: segment.number, end, from })
    }

    /// All bytes of the segments to come.
    pub fn from_the_first() -> Packets {
        Packets { is_live: true, number: 0, end: u64::MAX, from: From::Nothing }
    }

    /// All bytes from now on, and the bytes before them: the headers of a section, since the stream
    /// begins in the middle of one.
    pub fn live(segment: &Segment) -> Option<(Vec<u8>, Packets)> {
        let number = segment.number;
        let body = |from| Packets { is_live: true, number, end: u64::MAX, from };
        let Content::Memory(object) = &segment.content else {
            return Some((Vec::new(), body(From::Between)));
        };
        // Published bytes end with a block (invariant 2).
        let now = object.published();
        let header = &segment.header;
        let (first, start) = match now < header.len() as u64 {
            true => (Vec::new(), 0),
            false => (header.to_vec(), now),
        };
        lease_from(object, start, u64::MAX).map(|from| (first, body(from)))
    }

    /// Continues from the file if the catalog wants the memory back: a slow client holds no memory
    /// that is needed.
    pub fn leave_revoked(&mut self, catalog: &Catalog) {
        let From::Memory { reader, leases, sent } = &mut self.from else { return };
        if !reader.object().is_revoked() {
            return;
        }
        // The rest of this piece comes from the file as well.
        let unsent = leases.iter().map(|lease| lease.len() as u64).sum::<u64>() - *sent as u64;
        let at = reader.position() - unsent;
        self.from = match open_again(catalog, self.number, at, self.end) {
            Some(from @ (From::File { .. } | From::Compressed { .. })) => from,
            // It was deleted.
            _ => From::Gone,
        };
    }

    /// The next bytes, at most `bytes_max`.
    pub fn next(&mut self, catalog: &Catalog, waker: &Waker, bytes_max: u64) -> Piece {
        loop {
            let bytes = match &mut self.from {
                From::Memory { reader, leases, .. } => {
                    let mut context = Context::from_waker(waker);
                    let mut out = Vec::new();
                    let bytes_max = bytes_max.min(LEASE_BYTES_MAX);
                    let leased = reader.poll_lease(&mut context, &mut out, bytes_max);
                    leases.extend(out);
                    match leased {
                        Poll::Pending | Poll::Ready(Leased::Later) => return Piece::Later,
                        Poll::Ready(Leased::Some { bytes, .. }) => bytes,
                        Poll::Ready(Leased::End) => 0,
                        // All leases were returned, so there is nothing to return first.
                        Poll::Ready(Leased::ReturnFirst | Leased::Failed(_)) => {
                            return Piece::Broken;
                        }
                    }
                }
                From::File { at, end, .. } | From::Compressed { at, end, .. } => {
                    (*end - *at).min(bytes_max)
                }
                From::Between | From::Nothing => 0,
                From::Gone => return Piece::Broken,
            };
            if let Some(bytes) = NonZeroU64::new(bytes) {
                return Piece::Bytes(bytes);
            }
            // The segment is at its end, and so is the body, unless it is live.
            if !self.is_live {
                return Piece::End;
            }
            let next = match self.from {
                From::Nothing => catalog.first(),
                _ => catalog.after(self.number),
            };
            let Some(segment) = next else {
                // The catalog wakes the thread when there is one.
                if !matches!(self.from, From::Nothing) {
                    self.from = From::Between;
                }
                return Piece::Later;
            };
            let number = segment.number;
            // Its memory may have been revoked at this moment: then it is in a file.
            let again = || open_again(catalog, number, 0, u64::MAX);
            let Some(from) = open(&segment, 0, u64::MAX).or_else(again) else {
                return Piece::Broken;
            };
            (self.number, self.from) = (number, from);
        }
    }

    /// Sends from the piece, of which `bytes_left` are left.
    pub fn send(&mut self, socket: BorrowedFd<'_>, bytes_left: u64) -> io::Result<usize> {
        match &mut self.from {
            From::Memory { reader, leases, sent } => {
                let Some(lease) = leases.front() else { return Ok(0) };
                let unsent = &lease.as_bytes()[*sent..];
                let bytes = if unsent.len() < COPY_BYTES {
                    transfer::write(&socket, unsent)?
                } else {
                    lease.send(&socket, *sent)?
                };
                *sent += bytes;
                if *sent == lease.len() {
                    *sent = 0;
                    reader.give_back(leases.pop_front());
                }
                Ok(bytes)
            }
            From::File { file, at, end } => {
                let bytes = bytes_left.min(*end - *at).min(SEND_BYTES_MAX) as usize;
                // 0: the file became shorter, by another program.
                let bytes = transfer::send_file(&socket, file, *at, bytes)?;
                *at += bytes as u64;
                Ok(bytes)
            }
            From::Compressed { compressed, at, .. } => {
                // A damaged frame ends the connection, so that the client notices.
                let content = compressed.from(*at)?.map_err(|_| io::ErrorKind::InvalidData)?;
                let most = usize::try_from(bytes_left).unwrap_or(usize::MAX);
                let content = content.get(..most).unwrap_or(content);
                let bytes = transfer::write(&socket, content)?;
                *at += bytes as u64;
                Ok(bytes)
            }
            From::Between | From::Nothing | From::Gone => Ok(0),
        }
    }
}
