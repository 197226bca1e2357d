//! The key of a stored response: a digest of its URL, or of its URL and the values that select a
//! variant.
//!
//! ```text
//! primary   scheme, authority, path                            a response, or the names of the selecting fields
//! variant   primary, generation of the names, their values     a response
//! ```
//!
//! The scheme is part of the key (RFC 9111, section 2). An origin that gets the scheme may respond
//! differently, most often with a redirection from one to the other.
//!
//! A key is 128 bits of SipHash-2-4 (Aumasson and Bernstein, 2012). A stored response has its URL,
//! and each lookup compares it. Two URLs with the same digest replace each other, but larder never
//! serves one for the other. So the digest needs no secret, and a saved cache is valid in another
//! process.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::message::Scheme;
use crate::sent::Sent;

/// Bytes of a [`Key`].
pub const KEY_BYTES: usize = 16;

/// The key of a stored response.
pub type Key = [u8; KEY_BYTES];

/// Digest of parts, whose lengths are part of it.
struct Digest(SipHasher24);

impl Digest {
    fn new(of: u8) -> Digest {
        Digest(SipHasher24::new_with_keys(0x6c61_7264_6572_2068, u64::from(of)))
    }

    fn part(mut self, bytes: &[u8]) -> Digest {
        self.0.write(&(bytes.len() as u64).to_le_bytes());
        self.0.write(bytes);
        self
    }

    fn key(self) -> Key {
        self.0.finish128().as_bytes()
    }
}

/// The prefix of URLs of [`Scheme::Https`]; no authority has it.
const SECURE: &[u8] = b"https@";

/// The scheme of such a URL.
pub fn scheme_of(url: &[u8]) -> Scheme {
    if url.starts_with(SECURE) { Scheme::Https } else { Scheme::Http }
}

/// The URL in a record: for https a prefix, then the authority in lower case without the default
/// port, and the path, `/` where it is empty.
pub fn push_url(out: &mut Vec<u8>, scheme: Scheme, authority: &[u8], path: &[u8]) {
    let port: &[u8] = match scheme {
        Scheme::Http => b":80",
        Scheme::Https => b":443",
    };
    let authority = authority.strip_suffix(port).unwrap_or(authority);
    if scheme == Scheme::Https {
        out.extend_from_slice(SECURE);
    }
    out.extend(authority.iter().map(u8::to_ascii_lowercase));
    match path.first() {
        Some(b'/') => {}
        // The path of `http://a.example?query` is empty.
        _ => out.push(b'/'),
    }
    out.extend_from_slice(path);
}

/// The same URL by the other scheme; a port stays as it is.
pub fn by_other_scheme(url: &[u8]) -> Vec<u8> {
    match url.strip_prefix(SECURE) {
        Some(rest) => rest.to_vec(),
        None => [SECURE, url].concat(),
    }
}

/// The key of a URL in the form of [`push_url`].
pub fn primary(url: &[u8]) -> Key {
    Digest::new(1).part(url).key()
}

/// The key of a variant: the values of these fields that an origin is sent. `generation`
/// distinguishes one choice of names from the next, so that a variant that was deleted with one
/// does not come back with another.
pub fn variant<'a>(
    primary: &Key,
    generation: u64,
    names: impl Iterator<Item = &'a str>,
    sent: &Sent<'_>,
) -> Key {
    let digest = Digest::new(2).part(primary).part(&generation.to_le_bytes());
    let with = |digest: Digest, name| match sent.value(name) {
        Some(value) => digest.part(&[1]).part(&value),
        None => digest.part(&[0]),
    };
    names.fold(digest, with).key()
}

/// The key of a note about one kind of requests for a key, such as those with credentials.
pub fn apart(key: &Key, kind: &str) -> Key {
    Digest::new(4).part(key).part(kind.as_bytes()).key()
}

/// The number of a tag by which responses are purged.
pub fn tag(text: &[u8]) -> u64 {
    Digest::new(3).part(text).0.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Field;

    fn url(authority: &str, path: &str) -> String {
        let mut out = Vec::new();
        push_url(&mut out, Scheme::Http, authority.as_bytes(), path.as_bytes());
        String::from_utf8(out).unwrap()
    }

    /// A request over TLS has a URL that no request without TLS can have, and each leads to the
    /// other.
    #[test]
    fn schemes() {
        let mut secure = Vec::new();
        push_url(&mut secure, Scheme::Https, b"A.example:443", b"/x");
        let clear = url("a.example", "/x");
        assert_eq!(by_other_scheme(clear.as_bytes()), secure);
        assert_eq!(by_other_scheme(&secure), clear.as_bytes());
        assert_eq!([&secure[..], clear.as_bytes()].map(scheme_of), [Scheme::Https, Scheme::Http]);
        assert_ne!(url("a.example:443", "/x").as_bytes(), secure);
        assert!(!crate::message::target::is_authority(SECURE));
    }

    /// A resource has one URL, however a client writes its authority.
    #[test]
    fn urls() {
        assert_eq!(url("A.Example:80", "/x?Y"), "a.example/x?Y");
        assert_eq!(url("a.example", ""), "a.example/");
        assert_eq!(url("a.example:8080", "?q"), "a.example:8080/?q");
    }

    /// Keys of other URLs, names or values differ; how values are spaced does not matter.
    #[test]
    fn keys_differ() {
        let (a, b) = (primary(b"a/"), primary(b"b/"));
        let names = || ["accept", "x"].into_iter();
        let accept = |value: &'static [u8]| vec![Field { name: "Accept", value }];
        let variant = |primary, generation, fields: &[Field<'_>]| {
            let client = || None;
            let (host, takes_trailers) = (&b"a"[..], false);
            let sent = Sent {
                fields,
                host,
                takes_trailers,
                scheme: None,
                is_shared: true,
                client: &client,
            };
            variant(primary, generation, names(), &sent)
        };
        let all = [
            a,
            b,
            variant(&a, 1, &[]),
            variant(&b, 1, &[]),
            variant(&a, 2, &[]),
            variant(&a, 1, &accept(b"")),
            variant(&a, 1, &accept(b"a, b")),
            variant(&a, 1, &accept(b"b, a")),
        ];
        for (at, key) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(key), "{at}");
        }
        assert_eq!(variant(&a, 1, &accept(b"a ,b")), all[6]);
        assert_ne!(tag(b"a"), tag(b"b"));
    }
}
