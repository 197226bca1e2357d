//! Finding on, as packets come.

/// How often it is looked whether there is more.
pub const POLL_MS: u64 = 50;
