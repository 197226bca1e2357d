//! Messages of HTTP/1.1 (RFC 9112): heads, framing and chunked bodies, as plain functions of borrowed octets, and what is
//! written in return.
//!
//! ```text
//! octets -> request  -> RequestHead, or more octets wanted, or Refused with a status code
//! octets -> response -> ResponseHead, or more wanted, or BadResponse
//! octets -> Chunked::next -> data, more wanted, the end, or BadChunk
//! head   -> forward::push_request, forward::push_kept_head -> octets for the next hop
//! ```
//!
//! | module | duty |
//! |---|---|
//! | [`request()`], [`response()`] | heads, and where the message ends |
//! | [`target`] | the four forms of a target, and what an authority may look like |
//! | [`chunked`] | bodies in chunks, in whatever pieces they come |
//! | [`trailers`] | what comes after them, for the next hop |
//! | [`encode`] | status lines, fields, numbers, dates |
//! | [`forward`] | a head for the next hop: what is of one connection only stays behind |
//! | [`limits`] | how much of each there may be |
//!
//! httparse reads lines and fields. What it lets pass and RFC 9112 does not is refused here: two programs that read a message
//! differently are how requests are smuggled (section 11.2), so whatever could be read in two ways is not read at all, and
//! nothing that says where a message ends is ever passed on: it is written anew.
//!
//! Invariants
//! 1. A head that is given was whole: every line of it ends in CRLF, and its values have no control octets but tabs.
//! 2. Of `Content-Length` and `Transfer-Encoding` one at most is there, with one meaning; of `Host` likewise.
//! 3. A head is the same in whatever pieces its octets come; what is refused whole is refused in pieces, if perhaps earlier and
//!    for another reason.
//!
//! Bounds: [`Limits`] for heads, [`chunked`] for what stands around chunks. Cost: nothing is allocated for a head; each call
//! reads it from its beginning, so who gets it in small pieces asks [`may_end_head`] before the next call.

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

/// Room for the fields of one head. It is made where a head is read, and costs nothing but the stack it takes (4 KiB): what is
/// not used of it is not written.
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
    /// With its head.
    None,
    /// So many octets after it; `i64::MAX` at most, so that sums with offsets in files do not wrap.
    Length(u64),
    /// With the last chunk: [`Chunked`].
    Chunked,
    /// When the connection is closed; responses only.
    UntilClose,
}

/// Whether it is worth the while to read a head from octets of which the first so many were read before, in vain: where none were,
/// where it may end in the new ones, and where a bare line feed is among them, with which it never will. A head that comes an octet
/// at a time is so read twice, and not once for each.
pub fn may_end_head(octets: &[u8], read_bytes: usize) -> bool {
    let new = octets.get(read_bytes.saturating_sub(3)..).unwrap_or_default();
    read_bytes == 0
        || new.windows(4).any(|four| four == b"\r\n\r\n")
        || new.windows(2).any(|two| two[0] != b'\r' && two[1] == b'\n')
}

/// True for a token (RFC 9110, section 5.6.2): names of fields, methods.
pub fn is_token(octets: &[u8]) -> bool {
    !octets.is_empty() && octets.iter().all(|&octet| is_token_octet(octet))
}

/// True for what a value may be (RFC 9110, section 5.5): no control octets but tabs, and no white space at its ends.
pub fn is_field_value(octets: &[u8]) -> bool {
    let is_blank = |octet: Option<&u8>| matches!(octet, Some(b' ' | b'\t'));
    !is_blank(octets.first())
        && !is_blank(octets.last())
        && octets.iter().all(|&octet| is_value_octet(octet))
}

pub(crate) fn is_token_octet(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet)
}

pub(crate) fn is_value_octet(octet: u8) -> bool {
    octet == b'\t' || !octet.is_ascii_control()
}

/// True where a line feed has no carriage return before it. httparse takes it for the end of a line, as others do not.
fn has_bare_feed(octets: &[u8]) -> bool {
    let after = octets.get(1..).unwrap_or_default();
    let mut bare = usize::from(octets.first() == Some(&b'\n'));
    // Sums of octets are what vector units are quick at, and those of so few do not wrap.
    for (firsts, seconds) in octets.chunks(128).zip(after.chunks(128)) {
        let pairs = firsts.iter().zip(seconds);
        let is_bare = |(&first, &second): (&u8, &u8)| u8::from(first != b'\r' && second == b'\n');
        bare += usize::from(pairs.map(is_bare).sum::<u8>());
    }
    bare > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens and values agree with the `http` crate, octet by octet.
    #[test]
    fn octets() {
        for octet in 0..=u8::MAX {
            let name = http::HeaderName::from_bytes(&[octet]).is_ok();
            assert_eq!(is_token(&[octet]), name, "{octet}");
            let method = http::Method::from_bytes(&[octet]).is_ok();
            assert_eq!(is_token(&[octet]), method, "{octet}");
            let value = [b'a', octet, b'a'];
            assert_eq!(
                is_field_value(&value),
                http::HeaderValue::from_bytes(&value).is_ok(),
                "{octet}"
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

    /// The end of a head is seen with the octet that ends it, wherever the pieces were cut, and so is a bare line feed; the octets
    /// between are not read again.
    #[test]
    fn ends() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for cut in 1..head.len() {
            assert!(!may_end_head(&head[..cut], cut - 1) || cut == 1, "{cut}");
            assert!(may_end_head(head, cut), "{cut}");
        }
        assert!(may_end_head(head, 0) && may_end_head(b"\x16", 0), "the first octets are read");
        assert!(!may_end_head(head, head.len()) && !may_end_head(head, 1000));
        let bare = b"GET / HTTP/1.1\nHost";
        assert!(may_end_head(bare, 14) && !may_end_head(&bare[..14], 9));
    }
}
