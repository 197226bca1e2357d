//! Records in the syntax of zone files (RFC 1035, section 5; RFC 3597 for types without a syntax of
//! their own).
//!
//! A small parser of its own: libraries that have one depend on a date library and derive macros,
//! and need the whole file in memory. It reads the types that people write by hand; every other one
//! can be written as `TYPEnnn \# length hex`.
//!
//! ```text
//! line  -> Entry::feed      tokens; an entry continues while a parenthesis is open
//! entry -> Context::read    a record, or nothing: it was empty, or $ORIGIN or $TTL
//! ```
//!
//! Bounds: [`ENTRY_BYTES_MAX`] bytes in an entry. Cost: linear.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::str::FromStr;

use larder_wire::dns::rtype;

use crate::name::{NameError, WireName, unescape};
use crate::presentation::type_number;

/// Bytes of an entry, at most: hexadecimal data of the largest record that is accepted, with room.
const ENTRY_BYTES_MAX: usize = 64 << 10;

/// The largest TTL (RFC 2181, section 8).
const TTL_S_MAX: u32 = i32::MAX as u32;

/// The problem of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// A text is not a name.
    Name(NameError),
    /// Another problem, in words.
    Text(&'static str),
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Problem {
        Problem::Name(error)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Name(error) => error.fmt(f),
            Problem::Text(text) => f.write_str(text),
        }
    }
}

fn problem<T>(text: &'static str) -> Result<T, Problem> {
    Err(Problem::Text(text))
}

/// The tokens of an entry.
#[derive(Debug, Default)]
pub struct Entry {
    bytes: Vec<u8>,
    tokens: Vec<Range<usize>>,
    /// The owner is that of the previous entry.
    starts_blank: bool,
    open: usize,
}

impl Entry {
    /// Removes all tokens.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.tokens.clear();
        self.starts_blank = false;
        self.open = 0;
    }

    /// True if the entry continues in the next line.
    pub fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Adds the tokens of a line.
    pub fn feed(&mut self, line: &[u8]) -> Result<(), Problem> {
        if self.bytes.len() + line.len() > ENTRY_BYTES_MAX {
            return problem("an entry is longer than 64 KiB");
        }
        if self.tokens.is_empty() && self.open == 0 {
            self.starts_blank = line.first().is_some_and(u8::is_ascii_whitespace);
        }
        let mut rest = line;
        while let [byte, after @ ..] = rest {
            match byte {
                b';' => return Ok(()),
                b'(' => self.open += 1,
                b')' => match self.open.checked_sub(1) {
                    Some(open) => self.open = open,
                    None => return problem("a closing parenthesis without an opening one"),
                },
                b'"' => {
                    rest = self.take(after, |byte| byte == b'"');
                    match rest {
                        [b'"', after @ ..] => rest = after,
                        _ => return problem("a quotation mark is missing"),
                    }
                    continue;
                }
                byte if byte.is_ascii_whitespace() => {}
                _ => {
                    rest = self
                        .take(rest, |byte| byte.is_ascii_whitespace() || b";()\"".contains(&byte));
                    continue;
                }
            }
            rest = after;
        }
        Ok(())
    }

    /// Takes a token, with its escapes, until `ends` is true or the line ends.
    fn take<'a>(&mut self, text: &'a [u8], ends: impl Fn(u8) -> bool) -> &'a [u8] {
        let mut len = 0;
        while let Some(&byte) = text.get(len) {
            match byte {
                b'\\' => len = (len + 2).min(text.len()),
                byte if ends(byte) => break,
                _ => len += 1,
            }
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&text[..len]);
        self.tokens.push(start..start + len);
        &text[len..]
    }

    /// All tokens in turn.
    pub fn tokens(&self) -> Tokens<'_> {
        Tokens { bytes: &self.bytes, tokens: self.tokens.iter() }
    }
}

/// Tokens that are not read yet.
#[derive(Debug, Clone)]
pub struct Tokens<'a> {
    bytes: &'a [u8],
    tokens: std::slice::Iter<'a, Range<usize>>,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        Some(&self.bytes[self.tokens.next()?.clone()])
    }
}

impl<'a> Tokens<'a> {
    fn need(&mut self) -> Result<&'a [u8], Problem> {
        self.next().ok_or(Problem::Text("the entry ends too soon"))
    }

    fn number<T: FromStr>(&mut self) -> Result<T, Problem> {
        parsed(self.need()?).ok_or(Problem::Text("a number is missing or too large"))
    }

    fn ttl(&mut self) -> Result<u32, Problem> {
        ttl(self.need()?).ok_or(Problem::Text("a time is missing or too large"))
    }
}

fn parsed<T: FromStr>(token: &[u8]) -> Option<T> {
    std::str::from_utf8(token).ok()?.parse().ok()
}

/// Seconds, or a sum of numbers with units as `1h30m`.
fn ttl(token: &[u8]) -> Option<u32> {
    let (mut sum, mut number) = (0_u32, None::<u32>);
    for &byte in token {
        let unit_s = match byte.to_ascii_lowercase() {
            digit @ b'0'..=b'9' => {
                let digit = u32::from(digit - b'0');
                number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(digit)?);
                continue;
            }
            b's' => 1,
            b'm' => 60,
            b'h' => 3_600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return None,
        };
        sum = sum.checked_add(number.take()?.checked_mul(unit_s)?)?;
    }
    // The last number may have no unit; an empty text is not a time.
    let sum = sum.checked_add(number.or_else(|| token.last().map(|_| 0))?)?;
    (sum <= TTL_S_MAX).then_some(sum)
}

const TXT: u16 = 16;
const CAA: u16 = 257;

/// A record that was read.
pub struct Read<'a> {
    /// Its owner.
    pub owner: WireName,
    /// Its TTL, seconds.
    pub ttl_s: u32,
    /// Its type.
    pub rtype: u16,
    /// Its data in wire form.
    pub data: &'a [u8],
}

/// Values that entries take from earlier ones. After an unreadable entry, entries that depend on it
/// cannot be read either: a value from further above would be a guess.
pub struct Context {
    origin: Option<WireName>,
    ttl_s: u32,
    owner: Option<WireName>,
    data: Vec<u8>,
}

impl Context {
    /// At the beginning of a file.
    pub fn new(origin: WireName, ttl_s: u32) -> Context {
        Context { origin: Some(origin), ttl_s, owner: None, data: Vec::new() }
    }

    /// The previous entry was damaged: its owner is unknown.
    pub fn forget_owner(&mut self) {
        self.owner = None;
    }

    /// Reads a whole entry: a record, or `None` if it was empty or a directive.
    pub fn read(&mut self, entry: &Entry) -> Result<Option<Read<'_>>, Problem> {
        if entry.is_open() {
            return problem("a closing parenthesis is missing");
        }
        let mut tokens = entry.tokens();
        let Some(first) = tokens.clone().next() else { return Ok(None) };
        if !entry.starts_blank {
            tokens.next();
            if first.starts_with(b"$") {
                self.direct(first, tokens)?;
                return Ok(None);
            }
            self.owner = None;
            self.owner = Some(WireName::parse(first, &self.origin()?)?);
        }
        let owner = self.owner.ok_or(Problem::Text("no entry before says whose this is"))?;
        let origin = self.origin()?;
        let mut ttl_s = None;
        let rtype = loop {
            let token = tokens.need()?;
            if token.eq_ignore_ascii_case(b"IN") {
                continue;
            }
            if let Some(number) = str::from_utf8(token).ok().and_then(type_number) {
                break number;
            }
            match ttl(token) {
                Some(found) if ttl_s.is_none() => ttl_s = Some(found),
                _ => {
                    return problem(
                        "this is neither a TTL nor a type that we know; write NAME TTL TYPE DATA, \
                         and other types as TYPE123 \\# length hex",
                    );
                }
            }
        };
        if matches!(rtype, 0 | rtype::OPT | 128..=255) {
            return problem("records of this type exist in messages only");
        }
        if rtype == rtype::DNAME {
            return problem("aliases of all names below one (DNAME) are not done here");
        }
        let ttl_s = ttl_s.unwrap_or(self.ttl_s);
        self.data.clear();
        data(rtype, &mut tokens, &origin, &mut self.data)?;
        if tokens.next().is_some() {
            return problem("something stands after the record");
        }
        Ok(Some(Read { owner, ttl_s, rtype, data: &self.data }))
    }

    fn origin(&self) -> Result<WireName, Problem> {
        self.origin.ok_or(Problem::Text("the last $ORIGIN could not be read"))
    }

    fn direct(&mut self, directive: &[u8], mut tokens: Tokens<'_>) -> Result<(), Problem> {
        if directive.eq_ignore_ascii_case(b"$ORIGIN") {
            let token = tokens.need()?;
            let before = if token.ends_with(b".") { Ok(WireName::ROOT) } else { self.origin() };
            self.origin = None;
            self.origin = Some(WireName::parse(token, &before?)?);
        } else if directive.eq_ignore_ascii_case(b"$TTL") {
            self.ttl_s = tokens.ttl()?;
        } else {
            return problem("only $ORIGIN and $TTL are read");
        }
        match tokens.next() {
            None => Ok(()),
            Some(_) => problem("something stands after the directive"),
        }
    }
}

/// Reads the data of a record.
fn data(
    rtype: u16,
    tokens: &mut Tokens<'_>,
    origin: &WireName,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    if tokens.clone().next() == Some(b"\\#") {
        tokens.next();
        return generic(rtype, tokens, out);
    }
    let name = |tokens: &mut Tokens<'_>, out: &mut Vec<u8>| {
        out.extend_from_slice(WireName::parse(tokens.need()?, origin)?.as_bytes());
        Ok::<(), Problem>(())
    };
    match rtype {
        rtype::A => {
            let address: Option<Ipv4Addr> = parsed(tokens.need()?);
            let address = address.ok_or(Problem::Text("this is no IPv4 address"))?;
            out.extend_from_slice(&address.octets());
        }
        rtype::AAAA => {
            let address: Option<Ipv6Addr> = parsed(tokens.need()?);
            let address = address.ok_or(Problem::Text("this is no IPv6 address"))?;
            out.extend_from_slice(&address.octets());
        }
        rtype::NS | rtype::CNAME | rtype::PTR => name(tokens, out)?,
        rtype::MX => {
            out.extend_from_slice(&tokens.number::<u16>()?.to_be_bytes());
            name(tokens, out)?;
        }
        rtype::SRV => {
            for _ in 0..3 {
                out.extend_from_slice(&tokens.number::<u16>()?.to_be_bytes());
            }
            name(tokens, out)?;
        }
        rtype::SOA => {
            name(tokens, out)?;
            name(tokens, out)?;
            out.extend_from_slice(&tokens.number::<u32>()?.to_be_bytes());
            for _ in 0..4 {
                out.extend_from_slice(&tokens.ttl()?.to_be_bytes());
            }
        }
        TXT => {
            string(tokens.need()?, out)?;
            for token in tokens {
                string(token, out)?;
            }
        }
        CAA => {
            out.push(tokens.number::<u8>()?);
            string(tokens.need()?, out)?;
            unescaped(tokens.need()?, out)?;
        }
        _ => return problem("write data of this type as \\# length hex"),
    }
    Ok(())
}

/// Data as a length and hexadecimal bytes (RFC 3597, section 5). Of known types only well-formed
/// data is accepted, since other code reads it.
fn generic(rtype: u16, tokens: &mut Tokens<'_>, out: &mut Vec<u8>) -> Result<(), Problem> {
    if matches!(rtype, rtype::A | rtype::AAAA | rtype::NS | rtype::CNAME | rtype::PTR)
        || matches!(rtype, rtype::MX | rtype::SRV | rtype::SOA | TXT | CAA)
    {
        return problem("write data of this type in its own form");
    }
    let len = usize::from(tokens.number::<u16>()?);
    let mut high = None;
    for &byte in tokens.flatten() {
        let digit = char::from(byte).to_digit(16).ok_or(Problem::Text("this is not hex"))? as u8;
        high = match high {
            None => Some(digit << 4),
            Some(high) => {
                out.push(high | digit);
                None
            }
        };
    }
    if high.is_some() || out.len() != len {
        return problem("the data is not of the length that stands before it");
    }
    Ok(())
}

/// A string of up to 255 bytes after its length.
fn string(token: &[u8], out: &mut Vec<u8>) -> Result<(), Problem> {
    let at = out.len();
    out.push(0);
    unescaped(token, out)?;
    let len = out.len() - at - 1;
    out[at] = u8::try_from(len)
        .map_err(|_| Problem::Text("a string is longer than 255 bytes; write it as several"))?;
    Ok(())
}

fn unescaped(token: &[u8], out: &mut Vec<u8>) -> Result<(), Problem> {
    let mut rest = token;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte == b'\\' {
            let (byte, after) = unescape(rest)?;
            out.push(byte);
            rest = after;
        } else {
            out.push(*byte);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Owner, TTL, type and data.
    type Record = (Vec<u8>, u32, u16, Vec<u8>);

    /// All records of a text, or the first problem.
    fn read(text: &str) -> Result<Vec<Record>, Problem> {
        let mut context = Context::new(WireName::parse(b"x", &WireName::ROOT)?, 99);
        let (mut entry, mut all) = (Entry::default(), Vec::new());
        for line in text.lines() {
            entry.feed(line.as_bytes())?;
            if entry.is_open() {
                continue;
            }
            if let Some(record) = context.read(&entry)? {
                let owner = record.owner.as_bytes().to_vec();
                all.push((owner, record.ttl_s, record.rtype, record.data.to_vec()));
            }
            entry.clear();
        }
        if entry.is_open() { problem("open") } else { Ok(all) }
    }

    fn data_of(text: &str) -> Result<Vec<u8>, Problem> {
        read(text).map(|all| all[0].3.clone())
    }

    /// Owners, TTLs and classes come from the line, the previous line, or a directive, as in RFC
    /// 1035.
    #[test]
    fn entries() {
        let all = read(
            "; a comment\n$TTL 1h30m\na A 192.0.2.1 ; first\n  60 IN A 192.0.2.2\n\n\
             $ORIGIN y.\n@ IN 1W MX 5 mail\nb. SOA ns host ( 1 ; serial\n 2 3m\n 4 5 )\n",
        )
        .unwrap();
        let heads = all.iter().map(|(owner, ttl, rtype, _)| (&owner[..], *ttl, *rtype));
        let heads: Vec<_> = heads.collect();
        assert_eq!(
            heads,
            [
                (b"\x01a\x01x\0".as_slice(), 5_400, rtype::A),
                (b"\x01a\x01x\0", 60, rtype::A),
                (b"\x01y\0", 604_800, rtype::MX),
                (b"\x01b\0", 5_400, rtype::SOA),
            ]
        );
        assert_eq!(all[2].3, b"\0\x05\x04mail\x01y\0");
        assert_eq!(all[3].3[..14], *b"\x02ns\x01y\0\x04host\x01y\0");
        assert_eq!(all[3].3[14..], [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 180, 0, 0, 0, 4, 0, 0, 0, 5]);
    }

    /// Data of each type with a syntax of its own, and of one without.
    #[test]
    fn data_of_each_type() {
        assert_eq!(data_of("a AAAA ::1").unwrap()[15], 1);
        assert_eq!(data_of("a cname B.").unwrap(), b"\x01b\0");
        assert_eq!(data_of("a SRV 1 2 53 b.").unwrap(), b"\0\x01\0\x02\0\x35\x01b\0");
        assert_eq!(data_of(r#"a TXT "a;b (c)" d\"\065 """#).unwrap(), b"\x07a;b (c)\x03d\"A\0");
        assert_eq!(data_of(r#"a CAA 0 issue "ca.example""#).unwrap(), b"\0\x05issueca.example");
        assert_eq!(data_of(r"a TYPE731 \# 3 ab cdEF").unwrap(), [0xab, 0xcd, 0xef]);
        assert_eq!(data_of(r"a HTTPS \# 0").unwrap(), b"");
    }

    /// Wrong entries are refused; nothing is guessed.
    #[test]
    fn mistakes() {
        for text in [
            " A 192.0.2.1",
            "a",
            "a A",
            "a A 192.0.2.256",
            "a A ::1",
            "a AAAA 192.0.2.1",
            "a A 192.0.2.1 192.0.2.2",
            "a 1 2 A 192.0.2.1",
            "a CH A 192.0.2.1",
            "a 3000000000 A 192.0.2.1",
            "a 99999999999999999999 A 192.0.2.1",
            "a 1y A 192.0.2.1",
            "a h A 192.0.2.1",
            "a MX 65536 b",
            "a MX b",
            "a TXT",
            "a TXT \"b",
            "a A ) 192.0.2.1",
            "a A ( 192.0.2.1",
            "a HTTPS 1 .",
            r"a A \# 4 c0000201",
            r"a TYPE731 \# 2 ab",
            r"a TYPE731 \# 1 abc",
            r"a TYPE731 \# 1 zz",
            "a DNAME b.",
            r"a TYPE39 \# 3 016200",
            r"a OPT \# 0",
            r"a TYPE41 \# 0",
            r"a TYPE255 \# 0",
            r"a\ A 192.0.2.1",
            "$INCLUDE other",
            "$ORIGIN",
            "$TTL 1 2",
            "bücher A 192.0.2.1",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(data_of(&format!("a TXT {}", "b".repeat(255))).is_ok());
        assert!(data_of(&format!("a TXT {}", "b".repeat(256))).is_err());
    }

    /// An entry after one that could not be read does not take its owner or origin from further
    /// above.
    #[test]
    fn nothing_is_taken_from_further_above() {
        let mut context = Context::new(WireName::ROOT, 1);
        let mut is_read = |line: &[u8]| {
            let mut entry = Entry::default();
            entry.feed(line).unwrap();
            matches!(context.read(&entry), Ok(Some(_)))
        };
        assert!(is_read(b"a A 192.0.2.1") && is_read(b" A 192.0.2.2"));
        assert!(!is_read(b"a..b A 192.0.2.1") && !is_read(b" A 192.0.2.2"));
        assert!(!is_read(b"b LOC here") && is_read(b" A 192.0.2.2"), "the owner was read");
        assert!(!is_read(b"$ORIGIN x..y.") && !is_read(b"a A 192.0.2.1"));
        assert!(!is_read(b"$ORIGIN z") && !is_read(b"a A 192.0.2.1"));
        assert!(!is_read(b"$ORIGIN z.") && is_read(b"a A 192.0.2.1"), "a directive is no record");
        context.forget_owner();
        let mut entry = Entry::default();
        entry.feed(b" A 192.0.2.3").unwrap();
        assert!(context.read(&entry).is_err());
    }

    proptest! {
        /// Any text is read or refused.
        #[test]
        fn any_text(text in "(a|b|@|\\.|\\$TTL|\\$ORIGIN|[ \t]|\n|[0-9]{1,4}|A|TXT|SOA|MX|[\\\\\"();#*]|é){0,60}") {
            let _ = read(&text);
        }
    }
}
