//! Values in buckets that are as wide as one part in 32 of what they hold: percentiles of any number of values in
//! a fixed room.
//!
//! Values below 32 have buckets of their own; above, each power of two has 32. So a percentile is off by 3 % at most.
//! Bounds: 15 KiB, whatever is noted. Cost: a few shifts a value; a walk over the buckets a percentile.

/// Buckets a power of two, as a power of two.
const PARTS_SHIFT: u32 = 5;

/// Buckets a power of two.
const PARTS: usize = 1 << PARTS_SHIFT;

const BUCKETS: usize = PARTS * (u64::BITS - PARTS_SHIFT + 1) as usize;

/// Values of one kind.
#[derive(Debug, Clone)]
pub struct Spread {
    buckets: Box<[u64]>,
    count: u64,
    max: u64,
}

impl Default for Spread {
    fn default() -> Spread {
        Spread { buckets: vec![0; BUCKETS].into_boxed_slice(), count: 0, max: 0 }
    }
}

/// The bucket of a value.
fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(PARTS_SHIFT + 1);
    (shift as usize) * PARTS + (value >> shift) as usize
}

/// The least value of a bucket.
fn least(bucket: usize) -> u64 {
    if bucket < 2 * PARTS {
        return bucket as u64;
    }
    let shift = bucket / PARTS - 1;
    ((bucket % PARTS + PARTS) as u64) << shift
}

impl Spread {
    /// Notes a value.
    pub fn note(&mut self, value: u64) {
        self.buckets[bucket(value)] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    /// How many were noted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The value at a place in the order, counted from 0, or a little less; the largest where there are fewer.
    fn at(&self, place: u64) -> u64 {
        let mut before = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            before += count;
            if before > place {
                return least(bucket).min(self.max);
            }
        }
        self.max
    }

    /// The value that a share (0 to 1) of all is not above; 0 where there is none.
    pub fn percentile(&self, share: f64) -> u64 {
        self.at(place(share, self.count))
    }
}

/// The place in the order of `count` values at which a share of them has passed.
fn place(share: f64, count: u64) -> u64 {
    ((share * count as f64).ceil() as u64).saturating_sub(1).min(count.saturating_sub(1))
}

/// Values that may be below 0.
#[derive(Debug, Clone, Default)]
pub struct SignedSpread {
    below: Spread,
    from_zero: Spread,
}

impl SignedSpread {
    /// Notes a value.
    pub fn note(&mut self, value: i64) {
        if value < 0 { &mut self.below } else { &mut self.from_zero }.note(value.unsigned_abs());
    }

    /// How many were noted.
    pub fn count(&self) -> u64 {
        self.below.count() + self.from_zero.count()
    }

    /// The value that a share (0 to 1) of all is not above; 0 where there is none.
    pub fn percentile(&self, share: f64) -> i64 {
        let place = place(share, self.count());
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        match place.checked_sub(self.below.count()) {
            Some(place) => signed(self.from_zero.at(place)),
            None => -signed(self.below.at(self.below.count() - 1 - place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A percentile is the one of the sorted values, or less by 1 part in 32.
        #[test]
        fn percentiles_are_near(
            mut values in proptest::collection::vec(any::<i64>().prop_map(|it| it >> (it & 63)), 1..200),
            percent in 0..=100_u32,
        ) {
            let (mut spread, mut signed) = (Spread::default(), SignedSpread::default());
            for &value in &values {
                spread.note(value.unsigned_abs());
                signed.note(value);
            }
            let share = f64::from(percent) / 100.0;
            let at = place(share, values.len() as u64) as usize;
            values.sort_unstable();
            let (exact, told) = (values[at], signed.percentile(share));
            prop_assert!(told.unsigned_abs() <= exact.unsigned_abs());
            prop_assert!(exact.abs_diff(told) <= exact.unsigned_abs() / 32, "{exact} {told}");
            values.sort_unstable_by_key(|value| value.unsigned_abs());
            let (exact, told) = (values[at].unsigned_abs(), spread.percentile(share));
            prop_assert!(told <= exact && exact - told <= exact / 32, "{exact} {told}");
            prop_assert_eq!(spread.count(), values.len() as u64);
        }
    }

    /// The ends of what can be noted have buckets, and nothing is told of nothing.
    #[test]
    fn ends() {
        let mut spread = Spread::default();
        assert_eq!((spread.percentile(0.5), spread.max(), spread.count()), (0, 0, 0));
        spread.note(u64::MAX);
        spread.note(0);
        assert_eq!((spread.percentile(0.0), spread.max()), (0, u64::MAX));
        let mut signed = SignedSpread::default();
        assert_eq!(signed.percentile(0.5), 0);
        signed.note(i64::MIN);
        assert!(signed.percentile(1.0) < -(i64::MAX / 33 * 32));
    }
}
