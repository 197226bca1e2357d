//! Flows that state one name, another one, the same again, or none, segment by segment.

use larder_testkit::hello::{self, extension, server_names, vector16 as vector};

use super::*;

const FIRST: u32 = u32::MAX - 40;

/// A ClientHello's body, with or without the extension of an encrypted one.
fn hello_body(version: [u8; 2], cookie: &[u8], name: &[u8], ech: bool) -> Vec<u8> {
    let mut extensions = vec![server_names(&[(0, name)])];
    extensions.extend(ech.then(|| extension(0xfe0d, &vector(&[7; 50]))));
    let middle = [&[0], cookie, &[0, 2, 0x13, 1, 1, 0]].concat();
    hello::hello_body(version, &middle, &extensions)
}

fn hello(name: &[u8]) -> Vec<u8> {
    hello::hello(name, false)
}

fn request(host: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n\r\n").into_bytes()
}

/// The statements of a flow whose initiator sends these segments, by their distance from its first
/// byte.
fn said(segments: &[(i32, &[u8])], has_syn: bool) -> OwnName {
    let mut budget = Budget::new(1 << 20);
    let mut own = OwnName::default();
    let seq_first = has_syn.then_some(FIRST);
    for &(distance, data) in segments {
        let seq = FIRST.wrapping_add_signed(distance);
        own.tcp(&Segment { seq, seq_first, data }, &mut budget);
    }
    own.finish(&mut budget);
    assert_eq!(budget.used_bytes(), 0);
    own
}

fn first_name(own: &OwnName) -> Option<String> {
    own.names().next().map(Name::to_string)
}

/// Text that is no host name (too long, an empty or too long label, an IP address) is logged with a
/// bounded length, and is no name.
#[test]
fn what_is_no_host_name_names_nothing() {
    let long = [b"a.".repeat(140), b"example".to_vec()].concat();
    let huge = b"x".repeat(5000);
    let label = [&[b'y'; 64][..], b".example"].concat();
    for text in
        [&long[..], &huge, &label, b"a..example", b"192.0.2.7", b"2001:db8::7", b"[2001:db8::7]"]
    {
        let own = said(&[(0, &hello(text))], true);
        let stated = own.server_name.as_ref().expect("it is logged");
        assert!(!stated.is_name && own.names().next().is_none());
        assert_eq!(stated.text.as_bytes(), &text[..text.len().min(NAME_BYTES_MAX)]);
        if text.len() < 1000 {
            let text = std::str::from_utf8(text).expect("ASCII");
            let own = said(&[(0, &request(text))], true);
            assert!(own.http_host.is_some() && own.names().next().is_none(), "{text}");
        }
    }
    let own = said(&[(0, &request("Www.Example:8080"))], true);
    assert_eq!(first_name(&own).as_deref(), Some("www.example"));
}

/// A false head that never reaches the server is followed by the true one in its place, in any
/// pieces: the two contradict each other.
#[test]
fn decoys_are_told() {
    let (decoy, other) = (hello(b"www.decoy.example"), hello(b"evil.example"));
    let alike = hello(b"www.truth.example");
    let (get, get_other) = (request("www.decoy.example"), request("evil.example"));
    let half = decoy.len() / 2;
    let mut pieces: Vec<(i32, &[u8])> = vec![(0, &decoy)];
    pieces.extend(other.chunks(20).zip(0..).map(|(piece, at)| (at * 20, piece)));
    let mut twice = vec![(0, &decoy[..]), (0, &decoy)];
    twice.push((0, &other));
    for (what, segments) in [
        ("longer or shorter", vec![(0, &decoy[..]), (0, &other)]),
        ("of one length", vec![(0, &decoy[..]), (0, &alike)]),
        ("in pieces", pieces),
        ("decoys twice", twice),
        (
            "in two halves, one of them false",
            vec![(0, &alike[..half]), (half as i32, &decoy[half..]), (half as i32, &alike[half..])],
        ),
        ("true half first", vec![(half as i32, &alike[half..]), (0, &decoy), (0, &alike)]),
        ("not TLS at all", vec![(0, &decoy[..]), (0, b"SSH-2.0-OpenSSH_9.6\r\n and more")]),
        ("HTTP", vec![(0, &get[..]), (0, &get_other)]),
        ("HTTP, then TLS", vec![(0, &get[..]), (0, &other)]),
        ("HTTP in pieces", vec![(0, &get[..]), (0, &get_other[..30]), (30, &get_other[30..])]),
        ("behind other bytes, at an old place", vec![(0, b"hello, "), (0, &decoy), (7, &other)]),
    ] {
        for has_syn in [true, false] {
            let own = said(&segments, has_syn);
            assert!(own.contradicts, "{what}, SYN {has_syn}: {own:?}");
        }
    }
}

/// A decoy before the stream's first byte is not read if the SYN was seen.
#[test]
fn old_bytes_do_not_name() {
    let (decoy, other) = (hello(b"www.decoy.example"), hello(b"evil.example"));
    let own = said(&[(-10_000, &decoy), (0, &other)], true);
    assert_eq!((first_name(&own).as_deref(), own.contradicts), (Some("evil.example"), false));
    let own = said(&[(-10_000, &decoy), (0, &other)], false);
    assert!(own.contradicts, "without a SYN nobody knows which of the two is old");
}

/// Heads that are sent again, whole or in other pieces, further requests, and bytes after the
/// responder answered change nothing.
#[test]
fn repeats_are_no_contradiction() {
    let (tls, get) = (hello(b"www.one.example"), request("one.example"));
    let post = b"POST /x HTTP/1.1\r\nHost: ONE.example:80\r\nContent-Length: 4\r\n\r\n";
    let end = get.len() as i32;
    let mut pieces: Vec<(i32, &[u8])> = vec![(0, &tls)];
    pieces.extend(tls.chunks(60).zip(0..).map(|(piece, at)| (at * 60, piece)));
    let connect = b"CONNECT one.example:443 HTTP/1.1\r\nHost: one.example:443\r\n\r\n";
    let behind = connect.len() as i32;
    for (what, segments) in [
        ("again", vec![(0, &tls[..]), (0, &tls)]),
        ("in pieces", pieces),
        ("from pieces", vec![(0, &tls[..50]), (50, &tls[50..]), (0, &tls)]),
        ("HTTP again", vec![(0, &get[..]), (0, &get), (end, b"GET")]),
        ("requests that follow", vec![(0, &get[..]), (end, post), (end + 70, b"body")]),
        ("CONNECT again", vec![(0, &connect[..]), (behind, &tls), (0, connect), (behind, &tls)]),
    ] {
        for has_syn in [true, false] {
            let own = said(&segments, has_syn);
            assert!(!own.contradicts, "{what}, SYN {has_syn}: {own:?}");
            assert!(first_name(&own).is_some(), "{what}");
        }
    }
    let mut budget = Budget::new(1 << 20);
    let mut own = OwnName::default();
    let segment = |data| Segment { seq: 5, seq_first: Some(5), data };
    own.tcp(&segment(&tls), &mut budget);
    assert!(own.awaits_reply() && !own.is_looking() && !own.is_done());
    own.replied(&mut budget);
    assert!(own.is_done() && !own.awaits_reply());
    own.tcp(&segment(&hello(b"evil.example")), &mut budget);
    assert!(!own.contradicts);
}

/// Watching ends after some segments, also if the responder is never seen.
#[test]
fn watching_is_bounded() {
    let mut budget = Budget::new(1 << 20);
    let mut own = OwnName::default();
    let tls = hello(b"www.one.example");
    for count in 0..=u32::from(WATCH_MAX) {
        assert!(!own.is_done(), "{count}");
        let seq = 5 + count * 1000;
        let data: &[u8] = if count == 0 { &tls } else { &[0; 1000] };
        own.tcp(&Segment { seq, seq_first: Some(5), data }, &mut budget);
    }
    assert!(own.is_done());
    // Repeated comparisons of a stream are bounded by the same number.
    let own = said(&[(0, &tls[..]); 300], true);
    assert!(!own.contradicts);
}

/// Two Host fields, or a Host that differs from the target, contradict each other. The target
/// counts, and the other name is kept. It does not matter in which segment the second comes.
#[test]
fn two_hosts() {
    for (head, name, other) in [
        (
            "GET / HTTP/1.1\r\nHost: a.example\r\nX: y\r\nHost: b.example\r\n\r\n",
            "a.example",
            Some("b.example"),
        ),
        (
            "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "a.example",
            Some("b.example"),
        ),
        (
            "CONNECT a.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n",
            "a.example",
            Some("b.example"),
        ),
        ("GET / HTTP/1.1\r\nHost: a.example\r\nHost: 192.0.2.1\r\n\r\n", "a.example", None),
        (
            "GET / HTTP/1.1\r\nHost: a.example\r\nHost: A.example\r\nHost: b.example\r\n\r\n",
            "a.example",
            Some("b.example"),
        ),
    ] {
        let head = head.as_bytes();
        for cut in [head.len(), head.len() - 9, 40] {
            let (first, second) = head.split_at(cut.min(head.len()));
            let own = said(&[(0, first), (cut as i32, second)], true);
            assert!(own.contradicts, "{} {cut}", head.escape_ascii());
            assert_eq!(first_name(&own).as_deref(), Some(name));
            assert_eq!(own.other.as_ref().map(Name::to_string).as_deref(), other);
        }
    }
    for head in [
        "GET / HTTP/1.1\r\nHost: a.example\r\nHost: A.EXAMPLE:80\r\n\r\n",
        "GET http://A.example:80/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\n\r\nHost: b.example\r\n\r\n",
    ] {
        let own = said(&[(0, head.as_bytes())], true);
        assert!(!own.contradicts, "{head:?}");
    }
}

/// TLS, HTTP and HTTP/2 are read after a PROXY header of either version, in any pieces.
#[test]
fn behind_a_proxy_header() {
    let v2 = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &[7; 12]].concat();
    let v1 = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n".to_vec();
    let literal = [&[0x01, 10][..], b"pp.example"].concat();
    let h2 = [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x0c\x01\x04\0\0\0\x01"[..],
        &literal,
    ]
    .concat();
    for header in [Vec::new(), v1, v2] {
        for (head, app) in [
            (hello(b"pp.example"), App::Tls),
            (request("pp.example"), App::Http),
            (h2.clone(), App::Http),
        ] {
            let stream = [&header[..], &head].concat();
            for step in [stream.len(), header.len().max(1), 9] {
                let segments: Vec<(i32, &[u8])> = stream
                    .chunks(step)
                    .zip(0..)
                    .map(|(piece, at)| (at * step as i32, piece))
                    .collect();
                let own = said(&segments, true);
                assert_eq!(first_name(&own).as_deref(), Some("pp.example"), "{step}");
                assert_eq!((own.app, own.contradicts), (Some(app), false));
            }
        }
    }
}

/// A datagram of DTLS with a whole hello.
fn dtls(number: u8, cookie: &[u8], name: &[u8]) -> Vec<u8> {
    let cookie = [&[cookie.len() as u8][..], cookie].concat();
    let body = hello_body([0xfe, 0xfd], &cookie, name, true);
    let len = [0, (body.len() >> 8) as u8, body.len() as u8];
    let message = [&[1][..], &len, &[0, number, 0, 0, 0], &len, &body].concat();
    [&[22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, number][..], &vector(&message)].concat()
}

/// A flow of DTLS is named; the second hello, with the cookie, states the same or contradicts.
#[test]
fn datagrams() {
    for (second, contradicts) in [(&b"dtls.example"[..], false), (b"evil.example", true)] {
        let mut budget = Budget::new(1 << 20);
        let mut own = OwnName::default();
        own.udp(&dtls(0, b"", b"dtls.example"), &mut budget);
        assert!(own.awaits_reply());
        own.udp(&dtls(1, b"cookie", second), &mut budget);
        assert_eq!(own.contradicts, contradicts);
        assert_eq!(first_name(&own).as_deref(), Some("dtls.example"));
        assert_eq!((own.app, own.ech), (Some(App::Dtls), Some(true)));
        own.finish(&mut budget);
        assert_eq!(budget.used_bytes(), 0);
    }
    let mut budget = Budget::new(1 << 20);
    let mut own = OwnName::default();
    own.udp(b"something else", &mut budget);
    assert!(own.is_done());
}
