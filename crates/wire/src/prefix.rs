//! Networks, as operators write them: `192.0.2.0/24`, `2001:db8::/32`, or one address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network: IPv4 addresses are apart from IPv6 ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    is_v6: bool,
    first: u128,
    /// Leading bits that its addresses share.
    bits: u8,
}

/// The text is no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPrefix {
    /// The text before the slash is no address.
    Address,
    /// The text after it is no prefix length of the address.
    Bits,
    /// The address has bits set after those of the network.
    Rest,
}

impl NoPrefix {
    /// What to write instead.
    pub const fn as_str(self) -> &'static str {
        match self {
            NoPrefix::Address => "write a network as 192.0.2.0/24 or 2001:db8::/32",
            NoPrefix::Bits => "a network has at most 32 bits, or 128 of IPv6",
            NoPrefix::Rest => "the address has bits set after those of the network",
        }
    }
}

/// Family, number and bits of an address. An IPv4 address within IPv6 is the former.
#[inline]
pub fn number(address: IpAddr) -> (bool, u128, u8) {
    family(address.to_canonical())
}

#[inline]
fn family(address: IpAddr) -> (bool, u128, u8) {
    match address {
        IpAddr::V4(v4) => (false, v4.to_bits().into(), 32),
        IpAddr::V6(v6) => (true, v6.to_bits(), 128),
    }
}

/// An address in the form that `form` gives it, and its network.
fn read(text: &str, form: fn(&IpAddr) -> IpAddr) -> Result<(IpAddr, Prefix), NoPrefix> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address = form(&address.parse().map_err(|_| NoPrefix::Address)?);
    let bits_max = family(address).2;
    match bits.map_or(Ok(bits_max), str::parse) {
        Ok(bits) if bits <= bits_max => Ok((address, Prefix::new(address, bits))),
        _ => Err(NoPrefix::Bits),
    }
}

impl Prefix {
    /// Reads `address/bits`; an address alone is a network of one. Bits after those of the network
    /// must not be set.
    pub fn parse(text: &str) -> Result<Prefix, NoPrefix> {
        let (address, prefix) = read(text, IpAddr::to_canonical)?;
        if family(address).1 == prefix.first { Ok(prefix) } else { Err(NoPrefix::Rest) }
    }

    /// The network of an address with a prefix length, at most that of the address.
    pub fn new(address: IpAddr, bits: u8) -> Prefix {
        let (is_v6, number, width) = family(address);
        let mut prefix = Prefix { is_v6, first: 0, bits: bits.min(width) };
        prefix.first = number & !prefix.rest();
        prefix
    }

    /// True where an address is in the network. One of IPv4 is the same in its form of IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (is_v6, number, _) = number(address);
        is_v6 == self.is_v6 && (self.first..=self.last()).contains(&number)
    }

    /// True for a network of IPv6.
    pub fn is_v6(&self) -> bool {
        self.is_v6
    }

    /// Leading bits that its addresses share.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// The number of its first address.
    pub fn first(&self) -> u128 {
        self.first
    }

    /// The number of its last address.
    pub fn last(&self) -> u128 {
        self.first | self.rest()
    }

    /// The bits that differ within the network.
    fn rest(&self) -> u128 {
        let width = if self.is_v6 { 128 } else { 32 };
        match width - u32::from(self.bits) {
            128 => u128::MAX,
            free => (1 << free) - 1,
        }
    }
}

impl FromStr for Prefix {
    type Err = NoPrefix;

    /// Reads it as [`Prefix::parse`] does, but any address of the network names it.
    fn from_str(text: &str) -> Result<Prefix, NoPrefix> {
        Ok(read(text, IpAddr::clone)?.1)
    }
}

impl fmt::Display for NoPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for NoPrefix {}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_v6 {
            true => write!(f, "{}/{}", Ipv6Addr::from_bits(self.first), self.bits),
            false => write!(f, "{}/{}", Ipv4Addr::from_bits(self.first as u32), self.bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network contains its addresses and no others, for the shortest and the longest prefix;
    /// invalid text is refused.
    #[test]
    fn networks() {
        for (prefix, address, is_in) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.77/24", "192.0.2.1", true),
            ("192.0.2.0/24", "192.0.3.1", false),
            ("0.0.0.0/0", "192.0.3.1", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::1", "::1", true),
        ] {
            let network: Prefix = prefix.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), is_in, "{prefix} {address}");
        }
        for text in ["", "a", "192.0.2/24"] {
            assert_eq!(text.parse::<Prefix>(), Err(NoPrefix::Address), "{text}");
            assert_eq!(Prefix::parse(text), Err(NoPrefix::Address), "{text}");
        }
        for text in ["192.0.2.1/33", "::/129", "192.0.2.0/", "1.2.3.4/-1"] {
            assert_eq!(text.parse::<Prefix>(), Err(NoPrefix::Bits), "{text}");
            assert_eq!(Prefix::parse(text), Err(NoPrefix::Bits), "{text}");
        }
        assert_eq!(Prefix::parse("10.0.0.1/8"), Err(NoPrefix::Rest));
        assert_eq!(Prefix::parse("10.0.0.1"), "10.0.0.1/32".parse());
        for text in ["0.0.0.0/0", "192.0.2.0/24", "::/0", "2001:db8::/32", "::1/128"] {
            assert_eq!(Prefix::parse(text).unwrap().to_string(), text);
        }
    }
}
