//! A body on its way to a client.
//!
//! ```text
//! segments -> reader of the body -> leases -> pieces -> socket
//!             Later: the client is in `Deliveries` until more has come
//! ```
//!
//! Pieces are sent in order: bytes of larder itself (headers, sizes of chunks) and leases. One call
//! sends several. A lease of at least [`SENDFILE_BYTES_MIN`] of a stored body is sent by
//! `sendfile`, without a copy. Its pages stay with the socket when the lease is returned, which is
//! why such memory is given back to the kernel before it is used again (`larder_mem::object`). The
//! body of a response for one client is copied, so that its memory may be used again at once.
//!
//! A turn gives a client [`CALLS_MAX`] calls; then others get theirs. Bounds: [`GATHER_BYTES`]
//! leased beyond what the kernel took.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use larder_io::tcp;
use larder_mem::object::{Lease, Leased, Object, Reader, ReaderOptions};

use crate::answer::{Body, Segment, Trailers};
use crate::core::Content;
use crate::message::push_chunk_size;
use crate::parts::Part;

/// Shorter leases are copied: a call for each would cost more than the copy.
const SENDFILE_BYTES_MIN: usize = 16 << 10;
/// Bytes leased ahead of what the kernel takes.
const GATHER_BYTES: u64 = 2 << 20;
/// Pieces of one call.
const PIECES_MAX: usize = 32;
/// Calls for one client in a turn.
const CALLS_MAX: usize = 8;

/// A piece of what is sent.
#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    Lease(Lease),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Bytes(bytes) => bytes,
            Piece::Lease(lease) => lease.as_bytes(),
        }
    }
}

/// A body on its way.
#[derive(Debug)]
pub struct Delivery {
    object: Arc<Object>,
    segments: VecDeque<Segment>,
    reader: Option<Reader>,
    is_chunked: bool,
    /// Fields after the last chunk, for a client that accepts them.
    trailers: Option<Arc<Trailers>>,
    /// Where the body continues, if it does.
    part: Option<Arc<Part>>,
    /// The body is for one client: its memory is used again at once.
    is_private: bool,
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that were sent.
    sent: usize,
    /// Bytes of the body in pieces that were sent.
    body_bytes: u64,
    /// Leases before they are pieces.
    leases: Vec<Lease>,
    is_complete: bool,
}

/// What a look for more found.
enum More {
    Some,
    Later,
    Complete,
    Failed,
}

impl Delivery {
    pub(super) fn new(content: Content) -> Delivery {
        let Content { object, body, is_private, trailers, part } = content;
        let is_chunked = body == Body::Chunks;
        Delivery {
            object,
            segments: body.segments(),
            reader: None,
            is_chunked,
            trailers,
            part,
            is_private,
            pieces: VecDeque::new(),
            sent: 0,
            body_bytes: 0,
            leases: Vec::new(),
            is_complete: false,
        }
    }

    /// Sends these bytes first.
    pub(super) fn begin_with(&mut self, bytes: Vec<u8>) {
        self.pieces.push_front(Piece::Bytes(bytes));
    }

    /// Leases more of the body.
    fn look_for_more(&mut self, loop_number: u32, lease_bytes_max: u64) -> More {
        while let Some(segment) = self.segments.front_mut() {
            let range = match segment {
                Segment::Bytes(bytes) => {
                    self.pieces.push_back(Piece::Bytes(std::mem::take(bytes)));
                    self.segments.pop_front();
                    continue;
                }
                Segment::Body(range) => range.clone(),
            };
            let reader = match &mut self.reader {
                Some(reader) => reader,
                none => {
                    let options = ReaderOptions { loop_number, lease_bytes_max };
                    let Ok(reader) = self.object.open(range, options) else { return More::Failed };
                    none.insert(reader)
                }
            };
            match reader.lease(&mut self.leases, GATHER_BYTES) {
                Leased::Some { bytes, is_end } => {
                    self.take_leases(bytes);
                    if is_end {
                        self.end_segment();
                    }
                    return More::Some;
                }
                Leased::End => self.end_segment(),
                // What is leased is among the pieces.
                Leased::ReturnFirst if !self.pieces.is_empty() => return More::Some,
                Leased::Later | Leased::ReturnFirst => return More::Later,
                Leased::Failed(_) => return More::Failed,
            }
        }
        if !self.is_complete && self.is_chunked {
            let lines = self.trailers.as_ref().and_then(|it| it.get());
            let lines: &[u8] = lines.map_or(b"", |it| it);
            self.pieces.push_back(Piece::Bytes([b"0\r\n", lines, b"\r\n"].concat()));
        }
        self.is_complete = true;
        More::Complete
    }

    fn end_segment(&mut self) {
        self.reader = None;
        if let Some((object, part)) = self.part.as_ref().and_then(|part| part.next()) {
            // The same segment, in the next object. Its memory is used again at once, so the kernel
            // must not keep its pages.
            (self.object, self.part, self.is_private) = (object, Some(part), true);
            return;
        }
        self.segments.pop_front();
    }

    fn take_leases(&mut self, bytes: u64) {
        if self.is_chunked {
            let mut line = Vec::new();
            push_chunk_size(&mut line, bytes as usize);
            self.pieces.push_back(Piece::Bytes(line));
        }
        self.pieces.extend(self.leases.drain(..).map(Piece::Lease));
        if self.is_chunked {
            self.pieces.push_back(Piece::Bytes(b"\r\n".to_vec()));
        }
    }

    /// Removes what was sent from the pieces.
    fn advance(&mut self, mut bytes: usize) {
        bytes += self.sent;
        while let Some(first) = self.pieces.front() {
            let first_bytes = first.bytes().len();
            if bytes < first_bytes {
                break;
            }
            bytes -= first_bytes;
            if let Piece::Lease(_) = first {
                self.body_bytes += first_bytes as u64;
            }
            // This returns a lease.
            self.pieces.pop_front();
        }
        self.sent = bytes;
    }

    /// One call: bytes that the kernel took.
    fn send(&mut self, socket: &OwnedFd) -> io::Result<usize> {
        if let Some(Piece::Lease(lease)) = self.pieces.front()
            && !self.is_private
            && lease.as_bytes().len() - self.sent >= SENDFILE_BYTES_MIN
        {
            return lease.send(socket, self.sent);
        }
        let is_long = |piece: &Piece| match piece {
            Piece::Lease(lease) => !self.is_private && lease.as_bytes().len() >= SENDFILE_BYTES_MIN,
            Piece::Bytes(_) => false,
        };
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        for (at, piece) in self.pieces.iter().take(PIECES_MAX).enumerate() {
            // The first one has to be sent, if only the end of it is left.
            if at > 0 && is_long(piece) {
                break;
            }
            let from = if at == 0 { self.sent } else { 0 };
            slices[at] = IoSlice::new(&piece.bytes()[from..]);
            count += 1;
        }
        // Bytes that the next call sends go into the same packets.
        let more = count < self.pieces.len();
        tcp::write_gathered(socket, &slices[..count], more)
    }
}

/// How far a delivery came.
pub(super) enum Ran {
    /// All of it was taken.
    Complete,
    /// More of the body has to come: there will be a notice.
    Waits,
    /// The socket takes no more now.
    Blocked,
    /// It used up its share of the turn.
    Share,
    /// The body failed.
    Failed,
    /// The receiver is gone.
    Gone,
}

impl Delivery {
    /// Bytes of the body that were sent.
    pub(super) fn body_bytes(&self) -> u64 {
        let first = matches!(self.pieces.front(), Some(Piece::Lease(_)));
        self.body_bytes + if first { self.sent as u64 } else { 0 }
    }

    /// The body.
    pub(super) fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Sends what there is, as long as the socket takes it; bytes sent are added to `sent_bytes`.
    pub(super) fn run(
        &mut self,
        socket: &OwnedFd,
        loop_number: u32,
        lease_bytes_max: u64,
        sent_bytes: &mut u64,
    ) -> Ran {
        for _ in 0..CALLS_MAX {
            if self.pieces.len() < PIECES_MAX && !self.is_complete {
                match self.look_for_more(loop_number, lease_bytes_max) {
                    More::Failed => return Ran::Failed,
                    More::Later if self.pieces.is_empty() => return Ran::Waits,
                    More::Some | More::Later | More::Complete => {}
                }
            }
            if self.pieces.is_empty() {
                return Ran::Complete;
            }
            match self.send(socket) {
                Ok(bytes) => {
                    *sent_bytes += bytes as u64;
                    self.advance(bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ran::Blocked,
                Err(_) => return Ran::Gone,
            }
        }
        Ran::Share
    }
}
