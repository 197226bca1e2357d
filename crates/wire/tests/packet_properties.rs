//! Properties for every input: no panic, ranges inside the frame, no invented layer, and every
//! fragment counted once.

mod packet_support;

use larder_testkit::random::Random;
use larder_wire::fragment::{Outcome, Reassembler};
use larder_wire::packet::{
    Packet, TUNNELS_MAX, addresses, addresses_of_payload, decode, decode_payload,
};
use packet_support::generated;
use packet_support::layer::{ipv4_with, udp};
use proptest::prelude::*;

const LINK_TYPES: [u16; 16] =
    [0, 1, 9, 12, 14, 50, 51, 101, 104, 105, 108, 113, 228, 229, 276, 9999];

/// Rule 2 of the decoder, and its bounds.
fn assert_sound(frame: &[u8], packet: &Packet) {
    assert_inside(frame, packet);
    assert!(packet.payload_bytes < packet.ip_bytes);
    assert!(packet.tunnels <= TUNNELS_MAX);
    assert_eq!(packet.tunnels == 0, packet.tunnel.is_none());
    assert!(packet.ip_version == 6 || (packet.src.is_v4() && packet.dst.is_v4()));
    if let Some(fragment) = packet.fragment {
        let end = fragment.data_offset as usize + fragment.data_len as usize;
        assert!(end <= frame.len());
        assert!(fragment.data_len <= fragment.data_bytes);
        assert!(fragment.offset != 0 || fragment.more);
        assert!(packet.payload_offset >= fragment.data_offset);
    }
}

/// The decoded packet's addresses are among those of the frame. Their number is bounded by the
/// number of headers.
fn assert_addresses(link_type: u16, frame: &[u8]) {
    let mut all = Vec::new();
    addresses(link_type, frame, &mut |addr| all.push(addr));
    assert!(all.len() <= 2 * usize::from(TUNNELS_MAX) + 2);
    if let Ok(packet) = decode(link_type, frame) {
        assert!(all.contains(&packet.src) && all.contains(&packet.dst), "{packet:?} {all:?}");
    }
}

/// A generated frame with some bytes replaced and the end truncated.
fn damaged() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let mut frames = generated::other_frames();
    frames.extend(generated::ethernet_frames().into_iter().map(|frame| (1, frame)));
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    (prop::sample::select(frames), changes, any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |((link_type, mut frame), changes, cut, is_cut)| {
            for (at, value) in changes {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            if is_cut {
                frame.truncate(cut.index(frame.len()));
            }
            (link_type, frame)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Arbitrary bytes as any link type, and as the payload of any protocol.
    #[test]
    fn arbitrary_bytes(
        frame in prop::collection::vec(any::<u8>(), 0..200),
        link_type in prop::sample::select(LINK_TYPES.to_vec()),
        protocol in any::<u8>(),
    ) {
        if let Ok(packet) = decode(link_type, &frame) {
            assert_sound(&frame, &packet);
        }
        assert_addresses(link_type, &frame);
        let outer = decode(101, &ipv4_with(1, protocol, &[], 9, &[0; 8])).expect("a fragment");
        if let Ok(packet) = decode_payload(&outer, &frame) {
            assert_inside(&frame, &packet);
        }
        addresses_of_payload(&outer, &frame, &mut |_| ());
    }

    /// Damaged frames, which reach deeper layers than arbitrary bytes do.
    #[test]
    fn damaged_frames((link_type, frame) in damaged()) {
        if let Ok(packet) = decode(link_type, &frame) {
            assert_sound(&frame, &packet);
        }
        assert_addresses(link_type, &frame);
    }

    /// Datagrams in fragments, shuffled and repeated, are reassembled once and completely. Every
    /// fragment counts exactly once: by its own push, as released, or as an orphan.
    #[test]
    fn fragments_come_together(
        sizes in prop::collection::vec(1_usize..80, 1..6),
        unit in 1_usize..9,
        repeats in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        seed in any::<u64>(),
        lost in any::<Option<prop::sample::Index>>(),
    ) {
        let mut pieces = Vec::new();
        let mut wholes = Vec::new();
        for (net, units) in sizes.iter().enumerate() {
            let content: Vec<u8> = (0..units * 8).map(|i| (i * 31 + net) as u8).collect();
            let whole = udp(53, 1000 + net as u16, &content);
            let step = unit * 8;
            for offset in (0..whole.len()).step_by(step) {
                let more = offset + step < whole.len();
                let data = &whole[offset..(offset + step).min(whole.len())];
                let word = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
                if word != 0 {
                    pieces.push((net, ipv4_with(net as u8, 17, &[], word, data)));
                }
            }
            wholes.push(whole);
        }
        if let Some(lost) = lost && !pieces.is_empty() {
            pieces.remove(lost.index(pieces.len()));
        }
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        if !pieces.is_empty() {
            order.extend(repeats.iter().map(|repeat| repeat.index(pieces.len())));
        }
        Random(seed).shuffle(&mut order);

        let mut table = Reassembler::new(1 << 20);
        let mut accounted = Vec::new();
        let mut completed = vec![0_usize; sizes.len()];
        for (number, index) in order.iter().enumerate() {
            let (net, frame) = &pieces[*index];
            let packet = decode(101, frame).expect("a fragment built here");
            let fragment = packet.fragment.expect("a fragment");
            let data = &frame[fragment.data_offset as usize..][..fragment.data_len as usize];
            let push = table.push(&packet, data, number as u64, 0);
            if let Some(ports) = push.ports {
                prop_assert_eq!(ports, (53, 1000 + *net as u16));
                accounted.push(number as u64);
            }
            accounted.extend(push.released.iter().map(|held| held.number));
            if let Outcome::Complete { outer, payload } = push.outcome {
                prop_assert_eq!(&payload, &wholes[*net]);
                let inner = decode_payload(&outer, &payload).expect("a UDP packet");
                prop_assert_eq!((inner.src_port, inner.dst_port), (53, 1000 + *net as u16));
                completed[*net] += 1;
            }
        }
        table.finish();
        accounted.extend(table.orphans().iter().map(|orphan| orphan.held.number));
        accounted.sort_unstable();
        prop_assert_eq!(accounted, (0..order.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!(table.used_bytes(), 0);
        if lost.is_none() {
            for (net, whole) in wholes.iter().enumerate() {
                prop_assert!(completed[net] >= 1 || whole.len() <= unit * 8);
            }
        }
    }
}

/// The same checks, as far as they apply if `frame` lacks the IP header.
fn assert_inside(frame: &[u8], packet: &Packet) {
    let end = packet.payload_offset as usize + packet.payload_len as usize;
    assert!(end <= frame.len());
    assert!(packet.payload_len <= packet.payload_bytes);
}
