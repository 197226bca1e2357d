//! Recycle: fingerprints of the keys of evicted entries, three bytes each.
//!
//! ```text
//! line     twenty-one words, one cache line, newest first; no word has a mark of 0
//! word     mark 16 = tag 13 | freq 3, and age 8 = stamp 5 | evicted from temporary 1 | epoch 2
//! stamp    moves on 16 times in `G` evictions, modulo 32; a word is valid while fewer than 16 such
//!          moves came after it, and for less only if its line is full and it is the oldest there
//! ```
//!
//! A FIFO ring of `G` fingerprints with a hash table would take 10 bytes per fingerprint. This
//! takes 3, and a lookup and an eviction touch one line each. In exchange, ages are known to 1/16
//! of `G`, and if more than twenty-one words meet in a line, some are dropped early. A key is taken
//! for another one once in 400 times at most.
//!
//! Expired words are swept out, every line twice in `G` evictions, long before their stamps could
//! look young again.

use larder_mem::{Memory, Region, prefetch_slice};

use crate::error::Error;

/// Words of a line.
const WAYS: usize = 21;
/// Moves of the stamp for which a word is valid.
const VALID_MOVES: u8 = 16;
const STAMPS: u8 = 32;
/// How often every line is swept in `G` evictions.
const SWEEPS: u8 = 2;

/// Fingerprints that a table has at least, so that an eviction moves the stamp once at most, and the sweeps keep up.
const GHOSTS_MIN: u64 = VALID_MOVES as u64;

const _: () = assert!(VALID_MOVES + VALID_MOVES / SWEEPS + 2 < STAMPS, "no dead word looks young");

/// The marks of a line, then its ages.
type Line = [u8; 64];

/// Where the ages begin.
const AGES: usize = 2 * WAYS;

const _: () = assert!(AGES + WAYS <= size_of::<Line>(), "a line holds its words");

/// The recorded data of an evicted entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ghost {
    /// It was evicted from temporary, not from hot.
    pub temporary: bool,
    /// 0 to 7.
    pub freq: u8,
    /// 0 to 3.
    pub epoch: u8,
}

/// Fingerprints of the keys of evicted entries; the oldest are dropped first.
#[derive(Debug)]
pub(super) struct Recycle {
    lines: Region<Line>,
    /// `G`: the number of fingerprints.
    ghosts_max: u64,
    stamp: u8,
    /// Evictions times [`VALID_MOVES`] since the stamp moved.
    since: u64,
    /// The line to sweep next.
    swept: usize,
    /// Lines to sweep, times `ghosts_max`.
    unswept: u64,
}

/// Fingerprints for a capacity of `capacity` entries: the evictions for which a key is remembered.
fn ghosts_max(capacity: u64) -> u64 {
    (capacity * 9 / 10).max(GHOSTS_MIN)
}

#[inline]
fn mark_of(line: &Line, way: usize) -> u16 {
    u16::from_le_bytes([line[2 * way], line[2 * way + 1]])
}

impl Recycle {
    /// For a cache of at most `entries_max` entries.
    pub fn new(memory: &Memory, entries_max: u64) -> Result<Self, Error> {
        let lines = memory.region(Self::lines(entries_max)).map_err(Error::Memory)?;
        Ok(Recycle {
            lines,
            ghosts_max: ghosts_max(entries_max),
            stamp: 0,
            since: 0,
            swept: 0,
            unswept: 0,
        })
    }

    fn lines(entries_max: u64) -> usize {
        ghosts_max(entries_max).div_ceil(WAYS as u64) as usize
    }

    /// Bytes for a cache of at most `entries_max` entries.
    pub fn bytes(entries_max: u64) -> usize {
        Self::lines(entries_max) * size_of::<Line>()
    }

    /// The cache now has `capacity` entries, which sets how long words are valid from now on. If those are much fewer,
    /// the stamp moves once for what has passed, not as often as it would have: dead words would come to look young
    /// before they are swept. The lines are swept as if it had been so few all the time, but once at most.
    pub fn resize(&mut self, capacity: u64) {
        self.ghosts_max = ghosts_max(capacity);
        self.since = self.since.min(self.ghosts_max - 1);
        self.unswept = self.unswept.min(self.ghosts_max * self.lines.len() as u64);
    }

    /// The line of a key, and its tag, never 0, above the bits of freq.
    #[inline]
    pub fn place(&self, key: u64) -> (usize, u16) {
        let line = (u128::from(key) * self.lines.len() as u128) >> 64;
        (line as usize, (key as u16 & 0x1fff).max(1) << 3)
    }

    /// Prefetches a key's line.
    #[inline]
    pub fn prefetch(&self, key: u64) {
        prefetch_slice(&self.lines, self.place(key).0);
    }

    #[inline]
    fn moves_since(&self, age: u8) -> u8 {
        self.stamp.wrapping_sub(age >> 3) % STAMPS
    }

    /// Remembers a key.
    #[inline]
    pub fn push(&mut self, key: u64, ghost: Ghost) {
        self.since += u64::from(VALID_MOVES);
        while self.since >= self.ghosts_max {
            self.since -= self.ghosts_max;
            self.stamp = (self.stamp + 1) % STAMPS;
        }
        self.unswept += u64::from(SWEEPS) * self.lines.len() as u64;
        while self.unswept >= self.ghosts_max {
            self.unswept -= self.ghosts_max;
            self.sweep();
        }
        let (line, tag) = self.place(key);
        let Ghost { temporary, freq, epoch } = ghost;
        let line = &mut self.lines[line];
        let older = *line;
        line[2..AGES].copy_from_slice(&older[..AGES - 2]);
        line[..2].copy_from_slice(&(tag | u16::from(freq)).to_le_bytes());
        line[AGES + 1..AGES + WAYS].copy_from_slice(&older[AGES..AGES + WAYS - 1]);
        line[AGES] = self.stamp << 3 | u8::from(temporary) << 2 | epoch;
    }

    /// Returns the recorded data of a key, and deletes it.
    #[inline]
    pub fn take(&mut self, key: u64) -> Option<Ghost> {
        let (line, tag) = self.place(key);
        let line = &self.lines[line];
        // Most keys are not there: all words are compared at once, without a branch for each.
        let is_it = |way: usize| mark_of(line, way) & !7 == tag;
        if !(0..WAYS).fold(false, |found, way| found | is_it(way)) {
            return None;
        }
        let way = (0..WAYS).find(|&way| is_it(way))?;
        let (mark, age) = (mark_of(line, way), line[AGES + way]);
        if self.moves_since(age) >= VALID_MOVES {
            return None;
        }
        let (line, _) = self.place(key);
        let line = &mut self.lines[line];
        line.copy_within(2 * way + 2..AGES, 2 * way);
        line[AGES - 2..AGES].fill(0);
        line.copy_within(AGES + way + 1..AGES + WAYS, AGES + way);
        Some(Ghost { temporary: age >> 2 & 1 == 1, freq: (mark & 7) as u8, epoch: age & 3 })
    }

    /// Clears the expired words of the next line. They are its last ones.
    fn sweep(&mut self) {
        let line = &self.lines[self.swept];
        let is_alive = |&way: &usize| {
            mark_of(line, way) != 0 && self.moves_since(line[AGES + way]) < VALID_MOVES
        };
        let len = (0..WAYS).rev().find(is_alive).map_or(0, |last| last + 1);
        self.lines[self.swept][2 * len..AGES].fill(0);
        self.swept = (self.swept + 1) % self.lines.len();
    }

    /// Checks every line; `Err` states what is wrong.
    pub fn validate(&self) -> Result<(), String> {
        for (number, line) in self.lines.iter().enumerate() {
            let len = (0..WAYS).position(|way| mark_of(line, way) == 0).unwrap_or(WAYS);
            if (len..WAYS).any(|way| mark_of(line, way) != 0) {
                return Err(format!("recycle line {number} has a gap: {line:x?}"));
            }
            let ages = &line[AGES..AGES + len];
            if ages.windows(2).any(|pair| self.moves_since(pair[0]) > self.moves_since(pair[1])) {
                return Err(format!("recycle line {number} is not in order: {line:x?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use larder_testkit::random::Random;
    use proptest::prelude::*;

    use super::super::unmapped;
    use super::*;

    proptest! {
        /// However the capacity changes, no word of long ago looks young: lines stay in order.
        #[test]
        fn capacities_that_change(
            entries_max in prop::sample::select(vec![1u64, 20, 60, 200, 2000]),
            changes in prop::collection::vec((0u64..=1000, 1u64..40), 1..60),
        ) {
            let mut recycle = Recycle::new(&unmapped().unwrap(), entries_max).unwrap();
            let mut random = Random(1);
            for (share, pushes) in changes {
                recycle.resize((entries_max * share / 1000).max(1));
                for _ in 0..pushes {
                    recycle.push(random.next(), Ghost { temporary: true, freq: 1, epoch: 0 });
                    prop_assert_eq!(recycle.validate(), Ok(()));
                }
            }
        }
    }
}
