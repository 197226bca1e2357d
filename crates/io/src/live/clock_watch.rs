//! Steps of the time of day, found by comparing it with the time since boot.

/// A change of the time of day, against the time since boot, that counts as a step.
const STEP_NS: i64 = 1_000_000_000;

/// Compares the time of day with the time since boot, to find steps.
#[derive(Debug)]
pub(super) struct ClockWatch {
    difference_ns: i64,
}

impl ClockWatch {
    pub(super) fn start() -> ClockWatch {
        ClockWatch { difference_ns: difference_ns() }
    }

    /// By how much the time of day was set since the last call; 0: not, or by less than counts.
    pub(super) fn look(&mut self) -> i64 {
        self.compare(difference_ns())
    }

    fn compare(&mut self, difference_ns: i64) -> i64 {
        // Slow corrections are no steps, however far they lead.
        let step_ns = difference_ns.saturating_sub(self.difference_ns);
        self.difference_ns = difference_ns;
        if step_ns.saturating_abs() > STEP_NS { step_ns } else { 0 }
    }
}

/// The time of day minus the time since boot (which includes the time that the machine sleeps, as
/// the time of day does).
fn difference_ns() -> i64 {
    let mut difference = 0;
    for _ in 0..3 {
        let before = read_clock(libc::CLOCK_BOOTTIME);
        let real = read_clock(libc::CLOCK_REALTIME);
        difference = real.saturating_sub(before);
        // If the thread was interrupted between the two reads, the difference is not exact.
        if read_clock(libc::CLOCK_BOOTTIME) - before < STEP_NS / 10 {
            break;
        }
    }
    difference
}

pub(super) fn read_clock(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a `timespec`, which is ours; a missing clock leaves it unchanged.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of day is compared with the time since boot: corrections are no steps, however large
    /// their sum, and a step is reported once, with its sign.
    #[test]
    fn steps_of_the_clock_are_seen() {
        let mut clock = ClockWatch { difference_ns: 0 };
        for n in 1..100 {
            assert_eq!(clock.compare(n * STEP_NS / 2), 0);
        }
        assert_eq!(clock.compare(0), -99 * STEP_NS / 2);
        assert_eq!(clock.compare(1), 0);
        assert_eq!(clock.compare(3_600 * STEP_NS), 3_600 * STEP_NS - 1);
        assert_eq!(clock.compare(i64::MIN), i64::MIN);
        assert_eq!(ClockWatch::start().look(), 0);
    }
}
