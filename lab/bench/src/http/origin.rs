//! The origin of all contestants: has every [`Resource`], and counts what it is asked.
//!
//! Bounds: it remembers `PATHS_MAX` paths, and begins again after that. Cost: a receive a request and a gathered
//! write for each [`PIECE_BYTES`] bytes.

use std::collections::HashMap;
use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::body::{Body, PIECE_BYTES, Resource, Way};
use super::serve::{Respond, Sent};

/// Paths that are remembered.
const PATHS_MAX: usize = 4096;
/// Bytes of a step of what is slow.
const STEP_BYTES: u64 = 64 << 10;

/// The requests that it received, by path.
#[derive(Debug, Clone, Default)]
pub struct Requests(Arc<Mutex<HashMap<String, Fetches>>>);

/// Requests for one path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetches {
    /// How many.
    pub count: u64,
    /// When the first byte of the first answer was about to leave.
    pub first_at: Option<Instant>,
}

impl Requests {
    /// How often, and since when.
    pub fn of(&self, path: &str) -> Fetches {
        let paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paths.get(path).copied().unwrap_or_default()
    }

    /// All requests that are remembered.
    pub fn all(&self) -> u64 {
        let paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paths.values().map(|fetches| fetches.count).sum()
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut Fetches)) {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.len() >= PATHS_MAX && !paths.contains_key(path) {
            paths.clear();
        }
        change(paths.entry(path.to_owned()).or_default());
    }
}

/// Answers requests.
#[derive(Debug, Default)]
pub struct Origin {
    /// The requests that it received.
    pub requests: Requests,
}

/// An answer under way.
#[derive(Debug)]
pub struct Answer {
    path: String,
    head: Vec<u8>,
    body: Body,
    bytes: u64,
    /// Bytes sent, the head among them.
    sent: u64,
    begun: Instant,
    takes: Duration,
}

/// The head of a response.
pub fn head(way: Way, bytes: u64) -> Vec<u8> {
    let keep = if way == Way::Pass { "no-store" } else { "max-age=3600" };
    // Without a date: the recipient takes the time at which it came (RFC 9110, 6.6.1).
    let text = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/byte-stream\r\nCache-Control: {keep}\r\n\
         Content-Length: {bytes}\r\n\r\n"
    );
    text.into_bytes()
}

impl Respond for Origin {
    type Answer = Answer;

    fn answer(&mut self, request: &[u8]) -> Option<Answer> {
        if !request.ends_with(b"\r\n\r\n") {
            return None;
        }
        let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let path = String::from_utf8_lossy(line.split(|byte| *byte == b' ').nth(1)?).into_owned();
        let resource = Resource::of_path(&path);
        let (head, body, bytes, takes_ms) = match resource {
            Some(resource) => (
                head(resource.way, resource.bytes),
                resource.body(),
                resource.bytes,
                resource.takes_ms,
            ),
            None => {
                let head = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
                (head, Resource { way: Way::Size, bytes: 0, number: 0, takes_ms: 0 }.body(), 0, 0)
            }
        };
        self.requests.change(&path, |fetches| fetches.count += 1);
        let (begun, takes) = (Instant::now(), Duration::from_millis(takes_ms));
        Some(Answer { path, head, body, bytes, sent: 0, begun, takes })
    }

    fn send(&mut self, answer: &mut Answer, stream: &TcpStream) -> io::Result<Sent> {
        let head_bytes = answer.head.len() as u64;
        loop {
            let at = answer.sent.saturating_sub(head_bytes);
            if at == answer.bytes && answer.sent >= head_bytes {
                return Ok(Sent::All);
            }
            let (may, next) = answer.allowed();
            if may == at && answer.sent >= head_bytes {
                return Ok(Sent::Until(next));
            }
            let head = &answer.head[(answer.sent.min(head_bytes)) as usize..];
            let piece = &answer.body.piece(at)[..(may - at).min(PIECE_BYTES as u64) as usize];
            let now = Instant::now();
            let sent = match (&*stream).write_vectored(&[IoSlice::new(head), IoSlice::new(piece)]) {
                Ok(sent) => sent as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Full),
                Err(error) => return Err(error),
            };
            if answer.sent <= head_bytes && answer.sent + sent > head_bytes {
                let note =
                    |fetches: &mut Fetches| fetches.first_at = fetches.first_at.or(Some(now));
                self.requests.change(&answer.path, note);
            }
            answer.sent += sent;
        }
    }
}

impl Answer {
    /// Bytes of the body that may have left by now, and when there will be more.
    fn allowed(&self) -> (u64, Instant) {
        let steps = self.bytes.div_ceil(STEP_BYTES).max(1);
        let each = self.takes.as_secs_f64() / steps as f64;
        if each == 0.0 {
            return (self.bytes, self.begun);
        }
        let done = (self.begun.elapsed().as_secs_f64() / each) as u64 + 1;
        let next = self.begun + Duration::from_secs_f64(each * done as f64);
        ((done * STEP_BYTES).min(self.bytes), next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::serve::while_serving;
    use std::io::Read;

    /// Over a real connection: every way is answered with the bytes of its resource, slow ones take their time and
    /// come in steps, requests in pieces are put together, and each path is counted.
    #[test]
    fn it_has_every_resource() {
        let mut origin = Origin::default();
        let requests = origin.requests.clone();
        while_serving(&mut origin, |address| {
            let mut stream = TcpStream::connect(address).unwrap();
            let begun = Instant::now();
            for path in ["/size/0", "/pass/10", "/size/3000000/1", "/slow/200000/2/40", "/no"] {
                for part in ["GET ", path, " HTTP/1.1\r\nHost: x\r\n", "\r\n"] {
                    stream.write_all(part.as_bytes()).unwrap();
                }
                let resource = Resource::of_path(path);
                let mut expected = match resource {
                    Some(resource) => head(resource.way, resource.bytes),
                    None => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
                };
                let head_bytes = expected.len();
                expected.resize(head_bytes + resource.map_or(0, |one| one.bytes as usize), 0);
                stream.read_exact(&mut expected).unwrap();
                assert!(resource.is_none_or(|one| one.body().has(0, &expected[head_bytes..])));
                assert_eq!(requests.of(path).count, 1);
                // It is noted when it has left.
                let has_body = resource.is_some_and(|one| one.bytes > 0);
                while has_body && requests.of(path).first_at.is_none() {
                    std::thread::yield_now();
                }
                assert_eq!(requests.of(path).first_at.is_some(), has_body, "{path}");
            }
            // Four steps in 40 ms: the last is sent after three of them.
            assert!(begun.elapsed() >= Duration::from_millis(30));
            assert_eq!(requests.all(), 5);
        });
    }
}
