//! Objects that have weights: together they are never heavier than the limit.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use larder::{Builder, Cache, Cause, Change, Clock, Error, Expiry, Map, ObjectMap, Seconds};
use larder_testkit::wait::ready;
use proptest::prelude::*;

use super::done;

/// An object that weighs its number.
type Weight = Arc<u32>;

fn builder(entries_max: u64, weight_max: u64) -> Builder {
    ObjectMap::<u64, Weight>::builder(entries_max)
        .shards(1)
        .weigher(weight_max, |weight: &Weight| **weight)
}

fn map(entries_max: u64, weight_max: u64) -> ObjectMap<u64, Weight> {
    ObjectMap::build(builder(entries_max, weight_max), Clock::manual(Seconds(1))).unwrap()
}

/// What is in the map weighs this, counted and as the figures have it.
fn weight(map: &ObjectMap<u64, Weight>) -> u64 {
    let stats = map.stats().unwrap();
    let sum = map.iter().map(|(_, weight)| u64::from(*weight)).sum();
    assert_eq!(stats.weight, sum);
    assert!(sum <= stats.weight_max, "{sum} of {}", stats.weight_max);
    sum
}

/// Light objects leave for a heavy one, and no more than must. An object that is replaced counts no more.
#[test]
fn the_weight_is_limited() {
    let map = map(1000, 100);
    (0..100).for_each(|key| map.insert(&key, 1.into()).unwrap());
    assert_eq!((weight(&map), map.len().unwrap()), (100, 100));
    map.insert(&100, 40.into()).unwrap();
    assert_eq!((weight(&map), map.len().unwrap()), (100, 61));
    map.insert(&100, 10.into()).unwrap();
    assert_eq!((weight(&map), map.len().unwrap()), (70, 61));
    map.insert(&100, 100.into()).unwrap();
    assert_eq!((weight(&map), map.len().unwrap()), (100, 1));
    map.insert(&100, 100.into()).unwrap();
    assert_eq!((weight(&map), map.len().unwrap(), map.stats().unwrap().evicted), (100, 1, 100));
    map.remove(&100).unwrap();
    assert_eq!(weight(&map), 0);
    // What weighs nothing is limited by its number.
    (0..2000).for_each(|key| map.insert(&key, 0.into()).unwrap());
    assert_eq!((weight(&map), map.len().unwrap()), (0, map.stats().unwrap().entries_max));
    map.clear().unwrap();
    map.insert(&1, 100.into()).unwrap();
    assert_eq!((weight(&map), map.stats().unwrap().weight_max), (100, 100));
    map.clear().unwrap();
    assert_eq!(weight(&map), 0);
}

/// One that is too heavy is refused by every call, dropped, and replaces nothing. Who loads it gets it all the same.
#[test]
fn what_is_too_heavy_is_refused() {
    let map = map(1000, 100);
    let (heavy, light) = (Weight::new(101), Weight::new(7));
    let refused = |result: Result<Option<Weight>, Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::TooHeavy { weight: 101, weight_max: 100 }), "{error}");
        assert_eq!(map.get(&1), Some(light.clone()));
        assert_eq!(weight(&map), 7);
    };
    map.insert(&1, light.clone()).unwrap();
    let before = Arc::strong_count(&light);
    refused(map.insert(&1, heavy.clone()).map(|()| None));
    refused(map.insert_ttl(&1, heavy.clone(), Expiry::NEVER).map(|()| None));
    refused(map.replace(&1, heavy.clone()));
    refused(map.compute(&1, |_| Change::Update(heavy.clone())));
    refused(map.compute(&1, |_| Change::Insert(heavy.clone(), Expiry::NEVER)));
    assert_eq!((Arc::strong_count(&heavy), Arc::strong_count(&light)), (1, before));
    assert_eq!(map.get_or_insert_with(&2, || heavy.clone()), heavy);
    assert_eq!(ready(map.get_or_insert_async(&2, async { heavy.clone() })), heavy);
    assert_eq!((map.get(&2), weight(&map), Arc::strong_count(&heavy)), (None, 7, 1));
    let text = map.insert(&1, heavy).unwrap_err().to_string();
    assert!(text.contains("101") && text.contains("at most 100"), "{text}");
}

/// Those who wait for a load get an object that is too heavy to stay.
#[test]
fn who_waits_gets_what_is_too_heavy() {
    let map = map(1000, 100);
    let mut waits = pin!(map.get_or_insert_async(&1, async { panic!("another loads") }));
    let mut context = Context::from_waker(Waker::noop());
    let loaded = map.get_or_insert_with(&1, || {
        assert!(waits.as_mut().poll(&mut context).is_pending());
        1000.into()
    });
    assert_eq!((*loaded, waits.as_mut().poll(&mut context)), (1000, Poll::Ready(loaded)));
    assert_eq!((map.get(&1), weight(&map)), (None, 0));
}

/// A write that is refused ends no load.
#[test]
fn what_is_refused_ends_no_load() {
    let map = map(1000, 100);
    let loaded = map.get_or_insert_with(&1, || {
        map.insert(&1, 101.into()).unwrap_err();
        7.into()
    });
    assert_eq!((*loaded, map.get(&1)), (7, Some(loaded)));
    // One that is stored does.
    let loaded = map.get_or_insert_with(&2, || {
        map.insert(&2, 100.into()).unwrap();
        7.into()
    });
    assert_eq!((*loaded, map.get(&2).as_deref()), (7, Some(&100)));
}

/// A listener hears of all that leave for a heavy object, with their reason.
#[test]
fn what_leaves_for_its_weight_is_reported() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let clock = Clock::manual(Seconds(1));
    let map = ObjectMap::<u64, Weight>::build_reporting(
        builder(1000, 600),
        clock,
        move |key, weight, cause| {
            sender.send((key, *weight, cause)).unwrap();
        },
    )
    .unwrap();
    (0..600).for_each(|key| map.insert(&key, 1.into()).unwrap());
    map.insert(&1000, 500.into()).unwrap();
    let mut left: Vec<_> = receiver.try_iter().collect();
    left.sort_unstable_by_key(|&(key, ..)| key);
    assert_eq!(left.len(), 500);
    assert!(left.iter().all(|&(_, weight, cause)| (weight, cause) == (1, Cause::Budget)));
    assert_eq!(weight(&map), 600);
}

/// A weigher is for a map of objects of its type, and its limit is enough for each shard.
#[test]
fn builders_that_are_refused() {
    let text = |result: Result<(), Error>| match result {
        Err(Error::Setting(text)) => text,
        other => panic!("{other:?}"),
    };
    let built =
        |builder: Builder| ObjectMap::<u64, Weight>::build(builder, Clock::system()).map(drop);
    let of_map = Map::<u64, u64>::builder().weigher(100, |_: &u64| 1);
    assert!(text(Map::<u64, u64>::build(of_map, Clock::system()).map(drop)).contains("objects"));
    let of_cache = Cache::builder().weigher(100, |_: &u64| 1);
    assert!(text(of_cache.build().map(drop)).contains("objects"));
    let of_another = ObjectMap::<u64, u32>::builder(1000).weigher(100, |_: &u32| 1);
    assert!(text(built(of_another)).contains("another type"));
    for (shards, weight_max) in [(1, 0), (4, 3)] {
        assert!(text(built(builder(10_000, weight_max).shards(shards))).contains("weight_max"));
    }
    built(builder(10_000, 4).shards(4)).unwrap();
    built(builder(10_000, u64::MAX)).unwrap();
    // However many cores there are.
    let part =
        ObjectMap::<u64, Weight>::builder(10_000_000).weigher(4000, |weight: &Weight| **weight);
    let map = ObjectMap::<u64, Weight>::build(part, Clock::system()).unwrap();
    map.insert(&1, 1000.into()).unwrap();
    map.insert(&1, 1001.into()).unwrap_err();
    // The last one counts.
    let last = builder(1000, 1).weigher(9, |weight: &Weight| **weight);
    let map = ObjectMap::<u64, Weight>::build(last, Clock::system()).unwrap();
    map.insert(&1, 9.into()).unwrap();
}

/// A weigher is called once for an object, and one that panics has stored nothing and lost nothing.
#[test]
fn weighers_that_panic() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let builder =
        ObjectMap::<u64, Weight>::builder(1000).shards(1).weigher(100, move |weight: &Weight| {
            counted.fetch_add(1, Ordering::Relaxed);
            assert_ne!(**weight, 13);
            **weight
        });
    let map = ObjectMap::<u64, Weight>::build(builder, Clock::system()).unwrap();
    map.insert(&1, 7.into()).unwrap();
    map.insert(&2, 8.into()).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let object = Weight::new(13);
    let act = |act: &dyn Fn()| {
        catch_unwind(AssertUnwindSafe(act)).unwrap_err();
        assert_eq!((map.get(&1).as_deref(), weight(&map)), (Some(&7), 15));
        assert_eq!(Arc::strong_count(&object), 1);
    };
    act(&|| map.insert(&1, object.clone()).unwrap());
    act(&|| drop(map.compute(&1, |_| Change::Update(object.clone()))));
    act(&|| drop(map.get_or_insert_with(&3, || object.clone())));
    // The load that panicked is no longer waited for.
    assert_eq!(*map.get_or_insert_with(&3, || 5.into()), 5);
}

/// Weights of keys of any length stay with their objects.
#[test]
fn keys_of_any_length() {
    let builder = ObjectMap::<str, Weight>::builder(4000).budget(16 << 20).value_bytes_max(8000);
    let builder = builder.shards(1).weigher(1 << 20, |weight: &Weight| **weight);
    let map = ObjectMap::<str, Weight>::build(builder, Clock::system()).unwrap();
    let mut sum = 0;
    for len in (0..300).chain([1000, 5000]) {
        map.insert(&*"k".repeat(len), Weight::new(len as u32)).unwrap();
        sum += len as u64;
    }
    assert_eq!(map.stats().unwrap().weight, sum);
    for len in (0..300).chain([1000, 5000]) {
        assert_eq!(map.take(&*"k".repeat(len)).unwrap().as_deref(), Some(&(len as u32)));
        sum -= len as u64;
        assert_eq!(map.stats().unwrap().weight, sum);
    }
}

/// However many threads write, the limit is kept at every moment.
#[test]
fn threads_keep_the_limit() {
    let builder = ObjectMap::<u64, Weight>::builder(20_000)
        .shards(4)
        .weigher(4000, |weight: &Weight| **weight);
    let map = ObjectMap::<u64, Weight>::build(builder, Clock::system()).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|thread| {
                let map = &map;
                scope.spawn(move || {
                    for number in 0..3000 {
                        let key = number * (thread + 5) % 700;
                        match number % 5 {
                            0 => drop(done(map.remove(&key))),
                            1 => drop(map.get_or_insert_with(&key, || 3.into())),
                            _ => drop(done(map.insert(&key, Weight::new((number % 50) as u32)))),
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                assert!(map.stats().unwrap().weight <= 4000);
                std::thread::yield_now();
            }
        });
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    weight(&map);
    assert!(map.stats().unwrap().evicted > 100);
    map.clear().unwrap();
    assert_eq!(weight(&map), 0);
}

/// Objects that are used stay, whether many are light or few are heavy.
#[test]
fn what_is_used_stays() {
    for each in [1, 20] {
        let map = map(2000, 1000);
        let used: Vec<u64> = (0..400 / u64::from(each)).collect();
        let (mut reads, mut found) = (0, 0);
        for number in 0..20_000 {
            map.insert(&(1_000_000 + number), each.into()).unwrap();
            let key = used[number as usize * 7 % used.len()];
            reads += 1;
            found += u64::from(map.get(&key).is_some());
            map.get_or_insert_with(&key, || each.into());
        }
        assert!(found * 10 > reads * 8, "{found} of {reads} at a weight of {each}");
        weight(&map);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The weight is that of the objects which are there, whatever was done.
    #[test]
    fn weights_are_counted(acts in prop::collection::vec((0u8..6, 0u64..40, 0u32..60), 1..400)) {
        let map = map(100, 200);
        for (act, key, of) in acts {
            let object = Weight::new(of);
            match act {
                0 => map.remove(&key).unwrap(),
                1 => drop(map.take(&key).unwrap()),
                2 => drop(map.compute(&key, |_| Change::Update(object.clone())).unwrap()),
                3 => drop(map.get_or_insert_with(&key, || object)),
                _ => map.insert(&key, object).unwrap(),
            }
            prop_assert!(weight(&map) <= 200);
            if act >= 4 {
                prop_assert_eq!(map.get(&key).map(|object| *object), Some(of));
            }
        }
    }
}
