//! Time as the engine knows it, given by the caller, from whatever clock it follows: whole seconds for
//! what entries live, microseconds for how often a reader syncs.

/// A moment, in seconds since any origin the caller keeps to (the packets' clock, Unix time).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seconds(pub u32);

/// A moment or a span of a finer clock, in microseconds since any origin the caller keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticks(pub u64);

impl Ticks {
    /// So many microseconds.
    pub const fn us(count: u64) -> Ticks {
        Ticks(count)
    }

    /// So many milliseconds.
    pub const fn ms(count: u64) -> Ticks {
        Ticks(count.saturating_mul(1000))
    }

    /// So many seconds.
    pub const fn seconds(count: u64) -> Ticks {
        Ticks(count.saturating_mul(1_000_000))
    }
}

/// When a reader comes to show what writers have published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// Every lookup brings the reader to the present first, which reads a line that writers write. The
    /// reader must still sync now and then to let go of what it holds.
    Immediate,
    /// Lookups read what the reader shows; [`crate::Reader::sync_if_due`] syncs once a period.
    Periodic(Ticks),
}

/// How long an entry lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u32);

impl Ttl {
    /// The entry has no end of its own; replacement may still take it.
    pub const FOREVER: Ttl = Ttl(u32::MAX);

    /// A life of `seconds`. The largest number means [`Ttl::FOREVER`].
    pub const fn seconds(seconds: u32) -> Ttl {
        Ttl(seconds)
    }

    /// The seconds; `None` forever.
    pub const fn as_seconds(self) -> Option<u32> {
        if self.0 == u32::MAX { None } else { Some(self.0) }
    }

    /// The `expires` of a slot: 0 is never, else the first second in which the entry is gone.
    pub(crate) fn expires(self, now: Seconds) -> u32 {
        if self == Ttl::FOREVER {
            return larder_mem::EXPIRES_NEVER;
        }
        now.0.saturating_add(self.0).max(1)
    }
}

/// True when an entry with this `expires` is gone at `now`.
#[inline(always)]
pub(crate) fn is_expired(expires: u32, now: Seconds) -> bool {
    expires != larder_mem::EXPIRES_NEVER && now.0 >= expires
}

/// True when an entry with this `expires` is of no use to anyone at `now`: past its end, and past the
/// `stale` seconds in which it may be asked for still.
#[inline(always)]
pub(crate) fn is_dead(expires: u32, stale: u32, now: Seconds) -> bool {
    expires != larder_mem::EXPIRES_NEVER && now.0 >= expires.saturating_add(stale)
}

/// The end of an entry, as callers see it.
#[inline]
pub(crate) fn end_of(expires: u32) -> Option<Seconds> {
    (expires != larder_mem::EXPIRES_NEVER).then_some(Seconds(expires))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry lives for its seconds and no longer, also at the ends of the clock.
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
