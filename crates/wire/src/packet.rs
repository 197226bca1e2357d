//! (being written)

use crate::Addr;

/// What larder needs of one packet: the innermost IP packet and its transport header.
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
    /// TCP sequence number; 0 for other protocols.
    pub tcp_seq: u32,
    /// TCP acknowledgement number; 0 for other protocols.
    pub tcp_ack: u32,
    /// TCP window as sent, not scaled; 0 for other protocols.
    pub tcp_window: u16,
    /// Octets of the innermost IP packet by its own header (not as captured).
    pub ip_bytes: u32,
    /// Offset in the frame of the transport payload (of the IP payload for a fragment that is not
    /// the first, and for protocols without ports).
    pub payload_offset: u32,
    /// Octets of payload that were captured.
    pub payload_len: u32,
    /// Octets of payload by the headers; larger than `payload_len` where the snap length cut.
    pub payload_bytes: u32,
    /// Set when this packet is an IP fragment.
    pub fragment: Option<Fragment>,
}

/// The fragment fields of an IPv4 header or IPv6 fragment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Identification (16 bits in IPv4, 32 in IPv6).
    pub id: u32,
    /// Offset of this fragment's payload in the datagram's payload, octets.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Offset in the frame where the fragment's IP payload begins.
    pub data_offset: u32,
    /// Octets of IP payload that were captured.
    pub data_len: u32,
    /// Octets of IP payload by the header.
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
}

/// Why a frame gave no packet. `Other*` are sound frames that are not ours to read; the rest is
/// damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Skip {
    /// The frame's link type is not one that we read. Holds the LINKTYPE_ number.
    UnknownLinkType(u16),
    /// A sound frame that carries no IP (ARP, LLDP ...). Holds the EtherType, or 0.
    NotIp(u16),
    /// The capture ends inside the link-layer header.
    LinkTruncated,
    /// The capture ends inside an IP header or its extension headers.
    IpTruncated,
    /// The IP header contradicts itself (version, header length, total length).
    IpMalformed,
    /// The capture ends inside the transport header, or it contradicts itself.
    TransportMalformed,
    /// A tunnel header is cut or contradicts itself.
    TunnelMalformed,
    /// More encapsulations than [`TUNNELS_MAX`].
    TooManyTunnels,
}

/// Most encapsulations of any kind that are followed in one frame.
pub const TUNNELS_MAX: u8 = 16;

/// Decodes one captured frame down to its innermost IP packet.
pub fn decode(link_type: u16, frame: &[u8]) -> Result<Packet, Skip> {
    let _ = frame;
    Err(Skip::UnknownLinkType(link_type))
}
