//! The real primitives, or the model checker's.
//!
//! Built with `--cfg loom` the crate runs under loom's scheduler, which explores interleavings and
//! checks every plain access to a `RaceCell` against the happens-before order. Otherwise the same
//! names are `std` and `parking_lot` (whose lock ThreadSanitizer can check). In tests and with the
//! `counting` feature the atomics count their operations (`counted`).

#[cfg(all(not(loom), any(test, feature = "counting")))]
pub use crate::counted::{AtomicU32, AtomicU64};
#[cfg(all(not(loom), any(test, feature = "counting")))]
use crate::counted::{note_lock, note_store};
#[cfg(loom)]
pub use loom::sync::Arc;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::Arc;
#[cfg(all(not(loom), not(any(test, feature = "counting"))))]
pub use std::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(loom))]
pub use std::sync::atomic::{Ordering, fence};

#[cfg(all(not(loom), not(any(test, feature = "counting"))))]
#[inline(always)]
fn note_lock<T>(_: &T) {}

#[cfg(all(not(loom), not(any(test, feature = "counting"))))]
#[inline(always)]
fn note_store<T>(_: &T) {}

#[cfg(loom)]
pub(crate) use loom::sync::MutexGuard;
#[cfg(not(loom))]
pub(crate) use parking_lot::MutexGuard;

/// A mutual exclusion lock. The shard poisons itself, so the lock does not.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    #[cfg(loom)]
    inner: loom::sync::Mutex<T>,
    #[cfg(not(loom))]
    inner: parking_lot::Mutex<T>,
}

#[cfg(loom)]
impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Mutex { inner: loom::sync::Mutex::new(value) }
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.inner.lock().expect("loom ends the execution at the first panic")
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock().ok()
    }
}

#[cfg(not(loom))]
impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Mutex { inner: parking_lot::Mutex::new(value) }
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        note_lock(self);
        self.inner.lock()
    }

    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        note_lock(self);
        self.inner.try_lock()
    }
}

/// Plain memory that several threads access, ordered by the protocol and not by this type.
#[derive(Debug)]
pub(crate) struct RaceCell<T> {
    #[cfg(loom)]
    inner: loom::cell::UnsafeCell<T>,
    #[cfg(not(loom))]
    inner: std::cell::UnsafeCell<T>,
}

#[cfg(loom)]
impl<T> RaceCell<T> {
    pub fn new(value: T) -> Self {
        RaceCell { inner: loom::cell::UnsafeCell::new(value) }
    }

    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        self.inner.with(read)
    }

    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        self.inner.with_mut(write)
    }
}

#[cfg(not(loom))]
impl<T> RaceCell<T> {
    pub fn new(value: T) -> Self {
        RaceCell { inner: std::cell::UnsafeCell::new(value) }
    }

    #[inline(always)]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.inner.get())
    }

    #[inline(always)]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        note_store(self);
        write(self.inner.get())
    }
}

/// Puts a value on cache lines of its own: two, because the prefetcher fetches pairs.
#[derive(Debug)]
#[repr(align(128))]
pub struct CacheLines<T>(pub T);
