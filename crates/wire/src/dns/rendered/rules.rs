//! The rules for responses, and the kinds and properties of a rendered one.

use super::super::DnsError;

/// The longest TTL (RFC 2181, section 8), seconds.
pub(super) const TTL_MAX_S: u32 = i32::MAX as u32;

/// Rules for every response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The least lifetime of a record, seconds; one with a TTL of 0 is not cached.
    pub ttl_min_s: u32,
    /// The longest lifetime of a record, seconds (RFC 8767 recommends 604,800 at most).
    pub ttl_max_s: u32,
    /// The longest lifetime of a negative response, seconds (RFC 2308 recommends 10,800 at most).
    pub negative_ttl_max_s: u32,
    /// The lifetime of a failure, seconds (RFC 9520: from 1 to 300).
    pub failure_ttl_s: u32,
    /// Trust the upstream's AD (RFC 6840, section 5.8: over a trusted path).
    pub believes_ad: bool,
    /// Omit authority and additional records if there is an answer.
    pub is_minimal: bool,
}

impl Default for Rules {
    /// 0 s to a day, no data for at most an hour, failures for 5 s; AD is not trusted; minimal.
    fn default() -> Rules {
        Rules {
            ttl_min_s: 0,
            ttl_max_s: 86_400,
            negative_ttl_max_s: 3_600,
            failure_ttl_s: 5,
            believes_ad: false,
            is_minimal: true,
        }
    }
}

impl Rules {
    pub(super) fn clamp(&self, ttl_s: u32) -> u32 {
        if ttl_s == 0 { 0 } else { ttl_s.max(self.ttl_min_s).min(self.ttl_max_s) }
    }
}

/// The query.
#[derive(Debug, Clone, Copy)]
pub struct QueryInfo<'a> {
    /// Name, type and class as they were sent upstream, the name not compressed. Bytes after them
    /// are ignored.
    pub question: &'a [u8],
    /// Letters were sent in random case, and the response must repeat it (0x20).
    pub is_case_random: bool,
    /// The client sets DO.
    pub dnssec_ok: bool,
}

/// Kinds of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The data of the query.
    Data,
    /// The name exists, and has no data of the type (RFC 2308, section 2.2). An SOA states it.
    NoData,
    /// The name does not exist (RFC 2308, section 2.1).
    NoName,
    /// Any other response code.
    Failure,
    /// No error, neither data nor an SOA: a referral, aliases that are not followed, or no records
    /// at all. From a recursive server it is of little use: another may do better. Never cached.
    Inconclusive,
}

/// Properties of a rendered response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The kind.
    pub kind: Kind,
    /// The response code, with the bits of EDNS, as received.
    pub rcode: u16,
    /// Lifetime in the cache, seconds; 0: it is sent to the waiting clients, and not cached.
    pub ttl_s: u32,
    /// The number of aliases from the query name to the name of [`Kind`].
    pub aliases: u8,
    /// Records of the answer section that were omitted, since they do not belong to the query.
    pub unrelated: u16,
    /// INFO-CODE of the first extended error (RFC 8914), if there was one.
    pub extended_error: Option<u16>,
}

/// Why a message is no usable response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It is no response, or to another query. The query stays open.
    OtherQuestion,
    /// The question is right except its case, and [`QueryInfo::is_case_random`]. Forged, or from one of
    /// the few servers that do not repeat the case: wait longer, then query over TCP.
    OtherCase,
    /// TC is set: query again over TCP.
    Truncated,
    /// Aliases form a circle, or are more than 16. Respond with SERVFAIL, which may be cached as a
    /// failure.
    AliasChain,
    /// It cannot be read. The server is not usable for this query.
    Damaged(DnsError),
    /// Encoded again it does not fit a message. As [`Unfit::Damaged`].
    TooLong,
}

impl From<DnsError> for Unfit {
    fn from(error: DnsError) -> Unfit {
        Unfit::Damaged(error)
    }
}
