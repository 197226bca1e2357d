//! The engine against a slow and simple cache: the same operations, the same results, the same
//! entries in the same order, for any budget, value sizes, shards, index modes and readers' habits.

mod common;

use std::sync::{Arc, Mutex};

use common::{Model, Random, assert_same, bytes, key_of, seed_added};
use larder::{Cache, Cause, Error, IndexMode, Policy, Seconds, SyncMode, Ticks, Ttl};

#[derive(Clone, Copy)]
struct Run {
    seed: u64,
    budget: u64,
    keys: u64,
    value_bytes_max: usize,
    operations: usize,
    /// Everything is compared and validated every this many operations, and at the end.
    check_every: usize,
    /// Readers sync every this many operations; the first one twice as often as the second, and so
    /// on.
    sync_every: usize,
    readers: usize,
    shards: usize,
    sync: SyncMode,
    index_mode: IndexMode,
    policy: Policy,
}

/// Seconds after its expiry in which an entry can be looked up.
const STALE: u32 = 20;

const PERIODIC: SyncMode = SyncMode::Periodic(Ticks::ms(10));

/// Applies random operations to both; syncs as `run` says, or when the engine requires it.
fn compare(run: &Run) {
    let run = &Run { seed: run.seed + seed_added(), ..*run };
    let left = Arc::new(Mutex::new(Vec::new()));
    let received = left.clone();
    let cache = Cache::builder()
        .budget(run.budget)
        .readers_max(run.readers)
        .policy(run.policy)
        .on_evicted(move |gone| {
            received.lock().unwrap().push((gone.key.to_vec(), gone.value.to_vec(), gone.cause));
        })
        .seed(run.seed ^ 1)
        .shards(run.shards)
        .sync(run.sync)
        .index_mode(run.index_mode)
        .stale(Seconds(STALE))
        .lease_bytes_max(60_000)
        .build()
        .unwrap();
    let mut readers: Vec<_> = (0..run.readers).map(|_| Some(cache.reader().unwrap())).collect();
    let mut writer = cache.writer();
    let mut model = Model::with(&cache, STALE, run.policy);
    let mut random = Random(run.seed);
    let mut now = Seconds(1);
    let mut expired = 0;
    let mut leases: Vec<(Vec<u8>, Vec<u8>, larder::Lease)> = Vec::new();
    let value_max = run.value_bytes_max.min(cache.value_bytes_max(40) - 8);
    for step in 0..run.operations {
        now.0 += u32::from(random.below(50) == 0);
        let key = key_of(random.below(run.keys));
        let ttl = if random.below(2) == 0 {
            Ttl::FOREVER
        } else {
            Ttl::seconds(random.below(300) as u32)
        };
        let kind = random.below(24);
        let version = random.below(1_000);
        let value = bytes(&mut random, value_max);
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
                3 | 4 => writer.insert_if_absent(&key, &value, ttl, now),
                5..=7 => writer.insert_if_newer(&key, &value, version, ttl, now),
                _ => writer.insert(&key, &value, ttl, now),
            };
            match done {
                Ok(()) => break,
                Err(Error::Stalled { reader, behind }) => {
                    assert!(behind > 0);
                    readers[reader].as_mut().unwrap().sync();
                }
                Err(error) => panic!("seed {} step {step}: {error}", run.seed),
            }
        }
        match kind {
            0 => model.remove(&key),
            1 => model.touch(&key, ttl, now),
            3 | 4 => model.insert_if_absent(&key, &value, ttl, now),
            5..=7 => model.insert_if_newer(&key, &value, version, ttl, now),
            _ => model.insert(&key, &value, ttl, now),
        }
        if run.policy != Policy::Fifo {
            while let Err(error) = writer.flush() {
                let Error::Stalled { reader, .. } = error else { panic!("{error}") };
                readers[reader].as_mut().unwrap().sync();
            }
            for (gone, value, cause) in left.lock().unwrap().drain(..) {
                expired += u64::from(cause == Cause::Expired);
                model.left(&gone, &value, cause, &key, now);
            }
        }
        // Some keys are read often, for reports to the policy.
        for _ in 0..4 {
            let reader = readers[random.below(run.readers as u64) as usize].as_ref().unwrap();
            let key = key_of(random.below(run.keys) * random.below(run.keys) / run.keys);
            if let Some(entry) = reader.get(&key, now) {
                assert_eq!(entry.key(), key);
            }
        }
        for (number, slot) in readers.iter_mut().enumerate() {
            if step % (run.sync_every * (number + 1)) == 0 {
                let mut reader = slot.take().unwrap();
                if random.below(8) == 0 {
                    reader = reader.park().unpark().unwrap();
                }
                reader.sync();
                *slot = Some(reader);
            }
        }
        if step % run.check_every == 0 || step + 1 == run.operations {
            while let Err(error) = writer.flush() {
                let Error::Stalled { reader, .. } = error else { panic!("{error}") };
                readers[reader].as_mut().unwrap().sync();
            }
            let mut reader = readers[0].take().unwrap();
            reader.sync();
            reader.validate().unwrap();
            cache
                .validate()
                .unwrap_or_else(|wrong| panic!("seed {} step {step}: {wrong}", run.seed));
            assert_same(&cache, &reader, &model, now, run.seed);
            // What was leased earlier is unchanged, whatever happened to the entry.
            for (key, value, lease) in std::mem::take(&mut leases) {
                assert_eq!((lease.key(), lease.value()), (&key[..], &value[..]));
            }
            for number in 0..run.keys {
                let key = key_of(number);
                if let Some(entry) = reader.get(&key, now)
                    && let Some(lease) = reader.lease(&entry)
                {
                    leases.push((key, entry.to_vec(), lease));
                }
            }
            readers[0] = Some(reader);
        }
    }
    let stats = cache.stats().unwrap();
    if run.policy != Policy::Fifo {
        assert_eq!(stats.evicted_expired, expired, "seed {}", run.seed);
        assert!(stats.reported > 0, "seed {}: nothing was reported", run.seed);
    } else {
        assert_eq!(stats.reported, 0);
    }
}

/// Small values of mixed lengths, more keys than fit: evictions all along; in one to sixteen
/// shards.
#[test]
fn small_entries() {
    for (seed, shards, sync, index_mode) in [
        (1, 1, PERIODIC, IndexMode::Replicated),
        (2, 2, PERIODIC, IndexMode::Shared),
        (3, 4, SyncMode::Immediate, IndexMode::Replicated),
        (4, 1, SyncMode::Immediate, IndexMode::Shared),
        (5, 4, PERIODIC, IndexMode::Replicated),
        (6, 1, PERIODIC, IndexMode::Shared),
        (7, 16, PERIODIC, IndexMode::Shared),
    ] {
        compare(&Run {
            policy: Policy::Fifo,
            index_mode,
            seed,
            shards,
            sync,
            budget: 300_000 + 250_000 * shards as u64,
            keys: 4_000 + 6_000 * shards as u64,
            value_bytes_max: 200,
            operations: 30_000,
            check_every: 4_000,
            sync_every: 70,
            readers: 3,
        });
    }
}

/// Values up to the largest the cache takes: one insert evicts many, and pages change class.
#[test]
fn mixed_sizes() {
    for (seed, shards, sync, index_mode) in [
        (11, 1, PERIODIC, IndexMode::Replicated),
        (12, 4, PERIODIC, IndexMode::Shared),
        (13, 2, SyncMode::Immediate, IndexMode::Replicated),
        (14, 1, PERIODIC, IndexMode::Shared),
    ] {
        compare(&Run {
            seed,
            shards,
            sync,
            index_mode,
            policy: Policy::Fifo,
            budget: (shards as u64) << 20,
            keys: 2_000,
            value_bytes_max: usize::MAX,
            operations: 20_000,
            check_every: 3_000,
            sync_every: 150,
            readers: 2,
        });
    }
}

/// Everything fits: nothing is evicted, entries only expire.
#[test]
fn nothing_evicted() {
    compare(&Run {
        seed: 21,
        budget: 4 << 20,
        keys: 3_000,
        value_bytes_max: 100,
        operations: 20_000,
        check_every: 3_000,
        sync_every: 1_000,
        readers: 1,
        shards: 1,
        sync: PERIODIC,
        index_mode: IndexMode::Replicated,
        policy: Policy::Fifo,
    });
}

/// A reader that syncs only when it stalls the writer gets the same results.
#[test]
fn lazy_readers() {
    for shards in [1, 2] {
        compare(&Run {
            seed: 31,
            budget: 400_000 * shards as u64,
            keys: 4_000 * shards as u64,
            value_bytes_max: 120,
            operations: 30_000,
            check_every: 4_000,
            sync_every: usize::MAX / 8,
            readers: 2,
            shards,
            sync: PERIODIC,
            index_mode: if shards == 1 { IndexMode::Replicated } else { IndexMode::Shared },
            policy: Policy::Fifo,
        });
    }
}

/// Small caches of every shape, compared and validated after every single operation.
#[test]
fn every_step() {
    let mut seed = 40;
    for shards in [1, 2, 4] {
        for index_mode in [IndexMode::Replicated, IndexMode::Shared] {
            for sync in [PERIODIC, SyncMode::Immediate] {
                seed += 1;
                compare(&Run {
                    seed,
                    budget: 260_000 * shards as u64,
                    keys: 300 * shards as u64,
                    value_bytes_max: usize::MAX,
                    operations: 160 * shards,
                    check_every: 1,
                    sync_every: 7,
                    readers: 2,
                    shards,
                    sync,
                    index_mode,
                    policy: Policy::Fifo,
                });
            }
        }
    }
}

/// Under the policy that reads change, with one shard and two, in either index mode and sync mode:
/// except for evictions, which the engine reports, the content is the model's after conditional
/// inserts, expiry, leases, moved pages and parking. An evicted entry was there, is reported as
/// expired if it was, stale window included, and was not the one being inserted.
#[test]
fn partitions_are_like_the_model() {
    let mut seed = 60;
    for _ in 0..3 {
        for shards in [1, 2] {
            for index_mode in [IndexMode::Replicated, IndexMode::Shared] {
                seed += 1;
                let sync = if seed % 2 == 0 { PERIODIC } else { SyncMode::Immediate };
                let small = Run {
                    seed,
                    budget: 300_000 * (1 + shards as u64),
                    keys: 5_000 * shards as u64,
                    value_bytes_max: 200,
                    operations: 10_000,
                    check_every: 2_500,
                    sync_every: 70,
                    readers: 3,
                    shards,
                    sync,
                    index_mode,
                    policy: Policy::Partitioned,
                };
                compare(&small);
                // Any size, and pages that change class; checked every few steps.
                compare(&Run {
                    budget: 300_000 * shards as u64,
                    keys: 300 * shards as u64,
                    value_bytes_max: usize::MAX,
                    operations: 900,
                    check_every: 7,
                    ..small
                });
            }
        }
    }
}
