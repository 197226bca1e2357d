//! Answers of two servers, held against one another field by field.
//!
//! ```text
//! octets -> View::read -> a.differences(&b): the fields in which they differ
//!                         a.ttl_differences(&b): seconds, for records that both have
//! ```
//!
//! Settled, since nothing is meant by it: the case of names (RFC 4343), the order of records (RFC 2181, section 5; two
//! servers rotate them differently), compression, the text of an extended error. TTLs are compared apart, as
//! each server has looked at another moment.
//!
//! Names in data are spelled out and in small letters for the types of RFC 4034, section 6.2; data of other types is
//! compared as it stands, which no sender compresses (RFC 3597, section 4).
//!
//! Bounds: a view is linear in its message but for names in data, each of which may be 255 octets behind a pointer of
//! two: some hundred times the message at most. Cost: an allocation or two a record, and two sorts.

use std::fmt;

use larder_wire::dns::edns::option;
use larder_wire::dns::{
    DnsError, Message, Record, Section, class, read_wire_name, rtype, skip_name,
};

use crate::presentation;

/// Records of a section that are printed.
const PRINTED_MAX: usize = 6;

/// Octets of data that are printed.
const DATA_PRINTED_MAX: usize = 40;

/// A field in which answers may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Field {
    Opcode,
    Rcode,
    Authoritative,
    Truncated,
    RecursionDesired,
    RecursionAvailable,
    Authentic,
    CheckingDisabled,
    Question,
    Answer,
    Authority,
    Additional,
    Ttl,
    Opt,
    UdpSize,
    Version,
    DnssecOk,
    Reserved,
    Errors,
    Options,
}

impl Field {
    /// What operators call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Field::Opcode => "opcode",
            Field::Rcode => "response code",
            Field::Authoritative => "AA",
            Field::Truncated => "TC",
            Field::RecursionDesired => "RD",
            Field::RecursionAvailable => "RA",
            Field::Authentic => "AD",
            Field::CheckingDisabled => "CD",
            Field::Question => "question",
            Field::Answer => "answer",
            Field::Authority => "authority",
            Field::Additional => "additional",
            Field::Ttl => "TTL",
            Field::Opt => "OPT",
            Field::UdpSize => "UDP size",
            Field::Version => "EDNS version",
            Field::DnssecOk => "DO",
            Field::Reserved => "EDNS flags",
            Field::Errors => "extended errors",
            Field::Options => "EDNS options",
        }
    }
}

/// A record. The order is that of everything but the TTL, then the TTL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Owner in wire form and small letters.
    pub owner: Vec<u8>,
    /// Type.
    pub rtype: u16,
    /// Class.
    pub class: u16,
    /// Data, its names spelled out and in small letters.
    pub data: Vec<u8>,
    /// Time to live, seconds.
    pub ttl_s: u32,
}

impl Entry {
    /// All but the TTL.
    fn key(&self) -> (&[u8], u16, u16, &[u8]) {
        (&self.owner, self.rtype, self.class, &self.data)
    }

    /// The set that it belongs to.
    pub fn set(&self) -> (&[u8], u16) {
        (&self.owner, self.rtype)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        presentation::push_name(&mut text, &self.owner);
        text.push_str(&format!(" {} ", self.ttl_s));
        if self.class != class::IN {
            presentation::push_class(&mut text, self.class);
            text.push(' ');
        }
        presentation::push_type(&mut text, self.rtype);
        text.push(' ');
        push_data(&mut text, self.rtype, &self.data);
        f.write_str(&text)
    }
}

/// Data of the types that are met most, as people write it; of others the octets, as RFC 3597 has them.
fn push_data(text: &mut String, rtype: u16, data: &[u8]) {
    match (rtype, data.len()) {
        (rtype::A, 4) => {
            let octets: Vec<String> = data.iter().map(u8::to_string).collect();
            text.push_str(&octets.join("."));
        }
        (rtype::AAAA, 16) => {
            let octets = data.first_chunk::<16>().copied().unwrap_or_default();
            text.push_str(&std::net::Ipv6Addr::from(octets).to_string());
        }
        (rtype::CNAME | rtype::NS | rtype::PTR | rtype::DNAME, _) => {
            presentation::push_name(text, data);
        }
        _ => {
            text.push_str(&format!("\\# {} ", data.len()));
            for octet in data.iter().take(DATA_PRINTED_MAX) {
                text.push_str(&format!("{octet:02x}"));
            }
            if data.len() > DATA_PRINTED_MAX {
                text.push_str("...");
            }
        }
    }
}

/// OPT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptView {
    /// The largest message over UDP that the sender takes.
    pub udp_bytes: u16,
    /// Version of EDNS.
    pub version: u8,
    /// DO.
    pub dnssec_ok: bool,
    /// Flags that have no meaning yet.
    pub reserved: u16,
    /// INFO-CODEs of extended errors.
    pub errors: Vec<u16>,
    /// Numbers of the other options.
    pub options: Vec<u16>,
}

/// An answer.
#[derive(Clone, PartialEq, Eq)]
pub struct View {
    /// Octets of the message.
    pub bytes: usize,
    /// Operation.
    pub opcode: u8,
    /// Response code, the upper bits of OPT included.
    pub rcode: u16,
    /// AA, TC, RD, RA, AD, CD.
    pub flags: [bool; 6],
    /// Name in wire form as it came, type, class.
    pub question: Option<(Vec<u8>, u16, u16)>,
    /// Answer, authority and additional records but OPT, in the order they came.
    pub sections: [Vec<Entry>; 3],
    /// OPT.
    pub opt: Option<OptView>,
}

const HEADER_FLAGS: [Field; 6] = [
    Field::Authoritative,
    Field::Truncated,
    Field::RecursionDesired,
    Field::RecursionAvailable,
    Field::Authentic,
    Field::CheckingDisabled,
];

const SECTIONS: [Field; 3] = [Field::Answer, Field::Authority, Field::Additional];

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rcode = String::new();
        presentation::push_rcode(&mut rcode, self.rcode);
        f.write_str(&rcode)?;
        if self.opcode != 0 {
            write!(f, " opcode {}", self.opcode)?;
        }
        let names = ["AA", "TC", "RD", "RA", "AD", "CD"].iter().zip(self.flags);
        names.filter(|(_, is_set)| *is_set).try_for_each(|(name, _)| write!(f, " {name}"))?;
        write!(f, ", {} octets", self.bytes)?;
        for (field, entries) in SECTIONS.iter().zip(&self.sections) {
            if !entries.is_empty() {
                write!(f, "; {} {}:", entries.len(), field.as_str())?;
                let mut separator = " ";
                for entry in entries.iter().take(PRINTED_MAX) {
                    write!(f, "{separator}{entry:?}")?;
                    separator = " | ";
                }
            }
        }
        if let Some(opt) = &self.opt {
            write!(f, "; EDNS {} UDP {}", opt.version, opt.udp_bytes)?;
            write!(f, "{}", if opt.dnssec_ok { " DO" } else { "" })?;
            if !opt.errors.is_empty() {
                write!(f, " errors {:?}", opt.errors)?;
            }
            if !opt.options.is_empty() {
                write!(f, " options {:?}", opt.options)?;
            }
        }
        Ok(())
    }
}

impl View {
    /// Reads an answer; an error is what is wrong with it. Octets after the last record are passed over.
    pub fn read(octets: &[u8]) -> Result<View, DnsError> {
        let message = Message::parse(octets)?;
        if !message.is_response() {
            return Err(DnsError::NotDns);
        }
        let (high, low) = match octets {
            [_, _, high, low, ..] => (*high, *low),
            _ => return Err(DnsError::TooShort),
        };
        let question = match message.question()? {
            None => None,
            Some(question) => {
                let mut wire = Vec::new();
                read_wire_name(octets, question.name_offset, &mut wire)?;
                Some((wire, question.qtype, question.qclass))
            }
        };
        let mut view = View {
            bytes: octets.len(),
            opcode: message.opcode(),
            rcode: message.rcode().into(),
            flags: [high & 4, high & 2, high & 1, low & 0x80, low & 0x20, low & 0x10]
                .map(|bit| bit != 0),
            question,
            sections: [Vec::new(), Vec::new(), Vec::new()],
            opt: None,
        };
        for record in message.records() {
            let record = record?;
            if record.rtype == rtype::OPT && record.section == Section::Additional {
                view.opt = Some(opt(&message, &record));
                view.rcode |= (record.ttl_raw >> 24 << 4) as u16;
                continue;
            }
            view.sections[record.section as usize].push(Entry {
                owner: folded(octets, record.owner_offset)?,
                rtype: record.rtype,
                class: record.class,
                data: data(octets, &message, &record)?,
                ttl_s: record.ttl_s(),
            });
        }
        Ok(view)
    }

    /// TC.
    pub fn is_truncated(&self) -> bool {
        self.flags[1]
    }

    /// The answer section.
    pub fn answers(&self) -> &[Entry] {
        &self.sections[0]
    }

    /// The authority section.
    pub fn authorities(&self) -> &[Entry] {
        &self.sections[1]
    }

    /// The fields in which it differs from another, in their order; never [`Field::Ttl`].
    pub fn differences(&self, other: &View) -> Vec<Field> {
        let mut fields = Vec::new();
        let mut note = |is_equal: bool, field| {
            if !is_equal {
                fields.push(field);
            }
        };
        note(self.opcode == other.opcode, Field::Opcode);
        note(self.rcode == other.rcode, Field::Rcode);
        for (at, field) in HEADER_FLAGS.into_iter().enumerate() {
            note(self.flags[at] == other.flags[at], field);
        }
        note(self.question == other.question, Field::Question);
        for (at, field) in SECTIONS.into_iter().enumerate() {
            let (ours, theirs) = (sorted(&self.sections[at]), sorted(&other.sections[at]));
            let keys = |entries: &[&Entry]| {
                entries.iter().map(|e| e.key()).eq(theirs.iter().map(|e| e.key()))
            };
            note(keys(&ours), field);
        }
        note(self.opt.is_some() == other.opt.is_some(), Field::Opt);
        if let (Some(ours), Some(theirs)) = (&self.opt, &other.opt) {
            note(ours.udp_bytes == theirs.udp_bytes, Field::UdpSize);
            note(ours.version == theirs.version, Field::Version);
            note(ours.dnssec_ok == theirs.dnssec_ok, Field::DnssecOk);
            note(ours.reserved == theirs.reserved, Field::Reserved);
            note(ours.errors == theirs.errors, Field::Errors);
            note(ours.options == theirs.options, Field::Options);
        }
        fields
    }

    /// Its TTL less the other's, seconds, for each record that both have in the same section.
    pub fn ttl_differences(&self, other: &View) -> Vec<i64> {
        let mut differences = Vec::new();
        for (ours, theirs) in self.sections.iter().zip(&other.sections) {
            let (ours, theirs) = (sorted(ours), sorted(theirs));
            let mut rest = theirs.iter().peekable();
            for ours in ours {
                while rest.next_if(|theirs| theirs.key() < ours.key()).is_some() {}
                if let Some(theirs) = rest.next_if(|theirs| theirs.key() == ours.key()) {
                    differences.push(i64::from(ours.ttl_s) - i64::from(theirs.ttl_s));
                }
            }
        }
        differences
    }

    /// True where both have records of the same owners and types in the answer, whatever their data.
    pub fn has_same_sets(&self, other: &View) -> bool {
        let sets = |view: &View| {
            let mut sets: Vec<(Vec<u8>, u16)> =
                view.answers().iter().map(|entry| (entry.owner.clone(), entry.rtype)).collect();
            sets.sort_unstable();
            sets.dedup();
            sets
        };
        sets(self) == sets(other)
    }
}

fn sorted(entries: &[Entry]) -> Vec<&Entry> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_unstable();
    sorted
}

/// What an OPT record says. Options that are not whole end the list.
fn opt(message: &Message<'_>, record: &Record) -> OptView {
    let (mut errors, mut options) = (Vec::new(), Vec::new());
    let mut rest = message.rdata(record);
    while let Some((fixed, after)) = rest.split_first_chunk::<4>() {
        let number = u16::from_be_bytes([fixed[0], fixed[1]]);
        let length = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let Some((content, after)) = after.split_at_checked(length) else { break };
        rest = after;
        if number == option::EXTENDED_ERROR {
            let code = content.first_chunk().map_or(u16::MAX, |code| u16::from_be_bytes(*code));
            errors.push(code);
        } else {
            options.push(number);
        }
    }
    OptView {
        udp_bytes: record.class,
        version: (record.ttl_raw >> 16) as u8,
        dnssec_ok: record.ttl_raw & 0x8000 != 0,
        reserved: (record.ttl_raw & 0x7fff) as u16,
        errors,
        options,
    }
}

/// The name at an offset in wire form and small letters. Lengths of labels are below the letters.
fn folded(octets: &[u8], offset: usize) -> Result<Vec<u8>, DnsError> {
    let mut wire = Vec::new();
    read_wire_name(octets, offset, &mut wire)?;
    wire.make_ascii_lowercase();
    Ok(wire)
}

/// What stands before the names in data, and how many names there are, by type (RFC 4034, section 6.2).
const fn names_in(record_type: u16) -> Option<(usize, usize)> {
    match record_type {
        // NS, MD, MF, CNAME, MB, MG, MR, PTR, NXT, DNAME, NSEC.
        2..=5 | 7..=9 | 12 | 30 | 39 | 47 => Some((0, 1)),
        // SOA, MINFO, RP.
        6 | 14 | 17 => Some((0, 2)),
        // MX, AFSDB, RT, KX.
        15 | 18 | 21 | 36 => Some((2, 1)),
        // PX.
        26 => Some((2, 2)),
        // SRV.
        33 => Some((6, 1)),
        // SIG, RRSIG.
        24 | 46 => Some((18, 1)),
        _ => None,
    }
}

/// Data of a record with its names spelled out and in small letters; as it stands where it is not what its type says.
fn data(octets: &[u8], message: &Message<'_>, record: &Record) -> Result<Vec<u8>, DnsError> {
    let plain = message.rdata(record);
    let Some((before, names)) = names_in(record.rtype) else { return Ok(plain.to_vec()) };
    if plain.len() < before {
        return Ok(plain.to_vec());
    }
    let mut data = plain[..before].to_vec();
    let mut at = record.rdata_offset + before;
    for _ in 0..names {
        let end = skip_name(octets, at)?;
        if end > record.rdata_end() {
            return Ok(plain.to_vec());
        }
        data.extend_from_slice(&folded(octets, at)?);
        at = end;
    }
    data.extend_from_slice(&octets[at..record.rdata_end()]);
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `www.example.` with an alias, two addresses, an SOA and OPT; names compressed.
    fn message(ttl_s: u8, is_other_way_round: bool) -> Vec<u8> {
        let mut out = vec![0x12, 0x34, 0x81, 0x80, 0, 1, 0, 3, 0, 1, 0, 1];
        out.extend_from_slice(b"\x03wWw\x07example\0\0\x01\0\x01");
        out.extend_from_slice(b"\xc0\x0c\0\x05\0\x01\0\0\0");
        out.extend_from_slice(&[ttl_s, 0, 4, 1, b'A', 0xc0, 16]);
        let mut addresses = [1, 2];
        if is_other_way_round {
            addresses.reverse();
        }
        for last in addresses {
            out.extend_from_slice(b"\x01a\xc0\x10\0\x01\0\x01\0\0\0");
            out.extend_from_slice(&[ttl_s, 0, 4, 192, 0, 2, last]);
        }
        out.extend_from_slice(b"\xc0\x10\0\x06\0\x01\0\0\0\x3c\0\x1a\xc0\x10\x01h\xc0\x10");
        out.extend_from_slice(&[0; 20]);
        out.extend_from_slice(b"\0\0\x29\x04\xd0\x01\0\x80\0\0\x0a\0\x0f\0\x02\0\x03\0\x08\0\0");
        out
    }

    /// Every field is read; names in data are spelled out and small, the question stays as it came.
    #[test]
    fn fields_are_read() {
        let view = View::read(&message(60, false)).unwrap();
        assert_eq!((view.opcode, view.rcode), (0, 16));
        assert_eq!(view.flags, [false, false, true, true, false, false]);
        assert_eq!(view.question, Some((b"\x03wWw\x07example\0".to_vec(), 1, 1)));
        let alias = &view.answers()[0];
        assert_eq!(alias.data, b"\x01a\x07example\0");
        assert_eq!(alias.owner, b"\x03www\x07example\0");
        let soa = &view.authorities()[0];
        assert_eq!(soa.data, [&b"\x07example\0\x01h\x07example\0"[..], &[0; 20]].concat());
        let opt = view.opt.as_ref().unwrap();
        assert_eq!((opt.udp_bytes, opt.dnssec_ok, opt.version), (1_232, true, 0));
        assert_eq!((&opt.errors[..], &opt.options[..]), (&[3][..], &[8][..]));
        let text = format!("{view:?}");
        let expected = "BADVERS RD RA, ";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains("3 answer: www.example. 60 CNAME a.example. | a.example. 60 A 192.0.2.1")
        );
        assert!(text.contains("EDNS 0 UDP 1232 DO errors [3] options [8]"), "{text}");
    }

    /// The order of records and their TTLs are no difference; anything else is, and is named.
    #[test]
    fn what_differs_is_named() {
        let ours = View::read(&message(60, false)).unwrap();
        let theirs = View::read(&message(45, true)).unwrap();
        assert_eq!(ours.differences(&theirs), []);
        assert_eq!(ours.ttl_differences(&theirs), [15, 15, 15, 0]);
        let mut other = theirs.clone();
        other.sections[0][2].data[3] = 9;
        assert_eq!(ours.differences(&other), [Field::Answer]);
        assert!(ours.has_same_sets(&other));
        assert_eq!(ours.ttl_differences(&other), [15, 15, 0]);
        other.sections[0].pop();
        other.sections[0].pop();
        assert!(!ours.has_same_sets(&other));
        other = theirs;
        other.rcode = 3;
        other.flags[4] = true;
        other.opt.as_mut().unwrap().udp_bytes = 512;
        assert_eq!(ours.differences(&other), [Field::Rcode, Field::Authentic, Field::UdpSize]);
    }

    /// A question, and what is cut, is no answer.
    #[test]
    fn others_are_errors() {
        let whole = message(60, false);
        let mut question = whole.clone();
        question[2] &= 0x7f;
        assert_eq!(View::read(&question), Err(DnsError::NotDns));
        for end in 0..whole.len() {
            assert!(View::read(&whole[..end]).is_err(), "{end}");
        }
    }

    proptest! {
        /// No octets make the reader panic, and what it reads does not differ from itself.
        #[test]
        fn noise_never_panics(
            at in 0..100_usize,
            noise in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut octets = message(60, false);
            let end = (at + noise.len()).min(octets.len());
            octets.splice(at..end, noise);
            if let Ok(view) = View::read(&octets) {
                prop_assert_eq!(view.differences(&view), []);
                prop_assert!(view.ttl_differences(&view).iter().all(|difference| *difference == 0));
                let text = format!("{view:?}");
                prop_assert!(text.is_ascii());
            }
        }
    }
}
