//! Extracts the names in a response: the query name, the aliases that it led through, and the
//! addresses at their end; and the reverse, an address and its PTR names.
//!
//! One walk over the records stores owner and content for the types that matter. Owners are
//! *interned*: each distinct name is read once and then known by a small number, mostly by the
//! offset that a compression pointer names, so that the usual response reads two names in all. The
//! chain is then followed over those numbers, so that records may come in any order.
//!
//! Trusted records: in a unicast response only records whose owner is the query name or is reached
//! from it by CNAME or DNAME (RFC 1034, section 3.6.2; RFC 6672); in multicast DNS each record with
//! an owner below `local` (RFC 6762, section 3). All others are counted in [`Extract::unrelated`]
//! and ignored.
//!
//! Bounds: [`NAMES_MAX`] names, [`CHAIN_MAX`] aliases, [`ADDRESSES_MAX`] addresses, as many PTR
//! names; more are counted in [`Extract::overflowed`]. An [`Extract`] reuses its buffers for each
//! message: in the steady state nothing is allocated.
//!
//! Cost: one name read a distinct name and O(1) a record; a record of a hostile message costs at
//! most one name read and [`NAMES_MAX`] comparisons.

use super::name::pointer_at;
use super::{
    DnsError, Message, NAME_WIRE_BYTES_MAX, NameBuf, Record, Section, class, rdata, reverse_addr,
    rtype,
};
use crate::Addr;

/// Most distinct names of one message.
pub const NAMES_MAX: usize = 64;

/// Most aliases that are followed from the query name.
pub const CHAIN_MAX: usize = 16;

/// Most addresses, and most PTR names, taken from one message.
pub const ADDRESSES_MAX: usize = 1024;

/// A name of this message, by its place in [`Extract::names`].
type NameId = u8;

const _: () = assert!(NAMES_MAX <= NameId::MAX as usize);

/// An alias: the target, and how long it may be cached.
#[derive(Clone, Copy, Debug)]
struct Link {
    target: NameId,
    ttl_s: u32,
}

/// A distinct name, and the data of the records that it owns.
#[derive(Clone, Debug)]
struct Interned {
    /// The first place of the name in the message, with a leading pointer resolved.
    offset: usize,
    /// Its bytes in the arena.
    start: usize,
    end: usize,
    cname: Option<Link>,
    dname: Option<Link>,
    /// For a member of the chain, the least TTL of the aliases that lead to it.
    chain_ttl_s: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    addr: Addr,
    ttl_s: u32,
    /// Owner of the record.
    owner: NameId,
    /// The name that has the address: the owner, or the target of a service binding.
    holder: NameId,
    hint: bool,
}

/// An address in the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address<'a> {
    /// The address.
    pub addr: Addr,
    /// How long the address may be cached, seconds: the least of its own TTL and those of the
    /// aliases that lead to it. 0 in multicast DNS means that the host is leaving (RFC 6762,
    /// section 10.1).
    pub ttl_s: u32,
    /// The name that has the address, at the end of the aliases. In a unicast response the name *as
    /// queried* is [`Extract::qname`].
    pub owner: &'a [u8],
    /// It comes from an `ipv4hint` or `ipv6hint` of an HTTPS or SVCB record.
    pub hint: bool,
}

/// One step of the chain of aliases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias<'a> {
    /// The name that is an alias.
    pub owner: &'a [u8],
    /// The target of the alias.
    pub target: &'a [u8],
    /// How long it may be cached, seconds.
    pub ttl_s: u32,
}

/// The name that a reverse lookup gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reverse<'a> {
    /// The address that the lookup was about.
    pub addr: Addr,
    /// Its name.
    pub name: &'a [u8],
    /// How long it may be cached, seconds.
    pub ttl_s: u32,
}

/// The result for one message; [`extract`] and [`extract_mdns`] clear it and fill it. All names are
/// in canonical spelling.
#[derive(Debug, Default)]
pub struct Extract {
    scratch: NameBuf,
    arena: Vec<u8>,
    names: Vec<Interned>,
    /// The query name, then the target of each alias in turn.
    chain: Vec<NameId>,
    addresses: Vec<Found>,
    pointers: Vec<(NameId, Link)>,
    qtype: Option<u16>,
    unrelated: u32,
    overflowed: u32,
    chain_cut: bool,
}

impl Extract {
    /// An empty one, with room for the usual response.
    pub fn new() -> Extract {
        Extract {
            arena: Vec::with_capacity(1024),
            names: Vec::with_capacity(16),
            chain: Vec::with_capacity(CHAIN_MAX + 1),
            addresses: Vec::with_capacity(32),
            pointers: Vec::with_capacity(4),
            ..Extract::default()
        }
    }

    /// The query name; `None` if nothing was extracted, or the message is multicast.
    pub fn qname(&self) -> Option<&[u8]> {
        self.chain.first().map(|&id| self.name(id))
    }

    /// The query type.
    pub fn qtype(&self) -> Option<u16> {
        self.qtype
    }

    /// The aliases from the query name on, in the order of the chain. They are returned also
    /// without an address, since a client may query the end of the chain on its own.
    pub fn aliases(&self) -> impl ExactSizeIterator<Item = Alias<'_>> {
        self.chain.windows(2).map(|pair| {
            let (owner, target) = (self.name(pair[0]), self.name(pair[1]));
            Alias { owner, target, ttl_s: self.link_ttl_s(pair[0]) }
        })
    }

    /// The addresses, in the order of the records.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = Address<'_>> {
        self.addresses.iter().map(|found| Address {
            addr: found.addr,
            ttl_s: found.ttl_s,
            owner: self.name(found.holder),
            hint: found.hint,
        })
    }

    /// The reverse names, in the order of the records.
    pub fn reverses(&self) -> impl Iterator<Item = Reverse<'_>> {
        self.pointers.iter().filter_map(|&(owner, link)| {
            // Classless delegation (RFC 2317) makes the reverse name an alias of one of another
            // form: then the query name has the address.
            let head = self.qname().and_then(reverse_addr);
            let addr = head.or_else(|| reverse_addr(self.name(owner)))?;
            Some(Reverse { addr, name: self.name(link.target), ttl_s: link.ttl_s })
        })
    }

    /// True when the message taught no alias, address or reverse name.
    pub fn is_empty(&self) -> bool {
        self.chain.len() < 2 && self.addresses.is_empty() && self.pointers.is_empty()
    }

    /// Ignored records: their owner is not related to the query.
    pub fn unrelated(&self) -> u32 {
        self.unrelated
    }

    /// Records omitted because of a bound of this module.
    pub fn overflowed(&self) -> u32 {
        self.overflowed
    }

    /// The chain ran in a circle or was longer than [`CHAIN_MAX`], and was cut there.
    pub fn chain_was_cut(&self) -> bool {
        self.chain_cut
    }

    fn clear(&mut self) {
        self.arena.clear();
        self.names.clear();
        self.chain.clear();
        self.addresses.clear();
        self.pointers.clear();
        self.qtype = None;
        (self.unrelated, self.overflowed, self.chain_cut) = (0, 0, false);
    }

    #[inline]
    fn entry(&self, id: NameId) -> &Interned {
        &self.names[usize::from(id)]
    }

    #[inline]
    fn name(&self, id: NameId) -> &[u8] {
        let entry = self.entry(id);
        &self.arena[entry.start..entry.end]
    }

    fn link_ttl_s(&self, owner: NameId) -> u32 {
        self.entry(owner).cname.map_or(0, |link| link.ttl_s)
    }

    /// The number of the name at `offset`; `None` (counted) if there are too many.
    #[inline]
    fn intern_at(&mut self, bytes: &[u8], offset: usize) -> Result<Option<NameId>, DnsError> {
        // A pointer back to a known name needs no reading. Known names are before `offset`, so that
        // such a pointer cannot lead forward.
        let start = pointer_at(bytes, offset).unwrap_or(offset);
        if let Some(known) = self.names.iter().position(|entry| entry.offset == start) {
            return Ok(Some(known as NameId));
        }
        super::read_name(bytes, offset, &mut self.scratch)?;
        Ok(self.intern_scratch(start))
    }

    /// The number of the name in `scratch`.
    fn intern_scratch(&mut self, offset: usize) -> Option<NameId> {
        let name = self.scratch.as_bytes();
        let same = |entry: &Interned| &self.arena[entry.start..entry.end] == name;
        if let Some(known) = self.names.iter().position(same) {
            return Some(known as NameId);
        }
        if self.names.len() == NAMES_MAX {
            self.overflowed += 1;
            return None;
        }
        let start = self.arena.len();
        self.arena.extend_from_slice(name);
        let end = self.arena.len();
        let entry = Interned { offset, start, end, cname: None, dname: None, chain_ttl_s: None };
        self.names.push(entry);
        Some((self.names.len() - 1) as NameId)
    }

    /// Adds the content of one record, if its type is used.
    #[inline]
    fn note(&mut self, message: &Message<'_>, record: &Record) -> Result<(), DnsError> {
        match record.rtype {
            rtype::A => {
                let addr = rdata::a(message, record)?;
                self.note_address(message, record, addr)
            }
            rtype::AAAA => {
                let addr = rdata::aaaa(message, record)?;
                self.note_address(message, record, addr)
            }
            rtype::CNAME | rtype::DNAME | rtype::PTR => self.note_name(message, record),
            rtype::HTTPS | rtype::SVCB => self.note_service(message, record),
            _ => Ok(()),
        }
    }

    #[inline]
    fn note_address(
        &mut self,
        message: &Message<'_>,
        record: &Record,
        addr: Addr,
    ) -> Result<(), DnsError> {
        if let Some(owner) = self.intern_at(message.bytes(), record.owner_offset)? {
            self.push_address(Found {
                addr,
                ttl_s: record.ttl_s(),
                owner,
                holder: owner,
                hint: false,
            });
        }
        Ok(())
    }

    #[inline]
    fn push_address(&mut self, found: Found) {
        if self.addresses.len() < ADDRESSES_MAX {
            self.addresses.push(found);
        } else {
            self.overflowed += 1;
        }
    }

    fn note_name(&mut self, message: &Message<'_>, record: &Record) -> Result<(), DnsError> {
        let target_offset = rdata::name_offset(message, record, 0)?;
        let Some(owner) = self.intern_at(message.bytes(), record.owner_offset)? else {
            return Ok(());
        };
        let Some(target) = self.intern_at(message.bytes(), target_offset)? else { return Ok(()) };
        let link = Link { target, ttl_s: record.ttl_s() };
        let entry = &mut self.names[usize::from(owner)];
        match record.rtype {
            // A name has one alias (RFC 2181, section 10.1); of several the first counts.
            rtype::CNAME => entry.cname = entry.cname.or(Some(link)),
            rtype::DNAME => entry.dname = entry.dname.or(Some(link)),
            _ if self.pointers.len() < ADDRESSES_MAX => self.pointers.push((owner, link)),
            _ => self.overflowed += 1,
        }
        Ok(())
    }

    fn note_service(&mut self, message: &Message<'_>, record: &Record) -> Result<(), DnsError> {
        let svcb = rdata::svcb(message, record)?;
        if svcb.hints().next().is_none() {
            return Ok(());
        }
        let Some(owner) = self.intern_at(message.bytes(), record.owner_offset)? else {
            return Ok(());
        };
        let holder = if svcb.target_is_root {
            Some(owner)
        } else {
            self.intern_at(message.bytes(), svcb.target_offset)?
        };
        let Some(holder) = holder else { return Ok(()) };
        for addr in svcb.hints() {
            self.push_address(Found { addr, ttl_s: record.ttl_s(), owner, holder, hint: true });
        }
        Ok(())
    }

    /// Follows the aliases from `qname`.
    fn follow_chain(&mut self, qname: NameId) {
        self.names[usize::from(qname)].chain_ttl_s = Some(u32::MAX);
        self.chain.push(qname);
        let (mut tail, mut ttl_s) = (qname, u32::MAX);
        while let Some(link) = self.alias_of(tail) {
            let met_before = self.entry(link.target).chain_ttl_s.is_some();
            if met_before || self.chain.len() > CHAIN_MAX {
                self.chain_cut = true;
                return;
            }
            (tail, ttl_s) = (link.target, ttl_s.min(link.ttl_s));
            self.names[usize::from(tail)].chain_ttl_s = Some(ttl_s);
            self.chain.push(tail);
        }
    }

    /// The target of `owner` as an alias: by its CNAME, else by a DNAME above it. A server sends
    /// the CNAME that a DNAME implies too (RFC 6672, section 3.1); if it did not, the derived one
    /// is recorded in the same way.
    #[inline]
    fn alias_of(&mut self, owner: NameId) -> Option<Link> {
        if let Some(link) = self.entry(owner).cname {
            return Some(link);
        }
        let above = |entry: &&Interned| {
            entry.dname.is_some()
                && labels_below(self.name(owner), &self.arena[entry.start..entry.end]).is_some()
        };
        let (start, end, dname) =
            self.names.iter().find(above).map(|entry| (entry.start, entry.end, entry.dname))?;
        let dname = dname?;
        let entry = &self.names[usize::from(owner)];
        let target = &self.names[usize::from(dname.target)];
        let arena = &self.arena;
        let (name, above) = (&arena[entry.start..entry.end], &arena[start..end]);
        if !substitute(name, above, &arena[target.start..target.end], &mut self.scratch) {
            return None;
        }
        // A derived name has no place in the message.
        let target = self.intern_scratch(usize::MAX)?;
        let link = Link { target, ttl_s: dname.ttl_s };
        self.names[usize::from(owner)].cname = Some(link);
        Some(link)
    }

    /// Drops records that do not belong to the chain, and counts them.
    fn keep_chain_only(&mut self) {
        let (names, unrelated) = (&self.names, &mut self.unrelated);
        let mut belongs = |owner: NameId, ttl_s: &mut u32| {
            let chain_ttl_s = names[usize::from(owner)].chain_ttl_s;
            *ttl_s = chain_ttl_s.map_or(0, |limit| limit.min(*ttl_s));
            *unrelated += u32::from(chain_ttl_s.is_none());
            chain_ttl_s.is_some()
        };
        self.addresses.retain_mut(|found| belongs(found.owner, &mut found.ttl_s));
        self.pointers.retain_mut(|(owner, link)| belongs(*owner, &mut link.ttl_s));
        for entry in &self.names {
            let stray = entry.cname.is_some() && entry.chain_ttl_s.is_none();
            let owner = &self.arena[entry.start..entry.end];
            let serves = |name: &[u8]| name == owner || labels_below(name, owner).is_some();
            let idle = entry.dname.is_some() && !self.chain.iter().any(|&id| serves(self.name(id)));
            self.unrelated += u32::from(stray) + u32::from(idle);
        }
    }

    /// Drops records with owners outside `local` of multicast DNS, and counts them.
    fn keep_local_only(&mut self) {
        let (names, arena, unrelated) = (&self.names, &self.arena, &mut self.unrelated);
        let mut is_local = |id: NameId| {
            let entry = &names[usize::from(id)];
            let local = labels_below(&arena[entry.start..entry.end], b"local").is_some();
            *unrelated += u32::from(!local);
            local
        };
        self.addresses.retain(|found| is_local(found.owner));
        self.pointers.retain(|(_, link)| is_local(link.target));
    }
}

/// Extracts from a unicast response (DNS, LLMNR) with RCODE 0 and one question. Nothing is
/// extracted from any other message, and that is no error, except for several questions in one
/// message, which no client may send ([`DnsError::ManyQuestions`]).
///
/// Damage keeps the records read before it: `out` is valid also with an `Err`, which is the first
/// damage. A record with malformed data alone is skipped, and the walk continues.
pub fn extract(message: &Message<'_>, out: &mut Extract) -> Result<(), DnsError> {
    out.clear();
    let answers = message.is_response() && message.opcode() == 0 && message.rcode() == 0;
    if !answers {
        return Ok(());
    }
    if message.question_count() > 1 {
        return Err(DnsError::ManyQuestions);
    }
    let Some(question) = message.question()? else { return Ok(()) };
    let Some(qname) = out.intern_at(message.bytes(), question.name_offset)? else { return Ok(()) };
    out.qtype = Some(question.qtype);
    let outcome = note_all(message, Section::Answer, out, |record| record.class == class::IN);
    out.follow_chain(qname);
    out.keep_chain_only();
    outcome
}

/// Extracts from a multicast DNS response: its answers and additional records, each for its own
/// owner. Errors are as in [`extract`]. Nothing is extracted from queries, also those in which a
/// host probes for its name (section 8.1).
pub fn extract_mdns(message: &Message<'_>, out: &mut Extract) -> Result<(), DnsError> {
    out.clear();
    // Section 18: messages with another OPCODE or RCODE are ignored.
    if !message.is_response() || message.opcode() != 0 || message.rcode() != 0 {
        return Ok(());
    }
    let outcome = note_all(message, Section::Additional, out, |record| {
        record.section != Section::Authority
            && record.class & !class::MDNS_TOP_BIT == class::IN
            && match record.rtype {
                rtype::A | rtype::AAAA => true,
                // Service discovery is made of PTR records; only reverse names matter here.
                rtype::PTR => owner_is_reverse(message, record),
                _ => false,
            }
    });
    out.keep_local_only();
    outcome
}

/// Adds the records that `wanted` selects; returns the first error, if any.
#[inline]
fn note_all(
    message: &Message<'_>,
    last: Section,
    out: &mut Extract,
    wanted: impl Fn(&Record) -> bool,
) -> Result<(), DnsError> {
    let mut outcome = Ok(());
    for record in message.records_through(last) {
        let noted = record
            .and_then(|record| if wanted(&record) { out.note(message, &record) } else { Ok(()) });
        outcome = outcome.and(noted);
    }
    outcome
}

fn owner_is_reverse(message: &Message<'_>, record: &Record) -> bool {
    let mut owner = NameBuf::new();
    message.read_name(record.owner_offset, &mut owner).is_ok()
        && reverse_addr(owner.as_bytes()).is_some()
}

/// Applies a DNAME of `owner` to a `name` below it (RFC 6672, section 2.2). False if the name is
/// not below it, or the result would be too long. All names are canonical.
pub(super) fn substitute(name: &[u8], owner: &[u8], target: &[u8], out: &mut NameBuf) -> bool {
    out.clear();
    let Some(prefix) = labels_below(name, owner) else { return false };
    let dot: &[u8] = if target.is_empty() { b"" } else { b"." };
    wire_bytes(prefix) + wire_bytes(target) <= NAME_WIRE_BYTES_MAX + 1
        && out.push_canonical(prefix)
        && out.push_canonical(dot)
        && out.push_canonical(target)
}

/// The labels before `.parent` in a canonical name; `None` if it is not strictly below.
pub(super) fn labels_below<'a>(name: &'a [u8], parent: &[u8]) -> Option<&'a [u8]> {
    if parent.is_empty() {
        return (!name.is_empty()).then_some(name);
    }
    let prefix = name.strip_suffix(parent)?.strip_suffix(b".")?;
    // The dot separates unless it is escaped; a backslash before it may itself be escaped.
    let backslashes = prefix.iter().rev().take_while(|&&byte| byte == b'\\').count();
    (backslashes % 2 == 0).then_some(prefix)
}

/// Bytes of a canonical name on the wire, root included.
fn wire_bytes(name: &[u8]) -> usize {
    let mut escapes = 0;
    let mut escaped = false;
    for &byte in name {
        escaped = byte == b'\\' && !escaped;
        escapes += usize::from(escaped);
    }
    if name.is_empty() { 1 } else { name.len() - escapes + 2 }
}

#[cfg(test)]
mod tests;
