//! Percentiles, also of differences: values that may be below 0.

use larder_serve::histogram::{Histogram, place};

/// The value that a share (0 to 1) of all values do not exceed, or up to 3 % less; 0 without
/// values.
pub fn percentile(of: &Histogram, share: f64) -> u64 {
    of.at(place(share, of.count())).0
}

/// Values that may be below 0.
#[derive(Debug, Clone, Default)]
pub struct SignedSpread {
    below: Histogram,
    from_zero: Histogram,
}

impl SignedSpread {
    /// Adds a value.
    pub fn note(&mut self, value: i64) {
        if value < 0 { &mut self.below } else { &mut self.from_zero }.add(value.unsigned_abs());
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.below.count() + self.from_zero.count()
    }

    /// The value that a share (0 to 1) of all values do not exceed; 0 without values.
    pub fn percentile(&self, share: f64) -> i64 {
        let place = place(share, self.count());
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        match place.checked_sub(self.below.count()) {
            Some(place) => signed(self.from_zero.at(place).0),
            None => -signed(self.below.at(self.below.count() - 1 - place).0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A percentile is the one of the sorted values, or nearer to 0 by 1 part in 32.
        #[test]
        fn percentiles_are_near(
            mut values in proptest::collection::vec(any::<i64>().prop_map(|it| it >> (it & 63)), 1..200),
            percent in 0..=100_u32,
        ) {
            let mut signed = SignedSpread::default();
            for &value in &values {
                signed.note(value);
            }
            let share = f64::from(percent) / 100.0;
            let at = place(share, values.len() as u64) as usize;
            values.sort_unstable();
            let (exact, reported) = (values[at], signed.percentile(share));
            prop_assert!(reported.unsigned_abs() <= exact.unsigned_abs());
            prop_assert!(exact.abs_diff(reported) <= exact.unsigned_abs() / 32, "{exact} {reported}");
        }
    }

    /// The largest and smallest values have buckets, and without values all percentiles are 0.
    #[test]
    fn ends() {
        let mut signed = SignedSpread::default();
        assert_eq!(signed.percentile(0.5), 0);
        signed.note(i64::MIN);
        assert!(signed.percentile(1.0) < -(i64::MAX / 33 * 32));
    }
}
