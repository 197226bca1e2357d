//! The value of an alias.

use super::candidate::Standing;

/// The value of an alias entry: a byte for its standing, one for `led`, then the owner.
#[derive(Clone, Copy)]
pub(crate) struct Alias<'a> {
    pub standing: Standing,
    /// Clients that this alias or others to the same target have led there, up to 255.
    pub led: u8,
    pub owner: &'a [u8],
}

impl<'a> Alias<'a> {
    pub fn read(value: &'a [u8]) -> Option<Alias<'a>> {
        let ([standing, led], owner) = value.split_first_chunk()?;
        Some(Alias { standing: *Standing::ALL.get(usize::from(*standing))?, led: *led, owner })
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.standing as u8, self.led]);
        out.extend_from_slice(self.owner);
    }
}
