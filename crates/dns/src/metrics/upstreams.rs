//! What cores know of the servers they ask, for those who watch: published and read as counters are.
//!
//! Each core has its own opinion, as it asks by itself. Told is, of each address once, whether any core counts it as up, and
//! the mean of the round trips that were measured. Backends tell of themselves.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Gauge;
use crate::zones::Upstream;

/// A word of a core about an upstream: whether it was written, whether the upstream is up, and above these one more than its
/// round trip, microseconds, or 0 where that was never measured.
const WRITTEN: u64 = 1;
const UP: u64 = 2;
const ROUND_TRIP_SHIFT: u32 = 2;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    /// By number; a backend has no address.
    addresses: Box<[Option<String>]>,
    cores: Box<[Box<[AtomicU64]>]>,
}

impl Upstreams {
    /// For so many cores and these upstreams, as the cores number them.
    pub fn new(cores: usize, upstreams: impl Iterator<Item = Upstream>) -> Upstreams {
        let address = |upstream| match upstream {
            Upstream::Server(address) => Some(address.to_string()),
            Upstream::Backend(_) => None,
        };
        let addresses: Box<[_]> = upstreams.map(address).collect();
        let words = |_| addresses.iter().map(|_| AtomicU64::new(0)).collect();
        Upstreams { cores: (0..cores).map(words).collect(), addresses }
    }

    /// Publishes a core's opinion of each: round trip, microseconds, and whether it is up.
    pub fn publish(&self, core: usize, health: impl Iterator<Item = (Option<u32>, bool)>) {
        let Some(words) = self.cores.get(core) else { return };
        for (word, (round_trip_us, is_up)) in words.iter().zip(health) {
            let round_trip = round_trip_us.map_or(0, |us| u64::from(us) + 1);
            let up = if is_up { UP } else { 0 };
            word.store(round_trip << ROUND_TRIP_SHIFT | up | WRITTEN, Ordering::Relaxed);
        }
    }

    /// Two of each address that some core has told of.
    pub fn gauges(&self) -> Vec<Gauge> {
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
        let label = |address: &str| Some(("upstream", address.to_owned()));
        let up = known.iter().map(|(address, is_up, _)| Gauge {
            name: "upstream_up",
            help: "Whether any core counts the upstream as up",
            label: label(address),
            value: f64::from(u8::from(*is_up)),
        });
        let measured = known.iter().filter(|(.., round_trips_us)| !round_trips_us.is_empty());
        let round_trip = measured.map(|(address, _, round_trips_us)| Gauge {
            name: "upstream_round_trip_seconds",
            help: "How long the upstream takes for an answer, smoothed, mean of the cores",
            label: label(address),
            value: round_trips_us.iter().sum::<f64>() / round_trips_us.len() as f64 / 1e6,
        });
        up.chain(round_trip).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zones::Answers;

    /// Of each address there is one gauge of a name, whatever zones and cores it is asked for by; who was never asked has no
    /// round trip, and a core that has not told of it no say.
    #[test]
    fn one_of_each_address() {
        let server = |port| Upstream::Server(([192, 0, 2, 1], port).into());
        let backend = Upstream::Backend(Answers { number: 0, wait_ms: 1, is_believed: false });
        let all = [server(1), backend, server(2), server(1)];
        let upstreams = Upstreams::new(3, all.into_iter());
        assert_eq!(upstreams.gauges(), []);
        let health = [(Some(1_000), false), (Some(7), true), (None, true), (None, false)];
        upstreams.publish(0, health.into_iter());
        let health = [(Some(0), false), (None, true), (None, true), (Some(2_000), true)];
        upstreams.publish(2, health.into_iter());
        upstreams.publish(3, health.into_iter());
        let told: Vec<_> = upstreams
            .gauges()
            .into_iter()
            .map(|gauge| (gauge.name, gauge.label.map(|(_, of)| of), gauge.value))
            .collect();
        let of = |port: u16| Some(format!("192.0.2.1:{port}"));
        assert_eq!(
            told,
            [
                ("upstream_up", of(1), 1.0),
                ("upstream_up", of(2), 1.0),
                ("upstream_round_trip_seconds", of(1), 0.001),
            ]
        );
    }
}
