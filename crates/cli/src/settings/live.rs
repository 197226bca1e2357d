//! Rows of live traffic: what `larder annotate -i` takes more, and `larder find` and `larder top`.

use larder_annotate::feeds::parse_time_ns;
use larder_settings::table::{Command, INPUT, Kind, OUTPUT, ROW, Reach, SWITCH, Setting};

const LIVE: Setting = Setting { group: "Live capture", reach: Reach::Lasting, ..ROW };
const STORE: Setting = Setting { group: "Packets kept", reach: Reach::Lasting, ..ROW };
const OPERATION: Setting =
    Setting { group: "Operation", default: "none", reach: Reach::Lasting, ..ROW };
const ON_OFF: Setting = Setting { reach: Reach::Lasting, ..SWITCH };

pub(super) const INTERFACE: Setting = Setting {
    name: "interface",
    letter: Some('i'),
    value_name: "IFACE",
    kind: Kind::List,
    help: "Interfaces to capture from, with commas between",
    why: "Needs CAP_NET_RAW, which is dropped once they are open.",
    ..INPUT
};

pub(super) const FILTER: Setting = Setting {
    name: "filter",
    value_name: "FILTER",
    positional: true,
    many: true,
    help: "Which packets, in the language of tcpdump, as in: udp port 53 or host 192.0.2.1",
    why: "What it leaves out teaches no names. With -i it runs in the kernel and costs nothing. With -r it begins at the first word \
that is no file; where it begins with the name of a file, write -- before it.",
    ..ROW
};

pub(super) const RINGS: Setting = Setting {
    name: "rings",
    value_name: "N",
    kind: Kind::Count { min: 1, max: 256 },
    default: "1",
    help: "Rings of an interface, among which the kernel spreads flows",
    why: "One takes what one core can copy; more let the kernel fill them on several cores.",
    ..LIVE
};

pub(super) const RING_SIZE: Setting = Setting {
    name: "ring-size",
    value_name: "SIZE",
    kind: Kind::Bytes { min: 256 << 10, max: 16 << 30 },
    default: "64MiB",
    help: "Memory of a ring",
    why: "What comes while larder is busy waits there; what does not fit is lost, and counted.",
    ..LIVE
};

pub(super) const BATCH_MS: Setting = Setting {
    name: "batch-ms",
    value_name: "MS",
    kind: Kind::Count { min: 1, max: 1_000 },
    default: "5",
    help: "Milliseconds that packets wait for others at most",
    why: "Longer batches cost less each packet, and are seen later.",
    ..LIVE
};

pub(super) const SNAP: Setting = Setting {
    name: "snaplen",
    letter: Some('s'),
    value_name: "BYTES",
    kind: Kind::Bytes { min: 64, max: 256 << 10 },
    default: "262144",
    help: "Octets of a packet that are captured",
    why: "As in tcpdump. Names are in the first 2 KiB; the log counts what was on the wire whatever was captured.",
    ..LIVE
};

pub(super) const NO_PROMISCUOUS: Setting = Setting {
    name: "no-promiscuous",
    letter: Some('p'),
    group: "Live capture",
    help: "Capture only what is meant for this machine",
    why: "As in tcpdump: a tap or mirror port needs the default.",
    ..ON_OFF
};

pub(super) const HARDWARE_TIME: Setting = Setting {
    name: "hardware-time",
    group: "Live capture",
    help: "Take the times of packets from the network card, where it has them",
    why: "The kernel's times are exact to the interrupt; a card's to the wire.",
    ..ON_OFF
};

pub(super) const XDP: Setting = Setting {
    name: "xdp",
    group: "Live capture",
    help: "Take packets by AF_XDP (a build with the feature): the system itself sees them no more",
    why: "For ports that only capture; without it, or where the driver refuses, rings are used.",
    ..ON_OFF
};

pub(super) const PIN: Setting = Setting {
    name: "pin",
    value_name: "CPUS",
    kind: Kind::List,
    default: "none",
    help: "Cores for the workers, one each, as 2,3,4",
    why: "Where the same cores serve the card's interrupts, packets stay in their caches.",
    ..LIVE
};

pub(super) const ACTIVE: Setting = Setting {
    name: "active",
    value_name: "TIME",
    kind: Kind::Seconds { min: 0, max: 604_800 },
    default: "30m",
    help: "With -i: a flow that goes on for so long gives a record, and begins anew; 0: never",
    why: "So that what lasts for days is seen; of files a flow has one record.",
    group: "Limits",
    ..LIVE
};

pub(super) const STORE_SIZE: Setting = Setting {
    name: "store",
    value_name: "SIZE",
    kind: Kind::Bytes { min: 1 << 20, max: 1 << 60 },
    help: "Keep the packets in the folder of -w, so many octets of them, the oldest go first",
    why: "Without it -w writes one file. larder find gives the packets of a name again.",
    reach: Reach::Run,
    ..STORE
};

pub(super) const SEGMENT: Setting = Setting {
    name: "segment",
    value_name: "SIZE",
    kind: Kind::Bytes { min: 64 << 10, max: 4 << 30 },
    default: "64MiB",
    help: "Octets of a file of kept packets",
    why: "Files are deleted whole, and one that is whole has an index.",
    ..STORE
};

pub(super) const SEGMENT_TIME: Setting = Setting {
    name: "segment-time",
    value_name: "TIME",
    kind: Kind::Seconds { min: 0, max: 604_800 },
    default: "1h",
    help: "A file of kept packets is closed after this long; 0: when it is full",
    why: "So that quiet networks have closed files too.",
    ..STORE
};

pub(super) const STORE_MEMORY: Setting = Setting {
    name: "store-memory",
    value_name: "SIZE",
    kind: Kind::Bytes { min: 4 << 20, max: 1 << 40 },
    default: "256MiB",
    help: "Memory for kept packets on their way to the disk, and for those who read along",
    why: "A disk that pauses is waited for as long as this lasts; then packets are not kept, and counted.",
    ..STORE
};

pub(super) const STORE_SNAP: Setting = Setting {
    name: "store-snaplen",
    value_name: "BYTES",
    kind: Kind::Bytes { min: 0, max: 256 << 10 },
    default: "0",
    help: "Octets of a packet that are kept; 0: all",
    why: "Names are read from the whole packet all the same.",
    ..STORE
};

pub(super) const STORE_HEADERS: Setting = Setting {
    name: "store-headers",
    group: "Packets kept",
    help: "Keep no payload: headers up to the transport's",
    why: "What people said to each other is not kept; who spoke to whom is.",
    ..ON_OFF
};

pub(super) const STORE_DNS: Setting = Setting {
    name: "store-dns",
    group: "Packets kept",
    help: "With --store-headers: keep DNS messages whole",
    why: "They are what names come from, and are wanted to see why a flow is called so.",
    ..ON_OFF
};

pub(super) const STORE_SAMPLE: Setting = Setting {
    name: "store-sample",
    value_name: "N",
    kind: Kind::Count { min: 1, max: 1_000_000 },
    default: "1",
    help: "Keep one flow in N, whole",
    why: "Half a conversation is of little use.",
    ..STORE
};

pub(super) const STORE_PSEUDONYMS: Setting = Setting {
    name: "store-pseudonyms",
    value_name: "FILE",
    kind: Kind::Path,
    help: "Replace addresses in kept packets, prefixes alike (Crypto-PAn), by the 32 octets of this file",
    why: "The same key gives the same pseudonyms; who has it can tell which is which.",
    reach: Reach::Run,
    ..STORE
};

pub(super) const STORE_SYNC: Setting = Setting {
    name: "store-sync",
    group: "Packets kept",
    help: "Have the disk confirm each file of kept packets when it is closed",
    why: "A crash of larder loses nothing that was written; a loss of power may, without this.",
    ..ON_OFF
};

pub(super) const STORE_FREE: Setting = Setting {
    name: "store-free",
    value_name: "SIZE|PERCENT",
    kind: Kind::Space,
    default: "0",
    help: "Keep this much of the disk free; delete the oldest stored packets for it",
    why: "The oldest packets are also deleted when the disk is full. A start where --store exceeds the free space says so.",
    ..STORE
};

pub(super) const SERVE: Setting = Setting {
    name: "serve",
    value_name: "ADDR:PORT|unix:PATH",
    group: "Packets kept",
    help: "Serve stored packets over HTTP, also those that just arrive",
    why: "Requests must name localhost, the address itself or a name of --serve-hosts as their host. Without --serve-token everybody \
who reaches the address gets the packets; a Unix socket is for this user, and the group of --group.",
    ..OPERATION
};

pub(super) const SERVE_HOSTS: Setting = Setting {
    name: "serve-hosts",
    value_name: "NAME,..",
    kind: Kind::List,
    group: "Packets kept",
    help: "With --serve: more host names that requests may be for",
    why: "A request for another host is refused: it comes from a web page that was led here by DNS (DNS rebinding).",
    ..OPERATION
};

pub(super) const SERVE_TOKEN: Setting = Setting {
    name: "serve-token",
    value_name: "FILE",
    group: "Packets kept",
    help: "With --serve: require the token in this file from each client",
    why: "Clients send it as Authorization: Bearer TOKEN. It crosses the network in the clear: there is no TLS.",
    ..OPERATION
};

pub(super) const GROUP: Setting = Setting {
    name: "group",
    value_name: "NAME|GID",
    help: "Let this group read logs, captures and stored packets",
    why: "Files have the mode 0600 and new folders 0700, whatever the umask is; with a group 0640 and 0750.",
    ..OPERATION
};

pub(super) const CTL_SOCKET: Setting = Setting {
    name: "ctl",
    value_name: "PATH",
    help: "The Unix socket for larder ctl and larder top",
    why: "larder top asks at /run/larder/annotate unless told otherwise; its directory must be there.",
    ..OPERATION
};

pub(super) const CTL_MODE: Setting = Setting {
    name: "ctl-mode",
    value_name: "OCTAL",
    default: "0600",
    help: "File mode of that socket",
    why: "The file system says who may ask: 0660 lets the group ask too.",
    ..OPERATION
};

pub(super) const METRICS: Setting = Setting {
    name: "metrics",
    value_name: "ADDR:PORT",
    help: "Where Prometheus gets metrics, at /metrics over HTTP",
    why: "There is no password: listen where only those reach who may know.",
    ..OPERATION
};

/// `larder find`.
pub const FIND: Command = Command {
    path: &["find"],
    about: "Give the packets of everything that talked to a name, out of those that larder annotate keeps",
    long: "Reads the folder that larder annotate -w DIR --store SIZE writes, also while it is written, and writes the packets of \
the flows that are asked for, in the order in which they came, as pcapng.

What may be asked: a name (www.example.com), a pattern (*.example.com), an address, a network (192.0.2.0/24), a flow \
(192.0.2.1:40000-198.51.100.2:443/tcp, * for an end), a Community ID (1:…). Several words are alternatives. An address is found in \
any IP header, also of a tunnel, and in ARP. A flow has the names that the log gives it: what its client had asked for, and \
what it says of itself (SNI, Host). Exit status: 0 found; 1 nothing was, or some could not be read; 2 not done.

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
            help: "Names, addresses, networks, flows or Community IDs to find",
            why: "A packet that matches one of them is found.",
            ..ROW
        },
        Setting {
            name: "dir",
            letter: Some('d'),
            value_name: "DIR",
            kind: Kind::Path,
            default: ".",
            help: "The folder of the packets",
            why: "What -w of larder annotate named.",
            ..INPUT
        },
        Setting {
            name: "community-id",
            value_name: "ID",
            kind: Kind::Word,
            help: "Find the flow with this Community ID",
            why: "The same as the ID among the words: a packet that matches one of them is found.",
            ..INPUT
        },
        Setting {
            name: "from",
            value_name: "TIME",
            kind: Kind::Time(parse_time_ns),
            help: "Only packets from this time on: RFC 3339, seconds since 1970, or -15m before now",
            why: "Without it the search begins with the oldest packet.",
            ..INPUT
        },
        Setting {
            name: "to",
            value_name: "TIME",
            kind: Kind::Time(parse_time_ns),
            help: "Only packets before this time",
            why: "Without it the search ends with the newest packet. The time is written as in --from.",
            ..INPUT
        },
        Setting {
            name: "write",
            letter: Some('w'),
            help: "Where the packets go; - is standard output",
            why: "Without it they are counted, flow by flow.",
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
            help: "Also flows whose address had the name among others",
            why: "An address may have served many names; the likeliest was chosen, and need not be the right one.",
            ..SWITCH
        },
        Setting {
            name: "lookups",
            group: "Names",
            help: "Also the DNS messages that asked for the name",
            why: "They talked about it, not to it.",
            ..SWITCH
        },
        Setting {
            name: "follow",
            letter: Some('f'),
            group: "Output",
            help: "Go on with packets as they come",
            why: "As in tail -f; ends with Ctrl-C, or when the output is closed.",
            ..SWITCH
        },
        Setting {
            name: "scan",
            group: "Input",
            help: "Do not use indexes: look at every packet",
            why: "The same packets, slowly: for doubters.",
            ..SWITCH
        },
        Setting {
            name: "quiet",
            letter: Some('q'),
            group: "Output",
            help: "No summary",
            why: "It goes to standard error.",
            ..SWITCH
        },
    ],
};

/// `larder top`.
pub const TOP: Command = Command {
    path: &["top"],
    about: "Show who talks most, by name, while larder annotate runs",
    long: "Asks a running larder annotate over the socket that it was given with --ctl, once a second, and shows names, flows and \
rates, what the kernel dropped, how many flows have names, and how far the log is behind. Rates by name are estimated from \
some packets of each batch; totals are exact. Where standard output is no terminal it prints one picture and ends. q or \
Ctrl-C ends it.

Examples:
  larder annotate -i eth0 --ctl /run/larder/annotate -o /var/log/larder/flows.log &
  larder top",
    settings: &[
        Setting {
            name: "socket",
            value_name: "PATH",
            kind: Kind::Path,
            default: "/run/larder/annotate",
            help: "The socket that larder annotate was given with --ctl",
            why: "The unit larder-annotate@IFACE has one a interface.",
            ..ROW
        },
        Setting {
            name: "by",
            value_name: "WHAT",
            kind: Kind::Choice(&["names", "flows"]),
            default: "names",
            help: "Rows are names, or flows",
            why: "n and f change it while it runs.",
            ..ROW
        },
        Setting {
            name: "rows",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 100 },
            default: "20",
            help: "Rows where standard output is no terminal",
            why: "A terminal has as many as fit.",
            ..ROW
        },
        Setting {
            name: "once",
            help: "Print one picture and end",
            why: "For scripts.",
            ..SWITCH
        },
    ],
};
