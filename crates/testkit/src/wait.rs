//! The one patience: what must come is waited for, and a test fails where it does not.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// The bound of every wait.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Looks until there is something to see.
#[track_caller]
pub fn until<T>(what: impl Display, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(LOOK);
    }
}

/// Looks until it is so.
#[track_caller]
pub fn until_so(what: impl Display, mut is_so: impl FnMut() -> bool) {
    until(what, || is_so().then_some(()));
}

/// The same, and shows what there is instead where it never is so.
#[track_caller]
pub fn until_so_or<S: Display>(show: impl Fn() -> S, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {}", show());
        thread::sleep(LOOK);
    }
}
