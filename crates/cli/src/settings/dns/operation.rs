//! Rows of the operation of `larder dns`: control, metrics, snapshots, logs.

use larder_settings::table::{Kind, Setting};

use super::LASTING;

const OPERATION: Setting = Setting { group: "Operation", default: "none", ..LASTING };

pub(super) const ROWS: [Setting; 12] = [
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
];
