//! The value of an alias.

use std::cmp::Reverse;

use super::candidate::Standing;

/// The time of an alias is moved on in steps of this, so that one that is learned again seldom changes.
pub(super) const TIME_STEP_NS: i64 = 60_000_000_000;

/// The value of an alias entry: bytes for its standing and for `led`, eight for the time, then the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alias<'a> {
    pub standing: Standing,
    /// Clients that this alias or others to the same target have led there, up to 255.
    pub led: u8,
    /// When it was learned, or learned again a while later, ns since 1970 UTC.
    pub time_ns: i64,
    pub owner: &'a [u8],
}

impl<'a> Alias<'a> {
    pub fn read(value: &'a [u8]) -> Option<Alias<'a>> {
        let ([standing, led], rest) = value.split_first_chunk()?;
        let (time_ns, owner) = rest.split_first_chunk()?;
        Some(Alias {
            standing: *Standing::ALL.get(usize::from(*standing))?,
            led: *led,
            time_ns: i64::from_le_bytes(*time_ns),
            owner,
        })
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.standing as u8, self.led]);
        out.extend_from_slice(&self.time_ns.to_le_bytes());
        out.extend_from_slice(self.owner);
    }

    /// What counts when runs are joined (`recall`): greater is better. No two aliases of a target that differ in what
    /// is saved have the same.
    pub(super) fn rank(&self) -> impl Ord + 'a {
        let is_supported = self.standing == Standing::Confirmed;
        (is_supported, self.time_ns, Reverse(self.standing as u8), self.owner)
    }
}
