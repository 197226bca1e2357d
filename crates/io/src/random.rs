//! Unpredictable numbers: source ports, message IDs, secrets (RFC 5452).
//!
//! The module reads [`STOCK_BYTES`] at a time from the kernel's generator, since a system call a
//! number would slow a miss. It wipes used numbers from the stock.
//!
//! Cost: one system call every 128 IDs. It blocks only before the kernel's generator is first
//! ready.

#[cfg_attr(any(feature = "portable", not(target_os = "linux")), path = "random/portable.rs")]
mod system;

use std::io;

/// Bytes of one request. Up to 256 the kernel gives all of them and is never interrupted.
pub const STOCK_BYTES: usize = 256;

/// Fills `bytes` from the kernel's generator.
pub fn fill(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let filled = system::random(bytes)?;
        bytes = &mut bytes[filled..];
    }
    Ok(())
}

/// A stock of random bytes, for one thread.
pub struct Random {
    stock: [u8; STOCK_BYTES],
    left: usize,
}

impl Random {
    /// An empty stock.
    pub fn new() -> Random {
        Random { stock: [0; STOCK_BYTES], left: 0 }
    }

    /// 16 bits: a port, a message ID.
    pub fn u16(&mut self) -> io::Result<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    /// 32 bits.
    pub fn u32(&mut self) -> io::Result<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    /// 64 bits.
    pub fn u64(&mut self) -> io::Result<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// A number below `bound`, each as likely as the others to one part in 2^32; 0 where `bound`
    /// is.
    pub fn below(&mut self, bound: u32) -> io::Result<u32> {
        let wide = u64::from_ne_bytes(self.take()?);
        Ok(((u128::from(wide) * u128::from(bound)) >> 64) as u32)
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        const { assert!(N <= STOCK_BYTES) };
        if self.left < N {
            fill(&mut self.stock)?;
            self.left = STOCK_BYTES;
        }
        let from = self.left - N;
        let mut taken = [0; N];
        taken.copy_from_slice(&self.stock[from..self.left]);
        // Numbers that were given out are wiped here.
        self.stock[from..self.left].fill(0);
        self.left = from;
        Ok(taken)
    }
}

impl Default for Random {
    fn default() -> Random {
        Random::new()
    }
}

/// The stock is a secret until it is given out.
impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Random").field("left", &self.left).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Numbers differ, over several stocks, and none is read from wiped bytes: 64 bits drawn 1,000
    /// times are all different, and not 0.
    #[test]
    fn numbers_differ() {
        let mut random = Random::new();
        let drawn: HashSet<u64> = (0..1000).map(|_| random.u64().unwrap()).collect();
        assert_eq!(drawn.len(), 1000);
        assert!(!drawn.contains(&0));
    }

    /// Bounded numbers stay below their bound and reach all of a small one.
    #[test]
    fn bounds_hold() {
        let mut random = Random::new();
        let drawn: HashSet<u32> = (0..1000).map(|_| random.below(7).unwrap()).collect();
        assert_eq!(drawn, (0..7).collect());
        assert_eq!(random.below(0).unwrap(), 0);
    }
}
