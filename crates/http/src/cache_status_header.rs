//! `Cache-Status` (RFC 9211): what the cache did with a request.
//!
//! ```text
//! larder;hit;ttl=30
//! larder;fwd=stale;fwd-status=304;stored
//! ```
//!
//! A response has one such field for each cache on its way; larder's comes after those of the
//! caches before it. This module writes larder's, without the field name. Cost: a line of bytes,
//! appended.

use crate::answer::NAME;
use crate::message::push_number;

/// The farthest from 0 that a number of structured fields may be (RFC 8941, section 3.3.1).
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// What the cache did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheStatus {
    /// It served a stored response.
    Hit {
        /// How long that is fresh from now on, seconds; below 0: how long it has been stale.
        ttl_s: i64,
    },
    /// It sent a request to the origin.
    Forwarded {
        /// Why.
        why: Forward,
        /// The origin's status.
        status: Option<u16>,
        /// The response is stored, or it updated the stored one.
        is_stored: bool,
    },
}

/// Why larder sent a request to the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Forward {
    /// The cache does not handle such requests.
    Bypass,
    /// Stored responses are not for this method.
    Method,
    /// Nothing is stored for the URI.
    UriMiss,
    /// The stored responses of the URI are for other requests (`Vary`).
    VaryMiss,
    /// The stored response is stale.
    Stale,
}

impl Forward {
    /// The word in the field.
    pub fn as_str(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::UriMiss => "uri-miss",
            Forward::VaryMiss => "vary-miss",
            Forward::Stale => "stale",
        }
    }
}

/// The value of the field. `is_by_rule`: an operator's rule states how long the response is fresh.
pub fn push_cache_status(out: &mut Vec<u8>, status: CacheStatus, is_by_rule: bool) {
    out.extend_from_slice(NAME.as_bytes());
    match status {
        CacheStatus::Hit { ttl_s } => {
            out.extend_from_slice(if ttl_s < 0 { b";hit;ttl=-" } else { b";hit;ttl=" });
            push_number(out, ttl_s.unsigned_abs().min(INTEGER_MAX));
        }
        CacheStatus::Forwarded { why, status, is_stored } => {
            out.extend_from_slice(b";fwd=");
            out.extend_from_slice(why.as_str().as_bytes());
            if let Some(status) = status {
                out.extend_from_slice(b";fwd-status=");
                push_number(out, u64::from(status));
            }
            if is_stored {
                out.extend_from_slice(b";stored");
            }
        }
    }
    if is_by_rule {
        out.extend_from_slice(b";detail=keep-status");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::is_field_value;

    fn pushed(status: CacheStatus, is_by_rule: bool) -> String {
        let mut out = Vec::new();
        push_cache_status(&mut out, status, is_by_rule);
        assert!(is_field_value(&out));
        String::from_utf8(out).unwrap()
    }

    /// Each outcome as the RFC writes it, with its numbers in their bounds.
    #[test]
    fn outcomes() {
        let hit = |ttl_s| CacheStatus::Hit { ttl_s };
        assert_eq!(pushed(hit(30), false), "larder;hit;ttl=30");
        assert_eq!(pushed(hit(-1), true), "larder;hit;ttl=-1;detail=keep-status");
        assert_eq!(pushed(hit(i64::MIN), false), "larder;hit;ttl=-999999999999999");
        let whys = [
            (Forward::Bypass, "bypass"),
            (Forward::Method, "method"),
            (Forward::UriMiss, "uri-miss"),
            (Forward::VaryMiss, "vary-miss"),
            (Forward::Stale, "stale"),
        ];
        for (why, text) in whys {
            let status = CacheStatus::Forwarded { why, status: None, is_stored: false };
            assert_eq!(pushed(status, false), format!("larder;fwd={text}"));
        }
        let (why, status) = (Forward::Stale, Some(304));
        let all = CacheStatus::Forwarded { why, status, is_stored: true };
        let expected = "larder;fwd=stale;fwd-status=304;stored;detail=keep-status";
        assert_eq!(pushed(all, true), expected);
    }
}
