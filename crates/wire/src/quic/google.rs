//! The hello of Google QUIC before it had TLS: a message `CHLO` of tagged values, one of which is
//! the server name (the versions that were in use, Q024 to Q046 and Q050; Google's "QUIC Crypto").
//!
//! Up to Q046 it is not encrypted: a public header, a hash, and one STREAM frame, always in one
//! datagram, which the client fills to at least 1000 bytes.
//!
//! Bounds: one pass over at most `TAGS_MAX` tags.

use std::borrow::Cow;

use super::Initial;
use crate::tls::{ClientHello, HELLO_BYTES_MAX};

/// Most tags that are read; clients send about 25.
const TAGS_MAX: usize = 128;

/// The frame with the message begins this far behind the header, at most: padding, an ACK frame.
const FRAME_SEARCH_BYTES: usize = 32;

const MESSAGE: &[u8; 4] = b"CHLO";
const SERVER_NAME: &[u8; 4] = b"SNI\0";
const HASH_BYTES: usize = 12;

/// True when the datagram has the public header of a client that states one of these versions.
pub(super) fn is_plain(datagram: &[u8]) -> bool {
    header_bytes(datagram).is_some()
}

/// Bytes before the first frame: header, packet number, hash.
fn header_bytes(datagram: &[u8]) -> Option<usize> {
    let &first = datagram.first()?;
    let is_version = |at: usize| {
        datagram.get(at..at + 4).is_some_and(|version| match version {
            [b'Q', b'0', tens, ones] => tens.is_ascii_digit() && ones.is_ascii_digit(),
            _ => false,
        })
    };
    // Q044 to Q046: a long header, whose connection ID has eight bytes; four of packet number.
    if first & 0x80 != 0 {
        let is_long = is_version(1) && datagram.get(5) == Some(&0x50);
        return is_long.then_some(1 + 4 + 1 + 8 + 4 + HASH_BYTES);
    }
    // Before: flags for the version, for a connection ID of eight bytes, and for the packet
    // number's length. The rest must be zero in a client's packet.
    const FLAG_VERSION: u8 = 0x01;
    const FLAG_ID: u8 = 0x08;
    if first & FLAG_VERSION == 0 || first & FLAG_ID == 0 || first & 0x42 != 0 || !is_version(9) {
        return None;
    }
    let number_bytes = [1, 2, 4, 6][usize::from(first >> 4 & 3)];
    Some(1 + 8 + 4 + number_bytes + HASH_BYTES)
}

/// Reads the hello of a datagram that [`is_plain`].
pub(super) fn in_datagram(datagram: &[u8]) -> Initial<'_> {
    let frames = header_bytes(datagram).and_then(|at| datagram.get(at..)).unwrap_or_default();
    let near = &frames[..frames.len().min(FRAME_SEARCH_BYTES)];
    match near.windows(MESSAGE.len()).position(|window| window == MESSAGE) {
        Some(at) => match hello(&frames[at..]) {
            // No more bytes will come.
            Initial::NeedMore => Initial::Malformed,
            found => found,
        },
        None => Initial::NotQuic,
    }
}

/// Reads a message from its tag on: a count of values; for each a tag and where it ends; the
/// values.
pub(super) fn hello(message: &[u8]) -> Initial<'_> {
    let Some((start, rest)) = message.split_first_chunk::<8>() else {
        let is_start = MESSAGE.starts_with(&message[..message.len().min(MESSAGE.len())]);
        return if is_start { Initial::NeedMore } else { Initial::Malformed };
    };
    let &[c, h, l, o, low, high, ..] = start;
    let count = usize::from(u16::from_le_bytes([low, high]));
    if [c, h, l, o] != *MESSAGE || count > TAGS_MAX {
        return Initial::Malformed;
    }
    let Some((index, values)) = rest.split_at_checked(8 * count) else { return Initial::NeedMore };
    let mut begin = 0;
    let mut server_name = None;
    for entry in index.chunks_exact(8) {
        let (tag, end) = entry.split_at(4);
        let end = end.iter().rev().fold(0, |end, &byte| end << 8 | usize::from(byte));
        if end < begin || end > HELLO_BYTES_MAX {
            return Initial::Malformed;
        }
        if tag == SERVER_NAME && end > begin {
            let Some(value) = values.get(begin..end) else { return Initial::NeedMore };
            server_name = Some(Cow::Borrowed(value));
            break;
        }
        begin = end;
    }
    Initial::Found(ClientHello { server_name, ..ClientHello::default() })
}
