//! Keys of the cache.
//!
//! ```text
//! key    name in wire form, lower case | type 2 | class 2 | flags 1 | view 2 | generation 4     numbers big-endian
//! flags  bit 0 DO, bit 1 CD, the others 0
//! ```
//!
//! [`Query::read`](larder_wire::dns::query::Query::read) writes name, type and class;
//! [`KeyBuf::finish`](larder_wire::dns::query::KeyBuf::finish) appends the rest, which is
//! [`extra`]. A key that is too long for the engine is replaced by a digest, whose first byte
//! begins no name. The name of such a key is in the stored message.
//!
//! * DO: responses for DNSSEC clients have records that others must not get. CD: a client that
//!   validates itself may get a response that did not validate.
//! * View: clients of one view never get responses made for another.
//! * Generation of the views: a hash of their names in order
//!   ([`Policy::views_mark`](crate::policy::Policy::views_mark)). So a number always stands for the
//!   view that it had when it was stored. A reload that does not change the views does not change
//!   the keys. Its effect on cached responses is described in [`reload`](crate::reload).
//!
//! Cost: [`extra`] is a few stores; [`Parts::of`] walks over the labels. Nothing is allocated.

use larder_wire::dns::{HEADER_BYTES, Message, NAME_WIRE_BYTES_MAX, skip_name};

/// Bytes appended to name, type and class.
pub const EXTRA_BYTES: usize = 7;

/// Bytes after the name.
const TAIL_BYTES: usize = 4 + EXTRA_BYTES;

/// The root in wire form. A name within the root is complete and has no pointers.
const ROOT: &[u8] = &[0];

const DNSSEC_OK: u8 = 1;
const CHECKING_DISABLED: u8 = 2;

/// The entry is a cached failure; such a key has no [`Parts`].
pub(crate) const FAILURE: u8 = 0x80;

/// The entry states that a name does not exist, for all types (RFC 8020); such a key has no
/// [`Parts`].
pub(crate) const DENIED: u8 = 0x40;

/// The bytes appended to name, type and class.
#[inline]
pub fn extra(
    dnssec_ok: bool,
    checking_disabled: bool,
    view: u16,
    generation: u32,
) -> [u8; EXTRA_BYTES] {
    let flags = if dnssec_ok { DNSSEC_OK } else { 0 }
        | if checking_disabled { CHECKING_DISABLED } else { 0 };
    let ([v0, v1], [g0, g1, g2, g3]) = (view.to_be_bytes(), generation.to_be_bytes());
    [flags, v0, v1, g0, g1, g2, g3]
}

/// The parts of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The name in wire form, its root included.
    pub name: &'a [u8],
    /// The type.
    pub qtype: u16,
    /// The class.
    pub qclass: u16,
    /// For clients that set DO.
    pub dnssec_ok: bool,
    /// For clients that set CD.
    pub checking_disabled: bool,
    /// For clients of this view.
    pub view: u16,
    /// The mark of the views.
    pub generation: u32,
}

impl<'a> Parts<'a> {
    /// The parts of a key; `None` for the digest of a long one, and for other bytes.
    pub fn of(key: &'a [u8]) -> Option<Parts<'a>> {
        let (name, tail) = key.split_at_checked(key.len().checked_sub(TAIL_BYTES)?)?;
        let tail: &[u8; TAIL_BYTES] = tail.try_into().ok()?;
        let is_name = name.len() <= NAME_WIRE_BYTES_MAX && is_within(name, ROOT);
        let [t0, t1, c0, c1, flags, v0, v1, g0, g1, g2, g3] = *tail;
        if !is_name || flags & !(DNSSEC_OK | CHECKING_DISABLED) != 0 {
            return None;
        }
        Some(Parts {
            name,
            qtype: u16::from_be_bytes([t0, t1]),
            qclass: u16::from_be_bytes([c0, c1]),
            dnssec_ok: flags & DNSSEC_OK != 0,
            checking_disabled: flags & CHECKING_DISABLED != 0,
            view: u16::from_be_bytes([v0, v1]),
            generation: u32::from_be_bytes([g0, g1, g2, g3]),
        })
    }
}

/// The question of a stored response: name in wire form as queried, type, class. `None` for other
/// values.
pub fn question_of(value: &[u8]) -> Option<(&[u8], u16, u16)> {
    let message = Message::parse(value.get(STORED_HEAD_BYTES..)?).ok()?;
    let question = message.question().ok()??;
    let end = skip_name(message.bytes(), question.name_offset).ok()?;
    let name = message.bytes().get(HEADER_BYTES..end)?;
    is_within(name, ROOT).then_some((name, question.qtype, question.qclass))
}

/// Bytes of a stored response before its message (`larder_wire::dns::rendered`): second of its
/// birth 4, number of TTLs 2, response code 2.
pub const STORED_HEAD_BYTES: usize = 8;

/// The second in which a stored response was received; 0 for other values.
#[inline]
pub fn born_of(value: &[u8]) -> u32 {
    value.first_chunk().map_or(0, |born| u32::from_be_bytes(*born))
}

/// The response code of a stored response, with the bits of EDNS.
pub fn rcode_of(value: &[u8]) -> Option<u16> {
    value.get(6..STORED_HEAD_BYTES)?.first_chunk::<2>().map(|code| u16::from_be_bytes(*code))
}

/// True if `name` is `zone` or below it, both in wire form and in any case.
pub fn is_within(name: &[u8], zone: &[u8]) -> bool {
    let Some(surplus) = name.len().checked_sub(zone.len()) else { return false };
    let mut at = 0;
    while at < surplus {
        match name[at] {
            length @ 1..=63 => at += 1 + usize::from(length),
            _ => return false,
        }
    }
    at == surplus && name[at..].eq_ignore_ascii_case(zone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::dns::query::{KeyBuf, Query};
    use proptest::prelude::*;

    fn query(name: &[u8]) -> Vec<u8> {
        [&[0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], name, &[0, 28, 0, 1]].concat()
    }

    /// The parts of a key are those of its query.
    #[test]
    fn keys_are_taken_apart() {
        let mut key = KeyBuf::new();
        let message = query(b"\x03WWW\x07example\0");
        Query::read(&message, &mut key).unwrap();
        let bytes = key.finish(&extra(true, false, 0x0102, 0x0304_0506));
        let expected = Parts {
            name: b"\x03www\x07example\0",
            qtype: 28,
            qclass: 1,
            dnssec_ok: true,
            checking_disabled: false,
            view: 0x0102,
            generation: 0x0304_0506,
        };
        assert_eq!(Parts::of(bytes), Some(expected));
        assert_eq!(extra(false, true, 0, 0)[0], 2);
    }

    /// The digest of a long key, and other bytes, have no parts.
    #[test]
    fn other_keys_have_none() {
        let mut name = vec![63];
        name.extend([b'a'; 63]);
        let name = [name.repeat(3), b"\x3d".to_vec(), vec![b'b'; 61], vec![0]].concat();
        assert_eq!(name.len(), 255);
        let mut key = KeyBuf::new();
        let message = query(&name);
        Query::read(&message, &mut key).unwrap();
        assert_eq!(Parts::of(key.finish(&extra(true, true, 1, 1))), None);
        let tail = [0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        for (name, tail) in [
            (&b""[..], tail),
            (b"\x01", tail),
            (b"\x01a", tail),
            (b"\x01a\0\0", tail),
            (b"\x01a\xc0\x0c", tail),
            (b"\x01a\xc0\0", tail),
            (b"\x01a\0", [0, 1, 0, 1, 4, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(Parts::of(&[name, &tail].concat()), None, "{name:?}");
        }
        assert!(Parts::of(&[b"\x01a\0", &tail[..]].concat()).is_some());
        assert_eq!(Parts::of(b"\0\x01"), None);
    }

    /// A name is within itself, within the zones above it, and within the root: by labels, not by
    /// bytes.
    #[test]
    fn zones_hold_names() {
        let name = b"\x01a\x01B\x02cd\0";
        for zone in [&b"\x01a\x01b\x02cd\0"[..], b"\x01b\x02CD\0", b"\x02cd\0", b"\0"] {
            assert!(is_within(name, zone), "{zone:?}");
        }
        for zone in [&b"\x01d\0"[..], b"\x01x\x02cd\0", b"\x01z\x01a\x01b\x02cd\0"] {
            assert!(!is_within(name, zone), "{zone:?}");
        }
        // The last bytes of this one label look like a zone's.
        assert!(!is_within(b"\x04\x02cd\0\0", b"\x02cd\0\0"));
        assert!(!is_within(b"\x01a\0", b"\0\0"));
    }

    /// Question and response code are read from a stored response. A value that is too short has
    /// neither.
    #[test]
    fn values_have_their_question() {
        let value = [&[0, 0, 0, 9, 0, 0, 0, 3][..], &query(b"\x01A\0")].concat();
        assert_eq!(question_of(&value), Some((&b"\x01A\0"[..], 28, 1)));
        assert_eq!(rcode_of(&value), Some(3));
        for length in 0..value.len() - 1 {
            let _ = question_of(&value[..length]);
        }
        assert_eq!((question_of(&value[..12]), rcode_of(&value[..7])), (None, None));
    }

    proptest! {
        /// No bytes make the readers panic, and the parts of a key give the same key.
        #[test]
        fn any_bytes(key in proptest::collection::vec(0u8..70, 0..60)) {
            if let Some(parts) = Parts::of(&key) {
                let again = [
                    parts.name,
                    &parts.qtype.to_be_bytes(),
                    &parts.qclass.to_be_bytes(),
                    &extra(parts.dnssec_ok, parts.checking_disabled, parts.view, parts.generation),
                ];
                prop_assert_eq!(again.concat(), key.clone());
            }
            let _ = (question_of(&key), rcode_of(&key), is_within(&key, &[1, 97, 0]));
        }
    }
}
