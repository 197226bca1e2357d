//! Policies by name: the engine's own, and references to compare them with.
//!
//! All of them are [`Replacement`]s, which get the same events in the same order from the replay: entries
//! are places `0..capacity`, and a key's 64 bits are mixed (the same for the same key). A hit costs no look
//! for a key; what a policy remembers of keys that have left, it looks for in `arriving`.
//!
//! Where a published policy divides a capacity `C`, it is, as in the engine, the number of entries there were
//! when room was last needed: exact where entries have one size, and of use where a sum of sizes is the limit.
//! An entry taken out on request leaves no ghost. The references do not know of expiry: the
//! replay removes expired entries.
//!
//! Bounds: memory is reserved at the start, in proportion to the capacity. Calls are O(1) amortized: what one
//! `evict` walks over was put there by as many hits before, and W-TinyLFU halves its counts once in ten
//! capacities of them. Those of GDSF are O(log n).

mod arc;
mod clock;
mod gdsf;
mod ghosts;
mod lfu;
mod lirs;
mod list;
mod listed;
mod lru;
mod paper;
mod random;
mod s3_fifo;
mod sieve;
mod sketch;
mod two_queue;
mod w_tinylfu;

use std::fmt;
use std::str::FromStr;

use larder::Error;
use larder::policy::{Fifo, Partitioned, Replacement, SizeAware};

pub use arc::Arc;
pub use clock::Clock;
pub use gdsf::Gdsf;
pub use lfu::Lfu;
pub use lirs::Lirs;
pub use lru::Lru;
pub use paper::{Flagged, Paper, PaperRules, Promotion};
pub use random::Random;
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;
pub use two_queue::TwoQueue;
pub use w_tinylfu::WTinyLfu;

/// Acts on a policy of any type, so that loops are compiled for each.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// `policy` is new and empty.
    fn visit<P: Replacement + Send + 'static>(self, policy: P) -> Self::Output;
}

/// Entries that a simulated cache holds at most.
pub const CAPACITY_MAX: u32 = 1 << 30;

/// A policy that a simulation can follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The engine's default: [`larder::policy::partitioned`].
    Partitioned,
    /// The engine's first in, first out.
    Fifo,
    /// The policy of larder http's bodies: [`larder::policy::size_aware`].
    SizeAware,
    /// Least recently used.
    Lru,
    /// Algorithm 1 of Shi et al., with one choice for each that it leaves open.
    Paper(PaperRules),
    /// CLOCK with one bit.
    Clock,
    /// CLOCK with two bits.
    Clock2,
    /// 2Q, full version.
    TwoQueue,
    /// ARC.
    Arc,
    /// LIRS.
    Lirs,
    /// SIEVE.
    Sieve,
    /// S3-FIFO.
    S3Fifo,
    /// W-TinyLFU with a window of 1 %.
    WTinyLfu,
    /// W-TinyLFU with a window that adapts.
    WTinyLfuClimb,
    /// LFU among the entries of the cache.
    Lfu,
    /// GDSF.
    Gdsf,
    /// Random replacement.
    Random,
}

/// Algorithm 1 with a promotion, and the rest as by default.
const fn reading(promotion: Promotion) -> Kind {
    Kind::Paper(PaperRules {
        promotion,
        flagged: Flagged::ToRecycle,
        temporary_percent: 25,
        recycle_percent: 25,
        borrow: true,
    })
}

/// Names, in the order in which help lists them.
const NAMES: [(&str, Kind); 19] = [
    ("partitioned", Kind::Partitioned),
    ("fifo", Kind::Fifo),
    ("size-aware", Kind::SizeAware),
    ("lru", Kind::Lru),
    ("paper", reading(Promotion::Listing)),
    ("paper:second", reading(Promotion::SecondAccess)),
    ("paper:third", reading(Promotion::ThirdAccess)),
    ("clock", Kind::Clock),
    ("clock2", Kind::Clock2),
    ("2q", Kind::TwoQueue),
    ("arc", Kind::Arc),
    ("lirs", Kind::Lirs),
    ("sieve", Kind::Sieve),
    ("s3-fifo", Kind::S3Fifo),
    ("w-tinylfu", Kind::WTinyLfu),
    ("w-tinylfu-climb", Kind::WTinyLfuClimb),
    ("lfu", Kind::Lfu),
    ("gdsf", Kind::Gdsf),
    ("random", Kind::Random),
];

/// Words after `paper:`, each of which changes one rule.
const PROMOTIONS: [(&str, Promotion); 3] = [
    ("listing", Promotion::Listing),
    ("second", Promotion::SecondAccess),
    ("third", Promotion::ThirdAccess),
];
const FLAGGED: [(&str, Flagged); 4] = [
    ("recycle", Flagged::ToRecycle),
    ("leaves", Flagged::Evicted),
    ("again", Flagged::StaysOnce),
    ("hot", Flagged::ToHot),
];
const BORROWING: [(&str, bool); 2] = [("borrow", true), ("fixed", false)];

impl Kind {
    /// Every policy once; of the paper's readings the three promotions.
    pub const ALL: [Kind; NAMES.len()] = {
        let mut all = [Kind::Fifo; NAMES.len()];
        let mut number = 0;
        while number < all.len() {
            all[number] = NAMES[number].1;
            number += 1;
        }
        all
    };

    /// Makes the policy for at most `capacity` entries, whose numbers lie below `capacity`, and shows it to
    /// `visitor`. A policy draws its random numbers from `seed`.
    ///
    /// # Errors
    /// [`Error::Setting`] for a capacity of 0 or above [`CAPACITY_MAX`], or shares that the paper's policy
    /// cannot have; [`Error::Memory`] when the system gives none.
    pub fn build<V: Visitor>(
        self,
        capacity: u32,
        seed: u64,
        visitor: V,
    ) -> Result<V::Output, Error> {
        if !(1..=CAPACITY_MAX).contains(&capacity) {
            return Err(Error::Setting("a simulated cache holds 1 to 1073741824 entries"));
        }
        let (numbers, entries_max) = (capacity as usize, u64::from(capacity));
        Ok(match self {
            Kind::Partitioned => visitor.visit(Partitioned::new(numbers, entries_max)?),
            Kind::Fifo => visitor.visit(Fifo::new(numbers)?),
            Kind::SizeAware => visitor.visit(SizeAware::new(numbers, entries_max)?),
            Kind::Lru => visitor.visit(Lru::new(numbers)?),
            Kind::Paper(rules) => visitor.visit(Paper::new(numbers, entries_max, rules)?),
            Kind::Clock => visitor.visit(Clock::new(numbers, 1)?),
            Kind::Clock2 => visitor.visit(Clock::new(numbers, 3)?),
            Kind::TwoQueue => visitor.visit(TwoQueue::new(numbers)?),
            Kind::Arc => visitor.visit(Arc::new(numbers)?),
            Kind::Lirs => visitor.visit(Lirs::new(numbers, 2)?),
            Kind::Sieve => visitor.visit(Sieve::new(numbers)?),
            Kind::S3Fifo => visitor.visit(S3Fifo::new(numbers)?),
            Kind::WTinyLfu => visitor.visit(WTinyLfu::new(numbers, seed, false)?),
            Kind::WTinyLfuClimb => visitor.visit(WTinyLfu::new(numbers, seed, true)?),
            Kind::Lfu => visitor.visit(Lfu::new(numbers)?),
            Kind::Gdsf => visitor.visit(Gdsf::new(numbers)?),
            Kind::Random => visitor.visit(Random::new(numbers, seed)?),
        })
    }
}

fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|row| row.0 == name).map(|row| row.1)
}

fn name<T: PartialEq>(table: &[(&'static str, T)], value: T) -> &'static str {
    table.iter().find(|row| row.1 == value).map_or("", |row| row.0)
}

impl fmt::Display for Kind {
    /// The name that [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (name(&NAMES, *self), *self) {
            ("", Kind::Paper(rules)) => {
                let PaperRules { temporary_percent, recycle_percent, .. } = rules;
                let promotion = name(&PROMOTIONS, rules.promotion);
                let flagged = name(&FLAGGED, rules.flagged);
                let borrow = name(&BORROWING, rules.borrow);
                write!(f, "paper:{promotion}:{flagged}:{borrow}")?;
                match (temporary_percent, recycle_percent) {
                    (25, 25) => Ok(()),
                    (temporary, recycle) => write!(f, ":{temporary}/{recycle}"),
                }
            }
            (name, _) => f.pad(name),
        }
    }
}

impl FromStr for Kind {
    type Err = UnknownPolicy;

    /// Reads one of the names of [`Kind::ALL`], or `paper` followed by words, each after a colon: `listing`,
    /// `second` or `third` (the access that promotes); `recycle`, `leaves`, `again` or `hot` (what becomes of
    /// a flagged entry that temporary has no room for); `borrow` or `fixed`; `T/R` (shares of temporary and
    /// recycle in percent).
    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let unknown = || UnknownPolicy { name: text.to_owned() };
        if let Some(kind) = find(&NAMES, text) {
            return Ok(kind);
        }
        let mut rules = PaperRules::default();
        for word in text.strip_prefix("paper:").ok_or_else(unknown)?.split(':') {
            if let Some(promotion) = find(&PROMOTIONS, word) {
                rules.promotion = promotion;
            } else if let Some(flagged) = find(&FLAGGED, word) {
                rules.flagged = flagged;
            } else if let Some(borrow) = find(&BORROWING, word) {
                rules.borrow = borrow;
            } else {
                let (temporary, recycle) = word.split_once('/').ok_or_else(unknown)?;
                let percent = |text: &str| text.parse().map_err(|_| unknown());
                rules.temporary_percent = percent(temporary)?;
                rules.recycle_percent = percent(recycle)?;
            }
        }
        Ok(Kind::Paper(rules))
    }
}

/// No policy has this name. The text lists those that there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy {
    /// What was given.
    pub name: String,
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = NAMES.map(|row| row.0).join(" ");
        write!(f, "there is no policy {:?}; there are {known}", self.name)
    }
}

impl std::error::Error for UnknownPolicy {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name is read back as it is shown, the paper's rules in any order, and no two are the same.
    #[test]
    fn names_read_back() {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert!(!Kind::ALL[..number].contains(&kind), "{kind}");
        }
        for text in ["paper:second:hot:fixed", "paper:third:again:borrow:10/40"] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        assert_eq!(
            "paper:fixed:third".parse::<Kind>().unwrap().to_string(),
            "paper:third:recycle:fixed"
        );
        assert_eq!("paper:listing".parse::<Kind>(), "paper".parse());
        assert_eq!("paper".parse(), Ok(Kind::Paper(PaperRules::default())));
    }

    /// What is no name is refused, with the names that there are.
    #[test]
    fn other_names_are_refused() {
        for text in ["", "LRU", "paper:", "paper:no", "paper:1/", "paper:300/1", "lru:second"] {
            let error = text.parse::<Kind>().unwrap_err().to_string();
            assert!(error.contains(" s3-fifo") && error.contains(&format!("{text:?}")), "{error}");
        }
    }

    /// No cache of nothing, none beyond the bound, and no partition without a share.
    #[test]
    fn impossible_settings_are_refused() {
        struct Nothing;
        impl Visitor for Nothing {
            type Output = ();
            fn visit<P: Replacement + Send>(self, _: P) {}
        }
        for kind in Kind::ALL {
            assert!(matches!(kind.build(0, 0, Nothing), Err(Error::Setting(_))));
            assert!(matches!(kind.build(CAPACITY_MAX + 1, 0, Nothing), Err(Error::Setting(_))));
            kind.build(1, 0, Nothing).unwrap();
        }
        let shares = "paper:0/50".parse::<Kind>().unwrap();
        assert!(matches!(shares.build(10, 0, Nothing), Err(Error::Setting(_))));
    }
}
