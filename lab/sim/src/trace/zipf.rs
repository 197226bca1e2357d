//! Zipf's law: the item of rank r is requested with a probability in proportion to 1 / r^alpha, each request for
//! itself.
//!
//! A table makes a draw cost one random number and one look: Walker's alias method ("An efficient method for
//! generating discrete random variables with general distributions", ACM TOMS 1977) built as Vose shows
//! ("A linear algorithm for generating random numbers with a given distribution", IEEE TSE 1991). Rejection
//! by Hörmann and Derflinger (ACM TOMACS 1996) needs no table, but a power a draw, and powers differ in their
//! last bit between C libraries, so that a seed would not give the same requests everywhere. Here powers only
//! make the table, in which such a bit is lost.
//!
//! A chance is exact but for 2^-32 in all. Cost: 8 bytes an item, 24 while the table is made.

use std::io;

use super::random::{Random, scramble};
use super::{BATCH_REQUESTS, Source};
use crate::request::{Op, Request};

/// Most items: the table takes 800 MB then.
pub const ITEMS_MAX: u32 = 100_000_000;

/// Ranks `0..items` drawn by their weights.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Column>,
}

/// An item, and another that has the rest of its column.
#[derive(Debug, Clone, Copy)]
struct Column {
    /// The item's share of the column, of 2^32.
    own: u32,
    other: u32,
}

impl Table {
    /// Zipf–Mandelbrot: the weight of rank r (from 0) is `1 / (r + 1 + shift)^alpha`; a shift of 0 is Zipf's
    /// law, an alpha of 0 makes all alike. `items` is held between 1 and [`ITEMS_MAX`].
    pub fn new(items: u32, alpha: f64, shift: f64) -> Table {
        let items = items.clamp(1, ITEMS_MAX);
        let weight = |rank: u32| (f64::from(rank) + 1.0 + shift).powf(-alpha);
        // The small ones first, so that none is lost in the sum.
        let sum: f64 = (0..items).rev().map(weight).sum();
        // What each rank has, in columns; one that has less takes the rest of its column from one that has
        // more, until all have one each.
        let mut has: Vec<f64> =
            (0..items).map(|rank| weight(rank) / sum * f64::from(items)).collect();
        let (mut poor, mut rich) = (Vec::new(), Vec::new());
        for (rank, has) in has.iter().enumerate() {
            if *has < 1.0 { poor.push(rank as u32) } else { rich.push(rank as u32) }
        }
        let whole = |rank| Column { own: u32::MAX, other: rank };
        let mut columns: Vec<Column> = (0..items).map(whole).collect();
        while let (Some(&giver), Some(taker)) = (rich.last(), poor.pop()) {
            let own = has[taker as usize];
            // A cast of a float stays within bounds.
            columns[taker as usize] =
                Column { own: (own * 2f64.powi(32)).round() as u32, other: giver };
            let left = has[giver as usize] - (1.0 - own);
            has[giver as usize] = left;
            if left < 1.0 {
                rich.pop();
                poor.push(giver);
            }
        }
        // Who is left over has a column to itself, but for rounding.
        Table { columns }
    }

    /// Draws a rank.
    #[inline(always)]
    pub fn rank(&self, random: &mut Random) -> u32 {
        let (rank, point) = random.below(self.columns.len() as u64);
        let column = self.columns[rank as usize];
        if ((point >> 32) as u32) < column.own { rank as u32 } else { column.other }
    }
}

/// A stream of requests that follows Zipf's law; keys are 64 bits that do not reveal their rank.
#[derive(Debug)]
pub struct Zipf {
    table: Table,
    random: Random,
    /// Decides which are sets, so that the keys are the same without them.
    sets: Random,
    seed: u64,
    left: u64,
    sets_percent: u8,
}

impl Zipf {
    /// Of `requests`, `sets_percent` of a hundred store a value; the rest are lookups.
    pub fn new(alpha: f64, items: u32, requests: u64, sets_percent: u8, seed: u64) -> Zipf {
        let table = Table::new(items, alpha, 0.0);
        let (random, sets) = (Random::new(seed), Random::new(!seed));
        Zipf { table, random, sets, seed, left: requests, sets_percent }
    }

    /// The key of a rank, counted from 0.
    pub fn key(seed: u64, rank: u32) -> u64 {
        scramble(u64::from(rank), seed)
    }
}

impl Source for Zipf {
    fn next(&mut self, batch: &mut Vec<Request>) -> io::Result<()> {
        batch.clear();
        let count = self.left.min(BATCH_REQUESTS as u64);
        self.left -= count;
        let (table, random, seed) = (&self.table, &mut self.random, self.seed);
        batch.extend((0..count).map(|_| Request::get(Zipf::key(seed, table.rank(random)))));
        if self.sets_percent > 0 {
            for request in batch {
                if self.sets.below(100).0 < u64::from(self.sets_percent) {
                    request.op = Op::Set;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every rank has the chance that its weight says, added up over the columns of the table, for flat, usual
    /// and steep laws, with and without a shift, and for a single item.
    #[test]
    fn the_table_is_exact() {
        for (items, alpha, shift) in [
            (1, 1.0, 0.0),
            (2, 0.5, 0.0),
            (1000, 0.0, 0.0),
            (1000, 1.0, 0.0),
            (5000, 0.9, 10.0),
            (300, 3.0, 0.0),
            (50, 100.0, 0.0),
        ] {
            let table = Table::new(items, alpha, shift);
            assert_eq!(table.columns.len(), items as usize);
            let mut chances = vec![0.0; items as usize];
            for (rank, column) in table.columns.iter().enumerate() {
                let own = f64::from(column.own) / 2f64.powi(32) / f64::from(items);
                chances[rank] += own;
                chances[column.other as usize] += 1.0 / f64::from(items) - own;
            }
            let weight = |rank: u32| (f64::from(rank) + 1.0 + shift).powf(-alpha);
            let sum: f64 = (0..items).map(weight).sum();
            for (rank, chance) in chances.iter().enumerate() {
                let expected = weight(rank as u32) / sum;
                assert!((chance - expected).abs() < 1e-9, "{alpha}: {rank} {chance} {expected}");
            }
        }
    }

    /// How far counts are from what a law says (Pearson's chi-square), in standard deviations of what chance
    /// alone does. Ranks expected less than ten times are put together.
    fn deviation(counts: &[u64], alpha: f64) -> f64 {
        let weight = |rank: usize| (rank as f64 + 1.0).powf(-alpha);
        let sum: f64 = (0..counts.len()).map(weight).sum();
        let draws: u64 = counts.iter().sum();
        let (mut square, mut bins, mut open) = (0.0, 0.0, (0.0, 0.0));
        for (rank, count) in counts.iter().enumerate() {
            open.0 += *count as f64;
            open.1 += weight(rank) / sum * draws as f64;
            if open.1 >= 10.0 {
                square += (open.0 - open.1).powi(2) / open.1;
                bins += 1.0;
                open = (0.0, 0.0);
            }
        }
        let freedom: f64 = bins - 1.0;
        (square - freedom) / (2.0 * freedom).sqrt()
    }

    /// What is drawn follows the law within what chance does, and would not pass for a law whose alpha is three
    /// hundredths off.
    #[test]
    fn frequencies_follow_the_law() {
        for (seed, alpha) in [0.0, 0.5, 0.8, 1.0, 1.1, 2.0].into_iter().enumerate() {
            let (table, mut random) = (Table::new(2000, alpha, 0.0), Random::new(seed as u64));
            let mut counts = vec![0u64; 2000];
            (0..2_000_000).for_each(|_| counts[table.rank(&mut random) as usize] += 1);
            let (right, wrong) = (deviation(&counts, alpha), deviation(&counts, alpha + 0.03));
            assert!(right.abs() < 5.0 && wrong > 10.0, "{alpha}: {right} {wrong}");
        }
    }

    /// Keys say nothing of their rank, and sets change nothing but what is asked.
    #[test]
    fn keys_and_sets() {
        let all = |sets_percent, seed| {
            let (mut zipf, mut batch, mut all) =
                (Zipf::new(1.0, 100, 150_000, sets_percent, seed), Vec::new(), Vec::new());
            loop {
                zipf.next(&mut batch).unwrap();
                if batch.is_empty() {
                    return all;
                }
                all.append(&mut batch);
            }
        };
        let (plain, mixed) = (all(0, 1), all(10, 1));
        assert_eq!((plain.len(), mixed.len()), (150_000, 150_000));
        assert!(plain.iter().zip(&mixed).all(|(one, other)| one.key == other.key));
        assert!(plain.iter().all(|request| request.op == Op::Get));
        let sets = mixed.iter().filter(|request| request.op == Op::Set).count();
        assert!((14_500..15_500).contains(&sets), "{sets}");
        assert_eq!(plain, all(0, 1));
        let first: Vec<u64> = all(0, 2).iter().take(100).map(|request| request.key).collect();
        assert!(plain.iter().all(|request| !first.contains(&request.key)), "seeds share keys");
        let rising = (1..1000).filter(|rank| Zipf::key(1, *rank) > Zipf::key(1, rank - 1)).count();
        assert!((400..600).contains(&rising), "{rising}");
    }
}
