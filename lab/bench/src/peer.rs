//! What a cache must offer to take part.
//!
//! The traits are generic, and the loops that use them are compiled for each contestant: no call is made
//! through a pointer inside a measured loop.

use crate::data::Key;

/// What a contestant is built for.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Entries of the usual size that it should hold when full.
    pub entries: usize,
    /// Threads that will hold a handle at the same time.
    pub threads: usize,
}

/// A cache under test, shared by threads.
pub trait Peer: Sync + Sized {
    /// What a thread uses it through.
    type Handle<'a>: Handle
    where
        Self: 'a;

    /// A thread's handle. May be expensive: it is made outside the measured time.
    fn handle(&self) -> Self::Handle<'_>;

    /// Bytes that the cache holds by its own count, all that it counts; `None` when it counts entries only.
    fn own_bytes(&self) -> Option<u64> {
        None
    }
}

/// One thread's way to a cache.
pub trait Handle {
    /// Looks a key up; what it gives is the number that the value begins with, read from the value.
    fn get(&mut self, key: &Key) -> Option<u64>;

    /// Looks many keys up, in order. One at a time, for caches without such a call.
    fn get_many(&mut self, keys: &[Key], mut each: impl FnMut(Option<u64>)) {
        for key in keys {
            each(self.get(key));
        }
    }

    /// Stores a value; waits where it must.
    fn put(&mut self, key: &Key, value: &[u8]);

    /// Finishes what puts left for later, and shows this handle what all others have finished.
    fn settle(&mut self) {}
}
