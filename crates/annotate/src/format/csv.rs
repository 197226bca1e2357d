//! Comma-separated values: the schema, a cell a field, names of the fields in the first line.
//!
//! Quoting follows RFC 4180. Lines end in a line feed only, which every reader accepts. An absent
//! field is an empty cell, a list is joined by spaces, and names are in the `\xHH` spelling, so no
//! cell has a control byte.
//!
//! Spreadsheets run a cell that begins with `=`, `+`, `-` or `@` as a formula, and a name from the
//! network may begin with anything. Such cells get a leading `'`, which spreadsheets read as "this
//! is text". So do cells that begin with `'`: removing one restores them all. The title
//! `@timestamp` stays: it runs nothing, and all formats share their names.

use super::RecordWriter;
use super::fields::FIELDS;
use super::schema::{self, Field, Value};
use crate::record::FlowRecord;

/// Writes CSV lines.
#[derive(Debug)]
pub struct Csv;

impl RecordWriter for Csv {
    fn header(&self, _now_ns: i64, out: &mut Vec<u8>) {
        write_names(FIELDS.iter(), out);
    }

    fn record(&self, record: &FlowRecord, out: &mut Vec<u8>) {
        write_cells(FIELDS.iter(), record, out);
    }
}

/// Appends a line with the names of fields.
pub(crate) fn write_names<'f>(fields: impl Iterator<Item = &'f Field>, out: &mut Vec<u8>) {
    for (i, field) in fields.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(field.name.as_bytes());
    }
    out.push(b'\n');
}

/// Appends a line with the fields of a record.
pub(crate) fn write_cells<'f>(
    fields: impl Iterator<Item = &'f Field>,
    record: &FlowRecord,
    out: &mut Vec<u8>,
) {
    for (i, field) in fields.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        let (start, value) = (out.len(), (field.get)(record));
        schema::write_plain(value, out);
        // Only a name can need it: other words and numbers are harmless.
        if matches!(value, Value::Name(_) | Value::Names(_)) {
            make_cell(start, out);
        }
    }
    out.push(b'\n');
}

/// Quotes the cell after `start`, in place, if it needs that. Nearly no value does.
fn make_cell(start: usize, out: &mut Vec<u8>) {
    let cell = &out[start..];
    let formula = matches!(cell.first(), Some(b'=' | b'+' | b'-' | b'@' | b'\'' | b'\t' | b'\r'));
    let quoted = cell.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'));
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
    for &byte in &cell {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    if quoted {
        out.push(b'"');
    }
}
