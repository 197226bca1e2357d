//! Reads a block of a ring (TPACKET_V3) and copies its frames as pcapng packet blocks.
//!
//! ```text
//! block    descriptor (48 bytes)  packet  packet ...      offsets are counted from the block's start
//! packet   header (48)  sockaddr_ll (20)  ...  frame       `next_offset`, `mac`: from the packet's start
//! ```
//!
//! Invariants
//! 1. Everything is read through checked slices: a header that contradicts the block ends the walk,
//!    and no byte outside is read.
//! 2. A walk ends: the packets left are counted down, and each begins after the one before.
//! 3. The appended bytes are whole Enhanced Packet Blocks, little-endian.
//!
//! Cost: one copy of the frame's bytes, and 32 bytes around it.

/// Bytes of a block's descriptor, of a packet's header, and of the address after it.
const DESCRIPTOR_BYTES: usize = 48;
const HEADER_BYTES: usize = 48;
const ADDRESS_BYTES: usize = 20;

/// Bytes of a packet block before the frame, and all but the frame.
const EPB_HEAD_BYTES: usize = 28;
const EPB_BYTES: usize = EPB_HEAD_BYTES + 4;

/// `TP_STATUS_*` of a packet.
const VLAN_VALID: u32 = 1 << 4;
const VLAN_TPID_VALID: u32 = 1 << 6;

/// `PACKET_OUTGOING`, of the field `sll_pkttype`.
const OUTGOING: u8 = 4;
/// Offset of the packet type in the address; the hardware type is next to it.
const PACKET_TYPE_AT: usize = 10;
const HARDWARE_AT: usize = 8;

/// Bytes of the two Ethernet addresses, which a tag follows.
const ADDRESSES_BYTES: usize = 12;

/// Bytes of the header in place of a link layer: LINKTYPE_LINUX_SLL2.
const SLL2_BYTES: usize = 20;

/// The first header of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// An Ethernet header.
    Ethernet,
    /// IP.
    RawIp,
    /// No reliable header: the kernel removes it, and the address has its content.
    Cooked,
}

impl Link {
    /// LINKTYPE_ number.
    pub fn link_type(self) -> u16 {
        match self {
            Link::Ethernet => 1,
            Link::RawIp => 101,
            Link::Cooked => 276,
        }
    }
}

/// How frames of a ring are written down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Number of the interface in the header.
    pub interface: u32,
    /// The first header of frames.
    pub link: Link,
    /// One of the ring's interfaces is a loopback: it shows each frame when it is sent and when it
    /// is received, and only the second counts.
    pub has_loopback: bool,
    /// Bytes of a frame that are stored.
    pub snap_bytes: usize,
}

/// How far a block was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    offset: usize,
    left: u32,
}

/// The result of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Copied {
    /// Frames appended.
    pub frames: u64,
    /// The block contradicted itself, and its rest was omitted.
    pub is_malformed: bool,
}

#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

impl Cursor {
    /// At the first packet.
    pub fn begin(block: &[u8]) -> Cursor {
        let packets = u32_at(block, 12).unwrap_or(0);
        let first = u32_at(block, 16).map_or(0, |at| at as usize);
        let is_sound = first >= DESCRIPTOR_BYTES;
        Cursor { offset: first, left: if is_sound { packets } else { 0 } }
    }

    /// Packets that were promised and not read.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// The stamp of the next packet, nanoseconds; `None` at the end, or if the block has fewer
    /// packets than it states.
    #[inline]
    pub fn time_ns(&self, block: &[u8]) -> Option<u64> {
        if self.left == 0 {
            return None;
        }
        Some(stamp_ns(block.get(self.offset..)?.first_chunk()?))
    }
}

#[inline(always)]
fn stamp_ns(header: &[u8; HEADER_BYTES]) -> u64 {
    let word = |at| u64::from(u32_at(header, at).unwrap_or(0));
    word(4) * 1_000_000_000 + word(8)
}

/// Appends the packets from `cursor` on that are stamped `until_ns` or earlier, until `out` has
/// `bytes_max` bytes or more. The first is appended whatever its stamp is.
pub(super) fn copy(
    block: &[u8],
    cursor: &mut Cursor,
    shape: &Shape,
    until_ns: u64,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> Copied {
    let mut copied = Copied::default();
    let mut is_first = true;
    while cursor.left > 0 {
        let Some(packet) = Packet::read(block, cursor.offset) else {
            cursor.left = 0;
            copied.is_malformed = true;
            break;
        };
        if !is_first && (packet.time_ns > until_ns || out.len() >= bytes_max) {
            break;
        }
        is_first = false;
        cursor.left -= 1;
        if cursor.left > 0 {
            // Invariant 2: the next packet is after this one, or there is none.
            if packet.next < HEADER_BYTES {
                cursor.left = 0;
                copied.is_malformed = true;
            }
            cursor.offset += packet.next;
        }
        if shape.has_loopback && packet.is_outgoing_of_loopback(shape.link) {
            continue;
        }
        packet.append(shape, out);
        copied.frames += 1;
    }
    copied
}

/// Visits the packets from `cursor` on: how many, and their bytes.
pub(super) fn walk(block: &[u8], cursor: &mut Cursor) -> (u64, u64) {
    let (mut frames, mut bytes) = (0, 0);
    while cursor.left > 0 {
        let Some(packet) = Packet::read(block, cursor.offset) else { break };
        frames += 1;
        bytes += packet.frame.len() as u64;
        cursor.left -= 1;
        cursor.offset += packet.next;
        if packet.next < HEADER_BYTES {
            break;
        }
    }
    (frames, bytes)
}

/// A packet in a block.
struct Packet<'a> {
    header: &'a [u8; HEADER_BYTES],
    address: &'a [u8; ADDRESS_BYTES],
    frame: &'a [u8],
    time_ns: u64,
    wire_bytes: u32,
    status: u32,
    next: usize,
}

impl<'a> Packet<'a> {
    #[inline(always)]
    fn read(block: &'a [u8], at: usize) -> Option<Packet<'a>> {
        let rest = block.get(at..)?;
        let header: &[u8; HEADER_BYTES] = rest.first_chunk()?;
        let address = rest.get(HEADER_BYTES..)?.first_chunk()?;
        let captured = u32_at(header, 12)? as usize;
        let frame_at = usize::from(u16_at(header, 24)?);
        Some(Packet {
            header,
            address,
            frame: rest.get(frame_at..)?.get(..captured)?,
            time_ns: stamp_ns(header),
            wire_bytes: u32_at(header, 16)?,
            status: u32_at(header, 20)?,
            next: u32_at(header, 0)? as usize,
        })
    }

    fn is_outgoing_of_loopback(&self, link: Link) -> bool {
        let hardware = u16_at(self.address, HARDWARE_AT);
        self.address[PACKET_TYPE_AT] == OUTGOING
            && (link != Link::Cooked || hardware == Some(libc::ARPHRD_LOOPBACK))
    }

    /// The tag that the kernel removed, as it was in the frame.
    #[inline(always)]
    fn tag(&self) -> Option<[u8; 4]> {
        if self.status & VLAN_VALID == 0 {
            return None;
        }
        let tci = u32_at(self.header, 32)? as u16;
        let tpid = match self.status & VLAN_TPID_VALID {
            0 => 0x8100,
            _ => u16_at(self.header, 36)?,
        };
        let ([a, b], [c, d]) = (tpid.to_be_bytes(), tci.to_be_bytes());
        Some([a, b, c, d])
    }

    #[inline(always)]
    fn append(&self, shape: &Shape, out: &mut Vec<u8>) {
        match (shape.link, self.tag()) {
            (Link::Cooked, tag) => self.append_cooked(shape, tag, out),
            // The tag that the kernel takes off is the outermost.
            (Link::Ethernet, Some(tag)) if self.frame.len() >= ADDRESSES_BYTES => {
                let (addresses, rest) = self.frame.split_at(ADDRESSES_BYTES);
                let mut front = [0; ADDRESSES_BYTES + 4];
                front[..ADDRESSES_BYTES].copy_from_slice(addresses);
                front[ADDRESSES_BYTES..].copy_from_slice(&tag);
                self.append_parts(shape, &front, rest, 4, out);
            }
            _ => self.append_parts(shape, &[], self.frame, 0, out),
        }
    }

    /// Appends a frame with the header in place of a link layer; a tag follows it, as one follows
    /// Ethernet addresses.
    fn append_cooked(&self, shape: &Shape, tag: Option<[u8; 4]>, out: &mut Vec<u8>) {
        let address = self.address;
        let mut front = [0; SLL2_BYTES + 4];
        front[..2].copy_from_slice(&address[2..4]);
        let index = u32_at(address, 4).unwrap_or(0);
        front[4..8].copy_from_slice(&index.to_be_bytes());
        let hardware = u16_at(address, HARDWARE_AT).unwrap_or(0);
        front[8..10].copy_from_slice(&hardware.to_be_bytes());
        front[10..SLL2_BYTES].copy_from_slice(&address[PACKET_TYPE_AT..]);
        let mut front_bytes = SLL2_BYTES;
        if let Some(tag) = tag {
            front[..2].copy_from_slice(&tag[..2]);
            front[SLL2_BYTES..][..2].copy_from_slice(&tag[2..]);
            front[SLL2_BYTES + 2..].copy_from_slice(&address[2..4]);
            front_bytes += 4;
        }
        self.append_parts(shape, &front[..front_bytes], self.frame, front_bytes as u32, out);
    }

    /// In two parts, `added` bytes of which the kernel did not count.
    #[inline(always)]
    fn append_parts(
        &self,
        shape: &Shape,
        front: &[u8],
        rest: &[u8],
        added: u32,
        out: &mut Vec<u8>,
    ) {
        let wire_bytes = self.wire_bytes.saturating_add(added);
        append_block(shape, self.time_ns, wire_bytes, front, rest, out);
    }
}

/// Appends the block of a frame in two parts.
#[inline(always)]
pub(super) fn append_block(
    shape: &Shape,
    time_ns: u64,
    wire_bytes: u32,
    front: &[u8],
    rest: &[u8],
    out: &mut Vec<u8>,
) {
    let front = &front[..front.len().min(shape.snap_bytes)];
    let rest = &rest[..rest.len().min(shape.snap_bytes - front.len())];
    let captured = front.len() + rest.len();
    let padding = captured.next_multiple_of(4) - captured;
    let block_bytes = (EPB_BYTES + captured + padding) as u32;
    let mut head = [0; EPB_HEAD_BYTES];
    for (to, word) in head.as_chunks_mut::<4>().0.iter_mut().zip([
        6,
        block_bytes,
        shape.interface,
        (time_ns >> 32) as u32,
        time_ns as u32,
        captured as u32,
        // The captured bytes were there, even if the length is smaller.
        wire_bytes.max(captured as u32),
    ]) {
        *to = word.to_le_bytes();
    }
    out.reserve(block_bytes as usize);
    out.extend_from_slice(&head);
    out.extend_from_slice(front);
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0; 3][..padding]);
    out.extend_from_slice(&block_bytes.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::capture::{Capture, Step, write};
    use proptest::prelude::*;

    const SHAPE: Shape =
        Shape { interface: 0, link: Link::Ethernet, has_loopback: false, snap_bytes: 1 << 18 };

    struct Made<'a> {
        frame: &'a [u8],
        time: (u32, u32),
        tag: Option<(u16, Option<u16>)>,
        packet_type: u8,
    }

    /// A block as the kernel makes it.
    fn block(packets: &[Made]) -> Vec<u8> {
        let mut block = vec![0; DESCRIPTOR_BYTES];
        block[12..16].copy_from_slice(&(packets.len() as u32).to_ne_bytes());
        block[16..20].copy_from_slice(&(DESCRIPTOR_BYTES as u32).to_ne_bytes());
        for (n, made) in packets.iter().enumerate() {
            let at = block.len();
            let frame_at = 82;
            let bytes = (frame_at + made.frame.len()).next_multiple_of(8);
            block.resize(at + bytes, 0xee);
            let packet = &mut block[at..];
            let next = if n + 1 == packets.len() { 0 } else { bytes as u32 };
            let mut status = 1;
            let (tci, tpid) = made.tag.unwrap_or_default();
            if made.tag.is_some() {
                status |= VLAN_VALID;
            }
            if tpid.is_some() {
                status |= VLAN_TPID_VALID;
            }
            let len = made.frame.len() as u32;
            for (at, word) in [next, made.time.0, made.time.1, len, len, status].iter().enumerate()
            {
                packet[at * 4..][..4].copy_from_slice(&word.to_ne_bytes());
            }
            packet[24..26].copy_from_slice(&(frame_at as u16).to_ne_bytes());
            packet[32..36].copy_from_slice(&u32::from(tci).to_ne_bytes());
            packet[36..38].copy_from_slice(&tpid.unwrap_or(0).to_ne_bytes());
            let address = &mut packet[HEADER_BYTES..][..ADDRESS_BYTES];
            address.fill(0);
            address[2..4].copy_from_slice(&[8, 0]);
            address[4..8].copy_from_slice(&7u32.to_ne_bytes());
            address[HARDWARE_AT..][..2].copy_from_slice(&libc::ARPHRD_LOOPBACK.to_ne_bytes());
            address[PACKET_TYPE_AT] = made.packet_type;
            packet[frame_at..][..made.frame.len()].copy_from_slice(made.frame);
        }
        block
    }

    fn plain(frame: &[u8], seconds: u32) -> Made<'_> {
        Made { frame, time: (seconds, 5), tag: None, packet_type: 0 }
    }

    fn copy_all(block: &[u8], shape: &Shape) -> (Vec<u8>, Copied) {
        let mut out = Vec::new();
        let copied = copy(block, &mut Cursor::begin(block), shape, u64::MAX, usize::MAX, &mut out);
        (out, copied)
    }

    /// Frames and stamps as the capture reader sees them.
    fn read(blocks: &[u8], link: Link) -> Vec<(i64, u32, Vec<u8>)> {
        let mut bytes = Vec::new();
        write::section(&mut bytes, "t");
        write::interface(&mut bytes, link.link_type(), 0);
        bytes.extend_from_slice(blocks);
        let (mut capture, mut offset) = Capture::open(&bytes).unwrap();
        let mut found = Vec::new();
        loop {
            match capture.next(&bytes, offset, true) {
                Step::Record(record) => {
                    assert_eq!(record.link_type, link.link_type());
                    found.push((record.ts_ns, record.original_len, record.frame.to_vec()));
                    offset = record.next_offset;
                }
                Step::Meta { next_offset } => offset = next_offset,
                Step::End => return found,
                step => panic!("{step:?}"),
            }
        }
    }

    /// Every frame of a block becomes a packet block, whole and with its stamp, for any length
    /// modulo four. It is the same as the writer of captures makes.
    #[test]
    fn frames_are_copied() {
        let frames: Vec<Vec<u8>> = (14..30u8).map(|n| vec![n; usize::from(n)]).collect();
        let made: Vec<Made> =
            frames.iter().zip(100..).map(|(frame, seconds)| plain(frame, seconds)).collect();
        let (out, copied) = copy_all(&block(&made), &SHAPE);
        assert_eq!(copied, Copied { frames: 16, is_malformed: false });
        let mut expected = Vec::new();
        for (frame, seconds) in frames.iter().zip(100..) {
            let ns = seconds * 1_000_000_000 + 5;
            write::packet(&mut expected, 0, ns, frame, frame.len() as u32);
        }
        assert_eq!(out, expected);
    }

    /// A VLAN tag that the kernel removed is put back behind the addresses, with its type; if a
    /// second tag is in the frame, before that one. A frame cut at its addresses has no room for
    /// one.
    #[test]
    fn tags_are_put_back() {
        let mut frame: Vec<u8> = (0..60).collect();
        frame[12..16].copy_from_slice(&[0x81, 0, 0, 9]);
        let made = |frame, tag| Made { tag: Some(tag), ..plain(frame, 1) };
        let (out, _) = copy_all(
            &block(&[
                made(&frame, (0x2064, Some(0x88a8))),
                made(&frame, (3, None)),
                made(&frame[..9], (3, None)),
            ]),
            &SHAPE,
        );
        let found = read(&out, Link::Ethernet);
        for ((_, len, found), tag) in found.iter().zip([[0x88, 0xa8, 0x20, 0x64], [0x81, 0, 0, 3]])
        {
            let mut expected = frame.clone();
            expected.splice(12..12, tag);
            assert_eq!((*len, found), (64, &expected));
        }
        assert_eq!((found[2].1, &found[2].2[..]), (9, &frame[..9]));
    }

    /// A frame that a loopback sends is received again, and counts once; on other interfaces a sent
    /// frame counts.
    #[test]
    fn a_loopback_counts_once() {
        let frame = [1; 20];
        let block = block(&[Made { packet_type: OUTGOING, ..plain(&frame, 1) }, plain(&frame, 2)]);
        assert_eq!(copy_all(&block, &SHAPE).1.frames, 2);
        for link in [Link::Ethernet, Link::Cooked] {
            let shape = Shape { has_loopback: true, link, ..SHAPE };
            assert_eq!(copy_all(&block, &shape).1.frames, 1);
        }
    }

    /// Frames without a link layer get the header of SLL2, followed by a tag if there was one.
    #[test]
    fn a_header_stands_for_the_link() {
        let shape = Shape { link: Link::Cooked, ..SHAPE };
        let made = Made { tag: Some((5, None)), packet_type: 3, ..plain(&[0x45; 20], 1) };
        let (out, _) = copy_all(&block(&[plain(&[0x45; 20], 1), made]), &shape);
        let found = read(&out, Link::Cooked);
        assert_eq!(found[0].2[..12], [8, 0, 0, 0, 0, 0, 0, 7, 3, 4, 0, 0]);
        assert_eq!(found[0].2[20..], [0x45; 20]);
        assert_eq!(found[1].2[..2], [0x81, 0]);
        assert_eq!(found[1].2[10], 3);
        assert_eq!(found[1].2[20..24], [0, 5, 8, 0]);
        assert_eq!(found[1].1, 44);
    }

    /// A copy ends at a stamp and at a length, and the next continues without a loss; frames are
    /// cut at the snap length.
    #[test]
    fn copies_go_on() {
        let frames: Vec<Vec<u8>> = (0..9u8).map(|n| vec![n; 100]).collect();
        let made: Vec<Made> = frames.iter().zip(0..).map(|(f, s)| plain(f, s)).collect();
        let block = block(&made);
        let mut cursor = Cursor::begin(&block);
        let mut out = Vec::new();
        assert_eq!(cursor.time_ns(&block), Some(5));
        let until = 2_000_000_005;
        assert_eq!(copy(&block, &mut cursor, &SHAPE, until, usize::MAX, &mut out).frames, 3);
        assert_eq!(cursor.time_ns(&block), Some(3_000_000_005));
        // The first is copied with any stamp; the length is checked between frames.
        assert_eq!(copy(&block, &mut cursor, &SHAPE, 0, usize::MAX, &mut out).frames, 1);
        assert_eq!(copy(&block, &mut cursor, &SHAPE, u64::MAX, out.len() + 1, &mut out).frames, 1);
        let shape = Shape { snap_bytes: 33, ..SHAPE };
        assert_eq!(copy(&block, &mut cursor, &shape, u64::MAX, usize::MAX, &mut out).frames, 4);
        assert_eq!(cursor.time_ns(&block), None);
        let found = read(&out, Link::Ethernet);
        assert_eq!(found.len(), 9);
        for (n, (_, len, frame)) in found.iter().enumerate() {
            let kept = if n < 5 { 100 } else { 33 };
            assert_eq!((*len, &frame[..]), (100, &frames[n][..kept]));
        }
    }

    proptest! {
        /// Whatever the headers contain, no byte outside the block is read, the walk ends, and the
        /// appended bytes are whole packet blocks with frames of the block. The inputs are valid
        /// blocks with words overwritten, and random bytes. Invariants 1, 2 and 3.
        #[test]
        fn no_block_harms(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            words in prop::collection::vec((0usize..128, prop_oneof![any::<u32>(), 0u32..300]), 0..8),
            is_sound in any::<bool>(),
            cooked in any::<bool>(),
            snap_bytes in 0usize..200,
            bytes_max in 0usize..300,
        ) {
            let mut block = if is_sound {
                block(&[plain(&bytes, 1), plain(&bytes[..bytes.len() / 2], 2)])
            } else {
                bytes
            };
            for (at, word) in words {
                if let Some(to) = block.get_mut(at * 4..at * 4 + 4) {
                    to.copy_from_slice(&word.to_ne_bytes());
                }
            }
            let link = if cooked { Link::Cooked } else { Link::Ethernet };
            let shape = Shape { link, has_loopback: cooked, snap_bytes, ..SHAPE };
            let mut cursor = Cursor::begin(&block);
            let (mut out, mut frames) = (Vec::new(), 0);
            while cursor.time_ns(&block).is_some() {
                let before = cursor;
                let max = out.len() + bytes_max;
                frames += copy(&block, &mut cursor, &shape, u64::MAX, max, &mut out).frames;
                prop_assert_ne!(before, cursor);
            }
            prop_assert_eq!(read(&out, link).len() as u64, frames);
        }
    }
}
