//! The limits: what a sender does that knows what is asked and does nothing else.
//!
//! ```text
//! send      one buffer with head and body: a receive, a send
//! write     a long body copied from memory, 256 KiB a call
//! sendfile  a long body from a file in memory, by the kernel, without a copy on this side
//! ```

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::net::TcpStream;

use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::net::{SendFlags, send};

use super::body::{PIECE_BYTES, Resource};
use super::origin::head;
use super::serve::{Respond, Sent};

/// Bytes that the kernel may send at once.
const SENDFILE_BYTES: usize = 2 << 20;

/// A way to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// One buffer.
    Send,
    /// A copy.
    Write,
    /// No copy.
    Sendfile,
}

impl Means {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Means::Send => "send",
            Means::Write => "write",
            Means::Sendfile => "sendfile",
        }
    }

    /// The limits of bodies of this length.
    pub fn of_bytes(bytes: u64) -> &'static [Means] {
        match bytes {
            0..=65_536 => &[Means::Send],
            _ => &[Means::Write, Means::Sendfile],
        }
    }
}

/// Sends one resource, whatever is asked.
#[derive(Debug)]
pub struct Ceiling {
    means: Means,
    resource: Resource,
    head: Vec<u8>,
    /// Head and body, where they are sent as one.
    buffer: Vec<u8>,
    file: Option<File>,
}

impl Ceiling {
    /// For one resource.
    pub fn new(means: Means, resource: Resource) -> io::Result<Ceiling> {
        let head = head(resource.way, resource.bytes);
        let mut buffer = Vec::new();
        let mut file = None;
        match means {
            Means::Send => {
                buffer.extend_from_slice(&head);
                write_body(&resource, &mut buffer)?;
            }
            Means::Write => {}
            Means::Sendfile => {
                let memory = memfd_create("larder-bench", MemfdFlags::CLOEXEC)?;
                let mut memory = File::from(memory);
                write_body(&resource, &mut memory)?;
                file = Some(memory);
            }
        }
        Ok(Ceiling { means, resource, head, buffer, file })
    }

    /// One call; how many bytes of head and body went, from `sent` on.
    fn step(&self, sent: u64, stream: &TcpStream) -> io::Result<usize> {
        let at = sent.saturating_sub(self.head.len() as u64);
        let head = &self.head[(sent as usize).min(self.head.len())..];
        match (&self.file, self.means) {
            (_, Means::Send) => (&*stream).write(&self.buffer[sent as usize..]),
            (Some(_), _) if !head.is_empty() => Ok(send(stream, head, SendFlags::MORE)?),
            (Some(file), _) => {
                let (mut at, left) = (at, self.resource.bytes - at);
                Ok(sendfile(stream, file, Some(&mut at), left.min(SENDFILE_BYTES as u64) as usize)?)
            }
            (None, _) => {
                let left = (self.resource.bytes - at).min(PIECE_BYTES as u64) as usize;
                let piece = &self.resource.body().piece(at)[..left];
                (&*stream).write_vectored(&[IoSlice::new(head), IoSlice::new(piece)])
            }
        }
    }
}

fn write_body(resource: &Resource, to: &mut impl Write) -> io::Result<()> {
    let mut at = 0;
    while at < resource.bytes {
        let left = (resource.bytes - at).min(PIECE_BYTES as u64) as usize;
        to.write_all(&resource.body().piece(at)[..left])?;
        at += left as u64;
    }
    Ok(())
}

impl Respond for Ceiling {
    /// Bytes that are sent.
    type Answer = u64;

    fn answer(&mut self, _request: &[u8]) -> Option<u64> {
        Some(0)
    }

    fn send(&mut self, sent: &mut u64, stream: &TcpStream) -> io::Result<Sent> {
        let all = self.head.len() as u64 + self.resource.bytes;
        while *sent < all {
            match self.step(*sent, stream) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => *sent += bytes as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Full),
                Err(error) => return Err(error),
            }
        }
        Ok(Sent::All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::load::Target;
    use crate::http::serve::while_serving;
    use std::time::Duration;

    /// Every limit sends the right bytes, short and long ones.
    #[test]
    fn limits_answer_rightly() {
        for path in ["/size/1024", "/size/65537", "/size/9000000"] {
            let resource = Resource::of_path(path).unwrap();
            for &means in Means::of_bytes(resource.bytes) {
                while_serving(&mut Ceiling::new(means, resource).unwrap(), |address| {
                    let result =
                        Target::of(address, resource).request_once(Duration::from_secs(60));
                    assert_eq!(result, Ok(()), "{path} {means:?}");
                });
            }
        }
        assert_eq!([1024, 9_000_000].map(|bytes| Means::of_bytes(bytes).len()), [1, 2]);
    }
}
