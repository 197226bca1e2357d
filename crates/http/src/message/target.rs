//! Targets of requests in their four forms (RFC 9112, section 3.2), and authorities (RFC 3986, section 3.2).

use std::net::Ipv6Addr;

use super::Reason;

/// The target of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// `/path?query`.
    Origin {
        /// Path and query.
        path: &'a [u8],
    },
    /// `http://authority/path?query`, as it is sent to proxies.
    Absolute {
        /// Its scheme.
        scheme: Scheme,
        /// Host, and port where there is one.
        authority: &'a [u8],
        /// Path and query; `/` where there was none, `*` for `OPTIONS` without one (RFC 9112,
        /// section 3.2.4).
        path: &'a [u8],
    },
    /// `host:port`, of `CONNECT` alone.
    Authority(&'a [u8]),
    /// `*`, of `OPTIONS` alone.
    Asterisk,
}

/// A scheme that larder serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    /// As it is written in a URI.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

impl<'a> Target<'a> {
    /// The target in the request line that larder sends to an origin.
    pub fn path(&self) -> &'a [u8] {
        match *self {
            Target::Origin { path } | Target::Absolute { path, .. } => path,
            Target::Authority(authority) => authority,
            Target::Asterisk => b"*",
        }
    }

    /// Reads a target: visible ASCII without a fragment, in a form that its method allows. Bytes
    /// that RFC 3986 wants encoded and that browsers send as they are (`|`, `"`, `{`) are accepted.
    /// A URI with an empty path before a query is not.
    pub(super) fn read(method: &str, bytes: &'a [u8]) -> Result<Target<'a>, Reason> {
        if !bytes.iter().all(|&byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err(Reason::Target);
        }
        if method == "CONNECT" {
            let is_fine = is_authority(bytes) && has_port(bytes);
            return if is_fine { Ok(Target::Authority(bytes)) } else { Err(Reason::TargetForm) };
        }
        match bytes {
            [b'/', ..] => Ok(Target::Origin { path: bytes }),
            b"*" if method == "OPTIONS" => Ok(Target::Asterisk),
            b"*" => Err(Reason::TargetForm),
            _ => Target::absolute(method, bytes),
        }
    }

    fn absolute(method: &str, bytes: &'a [u8]) -> Result<Target<'a>, Reason> {
        let (scheme, rest) = if let Some(rest) = without_prefix(bytes, b"http://") {
            (Scheme::Http, rest)
        } else if let Some(rest) = without_prefix(bytes, b"https://") {
            (Scheme::Https, rest)
        } else {
            return Err(Reason::TargetForm);
        };
        let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if !is_authority(authority) {
            return Err(Reason::Target);
        }
        let path = match path {
            [] if method == "OPTIONS" => b"*",
            [] => b"/",
            [b'/', ..] => path,
            _ => return Err(Reason::Target),
        };
        Ok(Target::Absolute { scheme, authority, path })
    }
}

/// The bytes after a prefix, which may be in any case.
fn without_prefix<'a>(bytes: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(prefix.len())?;
    first.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// True for a host, with or without a port: a name of letters, digits, `-`, `.` and `_`, an IPv4
/// address, or an IPv6 address in brackets. RFC 3986 allows more: `,`, `%41`, an empty port, a user
/// name and password. Clients do not send those, and programs read them in different ways.
pub fn is_authority(bytes: &[u8]) -> bool {
    let (host, port) = if let Some(bracketed) = bytes.strip_prefix(b"[") {
        let Some(end) = bracketed.iter().position(|&byte| byte == b']') else { return false };
        let address = std::str::from_utf8(&bracketed[..end]).unwrap_or_default();
        if address.parse::<Ipv6Addr>().is_err() {
            return false;
        }
        (&b"[]"[..], &bracketed[end + 1..])
    } else {
        bytes.split_at(bytes.iter().position(|&byte| byte == b':').unwrap_or(bytes.len()))
    };
    let is_host_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
    let is_host = host == b"[]" || (!host.is_empty() && host.iter().all(is_host_byte));
    is_host && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port))
}

/// True where an authority has a port.
fn has_port(authority: &[u8]) -> bool {
    authority.iter().rev().find(|byte| !byte.is_ascii_digit()) == Some(&b':')
}

fn is_port(digits: &[u8]) -> bool {
    let add = |sum: u32, digit: &u8| sum * 10 + u32::from(digit - b'0');
    (1..=5).contains(&digits.len())
        && digits.iter().all(u8::is_ascii_digit)
        && digits.iter().fold(0, add) <= u32::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts with and without ports, and invalid ones.
    #[test]
    fn authorities() {
        for fine in ["a", "a.b", "A-b_c.d:80", "127.0.0.1:8080", "[::1]", "[2001:db8::1]:65535"] {
            assert!(is_authority(fine.as_bytes()), "{fine}");
        }
        let bad = ["", ":80", "a:", "a:b", "a:65536", "a:000080", "a:80:80", "a b", "a/b", "a@b"];
        for bad in bad.into_iter().chain(["[]", "[::1", "[::1]80", "[a]", "[::1%25x]", "::1"]) {
            assert!(!is_authority(bad.as_bytes()), "{bad}");
        }
        for bad in ["a,b", "a%41", "a\t", "a\u{e4}", "a\0", "[::1]]", "a#", "a?", "a\\b"] {
            assert!(!is_authority(bad.as_bytes()), "{bad}");
        }
    }

    /// Each form where its method allows it.
    #[test]
    fn forms() {
        let read = |method, bytes: &'static str| Target::read(method, bytes.as_bytes());
        let path = |method, bytes| read(method, bytes).map(|target| target.path());
        assert_eq!(path("GET", "/a?b|\"{}"), Ok(&b"/a?b|\"{}"[..]));
        assert_eq!(path("GET", "//a/b"), Ok(&b"//a/b"[..]));
        assert_eq!(
            read("GET", "hTTp://a.b:80/c?d"),
            Ok(Target::Absolute { scheme: Scheme::Http, authority: b"a.b:80", path: b"/c?d" })
        );
        assert_eq!(path("GET", "https://a"), Ok(&b"/"[..]));
        assert_eq!(path("OPTIONS", "http://a"), Ok(&b"*"[..]));
        assert_eq!(read("OPTIONS", "*"), Ok(Target::Asterisk));
        assert_eq!(read("CONNECT", "a:443"), Ok(Target::Authority(b"a:443")));
        assert_eq!(read("CONNECT", "[::1]:443"), Ok(Target::Authority(b"[::1]:443")));
        let forms =
            [("GET", "*"), ("GET", "a:443"), ("GET", "ftp://a/"), ("GET", "a"), ("GET", "")];
        let connects =
            [("CONNECT", "/"), ("CONNECT", "a"), ("CONNECT", "[::1]"), ("OPTIONS", "**")];
        for (method, bytes) in forms.into_iter().chain(connects) {
            assert_eq!(read(method, bytes), Err(Reason::TargetForm), "{method} {bytes}");
        }
        let bad =
            ["/a#b", "/a b", "/\t", "/\u{7f}", "/\u{e4}", "http://", "http:///a", "http://a?b"];
        for bad in bad.into_iter().chain(["http://a@b/", "http://a:/", "http://a,b/"]) {
            assert_eq!(read("GET", bad), Err(Reason::Target), "{bad}");
        }
    }
}
