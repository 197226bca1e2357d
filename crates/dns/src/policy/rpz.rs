//! Response policy zones: zone files whose records are rules.
//!
//! The owner of a rule is the name that it applies to, followed by the zone's own name. A rule for
//! a name applies to the name itself, one for `*.name` to all names below it. The rule for the name
//! itself precedes that of a star, and that of a longer star a shorter one.
//!
//! | data | means |
//! |---|---|
//! | `CNAME .` | NXDOMAIN |
//! | `CNAME *.` | no data |
//! | `CNAME rpz-passthru.` | this zone and those after it do not apply |
//! | `CNAME rpz-drop.` | no response |
//! | other records | these are its data |
//!
//! Rules about addresses and name servers (`rpz-ip`, `rpz-client-ip`, `rpz-nsip`, `rpz-nsdname`),
//! `rpz-tcp-only.`, and an alias to `*.name` are skipped and counted. Most of the former need
//! responses that are not known yet.

use std::io::Read;

use larder_wire::dns::rtype;
use siphasher::sip::SipHasher13;

use super::error::{Loaded, PolicyError};
use super::lines::{LINE_TOO_LONG, Lines};
use super::names::{Names, Suffixes, Tops};
use super::records::{EMPTY, RecordRef, Records, Rejection};
use super::text::{Context, Entry, Read as Rule};
use super::{Outcome, Query};
use crate::name::WireName;

/// TTL of rules in files without one, seconds.
const RULE_TTL_S: u32 = 60;

/// Last labels of rules that are not about a name.
const OTHER_TRIGGERS: [&[u8]; 4] = [b"rpz-ip", b"rpz-client-ip", b"rpz-nsip", b"rpz-nsdname"];

/// Numbers of rules without records. Chains have numbers below half of all.
const NXDOMAIN: u32 = u32::MAX;
const NODATA: u32 = u32::MAX - 1;
const PASSTHRU: u32 = u32::MAX - 2;
const DROP: u32 = u32::MAX - 3;

/// The result of a zone for a name.
pub enum Said<'p> {
    /// An outcome.
    Outcome(Outcome<'p>),
    /// No zone applies.
    Passthru,
}

/// A zone of rules.
#[derive(Debug, Clone)]
pub struct Rpz {
    /// Rules for a name itself, and for names below it.
    exact: Names,
    below: Names,
    records: Records,
}

impl Rpz {
    /// Without rules.
    pub fn new(key: SipHasher13) -> Rpz {
        Rpz { exact: Names::new(key), below: Names::new(key), records: Records::default() }
    }

    /// Reads a zone file of the zone `origin`.
    pub fn load<R: Read>(
        &mut self,
        key: &SipHasher13,
        origin: &WireName,
        lines: &mut Lines<'_, R>,
    ) -> Result<Loaded, PolicyError> {
        let mut loaded = Loaded::default();
        let mut context = Context::new(*origin, RULE_TTL_S);
        let mut entry = Entry::default();
        let zone = Suffixes::new(origin.as_bytes(), key).expect("a WireName is a name");
        // Where the entry began: an open parenthesis is noticed much later.
        let mut begun = 0;
        while let Some(line) = lines.next()? {
            if !entry.is_open() {
                begun = line.number;
            }
            let fed = match line.text {
                Some(text) => entry.feed(text).map_err(|problem| problem.to_string()),
                None => Err(LINE_TOO_LONG.into()),
            };
            if fed.is_ok() && entry.is_open() {
                continue;
            }
            let taken = match fed {
                Ok(()) => match context.read(&entry) {
                    Ok(None) => Ok(false),
                    Ok(Some(rule)) => self.add(key, &zone, &rule),
                    Err(problem) => Err(problem.to_string()),
                },
                Err(problem) => {
                    context.forget_owner();
                    Err(problem)
                }
            };
            match taken {
                Ok(taken) => loaded.taken += u64::from(taken),
                Err(problem) => loaded.skip(begun, problem),
            }
            entry.clear();
        }
        if entry.is_open() {
            loaded.skip(begun, "a closing parenthesis is missing");
        }
        self.exact.seal();
        self.below.seal();
        Ok(loaded)
    }

    /// Adds a record; false if it is not a rule but describes the zone.
    fn add(
        &mut self,
        key: &SipHasher13,
        zone: &Suffixes<'_>,
        rule: &Rule<'_>,
    ) -> Result<bool, String> {
        let labels = zone.labels();
        let (owner, zone) = (rule.owner.as_bytes(), zone.name(labels));
        if owner == zone {
            return Ok(false);
        }
        let owner = Suffixes::new(owner, key).expect("a WireName is a name");
        if owner.labels() <= labels || owner.name(labels) != zone {
            return Err("the name does not end in that of the zone".into());
        }
        let trigger = &owner.name(owner.labels())[..owner.start(labels)];
        let last = &owner.name(labels + 1)[1..];
        if OTHER_TRIGGERS.iter().any(|&kind| last.starts_with(kind) && last[kind.len()..] == *zone)
        {
            return Err("only rules about names of questions are taken".into());
        }
        let (names, trigger) = match trigger {
            [1, b'*', rest @ ..] => (&mut self.below, rest),
            trigger => (&mut self.exact, trigger),
        };
        let trigger = [trigger, &[0]].concat();
        let trigger = Suffixes::new(&trigger, key).expect("labels and the root are a name");
        let special = special(rule)?;
        let record = RecordRef { rtype: rule.rtype, ttl_s: rule.ttl_s, data: rule.data };
        names
            .put(&trigger, |there| match (special, there) {
                (Some(number), None) => Ok(number),
                (Some(number), Some(there)) if number == there => Ok(number),
                (None, None) => self.records.add(EMPTY, record),
                (None, Some(there)) if there <= u32::MAX / 2 => self.records.add(there, record),
                _ => Err(Rejection::Alias),
            })
            .map(|()| true)
            .map_err(|rejection| rejection.to_string())
    }

    /// The last labels of names with rules.
    pub fn tops(&self) -> Tops {
        self.exact.tops().or(self.below.tops())
    }

    /// The result for a name; `None` if no rule applies.
    pub fn say(&self, query: &Query<'_>) -> Option<Said<'_>> {
        let name = &query.name;
        let labels = name.labels();
        let exact = self.exact.get(name, labels).map(|rule| (labels, rule));
        let above = labels.checked_sub(1);
        let (zone, rule) = exact.or_else(|| self.below.longest(name, above?))?;
        Some(Said::Outcome(match rule {
            PASSTHRU => return Some(Said::Passthru),
            DROP => Outcome::Drop,
            NXDOMAIN => Outcome::NxDomain { zone, soa: None },
            NODATA => Outcome::NoData { zone },
            chain => Outcome::Records { records: &self.records, chain, zone, soa: None },
        }))
    }
}

/// The number of a rule without records.
fn special(rule: &Rule<'_>) -> Result<Option<u32>, String> {
    if rule.rtype != rtype::CNAME {
        return Ok(None);
    }
    match rule.data {
        b"\0" => Ok(Some(NXDOMAIN)),
        b"\x01*\0" => Ok(Some(NODATA)),
        b"\x0crpz-passthru\0" => Ok(Some(PASSTHRU)),
        b"\x08rpz-drop\0" => Ok(Some(DROP)),
        b"\x0crpz-tcp-only\0" => Err("rpz-tcp-only is not done here".into()),
        [1, b'*', ..] => Err("an alias to a star is not done here".into()),
        _ => Ok(None),
    }
}
