//! Zeek logs: rows by column, DNS rows, and rows with columns of ours appended.
//!
//! A Zeek log is a table between header lines ([`larder_wire::zeek`]). Where no header was seen and a
//! line opens with `{`, the log is Zeek's JSON form, one object a line.
//!
//! phase            meets                gives
//! before a header  `#separator` …       header lines; rows of JSON; anything else is damaged
//! in a table       rows                 rows with as many columns as `#fields` has, else damaged
//!
//! Invariants
//! 1. Whatever a line is, [`Log::line`] is that line, byte for byte: writing every line gives the
//!    input.
//! 2. `columns` are bounds within the current line whenever the item is [`Item::Row`].
//!
//! Bounds: [`LINE_BYTES_MAX`](super::LINE_BYTES_MAX) a line, [`FIELDS_MAX`] columns, one row held. Cost: a row is scanned
//! once for separators; columns are found by their number.

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

/// What a line of the log is.
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
    /// A line that can't be read: to be copied, and counted when `first` (long lines come in pieces).
    Damaged {
        /// False for the further pieces of one line.
        first: bool,
    },
}

/// The columns that we read, and the keys of the JSON form. Whoever takes [`Log::known`] or a picked
/// object apart names them in this order.
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
    // These two tell an http.log and a quic.log from others with a host or a server name.
    "method",
    "client_initial_dcid",
];

/// The columns of [`KNOWN`] without which a row teaches no name.
const DNS_COLUMNS: [&str; 5] = ["ts", "id.orig_h", "id.resp_h", "query", "answers"];

/// A log, line by line.
#[derive(Debug)]
pub struct Log<R> {
    lines: Lines<R>,
    line: Vec<u8>,
    header: Header,
    /// Where the [`KNOWN`] columns are, found once a header.
    known: [Option<usize>; KNOWN_COUNT],
    /// Start and end of every column of the current row.
    columns: Vec<(u32, u32)>,
}

impl<R> Log<R> {
    /// What the log is read from.
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

    /// Goes to the next line and says what it is; `None` at the end of the input.
    pub fn advance(&mut self) -> io::Result<Option<Item>> {
        let Some(kind) = self.lines.advance(&mut self.line)? else {
            return Ok(None);
        };
        Ok(Some(match kind {
            Line::Whole => self.classify(),
            Line::Piece { first } => Item::Damaged { first },
        }))
    }

    /// The current line with its terminator, as it came.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// The header in force.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The number of a column.
    pub fn index_of(&self, field: &str) -> Option<usize> {
        self.header.fields.iter().position(|name| name == field.as_bytes())
    }

    /// A column of the current row, escaped as it came; `None` when there is no such column, or it
    /// is unset. Only meaningful after [`Item::Row`].
    pub fn column(&self, index: usize) -> Option<&[u8]> {
        let &(start, end) = self.columns.get(index)?;
        let value = self.line.get(start as usize..end as usize)?;
        (value != self.header.unset_field).then_some(value)
    }

    /// The ends of the flow that the current row (of either form) speaks of; `None` where the log
    /// has no such columns or their values cannot be read.
    pub fn flow_ends(&self, item: Item) -> Option<FlowEnds> {
        self.values(item)?.flow_ends()
    }

    /// The name that the current row (of either form) says itself: in an ssl.log, http.log, quic.log.
    pub fn said(&self, item: Item) -> Said {
        self.values(item).map(|values| values.said()).unwrap_or_default()
    }

    /// The answered question in the current row of a dns.log; `None` where it is none.
    pub fn dns_row(&self, item: Item) -> Option<DnsRow> {
        self.values(item)?.dns_row()
    }

    /// The first column that a dns.log has and the header in force lacks.
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

    /// The values that we know how to read, from either form of row.
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

/// Most columns that [`Log::write_with`] appends.
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

/// Writes bytes so that they are read back as they are: outside printable ASCII, at either
/// separator and at a backslash as `\xHH`; a text that is a mark itself has its first byte
/// escaped, and an empty one is the mark for empty.
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

/// The values of one row that we read, from a table or an object.
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
    /// From the cells that [`KNOWN`] names.
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
            // The answer came a round trip after the question; a damaged one counts as none.
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

/// A value of a row, as it came.
#[derive(Clone, Copy)]
enum Cell<'a> {
    Column(&'a Header, &'a [u8]),
    Json(&'a RawValue),
}

impl<'a> Cell<'a> {
    /// A number as it was written, so that a time keeps all its digits.
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DNS: &str = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n\
        #unset_field\t-\n#path\tdns\n\
        #fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\trtt\tquery\tqtype\trcode\tanswers\tTTLs\n\
        #types\ttime\tstring\taddr\tport\taddr\tport\tenum\tinterval\tstring\tcount\tcount\tvector[string]\tvector[interval]\n\
        1521911720.865716\tCq\t192.0.2.1\t41772\t192.0.2.53\t53\tudp\t0.000870\tWWW.Example.com\t1\t0\tcdn.example.net,203.0.113.9\t2230.000000,60.500000\n\
        1521911721.000000\tCr\t2001:db8::1\t5\t2001:db8::53\t53\tudp\t-\tnone.example\t28\t3\t-\t-\n\
        1521911722.000000\tCs\t192.0.2.1\t5\t192.0.2.53\t53\tudp\t-\tx\\x2cy\\\\z.example\t16\t0\tTXT 3 a\\x2cb\t1.000000\n";

    fn items(input: &[u8]) -> Vec<Item> {
        let mut log = Log::new(input);
        std::iter::from_fn(|| log.advance().expect("memory is readable")).collect()
    }

    fn rows(input: &[u8]) -> Vec<Option<DnsRow>> {
        let mut log = Log::new(input);
        let mut rows = Vec::new();
        while let Some(item) = log.advance().expect("memory is readable") {
            if matches!(item, Item::Row | Item::Json) {
                rows.push(log.dns_row(item));
            }
        }
        rows
    }

    fn addr(text: &str) -> Addr {
        parse_addr(text.as_bytes()).expect("a literal address")
    }

    fn name(text: &str) -> Name {
        Name::from_text(text.as_bytes()).expect("a literal name")
    }

    /// A dns.log gives the name as asked, the chain and the address with their TTLs, at the time of
    /// the answer; rows without an answer give none; escapes are undone after the list is split.
    #[test]
    fn dns_rows() {
        let rows = rows(DNS.as_bytes());
        let expected = DnsRow {
            time_ns: 1_521_911_720_866_586_000,
            client: addr("192.0.2.1"),
            server: addr("192.0.2.53"),
            query: name("www.example.com"),
            query_type: Some(1),
            response_code: Some(0),
            answers: vec![
                DnsAnswer { ttl_s: 2230, data: DnsData::Name(name("cdn.example.net")) },
                DnsAnswer { ttl_s: 60, data: DnsData::Address(addr("203.0.113.9")) },
            ],
        };
        assert_eq!(rows[0].as_ref(), Some(&expected));
        assert_eq!(rows[1], None);
        let third = rows[2].as_ref().expect("an answer");
        assert_eq!(third.query.as_bytes(), b"x,y\\z.example");
        assert_eq!(third.answers[0].data, DnsData::Name(name("txt 3 a,b")));
    }

    /// The JSON form gives the same row as the table, times to the last digit.
    #[test]
    fn json_rows() {
        let line = br#"{"ts":1521911720.865716,"uid":"Cq","id.orig_h":"192.0.2.1","id.orig_p":41772,"id.resp_h":"192.0.2.53","id.resp_p":53,"proto":"udp","rtt":0.000870,"query":"WWW.Example.com","qtype":1,"rcode":0,"answers":["cdn.example.net","203.0.113.9"],"TTLs":[2230.0,60.5]}"#;
        assert_eq!(rows(line), rows(DNS.as_bytes())[..1]);
        let mut log = Log::new(&line[..]);
        let item = log.advance().expect("readable").expect("a line");
        let ends = log.flow_ends(item).expect("a flow");
        assert_eq!((ends.source_port, ends.destination_port, ends.protocol), (41772, 53, Some(17)));
        let iso = br#"{"ts":"2018-03-24T17:15:20.865716Z","id.orig_h":"::1","id.resp_h":"::2"}"#;
        let mut log = Log::new(&iso[..]);
        let item = log.advance().expect("readable").expect("a line");
        assert_eq!(log.flow_ends(item).map(|ends| ends.time_ns), Some(1_521_911_720_865_716_000));
    }

    /// A second header inside a file changes the columns; rows that do not fit are damaged, and
    /// rows before any header as well.
    #[test]
    fn concatenated_and_damaged() {
        let log = "early\trow\n#separator \\x09\n#fields\ta\tb\n#types\tstring\tstring\n1\t2\n1\n1\t2\t3\n\
            #close\t2024\n#separator |\n#fields|x\n7\n\n";
        use Item::*;
        let damaged = Damaged { first: true };
        // An empty line is a row of one empty column where there is one column.
        let expected = [
            damaged, Header, Fields, Types, Row, damaged, damaged, Header, Header, Fields, Row, Row,
        ];
        assert_eq!(items(log.as_bytes()), expected);
        assert_eq!(items(b"#separator ab\n"), [damaged]);
    }

    /// Columns are appended to header and rows; cut off again they give the input. Invariant 1.
    #[test]
    fn append_keeps_every_byte() {
        let names: [&[u8]; 2] = [b"a,b", b"c\td"];
        let columns = [
            Column { name: "n.src", kind: "string", value: Value::Text(b"-") },
            Column { name: "n.vals", kind: "vector[string]", value: Value::List(&names) },
            Column { name: "n.age", kind: "count", value: Value::Count(7) },
            Column { name: "n.stale", kind: "bool", value: Value::Bool(false) },
            Column { name: "n.none", kind: "string", value: Value::Unset },
        ];
        let mut log = Log::new(DNS.as_bytes());
        let mut out = Vec::new();
        while let Some(item) = log.advance().expect("memory is readable") {
            log.write_with(item, &columns, &mut out);
        }
        let out = String::from_utf8(out).expect("ASCII");
        let mut cut = String::new();
        for line in out.lines() {
            let tail = if line.starts_with("#fields") {
                "\tn.src\tn.vals\tn.age\tn.stale\tn.none"
            } else if line.starts_with("#types") {
                "\tstring\tvector[string]\tcount\tbool\tstring"
            } else if line.starts_with('#') {
                ""
            } else {
                "\t\\x2d\ta\\x2cb,c\\x09d\t7\tF\t-"
            };
            cut += line.strip_suffix(tail).expect("our columns are there");
            cut.push('\n');
        }
        assert_eq!(cut, DNS);
    }

    /// A JSON row gets keys instead of columns; what only begins like one is damaged.
    #[test]
    fn append_to_json() {
        let mut log = Log::new(&b"{\"ts\":1}\n"[..]);
        let item = log.advance().expect("readable").expect("a line");
        let column = Column { name: "n", kind: "string", value: Value::Text(b"x") };
        let mut out = Vec::new();
        log.write_with(item, &[column], &mut out);
        assert_eq!(out, b"{\"ts\":1,\"n\":\"x\"}\n");
        assert_eq!(
            items(b"{\"ts\":1\n{}}\n{}\n"),
            [Item::Damaged { first: true }, Item::Damaged { first: true }, Item::Json]
        );
    }

    proptest! {
        /// No input panics, and the lines of every input are the input.
        #[test]
        fn any_input_passes_through(
            noise in proptest::collection::vec(any::<u8>(), 0..200),
            cut in 0..DNS.len(),
            at in 0..DNS.len(),
        ) {
            let mut input = DNS.as_bytes()[..cut].to_vec();
            input.splice(at.min(cut)..at.min(cut), noise);
            let mut log = Log::new(input.as_slice());
            let (mut lines, mut copied) = (Vec::new(), Vec::new());
            while let Some(item) = log.advance().expect("memory is readable") {
                let _ = (log.flow_ends(item), log.dns_row(item), log.column(3));
                lines.extend_from_slice(log.line());
                log.write_with(item, &[], &mut copied);
            }
            prop_assert_eq!(&lines, &input);
            prop_assert_eq!(&copied, &input);
        }

        /// Any bytes that we write into a column are read back the same.
        #[test]
        fn written_text_reads_back(text in proptest::collection::vec(any::<u8>(), 1..40)) {
            let mut out = Vec::new();
            write_text(&Header::default(), &text, &mut out);
            prop_assert!(out.iter().all(|byte| (0x21..0x7f).contains(byte) && *byte != b','));
            prop_assert_ne!(out.as_slice(), b"-");
            let read = unescape(&out);
            prop_assert_eq!(read.as_ref(), text.as_slice());
        }
    }
}
