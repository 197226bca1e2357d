//! Time, as the core uses it.

use larder::Seconds;
use larder_io::clock;

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Microseconds of a clock that never steps.
    pub us: u64,
    /// The Unix time, held steady, in seconds: comparable across runs of the program.
    pub wall_s: u32,
}

impl Now {
    pub(crate) fn ms(self) -> u64 {
        self.us / 1_000
    }

    pub(crate) fn seconds(self) -> Seconds {
        Seconds(self.wall_s)
    }
}

/// A steady clock that also has the time of day ([`larder_io::clock`]).
#[derive(Debug, Clone, Copy)]
pub struct Clock(clock::Clock);

impl Clock {
    /// Starts from the system's time of day.
    pub fn start() -> Clock {
        Clock(clock::Clock::start())
    }

    /// The present moment.
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
