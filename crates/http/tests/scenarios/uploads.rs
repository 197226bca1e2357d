//! Request bodies, streamed to the origin as they arrive.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use crate::support::{End, UNKEPT, assert_bytes, body, chunk, pattern, scenario};

/// A client that waits for `100 Continue` gets it; the origin gets the body and no `Expect`.
#[test]
fn continues() {
    scenario().run(|world| {
        let mut client = world.client();
        client.request("PUT", "/file", &["Content-Length: 5", "Expect: 100-continue"]);
        let head = client.head();
        assert_eq!((head.status(), head.fields.len()), (100, 0), "{head:?}");
        client.send("hello");
        let mut origin = world.origin().accept();
        let head = origin.receive("PUT /file");
        assert!(!head.has("expect"), "{head:?}");
        assert_eq!(origin.try_body(&head).unwrap(), b"hello");
        // The origin's own 100 is not the response.
        origin.send("HTTP/1.1 100 Continue\r\n\r\n");
        origin.answers("201 Created", &[UNKEPT], "made");
        let response = client.response();
        assert_eq!((response.status(), response.text()), (201, "made"));
    });
}

/// A body is streamed as it arrives: the origin has the first bytes before the client sends the
/// rest.
#[test]
fn as_it_comes() {
    scenario().run(|world| {
        for is_chunked in [false, true] {
            let mut client = world.client();
            let framing =
                if is_chunked { "Transfer-Encoding: chunked" } else { "Content-Length: 200000" };
            client.request("POST", "/file", &[framing]);
            let mut origin = world.origin().accept();
            let head = origin.receive("POST /file");
            let mut read = Vec::new();
            for from in (0..200_000).step_by(50_000) {
                let part = pattern(from, 50_000);
                client.send(if is_chunked { chunk(&part) } else { part });
                while read.len() < from + 50_000 {
                    read.extend(if is_chunked {
                        origin.try_chunk().unwrap()
                    } else {
                        origin.take(50_000)
                    });
                }
            }
            assert_eq!(head.is_chunked(), is_chunked);
            if is_chunked {
                client.send("0\r\n\r\n");
                assert_eq!(origin.try_chunk(), Ok(Vec::new()));
            }
            assert_bytes(&read, &body(200_000));
            origin.answers("200 OK", &[UNKEPT], "got it");
            assert_eq!(client.response().text(), "got it");
        }
    });
}

/// An origin does not read: the server holds one window of the body, and stops reading from the
/// client. All of it arrives when the origin continues.
#[test]
fn held_back() {
    const WINDOW: u64 = 256 << 10;
    scenario().with(|it| it.window_bytes = WINDOW).run(|world| {
        let bytes = 24 << 20;
        let mut client = world.client();
        client.request("POST", "/file", &["Transfer-Encoding: chunked"]);
        let mut origin = world.receive("POST /file");
        let mut writer = client.stream.try_clone().unwrap();
        let sending = thread::spawn(move || {
            for part in body(bytes).chunks(100_000) {
                writer.write_all(&chunk(part)).unwrap();
            }
            writer.write_all(b"0\r\n\r\n").unwrap();
        });
        let held = || world.objects().bytes - world.objects().free_bytes;
        world.until_still(held);
        assert!(held() <= WINDOW, "{} bytes are held", held());
        assert!(!sending.is_finished(), "all of it went somewhere");
        let mut read = Vec::new();
        loop {
            let part = origin.try_chunk().unwrap();
            if part.is_empty() {
                break;
            }
            assert!(held() <= WINDOW, "{} bytes are held", held());
            read.extend(part);
        }
        sending.join().unwrap();
        assert_bytes(&read, &body(bytes));
        origin.answers("200 OK", &[UNKEPT], "got it");
        assert_eq!(client.response().text(), "got it");
    });
}

/// An origin responds before it has the complete body, and closes: the client gets the response,
/// though it still sends.
#[test]
fn early_answer() {
    scenario().run(|world| {
        for framing in ["Content-Length: 50000000", "Transfer-Encoding: chunked"] {
            let mut client = world.client();
            client.request("POST", "/file", &[framing]);
            let mut origin = world.receive("POST /file");
            let sent =
                if framing.contains("chunked") { chunk(&body(100_000)) } else { body(100_000) };
            client.send(&sent);
            origin.take(50_000);
            origin.answers("413 Content Too Large", &[UNKEPT, "Connection: close"], "too large");
            drop(origin);
            client.send(&sent);
            let response = client.response();
            assert_eq!((response.status(), response.text()), (413, "too large"));
            assert_eq!(response.head.field("connection"), Some("close"));
            // The server reads the rest, so the client sees no reset.
            client.send(&sent);
            client.finish();
            assert_eq!(client.end(), End::Clean);
        }
    });
}

/// A long early response is sent while the client still sends its body.
#[test]
fn both_at_once() {
    scenario().run(|world| {
        let mut client = world.client();
        client.request("POST", "/file", &["Content-Length: 50000000"]);
        let mut origin = world.receive("POST /file");
        client.send(body(100_000));
        origin.take(10);
        origin.begins("200 OK", &[UNKEPT], 300_000);
        for from in (0..300_000).step_by(100_000) {
            origin.send(pattern(from, 100_000));
        }
        let response = client.response();
        assert_bytes(&response.body, &body(300_000));
        client.finish();
        assert_eq!(client.end(), End::Clean);
        origin.end_of_rest();
    });
}

/// A client disconnects in the middle of its body: the origin's connection breaks, and never ends
/// as if the body were complete.
#[test]
fn who_leaves() {
    scenario().run(|world| {
        for is_reset in [true, false] {
            let mut client = world.client();
            client.request("POST", "/file", &["Transfer-Encoding: chunked"]);
            let mut origin = world.receive("POST /file");
            client.send(chunk(b"some"));
            assert_eq!(origin.try_chunk().unwrap(), b"some");
            if is_reset {
                client.stop();
            } else {
                client.finish();
                client.is_refused(400);
            }
            assert_eq!(origin.try_chunk(), Err(Vec::new()));
        }
        world.until_counts("nothing is open", |it| it.origins_open == 0 && it.clients_open == 0);
    });
}

/// An origin that disconnects in the middle of a body: 502, and the request is not repeated.
#[test]
fn origin_leaves() {
    scenario().run(|world| {
        let mut client = world.client();
        client.request("POST", "/file", &["Content-Length: 1000000"]);
        let mut origin = world.receive("POST /file");
        client.send(body(100_000));
        origin.take(1000);
        origin.stop();
        let response = client.response();
        assert_eq!(response.status(), 502);
        client.finish();
        assert_eq!(client.end(), End::Clean);
        world.origin().is_idle();
    });
}

/// A client that stops in the middle of its body is given up after a timeout, with the origin's
/// connection.
#[test]
fn who_stops() {
    scenario().with(|it| it.patience.client_ms = 100).run(|world| {
        let mut client = world.client();
        client.request("POST", "/file", &["Content-Length: 100"]);
        let mut origin = world.receive("POST /file");
        client.send("some");
        assert_eq!(origin.take(4), b"some");
        origin.is_closed();
        client.end();
        world.until_counts("it was slow", |it| it.closed_slow == 1);
    });
}

/// For a slow client each byte restarts the timeout; while the origin computes its response, there
/// is no timeout for the client.
#[test]
fn who_is_slow() {
    scenario().with(|it| it.patience.client_ms = 700).run(|world| {
        let mut client = world.client();
        client.request("POST", "/file", &["Content-Length: 25"]);
        let mut origin = world.receive("POST /file");
        // Longer in total than one timeout.
        for _ in 0..25 {
            thread::sleep(Duration::from_millis(40));
            client.send("x");
            assert_eq!(origin.take(1), b"x");
        }
        thread::sleep(Duration::from_millis(900));
        origin.answers("200 OK", &[UNKEPT], "got it");
        assert_eq!(client.response().text(), "got it");
    });
}
