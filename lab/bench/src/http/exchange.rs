//! One response after another on a connection: read, checked, and not kept.
//!
//! ```text
//! begin -> head -> body (by length) ------------------> done
//!              \-> size -> chunk -> ... -> trailer ---> done
//! ```
//!
//! Status, length and framing are checked in every response; bytes where `checks` is set, and otherwise as far as
//! they come with the head. The rest of a long body is discarded in the kernel (MSG_TRUNC of tcp(7)): a client that
//! copies is slower than a server that does not, and would be what is measured.
//!
//! Bounds: `HEAD_BYTES_MAX` of a head that comes in pieces. Cost: one receive a call.

use std::io::{self, Read};
use std::net::TcpStream;

use rustix::net::{RecvFlags, recv};

use super::body::Body;

/// Bytes that a receive may take of a head and what follows it.
const HEAD_ROOM_BYTES: usize = 64 << 10;
/// Bytes that a receive may compare or discard: the same, or clients that compare would lag behind.
const ROOM_BYTES: usize = 1 << 20;
/// What is left of a body and shorter is read, not discarded.
const DISCARD_FROM: u64 = 16 << 10;
/// Longest head, and longest line of a chunk's size.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// What a response is read into, one for all connections of a thread.
#[derive(Debug)]
pub struct Room {
    read: Box<[u8]>,
    /// Never written to, so that it takes no memory.
    discarded: Box<[u8]>,
}

impl Room {
    /// An empty one.
    pub fn new() -> Room {
        let room = |bytes| vec![0; bytes].into_boxed_slice();
        Room { read: room(ROOM_BYTES), discarded: room(ROOM_BYTES) }
    }
}

impl Default for Room {
    fn default() -> Room {
        Room::new()
    }
}

/// What is wrong with a response.
#[derive(Debug)]
pub enum Fault {
    /// The connection ended, or failed.
    Closed(io::Error),
    /// Another status than 200.
    Status(u16),
    /// More or fewer bytes than the resource has.
    Length,
    /// Other bytes.
    Bytes,
    /// No HTTP.
    Malformed,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Closed(error) => write!(f, "the connection ended: {error}"),
            Fault::Status(status) => write!(f, "status {status}"),
            Fault::Length => f.write_str("another length"),
            Fault::Bytes => f.write_str("other bytes"),
            Fault::Malformed => f.write_str("no HTTP"),
        }
    }
}

/// What a receive gave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Took {
    /// Bytes of the body.
    pub bytes: u64,
    /// The response is complete.
    pub is_done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// Bytes that are left of the body.
    Body(u64),
    Size,
    /// Bytes that are left of the chunk, its end of line among them.
    Chunk(u64),
    Trailer,
    Done,
}

/// Reads responses.
#[derive(Debug)]
pub struct Exchange {
    body: Body,
    bytes: u64,
    /// Whether all bytes are compared.
    pub checks: bool,
    /// Whether the server will close the connection after this response.
    pub closes: bool,
    state: State,
    /// Bytes of the body so far.
    at: u64,
    /// The beginning of a head or line.
    line: Vec<u8>,
}

impl Exchange {
    /// For responses with the first `bytes` bytes of `body`.
    pub fn new(body: Body, bytes: u64) -> Exchange {
        let (state, line) = (State::Done, Vec::new());
        Exchange { body, bytes, checks: false, closes: false, state, at: 0, line }
    }

    /// The next response is of this request.
    pub fn begin(&mut self) {
        (self.state, self.at, self.closes) = (State::Head, 0, false);
        self.line.clear();
    }

    /// Receives once.
    pub fn receive(&mut self, stream: &TcpStream, room: &mut Room) -> Result<Took, Fault> {
        let nothing = Took { bytes: 0, is_done: false };
        if let State::Body(left) = self.state
            && left >= DISCARD_FROM
            && !self.checks
        {
            let most = left.min(ROOM_BYTES as u64) as usize;
            return match recv(stream, &mut room.discarded[..most], RecvFlags::TRUNC) {
                Ok((_, 0)) => Err(Fault::Closed(io::ErrorKind::UnexpectedEof.into())),
                Ok((_, bytes)) => {
                    self.at += bytes as u64;
                    self.state = State::Body(left - bytes as u64);
                    self.finish();
                    Ok(Took { bytes: bytes as u64, is_done: self.state == State::Done })
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(nothing),
                Err(error) => Err(Fault::Closed(error.into())),
            };
        }
        let most = if self.checks { ROOM_BYTES } else { HEAD_ROOM_BYTES };
        let length = match (&*stream).read(&mut room.read[..most]) {
            Ok(0) => return Err(Fault::Closed(io::ErrorKind::UnexpectedEof.into())),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(nothing),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(nothing),
            Err(error) => return Err(Fault::Closed(error)),
        };
        let before = self.at;
        let mut bytes = &room.read[..length];
        while !bytes.is_empty() {
            bytes = self.take(bytes)?;
        }
        Ok(Took { bytes: self.at - before, is_done: self.state == State::Done })
    }

    /// Takes what belongs together, and gives the rest back.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Fault> {
        match self.state {
            State::Head => {
                let rest = match head_end(bytes).filter(|_| self.line.is_empty()) {
                    Some(end) => {
                        self.read_head(&bytes[..end])?;
                        &bytes[end..]
                    }
                    None => {
                        self.line.extend_from_slice(bytes);
                        let Some(end) = head_end(&self.line) else {
                            let is_long = self.line.len() > HEAD_BYTES_MAX;
                            return if is_long { Err(Fault::Malformed) } else { Ok(&[]) };
                        };
                        let line = std::mem::take(&mut self.line);
                        self.read_head(&line[..end])?;
                        &bytes[bytes.len() - (line.len() - end)..]
                    }
                };
                self.finish();
                Ok(rest)
            }
            State::Body(left) => {
                let (own, rest) = split(bytes, left);
                self.see(own)?;
                self.state = State::Body(left - own.len() as u64);
                self.finish();
                Ok(rest)
            }
            State::Size => {
                let Some(rest) = self.line(bytes)? else { return Ok(&[]) };
                let text = std::str::from_utf8(&self.line).unwrap_or_default();
                let digits = text.split(';').next().unwrap_or_default().trim();
                let size = u64::from_str_radix(digits, 16).map_err(|_| Fault::Malformed)?;
                self.state =
                    if size == 0 { State::Trailer } else { State::Chunk(size.saturating_add(2)) };
                self.line.clear();
                Ok(rest)
            }
            State::Chunk(left) => {
                let (own, rest) = split(bytes, left);
                let (data, _) = split(own, left.saturating_sub(2));
                self.see(data)?;
                let left = left - own.len() as u64;
                self.state = if left == 0 { State::Size } else { State::Chunk(left) };
                Ok(rest)
            }
            State::Trailer => {
                let Some(rest) = self.line(bytes)? else { return Ok(&[]) };
                if self.line.is_empty() {
                    if self.at != self.bytes {
                        return Err(Fault::Length);
                    }
                    self.state = State::Done;
                }
                self.line.clear();
                Ok(rest)
            }
            // Nothing else was asked for.
            State::Done => Err(Fault::Malformed),
        }
    }

    /// Collects a line without its end in `line`; what follows it, or `None` where it has not come yet.
    fn line<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, Fault> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        self.line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
        if self.line.len() > HEAD_BYTES_MAX {
            return Err(Fault::Malformed);
        }
        let Some(end) = end else { return Ok(None) };
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(Some(&bytes[end + 1..]))
    }

    fn read_head(&mut self, head: &[u8]) -> Result<(), Fault> {
        let text = std::str::from_utf8(head).map_err(|_| Fault::Malformed)?;
        let mut lines = text.split("\r\n");
        let status =
            lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok());
        match status {
            Some(200) => {}
            Some(status) => return Err(Fault::Status(status)),
            None => return Err(Fault::Malformed),
        }
        let mut state = None;
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                state = Some(State::Body(value.parse().map_err(|_| Fault::Malformed)?));
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                state = Some(State::Size);
            } else if name.eq_ignore_ascii_case("connection") {
                self.closes |= value.eq_ignore_ascii_case("close");
            }
        }
        self.state = state.ok_or(Fault::Malformed)?;
        match self.state {
            State::Body(bytes) if bytes != self.bytes => Err(Fault::Length),
            _ => Ok(()),
        }
    }

    /// Bytes of the body.
    fn see(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if self.at + bytes.len() as u64 > self.bytes {
            return Err(Fault::Length);
        }
        if !self.body.has(self.at, bytes) {
            return Err(Fault::Bytes);
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn finish(&mut self) {
        if self.state == State::Body(0) {
            self.state = State::Done;
        }
    }
}

fn split(bytes: &[u8], at: u64) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.len().min(usize::try_from(at).unwrap_or(usize::MAX)))
}

/// Where a head ends, with its empty line.
fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

#[cfg(test)]
mod tests;
