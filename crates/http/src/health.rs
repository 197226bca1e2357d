//! The health of origins, which all event loops share.
//!
//! ```text
//! good -> passed over for a while, where an event loop could not reach it
//!      -> down, where checks failed, until they succeed
//! ```
//!
//! If no origin is good, larder still sends requests to one that is not: it may have recovered, and
//! an error is no better response.
//!
//! Cost: two relaxed loads an origin and request.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::options::OriginAddress;

/// Instead of a system's error number: no response in time.
const TIMED_OUT: i32 = -1;

/// The health of all origins, by their number.
#[derive(Debug)]
pub struct Health {
    origins: Box<[OriginHealth]>,
}

#[derive(Debug)]
struct OriginHealth {
    origin: OriginAddress,
    passed_over_until_ms: AtomicU64,
    is_down: AtomicBool,
    /// Connections that failed, and the system's number of the last one's error; 0: it has none.
    failures: AtomicU64,
    last_error: AtomicI32,
}

/// Failed connections to an origin.
#[derive(Debug, PartialEq, Eq)]
pub struct Failures<'a> {
    /// The origin.
    pub origin: &'a str,
    /// How many since the start, or since its settings changed.
    pub count: u64,
    /// Why the last one did.
    pub why: String,
}

impl Health {
    /// All are good at first.
    pub fn new(origins: &[OriginAddress]) -> Health {
        let good = |origin: &OriginAddress| OriginHealth {
            origin: origin.clone(),
            passed_over_until_ms: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            last_error: AtomicI32::new(0),
        };
        Health { origins: origins.iter().map(good).collect() }
    }

    /// Takes over the health of origins that existed before. It takes over the results of checks
    /// only where `is_checked_so`: the checks are the same as before.
    pub fn take_over(&self, before: &Health, is_checked_so: bool) {
        for it in &self.origins {
            let Some(was) = before.origins.iter().find(|was| was.origin == it.origin) else {
                continue;
            };
            let until_ms = was.passed_over_until_ms.load(Ordering::Relaxed);
            it.passed_over_until_ms.store(until_ms, Ordering::Relaxed);
            let is_down = is_checked_so && was.is_down.load(Ordering::Relaxed);
            it.is_down.store(is_down, Ordering::Relaxed);
            it.failures.store(was.failures.load(Ordering::Relaxed), Ordering::Relaxed);
            it.last_error.store(was.last_error.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Whether it is preferred to origins that are not good. Times are of the event loops' common
    /// clock.
    #[inline]
    pub fn is_good(&self, origin: usize, now_ms: u64) -> bool {
        self.origins.get(origin).is_some_and(|it| {
            !it.is_down.load(Ordering::Relaxed)
                && it.passed_over_until_ms.load(Ordering::Relaxed) <= now_ms
        })
    }

    /// Records that it could not be reached, for this reason.
    pub fn pass_over(&self, origin: usize, until_ms: u64, why: &io::Error) {
        if let Some(it) = self.origins.get(origin) {
            let number = match why.kind() {
                io::ErrorKind::TimedOut => TIMED_OUT,
                _ => why.raw_os_error().unwrap_or(0),
            };
            it.last_error.store(number, Ordering::Relaxed);
            it.failures.fetch_add(1, Ordering::Relaxed);
            it.passed_over_until_ms.fetch_max(until_ms, Ordering::Relaxed);
        }
    }

    /// Records the result of checks; true where it has changed.
    pub fn set_down(&self, origin: usize, is_down: bool) -> bool {
        self.origins
            .get(origin)
            .is_some_and(|it| it.is_down.swap(is_down, Ordering::Relaxed) != is_down)
    }

    /// The connections that failed, of each origin.
    pub fn failures(&self) -> impl Iterator<Item = Failures<'_>> {
        self.origins.iter().map(|it| Failures {
            origin: &it.origin.name,
            count: it.failures.load(Ordering::Relaxed),
            why: match it.last_error.load(Ordering::Relaxed) {
                0 => "it closed the connection, or the TLS handshake failed".to_owned(),
                TIMED_OUT => "timed out".to_owned(),
                number => io::Error::from_raw_os_error(number).to_string(),
            },
        })
    }

    /// The names of origins, and whether each is good.
    pub fn all(&self, now_ms: u64) -> impl Iterator<Item = (&str, bool)> {
        let each = self.origins.iter().enumerate();
        each.map(move |(at, it)| (it.origin.name.as_str(), self.is_good(at, now_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An origin that could not be reached is passed over for its time. One that checks found down
    /// is passed over until they find it up.
    #[test]
    fn origins_come_back() {
        let address = "192.0.2.1:80".parse().unwrap();
        let origin =
            |name: &str| OriginAddress { address, name: name.to_owned(), is_secure: false };
        let health = Health::new(&[origin("a"), origin("b")]);
        let refused = io::Error::from_raw_os_error(111);
        health.pass_over(0, 10, &refused);
        health.pass_over(0, 5, &refused);
        let failures: Vec<_> = health.failures().map(|it| (it.origin, it.count, it.why)).collect();
        assert_eq!((failures[0].0, failures[0].1, failures[1].1), ("a", 2, 0));
        assert!(failures[0].2.starts_with("Connection refused"), "{failures:?}");
        assert_eq!([9, 10].map(|now| health.is_good(0, now)), [false, true]);
        assert_eq!(
            [true, true, false, false].map(|it| health.set_down(1, it)),
            [true, false, true, false]
        );
        assert!(health.set_down(1, true) && !health.set_down(2, true));
        assert_eq!(health.all(10).collect::<Vec<_>>(), [("a", true), ("b", false)]);
        assert!(!health.is_good(2, 0));
    }
}
