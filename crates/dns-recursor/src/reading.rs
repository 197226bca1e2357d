//! Classifies the response of a name server, given the query and the zone whose server got it.
//!
//! | response | reading |
//! |---|---|
//! | to another question, or not a response | [`Reading::Misfit`]: spoofed or late |
//! | with TC; with another letter case, if the case is random | [`Reading::Truncated`] |
//! | FORMERR or BADVERS to a query with EDNS; NOTIMP to one, without EDNS | [`Reading::NoEdns`] |
//! | records of the type, at the name or after aliases in the zone; NXDOMAIN or NODATA after it | [`Reading::Answer`] |
//! | aliases out of the zone, in a loop, or to a name without further records here | [`Reading::Alias`] |
//! | YXDOMAIN with the DNAME that makes the name too long | [`Reading::Answer`] |
//! | no records at the name itself, with an SOA or AA | [`Reading::NoData`], [`Reading::NxDomain`] |
//! | servers of a zone below this one that contains the name | [`Reading::Referral`] |
//! | all else: another code, servers of a zone above, results of recursion | [`Reading::Lame`] |
//!
//! A server's records count only for names in its zone (RFC 5452, section 6). So the resolver follows an
//! alias out of the zone itself, and accepts a server address only from a server that is authoritative
//! for that name. AA matters if the server recurses: it may have lost the zone, and its records may come
//! from anywhere. If all servers of a zone do so, such a response is the last resort
//! ([`SentQuery::accepts_recursed`]).
//!
//! Cost: one pass over the records. A response without aliases needs no allocation.

use std::net::IpAddr;

use larder_wire::dns::edns::rcode;
use larder_wire::dns::{
    HEADER_BYTES, Message, Record, Section, class, rdata, read_wire_name, rtype,
};

use crate::cuts::Nameserver;
use crate::names::is_within;

/// The most aliases that are followed in one response.
const CHAIN_MAX: usize = 16;

/// The most servers of a referral, and addresses of each.
pub const SERVERS_MAX: usize = 16;
const ADDRESSES_MAX: usize = 8;

/// Response code for a DNAME that makes the name too long (RFC 6672, section 2.2).
const YXDOMAIN: u16 = 6;

/// A query as it was sent.
#[derive(Debug, Clone, Copy)]
pub struct SentQuery<'a> {
    /// Name, type and class as sent.
    pub question: &'a [u8],
    /// The name in lower case.
    pub name: &'a [u8],
    /// The type.
    pub rtype: u16,
    /// The zone whose server got the query, as part of the name.
    pub zone: &'a [u8],
    /// The letter case was random; the response must repeat it.
    pub is_case_random: bool,
    /// The query had EDNS.
    pub has_edns: bool,
    /// Accept results of recursion, because no server of the zone has a better response.
    pub accepts_recursed: bool,
}

/// The kind of a response; see the header of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// No response to this query.
    Misfit,
    /// Retry over TCP.
    Truncated,
    /// Retry without EDNS.
    NoEdns,
    /// The server does not serve this zone.
    Lame,
    /// The message is the full response.
    Answer,
    /// The name exists, without records of the type.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// Aliases, in order from the query name.
    Alias(Aliases),
    /// Servers of a zone below this one.
    Referral(Referral),
}

/// Aliases of one response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aliases {
    /// The last target, in lower case.
    pub target: Vec<u8>,
    /// The alias records and their signatures: owner, type, class, TTL and data, uncompressed.
    pub records: Vec<u8>,
    /// The number of records.
    pub record_count: u16,
    /// The number of aliases.
    pub count: u16,
}

/// True if records in the form of [`Aliases::records`] contain an alias of a name.
pub fn has_alias(mut records: &[u8], name: &[u8]) -> bool {
    while !records.is_empty() {
        let mut length = 0;
        while let Some(&label) = records.get(length).filter(|label| **label > 0) {
            length += 1 + usize::from(label);
        }
        let Some((owner, rest)) = records.split_at_checked(length + 1) else { return false };
        let Some((fixed, rest)) = rest.split_at_checked(10) else { return false };
        let is_alias = fixed[..2] == rtype::CNAME.to_be_bytes();
        if is_alias && owner.eq_ignore_ascii_case(name) {
            return true;
        }
        let data_bytes = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        let Some(rest) = rest.get(data_bytes..) else { return false };
        records = rest;
    }
    false
}

/// A zone and its servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referral {
    /// Length of the zone's name, at the end of the query name.
    pub zone_bytes: usize,
    /// The TTL, seconds.
    pub ttl_s: u32,
    /// The servers.
    pub servers: Vec<Nameserver>,
}

/// Classifies a response. `may_query` filters the addresses of servers.
pub fn read(bytes: &[u8], sent: &SentQuery<'_>, may_query: impl Fn(IpAddr) -> bool) -> Reading {
    let Ok(message) = Message::parse(bytes) else { return Reading::Misfit };
    if !message.is_response() || message.opcode() != 0 {
        return Reading::Misfit;
    }
    let code = message.extended_rcode();
    let forgets_edns = sent.has_edns
        && match code {
            // Some servers repeat the OPT record that they do not understand.
            rcode::FORMERR | rcode::BADVERS => true,
            rcode::NOTIMP => message.opt().is_none(),
            _ => false,
        };
    let Some(echoed) = echoed_name(&message, sent) else {
        // Some servers return only a header if they cannot read the question.
        let is_bare = message.question_count() == 0 && forgets_edns && message.opt().is_none();
        return if is_bare { Reading::NoEdns } else { Reading::Misfit };
    };
    match code {
        // Spoofing, or a server that changes the letter case: TCP helps in both cases.
        _ if sent.is_case_random && echoed != &sent.question[..echoed.len()] => Reading::Truncated,
        _ if message.is_truncated() => Reading::Truncated,
        _ if forgets_edns => Reading::NoEdns,
        rcode::NOERROR | rcode::NXDOMAIN => {
            read_sections(&message, sent, may_query).unwrap_or(Reading::Lame)
        }
        YXDOMAIN if has_dname(&message, sent) => Reading::Answer,
        _ => Reading::Lame,
    }
}

/// True if a response has a DNAME in the zone, above the query name.
fn has_dname(message: &Message<'_>, sent: &SentQuery<'_>) -> bool {
    let is_above = |owner: &[u8]| {
        owner.len() < sent.name.len() && is_within(sent.name, owner) && is_within(owner, sent.zone)
    };
    message.answers().map_while(Result::ok).any(|record| {
        let is_dname = record.class == class::IN && record.rtype == rtype::DNAME;
        is_dname && name_at(message, record.owner_offset).is_some_and(|owner| is_above(&owner))
    })
}

/// The name in the question section, if the question is that of the query.
fn echoed_name<'m>(message: &Message<'m>, sent: &SentQuery<'_>) -> Option<&'m [u8]> {
    if message.question_count() != 1 {
        return None;
    }
    // The first name is never compressed: no earlier name exists that it could point to.
    let bytes = message.bytes().get(HEADER_BYTES..)?.get(..sent.question.len())?;
    let (name, fixed) = bytes.split_at(sent.name.len());
    let is_same = name.eq_ignore_ascii_case(sent.name) && fixed == &sent.question[name.len()..];
    is_same.then_some(name)
}

/// The name at an offset, in lower case.
fn name_at(message: &Message<'_>, offset: usize) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    read_wire_name(message.bytes(), offset, &mut name).ok()?;
    name.make_ascii_lowercase();
    Some(name)
}

/// True if the owner of a record is this name (in lower case).
fn is_owner(message: &Message<'_>, record: &Record, name: &[u8]) -> bool {
    let bytes = message.bytes();
    // Most owners are a pointer to the question, which is never compressed.
    let is_question = bytes.get(record.owner_offset..record.owner_offset + 2) == Some(&[0xc0, 12]);
    let offset = if is_question { HEADER_BYTES } else { record.owner_offset };
    if let Some(plain) = bytes.get(offset..offset + name.len())
        && plain.eq_ignore_ascii_case(name)
    {
        return true;
    }
    name_at(message, record.owner_offset).is_some_and(|owner| owner == name)
}

fn read_sections(
    message: &Message<'_>,
    sent: &SentQuery<'_>,
    may_query: impl Fn(IpAddr) -> bool,
) -> Option<Reading> {
    let has_aa = message.bytes()[2] & 4 != 0;
    let recurses = message.bytes()[3] & 0x80 != 0;
    let is_denied = u16::from(message.rcode()) == rcode::NXDOMAIN;
    let is_accepted = has_aa || !recurses || sent.accepts_recursed;

    let mut chain = Chain::default();
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut name = std::borrow::Cow::Borrowed(sent.name);
    loop {
        let step = chain.step(message, sent, &name)?;
        match step {
            Step::Data if is_accepted => return Some(Reading::Answer),
            Step::Data => return None,
            Step::Alias(_) if !is_accepted => return None,
            Step::Alias(target) => {
                let is_loop = target == sent.name || names.contains(&target);
                if is_loop || !is_within(&target, sent.zone) {
                    return Some(Reading::Alias(chain.into_aliases(target)));
                }
                names.push(target.clone());
                name = target.into();
            }
            Step::Nothing => break,
        }
    }
    let authority = Authority::read(message, sent, &name)?;
    let is_aliased = chain.count > 0;
    match authority {
        Authority::Soa if !is_accepted => None,
        Authority::Soa if is_aliased => Some(Reading::Answer),
        Authority::Soa => Some(if is_denied { Reading::NxDomain } else { Reading::NoData }),
        _ if is_aliased && is_denied => Some(Reading::Answer),
        // Another server may have records of the last name.
        _ if is_aliased => Some(Reading::Alias(chain.into_aliases(name.into_owned()))),
        _ if is_denied => has_aa.then_some(Reading::NxDomain),
        Authority::Delegation(zone_bytes) => {
            Some(Reading::Referral(referral(message, sent, zone_bytes, may_query)?))
        }
        Authority::Nothing => has_aa.then_some(Reading::NoData),
    }
}

/// The records at one name, in the answer section.
enum Step {
    Data,
    Alias(Vec<u8>),
    Nothing,
}

/// Aliases followed so far.
#[derive(Default)]
struct Chain {
    records: Vec<u8>,
    record_count: u16,
    count: u16,
}

impl Chain {
    /// Looks for data or an alias at a name; `None` if the chain is too long or a record is
    /// invalid.
    fn step(&mut self, message: &Message<'_>, sent: &SentQuery<'_>, name: &[u8]) -> Option<Step> {
        let mut alias = None;
        for record in message.answers() {
            let record = record.ok()?;
            let is_wanted = record.rtype == sent.rtype || sent.rtype == rtype::ANY;
            let is_alias = record.rtype == rtype::CNAME;
            if record.class != class::IN || !(is_wanted || is_alias) {
                continue;
            }
            if is_owner(message, &record, name) {
                if is_wanted {
                    return Some(Step::Data);
                }
                alias = alias.or(Some(record));
            }
        }
        let Some(alias) = alias else { return Some(Step::Nothing) };
        if usize::from(self.count) == CHAIN_MAX {
            return None;
        }
        let mut target = Vec::new();
        read_wire_name(message.bytes(), rdata::name_offset(message, &alias, 0).ok()?, &mut target)
            .ok()?;
        self.add(name, &alias, &target);
        self.count += 1;
        self.add_signatures(message, sent, name)?;
        target.make_ascii_lowercase();
        Some(Step::Alias(target))
    }

    /// Adds the signatures of an alias, and the DNAME that created it: validation needs them.
    fn add_signatures(
        &mut self,
        message: &Message<'_>,
        sent: &SentQuery<'_>,
        name: &[u8],
    ) -> Option<()> {
        for record in message.answers() {
            let record = record.ok()?;
            let data = message.rdata(&record);
            // A signature begins with the covered type.
            let covered = match record.rtype {
                rtype::RRSIG => data.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes)),
                other => other,
            };
            let is_signature = record.rtype == rtype::RRSIG;
            let is_of_use = covered == rtype::DNAME || covered == rtype::CNAME && is_signature;
            if record.class != class::IN || !is_of_use {
                continue;
            }
            let owner = name_at(message, record.owner_offset)?;
            let is_its_own = if covered == rtype::CNAME {
                owner == name
            } else {
                owner.len() < name.len() && is_within(name, &owner) && is_within(&owner, sent.zone)
            };
            // Neither type may contain compressed names (RFC 4034, section 3.1.7, and RFC 6672,
            // section 2.5).
            if is_its_own {
                self.add(&owner, &record, data);
            }
        }
        Some(())
    }

    fn add(&mut self, owner: &[u8], record: &Record, data: &[u8]) {
        self.records.extend_from_slice(owner);
        self.records.extend_from_slice(&record.rtype.to_be_bytes());
        self.records.extend_from_slice(&class::IN.to_be_bytes());
        self.records.extend_from_slice(&record.ttl_s().to_be_bytes());
        self.records.extend_from_slice(&(data.len() as u16).to_be_bytes());
        self.records.extend_from_slice(data);
        self.record_count += 1;
    }

    fn into_aliases(self, target: Vec<u8>) -> Aliases {
        let Chain { records, record_count, count } = self;
        Aliases { target, records, record_count, count }
    }
}

/// The authority section, for one name.
enum Authority {
    /// The SOA of this zone.
    Soa,
    /// Servers of a zone below, whose name has this length.
    Delegation(usize),
    Nothing,
}

impl Authority {
    fn read(message: &Message<'_>, sent: &SentQuery<'_>, name: &[u8]) -> Option<Authority> {
        let mut found = Authority::Nothing;
        for record in message.records_through(Section::Authority) {
            let record = record.ok()?;
            let is_of_use = record.section == Section::Authority && record.class == class::IN;
            if !is_of_use || !matches!(record.rtype, rtype::SOA | rtype::NS) {
                continue;
            }
            let owner = name_at(message, record.owner_offset)?;
            if !is_within(&owner, sent.zone) || !is_within(name, &owner) {
                continue;
            }
            if record.rtype == rtype::SOA {
                return Some(Authority::Soa);
            }
            if owner.len() > sent.zone.len() {
                found = Authority::Delegation(owner.len());
            }
        }
        Some(found)
    }
}

/// The referral to a zone below.
fn referral(
    message: &Message<'_>,
    sent: &SentQuery<'_>,
    zone_bytes: usize,
    may_query: impl Fn(IpAddr) -> bool,
) -> Option<Referral> {
    let zone = &sent.name[sent.name.len() - zone_bytes..];
    let (servers, ttl_s) = servers(message, sent.zone, zone, may_query)?;
    Some(Referral { zone_bytes, ttl_s, servers })
}

/// The servers that a zone itself names, in an authoritative response of one of its servers.
pub fn own_servers(
    bytes: &[u8],
    zone: &[u8],
    may_query: impl Fn(IpAddr) -> bool,
) -> Vec<Nameserver> {
    let Ok(message) = Message::parse(bytes) else { return Vec::new() };
    let has_aa = message.bytes()[2] & 4 != 0;
    let found = if has_aa { servers(&message, zone, zone, may_query) } else { None };
    found.map(|(servers, _)| servers).unwrap_or_default()
}

/// The servers of `zone` and their TTL, seconds, in a response of a server of `server_zone`.
fn servers(
    message: &Message<'_>,
    server_zone: &[u8],
    zone: &[u8],
    may_query: impl Fn(IpAddr) -> bool,
) -> Option<(Vec<Nameserver>, u32)> {
    let (mut servers, mut ttl_s) = (Vec::<Nameserver>::new(), u32::MAX);
    for record in message.records() {
        let record = record.ok()?;
        if record.class != class::IN {
            continue;
        }
        match (record.section, record.rtype) {
            (Section::Authority, rtype::NS) if is_owner(message, &record, zone) => {
                let name = name_at(message, rdata::name_offset(message, &record, 0).ok()?)?;
                ttl_s = ttl_s.min(record.ttl_s());
                if servers.len() < SERVERS_MAX {
                    servers.push(Nameserver { name: name.into(), addresses: Vec::new() });
                }
            }
            (Section::Additional, rtype::A | rtype::AAAA) => {
                // A server is authoritative only for names in its own zone.
                let Some(address) = address(message, &record).filter(|it| may_query(*it)) else {
                    continue;
                };
                let server = servers.iter_mut().find(|server| {
                    is_within(&server.name, server_zone) && is_owner(message, &record, &server.name)
                });
                if let Some(server) = server.filter(|it| it.addresses.len() < ADDRESSES_MAX) {
                    server.addresses.push(address);
                }
            }
            _ => {}
        }
    }
    Some((servers, ttl_s))
}

fn address(message: &Message<'_>, record: &Record) -> Option<IpAddr> {
    let bytes = message.rdata(record);
    match record.rtype {
        rtype::A => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

/// True if a message is NXDOMAIN.
pub fn is_denial(bytes: &[u8]) -> bool {
    Message::parse(bytes).is_ok_and(|message| u16::from(message.rcode()) == rcode::NXDOMAIN)
}

/// The addresses that a response has for its name and `may_query` accepts, and their TTL, seconds.
pub fn addresses(
    bytes: &[u8],
    name: &[u8],
    may_query: impl Fn(IpAddr) -> bool,
) -> (Vec<IpAddr>, u32) {
    let mut found = (Vec::new(), u32::MAX);
    let Ok(message) = Message::parse(bytes) else { return found };
    for record in message.answers().map_while(Result::ok) {
        let is_address = matches!(record.rtype, rtype::A | rtype::AAAA);
        if !is_address || found.0.len() == ADDRESSES_MAX || !is_owner(&message, &record, name) {
            continue;
        }
        if let Some(address) = address(&message, &record).filter(|it| may_query(*it)) {
            found.0.push(address);
            found.1 = found.1.min(record.ttl_s());
        }
    }
    found
}
