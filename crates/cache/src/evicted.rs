//! What left to make room, told to a listener.
//!
//! ```text
//! evicted under the lock: copied into the batch -> lock released -> listener called, entry by entry
//! ```
//!
//! The batch belongs to the writer whose operations evicted; its thread makes the calls, in the order
//! of eviction. A full batch (256 entries or 64 KiB) ends the lock hold early, and what is left to apply
//! goes on after the calls: nothing is left out, and memory is bounded by the batch and one operation's
//! evictions. A listener that panics loses the rest of that batch's calls and nothing else: no lock is
//! held, no slot is in its hands, the writer's queue is as it was. Without a listener none of this costs
//! anything.

use std::fmt;
use std::sync::Arc;

const ENTRIES_MAX: usize = 256;
const BYTES_MAX: usize = 64 << 10;

/// Why an entry left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The budget, of octets or of entries, was used up, and replacement chose it.
    Budget,
    /// Likewise, and its life was over, stale window and all: nothing was lost.
    Expired,
    /// Its bucket and all those around were full. Rare: none in ten million inserts.
    Conflict,
}

/// An entry that left to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evicted<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Why it left.
    pub cause: Cause,
}

/// Who is told. See [`crate::Builder::on_evicted`].
#[derive(Clone)]
pub(crate) struct Listener(pub Arc<dyn Fn(Evicted<'_>) + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Copies of entries that left, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    key_len: u8,
    value_len: u16,
    cause: Cause,
}

impl Batch {
    pub fn push(&mut self, key: &[u8], value: &[u8], cause: Cause) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let (key_len, value_len) = (key.len() as u8, value.len() as u16);
        self.entries.push(Place { key_len, value_len, cause });
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.bytes.len() >= BYTES_MAX
    }

    /// Calls the listener for each entry. Whether it returns or panics, the batch is empty then. A thread
    /// that unwinds already tells nobody: a second panic would end the process.
    pub fn tell(&mut self, listener: &Listener) {
        // Out of `self`, so that a panic leaves it empty.
        let Batch { mut bytes, mut entries } = std::mem::take(self);
        let mut rest = &bytes[..];
        let heard = if std::thread::panicking() { &[] } else { &entries[..] };
        for place in heard {
            let (key, after) = rest.split_at(place.key_len as usize);
            let (value, after) = after.split_at(place.value_len as usize);
            rest = after;
            (listener.0)(Evicted { key, value, cause: place.cause });
        }
        bytes.clear();
        entries.clear();
        // The memory is for the next batch, unless one operation made it unusually large.
        if bytes.capacity() <= 4 * BYTES_MAX {
            *self = Batch { bytes, entries };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Entries come out as they went in, and a panic in the middle leaves the batch empty.
    #[test]
    fn told_in_order() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hearing = heard.clone();
        let listener = Listener(Arc::new(move |evicted: Evicted<'_>| {
            hearing.lock().unwrap().push((evicted.key.to_vec(), evicted.value.len()));
            if evicted.cause == Cause::Conflict {
                std::panic::resume_unwind(Box::new(()));
            }
        }));
        let mut batch = Batch::default();
        batch.push(b"a", b"", Cause::Budget);
        batch.push(b"bc", &[7; 40_000], Cause::Expired);
        assert!(!batch.is_full());
        batch.push(b"d", &[7; 40_000], Cause::Conflict);
        batch.push(b"e", b"5", Cause::Budget);
        assert!(batch.is_full());
        let told = std::panic::AssertUnwindSafe(|| batch.tell(&listener));
        assert!(std::panic::catch_unwind(told).is_err());
        let expected = [(b"a".to_vec(), 0), (b"bc".to_vec(), 40_000), (b"d".to_vec(), 40_000)];
        assert_eq!(*heard.lock().unwrap(), expected);
        assert!(batch.is_empty() && !batch.is_full());
    }
}
