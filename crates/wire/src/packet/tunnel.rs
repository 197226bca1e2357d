//! Tunnels: IP in IP, GRE, ERSPAN, VXLAN, Geneve, GTP-U, Teredo, L2TP version 2, MPLS in UDP.
//!
//! None of this is on the hot path. By rule 1 of [`super`], unless there is a whole inner packet
//! the outer packet is the result, so the errors made here never reach a caller.

use super::{Nest, Packet, Seen, Skip, Span, Tunnel, ip, link};
use crate::read::{u8_at, u16_at, u32_at};

/// UDP ports (IANA "Service Name and Port Number Registry"); Linux used 8472 for VXLAN before there
/// was a number.
const VXLAN_PORT: u16 = 4789;
const VXLAN_LINUX_PORT: u16 = 8472;
const GENEVE_PORT: u16 = 6081;
const GTP_U_PORT: u16 = 2152;
const TEREDO_PORT: u16 = 3544;
const VXLAN_GPE_PORT: u16 = 4790;
const GRE_PORT: u16 = 4754;
const MPLS_PORT: u16 = 6635;
const L2TP_PORT: u16 = 1701;

/// IP protocol numbers.
const IPV4: u8 = 4;
const IPV6: u8 = 41;
const GRE: u8 = 47;

/// Values of the GRE protocol field that mean something else than their EtherType.
const GRE_PPP: u16 = 0x880b;
const GRE_ERSPAN: u16 = 0x88be;
const GRE_ERSPAN_III: u16 = 0x22eb;

/// Most extension headers of a GTP-U packet that are followed.
const GTP_EXTENSIONS_MAX: usize = 16;

/// True when the ports of a UDP packet may mean a tunnel.
///
/// VXLAN, Geneve, GRE and MPLS spread flows over source ports, so only the destination is checked;
/// GTP-U, Teredo and L2TP respond from the well-known port.
#[inline(always)]
pub(super) fn is_udp_port(src_port: u16, dst_port: u16) -> bool {
    matches!(
        dst_port,
        VXLAN_PORT
            | VXLAN_GPE_PORT
            | VXLAN_LINUX_PORT
            | GENEVE_PORT
            | GRE_PORT
            | MPLS_PORT
            | GTP_U_PORT
            | TEREDO_PORT
            | L2TP_PORT
    ) || matches!(src_port, GTP_U_PORT | TEREDO_PORT | L2TP_PORT)
}

/// The packet inside a UDP tunnel, or else `outer` itself.
pub(super) fn in_udp<S: Seen>(frame: &[u8], outer: Packet, nest: Nest<S>) -> Result<Packet, Skip> {
    let span = Span::payload(&outer);
    let inner = match (outer.src_port, outer.dst_port) {
        (_, VXLAN_PORT | VXLAN_LINUX_PORT) => vxlan(frame, span, nest),
        (_, VXLAN_GPE_PORT) => vxlan_gpe(frame, span, nest),
        (_, GENEVE_PORT) => geneve(frame, span, nest),
        // GRE (RFC 8086) and MPLS (RFC 7510) as they are elsewhere.
        (_, GRE_PORT) => gre(frame, span, nest),
        (_, MPLS_PORT) => {
            nest.enter(Tunnel::MplsInUdp).and_then(|nest| link::mpls(frame, span, nest))
        }
        (GTP_U_PORT, _) | (_, GTP_U_PORT) => gtp_u(frame, span, nest),
        (TEREDO_PORT, _) | (_, TEREDO_PORT) => teredo(frame, span, nest),
        (L2TP_PORT, _) | (_, L2TP_PORT) => l2tp(frame, span, nest),
        _ => return Ok(outer),
    };
    inner_or_outer(inner, outer)
}

/// The packet inside another IP packet by its protocol number, or else `outer` itself.
pub(super) fn in_ip<S: Seen>(frame: &[u8], outer: Packet, nest: Nest<S>) -> Result<Packet, Skip> {
    let span = Span::payload(&outer);
    let inner = match (outer.protocol, outer.ip_version) {
        (IPV4, _) => nest.enter(Tunnel::IpInIp).and_then(|nest| ip::v4(frame, span, nest)),
        (IPV6, 4) => nest.enter(Tunnel::SixInFour).and_then(|nest| ip::v6(frame, span, nest)),
        (IPV6, _) => nest.enter(Tunnel::IpInIp).and_then(|nest| ip::v6(frame, span, nest)),
        (GRE, _) => gre(frame, span, nest),
        _ => return Ok(outer),
    };
    inner_or_outer(inner, outer)
}

/// Rule 1 of [`super`].
fn inner_or_outer(inner: Result<Packet, Skip>, outer: Packet) -> Result<Packet, Skip> {
    match inner {
        Ok(_) | Err(Skip::TooManyTunnels) => inner,
        Err(_) => Ok(outer),
    }
}

/// GRE (RFC 2784, RFC 2890), and its version 1 that carries PPP (RFC 2637).
fn gre<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const ACKNOWLEDGMENT: u16 = 0x0080;

    let bytes = span.bytes(frame);
    let flags = u16_at(bytes, 0).ok_or(Skip::TunnelMalformed)?;
    let protocol = u16_at(bytes, 2).ok_or(Skip::TunnelMalformed)?;
    let version = flags & 7;
    let optional = match version {
        0 if flags & ROUTING == 0 => CHECKSUM | KEY | SEQUENCE,
        1 if protocol == GRE_PPP => KEY | SEQUENCE | ACKNOWLEDGMENT,
        _ => return Err(Skip::TunnelMalformed),
    };
    let header_len = 4 + 4 * (flags & optional).count_ones() as usize;
    let inside = span.skip(header_len, Skip::TunnelMalformed)?;
    let mut nest = nest;
    // Version 1 has the length of its payload and a number for each direction there.
    if version == 0 && flags & KEY != 0 {
        let at = if flags & CHECKSUM != 0 { 8 } else { 4 };
        nest.scope = nest.scope.with_gre_key(u32_at(bytes, at).ok_or(Skip::TunnelMalformed)?);
    }
    match protocol {
        GRE_PPP => link::hdlc(frame, inside, nest.enter(Tunnel::Gre)?),
        // Type I has no header of its own, and has no sequence number in GRE, as type II has.
        GRE_ERSPAN if flags & SEQUENCE == 0 => {
            link::ethernet(frame, inside, nest.enter(Tunnel::Erspan)?)
        }
        GRE_ERSPAN => {
            let inside = inside.skip(8, Skip::TunnelMalformed)?;
            link::ethernet(frame, inside, nest.enter(Tunnel::Erspan)?)
        }
        GRE_ERSPAN_III => erspan_iii(frame, inside, nest.enter(Tunnel::Erspan)?),
        _ => link::typed(frame, inside, protocol, nest.enter(Tunnel::Gre)?),
    }
}

/// ERSPAN type III: 12 bytes, 8 more when the last bit is set; the frame inside is Ethernet or IP.
fn erspan_iii<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    let word = u16_at(span.bytes(frame), 10).ok_or(Skip::TunnelMalformed)?;
    let header_len = if word & 1 == 1 { 20 } else { 12 };
    let inside = span.skip(header_len, Skip::TunnelMalformed)?;
    match (word >> 10) & 0x1f {
        0 => link::ethernet(frame, inside, nest),
        2 => ip::any(frame, inside, nest),
        _ => Err(Skip::TunnelMalformed),
    }
}

/// VXLAN (RFC 7348): the I flag must be set, the reserved byte at the end 0.
fn vxlan<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    match span.bytes(frame) {
        &[flags, _, _, _, high, middle, low, 0, ..] if flags & 0x08 != 0 => {
            let inside = span.skip(8, Skip::TunnelMalformed)?;
            let mut nest = nest.enter(Tunnel::Vxlan)?;
            nest.scope = nest.scope.with_vni(u32::from_be_bytes([0, high, middle, low]));
            link::ethernet(frame, inside, nest)
        }
        _ => Err(Skip::TunnelMalformed),
    }
}

/// VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe-13), version 0: a field states the next protocol.
fn vxlan_gpe<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    const VERSION: u8 = 0x30;
    const INSTANCE: u8 = 0x08;
    const NEXT_PROTOCOL: u8 = 0x04;

    let &[flags, _, _, next, ..] =
        span.bytes(frame).first_chunk::<8>().ok_or(Skip::TunnelMalformed)?;
    if flags & (VERSION | INSTANCE) != INSTANCE {
        return Err(Skip::TunnelMalformed);
    }
    let inside = span.skip(8, Skip::TunnelMalformed)?;
    let nest = nest.enter(Tunnel::Vxlan)?;
    match if flags & NEXT_PROTOCOL == 0 { 3 } else { next } {
        1 => ip::v4(frame, inside, nest),
        2 => ip::v6(frame, inside, nest),
        3 => link::ethernet(frame, inside, nest),
        5 => link::mpls(frame, inside, nest),
        _ => Err(Skip::TunnelMalformed),
    }
}

/// L2TP version 2 (RFC 2661): a data message, which carries PPP. Version 3 states neither its
/// content nor the length of its cookie, so it is not decoded.
fn l2tp<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    const CONTROL: u16 = 0x8000;
    const LENGTH: u16 = 0x4000;
    const SEQUENCE: u16 = 0x0800;
    const OFFSET: u16 = 0x0200;
    const VERSION: u16 = 0x000f;
    const RESERVED: u16 = 0x34f0;

    let bytes = span.bytes(frame);
    let flags = u16_at(bytes, 0).ok_or(Skip::TunnelMalformed)?;
    if flags & (CONTROL | RESERVED | VERSION) != 2 {
        return Err(Skip::TunnelMalformed);
    }
    let mut inside = span;
    // Flags, tunnel, session; the others where their bit is set.
    let mut header_len = 6;
    if flags & LENGTH != 0 {
        let len = usize::from(u16_at(bytes, 2).ok_or(Skip::TunnelMalformed)?);
        if len > span.wire_end - span.at {
            return Err(Skip::TunnelMalformed);
        }
        inside.wire_end = span.at + len;
        inside.end = inside.end.min(inside.wire_end);
        header_len += 2;
    }
    if flags & SEQUENCE != 0 {
        header_len += 4;
    }
    if flags & OFFSET != 0 {
        let offset = u16_at(bytes, header_len).ok_or(Skip::TunnelMalformed)?;
        header_len += 2 + usize::from(offset);
    }
    let inside = inside.skip(header_len, Skip::TunnelMalformed)?;
    link::hdlc(frame, inside, nest.enter(Tunnel::L2tp)?)
}

/// Geneve (RFC 8926), version 0, not a control packet.
fn geneve<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    let bytes = span.bytes(frame);
    let &[first, second, high, low] = bytes.first_chunk().ok_or(Skip::TunnelMalformed)?;
    if first >> 6 != 0 || second & 0x80 != 0 {
        return Err(Skip::TunnelMalformed);
    }
    let options_len = usize::from(first & 0x3f) * 4;
    let inside = span.skip(8 + options_len, Skip::TunnelMalformed)?;
    let mut nest = nest.enter(Tunnel::Geneve)?;
    nest.scope = nest.scope.with_vni(u32_at(bytes, 4).ok_or(Skip::TunnelMalformed)? >> 8);
    link::typed(frame, inside, u16::from_be_bytes([high, low]), nest)
}

/// GTP-U version 1 (3GPP TS 29.281): a G-PDU, with its optional fields and extension headers.
fn gtp_u<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    const G_PDU: u8 = 255;
    const OPTIONAL_FIELDS: u8 = 0x07;
    const EXTENSION: u8 = 0x04;

    let &[flags, kind, high, low] = span.bytes(frame).first_chunk().ok_or(Skip::TunnelMalformed)?;
    if flags & 0xf0 != 0x30 || kind != G_PDU {
        return Err(Skip::TunnelMalformed);
    }
    let mut inside = span.skip(8, Skip::TunnelMalformed)?;
    let wire_end = inside.at + usize::from(u16::from_be_bytes([high, low]));
    if wire_end > span.wire_end {
        return Err(Skip::TunnelMalformed);
    }
    inside.wire_end = wire_end;
    inside.end = inside.end.min(wire_end);
    if flags & OPTIONAL_FIELDS != 0 {
        let mut next = u8_at(inside.bytes(frame), 3).ok_or(Skip::TunnelMalformed)?;
        inside = inside.skip(4, Skip::TunnelMalformed)?;
        let mut extensions = 0;
        while flags & EXTENSION != 0 && next != 0 {
            let bytes = inside.bytes(frame);
            let len = usize::from(u8_at(bytes, 0).ok_or(Skip::TunnelMalformed)?) * 4;
            extensions += 1;
            if len == 0 || extensions > GTP_EXTENSIONS_MAX {
                return Err(Skip::TunnelMalformed);
            }
            next = u8_at(bytes, len - 1).ok_or(Skip::TunnelMalformed)?;
            inside = inside.skip(len, Skip::TunnelMalformed)?;
        }
    }
    ip::any(frame, inside, nest.enter(Tunnel::GtpU)?)
}

/// Teredo (RFC 4380): IPv6, after an authentication and an origin indication where they are.
fn teredo<S: Seen>(frame: &[u8], span: Span, nest: Nest<S>) -> Result<Packet, Skip> {
    let mut inside = span;
    if let [0, 1, client_len, auth_len, ..] = *inside.bytes(frame) {
        let len = 13 + usize::from(client_len) + usize::from(auth_len);
        inside = inside.skip(len, Skip::TunnelMalformed)?;
    }
    if let [0, 0, ..] = inside.bytes(frame) {
        inside = inside.skip(8, Skip::TunnelMalformed)?;
    }
    ip::v6(frame, inside, nest.enter(Tunnel::Teredo)?)
}
