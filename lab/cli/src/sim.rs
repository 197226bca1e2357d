//! `larder-lab sim`: what a cache is worth, before one buys it.
//!
//! | module | command |
//! |---|---|
//! | [`hit_ratio`] | `larder-lab sim hit-ratio` |
//! | [`sync`] | `larder-lab sim sync` |
//! | [`lengths`] | `larder-lab sim lengths` |
//! | [`paper`] | `larder-lab sim paper` |

pub mod hit_ratio;
mod lengths;
mod paper;
mod sync;

use std::fmt::Display;
use std::str::FromStr;

use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::layers::Resolved;
use larder_settings::terminal::{print, say};
use larder_sim::sheet::Sheet;
use larder_sim::trace::Damage;

pub use hit_ratio::sim_hit_ratio;
pub use lengths::sim_lengths;
pub use paper::sim_paper;
pub use sync::sim_sync;

/// The value of a row of words.
pub fn item<T: FromStr<Err: Display>>(settings: &Resolved, row: &str) -> Result<T, Failure> {
    parse(row, settings.word(row).unwrap_or_default())
}

/// The items of a row that is a list with commas; at least one.
pub fn items<T: FromStr<Err: Display>>(settings: &Resolved, row: &str) -> Result<Vec<T>, Failure> {
    items_by(settings, row, |word| parse(row, word))
}

/// The same, where `read` knows what a word means.
pub fn items_by<T>(
    settings: &Resolved,
    row: &str,
    read: impl Fn(&str) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let text = settings.word(row).unwrap_or_default();
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let items: Vec<T> = words.map(read).collect::<Result<_, Failure>>()?;
    if items.is_empty() {
        let default = settings.rows().find(|(setting, ..)| setting.name == row);
        let example = default.map_or("", |(setting, ..)| setting.default);
        return Err(Failure::usage(format!("--{row}: the list is empty; for example {example}")));
    }
    Ok(items)
}

fn parse<T: FromStr<Err: Display>>(row: &str, word: &str) -> Result<T, Failure> {
    word.parse().map_err(|error| Failure::usage(format!("--{row}: {error}")))
}

/// Whether a look-up that misses stores its key.
fn fills(settings: &Resolved) -> Result<bool, Failure> {
    match (settings.switch("fill"), settings.switch("no-fill")) {
        (true, true) => Err(Failure::usage("--fill and --no-fill exclude each other; pass one")),
        (_, no_fill) => Ok(!no_fill),
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
            format!("{text:?} is not a share; expected a number from 0 to 1, such as 0.125, 1/8 or 12.5%")
        })
    }
}

/// Threads asked for, or all that the machine has.
fn threads(settings: &Resolved) -> usize {
    settings.cores("threads")
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
    let what = match damage.records {
        0 => return exit::DONE,
        1 => "1 record could not be read and was skipped:".to_owned(),
        many => format!("{many} records could not be read and were skipped; the first:"),
    };
    say(&format!("{name}: {what} {}", damage.first.as_deref().unwrap_or("unknown")));
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
