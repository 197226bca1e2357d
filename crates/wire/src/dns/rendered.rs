//! A response that is rendered once and sent many times.
//!
//! ```text
//! response from upstream -> Renderer::render -> stored bytes, in a cache -> write -> response to a client
//!
//! stored   born 4 | TTLs 2 | code 2 | message without OPT | offset of each TTL, 2 each      numbers big-endian
//! ```
//!
//! Rendering checks everything once: the message responds to this query, every record can be read,
//! the answer section follows from the query name (`rendered/chain.rs`). It clamps TTLs, and finds
//! the lifetime of the whole. Writing copies the response, and patches what differs between clients
//! and over time: ID, flags, the case of the question, TTLs. It writes OPT again.
//!
//! Responses to the query
//! * A response to another query is ignored: its sender guesses, or it is late. A response without
//!   a question may only state a failure, as some servers do for queries that they cannot read.
//! * A response with the right question that cannot be read is [`Unfit::Damaged`]: that server is
//!   not usable.
//!
//! Omitted records
//! * In the answer section, records that do not belong to the query. The others are in the order of
//!   the chain, which many stub resolvers require.
//! * If there is an answer and [`Rules::is_minimal`], the other sections, as unbound does by
//!   default; but authority with proofs (NSEC, NSEC3) stays if the client asked for DNSSEC: the
//!   answer of a wildcard needs them.
//! * Otherwise authority and additional records are forwarded as dnsdist does, in bailiwick or not.
//!   They poison nothing here: the cache stores one response for one query, and uses no record for
//!   another.
//! * Hop-by-hop records at any place: OPT, TSIG, SIG(0); records after them stay. Records of
//!   another class than the query's.
//! * Without DNSSEC (DO = 0) RRSIG, NSEC, NSEC3, DS, DNSKEY, except the query type (RFC 4035,
//!   section 3.2.1).
//!
//! If the rest is the beginning of the message, it is copied; otherwise it is encoded again
//! (`rendered/encode.rs`).
//!
//! Lifetime in the cache ([`Facts::ttl_s`])
//! * The least TTL of all its records, within the limits: a response with a TTL of 0 is not cached.
//! * No data and no such name: if there is an SOA of a zone that has the name, at most its MINIMUM,
//!   which then is the SOA's TTL too (RFC 2308, section 5); else none. So a referral, an alias
//!   chain that is not followed and an empty response are [`Kind::Inconclusive`].
//! * A failure: for the time that the caller states (RFC 9520).
//! * With TC set, none ([`Unfit::Truncated`]).
//!
//! Invariants
//! 1. [`write()`] reads everything that [`Renderer::render`] stores without error. It refuses other
//!    bytes, or writes some response to the query: it never reads outside of them, and never writes
//!    past the room.
//! 2. A stored message has one question, before all records, and all its names can be read.
//!
//! Bounds: a message is at most 65,535 bytes, buffers hold one. Cost: to render, one walk over the
//! records, and one over the answers for their chain; to write, a copy and four bytes a record. A
//! response that is too long for its client is walked once more.

mod chain;
mod encode;
mod question;
mod rules;
mod write;

pub use rules::{Facts, Kind, QueryInfo, Rules, Unfit};
pub use write::{Reply, write};

use self::chain::Chain;
use self::encode::Encoder;
use self::question::Question;
use self::rules::TTL_MAX_S;
use super::edns::{Options, option, rcode};
use super::name::walk_name;
use super::query::TYPE_AND_CLASS_BYTES;
use super::{
    HEADER_BYTES, MESSAGE_BYTES_MAX, Message, NameBuf, Record, Section, class, rdata, rtype,
    skip_name,
};
use crate::read::{u16_at, u32_at};

/// Bytes before the message.
const HEAD_BYTES: usize = 8;

/// Bytes from a record's TTL to its data.
const TTL_TO_DATA_BYTES: usize = 6;

/// Bytes from a record's type to its data.
const FIXED_BYTES: usize = 10;

/// AD, in the fourth byte of the header.
const AUTHENTIC_DATA: u8 = 0x20;

/// A record to store, and its place among the answers.
#[derive(Debug, Clone, Copy)]
struct Kept {
    record: Record,
    rank: u8,
}

/// Results of the walk over the records, except the records.
#[derive(Debug, Default)]
struct Found {
    rcode_high: u16,
    extended_error: Option<u16>,
    unrelated: u16,
    has_data: bool,
    /// An SOA in the authority section that can deny the name or type: its index among the stored
    /// records, and MINIMUM.
    soa: Option<(usize, u32)>,
    has_proof: bool,
}

/// Renders one response after the other, without allocating once its buffers have grown.
#[derive(Debug, Default)]
pub struct Renderer {
    stored: Vec<u8>,
    kept: Vec<Kept>,
    /// TTL of each stored record, seconds.
    ttls_s: Vec<u32>,
    /// Offset of each TTL in the message.
    places: Vec<u16>,
    chain: Chain,
    encoder: Encoder,
    /// Whose SOA it is.
    owner: NameBuf,
}

impl Renderer {
    /// One without buffers.
    pub fn new() -> Renderer {
        Renderer::default()
    }

    /// The result of the last call of [`Renderer::render`]: the bytes to store, or nothing after an
    /// error.
    pub fn stored(&self) -> &[u8] {
        &self.stored
    }

    /// Checks a whole response, and renders it into [`Renderer::stored`]. The caller compares the
    /// ID. `now_s` is seconds of any clock that [`write()`] is given too.
    pub fn render(
        &mut self,
        message: &[u8],
        info: &QueryInfo<'_>,
        now_s: u32,
        rules: &Rules,
    ) -> Result<Facts, Unfit> {
        self.stored.clear();
        let question = Question::of(info).ok_or(Unfit::OtherQuestion)?;
        let has_question = question.is_repeated(message, info.is_case_random)?;
        if message[2] & 2 != 0 {
            return Err(Unfit::Truncated);
        }
        let parsed = Message::parse(message)?;
        let found = self.sort_out(&parsed, &question, has_question)?;

        let rcode = u16::from(parsed.rcode()) | found.rcode_high;
        let kind = match rcode {
            rcode::NOERROR if found.has_data => Kind::Data,
            rcode::NOERROR if found.soa.is_some() => Kind::NoData,
            rcode::NOERROR => Kind::Inconclusive,
            rcode::NXDOMAIN => Kind::NoName,
            _ => Kind::Failure,
        };
        if kind == Kind::Data && rules.is_minimal {
            let last = if found.has_proof { Section::Authority } else { Section::Answer };
            self.kept.retain(|kept| kept.record.section <= last);
        }
        let ttl_s = self.settle_ttls(kind, found.soa, rules);
        self.store(&parsed, &question, has_question, now_s, rcode)?;
        if !rules.believes_ad {
            self.stored[HEAD_BYTES + 3] &= !AUTHENTIC_DATA;
        }
        Ok(Facts {
            kind,
            rcode,
            ttl_s,
            aliases: if has_question { self.chain.aliases() } else { 0 },
            unrelated: found.unrelated,
            extended_error: found.extended_error,
        })
    }

    /// Makes the stored response of a name that does not exist one for a name below it (RFC 8020),
    /// in [`Renderer::stored`], with the same age. Returns false and stores nothing if `stored` is
    /// no such response, or the query name is not below. DNSSEC proofs are omitted, since they may
    /// not be valid for the other name.
    pub fn deny_below(&mut self, stored: &[u8], info: &QueryInfo<'_>) -> bool {
        self.stored.clear();
        let is_made = self.try_deny_below(stored, info).is_some();
        if !is_made {
            self.stored.clear();
        }
        is_made
    }

    fn try_deny_below(&mut self, stored: &[u8], info: &QueryInfo<'_>) -> Option<()> {
        let question = Question::of(info)?;
        let message = message_of(stored)?;
        let denied_end = skip_name(message.bytes(), HEADER_BYTES).ok()?;
        let denied = message.bytes().get(HEADER_BYTES..denied_end)?;
        let name = &question.bytes[..question.bytes.len() - TYPE_AND_CLASS_BYTES];
        if u16_at(stored, 6)? != rcode::NXDOMAIN || !is_below(name, denied) {
            return None;
        }
        self.kept.clear();
        self.places.clear();
        for record in message.records() {
            let record = record.ok()?;
            if record.section == Section::Authority && record.rtype == rtype::SOA {
                self.kept.push(Kept { record, rank: u8::MAX });
            }
        }
        self.stored.extend_from_slice(&stored[..4]);
        self.stored.extend_from_slice(&(self.kept.len() as u16).to_be_bytes());
        self.stored.extend_from_slice(&rcode::NXDOMAIN.to_be_bytes());
        self.encode(&message, &question, true).ok()?;
        let head = [0, 0, 0x80, message.bytes()[3] & AUTHENTIC_DATA];
        let copy = &mut self.stored[HEAD_BYTES..];
        copy[..4].copy_from_slice(&head);
        write_counts(copy, [1, 0, self.kept.len() as u16, 0]);
        self.stored.extend(self.places.iter().flat_map(|at| at.to_be_bytes()));
        Some(())
    }

    /// Puts local aliases before a stored response, with the result in [`Renderer::stored`]. The
    /// answer section of `local` has aliases, in order, from the query name to the name of
    /// `stored`, with the same type and class. It may have their proofs. The stored response keeps
    /// its age; at `now_s` the aliases have the TTLs that they have in `local`. The result was not
    /// validated as a whole, so AD is not set.
    ///
    /// Returns an error and stores nothing if both together are a circle or too long, or one of
    /// them is not of the given kind.
    pub fn put_behind(
        &mut self,
        local: &[u8],
        stored: &[u8],
        info: &QueryInfo<'_>,
        now_s: u32,
    ) -> Result<(), Unfit> {
        self.stored.clear();
        self.try_put_behind(local, stored, info, now_s).inspect_err(|_| self.stored.clear())
    }

    fn try_put_behind(
        &mut self,
        local: &[u8],
        stored: &[u8],
        info: &QueryInfo<'_>,
        now_s: u32,
    ) -> Result<(), Unfit> {
        let question = Question::of(info).ok_or(Unfit::OtherQuestion)?;
        let theirs = message_of(stored).ok_or(Unfit::OtherQuestion)?;
        let ours = Message::parse(local)?;
        let age_s = now_s.saturating_sub(u32_at(stored, 0).unwrap_or(now_s));
        self.places.clear();
        self.stored.extend_from_slice(&stored[..HEAD_BYTES]);
        self.stored.extend_from_slice(&[0; HEADER_BYTES]);
        self.stored.extend_from_slice(question.bytes);
        self.encoder.begin(&self.stored, HEAD_BYTES)?;
        let mut counts = [1, 0, 0, 0];
        let mut aliases = 0;
        for record in ours.answers() {
            let record = record?;
            let ttl_at = HEAD_BYTES + self.append(&ours, &record)?;
            let ttl_s = record.ttl_s().saturating_add(age_s).min(TTL_MAX_S);
            self.stored[ttl_at..ttl_at + 4].copy_from_slice(&ttl_s.to_be_bytes());
            counts[1] += 1;
            aliases += u16::from(record.rtype == rtype::CNAME);
        }
        for record in theirs.records() {
            let record = record?;
            self.append(&theirs, &record)?;
            counts[1 + record.section as usize] += 1;
        }
        self.stored[4..6].copy_from_slice(&(self.places.len() as u16).to_be_bytes());
        let message = &mut self.stored[HEAD_BYTES..];
        message[2] = 0x80;
        write_counts(message, counts);
        let whole = Message::parse(&self.stored[HEAD_BYTES..])?;
        self.chain.follow(&whole, question.qtype, question.qclass)?;
        if u16::from(self.chain.aliases()) < aliases {
            return Err(Unfit::OtherQuestion);
        }
        self.stored.extend(self.places.iter().flat_map(|at| at.to_be_bytes()));
        Ok(())
    }

    /// Reads every record, and selects those to store.
    fn sort_out(
        &mut self,
        message: &Message<'_>,
        question: &Question<'_>,
        has_question: bool,
    ) -> Result<Found, Unfit> {
        self.kept.clear();
        let mut found = Found::default();
        if has_question {
            self.chain.follow(message, question.qtype, question.qclass)?;
        }
        for record in message.records() {
            let record = record?;
            if record.section == Section::Additional && record.rtype == rtype::OPT {
                found.read_opt(message, &record);
            } else if has_question {
                self.sort_record(message, question, record, &mut found)?;
            }
        }
        Ok(found)
    }

    /// Selects a record other than OPT, or skips it.
    fn sort_record(
        &mut self,
        message: &Message<'_>,
        question: &Question<'_>,
        record: Record,
        found: &mut Found,
    ) -> Result<(), Unfit> {
        rdata::check(message, &record)?;
        if is_between_neighbours(message, &record) {
            return Ok(());
        }
        let mut rank = u8::MAX;
        if record.section == Section::Answer {
            let Some(place) = self.chain.place(message, &record)? else {
                found.unrelated += 1;
                return Ok(());
            };
            found.has_data |= place.is_data;
            rank = place.rank;
        } else {
            walk_name(message.bytes(), record.owner_offset, |_, _| true)?;
            if question.qclass != class::ANY && record.class != question.qclass {
                return Ok(());
            }
        }
        if question.hides(record.rtype) {
            return Ok(());
        }
        if record.section == Section::Authority {
            if record.rtype == rtype::SOA && found.soa.is_none() {
                message.read_name(record.owner_offset, &mut self.owner)?;
                if self.chain.ends_within(message, self.owner.as_bytes())? {
                    let minimum_s = ttl_at(message.bytes(), record.rdata_end() - 4);
                    found.soa = Some((self.kept.len(), minimum_s));
                }
            }
            found.has_proof |= matches!(record.rtype, rtype::NSEC | rtype::NSEC3);
        }
        self.kept.push(Kept { record, rank });
        Ok(())
    }

    /// Clamps TTLs, and returns the lifetime of the whole.
    fn settle_ttls(&mut self, kind: Kind, soa: Option<(usize, u32)>, rules: &Rules) -> u32 {
        self.ttls_s.clear();
        self.ttls_s.extend(self.kept.iter().map(|kept| rules.clamp(kept.record.ttl_s())));
        let is_negative = matches!(kind, Kind::NoData | Kind::NoName);
        if let (true, Some((at, minimum_s))) = (is_negative, soa) {
            let ttl_s = rules.clamp(self.kept[at].record.ttl_s().min(minimum_s));
            self.ttls_s[at] = ttl_s.min(rules.negative_ttl_max_s);
        }
        match kind {
            Kind::Failure => rules.failure_ttl_s,
            Kind::Data => self.ttls_s.iter().copied().min().unwrap_or(0),
            Kind::NoData | Kind::NoName if soa.is_some() => {
                self.ttls_s.iter().copied().min().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Writes the response to store.
    fn store(
        &mut self,
        message: &Message<'_>,
        question: &Question<'_>,
        has_question: bool,
        now_s: u32,
        rcode: u16,
    ) -> Result<(), Unfit> {
        // BADVERS to BADCOOKIE are about the messages between the upstream and larder.
        let rcode = if (16..24).contains(&rcode) { rcode::SERVFAIL } else { rcode };
        let is_in_order = self.kept.is_sorted_by_key(|kept| (kept.record.section, kept.rank));
        let question_end = HEADER_BYTES + question.bytes.len();
        let copied = if has_question && is_in_order { self.beginning(question_end) } else { None };
        let copied = copied.filter(|_| self.names_are_apart(message));

        self.stored.extend_from_slice(&now_s.to_be_bytes());
        self.stored.extend_from_slice(&(self.kept.len() as u16).to_be_bytes());
        self.stored.extend_from_slice(&rcode.to_be_bytes());
        self.places.clear();
        if let Some(end) = copied {
            self.stored.extend_from_slice(&message.bytes()[..end]);
            let ttl_places =
                self.kept.iter().map(|kept| kept.record.rdata_offset - TTL_TO_DATA_BYTES);
            self.places.extend(ttl_places.map(|at| at as u16));
        } else {
            self.encode(message, question, is_in_order).inspect_err(|_| self.stored.clear())?;
        }

        let copy = &mut self.stored[HEAD_BYTES..];
        let mut counts = [1, 0, 0, 0];
        for kept in &self.kept {
            counts[1 + kept.record.section as usize] += 1;
        }
        copy[..4].copy_from_slice(&[0, 0, 0x80, message.bytes()[3] & AUTHENTIC_DATA]);
        write_counts(copy, counts);
        for (&at, ttl_s) in self.places.iter().zip(&self.ttls_s) {
            let at = usize::from(at);
            copy[at..at + 4].copy_from_slice(&ttl_s.to_be_bytes());
        }
        self.stored.extend(self.places.iter().flat_map(|at| at.to_be_bytes()));
        Ok(())
    }

    /// The end of the beginning of the message that has exactly the stored records; `None` if there
    /// are others between them.
    fn beginning(&self, question_end: usize) -> Option<usize> {
        let mut end = question_end;
        for Kept { record, .. } in &self.kept {
            if record.owner_offset != end {
                return None;
            }
            end = record.rdata_end();
        }
        Some(end)
    }

    /// True if no name uses the bytes between a name and its data: a TTL there is overwritten for
    /// each client, and a name that uses its bytes would change each time.
    fn names_are_apart(&self, message: &Message<'_>) -> bool {
        let is_apart = |at| self.is_apart(message.bytes(), at);
        self.kept.iter().all(|Kept { record, .. }| {
            is_apart(record.owner_offset)
                && match rdata::layout(message, record) {
                    Ok(None) => true,
                    Ok(Some(layout)) => {
                        let mut at = Some(record.rdata_offset + layout.before);
                        (0..layout.names).all(|_| {
                            let name = at.filter(|&name| is_apart(name));
                            at = name.and_then(|name| skip_name(message.bytes(), name).ok());
                            at.is_some()
                        })
                    }
                    Err(_) => false,
                }
        })
    }

    /// As `names_are_apart`, for the name at `at`, which can be read.
    fn is_apart(&self, bytes: &[u8], mut at: usize) -> bool {
        let mut was_led = false;
        loop {
            let Some(&length) = bytes.get(at) else { return false };
            let end = if length < 0xc0 { at + 1 + usize::from(length) } else { at + 2 };
            if was_led {
                // The first record whose data is after this label: its label must not touch the
                // bytes before that.
                let next = self.kept.partition_point(|kept| kept.record.rdata_offset <= at);
                let fixed = self.kept.get(next).map(|kept| kept.record.rdata_offset - FIXED_BYTES);
                if fixed.is_some_and(|fixed| end > fixed) {
                    return false;
                }
            }
            at = match length {
                0 => return true,
                0xc0.. => usize::from(length & 0x3f) << 8 | usize::from(bytes[at + 1]),
                _ => end,
            };
            if length >= 0xc0 {
                // The query name is a name; a pointer into one of its labels may lead anywhere.
                if at == HEADER_BYTES {
                    return true;
                }
                was_led = true;
            }
        }
    }

    /// Encodes the message again: header, question, stored records.
    #[cold]
    fn encode(
        &mut self,
        message: &Message<'_>,
        question: &Question<'_>,
        is_in_order: bool,
    ) -> Result<(), Unfit> {
        if !is_in_order {
            let ttls_s = &self.ttls_s;
            let mut sorted: Vec<_> =
                self.kept.iter().copied().zip(ttls_s.iter().copied()).collect();
            sorted.sort_by_key(|(kept, _)| (kept.record.section, kept.rank));
            (self.kept, self.ttls_s) = sorted.into_iter().unzip();
        }
        self.stored.extend_from_slice(&[0; HEADER_BYTES]);
        self.stored.extend_from_slice(question.bytes);
        self.encoder.begin(&self.stored, HEAD_BYTES)?;
        for at in 0..self.kept.len() {
            let record = self.kept[at].record;
            self.append(message, &record)?;
        }
        Ok(())
    }

    /// Writes one more record, and returns the offset of its TTL in the message.
    fn append(&mut self, message: &Message<'_>, record: &Record) -> Result<usize, Unfit> {
        let at = self.encoder.record(message, record, &mut self.stored, HEAD_BYTES)?;
        if self.stored.len() > HEAD_BYTES + MESSAGE_BYTES_MAX {
            return Err(Unfit::TooLong);
        }
        self.places.push(at as u16);
        Ok(at)
    }
}

impl Found {
    /// The upper bits of the response code, and an extended error.
    fn read_opt(&mut self, message: &Message<'_>, record: &Record) {
        self.rcode_high = ((record.ttl_raw >> 24) as u16) << 4;
        let mut errors =
            Options(message.rdata(record)).filter(|&(number, _)| number == option::EXTENDED_ERROR);
        self.extended_error = errors.find_map(|(_, content)| u16_at(content, 0));
    }
}

/// The message in the stored bytes.
fn message_of(stored: &[u8]) -> Option<Message<'_>> {
    let count = usize::from(u16_at(stored, 4)?);
    let message_end = stored.len().checked_sub(2 * count)?;
    Message::parse(stored.get(HEAD_BYTES..message_end)?).ok()
}

/// True where `name` has labels before those of `parent`, both in wire form and not compressed;
/// case does not count.
fn is_below(name: &[u8], parent: &[u8]) -> bool {
    let mut rest = name;
    while rest.len() > parent.len() {
        rest = rest.get(1 + usize::from(rest[0])..).unwrap_or_default();
        if rest.len() == parent.len() {
            return rest.eq_ignore_ascii_case(parent);
        }
    }
    false
}

/// True for hop-by-hop records: OPT at another place, TSIG (RFC 8945), SIG(0) (RFC 2931).
fn is_between_neighbours(message: &Message<'_>, record: &Record) -> bool {
    match record.rtype {
        rtype::OPT | rtype::TSIG => true,
        rtype::SIG => u16_at(message.rdata(record), 0) == Some(0),
        _ => false,
    }
}

/// The number of seconds at `at`.
fn ttl_at(message: &[u8], at: usize) -> u32 {
    u32_at(message, at).map_or(0, super::message::capped)
}

/// Writes the four counts of a header.
fn write_counts(message: &mut [u8], counts: [u16; 4]) {
    for (at, count) in counts.iter().enumerate() {
        message[4 + 2 * at..6 + 2 * at].copy_from_slice(&count.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
