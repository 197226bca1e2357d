//! Trailers: fields after a body in chunks (RFC 9110, section 6.5), for the next hop.
//!
//! ```text
//! bytes of a trailer section -> push_trailers() -> lines for the next hop, without fields that must not be there
//! ```
//!
//! larder never moves them into the headers. A trailer must not have fields that frame, route or
//! authenticate a message, or state how to process the content (section 6.5.1). A program has
//! decided on those when it has read the headers, and one that merged trailers into the headers
//! would decide twice. larder forwards no such fields, and none of one connection.
//!
//! Bounds: [`TRAILERS_MAX`] fields and [`TRAILER_BYTES_MAX`] bytes as larder writes them. Above
//! that it forwards none: half of them may mean something else than all, and a program with the
//! same limits would abort the body.

use super::chunked::TRAILER_BYTES_MAX;
use super::encode::push_field;
use super::{is_field_value, is_token};
use crate::Field;
use crate::field::members;
use crate::freshness::is_hop_by_hop;

/// The most fields of a trailer section that is forwarded.
pub const TRAILERS_MAX: usize = 32;

/// Fields that must not come after the content: framing, routing, authentication, conditions and
/// controls of requests, control data of responses; and those that begin with one of
/// [`NOT_BEGINNINGS`].
const NOT: [&str; 38] = [
    "accept-ranges",
    "age",
    "authentication-info",
    "authorization",
    "cache-control",
    "cache-status",
    "cdn-cache-control",
    "cookie",
    "date",
    "expect",
    "expires",
    "forwarded",
    "from",
    "host",
    "http2-settings",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "range",
    "referer",
    "retry-after",
    "server",
    "set-cookie",
    "strict-transport-security",
    "surrogate-control",
    "surrogate-key",
    "trailers",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-accel-expires",
    "x-http-method-override",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
];

/// Beginnings of names of such fields.
const NOT_BEGINNINGS: [&str; 6] =
    ["access-control-", "content-", "if-", "proxy-", "sec-", "x-forwarded-"];

/// Only `Content-Digest` of its family may become known after the content (RFC 9530, section 2).
const AND_YET: &str = "content-digest";

/// True for a field that may come after the content.
pub fn may_trail(name: &str) -> bool {
    let begins =
        |word: &&str| name.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let is_meant =
        NOT.iter().any(|it| it.eq_ignore_ascii_case(name)) || NOT_BEGINNINGS.iter().any(begins);
    name.eq_ignore_ascii_case(AND_YET) || !is_meant && !is_hop_by_hop(name, &[])
}

/// Appends the fields of a trailer section ([`super::Chunked::trailers`]) that may be forwarded, a
/// line each and without the empty line.
pub fn push_trailers(out: &mut Vec<u8>, bytes: &[u8]) {
    let lines = || bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    if lines().count() > TRAILERS_MAX {
        return;
    }
    let before = out.len();
    for line in lines() {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        // The decoder accepted them as such.
        let Some(name) = std::str::from_utf8(name).ok().filter(|it| is_token(it.as_bytes())) else {
            continue;
        };
        if is_field_value(value) && may_trail(name) {
            push_field(out, name, value);
        }
    }
    if out.len() - before > TRAILER_BYTES_MAX as usize {
        out.truncate(before);
    }
}

/// True where a request states that it accepts trailers (RFC 9110, section 10.1.4).
pub fn takes_trailers(fields: &[Field<'_>]) -> bool {
    members(fields, "te").any(|member| member.eq_ignore_ascii_case(b"trailers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed_on(bytes: &str) -> String {
        let mut out = Vec::new();
        push_trailers(&mut out, bytes.as_bytes());
        String::from_utf8(out).unwrap()
    }

    /// Fields are forwarded as lines of larder's own. Forbidden ones are not forwarded, in any case
    /// of letters.
    #[test]
    fn filtered() {
        let section = "X-Sum:\t abc \r\nServer-Timing: a;dur=1, b\r\ngrpc-status:0\r\nEmpty:\r\n";
        let expected = "X-Sum: abc\r\nServer-Timing: a;dur=1, b\r\ngrpc-status: 0\r\nEmpty: \r\n";
        assert_eq!(passed_on(section), expected);
        for name in [
            "Content-Length",
            "transfer-encoding",
            "HOST",
            "Trailer",
            "TE",
            "Connection",
            "Upgrade",
            "Content-Type",
            "Content-Encoding",
            "Content-Range",
            "Authorization",
            "Set-Cookie",
            "Cookie",
            "Proxy-Authenticate",
            "WWW-Authenticate",
            "Cache-Control",
            "Expires",
            "Age",
            "Date",
            "Location",
            "Vary",
            "If-None-Match",
            "Range",
            "Expect",
            "Via",
            "X-Forwarded-For",
            "Forwarded",
            "Keep-Alive",
        ] {
            assert_eq!(
                passed_on(&format!("A: 1\r\n{name}: x\r\nB: 2\r\n")),
                "A: 1\r\nB: 2\r\n",
                "{name}"
            );
        }
        assert_eq!(passed_on("Content-Digest: sha-256=:x:\r\n"), "Content-Digest: sha-256=:x:\r\n");
    }

    /// The largest number of fields is forwarded; one more, and none is.
    #[test]
    fn bounds() {
        let section = "A: b\r\n".repeat(TRAILERS_MAX);
        assert_eq!(passed_on(&section), section);
        assert_eq!(passed_on(&(section + "A: b\r\n")), "");
        assert_eq!(passed_on(""), "");
        // larder writes a space before each value.
        let long = |bytes: usize| format!("A:{}\r\n", "b".repeat(bytes - 5));
        let room = TRAILER_BYTES_MAX as usize;
        assert_eq!(passed_on(&long(room)).len(), room);
        assert_eq!(passed_on(&long(room + 1)), "");
    }

    /// An invalid field is not forwarded.
    #[test]
    fn no_fields() {
        assert_eq!(passed_on("no colon\r\n: no name\r\na b: c\r\nd: e\x01\r\n\u{e9}: f\r\n"), "");
    }

    /// A request accepts trailers if it states `trailers`, in any case and among other codings. A
    /// weight or another word means something else.
    #[test]
    fn te() {
        let takes = |value: &str| takes_trailers(&[Field { name: "te", value: value.as_bytes() }]);
        assert!(takes("trailers") && takes("gzip;q=0.5, Trailers"));
        assert!(!takes("") && !takes("trailer") && !takes("gzip"));
    }
}
