//! `GET /metrics` over HTTP/1.0 and 1.1, in the supervisor's loop: what Prometheus needs, and no
//! more.
//!
//! The connections are those of [`http_server`](crate::http_server): one request each, and the
//! connection is closed after its response. Bounds: [`Limits`]. Cost: one text for a response, some
//! 20 kB, made for each request. There is no TLS and no password: listen at an address that only
//! trusted clients reach.

use std::borrow::Cow;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

pub use crate::http_server::Limits;
use crate::http_server::{Body, HttpServer, Listener, Mode, Piece, Request, Respond, Response};
use larder_io::epoll::{Event, Poller};
use larder_io::tcp::ListenOptions;

/// Most clients that may be allowed.
pub const CLIENTS_MAX: usize = 64;

/// Tokens that an [`Endpoint`] uses, from the one it is given.
pub const TOKENS: u64 = 1 + CLIENTS_MAX as u64;

/// The listener and its clients.
#[derive(Debug)]
pub struct Endpoint {
    server: HttpServer<Infallible>,
}

impl Endpoint {
    /// Listens at `address`, and adds the listener to `poller`. The caller passes events with the
    /// [`TOKENS`] tokens from `first_token` on to [`Endpoint::handle`]. At most [`CLIENTS_MAX`]
    /// clients are served at once.
    pub fn open(
        address: SocketAddr,
        limits: Limits,
        poller: &Poller,
        first_token: u64,
    ) -> io::Result<Endpoint> {
        let options = ListenOptions { backlog: 16, ..ListenOptions::default() };
        let next = "name another address for the metrics, or stop who has it";
        let listener = Listener::tcp(address, &options, next)?;
        let limits = Limits { clients_max: limits.clients_max.min(CLIENTS_MAX), ..limits };
        let server = HttpServer::open(listener, limits, Mode::OneRequest, poller, first_token)?;
        Ok(Endpoint { server })
    }

    /// The listener's address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.server.address()
    }

    /// Handles an event; `text` makes the metrics if a client requests them.
    pub fn handle(
        &mut self,
        event: Event,
        poller: &Poller,
        now_ms: u64,
        text: impl FnOnce() -> String,
    ) {
        self.server.handle(event, poller, now_ms, &mut Metrics(Some(text)));
    }

    /// Milliseconds until [`Endpoint::expire`] has something to do; `None`: nothing.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.server.wait_ms(now_ms)
    }

    /// Drops clients that were too slow.
    pub fn expire(&mut self, poller: &Poller, now_ms: u64) {
        self.server.expire(poller, now_ms, &mut Metrics(None::<fn() -> String>));
    }
}

/// Makes the metrics, once: an event is of one client, and a client sends one request.
struct Metrics<F>(Option<F>);

impl<F: FnOnce() -> String> Respond for Metrics<F> {
    /// All are texts.
    type Body = Infallible;

    fn respond(&mut self, request: &Request<'_>) -> Response<Infallible> {
        if request.path != "/metrics" {
            let text = b"the metrics are at /metrics\n";
            return response(404, Body::Bytes(Cow::Borrowed(text)));
        }
        // A response to HEAD may leave out the length as well (RFC 9110, section 8.6).
        if request.is_head {
            return response(200, Body::UnknownLength);
        }
        let text = self.0.take().map(|text| text()).unwrap_or_default();
        response(200, Body::Bytes(Cow::Owned(text.into_bytes())))
    }

    fn refuse(&mut self, status: u16) -> Response<Infallible> {
        response(status, Body::Bytes(Cow::default()))
    }

    fn next(&mut self, body: &mut Infallible, _bytes_max: u64) -> Piece {
        match *body {}
    }

    fn send(
        &mut self,
        body: &mut Infallible,
        _socket: BorrowedFd<'_>,
        _bytes_left: u64,
    ) -> io::Result<usize> {
        match *body {}
    }
}

fn response(status: u16, body: Body<Infallible>) -> Response<Infallible> {
    let headers = match status {
        405 => "Allow: GET, HEAD\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
        _ => "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
    };
    Response { status, headers: Cow::Borrowed(headers), body, closes: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_io::epoll::Events;
    use std::io::{Read, Write};
    use std::net::TcpStream;
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
        endpoint.server.received().len()
    }

    /// The bytes that a client receives after it has sent `pieces` one after the other.
    fn exchange(pieces: &[&[u8]]) -> String {
        let (mut endpoint, poller) = open(Limits::default());
        let mut client = TcpStream::connect(endpoint.address().unwrap()).unwrap();
        turn(&mut endpoint, &poller, 0, |endpoint| count(endpoint) == 1);
        for (number, piece) in pieces.iter().enumerate() {
            client.write_all(piece).unwrap();
            let bytes: usize = pieces[..=number].iter().map(|piece| piece.len()).sum();
            turn(&mut endpoint, &poller, 0, |endpoint| {
                endpoint.server.received().iter().all(|received| *received == bytes)
            });
        }
        assert_eq!(count(&endpoint), 0, "it is closed after its answer");
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    /// HTTP/1.0 and 1.1 clients get metrics, in whatever pieces the request comes.
    #[test]
    fn metrics_are_given() {
        for pieces in [
            &[&b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n"[..]][..],
            &[b"GET /metrics?x=1 HTTP/1.0\r\n\r\n"],
            &[b"GET /metr", b"ics HTTP/1.1\r\nHost: a\r", b"\n\r\n"],
        ] {
            let text = exchange(pieces);
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(head.contains("Content-Length: 1500\r\n"), "{head}");
            assert_eq!(body, "larder_dns_x 1\n".repeat(100));
        }
    }

    /// Any other request gets the status that HTTP has for it.
    #[test]
    fn others_are_reported() {
        let long = [b"GET /metrics HTTP/1.1\r\nA: ", &[b'a'; 8 << 10][..]].concat();
        let many = [b"GET / HTTP/1.1\r\n", &b"A: b\r\n".repeat(70)[..], b"\r\n"].concat();
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404 "),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405 "),
            (b"HEAD /metrics HTTP/1.1\r\n\r\n", "200 "),
            (b"\x16\x03\x01\r\n\r\n", "400 "),
            (&many, "431 "),
        ] {
            let text = exchange(&[request]);
            assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
            assert_eq!(text.ends_with("\r\n\r\n"), status != "404 ", "{text}");
        }
        let (mut endpoint, poller) = open(Limits::default());
        let mut client = TcpStream::connect(endpoint.address().unwrap()).unwrap();
        client.write_all(&long).unwrap();
        let mut was_there = false;
        turn(&mut endpoint, &poller, 0, |endpoint| {
            was_there |= count(endpoint) == 1;
            was_there && count(endpoint) == 0
        });
    }

    /// A client that sends nothing is dropped in time; clients above the limit are closed.
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
