//! Flow events in the store where they are difficult: files whose times go back and forth, ports
//! that are used again, few flows in the table, records of flows that continue. By each name the
//! store finds as many packets as the log has.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use larder_annotate::options::{Endpoint, Options, OutputFormat};
use larder_annotate::{Progress, run};
use larder_store::{FindOptions, Finder, Query};
use support::*;

/// Packets by name, as the log has them: those of each flow with this name as destination or as
/// source, and those of each flow with it as a candidate.
fn in_log(path: &Path) -> BTreeMap<String, (u64, u64)> {
    let mut reader = csv::Reader::from_path(path).expect("a log");
    let header = reader.headers().expect("a header").clone();
    let at = |name: &str| header.iter().position(|found| found == name).expect("a column");
    let names = ["source.domain", "destination.domain", "tls.client.server_name", "url.domain"];
    let others = ["larder.source.candidates", "larder.destination.candidates"];
    let (names, others) = (names.map(at), others.map(at));
    let packets = ["source.packets", "destination.packets"].map(at);
    let mut found = BTreeMap::new();
    for row in reader.records() {
        let row = row.expect("a record");
        let packets: u64 = packets.iter().filter_map(|at| row[*at].parse::<u64>().ok()).sum();
        let names: BTreeSet<&str> = names.iter().map(|at| &row[*at]).collect();
        let others =
            others.iter().flat_map(|at| row[*at].split([' ', ',', ';', '|', '"', '[', ']']));
        let all: BTreeSet<&str> = others.chain(names.iter().copied()).collect();
        // Some characters of the other names have a meaning in a search.
        let is_plain =
            |name: &&str| !name.is_empty() && !name.contains(['\\', '*', '?', '/', ':', '[']);
        for name in all.into_iter().filter(is_plain) {
            let (called, possible) = found.entry(name.to_owned()).or_insert((0, 0));
            *called += if names.contains(name) { packets } else { 0 };
            *possible += packets;
        }
    }
    found
}

fn in_store(folder: &Path, name: &str, is_scan: bool) -> u64 {
    let query = Query::parse(&[name]).expect("a name");
    let mut finder = Finder::open(folder).expect("a folder");
    let mut visit = |_: larder_store::FoundPacket<'_>| ControlFlow::Continue(());
    let options = FindOptions::default();
    match is_scan {
        true => finder.scan(&query, options, &mut visit),
        false => finder.find(&query, options, &mut visit),
    }
    .expect("a search")
    .packets
}

/// Runs over `read`, stores the packets, and compares log and store by every name of the log.
/// Returns the number of compared packets.
fn compare(what: &str, read: Vec<Endpoint>, cores: usize, options: Options) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("flows.csv");
    let mut store = larder_store::Options::new(folder.path().join("kept"), 1 << 30);
    (store.segment_bytes, store.memory_bytes) = (256 << 10, 256 << 20);
    let options = Options {
        read,
        output: Endpoint::Path(log.clone()),
        format: OutputFormat::Csv,
        names_budget_bytes: 32 << 20,
        store: Some(store),
        cores,
        ..options
    };
    let summary = run(&options, &Arc::new(Progress::default())).expect("a run");
    let kept = summary.kept.expect("a store");
    let count = |name| kept.iter().find(|one| one.0 == name).expect("a count").1;
    assert_eq!((count("packets"), count("packets_dropped")), (summary.packets, 0), "{what}");
    let mut sum = 0;
    let folder = folder.path().join("kept");
    for (at, (name, (called, possible))) in in_log(&log).into_iter().enumerate() {
        let found = in_store(&folder, &name, false);
        // A scan takes long.
        assert!(at % 16 > 0 || found == in_store(&folder, &name, true), "{what}: {name}");
        // A flow that says another name than DNS has both.
        assert!(
            (called..=possible).contains(&found),
            "{what}: {name}: {called} {found} {possible}"
        );
        sum += called;
    }
    sum
}

/// Recordings of real programs in one run, the last of them first: by each name the store finds as
/// many packets as the flows with it have.
#[test]
fn recordings_together() {
    let paths = golden();
    let mut all: Vec<Endpoint> = paths.iter().map(|path| Endpoint::Path(path.clone())).collect();
    for what in ["all", "the last first"] {
        let compared = compare(what, all.clone(), 2, Options::default());
        assert!(compared > 100, "{what}: {compared}");
        all.reverse();
    }
}

/// Much traffic with keys that are used again, over many segments, with few flows in the table, and
/// with records of flows that continue.
#[test]
fn mixtures() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mixture.pcap");
    std::fs::write(&path, mixture(5, 1 << 20).pcap()).expect("room");
    let read = || vec![Endpoint::Path(path.clone())];
    let ways = [
        ("at ease", Options::default()),
        ("few flows", Options { flows_max: 64, ..Options::default() }),
        ("active", Options { active_s: 1, udp_idle_s: 2, linger_s: 0, ..Options::default() }),
        ("cut", Options { cut_every_s: 60, ..Options::default() }),
    ];
    for (at, (what, options)) in ways.into_iter().enumerate() {
        assert!(compare(what, read(), 1 + at, options) > 500, "{what}");
    }
}

/// The last packet of a batch belongs to a flow that has ended when that batch ends: times go back,
/// as where rings or files are joined. The store finds it.
#[test]
fn a_flow_that_ends_with_its_batch() {
    let (client, server) = ([10, 0, 0, 1], [198, 51, 100, 7]);
    let mut maker = Maker::new(1);
    maker.push(question(client, 4000, 7, 1));
    maker.push(answer(client, 4000, 7, 1, &[server]));
    let at_ns = maker.frames[1].at_ns;
    maker.pause(3_600_000_000_000);
    maker.push(udp(([10, 0, 0, 2], [10, 0, 0, 3]), (1, 2), b"later"));
    maker.push(udp((client, server), (5000, 9000), b"x"));
    maker.frames[3].at_ns = at_ns + 1;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("to-and-fro.pcap");
    std::fs::write(&path, maker.pcap()).expect("room");
    // Query and response have no name of their own; the client's packet has the server's.
    let compared = compare("to and fro", vec![Endpoint::Path(path)], 1, Options::default());
    assert_eq!(compared, 1);
}
