//! A table of the last minutes or hours: slices of time, each with a bounded number of rows.
//!
//! ```text
//! add       the slice of now: a new row, or added to the row of its key
//! merged    the rows of all slices that are not too old, by key
//! ```
//!
//! When a slice is full, the lighter half of its rows is removed. So a row that stays light may be
//! counted too low, and a heavy one is exact from the moment it was last added as a new row.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// A row of a [`Recent`].
pub trait Row {
    /// Rows with the greatest weight stay.
    fn weight(&self) -> u64;

    /// Adds a row of the same key, which was made later.
    fn merge(&mut self, later: Self);
}

/// See the module.
#[derive(Debug)]
pub struct Recent<K, R> {
    slice_s: u64,
    slices_max: u64,
    rows_max: usize,
    /// The latest last.
    slices: VecDeque<(u64, HashMap<K, R>)>,
}

impl<K: Hash + Eq + Clone, R: Row + Clone> Recent<K, R> {
    /// A table of `slices_max` slices of `slice_s` seconds, each of at most `rows_max` rows.
    pub fn new(slice_s: u64, slices_max: u64, rows_max: usize) -> Recent<K, R> {
        Recent { slice_s, slices_max, rows_max, slices: VecDeque::new() }
    }

    /// The time that [`Recent::merged`] covers, seconds.
    pub fn window_s(&self) -> u64 {
        self.slice_s * self.slices_max
    }

    /// Adds a row at a time. If the clock was set back, it goes to the latest slice.
    pub fn add(&mut self, key: K, row: R, now_s: u64) {
        let number = now_s / self.slice_s;
        if self.slices.back().is_none_or(|(last, _)| *last < number) {
            self.slices.push_back((number, HashMap::new()));
            while self.slices.len() as u64 > self.slices_max {
                self.slices.pop_front();
            }
        }
        let Some((_, rows)) = self.slices.back_mut() else { return };
        match rows.get_mut(&key) {
            Some(found) => found.merge(row),
            None => {
                if rows.len() >= self.rows_max {
                    remove_light_half(rows);
                }
                rows.insert(key, row);
            }
        }
    }

    /// The rows that are not older than the window, the heaviest first, at most `rows_max`.
    pub fn merged(&self, now_s: u64, rows_max: usize) -> Vec<(K, R)> {
        let oldest = (now_s / self.slice_s).saturating_sub(self.slices_max - 1);
        let mut merged: HashMap<K, R> = HashMap::new();
        for (key, row) in
            self.slices.iter().filter(|(number, _)| *number >= oldest).flat_map(|(_, rows)| rows)
        {
            match merged.get_mut(key) {
                Some(found) => found.merge(row.clone()),
                None => drop(merged.insert(key.clone(), row.clone())),
            }
        }
        let mut rows: Vec<(K, R)> = merged.into_iter().collect();
        rows.sort_unstable_by_key(|(_, row)| std::cmp::Reverse(row.weight()));
        rows.truncate(rows_max);
        rows
    }

    /// The number of rows of all slices.
    pub fn rows(&self) -> usize {
        self.slices.iter().map(|(_, rows)| rows.len()).sum()
    }
}

fn remove_light_half<K: Hash + Eq, R: Row>(rows: &mut HashMap<K, R>) {
    let mut weights: Vec<u64> = rows.values().map(Row::weight).collect();
    let middle = weights.len() / 2;
    let (_, median, _) = weights.select_nth_unstable(middle);
    let median = *median;
    // Of rows with the weight of the middle one as many as needed go too, in any order.
    let mut equal = rows.len() - middle - rows.values().filter(|row| row.weight() > median).count();
    rows.retain(|_, row| {
        row.weight() > median
            || (row.weight() == median && equal > 0 && {
                equal -= 1;
                true
            })
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Sum(u64);

    impl Row for Sum {
        fn weight(&self) -> u64 {
            self.0
        }

        fn merge(&mut self, later: Sum) {
            self.0 += later.0;
        }
    }

    /// Slices have a bound, heavy rows stay, and old slices are left out.
    #[test]
    fn heavy_rows_stay() {
        let mut table = Recent::new(60, 3, 8);
        assert_eq!(table.window_s(), 180);
        for key in 0..1_000u64 {
            table.add(0, Sum(10), 30);
            table.add(key, Sum(1), 30);
            assert!(table.rows() <= 8, "{key}");
        }
        assert_eq!(table.merged(30, 1), [(0, Sum(10_001))]);
        table.add(0, Sum(5), 65);
        table.add(0, Sum(1), 10);
        assert_eq!(table.merged(65, 1), [(0, Sum(10_007))]);
        assert_eq!(table.merged(200, 9), [(0, Sum(6))]);
        table.add(7, Sum(1), 600);
        assert_eq!(table.merged(600, 9), [(7, Sum(1))]);
    }
}
