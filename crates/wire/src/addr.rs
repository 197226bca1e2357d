//! One address type for both IP versions.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP address in 16 bytes; IPv4 is stored as `::ffff:a.b.c.d` (RFC 4291, section 2.5.5.2).
///
/// A plain value of one size keeps flow keys flat and comparable. A real IPv4-mapped IPv6 address
/// on the wire therefore reads as that IPv4 address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Addr(pub [u8; 16]);

impl Addr {
    /// `::`, used where no address is known.
    pub const UNSPECIFIED: Addr = Addr([0; 16]);

    /// From the four bytes of an IPv4 address.
    #[inline(always)]
    pub const fn v4(bytes: [u8; 4]) -> Addr {
        // As one number, so that it is stored in words and can be loaded in words at once.
        Addr((0xffff_0000_0000 | u32::from_be_bytes(bytes) as u128).to_be_bytes())
    }

    /// From the sixteen bytes of an IPv6 address.
    #[inline(always)]
    pub const fn v6(bytes: [u8; 16]) -> Addr {
        Addr(bytes)
    }

    /// True when this is an IPv4 address.
    #[inline(always)]
    pub fn is_v4(&self) -> bool {
        self.0[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
    }

    /// The wire form: 4 bytes for IPv4, 16 for IPv6.
    #[inline]
    pub fn octets(&self) -> &[u8] {
        if self.is_v4() { &self.0[12..] } else { &self.0 }
    }

    /// True for 224.0.0.0/4, 255.255.255.255 and ff00::/8.
    pub fn is_multicast_or_broadcast(&self) -> bool {
        match IpAddr::from(*self) {
            IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_multicast(),
        }
    }

    /// True for addresses that no public name server names: private (RFC 1918), shared
    /// (RFC 6598), loopback, link-local, unique local (RFC 4193), multicast, unspecified.
    pub fn is_local(&self) -> bool {
        match IpAddr::from(*self) {
            IpAddr::V4(v4) => {
                let [a, b, ..] = v4.octets();
                v4.is_private()
                    || v4.is_loopback()
                    || v4.is_link_local()
                    || v4.is_multicast()
                    || v4.is_broadcast()
                    || v4.is_unspecified()
                    || (a == 100 && (b & 0xc0) == 64)
            }
            IpAddr::V6(v6) => {
                let first = v6.segments()[0];
                v6.is_loopback()
                    || v6.is_unspecified()
                    || v6.is_multicast()
                    || (first & 0xfe00) == 0xfc00
                    || (first & 0xffc0) == 0xfe80
            }
        }
    }
}

impl From<Addr> for IpAddr {
    fn from(addr: Addr) -> IpAddr {
        match addr.octets().first_chunk::<4>() {
            Some(v4) if addr.is_v4() => IpAddr::V4(Ipv4Addr::from(*v4)),
            _ => IpAddr::V6(Ipv6Addr::from(addr.0)),
        }
    }
}

impl From<IpAddr> for Addr {
    fn from(ip: IpAddr) -> Addr {
        match ip {
            IpAddr::V4(v4) => Addr::v4(v4.octets()),
            IpAddr::V6(v6) => Addr::v6(v6.octets()),
        }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IPv4 and IPv6 survive the round trip through one representation.
    #[test]
    fn round_trip() {
        for text in ["192.0.2.7", "2001:db8::1", "::", "255.255.255.255", "fe80::1"] {
            let ip: IpAddr = text.parse().expect("a literal address");
            assert_eq!(Addr::from(ip).to_string(), text);
        }
    }

    #[test]
    fn local_addresses() {
        for (text, local) in [
            ("10.1.2.3", true),
            ("100.64.0.1", true),
            ("100.128.0.1", false),
            ("8.8.8.8", false),
            ("fd00::1", true),
            ("fe80::1", true),
            ("2001:db8::1", false),
            ("224.0.0.251", true),
        ] {
            let ip: IpAddr = text.parse().expect("a literal address");
            assert_eq!(Addr::from(ip).is_local(), local, "{text}");
        }
    }
}
