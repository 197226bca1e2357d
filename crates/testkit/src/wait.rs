//! Waiting with one time limit for all tests: a test that waits longer fails.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// The time limit of every wait.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two checks.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until `look` returns a value.
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

/// Waits until `is_so` returns true.
#[track_caller]
pub fn until_so(what: impl Display, mut is_so: impl FnMut() -> bool) {
    until(what, || is_so().then_some(()));
}

/// Like [`until_so`], but prints the state if it fails.
#[track_caller]
pub fn until_so_or<S: Display>(show: impl Fn() -> S, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {}", show());
        thread::sleep(LOOK);
    }
}

/// What a future returns at its first poll: the stub of an async runtime, for those that wait for nothing. Panics if it
/// waits.
pub fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("nothing here waits"),
    }
}
