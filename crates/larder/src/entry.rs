//! The results of lookups: an entry in place, or a lease on its value.

use std::ops::Deref;

use larder_mem::{self as mem, Slot};

use crate::engine::State;
use crate::expiry::Ends;
use crate::time::{Seconds, end_of, is_expired};

/// A value in the cache, read in place. While it is alive, its reader can't sync:
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

    /// The first second in which the entry has expired; `None` for never.
    #[inline]
    pub fn expires(&self) -> Option<Seconds> {
        end_of(self.slot.expires())
    }

    /// The remaining lifetime at `now` in seconds, 0 once it has expired; `None` for an entry that
    /// never expires.
    #[inline]
    pub fn seconds_left(&self, now: Seconds) -> Option<u32> {
        self.expires().map(|end| end.0.saturating_sub(now.0))
    }

    /// True if the entry has expired at `now`. Only [`crate::Reader::get_stale`] returns such
    /// entries.
    #[inline]
    pub fn is_stale(&self, now: Seconds) -> bool {
        is_expired(self.slot.expires(), now)
    }

    /// The version that [`crate::Writer::insert_if_newer`] stored.
    #[inline]
    pub fn version(&self) -> Option<u64> {
        Ends::of(&self.slot).serial()
    }
}

impl Deref for Entry<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.slot.value()
    }
}

/// A hold on a value. See [`crate::Reader::lease`]. Dropping it releases the value, on any thread
/// and in any order with the cache's handles. To share it, put it in an `Arc`.
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

    /// The first second in which the entry has expired, as of the lease; `None` for never.
    pub fn expires(&self) -> Option<Seconds> {
        end_of(self.expires)
    }

    /// True if the value was small and therefore copied.
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
