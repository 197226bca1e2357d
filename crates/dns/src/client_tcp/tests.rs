//! Real sockets over loopback, one thread, and a clock that the tests set. Each test polls for the
//! expected events a bounded number of times.

use super::*;
use larder_io::epoll::Events;
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

const SPACE: u8 = 7;
const LISTENER: u64 = 1;

/// Turns within which an expected event must happen; a turn without events waits a millisecond.
const TURNS_MAX: usize = 5_000;

/// What the caller does with a query.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// Sends the query back as the response.
    Echo,
    /// Responds with this many bytes, each the first byte of the query.
    Long(usize),
    /// Stores it in `received`.
    Keep,
}

/// A server's event loop.
struct Server {
    poller: Poller,
    events: Events,
    listener: TcpListener,
    streams: ClientTcp,
    now_ms: u64,
    manner: Manner,
    received: Vec<(StreamId, Vec<u8>)>,
}

impl Server {
    fn new(limits: Limits) -> Server {
        let poller = Poller::new().unwrap();
        let listener = tcp::listen("127.0.0.1:0".parse().unwrap(), &Default::default()).unwrap();
        poller.add(&listener, LISTENER, Interest::READ).unwrap();
        Server {
            poller,
            events: Events::new(64),
            listener,
            streams: ClientTcp::new(limits, SPACE),
            now_ms: 1_000,
            manner: Manner::Echo,
            received: Vec::new(),
        }
    }

    fn turn(&mut self) {
        let Server { poller, events, listener, streams, now_ms, manner, received } = self;
        let mut each = |streams: &mut ClientTcp, id, _: SocketAddr, message: &[u8]| match *manner {
            Manner::Keep => received.push((id, message.to_vec())),
            Manner::Echo => {
                streams.answer(id, message.len(), |room| {
                    room.copy_from_slice(message);
                    Some(message.len())
                });
            }
            Manner::Long(length) => {
                streams.answer(id, length, |room| {
                    room.fill(message[0]);
                    Some(length)
                });
            }
        };
        poller.wait(events, Some(1)).unwrap();
        for event in events.iter() {
            if streams.owns(event.token) {
                streams.ready(event, &mut each);
            } else {
                streams.accept(listener, poller, *now_ms).unwrap();
            }
        }
        streams.expire(*now_ms);
        streams.flush(poller, *now_ms, &mut each);
        streams.validate();
    }

    /// Runs turns until `done`.
    fn until(&mut self, mut done: impl FnMut(&mut Server) -> bool) {
        for _ in 0..TURNS_MAX {
            if done(self) {
                return;
            }
            self.turn();
        }
        panic!("what must come did not: {:?}", self.streams.counters());
    }

    /// Runs a few turns in which nothing relevant should happen.
    fn rest(&mut self) {
        (0..5).for_each(|_| self.turn());
    }

    /// A client at an address of this host, whose connection the server has accepted.
    fn client(&mut self, from: &str) -> Client {
        let opened = self.streams.counters.opened;
        let client = self.connect(from);
        self.until(|it| it.streams.counters.opened > opened);
        client
    }

    /// A client whose connection the server has not accepted yet.
    fn connect(&mut self, from: &str) -> Client {
        let local = Some(SocketAddr::new(from.parse().unwrap(), 0));
        let at = self.listener.local_addr().unwrap();
        let socket =
            tcp::connect(at, &tcp::ConnectOptions { local, ..Default::default() }).unwrap();
        // On loopback the connection is established when `connect` returns; if not, a write fails.
        Client { socket, got: Vec::new(), end: None }
    }

    fn answer(&mut self, id: StreamId, answer: &[u8]) -> bool {
        self.streams.answer(id, answer.len(), |room| {
            room.copy_from_slice(answer);
            Some(answer.len())
        })
    }

    fn closed(&self, cause: Cause) -> u64 {
        self.streams.counters.closed_by(cause)
    }

    fn is_listed(&self, list: usize) -> bool {
        self.streams.table.oldest(list).is_some()
    }
}

struct Client {
    socket: TcpStream,
    got: Vec<u8>,
    /// How the stream ended: the error's kind, or `None` for a plain end.
    end: Option<Option<ErrorKind>>,
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    fn read(&mut self) {
        let mut room = [0; 65_536];
        while self.end.is_none() {
            match self.socket.read(&mut room) {
                Ok(0) => self.end = Some(None),
                Ok(count) => self.got.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => self.end = Some(Some(error.kind())),
            }
        }
    }

    fn has_ended(&mut self) -> bool {
        self.read();
        self.end.is_some()
    }

    /// The complete messages received so far.
    fn messages(&mut self) -> Vec<Vec<u8>> {
        self.read();
        let (mut all, mut left) = (Vec::new(), &self.got[..]);
        while left.len() >= 2 {
            let end = 2 + usize::from(u16::from_be_bytes([left[0], left[1]]));
            if left.len() < end {
                break;
            }
            all.push(left[2..end].to_vec());
            left = &left[end..];
        }
        all
    }
}

/// Resets a connection.
fn reset(client: Client) {
    rustix::net::sockopt::set_socket_linger(&client.socket, Some(Duration::ZERO)).unwrap();
}

fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
    let (mut unsent, mut bytes) = (Unsent::default(), Vec::new());
    messages.iter().for_each(|message| unsent.push(message));
    unsent.send(&mut bytes).unwrap();
    bytes
}

/// `count` queries, all different.
fn queries(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|name| format!("question {name}").into_bytes()).collect()
}

/// The server responds to all queries written in one piece.
#[test]
fn pipelined() {
    let mut server = Server::new(Limits::default());
    let mut client = server.client("127.0.0.1");
    let sent = queries(100);
    client.send(&framed(&sent));
    server.until(|_| client.messages().len() == 100);
    assert_eq!(client.messages(), sent);
    let counters = server.streams.counters();
    assert_eq!((counters.queries, counters.answers), (100, 100));
    let bytes = client.got.len() as u64;
    assert_eq!((counters.bytes_in, counters.bytes_out), (bytes, bytes));
}

/// A query that arrives byte by byte is complete with its last byte, and so is the next one.
#[test]
fn byte_by_byte() {
    let mut server = Server::new(Limits::default());
    let mut client = server.client("127.0.0.1");
    let sent = queries(3);
    for byte in framed(&sent) {
        client.send(&[byte]);
        let bytes_in = server.streams.counters.bytes_in;
        server.until(|it| it.streams.counters.bytes_in > bytes_in);
    }
    server.until(|_| client.messages().len() == 3);
    assert_eq!(client.messages(), sent);
}

/// Each stream sends its responses in the order in which the caller gave them. Queries without a
/// response delay nothing, whether the caller drops them or writes nothing.
#[test]
fn any_order() {
    let mut server = Server::new(Limits::default());
    server.manner = Manner::Keep;
    let mut clients = [server.client("127.0.0.1"), server.client("127.0.0.1")];
    let sent = queries(10);
    clients.iter_mut().for_each(|client| client.send(&framed(&sent)));
    server.until(|it| it.received.len() == 20);
    for (id, query) in std::mem::take(&mut server.received).into_iter().rev() {
        match query.ends_with(b"3") {
            true => server.streams.drop_query(id),
            false if query.ends_with(b"4") => {
                assert!(!server.streams.answer(id, 9, |_| None));
            }
            false => assert!(server.answer(id, &query)),
        }
    }
    assert_eq!(server.streams.counters.bytes_out, 0, "invariant 1: `flush` sends them");
    let expected: Vec<Vec<u8>> =
        sent.into_iter().rev().filter(|it| !it.ends_with(b"3") && !it.ends_with(b"4")).collect();
    server.until(|_| clients.iter_mut().all(|client| client.messages() == expected));
    assert!(!server.is_listed(WAITING) && server.is_listed(IDLE));
}

/// A client that finishes sending after its queries still gets the responses. Its stream is closed
/// only after them.
#[test]
fn half_closed() {
    let mut server = Server::new(Limits::default());
    server.manner = Manner::Keep;
    let mut client = server.client("127.0.0.1");
    let sent = queries(3);
    client.send(&framed(&sent));
    client.socket.shutdown(Shutdown::Write).unwrap();
    server.until(|it| it.received.len() == 3);
    server.rest();
    for (id, query) in std::mem::take(&mut server.received) {
        assert!(!client.has_ended());
        assert!(server.answer(id, &query));
        server.turn();
    }
    server.until(|_| client.has_ended());
    assert_eq!((client.messages(), client.end), (sent, Some(None)));
    assert_eq!(server.closed(Cause::Finished), 1);
    assert!(server.streams.is_empty());
}

/// A stream has at most the allowed number of queries without a response. Each response admits the
/// next query, in the order of sending. The end of input takes effect after the last query.
#[test]
fn unanswered_are_bounded() {
    let mut server = Server::new(Limits { unanswered_max: 8, ..Limits::default() });
    server.manner = Manner::Keep;
    let mut client = server.client("127.0.0.1");
    let mut sent = queries(600);
    sent.iter_mut().for_each(|query| query.resize(80, b'.'));
    let bytes = framed(&sent);
    assert!(bytes.len() > 2 * READ_BYTES);
    client.send(&bytes);
    client.socket.shutdown(Shutdown::Write).unwrap();
    let mut answered = 0;
    while answered < sent.len() {
        let expected = (sent.len() - answered).min(8);
        server.until(|it| it.received.len() >= expected);
        assert_eq!(server.received.len(), expected);
        // Respond to several at once, as an event loop would.
        for (id, query) in
            server.received.drain(..expected.min(1 + answered % 5)).collect::<Vec<_>>()
        {
            assert_eq!(query, sent[answered]);
            assert!(server.answer(id, &query));
            answered += 1;
        }
        server.turn();
    }
    server.until(|_| client.has_ended());
    assert_eq!(client.messages(), sent);
    assert_eq!(server.closed(Cause::Finished), 1);
}

/// A client does not receive its responses. The server stops reading from it, stores at most the
/// limit for it, and resets it when its time is up. It serves other clients meanwhile.
#[test]
fn slow_reader() {
    let limits = Limits { stall_ms: 3_000, idle_ms: 60_000, ..Limits::default() };
    let mut server = Server::new(limits);
    server.manner = Manner::Long(60_000);
    let mut slow = server.client("127.0.0.1");
    let bytes = framed(&queries(10));
    server.until(|it| {
        // Once the server no longer reads, the client cannot write more.
        let _ = slow.socket.write(&bytes);
        it.is_listed(STALLED)
            && it
                .streams
                .table
                .ids()
                .any(|id| it.streams.table.get(id).unwrap().interest == Interest::WRITE)
    });
    let id = server.streams.table.oldest(STALLED).unwrap().0;
    let stream = server.streams.table.get(id).unwrap();
    assert!(stream.unsent.len() > 128 << 10 && stream.unsent.len() <= 256 << 10);
    server.manner = Manner::Echo;
    let mut quick = server.client("127.0.0.1");
    let sent = queries(5);
    quick.send(&framed(&sent));
    server.until(|_| quick.messages() == sent);
    // Not before its time: its time began when it stalled.
    server.now_ms += 2_999;
    server.rest();
    assert_eq!(
        (server.closed(Cause::SlowReader), server.streams.wait_ms(server.now_ms)),
        (0, Some(1))
    );
    server.now_ms += 1;
    server.rest();
    assert_eq!((server.closed(Cause::SlowReader), server.streams.len()), (1, 1));
    server.until(|_| slow.has_ended());
    assert_eq!(slow.end, Some(Some(ErrorKind::ConnectionReset)));
    quick.send(&framed(&sent));
    server.until(|_| quick.messages().len() == 10);
}

/// A client that receives a few bytes now and then does not prolong its time: it must receive
/// everything that was unsent when it stalled. The reset also discards the bytes that the kernel
/// stores for it.
#[test]
fn trickling_reader() {
    let mut server = Server::new(Limits { stall_ms: 3_000, ..Limits::default() });
    // A small buffer in the kernel: a larger one would take more at once than a stream may store.
    rustix::net::sockopt::set_socket_send_buffer_size(&server.listener, 8 << 10).unwrap();
    server.manner = Manner::Long(60_000);
    let mut client = server.client("127.0.0.1");
    rustix::net::sockopt::set_socket_recv_buffer_size(&client.socket, 8 << 10).unwrap();
    // One read takes it all: unread bytes would also cause a reset.
    client.send(&framed(&queries(400)));
    server.until(|it| it.is_listed(STALLED));
    server.rest();
    let before = server.streams.counters.bytes_out;
    let mut room = vec![0; 2_000];
    for _ in 0..3 {
        assert_eq!(server.streams.len(), 1);
        let bytes_out = server.streams.counters.bytes_out;
        server.until(|it| {
            let _ = client.socket.read(&mut room);
            it.streams.counters.bytes_out > bytes_out
        });
        server.now_ms += 1_000;
    }
    assert!(server.streams.counters.bytes_out < before + (128 << 10), "less than was unsent");
    server.turn();
    assert_eq!((server.closed(Cause::SlowReader), server.streams.len()), (1, 0));
    server.until(|_| client.has_ended());
    assert_eq!(client.end, Some(Some(ErrorKind::ConnectionReset)));
}

/// A slow client that receives its responses in time gets all of them. When there is room again,
/// the server processes delayed queries.
#[test]
fn late_reader() {
    let mut server = Server::new(Limits::default());
    server.manner = Manner::Long(60_000);
    let mut client = server.client("127.0.0.1");
    client.send(&framed(&queries(400)));
    server.until(|it| it.is_listed(STALLED));
    let before = server.streams.counters.answers;
    server.rest();
    assert!(before < 400);
    let mut took = 0;
    server.until(|_| {
        client.read();
        took += client.got.len();
        client.got.clear();
        took == 400 * 60_002
    });
    assert!(server.is_listed(IDLE) && !server.is_listed(STALLED));
    assert_eq!(server.streams.counters.bytes_out, 400 * 60_002);
}

/// The stream ends if responses to admitted queries exceed the unsent limit. They do not
/// accumulate.
#[test]
fn too_much_unsent() {
    let mut server = Server::new(Limits { unanswered_max: 2_000, ..Limits::default() });
    server.manner = Manner::Keep;
    let mut client = server.client("127.0.0.1");
    client.send(&framed(&queries(1_500)));
    server.until(|it| it.received.len() == 1_500);
    let ids: Vec<StreamId> = server.received.drain(..).map(|(id, _)| id).collect();
    let answered = ids.iter().take_while(|&&id| server.answer(id, &[1; 65_535])).count();
    assert!((2..1_500).contains(&answered), "{answered}");
    assert_eq!((server.closed(Cause::SlowReader), server.streams.len()), (1, 0));
    assert!(!server.answer(ids[0], b"late"));
    server.rest();
    server.until(|_| client.has_ended());
}

/// A query must be complete within its time, which single bytes do not prolong. A client that sends
/// complete queries slowly stays connected.
#[test]
fn slow_writer() {
    let mut server = Server::new(Limits { message_ms: 100, idle_ms: 10_000, ..Limits::default() });
    let (mut slow, mut steady) = (server.client("127.0.0.1"), server.client("127.0.0.1"));
    let bytes = framed(&queries(8));
    steady.send(&bytes[..1]);
    for step in 0..4 {
        assert!(!slow.has_ended());
        slow.send(&bytes[step..=step]);
        steady.send(&bytes[1 + 12 * step..13 + 12 * step]);
        let bytes_in = server.streams.counters.bytes_in;
        server.until(|it| it.streams.counters.bytes_in >= bytes_in + 13);
        server.now_ms += 30;
    }
    server.until(|_| slow.has_ended());
    server.rest();
    assert_eq!((server.closed(Cause::SlowWriter), server.streams.len()), (1, 1));
    assert_eq!(steady.messages().len(), 4);
    server.now_ms += 70;
    server.until(|_| steady.has_ended());
    assert_eq!(server.closed(Cause::SlowWriter), 2);
}

/// One client has at most `per_client_max` streams, and gets another when one closes. Other clients
/// are not affected.
#[test]
fn too_many_of_one_client() {
    let mut server = Server::new(Limits { per_client_max: 2, ..Limits::default() });
    let (first, _second) = (server.client("127.0.0.5"), server.client("127.0.0.5"));
    let mut third = server.connect("127.0.0.5");
    server.until(|_| third.has_ended());
    assert_eq!(server.streams.counters.refused_client, 1);
    let mut other = server.client("127.0.0.6");
    drop(first);
    server.until(|it| it.streams.len() == 2);
    let _fourth = server.client("127.0.0.5");
    other.send(&framed(&queries(1)));
    server.until(|_| other.messages().len() == 1);
}

/// In a full table a new stream replaces the one idle for longest, then one with an incomplete
/// query. If all streams wait for responses, the new one is refused.
#[test]
fn full_table() {
    let mut server = Server::new(Limits { streams_max: 3, ..Limits::default() });
    server.manner = Manner::Keep;
    let mut clients: Vec<Client> = (0..3).map(|_| server.client("127.0.0.1")).collect();
    // Only the second client sends nothing.
    clients[0].send(&framed(&queries(1)));
    clients[2].send(&[0]);
    server.until(|it| it.received.len() == 1 && it.is_listed(PARTIAL));
    clients.push(server.client("127.0.0.1"));
    server.until(|_| clients[1].has_ended());
    clients[3].send(&framed(&queries(1)));
    server.until(|it| it.received.len() == 2);
    clients.push(server.client("127.0.0.1"));
    server.until(|_| clients[2].has_ended());
    clients[4].send(&framed(&queries(1)));
    server.until(|it| it.received.len() == 3);
    assert_eq!((server.closed(Cause::Crowded), server.streams.counters.refused_full), (2, 0));
    let mut refused = server.connect("127.0.0.1");
    server.until(|_| refused.has_ended());
    assert_eq!((server.closed(Cause::Crowded), server.streams.counters.refused_full), (2, 1));
    for (id, query) in std::mem::take(&mut server.received) {
        assert!(server.answer(id, &query));
    }
    server.until(|_| [0, 3, 4].iter().all(|&at| clients[at].messages().len() == 1));
}

/// Idle streams are closed after their time, a query renews it, and `wait_ms` is exact.
#[test]
fn idle_streams_go() {
    let mut server = Server::new(Limits { idle_ms: 1_000, ..Limits::default() });
    assert_eq!(server.streams.wait_ms(server.now_ms), None);
    let (mut one, mut two) = (server.client("127.0.0.1"), server.client("127.0.0.1"));
    assert_eq!(server.streams.wait_ms(server.now_ms), Some(1_000));
    server.now_ms += 600;
    two.send(&framed(&queries(1)));
    server.until(|_| two.messages().len() == 1);
    server.now_ms += 399;
    assert_eq!(server.streams.wait_ms(server.now_ms), Some(1));
    server.rest();
    assert!(!one.has_ended());
    server.now_ms += 1;
    server.until(|_| one.has_ended());
    assert_eq!(server.streams.wait_ms(server.now_ms), Some(600));
    server.now_ms += 600;
    server.until(|_| two.has_ended());
    assert_eq!((server.closed(Cause::Idle), server.streams.len()), (2, 0));
}

/// Once the table is more than half full, idle streams are closed earlier, the oldest first. Only
/// as many are closed as necessary.
#[test]
fn crowded_tables_are_impatient() {
    let mut server = Server::new(Limits { idle_ms: 1_600, streams_max: 8, ..Limits::default() });
    let mut clients = Vec::new();
    let waits_ms: Vec<u64> = (0..8)
        .map(|_| {
            clients.push(server.client("127.0.0.1"));
            server.streams.wait_ms(server.now_ms).unwrap()
        })
        .collect();
    assert_eq!(waits_ms, [1_600, 1_600, 1_600, 1_600, 1_200, 800, 400, 100]);
    server.now_ms += 100;
    server.until(|it| it.streams.len() == 7);
    server.rest();
    assert!(clients[0].has_ended() && !clients[1].has_ended());
    assert_eq!((server.streams.len(), server.streams.wait_ms(server.now_ms)), (7, Some(300)));
}

/// A query of no bytes, or of too many, ends a stream. Earlier queries get their responses first;
/// later bytes are ignored.
#[test]
fn bad_lengths() {
    for bad in [vec![], vec![1; 513]] {
        let mut server = Server::new(Limits { message_bytes_max: 512, ..Limits::default() });
        server.manner = Manner::Keep;
        let mut client = server.client("127.0.0.1");
        let mut sent = queries(1);
        sent.push(vec![7; 512]);
        client.send(&framed(&[&sent[..], &[bad], &queries(4)[..]].concat()));
        server.until(|it| it.received.len() == 2);
        server.rest();
        assert_eq!((server.received.len(), server.streams.len()), (2, 1));
        for (id, query) in std::mem::take(&mut server.received) {
            assert!(server.answer(id, &query));
        }
        server.until(|_| client.has_ended());
        assert_eq!((client.messages(), client.end), (sent, Some(None)));
        assert_eq!(server.closed(Cause::BadLength), 1);
    }
}

/// A stream that is reset while queries wait is removed at once. Its ID and token then name
/// nothing, even after another stream has taken its slot.
#[test]
fn stale_names() {
    let mut server = Server::new(Limits { unanswered_max: 1, ..Limits::default() });
    server.manner = Manner::Keep;
    let mut client = server.client("127.0.0.1");
    client.send(&framed(&queries(2)));
    server.until(|it| it.received.len() == 1);
    let (old, _) = server.received.pop().unwrap();
    let token = server.streams.table.token(old.0);
    // It may not be read, so the poller reports its end only as an error.
    reset(client);
    server.until(|it| it.closed(Cause::Lost) == 1);
    let mut client = server.client("127.0.0.1");
    assert!(!server.answer(old, b"late"));
    server.streams.drop_query(old);
    server.streams.close(old);
    let stale = Event { token, readable: true, writable: true, closed: true };
    server.streams.ready(stale, |_, _, _, _| panic!("nothing is asked"));
    server.rest();
    assert_eq!((server.streams.len(), server.closed(Cause::Closed)), (1, 0));
    server.manner = Manner::Echo;
    client.send(&framed(&queries(2)));
    server.until(|_| client.messages().len() == 2);
    assert_eq!(server.closed(Cause::Lost), 1);
}

/// The callback may close streams and respond to other streams. A stream whose caller never
/// responds is closed.
#[test]
fn callers_close_and_forget() {
    let mut server = Server::new(Limits { answer_ms: 500, ..Limits::default() });
    server.manner = Manner::Keep;
    let (mut one, mut two) = (server.client("127.0.0.1"), server.client("127.0.0.1"));
    one.send(&framed(&queries(1)));
    server.until(|it| it.received.len() == 1);
    let (waiting, _) = server.received[0];
    two.send(&framed(&queries(3)));
    let mut seen = 0;
    for _ in 0..TURNS_MAX {
        server.poller.wait(&mut server.events, Some(2)).unwrap();
        for event in server.events.iter() {
            server.streams.ready(event, |streams, id, _, _| {
                seen += 1;
                streams.answer(waiting, 1, |room| {
                    room[0] = 9;
                    Some(1)
                });
                streams.close(id);
                streams.ready(event, |_, _, _, _| panic!("not from within"));
            });
        }
        if seen > 0 {
            break;
        }
    }
    server.until(|_| two.has_ended() && one.messages() == [[9]]);
    assert_eq!((seen, server.closed(Cause::Closed)), (1, 1));
    one.send(&framed(&queries(1)));
    server.until(|it| it.received.len() == 2);
    server.now_ms += 500;
    server.until(|_| one.has_ended());
    assert_eq!(server.closed(Cause::Unanswered), 1);
}

/// A graceful stop closes idle streams at once. Queries that were read get their responses, unread
/// ones never do, and no connection is accepted any more.
#[test]
fn drained() {
    let mut server = Server::new(Limits { unanswered_max: 4, ..Limits::default() });
    server.manner = Manner::Keep;
    let (mut busy, mut idle) = (server.client("127.0.0.1"), server.client("127.0.0.1"));
    let sent = queries(9);
    busy.send(&framed(&sent));
    server.until(|it| it.received.len() == 4);
    server.streams.drain();
    server.until(|_| idle.has_ended());
    let mut late = server.connect("127.0.0.1");
    server.until(|_| late.has_ended());
    busy.send(&framed(&sent));
    server.rest();
    assert_eq!((server.received.len(), server.streams.len()), (4, 1));
    for (id, query) in std::mem::take(&mut server.received) {
        assert!(server.answer(id, &query));
    }
    server.until(|_| busy.has_ended());
    assert_eq!((busy.messages(), busy.end), (sent[..4].to_vec(), Some(None)));
    assert_eq!((server.closed(Cause::Drained), server.streams.counters.refused_full), (2, 1));
    assert!(server.streams.is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Send { client: usize, bytes: usize },
    Finish { client: usize },
    Read { client: usize },
    Answer { which: usize, bytes: usize },
    Drop { which: usize },
    Turn,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop_oneof![1usize..4, 4usize..200, Just(2_000usize)];
    prop_oneof![
        6 => (0usize..3, bytes()).prop_map(|(client, bytes)| Step::Send { client, bytes }),
        1 => (0usize..3).prop_map(|client| Step::Finish { client }),
        2 => (0usize..3).prop_map(|client| Step::Read { client }),
        6 => (any::<usize>(), bytes()).prop_map(|(which, bytes)| Step::Answer { which, bytes }),
        1 => any::<usize>().prop_map(|which| Step::Drop { which }),
        6 => Just(Step::Turn),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Clients split their bytes and stop in any way, and the caller responds in any order. Queries
    /// come out whole and in order, and never too many at once. Each client gets its responses in
    /// the order in which the caller gave them.
    #[test]
    fn nothing_is_lost(steps in prop::collection::vec(step(), 1..150)) {
        let mut server = Server::new(Limits { unanswered_max: 3, ..Limits::default() });
        server.manner = Manner::Keep;
        let mut clients: Vec<Client> = (0..3).map(|_| server.client("127.0.0.1")).collect();
        let sent = queries(150);
        let stream = framed(&sent);
        let (mut written, mut finished) = ([0; 3], [false; 3]);
        // For each stream, the number of queries that arrived; and the responses it was given.
        let mut counts: Vec<(StreamId, usize)> = Vec::new();
        let mut open: Vec<(StreamId, Vec<u8>)> = Vec::new();
        let mut answers: HashMap<StreamId, Vec<Vec<u8>>> = HashMap::new();
        for step in steps.into_iter().chain((0..3).map(|client| Step::Finish { client })) {
            match step {
                Step::Send { client, bytes } if !finished[client] => {
                    let part = &stream[written[client]..][..bytes.min(stream.len() - written[client])];
                    clients[client].send(part);
                    written[client] += part.len();
                }
                Step::Finish { client } if !finished[client] => {
                    clients[client].socket.shutdown(Shutdown::Write).unwrap();
                    finished[client] = true;
                }
                Step::Read { client } => clients[client].read(),
                Step::Answer { which, bytes } if !open.is_empty() => {
                    let (id, mut answer) = open.swap_remove(which % open.len());
                    answer.resize(answer.len() + bytes, 0);
                    prop_assert!(server.answer(id, &answer));
                    answers.entry(id).or_default().push(answer);
                }
                Step::Drop { which } if !open.is_empty() => {
                    let (id, _) = open.swap_remove(which % open.len());
                    server.streams.drop_query(id);
                }
                _ => server.turn(),
            }
            for (id, query) in server.received.drain(..) {
                let at = counts.iter().position(|it| it.0 == id).unwrap_or_else(|| {
                    counts.push((id, 0));
                    counts.len() - 1
                });
                prop_assert_eq!(&query, &sent[counts[at].1]);
                counts[at].1 += 1;
                open.push((id, query));
                prop_assert!(open.iter().filter(|it| it.0 == id).count() <= 3);
            }
        }
        // The remaining queries get no responses, so all streams end.
        open.into_iter().for_each(|(id, _)| server.streams.drop_query(id));
        server.until(|it| {
            for (id, _) in it.received.drain(..) {
                it.streams.drop_query(id);
            }
            clients.iter_mut().for_each(Client::read);
            it.streams.is_empty() && clients.iter_mut().all(Client::has_ended)
        });
        let mut got: Vec<Vec<Vec<u8>>> = clients.iter_mut().map(Client::messages).collect();
        let mut expected: Vec<Vec<Vec<u8>>> = answers.into_values().collect();
        got.retain(|messages| !messages.is_empty());
        got.sort();
        expected.sort();
        prop_assert!(got == expected);
        let whole = |bytes: usize| {
            let mut ends = sent.iter().scan(0, |end, it| { *end += 2 + it.len(); Some(*end) });
            ends.position(|end| end > bytes).unwrap_or(sent.len())
        };
        let queries: usize = written.iter().map(|&bytes| whole(bytes)).sum();
        prop_assert_eq!(server.streams.counters().queries, queries as u64);
        prop_assert_eq!(server.closed(Cause::Finished), 3);
    }
}
