//! How long something took, many times over, in little memory: a histogram for percentiles.
//!
//! A time falls into one of `BUCKETS` buckets: exact below 8 ns, above that eight for each
//! doubling, so that a percentile is at most one eighth too large. It is never too small.
//!
//! Bound: 4 KiB, none before the first time. Cost: a few instructions a time.

use std::time::Duration;

/// Buckets for each doubling.
const STEPS: u64 = 8;
const STEP_BITS: u32 = STEPS.ilog2();
/// Buckets in all: enough for every `u64` of nanoseconds.
const BUCKETS: usize = (STEPS * (64 - STEP_BITS as u64 + 1)) as usize;

/// Times, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// By [`bucket_of`]; empty until something was counted.
    buckets: Vec<u64>,
    count: u64,
}

impl Latencies {
    /// Counts one time.
    pub fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets.resize(BUCKETS, 0);
        self.buckets[bucket_of(ns)] += 1;
        self.count += 1;
    }

    /// Adds what another counted.
    pub fn add(&mut self, other: &Latencies) {
        if other.count > 0 {
            self.buckets.resize(BUCKETS, 0);
        }
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += count;
        }
        self.count += other.count;
    }

    /// Times counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time that a share of all (0.99) did not exceed, ns; `None` when nothing was counted.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let wanted = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map(longest_in)
    }
}

/// The bucket of a time in ns.
fn bucket_of(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    // The leading one and the bits below it that choose the step.
    let shift = ns.ilog2() - STEP_BITS;
    (u64::from(shift) * STEPS + (ns >> shift)) as usize
}

/// The longest time in a bucket, ns.
fn longest_in(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    let step = STEPS + bucket % STEPS;
    (step << shift) | ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every time lies in a bucket whose longest time is not shorter, and at most an eighth
        /// longer; buckets are in the order of times.
        #[test]
        fn a_bucket_is_narrow(ns in any::<u64>(), shift in 0u32..64) {
            let ns = ns >> shift;
            let longest = longest_in(bucket_of(ns));
            prop_assert!(longest >= ns && longest - ns <= ns / STEPS);
            prop_assert_eq!(bucket_of(longest), bucket_of(ns));
            if let Some(next) = longest.checked_add(1) {
                prop_assert_eq!(bucket_of(next), bucket_of(ns) + 1);
            }
        }

        /// A percentile is that of the sorted list, within the width of a bucket, also when
        /// several workers counted.
        #[test]
        fn percentiles_are_those_of_the_list(
            mut times in prop::collection::vec(0u64..1 << 40, 1..200),
            cut in 0usize..200,
            share in 0.0f64..1.0,
        ) {
            let mut parts = [Latencies::default(), Latencies::default()];
            for (at, ns) in times.iter().enumerate() {
                parts[usize::from(at < cut)].record(Duration::from_nanos(*ns));
            }
            let [mut all, other] = parts;
            all.add(&other);
            times.sort_unstable();
            let at = ((times.len() as f64 * share).ceil() as usize).max(1) - 1;
            let got = all.quantile_ns(share).expect("something was counted");
            prop_assert_eq!(all.count(), times.len() as u64);
            prop_assert_eq!(got, longest_in(bucket_of(times[at])));
        }
    }

    /// Nothing counted is nothing, and the longest time of all has a bucket.
    #[test]
    fn the_ends_are_sound() {
        assert_eq!(Latencies::default().quantile_ns(0.5), None);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        let mut one = Latencies::default();
        one.record(Duration::MAX);
        assert_eq!(one.quantile_ns(0.999), Some(u64::MAX));
    }
}
