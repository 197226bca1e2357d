//! Numbers as text traces write them, and the time since the first.

pub use larder_wire::digits::number;
use larder_wire::times;

/// Nanoseconds of a second.
const NS: i64 = 1_000_000_000;

/// A number of bytes in 32 bits, one at least: an entry of no bytes would let a cache hold any number.
#[inline]
pub fn bytes(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX).max(1)
}

/// Seconds with any decimals, as nanoseconds; further digits are cut off. Before 1970 there are no traces.
pub fn seconds_ns(text: &[u8]) -> Option<i64> {
    times::seconds_ns(text).filter(|ns| *ns >= 0)
}

/// Seconds since the trace's first request. A step back in the trace (logs are in the order in which things
/// ended) is no step back here: a cache's clock never has one.
#[derive(Debug, Default)]
pub struct Clock {
    first_ns: Option<i64>,
    latest_s: u32,
}

impl Clock {
    /// The time of a request at `ns`.
    #[inline]
    pub fn since_first(&mut self, ns: i64) -> u32 {
        let first_ns = *self.first_ns.get_or_insert(ns);
        let seconds = ns.saturating_sub(first_ns).max(0) / NS;
        self.latest_s = self.latest_s.max(u32::try_from(seconds).unwrap_or(u32::MAX));
        self.latest_s
    }

    /// The same for whole seconds.
    #[inline]
    pub fn since_first_s(&mut self, seconds: u64) -> u32 {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        self.since_first(seconds.saturating_mul(NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers are digits only, up to 64 bits.
    #[test]
    fn numbers() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for none in ["", "18446744073709551616", "-1", "+1", "1 ", "0x1", "99999999999999999999999"]
        {
            assert_eq!(number(none.as_bytes()), None, "{none}");
        }
        assert_eq!((bytes(0), bytes(9), bytes(1 << 40)), (1, 9, u32::MAX));
    }

    /// Times keep nanoseconds and refuse what is none.
    #[test]
    fn times() {
        assert_eq!(seconds_ns(b"1521911720.865716"), Some(1_521_911_720_865_716_000));
        assert_eq!(seconds_ns(b"7"), Some(7_000_000_000));
        assert_eq!(seconds_ns(b"7."), Some(7_000_000_000));
        assert_eq!(seconds_ns(b"0.0000000019"), Some(1));
        for none in ["", ".5", "1.x", "1.0000000000x", "-1", "1e3", "9223372037"] {
            assert_eq!(seconds_ns(none.as_bytes()), None, "{none}");
        }
    }

    /// The clock starts at the first request and never steps back.
    #[test]
    fn clock() {
        let mut clock = Clock::default();
        let times = [5 * NS + 900_000_000, 6 * NS, 7 * NS, 5 * NS, i64::MAX, 0];
        let since: Vec<u32> = times.iter().map(|&ns| clock.since_first(ns)).collect();
        assert_eq!(since[..4], [0, 0, 1, 1]);
        assert!(since[4] > 1 && since[5] == since[4]);
    }
}
