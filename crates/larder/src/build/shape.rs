//! What a shard is made of, and its bytes.

use larder_mem::{
    CHARGE_UNITS, Classes, Config, HEADER_BYTES, Memory, RECORD_BYTES, VERSION_BYTES, WAYS,
};

use super::{Builder, PAGE_BYTES_MIN_CORES};
use crate::engine::{Limits, RECORDS_MAX};
use crate::error::Error;
use crate::feedback::FEEDBACK_BYTES;
use crate::index::DISPLACED_BYTES;
use crate::policy::Policy;
use crate::shared::KEY_BYTES_MAX;

/// Log records per operation, on average, at most: an entry, an eviction, and a mask for one in
/// five of each.
const RECORDS_MEAN: usize = 3;

/// Ways of ten that may be in use. At this load the index has no conflicts.
const WAYS_USED: usize = 8;

const PAGE_BYTES_MAX: usize = 64 << 10;
const PAGE_BYTES_MIN: usize = 1 << 10;
/// Pages that an arena should have before its pages grow.
const PAGES_MIN: usize = 256;
/// Fewer pages for entries than this make no useful cache.
const PAGES_ENTRIES_MIN: usize = 16;
/// Pages of the reserve, at least.
const RESERVE_PAGES_MIN: usize = 8;
/// Free slots of a class that a writer of a map (`Map::insert_many`) takes at a time: this part of
/// the reserve, for each of as many writers as readers. Those of eight classes are then a quarter of
/// it, or with the fewest bytes more. If writers that pause hold most of it, others search
/// for each slot (`docs/decisions/0025`).
const SPARE_PARTS: usize = 32;
const SPARE_BYTES_MIN: usize = 128;
const SPARE_BYTES_MAX: usize = 2048;
/// The smallest slot that is leased in place, in bytes. Copying a smaller value costs about as much
/// as counting a lease.
const LEASE_SLOT_BYTES: usize = 1 << 10;

/// Bytes of an entry besides its value, at most: the header, the key, and what an [`Expiry`](crate::Expiry) adds.
pub(super) const ENTRY_BYTES_MORE_MAX: usize = HEADER_BYTES + KEY_BYTES_MAX + VERSION_BYTES;

/// Memory that no other part counts: the handle, the locks, the class tables.
const FIXED_BYTES: usize = 16 << 10;

/// The parts of a shard's budget.
pub(super) struct Shape {
    pub config: Config,
    pub limits: Limits,
    pub reserve_bytes: u64,
    pub policy: Policy,
    /// For each reader.
    pub feedback_bytes: usize,
}

impl Shape {
    /// The length of a shard's mapping, in bytes.
    pub fn mapped_bytes(&self) -> usize {
        let numbers = self.config.buckets * WAYS;
        self.config.main_bytes()
            + Memory::bytes_for::<u64>(self.config.buckets)
            + self.policy.mapped_bytes(numbers, self.limits.entries_max)
    }

    /// The bytes of a shard with the index replicas of this many readers.
    pub fn bytes(&self, readers: usize) -> u64 {
        let buckets = self.config.buckets;
        let policy = self.policy.bytes(buckets * WAYS, self.limits.entries_max);
        let side = (buckets * DISPLACED_BYTES) as u64 + policy as u64;
        let config = Config { readers_max: readers, ..self.config };
        let each = 256 + self.feedback_bytes;
        (config.bytes())
            .saturating_add(side)
            .saturating_add((readers as u64).saturating_mul(each as u64))
            .saturating_add(FIXED_BYTES as u64)
    }
}

impl Builder {
    /// The largest shape of a shard that fits the budget.
    pub(super) fn shape(&self) -> Result<Shape, Error> {
        let (mut page_bytes, page_bytes_min) = (PAGE_BYTES_MAX, self.page_bytes_min());
        while page_bytes > page_bytes_min {
            let shape = self.largest(page_bytes);
            if let Some(shape) = shape.filter(|shape| shape.config.pages >= PAGES_MIN) {
                return Ok(shape);
            }
            page_bytes /= 2;
        }
        self.largest(page_bytes).ok_or_else(|| Error::BudgetTooSmall {
            bytes: self.budget,
            bytes_min: self
                .smallest()
                .bytes(self.readers_paid())
                .saturating_mul(self.shard_count() as u64),
        })
    }

    fn smallest(&self) -> Shape {
        let page_bytes = self.page_bytes_min();
        self.shape_of(page_bytes, self.pages_min(page_bytes))
    }

    /// The most pages of `page_bytes` that fit, by bisection; the rest of the shape follows from
    /// them.
    fn largest(&self, page_bytes: usize) -> Option<Shape> {
        let fits = |pages| {
            self.shape_of(page_bytes, pages).bytes(self.readers_paid()) <= self.shard_budget()
        };
        let mut low = self.pages_min(page_bytes);
        let mut high = (self.shard_budget() / page_bytes as u64) as usize + 1;
        if high <= low || !fits(low) {
            return None;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            *(if fits(middle) { &mut low } else { &mut high }) = middle;
        }
        Some(self.shape_of(page_bytes, low))
    }

    /// Bytes that the leases of one shard may hold.
    fn shard_lease_bytes(&self) -> u64 {
        self.lease_bytes_max.div_ceil(self.shard_count() as u64)
    }

    fn pages_min(&self, page_bytes: usize) -> usize {
        let entries = PAGES_ENTRIES_MIN + Classes::new(page_bytes).count();
        self.reserve_pages(page_bytes, entries) + entries
    }

    /// With room for the longest value that the settings state.
    fn page_bytes_min(&self) -> usize {
        let stated = self.value_bytes_max.map_or(PAGE_BYTES_MIN, page_bytes_for);
        let is_one_of_many =
            self.cores.is_some() && self.shards.is_none() && self.shard_count() > 1;
        if is_one_of_many { stated.max(PAGE_BYTES_MIN_CORES) } else { stated }
    }

    /// Bytes that each shard has for `lag_operations` alone: their slots, a quarter larger than the mean, and their
    /// part of the log.
    pub(super) fn lag_bytes(&self) -> u64 {
        let log_bytes = self.lag_operations as u64 * (RECORDS_MEAN * RECORD_BYTES) as u64;
        // The log is rounded up to a power of two.
        self.lag_slot_bytes() + 2 * log_bytes
    }

    fn lag_slot_bytes(&self) -> u64 {
        self.lag_operations as u64 * self.entry_bytes_mean as u64 * 5 / 4
    }

    /// Pages for retired slots that readers still hold. An insert that evicts retires one slot; a
    /// quarter more is for slots larger than the mean.
    fn reserve_pages(&self, page_bytes: usize, pages: usize) -> usize {
        let lag_bytes = self.lag_slot_bytes();
        // Below 2^24 operations of 4 KiB and 8 GiB of leases, so the pages are fewer than 2^27.
        let pages_of = |bytes: u64| bytes.div_ceil(page_bytes as u64) as usize;
        (pages / 32).max(RESERVE_PAGES_MIN)
            + pages_of(lag_bytes)
            + pages_of(self.shard_lease_bytes())
    }

    /// Bytes that sizes near the mean, up to a third smaller or larger, are charged besides their
    /// entries. This is an estimate, so that the index is not built for entries that the memory
    /// won't hold.
    fn opened_bytes(&self, classes: &Classes) -> u64 {
        let near = self.entry_bytes_mean * 2 / 3..=self.entry_bytes_mean * 4 / 3;
        let openings = (0..classes.count() as u8)
            .filter(|&class| near.contains(&classes.size(class)))
            .map(|class| classes.opening(class));
        openings.sum::<u64>() / CHARGE_UNITS
    }

    /// Free slots of a class that a writer takes at a time, of a reserve of these bytes.
    fn spare_bytes(&self, reserve_bytes: u64) -> usize {
        if self.cores.is_none() {
            return SPARE_BYTES_MAX;
        }
        let share = reserve_bytes / (self.readers_max * SPARE_PARTS) as u64;
        share.clamp(SPARE_BYTES_MIN as u64, SPARE_BYTES_MAX as u64) as usize
    }

    fn shape_of(&self, page_bytes: usize, pages: usize) -> Shape {
        let classes = Classes::new(page_bytes);
        let reserve = self.reserve_pages(page_bytes, pages);
        let entry_pages = pages.saturating_sub(reserve);
        let entry_bytes = entry_pages as u64 * page_bytes as u64;
        let charge_max = entry_bytes * CHARGE_UNITS;
        let entries =
            entry_bytes.saturating_sub(self.opened_bytes(&classes)) / self.entry_bytes_mean as u64;
        let entries_max =
            self.entries_max.map_or(u64::MAX, |count| count / self.shard_count() as u64);
        // Each of at least 16 bytes, in at most 16 GiB.
        let buckets = entries.min(entries_max).div_ceil(WAYS_USED as u64).max(2) as usize;
        let all = 0..classes.count() as u8;
        let charge_min = classes.charge(0);
        let charge_of_one = |class| classes.charge(class) + classes.opening(class);
        let evictions_max = all.map(charge_of_one).max().unwrap_or(0).div_ceil(charge_min) as usize;
        let records_min =
            2 * evictions_max + 4 * RECORDS_MAX as usize + RECORDS_MEAN * self.lag_operations;
        let records_of_arena = (pages as u64 * page_bytes as u64 / 2048) as usize;
        let log_records = records_min.max(records_of_arena).next_power_of_two();
        Shape {
            config: Config {
                page_bytes,
                pages,
                buckets,
                log_records,
                readers_max: self.readers_max,
                index_mode: self.index_mode.into(),
                copy_buckets: 1024,
                lease_bytes_max: self.shard_lease_bytes(),
                lease_slot_bytes: LEASE_SLOT_BYTES,
            },
            limits: Limits {
                charge_max,
                entries_max: entries_max.min((buckets * WAYS_USED) as u64),
                charge_min,
                // With all of it, slots would be moved when no reader is behind.
                pages_low: (reserve * 3 / 4) as u32,
                spare_bytes: self.spare_bytes(reserve as u64 * page_bytes as u64),
            },
            reserve_bytes: reserve as u64 * page_bytes as u64,
            policy: self.policy,
            feedback_bytes: if self.wants_reads() { FEEDBACK_BYTES } else { 0 },
        }
    }
}

/// The smallest pages with room for a value of this length, however long its key and whatever its expiry.
pub(super) fn page_bytes_for(value_len: usize) -> usize {
    (ENTRY_BYTES_MORE_MAX + value_len).next_power_of_two().max(PAGE_BYTES_MIN)
}
