//! Rows of `larder dns` on cached responses and on limits.

use larder_settings::table::{Kind, Setting};

use super::{LASTING, ON_OFF};

const CACHING: Setting = Setting { group: "Caching", ..LASTING };
const LIMIT: Setting = Setting { group: "Limits", ..LASTING };

pub(super) const ROWS: [Setting; 15] = [
    Setting {
        name: "ttl-min",
        value_name: "SECONDS",
        kind: Kind::Seconds { min: 0, max: 3_600 },
        default: "0s",
        help: "Cache responses for at least this time",
        more: "Responses with TTL 0 are never cached.",
        why: "More than a few seconds breaks names that move.",
        ..CACHING
    },
    Setting {
        name: "ttl-max",
        value_name: "SECONDS",
        kind: Kind::Seconds { min: 1, max: 604_800 },
        default: "86400s",
        help: "Cache responses for at most this time",
        why: "The default is that of unbound; RFC 8767 recommends at most a week.",
        ..CACHING
    },
    Setting {
        name: "negative-ttl-max",
        value_name: "SECONDS",
        kind: Kind::Seconds { min: 1, max: 86_400 },
        default: "3600s",
        help: "Cache negative responses for at most this time",
        why: "The default is that of unbound; RFC 2308 recommends at most three hours.",
        ..CACHING
    },
    Setting {
        name: "failure-ttl",
        value_name: "SECONDS",
        kind: Kind::Seconds { min: 1, max: 300 },
        default: "5s",
        help: "Cache failures of all upstreams for this time",
        why: "RFC 9520 requires 1 s to 5 minutes.",
        ..CACHING
    },
    Setting {
        name: "stale",
        value_name: "SECONDS",
        kind: Kind::Seconds { min: 0, max: 604_800 },
        default: "86400s",
        help: "Serve expired responses for this time if upstreams fail",
        more: "0 disables it. larder always tries to get a fresh response first.",
        why: "RFC 8767 recommends one to three days.",
        ..CACHING
    },
    Setting {
        name: "nxdomain-cut",
        value_name: "WHEN",
        kind: Kind::Choice(&["validated", "always", "never"]),
        default: "validated",
        help: "Set when NXDOMAIN covers the names below it (RFC 8020)",
        more: "validated needs --trust-ad.",
        why: "Some servers deny names that have other names below them.",
        ..CACHING
    },
    Setting {
        name: "prefetch",
        value_name: "PERCENT",
        kind: Kind::Count { min: 0, max: 50 },
        default: "10",
        help: "Refresh responses in this last part of their TTL",
        more: "0 disables it. larder fetches the response again when a client queries it in that time.",
        why: "Clients never wait for popular names.",
        ..CACHING
    },
    Setting {
        name: "cookies",
        group: "Limits",
        default: "true",
        help: "Send DNS cookies to clients (RFC 7873)",
        more: "Clients with a valid cookie have no rate limit.",
        why: "A client with a cookie has received a response at its address, so the address is not forged.",
        ..ON_OFF
    },
    Setting {
        name: "cookie-secret",
        value_name: "HEX",
        kind: Kind::Word,
        default: "random",
        help: "Set the secret of cookies, 32 hexadecimal digits",
        more: "random chooses a secret at the start.",
        why: "Servers that share an address need the same secret. Set it in the file: other users \
            can read a command line.",
        ..LIMIT
    },
    Setting {
        name: "rate-limit",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 1_000_000 },
        default: "0",
        help: "Limit UDP responses per second and network",
        more: "0 means no limit. Networks are IPv4 /24 and IPv6 /56. The limit applies to each \
            core. Clients with a cookie or over TCP have no limit.",
        why: "It is for servers that are open to the internet.",
        ..LIMIT
    },
    Setting {
        name: "rate-limit-slip",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 100 },
        default: "2",
        help: "Send every Nth response above the rate limit truncated",
        more: "These responses are empty. With 0 larder sends none.",
        why: "Legitimate clients then retry over TCP, and forged queries are not amplified.",
        ..LIMIT
    },
    Setting {
        name: "streams-max",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "1024",
        help: "Limit the TCP connections of clients per core",
        more: "Above the limit larder closes the connection that is idle for longest.",
        ..LIMIT
    },
    Setting {
        name: "streams-per-client",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "64",
        help: "Limit the TCP connections per client and core",
        more: "A client is an IPv4 address or an IPv6 /64.",
        why: "One client cannot take all connections.",
        ..LIMIT
    },
    Setting {
        name: "questions-max",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "10000",
        help: "Limit the in-flight queries to upstreams per core",
        more: "Above the limit clients get stale responses or SERVFAIL.",
        ..LIMIT
    },
    Setting {
        name: "waiters-max",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 10_000_000 },
        default: "30000",
        help: "Limit the clients that wait for responses, per core",
        why: "Each takes about 600 bytes.",
        ..LIMIT
    },
];
