use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use larder_http_tls::{Limits, Trust};

use larder_testkit::tls::Identity;

use super::world::{World, answer, head, origin};

/// Sends a request in the clear, and reads to the connection's end.
fn request(world: &World, path: &str) -> String {
    let mut client = world.clear();
    let bytes = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    client.write_all(bytes.as_bytes()).unwrap();
    let mut answer = String::new();
    // A reset is an end too.
    let _ = client.read_to_string(&mut answer);
    answer
}

/// An origin over TLS receives requests on a connection that is reused. A response that ends with
/// `close_notify` is complete and cached. One without is not cached, and its client sees no clean
/// end. Invariant 1 of `http-tls`.
#[test]
fn origins_over_tls() {
    let made = Identity::new("origin.example");
    let (address, requests) = origin(
        |head, stream| {
            let bytes = match head.split(' ').nth(1).unwrap() {
                "/cut" => "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\nabc".to_owned(),
                _ => answer("Cache-Control: no-store\r\n", "x"),
            };
            // A closure that returns false drops the stream, without a `close_notify`.
            stream.write_all(bytes.as_bytes()).is_ok() && !head.contains("/cut")
        },
        Some(made.server(&[])),
    );
    let trust = Trust::File(made.chain());
    let origins = vec![(address, Some("origin.example"))];
    let world = World::with(origins, Limits::default(), trust, |_| ());
    for _ in 0..3 {
        assert!(request(&world, "/").ends_with("\r\n\r\nx"));
    }
    assert_eq!(world.count("tls_origin_handshakes"), 1);
    for round in 1..3 {
        let answer = request(&world, "/cut");
        assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
        world.until("a cut", |world| world.count("tls_origin_cut") == round);
    }
    assert_eq!(requests.load(Ordering::SeqCst), 5);
}

/// An origin receives no request if its certificate is for another name, or if no trusted authority
/// signed it: 502, and counted. The same applies to an origin that is not there.
#[test]
fn unproven() {
    let (made, other) = (Identity::new("origin.example"), Identity::new("origin.example"));
    let answers = |_: &str, stream: &mut dyn super::world::Stream| {
        stream.write_all(answer("", "secret").as_bytes()).is_ok()
    };
    let (address, requests) = origin(answers, Some(made.server(&[])));
    for (name, trusts) in [("other.example", &made), ("origin.example", &other)] {
        let trust = Trust::File(trusts.chain());
        let world = World::with(vec![(address, Some(name))], Limits::default(), trust, |_| ());
        assert!(request(&world, "/").starts_with("HTTP/1.1 502 "));
        assert!(world.count("tls_origin_unproven") > 0);
        assert_eq!(world.count("tls_origin_handshakes"), 0);
    }
    assert_eq!(requests.load(Ordering::SeqCst), 0);
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let trust = Trust::File(made.chain());
    let origins = vec![(nowhere, Some("origin.example"))];
    let world = World::with(origins, Limits::default(), trust, |_| ());
    assert!(request(&world, "/").starts_with("HTTP/1.1 502 "));
    assert!(world.count("tls_origin_unreachable") > 0);
}

/// A body without a length is complete, and cached, if its origin sends `close_notify`.
#[test]
fn whole_until_close() {
    let made = Identity::new("origin.example");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let tls = made.server(&[]);
    let play = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut tls = rustls::ServerConnection::new(tls).unwrap();
        head(&mut rustls::Stream::new(&mut tls, &mut stream)).unwrap();
        let bytes = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\nabc";
        rustls::Stream::new(&mut tls, &mut stream).write_all(bytes).unwrap();
        tls.send_close_notify();
        while tls.wants_write() {
            tls.write_tls(&mut stream).unwrap();
        }
    });
    let trust = Trust::File(made.chain());
    let origins = vec![(address, Some("origin.example"))];
    let world = World::with(origins, Limits::default(), trust, |_| ());
    // The response has a length if the complete body is there before its headers are sent.
    let first = request(&world, "/");
    let ends = ["3\r\nabc\r\n0\r\n\r\n", "\r\n\r\nabc"];
    assert!(ends.iter().any(|end| first.ends_with(end)), "{first}");
    play.join().unwrap();
    // The origin is no longer there.
    assert!(request(&world, "/").ends_with("\r\n\r\nabc"));
    assert_eq!(world.count("tls_origin_cut"), 0);
}
