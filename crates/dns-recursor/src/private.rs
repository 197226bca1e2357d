//! Addresses that no public name server has: those with a special purpose (RFC 6890 and the IANA
//! registries that it began).
//!
//! The owner of a domain can delegate it to any address. Queries to such addresses would let the owner
//! send packets into our own network, and learn from the results which hosts respond. Some IPv6 addresses
//! carry an IPv4 address (NAT64, 6to4, Teredo, IPv4-compatible). They reach the same hosts if a translator
//! or relay is near.

use std::net::IpAddr;
use std::sync::LazyLock;

use larder_wire::prefix::Prefix;

const SPECIAL: [&str; 31] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/32",
    "2001:2::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];

/// True if an address has a special purpose.
pub fn is_special(address: IpAddr) -> bool {
    static NETWORKS: LazyLock<Vec<Prefix>> = LazyLock::new(|| {
        SPECIAL.iter().map(|text| Prefix::parse(text).expect("a test reads it")).collect()
    });
    is_in(&NETWORKS, address)
}

/// True if an address is in one of these networks.
pub fn is_in(networks: &[Prefix], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Private networks are special in each notation; root servers are not.
    #[test]
    fn special_addresses() {
        for text in
            ["10.1.2.3", "127.0.0.1", "::1", "fe80::1", "255.255.255.255", "::ffff:10.0.0.1"]
        {
            assert!(is_special(text.parse().unwrap()), "{text}");
        }
        let carriers =
            ["64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:a00:1::1", "2001::1", "::10.0.0.1"];
        for text in carriers {
            assert!(is_special(text.parse().unwrap()), "{text} carries an IPv4 address");
        }
        for text in ["2001:500:2::c", "2001:200::1", "2003::1", "2600::1", "64:ff9c::1"] {
            assert!(!is_special(text.parse().unwrap()), "{text}");
        }
        assert!(crate::roots::built_in().iter().all(|root| !is_special(*root)));
    }
}
