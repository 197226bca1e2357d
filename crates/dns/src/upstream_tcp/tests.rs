//! Real sockets over loopback, one thread, and a clock that the tests set. Each test polls for the
//! expected events a bounded number of times.

use super::*;
use larder_io::epoll::Events;
use proptest::prelude::*;
use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener};

const SPACE: u8 = 9;

/// Turns within which an expected event must happen; a turn without events waits a millisecond.
const TURNS_MAX: usize = 5_000;

/// The event loop that sends queries.
struct Client {
    poller: Poller,
    events: Events,
    tcp: UpstreamTcp,
    now_ms: u64,
    /// The outcomes of queries: a response, or a failure.
    ended: Vec<(u64, Result<Vec<u8>, Failure>)>,
}

impl Client {
    fn new(limits: Limits) -> Client {
        Client {
            poller: Poller::new().unwrap(),
            events: Events::new(64),
            tcp: UpstreamTcp::new(limits, SPACE),
            now_ms: 1_000,
            ended: Vec::new(),
        }
    }

    fn query(&mut self, upstream: SocketAddr, tag: u64) -> Result<(), Refused> {
        self.tcp.query(upstream, None, tag, &query(tag, 20), &self.poller, self.now_ms)
    }

    fn turn(&mut self) {
        let Client { poller, events, tcp, now_ms, ended } = self;
        let now_ms = *now_ms;
        let mut each = |_: &mut UpstreamTcp, tag, outcome: Outcome<'_>| {
            let end = match outcome {
                Outcome::Answer(message) => Ok(message.to_vec()),
                Outcome::Failed(failure) => Err(failure),
            };
            ended.push((tag, end));
        };
        poller.wait(events, Some(1)).unwrap();
        for event in events.iter() {
            assert!(tcp.owns(event.token));
            tcp.ready(event, poller, now_ms, &mut each);
            tcp.validate();
        }
        tcp.expire(poller, now_ms, &mut each);
        tcp.flush(poller, now_ms, &mut each);
        tcp.validate();
        assert!(tcp.dirty.is_empty());
    }

    /// Runs turns until `done`.
    fn until(&mut self, mut done: impl FnMut(&mut Client) -> bool) {
        for _ in 0..TURNS_MAX {
            if done(self) {
                return;
            }
            self.turn();
        }
        panic!("what must come did not: {:?} {:?}", self.tcp.counters(), self.ended);
    }

    /// Runs a few turns in which nothing relevant should happen.
    fn rest(&mut self) {
        (0..5).for_each(|_| self.turn());
    }

    /// The outcomes since the last call, by tag.
    fn take(&mut self) -> Vec<(u64, Result<Vec<u8>, Failure>)> {
        let mut ended = std::mem::take(&mut self.ended);
        ended.sort_by_key(|end| end.0);
        ended
    }

    /// Checks that `count` queries ended since the last call, all with this failure.
    fn failed(&mut self, failure: Failure, count: usize) {
        let ended = self.take();
        assert!(ended.iter().all(|end| end.1 == Err(failure)), "{ended:?}");
        assert_eq!(ended.len(), count);
    }

    /// Checks that all queries that ended since the last call got their own responses, and returns
    /// their tags.
    fn answered(&mut self) -> Vec<u64> {
        let ended = self.take();
        ended
            .iter()
            .map(|(tag, end)| {
                let answer = end.as_ref().unwrap();
                assert_eq!(answer[2..], query(*tag, answer.len())[2..]);
                *tag
            })
            .collect()
    }
}

/// A message of `length` bytes that contains its tag.
fn query(tag: u64, length: usize) -> Vec<u8> {
    let mut message = vec![0; length];
    message[12..20].copy_from_slice(&tag.to_be_bytes());
    message
}

fn tag_of(message: &[u8]) -> u64 {
    u64::from_be_bytes(message[12..20].try_into().unwrap())
}

/// An upstream that does what a test tells it to.
struct Upstream {
    listener: TcpListener,
    peers: Vec<Peer>,
}

struct Peer {
    socket: TcpStream,
    from: SocketAddr,
    bytes: Vec<u8>,
    has_ended: bool,
}

impl Upstream {
    fn new() -> Upstream {
        let listener = tcp::listen("127.0.0.1:0".parse().unwrap(), &Default::default()).unwrap();
        Upstream { listener, peers: Vec::new() }
    }

    fn at(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Accepts waiting connections and reads what arrived.
    fn pump(&mut self) -> &mut Upstream {
        while let Some((socket, from)) = tcp::accept(&self.listener).unwrap() {
            self.peers.push(Peer { socket, from, bytes: Vec::new(), has_ended: false });
        }
        let mut room = [0; 65_536];
        for peer in &mut self.peers {
            while !peer.has_ended {
                match peer.socket.read(&mut room) {
                    Ok(0) => peer.has_ended = true,
                    Ok(count) => peer.bytes.extend_from_slice(&room[..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => peer.has_ended = true,
                }
            }
        }
        self
    }

    /// The number of complete queries of a connection that the test has not taken yet.
    fn count(&mut self, peer: usize) -> usize {
        let (mut count, Some(peer)) = (0, self.pump().peers.get(peer)) else { return 0 };
        let mut left = &peer.bytes[..];
        while let Some((length, rest)) = left.split_first_chunk::<2>() {
            let Some(rest) = rest.get(usize::from(u16::from_be_bytes(*length))..) else { break };
            (left, count) = (rest, count + 1);
        }
        count
    }

    /// Takes the complete queries of a connection.
    fn take(&mut self, peer: usize) -> Vec<Vec<u8>> {
        let count = self.count(peer);
        let bytes = &mut self.peers[peer].bytes;
        (0..count)
            .map(|_| {
                let end = 2 + usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
                bytes.drain(..end).skip(2).collect()
            })
            .collect()
    }

    fn send(&mut self, peer: usize, messages: &[Vec<u8>]) {
        let mut unsent = Unsent::default();
        messages.iter().for_each(|message| unsent.push(message));
        let mut bytes = Vec::new();
        unsent.send(&mut bytes).unwrap();
        self.peers[peer].socket.write_all(&bytes).unwrap();
    }
}

/// Queries to an upstream share a connection with distinct IDs. Each gets its own response,
/// although the responses arrive in reverse order. The connection is reused.
#[test]
fn pipelined_and_reused() {
    // With so many queries, some almost certainly draw an ID in use.
    const COUNT: usize = 3_000;
    let limits = Limits { in_flight_max: COUNT, unsent_bytes_max: 1 << 20, ..Limits::default() };
    let (mut client, mut upstream) = (Client::new(limits), Upstream::new());
    for round in 0..2 {
        for tag in 0..COUNT as u64 {
            client.query(upstream.at(), tag).unwrap();
        }
        assert_eq!(client.tcp.in_flight(), COUNT);
        client.until(|_| upstream.count(0) == COUNT);
        let mut received = upstream.take(0);
        let names: HashSet<[u8; 2]> = received.iter().map(|it| [it[0], it[1]]).collect();
        assert_eq!(names.len(), COUNT);
        received.reverse();
        upstream.send(0, &received);
        client.until(|it| it.ended.len() == COUNT);
        assert_eq!(client.ended[0].0, COUNT as u64 - 1, "as they came");
        assert_eq!(client.answered(), (0..COUNT as u64).collect::<Vec<u64>>());
        let counters = client.tcp.counters();
        assert_eq!((counters.opened, counters.reused), (1, (COUNT * round + COUNT - 1) as u64));
    }
    assert_eq!((client.tcp.in_flight(), client.tcp.len()), (0, 1));
}

/// Responses of all sizes, in small pieces.
#[test]
fn chopped_answers() {
    let (mut client, mut upstream) = (Client::new(Limits::default()), Upstream::new());
    for (tag, length) in [(1, 20), (2, 300), (3, 65_535)] {
        client.query(upstream.at(), tag).unwrap();
        client.until(|_| upstream.count(0) == 1);
        let mut answer = upstream.take(0).remove(0);
        answer.resize(length, 0);
        let bytes = [&(length as u16).to_be_bytes()[..], &answer].concat();
        for part in bytes.chunks(1 + length / 40) {
            upstream.peers[0].socket.write_all(part).unwrap();
            let bytes_in = client.tcp.counters().bytes_in;
            client.until(|it| it.tcp.counters().bytes_in > bytes_in);
        }
        client.until(|it| it.ended.len() == 1);
        assert_eq!(client.ended[0].1.as_ref().unwrap().len(), length);
        assert_eq!(client.answered(), [tag]);
    }
}

/// If the upstream closed an idle connection, the next query finds that out and is retried once on
/// a new connection. If that is lost too, the query fails.
#[test]
fn stale_connections() {
    let (mut client, mut upstream) = (Client::new(Limits::default()), Upstream::new());
    client.query(upstream.at(), 1).unwrap();
    client.until(|_| upstream.count(0) == 1);
    let answers = upstream.take(0);
    upstream.send(0, &answers);
    client.until(|it| it.ended.len() == 1);
    // The query is sent before the connection's end was noticed.
    upstream.peers[0].socket.shutdown(Shutdown::Both).unwrap();
    client.query(upstream.at(), 2).unwrap();
    client.until(|_| upstream.count(1) == 1);
    let answers = upstream.take(1);
    upstream.send(1, &answers);
    client.until(|it| it.ended.len() == 2);
    assert_eq!(client.answered(), [1, 2]);
    // Again, but the new connection is lost before its response.
    upstream.peers[1].socket.shutdown(Shutdown::Both).unwrap();
    client.query(upstream.at(), 3).unwrap();
    client.until(|_| upstream.count(2) == 1);
    upstream.peers[2].socket.shutdown(Shutdown::Both).unwrap();
    client.until(|it| it.ended.len() == 1);
    client.failed(Failure::Lost, 1);
    let counters = client.tcp.counters();
    assert_eq!((counters.opened, counters.retried, counters.failed), (3, 2, 1));
    assert_eq!(counters.ended_by(Failure::Lost), 3);
    assert!(client.tcp.is_empty());
}

/// If a connection is lost after its first response, its other queries are retried once. If it is
/// lost before or during its first response, its queries fail.
#[test]
fn lost_connections() {
    let (mut client, mut upstream) = (Client::new(Limits::default()), Upstream::new());
    (0..5).for_each(|tag| client.query(upstream.at(), tag).unwrap());
    client.until(|_| upstream.count(0) == 5);
    let received = upstream.take(0);
    upstream.send(0, &received[..1]);
    // In the middle of the second response.
    upstream.peers[0].socket.write_all(&[0, 20, 7, 7]).unwrap();
    upstream.peers[0].socket.shutdown(Shutdown::Both).unwrap();
    client.until(|_| upstream.count(1) == 4);
    let received = upstream.take(1);
    assert_eq!(received.iter().map(|it| tag_of(it)).collect::<HashSet<_>>(), (1..5).collect());
    // They are not retried a second time.
    upstream.send(1, &received[..3]);
    upstream.peers[1].socket.shutdown(Shutdown::Both).unwrap();
    client.until(|it| it.ended.len() == 5);
    let lost = tag_of(&received[3]);
    let at = client.ended.iter().position(|end| end.0 == lost).unwrap();
    assert_eq!(client.ended.remove(at), (lost, Err(Failure::Lost)));
    assert_eq!(client.answered().len(), 4);
    assert!(client.tcp.is_empty());
    for partly in [&[][..], &[0], &[0, 20, 7, 7]] {
        let mut upstream = Upstream::new();
        (0..5).for_each(|tag| client.query(upstream.at(), tag).unwrap());
        client.until(|_| upstream.count(0) == 5);
        upstream.peers[0].socket.write_all(partly).unwrap();
        upstream.peers[0].socket.shutdown(Shutdown::Both).unwrap();
        client.until(|it| it.ended.len() == 5);
        client.failed(Failure::Lost, 5);
    }
}

/// No server listens: the query fails, at once or when the refusal arrives, and nothing remains of
/// the connection.
#[test]
fn nobody_there() {
    let (mut client, upstream) = (Client::new(Limits::default()), Upstream::new());
    let at = upstream.at();
    drop(upstream);
    match client.query(at, 1) {
        Ok(()) => {
            client.until(|it| !it.ended.is_empty());
            client.failed(Failure::NotConnected, 1);
        }
        Err(refused) => assert!(matches!(refused, Refused::Machine(_))),
    }
    assert!(client.tcp.is_empty() && client.tcp.in_flight() == 0);
}

/// A connection that is not established in time is given up, and `wait_ms` is exact.
#[test]
fn connecting_takes_too_long() {
    let options = tcp::ListenOptions { backlog: 0, ..Default::default() };
    let listener = tcp::listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let at = listener.local_addr().unwrap();
    // Unaccepted connections fill the queue, so the kernel does not complete further ones.
    let _queue: Vec<TcpStream> =
        (0..8).map(|_| tcp::connect(at, &Default::default()).unwrap()).collect();
    let mut client = Client::new(Limits { connect_ms: 700, ..Limits::default() });
    client.query(at, 1).unwrap();
    client.now_ms += 699;
    client.rest();
    assert_eq!((client.ended.len(), client.tcp.wait_ms(client.now_ms)), (0, Some(1)));
    client.now_ms += 1;
    client.turn();
    client.failed(Failure::NotConnected, 1);
    assert_eq!(client.tcp.wait_ms(client.now_ms), None);
}

/// A connection without any response is given up after its time. Each response renews the time for
/// the other queries of the connection. If it did respond before, the remaining queries are retried
/// once.
#[test]
fn silence() {
    let mut client = Client::new(Limits { silent_ms: 500, ..Limits::default() });
    let mut mute = Upstream::new();
    client.query(mute.at(), 1).unwrap();
    client.until(|_| mute.count(0) == 1);
    client.now_ms += 499;
    client.rest();
    assert_eq!((client.ended.len(), client.tcp.wait_ms(client.now_ms)), (0, Some(1)));
    client.now_ms += 1;
    client.turn();
    client.failed(Failure::Silent, 1);

    let mut upstream = Upstream::new();
    (0..3).for_each(|tag| client.query(upstream.at(), tag).unwrap());
    client.until(|_| upstream.count(0) == 3);
    let received = upstream.take(0);
    client.now_ms += 400;
    upstream.send(0, &received[1..2]);
    client.until(|it| it.ended.len() == 1);
    client.now_ms += 499;
    client.rest();
    assert_eq!((client.answered(), client.tcp.len()), (vec![1], 1));
    client.now_ms += 1;
    client.until(|_| upstream.count(1) == 2);
    assert_eq!(client.tcp.counters().retried, 2);
    client.now_ms += 500;
    client.turn();
    client.failed(Failure::Silent, 2);
    assert_eq!(client.tcp.counters().ended_by(Failure::Silent), 3);
}

/// Idle connections are closed after their time. If the upstream closes one earlier, it is removed
/// at once, without an outcome.
#[test]
fn idle_connections_go() {
    let mut client = Client::new(Limits { idle_ms: 900, ..Limits::default() });
    let mut upstreams = [Upstream::new(), Upstream::new()];
    for (tag, upstream) in upstreams.iter_mut().enumerate() {
        client.query(upstream.at(), tag as u64).unwrap();
        client.until(|_| upstream.count(0) == 1);
        let received = upstream.take(0);
        upstream.send(0, &received);
        client.until(|it| it.ended.len() == tag + 1);
    }
    upstreams[1].peers.clear();
    client.until(|it| it.tcp.len() == 1);
    client.now_ms += 899;
    client.rest();
    assert_eq!(client.tcp.wait_ms(client.now_ms), Some(1));
    client.now_ms += 1;
    client.until(|_| upstreams[0].pump().peers[0].has_ended);
    let counters = client.tcp.counters();
    assert_eq!((counters.ended_idle, counters.ended_unused), (1, 1));
    assert_eq!((client.tcp.len(), client.tcp.routes.len()), (0, 0));
}

/// A canceled query has no outcome. Its late response is counted as late. Its tag may be reused
/// before then, and the new query gets its own response.
#[test]
fn cancelled() {
    let (mut client, mut upstream) = (Client::new(Limits::default()), Upstream::new());
    assert!(!client.tcp.cancel(1));
    (0..3).for_each(|tag| client.query(upstream.at(), tag).unwrap());
    assert!(matches!(client.query(upstream.at(), 1), Err(Refused::TagInUse)));
    client.until(|_| upstream.count(0) == 3);
    assert!(client.tcp.cancel(1) && !client.tcp.cancel(1));
    client.tcp.validate();
    client.query(upstream.at(), 1).unwrap();
    client.until(|_| upstream.count(0) == 4);
    let received = upstream.take(0);
    let first = received.iter().position(|it| tag_of(it) == 1).unwrap();
    let last = received.iter().rposition(|it| tag_of(it) == 1).unwrap();
    assert_ne!(received[first][..2], received[last][..2]);
    upstream.send(0, &received[..3]);
    client.until(|it| it.tcp.counters().late == 1);
    assert_eq!(client.answered(), [0, 2]);
    upstream.send(0, &received[3..]);
    client.until(|it| it.ended.len() == 1);
    assert_eq!((client.answered(), client.tcp.counters().strays), (vec![1], 0));
    // The loss of a connection whose only query was canceled has no outcome and causes no retry.
    client.query(upstream.at(), 5).unwrap();
    client.until(|_| upstream.count(0) == 1);
    client.tcp.cancel(5);
    upstream.peers.clear();
    client.until(|it| it.tcp.is_empty());
    assert_eq!((client.ended.len(), client.tcp.counters().retried), (0, 0));
}

/// A further connection is opened only when all others are full. Queries are spread over
/// connections with room, and refused beyond that. Each route has its own connections.
#[test]
fn full_connections() {
    let limits = Limits { in_flight_max: 2, per_upstream_max: 2, ..Limits::default() };
    let (mut client, mut upstream) = (Client::new(limits), Upstream::new());
    (0..4).for_each(|tag| client.query(upstream.at(), tag).unwrap());
    assert!(matches!(client.query(upstream.at(), 4), Err(Refused::Full)));
    assert_eq!((client.tcp.len(), client.tcp.counters().refused_full), (2, 1));
    let local: IpAddr = "127.0.0.5".parse().unwrap();
    let at = upstream.at();
    client.tcp.query(at, Some(local), 5, &query(5, 20), &client.poller, client.now_ms).unwrap();
    client.until(|_| (0..3).map(|peer| upstream.count(peer)).sum::<usize>() == 5);
    let froms = upstream.peers.iter().filter(|peer| peer.from.ip() == local);
    assert_eq!(froms.count(), 1);
    for peer in 0..3 {
        let received = upstream.take(peer);
        upstream.send(peer, &received);
    }
    client.until(|it| it.ended.len() == 5);
    client.answered();
    client.query(upstream.at(), 6).unwrap();
    client.query(upstream.at(), 7).unwrap();
    let loads = client.tcp.table.ids();
    let loads: Vec<usize> =
        loads.map(|id| client.tcp.table.get(id).unwrap().queries.len()).collect();
    assert_eq!(loads.iter().sum::<usize>(), 2);
    assert!(loads.iter().all(|&load| load < 2), "{loads:?}");
}

/// If all connections are in use, a query to another upstream is refused. An idle connection is
/// closed to make room.
#[test]
fn crowded() {
    let mut client = Client::new(Limits { connections_max: 1, ..Limits::default() });
    let (mut one, mut two) = (Upstream::new(), Upstream::new());
    client.query(one.at(), 1).unwrap();
    assert!(matches!(client.query(two.at(), 2), Err(Refused::Full)));
    client.until(|_| one.count(0) == 1);
    let received = one.take(0);
    one.send(0, &received);
    client.until(|it| it.ended.len() == 1);
    client.query(two.at(), 2).unwrap();
    client.until(|_| two.count(0) == 1 && one.pump().peers[0].has_ended);
    let received = two.take(0);
    two.send(0, &received);
    client.until(|it| it.ended.len() == 2);
    assert_eq!((client.answered(), client.tcp.counters().ended_crowded), (vec![1, 2], 1));
}

/// Messages that match no query are ignored, a bounded number of times. Duplicate responses are
/// among them.
#[test]
fn strays() {
    let (mut client, mut upstream) = (Client::new(Limits::default()), Upstream::new());
    (0..2).for_each(|tag| client.query(upstream.at(), tag).unwrap());
    client.until(|_| upstream.count(0) == 2);
    let received = upstream.take(0);
    let mut other = received[0].clone();
    while received.iter().any(|it| it[..2] == other[..2]) {
        other[1] = other[1].wrapping_add(1);
    }
    upstream.send(0, &[other, received[1].clone(), received[1].clone()]);
    client.until(|it| it.tcp.counters().strays == 2);
    assert_eq!(client.answered(), [1]);
    upstream.send(0, &vec![received[1].clone(); STRAYS_MAX as usize - 2]);
    client.until(|it| it.tcp.counters().strays == u64::from(STRAYS_MAX));
    assert_eq!(client.tcp.len(), 1);
    upstream.send(0, &received[1..]);
    client.until(|it| it.ended.len() == 1);
    client.failed(Failure::Broken, 1);
    assert_eq!(client.tcp.counters().ended_by(Failure::Broken), 1);
}

/// A message shorter than a header ends the connection, and its queries are not retried. Complete
/// responses before it count. Queries of invalid lengths are refused.
#[test]
fn bad_lengths() {
    let mut client = Client::new(Limits::default());
    for length in [0u16, 1, 11] {
        let mut upstream = Upstream::new();
        (0..3).for_each(|tag| client.query(upstream.at(), tag).unwrap());
        client.until(|_| upstream.count(0) == 3);
        let received = upstream.take(0);
        upstream.send(0, &received[..1]);
        upstream.peers[0].socket.write_all(&length.to_be_bytes()).unwrap();
        client.until(|it| it.ended.len() == 3);
        let answered = client.ended.remove(0);
        assert!(answered.1.is_ok());
        client.failed(Failure::Broken, 2);
        for length in [usize::from(length), 65_536] {
            let (poller, now_ms) = (&client.poller, client.now_ms);
            let taken = client.tcp.query(upstream.at(), None, 9, &vec![0; length], poller, now_ms);
            assert!(matches!(taken, Err(Refused::BadLength)));
        }
    }
    assert!(client.tcp.is_empty() && client.tcp.in_flight() == 0);
}

/// Queries that the kernel does not take wait, up to a limit. They all arrive once the upstream
/// reads.
#[test]
fn upstream_reads_late() {
    let limits = Limits { per_upstream_max: 1, in_flight_max: 1 << 14, ..Limits::default() };
    let (mut client, mut upstream) = (Client::new(limits), Upstream::new());
    let mut tag = 0;
    let at = upstream.at();
    for _ in 0..TURNS_MAX {
        let message = query(tag, 60_000);
        match client.tcp.query(at, None, tag, &message, &client.poller, client.now_ms) {
            Ok(()) => tag += 1,
            // It may also be full before the connection is established.
            Err(_) if tag > 20 => break,
            Err(_) => {}
        }
        client.turn();
    }
    client.rest();
    assert!(tag > 20 && client.tcp.counters().refused_full > 0);
    let held = client.tcp.table.ids().map(|id| client.tcp.table.get(id).unwrap().unsent.len());
    assert!(held.sum::<usize>() > 60_000);
    client.until(|_| upstream.count(0) == tag as usize);
    let tags: Vec<u64> = upstream.take(0).iter().map(|it| tag_of(it)).collect();
    assert_eq!(tags, (0..tag).collect::<Vec<u64>>());
    assert_eq!(client.tcp.counters().bytes_out, tag * 60_002);
}

/// The callback for a failure may query another upstream at once. Events of the lost connection are
/// ignored, also when the new one has its slot.
#[test]
fn query_from_within() {
    let (mut client, mut upstream) = (Client::new(Limits::default()), Upstream::new());
    let (mut bad, at) = (Upstream::new(), upstream.at());
    client.query(bad.at(), 1).unwrap();
    client.until(|_| bad.count(0) == 1);
    let old = client.tcp.table.ids().next().unwrap();
    let token = client.tcp.table.token(old);
    bad.peers.clear();
    let mut failures = 0;
    for _ in 0..TURNS_MAX {
        let Client { poller, events, tcp, now_ms, .. } = &mut client;
        poller.wait(events, Some(2)).unwrap();
        for event in events.iter() {
            tcp.ready(event, poller, *now_ms, |tcp, tag, outcome| {
                assert_eq!((tag, outcome), (1, Outcome::Failed(Failure::Lost)));
                tcp.query(at, None, 1, &query(1, 20), poller, *now_ms).unwrap();
                tcp.ready(event, poller, *now_ms, |_, _, _| panic!("not from within"));
                failures += 1;
            });
        }
        if failures > 0 {
            break;
        }
    }
    let new = client.tcp.table.ids().next().unwrap();
    assert_eq!(client.tcp.table.token(new) as u32, token as u32 + (1 << 24), "the same slot");
    let stale = Event { token, readable: true, writable: true, closed: true };
    let Client { poller, tcp, now_ms, .. } = &mut client;
    tcp.ready(stale, poller, *now_ms, |_, _, _| panic!("nothing ends"));
    client.until(|_| upstream.count(0) == 1);
    let received = upstream.take(0);
    upstream.send(0, &received);
    client.until(|it| it.ended.len() == 1);
    assert_eq!((client.answered(), failures), (vec![1], 1));
}

#[derive(Debug, Clone)]
enum Step {
    Query,
    Cancel { which: usize },
    Answer { peer: usize, which: usize },
    AnswerAll { peer: usize },
    Close { peer: usize },
    Garble { peer: usize },
    Pass { by_ms: u64 },
    Turn,
}

fn step() -> impl Strategy<Value = Step> {
    let any = any::<usize>;
    prop_oneof![
        8 => Just(Step::Query),
        2 => any().prop_map(|which| Step::Cancel { which }),
        6 => (any(), any()).prop_map(|(peer, which)| Step::Answer { peer, which }),
        2 => any().prop_map(|peer| Step::AnswerAll { peer }),
        1 => any().prop_map(|peer| Step::Close { peer }),
        1 => any().prop_map(|peer| Step::Garble { peer }),
        2 => (0u64..400).prop_map(|by_ms| Step::Pass { by_ms }),
        6 => Just(Step::Turn),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// For any behavior of an upstream, each accepted query ends exactly once: with its own
    /// response, with a failure, or by `cancel`. All end within the time limits.
    #[test]
    fn each_query_ends_once(steps in prop::collection::vec(step(), 1..120)) {
        let limits = Limits {
            connections_max: 3,
            per_upstream_max: 2,
            in_flight_max: 6,
            connect_ms: 1_000,
            silent_ms: 500,
            idle_ms: 300,
            ..Limits::default()
        };
        let (mut client, mut upstreams) = (Client::new(limits), [Upstream::new(), Upstream::new()]);
        let (mut tag, mut open, mut ends) = (0, HashSet::new(), 0);
        for step in steps {
            let count: usize = upstreams.iter_mut().map(|it| it.pump().peers.len()).sum();
            let side = |peer: usize| {
                let peer = peer.checked_rem(count)?;
                let first = upstreams[0].peers.len();
                Some(if peer < first { (0, peer) } else { (1, peer - first) })
            };
            match step {
                Step::Query => {
                    tag += 1;
                    if client.query(upstreams[tag as usize % 2].at(), tag).is_ok() {
                        open.insert(tag);
                    }
                }
                Step::Cancel { which } if tag > 0 => {
                    let which = which as u64 % (tag + 1);
                    prop_assert_eq!(client.tcp.cancel(which), open.remove(&which));
                }
                Step::Answer { peer, which } => if let Some((at, peer)) = side(peer) {
                    let mut received = upstreams[at].take(peer);
                    if !received.is_empty() {
                        // The other queries never get a response.
                        let answer = received.swap_remove(which % received.len());
                        let mut unsent = Unsent::default();
                        unsent.push(&answer);
                        let _ = unsent.send(&upstreams[at].peers[peer].socket);
                    }
                },
                Step::AnswerAll { peer } => if let Some((at, peer)) = side(peer) {
                    let mut unsent = Unsent::default();
                    upstreams[at].take(peer).iter().for_each(|answer| unsent.push(answer));
                    let _ = unsent.send(&upstreams[at].peers[peer].socket);
                },
                Step::Close { peer } => if let Some((at, peer)) = side(peer) {
                    let _ = upstreams[at].peers[peer].socket.shutdown(Shutdown::Both);
                },
                Step::Garble { peer } => if let Some((at, peer)) = side(peer) {
                    let _ = upstreams[at].peers[peer].socket.write(&[0, 3, 1]);
                },
                Step::Pass { by_ms } => client.now_ms += by_ms,
                Step::Turn => client.turn(),
                Step::Cancel { .. } => {}
            }
            client.tcp.validate();
            for (tag, end) in client.take() {
                prop_assert!(open.remove(&tag), "{} had ended", tag);
                if let Ok(answer) = end {
                    prop_assert_eq!(tag_of(&answer), tag);
                }
                ends += 1;
            }
            prop_assert_eq!(client.tcp.in_flight(), open.len());
        }
        // Time for two connections, because of retries, and then for the idle ones.
        for _ in 0..5 {
            client.turn();
            client.now_ms += 1_000;
        }
        client.turn();
        for (tag, _) in client.take() {
            prop_assert!(open.remove(&tag), "{} had ended", tag);
            ends += 1;
        }
        prop_assert!(open.is_empty() && client.tcp.is_empty(), "{:?}", open);
        let counters = client.tcp.counters();
        prop_assert_eq!(counters.answered + counters.failed, ends);
    }
}
