//! Callers' code that panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder::{Cause, Change, Clock, DecodeKey, Expiry, Key, ObjectMap};

use super::{Alive, Object, number};

/// What the caller's code does in the middle of a call loses no object, and keeps none.
#[test]
fn callers_that_panic() {
    static PANICS: AtomicU64 = AtomicU64::new(0);
    struct Fragile(Object);
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            assert_eq!(PANICS.load(Ordering::Relaxed), 0, "told to");
            Fragile(self.0.clone())
        }
    }
    let alive = Alive::default();
    let map: ObjectMap<u64, Fragile> = ObjectMap::new(100).unwrap();
    let panics = |call: &dyn Fn()| {
        PANICS.store(1, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
        PANICS.store(0, Ordering::Relaxed);
    };
    map.insert(&1, Fragile(alive.object(1))).unwrap();
    panics(&|| drop(map.get(&1)));
    panics(&|| drop(map.take(&1)));
    let changes = AtomicU64::new(0);
    panics(&|| {
        let change = |_: Option<&Fragile>| {
            changes.fetch_add(1, Ordering::Relaxed);
            Change::Keep
        };
        drop(map.compute(&1, change));
    });
    assert_eq!(changes.load(Ordering::Relaxed), 0, "the clone panicked before");
    panics(&|| assert_eq!(map.iter().count(), 0));
    panics(&|| drop(map.get_or_insert_with(&2, || Fragile(alive.object(2)))));
    panics(&|| drop(map.get_or_insert_with(&2, || panic!("by the load"))));
    assert_eq!((map.len().unwrap(), alive.count()), (1, 1));
    assert_eq!(map.get_or_insert_with(&2, || Fragile(alive.object(2))).0.number, 2);
    map.clear().unwrap();
    assert_eq!(alive.count(), 0);
    // A listener that panics has taken its object with it.
    let listener = |_: u64, _: Fragile, _: Cause| panic!("by the listener");
    let builder = ObjectMap::<u64, Fragile>::builder(10);
    let map: ObjectMap<u64, _> =
        ObjectMap::build_reporting(builder, Clock::system(), listener).unwrap();
    map.insert(&1, Fragile(alive.object(1))).unwrap();
    panics(&|| map.insert(&1, Fragile(alive.object(2))).unwrap());
    assert_eq!(map.get(&1).map(|object| object.0.number), Some(2), "it was stored");
    panics(&|| map.remove(&1).unwrap());
    assert_eq!((map.contains(&1), alive.count()), (false, 0));
}

/// A listener that panics in the middle of a call leaves each object either in the map or dropped, on every way.
#[test]
fn listeners_that_panic() {
    static PANICS: AtomicU64 = AtomicU64::new(0);
    let alive = Alive::default();
    let listener = |_: u64, _: Object, _| {
        let left = PANICS.load(Ordering::Relaxed);
        PANICS.store(left.saturating_sub(1), Ordering::Relaxed);
        assert_eq!(left, 0, "told to");
    };
    let builder = ObjectMap::<u64, Object>::builder(2);
    let map: ObjectMap<u64, Object> =
        ObjectMap::build_reporting(builder, Clock::system(), listener).unwrap();
    let panics = |call: &dyn Fn()| {
        PANICS.store(1, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
        assert_eq!(PANICS.load(Ordering::Relaxed), 0);
    };
    let object = || alive.object(1);
    map.insert(&1, object()).unwrap();
    map.insert(&2, object()).unwrap();
    for round in 0..3 {
        let key = 10 * round;
        let is_there = |key| assert_eq!(number(map.get(&key)), Some(1), "{key} was stored");
        panics(&|| map.insert(&(key + 3), object()).unwrap());
        is_there(key + 3);
        panics(&|| drop(map.replace(&(key + 4), object())));
        is_there(key + 4);
        panics(&|| drop(map.compute(&(key + 5), |_| Change::Insert(object(), Expiry::NEVER))));
        is_there(key + 5);
        panics(&|| drop(map.get_or_insert_with(&(key + 6), object)));
        is_there(key + 6);
        panics(&|| drop(map.touch(&(key + 6), Duration::from_millis(50_500))));
        is_there(key + 6);
        assert_eq!((alive.count(), map.len().unwrap()), (2, 2));
    }
    panics(&|| drop(map.take(&26)));
    panics(&|| map.clear().unwrap());
    map.clear().unwrap();
    assert_eq!(alive.count(), 0);
}

/// A key whose bytes are no key is not reported, and its object is dropped.
#[test]
fn keys_that_panic() {
    struct Odd(u64);
    impl Key for Odd {
        fn with_key<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
            self.0.with_key(with)
        }
    }
    impl DecodeKey for Odd {
        type Owned = u64;
        fn from_key(bytes: &[u8]) -> Option<u64> {
            match u64::from_key(bytes)? {
                0 => None,
                1 => panic!("told to"),
                number => Some(number),
            }
        }
    }
    let (alive, reports) = (Alive::default(), Arc::new(AtomicU64::new(0)));
    let reported = reports.clone();
    let listener = move |_: u64, _: Object, _| {
        reported.fetch_add(1, Ordering::Relaxed);
    };
    let builder = ObjectMap::<Odd, Object>::builder(10);
    let map: ObjectMap<Odd, Object> =
        ObjectMap::build_reporting(builder, Clock::system(), listener).unwrap();
    (0..3).for_each(|n| map.insert(&Odd(n), alive.object(n)).unwrap());
    map.remove(&Odd(0)).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| map.remove(&Odd(1)))).is_err());
    map.remove(&Odd(2)).unwrap();
    assert_eq!((alive.count(), reports.load(Ordering::Relaxed)), (0, 1));
}
