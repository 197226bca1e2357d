//! Traces: requests in order, from files or made up.
//!
//! A [`Source`] hands out requests by the batch and never holds the whole trace, so that one larger than
//! memory can be replayed. Damage is never fatal by itself: a record that cannot be read is counted, with the
//! place of the first, and skipped.

use crate::request::Request;

/// Requests a batch, about.
pub const BATCH_REQUESTS: usize = 1 << 16;

/// What could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Damage {
    /// Records skipped.
    pub records: u64,
    /// Where the first was and what was wrong with it: `line 17: no number`, `octet 4096: cut short`.
    pub first: Option<String>,
}

impl Damage {
    /// Counts one more.
    pub fn add(&mut self, what: impl FnOnce() -> String) {
        self.records += 1;
        self.first.get_or_insert_with(what);
    }
}

/// Where requests come from.
pub trait Source: Send {
    /// Replaces what is in `batch` by the next requests, [`BATCH_REQUESTS`] at most or a few more; leaves it empty at the end.
    fn next(&mut self, batch: &mut Vec<Request>) -> std::io::Result<()>;

    /// What could not be read so far.
    fn damage(&self) -> Damage {
        Damage::default()
    }
}
