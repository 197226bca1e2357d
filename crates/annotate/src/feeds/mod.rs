//! Logs and streams of other programs: names to learn from, and lines to annotate.
//!
//! | module | reads | gives |
//! |---|---|---|
//! | [`zeek`] | any Zeek log, tab-separated or JSON | DNS rows, flow ends, rows with our columns appended |
//! | [`eve`] | Suricata's EVE JSON lines | DNS answers, flow ends, lines with our keys spliced in |
//! | [`dnstap`] | Frame Streams from a file or a socket | DNS messages with client, server and time |
//!
//! Readers only: nothing here decides about names. All input is hostile. A line that cannot be read
//! is counted and goes out as it came in; [`LINE_BYTES_MAX`] bounds what is held of one, and longer
//! ones pass through in pieces, so that memory does not depend on the input. Cost: one pass over a
//! line to split it; JSON lines are walked once and only wanted values are looked into.

pub mod dnstap;
pub mod eve;
pub mod zeek;

use std::borrow::Cow;
use std::io::{self, BufRead};

use larder_wire::{Addr, Name};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Most octets of a line that is looked into. Suricata's largest lines (with payload and packet)
/// are some 100 KiB.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Most answers taken from one row; a DNS message of 64 KiB has fewer than 4,096 addresses.
pub const ANSWERS_MAX: usize = 4096;

/// One answered DNS question, as a log tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsRow {
    /// When the answer came, ns since 1970 UTC (the question's time where the log has no other).
    pub time_ns: i64,
    /// Who asked.
    pub client: Addr,
    /// Who answered.
    pub server: Addr,
    /// The name as asked.
    pub query: Name,
    /// Type of the question (RFC 1035, section 3.2.2), where the log says it and we know it.
    pub query_type: Option<u16>,
    /// Response code, where the log says it and we know it; 0 is NOERROR.
    pub response_code: Option<u16>,
    /// The answer section, in order.
    pub answers: Vec<DnsAnswer>,
}

/// One record of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// Time to live, seconds; 0 where the log does not say.
    pub ttl_s: u32,
    /// What it says.
    pub data: DnsData,
}

/// What a record says, as far as names and addresses go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsData {
    /// An address (A, AAAA).
    Address(Addr),
    /// A name (CNAME, PTR, …: the question's type tells). Zeek does not mark what is no name, so
    /// that some text records look like one; only CNAME and PTR questions should believe it.
    Name(Name),
    /// Anything else.
    Other,
}

/// The two ends of a flow that a log line speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEnds {
    /// Time of the line, ns since 1970 UTC.
    pub time_ns: i64,
    /// The initiator, as the log has it.
    pub source: Addr,
    /// Its port, 0 where the log has none.
    pub source_port: u16,
    /// The responder, as the log has it.
    pub destination: Addr,
    /// Its port, 0 where the log has none.
    pub destination_port: u16,
    /// IP protocol number, where the log says it and we know it.
    pub protocol: Option<u8>,
}

/// A value that we add to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Nothing known: `-` in a table, absent in JSON.
    Unset,
    /// Octets, escaped as the format has it.
    Text(&'a [u8]),
    /// Several texts, best first.
    List(&'a [&'a [u8]]),
    /// A number.
    Count(u64),
    /// A truth value.
    Bool(bool),
}

/// What [`Lines::next`] put into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line with its terminator (the last line of a file may have none).
    Whole,
    /// A part of a line longer than [`LINE_BYTES_MAX`]: to be copied, not read. `first` is true for
    /// its first part, so that it is counted once.
    Piece {
        /// The part opens the line.
        first: bool,
    },
}

/// Lines of a log, in bounded memory, without losing an octet.
#[derive(Debug)]
pub struct Lines<R> {
    input: R,
    in_long_line: bool,
}

impl<R: BufRead> Lines<R> {
    /// Lines of `input`.
    pub fn new(input: R) -> Lines<R> {
        Lines { input, in_long_line: false }
    }

    /// Puts the next line, or the next piece of a long one, into `line`; `None` at the end of input.
    pub fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Option<Line>> {
        line.clear();
        let first = !self.in_long_line;
        loop {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let room = LINE_BYTES_MAX - line.len();
            let window = &available[..available.len().min(room)];
            let newline = window.iter().position(|&octet| octet == b'\n');
            let taken = newline.map_or(window.len(), |at| at + 1);
            line.extend_from_slice(&window[..taken]);
            let input_ended = available.is_empty();
            self.input.consume(taken);
            let line_ended = newline.is_some() || input_ended;
            if line_ended || line.len() == LINE_BYTES_MAX {
                self.in_long_line = !line_ended;
                return Ok(match (line.is_empty(), first && line_ended) {
                    (true, _) => None,
                    (false, true) => Some(Line::Whole),
                    (false, false) => Some(Line::Piece { first }),
                });
            }
        }
    }
}

/// Length of a line without its terminator (`\n` or `\r\n`).
pub(crate) fn body_len(line: &[u8]) -> usize {
    let body = line.strip_suffix(b"\n").unwrap_or(line);
    body.strip_suffix(b"\r").unwrap_or(body).len()
}

/// Reads an address as logs write it.
pub(crate) fn parse_addr(text: &[u8]) -> Option<Addr> {
    let ip: std::net::IpAddr = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(Addr::from(ip))
}

/// Reads a decimal number.
pub(crate) fn parse_number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// IP protocol number of a word such as `tcp` or `IPv6-ICMP`.
pub(crate) fn parse_protocol(word: &[u8]) -> Option<u8> {
    const WORDS: [(&[u8], u8); 7] = [
        (b"tcp", 6),
        (b"udp", 17),
        (b"icmp", 1),
        (b"ipv6-icmp", 58),
        (b"icmpv6", 58),
        (b"sctp", 132),
        (b"gre", 47),
    ];
    WORDS.iter().find(|(known, _)| word.eq_ignore_ascii_case(known)).map(|&(_, number)| number)
}

/// Type number of a mnemonic, for the types that teach names.
pub(crate) fn parse_query_type(word: &[u8]) -> Option<u16> {
    const WORDS: [(&[u8], u16); 8] = [
        (b"A", 1),
        (b"CNAME", 5),
        (b"PTR", 12),
        (b"TXT", 16),
        (b"AAAA", 28),
        (b"DNAME", 39),
        (b"SVCB", 64),
        (b"HTTPS", 65),
    ];
    WORDS.iter().find(|(known, _)| word.eq_ignore_ascii_case(known)).map(|&(_, number)| number)
}

/// Reads seconds with a decimal fraction (`1521911720.865716`) exactly, as ns; digits past the
/// ninth are dropped. Exponents, as JSON allows them, are not times that anybody logs: `None`.
pub(crate) fn parse_seconds_ns(text: &[u8]) -> Option<i64> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let dot = text.iter().position(|&octet| octet == b'.');
    let (whole, fraction) = match dot {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &text[..0]),
    };
    if whole.is_empty() || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    let seconds: i64 = parse_number(whole)?;
    let ns = seconds.checked_mul(1_000_000_000)?.checked_add(fraction_ns(fraction))?;
    Some(if negative { -ns } else { ns })
}

/// The value of decimal digits after the point, in ns.
fn fraction_ns(digits: &[u8]) -> i64 {
    let mut ns = 0;
    let mut unit = 100_000_000;
    for &digit in digits.iter().take(9) {
        ns += i64::from(digit - b'0') * unit;
        unit /= 10;
    }
    ns
}

/// Reads an ISO 8601 time as Zeek and Suricata write it (`2024-05-01T12:00:00.123456+0200`, `Z`,
/// `+02:00`, or no zone: UTC) as ns since 1970 UTC.
pub(crate) fn parse_iso_ns(text: &[u8]) -> Option<i64> {
    let digits = |from: usize, to: usize| -> Option<i64> {
        let part = text.get(from..to)?;
        part.iter().all(u8::is_ascii_digit).then(|| parse_number(part)).flatten()
    };
    for (at, mark) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
        if text.get(at) != Some(&mark) {
            return None;
        }
    }
    let (year, month, day) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
    let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
    let in_range = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    if !in_range {
        return None;
    }
    let mut rest = &text[19..];
    let mut ns = 0;
    if let Some(after) = rest.strip_prefix(b".") {
        let len = after.iter().take_while(|octet| octet.is_ascii_digit()).count();
        ns = fraction_ns(&after[..len]);
        rest = &after[len..];
    }
    let zone_s = zone_seconds(rest)?;
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    (seconds - zone_s).checked_mul(1_000_000_000)?.checked_add(ns)
}

/// Seconds east of UTC of `Z`, `+hhmm`, `-hh:mm` or nothing.
fn zone_seconds(zone: &[u8]) -> Option<i64> {
    let (sign, digits) = match zone {
        [] | [b'Z'] => return Some(0),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits {
        [a, b, c, d] | [a, b, b':', c, d] => ([*a, *b], [*c, *d]),
        _ => return None,
    };
    if !hours.iter().chain(&minutes).all(u8::is_ascii_digit) {
        return None;
    }
    Some(sign * (parse_number::<i64>(&hours)? * 3600 + parse_number::<i64>(&minutes)? * 60))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years count from March, so that the
/// leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
        - 719_468
}

/// Finds the values of `keys` at the top of a JSON object, unread. `None` when `json` is no object,
/// or is damaged, or has something after it. The last of several equal keys counts.
pub(crate) fn pick<'a, const N: usize>(
    json: &'a [u8],
    keys: &[&str; N],
) -> Option<[Option<&'a RawValue>; N]> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let found = reader.deserialize_map(Picker { keys }).ok()?;
    reader.end().ok()?;
    Some(found)
}

struct Picker<'k, const N: usize> {
    keys: &'k [&'k str; N],
}

impl<'a, const N: usize> Visitor<'a> for Picker<'_, N> {
    type Value = [Option<&'a RawValue>; N];

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(position) = map.next_key_seed(Key { keys: self.keys })? {
            match position {
                Some(position) => found[position] = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// Reads a key as its position among the wanted ones.
struct Key<'k> {
    keys: &'k [&'k str],
}

impl<'a> serde::de::DeserializeSeed<'a> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'a>>(self, key: D) -> Result<Self::Value, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.keys.iter().position(|known| *known == key))
    }
}

/// The text of a JSON string; `None` for every other kind of value.
pub(crate) fn json_text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(raw.get()).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// The octets of a JSON value as written: the digits of a number.
pub(crate) fn json_octets(raw: Option<&RawValue>) -> Option<&[u8]> {
    raw.map(|raw| raw.get().as_bytes())
}

/// The elements of a JSON array, [`ANSWERS_MAX`] at most; none for another kind of value.
pub(crate) fn json_items(raw: &RawValue) -> Vec<&RawValue> {
    let mut items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    items.truncate(ANSWERS_MAX);
    items
}

/// Appends `keys` to a line that holds one JSON object: before its last brace, all other octets as
/// they are. The caller has seen that the line is an object ([`pick`] said so). Unset values add
/// nothing.
pub fn splice_json(line: &[u8], keys: &[(&str, Value<'_>)], out: &mut Vec<u8>) {
    let Some(brace) = line.iter().rposition(|&octet| octet == b'}') else {
        out.extend_from_slice(line);
        return;
    };
    out.extend_from_slice(&line[..brace]);
    let mut empty = line[..brace].trim_ascii() == b"{";
    for (key, value) in keys {
        if *value == Value::Unset {
            continue;
        }
        if !empty {
            out.push(b',');
        }
        empty = false;
        write_json_text(key.as_bytes(), out);
        out.push(b':');
        write_json_value(value, out);
    }
    out.extend_from_slice(&line[brace..]);
}

fn write_json_value(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Unset => out.extend_from_slice(b"null"),
        Value::Text(text) => write_json_text(text, out),
        Value::Count(count) => out.extend_from_slice(count.to_string().as_bytes()),
        Value::Bool(truth) => out.extend_from_slice(if *truth { b"true" } else { b"false" }),
        Value::List(texts) => {
            out.push(b'[');
            for (position, text) in texts.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_json_text(text, out);
            }
            out.push(b']');
        }
    }
}

/// Writes octets as a JSON string. A name is octets, not UTF-8: each one outside printable ASCII
/// becomes `\u00HH`, which is always valid and keeps every octet apart.
fn write_json_text(text: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for &octet in text {
        match octet {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', octet]),
            0x20..0x7f => out.push(octet),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(octet >> 4)]);
                out.push(HEX[usize::from(octet & 15)]);
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lines come out whole, also without a last newline, and the octets of an overlong one all
    /// come out, in pieces that open once.
    #[test]
    fn lines_lose_nothing() {
        let long = vec![b'x'; LINE_BYTES_MAX + 5];
        let input = [b"one\n\ntwo\r\n", long.as_slice(), b"\nlast"].concat();
        let mut lines = Lines::new(io::BufReader::with_capacity(7, input.as_slice()));
        let (mut line, mut kinds, mut all) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(kind) = lines.next(&mut line).expect("memory is readable") {
            kinds.push(kind);
            all.extend_from_slice(&line);
        }
        assert_eq!(all, input);
        let (first, next) = (Line::Piece { first: true }, Line::Piece { first: false });
        assert_eq!(kinds, [Line::Whole, Line::Whole, Line::Whole, first, next, Line::Whole]);
    }

    /// A line of exactly the limit, at the end of input, does not invent a further line.
    #[test]
    fn line_of_the_limit_at_the_end() {
        let input = vec![b'x'; LINE_BYTES_MAX];
        let mut lines = Lines::new(input.as_slice());
        let mut line = Vec::new();
        assert_eq!(lines.next(&mut line).ok(), Some(Some(Line::Piece { first: true })));
        assert_eq!(lines.next(&mut line).ok(), Some(None));
    }

    /// Times are exact to the nanosecond; dates outside the calendar's form are refused.
    #[test]
    fn times_are_exact() {
        assert_eq!(parse_seconds_ns(b"1521911720.865716"), Some(1_521_911_720_865_716_000));
        assert_eq!(parse_seconds_ns(b"1.0000000019"), Some(1_000_000_001));
        assert_eq!(parse_seconds_ns(b"-0.5"), Some(-500_000_000));
        assert_eq!(parse_seconds_ns(b"7"), Some(7_000_000_000));
        for bad in [&b""[..], b"-", b".", b".5", b"1e9", b"1.2.3", b"99999999999", b"+1"] {
            assert_eq!(parse_seconds_ns(bad), None, "{bad:?}");
        }
        // The day counts were taken from `date -u +%s`.
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:34:56", 951_827_696),
            ("2024-05-01T12:00:00.000000+0200", 1_714_557_600),
            ("2024-05-01T08:00:00-02:00", 1_714_557_600),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(parse_iso_ns(text.as_bytes()), Some(seconds * 1_000_000_000), "{text}");
        }
        assert_eq!(parse_iso_ns(b"2024-05-01T12:00:00.5Z"), Some(1_714_564_800_500_000_000));
        for bad in ["2024-13-01T00:00:00Z", "2024-05-01 12:00:00", "2024-05-01T12:00", "x"] {
            assert_eq!(parse_iso_ns(bad.as_bytes()), None, "{bad}");
        }
    }

    /// Spliced keys land in the object, into an empty one without a comma, and no octet of the
    /// line changes.
    #[test]
    fn splice_keeps_the_line() {
        let keys =
            [("a", Value::Unset), ("b.c", Value::Text(b"x\"\xff")), ("d", Value::Bool(true))];
        for (line, expected) in [
            (&b"{}\n"[..], &b"{\"b.c\":\"x\\\"\\u00ff\",\"d\":true}\n"[..]),
            (b" { } ", b" { \"b.c\":\"x\\\"\\u00ff\",\"d\":true} "),
            (b"{\"k\": {}}\r\n", b"{\"k\": {},\"b.c\":\"x\\\"\\u00ff\",\"d\":true}\r\n"),
        ] {
            let mut out = Vec::new();
            splice_json(line, &keys, &mut out);
            assert_eq!(out, expected);
        }
    }

    proptest! {
        /// Whatever octets a name has, the spliced line is JSON, and holds what it held before.
        #[test]
        fn spliced_line_is_json(text in proptest::collection::vec(any::<u8>(), 0..40), number: u64) {
            let mut out = Vec::new();
            let list = [text.as_slice(), b"second"];
            let keys =
                [("t", Value::Text(&text)), ("l", Value::List(&list)), ("n", Value::Count(number))];
            splice_json(b"{\"old\":[1,{\"x\":\"}\"}]}", &keys, &mut out);
            let read: serde_json::Value = serde_json::from_slice(&out).expect("the line is JSON");
            let octets: String = text.iter().map(|&octet| char::from(octet)).collect();
            prop_assert_eq!(&read["old"], &serde_json::json!([1, {"x": "}"}]));
            prop_assert_eq!(&read["t"], &serde_json::json!(octets));
            prop_assert_eq!(&read["l"], &serde_json::json!([octets, "second"]));
            prop_assert_eq!(&read["n"], &serde_json::json!(number));
        }

        /// No text makes a time parser panic.
        #[test]
        fn times_never_panic(text in proptest::collection::vec(any::<u8>(), 0..40), tail in ".*") {
            let _ = (parse_seconds_ns(&text), parse_iso_ns(&text));
            let _ = parse_iso_ns(format!("9999-12-31T23:59:60{tail}").as_bytes());
        }
    }
}
