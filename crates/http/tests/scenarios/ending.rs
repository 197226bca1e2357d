//! The end of the server: it finishes responses that it has begun.

use std::net::TcpStream;

use crate::support::{End, KEPT, UNKEPT, assert_bytes, body, pattern, scenario};

const BYTES: usize = 200_000;
const FIRST: usize = 50_000;

/// The server closes connections without a request, accepts no new ones, and finishes a body in
/// transit.
#[test]
fn drains() {
    scenario().with(|it| it.patience.drain_idle_ms = 100).loops(&[1, 2]).run(|world| {
        let mut idle = world.clients(4);
        let mut reading = world.client();
        reading.get("/film");
        let mut origin = world.receive("GET /film");
        origin.begins("200 OK", &[KEPT], BYTES);
        origin.send(pattern(0, FIRST));
        reading.head();
        reading.take(FIRST);
        let mut waiting = world.client();
        waiting.get("/own");
        let mut second = world.receive("GET /own");
        world.server.drain();
        for client in &mut idle {
            assert_eq!(client.end(), End::Clean);
        }
        world.until("nobody listens", || TcpStream::connect(world.address()).is_err());
        second.answers("200 OK", &[UNKEPT], "own");
        let response = waiting.response();
        assert_eq!((response.text(), response.head.field("connection")), ("own", Some("close")));
        assert_eq!(waiting.end(), End::Clean);
        assert!(!world.server.has_ended());
        origin.send(pattern(FIRST, BYTES - FIRST));
        assert_bytes(&reading.take(BYTES - FIRST), &pattern(FIRST, BYTES - FIRST));
        assert_eq!(reading.end(), End::Clean);
        world.until("all loops have ended", || world.server.has_ended());
    });
}

/// When the server ends, a keep-alive client gets one more response, with `Connection: close`:
/// before its first request, between two, and after one in flight.
#[test]
fn answers_once_more() {
    scenario().with(|it| it.patience.drain_idle_ms = 60_000).loops(&[1, 2]).run(|world| {
        let mut clients = world.clients(3);
        clients[0].get("/page");
        let mut origin = world.receive("GET /page");
        origin.answers("200 OK", &[KEPT], "page");
        clients[0].response();
        clients[1].get("/film");
        let mut second = world.with_request(&mut vec![origin]);
        second.receive("GET /film");
        second.begins("200 OK", &[KEPT], BYTES);
        clients[1].head();
        world.server.drain();
        world.until("nobody listens", || TcpStream::connect(world.address()).is_err());
        second.send(body(BYTES));
        assert_bytes(&clients[1].take(BYTES), &body(BYTES));
        for client in &mut clients {
            let response = client.fetch("/page");
            assert_eq!(response.text(), "page");
            assert_eq!(response.head.field("connection"), Some("close"));
            assert_eq!(client.end(), End::Clean);
        }
        world.until("all loops have ended", || world.server.has_ended());
    });
}

/// An event loop without clients keeps running while those of another one read what it fetches.
#[test]
fn for_others() {
    scenario().with(|it| it.patience.drain_idle_ms = 100).loops(&[2]).run(|world| {
        // The first client is on one of the event loops, and disconnects. Of the others some are on
        // the other event loop.
        let mut first = world.client();
        first.get("/film");
        let mut origin = world.receive("GET /film");
        origin.begins("200 OK", &[KEPT], BYTES);
        origin.send(pattern(0, FIRST));
        first.head();
        let mut others = world.clients(2);
        for other in &mut others {
            other.get("/film");
            other.head();
            assert_bytes(&other.take(FIRST), &body(FIRST));
        }
        first.stop();
        world.until_counts("it has left", |it| it.clients_open == 2);
        world.server.drain();
        world.until("nobody listens", || TcpStream::connect(world.address()).is_err());
        origin.send(pattern(FIRST, BYTES - FIRST));
        for other in &mut others {
            assert_bytes(&other.take(BYTES - FIRST), &pattern(FIRST, BYTES - FIRST));
            assert_eq!(other.end(), End::Clean);
        }
        world.until("all loops have ended", || world.server.has_ended());
    });
}

/// A hurried end stops at once; bodies in transit are aborted, and clients can see that.
#[test]
fn hurried() {
    scenario().loops(&[1, 2]).run(|world| {
        let mut reading = world.client();
        reading.get("/film");
        let mut origin = world.receive("GET /film");
        origin.begins("200 OK", &[KEPT], BYTES);
        origin.send(pattern(0, FIRST));
        let head = reading.head();
        reading.take(FIRST);
        world.server.drain();
        world.server.hurry();
        world.until("all loops have ended", || world.server.has_ended());
        assert_eq!(reading.broken_body(&head), b"");
        origin.is_closed();
    });
}
