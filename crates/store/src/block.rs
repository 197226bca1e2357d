//! Blocks of pcapng as this crate writes them: little-endian, packets as enhanced packet blocks,
//! times in ns.

use std::collections::BTreeSet;
use std::ops::Range;

/// The unit of places in a segment, in bytes: blocks are aligned to it.
pub(crate) const PLACE_BYTES: u64 = 4;

/// An interface on which packets are captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name in the system.
    pub name: String,
    /// LINKTYPE_ number.
    pub link_type: u16,
    /// Bytes that are captured of a packet; 0: all.
    pub snap_bytes: u32,
}

/// Bytes around an enhanced packet block's frame: 28 before it, and the length again after it.
pub(crate) const PACKET_BYTES: usize = 32;

/// The longest valid block.
const BLOCK_BYTES_MAX: u32 = 16 << 20;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

/// A damaged part of a segment becomes a block that readers skip: a type for local use.
const HOLE: u32 = 0x8000_1a7d;

/// Bytes of the shortest block.
const BLOCK_BYTES_MIN: usize = 12;

/// Consecutive blocks of this length, in bytes, are not the content of a packet: no packet is
/// longer.
const SURE_BYTES: usize = 512 << 10;

/// A packet in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketBlock<'a> {
    pub interface: u32,
    pub ts_ns: i64,
    pub original_len: u32,
    pub frame: &'a [u8],
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// The length of the block at the start of `bytes`, if it is whole and both lengths agree. `Err`:
/// not a block. `Ok(None)`: it continues after `bytes`.
pub(crate) fn block_len(bytes: &[u8]) -> Result<Option<usize>, ()> {
    let Some(len) = word(bytes, 4) else { return Ok(None) };
    if !(12..=BLOCK_BYTES_MAX).contains(&len) || !len.is_multiple_of(4) {
        return Err(());
    }
    match word(bytes, len as usize - 4) {
        None => Ok(None),
        Some(again) if again == len => Ok(Some(len as usize)),
        Some(_) => Err(()),
    }
}

/// The block at `at`, if it is whole.
pub(crate) fn whole(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    let len = block_len(rest).ok().flatten()?;
    rest.get(..len)
}

/// The packet of a whole block; `None` if it is another kind of block, or contradicts itself.
#[inline]
pub(crate) fn packet(block: &[u8]) -> Option<PacketBlock<'_>> {
    let head: &[u8; 28] = block.first_chunk()?;
    if word(head, 0)? != PACKET {
        return None;
    }
    let captured = word(head, 20)? as usize;
    let frame = block.get(28..block.len().checked_sub(4)?)?.get(..captured)?;
    let time = u64::from(word(head, 12)?) << 32 | u64::from(word(head, 16)?);
    Some(PacketBlock {
        interface: word(head, 8)?,
        ts_ns: i64::try_from(time).unwrap_or(i64::MAX),
        original_len: word(head, 24)?,
        frame,
    })
}

/// The link type of a block that describes an interface.
pub(crate) fn link_type(block: &[u8]) -> Option<u16> {
    let low = u16::try_from(word(block, 8)? & 0xffff).ok()?;
    (word(block, 0)? == INTERFACE).then_some(low)
}

/// The interface that a block describes.
pub(crate) fn interface(block: &[u8]) -> Option<Interface> {
    let (link_type, snap_bytes) = (link_type(block)?, word(block, 12)?);
    let name = option(block, 16, 2)?.map(|name| String::from_utf8_lossy(name).into_owned());
    Some(Interface { name: name.unwrap_or_default(), link_type, snap_bytes })
}

/// The comment of a block that begins a section.
pub(crate) fn comment(block: &[u8]) -> Option<String> {
    let is_section = word(block, 0)? == SECTION;
    let comment = option(block, 24, 1)?.filter(|_| is_section);
    comment.map(|comment| String::from_utf8_lossy(comment).into_owned())
}

/// The last option with this code of a block whose options begin at `at`; `None`: it has no room
/// for options.
fn option(block: &[u8], at: usize, wanted: u8) -> Option<Option<&[u8]>> {
    let mut options = block.get(at..block.len().checked_sub(4)?)?;
    let mut found = None;
    while let &[code, 0, low, high, ..] = options {
        let len = usize::from(u16::from_le_bytes([low, high]));
        match options.get(4..4 + len) {
            Some(value) if code == wanted => found = Some(value),
            Some(_) if code != 0 => {}
            _ => break,
        }
        options = options.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(found)
}

/// The result of a walk through a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    /// The end of the last whole block.
    pub end: u64,
    /// Parts before `end` that are no blocks.
    pub holes: Vec<Range<u64>>,
}

impl Walked {
    /// Bytes of all holes.
    pub fn hole_bytes(&self) -> u64 {
        self.holes.iter().map(|hole| hole.end - hole.start).sum()
    }
}

/// Visits the place of each whole block of a file, and the block. After damage it continues at the
/// next packet from which blocks follow each other: up to the end, up to the next hole of zeros, or
/// for [`SURE_BYTES`]. The content of a packet may be blocks (a download of a capture); those end
/// where the packet ends.
pub(crate) fn walk(bytes: &[u8], mut visit: impl FnMut(u64, &[u8])) -> Walked {
    let mut walked = Walked::default();
    let mut at = 0;
    let mut rejected = BTreeSet::new();
    while at < bytes.len() {
        if let Some(block) = whole(bytes, at) {
            visit(at as u64, block);
            at += block.len();
            walked.end = at as u64;
            continue;
        }
        let start = at;
        rejected.clear();
        at += PLACE_BYTES as usize;
        while at < bytes.len() && !begins_blocks(bytes, at, &mut rejected) {
            rejected.remove(&at);
            at += PLACE_BYTES as usize;
        }
        if at < bytes.len() {
            walked.holes.push(start as u64..at as u64);
        }
    }
    walked
}

/// True if packets follow each other from `at` on. `rejected`: places from which they do not, each
/// examined once.
fn begins_blocks(bytes: &[u8], at: usize, rejected: &mut BTreeSet<usize>) -> bool {
    let is_of_ours = |block: &&[u8]| packet(block).is_some() || word(block, 0) == Some(HOLE);
    let mut next = at;
    let mut passed = Vec::new();
    while next < bytes.len() && next - at < SURE_BYTES {
        if rejected.contains(&next) {
            rejected.extend(passed);
            return false;
        }
        let Some(block) = whole(bytes, next).filter(is_of_ours) else {
            let is_zeros = bytes[next..].iter().take(BLOCK_BYTES_MIN).all(|byte| *byte == 0);
            let is_torn = word(bytes, next).is_none_or(|kind| kind == PACKET)
                && block_len(&bytes[next..]) == Ok(None);
            if next > at && (is_zeros || is_torn) {
                return true;
            }
            rejected.extend(passed);
            return false;
        };
        passed.push(next);
        next += block.len();
    }
    true
}

/// The parts of blocks that cover a hole: each with its place in the file.
pub(crate) fn covers(hole: &Range<u64>) -> Vec<(u64, Vec<u8>)> {
    let mut out = Vec::new();
    let mut at = hole.start;
    while at < hole.end {
        let rest = hole.end - at;
        let most = u64::from(BLOCK_BYTES_MAX);
        let len = if rest <= most { rest } else { most / 2 };
        let word = (len as u32).to_le_bytes();
        out.push((at, [HOLE.to_le_bytes(), word].concat()));
        out.push((at + len - 4, word.to_vec()));
        at += len;
    }
    out
}

/// Splits bytes that come in pieces into blocks.
#[derive(Debug, Default)]
pub(crate) struct Walker {
    /// Bytes of the whole blocks before.
    offset: u64,
    /// The start of an incomplete block.
    rest: Vec<u8>,
    is_lost: bool,
}

impl Walker {
    /// Calls `visit` with the place of each block that is whole now, and the block. After bytes
    /// that are no block there are no more.
    pub fn feed(&mut self, mut bytes: &[u8], mut visit: impl FnMut(u64, &[u8])) {
        while !self.rest.is_empty() && !bytes.is_empty() && !self.is_lost {
            // First the bytes with the length, then as many as the length.
            let want = word(&self.rest, 4).map_or(8, |len| len.min(BLOCK_BYTES_MAX) as usize);
            let take = want.saturating_sub(self.rest.len()).max(1).min(bytes.len());
            self.rest.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            match block_len(&self.rest) {
                Ok(None) => {}
                Ok(Some(len)) => {
                    visit(self.offset, &self.rest[..len]);
                    self.offset += len as u64;
                    self.rest.clear();
                }
                Err(()) => self.is_lost = true,
            }
        }
        while !self.is_lost && !bytes.is_empty() {
            match block_len(bytes) {
                Ok(Some(len)) => {
                    visit(self.offset, &bytes[..len]);
                    self.offset += len as u64;
                    bytes = &bytes[len..];
                }
                Ok(None) => {
                    self.rest.extend_from_slice(bytes);
                    return;
                }
                Err(()) => self.is_lost = true,
            }
        }
    }

    /// Start of the next block: all before are whole.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that are no block were found: nothing after them is read.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }
}

/// The first and the latest time of packets.
pub(crate) fn times(blocks: &[u8], packets: usize) -> Option<(i64, i64)> {
    let mut rest = (packets > 0).then_some(blocks)?;
    let first_ns = packet(rest)?.ts_ns;
    let mut last_ns = first_ns;
    while let Ok(Some(len)) = block_len(rest) {
        last_ns = last_ns.max(packet(&rest[..len])?.ts_ns);
        rest = &rest[len..];
    }
    Some((first_ns, last_ns))
}

#[cfg(test)]
mod tests {
    use larder_wire::capture::write;
    use proptest::prelude::*;

    use super::*;

    /// A file with packets whose content is blocks of packets; also returns the places of its
    /// packets.
    fn nested(packets: u8) -> (Vec<u8>, Vec<u64>) {
        let mut inner = Vec::new();
        for number in 0..12 {
            write::packet(&mut inner, 0, number, &[0xee; 40], 40);
        }
        let (mut file, mut places) = (Vec::new(), Vec::new());
        write::section(&mut file, "x");
        write::interface(&mut file, 1, 0);
        for number in 0..packets {
            places.push(file.len() as u64);
            write::packet(
                &mut file,
                0,
                number.into(),
                &[&[number; 7][..], &inner, &[1; 3]].concat(),
                99,
            );
        }
        (file, places)
    }

    /// Damage costs the packets that it touches and no other: the walk continues at the next one,
    /// and takes no packet from the content of another; covered holes are blocks for every reader.
    #[test]
    fn a_walk_goes_on_behind_damage() {
        let (file, places) = nested(60);
        let first = places[0] as usize;
        for at in (first..file.len() - 200).step_by(173) {
            for (length, value) in [(1, None), (200, Some(0)), (4096, Some(0)), (90, Some(0xa5))] {
                let mut torn = file.clone();
                let end = (at + length).min(torn.len());
                match value {
                    Some(value) => torn[at..end].fill(value),
                    // A wrong length, as after one flipped bit.
                    None => {
                        let own = places.iter().rev().find(|place| **place as usize <= at);
                        torn[*own.unwrap() as usize + 5] ^= 0x10;
                    }
                }
                let touched = |place: &u64| {
                    let block = 0..block_len(&file[*place as usize..]).unwrap().unwrap();
                    let own = *place as usize..*place as usize + block.end;
                    torn[own.clone()] != file[own]
                };
                let mut seen = Vec::new();
                let walked = walk(&torn, |place, block| {
                    if packet(block).is_some() {
                        seen.push(place);
                    }
                });
                let whole: Vec<u64> = places.iter().filter(|at| !touched(at)).copied().collect();
                assert!(
                    seen.iter().all(|place| places.contains(place)),
                    "{at} {length}: no inner packet"
                );
                assert!(
                    whole.iter().all(|place| seen.contains(place)),
                    "{at} {length}: {walked:?}"
                );
                for (place, bytes) in walked.holes.iter().flat_map(covers) {
                    torn[place as usize..][..bytes.len()].copy_from_slice(&bytes);
                }
                let mut after = 0;
                let again = walk(&torn, |_, block| after += u64::from(packet(block).is_some()));
                assert_eq!(
                    (again.holes.len(), after, again.end),
                    (0, seen.len() as u64, walked.end)
                );
            }
        }
    }

    proptest! {
        /// A file has the same blocks in any pieces, and an incomplete block is not visited.
        #[test]
        fn pieces_do_not_matter(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..12),
            cuts in prop::collection::vec(1usize..200, 1..60),
            torn in 0usize..40,
        ) {
            let mut file = Vec::new();
            write::section(&mut file, "x");
            write::interface(&mut file, 1, 0);
            let mut expected = vec![];
            for (number, frame) in frames.iter().enumerate() {
                expected.push((file.len() as u64, frame.clone(), number as i64));
                write::packet(&mut file, 0, number as i64, frame, 99);
            }
            let torn = torn.min(file.len() - 60);
            let file = &file[..file.len() - torn];
            expected.retain(|(at, frame, _)| {
                *at as usize + PACKET_BYTES + frame.len().next_multiple_of(4) <= file.len()
            });
            let (mut walker, mut found, mut rest) = (Walker::default(), vec![], file);
            for cut in cuts.iter().cycle() {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                walker.feed(piece, |at, block| {
                    if let Some(packet) = packet(block) {
                        found.push((at, packet.frame.to_vec(), packet.ts_ns));
                    }
                });
                rest = after;
                if rest.is_empty() { break }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
