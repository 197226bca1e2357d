//! Long headers and variable-length integers (RFC 9000, sections 16 and 17.2).

/// Longest connection ID of the versions read here.
const CONNECTION_ID_BYTES_MAX: usize = 20;

/// Bytes behind the start of the packet number that header protection needs: four, and a sample
/// of sixteen (RFC 9001, section 5.4.2).
const PROTECTED_BYTES_MIN: usize = 20;

/// Versions whose Initial packets we open: those that differ in their keys or their frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// RFC 9000; the last two drafts differ in the number only.
    V1,
    /// RFC 9369.
    V2,
    /// Drafts 29 to 32, which share a salt.
    Draft29,
    /// Drafts 23 to 28, which share a salt; Facebook's mvfst of that time.
    Draft23,
    /// Draft 22, and an older mvfst.
    Draft22,
    /// Google QUIC with TLS.
    T051,
    /// Google QUIC with TLS, older.
    T050,
    /// Google QUIC with its own handshake, in sealed Initial packets.
    Q050,
}

impl Version {
    fn from_number(number: u32) -> Option<Version> {
        match number {
            0x0000_0001 | 0xff00_0021..=0xff00_0022 => Some(Version::V1),
            0x6b33_43cf => Some(Version::V2),
            0xff00_001d..=0xff00_0020 => Some(Version::Draft29),
            // 0xface_b00e is an experiment of mvfst.
            0xff00_0017..=0xff00_001c | 0xface_b002 | 0xface_b00e => Some(Version::Draft23),
            0xff00_0016 | 0xface_b001 => Some(Version::Draft22),
            0x5430_3531 => Some(Version::T051),
            0x5430_3530 => Some(Version::T050),
            0x5130_3530 => Some(Version::Q050),
            _ => None,
        }
    }

    /// Its Initial packets hold Google's frames.
    pub(super) fn has_google_frames(self) -> bool {
        matches!(self, Version::T051 | Version::T050 | Version::Q050)
    }
}

/// True for the long header of a version that exists to make servers negotiate (RFC 9000, section
/// 15): the client will send another one.
pub(super) fn forces_negotiation(bytes: &[u8]) -> bool {
    match bytes.first_chunk::<5>() {
        Some(&[first, ref version @ ..]) => {
            let version: [u8; 4] = *version;
            first & 0xc0 == 0xc0 && u32::from_be_bytes(version) & 0x0f0f_0f0f == 0x0a0a_0a0a
        }
        None => false,
    }
}

/// Packets that have a long header and a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Initial,
    ZeroRtt,
    Handshake,
}

/// The parts of a long header that are not protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header<'a> {
    pub(super) version: Version,
    pub(super) kind: Kind,
    pub(super) destination_id: &'a [u8],
    /// Offset of the packet number in the packet.
    pub(super) packet_number_at: usize,
    /// Bytes of the packet with its header; the next packet begins after them.
    pub(super) packet_bytes: usize,
}

/// Reads the header at the start of `bytes`. `None` for packets without a length: short headers,
/// Retry, Version Negotiation, other versions, and packets that do not fit.
pub(super) fn parse(bytes: &[u8]) -> Option<Header<'_>> {
    let (&first, rest) = bytes.split_first()?;
    if first & 0xc0 != 0xc0 {
        return None;
    }
    let (number, rest) = rest.split_first_chunk()?;
    let version = Version::from_number(u32::from_be_bytes(*number))?;
    let kind = match (version, (first >> 4) & 3) {
        (Version::V2, 1) => Kind::Initial,
        (Version::V2, 2) => Kind::ZeroRtt,
        (Version::V2, 3) => Kind::Handshake,
        (Version::V2, _) => return None,
        (_, 0) => Kind::Initial,
        (_, 1) => Kind::ZeroRtt,
        (_, 2) => Kind::Handshake,
        _ => return None,
    };
    let (destination_id, rest) = connection_id(rest)?;
    let (_source_id, mut rest) = connection_id(rest)?;
    if kind == Kind::Initial {
        let (token_bytes, behind) = varint(rest)?;
        rest = behind.get(usize::try_from(token_bytes).ok()?..)?;
    }
    let (length, rest) = varint(rest)?;
    let length = usize::try_from(length).ok()?;
    if length > rest.len() || length < PROTECTED_BYTES_MIN {
        return None;
    }
    let packet_number_at = bytes.len() - rest.len();
    let packet_bytes = packet_number_at + length;
    Some(Header { version, kind, destination_id, packet_number_at, packet_bytes })
}

fn connection_id(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    let length = usize::from(length);
    if length > CONNECTION_ID_BYTES_MAX { None } else { rest.split_at_checked(length) }
}

/// A variable-length integer, and the bytes after it. Its first two bits state the length.
#[inline]
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (&first, _) = bytes.split_first()?;
    let (raw, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let value = raw.iter().fold(0, |value, &byte| (value << 8) | u64::from(byte));
    Some((value & (u64::MAX >> (66 - 8 * raw.len())), rest))
}
