//! Rows of `larder dns --shadow`.

use larder_settings::table::{Kind, ROW, SWITCH, Setting};

const TRIAL: Setting = Setting { group: "Trial", ..ROW };

pub(super) const ROWS: [Setting; 6] = [
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
];
