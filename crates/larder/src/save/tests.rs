//! Tests of saved caches.

use proptest::prelude::*;

use super::*;
use crate::policy::Policy;

const NOW: Seconds = Seconds(100);

/// In a cache with an order.
fn filled(entries: usize, value_len: usize) -> Cache {
    filled_under(Policy::Fifo, entries, value_len)
}

fn filled_under(policy: Policy, entries: usize, value_len: usize) -> Cache {
    let cache = Cache::builder().budget(4 << 20).policy(policy).build().unwrap();
    let mut writer = cache.writer();
    for number in 0..entries {
        let ttl = [Ttl::FOREVER, Ttl::seconds(number as u32)][number % 2];
        writer.insert(&number.to_le_bytes(), &vec![number as u8; value_len], ttl, NOW).unwrap();
    }
    writer.flush().unwrap();
    cache
}

fn saved(cache: &Cache) -> Vec<u8> {
    let mut bytes = Vec::new();
    cache.save_to(&mut bytes, NOW).unwrap();
    bytes
}

fn load_into(budget: u64, bytes: &[u8], now: Seconds) -> (Cache, Result<Loaded, SaveError>) {
    load_under(Policy::Fifo, budget, bytes, now)
}

fn load_under(
    policy: Policy,
    budget: u64,
    bytes: &[u8],
    now: Seconds,
) -> (Cache, Result<Loaded, SaveError>) {
    let cache = Cache::builder().budget(budget).policy(policy).seed(99).build().unwrap();
    let loaded = cache.load_from(&mut &*bytes, now);
    cache.validate().unwrap();
    (cache, loaded)
}

/// Saved entries are loaded in the same order and with the same expiry times, under another
/// seed; over several chunks, and without entries. Expired entries are skipped.
#[test]
fn what_was_saved_is_loaded() {
    for (entries, value_len) in [(0, 0), (1, 0), (2_000, 20), (700, 1_000)] {
        let cache = filled(entries, value_len);
        let bytes = saved(&cache);
        let (other, loaded) = load_into(4 << 20, &bytes, NOW);
        let there: Vec<_> = cache.iter(NOW).collect();
        assert_eq!(loaded.unwrap().entries as usize, there.len());
        assert_eq!(other.iter(NOW).collect::<Vec<_>>(), there);

        let later = Seconds(NOW.0 + 500);
        let (other, loaded) = load_into(4 << 20, &bytes, later);
        let there: Vec<_> = cache.iter(later).collect();
        let loaded = loaded.unwrap();
        assert_eq!(loaded.entries as usize, there.len());
        assert_eq!(loaded.expired, cache.iter(NOW).count() as u64 - loaded.entries);
        assert_eq!(loaded.written_at, NOW);
        assert_eq!(other.iter(later).collect::<Vec<_>>(), there);
    }
}

/// The partitions have no order, and lose nothing.
#[test]
fn partitions_are_saved_and_loaded() {
    let cache = filled_under(Policy::Partitioned, 2_000, 20);
    let (other, loaded) = load_under(Policy::Partitioned, 4 << 20, &saved(&cache), NOW);
    let by_key = |cache: &Cache| {
        let mut all: Vec<_> = cache.iter(NOW).collect();
        all.sort_by(|a, b| a.key().cmp(b.key()));
        all
    };
    assert_eq!(loaded.unwrap().entries, 2_000);
    assert_eq!(by_key(&other), by_key(&cache));
}

/// A smaller cache keeps the youngest entries, under the policy with an order.
#[test]
fn a_smaller_cache_keeps_the_youngest() {
    let cache = filled(700, 1_100);
    let all: Vec<_> = cache.iter(NOW).collect();
    let (small, loaded) = load_into(900 << 10, &saved(&cache), NOW);
    loaded.unwrap();
    let kept: Vec<_> = small.iter(NOW).collect();
    assert!(!kept.is_empty() && kept.len() < all.len());
    assert_eq!(kept, all[all.len() - kept.len()..]);
    let (_, loaded) = load_into(300 << 10, &saved(&cache), NOW);
    let loaded = loaded.unwrap();
    assert_eq!((loaded.entries, loaded.too_large), (0, all.len() as u64));
}

/// The format is as the header of this file states, byte for byte: a stream written by hand,
/// with a checksum computed from the header's definition, loads.
#[test]
fn the_format_is_fixed() {
    let cache = Cache::builder().budget(1 << 20).build().unwrap();
    let mut writer = cache.writer();
    writer.insert(b"key", b"value", Ttl::seconds(7), NOW).unwrap();
    writer.flush().unwrap();
    let entry = b"\x03\0\x05\x00\x6b\x00\x00\x00keyvalue";
    let mut expected = b"larder\r\n\x02\0\0\0\0\0\0\0\x64\0\0\0".to_vec();
    let crc = crc32fast::hash(&expected);
    expected.extend(crc.to_le_bytes());
    expected.extend(b"\x01\0\0\0\x10\0\0\0");
    let crc = crc32fast::hash(&[b"\0\0\0\0\x01\0\0\0\x10\0\0\0", &entry[..]].concat());
    expected.extend(crc.to_le_bytes());
    expected.extend(entry);
    expected.extend(b"\0\0\0\0\x08\0\0\0");
    let crc = crc32fast::hash(b"\x01\0\0\0\0\0\0\0\x08\0\0\0\x01\0\0\0\0\0\0\0");
    expected.extend(crc.to_le_bytes());
    expected.extend(1u64.to_le_bytes());
    assert_eq!(saved(&cache), expected);
}

/// Versions are saved and loaded: an insert with an older version is still refused, also if the
/// cache has an entry already. A stream of format version 1, without versions, loads.
#[test]
fn versions_are_saved_and_loaded() {
    let cache = Cache::builder().budget(1 << 20).build().unwrap();
    let mut writer = cache.writer();
    for (key, version) in [(b"a", 0), (b"b", 10), (b"c", u64::MAX)] {
        writer.insert_if_newer(key, b"saved", version, Ttl::FOREVER, NOW).unwrap();
    }
    writer.insert(b"d", b"saved", Ttl::FOREVER, NOW).unwrap();
    writer.flush().unwrap();
    let bytes = saved(&cache);
    let (other, loaded) = load_into(1 << 20, &bytes, NOW);
    assert_eq!(loaded.unwrap().entries, 4);
    let held = |cache: &Cache| {
        let entries = cache.iter(NOW);
        let mut held: Vec<_> = entries
            .map(|entry| (entry.key()[0], entry.version(), entry.value().to_vec()))
            .collect();
        held.sort();
        held
    };
    assert_eq!(held(&other), held(&cache));
    let mut writer = other.writer();
    writer.insert_if_newer(b"b", b"older", 5, Ttl::FOREVER, NOW).unwrap();
    writer.insert_if_newer(b"a", b"newer", 11, Ttl::FOREVER, NOW).unwrap();
    writer.flush().unwrap();
    let expected = [
        (b'a', Some(11), b"newer".to_vec()),
        (b'b', Some(10), b"saved".to_vec()),
        (b'c', Some(u64::MAX), b"saved".to_vec()),
        (b'd', None, b"saved".to_vec()),
    ];
    assert_eq!(held(&other), expected);
    other.load_from(&mut &*bytes, NOW).unwrap();
    assert_eq!(held(&other), expected, "what was loaded is older");

    let mut old = head(NOW).to_vec();
    old[8] = 1;
    let crc = crc32fast::hash(&old[..20]).to_le_bytes();
    old[20..].copy_from_slice(&crc);
    let mut chunk = Chunk::new();
    chunk.bytes.extend_from_slice(b"\x03\x05\x00\x6b\x00\x00\x00keyvalue");
    chunk.entries = 1;
    chunk.write(&mut old).unwrap();
    chunk.bytes.extend_from_slice(&1u64.to_le_bytes());
    chunk.write(&mut old).unwrap();
    let (cache, loaded) = load_into(1 << 20, &old, NOW);
    assert_eq!(loaded.unwrap().entries, 1);
    let entry = cache.iter(NOW).next().unwrap();
    assert_eq!((entry.key(), entry.value()), (&b"key"[..], &b"value"[..]));
    assert_eq!((entry.expires(), entry.version()), (Some(Seconds(0x6b)), None));
}

/// Chunks with correct checksums and contents that no cache writes are refused too.
#[test]
fn nonsense_with_good_checksums_is_refused() {
    for (entries, payload) in [
        (2, &b"\x01\0\0\0\0\0\0\0k"[..]),
        (1, b"\x01\0\0\0\0\0\0\0kx"),
        (1, b"\0\0\0\0\0\0\0\0"),
        (1, b"\x01\0\xff\xff\0\0\0\0k"),
        (1, b"\x01"),
        // A version that is missing, and an unknown flag.
        (1, b"\x01\x01\0\0\0\0\0\0vvvvvvv"),
        (1, b"\x01\x02\0\0\0\0\0\0k"),
        (0, b"\x01\0\0\0\0\0\0\0"),
        (0, b""),
    ] {
        let mut bytes = head(NOW).to_vec();
        let mut chunk = Chunk::new();
        chunk.bytes.extend_from_slice(payload);
        chunk.entries = entries;
        chunk.write(&mut bytes).unwrap();
        let (_, loaded) = load_into(1 << 20, &bytes, NOW);
        assert!(matches!(loaded, Err(SaveError::Damaged(Damage { chunk: 0, .. }))), "{payload:?}");
    }
    let mut bytes = head(NOW);
    bytes[8] = 3;
    let crc = crc32fast::hash(&bytes[..20]).to_le_bytes();
    bytes[20..].copy_from_slice(&crc);
    let (_, loaded) = load_into(1 << 20, &bytes, NOW);
    assert!(loaded.unwrap_err().to_string().contains("another version"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// One flipped bit anywhere, or an end anywhere, is refused. Entries loaded before it are
    /// the first of the saved ones.
    #[test]
    fn damage_is_refused(
        at in any::<prop::sample::Index>(), bit in 0u8..8, is_cut in any::<bool>(),
    ) {
        let cache = filled(900, 700);
        let mut bytes = saved(&cache);
        let at = at.index(bytes.len());
        if is_cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << bit;
        }
        let (other, loaded) = load_into(4 << 20, &bytes, NOW);
        let loaded = match loaded {
            Err(SaveError::Damaged(damage)) => damage.loaded,
            Err(SaveError::Foreign(_)) => 0,
            other => panic!("{other:?}"),
        };
        let all: Vec<_> = cache.iter(NOW).collect();
        let there: Vec<_> = other.iter(NOW).collect();
        prop_assert_eq!(there.len() as u64, loaded);
        prop_assert_eq!(&there[..], &all[..there.len()]);
    }

    /// No bytes make a load panic, or use more memory than a chunk.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400), chunk in any::<bool>()) {
        let bytes = if chunk { [&head(NOW)[..], &bytes].concat() } else { bytes };
        let (_, loaded) = load_into(256 << 10, &bytes, NOW);
        prop_assert!(loaded.is_err());
    }
}
