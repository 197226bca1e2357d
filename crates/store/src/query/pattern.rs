//! Names with stars.

use crate::index::reversed;

/// Marks a byte after a backslash: part of a label, whatever it is.
const ESCAPED: u16 = 0x100;

/// A name with stars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// The parts between the stars.
    parts: Vec<Vec<u16>>,
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

/// A name with stars; `None`: a backslash without a byte.
pub(super) fn pattern(word: &str) -> Option<Pattern> {
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
