//! What the packet tests share: a small capture reader, where captures are, and frames by layer.
//!
//! The reader takes whole, sound files only; it is not the crate's own, so that a fault in one does
//! not hide a fault in the other.
#![allow(dead_code)]

pub mod generated;
#[path = "../../../../tests/captures/list.rs"]
pub mod list;

use std::io::Write as _;
use std::path::Path;

/// One frame of a capture.
pub struct Frame {
    pub link_type: u16,
    pub bytes: Vec<u8>,
}

/// Says on the real standard error that a test did not run.
pub fn skip(test: &str, reason: &str) {
    let _ = std::io::stderr().write_all(format!("SKIP {test}: {reason}\n").as_bytes());
}

/// All frames of a pcap or pcapng file.
pub fn read_capture(path: &Path) -> Vec<Frame> {
    let bytes = std::fs::read(path).expect("a readable capture");
    match bytes[..4] {
        [0x0a, 0x0d, 0x0d, 0x0a] => read_pcapng(&bytes),
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => read_pcap(&bytes, u32_le),
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => read_pcap(&bytes, u32_be),
        _ => panic!("{}: not a capture", path.display()),
    }
}

fn u32_le(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four octets"))
}

fn u32_be(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("four octets"))
}

fn read_pcap(bytes: &[u8], u32_of: fn(&[u8]) -> u32) -> Vec<Frame> {
    let link_type = u32_of(&bytes[20..]) as u16;
    let mut frames = Vec::new();
    let mut at = 24;
    while at + 16 <= bytes.len() {
        let len = u32_of(&bytes[at + 8..]) as usize;
        let Some(frame) = bytes.get(at + 16..at + 16 + len) else { break };
        frames.push(Frame { link_type, bytes: frame.to_vec() });
        at += 16 + len;
    }
    frames
}

fn read_pcapng(bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut links: Vec<u16> = Vec::new();
    let mut u32_of: fn(&[u8]) -> u32 = u32_le;
    let mut at = 0;
    while at + 12 <= bytes.len() {
        if bytes[at..at + 4] == [0x0a, 0x0d, 0x0d, 0x0a] {
            u32_of = if bytes[at + 8] == 0x1a { u32_be } else { u32_le };
            links.clear();
        }
        let len = u32_of(&bytes[at + 4..]) as usize;
        let Some(block) = bytes.get(at..at + len) else { break };
        match u32_of(block) {
            1 => {
                let raw = [block[8], block[9], 0, 0];
                let link = if u32_of(&[1, 0, 0, 0]) == 1 {
                    u16::from_le_bytes([raw[0], raw[1]])
                } else {
                    u16::from_be_bytes([raw[0], raw[1]])
                };
                links.push(link);
            }
            6 => {
                let captured = u32_of(&block[20..]) as usize;
                let link_type = links[u32_of(&block[8..]) as usize];
                frames.push(Frame { link_type, bytes: block[28..28 + captured].to_vec() });
            }
            3 => {
                let captured = (u32_of(&block[8..]) as usize).min(len - 16);
                frames
                    .push(Frame { link_type: links[0], bytes: block[12..12 + captured].to_vec() });
            }
            _ => {}
        }
        at += len;
    }
    frames
}

/// A pcap file with these frames, all of one link type, for tools that read files.
pub fn write_pcap(link_type: u16, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 1 << 18, u32::from(link_type)] {
        out.extend_from_slice(&u32::to_le_bytes(word));
    }
    for (second, frame) in frames.iter().enumerate() {
        for word in [second as u32, 0, frame.len() as u32, frame.len() as u32] {
            out.extend_from_slice(&u32::to_le_bytes(word));
        }
        out.extend_from_slice(frame);
    }
    out
}

/// Layers: each function puts a header before what it is given.
pub mod layer {
    /// `parts` one after the other.
    pub fn join(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    fn be16(value: usize) -> [u8; 2] {
        u16::try_from(value).expect("a length that fits").to_be_bytes()
    }

    pub fn ethernet(kind: u16, inside: &[u8]) -> Vec<u8> {
        join(&[&[0, 0, 0x0c, 0, 0, 1, 0, 0, 0x0c, 0, 0, 2], &kind.to_be_bytes(), inside])
    }

    /// What follows a tag's EtherType.
    pub fn vlan(kind: u16, inside: &[u8]) -> Vec<u8> {
        join(&[&[0, 100], &kind.to_be_bytes(), inside])
    }

    /// Labels, the last of which is the bottom of the stack.
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

    /// From 10.0.`net`.1 to 10.0.`net`.2, with a sound checksum.
    pub fn ipv4(net: u8, protocol: u8, inside: &[u8]) -> Vec<u8> {
        ipv4_with(net, protocol, &[], 0, inside)
    }

    /// With options (a multiple of four octets) and the fragment word.
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
