//! Elastic Common Schema: a JSON object a line, flat dotted keys.
//!
//! Every row of [`FIELDS`] is a key; one that is absent is left out, there are no nulls. A line is
//! pure ASCII, so it is valid UTF-8 and harmless on a terminal, whatever a packet put in a name:
//!
//! * printable ASCII stands as it is, `"` and `\` after a backslash;
//! * in a name that is valid UTF-8, every other character is `\uHHHH` (two of them beyond the Basic
//!   Multilingual Plane, RFC 8259 section 7), so that readers see the character;
//! * in a name that is not, every other *octet* is `\u00HH`.

use super::schema::{self, FIELDS, Value};
use super::{RecordWriter, digits};
use crate::record::FlowRecord;

/// Writes ECS lines.
#[derive(Debug)]
pub struct Ecs {
    /// For each field what stands before its value: `{"@timestamp":`, then `,"ecs.version":` ...
    keys: Vec<Box<[u8]>>,
}

impl Ecs {
    /// A writer.
    pub fn new() -> Ecs {
        let keys = FIELDS.iter().enumerate().map(|(i, field)| {
            let open = if i == 0 { "{" } else { "," };
            format!("{open}\"{}\":", field.name).into_bytes().into_boxed_slice()
        });
        Ecs { keys: keys.collect() }
    }
}

impl Default for Ecs {
    fn default() -> Ecs {
        Ecs::new()
    }
}

impl RecordWriter for Ecs {
    fn header(&mut self, _out: &mut Vec<u8>) {}

    fn record(&self, record: &FlowRecord, out: &mut Vec<u8>) {
        // The first key opens the object; its field is never absent (invariant 1 of the schema).
        for (field, key) in FIELDS.iter().zip(&self.keys) {
            let value = (field.get)(record);
            if !matches!(value, Value::Absent) {
                out.extend_from_slice(key);
                write_json(value, out);
            }
        }
        out.extend_from_slice(b"}\n");
    }

    fn footer(&mut self, _out: &mut Vec<u8>) {}
}

fn write_json(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Number(number) => digits::write_u64(number, out),
        Value::Name(name) => write_json_string(schema::name_octets(name), out),
        Value::Names(names) => {
            let mut before = b'[';
            names.for_each(|name| {
                out.push(before);
                before = b',';
                write_json_string(schema::name_octets(name), out);
            });
            out.push(b']');
        }
        Value::Words(words) => {
            let mut before = b'[';
            for word in words {
                out.push(before);
                before = b',';
                write_json_string(word.as_bytes(), out);
            }
            out.push(b']');
        }
        Value::Absent | Value::Flag(_) => schema::write_plain(value, out),
        Value::Time(_) | Value::Word(_) | Value::CommunityId(_) | Value::Ip(_) => {
            out.push(b'"');
            schema::write_plain(value, out);
            out.push(b'"');
        }
    }
}

/// Appends octets as a JSON string by the rules at the top of this file.
pub(crate) fn write_json_string(octets: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    if octets.iter().all(|&octet| stands_as_it_is(octet)) {
        out.extend_from_slice(octets);
    } else if let Ok(text) = std::str::from_utf8(octets) {
        text.encode_utf16().for_each(|unit| write_unit(unit, out));
    } else {
        octets.iter().for_each(|&octet| write_unit(octet.into(), out));
    }
    out.push(b'"');
}

#[inline]
fn stands_as_it_is(octet: u8) -> bool {
    (0x20..0x7f).contains(&octet) && octet != b'"' && octet != b'\\'
}

/// Appends one UTF-16 code unit, escaped where it has to be.
fn write_unit(unit: u16, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match u8::try_from(unit) {
        Ok(octet) if stands_as_it_is(octet) => out.push(octet),
        Ok(octet @ (b'"' | b'\\')) => out.extend_from_slice(&[b'\\', octet]),
        _ => {
            out.extend_from_slice(b"\\u");
            out.extend([12, 8, 4, 0].map(|shift| HEX[usize::from(unit >> shift & 15)]));
        }
    }
}
