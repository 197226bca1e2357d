//! Networks, as operators write them: `192.0.2.0/24`, `2001:db8::/32`, or one address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

/// It is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoPrefix;

impl fmt::Display for NoPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected an address or a network, as 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32")
    }
}

impl std::error::Error for NoPrefix {}

impl FromStr for Prefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Prefix, NoPrefix> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NoPrefix)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(bits_max), str::parse).map_err(|_| NoPrefix)?;
        if bits > bits_max { Err(NoPrefix) } else { Ok(Prefix { address, bits }) }
    }
}

impl Prefix {
    /// Whether an address is of this network. One of IPv4 is the same in its form of IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        fn shifted(address: IpAddr, bits: u8) -> u128 {
            let (value, width) = match address {
                IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
                IpAddr::V6(address) => (address.to_bits(), 128),
            };
            value.checked_shr(width - u32::from(bits)).unwrap_or(0)
        }
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && shifted(address, self.bits) == shifted(self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network has its addresses and no others, at either end of its length; what is none is refused.
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
        for text in ["", "a", "192.0.2.1/33", "::/129", "192.0.2.0/", "192.0.2/24", "1.2.3.4/-1"] {
            assert_eq!(text.parse::<Prefix>(), Err(NoPrefix), "{text}");
        }
    }
}
