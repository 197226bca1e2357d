//! Comma-separated values: the schema, a cell a field, names of the fields in the first line.
//!
//! Quoting follows RFC 4180; lines end in a line feed alone, which every reader takes and no
//! Unix tool stumbles over. An absent field is an empty cell, a list is joined by spaces, and
//! names are in the `\xHH` spelling, so no cell holds a control octet.
//!
//! Spreadsheets run a cell that begins with `=`, `+`, `-` or `@` as a formula, and a name from the
//! network may begin with anything. Such cells get a leading `'`, which spreadsheets read as "this
//! is text"; so do cells that begin with `'`, so that taking one off restores them all. The title
//! `@timestamp` stays: it is ours, it runs nothing, and the formats are to share their names.

use super::RecordWriter;
use super::schema::{self, FIELDS, Value};
use crate::record::FlowRecord;

/// Writes CSV lines.
#[derive(Debug, Default)]
pub struct Csv;

impl Csv {
    /// A writer.
    pub fn new() -> Csv {
        Csv
    }
}

impl RecordWriter for Csv {
    fn header(&mut self, out: &mut Vec<u8>) {
        for (i, field) in FIELDS.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(field.name.as_bytes());
        }
        out.push(b'\n');
    }

    fn record(&self, record: &FlowRecord, out: &mut Vec<u8>) {
        for (i, field) in FIELDS.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            let (start, value) = (out.len(), (field.get)(record));
            schema::write_plain(value, out);
            // Nothing but a name can need it: words and numbers of ours are harmless.
            if matches!(value, Value::Name(_) | Value::Names(_)) {
                make_cell(start, out);
            }
        }
        out.push(b'\n');
    }

    fn footer(&mut self, _out: &mut Vec<u8>) {}
}

/// Makes a sound and harmless cell of what stands behind `start`, in place. Nearly all values are
/// that already.
fn make_cell(start: usize, out: &mut Vec<u8>) {
    let cell = &out[start..];
    let formula = matches!(cell.first(), Some(b'=' | b'+' | b'-' | b'@' | b'\'' | b'\t' | b'\r'));
    let quoted = cell.iter().any(|octet| matches!(octet, b',' | b'"' | b'\n' | b'\r'));
    if !formula && !quoted {
        return;
    }
    let cell = out.split_off(start);
    if quoted {
        out.push(b'"');
    }
    if formula {
        out.push(b'\'');
    }
    for &octet in &cell {
        if octet == b'"' {
            out.push(b'"');
        }
        out.push(octet);
    }
    if quoted {
        out.push(b'"');
    }
}
