//! `larder sim`: what a cache is worth, before one buys it.
//!
//! | module | command |
//! |---|---|
//! | [`hit_ratio`] | `larder sim hit-ratio` |
//! | [`sync`] | `larder sim sync` |
//! | [`lengths`] | `larder sim lengths` |
//! | [`paper`] | `larder sim paper` |

pub mod hit_ratio;
mod lengths;
mod paper;
mod sync;

use std::fmt::Display;
use std::str::FromStr;

use larder_sim::sheet::Sheet;
use larder_sim::trace::Damage;

use crate::bench::eprint_quietly;
use crate::exit::{self, Failure, Outcome};
use crate::layers::Resolved;
use crate::show::print;

pub use hit_ratio::sim_hit_ratio;
pub use lengths::sim_lengths;
pub use paper::sim_paper;
pub use sync::sim_sync;

/// The items of a row that is a list with commas.
fn items<T: FromStr<Err: Display>>(settings: &Resolved, row: &str) -> Result<Vec<T>, Failure> {
    let text = settings.word(row).unwrap_or_default();
    let items: Result<Vec<T>, Failure> = hit_ratio::list(text)
        .map(|word| word.parse().map_err(|error| Failure::usage(format!("--{row}: {error}"))))
        .collect();
    match items {
        Ok(items) if items.is_empty() => Err(Failure::usage(format!("--{row}: the list is empty"))),
        items => items,
    }
}

/// A part of one: `0.125`, `1/8`, `12.5%`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Share(f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let share = match (text.strip_suffix('%'), text.split_once('/')) {
            (Some(percent), _) => number(percent).map(|percent| percent / 100.0),
            (None, Some((part, whole))) => number(part).zip(number(whole)).map(|(p, w)| p / w),
            (None, None) => number(text),
        };
        share.filter(|share| (0.0..=1.0).contains(share)).map(Share).ok_or_else(|| {
            format!("{text:?} is no share; expected a number from 0 to 1, as 0.125, 1/8 or 12.5%")
        })
    }
}

/// Threads asked for, or all that the machine has.
fn threads(settings: &Resolved) -> usize {
    crate::annotate::cores(settings.number_or_default("threads"))
}

/// Prints rows in the form asked for; `short` is what eyes want of them.
fn print_rows(settings: &Resolved, rows: &Sheet, short: &Sheet) -> Outcome {
    print(&match settings.choice("format") {
        "csv" => rows.csv(),
        "json" => rows.json(),
        _ => short.table(),
    })
}

/// Says what could not be read; the exit code that follows from it.
fn ended(damage: &Damage, name: &str) -> u8 {
    let Some(first) = &damage.first else { return exit::DONE };
    let records = damage.records;
    eprint_quietly(&format!(
        "larder: {name}: {records} records could not be read and were skipped; the first: {first}"
    ));
    exit::DAMAGED
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares have several spellings, and everything else is refused with what would do.
    #[test]
    fn shares_are_read() {
        for text in ["0.125", "1/8", "12.5%", "12.5 %"] {
            assert_eq!(text.parse(), Ok(Share(0.125)), "{text}");
        }
        for text in ["", "-1", "2", "x", "1/0", "101%", "nan", "inf"] {
            assert!(text.parse::<Share>().unwrap_err().contains("1/8"), "{text}");
        }
    }
}
