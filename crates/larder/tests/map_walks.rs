//! Walks over a map: all keys and values come back, and `retain` removes what was judged.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use larder::{Clock, Map, Seconds, Ttl};

/// Keys of every length, of which the engine stores long ones in part in front of the value.
fn key(number: usize) -> Vec<u8> {
    (0..number).map(|at| (at * 7 + number) as u8).collect()
}

/// A walk returns each key and value as they were stored, those of any length; expired ones it does
/// not.
#[test]
fn a_walk_returns_what_was_stored() {
    let clock = Clock::manual(Seconds(1));
    let map: Map<[u8], Vec<u8>> =
        Map::build(Map::<[u8], Vec<u8>>::builder().budget(16 << 20), clock.clone()).expect("a map");
    let mut stored = BTreeMap::new();
    for number in (0..700).chain([5_000]) {
        map.insert(&key(number)[..], key(number / 3)).expect("room");
        stored.insert(key(number), key(number / 3));
    }
    map.insert_ttl(&b"short"[..], vec![1], Ttl::seconds(2)).expect("room");
    clock.set(Seconds(3));
    assert_eq!(map.iter().collect::<BTreeMap<_, _>>(), stored);
    let kept = |key: &Vec<u8>, value: &Vec<u8>| key.len().is_multiple_of(2) || value.len() > 100;
    let removed = map.retain(kept).expect("done");
    let before = stored.len();
    stored.retain(|key, value| kept(key, value));
    assert_eq!(removed, (before - stored.len()) as u64);
    assert_eq!(map.iter().collect::<BTreeMap<_, _>>(), stored);
    assert_eq!(map.retain(|_, _| false).expect("done"), stored.len() as u64);
    assert_eq!(map.iter().count(), 0);
}

/// A value that another thread stores while `retain` judges the older one is not removed.
#[test]
fn a_newer_value_stays() {
    let map: Map<u64, u64> = Map::new(1 << 20).expect("a map");
    map.insert(&1, 1).expect("room");
    let judge = |_: &u64, value: &u64| {
        if *value == 1 {
            map.insert(&1, 2).expect("room");
        }
        *value > 1
    };
    assert_eq!(map.retain(judge).expect("done"), 0);
    assert_eq!(map.get(&1), Some(2));

    const KEYS: u64 = 500;
    let is_over = AtomicBool::new(false);
    let (removed, lost) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut lost = 0;
            for round in 0.. {
                if is_over.load(Ordering::Acquire) {
                    break;
                }
                for number in 0..KEYS {
                    map.insert(&number, 1).expect("room");
                    map.insert(&number, 2 + round).expect("room");
                    lost += u64::from(map.get(&number) != Some(2 + round));
                }
            }
            lost
        });
        let removed: u64 = (0..200).map(|_| map.retain(|_, value| *value > 1).expect("done")).sum();
        is_over.store(true, Ordering::Release);
        (removed, writer.join().expect("no panic"))
    });
    assert_eq!(lost, 0, "newer values were removed; {removed} older ones");
}

/// Two types in one cache are not possible, but bytes of another program are: they are skipped by
/// a walk, and stay.
#[test]
fn bytes_of_another_type_are_skipped() {
    let map: Map<str, u32> = Map::new(1 << 20).expect("a map");
    let mut writer = map.cache().writer();
    let now = map.now();
    writer.insert(b"\xff", &[0; 4], Ttl::FOREVER, now).expect("room");
    writer.insert(b"three", &[0; 3], Ttl::FOREVER, now).expect("room");
    // As long as a key of the engine that stands for a long one.
    writer.insert(&[b'x'; 255], &[9, 9, 9, 9, 0], Ttl::FOREVER, now).expect("room");
    writer.insert(&[b'y'; 255], &[9], Ttl::FOREVER, now).expect("room");
    writer.insert(b"four", &[1, 0, 0, 0], Ttl::FOREVER, now).expect("room");
    writer.flush().expect("applied");
    assert_eq!(map.iter().collect::<Vec<_>>(), [("four".to_owned(), 1)]);
    assert_eq!(map.retain(|_, _| false).expect("done"), 1);
    assert_eq!(map.len().expect("a number"), 4);
}
