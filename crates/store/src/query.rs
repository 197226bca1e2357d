//! Queries: what to look for among stored packets.
//!
//! ```text
//! name ~ *.example.com and port 443 and net 192.0.2.0/24 and vlan 10 and after -15m
//! (host 192.0.2.1 or host 2001:db8::1) and not udp port 53
//! www.example.com 192.0.2.1          bare words are alternatives
//! ```
//!
//! ```text
//! name ~ *.example.com          flows with such a name: without case, with or without the last dot;
//! name = www.example.com        a star stands for any bytes, dots too
//! host 192.0.2.1                an address in any header of IP (also around or in a tunnel, or
//!                               quoted by ICMP), or in ARP; if it is none: a name
//! net 192.0.2.0/24              all addresses with this prefix; `::/0` has none of IPv4
//! port 443   port 8000-8099     flows of TCP, UDP, SCTP with this port at either end
//! tcp port 443   port >= 1024
//! tcp udp icmp icmp6 sctp       flows of this protocol
//! ip ip6 proto 47
//! vlan 10   vlan   vni 42       flows with this tag, with any tag, of this overlay network
//! community_id 1:LQU9qZlK+...   the flow with this Community ID (seed 0)
//! flow 192.0.2.1:443-*/tcp      a flow, whichever end began; `*` for an end
//! confidence >= 90              flows with a name that is so sure, percent
//! flag conflict                 flows with a name that has this flag
//! name_source sni               flows with a name from this source
//! after -15m                    a time; also `15m ago`, a day, seconds since 1970
//! before 2026-11-28T10:00:00Z
//! ```
//!
//! A bare word is an address, a network, a flow or a Community ID by its form, and else a name. In
//! a name `a\x00b` has a byte by its number; `\.` `\\` `\*` are a dot in a label, a backslash, a
//! star. A name that is a word of the language is written in quotes. Wireshark's `ip.addr`,
//! `tcp.port`, `udp.port` and `vlan.id` are fields as well, and `==`, `!=`, `&&`, `||`, `!` their
//! operators.
//!
//! Each condition is one about a packet, so that `not` means all other packets, also those that
//! have no flow. Confidence, flags and sources are those of the log: flows that have not ended have
//! none yet, and two such conditions may be met by the two ends. VLAN and VNI are known of flows
//! only: a packet of ARP has none here.
//!
//! Bounds: [`TEXT_BYTES_MAX`], `WORDS_MAX`, and those of `parse`.

mod expression;
mod parse;
mod pattern;
mod term;
mod tokens;

use std::fmt;
use std::ops::RangeInclusive;

use larder_wire::Addr;

pub(crate) use expression::Expression;
pub use parse::time_ns;
pub(crate) use pattern::Pattern;
pub(crate) use term::{Term, WITH_PORTS};

/// Conditions of a query, at most.
const WORDS_MAX: usize = 4096;

/// Bytes of a query, at most.
pub const TEXT_BYTES_MAX: usize = 256 << 10;

/// A search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub(crate) terms: Vec<Term>,
    pub(crate) expression: Expression,
    /// The times that it compares with, sorted: they cut time into parts, in each of which each
    /// comparison has one result.
    times_ns: Vec<i64>,
}

/// Why a text is no query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueryError {
    /// There are no words. Give a name, an address or a flow.
    Empty,
    /// More conditions, or more bytes, than one search takes.
    TooMany,
    /// The word is an impossible address, prefix or flow.
    Word(String, &'static str),
    /// The text is no query.
    Syntax {
        /// Of the first character that does not fit, from 1.
        column: usize,
        /// The word there; empty: the end.
        found: String,
        /// What could be there.
        expected: String,
    },
}

impl QueryError {
    /// The error of the word at an offset.
    fn at(text: &str, at: usize, expected: impl Into<String>) -> QueryError {
        let found: String =
            text[at..].split_whitespace().next().unwrap_or_default().chars().take(64).collect();
        let column = text[..at].chars().count() + 1;
        QueryError::Syntax { column, found, expected: expected.into() }
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryError::Empty => {
                f.write_str("nothing to look for; give a name, an address, a prefix or a flow")
            }
            QueryError::TooMany => write!(
                f,
                "more than {WORDS_MAX} conditions or {} KiB; ask several times",
                TEXT_BYTES_MAX >> 10
            ),
            QueryError::Word(word, why) => write!(f, "`{}`: {why}", word.escape_debug()),
            QueryError::Syntax { column, found, expected } => {
                write!(f, "column {column}: expected {expected}; found ")?;
                match found.is_empty() {
                    true => f.write_str("the end"),
                    false => write!(f, "`{}`", found.escape_debug()),
                }
            }
        }
    }
}

impl std::error::Error for QueryError {}

impl Query {
    /// Reads words, each in the form of a bare word; they are alternatives.
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Query, QueryError> {
        if words.is_empty() {
            return Err(QueryError::Empty);
        }
        if words.len() > WORDS_MAX {
            return Err(QueryError::TooMany);
        }
        let term =
            |word: &str| term::term(word).map_err(|why| QueryError::Word(word.to_owned(), why));
        let terms = words.iter().map(|word| term(word.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let any = (0..terms.len()).map(Expression::Term).collect();
        Ok(Query { terms, expression: Expression::any(any), times_ns: Vec::new() })
    }

    /// Reads a text; see the module. `now_ns`: the time from which `-15m` counts, ns since 1970.
    pub fn read(text: &str, now_ns: i64) -> Result<Query, QueryError> {
        let (expression, terms) = parse::read(text, now_ns)?;
        let mut times_ns: Vec<i64> = terms
            .iter()
            .filter_map(|term| match term {
                Term::After(ns) | Term::Before(ns) => Some(*ns),
                _ => None,
            })
            .collect();
        times_ns.sort_unstable();
        times_ns.dedup();
        Ok(Query { terms, expression, times_ns })
    }

    /// True if it compares with times.
    pub fn has_times(&self) -> bool {
        !self.times_ns.is_empty()
    }

    /// True if events of flows matter.
    pub(crate) fn needs_events(&self) -> bool {
        self.terms.iter().any(Term::is_of_events)
    }

    /// The names, each with the number of its term.
    pub(crate) fn names(&self) -> impl Iterator<Item = (usize, &Pattern)> {
        self.terms.iter().enumerate().filter_map(|(number, term)| match term {
            Term::Name(pattern) => Some((number, pattern)),
            _ => None,
        })
    }

    /// The conditions about the choice of names, each with its number.
    pub(crate) fn choices(&self) -> impl Iterator<Item = (usize, &Term)> {
        self.terms.iter().enumerate().filter(|(_, term)| term.is_of_choices())
    }

    /// The addresses of networks, each range with the number of its term; a network may have two.
    pub(crate) fn nets(&self) -> impl Iterator<Item = (usize, RangeInclusive<Addr>)> {
        let nets = self.terms.iter().enumerate().filter_map(|(number, term)| match term {
            Term::Net(first, last) => Some((number, *first, *last)),
            _ => None,
        });
        nets.flat_map(|(number, first, last)| {
            term::ranges(first, last).map(move |range| (number, range))
        })
    }

    /// True if the term is a network that has this address.
    pub(crate) fn has_address(&self, term: usize, addr: Addr) -> bool {
        matches!(self.terms[term], Term::Net(first, last) if term::is_in(first, last, addr))
    }

    /// The part of time that has this time.
    pub(crate) fn part_of(&self, ts_ns: i64) -> u8 {
        // There are a few dozen times at most.
        self.times_ns.partition_point(|time| *time <= ts_ns) as u8
    }

    /// The parts of time between two times, both included.
    pub(crate) fn parts(&self, (least_ns, greatest_ns): (i64, i64)) -> RangeInclusive<u8> {
        self.part_of(least_ns)..=self.part_of(greatest_ns)
    }

    /// Whether a term about time holds in a part of time; `None`: the term is another.
    pub(crate) fn holds_in(&self, term: usize, part: u8) -> Option<bool> {
        let has_begun = |ns: i64| self.times_ns.partition_point(|time| *time < ns) < part.into();
        match self.terms[term] {
            Term::After(ns) => Some(has_begun(ns)),
            Term::Before(ns) => Some(!has_begun(ns)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_wire::community_id;

    use super::term::{End, address};
    use super::*;
    use crate::FlowKey;
    use crate::index::reversed;

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
        let prefix = |word: &str| pattern::pattern(word).expect("a pattern").prefix();
        let name = reversed(b"www.example.com");
        assert_eq!(prefix("www.example.com"), (name.clone(), true));
        let (below, is_exact) = prefix("*.example.com");
        assert_eq!((below.as_slice(), is_exact), (&b"com.example."[..], false));
        assert!(name.starts_with(&below) && !reversed(b"example.com").starts_with(&below));
        assert_eq!(prefix("w*w.example.com"), (below, false));
        assert_eq!(prefix("www.example.c*m"), (Vec::new(), false));
        let words = |words: &[&str]| Query::parse(words).expect("a query");
        assert!(words(&["192.0.2.1", "*.example.com"]).needs_events());
        assert!(!words(&["192.0.2.1", "192.0.2.1:53", "10.0.0.0/8"]).needs_events());
    }

    /// The limit of words holds, and errors name the limit or the word.
    #[test]
    fn errors_say_why() {
        let words = vec!["a"; WORDS_MAX + 1];
        assert!(Query::parse(&words[1..]).is_ok());
        let said = |words: &[&str]| Query::parse(words).expect_err("no query").to_string();
        assert_eq!(said(&words), "more than 4096 conditions or 256 KiB; ask several times");
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

    /// A network of IPv6 has no addresses of IPv4, which are stored among those of IPv6; its ranges are the
    /// addresses that it has.
    #[test]
    fn families_are_apart() {
        let texts = ["::", "::1", "::fffe:ffff:ffff", "0.0.0.0", "10.0.0.1", "255.255.255.255"];
        let more = ["::1:0:0:0:0", "2001:db8::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"];
        for (net, expected) in [
            ("::/0", &["::", "::1", "::fffe:ffff:ffff", more[0], more[1], more[2]][..]),
            ("::/1", &["::", "::1", "::fffe:ffff:ffff", more[0], more[1]]),
            ("::/64", &["::", "::1", "::fffe:ffff:ffff"]),
            ("::fffe:0:0/95", &["::fffe:ffff:ffff"]),
            ("0.0.0.0/0", &["0.0.0.0", "10.0.0.1", "255.255.255.255"]),
            ("10.0.0.0/8", &["10.0.0.1"]),
            ("2001:db8::/32", &["2001:db8::1"]),
        ] {
            let query = Query::parse(&[net]).expect(net);
            let has = |text: &&str| query.has_address(0, address(text).expect("an address"));
            let in_range = |text: &&str| {
                let addr = address(text).expect("an address");
                query.nets().any(|(_, range)| range.contains(&addr))
            };
            let all = || texts.into_iter().chain(more);
            let of_key = |text: &&str| {
                let addr = address(text).expect("an address");
                let scope = Default::default();
                let key = FlowKey {
                    low: addr,
                    high: addr,
                    low_port: 1,
                    high_port: 2,
                    protocol: 6,
                    scope,
                };
                query.terms[0].matches_key(&key)
            };
            assert_eq!(all().filter(has).collect::<Vec<_>>(), expected, "{net}");
            assert_eq!(all().filter(in_range).collect::<Vec<_>>(), expected, "{net}: ranges");
            assert_eq!(all().filter(of_key).collect::<Vec<_>>(), expected, "{net}: keys");
        }
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
                Ok(query) => assert_eq!(query.terms[0].matches_key(&key), expected, "{word}"),
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
            assert!(one(&id).matches_key(&key), "{id}");
        }
    }
}
