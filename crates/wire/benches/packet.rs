//! Nanoseconds a packet, L1-hot: `cargo bench -p larder-wire --bench packet`.
//!
//! Under `cargo test` each case runs a few times only, to show that it works. Frames of a case are
//! few and stay in the first-level cache, so this is the cost of decoding, not of memory. `walk` is
//! the least there is to do on the same bytes: look at EtherType, header length, protocol, ports.

#[path = "../tests/packet_support/mod.rs"]
mod packet_support;

use std::hint::black_box;
use std::time::Instant;

use larder_wire::fragment::{Outcome, Reassembler};
use larder_wire::packet::{Packet, decode};
use larder_wire::{Addr, community_id};
use packet_support::layer::*;

/// Packets a round, and rounds, of which the best and the middle one are shown. Rounds are short,
/// so that on a busy machine some are undisturbed.
struct Size {
    packets: usize,
    rounds: usize,
}

fn main() {
    let size = if std::env::args().any(|arg| arg == "--bench") {
        Size { packets: 32_000, rounds: 601 }
    } else {
        Size { packets: 100, rounds: 1 }
    };
    println!("{:28} {:>8} {:>8}  checksum", "case", "best ns", "middle");
    let segment = tcp(443, 50_000, 0x18, &[1; 12], &[7; 500]);
    let datagram = udp(53, 50_000, &[7; 100]);
    let wire = ethernet(0x0800, &ipv4(1, 6, &segment));
    let tcp4: Vec<Vec<u8>> = (1..9).map(|net| ethernet(0x0800, &ipv4(net, 6, &segment))).collect();
    let mixed: Vec<Vec<u8>> = (0..16)
        .map(|net| match net * 7 % 4 {
            0 => ethernet(0x0800, &ipv4(net, 17, &datagram)),
            1 => ethernet(0x86dd, &ipv6(net, 6, &segment)),
            2 => ethernet(0x86dd, &ipv6(net, 17, &datagram)),
            _ => ethernet(0x0800, &ipv4(net, 6, &segment)),
        })
        .collect();
    let over_udp =
        |port, inside: &[u8]| vec![ethernet(0x0800, &ipv4(9, 17, &udp(50_000, port, inside)))];
    let cases: [(&str, Vec<Vec<u8>>); 10] = [
        ("ethernet/ipv4/tcp", tcp4),
        ("ethernet/ipv4/udp", (1..9).map(|n| ethernet(0x0800, &ipv4(n, 17, &datagram))).collect()),
        ("ethernet/ipv6/tcp", (1..9).map(|n| ethernet(0x86dd, &ipv6(n, 6, &segment))).collect()),
        ("ipv4+ipv6, tcp+udp", mixed.clone()),
        ("802.1Q/ipv4/tcp", vec![ethernet(0x8100, &vlan(0x0800, &ipv4(1, 6, &segment)))]),
        ("2 x mpls/ipv4/tcp", vec![ethernet(0x8847, &mpls(2, &ipv4(1, 6, &segment)))]),
        (
            "gre/ipv4/tcp",
            vec![ethernet(0x0800, &ipv4(9, 47, &gre(0, 0x0800, &[], &ipv4(1, 6, &segment))))],
        ),
        ("vxlan/ethernet/ipv4/tcp", over_udp(4789, &vxlan(&wire))),
        ("gtp-u/ipv4/tcp", over_udp(2152, &gtp_u(0, &[], &ipv4(1, 6, &segment)))),
        ("vxlan port, no vxlan", over_udp(4789, &[0; 100])),
    ];
    for (name, frames) in &cases {
        measure(name, &size, frames, |frame| {
            // By reference: a packet just written should not be copied at once.
            match &decode(1, black_box(frame)) {
                Ok(packet) => {
                    u64::from(packet.src_port)
                        + u64::from(packet.payload_len)
                        + u64::from(packet.src.0[14])
                }
                Err(_) => 0,
            }
        });
    }
    measure("walk: ipv4+ipv6, tcp+udp", &size, &mixed, |frame| walk(black_box(frame)).unwrap_or(0));
    for (name, frames) in fragmented() {
        let fragments: Vec<(Packet, &[u8])> = frames
            .iter()
            .map(|frame| (decode(101, frame).expect("a frame built here"), &frame[20..]))
            .collect();
        let mut table = Reassembler::new(1 << 20);
        measure(name, &size, &fragments, |(packet, data)| {
            match table.push(packet, data, 0, 0).outcome {
                Outcome::Complete { payload, .. } => payload.len() as u64,
                _ => 0,
            }
        });
    }
    let (src, dst) = (Addr::v4([192, 0, 2, 1]), Addr::v4([192, 0, 2, 2]));
    let few = Size { packets: size.packets / 20, ..size };
    let ports: Vec<u16> = (1000..1016).collect();
    measure("community id", &few, &ports, |port| {
        u64::from(community_id::v1(src, dst, *port, 443, 6, 0).as_bytes()[5])
    });
}

/// Datagrams in fragments that are pushed again and again: usual ones, and the worst there are.
fn fragmented() -> [(&'static str, Vec<Vec<u8>>); 2] {
    let whole = udp(53, 50_000, &[7; 3992]);
    let usual = vec![
        ipv4_with(1, 17, &[], 0x2000, &whole[..1480]),
        ipv4_with(1, 17, &[], 0x2000 | 185, &whole[1480..2960]),
        ipv4_with(1, 17, &[], 370, &whole[2960..]),
    ];
    let pieces = (0..500_u16).rev().map(|unit| {
        let more = if unit == 499 { 0 } else { 0x2000 };
        let at = usize::from(unit) * 8;
        ipv4_with(1, 17, &[], more | unit, &whole[at..at + 8])
    });
    [("fragments: 3 of 4 KB", usual), ("fragments: 500, backwards", pieces.collect())]
}

/// Runs `work` on each of `items` again and again, and prints the cost of once.
fn measure<T>(name: &str, size: &Size, items: &[T], mut work: impl FnMut(&T) -> u64) {
    let mut costs_ns = Vec::new();
    let mut checksum = 0_u64;
    let repeats = size.packets.div_ceil(items.len());
    for _ in 0..size.rounds {
        let start = Instant::now();
        checksum = 0;
        for _ in 0..repeats {
            checksum = items.iter().map(&mut work).fold(checksum, u64::wrapping_add);
        }
        costs_ns.push(start.elapsed().as_nanos() as f64 / (repeats * items.len()) as f64);
    }
    costs_ns.sort_by(f64::total_cmp);
    let (best, middle) = (costs_ns[0], costs_ns[costs_ns.len() / 2]);
    println!("{name:28} {best:8.2} {middle:8.2}  {checksum:x}");
}

/// The bare minimum: ports and nothing else.
fn walk(frame: &[u8]) -> Option<u64> {
    let kind = frame.get(12..14)?;
    let at = match kind {
        [0x08, 0x00] => 14 + usize::from(frame.get(14)? & 15) * 4,
        _ => 54,
    };
    let ports = frame.get(at..at + 4)?;
    Some(u64::from(ports[0]) + u64::from(ports[3]))
}
