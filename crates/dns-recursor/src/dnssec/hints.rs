//! Where the root is, and which keys it is trusted by: built in, or from files.
//!
//! Both files are as other resolvers have them: hints are a zone file with the root's servers and their addresses, of which
//! the addresses count; anchors are DNSKEY records of the root. What is built in is IANA's (`data/`, each with its source). Keys
//! are not followed when they change (RFC 5011): KSK-2024 is there before its time, so the next change is years away.

use std::net::IpAddr;
use std::str::FromStr;

use hickory_proto::dnssec::TrustAnchors;
use hickory_proto::rr::{Name, RData, RecordSet};
use hickory_proto::serialize::txt::Parser;
use ipnet::IpNet;

/// The root's servers.
const HINTS: &str = include_str!("../../data/root.hints");

/// The root's keys.
const ANCHORS: &str = include_str!("../../data/root.anchors");

/// Addresses of a file of hints, IPv4 before IPv6, since not every machine has that. The error says what is wrong.
pub fn parse_roots(text: &str) -> Result<Vec<IpAddr>, String> {
    let (_, records) = Parser::new(text, None, Some(Name::root()))
        .parse()
        .map_err(|error| format!("not a zone file: {error}"))?;
    let of_set = |set: &RecordSet| -> Vec<IpAddr> {
        set.records_without_rrsigs().map(|record| &record.data).filter_map(RData::ip_addr).collect()
    };
    let mut addresses: Vec<IpAddr> = records.values().flat_map(of_set).collect();
    addresses.sort_unstable();
    addresses.dedup();
    match addresses.is_empty() {
        true => Err("no address of a root server: expected A or AAAA records".into()),
        false => Ok(addresses),
    }
}

/// Keys of a file of anchors. The error says what is wrong.
pub fn parse_anchors(text: &str) -> Result<TrustAnchors, String> {
    let anchors = TrustAnchors::from_str(text)
        .map_err(|error| format!("not a file of DNSKEY records: {error}"))?;
    match anchors.is_empty() {
        true => Err("no key of the root: expected '. IN DNSKEY 257 3 …'".into()),
        false => Ok(anchors),
    }
}

/// A network, as `10.0.0.0/8`, or one address. The error says what is expected.
pub fn parse_network(text: &str) -> Result<IpNet, String> {
    let whole = text.parse::<IpAddr>().map(IpNet::from);
    whole.or_else(|_| text.parse()).map_err(|_| "expected a network, as 10.0.0.0/8".into())
}

/// The built-in addresses.
pub fn roots() -> Vec<IpAddr> {
    parse_roots(HINTS).expect("a test reads it")
}

/// The built-in keys.
pub fn anchors() -> TrustAnchors {
    parse_anchors(ANCHORS).expect("a test reads it")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is built in has thirteen servers with two addresses each, IPv4 first, and the two keys that the library has too.
    #[test]
    fn built_in() {
        let roots = roots();
        assert_eq!(roots.len(), 26);
        assert!(roots[..13].iter().all(IpAddr::is_ipv4) && roots[13..].iter().all(IpAddr::is_ipv6));
        let (ours, theirs) = (anchors(), TrustAnchors::default());
        assert_eq!((ours.len(), theirs.len()), (2, 2));
        for at in 0..2 {
            assert!(theirs.contains(ours.get(at).unwrap()), "key {at}");
        }
    }

    /// Files that are none, or have nothing to begin with, are told of.
    #[test]
    fn not_of_use() {
        assert!(parse_roots(". 60 IN NS a.\n").unwrap_err().contains("no address"));
        assert!(parse_roots("<html>").unwrap_err().contains("zone file"));
        assert!(parse_anchors("; nothing\n").err().unwrap().contains("no key"));
        assert!(parse_anchors(". IN A 192.0.2.1\n").err().unwrap().contains("DNSKEY"));
        assert_eq!(parse_network("10.0.0.1").unwrap(), parse_network("10.0.0.1/32").unwrap());
        assert!(parse_network("10.0.0.0/33").is_err());
        assert_eq!(parse_roots("a. 60 IN A 192.0.2.1\n").unwrap(), [IpAddr::from([192, 0, 2, 1])]);
    }
}
