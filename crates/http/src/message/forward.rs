//! Writes headers for the next hop. Fields of one connection are not forwarded (RFC 9110, section
//! 7.6.1). larder writes the fields that frame the message itself, so the next hop cannot read the
//! framing differently.

use super::encode::{push_field, push_number, push_status_line};
use super::limits::CONNECTION_OPTIONS_MAX;
use super::{Framing, RequestHead};
use crate::Field;
use crate::freshness::is_hop_by_hop;

/// A request for an origin, in origin-form and HTTP/1.1, with the empty line after it.
///
/// `host` replaces the client's if it is there. Not forwarded are fields of the client's
/// connection, fields that frame the message, `Host`, `Expect` (the reader of the body sends `100
/// Continue` itself), and those for which `drop` is true. `extra` comes last: conditions, `Via`,
/// `X-Forwarded-For`. So a field that may be there several times is appended to the client's own.
pub fn push_request(
    out: &mut Vec<u8>,
    head: &RequestHead<'_>,
    host: Option<&[u8]>,
    extra: &[(&str, &[u8])],
    drop: impl Fn(&str) -> bool,
) {
    out.extend_from_slice(head.method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(head.target.path());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    push_field(out, "Host", host.unwrap_or(head.host));
    push_end_to_end(out, head.fields, |name| {
        ["host", "expect", "content-length"].iter().any(|it| it.eq_ignore_ascii_case(name))
            || drop(name)
    });
    for (name, value) in extra {
        push_field(out, name, value);
    }
    push_framing(out, head.framing);
    out.extend_from_slice(b"\r\n");
}

/// The status line of a response and its fields, without an empty line after them. Fields of the
/// connection are not forwarded, nor those for which `skip` is true: `Content-Length`, or `Age` and
/// `Date` where the caller appends its own.
pub fn push_kept_head(
    out: &mut Vec<u8>,
    status: u16,
    fields: &[Field<'_>],
    skip: impl Fn(&str) -> bool,
) {
    push_status_line(out, status);
    push_end_to_end(out, fields, skip);
}

/// The line that states where the body ends, if there is one.
pub fn push_framing(out: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::Length(bytes) => {
            out.extend_from_slice(b"Content-Length: ");
            push_number(out, bytes);
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::None | Framing::UntilClose => {}
    }
}

fn push_end_to_end(out: &mut Vec<u8>, fields: &[Field<'_>], skip: impl Fn(&str) -> bool) {
    let named = Named::of(fields);
    for field in fields {
        if !named.has(field.name) && !skip(field.name) {
            push_field(out, field.name, field.value);
        }
    }
}

/// Names in `Connection` fields in addition to the known ones, looked up once for all fields.
struct Named<'a> {
    fields: &'a [Field<'a>],
    names: [&'a [u8]; CONNECTION_OPTIONS_MAX],
    count: usize,
}

impl<'a> Named<'a> {
    fn of(fields: &'a [Field<'a>]) -> Named<'a> {
        let mut named = Named { fields, names: [b""; CONNECTION_OPTIONS_MAX], count: 0 };
        for option in crate::field::members(fields, "connection") {
            let is_usual =
                [&b"close"[..], b"keep-alive"].iter().any(|it| option.eq_ignore_ascii_case(it));
            if !is_usual {
                if let Some(room) = named.names.get_mut(named.count) {
                    *room = option;
                }
                named.count += 1;
            }
        }
        named
    }

    fn has(&self, name: &str) -> bool {
        match self.names.get(..self.count) {
            Some(names) => {
                is_hop_by_hop(name, &[])
                    || names.iter().any(|it| it.eq_ignore_ascii_case(name.as_bytes()))
            }
            // No headers that this program read have so many.
            None => is_hop_by_hop(name, self.fields),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FieldRoom, Limits, request};
    use super::*;

    fn forwarded(bytes: &str, host: Option<&[u8]>) -> String {
        let mut room = FieldRoom::new();
        let head = request(bytes.as_bytes(), &mut room, &Limits::default()).unwrap().unwrap();
        let mut out = Vec::new();
        let extra = [("Via", &b"1.1 larder"[..]), ("If-None-Match", b"\"b\"")];
        push_request(&mut out, &head, host, &extra, |name| {
            name.eq_ignore_ascii_case("if-none-match")
        });
        String::from_utf8(out).unwrap()
    }

    /// Origin-form, the authority as `Host`, no fields of the connection nor those it names,
    /// larder's own fields last, new framing.
    #[test]
    fn requests() {
        let bytes = "POST http://a.b:81/c?d HTTP/1.0\r\nhost: other\r\nConnection: keep-alive, X-y\r\n\
            x-Y: 1\r\nTE: trailers\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nProxy-Connection: close\r\n\
            Expect: 100-continue\r\nVia: 1.0 z\r\nIf-None-Match: \"a\"\r\nContent-Length: 3, 3\r\n\
            Accept:  */* \r\n\r\n";
        let expected = "POST /c?d HTTP/1.1\r\nHost: a.b:81\r\nVia: 1.0 z\r\nAccept: */*\r\n\
            Via: 1.1 larder\r\nIf-None-Match: \"b\"\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(forwarded(bytes, None), expected);
        let theirs = expected.replace("a.b:81", "origin");
        assert_eq!(forwarded(bytes, Some(b"origin")), theirs);
        let chunked = "PUT / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: CHUNKED\r\n\r\n";
        assert!(forwarded(chunked, None).ends_with("\r\nTransfer-Encoding: chunked\r\n\r\n"));
    }

    /// A request that is forwarded reads as the same request. This includes the largest number of
    /// options of the connection, and an option that names a framing field.
    #[test]
    fn again() {
        let options: Vec<String> = (0..14).map(|option| format!("x{option}")).collect();
        let named = options.join(", ");
        let fields: String = options.iter().map(|name| format!("{name}: 1\r\n")).collect();
        let bytes = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Content-Length, Host, {named}\r\n\
             Content-Length: 3\r\n{fields}Y: 1\r\n\r\n"
        );
        let out = forwarded(&bytes, None);
        let mut room = FieldRoom::new();
        let head = request(out.as_bytes(), &mut room, &Limits::default()).unwrap().unwrap();
        assert_eq!((head.framing, head.host), (Framing::Length(3), &b"a"[..]));
        let names: Vec<&str> = head.fields.iter().map(|field| field.name).collect();
        assert_eq!(names, ["Host", "Y", "Via", "If-None-Match", "Content-Length"]);
    }

    /// Headers from elsewhere may name any number of fields.
    #[test]
    fn many_options() {
        let options: Vec<String> = (0..100).map(|option| format!("x{option}")).collect();
        let (named, mut out) = (options.join(","), Vec::new());
        let fields = [
            Field { name: "X99", value: b"1" },
            Field { name: "Connection", value: named.as_bytes() },
            Field { name: "Age", value: b"1" },
            Field { name: "ETag", value: b"\"a\"" },
        ];
        push_kept_head(&mut out, 200, &fields, |name| name == "Age");
        assert_eq!(out, b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\n");
    }
}
