//! Least recently used: a hit, read or write, makes an entry the newest.

use larder::Error;
use larder::policy::EntryNumber;

use super::listed::{Listed, Records, Reference};

/// Least recently used.
pub type Lru = Listed<Rules, 1>;

/// The rules of [`Lru`].
#[derive(Debug)]
pub struct Rules;

impl Lru {
    /// For entry numbers below `numbers`.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        Listed::with(numbers, Rules)
    }
}

impl Reference<1> for Rules {
    #[inline]
    fn hit(&mut self, records: &mut Records<1>, entry: EntryNumber) {
        records.renew(0, entry);
    }
}
