//! Numbers and addresses as ASCII, appended to a buffer.
//!
//! `core::fmt` does all of this too, at several times the cost. A record has some thirty such
//! values, and the formats must write a million records a second on one core. Each function takes
//! constant time, and only the growth of the buffer allocates. The tests compare with the standard
//! library.

use crate::Addr;

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
const BYTES: [([u8; 4], u8); 256] = {
    let mut bytes = [([b' '; 4], 0); 256];
    let mut n = 0;
    while n < 256 {
        let (digits, len) = left(n as u16);
        let (mut text, len) = ([digits[0], digits[1], digits[2], digits[3]], len + 1);
        text[len - 1] = b'.';
        bytes[n] = (text, len as u8);
        n += 1;
    }
    bytes
};

/// A number filled up with spaces, and how many digits it has.
pub const fn left(n: u16) -> ([u8; 8], usize) {
    let (high, low) = (PAIRS[(n / 100 % 100) as usize], PAIRS[(n % 100) as usize]);
    let first = b'0' + (n / 10_000) as u8;
    let digits = u64::from_le_bytes([first, high[0], high[1], low[0], low[1], b' ', b' ', b' ']);
    // Shifts, since how long a port or a byte is can't be predicted.
    let len = 1 + (n > 9) as usize + (n > 99) as usize + (n > 999) as usize + (n > 9_999) as usize;
    let zeros = 8 * (5 - len) as u32;
    let spaces = u64::from_le_bytes([b' '; 8]);
    (((digits >> zeros) | (spaces & !(u64::MAX >> zeros))).to_le_bytes(), len)
}

/// A value that is written from its end, with spaces before it.
#[derive(Debug)]
pub struct Right {
    bytes: [u8; Right::BYTES],
    at: usize,
}

impl Default for Right {
    fn default() -> Right {
        Right::new()
    }
}

impl Right {
    /// Room for any number, and a few bytes more.
    pub const BYTES: usize = 24;

    /// Nothing yet.
    pub fn new() -> Right {
        Right { bytes: [b' '; Right::BYTES], at: Right::BYTES }
    }

    /// Puts a byte in front.
    #[inline]
    pub fn byte(&mut self, byte: u8) {
        self.at -= 1;
        self.bytes[self.at] = byte;
    }

    /// Puts a number in front.
    #[inline]
    pub fn number(&mut self, mut n: u64) {
        while n >= 100 {
            self.pair(PAIRS[(n % 100) as usize]);
            n /= 100;
        }
        match n {
            0..10 => self.byte(b'0' + n as u8),
            _ => self.pair(PAIRS[n as usize]),
        }
    }

    #[inline]
    fn pair(&mut self, pair: [u8; 2]) {
        self.at -= 2;
        self.bytes[self.at..self.at + 2].copy_from_slice(&pair);
    }

    /// Seconds, cut after three digits.
    pub fn milliseconds(&mut self, ns: i64) {
        let ms = ns.unsigned_abs() / 1_000_000;
        self.pair(PAIRS[(ms % 100) as usize]);
        self.byte(b'0' + (ms / 100 % 10) as u8);
        self.byte(b'.');
        self.number(ms / 1000);
        if ns < 0 {
            self.byte(b'-');
        }
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// The value with spaces before it, as all.
    pub fn bytes(&self) -> &[u8; Right::BYTES] {
        &self.bytes
    }
}

pub(crate) const NS_PER_S: i64 = 1_000_000_000;

/// Appends `n` in decimal.
pub fn write_u64(n: u64, out: &mut Vec<u8>) {
    let mut right = Right::new();
    right.number(n);
    out.extend_from_slice(right.value());
}

/// A decimal number and nothing else; `None` also past 64 bits.
#[inline]
pub fn number(text: &[u8]) -> Option<u64> {
    // Nineteen digits always fit.
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let mut number = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(number)
}

/// Two digits.
#[inline]
pub(crate) fn pair(n: u32) -> [u8; 2] {
    PAIRS[(n % 100) as usize]
}

/// Nine digits, leading zeros included.
#[inline]
pub(crate) fn nine(n: u32) -> [u8; 9] {
    let ([a, b], [c, d]) = (pair(n / 10_000_000), pair(n / 100_000));
    let ([e, f], [g, h]) = (pair(n / 1_000), pair(n / 10));
    [a, b, c, d, e, f, g, h, b'0' + (n % 10) as u8]
}

/// Appends ns as seconds, cut (not rounded) after `decimals` digits, at most 9: `12.345`.
pub fn write_seconds(ns: i64, decimals: usize, out: &mut Vec<u8>) {
    if ns < 0 {
        out.push(b'-');
    }
    let ns = ns.unsigned_abs();
    write_u64(ns / NS_PER_S as u64, out);
    out.push(b'.');
    out.extend_from_slice(&nine((ns % NS_PER_S as u64) as u32)[..decimals]);
}

/// Appends an address: dotted for IPv4, RFC 5952 for IPv6.
pub fn write_addr(addr: Addr, out: &mut Vec<u8>) {
    match addr.octets().first_chunk::<4>() {
        Some(bytes) if addr.is_v4() => {
            let (text, len) = v4(bytes);
            out.extend_from_slice(&text[..len]);
        }
        _ => write_v6(&addr.0, out),
    }
}

/// An IPv4 address filled up with spaces, and how long it is.
pub fn v4(bytes: &[u8; 4]) -> ([u8; 16], usize) {
    let mut text = [b' '; 16];
    let mut len = 0;
    for &byte in bytes {
        let (digits, digits_len) = BYTES[usize::from(byte)];
        text[len..len + 4].copy_from_slice(&digits);
        len += usize::from(digits_len);
    }
    // No dot behind the last.
    text[len - 1] = b' ';
    (text, len - 1)
}

fn write_v6(bytes: &[u8; 16], out: &mut Vec<u8>) {
    let mut groups = [0u16; 8];
    for (group, pair) in groups.iter_mut().zip(bytes.chunks_exact(2)) {
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

    /// Seconds are truncated, never rounded up to a time in the future.
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
        fn fill(n in any::<u16>(), ms in any::<u32>(), bytes in any::<[u8; 4]>()) {
            let (digits, len) = left(n);
            prop_assert_eq!(String::from_utf8_lossy(&digits), format!("{n:<8}"));
            prop_assert_eq!(len, n.to_string().len());
            let (text, len) = v4(&bytes);
            let expected = std::net::Ipv4Addr::from(bytes).to_string();
            prop_assert_eq!(String::from_utf8_lossy(&text), format!("{expected:<16}"));
            prop_assert_eq!(len, expected.len());
            let mut right = Right::new();
            right.milliseconds(i64::from(ms) * 1_000_000 + 999_999);
            let expected = format!("{}.{:03}", ms / 1000, ms % 1000);
            prop_assert_eq!(String::from_utf8_lossy(right.bytes()), format!("{expected:>24}"));
        }

        /// Numbers read as the standard library writes them.
        #[test]
        fn numbers(n in any::<u64>(), shift in 0u32..64) {
            let n = n >> shift;
            prop_assert_eq!(text(|out| write_u64(n, out)), n.to_string());
        }

        /// Addresses are written as the standard library writes them, whichever groups are zero.
        #[test]
        fn addresses(bytes in any::<[u8; 16]>(), zeros in any::<u8>(), v4 in any::<bool>()) {
            let mut bytes = bytes;
            for group in (0..8).filter(|group| zeros >> group & 1 == 1) {
                bytes[group * 2..group * 2 + 2].fill(0);
            }
            let addr = match bytes.first_chunk::<4>() {
                Some(four) if v4 => Addr::v4(*four),
                _ => Addr::v6(bytes),
            };
            prop_assert_eq!(text(|out| write_addr(addr, out)), addr.to_string());
        }
    }
}
