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

use std::str::FromStr;

use larder_bench::result_table::ResultTable;
use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::terminal::{print, say};
use larder_sim::trace::Damage;

pub use hit_ratio::sim_hit_ratio;
pub use lengths::sim_lengths;
pub use paper::sim_paper;
pub use sync::sim_sync;

/// Whether a lookup that misses stores its key.
fn fills(fill: bool, no_fill: bool) -> Result<bool, Failure> {
    if fill && no_fill {
        return Err(Failure::usage("--fill and --no-fill exclude each other; pass one"));
    }
    Ok(!no_fill)
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

/// Prints rows in this format; a table has the columns of `short`.
fn print_rows(format: &str, rows: &ResultTable, short: &ResultTable) -> Outcome {
    print(&match format {
        "csv" => rows.csv(),
        "json" => rows.json(),
        _ => short.text(),
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
