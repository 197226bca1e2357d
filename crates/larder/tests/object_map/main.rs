//! Values that are `Clone`: they are found as long as their key has them, and dropped when it no longer does.

mod model;
mod panics;
mod weights;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use larder::{
    Builder, Cause, Change, Clock, Error, Expiry, IndexMode, Map, ObjectMap, Policy, Seconds, Ttl,
};
use larder_testkit::wait::ready;

/// Objects of a test that are alive, clones included.
#[derive(Clone, Default)]
struct Alive(Arc<AtomicI64>);

impl Alive {
    fn object(&self, number: u64) -> Object {
        self.0.fetch_add(1, Ordering::Relaxed);
        Object { number, alive: self.clone() }
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed).try_into().expect("what is dropped was alive")
    }
}

struct Object {
    number: u64,
    alive: Alive,
}

impl Clone for Object {
    fn clone(&self) -> Self {
        self.alive.object(self.number)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.alive.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn map<V: Clone + Send + Sync + 'static>(entries_max: u64) -> (ObjectMap<str, V>, Clock) {
    let clock = Clock::manual(Seconds(1_000_000));
    let builder = ObjectMap::<str, V>::builder(entries_max);
    (ObjectMap::build(builder, clock.clone()).unwrap(), clock)
}

fn number(object: Option<Object>) -> Option<u64> {
    object.map(|object| object.number)
}

/// Whatever ends the stay of an object in the map, it is dropped within that call.
#[test]
fn what_leaves_is_dropped() {
    let alive = Alive::default();
    let (map, clock) = map(100);
    let long = "k".repeat(300);
    for key in ["a", "", long.as_str()] {
        map.insert(key, alive.object(1)).unwrap();
        assert_eq!((number(map.get(key)), alive.count()), (Some(1), 1));
        map.insert(key, alive.object(2)).unwrap();
        assert_eq!((number(map.get(key)), alive.count()), (Some(2), 1), "replaced");
        assert_eq!(number(map.replace(key, alive.object(3)).unwrap()), Some(2));
        assert_eq!((number(map.get(key)), alive.count()), (Some(3), 1));
        assert_eq!(number(map.take(key).unwrap()), Some(3));
        assert_eq!((number(map.get(key)), alive.count()), (None, 0), "taken");
        map.insert_ttl(key, alive.object(4), Ttl::seconds(10)).unwrap();
        clock.advance(Duration::from_secs(10));
        assert_eq!((number(map.get(key)), map.contains(key)), (None, false), "expired");
        assert_eq!(map.get_with_expiry(key).unwrap().map(|(object, _)| object.number), None);
        assert_eq!(number(map.take(key).unwrap()), None);
        map.insert(key, alive.object(5)).unwrap();
        assert_eq!(alive.count(), 1, "the expired one left");
        map.remove(key).unwrap();
        assert_eq!((map.contains(key), alive.count()), (false, 0), "removed");
    }
    for n in 0..50 {
        map.insert(&n.to_string(), alive.object(n)).unwrap();
    }
    assert_eq!((map.retain(|_, object| object.number < 20).unwrap(), alive.count()), (30, 20));
    map.clear().unwrap();
    assert_eq!((map.len().unwrap(), alive.count()), (0, 0));
    let expires = Seconds(map.now().0 + 5);
    map.insert_ttl("a", alive.object(1), Ttl::seconds(5)).unwrap();
    map.insert_ttl("b", alive.object(1), Duration::from_millis(2500)).unwrap();
    let idle = Expiry::idle(Duration::from_secs(5));
    map.insert_ttl("c", alive.object(1), idle).unwrap();
    map.insert("d", alive.object(1)).unwrap();
    let found = map.get_with_expiry("a").unwrap();
    assert_eq!(found.map(|(object, expires)| (object.number, expires)), Some((1, Some(expires))));
    clock.advance(Duration::from_millis(2499));
    assert_eq!((map.remove_expired().unwrap(), alive.count()), (0, 4));
    clock.advance(Duration::from_millis(1));
    assert_eq!((map.remove_expired().unwrap(), alive.count()), (1, 3), "exact");
    clock.advance(Duration::from_millis(4500));
    assert_eq!((map.retain(|_, _| false).unwrap(), alive.count()), (1, 2), "a and c expired");
    assert_eq!((map.remove_expired().unwrap(), alive.count()), (2, 0));
    map.insert("a", alive.object(1)).unwrap();
    let clone = map.clone();
    drop(map);
    assert_eq!(number(clone.get("a")), Some(1));
    drop(clone);
    assert_eq!(alive.count(), 0, "the map is gone");
}

/// As many objects as were asked for, and all of them if they are fewer; alive are those that are in it.
#[test]
fn the_number_is_limited() {
    for entries_max in (1..20).chain([100, 5_000, 50_000]) {
        let alive = Alive::default();
        let map: ObjectMap<u64, Object> = ObjectMap::new(entries_max).unwrap();
        for key in 0..entries_max * 3 {
            map.insert(&key, alive.object(key)).unwrap();
            let last = map.get(&key).expect("the last one stays");
            assert_eq!(last.number, key);
        }
        let len = map.len().unwrap();
        assert!(len <= entries_max && len * 100 >= entries_max * 95, "{len} of {entries_max}");
        assert_eq!((alive.count(), map.iter().count() as u64), (len, len));
        map.iter().for_each(|(key, object)| assert_eq!(object.number, key));
    }
    assert!(matches!(ObjectMap::<u64, u8>::new(0), Err(Error::Setting(_))));
    assert!(matches!(ObjectMap::<u64, u8>::new(u64::MAX), Err(Error::Setting(_))));
    let listens = ObjectMap::<u64, u8>::builder(10).on_evicted(|_| {});
    assert!(matches!(
        ObjectMap::<u64, u8>::build(listens, Clock::system()),
        Err(Error::Setting(_))
    ));
    // Of a map of bytes, too, whose few entries are in one shard.
    let builder = Map::<u64, u64>::builder().budget(64 << 20).entries_max(1000);
    let map: Map<u64, u64> = Map::build(builder, Clock::system()).unwrap();
    (0..3000).for_each(|key| map.insert(&key, key).unwrap());
    assert_eq!((map.len().unwrap(), map.stats().unwrap().entries_max), (1000, 1000));
    let shards = Map::<u64, u64>::builder().shards(8).entries_max(7);
    assert!(matches!(shards.build(), Err(Error::Setting(_))));
}

/// Those who miss get what is loaded, on every way; it is stored, unless a write came first.
#[test]
fn loads() {
    let alive = Alive::default();
    let (map, clock) = map(100);
    let second = Duration::from_secs(1);
    assert_eq!(map.get_or_insert_with("a", || alive.object(1)).number, 1);
    assert_eq!(map.get_or_insert_with("a", || unreachable!()).number, 1);
    assert_eq!(map.get_or_insert_ttl_with("b", || (alive.object(2), second)).number, 2);
    assert_eq!(ready(map.get_or_insert_async("c", async { alive.object(3) })).number, 3);
    let load = async { (alive.object(4), Ttl::seconds(1)) };
    assert_eq!(ready(map.get_or_insert_ttl_async("d", load)).number, 4);
    let failed = map.try_get_or_insert_with("e", || Err::<Object, _>("no")).err();
    assert_eq!((failed.as_deref(), map.contains("e")), (Some(&"no"), false));
    let failed = ready(map.try_get_or_insert_async("e", async { Err::<Object, _>("no") })).err();
    assert_eq!(failed.as_deref(), Some(&"no"));
    assert_eq!((alive.count(), map.len().unwrap()), (4, 4));
    clock.advance(second);
    assert_eq!((map.contains("b"), map.contains("d"), map.contains("c")), (false, false, true));
    // A write that comes while it is loaded is newer.
    let loaded = map.get_or_insert_with("f", || {
        map.insert("f", alive.object(6)).unwrap();
        alive.object(5)
    });
    assert_eq!((loaded.number, number(map.get("f"))), (5, Some(6)));
    drop(loaded);
    let loaded = map.get_or_insert_with("g", || {
        map.remove("g").unwrap();
        alive.object(7)
    });
    assert_eq!((loaded.number, map.contains("g")), (7, false));
    drop(loaded);
    assert_eq!(alive.count(), 5, "a, b, c, d and f: what was not stored is dropped");
    // Eight threads miss at once, and one loads.
    let loads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let look_up = || {
            let load = || {
                std::thread::sleep(Duration::from_millis(20));
                alive.object(loads.fetch_add(1, Ordering::Relaxed))
            };
            assert_eq!(map.get_or_insert_with("h", load).number, 0);
        };
        // ThreadSanitizer sees a join, and not the end of a scope.
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(look_up)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(alive.count(), 6);
}

/// The listener gets each object with its key and the reason, and may use the map.
#[test]
fn what_leaves_is_reported() {
    type Reports = Arc<Mutex<Vec<(String, u64, Cause)>>>;
    let (reports, alive) = (Reports::default(), Alive::default());
    static MAP: OnceLock<ObjectMap<str, Object>> = OnceLock::new();
    let report = reports.clone();
    let listener = move |key: String, object: Object, cause| {
        report.lock().unwrap().push((key.clone(), object.number, cause));
        let map = MAP.get().unwrap();
        if key == "b" {
            map.insert("by the listener", object).unwrap();
        }
    };
    let clock = Clock::manual(Seconds(9));
    let builder = ObjectMap::<str, Object>::builder(2);
    let map = ObjectMap::build_reporting(builder, clock.clone(), listener).unwrap();
    let map = MAP.get_or_init(|| map);
    let reported = || std::mem::take(&mut *reports.lock().unwrap());
    map.insert("a", alive.object(1)).unwrap();
    map.insert("a", alive.object(2)).unwrap();
    assert_eq!(reported(), [("a".to_owned(), 1, Cause::Replaced)]);
    map.touch("a", Ttl::seconds(5)).unwrap();
    assert_eq!(reported(), [], "it stays where it is");
    map.remove("a").unwrap();
    assert_eq!(reported(), [("a".to_owned(), 2, Cause::Removed)]);
    map.insert("b", alive.object(3)).unwrap();
    assert_eq!(number(map.take("b").unwrap()), Some(3));
    assert_eq!(reported(), [("b".to_owned(), 3, Cause::Removed)]);
    assert_eq!(number(map.get("by the listener")), Some(3));
    map.clear().unwrap();
    assert_eq!(reported(), [("by the listener".to_owned(), 3, Cause::Removed)]);
    (10..13).for_each(|n| map.insert(&n.to_string(), alive.object(n)).unwrap());
    let evicted = reported();
    assert_eq!(evicted.len(), 1);
    assert_eq!((evicted[0].2, evicted[0].1.to_string()), (Cause::Budget, evicted[0].0.clone()));
    assert_eq!(alive.count(), map.len().unwrap());
}

/// An object that can't be stored is dropped, here since its insert comes from a listener that would never end.
#[test]
fn what_is_refused_is_dropped() {
    static MAP: OnceLock<ObjectMap<u64, Object>> = OnceLock::new();
    static REFUSED: AtomicU64 = AtomicU64::new(0);
    let alive = Alive::default();
    let makes = alive.clone();
    let listener = move |key: u64, _: Object, _| {
        let map = MAP.get().unwrap();
        for result in [
            map.insert(&(key + 1), makes.object(0)),
            map.replace(&(key + 2), makes.object(0)).map(drop),
        ] {
            REFUSED.fetch_add(
                u64::from(matches!(result, Err(Error::ListenerInserts))),
                Ordering::Relaxed,
            );
        }
        map.get_or_insert_with(&(key + 3), || makes.object(0));
    };
    let builder = ObjectMap::<u64, Object>::builder(5);
    let map = ObjectMap::build_reporting(builder, Clock::system(), listener).unwrap();
    let map = MAP.get_or_init(|| map);
    (0..10).for_each(|key| map.insert(&(key * 1000), alive.object(0)).unwrap());
    assert!(REFUSED.load(Ordering::Relaxed) > 0);
    assert_eq!((alive.count(), map.len().unwrap()), (5, 5));
}

/// An object whose `clone` and `drop` use the map.
#[test]
fn objects_that_use_their_map() {
    static MAP: OnceLock<ObjectMap<u64, Uses>> = OnceLock::new();
    static DROPS: AtomicU64 = AtomicU64::new(0);
    struct Uses(u64);
    impl Clone for Uses {
        fn clone(&self) -> Self {
            if self.0 == 1 {
                MAP.get().unwrap().remove(&1).unwrap();
                assert!(!MAP.get().unwrap().contains(&1));
            }
            Uses(self.0 + 100)
        }
    }
    impl Drop for Uses {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Ordering::Relaxed);
            if self.0 == 2 {
                MAP.get().unwrap().insert(&3, Uses(3)).unwrap();
            }
        }
    }
    let map = MAP.get_or_init(|| ObjectMap::new(10).unwrap());
    map.insert(&1, Uses(1)).unwrap();
    assert_eq!(map.get(&1).map(|object| object.0), Some(101), "it was there when the call began");
    assert!(map.get(&1).is_none());
    map.insert(&2, Uses(2)).unwrap();
    map.remove(&2).unwrap();
    assert_eq!(DROPS.load(Ordering::Relaxed), 3, "the clone, the first and the second");
    assert_eq!(map.get(&3).map(|object| object.0), Some(103));
    let mut found = Vec::new();
    map.get_many(&[2, 3, 1], |at, object| found.push((at, object.map(|object| object.0))));
    assert_eq!(found, [(0, None), (1, Some(103)), (2, None)]);
}

/// A full map refuses a write for a moment when other threads hold what it needs.
fn done<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Error::Stalled { .. } | Error::Starved) => None,
        Err(error) => panic!("{error}"),
    }
}

fn write_and_read(map: &ObjectMap<u64, Object>, alive: &Alive, thread: u64) {
    let mut random = thread;
    for _ in 0..if cfg!(debug_assertions) { 5_000 } else { 50_000 } {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = (random >> 33) % 60;
        let is_its = |found: Option<Object>| {
            assert!(found.is_none_or(|object| object.number % 60 == key));
        };
        let object = || alive.object(key + 60 * (random >> 50));
        let second = Expiry::from(Ttl::seconds(1));
        match (random >> 40) % 11 {
            0 => drop(done(map.insert(&key, object()))),
            1 => drop(done(map.insert_ttl(&key, object(), second))),
            2 => drop(done(map.remove(&key))),
            3 => is_its(done(map.take(&key)).flatten()),
            4 => is_its(done(map.replace(&key, object())).flatten()),
            5 => is_its(Some(map.get_or_insert_with(&key, object))),
            6 => is_its(done(map.compute(&key, |_| Change::Update(object()))).flatten()),
            7 => drop(done(map.touch(&key, Duration::from_millis(1500)))),
            9 => drop(done(map.remove_expired())),
            8 => map.get_many(&[key, key], |_, object| is_its(object)),
            _ => is_its(map.get(&key)),
        }
    }
}

/// Threads that write and read the same few keys of a map that is too small for them: each finds the objects of the
/// key it asked for, and those alive at the end are those in the map. With any number of shards, index and policy.
#[test]
fn threads_share_objects() {
    type Change = fn(Builder) -> Builder;
    let kinds: [Change; 4] = [
        |builder| builder,
        |builder| builder.budget(8 << 20).shards(4),
        |builder| builder.policy(Policy::Fifo),
        |builder| builder.budget(8 << 20).shards(2).index_mode(IndexMode::Replicated),
    ];
    for kind in kinds {
        let alive = Alive::default();
        let builder = kind(ObjectMap::<u64, Object>::builder(40));
        let map: ObjectMap<u64, Object> = ObjectMap::build(builder, Clock::system()).unwrap();
        std::thread::scope(|scope| {
            let spawn = |thread| {
                let (map, alive) = (&map, &alive);
                scope.spawn(move || write_and_read(map, alive, thread))
            };
            let threads: Vec<_> = (0..4).map(spawn).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        // Retirements that met a reader are done by the next one.
        map.insert(&0, alive.object(0)).unwrap();
        map.insert(&0, alive.object(0)).unwrap();
        assert_eq!(alive.count(), map.len().unwrap());
        map.clear().unwrap();
        assert_eq!(alive.count(), 0);
    }
}

/// Keys of all lengths, as many objects as were asked for; and several shards where there are thousands.
#[test]
fn keys_of_any_length() {
    fn fill<const N: usize>(entries_max: u64) -> ObjectMap<[u8; N], u64> {
        let map: ObjectMap<[u8; N], u64> = ObjectMap::new(entries_max).unwrap();
        let key = |n: u64| {
            let mut key = [7; N];
            key[..8].copy_from_slice(&n.to_le_bytes());
            key
        };
        (0..entries_max).for_each(|n| map.insert(&key(n), n).unwrap());
        let found = (0..entries_max).filter(|n| map.get(&key(*n)) == Some(*n)).count() as u64;
        assert!(found * 100 >= entries_max * 97, "{found} of {entries_max}, keys of {N}");
        map
    }
    fill::<16>(10);
    fill::<300>(3_000);
    fill::<910>(30_000);
    fill::<5_000>(1_000);
    fill::<30_000>(100);
    // Rounded down to an equal number for each shard, of which there are at least four.
    let (few, many) = (fill::<16>(8_003), fill::<16>(40_003));
    assert_eq!(few.stats().unwrap().entries_max, 8_003, "one shard");
    assert!(many.stats().unwrap().entries_max <= 40_000, "several");
    // Without a size that is known, keys of 32 bytes.
    let texts: ObjectMap<str, u64> = ObjectMap::new(20_000).unwrap();
    let key = |n: u64| format!("{n:032}");
    (0..20_000).for_each(|n| texts.insert(&key(n), n).unwrap());
    let found = (0..20_000).filter(|n| texts.get(&key(*n)) == Some(*n)).count();
    assert!(found * 100 >= 20_000 * 97, "{found}");
    let too_long = texts.insert(&"k".repeat(40_000), 0);
    assert!(matches!(too_long, Err(Error::ValueTooLarge { .. })), "{too_long:?}");
}
