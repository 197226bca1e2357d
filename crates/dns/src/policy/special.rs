//! Names of special use, which the public name servers do not have, or should not be queried for.
//!
//! | names | response |
//! |---|---|
//! | `localhost` and below | 127.0.0.1, ::1 (RFC 6761, section 6.3); PTR of these addresses |
//! | `invalid`, `test` and below | NXDOMAIN (RFC 6761, sections 6.2 and 6.4) |
//! | `onion` and below | NXDOMAIN: they are for another network (RFC 7686) |
//! | reverse names of private and other special networks | NXDOMAIN (RFC 6303, 7793) |
//! | `home.arpa` and below | NXDOMAIN (RFC 8375); but its DS records are the parent's, and are sent upstream |
//! | `resolver.arpa` and below | no data: no encrypted transport of this resolver is advertised (RFC 9462) |
//!
//! A name does not count if it or a name above it is exempt, since a forwarded or local zone
//! contains it. Names at and below an exempt name do not count either.

use larder_wire::dns::rtype;
use siphasher::sip::SipHasher13;

use super::Outcome;
use super::Query;
use super::names::{Full, Names, Suffixes, Tops};
use super::records::{EMPTY, RecordRef, Records, Rejection};
use crate::name::WireName;

/// TTL of these responses, seconds: RFC 6303, section 3.
pub const SPECIAL_TTL_S: u32 = 10_800;

/// Kinds of names, by number.
const EXEMPT: u32 = 0;
const LOCALHOST: u32 = 1;
const NXDOMAIN: u32 = 2;
const ZONE: u32 = 3;
const HOME: u32 = 4;
const NODATA: u32 = 5;
const LOOPBACK: u32 = 6;

const NAMES: [(&str, u32); 8] = [
    ("localhost", LOCALHOST),
    ("invalid", NXDOMAIN),
    ("test", NXDOMAIN),
    ("onion", NXDOMAIN),
    ("home.arpa", HOME),
    ("resolver.arpa", NODATA),
    ("1.0.0.127.in-addr.arpa", LOOPBACK),
    ("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa", LOOPBACK),
];

/// Reverse zones of RFC 6303, section 4, except for the two ranges below.
const REVERSE: [&str; 17] = [
    "10.in-addr.arpa",
    "168.192.in-addr.arpa",
    "0.in-addr.arpa",
    "127.in-addr.arpa",
    "254.169.in-addr.arpa",
    "2.0.192.in-addr.arpa",
    "100.51.198.in-addr.arpa",
    "113.0.203.in-addr.arpa",
    "255.255.255.255.in-addr.arpa",
    "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa",
    "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa",
    "d.f.ip6.arpa",
    "8.e.f.ip6.arpa",
    "9.e.f.ip6.arpa",
    "a.e.f.ip6.arpa",
    "b.e.f.ip6.arpa",
    "8.b.d.0.1.0.0.2.ip6.arpa",
];

/// The table of special names.
#[derive(Debug, Clone)]
pub struct Special {
    names: Names,
    records: Records,
    /// Chains: the records of `localhost`, and of its addresses.
    localhost: u32,
    loopback: u32,
}

impl Special {
    /// All names except for the `exempt` ones.
    pub fn new(key: SipHasher13, exempt: &[WireName]) -> Result<Special, Rejection> {
        let mut names = Names::new(key);
        for name in exempt {
            let name = Suffixes::new(name.as_bytes(), &key).expect("a WireName is a name");
            names.put(&name, |_| Ok::<u32, Full>(EXEMPT))?;
        }
        let private = (16..32).map(|byte| format!("{byte}.172.in-addr.arpa"));
        let shared = (64..128).map(|byte| format!("{byte}.100.in-addr.arpa"));
        let reverse = REVERSE.iter().map(|&name| name.to_string()).chain(private).chain(shared);
        let named = NAMES.iter().map(|&(name, kind)| (name.to_string(), kind));
        // The loopback addresses are zones or below one. They are added last, so that their kind
        // counts.
        for (name, kind) in reverse.map(|name| (name, ZONE)).chain(named) {
            let name = WireName::parse(name.as_bytes(), &WireName::ROOT);
            let name = name.expect("the names above are names");
            let name = Suffixes::new(name.as_bytes(), &key).expect("a WireName is a name");
            if names.longest(&name, name.labels()).is_none_or(|(_, kind)| kind != EXEMPT) {
                names.put(&name, |_| Ok::<u32, Full>(kind))?;
            }
        }
        names.seal();
        let mut records = Records::default();
        let mut add = |chain, rtype, data: &[u8]| {
            records.add(chain, RecordRef { rtype, ttl_s: SPECIAL_TTL_S, data })
        };
        let localhost = add(EMPTY, rtype::A, &[127, 0, 0, 1])?;
        add(localhost, rtype::AAAA, &std::net::Ipv6Addr::LOCALHOST.octets())?;
        let loopback = add(EMPTY, rtype::PTR, b"\x09localhost\0")?;
        Ok(Special { names, records, localhost, loopback })
    }

    /// The last labels of special names.
    pub fn tops(&self) -> Tops {
        self.names.tops()
    }

    /// The result for a name. Special names of no more than `passed` labels do not count.
    pub fn say(&self, query: &Query<'_>, passed: usize) -> Option<Outcome<'_>> {
        let name = &query.name;
        let (zone, kind) = self.names.longest(name, name.labels())?;
        if zone <= passed {
            return None;
        }
        let is_apex = zone == name.labels();
        let records =
            |chain| Some(Outcome::Records { records: &self.records, chain, zone, soa: None });
        match kind {
            EXEMPT => None,
            LOCALHOST => records(self.localhost),
            LOOPBACK if is_apex => records(self.loopback),
            HOME if is_apex && query.qtype == rtype::DS => None,
            ZONE | HOME if is_apex => Some(Outcome::Apex { zone }),
            NODATA => Some(Outcome::NoData { zone }),
            _ => Some(Outcome::NxDomain { zone, soa: None }),
        }
    }
}
