//! Reads times of logs exactly: integer arithmetic on digits, no floating point.
//!
//! Pure functions over text of any length, linear in it; text that is no time gives `None`.

use crate::civil::days_since_1970;
use crate::digits::{NS_PER_S, number};

/// Reads seconds with a decimal fraction (`1521911720.865716`) exactly, as ns; digits past the
/// ninth are dropped. Exponents, which JSON allows, give `None`: no log writes times so.
pub fn seconds_ns(text: &[u8]) -> Option<i64> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let dot = text.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = match dot {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &text[..0]),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = i64::try_from(number(whole)?).ok()?;
    let ns = seconds.checked_mul(NS_PER_S)?.checked_add(fraction_ns(fraction))?;
    Some(if negative { -ns } else { ns })
}

/// The value of decimal digits after the point, in ns.
fn fraction_ns(digits: &[u8]) -> i64 {
    let mut ns = 0;
    let mut unit = 100_000_000;
    for &digit in digits.iter().take(9) {
        ns += i64::from(digit - b'0') * unit;
        unit /= 10;
    }
    ns
}

/// Reads an ISO 8601 time as Zeek and Suricata write it (`2024-05-01T12:00:00.123456+0200`, `Z`,
/// `+02:00`, or no zone: UTC) as ns since 1970 UTC.
pub fn iso_ns(text: &[u8]) -> Option<i64> {
    let digits = |from: usize, to: usize| Some(number(text.get(from..to)?)? as i64);
    for (at, mark) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
        if text.get(at) != Some(&mark) {
            return None;
        }
    }
    let (year, month, day) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
    let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
    let in_range = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    if !in_range {
        return None;
    }
    let mut rest = &text[19..];
    let mut ns = 0;
    if let Some(after) = rest.strip_prefix(b".") {
        let len = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        ns = fraction_ns(&after[..len]);
        rest = &after[len..];
    }
    let zone_s = zone_seconds(rest)?;
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    (seconds - zone_s).checked_mul(NS_PER_S)?.checked_add(ns)
}

/// Seconds east of UTC of `Z`, `+hhmm`, `-hh:mm` or nothing.
fn zone_seconds(zone: &[u8]) -> Option<i64> {
    let (sign, digits) = match zone {
        [] | [b'Z'] => return Some(0),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits {
        [a, b, c, d] | [a, b, b':', c, d] => (number(&[*a, *b])?, number(&[*c, *d])?),
        _ => return None,
    };
    Some(sign * (hours * 3600 + minutes * 60) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Times are exact to the nanosecond; dates outside the calendar's form are refused.
    #[test]
    fn times_are_exact() {
        assert_eq!(seconds_ns(b"1521911720.865716"), Some(1_521_911_720_865_716_000));
        assert_eq!(seconds_ns(b"1.0000000019"), Some(1_000_000_001));
        assert_eq!(seconds_ns(b"-0.5"), Some(-500_000_000));
        assert_eq!(seconds_ns(b"7"), Some(7_000_000_000));
        for bad in [&b""[..], b"-", b".", b".5", b"1e9", b"1.2.3", b"99999999999", b"+1"] {
            assert_eq!(seconds_ns(bad), None, "{bad:?}");
        }
        // The day counts were taken from `date -u +%s`.
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:34:56", 951_827_696),
            ("2024-05-01T12:00:00.000000+0200", 1_714_557_600),
            ("2024-05-01T08:00:00-02:00", 1_714_557_600),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(iso_ns(text.as_bytes()), Some(seconds * 1_000_000_000), "{text}");
        }
        assert_eq!(iso_ns(b"2024-05-01T12:00:00.5Z"), Some(1_714_564_800_500_000_000));
        for bad in ["2024-13-01T00:00:00Z", "2024-05-01 12:00:00", "2024-05-01T12:00", "x"] {
            assert_eq!(iso_ns(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        /// No text makes a time parser panic.
        #[test]
        fn times_never_panic(text in proptest::collection::vec(any::<u8>(), 0..40), tail in ".*") {
            let _ = (seconds_ns(&text), iso_ns(&text));
            let _ = iso_ns(format!("9999-12-31T23:59:60{tail}").as_bytes());
        }
    }
}
