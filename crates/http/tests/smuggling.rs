//! Requests that are, or might be, attempts at smuggling: the result of each, complete and in every
//! two pieces. They are of the kinds published since 2005, and of those that RFC 9112 forbids.

use larder_http::message::{BadChunk, Chunked, FieldRoom, Framing, Limits, Piece, Reason, request};

/// The result of reading bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Gives {
    /// A request with this body; the second text has the bytes of the next one.
    Body(String, String),
    /// An invalid request.
    No(Reason),
    /// A request whose body breaks.
    Broken(BadChunk),
    /// Incomplete: more bytes are needed.
    Wants,
}

fn body(body: &str, next: &str) -> Gives {
    Gives::Body(body.into(), next.into())
}

/// Reads bytes in two pieces, the first of this length; the headers are parsed from all bytes so
/// far.
fn read(bytes: &[u8], first_bytes: usize) -> Gives {
    for known in [&bytes[..first_bytes], bytes] {
        let mut room = FieldRoom::new();
        let head = match request(known, &mut room, &Limits::default()) {
            Ok(Some(head)) => head,
            Ok(None) => continue,
            Err(refused) => {
                assert_eq!(refused.status, refused.reason.status());
                return Gives::No(refused.reason);
            }
        };
        let rest = &bytes[head.head_bytes..];
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        return match head.framing {
            Framing::None => body("", &text(rest)),
            Framing::Length(bytes) if (rest.len() as u64) < bytes => Gives::Wants,
            Framing::Length(bytes) => {
                let (taken, next) = rest.split_at(bytes as usize);
                body(&text(taken), &text(next))
            }
            Framing::Chunked => chunks(rest, first_bytes.saturating_sub(head.head_bytes)),
            Framing::UntilClose => unreachable!("requests are framed"),
        };
    }
    Gives::Wants
}

fn chunks(bytes: &[u8], first_bytes: usize) -> Gives {
    let (mut chunked, mut data, mut at) = (Chunked::new(), Vec::new(), 0);
    for end in [first_bytes, bytes.len()] {
        loop {
            at += match chunked.next(&bytes[at..end]) {
                Ok(Piece::Data { bytes, consumed }) => {
                    data.extend_from_slice(bytes);
                    consumed
                }
                Ok(Piece::More { consumed }) => {
                    at += consumed;
                    break;
                }
                Ok(Piece::End { consumed }) => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    return body(&text(&data), &text(&bytes[at + consumed..]));
                }
                Err(error) => return Gives::Broken(error),
            };
        }
    }
    Gives::Wants
}

/// A request refused as a whole is also refused in two pieces, perhaps for an error in the first
/// piece. All other results are the same.
fn check(bytes: &[u8], gives: &Gives) {
    for first_bytes in 0..=bytes.len() {
        let text = String::from_utf8_lossy(bytes);
        let read = read(bytes, first_bytes);
        if let (Gives::No(_), Gives::No(_)) = (&read, gives)
            && first_bytes < bytes.len()
        {
            continue;
        }
        assert_eq!(&read, gives, "{text:?}, first {first_bytes}");
    }
}

/// An empty body in chunks, and what follows it.
const SMUGGLED: &str = "0\r\n\r\nGET /admin HTTP/1.1\r\n\r\n";

/// Each row: fields of a request, the bytes after its headers, and the result.
fn check_fields(table: &[(&str, &str, Gives)]) {
    for (fields, content, gives) in table {
        let bytes = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{content}");
        check(bytes.as_bytes(), gives);
    }
}

/// With two lengths, or a length and chunks, the request is ambiguous and refused; invalid lengths
/// are refused too. Invariant 2 of `message`.
#[test]
fn framing_fields() {
    use Gives::{No, Wants};
    use Reason::{Length, LengthAndCoding};
    let smuggled = SMUGGLED;
    check_fields(&[
        // Plain ones, to show that the table can distinguish.
        ("", "GET", body("", "GET")),
        ("Content-Length: 3\r\n", "abcGET", body("abc", "GET")),
        ("Content-Length: 0\r\n", "GET", body("", "GET")),
        ("Content-Length: 4\r\n", "abc", Wants),
        ("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\nGET", body("abc", "GET")),
        ("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r", Wants),
        ("transfer-encoding:CHUNKED\r\n", smuggled, body("", &smuggled[5..])),
        ("Transfer-Encoding:\t chunked \t\r\n", smuggled, body("", &smuggled[5..])),
        // Both a length and a coding.
        ("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", smuggled, No(LengthAndCoding)),
        ("Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", smuggled, No(LengthAndCoding)),
        ("Content-Length: 6\r\nTransfer-Encoding: xchunked\r\n", smuggled, No(LengthAndCoding)),
        ("Content-Length: 6\r\nTransfer-Encoding: identity\r\n", smuggled, No(LengthAndCoding)),
        ("Content-Length: 6\r\nTransfer-Encoding:\r\n", smuggled, No(LengthAndCoding)),
        ("Content-Length:\r\nTransfer-Encoding: chunked\r\n", smuggled, No(Length)),
        // Lengths.
        ("Content-Length: 3\r\nContent-Length: 3\r\n", "abcGET", body("abc", "GET")),
        ("Content-Length: 3, 3\r\n", "abcGET", body("abc", "GET")),
        ("Content-Length: 3\r\nContent-Length: 6\r\n", "abcdef", No(Length)),
        ("Content-Length: 6\r\ncontent-length: 3\r\n", "abcdef", No(Length)),
        ("Content-Length: 3, 6\r\n", "abcdef", No(Length)),
        ("Content-Length: 3,\r\n", "abc", No(Length)),
        ("Content-Length: 3;6\r\n", "abc", No(Length)),
        ("Content-Length: +3\r\n", "abc", No(Length)),
        ("Content-Length: -3\r\n", "abc", No(Length)),
        ("Content-Length: -0\r\n", "abc", No(Length)),
        ("Content-Length: 0x3\r\n", "abc", No(Length)),
        ("Content-Length: 3 0\r\n", "abc", No(Length)),
        ("Content-Length: 3\t0\r\n", "abc", No(Length)),
        ("Content-Length: 1_0\r\n", "abc", No(Length)),
        ("Content-Length: 3.0\r\n", "abc", No(Length)),
        ("Content-Length: 3e0\r\n", "abc", No(Length)),
        ("Content-Length: \"3\"\r\n", "abc", No(Length)),
        ("Content-Length:\r\n", "abc", No(Length)),
        ("Content-Length: \u{663}\r\n", "abc", No(Length)),
        ("Content-Length: 18446744073709551619\r\n", "abc", No(Length)),
        ("Content-Length: 9223372036854775808\r\n", "abc", No(Length)),
        ("Content-Length: 00000000000000000000000003\r\n", "abcGET", body("abc", "GET")),
    ]);
}

/// Codings that are invalid, or that another server may read as chunked, are refused. Invariant 2
/// of `message`.
#[test]
fn codings() {
    use Gives::{Broken, No};
    use Reason::{Coding, CodingUnknown, FieldName, FieldValue, LineEnd};
    let smuggled = SMUGGLED;
    check_fields(&[
        ("Transfer-Encoding: xchunked\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding: chunkedx\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding: identity\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding: cow\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding: \"chunked\"\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding: 'chunked'\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding: chunked;a=b\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding: chunked, identity\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding: chunked, chunked\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding: chunked chunked\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding: chunked,\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding:\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", smuggled, No(Coding)),
        ("Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", smuggled, No(CodingUnknown)),
        ("Transfer-Encoding: gzip, chunked\r\n", smuggled, No(CodingUnknown)),
        ("Transfer-Encoding: identity, chunked\r\n", smuggled, No(CodingUnknown)),
        ("Transfer-Encoding: , chunked\r\n", smuggled, No(CodingUnknown)),
        ("Transfer-Encoding: \u{b}chunked\r\n", smuggled, No(FieldValue)),
        ("Transfer-Encoding: chunked\u{c}\r\n", smuggled, No(FieldValue)),
        ("Transfer-Encoding: chun\0ked\r\n", smuggled, No(FieldValue)),
        ("Transfer-Encoding: \u{a0}chunked\r\n", smuggled, No(Coding)),
        // Names and lines.
        ("Transfer-Encoding : chunked\r\n", smuggled, No(FieldName)),
        ("Transfer-Encoding\t: chunked\r\n", smuggled, No(FieldName)),
        (" Transfer-Encoding: chunked\r\n", smuggled, No(FieldName)),
        ("\tTransfer-Encoding: chunked\r\n", smuggled, No(FieldName)),
        ("Transfer Encoding: chunked\r\n", smuggled, No(FieldName)),
        ("Transfer-Encoding\u{b}: chunked\r\n", smuggled, No(FieldName)),
        ("\0Transfer-Encoding: chunked\r\n", smuggled, No(FieldName)),
        ("Transfer-Encoding\r\n: chunked\r\n", smuggled, No(FieldName)),
        ("Transfer-Encoding:\r\n chunked\r\n", smuggled, No(FieldName)),
        ("X: y\r\n Transfer-Encoding: chunked\r\n", smuggled, No(FieldName)),
        ("X: y\r\n\tContent-Length: 5\r\n", smuggled, No(FieldName)),
        ("X: y\nTransfer-Encoding: chunked\r\n", smuggled, No(LineEnd)),
        ("X: y\rTransfer-Encoding: chunked\r\n", smuggled, No(FieldValue)),
        ("X: y\r\r\nContent-Length: 5\r\n", smuggled, No(FieldValue)),
        ("X: y\n\nContent-Length: 5\r\n", smuggled, No(LineEnd)),
        (": y\r\n", smuggled, No(FieldName)),
        ("Content-Length\r\n", smuggled, No(FieldName)),
        ("\"Content-Length\": 5\r\n", smuggled, No(FieldName)),
        // Other names are other fields, and forwarded unchanged.
        ("Transfer_Encoding: chunked\r\n", "GET", body("", "GET")),
        ("X-Content-Length: 5\r\n", "GET", body("", "GET")),
        // Chunks of a request with valid headers.
        ("Transfer-Encoding: chunked\r\n", "3\nabc\n0\n\n", Broken(BadChunk::LineEnd)),
    ]);
}

/// Each row: the headers of a request, and the result.
fn check_heads(table: &[(&str, Gives)]) {
    table.iter().for_each(|(bytes, gives)| check(bytes.as_bytes(), gives));
}

/// Request lines that two servers may read in two ways. Invariants 1 and 2 of `message`.
#[test]
fn heads() {
    use Gives::{No, Wants};
    use Reason::{
        CodingOfOldVersion, EmptyLines, FieldName, HostMissing, LineEnd, RequestLine, Version,
    };
    check_heads(&[
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", body("", "")),
        ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", body("", "")),
        ("GET / HTTP/1.0\r\n\r\nGET", body("", "GET")),
        ("GET / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabcGET", body("abc", "GET")),
        ("GET / HTTP/1.1\r\nHost: a\r\n", Wants),
        ("\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", No(EmptyLines)),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", No(LineEnd)),
        ("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", No(LineEnd)),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", No(RequestLine)),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", No(RequestLine)),
        ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", No(RequestLine)),
        ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", No(RequestLine)),
        ("GET /\tHTTP/1.1\r\nHost: a\r\n\r\n", No(RequestLine)),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", No(LineEnd)),
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", No(LineEnd)),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", No(LineEnd)),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", No(LineEnd)),
        ("GET / HTTP/1.1\n\n", No(LineEnd)),
        ("GET / HTTP/1.1\rHost: a\r\n\r\n", No(LineEnd)),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", No(FieldName)),
        ("GET / HTTP/1.1\r\n\tX: y\r\nHost: a\r\n\r\n", No(FieldName)),
        ("GET / HTTP/1.1\r\n\r\nHost: a\r\n\r\n", No(HostMissing)),
        ("GET /\r\n\r\n", No(RequestLine)),
        ("GET / \r\n\r\n", No(RequestLine)),
        ("GET HTTP/1.1\r\nHost: a\r\n\r\n", No(RequestLine)),
        ("G{T / HTTP/1.1\r\nHost: a\r\n\r\n", No(RequestLine)),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", No(RequestLine)),
        ("GET / HTTP/1,1\r\nHost: a\r\n\r\n", No(Version)),
        ("GET / HTTP/11\r\nHost: a\r\n\r\n", No(Version)),
        ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", No(LineEnd)),
        ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", No(Version)),
        ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", No(CodingOfOldVersion)),
    ]);
}

/// Hosts and targets that two servers may read in two ways. Invariants 1 and 2 of `message`.
#[test]
fn hosts_and_targets() {
    use Gives::No;
    use Reason::{Host, HostMissing, HostTwice, RequestLine, Target, TargetForm};
    check_heads(&[
        ("GET / HTTP/1.1\r\nX: y\r\n\r\n", No(HostMissing)),
        ("GET http://a/ HTTP/1.1\r\nX: y\r\n\r\n", No(HostMissing)),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", No(HostTwice)),
        ("GET / HTTP/1.1\r\nHost: a\r\nHOST: a\r\n\r\n", No(HostTwice)),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", No(HostTwice)),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", No(Host)),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", No(Host)),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", No(Host)),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", No(Host)),
        ("GET / HTTP/1.1\r\nHost: a#b\r\n\r\n", No(Host)),
        ("GET / HTTP/1.1\r\nHost: b@a\r\n\r\n", No(Host)),
        ("GET / HTTP/1.1\r\nHost: a:80:81\r\n\r\n", No(Host)),
        ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", No(Host)),
        ("GET / HTTP/1.1\r\nHost: a\u{e4}\r\n\r\n", No(Host)),
        ("GET http://a/ HTTP/1.1\r\nHost: a b\r\n\r\n", No(Host)),
        ("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", body("", "")),
        // Targets.
        ("GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", No(Target)),
        ("GET /\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n", No(Target)),
        ("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", No(RequestLine)),
        ("GET /\u{7f} HTTP/1.1\r\nHost: a\r\n\r\n", No(RequestLine)),
        ("GET /\r\n HTTP/1.1\r\nHost: a\r\n\r\n", No(RequestLine)),
        ("GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", No(Target)),
        ("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", No(Target)),
        ("GET http:/a/ HTTP/1.1\r\nHost: a\r\n\r\n", No(TargetForm)),
        ("GET file:///etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", No(TargetForm)),
        ("GET @a/ HTTP/1.1\r\nHost: a\r\n\r\n", No(TargetForm)),
        ("GET a:443 HTTP/1.1\r\nHost: a\r\n\r\n", No(TargetForm)),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", No(TargetForm)),
        ("CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", No(TargetForm)),
        ("CONNECT http://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n", No(TargetForm)),
    ]);
}

/// Chunks that end earlier or later for other parsers than for larder.
#[test]
fn chunk_tricks() {
    use BadChunk::{Extension, LineEnd, Size, Trailer};
    use Gives::{Broken, Wants};
    let table = [
        ("1\r\na\r\n0\r\n\r\nGET", body("a", "GET")),
        ("01\r\na\r\n00\r\n\r\n", body("a", "")),
        ("1;x=\"y\r\na\r\n0\r\n\r\n", body("a", "")),
        ("1 ;x\r\na\r\n0\r\n\r\n", body("a", "")),
        ("0\r\nContent-Length: 3\r\nHost: b\r\n\r\nabc", body("", "abc")),
        ("0\r\n", Wants),
        ("0\r\n\r", Wants),
        ("2\r\na", Wants),
        ("0x1\r\na\r\n0\r\n\r\n", Broken(Size)),
        ("+1\r\na\r\n0\r\n\r\n", Broken(Size)),
        ("-1\r\na\r\n0\r\n\r\n", Broken(Size)),
        (" 1\r\na\r\n0\r\n\r\n", Broken(Size)),
        ("1 \r\na\r\n0\r\n\r\n", Broken(Size)),
        ("\r\n1\r\na\r\n0\r\n\r\n", Broken(Size)),
        ("1,2\r\na\r\n0\r\n\r\n", Broken(Size)),
        ("10000000000000001\r\na\r\n0\r\n\r\n", Broken(Size)),
        ("ffffffffffffffff\r\na\r\n0\r\n\r\n", Broken(Size)),
        ("100000000\r\na\r\n0\r\n\r\n", Wants),
        ("\u{661}\r\na\r\n0\r\n\r\n", Broken(Size)),
        ("1\0\r\na\r\n0\r\n\r\n", Broken(Size)),
        ("1\n\r\na\r\n0\r\n\r\n", Broken(LineEnd)),
        ("1\r\r\na\r\n0\r\n\r\n", Broken(LineEnd)),
        ("1;\nX: y\r\na\r\n0\r\n\r\n", Broken(LineEnd)),
        ("1;a\n0\n\nGET /admin HTTP/1.1\r\n", Broken(LineEnd)),
        ("1;a\rb\r\na\r\n0\r\n\r\n", Broken(LineEnd)),
        ("1;a\0\r\na\r\n0\r\n\r\n", Broken(Extension)),
        ("1\r\naXX0\r\n\r\n", Broken(LineEnd)),
        ("1\r\nab\r\n0\r\n\r\n", Broken(LineEnd)),
        ("2\r\na\r\n0\r\n\r\n", Broken(LineEnd)),
        ("1\r\na\n0\r\n\r\n", Broken(LineEnd)),
        ("1\r\na\r0\r\n\r\n", Broken(LineEnd)),
        ("1\r\na0\r\n\r\n", Broken(LineEnd)),
        ("0\r\n\n", Broken(LineEnd)),
        ("0\n\r\n", Broken(LineEnd)),
        ("0\r\nX: y\n\r\n", Broken(LineEnd)),
        ("0\r\nX: y\r\n z\r\n\r\n", Broken(Trailer)),
        ("0\r\nX : y\r\n\r\n", Broken(Trailer)),
        ("0\r\nX\r\n\r\n", Broken(Trailer)),
        ("0\r\nGET /admin HTTP/1.1\r\n\r\n", Broken(Trailer)),
    ];
    for (content, gives) in table {
        let bytes =
            format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{content}");
        check(bytes.as_bytes(), &gives);
    }
}
