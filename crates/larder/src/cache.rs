//! The handle that creates readers and writers.

use std::sync::Arc;

use crate::engine::Engine;
use crate::entry::Entry;
use crate::error::Error;
use crate::evicted::Batch;
use crate::hash::KeyHash;
use crate::iter::Iter;
use crate::position::LogPosition;
use crate::reader::Reader;
use crate::shared::{Shared, value_bytes_max, with_engine};
use crate::stats::Stats;
use crate::time::{Seconds, is_expired};
use crate::writer::Writer;

/// A cache. Cloning is cheap, and every clone is the same cache.
#[derive(Debug, Clone)]
pub struct Cache {
    shared: Arc<Shared>,
}

impl Cache {
    pub(crate) fn new(shared: Shared) -> Self {
        Cache { shared: Arc::new(shared) }
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// How many readers can exist at once.
    pub fn readers_max(&self) -> usize {
        self.shared.lookups.len()
    }

    /// Creates a reader for one core. Copies the index once.
    pub fn reader(&self) -> Result<Reader, Error> {
        Reader::register(&self.shared)
    }

    /// Creates a writer for one core.
    pub fn writer(&self) -> Writer {
        Writer::new(&self.shared, true)
    }

    /// Creates a writer that its owner stores behind a lock. The owner reports its evictions after
    /// it released the lock, by [`Cache::report_evicted`].
    pub(crate) fn writer_in_lock(&self) -> Writer {
        Writer::new(&self.shared, false)
    }

    /// Calls the listener with the evictions that [`Writer::take_evicted`] returned.
    pub(crate) fn report_evicted(&self, mut evicted: Batch) {
        if let Some(notifier) = &self.shared.notifier {
            notifier.report(&mut evicted);
            evicted.reuse();
        }
    }

    /// The hash of a key in this cache, for the `_hashed` forms.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.shared.hasher.hash(key)
    }

    /// The longest value that fits next to a key of `key_len` bytes.
    pub fn value_bytes_max(&self, key_len: usize) -> usize {
        value_bytes_max(&self.shared, key_len)
    }

    /// The number of shards.
    pub fn shards(&self) -> usize {
        self.shared.shards.len()
    }

    /// True if its readers share one index.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.shards[0].config().index_mode == larder_mem::IndexMode::Shared
    }

    /// The position after everything applied so far.
    pub fn position(&self) -> Result<LogPosition, Error> {
        let mut position = LogPosition::default();
        for (number, shard) in self.shared.shards.iter().enumerate() {
            position.add(number, shard.lock()?.parts().0.position());
        }
        Ok(position)
    }

    /// Finds a key in main, under its lock, without a reader. `read` runs under that lock and should only copy.
    pub(crate) fn read_at_main<R>(
        &self,
        key: &[u8],
        now: Seconds,
        read: impl FnOnce(Entry<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        self.at_main(key, |engine, hash| {
            let slot = engine.slot(hash, key)?;
            (!is_expired(slot.expires(), now)).then(|| read(Entry { slot }))
        })
    }

    /// As [`Cache::read_at_main`], and counts as a lookup.
    pub(crate) fn look_up_at_main<R>(
        &self,
        key: &[u8],
        now: Seconds,
        read: impl FnOnce(Entry<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        self.at_main(key, |engine, hash| {
            let slot = engine.slot(hash, key);
            let is_there = slot.is_some();
            let live = slot.filter(|slot| !is_expired(slot.expires(), now));
            let found = live.map(|slot| read(Entry { slot }));
            let lookups = &mut engine.state.counts.lookups;
            lookups.hits += u64::from(found.is_some());
            lookups.misses += u64::from(found.is_none());
            lookups.expired_misses += u64::from(is_there && found.is_none());
            found
        })
    }

    fn at_main<R>(
        &self,
        key: &[u8],
        act: impl FnOnce(&mut Engine<'_>, KeyHash) -> R,
    ) -> Result<R, Error> {
        let shared = &*self.shared;
        let hash = shared.hasher.hash(key);
        let shard = &shared.shards[shared.placement.shard(hash)];
        let mut guard = shard.lock()?;
        Ok(with_engine(shard, &mut guard, |engine| act(engine, hash)))
    }

    /// The cache's figures. Takes each shard's lock for a moment.
    pub fn stats(&self) -> Result<Stats, Error> {
        Stats::collect(&self.shared)
    }

    /// Copies of all entries that are live at `now`, shard by shard, in the policy's order. That is
    /// the order of first insertion for [`Policy::Fifo`](crate::Policy). `Partitioned` has no order.
    ///
    /// Takes the lock for a few entries at a time. An entry that is inserted, removed, changed or
    /// hit meanwhile may be returned once, twice or not at all. Iterators do not wait for each
    /// other, and do not block writes, removals or saves. A shard that a panic poisoned
    /// ([`Error::Poisoned`]) is skipped; see [`Iter::was_whole`]. A live iterator makes each eviction one
    /// comparison slower, so drop it when you are done.
    pub fn iter(&self, now: Seconds) -> Iter<'_> {
        Iter::new(&self.shared, now)
    }

    /// Checks all invariants, under the lock; `Err` states what is wrong. For tests.
    pub fn validate(&self) -> Result<(), String> {
        for (number, shard) in self.shared.shards.iter().enumerate() {
            let mut guard = shard.lock().map_err(|error| error.to_string())?;
            with_engine(shard, &mut guard, |engine| engine.validate())
                .map_err(|wrong| format!("shard {number}: {wrong}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl Cache {
    /// A panic interrupts a change of the first shard.
    pub(crate) fn poison(&self) {
        use std::panic::{AssertUnwindSafe, catch_unwind};

        let poisoned = catch_unwind(AssertUnwindSafe(|| {
            let mut guard = self.shared.shards[0].lock().unwrap();
            with_engine(&self.shared.shards[0], &mut guard, |engine| {
                let (bucket, way) = (0..engine.main.buckets())
                    .find_map(|bucket| {
                        engine
                            .main
                            .bucket(bucket)
                            .vacant()
                            .filter(|&way| way > 0)
                            .map(|way| (bucket, way - 1))
                    })
                    .unwrap();
                engine.main.clear(bucket, way);
                std::panic::resume_unwind(Box::new(()));
            })
        }));
        assert!(poisoned.is_err());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Ttl;

    const NOW: Seconds = Seconds(1);

    fn key(number: u64) -> [u8; 8] {
        number.to_be_bytes()
    }

    /// A panic under a shard's lock could leave it half changed, so it poisons the cache. From then
    /// on every operation that uses main returns an error. Readers still return whole entries, and
    /// all handles can be dropped in any state.
    #[test]
    fn a_poisoned_cache_says_so() {
        let cache = Cache::builder().budget(1 << 20).shards(1).readers_max(2).build().unwrap();
        let mut writer = cache.writer();
        for number in 0..100 {
            writer.insert(&key(number), b"before", Ttl::FOREVER, NOW).unwrap();
        }
        writer.flush().unwrap();
        let mut reader = cache.reader().unwrap();
        let parked = cache.reader().unwrap().park();
        // Queued, and never applied.
        writer.insert(&key(1), b"after", Ttl::FOREVER, NOW).unwrap();
        writer.remove(&key(2)).unwrap();
        cache.poison();
        assert!(matches!(writer.flush(), Err(Error::Poisoned)));
        assert!(matches!(cache.stats(), Err(Error::Poisoned)));
        assert!(matches!(cache.position(), Err(Error::Poisoned)));
        assert!(matches!(parked.unpark(), Err(Error::Poisoned)));
        assert!(matches!(cache.reader(), Err(Error::Poisoned)));
        assert!(cache.validate().is_err() && cache.iter(NOW).next().is_none());
        assert!(cache.save_to(&mut Vec::new(), NOW).is_err(), "nothing would pass for all");
        reader.sync();
        for number in 0..100 {
            assert_eq!(reader.get(&key(number), NOW).as_deref(), Some(&b"before"[..]));
        }
        drop(writer);
        drop(cache);
        reader.sync();
        assert!(reader.get(&key(99), NOW).is_some());
    }
}
