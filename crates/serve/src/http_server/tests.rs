use super::*;
use larder_io::epoll::Events;
use larder_io::tcp::{self, ListenOptions};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

const FIRST_TOKEN: u64 = 7;
const BIG_BYTES: usize = 16 << 20;

/// A piece of a body that no socket takes eight times.
static LONG: [u8; 1 << 20] = [b'.'; 1 << 20];

/// Steps of a body that a script makes.
enum Act {
    Send(&'static [u8]),
    /// No bytes until [`Script::is_ready`].
    Later,
    Break,
}

/// Responds by path.
#[derive(Default)]
struct Script {
    is_ready: bool,
    patience_ms: u64,
    changes: Vec<Change>,
}

impl Respond for Script {
    type Body = VecDeque<Act>;

    fn respond(&mut self, request: &Request<'_>) -> Response<VecDeque<Act>> {
        use Act::*;
        let stream = |first: &[u8], bytes, acts: Vec<Act>| Body::Stream {
            first: first.to_vec(),
            rest: (!request.is_head).then(|| acts.into()),
            bytes,
        };
        let body = match request.path {
            "/text" => Body::Bytes(Cow::Borrowed(&b"text"[..])),
            "/big" => Body::Bytes(Cow::Owned(vec![b'.'; BIG_BYTES])),
            "/known" => stream(b"", Some(10), vec![Send(b"hello"), Send(b"world")]),
            "/chunks" => stream(b"first", None, vec![Send(b"a"), Send(b"0123456789")]),
            "/later" => stream(b"", None, vec![Send(b"a"), Later, Send(b"b")]),
            "/long" => stream(b"", None, (0..8).map(|_| Send(&LONG)).collect()),
            "/short" => stream(b"", Some(10), vec![Send(b"hello")]),
            "/broken" => stream(b"", None, vec![Send(b"hello"), Break]),
            _ => Body::UnknownLength,
        };
        Response { status: 200, headers: Cow::Borrowed("A: b\r\n"), body, closes: false }
    }

    fn refuse(&mut self, status: u16) -> Response<VecDeque<Act>> {
        let body = Body::Bytes(Cow::Borrowed(&b"no"[..]));
        Response { status, headers: Cow::default(), body, closes: true }
    }

    fn next(&mut self, body: &mut VecDeque<Act>, bytes_max: u64) -> Piece {
        if self.is_ready && matches!(body.front(), Some(Act::Later)) {
            body.pop_front();
        }
        match body.front() {
            Some(Act::Send(bytes)) => {
                assert!(bytes.len() as u64 <= bytes_max);
                Piece::Bytes(NonZeroU64::new(bytes.len() as u64).unwrap())
            }
            Some(Act::Later) => Piece::Later,
            Some(Act::Break) => Piece::Broken,
            None => Piece::End,
        }
    }

    fn send(
        &mut self,
        body: &mut VecDeque<Act>,
        socket: BorrowedFd<'_>,
        bytes_left: u64,
    ) -> io::Result<usize> {
        let Some(Act::Send(bytes)) = body.front_mut() else { panic!("nothing to send") };
        assert_eq!(bytes.len() as u64, bytes_left);
        // Pieces are sent in several parts.
        let sent = tcp::write(&socket, &bytes[..bytes.len().min(4)])?;
        *bytes = &bytes[sent..];
        if bytes.is_empty() {
            body.pop_front();
        }
        Ok(sent)
    }

    fn patience_ms(&self, _: &VecDeque<Act>) -> u64 {
        self.patience_ms
    }

    fn count(&mut self, change: Change) {
        self.changes.push(change);
    }
}

/// A server, its event loop, and a clock that does not move.
struct World {
    server: HttpServer<VecDeque<Act>>,
    poller: Poller,
    events: Events,
    script: Script,
    now_ms: u64,
}

impl World {
    fn new(mode: Mode, limits: Limits) -> World {
        let poller = Poller::new().unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::tcp(address, &ListenOptions::default(), "stop it").unwrap();
        let server = HttpServer::open(listener, limits, mode, &poller, FIRST_TOKEN).unwrap();
        let (events, script) = (Events::new(4), Script::default());
        World { server, poller, events, script, now_ms: 0 }
    }

    /// One turn of the event loop; returns how many events there were.
    fn turn(&mut self) -> usize {
        let count = self.poller.wait(&mut self.events, Some(10)).unwrap();
        for event in self.events.iter() {
            assert!(event.token >= FIRST_TOKEN);
            self.server.handle(event, &self.poller, self.now_ms, &mut self.script);
        }
        self.server.expire(&self.poller, self.now_ms, &mut self.script);
        count
    }

    /// Turns until `is_done`; fails after a minute.
    fn until(&mut self, mut is_done: impl FnMut(&mut World) -> bool) {
        let start = Instant::now();
        while !is_done(self) {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", self.server.received());
            self.turn();
        }
    }

    /// A connected client that has sent this request.
    fn client(&mut self, request: &str) -> TcpStream {
        let accepted = self.script.changes.len();
        let mut client = TcpStream::connect(self.server.address().unwrap()).unwrap();
        self.until(|world| world.script.changes.len() > accepted);
        client.set_nonblocking(true).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        client
    }

    /// The bytes that a client receives until `is_done`, or until its end; an error if the end is
    /// not a clean one.
    fn receive_until(
        &mut self,
        client: &mut TcpStream,
        is_done: impl Fn(&str) -> bool,
    ) -> Result<String, ErrorKind> {
        let (mut text, mut end) = (String::new(), Ok(()));
        let mut room = vec![0; 1 << 20];
        self.until(|_| match client.read(&mut room) {
            Ok(0) => true,
            Ok(bytes) => {
                text += std::str::from_utf8(&room[..bytes]).unwrap();
                is_done(&text)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => {
                end = Err(error.kind());
                true
            }
        });
        end.map(|()| text)
    }

    fn receive(&mut self, client: &mut TcpStream) -> Result<String, ErrorKind> {
        self.receive_until(client, |_| false)
    }

    fn exchange(&mut self, request: &str) -> Result<String, ErrorKind> {
        let mut client = self.client(request);
        self.receive(&mut client)
    }
}

fn keep_alive() -> World {
    World::new(Mode::KeepAlive, Limits::default())
}

fn one_request() -> World {
    World::new(Mode::OneRequest, Limits::default())
}

/// Requests that arrive together get responses one after the other, each with its framing, and HEAD
/// without a body: invariant 1.
#[test]
fn requests_are_answered_in_their_order() {
    let sent = "GET /chunks HTTP/1.1\r\n\r\nGET /text HTTP/1.1\r\n\r\nHEAD /known HTTP/1.1\r\n\r\n\
        HEAD /chunks HTTP/1.1\r\n\r\nGET /known HTTP/1.1\r\nConnection: close\r\n\r\n\
        GET /text HTTP/1.1\r\n\r\n";
    let head = "HTTP/1.1 200 OK\r\nA: b\r\n";
    let chunked = "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n";
    let expected = format!(
        "{head}{chunked}5\r\nfirst\r\n1\r\na\r\na\r\n0123456789\r\n0\r\n\r\n\
         {head}Content-Length: 4\r\nConnection: keep-alive\r\n\r\ntext\
         {head}Content-Length: 10\r\nConnection: keep-alive\r\n\r\n\
         {head}{chunked}\
         {head}Content-Length: 10\r\nConnection: close\r\n\r\nhelloworld"
    );
    let mut world = keep_alive();
    assert_eq!(world.exchange(sent), Ok(expected));
    assert!(world.server.is_idle());
    let old = world.exchange("GET /chunks HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(old, Ok(format!("{head}Connection: close\r\n\r\nfirsta0123456789")));
    // The other mode responds to the first, and closes.
    let text = format!("{head}Content-Length: 4\r\nConnection: close\r\n\r\ntext");
    assert_eq!(one_request().exchange(&"GET /text HTTP/1.1\r\n\r\n".repeat(3)), Ok(text));
}

/// A body that ends before its length, or breaks, gives the client an error with any framing:
/// invariant 2.
#[test]
fn a_cut_body_looks_cut() {
    for mut world in [keep_alive(), one_request()] {
        for path in ["/short", "/broken"] {
            for version in ["HTTP/1.0", "HTTP/1.1"] {
                let answer = world.exchange(&format!("GET {path} {version}\r\n\r\n"));
                assert_eq!(answer, Err(ErrorKind::ConnectionReset), "{path} {version}");
            }
        }
    }
}

/// Headers that are too long are refused, and the server holds no more than the limit of them. A
/// client that sends more than the limit during a response is closed: invariant 3.
#[test]
fn hostile_requests_are_bounded() {
    let limits = Limits { head_bytes_max: 3000, ..Limits::default() };
    for mode in [Mode::KeepAlive, Mode::OneRequest] {
        let mut world = World::new(mode, limits);
        let mut client = world.client(&format!("GET /text HTTP/1.1\r\nA: {}", "a".repeat(2900)));
        world.until(|world| world.server.received() == [2923]);
        client.write_all(&[b'a'; 77]).unwrap();
        let answer = world.receive(&mut client).unwrap();
        assert!(answer.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{answer}");
        assert!(answer.ends_with("\r\nConnection: close\r\n\r\nno"), "{answer}");

        let mut client = world.client(&"a".repeat(1 << 16));
        world.until(|world| {
            assert!(world.server.received().iter().all(|bytes| *bytes <= 3000));
            matches!(client.read(&mut [0; 1000]), Ok(0) | Err(_)) && world.server.is_idle()
        });
    }
    let mut world = World::new(Mode::KeepAlive, limits);
    let mut client = world.client("GET /later HTTP/1.1\r\n\r\n");
    world.receive_until(&mut client, |text| text.ends_with("\r\na\r\n")).unwrap();
    client.write_all(&[b'a'; 2999]).unwrap();
    world.until(|world| world.server.received() == [2999]);
    client.write_all(b"a").unwrap();
    world.until(|world| world.server.is_idle());
}

/// For a client that sends requests and receives nothing the server holds the limit of bytes. The
/// event loop sleeps until the client receives or is too slow: invariant 4.
#[test]
fn who_does_not_read_costs_no_turns() {
    let mut world = keep_alive();
    let mut client = world.client("GET /big HTTP/1.1\r\n\r\n");
    let request = "GET /text HTTP/1.1\r\n\r\n".repeat(4096);
    client.write_all(request.as_bytes()).unwrap();
    let mut quiet = 0;
    world.until(|world| {
        quiet = if world.turn() == 0 { quiet + 1 } else { 0 };
        quiet == 10
    });
    assert_eq!(world.server.received(), [8 << 10]);
    world.now_ms = 10_000;
    world.turn();
    assert!(world.server.is_idle());
    assert_eq!(world.script.changes, [Change::Accepted, Change::Stalled]);
}

/// A client of a body that gives more time is dropped that much later.
#[test]
fn bodies_may_give_time() {
    let mut world = keep_alive();
    world.script.patience_ms = 50_000;
    let _client = world.client("GET /long HTTP/1.1\r\n\r\n");
    let mut quiet = 0;
    world.until(|world| {
        quiet = if world.turn() == 0 { quiet + 1 } else { 0 };
        quiet == 10
    });
    world.now_ms = 59_999;
    world.turn();
    assert!(!world.server.is_idle());
    world.now_ms = 60_000;
    world.turn();
    assert!(world.server.is_idle());
    assert_eq!(world.script.changes, [Change::Accepted, Change::Stalled]);
}

/// A client can do nothing to get more time for a request. A client that has all bytes of a body so
/// far may wait, and its time begins again afterwards.
#[test]
fn slow_clients_are_dropped_in_time() {
    let dropped_ms = 10_000;
    for mode in [Mode::OneRequest, Mode::KeepAlive] {
        let mut world = World::new(mode, Limits::default());
        assert_eq!(world.server.wait_ms(0), None);
        let mut client = world.client("GET /text");
        world.until(|world| world.server.received() == [9]);
        world.now_ms = 6_000;
        client.write_all(b" ").unwrap();
        world.until(|world| world.server.received() == [10]);
        assert_eq!(world.server.wait_ms(6_000), Some(dropped_ms - 6_000));
        world.now_ms = dropped_ms - 1;
        world.turn();
        assert!(!world.server.is_idle());
        world.now_ms = dropped_ms;
        world.turn();
        assert!(world.server.is_idle());
        assert_eq!(world.script.changes, [Change::Accepted, Change::Stalled]);

        let mut client = world.client("GET /later HTTP/1.1\r\n\r\n");
        world.receive_until(&mut client, |text| text.ends_with("\r\na\r\n")).unwrap();
        assert_eq!(world.server.wait_ms(world.now_ms), None);
        world.now_ms += 1_000_000;
        world.turn();
        world.script.is_ready = true;
        world.server.wake(&world.poller, world.now_ms, &mut world.script);
        world.receive_until(&mut client, |text| text.ends_with("\r\nb\r\n0\r\n\r\n")).unwrap();
        assert_eq!(world.server.is_idle(), mode == Mode::OneRequest);
    }
}

/// More clients than allowed are closed, and counted.
#[test]
fn clients_are_bounded() {
    let limits = Limits { clients_max: 2, ..Limits::default() };
    let mut world = World::new(Mode::KeepAlive, limits);
    let _two = [world.client(""), world.client("")];
    assert_eq!(world.exchange(""), Ok(String::new()));
    assert_eq!(world.script.changes, [Change::Accepted, Change::Accepted, Change::Surplus]);
    assert_eq!(world.server.received(), [0, 0]);
}

/// A client that ends its side after its request gets the response, however long, and after several
/// requests all of them where the connection is kept. One that ends it while it waits for more of a body counts as
/// disconnected, and so does one that has sent a part of a request.
#[test]
fn ended_clients_leave() {
    for (mode, of_two) in [(Mode::OneRequest, 1), (Mode::KeepAlive, 2)] {
        let mut world = World::new(mode, Limits::default());
        let ended = |world: &mut World, request: &str| {
            let mut client = TcpStream::connect(world.server.address().unwrap()).unwrap();
            client.write_all(request.as_bytes()).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            client.set_nonblocking(true).unwrap();
            let answer = world.receive(&mut client).unwrap();
            assert!(world.server.is_idle());
            answer
        };
        let two = ended(&mut world, &"GET /text HTTP/1.1\r\n\r\n".repeat(2));
        assert_eq!(two.matches("\r\n\r\ntext").count(), of_two, "{two}");
        assert!(ended(&mut world, "GET /big HTTP/1.1\r\n\r\n").len() > BIG_BYTES);
        assert!(ended(&mut world, "GET /long HTTP/1.1\r\n\r\n").len() > 8 * LONG.len());
        assert_eq!(ended(&mut world, "GET /te"), "");

        let mut client = world.client("GET /later HTTP/1.1\r\n\r\n");
        world.receive_until(&mut client, |text| text.ends_with("\r\na\r\n")).unwrap();
        assert_eq!(world.server.bodies().count(), 1);
        // Bytes that were not read reset the connection.
        client.write_all(b"GET /").unwrap();
        drop(client);
        if mode == Mode::OneRequest {
            // Only the next bytes to send can find that: the server reads nothing meanwhile.
            world.script.is_ready = true;
            world.server.wake(&world.poller, world.now_ms, &mut world.script);
        }
        world.until(|world| world.server.is_idle());
    }
}

/// An event of a closed client does no harm to the client that has its slot: invariant 5.
#[test]
fn stale_events_do_nothing() {
    let mut world = keep_alive();
    let mut client = world.client("GET /te");
    world.until(|world| world.server.received() == [7]);
    for token in [FIRST_TOKEN + 1, FIRST_TOKEN + 2, FIRST_TOKEN + 1000] {
        let event = Event { token, readable: true, writable: true, closed: true };
        world.server.handle(event, &world.poller, 0, &mut world.script);
    }
    assert_eq!(world.server.received(), [7]);
    client.write_all(b"xt HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
    assert!(world.receive(&mut client).unwrap().ends_with("text"));
}
