//! Suricata's EVE log: one JSON object a line, to learn from and to annotate.
//!
//! Every event names a flow. Events of type `dns` also have the response, in three forms of
//! different versions of Suricata:
//!
//! | form | a response has | its records |
//! |---|---|---|
//! | 1 | `dns.type` "answer", one event a record | `dns.rrname`, `rrtype`, `rdata`, `ttl` |
//! | 2 | `dns.type` "answer", `dns.rrname` (the question) | `dns.answers[]`, or only `dns.grouped` by type, without TTL |
//! | 3 | `dns.type` "response", `dns.queries[]` | as form 2 |
//!
//! A line is read once, and only the values of known keys are parsed. Lines that are no JSON
//! object, or too long, are written unchanged and counted by the caller.

use std::borrow::Cow;
use std::io::{self, BufRead};

use larder_wire::Name;
use larder_wire::times::iso_ns;
use serde_json::value::RawValue;

use super::json::{items, pick, raw_bytes, splice, text};
use super::{
    ANSWERS_MAX, DnsAnswer, DnsData, DnsRow, FlowEnds, Line, Lines, Said, Value, parse_addr,
    parse_host, parse_number, parse_protocol, parse_query_type,
};

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event: it may have a flow and a response, and keys can be added.
    Event,
    /// Nothing but space.
    Blank,
    /// A line that cannot be read: it is copied, and counted when `first` (long lines come in
    /// pieces).
    Damaged {
        /// False for the further pieces of one line.
        first: bool,
    },
}

/// The names and the flow of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The flow; `None` for events without one (`stats`), or with values that cannot be read. Its
    /// time is the flow's start if the event has it.
    pub ends: Option<FlowEnds>,
    /// The event is about a packet from the responder, so that `ends.source` is the responder.
    pub from_responder: bool,
    /// The name that the flow states.
    pub said: Said,
    /// The response, for responses of event type `dns`.
    pub dns: Option<DnsRow>,
}

/// An EVE log, line by line.
#[derive(Debug)]
pub struct Log<R> {
    lines: Lines<R>,
    line: Vec<u8>,
    event: Event,
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
        Log { lines: Lines::new(input), line: Vec::new(), event: Event::default() }
    }

    /// Reads the next line and returns its kind; `None` at the end of the input.
    pub fn advance(&mut self) -> io::Result<Option<Item>> {
        self.event = Event::default();
        let Some(kind) = self.lines.advance(&mut self.line)? else {
            return Ok(None);
        };
        Ok(Some(match kind {
            Line::Piece { first } => Item::Damaged { first },
            Line::Whole if self.line.trim_ascii().is_empty() => Item::Blank,
            Line::Whole => match read_event(&self.line) {
                Some(event) => {
                    self.event = event;
                    Item::Event
                }
                None => Item::Damaged { first: true },
            },
        }))
    }

    /// The current line with its terminator, unchanged.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// The content of the current line; empty unless it is an [`Item::Event`].
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Writes the current line to `out`, an event with `keys` added at its end; all other bytes
    /// stay.
    pub fn write_with(&self, item: Item, keys: &[(&str, Value<'_>)], out: &mut Vec<u8>) {
        match item {
            Item::Event => splice(&self.line, keys, out),
            Item::Blank | Item::Damaged { .. } => out.extend_from_slice(&self.line),
        }
    }
}

fn read_event(line: &[u8]) -> Option<Event> {
    const KEYS: [&str; 13] = [
        "timestamp",
        "src_ip",
        "src_port",
        "dest_ip",
        "dest_port",
        "proto",
        "event_type",
        "dns",
        "flow",
        "direction",
        "tls",
        "http",
        "quic",
    ];
    let [
        time,
        source,
        source_port,
        destination,
        destination_port,
        protocol,
        kind,
        dns,
        flow,
        direction,
        tls,
        http,
        quic,
    ] = pick(line, &KEYS)?;
    let ends = || {
        Some(FlowEnds {
            time_ns: iso_ns(time.and_then(text)?.as_bytes())?,
            source: parse_addr(source.and_then(text)?.as_bytes())?,
            source_port: raw_bytes(source_port).and_then(parse_number).unwrap_or(0),
            destination: parse_addr(destination.and_then(text)?.as_bytes())?,
            destination_port: raw_bytes(destination_port).and_then(parse_number).unwrap_or(0),
            protocol: protocol.and_then(text).and_then(|word| parse_protocol(word.as_bytes())),
        })
    };
    let ends = ends();
    let is_dns = kind.and_then(text).as_deref() == Some("dns");
    let dns = match (ends, dns) {
        (Some(ends), Some(dns)) if is_dns => read_dns(&ends, dns),
        _ => None,
    };
    let [start, flow_source] = within(flow, ["start", "src_ip"]);
    let start_ns = start.and_then(|time| iso_ns(time.as_bytes()));
    let flow_source = flow_source.and_then(|addr| parse_addr(addr.as_bytes()));
    let from_responder = match (ends, flow_source) {
        (Some(ends), Some(source)) => source != ends.source && source == ends.destination,
        _ => direction.and_then(text).as_deref() == Some("to_client"),
    };
    let host = |name: Option<Cow<'_, str>>| name.and_then(|name| parse_host(name.as_bytes()));
    let ([tls_name], [quic_name], [host_name]) =
        (within(tls, ["sni"]), within(quic, ["sni"]), within(http, ["hostname"]));
    let said = Said {
        is_quic: quic_name.is_some(),
        server_name: host(tls_name.or(quic_name)),
        http_host: host(host_name),
    };
    let ends = ends.map(|ends| FlowEnds { time_ns: start_ns.unwrap_or(ends.time_ns), ..ends });
    Some(Event { ends, from_responder, said, dns })
}

/// Texts inside an object of the event.
fn within<'a, const N: usize>(
    object: Option<&'a RawValue>,
    keys: [&str; N],
) -> [Option<Cow<'a, str>>; N] {
    let found = object.and_then(|raw| pick(raw.get().as_bytes(), &keys));
    found.unwrap_or([None; N]).map(|raw| raw.and_then(text))
}

fn read_dns(ends: &FlowEnds, dns: &RawValue) -> Option<DnsRow> {
    const KEYS: [&str; 9] =
        ["type", "rrname", "rrtype", "rcode", "rdata", "ttl", "queries", "answers", "grouped"];
    let [kind, name, query_type, code, data, ttl, queries, answers, grouped] =
        pick(dns.get().as_bytes(), &KEYS)?;
    if !matches!(text(kind?)?.as_ref(), "answer" | "response") {
        return None;
    }
    let (name, query_type) = match queries.and_then(|raw| items(raw).into_iter().next()) {
        Some(first) => {
            let [name, query_type] = pick(first.get().as_bytes(), &["rrname", "rrtype"])?;
            (name, query_type)
        }
        None => (name, query_type),
    };
    let answers = match (answers, grouped, data) {
        (Some(answers), _, _) => items(answers).into_iter().filter_map(read_record).collect(),
        (None, Some(grouped), _) => read_grouped(grouped),
        (None, None, Some(_)) => record(query_type, data, ttl).into_iter().collect(),
        (None, None, None) => Vec::new(),
    };
    if answers.is_empty() {
        return None;
    }
    // Some versions of Suricata state the flow's direction and others the packet's: the server is
    // the end with the DNS port, or else the destination.
    let is_dns_port = |port| matches!(port, 53 | 5353 | 853);
    let answer_travels = is_dns_port(ends.source_port) && !is_dns_port(ends.destination_port);
    let (client, server) = match answer_travels {
        true => (ends.destination, ends.source),
        false => (ends.source, ends.destination),
    };
    Some(DnsRow {
        time_ns: ends.time_ns,
        client,
        server,
        query: Name::from_text(text(name?)?.as_bytes())?,
        query_type: query_type.and_then(text).and_then(|word| parse_query_type(word.as_bytes())),
        response_code: code.and_then(text).and_then(|word| parse_response_code(&word)),
        answers,
    })
}

fn read_record(raw: &RawValue) -> Option<DnsAnswer> {
    let [kind, data, ttl] = pick(raw.get().as_bytes(), &["rrtype", "rdata", "ttl"])?;
    record(kind, data, ttl)
}

fn record(
    kind: Option<&RawValue>,
    data: Option<&RawValue>,
    ttl: Option<&RawValue>,
) -> Option<DnsAnswer> {
    Some(DnsAnswer {
        ttl_s: raw_bytes(ttl).and_then(parse_number).unwrap_or(u32::MAX),
        data: read_data(&text(kind?)?, data.and_then(text)),
    })
}

fn read_data(kind: &str, data: Option<Cow<'_, str>>) -> DnsData {
    let Some(data) = data else {
        return DnsData::Other;
    };
    let read = match kind {
        "A" | "AAAA" => parse_addr(data.as_bytes()).map(DnsData::Address),
        "CNAME" | "DNAME" | "PTR" => Name::from_text(data.as_bytes()).map(DnsData::Name),
        _ => None,
    };
    read.unwrap_or(DnsData::Other)
}

/// Records by type, without owners or TTLs: names first, as a chain comes before its addresses.
fn read_grouped(grouped: &RawValue) -> Vec<DnsAnswer> {
    const KINDS: [&str; 4] = ["CNAME", "PTR", "A", "AAAA"];
    let Some(found) = pick(grouped.get().as_bytes(), &KINDS) else {
        return Vec::new();
    };
    let mut answers = Vec::new();
    for (kind, raw) in KINDS.iter().zip(found) {
        for item in raw.map(items).unwrap_or_default() {
            answers.push(DnsAnswer { ttl_s: u32::MAX, data: read_data(kind, text(item)) });
        }
    }
    answers.truncate(ANSWERS_MAX);
    answers
}

/// Response code of a mnemonic (RFC 1035, RFC 2136).
fn parse_response_code(word: &str) -> Option<u16> {
    const WORDS: [(&str, u16); 6] = [
        ("NOERROR", 0),
        ("FORMERR", 1),
        ("SERVFAIL", 2),
        ("NXDOMAIN", 3),
        ("NOTIMP", 4),
        ("REFUSED", 5),
    ];
    WORDS.iter().find(|(known, _)| *known == word).map(|&(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::Addr;
    use proptest::prelude::*;

    fn addr(text: &str) -> Addr {
        parse_addr(text.as_bytes()).expect("a literal address")
    }

    fn name(text: &str) -> Name {
        Name::from_text(text.as_bytes()).expect("a literal name")
    }

    fn line(source: &str, dns: &str) -> String {
        format!(
            "{{\"timestamp\":\"2024-05-01T12:00:00.250000+0200\",\"flow_id\":1,\
             \"event_type\":\"dns\",{source},\"proto\":\"UDP\",\"dns\":{dns}}}"
        )
    }

    const TO_SERVER: &str =
        r#""src_ip":"192.0.2.1","src_port":4000,"dest_ip":"192.0.2.53","dest_port":53"#;
    const TO_CLIENT: &str =
        r#""src_ip":"192.0.2.53","src_port":53,"dest_ip":"192.0.2.1","dest_port":4000"#;

    fn read(line: &str) -> Option<DnsRow> {
        read_event(line.as_bytes()).expect("an event").dns
    }

    fn expected(ttl_s: u32) -> DnsRow {
        DnsRow {
            time_ns: 1_714_557_600_250_000_000,
            client: addr("192.0.2.1"),
            server: addr("192.0.2.53"),
            query: name("www.example.com"),
            query_type: Some(1),
            response_code: Some(0),
            answers: vec![
                DnsAnswer { ttl_s, data: DnsData::Name(name("cdn.example.net")) },
                DnsAnswer { ttl_s, data: DnsData::Address(addr("203.0.113.9")) },
            ],
        }
    }

    /// Forms 2 and 3, detailed and grouped, in either direction, give the same.
    #[test]
    fn forms_two_and_three() {
        let answers = r#""answers":[{"rrname":"www.example.com","rrtype":"CNAME","ttl":9,"rdata":"cdn.example.net"},{"rrname":"cdn.example.net","rrtype":"A","ttl":9,"rdata":"203.0.113.9"}]"#;
        let grouped = r#""grouped":{"A":["203.0.113.9"],"CNAME":["cdn.example.net"]}"#;
        let two = r#"{"version":2,"type":"answer","rrname":"WWW.example.com","rrtype":"A","rcode":"NOERROR","#;
        let three = r#"{"version":3,"type":"response","queries":[{"rrname":"www.example.com","rrtype":"A"}],"rcode":"NOERROR","#;
        for head in [two, three] {
            for ends in [TO_SERVER, TO_CLIENT] {
                assert_eq!(read(&line(ends, &format!("{head}{answers}}}"))), Some(expected(9)));
                assert_eq!(
                    read(&line(ends, &format!("{head}{grouped}}}"))),
                    Some(expected(u32::MAX))
                );
            }
        }
    }

    /// Form 1 has one record an event.
    #[test]
    fn form_one() {
        let dns = r#"{"type":"answer","id":1,"rcode":"NOERROR","rrname":"www.example.com","rrtype":"A","ttl":9,"rdata":"203.0.113.9"}"#;
        let row = read(&line(TO_CLIENT, dns)).expect("an answer");
        assert_eq!(row.answers, expected(9).answers[1..]);
    }

    /// Queries, failures and other events give nothing.
    #[test]
    fn what_teaches_nothing() {
        for dns in [
            r#"{"type":"query","rrname":"www.example.com","rrtype":"A"}"#,
            r#"{"type":"answer","rrname":"www.example.com","rrtype":"A","rcode":"NXDOMAIN"}"#,
            r#"{"type":"answer","answers":[{"rrtype":"A","rdata":"203.0.113.9"}]}"#,
            r#"[1,2]"#,
            r#""text""#,
        ] {
            assert_eq!(read(&line(TO_SERVER, dns)), None, "{dns}");
        }
        let flow = line(TO_SERVER, "{}").replace("\"dns\",", "\"flow\",");
        let event = read_event(flow.as_bytes()).expect("an event");
        let ends = event.ends.expect("a flow");
        assert_eq!((ends.source_port, ends.destination_port, ends.protocol), (4000, 53, Some(17)));
        let stats = read_event(br#"{"event_type":"stats"}"#).expect("an event");
        assert_eq!(stats, Event::default());
    }

    /// Keys are added to events; lines that cannot be read stay unchanged, in their places.
    #[test]
    fn lines_in_order() {
        let input = "{\"a\":\"}\"} \r\nnot json\n\n{\"a\":1}trailing\n[1]\n{\"b\":{}}";
        let mut log = Log::new(input.as_bytes());
        let (mut out, mut items) = (Vec::new(), Vec::new());
        while let Some(item) = log.advance().expect("memory is readable") {
            items.push(item);
            log.write_with(item, &[("k", Value::Text(b"v"))], &mut out);
        }
        let expected = "{\"a\":\"}\",\"k\":\"v\"} \r\nnot json\n\n{\"a\":1}trailing\n[1]\n{\"b\":{},\"k\":\"v\"}";
        assert_eq!(String::from_utf8(out).expect("ASCII"), expected);
        let damaged = Item::Damaged { first: true };
        assert_eq!(items, [Item::Event, damaged, Item::Blank, damaged, damaged, Item::Event]);
    }

    /// Deeply nested brackets are damage, not a stack overflow.
    #[test]
    fn deep_nesting_is_harmless() {
        for open in ["[", "{\"x\":"] {
            let deep = format!("{{\"dns\":{}", open.repeat(100_000));
            assert_eq!(read_event(deep.as_bytes()), None);
        }
    }

    proptest! {
        /// No input panics, and without keys every input is written unchanged.
        #[test]
        fn any_input_passes_through(
            noise in proptest::collection::vec(any::<u8>(), 0..60),
            at in 0usize..300,
        ) {
            let dns = r#"{"version":3,"type":"response","queries":[{"rrname":"a.example","rrtype":"A"}],"answers":[{"rrtype":"A","rdata":"203.0.113.9","ttl":1}]}"#;
            let mut input = line(TO_SERVER, dns).into_bytes();
            let at = at.min(input.len());
            input.splice(at..at, noise);
            let mut log = Log::new(input.as_slice());
            let mut out = Vec::new();
            while let Some(item) = log.advance().expect("memory is readable") {
                log.write_with(item, &[], &mut out);
            }
            prop_assert_eq!(out, input);
        }
    }
}
