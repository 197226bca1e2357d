//! Unusual events: without packets, and by the ten thousand.

mod common;

use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use common::*;
use larder_store::{FindOptions, Finder, FlowEvent, Query, Store};

/// The number of packets with the name.
fn found(folder: &std::path::Path, name: &str, is_scan: bool) -> usize {
    let query = Query::parse(&[name.to_owned()]).unwrap();
    let mut count = 0;
    let mut visit = |_: larder_store::FoundPacket<'_>| {
        count += 1;
        ControlFlow::Continue(())
    };
    let mut finder = Finder::open(folder).unwrap();
    let options = FindOptions::default();
    let result = match is_scan {
        true => finder.scan(&query, options, &mut visit),
        false => finder.find(&query, options, &mut visit),
    };
    assert_eq!(result.unwrap().segments_without_index, [0; 0]);
    count
}

/// A flow gets its name long after its segment was closed, and no packets follow: its packets are
/// found by the name, also after the store was closed and opened again.
#[test]
fn names_that_come_after_the_last_packet() {
    let folder = tempfile::tempdir().unwrap();
    let mut aged = options(folder.path());
    aged.segment_ms = 1;
    let mut store = Store::open(aged.clone(), &interfaces()).unwrap();
    let mut next = 1;
    let frame = udp([10, 0, 0, 1], 5000, [10, 0, 0, 2], 53, b"x");
    let mut made = Made::default();
    (0..3).for_each(|time| made.packet(0, time, &frame));
    made.append(&mut store, &mut next);
    thread::sleep(Duration::from_millis(5));
    // The flow was idle too long: no packets, only its last event.
    let mut end = event(key(&frame), 1, "late.example");
    end.end_packet = Some(u64::MAX);
    Made { events: vec![end], ..Made::default() }.append(&mut store, &mut next);
    let counts = store.counts().clone();
    store.finish().unwrap();
    assert_eq!(
        (counts.flow_events.load(Relaxed), counts.flow_events_dropped.load(Relaxed)),
        (1, 0)
    );
    for is_scan in [false, true] {
        assert_eq!(found(folder.path(), "late.example", is_scan), 3);
    }
    let mut store = Store::open(aged, &interfaces()).unwrap();
    let empty = store.catalog().last().unwrap();
    assert_eq!((empty.packets, empty.first_ns, empty.last_ns), (0, None, None));
    let mut again = Made::default();
    again.packet(0, 9, &frame);
    again.append(&mut store, &mut 1);
    store.finish().unwrap();
    assert_eq!(found(folder.path(), "late.example", false), 3, "the port is used again");
}

/// One key is used for a hundred thousand flows of two packets each, of which every other has the
/// name: each has its own packets and no others. A search among all flows of the key for each would
/// be quadratic.
#[test]
fn a_key_that_is_used_again_and_again() {
    const FLOWS: u64 = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let mut large = options(folder.path());
    (large.segment_bytes, large.memory_bytes) = (64 << 20, 512 << 20);
    let mut store = Store::open(large, &interfaces()).unwrap();
    let mut next = 1;
    let frame = tcp([10, 0, 0, 1], 5000, [10, 0, 0, 2], 80, b"");
    let key = key(&frame);
    for flows in 0..FLOWS / 1000 {
        let mut made = Made::default();
        for number in 0..1000 {
            let first = next + 2 * number;
            made.packet(0, first as i64, &frame);
            made.packet(0, first as i64, &frame);
            let name = if number % 2 == 0 { "even.example" } else { "odd.example" };
            let begin = event(key, first, name);
            let end = FlowEvent { end_packet: Some(first + 2), names: Vec::new(), ..begin.clone() };
            made.events.extend([begin, end]);
        }
        assert_eq!(next, 1 + flows * 2000);
        made.append(&mut store, &mut next);
    }
    let counts = store.counts().clone();
    store.finish().unwrap();
    assert_eq!(counts.packets_dropped.load(Relaxed) + counts.flow_events_dropped.load(Relaxed), 0);
    for is_scan in [false, true] {
        assert_eq!(found(folder.path(), "even.example", is_scan), FLOWS as usize);
        assert_eq!(found(folder.path(), "*.example", is_scan), 2 * FLOWS as usize);
    }
}
