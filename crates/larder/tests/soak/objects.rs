//! The calls of maps of objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder::{Cause, Change, Clock, ObjectMap, Seconds};

use super::{Random, block_on, check, check_pair, expiry, key, may_wait, soak, value};

type Objects = ObjectMap<[u8], Arc<Vec<u8>>>;

/// One call of a map of objects.
fn object_step(map: &Objects, clock: &Clock, random: &mut Random) {
    let number = random.below(800);
    let (key, ttl) = (key(number), expiry(random));
    let key = &key[..];
    let new = |random: &mut Random| Arc::new(value(number, random));
    let found = match random.below(40) {
        0..=4 => may_wait(map.insert(key, new(random))).and(None),
        5..=7 => may_wait(map.insert_ttl(key, new(random), ttl)).and(None),
        8..=10 => may_wait(map.remove(key)).and(None),
        11..=12 => may_wait(map.take(key)).flatten(),
        13..=14 => may_wait(map.replace(key, new(random))).flatten(),
        15..=16 => may_wait(map.touch(key, ttl)).and(None),
        17..=19 => may_wait(map.compute(key, |there| {
            there.iter().for_each(|value| check(number, value));
            match random.below(4) {
                0 => Change::Keep,
                1 => Change::Insert(new(random), ttl),
                2 => Change::Update(new(random)),
                _ => Change::Remove,
            }
        }))
        .flatten(),
        20..=22 => Some(map.get_or_insert_ttl_with(key, || (new(random), ttl))),
        23 => Some(block_on(map.get_or_insert_ttl_async(key, async { (new(random), ttl) }))),
        24..=25 => map.try_get_or_insert_with(key, || Err(number)).ok(),
        26 => {
            let numbers: Vec<u64> = (0..40).map(|_| random.below(800)).collect();
            let keys: Vec<Vec<u8>> = numbers.iter().map(|number| self::key(*number)).collect();
            map.get_many(&keys, |at, value| {
                value.iter().for_each(|value| check(numbers[at], value));
            });
            None
        }
        27 if random.below(20) == 0 => {
            map.iter().take(100).for_each(|(key, value)| check_pair(&key, &value));
            may_wait(map.retain(|_, _| random.below(20) > 0)).and(None)
        }
        28 if random.below(200) == 0 => may_wait(map.clear()).and(None),
        28 if random.below(20) == 0 => may_wait(map.remove_expired()).and(None),
        29 if random.below(9) == 0 => {
            clock.advance(Duration::from_millis(random.below(900)));
            None
        }
        _ => map.get(key),
    };
    found.iter().for_each(|value| check(number, value));
}

/// At the end, no object is held by anything but the map.
#[test]
fn object_maps() {
    let clock = Clock::manual(Seconds(1));
    let heard = Arc::new(AtomicU64::new(0));
    let hears = heard.clone();
    let listener = move |key: Vec<u8>, object: Arc<Vec<u8>>, _: Cause| {
        check_pair(&key, &object);
        hears.fetch_add(1, Ordering::Relaxed);
    };
    let builder = || Objects::builder(1000).entries_max(300).readers_max(3);
    let reporting = Objects::build_reporting(builder(), clock.clone(), listener).expect("room");
    let plain = Objects::build(builder(), clock.clone()).expect("room");
    // Fewer than may be there by their number.
    let weighed = builder().weigher(20_000, |object: &Arc<Vec<u8>>| object.len() as u32);
    let weighed = Objects::build(weighed, clock.clone()).expect("room");
    soak(1.0, |number, goes_on| {
        let mut random = Random(number + 1);
        while goes_on() {
            object_step(&reporting, &clock, &mut random);
            object_step(&plain, &clock, &mut random);
            object_step(&weighed, &clock, &mut random);
            // Seldom, since it syncs all readers.
            if random.below(100) == 0 {
                assert!(weighed.stats().is_ok_and(|stats| stats.weight <= 20_000));
            }
        }
    });
    for map in [&reporting, &plain, &weighed] {
        // What was being cloned when it left, leaves now.
        may_wait(map.insert(&b"12345678"[..], Arc::new(Vec::new())))
            .expect("no other thread writes");
        map.iter().for_each(|(_, object)| assert_eq!(Arc::strong_count(&object), 2));
    }
    assert!(heard.load(Ordering::Relaxed) > 0);
    may_wait(weighed.remove_expired()).expect("no other thread writes");
    let bytes: usize = weighed.iter().map(|(_, object)| object.len()).sum();
    assert_eq!(weighed.stats().expect("not poisoned").weight, bytes as u64);
}
