//! Counters: each worker thread counts in its own, publishes them now and then, and the supervisor reads the sum.
//!
//! ```text
//! a worker: counts.hits += 1  ->  now and then: published.publish(number, &counts)  ->  published.sum()
//! one table (`counters!`)     ->  the fields of a struct, `larder ctl stats`, Prometheus
//! ```
//!
//! A new counter is one line of the table. Counters only grow while the server runs, and are lost with it, as
//! Prometheus expects.
//!
//! Invariant: each worker's words are written by that worker alone, so a plain store is enough. A reader sees each
//! counter as it was at the end of some turn, not all of one turn: the sum of two may be off by a turn.
//!
//! Cost: to count, an addition in memory of the worker's own; to publish, a relaxed store a counter (cache lines that
//! no other worker writes); to read, a load a counter and worker. Nothing is allocated after [`Published::new`].

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::{Fields, Metric, write_all};

/// One counter of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The field of the struct, and the name in `stats`.
    pub field: &'static str,
    /// The name of the metric, without prefix. It is a gauge, unless the name ends in `_total`. Rows of one metric
    /// differ in their label.
    pub metric: &'static str,
    /// What the metric counts.
    pub help: &'static str,
    /// The label that tells this row from others of its metric, and its value here, if there are others.
    pub labels: &'static [(&'static str, &'static str)],
}

/// What a worker has counted, or the sum of several; [`counters!`](crate::counters!) makes it.
pub trait Counters: Default {
    /// The table.
    const ROWS: &'static [Row];

    /// All that is published: a counter for each of [`Counters::ROWS`], then what else a worker measures.
    fn words(&mut self) -> impl Iterator<Item = &mut u64>;

    /// The values of [`Counters::words`].
    fn values(&self) -> impl Iterator<Item = u64>;

    /// Adds what another worker, or another part of the same one, has counted.
    fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.words().zip(other.values()) {
            *mine = mine.wrapping_add(theirs);
        }
    }

    /// Leaves what was counted since `before`; what is in no row stays as it is.
    fn subtract(&mut self, before: &Self) {
        for (mine, theirs) in self.words().zip(before.values()).take(Self::ROWS.len()) {
            *mine = mine.saturating_sub(theirs);
        }
    }

    /// As the response to `stats`: each counter by its field.
    fn fields(&self) -> Fields {
        let rows = Self::ROWS.iter().zip(self.values());
        rows.map(|(row, value)| (row.field.to_owned(), value.into())).collect()
    }

    /// In Prometheus' text format, after `prefix` and an underscore.
    fn write_text(&self, out: &mut String, prefix: &str) {
        let rows = Self::ROWS.iter().zip(self.values());
        let all =
            rows.map(|(row, value)| (row.metric, row.help, row.labels.first().copied(), value));
        write_all(out, prefix, all);
    }

    /// As metrics without labels.
    fn metrics(&self) -> Vec<Metric> {
        let rows = Self::ROWS.iter().zip(self.values());
        rows.map(|(row, value)| Metric::new(row.metric, row.help, value as f64)).collect()
    }
}

/// Makes a struct of counters of a table: for each metric its name and help, and in braces the fields of the struct,
/// which may have a label and its value. A field that follows the table has the methods `words` and `values` itself.
#[macro_export]
macro_rules! counters {
    (
        $(#[$about:meta])* $counts:ident {
            $($metric:literal $help:literal { $($field:ident $([$label:literal $value:literal])?),+ $(,)? })+
        }
        $($(#[$more_about:meta])* $more:ident: $type:ty)?
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $counts {
            $($(
                #[doc = concat!($help, $(", ", $label, " ", $value,)? ".")]
                pub $field: u64,
            )+)+
            $($(#[$more_about])* pub $more: $type,)?
        }

        impl $crate::counters::Counters for $counts {
            const ROWS: &'static [$crate::counters::Row] = &[$($(
                $crate::counters::Row {
                    field: stringify!($field),
                    metric: $metric,
                    help: $help,
                    labels: &[$(($label, $value))?],
                },
            )+)+];

            fn words(&mut self) -> impl Iterator<Item = &mut u64> {
                [$($(&mut self.$field,)+)+].into_iter()$(.chain(self.$more.words()))?
            }

            fn values(&self) -> impl Iterator<Item = u64> {
                [$($(self.$field,)+)+].into_iter()$(.chain(self.$more.values()))?
            }
        }
    };
}

/// Words of one worker: cache lines that no other worker writes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Words([AtomicU64; 16]);

/// What all workers have published.
#[derive(Debug)]
pub struct Published<C> {
    workers: Box<[Box<[Words]>]>,
    counts: PhantomData<fn() -> C>,
}

impl<C: Counters> Published<C> {
    /// For this number of workers.
    pub fn new(workers: usize) -> Published<C> {
        let lines = C::default().values().count().div_ceil(16);
        let words = |_| (0..lines).map(|_| Words::default()).collect();
        Published { workers: (0..workers).map(words).collect(), counts: PhantomData }
    }

    /// Publishes what a worker has counted since it began; for that worker alone. A number that no worker has is
    /// ignored.
    pub fn publish(&self, worker: usize, counts: &C) {
        let words = self.workers.get(worker).into_iter().flatten().flat_map(|words| &words.0);
        for (word, value) in words.zip(counts.values()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The sum over all workers.
    pub fn sum(&self) -> C {
        let mut sum = C::default();
        for words in &self.workers {
            for (total, word) in sum.words().zip(words.iter().flat_map(|words| &words.0)) {
                *total = total.wrapping_add(word.load(Ordering::Relaxed));
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    counters! {
        /// A sample.
        Sample {
            "heads_total" "Heads" { heads_long ["length" "long"], heads_short ["length" "short"] }
            "open" "Open" { open }
        }
        /// More.
        more: More
    }

    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct More(u64);

    impl More {
        fn words(&mut self) -> impl Iterator<Item = &mut u64> {
            [&mut self.0].into_iter()
        }

        fn values(&self) -> impl Iterator<Item = u64> {
            [self.0].into_iter()
        }
    }

    /// The last publication of each worker is summed, what is in no row included; text and fields have the rows.
    #[test]
    fn workers_are_summed() {
        let published = Published::new(2);
        let sample =
            |heads_long, more| Sample { heads_long, more: More(more), ..Sample::default() };
        published.publish(0, &sample(1, 5));
        published.publish(1, &sample(20, 8));
        published.publish(1, &Sample { open: 2, ..sample(10, 7) });
        published.publish(2, &sample(100, 100));
        let mut sum = published.sum();
        assert_eq!(sum, Sample { open: 2, ..sample(11, 12) });
        let mut text = String::new();
        sum.write_text(&mut text, "x");
        assert_eq!(
            text,
            "# HELP x_heads_total Heads\n# TYPE x_heads_total counter\nx_heads_total{length=\"long\"} 11\n\
             x_heads_total{length=\"short\"} 0\n# HELP x_open Open\n# TYPE x_open gauge\nx_open 2\n"
        );
        assert_eq!(Sample::ROWS.len(), sum.fields().len());
        assert_eq!((sum.fields()["heads_long"].as_u64(), sum.metrics()[2].value), (Some(11), 2.0));
        sum.subtract(&sample(3, 3));
        assert_eq!((sum.heads_long, sum.more.0), (8, 12));
        sum.add(&sample(1, 1));
        assert_eq!((sum.heads_long, sum.more.0), (9, 13));
    }
}
