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
    assert!(lines.iter().any(|line| line.ends_with(",\"'=1+1.example\"\r\n")), "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with(",\"\"\r\n")), "{lines:?}");
    let columns = |line: &str| line.matches(',').count();
    assert!(lines.iter().all(|line| columns(line) == columns(CSV_HEADER)), "{lines:?}");
}
