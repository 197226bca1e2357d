//! Appended packets are in files, whole and in order.

mod common;

use std::sync::atomic::Ordering::Relaxed;

use common::*;
use larder_mem::object::Phase;
use larder_store::{Batch, Content, Store, StoreError};
use larder_testkit::wait::until_so;

/// Appends `count` packets in batches of 7; returns the frames.
fn append_some(store: &mut Store, next: &mut u64, count: usize) -> Vec<(i64, Vec<u8>)> {
    let frames: Vec<_> = (0..count)
        .map(|at| {
            let time = *next as i64 + at as i64;
            (time, udp([10, 0, 0, 1], at as u16, [10, 0, 0, 2], 53, &vec![at as u8; at % 300]))
        })
        .collect();
    for chunk in frames.chunks(7) {
        let mut made = Made::default();
        chunk.iter().for_each(|(time, frame)| made.packet(0, *time, frame));
        made.append(store, next);
    }
    frames
}

/// Packets that were appended in batches are in the segments' files, whole and in order, over a
/// restart that continues numbers and positions; the folder has no other files. Invariant 1 of
/// `store`.
#[test]
fn packets_are_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    let (mut number_last, mut position_last) = (None, 0);
    for _ in 0..2 {
        let mut store = Store::open(options(folder.path()), &interfaces()).unwrap();
        let mut next = 1;
        expected.extend(append_some(&mut store, &mut next, 300));
        let segments = store.catalog().list();
        assert!(segments.len() > 5);
        for pair in segments.windows(2) {
            assert_eq!(pair[0].number + 1, pair[1].number);
            assert_eq!(pair[0].first_position + pair[0].bytes, pair[1].first_position);
            assert!(pair[0].is_closed && pair[0].bytes <= 4 << 10);
        }
        let last = store.catalog().last().unwrap();
        assert!(number_last < Some(last.number) && position_last < last.first_position);
        assert!(!last.is_closed);
        let Content::Memory(object) = &last.content else { panic!("it grows in memory") };
        assert_eq!((object.phase(), object.published()), (Phase::Filling, last.bytes));
        (number_last, position_last) = (Some(last.number), last.first_position + last.bytes);
        let counts = store.counts().clone();
        store.finish().unwrap();
        assert_eq!(counts.packets.load(Relaxed), 300);
        assert_eq!(counts.packets_dropped.load(Relaxed) + counts.disk_errors.load(Relaxed), 0);
    }
    assert_eq!(all_frames(folder.path()), expected);
    assert!(files(folder.path()).iter().all(|name| !name.ends_with(".part")));
}

/// Appended packets are in the file of the growing segment soon, without further packets.
#[test]
fn what_grows_is_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(options(folder.path()), &interfaces()).unwrap();
    let mut next = 1;
    let expected = append_some(&mut store, &mut next, 3);
    let part = folder.path().join("00000000.pcapng.part");
    until_so("the file grows", || {
        std::fs::read(&part).is_ok_and(|file| !file.is_empty() && frames(&file) == expected)
    });
    store.finish().unwrap();
}

/// Foreign files stay unchanged, also under a name like a segment's; and two writers do not share a
/// folder.
#[test]
fn a_folder_is_shared_with_care() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = [("00000000.pcapng", "not ours"), ("events.txt", "hello"), ("7.pcapng", "")];
    for (name, text) in foreign {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let mut small = options(folder.path());
    small.budget_bytes = 16 << 10;
    let mut store = Store::open(small.clone(), &interfaces()).unwrap();
    assert!(matches!(Store::open(small, &interfaces()), Err(StoreError::Locked(_))));
    append_some(&mut store, &mut 1, 300);
    store.finish().unwrap();
    for (name, text) in foreign {
        assert_eq!(std::fs::read_to_string(folder.path().join(name)).unwrap(), text);
    }
    assert!(files(folder.path()).len() > foreign.len() + 1);
}

/// Closed segments stay within the budget, and the oldest are deleted first. Invariant 3 of
/// `store`.
#[test]
fn the_budget_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut small = options(folder.path());
    small.budget_bytes = 40 << 10;
    let mut store = Store::open(small.clone(), &interfaces()).unwrap();
    let expected = append_some(&mut store, &mut 1, 1000);
    let counts = store.counts().clone();
    store.finish().unwrap();
    let bytes: u64 = files(folder.path())
        .iter()
        .filter(|name| *name != "lock")
        .map(|name| std::fs::metadata(folder.path().join(name)).unwrap().len())
        .sum();
    assert!(bytes <= small.budget_bytes && bytes > small.budget_bytes / 2, "{bytes}");
    assert_eq!(counts.bytes_kept.load(Relaxed), bytes);
    assert!(counts.segments_deleted.load(Relaxed) > 10);
    let kept = all_frames(folder.path());
    assert_eq!(kept, expected[expected.len() - kept.len()..]);
}

/// A batch that contradicts itself is refused, and nothing of it is stored.
#[test]
fn bad_batches_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(options(folder.path()), &interfaces()).unwrap();
    let mut made = Made::default();
    made.packet(0, 1, &udp([1; 4], 1, [2; 4], 2, b"x"));
    made.packet(1, 2, &[0x45; 30]);
    let batch =
        Batch { blocks: &made.blocks, offsets: &made.offsets, first_packet: 1, events: &[] };
    let mut foreign = Made::default();
    foreign.packet(2, 1, &[0; 20]);
    let shifted = [made.offsets[0] + 4, made.offsets[1]];
    for bad in [
        Batch { blocks: &made.blocks[..made.blocks.len() - 4], ..batch },
        Batch { blocks: &foreign.blocks, offsets: &[0], ..batch },
        Batch { offsets: &made.offsets[..1], ..batch },
        Batch { offsets: &shifted, ..batch },
        Batch { offsets: &[], ..batch },
        Batch { first_packet: 0, ..batch },
    ] {
        assert!(matches!(store.append(&bad), Err(StoreError::Batch(_))), "{bad:?}");
    }
    store.append(&batch).unwrap();
    assert!(store.append(&batch).is_err(), "numbers go on");
    store.finish().unwrap();
    assert_eq!(all_frames(folder.path()).len(), 2);
}

/// A writer that is killed at any moment loses no flushed packet: the next start finds each packet
/// that was reported as written, in order and without a gap, and continues after them. Invariant 2
/// of `store`.
#[test]
fn a_killed_writer_loses_nothing_that_was_flushed() {
    use std::io::{BufRead, BufReader, Write};
    const CHILD: &str = "LARDER_TEST_KILLED_WRITER";
    if let Some(folder) = std::env::var_os(CHILD) {
        let mut options = options(std::path::Path::new(&folder));
        options.segment_bytes = 64 << 10;
        let mut store = Store::open(options, &interfaces()).unwrap();
        let counts = store.counts().clone();
        let sum = |store: &Store| -> u64 {
            store.catalog().list().iter().map(|segment| segment.bytes).sum()
        };
        let (mut next, earlier) = (1, sum(&store));
        // Bounded, in case it is not killed.
        for _ in 0..10_000 {
            (0..3).for_each(|_| drop(append_some(&mut store, &mut next, 20)));
            until_so("all is written", || {
                counts.bytes_written.load(Relaxed) + earlier == sum(&store)
            });
            println!("flushed {}", counts.packets.load(Relaxed));
            std::io::stdout().flush().unwrap();
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..4 {
        let before = all_frames(folder.path()).len() as u64;
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_writer_loses_nothing_that_was_flushed", "--nocapture"])
            .env(CHILD, folder.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // Kept until it is dead: without a reader the child would end by itself.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let flushed: Option<u64> = lines
            .by_ref()
            .map(|line| line.unwrap())
            .filter_map(|line| line.strip_prefix("flushed ")?.parse().ok())
            .find(|flushed| *flushed > 2000);
        child.kill().unwrap();
        child.wait().unwrap();
        let flushed = flushed.expect("the child says what it has flushed");
        let options = options(folder.path());
        let log = options.log.clone();
        let store = Store::open(options, &interfaces()).unwrap();
        assert_eq!(log.take().len(), 1, "one segment was not closed");
        store.finish().unwrap();
        let all = all_frames(folder.path());
        let new = &all[before as usize..];
        assert!(new.len() as u64 >= flushed, "{} of {flushed}", new.len());
        let is_whole = |(at, (_, frame)): (usize, &(i64, Vec<u8>))| {
            let port = (at % 20) as u16;
            frame[34..36] == port.to_be_bytes()
        };
        assert!(new.iter().enumerate().all(is_whole));
    }
}

/// All files have the modes of their folder's access, whatever they had before: segments, indexes,
/// journals, the lock; and the folder that was made for them.
#[test]
fn files_are_for_their_user() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("a/kept");
    let own = std::fs::metadata("/proc/self").unwrap().gid();
    for (access, file_mode, folder_mode) in [
        (larder_io::access::Access::PRIVATE, 0o600, 0o700),
        (larder_io::access::Access::shared(own), 0o640, 0o750),
    ] {
        let options = larder_store::Options { access, ..options(&folder) };
        let mut store = Store::open(options, &interfaces()).unwrap();
        let modes = || {
            let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
            assert_eq!(mode(&folder), folder_mode);
            for name in files(&folder) {
                assert_eq!(mode(&folder.join(&name)), file_mode, "{name}");
            }
        };
        let mut next = 1;
        for _ in 0..20 {
            let mut made = Made::default();
            made.packet(0, 1, &udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, &[0; 1000]));
            made.append(&mut store, &mut next);
        }
        wait_until_written(&store);
        modes();
        store.finish().unwrap();
        modes();
        // The modes of an earlier version.
        for name in files(&folder) {
            let path = folder.join(name);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
        }
    }
}

/// Numbers of segments are not used again: not by the next run, and not after all segments were
/// deleted before it.
#[test]
fn numbers_are_not_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut used = std::collections::BTreeSet::new();
    for run in 0..4 {
        let mut store = Store::open(options(folder.path()), &interfaces()).unwrap();
        let mut made = Made::default();
        for _ in 0..30 {
            made.packet(0, 1, &udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, &[0; 1000]));
        }
        made.append(&mut store, &mut 1);
        store.finish().unwrap();
        let mut count = 0;
        for name in files(folder.path()) {
            if let Some(number) = name.strip_suffix(".pcapng") {
                assert!(used.insert(number.to_owned()) || run == 2, "{number} again in run {run}");
                count += 1;
            }
            // All segments are deleted, except those of run 1, which run 2 finds.
            if name != "lock" && run != 1 {
                std::fs::remove_file(folder.path().join(name)).unwrap();
            }
        }
        assert!(count > 5);
    }
}
