//! An HTTP cache: messages and caching rules as plain functions, a core that decides, event loops
//! that serve.
//!
//! ```text
//! bytes                       -> message             -> headers and bodies, or an error (RFC 9112)
//! request, response, times    -> cacheability::store -> Stored, or why not (RFC 9111)
//! Life, request, now          -> freshness::decide   -> serve, serve while revalidating, revalidate, 504
//! request, fields, validators -> preconditions       -> 304, or ranges (RFC 9110)
//! record, request, now        -> answer              -> headers in final form, and the body that follows
//! requests, responses, now    -> core                -> what clients get, what origins are asked, what is stored
//! clients, origins            -> driver              -> one event loop, which does what the core decides
//! ```
//!
//! Functions, without sockets, clock or store:
//!
//! | module | duty |
//! |---|---|
//! | [`message`] | headers, framing, chunks; headers for the next hop |
//! | [`field`] | header fields: lists, members, numbers, dates |
//! | [`directives`] | `Cache-Control` of requests and responses, `CDN-Cache-Control` (RFC 9213) |
//! | [`cacheability`] | whether a response may be stored, for how long, and for which requests (`Vary`) |
//! | [`freshness`] | whether a stored response may be served; how a 304 updates it; which methods invalidate it |
//! | [`preconditions`] | `If-None-Match`, `If-Modified-Since`, `Range` and `If-Range` |
//! | [`key`], [`record`] | the key and the bytes of a stored response |
//! | [`answer`] | what one client gets of it |
//! | [`sent`] | the fields that an origin is sent, by which variants are selected |
//! | [`cache_status_header`], [`access_log::format`] | `Cache-Status` (RFC 9211); a line for each exchange |
//! | [`default_ttl`] | how long a response without a lifetime is fresh, by an operator's rule |
//! | [`proxy_protocol`] | the client's address, stated by a proxy |
//!
//! The server:
//!
//! | module | duty |
//! |---|---|
//! | [`core`] | decides on requests and responses: no sockets, no clock |
//! | [`store`] | what all event loops cache together; purges |
//! | [`bodies`] | bodies too long for a record, and their eviction |
//! | [`parts`] | bodies that turned out too long to be cached |
//! | [`coalescing`] | in-flight fetches, one for all clients that want the object |
//! | [`pending`] | URLs that are being fetched, for writes that come meanwhile |
//! | [`loop_channel`] | messages between event loops |
//! | [`driver`] | an event loop: clients, origins, bodies in flight |
//! | [`server`], `common` | sockets, threads, signals; what event loops share |
//! | [`options`], [`connection`] | the operator's settings, and those that a connection needs |
//! | [`tls_bridge`], [`handoff`] | connections that other threads encrypt, and how one passes to an event loop |
//! | [`ctl`], [`counts`], [`health`] | commands of operators; counters; which origins fail |
//! | [`descriptors`] | how open files are divided |
//! | [`reload`] | what may change while it serves |
//! | [`snapshot`] | cached responses in a file, over a restart |
//! | [`access_log`] | where lines of the log go |
//! | [`notes`] | facts of exchanges, for the page |
//! | [`page`] | the page for a browser: history, tables, texts |
//!
//! It is a shared cache (RFC 9111, section 1): a `private` response is never stored.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod access_log;
pub mod answer;
pub mod bodies;
pub mod cache_status_header;
pub mod cacheability;
pub mod coalescing;
mod common;
pub mod connection;
pub mod core;
pub mod counts;
pub mod ctl;
pub mod default_ttl;
pub mod descriptors;
pub mod directives;
pub mod driver;
pub mod field;
pub mod freshness;
pub mod handoff;
pub mod health;
pub mod key;
pub mod loop_channel;
pub mod message;
pub mod notes;
pub mod options;
pub mod page;
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

/// A header field, as it was received: its name in any case, and its value without the white space
/// around it. httparse fills arrays of them, which saves a copy for each message.
pub use httparse::Header as Field;

/// A request, as the caching rules see it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The method, in its case.
    pub method: &'a str,
    /// The header fields.
    pub fields: &'a [Field<'a>],
}

/// A response, as the caching rules see it.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// The status code.
    pub status: u16,
    /// The header fields.
    pub fields: &'a [Field<'a>],
}

/// The operator's choices.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// The share of the time since a response was last modified for which it is fresh, where the
    /// response does not state it (RFC 9111, section 4.2.2, suggests a tenth); 0: for no time.
    pub heuristic_share: f64,
    /// At most this time, seconds.
    pub heuristic_max_s: u64,
    /// Clients may ask for a newer response, or forbid storing it (RFC 9111, section 5.2.1).
    /// Without it they may not, as in Varnish: an operator of a cache in front of a site often
    /// wants that.
    pub heeds_clients: bool,
    /// A response that sets cookies is stored only where it states `public` or `s-maxage`: it was
    /// likely meant for one client.
    pub is_cautious_with_cookies: bool,
    /// A response to a request with `Cookie` may be fresh by a guess. Without it such a response,
    /// where it states nothing about caching, is stored only if it has an entity tag, and is
    /// validated at each use: it may be one client's page.
    pub guesses_with_cookies: bool,
    /// A stale response may be served while the origin fails, for this long after it became stale,
    /// seconds, where the response does not state it (RFC 5861, section 4) and nothing forbids it.
    pub stale_if_error_s: u64,
    /// How long a response that does not state it is fresh, by its status. This rule comes before a
    /// guess.
    pub statuses: default_ttl::StatusRules,
}

impl Default for Rules {
    /// A tenth, at most a day, and not where a request had a cookie. Directives of clients count,
    /// and the cookie rule is cautious. No stale responses unless a response allows them, and no
    /// rules for statuses.
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

/// The longest time in seconds that a field may state: a longer one means this (RFC 9111, section
/// 1.2.2).
pub const SECONDS_MAX: u64 = 1 << 31;
