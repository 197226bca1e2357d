//! Logs and streams of other programs: names to learn from, and lines to annotate.
//!
//! | module | reads | gives |
//! |---|---|---|
//! | [`zeek`] | any Zeek log, tab-separated or JSON | DNS rows, flow ends, rows with added columns |
//! | [`eve`] | Suricata's EVE JSON lines | DNS responses, flow ends, lines with added keys |
//! | [`dns_observation`] | all of these | the names of one response |
//! | [`external_names`] | `--zeek-dns`, `--dnstap` | observations in the order of their times |
//! | [`input`] | files, pipes, compressed or not | bytes, and an end when the run is stopped |
//! | [`mod@run`] | a log | the log with names |
//!
//! This module chooses no names. All input is hostile. A line that cannot be read is counted and
//! written unchanged. [`LINE_BYTES_MAX`] bounds the memory for one line; longer ones are copied in
//! pieces, so memory does not depend on the input. Cost: one pass over a line to split it; JSON
//! lines are read once and only known values are parsed.

pub mod dns_observation;
pub mod eve;
pub mod external_names;
mod flow_log;
mod forms;
pub mod input;
mod json;
pub mod run;
pub mod zeek;

use std::io::{self, BufRead};

use larder_wire::{Addr, Name, times};

/// Reads a time, ns since 1970 UTC: ISO 8601 (without a zone: UTC), or seconds since 1970.
pub fn parse_time_ns(text: &[u8]) -> Option<i64> {
    times::iso_ns(text).or_else(|| times::seconds_ns(text))
}

/// Bytes of a line that is parsed, at most. Suricata's largest lines (with payload and packet) are
/// some 100 KiB.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Answers taken from one row, at most; a DNS message of 64 KiB has fewer than 4,096 addresses.
pub const ANSWERS_MAX: usize = 4096;

/// One DNS response in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsRow {
    /// Time of the response, ns since 1970 UTC (the query's time if the log has no other).
    pub time_ns: i64,
    /// The client that queried.
    pub client: Addr,
    /// The server that responded.
    pub server: Addr,
    /// The name as queried.
    pub query: Name,
    /// Type of the query (RFC 1035, section 3.2.2), if the log has it and larder knows it.
    pub query_type: Option<u16>,
    /// Response code, if the log has it and larder knows it; 0 is NOERROR.
    pub response_code: Option<u16>,
    /// The answer section, in order.
    pub answers: Vec<DnsAnswer>,
}

/// One record of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// Time to live, seconds; `u32::MAX` if the log has none: such a name is never stale.
    pub ttl_s: u32,
    /// Its content.
    pub data: DnsData,
}

/// The content of a record: names and addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsData {
    /// An address (A, AAAA).
    Address(Addr),
    /// A name (CNAME, PTR, …: the query's type decides). Zeek does not mark text, so some text
    /// records look like names; only CNAME and PTR queries should use it.
    Name(Name),
    /// Anything else.
    Other,
}

/// The two ends of a flow in a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEnds {
    /// Time of the line, ns since 1970 UTC.
    pub time_ns: i64,
    /// The initiator in the log.
    pub source: Addr,
    /// Its port, 0 if the log has none.
    pub source_port: u16,
    /// The responder in the log.
    pub destination: Addr,
    /// Its port, 0 if the log has none.
    pub destination_port: u16,
    /// IP protocol number, if the log has it and larder knows it.
    pub protocol: Option<u8>,
}

/// The names of the server that the client of a flow states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Server name of TLS or QUIC.
    pub server_name: Option<Name>,
    /// It is the server name of QUIC.
    pub is_quic: bool,
    /// Host of an HTTP request.
    pub http_host: Option<Name>,
}

/// A value to add to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Unknown: `-` in a table, absent in JSON.
    Unset,
    /// Bytes, escaped as the format has it.
    Text(&'a [u8]),
    /// Several texts, best first.
    List(&'a [&'a [u8]]),
    /// A number.
    Count(u64),
    /// A truth value.
    Bool(bool),
}

/// The content of the buffer after [`Lines::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line with its terminator (the last line of a file may have none).
    Whole,
    /// A part of a line longer than [`LINE_BYTES_MAX`]: copied, not parsed. `first` is true for its
    /// first part, so that it is counted once.
    Piece {
        /// The first part of the line.
        first: bool,
    },
}

/// Lines of a log, in bounded memory, without losing a byte.
#[derive(Debug)]
pub struct Lines<R> {
    input: R,
    in_long_line: bool,
}

impl<R> Lines<R> {
    /// The input of the lines.
    pub fn input(&self) -> &R {
        &self.input
    }
}

impl<R: BufRead> Lines<R> {
    /// Lines of `input`.
    pub fn new(input: R) -> Lines<R> {
        Lines { input, in_long_line: false }
    }

    /// Puts the next line, or the next piece of a long one, into `line`; `None` at the end of input.
    pub fn advance(&mut self, line: &mut Vec<u8>) -> io::Result<Option<Line>> {
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
            let newline = window.iter().position(|&byte| byte == b'\n');
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

/// Reads the name of a host, perhaps with a port; `None` for addresses.
pub(crate) fn parse_host(text: &[u8]) -> Option<Name> {
    let end = text.iter().rposition(|&byte| byte == b':').unwrap_or(text.len());
    let host = match &text[end..] {
        [b':', port @ ..] if port.iter().all(u8::is_ascii_digit) => &text[..end],
        _ => text,
    };
    let is_addr = host.first() == Some(&b'[') || parse_addr(host).is_some();
    if is_addr || parse_addr(text).is_some() { None } else { Name::from_text(host) }
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

/// Type number of a mnemonic, for the types that give names.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines are read whole, also without a last newline, and the bytes of a line that is too long
    /// are all read, in pieces of which one is the first.
    #[test]
    fn lines_lose_nothing() {
        let long = vec![b'x'; LINE_BYTES_MAX + 5];
        let input = [b"one\n\ntwo\r\n", long.as_slice(), b"\nlast"].concat();
        let mut lines = Lines::new(io::BufReader::with_capacity(7, input.as_slice()));
        let (mut line, mut kinds, mut all) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(kind) = lines.advance(&mut line).expect("memory is readable") {
            kinds.push(kind);
            all.extend_from_slice(&line);
        }
        assert_eq!(all, input);
        let (first, next) = (Line::Piece { first: true }, Line::Piece { first: false });
        assert_eq!(kinds, [Line::Whole, Line::Whole, Line::Whole, first, next, Line::Whole]);
    }

    /// A host is a name without its port; an address in any spelling is none.
    #[test]
    fn hosts_are_names() {
        let host = |text: &str| parse_host(text.as_bytes()).map(|name| name.as_bytes().to_vec());
        assert_eq!(host("WWW.example:8080").as_deref(), Some(&b"www.example"[..]));
        assert_eq!(host("a:b").as_deref(), Some(&b"a:b"[..]));
        for none in ["", "192.0.2.1", "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]:443", ":80"] {
            assert_eq!(host(none), None, "{none}");
        }
    }

    /// A line of exactly the limit, at the end of input, gives no further line.
    #[test]
    fn line_of_the_limit_at_the_end() {
        let input = vec![b'x'; LINE_BYTES_MAX];
        let mut lines = Lines::new(input.as_slice());
        let mut line = Vec::new();
        assert_eq!(lines.advance(&mut line).ok(), Some(Some(Line::Piece { first: true })));
        assert_eq!(lines.advance(&mut line).ok(), Some(None));
    }
}
