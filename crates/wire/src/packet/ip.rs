//! IPv4 (RFC 791) and IPv6 (RFC 8200) headers, extension headers, fragment fields.
//!
//! A total length of 0 is that of a packet that the network card segments later (TSO), and of an
//! IPv6 jumbogram (RFC 2675). The length is then that of the capture.

use super::transport::{self, ICMP, ICMPV6, SCTP, TCP, UDP};
use super::{EXTENSIONS_MAX, Fragment, Ip, Nest, Packet, Seen, Skip, Span, seen, tunnel};
use crate::Addr;
use crate::read::u16_at;
use crate::scope::Scope;

/// Protocol numbers that this module follows (IANA "Assigned Internet Protocol Numbers").
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const NO_NEXT_HEADER: u8 = 59;
const DESTINATION: u8 = 60;

const V4_BYTES: usize = 20;
const V6_BYTES: usize = 40;

/// An IPv4 packet at the span's start that is not a fragment and carries a whole TCP or UDP header.
#[inline(always)]
pub(super) fn plain_v4(frame: &[u8], span: Span, scope: Scope) -> Option<Packet> {
    let nest = Nest { scope, ..Nest::of(()) };
    let (ip, header) = v4_header(frame.get(span.at..span.end)?, span, nest).ok()?;
    if fragment_word(header) & FRAGMENT_MASK != 0 {
        return None;
    }
    transport::plain(frame, ip)
}

/// Like [`plain_v4`], for IPv6, whose extension headers are not plain.
#[inline(always)]
pub(super) fn plain_v6(frame: &[u8], span: Span, scope: Scope) -> Option<Packet> {
    let nest = Nest { scope, ..Nest::of(()) };
    transport::plain(frame, v6_header(frame.get(span.at..span.end)?, span, nest).ok()?)
}

/// Reads an IPv4 packet at the span's start, and all that is in it.
#[inline(never)]
pub(super) fn v4<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    seen::v4(span.bytes(frame), nest.seen);
    let (ip, header) = v4_header(span.bytes(frame), span, nest)?;
    let word = fragment_word(header);
    let offset = (word & 0x1fff) * 8;
    if word & FRAGMENT_MASK != 0 && !(S::LOOKS && offset == 0) {
        let id = u16::from_be_bytes([header[4], header[5]]);
        let more = word & 0x2000 != 0;
        return Ok(fragment(frame, ip.packet(), u32::from(id), offset, more));
    }
    payload(frame, ip.packet(), nest)
}

/// Reads an IPv6 packet at the span's start, and all that is in it.
#[inline(never)]
pub(super) fn v6<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    seen::v6(span.bytes(frame), nest.seen);
    payload(frame, v6_header(span.bytes(frame), span, nest)?.packet(), nest)
}

/// More fragments, and the offset.
const FRAGMENT_MASK: u16 = 0x3fff;

fn fragment_word(header: &[u8; V4_BYTES]) -> u16 {
    u16::from_be_bytes([header[6], header[7]])
}

/// `bytes` are those of the span.
#[inline(always)]
fn v4_header<S: Seen>(
    bytes: &[u8],
    span: Span,
    nest: Nest<S>,
) -> Result<(Ip, &[u8; V4_BYTES]), Skip> {
    let header: &[u8; V4_BYTES] = bytes.first_chunk().ok_or(Skip::IpTruncated)?;
    let header_len = usize::from(header[0] & 15) * 4;
    let total = match usize::from(u16::from_be_bytes([header[2], header[3]])) {
        0 => bytes.len(),
        total => total,
    };
    if header[0] >> 4 != 4
        || header_len < V4_BYTES
        || total < header_len
        || total > span.wire_end - span.at
    {
        return Err(Skip::IpMalformed);
    }
    if bytes.len() < header_len {
        return Err(Skip::IpTruncated);
    }
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    let ip = Ip {
        src: Addr::v4([s0, s1, s2, s3]),
        dst: Addr::v4([d0, d1, d2, d3]),
        protocol: header[9],
        ip_version: 4,
        ip_bytes: total as u32,
        payload_offset: (span.at + header_len) as u32,
        payload_len: (bytes.len().min(total) - header_len) as u32,
        payload_bytes: (total - header_len) as u32,
        tunnels: nest.tunnels,
        tunnel: nest.tunnel,
        scope: nest.scope,
    };
    Ok((ip, header))
}

/// The same for IPv6.
#[inline(always)]
fn v6_header<S: Seen>(bytes: &[u8], span: Span, nest: Nest<S>) -> Result<Ip, Skip> {
    let header: &[u8; V6_BYTES] = bytes.first_chunk().ok_or(Skip::IpTruncated)?;
    let protocol = header[6];
    let total = match usize::from(u16::from_be_bytes([header[4], header[5]])) {
        0 if protocol != NO_NEXT_HEADER => bytes.len(),
        len => V6_BYTES + len,
    };
    if header[0] >> 4 != 6 || total > span.wire_end - span.at {
        return Err(Skip::IpMalformed);
    }
    let (addresses, _) = header[8..].as_chunks::<16>();
    let [src, dst] = addresses else { return Err(Skip::IpTruncated) };
    Ok(Ip {
        src: Addr::v6(*src),
        dst: Addr::v6(*dst),
        protocol,
        ip_version: 6,
        ip_bytes: total as u32,
        payload_offset: (span.at + V6_BYTES) as u32,
        payload_len: (bytes.len().min(total) - V6_BYTES) as u32,
        payload_bytes: (total - V6_BYTES) as u32,
        tunnels: nest.tunnels,
        tunnel: nest.tunnel,
        scope: nest.scope,
    })
}

/// Reads IPv4 or IPv6, by the first nibble.
pub(super) fn any<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    match span.bytes(frame).first() {
        None => Err(Skip::IpTruncated),
        Some(first) if first >> 4 == 4 => v4(frame, span, nest),
        Some(first) if first >> 4 == 6 => v6(frame, span, nest),
        Some(_) => Err(Skip::IpMalformed),
    }
}

/// Reads the content of an IP packet: extension headers, then the transport or a tunnel. `packet`
/// has the addresses, and its payload is the IP payload, not fragmented.
#[inline(never)]
pub(super) fn payload<S: Seen>(
    frame: &[u8],
    mut packet: Packet,
    nest: Nest<S>,
) -> Result<Packet, Skip> {
    for _ in 0..=EXTENSIONS_MAX {
        match packet.protocol {
            UDP => {
                let packet = transport::read(frame, packet)?;
                return tunnel::in_udp(frame, packet, nest);
            }
            ICMP | ICMPV6 if S::LOOKS => return seen::icmp(frame, packet, nest),
            TCP | ICMP | ICMPV6 | SCTP => return transport::read(frame, packet),
            AUTHENTICATION => extension(frame, &mut packet, 4, 2, 12)?,
            HOP_BY_HOP | ROUTING | DESTINATION if packet.ip_version == 6 => {
                extension(frame, &mut packet, 8, 1, 8)?;
            }
            FRAGMENT if packet.ip_version == 6 => {
                if let Some(packet) = fragment_header(frame, &mut packet)?
                    && !(S::LOOKS && packet.fragment.is_some_and(|of| of.offset == 0))
                {
                    return Ok(packet);
                }
            }
            _ => return tunnel::in_ip(frame, packet, nest),
        }
    }
    Err(Skip::IpMalformed)
}

/// Steps over an extension header of at least `len_min` bytes, whose second byte counts units of
/// `unit` bytes less `bias` of them.
fn extension(
    frame: &[u8],
    packet: &mut Packet,
    unit: usize,
    bias: usize,
    len_min: usize,
) -> Result<(), Skip> {
    if (packet.payload_bytes as usize) < len_min {
        return Err(Skip::IpMalformed);
    }
    let bytes = Span::payload(packet).bytes(frame);
    let &[next, count] = bytes.first_chunk().ok_or(Skip::IpTruncated)?;
    let len = (usize::from(count) + bias) * unit;
    if len < len_min || len > packet.payload_bytes as usize {
        return Err(Skip::IpMalformed);
    }
    if len > bytes.len() {
        return Err(Skip::IpTruncated);
    }
    packet.protocol = next;
    packet.advance(len);
    Ok(())
}

/// Steps over an IPv6 fragment header. Returns the finished packet for a real fragment, and nothing
/// when a whole datagram follows the header (RFC 6946).
fn fragment_header(frame: &[u8], packet: &mut Packet) -> Result<Option<Packet>, Skip> {
    if packet.payload_bytes < 8 {
        return Err(Skip::IpMalformed);
    }
    let header: &[u8; 8] =
        Span::payload(packet).bytes(frame).first_chunk().ok_or(Skip::IpTruncated)?;
    let &[next, _, word0, word1, id @ ..] = header;
    let word = u16::from_be_bytes([word0, word1]);
    let id = u32::from_be_bytes(id);
    packet.protocol = next;
    packet.advance(8);
    if word & 0xfff9 == 0 {
        return Ok(None);
    }
    Ok(Some(fragment(frame, *packet, id, word & 0xfff8, word & 1 != 0)))
}

/// Finishes a packet that is a fragment: ports if this is the first one and holds them.
#[cold]
#[inline(never)]
fn fragment(frame: &[u8], mut packet: Packet, id: u32, offset: u16, more: bool) -> Packet {
    let fragment = Fragment {
        id,
        offset,
        more,
        data_offset: packet.payload_offset,
        data_len: packet.payload_len,
        data_bytes: packet.payload_bytes,
    };
    if offset == 0 {
        packet = transport::read(frame, packet).unwrap_or_else(|_| first_ports(frame, packet));
    }
    Packet { fragment: Some(fragment), ..packet }
}

/// A first fragment too short for its transport header is legal; the rest is yet to come.
fn first_ports(frame: &[u8], mut packet: Packet) -> Packet {
    let bytes = Span::payload(&packet).bytes(frame);
    if matches!(packet.protocol, TCP | UDP | SCTP) {
        packet.src_port = u16_at(bytes, 0).unwrap_or(0);
        packet.dst_port = u16_at(bytes, 2).unwrap_or(0);
    }
    packet.advance(packet.payload_bytes as usize);
    packet
}
