//! The weights of a shard's entries, where a program gives each one ([`crate::Builder::weigher`]).
//!
//! The last four bytes of a value are its weight, little-endian. So the weight is where the entry is, and is the
//! same when it leaves.
//!
//! Invariants
//! 1. `sum` is the sum of the weights of the live entries, and between two operations at most `max`.
//!
//! Cost: an insert evicts entries that weigh as much as its own, and one more, all under one lock. Without weights it
//! is a branch.

use larder_mem::{OwnedSlot, Stalled};

use super::Engine;
use crate::time::Seconds;

/// Bytes of a weight.
pub(crate) const WEIGHT_BYTES: usize = 4;

/// What the entries of a shard weigh.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights {
    sum: u64,
    max: u64,
}

impl Weights {
    pub fn new(max: u64) -> Self {
        Weights { sum: 0, max }
    }
}

/// The weight of a value that has one.
fn weight_of(value: &[u8]) -> u64 {
    value.last_chunk::<WEIGHT_BYTES>().map_or(0, |weight| u32::from_le_bytes(*weight).into())
}

impl Engine<'_> {
    /// The sum of the weights of all entries, and its limit.
    pub fn weight(&self) -> (u64, u64) {
        self.state.weights.map_or((0, 0), |Weights { sum, max }| (sum, max))
    }

    /// Evicts until there is room for the weight of a new entry, instead of the one at `replaced`. (Alone it has
    /// room: the caller has refused others.) How many entries leave is not known before, so that on `Stalled` some may
    /// have been evicted. Those that leave do not depend on what the policy remembers of the new one.
    #[inline]
    pub(super) fn make_lighter(
        &mut self,
        slot: &OwnedSlot,
        replaced: Option<(usize, usize)>,
        now: Seconds,
    ) -> Result<(), Stalled> {
        if self.state.weights.is_none() {
            return Ok(());
        }
        let weight = weight_of(self.shard.value_of(slot));
        let freed = replaced.map_or(0, |(bucket, way)| self.weight_at(bucket, way));
        let except = replaced.map(|(bucket, way)| super::number(bucket, way));
        while self.state.weights.is_some_and(|Weights { sum, max }| sum - freed + weight > max) {
            self.main.reserve(2)?;
            let is_evicted = self.evict(except, now);
            debug_assert!(is_evicted, "what weighs too much has entries");
            if !is_evicted {
                break;
            }
        }
        Ok(())
    }

    /// Counts an entry that was placed (invariant 1).
    #[inline]
    pub(super) fn add_weight(&mut self, bucket: usize, way: usize) {
        if self.state.weights.is_some() {
            let weight = self.weight_at(bucket, way);
            self.state.weights.iter_mut().for_each(|weights| weights.sum += weight);
        }
    }

    /// Counts an entry that is about to leave, or to be replaced (invariant 1).
    #[inline]
    pub(super) fn subtract_weight(&mut self, bucket: usize, way: usize) {
        if self.state.weights.is_some() {
            let weight = self.weight_at(bucket, way);
            self.state.weights.iter_mut().for_each(|weights| weights.sum -= weight);
        }
    }

    fn weight_at(&self, bucket: usize, way: usize) -> u64 {
        self.main.slot(bucket, way).map_or(0, |slot| weight_of(slot.value()))
    }

    /// Checks invariant 1.
    pub(super) fn validate_weights(&self) -> Result<(), String> {
        let Some(Weights { sum, max }) = self.state.weights else { return Ok(()) };
        let ways = (0..self.main.buckets())
            .flat_map(|bucket| (0..larder_mem::WAYS).map(move |way| (bucket, way)));
        let actual: u64 = ways.map(|(bucket, way)| self.weight_at(bucket, way)).sum();
        if actual != sum || sum > max {
            return Err(format!("entries weigh {actual}, counted are {sum} of {max}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use larder_testkit::random::Random;

    use super::*;
    use crate::build::Builder;
    use crate::cache::Cache;
    use crate::condition::When;
    use crate::error::Error;
    use crate::evicted::Batch;
    use crate::expiry::Ends;

    const NOW: Seconds = Seconds(1);

    fn put(cache: &Cache, number: u64, weight: u32) -> Result<bool, Error> {
        let value = [number.to_le_bytes().as_slice(), &weight.to_le_bytes()].concat();
        let value = (&value[..], Ends::NEVER);
        cache.put(&number.to_le_bytes(), value, When::Always, NOW, &mut Batch::default())
    }

    /// An entry for which more must leave than the log has room for stalls, stays away, and gets its place when the
    /// reader syncs. Meanwhile some have left.
    #[test]
    fn one_for_many_that_leave() {
        let builder =
            Builder::default().budget(4 << 20).shards(1).readers_max(1).on_evicted(|_| {});
        let mut builder = builder.weigher(20_000, |_: &u32| 0);
        builder.take_weigher::<u32>().unwrap();
        let cache = builder.build().unwrap();
        for number in 0..20_000 {
            put(&cache, number, 1).unwrap();
        }
        let entries = |cache: &Cache| cache.stats().unwrap().entries;
        let before = cache.stats().unwrap();
        assert!(before.entries > 15_000 && before.weight == before.entries);
        let mut reader = cache.reader().unwrap();
        let mut stalls = 0;
        while let Err(error) = put(&cache, 1 << 40, 20_000) {
            assert!(matches!(error, Error::Stalled { .. }), "{error}");
            cache.validate().unwrap();
            assert!(cache.stats().unwrap().weight == entries(&cache));
            stalls += 1;
            reader.sync();
            assert!(reader.get(&(1u64 << 40).to_le_bytes(), NOW).is_none());
        }
        cache.validate().unwrap();
        let stats = cache.stats().unwrap();
        assert!(stalls > 0 && (stats.entries, stats.weight) == (1, 20_000), "{stalls} {stats:?}");
        assert_eq!(stats.evicted, before.evicted + before.entries);
    }

    /// What replaces an entry that leaves no room evicts others, never that one first; the sum is right at each step.
    #[test]
    fn sums_are_right_at_each_step() {
        let mut builder = Builder::default().budget(1 << 20).shards(1).weigher(100, |_: &u32| 0);
        builder.take_weigher::<u32>().unwrap();
        let cache = builder.build().unwrap();
        let mut random = Random(1);
        for step in 0..3000 {
            let (number, weight) = (random.below(50), random.below(101) as u32);
            if step % 7 == 0 {
                let key = number.to_le_bytes();
                cache.remove(&key, When::Always, NOW, &mut Batch::default()).unwrap();
            } else {
                put(&cache, number, weight).unwrap();
            }
            cache.validate().unwrap();
        }
        assert!(cache.stats().unwrap().evicted > 100);
    }
}
