//! `larder sim`: simulations, from settings to rows.
//!
//! | module | command |
//! |---|---|
//! | [`sync`] | `larder sim sync` |
//! | [`lengths`] | `larder sim lengths` |
//! | [`paper`] | `larder sim paper` |

pub mod lengths;
pub mod paper;
pub mod sync;

use std::fmt::Display;
use std::str::FromStr;

use larder_sim::sheet::Sheet;
use larder_sim::trace::Damage;

use crate::bench::eprint_quietly;
use crate::exit::{self, Failure, Outcome};
use crate::layers::Resolved;
use crate::show::print;

/// The items of a comma-separated list, each read once.
fn list<T: FromStr<Err: Display>>(settings: &Resolved, row: &str) -> Result<Vec<T>, Failure> {
    let words = settings.word(row).unwrap_or_default().split(',').map(str::trim);
    words
        .map(|word| word.parse().map_err(|error| Failure::usage(format!("--{row}: {error}"))))
        .collect()
}

/// A part of one: `0.5`, `1/8`, `10%`.
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

/// The share in a row.
fn share(settings: &Resolved, row: &str) -> Result<f64, Failure> {
    Ok(list::<Share>(settings, row)?.first().map_or(0.0, |share| share.0))
}

/// How large a cache is: `1000`, `10%` of what there is, or `8/17` of it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Capacity {
    Entries(u32),
    Share(f64),
}

impl FromStr for Capacity {
    type Err = String;

    fn from_str(text: &str) -> Result<Capacity, String> {
        let entries = text.replace('_', "").parse().ok().filter(|&entries| entries > 0);
        if let Some(entries) = entries {
            return Ok(Capacity::Entries(entries));
        }
        let share = text.parse::<Share>().ok().filter(|share| share.0 > 0.0);
        share.map(|share| Capacity::Share(share.0)).ok_or_else(|| {
            format!(
                "{text:?} is no capacity; expected entries, as 1000, or a share, as 10% or 8/17"
            )
        })
    }
}

/// Threads asked for, or all that the machine has.
fn threads(settings: &Resolved) -> usize {
    crate::annotate::cores(settings.number_or_default("threads"))
}

/// Prints a sheet in the form asked for: `short` is for eyes.
fn print_sheet(settings: &Resolved, sheet: &Sheet, short: &Sheet) -> Outcome {
    print(&match settings.choice("format") {
        "csv" => sheet.csv(),
        "json" => sheet.json(),
        _ => short.table(),
    })
}

/// Says what could not be read, and with which code the command ends.
fn ended(damage: &Damage, name: &str) -> u8 {
    let Some(first) = &damage.first else { return exit::DONE };
    let records = damage.records;
    eprint_quietly(&format!(
        "{name}: {records} records could not be read and were skipped; first: {first}"
    ));
    exit::DAMAGED
}

impl From<larder_sim::trace::Error> for Failure {
    fn from(error: larder_sim::trace::Error) -> Failure {
        Failure::usage(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares and capacities have several spellings, and everything else is refused with what would do.
    #[test]
    fn words_are_read() {
        for text in ["0.125", "1/8", "12.5%", "12.5 %"] {
            assert_eq!(text.parse(), Ok(Share(0.125)), "{text}");
        }
        for text in ["", "-1", "2", "x", "1/0", "101%", "nan", "inf"] {
            assert!(text.parse::<Share>().unwrap_err().contains("1/8"), "{text}");
        }
        assert_eq!("20_000".parse(), Ok(Capacity::Entries(20_000)));
        assert_eq!("10%".parse(), Ok(Capacity::Share(0.1)));
        assert_eq!("1/2".parse(), Ok(Capacity::Share(0.5)));
        for text in ["", "0", "0%", "5000000000", "ten"] {
            assert!(text.parse::<Capacity>().is_err(), "{text}");
        }
    }
}
