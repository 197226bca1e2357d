//! Rows of the rotation of logs: `larder annotate`.

use larder_settings::settings;
use larder_settings::table::Setting;

const ROTATION: Setting = Setting::lasting("Log rotation");

settings! {
    /// How logs are rotated.
    pub struct Rotation {
        pub rotate_size: u64 = ROTATION.bytes(0, 1 << 60).default("0")
            .help("Rotate the log at this size")
            .more("0 disables it. Closed files are named NAME.TIME.EXT, by the time of their first \
                record. The setting also applies to dns.log."),
        pub rotate_every: u32 = ROTATION.seconds(0, 31_622_400).default("0")
            .help("Rotate the log at this interval")
            .more("0 disables it. Intervals are aligned in UTC: 1h rotates on the hour.")
            .why("larder uses packet times, so each file has the same traffic live and from a capture."),
        pub compress: bool = ROTATION.switch()
            .help("Compress closed logs with gzip")
            .why("One thread of the lowest priority compresses. It deletes a log only after the \
                compressed file is complete."),
        pub logs_budget: u64 = ROTATION.bytes(0, 1 << 60).default("0")
            .help("Delete the oldest logs above this total size")
            .more("0 disables it. larder deletes only files that it closed, and recognizes them by name. \
                It closes a file at half of the budget at the latest."),
    }
}
