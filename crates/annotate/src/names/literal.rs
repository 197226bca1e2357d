//! Names that are addresses. Anyone can call a host `10.0.0.99`, and a log that printed it would be
//! wrong about the ends of a flow. So such names are not learned.

use std::net::Ipv6Addr;

/// Longest text of an address that is examined: brackets around 45 characters of IPv6.
const TEXT_BYTES_MAX: usize = 64;

/// True when `name` (canonical, see [`larder_wire::Name`]) reads as an IP address: its last label is
/// a number, decimal or hexadecimal, as programs take for IPv4 in one to four parts (no top-level
/// domain is a number); or it is the text of an IPv6 address, also in brackets or with a zone.
pub fn is_address(name: &[u8]) -> bool {
    // The first and last byte decide for half of all names: no number has the last byte, no IPv6
    // address the first.
    let [first, last] = [name.first(), name.last()].map(|byte| byte.copied().unwrap_or(b'g'));
    if matches!(first, b'g'..=b'z') && matches!(last, b'g'..=b'w' | b'y' | b'z') {
        return false;
    }
    ends_in_number(name) || (may_be_v6(name) && is_v6(name))
}

fn ends_in_number(name: &[u8]) -> bool {
    let name = name.strip_suffix(b".").unwrap_or(name);
    // From the back: most names end in a letter that no number has.
    let is_of_number = |byte: &&u8| byte.is_ascii_hexdigit() || matches!(byte, b'x' | b'X');
    let label_len = name.iter().rev().take_while(is_of_number).count();
    let (before, label) = name.split_at(name.len() - label_len);
    if !before.is_empty() && !before.ends_with(b".") {
        return false;
    }
    match label {
        [] => false,
        [b'0', b'x' | b'X', digits @ ..] => digits.iter().all(u8::is_ascii_hexdigit),
        digits => digits.iter().all(u8::is_ascii_digit),
    }
}

/// False for most names at their first or second letter: an IPv6 address has at most four digits
/// before the first colon.
fn may_be_v6(name: &[u8]) -> bool {
    let mut start = name.iter().filter(|byte| !is_around_v6(**byte)).take(5);
    start.find(|byte| !byte.is_ascii_hexdigit()) == Some(&b':')
}

/// Brackets, and a dot within a label has a backslash before it: `::ffff:10\.0\.0\.99`.
fn is_around_v6(byte: u8) -> bool {
    matches!(byte, b'\\' | b'[' | b']')
}

fn is_v6(name: &[u8]) -> bool {
    let mut text = [0; TEXT_BYTES_MAX];
    let mut len = 0;
    for &byte in name.iter().filter(|byte| !is_around_v6(**byte)) {
        if byte == b'%' {
            break;
        }
        let Some(place) = text.get_mut(len) else { return false };
        *place = byte;
        len += 1;
    }
    std::str::from_utf8(&text[..len]).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every spelling that programs read as an address is recognized, and names that only look
    /// similar are names.
    #[test]
    fn addresses_are_no_names() {
        let addresses: [&[u8]; 13] = [
            b"10.0.0.99",
            b"10.0.0.99.",
            br"10\.0\.0\.99",
            b"127.1",
            b"2130706433",
            b"0x7f000001",
            b"0x7f.0.0.0x1",
            b"1.2.3.4.5",
            b"fe80::1",
            b"::ffff:10.0.0.99",
            br"::ffff:10\.0\.0\.99",
            b"[2001:db8::1]",
            b"fe80::1%eth0",
        ];
        for address in addresses {
            assert!(is_address(address), "{}", address.escape_ascii());
        }
        let names: [&[u8]; 15] = [
            b"",
            b".",
            b"www.example.com",
            b"99.0.0.10.in-addr.arpa",
            b"10.0.0.99.local",
            b"host99",
            b"0xg",
            b"a:b",
            b"x.1a",
            b"cafe.de",
            b"x.0y",
            b"a..",
            b"12345::1",
            b"fe80:example",
            br"a\.b",
        ];
        for name in names {
            assert!(!is_address(name), "{}", name.escape_ascii());
        }
    }
}
