//! One client: what it asked, and what it has got of it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use larder_io::event::Interest;
use larder_io::tcp as transfer;
use larder_mem::object::{Lease, Leased, Object, Reader, ReaderOptions};

use super::request::{self, HEAD_BYTES_MAX, Read, Request, What};
use super::{Common, LEASE_BYTES_MAX};
use crate::shelf::{Content, Segment};

/// Readers here have a loop of their own; they are told by wakers.
const LOOP: u32 = 62;

/// Shorter leases are copied to the socket: pages that `sendfile` was shown have to be fresh when they are used again.
const COPY_BYTES: usize = 16 << 10;

/// A client gets so much, then others have their turn.
const TURN_BYTES: usize = 4 << 20;

/// Octets of a file that are one chunk, where a body is sent in chunks.
const CHUNK_BYTES: u64 = 1 << 20;

/// What to do with the client now.
pub enum Next {
    /// Wait for its socket; or, with nothing to wait for, for the writer.
    Wait(Interest),
    /// It is done with, or gone.
    Close,
}

/// See the module.
pub struct Client {
    /// Its socket.
    pub socket: OwnedFd,
    /// The address of ours that it has reached; `None`: it came by a Unix socket.
    local: Option<IpAddr>,
    /// What the poller watches.
    pub interest: Interest,
    /// When an octet was last taken by the socket, or came.
    pub progress_ms: u64,
    /// Octets received and not read.
    heard: Vec<u8>,
    /// Octets to send before the body goes on.
    said: Vec<u8>,
    said_at: usize,
    body: Option<Body>,
    /// It waits for the writer to publish.
    waits: bool,
    keeps: bool,
}

/// What is being sent.
struct Body {
    /// Each piece is a chunk of its own.
    in_chunks: bool,
    /// Segments go on after this one.
    is_live: bool,
    /// The one that is sent.
    number: u64,
    /// Where in it the body ends.
    end: u64,
    from: From,
}

enum From {
    /// Leases of an object, the first partly sent.
    Memory { reader: Reader, leases: VecDeque<Lease>, sent: usize },
    /// Octets of a file, and how many of them are the chunk that was begun.
    File { file: File, at: u64, end: u64, chunk: u64 },
    /// The live stream is at the end of a segment, and the next has not begun.
    Between,
    /// The segment was deleted meanwhile.
    Gone,
}

/// What a try to send came to.
enum Sent {
    /// The socket is full.
    Full,
    /// There is nothing yet.
    Later,
    /// So much of a turn was used up.
    Turn,
    /// All of it.
    End,
    /// It breaks off: the client must see that.
    Broken,
}

impl Client {
    /// A client that has not asked yet.
    pub fn new(socket: OwnedFd, local: Option<IpAddr>, now_ms: u64) -> Client {
        Client {
            socket,
            local,
            interest: Interest::READ,
            progress_ms: now_ms,
            heard: Vec::new(),
            said: Vec::new(),
            said_at: 0,
            body: None,
            waits: false,
            keeps: true,
        }
    }

    /// True while it has got all there is.
    pub fn waits_for_octets(&self) -> bool {
        self.waits
    }

    /// Goes on from the file, where the shelf wants the memory back: however slowly a client reads, it holds none that is wanted.
    pub fn leave_revoked(&mut self, common: &Common) {
        let Some(body) = &mut self.body else { return };
        let From::Memory { reader, leases, sent } = &mut body.from else { return };
        if !reader.object().is_revoked() {
            return;
        }
        let unsent = leases.iter().map(|lease| lease.len() as u64).sum::<u64>() - *sent as u64;
        let at = reader.position() - unsent;
        let found = common.shelf.get(body.number).and_then(|segment| open(&segment, at, body.end));
        body.from = match found {
            Some(From::File { file, at, end, .. }) => From::File { file, at, end, chunk: unsent },
            // It was deleted.
            _ => From::Gone,
        };
    }

    /// Goes on as far as it can be done without waiting.
    pub fn turn(&mut self, common: &Common, now_ms: u64) -> Next {
        self.go_on(common, now_ms).unwrap_or(Next::Close)
    }

    fn go_on(&mut self, common: &Common, now_ms: u64) -> io::Result<Next> {
        // Read in any case: one that only listens is gone when its end comes.
        if !self.hear(now_ms)? || (self.heard.len() >= HEAD_BYTES_MAX && self.body.is_some()) {
            return Ok(Next::Close);
        }
        let mut left = TURN_BYTES;
        loop {
            if self.body.is_none() && self.said_at == self.said.len() {
                if !self.keeps {
                    return Ok(Next::Close);
                }
                match request::read(&self.heard) {
                    Read::More => return Ok(Next::Wait(Interest::READ)),
                    Read::Refused(status) => {
                        self.keeps = false;
                        self.refuse(status, false);
                    }
                    Read::Request(request, bytes) => {
                        self.heard.drain(..bytes);
                        self.answer(&request, common);
                    }
                }
            }
            self.waits = false;
            match self.send(common, now_ms, &mut left)? {
                Sent::Full => return Ok(Next::Wait(Interest::BOTH)),
                // The poller says at once that it is writable: others have had their turn by then.
                Sent::Turn => return Ok(Next::Wait(Interest::BOTH)),
                Sent::Later => {
                    self.waits = true;
                    return Ok(Next::Wait(Interest::READ));
                }
                Sent::Broken => {
                    let _ = transfer::reset_on_close(&self.socket);
                    return Ok(Next::Close);
                }
                Sent::End => self.body = None,
            }
        }
    }

    /// Reads what has come; false at its end.
    fn hear(&mut self, now_ms: u64) -> io::Result<bool> {
        let mut octets = [0; 4 << 10];
        while self.heard.len() < HEAD_BYTES_MAX {
            match transfer::read_into(&self.socket, &mut octets) {
                Ok(0) => return Ok(false),
                Ok(bytes) => {
                    self.heard.extend_from_slice(&octets[..bytes]);
                    self.progress_ms = now_ms;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn say(&mut self, head: &str) {
        self.said.clear();
        self.said_at = 0;
        self.said.extend_from_slice(head.as_bytes());
    }

    /// `is_head`: the answer has no body.
    fn refuse(&mut self, status: u16, is_head: bool) {
        let (reason, next) = match status {
            401 => ("Unauthorized", "send the token: Authorization: Bearer TOKEN"),
            403 => ("Forbidden", "pages of other sites get no packets"),
            421 => (
                "Misdirected Request",
                "this host is not served here; --serve-hosts allows more names",
            ),
            404 => ("Not Found", "there are /segments, /segments/N.pcapng and /live.pcapng"),
            405 => ("Method Not Allowed", "ask with GET or HEAD"),
            416 => ("Range Not Satisfiable", "the segment ends before that"),
            431 => ("Request Header Fields Too Large", "ask with fewer fields"),
            503 => ("Service Unavailable", "nothing is kept yet; ask again"),
            _ => ("Bad Request", "ask as HTTP/1.1 has it"),
        };
        let connection = if self.keeps { "keep-alive" } else { "close" };
        let allow = match status {
            401 => "WWW-Authenticate: Bearer\r\n",
            405 => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        self.say(&format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nCache-Control: no-store\r\n{allow}Connection: {connection}\r\n\
             Content-Length: {}\r\n\r\n{}",
            next.len() + 1,
            if is_head { String::new() } else { format!("{next}\n") }
        ));
    }

    fn answer(&mut self, request: &Request, common: &Common) {
        self.keeps = request.keeps;
        let is_head = request.is_head;
        if let Err(status) = common.gate.judge(&request.claims, self.local) {
            common.counts.denied.fetch_add(1, Ordering::Relaxed);
            return self.refuse(status, is_head);
        }
        match request.what {
            What::Unknown => self.refuse(404, is_head),
            What::List => self.list(request, "text/plain; charset=utf-8", &list(common)),
            What::Json => self.list(request, "application/json", &json(common)),
            What::Segment(number) => match common.shelf.get(number) {
                Some(segment) => self.give(request, &segment, None, common),
                None => self.refuse(404, is_head),
            },
            What::Live => match common.shelf.last() {
                Some(segment) => self.give(request, &segment, Some(()), common),
                None => self.refuse(503, is_head),
            },
        }
    }

    fn list(&mut self, request: &Request, kind: &str, text: &str) {
        let connection = if self.keeps { "keep-alive" } else { "close" };
        let body = if request.is_head { "" } else { text };
        self.say(&format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nCache-Control: no-store\r\nConnection: {connection}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            text.len()
        ));
    }

    /// Begins to send a segment, or what comes after now.
    fn give(&mut self, request: &Request, segment: &Segment, live: Option<()>, common: &Common) {
        let is_live = live.is_some();
        // One that is closed has a length; of one that grows nobody knows it, unless a range says where to end.
        let whole = segment.is_closed.then_some(segment.bytes).filter(|_| !is_live);
        let range = request.range.filter(|_| whole.is_some());
        let (first, end) = match (whole, range) {
            (Some(bytes), Some(range)) => match request::within(range, bytes) {
                Some(found) => found,
                None => return self.refuse(416, request.is_head),
            },
            (Some(bytes), None) => (0, bytes),
            (None, _) => (0, u64::MAX),
        };
        let in_chunks = whole.is_none() && request.takes_chunks;
        self.keeps &= whole.is_some() || in_chunks;
        let mut head = String::from("HTTP/1.1 ");
        head += if range.is_some() { "206 Partial Content\r\n" } else { "200 OK\r\n" };
        head += "Content-Type: application/x-pcapng\r\nX-Content-Type-Options: nosniff\r\nAccept-Ranges: bytes\r\n";
        head += "Cross-Origin-Resource-Policy: same-origin\r\n";
        head += match whole {
            // A segment that is closed never changes, and its number is never used again. It is for this client alone.
            Some(_) => "Cache-Control: private, max-age=86400, immutable\r\n",
            None => "Cache-Control: no-store\r\n",
        };
        head += if self.keeps { "Connection: keep-alive\r\n" } else { "Connection: close\r\n" };
        match whole {
            Some(bytes) => {
                head += &format!("Content-Length: {}\r\n", end - first);
                if range.is_some() {
                    head += &format!("Content-Range: bytes {first}-{}/{bytes}\r\n", end - 1);
                }
            }
            None if in_chunks => head += "Transfer-Encoding: chunked\r\n",
            None => {}
        }
        head += "\r\n";
        self.say(&head);
        if request.is_head {
            return;
        }
        let said = &mut self.said;
        let mut begin = |segment: &Segment| match is_live {
            true => live_body(segment, in_chunks, said),
            false => open(segment, first, end).map(|from| Body {
                in_chunks,
                is_live: false,
                number: segment.number,
                end,
                from,
            }),
        };
        // Its memory may have been given away in this very moment: then it is in a file now.
        let body = begin(segment)
            .or_else(|| common.shelf.get(segment.number).and_then(|segment| begin(&segment)));
        match body {
            Some(body) => {
                common.counts.bodies.fetch_add(1, Ordering::Relaxed);
                self.body = Some(body);
            }
            // It was deleted.
            None => self.refuse(404, request.is_head),
        }
    }

    /// Sends what there is.
    fn send(&mut self, common: &Common, now_ms: u64, left: &mut usize) -> io::Result<Sent> {
        loop {
            while self.said_at < self.said.len() {
                match transfer::write(&self.socket, &self.said[self.said_at..]) {
                    Ok(bytes) => {
                        self.said_at += bytes;
                        self.progress_ms = now_ms;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Ok(Sent::Full);
                    }
                    Err(error) => return Err(error),
                }
            }
            let Some(body) = &mut self.body else { return Ok(Sent::End) };
            if *left == 0 {
                return Ok(Sent::Turn);
            }
            self.said.clear();
            self.said_at = 0;
            match body.step(&self.socket, common, &mut self.said)? {
                Step::Sent(bytes) => {
                    common.counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                    *left = left.saturating_sub(bytes);
                    self.progress_ms = now_ms;
                }
                Step::Said => {}
                Step::Full => return Ok(Sent::Full),
                Step::Later => return Ok(Sent::Later),
                Step::Broken => return Ok(Sent::Broken),
                Step::End => {
                    let in_chunks = body.in_chunks;
                    self.body = None;
                    // Only what is whole has a last chunk (invariant 1); `Broken` has none.
                    if in_chunks {
                        self.said.extend_from_slice(b"0\r\n\r\n");
                    }
                }
            }
        }
    }
}

/// What a body came to in one step.
enum Step {
    /// So many octets of it left.
    Sent(usize),
    /// There is something to say first: the frame of a chunk.
    Said,
    Full,
    Later,
    End,
    Broken,
}

/// Octets of a segment from `first` up to `end`; `None`: they are gone.
fn open(segment: &Segment, first: u64, end: u64) -> Option<From> {
    match &segment.content {
        Content::Memory(object) => lease_from(object, first, end),
        Content::File(path, bytes) => {
            // Of one that the disk refused the file has less than there was in memory.
            let file = File::open(path).ok().filter(|_| first <= *bytes)?;
            Some(From::File { file, at: first, end: end.min(*bytes), chunk: 0 })
        }
    }
}

fn lease_from(object: &Arc<Object>, first: u64, end: u64) -> Option<From> {
    let options = ReaderOptions { loop_number: LOOP, lease_bytes_max: LEASE_BYTES_MAX };
    let reader = object.open(first..end, options).ok()?;
    Some(From::Memory { reader, leases: VecDeque::new(), sent: 0 })
}

/// What comes after now: first the head of a section, since the stream begins in the middle of one.
fn live_body(segment: &Segment, in_chunks: bool, said: &mut Vec<u8>) -> Option<Body> {
    let number = segment.number;
    let body = |from| Body { in_chunks, is_live: true, number, end: u64::MAX, from };
    let Content::Memory(object) = &segment.content else { return Some(body(From::Between)) };
    // What is published ends with a block (invariant 2).
    let now = object.published();
    let header = &segment.header;
    if now < header.len() as u64 {
        return lease_from(object, 0, u64::MAX).map(body);
    }
    if in_chunks {
        said.extend_from_slice(format!("{:x}\r\n", header.len()).as_bytes());
    }
    said.extend_from_slice(header);
    if in_chunks {
        said.extend_from_slice(b"\r\n");
    }
    lease_from(object, now, u64::MAX).map(body)
}

impl Body {
    fn step(&mut self, socket: &OwnedFd, common: &Common, said: &mut Vec<u8>) -> io::Result<Step> {
        let full = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock => Ok(Step::Full),
            _ => Err(error),
        };
        match &mut self.from {
            From::Memory { reader, leases, sent } => {
                let Some(lease) = leases.front() else { return self.lease(common, said) };
                let octets = &lease.octets()[*sent..];
                let gone = if octets.len() < COPY_BYTES {
                    transfer::write(socket, octets)
                } else {
                    lease.send(socket, *sent)
                };
                let bytes = match gone {
                    Ok(bytes) => bytes,
                    Err(error) => return full(error),
                };
                *sent += bytes;
                if *sent == lease.len() {
                    *sent = 0;
                    reader.give_back(leases.pop_front());
                    if leases.is_empty() && self.in_chunks {
                        said.extend_from_slice(b"\r\n");
                    }
                }
                Ok(Step::Sent(bytes))
            }
            From::File { at, end, .. } if at == end => Ok(self.next_segment(common)),
            From::File { at, end, chunk, .. } if self.in_chunks && *chunk == 0 => {
                *chunk = (*end - *at).min(CHUNK_BYTES);
                said.extend_from_slice(format!("{:x}\r\n", *chunk).as_bytes());
                Ok(Step::Said)
            }
            From::File { file, at, end, chunk } => {
                let left = if self.in_chunks { *chunk } else { *end - *at };
                let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(1 << 30);
                match transfer::send_file(socket, file, *at, bytes) {
                    // It became shorter: somebody else has cut it.
                    Ok(0) => Ok(Step::Broken),
                    Ok(bytes) => {
                        *at += bytes as u64;
                        if self.in_chunks {
                            *chunk -= bytes as u64;
                            if *chunk == 0 {
                                said.extend_from_slice(b"\r\n");
                            }
                        }
                        Ok(Step::Sent(bytes))
                    }
                    Err(error) => full(error),
                }
            }
            From::Between => Ok(self.next_segment(common)),
            From::Gone => Ok(Step::Broken),
        }
    }

    /// Leases what comes next, and begins its chunk.
    fn lease(&mut self, common: &Common, said: &mut Vec<u8>) -> io::Result<Step> {
        let From::Memory { reader, leases, .. } = &mut self.from else { return Ok(Step::End) };
        let mut context = Context::from_waker(&common.waker);
        let mut out = Vec::new();
        let leased = reader.poll_lease(&mut context, &mut out, LEASE_BYTES_MAX);
        leases.extend(out);
        match leased {
            Poll::Pending | Poll::Ready(Leased::Later) => Ok(Step::Later),
            Poll::Ready(Leased::Some { bytes, .. }) => {
                if self.in_chunks {
                    said.extend_from_slice(format!("{bytes:x}\r\n").as_bytes());
                }
                Ok(Step::Said)
            }
            Poll::Ready(Leased::End) => Ok(self.next_segment(common)),
            // All leases were given back, so there is nothing to return first.
            Poll::Ready(Leased::ReturnFirst | Leased::Failed(_)) => Ok(Step::Broken),
        }
    }

    /// A segment is at its end: so is the body, unless it is live.
    fn next_segment(&mut self, common: &Common) -> Step {
        if !self.is_live {
            return Step::End;
        }
        match common.shelf.after(self.number) {
            // The shelf rings when there is one.
            None => {
                self.from = From::Between;
                Step::Later
            }
            Some(segment) => {
                let number = segment.number;
                // As at the start: its memory may have been given away in this very moment.
                let again = || common.shelf.get(number).and_then(|it| open(&it, 0, u64::MAX));
                match open(&segment, 0, u64::MAX).or_else(again) {
                    Some(from) => {
                        (self.number, self.from) = (number, from);
                        Step::Said
                    }
                    None => Step::Broken,
                }
            }
        }
    }
}

fn list(common: &Common) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for segment in common.shelf.list() {
        let state = if segment.is_closed { "closed" } else { "grows" };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "/segments/{:08}.pcapng {} octets {} packets {state}",
            segment.number, segment.bytes, segment.packets
        );
    }
    text += "/live.pcapng from now on\n";
    text
}

fn json(common: &Common) -> String {
    let time = |ns: Option<i64>| ns.map_or("null".to_owned(), |ns| ns.to_string());
    let rows: Vec<String> = common
        .shelf
        .list()
        .iter()
        .map(|segment| {
            format!(
                "{{\"number\":{},\"path\":\"/segments/{:08}.pcapng\",\"bytes\":{},\"packets\":{},\"first_ns\":{},\
                 \"last_ns\":{},\"is_closed\":{}}}",
                segment.number,
                segment.number,
                segment.bytes,
                segment.packets,
                time(segment.first_ns),
                time(segment.last_ns),
                segment.is_closed
            )
        })
        .collect();
    format!("[{}]\n", rows.join(",\n "))
}
