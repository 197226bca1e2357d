//! Valid frames of every kind, for the tests that compare or damage them. Ethernet unless stated
//! otherwise.

use super::layer::*;

/// The innermost packets: IPv4 and IPv6 with TCP, UDP, ICMP, SCTP, ESP, options and extensions.
fn innermost() -> Vec<(u16, Vec<u8>)> {
    let fragment_v6 =
        |word: u16, inside: &[u8]| join(&[&[17, 0], &word.to_be_bytes(), &[0, 0, 0, 7], inside]);
    let segment = udp(53, 4000, &[0; 64]);
    let v4 = [
        ipv4(9, 17, &udp(5000, 4000, b"answer")),
        ipv4(9, 17, &udp(5000, 4000, b"")),
        ipv4(9, 6, &tcp(40_000, 9999, 2, &[2, 4, 5, 0xb4], b"")),
        ipv4(9, 6, &tcp(40_000, 9999, 0x18, &[], &[0x55; 200])),
        ipv4(9, 1, &[8, 0, 0xf7, 0xfd, 0, 1, 0, 1]),
        ipv4(9, 50, &[0, 0, 1, 0, 0, 0, 0, 1, 7, 7, 7, 7]),
        ipv4(9, 132, &[0, 7, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0]),
        ipv4_with(9, 17, &[1; 8], 0, &udp(5000, 4000, b"answer")),
        ipv4_with(9, 17, &[], 0x2000, &segment),
        ipv4_with(9, 17, &[], 9, &segment),
        ipv4(9, 51, &join(&[&[17, 4], &[0; 22], &udp(5000, 4000, b"answer")])),
    ];
    let v6 = [
        ipv6(9, 17, &udp(5000, 4000, b"answer")),
        ipv6(9, 6, &tcp(40_000, 9999, 0x11, &[1; 4], &[0x55; 20])),
        ipv6(9, 58, &[128, 0, 0, 0, 0, 1, 0, 1]),
        ipv6(9, 0, &join(&[&[60, 0, 1, 4, 0, 0, 0, 0], &[17, 0, 1, 4, 0, 0, 0, 0], &segment])),
        ipv6(9, 44, &fragment_v6(1, &segment)),
        ipv6(9, 44, &fragment_v6(72 | 1, &segment)),
        ipv6(9, 44, &fragment_v6(0, &segment)),
        ipv6(9, 59, &[]),
    ];
    let v4 = v4.into_iter().map(|packet| (0x0800, packet));
    v4.chain(v6.into_iter().map(|packet| (0x86dd, packet))).collect()
}

/// Ethernet frames with tags, labels, sessions and tunnels around each innermost packet.
pub fn ethernet_frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (kind, ip) in innermost() {
        let wire = ethernet(kind, &ip);
        let (ip_in_ip, ppp) = if kind == 0x0800 { (4, 0x21) } else { (41, 0x57) };
        let ip_kind = if kind == 0x0800 { 1 } else { 2 };
        let over_ip = |protocol, inside: &[u8]| ethernet(0x0800, &ipv4(1, protocol, inside));
        let over_ip6 = |protocol, inside: &[u8]| ethernet(0x86dd, &ipv6(1, protocol, inside));
        let over_udp = |port, inside: &[u8]| over_ip(17, &udp(50_000, port, inside));
        let erspan = join(&[&[0x10, 1, 0, 0, 0, 0, 0, 0], &wire]);
        let erspan_iii = join(&[&[0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &wire]);
        frames.extend([
            ethernet(0x8100, &vlan(kind, &ip)),
            ethernet(0x88a8, &vlan(0x8100, &vlan(kind, &ip))),
            ethernet(0x8847, &mpls(2, &ip)),
            ethernet(0x8847, &mpls(1, &join(&[&[0, 0, 0, 9], &wire]))),
            ethernet(0x8864, &pppoe(ppp, &ip)),
            over_ip(ip_in_ip, &ip),
            over_ip6(ip_in_ip, &ip),
            over_ip(47, &gre(0, kind, &[], &ip)),
            over_ip(47, &gre(0x2000, 0x6558, &[0, 0, 0, 9], &wire)),
            over_ip6(47, &gre(0x3000, kind, &[0, 0, 0, 9, 0, 0, 0, 1], &ip)),
            over_ip(47, &gre(0, 0x88be, &[], &wire)),
            over_ip(47, &gre(0x1000, 0x88be, &[0; 4], &erspan)),
            over_ip(47, &gre(0x1000, 0x22eb, &[0; 4], &erspan_iii)),
            over_udp(4789, &vxlan(&wire)),
            over_udp(6081, &geneve(0x6558, &[1, 2, 3, 1, 0, 0, 0, 0], &wire)),
            over_udp(6081, &geneve(kind, &[], &ip)),
            over_udp(2152, &gtp_u(0, &[], &ip)),
            over_udp(2152, &gtp_u(2, &[0, 1, 0, 0], &ip)),
            over_udp(2152, &gtp_u(4, &[0, 0, 0, 0x85, 1, 0, 9, 0], &ip)),
            over_udp(4789, &vxlan(&over_ip(47, &gre(0, kind, &[], &ip)))),
            over_udp(4790, &join(&[&[0x0c, 0, 0, 3, 0, 0, 7, 0], &wire])),
            over_udp(4790, &join(&[&[0x0c, 0, 0, ip_kind, 0, 0, 7, 0], &ip])),
            over_udp(4754, &gre(0x2000, kind, &[0, 0, 0, 9], &ip)),
            over_udp(6635, &mpls(2, &ip)),
            over_udp(1701, &join(&[&[0, 2, 0, 7, 0, 9, 0xff, 3, 0, ppp as u8], &ip])),
        ]);
        if kind == 0x86dd {
            frames.push(over_udp(3544, &ip));
            frames.push(over_udp(3544, &join(&[&[0, 0, 1, 2, 3, 4, 5, 6], &ip])));
        }
        frames.push(wire);
    }
    frames
}

/// The innermost packets after the header of each other supported link type.
pub fn other_frames() -> Vec<(u16, Vec<u8>)> {
    let mut frames = Vec::new();
    for (kind, ip) in innermost() {
        let is_v4 = kind == 0x0800;
        let kind = kind.to_be_bytes();
        let (family, ppp) = if is_v4 { (2_u32, 0x21) } else { (30, 0x57) };
        let sll = join(&[&[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0], &kind, &ip]);
        let sll2 = join(&[&kind, &[0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0], &ip]);
        frames.extend([
            (0, join(&[&family.to_le_bytes(), &ip])),
            (108, join(&[&family.to_be_bytes(), &ip])),
            (9, join(&[&[0xff, 3, 0, ppp], &ip])),
            (50, join(&[&[0xff, 3, 0, ppp], &ip])),
            (113, sll),
            (276, sll2),
            (if is_v4 { 228 } else { 229 }, ip.clone()),
            (101, ip),
        ]);
    }
    frames
}
