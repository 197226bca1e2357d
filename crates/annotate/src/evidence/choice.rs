//! The choice among several names by lookups: a table of small decision trees.
//!
//! Of the names that lookups gave an address, the one that a flow means shows in what other flows
//! stated: of this client, just before and after, and of other clients at this address. No rule of
//! thumb over that is better than the order of lookups (docs/decisions/0015), so a table weighs it. Each
//! candidate has [`FEATURES`] numbers, each tree asks three of them whether they are above a limit, and the
//! eight combinations of answers have a weight each. The score of a candidate is the sum over all trees
//! ("gradient boosting", Friedman 2001, with trees that ask one thing per level), and the highest wins.
//!
//! The table is part of the program ([`TABLE`]). `larder-lab names --train` makes it from logs of Zeek.
//!
//! All numbers are integers, so a choice is the same on every machine. Cost: three comparisons for each tree and
//! eight candidates, a weight for each tree and candidate, and only for addresses with two names or more.

use super::usage::Stated;
pub use trees::TABLE;

mod trees;

/// Numbers of a candidate.
pub const FEATURES: usize = 12;

/// What is known of a candidate, in the order of [`FEATURE_NAMES`].
pub type Features = [i16; FEATURES];

/// The features: what they count, and `than_others` for the difference to the best other candidate.
pub const FEATURE_NAMES: [&str; FEATURES] = [
    "rank",
    "lookup_age",
    "lookup_age_than_others",
    "stated_before",
    "stated_before_than_others",
    "stated_after",
    "stated_near",
    "stated_near_than_others",
    "client_share",
    "client_share_than_others",
    "others_share",
    "others_share_than_others",
];

/// A tree: three questions (feature, limit), and the weights of the eight answers, thousandths of a natural
/// logarithm of odds. The first question is the highest bit of an answer's number, set when the feature is above
/// the limit.
pub type Tree = ([(u8, i16); 3], [i16; 8]);

/// Candidates that are scored together. A question is one comparison of this many numbers.
const LANES: usize = 8;

/// Trees whose questions are asked before any weight is read. Together, the two loops would not be vectorized.
const TREES_AT_ONCE: usize = 32;

/// The scores of up to [`LANES`] candidates.
fn scores(table: &[Tree], candidates: &[Features]) -> [i32; LANES] {
    // The masks change no number of a feature or an answer, and spare checks of bounds.
    let mut rows = [[0; LANES]; FEATURES.next_power_of_two()];
    for (lane, features) in candidates.iter().enumerate().take(LANES) {
        for (row, value) in rows.iter_mut().zip(features) {
            row[lane] = *value;
        }
    }
    let mut scores = [0; LANES];
    let mut answers = [[0_i16; LANES]; TREES_AT_ONCE];
    for trees in table.chunks(TREES_AT_ONCE) {
        for ((questions, _), answers) in trees.iter().zip(&mut answers) {
            let row = |(feature, _): (u8, _)| &rows[usize::from(feature) & (rows.len() - 1)];
            let [first, second, third] = questions.map(row);
            let [(_, high), (_, middle), (_, low)] = *questions;
            for (lane, answer) in answers.iter_mut().enumerate() {
                *answer = i16::from(first[lane] > high) << 2
                    | i16::from(second[lane] > middle) << 1
                    | i16::from(third[lane] > low);
            }
        }
        for ((_, weights), answers) in trees.iter().zip(&answers) {
            for (score, answer) in scores.iter_mut().zip(answers) {
                *score += i32::from(weights[*answer as usize & (weights.len() - 1)]);
            }
        }
    }
    scores
}

/// A choice among candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The candidate.
    pub place: usize,
    /// How far its score is above the next one, thousandths.
    pub margin: i32,
}

/// The candidate with the highest score, of several the first. `None` without candidates.
pub fn choose(table: &[Tree], candidates: &[Features]) -> Option<Choice> {
    let mut best: Option<(Choice, i32)> = None;
    let scores = candidates.chunks(LANES).flat_map(|some| {
        let scores = scores(table, some);
        scores.into_iter().take(some.len())
    });
    for (place, score) in scores.enumerate() {
        best = Some(match best {
            Some((choice, highest)) if score <= highest => {
                let margin = choice.margin.min(highest - score);
                (Choice { margin, ..choice }, highest)
            }
            Some((_, highest)) => (Choice { place, margin: score - highest }, score),
            None => (Choice { place, margin: i32::MAX }, score),
        });
    }
    best.map(|(choice, _)| choice)
}

/// A statement counts as near a flow if its flow began at most this long before or after, ns.
const NEAR_NS: i64 = 5_000_000_000;
/// The class of an age that is not known.
const AGE_UNKNOWN: i16 = 255;

/// The class of an age: four for each power of two, in milliseconds.
fn age_class(age_ns: Option<i64>) -> i16 {
    let Some(age_ns) = age_ns else { return AGE_UNKNOWN };
    let ms = (age_ns / 1_000_000).max(0) as u64 + 1;
    let power = ms.ilog2();
    let quarter = (ms << 2 >> power) & 3;
    ((4 * power) as i16 + quarter as i16).min(AGE_UNKNOWN - 1)
}

/// What is known of one candidate, before it is compared with the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Time of its last lookup, ns, if there was one.
    pub lookup_ns: Option<i64>,
    /// What flows stated.
    pub stated: Stated,
}

/// The features of all candidates of a flow that began at `start_ns`, which are in order of their rank.
pub(super) fn features(start_ns: i64, known: &[Known], out: &mut Vec<Features>) {
    let sum = |of: fn(&Known) -> i32| known.iter().map(of).sum::<i32>();
    let (by_client, by_others) = (sum(flows_of_client), sum(other_clients));
    out.clear();
    out.extend(known.iter().enumerate().map(|(rank, known)| {
        let mut features = [0; FEATURES];
        features[0] = rank.min(15) as i16;
        features[1] = age_class(known.lookup_ns.map(|time_ns| start_ns.saturating_sub(time_ns)));
        let (mut before_ns, mut after_ns) = (None, None);
        // Most names were stated by no flow of the client.
        let last = if known.stated.by_client > 0 { &known.stated.last[..] } else { &[] };
        for flow in last.iter().flatten() {
            let age_ns = start_ns.saturating_sub(flow.start_ns);
            let nearest_ns = if age_ns >= 0 { &mut before_ns } else { &mut after_ns };
            let distance_ns = age_ns.saturating_abs();
            *nearest_ns = Some(nearest_ns.map_or(distance_ns, |ns: i64| ns.min(distance_ns)));
            features[6] += i16::from(distance_ns <= NEAR_NS);
        }
        features[3] = age_class(before_ns);
        features[5] = age_class(after_ns);
        features[8] = share(flows_of_client(known), by_client);
        features[10] = share(other_clients(known), by_others);
        features
    }));
    for (of, to) in [(1, 2), (3, 4)] {
        compare(out, of, to, AGE_UNKNOWN, |one, other| one < other);
    }
    for (of, to) in [(6, 7), (8, 9), (10, 11)] {
        compare(out, of, to, 0, |one, other| one > other);
    }
}

fn flows_of_client(known: &Known) -> i32 {
    known.stated.by_client.min(255) as i32
}

/// One client alone changes the names of no other (invariant 2).
fn other_clients(known: &Known) -> i32 {
    i32::from(known.stated.by_others.saturating_sub(1))
}

/// A share of `all` in steps of half a percent, with a fifth of a count for each candidate before any is counted.
fn share(count: i32, all: i32) -> i16 {
    ((10 * count + 2) * 20 / (all + 1)) as i16
}

/// Sets feature `to` to the difference of feature `of` to the best of the other candidates; `worst` is no better than
/// any.
fn compare(
    all: &mut [Features],
    of: usize,
    to: usize,
    worst: i16,
    is_better: impl Fn(i16, i16) -> bool,
) {
    let (mut best, mut second, mut best_at) = (worst, worst, usize::MAX);
    for (at, features) in all.iter().enumerate() {
        let value = features[of];
        if is_better(value, best) {
            (best, second, best_at) = (value, best, at);
        } else if is_better(value, second) {
            second = value;
        }
    }
    for (at, features) in all.iter_mut().enumerate() {
        features[to] = features[of] - if at == best_at { second } else { best };
    }
}

#[cfg(test)]
mod tests;
