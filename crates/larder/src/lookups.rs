//! Counts of lookups. Each reader counts for itself, and publishes when it syncs; lookups without a reader are counted
//! under a shard's lock.

use std::cell::Cell;

use larder_mem::sync::{AtomicU64, Ordering};

/// Counts of lookups by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lookups<T = u64> {
    pub hits: T,
    pub misses: T,
    /// Hits on expired entries.
    pub stale_hits: T,
    /// Misses because the entry had expired.
    pub expired_misses: T,
}

/// Counts of the one thread that owns a reader.
pub(crate) type OwnLookups = Lookups<Cell<u64>>;

/// A reader's counts as of its last sync. Only that reader writes them.
pub(crate) type PublishedLookups = Lookups<AtomicU64>;

impl<T> Lookups<T> {
    fn map<U>(&self, act: impl Fn(&T) -> U) -> Lookups<U> {
        Lookups {
            hits: act(&self.hits),
            misses: act(&self.misses),
            stale_hits: act(&self.stale_hits),
            expired_misses: act(&self.expired_misses),
        }
    }
}

impl OwnLookups {
    /// Continues from published counts.
    pub fn of(published: &PublishedLookups) -> OwnLookups {
        published.read().map(|count| Cell::new(*count))
    }
}

impl PublishedLookups {
    pub fn publish(&self, own: &OwnLookups) {
        self.hits.store(own.hits.get(), Ordering::Relaxed);
        self.misses.store(own.misses.get(), Ordering::Relaxed);
        self.stale_hits.store(own.stale_hits.get(), Ordering::Relaxed);
        self.expired_misses.store(own.expired_misses.get(), Ordering::Relaxed);
    }

    pub fn read(&self) -> Lookups {
        self.map(|count| count.load(Ordering::Relaxed))
    }
}
