//! Packets that are kept are found by the names that the log has.
//!
//! The log and the packet store come of the same run. Of each name of the log a second, obvious way gives the packets: all of the
//! capture whose 5-tuple and time are those of a record with that name. Both must be the same packets in the same order. A flow that
//! states another name than its client had asked for is found by both, and the log has the second among the candidates.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use larder_annotate::options::{Endpoint, Options, OutputFormat};
use larder_annotate::{Progress, run};
use larder_store::{FindOptions, Finder, Query};
use larder_wire::Addr;
use larder_wire::capture::{self, Record};
use larder_wire::flow_key::{FlowKey, protocol};
use larder_wire::packet;
use serde_json::Value;

/// What identifies a flow in the log.
type Ends = BTreeSet<(IpAddr, u64)>;
type Span = (Ends, i64, i64);
type Frame = (i64, Vec<u8>);

fn addr(addr: Addr) -> IpAddr {
    IpAddr::from(addr)
}

fn ends(key: &FlowKey) -> Ends {
    if !matches!(key.protocol, protocol::TCP | protocol::UDP) {
        // The log has no ports of these.
        return [(addr(key.low), 0), (addr(key.high), 0)].into();
    }
    [(addr(key.low), u64::from(key.low_port)), (addr(key.high), u64::from(key.high_port))].into()
}

/// Runs with a store of tiny segments; returns the log, one record a line.
fn keep(capture: &Path, folder: &Path, cores: usize) -> Vec<Value> {
    let log = folder.join("log");
    let store = larder_store::Options {
        segment_bytes: 16 << 10,
        ..larder_store::Options::new(folder.join("store"), 1 << 30)
    };
    let options = Options {
        read: vec![Endpoint::Path(capture.to_owned())],
        format: OutputFormat::Ecs,
        output: Endpoint::Path(log.clone()),
        store: Some(store),
        cores,
        ..Options::default()
    };
    let summary = run(&options, &Arc::new(Progress::default())).expect("a sound run");
    let kept = summary.kept.expect("a store");
    let count = |name| kept.iter().find(|(other, _)| *other == name).expect("a count").1;
    assert_eq!((count("packets"), count("packets_dropped")), (summary.packets, 0));
    let text = std::fs::read_to_string(log).expect("a log");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn found(folder: &Path, word: &str, options: FindOptions) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut finder = Finder::open(&folder.join("store")).expect("a store");
    let query = Query::parse(&[word]).expect("a word");
    let summary = finder.find(&query, options, &mut |packet| {
        frames.push((packet.ts_ns, packet.frame.to_vec()));
        ControlFlow::Continue(())
    });
    assert!(summary.expect("a sound store").segments_without_index.is_empty());
    frames
}

/// The packets of a capture: key, whether it is whole, time, bytes.
fn packets(path: &Path) -> Vec<(Option<FlowKey>, bool, Frame)> {
    let bytes = std::fs::read(path).expect("a capture");
    let records = capture::records(&bytes).expect("a capture");
    let read = |record: Record<'_>| {
        let decoded = packet::decode(record.link_type, record.frame).ok();
        let is_whole = decoded.is_none_or(|packet| packet.fragment.is_none());
        let key = decoded.map(|packet| FlowKey::of(&packet).0);
        (key, is_whole, (record.ts_ns, record.frame.to_vec()))
    };
    records.filter_map(|(_, record)| record.ok()).map(read).collect()
}

/// A time of the log, ns; the tests' captures are of this century.
fn time_ns(record: &Value, name: &str) -> i64 {
    let text = record[name].as_str().expect("a time");
    larder_annotate::feeds::parse_time_ns(text.as_bytes()).expect("a time")
}

#[test]
fn names_of_the_log_find_their_packets() {
    let mut names_tried = 0;
    for path in larder_testkit::captures::all() {
        let packets = packets(&path);
        // Only its first fragment tells the flow of a later one; the store has tests of those.
        let has_fragments = packets.iter().any(|(_, is_whole, _)| !is_whole);
        // Where times go back, the packets of a record cannot be told by its times.
        let is_sorted = packets.is_sorted_by_key(|(.., (ns, _))| *ns);
        let folder = tempfile::tempdir().expect("a folder");
        let records = keep(&path, folder.path(), 1 + names_tried % 3);
        let mut flows: BTreeMap<String, Vec<Span>> = BTreeMap::new();
        let mut beside: BTreeMap<String, Vec<Span>> = BTreeMap::new();
        for record in &records {
            let end = |side: &str| {
                let ip = record[format!("{side}.ip")].as_str().expect("an address");
                (
                    ip.parse().expect("an address"),
                    record[format!("{side}.port")].as_u64().unwrap_or(0),
                )
            };
            let key: Ends = [end("source"), end("destination")].into();
            let span = (key, time_ns(record, "event.start"), time_ns(record, "event.end"));
            for name in record["related.hosts"].as_array().into_iter().flatten() {
                let name = name.as_str().expect("a name").to_owned();
                beside.entry(name).or_default().push(span.clone());
            }
            for field in
                ["source.domain", "destination.domain", "tls.client.server_name", "url.domain"]
            {
                if let Some(name) = record[field].as_str() {
                    let flows = flows.entry(name.to_owned()).or_default();
                    flows.push(span.clone());
                }
            }
        }
        for (name, spans) in &flows {
            // A name that is not plain has another spelling in a query than in JSON. And an address
            // that a flow states as its host is no name.
            if has_fragments
                || !is_sorted
                || name.parse::<IpAddr>().is_ok()
                || !name.bytes().all(|byte| byte.is_ascii_graphic() && !b"*\\".contains(&byte))
            {
                continue;
            }
            let is_of = |spans: &[Span], key: &FlowKey, ns: i64| {
                let ends = ends(key);
                spans.iter().any(|(of, first, last)| *of == ends && (*first..=*last).contains(&ns))
            };
            let beside = beside.get(name).map_or(&[][..], Vec::as_slice);
            let found = found(folder.path(), name, FindOptions::default());
            let mut found = found.iter();
            let mut count = 0;
            for (key, _, frame) in &packets {
                let Some(key) = key else { continue };
                if is_of(spans, key, frame.0) {
                    assert_eq!(found.next(), Some(frame), "{}: {name}", path.display());
                    count += 1;
                } else if is_of(beside, key, frame.0) {
                    // By lookups alone it has this name; the flow stated another, or statements of others chose one.
                    // The log does not tell which one it was.
                    let _ = found.as_slice().first().is_some_and(|next| next == frame)
                        && found.next().is_some();
                }
            }
            assert!(
                count > 0 && found.next().is_none(),
                "{}: {name}: more than that",
                path.display()
            );
            names_tried += 1;
        }
    }
    assert!(names_tried > 10, "{names_tried}");
}

/// A search finds the client that queried a name only when lookups are wanted.
#[test]
fn lookups_are_found_when_asked_for() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures/r1-as-asked.pcap");
    let folder = tempfile::tempdir().expect("a folder");
    let records = keep(&path, folder.path(), 1);
    let name = records.iter().find_map(|record| record["destination.domain"].as_str());
    let name = name.expect("a flow with a name");
    let plain = found(folder.path(), name, FindOptions::default());
    let with = FindOptions { lookups: true, ..FindOptions::default() };
    let with = found(folder.path(), name, with);
    let dns = |frames: &[Frame]| {
        let is_dns = |frame: &&Frame| {
            let packet = packet::decode(1, &frame.1).expect("a packet");
            packet.src_port == 53 || packet.dst_port == 53
        };
        frames.iter().filter(is_dns).count()
    };
    assert_eq!(dns(&plain), 0);
    assert!(dns(&with) >= 2, "a question and its answer");
    assert_eq!(with.len(), plain.len() + dns(&with));
}
