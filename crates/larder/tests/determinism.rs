//! The same operations and seed result in the same entries, whoever reads and whenever readers
//! sync.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{POLICIES, Random, bytes, dump, key_of};
use larder::{Cache, Error, OwnedEntry, Policy, Reader, Seconds, Stats, Ttl};

/// Runs `act` once; after a stall, syncs the named reader and runs it again.
fn retry(readers: &mut [Reader], mut act: impl FnMut() -> Result<(), Error>) {
    while let Err(error) = act() {
        let Error::Stalled { reader, .. } = error else { panic!("{error}") };
        readers[reader].sync();
    }
}

/// Applies the same operations with `readers` that sync every `sync_every` operations (0: only when they
/// must), in `flush_every` batches, with another writer holding spare slots meanwhile.
fn run(
    policy: Policy,
    readers: usize,
    sync_every: usize,
    flush_every: usize,
) -> (Vec<OwnedEntry>, Stats) {
    let cache = Cache::builder().budget(1 << 20).readers_max(7).policy(policy).feedback(false);
    let cache = cache.seed(5).build().unwrap();
    let mut readers: Vec<Reader> = (0..readers).map(|_| cache.reader().unwrap()).collect();
    let mut writer = cache.writer();
    let mut random = Random(99);
    for step in 0..60_000usize {
        let now = Seconds(1 + step as u32 / 1000);
        let key = key_of(random.below(9_000));
        // The lengths drift, so that pages have to change class.
        let value = bytes(&mut random, if step < 30_000 { 60 } else { 900 });
        let remove = random.below(10) == 0;
        retry(&mut readers, || match remove {
            true => writer.remove(&key),
            false => writer.insert(&key, &value, Ttl::FOREVER, now),
        });
        if flush_every > 0 && step % flush_every == 0 {
            retry(&mut readers, || writer.flush().map(drop));
        }
        for (number, reader) in readers.iter_mut().enumerate() {
            if sync_every > 0 && (step + number) % (sync_every * (number + 1)) == 0 {
                reader.sync();
            }
        }
    }
    retry(&mut readers, || writer.flush().map(drop));
    cache.validate().unwrap();
    for reader in &mut readers {
        reader.sync();
        reader.validate().unwrap();
    }
    (dump(&cache), cache.stats().unwrap())
}

/// No readers, many, eager, lazy, stalling ones; large and single batches: the same entries in the
/// same order, under every policy.
#[test]
fn readers_and_batches_do_not_matter() {
    POLICIES.into_iter().for_each(habits_do_not_matter);
}

fn habits_do_not_matter(policy: Policy) {
    let (expected, stats) = run(policy, 0, 0, 0);
    assert!(stats.evicted > 10_000 && expected.len() > 100, "{stats:?}");
    let mut moved = stats.moved_slots;
    for (readers, sync_every, flush_every) in
        [(1, 1, 1), (1, 0, 0), (2, 37, 10), (7, 100, 3), (7, 0, 1000), (3, 5000, 64)]
    {
        let (entries, stats) = run(policy, readers, sync_every, flush_every);
        assert!(
            entries == expected,
            "{policy:?}: {readers} readers, sync {sync_every}, flush {flush_every}"
        );
        moved += stats.moved_slots;
    }
    assert!(moved > 0, "no page changed class: the test has lost its point");
}

/// Workers at position k see exactly batch k, though the writer is ahead; a reader never goes back
/// to an earlier position.
#[test]
fn positions_are_exact() {
    let cache = Cache::builder().budget(1 << 20).readers_max(2).build().unwrap();
    let (mut ahead, mut behind) = (cache.reader().unwrap(), cache.reader().unwrap());
    let mut writer = cache.writer();
    let now = Seconds(1);
    let mut positions = Vec::new();
    for batch in 0..10u8 {
        for key in 0..20 {
            writer.insert(&key_of(key), &[batch], Ttl::FOREVER, now).unwrap();
        }
        writer.insert(&[b'b', batch], b"", Ttl::FOREVER, now).unwrap();
        positions.push(writer.flush().unwrap());
    }
    assert_eq!(ahead.sync(), positions[9]);
    for (batch, &position) in positions.iter().enumerate() {
        let old = behind.get(&key_of(3), now).map(|entry| entry.value());
        assert_eq!(behind.refresh_to(position), position);
        assert_eq!(old.map(|value| usize::from(value[0])), batch.checked_sub(1), "the old view");
        for key in 0..20 {
            assert_eq!(behind.get(&key_of(key), now).as_deref(), Some(&[batch as u8][..]));
            assert_eq!(ahead.get(&key_of(key), now).as_deref(), Some(&[9][..]));
        }
        assert!(behind.get(&[b'b', batch as u8], now).is_some());
        assert!(behind.get(&[b'b', batch as u8 + 1], now).is_none());
        behind.sync_to(position);
    }
    assert_eq!(behind.sync_to(positions[2]), positions[9]);
}

/// Ends the readers, also if the writer's thread panics: a failing test must not hang.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Many threads that read and sync while one writes: the same entries result, and only what was
/// written is read. With so little memory a slot is often missing at the moment when the last
/// reader catches up. Then no reader is to blame.
#[test]
fn threads_do_not_matter() {
    let run = |threads: usize| {
        let cache = Cache::builder().budget(400_000).readers_max(4).feedback(false);
        let cache = cache.build().unwrap();
        let done = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..threads {
                let mut reader = cache.reader().unwrap();
                scope.spawn(move || {
                    let mut random = Random(number as u64);
                    while !done.load(Ordering::Relaxed) {
                        for _ in 0..100 {
                            let key = key_of(random.below(5_000));
                            if let Some(entry) = reader.get(&key, Seconds(1)) {
                                assert_eq!(entry.key(), key);
                                assert!(entry.iter().all(|&byte| byte == entry[0]));
                            }
                        }
                        reader.sync();
                    }
                });
            }
            let _done = Done(done);
            let mut writer = cache.writer();
            let mut random = Random(17);
            for _ in 0..15_000 {
                let key = key_of(random.below(5_000));
                let value = vec![random.next() as u8; 1 + random.below(150) as usize];
                while let Err(error) = writer.insert(&key, &value, Ttl::FOREVER, Seconds(1)) {
                    assert!(matches!(error, Error::Stalled { .. }), "{error}");
                    std::thread::yield_now();
                }
            }
            while writer.flush().is_err() {
                std::thread::yield_now();
            }
        });
        cache.validate().unwrap();
        dump(&cache)
    };
    let alone = run(0);
    for _ in 0..4 {
        assert!(run(3) == alone);
    }
}
