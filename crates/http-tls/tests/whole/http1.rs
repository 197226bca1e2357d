use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use larder_http_tls::{Limits, Trust};

use larder_testkit::wait::PATIENCE;

use super::world::{NAME, World, answer, head, origin, plain_origin};

/// Requests on one TLS connection get their responses in order, one by one or pipelined, with ALPN
/// and without. A response cached for one client is a hit for the other. The origin receives the
/// scheme.
#[test]
fn requests() {
    let (address, requests) = origin(
        |head, stream| {
            let proto = head.lines().find(|it| it.starts_with("X-Forwarded-Proto: ")).unwrap();
            let body = format!("{} {}", head.split(' ').nth(1).unwrap(), &proto[19..]);
            let body = answer("Cache-Control: max-age=60\r\n", &body);
            stream.write_all(body.as_bytes()).is_ok()
        },
        None,
    );
    let world = World::start(address);
    for alpn in [&["http/1.1"][..], &[]] {
        let mut client = world.http1(alpn);
        for round in 0..2 {
            let request = |path: &str| {
                format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\nX-Forwarded-Proto: x\r\n\r\n")
            };
            if round == 0 {
                client.write_all(request("/a").as_bytes()).unwrap();
                assert_eq!(body(&mut client), "/a https");
            } else {
                client
                    .write_all([request("/b"), request("/a"), request("/c")].concat().as_bytes())
                    .unwrap();
                for path in ["/b", "/a", "/c"] {
                    assert_eq!(body(&mut client), format!("{path} https"));
                }
            }
        }
    }
    assert_eq!(requests.load(std::sync::atomic::Ordering::SeqCst), 3);
    // A request in the clear has another cache key, and its X-Forwarded-Proto is ignored.
    let mut clear = world.clear();
    let request = format!("GET /a HTTP/1.1\r\nHost: {NAME}\r\nX-Forwarded-Proto: https\r\n\r\n");
    clear.write_all(request.as_bytes()).unwrap();
    assert_eq!(body(&mut clear), "/a http");
    assert_eq!(world.count("tls_handshakes"), 2);
}

fn body(client: &mut (impl Read + ?Sized)) -> String {
    let head = head(client).unwrap();
    let length = head.lines().find_map(|it| it.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    client.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

/// A complete response ends with `close_notify`; one that the origin aborted ends without. So the
/// client can distinguish them, also if nothing else states the length. Invariant 1 of `http-tls`.
#[test]
fn ends() {
    let (address, _) = origin(
        |head, stream| {
            let is_cut = head.contains("/cut");
            let parts = if is_cut { "5\r\nabcde\r\n" } else { "5\r\nabcde\r\n0\r\n\r\n" };
            let bytes = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{parts}");
            stream.write_all(bytes.as_bytes()).is_ok() && !is_cut
        },
        None,
    );
    let world = World::start(address);
    let request = |path: &str| {
        let mut client = world.http1(&["http/1.1"]);
        // HTTP/1.0 has no chunks: a response ends with the connection.
        client.write_all(format!("GET {path} HTTP/1.0\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).map(|_| bytes.ends_with(b"\r\n\r\nabcde"))
    };
    assert!(request("/whole").unwrap());
    let error = request("/cut").unwrap_err();
    let kinds = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
    assert!(kinds.contains(&error.kind()), "{error:?}");
    world.until("a reset", |world| world.count("tls_resets") == 1);
}

/// The server closes and counts a client that does not finish its handshake in time; it serves
/// others meanwhile. The first wait of invariant 3 of `http-tls`.
#[test]
fn handshakes_have_a_limit() {
    let address = plain_origin();
    let limits = Limits { handshake: Duration::from_millis(300), ..Limits::default() };
    let world = World::with(vec![(address, None)], limits, Trust::System, |_| ());
    let mut silent = TcpStream::connect(world.tls).unwrap();
    let mut client = world.http1(&["http/1.1"]);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(body(&mut client), "x");
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    world.until("a failure", |world| world.count("tls_handshakes_failed") == 1);
}

/// A replaced certificate applies after a reload, from the next handshake on. Open connections are
/// not affected.
#[test]
fn certificates_are_read_anew() {
    let address = plain_origin();
    let world = World::start(address);
    let request = |client: &mut dyn super::world::Stream| {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    };
    let mut before = world.http1(&[]);
    request(&mut before).unwrap();
    assert_eq!(body(&mut before), "x");
    world.identity.renew(NAME);
    assert_eq!(world.running().tls_bridge().unwrap().reload(), "certificate reloaded");
    request(&mut before).unwrap();
    assert_eq!(body(&mut before), "x");
    // The client trusts the old certificate.
    let error = request(&mut world.http1(&[])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error:?}");
    std::fs::write(world.identity.key(), "").unwrap();
    assert!(world.running().tls_bridge().unwrap().reload().starts_with("certificate unchanged"));
}

/// Limits changed by a reload apply to later connections: more connections per address, less time
/// for a handshake. Open connections stay.
#[test]
fn limits_follow() {
    let address = plain_origin();
    let handshake = Duration::from_secs(3_600);
    let limits = Limits { per_client_max: 1, handshake, ..Limits::default() };
    let world = World::with(vec![(address, None)], limits, Trust::System, |_| ());
    let request = |client: &mut dyn super::world::Stream| {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(body(client), "x");
    };
    let mut first = world.http1(&[]);
    request(&mut first);
    let mut second = TcpStream::connect(world.tls).unwrap();
    assert_eq!(second.read(&mut [0]).unwrap(), 0);
    let mut options = (*world.running().options()).clone();
    options.clients_per_address = 0;
    options.patience.head_ms = 300;
    world.running().replace(options).unwrap();
    let mut third = world.http1(&[]);
    request(&mut third);
    let mut silent = TcpStream::connect(world.tls).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    request(&mut first);
    assert_eq!(world.count("tls_connections_refused"), 1);
}

/// Connections beyond the limit are closed before their handshake.
#[test]
fn places_are_limited() {
    let address = plain_origin();
    let limits = Limits { per_client_max: 1, ..Limits::default() };
    let world = World::with(vec![(address, None)], limits, Trust::System, |_| ());
    let mut first = world.http1(&[]);
    first.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(body(&mut first), "x");
    let mut second = TcpStream::connect(world.tls).unwrap();
    assert_eq!(second.read(&mut [0]).unwrap(), 0);
    assert_eq!(world.count("tls_connections_refused"), 1);
    drop(first);
    world.until("a place", |world| world.count("tls_connections") == 0);
    let mut third = world.http1(&[]);
    third.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(body(&mut third), "x");
}
