//! Link layers, and headers between a link layer and IP: VLAN tags, MPLS labels, PPPoE.

use super::{Nest, Packet, Seen, Skip, Span, ip, seen};
use crate::read::{u8_at, u16_at};

/// LINKTYPE_ numbers (<https://www.tcpdump.org/linktypes.html>).
const NULL: u16 = 0;
pub(super) const ETHERNET: u16 = 1;
const PPP: u16 = 9;
const PPP_HDLC: u16 = 50;
const PPP_ETHER: u16 = 51;
const C_HDLC: u16 = 104;
const LOOP: u16 = 108;
const LINUX_SLL: u16 = 113;
const LINUX_SLL2: u16 = 276;

/// EtherTypes (IANA "IEEE 802 Numbers"). A value below 1536 is a length (IEEE 802.3).
pub(super) const TYPE_IPV4: u16 = 0x0800;
pub(super) const TYPE_IPV6: u16 = 0x86dd;
const TYPE_ARP: u16 = 0x0806;
const TYPE_RARP: u16 = 0x8035;
const TYPE_ETHERNET: u16 = 0x6558;
pub(super) const TYPE_VLAN: u16 = 0x8100;
const TYPE_VLAN_SERVICE: u16 = 0x88a8;
const TYPE_VLAN_9100: u16 = 0x9100;
const TYPE_VLAN_9200: u16 = 0x9200;
const TYPE_MPLS: u16 = 0x8847;
const TYPE_MPLS_MULTICAST: u16 = 0x8848;
const TYPE_PPPOE_SESSION: u16 = 0x8864;
const TYPE_MIN: u16 = 0x0600;

pub(super) const ETHERNET_BYTES: usize = 14;
pub(super) const VLAN_BYTES: usize = 4;

/// Hardware types in SLL headers whose protocol field is not an EtherType (Linux `if_arp.h`).
const ARPHRD_NETLINK: u16 = 824;

/// Decodes a frame from its link header on: the way for all that is not plain.
#[inline(never)]
pub(super) fn decode<S: Seen>(link_type: u16, frame: &[u8], seen: S) -> Result<Packet, Skip> {
    let span = Span { at: 0, end: frame.len(), wire_end: usize::MAX };
    let nest = Nest::of(seen);
    match link_type {
        ETHERNET => ethernet(frame, span, nest),
        // Raw IP: LINKTYPE_RAW, the numbers that some systems write for it, and those of one
        // version only.
        12 | 14 | 101 | 228 | 229 => ip::any(frame, span, nest),
        NULL | LOOP => loopback(frame, span, nest),
        PPP | PPP_HDLC | C_HDLC => hdlc(frame, span, nest),
        PPP_ETHER => pppoe(frame, span, nest),
        LINUX_SLL => sll(frame, span, nest, 14, 2, 16),
        LINUX_SLL2 => sll(frame, span, nest, 0, 8, 20),
        _ => Err(Skip::UnknownLinkType(link_type)),
    }
}

/// Ethernet (and IEEE 802.3) from the destination address on.
pub(super) fn ethernet<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    let kind = u16_at(span.bytes(frame), 12).ok_or(Skip::LinkTruncated)?;
    typed(frame, span.skip(ETHERNET_BYTES, Skip::LinkTruncated)?, kind, nest)
}

/// Reads the layer of an EtherType.
pub(super) fn typed<S: Seen>(
    frame: &[u8],
    span: Span,
    ether_type: u16,
    nest: Nest<S>,
) -> Result<Packet, Skip> {
    match ether_type {
        TYPE_IPV4 => ip::v4(frame, span, nest),
        TYPE_IPV6 => ip::v6(frame, span, nest),
        TYPE_VLAN | TYPE_VLAN_SERVICE | TYPE_VLAN_9100 | TYPE_VLAN_9200 => {
            let bytes = span.bytes(frame);
            let kind = u16_at(bytes, 2).ok_or(Skip::LinkTruncated)?;
            let nest = nest.tagged(u16_at(bytes, 0).ok_or(Skip::LinkTruncated)?)?;
            typed(frame, span.skip(VLAN_BYTES, Skip::LinkTruncated)?, kind, nest)
        }
        TYPE_MPLS | TYPE_MPLS_MULTICAST => mpls(frame, span, nest),
        TYPE_PPPOE_SESSION => pppoe(frame, span, nest.deeper()?),
        TYPE_ETHERNET => ethernet(frame, span, nest.deeper()?),
        0..TYPE_MIN => llc(frame, span, nest),
        other => {
            if matches!(other, TYPE_ARP | TYPE_RARP) {
                seen::arp(span.bytes(frame), nest.seen);
            }
            Err(Skip::NotIp(other))
        }
    }
}

/// IEEE 802.2: only SNAP with an EtherType (RFC 1042) carries IP, and the rare SAP 6.
fn llc<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    match span.bytes(frame) {
        [0xaa, 0xaa, 0x03, 0, 0, 0, high, low, ..] => {
            let kind = u16::from_be_bytes([*high, *low]);
            typed(frame, span.skip(8, Skip::LinkTruncated)?, kind, nest.deeper()?)
        }
        [0x06, 0x06, 0x03, ..] => ip::any(frame, span.skip(3, Skip::LinkTruncated)?, nest),
        _ => Err(Skip::NotIp(0)),
    }
}

/// BSD loopback: an address family in the byte order of the capturing machine.
fn loopback<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    let raw: &[u8; 4] = span.bytes(frame).first_chunk().ok_or(Skip::LinkTruncated)?;
    let span = span.skip(4, Skip::LinkTruncated)?;
    match u32::from_le_bytes(*raw).min(u32::from_be_bytes(*raw)) {
        2 => ip::v4(frame, span, nest),
        // Linux and Windows; NetBSD and OpenBSD; FreeBSD; Darwin.
        10 | 23 | 24 | 28 | 30 => ip::v6(frame, span, nest),
        _ => Err(Skip::NotIp(0)),
    }
}

/// PPP with or without HDLC address and control, or Cisco HDLC, by the first byte.
pub(super) fn hdlc<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    match span.bytes(frame) {
        [0xff, 0x03, ..] => ppp(frame, span.skip(2, Skip::LinkTruncated)?, nest),
        [0x0f | 0x8f, _, high, low, ..] => {
            let kind = u16::from_be_bytes([*high, *low]);
            typed(frame, span.skip(4, Skip::LinkTruncated)?, kind, nest)
        }
        _ => ppp(frame, span, nest),
    }
}

/// PPP from the protocol field on (RFC 1661); an odd first byte is a field compressed to one.
pub(super) fn ppp<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    let bytes = span.bytes(frame);
    let first = u8_at(bytes, 0).ok_or(Skip::LinkTruncated)?;
    let (protocol, len) = match first & 1 {
        1 => (u16::from(first), 1),
        _ => (u16_at(bytes, 0).ok_or(Skip::LinkTruncated)?, 2),
    };
    let span = span.skip(len, Skip::LinkTruncated)?;
    match protocol {
        0x0021 => ip::v4(frame, span, nest),
        0x0057 => ip::v6(frame, span, nest),
        0x0281 | 0x0283 => mpls(frame, span, nest),
        _ => Err(Skip::NotIp(0)),
    }
}

/// PPPoE session (RFC 2516) from its header on.
fn pppoe<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    match span.bytes(frame) {
        [0x11, 0, _, _, _, _, ..] => ppp(frame, span.skip(6, Skip::LinkTruncated)?, nest),
        [0x11, 0, ..] | [0x11] | [] => Err(Skip::LinkTruncated),
        _ => Err(Skip::NotIp(TYPE_PPPOE_SESSION)),
    }
}

/// Linux cooked captures, v1 and v2: the places of protocol and hardware type, and the size.
fn sll<S: Seen>(
    frame: &[u8],
    span: Span,
    nest: Nest<S>,
    protocol_at: usize,
    hardware_at: usize,
    header_len: usize,
) -> Result<Packet, Skip> {
    let bytes = span.bytes(frame);
    let inside = span.skip(header_len, Skip::LinkTruncated)?;
    if u16_at(bytes, hardware_at) == Some(ARPHRD_NETLINK) {
        return Err(Skip::NotIp(0));
    }
    let protocol = u16_at(bytes, protocol_at).ok_or(Skip::LinkTruncated)?;
    typed(frame, inside, protocol, nest)
}

/// An MPLS label stack (RFC 3032). No field states what follows the last label: IP shows by its
/// version, an Ethernet pseudowire by an EtherType at the right place, with a control word (RFC
/// 4448, first nibble 0) or without.
pub(super) fn mpls<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    let (mut span, mut nest) = (span, nest);
    loop {
        let bottom = u8_at(span.bytes(frame), 2).ok_or(Skip::LinkTruncated)? & 1 == 1;
        span = span.skip(4, Skip::LinkTruncated)?;
        nest = nest.deeper()?;
        if bottom {
            break;
        }
    }
    let bytes = span.bytes(frame);
    let first = u8_at(bytes, 0).ok_or(Skip::LinkTruncated)?;
    let known_type_at = |offset| u16_at(bytes, offset).is_some_and(is_known_type);
    match first >> 4 {
        4 if !known_type_at(12) || has_v4_checksum(bytes) => ip::v4(frame, span, nest),
        6 if !known_type_at(12) || has_v6_length(bytes) => ip::v6(frame, span, nest),
        0 if known_type_at(16) => ethernet(frame, span.skip(4, Skip::LinkTruncated)?, nest),
        _ if known_type_at(12) => ethernet(frame, span, nest),
        _ => Err(Skip::NotIp(TYPE_MPLS)),
    }
}

/// True for an IPv4 header with a valid checksum. It decides about 8.0.0.0/16, which is ambiguous:
/// that source address is where Ethernet would have the EtherType of IPv4.
fn has_v4_checksum(bytes: &[u8]) -> bool {
    let Some(first) = bytes.first() else { return false };
    let Some(header) = bytes.get(..usize::from(first & 15) * 4) else { return false };
    let (words, _) = header.as_chunks::<2>();
    let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    header.len() >= 20 && (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// True when an IPv6 header is here whose length is that of the frame, Ethernet padding aside.
fn has_v6_length(bytes: &[u8]) -> bool {
    let Some(len) = u16_at(bytes, 4) else { return false };
    let ip_bytes = 40 + usize::from(len);
    (ip_bytes..=ip_bytes + 46).contains(&bytes.len())
}

/// EtherTypes that make an Ethernet header before them plausible.
fn is_known_type(ether_type: u16) -> bool {
    matches!(
        ether_type,
        TYPE_IPV4
            | TYPE_IPV6
            | TYPE_ARP
            | TYPE_VLAN
            | TYPE_VLAN_SERVICE
            | TYPE_MPLS
            | TYPE_PPPOE_SESSION
    )
}
