//! The packet or datagram in which a message came.

use larder_wire::packet::Packet;
use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

use super::AnswerLine;
use crate::names::{AddressObservation, NameProtocol, Standing};

/// Where a message was found: packet, ends, and position in the input.
#[derive(Clone, Copy)]
pub(super) struct Carrier {
    pub packet: u64,
    pub time_ns: i64,
    pub src: Addr,
    pub src_port: u16,
    pub dst: Addr,
    pub dst_port: u16,
    pub scope: Scope,
    /// It is read for its names only: it counts as no response, and `dns.log` does not have it.
    pub for_names: bool,
    pub file: u32,
    pub offset: u64,
    /// Hop limit (TTL) of its IP packet, where that is read.
    pub hop_limit: Option<u8>,
}

impl Carrier {
    /// True when the sender names its own address on its own link: the address is the packet's source,
    /// and the packet was not forwarded. Multicast DNS is sent with a hop limit of 255 (RFC 6762, section
    /// 11); the other protocols count for local addresses only.
    pub fn is_own_word(&self, addr: Addr, learned_from: NameProtocol) -> bool {
        let (port, is_near) = match learned_from {
            NameProtocol::Mdns => (5353, self.hop_limit == Some(255)),
            NameProtocol::Llmnr => (5355, self.src.is_local()),
            NameProtocol::Nbns => (137, self.src.is_local()),
            NameProtocol::Dhcp => (68, self.src.is_local()),
            NameProtocol::Dns | NameProtocol::Ptr => return false,
        };
        addr == self.src && self.src_port == port && is_near
    }

    /// The standing of a name that the message gives to an address without a query.
    pub fn standing_of(&self, addr: Addr, learned_from: NameProtocol) -> Standing {
        match self.is_own_word(addr, learned_from) {
            true => Standing::Confirmed,
            false => Standing::Claimed,
        }
    }

    /// The observation of a name that no client queried.
    pub fn observation<'n>(
        &self,
        asked: &'n [u8],
        (addr, ttl_s): (Addr, u32),
        learned_from: NameProtocol,
        standing: Standing,
    ) -> AddressObservation<'n> {
        AddressObservation {
            packet: self.packet,
            time_ns: self.time_ns,
            scope: self.scope,
            client: Addr::UNSPECIFIED,
            asked,
            addr,
            ttl_s,
            learned_from,
            standing,
            targets: &[],
        }
    }

    /// A line of `dns.log` about the message, without addresses and aliases.
    pub fn answer_line(
        &self,
        asked: &[u8],
        learned_from: NameProtocol,
        standing: Standing,
    ) -> AnswerLine {
        AnswerLine {
            time_ns: self.time_ns,
            packet: self.packet,
            client: self.dst,
            server: self.src,
            asked: Name::from_canonical(asked),
            addresses: Vec::new(),
            aliases: Vec::new(),
            learned_from,
            standing,
        }
    }
}

/// The hop limit of the IP packet around a datagram without IP options or extension headers.
pub(super) fn hop_limit(packet: &Packet, frame: &[u8]) -> Option<u8> {
    let udp = (packet.payload_offset as usize).checked_sub(8)?;
    let (header_bytes, first, place) = match packet.ip_version {
        4 => (20, 0x45..=0x45, 8),
        _ => (40, 0x60..=0x6f, 7),
    };
    let header = frame.get(udp.checked_sub(header_bytes)?..udp)?;
    first.contains(&header[0]).then(|| header[place])
}
