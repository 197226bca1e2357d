//! A clock for those who bring none: whole seconds, read with one load.
//!
//! The engine has no clock and takes the time as an argument. A [`crate::Map`] that is given none uses
//! [`Clock::system`]: one thread a process, started at the first look at the clock, writes the time into one
//! word four times a second; reading it costs a load of a line that is almost never written. The seconds are
//! Unix time at the start and run on monotonically: setting the system's clock neither ends nor prolongs the
//! life of any entry. Should the thread not start, every look asks the system instead. A process that was forked has no
//! threads but one: its word begins at "no tick yet", so that its first look starts a thread of its own.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::time::Seconds;

/// How often the system's time is looked at.
const TICK: Duration = Duration::from_millis(250);

/// The last tick; 0 before the first.
static TICKED: AtomicU32 = AtomicU32::new(0);

/// This process has a thread that ticks, or none could be had.
static IS_TICKING: AtomicBool = AtomicBool::new(false);

/// Where a [`crate::Map`] has the time from. Cheap to clone; a clone shows the same time.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System,
    Manual(Arc<AtomicU32>),
}

impl Clock {
    /// Unix time, up to a quarter of a second late.
    pub fn system() -> Clock {
        Clock(Source::System)
    }

    /// A clock that stands until it is set: for tests, and for time that comes with the data.
    pub fn manual(now: Seconds) -> Clock {
        Clock(Source::Manual(Arc::new(AtomicU32::new(now.0))))
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Seconds {
        match &self.0 {
            Source::System => match TICKED.load(Ordering::Relaxed) {
                0 => first_look(),
                seconds => Seconds(seconds),
            },
            Source::Manual(seconds) => Seconds(seconds.load(Ordering::Relaxed)),
        }
    }

    /// Sets a manual clock and its clones; false for the system's, which is nobody's to set.
    pub fn set(&self, now: Seconds) -> bool {
        match &self.0 {
            Source::System => false,
            Source::Manual(seconds) => {
                seconds.store(now.0, Ordering::Relaxed);
                true
            }
        }
    }
}

#[cold]
#[allow(clippy::disallowed_methods, reason = "the clock for callers without one")]
fn first_look() -> Seconds {
    if !IS_TICKING.swap(true, Ordering::Relaxed) && watches_forks() {
        // Nobody waits for this thread: it holds nothing, and ends with the process.
        let _ = std::thread::Builder::new().name("larder-clock".into()).spawn(|| {
            loop {
                TICKED.store(seconds_now(), Ordering::Relaxed);
                std::thread::sleep(TICK);
            }
        });
    }
    Seconds(seconds_now())
}

/// Whether [`forked`] will run in children of this process: else no word may stand there that nobody changes.
fn watches_forks() -> bool {
    static WATCHES: OnceLock<bool> = OnceLock::new();
    *WATCHES.get_or_init(|| larder_mem::run_in_children(forked).is_ok())
}

/// This process has just been forked, and has no thread that ticks.
extern "C" fn forked() {
    TICKED.store(0, Ordering::Relaxed);
    IS_TICKING.store(false, Ordering::Relaxed);
}

/// Unix time as it was at the first call, and what has passed since.
#[allow(clippy::disallowed_methods, reason = "the clock for callers without one")]
fn seconds_now() -> u32 {
    static START: OnceLock<(Duration, Instant)> = OnceLock::new();
    let (unix, instant) = START.get_or_init(|| {
        (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), Instant::now())
    });
    // 0 would read as "no tick yet".
    u32::try_from((*unix + instant.elapsed()).as_secs()).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The system's clock shows Unix time, whether its thread has ticked or not; nobody sets it.
    #[test]
    fn system_shows_unix_time() {
        let unix = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let before = unix();
        let shown = u64::from(Clock::system().now().0);
        // A tick may be late on a busy machine, never early.
        assert!(shown <= unix() && shown + 60 > before, "{before}, {shown}");
        assert!(!Clock::system().set(Seconds(1)));
    }

    /// In a process that was forked the first look shows the time and starts a thread again, however late the last tick
    /// of the parent was.
    #[test]
    fn a_child_has_ticks_of_its_own() {
        let before = Clock::system().now();
        assert!(watches_forks());
        forked();
        assert!(!IS_TICKING.load(Ordering::Relaxed));
        let after = Clock::system().now();
        assert!(before <= after && after.0 <= seconds_now());
        // The test's other threads may have looked first.
        assert!(IS_TICKING.load(Ordering::Relaxed) || TICKED.load(Ordering::Relaxed) > 0);
    }

    /// A manual clock stands, and its clones show what one of them was set to.
    #[test]
    fn manual_stands() {
        let clock = Clock::manual(Seconds(5));
        let clone = clock.clone();
        assert_eq!(clone.now(), Seconds(5));
        assert!(clock.set(Seconds(9)));
        assert_eq!(clone.now(), Seconds(9));
    }
}
