//! A clock for callers without one: whole seconds, read by one load.
//!
//! The engine has no clock and takes the time as an argument. A [`crate::Map`] without a clock uses
//! [`Clock::system`]. One thread per process, started when the clock is first read, writes the time
//! into one word four times a second. Reading it is a load of a word that rarely changes. The clock
//! starts at Unix time and is monotonic, so setting the system's clock changes no entry's lifetime.
//! If the thread cannot start, every read asks the system. A forked process has no such thread: its
//! word is reset to "no tick yet", so its first read starts one.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::time::Seconds;

/// How often the thread reads the system's time.
const TICK: Duration = Duration::from_millis(250);

/// The last tick; 0 before the first.
static TICKED: AtomicU32 = AtomicU32::new(0);

/// True if this process has a thread that ticks, or could not start one.
static IS_TICKING: AtomicBool = AtomicBool::new(false);

/// The source of time of a [`crate::Map`]. Cloning is cheap; a clone shows the same time.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System,
    /// Milliseconds.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// Unix time, up to a quarter of a second late.
    pub fn system() -> Clock {
        Clock(Source::System)
    }

    /// A clock that stands still until it is set: for tests, and for time that comes with the data.
    pub fn manual(now: Seconds) -> Clock {
        Clock(Source::Manual(Arc::new(AtomicU64::new(ms_of(now)))))
    }

    /// The current time.
    #[inline]
    pub fn now(&self) -> Seconds {
        match &self.0 {
            Source::System => match TICKED.load(Ordering::Relaxed) {
                0 => first_look(),
                seconds => Seconds(seconds),
            },
            Source::Manual(ms) => Seconds((ms.load(Ordering::Relaxed) / 1000) as u32),
        }
    }

    /// The milliseconds that have passed. Asks the system, and so is not late.
    pub(crate) fn passed_ms(&self) -> u64 {
        match &self.0 {
            Source::System => u64::try_from(time_now().as_millis()).unwrap_or(u64::MAX),
            Source::Manual(ms) => ms.load(Ordering::Relaxed),
        }
    }

    /// The milliseconds that have begun: what lasts for some from then on does not end too early.
    pub(crate) fn begun_ms(&self) -> u64 {
        match &self.0 {
            Source::System => {
                u64::try_from(time_now().as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
            }
            Source::Manual(ms) => ms.load(Ordering::Relaxed),
        }
    }

    /// Sets a manual clock and its clones. Returns false for the system's clock, which can't be
    /// set.
    pub fn set(&self, now: Seconds) -> bool {
        match &self.0 {
            Source::System => false,
            Source::Manual(ms) => {
                ms.store(ms_of(now), Ordering::Relaxed);
                true
            }
        }
    }

    /// Advances a manual clock and its clones, by whole milliseconds, at most to its last second.
    /// Returns false for the system's clock.
    pub fn advance(&self, time: Duration) -> bool {
        let Source::Manual(clock) = &self.0 else { return false };
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let last = ms_of(Seconds(u32::MAX));
        let _ = clock.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            Some(now.saturating_add(ms).min(last))
        });
        true
    }
}

fn ms_of(seconds: Seconds) -> u64 {
    u64::from(seconds.0) * 1000
}

#[cold]
#[allow(clippy::disallowed_methods, reason = "the clock for callers without one")]
fn first_look() -> Seconds {
    if !IS_TICKING.swap(true, Ordering::Relaxed) && watches_forks() {
        // The thread is never joined: it holds nothing, and ends with the process.
        let ticks = || loop {
            TICKED.store(seconds_now(), Ordering::Relaxed);
            std::thread::sleep(TICK);
        };
        // A program that waits for its signals must get them.
        let _ = larder_mem::without_signals(|| {
            std::thread::Builder::new().name("larder-clock".into()).spawn(ticks)
        });
    }
    Seconds(seconds_now())
}

/// True if [`forked`] will run in children of this process. Otherwise a child's word would never
/// change.
fn watches_forks() -> bool {
    static WATCHES: OnceLock<bool> = OnceLock::new();
    *WATCHES.get_or_init(|| larder_mem::run_in_children(forked).is_ok())
}

/// Runs in a process that was just forked, which has no thread that ticks.
extern "C" fn forked() {
    TICKED.store(0, Ordering::Relaxed);
    IS_TICKING.store(false, Ordering::Relaxed);
}

fn seconds_now() -> u32 {
    // 0 means "no tick yet".
    u32::try_from(time_now().as_secs()).unwrap_or(u32::MAX).max(1)
}

/// Unix time at the first call, plus the time passed since.
#[allow(clippy::disallowed_methods, reason = "the clock for callers without one")]
fn time_now() -> Duration {
    static START: OnceLock<(Duration, Instant)> = OnceLock::new();
    let (unix, instant) = START.get_or_init(|| {
        (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), Instant::now())
    });
    *unix + instant.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The system's clock shows Unix time, whether its thread has ticked or not, and can't be set.
    #[test]
    fn system_shows_unix_time() {
        let unix = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let before = unix();
        let shown = u64::from(Clock::system().now().0);
        // A tick may be late on a busy machine, but never early.
        assert!(shown <= unix() && shown + 60 > before, "{before}, {shown}");
        assert!(!Clock::system().set(Seconds(1)));
    }

    /// In a forked process the first read shows the time and starts a thread again, however late
    /// the parent's last tick was.
    #[test]
    fn a_child_has_ticks_of_its_own() {
        let before = Clock::system().now();
        assert!(watches_forks());
        forked();
        assert!(!IS_TICKING.load(Ordering::Relaxed));
        let after = Clock::system().now();
        assert!(before <= after && after.0 <= seconds_now());
        // Other threads of the test may have read it first.
        assert!(IS_TICKING.load(Ordering::Relaxed) || TICKED.load(Ordering::Relaxed) > 0);
    }

    /// A manual clock stands still, and its clones show the time that one of them was set to.
    #[test]
    fn manual_stands() {
        let clock = Clock::manual(Seconds(5));
        let clone = clock.clone();
        assert_eq!(clone.now(), Seconds(5));
        assert!(clock.set(Seconds(9)));
        assert_eq!(clone.now(), Seconds(9));
        assert!(clone.advance(Duration::from_micros(1_999_999)));
        assert_eq!((clock.now(), clock.passed_ms()), (Seconds(10), 10_999));
        assert!(clock.advance(Duration::MAX));
        assert_eq!((clone.now(), clone.begun_ms() % 1000), (Seconds(u32::MAX), 0));
        assert!(!Clock::system().advance(Duration::ZERO));
    }
}
