//! Domain names as larder keeps them: hostile bytes in one canonical spelling.

use std::fmt;
use std::sync::Arc;

/// Most octets of a name in our spelling: 255 on the wire (RFC 1035, section 3.1), where an
/// escaped octet may take two.
pub const NAME_BYTES_MAX: usize = 510;

/// A domain name in the spelling that larder keeps everywhere: labels joined by `.`, ASCII
/// lower case, no trailing dot; a dot or backslash *inside* a label is preceded by a backslash.
/// Every other octet stands as it came, so a `Name` is not UTF-8 and not fit for a terminal:
/// [`Name::write_escaped`] makes it so. The root is the empty name. A clone shares the octets.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// Takes text such as `www.Example.com.` (from SNI, Host, logs, configuration): folds case,
    /// drops one trailing dot. Octets are otherwise kept; `None` when empty or longer than
    /// [`NAME_BYTES_MAX`].
    pub fn from_text(text: &[u8]) -> Option<Name> {
        let text = text.strip_suffix(b".").unwrap_or(text);
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return None;
        }
        Some(Name(text.to_ascii_lowercase().into()))
    }

    /// Takes bytes that are in canonical spelling already (what the parsers of this crate write).
    pub fn from_canonical(bytes: &[u8]) -> Name {
        Name(bytes.into())
    }

    /// The canonical octets.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// True when the name is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes octets with everything outside printable ASCII as `\xHH`, as Zeek does: safe on a
    /// terminal, in a tab-separated file, in a log.
    pub fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        for &octet in bytes {
            if (0x21..0x7f).contains(&octet) {
                out.push(octet);
            } else {
                out.extend_from_slice(&[
                    b'\\',
                    b'x',
                    HEX[usize::from(octet >> 4)],
                    HEX[usize::from(octet & 15)],
                ]);
            }
        }
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Vec::with_capacity(self.0.len());
        Name::write_escaped(&self.0, &mut out);
        f.write_str(&String::from_utf8_lossy(&out))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No control octet survives the escaping, whatever a packet put in a name.
    #[test]
    fn hostile_octets_are_escaped() {
        let name = Name::from_text(b"Evil\x1b[31m.Example.com.").expect("a name");
        assert_eq!(name.as_bytes(), b"evil\x1b[31m.example.com");
        assert_eq!(name.to_string(), r"evil\x1b[31m.example.com");
        assert_eq!(Name::from_text(b"."), None);
    }
}
