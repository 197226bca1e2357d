//! Finds the records of an answer section that belong to the query: the aliases from the query name
//! on, and the queried data at their end.
//!
//! An alias is a CNAME of the last name so far, or a DNAME above it (RFC 6672), the first of both;
//! the name derived from a DNAME is used even if the CNAME that comes with it (section 3.1)
//! differs. A query for CNAME or ANY ends the chain at once (RFC 1034, section 3.6.2).
//!
//! Records of the chain, as in unbound's scrubber (which requires names in order; here they may
//! have any order):
//! * an alias that leads from one name of the chain to the next, and a DNAME above one of them;
//! * records of the query type, at the last name;
//! * signatures at these names, if they are wanted.
//!
//! Bounds: at most [`ALIASES_MAX`] aliases and [`ALIAS_RECORDS_MAX`] alias records, each read at
//! most once an alias. Cost: two names read an alias, if servers write in order and compress; no
//! name is read if there is no alias.

use super::super::answers::{CHAIN_MAX as ALIASES_MAX, labels_below, substitute};
use super::super::name::pointer_at;
use super::super::{DnsError, HEADER_BYTES, Message, NameBuf, Record, class, rdata, rtype};
use super::Unfit;
use crate::read::u16_at;

/// Records of type CNAME and DNAME that are read at most.
const ALIAS_RECORDS_MAX: usize = 64;

/// The query name and its aliases.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// The first `len` are the chain; the first of all, the query name, only once it was needed.
    names: Vec<NameBuf>,
    has_first: bool,
    len: usize,
    /// For each name but the last, the place of its alias.
    links: Vec<usize>,
    /// The target of a pointer that is the last name: mostly the owner of the queried data.
    data_pointer: Option<usize>,
    name: NameBuf,
    qtype: u16,
    qclass: u16,
}

/// The place of a record of the answer section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The first name of the chain that it belongs to; answers are sorted by this.
    pub rank: u8,
    /// The record is queried data.
    pub is_data: bool,
}

impl Chain {
    /// Follows the aliases of `message`, which has the question of this type and class, as the name
    /// first in it.
    pub fn follow(&mut self, message: &Message<'_>, qtype: u16, qclass: u16) -> Result<(), Unfit> {
        (self.qtype, self.qclass) = (qtype, qclass);
        (self.len, self.has_first, self.data_pointer) = (1, false, Some(HEADER_BYTES));
        self.links.clear();
        if matches!(qtype, rtype::CNAME | rtype::ANY) {
            return Ok(());
        }
        loop {
            let len_before = self.len;
            let (mut aliases, mut has_dname) = (0, false);
            for record in message.answers() {
                let record = record?;
                if matches!(record.rtype, rtype::CNAME | rtype::DNAME) && self.has_class(&record) {
                    aliases += 1;
                    if aliases > ALIAS_RECORDS_MAX {
                        break;
                    }
                    has_dname |= record.rtype == rtype::DNAME;
                    self.extend(message, &record)?;
                }
            }
            // Each pass finds at least one alias. With records in order the first pass finds all,
            // unless a DNAME applies to a name that it made.
            if self.len == len_before || (!has_dname && self.len == 1 + aliases) {
                return Ok(());
            }
        }
    }

    /// Reads the query name, if that was not done before.
    fn read_first(&mut self, message: &Message<'_>) -> Result<(), DnsError> {
        if !self.has_first {
            if self.names.is_empty() {
                self.names.push(NameBuf::new());
            }
            message.read_name(HEADER_BYTES, &mut self.names[0])?;
            self.has_first = true;
        }
        Ok(())
    }

    /// How many aliases were followed.
    pub fn aliases(&self) -> u8 {
        (self.len - 1) as u8
    }

    /// True where `name` is the last name of the chain, of the same message, or above it.
    pub fn ends_within(&mut self, message: &Message<'_>, name: &[u8]) -> Result<bool, DnsError> {
        self.read_first(message)?;
        let last = self.names[self.len - 1].as_bytes();
        Ok(last == name || labels_below(last, name).is_some())
    }

    /// The buffer after the last name.
    fn spare(&mut self) -> &mut NameBuf {
        if self.names.len() == self.len {
            self.names.push(NameBuf::new());
        }
        &mut self.names[self.len]
    }

    fn has_class(&self, record: &Record) -> bool {
        record.class == self.qclass || self.qclass == class::ANY
    }

    /// Continues with the next name, if this alias leads there.
    fn extend(&mut self, message: &Message<'_>, record: &Record) -> Result<(), Unfit> {
        self.read_first(message)?;
        message.read_name(record.owner_offset, &mut self.name)?;
        let (last, owner) = (self.names[self.len - 1].as_bytes(), self.name.as_bytes());
        // A query for DNAME gets it at its owner; for a name below, the chain continues.
        let leads_on = match record.rtype {
            rtype::CNAME => last == owner,
            _ => labels_below(last, owner).is_some(),
        };
        if !leads_on {
            return Ok(());
        }
        let target = rdata::name_offset(message, record, 0)?;
        let len = self.len;
        if record.rtype == rtype::CNAME {
            message.read_name(target, self.spare())?;
            self.data_pointer = Some(target);
        } else {
            let mut target_name = NameBuf::new();
            message.read_name(target, &mut target_name)?;
            self.spare();
            let (known, rest) = self.names.split_at_mut(len);
            let (owner, target) = (self.name.as_bytes(), target_name.as_bytes());
            if !substitute(known[len - 1].as_bytes(), owner, target, &mut rest[0]) {
                // The response has YXDOMAIN then.
                return Ok(());
            }
            self.data_pointer = None;
        }
        let is_circle = (0..len).any(|at| self.names[at].as_bytes() == self.names[len].as_bytes());
        if is_circle || len > ALIASES_MAX {
            return Err(Unfit::AliasChain);
        }
        self.links.push(record.owner_offset);
        self.len += 1;
        Ok(())
    }

    /// The place of a record of the answer section; `None` where it does not belong to the
    /// question.
    pub fn place(
        &mut self,
        message: &Message<'_>,
        record: &Record,
    ) -> Result<Option<Place>, DnsError> {
        if !self.has_class(record) {
            return Ok(None);
        }
        let is_queried = record.rtype == self.qtype || self.qtype == rtype::ANY;
        if !is_queried && !matches!(record.rtype, rtype::CNAME | rtype::DNAME | rtype::RRSIG) {
            return Ok(None);
        }
        // Most records are not read: they are an alias that was followed, or have the owner of the
        // data read before.
        let last = self.len - 1;
        let data = Some(Place { rank: last as u8, is_data: true });
        let pointer = pointer_at(message.bytes(), record.owner_offset);
        if is_queried && pointer.is_some() && pointer == self.data_pointer {
            return Ok(data);
        }
        let link = self.links.iter().position(|&at| at == record.owner_offset);
        if let (rtype::CNAME, Some(rank)) = (record.rtype, link) {
            return Ok(Some(Place { rank: rank as u8, is_data: false }));
        }
        self.read_first(message)?;
        message.read_name(record.owner_offset, &mut self.name)?;
        let (names, owner) = (&self.names[..self.len], self.name.as_bytes());
        let at = names.iter().position(|name| name.as_bytes() == owner);
        if is_queried && at == Some(last) {
            self.data_pointer = pointer.or(self.data_pointer);
            return Ok(data);
        }
        let below = || names.iter().position(|name| labels_below(name.as_bytes(), owner).is_some());
        let rank = match (record.rtype, at) {
            (rtype::CNAME, Some(rank)) => self.leads_to(message, record, rank + 1)?.then_some(rank),
            (rtype::RRSIG, Some(rank)) => Some(rank),
            (rtype::RRSIG, None) if u16_at(message.rdata(record), 0) == Some(rtype::DNAME) => {
                below()
            }
            (rtype::DNAME, _) => below(),
            _ => None,
        };
        Ok(rank.map(|rank| Place { rank: rank as u8, is_data: false }))
    }

    /// True where the alias leads to the name of that number.
    fn leads_to(
        &mut self,
        message: &Message<'_>,
        record: &Record,
        number: usize,
    ) -> Result<bool, DnsError> {
        let target = rdata::name_offset(message, record, 0)?;
        message.read_name(target, &mut self.name)?;
        let next = self.names[..self.len].get(number);
        Ok(next.is_some_and(|next| next.as_bytes() == self.name.as_bytes()))
    }
}
