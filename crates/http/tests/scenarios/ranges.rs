//! Ranges of a body in transit.

use crate::support::{Connection, KEPT, World, answer, assert_bytes, body, pattern, scenario};

const BYTES: usize = 200_000;
const FIRST: usize = 100_000;
const ETAG: &str = "ETag: \"a\"";

/// A body of which half has arrived.
fn half(world: &World) -> Connection {
    let mut leader = world.client();
    leader.get("/film");
    let mut origin = world.receive("GET /film");
    origin.begins("200 OK", &[KEPT, ETAG, "Content-Type: video/x"], BYTES);
    origin.send(body(FIRST));
    leader.head();
    // The first client has disconnected; the fetch continues.
    origin
}

/// A range that has arrived is sent at once, and a later one as soon as it arrives. A range that
/// begins before the end of the arrived bytes is sent as it arrives.
#[test]
fn as_it_comes() {
    scenario().loops(&[1, 2]).run(|world| {
        let mut origin = half(world);
        let mut there = world.client();
        let part = there.fetch_with("/film", &["Range: bytes=1000-1999"]);
        assert_eq!(part.status(), 206);
        assert_eq!(part.head.field("content-range"), Some("bytes 1000-1999/200000"));
        assert_bytes(&part.body, &pattern(1000, 1000));

        let mut later = world.client();
        later.request("GET", "/film", &["Range: bytes=150000-150099"]);
        assert_eq!(later.head().field("content-range"), Some("bytes 150000-150099/200000"));
        let mut both = world.client();
        both.request("GET", "/film", &["Range: bytes=99000-"]);
        assert_eq!(both.head().length(), Some(BYTES - 99_000));
        assert_bytes(&both.take(1000), &pattern(99_000, 1000));
        let mut last = world.client();
        last.request("GET", "/film", &["Range: bytes=-10"]);
        assert_eq!(last.head().field("content-range"), Some("bytes 199990-199999/200000"));

        origin.send(pattern(FIRST, 60_000));
        assert_bytes(&later.take(100), &pattern(150_000, 100));
        assert_bytes(&both.take(60_000), &pattern(FIRST, 60_000));
        origin.send(pattern(160_000, 40_000));
        assert_bytes(&both.take(40_000), &pattern(160_000, 40_000));
        assert_bytes(&last.take(10), &pattern(199_990, 10));
        assert_bytes(&later.fetch("/film").body, &body(BYTES));
        world.origin().is_idle();
    });
}

/// A range with spaces around its unit is invalid: another parser might read another range.
#[test]
fn spaces_around_the_unit() {
    scenario().run(|world| {
        world.origin().answers_by(|_| answer("200 OK", &[KEPT], body(BYTES)));
        let mut client = world.client();
        client.fetch("/film");
        for range in ["bytes = 0-1", "bytes =0-1", "bytes\t=0-1"] {
            let response = client.fetch_with("/film", &[&format!("Range: {range}")]);
            assert_eq!(response.status(), 200, "{range}");
            assert_bytes(&response.body, &body(BYTES));
        }
        assert_eq!(client.fetch_with("/film", &["Range: bytes=0-1"]).status(), 206);
    });
}

/// Several ranges come in the requested order, also if the first one arrives last.
#[test]
fn several() {
    scenario().run(|world| {
        let mut origin = half(world);
        let mut client = world.client();
        client.request("GET", "/film", &["Range: bytes=150000-150009, 10-19"]);
        let head = client.head();
        assert_eq!(head.status(), 206);
        let boundary = head.field("content-type").unwrap().strip_prefix("multipart/byteranges; boundary=");
        let boundary = boundary.unwrap().to_owned();
        origin.send(pattern(FIRST, BYTES - FIRST));
        let part = |first: usize| {
            let range = format!("{first}-{}", first + 9);
            let head = format!(
                "\r\n--{boundary}\r\nContent-Type: video/x\r\nContent-Range: bytes {range}/{BYTES}\r\n\r\n"
            );
            [head.as_bytes(), &pattern(first, 10)].concat()
        };
        let end = format!("\r\n--{boundary}--\r\n").into_bytes();
        let expected = [part(150_000), part(10), end].concat();
        assert_eq!(head.length(), Some(expected.len()));
        assert_bytes(&client.take(expected.len()), &expected);
    });
}

/// `If-Range` is compared with the tag of the response in transit. A range past the end gets 416;
/// one with an unknown unit is ignored.
#[test]
fn conditions() {
    scenario().run(|world| {
        let mut origin = half(world);
        let mut client = world.client();
        let same = client.fetch_with("/film", &["Range: bytes=0-9", "If-Range: \"a\""]);
        assert_eq!((same.status(), same.body.len()), (206, 10));
        let behind = client.fetch_with("/film", &["Range: bytes=200000-"]);
        assert_eq!(behind.status(), 416);
        assert_eq!(behind.head.field("content-range"), Some("bytes */200000"));
        let known = client.fetch_with("/film", &["If-None-Match: \"a\""]);
        assert_eq!(known.status(), 304);
        let mut wholes = Vec::new();
        for fields in [
            &["Range: bytes=0-9", "If-Range: \"b\""][..],
            &["Range: lines=0-9"],
            &["Range: bytes=9-0"],
        ] {
            let mut client = world.client();
            client.request("GET", "/film", fields);
            assert_eq!(client.head().status(), 200, "{fields:?}");
            wholes.push(client);
        }
        origin.send(pattern(FIRST, BYTES - FIRST));
        wholes.iter_mut().for_each(|it| assert_bytes(&it.take(BYTES), &body(BYTES)));
    });
}

/// The first client requests a range and gets it; the origin gets one request for the complete
/// body.
#[test]
fn the_first_request_is_for_a_part() {
    scenario().run(|world| {
        let mut client = world.client();
        client.request("GET", "/film", &["Range: bytes=10-19"]);
        let mut origin = world.origin().accept();
        let received = origin.receive("GET /film");
        assert!(!received.has("range"), "{received:?}");
        origin.begins("200 OK", &[KEPT], BYTES);
        origin.send(body(100));
        let part = client.response();
        assert_eq!((part.status(), part.body), (206, pattern(10, 10)));
        origin.send(pattern(100, BYTES - 100));
        assert_bytes(&client.fetch("/film").body, &body(BYTES));
    });
}

/// While the length of a body is unknown, a range request gets the complete body; once it is
/// complete, ranges work.
#[test]
fn unknown_length() {
    scenario().run(|world| {
        let mut client = world.client();
        client.request("GET", "/film", &["Range: bytes=10-19"]);
        let mut origin = world.receive("GET /film");
        origin.begins_chunks("200 OK", &[KEPT]);
        origin.sends_chunk(&body(FIRST));
        let head = client.head();
        assert!(head.status() == 200 && head.is_chunked(), "{head:?}");
        origin.send("0\r\n\r\n");
        assert_bytes(&client.try_body(&head).unwrap(), &body(FIRST));
        let part = client.fetch_with("/film", &["Range: bytes=10-19"]);
        assert_eq!((part.status(), part.body), (206, pattern(10, 10)));
    });
}

/// A range breaks if the body breaks before the range arrived; one that arrived before is complete.
#[test]
fn of_what_breaks() {
    scenario().run(|world| {
        let mut origin = half(world);
        let mut client = world.client();
        client.request("GET", "/film", &["Range: bytes=150000-150099"]);
        let head = client.head();
        assert_eq!(head.status(), 206);
        origin.send(pattern(FIRST, 10_000));
        let there = world.client().fetch_with("/film", &["Range: bytes=105000-105099"]);
        assert_bytes(&there.body, &pattern(105_000, 100));
        drop(origin);
        assert_eq!(client.broken_body(&head), b"");
    });
}
