//! The rows of `larder annotate`.

use std::path::PathBuf;

use larder_annotate::feeds::parse_time_ns;
use larder_settings::row::{List, Settings, Text};
use larder_settings::settings;
use larder_settings::table::{Command, Setting};

use super::live::{Capture, Store};
use super::logs::Rotation;
use super::servers;

/// Words that `--names` takes besides `all`. [`larder_annotate::options::NameSources::parse`]
/// decides; a test compares the two.
pub const SOURCE_WORDS: [&str; 10] =
    ["dns", "sni", "quic", "http", "mdns", "llmnr", "nbns", "dhcp", "ptr", "learned"];

const INPUT: Setting = Setting::run("Input");
const OUTPUT: Setting = Setting::run("Output");
const LOG: Setting = Setting::lasting("Output");
const NAMES: Setting = Setting::lasting("Names");
const LIMIT: Setting = Setting::lasting("Limits");
const OPERATION: Setting = Setting::lasting("Operation");
const RUN: Setting = Setting::run("Options");

/// `larder annotate`.
pub const ANNOTATE: Command = Command {
    path: &["annotate"],
    about: "Add domain names to the IP addresses in captured traffic",
    long: "Reads packets from capture files or live interfaces, and learns the names under which clients \
looked up each address. Sources are DNS responses, TLS and QUIC server names, HTTP hosts, mDNS, \
LLMNR, NetBIOS and DHCP. Writes a log in which each flow has names. larder annotate never sends \
a packet.

The log is written to standard output, progress and summary to standard error.

Exit status: 0 done; 1 done, but the input was damaged or cut short (2 with --strict); 2 usage, \
input, output or configuration error; 130 interrupted, the records so far are written; 141 \
standard output was closed.

Examples:
  larder annotate -r trace.pcapng
  larder annotate -r monday.pcap tuesday.pcap.gz --format ecs -o flows.jsonl
  larder annotate -r trace.pcap port 53 or host 192.0.2.1
  larder annotate -i eth0
  larder annotate -i eth0 -o flows.log -w /var/lib/larder --store 50GiB port 53 or port 443
  larder annotate -r trace.pcap --unresolved
  larder annotate --flows-read exports.pcap -r dns.pcap",
    settings: Annotate::ROWS,
};

settings! {
    /// All settings of `larder annotate`.
    pub struct Annotate {
        pub input: Input,
        pub output: Output,
        pub names: Names,
        pub limits: Limits,
        pub rotation: Rotation,
        pub capture: Capture,
        pub store: Store,
        pub operation: Operation,
    }
}

settings! {
    /// What a run reads.
    pub struct Input {
        pub read: Vec<PathBuf> = INPUT.endpoint().many()
            .letter('r')
            .help("Read these capture files (- is standard input)")
            .more("Formats: pcap and pcapng, also compressed as .gz, .zst or .xz. larder merges \
                several files by time, and names carry over. A filter may follow the last file. \
                tcp://HOST:PORT or TCP@HOST:PORT connects to a program that sends a capture \
                (PCAP-over-IP)."),
        pub pcap_listen: Option<Text> = INPUT.word()
            .value("ADDR:PORT")
            .help("Receive captures from TCP clients (PCAP-over-IP)")
            .more("Each connection is a capture, pcap or pcapng, also compressed. larder takes one sender at a \
                time, then the next one, until it is stopped; other senders wait. The usual port is 57012.")
            .why("Sensors send packets in this way. There is neither encryption nor authentication, so \
                127.0.0.1 is the right address unless the network is trusted."),
        pub interface: List = INPUT.list()
            .value("IFACE")
            .letter('i')
            .help("Capture from these interfaces, separated by commas")
            .why("Capturing needs CAP_NET_RAW; larder drops the capability after it opens the interfaces."),
        pub filter: Vec<Text> = RUN.word().many()
            .value("FILTER")
            .positional()
            .help("Process only packets that match this tcpdump filter")
            .more("For example: udp port 53 or host 192.0.2.1. With -r the filter begins at the first \
                word that is not an existing file. Write -- before a filter that begins with the name of \
                a file.")
            .why("larder learns no names from packets that the filter excludes. With -i the filter runs \
                in the kernel and costs nothing."),
        pub count: Option<u64> = INPUT.count(1, u64::MAX)
            .letter('c')
            .help("Stop after this many packets")
            .why("Without it larder reads all packets, as tcpdump does."),
        pub names_read: Vec<PathBuf> = INPUT.endpoint().many()
            .help("Read these capture files for their names only")
            .more("Needs -r, and is read in order of time with it. Its packets and flows are in no log and count \
                nowhere, and a filter is not for them.")
            .why("A sensor in front of clients or at a resolver sees lookups that the sensor at the border does not."),
        pub from: Option<i64> = INPUT.time(parse_time_ns)
            .help("Log the packets of -r from this time on")
            .more("larder reads earlier packets for their names only, as with --names-read. Formats: RFC 3339, \
                seconds since 1970, or -15m for 15 minutes ago.")
            .why("Flows of an hour get the names that were looked up before it."),
        pub to: Option<i64> = INPUT.time(parse_time_ns)
            .help("Log the packets of -r before this time")
            .more("larder ignores later packets. The formats are those of --from.")
            .why("To read one hour of a longer capture."),
        pub capture_began: Option<i64> = INPUT.time(parse_time_ns)
            .help("Say when the capture began")
            .more("A flow of its first 10 seconds without a name has the reason before_capture. Without this, the \
                capture begins with the first packet that larder reads. The formats are those of --from.")
            .why("For a later part of a long capture, whose names --names-load has."),
        pub eve: Option<PathBuf> = INPUT.endpoint()
            .help("Add names to each line of this Suricata EVE log")
            .more("larder writes each line unchanged and adds its keys. Names come from \
                --names-load, --zeek-dns and --dnstap.")
            .why("To use the names of a capture, first run -r with --names-save."),
        pub zeek_log: Option<PathBuf> = INPUT.endpoint()
            .help("Add name columns to this Zeek log")
            .more("Names come from --names-load, --zeek-dns and --dnstap.")
            .why("To use the names of a capture, first run -r with --names-save."),
        pub zeek_dns: Vec<PathBuf> = INPUT.endpoint().many()
            .help("Learn names from these Zeek dns.log files")
            .why("Use it where logs exist but packets do not."),
        pub dnstap: Option<PathBuf> = INPUT.endpoint()
            .value("FILE|SOCKET")
            .help("Learn names from this dnstap file or socket")
            .why("Use it where DNS is encrypted: the resolver has names that packets do not show."),
        pub flows_read: Vec<PathBuf> = INPUT.endpoint().many()
            .help("Name the flows that routers exported, from captures")
            .more("The captures have the export packets of routers: NetFlow v5 or v9, or IPFIX, over UDP \
                to port 2055, 4739 or 9995. Names come from -r, --zeek-dns, --dnstap and --names-load. \
                Packets of -r are read for names only.")
            .why("Routers that see no DNS still get names from a capture at the resolver."),
        pub flows_listen: List = INPUT.list().many()
            .value("ADDRESS")
            .help("Name the flows that routers export to these UDP addresses")
            .more("NetFlow v5 or v9, or IPFIX. The default port is 4739. larder runs until it is stopped. Names come \
                from the packets of -i, and from --zeek-dns, --dnstap and --names-load; a filter keeps other packets \
                away. A flow is written --flows-delay after its start, and one without a name after twice that time.")
            .why("Routers export a flow after it began: names are those of its start."),
        pub flows_delay: u32 = INPUT.seconds(0, 3_600).default("10m")
            .needs(&["flows-read", "flows-listen"])
            .help("Let an exported flow wait this long for a name")
            .more("The time counts from the start of the flow; a longer flow waits until its end. larder marks \
                a name that comes in this time late. 0 does not wait. With --flows-listen, all flows wait this \
                long: choose no less than the active timeout of the routers.")
            .why("The response with the name may come after the first packet of the flow."),
        pub names_at: Option<i64> = INPUT.time(parse_time_ns)
            .help("Write the names that addresses had at this time")
            .more("The addresses follow. Names come from -r, --zeek-dns, --dnstap and --names-load; larder reads \
                no further than this time. Formats of the time: RFC 3339, seconds since 1970, or -15m for 15 \
                minutes ago. Formats of the output: text, ecs and csv.")
            .why("To name the addresses of a log that has no names."),
        pub names_for: Option<Text> = INPUT.word()
            .value("ADDRESS")
            .help("Prefer the names that this client looked up")
            .more("For --names-at.")
            .why("An address can have several names, and clients look up different ones."),
    }
}

settings! {
    /// What a run writes and prints.
    pub struct Output {
        pub output: PathBuf = OUTPUT.endpoint().default("-")
            .letter('o')
            .help("Write the flow log to this file (- is standard output)")
            .why("The default lets you pipe the log into another program."),
        pub write: Option<PathBuf> = OUTPUT.endpoint()
            .letter('w')
            .help("Write the packets as pcapng with names")
            .more("The file has Name Resolution Blocks. With --store this is the directory of the \
                packet store. tcp://HOST:PORT sends it to a program that listens (PCAP-over-IP).")
            .why("Wireshark and tshark -N n show the names. Programs that read the file twice \
                show the latest name of an address."),
        pub directory: Option<PathBuf> = OUTPUT.path()
            .value("DIR")
            .letter('d')
            .help("Also write dns.log, names.log and stats.json here")
            .more("dns.log has each DNS response, names.log the names known at the end, and \
                stats.json the counters."),
        pub dataset: Option<PathBuf> = OUTPUT.path()
            .value("DIR")
            .help("Write the log as a dataset, one file per time range")
            .more("Needs -r and --cut-every, which ends the ranges, and takes the place of -o. Files are named \
                DIR/date=2026-11-23/hour=10/flows.2026-11-23T10-00-00Z.EXT, and hidden until they are whole. \
                Runs of different hours can write to one dataset at once.")
            .why("DuckDB, Polars, ClickHouse and Spark read the folder as one table, with columns for date and hour."),
        pub resume: bool = OUTPUT.switch()
            .of_one_run()
            .help("Continue a dataset from its last whole file")
            .more("Give the captures and options of the run that was interrupted, and --dataset. larder reads the \
                packets before for their names only, and writes the last whole file again, since the captures may \
                have grown. The dataset becomes that of one run.")
            .why("A run over many captures that was killed need not write again what it has written."),
        pub stats: Option<PathBuf> = OUTPUT.path()
            .value("FILE")
            .help("Write the counters to this file, as JSON")
            .more("They are those of stats.json.")
            .why("Programs that start many runs read it."),
        pub format: &'static str = LOG.choice(&["text", "ecs", "zeek", "csv", "ipfix", "parquet"])
            .default("text")
            .help("Choose the log format")
            .more("ecs is JSON lines. ipfix is a file of IPFIX messages (RFC 5655) with names in \
                elements that the file describes. parquet needs a build with the feature parquet.")
            .why("Aligned text is for people; programs read the other formats."),
        pub ipfix_to: Option<Text> = LOG.word().none("none")
            .value("ADDRESS")
            .help("Send IPFIX to this UDP address instead of -o")
            .more("For --format ipfix. The default port is 4739. A message is a datagram of at most 1,400 bytes, \
                unless one record is longer, and templates come every 256 messages. UDP loses what a collector \
                cannot take, so a large capture is better written to a file.")
            .why("Flow collectors listen at a UDP port."),
        pub sort: &'static str = LOG.choice(&["end", "start"]).default("end")
            .value("ORDER")
            .help("Order records by the end or the start of their flow")
            .why("end needs no memory. start spills to disk."),
        pub numeric: bool = LOG.switch()
            .letter('n')
            .help("Print ports as numbers in text")
            .why("As in tcpdump."),
        pub unresolved: &'static str = LOG.choice(&["false", "true", "all"]).default("false")
            .bare("true")
            .value("WHICH")
            .help("Write only flows whose destination has no lookup")
            .more("The bare flag lists flows whose destination no lookup supports (reason \
                no_lookup_seen), whatever name the flow states. all lists each flow without a \
                name. Neither lists the lookups themselves (DNS, mDNS, LLMNR, NetBIOS, DHCP)."),
        pub quiet: bool = LOG.switch()
            .help("Print errors only, without progress and summary")
            .why("The summary lists doubtful results, so larder prints it by default."),
        pub no_progress: bool = LOG.switch()
            .help("Do not draw a progress bar")
            .why("larder draws the bar only on a terminal, and only if the log has another destination."),
        pub strict: bool = LOG.switch()
            .help("Exit with 2 instead of 1 if the input is damaged")
            .more("Input that is cut short counts as damaged.")
            .why("Captures often end in the middle of a packet, so the default status is 1."),
    }
}

settings! {
    /// Where names come from.
    pub struct Names {
        pub names: Text = NAMES.set(&SOURCE_WORDS, "name source").default("all")
            .help("Accept names from these sources")
            .more("dns uses lookups only and ignores the names that flows state.")
            .why("Each record states the source of its name, so more sources do no harm."),
        pub min_confidence: u8 = NAMES.count(0, 99).default("0")
            .value("PERCENT")
            .help("Leave out names with a confidence below this")
            .more("Such an end has the reason low_confidence, and its candidates stay in the log."),
        pub candidates: usize = NAMES.count(1, 8).default("8")
            .help("Limit the candidate names of an address")
            .more("Candidates are ordered newest first.")
            .why("A fifth to a third of named flows have rival names. For 89 real clients the \
                right name is among four candidates for 96.7 % of flows, and among eight for 97.8 \
                %."),
        pub names_load: Vec<PathBuf> = NAMES.path().repeated()
            .of_one_run()
            .help("Load names that --names-save wrote")
            .more("For several files give it several times. Their order does not matter: of each name of an address \
                the latest lookup counts.")
            .why("A capture that begins after the lookups still gets its names, also those of other sensors."),
        pub names_save: Option<PathBuf> = NAMES.path()
            .of_one_run()
            .help("Save the known names at the end of the run")
            .why("The next run loads them with --names-load."),
        pub ignore_vlan: bool = NAMES.switch()
            .help("Do not separate flows and names by VLAN, VNI or GRE key")
            .more("By default VLAN IDs, VNIs of VXLAN and Geneve, and GRE keys distinguish flows \
                and the names of private addresses.")
            .why("Use it if a tap shows the two directions of a flow in different VLANs."),
        pub lookup: &'static str = NAMES.choice(&["flow", "packet"]).default("flow")
            .value("PER")
            .help("Look names up once per flow, or for each packet")
            .why("The output is the same; packet is for measuring the cache."),
    }
}

settings! {
    /// Threads, memory and times.
    pub struct Limits {
        pub cores: usize = LIMIT.cores().default("all")
            .help("Set the number of worker threads")
            .why("The output is the same for any number."),
        pub names_budget: u64 = LIMIT.bytes(1 << 20, 16 << 30).default("256MiB")
            .help("Limit the memory for names")
            .more("When it is full, larder evicts the names that it learned first. Their flows have the reason \
                evicted."),
        pub flows_max: usize = LIMIT.count(1_000, 1_000_000_000).default("1000000")
            .help("Limit the number of open flows")
            .more("When the table is full, larder ends the flow that is idle for longest, and \
                counts it as evicted."),
        pub reassembly_budget: u64 = LIMIT.bytes(1 << 20, 1 << 40).default("64MiB")
            .help("Limit the memory for TCP reassembly and IP fragments")
            .more("larder reassembles only beginnings that can carry names. It skips and counts \
                data that does not fit."),
        pub tcp_idle: u32 = LIMIT.seconds(1, 604_800).default("300s")
            .help("End a TCP flow after this idle time")
            .why("larder uses packet times and not the clock of the machine."),
        pub udp_idle: u32 = LIMIT.seconds(1, 604_800).default("60s")
            .help("End any other flow after this idle time")
            .why("UDP has no end of its own. One minute joins a query and its response, and \
                limits the size of the table."),
        pub linger: u32 = LIMIT.seconds(0, 3_600).default("5s")
            .help("Accept late packets of a closed TCP flow for this long")
            .why("Late acknowledgments after FIN or RST belong to the flow that they close."),
        pub active: u32 = LIMIT.seconds(0, 604_800).default("30m")
            .needs(&["interface"])
            .help("Write a record for a long flow at this interval")
            .more("This is the active timeout of live capture. 0 writes one record, at the end. Flows of \
                capture files always have one record.")
            .why("Flows that last for days appear in the log."),
        pub cut_every: u32 = LIMIT.seconds(0, 604_800).default("0")
            .help("Cut the records of all flows at multiples of this time")
            .more("Give whole minutes, for example 1h. Multiples count from 1970 UTC, by the times of packets. A flow \
                that continues gets a record at each cut; the next record has larder.continued_since, the same \
                direction, and the name that the flow stated. --from and --to must then be cuts, and flows that began \
                before --from continue. 0 cuts nothing.")
            .why("Records of an hour count the packets of that hour, and hours can be annotated apart."),
        pub seed: u64 = LIMIT.seed().default("0x1a2de2c0ffee5eed")
            .help("Set the seed of the hash functions")
            .why("The fixed default makes output reproducible. Choose another seed against \
                traffic that is made to collide."),
    }
}

settings! {
    /// How a running program is operated.
    pub struct Operation {
        pub group: Option<Text> = OPERATION.word().none("none")
            .value("NAME|GID")
            .help("Let this group read logs, captures and stored packets")
            .more("Files then have mode 0640 and new directories 0750. Without it the modes are 0600 and \
                0700. The umask has no effect."),
        pub ctl: Option<PathBuf> = OPERATION.word().none("none")
            .value("PATH")
            .help("Create a control socket for larder ctl and larder top")
            .more("Its directory must exist.")
            .why("larder top connects to /run/larder/annotate by default."),
        pub ctl_mode: Text = servers::CTL_MODE.needs(&["ctl"]),
        pub metrics: Option<Text> = servers::METRICS,
        pub log_level: &'static str = servers::LOG_LEVEL,
        pub log_format: &'static str = servers::LOG_FORMAT,
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::PROGRAM;

    /// More than the engine takes is refused with the limit, where the engine would ask for "more room".
    #[test]
    fn a_budget_of_names_fits_the_engine() {
        let of = |budget: &str| {
            let file = format!("[annotate]\nnames_budget = '{budget}'\n");
            let invocation = PROGRAM.parse(["larder", "annotate"]).expect("no flags");
            invocation.settings_with(&file).map(drop).map_err(|failure| failure.message)
        };
        assert_eq!(of("16GiB"), Ok(()));
        let refused = of("17GiB").unwrap_err();
        assert!(refused.contains("1MiB to 16GiB"), "{refused}");
    }
}
