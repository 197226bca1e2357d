//! A response: the decision of a [`Respond`](super::Respond), and its framing.

use std::borrow::Cow;
use std::io::Write;
use std::num::NonZeroU64;

use super::request::Wishes;

/// A response.
#[derive(Debug)]
pub struct Response<B> {
    /// The status code.
    pub status: u16,
    /// Header fields, each with its end of line. The server adds those that frame the body.
    pub headers: Cow<'static, str>,
    /// The body.
    pub body: Body<B>,
    /// The connection is closed afterwards, whatever the client wishes.
    pub closes: bool,
}

/// The body of a response. The server does not send it for HEAD.
#[derive(Debug)]
pub enum Body<B> {
    /// These bytes.
    Bytes(Cow<'static, [u8]>),
    /// Made while it is sent.
    Stream {
        /// The first bytes.
        first: Vec<u8>,
        /// The bytes after those; `None` for HEAD.
        rest: Option<B>,
        /// The total number of bytes, where it is known. Otherwise the server sends chunks, or, to
        /// an HTTP/1.0 client, bytes up to the end of the connection.
        bytes: Option<u64>,
    },
    /// No body and no length: for HEAD, where it costs too much to find the length of a GET.
    UnknownLength,
}

/// The next piece of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// This many bytes.
    Bytes(NonZeroU64),
    /// Nothing yet: the server is woken when there are bytes.
    Later,
    /// Nothing more: the body is complete.
    End,
    /// The rest will never come.
    Broken,
}

/// A body that is being sent.
#[derive(Debug)]
pub struct Sending<B> {
    /// The source of its bytes.
    pub body: B,
    pub framing: Framing,
    /// Bytes left of the current piece.
    pub piece_left: u64,
}

/// How the client recognizes the end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Each piece is a chunk.
    Chunks,
    /// The headers state the length; this many bytes are left.
    Length(u64),
    /// The connection ends.
    ToEnd,
}

/// The phrases of status codes (RFC 9110, section 15).
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        416 => "Range Not Satisfiable",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "",
    }
}

/// Writes the headers of a response and the first bytes of its body to `out`. Returns the rest to
/// send, and whether the connection stays open.
pub fn begin<B>(
    response: Response<B>,
    wishes: Wishes,
    out: &mut Vec<u8>,
) -> (Option<Sending<B>>, bool) {
    let (first, rest, framing) = match response.body {
        Body::Bytes(bytes) => {
            let length = Framing::Length(bytes.len() as u64);
            (bytes, None, length)
        }
        Body::Stream { first, rest, bytes } => {
            let framing = match bytes {
                Some(bytes) => Framing::Length(bytes),
                None if wishes.takes_chunks => Framing::Chunks,
                None => Framing::ToEnd,
            };
            (first.into(), rest, framing)
        }
        Body::UnknownLength => (Cow::default(), None, Framing::ToEnd),
    };
    let keeps = wishes.keeps && !response.closes && framing != Framing::ToEnd;
    let connection = if keeps { "keep-alive" } else { "close" };
    let (status, headers) = (response.status, response.headers);
    // Writing to memory does not fail, here and below.
    let _ = write!(out, "HTTP/1.1 {status} {}\r\n{headers}", reason(status));
    let _ = match framing {
        Framing::Length(bytes) => write!(out, "Content-Length: {bytes}\r\n"),
        Framing::Chunks => write!(out, "Transfer-Encoding: chunked\r\n"),
        Framing::ToEnd => Ok(()),
    };
    let _ = write!(out, "Connection: {connection}\r\n\r\n");
    if wishes.is_head {
        return (None, keeps);
    }
    let mut sending = rest.map(|body| Sending { body, framing, piece_left: 0 });
    if !first.is_empty() {
        framing.begin_piece(first.len() as u64, out);
        out.extend_from_slice(&first);
        framing.end_piece(out);
    }
    match &mut sending {
        Some(sending) => sending.framing.sent(first.len() as u64),
        None => framing.end(out),
    }
    (sending, keeps)
}

impl Framing {
    /// The most bytes of a piece.
    pub fn piece_bytes_max(self) -> u64 {
        match self {
            Framing::Chunks => super::CHUNK_BYTES,
            Framing::Length(bytes) => bytes,
            Framing::ToEnd => u64::MAX,
        }
    }

    /// Writes the bytes before a piece of at least one byte.
    pub fn begin_piece(self, bytes: u64, out: &mut Vec<u8>) {
        if self == Framing::Chunks {
            let _ = write!(out, "{bytes:x}\r\n");
        }
    }

    /// Writes the bytes after a piece.
    pub fn end_piece(self, out: &mut Vec<u8>) {
        if self == Framing::Chunks {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Counts bytes that were sent.
    pub fn sent(&mut self, bytes: u64) {
        if let Framing::Length(left) = self {
            *left = left.saturating_sub(bytes);
        }
    }

    /// Writes the bytes after the last piece.
    pub fn end(self, out: &mut Vec<u8>) {
        if self == Framing::Chunks {
            out.extend_from_slice(b"0\r\n\r\n");
        }
    }
}
