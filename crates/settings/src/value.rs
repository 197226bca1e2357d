//! Values of settings: one text form each, parsed once, into a type that is always valid.
//!
//! A value comes as text from a flag, an environment variable or the configuration file. All three
//! use [`Kind::parse`], so that they accept the same spellings and the same range. [`Kind::show`]
//! is its inverse: its output parses to the same value (tested).
//!
//! Bound: a value is never longer than its text. Cost: negligible; this runs once a setting, at the
//! start.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::amounts::grouped;
use crate::scale::{BYTES, COUNTS, SECONDS, Scale, Slip, show_bytes, show_seconds};

/// The possible values of a setting, and their range.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Yes or no.
    Switch,
    /// A size in bytes: `256MiB`, `1.5G` (binary), `1GB` (decimal), `4096`.
    Bytes {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// A plain count: `1000000`, `1_000_000`, `1.5M`.
    Count {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// A time in whole seconds: `300s`, `5m`, `1h30m`, `1.5h`, `1w`, `2000ms`, `300`.
    Seconds {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// `all`, or a number of worker threads from 1 to [`CORES_MAX`].
    Cores,
    /// Any 64-bit number, decimal or `0x` hexadecimal.
    Seed,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// `all`, or some of a few words with commas between.
    Set {
        /// The words.
        words: &'static [&'static str],
        /// The name of one of them.
        item: &'static str,
    },
    /// A path.
    Path,
    /// A path, or `-` for a pipe.
    Endpoint,
    /// Any word.
    Word,
    /// Words with commas between, or `none`.
    List,
    /// Space of a disk: a size, or a part of the disk as `5%`.
    Space,
    /// A point in time: RFC 3339, seconds since 1970, or a time before now (`-15m`). The function
    /// reads the first two, as ns since 1970.
    Time(fn(&[u8]) -> Option<i64>),
}

/// The most worker threads that a setting may have: it guards against typing errors.
pub const CORES_MAX: u64 = 1024;

/// A parsed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of [`Kind::Switch`].
    Switch(bool),
    /// Of bytes, counts, seconds and seeds; of cores, where 0 stands for `all`.
    Number(u64),
    /// Of [`Kind::Choice`]: the word from the table.
    Choice(&'static str),
    /// Of [`Kind::Path`] and [`Kind::Endpoint`]; the pipe of the latter is `-`.
    Path(PathBuf),
    /// Of [`Kind::Word`], and of [`Kind::Set`] and [`Kind::List`] as it was written.
    Word(String),
    /// Of [`Kind::Space`].
    Space(Space),
    /// Of [`Kind::Time`]: ns since 1970, and the text.
    Time(i64, String),
}

/// The layer that gave a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The table.
    Default,
    /// This file.
    File(PathBuf),
    /// This environment variable.
    Environment(String),
    /// The command line, or an argument of a program that larder runs in.
    Flag,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::Default => f.write_str("default"),
            // Debug quotes and escapes: a path may hold a line feed.
            Layer::File(path) => write!(f, "file {path:?}"),
            Layer::Environment(variable) => write!(f, "environment {variable}"),
            Layer::Flag => f.write_str("flag"),
        }
    }
}

/// Space of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// A number of bytes.
    Bytes(u64),
    /// A part of the disk, in hundredths.
    Percent(u8),
}

impl Kind {
    /// Reads a value. The error is a clause that states what is accepted.
    pub fn parse(&self, text: &OsStr) -> Result<Value, String> {
        if matches!(self, Kind::Path | Kind::Endpoint) {
            return self.parse_path(text);
        }
        let text = text.to_str().ok_or_else(|| "not valid UTF-8".to_owned())?.trim();
        let expected = || format!("expected {}", self.range());
        match *self {
            Kind::Switch => match text {
                "true" | "yes" | "on" | "1" => Ok(Value::Switch(true)),
                "false" | "no" | "off" | "0" => Ok(Value::Switch(false)),
                _ => Err(expected()),
            },
            Kind::Bytes { min, max } => self.scaled(&BYTES, text, min, max),
            Kind::Count { min, max } => self.scaled(&COUNTS, text, min, max),
            Kind::Seconds { min, max } => self.scaled(&SECONDS, text, min, max),
            Kind::Cores if text == "all" => Ok(Value::Number(0)),
            Kind::Cores => self.within(text.parse().map_err(|_| expected())?, 1, CORES_MAX),
            Kind::Seed => parse_seed(text).map(Value::Number).ok_or_else(expected),
            Kind::Choice(words) => {
                words.iter().find(|word| **word == text).map(|word| Value::Choice(word)).ok_or_else(
                    || {
                        let hint = crate::nearest::hint(text, words.iter().copied());
                        format!("{}{hint}", expected())
                    },
                )
            }
            Kind::Set { words, item } => {
                let mut list = text.split(',').map(str::trim).filter(|word| !word.is_empty());
                let is_known = |word: &&str| *word == "all" || words.contains(word);
                match list.clone().find(|word| !is_known(word)) {
                    Some(word) => {
                        let hint = crate::nearest::hint(word, words.iter().copied());
                        Err(format!("'{word}' is not a {item}; {}{hint}", expected()))
                    }
                    None if list.next().is_none() => Err(expected()),
                    None => Ok(Value::Word(text.to_owned())),
                }
            }
            Kind::Word | Kind::List if text.is_empty() => Err(expected()),
            Kind::Word | Kind::List => Ok(Value::Word(text.to_owned())),
            Kind::Path | Kind::Endpoint => self.parse_path(OsStr::new(text)),
            Kind::Space => match text.strip_suffix('%') {
                Some(percent) => match percent.trim_end().parse() {
                    Ok(percent @ 0..=99) => Ok(Value::Space(Space::Percent(percent))),
                    _ => Err(expected()),
                },
                None => BYTES
                    .parse(text)
                    .map(|bytes| Value::Space(Space::Bytes(bytes)))
                    .map_err(|_| expected()),
            },
            Kind::Time(read) => {
                let ns = parse_time(text, read).ok_or_else(expected)?;
                Ok(Value::Time(ns, text.to_owned()))
            }
        }
    }

    fn parse_path(&self, text: &OsStr) -> Result<Value, String> {
        if text.is_empty() {
            return Err(format!("expected {}", self.range()));
        }
        Ok(Value::Path(PathBuf::from(text)))
    }

    fn scaled(&self, scale: &Scale, text: &str, min: u64, max: u64) -> Result<Value, String> {
        match scale.parse(text) {
            Ok(number) => self.within(number, min, max),
            Err(Slip::Form) => Err(format!("expected {}", self.range())),
            Err(Slip::TooFine(whole)) => {
                Err(format!("not a whole number{whole}; expected {}", self.range()))
            }
            Err(Slip::TooLarge) => Err(format!("out of range; expected {}", self.range())),
        }
    }

    fn within(&self, number: u64, min: u64, max: u64) -> Result<Value, String> {
        if (min..=max).contains(&number) {
            Ok(Value::Number(number))
        } else {
            Err(format!("out of range; expected {}", self.range()))
        }
    }

    /// The minimum and maximum; `None` for kinds without a range.
    fn limits(&self) -> Option<String> {
        Some(match *self {
            Kind::Bytes { min, max } => format!("{} to {}", show_bytes(min), show_bytes(max)),
            Kind::Count { min, max: u64::MAX } => grouped(min),
            Kind::Count { min, max } => format!("{} to {}", grouped(min), grouped(max)),
            Kind::Seconds { min, max } => format!("{} to {}", show_seconds(min), show_seconds(max)),
            Kind::Cores => format!("1 to {CORES_MAX}"),
            _ => return None,
        })
    }

    /// The sentence of long help about accepted values; `None` for kinds that have no range.
    pub fn accepted(&self) -> Option<String> {
        match *self {
            Kind::Choice(words) => Some(format!("Values: {}.", words.join(", "))),
            Kind::Set { words, .. } => {
                Some(format!("Values: all, or some of {}.", words.join(",")))
            }
            Kind::Cores => Some(format!("Range: all, or {}.", self.limits()?)),
            Kind::Count { max: u64::MAX, .. } => Some(format!("Range: from {}.", self.limits()?)),
            _ => Some(format!("Range: {}.", self.limits()?)),
        }
    }

    /// A default as people write it: `7d` for `604800s`.
    pub fn shown(&self, text: &str) -> String {
        match self.parse(OsStr::new(text)) {
            Ok(value) => self.show(&value).to_string_lossy().into_owned(),
            Err(_) => text.to_owned(),
        }
    }

    /// The range in words, for the reference, the template and errors.
    pub fn range(&self) -> String {
        let limits = self.limits().unwrap_or_default();
        match *self {
            Kind::Switch => "true or false".to_owned(),
            Kind::Bytes { .. } => format!("a size from {limits}"),
            Kind::Count { .. } => format!("a number from {limits}"),
            Kind::Seconds { .. } => format!("a duration from {limits}"),
            Kind::Cores => format!("'all' or a number from {limits}"),
            Kind::Seed => "a 64-bit number, decimal or 0x…".to_owned(),
            Kind::Choice(words) => words.join(", "),
            Kind::Set { words, .. } => format!("'all' or some of {}", words.join(",")),
            Kind::Path => "a path".to_owned(),
            Kind::Endpoint => "a path, or - for standard input or output".to_owned(),
            Kind::Word => "a word".to_owned(),
            Kind::List => "'none' or words separated by commas".to_owned(),
            Kind::Space => "a size, or a share of the disk from 0% to 99%".to_owned(),
            Kind::Time(_) => {
                "a time: 2026-01-31T12:00:00Z, 1769860800.5, or -15m before now".to_owned()
            }
        }
    }

    /// The unit, as the tables print it; empty if there is none.
    pub fn unit(&self) -> &'static str {
        match self {
            Kind::Bytes { .. } => "bytes",
            Kind::Seconds { .. } => "seconds",
            Kind::Cores => "threads",
            _ => "",
        }
    }

    /// The text that parses to `value`.
    pub fn show(&self, value: &Value) -> OsString {
        OsString::from(match (self, value) {
            (_, Value::Switch(on)) => on.to_string(),
            (Kind::Bytes { .. }, Value::Number(n)) => show_bytes(*n),
            (Kind::Seconds { .. }, Value::Number(n)) => show_seconds(*n),
            (Kind::Cores, Value::Number(0)) => "all".to_owned(),
            (Kind::Seed, Value::Number(n)) => format!("{n:#x}"),
            (_, Value::Number(n)) => n.to_string(),
            (_, Value::Choice(word)) => (*word).to_owned(),
            (_, Value::Space(Space::Bytes(bytes))) => show_bytes(*bytes),
            (_, Value::Space(Space::Percent(percent))) => format!("{percent}%"),
            (_, Value::Word(word) | Value::Time(_, word)) => word.clone(),
            (_, Value::Path(path)) => return path.clone().into_os_string(),
        })
    }
}

/// The number of worker threads for a value of [`Kind::Cores`]: that number, or all cores of the
/// machine.
pub fn cores(value: u64) -> usize {
    match usize::try_from(value) {
        Ok(0) | Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
        Ok(number) => number,
    }
}

/// A point in time, ns since 1970; `-15m` is before the machine's time.
fn parse_time(text: &str, read: fn(&[u8]) -> Option<i64>) -> Option<i64> {
    let Some(before) = text.strip_prefix('-') else { return read(text.as_bytes()) };
    let before_s = i64::try_from(SECONDS.parse(before).ok()?).ok()?;
    let now_ns = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as i64);
    Some(now_ns.saturating_sub(before_s.checked_mul(1_000_000_000)?))
}

fn parse_seed(text: &str) -> Option<u64> {
    let text = text.replace('_', "");
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::{GIB, KIB, MIB, TIB};

    fn number(kind: Kind, text: &str) -> Option<u64> {
        match kind.parse(OsStr::new(text)) {
            Ok(Value::Number(number)) => Some(number),
            _ => None,
        }
    }

    /// Sizes take binary and decimal suffixes, and refuse what is outside the range, overflows, or
    /// is no number.
    #[test]
    fn sizes_are_parsed_and_bounded() {
        let kind = Kind::Bytes { min: KIB, max: TIB };
        for (text, bytes) in [
            ("256MiB", 256 * MIB),
            ("256 mib", 256 * MIB),
            ("1G", GIB),
            ("1GB", 1_000_000_000),
            ("4096", 4096),
            ("1_024b", 1024),
            ("1.5GiB", 3 << 29),
            ("1.5 kb", 1_500),
            ("1.0000k", 1024),
        ] {
            assert_eq!(number(kind, text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "MiB",
            "-1",
            "1023",
            "2TiB",
            "99999999999999999999",
            "1x",
            "_",
            ".5G",
            "1.G",
            "1.5.1G",
            "1GiB512MiB",
            "1G 5",
            "1e3",
            "1.5_G_",
            "0.0000000000000000000000000000000000000000000001T",
        ] {
            assert_eq!(number(kind, text), None, "{text}");
        }
        let slip = |text| kind.parse(OsStr::new(text)).unwrap_err();
        assert!(
            slip("1024.5")
                .starts_with("not a whole number of bytes; expected a size from 1KiB to 1TiB")
        );
        assert!(slip("18446744073709551615T").starts_with("out of range; expected"));
        assert_eq!(number(kind, "18446744073709551615T"), None, "the product overflows");
    }

    /// Times are whole seconds, in any unit and in sums from the largest unit on. A finer time is
    /// refused, not rounded.
    #[test]
    fn times_are_whole_seconds() {
        let kind = Kind::Seconds { min: 1, max: 86_400 };
        assert_eq!(number(kind, "300s"), Some(300));
        assert_eq!(number(kind, "5m"), Some(300));
        assert_eq!(number(kind, "24h"), Some(86_400));
        assert_eq!(number(kind, "300"), Some(300));
        let week = Kind::Seconds { min: 0, max: 604_800 };
        for (text, seconds) in [
            ("1h30m", 5_400),
            ("1h 30m 5s", 5_405),
            ("1w", 604_800),
            ("6d23h59m60s", 604_800),
            ("1.5h", 5_400),
            ("0.5m", 30),
            ("2000ms", 2),
            ("1s1000ms", 2),
            ("1500ms500000us", 2),
            ("3000000us", 3),
            ("1H30M", 5_400),
            ("0.25", 0),
        ] {
            let expected = (text != "0.25").then_some(seconds);
            assert_eq!(number(week, text), expected, "{text}");
        }
        for text in ["30m1h", "1h1h", "1h30", "30 1h", "h", "1h-30m", "1 w 1", "2w", "1y", "1h30mm"]
        {
            assert_eq!(number(week, text), None, "{text}");
        }
        let slip = |text| week.parse(OsStr::new(text)).unwrap_err();
        assert_eq!(
            slip("500ms"),
            "not a whole number of seconds; expected a duration from 0s to 7d"
        );
        assert_eq!(
            slip("1.5s"),
            "not a whole number of seconds; expected a duration from 0s to 7d"
        );
        assert_eq!(
            slip("18446744073709551615w"),
            "out of range; expected a duration from 0s to 7d"
        );
        assert_eq!(number(kind, "0"), None);
        assert_eq!(number(kind, "2d"), None);
    }

    const SOURCES: Kind = Kind::Set { words: &["dns", "sni", "quic"], item: "name source" };

    /// A set is all or some of its words; a slip gets the nearest word.
    #[test]
    fn sets_are_of_known_words() {
        for text in ["all", "dns", " dns, sni,", "dns,all"] {
            assert!(SOURCES.parse(OsStr::new(text)).is_ok(), "{text}");
        }
        let error = SOURCES.parse(OsStr::new("dns,snni")).unwrap_err();
        assert!(
            error.starts_with("'snni' is not a name source; expected 'all' or some of"),
            "{error}"
        );
        assert!(error.contains("did you mean 'sni'"), "{error}");
        for text in ["", ","] {
            assert!(SOURCES.parse(OsStr::new(text)).is_err(), "no word at all is a slip");
        }
    }

    /// A time that is only its year.
    fn year(text: &[u8]) -> Option<i64> {
        std::str::from_utf8(text.get(..4)?).ok()?.parse().ok()
    }

    /// The output of `show` parses to the same value, so `show-config` can be used as a file.
    #[test]
    fn show_is_the_inverse_of_parse() {
        let any = u64::MAX;
        for (kind, text) in [
            (Kind::Switch, "true"),
            (Kind::Bytes { min: 0, max: any }, "256MiB"),
            (Kind::Bytes { min: 0, max: any }, "1000"),
            (Kind::Bytes { min: 0, max: any }, "3EiB"),
            (Kind::Count { min: 0, max: any }, "1M"),
            (Kind::Seconds { min: 0, max: any }, "5m"),
            (Kind::Cores, "all"),
            (Kind::Cores, "3"),
            (Kind::Seed, "0xdead_beef"),
            (Kind::Choice(&["text", "ecs"]), "ecs"),
            (SOURCES, "dns,sni"),
            (Kind::Endpoint, "-"),
            (Kind::Path, "-"),
            (Kind::Path, "a b"),
            (Kind::Space, "10GiB"),
            (Kind::Space, "5%"),
            (Kind::Time(year), "2026-01-31T12:00:00Z"),
        ] {
            let value = kind.parse(OsStr::new(text)).expect(text);
            assert_eq!(kind.parse(&kind.show(&value)).as_ref(), Ok(&value), "{text}");
        }
    }

    /// Space is a size or a part of the disk, which is never all of it.
    #[test]
    fn space_is_a_size_or_a_part() {
        let parse = |text: &str| Kind::Space.parse(OsStr::new(text)).ok();
        assert_eq!(parse("5 %"), Some(Value::Space(Space::Percent(5))));
        assert_eq!(parse("2G"), Some(Value::Space(Space::Bytes(2 * GIB))));
        for text in ["100%", "-1%", "%", "1.5%", "x", "", "5 %%"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    /// Paths need not be UTF-8; everything else must be.
    #[cfg(unix)]
    #[test]
    fn paths_may_hold_any_bytes() {
        use std::os::unix::ffi::OsStrExt;
        let odd = OsStr::from_bytes(b"cap\xff.pcap");
        assert!(Kind::Path.parse(odd).is_ok());
        assert!(Kind::Cores.parse(odd).is_err());
    }
}
