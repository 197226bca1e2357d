//! Rows of live traffic: those that `larder annotate -i` adds, `larder find` and `larder top`.

use larder_annotate::feeds::parse_time_ns;
use larder_settings::table::{Command, INPUT, Kind, OUTPUT, ROW, Reach, SWITCH, Setting};

const LIVE: Setting = Setting { group: "Live capture", reach: Reach::Lasting, ..ROW };
const STORE: Setting = Setting { group: "Packet store", reach: Reach::Lasting, ..ROW };
const OPERATION: Setting =
    Setting { group: "Operation", default: "none", reach: Reach::Lasting, ..ROW };
const ON_OFF: Setting = Setting { reach: Reach::Lasting, ..SWITCH };

pub(super) const INTERFACE: Setting = Setting {
    name: "interface",
    letter: Some('i'),
    value_name: "IFACE",
    kind: Kind::List,
    help: "Capture from these interfaces, separated by commas",
    why: "Capturing needs CAP_NET_RAW; larder drops the capability after it opens the interfaces.",
    ..INPUT
};

pub(super) const FILTER: Setting = Setting {
    name: "filter",
    value_name: "FILTER",
    positional: true,
    many: true,
    help: "Process only packets that match this tcpdump filter",
    more: "For example: udp port 53 or host 192.0.2.1. With -r the filter begins at the first \
        word that is not an existing file. Write -- before a filter that begins with the name of \
        a file.",
    why: "larder learns no names from packets that the filter excludes. With -i the filter runs \
        in the kernel and costs nothing.",
    ..ROW
};

pub(super) const RINGS: Setting = Setting {
    name: "rings",
    value_name: "N",
    kind: Kind::Count { min: 1, max: 256 },
    default: "1",
    help: "Set the number of capture rings per interface",
    more: "The kernel distributes flows among the rings.",
    why: "The kernel fills one ring on one core, and several rings on several cores.",
    ..LIVE
};

pub(super) const RING_SIZE: Setting = Setting {
    name: "ring-size",
    value_name: "BYTES",
    kind: Kind::Bytes { min: 256 << 10, max: 16 << 30 },
    default: "64MiB",
    help: "Set the memory of a capture ring",
    why: "The ring buffers packets while larder is busy. The kernel drops and counts packets that \
        do not fit.",
    ..LIVE
};

pub(super) const BATCH_MS: Setting = Setting {
    name: "batch-ms",
    value_name: "MILLISECONDS",
    kind: Kind::Count { min: 1, max: 1_000 },
    default: "5",
    help: "Limit how long packets wait in a batch",
    why: "Longer batches cost less per packet and add delay.",
    ..LIVE
};

pub(super) const SNAP: Setting = Setting {
    name: "snaplen",
    letter: Some('s'),
    value_name: "BYTES",
    kind: Kind::Bytes { min: 64, max: 256 << 10 },
    default: "256KiB",
    help: "Capture at most this many bytes of a packet",
    why: "As in tcpdump. Names are in the first 2 KiB, and the log counts original lengths.",
    ..LIVE
};

pub(super) const NO_PROMISCUOUS: Setting = Setting {
    name: "no-promiscuous",
    letter: Some('p'),
    group: "Live capture",
    help: "Do not put interfaces into promiscuous mode",
    why: "As in tcpdump. A tap or mirror port needs the default.",
    ..ON_OFF
};

pub(super) const HARDWARE_TIME: Setting = Setting {
    name: "hardware-time",
    group: "Live capture",
    help: "Use hardware timestamps where the card has them",
    why: "Kernel timestamps are exact to the interrupt, hardware timestamps to the wire.",
    ..ON_OFF
};

pub(super) const XDP: Setting = Setting {
    name: "xdp",
    group: "Live capture",
    help: "Capture with AF_XDP (feature xdp)",
    more: "The network stack of the host does not receive these packets. larder uses capture \
        rings if the driver or the build has no AF_XDP.",
    why: "Use it for ports that only capture.",
    ..ON_OFF
};

pub(super) const PIN: Setting = Setting {
    name: "pin",
    value_name: "CPUS",
    kind: Kind::List,
    default: "none",
    help: "Pin the workers to these cores, such as 2,3,4",
    why: "Packets stay in the caches of cores that also serve the interrupts of the card.",
    ..LIVE
};

pub(super) const ACTIVE: Setting = Setting {
    name: "active",
    value_name: "SECONDS",
    kind: Kind::Seconds { min: 0, max: 604_800 },
    default: "30m",
    help: "Write a record for a long flow at this interval",
    more: "This is the active timeout of live capture. 0 writes one record, at the end. Flows of \
        capture files always have one record.",
    why: "Flows that last for days appear in the log.",
    group: "Limits",
    ..LIVE
};

pub(super) const STORE_SIZE: Setting = Setting {
    name: "store",
    value_name: "BYTES",
    kind: Kind::Bytes { min: 1 << 20, max: 1 << 60 },
    help: "Store packets in the -w directory, up to this size",
    more: "larder deletes the oldest packets first. larder find searches the store.",
    why: "Without it -w writes one file.",
    reach: Reach::Run,
    ..STORE
};

pub(super) const SEGMENT: Setting = Setting {
    name: "segment",
    value_name: "BYTES",
    kind: Kind::Bytes { min: 64 << 10, max: 4 << 30 },
    default: "64MiB",
    help: "Set the size of a segment of the packet store",
    why: "larder deletes whole segments, and indexes each closed segment.",
    ..STORE
};

pub(super) const SEGMENT_TIME: Setting = Setting {
    name: "segment-time",
    value_name: "SECONDS",
    kind: Kind::Seconds { min: 0, max: 604_800 },
    default: "1h",
    help: "Close a segment after this time",
    more: "With 0 larder closes it when it is full.",
    why: "Quiet networks then have closed segments, too.",
    ..STORE
};

pub(super) const STORE_MEMORY: Setting = Setting {
    name: "store-memory",
    value_name: "BYTES",
    kind: Kind::Bytes { min: 4 << 20, max: 1 << 40 },
    default: "256MiB",
    help: "Limit the memory for packets on their way to the disk",
    more: "The buffer also serves readers that follow the capture.",
    why: "It bridges pauses of the disk. When it is full, larder drops packets from the store, \
        and counts them.",
    ..STORE
};

pub(super) const STORE_SNAP: Setting = Setting {
    name: "store-snaplen",
    value_name: "BYTES",
    kind: Kind::Bytes { min: 0, max: 256 << 10 },
    default: "0",
    help: "Store at most this many bytes of a packet",
    more: "0 stores whole packets.",
    why: "larder reads names from the whole packet in any case.",
    ..STORE
};

pub(super) const STORE_HEADERS: Setting = Setting {
    name: "store-headers",
    group: "Packet store",
    help: "Store headers up to the transport's, without payload",
    why: "The store then shows which hosts communicated, but not the content.",
    ..ON_OFF
};

pub(super) const STORE_DNS: Setting = Setting {
    name: "store-dns",
    group: "Packet store",
    help: "Store DNS messages whole despite --store-headers",
    why: "DNS messages explain the name of a flow.",
    ..ON_OFF
};

pub(super) const STORE_SAMPLE: Setting = Setting {
    name: "store-sample",
    value_name: "N",
    kind: Kind::Count { min: 1, max: 1_000_000 },
    default: "1",
    help: "Store one flow in N",
    more: "larder stores all packets of the chosen flows.",
    why: "Half a conversation is of little use.",
    ..STORE
};

pub(super) const STORE_PSEUDONYMS: Setting = Setting {
    name: "store-pseudonyms",
    value_name: "FILE",
    kind: Kind::Path,
    help: "Replace stored addresses with pseudonyms (Crypto-PAn)",
    more: "FILE has the 32 bytes of the key. Pseudonyms preserve prefixes.",
    why: "The same key gives the same pseudonyms. The owner of the key can reverse them.",
    reach: Reach::Run,
    ..STORE
};

pub(super) const STORE_SYNC: Setting = Setting {
    name: "store-sync",
    group: "Packet store",
    help: "Sync each segment to the disk when it is closed",
    why: "Without it a power failure may lose written packets. A crash of larder loses none in either case.",
    ..ON_OFF
};

pub(super) const STORE_FREE: Setting = Setting {
    name: "store-free",
    value_name: "BYTES|PERCENT",
    kind: Kind::Space,
    default: "0",
    help: "Keep this much of the disk free",
    more: "larder deletes the oldest stored packets for it, and also when the disk is full.",
    why: "larder reports at the start if --store exceeds the free space.",
    ..STORE
};

pub(super) const SERVE: Setting = Setting {
    name: "serve",
    value_name: "ADDR:PORT|unix:PATH",
    group: "Packet store",
    help: "Serve stored packets over HTTP",
    more: "The packets include those that just arrive. Requests must name localhost, the address \
        itself or a name of --serve-hosts as their host. A Unix socket admits this user and the \
        group of --group.",
    why: "Without --serve-token every client that reaches the address gets the packets.",
    ..OPERATION
};

pub(super) const SERVE_HOSTS: Setting = Setting {
    name: "serve-hosts",
    value_name: "NAME,..",
    kind: Kind::List,
    group: "Packet store",
    help: "Accept requests of --serve for these host names",
    why: "larder refuses requests for other hosts: a web page may have caused them by DNS rebinding.",
    ..OPERATION
};

pub(super) const SERVE_TOKEN: Setting = Setting {
    name: "serve-token",
    value_name: "FILE",
    group: "Packet store",
    help: "Require the token in this file from clients of --serve",
    more: "Clients send it as Authorization: Bearer TOKEN.",
    why: "The token crosses the network in the clear, because --serve has no TLS.",
    ..OPERATION
};

pub(super) const GROUP: Setting = Setting {
    name: "group",
    value_name: "NAME|GID",
    help: "Let this group read logs, captures and stored packets",
    more: "Files then have mode 0640 and new directories 0750. Without it the modes are 0600 and \
        0700. The umask has no effect.",
    ..OPERATION
};

pub(super) const CTL_SOCKET: Setting = Setting {
    name: "ctl",
    value_name: "PATH",
    help: "Create a control socket for larder ctl and larder top",
    more: "Its directory must exist.",
    why: "larder top connects to /run/larder/annotate by default.",
    ..OPERATION
};

/// `larder find`.
pub const FIND: Command = Command {
    path: &["find"],
    about: "Find stored packets by name, address, network or flow",
    long: "Searches the directory that larder annotate -w DIR --store BYTES writes, also while larder \
writes it. Writes the packets of the matching flows as pcapng, in the order of their arrival.

Search terms: a name (www.example.com), a pattern (*.example.com), an address, a network \
(192.0.2.0/24), a flow (192.0.2.1:40000-198.51.100.2:443/tcp, * for an end) or a Community ID \
(1:…). Several terms are alternatives. An address matches in any IP header, including those of \
tunnels, and in ARP. A flow has the names that the log shows: the names that its client looked \
up, and those that the flow states (SNI, Host).

Exit status: 0 found; 1 nothing found, or some packets could not be read; 2 not done.

Examples:
  larder find --dir /var/lib/larder www.example.com -w out.pcapng
  larder find --dir /var/lib/larder '*.example.com' -w - | wireshark -k -i -
  larder find --dir /var/lib/larder 192.0.2.0/24 --from 2026-11-01T10:00:00Z",
    settings: &[
        Setting {
            name: "what",
            value_name: "NAME|GLOB|ADDR|NET|FLOW|ID",
            positional: true,
            many: true,
            help: "Find these names, addresses, networks, flows or IDs",
            more: "IDs are Community IDs. A packet is found if it matches one of the words.",
            ..ROW
        },
        Setting {
            name: "dir",
            letter: Some('d'),
            value_name: "DIR",
            kind: Kind::Path,
            default: ".",
            help: "Search the packet store in this directory",
            why: "It is the -w directory of larder annotate.",
            ..INPUT
        },
        Setting {
            name: "community-id",
            value_name: "ID",
            kind: Kind::Word,
            help: "Find the flow with this Community ID",
            why: "It has the same effect as the ID among the words.",
            ..INPUT
        },
        Setting {
            name: "from",
            value_name: "TIME",
            kind: Kind::Time(parse_time_ns),
            help: "Find packets from this time on",
            more: "Formats: RFC 3339, seconds since 1970, or -15m for 15 minutes ago. Without it \
                the search begins with the oldest packet.",
            ..INPUT
        },
        Setting {
            name: "to",
            value_name: "TIME",
            kind: Kind::Time(parse_time_ns),
            help: "Find packets before this time",
            more: "The formats are those of --from. Without it the search ends with the newest packet.",
            ..INPUT
        },
        Setting {
            name: "write",
            letter: Some('w'),
            help: "Write the packets to this file (- is standard output)",
            why: "Without it larder prints the number of packets and bytes of each flow.",
            ..OUTPUT
        },
        Setting {
            name: "limit",
            letter: Some('c'),
            value_name: "N",
            kind: Kind::Count { min: 1, max: u64::MAX },
            help: "Stop after this many packets",
            why: "As in tcpdump.",
            ..OUTPUT
        },
        Setting {
            name: "candidates",
            group: "Names",
            help: "Include flows that have the name among candidates",
            why: "An address may have served several names, and the most likely one need not be right.",
            ..SWITCH
        },
        Setting {
            name: "lookups",
            group: "Names",
            help: "Include the DNS messages that looked the name up",
            why: "They are about the name, and not traffic to it.",
            ..SWITCH
        },
        Setting {
            name: "follow",
            letter: Some('f'),
            group: "Output",
            help: "Continue with packets as they arrive",
            why: "As in tail -f. It ends with Ctrl-C, or when the output is closed.",
            ..SWITCH
        },
        Setting {
            name: "scan",
            group: "Input",
            help: "Scan all packets instead of using the indexes",
            why: "The result is the same, but slower. Use it to verify an index.",
            ..SWITCH
        },
        Setting {
            name: "quiet",
            letter: Some('q'),
            group: "Output",
            help: "Do not print a summary",
            why: "larder prints the summary to standard error.",
            ..SWITCH
        },
    ],
};

/// `larder top`.
pub const TOP: Command = Command {
    path: &["top"],
    about: "Show the names or flows with the most traffic, live",
    long: "Queries a running larder annotate over its --ctl socket once a second. Shows names, flows, \
rates, kernel drops, the share of named flows, and the delay of the log. Rates by name are \
estimated from a sample of each batch; totals are exact. If standard output is not a terminal, \
prints one report and exits. q or Ctrl-C ends it.

Examples:
  mkdir -p /run/larder /var/log/larder
  larder annotate -i eth0 --ctl /run/larder/annotate -o /var/log/larder/flows.log &
  larder top",
    settings: &[
        Setting {
            name: "socket",
            value_name: "PATH",
            kind: Kind::Path,
            default: "/run/larder/annotate",
            help: "Connect to this control socket",
            more: "It is the socket that larder annotate created with --ctl.",
            why: "The unit larder-annotate@IFACE has one socket per interface.",
            ..ROW
        },
        Setting {
            name: "by",
            value_name: "WHAT",
            kind: Kind::Choice(&["names", "flows"]),
            default: "names",
            help: "List names or flows",
            why: "The keys n and f switch while it runs.",
            ..ROW
        },
        Setting {
            name: "rows",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 100 },
            default: "20",
            help: "Set the number of rows when not on a terminal",
            why: "On a terminal larder fills the screen.",
            ..ROW
        },
        Setting {
            name: "once",
            help: "Print one report and exit",
            why: "Use it in scripts.",
            ..SWITCH
        },
    ],
};
