//! Headers of responses, as an origin sends them.

use httparse::{Error, ParserConfig, Status};

use super::fields::{Fault, Said};
use super::{FieldRoom, Framing, Limits, has_bare_feed};
use crate::Field;

/// The headers of a response.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'a> {
    /// The status code, 100 to 999, but not 101.
    pub status: u16,
    /// The reason phrase; empty where it was not ASCII.
    pub reason: &'a str,
    /// 0 or 1, of HTTP/1.
    pub minor_version: u8,
    /// The fields, in their order.
    pub fields: &'a [Field<'a>],
    /// Bytes of the headers, with the empty line after them.
    pub head_bytes: usize,
    /// Where the message ends.
    pub framing: Framing,
    /// The connection may be used for another request once the message has ended. It may not if
    /// unrequested bytes come after the message.
    pub keeps_alive: bool,
}

/// Why a response is invalid. Its connection cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BadResponse {
    /// It is not version, status code and a word with one space between, or another version of HTTP.
    StatusLine,
    /// An invalid status code.
    Status,
    /// 101: larder did not request another protocol.
    Upgrade,
    /// A line that does not end in CRLF.
    LineEnd,
    /// Longer headers than [`Limits`] allow.
    HeadTooLong,
    /// More fields than [`Limits`] allow.
    TooManyFields,
    /// An invalid name of a field; white space before the colon; a folded line.
    FieldName,
    /// Control bytes in a value.
    FieldValue,
    /// A length that is no number, is too large, or is repeated with another value.
    Length,
    /// Both a length and codings.
    LengthAndCoding,
    /// Other codings than `chunked`, or codings in HTTP/1.0, which has none.
    Coding,
    /// More options of the connection than larder reads.
    ConnectionOptions,
}

impl BadResponse {
    /// A word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            BadResponse::StatusLine => "status-line",
            BadResponse::Status => "status",
            BadResponse::Upgrade => "upgrade",
            BadResponse::LineEnd => "line-end",
            BadResponse::HeadTooLong => "head-too-long",
            BadResponse::TooManyFields => "too-many-fields",
            BadResponse::FieldName => "field-name",
            BadResponse::FieldValue => "field-value",
            BadResponse::Length => "length",
            BadResponse::LengthAndCoding => "length-and-coding",
            BadResponse::Coding => "coding",
            BadResponse::ConnectionOptions => "connection-options",
        }
    }
}

impl From<Fault> for BadResponse {
    fn from(fault: Fault) -> BadResponse {
        match fault {
            Fault::Length => BadResponse::Length,
            Fault::Coding | Fault::CodingUnknown => BadResponse::Coding,
            Fault::LengthAndCoding => BadResponse::LengthAndCoding,
            Fault::ConnectionOptions => BadResponse::ConnectionOptions,
        }
    }
}

impl From<Error> for BadResponse {
    fn from(error: Error) -> BadResponse {
        match error {
            Error::HeaderName => BadResponse::FieldName,
            Error::HeaderValue => BadResponse::FieldValue,
            Error::TooManyHeaders => BadResponse::TooManyFields,
            Error::NewLine => BadResponse::LineEnd,
            Error::Token | Error::Status | Error::Version => BadResponse::StatusLine,
        }
    }
}

/// Reads the headers at the beginning of `bytes`, of the response to a request with this method;
/// `None` where more bytes are needed. After headers with a status below 200 others follow; the
/// caller skips the first ones.
pub fn response<'a, 'b: 'a>(
    bytes: &'b [u8],
    room: &'a mut FieldRoom<'b>,
    request_method: &str,
    limits: &Limits,
) -> Result<Option<ResponseHead<'a>>, BadResponse> {
    let bytes = &bytes[..bytes.len().min(limits.head_bytes_max)];
    // httparse would skip empty lines; only requests may begin with those.
    if bytes.first().is_some_and(|&first| first != b'H') {
        return Err(BadResponse::StatusLine);
    }
    let mut read = httparse::Response::new(&mut []);
    let room = &mut room.0[..limits.fields_max.min(super::FIELDS_MAX)];
    let parser = ParserConfig::default();
    let head_bytes = match parser.parse_response_with_uninit_headers(&mut read, bytes, room)? {
        Status::Complete(head_bytes) => head_bytes,
        Status::Partial if has_bare_feed(bytes) => return Err(BadResponse::LineEnd),
        Status::Partial if bytes.len() >= limits.head_bytes_max => {
            return Err(BadResponse::HeadTooLong);
        }
        Status::Partial => return Ok(None),
    };
    let (Some(status), Some(reason), Some(minor_version)) = (read.code, read.reason, read.version)
    else {
        return Err(BadResponse::StatusLine);
    };
    if has_bare_feed(&bytes[..head_bytes]) {
        return Err(BadResponse::LineEnd);
    }
    match status {
        101 => return Err(BadResponse::Upgrade),
        // A response with an undefined status is forwarded, and not stored.
        100..=999 => {}
        _ => return Err(BadResponse::Status),
    }
    let said = Said::read(read.headers)?;
    if said.is_chunked && minor_version == 0 {
        return Err(BadResponse::Coding);
    }
    let framing = framing(status, request_method, &said);
    // The response may have no body but announces one, so one may come after all.
    let is_false = matches!(status, 100..=199 | 204)
        && (said.is_chunked || said.length.is_some_and(|length| length > 0));
    let stays_open = said.stays_open(minor_version) && framing != Framing::UntilClose && !is_false;
    Ok(Some(ResponseHead {
        status,
        reason,
        minor_version,
        fields: read.headers,
        head_bytes,
        framing,
        keeps_alive: stays_open,
    }))
}

/// Where a response ends (RFC 9112, section 6.3).
fn framing(status: u16, request_method: &str, said: &Said<'_>) -> Framing {
    if request_method == "HEAD" || matches!(status, 100..=199 | 204 | 304) {
        return Framing::None;
    }
    match said.length {
        // A tunnel follows.
        _ if request_method == "CONNECT" && status < 300 => Framing::UntilClose,
        _ if said.is_chunked => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, bytes: &str) -> Result<Option<(u16, Framing, bool)>, BadResponse> {
        let mut room = FieldRoom::new();
        let head = response(bytes.as_bytes(), &mut room, method, &Limits::default())?;
        Ok(head.map(|head| (head.status, head.framing, head.keeps_alive)))
    }

    /// Status, method and fields decide where responses end, and whether their connection stays
    /// open.
    #[test]
    fn framings() {
        use Framing::{Chunked, Length, None, UntilClose};
        let table = [
            ("GET", "HTTP/1.1 200 OK", "Content-Length: 5", Length(5), true),
            ("GET", "HTTP/1.1 200 OK", "Transfer-Encoding: chunked", Chunked, true),
            ("GET", "HTTP/1.1 200", "Connection: close, x\r\nContent-Length: 5", Length(5), false),
            ("GET", "HTTP/1.1 200 ", "A: b", UntilClose, false),
            ("GET", "HTTP/1.0 200 OK", "Content-Length: 5", Length(5), false),
            (
                "GET",
                "HTTP/1.0 200 OK",
                "Connection: Keep-Alive\r\nContent-Length: 0",
                Length(0),
                true,
            ),
            ("GET", "HTTP/1.0 200 OK", "Connection: Keep-Alive", UntilClose, false),
            ("HEAD", "HTTP/1.1 200 OK", "Content-Length: 5", None, true),
            ("HEAD", "HTTP/1.1 200 OK", "Transfer-Encoding: chunked", None, true),
            ("GET", "HTTP/1.1 304 Not Modified", "Content-Length: 5", None, true),
            ("GET", "HTTP/1.1 204 No Content", "Content-Length: 0", None, true),
            ("GET", "HTTP/1.1 204 No Content", "Content-Length: 5", None, false),
            ("GET", "HTTP/1.1 204 No Content", "Transfer-Encoding: chunked", None, false),
            ("GET", "HTTP/1.1 100 Continue", "A: b", None, true),
            ("GET", "HTTP/1.1 103 Early Hints", "Link: </a>", None, true),
            ("CONNECT", "HTTP/1.1 200 OK", "Content-Length: 5", UntilClose, false),
        ];
        for (method, line, fields, framing, keeps_alive) in table {
            let bytes = format!("{line}\r\n{fields}\r\n\r\n");
            let status = line[9..12].parse().unwrap();
            assert_eq!(read(method, &bytes), Ok(Some((status, framing, keeps_alive))), "{bytes}");
            for end in 0..bytes.len() {
                assert_eq!(read(method, &bytes[..end]), Ok(Option::None), "{bytes:?} to {end}");
            }
        }
    }

    /// Ambiguous responses are refused.
    #[test]
    fn refusals() {
        use BadResponse::{
            Coding, FieldName, FieldValue, Length, LengthAndCoding, LineEnd, Status, StatusLine,
            Upgrade,
        };
        let lines = [
            ("\r\nHTTP/1.1 200 OK\r\n\r\n", StatusLine),
            ("HTTP/2.0 200 OK\r\n\r\n", StatusLine),
            ("HTTP/1.1  200 OK\r\n\r\n", StatusLine),
            ("HTTP/1.1 20 OK\r\n\r\n", StatusLine),
            ("HTTP/1.1 2000 OK\r\n\r\n", StatusLine),
            ("HTTP/1.1 200 \0\r\n\r\n", StatusLine),
            ("ICY 200 OK\r\n\r\n", StatusLine),
            ("HTTP/1.1 099 OK\r\n\r\n", Status),
            ("HTTP/1.1 101 OK\r\n\r\n", Upgrade),
            ("HTTP/1.1 200 OK\n\r\n", LineEnd),
            ("HTTP/1.1 200 OK\r\n\n", LineEnd),
            ("HTTP/1.1 200 OK\r\nA: b\nC", LineEnd),
            ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", FieldName),
            ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", FieldName),
            ("HTTP/1.1 200 OK\r\n: b\r\n\r\n", FieldName),
            ("HTTP/1.1 200 OK\r\nA\r\n\r\n", FieldName),
            ("HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", FieldValue),
            ("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", FieldValue),
        ];
        for (bytes, error) in lines {
            assert_eq!(read("GET", bytes), Err(error), "{bytes:?}");
        }
        let fields = [
            ("Content-Length: 1\r\nContent-Length: 2", Length),
            ("Content-Length: 1, 2", Length),
            ("Content-Length: -1", Length),
            ("Content-Length: 1\r\nTransfer-Encoding: chunked", LengthAndCoding),
            ("Transfer-Encoding: gzip, chunked", Coding),
            ("Transfer-Encoding: gzip", Coding),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Coding),
        ];
        for (fields, error) in fields {
            for method in ["GET", "HEAD"] {
                let bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
                assert_eq!(read(method, &bytes), Err(error), "{bytes:?}");
            }
        }
        let old = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(read("GET", old), Err(Coding));
    }

    /// Headers of the largest length are accepted and longer ones refused, and so for the number of
    /// fields.
    #[test]
    fn limits() {
        let bytes = b"HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\n\r\nbody";
        let fits = Limits { head_bytes_max: bytes.len() - 4, fields_max: 2, ..Limits::default() };
        let read = |limits: &Limits| {
            let mut room = FieldRoom::new();
            response(bytes, &mut room, "GET", limits).map(|head| head.map(|it| it.head_bytes))
        };
        assert_eq!(read(&fits), Ok(Some(bytes.len() - 4)));
        let less = Limits { head_bytes_max: bytes.len() - 5, ..fits };
        assert_eq!(read(&less), Err(BadResponse::HeadTooLong));
        assert_eq!(read(&Limits { fields_max: 1, ..fits }), Err(BadResponse::TooManyFields));
    }
}
