//! `larder-lab bench live`.

use larder_settings::row::{List, Settings, Text};
use larder_settings::settings;
use larder_settings::table::{Command, Setting};

const OUTPUT: Setting = Setting::run("Output");
const RUN: Setting = Setting::run("Options");

/// `larder-lab bench live`.
pub const BENCH_LIVE: Command = Command {
    path: &["bench", "live"],
    about: "Measure live capture and the limit of the kernel's rings",
    long: "Creates a pair of interfaces in a network namespace. A generator sends frames on a core of its \
own, and a reader on another core captures them. Stages: walk visits the frames in the kernel's \
rings and returns them (the limit of any reader). source makes batches of them, and decode \
decodes each packet. annotate and store run the program itself on the reader's core, without and \
with a packet store in the directory for temporary files. page is store with the page of --ui and \
ten clients on the generator's core, which fetch what a browser with the page fetches. All stages \
run once per round; figures are medians. Every frame must be received or counted as dropped by the \
kernel; otherwise the run fails.

On a pair of interfaces the kernel receives frames in the CPU time of the sender, so the \
generator's time is that of both. A network namespace needs root.

Examples:
  larder-lab bench live
  larder-lab bench live --sizes 60 --rounds 5 --measured-ms 5000
  larder-lab bench live --rate 100000 --ring 1MiB",
    settings: BenchLive::ROWS,
};

settings! {
    /// All settings of `larder-lab bench live`.
    pub struct BenchLive {
        pub format: &'static str = OUTPUT.choice(&["table", "markdown", "json"]).default("table")
            .help("Choose the format of the results")
            .more("table is for a terminal, markdown for a page. json prints one object per stage and size.")
            .why("Rows of all formats are medians."),
        pub sizes: Text = RUN.word().default("60,1500")
            .value("LIST")
            .help("Send frames of these sizes, 60 to 1514 bytes")
            .more("Each size is measured by itself.")
            .why("The shortest frames cost most per byte, the longest most per frame."),
        pub stages: List = RUN.list().default("none")
            .help("Measure these stages")
            .more("Stages are walk, source, decode, annotate, store and page. none measures all.")
            .why("One stage for a minute shows more about the disk than all stages for seconds."),
        pub flows: usize = RUN.count(1, 1_000_000).default("1000")
            .help("Set the number of flows")
            .more("One frame in 500 is a DNS response of 100 bytes.")
            .why("Rings distribute traffic by flow."),
        pub rate: u64 = RUN.count(0, 1_000_000_000).default("0")
            .help("Send this many frames per second")
            .more("0 sends as many as possible.")
            .why("Time per packet is most exact where no packet is dropped."),
        pub rings: usize = RUN.count(1, 64).default("1")
            .help("Set the number of rings of the interface")
            .why("One reader empties all rings, so more rings show the cost of merging."),
        pub ring: u64 = RUN.bytes(256 << 10, 1 << 31).default("64MiB")
            .help("Set the size of one ring")
            .why("A small ring shows the counters of a full ring."),
        pub xdp: bool = RUN.switch()
            .help("Also measure the source with AF_XDP (feature xdp)")
            .why("AF_XDP bypasses the network stack of the kernel."),
        pub rounds: usize = RUN.count(1, 1_000).default("3")
            .help("Set the number of rounds")
            .more("Each stage runs once per round.")
            .why("Interleaving spreads a disturbance over all stages."),
        pub measured_ms: u64 = RUN.count(10, 600_000).default("2000")
            .value("MILLISECONDS")
            .help("Send frames for this long per round")
            .why("The kernel accounts run time with a resolution of a few milliseconds."),
    }
}
