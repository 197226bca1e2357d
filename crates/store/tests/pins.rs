//! Packets that match outlive their segments, with their names, under a budget of their own.

mod common;

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use common::world::*;
use common::*;
use larder_store::{FindOptions, Options, PinOptions, Query, Store};
use larder_testkit::wait::until_so;

fn pins(text: &str, budget_bytes: u64, packets_of_flow: u32) -> Option<PinOptions> {
    let query = Query::read(text, 0).unwrap_or_else(|error| panic!("{text}: {error}"));
    Some(PinOptions { query, budget_bytes, packets_of_flow })
}

/// The times of packets in the segments themselves.
fn oldest_ns(world: &World) -> i64 {
    let list = world.store.as_ref().unwrap().catalog().list();
    list.iter().find_map(|segment| segment.first_ns).unwrap_or(i64::MAX)
}

/// Over hours of random traffic, three runs and a budget of a few segments, each packet that matches
/// a random query is found for ever, once, by any other query, in order and by its names; other
/// packets are deleted with their segments. Invariants 1, 2 of `pins`.
#[test]
fn what_matches_outlives_its_segment() {
    for seed in 400..403 {
        let folder = tempfile::tempdir().unwrap();
        let mut small = options(folder.path());
        small.budget_bytes = 64 << 10;
        let mut world = World::new(seed, folder.path(), small);
        world.is_prompt = true;
        let pin = match seed {
            400 => Question::Word("name ~ ".to_owned(), "*".to_owned()),
            401 => Question::Not(Box::new(Question::Word("name ~ ".to_owned(), "*".to_owned()))),
            _ => loop {
                let question = world.question(2);
                let text = question.text();
                if !text.contains("after") && !text.contains("before") {
                    break question;
                }
            },
        };
        world.options.pins = pins(&pin.text(), 1 << 30, u32::MAX);
        for _ in 0..3 {
            world.open();
            for _ in 0..4 {
                world.go_on(40);
                settle_last(&world);
                for _ in 0..4 {
                    check(&mut world, &pin);
                }
            }
            let counts = world.store.as_ref().unwrap().counts().clone();
            world.store.take().unwrap().finish().unwrap();
            assert!(counts.segments_deleted.load(Ordering::Relaxed) > 20);
            assert_eq!(counts.packets_not_pinned.load(Ordering::Relaxed), 0);
        }
    }
}

fn settle_last(world: &World) {
    let any = Query::read("tcp or not tcp", 0).unwrap();
    let last_ns = world.packets.last().unwrap().ts_ns;
    let options = FindOptions { from_ns: Some(last_ns), ..FindOptions::default() };
    until_so("the last packet is in its file", || {
        !find_query(&world.directory, &any, options, false).0.is_empty()
    });
}

fn check(world: &mut World, pin: &Question) {
    let (question, options) = (world.question(2), world.find_options());
    let query = Query::read(&question.text(), 0).unwrap();
    // Segments may be deleted while it searches: then it is asked again.
    loop {
        let oldest_before_ns = oldest_ns(world);
        let mut found = Vec::new();
        let mut finder = larder_store::Finder::open(&world.directory).unwrap();
        let mut visit = |packet: larder_store::FoundPacket<'_>| {
            found.push((packet.ts_ns, packet.frame.to_vec()));
            std::ops::ControlFlow::Continue(())
        };
        let summary = finder.find(&query, options, &mut visit).unwrap();
        assert_eq!((summary.damaged, summary.packets), (Vec::new(), found.len() as u64));
        if oldest_ns(world) != oldest_before_ns {
            continue;
        }
        let is_pinned: HashSet<i64> =
            world.answer(pin, FindOptions::default()).into_iter().map(|(ts_ns, _)| ts_ns).collect();
        let mut expected = world.answer(&question, options);
        expected.retain(|(ts_ns, _)| *ts_ns >= oldest_before_ns || is_pinned.contains(ts_ns));
        let (text, pin) = (question.text(), pin.text());
        assert!(
            found == expected,
            "{pin} | {text} {options:?}: {} {}",
            found.len(),
            expected.len()
        );
        return;
    }
}

/// Only the first packets of a flow in a segment are pinned, and the oldest pinned packets are deleted
/// when their own budget is full.
#[test]
fn pins_have_limits() {
    let folder = tempfile::tempdir().unwrap();
    let limited = Options {
        budget_bytes: 64 << 10,
        pins: pins("host 10.0.0.1", 32 << 10, 2),
        ..options(folder.path())
    };
    let mut store = Store::open(limited, &interfaces()).unwrap();
    let mut next = 1;
    for batch in 0..400 {
        let mut made = Made::default();
        for number in 0..10u8 {
            let host = [10, 0, 0, number % 2];
            let at_ns = batch * 10 + i64::from(number);
            made.packet(0, at_ns, &udp(host, 1, [10, 0, 1, 1], 53, &[number; 200]));
        }
        made.append(&mut store, &mut next);
    }
    let counts = store.counts().clone();
    store.finish().unwrap();
    let pinned = counts.packets_pinned.load(Ordering::Relaxed);
    let deleted = counts.segments_deleted.load(Ordering::Relaxed);
    assert!(deleted > 100 && pinned == 2 * deleted, "{pinned} {deleted}");
    let words = ["10.0.1.1".to_owned()];
    let (kept, _) = find(&folder.path().join("pinned"), &words, FindOptions::default(), false);
    assert!(!kept.is_empty() && (kept.len() as u64) < pinned, "{} of {pinned}", kept.len());
    let bytes: u64 = files(&folder.path().join("pinned"))
        .iter()
        .filter(|name| name.ends_with(".pcapng") || name.ends_with(".idx"))
        .map(|name| std::fs::metadata(folder.path().join("pinned").join(name)).unwrap().len())
        .sum();
    assert!(bytes <= (32 << 10) + (8 << 10), "{bytes}");
    // The two first of each segment, and nothing of the other host, up to what is in the store.
    let (all, _) = find(folder.path(), &words, FindOptions::default(), false);
    let first = all.iter().take(kept.len());
    assert!(first.eq(&kept) && kept.iter().all(|(ts_ns, _)| ts_ns % 2 == 1));
}

/// A pinned store that cannot be written costs the pinned packets, which are counted, and nothing
/// else.
#[test]
fn a_failure_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pinned"), "a file, not a folder").unwrap();
    let limited = Options {
        budget_bytes: 64 << 10,
        pins: pins("udp", 1 << 20, u32::MAX),
        ..options(folder.path())
    };
    let mut store = Store::open(limited, &interfaces()).unwrap();
    let mut next = 1;
    for number in 0..200 {
        let mut made = Made::default();
        made.packet(0, number, &udp([10, 0, 0, 1], 1, [10, 0, 1, 1], 53, &[0; 900]));
        made.append(&mut store, &mut next);
    }
    let counts = store.counts().clone();
    store.finish().unwrap();
    let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    assert_eq!((load(&counts.packets_pinned), load(&counts.packets_lost)), (0, 0));
    assert!(load(&counts.packets_not_pinned) > 50, "{}", load(&counts.packets_not_pinned));
}
