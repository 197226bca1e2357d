//! Numbers, times and addresses as ASCII, appended to a buffer.
//!
//! `core::fmt` does all of this too, at several times the cost: a record holds some thirty such
//! values, and the formats are to write a million records a second on one core. Everything here
//! takes constant time and allocates nothing but the growth of the buffer. The standard library is
//! the oracle in the tests.

use larder_wire::Addr;

/// `00` to `99`: two digits for one division.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// `0.` to `255.`, each filled up with spaces, and how long it is.
const OCTETS: [([u8; 4], u8); 256] = {
    let mut octets = [([b' '; 4], 0); 256];
    let mut n = 0;
    while n < 256 {
        let (digits, len) = left(n as u16);
        let (mut text, len) = ([digits[0], digits[1], digits[2], digits[3]], len + 1);
        text[len - 1] = b'.';
        octets[n] = (text, len as u8);
        n += 1;
    }
    octets
};

/// A number filled up with spaces, and how many digits it has.
pub(crate) const fn left(n: u16) -> ([u8; 8], usize) {
    let (high, low) = (PAIRS[(n / 100 % 100) as usize], PAIRS[(n % 100) as usize]);
    let first = b'0' + (n / 10_000) as u8;
    let digits = u64::from_le_bytes([first, high[0], high[1], low[0], low[1], b' ', b' ', b' ']);
    // Shifts, since how long a port or an octet is can't be predicted.
    let len = 1 + (n > 9) as usize + (n > 99) as usize + (n > 999) as usize + (n > 9_999) as usize;
    let zeros = 8 * (5 - len) as u32;
    let spaces = u64::from_le_bytes([b' '; 8]);
    (((digits >> zeros) | (spaces & !(u64::MAX >> zeros))).to_le_bytes(), len)
}

/// A value that is written from its end: spaces stand before it.
pub(crate) struct Right {
    octets: [u8; Right::BYTES],
    at: usize,
}

impl Right {
    /// Room for any number, and a few octets more.
    pub const BYTES: usize = 24;

    /// Nothing yet.
    pub fn new() -> Right {
        Right { octets: [b' '; Right::BYTES], at: Right::BYTES }
    }

    /// Puts an octet in front.
    #[inline]
    pub fn octet(&mut self, octet: u8) {
        self.at -= 1;
        self.octets[self.at] = octet;
    }

    /// Puts a number in front.
    #[inline]
    pub fn number(&mut self, mut n: u64) {
        while n >= 100 {
            self.pair(PAIRS[(n % 100) as usize]);
            n /= 100;
        }
        match n {
            0..10 => self.octet(b'0' + n as u8),
            _ => self.pair(PAIRS[n as usize]),
        }
    }

    #[inline]
    fn pair(&mut self, pair: [u8; 2]) {
        self.at -= 2;
        self.octets[self.at..self.at + 2].copy_from_slice(&pair);
    }

    /// Seconds, cut after three digits.
    pub fn milliseconds(&mut self, ns: i64) {
        let ms = ns.unsigned_abs() / 1_000_000;
        self.pair(PAIRS[(ms % 100) as usize]);
        self.octet(b'0' + (ms / 100 % 10) as u8);
        self.octet(b'.');
        self.number(ms / 1000);
        if ns < 0 {
            self.octet(b'-');
        }
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        &self.octets[self.at..]
    }

    /// The value with spaces before it, as all.
    pub fn octets(&self) -> &[u8; Right::BYTES] {
        &self.octets
    }
}

const NS_PER_S: i64 = 1_000_000_000;
const S_PER_DAY: i64 = 86_400;

/// Appends `n` in decimal.
pub(crate) fn write_u64(n: u64, out: &mut Vec<u8>) {
    let mut right = Right::new();
    right.number(n);
    out.extend_from_slice(right.value());
}

/// Two digits.
#[inline]
fn pair(n: u32) -> [u8; 2] {
    PAIRS[(n % 100) as usize]
}

/// Nine digits, leading zeros included.
#[inline]
fn nine(n: u32) -> [u8; 9] {
    let ([a, b], [c, d]) = (pair(n / 10_000_000), pair(n / 100_000));
    let ([e, f], [g, h]) = (pair(n / 1_000), pair(n / 10));
    [a, b, c, d, e, f, g, h, b'0' + (n % 10) as u8]
}

/// A civil date and time in UTC.
struct Civil {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
    nanosecond: u32,
}

impl Civil {
    /// From ns since 1970, in the proleptic Gregorian calendar; an `i64` reaches from 1677 to 2262.
    ///
    /// Years are counted from 1 March, so that the leap day is the last of its year, in eras of
    /// 400 years, which all have 146,097 days.
    fn from_ns(ns: i64) -> Civil {
        const DAYS_PER_ERA: i64 = 146_097;
        const DAYS_TO_1970: i64 = 719_468; // from 1 March of the year 0

        let seconds = ns.div_euclid(NS_PER_S);
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
            nanosecond: ns.rem_euclid(NS_PER_S) as u32,
        }
    }

    /// `2024-01-02T03:04:05.123456789Z`
    fn rfc3339(&self) -> [u8; 30] {
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
}

/// Appends a time as RFC 3339 in UTC with nanoseconds: `2024-01-02T03:04:05.123456789Z`.
pub(crate) fn write_time_ns(ns: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&Civil::from_ns(ns).rfc3339());
}

/// A time as RFC 3339 in UTC with milliseconds: `2024-01-02T03:04:05.123Z`.
pub(crate) fn time_ms(ns: i64) -> [u8; 24] {
    let text = Civil::from_ns(ns).rfc3339();
    let mut short = [b'Z'; 24];
    short[..23].copy_from_slice(&text[..23]);
    short
}

/// Appends a time as Zeek's `#open` has it, in UTC: `2024-01-02-03-04-05`.
pub(crate) fn write_time_dashed(ns: i64, out: &mut Vec<u8>) {
    let text = Civil::from_ns(ns).rfc3339();
    out.extend(text[..19].iter().map(|&octet| if octet.is_ascii_digit() { octet } else { b'-' }));
}

/// Appends ns as seconds, cut (not rounded) after `decimals` digits, at most 9: `12.345`.
pub(crate) fn write_seconds(ns: i64, decimals: usize, out: &mut Vec<u8>) {
    if ns < 0 {
        out.push(b'-');
    }
    let ns = ns.unsigned_abs();
    write_u64(ns / NS_PER_S as u64, out);
    out.push(b'.');
    out.extend_from_slice(&nine((ns % NS_PER_S as u64) as u32)[..decimals]);
}

/// Appends an address: dotted for IPv4, RFC 5952 for IPv6.
pub(crate) fn write_addr(addr: Addr, out: &mut Vec<u8>) {
    match addr.octets().first_chunk::<4>() {
        Some(octets) if addr.is_v4() => {
            let (text, len) = v4(octets);
            out.extend_from_slice(&text[..len]);
        }
        _ => write_v6(&addr.0, out),
    }
}

/// An IPv4 address filled up with spaces, and how long it is.
pub(crate) fn v4(octets: &[u8; 4]) -> ([u8; 16], usize) {
    let mut text = [b' '; 16];
    let mut len = 0;
    for &octet in octets {
        let (digits, digits_len) = OCTETS[usize::from(octet)];
        text[len..len + 4].copy_from_slice(&digits);
        len += usize::from(digits_len);
    }
    // No dot behind the last.
    text[len - 1] = b' ';
    (text, len - 1)
}

fn write_v6(octets: &[u8; 16], out: &mut Vec<u8>) {
    let mut groups = [0u16; 8];
    for (group, pair) in groups.iter_mut().zip(octets.chunks_exact(2)) {
        *group = u16::from_be_bytes([pair[0], pair[1]]);
    }
    let (gap, gap_len) = longest_zeros(&groups);
    let mut i = 0;
    while i < groups.len() {
        if i == gap && gap_len >= 2 {
            out.extend_from_slice(b"::");
            i += gap_len;
            continue;
        }
        if i > 0 && !(gap_len >= 2 && i == gap + gap_len) {
            out.push(b':');
        }
        write_hex(groups[i], out);
        i += 1;
    }
}

/// Start and length of the first longest run of zero groups.
fn longest_zeros(groups: &[u16; 8]) -> (usize, usize) {
    let mut longest = (0, 0);
    let mut len = 0;
    for (i, &group) in groups.iter().enumerate() {
        len = if group == 0 { len + 1 } else { 0 };
        if len > longest.1 {
            longest = (i + 1 - len, len);
        }
    }
    longest
}

/// Appends a group in lower-case hexadecimal without leading zeros.
fn write_hex(group: u16, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digits = [12, 8, 4, 0].map(|shift| HEX[usize::from(group >> shift & 15)]);
    let zeros = (group.leading_zeros() / 4).min(3) as usize;
    out.extend_from_slice(&digits[zeros..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    /// Times are right at the edges that calendars trip over; the expected text is `date -u`'s.
    #[test]
    fn times_at_the_edges() {
        for (ns, expected) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000000000Z"),
            (1_704_164_645_123_456_789, "2024-01-02T03:04:05.123456789Z"),
            (1_709_251_199_000_000_001, "2024-02-29T23:59:59.000000001Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000000Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
        ] {
            assert_eq!(text(|out| write_time_ns(ns, out)), expected);
        }
        assert_eq!(&time_ms(1_704_164_645_123_999_999), b"2024-01-02T03:04:05.123Z");
        assert_eq!(text(|out| write_time_dashed(1_704_164_645_000_000_000, out)), {
            "2024-01-02-03-04-05"
        });
    }

    /// Every day from 1677 to 2262 follows the one before by the rule that children learn.
    #[test]
    fn days_follow_one_another() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..106_000 {
            let civil = Civil::from_ns(days * S_PER_DAY * NS_PER_S);
            assert_eq!((civil.year, civil.month, civil.day), (year, month, day));
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

    /// Seconds are cut, never rounded up to a time that has not come.
    #[test]
    fn seconds() {
        assert_eq!(text(|out| write_seconds(12_345_678_901, 6, out)), "12.345678");
        assert_eq!(text(|out| write_seconds(999_999_999, 3, out)), "0.999");
        assert_eq!(text(|out| write_seconds(-1_500_000_000, 6, out)), "-1.500000");
        assert_eq!(text(|out| write_seconds(i64::MIN, 9, out)), "-9223372036.854775808");
    }

    proptest! {
        /// Short numbers and those written from their end are filled up with spaces alone.
        #[test]
        fn fill(n in any::<u16>(), ms in any::<u32>(), octets in any::<[u8; 4]>()) {
            let (digits, len) = left(n);
            prop_assert_eq!(String::from_utf8_lossy(&digits), format!("{n:<8}"));
            prop_assert_eq!(len, n.to_string().len());
            let (text, len) = v4(&octets);
            let expected = std::net::Ipv4Addr::from(octets).to_string();
            prop_assert_eq!(String::from_utf8_lossy(&text), format!("{expected:<16}"));
            prop_assert_eq!(len, expected.len());
            let mut right = Right::new();
            right.milliseconds(i64::from(ms) * 1_000_000 + 999_999);
            let expected = format!("{}.{:03}", ms / 1000, ms % 1000);
            prop_assert_eq!(String::from_utf8_lossy(right.octets()), format!("{expected:>24}"));
        }

        /// Numbers read as the standard library writes them.
        #[test]
        fn numbers(n in any::<u64>(), shift in 0u32..64) {
            let n = n >> shift;
            prop_assert_eq!(text(|out| write_u64(n, out)), n.to_string());
        }

        /// Addresses read as the standard library writes them, whatever groups are zero.
        #[test]
        fn addresses(octets in any::<[u8; 16]>(), zeros in any::<u8>(), v4 in any::<bool>()) {
            let mut octets = octets;
            for group in (0..8).filter(|group| zeros >> group & 1 == 1) {
                octets[group * 2..group * 2 + 2].fill(0);
            }
            let addr = match octets.first_chunk::<4>() {
                Some(four) if v4 => Addr::v4(*four),
                _ => Addr::v6(octets),
            };
            prop_assert_eq!(text(|out| write_addr(addr, out)), addr.to_string());
        }
    }
}
