//! NetBIOS name service (RFC 1001, 1002; UDP port 137): the names that Windows and Samba hosts
//! give themselves.
//!
//! The format is that of DNS, except the name: 16 bytes, the last of which is the kind of service,
//! each byte written as two letters from `A` to `P` (RFC 1001, section 14.1).
//!
//! Used are a host's own messages (registration, refresh) and positive responses about it, and of
//! these only unique names of the kinds workstation and server: groups, users, browsers and so on
//! do not name a host.
//!
//! Bounds: as [`crate::dns`]. Cost: one walk over the records, no allocation.

use crate::Addr;
use crate::dns::{DnsError, Message, NameBuf, Record, class};
use crate::read::{slice_at, u16_at};

/// Record type NB: flags and address, once or several times.
const RTYPE_NB: u16 = 0x20;

/// Bytes of one flags-and-address pair.
const NB_ENTRY_BYTES: usize = 6;

/// NB_FLAGS: a group name (RFC 1002, section 4.2.1.3).
const NB_FLAG_GROUP: u16 = 0x8000;

/// Bytes of a name before its kind.
const NODE_NAME_BYTES: usize = 15;

/// Kinds of name that name a host.
const KIND_WORKSTATION: u8 = 0x00;
const KIND_SERVER: u8 = 0x20;

/// A host and an address that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host<'a> {
    /// The name in canonical spelling: lower case, no padding, no scope.
    pub name: &'a [u8],
    /// Its address.
    pub addr: Addr,
    /// How long the name is valid, seconds; 0 means "no end" in this protocol.
    pub ttl_s: u32,
}

/// Reads one datagram and calls `take` for each named host. Datagrams of other kinds (queries,
/// releases, failures) name no host and are no errors; hosts read before damage count.
pub fn hosts(payload: &[u8], mut take: impl FnMut(Host<'_>)) -> Result<(), DnsError> {
    let message = Message::parse(payload)?;
    if !names_somebody(&message) {
        return Ok(());
    }
    let mut name = NameBuf::new();
    let mut outcome = Ok(());
    for record in message.records() {
        let record = record?;
        if record.rtype != RTYPE_NB || record.class != class::IN {
            continue;
        }
        match read_node_name(payload, record.owner_offset, &mut name) {
            Ok(true) => outcome = outcome.and(take_entries(&message, &record, &name, &mut take)),
            Ok(false) => {}
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome
}

/// A host states its own name in requests to register (opcode 5, or 15 with several addresses) or
/// refresh (8; 9 in the RFC's other table). Responses count when they are positive, to a query (0)
/// or a registration (5).
fn names_somebody(message: &Message<'_>) -> bool {
    match message.opcode() {
        0 => message.is_response() && message.rcode() == 0,
        5 => message.rcode() == 0,
        8 | 9 | 15 => !message.is_response(),
        _ => false,
    }
}

/// Passes the addresses of one NB record to `take`.
fn take_entries(
    message: &Message<'_>,
    record: &Record,
    name: &NameBuf,
    take: &mut impl FnMut(Host<'_>),
) -> Result<(), DnsError> {
    let (entries, rest) = message.rdata(record).as_chunks::<NB_ENTRY_BYTES>();
    for &[flags_high, flags_low, a, b, c, d] in entries {
        let group = u16::from_be_bytes([flags_high, flags_low]) & NB_FLAG_GROUP != 0;
        if !group && [a, b, c, d] != [0; 4] {
            take(Host {
                name: name.as_bytes(),
                addr: Addr::v4([a, b, c, d]),
                ttl_s: record.ttl_s(),
            });
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(DnsError::RdataMalformed) }
}

/// Reads the first label at `offset` (which may be a pointer to it) as a node name. False where
/// it does not name a host.
fn read_node_name(message: &[u8], offset: usize, out: &mut NameBuf) -> Result<bool, DnsError> {
    let start = match u16_at(message, offset) {
        // One pointer, back to the question: RFC 1002 uses it for nothing else.
        Some(pointer) if pointer >= 0xc000 => usize::from(pointer & 0x3fff),
        _ => offset,
    };
    if start > offset {
        return Err(DnsError::PointerForward);
    }
    let Some(bytes) = decode_first_level(message, start) else {
        return Err(DnsError::LabelInvalid);
    };
    let [name @ .., kind] = &bytes;
    let end = name.iter().rposition(|&byte| byte != b' ' && byte != 0).map_or(0, |last| last + 1);
    let name = &name[..end];
    // Control bytes mark names of the protocol itself, such as `\x01\x02__MSBROWSE__\x02`; an
    // asterisk means "any name".
    let names_host = matches!(*kind, KIND_WORKSTATION | KIND_SERVER)
        && !name.is_empty()
        && name[0] != b'*'
        && name.iter().all(|&byte| byte >= b' ' && byte != 0x7f);
    out.clear();
    Ok(names_host && out.push_label(name))
}

/// Decodes 32 letters to 16 bytes.
fn decode_first_level(message: &[u8], start: usize) -> Option<[u8; NODE_NAME_BYTES + 1]> {
    let mut bytes = [0; NODE_NAME_BYTES + 1];
    if message.get(start) != Some(&32) {
        return None;
    }
    let (pairs, _) = slice_at(message, start + 1, 32)?.as_chunks::<2>();
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        let [high, low] = pair.map(|letter| letter.wrapping_sub(b'A'));
        if high > 15 || low > 15 {
            return None;
        }
        *byte = high << 4 | low;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A name on the wire: padded, with its kind, two letters a byte.
    fn encode(name: &[u8], kind: u8) -> Vec<u8> {
        let mut bytes = [b' '; 16];
        bytes[..name.len()].copy_from_slice(name);
        bytes[15] = kind;
        let mut out = vec![32];
        out.extend(bytes.iter().flat_map(|byte| [b'A' + (byte >> 4), b'A' + (byte & 15)]));
        out.push(0);
        out
    }

    /// A registration: the question, and the record that points back to its name.
    fn registration(name: &[u8], kind: u8, entries: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x80\x01\x29\x10\0\x01\0\0\0\0\0\x01".to_vec();
        bytes.extend(encode(name, kind));
        bytes.extend(b"\0\x20\0\x01\xc0\x0c\0\x20\0\x01\0\x04\x93\xe0");
        bytes.extend(u16::try_from(entries.len()).expect("short").to_be_bytes());
        bytes.extend(entries);
        bytes
    }

    fn read(bytes: &[u8]) -> (Vec<String>, Result<(), DnsError>) {
        let mut seen = Vec::new();
        let outcome = hosts(bytes, |host| {
            seen.push(format!("{} {} {}", host.name.escape_ascii(), host.addr, host.ttl_s));
        });
        (seen, outcome)
    }

    const ENTRY: &[u8] = b"\0\0\xc0\0\x02\x07";

    /// A registration names a host, in lower case and without the padding.
    #[test]
    fn registrations() {
        let named = vec!["my-pc 192.0.2.7 300000".to_owned()];
        for kind in [KIND_WORKSTATION, KIND_SERVER] {
            assert_eq!(read(&registration(b"MY-PC", kind, ENTRY)), (named.clone(), Ok(())));
        }
        let two = [ENTRY, b"\0\0\xc0\0\x02\x08"].concat();
        assert_eq!(read(&registration(b"MY-PC", 0x20, &two)).0.len(), 2, "a multihomed host");
    }

    /// A positive response has the name in the answer itself.
    #[test]
    fn responses() {
        let mut bytes = b"\x80\x01\x85\x80\0\0\0\x01\0\0\0\0".to_vec();
        bytes.extend(encode(b"FILES", KIND_SERVER));
        bytes.extend(b"\0\x20\0\x01\0\0\0\x3c\0\x06");
        bytes.extend(ENTRY);
        assert_eq!(read(&bytes), (vec!["files 192.0.2.7 60".to_owned()], Ok(())));
        bytes[3] |= 3;
        assert_eq!(read(&bytes), (vec![], Ok(())), "a negative one names nobody");
        let mut release = registration(b"MY-PC", 0, ENTRY);
        release[2] = 6 << 3;
        assert_eq!(read(&release), (vec![], Ok(())));
    }

    /// Groups, browsers, users and wildcards are not hosts.
    #[test]
    fn not_hosts() {
        let group = b"\x80\0\xc0\0\x02\x07";
        for (bytes, why) in [
            (registration(b"WORKGROUP", 0, group), "a group"),
            (registration(b"\x01\x02__MSBROWSE__\x02", 1, ENTRY), "the browser election"),
            (registration(b"\x01\x02__MSBROWSE__\x02", 0, ENTRY), "the same as a workstation"),
            (registration(b"ALICE", 3, ENTRY), "the messenger, thus a user"),
            (registration(b"MY-PC", 0x1b, ENTRY), "a domain master browser"),
            (registration(b"*", 0, ENTRY), "any name"),
            (registration(b"", 0, ENTRY), "no name"),
            (registration(b"MY-PC", 0, &[0; 6]), "no address"),
        ] {
            assert_eq!(read(&bytes), (vec![], Ok(())), "{why}");
        }
    }

    /// Damage is reported, and does not undo the entries before it.
    #[test]
    fn damage() {
        let long = [ENTRY, b"\0"].concat();
        let (seen, outcome) = read(&registration(b"MY-PC", 0, &long));
        assert_eq!((seen.len(), outcome), (1, Err(DnsError::RdataMalformed)));
        let mut letters = registration(b"MY-PC", 0, ENTRY);
        letters[20] = b'Q';
        assert_eq!(read(&letters), (vec![], Err(DnsError::LabelInvalid)));
        let whole = registration(b"MY-PC", 0, ENTRY);
        for cut in 0..whole.len() {
            assert_eq!(read(&whole[..cut]).0, Vec::<String>::new(), "cut at {cut}");
            assert!(read(&whole[..cut]).1.is_err(), "cut at {cut}");
        }
    }

    proptest! {
        /// No bytes make it panic, and a name is never empty and has no control byte.
        #[test]
        fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), opcode in 0u8..16) {
            if let Some(flags) = bytes.get_mut(2) {
                *flags = *flags & 0x87 | opcode << 3;
            }
            let _ = hosts(&bytes, |host| {
                assert!(!host.name.is_empty() && host.name.iter().all(|&byte| byte >= b' '));
            });
        }

        /// One byte changed never yields a name that is neither the old one nor spelled by the
        /// changed letters: at most one byte of it differs.
        #[test]
        fn one_byte_changed(at in 0usize..68, to in any::<u8>()) {
            let mut bytes = registration(b"MY-PC", 0, ENTRY);
            bytes[at] = to;
            let _ = hosts(&bytes, |host| {
                let padded = |name: &[u8]| {
                    let mut out = [b' '; 32];
                    out[..name.len()].copy_from_slice(name);
                    out
                };
                let mut bytes = host.name.iter().copied();
                let mut plain = Vec::new();
                while let Some(byte) = bytes.next() {
                    plain.extend(if byte == b'\\' { bytes.next() } else { Some(byte) });
                }
                let (ours, theirs) = (padded(b"my-pc"), padded(&plain));
                let differing = ours.iter().zip(theirs).filter(|(a, b)| **a != *b).count();
                assert!(differing <= 1, "{}", host.name.escape_ascii());
            });
        }
    }
}
