//! Logs and streams of other programs: names to learn from, and lines to annotate.
//!
//! | module | reads | gives |
//! |---|---|---|
//! | [`zeek`] | any Zeek log, tab-separated or JSON | DNS rows, flow ends, rows with our columns appended |
//! | [`eve`] | Suricata's EVE JSON lines | DNS answers, flow ends, lines with our keys spliced in |
//!
//! | [`dns_observation`] | all of these | what one answer teaches |
//! | [`external_names`] | `--zeek-dns`, `--dnstap` | observations in the order of their times |
//! | [`input`] | files, pipes, compressed or not | octets, and an end when the run is stopped |
//! | [`mod@run`] | a log | the log with names |
//!
//! Nothing here decides about names. All input is hostile. A line that cannot be read
//! is counted and goes out as it came in; [`LINE_BYTES_MAX`] bounds what is held of one, and longer
//! ones pass through in pieces, so that memory does not depend on the input. Cost: one pass over a
//! line to split it; JSON lines are walked once and only wanted values are looked into.

pub mod dns_observation;
pub mod eve;
pub mod external_names;
pub mod input;
mod json;
pub mod run;
pub mod zeek;

use std::io::{self, BufRead};

use larder_wire::{Addr, Name, times};

/// Reads a time as people write it, ns since 1970 UTC: ISO 8601 (without a zone: UTC), or seconds since 1970.
pub fn parse_time_ns(text: &[u8]) -> Option<i64> {
    times::iso_ns(text).or_else(|| times::seconds_ns(text))
}

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
    /// Time to live, seconds; `u32::MAX` where the log does not say: what is not known to be stale is
    /// not called so.
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

/// What a line says that the client of its flow asked the server for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Server name of TLS or QUIC.
    pub server_name: Option<Name>,
    /// It is QUIC's.
    pub is_quic: bool,
    /// Host of an HTTP request.
    pub http_host: Option<Name>,
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

/// What [`Lines::advance`] put into the buffer.
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

impl<R> Lines<R> {
    /// What the lines come from.
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

/// Reads the name of a host as clients say it, perhaps with a port; `None` for addresses.
pub(crate) fn parse_host(text: &[u8]) -> Option<Name> {
    let end = text.iter().rposition(|&octet| octet == b':').unwrap_or(text.len());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines come out whole, also without a last newline, and the octets of an overlong one all
    /// come out, in pieces that open once.
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

    /// A line of exactly the limit, at the end of input, does not invent a further line.
    #[test]
    fn line_of_the_limit_at_the_end() {
        let input = vec![b'x'; LINE_BYTES_MAX];
        let mut lines = Lines::new(input.as_slice());
        let mut line = Vec::new();
        assert_eq!(lines.advance(&mut line).ok(), Some(Some(Line::Piece { first: true })));
        assert_eq!(lines.advance(&mut line).ok(), Some(None));
    }
}
