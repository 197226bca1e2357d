//! Rows of the operation of `larder dns`: control, metrics, snapshots, logs.

use std::path::PathBuf;

use larder_settings::row::{List, Text};
use larder_settings::settings;
use larder_settings::table::Setting;

use super::super::servers;

const OPERATION: Setting = Setting::lasting("Operation");

settings! {
    /// Control, metrics, snapshots, logs.
    pub struct Operation {
        pub ctl: Option<PathBuf> = servers::CTL,
        pub ctl_mode: Text = servers::CTL_MODE.needs(&["ctl"]),
        pub metrics: Option<Text> = servers::METRICS,
        pub ui: Option<Text> = OPERATION.word().none("none")
            .value("ADDR:PORT|unix:PATH")
            .help("Serve a page with rates, times, names and clients")
            .more("Open it in a browser: http://127.0.0.1:8080/ for 127.0.0.1:8080. The address also has what \
                --metrics serves. An address that other machines reach needs --ui-token. With \
                --query-log-prefix the page shows networks instead of clients.")
            .why("It shows what clients look up, how long it takes, and which upstreams respond."),
        pub ui_token: Option<PathBuf> = servers::UI_TOKEN,
        pub ui_hosts: List = servers::UI_HOSTS,
        pub ui_history: Option<PathBuf> = servers::UI_HISTORY,
        pub log_level: &'static str = servers::LOG_LEVEL,
        pub log_format: &'static str = servers::LOG_FORMAT,
        pub snapshot: Option<PathBuf> = OPERATION.word().none("none")
            .value("FILE")
            .help("Save the cache to this file at the end, load it at start")
            .why("The cache survives a restart. If larder is killed, the older file stays complete."),
        pub snapshot_every: u64 = OPERATION.seconds(0, 86_400).default("900s")
            .needs(&["snapshot"])
            .help("Also save the snapshot at this interval")
            .more("With 0 larder saves it only at the end.")
            .why("A crash loses at most the responses of one interval. Saving takes about a second \
                per million responses while larder serves."),
        pub dnstap: Option<Text> = OPERATION.word().none("none")
            .value("FILE|unix:PATH")
            .help("Write all client and upstream messages as dnstap")
            .more("The target is a file or the socket of a collector. SIGHUP and SIGUSR1 reopen the \
                file after a rotation.")
            .why("It costs a copy of each message."),
        pub query_log: Option<PathBuf> = OPERATION.word().none("none")
            .value("FILE")
            .help("Write a line for each response, or for a sample")
            .more("A line has time, client, query, response code, size and source. SIGHUP and SIGUSR1 \
                reopen the file after a rotation."),
        pub query_log_format: &'static str = OPERATION.choice(&["text", "json"]).default("text")
            .needs(&["query-log"])
            .help("Choose the format of the query log")
            .why("text is for people and awk, json for collectors."),
        pub query_log_sample: u32 = OPERATION.count(1, 1_000_000).default("1")
            .needs(&["query-log"])
            .help("Log one response in N, chosen at random")
            .why("A line takes about a microsecond of a core; one in a hundred has no measurable cost."),
        pub query_log_prefix: Option<Text> = OPERATION.word().none("none")
            .value("BITS[/BITS]")
            .needs(&["query-log"])
            .help("Log only this many bits of client addresses, and no port")
            .more("The default for IPv6 is 56 bits.")
            .why("Queries are personal data: 24 bits identify networks, but not clients in them."),
        pub query_log_size: u64 = OPERATION.bytes(0, 1 << 40).default("256MiB")
            .needs(&["query-log"])
            .help("Rotate the query log at this size")
            .more("0 disables it. The file is renamed to FILE.1.")
            .why("An unattended log must not fill the disk."),
        pub query_log_keep: u32 = OPERATION.count(0, 1_000).default("4")
            .needs(&["query-log"])
            .help("Keep this many rotated query logs")
            .more("larder deletes older ones."),
    }
}
