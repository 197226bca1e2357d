//! An answer in the form in which two are compared: read by hickory, names in small letters, sections as sets.
//!
//! Settled, since nothing is meant by it: the case of names (RFC 4343), the order of records, compression, the text of
//! an extended error. TTLs are compared for records that both have.

use std::fmt;

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{Name, RData, Record};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder, NameEncoding};

/// Records of a section that are printed.
const PRINTED_MAX: usize = 6;

/// A field in which answers may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

/// A record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub owner: String,
    pub rtype: u16,
    pub class: u16,
    pub data: Vec<u8>,
    text: String,
    pub ttl_s: u32,
}

impl Entry {
    /// All but the TTL.
    fn key(&self) -> (&str, u16, u16, &[u8]) {
        (&self.owner, self.rtype, self.class, &self.data)
    }

    /// The set that it belongs to.
    pub fn set(&self) -> (&str, u16) {
        (&self.owner, self.rtype)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { owner, rtype, class, text, ttl_s, .. } = self;
        write!(f, "{owner} {ttl_s} CLASS{class} TYPE{rtype} {text:.80}")
    }
}

/// OPT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptView {
    pub udp_bytes: u16,
    pub version: u8,
    pub dnssec_ok: bool,
    pub reserved: u16,
    /// INFO-CODEs of extended errors.
    pub errors: Vec<u16>,
    /// Numbers of the other options.
    pub options: Vec<u16>,
}

/// An answer.
#[derive(Clone)]
pub struct View {
    pub bytes: usize,
    pub opcode: u8,
    pub rcode: u16,
    /// AA, TC, RD, RA, AD, CD.
    pub flags: [bool; 6],
    /// Name as it came, type, class.
    pub question: Option<(Vec<u8>, u16, u16)>,
    /// In the order they came.
    pub sections: [Vec<Entry>; 3],
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

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let View { bytes, opcode, rcode, .. } = self;
        write!(f, "{bytes} octets, operation {opcode}, code {rcode}")?;
        let names = ["AA", "TC", "RD", "RA", "AD", "CD"].iter().zip(self.flags);
        names.filter(|(_, is_set)| *is_set).try_for_each(|(name, _)| write!(f, " {name}"))?;
        write!(f, ", question {}", self.question.is_some())?;
        for (section, entries) in ["answer", "authority", "additional"].iter().zip(&self.sections) {
            write!(f, "\n    {section} {}", entries.len())?;
            entries.iter().take(PRINTED_MAX).try_for_each(|entry| write!(f, " | {entry:?}"))?;
        }
        write!(f, "\n    {:?}", self.opt)
    }
}

impl View {
    /// Reads an answer; an error is what is wrong with it.
    pub fn read(octets: &[u8]) -> Result<View, String> {
        let message = Message::from_vec(octets).map_err(|error| error.to_string())?;
        let metadata = &message.metadata;
        if metadata.message_type != MessageType::Response {
            return Err("no response".to_owned());
        }
        let section = |records: &[Record]| records.iter().map(entry).collect();
        let question = message.queries.first().map(|query| {
            (wire(&query.name), u16::from(query.query_type), u16::from(query.query_class))
        });
        let opt = message.edns.as_ref().map(|edns| {
            let all = &edns.options().options;
            let is_error = |code: &EdnsCode| u16::from(*code) == 15;
            let errors = all.iter().filter(|(code, _)| is_error(code));
            let others = all.iter().filter(|(code, _)| !is_error(code));
            OptView {
                udp_bytes: edns.max_payload(),
                version: edns.version(),
                dnssec_ok: edns.flags().dnssec_ok,
                reserved: edns.flags().z,
                errors: errors.map(|(_, option)| info_code(option)).collect(),
                options: others.map(|&(code, _)| code.into()).collect(),
            }
        });
        Ok(View {
            bytes: octets.len(),
            opcode: u8::from(metadata.op_code),
            rcode: u16::from(metadata.response_code),
            flags: [
                metadata.authoritative,
                metadata.truncation,
                metadata.recursion_desired,
                metadata.recursion_available,
                metadata.authentic_data,
                metadata.checking_disabled,
            ],
            question,
            sections: [
                section(&message.answers),
                section(&message.authorities),
                section(&message.additionals),
            ],
            opt,
        })
    }

    pub fn is_truncated(&self) -> bool {
        self.flags[1]
    }

    pub fn answers(&self) -> &[Entry] {
        &self.sections[0]
    }

    pub fn authorities(&self) -> &[Entry] {
        &self.sections[1]
    }

    /// In which fields it differs from another; TTLs may by so much.
    pub fn differences(&self, other: &View, ttl_s: u32) -> Vec<Field> {
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
        let mut ages_alike = true;
        for (at, field) in
            [Field::Answer, Field::Authority, Field::Additional].into_iter().enumerate()
        {
            let (ours, theirs) = (sorted(&self.sections[at]), sorted(&other.sections[at]));
            let keys = |entries: &[&Entry]| {
                entries.iter().map(|e| e.key()).eq(theirs.iter().map(|e| e.key()))
            };
            note(keys(&ours), field);
            for ours in &ours {
                let same = theirs.iter().find(|theirs| theirs.key() == ours.key());
                ages_alike &= same.is_none_or(|same| same.ttl_s.abs_diff(ours.ttl_s) <= ttl_s);
            }
        }
        note(ages_alike, Field::Ttl);
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
}

fn sorted(entries: &[Entry]) -> Vec<&Entry> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort();
    sorted
}

fn info_code(option: &EdnsOption) -> u16 {
    match option {
        EdnsOption::Unknown(_, content) => {
            content.first_chunk().map_or(u16::MAX, |code| u16::from_be_bytes(*code))
        }
        _ => u16::MAX,
    }
}

/// A name in wire form, as it came.
fn wire(name: &Name) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in name.iter() {
        wire.push(label.len() as u8);
        wire.extend_from_slice(label);
    }
    wire.push(0);
    wire
}

fn entry(record: &Record) -> Entry {
    Entry {
        owner: wire(&record.name).escape_ascii().to_string().to_ascii_lowercase(),
        rtype: record.record_type().into(),
        class: record.dns_class.into(),
        data: data(&record.data),
        text: record.data.to_string(),
        ttl_s: record.ttl,
    }
}

/// Data in wire form, its names in small letters.
fn data(data: &RData) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut encoder = BinEncoder::new(&mut octets);
    encoder.set_canonical_form(true);
    encoder.set_name_encoding(NameEncoding::UncompressedLowercase);
    data.emit(&mut encoder).expect("what was read can be written");
    octets
}
