//! What goes wrong goes wrong in the open: a stuck proxy stalls the writer by name and nobody else, and
//! everything works again when it moves.

mod common;

use common::key_of;
use larder::{Cache, Error, Policy, Proxy, Seconds, Ttl, Writer};

const NOW: Seconds = Seconds(1);

/// Inserts until the writer is stalled; how many inserts it took.
fn insert_until_stalled(writer: &mut Writer, stuck: usize, value: &[u8]) -> u64 {
    for number in 0..10_000_000 {
        match writer.insert(&key_of(number), value, Ttl::FOREVER, NOW) {
            Ok(()) => {}
            Err(Error::Stalled { proxy, behind }) => {
                assert_eq!(proxy, stuck);
                assert!(behind > 0);
                return number;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("a stuck proxy must stall the writer in the end");
}

/// A proxy that never syncs: others read on, its own entry stays readable, the writer is told its name;
/// once it syncs, parks or leaves, the next insert succeeds.
#[test]
fn stuck_proxy() {
    let cures: [fn(Proxy) -> Option<Proxy>; 3] = [
        |mut proxy| {
            proxy.sync();
            Some(proxy)
        },
        |proxy| proxy.park().unpark().ok(),
        |_| None,
    ];
    for value_len in [10, 100, 1500] {
        for cure in cures {
            // In this order it is known who is still there in the end.
            let builder = Cache::builder().policy(Policy::Fifo);
            let cache = builder.budget(1 << 20).proxies_max(2).build().unwrap();
            let mut writer = cache.writer();
            let value = vec![7; value_len];
            writer.insert(b"first", b"value", Ttl::FOREVER, NOW).unwrap();
            writer.flush().unwrap();
            let mut other = cache.proxy().unwrap();
            let stuck = cache.proxy().unwrap();
            let held = stuck.get(b"first", NOW).unwrap();

            let mut inserted = 0;
            while inserted < 2000 {
                // The other one syncs all along; it is never named.
                other.sync();
                match writer.insert(&key_of(inserted), &value, Ttl::FOREVER, NOW) {
                    Ok(()) => inserted += 1,
                    Err(Error::Stalled { proxy, .. }) if proxy == stuck.number() => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let took = insert_until_stalled(&mut writer, stuck.number(), &value);
            assert!(inserted + took > 0);
            cache.validate().unwrap();
            let before = cache.stats().unwrap();
            for _ in 0..3 {
                assert!(writer.insert(b"another", &value, Ttl::FOREVER, NOW).is_err());
            }
            let after = cache.stats().unwrap();
            assert_eq!(
                (before.entries, before.evicted),
                (after.entries, after.evicted),
                "nothing changed"
            );
            assert_eq!(&*held, b"value", "what a proxy holds stays as it is");
            other.sync();
            assert_eq!(other.get(&key_of(0), NOW).as_deref(), Some(&value[..]));

            let cured = cure(stuck);
            writer.insert(b"another", &value, Ttl::FOREVER, NOW).unwrap();
            writer.flush().unwrap();
            other.sync();
            assert!(other.get(b"another", NOW).is_some());
            cache.validate().unwrap();
            drop(cured);
        }
    }
}

/// Built for it, a batch of operations goes in while a proxy stays where it is, on a full cache and a small
/// budget, though each evicts.
#[test]
fn lag_is_reserved() {
    const BATCH: u64 = 1000;
    let cache = Cache::builder()
        .budget(1 << 20)
        .proxies_max(1)
        .lag_operations(BATCH as usize)
        .build()
        .unwrap();
    let mut proxy = cache.proxy().unwrap();
    let mut writer = cache.writer();
    for batch in 0..40 {
        for number in batch * BATCH..(batch + 1) * BATCH {
            let value = vec![1; 60 + number as usize % 80];
            writer.insert(&key_of(number), &value, Ttl::FOREVER, NOW).unwrap();
        }
        let position = writer.flush().unwrap();
        assert_eq!(proxy.sync_to(position), position);
    }
    assert!(cache.stats().unwrap().evicted > 30 * BATCH);
    cache.validate().unwrap();
}

/// A forgotten proxy stalls the writer, never frees what it held, and shows in the statistics.
#[test]
fn forgotten_proxy() {
    let cache = Cache::builder().budget(1 << 20).proxies_max(1).build().unwrap();
    std::mem::forget(cache.proxy().unwrap());
    let mut writer = cache.writer();
    insert_until_stalled(&mut writer, 0, b"value");
    assert!(cache.stats().unwrap().proxies[0].behind.unwrap() > 0);
    assert!(matches!(cache.proxy(), Err(Error::ProxiesExhausted)));
    cache.validate().unwrap();
}

/// A hook that panics while it builds a value costs nothing: the slot goes back, the cache works on.
#[test]
fn panicking_hook() {
    let cache = Cache::builder().budget(1 << 20).build().unwrap();
    let mut writer = cache.writer();
    for _ in 0..10_000 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            writer.insert_with(b"key", 500, Ttl::FOREVER, NOW, |_| {
                std::panic::resume_unwind(Box::new(()))
            })
        }));
        assert!(result.is_err());
    }
    writer.insert(b"key", b"value", Ttl::FOREVER, NOW).unwrap();
    drop(writer);
    cache.validate().unwrap();
    let stats = cache.stats().unwrap();
    let used: u32 = stats.classes.iter().map(|class| class.slots_used).sum();
    assert_eq!((stats.entries, used), (1, 1));
}

/// Keys and values out of range are refused with what would do, at every budget; the largest go in and out.
#[test]
fn ranges() {
    for budget in [1 << 20, 64 << 20] {
        let cache = Cache::builder().budget(budget).proxies_max(1).build().unwrap();
        let mut proxy = cache.proxy().unwrap();
        let mut writer = cache.writer();
        let key = [9; 255];
        let bytes_max = cache.value_bytes_max(key.len());
        let insert = |writer: &mut Writer, key: &[u8], len| {
            writer.insert(key, &vec![3; len], Ttl::FOREVER, NOW)
        };
        assert!(matches!(insert(&mut writer, b"", 1), Err(Error::KeyLength { bytes: 0 })));
        assert!(matches!(insert(&mut writer, &[1; 256], 1), Err(Error::KeyLength { bytes: 256 })));
        let Err(Error::ValueTooLarge { bytes_max: said, .. }) =
            insert(&mut writer, &key, bytes_max + 1)
        else {
            panic!("one octet too many")
        };
        assert_eq!(said, bytes_max);
        insert(&mut writer, &key, bytes_max).unwrap();
        insert(&mut writer, &[1], 0).unwrap();
        writer.flush().unwrap();
        proxy.sync();
        assert_eq!(proxy.get(&key, NOW).unwrap().len(), bytes_max);
        assert_eq!(proxy.get(&[1], NOW).unwrap().len(), 0);
    }
    let cache = Cache::builder().budget(64 << 20).proxies_max(1).build().unwrap();
    assert_eq!(cache.value_bytes_max(255), 32 << 10);
}

/// A full index, churned many times over, evicts by age alone: no bucket ever runs out of ways.
#[test]
fn no_conflicts_at_full_load() {
    let builder = Cache::builder().budget(2 << 20).proxies_max(1).entry_bytes_mean(200);
    let cache = builder.build().unwrap();
    let mut writer = cache.writer();
    for number in 0..400_000 {
        writer.insert(&key_of(number), b"v", Ttl::FOREVER, NOW).unwrap();
    }
    drop(writer);
    let stats = cache.stats().unwrap();
    assert!(stats.entries == stats.entries_max && stats.index_load > 0.79, "{stats:?}");
    assert_eq!(stats.conflicts, 0);
    cache.validate().unwrap();
}

/// Writers that hold spare slots and queued values do not keep another from writing for ever.
#[test]
fn many_writers() {
    let cache = Cache::builder().budget(2 << 20).proxies_max(2).build().unwrap();
    let mut writers: Vec<Writer> = (0..8).map(|_| cache.writer()).collect();
    for number in 0..100_000u64 {
        let writer = (number % 8) as usize;
        let value = vec![1; (number as usize * 37) % 700];
        match writers[writer].insert(&key_of(number), &value, Ttl::FOREVER, NOW) {
            Ok(()) => {}
            Err(Error::Starved) => {
                for writer in &mut writers {
                    writer.flush().unwrap();
                }
                writers[writer].insert(&key_of(number), &value, Ttl::FOREVER, NOW).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    drop(writers);
    cache.validate().unwrap();
}
