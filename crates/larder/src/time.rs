//! Time in the engine, given by the caller from any clock: whole seconds for expiry, microseconds
//! for sync periods.

/// A moment, in seconds since any fixed origin of the caller's (the packets' clock, Unix time).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seconds(pub u32);

/// A moment or a span of a finer clock, in microseconds since any fixed origin of the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticks(pub u64);

impl Ticks {
    /// `count` microseconds.
    pub const fn us(count: u64) -> Ticks {
        Ticks(count)
    }

    /// `count` milliseconds.
    pub const fn ms(count: u64) -> Ticks {
        Ticks(count.saturating_mul(1000))
    }

    /// `count` seconds.
    pub const fn seconds(count: u64) -> Ticks {
        Ticks(count.saturating_mul(1_000_000))
    }
}

/// When a reader shows published writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// Every lookup refreshes first, which reads a cache line that writers write. The reader must
    /// still sync now and then to release memory.
    Immediate,
    /// Lookups read the state that the reader shows; [`crate::Reader::sync_if_due`] syncs once per
    /// period.
    Periodic(Ticks),
}

/// An entry's time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u32);

impl Ttl {
    /// The entry does not expire; it can still be evicted.
    pub const FOREVER: Ttl = Ttl(u32::MAX);

    /// A TTL of `seconds`. The largest number means [`Ttl::FOREVER`].
    pub const fn seconds(seconds: u32) -> Ttl {
        Ttl(seconds)
    }

    /// The seconds; `None` forever.
    pub const fn as_seconds(self) -> Option<u32> {
        if self.0 == u32::MAX { None } else { Some(self.0) }
    }

    /// The `expires` of a slot: 0 for never, else the first second in which the entry has expired.
    pub(crate) fn expires(self, now: Seconds) -> u32 {
        if self == Ttl::FOREVER {
            return larder_mem::EXPIRES_NEVER;
        }
        now.0.saturating_add(self.0).max(1)
    }
}

/// True if an entry with this `expires` has expired at `now`.
#[inline(always)]
pub(crate) fn is_expired(expires: u32, now: Seconds) -> bool {
    expires != larder_mem::EXPIRES_NEVER && now.0 >= expires
}

/// True if an entry with this `expires` is useless at `now`: it has expired, and so has its `stale`
/// window.
#[inline(always)]
pub(crate) fn is_dead(expires: u32, stale: u32, now: Seconds) -> bool {
    expires != larder_mem::EXPIRES_NEVER && now.0 >= expires.saturating_add(stale)
}

/// An entry's expiry, as callers see it.
#[inline]
pub(crate) fn end_of(expires: u32) -> Option<Seconds> {
    (expires != larder_mem::EXPIRES_NEVER).then_some(Seconds(expires))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry can be read for its TTL and no longer, also at the ends of the clock.
    #[test]
    fn ends() {
        let expires = Ttl::seconds(5).expires(Seconds(10));
        assert!(!is_expired(expires, Seconds(14)));
        assert!(is_expired(expires, Seconds(15)));
        assert!(is_expired(Ttl::seconds(0).expires(Seconds(10)), Seconds(10)));
        assert_eq!(Ttl::seconds(0).expires(Seconds(0)), 1, "0 would mean never");
        assert!(!is_expired(Ttl::FOREVER.expires(Seconds(7)), Seconds(u32::MAX)));
        assert!(is_expired(Ttl::seconds(9).expires(Seconds(u32::MAX - 1)), Seconds(u32::MAX)));
        assert!(!is_dead(expires, 3, Seconds(17)) && is_dead(expires, 3, Seconds(18)));
        assert!(is_dead(u32::MAX, 9, Seconds(u32::MAX)) && !is_dead(0, 0, Seconds(u32::MAX)));
    }
}
