//! Random replacement, and the small generator that policies draw from.
//!
//! Any entry leaves, each with the same chance; hits change nothing. Octets: 8 an entry number.

use larder::Error;
use larder::mem::Region;
use larder::policy::{Entries, EntryNumber, Replacement};

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a counter, mixed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Generator(pub u64);

impl Generator {
    /// The next 64 bits.
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// A number below `bound`, which is not 0; even to one in 2^64 / `bound`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Random replacement.
#[derive(Debug)]
pub struct Random {
    /// The entries, in no order that means anything: the first `len`.
    entries: Region<u32>,
    /// Where in `entries` each entry is.
    positions: Region<u32>,
    len: u64,
    generator: Generator,
}

impl Random {
    /// For entry numbers below `numbers`. The same seed makes the same choices.
    pub fn new(numbers: usize, seed: u64) -> Result<Self, Error> {
        let entries = Region::new(numbers).map_err(Error::Memory)?;
        let positions = Region::new(numbers).map_err(Error::Memory)?;
        Ok(Random { entries, positions, len: 0, generator: Generator(seed) })
    }

    #[inline]
    fn set(&mut self, position: u32, entry: EntryNumber) {
        self.entries[position as usize] = entry;
        self.positions[entry as usize] = position;
    }
}

impl Replacement for Random {
    #[inline]
    fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        self.set(self.len as u32, entry);
        self.len += 1;
    }

    #[inline]
    fn updated(&mut self, _entry: EntryNumber) {}

    #[inline]
    fn hit(&mut self, _entry: EntryNumber, _lag: u64) {}

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        self.len -= 1;
        let last = self.entries[self.len as usize];
        self.set(self.positions[entry as usize], last);
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        self.set(self.positions[from as usize], to);
    }

    #[inline]
    fn evict(&mut self, except: Option<EntryNumber>, _: &impl Entries) -> Option<EntryNumber> {
        // The one excepted stands aside at the end.
        let mut choices = self.len;
        if let Some(except) = except {
            choices = choices.checked_sub(1)?;
            let last = self.entries[choices as usize];
            self.set(self.positions[except as usize], last);
            self.set(choices as u32, except);
        }
        if choices == 0 {
            return None;
        }
        let victim = self.entries[self.generator.below(choices) as usize];
        self.removed(victim);
        Some(victim)
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        let mut later = self.generator;
        let next = |_| self.entries[later.below(self.len) as usize];
        if self.len == 0 { [None; 2] } else { [(), ()].map(next).map(Some) }
    }

    fn validate(&self) -> Result<(), String> {
        for position in 0..self.len as u32 {
            let entry = self.entries[position as usize];
            if self.positions[entry as usize] != position {
                return Err(format!("entry {entry} is not at {position}"));
            }
        }
        Ok(())
    }
}
