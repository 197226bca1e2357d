//! Read feedback: reports of reads to the policy, late and sampled, so that a `get` makes no shared
//! write.
//!
//! ```text
//! get     entry not reported in this epoch: mark it, and note (bucket, way, tag, position seen), privately
//! sync    enough noted, and the lock free: report to main. Busy: later. Buffer full: drop further ones
//! main    the way still has that tag: policy.hit(entry, lag)
//! ```
//!
//! The mark is two bits of the tag word in the reader's own replica of the index, in the line that
//! the lookup has just read. So it needs no memory and causes no cache miss. An epoch is a stretch
//! of the log in which 1/64 as many entries are inserted as the shard holds, so no thread has to
//! announce it. An entry is reported once per epoch at most, so the few popular entries of a Zipf
//! stream do not fill the buffer. Three marks take turns: an entry last read exactly three epochs
//! ago is taken for reported.
//!
//! A shared reader ([`crate::IndexMode::Shared`]) has no replica to mark. It notes a quarter of its
//! reads, drawn by chance, until its buffer is full, so it reports popular entries several times.
//! (With every read noted, a hit of a `Map` took 206 instead of 165 ns, a million entries.) It
//! notes the position of its last sync although it sees the present. So an entry's age is
//! underestimated by the writes between two syncs, and a policy that ignores reads of very young
//! entries ignores a few more.
//!
//! Dropped reports cost little. Points of hit ratio below a policy with every read reported at
//! once, Partitioned on real traces, one reader: 0.0 to 0.4 with a sync every 100 reads; 0.0 to 0.6
//! with one every 1000, when the buffer overflows; 0.4 to 3.7 without reports. Cost: about 15 ns
//! per read if every fourth one is reported (uniform reads, a sync every 1024), main's part
//! included; otherwise not measurable.
//!
//! Bounds: [`REPORTS_MAX`] reports of 16 bytes per reader and shard. A sync tries one lock per
//! shard, and only if it has [`REPORTS_MIN`] reports.

use std::cell::Cell;

/// Reports that a reader holds for a shard, at most.
const REPORTS_MAX: usize = 256;
/// Reports from which a sync tries the lock.
const REPORTS_MIN: usize = 32;

/// Bytes per reader and shard.
pub(crate) const FEEDBACK_BYTES: usize = REPORTS_MAX * size_of::<Report>();

/// Epochs in which as many entries are inserted as the cache holds.
const EPOCHS_PER_TURN: u64 = 64;
/// Records of a new entry once the cache is full: its own, and that of the evicted entry.
const RECORDS_PER_ENTRY: u64 = 2;
/// Values of the mark in use; 0 means never reported.
const MARKS: u64 = 3;

/// The length of an epoch, in log records, as a power of two.
pub(crate) fn epoch_shift(entries_max: u64) -> u32 {
    (entries_max * RECORDS_PER_ENTRY / EPOCHS_PER_TURN).max(1).ilog2()
}

/// The mark of an entry that was reported at this position of the log.
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

/// Reports that are not handed over yet.
#[derive(Debug)]
pub(crate) struct Feedback {
    reports: Box<[Cell<Report>]>,
    len: Cell<usize>,
    /// The last number that was drawn.
    drawn: Cell<u32>,
}

impl Feedback {
    /// With room for reports, or without if reads are not reported.
    pub fn new(is_on: bool) -> Self {
        let len = if is_on { REPORTS_MAX } else { 0 };
        let reports = (0..len).map(|_| Cell::default()).collect();
        Feedback { reports, len: Cell::new(0), drawn: Cell::new(0) }
    }

    /// True if another report would be dropped.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.len.get() == self.reports.len()
    }

    /// True for a quarter of all calls. By chance, since every fourth read may be of the same few
    /// entries; the same in each run.
    #[inline(always)]
    pub fn is_drawn(&self) -> bool {
        // Knuth's multiplier and increment, of which the top bits are the most random.
        let drawn = self.drawn.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.drawn.set(drawn);
        drawn >> 30 == 0
    }

    /// Notes a report, if there is room.
    #[inline(always)]
    pub fn note(&self, report: Report) {
        if let Some(room) = self.reports.get(self.len.get()) {
            room.set(report);
            self.len.set(self.len.get() + 1);
        }
    }

    /// True if there are enough reports to hand over.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.len.get() >= REPORTS_MIN
    }

    /// All reports, in the order of the reads; empties the buffer.
    pub fn take(&self) -> &[Cell<Report>] {
        &self.reports[..self.len.replace(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports are returned once, in order, and those beyond the bound are dropped.
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

    /// Neighboring epochs have different marks, none of them 0.
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
