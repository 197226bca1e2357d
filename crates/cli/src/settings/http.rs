//! The rows of `larder http`.

use std::path::PathBuf;

use larder_settings::row::{List, Settings, Text};
use larder_settings::settings;
use larder_settings::table::{Command, Setting};

use super::servers;

const SERVER: Setting = Setting::lasting("Server");
const TLS: Setting = Setting::lasting("TLS");
const ORIGIN: Setting = Setting::lasting("Origins").live();
const CACHING: Setting = Setting::lasting("Caching").live();
const LIMIT: Setting = Setting::lasting("Limits").live();
const OPERATION: Setting = Setting::lasting("Operation");

/// `larder http`.
pub const HTTP: Command = Command {
    path: &["http"],
    about: "Cache HTTP responses in front of origins",
    long: "Serves HTTP/1.1 requests from memory where RFC 9111 allows it, and fetches other objects from \
the origins. Concurrent requests for one object share one origin fetch, and each client receives \
the body as it arrives. Range and conditional requests are served from cached objects, also \
while these arrive. Responses that cannot be shared are streamed through a bounded buffer, \
whatever their length.

A few event loops serve the clients, one per core; no client has its own thread. The cache \
memory is fixed at the start, and least-used objects are evicted first. If an origin fails \
within a body, larder resets the connections of its readers and does not cache the object. No \
client takes a part for the whole.

The server runs in the foreground until Ctrl-C, SIGTERM or larder ctl stop. It then accepts no \
new connections, completes requests for at most ten seconds, saves short objects (--snapshot), \
and prints a summary. A second signal has no effect, except Ctrl-C a second or more after the \
first: it ends the process at once. SIGHUP and larder ctl reload read the configuration file \
again and apply it without closing connections. larder names settings that need a restart. \
SIGUSR1 reopens the access log.

Exit status: 0 ended as requested; 2 usage or configuration error, or an address is not \
available; 130 ended at once.

Examples:
  larder http --listen 127.0.0.1:8080 --origin http://127.0.0.1:9000
  larder http --listen 192.0.2.1:80,[2001:db8::1]:80 --origin http://10.0.0.1,http://10.0.0.2:8080 --memory 8GiB
  larder http --origin http://127.0.0.1:9000 --stale-if-error 1h --ignore-client-cache-control",
    settings: Http::ROWS,
};

settings! {
    /// All settings of `larder http`.
    pub struct Http {
        pub listen: List = SERVER.list().many().default("127.0.0.1:8080")
            .value("ADDR[:PORT]")
            .letter('l')
            .help("Listen on these addresses (default port 80)")
            .why("By default only this machine is served."),
        pub reuse_port: bool = servers::REUSE_PORT,
        pub cores: usize = SERVER.cores().default("all")
            .value("N|all")
            .help("Set the number of event loops")
            .more("larder starts at most 64. Each event loop has its own sockets and connections.")
            .why("Event loops share only the cache."),
        pub proxy_protocol: bool = SERVER.switch()
            .live()
            .help("Require the PROXY protocol on each connection")
            .more("Versions 1 and 2 are accepted. larder closes connections that begin without it.")
            .why("Behind a TCP proxy the header has the client's address. Listen only where the \
                proxy connects: any other client could state a false address."),
        pub io: &'static str = SERVER.choice(&["auto", "uring", "epoll"]).default("auto")
            .value("WAY")
            .help("Choose the kernel interface for sockets")
            .more("auto uses io_uring if the kernel offers and permits it. The first line of the \
                log has the choice and its reason. Systems other than Linux have neither: larder \
                uses poll there."),
        pub listen_tls: List = TLS.list().many().default("none")
            .value("ADDR[:PORT]")
            .help("Listen for TLS on these addresses (default port 443)")
            .more("Protocols are HTTP/2 and HTTP/1.1. Needs --tls-cert, --tls-key and a build \
                with the feature encrypted."),
        pub tls_cert: Option<PathBuf> = servers::TLS_CERT.group("TLS").needs(&["listen-tls"]),
        pub tls_key: Option<PathBuf> = servers::TLS_KEY.group("TLS").needs(&["listen-tls"]),
        pub http2_streams: u32 = TLS.count(1, 1_000).default("128")
            .needs(&["listen-tls"])
            .help("Limit concurrent requests per HTTP/2 connection")
            .more("A request counts as a connection for --clients-max while it is served.")
            .why("It takes about 100 kB."),
        pub origin: List = ORIGIN.list().many().default("none")
            .value("URL")
            .help("Fetch objects from these origins in turn")
            .more("Origins are http://HOST[:PORT] or https://HOST[:PORT]; at least one is \
                required. https needs a build with the feature encrypted. larder resolves names \
                at the start and on a reload. It skips an unreachable origin for two seconds."),
        pub origin_ca: Option<PathBuf> = ORIGIN.word().none("system")
            .value("FILE")
            .needs_restart()
            .help("Trust these CA certificates (PEM) for TLS origins")
            .more("system stands for the authorities of the system. The certificate must match \
                the host of the origin's URL.")
            .why("larder sends no request to an origin without a valid certificate."),
        pub health_check: Option<Text> = ORIGIN.word().none("none")
            .value("PATH")
            .help("Check each origin with this path, and skip failed ones")
            .more("A check succeeds with a 2xx status within two seconds. An origin is down when \
                fewer than 3 of its last 8 checks succeeded.")
            .why("The rule is that of Varnish's probe."),
        pub health_interval: u64 = ORIGIN.seconds(1, 3_600).default("5s")
            .needs(&["health-check"])
            .help("Set the interval of health checks")
            .why("The default is that of Varnish."),
        pub origin_connections: usize = ORIGIN.count(1, 1_000_000).default("1000")
            .help("Limit the connections to an origin")
            .more("Above the limit requests wait for a free connection."),
        pub connect_timeout: u64 = ORIGIN.seconds(1, 600).default("4s")
            .help("Limit the time to connect to an origin")
            .more("After it larder tries the next origin."),
        pub first_byte_timeout: u64 = ORIGIN.seconds(1, 86_400).default("60s")
            .help("Limit the time until an origin sends response headers")
            .more("After it the client gets 504, or a stale response if that is allowed.")
            .why("The default is that of Varnish."),
        pub between_bytes_timeout: u64 = ORIGIN.seconds(1, 86_400).default("60s")
            .help("Limit the time that an origin may pause within a body")
            .more("After it larder resets the readers of the body.")
            .why("The default is that of Varnish."),
        pub memory: u64 = CACHING.bytes(16 << 20, 1 << 44).default("256MiB")
            .needs_restart()
            .help("Set the memory for cached and in-flight objects")
            .why("Connections take a few kilobytes each in addition."),
        pub memory_small: u64 = CACHING.count(5, 90).default("25")
            .value("PERCENT")
            .needs_restart()
            .help("Set the share of memory for headers and inline bodies")
            .more("The value is a percentage of --memory. Inline bodies have at most --inline bytes.")
            .why("Set more if most objects are short."),
        pub inline: usize = CACHING.bytes(0, 24 << 10).default("16KiB")
            .help("Store bodies up to this size next to their headers")
            .why("Responses with inline bodies take one copy. Longer bodies are sent from where \
                they are stored."),
        pub heuristic_percent: u32 = CACHING.count(0, 100).default("10")
            .help("Set heuristic freshness, in percent of the object's age")
            .more("It applies to responses without a stated lifetime. The age is the time since \
                Last-Modified.")
            .why("RFC 9111, section 4.2.2, suggests 10 %."),
        pub heuristic_max: u64 = CACHING.seconds(0, 31_536_000).default("1d")
            .help("Limit heuristic freshness to this time")
            .why("A page that did not change for years may change today."),
        pub heuristic_cookies: bool = CACHING.switch()
            .help("Use heuristic freshness for requests with Cookie, too")
            .why("Without it such a response is not shared, because it may be one client's own \
                page. larder stores it only with an ETag, and validates it for each use."),
        pub stale_if_error: u64 = CACHING.seconds(0, 31_536_000).default("0s")
            .help("Serve stale responses for this time if the origin fails")
            .more("It applies to responses that state nothing else (RFC 5861). larder obeys \
                responses that forbid it."),
        pub keep: u32 = CACHING.seconds(0, 31_536_000).default("7d")
            .help("Cache stale objects for this time, for revalidation")
            .more("Eviction may remove them earlier."),
        pub keep_status: List = CACHING.list().many().default("none")
            .value("STATUS=TIME")
            .help("Set freshness by status, such as 404=10s,5xx=1s")
            .more("It applies to responses without a stated lifetime. Cache-Control and Expires \
                take precedence. Responses that are private, set cookies or answer credentials \
                are not cached. A class such as 4xx excludes statuses of a single request, such \
                as 400 or 429.")
            .why("Clients repeat failed requests."),
        pub unshared: u32 = CACHING.seconds(1, 86_400).default("120s")
            .help("Do not coalesce after an uncacheable response (hit-for-miss)")
            .more("The setting is the time after such a response. Requests with Authorization are \
                tracked separately.")
            .why("Requests for personal pages must not wait for one another."),
        pub abandoned: Text = CACHING.word().default("64MiB")
            .value("finish|drop|BYTES")
            .help("Finish or drop cacheable bodies that have no reader")
            .more("BYTES finishes a body if at most that much is missing. larder finishes bodies \
                of unknown length, and drops bodies for a single client.")
            .why("Another client may request the object, but not each long video is worth the fetch."),
        pub window: u64 = CACHING.bytes(64 << 10, 1 << 30).default("1MiB")
            .help("Limit the buffer between the origin and one client")
            .more("It applies to responses for one client only. If many are streamed at once, \
                each has its share of a twentieth of the memory for bodies.")
            .why("It bounds the cost of a slow client, and less memory in use is also faster."),
        pub ignore_client_cache_control: bool = CACHING.switch()
            .help("Ignore Cache-Control of requests")
            .why("Operators of a site often want that clients cannot force a fetch. Varnish does the same."),
        pub no_cache_status: bool = CACHING.switch()
            .help("Do not send the Cache-Status header (RFC 9211)")
            .why("The header states whether the cache served the response, and how long it stays fresh."),
        pub clients_max: usize = LIMIT.count(1, 1_000_000).default("10000")
            .needs_restart()
            .help("Limit the connections of clients")
            .more("larder closes new connections above the limit. At the start it raises the soft \
                limit of open files to the hard limit. If that is too low, larder accepts fewer \
                clients and reports it: up to half of the files are reserved for origins."),
        pub clients_per_address: u32 = LIMIT.count(0, 1_000_000).default("0")
            .help("Limit the connections per client")
            .more("0 means no limit. A client is an IPv4 address or an IPv6 /64.")
            .why("One client cannot take all connections. Behind a proxy use --proxy-protocol, or \
                all clients count as one."),
        pub body_max: u64 = LIMIT.bytes(0, 1 << 50).default("0")
            .help("Limit the length of request bodies")
            .more("0 means no limit. Longer bodies get 413.")
            .why("Bodies are streamed through a bounded buffer, so their length costs no memory."),
        pub client_hold: u64 = LIMIT.bytes(64 << 10, 1 << 30).default("8MiB")
            .help("Limit the memory that one client holds while it reads")
            .why("A slow client must not prevent the eviction of a whole object."),
        pub head_max: u32 = LIMIT.bytes(1 << 10, 1 << 20).default("32KiB")
            .help("Limit the size of request and response headers")
            .more("Longer headers get 431 from clients, and 502 from origins."),
        pub idle_timeout: u64 = LIMIT.seconds(1, 86_400).default("60s")
            .help("Close connections without a request after this time")
            .why("An idle connection takes a few kilobytes."),
        pub head_timeout: u64 = LIMIT.seconds(1, 600).default("10s")
            .help("Limit the time to receive request headers")
            .more("The time begins with the first byte.")
            .why("It ends connections that send single bytes (slow loris)."),
        pub client_timeout: u64 = LIMIT.seconds(1, 86_400).default("60s")
            .help("Reset connections that make no progress for this time")
            .more("A client makes no progress if it neither reads its response nor sends its body."),
        pub purge_from: List = OPERATION.list().many().default("none")
            .value("ADDR[/BITS]")
            .live()
            .help("Allow PURGE requests from these networks")
            .more("Other clients get 405. Tags are named by xkey-purge, Surrogate-Key or Cache-Tag.")
            .why("The rules are those of Varnish."),
        pub ctl: Option<PathBuf> = servers::CTL,
        pub ctl_mode: Text = servers::CTL_MODE.needs(&["ctl"]),
        pub metrics: Option<Text> = servers::METRICS,
        pub ui: Option<Text> = OPERATION.word().none("none")
            .value("ADDR:PORT|unix:PATH")
            .help("Serve a page with rates, hit ratios, URLs and origins")
            .more("Open it in a browser: http://127.0.0.1:8080/ for 127.0.0.1:8080. The address also has what \
                --metrics serves. An address that other machines reach needs --ui-token.")
            .why("It shows what the cache does, which URLs miss it, and which origins respond."),
        pub ui_token: Option<PathBuf> = servers::UI_TOKEN,
        pub ui_hosts: List = servers::UI_HOSTS,
        pub ui_history: Option<PathBuf> = servers::UI_HISTORY,
        pub log_level: &'static str = servers::LOG_LEVEL,
        pub log_format: &'static str = servers::LOG_FORMAT,
        pub snapshot: Option<PathBuf> = OPERATION.word().none("none")
            .value("FILE")
            .help("Save inline objects at the end, and load them at the start")
            .more("Long bodies are not saved. larder deletes the file after it loads it.")
            .why("The cache survives a restart. Purged objects cannot return after a crash."),
        pub access_log: Option<PathBuf> = OPERATION.word().none("none")
            .value("FILE|-")
            .live()
            .help("Write an access log to this file (- is standard output)")
            .more("SIGHUP and SIGUSR1 reopen the file after a rotation.")
            .why("If the disk is full or slow, larder drops and counts lines, and clients do not wait."),
        pub access_log_format: &'static str = OPERATION.choice(&["combined", "json"])
            .default("combined")
            .live()
            .needs(&["access-log"])
            .help("Choose the format of the access log")
            .more("combined is the format of Apache and nginx. json has one object per line, with \
                durations and the cache status."),
        pub access_log_size: u64 = OPERATION.bytes(0, 1 << 40).default("256MiB")
            .live()
            .needs(&["access-log"])
            .help("Rotate the access log at this size")
            .more("0 disables it. The file is renamed to FILE.1.")
            .why("An unattended log must not fill the disk."),
        pub access_log_keep: u32 = OPERATION.count(0, 1_000).default("4")
            .live()
            .needs(&["access-log"])
            .help("Keep this many rotated access logs")
            .more("larder deletes older ones."),
    }
}
