//! Length checks of an export packet, before the parser sees it.
//!
//! Every length that the packet states is compared with the bytes that are there, and every template with
//! the limits. A packet that fails is refused whole and changes nothing. So the parser never gets a record
//! of no bytes, which it could read without end.
//!
//! | version | header | sets |
//! |---|---|---|
//! | NetFlow v5 | 24 bytes | 1 to 30 records of 48 bytes |
//! | NetFlow v9 (RFC 3954) | 20 bytes | templates 0, options templates 1, data from 256 |
//! | IPFIX (RFC 7011) | 16 bytes, states the length of the packet | templates 2, options templates 3, data from 256 |
//!
//! Invariants
//! 1. A template that passes has 1 to [`FIELDS_MAX`] fields, none of which is empty.
//! 2. The packet that is returned ends with its last set: nothing is left for the parser to guess at.
//!
//! Cost: one step for each set and each field of a template. Nothing is allocated.

/// Fields of a template, at most. Routers use up to about 60.
pub const FIELDS_MAX: usize = 128;
/// Bytes of all fields of fixed length in a template, at most.
pub const RECORD_BYTES_MAX: usize = 8 << 10;

/// The version of IPFIX.
pub(super) const IPFIX: u16 = 10;

const V5_HEADER_BYTES: usize = 24;
const V5_RECORD_BYTES: usize = 48;
const V5_RECORDS_MAX: usize = 30;
const V9_HEADER_BYTES: usize = 20;
pub(super) const IPFIX_HEADER_BYTES: usize = 16;
pub(super) const SET_HEADER_BYTES: usize = 4;
/// The first number of data sets, and so of templates.
pub(super) const DATA_SET_MIN: u16 = 256;
const SECOND_NS: i64 = 1_000_000_000;
/// The length that stands for "variable" (RFC 7011, section 7).
pub(super) const VARIABLE: u16 = u16::MAX;

/// A packet whose lengths are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked<'a> {
    /// 5, 9 or 10 (IPFIX).
    pub version: u16,
    /// Observation domain, source ID, or type and number of the engine.
    pub domain: u32,
    /// When the exporter sent it, ns since 1970 UTC by the exporter's clock.
    pub sent_ns: i64,
    /// It was sent up to this much later, ns: the header of v9 has whole seconds, and uptimes are
    /// relative to the moment itself.
    pub sent_slack_ns: i64,
    /// Time since the exporter booted, ms; 0 for IPFIX.
    pub uptime_ms: u32,
    /// The packet, without bytes after its end.
    pub bytes: &'a [u8],
}

/// Checks a datagram.
///
/// # Errors
/// The kind of damage: `flows_version`, `flows_cut`, `flows_length`, `flows_template`.
pub fn check(datagram: &[u8]) -> Result<Checked<'_>, &'static str> {
    match u16_at(datagram, 0).ok_or("flows_cut")? {
        5 => v5(datagram),
        9 => v9(datagram),
        IPFIX => ipfix(datagram),
        _ => Err("flows_version"),
    }
}

fn v5(datagram: &[u8]) -> Result<Checked<'_>, &'static str> {
    if datagram.len() < V5_HEADER_BYTES {
        return Err("flows_cut");
    }
    let count = usize::from(u16_at(datagram, 2).unwrap_or(0));
    if !(1..=V5_RECORDS_MAX).contains(&count) {
        return Err("flows_length");
    }
    let len = V5_HEADER_BYTES + count * V5_RECORD_BYTES;
    Ok(Checked {
        version: 5,
        domain: u16_at(datagram, 20).unwrap_or(0).into(),
        sent_ns: seconds_ns(datagram, 8) + i64::from(u32_at(datagram, 12).unwrap_or(0)),
        sent_slack_ns: 0,
        uptime_ms: u32_at(datagram, 4).unwrap_or(0),
        bytes: datagram.get(..len).ok_or("flows_cut")?,
    })
}

fn v9(datagram: &[u8]) -> Result<Checked<'_>, &'static str> {
    if datagram.len() < V9_HEADER_BYTES {
        return Err("flows_cut");
    }
    let len = sets(datagram, V9_HEADER_BYTES, v9_set)?;
    Ok(Checked {
        version: 9,
        domain: u32_at(datagram, 16).unwrap_or(0),
        sent_ns: seconds_ns(datagram, 8),
        sent_slack_ns: SECOND_NS - 1,
        uptime_ms: u32_at(datagram, 4).unwrap_or(0),
        bytes: &datagram[..len],
    })
}

fn ipfix(datagram: &[u8]) -> Result<Checked<'_>, &'static str> {
    if datagram.len() < IPFIX_HEADER_BYTES {
        return Err("flows_cut");
    }
    let len = usize::from(u16_at(datagram, 2).unwrap_or(0));
    if len < IPFIX_HEADER_BYTES {
        return Err("flows_length");
    }
    let message = datagram.get(..len).ok_or("flows_cut")?;
    // The header states the length, so every byte belongs to a set.
    if sets(message, IPFIX_HEADER_BYTES, ipfix_set)? != len {
        return Err("flows_length");
    }
    Ok(Checked {
        version: IPFIX,
        domain: u32_at(datagram, 12).unwrap_or(0),
        sent_ns: seconds_ns(datagram, 4),
        sent_slack_ns: 0,
        uptime_ms: 0,
        bytes: message,
    })
}

/// Walks the sets from `at`; returns the end of the last. Up to three bytes after it are padding.
fn sets(
    bytes: &[u8],
    mut at: usize,
    check_set: fn(u16, &[u8]) -> Result<(), &'static str>,
) -> Result<usize, &'static str> {
    while bytes.len() - at >= SET_HEADER_BYTES {
        let number = u16_at(bytes, at).unwrap_or(0);
        let len = usize::from(u16_at(bytes, at + 2).unwrap_or(0));
        if len < SET_HEADER_BYTES {
            return Err("flows_length");
        }
        let set = bytes.get(at..at + len).ok_or("flows_length")?;
        check_set(number, &set[SET_HEADER_BYTES..])?;
        at += len;
    }
    Ok(at)
}

fn v9_set(number: u16, mut set: &[u8]) -> Result<(), &'static str> {
    if number > 1 {
        return Ok(());
    }
    while let Some((template, rest)) = template_header(set) {
        let count = match number {
            0 => usize::from(u16_at(set, 2).unwrap_or(0)),
            _ => {
                let scope = usize::from(u16_at(set, 2).unwrap_or(0));
                let fields = usize::from(u16_at(rest, 0).ok_or("flows_template")?);
                if !scope.is_multiple_of(4) || !fields.is_multiple_of(4) {
                    return Err("flows_template");
                }
                (scope + fields) / 4
            }
        };
        let fields = if number == 0 { rest } else { &rest[2..] };
        set = fields_of(template, count, fields, false)?;
    }
    Ok(())
}

fn ipfix_set(number: u16, mut set: &[u8]) -> Result<(), &'static str> {
    match number {
        2 | 3 => {}
        DATA_SET_MIN.. => return Ok(()),
        // Reserved; 0 and 1 would read as templates of v9.
        _ => return Err("flows_length"),
    }
    while let Some((template, rest)) = template_header(set) {
        let count = usize::from(u16_at(set, 2).unwrap_or(0));
        let fields = match number {
            2 => rest,
            _ => {
                let scope = usize::from(u16_at(rest, 0).ok_or("flows_template")?);
                if !(1..count).contains(&scope) {
                    return Err("flows_template");
                }
                &rest[2..]
            }
        };
        set = fields_of(template, count, fields, true)?;
    }
    Ok(())
}

/// The number of the next template, and the bytes after its first four; `None` for padding.
fn template_header(set: &[u8]) -> Option<(u16, &[u8])> {
    let number = u16_at(set, 0)?;
    let rest = set.get(4..)?;
    (number != 0).then_some((number, rest))
}

/// Checks the fields of a template; returns what follows them.
fn fields_of(
    template: u16,
    count: usize,
    mut fields: &[u8],
    is_ipfix: bool,
) -> Result<&[u8], &'static str> {
    if template < DATA_SET_MIN || !(1..=FIELDS_MAX).contains(&count) {
        return Err("flows_template");
    }
    let mut record_bytes = 0;
    for _ in 0..count {
        let is_enterprise = is_ipfix && u16_at(fields, 0).is_some_and(|kind| kind & 0x8000 != 0);
        let len = u16_at(fields, 2).ok_or("flows_template")?;
        record_bytes += match (len, is_ipfix) {
            (0, _) | (VARIABLE, false) => return Err("flows_template"),
            (VARIABLE, true) => 1,
            (len, _) => usize::from(len),
        };
        let bytes = if is_enterprise { 8 } else { 4 };
        fields = fields.get(bytes..).ok_or("flows_template")?;
    }
    if record_bytes > RECORD_BYTES_MAX { Err("flows_template") } else { Ok(fields) }
}

fn seconds_ns(bytes: &[u8], at: usize) -> i64 {
    i64::from(u32_at(bytes, at).unwrap_or(0)) * SECOND_NS
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|chunk| u16::from_be_bytes(*chunk))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_be_bytes(*chunk))
}
