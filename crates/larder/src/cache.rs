//! The handle that readers and writers come from.

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

/// What a reader counted up to its last sync. Written by that reader alone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    stale_hits: AtomicU64,
    ended_misses: AtomicU64,
}

/// What lookups came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lookups {
    pub hits: u64,
    pub misses: u64,
    /// Hits on entries past their end.
    pub stale_hits: u64,
    /// Misses because the entry was past its end.
    pub ended_misses: u64,
}

impl Counters {
    pub fn publish(&self, lookups: &Lookups) {
        self.hits.store(lookups.hits, Ordering::Relaxed);
        self.misses.store(lookups.misses, Ordering::Relaxed);
        self.stale_hits.store(lookups.stale_hits, Ordering::Relaxed);
        self.ended_misses.store(lookups.ended_misses, Ordering::Relaxed);
    }

    pub fn read(&self) -> Lookups {
        Lookups {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            stale_hits: self.stale_hits.load(Ordering::Relaxed),
            ended_misses: self.ended_misses.load(Ordering::Relaxed),
        }
    }
}

/// What every handle, reader and writer of one cache shares.
#[derive(Debug)]
pub(crate) struct Shared {
    /// By [`Placement::shard`].
    pub shards: Box<[Arc<Shard<State>>]>,
    pub placement: Placement,
    pub hasher: Hasher,
    pub budget: u64,
    pub limits: Limits,
    /// Seconds past its end in which an entry may be asked for.
    pub stale: u32,
    pub sync: SyncMode,
    /// Of what is evicted.
    pub notifier: Option<Notifier>,
    /// Bytes of the largest entry, header included.
    pub slot_bytes_max: usize,
    /// Bytes a writer may hold in slots that it has not published.
    pub queue_bytes_max: usize,
    /// Log records of a report epoch, as a power of two; `None` when reads are not reported.
    pub report_shift: Option<u32>,
    pub counters: Box<[CacheLines<Counters>]>,
    /// Numbers of readers that are taken: a reader has the same one in every shard.
    pub reader_ids: Mutex<Box<[bool]>>,
}

/// Runs `act` on main and the engine's state, under a lock that is held already.
pub(crate) fn with_engine<R>(
    shard: &Shard<State>,
    guard: &mut Guard<'_, State>,
    act: impl FnOnce(&mut Engine<'_>) -> R,
) -> R {
    let (main, state) = guard.parts();
    act(&mut Engine { shard, main, state })
}

/// A cache. Cheap to clone; every clone is the same cache.
#[derive(Debug, Clone)]
pub struct Cache {
    shared: Arc<Shared>,
}

impl Cache {
    /// Starts the description of a cache.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(shared: Shared) -> Self {
        Cache { shared: Arc::new(shared) }
    }

    /// Readers that may exist at once, as the cache was built for.
    pub fn readers_max(&self) -> usize {
        self.shared.counters.len()
    }

    /// A new reader: one core's way to read. Copies the index once.
    pub fn reader(&self) -> Result<Reader, Error> {
        Reader::register(&self.shared)
    }

    /// A new writer: one core's way to write.
    pub fn writer(&self) -> Writer {
        Writer::new(&self.shared, true)
    }

    /// A writer that is kept behind a lock: what it evicts is to be reported when the lock is free again, by
    /// [`Cache::report_evicted`].
    pub(crate) fn writer_in_lock(&self) -> Writer {
        Writer::new(&self.shared, false)
    }

    /// Calls the listener with what [`Writer::take_evicted`] gave.
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

    /// The longest value that this cache takes beside a key of `key_len` bytes.
    pub fn value_bytes_max(&self, key_len: usize) -> usize {
        value_bytes_max(&self.shared, key_len)
    }

    /// How many shards it has.
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

    /// Looks a key up at main, under its lock, for those who have no reader at hand. `read` runs under that
    /// lock: it copies, and no more.
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

    /// What the cache holds and has done. Takes the lock for a moment.
    pub fn stats(&self) -> Result<Stats, Error> {
        Stats::collect(&self.shared)
    }

    /// All entries alive at `now`, copied out, shard by shard, in the order of the policy: with
    /// [`Policy::Fifo`](crate::Policy) in the order in which they were first inserted; with `Lru` those longest
    /// unused first; otherwise partition by partition, roughly those first that will leave first, and in each with
    /// `Paper` those first that came into it first, with `Partitioned` in no order.
    /// Takes the lock for a few entries at a time; entries that come, go, change or are hit meanwhile may be
    /// seen, not, or twice. Iterators do not wait for one another, and one that is alive keeps nobody from
    /// writing, removing or saving; it makes each eviction a comparison dearer until it ends or is dropped.
    pub fn iter(&self, now: Seconds) -> Iter<'_> {
        Iter::new(&self.shared, now)
    }

    /// Walks everything, under the lock; `Err` says what is wrong. For tests.
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

    /// A panic under a shard's lock would leave it half changed, so the cache is poisoned: whatever asks main says so from
    /// then on, what readers show stays readable and whole, and all handles can be dropped in any state.
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
        // Queued, and never to be applied.
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
