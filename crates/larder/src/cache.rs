//! The handle that creates readers and writers.

use std::sync::Arc;

use larder_mem::sync::{AtomicU64, CacheLines, Ordering};
use larder_mem::{Guard, Shard};
use parking_lot::Mutex;

use crate::build::Builder;
use crate::engine::{Engine, Limits, State};
use crate::error::Error;
use crate::evicted::{Batch, Notifier};
use crate::hash::{Hasher, KeyHash};
use crate::index::{Placement, find};
use crate::iter::Iter;
use crate::position::LogPosition;
use crate::reader::Reader;
use crate::stats::Stats;
use crate::time::{Seconds, SyncMode, is_expired};
use crate::writer::Writer;

/// A reader's counters as of its last sync. Only that reader writes them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    stale_hits: AtomicU64,
    expired_misses: AtomicU64,
}

/// Counts of lookups by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lookups {
    pub hits: u64,
    pub misses: u64,
    /// Hits on expired entries.
    pub stale_hits: u64,
    /// Misses because the entry had expired.
    pub expired_misses: u64,
}

impl Counters {
    pub fn publish(&self, lookups: &Lookups) {
        self.hits.store(lookups.hits, Ordering::Relaxed);
        self.misses.store(lookups.misses, Ordering::Relaxed);
        self.stale_hits.store(lookups.stale_hits, Ordering::Relaxed);
        self.expired_misses.store(lookups.expired_misses, Ordering::Relaxed);
    }

    pub fn read(&self) -> Lookups {
        Lookups {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            stale_hits: self.stale_hits.load(Ordering::Relaxed),
            expired_misses: self.expired_misses.load(Ordering::Relaxed),
        }
    }
}

/// The state that all handles, readers and writers of a cache share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// By [`Placement::shard`].
    pub shards: Box<[Arc<Shard<State>>]>,
    pub placement: Placement,
    pub hasher: Hasher,
    pub budget: u64,
    pub limits: Limits,
    /// Seconds after its expiry in which an entry can still be looked up.
    pub stale: u32,
    pub sync: SyncMode,
    /// Reports evictions to the listener.
    pub notifier: Option<Notifier>,
    /// Bytes of the largest entry, header included.
    pub slot_bytes_max: usize,
    /// Bytes that a writer may hold in unpublished slots.
    pub queue_bytes_max: usize,
    /// Log records per report epoch, as a power of two; `None` if reads are not reported.
    pub report_shift: Option<u32>,
    pub counters: Box<[CacheLines<Counters>]>,
    /// Which reader numbers are taken. A reader has the same number in every shard.
    pub reader_ids: Mutex<Box<[bool]>>,
}

/// Runs `act` on main and the engine's state, under a lock that the caller holds.
pub(crate) fn with_engine<R>(
    shard: &Shard<State>,
    guard: &mut Guard<'_, State>,
    act: impl FnOnce(&mut Engine<'_>) -> R,
) -> R {
    let (main, state) = guard.parts();
    act(&mut Engine { shard, main, state })
}

/// A cache. Cloning is cheap, and every clone is the same cache.
#[derive(Debug, Clone)]
pub struct Cache {
    shared: Arc<Shared>,
}

impl Cache {
    /// Begins to configure a cache.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(shared: Shared) -> Self {
        Cache { shared: Arc::new(shared) }
    }

    /// How many readers can exist at once.
    pub fn readers_max(&self) -> usize {
        self.shared.counters.len()
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

    /// The position after everything applied so far.
    pub fn position(&self) -> Result<LogPosition, Error> {
        let mut position = LogPosition::default();
        for (number, shard) in self.shared.shards.iter().enumerate() {
            position.set(number, shard.lock()?.parts().0.position());
        }
        Ok(position)
    }

    /// Looks a key up in main, under its lock, without a reader. `read` runs under that lock and
    /// should only copy.
    pub(crate) fn read_at_main<R>(
        &self,
        key: &[u8],
        now: Seconds,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        let shared = &*self.shared;
        let hash = shared.hasher.hash(key);
        let shard = &shared.shards[shared.placement.shard(hash)];
        let mut guard = shard.lock()?;
        Ok(with_engine(shard, &mut guard, |engine| {
            let slot = find(&engine.main, &shared.placement, hash, key)?.slot;
            (!is_expired(slot.expires(), now)).then(|| read(slot.value()))
        }))
    }

    /// The cache's figures. Takes each shard's lock for a moment.
    pub fn stats(&self) -> Result<Stats, Error> {
        Stats::collect(&self.shared)
    }

    /// Copies of all entries that are live at `now`, shard by shard, in the policy's order. That is
    /// the order of first insertion for [`Policy::Fifo`](crate::Policy), and the longest unused
    /// first for `Lru`. The others go partition by partition, roughly the next to be evicted first;
    /// within a partition `Paper` has the order of insertion, and `Partitioned` none.
    ///
    /// Takes the lock for a few entries at a time. An entry that is inserted, removed, changed or
    /// hit meanwhile may be returned once, twice or not at all. Iterators do not wait for each
    /// other, and do not block writes, removals or saves. A live iterator makes each eviction one
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

pub(crate) fn value_bytes_max(shared: &Shared, key_len: usize) -> usize {
    let room = shared.slot_bytes_max.saturating_sub(larder_mem::HEADER_BYTES + key_len);
    room.min(crate::build::VALUE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::time::Ttl;

    const NOW: Seconds = Seconds(1);

    fn key(number: u64) -> [u8; 8] {
        number.to_be_bytes()
    }

    /// A panic under a shard's lock could leave it half changed, so it poisons the cache. From then
    /// on all that uses main returns an error. Readers still show whole entries, and all handles
    /// can be dropped in any state.
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
        let poisoned = catch_unwind(AssertUnwindSafe(|| {
            let mut guard = cache.shared.shards[0].lock().unwrap();
            with_engine(&cache.shared.shards[0], &mut guard, |engine| {
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
        assert!(matches!(writer.flush(), Err(Error::Poisoned)));
        assert!(matches!(cache.stats(), Err(Error::Poisoned)));
        assert!(matches!(cache.position(), Err(Error::Poisoned)));
        assert!(matches!(parked.unpark(), Err(Error::Poisoned)));
        assert!(matches!(cache.reader(), Err(Error::Poisoned)));
        assert!(cache.validate().is_err() && cache.iter(NOW).next().is_none());
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
