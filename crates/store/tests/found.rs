//! What was found, by flow: rows, their forms, and their bound.

mod common;

use std::ops::ControlFlow;
use std::path::Path;

use common::*;
use larder_store::found::{CSV_HEADER, FoundFlows, Row};
use larder_store::{FindOptions, Finder, FoundPacket, Query, Store};

/// A UDP flow in no VLAN, in VLAN 10, and in VLAN 20 within it, and another flow. The first has a name that
/// a spreadsheet would run.
fn store(folder: &Path) {
    let mut store = Store::open(options(folder), &interfaces()).unwrap();
    let (mut made, mut next) = (Made::default(), 1);
    let udp = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, b"hello");
    let tagged = |tags: &[u8]| [&udp[..12], tags, &udp[12..]].concat();
    let one = tagged(&[0x81, 0, 0, 10]);
    let two = tagged(&[0x81, 0, 0, 10, 0x81, 0, 0, 20]);
    let tcp = tcp([10, 0, 0, 1], 2000, [198, 51, 100, 1], 443, b"hello");
    for (ts_ns, frame) in [&udp, &one, &two, &two, &tcp].into_iter().enumerate() {
        made.packet(0, ts_ns as i64, frame);
    }
    made.events.push(event(key(&udp), 1, "=1+1.example"));
    made.append(&mut store, &mut next);
    store.finish().unwrap();
}

fn found(folder: &Path, flows_max: usize) -> (FoundFlows, Vec<Row>) {
    let mut finder = Finder::open(folder).unwrap();
    let mut flows = FoundFlows::with_limit(flows_max);
    let query = Query::read("udp or tcp", 0).unwrap();
    let mut visit = |packet: FoundPacket<'_>| {
        flows.take(&packet);
        ControlFlow::Continue(())
    };
    finder.find(&query, FindOptions::default(), &mut visit).unwrap();
    let rows = flows.rows(&finder).unwrap();
    (flows, rows)
}

/// Flows of two VLANs are two rows, each with its network as conditions that find it alone.
#[test]
fn networks_are_apart() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path());
    let (_, rows) = found(folder.path(), 100);
    let mut of_udp: Vec<(String, u64)> = rows
        .iter()
        .filter(|row| row.word().as_deref() == Some("10.0.0.1:1-10.0.0.2:2/udp"))
        .map(|row| (row.network(), row.tally.packets))
        .collect();
    of_udp.sort_unstable();
    let of_udp: Vec<(&str, u64)> = of_udp.iter().map(|(text, count)| (&**text, *count)).collect();
    assert_eq!(of_udp, [("", 1), ("vlan 10", 1), ("vlan 10 and vlan 20", 2)]);
    let inner = rows.iter().find(|row| row.tally.packets == 2).unwrap();
    let mut json = Vec::new();
    inner.write_json(&mut json);
    let json = String::from_utf8(json).unwrap();
    assert!(json.contains(r#"/udp","network":"vlan 10 and vlan 20","packets":2,"#), "{json}");
    let text = format!("flow {} and {}", inner.word().unwrap(), inner.network());
    let query = Query::read(&text, 0).unwrap();
    let mut times = Vec::new();
    let mut visit = |packet: FoundPacket<'_>| {
        times.push(packet.ts_ns);
        ControlFlow::Continue(())
    };
    let mut finder = Finder::open(folder.path()).unwrap();
    finder.find(&query, FindOptions::default(), &mut visit).unwrap();
    assert_eq!(times, [2, 3]);
}

/// A name never begins a cell as a formula does; the columns are those of the first line.
#[test]
fn names_are_no_formulas() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path());
    let (_, rows) = found(folder.path(), 100);
    let line = |row: &Row| {
        let mut line = Vec::new();
        row.write_csv(&mut line);
        String::from_utf8(line).unwrap()
    };
    let lines: Vec<String> = rows.iter().map(line).collect();
    assert!(lines.iter().any(|line| line.ends_with(",\"'=1+1.example\",\r\n")), "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with(",\"\",vlan 10\r\n")), "{lines:?}");
    let columns = |line: &str| line.matches(',').count();
    assert!(lines.iter().all(|line| columns(line) == columns(CSV_HEADER)), "{lines:?}");
}

/// Packets of flows beyond the limit are counted, with their bytes, and the counts state how many these are.
#[test]
fn flows_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path());
    let (all, rows) = found(folder.path(), 100);
    assert_eq!((all.flows(), all.others().packets, rows.len()), (4, 0, 4));
    let (few, rows) = found(folder.path(), 2);
    assert_eq!((few.flows(), few.others().packets, rows.len()), (2, 3, 2));
    let in_rows: u64 = rows.iter().map(|row| row.tally.bytes).sum();
    assert_eq!(in_rows + few.others().bytes, few.all().bytes);
    assert_eq!(few.all(), all.all());
    let counts = |flows: &FoundFlows| {
        let mut line = Vec::new();
        flows.all().write_counts(flows.flows() as u64, flows.others().packets, &mut line);
        String::from_utf8(line).unwrap()
    };
    let start = |text: &str| format!("{{\"packets\":5,\"bytes\":{},{text}", all.all().bytes);
    assert!(counts(&all).starts_with(&start("\"flows\":4,\"first\":")), "{}", counts(&all));
    let bounded = start("\"flows\":2,\"packets_of_other_flows\":3,\"first\":");
    assert!(counts(&few).starts_with(&bounded), "{}", counts(&few));
}
