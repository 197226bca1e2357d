//! Time that never steps, and the time of day.
//!
//! The system's time of day is read once, at the start; from there it is counted by a clock that never steps. So what one
//! run notes is in order, whatever is set meanwhile: a step is seen at the next start.
//!
//! All cores, and whoever writes of them, have copies of one clock. Cost: no system call where the kernel shares its time.

use std::time::Instant;

use crate::core::Now;

/// A steady clock that also tells the time of day.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    begun: Instant,
    begun_unix_us: u64,
}

impl Clock {
    /// Starts from the system's time of day.
    pub fn start() -> Clock {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Clock {
            begun: Instant::now(),
            begun_unix_us: since.map_or(0, |since| since.as_micros() as u64),
        }
    }

    /// The moment.
    pub fn now(&self) -> Now {
        let us = self.begun.elapsed().as_micros() as u64;
        let wall_s = (self.begun_unix_us + us) / 1_000_000;
        Now { us, wall_s: u32::try_from(wall_s).unwrap_or(u32::MAX) }
    }

    /// A moment as nanoseconds since 1970 UTC.
    pub fn unix_ns(&self, now: Now) -> u64 {
        (self.begun_unix_us + now.us).saturating_mul(1_000)
    }
}
