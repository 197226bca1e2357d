//! Packets layer by layer, from the inside out: each function puts a header before its payload.
//! Also capture files of such packets.

use std::path::Path;

/// Two addresses: source, destination.
pub type Ends = ([u8; 4], [u8; 4]);

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

/// An Ethernet frame between two made-up stations.
pub fn ethernet(kind: u16, inside: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &kind.to_be_bytes()[..], inside].concat()
}

/// An IPv4 packet with a correct checksum.
pub fn ipv4(ends: Ends, protocol: u8, inside: &[u8]) -> Vec<u8> {
    ipv4_fragment(ends, protocol, (0, 0), inside)
}

/// An IPv4 fragment: its identification, and the word of flags and offset (in units of 8 bytes).
pub fn ipv4_fragment(ends: Ends, protocol: u8, fragment: (u16, u16), inside: &[u8]) -> Vec<u8> {
    let mut out = vec![0x45, 0];
    for word in [20 + inside.len() as u16, fragment.0, fragment.1] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(&[64, protocol, 0, 0]);
    out.extend_from_slice(&ends.0);
    out.extend_from_slice(&ends.1);
    let sum = !fold(sum(&out));
    out[10..12].copy_from_slice(&sum.to_be_bytes());
    out.extend_from_slice(inside);
    out
}

/// A UDP datagram without a checksum.
pub fn udp(ports: (u16, u16), inside: &[u8]) -> Vec<u8> {
    let words = [ports.0, ports.1, 8 + inside.len() as u16, 0];
    [&words.map(u16::to_be_bytes).concat(), inside].concat()
}

/// A TCP segment without a checksum.
pub fn tcp(ports: (u16, u16), flags: u8, sequence: u32, inside: &[u8]) -> Vec<u8> {
    let mut out = [ports.0, ports.1].map(u16::to_be_bytes).concat();
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    out.extend_from_slice(inside);
    out
}

/// A UDP datagram in IPv4 in Ethernet.
pub fn udp_frame(ends: Ends, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    ethernet(IPV4, &ipv4(ends, UDP, &udp(ports, payload)))
}

/// A TCP segment in IPv4 in Ethernet.
pub fn tcp_frame(
    ends: Ends,
    ports: (u16, u16),
    flags: u8,
    sequence: u32,
    payload: &[u8],
) -> Vec<u8> {
    ethernet(IPV4, &ipv4(ends, TCP, &tcp(ports, flags, sequence, payload)))
}

/// The sum of all 16-bit words.
pub fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

/// Folds a sum to 16 bits, in ones' complement.
pub fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The checksum of a transport segment whose checksum field is 0.
pub fn transport_sum(src: &[u8], dst: &[u8], protocol: u8, transport: &[u8]) -> u16 {
    !fold(sum(src) + sum(dst) + u32::from(protocol) + transport.len() as u32 + sum(transport))
}

/// A capture file that grows packet by packet.
#[derive(Clone, Debug)]
pub struct Pcap {
    /// The file so far.
    pub bytes: Vec<u8>,
}

impl Pcap {
    /// An empty file of this link type; times are in nanoseconds.
    pub fn new(link_type: u16) -> Pcap {
        let words = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 1 << 18, u32::from(link_type)];
        Pcap { bytes: words.map(u32::to_le_bytes).concat() }
    }

    /// Adds a packet.
    pub fn push(&mut self, at_ns: u64, frame: &[u8]) {
        let (length, second_ns) = (frame.len() as u32, 1_000_000_000);
        for word in [(at_ns / second_ns) as u32, (at_ns % second_ns) as u32, length, length] {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.bytes.extend_from_slice(frame);
    }
}

/// One frame of a capture.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its link type.
    pub link_type: u16,
    /// The captured bytes.
    pub bytes: Vec<u8>,
}

/// All frames of a pcap or pcapng file that is complete and correct. This reader is not larder's
/// own, so that an error in one does not hide an error in the other.
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
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn u32_be(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"))
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
