//! Times to live to the millisecond, and times to idle, on a clock that the tests set.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use larder::{Cache, Cause, Change, Clock, Error, Expiry, Map, Seconds, Ttl};
use larder_testkit::wait::ready;
use proptest::prelude::*;

fn map() -> (Map<str, u64>, Clock) {
    let clock = Clock::manual(Seconds(1_000_000));
    (Map::build(builder(), clock.clone()).unwrap(), clock)
}

fn builder() -> larder::Builder {
    Cache::builder().budget(1 << 20).readers_max(2)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Every way in stores a value that lives for 250 ms, and every way out shows it that long.
#[test]
fn milliseconds_on_every_way() {
    let (map, clock) = map();
    let long_key = "k".repeat(300);
    let long_key = long_key.as_str();
    let all = [
        "plain",
        "many",
        "load",
        "fallible",
        "async",
        "fallible async",
        "compute",
        "touch",
        long_key,
    ];
    let ttl = ms(250);
    clock.advance(ms(900));
    map.insert_ttl("plain", 1, ttl).unwrap();
    map.insert_ttl(long_key, 1, ttl).unwrap();
    map.insert_many([("many", 1)], ttl).unwrap();
    assert_eq!(map.get_or_insert_ttl_with("load", || (1, ttl)), 1);
    assert_eq!(map.try_get_or_insert_ttl_with("fallible", || Ok::<_, ()>((1, ttl))), Ok(1));
    assert_eq!(ready(map.get_or_insert_ttl_async("async", async { (1, ttl) })), 1);
    let load = async { Ok::<_, ()>((1, ttl)) };
    assert_eq!(ready(map.try_get_or_insert_ttl_async("fallible async", load)), Ok(1));
    assert_eq!(map.compute("compute", |_| Change::Insert(1, ttl.into())).unwrap(), None);
    map.insert("touch", 1).unwrap();
    assert!(map.touch("touch", ttl).unwrap());
    let there = |key: &str| {
        let mut found = vec![map.get(key), map.with(key, |bytes| u64::from(bytes[0]))];
        map.get_many(&[key, "none"], |at, value| {
            if at == 0 {
                found.push(value)
            }
        });
        found.push(map.contains(key).then_some(1));
        found.push(map.get_with_expiry(key).unwrap().map(|(value, _)| value));
        found.push(map.iter().find(|(found, _)| found == key).map(|(_, value)| value));
        found.push(map.compute(key, |_| Change::Keep).unwrap());
        assert!(found.iter().all(|value| value == &found[0]), "{key}: {found:?}");
        found[0].is_some()
    };
    for key in all {
        assert!(there(key), "{key}");
    }
    clock.advance(ms(249));
    for key in all {
        assert!(there(key), "{key}");
    }
    clock.advance(ms(1));
    for key in all {
        assert!(!there(key), "{key}");
    }
    // What is dead is not kept, not touched, not counted by a walk, and may be loaded again.
    assert_eq!(map.retain(|_, _| false).unwrap(), 0);
    assert!(!map.touch("plain", Expiry::NEVER).unwrap());
    assert_eq!(map.get_or_insert_with("plain", || 2), 2);
    let many = map.compute("many", |there| {
        assert_eq!(there, None);
        Change::Update(3)
    });
    assert_eq!(many.unwrap(), None);
    assert_eq!((map.get("plain"), map.get("many")), (Some(2), Some(3)));
    clock.advance(ms(10_000_000));
    assert_eq!((map.get("plain"), map.get("many")), (Some(2), Some(3)), "they have no end");
}

/// A change that keeps the expiry keeps it to the millisecond; whole seconds are as they always were.
#[test]
fn an_update_keeps_the_deadline() {
    let (map, clock) = map();
    map.insert_ttl("a", 1, ms(1700)).unwrap();
    assert_eq!(map.compute("a", |_| Change::Update(2)).unwrap(), Some(1));
    assert_eq!(map.get_with_expiry("a").unwrap(), Some((2, Some(Seconds(1_000_002)))));
    clock.advance(ms(1699));
    assert_eq!(map.get("a"), Some(2));
    clock.advance(ms(1));
    assert_eq!(map.get("a"), None);
    map.insert_ttl("b", 1, Ttl::seconds(1)).unwrap();
    clock.advance(ms(299));
    assert_eq!(map.get("b"), Some(1));
    clock.advance(ms(1));
    assert_eq!(map.get("b"), None, "the clock's second is over");
}

/// Reads of every kind let a value with a time to idle stay; looks that are no reads do not.
#[test]
fn reads_keep_a_value() {
    type Read = fn(&Map<str, u64>) -> bool;
    let reads: [(&str, Read); 5] = [
        ("get", |map| map.get("a").is_some()),
        ("with", |map| map.with("a", |_| ()).is_some()),
        ("get_many", |map| {
            let mut is_found = false;
            map.get_many(&["x", "a", "y"], |at, value| is_found |= at == 1 && value.is_some());
            is_found
        }),
        ("load", |map| map.get_or_insert_with("a", || 0) == 1),
        ("async", |map| ready(map.get_or_insert_async("a", async { 0 })) == 1),
    ];
    let looks: [(&str, Read); 4] = [
        ("contains", |map| map.contains("a")),
        ("iter", |map| map.iter().count() == 1),
        ("compute", |map| map.compute("a", |_| Change::Keep).unwrap().is_some()),
        ("get_with_expiry", |map| map.get_with_expiry("a").unwrap().is_some()),
    ];
    for (name, read) in reads {
        let (map, clock) = map();
        map.insert_ttl("a", 1, Expiry::idle(ms(10_000))).unwrap();
        for _ in 0..20 {
            clock.advance(ms(9_999));
            assert!(read(&map), "{name}");
        }
        clock.advance(ms(13_000));
        assert_eq!(map.get("a"), None, "{name}");
    }
    for (name, look) in looks {
        let (map, clock) = map();
        map.insert_ttl("a", 1, Expiry::idle(ms(10_000))).unwrap();
        clock.advance(ms(9_000));
        assert!(look(&map), "{name}");
        clock.advance(ms(4_000));
        assert!(!look(&map), "{name}");
    }
}

/// Neither the reads of a value nor those of an earlier one prolong a time to live.
#[test]
fn reads_do_not_prolong_a_time_to_live() {
    let (map, clock) = map();
    map.insert_ttl("a", 1, Expiry::idle(ms(10_000)).and(ms(25_500))).unwrap();
    for _ in 0..5 {
        clock.advance(ms(5_000));
        assert_eq!(map.get("a"), Some(1));
    }
    // For the engine's own readers, too (invariant 1 of `expiry`).
    let (_, expires) = map.get_with_expiry("a").unwrap().unwrap();
    assert_eq!(expires, Some(Seconds(1_000_026)));
    clock.advance(ms(499));
    assert_eq!(map.get("a"), Some(1));
    clock.advance(ms(1));
    assert_eq!(map.get("a"), None);
    // The closure replaces what it reads: the read then must not prolong the new value.
    map.insert_ttl("b", 1, Expiry::idle(ms(1_000_000))).unwrap();
    clock.advance(ms(900_000));
    map.with("b", |_| map.insert_ttl("b", 2, Ttl::seconds(3)).unwrap());
    clock.advance(ms(2_000));
    assert_eq!(map.get("b"), Some(2));
    clock.advance(ms(1_500));
    assert_eq!(map.get("b"), None);
}

/// A read that ends after the entry has expired does not bring it back.
#[test]
fn what_has_expired_stays_so() {
    let (map, clock) = map();
    map.insert_ttl("a", 1, Expiry::idle(ms(10_000))).unwrap();
    clock.advance(ms(11_000));
    assert!(map.with("a", |_| clock.advance(ms(2_000))).is_some());
    assert_eq!(map.get("a"), None);
}

/// Changes on condition see through the prolonging of reads, within their closures and on other
/// threads (invariant 3 of `expiry`).
#[test]
fn reads_disturb_no_change() {
    let (map, clock) = map();
    for key in ["a", "b", "c"] {
        map.insert_ttl(key, 1, Expiry::idle(ms(3_000)).and(ms(100_000))).unwrap();
    }
    let mut calls = 0;
    let before = map.compute("a", |there| {
        calls += 1;
        clock.advance(ms(1_000));
        assert_eq!(map.get("a"), Some(1));
        there.map_or(Change::Keep, |value| Change::Update(value + 1))
    });
    assert_eq!((before.unwrap(), calls, map.get("a")), (Some(1), 1, Some(2)));
    clock.advance(ms(3_000));
    assert_eq!(map.get("a"), Some(2), "the update began its time to idle");
    map.insert_ttl("b", 1, Expiry::idle(ms(3_000))).unwrap();
    let kept = map.retain(|key, _| {
        clock.advance(ms(1_000));
        map.get(key.as_str());
        false
    });
    assert_eq!((kept.unwrap(), map.iter().count()), (2, 0), "c has expired");
}

/// What is inserted or read while expired values are removed stays, though it be the same value with the same time
/// to idle.
#[test]
fn what_is_fresh_is_not_removed() {
    static MAP: OnceLock<Map<str, u64>> = OnceLock::new();
    let clock = Clock::manual(Seconds(1_000_000));
    let insert = |key| MAP.get().unwrap().insert_ttl(key, 1, Expiry::idle(ms(5_000))).unwrap();
    // Both again, when the first is removed.
    let builder = Map::<str, u64>::builder().budget(1 << 20).on_removed(move |evicted| {
        if evicted.cause == Cause::Removed {
            ["a", "b"].into_iter().for_each(insert);
        }
    });
    let map = MAP.get_or_init(|| Map::build(builder, clock.clone()).unwrap());
    ["a", "b"].into_iter().for_each(insert);
    assert_eq!(map.remove_expired().unwrap(), 0);
    clock.advance(ms(20_000));
    assert_eq!((map.get("a"), map.get("b")), (None, None));
    assert_eq!(map.remove_expired().unwrap(), 1);
    assert_eq!((map.get("a"), map.get("b"), map.len().unwrap()), (Some(1), Some(1), 2));
}

/// A touch in whole seconds never changes when an entry with a term ends, only that of `Map` does.
#[test]
fn terms_are_not_touched() {
    let (map, clock) = map();
    let mut writer = map.cache().writer();
    map.insert_ttl("exact", 1, ms(2_500)).unwrap();
    map.insert_ttl("idle", 1, Expiry::idle(ms(2_000))).unwrap();
    map.insert_ttl("whole", 1, Ttl::seconds(2)).unwrap();
    for key in ["exact", "idle", "whole"] {
        writer.touch(key.as_bytes(), Ttl::FOREVER, map.now()).unwrap();
    }
    writer.flush().unwrap();
    let second = |key| map.get_with_expiry(key).unwrap().unwrap().1;
    assert_eq!((second("exact"), second("whole")), (Some(Seconds(1_000_003)), None));
    // A term is no version: any is newer than it.
    map.insert_ttl("versioned", 1, ms(60_000)).unwrap();
    assert!(map.cache().iter(map.now()).all(|entry| entry.version().is_none()));
    writer.insert_if_newer(b"versioned", &7u64.to_le_bytes(), 1, Ttl::FOREVER, map.now()).unwrap();
    writer.flush().unwrap();
    assert_eq!(map.get("versioned"), Some(7));
    // A read would have begun its time to idle again.
    clock.advance(ms(6_000));
    assert_eq!((map.get("idle"), map.get("whole")), (None, Some(1)));
}

/// Reads of one second write at most once, and those of a long time to idle a sixteenth of it apart.
#[test]
fn few_reads_write() {
    let (map, clock) = map();
    let written = Arc::new(AtomicU64::new(0));
    map.insert_ttl("a", 1, Expiry::idle(ms(1_600_000))).unwrap();
    let mut expires = map.get_with_expiry("a").unwrap().unwrap().1;
    for _ in 0..1600 {
        clock.advance(ms(1000));
        assert_eq!(map.get("a"), Some(1));
        let now_expires = map.get_with_expiry("a").unwrap().unwrap().1;
        written.fetch_add(u64::from(now_expires != expires), Ordering::Relaxed);
        expires = now_expires;
    }
    let written = written.load(Ordering::Relaxed);
    assert!((10..=16).contains(&written), "{written}");
}

/// A touch changes the kind of expiry in every direction, and tells the listener only when it stores
/// the value again.
#[test]
fn touches_change_the_kind() {
    let causes = Arc::new(Mutex::new(Vec::new()));
    let heard = causes.clone();
    let clock = Clock::manual(Seconds(50));
    let builder = builder().on_removed(move |evicted| heard.lock().unwrap().push(evicted.cause));
    let map: Map<str, u64> = Map::build(builder, clock.clone()).unwrap();
    let kinds: [Expiry; 4] =
        [Expiry::NEVER, Ttl::seconds(3).into(), ms(2500).into(), Expiry::idle(ms(1000))];
    for from in kinds {
        for to in kinds {
            map.insert_ttl("a", 9, from).unwrap();
            causes.lock().unwrap().clear();
            assert!(map.touch("a", to).unwrap());
            let is_plain = |kind: Expiry| kind == kinds[0] || kind == kinds[1];
            let is_silent = is_plain(from) && is_plain(to);
            let expected = if is_silent { vec![] } else { vec![Cause::Replaced] };
            assert_eq!(*causes.lock().unwrap(), expected, "{from:?} to {to:?}");
            clock.advance(ms(2499));
            let is_there = map.contains("a");
            assert!(is_there, "{from:?} to {to:?}");
            clock.advance(ms(2000));
            assert_eq!(map.contains("a"), to == Expiry::NEVER, "{from:?} to {to:?}");
        }
    }
}

/// A saved map keeps deadlines and times to idle.
#[test]
fn saves_keep_terms() {
    let (map, clock) = map();
    map.insert_ttl("exact", 1, ms(5_300)).unwrap();
    map.insert_ttl("idle", 2, Expiry::idle(ms(4_000))).unwrap();
    let mut file = Vec::new();
    map.cache().save_to(&mut file, map.now()).unwrap();
    clock.advance(ms(3_000));
    let restarted: Map<str, u64> = Map::build(builder(), clock.clone()).unwrap();
    assert_eq!(restarted.load_from(&mut &file[..]).unwrap().entries, 2);
    assert_eq!((restarted.get("exact"), restarted.get("idle")), (Some(1), Some(2)));
    // A file replaces what is there, with the same term or another.
    for (key, value, expiry) in
        [("exact", 8, ms(60_000).into()), ("idle", 9, Expiry::idle(ms(4_000)))]
    {
        restarted.insert_ttl(key, value, expiry).unwrap();
    }
    restarted.load_from(&mut &file[..]).unwrap();
    assert_eq!((restarted.get("exact"), restarted.get("idle")), (Some(1), Some(2)));
    clock.advance(ms(2_300));
    assert_eq!((restarted.get("exact"), restarted.get("idle")), (None, Some(2)));
    clock.advance(ms(4_000));
    assert_eq!(restarted.get("idle"), Some(2));
}

/// A term takes 8 bytes, of the largest value, too.
#[test]
fn a_term_counts() {
    let clock = Clock::manual(Seconds(5));
    let map: Map<str, Vec<u8>> = Map::build(builder().shards(1), clock).unwrap();
    let room = |result: Result<(), Error>| match result {
        Err(Error::ValueTooLarge { bytes_max, .. }) => bytes_max,
        other => panic!("{other:?}"),
    };
    let bytes_max = room(map.insert("k", vec![0; 40_000]));
    map.insert("k", vec![1; bytes_max]).unwrap();
    assert_eq!(room(map.insert_ttl("k", vec![2; bytes_max - 7], ms(1))), bytes_max - 8);
    assert_eq!(room(map.touch("k", ms(1)).map(drop)), bytes_max - 8);
    assert_eq!(map.get("k"), Some(vec![1; bytes_max]), "nothing has changed");
    map.insert_ttl("k", vec![2; bytes_max - 8], ms(1)).unwrap();
    assert_eq!(map.get("k"), Some(vec![2; bytes_max - 8]));
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u8, Option<Life>, Option<u32>),
    Touch(u8, Option<Life>, Option<u32>),
    Update(u8),
    Get(u8),
    GetMany,
    Advance(u64),
}

#[derive(Debug, Clone, Copy)]
enum Life {
    Whole(u32),
    Exact(u64),
}

fn expiry(life: Option<Life>, idle_s: Option<u32>) -> Expiry {
    let live = match life {
        None => Expiry::NEVER,
        Some(Life::Whole(seconds)) => Ttl::seconds(seconds).into(),
        Some(Life::Exact(exact)) => ms(exact).into(),
    };
    idle_s.map_or(live, |idle_s| live.and(Expiry::idle(Duration::from_secs(idle_s.into()))))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let life = || {
        prop::option::of(prop_oneof![
            (0u32..90).prop_map(Life::Whole),
            (0u64..90_000).prop_map(Life::Exact)
        ])
    };
    let idle = || prop::option::of(1u32..60);
    let step = prop_oneof![
        3 => (0u8..4, life(), idle()).prop_map(|(key, life, idle)| Step::Insert(key, life, idle)),
        1 => (0u8..4, life(), idle()).prop_map(|(key, life, idle)| Step::Touch(key, life, idle)),
        1 => (0u8..4).prop_map(Step::Update),
        6 => (0u8..4).prop_map(Step::Get),
        2 => Just(Step::GetMany),
        6 => prop_oneof![0u64..1_200, 0u64..30_000].prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 1..120)
}

/// A value of the model: when it certainly ends, and how long it may be unread.
#[derive(Debug, Clone, Copy)]
struct Modelled {
    value: u64,
    deadline_ms: Option<u64>,
    idle_ms: Option<u64>,
    read_ms: u64,
}

impl Modelled {
    fn new(value: u64, now_ms: u64, life: Option<Life>, idle_s: Option<u32>) -> Self {
        let deadline_ms = life.map(|life| match life {
            Life::Whole(seconds) => (now_ms / 1000 + u64::from(seconds)) * 1000,
            Life::Exact(exact) => now_ms + exact,
        });
        let idle_ms = idle_s.map(|idle_s| u64::from(idle_s) * 1000);
        Modelled { value, deadline_ms, idle_ms, read_ms: now_ms }
    }

    /// Whether it is there; `None` where both are right.
    fn is_there(&self, now_ms: u64) -> Option<bool> {
        if self.deadline_ms.is_some_and(|deadline| now_ms >= deadline) {
            return Some(false);
        }
        let Some(idle_ms) = self.idle_ms else { return Some(true) };
        let unread_ms = now_ms - self.read_ms;
        let is_certain = unread_ms <= idle_ms || unread_ms > idle_ms / 16 * 17 + 3_000;
        is_certain.then_some(unread_ms <= idle_ms)
    }
}

/// What a map shows, compared with what it must show; the model takes over what it may choose.
fn compare(
    model: &mut HashMap<u8, Modelled>,
    key: u8,
    now_ms: u64,
    found: Option<u64>,
    is_read: bool,
) -> Result<(), TestCaseError> {
    let Some(there) = model.get_mut(&key) else {
        prop_assert_eq!(found, None, "{}", key);
        return Ok(());
    };
    if let Some(is_there) = there.is_there(now_ms) {
        prop_assert_eq!(
            found,
            is_there.then_some(there.value),
            "{}: {:?} at {}",
            key,
            there,
            now_ms
        );
    }
    match found {
        Some(value) => {
            prop_assert_eq!(value, there.value);
            if is_read {
                there.read_ms = now_ms;
            }
        }
        None => _ = model.remove(&key),
    }
    Ok(())
}

proptest! {
    /// Whatever is stored, touched, changed and read: a value is there until it may end, and not after
    /// it must.
    #[test]
    fn values_end_in_time(steps in steps(), offset_ms in 0u64..1000) {
        let clock = Clock::manual(Seconds(77));
        clock.advance(ms(offset_ms));
        let mut now_ms = 77_000 + offset_ms;
        let map: Map<u8, u64> = Map::build(builder(), clock.clone()).unwrap();
        let mut model: HashMap<u8, Modelled> = HashMap::new();
        for (value, step) in (0..).zip(steps) {
            match step {
                Step::Insert(key, life, idle) => {
                    map.insert_ttl(&key, value, expiry(life, idle)).unwrap();
                    model.insert(key, Modelled::new(value, now_ms, life, idle));
                }
                Step::Touch(key, life, idle) => {
                    let is_there = map.touch(&key, expiry(life, idle)).unwrap();
                    let stays = model.get(&key).map(|there| there.value).filter(|_| is_there);
                    compare(&mut model, key, now_ms, stays, false)?;
                    if let Some(value) = stays {
                        model.insert(key, Modelled::new(value, now_ms, life, idle));
                    }
                }
                Step::Update(key) => {
                    let found = map.compute(&key, |there| match there {
                        Some(_) => Change::Update(value),
                        None => Change::Keep,
                    }).unwrap();
                    compare(&mut model, key, now_ms, found, false)?;
                    // A new value begins to be idle now.
                    model.entry(key).and_modify(|there| (there.value, there.read_ms) = (value, now_ms));
                }
                Step::Get(key) => compare(&mut model, key, now_ms, map.get(&key), true)?,
                Step::GetMany => {
                    let mut found = Vec::new();
                    map.get_many(&[3, 1, 0, 2], |_, value| found.push(value));
                    for (key, found) in [3, 1, 0, 2].into_iter().zip(found) {
                        compare(&mut model, key, now_ms, found, true)?;
                    }
                }
                Step::Advance(by) => {
                    clock.advance(ms(by));
                    now_ms += by;
                }
            }
        }
        map.cache().validate().unwrap();
    }
}
