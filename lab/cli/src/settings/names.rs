//! Rows of `larder-lab names`.

use std::path::PathBuf;

use larder_settings::row::Settings;
use larder_settings::settings;
use larder_settings::table::{Command, Setting};

const INPUT: Setting = Setting::run("Input");
const OUTPUT: Setting = Setting::run("Output");

/// `larder-lab names`.
pub const NAMES: Command = Command {
    path: &["names"],
    about: "Measure how often larder annotate chooses the right name",
    long: "Flows that state their name (TLS, QUIC, HTTP) show how good the choice by lookups is. larder-lab \
withholds the name of each such flow. It lets larder annotate choose one as if the flow stated \
none, and compares the two. Results show how many choices are right, by source and by flag. They \
also show whether the confidence is true: of the names with 90 %, nine in ten must be right.

Only flows with a name by lookups count. A choice uses only what annotate has when it writes the \
record of the flow.

Exit status: 0 done; 1 done, but the input was damaged or cut short; 2 usage, input or output \
error.

Examples:
  larder-lab names trace.pcap
  larder-lab names monday.pcap tuesday.pcap --figure reliability.svg
  larder-lab names --zeek-dns dns.log --zeek-log ssl.log --format json
  larder-lab names trace.pcap --format jsonl > flows.jsonl",
    settings: Names::ROWS,
};

settings! {
    /// All settings of `larder-lab names`.
    pub struct Names {
        pub capture: Vec<PathBuf> = INPUT.path().many().positional()
            .value("CAPTURE")
            .help("Read packets from these capture files")
            .more("Several files are merged by time."),
        pub zeek_dns: Option<PathBuf> = INPUT.path()
            .value("FILE")
            .help("Read lookups from this dns.log of Zeek")
            .more("Needs --zeek-log."),
        pub zeek_log: Option<PathBuf> = INPUT.path()
            .value("FILE")
            .help("Read flows and the names that they state from this log")
            .more("A log of Zeek with a column server_name or host, such as ssl.log. It replaces the \
                captures."),
        pub format: &'static str = OUTPUT.choice(&["table", "json", "jsonl"]).default("table")
            .help("Choose the format of the results")
            .more("table is for people. json prints one object with all figures. jsonl prints an \
                object per flow: what it states, what was chosen, and why."),
        pub train: Option<PathBuf> = OUTPUT.path()
            .value("FILE")
            .help("Make the table that chooses among names in this file")
            .more("It is source text for the next build of larder. Needs --zeek-dns and --zeek-log, with some \
                thousand flows. What is printed is the share of right names with tables from one half of the \
                clients, on the other half, for three divisions."),
        pub figure: Option<PathBuf> = OUTPUT.path()
            .value("FILE")
            .help("Write the reliability as an SVG figure to this file")
            .more("It shows the share of right names for each tenth of the confidence."),
    }
}
