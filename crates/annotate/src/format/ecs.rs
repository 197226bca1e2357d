//! Elastic Common Schema: a JSON object a line, flat dotted keys.
//!
//! Every row of [`FIELDS`] is a key; an absent one is left out, there are no nulls. A line is pure
//! ASCII, so it is valid UTF-8 and harmless on a terminal, for any name in a packet. Names have the
//! spelling of every other format (`schema::write_name`): bytes outside printable ASCII are `\xHH`,
//! of which JSON doubles the backslash.

use larder_wire::{Name, digits, json};

use super::RecordWriter;
use super::fields::FIELDS;
use super::schema::{self, Value};
use crate::record::FlowRecord;

/// Writes ECS lines.
#[derive(Debug)]
pub struct Ecs {
    /// For each field the text before its value: `{"@timestamp":`, then `,"ecs.version":` ...
    keys: Vec<Box<[u8]>>,
}

impl Default for Ecs {
    fn default() -> Ecs {
        let keys = FIELDS.iter().enumerate().map(|(i, field)| {
            let open = if i == 0 { "{" } else { "," };
            format!("{open}\"{}\":", field.name).into_bytes().into_boxed_slice()
        });
        Ecs { keys: keys.collect() }
    }
}

impl RecordWriter for Ecs {
    fn record(&self, record: &FlowRecord, out: &mut Vec<u8>) {
        // The first key opens the object; its field is never absent (invariant 1 of `schema`).
        for (field, key) in FIELDS.iter().zip(&self.keys) {
            let value = (field.get)(record);
            if !matches!(value, Value::Absent) {
                out.extend_from_slice(key);
                write_json(value, out);
            }
        }
        out.extend_from_slice(b"}\n");
    }
}

pub(crate) fn write_json(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Number(number) => digits::write_u64(number, out),
        Value::Name(name) => write_json_string(name, out),
        Value::Names(names) => {
            let mut before = b'[';
            names.for_each(|name| {
                out.push(before);
                before = b',';
                write_json_string(schema::name_bytes(name), out);
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
        Value::Ips(record) => {
            let (first, second) = schema::related_addrs(record);
            out.push(b'[');
            write_json(Value::Ip(first), out);
            if let Some(second) = second {
                out.push(b',');
                write_json(Value::Ip(second), out);
            }
            out.push(b']');
        }
        Value::Id(_)
        | Value::Time(_)
        | Value::Word(_)
        | Value::CommunityId(_)
        | Value::Uid(_)
        | Value::Ip(_) => {
            out.push(b'"');
            schema::write_plain(value, out);
            out.push(b'"');
        }
    }
}

/// Appends a name or a word as a JSON string, spelled as in every format.
pub(crate) fn write_json_string(name: &[u8], out: &mut Vec<u8>) {
    if name.iter().all(|&byte| (0x21..0x7f).contains(&byte) && byte != b'"' && byte != b'\\') {
        out.push(b'"');
        out.extend_from_slice(name);
        out.push(b'"');
    } else {
        let mut spelled = Vec::with_capacity(4 * name.len());
        Name::write_escaped(name, &mut spelled);
        json::write_string(&spelled, out);
    }
}
