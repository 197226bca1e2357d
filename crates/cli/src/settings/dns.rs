//! The rows of `larder dns`.

use larder_settings::table::{Command, Kind, ROW, Reach, SWITCH, Setting};

const LASTING: Setting = Setting { reach: Reach::Lasting, ..ROW };
const SERVER: Setting = Setting { group: "Server", ..LASTING };
const UPSTREAM: Setting = Setting { group: "Upstreams", ..LASTING };
const RECURSION: Setting = Setting { group: "Recursion", ..LASTING };
const LIFE: Setting = Setting { group: "Life of an answer", ..LASTING };
const LIMIT: Setting = Setting { group: "Limits", ..LASTING };
const POLICY: Setting = Setting { group: "Policy", is_live: true, ..LASTING };
const POLICY_LIST: Setting = Setting { kind: Kind::List, many: true, default: "none", ..POLICY };
const ENCRYPTED: Setting = Setting { group: "Encrypted transports", default: "none", ..LASTING };
const OPERATION: Setting = Setting { group: "Operation", default: "none", ..LASTING };
const TRIAL: Setting = Setting { group: "Trial", ..ROW };
const ON_OFF: Setting = Setting { reach: Reach::Lasting, ..SWITCH };

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
    settings: &[
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
        Setting {
            name: "access",
            value_name: "NETWORK=ACTION",
            help: "Whom to serve: allow, refuse or drop questions of a network; the longest network counts",
            why: "Local networks only unless told otherwise; a resolver for all the world floods others.",
            ..POLICY_LIST
        },
        Setting {
            name: "view",
            value_name: "NETWORK=VIEW",
            help: "Put clients of a network into a view; the longest network counts, the others are in 'default'",
            why: "Lists and local data may be for some views only, as in kids+guests:FILE.",
            ..POLICY_LIST
        },
        Setting {
            name: "hosts",
            value_name: "[VIEWS:]FILE",
            help: "Files of addresses and names, as /etc/hosts, to answer from",
            why: "Names are answered in both directions.",
            ..POLICY_LIST
        },
        Setting {
            name: "local-data",
            value_name: "[VIEWS:]FILE",
            help: "Files of lines 'NAME TTL TYPE DATA' or 'zone NAME ACTION', to answer from",
            why: "An action is static, transparent, redirect, refuse or nxdomain; # begins a comment.",
            ..POLICY_LIST
        },
        Setting {
            name: "blocklist",
            value_name: "[VIEWS:]FILE",
            help: "Files of domains that are blocked with all below them",
            why: "Domains, hosts files of 0.0.0.0 and rules ||domain^ are read; other lines are skipped and counted.",
            ..POLICY_LIST
        },
        Setting {
            name: "block-answer",
            value_name: "ANSWER",
            kind: Kind::Choice(&["nxdomain", "zero", "refused"]),
            default: "nxdomain",
            help: "What to say of blocked names: that they do not exist, the addresses 0.0.0.0 and ::, or REFUSED",
            why: "Some programs ask another resolver after REFUSED.",
            ..POLICY
        },
        Setting {
            name: "block-reason",
            value_name: "REASON",
            kind: Kind::Choice(&["blocked", "filtered"]),
            default: "blocked",
            help: "Who wants names blocked: the operator, or those who ask (RFC 8914)",
            why: "Clients that understand it tell their users.",
            ..POLICY
        },
        Setting {
            name: "allowlist",
            value_name: "[VIEWS:]FILE",
            help: "Files of domains that no blocklist and no policy zone counts for",
            why: "For what a list of others blocks in error.",
            ..POLICY_LIST
        },
        Setting {
            name: "rpz",
            value_name: "[VIEWS:]ORIGIN=FILE",
            help: "Response policy zones, as zone files, by the name of their zone",
            why: "Rules for names asked are followed, in the order of the zones; others are skipped and counted.",
            ..POLICY_LIST
        },
        Setting {
            name: "version-text",
            value_name: "TEXT",
            kind: Kind::Word,
            default: "none",
            help: "What to answer to version.bind of class CHAOS; it is refused without",
            why: "Nobody needs to know, but who counts servers of his own.",
            ..POLICY
        },
        Setting {
            name: "id-text",
            value_name: "TEXT",
            kind: Kind::Word,
            default: "none",
            help: "What to answer to id.server of class CHAOS (RFC 4892); it is refused without",
            why: "Tells servers behind one address apart.",
            ..POLICY
        },
        Setting {
            name: "ttl-min",
            value_name: "TIME",
            kind: Kind::Seconds { min: 0, max: 3_600 },
            default: "0s",
            help: "Hold answers at least this long",
            why: "What says 0 is never held; more than some seconds breaks names that move.",
            ..LIFE
        },
        Setting {
            name: "ttl-max",
            value_name: "TIME",
            kind: Kind::Seconds { min: 1, max: 604_800 },
            default: "86400s",
            help: "Hold answers at most this long",
            why: "As unbound does; RFC 8767 recommends a week at most.",
            ..LIFE
        },
        Setting {
            name: "negative-ttl-max",
            value_name: "TIME",
            kind: Kind::Seconds { min: 1, max: 86_400 },
            default: "3600s",
            help: "Hold answers that there is nothing at most this long",
            why: "As unbound does; RFC 2308 recommends three hours at most.",
            ..LIFE
        },
        Setting {
            name: "failure-ttl",
            value_name: "TIME",
            kind: Kind::Seconds { min: 1, max: 300 },
            default: "5s",
            help: "Do not ask again so soon after no upstream could answer",
            why: "RFC 9520 wants from 1 s to 5 minutes.",
            ..LIFE
        },
        Setting {
            name: "stale",
            value_name: "TIME",
            kind: Kind::Seconds { min: 0, max: 604_800 },
            default: "86400s",
            help: "Serve answers this long past their end where no upstream answers; 0 never",
            why: "RFC 8767 recommends one to three days; a fresh answer is always tried first.",
            ..LIFE
        },
        Setting {
            name: "nxdomain-cut",
            value_name: "WHEN",
            kind: Kind::Choice(&["validated", "always", "never"]),
            default: "validated",
            help: "When a name that does not exist answers for all names below it (RFC 8020)",
            why: "There are servers that deny names with others below; validated needs --trust-ad.",
            ..LIFE
        },
        Setting {
            name: "prefetch",
            value_name: "PERCENT",
            kind: Kind::Count { min: 0, max: 50 },
            default: "10",
            help: "Fetch an answer anew when it is asked for in this last part of its life; 0 never",
            why: "What is asked often never has to be waited for.",
            ..LIFE
        },
        Setting {
            name: "cookies",
            group: "Limits",
            default: "true",
            help: "Give clients cookies, and do not limit those that show one (RFC 7873)",
            why: "Who shows one has received an answer at its address, so it is not forged.",
            ..ON_OFF
        },
        Setting {
            name: "cookie-secret",
            value_name: "HEX",
            kind: Kind::Word,
            default: "random",
            help: "32 hexadecimal digits that cookies are made with, or 'random'",
            why: "Servers behind one address need the same; keep it in the file, as others see a command line.",
            ..LIMIT
        },
        Setting {
            name: "rate-limit",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 1_000_000 },
            default: "0",
            help: "Answers a second over UDP for a client's network (/24, /56), for each core; 0 no limit",
            why: "For servers that the world can reach; who shows a cookie or comes by TCP is not limited.",
            ..LIMIT
        },
        Setting {
            name: "rate-limit-slip",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 100 },
            default: "2",
            help: "Send every so manieth answer above the limit empty and truncated; 0 none",
            why: "Who is honest then comes by TCP, and who forges addresses sends nothing larger than it sent.",
            ..LIMIT
        },
        Setting {
            name: "streams-max",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000 },
            default: "1024",
            help: "TCP connections of clients, for each core",
            why: "Beyond it the one that is idle for longest is closed.",
            ..LIMIT
        },
        Setting {
            name: "streams-per-client",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000 },
            default: "64",
            help: "TCP connections of one client (an IPv4 address, a /64), for each core",
            why: "So that one client cannot take them all.",
            ..LIMIT
        },
        Setting {
            name: "questions-max",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000 },
            default: "10000",
            help: "Questions in flight, for each core",
            why: "Beyond it clients get what is held past its end, or SERVFAIL.",
            ..LIMIT
        },
        Setting {
            name: "waiters-max",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 10_000_000 },
            default: "30000",
            help: "Clients that wait for answers, for each core",
            why: "Each takes about 600 octets.",
            ..LIMIT
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
            help: "Save the cache to this file at the end, and load it at the start",
            why: "A restart then costs no answers; whoever kills it leaves the older file whole.",
            ..OPERATION
        },
        Setting {
            name: "snapshot-every",
            value_name: "TIME",
            kind: Kind::Seconds { min: 0, max: 86_400 },
            default: "900s",
            help: "Also save it so often; 0: at the end only",
            why: "What a crash may cost; a save takes a second a million answers or so, beside the service.",
            ..OPERATION
        },
        Setting {
            name: "dnstap",
            value_name: "FILE|unix:PATH",
            help: "Write all messages of clients and upstreams as dnstap, to a file or a collector's socket",
            why: "Costs a copy of each message. SIGHUP and SIGUSR1 begin the file anew, after a rotation.",
            ..OPERATION
        },
        Setting {
            name: "query-log",
            value_name: "FILE",
            help: "Write a line for each answer to a client, or for one in so many",
            why: "Time, client, question, code, size, where it came from. SIGHUP and SIGUSR1 open the file anew, after a rotation.",
            ..OPERATION
        },
        Setting {
            name: "query-log-format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["text", "json"]),
            default: "text",
            help: "Lines of words, or a JSON object a line",
            why: "Words are for eyes and awk, JSON is for collectors.",
            ..OPERATION
        },
        Setting {
            name: "query-log-sample",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000 },
            default: "1",
            help: "Log one answer in so many, drawn at random",
            why: "A line costs about a microsecond of a core; one in a hundred costs nothing that is seen.",
            ..OPERATION
        },
        Setting {
            name: "query-log-prefix",
            value_name: "BITS[/BITS]",
            help: "Log only so many bits of clients' addresses, of IPv4 and of IPv6 (56), and no port",
            why: "Who asked what is personal: 24 tells networks apart, and nobody in them.",
            ..OPERATION
        },
        Setting {
            name: "query-log-size",
            value_name: "SIZE",
            kind: Kind::Bytes { min: 0, max: 1 << 40 },
            default: "256MiB",
            help: "Rename the file to FILE.1 when it has so many octets, and begin another; 0 never",
            why: "A log that nobody looks after must not fill the disk.",
            ..OPERATION
        },
        Setting {
            name: "query-log-keep",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 1_000 },
            default: "4",
            help: "Files kept so beside the one that is written",
            why: "The oldest beyond them is deleted.",
            ..OPERATION
        },
        Setting {
            name: "shadow",
            value_name: "ADDR[:PORT]",
            kind: Kind::List,
            many: true,
            default: "none",
            help: "Serve nobody: answer the questions of this running resolver to itself, and compare",
            why: "Its addresses as clients know them; 0.0.0.0 stands for all.",
            ..TRIAL
        },
        Setting {
            name: "shadow-from",
            value_name: "FILE|-|unix:PATH|dnstap:FILE",
            default: "-",
            help: "The copy of its traffic: a capture (- is a pipe), dnstap from a file, or from a socket to be made",
            why: "tcpdump writes the one, resolvers the other; dnstap also has TCP and what the resolver asks.",
            ..TRIAL
        },
        Setting {
            name: "shadow-speed",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 1_000 },
            default: "0",
            help: "Replay a file so many times as fast as it was taken; 0 as fast as can be",
            why: "At 1 TTLs run as they did then.",
            ..TRIAL
        },
        Setting {
            name: "shadow-warmup",
            value_name: "TIME",
            kind: Kind::Seconds { min: 0, max: 604_800 },
            default: "0s",
            help: "Answer the first questions without counting them",
            why: "The resolver has run for long, and larder begins with nothing.",
            ..TRIAL
        },
        Setting {
            name: "shadow-hit-us",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 10_000_000 },
            default: "1000",
            help: "Answers faster than so many microseconds count as the resolver's hits",
            why: "For captures; dnstap tells what it asked others, if it is told to.",
            ..TRIAL
        },
        Setting {
            name: "json",
            group: "Trial",
            help: "Report as JSON",
            why: "One object; times in microseconds, shares from 0 to 1.",
            ..SWITCH
        },
    ],
};
