//! What a map does in one step: changes that depend on the value that is there, and the errors of
//! loads.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};

use larder::{Cache, Change, Clock, Error, Expiry, IndexMode, Map, Seconds, Ttl};

fn manual(budget: u64) -> (Map<[u8], Vec<u8>>, Clock) {
    let clock = Clock::manual(Seconds(1));
    let builder = Map::<[u8], Vec<u8>>::builder().budget(budget).readers_max(2);
    (Map::build(builder, clock.clone()).unwrap(), clock)
}

/// An error of a load reaches every task that waits with the same type of error, and is not stored:
/// a task with another type of error loads by itself, and so does the next caller.
#[test]
fn who_waits_gets_the_error() {
    let (map, _) = manual(1 << 20);
    let is_over = AtomicBool::new(false);
    let until_over = |_: &mut Context<'_>| match is_over.load(Ordering::Relaxed) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    };
    let fails = async |error: &'static str| {
        poll_fn(until_over).await;
        Err::<Vec<u8>, _>(error)
    };
    let mut first = pin!(map.try_get_or_insert_async(&b"k"[..], fails("first")));
    let mut second = pin!(map.try_get_or_insert_async(&b"k"[..], fails("second")));
    let mut other = pin!(map.try_get_or_insert_async(&b"k"[..], async { Err::<_, u8>(7) }));
    let mut context = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert!(other.as_mut().poll(&mut context).is_pending());
    is_over.store(true, Ordering::Relaxed);
    let Poll::Ready(Err(first)) = first.poll(&mut context) else { panic!("its load has failed") };
    let Poll::Ready(Err(second)) = second.poll(&mut context) else { panic!("so has this") };
    assert!(*first == "first" && Arc::ptr_eq(&first, &second));
    assert_eq!(other.poll(&mut context), Poll::Ready(Err(Arc::new(7))));
    assert!(!map.contains(&b"k"[..]));
    let loaded = map.try_get_or_insert_with(&b"k"[..], || Ok::<_, u8>(vec![3]));
    assert_eq!((loaded, map.get(&b"k"[..])), (Ok(vec![3]), Some(vec![3])));
}

/// No change is lost, whichever threads change a key at once, and nothing is taken twice.
#[test]
fn changes_are_single_steps() {
    for mode in [IndexMode::Replicated, IndexMode::Shared] {
        let builder = Cache::builder().index_mode(mode).budget(2 << 20).readers_max(2);
        let map: Map<str, u64> = Map::build(builder, Clock::manual(Seconds(1))).unwrap();
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for step in 0..4000 {
                        let more = |count: Option<&u64>| match count {
                            Some(count) => Change::Update(count + 1),
                            None => Change::Insert(1, Expiry::NEVER),
                        };
                        map.compute("all", more).unwrap();
                        map.compute("taken", more).unwrap();
                        if step % 7 == 0 {
                            let count = map.take("taken").unwrap().unwrap_or(0);
                            taken.fetch_add(count, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(map.get("all"), Some(12_000), "{mode:?}");
        let left = map.take("taken").unwrap().unwrap_or(0);
        assert_eq!(taken.into_inner() + left, 12_000, "{mode:?}");
        map.cache().validate().unwrap();
    }
}

/// A change sees what another write left meanwhile. It keeps an entry's expiry, or sets one; a
/// value that is too large changes nothing.
#[test]
fn changes_see_the_latest() {
    let (map, clock) = manual(1 << 20);
    let mut seen = Vec::new();
    let old = map.compute(&b"k"[..], |there| {
        seen.push(there.cloned());
        if seen.len() == 1 {
            map.insert_ttl(&b"k"[..], vec![1], Ttl::seconds(5)).unwrap();
        }
        Change::Update(vec![2])
    });
    assert_eq!((old.unwrap(), seen), (Some(vec![1]), vec![None, Some(vec![1])]));
    clock.set(Seconds(5));
    assert_eq!(map.get(&b"k"[..]), Some(vec![2]));
    clock.set(Seconds(6));
    assert_eq!(map.compute(&b"k"[..], |_| Change::Keep).unwrap(), None, "it has expired");
    map.compute(&b"k"[..], |_| Change::Insert(vec![3], Ttl::seconds(2).into())).unwrap();
    let refused = map.compute(&b"k"[..], |_| Change::Update(vec![0; 40_000]));
    assert!(matches!(refused, Err(Error::ValueTooLarge { .. })), "{refused:?}");
    assert_eq!(map.replace(&b"k"[..], vec![4]).unwrap(), Some(vec![3]));
    clock.set(Seconds(100));
    assert_eq!(map.take(&b"k"[..]).unwrap(), Some(vec![4]), "a replaced value never expires");
    assert_eq!(map.compute(&b"k"[..], |_| Change::Remove).unwrap(), None);
}

/// A load does not overwrite a change that came while it ran, also not one that removed; and a
/// change decides again about a value that a load stored meanwhile.
#[test]
fn a_load_and_a_change_meet() {
    let (map, _) = manual(1 << 20);
    let insert = |value: u8| move |_: Option<&Vec<u8>>| Change::Insert(vec![value], Expiry::NEVER);
    let loaded = map.get_or_insert_with(&b"k"[..], || {
        map.compute(&b"k"[..], insert(2)).unwrap();
        vec![1]
    });
    assert_eq!((loaded, map.get(&b"k"[..])), (vec![1], Some(vec![2])));
    let loaded = map.get_or_insert_with(&b"r"[..], || {
        map.compute(&b"r"[..], insert(2)).unwrap();
        assert_eq!(map.take(&b"r"[..]).unwrap(), Some(vec![2]));
        vec![1]
    });
    assert_eq!((loaded, map.get(&b"r"[..])), (vec![1], None));
    let mut seen = Vec::new();
    let old = map.compute(&b"c"[..], |there| {
        seen.push(there.cloned());
        if seen.len() == 1 {
            assert_eq!(map.get_or_insert_with(&b"c"[..], || vec![5]), [5]);
        }
        Change::Update(vec![6])
    });
    assert_eq!((old.unwrap(), seen), (Some(vec![5]), vec![None, Some(vec![5])]));
    assert_eq!(map.get(&b"c"[..]), Some(vec![6]));
}

/// An update keeps the expiry that the entry has when it is applied, also if another write gave the
/// same value another expiry meanwhile.
#[test]
fn an_update_keeps_the_latest_expiry() {
    let (map, clock) = manual(1 << 20);
    map.insert_ttl(&b"k"[..], vec![1], Ttl::seconds(5)).unwrap();
    let mut calls = 0;
    let old = map.compute(&b"k"[..], |there| {
        calls += 1;
        if calls == 1 {
            clock.set(Seconds(6));
            assert_eq!(map.get(&b"k"[..]), None);
            map.insert_ttl(&b"k"[..], vec![1], Ttl::seconds(60)).unwrap();
        }
        there.map_or(Change::Keep, |there| Change::Update([&there[..], &[2]].concat()))
    });
    assert_eq!((old.unwrap(), calls), (Some(vec![1]), 2));
    clock.set(Seconds(65));
    assert_eq!(map.get(&b"k"[..]), Some(vec![1, 2]));
    clock.set(Seconds(66));
    assert_eq!(map.get(&b"k"[..]), None);
}

/// Writes within reads continue, in either index mode: the reader holds nothing old when a
/// closure begins.
#[test]
fn writes_within_reads_continue() {
    for mode in [IndexMode::Replicated, IndexMode::Shared] {
        let builder = Cache::builder().index_mode(mode).budget(1 << 20).shards(1).readers_max(2);
        let map: Map<u64, Vec<u8>> = Map::build(builder, Clock::manual(Seconds(1))).unwrap();
        map.insert(&0, vec![0; 40]).unwrap();
        let records = map.cache().stats().unwrap().log_records;
        for number in 0..4 * records {
            map.with(&0, |_| map.insert(&(number % 7), vec![1; 200]).unwrap());
            map.with(&0, |_| map.insert_many([(number % 7, vec![1; 90])], Expiry::NEVER).unwrap());
            map.get_many(&[0u64], |_, value| map.insert(&0, value.unwrap()).unwrap());
        }
        map.cache().validate().unwrap();
    }
}

/// Of many values, those before a refused one are stored, and nothing after it.
#[test]
fn values_before_a_refused_one_are_stored() {
    let (map, _) = manual(1 << 20);
    let sizes = (0u8..30).map(|number| ([number], if number == 20 { 40_000 } else { 10 }));
    let entries: Vec<_> = sizes.map(|(key, bytes)| (key.to_vec(), vec![7; bytes])).collect();
    let refused = map.insert_many(entries.iter().cloned(), Ttl::FOREVER);
    assert!(matches!(refused, Err(Error::ValueTooLarge { .. })), "{refused:?}");
    for (number, (key, value)) in entries.iter().enumerate() {
        assert_eq!(map.get(&key[..]).as_ref(), (number < 20).then_some(value), "{number}");
    }
    map.insert(&b"next"[..], vec![1]).unwrap();
    map.cache().validate().unwrap();
}

/// Threads that stopped after they wrote many entries of one size together do not keep the room that
/// entries of another size need.
#[test]
fn pausing_threads_leave_room() {
    const THREADS: u64 = 15;
    let builder = Map::<u64, Vec<u8>>::builder().readers_max(16).shards(1).budget(12 << 20);
    let map = Map::<u64, _>::build(builder, Clock::manual(Seconds(1))).unwrap();
    for round in 0..3 {
        let (written, done) =
            (Barrier::new(THREADS as usize + 1), Barrier::new(THREADS as usize + 1));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (map, written, done) = (&map, &written, &done);
                scope.spawn(move || {
                    let key = |number: u64| (round * THREADS + thread) << 32 | number;
                    let entries = (0..8_000).map(|number| (key(number), vec![1; 120]));
                    let inserted = map.insert_many(entries, Expiry::NEVER);
                    // Also after an error, as the others wait.
                    written.wait();
                    done.wait();
                    inserted.unwrap();
                });
            }
            written.wait();
            let insert = |number: u64| map.insert(&(1 << 60 | number), vec![2; 300]);
            let inserted = (0..40_000u64).try_for_each(insert);
            done.wait();
            inserted.unwrap();
        });
    }
    assert!(map.stats().unwrap().evicted > 0);
}
