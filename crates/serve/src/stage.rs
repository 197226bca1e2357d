//! How far the server's life has come: said by the supervisor, looked at by each core once a turn.
//!
//! ```text
//! Serves -> Drains   nothing new is taken; what was asked is answered
//!        -> Ends     at once
//! ```
//!
//! A stage never goes back. Cost: a relaxed load a turn.

use std::sync::atomic::{AtomicU8, Ordering};

/// A stage of a server's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// Questions are taken.
    Serves,
    /// Nothing new is taken; a core ends when all that it has taken is answered.
    Drains,
    /// Cores end with their turn.
    Ends,
}

/// The stage, for all cores. Whoever sets it wakes them.
#[derive(Debug)]
pub struct Stages(AtomicU8);

impl Stages {
    /// At the first stage.
    pub const fn new() -> Stages {
        Stages(AtomicU8::new(Stage::Serves as u8))
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

    /// Goes on to a stage; to an earlier one it does nothing.
    pub fn go_on(&self, stage: Stage) {
        self.0.fetch_max(stage as u8, Ordering::Relaxed);
    }
}

impl Default for Stages {
    fn default() -> Stages {
        Stages::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stages come in their order, and none comes back.
    #[test]
    fn stages_go_on() {
        let stages = Stages::new();
        assert_eq!(stages.get(), Stage::Serves);
        for (said, is) in [
            (Stage::Drains, Stage::Drains),
            (Stage::Serves, Stage::Drains),
            (Stage::Ends, Stage::Ends),
            (Stage::Drains, Stage::Ends),
        ] {
            stages.go_on(said);
            assert_eq!(stages.get(), is);
        }
    }
}
