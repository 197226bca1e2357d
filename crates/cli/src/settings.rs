//! The one table: every command, and one row a setting.
//!
//! Flags, help, man pages, completions, the configuration template, `show-config` and
//! `docs/guide/settings.md` are all made from these rows; nothing else in the program names a
//! default or a range. A new setting is a new row here and one line where it is used.
//!
//! Invariants (each has a test)
//! 1. Every default parses by its row's [`Kind`].
//! 2. Names are unique in a command, and so are letters.
//! 3. The defaults of `annotate` are `larder_annotate::Options::default()`.

mod bench_live;
mod dns;
mod http;
mod live;
mod logs;

use larder_settings::table::{Command, INPUT, Kind, OUTPUT, Program, ROW, Reach, SWITCH, Setting};
use larder_sim::trace::Format;

pub use bench_live::BENCH_LIVE;
pub use dns::DNS;
pub use http::HTTP;
pub use live::{FIND, TOP};

/// Words that `--names` takes beside `all`. [`larder_annotate::options::NameSources::parse`] decides; a test holds the two
/// together.
pub const SOURCE_WORDS: [&str; 9] =
    ["dns", "sni", "quic", "http", "mdns", "llmnr", "nbns", "dhcp", "ptr"];

const LIMIT: Setting = Setting { group: "Limits", reach: Reach::Lasting, ..ROW };
const NAMES: Setting = Setting { group: "Names", reach: Reach::Lasting, ..ROW };
const CHOICE: Setting = Setting { group: "Output", reach: Reach::Lasting, ..ROW };

/// `larder annotate`.
pub const ANNOTATE: Command = Command {
    path: &["annotate"],
    about: "Put the domain name beside every IP address in captured traffic",
    long:
        "Reads packets, learns which name each address was looked up under (DNS answers, TLS and \
QUIC server names, HTTP hosts, mDNS, LLMNR, NetBIOS, DHCP), and writes a log in which every flow \
carries names. It only reads: it never sends a packet.

The log goes to standard output, progress and summary go to standard error. Exit status: 0 done; \
1 done, but the input was damaged or cut short (2 with --strict); 2 usage, input or output, \
configuration; 130 interrupted, what was read is written; 141 standard output was closed.

Examples:
  larder annotate -r trace.pcapng
  larder annotate -r monday.pcap tuesday.pcap.gz --format ecs -o flows.jsonl
  larder annotate -r trace.pcap port 53 or host 192.0.2.1
  larder annotate -i eth0
  larder annotate -i eth0 -o flows.log -w /var/lib/larder --store 50GiB port 53 or port 443
  larder annotate -r trace.pcap --unresolved",
    settings: &[
        Setting {
            name: "read",
            letter: Some('r'),
            many: true,
            help: "Captures to read: pcap or pcapng, also .gz .zst .xz",
            why: "Several files are read as one, in time order, and names carry over; - reads standard input. A filter may follow.",
            ..INPUT
        },
        live::INTERFACE,
        live::FILTER,
        Setting {
            name: "count",
            letter: Some('c'),
            value_name: "N",
            kind: Kind::Count { min: 1, max: u64::MAX },
            help: "Stop after this many packets",
            why: "As in tcpdump; all packets are read unless told otherwise.",
            ..INPUT
        },
        Setting {
            name: "eve",
            help: "A Suricata EVE log: every line comes out unchanged, with larder's keys added",
            why: "Names come from --names-load, --zeek-dns and --dnstap. To use names of a capture, first run -r with --names-save.",
            ..INPUT
        },
        Setting {
            name: "zeek-log",
            help: "A Zeek log: every line comes out with larder's columns added",
            why: "Names come from --names-load, --zeek-dns and --dnstap. To use names of a capture, first run -r with --names-save.",
            ..INPUT
        },
        Setting {
            name: "zeek-dns",
            many: true,
            help: "Zeek dns.log files to learn names from",
            why: "For sites that keep logs and not packets.",
            ..INPUT
        },
        Setting {
            name: "dnstap",
            value_name: "FILE|SOCKET",
            help: "A dnstap file or socket to learn names from",
            why: "For sites whose resolver knows what the wire does not show (encrypted DNS).",
            ..INPUT
        },
        Setting {
            name: "output",
            letter: Some('o'),
            default: "-",
            help: "Where the log goes",
            why: "Standard output, so that it can be piped.",
            ..OUTPUT
        },
        Setting {
            name: "write",
            letter: Some('w'),
            help: "Write the packets again, as pcapng with Name Resolution Blocks; with --store: the folder they are kept in",
            why: "Wireshark and tshark -N n then show the names; readers that read the file twice show an address's latest name.",
            ..OUTPUT
        },
        Setting {
            name: "directory",
            letter: Some('d'),
            value_name: "DIR",
            kind: Kind::Path,
            help: "Also write dns.log (each answer), names.log (what is known at the end), stats.json",
            why: "Nothing beside the log unless asked.",
            ..OUTPUT
        },
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["text", "ecs", "zeek", "csv", "parquet"]),
            default: "text",
            help: "Format of the log",
            why: "Aligned text is for eyes; programs read ecs (JSON lines), zeek, csv or parquet (a build with the feature).",
            ..CHOICE
        },
        Setting {
            name: "sort",
            value_name: "ORDER",
            kind: Kind::Choice(&["end", "start"]),
            default: "end",
            help: "Order of the records: as flows end, or by their first packet",
            why: "The order of ends needs no memory; the order of starts spills to disk.",
            ..CHOICE
        },
        Setting {
            name: "numeric",
            letter: Some('n'),
            group: "Output",
            reach: Reach::Lasting,
            help: "Print ports as numbers in text",
            why: "As in tcpdump.",
            ..SWITCH
        },
        Setting {
            name: "unresolved",
            value_name: "WHICH",
            kind: Kind::Choice(&["false", "true", "all"]),
            default: "false",
            bare: "true",
            help: "Write only flows to destinations without a lookup",
            why: "--unresolved lists flows whose destination no lookup gave, whatever name the flow states (reason no_lookup_seen); --unresolved=all lists every flow without a name. Neither lists the lookups themselves (DNS, mDNS, LLMNR, NetBIOS, DHCP).",
            ..CHOICE
        },
        Setting {
            name: "quiet",
            group: "Output",
            reach: Reach::Lasting,
            help: "No progress, no summary; errors only",
            why: "The summary says what to doubt, so it is printed unless asked not to.",
            ..SWITCH
        },
        Setting {
            name: "no-progress",
            group: "Output",
            reach: Reach::Lasting,
            help: "No progress bar on a terminal",
            why: "The bar is never drawn elsewhere, nor where the log itself goes to the terminal.",
            ..SWITCH
        },
        Setting {
            name: "strict",
            group: "Output",
            reach: Reach::Lasting,
            help: "Exit 2 instead of 1 when the input was damaged or cut short",
            why: "Captures that end in the middle of a packet are everyday; scripts that cannot bear them ask for this.",
            ..SWITCH
        },
        Setting {
            name: "names",
            value_name: "LIST",
            kind: Kind::Set { words: &SOURCE_WORDS, item: "name source" },
            default: "all",
            help: "Sources of names that are believed",
            why: "Each flow says which source named it, so more sources do no harm; 'dns' is what was asked, without what flows say of themselves.",
            ..NAMES
        },
        Setting {
            name: "candidates",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 8 },
            default: "8",
            help: "Names kept for one address, newest first",
            why: "A fifth to a third of named flows have rivals. On 89 real clients the right name is among four for 96.7 % of the flows, among eight for 97.8 %.",
            ..NAMES
        },
        Setting {
            name: "names-load",
            kind: Kind::Path,
            value_name: "FILE",
            reach: Reach::Run,
            help: "Names known before the first packet, from --names-save",
            why: "A capture cut after the lookups still gets its names.",
            ..NAMES
        },
        Setting {
            name: "names-save",
            kind: Kind::Path,
            value_name: "FILE",
            reach: Reach::Run,
            help: "Save the names known at the end",
            why: "For the next capture's --names-load.",
            ..NAMES
        },
        Setting {
            name: "ignore-vlan",
            kind: Kind::Switch,
            default: "false",
            help: "Do not separate flows and names by VLAN and VNI",
            why: "By default VLAN IDs, VNIs of VXLAN and Geneve, and GRE keys are part of flows and of the names of private \
                  addresses. A tap may see the two directions of a flow in different VLANs; this joins them.",
            ..NAMES
        },
        Setting {
            name: "lookup",
            value_name: "PER",
            kind: Kind::Choice(&["flow", "packet"]),
            default: "flow",
            help: "Look names up once a flow, or for every packet",
            why: "The output is the same; packet is for measuring the cache.",
            ..NAMES
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Cores,
            default: "all",
            help: "Worker threads",
            why: "The output is the same bytes whatever the number.",
            ..LIMIT
        },
        Setting {
            name: "names-budget",
            value_name: "SIZE",
            kind: Kind::Bytes { min: 1 << 20, max: 1 << 40 },
            default: "256MiB",
            help: "Memory for all that is known of names",
            why: "When it is full the least used names leave, and their flows say 'evicted'.",
            ..LIMIT
        },
        Setting {
            name: "flows-max",
            value_name: "N",
            kind: Kind::Count { min: 1_000, max: 1_000_000_000 },
            default: "1000000",
            help: "Flows open at one time",
            why: "When it is full the longest idle flow ends, and is counted as evicted.",
            ..LIMIT
        },
        Setting {
            name: "reassembly-budget",
            value_name: "SIZE",
            kind: Kind::Bytes { min: 1 << 20, max: 1 << 40 },
            default: "64MiB",
            help: "Memory for TCP reassembly and IP fragments together",
            why: "Only name-bearing beginnings are put together; what does not fit is skipped and counted.",
            ..LIMIT
        },
        Setting {
            name: "tcp-idle",
            value_name: "TIME",
            kind: Kind::Seconds { min: 1, max: 604_800 },
            default: "300s",
            help: "A TCP flow ends after this long without a packet",
            why: "All times are the packets' own, never the machine's.",
            ..LIMIT
        },
        Setting {
            name: "udp-idle",
            value_name: "TIME",
            kind: Kind::Seconds { min: 1, max: 604_800 },
            default: "60s",
            help: "Any other flow ends after this long without a packet",
            why: "UDP has no end of its own; a minute joins a question to its answer and keeps the table small.",
            ..LIMIT
        },
        Setting {
            name: "linger",
            value_name: "TIME",
            kind: Kind::Seconds { min: 0, max: 3_600 },
            default: "5s",
            help: "A closed TCP flow still takes its last packets for this long",
            why: "Late acknowledgements after FIN or RST belong to the flow they close.",
            ..LIMIT
        },
        live::ACTIVE,
        Setting {
            name: "seed",
            value_name: "N",
            kind: Kind::Seed,
            default: "0x1a2de2c0ffee5eed",
            help: "Seed of the hash functions",
            why: "Fixed, so that a file always gives the same bytes; choose another against traffic made to collide.",
            ..LIMIT
        },
        logs::ROTATE_SIZE,
        logs::ROTATE_EVERY,
        logs::COMPRESS,
        logs::LOGS_BUDGET,
        live::RINGS,
        live::RING_SIZE,
        live::BATCH_MS,
        live::SNAP,
        live::NO_PROMISCUOUS,
        live::HARDWARE_TIME,
        live::XDP,
        live::PIN,
        live::STORE_SIZE,
        live::SEGMENT,
        live::SEGMENT_TIME,
        live::STORE_MEMORY,
        live::STORE_SNAP,
        live::STORE_HEADERS,
        live::STORE_DNS,
        live::STORE_SAMPLE,
        live::STORE_PSEUDONYMS,
        live::STORE_SYNC,
        live::STORE_FREE,
        live::SERVE,
        live::SERVE_HOSTS,
        live::SERVE_TOKEN,
        live::GROUP,
        live::CTL_SOCKET,
        live::CTL_MODE,
        live::METRICS,
    ],
};

/// `larder demo`.
pub const DEMO: Command = Command {
    path: &["demo"],
    about: "Annotate a small real capture that is part of the program",
    long: "Runs annotate on a recording of real programs (a name server, web servers, clients) and \
explains what the names say.",
    settings: &[
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["text", "ecs", "zeek", "csv"]),
            default: "text",
            group: "Output",
            help: "Format of the log",
            why: "As in annotate.",
            ..ROW
        },
        Setting {
            name: "quiet",
            group: "Output",
            help: "The log only, without the explanation",
            why: "The explanation goes to standard error in any case.",
            ..SWITCH
        },
    ],
};

/// `larder bench annotate`.
pub const BENCH_ANNOTATE: Command = Command {
    path: &["bench", "annotate"],
    about: "Measure annotate beside the bare header walk, and tshark where installed",
    long: "Runs the contestants in turn, several rounds, and prints the median and the spread of \
each: a walk over the headers of the mapped file (the limit of what any reader could do), annotate \
on one core and on several, annotate with a lookup for every packet, and tshark -N nd on the first \
packets. The walk, like annotate, maps the file anew in each round and pays for its page faults.

For annotate it also prints the peak of the resident memory (the pages of the file that are mapped at \
the time, and what the allocator kept from rounds before, included): it should not grow with the file. \
For lookups it prints their rate and how long single ones take, by timing one group of them in 1024.",
    settings: &[
        Setting {
            name: "file",
            positional: true,
            required: true,
            many: true,
            kind: Kind::Path,
            value_name: "FILE",
            help: "Captures; uncompressed pcap or pcapng for the walk",
            why: "larder gen capture makes a large one.",
            ..INPUT
        },
        Setting {
            name: "rounds",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "5",
            help: "Rounds; every contestant runs once a round",
            why: "Interleaved, so that a busy moment hits all of them.",
            ..ROW
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Cores,
            default: "all",
            help: "Worker threads of the contestant with many",
            why: "One core is measured in any case.",
            ..ROW
        },
        Setting {
            name: "tshark-packets",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 100_000_000 },
            default: "100000",
            help: "Packets given to tshark; 0 leaves it out",
            why: "It is a hundred times slower, so it gets a part.",
            ..ROW
        },
    ],
};

/// `larder bench engine`.
pub const BENCH_ENGINE: Command = Command {
    path: &["bench", "engine"],
    about: "Measure the cache beside the limit of memory, and beside other caches where built",
    long: "Fills the cache until it is full and has churned, then measures look-ups (one at a time, \
dependent, in batches, uniform and by Zipf's law, missing), puts, and a mix of both, beside a bare table \
that does the least that memory allows. Entries have a key of 16 octets and a value of 22.6 on average. \
Every answer is checked. Contestants run once a round in rotated order; figures are medians with their \
95 % interval. On one thread they are times that the thread ran, on several they are rates by the clock.

Other caches are not part of this program: build them with
  cargo build --release --manifest-path bench/Cargo.toml
and name the program with --peers bench/target/release/larder-peers, or put it beside this one.",
    settings: &[
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["table", "json"]),
            default: "table",
            group: "Output",
            help: "A table, or a line of JSON a row",
            why: "The lines are those of the program in bench/, so that both can be read by one script.",
            ..ROW
        },
        Setting {
            name: "entries",
            value_name: "N",
            kind: Kind::Count { min: 1_000, max: 100_000_000 },
            default: "1000000",
            help: "Entries in each cache",
            why: "A million do not fit in any cache of the processor.",
            ..ROW
        },
        Setting {
            name: "operations",
            value_name: "N",
            kind: Kind::Count { min: 1_000, max: 50_000_000 },
            default: "1000000",
            help: "Operations of one work in one round",
            why: "Long enough for the clock, short enough for many rounds.",
            ..ROW
        },
        Setting {
            name: "threads",
            value_name: "N",
            kind: Kind::Cores,
            default: "all",
            help: "Threads of the measurements with many",
            why: "One thread is measured in any case.",
            ..ROW
        },
        Setting {
            name: "rounds",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "10",
            help: "Rounds; every contestant runs once a round",
            why: "With fewer than six there is no interval of 95 %, and all rounds are shown.",
            ..ROW
        },
        Setting {
            name: "peers",
            value_name: "PROGRAM",
            kind: Kind::Path,
            group: "Input",
            help: "The program larder-peers, if it does not lie beside this one",
            why: "Other caches live in a workspace of their own, so that this program does not depend on them.",
            ..ROW
        },
    ],
};

/// `larder bench http`.
pub const BENCH_HTTP: Command = Command {
    path: &["bench", "http"],
    about: "Measure HTTP caches beside one another and what a bare sender does",
    long: "Starts larder http and, where installed, nginx, HAProxy and Varnish as caches before an origin of its \
own, in a network of its own, and asks them: what they hold (hits), what they must pass on (pass: from themselves, \
through: from the origin), and what is still coming (busy: many clients at once, one slow origin). Beside the hits the \
least that a sender can do, without HTTP: one buffer sent, a body copied, a file sent by the kernel. Responses are \
checked: status, length, and the first of each connection octet by octet. Servers run on the first cores, clients and \
origin on others. All are asked once a round, in rotated order; figures are medians with their 95 % interval.

Over loopback whoever asks is soon the limit by the clock; compare processor time. Configurations of all servers are \
printed with the figures. A network of its own is root's to have, or anybody's by: unshare --user --map-root-user \
larder bench http

Examples:
  larder bench http
  larder bench http --work hits --sizes 1KB,64MB --rounds 3 --servers larder,haproxy --strace
  larder bench http --work pass --connections 400
  larder bench http --work busy --sizes 16MB --format markdown",
    settings: &[
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["table", "markdown", "json"]),
            default: "table",
            group: "Output",
            help: "Tables for a terminal or a page, or a line of JSON for each server and work",
            why: "Configurations are in all three.",
            ..ROW
        },
        Setting {
            name: "servers",
            value_name: "LIST",
            default: "larder,nginx,haproxy,varnish",
            help: "Servers that take part: larder nginx haproxy varnish",
            why: "One that is not installed is left out, with a line that says so.",
            ..ROW
        },
        Setting {
            name: "larder",
            value_name: "PROGRAM",
            kind: Kind::Path,
            group: "Input",
            help: "The program of larder, if not this one",
            why: "To measure another build.",
            ..ROW
        },
        Setting {
            name: "work",
            value_name: "LIST",
            default: "hits,pass,busy",
            help: "What is asked: hits, pass, through, busy, or all",
            why: "What is held, what is not to be held, and what is still coming.",
            ..ROW
        },
        Setting {
            name: "sizes",
            value_name: "LIST",
            help: "Lengths of bodies: 1KB,10KB,1MB,64MB (each 1,024 times the one before it)",
            why: "Without it, what each work is told most by: hits those four, pass and through 64MB, busy 16MB and 64MB.",
            ..ROW
        },
        Setting {
            name: "connections",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 4_096 },
            default: "100",
            help: "Connections that ask again and again",
            why: "Enough that a server is never without a request.",
            ..ROW
        },
        Setting {
            name: "clients",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 4_096 },
            default: "200",
            help: "Clients who ask at once for what is still coming",
            why: "A crowd that a thread for each client begins to feel.",
            ..ROW
        },
        Setting {
            name: "busy-ms",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 600_000 },
            default: "5000",
            help: "Milliseconds for which the origin sends what is still coming",
            why: "As a film that is being encoded, or a slow application.",
            ..ROW
        },
        Setting {
            name: "rounds",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "5",
            help: "Rounds; every server is asked once a round",
            why: "With fewer than six there is no interval of 95 %, and all rounds are shown.",
            ..ROW
        },
        Setting {
            name: "measured-ms",
            value_name: "N",
            kind: Kind::Count { min: 10, max: 600_000 },
            default: "2000",
            help: "Milliseconds for which a server is asked in a round, after a quarter of that to warm up",
            why: "The kernel counts time that a server ran to some milliseconds.",
            ..ROW
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 256 },
            default: "1",
            help: "Cores and workers of a server",
            why: "Clients run on as many others; where none is left, on one of the server's.",
            ..ROW
        },
        Setting {
            name: "strace",
            help: "Count system calls too, with strace where installed, in a run that is not timed",
            why: "A traced server is several times slower.",
            ..SWITCH
        },
    ],
};

/// `larder bench dns`.
pub const BENCH_DNS: Command = Command {
    path: &["bench", "dns"],
    about: "Measure DNS servers beside one another and the limits of UDP",
    long: "Starts larder dns and, where installed, unbound, dnsdist and BIND as forwarders to an upstream of \
its own that answers at once, in a network of its own, and asks them: names that they hold (hits), a million \
of those, names that nobody asked before (misses), and mixes of both. Beside them the least that a server of \
UDP can do: an echo, and a relay to the same upstream. Every answer is checked. Servers run on the first cores, \
questions and upstream on others. All are asked once a round, in rotated order; figures are medians with their \
95 % interval. Then all are asked at half the rate of the slowest, to see how long clients wait.

Configurations of all servers are printed with the figures. A network of its own is root's to have, or \
anybody's by: unshare --user --map-root-user larder bench dns

Examples:
  larder bench dns
  larder bench dns --work hits,90 --rounds 3 --measured-ms 500 --servers larder,unbound
  larder bench dns --work 0,50,85,90,95,100 --format json > mixes.json
  larder bench dns --hierarchy --work 0,50,85,90,95,100 --servers larder,unbound,bind
  larder bench dns --hierarchy --dnssec --work 0,90 --servers larder,unbound,bind",
    settings: &[
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["table", "markdown", "json"]),
            default: "table",
            group: "Output",
            help: "Tables for a terminal or a page, or a line of JSON for each server and work",
            why: "Configurations are in all three.",
            ..ROW
        },
        Setting {
            name: "servers",
            value_name: "LIST",
            default: "larder,unbound,dnsdist,bind",
            help: "Servers that take part: larder unbound dnsdist bind",
            why: "One that is not installed is left out, with a line that says so.",
            ..ROW
        },
        Setting {
            name: "larder",
            value_name: "PROGRAM",
            kind: Kind::Path,
            group: "Input",
            help: "The program of larder, if not this one",
            why: "To measure another build.",
            ..ROW
        },
        Setting {
            name: "work",
            value_name: "LIST",
            default: "hits,million,misses,90",
            help: "What is asked: hits, million, misses, or a percentage of hits",
            why: "A cache's speed, the same beyond the processor's caches, a forwarder's, and what resolvers see.",
            ..ROW
        },
        Setting {
            name: "hot",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 100_000_000 },
            default: "10000",
            help: "Names asked again and again, in all works but million",
            why: "What a small site asks in an hour.",
            ..ROW
        },
        Setting {
            name: "names",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 100_000_000 },
            default: "1000000",
            help: "Names of the work million",
            why: "Octets a name mean something for many names only.",
            ..ROW
        },
        Setting {
            name: "rounds",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "10",
            help: "Rounds; every server is asked once a round",
            why: "With fewer than six there is no interval of 95 %, and all rounds are shown.",
            ..ROW
        },
        Setting {
            name: "measured-ms",
            value_name: "N",
            kind: Kind::Count { min: 10, max: 600_000 },
            default: "2000",
            help: "Milliseconds for which a server is asked in a round, after a quarter of that to warm up",
            why: "The kernel counts time that a server ran to some milliseconds.",
            ..ROW
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 256 },
            default: "1",
            help: "Cores and threads of a server",
            why: "Questions come from as many others; where none is left, from one of the server's.",
            ..ROW
        },
        Setting {
            name: "in-flight",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 16_384 },
            default: "256",
            help: "Questions in flight where they leave as fast as answers come",
            why: "Enough to fill batches; more wait in queues only.",
            ..ROW
        },
        Setting {
            name: "edns",
            help: "Questions have an OPT record",
            why: "Tools that measure have none unless told so; most resolvers' clients have one.",
            ..SWITCH
        },
        Setting {
            name: "ttl",
            value_name: "TIME",
            kind: Kind::Seconds { min: 0, max: 604_800 },
            default: "3600",
            help: "TTL of the upstream's answers",
            why: "Nothing is to expire while it is measured.",
            ..ROW
        },
        Setting {
            name: "delay-us",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 900_000 },
            default: "0",
            help: "Microseconds after which the upstream answers",
            why: "At once, so that the server is measured and not the wait.",
            ..ROW
        },
        Setting {
            name: "loss",
            value_name: "PERCENT",
            kind: Kind::Count { min: 0, max: 99 },
            default: "0",
            help: "Of a hundred questions, how many the upstream does not answer",
            why: "Loss is for seeing what servers do about it.",
            ..ROW
        },
        Setting {
            name: "hierarchy",
            help: "Servers find their way from a root, by top level and domains, instead of asking one upstream",
            why: "To measure recursion; dnsdist, which only forwards, takes no part.",
            ..SWITCH
        },
        Setting {
            name: "dnssec",
            help: "With --hierarchy: zones are signed, servers validate, and only answers that they say they validated count",
            why: "To measure what validation costs. The build needs the feature recurse.",
            ..SWITCH
        },
        Setting {
            name: "lame",
            value_name: "PERCENT",
            kind: Kind::Count { min: 0, max: 100 },
            default: "0",
            help: "With --hierarchy: of a hundred domains, how many have a first server that does not know them",
            why: "Every domain has two servers, so all can be found.",
            ..ROW
        },
        Setting {
            name: "no-waiting",
            help: "Leave out how long clients wait",
            why: "Takes half of the time.",
            ..SWITCH
        },
    ],
};

/// `larder gen capture`.
pub const GEN_CAPTURE: Command = Command {
    path: &["gen", "capture"],
    about: "Make a large capture by replaying small ones with shifted times and addresses",
    long: "Reads captures, and writes them again and again as one pcap file with nanoseconds until \
the size is reached. Each time around, all times move on by the length of the input, and private IPv4 \
addresses (10/8, 172.16/12, 192.168/16) and unique local IPv6 addresses move by a seeded step in \
their network, checksums mended; public addresses stay, so that the answers in the capture stay true. \
The same inputs, size and seed give the same bytes.",
    settings: &[
        Setting {
            name: "read",
            letter: Some('r'),
            many: true,
            required: true,
            kind: Kind::Path,
            help: "Captures to replay, uncompressed; they must fit in memory and share a link type",
            why: "Real traffic keeps real proportions.",
            ..INPUT
        },
        Setting {
            name: "output",
            letter: Some('o'),
            required: true,
            help: "Where the capture goes",
            why: "A file, or - for a pipe; never a terminal.",
            ..OUTPUT
        },
        Setting {
            name: "size",
            value_name: "SIZE",
            kind: Kind::Bytes { min: 1 << 10, max: 1 << 50 },
            default: "1500MiB",
            help: "Stop before the file would be larger",
            why: "Large enough that a run takes seconds and caches are cold.",
            ..ROW
        },
        Setting {
            name: "seed",
            value_name: "N",
            kind: Kind::Seed,
            default: "0x1",
            help: "Seed of the address steps",
            why: "The same seed gives the same bytes.",
            ..ROW
        },
    ],
};

/// Names of trace formats.
const TRACE_FORMATS: [&str; Format::ALL.len()] = {
    let mut names = [""; Format::ALL.len()];
    let mut number = 0;
    while number < names.len() {
        names[number] = Format::ALL[number].as_str();
        number += 1;
    }
    names
};

/// `larder sim hit-ratio`.
pub const SIM_HIT_RATIO: Command = Command {
    path: &["sim", "hit-ratio"],
    about: "Replay traces against policies and capacities, and print hit ratios",
    long: "Reads each trace once (twice where it is larger than memory) and replays it against every \
policy at every capacity, on all cores. The policies partitioned, fifo, lru and paper are the engine's own \
code; the others are references, and belady is the bound that no policy can pass (look-ups alone, one \
size, no ends). Sizes, stores, removals and ends of lives are honoured where the trace has them.

Results go to standard output, what was wrong with a trace to standard error. Exit status: 0 done; 1 done, \
but records could not be read; 2 usage, input or output; 130 interrupted, what was replayed is printed.

Examples:
  larder sim hit-ratio --trace zipf:0.9 --policy all
  larder sim hit-ratio --trace OLTP.lis.zst web07.trace.xz --capacity 1%,5%,10%,30% -o curves
  larder sim hit-ratio --trace cdn.csv.zst --by bytes --capacity 1GiB,10GiB --policy s3-fifo,lru
  larder sim hit-ratio --trace huge.oracleGeneral.zst --sample auto",
    settings: &[
        Setting {
            name: "trace",
            many: true,
            required: true,
            kind: Kind::Path,
            value_name: "FILE|STREAM",
            help: "Traces, also .gz .zst .xz; or zipf:ALPHA[:ITEMS[:REQUESTS]], dns:SEED, uniform:ITEMS, loop:ITEMS",
            why: "Each is replayed by itself; - reads standard input, which must then fit in memory.",
            ..INPUT
        },
        Setting {
            name: "trace-format",
            value_name: "FORMAT",
            kind: Kind::Choice(&TRACE_FORMATS),
            default: "auto",
            group: "Input",
            help: "Format of the traces",
            why: "Most are told by their name and first octets; the bare numbers are not.",
            ..ROW
        },
        Setting {
            name: "policy",
            value_name: "LIST",
            default: "partitioned,s3-fifo,w-tinylfu,arc,lru,fifo",
            group: "Simulation",
            help: "Policies, with commas, or all",
            why: "What larder runs, the best known of the field, and the two that everybody knows.",
            ..ROW
        },
        Setting {
            name: "capacity",
            value_name: "LIST",
            default: "1%,5%,10%,30%",
            group: "Simulation",
            help: "Capacities, with commas: entries (1000), sizes with --by bytes (1GiB), or shares (10%)",
            why: "Shares are of the trace's different keys, or of the octets of its different objects.",
            ..ROW
        },
        Setting {
            name: "by",
            value_name: "UNIT",
            kind: Kind::Choice(&["entries", "bytes"]),
            default: "entries",
            group: "Simulation",
            help: "What a capacity counts",
            why: "Only some traces have sizes; elsewhere an object is one octet.",
            ..ROW
        },
        Setting {
            name: "fill",
            group: "Simulation",
            help: "A look-up that misses stores its key (so it is unless --no-fill is passed)",
            why: "As in a cache before an origin, and in most published simulations.",
            ..SWITCH
        },
        Setting {
            name: "no-fill",
            group: "Simulation",
            help: "Only the trace's own stores store",
            why: "As in a capture, where answers are learnt and questions are not.",
            ..SWITCH
        },
        Setting {
            name: "sample",
            value_name: "RATE",
            group: "Simulation",
            help: "Simulate in miniature, with this part of the keys (0.01 or 1%), or auto",
            why: "For traces of billions of requests; the error is stated beside each hit ratio.",
            ..ROW
        },
        Setting {
            name: "seed",
            value_name: "N",
            kind: Kind::Seed,
            default: "0x1",
            group: "Simulation",
            help: "Seed of streams, samples, and what policies leave to chance",
            why: "The same seed gives the same hits on every machine.",
            ..ROW
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Cores,
            default: "all",
            group: "Simulation",
            help: "Threads that replay",
            why: "Hit ratios do not depend on the number.",
            ..ROW
        },
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["table", "csv", "json"]),
            default: "table",
            group: "Output",
            help: "Format of the results",
            why: "The table is for eyes.",
            ..ROW
        },
        Setting {
            name: "output",
            letter: Some('o'),
            value_name: "DIR",
            kind: Kind::Path,
            group: "Output",
            help: "Also write hit-ratio.csv, results.json and a curve (SVG) a trace into this directory",
            why: "It is made if need be; files of these names are replaced.",
            ..ROW
        },
        Setting {
            name: "quiet",
            group: "Output",
            help: "No progress and no notes; damage and errors only",
            why: "Progress is drawn on a terminal only.",
            ..SWITCH
        },
    ],
};

/// `larder model`.
pub const MODEL: Command = Command {
    path: &["model"],
    about: "Say what a cache is worth to a DNS server: time on hits, answers a second",
    long: "A server that answers Q1 queries a second when all hit its cache and Q2 when all miss spends the \
part A = r*Q2 / (r*Q2 + Q1*(1-r)) of its time on hits at hit ratio r, and answers 1 / (r/Q1 + (1-r)/Q2) \
queries a second (JINMEI, bind10-dev, 2013). Measured servers answer 3 to 21 % fewer at 90 % hits; that \
stands beside every result.

r is given with --hit-ratio, or found by replaying a trace against caches of several sizes, with the ends \
of lives that the trace has.

With --measure it runs the experiment: servers on one core, a stub upstream and a load of its own, all hits, all misses, and the \
mix, beside what the model makes of the first two.

Examples:
  larder model
  larder model --hit-ratio 80%,90%,95% --q1 500k --q2 60k --external-queries 1.5
  larder model --trace dns.log --cache-size 1k,10k,100k
  larder model --hit-ratio 90% --wanted 50%,60%,70% --format csv
  larder model --measure --hit-ratio 85%,90%,95%",
    settings: &[
        Setting {
            name: "hit-ratio",
            value_name: "LIST",
            default: "90%",
            help: "Parts of the queries that the cache answers: 0.9 or 90%, apart by commas",
            why: "What the memo assumes; busy resolvers are near it.",
            ..MODEL_INPUT
        },
        Setting {
            name: "q1",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000_000_000 },
            help: "Answers a second when all queries hit; with --q2",
            why: "Without it, what was measured of unbound on one core stands in, and the output says so.",
            ..MODEL_INPUT
        },
        Setting {
            name: "q2",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000_000_000 },
            help: "Answers a second when all queries miss, with one external query each; with --q1",
            why: "Measured as Q1, on the same cores: only their ratio decides how the time is spent.",
            ..MODEL_INPUT
        },
        Setting {
            name: "external-queries",
            value_name: "N",
            default: "1",
            help: "External queries a miss, on average, where Q2 was measured with one",
            why: "A forwarder asks one; the memo has 1.44 to 1.63 for resolvers. What a miss takes beyond a hit is multiplied by it.",
            ..MODEL_INPUT
        },
        Setting {
            name: "wanted",
            value_name: "LIST",
            default: "70%,60%,50%",
            help: "Parts of the time on hits for which to say the Q2/Q1 that gives them",
            why: "Those of the memo. With a trace it is said only where asked for; asked for with --format csv, it is the CSV.",
            ..MODEL_INPUT
        },
        Setting {
            name: "trace",
            kind: Kind::Path,
            value_name: "FILE|STREAM",
            help: "A trace to find hit ratios with, as of larder sim hit-ratio",
            why: "Instead of --hit-ratio. Ends of lives count where the trace has them.",
            ..MODEL_TRACE
        },
        Setting {
            name: "trace-format",
            value_name: "FORMAT",
            kind: Kind::Choice(&TRACE_FORMATS),
            default: "auto",
            help: "Format of the trace",
            why: "Most are told by their name and first octets; the bare numbers are not.",
            ..MODEL_TRACE
        },
        Setting {
            name: "cache-size",
            value_name: "LIST",
            default: "1%,5%,10%,30%,100%",
            help: "Sizes of the cache: entries as 10000 or 10k, or parts of the different keys as 5%",
            why: "The last holds everything: what still misses is new, or has ended.",
            ..MODEL_TRACE
        },
        Setting {
            name: "policy",
            value_name: "LIST",
            default: "partitioned,lru",
            help: "Replacement policies, as of larder sim hit-ratio",
            why: "Larder's own, and what most servers do.",
            ..MODEL_TRACE
        },
        Setting {
            name: "seed",
            value_name: "N",
            kind: Kind::Seed,
            default: "0x1",
            help: "Seed of traces that are made up, and of what policies leave to chance",
            why: "The same seed gives the same numbers.",
            ..MODEL_TRACE
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Cores,
            default: "all",
            help: "Threads that replay",
            why: "The numbers do not depend on it.",
            ..MODEL_TRACE
        },
        Setting {
            name: "measure",
            group: "Experiment",
            help: "Measure Q1, Q2 and the mix of servers on this machine, beside what the model says",
            why: "The memo's experiment. It needs a network of its own: root, or unshare --user --map-root-user.",
            ..SWITCH
        },
        Setting {
            name: "measure-servers",
            value_name: "LIST",
            default: "larder,unbound,dnsdist",
            help: "Servers that take part: larder unbound dnsdist bind",
            why: "One that is not installed is left out, with a line that says so.",
            ..EXPERIMENT
        },
        Setting {
            name: "measure-rounds",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "5",
            help: "Rounds; every server is asked once a round, and medians count",
            why: "What disturbs one round disturbs few.",
            ..EXPERIMENT
        },
        Setting {
            name: "measure-ms",
            value_name: "N",
            kind: Kind::Count { min: 10, max: 600_000 },
            default: "1000",
            help: "Milliseconds for which a server is asked in a round",
            why: "The kernel counts time that a server ran to some milliseconds.",
            ..EXPERIMENT
        },
        Setting {
            name: "measure-hot",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 100_000_000 },
            default: "10000",
            help: "Names that are asked again and again, and hit",
            why: "What a small site asks in an hour.",
            ..EXPERIMENT
        },
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["table", "csv", "json"]),
            default: "table",
            group: "Output",
            help: "Aligned text, CSV, or one JSON object",
            why: "Text is for eyes; the others have more digits.",
            ..ROW
        },
        Setting {
            name: "quiet",
            group: "Output",
            help: "No progress, no notes; errors and damage only",
            why: "Notes say what to doubt, so they are printed unless asked not to.",
            ..SWITCH
        },
    ],
};

const EXPERIMENT: Setting = Setting { group: "Experiment", ..ROW };
const MODEL_INPUT: Setting = Setting { group: "Model", ..ROW };
const MODEL_TRACE: Setting = Setting { group: "Trace", ..ROW };

const SIM_FORMAT: Setting = Setting {
    name: "format",
    value_name: "FORMAT",
    kind: Kind::Choice(&["table", "csv", "json"]),
    default: "table",
    group: "Output",
    help: "A table, or the same rows as CSV or JSON",
    why: "The table is for eyes; programs read the others.",
    ..ROW
};
const SIM_SEED: Setting = Setting {
    name: "seed",
    value_name: "N",
    kind: Kind::Seed,
    default: "0x1",
    help: "Seed of streams, spread and chances",
    why: "The same seed gives the same rows on any machine.",
    ..ROW
};
const SIM_THREADS: Setting = Setting {
    name: "threads",
    value_name: "N",
    kind: Kind::Cores,
    default: "all",
    help: "Threads that simulate",
    why: "The rows are the same whatever the number.",
    ..ROW
};
/// `larder sim sync`.
pub const SIM_SYNC: Command = Command {
    path: &["sim", "sync"],
    about: "Simulate a cache that several cores share, by how they share it",
    long: "Replays a trace on virtual cores and prints, for each way of sharing: hits, old values \
among them, and the work that sharing takes. Ways: synchronous and periodic (one main and a proxy a \
core, which show changes at once, or after the last so many requests), independent (a cache a core, \
memory divided), independent-full (each core the whole size), sharded (each core a part of the names; \
requests are handed over).

A value is old when it had been replaced before; every set is taken to change the value, which is the \
worst case. Work, a request, over all proxies: records of the engine's log and their octets; entries, \
each changed one once a sync; whole, all entries of every part of the table with a change in it (64 \
parts), as the paper copies sub-tables; moved, requests handed to another core.

Traces are files, or streams that are made up: zipf:ALPHA[:ITEMS[:REQUESTS]], dns:SEED[:REQUESTS].

Examples:
  larder sim sync
  larder sim sync --trace zipf:0.9:200000:3000000 --capacity 8/17 --warm-up 1M
  larder sim sync --trace web07.trace.xz --capacity 1%,10% --mode periodic,sharded --period 1000",
    settings: &[
        Setting {
            name: "trace",
            value_name: "TRACE",
            kind: Kind::Word,
            default: "zipf:0.9:200000:3000000",
            help: "A trace: a file, or the name of a stream",
            why: "The paper's names follow Zipf's law; an exponent of 0.9 is usual for names.",
            ..INPUT
        },
        Setting {
            name: "trace-format",
            value_name: "FORMAT",
            kind: Kind::Choice(&TRACE_FORMATS),
            default: "auto",
            help: "Format of the file",
            why: "auto looks at the first octets and the file's name.",
            ..INPUT
        },
        Setting {
            name: "mode",
            value_name: "LIST",
            default: "all",
            help: "Ways of sharing: synchronous periodic independent independent-full sharded",
            why: "A difference means something beside the others only.",
            ..ROW
        },
        Setting {
            name: "policy",
            value_name: "LIST",
            default: "partitioned,paper,lru",
            help: "Who leaves: policies by name, as in sim hit-ratio",
            why: "The engine's own, the paper's Algorithm 1 as listed, and what everybody knows.",
            ..ROW
        },
        Setting {
            name: "capacity",
            value_name: "LIST",
            default: "8/17",
            help: "Entries of the whole cache, or shares of the distinct names: 1000, 10%, 8/17",
            why: "The paper has 17 GB of names and 8 GB of memory.",
            ..ROW
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1024 },
            default: "8",
            help: "Virtual cores",
            why: "The paper's machine has eight; this one need not.",
            ..ROW
        },
        Setting {
            name: "period",
            value_name: "N",
            kind: Kind::Count { min: 1, max: u64::MAX },
            default: "10000",
            help: "Requests, over all cores, from one sync to the next",
            why: "At ten million requests a second, a millisecond.",
            ..ROW
        },
        Setting {
            name: "spread",
            value_name: "HOW",
            kind: Kind::Choice(&["random", "flow", "key"]),
            default: "random",
            help: "Which core a request comes to: any, its flow's, its name's",
            why: "Network cards spread flows, which for a name is nearly at random.",
            ..ROW
        },
        Setting {
            name: "reports",
            value_name: "SHARE",
            default: "1",
            help: "Share of proxies' hits that main is told of: 1, 1/2, 1/8, 0",
            why: "Told at the sync, and lost if the name has left by then.",
            ..ROW
        },
        Setting {
            name: "sets",
            value_name: "SHARE",
            default: "10%",
            help: "Share of the trace's look-ups that are taken for sets of a new value",
            why: "The paper's mix for hit ratios is 90 % get and 10 % set.",
            ..ROW
        },
        Setting {
            name: "fill",
            help: "A miss is followed by a set, as in a resolver; this is the default",
            why: "Here so that scripts can say what they mean.",
            ..SWITCH
        },
        Setting {
            name: "no-fill",
            help: "Only sets store, as where names are learnt from captured answers",
            why: "Both uses are real, and their numbers differ.",
            ..SWITCH
        },
        Setting {
            name: "fall-through",
            help: "Look for a name in main that the proxy does not show",
            why: "The engine's proxies don't: what was stored since the last sync is a miss.",
            ..SWITCH
        },
        Setting {
            name: "warm-up",
            value_name: "N",
            kind: Kind::Count { min: 0, max: u64::MAX },
            default: "0",
            help: "Requests at the start that do not count",
            why: "Cold misses count unless told otherwise, as in sim hit-ratio.",
            ..ROW
        },
        SIM_SEED,
        SIM_THREADS,
        SIM_FORMAT,
    ],
};

/// `larder sim lengths`.
pub const SIM_LENGTHS: Command = Command {
    path: &["sim", "lengths"],
    about: "Simulate memory split by the length of names",
    long: "Reads a list of names, the most popular first, prints what their lengths are like (to standard \
error), and what it costs in hits to keep names of different lengths apart: in points of hit ratio below \
the same policy with octets counted and nothing split. Ways of splitting: moving (pages go where they are \
needed, names are rounded up to their class: the engine), universe (as all names would need it), popularity \
(by the square root of it), geometric (the paper's example: 50 for names of 3 octets, 1 for those of 65).

Names are asked for by Zipf's law in the order of the list; the first third of the requests warms up.",
    settings: &[
        Setting {
            name: "names",
            required: true,
            kind: Kind::Path,
            help: "A list, one name a line or rank,name; compressed or not",
            why: "Lists of popular names are public; your resolver's own is better.",
            ..INPUT
        },
        Setting {
            name: "memory",
            value_name: "LIST",
            default: "1/17,8/17",
            help: "Memory, as shares of the octets of all names",
            why: "The paper has 17 GB of names and 8 GB of memory.",
            ..ROW
        },
        Setting {
            name: "width",
            value_name: "LIST",
            default: "1,8,16,32",
            help: "Widths of classes in octets, 1 to 253",
            why: "The paper's sub-tables have one length each; the engine's classes are wider.",
            ..ROW
        },
        Setting {
            name: "policy",
            value_name: "LIST",
            default: "lru,partitioned",
            help: "Who leaves: policies by name, as in sim hit-ratio",
            why: "What everybody knows, and the engine's own.",
            ..ROW
        },
        Setting {
            name: "alpha",
            value_name: "X",
            default: "0.9",
            help: "Exponent of Zipf's law, 0 to 10",
            why: "Usual for names.",
            ..ROW
        },
        Setting {
            name: "shuffle",
            help: "Take the list in a shuffled order: length then says nothing of popularity",
            why: "Popular names are shorter, and a split by length profits or suffers from that.",
            ..SWITCH
        },
        Setting {
            name: "requests",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 10_000_000_000 },
            default: "3000000",
            help: "Requests",
            why: "Enough that a hundredth of a point means something.",
            ..ROW
        },
        SIM_SEED,
        SIM_THREADS,
        SIM_FORMAT,
    ],
};

/// `larder sim paper`.
pub const SIM_PAPER: Command = Command {
    path: &["sim", "paper"],
    about: "Do the paper's experiments again, and set them beside its numbers",
    long: "Figures 2, 3 and 7 to 13 and Tables 1 and 2 of Han, Guo and Zeng, Research on Multicore \
Key-Value Storage System for Domain Name Storage (2021): throughput and insert latency of the engine on \
this machine, hit ratios, sync modes and splits by length simulated. Writes CSV and SVG files and one \
report, report.md and report.html, in which every figure stands beside what the paper reports, with what \
differs and why. What is simulated is the same for a seed on any machine; what is measured is not.",
    settings: &[
        Setting {
            name: "output",
            letter: Some('o'),
            value_name: "DIR",
            kind: Kind::Path,
            required: true,
            help: "Where the files go; made if it is not there",
            why: "Files of an earlier run are replaced.",
            ..OUTPUT
        },
        Setting {
            name: "names",
            kind: Kind::Path,
            help: "A list of names, the most popular first, for Figures 2 and 3",
            why: "Without one, lengths are made up as popular names have them.",
            ..INPUT
        },
        Setting {
            name: "quick",
            help: "Small tables and short streams: seconds instead of minutes",
            why: "To see that it works; the numbers mean little.",
            ..SWITCH
        },
        Setting {
            name: "no-engine",
            help: "Leave out what is measured by the clock: Figures 7 to 12",
            why: "The rest is the same on every machine.",
            ..SWITCH
        },
        SIM_SEED,
        SIM_THREADS,
    ],
};

/// What `larder ctl` may ask for.
pub const CTL_ACTIONS: [&str; 12] = [
    "stats",
    "reopen",
    "dump",
    "load",
    "flush",
    "flush-zone",
    "purge",
    "purge-tag",
    "snapshot",
    "reload",
    "stop",
    "version",
];

/// `larder ctl`.
pub const CTL: Command = Command {
    path: &["ctl"],
    about: "Ask a running larder dns or larder http: statistics, flush, purge, reload, stop",
    long: "Speaks to the server over the Unix socket that it was given with --ctl, a line of JSON a request. \
stats prints counters; stop ends the server.

Of larder dns: dump prints every answer that is kept (--json: as load takes them); load puts entries from \
standard input into the cache; flush NAME takes out all types of a name, flush-zone ZONE all below it too; \
snapshot saves the cache to its file; reload reads the configuration again and keeps the cache.

Of larder http: purge URL takes out what a URL gives, purge-tag TAG what its origin gave that tag, flush everything; with \
--soft it stays, stale: the origin is asked about it, and it may still be given while the origin fails; reload reads the configuration \
again, and says what changed and what needs a restart. Exit status: 0 done; 1 loaded, but some lines were no entries; 2 not done.

Of larder annotate: reopen opens its logs anew.

Examples:
  larder ctl stats
  larder ctl flush www.example.com
  larder ctl purge http://www.example.com/news
  larder ctl purge-tag sports --soft
  larder ctl dump --json | larder ctl load --socket /run/other/ctl",
    settings: &[
        Setting {
            name: "action",
            positional: true,
            required: true,
            value_name: "ACTION",
            kind: Kind::Choice(&CTL_ACTIONS),
            help: "What to ask for",
            why: "As in unbound-control and rndc.",
            ..ROW
        },
        Setting {
            name: "name",
            positional: true,
            value_name: "NAME",
            help: "The name or zone to flush, the URL or tag to purge",
            why: "The other actions take none.",
            ..ROW
        },
        Setting {
            name: "soft",
            help: "Leave what is purged as stale",
            why: "The next who wants it costs the origin a question, and often no body.",
            ..SWITCH
        },
        Setting {
            name: "socket",
            letter: Some('s'),
            value_name: "PATH",
            kind: Kind::Path,
            default: "/run/larder/ctl",
            help: "The server's socket",
            why: "The file system says who may ask: the server makes it for its own user alone.",
            ..ROW
        },
        Setting {
            name: "json",
            help: "Print JSON",
            why: "Columns are for eyes; programs, and load, read JSON.",
            ..SWITCH
        },
    ],
};

/// `larder show-config`.
pub const SHOW_CONFIG: Command = Command {
    path: &["show-config"],
    about: "Print each setting, its value, and which layer gave it",
    long: "Layers, the first that speaks wins: flag, environment variable, configuration file, \
default. The file is the first of: --config, $LARDER_CONFIG, ./larder.toml, \
$XDG_CONFIG_HOME/larder/larder.toml (or ~/.config/larder/larder.toml), /etc/larder/larder.toml. \
The flags of annotate that a file may set are accepted here too, to show their effect. What it prints \
can be used as a file.",
    settings: &[Setting {
        name: "template",
        help: "Print a commented file with every setting at its default instead",
        why: "The template is the list of defaults.",
        ..SWITCH
    }],
};

/// `larder completions`.
pub const COMPLETIONS: Command = Command {
    path: &["completions"],
    about: "Print completions for a shell",
    long: "For example: larder completions bash > /etc/bash_completion.d/larder",
    settings: &[Setting {
        name: "shell",
        positional: true,
        required: true,
        value_name: "SHELL",
        kind: Kind::Choice(&["bash", "elvish", "fish", "powershell", "zsh"]),
        help: "The shell",
        why: "Made from the same table as the flags.",
        ..ROW
    }],
};

/// `larder man`.
pub const MAN: Command = Command {
    path: &["man"],
    about: "Print the manual page, or write one page a command",
    long: "Without -o, prints larder(1) as roff: larder man | man -l -",
    settings: &[
        Setting {
            name: "output",
            letter: Some('o'),
            value_name: "DIR",
            kind: Kind::Path,
            help: "Write larder.1, larder-annotate.1, … into this directory",
            why: "For packages: /usr/share/man/man1.",
            ..ROW
        },
        Setting {
            name: "markdown",
            help: "Print the table of all settings as Markdown instead",
            why: "It is the guide's page of settings.",
            ..SWITCH
        },
    ],
};

/// The program.
pub static PROGRAM: Program = Program {
    name: "larder",
    version: env!("CARGO_PKG_VERSION"),
    changed: "2026-11-21",
    about: "A multicore cache for programs on the network, and the programs that need one",
    long_about: "larder keeps names in a multicore cache and puts them where they are \
missing: larder annotate reads captured packets, learns which name each address was looked up under, \
and writes a log in which every flow carries names.

Results go to standard output, everything else to standard error. Settings also come from the \
environment (LARDER_ANNOTATE_CORES=2) and from a file (see larder show-config).

First steps:
  larder demo
  larder annotate -r FILE",
    commands: &[
        &ANNOTATE,
        &FIND,
        &TOP,
        &DNS,
        &HTTP,
        &DEMO,
        &BENCH_ANNOTATE,
        &BENCH_ENGINE,
        &BENCH_DNS,
        &BENCH_HTTP,
        &BENCH_LIVE,
        &GEN_CAPTURE,
        &SIM_HIT_RATIO,
        &SIM_SYNC,
        &SIM_LENGTHS,
        &SIM_PAPER,
        &MODEL,
        &CTL,
        &SHOW_CONFIG,
        &COMPLETIONS,
        &MAN,
    ],
    families: &[
        ("bench", "Measure larder on this machine"),
        ("gen", "Make inputs for measuring"),
        ("sim", "Simulate caches on traces"),
    ],
    shown: Some((&ANNOTATE, "Flags of annotate")),
    guide: "# Settings\n\n\
        Generated from the table in `crates/cli/src/settings.rs`; a test keeps it so\n\
        (`UPDATE_DOCS=1 cargo test -p larder-cli` rewrites it).\n\n\
        A setting with a variable can also stand in `larder.toml`, in the table of its command, with\n\
        `_` for `-`. The first that speaks wins: flag, environment, file, default.\n\
        `larder show-config` says which one did. What is marked *live* is changed by a reload, while \
        the server runs.\n",
};

/// The page that is made of the table.
#[cfg(test)]
const PAGE: &str = "docs/guide/settings.md";

#[cfg(test)]
#[path = "../../settings/tests/common/table.rs"]
mod tests;
