//! The rows of `larder dns`.

mod caching;
mod operation;
mod policy;
mod shadow;

use larder_settings::table::{Command, Kind, ROW, Reach, SWITCH, Setting, joined};

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
    about: "Answer DNS from a cache, and ask other servers for the rest",
    long: "Answers questions of clients over UDP and TCP. What is held is answered from finished \
responses; the rest is asked from the upstreams, once for all who ask the same. It forwards: the servers it \
asks must recurse, and DNSSEC is passed through, not validated here. With --recurse it finds \
answers from the root on; to validate them, which is what it does unless --dnssec says otherwise, takes a build with the \
feature recurse.

Clients of local networks are served unless --access says otherwise. Files of --hosts, --local-data, --blocklist, \
--allowlist and --rpz are for all clients, or for those of some views: 'kids+guests:FILE'. SIGHUP and larder ctl reload read \
them and the configuration file anew and keep the cache; settings of the policy change while it runs, others are named as needing a \
restart.

It runs in the foreground until Ctrl-C, SIGTERM or larder ctl stop; then it answers what it has begun, for two \
seconds at most, saves the cache (--snapshot), and prints what it did. A second signal does not cut this short, except Ctrl-C a second or more after the first: it ends at once. It tells \
systemd when it answers and ends, and takes its sockets (socket activation) instead of --listen: with as many sockets \
of an address as cores, each core has one; else the first core has them all.

With --shadow it serves nobody: it takes a copy of a running resolver's traffic, answers the same questions to itself, and \
reports differences in answers and TTLs, times and hit ratio when the copy ends or at Ctrl-C. Sockets, --ctl, --metrics, \
--snapshot, --dnstap and --cores have no effect then. Exit status: 0 ended as asked; 2 usage, \
configuration, an address that cannot be had; 130 ended at once.

Examples:
  larder dns --listen 127.0.0.1:5353
  larder dns --listen 192.0.2.1,[2001:db8::1] --upstream 9.9.9.9,149.112.112.112
  larder dns --upstream 9.9.9.9 --forward corp.example=10.0.0.1,corp.example=10.0.0.2
  larder dns --hosts /etc/hosts --blocklist ads.txt --view 10.7.0.0/16=kids --blocklist kids:games.txt
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
        help: "Addresses to answer at; port 53 where none is given",
        why: "Only this machine is served unless told otherwise.",
        ..SERVER
    },
    Setting {
        name: "reuse-port",
        help: "Share the addresses with other processes of this user",
        why: "For a hand-over: start the new server with this, then stop the old one, which needs two --cores or this setting itself. \
Otherwise a second server at a taken address is refused.",
        group: "Server",
        ..ON_OFF
    },
    Setting {
        name: "listen-tls",
        value_name: "ADDR[:PORT]",
        kind: Kind::List,
        many: true,
        help: "Addresses to answer DNS over TLS at; port 853 where none is given",
        why: "Needs --tls-cert and --tls-key, and a build with the feature 'encrypted', as have the next two.",
        ..ENCRYPTED
    },
    Setting {
        name: "listen-https",
        value_name: "ADDR[:PORT]",
        kind: Kind::List,
        many: true,
        help: "Addresses to answer DNS over HTTPS at, by HTTP/2; port 443 where none is given",
        why: "Browsers ask so.",
        ..ENCRYPTED
    },
    Setting {
        name: "listen-quic",
        value_name: "ADDR[:PORT]",
        kind: Kind::List,
        many: true,
        help: "Addresses to answer DNS over QUIC at; UDP port 853 where none is given",
        why: "A client that moves or loses packets waits less than over TLS.",
        ..ENCRYPTED
    },
    Setting {
        name: "https-path",
        value_name: "PATH",
        kind: Kind::Word,
        default: "/dns-query",
        help: "The path that DNS over HTTPS is asked at; others are not found",
        why: "Clients that are told only a name try this one.",
        ..ENCRYPTED
    },
    Setting {
        name: "tls-cert",
        value_name: "FILE",
        kind: Kind::Word,
        help: "The certificate of encrypted transports, and those that it was issued by, in PEM",
        why: "SIGHUP reads it and the key anew; connections that stand are left alone.",
        ..ENCRYPTED
    },
    Setting {
        name: "tls-key",
        value_name: "FILE",
        kind: Kind::Word,
        help: "The private key of that certificate, in PEM",
        why: "Only the server's user should be able to read it.",
        ..ENCRYPTED
    },
    Setting {
        name: "encrypted-max",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "4096",
        help: "Connections of clients over encrypted transports",
        why: "Each takes some 30 kB, and a descriptor but over QUIC; beyond it new ones are closed.",
        ..ENCRYPTED
    },
    Setting {
        name: "encrypted-per-client",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "64",
        help: "Of those, connections of one client (an IPv4 address, a /64)",
        why: "So that one client cannot take them all.",
        ..ENCRYPTED
    },
    Setting {
        name: "xdp",
        value_name: "INTERFACE",
        kind: Kind::List,
        many: true,
        default: "none",
        help: "Take questions from these network interfaces by AF_XDP; sockets take the rest",
        why: "More answers a second; no firewall sees these questions. By feature xdp, with CAP_NET_ADMIN, CAP_BPF and \
              CAP_NET_RAW.",
        ..SERVER
    },
    Setting {
        name: "xdp-fallback",
        group: "Server",
        default: "true",
        help: "Serve by sockets where XDP cannot be had; false ends with the reason",
        why: "A server that is slower than it could be still serves; a line says so at the start.",
        ..ON_OFF
    },
    Setting {
        name: "upstream",
        letter: Some('u'),
        value_name: "ADDR[:PORT]|URL",
        kind: Kind::List,
        many: true,
        default: "system",
        help: "Servers to ask; 'system' stands for the nameservers of /etc/resolv.conf",
        why: "URLs are tls://ADDR#NAME, https://ADDR/dns-query#NAME and quic://ADDR#NAME, in a build with 'encrypted'.",
        ..UPSTREAM
    },
    Setting {
        name: "upstream-ca",
        value_name: "FILE",
        kind: Kind::Word,
        default: "system",
        help: "Who vouches for servers asked over TLS, HTTPS or QUIC: certificates in PEM, or 'system'",
        why: "A file counts instead of the system's authorities, for servers of one's own.",
        ..UPSTREAM
    },
    Setting {
        name: "forward",
        value_name: "ZONE=ADDR[:PORT]|URL",
        kind: Kind::List,
        many: true,
        default: "none",
        help: "Servers to ask for names in a zone; the longest zone counts",
        why: "Give a zone several times for several servers.",
        ..UPSTREAM
    },
    Setting {
        name: "source",
        value_name: "ADDR",
        kind: Kind::List,
        many: true,
        default: "none",
        help: "Addresses to ask from, one of each family",
        why: "The system chooses unless told otherwise.",
        ..UPSTREAM
    },
    Setting {
        name: "timeout",
        value_name: "TIME",
        kind: Kind::Seconds { min: 1, max: 60 },
        default: "5s",
        help: "Give a question up after this time",
        why: "Clients ask again after about as long.",
        ..UPSTREAM
    },
    Setting {
        name: "attempts",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 8 },
        default: "4",
        help: "Ask at most so often for one question, over UDP",
        why: "Answers are waited for until the timeout, so that a slow upstream is not asked for ever.",
        ..UPSTREAM
    },
    Setting {
        name: "hedge",
        group: "Upstreams",
        help: "Ask a second server where the first takes longer than it nearly always does",
        why: "The slowest answers come sooner, for a few questions more.",
        ..ON_OFF
    },
    Setting {
        name: "randomize-case",
        group: "Upstreams",
        help: "Send letters in random case and take answers only if they come back so (0x20)",
        why: "Makes forged answers harder; a few servers do not repeat the case, and are then asked over TCP.",
        ..ON_OFF
    },
    Setting {
        name: "trust-ad",
        group: "Upstreams",
        help: "Believe upstreams that say an answer was validated (AD)",
        why: "Only over a path that nobody else can write into (RFC 6840, section 5.8).",
        ..ON_OFF
    },
    Setting {
        name: "recurse",
        group: RECURSION.group,
        help: "Ask name servers from the root on, in the place of --upstream",
        why: "A forwarder needs somebody who recurses; this is for where there is nobody. To validate, the build needs the feature recurse.",
        ..ON_OFF
    },
    Setting {
        name: "dnssec",
        value_name: "WHAT",
        kind: Kind::Choice(&["validate", "pass", "off"]),
        default: "validate",
        help: "Validate signatures, pass them on to clients that ask, or do without",
        why: "What is forged must not be believed; pass is for clients that validate themselves.",
        ..RECURSION
    },
    Setting {
        name: "root-hints",
        value_name: "FILE",
        default: "built-in",
        help: "The root's servers, as a zone file",
        why: "IANA's are built in; a network of its own has others.",
        ..RECURSION
    },
    Setting {
        name: "trust-anchor",
        value_name: "FILE",
        default: "built-in",
        help: "Keys that the root is trusted by, as DNSKEY records",
        why: "IANA's of 2017 and 2024 are built in; they are not followed when they change (RFC 5011).",
        ..RECURSION
    },
    Setting {
        name: "server-allow",
        value_name: "NETWORK",
        kind: Kind::List,
        many: true,
        default: "none",
        help: "Networks whose name servers are asked although they are not public",
        why: "A domain's owner could else have this machine send packets into its own network.",
        ..RECURSION
    },
    Setting {
        name: "cores",
        value_name: "N|all",
        kind: Kind::Cores,
        default: "all",
        help: "Threads, each with sockets of its own",
        why: "Cores share nothing but the cache.",
        ..SERVER
    },
    Setting {
        name: "cache",
        value_name: "SIZE",
        kind: Kind::Bytes { min: 1 << 20, max: 1 << 44 },
        default: "64MiB",
        help: "Memory of the cache, everything counted",
        why: "An answer takes some 150 to 250 octets, so this holds about 300,000.",
        ..SERVER
    },
    Setting {
        name: "udp-size",
        value_name: "N",
        kind: Kind::Count { min: 512, max: 4_096 },
        default: "1232",
        help: "Octets of the longest answer over UDP, in both directions",
        why: "Longer ones may be fragmented on the way, and fragments get lost and forged (RFC 9715).",
        ..SERVER
    },
    Setting {
        name: "cache-only",
        help: "Answer only what is held, and refuse the rest",
        why: "For measuring what a cache by itself can do.",
        ..SWITCH
    },
    Setting {
        name: "minimal",
        group: "Server",
        default: "true",
        help: "Leave authority and additional records out of answers that need none",
        why: "Nobody asks for them, and answers get shorter.",
        ..ON_OFF
    },
];
