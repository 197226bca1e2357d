//! Every supported layer and tunnel, built by hand: larder decodes the innermost packet. If the
//! payload is not a packet, the result is the packet around it.

mod packet_support;

use larder_wire::packet::{Packet, Skip, Tunnel, addresses, decode};
use packet_support::layer::*;

const TCP_SYN: u8 = 2;

fn inner_udp() -> Vec<u8> {
    ipv4(9, 17, &udp(53, 4000, b"answer"))
}

fn inner_udp6() -> Vec<u8> {
    ipv6(9, 17, &udp(53, 4000, b"answer"))
}

/// Checks that `frame` leads to the UDP packet that [`inner_udp`] or [`inner_udp6`] made.
fn assert_inner(link_type: u16, frame: &[u8], tunnels: u8, tunnel: Option<Tunnel>, what: &str) {
    let packet = decode(link_type, frame).unwrap_or_else(|skip| panic!("{what}: {skip:?}"));
    assert_eq!((packet.src_port, packet.dst_port, packet.protocol), (53, 4000, 17), "{what}");
    assert_eq!((packet.tunnels, packet.tunnel), (tunnels, tunnel), "{what}");
    let at = packet.payload_offset as usize;
    assert_eq!(&frame[at..at + packet.payload_len as usize], b"answer", "{what}");
    assert_eq!(packet.payload_bytes, 6, "{what}");
    let src = packet.src.to_string();
    assert_eq!(src, if packet.ip_version == 4 { "10.0.9.1" } else { "2001:db8:9::1" }, "{what}");
    assert_eq!(packet.ip_bytes, if packet.ip_version == 4 { 34 } else { 54 }, "{what}");
}

/// For each link type larder finds IPv4 and IPv6 after the header.
#[test]
fn link_types() {
    for (ip, ether_type, family, ppp) in
        [(inner_udp(), 0x0800_u16, 2_u32, 0x21_u8), (inner_udp6(), 0x86dd, 30, 0x57)]
    {
        let kind = ether_type.to_be_bytes();
        for link_type in [12, 14, 101, 228, 229] {
            assert_inner(link_type, &ip, 0, None, "raw");
        }
        for link_type in [0, 108] {
            assert_inner(link_type, &join(&[&family.to_le_bytes(), &ip]), 0, None, "null LE");
            assert_inner(link_type, &join(&[&family.to_be_bytes(), &ip]), 0, None, "null BE");
        }
        for link_type in [9, 50] {
            assert_inner(link_type, &join(&[&[0xff, 3, 0, ppp], &ip]), 0, None, "PPP in HDLC");
            assert_inner(link_type, &join(&[&[0, ppp], &ip]), 0, None, "PPP");
            assert_inner(link_type, &join(&[&[ppp], &ip]), 0, None, "PPP, compressed field");
        }
        assert_inner(104, &join(&[&[0x0f, 0], &kind, &ip]), 0, None, "Cisco HDLC");
        assert_inner(51, &pppoe(u16::from(ppp), &ip), 0, None, "PPPoE");
        let sll = join(&[&[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0], &kind, &ip]);
        assert_inner(113, &sll, 0, None, "SLL");
        let sll2 = join(&[&kind, &[0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0], &ip]);
        assert_inner(276, &sll2, 0, None, "SLL2");
        let snap = join(&[&[0xaa, 0xaa, 3, 0, 0, 0], &kind, &ip]);
        assert_inner(1, &ethernet(snap.len() as u16, &snap), 0, None, "802.3 with SNAP");
    }
    assert_eq!(decode(105, &[0; 64]), Err(Skip::UnknownLinkType(105)));
    assert_eq!(decode(1, &ethernet(0x0806, &[0; 28])), Err(Skip::NotIp(0x0806)));
    assert_eq!(decode(1, &[0; 13]), Err(Skip::LinkTruncated));
}

/// larder skips tags, labels and sessions between Ethernet and IP; they do not count as tunnels.
#[test]
fn tags_and_labels() {
    let ip = inner_udp();
    for outer in [0x8100, 0x88a8, 0x9100, 0x9200] {
        assert_inner(1, &ethernet(outer, &vlan(0x0800, &ip)), 0, None, "802.1Q");
        let double = ethernet(outer, &vlan(0x8100, &vlan(0x0800, &ip)));
        assert_inner(1, &double, 0, None, "QinQ");
    }
    let in_vlan = ethernet(0x8100, &vlan(0x8864, &pppoe(0x21, &ip)));
    assert_inner(1, &in_vlan, 0, None, "PPPoE in 802.1Q");
    for labels in [1, 3, 8] {
        assert_inner(1, &ethernet(0x8847, &mpls(labels, &ip)), 0, None, "MPLS");
        let six = ethernet(0x8848, &mpls(labels, &inner_udp6()));
        assert_inner(1, &six, 0, None, "MPLS, IPv6");
    }
    let wire = ethernet(0x0800, &ip);
    let with_control_word = mpls(2, &join(&[&[0, 0, 0, 9], &wire]));
    assert_inner(1, &ethernet(0x8847, &with_control_word), 0, None, "pseudowire");
    assert_inner(1, &ethernet(0x8847, &mpls(1, &wire)), 0, None, "pseudowire, no control word");
    let other = ethernet(0x8847, &mpls(1, &[0x10; 40]));
    assert_eq!(decode(1, &other), Err(Skip::NotIp(0x8847)));
}

/// A source in 8.0.0.0/16 puts the EtherType of IPv4 where a pseudowire would have it; the checksum
/// shows that this is IP.
#[test]
fn mpls_source_like_an_ether_type() {
    let mut ip = inner_udp();
    ip[12..14].copy_from_slice(&[8, 0]);
    let sum = u16::from_be_bytes([ip[10], ip[11]]);
    let sum = u32::from(sum) + 0x0a00 - 0x0800;
    ip[10..12].copy_from_slice(&((sum & 0xffff) as u16 + (sum >> 16) as u16).to_be_bytes());
    let packet = decode(1, &ethernet(0x8847, &mpls(1, &ip))).expect("an IP packet");
    assert_eq!(packet.src.to_string(), "8.0.9.1");
}

/// Each tunnel over IP and over UDP leads to the packet inside.
#[test]
fn tunnels() {
    let (ip, ip6) = (inner_udp(), inner_udp6());
    let wire = ethernet(0x0800, &ip);
    let over_ip = |protocol, inside: &[u8]| ethernet(0x0800, &ipv4(1, protocol, inside));
    let over_ip6 = |protocol, inside: &[u8]| ethernet(0x86dd, &ipv6(1, protocol, inside));
    let over_udp = |port, inside: &[u8]| over_ip(17, &udp(50_000, port, inside));
    let erspan = [0x10, 1, 0, 0, 0, 0, 0, 0];
    let erspan_iii = [0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut erspan_iii_long = [0; 20];
    erspan_iii_long[0] = 0x20;
    erspan_iii_long[11] = 1;
    let mut erspan_iii_ip = erspan_iii;
    erspan_iii_ip[10] = 2 << 2;
    let ext = [0, 1, 0, 0x85, 1, 0, 9, 0];
    let vxlan_gpe =
        |flags: u8, next: u8, inside: &[u8]| join(&[&[flags, 0, 0, next, 0, 0, 7, 0], inside]);
    let ppp = join(&[&[0xff, 3, 0, 0x21], &ip]);
    // Length, sequence and an offset of two.
    let l2tp_len = (16 + ppp.len() as u16).to_be_bytes();
    let l2tp_all = join(&[&[0x4a, 2], &l2tp_len, &[0, 7, 0, 9, 0, 1, 0, 2, 0, 2, 0xaa, 0xaa]]);
    for (tunnel, frame) in [
        (Tunnel::IpInIp, over_ip(4, &ip)),
        (Tunnel::IpInIp, over_ip6(4, &ip)),
        (Tunnel::IpInIp, over_ip6(41, &ip6)),
        (Tunnel::SixInFour, over_ip(41, &ip6)),
        (Tunnel::Gre, over_ip(47, &gre(0, 0x0800, &[], &ip))),
        (Tunnel::Gre, over_ip6(47, &gre(0, 0x86dd, &[], &ip6))),
        (Tunnel::Gre, over_ip(47, &gre(0x8000, 0x0800, &[0; 4], &ip))),
        (Tunnel::Gre, over_ip(47, &gre(0xb000, 0x0800, &[0; 12], &ip))),
        (Tunnel::Gre, over_ip(47, &gre(0x2000, 0x6558, &[0; 4], &wire))),
        (Tunnel::Gre, over_ip(47, &gre(0, 0x8847, &[], &mpls(1, &ip)))),
        (
            Tunnel::Gre,
            over_ip(47, &gre(0x3081, 0x880b, &[0; 12], &join(&[&[0xff, 3, 0, 0x21], &ip]))),
        ),
        (Tunnel::Erspan, over_ip(47, &gre(0, 0x88be, &[], &wire))),
        (Tunnel::Erspan, over_ip(47, &gre(0x1000, 0x88be, &[0; 4], &join(&[&erspan, &wire])))),
        (Tunnel::Erspan, over_ip(47, &gre(0x1000, 0x22eb, &[0; 4], &join(&[&erspan_iii, &wire])))),
        (
            Tunnel::Erspan,
            over_ip(47, &gre(0x1000, 0x22eb, &[0; 4], &join(&[&erspan_iii_long, &wire]))),
        ),
        (Tunnel::Erspan, over_ip(47, &gre(0x1000, 0x22eb, &[0; 4], &join(&[&erspan_iii_ip, &ip])))),
        (Tunnel::Vxlan, over_udp(4789, &vxlan(&wire))),
        (Tunnel::Vxlan, over_udp(8472, &vxlan(&ethernet(0x8100, &vlan(0x0800, &ip))))),
        (Tunnel::Geneve, over_udp(6081, &geneve(0x6558, &[], &wire))),
        (Tunnel::Geneve, over_udp(6081, &geneve(0x86dd, &[1, 2, 3, 1, 0, 0, 0, 0], &ip6))),
        (Tunnel::GtpU, over_udp(2152, &gtp_u(0, &[], &ip))),
        (Tunnel::GtpU, over_udp(2152, &gtp_u(2, &[0, 1, 0, 0], &ip6))),
        (Tunnel::GtpU, over_udp(2152, &gtp_u(4, &ext, &ip))),
        (Tunnel::Teredo, over_udp(3544, &ip6)),
        (Tunnel::Teredo, over_udp(3544, &join(&[&[0, 0, 1, 2, 3, 4, 5, 6], &ip6]))),
        (
            Tunnel::Teredo,
            over_udp(3544, &join(&[&[0, 1, 0, 0], &[7; 9], &[0, 0, 1, 2, 3, 4, 5, 6], &ip6])),
        ),
        (Tunnel::Vxlan, over_udp(4790, &vxlan_gpe(0x0c, 1, &ip))),
        (Tunnel::Vxlan, over_udp(4790, &vxlan_gpe(0x0c, 2, &ip6))),
        (Tunnel::Vxlan, over_udp(4790, &vxlan_gpe(0x0e, 3, &wire))),
        (Tunnel::Vxlan, over_udp(4790, &vxlan_gpe(0x0c, 5, &mpls(2, &ip)))),
        (Tunnel::Vxlan, over_udp(4790, &vxlan_gpe(0x08, 0, &wire))),
        (Tunnel::Gre, over_udp(4754, &gre(0x2000, 0x0800, &[0; 4], &ip))),
        (Tunnel::Gre, over_udp(4754, &gre(0, 0x6558, &[], &wire))),
        (Tunnel::MplsInUdp, over_udp(6635, &mpls(3, &ip6))),
        (Tunnel::MplsInUdp, over_udp(6635, &mpls(1, &wire))),
        (Tunnel::L2tp, over_udp(1701, &join(&[&[0, 2, 0, 7, 0, 9], &ppp]))),
        (Tunnel::L2tp, over_udp(1701, &join(&[&[0, 2, 0, 7, 0, 9, 0, 0x57], &ip6]))),
        (Tunnel::L2tp, over_udp(1701, &join(&[&l2tp_all, &ppp]))),
        (Tunnel::L2tp, over_ip(17, &udp(1701, 1701, &join(&[&[0, 2, 0, 7, 0, 9], &ppp])))),
    ] {
        assert_inner(1, &frame, 1, Some(tunnel), &format!("{tunnel:?}"));
    }
    let nested = over_udp(4789, &vxlan(&over_ip(47, &gre(0, 0x0800, &[], &ip))));
    assert_inner(1, &nested, 2, Some(Tunnel::Gre), "GRE in VXLAN");
}

/// A payload that only resembles a tunnel, or is damaged inside, leaves a packet of the outer flow.
#[test]
fn outer_remains() {
    let ip = inner_udp();
    let wire = ethernet(0x0800, &ip);
    let outer = |frame: &[u8]| -> Packet {
        let packet = decode(1, frame).expect("the outer packet");
        assert_eq!((packet.tunnels, packet.tunnel), (0, None));
        assert_eq!(packet.src.to_string(), "10.0.1.1");
        packet
    };
    let over_udp =
        |port, inside: &[u8]| outer(&ethernet(0x0800, &ipv4(1, 17, &udp(50_000, port, inside))));
    for (port, inside) in [
        (4789, b"not a tunnel at all".to_vec()),
        (4789, vxlan(&ethernet(0x0806, &[0; 28]))),
        (4789, vxlan(&wire[..40])),
        (6081, geneve(0x0800, &[], &ip[..19])),
        (2152, gtp_u(4, &[0, 1, 0, 0x85, 0, 0, 0, 0], &ip)),
        (2152, vec![0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0]),
        (3544, vec![0, 1, 255, 255, 0]),
        (4790, join(&[&[0x0c, 0, 0, 4, 0, 0, 7, 0], &ip])),
        (4790, join(&[&[0x3c, 0, 0, 1, 0, 0, 7, 0], &ip])),
        (4790, join(&[&[0x04, 0, 0, 1, 0, 0, 7, 0], &ip])),
        (4790, vec![0x0c, 0, 0, 1]),
        (4754, vec![0x40, 0, 8, 0, 0, 0, 0, 0]),
        (6635, vec![0, 0, 0x11, 64]),
        (6635, vec![0, 0, 0x10, 64, 0x45]),
        // A control message, version 3, a length past the end, an offset past the end.
        (1701, join(&[&[0x80, 2, 0, 7, 0, 9, 0xff, 3, 0, 0x21], &ip])),
        (1701, join(&[&[0, 3, 0, 7, 0, 9, 0xff, 3, 0, 0x21], &ip])),
        (1701, join(&[&[0x40, 2, 1, 0, 0, 7, 0, 9, 0xff, 3, 0, 0x21], &ip])),
        (1701, join(&[&[0x02, 2, 0, 7, 0, 9, 0xff, 0xff, 0xff, 3, 0, 0x21], &ip])),
        (1701, vec![0]),
        (3544, Vec::new()),
    ] {
        let packet = over_udp(port, &inside);
        assert_eq!((packet.src_port, packet.dst_port), (50_000, port));
        assert_eq!(packet.payload_len as usize, inside.len());
    }
    for (protocol, inside) in [
        (4, &ip[..10]),
        (41, &ip[..]),
        (47, &[0x40, 0, 8, 0, 0, 0, 0, 0][..]),
        (47, &[0x30, 1, 0x88, 0x0b, 0, 0, 0, 0][..]),
    ] {
        let packet = outer(&ethernet(0x0800, &ipv4(1, protocol, inside)));
        assert_eq!((packet.protocol, packet.src_port, packet.dst_port), (protocol, 0, 0));
        assert_eq!(packet.payload_len as usize, inside.len());
    }
}

/// larder rejects seventeen encapsulations and accepts sixteen, in every mixture.
#[test]
fn too_many() {
    let mut frame = inner_udp();
    for _ in 0..16 {
        frame = ipv4(1, 4, &frame);
    }
    assert_inner(101, &frame, 16, Some(Tunnel::IpInIp), "sixteen");
    assert_eq!(decode(101, &ipv4(1, 4, &frame)), Err(Skip::TooManyTunnels));
    assert_eq!(decode(1, &ethernet(0x8100, &vlan(0x0800, &frame))), Err(Skip::TooManyTunnels));
    let labels = ethernet(0x8847, &mpls(17, &inner_udp()));
    assert_eq!(decode(1, &labels), Err(Skip::TooManyTunnels));
}

/// Options, extension headers and padding are not payload.
#[test]
fn options_extensions_padding() {
    let segment = udp(53, 4000, b"answer");
    let with_options = ipv4_with(9, 17, &[1; 12], 0, &segment);
    let packet = decode(101, &with_options).expect("a packet");
    assert_eq!((packet.src_port, packet.payload_offset, packet.payload_len), (53, 40, 6));

    let padded = join(&[&ethernet(0x0800, &inner_udp()), &[0; 12]]);
    assert_inner(1, &padded, 0, None, "padding");

    let hop = [0; 8];
    let routing = [0; 24];
    let extended = ipv6(
        9,
        0,
        &join(&[
            &[43],
            &hop[1..],
            &[60, 2],
            &routing[2..],
            &[51, 0],
            &hop[2..],
            &[17, 4],
            &[0; 22],
            &segment,
        ]),
    );
    let packet = decode(101, &extended).expect("a packet");
    assert_eq!((packet.protocol, packet.src_port, packet.payload_len), (17, 53, 6));
    assert_eq!(packet.ip_bytes as usize, extended.len());

    let authenticated = ipv4(9, 51, &join(&[&[17, 4], &[0; 22], &segment]));
    let packet = decode(101, &authenticated).expect("a packet");
    assert_eq!((packet.protocol, packet.src_port), (17, 53));

    let endless: Vec<u8> = [60, 0, 0, 0, 0, 0, 0, 0].repeat(40);
    assert_eq!(decode(101, &ipv6(9, 60, &endless)), Err(Skip::IpMalformed));
}

/// A length of 0 (from segmentation offload) means the frame's length.
#[test]
fn zero_length() {
    let mut frame = ipv4(9, 6, &tcp(443, 5000, 0x18, &[], &[7; 3000]));
    frame[2..4].copy_from_slice(&[0, 0]);
    let packet = decode(101, &frame).expect("a packet");
    assert_eq!((packet.ip_bytes, packet.payload_len), (3040, 3000));
    let mut frame = ipv6(9, 6, &tcp(443, 5000, 0x18, &[], &[7; 3000]));
    frame[4..6].copy_from_slice(&[0, 0]);
    let packet = decode(101, &frame).expect("a packet");
    assert_eq!((packet.ip_bytes, packet.payload_len), (3060, 3000));
    let empty = decode(101, &ipv6(9, 59, &[])).expect("no next header");
    assert_eq!((empty.protocol, empty.ip_bytes, empty.payload_len), (59, 40, 0));
}

/// In truncated captures sizes are those of the headers, and a TCP packet is valid if it includes
/// its flags.
#[test]
fn cut_captures() {
    let frame = ipv4(9, 6, &tcp(443, 5000, TCP_SYN, &[1; 8], &[7; 100]));
    let whole = decode(101, &frame).expect("a packet");
    assert_eq!((whole.payload_offset, whole.payload_len, whole.payload_bytes), (48, 100, 100));
    for len in 0..frame.len() {
        let cut = decode(101, &frame[..len]);
        match len {
            0..20 => assert_eq!(cut, Err(Skip::IpTruncated)),
            20..34 => assert_eq!(cut, Err(Skip::TransportMalformed)),
            _ => {
                let mut packet = cut.expect("a cut packet");
                assert_eq!(packet.payload_len as usize, len.saturating_sub(48));
                packet.payload_len = whole.payload_len;
                packet.payload_offset = whole.payload_offset;
                packet.tcp_window = whole.tcp_window;
                assert_eq!(packet, whole);
            }
        }
    }
    let frame = ipv4(9, 17, &udp(53, 4000, &[7; 100]));
    assert_eq!(decode(101, &frame[..23]), Err(Skip::TransportMalformed));
    let packet = decode(101, &frame[..24]).expect("ports are there");
    assert_eq!((packet.dst_port, packet.payload_len, packet.payload_bytes), (4000, 0, 100));
}

/// Headers that contradict themselves are reported as malformed.
#[test]
fn malformed() {
    let good = ipv4(9, 6, &tcp(443, 5000, TCP_SYN, &[], b""));
    for (at, value, skip) in [
        (0, 0x44, Skip::IpMalformed),
        (0, 0x55, Skip::IpMalformed),
        (3, 19, Skip::IpMalformed),
        (32, 0x40, Skip::TransportMalformed),
        (32, 0x60, Skip::TransportMalformed),
    ] {
        let mut frame = good.clone();
        frame[at] = value;
        assert_eq!(decode(101, &frame), Err(skip), "{at} {value:#x}");
    }
    let mut short = ipv4(9, 17, &udp(53, 4000, b"x"));
    short[25] = 7;
    assert_eq!(decode(101, &short), Err(Skip::TransportMalformed));
    short[25] = 200;
    let long = decode(101, &short).expect("clipped at the end of the IP payload");
    assert_eq!((long.payload_len, long.payload_bytes), (1, 1));
    assert_eq!(decode(101, &ipv4(9, 1, &[8, 0, 0])), Err(Skip::TransportMalformed));
}

/// ICMP has type and code, SCTP has ports, other protocols have neither.
#[test]
fn other_transports() {
    let echo = decode(101, &ipv4(9, 1, &[8, 3, 0, 0, 0, 1, 0, 1, 9, 9])).expect("ICMP");
    assert_eq!((echo.src_port, echo.dst_port, echo.payload_len), (8, 3, 2));
    let echo = decode(101, &ipv6(9, 58, &[129, 0, 0, 0, 0, 1, 0, 1])).expect("ICMPv6");
    assert_eq!((echo.src_port, echo.dst_port, echo.payload_len), (129, 0, 0));
    let sctp =
        decode(101, &ipv4(9, 132, &[0, 7, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3])).expect("SCTP");
    assert_eq!((sctp.src_port, sctp.dst_port, sctp.payload_len), (7, 80, 2));
    let esp = decode(101, &ipv4(9, 50, &[1, 2, 3, 4, 5, 6, 7, 8])).expect("ESP");
    assert_eq!((esp.protocol, esp.src_port, esp.payload_offset, esp.payload_len), (50, 0, 20, 8));
}

/// The first fragment has ports, later ones have none. larder decodes no tunnel in either. A
/// fragment that is the complete datagram does not count as one.
#[test]
fn fragments() {
    let segment = udp(50_000, 4789, &vxlan(&ethernet(0x0800, &inner_udp())));
    let first = decode(101, &ipv4_with(9, 17, &[], 0x2000, &segment[..64])).expect("a packet");
    assert_eq!((first.src_port, first.dst_port, first.tunnels), (50_000, 4789, 0));
    assert_eq!((first.payload_offset, first.payload_len, first.payload_bytes), (28, 56, 56));
    let fragment = first.fragment.expect("a fragment");
    assert_eq!((fragment.id, fragment.offset, fragment.more), (0x1234, 0, true));
    assert_eq!((fragment.data_offset, fragment.data_len, fragment.data_bytes), (20, 64, 64));

    let last = decode(101, &ipv4_with(9, 17, &[], 8, &segment[64..])).expect("a packet");
    assert_eq!((last.src_port, last.dst_port, last.payload_offset), (0, 0, 20));
    let fragment = last.fragment.expect("a fragment");
    assert_eq!((fragment.offset, fragment.more), (64, false));

    let tiny = decode(101, &ipv4_with(9, 6, &[], 0x2000, &tcp(1, 2, 2, &[], b"")[..8]));
    let tiny = tiny.expect("a first fragment may be as short as that");
    assert_eq!((tiny.src_port, tiny.dst_port, tiny.tcp_flags, tiny.payload_len), (1, 2, 0, 0));
    assert_eq!(tiny.fragment.map(|fragment| fragment.data_len), Some(8));

    let atomic = ipv6(9, 44, &join(&[&[17, 0, 0, 0, 0, 0, 0, 7], &udp(53, 4000, b"answer")]));
    let atomic = decode(101, &atomic).expect("a packet");
    assert_eq!((atomic.fragment, atomic.src_port), (None, 53));

    let hidden =
        ipv6(9, 44, &join(&[&[60, 0, 0, 1, 0, 0, 0, 7], &[17, 0, 0, 0, 0, 0, 0, 0], &segment]));
    let hidden = decode(101, &hidden).expect("a packet");
    assert_eq!((hidden.protocol, hidden.src_port), (60, 0));
    assert_eq!(hidden.fragment.map(|fragment| (fragment.id, fragment.offset)), Some((7, 0)));
}

/// All addresses of a frame, in the order found.
fn addresses_in(link_type: u16, frame: &[u8]) -> String {
    let mut found = Vec::new();
    addresses(link_type, frame, &mut |addr| found.push(addr.to_string()));
    found.join(" ")
}

/// larder finds the addresses of each IP header: outer and inner, in first fragments, quoted by
/// ICMP errors, truncated or not. It also finds those of ARP, and those in frames without a packet.
#[test]
fn addresses_of_all_headers() {
    const INNER: &str = "10.0.9.1 10.0.9.2";
    let in_gre = |net| ipv4(net, 47, &gre(0, 0x0800, &[], &inner_udp()));
    let vxlan = ipv4(1, 17, &udp(9, 4789, &vxlan(&ethernet(0x0800, &in_gre(2)))));
    assert_eq!(addresses_in(101, &vxlan), format!("10.0.1.1 10.0.1.2 10.0.2.1 10.0.2.2 {INNER}"));
    let labels = ethernet(0x8847, &mpls(2, &in_gre(2)));
    assert_eq!(addresses_in(1, &labels), format!("10.0.2.1 10.0.2.2 {INNER}"));
    let geneve = ipv6(1, 17, &udp(9, 6081, &geneve(0x86dd, &[], &inner_udp6())));
    let outer6 = "2001:db8:1::1 2001:db8:1::2";
    assert_eq!(addresses_in(101, &geneve), format!("{outer6} 2001:db8:9::1 2001:db8:9::2"));

    // A first fragment of a tunnel, and a later one.
    for (word, expected) in
        [(0x2000, format!("10.0.1.1 10.0.1.2 {INNER}")), (1, "10.0.1.1 10.0.1.2".into())]
    {
        let mut fragment = ipv4(1, 47, &gre(0, 0x0800, &[], &inner_udp()));
        fragment[6..8].copy_from_slice(&u16::to_be_bytes(word));
        assert_eq!(addresses_in(101, &fragment), expected);
    }

    // An error quotes a part of a packet; an echo reply quotes nothing.
    let quoted = &in_gre(2)[..46];
    for (kind, is_quoted) in [(3, true), (11, true), (0, false)] {
        let message = join(&[&[kind, 0, 0, 0, 0, 0, 0, 0], quoted]);
        let rest = if is_quoted { format!(" 10.0.2.1 10.0.2.2 {INNER}") } else { String::new() };
        assert_eq!(addresses_in(101, &ipv4(1, 1, &message)), format!("10.0.1.1 10.0.1.2{rest}"));
    }

    // Addresses without a packet: a malformed transport header, an IP header truncated in its
    // destination, ARP.
    let broken = ipv4(1, 6, &[0; 9]);
    assert_eq!(decode(101, &broken), Err(Skip::TransportMalformed));
    assert_eq!(addresses_in(101, &broken), "10.0.1.1 10.0.1.2");
    assert_eq!(addresses_in(101, &broken[..18]), "10.0.1.1");
    let hardware = [2; 6];
    let arp =
        join(&[&[0, 1, 8, 0, 6, 4, 0, 1], &hardware, &[10, 0, 0, 7], &hardware, &[10, 0, 0, 8]]);
    assert_eq!(addresses_in(1, &ethernet(0x0806, &arp)), "10.0.0.7 10.0.0.8");
    assert_eq!(addresses_in(1, &ethernet(0x8100, &vlan(0x0806, &arp))), "10.0.0.7 10.0.0.8");
    assert_eq!(addresses_in(1, &ethernet(0x0806, &arp[..27])), "10.0.0.7");
    assert_eq!(addresses_in(1, &ethernet(0x88cc, &arp)), "");
}
