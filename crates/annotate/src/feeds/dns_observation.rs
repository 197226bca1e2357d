//! A DNS response from any log: the names that it gives, and its form in a sorter.
//!
//! Logs come in any order. Observations are sorted by time, on disk if there are many, so that each
//! is learned at its time. The form is private, lasts as long as the run, and only
//! [`DnsObservation::read`] reads it.
//!
//! ```text
//! observation = time:i64 client:addr asked:name count:u32 (owner:name target:name)*
//!               count:u32 (addr ttl:u32)* count:u32 (addr name ttl:u32)*
//! addr  = 16 bytes        name = len:u32 bytes        numbers little-endian
//! ```
//!
//! Bounds: as many records as the log's row or the DNS message has
//! ([`ANSWERS_MAX`](super::ANSWERS_MAX)).

use larder_wire::dns::answers::{self, Extract};
use larder_wire::dns::{self, reverse_addr};
use larder_wire::scope::Scope;
use larder_wire::{Addr, Name, dnstap};

use super::{DnsData, DnsRow};
use crate::names::{AddressObservation, AliasObservation, NameProtocol, Names, Standing};
use crate::options::{NameSources, Rules};
use crate::record::NameSource;

/// Query types whose responses lead to addresses (A, AAAA, SVCB, HTTPS).
const ADDRESS_TYPES: [u16; 4] = [1, 28, 64, 65];
const PTR: u16 = 12;

/// The content of one response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsObservation {
    /// Time of the response, ns since 1970 UTC.
    pub time_ns: i64,
    /// The client that queried; unspecified if unknown.
    pub client: Addr,
    /// The name as queried.
    pub asked: Name,
    /// Aliases: owner and target.
    pub aliases: Vec<(Name, Name)>,
    /// Addresses, each with the least TTL on the way to it, seconds.
    pub addresses: Vec<(Addr, u32)>,
    /// Names that reverse lookups gave, with their TTL.
    pub reverses: Vec<(Addr, Name, u32)>,
}

impl DnsObservation {
    /// The names that a log's row gives; `None` for failures, for multicast, and for responses
    /// without addresses or aliases.
    ///
    /// A log has no owners, so the aliases before an address are taken as the chain that leads to
    /// it, in their order, as servers send them.
    pub fn of_row(row: &DnsRow) -> Option<DnsObservation> {
        if row.response_code.unwrap_or(0) != 0 {
            return None;
        }
        // Multicast DNS and LLMNR: a host claims a name, and no query is needed.
        if row.server.is_multicast_or_broadcast() {
            return None;
        }
        let mut observation = DnsObservation {
            time_ns: row.time_ns,
            client: row.client,
            asked: row.query.clone(),
            aliases: Vec::new(),
            addresses: Vec::new(),
            reverses: Vec::new(),
        };
        let follows_chain = row.query_type.is_some_and(|kind| ADDRESS_TYPES.contains(&kind));
        let reverse = reverse_addr(row.query.as_bytes()).filter(|_| row.query_type == Some(PTR));
        let mut ttl_s = u32::MAX;
        for answer in &row.answers {
            match (&answer.data, reverse) {
                (DnsData::Address(addr), _) => {
                    observation.addresses.push((*addr, ttl_s.min(answer.ttl_s)));
                }
                (DnsData::Name(name), Some(addr)) => {
                    observation.reverses.push((addr, name.clone(), answer.ttl_s));
                }
                // Zeek writes some other records as words; no name has spaces.
                (DnsData::Name(name), None)
                    if follows_chain && !name.as_bytes().contains(&b' ') =>
                {
                    ttl_s = ttl_s.min(answer.ttl_s);
                    let owner =
                        observation.aliases.last().map_or(&observation.asked, |(_, target)| target);
                    if owner != name {
                        let alias = (owner.clone(), name.clone());
                        observation.aliases.push(alias);
                    }
                }
                _ => {}
            }
        }
        (!observation.is_empty()).then_some(observation)
    }

    /// The names that a dnstap message gives: `Ok(None)` for queries and empty responses, an error
    /// for a damaged frame.
    pub fn of_dnstap(
        frame: &[u8],
        extract: &mut Extract,
    ) -> Result<Option<DnsObservation>, &'static str> {
        let message = dnstap::Message::parse(frame).ok_or("dnstap_frame")?;
        let (Some(response), 0) = (message.response, message.kind % 2) else { return Ok(None) };
        let time_ns = message.response_time_ns.or(message.query_time_ns).ok_or("dnstap_no_time")?;
        let dns = dns::Message::parse(response).map_err(|error| error.as_str())?;
        if !dns.is_response() {
            return Ok(None);
        }
        answers::extract(&dns, extract).map_err(|error| error.as_str())?;
        let observation = DnsObservation {
            time_ns,
            client: message.client.unwrap_or(Addr::UNSPECIFIED),
            asked: Name::from_canonical(extract.qname().unwrap_or_default()),
            aliases: extract
                .aliases()
                .map(|a| (Name::from_canonical(a.owner), Name::from_canonical(a.target)))
                .collect(),
            addresses: extract.addresses().map(|a| (a.addr, a.ttl_s)).collect(),
            reverses: extract
                .reverses()
                .map(|r| (r.addr, Name::from_canonical(r.name), r.ttl_s))
                .collect(),
        };
        Ok((!observation.is_empty()).then_some(observation))
    }

    fn is_empty(&self) -> bool {
        self.aliases.is_empty() && self.addresses.is_empty() && self.reverses.is_empty()
    }

    /// Learns it with packet number `packet`. The writer of a log has seen the query of each
    /// response, so the names count as confirmed.
    pub fn learn_into(&self, packet: u64, sources: NameSources, rules: Rules, names: &mut Names) {
        let targets: Vec<&[u8]> =
            self.aliases.iter().map(|(_, target)| target.as_bytes()).collect();
        let observation = |client, asked, addr, ttl_s, learned_from| AddressObservation {
            packet,
            time_ns: self.time_ns,
            // These logs do not state the network: such names count in all networks
            // (`LearnedMarks::of_all_networks`).
            scope: Scope::NONE,
            client,
            asked,
            addr,
            ttl_s,
            learned_from,
            standing: Standing::Confirmed,
            targets: &targets,
        };
        if sources.has(NameSource::DnsAddress) {
            let mut asked = self.asked.as_bytes();
            for (owner, target) in &self.aliases {
                if rules.has(1) {
                    names.learn_alias(&AliasObservation {
                        packet,
                        time_ns: self.time_ns,
                        scope: Scope::NONE,
                        client: self.client,
                        owner: owner.as_bytes(),
                        target: target.as_bytes(),
                        standing: Standing::Confirmed,
                    });
                } else {
                    asked = target.as_bytes();
                }
            }
            for &(addr, ttl_s) in &self.addresses {
                names.learn(&observation(self.client, asked, addr, ttl_s, NameProtocol::Dns));
            }
        }
        if sources.has(NameSource::Ptr) {
            for (addr, name, ttl_s) in &self.reverses {
                let name = name.as_bytes();
                let observation =
                    observation(Addr::UNSPECIFIED, name, *addr, *ttl_s, NameProtocol::Ptr);
                names.learn(&AddressObservation { standing: Standing::Claimed, ..observation });
            }
        }
    }

    /// Appends the form for a sorter.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.time_ns.to_le_bytes());
        write_addr(self.client, out);
        write_name(&self.asked, out);
        write_number(self.aliases.len() as u32, out);
        for (owner, target) in &self.aliases {
            write_name(owner, out);
            write_name(target, out);
        }
        write_number(self.addresses.len() as u32, out);
        for &(addr, ttl_s) in &self.addresses {
            write_addr(addr, out);
            write_number(ttl_s, out);
        }
        write_number(self.reverses.len() as u32, out);
        for (addr, name, ttl_s) in &self.reverses {
            write_addr(*addr, out);
            write_name(name, out);
            write_number(*ttl_s, out);
        }
    }

    /// Reads the form of [`DnsObservation::write`]; `None` for other bytes.
    pub fn read(mut from: &[u8]) -> Option<DnsObservation> {
        let from = &mut from;
        let time_ns = read_time(from)?;
        let client = read_addr(from)?;
        let asked = read_name(from)?;
        let mut observation = DnsObservation {
            time_ns,
            client,
            asked,
            aliases: Vec::new(),
            addresses: Vec::new(),
            reverses: Vec::new(),
        };
        for _ in 0..read_number(from)? {
            observation.aliases.push((read_name(from)?, read_name(from)?));
        }
        for _ in 0..read_number(from)? {
            observation.addresses.push((read_addr(from)?, read_number(from)?));
        }
        for _ in 0..read_number(from)? {
            observation.reverses.push((read_addr(from)?, read_name(from)?, read_number(from)?));
        }
        Some(observation)
    }
}

/// A time as a sorter's key: earlier is smaller, also before 1970.
pub fn time_key(time_ns: i64) -> u64 {
    time_ns as u64 ^ 1 << 63
}

pub(super) fn write_number(number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn write_addr(addr: Addr, out: &mut Vec<u8>) {
    out.extend_from_slice(&addr.0);
}

pub(super) fn write_name(name: &Name, out: &mut Vec<u8>) {
    // Names are shorter than a kilobyte.
    write_number(name.as_bytes().len() as u32, out);
    out.extend_from_slice(name.as_bytes());
}

pub(super) fn read_bytes<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (bytes, rest) = from.split_at_checked(count)?;
    *from = rest;
    Some(bytes)
}

pub(super) fn read_time(from: &mut &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(*read_bytes(from, 8)?.first_chunk()?))
}

pub(super) fn read_number(from: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*read_bytes(from, 4)?.first_chunk()?))
}

pub(super) fn read_addr(from: &mut &[u8]) -> Option<Addr> {
    Some(Addr(*read_bytes(from, 16)?.first_chunk()?))
}

pub(super) fn read_name(from: &mut &[u8]) -> Option<Name> {
    let count = read_number(from)? as usize;
    Some(Name::from_canonical(read_bytes(from, count)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feeds::DnsAnswer;
    use proptest::prelude::*;

    fn name(text: &str) -> Name {
        Name::from_text(text.as_bytes()).expect("a literal name")
    }

    fn row(query_type: u16, answers: &[(u32, DnsData)]) -> DnsRow {
        DnsRow {
            time_ns: 7,
            client: Addr::v4([192, 0, 2, 1]),
            server: Addr::v4([192, 0, 2, 53]),
            query: name("www.example.com"),
            query_type: Some(query_type),
            response_code: Some(0),
            answers: answers
                .iter()
                .map(|(ttl_s, data)| DnsAnswer { ttl_s: *ttl_s, data: data.clone() })
                .collect(),
        }
    }

    /// A row's names are the chain from the query to the addresses, whose TTL is the least on the
    /// way; a failure, another type, and words with spaces give no alias.
    #[test]
    fn a_row_is_a_chain() {
        let (one, two) = (DnsData::Name(name("a.example")), DnsData::Name(name("b.example")));
        let addr = Addr::v4([203, 0, 113, 9]);
        let answers = [(90, one.clone()), (20, two), (60, DnsData::Address(addr))];
        let observation = DnsObservation::of_row(&row(28, &answers)).expect("an answer");
        let chain =
            [(name("www.example.com"), name("a.example")), (name("a.example"), name("b.example"))];
        assert_eq!(observation.aliases, chain);
        assert_eq!(observation.addresses, [(addr, 20)]);
        assert_eq!(DnsObservation::of_row(&row(16, &answers[..2])), None);
        assert_eq!(DnsObservation::of_row(&row(1, &[(5, DnsData::Name(name("txt 3 a b")))])), None);
        let failed = DnsRow { response_code: Some(3), ..row(1, &answers) };
        assert_eq!(DnsObservation::of_row(&failed), None);
        let claimed = DnsRow { server: Addr::v4([224, 0, 0, 251]), ..row(1, &answers) };
        assert_eq!(DnsObservation::of_row(&claimed), None, "multicast DNS");
        let reverse = DnsRow { query: name("9.113.0.203.in-addr.arpa"), ..row(12, &[(5, one)]) };
        let observation = DnsObservation::of_row(&reverse).expect("an answer");
        assert_eq!(observation.reverses, [(addr, name("a.example"), 5)]);
    }

    proptest! {
        /// Every observation reads back as it was written, and no other bytes panic the reader.
        #[test]
        fn facts_read_back(
            time_ns: i64,
            bytes: [u8; 16],
            names in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 2..6),
            ttl_s: u32,
            noise in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let names: Vec<Name> = names.iter().map(|name| Name::from_canonical(name)).collect();
            let observation = DnsObservation {
                time_ns,
                client: Addr(bytes),
                asked: names[0].clone(),
                aliases: names.windows(2).map(|two| (two[0].clone(), two[1].clone())).collect(),
                addresses: vec![(Addr(bytes), ttl_s); names.len()],
                reverses: vec![(Addr(bytes), names[1].clone(), ttl_s)],
            };
            let mut out = Vec::new();
            observation.write(&mut out);
            prop_assert_eq!(DnsObservation::read(&out), Some(observation));
            let _ = DnsObservation::read(&noise);
        }

        /// Keys have the order of their times.
        #[test]
        fn keys_order_as_times(one: i64, two: i64) {
            prop_assert_eq!(time_key(one).cmp(&time_key(two)), one.cmp(&two));
        }
    }
}
