//! The operator's policy: access rules, and queries that get a local response.
//!
//! ```text
//! Builder   lines of settings and files go in; a mistake is an error that names it
//! Policy    immutable; shared by Arc, replaced as a whole on reload, with a new generation
//! ```
//!
//! [`load()`] makes one from settings and files. Responses of upstreams do not depend on the policy
//! and stay in the cache after it. Before a core serves a response that is older than the policy,
//! it calls [`Policy::answers`].
//!
//! The first of these sources that has something for a name decides:
//!
//! 1. hosts files ([`Builder::hosts`]),
//! 2. local records and zones ([`Builder::local`]),
//! 3. unless the name is on an allowlist: blocklists, then response policy zones in their order,
//! 4. names of special use (RFC 6303, 6761 and others).
//!
//! Names of class CHAOS (`version.bind` and others) are refused unless a text was given. Other
//! classes are not served. ANY should be handled before (RFC 8482); here it is a type without
//! records.
//!
//! A view is a set of clients by network, with a number; 0 is all others. Files and lines apply to
//! the views that they are given for ([`Views`]).
//!
//! Invariants
//! 1. [`Policy::local`] writes a whole response of at most 2^14 bytes: a name has 8 KiB of records
//!    at most, and [`ALIASES_MAX`] aliases are followed.
//! 2. Hashes are keyed: no query and no file can make a lookup long.
//!
//! Cost: one pass over the name with a keyed hash of each suffix. Then one or two probes of each
//! table for each suffix whose number of labels occurs in it. With a million listed names that is
//! some tenths of a microsecond, most of it one or two cache misses (`examples/blocklist.rs`
//! measures it). Nothing is allocated, unless `answer` grows. A listed name takes 14.7 bytes in
//! addition to its wire form.

mod admit;
mod answer;
mod build;
mod error;
mod hosts;
mod lines;
mod lists;
mod load;
mod names;
mod records;
mod rpz;
mod special;
#[cfg(test)]
mod tests;
mod text;
mod zones;

use std::net::IpAddr;
use std::ops::Range;

use larder_wire::dns::{class, rtype};
use siphasher::sip::SipHasher13;

pub use admit::{ACCESS_DEFAULT, Admission, PREFIXES_MAX};
pub use build::{Builder, List};
pub use error::{Loaded, PolicyError};
pub use hosts::HOSTS_TTL_S;
pub use lines::{FILE_BYTES_MAX, LINE_BYTES_MAX};
pub use load::{PROBLEMS_MAX, PolicyOptions, Report, load};
pub use special::SPECIAL_TTL_S;
pub use zones::LOCAL_TTL_S;

use admit::Admissions;
use answer::{QUESTION_AT, Rcode, Writer};
use hosts::Data;
use names::{Names, Suffixes, Tops};
use records::{RecordRef, Records};
use rpz::Rpz;
use special::Special;
use zones::Zones;

/// Views, at most, with the one of all other clients.
pub const VIEWS_MAX: usize = 64;

/// Aliases followed within local data for one query.
pub const ALIASES_MAX: usize = 8;

/// TTL of a response that a name is blocked or does not exist, seconds.
pub const BLOCK_TTL_S: u32 = 60;

/// Extended errors (RFC 8914, section 4) of local responses.
#[allow(missing_docs)]
pub mod extended_error {
    pub const FORGED_ANSWER: u16 = 4;
    pub const BLOCKED: u16 = 15;
    pub const FILTERED: u16 = 17;
}

/// A set of views.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Views(u64);

impl Views {
    /// All views, also those that are named later.
    pub const ALL: Views = Views(u64::MAX);

    /// The views with these numbers; numbers that no view can have are ignored.
    pub fn of(numbers: &[u16]) -> Views {
        let bits = numbers.iter().filter(|&&number| usize::from(number) < VIEWS_MAX);
        Views(bits.fold(0, |set, number| set | 1 << number))
    }

    /// True if the view is in the set.
    #[inline]
    pub fn has(self, view: u16) -> bool {
        usize::from(view) < VIEWS_MAX && self.0 >> view & 1 == 1
    }
}

/// The response for a blocked name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockAnswer {
    /// NXDOMAIN.
    #[default]
    NxDomain,
    /// The addresses 0.0.0.0 and ::, and nothing else: programs fail at once.
    Zero,
    /// REFUSED: many clients then query another resolver.
    Refused,
}

/// Whose wish a list is. It decides the extended error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reason {
    /// The operator: Blocked (15).
    #[default]
    Operator,
    /// The clients of the view themselves: Filtered (17).
    Client,
}

/// The source of a response, for counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A hosts file.
    Hosts,
    /// Local records and zones.
    Zones,
    /// A blocklist.
    Block {
        /// Its number, [`Loaded::number`].
        list: u16,
    },
    /// A response policy zone.
    Rpz {
        /// Its number, [`Loaded::number`].
        zone: u16,
    },
    /// A name of special use.
    Special,
    /// Class CHAOS.
    Chaos,
}

/// A local response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// Its source.
    pub source: Source,
    /// The query gets no response; nothing was written.
    pub is_dropped: bool,
    /// The extended error to add, for clients with EDNS.
    pub extended_error: Option<u16>,
    /// The response ends in an alias to a name outside of local data. The range is the place of
    /// that name, in wire form, in the message. Query an upstream for it, and append its response.
    pub alias: Option<Range<usize>>,
}

/// A source's data for a name. `zone` is the number of labels of the zone that decides.
enum Outcome<'p> {
    /// Its records; no records of the type mean no data.
    Records {
        records: &'p Records,
        chain: u32,
        zone: usize,
        soa: Option<RecordRef<'p>>,
    },
    NoData {
        zone: usize,
    },
    NxDomain {
        zone: usize,
        soa: Option<RecordRef<'p>>,
    },
    /// The name of a zone without records.
    Apex {
        zone: usize,
    },
    Refused,
    Drop,
}

/// The decision of the first source that has something for a name.
struct Decision<'p> {
    source: Source,
    outcome: Outcome<'p>,
    /// The extended error, if it blocks clients.
    blocked: Option<u16>,
}

/// The parts of a query.
struct Query<'a> {
    name: Suffixes<'a>,
    qtype: u16,
}

/// Blocklists with the same views and the same response.
#[derive(Debug)]
struct Block {
    list: List,
    names: Names,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Policy {
    generation: u32,
    key: SipHasher13,
    /// The last labels of all names in any source.
    tops: Tops,
    admissions: Admissions,
    views: Vec<String>,
    views_mark: u32,
    hosts: Vec<(Views, Data)>,
    zones: Vec<(Views, Zones)>,
    allowed: Vec<(Views, Names)>,
    blocked: Vec<Block>,
    rpz: Vec<(Views, Rpz)>,
    special: Special,
    chaos: Data,
    /// The records of a blocked name with [`BlockAnswer::Zero`].
    zero: (Records, u32),
}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Policy>();
};

impl Policy {
    /// The generation given to [`Builder::new`].
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The names of views, by number.
    pub fn views(&self) -> &[String] {
        &self.views
    }

    /// A hash of the names of views in their order, the same in every run of the program; 0 without
    /// views. It is part of cache keys, so that a view's number means the same view there after any
    /// change of settings.
    pub fn views_mark(&self) -> u32 {
        self.views_mark
    }

    /// Names on blocklists, and the bytes that they take.
    pub fn blocked(&self) -> (usize, usize) {
        let sum = |sum: (usize, usize), block: &Block| {
            (sum.0 + block.names.len(), sum.1 + block.names.bytes())
        };
        self.blocked.iter().fold((0, 0), sum)
    }

    /// Whether a client is served. Cost: a binary search.
    #[inline]
    pub fn admit(&self, client: IpAddr) -> Admission {
        self.admissions.of(client)
    }

    /// True if no source has anything for a name, in wire form and any case. This is so for nearly
    /// all names, and costs less than [`Policy::local`].
    #[inline]
    pub fn is_silent(&self, name: &[u8], qclass: u16) -> bool {
        qclass == class::IN && !self.tops.may_have(name)
    }

    /// True if [`Policy::local`] has a response to a query of class IN, or drops it. Cost: that of
    /// the lookups.
    pub fn answers(&self, view: u16, question: &[u8]) -> bool {
        let Some((name, &[t0, t1, c0, c1])) = question.split_last_chunk::<4>() else {
            return false;
        };
        let qtype = u16::from_be_bytes([t0, t1]);
        let name = Suffixes::new(name, &self.key).filter(|_| [c0, c1] == class::IN.to_be_bytes());
        name.is_some_and(|name| self.decide(view, &Query { name, qtype }).is_some())
    }

    /// Writes the local response to a query into `answer`, whose content it replaces. `None`: query
    /// an upstream.
    ///
    /// `question` is name, in wire form and lower case, type and class; anything else gets `None`.
    /// The response has the ID 0, QR and RA, and AA for local data; the server sets ID, RD and CD
    /// of the client.
    pub fn local(&self, view: u16, question: &[u8], answer: &mut Vec<u8>) -> Option<Local> {
        let (name, &[t0, t1, c0, c1]) = question.split_last_chunk::<4>()?;
        let qtype = u16::from_be_bytes([t0, t1]);
        let query = Query { name: Suffixes::new(name, &self.key)?, qtype };
        let Decision { source, outcome, blocked } = match u16::from_be_bytes([c0, c1]) {
            class::IN => self.decide(view, &query)?,
            class::CH => {
                let outcome = records_of(&self.chaos, &query).unwrap_or(Outcome::Refused);
                Decision { source: Source::Chaos, outcome, blocked: None }
            }
            _ => return None,
        };
        if matches!(outcome, Outcome::Drop) {
            return Some(Local { source, is_dropped: true, extended_error: None, alias: None });
        }
        let is_own = !matches!(source, Source::Block { .. } | Source::Rpz { .. });
        let negative_s = if source == Source::Special { SPECIAL_TTL_S } else { BLOCK_TTL_S };
        let mut writer = Writer::new(answer, question);
        let (rcode, alias) = self.write(view, query, outcome, negative_s, &mut writer);
        // RFC 8914 (section 4.5) has an error of its own for responses with forged records.
        let has_answer = writer.has_answer();
        let extended_error =
            blocked.map(|code| if has_answer { extended_error::FORGED_ANSWER } else { code });
        writer.finish(is_own && rcode != Rcode::Refused, rcode);
        Some(Local { source, is_dropped: false, extended_error, alias })
    }

    /// The decision for a name of class IN, by the first source that has something.
    fn decide(&self, view: u16, query: &Query<'_>) -> Option<Decision<'_>> {
        let mut passed = 0;
        if let Some(own) = self.own(view, query, &mut passed) {
            return Some(own);
        }
        let (name, labels) = (&query.name, query.name.labels());
        let is_allowed = self
            .allowed
            .iter()
            .any(|(views, names)| views.has(view) && names.longest(name, labels).is_some());
        let blocked = if is_allowed { None } else { self.block(view, query) };
        blocked.or_else(|| {
            let outcome = self.special.say(query, passed)?;
            Some(Decision { source: Source::Special, outcome, blocked: None })
        })
    }

    /// The decision of hosts files and local zones.
    fn own(&self, view: u16, query: &Query<'_>, passed: &mut usize) -> Option<Decision<'_>> {
        for (_, hosts) in self.hosts.iter().filter(|(views, _)| views.has(view)) {
            if let Some(outcome) = records_of(hosts, query) {
                return Some(Decision { source: Source::Hosts, outcome, blocked: None });
            }
        }
        for (_, zones) in self.zones.iter().filter(|(views, _)| views.has(view)) {
            let (outcome, blocked) = match zones.say(query) {
                zones::Said::Own(outcome) => (outcome, None),
                zones::Said::Blocked(outcome) => (outcome, Some(extended_error::BLOCKED)),
                zones::Said::Pass(labels) => {
                    *passed = (*passed).max(labels);
                    continue;
                }
            };
            return Some(Decision { source: Source::Zones, outcome, blocked });
        }
        None
    }

    /// The decision of blocklists and response policy zones.
    fn block(&self, view: u16, query: &Query<'_>) -> Option<Decision<'_>> {
        let name = &query.name;
        for Block { list, names } in self.blocked.iter().filter(|each| each.list.views.has(view)) {
            let Some((zone, number)) = names.longest(name, name.labels()) else { continue };
            let outcome = match list.answer {
                BlockAnswer::NxDomain => Outcome::NxDomain { zone, soa: None },
                BlockAnswer::Refused => Outcome::Refused,
                BlockAnswer::Zero => {
                    let (records, chain) = (&self.zero.0, self.zero.1);
                    Outcome::Records { records, chain, zone, soa: None }
                }
            };
            let blocked = match list.reason {
                Reason::Operator => extended_error::BLOCKED,
                Reason::Client => extended_error::FILTERED,
            };
            let source = Source::Block { list: number as u16 };
            return Some(Decision { source, outcome, blocked: Some(blocked) });
        }
        let zones = (0_u16..).zip(&self.rpz).filter(|(_, (views, _))| views.has(view));
        for (number, (_, rpz)) in zones {
            match rpz.say(query) {
                None => {}
                Some(rpz::Said::Passthru) => break,
                Some(rpz::Said::Outcome(outcome)) => {
                    let (source, blocked) = (Source::Rpz { zone: number }, extended_error::BLOCKED);
                    return Some(Decision { source, outcome, blocked: Some(blocked) });
                }
            }
        }
        None
    }

    /// Writes the response, and follows aliases within local data. Returns how it ends, and where
    /// the name is that an upstream must be queried for.
    fn write<'p>(
        &'p self,
        view: u16,
        query: Query<'_>,
        first: Outcome<'p>,
        negative_s: u32,
        writer: &mut Writer<'_>,
    ) -> (Rcode, Option<Range<usize>>) {
        let qtype = query.qtype;
        let mut end = write_name(&query, QUESTION_AT, first, negative_s, writer);
        for _ in 0..ALIASES_MAX {
            let Ended::Alias { at, target } = end else { break };
            let name = Suffixes::new(target, &self.key).expect("data of an alias is a name");
            let query = Query { name, qtype };
            match self.own(view, &query, &mut 0) {
                Some(next) => end = write_name(&query, at, next.outcome, negative_s, writer),
                None => return (Rcode::NoError, Some(at..at + target.len())),
            }
        }
        match end {
            Ended::Code(rcode) => (rcode, None),
            // Too many aliases: the response has those that were followed.
            Ended::Alias { .. } => (Rcode::NoError, None),
        }
    }
}

/// How the records of a name end.
enum Ended<'p> {
    Code(Rcode),
    /// In an alias whose data is at this byte of the message.
    Alias {
        at: usize,
        target: &'p [u8],
    },
}

/// Writes the records of a name that is at `owner_at`.
fn write_name<'p>(
    query: &Query<'_>,
    owner_at: usize,
    outcome: Outcome<'p>,
    negative_s: u32,
    writer: &mut Writer<'_>,
) -> Ended<'p> {
    let (rcode, zone, soa) = match outcome {
        Outcome::Records { records, chain, zone, soa } => {
            let mut any = false;
            for record in records.chain(chain) {
                if record.rtype == query.qtype {
                    writer.answer(owner_at, record);
                    any = true;
                } else if record.rtype == rtype::CNAME {
                    let at = writer.answer(owner_at, record);
                    return Ended::Alias { at, target: record.data };
                }
            }
            if any {
                return Ended::Code(Rcode::NoError);
            }
            (Rcode::NoError, zone, soa)
        }
        Outcome::NoData { zone } => (Rcode::NoError, zone, None),
        Outcome::NxDomain { zone, soa } => (Rcode::NxDomain, zone, soa),
        Outcome::Apex { zone } => {
            let zone_at = owner_at + query.name.start(zone);
            let soa = Writer::soa(zone_at, negative_s);
            // The zone is its own name server: the name with which the data of SOA begins.
            let data: Option<&[u8]> = match query.qtype {
                rtype::SOA => Some(&soa),
                rtype::NS => Some(&soa[..2]),
                _ => None,
            };
            if let Some(data) = data {
                let record = RecordRef { rtype: query.qtype, ttl_s: negative_s, data };
                writer.answer(owner_at, record);
                return Ended::Code(Rcode::NoError);
            }
            (Rcode::NoError, zone, None)
        }
        Outcome::Refused | Outcome::Drop => return Ended::Code(Rcode::Refused),
    };
    let zone_at = owner_at + query.name.start(zone);
    match soa {
        Some(soa) => {
            // A negative response is cached for the lower of both (RFC 2308, section 3).
            let minimum_s = soa.data.last_chunk().map_or(0, |&bytes| u32::from_be_bytes(bytes));
            writer.authority(zone_at, soa.ttl_s.min(minimum_s), soa.data);
        }
        None => writer.authority(zone_at, negative_s, &Writer::soa(zone_at, negative_s)),
    }
    Ended::Code(rcode)
}

/// The records of a name, if it has any of any type.
fn records_of<'p>(data: &'p Data, query: &Query<'_>) -> Option<Outcome<'p>> {
    let zone = query.name.labels();
    let chain = data.names.get(&query.name, zone)?;
    Some(Outcome::Records { records: &data.records, chain, zone, soa: None })
}
