//! Prints responses and records in a line, for reports and failed tests; long ones are cut.

use std::fmt;

use larder_wire::dns::{class, rtype};

use super::{Entry, SECTIONS, View};
use crate::presentation;

/// Records of a section that are printed.
const PRINTED_MAX: usize = 6;

/// Bytes of data that are printed.
const DATA_PRINTED_MAX: usize = 40;

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
        write!(f, ", {} bytes", self.bytes)?;
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

/// Appends data: of frequent types in presentation form, of other types as bytes (RFC 3597).
fn push_data(text: &mut String, rtype: u16, data: &[u8]) {
    match (rtype, data.len()) {
        (rtype::A, 4) => {
            let bytes: Vec<String> = data.iter().map(u8::to_string).collect();
            text.push_str(&bytes.join("."));
        }
        (rtype::AAAA, 16) => {
            let bytes = data.first_chunk::<16>().copied().unwrap_or_default();
            text.push_str(&std::net::Ipv6Addr::from(bytes).to_string());
        }
        (rtype::CNAME | rtype::NS | rtype::PTR | rtype::DNAME, _) => {
            presentation::push_name(text, data);
        }
        _ => {
            text.push_str(&format!("\\# {} ", data.len()));
            for byte in data.iter().take(DATA_PRINTED_MAX) {
                text.push_str(&format!("{byte:02x}"));
            }
            if data.len() > DATA_PRINTED_MAX {
                text.push_str("...");
            }
        }
    }
}
