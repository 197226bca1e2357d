//! What a cache holds and has done, at one moment.

use larder_mem::{ClassUse, PageUse};

use crate::cache::{Shared, with_engine};
use crate::error::Error;
use crate::policy::Replacement;

/// A cache's figures. Counters count since the build.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Octets the cache may take.
    pub budget_bytes: u64,
    /// Entries it holds, ended ones included.
    pub entries: u64,
    /// Entries it may hold.
    pub entries_max: u64,
    /// Share of the index's ways in use, 0 to 1.
    pub index_load: f64,
    /// Octets that entries take of the arena, rounding up included.
    pub charge_bytes: u64,
    /// Octets that entries may take of the arena.
    pub charge_bytes_max: u64,
    /// New entries stored.
    pub inserted: u64,
    /// Entries given a new value.
    pub updated: u64,
    /// Entries taken out on request.
    pub removed: u64,
    /// Entries that left to make room.
    pub evicted: u64,
    /// Entries that left because their bucket and its neighbours were full; part of no other count.
    pub conflicts: u64,
    /// Slots copied to empty a page.
    pub moved_slots: u64,
    /// Reads that the policy was told of.
    pub reported: u64,
    /// Look-ups that found a live entry, up to each proxy's last sync.
    pub hits: u64,
    /// Look-ups that did not, likewise.
    pub misses: u64,
    /// Slots that were retired and proxies may still hold.
    pub limbo_slots: u64,
    /// Octets of those slots.
    pub limbo_bytes: u64,
    /// Log records written.
    pub log_position: u64,
    /// Log records that fit.
    pub log_records: u64,
    /// The arena's pages.
    pub pages: PageUse,
    /// What each size class holds.
    pub classes: Vec<ClassUse>,
    /// Every proxy.
    pub proxies: Vec<ProxyStats>,
}

/// One proxy's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyStats {
    /// Its number, as `Error::Stalled` names it.
    pub proxy: usize,
    /// Log records it is behind; `None` while it is parked.
    pub behind: Option<u64>,
}

impl Stats {
    pub(crate) fn collect(shared: &Shared) -> Result<Stats, Error> {
        let counters = shared.counters.iter().map(|counters| counters.0.read());
        let (hits, misses) = counters.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
        let mut guard = shared.lock()?;
        let stats = with_engine(shared, &mut guard, |engine| {
            engine.main.reclaim();
            let (limbo_slots, limbo_bytes) = engine.main.limbo();
            let (counts, entries) = (engine.state.counts, engine.state.policy.len());
            Stats {
                budget_bytes: shared.budget,
                entries,
                entries_max: shared.limits.entries_max,
                index_load: entries as f64 / (engine.main.buckets() * larder_mem::WAYS) as f64,
                charge_bytes: engine.main.live_charge(),
                charge_bytes_max: shared.limits.charge_max,
                inserted: counts.inserted,
                updated: counts.updated,
                removed: counts.removed,
                evicted: counts.evicted,
                conflicts: counts.conflicts,
                moved_slots: counts.moved_slots,
                reported: counts.reported,
                hits,
                misses,
                limbo_slots,
                limbo_bytes,
                log_position: engine.main.position().records(),
                log_records: shared.shard.config().log_records as u64,
                pages: engine.main.page_use(),
                classes: engine.main.class_use().collect(),
                proxies: (engine.main.lags())
                    .map(|lag| ProxyStats { proxy: lag.reader, behind: lag.behind })
                    .collect(),
            }
        });
        Ok(stats)
    }
}
