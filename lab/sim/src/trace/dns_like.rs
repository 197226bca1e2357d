//! The queries of a resolver, generated: popular names, names asked once, the same again soon, and sweeps.
//!
//! | share | asks for |
//! |---|---|
//! | 6 % | a name that is not queried before or after, but that half of them are asked twice in a row (A, then AAAA) |
//! | 22 % | what was asked a short while ago: d requests back with a probability in proportion to 1 / d², up to [`RECENT`] |
//! | the rest | one of [`NAMES`] names, by Zipf and Mandelbrot's law; every [`DRIFT`] requests two change places, so that what is popular drifts |
//! | sweeps | the last [`SWEEP`] of every [`PERIOD`] requests: names in order, never asked before, as a scanner asks |
//!
//! It is no measurement of DNS: it has what makes such streams hard for caches, in known shares.
//! The same seed gives the same requests. Cost: the table and the places of the names, 2.4 MB, and what was
//! asked lately, 512 KB.

use std::io;

use super::random::{Random, scramble};
use super::zipf::Table;
use super::{BATCH_REQUESTS, Source};
use crate::request::Request;

/// Names of the core.
pub const NAMES: u32 = 200_000;

/// What Mandelbrot adds to a rank: the most popular names are less apart than Zipf has them.
pub const SHIFT: f64 = 10.0;

/// Requests between two changes of place.
pub const DRIFT: u64 = 50;

/// Requests that a repeat may go back.
pub const RECENT: usize = 1 << 16;

/// Requests from the start of one sweep to that of the next.
pub const PERIOD: u64 = 400_000;

/// Names of a sweep.
pub const SWEEP: u64 = 20_000;

/// Of a hundred requests outside of sweeps, those for a name of one use.
const ONCE_PERCENT: u64 = 6;

/// Of a hundred requests outside of sweeps, repeats.
const AGAIN_PERCENT: u64 = 22;

/// Tells the kinds of names apart, above all their numbers.
const ONCE: u64 = 1 << 62;
const SWEPT: u64 = 2 << 62;

/// See the module.
#[derive(Debug)]
pub struct DnsLike {
    table: Table,
    /// The name that has a rank.
    names: Vec<u32>,
    recent: Vec<u64>,
    random: Random,
    seed: u64,
    at: u64,
    requests: u64,
    /// A name of one use that is asked for once more.
    twice: Option<u64>,
}

impl DnsLike {
    /// `requests` of the stream of a seed.
    pub fn new(seed: u64, requests: u64, alpha: f64) -> DnsLike {
        DnsLike {
            table: Table::new(NAMES, alpha, SHIFT),
            names: (0..NAMES).collect(),
            recent: vec![0; RECENT],
            random: Random::new(seed),
            seed,
            at: 0,
            requests,
            twice: None,
        }
    }

    fn key(&mut self) -> u64 {
        if self.at % PERIOD >= PERIOD - SWEEP {
            return scramble(SWEPT | self.at, self.seed);
        }
        if self.at.is_multiple_of(DRIFT) {
            self.drift();
        }
        if let Some(key) = self.twice.take() {
            return key;
        }
        let (share, point) = self.random.below(100);
        if share < ONCE_PERCENT {
            let key = scramble(ONCE | self.at, self.seed);
            self.twice = (point >> 63 == 0).then_some(key);
            return key;
        }
        if share < ONCE_PERCENT + AGAIN_PERCENT {
            // 2^64 / x is at least d with a chance of 1 / d.
            let back = u64::MAX / point.max(1);
            if back <= self.at.min(RECENT as u64) {
                return self.recent[(self.at - back) as usize % RECENT];
            }
        }
        let rank = self.table.rank(&mut self.random);
        scramble(u64::from(self.names[rank as usize]), self.seed)
    }

    /// Two names change places, one of them at any rank, the other up to twice as far down: what is rare
    /// moves far, what is popular seldom and little.
    fn drift(&mut self) {
        let (one, _) = self.random.below(u64::from(NAMES));
        let (step, _) = self.random.below(one + 1);
        let other = (one + step).min(u64::from(NAMES) - 1);
        self.names.swap(one as usize, other as usize);
    }
}

impl Source for DnsLike {
    fn next(&mut self, batch: &mut Vec<Request>) -> io::Result<()> {
        batch.clear();
        let count = (self.requests - self.at).min(BATCH_REQUESTS as u64);
        for _ in 0..count {
            let key = self.key();
            self.recent[self.at as usize % RECENT] = key;
            self.at += 1;
            batch.push(Request::get(key));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn keys(seed: u64, requests: u64) -> Vec<u64> {
        let (mut stream, mut batch, mut keys) =
            (DnsLike::new(seed, requests, 0.9), Vec::new(), Vec::new());
        loop {
            stream.next(&mut batch).unwrap();
            if batch.is_empty() {
                return keys;
            }
            keys.extend(batch.iter().map(|request| request.key));
        }
    }

    /// The stream has the shares that the header states: names of one use, half of them twice in a row; repeats
    /// soon; sweeps at their place; and the same again for the same seed.
    #[test]
    fn shares() {
        let keys = keys(1, PERIOD * 2);
        assert_eq!(keys.len() as u64, PERIOD * 2);
        let (first, second) = keys.split_at(PERIOD as usize);
        let (outside, sweep) = first.split_at((PERIOD - SWEEP) as usize);
        let mut counts: HashMap<u64, u32> = HashMap::new();
        keys.iter().for_each(|key| *counts.entry(*key).or_default() += 1);
        assert!(sweep.iter().all(|key| counts[key] == 1), "a swept name came again");
        assert!(second[..(PERIOD - SWEEP) as usize].iter().any(|key| counts[key] > 1));

        let mut core: HashMap<u64, ()> = HashMap::new();
        for name in 0..u64::from(NAMES) {
            core.insert(scramble(name, 1), ());
        }
        let strangers: Vec<usize> =
            (0..outside.len()).filter(|at| !core.contains_key(&outside[*at])).collect();
        let new =
            strangers.iter().filter(|at| **at == 0 || !outside[..**at].ends_with(&[outside[**at]]));
        let mut seen = std::collections::HashSet::new();
        let once = new.filter(|at| seen.insert(outside[**at])).count() as f64;
        let share = once / outside.len() as f64;
        // Six of a hundred draws, and every draw makes 1.03 requests.
        assert!((0.056..0.061).contains(&share), "{share}");
        let again = (1..outside.len()).filter(|at| outside[*at] == outside[at - 1]).count() as f64;
        // Half of the names of one use, half of the repeats, and what is popular.
        let share = again / outside.len() as f64;
        assert!((0.13..0.16).contains(&share), "{share}");
    }

    /// What is popular changes, but slowly: of the hundred names asked for most early on, most are still
    /// among them a million requests later, and not all in the same order.
    #[test]
    fn drifts_slowly() {
        let mut stream = DnsLike::new(3, 0, 0.9);
        let before = stream.names.clone();
        (0..1_000_000 / DRIFT).for_each(|_| stream.drift());
        let stay = |count: usize| (0..count).filter(|at| stream.names[*at] == before[*at]).count();
        assert!((80..100).contains(&stay(100)), "{}", stay(100));
        assert!(stay(NAMES as usize) < NAMES as usize * 9 / 10);
        let mut names = stream.names.clone();
        names.sort_unstable();
        assert!(names.into_iter().eq(0..NAMES), "a name was lost");
    }

    /// The same seed gives the same requests, another seed others.
    #[test]
    fn by_seed() {
        assert_eq!(keys(5, 70_000), keys(5, 70_000));
        assert_eq!(keys(5, 70_000)[..100], keys(5, 100)[..]);
        assert!(keys(6, 100).iter().all(|key| !keys(5, 100).contains(key)));
    }
}
