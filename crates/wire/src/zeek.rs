//! Headers of Zeek's logs.
//!
//! A log is a table between header lines that start with `#`: `#separator` (one byte, escaped)
//! opens a header, `#set_separator`, `#empty_field` and `#unset_field` give the marks, `#fields`
//! and `#types` the columns. Concatenated logs repeat the header, with other columns perhaps.

use std::borrow::Cow;

/// Most columns of a table; Zeek's widest log has fewer than a hundred.
pub const FIELDS_MAX: usize = 1024;

/// The marks and columns that a header declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Between columns.
    pub separator: u8,
    /// Between the elements of a vector or set.
    pub set_separator: u8,
    /// Represents an empty vector or string.
    pub empty_field: Vec<u8>,
    /// Represents an absent value.
    pub unset_field: Vec<u8>,
    /// Names of the columns; empty before `#fields` was seen.
    pub fields: Vec<Vec<u8>>,
}

impl Default for Header {
    fn default() -> Header {
        Header {
            separator: b'\t',
            set_separator: b',',
            empty_field: b"(empty)".to_vec(),
            unset_field: b"-".to_vec(),
            fields: Vec::new(),
        }
    }
}

/// The kind of a header line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderLine {
    /// `#fields`: the columns of the rows that follow.
    Fields,
    /// `#types`: their types.
    Types,
    /// Any other header or comment line.
    Other,
}

impl Header {
    /// Takes a line that begins with `#`, without its terminator; `None` for an invalid line, which
    /// changes nothing.
    pub fn read(&mut self, line: &[u8]) -> Option<HeaderLine> {
        let line = line.strip_prefix(b"#").unwrap_or(line);
        let one = |text: &[u8]| match unescape(text).as_ref() {
            [byte] => Some(*byte),
            _ => None,
        };
        // The separator is unknown before its own line, which has a blank instead.
        if let Some(escaped) = line.strip_prefix(b"separator ") {
            *self = Header { separator: one(escaped)?, ..Header::default() };
            return Some(HeaderLine::Other);
        }
        let separator = self.separator;
        let mut parts = line.split(|&byte| byte == separator);
        match (parts.next().unwrap_or_default(), parts.next()) {
            (b"set_separator", value) => {
                self.set_separator = value.and_then(one).unwrap_or(self.set_separator);
            }
            (b"empty_field", value) => self.empty_field = value.unwrap_or_default().to_vec(),
            (b"unset_field", value) => self.unset_field = value.unwrap_or_default().to_vec(),
            (b"fields", first) => {
                let fields = first.into_iter().chain(parts).take(FIELDS_MAX + 1);
                let fields: Vec<Vec<u8>> = fields.map(<[u8]>::to_vec).collect();
                if fields.len() > FIELDS_MAX {
                    return None;
                }
                self.fields = fields;
                return Some(HeaderLine::Fields);
            }
            (b"types", _) => return Some(HeaderLine::Types),
            _ => {}
        }
        Some(HeaderLine::Other)
    }

    /// The indices of the columns with these names.
    pub fn find<const N: usize>(&self, names: &[&str; N]) -> [Option<usize>; N] {
        names.map(|name| self.fields.iter().position(|field| field == name.as_bytes()))
    }
}

/// Undoes Zeek's escapes, `\xHH` and `\\`; any other backslash stands for itself.
pub fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let byte;
        (byte, rest) = match (first, after) {
            (b'\\', [b'x', high, low, tail @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, tail),
                _ => (first, after),
            },
            (b'\\', [b'\\', tail @ ..]) => (b'\\', tail),
            _ => (first, after),
        };
        plain.push(byte);
    }
    Cow::Owned(plain)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}
