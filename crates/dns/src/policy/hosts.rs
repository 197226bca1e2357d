//! Records by name, and hosts files: names for A and AAAA, addresses for PTR.
//!
//! A line is an address and names. The name of an address is the first one listed with it, as in
//! the system's own resolver. All other types of a listed name have no data, so a name is never
//! resolved half from here and half from elsewhere.

use std::io::Read;
use std::net::IpAddr;

use larder_wire::dns::rtype;
use siphasher::sip::SipHasher13;

use super::error::{Loaded, PolicyError};
use super::lines::{LINE_TOO_LONG, Lines};
use super::names::{Names, Suffixes};
use super::records::{EMPTY, RecordRef, Records, Rejection};
use crate::name::WireName;

/// TTL of hosts files, seconds: a file is edited by hand, and a change is seen at the next reload.
pub const HOSTS_TTL_S: u32 = 60;

/// Records by name.
#[derive(Debug, Clone)]
pub struct Data {
    /// Names, each with its chain.
    pub names: Names,
    /// Chains of records.
    pub records: Records,
}

impl Data {
    /// No records yet.
    pub fn new(key: SipHasher13) -> Data {
        Data { names: Names::new(key), records: Records::default() }
    }

    /// Adds a record.
    pub fn add(
        &mut self,
        key: &SipHasher13,
        owner: &WireName,
        record: RecordRef<'_>,
    ) -> Result<(), Rejection> {
        let owner = Suffixes::new(owner.as_bytes(), key).expect("a WireName is a name");
        self.names.put(&owner, |chain| self.records.add(chain.unwrap_or(EMPTY), record))
    }
}

/// Reads a hosts file into `data`.
pub fn load<R: Read>(
    data: &mut Data,
    key: &SipHasher13,
    lines: &mut Lines<'_, R>,
) -> Result<Loaded, PolicyError> {
    let mut loaded = Loaded::default();
    while let Some(line) = lines.next()? {
        let Some(text) = line.text else {
            loaded.skip(line.number, LINE_TOO_LONG);
            continue;
        };
        let text = text.split(|&byte| byte == b'#').next().unwrap_or_default();
        let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(address) = words.next() else { continue };
        let Some(address) = ip(address) else {
            loaded.skip(line.number, "a line of a hosts file begins with an address");
            continue;
        };
        if words.clone().next().is_none() {
            loaded.skip(line.number, "no name stands after the address");
        }
        for word in words {
            let taken = match WireName::parse(word, &WireName::ROOT) {
                Ok(name) => name_host(data, key, address, &name).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match taken {
                Ok(()) => loaded.taken += 1,
                Err(problem) => loaded.skip(line.number, problem),
            }
        }
    }
    Ok(loaded)
}

/// The address in a word.
pub fn ip(word: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Adds a name for an address, and the address's name if it has none yet.
fn name_host(
    data: &mut Data,
    key: &SipHasher13,
    address: IpAddr,
    name: &WireName,
) -> Result<(), Rejection> {
    fn record(rtype: u16, data: &[u8]) -> RecordRef<'_> {
        RecordRef { rtype, ttl_s: HOSTS_TTL_S, data }
    }
    match address {
        IpAddr::V4(v4) => data.add(key, name, record(rtype::A, &v4.octets()))?,
        IpAddr::V6(v6) => data.add(key, name, record(rtype::AAAA, &v6.octets()))?,
    }
    let reverse = reverse(address);
    let found = Suffixes::new(reverse.as_bytes(), key).expect("a WireName is a name");
    if address.is_unspecified() || data.names.get(&found, found.labels()).is_some() {
        return Ok(());
    }
    data.add(key, &reverse, record(rtype::PTR, name.as_bytes()))
}

/// The name for PTR queries of an address.
pub fn reverse(address: IpAddr) -> WireName {
    let text = match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(v6) => {
            let nibbles = v6.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            nibbles.map(|nibble| format!("{nibble:x}.")).collect::<String>() + "ip6.arpa"
        }
    };
    WireName::parse(text.as_bytes(), &WireName::ROOT).expect("an address spells a short name")
}
