//! Records, names, codes and hexadecimal bytes in the notation of scenarios, parsed by hickory.
//!
//! ```text
//! record   NAME TTL TYPE DATA       www.example 60 A 192.0.2.1
//! names    absolute, with or without the last dot
//! types    by name, or TYPE65280    codes    by name, or RCODE9
//! ```
//!
//! Data has the format of zone files. hickory without its own DNSSEC lacks some types. This module
//! adds these, with numbers as times: `RRSIG COVERED ALGORITHM LABELS TTL UNTIL FROM TAG SIGNER
//! HEX`, `NSEC NEXT TYPE…`, `DS TAG ALGORITHM DIGEST HEX`. It also adds `DNAME NAME`.

use std::str::FromStr;

use hickory_proto::op::{Message, MessageType, OpCode};
use hickory_proto::rr::rdata::NULL;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

/// An absolute name.
pub fn name(text: &str) -> Result<Name, String> {
    let mut name = Name::from_ascii(text).map_err(|error| format!("{text}: {error}"))?;
    name.set_fqdn(true);
    Ok(name)
}

/// A type.
pub fn record_type(text: &str) -> Result<RecordType, String> {
    let number = text.strip_prefix("TYPE").and_then(|number| number.parse::<u16>().ok());
    match number {
        Some(number) => Ok(RecordType::from(number)),
        None => RecordType::from_str(text).map_err(|_| format!("{text} is no type")),
    }
}

/// A class.
pub fn class(text: &str) -> Result<DNSClass, String> {
    match text {
        "IN" => Ok(DNSClass::IN),
        "CH" => Ok(DNSClass::CH),
        "HS" => Ok(DNSClass::HS),
        "ANY" => Ok(DNSClass::ANY),
        _ => Err(format!("{text} is no class")),
    }
}

const RCODES: [(&str, u16); 11] = [
    ("NOERROR", 0),
    ("FORMERR", 1),
    ("SERVFAIL", 2),
    ("NXDOMAIN", 3),
    ("NOTIMP", 4),
    ("REFUSED", 5),
    ("YXDOMAIN", 6),
    ("NOTAUTH", 9),
    ("BADVERS", 16),
    ("BADTRUNC", 22),
    ("BADCOOKIE", 23),
];

/// A response code.
pub fn rcode(text: &str) -> Result<u16, String> {
    let known = RCODES.iter().find(|(name, _)| *name == text).map(|&(_, code)| code);
    let number = || text.strip_prefix("RCODE").and_then(|number| number.parse().ok());
    known.or_else(number).ok_or_else(|| format!("{text} is no response code"))
}

/// The name of a response code.
pub fn rcode_name(code: u16) -> String {
    let known = RCODES.iter().find(|&&(_, each)| each == code);
    known.map_or_else(|| format!("RCODE{code}"), |(name, _)| (*name).to_owned())
}

/// Hexadecimal bytes, with any blanks between them.
pub fn hex<'a>(words: impl Iterator<Item = &'a str>) -> Result<Vec<u8>, String> {
    let digits: String = words.collect();
    let byte = |at: usize| digits.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.ok_or_else(|| format!("{digits} is not hexadecimal"))
}

/// A record; `CH` before its type sets its class.
pub fn record(words: &[&str]) -> Result<Record, String> {
    let [owner, ttl_s, type_name, data @ ..] = words else {
        return Err("a record is NAME TTL TYPE DATA".into());
    };
    if *type_name == "CH" {
        let mut record = record(&[&[*owner, *ttl_s], data].concat())?;
        record.dns_class = DNSClass::CH;
        return Ok(record);
    }
    let ttl_s = ttl_s.parse().map_err(|_| format!("{ttl_s} is no TTL"))?;
    let rtype = record_type(type_name)?;
    Ok(Record::from_rdata(name(owner)?, ttl_s, rdata(rtype, data)?))
}

fn rdata(rtype: RecordType, words: &[&str]) -> Result<RData, String> {
    let bytes = match rtype {
        RecordType::RRSIG => rrsig(words)?,
        RecordType::NSEC => nsec(words)?,
        RecordType::DS => ds(words)?,
        RecordType::DNAME => {
            let [target] = words else { return Err("DNAME has one name".into()) };
            wire_name(target)?
        }
        _ => {
            let text = words.join(" ");
            return RData::try_from_str(rtype, &text).map_err(|error| format!("{text}: {error}"));
        }
    };
    Ok(RData::Unknown { code: rtype, rdata: NULL::with(bytes) })
}

fn number<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word} is no number that fits here"))
}

/// A name in wire format.
fn wire_name(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for label in name(text)?.iter() {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label);
    }
    bytes.push(0);
    Ok(bytes)
}

fn rrsig(words: &[&str]) -> Result<Vec<u8>, String> {
    let [covered, algorithm, labels, ttl_s, until, from, tag, signer, signature @ ..] = words
    else {
        return Err("RRSIG is COVERED ALGORITHM LABELS TTL UNTIL FROM TAG SIGNER HEX".into());
    };
    let mut bytes = u16::from(record_type(covered)?).to_be_bytes().to_vec();
    bytes.extend([number::<u8>(algorithm)?, number(labels)?]);
    for time in [ttl_s, until, from] {
        bytes.extend(number::<u32>(time)?.to_be_bytes());
    }
    bytes.extend(number::<u16>(tag)?.to_be_bytes());
    bytes.extend(wire_name(signer)?);
    bytes.extend(hex(signature.iter().copied())?);
    Ok(bytes)
}

/// Only types of window 0.
fn nsec(words: &[&str]) -> Result<Vec<u8>, String> {
    let [next, types @ ..] = words else { return Err("NSEC is NEXT TYPE…".into()) };
    let mut bits = [0u8; 32];
    for each in types {
        let at = usize::from(u16::from(record_type(each)?));
        *bits.get_mut(at / 8).ok_or("types below 256 only")? |= 0x80 >> (at % 8);
    }
    let len = bits.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let mut bytes = wire_name(next)?;
    bytes.extend([0, len as u8]);
    bytes.extend_from_slice(&bits[..len]);
    Ok(bytes)
}

fn ds(words: &[&str]) -> Result<Vec<u8>, String> {
    let [tag, algorithm, digest_type, digest @ ..] = words else {
        return Err("DS is TAG ALGORITHM DIGEST HEX".into());
    };
    let mut bytes = number::<u16>(tag)?.to_be_bytes().to_vec();
    bytes.extend([number::<u8>(algorithm)?, number(digest_type)?]);
    bytes.extend(hex(digest.iter().copied())?);
    Ok(bytes)
}

/// A record as a line that is the same for equal records: names of any case are equal, and names in
/// data may be compressed.
pub fn line(record: &Record) -> String {
    let class = match record.dns_class {
        DNSClass::IN => String::new(),
        class => format!("{class} "),
    };
    let data = match &record.data {
        RData::Unknown { rdata, .. } => {
            rdata.anything.iter().map(|byte| format!("{byte:02x}")).collect()
        }
        data => data.to_string(),
    };
    let name = record.name.to_ascii();
    format!("{name} {} {class}{} {data}", record.ttl, record.record_type()).to_lowercase()
}

/// The lines of these records after a message was encoded and read.
pub fn lines_as_read(records: &[Record]) -> Result<Vec<String>, String> {
    let mut message = Message::new(0, MessageType::Response, OpCode::Query);
    message.add_answers(records.to_vec());
    let bytes = message.to_vec().map_err(|error| error.to_string())?;
    let read = Message::from_vec(&bytes).map_err(|error| error.to_string())?;
    Ok(read.answers.iter().map(line).collect())
}
