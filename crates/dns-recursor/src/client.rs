//! For whom a walker finds an answer.

use larder_dns::backend::BackendQuery;

/// Who asks a walker.
#[derive(Debug)]
pub enum Client {
    /// A core.
    Core(BackendQuery),
    /// The validator, which checks it before a core gets it.
    #[cfg(feature = "dnssec")]
    Validator(ValidatorQuery),
}

/// What a walker finds for a validator.
#[cfg(feature = "dnssec")]
#[derive(Debug, Clone, Copy)]
pub enum ValidatorQuery {
    /// The next step of a job.
    Step(u64),
    /// Keys, or a delegation.
    Lookup(u64),
}
