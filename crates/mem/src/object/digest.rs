//! Compares each leased page with the written bytes, for stores with a digest.
//!
//! Every chunk but the last is full, so unit `n` of the object is one unit of the arena, and has
//! one digest. The filler computes it while writing, and stores it here, under a lock, before it
//! publishes the unit's last byte. A reader checks the units that it is about to lease from. The
//! unit that is still being filled has no digest yet and is not checked. In transit there are only
//! as many digests as the window has units.

use std::collections::VecDeque;

use super::UNIT_BYTES;
use crate::sync::Mutex;

pub(crate) type Digest = fn(u32, &[u8]) -> u32;

const UNIT: u64 = UNIT_BYTES as u64;

pub(crate) struct Digests {
    pub digest: Digest,
    units_max: usize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The unit of the first digest.
    first: u64,
    digests: VecDeque<u32>,
    /// Bytes of the object that have a digest, or had one.
    bytes: u64,
}

impl Digests {
    pub fn new(digest: Digest, units_max: usize) -> Self {
        Digests { digest, units_max, known: Mutex::new(Known::default()) }
    }

    /// Checks the units that contain bytes `start .. end` of the object. `unit(position, len)`
    /// returns bytes of one unit; they are written and do not change.
    pub fn check<'a>(
        &self,
        start: u64,
        end: u64,
        unit: impl Fn(u64, usize) -> &'a [u8],
    ) -> Result<(), ()> {
        let mut at = start / UNIT;
        while at * UNIT < end {
            let (expected, bytes) = {
                let known = self.known.lock();
                let index = at.checked_sub(known.first).map(|index| index as usize);
                let Some(&digest) = index.and_then(|index| known.digests.get(index)) else {
                    return Ok(());
                };
                (digest, (known.bytes - at * UNIT).min(UNIT))
            };
            if (self.digest)(0, unit(at * UNIT, bytes as usize)) != expected {
                return Err(());
            }
            at += 1;
        }
        Ok(())
    }
}

/// The filler's side.
#[derive(Debug, Default)]
pub(crate) struct Digesting {
    /// The digest of the current unit's bytes.
    current: u32,
    bytes: u64,
    complete: Vec<u32>,
}

impl Digesting {
    /// Adds more bytes of the object, in order.
    pub fn wrote(&mut self, digest: Digest, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let left = (UNIT - self.bytes % UNIT) as usize;
            let (now, rest) = bytes.split_at(left.min(bytes.len()));
            self.current = digest(self.current, now);
            self.bytes += now.len() as u64;
            if self.bytes.is_multiple_of(UNIT) {
                self.complete.push(std::mem::take(&mut self.current));
            }
            bytes = rest;
        }
    }

    /// Called before written bytes are published; `is_last` if no bytes come after them.
    pub fn publish(&mut self, digests: &Digests, is_last: bool) {
        let mut bytes = self.bytes - self.bytes % UNIT;
        if is_last && bytes < self.bytes {
            self.complete.push(self.current);
            bytes = self.bytes;
        }
        if self.complete.is_empty() {
            return;
        }
        let mut known = digests.known.lock();
        known.digests.extend(self.complete.drain(..));
        known.bytes = bytes;
        let excess = known.digests.len().saturating_sub(digests.units_max);
        known.digests.drain(..excess);
        known.first += excess as u64;
    }
}
