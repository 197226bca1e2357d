//! Transport headers: TCP (RFC 9293), UDP (RFC 768), SCTP (RFC 9260), ICMP (RFC 792, RFC 4443).
//!
//! Each function reads the header at the IP payload, fills its fields in, and moves the payload
//! after it. [`plain`] does so for nearly all packets; [`read`] decides all cases, with the same
//! result for those.

use super::{Ip, Packet, Skip, Span, tunnel};
use crate::read::{u8_at, u16_at, u32_at};

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;
pub(super) const SCTP: u8 = 132;

const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const SCTP_BYTES: usize = 12;
/// Type, code, checksum, and the four bytes whose meaning the type decides.
const ICMP_BYTES: usize = 8;

/// The packet of a TCP or UDP header that is whole and valid, and that cannot be a tunnel's;
/// [`read`] decides all others.
#[inline(always)]
pub(super) fn plain(frame: &[u8], ip: Ip) -> Option<Packet> {
    match ip.protocol {
        TCP => plain_tcp(frame, ip),
        UDP => plain_udp(frame, ip),
        _ => None,
    }
}

#[inline(always)]
fn plain_tcp(frame: &[u8], ip: Ip) -> Option<Packet> {
    let header: &[u8; TCP_BYTES] = ip.header(frame)?;
    let header_len = u32::from(header[12] >> 4) * 4;
    if header_len < TCP_BYTES as u32 || header_len > ip.payload_bytes {
        return None;
    }
    let captured = header_len.min(ip.payload_len);
    Some(Packet {
        src_port: u16::from_be_bytes([header[0], header[1]]),
        dst_port: u16::from_be_bytes([header[2], header[3]]),
        tcp_seq: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        tcp_ack: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
        tcp_flags: header[13],
        tcp_window: u16::from_be_bytes([header[14], header[15]]),
        payload_offset: ip.payload_offset + captured,
        payload_len: ip.payload_len - captured,
        payload_bytes: ip.payload_bytes - header_len,
        ..ip.packet()
    })
}

#[inline(always)]
fn plain_udp(frame: &[u8], ip: Ip) -> Option<Packet> {
    const HEADER: u32 = UDP_BYTES as u32;
    let header: &[u8; UDP_BYTES] = ip.header(frame)?;
    let src_port = u16::from_be_bytes([header[0], header[1]]);
    let dst_port = u16::from_be_bytes([header[2], header[3]]);
    let udp_bytes = u32::from(u16::from_be_bytes([header[4], header[5]]));
    if udp_bytes < HEADER || tunnel::is_udp_port(src_port, dst_port) {
        return None;
    }
    // At least a header is in both arguments of each `min`.
    Some(Packet {
        src_port,
        dst_port,
        payload_offset: ip.payload_offset + HEADER,
        payload_len: ip.payload_len.min(udp_bytes) - HEADER,
        payload_bytes: ip.payload_bytes.min(udp_bytes) - HEADER,
        ..ip.packet()
    })
}

/// Reads the header that `packet.protocol` names; does nothing for protocols without ports.
pub(super) fn read(frame: &[u8], packet: Packet) -> Result<Packet, Skip> {
    match packet.protocol {
        TCP => tcp(frame, packet),
        UDP => udp(frame, packet),
        SCTP => ports(frame, packet, SCTP_BYTES),
        ICMP | ICMPV6 => icmp(frame, packet),
        _ => Ok(packet),
    }
}

/// TCP. Data offset and ports must make sense; a capture may end behind the flags.
fn tcp(frame: &[u8], mut packet: Packet) -> Result<Packet, Skip> {
    let bytes = Span::payload(&packet).bytes(frame);
    let header: &[u8; 14] = bytes.first_chunk().ok_or(Skip::TransportMalformed)?;
    let header_len = usize::from(header[12] >> 4) * 4;
    if header_len < TCP_BYTES || header_len > packet.payload_bytes as usize {
        return Err(Skip::TransportMalformed);
    }
    packet.src_port = u16_at(header, 0).unwrap_or(0);
    packet.dst_port = u16_at(header, 2).unwrap_or(0);
    packet.tcp_seq = u32_at(header, 4).unwrap_or(0);
    packet.tcp_ack = u32_at(header, 8).unwrap_or(0);
    packet.tcp_flags = header[13];
    packet.tcp_window = u16_at(bytes, 14).unwrap_or(0);
    packet.advance(header_len);
    Ok(packet)
}

/// UDP. A length past the end of the IP payload is clipped; one below the header's own size is
/// invalid, except 0 in IPv6, which a jumbogram has (RFC 2675, section 4). If the header is cut,
/// the IP header's length is used.
fn udp(frame: &[u8], mut packet: Packet) -> Result<Packet, Skip> {
    let bytes = Span::payload(&packet).bytes(frame);
    if let Some(header) = bytes.first_chunk::<UDP_BYTES>() {
        let udp_bytes = u32::from(u16::from_be_bytes([header[4], header[5]]));
        if udp_bytes >= UDP_BYTES as u32 {
            packet.payload_len = packet.payload_len.min(udp_bytes);
            packet.payload_bytes = packet.payload_bytes.min(udp_bytes);
        } else if udp_bytes != 0 || packet.ip_version != 6 {
            return Err(Skip::TransportMalformed);
        }
    }
    ports(frame, packet, UDP_BYTES)
}

/// A header of which the two ports at its start must have been captured, and no more.
fn ports(frame: &[u8], mut packet: Packet, header_len: usize) -> Result<Packet, Skip> {
    let bytes = Span::payload(&packet).bytes(frame);
    let (Some(src_port), Some(dst_port)) = (u16_at(bytes, 0), u16_at(bytes, 2)) else {
        return Err(Skip::TransportMalformed);
    };
    if (packet.payload_bytes as usize) < header_len {
        return Err(Skip::TransportMalformed);
    }
    packet.src_port = src_port;
    packet.dst_port = dst_port;
    packet.advance(header_len);
    Ok(packet)
}

fn icmp(frame: &[u8], mut packet: Packet) -> Result<Packet, Skip> {
    let bytes = Span::payload(&packet).bytes(frame);
    let (Some(kind), Some(code)) = (u8_at(bytes, 0), u8_at(bytes, 1)) else {
        return Err(Skip::TransportMalformed);
    };
    if packet.payload_bytes < 4 {
        return Err(Skip::TransportMalformed);
    }
    packet.src_port = u16::from(kind);
    packet.dst_port = u16::from(code);
    packet.advance(ICMP_BYTES);
    Ok(packet)
}
