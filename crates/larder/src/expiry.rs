//! When a value of a map ends: by a time to live, exact to a millisecond, and by a time to idle.
//!
//! The engine knows of an entry the first second in which it has expired, and no more. What is finer,
//! or depends on reads, is in a *term* of 8 bytes, stored as the entry's version. Entries that need
//! none have none:
//!
//! ```text
//! mark, 5 bits | is exact, 1 bit | time to idle, 16 bits | deadline, 42 bits
//!                                  0: none                 milliseconds of the map's clock; all ones: never
//!                                  else seconds: 12 bits, shifted by 4 bits
//! ```
//!
//! A read compares the time with an exact deadline; another is a whole second, which the engine knows.
//! If the entry has a time to idle, and less than all of it is left, the read then moves the second of
//! expiry: a write, at most once per key and sixteenth of the time to idle, and once per second of a
//! short one. A read of an entry without a term costs one comparison.
//!
//! Invariants
//! 1. The second of expiry is never later than the second in which the deadline has passed. So the
//!    engine alone, which ignores terms, shows an entry less than a second too long.
//! 2. A read moves the second of expiry of an entry with a time to idle only, to a later one, and not
//!    beyond its deadline. It does so under the lock of the shard, from the term of the entry that is
//!    there then. So a read of a value never prolongs the one that replaced it, or one that has expired.
//! 3. Nothing but a read, and a write of a new value, moves the second of expiry of an entry with a
//!    term. That it moved is no change of the entry, for those who change it on condition.
//!
//! A lookup that finds a value after an exact deadline is a hit in the figures until the second is over.

use std::time::Duration;

use larder_mem::{EXPIRES_NEVER, Slot};

use crate::clock::Clock;
use crate::time::{Seconds, Ttl, end_of, is_expired};

const DEADLINE_BITS: u32 = 42;
const DEADLINE_NEVER: u64 = (1 << DEADLINE_BITS) - 1;
const IDLE_BITS: u32 = 16;
/// Bits of the shift in a time to idle.
const SHIFT_BITS: u32 = 4;
const MARK: u64 = 0b10110;
const MARK_AT: u32 = DEADLINE_BITS + IDLE_BITS + 1;
const EXACT: u64 = 1 << (DEADLINE_BITS + IDLE_BITS);

/// A time to idle is longer by this, in seconds: the clock's seconds begin anywhere in a second, and
/// are shown up to a quarter of a second late.
const IDLE_SLACK_S: u32 = 2;

/// How long a value of a [`crate::Map`] stays: at most for a time to live, and while the time from
/// one read to the next is not longer than a time to idle. It can be evicted before.
///
/// Calls take anything that converts into it: a [`Ttl`], which counts the clock's whole seconds and
/// needs no memory; or a [`Duration`], which ends at most two milliseconds late and never early, takes 8
/// bytes an entry, and makes each read of that entry ask the system for the time.
///
/// ```
/// use std::time::Duration;
/// use larder::{Expiry, Map, Ttl};
///
/// let map: Map<str, u64> = Map::new(1 << 20)?;
/// map.insert_ttl("minute", 1, Ttl::seconds(60))?;
/// map.insert_ttl("moment", 2, Duration::from_millis(250))?;
/// // A session ends half an hour after its last request, and after a day in any case.
/// let session = Expiry::idle(Duration::from_secs(1800)).and(Ttl::seconds(86_400));
/// map.insert_ttl("session", 3, session)?;
/// # Ok::<(), larder::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Expiry {
    life: Life,
    /// 0: none.
    idle_s: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Life {
    Whole(Ttl),
    Ms(u64),
}

impl Expiry {
    /// It does not expire.
    pub const NEVER: Expiry = Expiry { life: Life::Whole(Ttl::FOREVER), idle_s: 0 };

    /// A time to live, rounded up to a millisecond.
    pub const fn after(time: Duration) -> Expiry {
        let ms = time.as_nanos().div_ceil(1_000_000);
        Expiry {
            life: Life::Ms(if ms > u64::MAX as u128 { u64::MAX } else { ms as u64 }),
            idle_s: 0,
        }
    }

    /// A time to idle, rounded up to a second; of more than four years, none. Reads are
    /// [`crate::Map::get`], [`crate::Map::with`], their forms for many keys, and lookups that load; other
    /// calls are none. An entry that is not read stays for at least this time, and at most a fifteenth
    /// and three seconds longer, so that few reads write. An entry takes 8 bytes more.
    pub const fn idle(time: Duration) -> Expiry {
        let seconds = time.as_nanos().div_ceil(1_000_000_000);
        let seconds = if seconds > u32::MAX as u128 { u32::MAX } else { seconds as u32 };
        Expiry { life: Life::Whole(Ttl::FOREVER), idle_s: if seconds == 0 { 1 } else { seconds } }
    }

    /// Both: the time to live of `other`, unless that is endless, and its time to idle, if it has one;
    /// otherwise those of `self`.
    pub fn and(self, other: impl Into<Expiry>) -> Expiry {
        let other = other.into();
        let is_endless = other.life == Life::Whole(Ttl::FOREVER);
        Expiry {
            life: if is_endless { self.life } else { other.life },
            idle_s: if other.idle_s == 0 { self.idle_s } else { other.idle_s },
        }
    }

    /// What an entry that is stored now has to remember.
    #[inline]
    pub(crate) fn ends(self, clock: &Clock) -> Ends {
        match self {
            Expiry { life: Life::Whole(ttl), idle_s: 0 } => {
                Ends { expires: ttl.expires(clock.now()), version: None }
            }
            _ => self.term(clock),
        }
    }

    #[cold]
    fn term(self, clock: &Clock) -> Ends {
        let now = clock.now();
        let (deadline, is_exact) = match self.life {
            Life::Ms(ms) => (clock.begun_ms().saturating_add(ms), true),
            Life::Whole(ttl) => match ttl.expires(now) {
                EXPIRES_NEVER => (DEADLINE_NEVER, false),
                expires => (u64::from(expires) * 1000, false),
            },
        };
        let deadline = deadline.min(DEADLINE_NEVER);
        let term = Term { deadline, is_exact, idle: idle_code(self.idle_s) };
        Ends { expires: term.expires(now), version: Some(term.packed()) }
    }
}

impl From<Ttl> for Expiry {
    fn from(ttl: Ttl) -> Expiry {
        Expiry { life: Life::Whole(ttl), idle_s: 0 }
    }
}

impl From<Duration> for Expiry {
    /// [`Expiry::after`].
    fn from(time: Duration) -> Expiry {
        Expiry::after(time)
    }
}

/// A value as it is stored, and when it ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub value: &'a [u8],
    pub ends: Ends,
}

impl<'a> Stored<'a> {
    #[inline(always)]
    pub fn of(slot: Slot<'a>) -> Self {
        Stored { value: slot.value(), ends: Ends::of(&slot) }
    }
}

/// What an entry has of its expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub expires: u32,
    /// A term, or the version of a caller.
    pub version: Option<u64>,
}

impl Ends {
    /// Of an entry that stays until it is evicted.
    pub const NEVER: Ends = Ends { expires: EXPIRES_NEVER, version: None };

    pub fn after(ttl: Ttl, now: Seconds) -> Ends {
        Ends { expires: ttl.expires(now), version: None }
    }

    #[inline(always)]
    pub fn of(slot: &Slot<'_>) -> Ends {
        Ends { expires: slot.expires(), version: slot.version() }
    }

    /// False for most entries, without a term.
    #[inline(always)]
    pub fn may_have_term(self) -> bool {
        self.version.is_some()
    }

    /// The version that a caller stored.
    pub fn serial(self) -> Option<u64> {
        self.version.filter(|_| !self.has_term())
    }

    pub fn has_term(self) -> bool {
        Term::of(self.version).is_some()
    }

    /// True if these are the ends of one entry, of which one may have been looked at before a read.
    pub fn are_of(self, other: Ends) -> bool {
        let is_idle = || Term::of(self.version).is_some_and(|term| term.idle != 0);
        self.version == other.version && (self.expires == other.expires || is_idle())
    }

    /// The end of a new value that takes the place of this entry's: the same time to live, and the time
    /// to idle from now. A caller's version was of the old value.
    pub fn inherited(self, now: Seconds) -> Ends {
        match Term::of(self.version) {
            Some(term) if term.idle != 0 => Ends { expires: term.expires(now), ..self },
            Some(_) => self,
            None => Ends { version: None, ..self },
        }
    }

    /// True if the deadline of an entry's term has passed.
    #[cold]
    pub fn is_past(self, clock: &Clock) -> bool {
        Term::of(self.version)
            .is_some_and(|term| term.is_exact && clock.passed_ms() >= term.deadline)
    }

    /// The first second in which the entry has expired, if it is not read meanwhile.
    pub fn second(self) -> Option<Seconds> {
        // By invariant 1 that of the engine is not later than the deadline's.
        end_of(self.expires)
    }

    /// The second of expiry after a read at `now`, if the read changes it. Decided under the lock of the
    /// shard, for the entry that is there (invariant 2).
    pub fn prolonged(self, now: Seconds) -> Option<u32> {
        let term = Term::of(self.version)?;
        let idle_s = idle_seconds(term.idle);
        let enough = now.0.saturating_add(idle_s).saturating_add(IDLE_SLACK_S);
        if idle_s == 0 || self.expires >= enough || is_expired(self.expires, now) {
            return None;
        }
        Some(term.expires(now)).filter(|&expires| expires > self.expires)
    }
}

/// The parts of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Term {
    deadline: u64,
    is_exact: bool,
    idle: u16,
}

impl Term {
    fn packed(self) -> u64 {
        let idle = u64::from(self.idle) << DEADLINE_BITS;
        let exact = if self.is_exact { EXACT } else { 0 };
        MARK << MARK_AT | exact | idle | self.deadline
    }

    #[inline]
    fn of(version: Option<u64>) -> Option<Term> {
        let version = version.filter(|version| version >> MARK_AT == MARK)?;
        let (deadline, idle) = (version & DEADLINE_NEVER, (version >> DEADLINE_BITS) as u16);
        Some(Term { deadline, is_exact: version & EXACT != 0, idle })
    }

    /// The second of expiry of an entry that is stored or read at `now`.
    fn expires(self, now: Seconds) -> u32 {
        // 0 means never, and the last second of the clock is no deadline.
        let deadline = u32::try_from(self.deadline.div_ceil(1000)).unwrap_or(u32::MAX).max(1);
        let idle_s = idle_seconds(self.idle);
        if idle_s == 0 {
            return if self.deadline == DEADLINE_NEVER { EXPIRES_NEVER } else { deadline };
        }
        let spare_s = idle_s / 16 + IDLE_SLACK_S;
        now.0.saturating_add(idle_s).saturating_add(spare_s).min(deadline)
    }
}

/// A time to idle in 16 bits, rounded up by at most a part in 2,048; 0 for none, and for a longer one
/// than fits.
fn idle_code(idle_s: u32) -> u16 {
    let mantissa_bits = IDLE_BITS - SHIFT_BITS;
    let shift = (u32::BITS - idle_s.leading_zeros()).saturating_sub(mantissa_bits);
    let rounded = u64::from(idle_s).div_ceil(1 << shift);
    // Rounding may need one bit more, of which the lowest is 0 then.
    let (rounded, shift) =
        if rounded >> mantissa_bits == 0 { (rounded, shift) } else { (rounded >> 1, shift + 1) };
    if shift >= 1 << SHIFT_BITS {
        return 0;
    }
    (rounded << SHIFT_BITS) as u16 | shift as u16
}

fn idle_seconds(code: u16) -> u32 {
    u32::from(code >> SHIFT_BITS) << (code & ((1 << SHIFT_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times to idle are stored exactly up to 4,095 s, and rounded up by a part in 2,048 at most beyond;
    /// none is taken for a short one.
    #[test]
    fn times_to_idle_fit() {
        assert_eq!(idle_code(0), 0);
        let mut longest = 0;
        for idle_s in
            (0..40_000).chain((0..32).flat_map(|bit| [1 << bit, (1 << bit) - 1, 3 << (bit / 2)]))
        {
            let stored = idle_seconds(idle_code(idle_s));
            if stored == 0 {
                assert!(idle_s == 0 || idle_s > 4094 << 15, "{idle_s}");
                continue;
            }
            assert!(stored >= idle_s && stored - idle_s <= idle_s / 2048, "{idle_s}: {stored}");
            assert!(idle_s > 4095 || stored == idle_s);
            longest = longest.max(idle_s);
        }
        assert!(longest >= 1 << 26);
        assert_eq!(idle_seconds(idle_code(u32::MAX)), 0);
    }

    /// Terms have the second of expiry that readers without them go by, and it is never 0, which would
    /// mean never.
    #[test]
    fn the_engine_expires_them_too() {
        let clock = Clock::manual(Seconds(100));
        clock.advance(Duration::from_millis(900));
        let second = |expiry: Expiry| expiry.ends(&clock).expires;
        assert_eq!(second(Expiry::after(Duration::from_millis(100))), 101);
        assert_eq!(second(Expiry::after(Duration::from_millis(101))), 102);
        assert_eq!(second(Expiry::after(Duration::MAX)), EXPIRES_NEVER);
        assert_eq!(second(Expiry::idle(Duration::from_secs(160))), 100 + 160 + 10 + IDLE_SLACK_S);
        assert_eq!(second(Expiry::idle(Duration::from_secs(160)).and(Ttl::seconds(5))), 105);
        assert_eq!(second(Expiry::idle(Duration::MAX)), EXPIRES_NEVER);
        assert_eq!(
            Expiry::from(Ttl::seconds(7)).ends(&clock),
            Ends { expires: 107, version: None }
        );
        let start = Clock::manual(Seconds(0));
        let at_once = Expiry::after(Duration::ZERO).ends(&start);
        assert_eq!(at_once.expires, 1);
        assert!(at_once.is_past(&start));
    }

    /// A read prolongs an entry with a time to idle, not beyond its deadline, and none that has expired.
    #[test]
    fn reads_prolong() {
        let clock = Clock::manual(Seconds(1000));
        let ends = Expiry::idle(Duration::from_secs(100)).and(Ttl::seconds(150)).ends(&clock);
        let after = |at| ends.prolonged(Seconds(at));
        assert_eq!(ends.expires, 1108);
        assert_eq!((after(1000), after(1006), after(1007)), (None, None, Some(1115)));
        assert_eq!((after(1060), after(1107), after(1108)), (Some(1150), Some(1150), None));
        let whole = Expiry::from(Ttl::seconds(5)).ends(&clock);
        assert_eq!(whole.prolonged(Seconds(1001)), None);
        // What a caller stored as a version is no term.
        for version in [0, 1, 1_790_000_000_000_000_000, u64::MAX] {
            let ends = Ends { expires: 1, version: Some(version) };
            assert!(
                !ends.has_term() && !ends.is_past(&clock) && ends.prolonged(Seconds(0)).is_none()
            );
        }
    }
}
