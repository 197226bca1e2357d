//! Reads normalized views of responses.
//!
//! Names in data are uncompressed and in lower case for the types of RFC 4034, section 6.2. Data of
//! other types is compared as it is, since no sender compresses it (RFC 3597, section 4).
//!
//! Bounds: a view is linear in its message except for names in data. Each of them may be 255 bytes
//! behind a pointer of two bytes, so a view is at most some hundred times the message. Cost: an
//! allocation or two for a record.

use larder_wire::dns::edns::option;
use larder_wire::dns::{DnsError, Message, Record, Section, read_wire_name, rtype, skip_name};

use super::{Entry, OptView, View};

impl View {
    /// Reads a response, or returns what is wrong with it. Bytes after the last record are ignored.
    pub fn read(bytes: &[u8]) -> Result<View, DnsError> {
        let message = Message::parse(bytes)?;
        if !message.is_response() {
            return Err(DnsError::NotDns);
        }
        let (high, low) = match bytes {
            [_, _, high, low, ..] => (*high, *low),
            _ => return Err(DnsError::TooShort),
        };
        let question = match message.question()? {
            None => None,
            Some(question) => {
                let mut wire = Vec::new();
                read_wire_name(bytes, question.name_offset, &mut wire)?;
                Some((wire, question.qtype, question.qclass))
            }
        };
        let mut view = View {
            bytes: bytes.len(),
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
                owner: folded(bytes, record.owner_offset)?,
                rtype: record.rtype,
                class: record.class,
                data: data(bytes, &message, &record)?,
                ttl_s: record.ttl_s(),
            });
        }
        Ok(view)
    }
}

/// The content of an OPT record. An incomplete option ends the list.
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

/// The name at an offset, in wire form and lower case. Lengths of labels are below the codes of
/// letters.
fn folded(bytes: &[u8], offset: usize) -> Result<Vec<u8>, DnsError> {
    let mut wire = Vec::new();
    read_wire_name(bytes, offset, &mut wire)?;
    wire.make_ascii_lowercase();
    Ok(wire)
}

/// Bytes before the names in data, and the number of names, by type (RFC 4034, section 6.2).
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

/// Data of a record with its names uncompressed and in lower case; unchanged if it is not valid for
/// its type.
fn data(bytes: &[u8], message: &Message<'_>, record: &Record) -> Result<Vec<u8>, DnsError> {
    let plain = message.rdata(record);
    let Some((before, names)) = names_in(record.rtype) else { return Ok(plain.to_vec()) };
    if plain.len() < before {
        return Ok(plain.to_vec());
    }
    let mut data = plain[..before].to_vec();
    let mut at = record.rdata_offset + before;
    for _ in 0..names {
        let end = skip_name(bytes, at)?;
        if end > record.rdata_end() {
            return Ok(plain.to_vec());
        }
        data.extend_from_slice(&folded(bytes, at)?);
        at = end;
    }
    data.extend_from_slice(&bytes[at..record.rdata_end()]);
    Ok(data)
}
