//! Splits a filter into words, as libpcap's scanner does.
//!
//! A word is as long as possible: `80-443` is one word, and so is `5-3`. Colons belong to a MAC
//! address or an IPv6 address, but not between brackets.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::FilterError;

/// A word, and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Word {
    pub at: usize,
    pub end: usize,
    pub kind: Kind,
}

/// The kind of a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// `80`, `0x50`, `0120`.
    Number(u32),
    /// `10.1`, `10.1.2`, `10.1.2.3`: the address, padded with zeros, and the number of written bits.
    V4(u32, u32),
    V6(u128),
    Mac([u8; 6]),
    /// Letters, digits, points and hyphens: a keyword or a name. True: a backslash comes before it,
    /// so it is not a keyword.
    Name(bool),
    /// An operator or a bracket, of one or two characters.
    Sign(&'static str),
}

/// Operators and brackets, the longer ones first.
const SIGNS: [&str; 25] = [
    ">=", "<=", "!=", "==", "<<", ">>", "&&", "||", "+", "-", "*", "/", "%", ":", "[", "]", "!",
    "<", ">", "(", ")", "&", "|", "^", "=",
];

/// All words of a text.
pub(super) fn split(text: &str) -> Result<Vec<Word>, FilterError> {
    let bytes = text.as_bytes();
    let mut words = Vec::new();
    let (mut at, mut brackets) = (0, 0usize);
    while let Some(&first) = bytes.get(at) {
        if matches!(first, b' ' | b'\t' | b'\r' | b'\n') {
            at += 1;
            continue;
        }
        let (end, kind) = word(text, at, brackets > 0)?;
        match kind {
            Kind::Sign("[") => brackets += 1,
            Kind::Sign("]") => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        words.push(Word { at, end, kind });
        at = end;
    }
    Ok(words)
}

/// The word that begins at `at`, and where it ends.
fn word(text: &str, at: usize, in_brackets: bool) -> Result<(usize, Kind), FilterError> {
    let rest = &text[at..];
    if !in_brackets && let Some((len, kind)) = with_colons(rest) {
        return Ok((at + len, kind));
    }
    if let Some(escaped) = rest.strip_prefix('\\') {
        let len = escaped
            .find(|c: char| c.is_whitespace() || matches!(c, '!' | '(' | ')'))
            .unwrap_or(escaped.len());
        if len > 0 {
            return Ok((at + 1 + len, Kind::Name(true)));
        }
    }
    let len = name_bytes(rest.as_bytes());
    if len > 0 {
        return plain(&rest[..len], at).map(|kind| (at + len, kind));
    }
    match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
        Some(sign) => Ok((at + sign.len(), Kind::Sign(sign))),
        None => {
            let found = rest.chars().next().unwrap_or(' ');
            let what = format!("{found:?} means nothing here; {}", super::GUIDE);
            Err(FilterError { at_bytes: at, what })
        }
    }
}

/// The length of the name at the start. Hyphens and underscores may be inside, but not at the end.
fn name_bytes(bytes: &[u8]) -> usize {
    if !bytes.first().is_some_and(u8::is_ascii_alphanumeric) {
        return 0;
    }
    let inner = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let mut len = bytes.iter().take_while(|c| inner(c)).count();
    while len > 1 && matches!(bytes[len - 1], b'-' | b'_') {
        len -= 1;
    }
    len
}

/// A MAC address or an IPv6 address, with its bytes.
fn with_colons(rest: &str) -> Option<(usize, Kind)> {
    let fits = |c: u8| c.is_ascii_hexdigit() || matches!(c, b':' | b'.');
    let run = &rest[..rest.bytes().take_while(|c| fits(*c)).count()];
    if run.contains(':') {
        if let Ok(addr) = run.parse::<Ipv6Addr>() {
            return Some((run.len(), Kind::V6(addr.to_bits())));
        }
        return mac(run, ':', 6).map(|mac| (run.len(), Kind::Mac(mac)));
    }
    let name = &rest[..name_bytes(rest.as_bytes())];
    let mac = mac(name, '-', 6).or_else(|| mac(name, '.', 3)).or_else(|| mac(name, '.', 6));
    mac.map(|mac| (name.len(), Kind::Mac(mac)))
}

/// Six bytes in `groups` groups of digits.
fn mac(text: &str, separator: char, groups: usize) -> Option<[u8; 6]> {
    let digits = 12 / groups;
    let mut mac = [0u8; 6];
    let mut count = 0;
    for group in text.split(separator) {
        let enough =
            if groups == 6 { (1..=2).contains(&group.len()) } else { group.len() == digits };
        if !enough || count == groups || !group.bytes().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        let value = u16::from_str_radix(group, 16).ok()?;
        match groups {
            6 => mac[count] = value as u8,
            _ => mac[count * 2..count * 2 + 2].copy_from_slice(&value.to_be_bytes()),
        }
        count += 1;
    }
    (count == groups).then_some(mac)
}

/// A word without colons.
fn plain(word: &str, at: usize) -> Result<Kind, FilterError> {
    let fail = |what: String| Err(FilterError { at_bytes: at, what });
    let hex = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    let (digits, radix) = match hex {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_hexdigit()) => {
            (digits, 16)
        }
        _ if word.bytes().all(|c| c.is_ascii_digit()) => {
            (word, if word.len() > 1 && word.starts_with('0') { 8 } else { 10 })
        }
        _ if word.bytes().all(|c| c.is_ascii_digit() || c == b'.') => return v4(word, at),
        _ => return Ok(Kind::Name(false)),
    };
    match u32::from_str_radix(digits, radix) {
        Ok(number) => Ok(Kind::Number(number)),
        Err(_) if radix == 8 => {
            fail(format!("{word:?} begins with 0, which means octal; write it without the 0"))
        }
        Err(_) => fail(format!("{word:?} is no number of 32 bits; write a smaller one")),
    }
}

/// One to four bytes of an address with points between.
fn v4(word: &str, at: usize) -> Result<Kind, FilterError> {
    let parts: Vec<&str> = word.split('.').collect();
    let bytes: Vec<u8> = parts.iter().filter_map(|part| part.parse().ok()).collect();
    if bytes.len() != parts.len() || !(2..=4).contains(&bytes.len()) {
        let what =
            format!("{word:?} is no address; write four numbers up to 255 with points between");
        return Err(FilterError { at_bytes: at, what });
    }
    let mut whole = [0u8; 4];
    whole[..bytes.len()].copy_from_slice(&bytes);
    Ok(Kind::V4(Ipv4Addr::from(whole).to_bits(), bytes.len() as u32 * 8))
}
