//! The entries that every contestant stores, and the orders in which they are asked for.
//!
//! A number makes a key of 16 bytes, as an address pair has, and a value of 8 to 38 bytes, 22.6 on
//! average, as a domain name has. The value begins with its number, so that every answer can be checked.
//! Everything is a function of numbers and seeds: no run differs from another.

/// A key.
pub type Key = [u8; KEY_BYTES];

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;

/// Bytes of the longest value.
pub const VALUE_BYTES_MAX: usize = 38;

/// Bytes of key and value, on average.
pub const PAYLOAD_BYTES_MEAN: f64 = KEY_BYTES as f64 + 22.6;

/// The key of a number.
#[inline(always)]
pub fn key(number: u32) -> Key {
    let number = u64::from(number);
    (u128::from(number) | (u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64))
        .to_be_bytes()
}

/// Room for a value; what lies after the number is the same in all of them.
#[derive(Debug, Clone)]
pub struct ValueBuffer([u8; VALUE_BYTES_MAX]);

impl Default for ValueBuffer {
    fn default() -> Self {
        ValueBuffer([b'x'; VALUE_BYTES_MAX])
    }
}

impl ValueBuffer {
    /// The value of a number.
    #[inline(always)]
    pub fn value(&mut self, number: u32) -> &[u8] {
        self.0[..8].copy_from_slice(&u64::from(number).to_le_bytes());
        &self.0[..value_len(number)]
    }
}

/// Bytes of a number's value: 8 to 37 evenly, and one more for every tenth.
#[inline(always)]
pub fn value_len(number: u32) -> usize {
    let mixed = mix(u64::from(number));
    8 + (((mixed >> 32) * 30) >> 32) as usize + usize::from((mixed as u32) < u32::MAX / 10)
}

/// The number that a value begins with.
#[inline(always)]
pub fn number_of(value: &[u8]) -> u64 {
    match value.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => u64::MAX,
    }
}

/// Spreads a number over 64 bits (the finalizer of SplitMix64, Steele, Lea and Flood 2014).
#[inline(always)]
pub const fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number below `limit`, uniform, from a counter and a seed.
#[inline(always)]
pub fn scatter(seed: u64, counter: u64, limit: u32) -> u32 {
    (((mix(seed ^ counter.wrapping_mul(0xd134_2543_de82_ef95)) >> 32) * u64::from(limit)) >> 32)
        as u32
}

/// Puts a list into a random order (Fisher and Yates).
pub fn shuffle(seed: u64, list: &mut [u32]) {
    for last in (1..list.len()).rev() {
        list.swap(last, scatter(seed, last as u64, last as u32 + 1) as usize);
    }
}

/// Zipf's law over ranks `0..count`: rank r has the weight `1 / (r + 1)^exponent`.
#[derive(Debug)]
pub struct Zipf {
    /// Sums of weights up to and with each rank, as shares of the whole.
    sums: Vec<f64>,
}

impl Zipf {
    /// Adds the weights up; `count` is at least 1.
    pub fn new(count: usize, exponent: f64) -> Self {
        let mut sums: Vec<f64> = (1..=count.max(1))
            .scan(0.0, |sum, rank| {
                *sum += (rank as f64).powf(-exponent);
                Some(*sum)
            })
            .collect();
        let whole = sums[sums.len() - 1];
        sums.iter_mut().for_each(|sum| *sum /= whole);
        Zipf { sums }
    }

    /// A rank, from a counter and a seed. O(log count).
    pub fn rank(&self, seed: u64, counter: u64) -> u32 {
        let point = mix(seed ^ counter.wrapping_mul(0xd134_2543_de82_ef95)) as f64 / 2f64.powi(64);
        self.sums.partition_point(|&sum| sum < point).min(self.sums.len() - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values are as long as the pages say, begin with their number, and keys differ.
    #[test]
    fn entries_are_as_promised() {
        let mut buffer = ValueBuffer::default();
        let mut sum = 0;
        for number in 0..100_000 {
            let value = buffer.value(number);
            assert!((8..=VALUE_BYTES_MAX).contains(&value.len()));
            assert_eq!(number_of(value), u64::from(number));
            sum += value.len();
        }
        let mean = sum as f64 / 100_000.0 + KEY_BYTES as f64;
        assert!((mean - PAYLOAD_BYTES_MEAN).abs() < 0.1, "{mean}");
        assert_ne!(key(1), key(2));
    }

    /// A tenth of a thousand ranks takes 72 % of Zipf's draws at 0.99, as the sum of the weights states.
    #[test]
    fn zipf_is_skewed() {
        let zipf = Zipf::new(1000, 0.99);
        let draws = 200_000;
        let low = (0..draws).filter(|&i| zipf.rank(7, i) < 100).count() as f64 / draws as f64;
        let weight = |ranks: u32| (1..=ranks).map(|r| f64::from(r).powf(-0.99)).sum::<f64>();
        assert!((low - weight(100) / weight(1000)).abs() < 0.01, "{low}");
        assert!((0..draws).all(|i| zipf.rank(8, i) < 1000));
    }

    /// A shuffle loses nothing and keeps little in place.
    #[test]
    fn shuffle_permutes() {
        let mut list: Vec<u32> = (0..1000).collect();
        shuffle(1, &mut list);
        assert!(list.iter().enumerate().filter(|&(i, &n)| i as u32 == n).count() < 20);
        list.sort_unstable();
        assert!(list.into_iter().eq(0..1000));
    }
}
