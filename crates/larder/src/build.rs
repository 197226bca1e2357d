//! Builds a cache: divides one budget, once.
//!
//! ```text
//! budget >= arena + page books + (1 + readers_max) x index + log + side tables
//! arena   = entries' pages + reserve (1/32 and 4 pages, at least 8)
//! ```
//!
//! The side tables are the policy's (a record per index way, and for `Partitioned` the table of
//! evicted keys), the counts of displaced entries, and a buffer of read reports per reader.
//!
//! A cache of S shards is S times this, each with 1/S of the budget. The hashes of keys decide
//! which keys compete for room.
//!
//! Live entries are charged against the entries' pages only. The first entry of a size is charged
//! one more page, which covers the last, partly filled page of that size. The reserve covers
//! retired slots that readers still hold, and slots that writers hold. So neither decides whether
//! an insert has room, and unused sizes cost nothing. A page is 1/256 of the arena, from 1 to 64
//! KiB; the largest value fills one page, up to 32 KiB.

mod shape;
mod weigher;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use larder_mem::sync::CacheLines;
use larder_mem::{Memory, Shard, WAYS};
use parking_lot::Mutex;

use crate::cache::Cache;
use crate::engine::{Counts, State, Weights};
use crate::error::Error;
use crate::evicted::{Batch, Evicted, Listener, Notifier};
use crate::feedback::epoch_shift;
use crate::hash::Hasher;
use crate::index::{Displaced, IndexMode, Placement};
use crate::lookups::PublishedLookups;
use crate::policy::Policy;
use crate::position::POSITION_SHARDS;
use crate::shared::{Shared, VALUE_BYTES_MAX};
use crate::time::{Seconds, SyncMode, Ticks};
use shape::{ENTRY_BYTES_MORE_MAX, page_bytes_for};
pub(crate) use weigher::Weigher;

/// Shards of a cache, at most. One shard takes about ten million writes a second.
const SHARDS_MAX: usize = 64;
/// Shards that a cache has by default, at most (`docs/decisions/0007`).
const SHARDS_CHOSEN_MAX: usize = 4;
/// Budget per shard, at least, before there are more shards. It has pages for the longest values,
/// and one page per size class is a small part of it.
const SHARD_BUDGET_MIN: u64 = 32 << 20;

/// Shards for each core of a cache for many cores, so that two seldom want the same one at once.
const SHARDS_PER_CORE: usize = 4;
/// Pages of such a cache, at least, in bytes. With smaller ones, the spare slots of many writers are most of what a
/// shard has free (`docs/decisions/0025`).
const PAGE_BYTES_MIN_CORES: usize = 4 << 10;
/// Its pages where [`Builder::value_bytes_max`] is not stated: almost enough for the longest values.
const PAGE_BYTES_UNSTATED: usize = 32 << 10;
/// The budget of its shards, at least, for each byte of their pages: of 128-byte entries, two thirds are arena, which
/// then has the pages that it should have.
const SHARD_BUDGET_PER_PAGE_BYTE: u64 = 384;
/// The budget of its shards, at least, for each reader, of which there are as many as writers.
const SHARD_BUDGET_PER_READER: u64 = 192 << 10;

/// Entries per shard of a cache that limits their number, at least: how many keys a shard gets varies by the square
/// root of that, and a full one evicts.
const SHARD_ENTRIES_MIN: u64 = 4096;

/// The settings of a cache. See [`Cache::builder`].
#[derive(Debug, Clone)]
pub struct Builder {
    budget: u64,
    readers_max: usize,
    readers_counted: Option<usize>,
    /// `None`: as many as the budget allows.
    shards: Option<usize>,
    /// Then for this number of cores; `None`: whatever their number.
    cores: Option<usize>,
    seed: u64,
    entry_bytes_mean: usize,
    value_bytes_max: Option<usize>,
    entries_max: Option<u64>,
    lag_operations: usize,
    policy: Policy,
    feedback: bool,
    stale: Seconds,
    sync: SyncMode,
    listener: Option<Listener>,
    /// The listener gets removed and replaced entries, too.
    reports_removals: bool,
    lease_bytes_max: u64,
    index_mode: IndexMode,
    weigher: Option<weigher::AnyWeigher>,
    /// Of entries with weights: their sum, at most.
    weight_max: Option<u64>,
}

impl Cache {
    /// Begins to configure a cache.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            budget: 64 << 20,
            readers_max: 4,
            readers_counted: None,
            shards: None,
            cores: None,
            seed: 0x1a7d_e25e_ed00_0001,
            entry_bytes_mean: 128,
            value_bytes_max: None,
            entries_max: None,
            lag_operations: 0,
            policy: Policy::default(),
            feedback: true,
            stale: Seconds(0),
            sync: SyncMode::Periodic(Ticks::ms(10)),
            listener: None,
            reports_removals: false,
            lease_bytes_max: 0,
            index_mode: IndexMode::Replicated,
            weigher: None,
            weight_max: None,
        }
    }
}

impl Builder {
    /// Limits the memory of the cache, everything counted. Default: 64 MiB.
    pub fn budget(mut self, bytes: u64) -> Self {
        self.budget = bytes;
        self
    }

    /// Limits how many readers exist at once, 1 to 1024. The budget pays for an index replica of
    /// each, so this decides how many entries fit. Runs that must agree on their entries need the
    /// same number here, however many readers they create. Default: 4.
    pub fn readers_max(mut self, count: usize) -> Self {
        self.readers_max = count;
        self
    }

    /// Sets the number of shards: a power of two up to 64, and up to 8 with
    /// [`IndexMode::Replicated`]. Each has an equal part of the keys and of the budget, its own lock
    /// and its own log, so more shards let more cores write at once. An entry competes for room
    /// within its shard. So this number decides what is evicted, how small the budget may be, and how
    /// long values may be on a small budget. Default: up to 4, with at least 32 MiB and, of
    /// [`Builder::entries_max`], 4,096 entries each; the number of cores has no influence (but for
    /// [`crate::Map::builder`] and [`crate::ObjectMap::builder`]).
    pub fn shards(mut self, count: usize) -> Self {
        self.shards = Some(count);
        self
    }

    /// Chooses as many shards as this number of cores may write to at once without meeting often,
    /// unless [`Builder::shards`] states their number.
    pub(crate) fn for_cores(mut self, cores: usize) -> Self {
        self.cores = Some(cores);
        self
    }

    /// Seeds the hash. The same seed and operations result in the same entries. The default is
    /// fixed and public. If keys come from untrusted sources and runs need not repeat, use
    /// [`Builder::random_seed`].
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Seeds the hash with a secret random number, so that no attacker can choose keys that compete
    /// for the same buckets. [`crate::Map::new`] does this.
    pub fn random_seed(self) -> Self {
        // The hasher of the standard library has keys from the system's random numbers.
        let seed = RandomState::new().hash_one(0x6c61_7264_6572_u64);
        self.seed(seed)
    }

    /// States the size of an average entry, key and value and 8 more bytes, 16 to 4096. It divides
    /// the budget between memory and index: smaller entries fill the index first, larger ones the
    /// memory. Default: 128.
    pub fn entry_bytes_mean(mut self, bytes: usize) -> Self {
        self.entry_bytes_mean = bytes;
        self
    }

    /// States how long values are at most, up to 32 KiB ([`crate::VALUE_BYTES_MAX`]). Of a map's key with
    /// more than 254 bytes, those after the first 247 count as value, and 4 more. Then such values are stored even on
    /// a budget that is so small that they were too large for its pages, and longer ones where they happen to fit; a
    /// budget that is smaller still is refused. If values are short, a [`crate::Map`] with a small budget has more
    /// shards, so that more cores write at once. Default: not stated; [`crate::Map::builder`] states it where both
    /// types have a fixed length.
    pub fn value_bytes_max(mut self, bytes: usize) -> Self {
        self.value_bytes_max = Some(bytes);
        self
    }

    /// Limits the number of entries, in addition to their bytes. Each shard has an equal part, rounded down, and
    /// evicts when that is used up: with 4,096 entries a shard, when 97 of 100 are there, and with fewer in more
    /// shards ([`Builder::shards`]) earlier. The index is no larger than for that many. Default: as many as the
    /// budget holds.
    pub fn entries_max(mut self, count: u64) -> Self {
        self.entries_max = Some(count);
        self
    }

    /// Sets how many operations of the mean entry size can be applied while a reader does not sync,
    /// before writes return [`Error::Stalled`]; up to 16 million. The budget of each shard pays for
    /// their memory and log, since all of them may go to one shard. If readers stay at a position
    /// while a batch is written, give the size of the batch.
    ///
    /// Default: 0, a 32nd of the memory and at least 8 pages. About a third of that is available when
    /// the sizes of values change all the time, because each size has some free slots of its own.
    pub fn lag_operations(mut self, count: usize) -> Self {
        self.lag_operations = count;
        self
    }

    /// Sets how long after it expired [`crate::Reader::get_stale`] still returns an entry
    /// (serve-expired in RFC 8767, grace in Varnish). Expired entries are replaced like any other,
    /// so they take no room from fresh ones. Default: 0, never.
    pub fn stale(mut self, window: Seconds) -> Self {
        self.stale = window;
        self
    }

    /// Sets when readers show what writers have published. Default: [`SyncMode::Periodic`], 10 ms.
    pub fn sync(mut self, mode: SyncMode) -> Self {
        self.sync = mode;
        self
    }

    /// Calls `listener` with every entry that is evicted; for those that are removed or replaced see
    /// [`Builder::on_removed`]. A cache has one listener, the last that was set. The thread whose
    /// write evicted them makes the calls, before that write returns and without a lock. Entries
    /// are copied for it: at most 256, or 64 KiB and the evictions of one write, at a time.
    ///
    /// The listener may use the cache through any API. Evictions by its own writes are reported
    /// too, by the outermost call and after the listener returned. A listener that inserts on every
    /// eviction would never end. So within one outermost call it may insert four times for each
    /// entry to report, and 16 times more; further inserts fail with [`Error::ListenerInserts`]. If
    /// the listener panics, the write is done, and the next operation that evicts reports the
    /// remaining entries.
    pub fn on_evicted(mut self, listener: impl Fn(Evicted<'_>) + Send + Sync + 'static) -> Self {
        self.listener = Some(Listener(Arc::new(listener)));
        self.reports_removals = false;
        self
    }

    /// As [`Builder::on_evicted`], and calls `listener` also with every entry that a caller removes
    /// ([`crate::Cause::Removed`]) or replaces ([`crate::Cause::Replaced`]). So each value that was
    /// stored is reported once when it leaves, except by the drop of the cache. Costs a copy of the
    /// old value for each write.
    pub fn on_removed(mut self, listener: impl Fn(Evicted<'_>) + Send + Sync + 'static) -> Self {
        self = self.on_evicted(listener);
        self.reports_removals = true;
        self
    }

    /// Limits the bytes that all [`crate::Reader::lease`]s hold together, an equal part in each
    /// shard; up to 8 GiB. A leased value may be replaced, so the budget reserves room for it.
    /// Default: 0, no leases.
    pub fn lease_bytes_max(mut self, bytes: u64) -> Self {
        self.lease_bytes_max = bytes;
        self
    }

    /// Sets which index readers look keys up in: a replica each, or the one index that they share.
    /// Default: [`IndexMode::Replicated`].
    pub fn index_mode(mut self, mode: IndexMode) -> Self {
        self.index_mode = mode;
        self
    }

    /// Sets how many readers the budget pays for; the index replicas of further readers are not in
    /// the budget. Default: all. For programs whose results must not depend on the number of cores:
    /// the entries that fit then depend on this number alone.
    pub fn readers_counted(mut self, count: usize) -> Self {
        self.readers_counted = Some(count);
        self
    }

    /// Sets which entries are evicted, in each shard separately. Default: [`Policy::Partitioned`].
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets whether readers report reads to the policy, at their [`sync`](crate::Reader::sync).
    /// Evictions then depend on which reader reads and syncs when. Without reports only writes
    /// count, a `get` writes nothing at all, and the same operations result in the same entries.
    /// [`Policy::Fifo`] uses no reports. Default: true.
    pub fn feedback(mut self, reports: bool) -> Self {
        self.feedback = reports;
        self
    }

    /// Maps the memory. If the budget is too small, the error states one that is large enough.
    pub fn build(self) -> Result<Cache, Error> {
        self.check_settings()?;
        self.check_addresses(usize::BITS)?;
        let shards = self.shard_count();
        let shape = self.shape()?;
        let config = shape.config;
        let placement = Placement::new(config.buckets, shards);
        let hasher = Hasher::new(self.seed);
        let report_shift = self.wants_reads().then(|| epoch_shift(shape.limits.entries_max));
        let memory = Memory::new(shards * shape.mapped_bytes()).map_err(Error::Memory)?;
        let shard = |_| -> Result<_, Error> {
            let state = State {
                placement,
                hasher,
                displaced: Displaced::new(&memory, config.buckets)?,
                policy: self.policy.build(
                    &memory,
                    config.buckets * WAYS,
                    shape.limits.entries_max,
                )?,
                limits: shape.limits,
                stale: self.stale.0,
                counts: Counts::default(),
                drain_rest: 0,
                weights: self.shard_weight_max().map(Weights::new),
                evicted: self.listener.is_some().then(Batch::default),
                reports_removals: self.reports_removals,
            };
            Ok(Arc::new(Shard::new_in(&memory, config, state)?))
        };
        Ok(Cache::new(Shared {
            shards: (0..shards).map(shard).collect::<Result<_, _>>()?,
            placement,
            hasher,
            budget: self.budget,
            limits: shape.limits,
            stale: self.stale.0,
            sync: self.sync,
            notifier: self.listener.map(Notifier::new),
            slot_bytes_max: config.page_bytes.min(ENTRY_BYTES_MORE_MAX + VALUE_BYTES_MAX),
            queue_bytes_max: usize::try_from(shape.reserve_bytes / 8).unwrap_or(usize::MAX),
            report_shift,
            lookups: (0..self.readers_max)
                .map(|_| CacheLines(PublishedLookups::default()))
                .collect(),
            reader_ids: Mutex::new(vec![false; self.readers_max].into()),
        }))
    }

    fn check_settings(&self) -> Result<(), Error> {
        if !(1..=1024).contains(&self.readers_max) {
            return Err(Error::Setting("readers_max must be 1 to 1024"));
        }
        if !(16..=4096).contains(&self.entry_bytes_mean) {
            return Err(Error::Setting("entry_bytes_mean must be 16 to 4096"));
        }
        if self.lag_operations > 1 << 24 {
            return Err(Error::Setting("lag_operations must be at most 16777216"));
        }
        if self.value_bytes_max.is_some_and(|bytes| bytes > VALUE_BYTES_MAX) {
            return Err(Error::Setting("value_bytes_max must be at most 32768"));
        }
        // The number of shards follows from these.
        let shards = self.shard_count();
        if !shards.is_power_of_two() || shards > SHARDS_MAX {
            return Err(Error::Setting("shards must be a power of two, 1 to 64"));
        }
        if shards > POSITION_SHARDS && self.index_mode == IndexMode::Replicated {
            return Err(Error::Setting("more than 8 shards need IndexMode::Shared"));
        }
        if self.entries_max.is_some_and(|count| count < shards as u64) {
            return Err(Error::Setting("entries_max must be at least 1, and 1 for each shard"));
        }
        if self.weigher.is_some() {
            return Err(Error::Setting("a weigher is for a map of objects"));
        }
        if self.lease_bytes_max > 8 << 30 {
            return Err(Error::Setting("lease_bytes_max must be at most 8 GiB"));
        }
        if self.shard_budget() > 16 << 30 {
            return Err(Error::Setting("a budget is at most 16 GiB per shard"));
        }
        Ok(())
    }

    /// Refuses a configuration that addresses of `address_bits` cannot reach. Any budget that
    /// passes is below half of all addresses. Products of numbers that need not fit the budget are
    /// computed in 64 bits.
    fn check_addresses(&self, address_bits: u32) -> Result<(), Error> {
        if self.budget.max(self.lease_bytes_max) >= 1 << (address_bits - 1) {
            return Err(Error::Setting(
                "the budget or lease_bytes_max exceeds half of this machine's addresses; \
                 on 32 bits give less than 2 GiB",
            ));
        }
        Ok(())
    }

    pub(crate) fn has_listener(&self) -> bool {
        self.listener.is_some()
    }

    fn wants_reads(&self) -> bool {
        self.feedback && self.policy.wants_reads()
    }

    fn readers_paid(&self) -> usize {
        self.readers_counted.unwrap_or(self.readers_max)
    }

    fn shard_count(&self) -> usize {
        if let Some(count) = self.shards {
            return count;
        }
        let (wanted, budget_min) = match self.cores {
            None => (SHARDS_CHOSEN_MAX, SHARD_BUDGET_MIN),
            // The same on any machine: an object weighs as much as a shard holds, at most.
            Some(_) if self.weight_max.is_some() => (SHARDS_CHOSEN_MAX, self.shard_budget_min(0)),
            Some(cores) => {
                (cores.saturating_mul(SHARDS_PER_CORE), self.shard_budget_min(self.readers_max))
            }
        };
        let is_shared = self.index_mode == IndexMode::Shared;
        let most = wanted.min(if is_shared { SHARDS_MAX } else { POSITION_SHARDS });
        let of_entries = self.entries_max.map_or(u64::MAX, |count| count / SHARD_ENTRIES_MIN);
        let budget = self.budget.saturating_sub(self.lease_bytes_max);
        let carried = (budget / budget_min).min(of_entries).clamp(1, most as u64) as usize;
        1 << carried.ilog2()
    }

    /// What a shard of a cache for many cores needs at least: pages for the longest values, and what each shard pays
    /// for all of `lag_operations`, and for readers that have writers.
    fn shard_budget_min(&self, readers: usize) -> u64 {
        let page_bytes = self.value_bytes_max.map_or(PAGE_BYTES_UNSTATED, page_bytes_for);
        let page_bytes = page_bytes.max(PAGE_BYTES_MIN_CORES) as u64;
        let of_readers = readers as u64 * SHARD_BUDGET_PER_READER;
        (page_bytes * SHARD_BUDGET_PER_PAGE_BYTE).max(of_readers) + self.lag_bytes()
    }

    /// The budget of one shard, in bytes.
    fn shard_budget(&self) -> u64 {
        self.budget / self.shard_count().max(1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::KEY_BYTES_MAX;

    /// For any budget, the shape costs at most the budget and uses most of it.
    #[test]
    fn budget_is_kept_and_used() {
        for (readers, policy) in [(1, Policy::Fifo), (2, Policy::Partitioned), (9, Policy::Fifo)] {
            for shift in 20..32 {
                for budget in [(1u64 << shift) - 1, 1 << shift, 3 << (shift - 1)] {
                    let builder = Builder::default().budget(budget).readers_max(readers);
                    let builder = builder.policy(policy);
                    let shape = builder.shape().unwrap();
                    let budget = builder.shard_budget();
                    let bytes = shape.bytes(readers);
                    assert!(bytes <= budget && bytes * 100 >= budget * 93, "{bytes} of {budget}");
                }
            }
        }
    }

    /// The error for a budget that is too small states one that is large enough.
    #[test]
    fn too_small_is_refused() {
        let builder = Builder::default().budget(1000);
        let Err(Error::BudgetTooSmall { bytes_min, .. }) = builder.build() else {
            panic!("1000 bytes can't hold a cache");
        };
        Builder::default().budget(bytes_min).build().unwrap();
        assert!(Builder::default().budget(bytes_min / 2).build().is_err());
    }

    /// More than eight shards need a shared index. Chosen by the number of cores, they can be built in
    /// either mode, and take the longest values.
    #[test]
    fn many_shards_share_an_index() {
        for (shards, mode, is_built) in [
            (8, IndexMode::Replicated, true),
            (16, IndexMode::Replicated, false),
            (64, IndexMode::Shared, true),
            (128, IndexMode::Shared, false),
        ] {
            let builder = Builder::default().shards(shards).index_mode(mode);
            assert_eq!(builder.build().is_ok(), is_built, "{shards} {mode:?}");
        }
        for (mode, chosen) in [(IndexMode::Replicated, 8), (IndexMode::Shared, 64)] {
            let builder = Builder::default().for_cores(64).budget(8 << 30).index_mode(mode);
            assert_eq!(builder.shard_count(), chosen, "{mode:?}");
            builder.shape().unwrap();
            for budget in [12u64 << 20, 64 << 20, 100 << 20, 1 << 30] {
                let builder = Builder::default().for_cores(16).budget(budget).index_mode(mode);
                assert!(builder.build().unwrap().value_bytes_max(16) >= 32_700, "{budget}");
            }
        }
    }

    /// Short values need no large pages, so a small budget for many cores has more shards. Shards that pay for much lag
    /// are fewer.
    #[test]
    fn short_values_have_more_shards() {
        let builder = Builder::default().for_cores(2).index_mode(IndexMode::Shared);
        let builder = builder.budget(16 << 20);
        assert_eq!(builder.shard_count(), 1);
        for (stated, chosen) in [(8, 8), (2000, 8), (10_000, 2), (VALUE_BYTES_MAX, 1)] {
            let builder = builder.clone().value_bytes_max(stated);
            assert_eq!(builder.shard_count(), chosen, "{stated}");
            builder.build().unwrap();
        }
        let lagging = builder.value_bytes_max(8).lag_operations(10_000);
        assert_eq!(lagging.shard_count(), 4);
        lagging.clone().build().unwrap();
        let lending = lagging.lag_operations(0).lease_bytes_max(14 << 20);
        assert_eq!(lending.shard_count(), 1);
        lending.build().unwrap();
    }

    /// Where values of the stated length don't fit, the budget is refused.
    #[test]
    fn stated_values_fit() {
        for budget in [100 << 10, 1 << 20, 5 << 20, 100 << 20] {
            for stated in [0, 100, 1000, 5000, 20_000, VALUE_BYTES_MAX] {
                let builder = Builder::default().value_bytes_max(stated);
                let cache = match builder.clone().budget(budget).build() {
                    Err(Error::BudgetTooSmall { bytes_min, .. }) => {
                        assert!(bytes_min > budget, "{bytes_min} for {stated}");
                        builder.budget(bytes_min).build().unwrap()
                    }
                    built => built.unwrap(),
                };
                assert!(cache.value_bytes_max(KEY_BYTES_MAX) >= stated, "{stated} in {budget}");
            }
        }
        for builder in [Builder::default(), Builder::default().for_cores(16)] {
            for bytes in [VALUE_BYTES_MAX + 1, 1 << 30, usize::MAX / 4 + 1, usize::MAX] {
                for builder in [
                    builder.clone().value_bytes_max(bytes),
                    builder.clone().entry_bytes_mean(bytes),
                    builder.clone().lag_operations(bytes.saturating_mul(1 << 10)),
                ] {
                    assert!(matches!(builder.build(), Err(Error::Setting(_))), "{bytes}");
                }
            }
        }
    }

    /// A 32-bit machine refuses budgets and leases that its addresses do not reach. Of the largest
    /// remaining shape, every length fits in half of its addresses, for any policy, mean, lag and
    /// number of readers.
    #[test]
    fn shapes_fit_addresses_of_32_bits() {
        for budget in [1u64 << 31, 1 << 32, 5 << 30, 9 << 30, u64::MAX] {
            assert!(Builder::default().budget(budget).check_addresses(32).is_err(), "{budget}");
            assert!(Builder::default().lease_bytes_max(budget).check_addresses(32).is_err());
        }
        let budget = (1u64 << 31) - 1;
        for policy in [Policy::Partitioned, Policy::Fifo] {
            for (mean, shards, readers) in [(16, 1, 1), (128, 4, 16), (4096, 8, 1024)] {
                for lag in [0, 1 << 24] {
                    let builder = Builder::default().budget(budget).policy(policy).shards(shards);
                    let builder = builder.readers_max(readers).entry_bytes_mean(mean);
                    let builder = builder.lag_operations(lag).lease_bytes_max(budget / 4);
                    builder.check_addresses(32).unwrap();
                    let Ok(shape) = builder.shape() else { continue };
                    assert!(shape.bytes(readers) * shards as u64 <= budget);
                    let mapped = shape.mapped_bytes() as u64 * shards as u64;
                    assert!(mapped < 1 << 31, "{policy:?} {mean} {shards} {readers}: {mapped}");
                }
            }
        }
        // No shape is this large, and computing that does not overflow.
        let huge = Builder::default().readers_counted(usize::MAX);
        assert!(matches!(huge.build(), Err(Error::BudgetTooSmall { .. })));
    }
}
