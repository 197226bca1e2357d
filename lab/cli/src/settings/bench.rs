//! Rows of what is measured: `larder-lab bench`, and `larder-lab gen`, which makes inputs for it.

use std::path::PathBuf;

use larder_settings::row::{Settings, Text};
use larder_settings::settings;
use larder_settings::table::{Command, Setting};

const OUTPUT: Setting = Setting::run("Output");
const INPUT: Setting = Setting::run("Input");
const RUN: Setting = Setting::run("Options");

/// `larder-lab bench annotate`.
pub const BENCH_ANNOTATE: Command = Command {
    path: &["bench", "annotate"],
    about: "Measure annotate compared with a bare header walk and tshark",
    long: "Runs the contestants in turn for several rounds, and prints median and spread of each. The walk \
over the headers of the mapped file is the limit of any reader. annotate runs on one core, on \
several, and with a lookup per packet. tshark -N nd reads the first packets, if it is installed. \
The walk and annotate map the file again in each round, and include the page faults.

For annotate it also prints the peak of the resident memory, which should not grow with the \
file. The peak includes mapped pages of the file, and memory that the allocator retains from \
earlier rounds. For lookups it prints the rate and the latency of single lookups, from one timed \
group in 1024.",
    settings: BenchAnnotate::ROWS,
};

settings! {
    /// All settings of `larder-lab bench annotate`.
    pub struct BenchAnnotate {
        pub file: Vec<PathBuf> = INPUT.path().many().required()
            .positional()
            .help("Measure with these captures")
            .more("The header walk needs uncompressed pcap or pcapng.")
            .why("larder-lab gen capture makes a large one."),
        pub rounds: usize = RUN.count(1, 1_000).default("5")
            .help("Set the number of rounds")
            .more("Each contestant runs once per round.")
            .why("Interleaving spreads a disturbance over all contestants."),
        pub cores: usize = RUN.cores().default("all")
            .help("Set the worker threads of the multi-core contestant")
            .why("One core is measured in any case."),
        pub tshark_packets: u64 = RUN.count(0, 100_000_000).default("100000")
            .help("Pass this many packets to tshark")
            .more("0 omits tshark.")
            .why("tshark is a hundred times slower, so it gets a part of the file."),
    }
}

/// `larder-lab bench engine`.
pub const BENCH_ENGINE: Command = Command {
    path: &["bench", "engine"],
    about: "Measure the cache, other caches, and the limit of memory",
    long: "Fills the cache until it evicts, then measures lookups, puts and a mix of both. Lookups are \
single, dependent or batched, uniform or by Zipf's law, and misses. The reference is a bare \
table that does the least that memory allows. Entries have a key of 16 bytes and a value of 22.6 \
bytes on average. Every result is checked. Contestants run once per round in rotated order; \
figures are medians with a 95 % interval. On one thread figures are CPU times, on several \
threads they are rates by the clock.

Other caches are not part of this program: build them with
  cargo build --release --manifest-path bench/Cargo.toml
and set --peers bench/target/release/larder-peers, or put that program next to larder-lab.",
    settings: BenchEngine::ROWS,
};

settings! {
    /// All settings of `larder-lab bench engine`.
    pub struct BenchEngine {
        pub format: &'static str = OUTPUT.choice(&["table", "json"]).default("table")
            .help("Choose the format of the results")
            .more("json prints one object per row.")
            .why("The rows are those of the program in bench/, so one script can read both."),
        pub entries: usize = RUN.count(1_000, 100_000_000).default("1000000")
            .help("Set the number of entries in each cache")
            .why("A million entries exceed every cache of the processor."),
        pub operations: usize = RUN.count(1_000, 50_000_000).default("1000000")
            .help("Set the number of operations per workload and round")
            .why("The default is long enough for the clock, and short enough for many rounds."),
        pub threads: usize = RUN.cores().default("all")
            .help("Set the threads of the multi-threaded measurements")
            .why("One thread is measured in any case."),
        pub rounds: usize = RUN.count(1, 1_000).default("10")
            .help("Set the number of rounds")
            .more("Each contestant runs once per round.")
            .why("With fewer than six there is no 95 % interval, and all rounds are shown."),
        pub peers: Option<PathBuf> = INPUT.path()
            .value("PROGRAM")
            .help("Use this larder-peers program")
            .more("The default is the program next to larder-lab.")
            .why("Other caches are in a workspace of their own, so that larder-lab does not depend on them."),
    }
}

/// `larder-lab bench dns`.
pub const BENCH_DNS: Command = Command {
    path: &["bench", "dns"],
    about: "Measure DNS servers and the limits of UDP",
    long:
        "Starts larder dns and, if installed, unbound, dnsdist and BIND in a network namespace, as \
forwarders to a fast upstream. Sends queries for cached names (hits), for a million cached \
names, for new names (misses), and mixes of these. The references are the least that a UDP \
server can do: an echo, and a relay to the same upstream. Every response is checked. Servers run \
on the first cores, load and upstream on others. Each server is measured once per round in \
rotated order; figures are medians with a 95 % interval. Client latency is then measured at half \
the rate of the slowest server.

The configurations of all servers are printed with the figures. A network namespace needs root, \
or: unshare --user --map-root-user larder-lab bench dns

Examples:
  larder-lab bench dns
  larder-lab bench dns --work hits,90 --rounds 3 --measured-ms 500 --servers larder,unbound
  larder-lab bench dns --work 0,50,85,90,95,100 --format json > mixes.json
  larder-lab bench dns --hierarchy --work 0,50,85,90,95,100 --servers larder,unbound,bind
  larder-lab bench dns --hierarchy --dnssec --work 0,90 --servers larder,unbound,bind",
    settings: BenchDns::ROWS,
};

settings! {
    /// All settings of `larder-lab bench dns`.
    pub struct BenchDns {
        pub format: &'static str = OUTPUT.choice(&["table", "markdown", "json"]).default("table")
            .help("Choose the format of the results")
            .more("table is for a terminal, markdown for a page. json prints one object per \
                server and workload.")
            .why("All three include the configurations."),
        pub servers: Text = RUN.word().default("larder,unbound,dnsdist,bind")
            .value("LIST")
            .help("Measure these servers")
            .more("Servers are larder, unbound, dnsdist and bind. A line reports servers that are \
                not installed."),
        pub larder: Option<PathBuf> = INPUT.path()
            .value("PROGRAM")
            .help("Measure this larder program")
            .more("The default is the program next to larder-lab.")
            .why("Use it to measure another build."),
        pub work: Text = RUN.word().default("hits,million,misses,90")
            .value("LIST")
            .help("Run these workloads")
            .more("Workloads are hits, million, misses, or a percentage of hits.")
            .why("They show the cache alone, a cache larger than that of the processor, a \
                forwarder, and the mix of resolvers."),
        pub hot: u32 = RUN.count(1, 100_000_000).default("10000")
            .help("Set the number of popular names")
            .more("All workloads except million use them.")
            .why("A small site queries about as many names in an hour."),
        pub names: u32 = RUN.count(1, 100_000_000).default("1000000")
            .help("Set the number of names of the workload million")
            .why("Bytes per name are meaningful only for many names."),
        pub rounds: usize = RUN.count(1, 1_000).default("10")
            .help("Set the number of rounds")
            .more("Each server is measured once per round.")
            .why("With fewer than six there is no 95 % interval, and all rounds are shown."),
        pub measured_ms: u64 = RUN.count(10, 600_000).default("2000")
            .value("MILLISECONDS")
            .help("Measure each server for this long per round")
            .more("A warm-up of a quarter of that comes first.")
            .why("The kernel accounts run time with a resolution of a few milliseconds."),
        pub cores: usize = RUN.count(1, 256).default("1")
            .help("Set the number of cores and threads of a server")
            .why("The load runs on as many other cores. If none is left, it shares one of the server's."),
        pub in_flight: usize = RUN.count(1, 16_384).default("256")
            .help("Set the number of in-flight queries at full load")
            .why("The default fills batches; more queries only wait in queues."),
        pub edns: bool = RUN.switch()
            .help("Send queries with an OPT record")
            .why("Measuring tools send none by default; most clients of resolvers send one."),
        pub ttl: u32 = RUN.seconds(0, 604_800).default("3600")
            .help("Set the TTL of the upstream's responses")
            .why("No response should expire during the measurement."),
        pub delay_us: u64 = RUN.count(0, 900_000).default("0")
            .value("MICROSECONDS")
            .help("Delay the responses of the upstream")
            .why("Without delay the server is measured and not the wait."),
        pub loss: u32 = RUN.count(0, 99).default("0")
            .value("PERCENT")
            .help("Drop this percentage of queries at the upstream")
            .why("It shows how servers handle loss."),
        pub hierarchy: bool = RUN.switch()
            .help("Resolve from a root instead of forwarding to one upstream")
            .more("Servers find the domains by way of a root and top-level domains.")
            .why("It measures recursion. dnsdist only forwards, so it does not take part."),
        pub dnssec: bool = RUN.switch()
            .help("Sign the zones of --hierarchy and require validation")
            .more("Only responses with the AD bit count. The build needs the feature signed.")
            .why("It measures the cost of validation."),
        pub lame: u32 = RUN.count(0, 100).default("0")
            .value("PERCENT")
            .help("Make the first server of this percentage of domains lame")
            .more("It applies to --hierarchy. A lame server does not serve the domain.")
            .why("Every domain has two servers, so all domains can be resolved."),
        pub no_waiting: bool = RUN.switch()
            .help("Skip the measurement of client latency")
            .why("It takes half of the time."),
    }
}

/// `larder-lab bench http`.
pub const BENCH_HTTP: Command = Command {
    path: &["bench", "http"],
    about: "Measure HTTP caches compared with a bare sender",
    long: "Starts larder http and, if installed, nginx, HAProxy and Varnish in a network namespace, as \
caches in front of an origin. The workload hits has cached objects. pass and through have \
uncacheable objects, generated by the server or streamed from the origin. busy has many clients \
for an object that arrives slowly. The references for hits are senders without HTTP: one buffer \
sent, a body copied, a file sent by the kernel. Responses are checked for status and length, and \
the first of each connection byte by byte. Servers run on the first cores, clients and origin on \
others. Each server is measured once per round in rotated order; figures are medians with a 95 % \
interval.

Over loopback the clients soon limit the rate, so compare CPU time. The configurations of all \
servers are printed with the figures. A network namespace needs root, or: unshare --user \
--map-root-user larder-lab bench http

Examples:
  larder-lab bench http
  larder-lab bench http --work hits --sizes 1KB,64MB --rounds 3 --servers larder,haproxy --strace
  larder-lab bench http --work pass --connections 400
  larder-lab bench http --work busy --sizes 16MB --format markdown",
    settings: BenchHttp::ROWS,
};

settings! {
    /// All settings of `larder-lab bench http`.
    pub struct BenchHttp {
        pub format: &'static str = OUTPUT.choice(&["table", "markdown", "json"]).default("table")
            .help("Choose the format of the results")
            .more("table is for a terminal, markdown for a page. json prints one object per \
                server and workload.")
            .why("All three include the configurations."),
        pub servers: Text = RUN.word().default("larder,nginx,haproxy,varnish")
            .value("LIST")
            .help("Measure these servers")
            .more("Servers are larder, nginx, haproxy and varnish. A line reports servers that \
                are not installed."),
        pub larder: Option<PathBuf> = INPUT.path()
            .value("PROGRAM")
            .help("Measure this larder program")
            .more("The default is the program next to larder-lab.")
            .why("Use it to measure another build."),
        pub work: Text = RUN.word().default("hits,pass,busy")
            .value("LIST")
            .help("Run these workloads")
            .more("Workloads are hits, pass, through, busy, or all.")
            .why("They show cached objects, uncacheable objects, and objects that are still arriving."),
        pub sizes: Option<Text> = RUN.word()
            .value("LIST")
            .help("Use these body lengths, such as 1KB,10KB,1MB,64MB")
            .more("Units are powers of 1,024. By default hits use these four, pass and through \
                64MB, and busy 16MB and 64MB.")
            .why("The defaults show most about each workload."),
        pub connections: usize = RUN.count(1, 4_096).default("100")
            .help("Set the number of connections with repeated requests")
            .why("The default is enough that a server always has a request."),
        pub clients: usize = RUN.count(1, 4_096).default("200")
            .help("Set the number of concurrent clients of the workload busy")
            .why("The default is a load that a thread per client begins to feel."),
        pub busy_ms: u64 = RUN.count(1, 600_000).default("5000")
            .value("MILLISECONDS")
            .help("Set how long the origin of the workload busy sends")
            .why("It models a live video or a slow application."),
        pub rounds: usize = RUN.count(1, 1_000).default("5")
            .help("Set the number of rounds")
            .more("Each server is measured once per round.")
            .why("With fewer than six there is no 95 % interval, and all rounds are shown."),
        pub measured_ms: u64 = RUN.count(10, 600_000).default("2000")
            .value("MILLISECONDS")
            .help("Measure each server for this long per round")
            .more("A warm-up of a quarter of that comes first.")
            .why("The kernel accounts run time with a resolution of a few milliseconds."),
        pub cores: usize = RUN.count(1, 256).default("1")
            .help("Set the number of cores and workers of a server")
            .why("Clients run on as many other cores. If none is left, they share one of the server's."),
        pub strace: bool = RUN.switch()
            .help("Also count system calls with strace")
            .more("The count is a run that is not timed, and needs strace.")
            .why("A traced server is several times slower."),
    }
}

/// `larder-lab gen capture`.
pub const GEN_CAPTURE: Command = Command {
    path: &["gen", "capture"],
    about: "Make a large capture from small ones",
    long: "Reads captures, and writes them repeatedly as one pcap file with nanosecond timestamps until it \
has the requested size. In each repetition times move on by the length of the input. Private \
IPv4 addresses (10/8, 172.16/12, 192.168/16) and unique local IPv6 addresses move by a seeded \
step in their network, with corrected checksums. Public addresses do not change, so that the DNS \
responses in the capture stay correct. The same inputs, size and seed give the same bytes.",
    settings: GenCapture::ROWS,
};

settings! {
    /// All settings of `larder-lab gen capture`.
    pub struct GenCapture {
        pub read: Vec<PathBuf> = INPUT.path().many().required()
            .letter('r')
            .help("Replay these captures")
            .more("Captures must be uncompressed, fit in memory and share a link type.")
            .why("Real traffic has real proportions."),
        pub output: PathBuf = OUTPUT.endpoint().required()
            .letter('o')
            .help("Write the capture to this file (- is a pipe)")
            .why("larder-lab does not write captures to a terminal."),
        pub size: u64 = RUN.bytes(1 << 10, 1 << 50).default("1500MiB")
            .help("Stop before the file exceeds this size")
            .why("The default is large enough that a run takes seconds and caches are cold."),
        pub seed: u64 = RUN.seed().default("0x1")
            .help("Set the seed of the address steps")
            .why("The same seed gives the same bytes."),
    }
}
