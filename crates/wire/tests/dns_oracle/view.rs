//! Both readings of a message in one plain form, so that `assert_eq!` can compare them.

use std::net::IpAddr;

use hickory_proto::op::{Message as Theirs, MessageType};
use hickory_proto::rr::rdata::svcb::{SVCB, SvcParamValue};
use hickory_proto::rr::{Name as TheirName, RData, Record as TheirRecord};
use larder_wire::Addr;
use larder_wire::dns::{DnsError, Message, NameBuf, Record, Section, class, rdata, rtype};

/// The data of a record, as far as larder reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    Address(String),
    /// The fields before the name (MX, SRV), and the name.
    Name(Vec<u16>, Vec<u8>),
    /// Priority, target, hints.
    Service(u16, Vec<u8>, Vec<String>),
    Other,
}

/// Owner, type, class, TTL, data.
pub type Entry = (Vec<u8>, u16, u16, u32, Data);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub id: u16,
    pub is_response: bool,
    pub opcode: u8,
    pub rcode: u8,
    pub truncated: bool,
    pub recursion_desired: bool,
    /// Name, type, class of the first question.
    pub question: Option<(Vec<u8>, u16, u16)>,
    pub sections: [Vec<Entry>; 3],
}

/// Hickory's name in larder's canonical spelling.
pub fn canonical(name: &TheirName) -> Vec<u8> {
    let labels: Vec<Vec<u8>> = name
        .iter()
        .map(|label| {
            let escape = |&byte: &u8| match byte {
                b'.' | b'\\' => vec![b'\\', byte],
                _ => vec![byte.to_ascii_lowercase()],
            };
            label.iter().flat_map(escape).collect()
        })
        .collect();
    labels.join(&b'.')
}

/// False for types that hickory removes from the sections: OPT, and the signatures of a complete
/// message if hickory was built with DNSSEC.
fn is_compared(rtype: u16) -> bool {
    !matches!(rtype, rtype::OPT | rtype::TSIG | rtype::SIG)
}

/// An address as larder prints it: an IPv4-mapped IPv6 address is printed as IPv4.
fn text(addr: impl Into<IpAddr>) -> String {
    Addr::from(addr.into()).to_string()
}

/// Data of the compared types has a meaning only in class IN (also with the mDNS flag).
fn has_our_class(class: u16) -> bool {
    class & !class::MDNS_TOP_BIT == class::IN
}

fn hints_of(svcb: &SVCB) -> Vec<String> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (_, value) in &svcb.svc_params {
        match value {
            SvcParamValue::Ipv4Hint(hint) => v4.extend(hint.0.iter().map(|a| text(a.0))),
            SvcParamValue::Ipv6Hint(hint) => v6.extend(hint.0.iter().map(|a| text(a.0))),
            _ => {}
        }
    }
    v4.extend(v6);
    v4
}

fn service(svcb: &SVCB) -> Data {
    let hints = if svcb.svc_priority == 0 { Vec::new() } else { hints_of(svcb) };
    Data::Service(svcb.svc_priority, canonical(&svcb.target_name), hints)
}

fn their_entry(record: &TheirRecord) -> Entry {
    let class = u16::from(record.dns_class);
    let data = match &record.data {
        _ if !has_our_class(class) => Data::Other,
        RData::A(a) => Data::Address(text(a.0)),
        RData::AAAA(aaaa) => Data::Address(text(aaaa.0)),
        RData::CNAME(name) => Data::Name(vec![], canonical(&name.0)),
        RData::NS(name) => Data::Name(vec![], canonical(&name.0)),
        RData::PTR(name) => Data::Name(vec![], canonical(&name.0)),
        RData::MX(mx) => Data::Name(vec![mx.preference], canonical(&mx.exchange)),
        RData::SRV(srv) => {
            Data::Name(vec![srv.priority, srv.weight, srv.port], canonical(&srv.target))
        }
        RData::SVCB(svcb) => service(svcb),
        RData::HTTPS(https) => service(&https.0),
        _ => Data::Other,
    };
    let ttl = record.ttl.min(i32::MAX as u32);
    let rtype = u16::from(record.record_type());
    (canonical(&record.name), rtype, class, ttl, data)
}

/// hickory's reading.
pub fn theirs(message: &Theirs) -> View {
    let section = |records: &[TheirRecord]| {
        let entries = records.iter().map(their_entry);
        entries.filter(|entry| is_compared(entry.1)).collect::<Vec<_>>()
    };
    let metadata = &message.metadata;
    View {
        id: metadata.id,
        is_response: metadata.message_type == MessageType::Response,
        opcode: u8::from(metadata.op_code),
        // With EDNS, hickory adds high bits that are not in the header.
        rcode: (u16::from(metadata.response_code) & 15) as u8,
        truncated: metadata.truncation,
        recursion_desired: metadata.recursion_desired,
        question: message.queries.first().map(|query| {
            (canonical(&query.name), u16::from(query.query_type), u16::from(query.query_class))
        }),
        sections: [
            section(&message.answers),
            section(&message.authorities),
            section(&message.additionals),
        ],
    }
}

fn our_name(message: &Message<'_>, offset: usize) -> Result<Vec<u8>, DnsError> {
    let mut name = NameBuf::new();
    message.read_name(offset, &mut name)?;
    Ok(name.as_bytes().to_vec())
}

fn our_data(message: &Message<'_>, record: &Record) -> Result<Data, DnsError> {
    let named = |skip: usize| {
        let mut name = NameBuf::new();
        rdata::name(message, record, skip, &mut name)?;
        let before = message.rdata(record)[..skip].chunks_exact(2);
        let before = before.map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        Ok(Data::Name(before, name.as_bytes().to_vec()))
    };
    match record.rtype {
        _ if !has_our_class(record.class) => Ok(Data::Other),
        rtype::A => rdata::a(message, record).map(|addr| Data::Address(addr.to_string())),
        rtype::AAAA => rdata::aaaa(message, record).map(|addr| Data::Address(addr.to_string())),
        rtype::CNAME | rtype::NS | rtype::PTR => named(0),
        rtype::MX => named(2),
        rtype::SRV => named(6),
        rtype::SVCB | rtype::HTTPS => {
            let svcb = rdata::svcb(message, record)?;
            let target = our_name(message, svcb.target_offset)?;
            let hints = svcb.hints().map(|addr| addr.to_string()).collect();
            Ok(Data::Service(svcb.priority, target, hints))
        }
        _ => Ok(Data::Other),
    }
}

/// larder's reading; the first damage makes it an error, as in hickory.
pub fn ours(bytes: &[u8]) -> Result<View, DnsError> {
    read(bytes, our_data)
}

/// larder's reading, without the records' data.
pub fn ours_without_data(bytes: &[u8]) -> Result<View, DnsError> {
    read(bytes, |_, _| Ok(Data::Other))
}

fn read(
    bytes: &[u8],
    data: impl Fn(&Message<'_>, &Record) -> Result<Data, DnsError>,
) -> Result<View, DnsError> {
    let message = Message::parse(bytes)?;
    let question = match message.question()? {
        Some(question) => {
            let name = our_name(&message, question.name_offset)?;
            Some((name, question.qtype, question.qclass))
        }
        None => None,
    };
    let mut sections = [const { Vec::new() }; 3];
    for record in message.records() {
        let record = record?;
        let owner = our_name(&message, record.owner_offset)?;
        let data = data(&message, &record)?;
        if is_compared(record.rtype) {
            let entry = (owner, record.rtype, record.class, record.ttl_s(), data);
            sections[record.section as usize].push(entry);
        }
    }
    assert_eq!(Section::ALL.len(), sections.len());
    Ok(View {
        id: message.id(),
        is_response: message.is_response(),
        opcode: message.opcode(),
        rcode: message.rcode(),
        truncated: message.is_truncated(),
        recursion_desired: message.recursion_desired(),
        question,
        sections,
    })
}
