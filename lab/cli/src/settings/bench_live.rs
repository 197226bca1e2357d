//! `larder-lab bench live`.

use larder_settings::table::{Command, Kind, ROW, SWITCH, Setting};

/// `larder-lab bench live`.
pub const BENCH_LIVE: Command = Command {
    path: &["bench", "live"],
    about: "Measure live capture beside the bare limit of the kernel's rings",
    long: "Makes a pair of interfaces in a network of its own. A generator sends frames by one, on a core of \
its own, and a reader on another core captures them at the other: a walk over the kernel's rings that \
visits frames and gives them back (the limit of any reader), the source of batches, and the source with \
every packet decoded. All run once a round; figures are medians. Every frame is accounted for, sent or \
received or dropped by the kernel for want of room; where one is missing the run fails. The last two are the program itself, \
on the reader's core alone, without and with packets that are kept (in the folder for temporary files).

On a pair of interfaces the kernel receives frames in the time of the core that sends them, so the \
generator's time is that of both. A network of its own is root's to have.

Examples:
  larder-lab bench live
  larder-lab bench live --sizes 60 --rounds 5 --measured-ms 5000
  larder-lab bench live --rate 100000 --ring 1MiB",
    settings: &[
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["table", "markdown", "json"]),
            default: "table",
            group: "Output",
            help: "Tables for a terminal or a page, or a line of JSON for each stage and size",
            why: "Rows of JSON are medians, as those of tables are.",
            ..ROW
        },
        Setting {
            name: "sizes",
            value_name: "LIST",
            default: "60,1500",
            help: "Octets of frames, from 60 to 1514, each measured by itself",
            why: "The shortest cost most for each octet, the longest for each frame.",
            ..ROW
        },
        Setting {
            name: "stages",
            value_name: "LIST",
            kind: Kind::List,
            default: "none",
            help: "Stages to measure, of walk, source, decode, annotate, store; none: all",
            why: "One stage for a minute says more of the disk than all for seconds.",
            ..ROW
        },
        Setting {
            name: "flows",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000 },
            default: "1000",
            help: "Flows that frames belong to; one frame in 500 is a DNS answer of 100 octets",
            why: "Rings share by flows.",
            ..ROW
        },
        Setting {
            name: "rate",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 1_000_000_000 },
            default: "0",
            help: "Frames sent a second; 0: as many as can be",
            why: "Time for a packet is told best where nothing is dropped.",
            ..ROW
        },
        Setting {
            name: "rings",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 64 },
            default: "1",
            help: "Rings of the interface",
            why: "One reader empties all: more show what putting them in order costs.",
            ..ROW
        },
        Setting {
            name: "ring",
            value_name: "SIZE",
            kind: Kind::Bytes { min: 256 << 10, max: 1 << 31 },
            default: "64MiB",
            help: "Octets of one ring",
            why: "A small one shows what is counted when it is full.",
            ..ROW
        },
        Setting {
            name: "xdp",
            help: "Measure the source by AF_XDP too (feature xdp)",
            why: "Beside the kernel's network instead of through it.",
            ..SWITCH
        },
        Setting {
            name: "rounds",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "3",
            help: "Rounds; every stage runs once a round",
            why: "Interleaved, so that a busy moment hits all of them.",
            ..ROW
        },
        Setting {
            name: "measured-ms",
            value_name: "N",
            kind: Kind::Count { min: 10, max: 600_000 },
            default: "2000",
            help: "Milliseconds for which frames are sent",
            why: "The kernel counts time that a thread ran to some milliseconds.",
            ..ROW
        },
    ],
};
