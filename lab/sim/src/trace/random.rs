//! Random numbers that are the same everywhere and in every version: published results must be reproducible.
//!
//! SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): a
//! counter through a bijection of 64 bits. Cost: about a nanosecond a number.

pub use larder_bench::data::mix;

/// The step of the counter: the golden ratio of 2^64, made odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed; seeds that differ in a bit give streams that have nothing in common.
    pub const fn new(seed: u64) -> Random {
        Random(mix(seed))
    }

    /// The stream of a counter that begins at `counter`.
    pub const fn from_counter(counter: u64) -> Random {
        Random(counter)
    }

    /// The next 64 bits.
    #[inline(always)]
    pub const fn next_u64(&mut self) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        number
    }

    /// A number below `limit` (0 where that is 0), and 64 bits more that have nothing to do with it: the
    /// two halves of a product. No number is more than 2^-64 likelier than another.
    #[inline(always)]
    pub const fn below(&mut self, limit: u64) -> (u64, u64) {
        let product = self.next_u64() as u128 * limit as u128;
        ((product >> 64) as u64, product as u64)
    }
}

/// The bijection that hides what a number meant: identifiers made of ranks have nothing in common with them.
#[inline(always)]
pub const fn scramble(number: u64, seed: u64) -> u64 {
    mix(number ^ mix(seed ^ 0x6c61_7264_6572))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator is the published one: the first numbers of the counter that starts at 0 are those that
    /// every implementation of SplitMix64 gives for seed 0.
    #[test]
    fn is_splitmix64() {
        let mut random = Random(0);
        assert_eq!(random.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next_u64(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(random.next_u64(), 0x06c4_5d18_8009_454f);
    }

    /// Numbers stay below the limit and reach all of it, evenly.
    #[test]
    fn below_is_even() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 10];
        (0..100_000).for_each(|_| counts[random.below(10).0 as usize] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert_eq!(random.below(0).0, 0);
        assert_eq!(random.below(1).0, 0);
    }
}
