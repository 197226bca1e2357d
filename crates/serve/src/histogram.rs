//! A histogram: percentiles of any number of values in a fixed amount of memory.
//!
//! Values below 64 have their own buckets; above, each power of two has 32. So a percentile is off
//! by at most 3 %. hdrhistogram does the same with 64 KiB for each, or grows while it counts. This
//! histogram is filled in loops over packets.
//!
//! Bounds: 15 KiB, and nothing before the first value. Cost: a few shifts a value; a walk over the
//! buckets a percentile.

/// Buckets a power of two, as a power of two.
const PARTS_SHIFT: u32 = 5;

/// Buckets a power of two.
const PARTS: usize = 1 << PARTS_SHIFT;

/// Buckets in all: enough for every `u64`.
const BUCKETS: usize = PARTS * (u64::BITS - PARTS_SHIFT + 1) as usize;

/// Values of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// By [`bucket_of`]; empty until something was counted.
    buckets: Vec<u64>,
    count: u64,
    max: u64,
}

impl Histogram {
    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        self.buckets.resize(BUCKETS, 0);
        self.buckets[bucket_of(value)] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count > 0 {
            self.buckets.resize(BUCKETS, 0);
        }
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += count;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest value; 0 without values.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Least and largest that the value at a place in the order, counted from 0, may be; twice the
    /// largest of all where there are fewer.
    pub fn at(&self, place: u64) -> (u64, u64) {
        let mut before = 0;
        let found = self.buckets.iter().position(|count| {
            before += count;
            before > place
        });
        let Some(bucket) = found else { return (self.max, self.max) };
        let least = least_of(bucket);
        // The last bucket has no next.
        let last = least | ((1 << (bucket / PARTS).saturating_sub(1)) - 1);
        (least, last.min(self.max))
    }

    /// The value that a share (0 to 1) of all values do not exceed, or up to 3 % more; 0 without
    /// values.
    pub fn percentile(&self, share: f64) -> u64 {
        self.at(place(share, self.count)).1
    }
}

/// The place in the order of `count` values at which a share of them has passed.
pub fn place(share: f64, count: u64) -> u64 {
    ((share * count as f64).ceil() as u64).saturating_sub(1).min(count.saturating_sub(1))
}

/// The bucket of a value.
#[inline]
fn bucket_of(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(PARTS_SHIFT + 1);
    (shift as usize) * PARTS + (value >> shift) as usize
}

/// The least value of a bucket.
fn least_of(bucket: usize) -> u64 {
    if bucket < 2 * PARTS {
        return bucket as u64;
    }
    ((bucket % PARTS + PARTS) as u64) << (bucket / PARTS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every value lies in a bucket that is at most a 32nd wide; buckets are in the order of values.
        #[test]
        fn a_bucket_is_narrow(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut one = Histogram::default();
            one.add(value);
            one.add(u64::MAX);
            let (least, last) = one.at(0);
            prop_assert!(least <= value && value <= last && last - least <= value / 32);
            prop_assert_eq!(bucket_of(least), bucket_of(last));
            if let Some(next) = last.checked_add(1) {
                prop_assert_eq!(bucket_of(next), bucket_of(value) + 1);
            }
        }

        /// A percentile is that of the sorted list, within the width of a bucket, also when several counted.
        #[test]
        fn percentiles_are_those_of_the_list(
            mut values in prop::collection::vec(0u64..1 << 40, 1..200),
            cut in 0usize..200,
            percent in 0..=100_u32,
        ) {
            let mut parts = [Histogram::default(), Histogram::default()];
            for (at, value) in values.iter().enumerate() {
                parts[usize::from(at < cut)].add(*value);
            }
            let [mut all, other] = parts;
            all.merge(&other);
            let share = f64::from(percent) / 100.0;
            values.sort_unstable();
            let at = place(share, values.len() as u64);
            let (exact, reported) = (values[at as usize], all.percentile(share));
            prop_assert!(reported >= exact && reported - exact <= exact / 32, "{exact} {reported}");
            prop_assert!(all.at(at).0 <= exact);
            prop_assert_eq!((all.count(), all.max()), (values.len() as u64, values[values.len() - 1]));
        }
    }

    /// An empty histogram returns 0, and the largest possible value has a bucket.
    #[test]
    fn ends() {
        let mut all = Histogram::default();
        assert_eq!((all.percentile(0.5), all.max(), all.count()), (0, 0, 0));
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        all.add(u64::MAX);
        all.add(0);
        assert_eq!((all.percentile(0.0), all.percentile(0.999)), (0, u64::MAX));
    }
}
