//! Rows of `larder-lab model`.

use larder_settings::table::{Command, Kind, ROW, SWITCH, Setting};

use super::sim::TRACE_FORMATS;

const EXPERIMENT: Setting = Setting { group: "Experiment", ..ROW };
const MODEL_INPUT: Setting = Setting { group: "Model", ..ROW };
const MODEL_TRACE: Setting = Setting { group: "Trace", ..ROW };

/// `larder-lab model`.
pub const MODEL: Command = Command {
    path: &["model"],
    about: "Say what a cache is worth to a DNS server: time on hits, answers a second",
    long: "A server that answers Q1 queries a second when all hit its cache and Q2 when all miss spends the \
part A = r*Q2 / (r*Q2 + Q1*(1-r)) of its time on hits at hit ratio r, and answers 1 / (r/Q1 + (1-r)/Q2) \
queries a second (JINMEI, bind10-dev, 2013). Measured servers answer 3 to 21 % fewer at 90 % hits; that \
stands beside every result.

r is given with --hit-ratio, or found by replaying a trace against caches of several sizes, with the ends \
of lives that the trace has.

With --measure it runs the experiment: servers on one core, a stub upstream and a load of its own, all hits, all misses, and the \
mix, beside what the model makes of the first two.

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
            help: "Parts of the queries that the cache answers: 0.9 or 90%, apart by commas",
            why: "What the memo assumes; busy resolvers are near it.",
            ..MODEL_INPUT
        },
        Setting {
            name: "q1",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000_000_000 },
            help: "Answers a second when all queries hit; with --q2",
            why: "Without it, what was measured of unbound on one core stands in, and the output says so.",
            ..MODEL_INPUT
        },
        Setting {
            name: "q2",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000_000_000_000 },
            help: "Answers a second when all queries miss, with one external query each; with --q1",
            why: "Measured as Q1, on the same cores: only their ratio decides how the time is spent.",
            ..MODEL_INPUT
        },
        Setting {
            name: "external-queries",
            value_name: "N",
            default: "1",
            help: "External queries a miss, on average, where Q2 was measured with one",
            why: "A forwarder asks one; the memo has 1.44 to 1.63 for resolvers. What a miss takes beyond a hit is multiplied by it.",
            ..MODEL_INPUT
        },
        Setting {
            name: "wanted",
            value_name: "LIST",
            default: "70%,60%,50%",
            help: "Parts of the time on hits for which to say the Q2/Q1 that gives them",
            why: "Those of the memo. With a trace it is said only where asked for; asked for with --format csv, it is the CSV.",
            ..MODEL_INPUT
        },
        Setting {
            name: "trace",
            kind: Kind::Path,
            value_name: "FILE|STREAM",
            help: "A trace to find hit ratios with, as of larder-lab sim hit-ratio",
            why: "Instead of --hit-ratio. Ends of lives count where the trace has them.",
            ..MODEL_TRACE
        },
        Setting {
            name: "trace-format",
            value_name: "FORMAT",
            kind: Kind::Choice(&TRACE_FORMATS),
            default: "auto",
            help: "Format of the trace",
            why: "Most are told by their name and first octets; the bare numbers are not.",
            ..MODEL_TRACE
        },
        Setting {
            name: "cache-size",
            value_name: "LIST",
            default: "1%,5%,10%,30%,100%",
            help: "Sizes of the cache: entries as 10000 or 10k, or parts of the different keys as 5%",
            why: "The last holds everything: what still misses is new, or has ended.",
            ..MODEL_TRACE
        },
        Setting {
            name: "policy",
            value_name: "LIST",
            default: "partitioned,lru",
            help: "Replacement policies, as of larder-lab sim hit-ratio",
            why: "Larder's own, and what most servers do.",
            ..MODEL_TRACE
        },
        Setting {
            name: "seed",
            value_name: "N",
            kind: Kind::Seed,
            default: "0x1",
            help: "Seed of traces that are made up, and of what policies leave to chance",
            why: "The same seed gives the same numbers.",
            ..MODEL_TRACE
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Cores,
            default: "all",
            help: "Threads that replay",
            why: "The numbers do not depend on it.",
            ..MODEL_TRACE
        },
        Setting {
            name: "measure",
            group: "Experiment",
            help: "Measure Q1, Q2 and the mix of servers on this machine, beside what the model says",
            why: "The memo's experiment. It needs a network of its own: root, or unshare --user --map-root-user.",
            ..SWITCH
        },
        Setting {
            name: "measure-servers",
            value_name: "LIST",
            default: "larder,unbound,dnsdist",
            help: "Servers that take part: larder unbound dnsdist bind",
            why: "One that is not installed is left out, with a line that says so.",
            ..EXPERIMENT
        },
        Setting {
            name: "measure-rounds",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "5",
            help: "Rounds; every server is asked once a round, and medians count",
            why: "What disturbs one round disturbs few.",
            ..EXPERIMENT
        },
        Setting {
            name: "measure-ms",
            value_name: "N",
            kind: Kind::Count { min: 10, max: 600_000 },
            default: "1000",
            help: "Milliseconds for which a server is asked in a round",
            why: "The kernel counts time that a server ran to some milliseconds.",
            ..EXPERIMENT
        },
        Setting {
            name: "measure-hot",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 100_000_000 },
            default: "10000",
            help: "Names that are asked again and again, and hit",
            why: "What a small site asks in an hour.",
            ..EXPERIMENT
        },
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["table", "csv", "json"]),
            default: "table",
            group: "Output",
            help: "Aligned text, CSV, or one JSON object",
            why: "Text is for eyes; the others have more digits.",
            ..ROW
        },
        Setting {
            name: "quiet",
            group: "Output",
            help: "No progress, no notes; errors and damage only",
            why: "Notes say what to doubt, so they are printed unless asked not to.",
            ..SWITCH
        },
    ],
};
