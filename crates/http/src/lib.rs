//! An HTTP cache: messages and caching as plain functions, what is kept, and loops that serve it.
//!
//! ```text
//! octets                     -> message      -> heads and bodies, or why not (RFC 9112)
//! request, response, moments -> cacheability::store -> Stored, or why not (RFC 9111)
//! Life, request, now         -> freshness::decide  -> serve, serve while asking, ask first, 504
//! request, fields, validators -> preconditions -> 304, or which octets (RFC 9110)
//! record, request, moment    -> answer       -> a head in its final form, and what follows it
//! clients, origins           -> driver       -> one core's loop, which does what these say
//! ```
//!
//! Functions, without sockets, clock or store:
//!
//! | module | duty |
//! |---|---|
//! | [`message`] | heads, framing, chunks; heads for the next hop |
//! | [`field`] | header fields: lists, members, numbers, dates |
//! | [`directives`] | `Cache-Control` of both sides, `CDN-Cache-Control` (RFC 9213) |
//! | [`cacheability`] | what may be kept, for how long, and for which requests (`Vary`) |
//! | [`freshness`] | what may be answered from it; what its update by a 304 is; whom an unsafe method invalidates |
//! | [`preconditions`] | `If-None-Match`, `If-Modified-Since`, `Range` and `If-Range` |
//! | [`key`], [`record`] | under what a response is kept, and as which octets |
//! | [`answer`] | what one client gets of it |
//! | [`sent`] | what an origin is sent of a request, by which variants are chosen |
//! | [`cache_status_header`], [`access_log::format`] | `Cache-Status` (RFC 9211); a line for each exchange |
//! | [`default_ttl`] | how long what says nothing is fresh, by an operator's rule |
//! | [`proxy_protocol`] | who a client is, said by a proxy |
//!
//! The server:
//!
//! | module | duty |
//! |---|---|
//! | [`store`] | what is kept, by all loops together; purges |
//! | [`bodies`] | bodies too long for a record, and which of them leaves |
//! | [`parts`] | bodies that turned out too long to be cached |
//! | [`coalescing`] | what is being asked, once for all who want it |
//! | [`pending`] | which URLs are being fetched, for writes that come meanwhile |
//! | [`loop_channel`] | what one loop says to another |
//! | [`driver`] | a loop: clients, origins, bodies on their way |
//! | [`server`], [`options`] | sockets, threads, signals; what an operator decides |
//! | [`tls_bridge`] | connections that somebody else decrypts |
//! | [`ctl`], [`counts`], [`health`] | what operators ask; what is counted; which origins fail |
//! | [`descriptors`] | open files, and who gets them |
//! | [`reload`] | what may change while it serves |
//! | [`snapshot`] | what is kept, in a file over a restart |
//! | [`access_log`] | where lines of the log go |
//!
//! It is a shared cache (RFC 9111, section 1) that is told so by nobody: `private` is never kept.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod access_log;
pub mod answer;
pub mod bodies;
pub mod cache_status_header;
pub mod cacheability;
pub mod coalescing;
pub mod counts;
pub mod ctl;
pub mod default_ttl;
pub mod descriptors;
pub mod directives;
pub mod driver;
pub mod field;
pub mod freshness;
pub mod health;
pub mod key;
pub mod loop_channel;
pub mod message;
pub mod options;
pub mod parts;
pub mod pending;
pub mod preconditions;
pub mod proxy_protocol;
pub mod record;
pub mod reload;
pub mod sent;
pub mod server;
pub mod snapshot;
pub mod store;
mod supervisor;
pub mod tls_bridge;

/// A header field, as it was received: its name in any case, and its value without the white space around it. httparse fills
/// arrays of them, which saves a copy for each head.
pub use httparse::Header as Field;

/// A request, as far as caching looks at it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The method, in its case.
    pub method: &'a str,
    /// The fields of its head.
    pub fields: &'a [Field<'a>],
}

/// A response, as far as caching looks at it.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// The status code.
    pub status: u16,
    /// The fields of its head.
    pub fields: &'a [Field<'a>],
}

/// What is a matter of taste.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Of the time since a response was last modified, the share for which it is fresh where nobody said (RFC 9111, section
    /// 4.2.2 suggests a tenth); 0: for no time.
    pub heuristic_share: f64,
    /// That time at most, seconds.
    pub heuristic_max_s: u64,
    /// Clients may ask for an answer that is newer, or not to be kept (RFC 9111, section 5.2.1). Without it they may not, as
    /// Varnish has it: whoever runs a cache before a site often wants that.
    pub heeds_clients: bool,
    /// A response that sets cookies is kept only where it says `public` or `s-maxage`: it was likely meant for one client.
    pub is_cautious_with_cookies: bool,
    /// A response to a request with `Cookie` may be fresh by a guess. Without it such a response, where it says nothing of caching, is
    /// stored only if it has an entity tag, and is validated at each use: it may be one client's page.
    pub guesses_with_cookies: bool,
    /// A stale answer may be given while the origin fails, for so long after it became stale, seconds, where the response does
    /// not say (RFC 5861, section 4) and nothing forbids it.
    pub stale_if_error_s: u64,
    /// How long a response is fresh that says nothing of it, by its status. It comes before a guess.
    pub statuses: default_ttl::StatusRules,
}

impl Default for Rules {
    /// A tenth, a day at most, and not where a request had a cookie; clients are heeded; cautious; no stale answers unless a response says so; no rules for statuses.
    fn default() -> Rules {
        Rules {
            heuristic_share: 0.1,
            heuristic_max_s: 86_400,
            heeds_clients: true,
            is_cautious_with_cookies: true,
            guesses_with_cookies: false,
            stale_if_error_s: 0,
            statuses: default_ttl::StatusRules::default(),
        }
    }
}

/// The longest time in seconds that a field may say: what is longer means this (RFC 9111, section 1.2.2).
pub const SECONDS_MAX: u64 = 1 << 31;
