//! Rows of `larder dns --shadow`.

use larder_settings::table::{Kind, ROW, SWITCH, Setting};

const SHADOW: Setting = Setting { group: "Shadow mode", ..ROW };

pub(super) const ROWS: [Setting; 6] = [
    Setting {
        name: "shadow",
        value_name: "ADDR[:PORT]",
        kind: Kind::List,
        many: true,
        default: "none",
        help: "Compare with this running resolver without serving clients",
        more: "larder resolves the queries of the resolver's clients for itself, and compares the \
            responses. Give the addresses that clients use; 0.0.0.0 stands for all.",
        ..SHADOW
    },
    Setting {
        name: "shadow-from",
        value_name: "FILE|-|unix:PATH|dnstap:FILE",
        default: "-",
        help: "Read the copy of the resolver's traffic from here",
        more: "Sources: a capture (- is a pipe), a dnstap file, or a dnstap socket that larder creates.",
        why: "tcpdump writes captures and resolvers write dnstap. dnstap also has TCP and the \
            queries of the resolver.",
        ..SHADOW
    },
    Setting {
        name: "shadow-speed",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 1_000 },
        default: "0",
        help: "Replay a file at N times its speed",
        more: "0 replays it as fast as possible.",
        why: "At 1 TTLs expire as they did in the recording.",
        ..SHADOW
    },
    Setting {
        name: "shadow-warmup",
        value_name: "SECONDS",
        kind: Kind::Seconds { min: 0, max: 604_800 },
        default: "0s",
        help: "Process queries for this time before counting them",
        why: "The resolver's cache is warm, but larder starts empty.",
        ..SHADOW
    },
    Setting {
        name: "shadow-hit-us",
        value_name: "MICROSECONDS",
        kind: Kind::Count { min: 1, max: 10_000_000 },
        default: "1000",
        help: "Count responses below this latency as the resolver's hits",
        more: "It applies to captures; dnstap has the queries of the resolver if the resolver logs them.",
        ..SHADOW
    },
    Setting {
        name: "json",
        group: SHADOW.group,
        help: "Print the report as JSON",
        more: "The report is one object, with times in microseconds and shares from 0 to 1.",
        ..SWITCH
    },
];
