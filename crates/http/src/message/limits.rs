//! Limits of headers.

/// The most fields of a message, whatever [`Limits`] say.
pub const FIELDS_MAX: usize = 128;

/// The most options that the `Connection` fields of a message may name. larder looks for each of
/// them among all fields when it forwards headers.
pub const CONNECTION_OPTIONS_MAX: usize = 16;

/// Limits of headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of headers with all their lines.
    pub head_bytes_max: usize,
    /// Bytes of a request's target.
    pub target_bytes_max: usize,
    /// Fields; [`FIELDS_MAX`] at most.
    pub fields_max: usize,
}

impl Limits {
    /// For headers that were read before: an operator may have changed the limits since.
    pub const READ_BEFORE: Limits =
        Limits { head_bytes_max: usize::MAX, target_bytes_max: usize::MAX, fields_max: FIELDS_MAX };
}

impl Default for Limits {
    /// 32 KiB, of which 8 KiB may be the target; as many fields as there can be.
    fn default() -> Limits {
        Limits { head_bytes_max: 32 << 10, target_bytes_max: 8 << 10, fields_max: FIELDS_MAX }
    }
}
