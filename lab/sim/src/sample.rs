//! A trace in miniature: some of its keys, in a cache as much smaller, and how far off that may be.
//!
//! After SHARDS (Waldspurger, Park, Garthwaite, Ahmad, FAST 2015) and miniature simulation (Waldspurger, Saemundsson,
//! Ahmad, Park, USENIX ATC 2017): a key is in the sample when a hash of it, below 2^32, is less than `rate * 2^32`;
//! then all its requests are, so that how often and how far apart they come is as in the whole trace. A cache
//! of `rate * capacity` serves the sample about as the whole cache serves the trace, whatever the policy.
//!
//! * **Correction** (SHARDS-adj): a few very popular keys in or out of the sample change its number of requests,
//!   but hardly its number of misses, since such keys hit. So misses are divided by the requests that a sample
//!   *should* have, `rate * gets`, not by those it has.
//! * **Error**: the sample is cut by other bits of the hash into [`SUBSAMPLES`] disjoint ones, each with caches of
//!   its own. The estimate is their mean; the error is Student's interval of 95 % for that mean. Thus it covers
//!   luck with keys, measured and not assumed. It does not cover what all miniatures share: a cache of a few
//!   dozen entries is coarser than a large one. Below [`ENTRIES_MIN`] entries a note states that.
//!
//! Cost: one hash a request, and `rate` of the memory and time that the whole would take. All of this is a
//! function of the trace and a seed.

use std::collections::HashSet;
use std::str::FromStr;

use crate::trace::random::mix;

/// Disjoint samples that one estimate is made of.
pub const SUBSAMPLES: usize = 8;

/// Student's quantile for 95 % on both sides, with one degree of freedom less than [`SUBSAMPLES`].
const STUDENT_95: f64 = 2.364_624;

/// Entries of a miniature below which its estimate is coarse.
pub const ENTRIES_MIN: u64 = 128;

/// Sampled keys that `auto` wants at least.
const KEYS_WANTED: f64 = 65_536.0;

/// Where this large a part would be sampled, the whole is taken.
const RATE_NOT_WORTH_IT: f64 = 0.25;

/// How much of a trace is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Sampling {
    /// All of it.
    #[default]
    Whole,
    /// This part of the keys, above 0 and below 1.
    Rate(f64),
    /// As few keys as will do (see [`rate_for`]).
    Auto,
}

impl FromStr for Sampling {
    type Err = String;

    /// `auto`, a rate as `0.01` or `1%`, or `1` for the whole.
    fn from_str(text: &str) -> Result<Sampling, String> {
        if text == "auto" {
            return Ok(Sampling::Auto);
        }
        let (digits, scale) = match text.strip_suffix('%') {
            Some(digits) => (digits, 0.01),
            None => (text, 1.0),
        };
        match digits.trim().parse::<f64>().map(|number| number * scale) {
            Ok(1.0) => Ok(Sampling::Whole),
            Ok(rate) if (1e-6..1.0).contains(&rate) => Ok(Sampling::Rate(rate)),
            _ => Err("expected auto, or a part of the keys from 0.000001 to 1, or in %".to_owned()),
        }
    }
}

/// The rate for a trace of about `distinct` keys whose smallest cache has `entries_least`: every miniature has
/// [`ENTRIES_MIN`] entries, and the sample some 65,536 keys. `None` where the whole trace had better be taken.
pub fn rate_for(distinct: f64, entries_least: f64) -> Option<f64> {
    let entries = (ENTRIES_MIN * SUBSAMPLES as u64) as f64;
    let rate = (entries / entries_least.max(1.0)).max(KEYS_WANTED / distinct.max(1.0));
    (rate < RATE_NOT_WORTH_IT).then_some(rate)
}

/// Says which keys are sampled.
#[derive(Debug, Clone, Copy)]
pub struct Sampler {
    threshold: u64,
    salt: u64,
}

impl Sampler {
    /// For a part of the keys above 0 and at most 1.
    pub fn new(rate: f64, seed: u64) -> Sampler {
        let threshold = (rate * 2f64.powi(32)).round() as u64;
        Sampler { threshold: threshold.clamp(1, 1 << 32), salt: mix(seed) }
    }

    /// The part that is sampled, to the precision of the threshold.
    pub fn rate(&self) -> f64 {
        self.threshold as f64 / 2f64.powi(32)
    }

    /// The sub-sample that a key is in, if any.
    #[inline]
    pub fn subsample(&self, key: u64) -> Option<usize> {
        let hash = mix(mix(key) ^ self.salt);
        (hash >> 32 < self.threshold).then_some(hash as usize % SUBSAMPLES)
    }
}

/// An estimate, and how far off it may be (95 %).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// What is believed, from 0 to 1.
    pub value: f64,
    /// Half the interval.
    pub error: f64,
}

/// The miss ratio of the whole from the misses of each sub-sample, when the whole trace has `gets` lookups (or
/// both in bytes) and `rate` of its keys were sampled.
pub fn miss_ratio(misses: &[u64; SUBSAMPLES], gets: u64, rate: f64) -> Estimate {
    let parts = SUBSAMPLES as f64;
    let expected = gets as f64 * rate / parts;
    let ratios = misses.map(|misses| misses as f64 / expected);
    let mean = ratios.iter().sum::<f64>() / parts;
    let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / (parts - 1.0);
    Estimate { value: mean.min(1.0), error: STUDENT_95 * (variance / parts).sqrt() }
}

/// Counts different keys in bounded memory: exact up to [`Distinct::KEPT_MAX`], then within a percent or so.
///
/// Keys are kept whose hash is below a threshold, which is halved when they are too many (Wegman's adaptive
/// sampling: Flajolet, Computing 43, 1990).
#[derive(Debug, Default)]
pub struct Distinct {
    kept: HashSet<u64, foldhash::fast::RandomState>,
    halvings: u32,
}

impl Distinct {
    /// Keys that are kept.
    pub const KEPT_MAX: usize = 1 << 17;

    /// A key came, for the first time or not.
    #[inline]
    pub fn add(&mut self, key: u64) {
        let hash = mix(key);
        if hash.leading_zeros() < self.halvings || !self.kept.insert(hash) {
            return;
        }
        // Ends at the latest when only the hash 0 may stay.
        while self.kept.len() > Self::KEPT_MAX {
            self.halvings += 1;
            let halvings = self.halvings;
            self.kept.retain(|hash| hash.leading_zeros() >= halvings);
        }
    }

    /// How many there were, about.
    pub fn estimate(&self) -> f64 {
        self.kept.len() as f64 * 2f64.powi(self.halvings as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part sampled is the part asked for, cut into equal sub-samples, and another seed takes other keys.
    #[test]
    fn samples_are_of_their_size() {
        let (sampler, other) = (Sampler::new(0.1, 1), Sampler::new(0.1, 2));
        let mut sizes = [0u32; SUBSAMPLES];
        let mut both = 0;
        for key in 0..800_000u64 {
            if let Some(subsample) = sampler.subsample(key) {
                sizes[subsample] += 1;
                both += u32::from(other.subsample(key).is_some());
            }
        }
        // Five standard deviations of a binomial around 10,000, and around 8,000.
        assert!(sizes.iter().all(|size| (9_500..10_500).contains(size)), "{sizes:?}");
        assert!((7_550..8_450).contains(&both), "{both}");
        assert!((sampler.rate() - 0.1).abs() < 1e-9);
    }

    /// Rates are read with and without a percent sign; what is no part is refused.
    #[test]
    fn rates_are_read() {
        assert_eq!("auto".parse(), Ok(Sampling::Auto));
        assert_eq!("1%".parse(), Ok(Sampling::Rate(0.01)));
        assert_eq!("0.25".parse(), Ok(Sampling::Rate(0.25)));
        assert_eq!("100%".parse(), Ok(Sampling::Whole));
        for text in ["", "0", "2", "-0.1", "nan", "inf", "1e-9", "one"] {
            assert!(text.parse::<Sampling>().is_err(), "{text}");
        }
    }

    /// Automatic rates keep miniatures above their least size and small traces whole.
    #[test]
    fn automatic_rates_are_large_enough() {
        assert_eq!(rate_for(1e5, 1e4), None, "a third of the keys would be needed");
        assert_eq!(rate_for(1e8, 1e7), Some(65_536.0 / 1e8));
        assert_eq!(rate_for(1e8, 1e4), Some(0.1024));
    }

    /// Equal sub-samples leave no error, unequal ones Student's; the count is corrected, not the misses.
    #[test]
    fn misses_are_divided_by_what_should_have_come() {
        let even = miss_ratio(&[50; SUBSAMPLES], 8_000, 0.1);
        assert_eq!((even.value, even.error), (0.5, 0.0));
        let odd = miss_ratio(&[40, 60, 40, 60, 40, 60, 40, 60], 8_000, 0.1);
        // Deviations of 0.1: variance 8 / 7 * 0.01, of the mean an eighth.
        assert!((odd.value - 0.5).abs() < 1e-12);
        assert!((odd.error - STUDENT_95 * (0.01f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    /// Exact while few, near when many.
    #[test]
    fn distinct_keys_are_counted() {
        let mut distinct = Distinct::default();
        (0..100_000u64).chain(0..100_000).for_each(|key| distinct.add(key));
        assert_eq!(distinct.estimate(), 100_000.0);
        (0..1_000_000u64).for_each(|key| distinct.add(key));
        assert!((distinct.estimate() / 1e6 - 1.0).abs() < 0.02, "{}", distinct.estimate());
    }
}
