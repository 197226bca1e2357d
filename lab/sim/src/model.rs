//! What a cache is worth to a DNS server: a model with three numbers.
//!
//! JINMEI Tatuya ("cache effectiveness", bind10-dev, 2013-02-27) asks which part of its time a server spends
//! on queries that its cache answers, as that is the part a better cache can shorten. With
//!
//! ```text
//! r     hit ratio: the part of the queries that the cache answers
//! Q1    answers a second when all queries hit
//! Q2    answers a second when all queries miss
//! ```
//!
//! a query that hits takes `1/Q1` seconds and one that misses `1/Q2`, so of the time for an average query,
//! `r/Q1 + (1-r)/Q2`, hits take
//!
//! ```text
//! A = (r/Q1) / (r/Q1 + (1-r)/Q2) = r*Q2 / (r*Q2 + Q1*(1-r))
//! ```
//!
//! and the server answers `1 / (r/Q1 + (1-r)/Q2)` queries a second. Asked the other way round: hits take the
//! part `A` at hit ratio `r` where `Q2/Q1 = A*(1-r) / (r*(1-A))`.
//!
//! # External queries
//!
//! `Q2` is measured with a server behind that answers at once, so that a miss asks it one query. A resolver
//! asks more: the memo has 1.44 to 1.63 external queries a miss, from traces of real clients. Here a miss is the
//! work of a hit (receive, look up, answer: `1/Q1`) and for each external query an equal share of the rest.
//! So with `e` of them a miss takes `1/Q1 + e * (1/Q2 - 1/Q1)` seconds ([`Rates::with_external_queries`]). The
//! time in which a server only waits does not count: it responds to others meanwhile.
//!
//! # How wrong it is
//!
//! The model knows no costs that hits and misses cause one another: cold code and data when they alternate,
//! inserts and evictions, larger tables. Measured servers answer 3 to 21 % fewer queries at 90 % hits than
//! it says ([`SHORTFALL`], [`SERVERS`]); at 0 and 100 % it is right by definition.
//!
//! Invariants: a [`HitRatio`] lies in `0..=1`, [`Rates`] in `1e-3..=1e12` with `Q2 <= Q1`, so that no result is
//! anything but a finite number. Cost: a few operations; nothing is kept.

mod report;

use std::fmt;
use std::str::FromStr;

pub use report::{Case, Report, Traced};

/// A part of a whole, `0..=1`: of queries that hit, or of time.
///
/// As text `0.9` or `90%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct HitRatio(f64);

impl HitRatio {
    /// The ratio, if it is one.
    ///
    /// # Errors
    /// [`Error::HitRatio`] outside `0..=1`.
    pub fn new(ratio: f64) -> Result<HitRatio, Error> {
        // A negative zero would show its sign.
        if (0.0..=1.0).contains(&ratio) {
            Ok(HitRatio(ratio.abs()))
        } else {
            Err(Error::HitRatio(ratio))
        }
    }

    /// As a number from 0 to 1.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for HitRatio {
    type Err = Error;

    fn from_str(text: &str) -> Result<HitRatio, Error> {
        HitRatio::new(part(text)?)
    }
}

/// The part of its time that a server is wanted to spend on hits: `0..1`, since all of it would mean that
/// there are no misses, whatever they cost.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Wanted(f64);

impl Wanted {
    /// The part, if it can be wanted.
    ///
    /// # Errors
    /// [`Error::Wanted`] outside `0..1`.
    pub fn new(part: f64) -> Result<Wanted, Error> {
        if (0.0..1.0).contains(&part) { Ok(Wanted(part.abs())) } else { Err(Error::Wanted(part)) }
    }

    /// As a number from 0 to below 1.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Q2/Q1 with which hits take this part of the time at hit ratio `r`; with a greater one they take more.
    /// `None` where no query hits and some of the time is wanted all the same.
    pub fn rate_ratio(self, r: HitRatio) -> Option<f64> {
        if self.0 == 0.0 {
            return Some(0.0);
        }
        (r.0 > 0.0).then(|| self.0 * (1.0 - r.0) / (r.0 * (1.0 - self.0)))
    }
}

impl FromStr for Wanted {
    type Err = Error;

    fn from_str(text: &str) -> Result<Wanted, Error> {
        Wanted::new(part(text)?)
    }
}

/// `0.9` or `90%`.
fn part(text: &str) -> Result<f64, Error> {
    let (digits, scale) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text.trim(), 1.0),
    };
    let number: f64 = digits.parse().map_err(|_| Error::NoPart(text.to_owned()))?;
    Ok(number / scale)
}

/// What a server can do, in answers a second (of one core, or of all: as they were measured, so the results).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    q1: f64,
    q2: f64,
}

const RATE_MIN: f64 = 1e-3;
const RATE_MAX: f64 = 1e12;

/// Most external queries a miss that are believed.
const EXTERNAL_QUERIES_MAX: f64 = 1e4;

impl Rates {
    /// `q1` answers a second when all queries hit, `q2` when all miss.
    ///
    /// # Errors
    /// [`Error::Rate`] for one outside `0.001..=1e12`; [`Error::MissFasterThanHit`] where `q2 > q1`.
    pub fn new(q1: f64, q2: f64) -> Result<Rates, Error> {
        for (name, rate) in [("Q1", q1), ("Q2", q2)] {
            if !(RATE_MIN..=RATE_MAX).contains(&rate) {
                return Err(Error::Rate { name, rate });
            }
        }
        if q2 > q1 {
            return Err(Error::MissFasterThanHit { q1, q2 });
        }
        Ok(Rates { q1, q2 })
    }

    /// Answers a second when all queries hit.
    pub fn q1(self) -> f64 {
        self.q1
    }

    /// Answers a second when all queries miss.
    pub fn q2(self) -> f64 {
        self.q2
    }

    /// The same server when a miss takes `per_miss` external queries on average, where `self` was measured with
    /// one. What a miss takes beyond a hit is multiplied by it: `1/Q2' = 1/Q1 + per_miss * (1/Q2 - 1/Q1)`.
    ///
    /// # Errors
    /// [`Error::ExternalQueries`] outside `0..=10000`. Below one is for servers that merge equal questions;
    /// [`Error::Rate`] where the new Q2 is below `0.001`.
    pub fn with_external_queries(self, per_miss: f64) -> Result<Rates, Error> {
        if !(0.0..=EXTERNAL_QUERIES_MAX).contains(&per_miss) {
            return Err(Error::ExternalQueries(per_miss));
        }
        if per_miss == 1.0 {
            return Ok(self);
        }
        let beyond_s = 1.0 / self.q2 - 1.0 / self.q1;
        // Rounding must not make a miss faster than a hit.
        let q2 = (1.0 / (1.0 / self.q1 + per_miss * beyond_s)).min(self.q1);
        Rates::new(self.q1, q2)
    }

    /// The memo's A: the part of its time that a busy server spends on queries that hit.
    pub fn time_on_hits(self, r: HitRatio) -> f64 {
        let hits = r.0 * self.q2;
        hits / (hits + self.q1 * (1.0 - r.0))
    }

    /// Answers a second at hit ratio `r`, by the formula.
    pub fn throughput(self, r: HitRatio) -> f64 {
        1.0 / (r.0 / self.q1 + (1.0 - r.0) / self.q2)
    }

    /// Least and most that a real server may be expected to answer a second: the formula less [`SHORTFALL`].
    /// That was measured at 90 % hits. At 0 and 100 % the formula is right by definition, and nothing is taken
    /// off; between, what is taken off is as at 90 %, since it was not measured.
    pub fn expected(self, r: HitRatio) -> (f64, f64) {
        let formula = self.throughput(r);
        if r.0 == 0.0 || r.0 == 1.0 {
            return (formula, formula);
        }
        (formula * (1.0 - SHORTFALL.1), formula * (1.0 - SHORTFALL.0))
    }
}

/// By which part, least and most, measured servers answer fewer queries at 90 % hits than by the formula.
pub const SHORTFALL: (f64, f64) = (0.03, 0.21);

/// What was measured of a server: answers a CPU second of one core, over loopback, forwarding only (one
/// external query a miss, to a server that answers at once).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Server {
    /// Its name.
    pub name: &'static str,
    /// All queries hit, Q1: least and most of several runs.
    pub hits: (f64, f64),
    /// All queries miss, Q2.
    pub misses: f64,
    /// 90 % of the queries hit.
    pub mixed: f64,
}

/// Orientation, measured on a machine of this project. Servers of other versions on other machines differ: the
/// ratios travel better than the rates.
pub const SERVERS: [Server; 3] = [
    Server { name: "unbound", hits: (160_000.0, 176_000.0), misses: 24_000.0, mixed: 100_000.0 },
    Server { name: "dnsdist", hits: (167_000.0, 167_000.0), misses: 76_000.0, mixed: 124_000.0 },
    Server { name: "BIND", hits: (128_000.0, 128_000.0), misses: 23_000.0, mixed: 78_000.0 },
];

/// Where [`Server::mixed`] was measured.
pub const MIXED_HIT_RATIO: HitRatio = HitRatio(0.9);

/// Where the rates come from when none are given.
pub const DEFAULT_SOURCE: &str = "unbound on one core, loopback, forwarding: \
the middle of 160,000 to 176,000 hits and 24,000 misses a CPU second";

impl Server {
    /// Rates with the least and the most of its hits.
    fn rates(&self) -> [Rates; 2] {
        [self.hits.0, self.hits.1].map(|q1| Rates { q1, q2: self.misses })
    }

    /// Its rate by the formula at 90 % hits: least and most.
    pub fn formula(&self) -> (f64, f64) {
        let [least, most] = self.rates().map(|rates| rates.throughput(MIXED_HIT_RATIO));
        (least, most)
    }

    /// By which part it answers fewer than that: least and most.
    pub fn shortfall(&self) -> (f64, f64) {
        let (least, most) = self.formula();
        (1.0 - self.mixed / least, 1.0 - self.mixed / most)
    }
}

impl Default for Rates {
    /// [`DEFAULT_SOURCE`].
    fn default() -> Rates {
        let [unbound, ..] = SERVERS;
        Rates { q1: (unbound.hits.0 + unbound.hits.1) / 2.0, q2: unbound.misses }
    }
}

/// Why there is no result. Every message states what to do.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// Not a number: write it as `0.9` or `90%`.
    NoPart(String),
    /// A hit ratio outside `0..=1`.
    HitRatio(f64),
    /// A part of time outside `0..1`.
    Wanted(f64),
    /// A rate that no server has.
    Rate {
        /// Which.
        name: &'static str,
        /// What was given, answers a second.
        rate: f64,
    },
    /// The rates are the wrong way round.
    MissFasterThanHit {
        /// What was given as the rate of hits.
        q1: f64,
        /// What was given as the rate of misses.
        q2: f64,
    },
    /// A number of external queries that no miss takes.
    ExternalQueries(f64),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = |number: f64| {
            if number > 1.0 && number <= 100.0 {
                format!("; per cent are written {number}%")
            } else {
                String::new()
            }
        };
        match self {
            Error::NoPart(text) => write!(f, "'{text}' is no number; write 0.9 or 90%"),
            Error::HitRatio(ratio) => {
                write!(f, "{ratio} is no hit ratio; it lies between 0 and 1{}", hint(*ratio))
            }
            Error::Wanted(part) => write!(
                f,
                "{part} is no part of the time that can be wanted; it lies between 0 and 1, and 1 would \
                 take a cache that never misses{}",
                hint(*part)
            ),
            Error::Rate { name, rate } => write!(
                f,
                "{name}: {rate} answers a second is no rate of a server; it lies between 0.001 and 1e12"
            ),
            Error::MissFasterThanHit { q1, q2 } => write!(
                f,
                "Q2 ({q2}) is above Q1 ({q1}), as if a miss were less work than a hit; Q1 is the rate at \
                 100 % hits, Q2 the rate at 0 %"
            ),
            Error::ExternalQueries(number) => write!(
                f,
                "{number} is no number of external queries a miss; it lies between 0 and \
                 {EXTERNAL_QUERIES_MAX}, for resolvers between 1 and 2"
            ),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ratio(ratio: f64) -> HitRatio {
        HitRatio::new(ratio).unwrap()
    }

    /// Rounded to so many places, as a text rounds.
    fn rounded(number: f64, places: i32) -> f64 {
        (number * 10f64.powi(places)).round() / 10f64.powi(places)
    }

    /// Every number that the memo computes comes out as it prints it.
    #[test]
    fn the_numbers_of_the_memo() {
        // The ideal server, from its rates at 100 and 0 % hits: 76 % of the time at 90 % hits.
        let ideal = Rates::new(170_591.0, 60_138.0).unwrap();
        assert_eq!(rounded(ideal.time_on_hits(ratio(0.9)), 2), 0.76);
        // BIND 9.9.2 and unbound 1.4.19: Q2 about 28 % of Q1.
        let measured = Rates::new(1.0, 0.28).unwrap();
        assert_eq!(rounded(measured.time_on_hits(ratio(0.9)), 3), 0.716);
        assert_eq!(rounded(measured.time_on_hits(ratio(0.9)), 2), 0.72);
        // Q2/Q1 for a wanted part of the time at 90 % hits.
        for (wanted, rate_ratio) in [(0.7, 0.26), (0.6, 0.17), (0.5, 0.11)] {
            let wanted = Wanted::new(wanted).unwrap();
            assert_eq!(rounded(wanted.rate_ratio(ratio(0.9)).unwrap(), 2), rate_ratio);
        }
        // A miss ten times as heavy still leaves about half of the time to hits.
        let heavy = Rates::new(10.0, 1.0).unwrap();
        assert_eq!(rounded(heavy.time_on_hits(ratio(0.9)), 1), 0.5);
    }

    /// External queries multiply what a miss takes beyond a hit, and nothing else: by hand with round numbers.
    #[test]
    fn external_queries_cost_what_a_miss_costs_more() {
        // 1 ms a hit, 5 ms a miss, of which 4 ms are the external query: with 1.5 of them 7 ms.
        let rates = Rates::new(1_000.0, 200.0).unwrap();
        let more = rates.with_external_queries(1.5).unwrap();
        assert_eq!((more.q1(), rounded(1.0 / more.q2(), 9)), (1_000.0, 0.007));
        assert_eq!(rates.with_external_queries(1.0).unwrap(), rates);
        assert_eq!(rates.with_external_queries(0.0).unwrap().q2(), 1_000.0);
    }

    /// The formula's results for the measured servers, and how far off they are: all within the
    /// span that is stated for it, the lower end of unbound's rates apart, which is 2 %.
    #[test]
    fn the_servers_fall_short() {
        let results = SERVERS.map(|server| {
            let ((least, most), short) = (server.formula(), server.shortfall());
            let thousands = |rate: f64| rounded(rate / 1_000.0, 1);
            (thousands(least), thousands(most), rounded(short.0, 3), rounded(short.1, 3))
        });
        assert_eq!(
            results,
            [
                (102.1, 107.8, 0.021, 0.072),
                (149.1, 149.1, 0.169, 0.169),
                (87.9, 87.9, 0.112, 0.112),
            ]
        );
    }

    /// Parts are written as numbers or per cent; everything else is refused with what to write instead.
    #[test]
    fn parts_are_parsed() {
        for (text, expected) in
            [("0.9", 0.9), ("90%", 0.9), (" 90 % ", 0.9), ("0", 0.0), ("1", 1.0), ("-0", 0.0)]
        {
            assert_eq!(text.parse::<HitRatio>().unwrap().get(), expected, "{text}");
            assert!(text.parse::<HitRatio>().unwrap().get().is_sign_positive());
        }
        for (text, expected) in [
            ("90", "per cent are written 90%"),
            ("101%", "between 0 and 1"),
            ("-0.1", "between 0 and 1"),
            ("NaN", "between 0 and 1"),
            ("inf", "between 0 and 1"),
            ("much", "write 0.9 or 90%"),
            ("", "write 0.9 or 90%"),
        ] {
            let error = text.parse::<HitRatio>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!("100%".parse::<Wanted>().unwrap_err().to_string().contains("never misses"));
    }

    /// Rates that cannot be are refused; the message names which one and what it should be.
    #[test]
    fn rates_are_checked() {
        for (q1, q2, expected) in [
            (0.0, 1.0, "Q1: 0 answers"),
            (1.0, 0.0, "Q2: 0 answers"),
            (f64::NAN, 1.0, "Q1: NaN"),
            (1.0, -1.0, "Q2: -1"),
            (f64::INFINITY, 1.0, "Q1: inf"),
            (1.0, 2.0, "Q1 is the rate at 100 % hits"),
        ] {
            let error = Rates::new(q1, q2).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let rates = Rates::default();
        for wrong in [-1.0, f64::NAN, 1e5] {
            assert!(rates.with_external_queries(wrong).is_err(), "{wrong}");
        }
    }

    /// At the ends: without hits no time goes into them, with hits alone all of it, and rates are as measured.
    #[test]
    fn the_ends_are_exact() {
        let rates = Rates::new(1_000.0, 200.0).unwrap();
        assert_eq!((rates.time_on_hits(ratio(0.0)), rates.time_on_hits(ratio(1.0))), (0.0, 1.0));
        assert_eq!(rates.throughput(ratio(0.0)), 200.0);
        assert_eq!(rates.throughput(ratio(1.0)), 1_000.0);
        assert_eq!(rates.expected(ratio(1.0)), (1_000.0, 1_000.0));
        assert_eq!(Wanted::new(0.5).unwrap().rate_ratio(ratio(0.0)), None);
        assert_eq!(Wanted::new(0.5).unwrap().rate_ratio(ratio(1.0)), Some(0.0));
    }

    proptest! {
        /// The inverse is one: a server with the wanted ratio of rates spends the wanted part of its time on
        /// hits. And time on hits is also what the definition says: the share of hits in a simulated second.
        #[test]
        fn the_inverse_inverts(r in 0.01..0.99f64, part in 0.01..0.99f64, q1 in 1.0..1e9f64) {
            let rate_ratio = Wanted::new(part).unwrap().rate_ratio(ratio(r)).unwrap();
            prop_assume!((1e-6..=1.0).contains(&rate_ratio));
            let rates = Rates::new(q1, q1 * rate_ratio).unwrap();
            prop_assert!((rates.time_on_hits(ratio(r)) - part).abs() < 1e-9);
            let seconds_on_hits = rates.throughput(ratio(r)) * r / q1;
            prop_assert!((seconds_on_hits - part).abs() < 1e-9);
        }

        /// Whatever is accepted gives finite results in their ranges, and more hits never make it slower.
        #[test]
        fn results_stay_in_range(
            (low, high) in (0.0..=1.0f64, 0.0..=1.0f64),
            (q1, part) in (1e-3..=1e12f64, 0.0..=1.0f64),
            external in 0.0..=1e4f64,
        ) {
            let Ok(rates) = Rates::new(q1, q1 * part) else { return Ok(()) };
            let Ok(rates) = rates.with_external_queries(external) else { return Ok(()) };
            prop_assert!(rates.q2() <= rates.q1());
            let (low, high) = (low.min(high), low.max(high));
            for r in [low, high, 0.0, 1.0] {
                prop_assert!((0.0..=1.0).contains(&rates.time_on_hits(ratio(r))));
                let (least, most) = rates.expected(ratio(r));
                prop_assert!(0.0 < least && least <= most && most <= rates.q1() * (1.0 + 1e-9));
            }
            let faster = rates.throughput(ratio(high)) / rates.throughput(ratio(low));
            prop_assert!(faster >= 1.0 - 1e-9);
        }
    }
}
