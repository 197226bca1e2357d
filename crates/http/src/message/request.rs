//! Headers of requests.

use httparse::{Error, Status};

use super::fields::{Fault, Said};
use super::target::is_authority;
use super::{FieldRoom, Framing, Limits, Target, has_bare_feed};
use crate::Field;

/// The headers of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// The method, in its case.
    pub method: &'a str,
    /// The target.
    pub target: Target<'a>,
    /// 0 or 1, of HTTP/1.
    pub minor_version: u8,
    /// The fields, in their order.
    pub fields: &'a [Field<'a>],
    /// Bytes of the headers, with the empty lines before them and the one after them.
    pub head_bytes: usize,
    /// Where the message ends; never [`Framing::UntilClose`].
    pub framing: Framing,
    /// The client wants to send another request.
    pub keeps_alive: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// The host: the authority of the target if it has one, else `Host`; empty where an HTTP/1.0
    /// client stated neither.
    pub host: &'a [u8],
}

/// A request that is refused: the status code of the response, and why. Its connection cannot be
/// used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// 400, 414, 431, 501 or 505.
    pub status: u16,
    /// For logs and metrics.
    pub reason: Reason,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// More than two empty lines before it.
    EmptyLines,
    /// A line that ends in a line feed alone, or with a carriage return without a line feed.
    LineEnd,
    /// It is not method, target and version with one space between.
    RequestLine,
    /// TLS on a port for HTTP without encryption.
    Tls,
    /// HTTP/2 with prior knowledge.
    Http2,
    /// Another version of HTTP.
    Version,
    /// A target with invalid bytes, or with an invalid host.
    Target,
    /// A target in a form that its method does not allow, or of another scheme.
    TargetForm,
    /// A longer target than [`Limits`] allow.
    TargetTooLong,
    /// Longer headers than [`Limits`] allow.
    HeadTooLong,
    /// More fields than [`Limits`] allow.
    TooManyFields,
    /// An invalid name of a field; white space before the colon; a folded line.
    FieldName,
    /// Control bytes in a value.
    FieldValue,
    /// No `Host`, in HTTP/1.1.
    HostMissing,
    /// More than one `Host`.
    HostTwice,
    /// An invalid `Host`.
    Host,
    /// An invalid length, one that is too large, or two that differ.
    Length,
    /// Both a length and codings.
    LengthAndCoding,
    /// Codings in which `chunked` is not last, or is there twice.
    Coding,
    /// Codings before `chunked`.
    CodingUnknown,
    /// Codings in HTTP/1.0, which has none.
    CodingOfOldVersion,
    /// More options of the connection than larder reads.
    ConnectionOptions,
}

impl Reason {
    /// A word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::EmptyLines => "empty-lines",
            Reason::LineEnd => "line-end",
            Reason::RequestLine => "request-line",
            Reason::Tls => "tls",
            Reason::Http2 => "http2",
            Reason::Version => "version",
            Reason::Target => "target",
            Reason::TargetForm => "target-form",
            Reason::TargetTooLong => "target-too-long",
            Reason::HeadTooLong => "head-too-long",
            Reason::TooManyFields => "too-many-fields",
            Reason::FieldName => "field-name",
            Reason::FieldValue => "field-value",
            Reason::HostMissing => "host-missing",
            Reason::HostTwice => "host-twice",
            Reason::Host => "host",
            Reason::Length => "length",
            Reason::LengthAndCoding => "length-and-coding",
            Reason::Coding => "coding",
            Reason::CodingUnknown => "coding-unknown",
            Reason::CodingOfOldVersion => "coding-of-old-version",
            Reason::ConnectionOptions => "connection-options",
        }
    }

    /// The status code of the response.
    pub fn status(self) -> u16 {
        match self {
            Reason::TargetTooLong => 414,
            Reason::HeadTooLong | Reason::TooManyFields => 431,
            Reason::CodingUnknown => 501,
            Reason::Version | Reason::Http2 => 505,
            _ => 400,
        }
    }
}

impl From<Reason> for Refused {
    fn from(reason: Reason) -> Refused {
        Refused { status: reason.status(), reason }
    }
}

impl From<Fault> for Reason {
    fn from(fault: Fault) -> Reason {
        match fault {
            Fault::Length => Reason::Length,
            Fault::Coding => Reason::Coding,
            Fault::CodingUnknown => Reason::CodingUnknown,
            Fault::LengthAndCoding => Reason::LengthAndCoding,
            Fault::ConnectionOptions => Reason::ConnectionOptions,
        }
    }
}

/// Reads the headers at the beginning of `bytes`; `None` where more bytes are needed.
pub fn request<'a, 'b: 'a>(
    bytes: &'b [u8],
    room: &'a mut FieldRoom<'b>,
    limits: &Limits,
) -> Result<Option<RequestHead<'a>>, Refused> {
    let Some(begin) = after_empty_lines(bytes)? else { return Ok(None) };
    let bytes = &bytes[begin..];
    let bytes = &bytes[..bytes.len().min(limits.head_bytes_max)];
    let mut read = httparse::Request::new(&mut []);
    let room = &mut room.0[..limits.fields_max.min(super::FIELDS_MAX)];
    let head_bytes = match read.parse_with_uninit_headers(bytes, room) {
        Ok(Status::Complete(head_bytes)) => head_bytes,
        Ok(Status::Partial) => {
            unfinished(bytes, limits)?;
            return Ok(None);
        }
        Err(error) => return Err(reason(error, bytes).into()),
    };
    let (Some(method), Some(target), Some(minor_version)) = (read.method, read.path, read.version)
    else {
        return Err(Reason::RequestLine.into());
    };
    if target.len() > limits.target_bytes_max {
        return Err(Reason::TargetTooLong.into());
    }
    if has_bare_feed(&bytes[..head_bytes]) {
        return Err(Reason::LineEnd.into());
    }
    let target = Target::read(method, target.as_bytes())?;
    let said = Said::read(read.headers).map_err(Reason::from)?;
    let framing = match said.length {
        _ if said.is_chunked && minor_version == 0 => {
            return Err(Reason::CodingOfOldVersion.into());
        }
        _ if said.is_chunked => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => Framing::None,
    };
    Ok(Some(RequestHead {
        method,
        target,
        minor_version,
        fields: read.headers,
        head_bytes: begin + head_bytes,
        framing,
        keeps_alive: said.stays_open(minor_version),
        expects_continue: said.expects_continue && minor_version > 0,
        host: host(&target, &said, minor_version)?,
    }))
}

/// Where a request begins, after up to two empty lines left over from another request (RFC 9112,
/// section 2.2). `None` where more bytes are needed.
fn after_empty_lines(bytes: &[u8]) -> Result<Option<usize>, Reason> {
    for begin in [0, 2, 4] {
        match bytes.get(begin..).unwrap_or_default() {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => {}
            [b'\r' | b'\n', ..] => return Err(Reason::LineEnd),
            _ => return Ok(Some(begin)),
        }
    }
    Err(Reason::EmptyLines)
}

/// Refuses bytes that cannot become a valid request, whatever follows.
fn unfinished(bytes: &[u8], limits: &Limits) -> Result<(), Reason> {
    if has_bare_feed(bytes) {
        return Err(Reason::LineEnd);
    }
    let target = bytes.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
    if target.len() > limits.target_bytes_max {
        return Err(Reason::TargetTooLong);
    }
    if bytes.len() >= limits.head_bytes_max {
        return Err(Reason::HeadTooLong);
    }
    Ok(())
}

/// Why httparse refuses bytes.
fn reason(error: Error, bytes: &[u8]) -> Reason {
    match error {
        Error::HeaderName => Reason::FieldName,
        Error::HeaderValue => Reason::FieldValue,
        Error::TooManyHeaders => Reason::TooManyFields,
        Error::NewLine => Reason::LineEnd,
        Error::Version if bytes.starts_with(b"PRI * HTTP/2") => Reason::Http2,
        Error::Version => {
            let version = bytes.split(|&byte| byte == b' ').nth(2).unwrap_or_default();
            let number = version.strip_prefix(b"HTTP/").and_then(<[u8]>::first);
            let is_other = number.is_some_and(u8::is_ascii_digit);
            if is_other { Reason::Version } else { Reason::RequestLine }
        }
        _ if bytes.starts_with(&[22, 3]) => Reason::Tls,
        Error::Token | Error::Status => Reason::RequestLine,
    }
}

/// The host whose resource is requested (RFC 9112, section 3.2).
fn host<'a>(target: &Target<'a>, said: &Said<'a>, minor_version: u8) -> Result<&'a [u8], Reason> {
    if said.hosts > 1 {
        return Err(Reason::HostTwice);
    }
    if said.host.is_some_and(|host| !is_authority(host)) {
        return Err(Reason::Host);
    }
    match (*target, said.host) {
        (_, None) if minor_version > 0 => Err(Reason::HostMissing),
        (Target::Absolute { authority, .. } | Target::Authority(authority), _) => Ok(authority),
        (_, host) => Ok(host.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], check: impl Fn(Option<RequestHead<'_>>)) -> Result<(), Refused> {
        let mut room = FieldRoom::new();
        request(bytes, &mut room, &Limits::default()).map(check)
    }

    /// A plain request, with all values read from it; the bytes after it are not consumed.
    #[test]
    fn plain() {
        let bytes = b"\r\nGET /a?b HTTP/1.1\r\nHost: a.b:80\r\nX:\t c d \r\n\r\nGET /";
        let check = |head: Option<RequestHead<'_>>| {
            let head = head.unwrap();
            assert_eq!((head.method, head.minor_version), ("GET", 1));
            assert_eq!(head.target, Target::Origin { path: b"/a?b" });
            assert_eq!((head.host, head.head_bytes), (&b"a.b:80"[..], bytes.len() - 5));
            let fields = [("Host", &b"a.b:80"[..]), ("X", b"c d")];
            assert!(head.fields.iter().map(|it| (it.name, it.value)).eq(fields));
            assert_eq!(head.framing, Framing::None);
            assert!(head.keeps_alive && !head.expects_continue);
        };
        assert_eq!(read(bytes, check), Ok(()));
    }

    /// A limit is the largest allowed value; one more is refused, for the target, the headers and
    /// their fields.
    #[test]
    fn limits() {
        let bytes = b"GET /abc HTTP/1.1\r\nHost: a\r\nB: c\r\n\r\n";
        let fits = Limits { head_bytes_max: bytes.len(), target_bytes_max: 4, fields_max: 2 };
        let status = |limits: &Limits, bytes: &[u8]| {
            let mut room = FieldRoom::new();
            let read = request(bytes, &mut room, limits);
            read.map(|head| head.is_some()).map_err(|refused| refused.status)
        };
        assert_eq!(status(&fits, bytes), Ok(true));
        assert_eq!(status(&fits, &[&b"\r\n"[..], bytes].concat()), Ok(true));
        for (limits, expected) in [
            (Limits { head_bytes_max: bytes.len() - 1, ..fits }, 431),
            (Limits { target_bytes_max: 3, ..fits }, 414),
            (Limits { fields_max: 1, ..fits }, 431),
        ] {
            assert_eq!(status(&limits, bytes), Err(expected));
            let early = (0..bytes.len()).find_map(|end| status(&limits, &bytes[..end]).err());
            assert_eq!(early, Some(expected), "as soon as it can be told");
        }
        let huge = Limits { head_bytes_max: usize::MAX, fields_max: 1000, ..Limits::default() };
        let fields = "A: b\r\n".repeat(super::super::FIELDS_MAX);
        let many = format!("GET / HTTP/1.1\r\n{fields}Host: a\r\n\r\n");
        assert_eq!(status(&huge, many.as_bytes()), Err(431));
    }

    /// Version and fields decide whether the connection stays open and the client waits for 100.
    /// Some requests are refused before the headers end.
    #[test]
    fn connections() {
        let said = |version: u8, field: &str| {
            let bytes = format!("GET / HTTP/1.{version}\r\nHost: a\r\n{field}\r\n\r\n");
            let mut room = FieldRoom::new();
            let head = request(bytes.as_bytes(), &mut room, &Limits::default()).unwrap().unwrap();
            (head.keeps_alive, head.expects_continue)
        };
        assert_eq!((said(1, "A: b"), said(0, "A: b")), ((true, false), (false, false)));
        assert_eq!(
            (said(1, "Connection: x,CLOSE").0, said(0, "Connection: keep-alive").0),
            (false, true)
        );
        assert_eq!(said(1, "Expect: 100-Continue"), (true, true));
        assert_eq!(said(0, "Expect: 100-continue"), (false, false), "it had none");
        assert_eq!(said(1, "Expect: 200"), (true, false));
        let early = read(b"GET / HTTP/1.1\nHost", |_| ()).map_err(|refused| refused.reason);
        assert_eq!(early, Err(Reason::LineEnd));
    }

    /// Each other protocol and version has its own reason.
    #[test]
    fn others() {
        let reason = |bytes: &[u8]| read(bytes, |_| ()).map_err(|it| (it.status, it.reason));
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert_eq!(reason(preface), Err((505, Reason::Http2)));
        assert_eq!(reason(&preface[..14]), Err((505, Reason::Http2)));
        assert_eq!(reason(b"GET / HTTP/2.0\r\n"), Err((505, Reason::Version)));
        assert_eq!(reason(b"GET / HTTP/1.2\r\n"), Err((505, Reason::Version)));
        assert_eq!(reason(b"GET / HTTQ/1.1\r\n"), Err((400, Reason::RequestLine)));
        assert_eq!(reason(b"\x16\x03\x01\x02\x00\x01"), Err((400, Reason::Tls)));
    }
}
