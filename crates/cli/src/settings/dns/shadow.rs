//! Rows of `larder dns --shadow`.

use larder_settings::row::{List, Text};
use larder_settings::settings;
use larder_settings::table::Setting;

const SHADOW: Setting = Setting::run("Shadow mode");

settings! {
    /// The comparison with a running resolver.
    pub struct Shadow {
        pub shadow: List = SHADOW.list().many().default("none")
            .value("ADDR[:PORT]")
            .help("Compare with this running resolver without serving clients")
            .more("larder resolves the queries of the resolver's clients for itself, and compares the \
                responses. Give the addresses that clients use; 0.0.0.0 stands for all."),
        pub shadow_from: Text = SHADOW.word().default("-")
            .value("FILE|-|unix:PATH|dnstap:FILE")
            .needs(&["shadow"])
            .help("Read the copy of the resolver's traffic from here")
            .more("Sources: a capture (- is a pipe), a dnstap file, or a dnstap socket that larder creates.")
            .why("tcpdump writes captures and resolvers write dnstap. dnstap also has TCP and the \
                queries of the resolver."),
        pub shadow_speed: u32 = SHADOW.count(0, 1_000).default("0")
            .needs(&["shadow"])
            .help("Replay a file at N times its speed")
            .more("0 replays it as fast as possible.")
            .why("At 1 TTLs expire as they did in the recording."),
        pub shadow_warmup: u64 = SHADOW.seconds(0, 604_800).default("0s")
            .needs(&["shadow"])
            .help("Process queries for this time before counting them")
            .why("The resolver's cache is warm, but larder starts empty."),
        pub shadow_hit_us: u64 = SHADOW.count(1, 10_000_000).default("1000")
            .value("MICROSECONDS")
            .needs(&["shadow"])
            .help("Count responses below this latency as the resolver's hits")
            .more("It applies to captures; dnstap has the queries of the resolver if the resolver logs them."),
        pub json: bool = SHADOW.switch()
            .needs(&["shadow"])
            .help("Print the report as JSON")
            .more("The report is one object, with times in microseconds and shares from 0 to 1."),
    }
}
