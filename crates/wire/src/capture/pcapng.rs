//! The pcapng format: blocks that state their length at both ends.
//!
//! Layout (draft-ietf-opsawg-pcapng): type, total length, body, total length again. A section
//! header sets the byte order and forgets the interfaces; an interface block gives link type and
//! time resolution to the packets that name it by number.
//!
//! Bounds: [`INTERFACES_MAX`] interfaces a section, [`FRAME_BYTES_MAX`] bytes a block.

use std::sync::Arc;

use crate::Addr;

use super::{
    CaptureDamage, FRAME_BYTES_LIKELY, FRAME_BYTES_MAX, OpenError, Plausible, Record, Step, u16_of,
    u32_of,
};

/// A section header's type reads the same in both byte orders.
pub(super) const SECTION_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET_OBSOLETE: u32 = 2;
const PACKET_SIMPLE: u32 = 3;
const NAMES: u32 = 4;
const STATISTICS: u32 = 5;
const PACKET_ENHANCED: u32 = 6;

/// Most interfaces of one section.
const INTERFACES_MAX: usize = 1 << 16;

/// Bytes around a block's body.
const FRAME: usize = 12;

/// Bytes of an enhanced (and of an obsolete) packet block before the frame.
const PACKET_HEAD: usize = 28;

/// The same of a simple packet block.
const SIMPLE_HEAD: usize = 12;

/// The longest block that a search accepts: a packet block with its options.
const SEARCH_BLOCK_BYTES_MAX: u32 = 2 * FRAME_BYTES_LIKELY;

/// The content of the section header and interface blocks.
#[derive(Clone, Debug)]
pub(super) struct Pcapng {
    big: bool,
    interfaces: Arc<Vec<Interface>>,
    /// For simple packets, which have no time.
    last_ts_ns: i64,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    /// 0: no limit.
    snap_len: u32,
    resolution: Resolution,
    offset_ns: i64,
}

/// How a count of units becomes nanoseconds.
#[derive(Clone, Copy, Debug)]
enum Resolution {
    /// Units of 10^-9 s or coarser.
    Multiply(u64),
    /// Finer powers of ten.
    Divide(u64),
    /// Units of 2^-n s.
    Shift(u32),
}

impl Interface {
    #[inline(always)]
    fn ts_ns(&self, units: u64) -> i64 {
        let ns = match self.resolution {
            Resolution::Multiply(by) => units.saturating_mul(by),
            Resolution::Divide(by) => units / by,
            Resolution::Shift(by) => {
                // Below 2^94, so the shift by at most 127 loses nothing but fractions.
                let ns = (u128::from(units) * 1_000_000_000) >> by;
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        };
        i64::try_from(ns).unwrap_or(i64::MAX).saturating_add(self.offset_ns)
    }
}

/// The byte order that a section header at `at` states.
fn byte_order(bytes: &[u8], at: usize) -> Option<bool> {
    match crate::read::u32_at(bytes, at + 8)? {
        0x1a2b_3c4d => Some(true),
        0x4d3c_2b1a => Some(false),
        _ => None,
    }
}

/// The frame of one block.
struct Block {
    kind: u32,
    big: bool,
    len: u32,
}

impl Pcapng {
    pub(super) fn open(bytes: &[u8]) -> Result<Pcapng, OpenError> {
        if bytes.len() < 16 {
            return Err(OpenError::TooShort(bytes.len()));
        }
        let big = byte_order(bytes, 0).ok_or(OpenError::UnknownMagic(SECTION_MAGIC))?;
        let (major, minor) = (u16_of(bytes, 12, big), u16_of(bytes, 14, big));
        if major != 1 {
            return Err(OpenError::UnknownVersion(major, minor));
        }
        Ok(Pcapng { big, interfaces: Arc::default(), last_ts_ns: 0 })
    }

    /// The enhanced packet at `offset` if it is whole, in sight, and sound.
    #[inline(always)]
    pub(super) fn record<'a>(&mut self, bytes: &'a [u8], offset: usize) -> Option<Record<'a>> {
        let rest = bytes.get(offset..)?;
        let head: &[u8; PACKET_HEAD] = rest.first_chunk()?;
        let len = u32_of(head, 4, self.big);
        if u32_of(head, 0, self.big) != PACKET_ENHANCED
            || len > FRAME_BYTES_MAX
            || !len.is_multiple_of(4)
        {
            return None;
        }
        let block = rest.get(..len as usize)?;
        let body_end = block.len().checked_sub(4)?;
        if u32_of(block, body_end, self.big) != len {
            return None;
        }
        let captured = u32_of(head, 20, self.big);
        let frame = block.get(PACKET_HEAD..body_end)?.get(..captured as usize)?;
        let number = u32_of(head, 8, self.big);
        let interface = self.interfaces.get(number as usize)?;
        let units =
            u64::from(u32_of(head, 12, self.big)) << 32 | u64::from(u32_of(head, 16, self.big));
        self.last_ts_ns = interface.ts_ns(units);
        Some(Record {
            ts_ns: self.last_ts_ns,
            link_type: interface.link_type,
            interface: number,
            original_len: u32_of(head, 24, self.big),
            frame,
            frame_offset: offset + PACKET_HEAD,
            next_offset: offset + block.len(),
        })
    }

    /// The item at `offset`, if it is not a valid enhanced packet. `Err`: damage, which the caller
    /// searches past. `offset` is in `bytes`.
    pub(super) fn explain<'a>(
        &mut self,
        bytes: &'a [u8],
        offset: usize,
        at_end: bool,
    ) -> Result<Step<'a>, CaptureDamage> {
        let cut = || if at_end { Err(CaptureDamage::Cut) } else { Ok(Step::NeedMore) };
        if bytes.len() - offset < FRAME {
            return cut();
        }
        let block = self.block_at(bytes, offset).ok_or(CaptureDamage::BlockMalformed)?;
        if block.len < FRAME as u32 || !block.len.is_multiple_of(4) || block.len > FRAME_BYTES_MAX {
            return Err(CaptureDamage::BlockLength);
        }
        let next_offset = offset + block.len as usize;
        let Some(whole) = bytes.get(offset..next_offset) else { return cut() };
        if u32_of(whole, whole.len() - 4, block.big) != block.len {
            return Err(CaptureDamage::BlockTrailer);
        }
        // From here on the block's frame is valid: an error inside costs only this block.
        let body = &whole[8..whole.len() - 4];
        let result = match block.kind {
            SECTION => self.section(body, block.big).map(|()| None),
            INTERFACE => self.interface(body).map(|()| None),
            PACKET_SIMPLE => self.simple(body, offset, next_offset).map(Some),
            PACKET_OBSOLETE => self.obsolete(body, offset, next_offset).map(Some),
            PACKET_ENHANCED => Err(self.blame(body)),
            _ => Ok(None),
        };
        Ok(match result {
            Ok(Some(record)) => Step::Record(record),
            Ok(None) => Step::Meta { next_offset },
            Err(kind) => Step::Damaged { kind, next_offset },
        })
    }

    /// Type, byte order and length of the block at `at`, of which 12 bytes are in the buffer;
    /// `None` for a section header that states no byte order.
    fn block_at(&self, bytes: &[u8], at: usize) -> Option<Block> {
        let kind = u32_of(bytes, at, self.big);
        let big = if kind == SECTION { byte_order(bytes, at)? } else { self.big };
        Some(Block { kind, big, len: u32_of(bytes, at + 4, big) })
    }

    fn section(&mut self, body: &[u8], big: bool) -> Result<(), CaptureDamage> {
        if body.len() < 16 || u16_of(body, 4, big) != 1 {
            return Err(CaptureDamage::BlockMalformed);
        }
        self.big = big;
        self.interfaces = Arc::default();
        Ok(())
    }

    fn interface(&mut self, body: &[u8]) -> Result<(), CaptureDamage> {
        if body.len() < 8 {
            return Err(CaptureDamage::BlockMalformed);
        }
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err(CaptureDamage::TooManyInterfaces);
        }
        let mut interface = Interface {
            link_type: u16_of(body, 0, self.big),
            snap_len: u32_of(body, 4, self.big),
            resolution: Resolution::Multiply(1000),
            offset_ns: 0,
        };
        let mut options = &body[8..];
        while options.len() >= 4 {
            let (code, len) = (u16_of(options, 0, self.big), u16_of(options, 2, self.big));
            let len = usize::from(len);
            let Some(value) = options.get(4..4 + len) else { break };
            match (code, value) {
                (0, _) => break,
                (9, &[resolution]) => interface.resolution = resolution_of(resolution),
                (14, value) if len == 8 => {
                    let (high, low) = if self.big { (0, 4) } else { (4, 0) };
                    let seconds = u64::from(u32_of(value, high, self.big)) << 32
                        | u64::from(u32_of(value, low, self.big));
                    interface.offset_ns = (seconds as i64).saturating_mul(1_000_000_000);
                }
                _ => {}
            }
            options = options.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
        }
        Arc::make_mut(&mut self.interfaces).push(interface);
        Ok(())
    }

    fn simple<'a>(
        &mut self,
        body: &'a [u8],
        offset: usize,
        next_offset: usize,
    ) -> Result<Record<'a>, CaptureDamage> {
        let interface = self.interfaces.first().ok_or(CaptureDamage::UnknownInterface)?;
        let data = body.get(4..).ok_or(CaptureDamage::BlockMalformed)?;
        let original_len = u32_of(body, 0, self.big);
        let limit = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
        let frame = &data[..data.len().min(original_len.min(limit) as usize)];
        Ok(Record {
            ts_ns: self.last_ts_ns,
            link_type: interface.link_type,
            interface: 0,
            original_len,
            frame,
            frame_offset: offset + SIMPLE_HEAD,
            next_offset,
        })
    }

    fn obsolete<'a>(
        &mut self,
        body: &'a [u8],
        offset: usize,
        next_offset: usize,
    ) -> Result<Record<'a>, CaptureDamage> {
        let word = |at| u32_of(body, at, self.big);
        let data = body.get(20..).ok_or(CaptureDamage::BlockMalformed)?;
        let number = u16_of(body, 0, self.big);
        let frame = data.get(..word(12) as usize).ok_or(CaptureDamage::RecordLength)?;
        let interface =
            self.interfaces.get(usize::from(number)).ok_or(CaptureDamage::UnknownInterface)?;
        self.last_ts_ns = interface.ts_ns(u64::from(word(4)) << 32 | u64::from(word(8)));
        Ok(Record {
            ts_ns: self.last_ts_ns,
            link_type: interface.link_type,
            interface: u32::from(number),
            original_len: word(16),
            frame,
            frame_offset: offset + PACKET_HEAD,
            next_offset,
        })
    }

    /// Why [`Pcapng::record`] refused an enhanced packet whose frame is sound.
    fn blame(&self, body: &[u8]) -> CaptureDamage {
        if body.len() < 20 {
            CaptureDamage::BlockMalformed
        } else if u32_of(body, 12, self.big) as usize > body.len() - 20 {
            CaptureDamage::RecordLength
        } else {
            CaptureDamage::UnknownInterface
        }
    }

    /// The records of the name block at `offset`, if the whole block is there.
    pub(super) fn name_records<'a>(&self, bytes: &'a [u8], offset: usize) -> Option<Names<'a>> {
        let rest = bytes.get(offset..)?;
        let block = self.block_at(rest, 0).filter(|block| block.kind == NAMES)?;
        let whole = rest.get(..block.len as usize)?;
        let records = whole.get(8..whole.len().checked_sub(4)?)?;
        Some(Names { big: block.big, records, addr: None, names: &[] })
    }

    /// Whether two valid blocks begin at `at` (one, if the file ends after it).
    pub(super) fn plausible(&self, bytes: &[u8], at: usize, at_end: bool) -> Plausible {
        let (first, next) = self.block_plausible(bytes, at, at_end);
        match first {
            Plausible::Yes if next == bytes.len() && at_end => Plausible::Yes,
            Plausible::Yes => self.block_plausible(bytes, next, at_end).0,
            other => other,
        }
    }

    /// Checks one block, and returns where it ends.
    fn block_plausible(&self, bytes: &[u8], at: usize, at_end: bool) -> (Plausible, usize) {
        let short = (if at_end { Plausible::No } else { Plausible::NeedMore }, at);
        if bytes.len() - at < FRAME {
            return short;
        }
        let known = |block: &Block| {
            matches!(block.kind, INTERFACE..=STATISTICS | PACKET_ENHANCED | SECTION)
                && (FRAME as u32..=SEARCH_BLOCK_BYTES_MAX).contains(&block.len)
                && block.len.is_multiple_of(4)
        };
        let Some(block) = self.block_at(bytes, at).filter(known) else {
            return (Plausible::No, at);
        };
        let next = at + block.len as usize;
        if next > bytes.len() {
            return short;
        }
        let sound = u32_of(bytes, next - 4, block.big) == block.len;
        (if sound { Plausible::Yes } else { Plausible::No }, next)
    }
}

/// Walks the records of a name block. A record is type, length, address, and names that each end in
/// a zero byte; a malformed record ends the walk.
pub(super) struct Names<'a> {
    big: bool,
    /// Records not yet begun.
    records: &'a [u8],
    /// The address of the current record, and its remaining names.
    addr: Option<Addr>,
    names: &'a [u8],
}

impl<'a> Iterator for Names<'a> {
    type Item = (Addr, &'a [u8]);

    fn next(&mut self) -> Option<(Addr, &'a [u8])> {
        loop {
            if let (Some(addr), Some(end)) = (self.addr, self.names.iter().position(|o| *o == 0)) {
                let name = &self.names[..end];
                self.names = &self.names[end + 1..];
                return Some((addr, name));
            }
            let (kind, len) =
                (u16_of(self.records, 0, self.big), u16_of(self.records, 2, self.big));
            // 0 ends the records.
            if kind == 0 {
                return None;
            }
            let value = self.records.get(4..4 + usize::from(len))?;
            (self.addr, self.names) = match kind {
                1 => value.split_first_chunk().map(|(addr, names)| (Addr::v4(*addr), names)),
                2 => value.split_first_chunk().map(|(addr, names)| (Addr::v6(*addr), names)),
                _ => None,
            }
            .map_or((None, &[][..]), |(addr, names)| (Some(addr), names));
            let padded = 4 + usize::from(len).next_multiple_of(4);
            self.records = self.records.get(padded..).unwrap_or_default();
        }
    }
}

/// The if_tsresol byte: a negative power of ten, or of two when the high bit is set.
fn resolution_of(byte: u8) -> Resolution {
    let power = u32::from(byte & 0x7f);
    if byte & 0x80 != 0 {
        Resolution::Shift(power)
    } else if power <= 9 {
        Resolution::Multiply(10u64.pow(9 - power))
    } else {
        // Units so fine that no u64 of them makes a nanosecond.
        Resolution::Divide(10u64.checked_pow(power - 9).unwrap_or(u64::MAX))
    }
}
