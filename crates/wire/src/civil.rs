//! Dates and times of day in UTC, as all logs write and read them.
//!
//! Integer arithmetic in the proleptic Gregorian calendar, and text of a fixed length: a record of
//! a flow has such a time, and the formats are to write a million records a second on one core.
//! That is why this is no calendar of a library; the libraries' are for zones and spans, which no
//! log needs.

use std::fmt::{self, Write};

use crate::digits::{NS_PER_S, nine, pair};

const S_PER_DAY: i64 = 86_400;
/// The calendar repeats after 400 years.
const DAYS_PER_ERA: i64 = 146_097;
/// From 1 March of the year 0.
const DAYS_TO_1970: i64 = 719_468;

/// The months as HTTP and its logs write them.
pub const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A date and time of day in UTC. As text it is RFC 3339, with the decimals of the format's
/// precision: `{:.3}` is `2024-01-02T03:04:05.123Z`; without one there are nine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// Year; text has its last four digits.
    pub year: u32,
    /// From 1.
    pub month: u32,
    /// From 1.
    pub day: u32,
    /// From 0.
    pub hour: u32,
    /// From 0.
    pub minute: u32,
    /// From 0.
    pub second: u32,
    /// From 0.
    pub nanosecond: u32,
}

impl Civil {
    /// From ns since 1970; an `i64` reaches from 1677 to 2262.
    #[inline]
    pub fn from_ns(ns: i64) -> Civil {
        Civil::at(ns.div_euclid(NS_PER_S), ns.rem_euclid(NS_PER_S) as u32)
    }

    /// From seconds since 1970 and nanoseconds of the next.
    ///
    /// Years are counted from 1 March, so that the leap day is the last of its year, in eras of
    /// 400 years.
    #[inline]
    pub fn at(seconds: i64, nanosecond: u32) -> Civil {
        let days = seconds.div_euclid(S_PER_DAY) + DAYS_TO_1970;
        let era = days.div_euclid(DAYS_PER_ERA);
        let day_of_era = days.rem_euclid(DAYS_PER_ERA);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = (month_from_march + 2) % 12 + 1;
        let second_of_day = seconds.rem_euclid(S_PER_DAY) as u32;
        Civil {
            year: (era * 400 + year_of_era + i64::from(month <= 2)) as u32,
            month: month as u32,
            day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
            nanosecond,
        }
    }

    /// `2024-01-02T03:04:05.123456789Z`
    #[inline]
    pub fn rfc3339(&self) -> [u8; 30] {
        let mut text = *b"0000-00-00T00:00:00.000000000Z";
        text[..2].copy_from_slice(&pair(self.year / 100));
        text[2..4].copy_from_slice(&pair(self.year));
        text[5..7].copy_from_slice(&pair(self.month));
        text[8..10].copy_from_slice(&pair(self.day));
        text[11..13].copy_from_slice(&pair(self.hour));
        text[14..16].copy_from_slice(&pair(self.minute));
        text[17..19].copy_from_slice(&pair(self.second));
        text[20..29].copy_from_slice(&nine(self.nanosecond));
        text
    }

    /// The same with milliseconds: `2024-01-02T03:04:05.123Z`
    #[inline]
    pub fn rfc3339_ms(&self) -> [u8; 24] {
        let mut short = [b'Z'; 24];
        short[..23].copy_from_slice(&self.rfc3339()[..23]);
        short
    }
}

impl fmt::Display for Civil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match f.precision() {
            Some(0) => 19,
            decimals => 20 + decimals.unwrap_or(9).min(9),
        };
        f.write_str(std::str::from_utf8(&self.rfc3339()[..end]).map_err(|_| fmt::Error)?)?;
        f.write_char('Z')
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. A day or month out of range counts on.
pub fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
        - DAYS_TO_1970
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times are right at the edges that calendars trip over; the expected text is `date -u`'s.
    #[test]
    fn times_at_the_edges() {
        for (ns, expected) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000000000Z"),
            (1_704_164_645_123_456_789, "2024-01-02T03:04:05.123456789Z"),
            (1_709_251_199_000_000_001, "2024-02-29T23:59:59.000000001Z"),
            (4_107_542_399_000_000_000, "2100-02-28T23:59:59.000000000Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000000Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
        ] {
            assert_eq!(Civil::from_ns(ns).to_string(), expected);
        }
        let civil = Civil::from_ns(1_704_164_645_123_999_999);
        assert_eq!(&civil.rfc3339_ms(), b"2024-01-02T03:04:05.123Z");
        assert_eq!(format!("{civil:.6}"), "2024-01-02T03:04:05.123999Z");
        assert_eq!(format!("{civil:.0}"), "2024-01-02T03:04:05Z");
        assert_eq!(format!("{civil:.99}"), civil.to_string());
    }

    /// Every day from 1970 on for a thousand years follows the one before by the rule that children
    /// learn, and is counted back.
    #[test]
    fn days_follow_one_another() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..366_000 {
            let civil = Civil::at(days * S_PER_DAY + 1, 0);
            assert_eq!((civil.year, civil.month, civil.day), (year, month, day));
            assert_eq!(days_since_1970(year.into(), month.into(), day.into()), days);
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + u32::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }
}
