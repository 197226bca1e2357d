//! A histogram of times: 32 steps for each doubling, so that a percentile is right to 3 %.
//!
//! Cost: an addition a time; 15 kB, whatever the count.

/// Bits of a time that are kept.
const BITS: u32 = 5;
const STEPS: usize = 1 << BITS;
/// Times up to 2^BITS have a bucket each; every doubling after that has `STEPS`.
const BUCKETS: usize = (u64::BITS - BITS + 1) as usize * STEPS;

/// How long answers took.
#[derive(Debug, Clone)]
pub struct Latency {
    counts: Box<[u64]>,
    total: u64,
    most_ns: u64,
}

impl Latency {
    /// Without times.
    pub fn new() -> Latency {
        Latency { counts: vec![0; BUCKETS].into_boxed_slice(), total: 0, most_ns: 0 }
    }

    /// Counts a time.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.most_ns = self.most_ns.max(ns);
    }

    /// Adds the times that another one counted.
    pub fn merge(&mut self, other: &Latency) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.most_ns = self.most_ns.max(other.most_ns);
    }

    /// Times that were counted.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The longest time, in nanoseconds.
    pub fn most_ns(&self) -> u64 {
        self.most_ns
    }

    /// The time that `share` (0 to 1) of the times do not exceed, in nanoseconds; 0 without times. At most
    /// 3 % above the true one, and never below it.
    pub fn percentile_ns(&self, share: f64) -> u64 {
        let rank = ((share.clamp(0.0, 1.0) * self.total as f64).ceil() as u64).max(1);
        let mut below = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return last_of(bucket).min(self.most_ns);
            }
        }
        self.most_ns
    }
}

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

/// The bucket of a time.
#[inline]
fn bucket(ns: u64) -> usize {
    let exponent = (ns | 1).ilog2();
    if exponent < BITS {
        return ns as usize;
    }
    let shift = exponent - BITS;
    (shift as usize + 1) * STEPS + (ns >> shift) as usize % STEPS
}

/// The longest time of a bucket.
fn last_of(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let shift = bucket / STEPS - 1;
    let first = ((STEPS + bucket % STEPS) as u64) << shift;
    first + ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every time lies in a bucket that ends no more than 3.2 % above it, and buckets follow one another.
    #[test]
    fn buckets_are_narrow() {
        let around = (0..64)
            .flat_map(|bit| [0, 1, 2, 3].map(|n| (1u64 << bit).wrapping_sub(2).wrapping_add(n)));
        for ns in around.chain(0..5000).chain([u64::MAX]) {
            let bucket = bucket(ns);
            assert!(bucket < BUCKETS);
            let last = last_of(bucket);
            assert!(last >= ns && last - ns <= ns / 32, "{ns} in {bucket} up to {last}");
            assert!(bucket == 0 || last_of(bucket - 1) < ns);
        }
    }

    /// Percentiles are those of the sorted times, to 3 %, and the longest time is exact.
    #[test]
    fn percentiles_are_right() {
        let mut latency = Latency::new();
        assert_eq!((latency.percentile_ns(0.5), latency.count()), (0, 0));
        (1..=10_000).for_each(|n| latency.add(n * 100));
        for (share, exact) in [(0.5, 500_000), (0.99, 990_000), (0.999, 999_000), (0.0, 100)] {
            let got = latency.percentile_ns(share);
            assert!(got >= exact && got <= exact + exact / 32, "{share}: {got}");
        }
        assert_eq!((latency.percentile_ns(1.0), latency.most_ns()), (1_000_000, 1_000_000));
        let mut twice = latency.clone();
        twice.merge(&latency);
        assert_eq!((twice.count(), twice.most_ns()), (20_000, 1_000_000));
        assert_eq!(twice.percentile_ns(0.5), latency.percentile_ns(0.5));
    }
}
