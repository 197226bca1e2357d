//! DNS over TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use larder_dns::dnstap::Protocol;
use larder_dns_tls::Limits;
use larder_testkit::dns::{framed, read_framed};
use larder_testkit::skip::skip;
use larder_testkit::wait::{PATIENCE, until_so};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::world::{HUGE_BYTES, PADDING, World, answers, impatient, query, server_name};

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn plain(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Stream {
    let connection = ClientConnection::new(config.clone(), server_name()).unwrap();
    StreamOwned::new(connection, plain(address))
}

/// True if the peer ended the stream, with or without close_notify, and nothing remains to be read.
fn is_over(stream: &mut impl Read) -> bool {
    !matches!(stream.read(&mut [0; 64]), Ok(1..))
}

/// All queries get responses: in one write, a byte at a time, or with the longest possible query
/// between them. The core receives their client and transport.
#[test]
fn queries_in_any_pieces() {
    let world = World::start(Limits::default());
    let mut stream = connect(world.tls(), &world.client(&["dot"]));
    let queries: Vec<_> = (0..250).map(|id| query(id, "some", b"")).collect();
    let whole: Vec<u8> = queries.iter().flat_map(|message| framed(message)).collect();
    stream.write_all(&whole).unwrap();
    for query in &queries {
        assert!(answers(query, &read_framed(&mut stream).unwrap()));
    }
    let one = query(7, "pieces", b"");
    for byte in framed(&one) {
        stream.write_all(&[byte]).unwrap();
    }
    assert!(answers(&one, &read_framed(&mut stream).unwrap()));
    let mut options = vec![0xff, 0xfe, 0xf0, 0];
    options.resize(4 + 0xf000, 0);
    let long = query(8, "long", &options);
    stream.write_all(&framed(&long)).unwrap();
    assert!(answers(&long, &read_framed(&mut stream).unwrap()));
    let last = world.last.lock().unwrap().unwrap();
    assert_eq!(last, ([127, 0, 0, 1].into(), Protocol::Tls));
}

/// The server pads responses only for a client that pads. It sends them in the order in which they
/// are ready.
#[test]
fn padding_and_order() {
    let world = World::start(Limits::default());
    // A client without ALPN is accepted.
    let mut stream = connect(world.tls(), &world.client(&[]));
    for (options, is_padded) in [(PADDING, true), (b"", false)] {
        stream.write_all(&framed(&query(1, "some", options))).unwrap();
        let answer = read_framed(&mut stream).unwrap();
        assert_eq!(answer.len().is_multiple_of(468), is_padded, "{} octets", answer.len());
    }
    let (held, next) = (query(2, "hold", b""), query(3, "next", b""));
    stream.write_all(&[framed(&held), framed(&next)].concat()).unwrap();
    assert!(answers(&next, &read_framed(&mut stream).unwrap()));
    assert!(answers(&held, &read_framed(&mut stream).unwrap()));
    // A query without a response does not delay others.
    let some = query(5, "some", b"");
    stream.write_all(&[framed(&query(4, "none", b"")), framed(&some)].concat()).unwrap();
    assert!(answers(&some, &read_framed(&mut stream).unwrap()));
}

/// A client that shuts down its sending direction gets all responses, and then close_notify.
#[test]
fn half_closed() {
    let world = World::start(Limits::default());
    let mut stream = connect(world.tls(), &world.client(&["dot"]));
    let (held, next) = (query(1, "hold", b""), query(2, "next", b""));
    stream.write_all(&[framed(&held), framed(&next)].concat()).unwrap();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    assert!(answers(&next, &read_framed(&mut stream).unwrap()));
    assert!(answers(&held, &read_framed(&mut stream).unwrap()));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "a proper end");
}

/// The server closes and counts a client with another protocol, without TLS, or that stops during
/// the handshake. It serves others meanwhile.
#[test]
fn handshakes_that_are_none() {
    let world = World::start(impatient());
    let config = world.client(&["dot"]);
    for (at, first) in [
        &b"\0\x1d\x12\x34\x01\0"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 9_000],
        &[22, 3, 1, 2, 0],
        b"",
    ]
    .into_iter()
    .enumerate()
    {
        let mut rude = plain(world.tls());
        rude.write_all(first).unwrap();
        let mut polite = connect(world.tls(), &config);
        let some = query(1, "some", b"");
        polite.write_all(&framed(&some)).unwrap();
        assert!(answers(&some, &read_framed(&mut polite).unwrap()));
        // An alert may come first.
        let mut rest = Vec::new();
        let _ = rude.read_to_end(&mut rest);
        assert!(rest.len() < 64);
        world.await_count("encrypted_handshakes_failed", "tls", at as u64 + 1);
    }
    let mut foreign = connect(world.tls(), &world.client(&["h2"]));
    assert!(foreign.write_all(&framed(&query(1, "some", b""))).is_err() || is_over(&mut foreign));
    world.await_count("encrypted_handshakes_failed", "tls", 6);
    world.await_count("encrypted_connections", "", 0);
}

/// A message of 0 bytes ends the connection. The server closes a silent client after the idle time,
/// also one that sends a query a byte at a time without end.
#[test]
fn silent_slow_and_broken() {
    let world = World::start(impatient());
    let config = world.client(&["dot"]);
    let mut broken = connect(world.tls(), &config);
    broken.write_all(&[0, 0]).unwrap();
    assert!(is_over(&mut broken));
    world.await_count("encrypted_violations", "tls", 1);
    let mut silent = connect(world.tls(), &config);
    silent.flush().unwrap();
    assert!(is_over(&mut silent));
    let mut slow = connect(world.tls(), &config);
    slow.write_all(&[0xff]).unwrap();
    // Each byte comes well within the idle time, but all of them together exceed it.
    while slow.write_all(&[0xff]).is_ok() && world.count("encrypted_timeouts", "tls") == 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    world.await_count("encrypted_timeouts", "tls", 1);
    world.await_count("encrypted_connections", "", 0);
}

/// The server closes a client that sends many queries and reads nothing, once it has stalled. It
/// frees the memory of the responses.
#[test]
fn reads_nothing() {
    let world = World::start(Limits { stall: impatient().stall, ..Limits::default() });
    let mut greedy = connect(world.tls(), &world.client(&["dot"]));
    let queries = framed(&query(1, "huge", b"")).repeat(100);
    while greedy.write_all(&queries).is_ok() && world.count("encrypted_timeouts", "tls") == 0 {}
    world.await_count("encrypted_timeouts", "tls", 1);
    world.await_count("encrypted_connections", "", 0);
    world.await_count("encrypted_unsent_bytes", "", 0);
}

/// The server drops and counts responses beyond the limit of unsent bytes. The connection stays
/// open, and gets all other responses.
///
/// One of two huge responses fits. The client sends queries for more of them than the kernel can
/// buffer, and reads nothing. So sooner or later one stays unsent while the next is ready, on a
/// machine of any speed. A short response fits next to a huge one, so the last one is never
/// dropped.
#[test]
fn untaken_answers_are_dropped() {
    const PAIRS: usize = 200;
    let unsent_bytes_max = HUGE_BYTES + HUGE_BYTES / 2;
    let limits = Limits { unsent_bytes_max, stall: PATIENCE, ..Limits::default() };
    let world = World::start(limits);
    let socket = plain(world.tls());
    set_socket_recv_buffer_size(&socket, 64 << 10).unwrap();
    let connection = ClientConnection::new(world.client(&["dot"]), server_name()).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    let huge = framed(&query(1, "huge", b""));
    stream.write_all(&huge.repeat(2 * PAIRS)).unwrap();
    until_so("an answer that is not taken", || world.count("encrypted_unsent", "tls") > 0);
    let last = query(3, "some", b"");
    stream.write_all(&framed(&last)).unwrap();
    let mut taken = 0;
    loop {
        let answer = read_framed(&mut stream).unwrap();
        if answers(&last, &answer) {
            break;
        }
        assert_eq!(answer.len(), HUGE_BYTES);
        taken += 1;
    }
    assert!(taken > 0, "what fits comes");
    world.await_count("encrypted_unsent", "tls", 2 * PAIRS as u64 - taken);
    world.await_count("encrypted_unsent_bytes", "", 0);
}

/// The server closes one more connection than a client may have at once. When another connection
/// ends, it accepts a new one.
#[test]
fn places_of_a_client() {
    let world = World::start(Limits { per_client_max: 2, ..Limits::default() });
    let config = world.client(&["dot"]);
    let exchange = |stream: &mut Stream| {
        let some = query(1, "some", b"");
        stream.write_all(&framed(&some))?;
        read_framed(stream).map(|answer| assert!(answers(&some, &answer)))
    };
    let mut first = connect(world.tls(), &config);
    let mut second = connect(world.tls(), &config);
    exchange(&mut first).unwrap();
    exchange(&mut second).unwrap();
    assert!(exchange(&mut connect(world.tls(), &config)).is_err());
    world.await_count("encrypted_connections_refused", "tls", 1);
    drop(first);
    world.await_count("encrypted_connections", "", 1);
    exchange(&mut connect(world.tls(), &config)).unwrap();
}

/// A thousand open connections all get responses, one after the other, in two rounds.
#[test]
fn a_thousand_connections() {
    const COUNT: usize = 1_000;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < 3 * COUNT as u64) {
        return skip("a_thousand_connections", "this user may not have so many descriptors");
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let limits =
        Limits { connections_max: COUNT + 10, per_client_max: u32::MAX, ..Limits::default() };
    // An almost full table shortens time limits, and a thousand handshakes take a while.
    let world = World::start(Limits { idle: 100 * PATIENCE, ..limits });
    let config = world.client(&["dot"]);
    let mut streams: Vec<Stream> = (0..COUNT).map(|_| connect(world.tls(), &config)).collect();
    for _ in 0..2 {
        for (id, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&framed(&query(id as u16, "some", b""))).unwrap();
        }
        for (id, stream) in streams.iter_mut().enumerate() {
            assert!(answers(&query(id as u16, "some", b""), &read_framed(stream).unwrap()));
        }
    }
    assert_eq!(world.count("encrypted_connections", ""), COUNT as u64);
    drop(streams);
    world.await_count("encrypted_connections", "", 0);
}

/// When the server ends, earlier queries still get responses, and then the connections end. The
/// server refuses new ones.
#[test]
fn drains() {
    let mut world = World::start(Limits::default());
    let config = world.client(&["dot"]);
    let (mut waits, mut rests) = (connect(world.tls(), &config), connect(world.tls(), &config));
    let held = query(2, "hold", b"");
    rests.write_all(&framed(&query(1, "some", b""))).unwrap();
    read_framed(&mut rests).unwrap();
    waits.write_all(&framed(&held)).unwrap();
    world.await_held(1);
    world.drain();
    assert_eq!(rests.read(&mut [0]).unwrap(), 0, "a proper end");
    world.release();
    assert!(answers(&held, &read_framed(&mut waits).unwrap()));
    assert_eq!(waits.read(&mut [0]).unwrap(), 0, "a proper end");
    world.finish();
    assert!(TcpStream::connect(world.tls()).is_err());
}
