//! Numbers with units: sizes, counts, times.
//!
//! `digits[.digits][suffix]`, with `_` among digits; times also as sums, `1h30m`. Values are exact:
//! a value that is not a whole number of units is refused, and nothing overflows.

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const TIB: u64 = 1 << 40;
pub const PIB: u64 = 1 << 50;
pub const EIB: u64 = 1 << 60;

/// Suffixes of sizes, lower case. A single letter is binary, as in `split` and `dd`.
const BYTE_SUFFIXES: [(&str, u64); 20] = [
    ("", 1),
    ("b", 1),
    ("k", KIB),
    ("kib", KIB),
    ("kb", 1_000),
    ("m", MIB),
    ("mib", MIB),
    ("mb", 1_000_000),
    ("g", GIB),
    ("gib", GIB),
    ("gb", 1_000_000_000),
    ("t", TIB),
    ("tib", TIB),
    ("tb", 1_000_000_000_000),
    ("p", PIB),
    ("pib", PIB),
    ("pb", 1_000_000_000_000_000),
    ("e", EIB),
    ("eib", EIB),
    ("eb", 1_000_000_000_000_000_000),
];

const COUNT_SUFFIXES: [(&str, u64); 4] =
    [("", 1), ("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000)];

/// Suffixes of times, in microseconds.
const TIME_SUFFIXES: [(&str, u64); 8] = [
    ("", SECOND_US),
    ("us", 1),
    ("ms", 1_000),
    ("s", SECOND_US),
    ("m", 60 * SECOND_US),
    ("h", 3_600 * SECOND_US),
    ("d", 86_400 * SECOND_US),
    ("w", 604_800 * SECOND_US),
];

const SECOND_US: u64 = 1_000_000;

/// How numbers of a kind are written.
pub struct Scale {
    suffixes: &'static [(&'static str, u64)],
    /// The unit of the value, in units of the suffixes.
    unit: u64,
    /// The text after "not a whole number", for a value that is too fine.
    whole: &'static str,
    /// Several terms make a sum: `1h30m`.
    adds: bool,
}

/// Sizes in bytes.
pub const BYTES: Scale =
    Scale { suffixes: &BYTE_SUFFIXES, unit: 1, whole: " of bytes", adds: false };
/// Plain counts.
pub const COUNTS: Scale = Scale { suffixes: &COUNT_SUFFIXES, unit: 1, whole: "", adds: false };
/// Times in whole seconds.
pub const SECONDS: Scale =
    Scale { suffixes: &TIME_SUFFIXES, unit: SECOND_US, whole: " of seconds", adds: true };

/// Why a scaled number is refused.
pub enum Slip {
    /// It is not written as numbers are.
    Form,
    /// It is no whole number of units.
    TooFine(&'static str),
    /// It is beyond 64 bits.
    TooLarge,
}

impl Scale {
    /// Reads a number. Where terms add up, several of them, each with a suffix, from the largest
    /// unit to the smallest.
    pub fn parse(&self, text: &str) -> Result<u64, Slip> {
        let (mut rest, mut sum, mut before) = (text, 0u64, u64::MAX);
        loop {
            let (number, scale, has_suffix, after) = self.term(rest)?;
            let is_only = rest.len() == text.len() && after.is_empty();
            let is_next = self.adds && has_suffix && scale < before;
            if !(is_only || is_next) {
                return Err(Slip::Form);
            }
            sum = sum.checked_add(number).ok_or(Slip::TooLarge)?;
            if after.is_empty() {
                break;
            }
            (rest, before) = (after, scale);
        }
        match sum % self.unit {
            0 => Ok(sum / self.unit),
            _ => Err(Slip::TooFine(self.whole)),
        }
    }

    /// The first term of `text`: its number in the smallest unit, its scale, whether it has a
    /// suffix, and the text behind it.
    fn term<'t>(&self, text: &'t str) -> Result<(u64, u64, bool, &'t str), Slip> {
        let end = |text: &str, is_in: &dyn Fn(char) -> bool| {
            text.find(|c: char| !is_in(c)).unwrap_or(text.len())
        };
        let is_digit = |c: char| c.is_ascii_digit() || c == '_';
        let (whole, rest) = text.split_at(end(text, &is_digit));
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(end(rest, &is_digit)),
            None => ("", rest),
        };
        let has_point = whole.len() + fraction.len() < text.len() - rest.len();
        let (whole, fraction) = (whole.replace('_', ""), fraction.replace('_', ""));
        if whole.is_empty() || (has_point && fraction.is_empty()) {
            return Err(Slip::Form);
        }
        let rest = rest.trim_start();
        let (suffix, rest) = rest.split_at(end(rest, &|c| c.is_ascii_alphabetic()));
        let suffix = suffix.to_ascii_lowercase();
        let known = self.suffixes.iter().find(|(word, _)| *word == suffix);
        let scale = known.ok_or(Slip::Form)?.1;
        // 10 to the power of the digits behind the point.
        let fraction = fraction.trim_end_matches('0');
        let parts = 10u128.checked_pow(fraction.len() as u32).ok_or(Slip::TooFine(self.whole))?;
        let digits = format!("{whole}{fraction}");
        let digits: u128 = digits.parse().map_err(|_| Slip::TooLarge)?;
        let scaled = digits.checked_mul(scale.into()).ok_or(Slip::TooLarge)?;
        if !scaled.is_multiple_of(parts) {
            return Err(Slip::TooFine(self.whole));
        }
        let number = u64::try_from(scaled / parts).map_err(|_| Slip::TooLarge)?;
        Ok((number, scale, !suffix.is_empty(), rest.trim_start()))
    }
}

/// A size with the largest unit that divides it: 268435456 is `256MiB`.
pub fn show_bytes(bytes: u64) -> String {
    let units = [EIB, PIB, TIB, GIB, MIB, KIB];
    for (unit, name) in units.into_iter().zip(["EiB", "PiB", "TiB", "GiB", "MiB", "KiB"]) {
        if bytes != 0 && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    bytes.to_string()
}

/// A time with the largest unit that divides it: 604800 is `7d`.
pub fn show_seconds(seconds: u64) -> String {
    for (unit, name) in [(86_400, "d"), (3_600, "h"), (60, "m")] {
        if seconds != 0 && seconds.is_multiple_of(unit) {
            return format!("{}{name}", seconds / unit);
        }
    }
    format!("{seconds}s")
}
