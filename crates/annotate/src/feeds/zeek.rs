//! Zeek logs: rows by column, DNS rows, and rows with added columns.
//!
//! A Zeek log is a table between header lines ([`larder_wire::zeek`]). If there was no header and a
//! line begins with `{`, the log has Zeek's JSON form, one object a line.
//!
//! ```text
//! phase            input                gives
//! before a header  `#separator` …       header lines; rows of JSON; anything else is damaged
//! in a table       rows                 rows with as many columns as `#fields` has, else damaged
//! ```
//!
//! Invariants
//! 1. For any line, [`Log::line`] is that line, byte for byte: writing every line gives the input.
//! 2. `columns` are bounds within the current line whenever the item is [`Item::Row`].
//!
//! Bounds: [`LINE_BYTES_MAX`](super::LINE_BYTES_MAX) a line, [`FIELDS_MAX`] columns, one row held.
//! Cost: a row is scanned once for separators; columns are found by their number.

use std::borrow::Cow;
use std::io::{self, BufRead};
use std::str::FromStr;

use larder_wire::times::{iso_ns, seconds_ns};
pub use larder_wire::zeek::{FIELDS_MAX, Header};
use larder_wire::zeek::{HeaderLine, unescape};
use larder_wire::{Addr, Name};
use serde_json::value::RawValue;

use super::json::{items, pick, splice, text};
use super::{
    ANSWERS_MAX, DnsAnswer, DnsData, DnsRow, FlowEnds, Line, Lines, Said, Value, body_len,
    parse_addr, parse_host, parse_number, parse_protocol,
};

const KNOWN_COUNT: usize = 16;

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// `#fields`: the columns of the rows that follow.
    Fields,
    /// `#types`: their types.
    Types,
    /// Any other header or comment line.
    Header,
    /// A row; its columns can be read.
    Row,
    /// A row as a JSON object.
    Json,
    /// A line that cannot be read: it is copied, and counted when `first` (long lines come in
    /// pieces).
    Damaged {
        /// False for the further pieces of one line.
        first: bool,
    },
}

/// The columns that are read, and the keys of the JSON form. [`Log::known`] and picked objects have
/// this order.
const KNOWN: [&str; KNOWN_COUNT] = [
    "ts",
    "id.orig_h",
    "id.orig_p",
    "id.resp_h",
    "id.resp_p",
    "proto",
    "rtt",
    "query",
    "qtype",
    "rcode",
    "answers",
    "TTLs",
    "server_name",
    "host",
    // These two distinguish an http.log and a quic.log from other logs with a host or a server
    // name.
    "method",
    "client_initial_dcid",
];

/// The columns of [`KNOWN`] without which a row gives no name.
const DNS_COLUMNS: [&str; 5] = ["ts", "id.orig_h", "id.resp_h", "query", "answers"];

/// A log, line by line.
#[derive(Debug)]
pub struct Log<R> {
    lines: Lines<R>,
    line: Vec<u8>,
    header: Header,
    /// The numbers of the [`KNOWN`] columns, found once a header.
    known: [Option<usize>; KNOWN_COUNT],
    /// Start and end of every column of the current row.
    columns: Vec<(u32, u32)>,
}

impl<R> Log<R> {
    /// The input of the log.
    pub fn input(&self) -> &R {
        self.lines.input()
    }
}

impl<R: BufRead> Log<R> {
    /// Reads a log from its first line.
    pub fn new(input: R) -> Log<R> {
        Log {
            lines: Lines::new(input),
            line: Vec::new(),
            header: Header::default(),
            known: [None; KNOWN_COUNT],
            columns: Vec::new(),
        }
    }

    /// Reads the next line and returns its kind; `None` at the end of the input.
    pub fn advance(&mut self) -> io::Result<Option<Item>> {
        let Some(kind) = self.lines.advance(&mut self.line)? else {
            return Ok(None);
        };
        Ok(Some(match kind {
            Line::Whole => self.classify(),
            Line::Piece { first } => Item::Damaged { first },
        }))
    }

    /// The current line with its terminator, unchanged.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// The current header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The number of a column.
    pub fn index_of(&self, field: &str) -> Option<usize> {
        self.header.fields.iter().position(|name| name == field.as_bytes())
    }

    /// A column of the current row, escaped as in the log; `None` if there is no such column, or it
    /// is unset. Only meaningful after [`Item::Row`].
    pub fn column(&self, index: usize) -> Option<&[u8]> {
        let &(start, end) = self.columns.get(index)?;
        let value = self.line.get(start as usize..end as usize)?;
        (value != self.header.unset_field).then_some(value)
    }

    /// The ends of the flow of the current row (of either form); `None` if the log has no such
    /// columns or their values cannot be read.
    pub fn flow_ends(&self, item: Item) -> Option<FlowEnds> {
        self.values(item)?.flow_ends()
    }

    /// The name that the current row (of either form) states: in an ssl.log, http.log, quic.log.
    pub fn said(&self, item: Item) -> Said {
        self.values(item).map(|values| values.said()).unwrap_or_default()
    }

    /// The response in the current row of a dns.log; `None` if it is none.
    pub fn dns_row(&self, item: Item) -> Option<DnsRow> {
        self.values(item)?.dns_row()
    }

    /// The first column of a dns.log that the current header lacks.
    pub fn missing_dns_column(&self) -> Option<&'static str> {
        DNS_COLUMNS.into_iter().find(|name| self.index_of(name).is_none())
    }

    /// True when the current row, in JSON form, has a query and its client, as rows of a dns.log do.
    pub fn is_dns_object(&self) -> bool {
        matches!(pick(&self.line, &["query", "id.orig_h"]), Some([Some(_), Some(_)]))
    }

    /// Writes the current line to `out` with `columns` appended: their names to `#fields`, their
    /// types to `#types`, their values to a row, in the order given, and keys to a JSON row. Every
    /// byte of the line itself stays; other lines are copied.
    ///
    /// # Panics
    /// With more than [`COLUMNS_MAX`] columns, which is the caller's mistake.
    pub fn write_with(&self, item: Item, columns: &[Column<'_>], out: &mut Vec<u8>) {
        assert!(columns.len() <= COLUMNS_MAX, "a run appends a fixed, small set of columns");
        if item == Item::Json {
            // The values move into pairs on the stack; no run has more than a few.
            let mut keys = [("", Value::Unset); COLUMNS_MAX];
            for (key, column) in keys.iter_mut().zip(columns) {
                *key = (column.name, column.value);
            }
            splice(&self.line, &keys[..columns.len()], out);
            return;
        }
        let body = body_len(&self.line);
        out.extend_from_slice(&self.line[..body]);
        for column in columns {
            match item {
                Item::Fields => {
                    out.push(self.header.separator);
                    out.extend_from_slice(column.name.as_bytes());
                }
                Item::Types => {
                    out.push(self.header.separator);
                    out.extend_from_slice(column.kind.as_bytes());
                }
                Item::Row => {
                    out.push(self.header.separator);
                    write_value(&self.header, &column.value, out);
                }
                Item::Header | Item::Json | Item::Damaged { .. } => {}
            }
        }
        out.extend_from_slice(&self.line[body..]);
    }

    fn classify(&mut self) -> Item {
        self.columns.clear();
        let body = body_len(&self.line);
        match self.line[..body].first() {
            Some(b'#') => self.read_header(body),
            Some(b'{') if self.header.fields.is_empty() => match pick(&self.line, &[]) {
                Some([]) => Item::Json,
                None => Item::Damaged { first: true },
            },
            _ => self.split_row(body),
        }
    }

    fn read_header(&mut self, body: usize) -> Item {
        let line = self.header.read(&self.line[..body]);
        self.known = self.header.find(&KNOWN);
        match line {
            Some(HeaderLine::Fields) => Item::Fields,
            Some(HeaderLine::Types) => Item::Types,
            Some(HeaderLine::Other) => Item::Header,
            None => Item::Damaged { first: true },
        }
    }

    fn split_row(&mut self, body: usize) -> Item {
        let separator = self.header.separator;
        let mut start = 0;
        for part in self.line[..body].split(|&byte| byte == separator) {
            if self.columns.len() == self.header.fields.len() {
                self.columns.clear();
                return Item::Damaged { first: true };
            }
            // Within the line (invariant 2), which LINE_BYTES_MAX keeps below 4 GiB.
            self.columns.push((start as u32, (start + part.len()) as u32));
            start += part.len() + 1;
        }
        if self.columns.len() < self.header.fields.len() {
            self.columns.clear();
            return Item::Damaged { first: true };
        }
        Item::Row
    }

    /// The known values of either form of row.
    fn values(&self, item: Item) -> Option<Values<'_>> {
        let column = |index| Some(Cell::Column(&self.header, self.column(index?)?));
        match item {
            Item::Row => Some(Values::of(self.known.map(column))),
            Item::Json => {
                Some(Values::of(pick(&self.line, &KNOWN)?.map(|raw| raw.map(Cell::Json))))
            }
            _ => None,
        }
    }
}

/// Columns that [`Log::write_with`] adds, at most.
pub const COLUMNS_MAX: usize = 32;

/// A column to append.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// Its name, as in `#fields`.
    pub name: &'a str,
    /// Its type, as in `#types`.
    pub kind: &'a str,
    /// Its value in the current row; header lines ignore it.
    pub value: Value<'a>,
}

fn write_value(header: &Header, value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Unset => out.extend_from_slice(&header.unset_field),
        Value::Count(count) => out.extend_from_slice(count.to_string().as_bytes()),
        Value::Bool(truth) => out.push(if *truth { b'T' } else { b'F' }),
        Value::Text(text) => write_text(header, text, out),
        Value::List([]) => out.extend_from_slice(&header.empty_field),
        Value::List(texts) => {
            for (position, text) in texts.iter().enumerate() {
                if position > 0 {
                    out.push(header.set_separator);
                }
                write_text(header, text, out);
            }
        }
    }
}

/// Writes bytes so that they are read back unchanged: outside printable ASCII, at either separator
/// and at a backslash as `\xHH`. A text that equals a mark has its first byte escaped, and an empty
/// one is the mark for empty.
fn write_text(header: &Header, text: &[u8], out: &mut Vec<u8>) {
    if text.is_empty() {
        out.extend_from_slice(&header.empty_field);
        return;
    }
    let is_mark = text == header.empty_field || text == header.unset_field;
    for (position, &byte) in text.iter().enumerate() {
        let plain = (0x21..0x7f).contains(&byte)
            && byte != header.separator
            && byte != header.set_separator
            && byte != b'\\'
            && !(position == 0 && is_mark);
        if plain {
            out.push(byte);
        } else {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
            out.extend_from_slice(&[b'\\', b'x', high, low]);
        }
    }
}

/// The known values of one row, from a table or an object.
#[derive(Default)]
struct Values<'a> {
    time_ns: Option<i64>,
    rtt_ns: Option<i64>,
    source: Option<Addr>,
    source_port: Option<u16>,
    destination: Option<Addr>,
    destination_port: Option<u16>,
    protocol: Option<u8>,
    query: Option<Cow<'a, [u8]>>,
    query_type: Option<u16>,
    response_code: Option<u16>,
    answers: Vec<Cow<'a, [u8]>>,
    ttls: Vec<Cow<'a, [u8]>>,
    server_name: Option<Cow<'a, [u8]>>,
    host: Option<Cow<'a, [u8]>>,
    is_quic: bool,
}

impl<'a> Values<'a> {
    /// From the cells of [`KNOWN`].
    fn of(cells: [Option<Cell<'a>>; KNOWN_COUNT]) -> Values<'a> {
        let [
            ts,
            source,
            source_port,
            destination,
            destination_port,
            protocol,
            rtt,
            query,
            query_type,
            response_code,
            answers,
            ttls,
            server_name,
            host,
            method,
            quic_id,
        ] = cells;
        Values {
            time_ns: ts.and_then(Cell::time_ns),
            rtt_ns: rtt.and_then(|cell| seconds_ns(cell.digits())),
            source: source.and_then(Cell::addr),
            source_port: source_port.and_then(Cell::number),
            destination: destination.and_then(Cell::addr),
            destination_port: destination_port.and_then(Cell::number),
            protocol: protocol.and_then(Cell::text).and_then(|word| parse_protocol(&word)),
            query: query.and_then(Cell::text),
            query_type: query_type.and_then(Cell::number),
            response_code: response_code.and_then(Cell::number),
            answers: answers.map(Cell::list).unwrap_or_default(),
            ttls: ttls.map(Cell::list).unwrap_or_default(),
            server_name: server_name.and_then(Cell::text),
            host: host.and_then(Cell::text).filter(|_| method.is_some()),
            is_quic: quic_id.is_some(),
        }
    }

    fn flow_ends(&self) -> Option<FlowEnds> {
        Some(FlowEnds {
            time_ns: self.time_ns?,
            source: self.source?,
            source_port: self.source_port.unwrap_or(0),
            destination: self.destination?,
            destination_port: self.destination_port.unwrap_or(0),
            protocol: self.protocol,
        })
    }

    fn said(&self) -> Said {
        let name = |text: &Option<Cow<'_, [u8]>>| text.as_deref().and_then(parse_host);
        Said {
            server_name: name(&self.server_name),
            is_quic: self.is_quic,
            http_host: name(&self.host),
        }
    }

    fn dns_row(&self) -> Option<DnsRow> {
        if self.answers.is_empty() {
            return None;
        }
        let answers = self.answers.iter().enumerate().map(|(position, text)| DnsAnswer {
            ttl_s: self.ttls.get(position).and_then(|ttl| parse_ttl(ttl)).unwrap_or(u32::MAX),
            data: match (parse_addr(text), Name::from_text(text)) {
                (Some(addr), _) => DnsData::Address(addr),
                (None, Some(name)) => DnsData::Name(name),
                (None, None) => DnsData::Other,
            },
        });
        let asked_ns = self.time_ns?;
        Some(DnsRow {
            // The response came a round trip after the query; a damaged round trip counts as none.
            time_ns: asked_ns.saturating_add(self.rtt_ns.unwrap_or(0).max(0)),
            client: self.source?,
            server: self.destination?,
            query: Name::from_text(self.query.as_deref()?)?,
            query_type: self.query_type,
            response_code: self.response_code,
            answers: answers.collect(),
        })
    }
}

/// Whole seconds of an interval such as `2230.000000`.
fn parse_ttl(text: &[u8]) -> Option<u32> {
    u32::try_from(seconds_ns(text)? / 1_000_000_000).ok()
}

/// A value of a row, unparsed.
#[derive(Clone, Copy)]
enum Cell<'a> {
    Column(&'a Header, &'a [u8]),
    Json(&'a RawValue),
}

impl<'a> Cell<'a> {
    /// A number as written, so that a time keeps all its digits.
    fn digits(self) -> &'a [u8] {
        match self {
            Cell::Column(_, value) => value,
            Cell::Json(raw) => raw.get().as_bytes(),
        }
    }

    fn number<T: FromStr>(self) -> Option<T> {
        parse_number(self.digits())
    }

    fn text(self) -> Option<Cow<'a, [u8]>> {
        match self {
            Cell::Column(_, value) => Some(unescape(value)),
            Cell::Json(raw) => text(raw).map(text_bytes),
        }
    }

    fn addr(self) -> Option<Addr> {
        parse_addr(&self.text()?)
    }

    /// Seconds since 1970, or ISO 8601 (an option of Zeek's JSON form).
    fn time_ns(self) -> Option<i64> {
        match self {
            Cell::Column(_, value) => seconds_ns(value).or_else(|| iso_ns(value)),
            Cell::Json(raw) => match text(raw) {
                Some(text) => iso_ns(text.as_bytes()),
                None => seconds_ns(self.digits()),
            },
        }
    }

    fn list(self) -> Vec<Cow<'a, [u8]>> {
        match self {
            Cell::Column(header, value) if value == header.empty_field => Vec::new(),
            Cell::Column(header, value) => {
                let parts = value.split(|byte| *byte == header.set_separator);
                parts.take(ANSWERS_MAX).map(unescape).collect()
            }
            Cell::Json(raw) => {
                let item = |cell: Cell<'a>| cell.text().unwrap_or(Cow::Borrowed(cell.digits()));
                items(raw).into_iter().map(Cell::Json).map(item).collect()
            }
        }
    }
}

/// Text of a JSON log as bytes. Zeek writes bytes that are not UTF-8 as `\xHH` into its strings.
fn text_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => unescape(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(unescape(text.as_bytes()).into_owned()),
    }
}

#[cfg(test)]
mod tests;
