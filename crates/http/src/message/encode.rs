//! Writes status lines, fields, numbers, dates, and sizes of chunks.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use larder_wire::digits;

use super::{is_field_value, is_token};

/// The last second that an HTTP date can express, in the year 9999.
const DATE_S_MAX: u64 = 253_402_300_799;

/// `HTTP/1.1 200 OK`, with the usual phrase; an unknown code has none.
pub fn push_status_line(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    push_number(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A line of the headers. The caller wrote name and value itself, or read them with this module.
pub fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    debug_assert!(is_token(name.as_bytes()) && is_field_value(value), "{name}: {value:?}");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// In decimal digits.
pub fn push_number(out: &mut Vec<u8>, number: u64) {
    digits::write_u64(number, out);
}

/// The line before a chunk's data. After the data comes CRLF. A size of 0 ends the body, followed
/// by one more CRLF.
pub fn push_chunk_size(out: &mut Vec<u8>, bytes: usize) {
    let digits = (usize::BITS - bytes.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[bytes >> (4 * digit) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

/// A date, of seconds since 1970: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn push_date(out: &mut Vec<u8>, date_s: u64) {
    let date = UNIX_EPOCH + Duration::from_secs(date_s.min(DATE_S_MAX));
    write!(out, "{}", httpdate::HttpDate::from(date)).expect("a vector takes all that is written");
}

/// The usual phrase of a status code (RFC 9110, section 15, and the IANA list).
pub fn phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        511 => "Network Authentication Required",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(push: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = b"|".to_vec();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// Each line as it is sent, appended to the bytes before it.
    #[test]
    fn lines() {
        assert_eq!(pushed(|out| push_status_line(out, 200)), "|HTTP/1.1 200 OK\r\n");
        assert_eq!(pushed(|out| push_status_line(out, 599)), "|HTTP/1.1 599 \r\n");
        assert_eq!(pushed(|out| push_field(out, "A", b"b c")), "|A: b c\r\n");
        for number in [0, 7, 10, 99, 100, u64::MAX] {
            assert_eq!(pushed(|out| push_number(out, number)), format!("|{number}"));
        }
        for bytes in [0, 1, 15, 16, 255, 256, 65_536, 0x00ab_cdef, usize::MAX] {
            assert_eq!(pushed(|out| push_chunk_size(out, bytes)), format!("|{bytes:x}\r\n"));
        }
    }

    /// Dates in the one form that larder sends, up to the last one with a year of four digits.
    #[test]
    fn dates() {
        let date = |date_s| pushed(|out| push_date(out, date_s));
        assert_eq!(date(784_111_777), "|Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date(0), "|Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(date(u64::MAX), "|Fri, 31 Dec 9999 23:59:59 GMT");
    }

    /// The phrases are those of the `http` crate, where both have one and the crate writes it as
    /// the RFC does.
    #[test]
    fn phrases() {
        let renamed = [203, 413, 422];
        for status in (100..600).filter(|status| !renamed.contains(status)) {
            let theirs = http::StatusCode::from_u16(status).unwrap().canonical_reason();
            if let (Some(theirs), false) = (theirs, phrase(status).is_empty()) {
                assert_eq!(phrase(status), theirs);
            }
        }
        assert!(
            phrase(200) == "OK" && phrase(413) == "Content Too Large" && phrase(799).is_empty()
        );
    }
}
