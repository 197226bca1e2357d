//! How much there may be of a head.

/// The most fields that a head may have, whatever [`Limits`] say.
pub const FIELDS_MAX: usize = 128;

/// The most options that the `Connection` fields of a head may name: each is looked for among all fields when a head is passed on.
pub const CONNECTION_OPTIONS_MAX: usize = 16;

/// How much there may be of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head with all its lines.
    pub head_bytes_max: usize,
    /// Bytes of a request's target.
    pub target_bytes_max: usize,
    /// Fields; [`FIELDS_MAX`] at most.
    pub fields_max: usize,
}

impl Limits {
    /// Of a head that was read before: limits may be others since.
    pub const READ_BEFORE: Limits =
        Limits { head_bytes_max: usize::MAX, target_bytes_max: usize::MAX, fields_max: FIELDS_MAX };
}

impl Default for Limits {
    /// 32 KiB, of which 8 KiB may be the target; as many fields as there can be.
    fn default() -> Limits {
        Limits { head_bytes_max: 32 << 10, target_bytes_max: 8 << 10, fields_max: FIELDS_MAX }
    }
}
