//! Hellos of every shape. The builders serve the tests of QUIC as well.

pub(crate) use larder_testkit::hello::{extension, server_names as sni};
use larder_testkit::hello::{handshake, hello_body, record};

use super::*;

pub(crate) fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
    handshake(1, &hello_body([3, 3], &[0, 0, 4, 0x0a, 0x0a, 0x13, 0x01, 1, 0], extensions))
}

fn found(bytes: &[u8]) -> ClientHello<'_> {
    match client_hello(bytes) {
        Hello::Found(hello) => hello,
        other => panic!("{other:?}"),
    }
}

fn usual() -> Vec<u8> {
    message(&[
        extension(0x2a2a, &[]),
        extension(EXTENSION_ALPN, b"\0\x0c\x02h2\x08http/1.1"),
        sni(&[(0, b"www.Example.com")]),
        extension(EXTENSION_ENCRYPTED_CLIENT_HELLO, &[0; 100]),
    ])
}

/// All fields of a hello are found, borrowed, and every prefix of it needs more bytes.
#[test]
fn usual_hello() {
    let bytes = record(&usual());
    let hello = found(&bytes);
    assert!(matches!(hello.server_name, Some(Cow::Borrowed(b"www.Example.com"))));
    assert_eq!(hello.alpn_first.as_deref(), Some(&b"h2"[..]));
    assert!(hello.ech);
    for len in 0..bytes.len() {
        assert_eq!(client_hello(&bytes[..len]), Hello::NeedMore, "{len} bytes");
    }
}

/// However the message is spread over records, also one byte each, the result is the same; too many
/// records are refused.
#[test]
fn spread_over_records() {
    let whole = usual();
    for step in [1, 2, 3, 5, 40, 100] {
        let bytes: Vec<u8> = whole.chunks(step).flat_map(record).collect();
        if whole.len().div_ceil(step) > RECORDS_MAX {
            assert_eq!(client_hello(&bytes), Hello::Malformed);
            continue;
        }
        let hello = found(&bytes);
        assert_eq!(hello.server_name.as_deref(), Some(&b"www.Example.com"[..]), "step {step}");
        for len in 0..bytes.len() {
            assert_eq!(client_hello(&bytes[..len]), Hello::NeedMore, "{len} bytes");
        }
    }
    let mut mixed = record(&whole[..50]);
    mixed.extend_from_slice(&[23, 3, 3, 0, 1, 0]);
    assert_eq!(client_hello(&mixed), Hello::Malformed);
    let empty_between = [record(&whole[..50]), record(&[]), record(&whole[50..])].concat();
    assert_eq!(client_hello(&empty_between), Hello::Malformed);
}

/// If a capture cuts the hello, a name before the cut is found, and none after it.
#[test]
fn cut_hello() {
    let name = b"www.Example.com";
    for bytes in [record(&usual()), usual().chunks(70).flat_map(record).collect()] {
        let mut names = 0;
        for len in 0..bytes.len() {
            match client_hello_cut(&bytes[..len]) {
                Hello::NeedMore => assert_eq!(names, 0),
                Hello::Found(hello) => {
                    assert_eq!(hello.server_name.as_deref(), Some(&name[..]));
                    names += 1;
                }
                other => panic!("{other:?} at {len}"),
            }
        }
        assert!(names >= 100, "the ECH extension follows the name");
    }
}

/// A stream that is no TLS client is recognized by its first bytes.
#[test]
fn not_tls() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x17\x03\x03\x00\x10",
        b"\x16\x03\x01\x00\x40\x02\x00\x00\x3c",
        b"\x16\x02\x01",
        b"\x16\x03\x01\x00\x00\x01",
        b"\x16\x03\x01\xff\xff\x01",
        b"\x80\x2e\x01\x03\x01",
    ] {
        assert_eq!(client_hello(bytes), Hello::NotTls, "{bytes:x?}");
    }
}

/// Only host_name names; the first of several counts; an empty extension is no name.
#[test]
fn server_names() {
    let first = record(&message(&[sni(&[(9, b"other"), (0, b"a.example"), (0, b"b.example")])]));
    assert_eq!(found(&first).server_name.as_deref(), Some(&b"a.example"[..]));
    for none in [message(&[]), message(&[extension(0, &[])]), message(&[sni(&[(1, b"x")])])] {
        assert_eq!(found(&record(&none)).server_name, None);
    }
}

/// Lengths that contradict each other, two names that do, and empty protocols name nothing.
#[test]
fn contradictions() {
    let mut long_list = sni(&[(0, b"a.example")]);
    long_list[5] += 1;
    let mut long_name = sni(&[(0, b"a.example")]);
    long_name[8] += 1;
    let mut odd_suites = message(&[sni(&[(0, b"a.example")])]);
    odd_suites[40] = 3;
    let mut trailing = message(&[sni(&[(0, b"a.example")])]);
    trailing.push(0);
    trailing[3] += 1;
    // The length of all extensions exceeds the bytes; the extensions are valid.
    let mut block_length = message(&[sni(&[(0, b"a.example")])]);
    block_length[48] += 1;
    let mut old_version = message(&[]);
    old_version[4] = 2;
    // The bytes of the random value become those of a session ID that is too long.
    let mut session_id = message(&[]);
    session_id.splice(38..39, std::iter::once(33).chain([0; 33]));
    session_id[3] += 33;
    let mut no_suites = message(&[]);
    no_suites.drain(41..45);
    no_suites[40] = 0;
    no_suites[3] -= 4;
    let mut no_compression = message(&[]);
    no_compression.remove(46);
    no_compression[45] = 0;
    no_compression[3] -= 1;
    for bytes in [block_length, old_version, session_id, no_suites, no_compression] {
        assert_eq!(client_hello(&record(&bytes)), Hello::Malformed, "{bytes:x?}");
    }
    for bytes in [
        message(&[long_list]),
        message(&[long_name]),
        message(&[sni(&[(0, b"a.example")]), sni(&[(0, b"b.example")])]),
        message(&[extension(EXTENSION_ALPN, &[])]),
        message(&[extension(EXTENSION_ALPN, b"\0\0")]),
        message(&[extension(EXTENSION_ALPN, b"\0\x01\0")]),
        message(&[extension(EXTENSION_ALPN, b"\0\x04\0\x02h2")]),
        odd_suites,
        trailing,
        vec![1, 0, 0x40, 0, 3, 3],
    ] {
        assert_eq!(client_hello(&record(&bytes)), Hello::Malformed, "{bytes:x?}");
    }
}

/// A hello of old, without extensions, is one without a name.
#[test]
fn no_extensions() {
    let whole = message(&[]);
    let mut bytes = whole[..whole.len() - 2].to_vec();
    bytes[3] -= 2;
    assert_eq!(found(&record(&bytes)), ClientHello::default());
    assert_eq!(hello_message(&bytes), Hello::Found(ClientHello::default()));
    assert_eq!(hello_message(&bytes[..9]), Hello::NeedMore);
    assert_eq!(hello_message(&[2, 0, 0, 0]), Hello::NotTls);
}
