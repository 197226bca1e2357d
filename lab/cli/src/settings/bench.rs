//! Rows of what is measured: `larder-lab bench`, and `larder-lab gen`, which makes inputs for it.

use larder_settings::table::{Command, INPUT, Kind, OUTPUT, ROW, SWITCH, Setting};

/// `larder-lab bench annotate`.
pub const BENCH_ANNOTATE: Command = Command {
    path: &["bench", "annotate"],
    about: "Measure annotate beside the bare header walk, and tshark where installed",
    long: "Runs the contestants in turn, several rounds, and prints the median and the spread of \
each: a walk over the headers of the mapped file (the limit of what any reader could do), annotate \
on one core and on several, annotate with a lookup for every packet, and tshark -N nd on the first \
packets. The walk, like annotate, maps the file anew in each round and pays for its page faults.

For annotate it also prints the peak of the resident memory (the pages of the file that are mapped at \
the time, and what the allocator kept from rounds before, included): it should not grow with the file. \
For lookups it prints their rate and how long single ones take, by timing one group of them in 1024.",
    settings: &[
        Setting {
            name: "file",
            positional: true,
            required: true,
            many: true,
            kind: Kind::Path,
            value_name: "FILE",
            help: "Captures; uncompressed pcap or pcapng for the walk",
            why: "larder-lab gen capture makes a large one.",
            ..INPUT
        },
        Setting {
            name: "rounds",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "5",
            help: "Rounds; every contestant runs once a round",
            why: "Interleaved, so that a busy moment hits all of them.",
            ..ROW
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Cores,
            default: "all",
            help: "Worker threads of the contestant with many",
            why: "One core is measured in any case.",
            ..ROW
        },
        Setting {
            name: "tshark-packets",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 100_000_000 },
            default: "100000",
            help: "Packets given to tshark; 0 leaves it out",
            why: "It is a hundred times slower, so it gets a part.",
            ..ROW
        },
    ],
};

/// `larder-lab bench engine`.
pub const BENCH_ENGINE: Command = Command {
    path: &["bench", "engine"],
    about: "Measure the cache beside the limit of memory, and beside other caches where built",
    long: "Fills the cache until it is full and has churned, then measures look-ups (one at a time, \
dependent, in batches, uniform and by Zipf's law, missing), puts, and a mix of both, beside a bare table \
that does the least that memory allows. Entries have a key of 16 octets and a value of 22.6 on average. \
Every answer is checked. Contestants run once a round in rotated order; figures are medians with their \
95 % interval. On one thread they are times that the thread ran, on several they are rates by the clock.

Other caches are not part of this program: build them with
  cargo build --release --manifest-path bench/Cargo.toml
and name the program with --peers bench/target/release/larder-peers, or put it beside this one.",
    settings: &[
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["table", "json"]),
            default: "table",
            group: "Output",
            help: "A table, or a line of JSON a row",
            why: "The lines are those of the program in bench/, so that both can be read by one script.",
            ..ROW
        },
        Setting {
            name: "entries",
            value_name: "N",
            kind: Kind::Count { min: 1_000, max: 100_000_000 },
            default: "1000000",
            help: "Entries in each cache",
            why: "A million do not fit in any cache of the processor.",
            ..ROW
        },
        Setting {
            name: "operations",
            value_name: "N",
            kind: Kind::Count { min: 1_000, max: 50_000_000 },
            default: "1000000",
            help: "Operations of one work in one round",
            why: "Long enough for the clock, short enough for many rounds.",
            ..ROW
        },
        Setting {
            name: "threads",
            value_name: "N",
            kind: Kind::Cores,
            default: "all",
            help: "Threads of the measurements with many",
            why: "One thread is measured in any case.",
            ..ROW
        },
        Setting {
            name: "rounds",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "10",
            help: "Rounds; every contestant runs once a round",
            why: "With fewer than six there is no interval of 95 %, and all rounds are shown.",
            ..ROW
        },
        Setting {
            name: "peers",
            value_name: "PROGRAM",
            kind: Kind::Path,
            group: "Input",
            help: "The program larder-peers, if it does not lie beside this one",
            why: "Other caches live in a workspace of their own, so that this program does not depend on them.",
            ..ROW
        },
    ],
};

/// `larder-lab bench dns`.
pub const BENCH_DNS: Command = Command {
    path: &["bench", "dns"],
    about: "Measure DNS servers beside one another and the limits of UDP",
    long: "Starts larder dns and, where installed, unbound, dnsdist and BIND as forwarders to an upstream of \
its own that answers at once, in a network of its own, and asks them: names that they hold (hits), a million \
of those, names that nobody asked before (misses), and mixes of both. Beside them the least that a server of \
UDP can do: an echo, and a relay to the same upstream. Every answer is checked. Servers run on the first cores, \
questions and upstream on others. All are asked once a round, in rotated order; figures are medians with their \
95 % interval. Then all are asked at half the rate of the slowest, to see how long clients wait.

Configurations of all servers are printed with the figures. A network of its own is root's to have, or \
anybody's by: unshare --user --map-root-user larder-lab bench dns

Examples:
  larder-lab bench dns
  larder-lab bench dns --work hits,90 --rounds 3 --measured-ms 500 --servers larder,unbound
  larder-lab bench dns --work 0,50,85,90,95,100 --format json > mixes.json
  larder-lab bench dns --hierarchy --work 0,50,85,90,95,100 --servers larder,unbound,bind
  larder-lab bench dns --hierarchy --dnssec --work 0,90 --servers larder,unbound,bind",
    settings: &[
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["table", "markdown", "json"]),
            default: "table",
            group: "Output",
            help: "Tables for a terminal or a page, or a line of JSON for each server and work",
            why: "Configurations are in all three.",
            ..ROW
        },
        Setting {
            name: "servers",
            value_name: "LIST",
            default: "larder,unbound,dnsdist,bind",
            help: "Servers that take part: larder unbound dnsdist bind",
            why: "One that is not installed is left out, with a line that says so.",
            ..ROW
        },
        Setting {
            name: "larder",
            value_name: "PROGRAM",
            kind: Kind::Path,
            group: "Input",
            help: "The program of larder, if not this one",
            why: "To measure another build.",
            ..ROW
        },
        Setting {
            name: "work",
            value_name: "LIST",
            default: "hits,million,misses,90",
            help: "What is asked: hits, million, misses, or a percentage of hits",
            why: "A cache's speed, the same beyond the processor's caches, a forwarder's, and what resolvers see.",
            ..ROW
        },
        Setting {
            name: "hot",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 100_000_000 },
            default: "10000",
            help: "Names asked again and again, in all works but million",
            why: "What a small site asks in an hour.",
            ..ROW
        },
        Setting {
            name: "names",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 100_000_000 },
            default: "1000000",
            help: "Names of the work million",
            why: "Octets a name mean something for many names only.",
            ..ROW
        },
        Setting {
            name: "rounds",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "10",
            help: "Rounds; every server is asked once a round",
            why: "With fewer than six there is no interval of 95 %, and all rounds are shown.",
            ..ROW
        },
        Setting {
            name: "measured-ms",
            value_name: "N",
            kind: Kind::Count { min: 10, max: 600_000 },
            default: "2000",
            help: "Milliseconds for which a server is asked in a round, after a quarter of that to warm up",
            why: "The kernel counts time that a server ran to some milliseconds.",
            ..ROW
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 256 },
            default: "1",
            help: "Cores and threads of a server",
            why: "Questions come from as many others; where none is left, from one of the server's.",
            ..ROW
        },
        Setting {
            name: "in-flight",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 16_384 },
            default: "256",
            help: "Questions in flight where they leave as fast as answers come",
            why: "Enough to fill batches; more wait in queues only.",
            ..ROW
        },
        Setting {
            name: "edns",
            help: "Questions have an OPT record",
            why: "Tools that measure have none unless told so; most resolvers' clients have one.",
            ..SWITCH
        },
        Setting {
            name: "ttl",
            value_name: "TIME",
            kind: Kind::Seconds { min: 0, max: 604_800 },
            default: "3600",
            help: "TTL of the upstream's answers",
            why: "Nothing is to expire while it is measured.",
            ..ROW
        },
        Setting {
            name: "delay-us",
            value_name: "N",
            kind: Kind::Count { min: 0, max: 900_000 },
            default: "0",
            help: "Microseconds after which the upstream answers",
            why: "At once, so that the server is measured and not the wait.",
            ..ROW
        },
        Setting {
            name: "loss",
            value_name: "PERCENT",
            kind: Kind::Count { min: 0, max: 99 },
            default: "0",
            help: "Of a hundred questions, how many the upstream does not answer",
            why: "Loss is for seeing what servers do about it.",
            ..ROW
        },
        Setting {
            name: "hierarchy",
            help: "Servers find their way from a root, by top level and domains, instead of asking one upstream",
            why: "To measure recursion; dnsdist, which only forwards, takes no part.",
            ..SWITCH
        },
        Setting {
            name: "dnssec",
            help: "With --hierarchy: zones are signed, servers validate, and only answers that they say they validated count",
            why: "To measure what validation costs. The build needs the feature recurse.",
            ..SWITCH
        },
        Setting {
            name: "lame",
            value_name: "PERCENT",
            kind: Kind::Count { min: 0, max: 100 },
            default: "0",
            help: "With --hierarchy: of a hundred domains, how many have a first server that does not know them",
            why: "Every domain has two servers, so all can be found.",
            ..ROW
        },
        Setting {
            name: "no-waiting",
            help: "Leave out how long clients wait",
            why: "Takes half of the time.",
            ..SWITCH
        },
    ],
};

/// `larder-lab bench http`.
pub const BENCH_HTTP: Command = Command {
    path: &["bench", "http"],
    about: "Measure HTTP caches beside one another and what a bare sender does",
    long: "Starts larder http and, where installed, nginx, HAProxy and Varnish as caches before an origin of its \
own, in a network of its own, and asks them: what they hold (hits), what they must pass on (pass: from themselves, \
through: from the origin), and what is still coming (busy: many clients at once, one slow origin). Beside the hits the \
least that a sender can do, without HTTP: one buffer sent, a body copied, a file sent by the kernel. Responses are \
checked: status, length, and the first of each connection octet by octet. Servers run on the first cores, clients and \
origin on others. All are asked once a round, in rotated order; figures are medians with their 95 % interval.

Over loopback whoever asks is soon the limit by the clock; compare processor time. Configurations of all servers are \
printed with the figures. A network of its own is root's to have, or anybody's by: unshare --user --map-root-user \
larder-lab bench http

Examples:
  larder-lab bench http
  larder-lab bench http --work hits --sizes 1KB,64MB --rounds 3 --servers larder,haproxy --strace
  larder-lab bench http --work pass --connections 400
  larder-lab bench http --work busy --sizes 16MB --format markdown",
    settings: &[
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["table", "markdown", "json"]),
            default: "table",
            group: "Output",
            help: "Tables for a terminal or a page, or a line of JSON for each server and work",
            why: "Configurations are in all three.",
            ..ROW
        },
        Setting {
            name: "servers",
            value_name: "LIST",
            default: "larder,nginx,haproxy,varnish",
            help: "Servers that take part: larder nginx haproxy varnish",
            why: "One that is not installed is left out, with a line that says so.",
            ..ROW
        },
        Setting {
            name: "larder",
            value_name: "PROGRAM",
            kind: Kind::Path,
            group: "Input",
            help: "The program of larder, if not this one",
            why: "To measure another build.",
            ..ROW
        },
        Setting {
            name: "work",
            value_name: "LIST",
            default: "hits,pass,busy",
            help: "What is asked: hits, pass, through, busy, or all",
            why: "What is held, what is not to be held, and what is still coming.",
            ..ROW
        },
        Setting {
            name: "sizes",
            value_name: "LIST",
            help: "Lengths of bodies: 1KB,10KB,1MB,64MB (each 1,024 times the one before it)",
            why: "Without it, what each work is told most by: hits those four, pass and through 64MB, busy 16MB and 64MB.",
            ..ROW
        },
        Setting {
            name: "connections",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 4_096 },
            default: "100",
            help: "Connections that ask again and again",
            why: "Enough that a server is never without a request.",
            ..ROW
        },
        Setting {
            name: "clients",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 4_096 },
            default: "200",
            help: "Clients who ask at once for what is still coming",
            why: "A crowd that a thread for each client begins to feel.",
            ..ROW
        },
        Setting {
            name: "busy-ms",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 600_000 },
            default: "5000",
            help: "Milliseconds for which the origin sends what is still coming",
            why: "As a film that is being encoded, or a slow application.",
            ..ROW
        },
        Setting {
            name: "rounds",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 1_000 },
            default: "5",
            help: "Rounds; every server is asked once a round",
            why: "With fewer than six there is no interval of 95 %, and all rounds are shown.",
            ..ROW
        },
        Setting {
            name: "measured-ms",
            value_name: "N",
            kind: Kind::Count { min: 10, max: 600_000 },
            default: "2000",
            help: "Milliseconds for which a server is asked in a round, after a quarter of that to warm up",
            why: "The kernel counts time that a server ran to some milliseconds.",
            ..ROW
        },
        Setting {
            name: "cores",
            value_name: "N",
            kind: Kind::Count { min: 1, max: 256 },
            default: "1",
            help: "Cores and workers of a server",
            why: "Clients run on as many others; where none is left, on one of the server's.",
            ..ROW
        },
        Setting {
            name: "strace",
            help: "Count system calls too, with strace where installed, in a run that is not timed",
            why: "A traced server is several times slower.",
            ..SWITCH
        },
    ],
};

/// `larder-lab gen capture`.
pub const GEN_CAPTURE: Command = Command {
    path: &["gen", "capture"],
    about: "Make a large capture by replaying small ones with shifted times and addresses",
    long: "Reads captures, and writes them again and again as one pcap file with nanoseconds until \
the size is reached. Each time around, all times move on by the length of the input, and private IPv4 \
addresses (10/8, 172.16/12, 192.168/16) and unique local IPv6 addresses move by a seeded step in \
their network, checksums mended; public addresses stay, so that the answers in the capture stay true. \
The same inputs, size and seed give the same bytes.",
    settings: &[
        Setting {
            name: "read",
            letter: Some('r'),
            many: true,
            required: true,
            kind: Kind::Path,
            help: "Captures to replay, uncompressed; they must fit in memory and share a link type",
            why: "Real traffic keeps real proportions.",
            ..INPUT
        },
        Setting {
            name: "output",
            letter: Some('o'),
            required: true,
            help: "Where the capture goes",
            why: "A file, or - for a pipe; never a terminal.",
            ..OUTPUT
        },
        Setting {
            name: "size",
            value_name: "SIZE",
            kind: Kind::Bytes { min: 1 << 10, max: 1 << 50 },
            default: "1500MiB",
            help: "Stop before the file would be larger",
            why: "Large enough that a run takes seconds and caches are cold.",
            ..ROW
        },
        Setting {
            name: "seed",
            value_name: "N",
            kind: Kind::Seed,
            default: "0x1",
            help: "Seed of the address steps",
            why: "The same seed gives the same bytes.",
            ..ROW
        },
    ],
};
