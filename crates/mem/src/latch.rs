//! A lock that is almost never contended, and is given back by a plain store.
//!
//! A lock that puts its waiters to sleep must ask for them when it is given back, which costs a second atomic
//! exchange. Of a lookup in a table within the CPU's cache, that is a seventh. A thread that finds a latch taken tries
//! something else, or looks again later.
//!
//! Invariants
//! 1. Between an exchange that found the flag unset and the store that unsets it, no other exchange finds it unset:
//!    one thread at a time has the latch. What it did before that store, the next one sees (Acquire, Release).

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::lock_api;

/// The flag of a [`Latch`].
#[derive(Debug)]
pub struct RawLatch {
    is_taken: AtomicBool,
}

/// A value that one thread at a time may use.
pub type Latch<T> = lock_api::Mutex<RawLatch, T>;

/// The right to use it.
pub type LatchGuard<'a, T> = lock_api::MutexGuard<'a, RawLatch, T>;

// SAFETY: by invariant 1 it excludes.
unsafe impl lock_api::RawMutex for RawLatch {
    const INIT: RawLatch = RawLatch { is_taken: AtomicBool::new(false) };

    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        while !self.try_lock() {
            std::thread::yield_now();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        !self.is_taken.swap(true, Ordering::Acquire)
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.is_taken.store(false, Ordering::Release);
    }

    fn is_locked(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::sync::Barrier;

    use super::*;

    /// Threads that change one value in two steps see each other's changes whole (invariant 1).
    #[test]
    fn one_at_a_time() {
        const ROUNDS: u64 = if cfg!(miri) { 100 } else { 20_000 };
        let latch = Latch::new((Cell::new(0u64), Cell::new(0u64)));
        let start = Barrier::new(3);
        let refused = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (latch, start, refused) = (&latch, &start, &refused);
                scope.spawn(move || {
                    start.wait();
                    let mut done = 0;
                    while done < ROUNDS {
                        let held = if number == 0 { Some(latch.lock()) } else { latch.try_lock() };
                        let Some(held) = held else {
                            refused.fetch_add(1, Ordering::Relaxed);
                            std::thread::yield_now();
                            continue;
                        };
                        assert_eq!(held.0.get(), held.1.get());
                        held.0.set(held.0.get() + 1);
                        std::hint::spin_loop();
                        held.1.set(held.1.get() + 1);
                        done += 1;
                    }
                });
            }
        });
        assert_eq!(latch.into_inner().1.get(), 3 * ROUNDS);
    }

    /// A latch that is taken is refused, also to its own thread, and it is free after a panic.
    #[test]
    fn a_taken_latch_is_refused() {
        let latch = Latch::new(1);
        let held = latch.lock();
        assert!(latch.try_lock().is_none() && latch.is_locked());
        drop(held);
        let panics = || {
            let _held = latch.lock();
            panic!("while it is held");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(latch.try_lock().as_deref(), Some(&1));
    }
}
