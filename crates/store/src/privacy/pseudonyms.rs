//! Crypto-PAn: pseudonyms of addresses that preserve prefixes.
//!
//! Xu, Fan, Ammar, Moon: "Prefix-Preserving IP Address Anonymization" (ICNP 2002). Bit i of the
//! pseudonym is bit i of the address, inverted if the first bit of AES(its first i bits, then
//! padding) is set. The key reverses it; known pairs reveal as much of each address that shares a
//! prefix with them.
//!
//! Cost: an AES for each bit; up to [`KEPT_MAX`] pseudonyms are cached.

use std::collections::HashMap;

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use larder_wire::Addr;

use crate::FlowKey;

/// Pseudonyms that are cached.
const KEPT_MAX: usize = 1 << 16;

/// Makes pseudonyms of addresses.
pub struct Pseudonyms {
    cipher: Aes128,
    padding: u128,
    kept: HashMap<Addr, Addr>,
}

impl std::fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pseudonyms").finish_non_exhaustive()
    }
}

impl Pseudonyms {
    /// Makes them under a key: the first half is AES's, the second makes the padding.
    pub fn new(key: &[u8; 32]) -> Pseudonyms {
        let (cipher, padding) = key.split_at(16);
        let cipher = Aes128::new_from_slice(cipher).expect("sixteen bytes are a key");
        let mut block = [0; 16];
        block.copy_from_slice(padding);
        let mut pseudonyms = Pseudonyms { cipher, padding: 0, kept: HashMap::new() };
        pseudonyms.padding = pseudonyms.encrypt(u128::from_be_bytes(block));
        pseudonyms
    }

    /// The pseudonym of an address; that of IPv4 is IPv4.
    pub fn of(&mut self, addr: Addr) -> Addr {
        if let Some(pseudonym) = self.kept.get(&addr) {
            return *pseudonym;
        }
        let value = u128::from_be_bytes(addr.0);
        let pseudonym = Addr(
            match addr.is_v4() {
                // In the highest bits, as in the algorithm.
                true => value ^ (self.turns(value << 96, 32) >> 96),
                false => value ^ self.turns(value, 128),
            }
            .to_be_bytes(),
        );
        if self.kept.len() >= KEPT_MAX {
            self.kept.clear();
        }
        self.kept.insert(addr, pseudonym);
        pseudonym
    }

    /// The key of a flow between the pseudonyms, and whether its low end was the high end before.
    pub(crate) fn of_key(&mut self, key: &FlowKey) -> (FlowKey, bool) {
        let (low, high) = (self.of(key.low), self.of(key.high));
        let is_turned = (high, key.high_port) < (low, key.low_port);
        let FlowKey { low_port, high_port, .. } = *key;
        let turned =
            FlowKey { low: high, high: low, low_port: high_port, high_port: low_port, ..*key };
        (if is_turned { turned } else { FlowKey { low, high, ..*key } }, is_turned)
    }

    /// The bits of `value` that are inverted.
    fn turns(&self, value: u128, bits: u32) -> u128 {
        let mut turns = 0;
        for bit in 0..bits {
            let prefix = match bit {
                0 => 0,
                bit => u128::MAX << (128 - bit),
            };
            let sealed = self.encrypt(value & prefix | self.padding & !prefix);
            turns |= (sealed >> 127) << (127 - bit);
        }
        turns
    }

    fn encrypt(&self, block: u128) -> u128 {
        let mut block = block.to_be_bytes().into();
        self.cipher.encrypt_block(&mut block);
        u128::from_be_bytes(block.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The key and some pairs of the authors' published sample.
    #[test]
    fn published_values() {
        let key = [
            21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16, 216, 152, 143,
            131, 121, 121, 101, 39, 98, 87, 76, 45, 42, 132, 34, 2,
        ];
        let mut pseudonyms = Pseudonyms::new(&key);
        for (addr, expected) in [
            ([128, 11, 68, 132], [135, 242, 180, 132]),
            ([129, 118, 74, 4], [134, 136, 186, 123]),
            ([130, 132, 252, 244], [133, 68, 164, 234]),
            ([141, 223, 7, 43], [141, 167, 8, 160]),
            ([141, 233, 145, 108], [141, 129, 237, 235]),
            ([152, 163, 225, 39], [151, 140, 114, 167]),
        ] {
            assert_eq!(pseudonyms.of(Addr::v4(addr)), Addr::v4(expected));
        }
    }

    proptest! {
        /// Pseudonyms share exactly as many first bits as their addresses do, in both versions; so
        /// no two are the same.
        #[test]
        fn prefixes_are_kept(one: u128, other: u128, shared in 0u32..=128, is_v4: bool, key: [u8; 32]) {
            let other = one ^ (other >> 1 | 1 << 127).checked_shr(shared).unwrap_or(0);
            let addr = |value: u128| match is_v4 {
                true => Addr::v4(((value >> 96) as u32).to_be_bytes()),
                false => Addr(value.to_be_bytes()),
            };
            let shared_bits = |one: Addr, other: Addr| {
                (u128::from_be_bytes(one.0) ^ u128::from_be_bytes(other.0)).leading_zeros()
            };
            let (one, other) = (addr(one), addr(other));
            let mut pseudonyms = Pseudonyms::new(&key);
            let (to, from) = (pseudonyms.of(one), pseudonyms.of(other));
            prop_assert_eq!(to.is_v4(), is_v4);
            prop_assert_eq!(shared_bits(to, from), shared_bits(one, other));
        }
    }
}
