//! Zipf's law: the item of rank r is asked for with a chance that goes as 1 / r^alpha, each request for itself.
//!
//! A table makes a draw cost one random number and one look: Walker's alias method ("An efficient method for
//! generating discrete random variables with general distributions", ACM TOMS 1977) built as Vose shows
//! ("A linear algorithm for generating random numbers with a given distribution", IEEE TSE 1991). Rejection
//! by Hörmann and Derflinger (ACM TOMACS 1996) needs no table, but a power a draw, and powers differ in their
//! last bit between C libraries, so that a seed would not give the same requests everywhere. Here powers only
//! make the table, in which such a bit is lost.
//!
//! A chance is exact but for 2^-32 in all. Cost: 8 octets an item, 24 while the table is made.

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

/// A stream of requests that follows Zipf's law; keys are 64 bits that tell nothing of their rank.
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
    /// Of `requests`, `sets_percent` of a hundred store a value; the rest are look-ups.
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
