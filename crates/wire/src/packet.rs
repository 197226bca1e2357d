//! One captured frame, down to its innermost IP packet and transport header.
//!
//! ```text
//! decode          link ──────────► ip ──────────► transport ──► Packet
//!                 Ethernet, SLL,   IPv4, IPv6,    TCP, UDP,       │
//!                 PPP, raw ...     extensions     ICMP, SCTP      │ tunnel? (cold)
//!                  ▲   VLAN, MPLS, PPPoE                          │
//!                  └──────────────────── tunnel ◄─────────────────┘
//! decode_payload                    enters here ▲ with a reassembled datagram
//! ```
//!
//! Rules
//! 1. **An inner packet must be valid.** A tunnel is recognized by a port or a protocol number,
//!    which other software may use too. If the content is not a whole, consistent packet (also if
//!    it is ARP, or the capture cut it), the result is the *outer* packet: a flow of UDP port 4789
//!    or of protocol 47. So a tunnel never turns a valid packet into damage. The one exception is
//!    [`Skip::TooManyTunnels`], which only a crafted packet has.
//! 2. **Lengths come from the headers, ranges from the capture.** `ip_bytes` and `payload_bytes`
//!    are the lengths on the wire; `payload_offset .. + payload_len` is always inside the frame. An
//!    inner header may not claim more than the outer header has.
//! 3. **A cut capture still counts.** TCP needs its ports and flags (14 bytes), UDP and SCTP their
//!    ports (4), ICMP its type and code (2). With less the packet has no flow, and is
//!    [`Skip::TransportMalformed`].
//! 4. **A fragment is only a fragment.** The first one gives ports if it has them; tunnels and data
//!    after an extension header are not decoded in a fragment, so that all fragments of a datagram
//!    have the same `protocol`. [`crate::fragment`] joins them, [`decode_payload`] continues. A
//!    single "fragment" that is its whole datagram (RFC 6946) is not treated as one.
//!
//! Bounds: [`TUNNELS_MAX`] encapsulations, tags and labels in all, [`EXTENSIONS_MAX`] extension
//! headers an IP packet; each layer is tried once, so work is linear and recursion is shallow.
//!
//! Cost: Ethernet, IPv4 or IPv6, TCP or UDP is straight code without allocation ([`decode_plain`]);
//! everything else is in calls that are not inlined. `cargo bench -p larder-wire --bench packet`
//! measures it: 5 to 8 ns for plain packets, 14 with one VLAN tag, 30 to 50 in a tunnel.

mod ip;
mod link;
mod seen;
mod transport;
mod tunnel;

use crate::Addr;
use crate::read::u16_at;
use crate::scope::Scope;
use seen::Seen;

pub use seen::{addresses, addresses_of_payload};

/// The fields of one packet that larder uses: the innermost IP packet and its transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Sender of the innermost IP packet.
    pub src: Addr,
    /// Receiver of the innermost IP packet.
    pub dst: Addr,
    /// TCP/UDP/SCTP source port; for ICMP and ICMPv6 the type.
    pub src_port: u16,
    /// TCP/UDP/SCTP destination port; for ICMP and ICMPv6 the code.
    pub dst_port: u16,
    /// IP protocol number after any extension headers (6 TCP, 17 UDP, 1 ICMP, 58 ICMPv6 ...).
    pub protocol: u8,
    /// 4 or 6.
    pub ip_version: u8,
    /// TCP flags (CWR ECE URG ACK PSH RST SYN FIN from high to low); 0 for other protocols.
    pub tcp_flags: u8,
    /// How many tunnels (GRE, VXLAN, IPIP ...) surround the innermost packet.
    pub tunnels: u8,
    /// The innermost tunnel, if any.
    pub tunnel: Option<Tunnel>,
    /// The network in which the addresses are valid: VLAN IDs, and the identifier of a tunnel.
    pub scope: Scope,
    /// TCP sequence number; 0 for other protocols.
    pub tcp_seq: u32,
    /// TCP acknowledgement number; 0 for other protocols.
    pub tcp_ack: u32,
    /// TCP window as sent, not scaled; 0 for other protocols.
    pub tcp_window: u16,
    /// Bytes of the innermost IP packet by its own header (not as captured).
    pub ip_bytes: u32,
    /// Offset in the frame of the transport payload (of the IP payload for a fragment that is not
    /// the first, and for protocols without ports).
    pub payload_offset: u32,
    /// Bytes of payload that were captured.
    pub payload_len: u32,
    /// Bytes of payload by the headers; larger than `payload_len` where the snap length cut.
    pub payload_bytes: u32,
    /// Set when this packet is an IP fragment.
    pub fragment: Option<Fragment>,
}

/// The fragment fields of an IPv4 header or IPv6 fragment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Identification (16 bits in IPv4, 32 in IPv6).
    pub id: u32,
    /// Offset of this fragment's payload in the datagram's payload, bytes.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Offset in the frame where the fragment's IP payload begins.
    pub data_offset: u32,
    /// Bytes of IP payload that were captured.
    pub data_len: u32,
    /// Bytes of IP payload by the header.
    pub data_bytes: u32,
}

/// An encapsulation whose outside is an IP packet or that carries IP in another way than a link
/// layer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Tunnel {
    IpInIp,
    SixInFour,
    Gre,
    Erspan,
    Vxlan,
    Geneve,
    GtpU,
    Teredo,
    L2tp,
    MplsInUdp,
}

/// Why a frame gave no packet. `Other*` are sound frames that are not ours to read; the rest is
/// damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Skip {
    /// larder does not read the frame's link type. Holds the LINKTYPE_ number.
    UnknownLinkType(u16),
    /// A valid frame without IP (ARP, LLDP ...). Holds the EtherType, or 0.
    NotIp(u16),
    /// The capture ends inside the link-layer header.
    LinkTruncated,
    /// The capture ends inside an IP header or its extension headers.
    IpTruncated,
    /// The IP header contradicts itself (version, header length, total length).
    IpMalformed,
    /// The capture ends inside the transport header, or it contradicts itself.
    TransportMalformed,
    /// A tunnel header is cut or contradicts itself. By rule 1 of this module the packet around the
    /// tunnel is then the result, so no caller sees this.
    TunnelMalformed,
    /// More encapsulations than [`TUNNELS_MAX`].
    TooManyTunnels,
}

/// Most encapsulations of any kind that are followed in one frame.
pub const TUNNELS_MAX: u8 = 16;

/// Most extension headers that are followed in one IP packet; RFC 8200 knows eight.
pub const EXTENSIONS_MAX: usize = 16;

/// Longest part of a frame that is read; the rest of a longer one counts as not captured. Offsets
/// and lengths thus fit in 32 bits.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// Decodes one captured frame down to its innermost IP packet.
///
/// `link_type` is the LINKTYPE_ number of the capture file.
#[inline]
pub fn decode(link_type: u16, frame: &[u8]) -> Result<Packet, Skip> {
    match decode_plain(link_type, frame) {
        Some(packet) => Ok(packet),
        None => decode_odd(link_type, frame),
    }
}

/// Like [`decode`], for callers that have tried [`decode_plain`].
#[inline]
pub fn decode_odd(link_type: u16, frame: &[u8]) -> Result<Packet, Skip> {
    link::decode(link_type, &frame[..frame.len().min(FRAME_BYTES_MAX)], ())
}

/// The packet of a frame of the most common kind: Ethernet with at most one VLAN tag, IPv4 or IPv6,
/// a whole TCP or UDP header. `None`: call [`decode`].
///
/// No call in it takes the packet's address, so if it is inlined the packet need not be in memory:
/// a caller that reads an address right after it was stored in pieces would wait for the stores
/// (about 5 ns).
#[inline(always)]
pub fn decode_plain(link_type: u16, frame: &[u8]) -> Option<Packet> {
    if link_type != link::ETHERNET || frame.len() > FRAME_BYTES_MAX {
        return None;
    }
    let mut at = link::ETHERNET_BYTES;
    let [.., high, low] = frame.first_chunk::<{ link::ETHERNET_BYTES }>()?;
    let mut kind = u16::from_be_bytes([*high, *low]);
    let mut scope = Scope::NONE;
    if kind == link::TYPE_VLAN {
        scope = scope.tagged(u16_at(frame, at)?);
        kind = u16_at(frame, at + 2)?;
        at += link::VLAN_BYTES;
    }
    let span = Span { at, end: frame.len(), wire_end: usize::MAX };
    match kind {
        link::TYPE_IPV4 => ip::plain_v4(frame, span, scope),
        link::TYPE_IPV6 => ip::plain_v6(frame, span, scope),
        _ => None,
    }
}

/// Continues where a fragment had to stop: decodes the payload of a reassembled datagram.
///
/// `outer` is the packet of [`crate::fragment::Outcome::Complete`]: addresses, protocol, `ip_bytes`
/// and the tunnels around are taken from it. Offsets in the result are relative to `payload`. If
/// the datagram is a tunnel, the result is the packet inside.
pub fn decode_payload(outer: &Packet, payload: &[u8]) -> Result<Packet, Skip> {
    let payload = &payload[..payload.len().min(FRAME_BYTES_MAX)];
    let len = payload.len() as u32;
    let ip = Ip { payload_offset: 0, payload_len: len, payload_bytes: len, ..Ip::of(outer) };
    let Packet { tunnels, tunnel, scope, .. } = *outer;
    let nest = Nest { depth: tunnels, tunnels, tunnel, scope, seen: () };
    ip::payload(payload, ip.packet(), nest)
}

/// A part of the frame: the bytes that a layer may read, and its length by the layers around it.
///
/// Invariant: `at <= end <= frame.len()` and `end <= wire_end`.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// Offset of the layer.
    at: usize,
    /// End of its captured bytes.
    end: usize,
    /// Its end by the outer headers; `usize::MAX` if none states it.
    wire_end: usize,
}

impl Span {
    /// The captured bytes.
    #[inline(always)]
    fn bytes(self, frame: &[u8]) -> &[u8] {
        frame.get(self.at..self.end).unwrap_or(&[])
    }

    /// The span behind the first `len` bytes; `cut` when fewer were captured.
    #[inline(always)]
    fn skip(self, len: usize, cut: Skip) -> Result<Span, Skip> {
        if self.end - self.at < len {
            return Err(cut);
        }
        Ok(Span { at: self.at + len, ..self })
    }

    /// The payload of `packet`.
    #[inline(always)]
    fn payload(packet: &Packet) -> Span {
        let at = packet.payload_offset as usize;
        Span {
            at,
            end: at + packet.payload_len as usize,
            wire_end: at + packet.payload_bytes as usize,
        }
    }
}

/// The context of the layer that is being read.
#[derive(Clone, Copy, Debug)]
struct Nest<S> {
    /// Encapsulations of any kind so far, tags and labels included.
    depth: u8,
    /// Tunnels so far.
    tunnels: u8,
    /// The innermost tunnel so far.
    tunnel: Option<Tunnel>,
    /// Tags and identifiers so far.
    scope: Scope,
    /// Called for IP headers and ARP on the way; of size zero if unused.
    seen: S,
}

impl<S: Seen> Nest<S> {
    /// Nothing is around.
    fn of(seen: S) -> Nest<S> {
        Nest { depth: 0, tunnels: 0, tunnel: None, scope: Scope::NONE, seen }
    }

    /// One tag, label or session header deeper.
    fn deeper(self) -> Result<Nest<S>, Skip> {
        if self.depth >= TUNNELS_MAX {
            return Err(Skip::TooManyTunnels);
        }
        Ok(Nest { depth: self.depth + 1, ..self })
    }

    /// Behind a VLAN tag.
    fn tagged(self, control: u16) -> Result<Nest<S>, Skip> {
        let nest = self.deeper()?;
        Ok(Nest { scope: nest.scope.tagged(control), ..nest })
    }

    /// One tunnel deeper.
    fn enter(self, tunnel: Tunnel) -> Result<Nest<S>, Skip> {
        let nest = self.deeper()?;
        Ok(Nest { tunnels: nest.tunnels + 1, tunnel: Some(tunnel), ..nest })
    }
}

/// The fields of an IP header, from which a [`Packet`] is made.
///
/// The short path carries this, and makes a `Packet` at its end. A `Packet` from the start would
/// have its address taken by the cold functions, be in memory, and be copied right after it was
/// written, byte by byte: twice the time.
#[derive(Clone, Copy)]
struct Ip {
    src: Addr,
    dst: Addr,
    protocol: u8,
    ip_version: u8,
    ip_bytes: u32,
    payload_offset: u32,
    payload_len: u32,
    payload_bytes: u32,
    tunnels: u8,
    tunnel: Option<Tunnel>,
    scope: Scope,
}

impl Ip {
    /// The IP header fields of `packet`, and the place of its payload.
    fn of(packet: &Packet) -> Ip {
        Ip {
            src: packet.src,
            dst: packet.dst,
            protocol: packet.protocol,
            ip_version: packet.ip_version,
            ip_bytes: packet.ip_bytes,
            payload_offset: packet.payload_offset,
            payload_len: packet.payload_len,
            payload_bytes: packet.payload_bytes,
            tunnels: packet.tunnels,
            tunnel: packet.tunnel,
            scope: packet.scope,
        }
    }

    /// The packet whose transport header is not read yet.
    #[inline(always)]
    fn packet(self) -> Packet {
        Packet {
            src: self.src,
            dst: self.dst,
            src_port: 0,
            dst_port: 0,
            protocol: self.protocol,
            ip_version: self.ip_version,
            tcp_flags: 0,
            tunnels: self.tunnels,
            tunnel: self.tunnel,
            scope: self.scope,
            tcp_seq: 0,
            tcp_ack: 0,
            tcp_window: 0,
            ip_bytes: self.ip_bytes,
            payload_offset: self.payload_offset,
            payload_len: self.payload_len,
            payload_bytes: self.payload_bytes,
            fragment: None,
        }
    }

    /// The first bytes of the payload, if enough were captured.
    #[inline(always)]
    fn header<const BYTES: usize>(self, frame: &[u8]) -> Option<&[u8; BYTES]> {
        if (self.payload_len as usize) < BYTES {
            return None;
        }
        frame.get(self.payload_offset as usize..)?.first_chunk()
    }
}

impl Packet {
    /// Moves the payload's start after `len` bytes of header, or to the end.
    #[inline(always)]
    fn advance(&mut self, len: usize) {
        let captured = (len as u32).min(self.payload_len);
        self.payload_offset += captured;
        self.payload_len -= captured;
        self.payload_bytes = self.payload_bytes.saturating_sub(len as u32);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        /// If the short path has a result, the general one has the same: for frames that are plain
        /// except some bytes.
        #[test]
        fn plain_is_as_the_general_way(
            (tagged, v6, udp) in any::<(bool, bool, bool)>(),
            mut body in vec(any::<u8>(), 0..120),
            len in 0u16..140,
            (transport_len, port) in (0u8..12, prop_oneof![Just(443u16), Just(4789), Just(2152)]),
            odd in vec((0usize..80, any::<u8>()), 0..3),
        ) {
            let mut put = |at: usize, bytes: &[u8]| {
                for (at, byte) in (at..).zip(bytes) {
                    if let Some(place) = body.get_mut(at) {
                        *place = *byte;
                    }
                }
            };
            let protocol = if udp { 17 } else { 6 };
            let transport = if v6 {
                put(0, &[0x60]);
                put(4, &len.to_be_bytes());
                put(6, &[protocol]);
                40
            } else {
                put(0, &[0x45]);
                put(2, &len.to_be_bytes());
                put(6, &[0x40, 0]);
                put(9, &[protocol]);
                20
            };
            put(transport + 2, &port.to_be_bytes());
            if udp {
                put(transport + 4, &(len / 2).to_be_bytes());
            } else {
                put(transport + 12, &[transport_len << 4]);
            }
            for (at, byte) in odd {
                put(at, &[byte]);
            }
            let mut frame = vec![2; 12];
            if tagged {
                frame.extend([0x81, 0, 0, 7]);
            }
            frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
            frame.extend(body);
            if let Some(packet) = decode_plain(link::ETHERNET, &frame) {
                prop_assert_eq!(link::decode(link::ETHERNET, &frame, ()), Ok(packet));
            }
        }
    }

    /// The plain path accepts TCP and UDP, or the test before would prove nothing.
    #[test]
    fn plain_takes_tcp_and_udp() {
        let mut frame = vec![0; 74];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[17] = 60;
        for (protocol, at, byte) in [(6, 46, 0x50), (17, 39, 40)] {
            let mut frame = frame.clone();
            (frame[23], frame[at]) = (protocol, byte);
            let packet = decode_plain(link::ETHERNET, &frame).expect("plain");
            assert_eq!(packet.protocol, protocol);
            let mut tagged = frame[..12].to_vec();
            tagged.extend([0x81, 0, 0, 7]);
            tagged.extend(&frame[12..]);
            assert!(decode_plain(link::ETHERNET, &tagged).is_some());
        }
    }
}
