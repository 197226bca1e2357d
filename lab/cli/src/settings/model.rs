//! Rows of `larder-lab model`.

use larder_settings::table::{Command, Kind, ROW, SWITCH, Setting};

use super::sim::TRACE_FORMATS;

const EXPERIMENT: Setting = Setting { group: "Experiment", ..ROW };
const MODEL_INPUT: Setting = Setting { group: "Model", ..ROW };
const MODEL_TRACE: Setting = Setting { group: "Trace", ..ROW };

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
    settings: &[
        Setting {
            name: "hit-ratio",
            value_name: "LIST",
            default: "90%",
            help: "Use these hit ratios, separated by commas",
            more: "Ratios are written as 0.9 or 90%.",
            why: "The default is that of the memo; busy resolvers are near it.",
            ..MODEL_INPUT
        },
        Setting {
            name: "q1",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000_000_000 },
            help: "Set the responses per second when all queries hit",
            more: "Needs --q2. Without it the model uses a measurement of unbound on one core, \
                and states so.",
            ..MODEL_INPUT
        },
        Setting {
            name: "q2",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000_000_000 },
            help: "Set the responses per second when all queries miss",
            more: "Needs --q1. Each miss has one external query.",
            why: "Measure it as Q1, on the same cores: only their ratio matters for the share of time.",
            ..MODEL_INPUT
        },
        Setting {
            name: "external-queries",
            value_name: "N",
            default: "1",
            help: "Set the average number of external queries per miss",
            more: "Q2 was measured with one. The additional cost of a miss is multiplied by this number.",
            why: "A forwarder sends one; the memo has 1.44 to 1.63 for resolvers.",
            ..MODEL_INPUT
        },
        Setting {
            name: "wanted",
            value_name: "LIST",
            default: "70%,60%,50%",
            help: "Print the Q2/Q1 for these shares of time on hits",
            more: "With a trace it is printed only on request. With --format csv it replaces the \
                other results.",
            why: "The default is that of the memo.",
            ..MODEL_INPUT
        },
        Setting {
            name: "trace",
            kind: Kind::Path,
            value_name: "FILE|STREAM",
            help: "Determine hit ratios from this trace",
            more: "It replaces --hit-ratio, and takes what larder-lab sim hit-ratio takes. Expiry \
                counts if the trace has it.",
            ..MODEL_TRACE
        },
        Setting {
            name: "trace-format",
            value_name: "FORMAT",
            kind: Kind::Choice(&TRACE_FORMATS),
            default: "auto",
            help: "Set the format of the trace",
            why: "auto recognizes most formats by name and first bytes, but not bare numbers.",
            ..MODEL_TRACE
        },
        Setting {
            name: "cache-size",
            value_name: "LIST",
            default: "1%,5%,10%,30%,100%",
            help: "Simulate these cache sizes",
            more: "Sizes are entries (10000, 10k) or shares of the distinct keys (5%).",
            why: "100% stores everything, so the remaining misses are new or expired keys.",
            ..MODEL_TRACE
        },
        Setting {
            name: "policy",
            value_name: "LIST",
            default: "partitioned,lru",
            help: "Simulate these replacement policies",
            more: "The names are those of larder-lab sim hit-ratio.",
            why: "The default has the policy of larder and that of most servers.",
            ..MODEL_TRACE
        },
        Setting {
            name: "seed",
            value_name: "N",
            kind: Kind::Seed,
            default: "0x1",
            help: "Set the seed of generated traces and random policies",
            why: "The same seed gives the same numbers.",
            ..MODEL_TRACE
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Cores,
            default: "all",
            help: "Set the number of replay threads",
            why: "The numbers do not depend on it.",
            ..MODEL_TRACE
        },
        Setting {
            name: "measure",
            group: "Experiment",
            help: "Measure Q1, Q2 and mixes of servers on this machine",
            more: "Results are printed next to those of the model. It needs a network namespace: \
                root, or unshare --user --map-root-user.",
            why: "It is the experiment of the memo.",
            ..SWITCH
        },
        Setting {
            name: "measure-servers",
            value_name: "LIST",
            default: "larder,unbound,dnsdist",
            help: "Measure these servers",
            more: "Servers are larder, unbound, dnsdist and bind. A line reports servers that are \
                not installed.",
            ..EXPERIMENT
        },
        Setting {
            name: "measure-rounds",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "5",
            help: "Set the number of rounds",
            more: "Each server is measured once per round, and medians count.",
            why: "A disturbance affects few rounds.",
            ..EXPERIMENT
        },
        Setting {
            name: "measure-ms",
            value_name: "MILLISECONDS",
            kind: Kind::Count { min: 10, max: 600_000 },
            default: "1000",
            help: "Measure each server for this long per round",
            why: "The kernel accounts run time with a resolution of a few milliseconds.",
            ..EXPERIMENT
        },
        Setting {
            name: "measure-hot",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 100_000_000 },
            default: "10000",
            help: "Set the number of popular names, which hit",
            why: "A small site queries about as many names in an hour.",
            ..EXPERIMENT
        },
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["table", "csv", "json"]),
            default: "table",
            group: "Output",
            help: "Choose the format of the results",
            why: "The table is for people; the other formats have more digits.",
            ..ROW
        },
        Setting {
            name: "quiet",
            group: "Output",
            help: "Print errors and damage only, without progress and notes",
            why: "Notes list doubtful results, so they are printed by default.",
            ..SWITCH
        },
    ],
};
