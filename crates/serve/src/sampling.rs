//! A sample of events whose size is bounded, and whose weights estimate all of them.
//!
//! At low rates each event is drawn. A worker that has drawn [`DRAWN_MAX`] events since its window began doubles the
//! mean gap to the next one; it halves the gap when a window has few. Gaps are random, so that periodic events are
//! not drawn from one side only. An event that is drawn has its gap as its weight.
//!
//! Invariants
//! 1. A window has at most [`DRAWN_MAX`] draws for each doubling of the rate (test `gaps_follow_the_rate`).
//!
//! Cost of an event that is not drawn: one subtraction.

use larder_io::random::Random;

/// Draws of a window before gaps double.
pub const DRAWN_MAX: u32 = 200;

/// The longest mean gap.
const GAP_MAX: u32 = 1 << 20;

/// The draws of one worker.
#[derive(Debug)]
pub struct Sampling {
    random: Random,
    /// Events until the next draw, which is included.
    left: u32,
    /// The mean gap.
    gap: u32,
    /// Draws since the gap changed or the window began.
    drawn: u32,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { random: Random::new(), left: 1, gap: 1, drawn: 0 }
    }
}

impl Sampling {
    /// An event: the number of events that it stands for; 0: it is not drawn.
    #[inline]
    pub fn draw(&mut self) -> u32 {
        self.left -= 1;
        if self.left == 0 { self.drawn() } else { 0 }
    }

    #[cold]
    fn drawn(&mut self) -> u32 {
        let weight = self.gap;
        self.drawn += 1;
        if self.drawn >= DRAWN_MAX {
            (self.gap, self.drawn) = ((self.gap * 2).min(GAP_MAX), 0);
        }
        // From 1 to twice the gap less 1, so that the gap is the mean. Without random numbers it is the gap.
        let bound = self.gap * 2 - 1;
        self.left = 1 + self.random.below(bound).unwrap_or(self.gap - 1);
        weight
    }

    /// Begins a window. Windows of a tenth of a second are short enough for notes of a page.
    pub fn begin_window(&mut self) {
        if self.drawn < DRAWN_MAX / 4 {
            self.gap = (self.gap / 2).max(1);
            self.left = self.left.min(self.gap * 2);
        }
        self.drawn = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 1: gaps grow with the rate and shrink again; the weights estimate the number of events.
    #[test]
    fn gaps_follow_the_rate() {
        let mut sampling = Sampling::default();
        let drawn: Vec<u32> =
            (0..100_000).map(|_| sampling.draw()).filter(|weight| *weight > 0).collect();
        assert!(drawn.len() <= 12 * DRAWN_MAX as usize, "{}", drawn.len());
        let sum: u64 = drawn.iter().map(|weight| u64::from(*weight)).sum();
        assert!((80_000..120_000).contains(&sum), "{sum}");
        assert!(drawn.last() > Some(&100));
        for _ in 0..20 {
            sampling.draw();
            sampling.begin_window();
        }
        // The gap that was drawn before may last for one more event.
        let drawn: Vec<u32> = (0..8).map(|_| sampling.draw()).collect();
        assert_eq!(drawn[4..], [1; 4]);
    }
}
