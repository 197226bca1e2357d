//! The health of upstreams as cores measure it: cores publish it, and operators read it, like
//! counters.
//!
//! Each core measures its own queries. The gauges have each address once. It is up if any core
//! counts it as up, and its round trip is the mean of those that cores measured. Backends have
//! gauges of their own.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Metric;
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
    cores: Box<[Box<[AtomicU64]>]>,
}

impl Upstreams {
    /// For `cores` cores and these upstreams, numbered as the cores number them.
    pub fn new(cores: usize, upstreams: impl Iterator<Item = Upstream>) -> Upstreams {
        let address = |upstream| match upstream {
            Upstream::Server(address) => Some(address.to_string()),
            Upstream::Backend(_) => None,
        };
        let addresses: Box<[_]> = upstreams.map(address).collect();
        let words = |_| addresses.iter().map(|_| AtomicU64::new(0)).collect();
        Upstreams { cores: (0..cores).map(words).collect(), addresses }
    }

    /// Publishes the health of each upstream as a core measured it: round trip, microseconds, and
    /// whether it is up.
    pub fn publish(&self, core: usize, health: impl Iterator<Item = (Option<u32>, bool)>) {
        let Some(words) = self.cores.get(core) else { return };
        for (word, (round_trip_us, is_up)) in words.iter().zip(health) {
            let round_trip = round_trip_us.map_or(0, |us| u64::from(us) + 1);
            let up = if is_up { UP } else { 0 };
            word.store(round_trip << ROUND_TRIP_SHIFT | up | WRITTEN, Ordering::Relaxed);
        }
    }

    /// Addresses of upstreams, whether any core counts them as up, and the round trips that cores
    /// measured.
    fn known(&self) -> Vec<(&str, bool, Vec<f64>)> {
        let mut known: Vec<(&str, bool, Vec<f64>)> = Vec::new();
        for (number, address) in self.addresses.iter().enumerate() {
            let Some(address) = address else { continue };
            for words in &self.cores {
                let word = words[number].load(Ordering::Relaxed);
                if word & WRITTEN == 0 {
                    continue;
                }
                let at = known.iter().position(|(it, ..)| *it == address).unwrap_or_else(|| {
                    known.push((address, false, Vec::new()));
                    known.len() - 1
                });
                let (_, is_up, round_trips_us) = &mut known[at];
                *is_up |= word & UP != 0;
                let round_trip = (word >> ROUND_TRIP_SHIFT).checked_sub(1);
                round_trips_us.extend(round_trip.map(|us| us as f64));
            }
        }
        known
    }

    /// Addresses of upstreams, and whether any core counts them as up.
    pub fn are_up(&self) -> impl Iterator<Item = (&str, bool)> {
        self.known().into_iter().map(|(address, is_up, _)| (address, is_up))
    }

    /// The metrics of each address that some core has published.
    pub fn metrics(&self) -> Vec<Metric> {
        let known = self.known();
        let up = known.iter().map(|(address, is_up, _)| {
            let help = "Whether any core counts the upstream as up";
            let is_up = f64::from(u8::from(*is_up));
            Metric::new("upstream_up", help, is_up).of("upstream", address)
        });
        let measured = known.iter().filter(|(.., round_trips_us)| !round_trips_us.is_empty());
        let round_trip = measured.map(|(address, _, round_trips_us)| {
            let help = "Response time of the upstream, smoothed, mean of the cores";
            let mean_us = round_trips_us.iter().sum::<f64>() / round_trips_us.len() as f64;
            Metric::new("upstream_round_trip_seconds", help, mean_us / 1e6).of("upstream", address)
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
        let health = [(Some(1_000), false), (Some(7), true), (None, true), (None, false)];
        upstreams.publish(0, health.into_iter());
        let health = [(Some(0), false), (None, true), (None, true), (Some(2_000), true)];
        upstreams.publish(2, health.into_iter());
        upstreams.publish(3, health.into_iter());
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
