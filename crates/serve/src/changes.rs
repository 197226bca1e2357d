//! The result of reading a configuration again.

/// Settings that differ from those in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Settings that have another value from now on.
    pub changed: Vec<String>,
    /// Settings that have another value after a restart.
    pub needs_restart: Vec<String>,
}
