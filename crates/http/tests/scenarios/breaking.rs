//! Origins that fail while they send: each reader notices it, nothing is cached, and the next
//! client causes a new fetch.

use crate::support::{Client, Connection, End, KEPT, World, assert_bytes, body, scenario};

/// How an origin marks the end of its body.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Framing {
    Length,
    Chunks,
    Close,
}

const BYTES: usize = 200_000;
const SENT: usize = 100_000;

fn begin(origin: &mut Connection, framing: Framing) {
    match framing {
        Framing::Length => origin.begins("200 OK", &[KEPT], BYTES),
        Framing::Chunks => origin.begins_chunks("200 OK", &[KEPT]),
        Framing::Close => origin.send(format!("HTTP/1.1 200 OK\r\n{KEPT}\r\n\r\n")),
    }
    match framing {
        Framing::Chunks => origin.sends_chunk(&body(SENT)),
        _ => origin.send(body(SENT)),
    }
}

/// Readers of a body of which the first bytes came: all of them have those bytes.
fn readers(world: &World, framing: Framing) -> (Connection, Vec<Client>) {
    let mut readers = world.clients(6);
    readers[0].get("/film");
    let mut origin = world.receive("GET /film");
    begin(&mut origin, framing);
    for (at, reader) in readers.iter_mut().enumerate() {
        if at > 0 {
            reader.get("/film");
        }
        let head = reader.head();
        assert_eq!((head.status(), head.is_chunked()), (200, framing != Framing::Length));
        let mut read = Vec::new();
        while read.len() < SENT {
            match framing {
                Framing::Length => read.extend(reader.take(SENT)),
                _ => read.extend(reader.try_chunk().unwrap()),
            }
        }
        assert_bytes(&read, &body(SENT));
    }
    (origin, readers)
}

fn all_see_it(framing: Framing, ends: &[fn(Connection)]) {
    for end in ends {
        scenario().loops(&[1, 2]).run(|world| {
            let (origin, mut readers) = readers(world, framing);
            end(origin);
            for reader in &mut readers {
                // Its connection ends by a reset here: it has neither the stated length nor a last
                // chunk.
                assert_eq!(reader.end(), End::Reset);
            }
            world.until_counts("the body broke", |it| it.bodies_broken == 1);
            let mut next = world.client();
            next.get("/film");
            world.receive("GET /film").answers("200 OK", &[KEPT], "anew");
            assert_eq!(next.response().text(), "anew");
        });
    }
}

/// An origin that stated the length of its body closes before its end, or resets. Invariant 3 of
/// `clients`.
#[test]
fn before_its_length() {
    all_see_it(Framing::Length, &[|origin| drop(origin), |origin| origin.stop()]);
}

/// An origin with a chunked body ends without the last chunk, resets, or sends an invalid chunk.
#[test]
fn before_the_last_chunk() {
    let nonsense: fn(Connection) = |mut origin| origin.send("no size\r\n");
    let half: fn(Connection) = |mut origin| origin.send("10\r\n");
    all_see_it(Framing::Chunks, &[|origin| drop(origin), |origin| origin.stop(), nonsense, half]);
}

/// If a body ends with the connection, a reset is not its end. Invariant 3 of `clients`.
#[test]
fn before_the_end() {
    all_see_it(Framing::Close, &[|origin| origin.stop()]);
}

/// If a body ends with the connection, the cached response has the length received.
#[test]
fn until_the_end() {
    scenario().run(|world| {
        let (origin, mut readers) = readers(world, Framing::Close);
        drop(origin);
        for reader in &mut readers {
            assert_eq!(reader.try_chunk(), Ok(Vec::new()));
        }
        let kept = readers[0].fetch("/film");
        assert_eq!(kept.head.length(), Some(SENT));
        assert!(kept.head.cache_status().contains("hit"), "{kept:?}");
    });
}

/// For an HTTP/1.0 client, a body of unknown length ends with the connection. If the origin fails,
/// that connection is reset.
#[test]
fn who_cannot_read_chunks_is_reset() {
    for is_broken in [true, false] {
        scenario().run(move |world| {
            let mut client = world.client();
            client.send("GET /film HTTP/1.0\r\nHost: a.example\r\n\r\n");
            let mut origin = world.receive("GET /film");
            begin(&mut origin, Framing::Chunks);
            let head = client.head();
            assert!(!head.is_chunked() && head.length().is_none());
            assert_bytes(&client.take(SENT), &body(SENT));
            if is_broken {
                drop(origin);
                assert_eq!(client.end(), End::Reset);
            } else {
                origin.send("0\r\n\r\n");
                assert_eq!(client.end(), End::Clean);
            }
        });
    }
}

/// If an origin fails before its headers are complete, or sends invalid HTTP, all waiting clients
/// get 502, and nothing is cached. Invariant 2 of `origins`.
#[test]
fn before_its_head() {
    let ends: [fn(Connection); 4] = [
        |origin| drop(origin),
        |origin| origin.stop(),
        |mut origin| origin.send("HTTP/1.1 200 OK\r\nContent-Le"),
        |mut origin| origin.send("SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    ];
    for end in ends {
        scenario().loops(&[1, 2]).run(|world| {
            let mut readers = world.clients(4);
            readers[0].get("/film");
            let origin = world.receive("GET /film");
            readers[1..].iter_mut().for_each(|it| it.get("/film"));
            world.until_counts("all wait", |it| it.collapsed == 3);
            end(origin);
            for reader in &mut readers {
                assert_eq!(reader.response().status(), 502);
            }
            readers[0].get("/film");
            world.receive("GET /film").answers("200 OK", &[KEPT], "anew");
            assert_eq!(readers[0].response().text(), "anew");
        });
    }
}

/// Bytes that an origin sends beyond its body reach no client: the body is complete, and the
/// connection is not reused.
#[test]
fn beyond_its_length() {
    scenario().run(|world| {
        let mut client = world.client();
        client.get("/a");
        let mut origin = world.receive("GET /a");
        origin.send(format!(
            "HTTP/1.1 200 OK\r\n{KEPT}\r\nContent-Length: 4\r\n\r\nbodyHTTP/1.1 200 OK\r\n"
        ));
        assert_eq!(client.response().text(), "body");
        origin.is_closed();
        client.get("/b");
        world.receive("GET /b").answers("200 OK", &[KEPT], "other");
        assert_eq!(client.response().text(), "other");
    });
}
