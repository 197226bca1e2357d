//! The rows of `larder http`.

use larder_settings::table::{Command, Kind, ROW, Reach, SWITCH, Setting};

use super::servers;

const LASTING: Setting = Setting { reach: Reach::Lasting, ..ROW };
const SERVER: Setting = Setting { group: "Server", ..LASTING };
/// What a reload changes.
const LIVE: Setting = Setting { is_live: true, ..LASTING };
const TLS: Setting = Setting { group: "TLS", default: "none", ..LASTING };
const ORIGIN: Setting = Setting { group: "Origins", ..LIVE };
const CACHING: Setting = Setting { group: "Caching", ..LIVE };
const OPERATION: Setting = Setting { group: "Operation", default: "none", ..LASTING };
const LIMIT: Setting = Setting { group: "Limits", ..LIVE };
const ON_OFF: Setting = Setting { reach: Reach::Lasting, is_live: true, ..SWITCH };

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
    settings: &[
        Setting {
            name: "listen",
            letter: Some('l'),
            value_name: "ADDR[:PORT]",
            kind: Kind::List,
            many: true,
            default: "127.0.0.1:8080",
            help: "Listen on these addresses (default port 80)",
            why: "By default only this machine is served.",
            ..SERVER
        },
        servers::REUSE_PORT,
        Setting {
            name: "cores",
            value_name: "N|all",
            kind: Kind::Cores,
            default: "all",
            help: "Set the number of event loops",
            more: "larder starts at most 64. Each event loop has its own sockets and connections.",
            why: "Event loops share only the cache.",
            ..SERVER
        },
        Setting {
            name: "proxy-protocol",
            help: "Require the PROXY protocol on each connection",
            more: "Versions 1 and 2 are accepted. larder closes connections that begin without it.",
            why: "Behind a TCP proxy the header has the client's address. Listen only where the \
                proxy connects: any other client could state a false address.",
            group: "Server",
            ..ON_OFF
        },
        Setting {
            name: "io",
            value_name: "WAY",
            kind: Kind::Choice(&["auto", "uring", "epoll"]),
            default: "auto",
            help: "Choose the kernel interface for sockets",
            more: "auto uses io_uring if the kernel offers and permits it. The first line of the \
                log has the choice and its reason.",
            ..SERVER
        },
        Setting {
            name: "listen-tls",
            value_name: "ADDR[:PORT]",
            kind: Kind::List,
            many: true,
            help: "Listen for TLS on these addresses (default port 443)",
            more: "Protocols are HTTP/2 and HTTP/1.1. Needs --tls-cert, --tls-key and a build \
                with the feature encrypted.",
            ..TLS
        },
        Setting { group: TLS.group, ..servers::TLS_CERT },
        Setting { group: TLS.group, ..servers::TLS_KEY },
        Setting {
            name: "http2-streams",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            help: "Limit concurrent requests per HTTP/2 connection",
            more: "A request counts as a connection for --clients-max while it is served.",
            why: "It takes about 100 kB.",
            default: "128",
            ..TLS
        },
        Setting {
            name: "origin",
            value_name: "URL",
            kind: Kind::List,
            many: true,
            default: "none",
            help: "Fetch objects from these origins in turn",
            more: "Origins are http://HOST[:PORT] or https://HOST[:PORT]; at least one is \
                required. https needs a build with the feature encrypted. larder resolves names \
                at the start and on a reload. It skips an unreachable origin for two seconds.",
            ..ORIGIN
        },
        Setting {
            name: "origin-ca",
            value_name: "FILE",
            kind: Kind::Word,
            default: "system",
            help: "Trust these CA certificates (PEM) for TLS origins",
            more: "system stands for the authorities of the system. The certificate must match \
                the host of the origin's URL.",
            why: "larder sends no request to an origin without a valid certificate.",
            is_live: false,
            ..ORIGIN
        },
        Setting {
            name: "health-check",
            value_name: "PATH",
            default: "none",
            help: "Check each origin with this path, and skip failed ones",
            more: "A check succeeds with a 2xx status within two seconds. An origin is down when \
                fewer than 3 of its last 8 checks succeeded.",
            why: "The rule is that of Varnish's probe.",
            ..ORIGIN
        },
        Setting {
            name: "health-interval",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 1, max: 3_600 },
            default: "5s",
            help: "Set the interval of health checks",
            why: "The default is that of Varnish.",
            ..ORIGIN
        },
        Setting {
            name: "origin-connections",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000 },
            default: "1000",
            help: "Limit the connections to an origin",
            more: "Above the limit requests wait for a free connection.",
            ..ORIGIN
        },
        Setting {
            name: "connect-timeout",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 1, max: 600 },
            default: "4s",
            help: "Limit the time to connect to an origin",
            more: "After it larder tries the next origin.",
            ..ORIGIN
        },
        Setting {
            name: "first-byte-timeout",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 1, max: 86_400 },
            default: "60s",
            help: "Limit the time until an origin sends response headers",
            more: "After it the client gets 504, or a stale response if that is allowed.",
            why: "The default is that of Varnish.",
            ..ORIGIN
        },
        Setting {
            name: "between-bytes-timeout",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 1, max: 86_400 },
            default: "60s",
            help: "Limit the time that an origin may pause within a body",
            more: "After it larder resets the readers of the body.",
            why: "The default is that of Varnish.",
            ..ORIGIN
        },
        Setting {
            name: "memory",
            value_name: "BYTES",
            kind: Kind::Bytes { min: 16 << 20, max: 1 << 44 },
            default: "256MiB",
            help: "Set the memory for cached and in-flight objects",
            why: "Connections take a few kilobytes each in addition.",
            is_live: false,
            ..CACHING
        },
        Setting {
            name: "memory-small",
            value_name: "PERCENT",
            kind: Kind::Count { min: 5, max: 90 },
            default: "25",
            help: "Set the share of memory for headers and inline bodies",
            more: "The value is a percentage of --memory. Inline bodies have at most --inline bytes.",
            why: "Set more if most objects are short.",
            is_live: false,
            ..CACHING
        },
        Setting {
            name: "inline",
            value_name: "BYTES",
            kind: Kind::Bytes { min: 0, max: 24 << 10 },
            default: "16KiB",
            help: "Store bodies up to this size next to their headers",
            why: "Responses with inline bodies take one copy. Longer bodies are sent from where \
                they are stored.",
            ..CACHING
        },
        Setting {
            name: "heuristic-percent",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 100 },
            default: "10",
            help: "Set heuristic freshness, in percent of the object's age",
            more: "It applies to responses without a stated lifetime. The age is the time since \
                Last-Modified.",
            why: "RFC 9111, section 4.2.2, suggests 10 %.",
            ..CACHING
        },
        Setting {
            name: "heuristic-max",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 0, max: 31_536_000 },
            default: "1d",
            help: "Limit heuristic freshness to this time",
            why: "A page that did not change for years may change today.",
            ..CACHING
        },
        Setting {
            name: "heuristic-cookies",
            help: "Use heuristic freshness for requests with Cookie, too",
            why: "Without it such a response is not shared, because it may be one client's own \
                page. larder stores it only with an ETag, and validates it for each use.",
            group: "Caching",
            ..ON_OFF
        },
        Setting {
            name: "stale-if-error",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 0, max: 31_536_000 },
            default: "0s",
            help: "Serve stale responses for this time if the origin fails",
            more: "It applies to responses that state nothing else (RFC 5861). larder obeys \
                responses that forbid it.",
            ..CACHING
        },
        Setting {
            name: "keep",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 0, max: 31_536_000 },
            default: "7d",
            help: "Cache stale objects for this time, for revalidation",
            more: "Eviction may remove them earlier.",
            ..CACHING
        },
        Setting {
            name: "keep-status",
            value_name: "STATUS=TIME",
            kind: Kind::List,
            many: true,
            default: "none",
            help: "Set freshness by status, such as 404=10s,5xx=1s",
            more: "It applies to responses without a stated lifetime. Cache-Control and Expires \
                take precedence. Responses that are private, set cookies or answer credentials \
                are not cached. A class such as 4xx excludes statuses of a single request, such \
                as 400 or 429.",
            why: "Clients repeat failed requests.",
            ..CACHING
        },
        Setting {
            name: "unshared",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 1, max: 86_400 },
            default: "120s",
            help: "Do not coalesce after an uncacheable response (hit-for-miss)",
            more: "The setting is the time after such a response. Requests with Authorization are \
                tracked separately.",
            why: "Requests for personal pages must not wait for one another.",
            ..CACHING
        },
        Setting {
            name: "abandoned",
            value_name: "finish|drop|BYTES",
            kind: Kind::Word,
            default: "64MiB",
            help: "Finish or drop cacheable bodies that have no reader",
            more: "BYTES finishes a body if at most that much is missing. larder finishes bodies \
                of unknown length, and drops bodies for a single client.",
            why: "Another client may request the object, but not each long video is worth the fetch.",
            ..CACHING
        },
        Setting {
            name: "window",
            value_name: "BYTES",
            kind: Kind::Bytes { min: 64 << 10, max: 1 << 30 },
            default: "1MiB",
            help: "Limit the buffer between the origin and one client",
            more: "It applies to responses for one client only. If many are streamed at once, \
                each has its share of a twentieth of the memory for bodies.",
            why: "It bounds the cost of a slow client, and less memory in use is also faster.",
            ..CACHING
        },
        Setting {
            name: "ignore-client-cache-control",
            help: "Ignore Cache-Control of requests",
            why: "Operators of a site often want that clients cannot force a fetch. Varnish does the same.",
            group: "Caching",
            ..ON_OFF
        },
        Setting {
            name: "no-cache-status",
            help: "Do not send the Cache-Status header (RFC 9211)",
            why: "The header states whether the cache served the response, and how long it stays fresh.",
            group: "Caching",
            ..ON_OFF
        },
        Setting {
            name: "clients-max",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000 },
            default: "10000",
            help: "Limit the connections of clients",
            more: "larder closes new connections above the limit. At the start it raises the soft \
                limit of open files to the hard limit. If that is too low, larder accepts fewer \
                clients and reports it: up to half of the files are reserved for origins.",
            is_live: false,
            ..LIMIT
        },
        Setting {
            name: "clients-per-address",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 1_000_000 },
            default: "0",
            help: "Limit the connections per client",
            more: "0 means no limit. A client is an IPv4 address or an IPv6 /64.",
            why: "One client cannot take all connections. Behind a proxy use --proxy-protocol, or \
                all clients count as one.",
            ..LIMIT
        },
        Setting {
            name: "body-max",
            value_name: "BYTES",
            kind: Kind::Bytes { min: 0, max: 1 << 50 },
            default: "0",
            help: "Limit the length of request bodies",
            more: "0 means no limit. Longer bodies get 413.",
            why: "Bodies are streamed through a bounded buffer, so their length costs no memory.",
            ..LIMIT
        },
        Setting {
            name: "client-hold",
            value_name: "BYTES",
            kind: Kind::Bytes { min: 64 << 10, max: 1 << 30 },
            default: "8MiB",
            help: "Limit the memory that one client holds while it reads",
            why: "A slow client must not prevent the eviction of a whole object.",
            ..LIMIT
        },
        Setting {
            name: "head-max",
            value_name: "BYTES",
            kind: Kind::Bytes { min: 1 << 10, max: 1 << 20 },
            default: "32KiB",
            help: "Limit the size of request and response headers",
            more: "Longer headers get 431 from clients, and 502 from origins.",
            ..LIMIT
        },
        Setting {
            name: "idle-timeout",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 1, max: 86_400 },
            default: "60s",
            help: "Close connections without a request after this time",
            why: "An idle connection takes a few kilobytes.",
            ..LIMIT
        },
        Setting {
            name: "head-timeout",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 1, max: 600 },
            default: "10s",
            help: "Limit the time to receive request headers",
            more: "The time begins with the first byte.",
            why: "It ends connections that send single bytes (slow loris).",
            ..LIMIT
        },
        Setting {
            name: "client-timeout",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 1, max: 86_400 },
            default: "60s",
            help: "Reset connections that make no progress for this time",
            more: "A client makes no progress if it neither reads its response nor sends its body.",
            ..LIMIT
        },
        Setting {
            name: "purge-from",
            value_name: "ADDR[/BITS]",
            kind: Kind::List,
            many: true,
            help: "Allow PURGE requests from these networks",
            more: "Other clients get 405. Tags are named by xkey-purge, Surrogate-Key or Cache-Tag.",
            why: "The rules are those of Varnish.",
            is_live: true,
            ..OPERATION
        },
        servers::CTL,
        servers::CTL_MODE,
        servers::METRICS,
        Setting {
            name: "snapshot",
            value_name: "FILE",
            help: "Save inline objects at the end, and load them at the start",
            more: "Long bodies are not saved. larder deletes the file after it loads it.",
            why: "The cache survives a restart. Purged objects cannot return after a crash.",
            ..OPERATION
        },
        Setting {
            name: "access-log",
            value_name: "FILE|-",
            help: "Write an access log to this file (- is standard output)",
            more: "SIGHUP and SIGUSR1 reopen the file after a rotation.",
            why: "If the disk is full or slow, larder drops and counts lines, and clients do not wait.",
            is_live: true,
            ..OPERATION
        },
        Setting {
            name: "access-log-format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["combined", "json"]),
            default: "combined",
            help: "Choose the format of the access log",
            more: "combined is the format of Apache and nginx. json has one object per line, with \
                durations and the cache status.",
            is_live: true,
            ..OPERATION
        },
        Setting {
            name: "access-log-size",
            value_name: "BYTES",
            kind: Kind::Bytes { min: 0, max: 1 << 40 },
            default: "256MiB",
            help: "Rotate the access log at this size",
            more: "0 disables it. The file is renamed to FILE.1.",
            why: "An unattended log must not fill the disk.",
            is_live: true,
            ..OPERATION
        },
        Setting {
            name: "access-log-keep",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 1_000 },
            default: "4",
            help: "Keep this many rotated access logs",
            more: "larder deletes older ones.",
            is_live: true,
            ..OPERATION
        },
    ],
};
