//! Converts a request of HTTP/2 to HTTP/1.1 (RFC 9113, section 8.3).
//!
//! The event loop's own parser reads it again, and refuses invalid requests. So this module handles
//! only the differences of HTTP/2. It does not forward fields that frame a message or are of a
//! connection, so no program can read the framing differently.

use h2::Reason;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, TE};
use http::request::Parts;
use http::{HeaderMap, Method};

/// Fields of one connection, or about where a message ends; h2 refuses most of them itself.
const NOT_PASSED: [&str; 10] = [
    "connection",
    "content-length",
    "cookie",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// How a request's body is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none.
    None,
    /// As it is: h2 checks that it has the stated length.
    Length,
    /// In chunks.
    Chunks,
}

/// Why a request cannot be sent in HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsaid {
    /// The stream is reset for this reason.
    Reset(Reason),
    /// The client gets this status.
    Status(u16),
}

/// The headers of the request, and the framing of its body. `is_end`: there is no body.
pub(super) fn head(parts: &Parts, is_end: bool) -> Result<(Vec<u8>, Framing), Unsaid> {
    if parts.method == Method::CONNECT {
        // larder is no tunnel.
        return Err(Unsaid::Status(501));
    }
    let path = parts.uri.path_and_query().map_or("/", |it| it.as_str());
    let mut head = Vec::with_capacity(512);
    for part in [parts.method.as_str(), " ", path, " HTTP/1.1\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    if let Some(host) = host(parts)? {
        push(&mut head, "host", host);
    }
    for (name, value) in &parts.headers {
        if !NOT_PASSED.contains(&name.as_str()) {
            push(&mut head, name.as_str(), value.as_bytes());
        }
    }
    push_cookies(&mut head, &parts.headers);
    // h2 accepts no other value.
    if parts.headers.contains_key(TE) {
        push(&mut head, "te", b"trailers");
    }
    let framing = match length(&parts.headers)? {
        Some(length) => {
            push(&mut head, "content-length", length);
            if is_end { Framing::None } else { Framing::Length }
        }
        None if is_end => Framing::None,
        None => {
            push(&mut head, "transfer-encoding", b"chunked");
            Framing::Chunks
        }
    };
    head.extend_from_slice(b"\r\n");
    Ok((head, framing))
}

/// Trailers after the last chunk, and the empty line after them.
pub(super) fn trailers(fields: &HeaderMap) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        if !NOT_PASSED.contains(&name.as_str()) {
            push(&mut out, name.as_str(), value.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// h2 accepts no byte that would end a line.
fn push(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// The host: `:authority`, or else `Host`, which may not name another (section 8.3.1).
fn host(parts: &Parts) -> Result<Option<&[u8]>, Unsaid> {
    let malformed = Err(Unsaid::Reset(Reason::PROTOCOL_ERROR));
    let authority = parts.uri.authority().map(|it| it.as_str().as_bytes());
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = hosts.next().map(|it| it.as_bytes());
    match (authority, host) {
        _ if hosts.next().is_some() => malformed,
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => malformed,
        (authority, host) => Ok(authority.or(host)),
    }
}

/// The stated length; two fields are an error.
fn length(fields: &HeaderMap) -> Result<Option<&[u8]>, Unsaid> {
    let mut all = fields.get_all(CONTENT_LENGTH).iter().map(|it| it.as_bytes());
    let first = all.next();
    if all.any(|other| Some(other) != first) {
        return Err(Unsaid::Reset(Reason::PROTOCOL_ERROR));
    }
    Ok(first)
}

/// Joins cookies that came in several fields (section 8.2.3).
fn push_cookies(head: &mut Vec<u8>, fields: &HeaderMap) {
    let crumbs: Vec<&[u8]> = fields.get_all(COOKIE).iter().map(|it| it.as_bytes()).collect();
    if !crumbs.is_empty() {
        push(head, "cookie", &crumbs.join(&b"; "[..]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn said(request: http::request::Builder, is_end: bool) -> Result<(String, Framing), Unsaid> {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        head(&parts, is_end).map(|(head, framing)| (String::from_utf8(head).unwrap(), framing))
    }

    /// Pseudo-fields become a line and `Host`, several cookies become one field, and larder writes
    /// the framing itself.
    #[test]
    fn heads() {
        let request = Request::get("https://a.example:8443/x?y")
            .header("te", "trailers")
            .header("cookie", "a=1")
            .header("accept", "*/*")
            .header("cookie", "b=2")
            .header("host", "A.example:8443");
        let expected = "GET /x?y HTTP/1.1\r\nhost: a.example:8443\r\naccept: */*\r\ncookie: a=1; b=2\r\nte: trailers\r\n\r\n";
        assert_eq!(said(request, true), Ok((expected.to_owned(), Framing::None)));
        let request = Request::post("https://a/").header("content-length", "3");
        let expected = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n";
        assert_eq!(said(request, false), Ok((expected.to_owned(), Framing::Length)));
        let expected = "PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        let put = said(Request::put("https://a/"), false);
        assert_eq!(put, Ok((expected.to_owned(), Framing::Chunks)));
        let expected = "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n";
        let request = Request::options("*").header("host", "a");
        assert_eq!(said(request, true), Ok((expected.to_owned(), Framing::None)));
    }

    /// Two hosts or two lengths are an invalid request, and larder is no tunnel.
    #[test]
    fn refused() {
        let malformed = Err(Unsaid::Reset(Reason::PROTOCOL_ERROR));
        assert_eq!(said(Request::get("https://a/").header("host", "b"), true), malformed);
        let twice = Request::get("/").header("host", "a").header("host", "a");
        assert_eq!(said(twice, true), malformed);
        let lengths =
            Request::post("https://a/").header("content-length", "1").header("content-length", "2");
        assert_eq!(said(lengths, false), malformed);
        let tunnel = Request::builder().method("CONNECT").uri("a:443");
        assert_eq!(said(tunnel, false), Err(Unsaid::Status(501)));
    }
}
