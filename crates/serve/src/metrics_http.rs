//! `GET /metrics` over HTTP/1.0 and 1.1, in the supervisor's loop: what Prometheus needs, and no more.
//!
//! life of a client   leaves by
//! asks               a whole head: answered; too long a head, damage: refused; its end
//! is answered        the last octet sent: the connection is closed, whatever was asked
//!
//! Each of the two has [`Limits::stall_ms`] in all, whatever trickles in or out meanwhile. The head is read by
//! `httparse`; a body is not read at all. Nothing waits, and nothing is kept between requests.
//!
//! Bounds: [`Limits`]. Cost: one text an answer, some 20 kB, made when it is asked for. There is no TLS and no
//! password: listen at an address that only those reach who may know.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::nonblocking::retry;
use larder_io::event::{Event, Interest, Poller};
use larder_io::tcp::{self, ListenOptions};

/// Most clients that may be allowed.
pub const CLIENTS_MAX: usize = 64;

/// Tokens that an [`Endpoint`] uses, from the one it is given.
pub const TOKENS: u64 = 1 + CLIENTS_MAX as u64;

/// Header fields of a request at most.
const FIELDS_MAX: usize = 64;

/// Octets read at once.
const READ_BYTES: usize = 2 << 10;

/// How long no client is taken after the system had no descriptor for one.
const PAUSE_MS: u64 = 1_000;

/// What clients may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Clients at once, [`CLIENTS_MAX`] at most; others are closed.
    pub clients_max: usize,
    /// Octets of a request's head.
    pub head_bytes_max: usize,
    /// How long asking may take, and being answered, milliseconds each.
    pub stall_ms: u64,
}

impl Default for Limits {
    /// 8 clients, 8 KiB, 10 s.
    fn default() -> Limits {
        Limits { clients_max: 8, head_bytes_max: 8 << 10, stall_ms: 10_000 }
    }
}

/// The listener and its clients.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    limits: Limits,
    first_token: u64,
    clients: Vec<Option<Client>>,
    /// No client is taken before this time.
    paused_until_ms: Option<u64>,
}

#[derive(Debug)]
struct Client {
    socket: TcpStream,
    head: Vec<u8>,
    /// The answer, once there is one.
    answer: Option<Vec<u8>>,
    sent: usize,
    deadline_ms: u64,
}

impl Endpoint {
    /// Listens at `address`, and has `poller` watch it. Tokens from `first_token` on, [`TOKENS`] of them, are to be passed
    /// to [`Endpoint::handle`].
    pub fn open(
        address: SocketAddr,
        limits: Limits,
        poller: &Poller,
        first_token: u64,
    ) -> io::Result<Endpoint> {
        let options = ListenOptions { backlog: 16, ..ListenOptions::default() };
        let listener = tcp::listen(address, &options).map_err(|error| {
            let next = "name another address for the metrics, or stop who has it";
            io::Error::new(error.kind(), format!("{address}: {error}; {next}"))
        })?;
        poller.add(&listener, first_token, Interest::READ)?;
        let clients = (0..limits.clients_max.clamp(1, CLIENTS_MAX)).map(|_| None).collect();
        Ok(Endpoint { listener, limits, first_token, clients, paused_until_ms: None })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Does what an event asks for; `text` makes the metrics if somebody wants them.
    pub fn handle(
        &mut self,
        event: Event,
        poller: &Poller,
        now_ms: u64,
        text: impl FnOnce() -> String,
    ) {
        let Some(slot) = event.token.wrapping_sub(self.first_token).checked_sub(1) else {
            return self.accept(poller, now_ms);
        };
        let Some(place) = self.clients.get_mut(slot as usize) else { return };
        let Some(client) = place else { return };
        let is_kept = client.go_on(&self.limits, now_ms, text).unwrap_or(false)
            && (client.answer.is_none()
                || poller.modify(&client.socket, event.token, Interest::WRITE).is_ok());
        if !is_kept {
            *place = None;
        }
    }

    /// Milliseconds until [`Endpoint::expire`] has something to do; `None`: nothing.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        let due = self.clients.iter().flatten().map(|client| client.deadline_ms);
        due.chain(self.paused_until_ms).min().map(|first| first.saturating_sub(now_ms))
    }

    /// Drops clients that were too slow.
    pub fn expire(&mut self, poller: &Poller, now_ms: u64) {
        for place in &mut self.clients {
            if place.as_ref().is_some_and(|client| now_ms >= client.deadline_ms) {
                *place = None;
            }
        }
        if self.paused_until_ms.is_some_and(|until| now_ms >= until) {
            self.paused_until_ms = None;
            // It fails for a descriptor that is not watched; this one is.
            let _ = poller.modify(&self.listener, self.first_token, Interest::READ);
        }
    }

    fn accept(&mut self, poller: &Poller, now_ms: u64) {
        loop {
            match tcp::accept(&self.listener) {
                Ok(None) => return,
                Ok(Some((socket, _))) => {
                    let Some(slot) = self.clients.iter().position(Option::is_none) else {
                        continue;
                    };
                    let token = self.first_token + 1 + slot as u64;
                    if poller.add(&socket, token, Interest::READ).is_ok() {
                        let deadline_ms = now_ms + self.limits.stall_ms;
                        let (head, answer) = (Vec::new(), None);
                        let client = Client { socket, head, answer, sent: 0, deadline_ms };
                        self.clients[slot] = Some(client);
                    }
                }
                Err(_) => {
                    self.paused_until_ms = Some(now_ms + PAUSE_MS);
                    let _ = poller.modify(&self.listener, self.first_token, Interest::NONE);
                    return;
                }
            }
        }
    }
}

impl Client {
    /// Reads until there is a head, then sends the answer, as far as both go. False when it is over.
    fn go_on(
        &mut self,
        limits: &Limits,
        now_ms: u64,
        text: impl FnOnce() -> String,
    ) -> io::Result<bool> {
        if self.answer.is_none() {
            match self.receive(limits)? {
                Asked::Unknown => return Ok(true),
                Asked::Left => return Ok(false),
                Asked::For(what) => self.answer = Some(what.answer(text)),
            }
            self.deadline_ms = now_ms + limits.stall_ms;
        }
        let Some(answer) = &self.answer else { return Ok(true) };
        while self.sent < answer.len() {
            match retry(|| (&self.socket).write(&answer[self.sent..]))? {
                None => return Ok(true),
                Some(0) => return Ok(false),
                Some(count) => self.sent += count,
            }
        }
        // Octets that were not read would cost the client the end of its answer.
        let _ = retry(|| (&self.socket).read(&mut [0; READ_BYTES]));
        Ok(false)
    }

    fn receive(&mut self, limits: &Limits) -> io::Result<Asked> {
        loop {
            let start = self.head.len();
            let room = READ_BYTES.min(limits.head_bytes_max.saturating_sub(start));
            if room == 0 {
                return Ok(Asked::For(What::TooLong));
            }
            self.head.resize(start + room, 0);
            let read = retry(|| (&self.socket).read(&mut self.head[start..]));
            self.head.truncate(start + read.as_ref().map_or(0, |count| count.unwrap_or(0)));
            match read? {
                None => return Ok(Asked::Unknown),
                Some(0) => return Ok(Asked::Left),
                Some(_) => {}
            }
            if let Some(what) = What::read(&self.head) {
                return Ok(Asked::For(what));
            }
        }
    }
}

/// What is known of a request.
enum Asked {
    Unknown,
    Left,
    For(What),
}

/// What to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Metrics,
    Head,
    Elsewhere,
    OtherMethod,
    Damaged,
    TooLong,
}

impl What {
    /// Reads a head; `None` when it is not whole.
    fn read(head: &[u8]) -> Option<What> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(head) {
            Ok(httparse::Status::Partial) => return None,
            Ok(httparse::Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => return Some(What::TooLong),
            Err(_) => return Some(What::Damaged),
        }
        let path = request.path.unwrap_or_default();
        let is_ours = path.split('?').next() == Some("/metrics");
        Some(match request.method {
            Some("GET" | "HEAD") if !is_ours => What::Elsewhere,
            Some("GET") => What::Metrics,
            Some("HEAD") => What::Head,
            _ => What::OtherMethod,
        })
    }

    fn answer(self, text: impl FnOnce() -> String) -> Vec<u8> {
        let (status, body) = match self {
            What::Metrics => ("200 OK", text()),
            What::Head => ("200 OK", String::new()),
            What::Elsewhere => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
            What::OtherMethod => ("405 Method Not Allowed\r\nAllow: GET, HEAD", String::new()),
            What::Damaged => ("400 Bad Request", String::new()),
            What::TooLong => ("431 Request Header Fields Too Large", String::new()),
        };
        // The length of a body that HEAD leaves out may be left out as well (RFC 9110, section 8.6).
        let length = match self {
            What::Head => String::new(),
            _ => format!("Content-Length: {}\r\n", body.len()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n{length}\
             Connection: close\r\n\r\n"
        );
        (head + &body).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_io::event::Events;
    use std::time::{Duration, Instant};

    /// Turns of a loop until `is_done`; fails after a minute.
    fn turn(
        endpoint: &mut Endpoint,
        poller: &Poller,
        now_ms: u64,
        mut is_done: impl FnMut(&Endpoint) -> bool,
    ) {
        let (start, mut events) = (Instant::now(), Events::new(4));
        while !is_done(endpoint) {
            assert!(start.elapsed() < Duration::from_secs(60));
            poller.wait(&mut events, Some(10)).unwrap();
            for event in events.iter() {
                assert!((10..10 + TOKENS).contains(&event.token));
                endpoint.handle(event, poller, now_ms, || "larder_dns_x 1\n".repeat(100));
            }
            endpoint.expire(poller, now_ms);
        }
    }

    fn open(limits: Limits) -> (Endpoint, Poller) {
        let poller = Poller::new().unwrap();
        let endpoint = Endpoint::open("127.0.0.1:0".parse().unwrap(), limits, &poller, 10).unwrap();
        (endpoint, poller)
    }

    fn count(endpoint: &Endpoint) -> usize {
        endpoint.clients.iter().flatten().count()
    }

    /// What a client reads that writes `pieces` one after the other.
    fn ask(pieces: &[&[u8]]) -> String {
        let (mut endpoint, poller) = open(Limits::default());
        let mut client = TcpStream::connect(endpoint.address().unwrap()).unwrap();
        turn(&mut endpoint, &poller, 0, |endpoint| count(endpoint) == 1);
        for (number, piece) in pieces.iter().enumerate() {
            client.write_all(piece).unwrap();
            let bytes: usize = pieces[..=number].iter().map(|piece| piece.len()).sum();
            turn(&mut endpoint, &poller, 0, |endpoint| {
                endpoint.clients.iter().flatten().all(|client| client.head.len() == bytes)
            });
        }
        assert_eq!(count(&endpoint), 0, "it is closed after its answer");
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    /// Metrics are given to HTTP/1.0 and 1.1, in whatever pieces the request comes.
    #[test]
    fn metrics_are_given() {
        for pieces in [
            &[&b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n"[..]][..],
            &[b"GET /metrics?x=1 HTTP/1.0\r\n\r\n"],
            &[b"GET /metr", b"ics HTTP/1.1\r\nHost: a\r", b"\n\r\n"],
        ] {
            let text = ask(pieces);
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(head.contains("Content-Length: 1500\r\n"), "{head}");
            assert_eq!(body, "larder_dns_x 1\n".repeat(100));
        }
    }

    /// Whatever else is asked gets the answer that HTTP has for it.
    #[test]
    fn others_are_told() {
        let long = [b"GET /metrics HTTP/1.1\r\nA: ", &[b'a'; 8 << 10][..]].concat();
        let many = [b"GET / HTTP/1.1\r\n", &b"A: b\r\n".repeat(70)[..], b"\r\n"].concat();
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404 "),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405 "),
            (b"HEAD /metrics HTTP/1.1\r\n\r\n", "200 "),
            (b"\x16\x03\x01\r\n\r\n", "400 "),
            (&many, "431 "),
        ] {
            let text = ask(&[request]);
            assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
            assert_eq!(text.ends_with("\r\n\r\n"), status != "404 ", "{text}");
        }
        assert_eq!(What::read(&long[..1000]), None);
        let (mut endpoint, poller) = open(Limits::default());
        let mut client = TcpStream::connect(endpoint.address().unwrap()).unwrap();
        client.write_all(&long).unwrap();
        let mut was_there = false;
        turn(&mut endpoint, &poller, 0, |endpoint| {
            was_there |= count(endpoint) == 1;
            was_there && count(endpoint) == 0
        });
    }

    /// Who says nothing is dropped in time; more clients than allowed are closed.
    #[test]
    fn clients_are_bounded() {
        let (mut endpoint, poller) = open(Limits { clients_max: 1, ..Limits::default() });
        assert_eq!(endpoint.wait_ms(0), None);
        let address = endpoint.address().unwrap();
        let mut silent = TcpStream::connect(address).unwrap();
        turn(&mut endpoint, &poller, 5, |endpoint| count(endpoint) == 1);
        let mut surplus = TcpStream::connect(address).unwrap();
        surplus.set_nonblocking(true).unwrap();
        turn(&mut endpoint, &poller, 5, |_| matches!(surplus.read(&mut [0]), Ok(0)));
        assert_eq!((count(&endpoint), endpoint.wait_ms(5)), (1, Some(10_000)));
        turn(&mut endpoint, &poller, 10_005, |endpoint| count(endpoint) == 0);
        assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    }
}
