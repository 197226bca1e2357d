//! The server name that a DTLS client states itself (RFC 6347, RFC 9147): the ClientHello of
//! [`crate::tls`] in datagrams, with a cookie, in fragments that may come in any order.
//!
//! A client sends its hello twice if the server requires a cookie; each of the two names the
//! server. [`looks_like_hello`] decides for nearly all datagrams, by their first bytes.
//!
//! Bounds: [`RECORDS_MAX`] records a datagram, [`HELLO_BYTES_MAX`] bytes of one hello, twice that
//! of memory.

use crate::read::{u16_at, u32_at};
use crate::stream::{Budget, Pushed, Stream};
use crate::tls::{Form, HELLO_BYTES_MAX, Hello, hello_body};

/// Most records that are read in one datagram.
pub const RECORDS_MAX: usize = 16;

const RECORD_HEADER_BYTES: usize = 13;
const FRAGMENT_HEADER_BYTES: usize = 12;
const TYPE_HANDSHAKE: u8 = 22;
const TYPE_CLIENT_HELLO: u8 = 1;

/// Memory for the collected bytes: those of the hello, and as much again for the pieces.
const BUDGET_BYTES: usize = 2 * HELLO_BYTES_MAX;

/// True when the datagram begins with a record that holds a part of a ClientHello.
#[inline]
pub fn looks_like_hello(datagram: &[u8]) -> bool {
    datagram.first() == Some(&TYPE_HANDSHAKE) && next_fragment(datagram).0.is_some()
}

/// A part of a ClientHello.
#[derive(Clone, Copy, Debug)]
struct Fragment<'a> {
    /// Which message of the handshake, and how long it is: parts of one agree in both.
    message: (u16, usize),
    at: usize,
    data: &'a [u8],
}

/// Collects one flow's ClientHello.
#[derive(Debug)]
pub struct Assembler {
    message: Option<(u16, usize)>,
    body: Stream,
    budget: Budget,
}

impl Default for Assembler {
    fn default() -> Assembler {
        Assembler::new()
    }
}

impl Assembler {
    /// An assembler that has seen nothing. Takes no memory beyond itself until parts wait in it.
    pub const fn new() -> Assembler {
        Assembler { message: None, body: Stream::starting_at(0), budget: Budget::new(BUDGET_BYTES) }
    }

    /// Bytes of memory held, besides the assembler itself.
    pub fn held_bytes(&self) -> usize {
        self.body.held_bytes()
    }

    /// True when parts had different bytes for the same place.
    pub fn differs(&self) -> bool {
        self.body.differs()
    }

    /// Takes one UDP payload of the client.
    pub fn push<'a>(&'a mut self, datagram: &'a [u8]) -> Hello<'a> {
        let mut rest = datagram;
        let mut has_any = false;
        for _ in 0..RECORDS_MAX {
            let (fragment, behind) = next_fragment(rest);
            rest = behind;
            let Some(fragment) = fragment else { if rest.is_empty() { break } else { continue } };
            has_any = true;
            let (_, body_bytes) = fragment.message;
            if body_bytes > HELLO_BYTES_MAX {
                return Hello::Malformed;
            }
            if fragment.data.len() == body_bytes {
                return hello_body(fragment.data, body_bytes, Form::Dtls);
            }
            if self.message != Some(fragment.message) {
                // The first part, or the hello with the cookie.
                self.message = Some(fragment.message);
                self.body.clear(&mut self.budget);
                self.body = Stream::starting_at(0);
            }
            if self.body.push(fragment.at as u32, 0, fragment.data, &mut self.budget)
                == Pushed::Full
            {
                return Hello::Malformed;
            }
        }
        match self.message {
            Some((_, body_bytes)) if has_any => {
                let body = self.body.contiguous();
                if body.len() < body_bytes {
                    return Hello::NeedMore;
                }
                hello_body(body, body_bytes, Form::Dtls)
            }
            _ => Hello::NotTls,
        }
    }
}

/// The first record's part of a ClientHello, if it has one, and the bytes after the record.
fn next_fragment(bytes: &[u8]) -> (Option<Fragment<'_>>, &[u8]) {
    let length = usize::from(u16_at(bytes, 11).unwrap_or(0));
    let Some(record) = bytes.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + length) else {
        return (None, &[]);
    };
    let behind = &bytes[RECORD_HEADER_BYTES + length..];
    // Sealed records have another epoch.
    let is_handshake = bytes[0] == TYPE_HANDSHAKE
        && matches!(bytes[1..3], [0xfe, 0xff | 0xfd | 0xfc] | [0x01, 0x00])
        && bytes[3..5] == [0, 0];
    let fragment = is_handshake.then(|| client_hello_part(record)).flatten();
    (fragment, behind)
}

/// Handshake header (RFC 6347, section 4.2.2): type, length, message number, place and length of
/// the part.
fn client_hello_part(record: &[u8]) -> Option<Fragment<'_>> {
    let (header, data) = record.split_at_checked(FRAGMENT_HEADER_BYTES)?;
    let word = u32_at(header, 0)?;
    let body_bytes = (word & 0x00ff_ffff) as usize;
    // Both of the next numbers have three bytes; the first one's are behind two of the message's.
    let at = (u32_at(header, 5)? & 0x00ff_ffff) as usize;
    let part_bytes = (u32_at(header, 8)? & 0x00ff_ffff) as usize;
    let is_sound = (word >> 24) as u8 == TYPE_CLIENT_HELLO
        && part_bytes > 0
        && at + part_bytes <= body_bytes
        && part_bytes <= data.len();
    is_sound.then(|| Fragment {
        message: (u16_at(header, 4).unwrap_or(0), body_bytes),
        at,
        data: &data[..part_bytes],
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tls::tests::{message, sni};

    const NAME: &[u8] = b"dtls.example";

    /// The body of a hello of TLS, with a cookie in it.
    fn body(cookie: &[u8]) -> Vec<u8> {
        let tls = message(&[sni(&[(0, NAME)])]);
        let mut body = tls[4..].to_vec();
        body[..2].copy_from_slice(&[0xfe, 0xfd]);
        // Version, random value, and an empty session ID.
        body.splice(35..35, std::iter::once(cookie.len() as u8).chain(cookie.iter().copied()));
        body
    }

    /// A record with bytes `at .. at + len` of message `number`.
    fn record(number: u8, body: &[u8], at: usize, len: usize) -> Vec<u8> {
        let three = |n: usize| [(n >> 16) as u8, (n >> 8) as u8, n as u8];
        let part = [
            &[1][..],
            &three(body.len()),
            &[0, number],
            &three(at),
            &three(len),
            &body[at..at + len],
        ]
        .concat();
        let length = (part.len() as u16).to_be_bytes();
        [&[22, 0xfe, 0xff, 0, 0, 0, 0, 0, 0, 0, number][..], &length, &part].concat()
    }

    fn name(hello: &Hello<'_>) -> Option<Vec<u8>> {
        match hello {
            Hello::Found(hello) => hello.server_name.as_deref().map(<[u8]>::to_vec),
            _ => None,
        }
    }

    /// A hello in one record, with a cookie or without one; every cut of it names nothing.
    #[test]
    fn one_record() {
        for cookie in [&b""[..], b"cookie", &[9; 255]] {
            let body = body(cookie);
            let datagram = record(0, &body, 0, body.len());
            assert!(looks_like_hello(&datagram));
            assert_eq!(name(&Assembler::new().push(&datagram)).as_deref(), Some(NAME));
            for len in 0..datagram.len() {
                assert_eq!(Assembler::new().push(&datagram[..len]), Hello::NotTls, "{len}");
                assert!(!looks_like_hello(&datagram[..len]));
            }
        }
    }

    /// Parts in any order, in one datagram or in several, also sent twice, with another record
    /// between; the second hello, which has the cookie, begins again.
    #[test]
    fn fragments() {
        let (first, second) = (body(b""), body(b"cookie"));
        let part =
            |number, body: &[u8], at: usize| record(number, body, at, 20.min(body.len() - at));
        let places: Vec<usize> = (0..second.len()).step_by(20).collect();
        let mut assembler = Assembler::new();
        assert_eq!(assembler.push(&part(0, &first, 20)), Hello::NeedMore);
        for &at in places.iter().rev() {
            let datagram = part(1, &second, at);
            let hello = assembler.push(&datagram);
            assert_eq!(name(&hello).is_some(), at == 0, "{at}");
        }
        let alert = [21, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 9, 0, 2, 2, 40];
        let mut together = alert.to_vec();
        for &at in &places {
            together.extend(part(1, &second, at));
        }
        together.extend(part(1, &second, 0));
        let mut assembler = Assembler::new();
        assert_eq!(name(&assembler.push(&together)).as_deref(), Some(NAME));
        assert!(!looks_like_hello(&together), "an alert comes first");
    }

    /// Bytes that are no DTLS hello, or contradict themselves, give no name.
    #[test]
    fn others() {
        let body = body(b"");
        let sound = record(0, &body, 0, body.len());
        for (what, at, value) in [
            ("TLS", 1, 3),
            ("sealed", 4, 1),
            ("another message", 13, 2),
            ("past the end of its message", 21, 1),
            ("type of record", 0, 23),
        ] {
            let mut other = sound.clone();
            other[at] = value;
            assert!(!looks_like_hello(&other), "{what}");
            assert_eq!(Assembler::new().push(&other), Hello::NotTls, "{what}");
        }
        let mut long = sound.clone();
        long[14] = 1;
        assert_eq!(Assembler::new().push(&long), Hello::Malformed, "longer than we read");
        let mut version = sound;
        version[25] = 3;
        assert_eq!(Assembler::new().push(&version), Hello::Malformed, "version of the hello");
    }

    proptest! {
        /// Datagrams of any bytes, and valid ones with some bytes changed, end in a result within
        /// the allowed memory.
        #[test]
        fn any_bytes(
            datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 0..6),
            changes in prop::collection::vec((0usize..200, any::<u8>()), 0..4),
            step in 1usize..90,
        ) {
            let mut assembler = Assembler::new();
            let body = body(b"c");
            let mut sound: Vec<u8> = (0..body.len())
                .step_by(step)
                .flat_map(|at| record(0, &body, at, step.min(body.len() - at)))
                .collect();
            for (at, byte) in changes {
                let len = sound.len();
                sound[at % len] = byte;
            }
            for datagram in datagrams.iter().chain([&sound]) {
                if let Some(name) = name(&assembler.push(datagram)) {
                    prop_assert!(!name.is_empty() && name.len() <= HELLO_BYTES_MAX);
                }
                prop_assert!(assembler.held_bytes() <= BUDGET_BYTES);
            }
        }
    }
}
