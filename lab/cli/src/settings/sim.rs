//! Rows of `larder-lab sim`.

use larder_settings::table::{Command, INPUT, Kind, OUTPUT, ROW, SWITCH, Setting};
use larder_sim::trace::Format;

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

const SIM_FORMAT: Setting = Setting {
    name: "format",
    value_name: "FORMAT",
    kind: Kind::Choice(&["table", "csv", "json"]),
    default: "table",
    group: "Output",
    help: "A table, or the same rows as CSV or JSON",
    why: "The table is for eyes; programs read the others.",
    ..ROW
};
const SIM_SEED: Setting = Setting {
    name: "seed",
    value_name: "N",
    kind: Kind::Seed,
    default: "0x1",
    help: "Seed of streams, spread and chances",
    why: "The same seed gives the same rows on any machine.",
    ..ROW
};
const SIM_THREADS: Setting = Setting {
    name: "threads",
    value_name: "N",
    kind: Kind::Cores,
    default: "all",
    help: "Threads that simulate",
    why: "The rows are the same whatever the number.",
    ..ROW
};
/// `larder-lab sim hit-ratio`.
pub const SIM_HIT_RATIO: Command = Command {
    path: &["sim", "hit-ratio"],
    about: "Replay traces against policies and capacities, and print hit ratios",
    long: "Reads each trace once (twice where it is larger than memory) and replays it against every \
policy at every capacity, on all cores. The policies partitioned, fifo, lru and paper are the engine's own \
code; the others are references, and belady is the bound that no policy can pass (look-ups alone, one \
size, no ends). Sizes, stores, removals and ends of lives are honoured where the trace has them.

Results go to standard output, what was wrong with a trace to standard error. Exit status: 0 done; 1 done, \
but records could not be read; 2 usage, input or output; 130 interrupted, what was replayed is printed.

Examples:
  larder-lab sim hit-ratio --trace zipf:0.9 --policy all
  larder-lab sim hit-ratio --trace OLTP.lis.zst web07.trace.xz --capacity 1%,5%,10%,30% -o curves
  larder-lab sim hit-ratio --trace cdn.csv.zst --by bytes --capacity 1GiB,10GiB --policy s3-fifo,lru
  larder-lab sim hit-ratio --trace huge.oracleGeneral.zst --sample auto",
    settings: &[
        Setting {
            name: "trace",
            many: true,
            required: true,
            kind: Kind::Path,
            value_name: "FILE|STREAM",
            help: "Traces, also .gz .zst .xz; or zipf:ALPHA[:ITEMS[:REQUESTS]], dns:SEED, uniform:ITEMS, loop:ITEMS",
            why: "Each is replayed by itself; - reads standard input, which must then fit in memory.",
            ..INPUT
        },
        Setting {
            name: "trace-format",
            value_name: "FORMAT",
            kind: Kind::Choice(&TRACE_FORMATS),
            default: "auto",
            group: "Input",
            help: "Format of the traces",
            why: "Most are told by their name and first octets; the bare numbers are not.",
            ..ROW
        },
        Setting {
            name: "policy",
            value_name: "LIST",
            default: "partitioned,s3-fifo,w-tinylfu,arc,lru,fifo",
            group: "Simulation",
            help: "Policies, with commas, or all",
            why: "What larder runs, the best known of the field, and the two that everybody knows.",
            ..ROW
        },
        Setting {
            name: "capacity",
            value_name: "LIST",
            default: "1%,5%,10%,30%",
            group: "Simulation",
            help: "Capacities, with commas: entries (1000), sizes with --by bytes (1GiB), or shares (10%)",
            why: "Shares are of the trace's different keys, or of the octets of its different objects.",
            ..ROW
        },
        Setting {
            name: "by",
            value_name: "UNIT",
            kind: Kind::Choice(&["entries", "bytes"]),
            default: "entries",
            group: "Simulation",
            help: "What a capacity counts",
            why: "Only some traces have sizes; elsewhere an object is one octet.",
            ..ROW
        },
        Setting {
            name: "fill",
            group: "Simulation",
            help: "A look-up that misses stores its key (so it is unless --no-fill is passed)",
            why: "As in a cache before an origin, and in most published simulations.",
            ..SWITCH
        },
        Setting {
            name: "no-fill",
            group: "Simulation",
            help: "Only the trace's own stores store",
            why: "As in a capture, where answers are learnt and questions are not.",
            ..SWITCH
        },
        Setting {
            name: "sample",
            value_name: "RATE",
            group: "Simulation",
            help: "Simulate in miniature, with this part of the keys (0.01 or 1%), or auto",
            why: "For traces of billions of requests; the error is stated beside each hit ratio.",
            ..ROW
        },
        Setting {
            name: "seed",
            value_name: "N",
            kind: Kind::Seed,
            default: "0x1",
            group: "Simulation",
            help: "Seed of streams, samples, and what policies leave to chance",
            why: "The same seed gives the same hits on every machine.",
            ..ROW
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Cores,
            default: "all",
            group: "Simulation",
            help: "Threads that replay",
            why: "Hit ratios do not depend on the number.",
            ..ROW
        },
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["table", "csv", "json"]),
            default: "table",
            group: "Output",
            help: "Format of the results",
            why: "The table is for eyes.",
            ..ROW
        },
        Setting {
            name: "output",
            letter: Some('o'),
            value_name: "DIR",
            kind: Kind::Path,
            group: "Output",
            help: "Also write hit-ratio.csv, results.json and a curve (SVG) a trace into this directory",
            why: "It is made if need be; files of these names are replaced.",
            ..ROW
        },
        Setting {
            name: "quiet",
            group: "Output",
            help: "No progress and no notes; damage and errors only",
            why: "Progress is drawn on a terminal only.",
            ..SWITCH
        },
    ],
};

/// `larder-lab sim sync`.
pub const SIM_SYNC: Command = Command {
    path: &["sim", "sync"],
    about: "Simulate a cache that several cores share, by how they share it",
    long: "Replays a trace on virtual cores and prints, for each way of sharing: hits, old values \
among them, and the work that sharing takes. Ways: synchronous and periodic (one main and a proxy a \
core, which show changes at once, or after the last so many requests), independent (a cache a core, \
memory divided), independent-full (each core the whole size), sharded (each core a part of the names; \
requests are handed over).

A value is old when it had been replaced before; every set is taken to change the value, which is the \
worst case. Work, a request, over all proxies: records of the engine's log and their octets; entries, \
each changed one once a sync; whole, all entries of every part of the table with a change in it (64 \
parts), as the paper copies sub-tables; moved, requests handed to another core.

Traces are files, or streams that are made up: zipf:ALPHA[:ITEMS[:REQUESTS]], dns:SEED[:REQUESTS].

Examples:
  larder-lab sim sync
  larder-lab sim sync --trace zipf:0.9:200000:3000000 --capacity 8/17 --warm-up 1M
  larder-lab sim sync --trace web07.trace.xz --capacity 1%,10% --mode periodic,sharded --period 1000",
    settings: &[
        Setting {
            name: "trace",
            value_name: "TRACE",
            kind: Kind::Word,
            default: "zipf:0.9:200000:3000000",
            help: "A trace: a file, or the name of a stream",
            why: "The paper's names follow Zipf's law; an exponent of 0.9 is usual for names.",
            ..INPUT
        },
        Setting {
            name: "trace-format",
            value_name: "FORMAT",
            kind: Kind::Choice(&TRACE_FORMATS),
            default: "auto",
            help: "Format of the file",
            why: "auto looks at the first octets and the file's name.",
            ..INPUT
        },
        Setting {
            name: "mode",
            value_name: "LIST",
            default: "all",
            help: "Ways of sharing: synchronous periodic independent independent-full sharded",
            why: "A difference means something beside the others only.",
            ..ROW
        },
        Setting {
            name: "policy",
            value_name: "LIST",
            default: "partitioned,paper,lru",
            help: "Who leaves: policies by name, as in sim hit-ratio",
            why: "The engine's own, the paper's Algorithm 1 as listed, and what everybody knows.",
            ..ROW
        },
        Setting {
            name: "capacity",
            value_name: "LIST",
            default: "8/17",
            help: "Entries of the whole cache, or shares of the distinct names: 1000, 10%, 8/17",
            why: "The paper has 17 GB of names and 8 GB of memory.",
            ..ROW
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1024 },
            default: "8",
            help: "Virtual cores",
            why: "The paper's machine has eight; this one need not.",
            ..ROW
        },
        Setting {
            name: "period",
            value_name: "N",
            kind: Kind::Count { min: 1, max: u64::MAX },
            default: "10000",
            help: "Requests, over all cores, from one sync to the next",
            why: "At ten million requests a second, a millisecond.",
            ..ROW
        },
        Setting {
            name: "spread",
            value_name: "HOW",
            kind: Kind::Choice(&["random", "flow", "key"]),
            default: "random",
            help: "Which core a request comes to: any, its flow's, its name's",
            why: "Network cards spread flows, which for a name is nearly at random.",
            ..ROW
        },
        Setting {
            name: "reports",
            value_name: "SHARE",
            default: "1",
            help: "Share of proxies' hits that main is told of: 1, 1/2, 1/8, 0",
            why: "Told at the sync, and lost if the name has left by then.",
            ..ROW
        },
        Setting {
            name: "sets",
            value_name: "SHARE",
            default: "10%",
            help: "Share of the trace's look-ups that are taken for sets of a new value",
            why: "The paper's mix for hit ratios is 90 % get and 10 % set.",
            ..ROW
        },
        Setting {
            name: "fill",
            help: "A miss is followed by a set, as in a resolver; this is the default",
            why: "Here so that scripts can say what they mean.",
            ..SWITCH
        },
        Setting {
            name: "no-fill",
            help: "Only sets store, as where names are learnt from captured answers",
            why: "Both uses are real, and their numbers differ.",
            ..SWITCH
        },
        Setting {
            name: "fall-through",
            help: "Look for a name in main that the proxy does not show",
            why: "The engine's proxies don't: what was stored since the last sync is a miss.",
            ..SWITCH
        },
        Setting {
            name: "warm-up",
            value_name: "N",
            kind: Kind::Count { min: 0, max: u64::MAX },
            default: "0",
            help: "Requests at the start that do not count",
            why: "Cold misses count unless told otherwise, as in sim hit-ratio.",
            ..ROW
        },
        SIM_SEED,
        SIM_THREADS,
        SIM_FORMAT,
    ],
};

/// `larder-lab sim lengths`.
pub const SIM_LENGTHS: Command = Command {
    path: &["sim", "lengths"],
    about: "Simulate memory split by the length of names",
    long: "Reads a list of names, the most popular first, prints what their lengths are like (to standard \
error), and what it costs in hits to keep names of different lengths apart: in points of hit ratio below \
the same policy with octets counted and nothing split. Ways of splitting: moving (pages go where they are \
needed, names are rounded up to their class: the engine), universe (as all names would need it), popularity \
(by the square root of it), geometric (the paper's example: 50 for names of 3 octets, 1 for those of 65).

Names are asked for by Zipf's law in the order of the list; the first third of the requests warms up.",
    settings: &[
        Setting {
            name: "names",
            required: true,
            kind: Kind::Path,
            help: "A list, one name a line or rank,name; compressed or not",
            why: "Lists of popular names are public; your resolver's own is better.",
            ..INPUT
        },
        Setting {
            name: "memory",
            value_name: "LIST",
            default: "1/17,8/17",
            help: "Memory, as shares of the octets of all names",
            why: "The paper has 17 GB of names and 8 GB of memory.",
            ..ROW
        },
        Setting {
            name: "width",
            value_name: "LIST",
            default: "1,8,16,32",
            help: "Widths of classes in octets, 1 to 253",
            why: "The paper's sub-tables have one length each; the engine's classes are wider.",
            ..ROW
        },
        Setting {
            name: "policy",
            value_name: "LIST",
            default: "lru,partitioned",
            help: "Who leaves: policies by name, as in sim hit-ratio",
            why: "What everybody knows, and the engine's own.",
            ..ROW
        },
        Setting {
            name: "alpha",
            value_name: "X",
            default: "0.9",
            help: "Exponent of Zipf's law, 0 to 10",
            why: "Usual for names.",
            ..ROW
        },
        Setting {
            name: "shuffle",
            help: "Take the list in a shuffled order: length then says nothing of popularity",
            why: "Popular names are shorter, and a split by length profits or suffers from that.",
            ..SWITCH
        },
        Setting {
            name: "requests",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 10_000_000_000 },
            default: "3000000",
            help: "Requests",
            why: "Enough that a hundredth of a point means something.",
            ..ROW
        },
        SIM_SEED,
        SIM_THREADS,
        SIM_FORMAT,
    ],
};

/// `larder-lab sim paper`.
pub const SIM_PAPER: Command = Command {
    path: &["sim", "paper"],
    about: "Do the paper's experiments again, and set them beside its numbers",
    long: "Figures 2, 3 and 7 to 13 and Tables 1 and 2 of Han, Guo and Zeng, Research on Multicore \
Key-Value Storage System for Domain Name Storage (2021): throughput and insert latency of the engine on \
this machine, hit ratios, sync modes and splits by length simulated. Writes CSV and SVG files and one \
report, report.md and report.html, in which every figure stands beside what the paper reports, with what \
differs and why. What is simulated is the same for a seed on any machine; what is measured is not.",
    settings: &[
        Setting {
            name: "output",
            letter: Some('o'),
            value_name: "DIR",
            kind: Kind::Path,
            required: true,
            help: "Where the files go; made if it is not there",
            why: "Files of an earlier run are replaced.",
            ..OUTPUT
        },
        Setting {
            name: "names",
            kind: Kind::Path,
            help: "A list of names, the most popular first, for Figures 2 and 3",
            why: "Without one, lengths are made up as popular names have them.",
            ..INPUT
        },
        Setting {
            name: "quick",
            help: "Small tables and short streams: seconds instead of minutes",
            why: "To see that it works; the numbers mean little.",
            ..SWITCH
        },
        Setting {
            name: "no-engine",
            help: "Leave out what is measured by the clock: Figures 7 to 12",
            why: "The rest is the same on every machine.",
            ..SWITCH
        },
        SIM_SEED,
        SIM_THREADS,
    ],
};
