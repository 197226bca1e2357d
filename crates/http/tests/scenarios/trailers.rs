//! Fields after a chunked body.

use std::fmt::Write as _;

use crate::support::{Client, KEPT, UNKEPT, assert_bytes, body, chunk, pattern, scenario};

const BYTES: usize = 100_000;
const TAKES: &str = "TE: trailers";
/// Some that are forwarded, and some that are not allowed.
const TRAILERS: &str =
    "X-Sum: abc\r\nContent-Length: 7\r\nSet-Cookie: a=b\r\nX-Took:5\r\nHost: b.example\r\n";
const LEFT: [&str; 2] = ["X-Sum: abc", "X-Took: 5"];

/// The chunks of a body, and the lines after the last one.
fn rest(client: &mut Client) -> (Vec<u8>, Vec<String>) {
    let mut bytes = Vec::new();
    loop {
        // A chunk of no bytes is the last, with no line end of its own.
        let line = client.line();
        match usize::from_str_radix(&line, 16).unwrap() {
            0 => break,
            length => bytes.extend(client.take(length)),
        }
        assert_eq!(client.line(), "");
    }
    let lines = std::iter::from_fn(|| Some(client.line()).filter(|line| !line.is_empty()));
    (bytes, lines.collect())
}

/// Trailers reach only clients that accept them: of cacheable and uncacheable responses, for joined
/// clients too. Forbidden ones are dropped, and none is in the headers. A body that is complete
/// before its headers were sent has them too.
#[test]
fn of_responses() {
    for control in [KEPT, UNKEPT] {
        scenario().loops(&[1, 2]).run(move |world| {
            for is_quick in [false, true] {
                let path = format!("/film/{is_quick}");
                let mut client = world.client();
                client.request("GET", &path, &[TAKES]);
                let mut origin = world.origin().accept();
                let received = origin.receive(&format!("GET {path}"));
                assert_eq!(received.field("te"), Some("trailers"));
                assert_eq!(received.field("connection"), Some("TE"));
                let framing = "Trailer: X-Sum\r\nTransfer-Encoding: chunked";
                let head = format!("HTTP/1.1 200 OK\r\n{control}\r\n{framing}\r\n\r\n");
                let last = ["0\r\n", TRAILERS, "\r\n"].concat();
                let mut others = Vec::new();
                if is_quick {
                    origin.send([head.as_bytes(), &chunk(&body(BYTES)), last.as_bytes()].concat());
                } else {
                    origin.send([head.as_bytes(), &chunk(&body(1_000))].concat());
                }
                let head = client.head();
                assert!(head.is_chunked() && !head.has("x-sum"), "{head:?}");
                if !is_quick {
                    if control == KEPT {
                        for fields in [&[TAKES][..], &[], &["TE: gzip"]] {
                            let mut other = world.client();
                            other.request("GET", &path, fields);
                            let head = other.head();
                            assert!(head.is_chunked(), "{head:?}");
                            others.push((other, fields == [TAKES]));
                        }
                    }
                    origin.send(chunk(&pattern(1_000, BYTES - 1_000)));
                    origin.send(last);
                }
                for (client, takes) in
                    others.iter_mut().map(|(it, takes)| (it, *takes)).chain([(&mut client, true)])
                {
                    let (bytes, lines) = rest(client);
                    assert_bytes(&bytes, &body(BYTES));
                    assert_eq!(lines, if takes { &LEFT[..] } else { &[] });
                }
                // The connection stays open, and the cached response has no trailers.
                if control == KEPT {
                    let kept = client.fetch_with(&path, &[TAKES]);
                    assert!(kept.head.cache_status().contains("hit"), "{kept:?}");
                    assert_bytes(&kept.body, &body(BYTES));
                }
                client.stop();
            }
        });
    }
}

/// An empty body may have trailers; HTTP/1.0 has none. A body with too many trailers, or without
/// any, ends as usual.
#[test]
fn odd_ones() {
    scenario().run(|world| {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut many = String::new();
        (0..33).for_each(|at| write!(many, "A{at}: b\r\n").unwrap());
        for (body, expected, count) in [
            ("", "", 1),
            ("3\r\nabc\r\n", "abc", 1),
            ("3\r\nabc\r\n", "abc", 0),
            ("3\r\nabc\r\n", "abc", 33),
        ] {
            let lines = match count {
                0 => "",
                1 => "A: b\r\n",
                _ => &many,
            };
            let bytes = format!("{chunked}{body}0\r\n{lines}\r\n");
            let mut client = world.client();
            client.request("GET", "/page", &[TAKES]);
            let mut origin = world.receive("GET /page");
            origin.send(&bytes);
            let head = client.head();
            if count != 1 {
                assert_eq!(client.try_body(&head).unwrap(), expected.as_bytes());
            } else {
                let (bytes, lines) = rest(&mut client);
                assert_eq!(bytes, expected.as_bytes());
                assert_eq!(lines, ["A: b"]);
            }
            client.stop();
            drop(origin);

            let mut old = world.client();
            old.send("GET /page HTTP/1.0\r\nHost: a.example\r\nTE: trailers\r\n\r\n");
            let mut origin = world.origin().accept();
            assert!(!origin.receive("GET /page").has("te"));
            origin.send(&bytes);
            assert_eq!(old.response().text(), expected);
        }
    });
}

/// Trailers of a request body are forwarded to the origin, without forbidden ones.
#[test]
fn of_requests() {
    scenario().run(|world| {
        let mut client = world.client();
        client.request("POST", "/form", &["Transfer-Encoding: chunked", "Trailer: X-Sum"]);
        client.send(chunk(b"abc"));
        let mut origin = world.origin().accept();
        let head = origin.receive("POST /form");
        assert!(head.is_chunked() && !head.has("x-sum"), "{head:?}");
        assert_eq!(origin.take(8), chunk(b"abc"));
        client.send(
            ["0\r\n", TRAILERS, "\r\nGET /next HTTP/1.1\r\nHost: a.example\r\n\r\n"].concat(),
        );
        let lines: Vec<String> = (0..4).map(|_| origin.line()).collect();
        assert_eq!(lines, ["0", LEFT[0], LEFT[1], ""]);
        origin.answers("204 No Content", &[], "");
        assert_eq!(client.response().status(), 204);
        origin.receive("GET /next");
        origin.answers("200 OK", &[UNKEPT], "next");
        assert_eq!(client.response().text(), "next");
    });
}
