//! The lifecycle of a server. The supervisor sets the stage; each worker reads it once per turn of its loop.
//!
//! ```text
//! Serves -> Drains   workers accept nothing new, and respond to the requests they have
//!        -> Ends     workers end at once
//! ```
//!
//! A stage never returns to an earlier one. Cost: a relaxed load per turn.

use std::sync::atomic::{AtomicU8, Ordering};

/// A stage of the lifecycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// Workers accept requests.
    Serves,
    /// Workers accept nothing new. A worker ends when it has responded to all its requests.
    Drains,
    /// Workers end after the current turn.
    Ends,
}

/// The current stage, shared by all workers. The caller that sets it also wakes the workers.
#[derive(Debug)]
pub struct Lifecycle(AtomicU8);

impl Lifecycle {
    /// Starts in the stage `Serves`.
    pub const fn new() -> Lifecycle {
        Lifecycle(AtomicU8::new(Stage::Serves as u8))
    }

    /// The stage that was set last.
    #[inline]
    pub fn get(&self) -> Stage {
        match self.0.load(Ordering::Relaxed) {
            0 => Stage::Serves,
            1 => Stage::Drains,
            _ => Stage::Ends,
        }
    }

    /// Moves to `stage`. An earlier stage than the current one is ignored.
    pub fn advance(&self, stage: Stage) {
        self.0.fetch_max(stage as u8, Ordering::Relaxed);
    }
}

impl Default for Lifecycle {
    fn default() -> Lifecycle {
        Lifecycle::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stages follow in order; none returns.
    #[test]
    fn stages_advance() {
        let lifecycle = Lifecycle::new();
        assert_eq!(lifecycle.get(), Stage::Serves);
        for (said, is) in [
            (Stage::Drains, Stage::Drains),
            (Stage::Serves, Stage::Drains),
            (Stage::Ends, Stage::Ends),
            (Stage::Drains, Stage::Ends),
        ] {
            lifecycle.advance(said);
            assert_eq!(lifecycle.get(), is);
        }
    }
}
