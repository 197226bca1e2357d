//! The contract of each operation, one at a time, where the model test would only state a
//! difference.

mod common;

use common::key_of;
use larder::{Cache, Clock, Entry, Error, Map, Seconds, SyncMode, Ticks, Ttl};

const NOW: Seconds = Seconds(100);

fn small() -> Cache {
    Cache::builder().budget(1 << 20).readers_max(2).build().unwrap()
}

/// Lookups of a map that find no free reader are counted, too.
#[test]
fn lookups_without_a_reader() {
    let clock = Clock::manual(NOW);
    let builder = Cache::builder().budget(1 << 20).readers_max(1);
    let map: Map<u64, u64> = Map::build(builder, clock.clone()).unwrap();
    map.insert(&1, 10).unwrap();
    map.insert_ttl(&2, 20, Ttl::seconds(5)).unwrap();
    clock.set(Seconds(105));
    let stats = || {
        let stats = map.cache().stats().unwrap();
        (stats.hits, stats.misses, stats.expired_misses)
    };
    let before = stats();
    map.with(&1, |_| {
        assert_eq!((map.get(&1), map.get(&2), map.get(&3)), (Some(10), None, None));
        let mut found = Vec::new();
        map.get_many(&[1, 1, 3], |_, value| found.push(value));
        assert_eq!(found, [Some(10), Some(10), None]);
    });
    let found = stats();
    assert_eq!((found.0 - before.0, found.1 - before.1, found.2 - before.2), (3, 3, 1));
}

/// An expired entry is a miss for `get`, a marked hit for `get_stale` within the window, and a miss
/// after it; one that never expires stays.
#[test]
fn stale_window() {
    let cache = Cache::builder().budget(1 << 20).stale(Seconds(30)).build().unwrap();
    let mut writer = cache.writer();
    writer.insert(b"a", b"1", Ttl::seconds(10), NOW).unwrap();
    writer.insert(b"b", b"2", Ttl::FOREVER, NOW).unwrap();
    writer.flush().unwrap();
    let mut reader = cache.reader().unwrap();
    let at = |second: u32| Seconds(100 + second);
    let fresh = reader.get(b"a", at(9)).unwrap();
    assert_eq!((fresh.seconds_left(at(9)), fresh.is_stale(at(9))), (Some(1), false));
    assert!(reader.get(b"a", at(10)).is_none());
    for second in [10, 39] {
        let stale = reader.get_stale(b"a", at(second)).unwrap();
        assert_eq!((stale.seconds_left(at(second)), stale.is_stale(at(second))), (Some(0), true));
    }
    assert!(reader.get_stale(b"a", at(40)).is_none());
    let forever = reader.get_stale(b"b", Seconds(u32::MAX)).unwrap();
    assert_eq!((forever.seconds_left(NOW), forever.is_stale(Seconds(u32::MAX))), (None, false));
    reader.sync();
    let stats = cache.stats().unwrap();
    assert_eq!((stats.hits, stats.stale_hits), (4, 2));
    assert_eq!((stats.misses, stats.expired_misses), (2, 2));
    assert_eq!((stats.readers[0].hits, stats.readers[0].misses), (4, 2));
}

/// Without a window, `get_stale` is `get`.
#[test]
fn no_stale_window() {
    let cache = small();
    let mut writer = cache.writer();
    writer.insert(b"a", b"1", Ttl::seconds(10), NOW).unwrap();
    writer.flush().unwrap();
    let reader = cache.reader().unwrap();
    assert!(reader.get_stale(b"a", Seconds(109)).is_some());
    assert!(reader.get_stale(b"a", Seconds(110)).is_none());
}

/// A conditional insert keeps a live entry, and stores if there is none or it has expired, even in
/// one batch.
#[test]
fn if_absent() {
    let cache = small();
    let mut writer = cache.writer();
    writer.insert_if_absent(b"a", b"1", Ttl::seconds(10), NOW).unwrap();
    writer.insert_if_absent(b"a", b"2", Ttl::seconds(10), NOW).unwrap();
    writer.flush().unwrap();
    let mut reader = cache.reader().unwrap();
    assert_eq!(reader.get(b"a", NOW).as_deref(), Some(&b"1"[..]));
    writer.insert_if_absent(b"a", b"3", Ttl::seconds(10), Seconds(110)).unwrap();
    writer.flush().unwrap();
    reader.sync();
    assert_eq!(reader.get(b"a", Seconds(110)).as_deref(), Some(&b"3"[..]));
    assert_eq!(cache.stats().unwrap().refused, 1);
    cache.validate().unwrap();
}

/// The greater version stays, in whichever order they come; equal ones change nothing; a plain
/// insert replaces any, and has no version.
#[test]
fn if_newer() {
    let cache = small();
    let mut writer = cache.writer();
    let mut reader = cache.reader().unwrap();
    let mut seen = |writer: &mut larder::Writer| {
        writer.flush().unwrap();
        reader.sync();
        let entry = reader.get(b"a", NOW).unwrap();
        (entry[0], entry.len(), entry.version())
    };
    let ttl = Ttl::FOREVER;
    writer.insert_if_newer(b"a", b"5", 5, ttl, NOW).unwrap();
    writer.insert_if_newer(b"a", b"4", 4, ttl, NOW).unwrap();
    writer.insert_if_newer(b"a", b"other", 5, ttl, NOW).unwrap();
    assert_eq!(seen(&mut writer), (b'5', 1, Some(5)));
    writer.insert_if_newer(b"a", b"later", u64::MAX, ttl, NOW).unwrap();
    assert_eq!(seen(&mut writer), (b'l', 5, Some(u64::MAX)));
    writer.insert(b"a", b"plain", ttl, NOW).unwrap();
    assert_eq!(seen(&mut writer), (b'p', 5, None));
    writer.insert_if_newer(b"a", b"zero", 0, ttl, NOW).unwrap();
    assert_eq!(seen(&mut writer), (b'z', 4, Some(0)));
    assert_eq!(cache.iter(NOW).next().unwrap().version(), Some(0));
    assert_eq!(cache.stats().unwrap().refused, 2);
    // The longest value has room for its version.
    let longest = cache.value_bytes_max(1);
    let too_long = writer.insert_if_newer(b"a", &vec![1; longest + 1], 1, ttl, NOW);
    assert!(matches!(too_long, Err(Error::ValueTooLarge { .. })));
    cache.validate().unwrap();
}

/// A hit replaces the buffer's contents, a miss does not.
#[test]
fn get_into() {
    let cache = small();
    let mut writer = cache.writer();
    writer.insert(b"a", b"value", Ttl::FOREVER, NOW).unwrap();
    writer.flush().unwrap();
    let reader = cache.reader().unwrap();
    let mut buf = b"old".to_vec();
    assert!(!reader.get_into(b"b", NOW, &mut buf));
    assert_eq!(buf, b"old");
    assert!(reader.get_into(b"a", NOW, &mut buf));
    assert_eq!(buf, b"value");
}

/// An immediate reader shows what was published without a call, also while it holds an entry that
/// was replaced; it releases that entry only when it syncs.
#[test]
fn immediate() {
    let cache = Cache::builder().budget(1 << 20).sync(SyncMode::Immediate).build().unwrap();
    let mut writer = cache.writer();
    let mut reader = cache.reader().unwrap();
    writer.insert(b"a", b"1", Ttl::FOREVER, NOW).unwrap();
    assert!(reader.get(b"a", NOW).is_none());
    writer.flush().unwrap();
    let old = reader.get(b"a", NOW).unwrap();
    writer.insert(b"a", b"2", Ttl::FOREVER, NOW).unwrap();
    writer.flush().unwrap();
    let new = reader.get(b"a", NOW).unwrap();
    assert_eq!((&*old, &*new), (&b"1"[..], &b"2"[..]));
    assert!(cache.stats().unwrap().limbo_slots > 0);
    assert!(reader.sync_if_due(Ticks(0)));
    assert_eq!(cache.stats().unwrap().limbo_slots, 0);
}

/// A periodic reader syncs at the first call, then once per period, and earlier when it is far
/// behind.
#[test]
fn periodic() {
    let period = SyncMode::Periodic(Ticks::ms(10));
    let cache = Cache::builder().budget(1 << 20).sync(period).build().unwrap();
    let mut writer = cache.writer();
    let mut reader = cache.reader().unwrap();
    let synced = [0, 1, 9_999, 10_000, 10_001, 19_999, 35_000, 44_999, 45_000]
        .map(|us| reader.sync_if_due(Ticks::us(us)));
    assert_eq!(synced, [true, false, false, true, false, false, true, false, true]);
    let far = cache.stats().unwrap().log_records / 2 + 1;
    for number in 0..far {
        writer.insert(&key_of(number), b"v", Ttl::FOREVER, NOW).unwrap();
    }
    writer.flush().unwrap();
    assert!(reader.sync_if_due(Ticks::us(45_001)));
    assert!(!reader.sync_if_due(Ticks::us(45_001)));
}

/// Lookups by hash find what lookups by key find, in batches of any length.
#[test]
fn hashed_forms() {
    let cache = small();
    let mut writer = cache.writer();
    for number in 0..100 {
        writer.insert(&key_of(number), &number.to_be_bytes(), Ttl::FOREVER, NOW).unwrap();
    }
    writer.flush().unwrap();
    let reader = cache.reader().unwrap();
    for count in [0, 1, 15, 16, 17, 50, 200] {
        let keys: Vec<_> = (0..count).map(key_of).collect();
        let hashes: Vec<_> = keys.iter().map(|key| reader.hash(key)).collect();
        let mut found = Vec::new();
        reader.get_many_hashed(&hashes, &keys, NOW, |i, entry: Option<Entry<'_>>| {
            assert_eq!(i, found.len());
            found.push(entry.is_some());
        });
        let expected: Vec<_> = (0..count).map(|number| number < 100).collect();
        assert_eq!(found, expected);
    }
}
