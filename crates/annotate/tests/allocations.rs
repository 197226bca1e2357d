//! A packet allocates nothing (ARCHITECTURE.md, invariant 5): a capture of the same flows with ten
//! times the packets allocates more only for its batches.
//!
//! This is a test program of its own, with one test: the allocator counts for all threads of the
//! process.

mod support;

use std::alloc::System;
use std::path::Path;
use std::sync::Arc;

use larder_annotate::options::{Endpoint, Options};
use larder_annotate::{Progress, run};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::*;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Packets for each allocation that is allowed beyond those of the shorter capture. A batch of 1
/// MiB has about two thousand packets here, and some allocations of its own.
const PACKETS_PER_ALLOCATION: usize = 50;

const FLOWS: u64 = 200;

/// A pcap file in which every flow begins, then `packets` packets: TCP in both directions, UDP, and
/// TCP in VXLAN.
fn capture(packets: usize) -> Vec<u8> {
    let mut maker = Maker::new(7);
    let client = |flow: u64| [10, 0, 0, flow as u8];
    let (server, port) = ([192, 0, 2, 80], |flow: u64| 20_000 + flow as u16);
    for flow in 0..FLOWS {
        let ports = (port(flow), 443);
        maker.push(tcp((client(flow), server), ports, 0x02, 0, &[]));
    }
    for _ in 0..packets {
        let flow = maker.random.below(FLOWS);
        let payload = vec![0; maker.random.below(1000) as usize];
        let (there, back) = ((port(flow), 443), (443, port(flow)));
        let frame = match maker.random.below(4) {
            0 => tcp((client(flow), server), there, 0x10, 1, &payload),
            1 => tcp((server, client(flow)), back, 0x10, 1, &payload),
            2 => udp((client(flow), server), (port(flow), 4500), &payload),
            _ => {
                let inner = tcp((client(flow), server), there, 0x10, 1, &payload);
                in_vxlan(([192, 0, 2, 1], [192, 0, 2, 2]), 7, &inner)
            }
        };
        maker.push(frame);
    }
    maker.pcap()
}

/// Counts the allocations and reallocations of a run on `cores` cores.
fn allocations(path: &Path, cores: usize) -> usize {
    let options = Options {
        read: vec![Endpoint::Path(path.to_owned())],
        output: Endpoint::Path("/dev/null".into()),
        names_budget_bytes: 1 << 20,
        cores,
        ..Options::default()
    };
    let region = Region::new(ALLOCATOR);
    run(&options, &Arc::new(Progress::default())).expect("a run");
    let change = region.change();
    change.allocations + change.reallocations
}

#[test]
fn nothing_is_allocated_for_a_packet() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (few, many) = (20_000, 200_000);
    let kept = |packets: usize| {
        let path = folder.path().join(packets.to_string());
        std::fs::write(&path, capture(packets)).expect("room for a capture");
        path
    };
    let (short, long) = (kept(few), kept(many));
    for cores in [1, 2] {
        // The first run makes the allocations that are made once a process.
        allocations(&short, cores);
        let before = allocations(&short, cores);
        let more = allocations(&long, cores).saturating_sub(before);
        assert!(before > 0, "the allocator does not count");
        assert!(
            more < (many - few) / PACKETS_PER_ALLOCATION,
            "{cores} cores: {more} allocations for {} packets more, {before} for {few}",
            many - few
        );
    }
}
