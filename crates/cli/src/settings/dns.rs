//! The rows of `larder dns`.

mod caching;
mod operation;
mod policy;
mod shadow;

use std::path::PathBuf;

use larder_settings::row::{List, Settings, Text};
use larder_settings::settings;
use larder_settings::table::{Command, Setting};

use super::servers;
pub use caching::Caching;
pub use operation::Operation;
pub use policy::Policy;
pub use shadow::Shadow;

const SERVER: Setting = Setting::lasting("Server");
const ENCRYPTED: Setting = Setting::lasting("Encrypted transports");
const UPSTREAM: Setting = Setting::lasting("Upstreams");
const RECURSION: Setting = Setting::lasting("Recursion");
const RUN: Setting = Setting::run("Options");

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
    settings: Dns::ROWS,
};

settings! {
    /// All settings of `larder dns`.
    pub struct Dns {
        pub serving: Serving,
        pub policy: Policy,
        pub caching: Caching,
        pub operation: Operation,
        pub shadow: Shadow,
    }
}

settings! {
    /// The server, its transports and its upstreams.
    pub struct Serving {
        pub listen: List = SERVER.list().many().default("127.0.0.1:53")
            .value("ADDR[:PORT]")
            .letter('l')
            .help("Listen on these addresses (default port 53)")
            .why("By default only this machine is served."),
        pub reuse_port: bool = servers::REUSE_PORT,
        pub listen_tls: List = ENCRYPTED.list().many().default("none")
            .value("ADDR[:PORT]")
            .help("Serve DNS over TLS on these addresses (default port 853)")
            .more("Needs --tls-cert, --tls-key and a build with the feature encrypted, as do \
                --listen-https and --listen-quic."),
        pub listen_https: List = ENCRYPTED.list().many().default("none")
            .value("ADDR[:PORT]")
            .help("Serve DNS over HTTPS on these addresses (default port 443)")
            .more("The server uses HTTP/2.")
            .why("Browsers send queries this way."),
        pub listen_quic: List = ENCRYPTED.list().many().default("none")
            .value("ADDR[:PORT]")
            .help("Serve DNS over QUIC on these addresses (default port 853)")
            .why("A client that moves or loses packets waits less than over TLS."),
        pub https_path: Text = ENCRYPTED.word().default("/dns-query")
            .value("PATH")
            .needs(&["listen-https"])
            .help("Serve DNS over HTTPS at this path")
            .more("Other paths get 404.")
            .why("Clients that are configured with a name only try this path."),
        pub tls_cert: Option<PathBuf> = servers::TLS_CERT
            .group("Encrypted transports")
            .needs(&["listen-tls", "listen-https", "listen-quic"]),
        pub tls_key: Option<PathBuf> = servers::TLS_KEY
            .group("Encrypted transports")
            .needs(&["listen-tls", "listen-https", "listen-quic"]),
        pub encrypted_max: usize = ENCRYPTED.count(1, 1_000_000).default("4096")
            .needs(&["listen-tls", "listen-https", "listen-quic"])
            .help("Limit the connections of clients over encrypted transports")
            .more("larder closes new connections above the limit.")
            .why("A connection takes about 30 kB and, except over QUIC, a file descriptor."),
        pub encrypted_per_client: u32 = ENCRYPTED.count(1, 1_000_000).default("64")
            .needs(&["listen-tls", "listen-https", "listen-quic"])
            .help("Limit the encrypted connections per client")
            .more("A client is an IPv4 address or an IPv6 /64.")
            .why("One client cannot take all connections."),
        pub xdp: List = SERVER.list().many().default("none")
            .value("INTERFACE")
            .help("Receive queries from these interfaces with AF_XDP")
            .more("Needs the feature xdp, CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW. Sockets serve the \
                other queries.")
            .why("AF_XDP serves more queries per second, but the firewall does not filter them."),
        pub xdp_fallback: bool = SERVER.switch().on()
            .needs(&["xdp"])
            .help("Serve with sockets if XDP is not available")
            .more("With false larder exits and reports the reason.")
            .why("A slower server still serves, and larder reports the fallback at the start."),
        pub upstream: List = UPSTREAM.list().many().default("system")
            .value("ADDR[:PORT]|URL")
            .letter('u')
            .help("Forward queries to these servers")
            .more("system stands for the nameservers of /etc/resolv.conf. URLs are tls://ADDR#NAME, \
                https://ADDR/dns-query#NAME and quic://ADDR#NAME; they need a build with the feature \
                encrypted."),
        pub upstream_ca: Option<PathBuf> = UPSTREAM.word().none("system")
            .value("FILE")
            .needs(&["upstream", "forward"])
            .help("Trust these CA certificates (PEM) for encrypted upstreams")
            .more("system stands for the authorities of the system. A file replaces them.")
            .why("Use a file for servers with a private CA."),
        pub forward: List = UPSTREAM.list().many().default("none")
            .value("ZONE=ADDR[:PORT]|URL")
            .help("Forward queries for names in a zone to this server")
            .more("The longest matching zone applies. Repeat a zone for several servers."),
        pub source: List = UPSTREAM.list().many().default("none")
            .value("ADDR")
            .help("Send queries from these addresses, one per family")
            .why("By default the system chooses the address."),
        pub timeout: u32 = UPSTREAM.seconds(1, 60).default("5s")
            .help("Give up a query after this time")
            .why("Clients retry after about the same time."),
        pub attempts: usize = UPSTREAM.count(1, 8).default("4")
            .help("Limit the attempts for one query over UDP")
            .why("larder waits for responses until the timeout, so more attempts would not help with \
                a slow upstream."),
        pub hedge: bool = UPSTREAM.switch()
            .help("Query a second upstream if the first is unusually slow")
            .more("larder sends the second query when the first exceeds its usual tail latency.")
            .why("The slowest responses arrive sooner, for a few more queries."),
        pub randomize_case: bool = UPSTREAM.switch()
            .help("Randomize the letter case of queries (0x20)")
            .more("larder accepts only responses that repeat the case.")
            .why("Forged responses are less likely to match. A few servers do not repeat the case, \
                and larder then queries them over TCP."),
        pub trust_ad: bool = UPSTREAM.switch()
            .help("Trust the AD bit of upstreams (validated response)")
            .why("Use it only on a path into which no third party can write (RFC 6840, section 5.8)."),
        pub recurse: bool = RECURSION.switch()
            .help("Resolve names from the root instead of forwarding")
            .more("It excludes --upstream; --forward still applies to its zones. To validate, larder \
                needs a build with the feature recurse.")
            .why("Use it where no recursive resolver is available."),
        pub dnssec: &'static str = RECURSION.choice(&["validate", "pass", "off"]).default("validate")
            .value("WHAT")
            .needs(&["recurse"])
            .help("Set how --recurse handles DNSSEC signatures")
            .more("validate checks them. pass sends them to clients that request them. off does without.")
            .why("Validation rejects forged data. pass is for clients that validate themselves."),
        pub root_hints: Option<PathBuf> = RECURSION.word().none("built-in")
            .value("FILE")
            .needs(&["recurse"])
            .help("Read the root servers from this zone file")
            .why("IANA's servers are built in; a private network may have others."),
        pub trust_anchor: Option<PathBuf> = RECURSION.word().none("built-in")
            .value("FILE")
            .needs(&["recurse"])
            .help("Read the trust anchors of the root from this file")
            .more("The file has DNSKEY records.")
            .why("IANA's keys of 2017 and 2024 are built in. larder does not follow their rollover (RFC 5011)."),
        pub server_allow: List = RECURSION.list().many().default("none")
            .value("NETWORK")
            .needs(&["recurse"])
            .help("Allow queries to name servers in these private networks")
            .why("By default larder queries only public addresses. Otherwise the owner of a domain \
                could make it send packets into its own network."),
        pub cores: usize = SERVER.cores().default("all")
            .value("N|all")
            .help("Set the number of threads, each with its own sockets")
            .why("The threads share only the cache."),
        pub cache: u64 = SERVER.bytes(1 << 20, 1 << 44).default("64MiB")
            .help("Set the memory of the cache, including all overhead")
            .why("A response takes about 150 to 250 bytes, so the default stores about 300,000."),
        pub udp_size: u16 = SERVER.count(512, 4_096).default("1232")
            .help("Limit the bytes of a UDP response, in both directions")
            .why("Longer responses may be fragmented, and fragments are lost and forged (RFC 9715)."),
        pub cache_only: bool = RUN.switch()
            .help("Respond only from the cache, and refuse other queries")
            .why("It measures the cache alone."),
        pub minimal: bool = SERVER.switch().on()
            .help("Omit authority and additional records that are optional")
            .why("Responses get shorter, and few clients use these records."),
    }
}
