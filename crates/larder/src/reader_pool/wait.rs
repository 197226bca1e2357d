//! Ways to get a latch that another thread may have.

use std::time::Instant;

use larder_mem::{Latch, LatchGuard};

/// A latch's value, if it is free. Looks before it asks, since to ask takes the line from the thread that has it.
pub(super) fn if_free<T>(latch: &Latch<T>) -> Option<LatchGuard<'_, T>> {
    if latch.is_locked() { None } else { latch.try_lock() }
}

/// Looks again and again whether a latch is free, until `deadline`.
#[allow(clippy::disallowed_methods, reason = "calls of a map wait for readers, and not forever")]
pub(super) fn wait_until<T>(latch: &Latch<T>, deadline: Instant) -> Option<LatchGuard<'_, T>> {
    loop {
        let free = if_free(latch);
        if free.is_some() || Instant::now() >= deadline {
            return free;
        }
        std::thread::yield_now();
    }
}
