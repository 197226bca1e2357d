//! Search terms.
//!
//! ```text
//! www.example.com           a name: without case, with or without the last dot
//! *.example.com  *          names: a star stands for any bytes, dots too; *.example.com is all below example.com
//! a\x00b.example            a byte by its number; \. \\ \* are a dot in a label, a backslash, a star
//! 192.0.2.1  2001:db8::1    an address, in any header of IP (also around or in a tunnel, or quoted by ICMP), or in ARP
//! 192.0.2.0/24              all addresses with this prefix
//! 192.0.2.1:443-198.51.100.2:5555/tcp  192.0.2.1-*/udp  [2001:db8::1]:53-*   a flow, whichever end began
//! 192.0.2.1:443             the same with any other end
//! 1:LQU9qZlK+B5F3KDmev6m5PMibrg=    a Community ID (seed 0)
//! ```
//!
//! Several words are alternatives. A word of no other form is a name.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use larder_wire::Addr;
use larder_wire::community_id;

use crate::FlowKey;
use crate::index::reversed;

/// Words of a query, at most.
const WORDS_MAX: usize = 4096;

/// Marks a byte after a backslash: part of a label, whatever it is.
const ESCAPED: u16 = 0x100;

/// A search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub(crate) terms: Vec<Term>,
}

/// Why words are no query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueryError {
    /// There are no words. Give a name, an address or a flow.
    Empty,
    /// More words than one search takes.
    TooMany,
    /// The word is an impossible address, prefix or flow.
    Word(String, &'static str),
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryError::Empty => {
                f.write_str("nothing to look for; give a name, an address, a prefix or a flow")
            }
            QueryError::TooMany => write!(f, "more than {WORDS_MAX} words; ask several times"),
            QueryError::Word(word, why) => write!(f, "`{}`: {why}", word.escape_debug()),
        }
    }
}

impl std::error::Error for QueryError {}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    Name(Pattern),
    /// Addresses from the first to the last.
    Net(Addr, Addr),
    Flow([End; 2], Option<u8>),
    Community(String),
}

/// An end of a flow; an absent part matches anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    pub addr: Option<Addr>,
    pub port: Option<u16>,
}

/// A name with stars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// The parts between the stars.
    parts: Vec<Vec<u16>>,
}

impl Query {
    /// Reads words in the forms above.
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Query, QueryError> {
        if words.is_empty() {
            return Err(QueryError::Empty);
        }
        if words.len() > WORDS_MAX {
            return Err(QueryError::TooMany);
        }
        let terms: Result<_, _> = words.iter().map(|word| term(word.as_ref())).collect();
        terms.map(|terms| Query { terms })
    }

    /// True if the query has names, so that events matter.
    pub(crate) fn has_names(&self) -> bool {
        self.terms.iter().any(|term| matches!(term, Term::Name(_)))
    }

    /// True if flows with this key match, whatever their names.
    pub(crate) fn matches_key(&self, key: &FlowKey) -> bool {
        self.terms.iter().any(|term| term.matches_key(key))
    }

    /// Addresses that match, in any header.
    pub(crate) fn addresses(&self) -> Vec<RangeInclusive<Addr>> {
        let ranges = self.terms.iter().filter_map(|term| match term {
            Term::Net(first, last) => Some(*first..=*last),
            _ => None,
        });
        ranges.collect()
    }

    /// True if packets with this address match, whatever their flow.
    pub(crate) fn matches_address(&self, addr: Addr) -> bool {
        self.terms
            .iter()
            .any(|term| matches!(term, Term::Net(first, last) if (*first..=*last).contains(&addr)))
    }

    /// True when this name is looked for.
    pub(crate) fn matches_name(&self, name: &[u8]) -> bool {
        self.terms.iter().any(|term| matches!(term, Term::Name(pattern) if pattern.matches(name)))
    }
}

impl Term {
    pub fn matches_key(&self, key: &FlowKey) -> bool {
        match self {
            Term::Name(_) => false,
            Term::Net(first, last) => {
                (first..=last).contains(&&key.low) || (first..=last).contains(&&key.high)
            }
            Term::Flow([one, other], protocol) => {
                let low = |end: &End| end.is(key.low, key.low_port);
                let high = |end: &End| end.is(key.high, key.high_port);
                protocol.is_none_or(|protocol| protocol == key.protocol)
                    && (low(one) && high(other) || low(other) && high(one))
            }
            // ICMP messages without a response have another ID for each direction.
            Term::Community(id) => {
                let FlowKey { low, high, low_port, high_port, protocol, .. } = *key;
                *id == community_id::v1(low, high, low_port, high_port, protocol, 0)
                    || *id == community_id::v1(high, low, high_port, low_port, protocol, 0)
            }
        }
    }
}

impl End {
    fn is(&self, addr: Addr, port: u16) -> bool {
        self.addr.is_none_or(|wanted| wanted == addr)
            && self.port.is_none_or(|wanted| wanted == port)
    }
}

impl Pattern {
    pub fn matches(&self, name: &[u8]) -> bool {
        let name = units(name);
        let [first, .., last] = &self.parts[..] else { return self.parts.first() == Some(&name) };
        if name.len() < first.len() + last.len()
            || !name.starts_with(first)
            || !name.ends_with(last)
        {
            return false;
        }
        let mut rest = &name[first.len()..name.len() - last.len()];
        for part in &self.parts[1..self.parts.len() - 1] {
            // The leftmost match is as good as any.
            let found = (0..=rest.len()).find(|at| rest[*at..].starts_with(part));
            let Some(at) = found else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    }

    /// The beginning of matching names with reversed labels; and whether it is the one name.
    pub fn prefix(&self) -> (Vec<u8>, bool) {
        let last = self.parts.last().map_or(&[][..], |part| part);
        if self.parts.len() == 1 {
            return (reversed(&escaped(last)), true);
        }
        // The labels that are complete in the last part.
        let dot = last.iter().position(|unit| *unit == u16::from(b'.'));
        let Some(dot) = dot else { return (Vec::new(), false) };
        let mut prefix = reversed(&escaped(&last[dot + 1..]));
        prefix.push(b'.');
        (prefix, false)
    }
}

/// The bytes of a name; those that a backslash makes part of a label are marked.
fn units(name: &[u8]) -> Vec<u16> {
    let mut bytes = name.iter();
    let mut out = Vec::with_capacity(name.len());
    while let Some(&byte) = bytes.next() {
        match (byte, bytes.as_slice().first()) {
            (b'\\', Some(&next)) => {
                bytes.next();
                out.push(ESCAPED | u16::from(next));
            }
            _ => out.push(u16::from(byte)),
        }
    }
    out
}

fn escaped(units: &[u16]) -> Vec<u8> {
    units
        .iter()
        .flat_map(|unit| (*unit >= ESCAPED).then_some(b'\\').into_iter().chain([*unit as u8]))
        .collect()
}

fn term(word: &str) -> Result<Term, QueryError> {
    let wrong = |why| Err(QueryError::Word(word.to_owned(), why));
    if word.is_empty() {
        return wrong("an empty word");
    }
    if word.len() == 30 && word.starts_with("1:") && word.ends_with('=') {
        return Ok(Term::Community(word.to_owned()));
    }
    if let Some(addr) = address(word) {
        return Ok(Term::Net(addr, addr));
    }
    if let Some((addr, bits)) = word.split_once('/')
        && let (Some(addr), Ok(bits)) = (address(addr), bits.parse())
    {
        return match net(addr, bits) {
            Some((first, last)) => Ok(Term::Net(first, last)),
            None => wrong("a prefix has up to 32 bits, in IPv6 up to 128"),
        };
    }
    match flow(word) {
        Some((_, Err(why))) => wrong(why),
        Some((ends, Ok(protocol))) => Ok(Term::Flow(ends, protocol)),
        None => match pattern(word) {
            Some(pattern) => Ok(Term::Name(pattern)),
            None => wrong("a byte is written \\xHH, with two hexadecimal digits"),
        },
    }
}

fn address(text: &str) -> Option<Addr> {
    text.parse::<IpAddr>().ok().map(Addr::from)
}

fn net(addr: Addr, bits: u32) -> Option<(Addr, Addr)> {
    let bits = if addr.is_v4() { bits.checked_add(96)? } else { bits };
    let mask = match bits {
        0 => 0,
        1..=128 => u128::MAX << (128 - bits),
        _ => return None,
    };
    let value = u128::from_be_bytes(addr.0);
    Some((Addr((value & mask).to_be_bytes()), Addr((value | !mask).to_be_bytes())))
}

type Protocol = Result<Option<u8>, &'static str>;

/// A flow; `None`: the word is not a flow.
fn flow(word: &str) -> Option<([End; 2], Protocol)> {
    let (ends, protocol) = match word.rsplit_once('/') {
        Some((ends, protocol)) => (ends, protocol_of(protocol)),
        None => (word, Ok(None)),
    };
    let ends = match ends.split_once('-') {
        Some((one, other)) => [end(one)?, end(other)?],
        None => [end(ends)?, End::default()],
    };
    (ends != [End::default(); 2]).then_some((ends, protocol))
}

fn protocol_of(text: &str) -> Protocol {
    Ok(Some(match text {
        "tcp" => 6,
        "udp" => 17,
        "icmp" => 1,
        "icmp6" => 58,
        "sctp" => 132,
        number => number
            .parse()
            .map_err(|_| "a flow ends with /tcp, /udp, /icmp, /icmp6, /sctp or a number")?,
    }))
}

fn end(text: &str) -> Option<End> {
    if text == "*" {
        return Some(End::default());
    }
    if let Some(addr) = address(text) {
        return Some(End { addr: Some(addr), port: None });
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => {
            let colon = text.rfind(':')?;
            (&text[..colon], &text[colon..])
        }
    };
    let addr = match host {
        "*" => None,
        host => Some(address(host)?),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => Some(port.parse().ok()?),
        None if port.is_empty() => None,
        None => return None,
    };
    Some(End { addr, port })
}

fn pattern(word: &str) -> Option<Pattern> {
    let mut parts = vec![Vec::new()];
    let mut bytes = word.bytes();
    while let Some(byte) = bytes.next() {
        let unit = match byte {
            b'*' => {
                parts.push(Vec::new());
                continue;
            }
            b'\\' => match bytes.next()? {
                b'x' => {
                    let mut digit = || (bytes.next()? as char).to_digit(16);
                    plain((digit()? * 16 + digit()?) as u8)
                }
                escaped => plain(escaped),
            },
            byte => u16::from(byte.to_ascii_lowercase()),
        };
        parts.last_mut()?.push(unit);
    }
    let last = parts.last_mut()?;
    if last.last() == Some(&u16::from(b'.')) {
        last.pop();
    }
    Some(Pattern { parts })
}

/// A byte of a label, as in names.
fn plain(byte: u8) -> u16 {
    match byte {
        b'.' | b'\\' => ESCAPED | u16::from(byte),
        byte => u16::from(byte.to_ascii_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(word: &str) -> Term {
        Query::parse(&[word]).expect(word).terms.remove(0)
    }

    /// Names match as people expect, and all matches are in the range of reversed names that is
    /// searched.
    #[test]
    fn names_match() {
        let cases: [(&str, &[&str], &[&str]); 12] = [
            ("WWW.Example.com.", &["www.example.com"], &["example.com", "xwww.example.com"]),
            (
                "*.example.com",
                &["www.example.com", "a.b.example.com"],
                &["example.com", "wexample.com", r"a\.example.com"],
            ),
            ("*", &["x", "", "a.b"], &[]),
            ("www.*.com", &["www.a.com", "www.a.b.com"], &["www.com", "www.a.org"]),
            ("*a*b*", &["ab", "xxaxxbxx"], &["ba", "b"]),
            ("*aa*aa*", &["aaaa", "aabaa"], &["aaa", "a"]),
            ("ab*ba", &["abba", "ab.ba"], &["aba", "ba"]),
            ("*example.com", &["example.com", "anexample.com"], &["example.comx"]),
            (r"a\x00b.example", &["a\0b.example"], &["ab.example"]),
            (r"a\.b.example", &[r"a\.b.example"], &["a.b.example"]),
            (r"a\x2eB\x5C.example", &[r"a\.b\\.example"], &["a.b.example"]),
            (r"\*.example", &["*.example"], &["a.example"]),
        ];
        for (word, yes, no) in cases {
            let Term::Name(pattern) = one(word) else { panic!("{word} is a name") };
            let (prefix, is_exact) = pattern.prefix();
            for name in yes {
                assert!(pattern.matches(name.as_bytes()), "{word} {name}");
                let name_reversed = reversed(name.as_bytes());
                assert!(name_reversed.starts_with(&prefix), "{word} {name}");
                assert!(!is_exact || name_reversed == prefix);
            }
            for name in no {
                assert!(!pattern.matches(name.as_bytes()), "{word} {name}");
            }
        }
    }

    /// Below a domain its reversed labels are searched; only a whole name is exact; a star in the
    /// last label leaves no prefix.
    #[test]
    fn names_are_searched_from_their_end() {
        let prefix = |word: &str| pattern(word).expect("a pattern").prefix();
        let name = reversed(b"www.example.com");
        assert_eq!(prefix("www.example.com"), (name.clone(), true));
        let (below, is_exact) = prefix("*.example.com");
        assert_eq!((below.as_slice(), is_exact), (&b"com.example."[..], false));
        assert!(name.starts_with(&below) && !reversed(b"example.com").starts_with(&below));
        assert_eq!(prefix("w*w.example.com"), (below, false));
        assert_eq!(prefix("www.example.c*m"), (Vec::new(), false));
        let words = |words: &[&str]| Query::parse(words).expect("a query");
        assert!(words(&["192.0.2.1", "*.example.com"]).has_names());
        assert!(!words(&["192.0.2.1", "192.0.2.1:53", "10.0.0.0/8"]).has_names());
    }

    /// The limit of words holds, and errors name the limit or the word.
    #[test]
    fn errors_say_why() {
        let words = vec!["a"; WORDS_MAX + 1];
        assert!(Query::parse(&words[1..]).is_ok());
        let said = |words: &[&str]| Query::parse(words).expect_err("no query").to_string();
        assert_eq!(said(&words), "more than 4096 words; ask several times");
        assert_eq!(
            said(&["10.0.0.0/33"]),
            "`10.0.0.0/33`: a prefix has up to 32 bits, in IPv6 up to 128"
        );
        assert!(said(&[]).starts_with("nothing to look for"));
    }

    /// Words are read in their forms, and impossible ones are refused with a reason.
    #[test]
    fn words_are_read() {
        let addr = |text: &str| address(text).expect("an address");
        assert_eq!(one("192.0.2.1"), Term::Net(addr("192.0.2.1"), addr("192.0.2.1")));
        assert_eq!(one("192.0.2.9/24"), Term::Net(addr("192.0.2.0"), addr("192.0.2.255")));
        assert_eq!(one("0.0.0.0/0"), Term::Net(addr("0.0.0.0"), addr("255.255.255.255")));
        let host = |text: &str| Term::Net(addr(text), addr(text));
        assert_eq!(one("192.0.2.1/32"), host("192.0.2.1"));
        assert_eq!(one("2001:db8::1/128"), host("2001:db8::1"));
        let all = Addr([0xff; 16]);
        assert_eq!(one("::/0"), Term::Net(Addr([0; 16]), all));
        let end = |host: &str, port| End { addr: address(host), port };
        let flow = [end("192.0.2.1", Some(443)), end("198.51.100.2", Some(5555))];
        assert_eq!(one("192.0.2.1:443-198.51.100.2:5555/tcp"), Term::Flow(flow, Some(6)));
        let half = [end("2001:db8::1", Some(53)), End::default()];
        assert_eq!(one("[2001:db8::1]:53-*"), Term::Flow(half, None));
        assert_eq!(one("[2001:db8::1]:53"), Term::Flow(half, None));
        assert_eq!(one("*-*:443"), Term::Flow([End::default(), end("", Some(443))], None));
        assert_eq!(one("[2001:db8::1]-*"), Term::Flow([end("2001:db8::1", None), half[1]], None));
        for (protocol, number) in
            [("tcp", 6), ("udp", 17), ("icmp", 1), ("icmp6", 58), ("sctp", 132), ("47", 47)]
        {
            let expected = Term::Flow([end("", Some(9)), End::default()], Some(number));
            assert_eq!(one(&format!("*:9/{protocol}")), expected, "{protocol}");
        }
        let id = "1:LQU9qZlK+B5F3KDmev6m5PMibrg=";
        assert_eq!(one(id), Term::Community(id.into()));
        let thirty = "thirty-bytes-names.example.com";
        assert_eq!(thirty.len(), id.len());
        for name in [
            "foo-bar.example",
            "1.2.3.4.5",
            "*-*",
            "1:2",
            "1:2=",
            "a=",
            thirty,
            "a:b",
            "x/y",
            "[2001:db8::1]53",
        ] {
            assert!(matches!(one(name), Term::Name(_)), "{name}");
        }
        for bad in ["", "192.0.2.1/33", "::/129", "192.0.2.1/x", r"a\x0", r"a\", "192.0.2.1-*/foo"]
        {
            assert!(matches!(Query::parse(&[bad]), Err(QueryError::Word(..))), "{bad}");
        }
        assert_eq!(Query::parse::<&str>(&[]), Err(QueryError::Empty));
    }

    /// Keys match from either end, and by their Community ID in either order.
    #[test]
    fn keys_match() {
        let addr = |text: &str| address(text).expect("an address");
        let key = FlowKey {
            low: addr("66.35.250.204"),
            high: addr("128.232.110.120"),
            low_port: 80,
            high_port: 34855,
            protocol: 6,
            scope: Default::default(),
        };
        for (word, expected) in [
            ("1:LQU9qZlK+B5F3KDmev6m5PMibrg=", true),
            ("1:LQU9qZlK+B5F3KDmev6m5PMibrh=", false),
            ("66.35.250.204", true),
            ("128.0.0.0/8", true),
            ("67.0.0.0/8", false),
            ("66.35.250.204:80-*", true),
            ("128.232.110.120-66.35.250.204:80/tcp", true),
            ("128.232.110.120:80", false),
            ("66.35.250.204/udp", false),
            ("*:80", true),
            ("66.35.250.204:80-66.35.250.204", false),
        ] {
            match Query::parse(&[word]) {
                Ok(query) => assert_eq!(query.matches_key(&key), expected, "{word}"),
                Err(_) => assert!(!expected, "{word}"),
            }
        }
    }

    /// ICMP messages without a response have a Community ID for each direction, and either finds
    /// them.
    #[test]
    fn either_community_id_of_one_direction_matches() {
        let (low, high) = (Addr::v4([192, 0, 2, 1]), Addr::v4([192, 0, 2, 2]));
        let (low_port, high_port, protocol) = (3, 1, 1);
        let key = FlowKey { low, high, low_port, high_port, protocol, scope: Default::default() };
        let ids = [
            community_id::v1(low, high, low_port, high_port, protocol, 0),
            community_id::v1(high, low, high_port, low_port, protocol, 0),
        ];
        assert_ne!(ids[0], ids[1], "unreachable, without a counterpart");
        for id in ids {
            assert!(Query::parse(&[&id]).expect("an ID").matches_key(&key), "{id}");
        }
    }
}
