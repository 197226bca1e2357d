//! Packets that are older than the age are deleted, also while no packets come, and no others.

mod common;

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use common::*;
use larder_store::{FindOptions, Options, Store};
use larder_testkit::wait::until_so;

fn now_ns() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64
}

/// Appends packets with these ages in seconds, one after the other, each in a segment of its own.
fn append(store: &mut Store, next: &mut u64, ages_s: &[i64]) {
    for age_s in ages_s {
        let mut made = Made::default();
        // A segment has 4 KiB.
        made.packet(
            0,
            now_ns() - age_s * 1_000_000_000,
            &udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, &[7; 3000]),
        );
        made.append(store, next);
    }
}

/// The ages in the store, in seconds.
fn ages(options: &Options) -> Vec<i64> {
    let words = ["10.0.0.1".to_owned()];
    let (found, _) = world::find(&options.directory, &words, FindOptions::default(), false);
    found.iter().map(|(ts_ns, _)| (now_ns() - ts_ns) / 1_000_000_000 / 1_000).collect()
}

/// Segments whose packets are too old go, the oldest first; a newer packet in front of an old one
/// protects it until it is too old itself, since segments are deleted in order. What was stored before
/// a restart is deleted as well.
#[test]
fn old_packets_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let unlimited = options(folder.path());
    let mut store = Store::open(unlimited.clone(), &interfaces()).unwrap();
    let mut next = 1;
    append(&mut store, &mut next, &[9_000, 8_000, 7_000, 2_000]);
    store.finish().unwrap();
    assert_eq!(ages(&unlimited), [9, 8, 7, 2]);
    let limited = Options { age: Some(Duration::from_secs(5_500)), ..unlimited };
    let mut store = Store::open(limited.clone(), &interfaces()).unwrap();
    until_so("packets of the last run are deleted", || ages(&limited) == [2]);
    let mut next = 1;
    append(&mut store, &mut next, &[9_000, 1_000, 0]);
    wait_until_written(&store);
    // The second check finds nothing to delete: the packet of 2,000 s is in front.
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(ages(&limited), [2, 9, 1, 0]);
    assert_eq!(store.counts().segments_deleted.load(Ordering::Relaxed), 3);
    store.finish().unwrap();
    let shorter = Options { age: Some(Duration::from_secs(1_500)), ..limited };
    let store = Store::open(shorter.clone(), &interfaces()).unwrap();
    until_so("those behind it, too", || ages(&shorter) == [1, 0]);
    store.finish().unwrap();
}
