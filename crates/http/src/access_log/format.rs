//! A line of the log for each exchange: in the combined format that all log tools read, or as a
//! JSON object.
//!
//! ```text
//! 192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 2326 "http://b.test/" "curl/8.5.0"
//! {"time":"2026-10-10T13:55:36.123Z","client":"192.0.2.1",...}
//! ```
//!
//! No bytes of a client can add a line, end a quoted value or make an object invalid. In the
//! combined format quotes, backslashes and all bytes but visible ASCII are written as `\xHH`, as
//! nginx does. In JSON, bytes that are not UTF-8 are written so too. Times are UTC. Cost: the bytes
//! of the line, appended; at most six for each byte of the client.

use std::net::IpAddr;

use larder_wire::civil::{Civil, MONTHS};
use larder_wire::{digits, json};

use crate::message::push_number;

/// An exchange to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange<'a> {
    /// The client's address.
    pub client: IpAddr,
    /// When its headers were complete, milliseconds since 1970.
    pub began_ms: u64,
    /// The user name of the client, where it is authenticated.
    pub user: Option<&'a [u8]>,
    /// The request.
    pub request_line: RequestLine<'a>,
    /// The host of the resource; empty where it is not known.
    pub host: &'a [u8],
    /// `Referer`.
    pub referer: Option<&'a [u8]>,
    /// `User-Agent`.
    pub user_agent: Option<&'a [u8]>,
    /// The status code of the response; 0 where there was none.
    pub status: u16,
    /// Bytes of the body that were sent, without the framing of chunks.
    pub body_bytes: u64,
    /// From its beginning to the last byte of the response, microseconds.
    pub duration_us: u64,
    /// What the cache did: `hit`, or a word of [`crate::cache_status_header::Forward::as_str`];
    /// `None`: larder did not look into the cache.
    pub cache: Option<&'a str>,
    /// The status code of the origin's response, if there was one.
    pub origin_status: Option<u16>,
    /// From the request to the origin to the headers of its response, microseconds.
    pub origin_us: Option<u64>,
    /// Why the exchange failed: [`crate::message::Reason::as_str`] and similar words.
    pub error: Option<&'a str>,
}

/// A client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestLine<'a> {
    /// A valid request.
    Request {
        /// Its method.
        method: &'a str,
        /// Its target, as the client sent it or as larder forwards it.
        target: &'a [u8],
        /// The version of HTTP, as in a request line.
        protocol: &'static str,
    },
    /// The beginning of an invalid one.
    Bytes(&'a [u8]),
}

/// A line of the combined format, with its line feed.
pub fn push_combined(out: &mut Vec<u8>, exchange: &Exchange<'_>) {
    digits::write_addr(exchange.client.into(), out);
    out.extend_from_slice(b" - ");
    // A space would begin the next column, and an empty value would be no column.
    push_escaped(out, exchange.user.filter(|user| !user.is_empty()).unwrap_or(b"-"), b' ');
    let time = time(exchange);
    let text = time.rfc3339();
    let month = MONTHS[time.month as usize - 1].as_bytes();
    for part in [&b" ["[..], &text[8..10], b"/", month, b"/", &text[..4], b":", &text[11..19]] {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b" +0000] \"");
    match exchange.request_line {
        RequestLine::Request { method, target, protocol } => {
            push_escaped(out, method.as_bytes(), b' ');
            out.push(b' ');
            push_escaped(out, target, b'"');
            out.push(b' ');
            out.extend_from_slice(protocol.as_bytes());
        }
        RequestLine::Bytes(bytes) => push_escaped(out, bytes, b'"'),
    }
    out.extend_from_slice(b"\" ");
    push_number(out, u64::from(exchange.status));
    out.push(b' ');
    push_number(out, exchange.body_bytes);
    for value in [exchange.referer, exchange.user_agent] {
        out.extend_from_slice(b" \"");
        push_escaped(out, value.unwrap_or(b"-"), b'"');
        out.push(b'"');
    }
    out.push(b'\n');
}

/// A JSON object in a line, with its line feed. Unknown values are omitted.
pub fn push_json(out: &mut Vec<u8>, exchange: &Exchange<'_>) {
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(&time(exchange).rfc3339_ms());
    out.push(b'"');
    out.extend_from_slice(b",\"client\":\"");
    digits::write_addr(exchange.client.into(), out);
    out.push(b'"');
    push_member(out, "user", exchange.user);
    match exchange.request_line {
        RequestLine::Request { method, target, protocol } => {
            push_member(out, "method", Some(method.as_bytes()));
            push_member(out, "host", Some(exchange.host).filter(|host| !host.is_empty()));
            push_member(out, "target", Some(target));
            push_member(out, "protocol", Some(protocol.as_bytes()));
        }
        RequestLine::Bytes(bytes) => push_member(out, "octets", Some(bytes)),
    }
    push_count(out, "status", Some(exchange.status.into()));
    push_count(out, "body_bytes", Some(exchange.body_bytes));
    push_count(out, "duration_us", Some(exchange.duration_us));
    push_member(out, "cache", exchange.cache.map(str::as_bytes));
    push_count(out, "origin_status", exchange.origin_status.map(u64::from));
    push_count(out, "origin_us", exchange.origin_us);
    push_member(out, "referer", exchange.referer);
    push_member(out, "user_agent", exchange.user_agent);
    push_member(out, "error", exchange.error.map(str::as_bytes));
    out.extend_from_slice(b"}\n");
}

fn time(exchange: &Exchange<'_>) -> Civil {
    let began_ms = exchange.began_ms;
    Civil::at((began_ms / 1000) as i64, (began_ms % 1000) as u32 * 1_000_000)
}

/// `\x0A`.
fn push_hex(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(b"\\x");
    json::write_hex(byte, out);
}

/// Appends bytes of a column that ends with `end`. Almost all bytes need no escape, and are copied
/// together.
fn push_escaped(out: &mut Vec<u8>, mut bytes: &[u8], end: u8) {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && !b"\"\\".contains(&byte);
    while let Some(at) = bytes.iter().position(|&byte| !is_plain(byte) || byte == end) {
        out.extend_from_slice(&bytes[..at]);
        push_hex(out, bytes[at]);
        bytes = &bytes[at + 1..];
    }
    out.extend_from_slice(bytes);
}

fn push_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn push_count(out: &mut Vec<u8>, name: &str, count: Option<u64>) {
    if let Some(count) = count {
        push_name(out, name);
        push_number(out, count);
    }
}

fn push_member(out: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    let Some(value) = value else { return };
    push_name(out, name);
    json::write_string(value, out);
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const PLAIN: Exchange<'_> = Exchange {
        client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        began_ms: 784_111_777_045,
        user: None,
        request_line: RequestLine::Request { method: "GET", target: b"/a?b", protocol: "HTTP/1.1" },
        host: b"c.test",
        referer: None,
        user_agent: None,
        status: 200,
        body_bytes: 2326,
        duration_us: 12,
        cache: Some("hit"),
        origin_status: None,
        origin_us: None,
        error: None,
    };

    fn combined(exchange: &Exchange<'_>) -> String {
        let mut out = Vec::new();
        push_combined(&mut out, exchange);
        String::from_utf8(out).unwrap()
    }

    fn json(exchange: &Exchange<'_>) -> String {
        let mut out = Vec::new();
        push_json(&mut out, exchange);
        String::from_utf8(out).unwrap()
    }

    /// A plain exchange in both formats, and one with all values.
    #[test]
    fn plain() {
        assert_eq!(
            combined(&PLAIN),
            "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b HTTP/1.1\" 200 2326 \"-\" \"-\"\n"
        );
        assert_eq!(
            json(&PLAIN),
            "{\"time\":\"1994-11-06T08:49:37.045Z\",\"client\":\"192.0.2.1\",\"method\":\"GET\",\
             \"host\":\"c.test\",\"target\":\"/a?b\",\"protocol\":\"HTTP/1.1\",\"status\":200,\
             \"body_bytes\":2326,\"duration_us\":12,\"cache\":\"hit\"}\n"
        );
        let all = Exchange {
            client: IpAddr::V6(Ipv6Addr::LOCALHOST),
            user: Some(b"d"),
            referer: Some(b"http://e.test/"),
            user_agent: Some(b"curl/8"),
            origin_status: Some(503),
            origin_us: Some(9),
            error: Some("timeout"),
            ..PLAIN
        };
        assert_eq!(
            combined(&all),
            "::1 - d [06/Nov/1994:08:49:37 +0000] \"GET /a?b HTTP/1.1\" 200 2326 \
             \"http://e.test/\" \"curl/8\"\n"
        );
        assert!(json(&all).ends_with(
            "\"cache\":\"hit\",\"origin_status\":503,\"origin_us\":9,\"referer\":\"http://e.test/\",\
             \"user_agent\":\"curl/8\",\"error\":\"timeout\"}\n"
        ));
        assert!(json(&all).contains("\"client\":\"::1\",\"user\":\"d\","));
        let mapped = Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped();
        assert_eq!(combined(&Exchange { client: mapped.into(), ..PLAIN }), combined(&PLAIN));
        assert_eq!(combined(&Exchange { user: Some(b""), ..PLAIN }), combined(&PLAIN));
    }

    /// No client writes a second line, a quote or an escape into the log.
    #[test]
    fn escapes() {
        let nasty = b"a\"b\\c\r\n\0\x7f\t\xff\xc3\xa4 d";
        let exchange = Exchange {
            user: Some(b"e f"),
            request_line: RequestLine::Bytes(nasty),
            user_agent: Some(nasty),
            ..PLAIN
        };
        let escaped = "a\\x22b\\x5Cc\\x0D\\x0A\\x00\\x7F\\x09\\xFF\\xC3\\xA4 d";
        assert_eq!(
            combined(&exchange),
            format!(
                "192.0.2.1 - e\\x20f [06/Nov/1994:08:49:37 +0000] \"{escaped}\" 200 2326 \"-\" \"{escaped}\"\n"
            )
        );
        let escaped = "a\\\"b\\\\c\\u000D\\u000A\\u0000\\u007F\\u0009\\\\xFF\u{e4} d";
        assert!(json(&exchange).contains(&format!(",\"octets\":\"{escaped}\",\"status\"")));
        for byte in 0..=u8::MAX {
            let one = [byte];
            let exchange =
                Exchange { referer: Some(&one), request_line: RequestLine::Bytes(&one), ..PLAIN };
            let (line, object) = (combined(&exchange), json(&exchange));
            assert!(line.is_ascii() && line.matches('"').count() == 6, "{line}");
            for text in [line, object] {
                let end = text.len() - 1;
                assert_eq!(text.find(|it: char| it.is_ascii_control()), Some(end), "{text}");
            }
        }
    }
}
