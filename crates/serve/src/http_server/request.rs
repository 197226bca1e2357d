//! A request: one line and its header fields.

use std::net::IpAddr;

use super::{Limits, Mode};

/// The most header fields of a request.
pub const FIELDS_MAX: usize = 64;

/// A request by GET or HEAD.
#[derive(Debug)]
pub struct Request<'a> {
    /// The target as it was sent, without the query. From a valid client it is a path.
    pub path: &'a str,
    /// What follows the first `?` of the target, as it was sent; empty without one.
    pub query: &'a str,
    /// The client wants only the headers of the response (HEAD).
    pub is_head: bool,
    /// The address of this machine to which the client connected; `None` over a Unix socket.
    pub local: Option<IpAddr>,
    pub(super) fields: &'a [httparse::Header<'a>],
    pub(super) wishes: Wishes,
}

/// How a client receives responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// Without a body (HEAD).
    pub is_head: bool,
    /// It uses HTTP/1.1, so it accepts chunks.
    pub takes_chunks: bool,
    /// The connection stays open afterwards.
    pub keeps: bool,
}

impl Wishes {
    /// For a request that is invalid: no one knows where the next one would begin.
    pub const NONE: Wishes = Wishes { is_head: false, takes_chunks: false, keeps: false };
}

impl<'a> Request<'a> {
    /// The header fields: names as they were sent, and values.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.fields.iter().map(|field| (field.name, field.value))
    }
}

/// The result of reading a client's bytes.
#[derive(Debug)]
pub enum Read<'a> {
    /// A request, and its length in bytes.
    Request(Request<'a>, usize),
    /// The beginning of a request.
    More,
    /// The server refuses it with this status, and closes the connection.
    Refused(u16),
}

/// Reads a request from the start of `bytes`.
pub fn read<'a>(
    bytes: &'a [u8],
    fields: &'a mut [httparse::Header<'a>],
    limits: &Limits,
    mode: Mode,
    local: Option<IpAddr>,
) -> Read<'a> {
    let mut parsed = httparse::Request::new(fields);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < limits.head_bytes_max => return Read::More,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Read::Refused(431);
        }
        Err(_) => return Read::Refused(400),
    };
    let is_head = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Read::Refused(405),
    };
    let takes_chunks = parsed.version == Some(1);
    let fields: &[httparse::Header<'_>] = parsed.headers;
    let keeps = match mode {
        Mode::OneRequest | Mode::Push => false,
        Mode::KeepAlive if has_content(fields) => return Read::Refused(400),
        Mode::KeepAlive => keeps(fields, takes_chunks),
    };
    let path = parsed.path.unwrap_or_default();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let wishes = Wishes { is_head, takes_chunks, keeps };
    Read::Request(Request { path, query, is_head, local, fields, wishes }, length)
}

/// True where bytes follow that belong to the request, or may do so.
fn has_content(fields: &[httparse::Header<'_>]) -> bool {
    fields.iter().any(|field| {
        field.name.eq_ignore_ascii_case("transfer-encoding")
            || (field.name.eq_ignore_ascii_case("content-length")
                && field.value.trim_ascii() != b"0")
    })
}

/// Whether the connection stays open. `by_itself`: it does so without a `Connection` field
/// (HTTP/1.1).
fn keeps(fields: &[httparse::Header<'_>], by_itself: bool) -> bool {
    let mut keeps = by_itself;
    for field in fields.iter().filter(|field| field.name.eq_ignore_ascii_case("connection")) {
        let has = |word: &str| {
            let mut words = field.value.split(|byte| *byte == b',');
            words.any(|part| part.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
        };
        keeps = (keeps && !has("close")) || has("keep-alive");
    }
    keeps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for these bytes: path, wishes and length, or a status; `None`: more bytes are
    /// needed.
    fn of(bytes: &[u8], mode: Mode) -> Option<Result<(String, Wishes, usize), u16>> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        match read(bytes, &mut fields, &Limits::default(), mode, None) {
            Read::More => None,
            Read::Refused(status) => Some(Err(status)),
            Read::Request(request, bytes) => {
                Some(Ok((request.path.to_owned(), request.wishes, bytes)))
            }
        }
    }

    /// Paths, methods, versions; an invalid request gets the status for its reason.
    #[test]
    fn requests() {
        let keep_alive = |text: &str| of(text.as_bytes(), Mode::KeepAlive);
        let wishes = Wishes { is_head: false, takes_chunks: true, keeps: true };
        let request = "GET /segments/00000012.pcapng?x=1 HTTP/1.1\r\nRange: bytes=5-9\r\n\r\nGET";
        let path = "/segments/00000012.pcapng".to_owned();
        assert_eq!(keep_alive(request), Some(Ok((path, wishes, 64))));
        assert_eq!(keep_alive("GET / HTTP/1.1\r\nHost: a"), None);
        assert_eq!(keep_alive("POST / HTTP/1.1\r\n\r\n"), Some(Err(405)));
        assert_eq!(keep_alive("\x16\x03\x01\x02\r\n\r\n"), Some(Err(400)));
        let long = |bytes: usize| format!("{:x<bytes$}", "GET / HTTP/1.1\r\nA: ");
        assert_eq!(keep_alive(&long((8 << 10) - 1)), None);
        assert_eq!(keep_alive(&long(8 << 10)), Some(Err(431)));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(FIELDS_MAX + 1));
        assert_eq!(keep_alive(&many), Some(Err(431)));
        // Content would be read as the next request; a request without content is fine.
        for (fields, status) in [
            ("Content-Length: 5\r\n", Some(400)),
            ("Content-Length: 0\r\nContent-Length: 5\r\n", Some(400)),
            ("content-length: 0\r\n", None),
            ("Transfer-Encoding: chunked\r\n", Some(400)),
        ] {
            let request = format!("GET / HTTP/1.1\r\n{fields}\r\n");
            assert_eq!(keep_alive(&request).and_then(Result::err), status, "{fields}");
            assert!(of(request.as_bytes(), Mode::OneRequest).is_some_and(|read| read.is_ok()));
        }
    }

    /// HTTP/1.1 keeps the connection open unless a field says otherwise, HTTP/1.0 closes it.
    #[test]
    fn connections_are_kept() {
        for (request, expected) in [
            ("GET / HTTP/1.1\r\n\r\n", true),
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nConnection: x, Close\r\n\r\n", false),
        ] {
            let keeps = |mode| of(request.as_bytes(), mode).unwrap().unwrap().1.keeps;
            assert_eq!(keeps(Mode::KeepAlive), expected, "{request}");
            assert!(!keeps(Mode::OneRequest));
        }
    }
}
