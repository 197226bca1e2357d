//! A response for one client: the headers in their final form, and the body that follows.
//!
//! ```text
//! record, request, now -> compose() -> bytes of headers, Body: none, all of it, or ranges
//! ```
//!
//! A stored response is the same for all clients. This module decides the differences: `304` for a
//! client that has it, `206` and `416` for ranges (RFC 9110, sections 13 and 14), chunks where the
//! length of the body is not known yet, `Age`, `Cache-Status`, and whether the connection stays
//! open.
//!
//! Cost: a copy of the headers; a request without conditions and ranges looks for six fields.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use larder_mem::object::Object;

use crate::cacheability::Selected;
use crate::message::encode::{push_field, push_number, push_status_line};
use crate::parts::Part;
use crate::preconditions::{Ranges, is_not_modified, ranges};
use crate::record::{Kept, has_length};
use crate::{Field, Request};

/// A response that larder gives to several clients, or to one, while it arrives.
#[derive(Debug)]
pub struct Answer {
    /// Its record ([`crate::record`]); with the body, or without.
    pub record: Vec<u8>,
    /// The fields that selected it among its variants.
    pub vary: Vec<Selected>,
    /// Its body, where that is not in the record.
    pub object: Option<Arc<Object>>,
    /// The origin's status: 304 where it confirmed the stored response; `None`: the origin gave no
    /// response that could be used.
    pub origin_status: Option<u16>,
    /// It is for one client: the origin has evaluated conditions and ranges.
    pub is_private: bool,
    /// Fields after its body, where that comes in chunks.
    pub trailers: Option<Arc<Trailers>>,
    /// Where the body continues if it is too long to be cached; only for a body of unknown length.
    pub part: Option<Arc<Part>>,
}

/// Lines of fields after a body ([`crate::message::trailers`]): set when the body is complete, and
/// empty if there are none. They are not stored with the body (RFC 9111, section 3.4).
pub type Trailers = OnceLock<Box<[u8]>>;

impl Answer {
    /// True where trailers are there, or may yet come.
    pub fn may_have_trailers(&self) -> bool {
        self.trailers.as_ref().is_some_and(|it| it.get().is_none_or(|lines| !lines.is_empty()))
    }
}

/// The parts of a request that decide the form of a response.
#[derive(Debug, Clone, Copy)]
pub struct RequestContext<'a> {
    /// Method and fields.
    pub request: Request<'a>,
    /// The minor version of HTTP/1.
    pub minor_version: u8,
    /// The connection may stay open.
    pub keeps_alive: bool,
}

/// The metadata that larder adds to the stored response.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// `Age`, where the response comes from the cache.
    pub age_s: Option<u64>,
    /// The value of `Cache-Status`; empty: none.
    pub cache_status: &'a [u8],
    /// larder evaluates conditions and ranges of the request.
    pub heeds_conditions: bool,
}

/// The body that follows the headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    None,
    /// All of it, as it is.
    Whole,
    /// All of it, in chunks.
    Chunks,
    /// These segments, in order.
    Segments(Vec<Segment>),
}

impl Body {
    /// What is sent of it, in order.
    pub fn segments(self) -> VecDeque<Segment> {
        match self {
            Body::None => VecDeque::new(),
            Body::Whole | Body::Chunks => [Segment::Body(0..u64::MAX)].into(),
            Body::Segments(segments) => segments.into(),
        }
    }
}

/// A segment of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Bytes of larder itself.
    Bytes(Vec<u8>),
    /// Bytes of the stored body.
    Body(Range<u64>),
}

/// A response whose headers are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composed {
    /// The status.
    pub status: u16,
    /// The body that follows.
    pub body: Body,
    /// The connection ends with it.
    pub closes: bool,
}

/// The name of this program in `Via` and `Cache-Status`.
pub const NAME: &str = "larder";

/// Separates parts. It is long, so that no body contains it by chance.
const BOUNDARY: &str = "larder-3f1c9a0e7b5d42868e0c";

/// Fields that a 304 repeats (RFC 9110, section 15.4.5).
const IN_NOT_MODIFIED: [&str; 7] =
    ["cache-control", "content-location", "date", "etag", "expires", "vary", "cdn-cache-control"];

/// Appends the headers of a response to `out`; `body_bytes`: the length of the body, if it is
/// known.
pub fn compose(
    out: &mut Vec<u8>,
    kept: &Kept<'_>,
    context: &RequestContext<'_>,
    said: &Said<'_>,
    body_bytes: Option<u64>,
) -> Composed {
    let status = kept.life.status;
    if said.heeds_conditions && is_not_modified(status, kept.validators, &context.request) {
        push_status_line(out, 304);
        for field in kept.fields().filter(|it| is_in_not_modified(it)) {
            push_field(out, field.name, field.value);
        }
        return finish(out, context, said, 304, Body::None, false);
    }
    let parts = match body_bytes.filter(|_| said.heeds_conditions) {
        Some(bytes) => ranges(status, kept.validators, &context.request, bytes),
        None => Ranges::Whole,
    };
    match (parts, body_bytes) {
        (Ranges::Unsatisfiable, Some(bytes)) => {
            push_status_line(out, 416);
            push_field(out, "Content-Range", format!("bytes */{bytes}").as_bytes());
            push_field(out, "Content-Length", b"0");
            finish(out, context, said, 416, Body::None, false)
        }
        (Ranges::Parts(parts), Some(bytes)) => part(out, kept, context, said, &parts, bytes),
        _ => whole(out, kept, context, said, body_bytes),
    }
}

fn is_in_not_modified(field: &Field<'_>) -> bool {
    IN_NOT_MODIFIED.iter().any(|it| it.eq_ignore_ascii_case(field.name))
}

fn whole(
    out: &mut Vec<u8>,
    kept: &Kept<'_>,
    context: &RequestContext<'_>,
    said: &Said<'_>,
    body_bytes: Option<u64>,
) -> Composed {
    let status = kept.life.status;
    out.extend_from_slice(kept.head());
    let has_body = context.request.method != "HEAD" && has_length(status) && body_bytes != Some(0);
    if !has_length(status) {
        return finish(out, context, said, status, Body::None, false);
    }
    if let (Some(bytes), None) = (body_bytes, kept.body_bytes) {
        out.extend_from_slice(b"Content-Length: ");
        push_number(out, bytes);
        out.extend_from_slice(b"\r\n");
    }
    match (has_body, body_bytes, context.minor_version) {
        (false, ..) => finish(out, context, said, status, Body::None, false),
        (true, Some(_), _) => finish(out, context, said, status, Body::Whole, false),
        (true, None, 0) => finish(out, context, said, status, Body::Whole, true),
        (true, None, _) => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            finish(out, context, said, status, Body::Chunks, false)
        }
    }
}

/// One range as it is, several as `multipart/byteranges` (RFC 9110, section 14.6).
fn part(
    out: &mut Vec<u8>,
    kept: &Kept<'_>,
    context: &RequestContext<'_>,
    said: &Said<'_>,
    parts: &[(u64, u64)],
    bytes: u64,
) -> Composed {
    push_status_line(out, 206);
    let content_range = |&(first, last): &(u64, u64)| format!("bytes {first}-{last}/{bytes}");
    let range = |&(first, last): &(u64, u64)| Segment::Body(first..last + 1);
    if let [only] = parts {
        out.extend_from_slice(kept.field_lines());
        push_field(out, "Content-Range", content_range(only).as_bytes());
        out.extend_from_slice(b"Content-Length: ");
        push_number(out, only.1 - only.0 + 1);
        out.extend_from_slice(b"\r\n");
        return finish(out, context, said, 206, Body::Segments(vec![range(only)]), false);
    }
    let is_type = |field: &Field<'_>| field.name.eq_ignore_ascii_case("content-type");
    let content_type = kept.fields().find(is_type).map(|field| field.value);
    for field in kept.fields().filter(|field| !is_type(field)) {
        push_field(out, field.name, field.value);
    }
    let of_parts = format!("multipart/byteranges; boundary={BOUNDARY}");
    push_field(out, "Content-Type", of_parts.as_bytes());
    let (mut segments, mut sum) = (Vec::new(), 0);
    for it in parts {
        let mut head = format!("\r\n--{BOUNDARY}\r\n").into_bytes();
        if let Some(content_type) = content_type {
            push_field(&mut head, "Content-Type", content_type);
        }
        push_field(&mut head, "Content-Range", content_range(it).as_bytes());
        head.extend_from_slice(b"\r\n");
        sum += head.len() as u64 + (it.1 - it.0 + 1);
        segments.extend([Segment::Bytes(head), range(it)]);
    }
    let end = format!("\r\n--{BOUNDARY}--\r\n").into_bytes();
    sum += end.len() as u64;
    segments.push(Segment::Bytes(end));
    out.extend_from_slice(b"Content-Length: ");
    push_number(out, sum);
    out.extend_from_slice(b"\r\n");
    finish(out, context, said, 206, Body::Segments(segments), false)
}

/// Appends the end of all headers: `Age`, `Via`, `Cache-Status`, `Connection`, and the empty line.
fn finish(
    out: &mut Vec<u8>,
    context: &RequestContext<'_>,
    said: &Said<'_>,
    status: u16,
    body: Body,
    is_until_close: bool,
) -> Composed {
    if let Some(age_s) = said.age_s {
        out.extend_from_slice(b"Age: ");
        push_number(out, age_s);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"Via: 1.1 larder\r\n");
    if !said.cache_status.is_empty() {
        push_field(out, "Cache-Status", said.cache_status);
    }
    let closes = is_until_close || !context.keeps_alive;
    push_connection(out, context.minor_version, closes);
    out.extend_from_slice(b"\r\n");
    Composed { status, body, closes }
}

fn push_connection(out: &mut Vec<u8>, minor_version: u8, closes: bool) {
    match (closes, minor_version) {
        (true, _) => out.extend_from_slice(b"Connection: close\r\n"),
        (false, 0) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (false, _) => {}
    }
}

/// Appends a whole response of larder itself: a status, and a line that states the reason.
pub fn push_own(
    out: &mut Vec<u8>,
    status: u16,
    text: &str,
    context: &RequestContext<'_>,
    said: &Said<'_>,
    date_s: u64,
) -> Composed {
    push_status_line(out, status);
    crate::message::encode::push_field(out, "Content-Type", b"text/plain; charset=utf-8");
    out.extend_from_slice(b"Date: ");
    crate::message::encode::push_date(out, date_s);
    out.extend_from_slice(b"\r\nContent-Length: ");
    push_number(out, text.len() as u64 + 1);
    out.extend_from_slice(b"\r\n");
    let composed = finish(out, context, said, status, Body::None, false);
    if context.request.method != "HEAD" {
        out.extend_from_slice(text.as_bytes());
        out.push(b'\n');
    }
    composed
}

/// Appends the body after the headers, where it is in the record.
pub fn push_body(out: &mut Vec<u8>, body: &Body, bytes: &[u8]) {
    match body {
        Body::None => {}
        Body::Whole | Body::Chunks => out.extend_from_slice(bytes),
        Body::Segments(segments) => {
            for segment in segments {
                match segment {
                    Segment::Bytes(bytes) => out.extend_from_slice(bytes),
                    Segment::Body(range) => {
                        let (start, end) = (range.start as usize, range.end as usize);
                        out.extend_from_slice(bytes.get(start..end).unwrap_or_default());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cacheability::{Moments, store};
    use crate::record::{Parts, Record, fields_of, push_response};
    use crate::{Response, Rules};

    const LINES: &[u8] =
        b"Content-Type: text/x\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\nX-Other: y\r\n";

    fn record(status: u16, body: Option<&[u8]>) -> Vec<u8> {
        let fields: Vec<Field<'_>> = fields_of(LINES).collect();
        let moments = Moments { request_s: 1_000, response_s: 1_000 };
        let request = Request { method: "GET", fields: &[] };
        let response = Response { status, fields: &fields };
        let stored = store(&request, &response, moments, &Rules::default()).unwrap();
        let (mut out, mut status_line) = (Vec::new(), Vec::new());
        push_status_line(&mut status_line, status);
        let parts = Parts {
            stored: &stored,
            url: b"a.example/",
            serial: 0,
            tags: &[],
            status_line: &status_line,
            field_lines: LINES,
            body_bytes: body.map(|body| body.len() as u64),
            body_id: None,
        };
        assert!(push_response(&mut out, &parts));
        out.extend_from_slice(body.unwrap_or_default());
        out
    }

    /// The whole response as text, and its `Composed`.
    fn composed(record: &[u8], minor_version: u8, headers: &[(&str, &str)]) -> (String, Composed) {
        let Some(Record::Response(kept)) = Record::read(record) else { panic!("a response") };
        let fields: Vec<Field<'_>> =
            headers.iter().map(|&(name, value)| Field { name, value: value.as_bytes() }).collect();
        let request = Request { method: "GET", fields: &fields };
        let context = RequestContext { request, minor_version, keeps_alive: minor_version == 1 };
        let said = Said { age_s: Some(5), cache_status: b"larder; hit", heeds_conditions: true };
        let mut out = Vec::new();
        let composed = compose(&mut out, &kept, &context, &said, kept.body_bytes);
        push_body(&mut out, &composed.body, kept.body);
        (String::from_utf8(out).unwrap(), composed)
    }

    const TAIL: &str = "Age: 5\r\nVia: 1.1 larder\r\nCache-Status: larder; hit\r\n";

    /// The whole body, with `Age` and `Via`; where its length is not known, in chunks or until the
    /// connection closes.
    #[test]
    fn all_of_it() {
        let lines = std::str::from_utf8(LINES).unwrap();
        let (text, it) = composed(&record(200, Some(b"0123456789")), 1, &[]);
        let head = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 10\r\n{TAIL}\r\n");
        assert_eq!(text, format!("{head}0123456789"));
        assert_eq!(it, Composed { status: 200, body: Body::Whole, closes: false });
        let (text, it) = composed(&record(200, None), 1, &[]);
        assert!(text.contains("Transfer-Encoding: chunked\r\n") && it.body == Body::Chunks);
        let (text, it) = composed(&record(200, None), 0, &[]);
        assert!(!text.contains("chunked") && it.body == Body::Whole && it.closes);
        let (text, it) = composed(&record(204, Some(b"")), 1, &[]);
        assert!(!text.contains("Content-Length") && it.body == Body::None && !it.closes);
    }

    /// A client that has the response gets a 304, without the fields of a body.
    #[test]
    fn not_modified() {
        let (text, it) =
            composed(&record(200, Some(b"0123456789")), 1, &[("If-None-Match", "\"a\"")]);
        let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\n";
        assert_eq!(text, format!("HTTP/1.1 304 Not Modified\r\n{fields}{TAIL}\r\n"));
        assert_eq!((it.status, it.body), (304, Body::None));
    }

    /// One range, several, none.
    #[test]
    fn parts() {
        let record = record(200, Some(b"0123456789"));
        let (text, it) = composed(&record, 1, &[("Range", "bytes=2-4")]);
        assert!(text.starts_with("HTTP/1.1 206 Partial Content\r\nContent-Type: text/x\r\n"));
        assert!(text.contains("Content-Range: bytes 2-4/10\r\nContent-Length: 3\r\n"));
        assert!(text.ends_with("\r\n\r\n234") && it.status == 206);
        let (text, _) = composed(&record, 1, &[("Range", "bytes=0-0,8-")]);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{text}");
        assert!(
            head.contains("Content-Type: multipart/byteranges; boundary=")
                && !head.contains("text/x")
        );
        assert_eq!(body.matches("Content-Type: text/x\r\nContent-Range: bytes ").count(), 2);
        assert!(body.contains("0-0/10\r\n\r\n0\r\n--") && body.contains("8-9/10\r\n\r\n89\r\n--"));
        let (text, it) = composed(&record, 1, &[("Range", "bytes=10-")]);
        assert!(text.contains("Content-Range: bytes */10\r\nContent-Length: 0\r\n"));
        assert_eq!((it.status, it.body), (416, Body::None));
    }
}
