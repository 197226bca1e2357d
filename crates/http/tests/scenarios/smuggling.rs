//! Attempts at request smuggling: each request is refused, its connection closed, and the origin
//! receives none.

use crate::support::{End, KEPT, answer, scenario};

const SMUGGLED: &str = "GET /admin HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// Lines after `POST / HTTP/1.1` and `Host`, and the bytes after the headers.
const FRAMINGS: &[(&str, &str)] = &[
    // Both, in any order and case.
    ("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", "0\r\n\r\n"),
    ("Content-Length: 0\r\ntransfer-encoding: chunked\r\n", "0\r\n\r\n"),
    ("Content-Length: 6\r\nTransfer-Encoding: identity\r\n", "abcdef"),
    ("Content-Length: 6\r\nTransfer-Encoding:\r\n", "abcdef"),
    // Codings that some parsers read as chunked and others do not.
    ("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", "0\r\n\r\n"),
    ("Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    ("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"),
    ("Transfer-Encoding: \u{b}chunked\r\n", "0\r\n\r\n"),
    ("Transfer-Encoding: chunked\u{b}\r\n", "0\r\n\r\n"),
    // Invalid lengths.
    ("Content-Length: 3\r\nContent-Length: 6\r\n", "abcdef"),
    ("Content-Length: 3, 6\r\n", "abcdef"),
    ("Content-Length: +3\r\n", "abc"),
    ("Content-Length: -1\r\n", "abc"),
    ("Content-Length: 0x3\r\n", "abc"),
    ("Content-Length: 3 3\r\n", "abc"),
    ("Content-Length: 18446744073709551619\r\n", "abc"),
    // Names that some parsers misread.
    ("Content-Length : 3\r\n", "abc"),
    ("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
    (" Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    ("X: a\r\n Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    ("X: a\r\n\tb\r\n", ""),
    ("Content\u{0}-Length: 3\r\n", "abc"),
    (": 3\r\n", ""),
    ("No colon\r\n", ""),
    // Invalid line ends.
    ("Content-Length: 3\nX: y\r\n", "abc"),
    ("X: a\rb\r\n", ""),
    ("X: a\r\r\nContent-Length: 3\r\n", "abc"),
    ("X: a\u{0}b\r\n", ""),
];

/// Complete headers.
const HEADS: &[&str] = &[
    // No host, several, or an invalid one.
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a.example\r\nhost: a.example\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a.example, b.example\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a.example/x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: user@a.example\r\n\r\n",
    "GET / HTTP/1.1\r\nHost : a.example\r\n\r\n",
    // Invalid request lines.
    "GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n",
    "GET / HTTP/1.1 \r\nHost: a.example\r\n\r\n",
    " GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
    "GET /\r\n\r\n",
    "GET / HTTP/1.1\nHost: a.example\n\n",
    "GET / HTTP/2.0\r\nHost: a.example\r\n\r\n",
    "GET / http/1.1\r\nHost: a.example\r\n\r\n",
    "GET a HTTP/1.1\r\nHost: a.example\r\n\r\n",
    "GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
    "GET http:///x HTTP/1.1\r\nHost: a.example\r\n\r\n",
    "GET /a b HTTP/1.1\r\nHost: a.example\r\n\r\n",
    "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
];

/// Each is refused with a status of at least 400, the connection is closed, and the bytes after it
/// are not read as a request.
#[test]
fn heads_are_refused() {
    scenario().run(|world| {
        world.origin().answers_by(|_| answer("200 OK", &[KEPT], "reached"));
        let framed = FRAMINGS.iter().map(|(lines, rest)| {
            format!("POST / HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n{rest}")
        });
        let all: Vec<String> = framed.chain(HEADS.iter().map(|it| (*it).to_owned())).collect();
        for bytes in &all {
            let mut client = world.client();
            client.send(format!("{bytes}{SMUGGLED}"));
            let head = client.try_head().unwrap_or_else(|| panic!("no answer to {bytes:?}"));
            assert!((400..600).contains(&head.status()), "{bytes:?}: {head:?}");
            assert_eq!(head.field("connection"), Some("close"), "{bytes:?}");
            client.try_body(&head).unwrap();
            client.finish();
            assert_eq!(client.end(), End::Clean, "{bytes:?}");
        }
        assert_eq!(world.origin().answered(), 0);
        world.until_counts("all are counted", |it| it.refused_requests == all.len() as u64);
    });
}

/// The authority of the target counts, whatever `Host` says: it is in the cache key, and the origin
/// gets it.
#[test]
fn one_authority() {
    scenario().run(|world| {
        world.origin().answers_by(|head| answer("200 OK", &[KEPT], head.field("host").unwrap()));
        let mut client = world.client();
        client.send("GET http://b.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.response().text(), "b.example");
        assert_eq!(client.fetch("/x").text(), "a.example");
        client.send("GET /x HTTP/1.1\r\nHost: B.example\r\n\r\n");
        let hit = client.response();
        assert!(hit.text() == "b.example" && hit.head.cache_status().contains("hit"), "{hit:?}");
    });
}

/// Bodies with invalid chunks: the client gets an error, and the origin's connection breaks before
/// a last chunk. Requests hidden in them reach no origin.
#[test]
fn chunks_are_refused() {
    let bodies = [
        "3\r\nabc0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3;a=b\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "-1\r\nabc\r\n0\r\n\r\n",
        "\r\nabc\r\n0\r\n\r\n",
        "g\r\nabc\r\n0\r\n\r\n",
        "3 \u{b}\r\nabc\r\n0\r\n\r\n",
        "10000000000000003\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabc\r\r\n0\r\n\r\n",
    ];
    scenario().run(move |world| {
        for body in bodies {
            let mut client = world.client();
            client.request("POST", "/", &["Transfer-Encoding: chunked"]);
            let mut origin = world.receive("POST /");
            client.send(format!("{body}{SMUGGLED}"));
            let response = client.response();
            assert_eq!(response.status(), 400, "{body:?}: {response:?}");
            client.finish();
            assert_eq!(client.end(), End::Clean, "{body:?}");
            loop {
                match origin.try_chunk() {
                    Ok(chunk) => assert_eq!(chunk, b"abc", "{body:?}"),
                    Err(rest) => break assert!(b"abc".starts_with(&rest), "{body:?}: {rest:?}"),
                }
            }
        }
        world.origin().is_idle();
    });
}

/// A response that could be read in two ways is invalid.
#[test]
fn responses_are_refused() {
    let heads = [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 20 OK\r\nContent-Length: 3\r\n\r\nabc",
    ];
    scenario().run(move |world| {
        let mut client = world.client();
        for head in heads {
            client.get("/");
            let mut origin = world.receive("GET /");
            origin.send(head);
            assert_eq!(client.response().status(), 502, "{head:?}");
            origin.is_closed();
        }
    });
}
