//! The health of upstreams as cores measure it: cores publish it, and operators read it, like
//! counters.
//!
//! Each core measures its own queries. The gauges have each address once. It is up if any core
//! counts it as up, and its round trip is the mean of those that cores measured. Backends have
//! gauges of their own.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Metric;
use crate::choice::Measured;
use crate::zones::Upstream;

/// A core's word about an upstream. Bit 0: the word was written. Bit 1: the upstream is up. The
/// bits above: its round trip in microseconds plus 1, or 0 if it was never measured.
const WRITTEN: u64 = 1;
const UP: u64 = 2;
const ROUND_TRIP_SHIFT: u32 = 2;

/// See the module header.
#[derive(Debug)]
pub struct Upstreams {
    /// Addresses by number; a backend has none.
    addresses: Box<[Option<String>]>,
    /// Of each core, by upstream.
    cores: Box<[Words]>,
}

/// A core's word about each upstream, and the failures that it counted.
type Words = Box<[(AtomicU64, AtomicU64)]>;

/// An upstream, as all cores measured it.
#[derive(Debug, Clone, PartialEq)]
pub struct Health<'a> {
    /// Its address.
    pub address: &'a str,
    /// Any core counts it as up.
    pub is_up: bool,
    /// Smoothed round trip, microseconds, mean of the cores that measured it.
    pub round_trip_us: Option<f64>,
    /// Timeouts, and reports that it is unreachable, since the start.
    pub failures: u64,
}

impl Upstreams {
    /// For `cores` cores and these upstreams, numbered as the cores number them.
    pub fn new(cores: usize, upstreams: impl Iterator<Item = Upstream>) -> Upstreams {
        let address = |upstream| match upstream {
            Upstream::Server(address) => Some(address.to_string()),
            Upstream::Backend(_) => None,
        };
        let addresses: Box<[_]> = upstreams.map(address).collect();
        let words = |_| addresses.iter().map(|_| Default::default()).collect();
        Upstreams { cores: (0..cores).map(words).collect(), addresses }
    }

    /// Publishes the health of each upstream as a core measured it.
    pub fn publish(&self, core: usize, health: impl Iterator<Item = Measured>) {
        let Some(words) = self.cores.get(core) else { return };
        for ((word, failures), measured) in words.iter().zip(health) {
            let round_trip = measured.round_trip_us.map_or(0, |us| u64::from(us) + 1);
            let up = if measured.is_up { UP } else { 0 };
            failures.store(measured.failures, Ordering::Relaxed);
            word.store(round_trip << ROUND_TRIP_SHIFT | up | WRITTEN, Ordering::Relaxed);
        }
    }

    /// The health of each address that some core has published.
    pub fn health(&self) -> Vec<Health<'_>> {
        let mut known: Vec<(Health<'_>, u32)> = Vec::new();
        for (number, address) in self.addresses.iter().enumerate() {
            let Some(address) = address else { continue };
            for words in &self.cores {
                let (word, failures) = &words[number];
                let word = word.load(Ordering::Relaxed);
                if word & WRITTEN == 0 {
                    continue;
                }
                let at = known.iter().position(|(it, _)| it.address == address);
                let at = at.unwrap_or_else(|| {
                    let none = Health { address, is_up: false, round_trip_us: None, failures: 0 };
                    known.push((none, 0));
                    known.len() - 1
                });
                let (health, measured) = &mut known[at];
                health.is_up |= word & UP != 0;
                health.failures += failures.load(Ordering::Relaxed);
                if let Some(us) = (word >> ROUND_TRIP_SHIFT).checked_sub(1) {
                    let sum = health.round_trip_us.unwrap_or(0.0) * f64::from(*measured);
                    *measured += 1;
                    health.round_trip_us = Some((sum + us as f64) / f64::from(*measured));
                }
            }
        }
        known.into_iter().map(|(health, _)| health).collect()
    }

    /// Addresses of upstreams, and whether any core counts them as up.
    pub fn are_up(&self) -> impl Iterator<Item = (&str, bool)> {
        self.health().into_iter().map(|health| (health.address, health.is_up))
    }

    /// The metrics of each address that some core has published.
    pub fn metrics(&self) -> Vec<Metric> {
        let health = self.health();
        let up = health.iter().map(|health| {
            let help = "Whether any core counts the upstream as up";
            let is_up = f64::from(u8::from(health.is_up));
            Metric::new("upstream_up", help, is_up).of("upstream", health.address)
        });
        let measured = health.iter().filter_map(|health| Some((health, health.round_trip_us?)));
        let round_trip = measured.map(|(health, mean_us)| {
            let help = "Response time of the upstream, smoothed, mean of the cores";
            let metric = Metric::new("upstream_round_trip_seconds", help, mean_us / 1e6);
            metric.of("upstream", health.address)
        });
        up.chain(round_trip).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zones::Answers;

    /// Each address has one gauge of a name, even if several zones and cores use it. Without a
    /// measured round trip there is no such gauge, and cores that published nothing are ignored.
    #[test]
    fn one_of_each_address() {
        let server = |port| Upstream::Server(([192, 0, 2, 1], port).into());
        let backend = Upstream::Backend(Answers { number: 0, wait_ms: 1, is_believed: false });
        let all = [server(1), backend, server(2), server(1)];
        let upstreams = Upstreams::new(3, all.into_iter());
        assert_eq!(upstreams.metrics(), []);
        let measured = |(round_trip_us, is_up)| Measured { round_trip_us, is_up, failures: 3 };
        let health = [(Some(1_000), false), (Some(7), true), (None, true), (None, false)];
        upstreams.publish(0, health.into_iter().map(measured));
        let health = [(Some(0), false), (None, true), (None, true), (Some(2_000), true)];
        upstreams.publish(2, health.into_iter().map(measured));
        upstreams.publish(3, health.into_iter().map(measured));
        let health: Vec<_> = upstreams.health().iter().map(|it| (it.is_up, it.failures)).collect();
        // The first address is an upstream of two zones.
        assert_eq!(health, [(true, 12), (true, 6)]);
        let reported: Vec<_> = upstreams
            .metrics()
            .into_iter()
            .map(|it| (it.name, it.label.map(|(_, of)| of), it.value))
            .collect();
        let of = |port: u16| Some(format!("192.0.2.1:{port}"));
        assert_eq!(
            reported,
            [
                ("upstream_up".into(), of(1), 1.0),
                ("upstream_up".into(), of(2), 1.0),
                ("upstream_round_trip_seconds".into(), of(1), 0.001),
            ]
        );
    }
}
