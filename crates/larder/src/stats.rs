//! A cache's figures, at one moment.

use larder_mem::CHARGE_UNITS;

use crate::engine::Engine;
use crate::error::Error;
use crate::lookups::Lookups;
use crate::policy::Replacement;
use crate::shared::{Shared, with_engine};

/// A cache's figures. Counters count since the build.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes that the cache may take.
    pub budget_bytes: u64,
    /// Entries in the cache, expired ones included.
    pub entries: u64,
    /// The most entries that it can have.
    pub entries_max: u64,
    /// Share of the index's ways in use, 0 to 1.
    pub index_load: f64,
    /// Bytes of the arena that entries take, with rounding up, and a page for each size that was
    /// ever used.
    pub charge_bytes: u64,
    /// Bytes that entries may take of the arena.
    pub charge_bytes_max: u64,
    /// What the objects weigh together, if they have weights ([`crate::Builder::weigher`]); else 0.
    pub weight: u64,
    /// What they may weigh; without weights 0.
    pub weight_max: u64,
    /// New entries stored.
    pub inserted: u64,
    /// Entries given a new value.
    pub updated: u64,
    /// Entries removed on request.
    pub removed: u64,
    /// Operations refused by their condition: conditional inserts, and each repeat of
    /// [`crate::Map::compute`].
    pub refused: u64,
    /// Entries evicted to make room.
    pub evicted: u64,
    /// Of those, entries that had expired, stale window included, as far as their expiry was read.
    /// With a listener ([`crate::Builder::on_evicted`]) that is all of them, otherwise those that
    /// the policy evicted for that reason.
    pub evicted_expired: u64,
    /// Entries evicted because their bucket and its neighbors were full; not part of other counts.
    pub conflicts: u64,
    /// Slots copied to empty a page.
    pub moved_slots: u64,
    /// Reads reported to the policy.
    pub reported: u64,
    /// Lookups that found a live entry, as of each reader's last sync.
    pub hits: u64,
    /// Lookups that did not, as of each reader's last sync.
    pub misses: u64,
    /// Hits on expired entries, by `get_stale`; part of `hits`.
    pub stale_hits: u64,
    /// Misses because the entry had expired; part of `misses`.
    pub expired_misses: u64,
    /// Retired slots that readers may still hold.
    pub limbo_slots: u64,
    /// Bytes of those slots.
    pub limbo_bytes: u64,
    /// Retired slots that only leases hold, as far as known.
    pub revoked_slots: u64,
    /// Bytes that leases hold, copies included.
    pub lease_bytes: u64,
    /// Log records written.
    pub log_position: u64,
    /// Log records that fit in the logs.
    pub log_records: u64,
    /// The arena's pages.
    pub pages: PageUse,
    /// The use of each size class.
    pub classes: Vec<ClassUse>,
    /// All readers.
    pub readers: Vec<ReaderStats>,
}

/// The use of the arena's pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageUse {
    /// All pages of the arena.
    pub total: u32,
    /// Pages that serve no size class.
    pub free: u32,
    /// Pages whose live slots are being moved, or were moved and wait for readers.
    pub draining: u32,
    /// Bytes of slots that writers own: of operations that are not applied yet, and free ones for
    /// further operations.
    pub owned_bytes: u64,
}

/// The use of one size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassUse {
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Pages that serve the class, draining ones included.
    pub pages: u32,
    /// Taken slots: live, retired and not yet free, or owned by a writer.
    pub slots_used: u32,
    /// Live slots.
    pub slots_live: u32,
}

/// One reader's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaderStats {
    /// Its number, as `Error::Stalled` names it.
    pub reader: usize,
    /// Log records it is behind, in the shard where it is furthest behind; `None` while it is
    /// parked.
    pub behind: Option<u64>,
    /// Its lookups that found a live entry, as of its last sync, including those of earlier readers
    /// with its number.
    pub hits: u64,
    /// Its lookups that did not, as of its last sync.
    pub misses: u64,
}

impl Stats {
    pub(crate) fn collect(shared: &Shared) -> Result<Stats, Error> {
        let lookups: Vec<_> = shared.lookups.iter().map(|lookups| lookups.0.read()).collect();
        let shards = shared.shards.len() as u64;
        let config = shared.shards[0].config();
        let mut stats = Stats {
            budget_bytes: shared.budget,
            entries_max: shared.limits.entries_max * shards,
            charge_bytes_max: shared.limits.charge_max / CHARGE_UNITS * shards,
            log_records: config.log_records as u64 * shards,
            hits: lookups.iter().map(|each| each.hits).sum(),
            misses: lookups.iter().map(|each| each.misses).sum(),
            stale_hits: lookups.iter().map(|each| each.stale_hits).sum(),
            expired_misses: lookups.iter().map(|each| each.expired_misses).sum(),
            ..Stats::default()
        };
        for shard in &shared.shards {
            let mut guard = shard.lock()?;
            with_engine(shard, &mut guard, |engine| stats.add_shard(engine, &lookups));
        }
        let ways = (config.buckets * larder_mem::WAYS) as u64 * shards;
        stats.index_load = stats.entries as f64 / ways as f64;
        Ok(stats)
    }

    fn add_shard(&mut self, engine: &mut Engine<'_>, lookups: &[Lookups]) {
        engine.main.reclaim();
        let (limbo_slots, limbo_bytes) = engine.main.limbo();
        let (revoked_slots, lease_bytes) = engine.main.leased();
        let (pages, counts) = (engine.main.page_use(), engine.state.counts);
        self.entries += engine.state.policy.len();
        self.charge_bytes += engine.main.live_charge() / CHARGE_UNITS;
        let (weight, weight_max) = engine.weight();
        self.weight += weight;
        self.weight_max += weight_max;
        self.inserted += counts.inserted;
        self.updated += counts.updated;
        self.removed += counts.removed;
        self.refused += counts.refused;
        self.evicted += counts.evicted;
        self.evicted_expired += counts.evicted_expired;
        self.conflicts += counts.conflicts;
        self.moved_slots += counts.moved_slots;
        self.reported += counts.reported;
        self.hits += counts.lookups.hits;
        self.misses += counts.lookups.misses;
        self.expired_misses += counts.lookups.expired_misses;
        self.limbo_slots += limbo_slots;
        self.limbo_bytes += limbo_bytes;
        self.revoked_slots += revoked_slots;
        self.lease_bytes += lease_bytes;
        self.log_position += engine.main.position().records();
        self.pages.total += pages.total;
        self.pages.free += pages.free;
        self.pages.draining += pages.draining;
        self.pages.owned_bytes += pages.owned_bytes;
        for (number, class) in engine.main.class_use().enumerate() {
            match self.classes.get_mut(number) {
                Some(sum) => {
                    sum.pages += class.pages;
                    sum.slots_used += class.slots_used;
                    sum.slots_live += class.slots_live;
                }
                None => self.classes.push(ClassUse {
                    slot_bytes: class.slot_bytes,
                    pages: class.pages,
                    slots_used: class.slots_used,
                    slots_live: class.slots_live,
                }),
            }
        }
        for lag in engine.main.lags() {
            match self.readers.iter_mut().find(|reader| reader.reader == lag.reader) {
                // The shard in which it is furthest behind.
                Some(reader) => reader.behind = reader.behind.max(lag.behind),
                None => self.readers.push(ReaderStats {
                    reader: lag.reader,
                    behind: lag.behind,
                    hits: lookups[lag.reader].hits,
                    misses: lookups[lag.reader].misses,
                }),
            }
        }
    }
}
