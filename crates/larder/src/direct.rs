//! Operations that are applied at once, each by itself: what a [`crate::Map`] writes.
//!
//! ```text
//! lock the key's shard -> take a slot -> fill it -> apply -> unlock      (the caller reports what was evicted)
//! ```
//!
//! A [`crate::Writer`] instead keeps free slots, fills them without the lock, and applies many
//! operations together. For one operation that costs more than it saves: a second lock (the
//! writer's), a queue, and free slots that each thread keeps for later. What remains to be hidden
//! is the memory that a new slot comes from, which is in no cache. So the slot after the one that
//! was taken is prefetched, for the next operation on the shard.
//!
//! Invariants
//! 1. An operation that fails has changed no entry and owns no slot, so it can be tried again. (For
//!    one with a weight, others may have been evicted.)
//! 2. No caller's code runs under the lock. It is held for the copy of one value, which is 32 KiB
//!    long at most, and the evictions for it.

use larder_mem::Shard;

use crate::cache::Cache;
use crate::condition::When;
use crate::engine::{Engine, RECORDS_MAX, State};
use crate::error::Error;
use crate::evicted::Batch;
use crate::expiry::Ends;
use crate::hash::KeyHash;
use crate::shared::{class_for, lock_soon, with_engine};
use crate::time::Seconds;

impl Cache {
    /// Stores a value under a key if the present entry meets the condition `when`; false if not.
    /// What leaves for it is added to `evicted`. The caller first asks `Shared::admit_insert`,
    /// once for all attempts of a retry.
    #[inline]
    pub(crate) fn put(
        &self,
        key: &[u8],
        (value, ends): (&[u8], Ends),
        when: When<'_>,
        now: Seconds,
        evicted: &mut Batch,
    ) -> Result<bool, Error> {
        let place = self.place(key);
        let class = class_for(self.shared(), key, value.len(), ends)?;
        place.change(evicted, |engine, hash| {
            // If the log has no room, that is known before the value is copied. (What its condition
            // refuses needs none.)
            if when == When::Always {
                engine.main.reserve(RECORDS_MAX)?;
            }
            let slot = engine.main.alloc(class);
            let mut slot = slot.map_or_else(|| engine.alloc(class), Ok)?;
            engine.shard.fill(&mut slot, key, value, ends.expires, ends.version);
            engine.insert(hash, slot, when, now).map_err(|(stalled, slot)| {
                // Invariant 1.
                engine.main.free(slot);
                stalled.into()
            })
        })
    }

    /// Removes the entry under a key if it meets the condition `when`; false if there is none.
    pub(crate) fn remove(
        &self,
        key: &[u8],
        when: When<'_>,
        now: Seconds,
        evicted: &mut Batch,
    ) -> Result<bool, Error> {
        self.place(key).change(evicted, |engine, hash| Ok(engine.remove(hash, key, when, now)?))
    }

    /// Sets the second of expiry of the entry under a key; false if that entry has a term. It needs
    /// neither memory nor the log, so only a poisoned cache fails. Evicts nothing.
    pub(crate) fn touch(&self, key: &[u8], expires: u32) -> Result<bool, Error> {
        self.place(key).apply(|engine, hash| Ok(engine.touch(hash, key, expires)))
    }

    /// Lets the entry under a key stay for its time to idle from `now`, as [`Cache::touch`].
    pub(crate) fn prolong(&self, key: &[u8], now: Seconds) -> Result<(), Error> {
        self.place(key).apply(|engine, hash| {
            engine.prolong(hash, key, now);
            Ok(())
        })
    }

    /// Where a key's entry is or will be. Both of its buckets are being fetched.
    #[inline(always)]
    fn place(&self, key: &[u8]) -> Place<'_> {
        let shared = self.shared();
        let hash = shared.hasher.hash(key);
        let shard = &*shared.shards[shared.placement.shard(hash)];
        let home = shared.placement.home(hash);
        shard.prefetch_bucket(home);
        shard.prefetch_bucket(shared.placement.second(home, shared.placement.tag_word(hash)));
        Place { hash, shard }
    }
}

struct Place<'a> {
    hash: KeyHash,
    shard: &'a Shard<State>,
}

impl Place<'_> {
    /// Runs `act` under the lock (invariant 2). What it evicts is added to `evicted`, and so leaves the
    /// lock.
    #[inline(always)]
    fn change<R>(
        self,
        evicted: &mut Batch,
        act: impl FnOnce(&mut Engine<'_>, KeyHash) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.apply(|engine, hash| {
            engine.prefetch_states(hash);
            let result = act(engine, hash);
            if let Some(batch) = &mut engine.state.evicted {
                evicted.append(batch);
            }
            result
        })
    }

    #[inline(always)]
    fn apply<R>(
        self,
        act: impl FnOnce(&mut Engine<'_>, KeyHash) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let Place { hash, shard } = self;
        let mut guard = lock_soon(shard)?;
        with_engine(shard, &mut guard, |engine| act(engine, hash))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use parking_lot::Mutex;

    use super::*;
    use crate::clock::Clock;
    use crate::evicted::Cause;
    use crate::map::Map;

    const NOW: Seconds = Seconds(1);

    /// Operations that readers block have changed no entry, and own no slot. They succeed when the cause is removed.
    #[test]
    fn failed_operations_change_nothing() {
        let put = |cache: &Cache, number: u64, len: usize| {
            let value = (&[number as u8; 1024][..len], Ends::NEVER);
            cache.put(&number.to_le_bytes(), value, When::Always, NOW, &mut Batch::default())
        };
        let owned = |cache: &Cache| {
            let stats = cache.stats().unwrap();
            (stats.entries, stats.evicted, stats.updated, stats.pages.owned_bytes)
        };
        let is_stalled = |result| matches!(result, Err(Error::Stalled { .. }));
        let builder = || Cache::builder().budget(1 << 20).shards(1).readers_max(1);
        // No slot is left, though the log has room: the reader protects those that were retired.
        let cache = builder().lag_operations(1000).build().unwrap();
        let mut reader = cache.reader().unwrap();
        let blocked = (0..10_000u64).find(|&number| is_stalled(put(&cache, number, 900))).unwrap();
        let stats = cache.stats().unwrap();
        assert!(stats.log_position < stats.log_records / 2);
        let before = owned(&cache);
        for number in [blocked, blocked - 1] {
            assert!(is_stalled(put(&cache, number, 900)));
            assert_eq!(owned(&cache), before);
        }
        assert_eq!(before.3, 0);
        cache.validate().unwrap();
        reader.sync();
        assert!(put(&cache, blocked, 900).unwrap());
        cache.validate().unwrap();
        // The log has room for a small value, and not for all that a large one evicts.
        let cache = builder().build().unwrap();
        let entries_max = cache.stats().unwrap().entries_max;
        (0..2 * entries_max).for_each(|number| assert!(put(&cache, number, 1).unwrap()));
        let mut reader = cache.reader().unwrap();
        let large = 1 << 40;
        let mut numbers = (1 << 32)..;
        let blocked = numbers.find(|&number| {
            put(&cache, number, 1).unwrap();
            is_stalled(put(&cache, large + number, 900))
        });
        let before = owned(&cache);
        assert!(is_stalled(put(&cache, large, 900)));
        assert_eq!((owned(&cache), before.3), (before, 0));
        assert!(put(&cache, blocked.unwrap(), 1).unwrap());
        // What needs no log succeeds.
        let key = &blocked.unwrap().to_le_bytes();
        assert!(cache.touch(key, 9).unwrap());
        reader.sync();
        assert!(reader.get(key, Seconds(8)).is_some() && reader.get(key, Seconds(9)).is_none());
        assert!(put(&cache, large, 900).unwrap());
        cache.validate().unwrap();
    }

    /// A listener that inserts each evicted entry again gets an error at some time, and all that is evicted is
    /// reported.
    #[test]
    fn a_listener_inserts_a_limited_number() {
        static MAP: OnceLock<Map<u64, u64>> = OnceLock::new();
        static CALLS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
        let map = MAP.get_or_init(|| {
            let builder = Map::<u64, u64>::builder().budget(1 << 20).on_evicted(|evicted| {
                let [calls, refused] = &CALLS;
                let (Some(map), Some(key)) = (MAP.get(), evicted.key.first_chunk()) else { return };
                // Ends by itself if no insert is refused.
                if calls.fetch_add(1, Relaxed) < 100_000
                    && matches!(
                        map.insert(&u64::from_le_bytes(*key), 0),
                        Err(Error::ListenerInserts)
                    )
                {
                    refused.fetch_add(1, Relaxed);
                }
            });
            Map::build(builder, Clock::manual(NOW)).unwrap()
        });
        let number = map.stats().unwrap().entries_max + 100;
        (0..number).for_each(|key| map.insert(&key, key).unwrap());
        let [calls, refused] = CALLS.each_ref().map(|count| count.load(Relaxed));
        assert_eq!(calls, map.stats().unwrap().evicted);
        assert!(refused > 0 && calls < 100_000, "{refused} of {calls}");
    }

    /// The memory that a report used is the next one's, so that a write with a listener seldom allocates.
    #[test]
    fn memory_of_reports_is_used_again() {
        let builder = Map::<u64, u64>::builder().budget(1 << 20).shards(1).on_evicted(|_| {});
        let map = Map::<u64, u64>::build(builder, Clock::manual(NOW)).unwrap();
        let number = map.stats().unwrap().entries_max + 100;
        (0..number).for_each(|key| map.insert(&key, key).unwrap());
        assert!(map.stats().unwrap().evicted > 10);
        let guard = map.cache().shared().shards[0].lock().unwrap();
        assert!(guard.state().evicted.as_ref().unwrap().capacity() > 0);
    }

    /// An insert from a listener that readers block fails for that reason, and counts once.
    #[test]
    fn a_listener_is_told_why_its_insert_fails() {
        static MAP: OnceLock<Map<u64, u64>> = OnceLock::new();
        static INSERTED: Mutex<Vec<Result<(), Error>>> = Mutex::new(Vec::new());
        let map = MAP.get_or_init(|| {
            let builder = Map::<u64, u64>::builder().budget(1 << 20).shards(1).readers_max(2);
            let builder = builder.on_removed(|gone| {
                if let (Some(map), Cause::Removed) = (MAP.get(), gone.cause) {
                    let inserted = map.insert(&0, 0);
                    INSERTED.lock().push(inserted);
                }
            });
            Map::build(builder, Clock::manual(NOW)).unwrap()
        });
        let mut reader = map.cache().reader().unwrap();
        let blocked =
            (0..1_000_000).find(|number| map.insert(&(number % 100), 0).is_err()).unwrap();
        // That needs less of the log than an insert.
        map.remove(&(blocked % 100)).unwrap();
        let inserted = || std::mem::take(&mut *INSERTED.lock());
        let first = inserted();
        assert!(matches!(first[..], [Err(Error::Stalled { .. })]), "{first:?}");
        reader.sync();
        map.remove(&((blocked + 1) % 100)).unwrap();
        assert!(matches!(inserted()[..], [Ok(())]));
    }
}
