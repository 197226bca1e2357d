//! A clock that never steps, and the time of day.
//!
//! The clock reads the system's time of day once, at the start, and counts from there without
//! steps. So the times of one run are in order, also if the system's time is set meanwhile: only
//! the next start sees such a step.
//!
//! All threads of a server have copies of one clock. Cost: no system call where the kernel shares
//! its time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A steady clock that also gives the time of day.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    begun: Instant,
    begun_unix_us: u64,
}

impl Clock {
    /// Starts from the system's time of day.
    pub fn start() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let begun_unix_us = since.map_or(0, |since| since.as_micros() as u64);
        Clock { begun: Instant::now(), begun_unix_us }
    }

    /// Microseconds since it was started.
    pub fn us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    /// A moment of [`Clock::us`] as microseconds since 1970 UTC.
    pub fn unix_us(&self, us: u64) -> u64 {
        self.begun_unix_us.saturating_add(us)
    }
}

/// Whether something keeps the system's time of day right: the kernel's own word (`STA_UNSYNC`, adjtimex(2)).
/// False also where the kernel does not tell, and `None` on systems other than Linux, which are not asked.
#[cfg(target_os = "linux")]
pub fn is_synchronized() -> Option<bool> {
    // SAFETY: all zeros is a valid `timex`, which asks for nothing to be changed; the kernel fills it.
    let state = unsafe {
        let mut about: libc::timex = std::mem::zeroed();
        libc::adjtimex(&raw mut about)
    };
    Some((0..libc::TIME_ERROR).contains(&state))
}

/// Whether something keeps the system's time of day right: this system is not asked.
#[cfg(not(target_os = "linux"))]
pub fn is_synchronized() -> Option<bool> {
    None
}
