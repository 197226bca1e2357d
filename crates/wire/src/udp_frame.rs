//! UDP messages in Ethernet frames: strict reading, and writing of responses.
//!
//! For AF_XDP, where larder takes frames from an interface without the kernel's network stack. So
//! larder does the kernel's work: it verifies everything, and writes headers. [`crate::packet`]
//! reads captures and is lenient, since a captured packet existed. Here a frame with any invalid
//! field is no message.
//!
//! ```text
//! read(frame) -> FrameAddresses, bytes   every length and checksum is valid
//! response: bytes are written at FrameAddresses::headers_bytes of a new frame, then
//!           FrameAddresses::seal writes the headers before them
//! ```
//!
//! This module reads IPv4 without options (RFC 791), not fragmented, and IPv6 without extension
//! headers (RFC 8200), in Ethernet II without tags.
//!
//! Checksums. IPv4's header must have a valid one. UDP's must be valid, or 0 (none) in IPv4; IPv6
//! requires one (RFC 8200, section 8.1). A frame that never left the machine has an unfinished sum,
//! of the pseudo-header only, as between two ends of a veth pair. It is accepted too, as the kernel
//! does: such a frame was on no wire. A damaged frame from a wire looks like that with a chance of
//! one in 65,536, the same as for a valid sum.
//!
//! Responses are sent to the Ethernet address of the query: the sender or its router. IPv4
//! responses may not be fragmented on the way (RFC 9715 requires that), and therefore need no
//! identification (RFC 6864).
//!
//! Cost: a pass over the message for its checksum, in either direction; nothing is allocated.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const UDP: u8 = 17;

/// Hops that a response may take (RFC 1700 and common practice).
const HOPS: u8 = 64;

/// Bytes before a message in a frame of IPv4.
pub const HEADERS_V4: usize = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES;

/// Bytes before a message in a frame of IPv6.
pub const HEADERS_V6: usize = ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES;

/// The addresses of a message: sender and receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameAddresses {
    /// The sender.
    pub peer: SocketAddr,
    /// The receiver, of the same family.
    pub local: SocketAddr,
    /// The Ethernet address of the sender, or of the last router.
    pub peer_mac: [u8; 6],
    /// Ours.
    pub local_mac: [u8; 6],
}

/// Why a frame holds no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unread {
    /// Neither plain IPv4 nor plain IPv6 with UDP in it.
    OtherKind,
    /// Lengths contradict one another, or the frame is cut.
    Length,
    /// A checksum does not hold.
    Checksum,
    /// The sender cannot get a response: a group, a broadcast, the loopback, the unspecified
    /// address, port 0.
    Sender,
}

/// Reads a frame: its addresses, and the message.
#[inline]
pub fn read(frame: &[u8]) -> Result<(FrameAddresses, &[u8]), Unread> {
    let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_BYTES>().ok_or(Unread::Length)?;
    let [a, b, c, d, e, f, g, h, i, j, k, l, kind @ ..] = *ethernet;
    let (local_mac, peer_mac) = ([a, b, c, d, e, f], [g, h, i, j, k, l]);
    let (source, target, datagram) = match kind {
        TYPE_IPV4 => read_v4(packet)?,
        TYPE_IPV6 => read_v6(packet)?,
        _ => return Err(Unread::OtherKind),
    };
    let (header, _) = datagram.split_first_chunk::<UDP_BYTES>().ok_or(Unread::Length)?;
    let [s0, s1, t0, t1, l0, l1, c0, c1] = *header;
    // Bytes of the packet after the datagram are ignored.
    let datagram = datagram.get(..usize::from(u16::from_be_bytes([l0, l1])));
    let datagram = datagram.filter(|it| it.len() >= UDP_BYTES).ok_or(Unread::Length)?;
    let pseudo = pseudo_sum(&source, &target, datagram.len());
    let is_right = match [c0, c1] {
        [0, 0] => source.is_ipv4(),
        sum => {
            let begun = u16::from_be_bytes(sum) == fold(pseudo);
            begun || fold(pseudo + sum_of(datagram)) == 0xffff
        }
    };
    if !is_right {
        return Err(Unread::Checksum);
    }
    let peer = SocketAddr::new(source, u16::from_be_bytes([s0, s1]));
    if peer.port() == 0 || !may_be_answered(&source) || peer_mac[0] & 1 == 1 {
        return Err(Unread::Sender);
    }
    let local = SocketAddr::new(target, u16::from_be_bytes([t0, t1]));
    Ok((FrameAddresses { peer, local, peer_mac, local_mac }, &datagram[UDP_BYTES..]))
}

/// Addresses and the content of an IPv4 packet.
#[inline]
fn read_v4(packet: &[u8]) -> Result<(IpAddr, IpAddr, &[u8]), Unread> {
    let (header, _) = packet.split_first_chunk::<IPV4_BYTES>().ok_or(Unread::Length)?;
    let [first, _, l0, l1, _, _, f0, f1, _, protocol, _, _, addresses @ ..] = *header;
    // Neither more fragments nor an offset.
    if first != 0x45 || protocol != UDP || [f0 & 0x3f, f1] != [0, 0] {
        return Err(Unread::OtherKind);
    }
    if fold(sum_of(header)) != 0xffff {
        return Err(Unread::Checksum);
    }
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    let datagram = packet.get(IPV4_BYTES..length).ok_or(Unread::Length)?;
    let [s0, s1, s2, s3, t0, t1, t2, t3] = addresses;
    Ok((Ipv4Addr::new(s0, s1, s2, s3).into(), Ipv4Addr::new(t0, t1, t2, t3).into(), datagram))
}

/// Reads IPv6 in the same way.
#[inline]
fn read_v6(packet: &[u8]) -> Result<(IpAddr, IpAddr, &[u8]), Unread> {
    let (header, rest) = packet.split_first_chunk::<IPV6_BYTES>().ok_or(Unread::Length)?;
    if header[0] >> 4 != 6 || header[6] != UDP {
        return Err(Unread::OtherKind);
    }
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let datagram = rest.get(..length).ok_or(Unread::Length)?;
    let address = |at: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&header[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(bytes))
    };
    Ok((address(8), address(24), datagram))
}

/// Whether an address is of one host, other than this one.
fn may_be_answered(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.octets()[0] != 0 && !v4.is_loopback() && !v4.is_multicast() && !v4.is_broadcast()
        }
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_loopback() && !v6.is_multicast(),
    }
}

impl FrameAddresses {
    /// Bytes before the message in a frame.
    pub fn headers_bytes(&self) -> usize {
        if self.peer.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 }
    }

    /// Makes a response of a frame that has `message_bytes` bytes of message at
    /// [`FrameAddresses::headers_bytes`]: writes the headers, from our end to the sender's. Returns
    /// the frame's bytes, or `None` if the message is not in it, or is too long for UDP.
    #[inline]
    pub fn seal(&self, message_bytes: usize, frame: &mut [u8]) -> Option<usize> {
        let headers = self.headers_bytes();
        let frame = frame.get_mut(..headers.checked_add(message_bytes)?)?;
        let length = u16::try_from(message_bytes + UDP_BYTES).ok()?;
        let (before, datagram) = frame.split_at_mut(headers - UDP_BYTES);
        let (ethernet, ip) = before.split_first_chunk_mut::<ETHERNET_BYTES>()?;
        ethernet[..6].copy_from_slice(&self.peer_mac);
        ethernet[6..12].copy_from_slice(&self.local_mac);
        match (self.local.ip(), self.peer.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                ethernet[12..].copy_from_slice(&TYPE_IPV4);
                let total = length.checked_add(IPV4_BYTES as u16)?;
                write_v4(ip.first_chunk_mut()?, total, from, to);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                ethernet[12..].copy_from_slice(&TYPE_IPV6);
                write_v6(ip.first_chunk_mut()?, length, from, to);
            }
            _ => return None,
        }
        let header = datagram.first_chunk_mut::<UDP_BYTES>()?;
        header[..2].copy_from_slice(&self.local.port().to_be_bytes());
        header[2..4].copy_from_slice(&self.peer.port().to_be_bytes());
        header[4..6].copy_from_slice(&length.to_be_bytes());
        header[6..].fill(0);
        let pseudo = pseudo_sum(&self.local.ip(), &self.peer.ip(), datagram.len());
        // 0 would mean that there is no checksum.
        let sum = match !fold(pseudo + sum_of(datagram)) {
            0 => 0xffff,
            sum => sum,
        };
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        Some(headers + message_bytes)
    }
}

fn write_v4(header: &mut [u8; IPV4_BYTES], total: u16, from: Ipv4Addr, to: Ipv4Addr) {
    let [l0, l1] = total.to_be_bytes();
    // 0x40: do not fragment.
    header[..12].copy_from_slice(&[0x45, 0, l0, l1, 0, 0, 0x40, 0, HOPS, UDP, 0, 0]);
    header[12..16].copy_from_slice(&from.octets());
    header[16..].copy_from_slice(&to.octets());
    let sum = !fold(sum_of(header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn write_v6(header: &mut [u8; IPV6_BYTES], length: u16, from: Ipv6Addr, to: Ipv6Addr) {
    let [l0, l1] = length.to_be_bytes();
    header[..8].copy_from_slice(&[0x60, 0, 0, 0, l0, l1, UDP, HOPS]);
    header[8..24].copy_from_slice(&from.octets());
    header[24..].copy_from_slice(&to.octets());
}

/// The sum of the pseudo-header of UDP's checksum (RFC 768; RFC 8200, section 8.1).
#[inline]
fn pseudo_sum(source: &IpAddr, target: &IpAddr, length: usize) -> u64 {
    let addresses = match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            u64::from(source.to_bits()) + u64::from(target.to_bits())
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            sum_of(&source.octets()) + sum_of(&target.octets())
        }
        _ => 0,
    };
    addresses + u64::from(UDP) + length as u64
}

/// The sum of 16-bit words (RFC 1071), not yet folded. Words are added in pairs: 2^16 is 1 modulo
/// 2^16 - 1.
#[inline]
fn sum_of(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
}

/// A sum in 16 bits, carries added.
#[inline]
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    /// A query as etherparse writes it.
    fn written(ends: &FrameAddresses, message: &[u8], checksum: bool) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2(ends.peer_mac, ends.local_mac);
        let builder = match (ends.peer.ip(), ends.local.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), 9),
            (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), 9),
            _ => unreachable!("one family"),
        };
        let mut frame = Vec::new();
        let builder = builder.udp(ends.peer.port(), ends.local.port());
        builder.write(&mut frame, message).unwrap();
        if !checksum {
            let at = ends.headers_bytes() - 2;
            frame[at..at + 2].fill(0);
        }
        frame
    }

    fn any_ends() -> impl Strategy<Value = FrameAddresses> {
        let v4 = (1u8..224, any::<[u8; 3]>()).prop_filter_map("one host", |(first, [a, b, c])| {
            (first != 127).then(|| IpAddr::from([first, a, b, c]))
        });
        let v6 = any::<[u8; 15]>().prop_map(|rest| {
            let mut bytes = [0x20; 16];
            bytes[1..].copy_from_slice(&rest);
            IpAddr::from(bytes)
        });
        let pair = prop_oneof![(v4.clone(), v4), (v6.clone(), v6)];
        let ports = (1u16.., any::<u16>());
        (pair, ports, any::<[u8; 6]>(), any::<[u8; 6]>()).prop_map(
            |((from, to), (from_port, to_port), mut peer_mac, local_mac)| {
                peer_mac[0] &= !1;
                FrameAddresses {
                    peer: SocketAddr::new(from, from_port),
                    local: SocketAddr::new(to, to_port),
                    peer_mac,
                    local_mac,
                }
            },
        )
    }

    fn ends(peer: &str, local: &str) -> FrameAddresses {
        let [peer, local] = [peer, local].map(|text| text.parse().unwrap());
        FrameAddresses { peer, local, peer_mac: [2, 0, 0, 0, 0, 9], local_mac: [2, 0, 0, 0, 0, 1] }
    }

    proptest! {
        /// Frames that etherparse writes are read correctly, without the padding of a short frame;
        /// etherparse reads our frames, with both ends swapped and valid checksums.
        #[test]
        fn frames_are_those_of_etherparse(
            ends in any_ends(),
            message in prop::collection::vec(any::<u8>(), 0..1500),
            padding in 0usize..40,
        ) {
            let mut query_frame = written(&ends, &message, true);
            query_frame.resize(query_frame.len() + padding, 0xee);
            prop_assert_eq!(read(&query_frame), Ok((ends, &message[..])));

            let headers = ends.headers_bytes();
            let mut frame = vec![0xaa; headers];
            frame.extend(&message);
            frame.extend([0xbb; 9]);
            let length = ends.seal(message.len(), &mut frame).unwrap();
            prop_assert_eq!(length, headers + message.len());
            let sliced = SlicedPacket::from_ethernet(&frame[..length]).unwrap();
            let ethernet = sliced.link.as_ref().unwrap().to_header().unwrap().ethernet2().unwrap().clone();
            prop_assert_eq!((ethernet.source, ethernet.destination), (ends.local_mac, ends.peer_mac));
            let Some(TransportSlice::Udp(udp)) = &sliced.transport else { panic!("no UDP") };
            let ports = (udp.source_port(), udp.destination_port());
            prop_assert_eq!(ports, (ends.local.port(), ends.peer.port()));
            prop_assert_eq!(udp.payload(), &message[..]);
            let header = udp.to_header();
            let sum = match sliced.net.as_ref().unwrap() {
                etherparse::NetSlice::Ipv4(ip) => {
                    let ip = ip.header().to_header();
                    prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                    prop_assert_eq!(IpAddr::from(ip.source), ends.local.ip());
                    prop_assert_eq!(IpAddr::from(ip.destination), ends.peer.ip());
                    prop_assert!(ip.dont_fragment);
                    header.calc_checksum_ipv4(&ip, &message).unwrap()
                }
                etherparse::NetSlice::Ipv6(ip) => {
                    let ip = ip.header().to_header();
                    prop_assert_eq!(IpAddr::from(ip.source), ends.local.ip());
                    prop_assert_eq!(IpAddr::from(ip.destination), ends.peer.ip());
                    header.calc_checksum_ipv6(&ip, &message).unwrap()
                }
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(header.checksum, sum);
        }

        /// Any bytes are read without a panic, and a message is within the frame.
        #[test]
        fn any_bytes_may_come(bytes in prop::collection::vec(any::<u8>(), 0..120), v6: bool) {
            let mut frame = bytes;
            if let Some(kind) = frame.get_mut(12..14) {
                kind.copy_from_slice(if v6 { &TYPE_IPV6 } else { &TYPE_IPV4 });
            }
            if let Ok((ends, message)) = read(&frame) {
                prop_assert!(ends.headers_bytes() + message.len() <= frame.len());
            }
        }

        /// A frame with one changed bit that a checksum covers is not read as a message. Another
        /// changed bit may make it no message, or change the Ethernet addresses.
        #[test]
        fn damage_is_seen(ends in any_ends(), message in prop::collection::vec(any::<u8>(), 0..64), at: prop::sample::Index, bit in 0..8) {
            let frame = written(&ends, &message, true);
            let at = at.index(frame.len());
            let mut damaged = frame.clone();
            damaged[at] ^= 1u8 << bit;
            let headers = ends.headers_bytes();
            let is_covered = match ends.peer {
                // Fields that routers change, and the flow label, are not covered by a checksum of
                // IPv6.
                SocketAddr::V6(_) => at >= 22 || matches!(at, 12..14 | 18..21) || at == 14 && bit > 3,
                SocketAddr::V4(_) => at >= 12,
            };
            // By chance in 65,536, another length or sum is right as well, and so is a sum that
            // looks only begun.
            let addresses = &damaged[if ends.peer.is_ipv4() { 26..34 } else { 22..54 }];
            let begun = fold(sum_of(addresses) + u64::from(UDP) + (message.len() + UDP_BYTES) as u64);
            prop_assume!(!(headers - 4..headers).contains(&at));
            prop_assume!(damaged[headers - 2..headers] != begun.to_be_bytes());
            if is_covered {
                prop_assert!(read(&damaged).is_err(), "byte {at}");
            }
        }
    }

    /// An unfinished sum is accepted. No sum is accepted in IPv4 and not in IPv6, and any other sum
    /// is refused.
    #[test]
    fn checksums_of_three_kinds() {
        for (peer, local) in
            [("192.0.2.9:40000", "192.0.2.1:53"), ("[2001:db8::9]:40000", "[2001:db8::1]:53")]
        {
            let ends = ends(peer, local);
            let frame = written(&ends, b"question", true);
            let at = ends.headers_bytes() - 2;
            let with = |sum: u16| {
                let mut frame = frame.clone();
                frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
                read(&frame).map(|(ends, message)| (ends, message.to_vec()))
            };
            let begun = fold(pseudo_sum(&ends.peer.ip(), &ends.local.ip(), 16));
            assert_eq!(with(begun), Ok((ends, b"question".to_vec())));
            assert_eq!(with(begun ^ 1), Err(Unread::Checksum));
            assert_eq!(with(0).is_ok(), ends.peer.is_ipv4());
        }
    }

    /// A sender that is no single host gets no response.
    #[test]
    fn some_are_not_answered() {
        for peer in [
            "0.0.0.0:9",
            "0.1.2.3:9",
            "127.0.0.1:9",
            "224.0.0.1:9",
            "255.255.255.255:9",
            "192.0.2.9:0",
        ] {
            let frame = written(&ends(peer, "192.0.2.1:53"), b"x", true);
            assert_eq!(read(&frame), Err(Unread::Sender), "{peer}");
        }
        for peer in ["[::]:9", "[::1]:9", "[ff02::1]:9", "[2001:db8::9]:0"] {
            let frame = written(&ends(peer, "[2001:db8::1]:53"), b"x", true);
            assert_eq!(read(&frame), Err(Unread::Sender), "{peer}");
        }
        let group = FrameAddresses { peer_mac: [1; 6], ..ends("192.0.2.9:9", "192.0.2.1:53") };
        assert_eq!(read(&written(&group, b"x", true)), Err(Unread::Sender));
    }

    /// Lengths that contradict one another, cut frames, fragments, options, tags and other
    /// protocols are no messages; a response cannot be sealed in a frame that is too short, or be
    /// longer than UDP allows.
    #[test]
    fn strangers_are_refused() {
        let ends = ends("192.0.2.9:40000", "192.0.2.1:53");
        let frame = written(&ends, b"question", false);
        for length in 0..frame.len() {
            assert!(read(&frame[..length]).is_err(), "{length}");
        }
        let with = |at: usize, byte: u8| {
            let mut frame = frame.clone();
            frame[at] = byte;
            frame[24..26].fill(0);
            let sum = !fold(sum_of(&frame[14..34]));
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            read(&frame).map(|_| ())
        };
        assert_eq!(with(14, 0x45), Ok(()));
        assert_eq!(with(14, 0x46), Err(Unread::OtherKind));
        assert_eq!(with(20, 0x20), Err(Unread::OtherKind));
        assert_eq!(with(21, 1), Err(Unread::OtherKind));
        assert_eq!(with(23, 6), Err(Unread::OtherKind));
        assert_eq!(with(12, 0x81), Err(Unread::OtherKind));
        // UDP's length below its header's, and past the packet's end.
        assert_eq!(with(39, 7), Err(Unread::Length));
        assert_eq!(with(39, 17), Err(Unread::Length));
        assert_eq!(with(17, 27), Err(Unread::Length));
        assert_eq!(with(17, 19), Err(Unread::Length));
        let mut room = vec![0; 70_000];
        assert_eq!(ends.seal(9, &mut room[..50]), None);
        assert_eq!(ends.seal(65_507, &mut room), Some(65_507 + HEADERS_V4));
        assert_eq!(ends.seal(65_508, &mut room), None);
        assert_eq!(ends.seal(usize::MAX, &mut room), None);
    }
}
