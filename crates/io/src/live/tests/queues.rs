//! Frames by AF_XDP.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::live::program::program;

/// A pair with two queues, for long frames.
const PAIR_OF_QUEUES: &[&str] = &[
    "link add c0 numrxqueues 2 numtxqueues 2 type veth peer name c1 numrxqueues 2 numtxqueues 2",
    PAIR[1],
    PAIR[2],
    PAIR[3],
    PAIR[4],
    "link set c1 mtu 1900",
    "link set c0 mtu 1900",
];

/// By AF_XDP every frame arrives once and whole, by all queues, those of a flow in order; frames
/// too long for it and sent frames arrive by the rings; the kernel gets none of the others. Without
/// AF_XDP, rings are used, and a message states why.
#[test]
fn xdp_beside_rings() {
    with_network("live::xdp_beside_rings", PAIR_OF_QUEUES, || {
        let options = LiveOptions { xdp: true, ..options("c0") };
        let live = Live::open(&options).unwrap();
        let notes = live.notes().join("; ");
        assert_eq!(notes.is_empty(), !live.queues.is_empty(), "{notes}");
        if cfg!(not(feature = "xdp")) {
            assert!(notes.contains("built without AF_XDP"), "{notes}");
        } else if live.queues.is_empty() {
            return skip("live::xdp_beside_rings", &notes);
        } else {
            assert_eq!(live.queues.len(), 2);
        }
        let (counts, has_queues) = (live.counts(), !live.queues.is_empty());
        let mut source = Source::live(live, SourceOptions::default());
        let (generator, back) = (Generator::new("c1"), Generator::new("c0"));
        let begun = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64;
        let bytes = |n: u32| if n.is_multiple_of(10) { 1850 } else { n as usize % 1400 };
        for n in 0..1000 {
            generator.send(&frame((1, n as u16), n, bytes(n)));
        }
        back.send(&frame((1, 2), 1000, 0));
        let seen = receive(&mut source, 1001);
        // Within a queue they are in order, and flows are spread over queues.
        let mut numbers: Vec<u32> = seen.iter().map(Seen::number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..1001));
        for seen in &seen {
            let n = seen.number();
            let bytes = if n == 1000 { 0 } else { bytes(n) };
            let ports = if n == 1000 { (1, 2) } else { (1, n as u16) };
            assert_eq!(seen.frame, frame(ports, n, bytes));
            assert_eq!(seen.original_len as usize, seen.frame.len());
            assert!(seen.ts_ns >= begun, "{}", seen.ts_ns);
        }
        assert!(drain(&mut source).is_empty());
        let counts = &counts.interfaces()[0];
        let count = |what: &AtomicU64| what.load(Relaxed);
        assert_eq!((count(&counts.received), count(&counts.delivered)), (1001, 1001));
        assert_eq!(count(&counts.dropped), 0);
        drop(source);
        // A filter wants rings.
        let filter = program(&options, Frames::Usual);
        let live = Live::open(&LiveOptions { filter, ..options.clone() }).unwrap();
        assert!(live.queues.is_empty() && !live.notes().is_empty());
        drop(live);
        if has_queues {
            floods_are_counted(LiveOptions { ring_bytes: 1, ..options }, &generator);
        }
    });
}

/// While the capture does not read, frames without room are counted, and the others arrive.
fn floods_are_counted(options: LiveOptions, generator: &Generator) {
    let live = Live::open(&options).unwrap();
    let counts = live.counts();
    let mut source = Source::live(live, SourceOptions::default());
    for n in 0..10_000 {
        generator.send(&frame((1, 2), n, 0));
    }
    let seen = drain(&mut source);
    let numbers: Vec<u32> = seen.iter().map(Seen::number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    let counts = &counts.interfaces()[0];
    let count = |what: &AtomicU64| what.load(Relaxed);
    assert_eq!(count(&counts.received), numbers.len() as u64);
    assert_eq!(count(&counts.received) + count(&counts.dropped), 10_000);
    assert!(count(&counts.dropped) > 0);
}
