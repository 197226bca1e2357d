//! Messages built from valid and invalid parts. The reading does not depend on the pieces, other
//! parsers agree on accepted messages, and a forwarded message is read as the same.

use larder_http::Field;
use larder_http::freshness::is_hop_by_hop;
use larder_http::message::forward::{push_kept_head, push_request};
use larder_http::message::{
    BadChunk, Chunked, FieldRoom, Framing, Limits, Piece, is_field_value, is_token, request,
    response,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const LIMITS: Limits = Limits { head_bytes_max: 300, target_bytes_max: 20, fields_max: 6 };

/// Mostly valid parts, so that many headers have a single error.
fn part(
    good: &'static [&'static str],
    bad: &'static [&'static str],
) -> impl Strategy<Value = String> {
    prop_oneof![30 => select(good), 1 => select(bad)].prop_map(str::to_owned)
}

fn line_end() -> impl Strategy<Value = String> {
    part(&["\r\n"], &["\n", "\r", "\r\r\n", "", "\r\n "])
}

fn field() -> impl Strategy<Value = String> {
    let good = &[
        "Host: a.b:80",
        "Host: a.b:80",
        "Content-Length: 3",
        "content-length:3,3",
        "Transfer-Encoding: chunked",
        "Connection: close",
        "Connection: keep-alive, X-Y",
        "X-Y: \tz ",
        "Expect: 100-continue",
        "TE: trailers",
        "Empty:",
        "Via: 1.1 a",
        "Obs: \u{e4}",
    ];
    let bad = &[
        "Host: a b",
        "Content-Length: 4",
        "Transfer-Encoding: x",
        "X Y: z",
        "X-Y : z",
        "X-Y",
        "\0: a",
        "X-Y: \0",
        "Connection: ,,,,,,,,,,,,,,,,,,",
    ];
    (part(good, bad), line_end()).prop_map(|(field, end)| field + &end)
}

fn head(first: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<u8>> {
    let fields = vec(field(), 0..8).prop_map(|fields| fields.concat());
    (first, line_end(), fields, line_end(), part(&["", "abc", "GET /"], &["\r\n"])).prop_map(
        |(first, end, fields, last, rest)| (first + &end + &fields + &last + &rest).into(),
    )
}

fn request_head() -> impl Strategy<Value = Vec<u8>> {
    let empty = part(&["", "\r\n"], &["\n", "\r\n\r\n\r\n", "\r"]);
    let method = part(&["GET ", "POST ", "OPTIONS ", "CONNECT "], &["", "G T ", "get  ", "\0"]);
    let targets = &["/", "/a?b", "*", "http://a.b/c", "https://c", "a.b:80"];
    let target = part(targets, &["/#", "/aaaaaaaaaaaaaaaaaaaaaaaaaaaa", "/\u{e4}", ""]);
    let version = part(&[" HTTP/1.1", " HTTP/1.0"], &[" HTTP/2.0", "", "  HTTP/1.1", " HTTP/1.1 "]);
    head((empty, method, target, version).prop_map(|(a, b, c, d)| a + &b + &c + &d))
}

fn response_head() -> impl Strategy<Value = Vec<u8>> {
    let version = part(&["HTTP/1.1 ", "HTTP/1.0 "], &["HTTP/2 ", "\r\nHTTP/1.1 ", "ICY "]);
    let status = part(&["200", "204", "304", "100", "404"], &["101", "099", "20", "999", ""]);
    let reason = part(&["", " ", " OK", " \u{e4}"], &[" \0", "  ", "\t"]);
    head((version, status, reason).prop_map(|(a, b, c)| a + &b + &c))
}

/// Headers that were read, as owned text, with their size; `None` if more bytes are needed.
type Read<R> = Result<Option<(String, usize)>, R>;

fn read_request(bytes: &[u8]) -> Read<u16> {
    let mut room = FieldRoom::new();
    let head = request(bytes, &mut room, &LIMITS).map_err(|refused| refused.status)?;
    Ok(head.map(|head| (format!("{head:?}"), head.head_bytes)))
}

fn read_response(bytes: &[u8]) -> Read<()> {
    let mut room = FieldRoom::new();
    let head = response(bytes, &mut room, "GET", &LIMITS).map_err(|_| ())?;
    Ok(head.map(|head| (format!("{head:?}"), head.head_bytes)))
}

/// Adds one byte at a time: each result is that of all bytes, `None` comes first, and a refusal
/// stays.
fn grows<R: std::fmt::Debug>(bytes: &[u8], read: impl Fn(&[u8]) -> Read<R>) {
    let whole = read(bytes);
    let mut has_refused = false;
    for end in 0..bytes.len() {
        match (read(&bytes[..end]), &whole) {
            (Ok(None), _) => assert!(!has_refused, "forgets at {end}"),
            (Ok(Some(some)), Ok(Some(all))) => {
                assert_eq!(&some, all);
                assert!(end >= all.1);
            }
            (Err(_), Err(_)) => has_refused = true,
            (some, _) => panic!("{some:?} at {end}, and then {whole:?}"),
        }
    }
}

fn chunk_part() -> impl Strategy<Value = String> {
    let good = &["3\r\nabc\r\n", "a;b=c\r\n0123456789\r\n", "1 ;x\r\na\r\n", "0001\r\n\r\r\n"];
    let bad =
        &["0\r\n", "\r\n", "\n", "3\r\nabcd\r\n", "g\r\n", "1\n", ";", "fffffffffffffffff\r\n"];
    part(good, bad)
}

fn chunk_body() -> impl Strategy<Value = Vec<u8>> {
    let last = part(&["0\r\n\r\n", "0;x\r\nA: b\r\n\r\n"], &["0\r\n\n", "0\r\n A: b\r\n\r\n", ""]);
    (vec(chunk_part(), 0..6), last, part(&["", "GET"], &["\r\n"]))
        .prop_map(|(chunks, last, rest)| (chunks.concat() + &last + &rest).into_bytes())
}

/// Decodes a body in pieces that end at these offsets; returns its data and its end, if it ended.
fn decode(bytes: &[u8], ends: &[usize]) -> (Vec<u8>, Result<Option<usize>, BadChunk>) {
    let (mut chunked, mut data, mut at) = (Chunked::new(), Vec::new(), 0);
    for &end in ends.iter().chain([&bytes.len()]) {
        while at < end {
            match chunked.next(&bytes[at..end]) {
                Ok(Piece::Data { bytes, consumed }) => {
                    data.extend_from_slice(bytes);
                    at += consumed;
                }
                Ok(Piece::More { consumed }) => {
                    assert_eq!(at + consumed, end);
                    at = end;
                }
                Ok(Piece::End { consumed }) => {
                    assert!(chunked.has_ended());
                    return (data, Ok(Some(at + consumed)));
                }
                Err(error) => return (data, Err(error)),
            }
        }
    }
    (data, Ok(None))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Headers are read the same in any pieces. Invariant 3 of `message`.
    #[test]
    fn pieces_of_heads(requested in request_head(), answered in response_head()) {
        grows(&requested, read_request);
        grows(&answered, read_response);
    }

    /// Chunks are read the same in any pieces.
    #[test]
    fn pieces_of_bodies(bytes in chunk_body(), cuts in vec(0_usize..80, 0..6)) {
        let mut ends: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        ends.sort_unstable();
        let whole = decode(&bytes, &[]);
        prop_assert_eq!(&decode(&bytes, &ends), &whole);
        let single: Vec<usize> = (1..bytes.len()).collect();
        prop_assert_eq!(&decode(&bytes, &single), &whole);
    }

    /// httparse reads accepted headers alike, and the `http` crate accepts their method, names,
    /// values and target. Invariant 1 of `message`.
    #[test]
    fn others_agree(bytes in request_head()) {
        let mut room = FieldRoom::new();
        let Ok(Some(head)) = request(&bytes, &mut room, &LIMITS) else { return Ok(()) };
        let mut theirs = [httparse::EMPTY_HEADER; 6];
        let mut read = httparse::Request::new(&mut theirs);
        prop_assert_eq!(read.parse(&bytes), Ok(httparse::Status::Complete(head.head_bytes)));
        prop_assert_eq!(read.method, Some(head.method));
        prop_assert_eq!(read.version, Some(head.minor_version));
        prop_assert_eq!(&*read.headers, head.fields);
        prop_assert!(http::Method::from_bytes(head.method.as_bytes()).is_ok());
        for Field { name, value } in head.fields {
            prop_assert!(is_token(name.as_bytes()) && is_field_value(value));
            prop_assert!(http::HeaderName::from_bytes(name.as_bytes()).is_ok());
            prop_assert!(http::HeaderValue::from_bytes(value).is_ok());
        }
        prop_assert!(http::Uri::try_from(read.path.unwrap()).is_ok());
        prop_assert!(head.host.is_empty() || http::uri::Authority::try_from(head.host).is_ok());
    }

    /// A forwarded request is read again as the same one, without fields of the connection; the
    /// same holds for the headers of a response.
    #[test]
    fn passed_on(requested in request_head(), answered in response_head()) {
        let limits = Limits::default();
        let (mut room, mut out) = (FieldRoom::new(), Vec::new());
        if let Ok(Some(head)) = request(&requested, &mut room, &limits)
            && !head.host.is_empty()
        {
            push_request(&mut out, &head, None, &[("Via", b"1.1 larder")], |_| false);
            let mut room = FieldRoom::new();
            let again = request(&out, &mut room, &limits).unwrap().unwrap();
            prop_assert_eq!(again.head_bytes, out.len());
            prop_assert_eq!((again.method, again.host), (head.method, head.host));
            prop_assert_eq!(again.target.path(), head.target.path());
            prop_assert_eq!(again.framing, head.framing);
            let ours = ["host", "expect", "content-length", "transfer-encoding", "via"];
            let kept = |field: &&Field<'_>| !ours.contains(&&*field.name.to_ascii_lowercase());
            let end_to_end = |field: &&Field<'_>| !is_hop_by_hop(field.name, head.fields);
            prop_assert!(again.fields.iter().filter(kept).eq(head.fields.iter().filter(kept).filter(end_to_end)));
        }
        let (mut room, mut out) = (FieldRoom::new(), Vec::new());
        if let Ok(Some(head)) = response(&answered, &mut room, "GET", &limits) {
            push_kept_head(&mut out, head.status, head.fields, |name| {
                name.eq_ignore_ascii_case("content-length")
            });
            out.extend_from_slice(b"\r\n");
            let mut room = FieldRoom::new();
            let again = response(&out, &mut room, "GET", &limits).unwrap().unwrap();
            prop_assert_eq!((again.head_bytes, again.status), (out.len(), head.status));
            prop_assert!(matches!(again.framing, Framing::None | Framing::UntilClose));
            prop_assert!(again.fields.iter().all(|field| !is_hop_by_hop(field.name, head.fields)));
        }
    }

    /// No bytes cause a panic, and no result refers to more bytes than there are.
    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..64)) {
        if let Ok(Some((_, head_bytes))) = read_request(&bytes) {
            prop_assert!(head_bytes <= bytes.len());
        }
        if let Ok(Some((_, head_bytes))) = read_response(&bytes) {
            prop_assert!(head_bytes <= bytes.len());
        }
        let (data, end) = decode(&bytes, &[]);
        prop_assert!(data.len() <= bytes.len() && !matches!(end, Ok(Some(end)) if end > bytes.len()));
    }
}

/// The generated headers include valid and invalid ones: no part of the tests is without cases.
#[test]
fn made_up_well() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut made = || request_head().new_tree(&mut runner).unwrap().current();
    let read: Vec<_> = (0..1000).map(|_| read_request(&made())).collect();
    let good = read.iter().filter(|read| matches!(read, Ok(Some(_)))).count();
    let refused = read.iter().filter(|read| read.is_err()).count();
    assert!(good > 100 && refused > 200, "{good} and {refused} of 1000");
}
