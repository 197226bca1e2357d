//! Rows of logs that are cut: `larder annotate`.

use larder_settings::table::{Kind, ROW, Reach, SWITCH, Setting};

const LOGS: Setting = Setting { group: "Logs", reach: Reach::Lasting, ..ROW };

pub(super) const ROTATE_SIZE: Setting = Setting {
    name: "rotate-size",
    value_name: "SIZE",
    kind: Kind::Bytes { min: 0, max: 1 << 60 },
    default: "0",
    help: "Close the log when it has so many octets, and begin another; 0: any number",
    why: "Closed files are NAME.TIME.EXT, by the time of their first record. It is true of dns.log as well.",
    ..LOGS
};

pub(super) const ROTATE_EVERY: Setting = Setting {
    name: "rotate-every",
    value_name: "TIME",
    kind: Kind::Seconds { min: 0, max: 31_622_400 },
    default: "0",
    help: "Close the log when so much time is over, on the hour for 1h; 0: never",
    why: "The time is the packets', in UTC: an hour of traffic is in one file, live and from a capture.",
    ..LOGS
};

pub(super) const COMPRESS: Setting = Setting {
    name: "compress",
    group: "Logs",
    help: "Compress closed logs with gzip",
    why: "One thread of the lowest priority does it; a file that is being compressed is there until the other is whole.",
    reach: Reach::Lasting,
    ..SWITCH
};

pub(super) const LOGS_BUDGET: Setting = Setting {
    name: "logs-budget",
    value_name: "SIZE",
    kind: Kind::Bytes { min: 0, max: 1 << 60 },
    default: "0",
    help: "Octets of all files of a log together; the oldest are removed; 0: all stay",
    why: "Only files that larder closed are removed, by their names. A file is closed at half of it at the latest.",
    ..LOGS
};
