//! The engine against a slow and obvious cache: the same operations, the same answers, the same entries in
//! the same order, whatever the budget, the value sizes and the proxies' habits.

mod common;

use common::{Model, Random, assert_same, key_of};
use larder::{Cache, Error, Policy, Seconds, Ttl};

struct Run {
    seed: u64,
    budget: u64,
    keys: u64,
    value_bytes_max: usize,
    operations: usize,
    /// Proxies sync every so many operations; the first one twice as often as the second, and so on.
    sync_every: usize,
    proxies: usize,
}

/// Applies random operations to both, syncing when told to or when the engine says that it must.
fn compare(run: &Run) {
    let cache = Cache::builder()
        .budget(run.budget)
        .proxies_max(run.proxies)
        .policy(Policy::Fifo)
        .seed(run.seed ^ 1)
        .build()
        .unwrap();
    let mut proxies: Vec<_> = (0..run.proxies).map(|_| Some(cache.proxy().unwrap())).collect();
    let mut writer = cache.writer();
    let mut model = Model::of(&cache);
    let mut random = Random(run.seed);
    let mut now = Seconds(1);
    let value_max = run.value_bytes_max.min(cache.value_bytes_max(40));
    for step in 0..run.operations {
        now.0 += u32::from(random.below(50) == 0);
        let key = key_of(random.below(run.keys));
        let ttl = if random.below(2) == 0 {
            Ttl::FOREVER
        } else {
            Ttl::seconds(random.below(300) as u32)
        };
        let kind = random.below(20);
        let value = random.bytes(value_max);
        loop {
            let done = match kind {
                0 => writer.remove(&key),
                1 => writer.touch(&key, ttl, now),
                2 => writer.insert_with(&key, value.len(), ttl, now, |build| {
                    let (head, tail) = value.split_at(value.len() / 2);
                    assert!(build.push(head));
                    build.spare(tail.len()).unwrap().copy_from_slice(tail);
                    assert!(!build.push(&[0]) && build.spare(1).is_none());
                }),
                _ => writer.insert(&key, &value, ttl, now),
            };
            match done {
                Ok(()) => break,
                Err(Error::Stalled { proxy, behind }) => {
                    assert!(behind > 0);
                    proxies[proxy].as_mut().unwrap().sync();
                }
                Err(error) => panic!("seed {} step {step}: {error}", run.seed),
            }
        }
        match kind {
            0 => model.remove(&key),
            1 => model.touch(&key, ttl, now),
            _ => model.insert(&key, &value, ttl, now),
        }
        for (number, slot) in proxies.iter_mut().enumerate() {
            if step % (run.sync_every * (number + 1)) == 0 {
                let mut proxy = slot.take().unwrap();
                if random.below(8) == 0 {
                    proxy = proxy.park().unpark().unwrap();
                }
                proxy.sync();
                *slot = Some(proxy);
            }
        }
        if step % (run.operations / 8) == 0 || step + 1 == run.operations {
            while let Err(error) = writer.flush() {
                let Error::Stalled { proxy, .. } = error else { panic!("{error}") };
                proxies[proxy].as_mut().unwrap().sync();
            }
            let mut proxy = proxies[0].take().unwrap();
            proxy.sync();
            proxy.validate().unwrap();
            cache
                .validate()
                .unwrap_or_else(|wrong| panic!("seed {} step {step}: {wrong}", run.seed));
            assert_same(&cache, &proxy, &model, now, run.seed);
            proxies[0] = Some(proxy);
        }
    }
}

/// Small values of mixed lengths, more keys than fit: eviction all along.
#[test]
fn small_entries() {
    for seed in 1..=4 {
        compare(&Run {
            seed,
            budget: 300_000,
            keys: 4_000,
            value_bytes_max: 200,
            operations: 30_000,
            sync_every: 70,
            proxies: 3,
        });
    }
}

/// Values up to the largest the cache takes: one insert evicts many, and pages change class.
#[test]
fn mixed_sizes() {
    for seed in 11..=14 {
        compare(&Run {
            seed,
            budget: 1 << 20,
            keys: 2_000,
            value_bytes_max: usize::MAX,
            operations: 20_000,
            sync_every: 150,
            proxies: 2,
        });
    }
}

/// Everything fits: nothing is evicted, entries only end.
#[test]
fn nothing_evicted() {
    compare(&Run {
        seed: 21,
        budget: 4 << 20,
        keys: 3_000,
        value_bytes_max: 100,
        operations: 20_000,
        sync_every: 1_000,
        proxies: 1,
    });
}

/// A proxy that syncs only when it stalls the writer gives the same answers.
#[test]
fn lazy_proxies() {
    compare(&Run {
        seed: 31,
        budget: 300_000,
        keys: 4_000,
        value_bytes_max: 120,
        operations: 30_000,
        sync_every: usize::MAX / 8,
        proxies: 2,
    });
}
