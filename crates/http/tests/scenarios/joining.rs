//! Clients that join a response in transit.

use crate::support::{KEPT, answer, assert_bytes, body, chunk, pattern, scenario};

const BYTES: usize = 256 << 10;
const FIRST: usize = 64 << 10;

/// A second client joins while the origin is still sending. Both get the first bytes before the
/// origin sends the rest, and the origin gets one request.
#[test]
fn second_client_joins() {
    scenario().loops(&[1, 2]).run(|world| {
        let mut first = world.client();
        first.get("/film");
        let mut origin = world.receive("GET /film");
        origin.begins("200 OK", &[KEPT], BYTES);
        origin.send(pattern(0, FIRST));
        let head = first.head();
        assert_eq!((head.status(), head.length()), (200, Some(BYTES)));
        assert_bytes(&first.take(FIRST), &body(FIRST));
        // Enough clients that each event loop has some.
        let mut others = world.clients(12);
        for other in &mut others {
            other.get("/film");
            assert_eq!(other.head().length(), Some(BYTES));
            assert_bytes(&other.take(FIRST), &body(FIRST));
        }
        origin.send(pattern(FIRST, BYTES - FIRST));
        for client in others.iter_mut().chain([&mut first]) {
            assert_bytes(&client.take(BYTES - FIRST), &pattern(FIRST, BYTES - FIRST));
        }
        world.until_counts("all are counted", |it| it.misses == 1 && it.collapsed == 12);
        world.origin().is_idle();
        let again = first.fetch("/film");
        assert!(again.head.cache_status().contains("hit"), "{again:?}");
        assert_bytes(&again.body, &body(BYTES));
    });
}

/// Bodies of many lengths that arrive at once are complete, in any read sizes.
#[test]
fn all_at_once() {
    scenario().run(|world| {
        world.origin().answers_by(|head| {
            let path = head.line.split(' ').nth(1).unwrap();
            let (kind, bytes) = path[1..].split_once('/').unwrap();
            let body = body(bytes.parse().unwrap());
            if kind == "length" {
                return answer("200 OK", &[KEPT], body);
            }
            let head = format!("HTTP/1.1 200 OK\r\n{KEPT}\r\nTransfer-Encoding: chunked\r\n\r\n");
            let chunks = body.chunks(100_000).map(chunk).collect::<Vec<_>>().concat();
            [head.into_bytes(), chunks, b"0\r\n\r\n".to_vec()].concat()
        });
        let mut client = world.client();
        for bytes in (100_000..1_500_000).step_by(70_000) {
            for kind in ["length", "chunks"] {
                assert_bytes(&client.fetch(&format!("/{kind}/{bytes}")).body, &body(bytes));
            }
        }
    });
}

/// A client that comes just as a body ends gets it, by a join or from the cache.
#[test]
fn as_it_ends() {
    scenario().loops(&[1, 2]).run(|world| {
        let (mut first, mut client) = (world.client(), world.client());
        // The first client's event loop has one connection to the origin.
        let mut origin = None;
        for number in 0..200 {
            let path = format!("/film/{number}");
            first.get(&path);
            let origin = origin.get_or_insert_with(|| world.origin().accept());
            origin.receive(&format!("GET {path}"));
            origin.begins("200 OK", &[KEPT], BYTES);
            origin.send(pattern(0, BYTES - 1));
            first.head();
            origin.send(pattern(BYTES - 1, 1));
            client.get(&path);
            assert_bytes(&client.response().body, &body(BYTES));
            assert_bytes(&first.take(BYTES), &body(BYTES));
        }
        world.origin().is_idle();
    });
}
