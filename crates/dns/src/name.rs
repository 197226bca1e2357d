//! Domain names from text, in wire form and lower case.

use std::fmt;

use larder_wire::dns::NAME_WIRE_BYTES_MAX;

/// A name in wire form and lower case.
#[derive(Clone, Copy)]
pub struct WireName {
    len: u8,
    bytes: [u8; NAME_WIRE_BYTES_MAX],
}

/// Why a text is not a domain name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameError {
    /// An empty text or label.
    Empty,
    /// A label of more than 63 bytes.
    LabelTooLong,
    /// More than 255 bytes.
    TooLong,
    /// A backslash without three digits up to 255, or one byte, after it.
    Escape,
    /// An international name that is not in Punycode.
    NotAscii,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameError::Empty => "a name has an empty label",
            NameError::LabelTooLong => "a label of a name is longer than 63 bytes",
            NameError::TooLong => "a name is longer than 255 bytes",
            NameError::Escape => "an escape in a name is not \\ and three digits or one character",
            NameError::NotAscii => {
                "an international name must be written in its ASCII form, with xn-- labels"
            }
        })
    }
}

/// The byte that an escape stands for, and the text after it. The backslash is before `rest`.
pub fn unescape(rest: &[u8]) -> Result<(u8, &[u8]), NameError> {
    match rest {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] => {
            let number = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
            Ok((u8::try_from(number).map_err(|_| NameError::Escape)?, rest))
        }
        [b'0'..=b'9', ..] | [] => Err(NameError::Escape),
        [byte, rest @ ..] => Ok((*byte, rest)),
    }
}

impl fmt::Debug for WireName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl WireName {
    /// The root.
    pub const ROOT: WireName = WireName { len: 1, bytes: [0; NAME_WIRE_BYTES_MAX] };

    /// Reads a name. `origin` is appended to one that does not end in a dot; `@` is `origin`
    /// itself.
    pub fn parse(text: &[u8], origin: &WireName) -> Result<WireName, NameError> {
        if text == b"@" {
            return Ok(*origin);
        }
        WireName::read_below(text, origin, 127)
    }

    /// Reads an absolute name: `@` is an ordinary label, bytes beyond ASCII stand for themselves,
    /// and the dot at the end may be missing.
    pub fn read(text: &[u8]) -> Result<WireName, NameError> {
        WireName::read_below(text, &WireName::ROOT, u8::MAX)
    }

    /// Like [`WireName::parse`]; bytes up to `byte_max` may stand for themselves.
    fn read_below(text: &[u8], origin: &WireName, byte_max: u8) -> Result<WireName, NameError> {
        match text {
            b"" => return Err(NameError::Empty),
            b"." => return Ok(WireName::ROOT),
            _ => {}
        }
        let mut name = WireName { len: 0, bytes: [0; NAME_WIRE_BYTES_MAX] };
        let mut label = [0_u8; 64];
        let mut label_bytes = 0;
        let mut rest = text;
        while let [byte, after @ ..] = rest {
            rest = after;
            let byte = match byte {
                b'.' => {
                    name.push(&label[..label_bytes])?;
                    label_bytes = 0;
                    continue;
                }
                b'\\' => {
                    let (byte, after) = unescape(rest)?;
                    rest = after;
                    byte
                }
                byte if *byte > byte_max => return Err(NameError::NotAscii),
                byte => *byte,
            };
            *label.get_mut(label_bytes).ok_or(NameError::LabelTooLong)? = byte;
            label_bytes += 1;
        }
        let is_relative = label_bytes > 0;
        if is_relative {
            name.push(&label[..label_bytes])?;
        }
        name.append(if is_relative { origin.as_bytes() } else { &[0] })?;
        Ok(name)
    }

    /// Copies bytes that are a complete name in wire form.
    pub fn from_wire(bytes: &[u8]) -> Option<WireName> {
        let mut name = WireName { len: 0, bytes: [0; NAME_WIRE_BYTES_MAX] };
        name.append(bytes).ok()?;
        name.bytes.make_ascii_lowercase();
        Some(name)
    }

    fn push(&mut self, label: &[u8]) -> Result<(), NameError> {
        match label.len() {
            0 => return Err(NameError::Empty),
            1..=63 => self.append(&[label.len() as u8])?,
            _ => return Err(NameError::LabelTooLong),
        }
        let start = usize::from(self.len);
        self.append(label)?;
        self.bytes[start..start + label.len()].make_ascii_lowercase();
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), NameError> {
        let start = usize::from(self.len);
        let room = self.bytes.get_mut(start..start + bytes.len()).ok_or(NameError::TooLong)?;
        room.copy_from_slice(bytes);
        self.len += bytes.len() as u8;
        Ok(())
    }

    /// Wire form, with the root.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

/// True for letters, digits, hyphens, underscores, dots and escapes, as in a list of names. Other
/// bytes suggest a page of HTML or another syntax.
pub fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.\\".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(text: &str, origin: &str) -> Result<Vec<u8>, NameError> {
        let origin = WireName::parse(origin.as_bytes(), &WireName::ROOT)?;
        WireName::parse(text.as_bytes(), &origin).map(|name| name.as_bytes().to_vec())
    }

    /// Relative and absolute names, escapes and letter case give the right wire form.
    #[test]
    fn names() {
        assert_eq!(wire("A.Example.", "x").unwrap(), b"\x01a\x07example\0");
        assert_eq!(wire("a", "X.y.").unwrap(), b"\x01a\x01x\x01y\0");
        assert_eq!(wire("@", "x").unwrap(), b"\x01x\0");
        assert_eq!(wire(".", "x").unwrap(), b"\0");
        assert_eq!(wire(r"a\.b\\\200\065", ".").unwrap(), b"\x06a.b\\\xc8a\0");
    }

    /// Texts that are not names give their error, and names of the greatest length are accepted.
    #[test]
    fn errors() {
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "b".repeat(61));
        assert_eq!(wire(&longest, ".").unwrap().len(), 255);
        for (text, expected) in [
            ("", NameError::Empty),
            ("a..b", NameError::Empty),
            (".a", NameError::Empty),
            ("..", NameError::Empty),
            (&"a".repeat(64), NameError::LabelTooLong),
            (&"a".repeat(65), NameError::LabelTooLong),
            (&format!("{longest}b"), NameError::TooLong),
            ("a\\", NameError::Escape),
            ("a\\25", NameError::Escape),
            ("a\\256", NameError::Escape),
            ("bücher.example", NameError::NotAscii),
        ] {
            assert_eq!(wire(text, "."), Err(expected), "{text}");
        }
        assert_eq!(wire(&longest, "x"), Err(NameError::TooLong));
    }
}
