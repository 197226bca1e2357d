//! The pcap format: a header of 24 bytes, then records whose only link is their length.
//!
//! Layout (draft-ietf-opsawg-pcap): magic, version, two unused words, snap length, link type; a
//! record is seconds, fraction, captured length, original length, frame. Nothing marks the start
//! of a record, so after damage the only evidence is that several headers in a row make sense.

use std::ops::Range;

use super::{
    CaptureDamage, FRAME_BYTES_LIKELY, FRAME_BYTES_MAX, OpenError, Plausible, Record, Step, u16_of,
    u32_of,
};

/// Bytes of the file header.
pub(super) const FILE_HEADER_BYTES: usize = 24;

/// Number of valid headers in a row that make a place plausible. Random bytes pass one with a
/// chance of about 2^-60; the others are for packets that carry a capture file.
const CHAIN: usize = 8;

/// Of a chain that the end of the file cuts, the whole records wanted.
const CHAIN_CUT: usize = 3;

/// Most seconds between two records of a chain.
const CHAIN_GAP_S: u32 = 7 * 86_400;

/// The fields of the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pcap {
    /// Big-endian.
    big: bool,
    /// Nanoseconds of one unit of the fraction: 1 or 1000.
    unit_ns: u32,
    /// Bytes of a record's header: 16, or 24 in the modified format.
    header_len: usize,
    /// The longest captured length that is accepted.
    frame_max: u32,
    link_type: u16,
}

impl Pcap {
    pub(super) fn open(magic: [u8; 4], bytes: &[u8]) -> Result<Pcap, OpenError> {
        let known = |value: u32| match value {
            0xa1b2_c3d4 => Some((1000, 16)),
            0xa1b2_3c4d => Some((1, 16)),
            // The modified format of old Linux kernels: interface, protocol and packet type
            // follow the lengths.
            0xa1b2_cd34 => Some((1000, 24)),
            _ => None,
        };
        let big_known = known(u32::from_be_bytes(magic));
        let (unit_ns, header_len) = big_known
            .or_else(|| known(u32::from_le_bytes(magic)))
            .ok_or(OpenError::UnknownMagic(magic))?;
        if bytes.len() < FILE_HEADER_BYTES {
            return Err(OpenError::TooShort(bytes.len()));
        }
        let big = big_known.is_some();
        let (major, minor) = (u16_of(bytes, 4, big), u16_of(bytes, 6, big));
        if major != 2 {
            return Err(OpenError::UnknownVersion(major, minor));
        }
        let snap_len = u32_of(bytes, 16, big);
        // The upper half of the word holds the length of a frame check sequence (bits 26-31), which
        // is not needed: IP states its own length.
        let link_type = (u32_of(bytes, 20, big) & 0xffff) as u16;
        let frame_max = FRAME_BYTES_LIKELY.max(snap_len.min(FRAME_BYTES_MAX));
        Ok(Pcap { big, unit_ns, header_len, frame_max, link_type })
    }

    /// The record at `offset` if it is whole, in sight, and not empty.
    #[inline(always)]
    pub(super) fn record<'a>(&self, bytes: &'a [u8], offset: usize) -> Option<Record<'a>> {
        // The byte order is hoisted: a file has one, so this branch costs nothing.
        if self.big {
            self.record_in::<true>(bytes, offset)
        } else {
            self.record_in::<false>(bytes, offset)
        }
    }

    /// Offset of the record after the one at `offset`; only its length is checked.
    #[inline(always)]
    pub(super) fn hop(&self, bytes: &[u8], offset: usize) -> Option<usize> {
        let head: &[u8; 16] = bytes.get(offset..)?.first_chunk()?;
        let captured = u32_of(head, 8, self.big);
        (captured <= self.frame_max).then_some(offset + self.header_len + captured as usize)
    }

    /// True when the words of a record's header make sense together.
    #[inline(always)]
    pub(super) fn is_sound(&self, head: &[u8; 16]) -> bool {
        let word = |at| u32_of(head, at, self.big);
        let (captured, original_len) = (word(8), word(12));
        captured > 0
            && captured <= original_len
            && captured <= FRAME_BYTES_LIKELY
            && original_len <= FRAME_BYTES_MAX
            && word(4) < 1_000_000_000 / self.unit_ns
    }

    /// Offsets of the upper three bytes of the seconds in a record's header.
    #[inline]
    pub(super) fn slow_bytes(&self) -> Range<usize> {
        if self.big { 0..3 } else { 1..4 }
    }

    #[inline(always)]
    fn record_in<'a, const BIG: bool>(&self, bytes: &'a [u8], offset: usize) -> Option<Record<'a>> {
        let rest = bytes.get(offset..)?;
        let head: &[u8; 16] = rest.first_chunk()?;
        let captured = u32_of(head, 8, BIG);
        // One compare refuses both zero and too much.
        if captured.wrapping_sub(1) >= self.frame_max {
            return None;
        }
        let end = self.header_len + captured as usize;
        let frame = rest.get(self.header_len..end)?;
        Some(Record {
            ts_ns: self.ts_ns(u32_of(head, 0, BIG), u32_of(head, 4, BIG)),
            link_type: self.link_type,
            interface: 0,
            original_len: u32_of(head, 12, BIG),
            frame,
            frame_offset: offset + self.header_len,
            next_offset: offset + end,
        })
    }

    /// Cannot overflow: 2^32 s is 2^62 ns.
    #[inline(always)]
    fn ts_ns(&self, seconds: u32, fraction: u32) -> i64 {
        i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * i64::from(self.unit_ns)
    }

    /// Why [`Pcap::record`] returned nothing. `Err`: damage, which the caller searches past.
    /// `offset` is in `bytes`.
    pub(super) fn explain<'a>(
        &self,
        bytes: &'a [u8],
        offset: usize,
        at_end: bool,
    ) -> Result<Step<'a>, CaptureDamage> {
        let cut = || if at_end { Err(CaptureDamage::Cut) } else { Ok(Step::NeedMore) };
        if bytes.len() - offset < self.header_len {
            return cut();
        }
        let word = |at| u32_of(bytes, offset + at, self.big);
        let (captured, original_len) = (word(8), word(12));
        if captured > self.frame_max {
            return Err(CaptureDamage::RecordLength);
        }
        if captured > 0 {
            return cut();
        }
        if original_len == 0 {
            return Err(CaptureDamage::ZeroRecord);
        }
        Ok(Step::Record(Record {
            ts_ns: self.ts_ns(word(0), word(4)),
            link_type: self.link_type,
            interface: 0,
            original_len,
            frame: &[],
            frame_offset: offset + self.header_len,
            next_offset: offset + self.header_len,
        }))
    }

    /// Whether a chain of valid headers begins at `at`. It decides by the headers alone, and
    /// requests more bytes instead of deciding by fewer.
    pub(super) fn plausible(&self, bytes: &[u8], mut at: usize, at_end: bool) -> Plausible {
        let mut previous_s = None;
        for whole_records in 0..CHAIN {
            if bytes.len() - at < self.header_len {
                let believed = at == bytes.len() && whole_records > 0 || whole_records >= CHAIN_CUT;
                return end_of_chain(believed, at_end);
            }
            let Some(head) = bytes[at..].first_chunk() else { return Plausible::No };
            let seconds = u32_of(head, 0, self.big);
            let near = previous_s.is_none_or(|s: u32| s.abs_diff(seconds) <= CHAIN_GAP_S);
            if !self.is_sound(head) || !near {
                return Plausible::No;
            }
            previous_s = Some(seconds);
            at += self.header_len + u32_of(head, 8, self.big) as usize;
            if at > bytes.len() {
                return end_of_chain(whole_records >= CHAIN_CUT, at_end);
            }
        }
        Plausible::Yes
    }
}

/// The verdict where the bytes end before the chain does.
fn end_of_chain(believed: bool, at_end: bool) -> Plausible {
    match (at_end, believed) {
        (false, _) => Plausible::NeedMore,
        (true, true) => Plausible::Yes,
        (true, false) => Plausible::No,
    }
}
