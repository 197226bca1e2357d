//! `Cache-Status` (RFC 9211): what the cache did with a request.
//!
//! ```text
//! larder;hit;ttl=30
//! larder;fwd=stale;fwd-status=304;stored;ttl=60;detail=revalidated
//! ```
//!
//! A response has one such field for each cache on its way, that of larder after those of the
//! caches before it; this renders larder's, without its name. Cost: a line of bytes, appended.

use crate::message::{is_token, push_number};

/// The farthest from 0 that a number of structured fields may be (RFC 8941, section 3.3.1).
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// What the cache did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// Whether the origin was asked.
    pub outcome: Handling,
    /// How long the response is fresh from now on, seconds; below 0: how long it has been stale.
    pub ttl_s: Option<i64>,
    /// The key. It may reveal more than clients should know: it is left out unless the operator
    /// wants it.
    pub key: Option<&'a [u8]>,
    /// Other information: a token or a text.
    pub detail: Option<&'a str>,
}

/// Whether the origin was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handling {
    /// No: the response was cached.
    Hit,
    /// Yes.
    Forwarded {
        /// Why.
        why: Forward,
        /// The origin's status, if it differs from that of the response.
        status: Option<u16>,
        /// The response is stored, or it updated the stored one.
        is_stored: bool,
        /// The request was coalesced with others.
        is_collapsed: bool,
    },
}

/// Why the origin was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Forward {
    /// The cache does not handle such requests.
    Bypass,
    /// The method is not one that stored responses answer.
    Method,
    /// Nothing is stored for the URI.
    UriMiss,
    /// The stored responses of the URI are for other requests (`Vary`).
    VaryMiss,
    /// Nothing is stored; which of the two reasons it was is not known.
    Miss,
    /// A stored response is fresh, but the request wants a newer one.
    Request,
    /// The stored response is stale.
    Stale,
    /// The stored response is a part, and not the requested one.
    Partial,
}

impl Forward {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::UriMiss => "uri-miss",
            Forward::VaryMiss => "vary-miss",
            Forward::Miss => "miss",
            Forward::Request => "request",
            Forward::Stale => "stale",
            Forward::Partial => "partial",
        }
    }
}

impl Handling {
    /// One word for logs: `hit`, or why not.
    pub fn as_str(self) -> &'static str {
        match self {
            Handling::Hit => "hit",
            Handling::Forwarded { why, .. } => why.as_str(),
        }
    }
}

/// The value of the field, of a cache with this name.
pub fn push_cache_status(out: &mut Vec<u8>, cache: &str, status: &CacheStatus<'_>) {
    push_item(out, cache.as_bytes());
    match status.outcome {
        Handling::Hit => out.extend_from_slice(b";hit"),
        Handling::Forwarded { why, status, is_stored, is_collapsed } => {
            out.extend_from_slice(b";fwd=");
            out.extend_from_slice(why.as_str().as_bytes());
            if let Some(status) = status {
                out.extend_from_slice(b";fwd-status=");
                push_number(out, u64::from(status));
            }
            if is_stored {
                out.extend_from_slice(b";stored");
            }
            if is_collapsed {
                out.extend_from_slice(b";collapsed");
            }
        }
    }
    if let Some(ttl_s) = status.ttl_s {
        out.extend_from_slice(if ttl_s < 0 { b";ttl=-" } else { b";ttl=" });
        push_number(out, ttl_s.unsigned_abs().min(INTEGER_MAX));
    }
    if let Some(key) = status.key {
        out.extend_from_slice(b";key=");
        push_text(out, key);
    }
    if let Some(detail) = status.detail {
        out.extend_from_slice(b";detail=");
        push_item(out, detail.as_bytes());
    }
}

/// A token where it is one, else a text.
fn push_item(out: &mut Vec<u8>, octets: &[u8]) {
    // Tokens of structured fields begin with a letter or `*`.
    let begins = octets.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'*');
    if begins && is_token(octets) { out.extend_from_slice(octets) } else { push_text(out, octets) }
}

/// A text in quotes. It cannot have other bytes than visible ASCII and spaces: those are written as in a URI.
fn push_text(out: &mut Vec<u8>, octets: &[u8]) {
    out.push(b'"');
    for &octet in octets {
        match octet {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', octet]),
            b' '..=b'~' => out.push(octet),
            _ => {
                let digit = |value: u8| b"0123456789ABCDEF"[usize::from(value)];
                out.extend_from_slice(&[b'%', digit(octet >> 4), digit(octet & 15)]);
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::is_field_value;

    fn pushed(cache: &str, status: &CacheStatus<'_>) -> String {
        let mut out = Vec::new();
        push_cache_status(&mut out, cache, status);
        assert!(is_field_value(&out));
        String::from_utf8(out).unwrap()
    }

    const HIT: CacheStatus<'_> =
        CacheStatus { outcome: Handling::Hit, ttl_s: None, key: None, detail: None };

    fn forwarded(why: Forward) -> Handling {
        Handling::Forwarded { why, status: None, is_stored: false, is_collapsed: false }
    }

    /// Each outcome as the RFC writes it, with its numbers in their bounds.
    #[test]
    fn outcomes() {
        assert_eq!(pushed("larder", &HIT), "larder;hit");
        assert_eq!(pushed("larder", &CacheStatus { ttl_s: Some(30), ..HIT }), "larder;hit;ttl=30");
        assert_eq!(pushed("a", &CacheStatus { ttl_s: Some(-1), ..HIT }), "a;hit;ttl=-1");
        let far = CacheStatus { ttl_s: Some(i64::MIN), ..HIT };
        assert_eq!(pushed("a", &far), "a;hit;ttl=-999999999999999");
        let whys = [
            (Forward::Bypass, "bypass"),
            (Forward::Method, "method"),
            (Forward::UriMiss, "uri-miss"),
            (Forward::VaryMiss, "vary-miss"),
            (Forward::Miss, "miss"),
            (Forward::Request, "request"),
            (Forward::Stale, "stale"),
            (Forward::Partial, "partial"),
        ];
        for (why, text) in whys {
            let status = CacheStatus { outcome: forwarded(why), ..HIT };
            assert_eq!(pushed("a", &status), format!("a;fwd={text}"));
            assert_eq!(status.outcome.as_str(), text);
        }
        let outcome = Handling::Forwarded {
            why: Forward::Stale,
            status: Some(304),
            is_stored: true,
            is_collapsed: true,
        };
        let all = CacheStatus { outcome, ttl_s: Some(0), key: Some(b"/a"), detail: Some("b") };
        assert_eq!(
            pushed("a", &all),
            "a;fwd=stale;fwd-status=304;stored;collapsed;ttl=0;key=\"/a\";detail=b"
        );
    }

    /// Anything else than a token is a text, and no text ends its quotes.
    #[test]
    fn texts() {
        assert_eq!(pushed("my cache", &HIT), "\"my cache\";hit");
        assert_eq!(pushed("1a", &HIT), "\"1a\";hit");
        assert_eq!(pushed("", &HIT), "\"\";hit");
        let key = CacheStatus { key: Some(b"a\"b\\c\r\n\xe4 d"), ..HIT };
        assert_eq!(pushed("a", &key), "a;hit;key=\"a\\\"b\\\\c%0D%0A%E4 d\"");
        let detail = CacheStatus { detail: Some("not yet"), ..HIT };
        assert_eq!(pushed("a", &detail), "a;hit;detail=\"not yet\"");
    }
}
