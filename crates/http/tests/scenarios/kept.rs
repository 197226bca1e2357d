//! Complete cached responses: ranges, conditions, only-if-cached, and revalidation by a 304.

use crate::support::{Client, Connection, Response, World, assert_bytes, body, pattern, scenario};

/// Short enough to be stored next to its headers, and too long for that.
const LENGTHS: [usize; 2] = [1_000, 200_000];
const FRESH: &str = "Cache-Control: max-age=3600";
const STALE: &str = "Cache-Control: max-age=0";
const ETAG: &str = "ETag: \"a\"";
const DATE: &str = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
const TYPE: &str = "Content-Type: video/x";

/// A client whose request caused a cached body of this length.
fn kept(world: &World, control: &str, bytes: usize) -> (Client, Connection) {
    let mut client = world.client();
    client.get("/film");
    let mut origin = world.receive("GET /film");
    origin.answers("200 OK", &[control, ETAG, DATE, TYPE], body(bytes));
    assert_bytes(&client.response().body, &body(bytes));
    (client, origin)
}

fn is_hit(response: &Response) -> bool {
    response.head.cache_status().contains("hit")
}

/// Ranges of a cached response: one, several in their order, a suffix, one past the end, and
/// invalid ones.
#[test]
fn parts() {
    for bytes in LENGTHS {
        scenario().loops(&[1, 2]).run(|world| {
            let (mut client, _origin) = kept(world, FRESH, bytes);
            for (range, first, last) in [
                ("0-0".to_owned(), 0, 0),
                ("10-19".to_owned(), 10, 19),
                (format!("{}-{}", bytes - 5, bytes + 5), bytes - 5, bytes - 1),
                ("-7".to_owned(), bytes - 7, bytes - 1),
                ("0-".to_owned(), 0, bytes - 1),
            ] {
                let part = client.fetch_with("/film", &[&format!("Range: bytes={range}")]);
                assert_eq!(part.status(), 206, "{range}");
                let said = format!("bytes {first}-{last}/{bytes}");
                assert_eq!(part.head.field("content-range"), Some(&said[..]));
                assert_bytes(&part.body, &pattern(first, last + 1 - first));
                assert!(is_hit(&part));
            }
            let several = client.fetch_with("/film", &["Range: bytes=500-509, 10-19,-1"]);
            assert_eq!(several.status(), 206);
            let of_parts = several.head.field("content-type").unwrap();
            let boundary = of_parts.strip_prefix("multipart/byteranges; boundary=").unwrap();
            let part = |first: usize, count: usize| {
                let range = format!("{first}-{}/{bytes}", first + count - 1);
                let head =
                    format!("\r\n--{boundary}\r\n{TYPE}\r\nContent-Range: bytes {range}\r\n\r\n");
                [head.as_bytes(), &pattern(first, count)].concat()
            };
            let end = format!("\r\n--{boundary}--\r\n").into_bytes();
            let expected = [part(500, 10), part(10, 10), part(bytes - 1, 1), end].concat();
            assert_bytes(&several.body, &expected);
            let behind = client.fetch_with("/film", &[&format!("Range: bytes={bytes}-")]);
            assert_eq!(behind.status(), 416);
            assert_eq!(behind.head.field("content-range"), Some(&format!("bytes */{bytes}")[..]));
            for fields in [["Range: lines=0-9"], ["Range: bytes=9-0"], ["Range: bytes=a-b"]] {
                let whole = client.fetch_with("/film", &fields);
                assert_eq!(whole.status(), 200, "{fields:?}");
                assert_bytes(&whole.body, &body(bytes));
            }
            // For HEAD a range has no meaning.
            client.request("HEAD", "/film", &["Range: bytes=0-9"]);
            let head = client.head();
            assert_eq!((head.status(), head.length()), (200, Some(bytes)));
            world.origin().is_idle();
        });
    }
}

/// Responses, their bytes, and how long the origin took are counted once each: of short bodies and
/// of long ones, for a miss, a hit, and a response of larder itself.
#[test]
fn responses_are_counted() {
    for bytes in LENGTHS {
        scenario().loops(&[1, 2]).run(|world| {
            let (mut client, _origin) = kept(world, FRESH, bytes);
            assert!(is_hit(&client.fetch_with("/film", &[])));
            let none = client.fetch_with("/none", &["Cache-Control: only-if-cached"]);
            assert_eq!(none.status(), 504);
            world.until_counts("all responses", |it| it.responses_2xx + it.responses_5xx == 3);
            let counts = world.server.counts();
            assert_eq!((counts.responses_2xx, counts.responses_5xx), (2, 1));
            assert_eq!((counts.received_bytes, counts.origin.count()), (bytes as u64, 1));
            // The headers of long bodies count with them.
            let sent = counts.sent_bytes - none.body.len() as u64;
            let twice = 2 * bytes as u64;
            assert!((twice..twice + 1_000).contains(&sent), "{sent}");
        });
    }
}

/// HEAD of a stale response revalidates it as GET would. After a 304 the client gets the cached
/// headers, which are fresh for GET; a new body replaces the cached one.
#[test]
fn head_of_what_is_stale() {
    for bytes in LENGTHS {
        scenario().loops(&[1, 2]).run(|world| {
            let (mut client, mut origin) = kept(world, STALE, bytes);
            client.request("HEAD", "/film", &[]);
            let received = origin.receive("GET /film");
            assert_eq!(received.field("if-none-match"), Some("\"a\""), "{received:?}");
            origin.answers("304 Not Modified", &[STALE, ETAG, "X-Seen: 1"], "");
            let head = client.head();
            assert_eq!((head.status(), head.length()), (200, Some(bytes)));
            assert_eq!(head.field("x-seen"), Some("1"));
            assert!(head.cache_status().contains("fwd=stale;fwd-status=304"), "{head:?}");

            // The client's own condition is evaluated against the refreshed response.
            client.request("HEAD", "/film", &["If-None-Match: \"a\""]);
            origin.receive("GET /film");
            origin.answers("304 Not Modified", &[STALE, ETAG, "X-Seen: 2"], "");
            assert_eq!(client.head().status(), 304);

            client.request("HEAD", "/film", &[]);
            origin.receive("GET /film");
            origin.answers("200 OK", &[FRESH, "ETag: \"b\""], body(2 * bytes));
            assert_eq!(client.head().length(), Some(2 * bytes));
            world.until_counts("it is kept", |it| it.kept == 4);
            let hit = client.fetch("/film");
            assert!(is_hit(&hit) && hit.head.field("etag") == Some("\"b\""), "{:?}", hit.head);
            assert_bytes(&hit.body, &body(2 * bytes));
            world.origin().is_idle();
        });
    }
}

/// A 304 with more fields in `Vary` than before does not tell which requests the cached response
/// matches. So the complete response is requested again, and selected by those fields. A 304 with
/// fewer fields, or none, is valid as usual.
#[test]
fn a_304_that_varies_otherwise() {
    for bytes in LENGTHS {
        scenario().loops(&[1, 2]).run(|world| {
            let (mut client, mut origin) = kept(world, STALE, bytes);
            client.request("GET", "/film", &["Accept: a"]);
            origin.receive("GET /film");
            origin.answers("304 Not Modified", &[FRESH, ETAG, "Vary: Accept"], "");
            let mut known = Vec::new();
            for word in ["a", "b"] {
                if word == "b" {
                    client.request("GET", "/film", &["Accept: b"]);
                }
                let mut origin = world.with_request(&mut known);
                let received = origin.receive("GET /film");
                assert_eq!(received.field("accept"), Some(word));
                assert!(!received.has("if-none-match"), "{received:?}");
                origin.answers("200 OK", &[STALE, "ETag: \"c\"", "Vary: Accept"], word);
                assert_eq!(client.response().text(), word);
                known.push(origin);
            }
            client.request("GET", "/film", &["Accept: a"]);
            let mut origin = world.with_request(&mut known);
            assert_eq!(origin.receive("GET /film").field("if-none-match"), Some("\"c\""));
            origin.answers("304 Not Modified", &[FRESH, "Vary:"], "");
            assert_eq!(client.response().text(), "a");
            let hit = client.fetch_with("/film", &["Accept: a"]);
            assert!(is_hit(&hit) && hit.text() == "a", "{hit:?}");
        });
    }
}
