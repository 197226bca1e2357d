//! A listener of removals learns of each value that leaves, once, and why.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use larder::{Builder, Cause, Change, Clock, Evicted, Map, Seconds, Ttl};
use larder_testkit::wait::PATIENCE;
use proptest::prelude::*;

/// The numbers of the values that left, in order, and why.
type Left = Arc<Mutex<Vec<(u64, Cause)>>>;

fn map(budget: u64, now: u32) -> (Map<u64, Vec<u8>>, Clock, Left) {
    let left = Left::default();
    let noted = left.clone();
    let note = move |entry: Evicted<'_>| {
        noted.lock().unwrap().push((number_of(entry.value), entry.cause));
    };
    let builder: Builder = Map::<u64, Vec<u8>>::builder().budget(budget).shards(1);
    let clock = Clock::manual(Seconds(now));
    (Map::build(builder.on_removed(note), clock.clone()).unwrap(), clock, left)
}

/// A value with this number, of some length.
fn value(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + (number % 10) as usize * 100, 0);
    bytes
}

fn number_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk().unwrap())
}

/// Numbers of the values that are there, expired ones included.
fn present(map: &Map<u64, Vec<u8>>) -> impl Iterator<Item = u64> + '_ {
    map.cache().iter(Seconds(0)).map(|entry| number_of(entry.value()))
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u64, Option<u32>),
    Many(u64),
    Remove(u64),
    Take(u64),
    Compute(u64),
    Load(u64),
    Wait(u32),
    Clear,
    Retain,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0u64..900;
    prop_oneof![
        8 => (key.clone(), prop::option::of(1u32..9)).prop_map(|(key, ttl)| Step::Insert(key, ttl)),
        2 => key.clone().prop_map(Step::Many),
        2 => key.clone().prop_map(Step::Remove),
        1 => key.clone().prop_map(Step::Take),
        2 => key.clone().prop_map(Step::Compute),
        2 => key.prop_map(Step::Load),
        1 => (0u32..5).prop_map(Step::Wait),
        1 => Just(Step::Retain),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    /// At any time each value that was stored is there or was reported, not both and never twice.
    /// Only what a caller did has the causes of callers.
    #[test]
    fn each_value_is_there_or_was_reported(steps in prop::collection::vec(step(), 1..400)) {
        let (map, clock, left) = map(256 << 10, 10);
        let mut stored = 0;
        for step in steps {
            let mut next = || {
                stored += 1;
                value(stored - 1)
            };
            let before = left.lock().unwrap().len();
            let mut wants = vec![Cause::Budget, Cause::Expired, Cause::Conflict];
            match step {
                Step::Insert(key, ttl) => {
                    let ttl = ttl.map_or(Ttl::FOREVER, Ttl::seconds);
                    map.insert_ttl(&key, next(), ttl).unwrap();
                    wants.push(Cause::Replaced);
                }
                Step::Many(key) => {
                    let entries: Vec<_> = (0..30).map(|at| (key + at % 20, next())).collect();
                    map.insert_many(entries, Ttl::FOREVER).unwrap();
                    wants.push(Cause::Replaced);
                }
                Step::Remove(key) => {
                    map.remove(&key).unwrap();
                    wants = vec![Cause::Removed];
                }
                Step::Take(key) => {
                    map.take(&key).unwrap();
                    wants = vec![Cause::Removed];
                }
                Step::Compute(key) => {
                    let value = next();
                    map.compute(&key, |_| Change::Update(value.clone())).unwrap();
                    wants.push(Cause::Replaced);
                }
                Step::Load(key) => {
                    let mut value = Some(next());
                    map.get_or_insert_with(&key, || value.take().unwrap());
                    stored -= u64::from(value.is_some());
                    // An expired value is replaced by the loaded one.
                    wants.push(Cause::Replaced);
                }
                Step::Wait(seconds) => {
                    let now = clock.now();
                    clock.set(Seconds(now.0 + seconds));
                }
                Step::Clear => {
                    map.clear().unwrap();
                    wants = vec![Cause::Removed];
                }
                Step::Retain => {
                    map.retain(|key, _| key % 2 == 0).unwrap();
                    wants = vec![Cause::Removed];
                }
            }
            let left = left.lock().unwrap();
            let causes = left[before..].iter().map(|(_, cause)| *cause);
            prop_assert!(causes.clone().all(|cause| wants.contains(&cause)), "{:?}", causes.collect::<Vec<_>>());
            let mut seen: Vec<u64> = left.iter().map(|(number, _)| *number).collect();
            seen.extend(present(&map));
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..stored).collect::<Vec<_>>());
        }
        map.cache().validate().unwrap();
    }
}

/// The same of threads at once, with the causes in the numbers that were done.
#[test]
fn threads_lose_no_report() {
    const EACH: u64 = 20_000;
    let (map, _, left) = map(2 << 20, 10);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let map = &map;
            scope.spawn(move || {
                for step in 0..EACH {
                    let number = thread * EACH + step;
                    map.insert(&(number * 7 % 5000), value(number)).unwrap();
                    if step % 5 == 0 {
                        map.remove(&(step % 5000)).unwrap();
                    }
                }
            });
        }
    });
    let left = left.lock().unwrap();
    let mut seen: Vec<u64> = left.iter().map(|(number, _)| *number).collect();
    seen.extend(present(&map));
    seen.sort_unstable();
    assert_eq!(seen, (0..3 * EACH).collect::<Vec<_>>());
    let mut causes = BTreeMap::new();
    left.iter().for_each(|(_, cause)| *causes.entry(format!("{cause:?}")).or_insert(0) += 1);
    let stats = map.cache().stats().unwrap();
    let of = |cause| causes.get(cause).copied().unwrap_or(0);
    assert_eq!((of("Removed"), of("Replaced")), (stats.removed, stats.updated), "{causes:?}");
    assert_eq!(of("Budget") + of("Expired"), stats.evicted, "{causes:?}");
    assert!(of("Budget") > 0, "{causes:?}");
}

/// With `on_evicted` there is no report of what callers did; the listener that was set last counts.
#[test]
fn the_last_listener_counts() {
    let (evicted, removed) = (Left::default(), Left::default());
    let note = |noted: &Left| {
        let noted = noted.clone();
        move |entry: Evicted<'_>| noted.lock().unwrap().push((number_of(entry.value), entry.cause))
    };
    let builder = || Map::<u64, Vec<u8>>::builder().budget(256 << 10).shards(1);
    let builders = [
        builder().on_removed(note(&removed)).on_evicted(note(&evicted)),
        builder().on_evicted(note(&evicted)).on_removed(note(&removed)),
    ];
    let count = |noted: &Left, cause: Cause| {
        noted.lock().unwrap().iter().filter(|(_, of)| *of == cause).count()
    };
    for (builder, number) in builders.into_iter().zip(0..) {
        let map: Map<u64, Vec<u8>> = Map::build(builder, Clock::manual(Seconds(1))).unwrap();
        map.insert(&1, value(1)).unwrap();
        map.insert(&1, value(2)).unwrap();
        map.remove(&1).unwrap();
        assert_eq!(
            (count(&removed, Cause::Replaced), count(&removed, Cause::Removed)),
            (number, number)
        );
        (0..3000).for_each(|key| map.insert(&key, value(key)).unwrap());
        assert!(count([&evicted, &removed][number], Cause::Budget) > 1000);
        assert_eq!(removed.lock().unwrap().is_empty(), number == 0);
    }
    assert_eq!(count(&evicted, Cause::Replaced) + count(&evicted, Cause::Removed), 0);
}

/// A listener of a map decodes keys of any length, and their values.
#[test]
fn keys_of_any_length_are_decoded() {
    let noted = Arc::new(Mutex::new(Vec::new()));
    let note = {
        let noted = noted.clone();
        move |entry: Evicted<'_>| {
            noted.lock().unwrap().push(Map::<str, u32>::decode(entry.key, entry.value).unwrap());
        }
    };
    let map: Map<str, u32> =
        Map::build(Map::<str, u32>::builder().budget(1 << 20).on_removed(note), Clock::system())
            .unwrap();
    let keys = [0, 1, 254, 255, 300, 2000].map(|len| "k".repeat(len));
    for (key, number) in keys.iter().zip(0..) {
        map.insert(key.as_str(), number).unwrap();
        map.remove(key.as_str()).unwrap();
    }
    let expected: Vec<_> = keys.into_iter().zip(0..).collect();
    assert_eq!(*noted.lock().unwrap(), expected);
    assert_eq!(Map::<str, u32>::decode(&[b'k'; 255], &[1, 0, 0, 0, 9, 9, 9, 9]), None);
}

/// A listener that is called for what a load evicted may wait for a thread that writes the loaded key: the load has
/// ended by then.
#[test]
fn the_listener_of_a_load_may_wait_for_writers_of_its_key() {
    let loaded = AtomicU64::new(0);
    let (ask, asked) = mpsc::channel::<()>();
    let (answer, answers) = mpsc::channel();
    let (is_armed, has_waited) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let listener = {
        let (is_armed, has_waited) = (is_armed.clone(), has_waited.clone());
        let (ask, answers) = (Mutex::new(ask), Mutex::new(answers));
        move |_: Evicted<'_>| {
            if is_armed.swap(false, Ordering::Relaxed) {
                ask.lock().unwrap().send(()).unwrap();
                let answer = answers.lock().unwrap().recv_timeout(PATIENCE);
                has_waited.store(answer.is_ok(), Ordering::Relaxed);
            }
        }
    };
    let builder = Map::<u64, Vec<u8>>::builder().budget(1 << 20).on_removed(listener);
    let map = Map::<u64, Vec<u8>>::build(builder, Clock::system()).unwrap();
    thread::scope(|scope| {
        let (writes, key) = (&map, &loaded);
        scope.spawn(move || {
            asked.recv().unwrap();
            writes.insert(&key.load(Ordering::Relaxed), vec![1]).unwrap();
            let _ = answer.send(());
        });
        // Full, so that one of the next loads evicts.
        (0..9_000).for_each(|key| map.insert(&key, vec![0; 400]).unwrap());
        is_armed.store(true, Ordering::Relaxed);
        for key in (10_000..).take_while(|_| is_armed.load(Ordering::Relaxed)) {
            loaded.store(key, Ordering::Relaxed);
            map.get_or_insert_with(&key, || vec![2; 400]);
        }
    });
    let why = "the writer waited for the load, and the listener for the writer";
    assert!(has_waited.load(Ordering::Relaxed), "{why}");
    assert_eq!(map.get(&loaded.load(Ordering::Relaxed)), Some(vec![1]));
}
