//! Messages of HTTP/1.1 (RFC 9112): functions that read headers, framing and chunked bodies from
//! borrowed bytes, and functions that write messages.
//!
//! ```text
//! bytes -> request  -> RequestHead, or more bytes are needed, or Refused with a status code
//! bytes -> response -> ResponseHead, or more are needed, or BadResponse
//! bytes -> Chunked::next -> data, more are needed, the end, or BadChunk
//! headers -> forward::push_request, forward::push_kept_head -> bytes for the next hop
//! ```
//!
//! | module | duty |
//! |---|---|
//! | [`request()`], [`response()`] | headers, and where the message ends |
//! | [`target`] | the four forms of a target, and the form of an authority |
//! | [`chunked`] | bodies in chunks, in whatever pieces they come |
//! | [`trailers`] | the fields after them, for the next hop |
//! | [`encode`] | status lines, fields, numbers, dates |
//! | [`forward`] | headers for the next hop, without those of one connection |
//! | [`limits`] | limits of each |
//!
//! httparse reads lines and fields. This module refuses what httparse accepts and RFC 9112 does
//! not. Requests are smuggled where two programs read a message differently (section 11.2), so an
//! ambiguous message is refused. larder never forwards a field that states where a message ends: it
//! writes its own.
//!
//! Invariants
//! 1. Returned headers were complete: every line of them ends in CRLF, and values have no control
//!    bytes but tabs.
//! 2. At most one of `Content-Length` and `Transfer-Encoding` is there, with one meaning; of `Host`
//!    at most one.
//! 3. Headers are the same in whatever pieces their bytes come. A message that is refused as a
//!    whole is refused in pieces too, perhaps earlier and for another reason.
//!
//! Bounds: [`Limits`] for headers, [`chunked`] for the bytes around chunks. Cost: nothing is
//! allocated for headers. Each call reads them from their beginning, so a caller that gets them in
//! small pieces calls [`may_end_head`] before the next call.

use std::mem::MaybeUninit;

pub use crate::Field;

pub mod chunked;
pub mod encode;
mod fields;
pub mod forward;
pub mod limits;
mod request;
mod response;
pub mod target;
pub mod trailers;

pub use chunked::{BadChunk, Chunked, Piece};
pub use encode::{push_chunk_size, push_date, push_field, push_number, push_status_line};
pub use limits::{FIELDS_MAX, Limits};
pub use request::{Reason, Refused, RequestHead, request};
pub use response::{BadResponse, ResponseHead, response};
pub use target::{Scheme, Target};

/// Room for the fields of one message. The reader of headers makes it. It costs only its stack (4
/// KiB): unused room is not written.
#[derive(Debug)]
pub struct FieldRoom<'a>([MaybeUninit<Field<'a>>; FIELDS_MAX]);

impl FieldRoom<'_> {
    /// Empty.
    pub const fn new() -> Self {
        FieldRoom([const { MaybeUninit::uninit() }; FIELDS_MAX])
    }
}

impl Default for FieldRoom<'_> {
    fn default() -> Self {
        FieldRoom::new()
    }
}

/// Where a message ends (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// With its headers.
    None,
    /// This many bytes after them; at most `i64::MAX`, so that sums with offsets in files do not
    /// wrap.
    Length(u64),
    /// With the last chunk: [`Chunked`].
    Chunked,
    /// When the connection is closed; responses only.
    UntilClose,
}

/// Whether headers may be complete now. The first `read_bytes` bytes were read before, and were not
/// complete. True if nothing was read before, if the end may be in the new bytes, or if these have
/// a bare line feed: such headers will never be complete. So headers that come a byte at a time are
/// read twice, not once for each byte.
pub fn may_end_head(bytes: &[u8], read_bytes: usize) -> bool {
    let new = bytes.get(read_bytes.saturating_sub(3)..).unwrap_or_default();
    read_bytes == 0
        || new.windows(4).any(|four| four == b"\r\n\r\n")
        || new.windows(2).any(|two| two[0] != b'\r' && two[1] == b'\n')
}

/// True for a token (RFC 9110, section 5.6.2): names of fields, methods.
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

/// True for a valid value (RFC 9110, section 5.5): no control bytes but tabs, and no white space at
/// its ends.
pub fn is_field_value(bytes: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_blank(bytes.first())
        && !is_blank(bytes.last())
        && bytes.iter().all(|&byte| is_value_byte(byte))
}

pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

pub(crate) fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

/// True where a line feed has no carriage return before it. httparse accepts it as the end of a
/// line; other programs do not.
fn has_bare_feed(bytes: &[u8]) -> bool {
    let after = bytes.get(1..).unwrap_or_default();
    let mut bare = usize::from(bytes.first() == Some(&b'\n'));
    // Vector units add bytes fast, and a sum of so few does not wrap.
    for (firsts, seconds) in bytes.chunks(128).zip(after.chunks(128)) {
        let pairs = firsts.iter().zip(seconds);
        let is_bare = |(&first, &second): (&u8, &u8)| u8::from(first != b'\r' && second == b'\n');
        bare += usize::from(pairs.map(is_bare).sum::<u8>());
    }
    bare > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens and values agree with the `http` crate, byte by byte.
    #[test]
    fn bytes() {
        for byte in 0..=u8::MAX {
            let name = http::HeaderName::from_bytes(&[byte]).is_ok();
            assert_eq!(is_token(&[byte]), name, "{byte}");
            let method = http::Method::from_bytes(&[byte]).is_ok();
            assert_eq!(is_token(&[byte]), method, "{byte}");
            let value = [b'a', byte, b'a'];
            assert_eq!(
                is_field_value(&value),
                http::HeaderValue::from_bytes(&value).is_ok(),
                "{byte}"
            );
        }
        assert!(!is_token(b"") && is_field_value(b""));
        assert!(!is_field_value(b" a") && !is_field_value(b"a\t"));
    }

    /// Line feeds are bare at the beginning, after another, and after anything but a carriage return.
    #[test]
    fn feeds() {
        for bare in ["\n", "a\n", "\r\n\n", "\r\n\r\na\n\r\n", "\n\r"] {
            assert!(has_bare_feed(bare.as_bytes()), "{bare:?}");
        }
        for fine in ["", "\r", "\r\n", "a\r\n\r\n", "a\r\r\n", "a\r\nb\r"] {
            assert!(!has_bare_feed(fine.as_bytes()), "{fine:?}");
        }
    }

    /// The end of headers is found with the byte that ends them, wherever the pieces are cut, and
    /// so is a bare line feed. The bytes between are not read again.
    #[test]
    fn ends() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for cut in 1..head.len() {
            assert!(!may_end_head(&head[..cut], cut - 1) || cut == 1, "{cut}");
            assert!(may_end_head(head, cut), "{cut}");
        }
        assert!(may_end_head(head, 0) && may_end_head(b"\x16", 0), "the first bytes are read");
        assert!(!may_end_head(head, head.len()) && !may_end_head(head, 1000));
        let bare = b"GET / HTTP/1.1\nHost";
        assert!(may_end_head(bare, 14) && !may_end_head(&bare[..14], 9));
    }
}
