//! Local records and zones, from lines of settings.
//!
//! ```text
//! NAME [TTL] TYPE DATA     a record, as in a zone file; names are absolute
//! zone NAME ACTION         applies to NAME and all names below it
//! ```
//!
//! | action | a name with records | another name |
//! |---|---|---|
//! | `static` | its records, or no data | NXDOMAIN |
//! | `transparent` | its records, or no data | is sent upstream |
//! | `redirect` | | has the records of NAME |
//! | `refuse` | its records of the type, or REFUSED | REFUSED |
//! | `nxdomain` | NXDOMAIN | NXDOMAIN |
//!
//! The innermost zone counts. Records outside of all zones are as in a transparent one. A name
//! above one with records in a static zone exists and has no data (RFC 8020).

use larder_wire::dns::rtype;
use siphasher::sip::SipHasher13;

use super::error::PolicyError;
use super::hosts::Data;
use super::names::{Full, Names, Suffixes, Tops};
use super::records::{EMPTY, RecordRef};
use super::text::{Context, Entry};
use super::{Outcome, Query};
use crate::name::WireName;

/// TTL of a record whose line has none, seconds.
pub const LOCAL_TTL_S: u32 = 3_600;

/// The action of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Static,
    Transparent,
    Redirect,
    Refuse,
    NxDomain,
}

/// Actions, by number.
const ACTIONS: [(&str, Action); 5] = [
    ("static", Action::Static),
    ("transparent", Action::Transparent),
    ("redirect", Action::Redirect),
    ("refuse", Action::Refuse),
    ("nxdomain", Action::NxDomain),
];

/// The result of zones for a name.
pub enum Said<'p> {
    /// Local data.
    Own(Outcome<'p>),
    /// An outcome that blocks a name which may exist elsewhere.
    Blocked(Outcome<'p>),
    /// Nothing. Names of special use of up to this many labels do not count either.
    Pass(usize),
}

/// Zones and records.
#[derive(Debug, Clone)]
pub struct Zones {
    actions: Names,
    data: Data,
}

impl Zones {
    /// No zones yet.
    pub fn new(key: SipHasher13) -> Zones {
        Zones { actions: Names::new(key), data: Data::new(key) }
    }

    /// Adds a line of settings.
    pub fn add(&mut self, key: &SipHasher13, setting: &str) -> Result<(), PolicyError> {
        let wrong = |problem: &dyn std::fmt::Display| PolicyError::setting(setting, problem);
        let mut entry = Entry::default();
        entry.feed(setting.trim().as_bytes()).map_err(|problem| wrong(&problem))?;
        let mut words = entry.tokens();
        if let (Some(b"zone"), Some(name), Some(action), None) =
            (words.next(), words.next(), words.next(), words.next())
        {
            let number = ACTIONS.iter().position(|(name, _)| name.as_bytes() == action);
            let number = number.ok_or_else(|| {
                wrong(&"a zone is one of static, transparent, redirect, refuse, nxdomain")
            })?;
            let name = WireName::parse(name, &WireName::ROOT).map_err(|error| wrong(&error))?;
            let name = Suffixes::new(name.as_bytes(), key).expect("a WireName is a name");
            return self
                .actions
                .put(&name, |_| Ok(number as u32))
                .map_err(|Full| PolicyError::Full { file: setting.into() });
        }
        let mut context = Context::new(WireName::ROOT, LOCAL_TTL_S);
        let record = context.read(&entry).map_err(|problem| wrong(&problem))?;
        let record =
            record.ok_or_else(|| wrong(&"write NAME TTL TYPE DATA or zone NAME ACTION"))?;
        let data = RecordRef { rtype: record.rtype, ttl_s: record.ttl_s, data: record.data };
        self.data.add(key, &record.owner, data).map_err(|rejection| wrong(&rejection))
    }

    /// Adds the names between records and their static zones, and frees spare memory.
    pub fn seal(&mut self, key: &SipHasher13) -> Result<(), Full> {
        // Each name adds the one above it, which is reached later, and adds the next.
        let mut at = 0;
        while let Some((name, next)) = self.data.names.walk(at) {
            at = next;
            let name = Suffixes::new(name.as_bytes(), key).expect("a WireName is a name");
            let Some((Action::Static, zone)) = self.zone(&name) else { continue };
            if name.labels() > zone {
                let above = Suffixes::new(name.name(name.labels() - 1), key);
                let above = above.expect("what ends a name is one");
                self.data.names.put(&above, |chain| Ok::<u32, Full>(chain.unwrap_or(EMPTY)))?;
            }
        }
        self.actions.seal();
        self.data.names.seal();
        Ok(())
    }

    /// The last labels of zones, and of names with records.
    pub fn tops(&self) -> Tops {
        self.actions.tops().or(self.data.names.tops())
    }

    fn zone(&self, name: &Suffixes<'_>) -> Option<(Action, usize)> {
        let (labels, number) = self.actions.longest(name, name.labels())?;
        Some((ACTIONS[number as usize].1, labels))
    }

    /// The result for a name and type.
    pub fn say(&self, query: &Query<'_>) -> Said<'_> {
        let name = &query.name;
        let chain = self.data.names.get(name, name.labels());
        let own = chain.filter(|&chain| chain != EMPTY);
        let records = |chain, zone| {
            let soa = self.soa(name, zone);
            Outcome::Records { records: &self.data.records, chain, zone, soa }
        };
        let Some((action, zone)) = self.zone(name) else {
            let outcome = own.map(|chain| records(chain, name.labels()));
            return outcome.map_or(Said::Pass(0), Said::Own);
        };
        match (action, own) {
            (Action::NxDomain, _) => Said::Blocked(Outcome::NxDomain { zone, soa: None }),
            (Action::Redirect, _) => {
                Said::Own(records(self.data.names.get(name, zone).unwrap_or(EMPTY), zone))
            }
            (Action::Refuse, Some(chain)) if self.has_type(chain, query.qtype) => {
                Said::Own(records(chain, zone))
            }
            (Action::Refuse, _) => Said::Blocked(Outcome::Refused),
            (Action::Static | Action::Transparent, Some(chain)) => Said::Own(records(chain, zone)),
            // The zone itself exists, and so do names in between.
            (Action::Static, None) if chain.is_some() || zone == name.labels() => {
                Said::Own(records(EMPTY, zone))
            }
            (Action::Static, None) => {
                Said::Own(Outcome::NxDomain { zone, soa: self.soa(name, zone) })
            }
            (Action::Transparent, None) => Said::Pass(zone),
        }
    }

    fn has_type(&self, chain: u32, qtype: u16) -> bool {
        let mut records = self.data.records.chain(chain);
        records.any(|record| record.rtype == qtype || record.rtype == rtype::CNAME)
    }

    fn soa(&self, name: &Suffixes<'_>, zone: usize) -> Option<RecordRef<'_>> {
        let chain = self.data.names.get(name, zone)?;
        self.data.records.chain(chain).find(|record| record.rtype == rtype::SOA)
    }
}
