//! Trials that wait until other flows had time to state their names.
//!
//! A trial is due when a statement comes whose packet is [`WAIT_NS`] younger than that of its own. Nothing
//! else moves this clock, so that it does not depend on which other packets a run reads. If the time of the
//! packets goes back, the trial waits until it has come there again.
//!
//! Bounds: [`WAITING_MAX`] trials; the oldest is due at once if there are more.

use std::collections::VecDeque;

use super::Trial;

/// A trial waits for this long. Flows open in bursts: those that state a name are mostly no further apart.
const WAIT_NS: i64 = 5_000_000_000;
/// Trials that wait, at most: about 1 MiB.
const WAITING_MAX: usize = 1 << 12;

/// See the module.
#[derive(Default)]
pub(super) struct Waiting(VecDeque<(i64, Box<Trial>)>);

impl Waiting {
    /// A trial whose statement came at `time_ns`.
    pub fn push(&mut self, time_ns: i64, trial: Box<Trial>) {
        self.0.push_back((time_ns.saturating_add(WAIT_NS), trial));
    }

    /// The oldest trial, if it is due at `time_ns`.
    pub fn next_due(&mut self, time_ns: i64) -> Option<Box<Trial>> {
        let (due_ns, _) = self.0.front()?;
        let is_due = *due_ns <= time_ns || self.0.len() > WAITING_MAX;
        is_due.then(|| self.0.pop_front()).flatten().map(|(_, trial)| trial)
    }
}
