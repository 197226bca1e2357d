//! Messages of HTTP/1.1: pieces do not matter, views lie in the input, what is passed on is read as the same, and a
//! line of the log is one line.

use larder_http::access_log::format::{Exchange, RequestLine, push_combined, push_json};
use larder_http::freshness::is_hop_by_hop;
use larder_http::message::forward::{push_kept_head, push_request};
use larder_http::message::trailers::push_trailers;
use larder_http::message::{
    BadChunk, Chunked, FieldRoom, Framing, Limits, Piece, RequestHead, is_field_value, is_token,
    request, response,
};
use larder_http::{Field, field};

use super::{Cut, assert_inside};

/// The first byte says what is read (request, response, response to HEAD, chunks), the second how long pieces are; the
/// message follows. Invariants 1, 2 and 3 of `http::message`.
pub fn http_message(input: &[u8]) {
    let mut input = Cut(input);
    let (kind, piece_bytes) = (input.u8(), 1 + usize::from(input.u8()));
    let bytes = input.0;
    let method = if kind & 1 == 0 { "GET" } else { "HEAD" };
    let limits = Limits { head_bytes_max: 2 << 10, target_bytes_max: 200, fields_max: 20 };
    let rest = match kind % 4 {
        0 => grown(bytes, piece_bytes, |bytes| {
            let mut room = FieldRoom::new();
            let head = request(bytes, &mut room, &limits);
            head.map(|head| head.map(|head| of_request(&head, bytes))).map_err(drop)
        }),
        1 | 2 => grown(bytes, piece_bytes, |bytes| {
            let mut room = FieldRoom::new();
            let head = response(bytes, &mut room, method, &limits);
            let check = |head: larder_http::message::ResponseHead<'_>| {
                check_fields(head.fields, bytes);
                check_kept(head.status, head.fields);
                (head.head_bytes, head.framing, head.keeps_alive)
            };
            head.map(|head| head.map(check)).map_err(drop)
        }),
        _ => Some(bytes),
    };
    if let Some(bytes) = rest {
        assert_eq!(decode(bytes, piece_bytes), decode(bytes, usize::MAX), "{piece_bytes}");
    }
    check_log(bytes);
}

/// What is known of a head: its size, where its message ends, and whether the connection continues.
type Known = (usize, Framing, bool);

/// Reads bytes that arrive in pieces: a verdict is not taken back, and is that of the whole. What comes after a head
/// with a body in chunks.
fn grown(
    bytes: &[u8],
    piece_bytes: usize,
    read: impl Fn(&[u8]) -> Result<Option<Known>, ()>,
) -> Option<&[u8]> {
    let whole = read(bytes);
    let mut arrived = 0;
    while arrived < bytes.len() {
        let verdict = read(&bytes[..arrived]);
        assert!(verdict == Ok(None) || verdict == whole, "{verdict:?} at {arrived}, {whole:?}");
        arrived += piece_bytes;
    }
    let (head_bytes, framing, _) = whole.ok()??;
    (framing == Framing::Chunked).then(|| &bytes[head_bytes..])
}

fn check_fields(fields: &[Field<'_>], bytes: &[u8]) {
    for field in fields {
        assert_inside(field.name.as_bytes(), bytes);
        assert_inside(field.value, bytes);
        assert!(is_token(field.name.as_bytes()) && is_field_value(field.value));
    }
    let is_framed = |name| field::has(fields, name);
    assert!(!(is_framed("content-length") && is_framed("transfer-encoding")));
}

fn of_request(head: &RequestHead<'_>, bytes: &[u8]) -> Known {
    assert!(head.head_bytes <= bytes.len());
    assert!(bytes[..head.head_bytes].ends_with(b"\r\n\r\n"));
    assert_inside(head.method.as_bytes(), bytes);
    assert_inside(head.host, bytes);
    check_fields(head.fields, bytes);
    assert_ne!(head.framing, Framing::UntilClose);
    let known = (head.head_bytes, head.framing, head.keeps_alive);
    if head.host.is_empty() {
        // A forwarded request states its host, so the request must state it.
        assert_eq!(head.minor_version, 0);
        return known;
    }
    let mut out = Vec::new();
    push_request(&mut out, head, None, &[("Via", b"1.1 larder")], |_| false);
    let (mut room, limits) = (FieldRoom::new(), Limits::default());
    let again = request(&out, &mut room, &limits).expect("a request").expect("a whole one");
    assert_eq!(again.head_bytes, out.len());
    assert_eq!((again.method, again.host), (head.method, head.host));
    assert_eq!((again.target.path(), again.framing), (head.target.path(), head.framing));
    let stays = |name: &str| !is_ours(name) && is_hop_by_hop(name, head.fields);
    assert!(!again.fields.iter().any(|field| stays(field.name)), "{:?}", again.fields);
    known
}

/// True for fields that are written again when a request is forwarded.
fn is_ours(name: &str) -> bool {
    ["host", "via", "content-length", "transfer-encoding"]
        .iter()
        .any(|ours| ours.eq_ignore_ascii_case(name))
}

fn check_kept(status: u16, fields: &[Field<'_>]) {
    let mut out = Vec::new();
    push_kept_head(&mut out, status, fields, |name| name.eq_ignore_ascii_case("content-length"));
    out.extend_from_slice(b"Content-Length: 0\r\n\r\n");
    let (mut room, limits) = (FieldRoom::new(), Limits::default());
    let again = response(&out, &mut room, "HEAD", &limits).expect("a head").expect("a whole one");
    assert_eq!((again.head_bytes, again.status), (out.len(), status));
    let ours = |name: &str| name.eq_ignore_ascii_case("content-length");
    assert!(again.fields.iter().all(|it| ours(it.name) || !is_hop_by_hop(it.name, fields)));
}

/// What goes on of a trailer section is read as the same fields, all of them such as may be there.
fn check_trailers(bytes: &[u8]) {
    let mut out = Vec::new();
    push_trailers(&mut out, bytes);
    let section = [b"0\r\n", &out[..], b"\r\n"].concat();
    let mut again = Chunked::new();
    assert_eq!(again.next(&section), Ok(Piece::End { consumed: section.len() }));
    assert_eq!(again.trailers(), out);
    let mut twice = Vec::new();
    push_trailers(&mut twice, &out);
    assert_eq!(twice, out);
}

/// Data and trailers of chunks and where the body ended, in pieces of a size.
fn decode(bytes: &[u8], piece_bytes: usize) -> (Vec<u8>, Result<Option<usize>, BadChunk>) {
    let (mut chunked, mut data, mut at) = (Chunked::new(), Vec::new(), 0);
    while at < bytes.len() {
        let end = bytes.len().min(at.saturating_add(piece_bytes));
        match chunked.next(&bytes[at..end]) {
            Ok(Piece::Data { bytes: piece, consumed }) => {
                assert!(!piece.is_empty() && piece.len() <= consumed);
                assert_inside(piece, bytes);
                data.extend_from_slice(piece);
                at += consumed;
            }
            Ok(Piece::More { consumed }) => {
                assert_eq!(at + consumed, end);
                at = end;
            }
            Ok(Piece::End { consumed }) => {
                assert!(at + consumed <= bytes.len() && chunked.has_ended());
                check_trailers(chunked.trailers());
                data.extend_from_slice(chunked.trailers());
                return (data, Ok(Some(at + consumed)));
            }
            Err(error) => return (data, Err(error)),
        }
    }
    (data, Ok(None))
}

/// Whatever stands in it, a line is one line, and an object can be read.
fn check_log(bytes: &[u8]) {
    let exchange = Exchange {
        client: std::net::Ipv4Addr::LOCALHOST.into(),
        began_ms: bytes.len() as u64 * 0x0123_4567_89ab,
        user: Some(bytes),
        request_line: RequestLine::Bytes(bytes),
        host: bytes,
        referer: Some(bytes),
        user_agent: None,
        status: 400,
        body_bytes: 0,
        duration_us: 0,
        cache: None,
        origin_status: None,
        origin_us: None,
        error: None,
    };
    let (mut line, mut object) = (Vec::new(), Vec::new());
    push_combined(&mut line, &exchange);
    push_json(&mut object, &exchange);
    assert!(line[..line.len() - 1].iter().all(|byte| (b' '..=b'~').contains(byte)));
    assert_eq!(line.iter().filter(|&&byte| byte == b'"').count(), 6);
    assert_eq!(object.iter().position(|&byte| byte == b'\n'), Some(object.len() - 1));
    let read: serde_json::Value = serde_json::from_slice(&object).expect("an object");
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert_eq!(read["octets"], text);
    }
}
