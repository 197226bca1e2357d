//! What a reader gives: an entry where it lies, or a lease on its value.

use std::ops::Deref;

use larder_mem::{self as mem, Slot};

use crate::engine::State;
use crate::time::{Seconds, end_of, is_expired};

/// A value in the cache, read where it lies. Alive, it keeps its reader from syncing:
///
/// ```compile_fail
/// # let cache = larder::Cache::builder().build().unwrap();
/// let mut reader = cache.reader().unwrap();
/// let entry = reader.get(b"key", larder::Seconds(0));
/// reader.sync();
/// drop(entry);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    pub(crate) slot: Slot<'a>,
}

impl<'a> Entry<'a> {
    /// The key it was stored under.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        self.slot.key()
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        self.slot.value()
    }

    /// The first second in which the entry is gone; `None` for never.
    #[inline]
    pub fn expires(&self) -> Option<Seconds> {
        end_of(self.slot.expires())
    }

    /// Seconds of its life that are left at `now`, 0 once it is over; `None` for an entry without end.
    #[inline]
    pub fn seconds_left(&self, now: Seconds) -> Option<u32> {
        self.expires().map(|end| end.0.saturating_sub(now.0))
    }

    /// True when its life is over at `now`: [`crate::Reader::get_stale`] gave it.
    #[inline]
    pub fn is_stale(&self, now: Seconds) -> bool {
        is_expired(self.slot.expires(), now)
    }

    /// The version that [`crate::Writer::insert_if_newer`] gave it.
    #[inline]
    pub fn version(&self) -> Option<u64> {
        self.slot.version()
    }
}

impl Deref for Entry<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.slot.value()
    }
}

/// A value held. See [`crate::Reader::lease`]. Give it back by dropping it, on any thread, in any order with
/// the cache's handles; share it in an `Arc`.
#[derive(Debug)]
pub struct Lease {
    pub(crate) lease: mem::Lease<State>,
    pub(crate) expires: u32,
}

impl Lease {
    /// The key it was stored under.
    pub fn key(&self) -> &[u8] {
        self.lease.key()
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        self.lease.value()
    }

    /// The first second in which the entry is gone, as it was when the lease was taken; `None` for never.
    pub fn expires(&self) -> Option<Seconds> {
        end_of(self.expires)
    }

    /// True when the value was small and so copied.
    pub fn is_copy(&self) -> bool {
        self.lease.is_copy()
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.value()
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self.value()
    }
}
