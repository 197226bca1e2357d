//! The rows of `larder dns`.

mod caching;
mod operation;
mod policy;
mod shadow;

use larder_settings::table::{Command, Kind, ROW, Reach, SWITCH, Setting, joined};

use super::servers;

const LASTING: Setting = Setting { reach: Reach::Lasting, ..ROW };
const SERVER: Setting = Setting { group: "Server", ..LASTING };
const UPSTREAM: Setting = Setting { group: "Upstreams", ..LASTING };
const RECURSION: Setting = Setting { group: "Recursion", ..LASTING };
const ENCRYPTED: Setting = Setting { group: "Encrypted transports", default: "none", ..LASTING };
const ON_OFF: Setting = Setting { reach: Reach::Lasting, ..SWITCH };

/// All rows, in the order of help.
const ROWS: [Setting;
    SERVING.len()
        + policy::ROWS.len()
        + caching::ROWS.len()
        + operation::ROWS.len()
        + shadow::ROWS.len()] =
    joined(&[&SERVING, &policy::ROWS, &caching::ROWS, &operation::ROWS, &shadow::ROWS]);

/// `larder dns`.
pub const DNS: Command = Command {
    path: &["dns"],
    about: "Serve DNS from a cache, and forward or recurse on a miss",
    long: "Serves clients over UDP and TCP, and by feature over TLS, HTTPS and QUIC. Cached responses are \
sent as they are stored. On a miss larder queries an upstream, once for all clients with the \
same query. It forwards by default: upstreams must recurse, and DNSSEC is passed through without \
validation. With --recurse larder resolves names from the root. It then validates unless \
--dnssec is set otherwise, which needs a build with the feature recurse.

Clients of local networks are served by default; see --access. Files of --hosts, --local-data, \
--blocklist, --allowlist and --rpz apply to all clients, or to those of some views: \
'kids+guests:FILE'. SIGHUP and larder ctl reload read these files and the configuration file \
again, and preserve the cache. Policy settings change while the server runs; larder names other \
changed settings as needing a restart.

The server runs in the foreground until Ctrl-C, SIGTERM or larder ctl stop. It then completes \
the queries in progress for at most two seconds, saves the cache (--snapshot), and prints a \
summary. A second signal has no effect, except Ctrl-C a second or more after the first: it ends \
the process at once. The server notifies systemd, and uses the sockets of socket activation \
instead of --listen. With as many sockets per address as cores, each core has one socket; \
otherwise the first core has all.

With --shadow it serves no clients: it reads a copy of a running resolver's traffic and resolves \
the same queries. At the end of the copy or at Ctrl-C it reports differences in responses, TTLs, \
times and hit ratio. Sockets, --ctl, --metrics, --snapshot, --dnstap and --cores have no effect \
then.

Exit status: 0 ended as requested; 2 usage or configuration error, or an address is not \
available; 130 ended at once.

Examples:
  larder dns --listen 127.0.0.1:5353
  larder dns --listen 192.0.2.1,[2001:db8::1] --upstream 9.9.9.9,149.112.112.112
  larder dns --upstream 9.9.9.9 --forward corp.example=10.0.0.1,corp.example=10.0.0.2
  larder dns --hosts /etc/hosts --blocklist ads.txt --view 10.7.0.0/16=kids --blocklist kids:games.txt
  mkdir -p /run/larder /var/cache/larder
  larder dns --ctl /run/larder/ctl --metrics 127.0.0.1:9953 --snapshot /var/cache/larder/dns
  tcpdump -i any -U -s 0 -w - port 53 | larder dns --shadow 192.0.2.1 --upstream 9.9.9.9",
    settings: &ROWS,
};

/// Rows of the server, its transports and its upstreams.
const SERVING: [Setting; 31] = [
    Setting {
        name: "listen",
        letter: Some('l'),
        value_name: "ADDR[:PORT]",
        kind: Kind::List,
        many: true,
        default: "127.0.0.1:53",
        help: "Listen on these addresses (default port 53)",
        why: "By default only this machine is served.",
        ..SERVER
    },
    servers::REUSE_PORT,
    Setting {
        name: "listen-tls",
        value_name: "ADDR[:PORT]",
        kind: Kind::List,
        many: true,
        help: "Serve DNS over TLS on these addresses (default port 853)",
        more: "Needs --tls-cert, --tls-key and a build with the feature encrypted, as do \
            --listen-https and --listen-quic.",
        ..ENCRYPTED
    },
    Setting {
        name: "listen-https",
        value_name: "ADDR[:PORT]",
        kind: Kind::List,
        many: true,
        help: "Serve DNS over HTTPS on these addresses (default port 443)",
        more: "The server uses HTTP/2.",
        why: "Browsers send queries this way.",
        ..ENCRYPTED
    },
    Setting {
        name: "listen-quic",
        value_name: "ADDR[:PORT]",
        kind: Kind::List,
        many: true,
        help: "Serve DNS over QUIC on these addresses (default port 853)",
        why: "A client that moves or loses packets waits less than over TLS.",
        ..ENCRYPTED
    },
    Setting {
        name: "https-path",
        value_name: "PATH",
        kind: Kind::Word,
        default: "/dns-query",
        help: "Serve DNS over HTTPS at this path",
        more: "Other paths get 404.",
        why: "Clients that are configured with a name only try this path.",
        ..ENCRYPTED
    },
    Setting { group: ENCRYPTED.group, ..servers::TLS_CERT },
    Setting { group: ENCRYPTED.group, ..servers::TLS_KEY },
    Setting {
        name: "encrypted-max",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "4096",
        help: "Limit the connections of clients over encrypted transports",
        more: "larder closes new connections above the limit.",
        why: "A connection takes about 30 kB and, except over QUIC, a file descriptor.",
        ..ENCRYPTED
    },
    Setting {
        name: "encrypted-per-client",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "64",
        help: "Limit the encrypted connections per client",
        more: "A client is an IPv4 address or an IPv6 /64.",
        why: "One client cannot take all connections.",
        ..ENCRYPTED
    },
    Setting {
        name: "xdp",
        value_name: "INTERFACE",
        kind: Kind::List,
        many: true,
        default: "none",
        help: "Receive queries from these interfaces with AF_XDP",
        more: "Needs the feature xdp, CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW. Sockets serve the \
            other queries.",
        why: "AF_XDP serves more queries per second, but the firewall does not filter them.",
        ..SERVER
    },
    Setting {
        name: "xdp-fallback",
        group: "Server",
        default: "true",
        help: "Serve with sockets if XDP is not available",
        more: "With false larder exits and reports the reason.",
        why: "A slower server still serves, and larder reports the fallback at the start.",
        ..ON_OFF
    },
    Setting {
        name: "upstream",
        letter: Some('u'),
        value_name: "ADDR[:PORT]|URL",
        kind: Kind::List,
        many: true,
        default: "system",
        help: "Forward queries to these servers",
        more: "system stands for the nameservers of /etc/resolv.conf. URLs are tls://ADDR#NAME, \
            https://ADDR/dns-query#NAME and quic://ADDR#NAME; they need a build with the feature \
            encrypted.",
        ..UPSTREAM
    },
    Setting {
        name: "upstream-ca",
        value_name: "FILE",
        kind: Kind::Word,
        default: "system",
        help: "Trust these CA certificates (PEM) for encrypted upstreams",
        more: "system stands for the authorities of the system. A file replaces them.",
        why: "Use a file for servers with a private CA.",
        ..UPSTREAM
    },
    Setting {
        name: "forward",
        value_name: "ZONE=ADDR[:PORT]|URL",
        kind: Kind::List,
        many: true,
        default: "none",
        help: "Forward queries for names in a zone to this server",
        more: "The longest matching zone applies. Repeat a zone for several servers.",
        ..UPSTREAM
    },
    Setting {
        name: "source",
        value_name: "ADDR",
        kind: Kind::List,
        many: true,
        default: "none",
        help: "Send queries from these addresses, one per family",
        why: "By default the system chooses the address.",
        ..UPSTREAM
    },
    Setting {
        name: "timeout",
        value_name: "SECONDS",
        kind: Kind::Seconds { min: 1, max: 60 },
        default: "5s",
        help: "Give up a query after this time",
        why: "Clients retry after about the same time.",
        ..UPSTREAM
    },
    Setting {
        name: "attempts",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 8 },
        default: "4",
        help: "Limit the attempts for one query over UDP",
        why: "larder waits for responses until the timeout, so more attempts would not help with \
            a slow upstream.",
        ..UPSTREAM
    },
    Setting {
        name: "hedge",
        group: "Upstreams",
        help: "Query a second upstream if the first is unusually slow",
        more: "larder sends the second query when the first exceeds its usual tail latency.",
        why: "The slowest responses arrive sooner, for a few more queries.",
        ..ON_OFF
    },
    Setting {
        name: "randomize-case",
        group: "Upstreams",
        help: "Randomize the letter case of queries (0x20)",
        more: "larder accepts only responses that repeat the case.",
        why: "Forged responses are less likely to match. A few servers do not repeat the case, \
            and larder then queries them over TCP.",
        ..ON_OFF
    },
    Setting {
        name: "trust-ad",
        group: "Upstreams",
        help: "Trust the AD bit of upstreams (validated response)",
        why: "Use it only on a path into which no third party can write (RFC 6840, section 5.8).",
        ..ON_OFF
    },
    Setting {
        name: "recurse",
        group: RECURSION.group,
        help: "Resolve names from the root instead of forwarding",
        more: "It excludes --upstream; --forward still applies to its zones. To validate, larder \
            needs a build with the feature recurse.",
        why: "Use it where no recursive resolver is available.",
        ..ON_OFF
    },
    Setting {
        name: "dnssec",
        value_name: "WHAT",
        kind: Kind::Choice(&["validate", "pass", "off"]),
        default: "validate",
        help: "Set how --recurse handles DNSSEC signatures",
        more: "validate checks them. pass sends them to clients that request them. off does without.",
        why: "Validation rejects forged data. pass is for clients that validate themselves.",
        ..RECURSION
    },
    Setting {
        name: "root-hints",
        value_name: "FILE",
        default: "built-in",
        help: "Read the root servers from this zone file",
        why: "IANA's servers are built in; a private network may have others.",
        ..RECURSION
    },
    Setting {
        name: "trust-anchor",
        value_name: "FILE",
        default: "built-in",
        help: "Read the trust anchors of the root from this file",
        more: "The file has DNSKEY records.",
        why: "IANA's keys of 2017 and 2024 are built in. larder does not follow their rollover (RFC 5011).",
        ..RECURSION
    },
    Setting {
        name: "server-allow",
        value_name: "NETWORK",
        kind: Kind::List,
        many: true,
        default: "none",
        help: "Allow queries to name servers in these private networks",
        why: "By default larder queries only public addresses. Otherwise the owner of a domain \
            could make it send packets into its own network.",
        ..RECURSION
    },
    Setting {
        name: "cores",
        value_name: "N|all",
        kind: Kind::Cores,
        default: "all",
        help: "Set the number of threads, each with its own sockets",
        why: "The threads share only the cache.",
        ..SERVER
    },
    Setting {
        name: "cache",
        value_name: "BYTES",
        kind: Kind::Bytes { min: 1 << 20, max: 1 << 44 },
        default: "64MiB",
        help: "Set the memory of the cache, including all overhead",
        why: "A response takes about 150 to 250 bytes, so the default stores about 300,000.",
        ..SERVER
    },
    Setting {
        name: "udp-size",
        value_name: "N",
        kind: Kind::Count { min: 512, max: 4_096 },
        default: "1232",
        help: "Limit the bytes of a UDP response, in both directions",
        why: "Longer responses may be fragmented, and fragments are lost and forged (RFC 9715).",
        ..SERVER
    },
    Setting {
        name: "cache-only",
        help: "Respond only from the cache, and refuse other queries",
        why: "It measures the cache alone.",
        ..SWITCH
    },
    Setting {
        name: "minimal",
        group: "Server",
        default: "true",
        help: "Omit authority and additional records that are optional",
        why: "Responses get shorter, and few clients use these records.",
        ..ON_OFF
    },
];
