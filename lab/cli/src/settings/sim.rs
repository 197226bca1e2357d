//! Rows of `larder-lab sim`.

use std::path::PathBuf;

use larder_settings::row::{Row, Settings, Text};
use larder_settings::settings;
use larder_settings::table::{Command, Setting};
use larder_sim::trace::Format;

const SIMULATION: Setting = Setting::run("Simulation");
const OUTPUT: Setting = Setting::run("Output");
const INPUT: Setting = Setting::run("Input");
const RUN: Setting = Setting::run("Options");

/// Names of trace formats.
pub const TRACE_FORMATS: [&str; Format::ALL.len()] = {
    let mut names = [""; Format::ALL.len()];
    let mut number = 0;
    while number < names.len() {
        names[number] = Format::ALL[number].as_str();
        number += 1;
    }
    names
};

const SIM_FORMAT: Row<&'static str> = OUTPUT
    .choice(&["table", "csv", "json"])
    .default("table")
    .help("Choose the format of the results")
    .why("The table is for people; programs read the others.");

const SIM_SEED: Row<u64> = RUN
    .seed()
    .default("0x1")
    .help("Set the seed of streams, spread and sampling")
    .why("The same seed gives the same rows on any machine.");

const SIM_THREADS: Row<usize> = RUN
    .cores()
    .default("all")
    .help("Set the number of simulation threads")
    .why("The rows are the same for any number.");

/// `larder-lab sim hit-ratio`.
pub const SIM_HIT_RATIO: Command = Command {
    path: &["sim", "hit-ratio"],
    about: "Replay traces against cache policies, and print hit ratios",
    long: "Reads each trace once (twice if it is larger than memory), and replays it against each policy at \
each capacity, on all cores. The policies partitioned, fifo and size-aware are larder's own \
code; the others are references. belady is the bound of all policies, for lookups of objects of \
one size without expiry. Sizes, stores, removals and expiry are simulated if the trace has them.

Results are written to standard output, problems of a trace to standard error.

Exit status: 0 done; 1 done, but some records could not be read; 2 usage, input or output error; \
130 interrupted, the results so far are printed.

Examples:
  larder-lab sim hit-ratio --trace zipf:0.9 --policy all
  larder-lab sim hit-ratio --trace OLTP.lis.zst web07.trace.xz --capacity 1%,5%,10%,30% -o curves
  larder-lab sim hit-ratio --trace cdn.csv.zst --by bytes --capacity 1GiB,10GiB --policy s3-fifo,lru
  larder-lab sim hit-ratio --trace huge.oracleGeneral.zst --sample auto",
    settings: HitRatio::ROWS,
};

settings! {
    /// All settings of `larder-lab sim hit-ratio`.
    pub struct HitRatio {
        pub trace: Vec<PathBuf> = INPUT.path().many().required()
            .value("FILE|STREAM")
            .help("Replay these trace files or generated streams")
            .more("Files may be compressed (.gz, .zst, .xz). Streams are \
                zipf:ALPHA[:ITEMS[:REQUESTS]], dns:SEED, uniform:ITEMS and loop:ITEMS. larder-lab \
                replays each trace by itself. - reads standard input, which must fit in memory."),
        pub trace_format: &'static str = INPUT.choice(&TRACE_FORMATS).default("auto")
            .help("Set the format of the traces")
            .why("auto recognizes most formats by name and first bytes, but not bare numbers."),
        pub policy: Text = SIMULATION.word().default("partitioned,s3-fifo,w-tinylfu,arc,lru,fifo")
            .value("LIST")
            .help("Simulate these policies, separated by commas, or all")
            .why("The default has the policy of larder, the best known ones, and two simple references."),
        pub capacity: Text = SIMULATION.word().default("1%,5%,10%,30%")
            .value("LIST")
            .help("Simulate these capacities, separated by commas")
            .more("Capacities are entries (1000), sizes with --by bytes (1GiB), or shares (10%). \
                Shares are of the distinct keys of the trace, or of the bytes of its distinct \
                objects."),
        pub by: &'static str = SIMULATION.choice(&["entries", "bytes"]).default("entries")
            .value("UNIT")
            .help("Count capacities in entries or in bytes")
            .why("Only some traces have sizes; in others an object counts as one byte."),
        pub fill: bool = SIMULATION.switch()
            .help("Store the key of each lookup that misses")
            .more("This is the default; --no-fill disables it.")
            .why("A cache in front of an origin does this, and so do most published simulations."),
        pub no_fill: bool = SIMULATION.switch()
            .help("Store only what the trace stores")
            .why("It models a capture, where responses are learned and queries are not."),
        pub sample: Option<Text> = SIMULATION.word()
            .value("RATE")
            .help("Simulate a sample of the keys (0.01, 1% or auto)")
            .why("It is for traces of billions of requests. The error is printed with each hit ratio."),
        pub seed: u64 = SIMULATION.seed().default("0x1")
            .help("Set the seed of streams, samples and random policies")
            .why("The same seed gives the same hits on any machine."),
        pub cores: usize = SIMULATION.cores().default("all")
            .help("Set the number of replay threads")
            .why("Hit ratios do not depend on the number."),
        pub format: &'static str = OUTPUT.choice(&["table", "csv", "json"]).default("table")
            .help("Choose the format of the results")
            .why("The table is for people; programs read the others."),
        pub output: Option<PathBuf> = OUTPUT.path()
            .value("DIR")
            .letter('o')
            .help("Also write hit-ratio.csv, results.json and SVG curves here")
            .more("larder-lab creates the directory, and replaces files with these names."),
        pub quiet: bool = OUTPUT.switch()
            .help("Print damage and errors only, without progress and notes")
            .why("Progress is drawn on a terminal only."),
    }
}

/// `larder-lab sim sync`.
pub const SIM_SYNC: Command = Command {
    path: &["sim", "sync"],
    about: "Simulate ways to share a cache among cores",
    long: "Replays a trace on virtual cores, and prints hits, outdated values among them, and the work of \
sharing for each way. With synchronous and periodic, a main cache has a replica per core, which \
shows changes at once or after the period. With independent each core has its own cache and a \
part of the memory, with independent-full the whole size. With sharded each core owns a part of \
the names, and other cores hand requests over.

A value is outdated if it had been replaced before. Each set counts as a change of the value, \
which is the worst case. Columns of work are per request, over all replicas. Records are those \
of the engine's log, with their bytes. Entries counts each changed entry once per sync. Whole \
counts all entries of each of the 64 parts of the table with a change, as the paper copies \
sub-tables. Moved counts requests handed to another core.

Traces are files or generated streams: zipf:ALPHA[:ITEMS[:REQUESTS]], dns:SEED[:REQUESTS].

Examples:
  larder-lab sim sync
  larder-lab sim sync --trace zipf:0.9:200000:3000000 --capacity 8/17 --warm-up 1M
  larder-lab sim sync --trace web07.trace.xz --capacity 1%,10% --mode periodic,sharded --period 1000",
    settings: Sync::ROWS,
};

settings! {
    /// All settings of `larder-lab sim sync`.
    pub struct Sync {
        pub trace: Text = INPUT.word().default("zipf:0.9:200000:3000000")
            .value("TRACE")
            .help("Replay this trace file or generated stream")
            .why("The names of the paper follow Zipf's law; 0.9 is a usual exponent for names."),
        pub trace_format: &'static str = INPUT.choice(&TRACE_FORMATS).default("auto")
            .help("Set the format of the file")
            .why("auto recognizes the first bytes and the name of the file."),
        pub mode: Text = RUN.word().default("all")
            .value("LIST")
            .help("Simulate these ways of sharing the cache")
            .more("The ways are synchronous, periodic, independent, independent-full and sharded.")
            .why("A result is meaningful only compared with the others."),
        pub policy: Text = RUN.word().default("partitioned,paper,lru")
            .value("LIST")
            .help("Simulate these replacement policies")
            .more("The names are those of sim hit-ratio.")
            .why("The default has the policy of larder, the paper's Algorithm 1, and a simple reference."),
        pub capacity: Text = RUN.word().default("8/17")
            .value("LIST")
            .help("Simulate these capacities of the whole cache")
            .more("Capacities are entries (1000) or shares of the distinct names (10%, 8/17).")
            .why("The paper has 17 GB of names and 8 GB of memory."),
        pub cores: u32 = RUN.count(1, 1024).default("8")
            .help("Set the number of virtual cores")
            .why("The paper's machine has eight; this machine may have fewer."),
        pub period: u64 = RUN.count(1, u64::MAX).default("10000")
            .help("Sync after this many requests over all cores")
            .why("At ten million requests per second the default is a millisecond."),
        pub spread: &'static str = RUN.choice(&["random", "flow", "key"]).default("random")
            .value("HOW")
            .help("Distribute requests to cores at random, by flow or by key")
            .why("Network cards distribute flows, which is nearly random for a name."),
        pub reports: Text = RUN.word().default("1")
            .value("SHARE")
            .help("Report this share of replica hits to the main cache")
            .more("Shares are 1, 1/2, 1/8 or 0. A report is sent at the sync, and dropped if the \
                name was evicted before."),
        pub sets: Text = RUN.word().default("10%")
            .value("SHARE")
            .help("Treat this share of lookups as sets of a new value")
            .why("The paper's mix for hit ratios is 90 % get and 10 % set."),
        pub fill: bool = RUN.switch()
            .help("Follow each miss by a set, as a resolver does")
            .more("This is the default.")
            .why("Scripts can state it."),
        pub no_fill: bool = RUN.switch()
            .help("Do not set after a miss")
            .why("It models names that are learned from captured responses."),
        pub fall_through: bool = RUN.switch()
            .help("Look for a missing name in the main cache, too")
            .why("Replicas of the engine do not: names stored since the last sync are misses."),
        pub warm_up: u64 = RUN.count(0, u64::MAX).default("0")
            .help("Exclude this many requests at the start")
            .why("By default cold misses count, as in sim hit-ratio."),
        pub seed: u64 = SIM_SEED,
        pub threads: usize = SIM_THREADS,
        pub format: &'static str = SIM_FORMAT,
    }
}

/// `larder-lab sim lengths`.
pub const SIM_LENGTHS: Command = Command {
    path: &["sim", "lengths"],
    about: "Simulate memory that is split by the length of names",
    long:
        "Reads a list of names, the most popular first, and prints statistics of their lengths to \
standard error. Prints what separate memory for names of different lengths costs, in points of \
hit ratio. The reference is the same policy with bytes counted and no split.

Ways of splitting: moving gives pages to the lengths that need them, with names rounded up to \
their class, as the engine does. universe splits by the needs of all names. popularity splits by \
the square root of that. geometric is the paper's example: 50 for names of 3 bytes, 1 for names \
of 65.

Requests follow Zipf's law in the order of the list; the first third is a warm-up.",
    settings: Lengths::ROWS,
};

settings! {
    /// All settings of `larder-lab sim lengths`.
    pub struct Lengths {
        pub names: PathBuf = INPUT.path().required()
            .help("Read this list of names, the most popular first")
            .more("Lines are names, or rank,name. The file may be compressed.")
            .why("Lists of popular names are public; the list of your resolver is better."),
        pub memory: Text = RUN.word().default("1/17,8/17")
            .value("LIST")
            .help("Simulate these shares of the bytes of all names")
            .why("The paper has 17 GB of names and 8 GB of memory."),
        pub width: Text = RUN.word().default("1,8,16,32")
            .value("LIST")
            .help("Simulate these widths of length classes, 1 to 253 bytes")
            .why("The paper's sub-tables have one length each; classes of the engine are wider."),
        pub policy: Text = RUN.word().default("lru,partitioned")
            .value("LIST")
            .help("Simulate these replacement policies")
            .more("The names are those of sim hit-ratio.")
            .why("The default has a simple reference and the policy of the engine."),
        pub alpha: Text = RUN.word().default("0.9")
            .value("X")
            .help("Set the exponent of Zipf's law, 0 to 10")
            .why("The default is usual for names."),
        pub shuffle: bool = RUN.switch()
            .help("Shuffle the list, so that length and popularity differ")
            .why("Popular names are shorter, which helps or harms a split by length."),
        pub requests: u64 = RUN.count(1, 10_000_000_000).default("3000000")
            .help("Set the number of requests")
            .why("The default makes a hundredth of a point significant."),
        pub seed: u64 = SIM_SEED,
        pub threads: usize = SIM_THREADS,
        pub format: &'static str = SIM_FORMAT,
    }
}

/// `larder-lab sim paper`.
pub const SIM_PAPER: Command = Command {
    path: &["sim", "paper"],
    about: "Reproduce the paper's experiments and compare the results",
    long: "The paper is: Han, Guo and Zeng, Research on Multicore Key-Value Storage System for Domain Name \
Storage (2021). The run covers its Figures 2, 3 and 7 to 13 and Tables 1 and 2. Measures \
throughput and insert latency of the engine on this machine. Simulates hit ratios, sync modes \
and splits by length. Writes CSV and SVG files and a report (report.md and report.html), in \
which each figure stands next to the paper's, with differences and their reasons. Simulated \
results are the same for a seed on any machine; measured results are not.",
    settings: Paper::ROWS,
};

settings! {
    /// All settings of `larder-lab sim paper`.
    pub struct Paper {
        pub output: PathBuf = OUTPUT.path().required()
            .value("DIR")
            .letter('o')
            .help("Write the report to this directory")
            .more("larder-lab creates the directory, and replaces files of an earlier run."),
        pub names: Option<PathBuf> = INPUT.path()
            .help("Use this list of names for Figures 2 and 3")
            .more("The most popular names come first.")
            .why("Without a list, lengths are generated from the distribution of popular names."),
        pub quick: bool = RUN.switch()
            .help("Use small tables and short streams")
            .why("The run takes seconds instead of minutes, and its numbers mean little."),
        pub no_engine: bool = RUN.switch()
            .help("Skip Figures 7 to 12, which measure time")
            .why("The rest is the same on every machine."),
        pub seed: u64 = SIM_SEED,
        pub threads: usize = SIM_THREADS,
    }
}
