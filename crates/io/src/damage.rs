//! Damage of an input that no batch can report.

use larder_wire::capture::CaptureDamage;

/// Something wrong with an input, found by the source and not by the reader of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceDamage {
    /// The input's name.
    pub file: String,
    /// Offset in the uncompressed input, bytes.
    pub offset: u64,
    /// The kind of damage.
    pub kind: SourceDamageKind,
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
