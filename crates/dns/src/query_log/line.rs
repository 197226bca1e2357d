//! A line of the query log, as text or as JSON.
//!
//! ```text
//! 2026-11-22T20:56:43.123456Z 192.0.2.7:4242 udp www.example. A rd,ra NOERROR 57 hit 12
//! time                        client  transport  name  type  flags  code  bytes  source  microseconds
//! ```
//!
//! A line always has ten words, separated by one space. A missing value is `-`. A class other than
//! IN precedes the type: `CH/TXT`. Names are escaped as in [`crate::presentation`], so a name never
//! has a space, a quote or a control character. JSON doubles their backslashes.
//!
//! Cost: a walk over the records for the upper bits of the response code. It allocates only the
//! strings of the name and of the line, and what `out` grows by.

use std::fmt::{self, Write};
use std::net::{IpAddr, SocketAddr};

use larder_wire::civil::Civil;
use larder_wire::dns::{Message, class};
use larder_wire::prefix;

use crate::core::Source;
use crate::dnstap::Protocol;
use crate::presentation::{push_class, push_name, push_rcode, push_type};

/// The format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Words, separated by spaces.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// How many bits of a client's address to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Of IPv4, at most 32.
    pub v4: u8,
    /// Of IPv6, at most 128.
    pub v6: u8,
}

impl Prefix {
    /// The network of a client.
    pub fn of(self, client: SocketAddr) -> prefix::Prefix {
        let address = client.ip().to_canonical();
        prefix::Prefix::new(address, if address.is_ipv4() { self.v4 } else { self.v6 })
    }

    /// The first address of the network of a client.
    pub fn first_address(self, client: IpAddr) -> IpAddr {
        let network = self.of((client, 0).into());
        match network.is_v6() {
            true => IpAddr::from(network.first().to_be_bytes()),
            false => IpAddr::from((network.first() as u32).to_be_bytes()),
        }
    }
}

/// The fields of one line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    /// Time of the response, microseconds since 1970 UTC.
    pub unix_us: u64,
    pub client: SocketAddr,
    pub prefix: Option<Prefix>,
    pub protocol: Protocol,
    pub source: Source,
    pub duration_us: u64,
    /// The response as sent.
    pub answer: &'a [u8],
}

/// The fields that come from the response.
struct Said {
    name: String,
    qtype: Option<u16>,
    qclass: u16,
    flags: [Option<&'static str>; 7],
    rcode: Option<u16>,
}

impl Said {
    fn of(answer: &[u8]) -> Said {
        let nothing = Said {
            name: "-".to_owned(),
            qtype: None,
            qclass: class::IN,
            flags: [None; 7],
            rcode: None,
        };
        let Ok(message) = Message::parse(answer) else { return nothing };
        let (high, low) = (answer[2], answer[3]);
        let dnssec_ok = message.opt().is_some_and(|opt| opt.ttl_raw & 0x8000 != 0);
        let flag = |is_set: bool, word| is_set.then_some(word);
        let flags = [
            flag(high & 4 != 0, "aa"),
            flag(high & 2 != 0, "tc"),
            flag(high & 1 != 0, "rd"),
            flag(low & 0x80 != 0, "ra"),
            flag(low & 0x20 != 0, "ad"),
            flag(low & 0x10 != 0, "cd"),
            flag(dnssec_ok, "do"),
        ];
        let rcode = Some(message.extended_rcode());
        let Ok(Some(question)) = message.question() else {
            return Said { flags, rcode, ..nothing };
        };
        // This server wrote the response: its question has no compression pointers.
        let mut name = String::new();
        push_name(&mut name, &answer[question.name_offset..]);
        Said { name, qtype: Some(question.qtype), qclass: question.qclass, flags, rcode }
    }
}

/// Appends a line.
pub(super) fn put(out: &mut Vec<u8>, format: Format, line: &Line<'_>) {
    let mut text = String::with_capacity(160);
    let said = Said::of(line.answer);
    // Writing to a string does not fail.
    let _ = match format {
        Format::Text => put_text(&mut text, line, &said),
        Format::Json => put_json(&mut text, line, &said),
    };
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

fn put_text(out: &mut String, line: &Line<'_>, said: &Said) -> fmt::Result {
    put_time(out, line.unix_us)?;
    match line.prefix {
        None => write!(out, " {}", line.client)?,
        Some(prefix) => write!(out, " {}", prefix.of(line.client))?,
    }
    write!(out, " {} {} ", line.protocol.word(), said.name)?;
    if said.qclass != class::IN {
        push_class(out, said.qclass);
        out.push('/');
    }
    match said.qtype {
        Some(qtype) => push_type(out, qtype),
        None => out.push('-'),
    }
    out.push(' ');
    let mut comma = "";
    for flag in said.flags.iter().flatten() {
        write!(out, "{comma}{flag}")?;
        comma = ",";
    }
    out.push_str(if comma.is_empty() { "- " } else { " " });
    match said.rcode {
        Some(rcode) => push_rcode(out, rcode),
        None => out.push('-'),
    }
    write!(out, " {} {} {}", line.answer.len(), line.source.word(), line.duration_us)
}

fn put_json(out: &mut String, line: &Line<'_>, said: &Said) -> fmt::Result {
    out.push_str("{\"time\":\"");
    put_time(out, line.unix_us)?;
    match line.prefix {
        None => {
            let (ip, port) = (line.client.ip(), line.client.port());
            write!(out, "\",\"client\":\"{ip}\",\"port\":{port}")?;
        }
        Some(prefix) => write!(out, "\",\"client\":\"{}\"", prefix.of(line.client))?,
    }
    write!(out, ",\"transport\":\"{}\"", line.protocol.word())?;
    if let Some(qtype) = said.qtype {
        out.push_str(",\"name\":\"");
        for letter in said.name.chars() {
            // The only character of an escaped name that JSON must escape.
            if letter == '\\' {
                out.push('\\');
            }
            out.push(letter);
        }
        out.push_str("\",\"type\":\"");
        push_type(out, qtype);
        out.push_str("\",\"class\":\"");
        push_class(out, said.qclass);
        out.push('"');
    }
    out.push_str(",\"flags\":[");
    let mut comma = "";
    for flag in said.flags.iter().flatten() {
        write!(out, "{comma}\"{flag}\"")?;
        comma = ",";
    }
    out.push(']');
    if let Some(rcode) = said.rcode {
        out.push_str(",\"rcode\":\"");
        push_rcode(out, rcode);
        out.push('"');
    }
    let (bytes, source, us) = (line.answer.len(), line.source.word(), line.duration_us);
    write!(out, ",\"bytes\":{bytes},\"source\":\"{source}\",\"duration_us\":{us}}}")
}

/// Date and time in UTC (RFC 3339), with microseconds.
fn put_time(out: &mut String, unix_us: u64) -> fmt::Result {
    let (unix_s, us) = (unix_us / 1_000_000, unix_us % 1_000_000);
    write!(out, "{:.6}", Civil::at(unix_s as i64, us as u32 * 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    const ANSWER: &[u8] = b"\0\0\x85\x93\0\x01\0\0\0\0\0\x01\x03wWw\x02\"\\\0\0\x1c\0\x01\
        \0\0\x29\x04\xd0\0\0\x80\0\0\0";

    fn line(answer: &[u8]) -> Line<'_> {
        Line {
            unix_us: 1_700_000_001_000_002,
            client: "[2001:db8:1:2::7]:4242".parse().unwrap(),
            prefix: None,
            protocol: Protocol::Tcp,
            source: Source::Miss,
            duration_us: 1_234,
            answer,
        }
    }

    fn text(format: Format, line: &Line<'_>) -> String {
        let mut out = Vec::new();
        put(&mut out, format, line);
        String::from_utf8(out).unwrap()
    }

    /// Both formats have every field, and escape the unusual bytes of a name.
    #[test]
    fn all_is_said() {
        let head = "2023-11-14T22:13:21.000002Z";
        let name = "wWw.\\034\\\\.";
        let expected = format!(
            "{head} [2001:db8:1:2::7]:4242 tcp {name} AAAA aa,rd,ra,cd,do NXDOMAIN 35 miss 1234\n"
        );
        assert_eq!(ANSWER.len(), 35);
        assert_eq!(text(Format::Text, &line(ANSWER)), expected);
        let json: Value = serde_json::from_str(&text(Format::Json, &line(ANSWER))).unwrap();
        let expected = serde_json::json!({
            "time": head, "client": "2001:db8:1:2::7", "port": 4242, "transport": "tcp",
            "name": name, "type": "AAAA", "class": "IN", "flags": ["aa", "rd", "ra", "cd", "do"],
            "rcode": "NXDOMAIN", "bytes": 35, "source": "miss", "duration_us": 1234,
        });
        assert_eq!(json, expected);
    }

    /// A line has only the configured bits of an address, and no port. An IPv4-mapped IPv6 address
    /// is logged as IPv4.
    #[test]
    fn addresses_are_cut() {
        for (client, v4, v6, expected) in [
            ("192.0.2.7:53", 24, 56, "192.0.2.0/24"),
            ("192.0.2.7:53", 0, 0, "0.0.0.0/0"),
            ("192.0.2.7:53", 32, 128, "192.0.2.7/32"),
            ("[::ffff:192.0.2.7]:53", 16, 56, "192.0.0.0/16"),
            ("[2001:db8:1:2ff::7]:53", 24, 56, "2001:db8:1:200::/56"),
            ("[2001:db8::7]:53", 24, 0, "::/0"),
        ] {
            let prefix = Some(Prefix { v4, v6 });
            let line = Line { prefix, client: client.parse().unwrap(), ..line(ANSWER) };
            let word = text(Format::Text, &line).split(' ').nth(1).unwrap().to_owned();
            assert_eq!(word, expected);
            let json: Value = serde_json::from_str(&text(Format::Json, &line)).unwrap();
            assert_eq!((json["client"].as_str(), json.get("port")), (Some(expected), None));
        }
    }

    /// A response to an unreadable query, a class other than IN, and a response code above 15.
    #[test]
    fn odd_answers() {
        let words = |answer: &[u8]| {
            let text = text(Format::Text, &line(answer));
            text.trim_end().split(' ').skip(3).take(4).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(b"\0\0\x80\x01\0\0\0\0\0\0\0\0"), "- - - FORMERR");
        let chaos = b"\0\0\x80\x05\0\x01\0\0\0\0\0\0\0\0\x10\0\x03";
        assert_eq!(words(chaos), ". CH/TXT - REFUSED");
        let version = b"\0\0\x80\0\0\x01\0\0\0\0\0\x01\0\0\x01\0\x01\0\0\x29\0\0\x01\0\0\0\0\0";
        assert_eq!(words(version), ". A - BADVERS");
        assert_eq!(words(b""), "- - - -");
    }

    proptest! {
        /// For any bytes, the text is one line of ten words, and the JSON is one line that parses.
        #[test]
        fn lines_stay_lines(bytes in prop::collection::vec(any::<u8>(), 0..80), is_bare: bool) {
            let mut answer = b"\0\0\x81\x80\0\x01\0\0\0\0\0\0".to_vec();
            if is_bare {
                answer.clear();
            }
            answer.extend_from_slice(&bytes);
            let made = text(Format::Text, &line(&answer));
            prop_assert!(made.strip_suffix('\n').unwrap().chars().all(|it| it == ' ' || it.is_ascii_graphic()));
            prop_assert_eq!(made.trim_end().split(' ').count(), 10, "{}", made);
            let json = text(Format::Json, &line(&answer));
            prop_assert_eq!(json.matches('\n').count(), 1);
            prop_assert!(serde_json::from_str::<Value>(&json).is_ok(), "{}", json);
        }
    }
}
