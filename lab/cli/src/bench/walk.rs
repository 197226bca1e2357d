//! The bare header walk: the limit that annotate is measured against.
//!
//! It visits each record of a mapped pcap file and, in each, Ethernet (with up to two VLAN
//! tags), IPv4 or IPv6, TCP or UDP; it adds addresses, ports and lengths to one number and keeps
//! nothing. It is deliberately not `larder_wire`: a limit must not share the code it limits.

use std::ops::{Add, Range};

/// What a walk saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Whole records.
    pub packets: u64,
    /// Sum over headers; equal work gives an equal sum.
    pub checksum: u64,
}

const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;

/// A pcap file, cut into parts of about equal size at record boundaries. It holds places and no
/// bytes, so that a file can be cut once and mapped again for each walk.
pub struct Plan {
    big_endian: bool,
    parts: Vec<Range<usize>>,
}

impl Plan {
    /// `None` unless `file` is pcap, of either byte order, microseconds or nanoseconds.
    pub fn cut(file: &[u8], parts_count: usize) -> Option<Plan> {
        let big_endian = match file.first_chunk()? {
            [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => false,
            [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => true,
            _ => return None,
        };
        let mut rest = file.get(FILE_HEADER_BYTES..)?;
        let part_bytes = rest.len() / parts_count.max(1) + 1;
        let mut parts = Vec::with_capacity(parts_count);
        while !rest.is_empty() {
            let mut after = rest;
            while rest.len() - after.len() < part_bytes
                && let Some((_, next)) = next_frame(after, big_endian)
            {
                after = next;
            }
            if after.len() == rest.len() {
                break;
            }
            parts.push(file.len() - rest.len()..file.len() - after.len());
            rest = after;
        }
        Some(Plan { big_endian, parts })
    }

    /// Walks every part of the file that was cut, each in a thread of its own when there are
    /// several. A part that the file no longer has is empty.
    pub fn walk(&self, file: &[u8]) -> Seen {
        let walk = |part: &Range<usize>| {
            walk_part(file.get(part.clone()).unwrap_or_default(), self.big_endian)
        };
        if let [part] = self.parts.as_slice() {
            return walk(part);
        }
        std::thread::scope(|scope| {
            let walk = &walk;
            let threads: Vec<_> =
                self.parts.iter().map(|part| scope.spawn(move || walk(part))).collect();
            let seen = threads.into_iter().map(|thread| thread.join().unwrap_or_default());
            seen.fold(Seen::default(), Seen::add)
        })
    }
}

impl Add for Seen {
    type Output = Seen;

    fn add(self, other: Seen) -> Seen {
        Seen {
            packets: self.packets + other.packets,
            checksum: self.checksum.wrapping_add(other.checksum),
        }
    }
}

/// Walks to the end, or to the first record that is not whole.
fn walk_part(part: &[u8], big_endian: bool) -> Seen {
    let mut seen = Seen::default();
    let mut rest = part;
    while let Some((frame, next)) = next_frame(rest, big_endian) {
        seen.packets += 1;
        seen.checksum = seen.checksum.wrapping_add(headers(frame).unwrap_or(1));
        rest = next;
    }
    seen
}

/// The frame of the record at the start of `rest`, and what follows it.
#[inline]
fn next_frame(rest: &[u8], big_endian: bool) -> Option<(&[u8], &[u8])> {
    let (header, after) = rest.split_first_chunk::<RECORD_HEADER_BYTES>()?;
    let field = [header[8], header[9], header[10], header[11]];
    let captured = if big_endian { u32::from_be_bytes(field) } else { u32::from_le_bytes(field) };
    after.split_at_checked(captured as usize)
}

/// The sum of one frame's headers; `None` where it is not IP over Ethernet or is cut.
#[inline]
fn headers(frame: &[u8]) -> Option<u64> {
    let mut at = 12;
    let mut ether_type = be16(frame, at)?;
    for _ in 0..2 {
        if ether_type != 0x8100 && ether_type != 0x88a8 {
            break;
        }
        at += 4;
        ether_type = be16(frame, at)?;
    }
    let ip = frame.get(at + 2..)?;
    let (addresses, protocol, transport) = match ether_type {
        0x0800 => {
            let header: &[u8; 20] = ip.first_chunk()?;
            let header_bytes = usize::from(header[0] & 0x0f) * 4;
            (be64(&header[12..])?, header[9], ip.get(header_bytes..)?)
        }
        0x86dd => {
            let header: &[u8; 40] = ip.first_chunk()?;
            let sum = (8..40)
                .step_by(8)
                .try_fold(0u64, |sum, at| be64(&header[at..]).map(|part| sum.wrapping_add(part)))?;
            (sum, header[6], ip.get(40..)?)
        }
        _ => return None,
    };
    let ports = match protocol {
        6 | 17 => u64::from(be16(transport, 0)?) << 16 | u64::from(be16(transport, 2)?),
        _ => 0,
    };
    Some(addresses.wrapping_add(ports).wrapping_add(frame.len() as u64))
}

#[inline]
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
fn be64(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(big_endian: bool, frames: &[&[u8]]) -> Vec<u8> {
        let word = |n: u32| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut file = word(0xa1b2_c3d4).to_vec();
        file.resize(FILE_HEADER_BYTES, 0);
        for frame in frames {
            let len = word(frame.len() as u32);
            file.extend([word(0), word(0), len, len].concat());
            file.extend_from_slice(frame);
        }
        file
    }

    fn udp4(tag: &[u8]) -> Vec<u8> {
        let mut frame = vec![2u8; 12];
        frame.extend_from_slice(tag);
        frame.extend([0x08, 0x00, 0x45]);
        frame.extend([0u8; 8]);
        frame.extend([17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0, 53, 200, 0, 0, 8, 0, 0]);
        frame
    }

    fn walk(file: &[u8], parts: usize) -> Seen {
        Plan::cut(file, parts).map(|plan| plan.walk(file)).unwrap_or_default()
    }

    /// Both byte orders and a VLAN tag give the same headers.
    #[test]
    fn headers_are_found() {
        let (plain, tagged) = (udp4(&[]), udp4(&[0x81, 0x00, 0x00, 0x05]));
        let expected = 0xc000_0201_c000_0202 + (53 << 16 | 200 << 8) + plain.len() as u64;
        assert_eq!(headers(&plain), Some(expected));
        assert_eq!(headers(&tagged), Some(expected + 4));
        for big_endian in [false, true] {
            let seen = walk(&file(big_endian, &[&plain, &plain]), 1);
            assert_eq!(seen, Seen { packets: 2, checksum: expected.wrapping_mul(2) });
        }
    }

    /// Several threads see what one sees, whatever the sizes of the frames.
    #[test]
    fn parts_add_up_to_the_whole() {
        let frames: Vec<Vec<u8>> =
            (0..50).map(|number| [udp4(&[]), vec![7; number * 13 % 90]].concat()).collect();
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let file = file(false, &frames);
        let whole = walk(&file, 1);
        assert_eq!(whole.packets, 50);
        for parts in 2..9 {
            assert_eq!(walk(&file, parts), whole, "{parts} parts");
        }
    }

    /// A record that claims more than the file has ends the walk; every cut of a file is walked
    /// without a panic.
    #[test]
    fn cut_files_end_the_walk() {
        let whole = file(false, &[&udp4(&[]), &udp4(&[])]);
        assert_eq!(walk(&whole[..whole.len() - 1], 1).packets, 1);
        for len in 0..whole.len() {
            assert!(walk(&whole[..len], 2).packets < 2);
        }
        assert!(Plan::cut(b"\x0a\x0d\x0d\x0a", 1).is_none());
    }
}
