//! Reads the text of a query.
//!
//! ```text
//! query      either { "or" either } | WORD { WORD }      bare words alone are alternatives
//! either     one { "and" one }
//! one        "not" one | "(" query ")" | FIELD [OPERATOR] VALUE | tcp | udp | ip | vlan .. | WORD
//! ```
//!
//! `&&`, `||` and `!` are `and`, `or` and `not`. A text in double quotes is one word, and a name.
//! Fields are those of Stenographer and pcap-filter, and the names that Wireshark has for them.
//!
//! Bounds: [`TEXT_BYTES_MAX`], [`WORDS_MAX`], [`DEPTH_MAX`]; linear in the text.

use larder_wire::naming::{NameFlags, NameSource};
use larder_wire::times;

use super::expression::Expression;
use super::term::{self, Term};
use super::tokens::{Kind, Token, tokens};
use super::{QueryError, TEXT_BYTES_MAX, WORDS_MAX};

/// Parentheses and negations in one another, at most.
const DEPTH_MAX: usize = 64;

/// Times that a query compares with, at most.
const TIMES_MAX: usize = 32;

/// Bytes of a name, at most: a name of DNS has 255, of which each may be written with four.
const NAME_BYTES_MAX: usize = 1024;

/// What a field is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Name,
    Host,
    Net,
    Port(Option<&'static str>),
    Protocol,
    Vlan,
    Vni,
    Community,
    Flow,
    After,
    Before,
    Confidence,
    Flag,
    Source,
}

/// Fields by their words.
const FIELDS: [(&str, Field); 30] = [
    ("name", Field::Name),
    ("host", Field::Host),
    ("addr", Field::Host),
    ("ip.addr", Field::Host),
    ("ipv6.addr", Field::Host),
    ("ip.host", Field::Host),
    ("net", Field::Net),
    ("port", Field::Port(None)),
    ("portrange", Field::Port(None)),
    ("tcp.port", Field::Port(Some("tcp"))),
    ("udp.port", Field::Port(Some("udp"))),
    ("sctp.port", Field::Port(Some("sctp"))),
    ("proto", Field::Protocol),
    ("protocol", Field::Protocol),
    ("ip.proto", Field::Protocol),
    ("vlan", Field::Vlan),
    ("vlan.id", Field::Vlan),
    ("vni", Field::Vni),
    ("vxlan.vni", Field::Vni),
    ("community_id", Field::Community),
    ("communityid", Field::Community),
    ("flow", Field::Flow),
    ("after", Field::After),
    ("before", Field::Before),
    ("confidence", Field::Confidence),
    ("name_confidence", Field::Confidence),
    ("flag", Field::Flag),
    ("name_flag", Field::Flag),
    ("name_flags", Field::Flag),
    ("name_source", Field::Source),
];

/// Words that are conditions by themselves.
const ALONE: [(&str, Term); 8] = [
    ("tcp", Term::Protocol(6)),
    ("udp", Term::Protocol(17)),
    ("icmp", Term::Protocol(1)),
    ("icmp6", Term::Protocol(58)),
    ("icmpv6", Term::Protocol(58)),
    ("sctp", Term::Protocol(132)),
    ("ip", Term::IsV4(true)),
    ("ip6", Term::IsV4(false)),
];

/// Words of pcap-filter about the direction or the link layer, with the reason why they are no part
/// of a query.
const REFUSED: [&str; 9] =
    ["src", "dst", "ether", "less", "greater", "gateway", "broadcast", "multicast", "inbound"];

/// Reads a query; `now_ns` is what times like `-15m` count from.
pub(super) fn read(text: &str, now_ns: i64) -> Result<(Expression, Vec<Term>), QueryError> {
    if text.trim().is_empty() {
        return Err(QueryError::Empty);
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(QueryError::TooMany);
    }
    let tokens = tokens(text)?;
    let mut parser = Parser { text, tokens, at: 0, depth: 0, terms: Vec::new(), times: 0, now_ns };
    let expression = if parser.is_list() { parser.list()? } else { parser.any()? };
    match parser.peek().kind {
        Kind::End => Ok((expression, parser.terms)),
        Kind::Close => Err(parser.wrong("the end, since no parenthesis is open")),
        _ => Err(parser.wrong("and, or, or the end")),
    }
}

pub(super) fn field_of(word: &str) -> Option<Field> {
    FIELDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, field)| *field)
}

fn is_reserved(word: &str) -> bool {
    let is_it = |other: &&str| other.eq_ignore_ascii_case(word);
    field_of(word).is_some()
        || ALONE.iter().any(|(name, _)| is_it(name))
        || REFUSED.iter().any(is_it)
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    depth: usize,
    terms: Vec<Term>,
    times: usize,
    now_ns: i64,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens[self.at]
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        // The end stays the next one.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    /// Removes the next token if it is of this kind.
    ///
    /// A comparison that is added to a number and then returned is lost by rustc 1.95 where its
    /// caller branches on it (rust-lang/rust#158206), so it is a branch here.
    fn takes(&mut self, kind: Kind) -> bool {
        if self.peek().kind != kind {
            return false;
        }
        self.next();
        true
    }

    /// The error of the next token.
    fn wrong(&self, expected: impl Into<String>) -> QueryError {
        QueryError::at(self.text, self.peek().at, expected)
    }

    fn term(&mut self, term: Term) -> Result<Expression, QueryError> {
        if self.terms.len() == WORDS_MAX {
            return Err(QueryError::TooMany);
        }
        self.terms.push(term);
        Ok(Expression::Term(self.terms.len() - 1))
    }

    /// True if only bare words come, up to the end or a closing parenthesis.
    fn is_list(&self) -> bool {
        let rest = &self.tokens[self.at..];
        let words = rest.iter().take_while(|token| match token.kind {
            Kind::Word => !is_reserved(token.text),
            Kind::Text => true,
            _ => false,
        });
        let count = words.count();
        count > 0 && matches!(rest[count].kind, Kind::End | Kind::Close)
    }

    /// Bare words: alternatives.
    fn list(&mut self) -> Result<Expression, QueryError> {
        let mut any = Vec::new();
        while !matches!(self.peek().kind, Kind::End | Kind::Close) {
            any.push(self.bare()?);
        }
        Ok(Expression::any(any))
    }

    fn any(&mut self) -> Result<Expression, QueryError> {
        let mut any = vec![self.all()?];
        while self.takes(Kind::Or) {
            any.push(self.all()?);
        }
        Ok(Expression::any(any))
    }

    fn all(&mut self) -> Result<Expression, QueryError> {
        let mut all = vec![self.one()?];
        while self.takes(Kind::And) {
            all.push(self.one()?);
        }
        Ok(Expression::all(all))
    }

    fn one(&mut self) -> Result<Expression, QueryError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong(format!("at most {DEPTH_MAX} parentheses and negations")));
        }
        let one = match self.peek() {
            Token { kind: Kind::Not, .. } => {
                self.next();
                Expression::Not(Box::new(self.one()?))
            }
            Token { kind: Kind::Open, .. } => {
                self.next();
                let inner = if self.is_list() { self.list()? } else { self.any()? };
                if !self.takes(Kind::Close) {
                    return Err(self.wrong("and, or, or a closing parenthesis"));
                }
                inner
            }
            Token { kind: Kind::Word, text, .. } => match field_of(text) {
                Some(field) => self.field(field)?,
                None => self.bare()?,
            },
            Token { kind: Kind::Text, .. } => self.bare()?,
            _ => return Err(self.wrong("a condition, such as name, host, net or port")),
        };
        self.depth -= 1;
        Ok(one)
    }

    /// A word without a field.
    fn bare(&mut self) -> Result<Expression, QueryError> {
        let token = self.peek();
        if token.kind == Kind::Text {
            return self.name();
        }
        if REFUSED.iter().any(|word| word.eq_ignore_ascii_case(token.text)) {
            return Err(self.wrong(
                "host, net or port: larder finds flows, whichever end began; \
                 for more use a filter of tcpdump on the result",
            ));
        }
        if let Some((_, term)) =
            ALONE.iter().find(|(name, _)| name.eq_ignore_ascii_case(token.text))
        {
            self.next();
            let alone = self.term(term.clone())?;
            // As in `tcp port 443` of pcap-filter.
            let of_port = self.peek();
            return match field_of(of_port.text) {
                Some(field @ Field::Port(None)) if of_port.kind == Kind::Word => {
                    let port = self.field(field)?;
                    Ok(Expression::all(vec![alone, port]))
                }
                Some(Field::Protocol) if matches!(term, Term::IsV4(_)) => {
                    let protocol = self.field(Field::Protocol)?;
                    Ok(Expression::all(vec![alone, protocol]))
                }
                _ => Ok(alone),
            };
        }
        if token.text.len() > NAME_BYTES_MAX {
            return Err(self.wrong(format!("a word of at most {NAME_BYTES_MAX} bytes")));
        }
        let term =
            term::term(token.text).map_err(|why| QueryError::Word(token.text.to_owned(), why))?;
        self.next();
        self.term(term)
    }

    /// A field, an operator and a value.
    fn field(&mut self, field: Field) -> Result<Expression, QueryError> {
        let word = self.next().text;
        if field == Field::Vlan && !matches!(self.peek().kind, Kind::Operator | Kind::Word) {
            return self.term(Term::Vlan(None));
        }
        let operator = match self.peek() {
            Token { kind: Kind::Operator, text, .. } => {
                let is_known = match field {
                    Field::Port(_) | Field::Confidence => text != "~",
                    Field::Name => matches!(text, "~" | "=" | "==" | "!="),
                    _ => matches!(text, "=" | "==" | "!="),
                };
                if !is_known {
                    return Err(self.wrong(match field {
                        Field::Name => "~, = or !=".to_owned(),
                        Field::Port(_) | Field::Confidence => "=, !=, <, <=, > or >=".to_owned(),
                        _ => format!("= or != after {word}"),
                    }));
                }
                self.next();
                text
            }
            _ => "=",
        };
        let value = self.value(field, operator)?;
        Ok(if operator == "!=" { Expression::Not(Box::new(value)) } else { value })
    }

    fn value(&mut self, field: Field, operator: &str) -> Result<Expression, QueryError> {
        let Token { kind: Kind::Word | Kind::Text, text, .. } = self.peek() else {
            return Err(self.wrong(expected(field)));
        };
        let wrong = || self.wrong(expected(field));
        let term = match field {
            Field::Name => return self.name(),
            Field::Host => match term::address(text) {
                Some(addr) => Term::Net(addr, addr),
                None if text.contains(['/', ':']) => return Err(wrong()),
                None => return self.name(),
            },
            Field::Net => return self.net(),
            Field::Port(of) => {
                let (first, last) = range(text, operator, u16::MAX).ok_or_else(wrong)?;
                self.next();
                let port = self.term(Term::Port(first, last))?;
                let Some(protocol) = of.and_then(term::protocol_number) else { return Ok(port) };
                let protocol = self.term(Term::Protocol(protocol))?;
                return Ok(Expression::all(vec![protocol, port]));
            }
            Field::Protocol => Term::Protocol(term::protocol_number(text).ok_or_else(wrong)?),
            Field::Vlan => {
                let id = text.parse().ok().filter(|id| (1..=4094).contains(id));
                Term::Vlan(Some(id.ok_or_else(wrong)?))
            }
            Field::Vni => {
                let vni = text.parse().ok().filter(|vni| *vni < 1 << 24);
                Term::Vni(vni.ok_or_else(wrong)?)
            }
            Field::Community if term::is_community_id(text) => Term::Community(text.to_owned()),
            Field::Community => return Err(wrong()),
            Field::Flow => match term::flow(text) {
                Some((ends, Ok(protocol))) => Term::Flow(ends, protocol),
                _ => return Err(wrong()),
            },
            Field::After | Field::Before => return self.time(field),
            Field::Confidence => {
                let text = text.strip_suffix('%').unwrap_or(text);
                let (least, greatest) = range(text, operator, 100).ok_or_else(wrong)?;
                Term::Confidence(least as u8, greatest as u8)
            }
            Field::Flag => {
                let flag = NameFlags::ALL.iter().find(|(_, word)| word.eq_ignore_ascii_case(text));
                Term::Flag(flag.ok_or_else(wrong)?.0)
            }
            Field::Source => {
                let is_it = |source: &&NameSource| source.as_str().eq_ignore_ascii_case(text);
                Term::Source(*NameSource::ALL.iter().find(is_it).ok_or_else(wrong)?)
            }
        };
        self.next();
        self.term(term)
    }

    fn name(&mut self) -> Result<Expression, QueryError> {
        let Token { kind: Kind::Word | Kind::Text, text, .. } = self.peek() else {
            return Err(self.wrong(expected(Field::Name)));
        };
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(self.wrong(format!("a name of 1 to {NAME_BYTES_MAX} bytes")));
        }
        let name = term::name(text).map_err(|why| QueryError::Word(text.to_owned(), why))?;
        self.next();
        self.term(name)
    }

    /// A network: `192.0.2.0/24`, `192.0.2.0 mask 255.255.255.0`, an address.
    fn net(&mut self) -> Result<Expression, QueryError> {
        let text = self.peek().text;
        let net = match text.split_once('/') {
            Some((addr, bits)) => term::address(addr).zip(bits.parse().ok()),
            None => term::address(text).map(|addr| (addr, if addr.is_v4() { 32 } else { 128 })),
        };
        let Some((addr, mut bits)) = net else { return Err(self.wrong(expected(Field::Net))) };
        let at = self.peek().at;
        self.next();
        if self.peek().text.eq_ignore_ascii_case("mask") && !text.contains('/') {
            self.next();
            let mask: Option<std::net::Ipv4Addr> = self.peek().text.parse().ok();
            let mask = mask.map(u32::from).filter(|mask| mask.leading_ones() == mask.count_ones());
            let Some(mask) = mask.filter(|_| addr.is_v4()) else {
                return Err(self.wrong("a mask, such as 255.255.255.0"));
            };
            bits = mask.leading_ones();
            self.next();
        }
        let Some((first, last)) = term::net(addr, bits) else {
            return Err(QueryError::at(self.text, at, expected(Field::Net)));
        };
        self.term(Term::Net(first, last))
    }

    /// A time: `2026-11-28T10:00:00Z`, seconds since 1970, `-15m`, `15m ago`.
    fn time(&mut self, field: Field) -> Result<Expression, QueryError> {
        let Token { text, .. } = self.peek();
        let is_ago = self.tokens.get(self.at + 1).is_some_and(|next| next.text == "ago");
        let ns = match is_ago {
            true => span_ns(text).map(|ns| self.now_ns.saturating_sub(ns)),
            false => time_ns(text, self.now_ns),
        };
        let Some(ns) = ns else { return Err(self.wrong(expected(field))) };
        self.times += 1;
        if self.times > TIMES_MAX {
            return Err(self.wrong(format!("at most {TIMES_MAX} times")));
        }
        self.next();
        if is_ago {
            self.next();
        }
        self.term(if field == Field::After { Term::After(ns) } else { Term::Before(ns) })
    }
}

fn expected(field: Field) -> &'static str {
    match field {
        Field::Name => "a name, such as www.example.com or *.example.com",
        Field::Host => "an address or a name",
        Field::Net => "a network, such as 192.0.2.0/24 or 2001:db8::/32",
        Field::Port(_) => "a port from 0 to 65535, or a range such as 8000-8099",
        Field::Protocol => "tcp, udp, icmp, icmp6, sctp or a number from 0 to 255",
        Field::Vlan => "a VLAN ID from 1 to 4094",
        Field::Vni => "a VNI from 0 to 16777215",
        Field::Community => "a Community ID, 1: and 28 characters of base64",
        Field::Flow => "a flow, such as 192.0.2.1:40000-198.51.100.2:443/tcp",
        Field::After | Field::Before => {
            "a time: RFC 3339, seconds since 1970, or -15m for 15 minutes ago"
        }
        Field::Confidence => "percent from 0 to 100, or a range such as 50-89",
        Field::Flag => {
            "a flag: stale, late, ambiguous, conflict, unsolicited, one_sided, unconfirmed, claimed"
        }
        Field::Source => {
            "a source: sni, quic_sni, http_host, dns_pair, dns_chain, dns_address, mdns, llmnr, \
             nbns, dhcp, ptr, learned"
        }
    }
}

/// The numbers up to `greatest` that an operator and a value mean.
fn range(text: &str, operator: &str, greatest: u16) -> Option<(u16, u16)> {
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?),
        None => (text.parse().ok()?, text.parse().ok()?),
    };
    let (first, last) = match operator {
        ">=" => (first, greatest),
        ">" => (last.checked_add(1)?, greatest),
        "<=" => (0, last),
        "<" => (0, first.checked_sub(1)?),
        _ => (first, last),
    };
    (first <= last && last <= greatest).then_some((first, last))
}

/// A point in time, ns since 1970: RFC 3339, seconds since 1970, a day alone for its beginning
/// (UTC), or `-15m` for that long before `now_ns`.
pub fn time_ns(text: &str, now_ns: i64) -> Option<i64> {
    if let Some(before) = text.strip_prefix('-') {
        return span_ns(before).map(|ns| now_ns.saturating_sub(ns));
    }
    let is_day = text.len() == 10 && text.as_bytes()[4] == b'-';
    let day = is_day.then(|| format!("{text}T00:00:00Z"));
    let text = day.as_deref().unwrap_or(text).as_bytes();
    times::iso_ns(text).or_else(|| times::seconds_ns(text))
}

/// A span of time: `90s`, `15m`, `1h30m`, `2d`, `1w`.
fn span_ns(text: &str) -> Option<i64> {
    let mut sum_s = 0i64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: i64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].chars().next()?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return None,
        };
        sum_s = sum_s.checked_add(number.checked_mul(seconds)?)?;
        rest = &rest[digits + 1..];
    }
    (!text.is_empty()).then_some(sum_s)?.checked_mul(1_000_000_000)
}

#[cfg(test)]
mod tests;
