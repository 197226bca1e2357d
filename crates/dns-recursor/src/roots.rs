//! Addresses of the root servers: built in, or from a root hints file as other resolvers have it.
//! Only the addresses of that file count.

use std::net::IpAddr;

/// The root servers, A to M, as IANA publishes them (version 2024041801 of the root zone).
const ROOTS: [&str; 26] = [
    "198.41.0.4",
    "170.247.170.2",
    "192.33.4.12",
    "199.7.91.13",
    "192.203.230.10",
    "192.5.5.241",
    "192.112.36.4",
    "198.97.190.53",
    "192.36.148.17",
    "192.58.128.30",
    "193.0.14.129",
    "199.7.83.42",
    "202.12.27.33",
    "2001:503:ba3e::2:30",
    "2801:1b8:10::b",
    "2001:500:2::c",
    "2001:500:2d::d",
    "2001:500:a8::e",
    "2001:500:2f::f",
    "2001:500:12::d0d",
    "2001:500:1::53",
    "2001:7fe::53",
    "2001:503:c27::2:30",
    "2001:7fd::1",
    "2001:500:9f::42",
    "2001:dc3::35",
];

/// The built-in addresses, IPv4 before IPv6, since some machines have no IPv6.
pub fn built_in() -> Vec<IpAddr> {
    ROOTS.iter().map(|text| text.parse().expect("a test reads it")).collect()
}

/// The addresses of a root hints file: of each A and AAAA record, with any name. The error says
/// what is wrong.
pub fn parse(text: &str) -> Result<Vec<IpAddr>, String> {
    let mut addresses = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split(';').next().unwrap_or_default();
        let mut words = line.split_whitespace().rev();
        let (Some(data), Some(rtype)) = (words.next(), words.next()) else { continue };
        if rtype.eq_ignore_ascii_case("A") || rtype.eq_ignore_ascii_case("AAAA") {
            let address =
                data.parse().map_err(|_| format!("line {}: no address: {data}", at + 1))?;
            addresses.push(address);
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    match addresses.is_empty() {
        true => Err("no address of a root server: expected A or AAAA records".into()),
        false => Ok(addresses),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thirteen servers with two addresses each, IPv4 first, without duplicates.
    #[test]
    fn thirteen() {
        let roots = built_in();
        assert!(roots[..13].iter().all(IpAddr::is_ipv4) && roots[13..].iter().all(IpAddr::is_ipv6));
        let mut apart = roots.clone();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!((roots.len(), apart.len()), (26, 26));
    }

    /// Addresses are read at any position. A file without an address, or with a wrong one, is an
    /// error.
    #[test]
    fn hints() {
        let text = "; by hand\n. 3600 NS a.\na. 3600 IN A 192.0.2.1 ; one\nA. aaaa 2001:db8::1\na. A 192.0.2.1\n";
        let found: [IpAddr; 2] = ["192.0.2.1", "2001:db8::1"].map(|text| text.parse().unwrap());
        assert_eq!(parse(text).unwrap(), found);
        assert!(parse(". 60 IN NS a.\n").unwrap_err().contains("no address"));
        assert!(parse("\na. 60 IN A 192.0.2\n").unwrap_err().contains("line 2"));
    }
}
