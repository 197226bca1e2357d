//! The handle that proxies and writers come from.

use std::sync::Arc;

use larder_mem::sync::{AtomicU64, CacheLines, Ordering};
use larder_mem::{Guard, LogPosition, Shard};
use parking_lot::Mutex;

use crate::build::Builder;
use crate::engine::{Engine, Limits, State};
use crate::error::Error;
use crate::hash::{Hasher, KeyHash};
use crate::index::Placement;
use crate::iter::Iter;
use crate::proxy::Proxy;
use crate::stats::Stats;
use crate::time::Seconds;
use crate::writer::Writer;

/// What a proxy counted up to its last sync. Written by that proxy alone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Counters {
    pub fn publish(&self, hits: u64, misses: u64) {
        self.hits.store(hits, Ordering::Relaxed);
        self.misses.store(misses, Ordering::Relaxed);
    }

    pub fn read(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}

/// What every handle, proxy and writer of one cache shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub shard: Arc<Shard<State>>,
    pub placement: Placement,
    pub hasher: Hasher,
    pub budget: u64,
    pub limits: Limits,
    /// Octets of the largest entry, header included.
    pub slot_bytes_max: usize,
    /// Octets a writer may hold in slots that it has not published.
    pub queue_bytes_max: usize,
    /// Log records of a report epoch, as a power of two; `None` when reads are not reported.
    pub report_shift: Option<u32>,
    pub counters: Box<[CacheLines<Counters>]>,
    /// Held by the one walk in progress.
    pub walk: Mutex<()>,
}

impl Shared {
    pub fn lock(&self) -> Result<Guard<'_, State>, Error> {
        Ok(self.shard.lock()?)
    }
}

/// Runs `act` on main and the engine's state, under a lock that is held already.
pub(crate) fn with_engine<R>(
    shared: &Shared,
    guard: &mut Guard<'_, State>,
    act: impl FnOnce(&mut Engine<'_>) -> R,
) -> R {
    let (main, state) = guard.parts();
    act(&mut Engine { shard: &shared.shard, main, state })
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

    /// A new proxy: one core's way to read. Copies the index once.
    pub fn proxy(&self) -> Result<Proxy, Error> {
        Proxy::register(&self.shared)
    }

    /// A new writer: one core's way to write.
    pub fn writer(&self) -> Writer {
        Writer::new(&self.shared)
    }

    /// The hash of a key in this cache, for the `_hashed` forms.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.shared.hasher.hash(key)
    }

    /// The longest value that this cache takes beside a key of `key_len` octets.
    pub fn value_bytes_max(&self, key_len: usize) -> usize {
        value_bytes_max(&self.shared, key_len)
    }

    /// The position after everything applied so far.
    pub fn position(&self) -> Result<LogPosition, Error> {
        Ok(self.shared.lock()?.parts().0.position())
    }

    /// What the cache holds and has done. Takes the lock for a moment.
    pub fn stats(&self) -> Result<Stats, Error> {
        Stats::collect(&self.shared)
    }

    /// All entries alive at `now`, copied out, in the policy's order: with [`Policy::Fifo`](crate::Policy)
    /// that in which they were first inserted, oldest first; otherwise roughly those first that will leave
    /// first. Takes the lock for a few entries at a time; entries that come, go, change or are hit meanwhile
    /// may be seen, not, or twice. One walk at a time: a second one waits for the first to be dropped.
    pub fn iter(&self, now: Seconds) -> Iter<'_> {
        Iter::new(&self.shared, now)
    }

    /// Walks everything, under the lock; `Err` says what is wrong. For tests.
    pub fn validate(&self) -> Result<(), String> {
        let mut guard = self.shared.lock().map_err(|error| error.to_string())?;
        with_engine(&self.shared, &mut guard, |engine| engine.validate())
    }
}

pub(crate) fn value_bytes_max(shared: &Shared, key_len: usize) -> usize {
    let room = shared.slot_bytes_max.saturating_sub(larder_mem::HEADER_BYTES + key_len);
    room.min(crate::build::VALUE_BYTES_MAX)
}
