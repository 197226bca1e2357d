//! The client of a task.

use larder_dns::backend::BackendQuery;

/// The sender of a query to the resolver.
#[derive(Debug)]
pub enum Client {
    /// A core.
    Core(BackendQuery),
    /// The validator, which checks the response before a core gets it.
    #[cfg(feature = "dnssec")]
    Validator(ValidatorQuery),
}

/// A sub-query of the validator.
#[cfg(feature = "dnssec")]
#[derive(Debug, Clone, Copy)]
pub enum ValidatorQuery {
    /// The next name of a job.
    Step(u64),
    /// Keys or a delegation.
    Lookup(u64),
}
