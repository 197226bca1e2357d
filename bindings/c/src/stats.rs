//! Figures of a cache, and its end of life as a whole.

use crate::arguments;
use crate::handle::larder_cache;
use crate::status::{Failure, answer, larder_status};

/// Figures of a cache. Counters count since it was made.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct larder_stats {
    /// Bytes that the cache may take.
    pub budget_bytes: u64,
    /// Entries in the cache, expired ones included.
    pub entries: u64,
    /// The most entries that it can have.
    pub entries_max: u64,
    /// Bytes that entries take, rounded up to their sizes of slots.
    pub entries_bytes: u64,
    /// Bytes that entries may take.
    pub entries_bytes_max: u64,
    /// Lookups by larder_get and its like that found a live value, but for those of threads that
    /// are reading at this moment.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Of the misses, those whose value had expired.
    pub expired_misses: u64,
    /// New entries.
    pub inserted: u64,
    /// Entries with a new value.
    pub updated: u64,
    /// Entries removed by a caller.
    pub removed: u64,
    /// Entries evicted to make room.
    pub evicted: u64,
    /// Of those, entries that had expired.
    pub evicted_expired: u64,
    /// Entries evicted because all places for a key were full; rare, and not part of evicted.
    pub conflicts: u64,
}

/// Writes the figures of a cache to *stats, which has stats_bytes bytes (sizeof *stats): members
/// that the caller does not know are left out, and those that the library does not know are 0.
/// Takes each lock for a moment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_stats_get(
    cache: *const larder_cache,
    stats: *mut larder_stats,
    stats_bytes: usize,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache.
        let cache = unsafe { arguments::cache(cache) }?;
        if stats.is_null() {
            return Err(Failure::argument("the place for figures is NULL"));
        }
        let figures = cache.map().stats()?;
        let figures = larder_stats {
            budget_bytes: figures.budget_bytes,
            entries: figures.entries,
            entries_max: figures.entries_max,
            entries_bytes: figures.charge_bytes,
            entries_bytes_max: figures.charge_bytes_max,
            hits: figures.hits,
            misses: figures.misses,
            expired_misses: figures.expired_misses,
            inserted: figures.inserted,
            updated: figures.updated,
            removed: figures.removed,
            evicted: figures.evicted,
            evicted_expired: figures.evicted_expired,
            conflicts: figures.conflicts,
        };
        let known = stats_bytes.min(size_of::<larder_stats>());
        // SAFETY: `the-caller-lends`: `stats_bytes` bytes; the figures are plain numbers without gaps.
        unsafe {
            stats.cast::<u8>().write_bytes(0, stats_bytes);
            stats.cast::<u8>().copy_from((&raw const figures).cast(), known);
        }
        Ok(larder_status::LARDER_OK)
    })
}

/// Writes the number of entries to *entries, expired ones included, which stay until their memory
/// is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_len(
    cache: *const larder_cache,
    entries: *mut u64,
) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache.
        let len = unsafe { arguments::cache(cache) }?.map().len()?;
        // SAFETY: `the-caller-lends`: room for a number, or NULL.
        unsafe { arguments::set(entries, len) };
        Ok(larder_status::LARDER_OK)
    })
}

/// Removes all values that are there at the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_clear(cache: *const larder_cache) -> larder_status {
    answer(|| {
        // SAFETY: `the-caller-lends`: NULL or a cache.
        unsafe { arguments::cache(cache) }?.map().clear()?;
        Ok(larder_status::LARDER_OK)
    })
}
