//! The weights of a shard's entries, where a program gives each one ([`crate::Builder::weigher`]).
//!
//! The last four bytes of a value are its weight, little-endian. So the weight is where the entry is, and is the
//! same when it leaves.
//!
//! Invariants
//! 1. `sum` is the sum of the weights of the live entries, and between two operations at most `max`.
//!
//! Cost: an insert evicts entries of its own weight at most, all under one lock. Without weights it is one branch.

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
    /// room: the caller has refused others.) Log room for `records` more remains reserved. How many entries leave is
    /// not known before, so that on `Stalled` some may have been evicted.
    #[inline]
    pub(super) fn make_lighter(
        &mut self,
        slot: &OwnedSlot,
        replaced: Option<(usize, usize)>,
        (now, records): (Seconds, u64),
    ) -> Result<(), Stalled> {
        if self.state.weights.is_none() {
            return Ok(());
        }
        let weight = weight_of(self.shard.value_of(slot));
        let freed = replaced.map_or(0, |(bucket, way)| self.weight_at(bucket, way));
        let except = replaced.map(|(bucket, way)| super::number(bucket, way));
        while self.state.weights.is_some_and(|Weights { sum, max }| sum - freed + weight > max) {
            self.main.reserve(2 + records)?;
            if !self.evict(except, now) {
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
