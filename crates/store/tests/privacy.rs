//! Removed parts are nowhere in the folder, and the stored parts stay valid.

mod common;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use common::world::{Random, find};
use common::*;
use larder_store::privacy::Pseudonyms;
use larder_store::{FlowKey, Options, Privacy, Store};
use larder_testkit::frames::{fold, sum};
use larder_wire::packet;
use proptest::prelude::*;

const KEY: [u8; 32] = [7; 32];

fn keep(folder: &Path, privacy: Privacy, frames: &[Vec<u8>], names: &[(usize, &str)]) -> u64 {
    let mut options: Options = options(folder);
    options.privacy = privacy;
    let mut store = Store::open(options, &interfaces()).unwrap();
    let counts = store.counts().clone();
    let mut next = 1;
    for (batch, chunk) in frames.chunks(5).enumerate() {
        let mut made = Made::default();
        for (at, frame) in chunk.iter().enumerate() {
            made.packet(0, (batch * 5 + at) as i64, frame);
        }
        for (index, name) in names.iter().filter(|(index, _)| index / 5 == batch) {
            made.events.push(event(key(&frames[*index]), *index as u64 + 1, name));
        }
        made.append(&mut store, &mut next);
    }
    store.finish().unwrap();
    counts.packets_unsampled.load(Relaxed)
}

/// Payloads are cut, headers stay and decode to the same flow, DNS stays whole, the length on the
/// wire is stored; other frames keep their link header. The snap length cuts all.
#[test]
fn payloads_are_cut() {
    let secret = b"not for anybody to read";
    let plain = udp([10, 0, 0, 1], 7, [10, 0, 0, 2], 8, secret);
    let stream = tcp([10, 0, 0, 1], 7, [10, 0, 0, 2], 443, secret);
    let dns = udp([10, 0, 0, 1], 7, [10, 0, 0, 2], 53, b"a question");
    let arp = ethernet(secret, 0x0806);
    let damaged = ethernet(&[&[0x4fu8, 0, 0, 20][..], &secret[..]].concat(), 0x0800);
    let frames = [plain, stream, dns, arp, damaged];
    let headers = Privacy { headers_only: true, keep_dns: true, ..Privacy::default() };
    let folder = tempfile::tempdir().unwrap();
    keep(folder.path(), headers.clone(), &frames, &[]);
    let kept = all_frames(folder.path());
    let lengths: Vec<usize> = kept.iter().map(|(_, frame)| frame.len()).collect();
    assert_eq!(lengths, [42, 54, 52, 14, 14]);
    for (index, (_, frame)) in kept.iter().enumerate() {
        assert!(frames[index].starts_with(frame));
    }
    assert_eq!(key(&kept[1].1), key(&frames[1]));
    let file = std::fs::read(folder.path().join("00000000.pcapng")).unwrap();
    assert!(!file.windows(secret.len()).any(|window| window == secret));
    let wire = u32::try_from(frames[1].len()).unwrap().to_le_bytes();
    assert!(file.windows(4).any(|window| window == wire), "the length on the wire");

    let folder = tempfile::tempdir().unwrap();
    keep(folder.path(), Privacy { snap_bytes: 30, ..headers }, &frames, &[]);
    let kept = all_frames(folder.path());
    assert_eq!(kept.iter().map(|(_, frame)| frame.len()).collect::<Vec<_>>(), [30, 30, 30, 14, 14]);
}

/// One flow in N is stored whole, the others not at all, and the same ones each time.
#[test]
fn whole_flows_are_sampled() {
    let frames: Vec<_> = (0..3000u16)
        .map(|at| match at % 10 {
            0 => ethernet(&[0; 40], 0x0806),
            _ => udp([10, 0, 0, 1], at % 500, [10, 0, 0, 2], 8, b"x"),
        })
        .collect();
    let mut before = None;
    for _ in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let privacy = Privacy { sample: 4, sample_seed: 99, ..Privacy::default() };
        let unsampled = keep(folder.path(), privacy, &frames, &[(1, "example.com")]);
        let kept = all_frames(folder.path());
        assert_eq!(kept.len() as u64 + unsampled, 3000);
        let mut counts: HashMap<_, usize> = HashMap::new();
        kept.iter().for_each(|(_, frame)| *counts.entry(frame.clone()).or_default() += 1);
        assert_eq!(counts.remove(&frames[0]), Some(75));
        assert!((80..150).contains(&counts.len()), "{} of 450 flows", counts.len());
        assert!(counts.values().all(|count| *count == 6));
        let found = find(folder.path(), &["10.0.0.0/8".into()], Default::default(), false).0;
        assert_eq!(found.len(), counts.len() * 6);
        assert!(before.replace(kept.clone()).is_none_or(|before| before == kept));
    }
}

/// A frame in VXLAN between two others.
fn vxlan(inner: &[u8]) -> Vec<u8> {
    udp(
        [172, 16, 0, 1],
        5555,
        [172, 16, 0, 2],
        4789,
        &[&[8, 0, 0, 0, 0, 0, 1, 0][..], inner].concat(),
    )
}

/// Ethernet, IPv6 with a hop-by-hop header, UDP.
fn v6(src: [u8; 16], dst: [u8; 16], payload: &[u8]) -> Vec<u8> {
    let mut transport = vec![0, 7, 0, 8];
    transport.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    transport.extend_from_slice(&[0, 0]);
    transport.extend_from_slice(payload);
    let sum = transport_sum(&src, &dst, 17, &transport);
    transport[6..8].copy_from_slice(&sum.to_be_bytes());
    let mut out = vec![0x60, 0, 0, 0];
    out.extend_from_slice(&(8 + transport.len() as u16).to_be_bytes());
    out.extend_from_slice(&[0, 64]);
    out.extend_from_slice(&src);
    out.extend_from_slice(&dst);
    out.extend_from_slice(&[17, 0, 1, 4, 0, 0, 0, 0]);
    out.extend_from_slice(&transport);
    ethernet(&out, 0x86dd)
}

/// Checksums of the innermost packet, whose IP header is at `ip`, are right.
fn is_sound(frame: &[u8], ip: usize) -> bool {
    let (header, addresses, transport) = match frame[ip] >> 4 {
        4 => {
            (fold(sum(&frame[ip..ip + 20])) == 0xffff, &frame[ip + 12..ip + 20], &frame[ip + 20..])
        }
        _ => (true, &frame[ip + 8..ip + 40], &frame[ip + 48..]),
    };
    let protocol = if frame[ip] >> 4 == 4 { frame[ip + 9] } else { 17 };
    header && transport_sum(addresses, &[], protocol, transport) == 0
}

/// Addresses have pseudonyms in all headers, and only checksums change besides, which are right;
/// the index and the events have them too, so packets are found by pseudonym and by name, and not
/// by address.
#[test]
fn addresses_have_pseudonyms() {
    let (a, b) = ([192, 0, 2, 1], [198, 51, 100, 200]);
    let (c, d) = ([0x20; 16], [0xfd; 16]);
    let inner = tcp(a, 40000, b, 443, b"payload");
    let frames = [
        udp(a, 4000, b, 80, b"odd"),
        inner.clone(),
        vxlan(&inner),
        v6(c, d, b"six"),
        ethernet(&ipv4(a, b, 17, 185, b"a later fragment"), 0x0800),
        ethernet(&ipv4(a, b, 4, 0, &ipv4(b, a, 47, 0, b"inside")), 0x0800),
    ];
    let folder = tempfile::tempdir().unwrap();
    let privacy = Privacy { pseudonym_key: Some(KEY), ..Privacy::default() };
    keep(folder.path(), privacy, &frames, &[(1, "inner.example"), (3, "six.example")]);
    let kept: Vec<_> = all_frames(folder.path()).into_iter().map(|(_, frame)| frame).collect();
    let mut pseudonyms = Pseudonyms::new(&KEY);
    for (before, after) in frames.iter().zip(&kept) {
        let (before, after) =
            (packet::decode(1, before).unwrap(), packet::decode(1, after).unwrap());
        assert_eq!((after.src, after.dst), (pseudonyms.of(before.src), pseudonyms.of(before.dst)));
        let hidden = packet::Packet { src: after.src, dst: after.dst, ..before };
        assert_eq!(hidden, after);
    }
    let bytes = kept.concat();
    for addr in [&a[..], &b, &c, &d, &[172, 16, 0, 1], &[172, 16, 0, 2]] {
        assert!(!bytes.windows(addr.len()).any(|window| window == addr), "{addr:?}");
    }
    for (index, ip) in [(0, 14), (1, 14), (2, 14 + 20 + 8 + 8 + 14), (3, 14)] {
        assert!(is_sound(&frames[index], ip) && is_sound(&kept[index], ip), "{index}");
    }
    for header in [&kept[2][14..34], &kept[4][14..34], &kept[5][14..34], &kept[5][34..54]] {
        assert_eq!(fold(sum(header)), 0xffff);
    }
    let count = |word: String| find(folder.path(), &[word], Default::default(), false).0.len();
    assert_eq!(count("192.0.2.1".into()), 0);
    assert_eq!(count(pseudonyms.of(addr(a)).to_string()), 5);
    // The same ends in VXLAN are of another network.
    assert_eq!(count("inner.example".into()), 1);
    assert_eq!(count("six.example".into()), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// No frame panics or gets longer; with pseudonyms, no packet that decodes still has an
    /// original address.
    #[test]
    fn hostile_frames(seed: u64, headers_only: bool, keep_dns: bool, snap_bytes in 0u32..80) {
        let mut chance = Random(seed);
        let inner = udp([11, 0, 0, 1], 1, [11, 0, 0, 2], 53, b"hello");
        let models = [
            inner.clone(),
            vxlan(&inner),
            v6([0x20; 16], [0xfd; 16], b"six"),
            ethernet(&ipv4([11, 0, 0, 1], [11, 0, 0, 2], 4, 0, &inner[14..]), 0x0800),
        ];
        let frames: Vec<Vec<u8>> = (0..60)
            .map(|at| {
                let mut frame = models[at % models.len()].clone();
                for _ in 0..chance.below(4) {
                    let at = chance.below(frame.len() as u64) as usize;
                    frame[at] = chance.next() as u8;
                }
                frame.truncate(chance.below(2 * frame.len() as u64) as usize);
                frame
            })
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let privacy = Privacy {
            headers_only,
            keep_dns,
            snap_bytes,
            pseudonym_key: Some(KEY),
            ..Privacy::default()
        };
        keep(folder.path(), privacy, &frames, &[]);
        let mut pseudonyms = Pseudonyms::new(&KEY);
        let keys: HashSet<_> = frames
            .iter()
            .filter_map(|frame| packet::decode(1, frame).ok())
            .flat_map(|packet| [packet.src, packet.dst])
            .map(|addr| pseudonyms.of(addr))
            .collect();
        let kept = all_frames(folder.path());
        prop_assert_eq!(kept.len(), frames.len());
        for (before, (_, after)) in frames.iter().zip(&kept) {
            prop_assert!(after.len() <= before.len());
            if let (Ok(before), Ok(after)) = (packet::decode(1, before), packet::decode(1, after))
                && before.tunnels == after.tunnels
            {
                let (key, _) = FlowKey::of(&after);
                prop_assert!(keys.contains(&key.low) && keys.contains(&key.high));
            }
        }
    }
}
