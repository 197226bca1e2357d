//! The rows of `larder extract`.

use std::path::PathBuf;

use larder_settings::row::Settings;
use larder_settings::settings;
use larder_settings::table::{Command, Setting};

const INPUT: Setting = Setting::run("Input");
const OUTPUT: Setting = Setting::run("Output");
const FLOWS: Setting = Setting::run("Flows");

/// `larder extract`.
pub const EXTRACT: Command = Command {
    path: &["extract"],
    about: "Write the packets of captures that teach names",
    long: "Writes a small capture with the packets that larder annotate learns names from. These are DNS and \
similar protocols, DHCP, IP fragments, and the first packets of flows. larder annotate --names-read of this \
capture has the effect of --names-read of the whole captures. So the names of many days fit one machine, and \
their hours can be annotated at once.

With larder annotate --cut-every --from, flows of this capture also continue over a cut: notes say which are open. \
Notes are records of link type 162, which larder reads and other programs ignore.

Packets have the times and numbers (packet ID) that they have in the input. Only the payload that larder reads \
is complete; of other packets the headers and one byte of payload are written.

Exit status: 0 done; 1 done, but the input was damaged or cut short (2 with --strict); 2 usage, input or output \
error; 130 interrupted; 141 standard output was closed.

Examples:
  larder extract -r monday.pcap -o monday.names.pcapng
  larder annotate --names-read monday.names.pcapng -r tuesday.pcap
  larder annotate --names-read h0.names.pcapng -r h1.pcap h2.pcap --cut-every 1h --from ... --to ...",
    settings: Extract::ROWS,
};

settings! {
    /// All settings of `larder extract`.
    pub struct Extract {
        pub read: Vec<PathBuf> = INPUT.endpoint().many().required()
            .letter('r')
            .help("Read these capture files (- is standard input)")
            .more("The formats are those of larder annotate. larder merges several files by time."),
        pub output: PathBuf = OUTPUT.endpoint().default("-")
            .letter('o')
            .help("Write the packets to this file (- is standard output)")
            .why("The format is pcapng."),
        pub stats: Option<PathBuf> = OUTPUT.path()
            .value("FILE")
            .help("Write the counters to this file, as JSON")
            .more("Among them are the times of the packets, in seconds since 1970. Two packets in a row have reached \
                clock_s.")
            .why("Programs that start many runs read it."),
        pub quiet: bool = OUTPUT.switch()
            .letter('q')
            .help("Print no progress and no summary")
            .why("Errors are printed anyway."),
        pub strict: bool = OUTPUT.switch()
            .help("Exit with status 2 if the input is damaged")
            .why("Without it the exit status is 1."),
        pub cores: usize = FLOWS.cores().default("all")
            .help("Set the number of worker threads")
            .why("The output is the same for any number."),
        pub ignore_vlan: bool = FLOWS.switch()
            .help("Set it if larder annotate has it")
            .why("It decides which packets belong to one flow."),
        pub flows_max: usize = FLOWS.count(1_000, 1_000_000_000).default("1000000")
            .help("Limit the number of open flows")
            .why("When the table is full, the flow that is idle for longest makes room."),
        pub tcp_idle: u32 = FLOWS.seconds(1, 604_800).default("300s")
            .help("Set the --tcp-idle of larder annotate")
            .why("After this idle time a packet begins a new flow."),
        pub udp_idle: u32 = FLOWS.seconds(1, 604_800).default("60s")
            .help("Set the --udp-idle of larder annotate")
            .why("After this idle time a packet begins a new flow."),
        pub linger: u32 = FLOWS.seconds(0, 3_600).default("5s")
            .help("Set the --linger of larder annotate")
            .why("After this idle time a packet of a closed flow begins a new one."),
    }
}
