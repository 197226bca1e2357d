//! Rows of `larder-lab model`.

use std::path::PathBuf;

use larder_settings::row::{Settings, Sourced, Text};
use larder_settings::settings;
use larder_settings::table::{Command, Setting};

use super::sim::TRACE_FORMATS;

const MODEL_INPUT: Setting = Setting::run("Model");
const TRACE: Setting = Setting::run("Trace");
const EXPERIMENT: Setting = Setting::run("Experiment");
const OUTPUT: Setting = Setting::run("Output");

/// `larder-lab model`.
pub const MODEL: Command = Command {
    path: &["model"],
    about: "Estimate the value of a cache to a DNS server",
    long: "A server responds to Q1 queries per second if all hit its cache, and to Q2 if all miss. At hit \
ratio r it spends the share A = r*Q2 / (r*Q2 + Q1*(1-r)) of its time on hits. It responds to 1 / \
(r/Q1 + (1-r)/Q2) queries per second (JINMEI, bind10-dev, 2013). Measured servers respond to 3 \
to 21 % fewer at 90 % hits; each result includes this.

r comes from --hit-ratio, or from a replay of a trace against caches of several sizes, with \
expiry if the trace has it.

With --measure larder-lab runs the experiment: servers on one core, a stub upstream and its own \
load, with all hits, all misses and the mix. It prints the measured mix and the prediction of \
the model.

Examples:
  larder-lab model
  larder-lab model --hit-ratio 80%,90%,95% --q1 500k --q2 60k --external-queries 1.5
  larder-lab model --trace dns.log --cache-size 1k,10k,100k
  larder-lab model --hit-ratio 90% --wanted 50%,60%,70% --format csv
  larder-lab model --measure --hit-ratio 85%,90%,95%",
    settings: Model::ROWS,
};

settings! {
    /// All settings of `larder-lab model`.
    pub struct Model {
        pub hit_ratio: Sourced<Text> = MODEL_INPUT.word().default("90%")
            .value("LIST")
            .with_source()
            .help("Use these hit ratios, separated by commas")
            .more("Ratios are written as 0.9 or 90%.")
            .why("The default is that of the memo; busy resolvers are near it."),
        pub q1: Sourced<Option<u64>> = MODEL_INPUT.count(1, 1_000_000_000_000)
            .with_source()
            .help("Set the responses per second when all queries hit")
            .more("Needs --q2. Without it the model uses a measurement of unbound on one core, \
                and states so."),
        pub q2: Sourced<Option<u64>> = MODEL_INPUT.count(1, 1_000_000_000_000)
            .with_source()
            .help("Set the responses per second when all queries miss")
            .more("Needs --q1. Each miss has one external query.")
            .why("Measure it as Q1, on the same cores: only their ratio matters for the share of time."),
        pub external_queries: Sourced<Text> = MODEL_INPUT.word().default("1")
            .value("N")
            .with_source()
            .help("Set the average number of external queries per miss")
            .more("Q2 was measured with one. The additional cost of a miss is multiplied by this number.")
            .why("A forwarder sends one; the memo has 1.44 to 1.63 for resolvers."),
        pub wanted: Sourced<Text> = MODEL_INPUT.word().default("70%,60%,50%")
            .value("LIST")
            .with_source()
            .help("Print the Q2/Q1 for these shares of time on hits")
            .more("With a trace it is printed only on request. With --format csv it replaces the \
                other results.")
            .why("The default is that of the memo."),
        pub trace: Sourced<Option<PathBuf>> = TRACE.path()
            .value("FILE|STREAM")
            .with_source()
            .help("Determine hit ratios from this trace")
            .more("It replaces --hit-ratio, and takes what larder-lab sim hit-ratio takes. Expiry \
                counts if the trace has it."),
        pub trace_format: Sourced<&'static str> = TRACE.choice(&TRACE_FORMATS).default("auto")
            .with_source()
            .help("Set the format of the trace")
            .why("auto recognizes most formats by name and first bytes, but not bare numbers."),
        pub cache_size: Sourced<Text> = TRACE.word().default("1%,5%,10%,30%,100%")
            .value("LIST")
            .with_source()
            .help("Simulate these cache sizes")
            .more("Sizes are entries (10000, 10k) or shares of the distinct keys (5%).")
            .why("100% stores everything, so the remaining misses are new or expired keys."),
        pub policy: Sourced<Text> = TRACE.word().default("partitioned,lru")
            .value("LIST")
            .with_source()
            .help("Simulate these replacement policies")
            .more("The names are those of larder-lab sim hit-ratio.")
            .why("The default has the policy of larder and that of most servers."),
        pub seed: Sourced<u64> = TRACE.seed().default("0x1")
            .with_source()
            .help("Set the seed of generated traces and random policies")
            .why("The same seed gives the same numbers."),
        pub cores: usize = TRACE.cores().default("all")
            .help("Set the number of replay threads")
            .why("The numbers do not depend on it."),
        pub measure: bool = EXPERIMENT.switch()
            .help("Measure Q1, Q2 and mixes of servers on this machine")
            .more("Results are printed next to those of the model. It needs a network namespace: \
                root, or unshare --user --map-root-user.")
            .why("It is the experiment of the memo."),
        pub measure_servers: Text = EXPERIMENT.word().default("larder,unbound,dnsdist")
            .value("LIST")
            .help("Measure these servers")
            .more("Servers are larder, unbound, dnsdist and bind. A line reports servers that are \
                not installed."),
        pub measure_rounds: usize = EXPERIMENT.count(1, 1_000).default("5")
            .help("Set the number of rounds")
            .more("Each server is measured once per round, and medians count.")
            .why("A disturbance affects few rounds."),
        pub measure_ms: u64 = EXPERIMENT.count(10, 600_000).default("1000")
            .value("MILLISECONDS")
            .help("Measure each server for this long per round")
            .why("The kernel accounts run time with a resolution of a few milliseconds."),
        pub measure_hot: u32 = EXPERIMENT.count(1, 100_000_000).default("10000")
            .help("Set the number of popular names, which hit")
            .why("A small site queries about as many names in an hour."),
        pub format: &'static str = OUTPUT.choice(&["table", "csv", "json"]).default("table")
            .help("Choose the format of the results")
            .why("The table is for people; the other formats have more digits."),
        pub quiet: bool = OUTPUT.switch()
            .help("Print errors and damage only, without progress and notes")
            .why("Notes list doubtful results, so they are printed by default."),
    }
}
