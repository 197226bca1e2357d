//! Read feedback: what a reader read, told to the policy, late and thinned out, so that a `get` stays free of
//! shared writes.
//!
//! ```text
//! get     entry not reported in this epoch: mark it, and note (bucket, way, tag, position seen), privately
//! sync    enough noted, and the lock free: main is told. Busy: later. Buffer full: further ones are dropped
//! main    the way still has that tag: policy.hit(entry, lag)
//! ```
//!
//! The mark is two bits of the tag word in the reader's own copy of the index, on the line that the lookup has
//! just read: no memory and no cache miss of its own. An epoch is a stretch of the log, so nobody has to announce
//! it; as many new entries as a 64th of what the shard holds begin one. Names are reported once an epoch at most,
//! however often they are read: a Zipf stream's few names do not fill the buffer. Three marks take turns, so
//! that an entry last read exactly three epochs ago passes for reported.
//!
//! A shared reader ([`crate::IndexMode::Shared`]) has no copy, so no bits to mark: it notes every read until its
//! buffer is full: the first ones after a sync and none of the later ones, popular names several times.
//! The position that it notes is that of its last sync though it sees the present, so an entry's age passes for
//! less than it is by as much as was written between two syncs: where the policy ignores reads of the very young,
//! it ignores a few more.
//!
//! Losing reports loses little. Points of hit ratio below a policy told of every read at once, Partitioned on
//! real traces, one reader: 0.0 to 0.4 with a sync every 100 reads; 0.0 to 0.6 with one every 1000, when the
//! buffer overflows; 0.4 to 3.7 without reports. Cost: some 15 ns a read where every fourth one is reported
//! (uniform reads, a sync every 1024), main's part included; nothing that could be measured otherwise.
//!
//! Bounds: [`REPORTS_MAX`] reports of 16 bytes a reader and shard; a sync does one `try_lock` a shard, and only with
//! [`REPORTS_MIN`] in hand.

use std::cell::Cell;

/// Reports a reader holds at most for a shard.
const REPORTS_MAX: usize = 256;
/// Reports for which a sync asks for the lock.
const REPORTS_MIN: usize = 32;

/// Bytes a reader and shard.
pub(crate) const FEEDBACK_BYTES: usize = REPORTS_MAX * size_of::<Report>();

/// Epochs a turn over of as many entries as the cache holds.
const EPOCHS_PER_TURN: u64 = 64;
/// Records that a new entry takes once the cache is full, its own and one of the entry that leaves.
const RECORDS_PER_ENTRY: u64 = 2;
/// Values of the mark in use; 0 is never reported.
const MARKS: u64 = 3;

/// The length of an epoch, in log records, as a power of two.
pub(crate) fn epoch_shift(entries_max: u64) -> u32 {
    (entries_max * RECORDS_PER_ENTRY / EPOCHS_PER_TURN).max(1).ilog2()
}

/// The mark of an entry reported when the log was here.
#[inline(always)]
pub(crate) fn mark_at(position: u64, epoch_shift: u32) -> u16 {
    1 + ((position >> epoch_shift) % MARKS) as u16
}

/// One read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Report {
    pub bucket: u32,
    pub tag: u16,
    pub way: u8,
    /// The log position at which the reader read.
    pub seen: u64,
}

const _: () = assert!(size_of::<Report>() == 16, "the budget counts on it");

/// Reports not handed over yet.
#[derive(Debug)]
pub(crate) struct Feedback {
    reports: Box<[Cell<Report>]>,
    len: Cell<usize>,
}

impl Feedback {
    /// With room for reports, or for none when reads are not reported.
    pub fn new(is_on: bool) -> Self {
        let len = if is_on { REPORTS_MAX } else { 0 };
        Feedback { reports: (0..len).map(|_| Cell::default()).collect(), len: Cell::new(0) }
    }

    /// True when another report would be dropped.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.len.get() == self.reports.len()
    }

    /// Notes a report, if there is room.
    #[inline(always)]
    pub fn note(&self, report: Report) {
        if let Some(room) = self.reports.get(self.len.get()) {
            room.set(report);
            self.len.set(self.len.get() + 1);
        }
    }

    /// True when it pays to hand them over.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.len.get() >= REPORTS_MIN
    }

    /// All reports, in the order of the reads; there are none afterwards.
    pub fn take(&self) -> &[Cell<Report>] {
        &self.reports[..self.len.replace(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports come out once, in order, and those beyond the bound are dropped.
    #[test]
    fn bounded_and_in_order() {
        let feedback = Feedback::new(true);
        for seen in 0..REPORTS_MAX as u64 + 9 {
            assert_eq!(feedback.is_full(), seen >= REPORTS_MAX as u64);
            assert_eq!(feedback.is_due(), seen >= REPORTS_MIN as u64);
            feedback.note(Report { seen, ..Report::default() });
        }
        let taken: Vec<u64> = feedback.take().iter().map(|report| report.get().seen).collect();
        assert_eq!(taken, (0..REPORTS_MAX as u64).collect::<Vec<_>>());
        assert!(feedback.take().is_empty());
        let off = Feedback::new(false);
        off.note(Report::default());
        assert!(off.is_full() && !off.is_due() && off.take().is_empty());
    }

    /// Neighbouring epochs have different marks, none of them 0.
    #[test]
    fn marks_take_turns() {
        let shift = epoch_shift(10_000);
        assert_eq!(shift, 8);
        let marks: Vec<u16> = (0..6).map(|epoch| mark_at(epoch << shift, shift)).collect();
        assert_eq!(marks, [1, 2, 3, 1, 2, 3]);
        assert_eq!(mark_at((1 << shift) - 1, shift), 1);
        assert_eq!(epoch_shift(1), 0);
    }
}
