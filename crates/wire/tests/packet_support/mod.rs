//! Shared by the packet tests: frames by layer, and files of them.
#![allow(dead_code)]

pub mod generated;
use larder_testkit::frames::Pcap;

/// A pcap file with these frames, all of one link type, for tools that read files.
pub fn write_pcap(link_type: u16, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Pcap::new(link_type);
    for (second, frame) in (0..).zip(frames) {
        file.push(second * 1_000_000_000, frame);
    }
    file.bytes
}

/// Layers: each function puts a header before its payload.
pub mod layer {
    /// Concatenates `parts`.
    pub fn join(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    fn be16(value: usize) -> [u8; 2] {
        u16::try_from(value).expect("a length that fits").to_be_bytes()
    }

    pub fn ethernet(kind: u16, inside: &[u8]) -> Vec<u8> {
        join(&[&[0, 0, 0x0c, 0, 0, 1, 0, 0, 0x0c, 0, 0, 2], &kind.to_be_bytes(), inside])
    }

    /// The bytes after a tag's EtherType.
    pub fn vlan(kind: u16, inside: &[u8]) -> Vec<u8> {
        join(&[&[0, 100], &kind.to_be_bytes(), inside])
    }

    /// Labels; the last one has the bottom-of-stack bit.
    pub fn mpls(labels: u8, inside: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for label in 0..labels {
            out.extend_from_slice(&[0, 1, 0x20 | u8::from(label + 1 == labels), 64]);
        }
        out.extend_from_slice(inside);
        out
    }

    pub fn pppoe(protocol: u16, inside: &[u8]) -> Vec<u8> {
        let len = be16(inside.len() + 2);
        join(&[&[0x11, 0, 0, 7], &len, &protocol.to_be_bytes(), inside])
    }

    /// From 10.0.`net`.1 to 10.0.`net`.2, with a correct checksum.
    pub fn ipv4(net: u8, protocol: u8, inside: &[u8]) -> Vec<u8> {
        ipv4_with(net, protocol, &[], 0, inside)
    }

    /// With options (a multiple of four bytes) and the fragment word.
    pub fn ipv4_with(
        net: u8,
        protocol: u8,
        options: &[u8],
        fragment: u16,
        inside: &[u8],
    ) -> Vec<u8> {
        let header_len = 20 + options.len();
        let mut header = join(&[
            &[0x40 | (header_len / 4) as u8, 0],
            &be16(header_len + inside.len()),
            &[0x12, 0x34],
            &fragment.to_be_bytes(),
            &[64, protocol, 0, 0, 10, 0, net, 1, 10, 0, net, 2],
            options,
        ]);
        let sum: u32 =
            header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        join(&[&header, inside])
    }

    /// From 2001:db8:`net`::1 to 2001:db8:`net`::2.
    pub fn ipv6(net: u8, next: u8, inside: &[u8]) -> Vec<u8> {
        let addr = |host| [0x20, 1, 0xd, 0xb8, 0, net, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
        let len = be16(inside.len());
        join(&[&[0x60, 0, 0, 0], &len, &[next, 64], &addr(1), &addr(2), inside])
    }

    pub fn udp(src_port: u16, dst_port: u16, inside: &[u8]) -> Vec<u8> {
        let len = be16(8 + inside.len());
        join(&[&src_port.to_be_bytes(), &dst_port.to_be_bytes(), &len, &[0, 0], inside])
    }

    pub fn tcp(src_port: u16, dst_port: u16, flags: u8, options: &[u8], inside: &[u8]) -> Vec<u8> {
        join(&[
            &src_port.to_be_bytes(),
            &dst_port.to_be_bytes(),
            &[1, 2, 3, 4, 5, 6, 7, 8],
            &[((20 + options.len()) / 4 * 16) as u8, flags, 0x20, 0, 0, 0, 0, 0],
            options,
            inside,
        ])
    }

    pub fn gre(flags: u16, protocol: u16, optional: &[u8], inside: &[u8]) -> Vec<u8> {
        join(&[&flags.to_be_bytes(), &protocol.to_be_bytes(), optional, inside])
    }

    pub fn vxlan(inside: &[u8]) -> Vec<u8> {
        join(&[&[8, 0, 0, 0, 0, 0, 42, 0], inside])
    }

    pub fn geneve(protocol: u16, options: &[u8], inside: &[u8]) -> Vec<u8> {
        let first = (options.len() / 4) as u8;
        join(&[&[first, 0], &protocol.to_be_bytes(), &[0, 0, 42, 0], options, inside])
    }

    /// `optional`: sequence number, N-PDU number, next extension, and the extensions.
    pub fn gtp_u(flags: u8, optional: &[u8], inside: &[u8]) -> Vec<u8> {
        let len = be16(optional.len() + inside.len());
        join(&[&[0x30 | flags, 255], &len, &[0, 0, 0, 9], optional, inside])
    }
}
