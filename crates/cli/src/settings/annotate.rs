//! The rows of `larder annotate`.

use larder_settings::table::{Command, INPUT, Kind, OUTPUT, ROW, Reach, SWITCH, Setting};

use super::{live, logs};

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
