//! The catalog: readers in the process see growing, closed and deleted segments.

mod common;

use std::ops::ControlFlow;

use common::*;
use larder_mem::object::iterate;
use larder_store::{Content, Store};

fn made(first: i64) -> Made {
    let mut made = Made::default();
    for number in first..first + 10 {
        made.packet(0, number, &udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, &[number as u8; 300]));
    }
    made
}

/// A reader that waits on the growing segment gets the bytes of each segment as in its later file,
/// also after the catalog has dropped the memory; a segment that the budget deleted is not in the
/// catalog.
#[test]
fn readers_see_what_is_in_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.segment_bytes = 256 << 10;
    options.memory_bytes = 4 << 20;
    let mut store = Store::open(options, &interfaces()).unwrap();
    let catalog = store.catalog().clone();
    let mut next = 1;
    made(1).append(&mut store, &mut next);
    let first = catalog.last().unwrap();
    let Content::Memory(object) = first.content.clone() else { panic!("it grows") };
    let reader = std::thread::spawn(move || {
        let mut read = Vec::new();
        let end = iterate(&object, 0..u64::MAX, |piece| {
            read.extend_from_slice(piece);
            ControlFlow::<()>::Continue(())
        });
        end.map(|_| read)
    });
    // Several times the memory, at a pace of the disk.
    for _ in 0..3000 {
        made(next as i64).append(&mut store, &mut next);
        let counts = store.counts();
        let of =
            |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
        while of(&counts.bytes) > of(&counts.bytes_written) + (1 << 20) {
            std::thread::yield_now();
        }
    }
    let counts = store.counts().clone();
    let read = reader.join().unwrap().unwrap();
    let list = catalog.list();
    assert_eq!(list[0].number, first.number);
    assert!(matches!(list[0].content, Content::File(..)), "its memory was needed");
    assert!(list.iter().any(|segment| matches!(segment.content, Content::Memory(_))));
    store.finish().unwrap();
    assert_eq!(counts.packets_dropped.load(std::sync::atomic::Ordering::Relaxed), 0);
    assert!(read == std::fs::read(folder.path().join("00000000.pcapng")).unwrap());
    for segment in catalog.list() {
        let path = folder.path().join(format!("{:08}.pcapng", segment.number));
        let file = std::fs::read(path).unwrap();
        assert_eq!((segment.bytes, segment.is_closed), (file.len() as u64, true));
        let times: Vec<i64> = frames(&file).iter().map(|(time, _)| *time).collect();
        assert_eq!(segment.packets, times.len() as u64);
        assert_eq!(
            (segment.first_ns, segment.last_ns),
            (times.first().copied(), times.last().copied())
        );
        if let Content::Memory(object) = &segment.content {
            let mut read = Vec::new();
            let end = iterate(object, 0..u64::MAX, |piece| {
                read.extend_from_slice(piece);
                ControlFlow::<()>::Continue(())
            });
            assert!(end.is_ok() && read == file);
        }
    }
}

/// A folder over the budget is reduced to it at the start, the oldest segments first, and the
/// catalog has the segments of earlier runs.
#[test]
fn a_smaller_budget_is_kept_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    let mut store = Store::open(options.clone(), &interfaces()).unwrap();
    let mut next = 1;
    for _ in 0..40 {
        made(next as i64).append(&mut store, &mut next);
    }
    let before = store.catalog().clone();
    store.finish().unwrap();
    options.budget_bytes = 48 << 10;
    let store = Store::open(options, &interfaces()).unwrap();
    let catalog = store.catalog().clone();
    store.finish().unwrap();
    let numbers: Vec<u64> = catalog.list().iter().map(|segment| segment.number).collect();
    let all: Vec<u64> = before.list().iter().map(|segment| segment.number).collect();
    assert!(numbers.len() > 5 && all.ends_with(&numbers) && numbers.len() < all.len());
    let bytes: u64 = files(folder.path())
        .iter()
        .map(|name| std::fs::metadata(folder.path().join(name)).unwrap().len())
        .sum();
    assert!(bytes <= 48 << 10, "{bytes}");
    assert!(catalog.list().iter().all(|segment| matches!(segment.content, Content::File(..))));
}
