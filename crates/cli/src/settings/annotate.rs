//! The rows of `larder annotate`.

use larder_settings::table::{Command, INPUT, Kind, OUTPUT, ROW, Reach, SWITCH, Setting};

use super::{live, logs, servers};

/// Words that `--names` takes besides `all`. [`larder_annotate::options::NameSources::parse`]
/// decides; a test compares the two.
pub const SOURCE_WORDS: [&str; 9] =
    ["dns", "sni", "quic", "http", "mdns", "llmnr", "nbns", "dhcp", "ptr"];

const LIMIT: Setting = Setting { group: "Limits", reach: Reach::Lasting, ..ROW };
const NAMES: Setting = Setting { group: "Names", reach: Reach::Lasting, ..ROW };
const CHOICE: Setting = Setting { group: "Output", reach: Reach::Lasting, ..ROW };

/// `larder annotate`.
pub const ANNOTATE: Command = Command {
    path: &["annotate"],
    about: "Add domain names to the IP addresses in captured traffic",
    long: "Reads packets from capture files or live interfaces, and learns the names under which clients \
looked up each address. Sources are DNS responses, TLS and QUIC server names, HTTP hosts, mDNS, \
LLMNR, NetBIOS and DHCP. Writes a log in which each flow has names. larder annotate never sends \
a packet.

The log is written to standard output, progress and summary to standard error.

Exit status: 0 done; 1 done, but the input was damaged or cut short (2 with --strict); 2 usage, \
input, output or configuration error; 130 interrupted, the records so far are written; 141 \
standard output was closed.

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
            help: "Read these capture files (- is standard input)",
            more: "Formats: pcap and pcapng, also compressed as .gz, .zst or .xz. larder merges \
                several files by time, and names carry over. A filter may follow the last file.",
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
            why: "Without it larder reads all packets, as tcpdump does.",
            ..INPUT
        },
        Setting {
            name: "eve",
            help: "Add names to each line of this Suricata EVE log",
            more: "larder writes each line unchanged and adds its keys. Names come from \
                --names-load, --zeek-dns and --dnstap.",
            why: "To use the names of a capture, first run -r with --names-save.",
            ..INPUT
        },
        Setting {
            name: "zeek-log",
            help: "Add name columns to this Zeek log",
            more: "Names come from --names-load, --zeek-dns and --dnstap.",
            why: "To use the names of a capture, first run -r with --names-save.",
            ..INPUT
        },
        Setting {
            name: "zeek-dns",
            many: true,
            help: "Learn names from these Zeek dns.log files",
            why: "Use it where logs exist but packets do not.",
            ..INPUT
        },
        Setting {
            name: "dnstap",
            value_name: "FILE|SOCKET",
            help: "Learn names from this dnstap file or socket",
            why: "Use it where DNS is encrypted: the resolver has names that packets do not show.",
            ..INPUT
        },
        Setting {
            name: "output",
            letter: Some('o'),
            default: "-",
            help: "Write the flow log to this file (- is standard output)",
            why: "The default lets you pipe the log into another program.",
            ..OUTPUT
        },
        Setting {
            name: "write",
            letter: Some('w'),
            help: "Write the packets as pcapng with names",
            more: "The file has Name Resolution Blocks. With --store this is the directory of the \
                packet store.",
            why: "Wireshark and tshark -N n show the names. Programs that read the file twice \
                show the latest name of an address.",
            ..OUTPUT
        },
        Setting {
            name: "directory",
            letter: Some('d'),
            value_name: "DIR",
            kind: Kind::Path,
            help: "Also write dns.log, names.log and stats.json here",
            more: "dns.log has each DNS response, names.log the names known at the end, and \
                stats.json the counters.",
            ..OUTPUT
        },
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["text", "ecs", "zeek", "csv", "parquet"]),
            default: "text",
            help: "Choose the log format",
            more: "ecs is JSON lines. parquet needs a build with the feature parquet.",
            why: "Aligned text is for people; programs read the other formats.",
            ..CHOICE
        },
        Setting {
            name: "sort",
            value_name: "ORDER",
            kind: Kind::Choice(&["end", "start"]),
            default: "end",
            help: "Order records by the end or the start of their flow",
            why: "end needs no memory. start spills to disk.",
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
            help: "Write only flows whose destination has no lookup",
            more: "The bare flag lists flows whose destination no lookup supports (reason \
                no_lookup_seen), whatever name the flow states. all lists each flow without a \
                name. Neither lists the lookups themselves (DNS, mDNS, LLMNR, NetBIOS, DHCP).",
            ..CHOICE
        },
        Setting {
            name: "quiet",
            group: "Output",
            reach: Reach::Lasting,
            help: "Print errors only, without progress and summary",
            why: "The summary lists doubtful results, so larder prints it by default.",
            ..SWITCH
        },
        Setting {
            name: "no-progress",
            group: "Output",
            reach: Reach::Lasting,
            help: "Do not draw a progress bar",
            why: "larder draws the bar only on a terminal, and only if the log has another destination.",
            ..SWITCH
        },
        Setting {
            name: "strict",
            group: "Output",
            reach: Reach::Lasting,
            help: "Exit with 2 instead of 1 if the input is damaged",
            more: "Input that is cut short counts as damaged.",
            why: "Captures often end in the middle of a packet, so the default status is 1.",
            ..SWITCH
        },
        Setting {
            name: "names",
            value_name: "LIST",
            kind: Kind::Set { words: &SOURCE_WORDS, item: "name source" },
            default: "all",
            help: "Accept names from these sources",
            more: "dns uses lookups only and ignores the names that flows state.",
            why: "Each record states the source of its name, so more sources do no harm.",
            ..NAMES
        },
        Setting {
            name: "candidates",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 8 },
            default: "8",
            help: "Limit the candidate names of an address",
            more: "Candidates are ordered newest first.",
            why: "A fifth to a third of named flows have rival names. For 89 real clients the \
                right name is among four candidates for 96.7 % of flows, and among eight for 97.8 \
                %.",
            ..NAMES
        },
        Setting {
            name: "names-load",
            kind: Kind::Path,
            value_name: "FILE",
            reach: Reach::Run,
            help: "Load names that --names-save wrote",
            why: "A capture that begins after the lookups still gets its names.",
            ..NAMES
        },
        Setting {
            name: "names-save",
            kind: Kind::Path,
            value_name: "FILE",
            reach: Reach::Run,
            help: "Save the known names at the end of the run",
            why: "The next run loads them with --names-load.",
            ..NAMES
        },
        Setting {
            name: "ignore-vlan",
            kind: Kind::Switch,
            default: "false",
            help: "Do not separate flows and names by VLAN, VNI or GRE key",
            more: "By default VLAN IDs, VNIs of VXLAN and Geneve, and GRE keys distinguish flows \
                and the names of private addresses.",
            why: "Use it if a tap shows the two directions of a flow in different VLANs.",
            ..NAMES
        },
        Setting {
            name: "lookup",
            value_name: "PER",
            kind: Kind::Choice(&["flow", "packet"]),
            default: "flow",
            help: "Look names up once per flow, or for each packet",
            why: "The output is the same; packet is for measuring the cache.",
            ..NAMES
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Cores,
            default: "all",
            help: "Set the number of worker threads",
            why: "The output is the same for any number.",
            ..LIMIT
        },
        Setting {
            name: "names-budget",
            value_name: "BYTES",
            kind: Kind::Bytes { min: 1 << 20, max: 1 << 40 },
            default: "256MiB",
            help: "Limit the memory for names",
            more: "When it is full, larder evicts the least-used names. Their flows have the reason evicted.",
            ..LIMIT
        },
        Setting {
            name: "flows-max",
            value_name: "N",
            kind: Kind::Count { min: 1_000, max: 1_000_000_000 },
            default: "1000000",
            help: "Limit the number of open flows",
            more: "When the table is full, larder ends the flow that is idle for longest, and \
                counts it as evicted.",
            ..LIMIT
        },
        Setting {
            name: "reassembly-budget",
            value_name: "BYTES",
            kind: Kind::Bytes { min: 1 << 20, max: 1 << 40 },
            default: "64MiB",
            help: "Limit the memory for TCP reassembly and IP fragments",
            more: "larder reassembles only beginnings that can carry names. It skips and counts \
                data that does not fit.",
            ..LIMIT
        },
        Setting {
            name: "tcp-idle",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 1, max: 604_800 },
            default: "300s",
            help: "End a TCP flow after this idle time",
            why: "larder uses packet times and not the clock of the machine.",
            ..LIMIT
        },
        Setting {
            name: "udp-idle",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 1, max: 604_800 },
            default: "60s",
            help: "End any other flow after this idle time",
            why: "UDP has no end of its own. One minute joins a query and its response, and \
                limits the size of the table.",
            ..LIMIT
        },
        Setting {
            name: "linger",
            value_name: "SECONDS",
            kind: Kind::Seconds { min: 0, max: 3_600 },
            default: "5s",
            help: "Accept late packets of a closed TCP flow for this long",
            why: "Late acknowledgments after FIN or RST belong to the flow that they close.",
            ..LIMIT
        },
        live::ACTIVE,
        Setting {
            name: "seed",
            value_name: "N",
            kind: Kind::Seed,
            default: "0x1a2de2c0ffee5eed",
            help: "Set the seed of the hash functions",
            why: "The fixed default makes output reproducible. Choose another seed against \
                traffic that is made to collide.",
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
        servers::CTL_MODE,
        servers::METRICS,
    ],
};
