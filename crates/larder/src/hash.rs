//! A seeded 64-bit hash for short keys: folded 64 x 64 -> 128-bit multiplications, 16 bytes per
//! step.
//!
//! Keys come from the network, so the seed takes part in every step. Collisions cost little: a
//! bucket holds ten entries, keys are always compared, and a flood of colliding keys can only evict
//! itself.

/// The hash of a key, for the cache that computed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub(crate) u64);

impl KeyHash {
    /// All 64 bits, for the caller's own tables.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Odd constants without structure: the fractional parts of the square roots of 2, 3 and 5.
const SALT: [u64; 3] = [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b];

/// Computes hashes. The same seed gives the same hashes everywhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hasher {
    seed: u64,
    step: u64,
}

impl Hasher {
    pub fn new(seed: u64) -> Self {
        let seed = fold(seed ^ SALT[0], SALT[1]);
        Hasher { seed, step: fold(seed ^ SALT[2], SALT[0]) | 1 }
    }

    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let mut state = self.seed ^ (key.len() as u64).wrapping_mul(SALT[2]);
        let mut rest = key;
        while rest.len() > 16 {
            state = fold(word(rest) ^ state, word(&rest[8..]) ^ self.step);
            rest = &rest[16..];
        }
        // The last 1 to 16 bytes, as two words that may overlap.
        let (first, last) = match rest.len() {
            8.. => (word(rest), word(&rest[rest.len() - 8..])),
            4.. => (half(rest), half(&rest[rest.len() - 4..])),
            1.. => {
                let middle = rest[rest.len() / 2];
                (u64::from(rest[0]) | u64::from(middle) << 8, u64::from(rest[rest.len() - 1]))
            }
            0 => (0, 0),
        };
        state = fold(first ^ state, last ^ self.step);
        KeyHash(fold(state ^ SALT[0], self.step ^ SALT[1]))
    }
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The first eight bytes; the caller has checked that `bytes` has them.
#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// The first four bytes; the caller has checked that `bytes` has them.
#[inline(always)]
fn half(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |chunk| u64::from(u32::from_le_bytes(*chunk)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that differ in one bit or only in length differ in hash, and so do seeds.
    #[test]
    fn small_changes_show() {
        let hasher = Hasher::new(1);
        let mut seen = std::collections::HashSet::new();
        for len in 0..80usize {
            let zeroes = vec![0u8; len];
            assert!(seen.insert(hasher.hash(&zeroes).0));
            for bit in 0..len * 8 {
                let mut key = zeroes.clone();
                key[bit / 8] |= 1 << (bit % 8);
                assert!(seen.insert(hasher.hash(&key).0), "{len} bytes, bit {bit}");
            }
        }
        assert_ne!(hasher.hash(b"example.org"), Hasher::new(2).hash(b"example.org"));
    }

    /// Consecutive addresses fill buckets and tags evenly: no bit of the hash is stuck or biased.
    #[test]
    fn bits_are_even() {
        let hasher = Hasher::new(7);
        let mut ones = [0u32; 64];
        for address in 0u32..65_536 {
            let hash = hasher.hash(&address.to_be_bytes()).0;
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += (hash >> bit) as u32 & 1;
            }
        }
        assert!(ones.iter().all(|count| (31_500..34_000).contains(count)), "{ones:?}");
    }
}
