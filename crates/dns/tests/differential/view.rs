//! A response as hickory reads it, in the form that `larder_dns::compare` compares. The form's own
//! reader must give the same.

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{Name, RData, Record};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder, NameEncoding};
pub use larder_dns::compare::{Entry, Field, OptView, View};

/// Reads a response; the error describes what is invalid.
pub fn read(bytes: &[u8]) -> Result<View, String> {
    let message = Message::from_vec(bytes).map_err(|error| error.to_string())?;
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
        bytes: bytes.len(),
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

fn info_code(option: &EdnsOption) -> u16 {
    match option {
        EdnsOption::Unknown(_, content) => {
            content.first_chunk().map_or(u16::MAX, |code| u16::from_be_bytes(*code))
        }
        _ => u16::MAX,
    }
}

/// A name in wire format, in its original case.
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
        owner: wire(&record.name).to_ascii_lowercase(),
        rtype: record.record_type().into(),
        class: record.dns_class.into(),
        data: data(&record.data),
        ttl_s: record.ttl,
    }
}

/// Data in wire format, its names in lower case.
fn data(data: &RData) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = BinEncoder::new(&mut bytes);
    encoder.set_canonical_form(true);
    encoder.set_name_encoding(NameEncoding::UncompressedLowercase);
    data.emit(&mut encoder).expect("what was read can be written");
    bytes
}
