//! Records as rows: self-delimiting bytes, for programs and formats that take them apart into columns.
//!
//! Workers render rows in parallel, and rows can be kept, sorted and put in order like the lines of other formats.
//! [`next`] takes a row apart.
//!
//! ```text
//! row      = value of each field of the schema, in its order
//! value    = 0                            absent
//!          | 1 i64                        Date, Long
//!          | 1 flag                       Boolean
//!          | 1 string                     Keyword, Ip, Id
//!          | 1 count:u32 string ...       Keywords, Ips
//! string   = len:u32 bytes               all numbers little-endian
//! ```
//!
//! Strings are ASCII: names from the network are in the `\xHH` spelling. Cost: a copy of each value, and no
//! allocation.

use super::RecordWriter;
use super::fields::FIELDS;
use super::schema::{self, Type, Value};
use crate::Error;
use crate::record::FlowRecord;

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;

/// Renders records as rows. There is no header and no footer.
#[derive(Debug)]
pub struct Rows;

impl RecordWriter for Rows {
    fn record(&self, record: &FlowRecord, out: &mut Vec<u8>) {
        for field in FIELDS {
            write_value((field.get)(record), out);
        }
    }
}

fn write_value(value: Value<'_>, out: &mut Vec<u8>) {
    out.push(if matches!(value, Value::Absent) { ABSENT } else { PRESENT });
    match value {
        Value::Absent => {}
        Value::Time(ns) => out.extend_from_slice(&ns.to_le_bytes()),
        Value::Number(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::Flag(flag) => out.push(flag.into()),
        Value::Word(_)
        | Value::CommunityId(_)
        | Value::Uid(_)
        | Value::Ip(_)
        | Value::Id(_)
        | Value::Name(_) => {
            with_u32_before(out, |out| {
                schema::write_plain(value, out);
                None
            });
        }
        Value::Words(words) => with_u32_before(out, |out| {
            for word in words {
                with_u32_before(out, |out| {
                    out.extend_from_slice(word.as_bytes());
                    None
                });
            }
            Some(words.len())
        }),
        Value::Ips(record) => with_u32_before(out, |out| {
            let (first, second) = schema::related_addrs(record);
            let addrs = [Some(first), second];
            for addr in addrs.into_iter().flatten() {
                with_u32_before(out, |out| {
                    schema::write_plain(Value::Ip(addr), out);
                    None
                });
            }
            Some(addrs.into_iter().flatten().count())
        }),
        Value::Names(names) => with_u32_before(out, |out| {
            let mut count = 0;
            names.for_each(|name| {
                count += 1;
                with_u32_before(out, |out| {
                    schema::write_name(name, out);
                    None
                });
            });
            Some(count)
        }),
    }
}

/// Appends what `write` appends, and before it the number that `write` returns, or else its length.
fn with_u32_before(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Option<usize>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let number = write(out).unwrap_or(out.len() - start - 4);
    out[start..start + 4].copy_from_slice(&(number as u32).to_le_bytes());
}

/// A value in a row; [`next`] returns `None` for an absent one.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'r> {
    /// Of a date, ns since 1970 UTC, or a count.
    Number(i64),
    /// Of a Boolean.
    Flag(bool),
    /// Of a word, a name, an address or an identifier: ASCII.
    Text(&'r [u8]),
    /// Of a list.
    List(Strings<'r>),
}

/// The strings of a list. [`next`] has checked their lengths.
#[derive(Clone, Copy, Debug)]
pub struct Strings<'r> {
    count: u32,
    bytes: &'r [u8],
}

impl<'r> Iterator for Strings<'r> {
    type Item = &'r [u8];

    fn next(&mut self) -> Option<&'r [u8]> {
        self.count = self.count.checked_sub(1)?;
        take_string(&mut self.bytes)
    }
}

/// Takes the next value, of a field of this type, from the front of a row.
///
/// # Errors
/// [`Error::Output`] if the row is cut: a temporary file was damaged.
pub fn next<'r>(kind: Type, row: &mut &'r [u8]) -> Result<Option<Cell<'r>>, Error> {
    take_cell(kind, row).ok_or_else(|| Error::Output {
        what: "rows".to_owned(),
        why: "they are damaged: check the disk of the temporary directory, and run again"
            .to_owned(),
    })
}

fn take_cell<'r>(kind: Type, row: &mut &'r [u8]) -> Option<Option<Cell<'r>>> {
    if take(row, 1)? != [PRESENT] {
        return Some(None);
    }
    Some(Some(match kind {
        Type::Date | Type::Long => Cell::Number(i64::from_le_bytes(*take(row, 8)?.first_chunk()?)),
        Type::Boolean => Cell::Flag(take(row, 1)? == [1]),
        Type::Keyword | Type::Ip | Type::Id => Cell::Text(take_string(row)?),
        Type::Keywords | Type::Ips => {
            let count = take_u32(row)?;
            let before = *row;
            for _ in 0..count {
                take_string(row)?;
            }
            let bytes = &before[..before.len() - row.len()];
            Cell::List(Strings { count, bytes })
        }
    }))
}

fn take_string<'r>(row: &mut &'r [u8]) -> Option<&'r [u8]> {
    let len = take_u32(row)?;
    take(row, len as usize)
}

fn take<'a>(row: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = row.split_at_checked(len)?;
    *row = rest;
    Some(taken)
}

fn take_u32(row: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*take(row, 4)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut rows: &[u8]) -> Result<usize, Error> {
        let mut count = 0;
        while !rows.is_empty() {
            for field in FIELDS {
                next(field.kind, &mut rows)?;
            }
            count += 1;
        }
        Ok(count)
    }

    /// Bytes that are no rows are an error and not a panic.
    #[test]
    fn damaged_rows() {
        for rows in [&[0; 7][..], &[1; 60], &[1, 255, 255, 255, 255, 255, 255, 255, 255, 1]] {
            assert!(matches!(read(rows), Err(Error::Output { .. })));
        }
        assert_eq!(read(&vec![0; 3 * FIELDS.len()]).ok(), Some(3));
    }
}
