//! Damage of an input that no batch can report.
//!
//! Bound: [`KINDS_MAX`] entries. Damage of one kind in one input is one entry with a count, so that a sender that
//! sends rubbish forever costs no memory.

use std::sync::Mutex;

use larder_wire::capture::CaptureDamage;

use crate::batch_memory::lock;

/// Entries at most; further damage counts as that of the last one.
const KINDS_MAX: usize = 1 << 16;
/// Latest entries among which damage of the same kind is looked for.
const LOOK_BACK: usize = 32;

/// Something wrong with an input, found by the source and not by the reader of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceDamage {
    /// The input's name.
    pub file: String,
    /// Offset in the uncompressed input, bytes.
    pub offset: u64,
    /// The kind of damage.
    pub kind: SourceDamageKind,
    /// How often; `offset` is that of the first time.
    pub count: u64,
}

/// Adds damage of an input to what was found.
pub(crate) fn add(all: &Mutex<Vec<SourceDamage>>, file: &str, offset: u64, kind: SourceDamageKind) {
    let mut all = lock(all);
    let first = all.len().saturating_sub(LOOK_BACK);
    let is_full = all.len() >= KINDS_MAX;
    let mut latest = all[first..].iter_mut().rev();
    let same = latest.find(|known| (&*known.file, &known.kind) == (file, &kind));
    match same {
        Some(known) => known.count += 1,
        None if is_full => {
            if let Some(last) = all.last_mut() {
                last.count += 1;
            }
        }
        None => all.push(SourceDamage { file: file.to_owned(), offset, kind, count: 1 }),
    }
}

/// Kinds of damage of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceDamageKind {
    /// In one of several merged captures; the damage of a single one is in its batches.
    Capture(CaptureDamage),
    /// The compressed stream, or the device, ends with this error.
    Stream(String),
    /// The file became shorter while it was read.
    Torn,
    /// A capture of `larder extract` has no end.
    ReducedCut,
    /// Packets of other captures come before the end of one of `larder extract`.
    ReducedOverlap,
}

impl SourceDamageKind {
    /// The spelling in the summary.
    pub const fn as_str(&self) -> &'static str {
        match self {
            SourceDamageKind::Capture(kind) => kind.as_str(),
            SourceDamageKind::Stream(_) => "input_stream",
            SourceDamageKind::Torn => "input_torn",
            SourceDamageKind::ReducedCut => "extract_cut_short",
            SourceDamageKind::ReducedOverlap => "extract_overlaps",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Damage without end costs no memory, and all of it counts.
    #[test]
    fn damage_is_counted() {
        let all = Mutex::new(Vec::new());
        let add = |file: &str, why: usize| {
            add(&all, file, 0, SourceDamageKind::Stream((why % 3).to_string()));
        };
        (0..1_000).for_each(|number| add("tcp://", number));
        let kinds: Vec<u64> = all.lock().unwrap().iter().map(|damage| damage.count).collect();
        assert_eq!(kinds, [334, 333, 333]);
        (0..100_000).for_each(|number| add(&number.to_string(), 0));
        let all = all.into_inner().unwrap();
        assert_eq!(all.iter().map(|damage| damage.count).sum::<u64>(), 101_000);
        assert!(all.len() <= 1 << 16);
    }
}
