//! The host that an HTTP/1 client requests: request line and Host (RFC 9112, RFC 9110).
//!
//! [`request_head`] reads the first contiguous bytes of a client's stream. It returns as soon as
//! the Host line is there, without waiting for the end of the headers. [`HeadScanner`] does the
//! same over growing bytes, and continues where it stopped. So the cost is linear, in whatever
//! pieces the headers arrive. After the first Host, [`HeadScanner::rest`] reads on to the end of
//! the headers and finds a second one.
//!
//! HTTP/2 with prior knowledge (`PRI * HTTP/2.0`) is not read: [`Head::NotHttp`].
//!
//! It is tolerant where servers are (empty lines before the request, bare LF, folded lines). But a
//! line that is no header field ends the scan: [`Head::Malformed`] names nothing. The value of a
//! field other than Host is ignored.

use std::ops::Range;

/// Longest head that is read, bytes. Servers accept 8 to 32 KiB.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// Longest host name without its final dot, and longest label (RFC 1035, section 2.3.4: 255 bytes
/// on the wire, which leaves 253 for the text).
pub const HOST_NAME_BYTES_MAX: usize = 253;
/// See [`HOST_NAME_BYTES_MAX`].
pub const LABEL_BYTES_MAX: usize = 63;

/// Longest method; those registered have at most 17 bytes (RFC 9110, section 18.2).
const METHOD_BYTES_MAX: usize = 24;

/// The kind of a stream, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head<'a> {
    /// The stream is not of an HTTP/1 client.
    NotHttp,
    /// HTTP so far; Host may still come.
    NeedMore,
    /// The request, up to its Host or to the end of its headers.
    Found(Request<'a>),
    /// A valid request line, and then invalid headers, or more bytes than we read.
    Malformed,
}

/// The used fields of a request's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The method as received.
    pub method: &'a [u8],
    /// The first Host field's value without white space around it; `None` if there is none or it is
    /// empty. It may have a port: see [`host_name`].
    pub host: Option<&'a [u8]>,
    /// The authority that the target itself states (absolute form, and CONNECT), without user
    /// information.
    pub target_authority: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// The requested host: the target's authority has precedence over Host (RFC 9112, section
    /// 3.2.2).
    pub fn authority(&self) -> Option<&'a [u8]> {
        self.target_authority.or(self.host)
    }
}

/// The Host fields after the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest<'a> {
    /// No further Host so far, and the head has not ended.
    NeedMore,
    /// The head ended, or is longer than we read.
    Ended,
    /// The value of a further Host field, which no sound request has (RFC 9112, section 3.2).
    AnotherHost(&'a [u8]),
}

/// Reads the request head at the start of `bytes`.
#[inline]
pub fn request_head(bytes: &[u8]) -> Head<'_> {
    HeadScanner::new().scan(bytes)
}

/// Reads a request's headers that arrive in parts. Each call gets all contiguous bytes so far, from
/// the same first byte on, and reads only the new ones.
#[derive(Clone, Debug, Default)]
pub struct HeadScanner {
    /// Offset of the first line that is not read yet.
    line_at: usize,
    /// Bytes known to hold no line end from `line_at` on.
    searched: usize,
    request: Option<RequestLine>,
    /// The last line was a Host field without a value, which a folded line may still bring.
    host_is_open: bool,
}

/// The places of the request line's parts.
#[derive(Clone, Debug)]
struct RequestLine {
    method: Range<usize>,
    authority: Option<Range<usize>>,
}

impl HeadScanner {
    /// A scanner at the start of a head.
    pub const fn new() -> HeadScanner {
        HeadScanner { line_at: 0, searched: 0, request: None, host_is_open: false }
    }

    /// Continues with all bytes received so far.
    pub fn scan<'a>(&mut self, bytes: &'a [u8]) -> Head<'a> {
        let bytes = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
        // Most streams are decided here, before any line end is looked for.
        if self.line_at == 0 && !may_begin_head(bytes) {
            return Head::NotHttp;
        }
        loop {
            let line_at = self.line_at;
            let Some(line) = self.next_line(bytes) else { return self.without_line_end(bytes) };
            if let Some(head) = self.take_line(bytes, line_at, line) {
                return head;
            }
        }
    }

    /// Reads on after [`Head::Found`], over the same bytes or more of them, and finds another Host.
    /// Other lines are not checked.
    pub fn rest<'a>(&mut self, bytes: &'a [u8]) -> Rest<'a> {
        let bytes = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
        loop {
            let line_at = self.line_at;
            let Some(line) = self.next_line(bytes) else {
                let is_full = bytes.len() == HEAD_BYTES_MAX;
                return if is_full { Rest::Ended } else { Rest::NeedMore };
            };
            if line.is_empty() {
                // Nothing behind this line is part of the head: it is read again by each further
                // call.
                self.line_at = line_at;
                return Rest::Ended;
            }
            if let Some(value) = host_value(line) {
                return Rest::AnotherHost(value);
            }
        }
    }

    /// The next line that has ended, without its end.
    fn next_line<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let from = self.line_at.max(self.searched);
        let length = bytes.get(from..).and_then(line_end);
        let Some(length) = length else {
            self.searched = bytes.len();
            return None;
        };
        let (line_at, end) = (self.line_at, from + length);
        self.line_at = end + 1;
        let line = bytes.get(line_at..end)?;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Judges a head whose last line has not ended.
    fn without_line_end<'a>(&self, bytes: &'a [u8]) -> Head<'a> {
        let line = bytes.get(self.line_at..).unwrap_or_default();
        if self.request.is_none() && !may_begin_head(line) {
            Head::NotHttp
        } else if bytes.len() >= HEAD_BYTES_MAX {
            if self.request.is_some() { Head::Malformed } else { Head::NotHttp }
        } else {
            Head::NeedMore
        }
    }

    /// Takes one line without its end; `Some` when that decides the matter.
    fn take_line<'a>(
        &mut self,
        bytes: &'a [u8],
        line_at: usize,
        line: &'a [u8],
    ) -> Option<Head<'a>> {
        let Some(request) = &self.request else {
            // A server ignores empty lines before a request (RFC 9112, section 2.2).
            if line.is_empty() {
                return None;
            }
            self.request = request_line(line, line_at);
            return if self.request.is_none() { Some(Head::NotHttp) } else { None };
        };
        let found = |host: Option<&'a [u8]>| {
            Some(Head::Found(Request {
                method: &bytes[request.method.clone()],
                host,
                target_authority: request.authority.clone().map(|range| &bytes[range]),
            }))
        };
        match line {
            [] => {
                self.line_at = line_at;
                return found(None);
            }
            // A folded line continues the field before it (RFC 9112, section 5.2).
            [b' ' | b'\t', ..] => {
                let value = line.trim_ascii();
                return if self.host_is_open && !value.is_empty() {
                    found(Some(value))
                } else {
                    None
                };
            }
            // An empty Host stays empty: it was the first. The line is read by `rest`.
            _ if self.host_is_open => {
                self.line_at = line_at;
                return found(None);
            }
            _ => {}
        }
        let colon = line.iter().position(|&byte| byte == b':');
        let Some((name, value)) = colon.and_then(|at| Some((line.get(..at)?, line.get(at + 1..)?)))
        else {
            return Some(Head::Malformed);
        };
        if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
            return Some(Head::Malformed);
        }
        if !name.eq_ignore_ascii_case(b"host") {
            return None;
        }
        let value = value.trim_ascii();
        self.host_is_open = value.is_empty();
        if self.host_is_open { None } else { found(Some(value)) }
    }
}

/// The end of the first line: eight bytes at a time, since most of the headers are only searched
/// for line ends.
fn line_end(bytes: &[u8]) -> Option<usize> {
    const LOW_BITS: u64 = u64::from_le_bytes([1; 8]);
    const HIGH_BITS: u64 = u64::from_le_bytes([0x80; 8]);
    const ENDS: u64 = u64::from_le_bytes([b'\n'; 8]);
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let difference = u64::from_le_bytes(*word) ^ ENDS;
        // The high bit of each byte that is zero; above the lowest of them, of others perhaps.
        let zeros = difference.wrapping_sub(LOW_BITS) & !difference & HIGH_BITS;
        if zeros != 0 {
            return Some(8 * at + zeros.trailing_zeros() as usize / 8);
        }
    }
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    Some(8 * words.len() + end)
}

/// The value of a Host field's line, also with white space before the colon, which some servers
/// accept.
fn host_value(line: &[u8]) -> Option<&[u8]> {
    let (name, value) = line.split_at_checked(b"host".len())?;
    if !name.eq_ignore_ascii_case(b"host") {
        return None;
    }
    value.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii)
}

/// Splits a request line: method, target, version (RFC 9112, section 3).
fn request_line(line: &[u8], line_at: usize) -> Option<RequestLine> {
    let method_len = line.iter().take(METHOD_BYTES_MAX + 1).position(|&byte| byte == b' ')?;
    let (method, rest) = line.split_at(method_len);
    if method.is_empty() || !method.iter().all(|&byte| is_token(byte)) {
        return None;
    }
    let (target, version) = rest.get(1..)?.split_at_checked(rest.len().checked_sub(10)?)?;
    let is_http_1 = version.starts_with(b" HTTP/1.") && version[8].is_ascii_digit();
    // Bytes outside ASCII are not allowed in a target, but common.
    if !is_http_1 || target.is_empty() || target.iter().any(|&byte| byte <= b' ' || byte == 0x7f) {
        return None;
    }
    let target_at = line_at + method_len + 1;
    let authority = authority(method, target).filter(|range| !range.is_empty());
    Some(RequestLine {
        method: line_at..line_at + method_len,
        authority: authority.map(|range| target_at + range.start..target_at + range.end),
    })
}

/// The place of the authority in the target: all of it for CONNECT, between `://` and the path in
/// absolute form (RFC 9112, section 3.2).
fn authority(method: &[u8], target: &[u8]) -> Option<Range<usize>> {
    if method == b"CONNECT" {
        return Some(0..target.len());
    }
    let scheme_len = target.iter().position(|byte| !byte.is_ascii_alphanumeric())?;
    let start = scheme_len + b"://".len();
    if scheme_len == 0 || target.get(scheme_len..start) != Some(b"://") {
        return None;
    }
    let rest = &target[start..];
    let len = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    let user_len = rest[..len].iter().rposition(|&byte| byte == b'@').map_or(0, |at| at + 1);
    Some(start + user_len..start + len)
}

/// Could these bytes begin a head: with a method and a space, or with an empty line?
fn may_begin_head(bytes: &[u8]) -> bool {
    if matches!(bytes, [] | [b'\n', ..] | [b'\r'] | [b'\r', b'\n', ..]) {
        return true;
    }
    let start = &bytes[..bytes.len().min(METHOD_BYTES_MAX + 1)];
    let method_len = start.iter().position(|&byte| !is_token(byte)).unwrap_or(start.len());
    match start.get(method_len) {
        Some(&byte) => byte == b' ' && method_len > 0,
        None => method_len <= METHOD_BYTES_MAX,
    }
}

/// One bit of knowledge a byte: a load is cheaper than the comparisons.
type ByteSet = [bool; 256];

/// The characters of a token (RFC 9110, section 5.6.2).
const TOKEN: ByteSet = {
    let mut set = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        set[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    with(set, b"!#$%&'*+-.^_`|~", true)
};

/// Bytes of a host: all but white space, controls and delimiters of a URI.
const HOST: ByteSet = {
    let mut set = [false; 256];
    let mut byte = 0x21;
    while byte < 256 {
        set[byte] = true;
        byte += 1;
    }
    with(set, b"\"#%/:<>?@[\\]^`{|}\x7f", false)
};

const fn with(mut set: ByteSet, bytes: &[u8], value: bool) -> ByteSet {
    let mut at = 0;
    while at < bytes.len() {
        set[bytes[at] as usize] = value;
        at += 1;
    }
    set
}

#[inline]
fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// The name in an authority, a Host value or a server_name: without user information there, with or
/// without a port, which comes second.
///
/// `None` for anything that is no name: IPv4 and IPv6 literals in any spelling that clients accept
/// (RFC 3986, section 3.2.2; a last label that is a number is never a name), bytes that no host has
/// (white space, controls, delimiters of a URI), and names that are too long:
/// [`HOST_NAME_BYTES_MAX`], and [`LABEL_BYTES_MAX`] a label. Bytes outside ASCII are returned
/// unchanged.
pub fn host_name(authority: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let name_len = authority.iter().position(|&byte| !is_host_byte(byte));
    let (name, rest) = authority.split_at(name_len.unwrap_or(authority.len()));
    let port = match rest {
        [] => None,
        [b':', digits @ ..] => port_number(digits)?,
        _ => return None,
    };
    let labels = name.strip_suffix(b".").unwrap_or(name);
    let is_label = |len: usize| (1..=LABEL_BYTES_MAX).contains(&len);
    let mut label_at = 0;
    for (at, &byte) in labels.iter().enumerate() {
        if byte == b'.' {
            if !is_label(at - label_at) {
                return None;
            }
            label_at = at + 1;
        }
    }
    let last_label = &labels[label_at..];
    let is_sound =
        labels.len() <= HOST_NAME_BYTES_MAX && is_label(last_label.len()) && !is_number(last_label);
    is_sound.then_some((name, port))
}

/// The port after a colon; an empty one is allowed and has no meaning (RFC 3986, section 3.2.3).
fn port_number(digits: &[u8]) -> Option<Option<u16>> {
    let mut port = None;
    for &digit in digits {
        let value = digit.is_ascii_digit().then(|| u16::from(digit - b'0'))?;
        port = Some(port.unwrap_or(0u16).checked_mul(10)?.checked_add(value)?);
    }
    Some(port)
}

/// Decimal, octal or hexadecimal, as in `127.1`, `0x7f000001`.
fn is_number(label: &[u8]) -> bool {
    match label {
        [b'0', b'x' | b'X', digits @ ..] => digits.iter().all(u8::is_ascii_hexdigit),
        _ => label.iter().all(u8::is_ascii_digit),
    }
}

#[inline]
fn is_host_byte(byte: u8) -> bool {
    HOST[usize::from(byte)]
}

#[cfg(test)]
mod tests;
