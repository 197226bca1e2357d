//! Domain names as larder stores them: hostile bytes in one canonical spelling.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Most bytes of a name in our spelling: 255 on the wire (RFC 1035, section 3.1), where an
/// escaped byte may take two.
pub const NAME_BYTES_MAX: usize = 510;

/// A domain name in the spelling that larder uses everywhere: labels joined by `.`, ASCII lower
/// case, no trailing dot; a dot or backslash *inside* a label is preceded by a backslash. Every
/// other byte is unchanged, so a `Name` is not UTF-8 and not fit for a terminal:
/// [`Name::write_escaped`] makes it so. The root is the empty name.
///
/// Four words. A name of up to 30 bytes, as most are, is stored in them and needs no other memory.
/// Clones of a longer one share its bytes.
#[derive(Clone)]
pub struct Name(Spelling);

/// Spelling of a name that needs no memory of its own.
const INLINE_BYTES: usize = 30;

#[derive(Clone)]
enum Spelling {
    /// The first `len` of them.
    Inline {
        len: u8,
        bytes: [u8; INLINE_BYTES],
    },
    Shared(Arc<[u8]>),
}
const _: () = assert!(size_of::<Name>() == 32);

impl Name {
    /// Takes text such as `www.Example.com.` (from SNI, Host, logs, configuration): folds case,
    /// drops one trailing dot. The rest of the spelling is unchanged; `None` when empty or longer
    /// than [`NAME_BYTES_MAX`].
    pub fn from_text(text: &[u8]) -> Option<Name> {
        let text = text.strip_suffix(b".").unwrap_or(text);
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return None;
        }
        let mut name = Name::from_canonical(text);
        match &mut name.0 {
            Spelling::Inline { bytes, .. } => bytes.make_ascii_lowercase(),
            // The value is not shared yet.
            Spelling::Shared(bytes) => Arc::make_mut(bytes).make_ascii_lowercase(),
        }
        Some(name)
    }

    /// Takes bytes that are in canonical spelling already (what the parsers of this crate write).
    pub fn from_canonical(bytes: &[u8]) -> Name {
        let mut buffer = [0; INLINE_BYTES];
        Name(match buffer.get_mut(..bytes.len()) {
            Some(inline) => {
                inline.copy_from_slice(bytes);
                Spelling::Inline { len: bytes.len() as u8, bytes: buffer }
            }
            None => Spelling::Shared(bytes.into()),
        })
    }

    /// The canonical bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Spelling::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Spelling::Shared(bytes) => bytes,
        }
    }

    /// What the name takes besides its four words, bytes, as if no clone shared them.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Spelling::Inline { .. } => 0,
            // Both counts of an `Arc` are next to its bytes.
            Spelling::Shared(bytes) => bytes.len() + 2 * size_of::<usize>(),
        }
    }

    /// True when the name is the root.
    pub fn is_root(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// Writes a canonical name for people and logs, as printable ASCII without spaces: safe on a
    /// terminal, and the same in every format. Every other byte is `\xHH`, as Zeek writes it. `\\`
    /// and `\.` are the canonical escapes and stay; any other backslash is `\x5c`. So names that
    /// differ are spelled differently: the byte ff is `\xff`, and a backslash before `xff` is
    /// `\x5cxff`.
    pub fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        // Nearly every name takes this short path.
        if bytes.iter().all(|byte| (0x21..0x7f).contains(byte) && *byte != b'\\') {
            return out.extend_from_slice(bytes);
        }
        let mut rest = bytes;
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            match (byte, tail.first()) {
                (b'\\', Some(&escaped @ (b'\\' | b'.'))) => {
                    out.extend_from_slice(&[b'\\', escaped]);
                    rest = &tail[1..];
                }
                (0x21..0x7f, _) if byte != b'\\' => out.push(byte),
                _ => {
                    let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
                    out.extend_from_slice(&[b'\\', b'x', high, low]);
                }
            }
        }
    }
}

impl Default for Name {
    /// The root.
    fn default() -> Name {
        Name::from_canonical(&[])
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Vec::with_capacity(self.as_bytes().len());
        Name::write_escaped(self.as_bytes(), &mut out);
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

    /// No control byte is left after the escaping, whatever the name contains.
    #[test]
    fn hostile_bytes_are_escaped() {
        let name = Name::from_text(b"Evil\x1b[31m.Example.com.").expect("a name");
        assert_eq!(name.as_bytes(), b"evil\x1b[31m.example.com");
        assert_eq!(name.to_string(), r"evil\x1b[31m.example.com");
        assert_eq!(Name::from_text(b"."), None);
    }

    /// Names that differ are spelled differently: a byte outside ASCII, UTF-8 of the character with
    /// that number, and text that looks like the escape of the byte. Canonical escapes stay.
    #[test]
    fn spellings_differ_where_names_do() {
        for (bytes, spelled) in [
            (&b"\xff\xfe.example"[..], r"\xff\xfe.example"),
            ("\u{ff}\u{fe}.example".as_bytes(), r"\xc3\xbf\xc3\xbe.example"),
            (br"\xff\xfe.example", r"\x5cxff\x5cxfe.example"),
            (br"\\xff\.a.example", r"\\xff\.a.example"),
            (b"ends\\", r"ends\x5c"),
            (b"a b", r"a\x20b"),
        ] {
            assert_eq!(Name::from_canonical(bytes).to_string(), spelled);
        }
    }

    /// Inline and shared names behave the same: at every length a name is its bytes, and equals
    /// itself in lower case.
    #[test]
    fn short_and_long_names_are_alike() {
        for len in 1..=NAME_BYTES_MAX {
            let text = vec![b'X'; len];
            let name = Name::from_text(&text).expect("a name");
            assert_eq!(name.as_bytes(), text.to_ascii_lowercase());
            assert_eq!(name, Name::from_canonical(name.as_bytes()));
            assert!(name > Name::from_canonical(&name.as_bytes()[1..]));
        }
        assert!(Name::default().is_root());
    }
}
