//! The rows of `larder http`.

use larder_settings::table::{Command, Kind, ROW, Reach, SWITCH, Setting};

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
    about: "Cache and stream HTTP objects before an origin",
    long: "Answers HTTP/1.1 requests from memory where RFC 9111 allows it, and asks the origins for the rest: once for all who \
want the same, and each gets the body while it comes. Ranges and conditions are answered from what is kept, also while it \
comes. What may not be shared passes through a window of memory, however long it is.

Clients are served by a few loops, one a core, and none has a thread. Memory for what is kept is fixed at the start; what was not \
asked for leaves first. An origin that dies in a body resets the connections of those who read it: nobody takes a part for the \
whole, and nothing half is kept.

It runs in the foreground until Ctrl-C, SIGTERM or larder ctl stop; then it takes no new connections, finishes what it has begun, for ten \
seconds at most, saves what is kept (--snapshot), and prints what it did. A second signal does not cut this short, except Ctrl-C a second or more after the first: it ends at once. SIGHUP and larder ctl reload read the configuration \
file anew, and larder http goes on with what it says without a connection that ends by it; what needs a restart is told. SIGUSR1 begins the file of \
the access log anew. Exit status: 0 ended as asked; 2 usage, configuration, \
an address that cannot be had; 130 ended at once.

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
            help: "Addresses to serve at; port 80 where none is given",
            why: "Only this machine is served unless told otherwise.",
            ..SERVER
        },
        Setting {
            name: "reuse-port",
            help: "Share the addresses with other processes of this user",
            why: "For a hand-over: start the new server with this, then stop the old one, which needs two --cores or this setting itself. \
Otherwise a second server at a taken address is refused.",
            group: "Server",
            is_live: false,
            ..ON_OFF
        },
        Setting {
            name: "cores",
            value_name: "N|all",
            kind: Kind::Cores,
            default: "all",
            help: "Loops, each with sockets and connections of its own; 64 at most",
            why: "Loops share nothing but what is kept.",
            ..SERVER
        },
        Setting {
            name: "proxy-protocol",
            help: "Each connection begins with the PROXY protocol, version 1 or 2, and who does not say it is closed",
            why: "Behind a proxy of TCP this says who the client is. Anybody who can connect can then say to be anyone: listen where \
only the proxy reaches.",
            group: "Server",
            ..ON_OFF
        },
        Setting {
            name: "io",
            value_name: "WAY",
            kind: Kind::Choice(&["auto", "uring", "epoll"]),
            default: "auto",
            help: "How to talk to the kernel",
            why: "io_uring where the kernel has it and lets us; the first line of the log says which it is, and why.",
            ..SERVER
        },
        Setting {
            name: "listen-tls",
            value_name: "ADDR[:PORT]",
            kind: Kind::List,
            many: true,
            help: "Addresses to serve at over TLS, by HTTP/2 and HTTP/1.1; port 443 where none is given",
            why: "Needs --tls-cert and --tls-key, and a build with the feature 'encrypted'.",
            ..TLS
        },
        Setting {
            name: "tls-cert",
            value_name: "FILE",
            kind: Kind::Word,
            help: "The certificate for that, and those that it was issued by, in PEM",
            why: "SIGHUP reads it and the key anew; connections that stand are left alone.",
            ..TLS
        },
        Setting {
            name: "tls-key",
            value_name: "FILE",
            kind: Kind::Word,
            help: "The private key of that certificate, in PEM",
            why: "Only the server's user should be able to read it.",
            ..TLS
        },
        Setting {
            name: "http2-streams",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            help: "Requests at once on a connection of HTTP/2",
            why: "Each counts as a connection for --clients-max while it is answered, and takes some 100 kB.",
            default: "128",
            ..TLS
        },
        Setting {
            name: "origin",
            value_name: "URL",
            kind: Kind::List,
            many: true,
            default: "none",
            help: "Origins that are asked in turn: http://HOST[:PORT] or https://HOST[:PORT]; there must be one",
            why: "Names are looked up at the start and by a reload; https needs a build with the feature 'encrypted'. An origin that cannot be reached is passed over for two seconds.",
            ..ORIGIN
        },
        Setting {
            name: "origin-ca",
            value_name: "FILE",
            kind: Kind::Word,
            default: "system",
            help: "Who vouches for origins over TLS: certificates in PEM, or 'system'",
            why: "The certificate must be for the host of the origin's URL; one that does not prove itself is not asked.",
            is_live: false,
            ..ORIGIN
        },
        Setting {
            name: "health-check",
            value_name: "PATH",
            default: "none",
            help: "Ask each origin for this path now and then, and pass over those that fail",
            why: "As Varnish's probe: it is down when fewer than 3 of the last 8 checks succeeded, a status of 2xx within two seconds.",
            ..ORIGIN
        },
        Setting {
            name: "health-interval",
            value_name: "TIME",
            kind: Kind::Seconds { min: 1, max: 3_600 },
            default: "5s",
            help: "How often it is asked",
            why: "As Varnish has it.",
            ..ORIGIN
        },
        Setting {
            name: "origin-connections",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000 },
            default: "1000",
            help: "Connections to an origin",
            why: "Beyond it requests wait for one that is free.",
            ..ORIGIN
        },
        Setting {
            name: "connect-timeout",
            value_name: "TIME",
            kind: Kind::Seconds { min: 1, max: 600 },
            default: "4s",
            help: "How long a connection to an origin may take",
            why: "After it the next origin is tried.",
            ..ORIGIN
        },
        Setting {
            name: "first-byte-timeout",
            value_name: "TIME",
            kind: Kind::Seconds { min: 1, max: 86_400 },
            default: "60s",
            help: "How long an origin may take for the head of its answer",
            why: "As Varnish has it. After it the client gets 504, or what is stale if it may.",
            ..ORIGIN
        },
        Setting {
            name: "between-bytes-timeout",
            value_name: "TIME",
            kind: Kind::Seconds { min: 1, max: 86_400 },
            default: "60s",
            help: "How long an origin may send nothing of a body",
            why: "As Varnish has it. After it those who read the body are reset.",
            ..ORIGIN
        },
        Setting {
            name: "memory",
            value_name: "SIZE",
            kind: Kind::Bytes { min: 16 << 20, max: 1 << 44 },
            default: "256MiB",
            help: "Memory for what is kept and what is on its way",
            why: "Connections take some kilobytes each beside it.",
            is_live: false,
            ..CACHING
        },
        Setting {
            name: "memory-small",
            value_name: "PERCENT",
            kind: Kind::Count { min: 5, max: 90 },
            default: "25",
            help: "Of it the share for heads, and for bodies up to --inline octets",
            why: "More, where most objects are short.",
            is_live: false,
            ..CACHING
        },
        Setting {
            name: "inline",
            value_name: "SIZE",
            kind: Kind::Bytes { min: 0, max: 24 << 10 },
            default: "16KiB",
            help: "Longest body that is kept beside its head, and answered with one copy",
            why: "Longer ones are sent from where they lie.",
            ..CACHING
        },
        Setting {
            name: "heuristic-percent",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 100 },
            default: "10",
            help: "Of the time since its last change, the share for which a response is fresh that does not say",
            why: "RFC 9111, section 4.2.2, suggests a tenth.",
            ..CACHING
        },
        Setting {
            name: "heuristic-max",
            value_name: "TIME",
            kind: Kind::Seconds { min: 0, max: 31_536_000 },
            default: "1d",
            help: "That time at most",
            why: "A page that was not changed for years may be today.",
            ..CACHING
        },
        Setting {
            name: "heuristic-cookies",
            help: "Guess freshness also where the request has a Cookie",
            why: "Without it, a response to such a request that states no lifetime is not shared: it may be one client's own page. larder \
stores it only if it has an ETag, and validates it for each use.",
            group: "Caching",
            ..ON_OFF
        },
        Setting {
            name: "stale-if-error",
            value_name: "TIME",
            kind: Kind::Seconds { min: 0, max: 31_536_000 },
            default: "0s",
            help: "How long what is stale is given while the origin fails, where a response does not say",
            why: "RFC 5861; responses that forbid it are obeyed.",
            ..CACHING
        },
        Setting {
            name: "keep",
            value_name: "TIME",
            kind: Kind::Seconds { min: 0, max: 31_536_000 },
            default: "7d",
            help: "How long what is stale is kept, so that the origin can be asked whether it has changed",
            why: "What memory is wanted for leaves before.",
            ..CACHING
        },
        Setting {
            name: "keep-status",
            value_name: "STATUS=TIME",
            kind: Kind::List,
            many: true,
            default: "none",
            help: "How long a response is fresh that says nothing of it, by status: 404=10s,5xx=1s",
            why: "What fails is asked for again and again. Who says Cache-Control or Expires is obeyed, and what is private, has cookies or \
answers credentials is not kept. A hundred leaves out what tells of one request, as 400 or 429.",
            ..CACHING
        },
        Setting {
            name: "unshared",
            value_name: "TIME",
            kind: Kind::Seconds { min: 1, max: 86_400 },
            default: "120s",
            help: "How long nobody waits for others, after an answer that could not be shared",
            why: "Varnish's hit-for-miss: requests for one's own pages must not queue up. Requests with Authorization are noted apart.",
            ..CACHING
        },
        Setting {
            name: "abandoned",
            value_name: "finish|drop|SIZE",
            kind: Kind::Word,
            default: "64MiB",
            help: "What becomes of a body that may be kept when nobody reads it any more: finished, broken off, or finished if no more is left",
            why: "The next one wants it; yet not for every long film of which somebody saw the first scene. A body of unknown length is \
finished. What is one client's own is broken off whenever that one leaves.",
            ..CACHING
        },
        Setting {
            name: "window",
            value_name: "SIZE",
            kind: Kind::Bytes { min: 64 << 10, max: 1 << 30 },
            default: "1MiB",
            help: "How far an answer for one client may be ahead of that client",
            why: "It bounds what a slow client costs; less memory in use is also faster. Where many answers pass at once, each has its share of a twentieth of the bodies' memory.",
            ..CACHING
        },
        Setting {
            name: "ignore-client-cache-control",
            help: "Let no client ask for newer than what is kept",
            why: "Whoever runs a cache before a site often wants that; Varnish does it.",
            group: "Caching",
            ..ON_OFF
        },
        Setting {
            name: "no-cache-status",
            help: "Do not say Cache-Status",
            why: "RFC 9211: it tells whoever looks whether the cache answered, and for how long it may.",
            group: "Caching",
            ..ON_OFF
        },
        Setting {
            name: "clients-max",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000 },
            default: "10000",
            help: "Connections of clients",
            why: "Beyond it new ones are closed. At the start larder raises the soft limit of open files to the hard one. Where that is too \
low, clients get fewer connections, so that up to half of the open files are left for origins, and larder writes a line.",
            is_live: false,
            ..LIMIT
        },
        Setting {
            name: "clients-per-address",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 1_000_000 },
            default: "0",
            help: "Of them an address may have so many, or 64 bits of an address of IPv6; 0: any number",
            why: "One client must not take all. Behind a proxy: with --proxy-protocol, or all are one.",
            ..LIMIT
        },
        Setting {
            name: "body-max",
            value_name: "SIZE",
            kind: Kind::Bytes { min: 0, max: 1 << 50 },
            default: "0",
            help: "Longest body of a request; 0: any length",
            why: "Longer ones are answered with 413. Bodies pass through a window of memory, so length costs none.",
            ..LIMIT
        },
        Setting {
            name: "client-hold",
            value_name: "SIZE",
            kind: Kind::Bytes { min: 64 << 10, max: 1 << 30 },
            default: "8MiB",
            help: "Octets of a body that one client may hold while it takes them",
            why: "A slow client must not keep a whole object from leaving.",
            ..LIMIT
        },
        Setting {
            name: "head-max",
            value_name: "SIZE",
            kind: Kind::Bytes { min: 1 << 10, max: 1 << 20 },
            default: "32KiB",
            help: "Longest head of a request or response",
            why: "Longer ones are answered with 431, or 502.",
            ..LIMIT
        },
        Setting {
            name: "idle-timeout",
            value_name: "TIME",
            kind: Kind::Seconds { min: 1, max: 86_400 },
            default: "60s",
            help: "How long a connection may be without a request",
            why: "A connection costs some kilobytes.",
            ..LIMIT
        },
        Setting {
            name: "head-timeout",
            value_name: "TIME",
            kind: Kind::Seconds { min: 1, max: 600 },
            default: "10s",
            help: "How long the head of a request may take, from its first octet on",
            why: "It ends those who send an octet at a time (slow loris).",
            ..LIMIT
        },
        Setting {
            name: "client-timeout",
            value_name: "TIME",
            kind: Kind::Seconds { min: 1, max: 86_400 },
            default: "60s",
            help: "How long a client may take nothing of its answer, or send nothing of its body",
            why: "Then its connection is reset.",
            ..LIMIT
        },
        Setting {
            name: "purge-from",
            value_name: "ADDR[/BITS]",
            kind: Kind::List,
            many: true,
            help: "Networks whose clients may ask for a PURGE of a URL or of tags",
            why: "As Varnish has it; others are told 405. Tags are named by xkey-purge, Surrogate-Key or Cache-Tag.",
            is_live: true,
            ..OPERATION
        },
        Setting {
            name: "ctl",
            value_name: "PATH",
            help: "The Unix socket for larder ctl",
            why: "larder ctl asks at /run/larder/ctl unless told otherwise; its directory must be there.",
            ..OPERATION
        },
        Setting {
            name: "ctl-mode",
            value_name: "OCTAL",
            default: "0600",
            help: "File mode of that socket",
            why: "The file system says who may ask: 0660 lets the group ask too.",
            ..OPERATION
        },
        Setting {
            name: "metrics",
            value_name: "ADDR:PORT",
            help: "Where Prometheus gets metrics, at /metrics over HTTP",
            why: "There is no password: listen where only those reach who may know.",
            ..OPERATION
        },
        Setting {
            name: "snapshot",
            value_name: "FILE",
            help: "Save what is kept beside its head to this file at the end, and load it at the start",
            why: "A restart then begins warm. Long bodies are not saved. The file is removed when it has been loaded, so that nothing that \
was purged comes back after a crash.",
            ..OPERATION
        },
        Setting {
            name: "access-log",
            value_name: "FILE|-",
            help: "Write a line for each exchange to a file, or to standard output",
            why: "A disk that is full or slow costs lines, which are counted, and no client waits. SIGHUP and SIGUSR1 open the file anew, after \
a rotation.",
            is_live: true,
            ..OPERATION
        },
        Setting {
            name: "access-log-format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["combined", "json"]),
            default: "combined",
            help: "Lines as Apache and nginx write them, or a JSON object a line",
            why: "JSON also has the time it took, what the cache did, and how long the origin took.",
            is_live: true,
            ..OPERATION
        },
        Setting {
            name: "access-log-size",
            value_name: "SIZE",
            kind: Kind::Bytes { min: 0, max: 1 << 40 },
            default: "256MiB",
            help: "Rename the file to FILE.1 when it has so many octets, and begin another; 0 never",
            why: "A log that nobody looks after must not fill the disk.",
            is_live: true,
            ..OPERATION
        },
        Setting {
            name: "access-log-keep",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 1_000 },
            default: "4",
            help: "Files kept so beside the one that is written",
            why: "The oldest beyond them is deleted.",
            is_live: true,
            ..OPERATION
        },
    ],
};
