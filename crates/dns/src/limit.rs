//! Limits the rate of responses to each client network, so that this server does not flood a third
//! party. Authoritative servers call this "response rate limiting".
//!
//! A query over UDP may have a forged source address, and the response then goes to that address.
//! So responses are counted by network, since an attacker can forge all addresses of one. Each
//! network has a bucket of tokens that fills at a steady rate. A response that finds the bucket
//! empty is dropped. But every Nth *slips*: an empty, truncated response, no larger than the query,
//! makes an honest client retry over TCP, where addresses are not forged.
//!
//! ```text
//! bucket   the moment at which it is full again; tokens = (burst time - (that moment - now)) / time of a token
//! set      8 buckets; a network has one set, by keyed hash
//! ```
//!
//! That moment is the whole state of a bucket (the generic cell rate algorithm). An unused slot is
//! a bucket that has been full from the start, so it needs no special case.
//!
//! **A crowded table fails open.** A new network in a full set replaces the fullest bucket, and
//! starts with a full one. If it started empty, an attacker with a million forged addresses could
//! deny service to all new networks. Little is lost: a network that floods has the emptiest bucket
//! of its set, which is never replaced while there is a fuller one. So forged addresses around a
//! flood do not free the flood. Each of them gets about one response, which is no flood for any of
//! them.
//!
//! Bounds: 16 bytes for a bucket, [`Limits::buckets`] of them, allocated once. Two networks of one
//! set whose hashes agree in 32 bits share a bucket. That is one pair in 2^32, and no attacker can
//! aim at it, since the hash is keyed.
//!
//! Cost: one SipHash of 17 bytes and a walk over 8 buckets in two cache lines.

use std::net::IpAddr;

use siphasher::sip::SipHasher13;

/// Buckets of a set: two cache lines.
const WAYS: usize = 8;

/// Most buckets: 16 MiB.
const BUCKETS_MAX: usize = 1 << 20;

/// Rate limits. [`Limiter::new`] brings values within their bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Responses per second to a network, up to a million; 0 is no limit.
    pub per_s: u32,
    /// Responses that a network may get at once after a quiet time, at least 1.
    pub burst: u32,
    /// Leading bits of an IPv4 address that are the network, up to 32.
    pub v4_bits: u8,
    /// Leading bits of an IPv6 address that are the network, up to 128.
    pub v6_bits: u8,
    /// Every Nth refused response slips; 1: all of them, 0: none.
    pub slip: u32,
    /// Number of buckets, 8 to 1,048,576; rounded up to a power of two.
    pub buckets: usize,
}

impl Default for Limits {
    /// No limit until [`Limits::per_s`] is set. Networks are those that providers assign to one
    /// site. Every second refused response slips, so an honest client retries over TCP after two
    /// tries on average.
    fn default() -> Limits {
        Limits { per_s: 0, burst: 100, v4_bits: 24, v6_bits: 56, slip: 2, buckets: 1 << 16 }
    }
}

/// The verdict on a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Send it.
    Pass,
    /// Send nothing.
    Drop,
    /// Send an empty response with TC set.
    Slip,
}

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    /// Part of the network's hash.
    tag: u32,
    /// Responses refused; wraps.
    refused: u32,
    /// When it is full again, microseconds.
    full_us: u64,
}

const _: () = assert!(size_of::<Bucket>() == 16, "four buckets share a cache line");

/// Buckets of networks. Each core has its own, with its share of the rate.
#[derive(Clone)]
pub struct Limiter {
    sets: Box<[[Bucket; WAYS]]>,
    hasher: SipHasher13,
    /// Time of one token and of a whole bucket, microseconds. If a token takes no time there is no
    /// limit.
    token_us: u64,
    burst_us: u64,
    v4_mask: u32,
    v6_mask: u128,
    slip: u32,
}

impl Limiter {
    /// `key` should come from the system's random source.
    pub fn new(limits: Limits, key: &[u8; 16]) -> Limiter {
        let buckets = limits.buckets.clamp(WAYS, BUCKETS_MAX).next_power_of_two();
        let token_us = match limits.per_s {
            0 => 0,
            per_s => (1_000_000 / u64::from(per_s)).max(1),
        };
        Limiter {
            sets: vec![[Bucket::default(); WAYS]; buckets / WAYS].into_boxed_slice(),
            hasher: SipHasher13::new_with_key(key),
            token_us,
            burst_us: token_us * u64::from(limits.burst.max(1)),
            v4_mask: u32::MAX
                .checked_shl(32_u32.saturating_sub(limits.v4_bits.into()))
                .unwrap_or(0),
            v6_mask: u128::MAX
                .checked_shl(128_u32.saturating_sub(limits.v6_bits.into()))
                .unwrap_or(0),
            slip: limits.slip,
        }
    }

    /// Takes a token for a response to `client` at `now_ms`, of any clock that does not run
    /// backwards.
    pub fn take(&mut self, client: IpAddr, now_ms: u64) -> Verdict {
        if self.token_us == 0 {
            return Verdict::Pass;
        }
        let hash = self.hash(client);
        let at = hash as usize & (self.sets.len() - 1);
        let tag = (hash >> 32) as u32;
        let now_us = now_ms.saturating_mul(1_000);
        let bucket = find(&mut self.sets[at], tag);
        let full_us = bucket.full_us.max(now_us).saturating_add(self.token_us);
        if full_us - now_us <= self.burst_us {
            bucket.full_us = full_us;
            return Verdict::Pass;
        }
        bucket.refused = bucket.refused.wrapping_add(1);
        match self.slip {
            0 => Verdict::Drop,
            slip if bucket.refused.is_multiple_of(slip) => Verdict::Slip,
            _ => Verdict::Drop,
        }
    }

    fn hash(&self, client: IpAddr) -> u64 {
        let (family, network) = match client.to_canonical() {
            IpAddr::V4(v4) => (4, u128::from(v4.to_bits() & self.v4_mask)),
            IpAddr::V6(v6) => (6, v6.to_bits() & self.v6_mask),
        };
        let mut bytes = [family; 17];
        bytes[1..].copy_from_slice(&network.to_be_bytes());
        self.hasher.hash(&bytes)
    }
}

/// Debug output has no keys and no buckets.
impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter")
            .field("buckets", &(self.sets.len() * WAYS))
            .field("token_us", &self.token_us)
            .finish_non_exhaustive()
    }
}

/// The bucket of a network: its own, or the fullest one of the set, which is replaced.
fn find(set: &mut [Bucket; WAYS], tag: u32) -> &mut Bucket {
    if let Some(at) = set.iter().position(|bucket| bucket.tag == tag) {
        return &mut set[at];
    }
    let fullest = (0..WAYS).min_by_key(|&at| set[at].full_us).unwrap_or(0);
    set[fullest] = Bucket { tag, ..Bucket::default() };
    &mut set[fullest]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const KEY: [u8; 16] = [3; 16];

    fn client(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn limits(per_s: u32, burst: u32) -> Limits {
        Limits { per_s, burst, ..Limits::default() }
    }

    /// A burst passes, then every second refused response slips, and after a second the rate passes
    /// again.
    #[test]
    fn burst_slip_and_refill() {
        let mut limiter = Limiter::new(limits(2, 3), &KEY);
        let mut take = |now_ms| limiter.take(client("192.0.2.1"), now_ms);
        assert!((0..3).all(|_| take(1_000) == Verdict::Pass));
        assert_eq!(take(1_000), Verdict::Drop);
        assert_eq!(take(1_000), Verdict::Slip);
        assert_eq!(take(1_499), Verdict::Drop);
        assert_eq!(take(1_500), Verdict::Pass);
        assert_eq!(take(1_500), Verdict::Slip);
        assert_eq!(
            (0..9).filter(|_| take(60_000) == Verdict::Pass).count(),
            3,
            "no more than full"
        );
    }

    /// Slip 0 drops all, slip 1 drops nothing.
    #[test]
    fn slip_bounds() {
        for (slip, expected) in [(0, Verdict::Drop), (1, Verdict::Slip)] {
            let mut limiter = Limiter::new(Limits { slip, ..limits(1, 1) }, &KEY);
            assert_eq!(limiter.take(client("::1"), 0), Verdict::Pass);
            assert!((0..5).all(|_| limiter.take(client("::1"), 0) == expected));
        }
    }

    /// Addresses of one network share a bucket, and other networks have other buckets. An
    /// IPv4-mapped address counts as the IPv4 address.
    #[test]
    fn networks() {
        let mut limiter = Limiter::new(limits(1, 1), &KEY);
        let mut passes = |text| limiter.take(client(text), 0) == Verdict::Pass;
        assert!(passes("192.0.2.1") && !passes("192.0.2.200") && !passes("::ffff:192.0.2.9"));
        assert!(passes("192.0.3.1") && passes("::192.0.2.0"));
        assert!(passes("2001:db8:0:100::1") && !passes("2001:db8:0:1ff::1"));
        assert!(passes("2001:db8:0:200::1"));
        let mut whole = Limiter::new(Limits { v4_bits: 0, v6_bits: 200, ..limits(1, 1) }, &KEY);
        let mut passes = |text| whole.take(client(text), 0) == Verdict::Pass;
        assert!(passes("1.1.1.1") && !passes("9.9.9.9"), "no bits: one network");
        assert!(passes("2001:db8::1") && passes("2001:db8::2"), "more than all bits are all");
    }

    /// A rate of 0 is no limit. Settings out of bounds and the largest times do not panic.
    #[test]
    fn extremes() {
        let mut open = Limiter::new(Limits { buckets: 0, ..Limits::default() }, &KEY);
        assert!((0..1_000).all(|_| open.take(client("192.0.2.1"), 0) == Verdict::Pass));
        let most = Limits { per_s: u32::MAX, burst: u32::MAX, ..Limits::default() };
        let mut most = Limiter::new(most, &KEY);
        assert_eq!(most.take(client("192.0.2.1"), u64::MAX), Verdict::Pass);
        assert_eq!(most.take(client("192.0.2.1"), 0), Verdict::Drop, "a clock that ran backwards");
        let mut none = Limiter::new(limits(1, 0), &KEY);
        assert_eq!(none.take(client("192.0.2.1"), 0), Verdict::Pass, "a burst is at least one");
    }

    proptest! {
        /// While no set is crowded, every verdict is that of a plain counter of tokens for each
        /// client.
        #[test]
        fn as_the_obvious_buckets(
            per_s in 1_u32..50,
            burst in 1_u32..10,
            steps in prop::collection::vec((0_u8..8, 0_u64..200), 1..400),
        ) {
            let mut limiter = Limiter::new(limits(per_s, burst), &KEY);
            let token_us = 1_000_000 / u64::from(per_s);
            let burst_us = token_us * u64::from(burst);
            // The accumulated time, and when it was computed.
            let mut saved: HashMap<u8, (u64, u64)> = HashMap::new();
            let mut now_ms = 0;
            for (network, wait_ms) in steps {
                now_ms += wait_ms;
                let (us, last_ms) = saved.entry(network).or_insert((burst_us, now_ms));
                *us = (*us + (now_ms - *last_ms) * 1_000).min(burst_us);
                *last_ms = now_ms;
                let passes = *us >= token_us;
                *us -= if passes { token_us } else { 0 };
                let verdict = limiter.take(IpAddr::from([10, 0, network, 1]), now_ms);
                prop_assert_eq!(verdict == Verdict::Pass, passes);
            }
        }

        /// In the smallest table, many networks each send once around one that floods. The flood
        /// stays within its rate, and all others pass.
        #[test]
        fn a_crowd_does_not_free_a_flood(
            key: [u8; 16],
            per_s in 1_u32..20,
            burst in 2_u32..10,
            waits in prop::collection::vec((0_u64..20, 0_u16..40), 1..60),
        ) {
            let mut limiter = Limiter::new(Limits { buckets: 8, ..limits(per_s, burst) }, &key);
            let (mut now_ms, mut passed, mut newcomer) = (0, 0, 0_u16);
            for (wait_ms, crowd) in waits {
                now_ms += wait_ms;
                for _ in 0..20 {
                    let verdict = limiter.take(client("192.0.2.1"), now_ms);
                    passed += u64::from(verdict == Verdict::Pass);
                }
                for _ in 0..crowd {
                    newcomer += 1;
                    let [high, low] = newcomer.to_be_bytes();
                    let verdict = limiter.take(IpAddr::from([10, high, low, 1]), now_ms);
                    prop_assert_eq!(verdict, Verdict::Pass);
                }
            }
            prop_assert!(passed <= u64::from(burst) + 1 + now_ms * u64::from(per_s) / 990);
        }
    }
}
