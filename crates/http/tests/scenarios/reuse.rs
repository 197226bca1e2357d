//! Reuse of connections to origins; and unreachable origins.

use larder_io::tcp::{ListenOptions, listen};

use crate::support::{KEPT, Origin, UNKEPT, answer, scenario};

/// A connection is reused; another one is opened if the first is in use.
#[test]
fn one_after_the_other() {
    scenario().run(|world| {
        let mut client = world.client();
        client.get("/a");
        let mut origin = world.receive("GET /a");
        for path in ["/b", "/c"] {
            origin.answers("200 OK", &[UNKEPT], "text");
            client.response();
            client.get(path);
            origin.receive(&format!("GET {path}"));
        }
        let mut other = world.client();
        other.get("/d");
        let mut second = world.receive("GET /d");
        second.answers("200 OK", &[UNKEPT], "d");
        origin.answers("200 OK", &[UNKEPT], "c");
        assert_eq!((other.response().text(), client.response().text()), ("d", "c"));
        world.until_counts("two", |it| it.origin_connections == 2);
    });
}

/// An origin closes an idle connection: the next request uses another.
#[test]
fn closed_while_idle() {
    scenario().run(|world| {
        let mut client = world.client();
        client.get("/a");
        let mut origin = world.receive("GET /a");
        origin.answers("200 OK", &[UNKEPT], "text");
        client.response();
        // Counts are published later than the response is sent.
        world.until_counts("it is open", |it| it.origins_open == 1);
        drop(origin);
        world.until_counts("it is closed here too", |it| it.origins_open == 0);
        client.request("POST", "/b", &["Content-Length: 0"]);
        world.receive("POST /b").answers("200 OK", &[UNKEPT], "b");
        assert_eq!(client.response().text(), "b");
    });
}

/// An origin closes a reused connection as the next request arrives. An idempotent request is
/// repeated; for another one the client gets 502.
#[test]
fn closed_as_it_is_used() {
    scenario().run(|world| {
        let mut client = world.client();
        for (method, is_retried) in
            [("GET", true), ("HEAD", true), ("OPTIONS", true), ("POST", false), ("DELETE", false)]
        {
            client.get("/a");
            let mut origin = world.receive("GET /a");
            origin.answers("200 OK", &[UNKEPT], "text");
            assert_eq!(client.response().text(), "text");
            client.request(method, "/a", &["Cache-Control: no-cache"]);
            let line = if method == "HEAD" { "HEAD" } else { method };
            let head = origin.head();
            assert!(head.line.starts_with(line), "{head:?}");
            drop(origin);
            if is_retried {
                let mut origin = world.origin().accept();
                assert!(origin.head().line.starts_with(line));
                origin.answers("200 OK", &[UNKEPT, "Connection: close"], "");
            }
            let status = client.head().status();
            assert_eq!(status, if is_retried { 200 } else { 502 }, "{method}");
            if !is_retried {
                client = world.client();
            }
            world.origin().is_idle();
        }
    });
}

/// A new connection that is closed before a response does not cause another attempt.
#[test]
fn closed_at_first() {
    scenario().run(|world| {
        let mut client = world.client();
        client.get("/a");
        drop(world.receive("GET /a"));
        assert_eq!(client.response().status(), 502);
        world.origin().is_idle();
    });
}

/// If an origin does not keep its connections open, the server connects again; also for HTTP/1.0
/// without a statement.
#[test]
fn not_kept() {
    scenario().run(|world| {
        let mut client = world.client();
        client.get("/a");
        let mut origin = world.receive("GET /a");
        origin.answers("200 OK", &[UNKEPT, "Connection: close"], "a");
        assert_eq!(client.response().text(), "a");
        origin.is_closed();
        client.get("/b");
        let mut origin = world.receive("GET /b");
        origin.send("HTTP/1.0 200 OK\r\nCache-Control: no-store\r\nContent-Length: 1\r\n\r\nb");
        assert_eq!(client.response().text(), "b");
        origin.is_closed();
        client.get("/c");
        world.receive("GET /c").answers("200 OK", &[UNKEPT], "c");
        assert_eq!(client.response().text(), "c");
    });
}

/// Interim responses: useful ones reach the client, and the final response comes last.
#[test]
fn interim() {
    scenario().run(|world| {
        let mut client = world.client();
        client.get("/a");
        let mut origin = world.receive("GET /a");
        origin.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </b>\r\n\r\n");
        let head = client.head();
        assert_eq!((head.status(), head.field("link")), (103, Some("</b>")));
        origin.answers("200 OK", &[KEPT], "text");
        assert_eq!(client.response().text(), "text");
        assert_eq!(client.fetch("/a").text(), "text");
    });
}

/// The client gets only a few interim responses: an origin that sends them without end fills no
/// memory.
#[test]
fn interim_without_end() {
    scenario().run(|world| {
        let mut client = world.client();
        client.get("/a");
        let mut origin = world.receive("GET /a");
        origin.send("HTTP/1.1 102 Processing\r\n\r\n".repeat(100));
        origin.answers("200 OK", &[UNKEPT], "text");
        let mut interim = 0;
        let head = loop {
            match client.head() {
                head if head.status() == 102 => interim += 1,
                head => break head,
            }
        };
        assert_eq!((head.status(), interim), (200, 16));
        assert_eq!(client.try_body(&head).unwrap(), b"text");
    });
}

/// If one of two origins cannot be reached, the other gets the request.
#[test]
fn another_one() {
    scenario().origins(2).run(|world| {
        world.origin().stop_listening();
        world.origin_at(1).answers_by(|_| answer("200 OK", &[UNKEPT], "text"));
        let mut client = world.client();
        for _ in 0..10 {
            assert_eq!(client.fetch("/").text(), "text");
            client.request("POST", "/", &["Content-Length: 0"]);
            assert_eq!(client.response().text(), "text");
        }
    });
}

/// No origin listens: 502. No origin accepts the connection: 502 after the timeout.
#[test]
fn none_can_be_had() {
    scenario()
        .origins(2)
        .with(|it| {
            it.origins.iter_mut().for_each(|it| it.address = Origin::nowhere());
        })
        .run(|world| {
            let mut client = world.client();
            assert_eq!(client.fetch("/").status(), 502);
            assert_eq!(client.fetch("/").status(), 502);
            client.request("POST", "/", &["Content-Length: 0"]);
            assert_eq!(client.response().status(), 502);
            world.until_counts("failures", |it| it.origin_failures >= 6 && it.fetches_failed == 3);
        });
    // A listener with a full queue lets other connections wait.
    let full = listen(
        "127.0.0.1:0".parse().unwrap(),
        &ListenOptions { backlog: 0, ..ListenOptions::default() },
    );
    let full = full.unwrap();
    let address = full.local_addr().unwrap();
    let _first = std::net::TcpStream::connect(address).unwrap();
    scenario()
        .with(move |it| {
            it.origins[0].address = address;
            it.patience.connect_ms = 100;
        })
        .run(|world| {
            let mut client = world.client();
            assert_eq!(client.fetch("/").status(), 502);
            world.until_counts("waits", |it| it.origin_timeouts >= 1 && it.fetches_failed == 1);
        });
}

/// An origin that does not respond causes a 504 for all waiting clients; one that stops in the
/// middle of a body breaks it.
#[test]
fn says_nothing() {
    scenario()
        .loops(&[1, 2])
        .with(|it| {
            it.patience.first_byte_ms = 300;
            it.patience.between_bytes_ms = 300;
        })
        .run(|world| {
            let mut clients = world.clients(4);
            clients.iter_mut().for_each(|it| it.get("/a"));
            let mut origin = world.receive("GET /a");
            for client in &mut clients {
                assert_eq!(client.response().status(), 504);
            }
            origin.is_closed();
            clients[0].get("/b");
            let mut origin = world.receive("GET /b");
            origin.begins("200 OK", &[KEPT], 100);
            origin.send("some");
            assert_eq!(clients[0].broken(), b"some");
            origin.is_closed();
        });
}

/// Requests beyond the connection limit wait, and are sent in turn; those beyond the queue's limit
/// get 503.
#[test]
fn too_many() {
    scenario()
        .with(|it| {
            it.origin_connections_max = 2;
            it.queue_max = 3;
        })
        .run(|world| {
            let mut clients = world.clients(6);
            let mut origins = Vec::new();
            for (at, client) in clients.iter_mut().enumerate().take(2) {
                client.get(&format!("/{at}"));
                origins.push(world.receive(&format!("GET /{at}")));
            }
            for (at, client) in clients.iter_mut().enumerate().skip(2) {
                client.get(&format!("/{at}"));
                world.until_counts("it came", |it| it.requests == at as u64 + 1);
            }
            assert_eq!(clients[5].response().status(), 503);
            for at in 2..5 {
                let mut origin = origins.remove(0);
                origin.answers("200 OK", &[UNKEPT], format!("{}", at - 2));
                origin.receive(&format!("GET /{at}"));
                origins.push(origin);
            }
            for (at, mut origin) in (3..5).zip(origins) {
                origin.answers("200 OK", &[UNKEPT], format!("{at}"));
            }
            for (at, client) in clients.iter_mut().enumerate().take(5) {
                assert_eq!(client.response().text(), at.to_string());
            }
            world.until_counts("two connections", |it| {
                it.origin_connections == 2 && it.queue_full == 1
            });
        });
}
