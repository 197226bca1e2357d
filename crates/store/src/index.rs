//! The index of a segment: flows, addresses, names, each sorted, so that a question looks at few pages.
//!
//! ```text
//! header      "LARDERI1"; number, position, run, octets of the segment, packets u64; least and greatest time i64;
//!             six sections: offset u64, octets u64; offset of the checksums u64, their octets u64; CRC-32 of all this u32
//! flows       by (low, high, low port, high port, protocol): low u32, high u32: indexes of addresses;
//!             ports u16 u16; protocol u8, 3 zeros; offset of its postings u32                              20 octets each
//! postings    for each flow: count of packets, then place by place the distance to the one before (varints);
//!             a place is an offset in the segment / 4
//! addresses   sorted: address 16; first flow of which it is the low end u32; offset in `ends` u32          24 octets each
//! ends        for each address: count of flows of which it is the high end, then distances of their indexes (varints)
//! names       sorted by labels from the right ("com.example.www"), then role, then note: offset of the text u32, its
//!             octets u16, role u8 (255: a note without names, under ""), 0; offset of the note u32           12 octets each
//! texts       the names so turned, and the notes (see `journal`, without frames)
//! checksums   CRC-32 of each 4096 octets from the end of the header on, then of these checksums
//! ```
//!
//! Little-endian. It is written aside and renamed, so there is no half of one. A reader checks the pages that it looks at;
//! one that does not fit makes the whole index [`Damaged`], and the segment is scanned.
//!
//! Cost: 3 octets a packet where flows have many, 51 where each is a flow of its own; made from 729 088 packets (64 MiB) in 11
//! and 170 ms (`cargo bench -p larder-store`, two cores of a virtual machine).

mod build;
mod read;

pub(crate) use build::build;
pub(crate) use read::{Damaged, Index};

const MAGIC: &[u8; 8] = b"LARDERI1";

/// Octets of the header with its checksum.
const HEADER_BYTES: usize = 8 + 7 * 8 + SECTIONS * 16 + 16 + 4;

const SECTIONS: usize = 6;
const FLOWS: usize = 0;
const POSTINGS: usize = 1;
const ADDRESSES: usize = 2;
const ENDS: usize = 3;
const NAMES: usize = 4;
const TEXTS: usize = 5;

const FLOW_BYTES: usize = 20;
const ADDRESS_BYTES: usize = 24;
const NAME_BYTES: usize = 12;

/// In place of a role: the note has no names, and says only that a flow has ended.
pub(crate) const NAMELESS: u8 = 255;

/// Octets that have a checksum together.
const PAGE_BYTES: usize = 4096;

/// A name with its labels from the right: all names below a domain are neighbours. Dots that belong to labels keep their
/// backslash, so no two names are turned into the same.
pub(crate) fn turned(name: &[u8]) -> Vec<u8> {
    let mut labels = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < name.len() {
        match name[at] {
            b'\\' => at += 1,
            b'.' => {
                labels.push(&name[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    labels.push(&name[start..]);
    labels.reverse();
    labels.join(&b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels are turned, escaped dots stay inside of theirs, and twice turned is as it was.
    #[test]
    fn names_are_turned() {
        for (name, expected) in [
            (&b"www.example.com"[..], &b"com.example.www"[..]),
            (b"com", b"com"),
            (b"", b""),
            (br"a\.b.c", br"c.a\.b"),
            (br"a\\.b", br"b.a\\"),
            (b"..x", b"x.."),
        ] {
            assert_eq!(turned(name), expected);
            assert_eq!(turned(expected), name);
        }
    }
}
