//! What a shard is made of, and its bytes.

use larder_mem::{Config, Memory, WAYS};

use crate::engine::Limits;
use crate::index::DISPLACED_BYTES;
use crate::policy::Policy;

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
