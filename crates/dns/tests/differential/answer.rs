//! The response to a query, as its name describes it (`shape.rs`); a function of the query alone.
//!
//! A response has only what a recursive upstream may send: the complete chain of aliases, the
//! records at its end, and RA. Two names are the same in every response of a zone: its `ns.` and
//! `mail.`. So their records are the same too.

use std::collections::HashMap;

use super::shape::{Flag, Kind, Name, Shape};

/// The type numbers that the responses need.
pub mod rtype {
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const HINFO: u16 = 13;
    pub const MX: u16 = 15;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const DNAME: u16 = 39;
    pub const OPT: u16 = 41;
    pub const DS: u16 = 43;
    pub const SSHFP: u16 = 44;
    pub const RRSIG: u16 = 46;
    pub const NSEC: u16 = 47;
    pub const DNSKEY: u16 = 48;
    pub const TLSA: u16 = 52;
    pub const SVCB: u16 = 64;
    pub const HTTPS: u16 = 65;
    pub const ANY: u16 = 255;
    pub const CAA: u16 = 257;
}

/// A query, as the upstream reads it.
#[derive(Debug, Clone)]
pub struct UpstreamQuery {
    /// The name, in the case of the query.
    name: Name,
    qtype: u16,
    qclass: u16,
    id: [u8; 2],
    flags: u8,
    /// Size and DO, with EDNS.
    edns: Option<(u16, bool)>,
}

impl UpstreamQuery {
    /// Reads a query; `None` if the message is not one.
    pub fn read(message: &[u8]) -> Option<UpstreamQuery> {
        let header = message.first_chunk::<12>()?;
        let (name, end) = Name::read(message, 12)?;
        let fixed = message.get(end..end + 4)?;
        let opt = message.get(end + 4..end + 15).filter(|opt| opt[..3] == [0, 0, 41]);
        Some(UpstreamQuery {
            name,
            qtype: u16::from_be_bytes([fixed[0], fixed[1]]),
            qclass: u16::from_be_bytes([fixed[2], fixed[3]]),
            id: [header[0], header[1]],
            flags: header[2],
            edns: opt.map(|opt| (u16::from_be_bytes([opt[3], opt[4]]), opt[7] & 0x80 != 0)),
        })
    }

    /// The largest response over UDP.
    pub fn udp_bytes_max(&self) -> usize {
        self.edns.map_or(512, |(size, _)| usize::from(size.max(512)))
    }

    /// True if the name requires TCP.
    pub fn is_truncated(&self) -> bool {
        self.name.shape().0.has(Flag::Truncated)
    }

    /// The response truncated to its question, with TC.
    pub fn truncated(&self) -> Vec<u8> {
        let mut message = Message::begin(self, 2, 0);
        message.end(self, None)
    }

    /// The complete response.
    pub fn answer(&self) -> Vec<u8> {
        let (shape, at) = self.name.shape();
        let aa = if shape.has(Flag::Authoritative) { 4 } else { 0 };
        let ad = if shape.has(Flag::Authentic) { 0x20 } else { 0 };
        let mut message = Message::begin(self, aa, ad);
        message.is_compressed = !shape.has(Flag::Uncompressed);
        message.is_mixed = shape.has(Flag::MixedCase);
        if self.qclass != 1 {
            message.bytes[3] |= 5;
        } else {
            self.write_sections(&mut message, &shape, at);
        }
        let has_opt = self.edns.is_some() && !shape.has(Flag::NoOpt);
        message.end(self, has_opt.then_some(shape.extended_error))
    }

    fn write_sections(&self, message: &mut Message, shape: &Shape, at: usize) {
        let dnssec = shape.has(Flag::Signed) && self.edns.is_some_and(|(_, dnssec_ok)| dnssec_ok);
        let ttl_s = shape.ttl_s;
        let zone = self.name.lower().skip_labels(at + 1);
        let mut owner = self.name.lower();
        let mut shape = shape.clone();
        let mut answers = Vec::new();

        // A query for the alias itself does not follow it, and finds no other type at that name.
        let leads_on = !matches!(self.qtype, rtype::CNAME | rtype::ANY);
        if shape.has(Flag::Dname) && at > 0 {
            let dname = owner.skip_labels(at);
            shape.clear(Flag::Dname);
            let target = owner.with_shape(at, &shape);
            answers.push(set(
                &dname,
                rtype::DNAME,
                ttl_s,
                vec![raw(target.skip_labels(at).wire())],
            ));
            let made = set(&owner, rtype::CNAME, ttl_s, vec![named(&target)]);
            answers.push(Set { is_signed: false, ..made });
            owner = target;
        }
        while shape.aliases > 0 && (leads_on || answers.is_empty()) {
            shape.aliases -= 1;
            let target = owner.with_shape(at, &shape);
            answers.push(set(&owner, rtype::CNAME, ttl_s, vec![named(&target)]));
            owner = target;
        }
        let has_type = match self.qtype {
            0 | rtype::CNAME | rtype::OPT => false,
            rtype::DNAME => shape.has(Flag::Dname),
            _ => true,
        };
        let kind = match shape.kind {
            Kind::Data if !leads_on && !answers.is_empty() => Kind::Empty,
            Kind::NoData | Kind::NoName if !leads_on && !answers.is_empty() => Kind::Empty,
            Kind::Data if !has_type => Kind::NoData,
            kind => kind,
        };
        let mut authority = Vec::new();
        let mut additional = Vec::new();
        let (ns, mail) = (zone.child(b"ns"), zone.child(b"mail"));
        let qtype = if self.qtype == rtype::ANY { rtype::A } else { self.qtype };
        match kind {
            Kind::Data => {
                let records = if is_single(qtype) { 1 } else { shape.records };
                let data = (0..records).map(|n| data(qtype, n, &shape, &zone));
                answers.push(set(&owner, qtype, ttl_s, data.collect()));
                if shape.has(Flag::Extra) {
                    authority.push(set(&zone, rtype::NS, 7_200, vec![named(&ns)]));
                    additional.push(set(&ns, rtype::A, 7_200, vec![raw([192, 0, 2, 53])]));
                    additional.push(set(&mail, rtype::A, 7_200, vec![raw([192, 0, 2, 25])]));
                }
                if dnssec && shape.has(Flag::Wildcard) {
                    authority.push(set(&zone, rtype::NSEC, 900, vec![nsec(&zone)]));
                }
            }
            Kind::NoData | Kind::NoName => {
                if kind == Kind::NoName {
                    message.bytes[3] |= 3;
                }
                if !shape.has(Flag::NoSoa) {
                    let soa = vec![soa(&zone, shape.minimum_s)];
                    authority.push(set(&zone, rtype::SOA, ttl_s, soa));
                    if dnssec {
                        authority.push(set(&zone, rtype::NSEC, ttl_s, vec![nsec(&zone)]));
                    }
                }
            }
            Kind::Code(code) => {
                message.bytes[3] |= code & 15;
                answers.clear();
            }
            Kind::Referral => {
                let child = owner.skip_labels(at);
                authority.push(set(&child, rtype::NS, ttl_s, vec![named(&child.child(b"ns"))]));
                let address = vec![raw([192, 0, 2, 54])];
                additional.push(set(&child.child(b"ns"), rtype::A, ttl_s, address));
            }
            Kind::Empty => {}
        }
        if shape.has(Flag::Unrelated) {
            answers.push(set(&mail, rtype::A, 7_200, vec![raw([192, 0, 2, 25])]));
        }
        if shape.has(Flag::Reversed) {
            answers.reverse();
        }
        let is_twice = shape.has(Flag::Twice);
        for (section, sets) in [answers, authority, additional].iter().enumerate() {
            for set in sets {
                let repeats = if section == 0 && is_twice { 2 } else { 1 };
                for data in set.data.iter().cycle().take(repeats * set.data.len()) {
                    message.record(section, set, data);
                }
                if dnssec && set.is_signed && set.rtype != rtype::RRSIG && section < 2 {
                    let signature = Set { rtype: rtype::RRSIG, ..set.clone() };
                    message.record(section, &signature, &signed(set, &zone));
                }
            }
        }
    }
}

/// Parts of data: bytes, and names that may be compressed.
#[derive(Debug, Clone)]
enum Part {
    Raw(Vec<u8>),
    Name(Name),
}

type Data = Vec<Part>;

/// Records of one owner and type.
#[derive(Debug, Clone)]
struct Set {
    owner: Name,
    rtype: u16,
    ttl_s: u32,
    data: Vec<Data>,
    /// No server signs the CNAME that a DNAME synthesizes (RFC 6672, section 5.3.1).
    is_signed: bool,
}

/// A name has at most one record of these types.
fn is_single(qtype: u16) -> bool {
    matches!(qtype, rtype::SOA | rtype::DNAME | rtype::NSEC | rtype::RRSIG)
}

fn set(owner: &Name, rtype: u16, ttl_s: u32, data: Vec<Data>) -> Set {
    Set { owner: owner.clone(), rtype, ttl_s, data, is_signed: true }
}

fn raw(bytes: impl Into<Vec<u8>>) -> Data {
    vec![Part::Raw(bytes.into())]
}

fn named(name: &Name) -> Data {
    vec![Part::Name(name.clone())]
}

fn soa(zone: &Name, minimum_s: u32) -> Data {
    let numbers = [2_026_112_201, 7_200, 900, 1_209_600, minimum_s];
    let (primary, mailbox) = (zone.child(b"ns"), zone.child(b"host.master"));
    let numbers = numbers.iter().flat_map(|n: &u32| n.to_be_bytes()).collect();
    vec![Part::Name(primary), Part::Name(mailbox), Part::Raw(numbers)]
}

/// The next name, and a window of types: A and RRSIG.
fn nsec(zone: &Name) -> Data {
    raw([zone.child(b"zzz").wire(), vec![0, 6, 0x40, 0, 0, 0, 0, 2]].concat())
}

/// A signature that is not valid: neither server validates it.
fn signed(set: &Set, zone: &Name) -> Data {
    let covered = set.rtype.to_be_bytes();
    let times = [set.ttl_s, 1_900_000_000, 1_700_000_000];
    let times: Vec<u8> = times.iter().flat_map(|time| time.to_be_bytes()).collect();
    let labels = set.owner.0.len() as u8;
    raw([&covered[..], &[13, labels], &times, &[0x12, 0x34], &zone.wire(), &[0x5a; 64]].concat())
}

/// The data of record `n` of a type.
fn data(qtype: u16, n: u16, shape: &Shape, zone: &Name) -> Data {
    let [high, low] = n.to_be_bytes();
    let target = zone.child(format!("host{n}").as_bytes());
    let number = shape.number.to_be_bytes();
    match qtype {
        rtype::A => raw([198, 51, high ^ number[3], low]),
        rtype::AAAA => {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
            address[8..12].copy_from_slice(&number);
            address[14..].copy_from_slice(&[high, low]);
            raw(address)
        }
        rtype::NS | rtype::CNAME | rtype::PTR => named(&target),
        rtype::DNAME => raw(target.wire()),
        rtype::SOA => soa(zone, shape.minimum_s),
        rtype::MX => vec![Part::Raw(vec![high, low]), Part::Name(target)],
        rtype::SRV => raw([vec![0, 1, high, low, 1, 187], target.wire()].concat()),
        rtype::HINFO => {
            raw([vec![3], b"cpu".to_vec(), vec![2], vec![b'o', b'a' + low % 26]].concat())
        }
        rtype::SVCB | rtype::HTTPS => {
            let port = [0, 3, 0, 2, 1, 187, 0, 4, 0, 4, 192, 0, 2, low];
            raw([vec![0, low.max(1)], target.wire(), port.to_vec()].concat())
        }
        rtype::CAA => raw([&[0, 5][..], b"issue", format!("ca{n}.example").as_bytes()].concat()),
        rtype::SSHFP => raw([vec![4, 2], vec![low; 32]].concat()),
        rtype::TLSA => raw([vec![3, 1, 1], vec![low; 32]].concat()),
        rtype::DS => raw([vec![high, low, 13, 2], vec![low; 32]].concat()),
        rtype::DNSKEY => raw([vec![1, 1, 3, 13], vec![low; 64]].concat()),
        rtype::NSEC => nsec(zone),
        rtype::RRSIG => signed(&set(zone, rtype::A, shape.ttl_s, Vec::new()), zone),
        // TXT, and unknown types.
        _ => {
            let letter = b'a' + (n % 26) as u8;
            let text = vec![letter; usize::from(shape.text_bytes)];
            let strings = text.chunks(255).flat_map(|part| {
                std::iter::once(part.len() as u8).chain(part.iter().copied()).collect::<Vec<_>>()
            });
            raw([strings.collect(), vec![2, high | 1, low]].concat())
        }
    }
}

/// A message that is being built.
struct Message {
    bytes: Vec<u8>,
    counts: [u16; 3],
    /// Offsets of names, in lower case.
    places: HashMap<Vec<u8>, u16>,
    is_compressed: bool,
    is_mixed: bool,
}

impl Message {
    fn begin(query: &UpstreamQuery, flags: u8, low: u8) -> Message {
        let mut message = Message {
            bytes: vec![query.id[0], query.id[1], 0x80 | query.flags & 1 | flags, 0x80 | low, 0, 1],
            counts: [0; 3],
            places: HashMap::new(),
            is_compressed: true,
            is_mixed: false,
        };
        message.bytes.resize(12, 0);
        message.name(&query.name);
        message.bytes.extend_from_slice(&query.qtype.to_be_bytes());
        message.bytes.extend_from_slice(&query.qclass.to_be_bytes());
        message
    }

    fn name(&mut self, name: &Name) {
        for at in 0..name.0.len() {
            let rest = name.skip_labels(at).lower().wire();
            if let (true, Some(place)) = (self.is_compressed, self.places.get(&rest)) {
                self.bytes.extend_from_slice(&(0xc000 | place).to_be_bytes());
                return;
            }
            if let Ok(place @ ..0x4000) = u16::try_from(self.bytes.len()) {
                self.places.insert(rest, place);
            }
            self.bytes.push(name.0[at].len() as u8);
            self.bytes.extend_from_slice(&name.0[at]);
        }
        self.bytes.push(0);
    }

    fn record(&mut self, section: usize, set: &Set, data: &Data) {
        self.counts[section] += 1;
        if self.is_mixed {
            let owner = set.owner.mixed().wire();
            self.bytes.extend_from_slice(&owner);
        } else {
            self.name(&set.owner);
        }
        self.bytes.extend_from_slice(&set.rtype.to_be_bytes());
        self.bytes.extend_from_slice(&[0, 1]);
        self.bytes.extend_from_slice(&set.ttl_s.to_be_bytes());
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        for part in data {
            match part {
                Part::Raw(bytes) => self.bytes.extend_from_slice(bytes),
                Part::Name(name) => self.name(name),
            }
        }
        let length = (self.bytes.len() - at - 2) as u16;
        self.bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }

    /// Adds OPT if requested, with an extended error if there is one.
    fn end(&mut self, query: &UpstreamQuery, opt: Option<Option<u16>>) -> Vec<u8> {
        if let Some(error) = opt {
            let dnssec_ok = query.edns.is_some_and(|(_, dnssec_ok)| dnssec_ok);
            let option = error.map_or(Vec::new(), |code| {
                [&[0, 15, 0, 6][..], &code.to_be_bytes(), b"text"].concat()
            });
            self.counts[2] += 1;
            let flags = u8::from(dnssec_ok) << 7;
            self.bytes.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, flags, 0, 0]);
            self.bytes.push(option.len() as u8);
            self.bytes.extend_from_slice(&option);
        }
        for (at, count) in self.counts.iter().enumerate() {
            self.bytes[6 + 2 * at..8 + 2 * at].copy_from_slice(&count.to_be_bytes());
        }
        std::mem::take(&mut self.bytes)
    }
}
