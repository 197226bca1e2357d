//! Under what a response is kept: a digest of its URL, or of its URL and what chose it among its variants.
//!
//! ```text
//! primary   authority, path                                    a response, or the names of the fields that choose one
//! variant   primary, generation of the choice, its values      a response
//! ```
//!
//! A key is 128 bits of SipHash-2-4 (Aumasson and Bernstein, 2012). What is kept says its URL, and who finds it compares: two URLs with
//! the same digest take each other's place, and are never taken for each other. So the digest needs no secret, and a saved
//! cache is good in another process.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::Field;
use crate::storage::selecting_value;

/// Octets of a [`Key`].
pub const KEY_BYTES: usize = 16;

/// What a response is kept under.
pub type Key = [u8; KEY_BYTES];

/// Digest of parts, whose lengths are part of it.
struct Digest(SipHasher24);

impl Digest {
    fn new(of: u8) -> Digest {
        Digest(SipHasher24::new_with_keys(0x6c61_7264_6572_2068, u64::from(of)))
    }

    fn part(mut self, octets: &[u8]) -> Digest {
        self.0.write(&(octets.len() as u64).to_le_bytes());
        self.0.write(octets);
        self
    }

    fn key(self) -> Key {
        self.0.finish128().as_bytes()
    }
}

/// The URL as it is kept: authority in lower case and without the port that is understood, and the path, `/` where it is empty.
pub fn push_url(out: &mut Vec<u8>, authority: &[u8], path: &[u8]) {
    let authority = authority.strip_suffix(b":80").unwrap_or(authority);
    out.extend(authority.iter().map(u8::to_ascii_lowercase));
    match path.first() {
        Some(b'/') => {}
        // Of `http://a.example?query` the path is empty.
        _ => out.push(b'/'),
    }
    out.extend_from_slice(path);
}

/// The key of a URL, as [`push_url`] has it.
pub fn primary(url: &[u8]) -> Key {
    Digest::new(1).part(url).key()
}

/// The key of a variant: what a request has in the fields of these names. `generation` tells one choice of names from the next,
/// so that what was forgotten with one does not come back with another.
pub fn variant<'a>(
    primary: &Key,
    generation: u64,
    names: impl Iterator<Item = &'a str>,
    fields: &[Field<'_>],
) -> Key {
    let digest = Digest::new(2).part(primary).part(&generation.to_le_bytes());
    let with = |digest: Digest, name| match selecting_value(fields, name) {
        Some(value) => digest.part(&[1]).part(&value),
        None => digest.part(&[0]),
    };
    names.fold(digest, with).key()
}

/// A word for a tag by which responses are purged.
pub fn tag(text: &[u8]) -> u64 {
    Digest::new(3).part(text).0.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(authority: &str, path: &str) -> String {
        let mut out = Vec::new();
        push_url(&mut out, authority.as_bytes(), path.as_bytes());
        String::from_utf8(out).unwrap()
    }

    /// One resource has one URL, however its authority is written.
    #[test]
    fn urls() {
        assert_eq!(url("A.Example:80", "/x?Y"), "a.example/x?Y");
        assert_eq!(url("a.example", ""), "a.example/");
        assert_eq!(url("a.example:8080", "?q"), "a.example:8080/?q");
    }

    /// Whatever differs in URL, choice or values differs in its key; how values are spaced does not matter.
    #[test]
    fn keys_differ() {
        let (a, b) = (primary(b"a/"), primary(b"b/"));
        let names = || ["accept", "x"].into_iter();
        let with = |value: &'static [u8]| vec![Field { name: "Accept", value }];
        let all = [
            a,
            b,
            variant(&a, 1, names(), &[]),
            variant(&b, 1, names(), &[]),
            variant(&a, 2, names(), &[]),
            variant(&a, 1, names(), &with(b"")),
            variant(&a, 1, names(), &with(b"a, b")),
            variant(&a, 1, names(), &with(b"b, a")),
        ];
        for (at, key) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(key), "{at}");
        }
        assert_eq!(variant(&a, 1, names(), &with(b"a ,b")), all[6]);
        assert_ne!(tag(b"a"), tag(b"b"));
    }
}
