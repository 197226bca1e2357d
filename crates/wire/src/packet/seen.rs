//! All addresses of a frame: those of each IP header on the way to the innermost packet, outer and
//! inner, and those in ARP.
//!
//! The walk is [`super::decode`]'s own, which calls a function at each IP header. It differs where
//! [`super::decode`] accepts only a whole packet:
//! * An address counts if it was captured, whatever lengths its header has and whatever follows.
//! * The part of a tunnel in a first fragment counts.
//! * The header that an ICMP error quotes counts, and the packet in it.
//! * ARP and RARP count if they are about IPv4.

use std::cell::RefCell;

use super::transport::{self, ICMP};
use super::{FRAME_BYTES_MAX, Ip, Nest, Packet, Skip, Span, ip, link};
use crate::Addr;
use crate::read::u16_at;

/// Takes addresses on the way. `()` takes none, has no size and costs nothing.
pub(super) trait Seen: Copy {
    /// False: the walk is for the packet alone.
    const LOOKS: bool;

    /// An address of a header.
    fn address(self, addr: Addr);
}

impl Seen for () {
    const LOOKS: bool = false;

    #[inline(always)]
    fn address(self, _: Addr) {}
}

impl Seen for &RefCell<&mut dyn FnMut(Addr)> {
    const LOOKS: bool = true;

    fn address(self, addr: Addr) {
        // No code called from here walks a frame: it is never borrowed twice.
        if let Ok(mut visit) = self.try_borrow_mut() {
            visit(addr);
        }
    }
}

/// Visits the addresses of all IP headers of a frame, outer and inner, quoted by ICMP, and those of
/// ARP, also where [`super::decode`] finds no packet. Some come more than once; those of the packet
/// that it finds are among them.
pub fn addresses(link_type: u16, frame: &[u8], visit: &mut dyn FnMut(Addr)) {
    let frame = &frame[..frame.len().min(FRAME_BYTES_MAX)];
    // The result of decoding is not needed.
    let _ = link::decode(link_type, frame, &RefCell::new(visit));
}

/// The same for the payload of a reassembled datagram, whose own header is in `outer`; see
/// [`super::decode_payload`].
pub fn addresses_of_payload(outer: &Packet, payload: &[u8], visit: &mut dyn FnMut(Addr)) {
    let payload = &payload[..payload.len().min(FRAME_BYTES_MAX)];
    let len = payload.len() as u32;
    let ip = Ip { payload_offset: 0, payload_len: len, payload_bytes: len, ..Ip::of(outer) };
    let Packet { tunnels, tunnel, scope, .. } = *outer;
    let seen = &RefCell::new(visit);
    let _ =
        ip::payload(payload, ip.packet(), Nest { depth: tunnels, tunnels, tunnel, scope, seen });
}

/// An IPv4 header, as far as its addresses are there.
#[inline(always)]
pub(super) fn v4<S: Seen>(bytes: &[u8], seen: S) {
    if S::LOOKS && bytes.first().is_some_and(|first| first >> 4 == 4) {
        let addresses = bytes.get(12..bytes.len().min(20)).unwrap_or_default();
        addresses.as_chunks().0.iter().for_each(|bytes| seen.address(Addr::v4(*bytes)));
    }
}

/// An IPv6 header, as far as its addresses are there.
#[inline(always)]
pub(super) fn v6<S: Seen>(bytes: &[u8], seen: S) {
    if S::LOOKS && bytes.first().is_some_and(|first| first >> 4 == 6) {
        let addresses = bytes.get(8..bytes.len().min(40)).unwrap_or_default();
        addresses.as_chunks().0.iter().for_each(|bytes| seen.address(Addr::v6(*bytes)));
    }
}

/// ARP, RARP (RFC 826, RFC 903) for IPv4: its sender and its target.
#[inline(always)]
pub(super) fn arp<S: Seen>(bytes: &[u8], seen: S) {
    const IPV4: u16 = 0x0800;

    if S::LOOKS
        && u16_at(bytes, 2) == Some(IPV4)
        && let Some(&[hardware_len, 4]) = bytes.get(4..6)
    {
        let hardware_len = usize::from(hardware_len);
        for at in [8 + hardware_len, 12 + 2 * hardware_len] {
            if let Some(bytes) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
                seen.address(Addr::v4(*bytes));
            }
        }
    }
}

/// ICMP of either version: errors quote the packet that they are about from its IP header on (RFC
/// 792, RFC 4443), often not all of it.
pub(super) fn icmp<S: Seen>(frame: &[u8], packet: Packet, nest: Nest<S>) -> Result<Packet, Skip> {
    let packet = transport::read(frame, packet)?;
    let is_error = match packet.protocol {
        // Unreachable, source quench, redirect, time exceeded, parameter problem.
        ICMP => matches!(packet.src_port, 3 | 4 | 5 | 11 | 12),
        // Unreachable, too big, time exceeded, parameter problem.
        _ => matches!(packet.src_port, 1..=4),
    };
    if is_error {
        let span = Span { wire_end: usize::MAX, ..Span::payload(&packet) };
        let _ = nest.deeper().and_then(|nest| ip::any(frame, span, nest));
    }
    Ok(packet)
}
