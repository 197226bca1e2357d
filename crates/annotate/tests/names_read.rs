//! `--names-read`: two sensors name like one that sees the packets of both.

mod support;

use std::path::{Path, PathBuf};

use larder_annotate::options::{Endpoint, Options, OutputFormat};
use larder_wire::Addr;
use larder_wire::capture::{Capture, write};
use larder_wire::packet::decode;
use serde_json::Value;
use support::*;

/// Writes a capture's packets to two files: those between pairs of addresses for which `is_log` is true, and
/// the others.
fn split(capture: &Path, folder: &Folder, is_log: impl Fn(Addr, Addr) -> bool) -> [PathBuf; 2] {
    let bytes = std::fs::read(capture).expect("a capture");
    let (reader, start) = Capture::open(&bytes).expect("a capture");
    let mut parts = [Vec::new(), Vec::new()];
    let mut link_types: Vec<u16> = Vec::new();
    parts.iter_mut().for_each(|part| write::section(part, "test"));
    for (_, record) in reader.records(&bytes, start..bytes.len(), true) {
        let Ok(record) = record else { continue };
        let known = link_types.iter().position(|known| *known == record.link_type);
        let interface = known.unwrap_or_else(|| {
            link_types.push(record.link_type);
            parts.iter_mut().for_each(|part| write::interface(part, record.link_type, 0));
            link_types.len() - 1
        });
        let of_log = decode(record.link_type, record.frame).is_ok_and(|packet| {
            let (one, other) = (packet.src, packet.dst);
            is_log(one.min(other), one.max(other))
        });
        let part = &mut parts[usize::from(!of_log)];
        write::packet(part, interface as u32, record.ts_ns, record.frame, record.original_len);
    }
    let [log, names] = parts;
    [folder.keep("log.pcapng", log), folder.keep("names.pcapng", names)]
}

/// The records of the flows for which `is_log` is true.
fn records_of(made: &Made, is_log: impl Fn(Addr, Addr) -> bool) -> Vec<Value> {
    let addr = |record: &Value, key: &str| {
        let text = record[key].as_str().expect("an address");
        Addr::from(text.parse::<std::net::IpAddr>().expect("an address"))
    };
    let mut records = made.records();
    records.retain(|record| {
        let (one, other) = (addr(record, "source.ip"), addr(record, "destination.ip"));
        is_log(one.min(other), one.max(other))
    });
    records
}

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let files =
        std::fs::read_dir(folder).expect("recordings").map(|file| file.expect("a file").path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
        .collect();
    files.sort();
    files
}

/// Every recording, divided between two sensors by pairs of addresses in several ways: the records are
/// those of one sensor that sees all, byte for byte, and there is none of the other sensor's.
#[test]
fn two_sensors_are_like_one() {
    let (mut logged, mut named) = (0, 0);
    for capture in recordings() {
        for way in 0..4 {
            let folder = Folder::new();
            let is_log = |one: Addr, other: Addr| {
                let octets = one.octets().iter().chain(other.octets());
                let sum =
                    octets.fold(way, |sum: u32, octet| sum.wrapping_mul(31) + u32::from(*octet));
                (sum >> 3) % 2 == 0
            };
            let [log, names] = split(&capture, &folder, is_log);
            let all = same_on_all_cores("all", &ecs(&capture));
            let options = Options { names_read: vec![Endpoint::Path(names)], ..ecs(&log) };
            let two = same_on_all_cores("two sensors", &options);
            let expected = records_of(&all, is_log);
            logged += expected.len();
            named += expected.iter().filter(|r| r.get("destination.domain").is_some()).count();
            assert_eq!(two.records(), expected, "{} {way}", capture.display());
            assert_eq!(two.files["names"], all.files["names"], "{} {way}", capture.display());
            assert_eq!(two.summary.flows, expected.len() as u64, "{} {way}", capture.display());
        }
    }
    assert!(logged > 100 && named > 30, "{logged} {named}");
}

/// Packets that are read for names only are counted apart, and are in no output.
#[test]
fn only_names() {
    let folder = Folder::new();
    let client = [10, 0, 0, 1];
    let server = [198, 51, 100, 7];
    let lookups = vec![question(client, 5000, 1, 1), answer(client, 5000, 1, 1, &[server])];
    let names = folder.keep("names.pcap", std::fs::read(folder.capture(lookups)).expect("a file"));
    let flow = vec![
        udp((client, server), (6000, 9999), b"request"),
        udp((server, client), (9999, 6000), b"response"),
    ];
    let log = folder.capture(flow);
    let options = Options { names_read: vec![Endpoint::Path(names)], ..ecs(&log) };
    let made = same_on_all_cores("only names", &options);
    let records = made.records();
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0]["destination.domain"], "h1.larder.example");
    assert_eq!((made.summary.packets, made.summary.packets_for_names), (2, 2));
    let answers = String::from_utf8_lossy(&made.files["dns.log"]);
    assert!(!answers.contains("h1.larder.example"), "{answers}");
    assert_eq!(made.summary.answers, 0);
    let packets = folder.keep("written.pcapng", &made.files["packets.pcapng"]);
    assert_eq!(frames(&packets).len(), 2, "-w has the packets of the log only");
    let without = same_on_all_cores("without", &Options { names_read: Vec::new(), ..options });
    assert!(without.records()[0].get("destination.domain").is_none());
    assert_eq!(without.summary.packets_for_names, 0);
}

/// A filter is for the packets of the log.
#[test]
fn filters_leave_names_alone() {
    let folder = Folder::new();
    let (client, server) = ([10, 0, 0, 1], [198, 51, 100, 7]);
    let capture = folder.capture(vec![
        question(client, 5000, 1, 1),
        answer(client, 5000, 1, 1, &[server]),
        udp((client, server), (6000, 9999), b"request"),
    ]);
    let options = Options {
        filter: "port 9999".to_owned(),
        names_read: vec![Endpoint::Path(capture.clone())],
        format: OutputFormat::Ecs,
        ..ecs(&capture)
    };
    let records = same_on_all_cores("filtered", &options).records();
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0]["destination.domain"], "h1.larder.example");
}

/// What a flow in the other sensor's capture states decides between two names that its client looked up, as it
/// does where one sensor sees both.
#[test]
fn statements_count() {
    let folder = Folder::new();
    let (client, server) = ([10, 0, 0, 1], [198, 51, 100, 7]);
    let mut all = Maker::new(3);
    for host in [1, 2] {
        all.push(question(client, 5000, host as u16, host));
        all.push(answer(client, 5000, host as u16, host, &[server]));
    }
    let looked_up = all.frames.len();
    let visit = |all: &mut Maker, port: u16, request: &[u8]| {
        all.push(tcp((client, server), (port, 80), 0x02, 100, &[]));
        all.push(tcp((server, client), (80, port), 0x12, 500, &[]));
        all.push(tcp((client, server), (port, 80), 0x18, 101, request));
        all.push(tcp((server, client), (80, port), 0x18, 501, b"HTTP/1.1 200 OK\r\n\r\n"));
    };
    for port in 6010..6020 {
        visit(&mut all, port, b"GET / HTTP/1.1\r\nHost: h1.larder.example\r\n\r\n");
    }
    let stated = all.frames.len();
    visit(&mut all, 6001, b"\0\0\0\0\0\0\0\0");
    let keep = |name: &str, frames: &[Frame]| {
        let mut maker = Maker::new(0);
        maker.frames = frames.to_vec();
        folder.keep(name, maker.pcap())
    };
    let record = |names: &[Frame], log: &[Frame]| {
        let names_read = vec![Endpoint::Path(keep("names.pcap", names))];
        let options = Options { names_read, ..ecs(&keep("log.pcap", log)) };
        let records = same_on_all_cores("statements", &options).records();
        records.into_iter().find(|record| record["source.port"] == 6001).expect("a record")
    };
    let frames = &all.frames;
    let alone = ecs(&keep("all.pcap", frames));
    let one = same_on_all_cores("one sensor", &alone).records();
    let one = one.into_iter().find(|record| record["source.port"] == 6001).expect("a record");
    assert_eq!(one["destination.domain"], "h1.larder.example");
    assert_eq!(record(&frames[..stated], &frames[stated..]), one);
    let newest = record(&frames[..looked_up], &frames[stated..]);
    assert_eq!(newest["destination.domain"], "h2.larder.example", "without the statement");
}

/// The confidence that flows of an earlier capture give depends on the packets that open them and state their names,
/// not on the rest: a capture without their data and ends gives the records that the whole one gives.
#[test]
fn the_rest_of_earlier_flows_does_not_count() {
    let folder = Folder::new();
    let (client, server) = ([10, 0, 0, 1], [198, 51, 100, 7]);
    let (mut whole, mut rest) = (Maker::new(5), Vec::new());
    for host in [1, 2] {
        whole.push(question(client, 5000, host as u16, host));
        whole.push(answer(client, 5000, host as u16, host, &[server]));
    }
    // Half of the flows state the first name, whose lookup is the older one: many choices are wrong then.
    for port in 6010..6090 {
        let request: &[u8] = match port % 2 {
            0 => b"GET / HTTP/1.1\r\nHost: h1.larder.example\r\n\r\n",
            _ => b"GET / HTTP/1.1\r\nHost: h2.larder.example\r\n\r\n",
        };
        whole.push(tcp((client, server), (port, 80), 0x02, 100, &[]));
        whole.push(tcp((server, client), (80, port), 0x12, 500, &[]));
        whole.push(tcp((client, server), (port, 80), 0x18, 101, request));
        whole.push(tcp((server, client), (80, port), 0x18, 501, b"HTTP/1.1 200 OK\r\n\r\n"));
        rest.push(whole.frames.len()..whole.frames.len() + 3);
        whole.push(tcp((server, client), (80, port), 0x18, 520, &[b'x'; 500]));
        whole.push(tcp((server, client), (80, port), 0x11, 1020, &[]));
        whole.push(tcp((client, server), (port, 80), 0x11, 140, &[]));
        whole.pause(500_000_000);
    }
    let earlier = whole.frames.len();
    whole.push(tcp((client, server), (6001, 80), 0x02, 100, &[]));
    whole.push(tcp((client, server), (6001, 80), 0x18, 101, b"\0\0\0\0\0\0\0\0"));
    let keep = |name: &str, frames: Vec<Frame>| {
        let mut maker = Maker::new(0);
        maker.frames = frames;
        folder.keep(name, maker.pcap())
    };
    let is_rest = |at: &usize| rest.iter().any(|range| range.contains(at));
    let reduced = (0..earlier).filter(|at| !is_rest(at)).map(|at| whole.frames[at].clone());
    let names_read = vec![Endpoint::Path(keep("names.pcap", reduced.collect()))];
    let log = keep("log.pcap", whole.frames[earlier..].to_vec());
    let part = same_on_all_cores("reduced", &Options { names_read, ..ecs(&log) }).records();
    let all = same_on_all_cores("whole", &ecs(&keep("all.pcap", whole.frames))).records();
    let all = all.into_iter().find(|record| record["source.port"] == 6001).expect("a record");
    assert_eq!(part.len(), 1, "{part:?}");
    assert_eq!(part[0], all);
    let alone = same_on_all_cores("alone", &ecs(&log)).records();
    assert_ne!(
        all["larder.destination.name_confidence"],
        alone[0]["larder.destination.name_confidence"]
    );
}
