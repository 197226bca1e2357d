//! Names from a list, the most popular first: their lengths, and those of what was registered.
//!
//! A line is a name, or `rank,name` as in lists of popular names; a dot at the end, empty lines, lines that begin
//! with `#` and a byte order mark before the first count for nothing. What cannot be a name (empty between commas,
//! longer than 253 bytes) is counted as damage and skipped.
//!
//! Bounds: a byte a name, and 16 a registered one under `com` and `net`.

use std::collections::HashSet;
use std::path::Path;

use foldhash::fast::FixedState;

use crate::trace::random::Random;
use crate::trace::reader::{Line, TraceReader};
use crate::trace::{self, Damage, text_key};

/// Bytes of the longest name, without the dot at its end (RFC 1035, section 2.3.4).
pub const NAME_BYTES_MAX: usize = 253;

/// Bytes of the longest label.
pub const LABEL_BYTES_MAX: usize = 63;

/// Lengths, counted: index is the length.
pub type Counts = Vec<u64>;

/// Top-level domains whose registered labels are counted: the paper's Figures 2 and 3.
pub const TOPS: [&str; 2] = ["com", "net"];

/// The lengths of a list of names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    lengths: Vec<u8>,
    /// Distinct labels below each of [`TOPS`], by length.
    registered: [Counts; TOPS.len()],
}

/// What lengths are like.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Statistics {
    /// How many.
    pub count: u64,
    /// Their mean, bytes.
    pub mean: f64,
    /// The most frequent.
    pub mode: usize,
    /// The middle one.
    pub median: usize,
    /// Nine in ten are no longer.
    pub p90: usize,
    /// 99 in a hundred are no longer.
    pub p99: usize,
    /// The longest.
    pub longest: usize,
}

impl Names {
    /// Reads a list, compressed or not; `-` is standard input.
    ///
    /// # Errors
    /// The file cannot be opened, or nothing of it can be read.
    pub fn read(path: &Path) -> Result<(Names, Damage), trace::Error> {
        let mut bytes = TraceReader::open(path)?;
        bytes.take_mark();
        let (mut names, mut damage) = (Names::default(), Damage::default());
        let mut seen: [HashSet<u64, FixedState>; TOPS.len()] = Default::default();
        let mut number = 0u64;
        while let Some(line) = bytes.line() {
            number += 1;
            let name = match line {
                Line::Whole(line) => name_of(line),
                Line::TooLong => Err("too long for a name"),
            };
            match name {
                Ok(Some(name)) => names.add(name, &mut seen),
                Ok(None) => {}
                Err(why) => damage.add(|| format!("line {number}: {why}")),
            }
        }
        bytes.count_failure(&mut damage);
        if let (true, Some(why)) = (names.lengths.is_empty(), &damage.first) {
            let name = path.display().to_string();
            return Err(trace::Error::Unreadable { name, why: why.clone() });
        }
        Ok((names, damage))
    }

    /// So many lengths made up by seed, as popular names have them: logarithms are normal, the median is 22
    /// bytes, nine in ten are below 48, one in a hundred is above 88. Nothing is registered.
    pub fn made_up(count: u32, seed: u64) -> Names {
        const MEDIAN: f64 = 22.0;
        const SIGMA: f64 = 0.6;
        let mut random = Random::new(seed ^ 0x6c65_6e67);
        let mut length = || {
            // A sum of twelve evens is normal enough, and the same on every machine.
            let sum: f64 = (0..12).map(|_| random.below(1 << 32).0 as f64 / 2f64.powi(32)).sum();
            let length = MEDIAN * (SIGMA * (sum - 6.0)).exp();
            (length.round() as usize).clamp(3, NAME_BYTES_MAX) as u8
        };
        let lengths = (0..count).map(|_| length()).collect();
        Names { lengths, registered: Default::default() }
    }

    fn add(&mut self, name: &[u8], seen: &mut [HashSet<u64, FixedState>; TOPS.len()]) {
        // `name_of` lets nothing longer pass.
        self.lengths.push(name.len().min(NAME_BYTES_MAX) as u8);
        let mut labels = name.rsplit(|&byte| byte == b'.');
        let (Some(top), Some(label)) = (labels.next(), labels.next()) else { return };
        let Some(at) = TOPS.iter().position(|known| top.eq_ignore_ascii_case(known.as_bytes()))
        else {
            return;
        };
        if seen[at].insert(text_key(&label.to_ascii_lowercase())) {
            count(&mut self.registered[at], label.len());
        }
    }

    /// Lengths in bytes, in the order of the list.
    pub fn lengths(&self) -> &[u8] {
        &self.lengths
    }

    /// How often each length comes.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        self.lengths.iter().for_each(|&length| count(&mut counts, usize::from(length)));
        counts
    }

    /// Distinct labels right below one of [`TOPS`], by length.
    pub fn registered(&self, top: usize) -> &[u64] {
        self.registered.get(top).map_or(&[], Vec::as_slice)
    }
}

impl Statistics {
    /// Of counted lengths; all 0 of nothing.
    pub fn of(counts: &[u64]) -> Statistics {
        let count: u64 = counts.iter().sum();
        let sum: u64 = counts.iter().zip(0u64..).map(|(&count, length)| count * length).sum();
        // The first length up to which there are so many.
        let at = |share: f64| {
            let wanted = (count as f64 * share).ceil().max(1.0) as u64;
            let mut seen = 0;
            let found = counts.iter().position(|&count| {
                seen += count;
                seen >= wanted
            });
            found.unwrap_or(0)
        };
        let most = counts.iter().copied().max().unwrap_or(0);
        Statistics {
            count,
            mean: if count == 0 { 0.0 } else { sum as f64 / count as f64 },
            mode: counts.iter().position(|&count| count == most).unwrap_or(0),
            median: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            longest: counts.iter().rposition(|&count| count > 0).unwrap_or(0),
        }
    }
}

fn count(counts: &mut Counts, length: usize) {
    if counts.len() <= length {
        counts.resize(length + 1, 0);
    }
    counts[length] += 1;
}

/// The name of a line, if it has one.
fn name_of(line: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    let name = match memchr::memchr(b',', line) {
        Some(at) if line[..at].iter().all(u8::is_ascii_digit) => line[at + 1..].trim_ascii(),
        _ => line,
    };
    let name = name.strip_suffix(b".").unwrap_or(name);
    match name.len() {
        0 => Err("no name"),
        1..=NAME_BYTES_MAX => Ok(Some(name)),
        _ => Err("longer than 253 bytes, no name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> (Names, Damage) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Names::read(file.path()).unwrap()
    }

    /// Both forms of a line are read, what is no name is counted with its line, a registered label counts once,
    /// and a byte order mark is no part of a name.
    #[test]
    fn lists_are_read() {
        let long = "x".repeat(254);
        let text = format!(
            "# a list\n1,example.com\r\nwww.Example.COM.\n\n3,\nmail.shop.net\n{long}\nlocalhost\n"
        );
        let (names, damage) = read(text.as_bytes());
        assert_eq!(names.lengths(), [11, 15, 13, 9]);
        assert_eq!(damage, Damage { records: 2, first: Some("line 5: no name".to_owned()) });
        assert_eq!(names.registered(0).iter().sum::<u64>(), 1);
        assert_eq!((names.registered(0)[7], names.registered(1)[4]), (1, 1));
        assert!(names.registered(9).is_empty());
        assert_eq!(read(b"\xef\xbb\xbfexample.com\n"), read(b"example.com\n"));
    }

    /// Percentiles, mean and mode of lengths that can be counted on fingers.
    #[test]
    fn statistics_are_right() {
        let (names, _) = read(b"a\nbb\nbb\ncccc\ndddddddddd\n");
        let of = Statistics::of(&names.counts());
        assert_eq!((of.count, of.mode, of.median, of.p90, of.longest), (5, 2, 2, 10, 10));
        assert!((of.mean - 3.8).abs() < 1e-9);
        assert_eq!(Statistics::of(&[]), Statistics::default());
    }

    /// Generated names are as long as stated, and the same for a seed.
    #[test]
    fn made_up_names_are_as_promised() {
        let names = Names::made_up(100_000, 7);
        let of = Statistics::of(&names.counts());
        assert!(of.median.abs_diff(22) <= 1, "{of:?}");
        assert!((45..=49).contains(&of.p90) && (82..=92).contains(&of.p99), "{of:?}");
        assert_eq!(names, Names::made_up(100_000, 7));
    }
}
