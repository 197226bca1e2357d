//! Rows of the operation of `larder dns`: control, metrics, snapshots, logs.

use larder_settings::table::{Kind, Setting};

use super::super::servers;
use super::LASTING;

const OPERATION: Setting = Setting { group: "Operation", default: "none", ..LASTING };

pub(super) const ROWS: [Setting; 12] = [
    servers::CTL,
    servers::CTL_MODE,
    servers::METRICS,
    Setting {
        name: "snapshot",
        value_name: "FILE",
        help: "Save the cache to this file at the end, load it at start",
        why: "The cache survives a restart. If larder is killed, the older file stays complete.",
        ..OPERATION
    },
    Setting {
        name: "snapshot-every",
        value_name: "SECONDS",
        kind: Kind::Seconds { min: 0, max: 86_400 },
        default: "900s",
        help: "Also save the snapshot at this interval",
        more: "With 0 larder saves it only at the end.",
        why: "A crash loses at most the responses of one interval. Saving takes about a second \
            per million responses while larder serves.",
        ..OPERATION
    },
    Setting {
        name: "dnstap",
        value_name: "FILE|unix:PATH",
        help: "Write all client and upstream messages as dnstap",
        more: "The target is a file or the socket of a collector. SIGHUP and SIGUSR1 reopen the \
            file after a rotation.",
        why: "It costs a copy of each message.",
        ..OPERATION
    },
    Setting {
        name: "query-log",
        value_name: "FILE",
        help: "Write a line for each response, or for a sample",
        more: "A line has time, client, query, response code, size and source. SIGHUP and SIGUSR1 \
            reopen the file after a rotation.",
        ..OPERATION
    },
    Setting {
        name: "query-log-format",
        value_name: "FORMAT",
        kind: Kind::Choice(&["text", "json"]),
        default: "text",
        help: "Choose the format of the query log",
        why: "text is for people and awk, json for collectors.",
        ..OPERATION
    },
    Setting {
        name: "query-log-sample",
        value_name: "N",
        kind: Kind::Count { min: 1, max: 1_000_000 },
        default: "1",
        help: "Log one response in N, chosen at random",
        why: "A line takes about a microsecond of a core; one in a hundred has no measurable cost.",
        ..OPERATION
    },
    Setting {
        name: "query-log-prefix",
        value_name: "BITS[/BITS]",
        help: "Log only this many bits of client addresses, and no port",
        more: "The default for IPv6 is 56 bits.",
        why: "Queries are personal data: 24 bits identify networks, but not clients in them.",
        ..OPERATION
    },
    Setting {
        name: "query-log-size",
        value_name: "BYTES",
        kind: Kind::Bytes { min: 0, max: 1 << 40 },
        default: "256MiB",
        help: "Rotate the query log at this size",
        more: "0 disables it. The file is renamed to FILE.1.",
        why: "An unattended log must not fill the disk.",
        ..OPERATION
    },
    Setting {
        name: "query-log-keep",
        value_name: "N",
        kind: Kind::Count { min: 0, max: 1_000 },
        default: "4",
        help: "Keep this many rotated query logs",
        more: "larder deletes older ones.",
        ..OPERATION
    },
];
