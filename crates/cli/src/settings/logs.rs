//! Rows of the rotation of logs: `larder annotate`.

use larder_settings::table::{Kind, ROW, Reach, SWITCH, Setting};

const LOGS: Setting = Setting { group: "Log rotation", reach: Reach::Lasting, ..ROW };

pub(super) const ROTATE_SIZE: Setting = Setting {
    name: "rotate-size",
    value_name: "BYTES",
    kind: Kind::Bytes { min: 0, max: 1 << 60 },
    default: "0",
    help: "Rotate the log at this size",
    more: "0 disables it. Closed files are named NAME.TIME.EXT, by the time of their first \
        record. The setting also applies to dns.log.",
    ..LOGS
};

pub(super) const ROTATE_EVERY: Setting = Setting {
    name: "rotate-every",
    value_name: "SECONDS",
    kind: Kind::Seconds { min: 0, max: 31_622_400 },
    default: "0",
    help: "Rotate the log at this interval",
    more: "0 disables it. Intervals are aligned in UTC: 1h rotates on the hour.",
    why: "larder uses packet times, so each file has the same traffic live and from a capture.",
    ..LOGS
};

pub(super) const COMPRESS: Setting = Setting {
    name: "compress",
    group: "Log rotation",
    help: "Compress closed logs with gzip",
    why: "One thread of the lowest priority compresses. It deletes a log only after the \
        compressed file is complete.",
    reach: Reach::Lasting,
    ..SWITCH
};

pub(super) const LOGS_BUDGET: Setting = Setting {
    name: "logs-budget",
    value_name: "BYTES",
    kind: Kind::Bytes { min: 0, max: 1 << 60 },
    default: "0",
    help: "Delete the oldest logs above this total size",
    more: "0 disables it. larder deletes only files that it closed, and recognizes them by name. \
        It closes a file at half of the budget at the latest.",
    ..LOGS
};
