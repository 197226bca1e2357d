//! Padding (RFC 7830, RFC 8467): hides the lengths of messages.
//!
//! Queries are padded to a multiple of 128 bytes, responses to clients that pad to one of 468.
//! Padding is an option of the OPT record, which must be the last record of the message. Messages
//! of this server have it there; others stay as they are.
//!
//! Cost: a walk over the records of a message.

use larder_wire::dns::Message;
use larder_wire::dns::query::{KeyBuf, Query};
use larder_wire::dns::rtype;

/// Queries are padded to a multiple of this (RFC 8467, section 4.1).
pub const QUERY_BLOCK_BYTES: usize = 128;

/// Responses are padded to a multiple of this (RFC 8467, section 4.1).
pub const ANSWER_BLOCK_BYTES: usize = 468;

/// Number of the option (RFC 7830, section 3).
const PADDING: u16 = 12;

/// Number of edns-tcp-keepalive (RFC 7828), which QUIC forbids.
const KEEPALIVE: u16 = 11;

/// Bytes of an option's number and length.
const OPTION_HEAD_BYTES: usize = 4;

const MESSAGE_BYTES_MAX: usize = u16::MAX as usize;

/// Options of a query that concern its transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Wishes {
    /// It is padded, and so is its response.
    pub pads: bool,
    /// It has edns-tcp-keepalive.
    pub has_keepalive: bool,
}

/// Reads the wishes of a query; other messages have no wishes.
pub(crate) fn wishes(query: &[u8]) -> Wishes {
    let mut key = KeyBuf::new();
    let edns = Query::read(query, &mut key).ok().and_then(|query| query.edns);
    edns.map_or(Wishes::default(), |edns| Wishes {
        pads: edns.option(PADDING).is_some(),
        has_keepalive: edns.option(KEEPALIVE).is_some(),
    })
}

/// Pads a message to a multiple of `block_bytes`, or to the longest message. A message without OPT
/// record at its end stays as it is.
pub fn pad(message: &mut Vec<u8>, block_bytes: usize) {
    let Some(length_at) = opt_length_at(message) else { return };
    let whole = message.len() + OPTION_HEAD_BYTES;
    let padded = whole.next_multiple_of(block_bytes.max(1)).min(MESSAGE_BYTES_MAX);
    let Some(fill) = padded.checked_sub(whole) else { return };
    let before = u16::from_be_bytes([message[length_at], message[length_at + 1]]);
    let Ok(length) = u16::try_from(usize::from(before) + OPTION_HEAD_BYTES + fill) else { return };
    message[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    message.extend_from_slice(&PADDING.to_be_bytes());
    message.extend_from_slice(&(fill as u16).to_be_bytes());
    message.resize(padded, 0);
}

/// Where the length of the OPT record is, if that is the last record.
fn opt_length_at(message: &[u8]) -> Option<usize> {
    let parsed = Message::parse(message).ok()?;
    let last = parsed.records().last()?.ok()?;
    let is_last = last.rtype == rtype::OPT && last.rdata_end() == message.len();
    is_last.then(|| last.rdata_offset - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A query for example. with an OPT record of these options.
    fn query(options: &[u8]) -> Vec<u8> {
        let mut message = b"\0\0\x01\0\0\x01\0\0\0\0\0\x01\x07example\0\0\x01\0\x01".to_vec();
        message.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\0\0");
        message.extend_from_slice(&(options.len() as u16).to_be_bytes());
        message.extend_from_slice(options);
        message
    }

    /// A padded message of any length is a multiple of its block, reads as before, and states that
    /// it is padded.
    #[test]
    fn fills_up_to_a_block() {
        for length in 0..300u16 {
            let mut options = vec![0xff, 0xfe];
            options.extend_from_slice(&length.to_be_bytes());
            options.resize(4 + usize::from(length), 7);
            let plain = query(&options);
            let mut message = plain.clone();
            pad(&mut message, QUERY_BLOCK_BYTES);
            assert_eq!(message.len() % QUERY_BLOCK_BYTES, 0);
            assert!(message.len() < plain.len() + 4 + QUERY_BLOCK_BYTES);
            assert!(wishes(&message).pads && !wishes(&plain).pads);
            let mut key = KeyBuf::new();
            let edns = Query::read(&message, &mut key).unwrap().edns.unwrap();
            assert_eq!(edns.option(0xfffe).unwrap().len(), usize::from(length));
        }
    }

    /// A message without OPT record, with another record after it, or without room stays as it is.
    /// A message near the longest is padded to that.
    #[test]
    fn leaves_what_cannot_be_padded() {
        let without = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x07example\0\0\x01\0\x01".to_vec();
        let mut behind = query(b"");
        behind[11] = 2;
        behind.extend_from_slice(b"\0\0\x10\0\x01\0\0\0\0\0\0");
        let mut bytes_behind = query(b"");
        bytes_behind.push(0);
        let of_length = |bytes: usize| {
            let content = bytes - query(b"").len() - OPTION_HEAD_BYTES;
            let mut options = vec![0xff, 0xfe];
            options.extend_from_slice(&(content as u16).to_be_bytes());
            options.resize(OPTION_HEAD_BYTES + content, 7);
            query(&options)
        };
        let huge = of_length(MESSAGE_BYTES_MAX - 3);
        for message in [without, behind, bytes_behind, huge, vec![], vec![0; 11]] {
            let mut padded = message.clone();
            pad(&mut padded, ANSWER_BLOCK_BYTES);
            assert_eq!(padded, message);
        }
        let mut near = of_length(MESSAGE_BYTES_MAX - 10);
        pad(&mut near, ANSWER_BLOCK_BYTES);
        assert_eq!(near.len(), MESSAGE_BYTES_MAX);
        assert!(wishes(&near).pads);
    }

    /// Options are found in queries only.
    #[test]
    fn wishes_are_read() {
        let both = query(b"\0\x0c\0\x01\0\0\x0b\0\0");
        assert_eq!(wishes(&both), Wishes { pads: true, has_keepalive: true });
        let mut answer = both;
        answer[2] |= 0x80;
        assert_eq!(wishes(&answer), Wishes::default());
        assert_eq!(wishes(b""), Wishes::default());
    }
}
