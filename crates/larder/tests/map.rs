//! The simple API: like a `HashMap` to one thread, with its guarantees to many threads, and to
//! tasks.

#[path = "common/cases.rs"]
mod cases;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use larder::{Cache, Change, Clock, Error, Expiry, IndexMode, Map, Policy, Seconds, Ttl};
use proptest::prelude::*;

const MODES: [IndexMode; 2] = [IndexMode::Replicated, IndexMode::Shared];
/// Each mode, with writes by themselves and of many together.
const WAYS_TO_WRITE: [(IndexMode, bool); 4] =
    [(MODES[0], false), (MODES[0], true), (MODES[1], false), (MODES[1], true)];

fn manual(mode: IndexMode, budget: u64, readers: usize) -> (Map<[u8], Vec<u8>>, Clock) {
    let clock = Clock::manual(Seconds(1));
    let builder = Cache::builder().index_mode(mode).budget(budget).readers_max(readers);
    (Map::build(builder, clock.clone()).unwrap(), clock)
}

type Bytes = Map<[u8], Vec<u8>>;

/// Stores a value by itself, or as one of many.
fn store(map: &Bytes, of_many: bool, key: &[u8], value: Vec<u8>) -> Result<(), Error> {
    if of_many { map.insert_many([(key, value)], Expiry::NEVER) } else { map.insert(key, value) }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(usize, Vec<u8>, Option<u32>),
    InsertMany(Vec<(usize, u8)>),
    Remove(usize),
    Get(usize),
    GetMany(Vec<usize>),
    Load(usize, Vec<u8>),
    Replace(usize, Vec<u8>),
    Take(usize),
    Append(usize, u8),
    Touch(usize, Option<u32>),
    Pass(u32),
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0usize..24;
    let value = || prop::collection::vec(any::<u8>(), 0..90);
    let step = prop_oneof![
        6 => (key.clone(), value(), prop::option::of(0u32..5)).prop_map(|(k, v, t)| Step::Insert(k, v, t)),
        1 => prop::collection::vec((key.clone(), any::<u8>()), 0..150).prop_map(Step::InsertMany),
        2 => key.clone().prop_map(Step::Remove),
        6 => key.clone().prop_map(Step::Get),
        2 => prop::collection::vec(key.clone(), 0..80).prop_map(Step::GetMany),
        3 => (key.clone(), value()).prop_map(|(k, v)| Step::Load(k, v)),
        2 => (key.clone(), value()).prop_map(|(k, v)| Step::Replace(k, v)),
        1 => key.clone().prop_map(Step::Take),
        2 => (key.clone(), any::<u8>()).prop_map(|(k, byte)| Step::Append(k, byte)),
        3 => (key, prop::option::of(0u32..5)).prop_map(|(k, t)| Step::Touch(k, t)),
        2 => (1u32..3).prop_map(Step::Pass),
        1 => Just(Step::Clear),
    ];
    prop::collection::vec(step, 0..120)
}

/// Keys of every form: empty, short, longer than the engine takes, equal but for their ends.
fn key_of(number: usize) -> Vec<u8> {
    let len = [0, 1, 7, 254, 255, 256, 300, 900][number / 3];
    let mut key = vec![b'k'; len];
    if let Some(last) = key.last_mut() {
        *last = number as u8;
    }
    key
}

type Model = HashMap<Vec<u8>, (Vec<u8>, u32)>;

/// A step that depends on the value that is there.
fn step_of_change(
    map: &Map<[u8], Vec<u8>>,
    model: &mut Model,
    step: Step,
) -> Result<(), TestCaseError> {
    match step {
        Step::Replace(number, value) => {
            let there = model.insert(key_of(number), (value.clone(), u32::MAX));
            let replaced = map.replace(&*key_of(number), value).unwrap();
            prop_assert_eq!(replaced, there.map(|(value, _)| value));
        }
        Step::Take(number) => {
            let there = model.remove(&key_of(number)).map(|(value, _)| value);
            prop_assert_eq!(map.take(&*key_of(number)).unwrap(), there);
        }
        Step::Append(number, byte) => {
            let there = model.entry(key_of(number)).or_insert((vec![], u32::MAX));
            let appended = |value: Option<&Vec<u8>>| {
                Change::Update([value.map_or(&[][..], |value| value), &[byte]].concat())
            };
            let old = map.compute(&*key_of(number), appended).unwrap();
            prop_assert_eq!(old.unwrap_or_default(), there.0.clone());
            there.0.push(byte);
        }
        other => unreachable!("{other:?} changes nothing"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases::cases(60))]

    /// With enough memory a map equals a simple model: a `HashMap` with expiry, for keys of any
    /// length, after every step.
    #[test]
    fn agrees_with_an_obvious_map(steps in steps(), mode in 0..2usize) {
        let (map, clock) = manual(MODES[mode], 4 << 20, 2);
        let mut model = Model::new();
        let mut now = 1;
        for step in steps {
            model.retain(|_, (_, end)| *end > now);
            match step {
                Step::Insert(number, value, ttl) => {
                    let end = ttl.map_or(u32::MAX, |ttl| now + ttl);
                    let life = ttl.map_or(Ttl::FOREVER, Ttl::seconds);
                    map.insert_ttl(&*key_of(number), value.clone(), life).unwrap();
                    model.insert(key_of(number), (value, end));
                }
                Step::InsertMany(entries) => {
                    let owned = entries.iter().map(|&(k, v)| (key_of(k), vec![v]));
                    map.insert_many(owned, Ttl::FOREVER).unwrap();
                    model.extend(entries.iter().map(|&(k, v)| (key_of(k), (vec![v], u32::MAX))));
                }
                Step::Remove(number) => {
                    map.remove(&*key_of(number)).unwrap();
                    model.remove(&key_of(number));
                }
                Step::Get(number) => {
                    let there = model.get(&key_of(number)).map(|(value, _)| value.clone());
                    prop_assert_eq!(map.contains(&*key_of(number)), there.is_some());
                    let end = model.get(&key_of(number)).map(|(_, end)| *end);
                    let expires = end.map(|end| (end < u32::MAX).then_some(Seconds(end)));
                    let with_expiry = map.get_with_expiry(&*key_of(number)).unwrap();
                    prop_assert_eq!(with_expiry, there.clone().zip(expires));
                    prop_assert_eq!(map.get(&*key_of(number)), there);
                }
                Step::Load(number, value) => {
                    let there = model.entry(key_of(number)).or_insert((value.clone(), u32::MAX));
                    prop_assert_eq!(map.get_or_insert_with(&*key_of(number), || value), there.0.clone());
                }
                Step::GetMany(numbers) => {
                    let keys: Vec<Vec<u8>> = numbers.iter().map(|&number| key_of(number)).collect();
                    let mut found = Vec::new();
                    map.get_many(&keys, |at, value| found.push((at, value)));
                    let mut in_place = Vec::new();
                    map.with_many(&keys, |at, value| in_place.push((at, value.map(<[u8]>::to_vec))));
                    prop_assert_eq!(&in_place, &found);
                    let there = keys.iter().map(|key| model.get(key).map(|(value, _)| value.clone()));
                    prop_assert_eq!(found, there.enumerate().collect::<Vec<_>>());
                }
                Step::Pass(seconds) => {
                    now += seconds;
                    clock.set(Seconds(now));
                }
                Step::Clear => {
                    map.clear().unwrap();
                    model.clear();
                    prop_assert!(map.is_empty().unwrap());
                }
                Step::Touch(number, ttl) => {
                    let end = ttl.map_or(u32::MAX, |ttl| now + ttl);
                    let life = ttl.map_or(Ttl::FOREVER, Ttl::seconds);
                    let there = model.get_mut(&key_of(number)).map(|there| there.1 = end);
                    prop_assert_eq!(map.touch(&*key_of(number), life).unwrap(), there.is_some());
                }
                change => step_of_change(&map, &mut model, change)?,
            }
        }
        model.retain(|_, (_, end)| *end > now);
        for number in 0..24 {
            let there = model.get(&key_of(number)).map(|(value, _)| value.clone());
            prop_assert_eq!(map.get(&*key_of(number)), there);
        }
        map.cache().validate().unwrap();
    }
}

/// Threads that read once and then sleep block no others: writes continue for many laps of the log,
/// with one reader and with several, and no write ever fails.
#[test]
fn sleepers_hold_nobody_up() {
    for mode in MODES {
        for (readers, of_many) in [(1, false), (1, true), (4, false), (4, true)] {
            let (map, _) = manual(mode, 1 << 20, readers);
            map.insert(&b"k"[..], vec![0]).unwrap();
            let (awake, asleep) = (Arc::new(Barrier::new(4)), Arc::new(AtomicBool::new(true)));
            let sleepers: Vec<_> = (0..3)
                .map(|_| {
                    let (map, awake, asleep) = (map.clone(), awake.clone(), asleep.clone());
                    std::thread::spawn(move || {
                        assert!(map.contains(&b"k"[..]));
                        awake.wait();
                        while asleep.load(Ordering::Acquire) {
                            std::thread::park();
                        }
                    })
                })
                .collect();
            awake.wait();
            let records = map.cache().stats().unwrap().log_records;
            let mut number = 0u64;
            while map.cache().stats().unwrap().log_position < 6 * records {
                for _ in 0..500 {
                    number += 1;
                    store(&map, of_many, &number.to_le_bytes(), vec![7; 40]).unwrap();
                }
            }
            assert_eq!(map.get(&number.to_le_bytes()[..]), Some(vec![7; 40]));
            asleep.store(false, Ordering::Release);
            for sleeper in sleepers {
                sleeper.thread().unpark();
                sleeper.join().unwrap();
            }
        }
    }
}

/// Dozens of threads start and end with two readers: none panics, none leaves anything that blocks
/// others, and a thread that is notified of another's write reads it, every time. Invariant 2 of
/// `reader_pool`.
#[test]
fn what_is_reported_is_read() {
    for mode in MODES {
        let map: Map<u64, u64> = Map::build(
            Cache::builder().index_mode(mode).budget(4 << 20).readers_max(2),
            Clock::manual(Seconds(1)),
        )
        .unwrap();
        for round in 0..8 {
            let (sender, written) = mpsc::sync_channel::<u64>(8);
            let writers: Vec<_> = (0..3u64)
                .map(|writer| {
                    let (map, sender) = (map.clone(), sender.clone());
                    std::thread::spawn(move || {
                        for step in 0..200 {
                            let key = writer << 32 | step;
                            map.insert(&key, key ^ round).unwrap();
                            assert_eq!(map.get(&key), Some(key ^ round), "a writer reads its own");
                            sender.send(key).unwrap();
                        }
                    })
                })
                .collect();
            drop(sender);
            for key in written {
                assert_eq!(
                    map.get(&key),
                    Some(key ^ round),
                    "a reader reads what it was notified of"
                );
            }
            writers.into_iter().for_each(|writer| writer.join().unwrap());
        }
        map.cache().validate().unwrap();
    }
}

/// A map may be used inside `with`, to any depth, with fewer readers than depth: reads succeed, and
/// a write that this very read blocks fails instead of waiting. Invariant 3 of `reader_pool`.
#[test]
fn reads_may_nest() {
    for (mode, of_many) in WAYS_TO_WRITE {
        let (map, _) = manual(mode, 1 << 20, 1);
        map.insert(&b"a"[..], b"outer".to_vec()).unwrap();
        map.with(&b"a"[..], |outer| {
            map.insert(&b"b"[..], b"inner".to_vec()).unwrap();
            assert_eq!(
                map.get(&b"b"[..]),
                Some(b"inner".to_vec()),
                "from main, as no reader is free"
            );
            map.with(&b"b"[..], |_| assert_eq!(map.get(&b"a"[..]), Some(b"outer".to_vec())));
            let refused = (0..200_000u64)
                .find_map(|number| store(&map, of_many, &number.to_le_bytes(), vec![0; 100]).err());
            assert!(matches!(refused, Some(Error::Stalled { .. })), "{refused:?}");
            assert_eq!(outer, b"outer", "what is being read does not change");
        });
        map.insert(&b"c"[..], vec![1]).unwrap();
        assert_eq!(map.get(&b"c"[..]), Some(vec![1]), "the next write goes through");
        map.cache().validate().unwrap();
    }
}

/// A thread that stays in `with` stops no other from reading and writing, as long as memory and log
/// last. Its value does not change, and when it returns, writes continue for laps.
#[test]
fn others_go_on_during_a_long_read() {
    for (mode, of_many) in WAYS_TO_WRITE {
        let (map, _) = manual(mode, 1 << 20, 2);
        map.insert(&b"k"[..], vec![1]).unwrap();
        let (entered, read) = (Barrier::new(2), Barrier::new(2));
        let write = |numbers: std::ops::Range<u64>| {
            numbers
                .map(|number| store(&map, of_many, &number.to_le_bytes(), vec![7; 40]))
                .all(|done| done.is_ok())
        };
        let (is_written, is_read) = std::thread::scope(|scope| {
            scope.spawn(|| {
                map.with(&b"k"[..], |bytes| {
                    entered.wait();
                    read.wait();
                    assert_eq!(bytes, [1], "what is being read stays");
                })
            });
            entered.wait();
            let is_written = write(0..40);
            let is_read = map.get(&39u64.to_le_bytes()[..]) == Some(vec![7; 40]);
            read.wait();
            (is_written, is_read)
        });
        assert!(is_written && is_read);
        let laps = 4 * map.cache().stats().unwrap().log_records;
        assert!(write(40..laps));
        map.cache().validate().unwrap();
    }
}

/// A cache whose readers are all in use elsewhere can still be read, from main.
#[test]
fn no_reader_is_needed() {
    for mode in MODES {
        let (map, _) = manual(mode, 1 << 20, 1);
        let mut reader = map.cache().reader().unwrap();
        map.insert(&b"a"[..], vec![1]).unwrap();
        assert_eq!(map.get(&b"a"[..]), Some(vec![1]));
        assert_eq!(map.get(&b"b"[..]), None);
        reader.sync();
    }
}

/// Of many threads that miss one key, one loads; all get its value.
#[test]
fn one_loads_for_all() {
    for mode in MODES {
        let (map, _) = manual(mode, 1 << 20, 2);
        let (loads, start) = (AtomicUsize::new(0), Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let value = map.get_or_insert_with(&b"k"[..], || {
                        loads.fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                        vec![5]
                    });
                    assert_eq!(value, [5]);
                });
            }
        });
        assert_eq!(loads.into_inner(), 1);
    }
}

/// A load that panics releases its waiters: one of them loads, and all but the panicking one are
/// served.
#[test]
fn a_panicking_load_releases_the_others() {
    for mode in MODES {
        let (map, _) = manual(mode, 1 << 20, 2);
        let (loads, start) = (AtomicUsize::new(0), Barrier::new(4));
        let panicked: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        map.get_or_insert_with(&b"k"[..], || {
                            assert!(
                                loads.fetch_add(1, Ordering::Relaxed) > 0,
                                "the first load fails"
                            );
                            vec![6]
                        })
                    })
                })
                .collect();
            threads.into_iter().map(|thread| usize::from(thread.join().is_err())).sum()
        });
        assert_eq!((panicked, loads.into_inner()), (1, 2));
        assert_eq!(map.get(&b"k"[..]), Some(vec![6]));
    }
}

/// An insert and a remove during a load win over it; the load's caller gets its value all the same.
/// A load that needs itself gets a value too, instead of waiting for itself.
#[test]
fn a_later_write_beats_a_load() {
    for mode in MODES {
        let (map, _) = manual(mode, 1 << 20, 1);
        let loaded = map.get_or_insert_with(&b"k"[..], || {
            map.insert(&b"k"[..], b"newer".to_vec()).unwrap();
            b"older".to_vec()
        });
        assert_eq!((loaded, map.get(&b"k"[..])), (b"older".to_vec(), Some(b"newer".to_vec())));

        let loaded = map.get_or_insert_with(&b"r"[..], || {
            map.remove(&b"r"[..]).unwrap();
            b"gone".to_vec()
        });
        assert_eq!((loaded, map.get(&b"r"[..])), (b"gone".to_vec(), None));

        let loaded = map.get_or_insert_with(&b"s"[..], || {
            let inner = map.get_or_insert_with(&b"s"[..], || b"inner".to_vec());
            [inner, b" and outer".to_vec()].concat()
        });
        assert_eq!(loaded, b"inner and outer");
        assert_eq!(map.get(&b"s"[..]), Some(b"inner and outer".to_vec()));
    }
}

/// A value that is too large to be stored is loaded and returned, and an insert of it fails with
/// the largest size.
#[test]
fn too_large_is_returned_and_not_stored() {
    for mode in MODES {
        let (map, _) = manual(mode, 1 << 20, 1);
        let value = vec![1; 40_000];
        assert_eq!(map.get_or_insert_with(&b"k"[..], || value.clone()), value);
        assert!(!map.contains(&b"k"[..]));
        let refused = map.insert(&b"k"[..], value);
        assert!(matches!(refused, Err(Error::ValueTooLarge { bytes: 40_000, .. })), "{refused:?}");
    }
}

/// Values of the length that was stated, or that the types state, are stored on a small budget: with short and
/// long keys, and with both kinds of expiry.
#[test]
fn stated_lengths_are_stored() {
    let expiry = || Expiry::idle(Duration::from_secs(60)).and(Duration::from_secs(3600));
    for len in [753, 3_825, 12_000, 16_113, 28_000, 32_497, larder::VALUE_BYTES_MAX] {
        let budget = if len < 32_000 { 4 << 20 } else { 8 << 20 };
        let builder = Map::<str, Vec<u8>>::builder().readers_max(2).budget(budget);
        let map = Map::<str, Vec<u8>>::build(builder.clone(), Clock::system()).unwrap();
        assert_eq!(map.insert("k", vec![7; len]).is_ok(), len < 8_000, "{len}, not stated");

        let map = Map::<str, Vec<u8>>::build(builder.value_bytes_max(len), Clock::system());
        let map = map.unwrap();
        // Of a long key, what follows its first 247 bytes counts as value, and 4 more.
        for (key, len) in [(1, len), (254, len), (255, len - 12), (600, len - (600 - 247 + 4))] {
            let key = "k".repeat(key);
            map.insert_ttl(&key, vec![7; len], expiry()).unwrap();
            assert_eq!(map.get(&key), Some(vec![7; len]));
        }
    }
    let map: Map<u64, [u8; 20_000]> = Map::new(4 << 20).unwrap();
    map.insert_ttl(&1, [7; 20_000], expiry()).unwrap();
    assert_eq!(map.get(&1), Some([7; 20_000]));
    let map: Map<[u8; 1000], [u8; 15_000]> = Map::new(4 << 20).unwrap();
    map.insert_ttl(&[1; 1000], [7; 15_000], expiry()).unwrap();
    assert_eq!(map.get(&[1; 1000]), Some([7; 15_000]));
}

/// The types that users have as keys and values work as such, borrowed where they can be.
#[test]
fn types_of_users() {
    let by_name: Map<String, u32> = Map::new(1 << 20).unwrap();
    by_name.insert("a", 1).unwrap();
    by_name.insert(&String::from("b"), 2).unwrap();
    assert_eq!((by_name.get("a"), by_name.get("b"), by_name.get("c")), (Some(1), Some(2), None));

    let by_flow: Map<(std::net::IpAddr, u16), Arc<str>> = Map::new(1 << 20).unwrap();
    let flow = ("192.0.2.1".parse().unwrap(), 443);
    by_flow.insert(&flow, "www.example.org".into()).unwrap();
    assert_eq!(by_flow.get(&flow).as_deref(), Some("www.example.org"));
    assert_eq!(by_flow.len().unwrap(), 1);
}

/// Tasks on more workers than readers share a map and hold nothing across await points. Of those
/// that miss one key one loads; a task that is dropped while it leads passes the lead on.
#[test]
fn tasks_share_a_map() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    let clock = Clock::manual(Seconds(1));
    let map: Map<u64, u64> =
        Map::build(Cache::builder().budget(1 << 20).readers_max(2), clock).unwrap();
    let loads = Arc::new(AtomicU64::new(0));
    runtime.block_on(async {
        let dropped = tokio::spawn({
            let map = map.clone();
            async move { map.get_or_insert_async(&7, std::future::pending()).await }
        });
        tokio::task::yield_now().await;
        let tasks: Vec<_> = (0..32u64)
            .map(|task| {
                let (map, loads) = (map.clone(), loads.clone());
                tokio::spawn(async move {
                    map.insert(&(100 + task), task).unwrap();
                    tokio::task::yield_now().await;
                    assert_eq!(map.get(&(100 + task)), Some(task));
                    map.get_or_insert_async(&7, async {
                        tokio::task::yield_now().await;
                        loads.fetch_add(1, Ordering::Relaxed);
                        77
                    })
                    .await
                })
            })
            .collect();
        tokio::task::yield_now().await;
        dropped.abort();
        for task in tasks {
            assert_eq!(task.await.unwrap(), 77);
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 1);
}

/// A map's reads reach its policy, since a read of what was written syncs first: keys that are read
/// now and then outlive thousands that are not, except if reads do not matter.
#[test]
fn reads_keep_entries() {
    for policy in [Policy::Partitioned, Policy::Fifo] {
        for shards in [1, 2] {
            let builder = Cache::builder().budget(1 << 20).readers_max(1);
            let builder = builder.policy(policy).shards(shards);
            let map: Map<u64, [u8; 32]> = Map::build(builder, Clock::manual(Seconds(1))).unwrap();
            for number in 0..30_000u64 {
                map.insert(&(1_000 + number), [1; 32]).unwrap();
                let wanted = number % 200;
                if map.get(&wanted).is_none() {
                    map.insert(&wanted, [2; 32]).unwrap();
                }
            }
            map.cache().validate().unwrap();
            let stats = map.cache().stats().unwrap();
            assert!(stats.evicted > 10_000, "{policy:?}");
            let again = stats.inserted - 30_000 - 200;
            let is_reported = policy != Policy::Fifo;
            assert_eq!(
                (stats.reported > 1_000, again < 100),
                (is_reported, is_reported),
                "{policy:?}: {again}"
            );
        }
    }
}

/// A live iterator blocks nothing: the same thread clears, saves and walks the map meanwhile. Each
/// walk has its own place, and the first one continues with what is left.
#[test]
fn walks_do_not_wait() {
    for policy in [Policy::Partitioned, Policy::Fifo] {
        let builder = || Cache::builder().budget(2 << 20).policy(policy).shards(2);
        let map: Map<u64, u64> = Map::build(builder(), Clock::manual(Seconds(1))).unwrap();
        map.insert_many((0..500).map(|number| (number, number)), Ttl::FOREVER).unwrap();
        let walk = || map.cache().iter(Seconds(1));
        let mut first = walk();
        let mut met: Vec<_> = first.by_ref().take(100).map(|entry| entry.key().to_vec()).collect();
        let (mut second, mut third) = (walk(), walk());
        assert_eq!(second.by_ref().take(300).count(), 300);
        let mut saved = Vec::new();
        assert_eq!(map.cache().save_to(&mut saved, Seconds(1)).unwrap(), 500, "{policy:?}");
        met.extend(first.by_ref().map(|entry| entry.key().to_vec()));
        met.sort();
        met.dedup();
        assert_eq!((met.len(), second.count()), (500, 200), "{policy:?}");
        assert!(third.next().is_some());
        let mut fourth = walk();
        fourth.next();
        drop(first);
        map.clear().unwrap();
        assert!(map.is_empty().unwrap());
        // Entries copied before the map was cleared.
        assert!(third.count() < 100 && fourth.count() < 100);
        map.cache().validate().unwrap();
    }
}

/// Nobody can know which keys of a map share a bucket: two maps of one size evict different
/// entries.
#[test]
fn a_new_map_has_a_hash_of_its_own() {
    let left = |map: &Map<u64, u64>| {
        map.insert_many((0..60_000).map(|number| (number, number)), Ttl::FOREVER).unwrap();
        let mut left: Vec<_> =
            map.cache().iter(Seconds(0)).map(|entry| entry.key().to_vec()).collect();
        left.sort();
        left
    };
    let new = || left(&Map::new(1 << 20).unwrap());
    assert_ne!(new(), new());
    let built = |builder| left(&Map::build(builder, Clock::manual(Seconds(1))).unwrap());
    let builder = || Cache::builder().budget(1 << 20).readers_max(1);
    assert_ne!(built(builder().random_seed()), built(builder().random_seed()));
    assert_eq!(built(builder()), built(builder()), "unless it is asked for");
}
