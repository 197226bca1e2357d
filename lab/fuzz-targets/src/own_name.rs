//! Names that a client states: TLS, DTLS and HTTP. A name that is found stands in the bytes, and a
//! verdict does not depend on the pieces in which they arrive.

use larder_wire::dtls::{Assembler, looks_like_hello};
use larder_wire::http::{Head, HeadScanner, Rest, host_name, request_head};
use larder_wire::http2::{Start, first_request};
use larder_wire::proxy_prefix::{Prefix, prefix};
use larder_wire::tls::{HELLO_BYTES_MAX, Hello, client_hello, client_hello_cut, hello_message};

use super::{Cut, assert_inside};

/// The first two bytes say where a prefix ends, and the first bytes of a stream follow.
pub fn tls(input: &[u8]) {
    let mut input = Cut(input);
    let cut = usize::from(input.u16());
    let bytes = input.0;
    let whole = client_hello(bytes);
    check_hello(&whole, bytes);
    let prefix = client_hello(&bytes[..cut.min(bytes.len())]);
    if prefix != Hello::NeedMore {
        assert_eq!(prefix, whole, "a verdict that changed");
    }
    let final_verdict = client_hello_cut(bytes);
    check_hello(&final_verdict, bytes);
    if whole != Hello::NeedMore {
        assert_eq!(final_verdict, whole);
    }
    check_hello(&hello_message(bytes), bytes);
}

fn check_hello(hello: &Hello<'_>, bytes: &[u8]) {
    let Hello::Found(hello) = hello else { return };
    assert!(hello.server_name.as_ref().is_none_or(|name| !name.is_empty()));
    for found in [&hello.server_name, &hello.alpn_first].into_iter().flatten() {
        assert!(stands_in_order(found, bytes), "bytes were invented");
        host_name_is_part(found);
    }
}

/// True when the bytes stand in `whole` in this order, with record headers between them perhaps.
fn stands_in_order(bytes: &[u8], whole: &[u8]) -> bool {
    let mut rest = whole.iter();
    bytes.iter().all(|byte| rest.any(|other| other == byte))
}

/// The first byte is the length of segments, and the first bytes of a stream follow.
pub fn http(input: &[u8]) {
    let mut input = Cut(input);
    let segment_bytes = 1 + usize::from(input.u8());
    let bytes = input.0;
    let whole = request_head(bytes);
    let mut scanner = HeadScanner::new();
    let mut arrived = 0;
    let in_pieces = loop {
        arrived = bytes.len().min(arrived + segment_bytes);
        let head = scanner.scan(&bytes[..arrived]);
        if head != Head::NeedMore || arrived == bytes.len() {
            break head;
        }
    };
    assert_eq!(in_pieces, whole, "pieces of {segment_bytes}");
    if let Head::Found(request) = whole {
        assert_inside(request.method, bytes);
        let authority = request.authority().unwrap_or_default();
        assert_inside(authority, bytes);
        host_name_is_part(authority);
        host_name_is_part(request.host.unwrap_or_default());
    }
    host_name_is_part(bytes);
    if matches!(whole, Head::Found(_))
        && let Rest::AnotherHost(value) = scanner.rest(bytes)
    {
        assert_inside(value, bytes);
    }
}

/// Datagrams of a client, each after two bytes with its length.
pub fn dtls(input: &[u8]) {
    let mut cut = Cut(input);
    let mut assembler = Assembler::new();
    while !cut.is_empty() {
        let len = usize::from(cut.u16() & 0x0fff);
        let datagram = cut.bytes(len);
        let looks = looks_like_hello(datagram);
        let hello = assembler.push(datagram);
        assert!(!looks || hello != Hello::NotTls, "a hello that is none");
        if let Hello::Found(hello) = hello {
            assert!(hello.server_name.as_ref().is_none_or(|name| !name.is_empty()));
            for found in [&hello.server_name, &hello.alpn_first].into_iter().flatten() {
                assert!(found.iter().all(|byte| input.contains(byte)), "bytes were invented");
            }
        }
        assert!(assembler.held_bytes() <= 2 * HELLO_BYTES_MAX);
    }
}

/// The first two bytes say where a prefix ends, and the first bytes of a stream follow, behind a PROXY
/// header or not.
pub fn http2(input: &[u8]) {
    let mut input = Cut(input);
    let cut = usize::from(input.u16());
    let bytes = input.0;
    let early = &bytes[..cut.min(bytes.len())];
    let (before, header) = (prefix(early), prefix(bytes));
    assert!(before == header || before == Prefix::NeedMore || early.is_empty());
    let stream = match header {
        Prefix::Bytes(len) => &bytes[len..],
        _ => bytes,
    };
    let early = &stream[..cut.min(stream.len())];
    let whole = first_request(stream);
    let before = first_request(early);
    assert!(before == whole || before == Start::NeedMore || early.is_empty());
    if let Start::Found(request) = whole {
        assert!(request.authority.as_ref().is_none_or(|authority| !authority.is_empty()));
        host_name_is_part(request.authority.as_deref().unwrap_or_default());
    }
}

/// A host is a part of its authority, and no byte in it ends a field or a line.
fn host_name_is_part(authority: &[u8]) {
    if let Some((name, _port)) = host_name(authority) {
        assert!(!name.is_empty() && authority.starts_with(name));
        assert!(!name.iter().any(|byte| byte.is_ascii_control() || b" :/@".contains(byte)));
    }
}
