//! Frames and payloads: for any bytes, the parts that are found lie inside.

use larder_wire::Addr;
use larder_wire::community_id;
use larder_wire::packet::{
    Fragment, Packet, TUNNELS_MAX, addresses, addresses_of_payload, decode, decode_payload,
};

/// The link types that are read, by LINKTYPE_ number, and one that is not.
pub const LINK_TYPES: [u16; 16] =
    [1, 113, 276, 101, 0, 108, 9, 50, 51, 104, 12, 14, 228, 229, 105, 9999];

/// The first byte chooses a link type of [`LINK_TYPES`], and a frame follows. From 128 on the
/// second byte is an IP protocol, and the payload of a reassembled datagram follows.
pub fn packet(input: &[u8]) {
    let Some((&choice, rest)) = input.split_first() else { return };
    if choice < 128 {
        let link_type = LINK_TYPES[usize::from(choice) % LINK_TYPES.len()];
        let mut all = Vec::new();
        addresses(link_type, rest, &mut |addr| all.push(addr));
        assert!(all.len() <= 2 * usize::from(TUNNELS_MAX) + 2);
        if let Ok(packet) = decode(link_type, rest) {
            assert!(all.contains(&packet.src) && all.contains(&packet.dst), "{packet:?}");
            assert_sound(rest, &packet);
            if let Some(fragment) = packet.fragment {
                assert_fragment(rest, &packet, &fragment);
            }
        }
        return;
    }
    let Some((&protocol, payload)) = rest.split_first() else { return };
    let outer = outer(choice, protocol, payload.len() as u32);
    addresses_of_payload(&outer, payload, &mut |_| ());
    if let Ok(packet) = decode_payload(&outer, payload) {
        assert_ranges(payload, &packet);
        assert!(packet.tunnels >= outer.tunnels && packet.tunnels <= TUNNELS_MAX);
    }
}

fn assert_ranges(frame: &[u8], packet: &Packet) {
    let end = packet.payload_offset as usize + packet.payload_len as usize;
    assert!(end <= frame.len(), "a payload outside of its frame: {packet:?}");
    assert!(packet.payload_len <= packet.payload_bytes);
    let Packet { src, dst, src_port, dst_port, protocol, .. } = *packet;
    let there = community_id::v1(src, dst, src_port, dst_port, protocol, 0);
    if !matches!(protocol, 1 | 58) {
        let back = community_id::v1(dst, src, dst_port, src_port, protocol, 0);
        assert_eq!(there, back, "both directions are one flow");
    }
}

fn assert_sound(frame: &[u8], packet: &Packet) {
    assert_ranges(frame, packet);
    assert!(packet.payload_bytes < packet.ip_bytes);
    assert!(packet.tunnels <= TUNNELS_MAX);
    assert_eq!(packet.tunnels == 0, packet.tunnel.is_none());
    assert!(matches!(packet.ip_version, 4 | 6));
    assert!(packet.ip_version == 6 || (packet.src.is_v4() && packet.dst.is_v4()));
}

fn assert_fragment(frame: &[u8], packet: &Packet, fragment: &Fragment) {
    let end = fragment.data_offset as usize + fragment.data_len as usize;
    assert!(end <= frame.len());
    assert!(fragment.data_len <= fragment.data_bytes);
    assert!(fragment.offset != 0 || fragment.more, "this is the whole datagram");
    assert!(packet.payload_offset >= fragment.data_offset);
}

/// An IP packet whose payload was put together.
pub(super) fn outer(choice: u8, protocol: u8, payload_bytes: u32) -> Packet {
    let v6 = choice & 1 != 0;
    let addr = |last| {
        if v6 {
            Addr::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
        } else {
            Addr::v4([192, 0, 2, last])
        }
    };
    Packet {
        src: addr(1),
        dst: addr(2),
        src_port: 0,
        dst_port: 0,
        protocol,
        ip_version: if v6 { 6 } else { 4 },
        tcp_flags: 0,
        tunnels: 0,
        tunnel: None,
        scope: larder_wire::scope::Scope::NONE,
        tcp_seq: 0,
        tcp_ack: 0,
        tcp_window: 0,
        ip_bytes: payload_bytes + 40,
        payload_offset: 0,
        payload_len: payload_bytes,
        payload_bytes,
        fragment: None,
    }
}
