//! A value that is replaced while others use it: settings, a policy.
//!
//! ```text
//! Watch::replace   the next value replaces the one before
//! Follower         an event loop checks once a turn for a new value, and uses that from then on
//! ```
//!
//! Invariants
//! 1. A value is replaced whole and in order: a follower never sees a mixture, nor an older value
//!    after a newer one, and takes each at most once.
//!
//! The caller of [`Watch::replace`] wakes the event loops that need the value soon.
//!
//! Cost: a relaxed load a turn of an event loop, and a lock for the copy of a pointer if there is a
//! new value.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value in force. Clones are handles of one and the same.
#[derive(Debug)]
pub struct Watch<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    /// That of the value, for followers that only want to know whether it is another.
    generation: AtomicU32,
    value: Mutex<(u32, Arc<T>)>,
}

impl<T> Shared<T> {
    /// A thread that panicked with the lock left a valid state: the value is replaced in one step.
    fn lock(&self) -> MutexGuard<'_, (u32, Arc<T>)> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Watch<T> {
    fn clone(&self) -> Watch<T> {
        Watch(self.0.clone())
    }
}

impl<T> Watch<T> {
    /// The first value.
    pub fn new(value: T) -> Watch<T> {
        let value = Mutex::new((0, Arc::new(value)));
        Watch(Arc::new(Shared { generation: AtomicU32::new(0), value }))
    }

    /// The value in force.
    pub fn get(&self) -> Arc<T> {
        self.0.lock().1.clone()
    }

    /// Puts another value in force.
    pub fn replace(&self, value: T) {
        let next = Arc::new(value);
        let mut value = self.0.lock();
        let generation = value.0.wrapping_add(1);
        let before = std::mem::replace(&mut *value, (generation, next));
        self.0.generation.store(generation, Ordering::Relaxed);
        drop(value);
        // Dropping a large value takes time, so this comes after the lock.
        drop(before);
    }

    /// For an event loop; the first value that it takes is the one in force.
    pub fn follower(&self) -> Follower<T> {
        Follower { generation: self.0.lock().0.wrapping_sub(1), shared: self.0.clone() }
    }
}

/// An event loop's view of a [`Watch`].
#[derive(Debug)]
pub struct Follower<T> {
    shared: Arc<Shared<T>>,
    /// That of the value that was taken last.
    generation: u32,
}

impl<T> Follower<T> {
    /// The value in force, unless it was taken already.
    #[inline]
    pub fn take_next(&mut self) -> Option<Arc<T>> {
        // The lock orders the reads; an event loop that is woken after a replacement sees it here.
        let is_known = self.shared.generation.load(Ordering::Relaxed) == self.generation;
        (!is_known).then(|| self.current())
    }

    /// The value in force, taken or not.
    pub fn current(&mut self) -> Arc<T> {
        let value = self.shared.lock();
        self.generation = value.0;
        value.1.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each follower takes the value in force first, then each later one at most once. One that
    /// checks seldom takes only the newest. Invariant 1.
    #[test]
    fn values_follow() {
        let watch = Watch::new("first");
        let (mut often, mut seldom) = (watch.follower(), watch.follower());
        assert_eq!(often.take_next().as_deref(), Some(&"first"));
        assert_eq!(often.take_next(), None);
        watch.clone().replace("second");
        assert_eq!((often.take_next().as_deref(), often.take_next()), (Some(&"second"), None));
        watch.replace("third");
        assert_eq!((seldom.take_next().as_deref(), seldom.take_next()), (Some(&"third"), None));
        assert_eq!((*often.current(), often.take_next(), *watch.get()), ("third", None, "third"));
        assert_eq!(watch.follower().take_next().as_deref(), Some(&"third"));
    }

    /// Followers on other threads see values in order while they are replaced. Invariant 1.
    #[test]
    fn never_backwards() {
        let watch = Watch::new(0_u32);
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let mut follower = watch.follower();
                std::thread::spawn(move || {
                    let mut last = None;
                    while last != Some(1_000) {
                        if let Some(value) = follower.take_next() {
                            assert!(last < Some(*value), "{last:?} before {value}");
                            last = Some(*value);
                        }
                    }
                })
            })
            .collect();
        (1..=1_000).for_each(|value| watch.replace(value));
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }
}
