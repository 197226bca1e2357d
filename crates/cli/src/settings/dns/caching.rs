//! Rows of `larder dns` on cached responses and on limits.

use larder_settings::row::Text;
use larder_settings::settings;
use larder_settings::table::Setting;

const CACHING: Setting = Setting::lasting("Caching");
const LIMIT: Setting = Setting::lasting("Limits");

settings! {
    /// How responses are cached, and limits.
    pub struct Caching {
        pub ttl_min: u32 = CACHING.seconds(0, 3_600).default("0s")
            .help("Cache responses for at least this time")
            .more("Responses with TTL 0 are never cached.")
            .why("More than a few seconds breaks names that move."),
        pub ttl_max: u32 = CACHING.seconds(1, 604_800).default("86400s")
            .help("Cache responses for at most this time")
            .why("The default is that of unbound; RFC 8767 recommends at most a week."),
        pub negative_ttl_max: u32 = CACHING.seconds(1, 86_400).default("3600s")
            .help("Cache negative responses for at most this time")
            .why("The default is that of unbound; RFC 2308 recommends at most three hours."),
        pub failure_ttl: u32 = CACHING.seconds(1, 300).default("5s")
            .help("Cache failures of all upstreams for this time")
            .why("RFC 9520 requires 1 s to 5 minutes."),
        pub stale: u32 = CACHING.seconds(0, 604_800).default("86400s")
            .help("Serve expired responses for this time if upstreams fail")
            .more("0 disables it. larder always tries to get a fresh response first.")
            .why("RFC 8767 recommends one to three days."),
        pub nxdomain_cut: &'static str = CACHING.choice(&["validated", "always", "never"])
            .default("validated")
            .value("WHEN")
            .help("Set when NXDOMAIN covers the names below it (RFC 8020)")
            .more("validated needs --trust-ad.")
            .why("Some servers deny names that have other names below them."),
        pub prefetch: u32 = CACHING.count(0, 50).default("10")
            .value("PERCENT")
            .help("Refresh responses in this last part of their TTL")
            .more("0 disables it. larder fetches the response again when a client queries it in that time.")
            .why("Clients never wait for popular names."),
        pub cookies: bool = LIMIT.switch().on()
            .help("Send DNS cookies to clients (RFC 7873)")
            .more("Clients with a valid cookie have no rate limit.")
            .why("A client with a cookie has received a response at its address, so the address is not forged."),
        pub cookie_secret: Option<Text> = LIMIT.word().none("random")
            .value("HEX")
            .needs(&["cookies"])
            .help("Set the secret of cookies, 32 hexadecimal digits")
            .more("random chooses a secret at the start.")
            .why("Servers that share an address need the same secret. Set it in the file: other users \
                can read a command line."),
        pub rate_limit: u32 = LIMIT.count(0, 1_000_000).default("0")
            .help("Limit UDP responses per second and network")
            .more("0 means no limit. Networks are IPv4 /24 and IPv6 /56. The limit applies to each \
                core. Clients with a cookie or over TCP have no limit.")
            .why("It is for servers that are open to the internet."),
        pub rate_limit_slip: u32 = LIMIT.count(0, 100).default("2")
            .needs(&["rate-limit"])
            .help("Send every Nth response above the rate limit truncated")
            .more("These responses are empty. With 0 larder sends none.")
            .why("Legitimate clients then retry over TCP, and forged queries are not amplified."),
        pub streams_max: usize = LIMIT.count(1, 1_000_000).default("1024")
            .help("Limit the TCP connections of clients per core")
            .more("Above the limit larder closes the connection that is idle for longest."),
        pub streams_per_client: u32 = LIMIT.count(1, 1_000_000).default("64")
            .help("Limit the TCP connections per client and core")
            .more("A client is an IPv4 address or an IPv6 /64.")
            .why("One client cannot take all connections."),
        pub questions_max: u32 = LIMIT.count(1, 1_000_000).default("10000")
            .help("Limit the in-flight queries to upstreams per core")
            .more("Above the limit clients get stale responses or SERVFAIL."),
        pub waiters_max: u32 = LIMIT.count(1, 10_000_000).default("30000")
            .help("Limit the clients that wait for responses, per core")
            .why("Each takes about 600 bytes."),
    }
}
