//! Policies by name: the engine's own, and references to compare them with.
//!
//! All of them are [`Replacement`]s, told of the same events in the same order by whoever replays: entries
//! are places `0..capacity`, and a key's 64 bits are mixed (the same for the same key).

use larder::policy::Replacement;

/// Does something with a policy whose type it does not know, so that loops are compiled for each.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// `policy` is new and empty.
    fn visit<P: Replacement + Send>(self, policy: P) -> Self::Output;
}
