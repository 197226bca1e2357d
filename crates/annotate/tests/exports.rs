//! Flows of routers: what comes out is what the exporter stated, with the names of `annotate -r`, and no packet
//! of an exporter does harm.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_annotate::exports::check::{FIELDS_MAX, check};
use larder_annotate::exports::collect::{Collector, DOMAINS_MAX, PAIRS_MAX};
use larder_annotate::exports::record::Export;
use larder_annotate::options::{Endpoint, OutputFormat, SortBy};
use larder_annotate::record::Exporter;
use larder_annotate::{Options, Progress, Summary, run};
use larder_testkit::frames::read_capture;
use larder_testkit::nfcapd::Nfcapd;
use larder_testkit::{captures, skip};
use larder_wire::Addr;

const EXPORTER: Addr = Addr::v4([192, 0, 2, 1]);
/// When the packets of these tests were sent, seconds and ns since 1970.
const SENT_S: u32 = 1_800_000_000;
const SENT_NS: i64 = SENT_S as i64 * 1_000_000_000;

/// What a collector makes of packets: the flows, and whether each packet was taken.
fn collect(
    collector: &mut Collector,
    packets: &[Vec<u8>],
) -> (Vec<Export>, Vec<Option<&'static str>>) {
    let mut flows = Vec::new();
    let refused = packets
        .iter()
        .map(|packet| collector.datagram(EXPORTER, SENT_NS, packet, |flow| flows.push(flow)).err())
        .collect();
    (flows, refused)
}

fn count(collector: &Collector, kind: &str) -> u64 {
    collector.counts.values().filter_map(|counts| counts.get(kind)).sum()
}

fn set(number: u16, body: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &(body.len() as u16 + 4).to_be_bytes(), body].concat()
}

fn template(number: u16, fields: &[(u16, u16)]) -> Vec<u8> {
    let mut body = [number.to_be_bytes(), (fields.len() as u16).to_be_bytes()].concat();
    for (kind, len) in fields {
        body.extend_from_slice(&kind.to_be_bytes());
        body.extend_from_slice(&len.to_be_bytes());
    }
    body
}

fn ipfix(domain: u32, sent_s: u32, sets: &[Vec<u8>]) -> Vec<u8> {
    let body = sets.concat();
    let len = (16 + body.len()) as u16;
    let words = [sent_s, 0, domain].map(u32::to_be_bytes).concat();
    [&10_u16.to_be_bytes()[..], &len.to_be_bytes(), &words, &body].concat()
}

fn v9(uptime_ms: u32, sets: &[Vec<u8>]) -> Vec<u8> {
    let words = [uptime_ms, SENT_S, 0, 7].map(u32::to_be_bytes).concat();
    [&9_u16.to_be_bytes()[..], &1_u16.to_be_bytes(), &words, &sets.concat()].concat()
}

/// Addresses, ports, protocol, packets, bytes.
const FLOW: [(u16, u16); 7] = [(8, 4), (12, 4), (7, 2), (11, 2), (4, 1), (2, 4), (1, 4)];

fn flow_bytes(packets: u32) -> Vec<u8> {
    let ends = [10, 0, 0, 7, 203, 0, 113, 9, 0xc3, 0x50, 1, 0xbb, 6];
    [&ends[..], &packets.to_be_bytes(), &(packets * 100).to_be_bytes()].concat()
}

/// The same flow in each version and each form of time gives the same record: times absolute, counters and
/// sampling rate as stated.
#[test]
fn every_version_gives_the_same_flow() {
    let start_ms = u64::from(SENT_S - 10) * 1_000 + 250;
    let with = |times: [(u16, u16); 2]| [&FLOW[..], &times].concat();
    let uptimes = [991_250_u32, 992_000].map(u32::to_be_bytes).concat();
    let data = |times: &[u8]| set(256, &[&flow_bytes(5), times].concat());
    let sampling = [
        set(3, &[1, 1, 0, 2, 0, 1, 0, 144, 0, 4, 0, 34, 0, 4]),
        set(257, &[0, 0, 0, 1, 0, 0, 0, 100]),
    ];
    let v5 = [
        &[0, 5, 0, 1][..],
        &1_001_000_u32.to_be_bytes(),
        &SENT_S.to_be_bytes(),
        &[0; 8],
        &[0, 7, 0x40, 100],
        &[10, 0, 0, 7, 203, 0, 113, 9, 0, 0, 0, 0, 0, 0, 0, 0],
        &5_u32.to_be_bytes(),
        &500_u32.to_be_bytes(),
        &uptimes,
        &[0xc3, 0x50, 1, 0xbb, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let ms = [start_ms, start_ms + 750].map(u64::to_be_bytes).concat();
    let ntp = |ms: u64| {
        let fraction = ((ms % 1_000) << 32) / 1_000 + 1;
        [(ms / 1_000 + 2_208_988_800) as u32, fraction as u32].map(u32::to_be_bytes).concat()
    };
    let ns = [ntp(start_ms), ntp(start_ms + 750)].concat();
    let packets = [
        v5,
        v9(1_001_000, &[set(0, &template(256, &with([(22, 4), (21, 4)]))), data(&uptimes)]),
        ipfix(
            7,
            SENT_S,
            &[&sampling[..], &[set(2, &template(256, &with([(152, 8), (153, 8)]))), data(&ms)]]
                .concat(),
        ),
        ipfix(7, SENT_S, &[set(2, &template(256, &with([(156, 8), (157, 8)]))), data(&ns)]),
    ];
    let mut collector = Collector::new();
    let (flows, refused) = collect(&mut collector, &packets);
    assert_eq!(refused, [None; 4], "{:?}", collector.counts);
    assert_eq!(flows.len(), 4, "{:?}", collector.counts);
    let rates = [Some(100), None, Some(100), Some(100)];
    for ((flow, rate), domain) in flows.iter().zip(rates).zip([7, 7, 7, 7]) {
        assert_eq!(flow.exporter, Exporter { addr: EXPORTER, domain, sampling_rate: rate });
        assert_eq!(flow.start_ns, start_ms as i64 * 1_000_000, "{flow:?}");
        assert_eq!(flow.end_ns, (start_ms + 750) as i64 * 1_000_000);
        assert_eq!(
            (flow.source, flow.destination),
            ((Addr::v4([10, 0, 0, 7]), 50_000), (Addr::v4([203, 0, 113, 9]), 443),)
        );
        assert_eq!((flow.protocol, flow.sent, flow.received), (6, [5, 500], [0, 0]));
        let mut form = Vec::new();
        flow.write(&mut form);
        assert_eq!(Export::read(&form), Some(*flow), "the form of a sorter loses nothing");
        assert_eq!(Export::read(&form[1..]), None);
    }
}

/// NetFlow v9 states the second in which a packet was sent. One that came within it was sent when it came; the flows
/// of one that came later began up to a second later than stated.
#[test]
fn coarse_clocks_are_refined() {
    let fields = [&FLOW[..], &[(22, 4), (21, 4)]].concat();
    let uptimes = [991_250_u32, 992_000].map(u32::to_be_bytes).concat();
    let data = set(256, &[flow_bytes(5), uptimes].concat());
    let packet = v9(1_001_000, &[set(0, &template(256, &fields)), data]);
    let before_ns = (1_001_000 - 991_250) * 1_000_000;
    for (late_ns, start_ns, slack_ns) in [
        (0, SENT_NS - before_ns, 999_999),
        (700_000_000, SENT_NS + 700_000_000 - before_ns, 999_999),
        (1_000_000_000, SENT_NS - before_ns, 1_000_999_998),
        (-1, SENT_NS - before_ns, 1_000_999_998),
    ] {
        let mut flows = Vec::new();
        let taken =
            Collector::new().datagram(EXPORTER, SENT_NS + late_ns, &packet, |it| flows.push(it));
        assert_eq!(taken, Ok(()));
        let found: Vec<(i64, i64)> =
            flows.iter().map(|flow| (flow.start_ns, flow.slack_ns)).collect();
        assert_eq!(found, [(start_ns, slack_ns)], "{late_ns} ns later");
    }
}

/// A packet whose lengths lie is refused whole, counted by kind, and changes nothing: templates of no bytes or
/// too many fields, sets beyond the packet, scopes that are no scopes. Invariant 1 of `check`.
#[test]
fn lies_about_lengths_are_refused() {
    let many = vec![(8, 4); FIELDS_MAX + 1];
    let wide = [(8, 65_000)];
    let mut long = ipfix(7, SENT_S, &[set(256, &[0; 8])]);
    long[3] += 1;
    let mut set_beyond = ipfix(7, SENT_S, &[set(256, &[0; 8])]);
    set_beyond[19] += 4;
    let mut empty_set = ipfix(7, SENT_S, &[set(256, &[0; 8])]);
    empty_set[19] = 3;
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "flows_cut"),
        (vec![0, 5], "flows_cut"),
        ([&[0, 5, 0, 2][..], &[0; 68]].concat(), "flows_cut"),
        ([&[0, 5, 0, 0][..], &[0; 68]].concat(), "flows_length"),
        ([&[0, 7, 0, 1][..], &[0; 68]].concat(), "flows_version"),
        (vec![0, 9, 0, 0, 0], "flows_cut"),
        (long, "flows_cut"),
        (set_beyond, "flows_length"),
        (empty_set, "flows_length"),
        (ipfix(7, SENT_S, &[set(0, &template(256, &FLOW))]), "flows_length"),
        (ipfix(7, SENT_S, &[set(2, &template(256, &[(8, 0), (12, 0)]))]), "flows_template"),
        (ipfix(7, SENT_S, &[set(2, &template(255, &FLOW))]), "flows_template"),
        (ipfix(7, SENT_S, &[set(2, &template(256, &many))]), "flows_template"),
        (ipfix(7, SENT_S, &[set(2, &template(256, &wide))]), "flows_template"),
        (ipfix(7, SENT_S, &[set(2, &template(256, &FLOW)[..8])]), "flows_template"),
        (ipfix(7, SENT_S, &[set(2, &template(256, &[(0x8001, 4)]))]), "flows_template"),
        (ipfix(7, SENT_S, &[set(3, &[1, 0, 0, 1, 0, 1, 0, 34, 0, 4])]), "flows_template"),
        (v9(0, &[set(0, &template(256, &[(8, 65_535)]))]), "flows_template"),
        (v9(0, &[set(1, &[1, 0, 0, 3, 0, 4, 0, 1, 0, 4])]), "flows_template"),
    ];
    let mut collector = Collector::new();
    for (packet, kind) in &cases {
        let before = count(&collector, kind);
        let (flows, refused) = collect(&mut collector, std::slice::from_ref(packet));
        assert_eq!((flows.len(), refused[0]), (0, Some(*kind)), "{packet:02x?}");
        assert_eq!(count(&collector, kind), before + 1);
    }
    // None of the templates was taken.
    collect(&mut collector, &[ipfix(7, SENT_S, &[set(256, &flow_bytes(1))])]);
    assert_eq!(
        (count(&collector, "flows_no_template"), count(&collector, "flows_records")),
        (1, 0)
    );
}

/// Templates that are redefined, are never sent, or are sent without end, and too many domains and exporters:
/// memory stays bounded, and all is counted.
#[test]
fn templates_and_exporters_are_bounded() {
    let with_times = [&FLOW[..], &[(150, 4), (151, 4)]].concat();
    let times = [SENT_S - 9, SENT_S - 3].map(u32::to_be_bytes).concat();
    let data = set(256, &[&flow_bytes(5)[..], &times].concat());
    let mut collector = Collector::new();
    let (flows, _) = collect(&mut collector, &[ipfix(7, SENT_S, std::slice::from_ref(&data))]);
    assert_eq!((flows.len(), count(&collector, "flows_no_template")), (0, 1));
    // The same number with its fields in another order: data are read by the new template.
    let mut turned = with_times.clone();
    turned.swap(0, 1);
    let packets = [
        ipfix(7, SENT_S, &[set(2, &template(256, &with_times)), data.clone()]),
        ipfix(7, SENT_S, &[set(2, &template(256, &turned)), data.clone()]),
    ];
    let (flows, _) = collect(&mut collector, &packets);
    assert_eq!(flows.len(), 2);
    assert_eq!(flows[0].source.0, flows[1].destination.0);
    assert_eq!(count(&collector, "flows_templates_changed"), 1);
    for number in 256..u16::MAX {
        let packet = ipfix(7, SENT_S, &[set(2, &template(number, &FLOW))]);
        collect(&mut collector, &[packet]);
    }
    assert!(count(&collector, "flows_templates_evicted") > 60_000, "{:?}", collector.counts);
    for domain in 0..5_000 {
        collect(&mut collector, &[ipfix(domain, SENT_S, std::slice::from_ref(&data))]);
    }
    assert!(collector.pairs() <= DOMAINS_MAX, "{}", collector.pairs());
    for exporter in 0..5_000_u32 {
        let packet = ipfix(1, SENT_S, std::slice::from_ref(&data));
        let exporter = Addr::v4(exporter.to_be_bytes());
        collector.datagram(exporter, SENT_NS, &packet, |_| {}).expect("a sound packet");
    }
    assert_eq!(collector.pairs(), PAIRS_MAX);
    assert!(collector.counts.len() < 1_100, "counts are bounded too");
}

/// The times of an exporter whose clock is wrong are moved onto the receiver's clock, and the records counted;
/// a clock that is off by seconds stays as stated. Records without addresses or times are counted.
#[test]
fn wrong_clocks_are_moved() {
    let fields = [&FLOW[..], &[(150, 4), (151, 4)]].concat();
    for (off_s, is_moved) in
        [(5, false), (-86_400, true), (1_000_000, true), (-1_800_000_000, true)]
    {
        let sent_s = (i64::from(SENT_S) + off_s) as u32;
        let times = [sent_s.wrapping_sub(9), sent_s.wrapping_sub(3)].map(u32::to_be_bytes).concat();
        let data = set(256, &[&flow_bytes(5)[..], &times].concat());
        let packet = ipfix(7, sent_s, &[set(2, &template(256, &fields)), data]);
        let mut collector = Collector::new();
        let (flows, _) = collect(&mut collector, &[packet]);
        assert_eq!(count(&collector, "flows_clock"), u64::from(is_moved), "{off_s}");
        if off_s > -1_000_000_000 {
            let by_receiver = if is_moved { 0 } else { off_s * 1_000_000_000 };
            assert_eq!(flows[0].start_ns, SENT_NS - 9_000_000_000 + by_receiver, "{off_s}");
        }
    }
    let mut collector = Collector::new();
    let packets = [
        ipfix(7, SENT_S, &[set(2, &template(256, &FLOW)), set(256, &flow_bytes(5))]),
        ipfix(7, SENT_S, &[set(2, &template(257, &[(1, 4)])), set(257, &[0; 4])]),
    ];
    collect(&mut collector, &packets);
    let kinds = ["flows_no_time", "flows_no_address"];
    assert_eq!(kinds.map(|kind| count(&collector, kind)), [1, 1]);
}

/// Packets that are damaged at any place, and cut at any length, end without a panic; what the check lets
/// through has no bytes after its last set. Invariant 2 of `check`.
#[test]
fn damage_ends() {
    let fields = [&FLOW[..], &[(150, 4), (151, 4), (82, 65_535)]].concat();
    let times = [SENT_S - 9, SENT_S - 3].map(u32::to_be_bytes).concat();
    let data = set(256, &[&flow_bytes(5)[..], &times, &[3, b'e', b't', b'h']].concat());
    let packets = [
        ipfix(7, SENT_S, &[set(2, &template(256, &fields)), data.clone()]),
        v9(
            9,
            &[
                set(0, &template(256, &fields[..9])),
                set(1, &[1, 1, 0, 4, 0, 4, 0, 1, 0, 4, 0, 34, 0, 4]),
                data,
            ],
        ),
    ];
    let mut collector = Collector::new();
    for packet in &packets {
        for at in 0..packet.len() {
            let cut = &packet[..at];
            if let Ok(checked) = check(cut) {
                assert!(checked.bytes.len() <= at);
            }
            collect(&mut collector, &[cut.to_vec()]);
            for value in [0, 1, 2, 4, 0x7f, 0x80, 0xfe, 0xff] {
                let mut damaged = packet.clone();
                damaged[at] = value;
                collect(&mut collector, &[damaged]);
            }
        }
    }
    assert!(count(&collector, "flows_template") > 0);
}

/// A record with empty strings is a flow as any other. Exporters write so that there is no host name; the parser
/// took such records, and those after them, for the end of the set.
#[test]
fn empty_strings_are_no_end() {
    let mut fields = FLOW.to_vec();
    fields.extend([(152, 8), (153, 8), (82, u16::MAX), (460, u16::MAX)]);
    let times = (u64::from(SENT_S - 1) * 1_000).to_be_bytes().repeat(2);
    let record = |name: &[u8], host: &[u8]| {
        let strings = [&[name.len() as u8], name, &[host.len() as u8], host].concat();
        [flow_bytes(2), times.clone(), strings].concat()
    };
    let data = [record(b"eth0", b""), record(b"", b"www.example"), record(b"", b"")].concat();
    let mut collector = Collector::new();
    let sets = [set(2, &template(256, &fields)), set(256, &data)];
    let (flows, refused) = collect(&mut collector, &[ipfix(0, SENT_S, &sets)]);
    assert_eq!((flows.len(), refused), (3, vec![None]));
    assert!(flows.iter().all(|flow| flow.sent == [2, 200]), "{flows:?}");
}

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/exports").join(name)
}

fn annotate(options: Options) -> (Summary, Vec<BTreeMap<String, String>>) {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("out.csv");
    let options = Options {
        format: OutputFormat::Csv,
        output: Endpoint::Path(output.clone()),
        names: larder_annotate::options::NameSources::parse("dns,mdns,ptr").expect("known words"),
        ..options
    };
    let summary = run(&options, &Arc::new(Progress::default())).expect("a run");
    let mut reader = csv::Reader::from_path(output).expect("a log");
    let records = reader.deserialize().map(|record| record.expect("a record")).collect();
    (summary, records)
}

/// The records of softflowd name the same flows as the packets do: for each recording, the destination of each
/// exported flow has the name, its source and the late flag of `annotate -r`.
#[test]
fn names_are_those_of_packets() {
    for capture in ["r1-as-asked", "r2-pair", "r3-newer", "r7-late", "r9-answers-only"] {
        let packets = captures::recorded_folder().join(format!("{capture}.pcap"));
        let read = vec![Endpoint::Path(packets)];
        let (_, by_packets) = annotate(Options { read: read.clone(), ..Options::default() });
        let flows_read = vec![Endpoint::Path(sample(&format!("{capture}.ipfix.pcap")))];
        let sort_by = SortBy::Start;
        let options = Options { read, flows_read, sort_by, ..Options::default() };
        let (summary, exported) = annotate(options);
        assert!(!summary.input_damaged, "{capture}: {:?}", summary.damaged);
        assert!(exported.len() > by_packets.len(), "{capture}: both directions are exported");
        let key = |record: &BTreeMap<String, String>| {
            ["source.ip", "source.port", "destination.ip", "destination.port"]
                .map(|field| record[field].clone())
        };
        for record in &exported {
            let same = by_packets.iter().find(|other| key(other) == key(record));
            let same = same.unwrap_or_else(|| panic!("{capture}: no packets of {:?}", key(record)));
            for field in ["domain", "name_source", "name_late"] {
                let field = match field {
                    "domain" => "destination.domain".to_owned(),
                    field => format!("larder.destination.{field}"),
                };
                assert_eq!(record[&field], same[&field], "{capture}: {field} of {:?}", key(record));
            }
            assert_eq!(record["larder.exporter.ip"], "192.0.2.1");
        }
        let by_end = |records: &[BTreeMap<String, String>], field: &str| -> u64 {
            records.iter().map(|record| record[field].parse::<u64>().unwrap_or(0)).sum()
        };
        for field in ["source.packets", "destination.packets"] {
            assert_eq!(by_end(&exported, field), by_end(&by_packets, field), "{capture}: {field}");
        }
    }
}

/// What nfdump's collector makes of the same export packets, sorted: times in ms, protocol, ends, counters.
fn by_nfdump(capture: &Path) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let nfcapd = Nfcapd::start(folder.path());
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for frame in read_capture(capture) {
        // Headers of IPv4 and UDP.
        socket.send_to(&frame.bytes[28..], nfcapd.address).expect("loopback takes it");
    }
    nfcapd.records("%ts|%te|%pr|%sa|%sp|%da|%dp|%pkt|%byt")
}

/// nfdump reads the same flows out of the recorded export packets: times, ends, packets and bytes.
#[test]
fn flows_are_those_of_nfdump() {
    if !skip::has("flows_are_those_of_nfdump", "nfcapd") {
        return;
    }
    let capture = sample("r2-pair.ipfix.pcap");
    let flows_read = vec![Endpoint::Path(capture.clone())];
    let (_, records) = annotate(Options { flows_read, ..Options::default() });
    let mut ours: Vec<String> = records
        .iter()
        .map(|record| {
            let is_turned = record["source.packets"] == "0";
            let (from, to) =
                if is_turned { ("destination", "source") } else { ("source", "destination") };
            let protocol = if record["network.transport"] == "tcp" { "6" } else { "17" };
            let time = |field: &str| record[field][..23].replace('T', "");
            let of = |end: &str, field: &str| record[&format!("{end}.{field}")].clone();
            [
                time("event.start"),
                time("event.end"),
                protocol.to_owned(),
                of(from, "ip"),
                of(from, "port"),
                of(to, "ip"),
                of(to, "port"),
                of(from, "packets"),
                of(from, "bytes"),
            ]
            .join("|")
        })
        .collect();
    ours.sort();
    assert_eq!(ours, by_nfdump(&capture));
}
