//! Durations in buckets of powers of two, for counters that workers publish and Prometheus reads.
//!
//! Bucket i counts the times below 2^i microseconds that are in no earlier bucket; the last one
//! counts all from 8.4 s on. So a quantile is off by a factor of two at most. The buckets are the
//! same on all machines and versions, so that Prometheus can add them.
//!
//! [`crate::histogram`] has finer buckets, and is not published.
//!
//! Cost: two additions a duration, [`BUCKETS`] + 1 words.

use std::fmt::Write;

use crate::metrics::write_head;

/// Buckets of a histogram.
pub const BUCKETS: usize = 25;

/// Durations of one kind. It may follow the table of [`crate::counters!`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Durations {
    buckets: [u64; BUCKETS],
    sum_us: u64,
}

impl Durations {
    /// Counts a duration, microseconds.
    #[inline]
    pub fn note(&mut self, us: u64) {
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.sum_us = self.sum_us.wrapping_add(us);
    }

    /// Counts this many durations of the same length.
    pub fn note_many(&mut self, us: u64, count: u64) {
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += count;
        self.sum_us = self.sum_us.wrapping_add(us.wrapping_mul(count));
    }

    /// What was counted since `before`, an earlier copy.
    pub fn since(&self, before: &Durations) -> Durations {
        let mut since = self.clone();
        for (now, before) in since.words().zip(before.values()) {
            *now = now.wrapping_sub(before);
        }
        since
    }

    /// All that is published.
    pub fn words(&mut self) -> impl Iterator<Item = &mut u64> {
        self.buckets.iter_mut().chain([&mut self.sum_us])
    }

    /// The values of [`Durations::words`].
    pub fn values(&self) -> impl Iterator<Item = u64> {
        self.buckets.into_iter().chain([self.sum_us])
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of all durations, microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The time, microseconds, that this share of the durations (0 to 1) is below: the end of its
    /// bucket. `None` without durations, or in the last bucket, which has no end.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        (bucket < BUCKETS - 1).then_some(1 << bucket)
    }

    /// Writes a histogram of Prometheus with this full name.
    pub fn write_text(&self, out: &mut String, name: &str, help: &str) {
        write_head(out, name, help, "histogram");
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            // Writing to a string does not fail.
            let _ = match bucket {
                bucket if bucket == BUCKETS - 1 => {
                    writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {seen}")
                }
                _ => writeln!(out, "{name}_bucket{{le=\"{}\"}} {seen}", seconds(1 << bucket)),
            };
        }
        let _ = writeln!(out, "{name}_sum {}\n{name}_count {seen}", seconds(self.sum_us));
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A duration is counted in the bucket whose end is the next power of two; quantiles are ends
    /// of buckets.
    #[test]
    fn times_are_counted() {
        let mut durations = Durations::default();
        assert_eq!(durations.quantile_us(0.5), None);
        for us in [0, 1, 2, 3, 4, u64::MAX] {
            durations.note(us);
        }
        assert_eq!(durations.buckets[..4], [1, 1, 2, 1]);
        assert_eq!(durations.buckets[BUCKETS - 1], 1);
        assert_eq!(durations.quantile_us(0.0), Some(1));
        assert_eq!(durations.quantile_us(0.5), Some(4));
        assert_eq!(durations.quantile_us(1.0), None);
        let before = durations.clone();
        durations.note_many(100, 3);
        let since = durations.since(&before);
        assert_eq!((since.count(), since.sum_us(), since.quantile_us(0.9)), (3, 300, Some(128)));
    }

    /// The text has one head, cumulative buckets, the sum and the count.
    #[test]
    fn the_text_is_prometheus() {
        let mut durations = Durations::default();
        durations.note(3);
        durations.note(u64::MAX / 2);
        let mut text = String::new();
        durations.write_text(&mut text, "x_seconds", "Times");
        let head = "# HELP x_seconds Times\n# TYPE x_seconds histogram\n";
        assert!(text.starts_with(head), "{text}");
        for line in [
            "x_seconds_bucket{le=\"0.000002\"} 0",
            "x_seconds_bucket{le=\"0.000004\"} 1",
            "x_seconds_bucket{le=\"8.388608\"} 1",
            "x_seconds_bucket{le=\"+Inf\"} 2",
            "x_seconds_count 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert_eq!(text.lines().count(), 2 + BUCKETS + 2);
    }
}
