//! dnstap: the content of one frame about a DNS message that a server saw.
//!
//! The content of a frame is one protobuf message (dnstap.proto of dnstap.info). The parser reads
//! the fields for client, server, time and messages. It passes over a frame's fields once and
//! borrows from it; a field that overruns its frame makes that frame damaged. Nothing is allocated.

use crate::Addr;

/// One exchange in dnstap. "Client" is the sender of the query in this exchange (for `RESOLVER_*`
/// messages that is the resolver itself).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    /// Message type of dnstap.proto: odd ones are queries, even ones responses; 6 is
    /// CLIENT_RESPONSE.
    pub kind: u32,
    /// The transport, as dnstap.proto numbers it: 1 is UDP, 2 TCP, 3 DoT, 4 DoH; 0 if not stated.
    pub protocol: u32,
    /// The client.
    pub client: Option<Addr>,
    /// The server.
    pub server: Option<Addr>,
    /// Port of the client.
    pub client_port: Option<u16>,
    /// Port of the server.
    pub server_port: Option<u16>,
    /// When the query was seen, ns since 1970 UTC.
    pub query_time_ns: Option<i64>,
    /// When the response was seen, ns since 1970 UTC.
    pub response_time_ns: Option<i64>,
    /// The query in wire form.
    pub query: Option<&'a [u8]>,
    /// The response in wire form.
    pub response: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// Reads the content of a frame; `None` if it is damaged or not a message about DNS.
    pub fn parse(frame: &'a [u8]) -> Option<Message<'a>> {
        let mut message = None;
        let mut kind = 0;
        walk(frame, |field, value| match (field, value) {
            (14, Field::Bytes(inner)) => message = Some(inner),
            (15, Field::Number(number)) => kind = number,
            _ => {}
        })?;
        // Type 1 is MESSAGE, the only one there is.
        if kind == 1 { Message::parse_inner(message?) } else { None }
    }

    fn parse_inner(bytes: &'a [u8]) -> Option<Message<'a>> {
        let mut message = Message::default();
        let (mut query_s, mut query_ns) = (None, 0);
        let (mut response_s, mut response_ns) = (None, 0);
        walk(bytes, |field, value| match (field, value) {
            (1, Field::Number(kind)) => message.kind = u32::try_from(kind).unwrap_or(0),
            (3, Field::Number(protocol)) => {
                message.protocol = u32::try_from(protocol).unwrap_or(0);
            }
            (4, Field::Bytes(bytes)) => message.client = addr(bytes),
            (5, Field::Bytes(bytes)) => message.server = addr(bytes),
            (6, Field::Number(port)) => message.client_port = u16::try_from(port).ok(),
            (7, Field::Number(port)) => message.server_port = u16::try_from(port).ok(),
            (8, Field::Number(seconds)) => query_s = Some(seconds),
            (9, Field::Number(ns)) => query_ns = ns,
            (10, Field::Bytes(bytes)) => message.query = Some(bytes),
            (12, Field::Number(seconds)) => response_s = Some(seconds),
            (13, Field::Number(ns)) => response_ns = ns,
            (14, Field::Bytes(bytes)) => message.response = Some(bytes),
            _ => {}
        })?;
        message.query_time_ns = query_s.and_then(|seconds| time_ns(seconds, query_ns));
        message.response_time_ns = response_s.and_then(|seconds| time_ns(seconds, response_ns));
        Some(message)
    }
}

/// Reads an address; `None` for `0.0.0.0` and `::`, which unbound writes if it does not know its
/// own address.
fn addr(bytes: &[u8]) -> Option<Addr> {
    if bytes.iter().all(|&byte| byte == 0) {
        return None;
    }
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Addr::v4(v4));
    }
    Some(Addr::v6(<[u8; 16]>::try_from(bytes).ok()?))
}

fn time_ns(seconds: u64, ns: u64) -> Option<i64> {
    let ns = i64::try_from(ns).ok().filter(|ns| *ns < 1_000_000_000)?;
    i64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// A protobuf field's value: numbers of any width, or bytes.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Calls `each` with the number and value of every field; `None` if a field overruns `bytes` or is
/// of a kind that current proto2 files do not have (groups).
fn walk<'a>(mut bytes: &'a [u8], mut each: impl FnMut(u64, Field<'a>)) -> Option<()> {
    while !bytes.is_empty() {
        let (tag, rest) = varint(bytes)?;
        let value;
        (value, bytes) = match tag & 7 {
            0 => {
                let (number, rest) = varint(rest)?;
                (Field::Number(number), rest)
            }
            1 => {
                let (raw, rest) = rest.split_first_chunk::<8>()?;
                (Field::Number(u64::from_le_bytes(*raw)), rest)
            }
            2 => {
                let (length, rest) = varint(rest)?;
                let (content, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                (Field::Bytes(content), rest)
            }
            5 => {
                let (raw, rest) = rest.split_first_chunk::<4>()?;
                (Field::Number(u64::from(u32::from_le_bytes(*raw))), rest)
            }
            _ => return None,
        };
        each(tag >> 3, value);
    }
    Some(())
}

/// A number in groups of seven bits, the lowest first; ten bytes at most.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (position, &byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * position);
        if byte < 0x80 {
            return Some((number, &bytes[position + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Fields that overrun their frame, groups and endless numbers are damage.
    #[test]
    fn bad_messages() {
        for bad in
            [&b"\x72\x7f"[..], b"\x73", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x08"]
        {
            assert_eq!(Message::parse(bad), None, "{bad:?}");
        }
        // A message without a type is no message; one with neither field is an empty one.
        assert_eq!(Message::parse(b"\x72\x00"), None);
        assert_eq!(Message::parse(b"\x72\x00\x78\x01"), Some(Message::default()));
    }

    proptest! {
        /// No bytes make the reader panic.
        #[test]
        fn noise_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Message::parse(&noise);
            let _ = Message::parse_inner(&noise);
        }
    }
}
