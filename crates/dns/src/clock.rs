//! The time, as the core takes it.

use larder_io::clock;

use crate::core::Now;

/// A steady clock that also tells the time of day ([`larder_io::clock`]).
#[derive(Debug, Clone, Copy)]
pub struct Clock(clock::Clock);

impl Clock {
    /// Starts from the system's time of day.
    pub fn start() -> Clock {
        Clock(clock::Clock::start())
    }

    /// The moment.
    pub fn now(&self) -> Now {
        let us = self.0.us();
        let wall_s = self.0.unix_us(us) / 1_000_000;
        Now { us, wall_s: u32::try_from(wall_s).unwrap_or(u32::MAX) }
    }

    /// A moment as nanoseconds since 1970 UTC.
    pub fn unix_ns(&self, now: Now) -> u64 {
        self.0.unix_us(now.us).saturating_mul(1_000)
    }
}
