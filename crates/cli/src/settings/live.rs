//! Rows of live traffic: of `larder annotate -i`, of the packet store, of `larder find` and of `larder top`.

use std::path::PathBuf;

use larder_annotate::feeds::parse_time_ns;
use larder_settings::row::{List, Settings, Text};
use larder_settings::settings;
use larder_settings::table::{Command, Setting};
use larder_settings::value::Space;

const CAPTURE: Setting = Setting::lasting("Live capture");
const STORE: Setting = Setting::lasting("Packet store");
const INPUT: Setting = Setting::run("Input");
const NAMES: Setting = Setting::run("Names");
const OUTPUT: Setting = Setting::run("Output");
const RUN: Setting = Setting::run("Options");

settings! {
    /// Live capture.
    pub struct Capture {
        pub rings: usize = CAPTURE.count(1, 256).default("1")
            .needs(&["interface"])
            .help("Set the number of capture rings per interface")
            .more("The kernel distributes flows among the rings.")
            .why("The kernel fills one ring on one core, and several rings on several cores."),
        pub ring_size: u64 = CAPTURE.bytes(256 << 10, 16 << 30).default("64MiB")
            .needs(&["interface"])
            .help("Set the memory of a capture ring")
            .why("The ring buffers packets while larder is busy. The kernel drops and counts packets that \
                do not fit."),
        pub batch_ms: u32 = CAPTURE.count(1, 1_000).default("5")
            .value("MILLISECONDS")
            .needs(&["interface"])
            .help("Limit how long packets wait in a batch")
            .why("Longer batches cost less per packet and add delay."),
        pub snaplen: u32 = CAPTURE.bytes(64, 256 << 10).default("256KiB")
            .letter('s')
            .needs(&["interface"])
            .help("Capture at most this many bytes of a packet")
            .why("As in tcpdump. Names are in the first 2 KiB, and the log counts original lengths."),
        pub no_promiscuous: bool = CAPTURE.switch()
            .letter('p')
            .needs(&["interface"])
            .help("Do not put interfaces into promiscuous mode")
            .why("As in tcpdump. A tap or mirror port needs the default."),
        pub hardware_time: bool = CAPTURE.switch()
            .needs(&["interface"])
            .help("Use hardware timestamps where the card has them")
            .why("Kernel timestamps are exact to the interrupt, hardware timestamps to the wire."),
        pub xdp: bool = CAPTURE.switch()
            .needs(&["interface"])
            .help("Capture with AF_XDP (feature xdp)")
            .more("The network stack of the host does not receive these packets. larder uses capture \
                rings if the driver or the build has no AF_XDP.")
            .why("Use it for ports that only capture."),
        pub pin: List = CAPTURE.list().default("none")
            .value("CPUS")
            .help("Pin the workers to these cores, such as 2,3,4")
            .why("Packets stay in the caches of cores that also serve the interrupts of the card."),
    }
}

settings! {
    /// The packet store.
    pub struct Store {
        pub store: Option<u64> = STORE.bytes(1 << 20, 1 << 60)
            .of_one_run()
            .help("Store packets in the -w directory, up to this size")
            .more("larder deletes the oldest packets first. larder find searches the store.")
            .why("Without it -w writes one file."),
        pub segment: u64 = STORE.bytes(64 << 10, 4 << 30).default("64MiB")
            .needs(&["store"])
            .help("Set the size of a segment of the packet store")
            .why("larder deletes whole segments, and indexes each closed segment."),
        pub segment_time: u64 = STORE.seconds(0, 604_800).default("1h")
            .needs(&["store"])
            .help("Close a segment after this time")
            .more("With 0 larder closes it when it is full.")
            .why("Quiet networks then have closed segments, too."),
        pub segment_hook: Option<PathBuf> = STORE.word().none("none")
            .value("PROGRAM")
            .needs(&["store"])
            .help("Run this program for each closed segment")
            .more("Its arguments are the paths of the segment and of its index. larder runs one at a time, \
                the oldest segment first, tries a failing one three times, and continues at the next start.")
            .why("It uploads segments to an object store. --store deletes segments whether or not it has run."),
        pub segment_hook_time: u64 = STORE.seconds(1, 86_400).default("5m")
            .needs(&["segment-hook"])
            .help("Stop the program of --segment-hook after this time")
            .why("A program that hangs would delay the next segment."),
        pub store_memory: u64 = STORE.bytes(4 << 20, 1 << 40).default("256MiB")
            .needs(&["store"])
            .help("Limit the memory for packets on their way to the disk")
            .more("The buffer also serves readers that follow the capture.")
            .why("It bridges pauses of the disk. When it is full, larder drops packets from the store, \
                and counts them."),
        pub store_snaplen: u32 = STORE.bytes(0, 256 << 10).default("0")
            .needs(&["store"])
            .help("Store at most this many bytes of a packet")
            .more("0 stores whole packets.")
            .why("larder reads names from the whole packet in any case."),
        pub store_headers: bool = STORE.switch()
            .needs(&["store"])
            .help("Store headers up to the transport's, without payload")
            .why("The store then shows which hosts communicated, but not the content."),
        pub store_dns: bool = STORE.switch()
            .needs(&["store-headers"])
            .help("Store DNS messages whole despite --store-headers")
            .why("DNS messages explain the name of a flow."),
        pub store_sample: u32 = STORE.count(1, 1_000_000).default("1")
            .needs(&["store"])
            .help("Store one flow in N")
            .more("larder stores all packets of the chosen flows.")
            .why("Half a conversation is of little use."),
        pub store_pseudonyms: Option<PathBuf> = STORE.path()
            .of_one_run()
            .needs(&["store"])
            .help("Replace stored addresses with pseudonyms (Crypto-PAn)")
            .more("FILE has the 32 bytes of the key. Pseudonyms preserve prefixes.")
            .why("The same key gives the same pseudonyms. The owner of the key can reverse them."),
        pub store_compress: bool = STORE.switch()
            .needs(&["store"])
            .help("Compress closed segments with zstd")
            .more("larder find and --serve read them as before. One thread of the lowest priority compresses.")
            .why("--store then holds more packets. larder counts the compressed bytes."),
        pub store_sync: bool = STORE.switch()
            .needs(&["store"])
            .help("Sync each segment to the disk when it is closed")
            .why("Without it a power failure may lose written packets. A crash of larder loses none in either case."),
        pub store_free: Space = STORE.space().default("0")
            .needs(&["store"])
            .help("Keep this much of the disk free")
            .more("larder deletes the oldest stored packets for it, and also when the disk is full.")
            .why("larder reports at the start if --store exceeds the free space."),
        pub store_age: u64 = STORE.seconds(0, 315_360_000).default("0")
            .needs(&["store"])
            .help("Delete stored packets that are older than this")
            .more("larder deletes a segment when its last packet is older than this by the time of day, \
                so packets live for --segment-time longer at most. 0 deletes no packets for their age.")
            .why("Rules on data retention often limit the age of packets."),
        pub store_pin: Option<Text> = STORE.word().none("none")
            .value("QUERY")
            .needs(&["store"])
            .help("Keep packets that match this query for longer")
            .more("The query is one of larder find, without times. Before larder deletes a segment, it \
                copies the matching packets to the directory pinned in the -w directory. larder find \
                finds them there.")
            .why("Packets of a case, of named flows (name ~ *), or of flows without a name (not name ~ *) \
                matter for longer than others."),
        pub store_pin_size: u64 = STORE.bytes(1 << 20, 1 << 60).default("1GiB")
            .needs(&["store-pin"])
            .help("Store pinned packets up to this size")
            .more("larder deletes the oldest pinned packets first. --store does not include them."),
        pub store_pin_packets: u32 = STORE.count(0, 1_000_000).default("0")
            .needs(&["store-pin"])
            .help("Pin the first packets of a flow in a segment")
            .more("0 pins all packets that match.")
            .why("The first packets of a flow have its handshake and its request."),
        pub serve: Option<Text> = STORE.word().none("none")
            .value("ADDR:PORT|unix:PATH")
            .help("Serve stored packets over HTTP")
            .more("The packets include those that just arrive. Requests must name localhost, the address \
                itself or a name of --serve-hosts as their host. A Unix socket admits this user and the \
                group of --group.")
            .why("Without --serve-token every client that reaches the address gets the packets."),
        pub pcap_serve: Option<Text> = STORE.word().none("none")
            .value("ADDR:PORT")
            .help("Send the packets to TCP clients (PCAP-over-IP)")
            .more("A client that connects gets the interfaces and all stored packets from then on as pcapng, \
                until it disconnects. Needs --store, like --serve. The usual port is 57012.")
            .why("Wireshark, NetworkMiner, Zeek and nc receive packets in this way. There is neither encryption \
                nor authentication, so 127.0.0.1 is the right address unless the network is trusted."),
        pub serve_hosts: List = STORE.list().default("none")
            .value("NAME,..")
            .needs(&["serve", "ui"])
            .help("Accept requests of --serve and --ui for these host names")
            .why("larder refuses requests for other hosts: a web page may have caused them by DNS rebinding."),
        pub serve_token: Option<PathBuf> = STORE.word().none("none")
            .value("FILE")
            .needs(&["serve", "ui"])
            .help("Require this file's token from clients of --serve and --ui")
            .more("Clients send it as Authorization: Bearer TOKEN. The page of --ui has a field for it.")
            .why("The token crosses the network in the clear, because --serve and --ui have no TLS."),
        pub ui: Option<Text> = STORE.word().none("none")
            .value("ADDR:PORT|unix:PATH")
            .help("Serve a page with rates, names and stored packets")
            .more("Open it in a browser: http://127.0.0.1:8080/ for 127.0.0.1:8080. The address also has what \
                --serve and --metrics serve. An address that other machines reach needs --serve-token.")
            .why("It shows what larder does, and leads from a name to its flows and packets."),
        pub ui_history: Option<PathBuf> = STORE.word().none("none")
            .value("FILE")
            .needs(&["ui"])
            .help("Keep the history of the --ui page in this file")
            .more("larder writes it once a minute. With --store it is the file history in the -w directory. \
                Otherwise the history begins again at each start.")
            .why("Charts of thirty days need a file that outlives a restart."),
    }
}

/// Forms of the flows that were found.
const FLOW_FORMATS: [&str; 8] =
    ["table", "jsonl", "csv", "counts", "zeek", "ecs", "ipfix", "parquet"];

/// `larder find`.
pub const FIND: Command = Command {
    path: &["find"],
    about: "Find stored packets by name, address, port, time",
    long: "Searches the directory that larder annotate -w DIR --store BYTES writes, also while larder \
writes it, and the stores of other machines. Writes the packets as pcapng in the order of their \
arrival, or their flows.

A query joins conditions by and, or, not and parentheses; quote it for the shell:
  name ~ *.example.com     flows with such a name; = for one name, != for others
  host 192.0.2.1           an address, in any IP header and in ARP; or a name
  net 192.0.2.0/24         a network
  port 443, port 8000-8099, tcp port 443, port >= 1024
  tcp, udp, icmp, icmp6, sctp, ip, ip6, proto 47
  vlan 10, vlan, vni 42
  community_id 1:…         a Community ID
  flow 192.0.2.1:40000-198.51.100.2:443/tcp    * for an end
  confidence >= 90, flag conflict, name_source sni    of the name, as in the log
  after -15m, before 2026-11-01T10:00:00Z      times
Bare words are names, addresses, networks, flows or IDs, and alternatives. Wireshark's ip.addr, \
tcp.port, udp.port and vlan.id work too, and == && || !. A flow has the names that the log shows: \
the names that its client looked up, and those that the flow states (SNI, Host).

Exit status: 0 found; 1 nothing found, or some packets could not be read; 2 not done.

Examples:
  larder find --dir /var/lib/larder www.example.com -w out.pcapng
  larder find --dir /var/lib/larder 'name ~ *.example.com and not port 443 and after -15m'
  larder find --on sensor1:8053,sensor2:8053 'net 192.0.2.0/24 and udp' -w - | wireshark -k -i -",
    settings: Find::ROWS,
};

settings! {
    /// All settings of `larder find`.
    pub struct Find {
        pub what: Vec<Text> = RUN.word().many()
            .value("QUERY")
            .positional()
            .help("Find packets that match this query")
            .more("Several words are one query."),
        pub dir: Vec<PathBuf> = INPUT.path().repeated()
            .value("DIR")
            .letter('d')
            .help("Search the packet store in this directory")
            .more("Without it, and without --on, larder searches the working directory. Packets of \
                several stores are merged by time.")
            .why("It is the -w directory of larder annotate."),
        pub on: List = INPUT.list().default("none")
            .value("HOST:PORT|unix:PATH,..")
            .help("Search the stores of these machines, too")
            .more("They are addresses of --serve or --ui of a running larder annotate."),
        pub deadline: u64 = INPUT.seconds(1, 86_400).default("30s")
            .needs(&["on"])
            .help("Wait at most this long for a machine of --on")
            .more("larder waits a second longer for each MiB that the machine sends. It reports a \
                machine that is too slow, and completes the search without it.")
            .why("One slow machine does not hold up the result of the others."),
        pub token: Option<PathBuf> = INPUT.path()
            .value("FILE")
            .needs(&["on"])
            .help("Send the token in this file to machines of --on")
            .why("It is the token of their --serve-token."),
        pub community_id: Option<Text> = INPUT.word()
            .value("ID")
            .help("Find the flow with this Community ID")
            .more("With a query, packets are found that match either."),
        pub from: Option<i64> = INPUT.time(parse_time_ns)
            .help("Find packets from this time on")
            .more("Formats: RFC 3339, seconds since 1970, or -15m for 15 minutes ago. Without it \
                the search begins with the oldest packet."),
        pub to: Option<i64> = INPUT.time(parse_time_ns)
            .help("Find packets before this time")
            .more("The formats are those of --from. Without it the search ends with the newest packet."),
        pub write: Option<PathBuf> = OUTPUT.endpoint()
            .letter('w')
            .help("Write the packets to this file (- is standard output)")
            .more("tcp://HOST:PORT sends them to a program that listens (PCAP-over-IP).")
            .why("Without it larder prints the flows of the packets."),
        pub format: &'static str = OUTPUT.choice(&FLOW_FORMATS).default("table")
            .help("Print flows in this form")
            .more("table: the 1,000 flows with the most bytes. jsonl and csv: all flows. zeek, ecs, ipfix \
                and parquet: all flows, as in a log of larder annotate. counts: packets, bytes and flows \
                in one line of JSON.")
            .why("All but counts have the names of each flow."),
        pub alerts: Option<PathBuf> = INPUT.endpoint()
            .value("FILE")
            .help("Write the packets around each alert of this log")
            .more("The log is eve.json of Suricata or notice.log of Zeek, also compressed; - is standard \
                input. -w names a directory, and each alert with packets gets a file in it. A query \
                restricts the packets further."),
        pub around: u64 = INPUT.seconds(1, 31_536_000).default("5m")
            .needs(&["alerts"])
            .help("Include packets this long before and after an alert")
            .why("An alert comes after its cause, and often before the end of the flow."),
        pub limit: Option<u64> = OUTPUT.count(1, u64::MAX)
            .letter('c')
            .help("Stop after this many packets")
            .more("With flows of several stores: of each store.")
            .why("As in tcpdump."),
        pub candidates: bool = NAMES.switch()
            .help("Include flows that have the name among candidates")
            .why("An address may have served several names, and the most likely one need not be right."),
        pub lookups: bool = NAMES.switch()
            .help("Include the DNS messages that looked the name up")
            .why("They are about the name, and not traffic to it."),
        pub follow: bool = OUTPUT.switch()
            .letter('f')
            .help("Continue with packets as they arrive")
            .why("As in tail -f. It ends with Ctrl-C, or when the output is closed."),
        pub scan: bool = INPUT.switch()
            .help("Scan all packets instead of using the indexes")
            .why("The result is the same, but slower. Use it to verify an index."),
        pub quiet: bool = OUTPUT.switch()
            .letter('q')
            .help("Do not print a summary")
            .why("larder prints the summary to standard error."),
    }
}

/// `larder top`.
pub const TOP: Command = Command {
    path: &["top"],
    about: "Show the names or flows with the most traffic, live",
    long: "Queries a running larder annotate over its --ctl socket once a second. Shows names, flows, \
rates, kernel drops, the share of named flows, and the delay of the log. Rates by name are \
estimated from a sample of each batch; totals are exact. If standard output is not a terminal, \
prints one report and exits. q or Ctrl-C ends it.

Examples:
  mkdir -p /run/larder /var/log/larder
  larder annotate -i eth0 --ctl /run/larder/annotate -o /var/log/larder/flows.log &
  larder top",
    settings: Top::ROWS,
};

settings! {
    /// All settings of `larder top`.
    pub struct Top {
        pub socket: PathBuf = RUN.path().default("/run/larder/annotate")
            .value("PATH")
            .help("Connect to this control socket")
            .more("It is the socket that larder annotate created with --ctl.")
            .why("The unit larder-annotate@IFACE has one socket per interface."),
        pub by: &'static str = RUN.choice(&["names", "flows"]).default("names")
            .value("WHAT")
            .help("List names or flows")
            .why("The keys n and f switch while it runs."),
        pub rows: usize = RUN.count(1, 100).default("20")
            .help("Set the number of rows when not on a terminal")
            .why("On a terminal larder fills the screen."),
        pub once: bool = RUN.switch()
            .help("Print one report and exit")
            .why("Use it in scripts."),
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::PROGRAM;

    /// Why the settings of a command line and a file are refused; empty if they are not.
    fn refused(line: &str, file: &str) -> String {
        let invocation = PROGRAM.parse(line.split(' ')).expect(line);
        let failure = invocation.settings_with(file).err();
        failure.map(|failure| failure.message).unwrap_or_default()
    }

    /// A setting that has no effect is refused, with the setting that it needs.
    #[test]
    fn settings_without_effect_name_what_they_need() {
        for (line, expected) in [
            ("find x --around 5m", "--around has no effect without --alerts; add --alerts FILE"),
            ("find x --deadline 1s", "--deadline has no effect without --on; add --on HOST:PORT"),
            ("find x --token t", "--token has no effect without --on; add --on HOST:PORT"),
            ("annotate -r a --store 1GiB -w d --store-pin-size 1MiB", "add --store-pin QUERY"),
            ("annotate -r a --store 1GiB -w d --store-pin-packets 3", "add --store-pin QUERY"),
            ("annotate -r a --store-pin udp", "without --store; add --store BYTES"),
            ("annotate -r a --segment 1MiB", "without --store; add --store BYTES"),
            ("annotate -r a --store 1GiB -w d --store-dns", "add --store-headers"),
            (
                "annotate -r a --store 1GiB -w d --segment-hook-time 3s",
                "add --segment-hook PROGRAM",
            ),
            ("annotate -r a --rings 2", "without --interface; add --interface IFACE"),
            ("annotate -r a -s 64", "--snaplen has no effect without --interface"),
            ("annotate -r a --active 1h", "without --interface"),
            ("annotate -r a --flows-delay 1s", "without --flows-read or --flows-listen"),
            ("annotate -r a --serve-token t", "without --serve or --ui"),
            ("annotate -r a --ui-history h", "without --ui; add --ui ADDR:PORT"),
            ("annotate -r a --ctl-mode 0660", "without --ctl; add --ctl PATH"),
            ("dns --ctl-mode 0660", "without --ctl; add --ctl PATH"),
            ("dns --dnssec off", "without --recurse; add --recurse"),
            ("dns --snapshot-every 1h", "without --snapshot; add --snapshot FILE"),
            ("dns --query-log-sample 9", "without --query-log; add --query-log FILE"),
            ("dns --cookies=false --cookie-secret x", "without --cookies; add --cookies"),
            ("dns --json", "without --shadow; add --shadow ADDR"),
            ("dns --tls-cert c", "without --listen-tls or --listen-https or --listen-quic"),
            ("http --http2-streams 9", "without --listen-tls; add --listen-tls ADDR"),
            ("http --access-log-size 0", "without --access-log; add --access-log FILE|-"),
            ("http --health-interval 1s", "without --health-check; add --health-check PATH"),
            ("demo --listen 127.0.0.1:1", "--listen has no effect without --ui; add --ui"),
        ] {
            let why = refused(&format!("larder {line}"), "");
            assert!(why.contains(expected), "{line}: {why}");
        }
        let file = "[annotate]\nserve_token = 't'\n";
        let why = refused("larder annotate -r a", file);
        assert!(why.contains("[annotate] serve_token has no effect without serve or ui"), "{why}");
    }

    /// A file may have settings for runs of another kind, and defaults.
    #[test]
    fn settings_of_other_runs_stay() {
        let file = "[annotate]\nrings = 4\nsegment = '1MiB'\nstore_pin = 'udp'\nstore_pin_size = '2MiB'\n\
                    [dns]\nblock_answer = 'zero'\nsnapshot_every = '900s'\n";
        for line in [
            "larder annotate -r a",
            "larder annotate -i eth0 --store 1GiB -w d",
            "larder annotate -i eth0 --store 1GiB -w d --store-pin none",
            "larder annotate -r a --serve-hosts none --store-compress=false",
            "larder dns",
        ] {
            assert_eq!(refused(line, file), "", "{line}");
        }
        let template = larder_settings::show::template(&PROGRAM);
        assert_eq!(refused("larder annotate -r a", &template), "");
        assert_eq!(refused("larder http", &template), "");
    }
}
