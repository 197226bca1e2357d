//! The places of frames, and the table at the end of the file that has them.
//!
//! ```text
//! table     0x184d2a5e u32, bytes that follow u32, for each frame (bytes u32, bytes of content u32, checksum u32 by
//!           the flag), number of frames u32, flags u8 (0x80: checksums), 0x8f92eab1 u32
//! ```
//!
//! Little-endian: the zstd seekable format. To zstd it is a skippable frame. If it is damaged or
//! missing, the frames are found one after the other by their headers and those of their blocks.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{CONTENT_BYTES_MAX, DESCRIPTOR, HEADER_BYTES, MAGIC};

const SKIPPABLE: u32 = 0x184d_2a5e;
const SEEKABLE: u32 = 0x8f92_eab1;
const FOOTER_BYTES: usize = 9;
const HAS_CHECKSUMS: u8 = 0x80;
/// Flags that must be 0.
const RESERVED: u8 = 0x7c;

/// Frames of a file, at most.
const FRAMES_MAX: usize = 1 << 16;

/// The longest frame: content that cannot be compressed, with the headers of its blocks.
const FRAME_BYTES_MAX: u64 = CONTENT_BYTES_MAX as u64 + 4096;

/// The place of a frame, and of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its place in the file.
    pub start: u64,
    /// Its bytes there.
    pub bytes: u32,
    /// The place of its content in all content.
    pub content_start: u64,
    /// Bytes of its content.
    pub content_bytes: u32,
}

/// The frames of a file, in order.
#[derive(Clone, Debug, Default)]
pub struct FrameList {
    frames: Vec<Frame>,
    bytes: u64,
    content_bytes: u64,
    lost_bytes: u64,
}

impl FrameList {
    /// Adds the next frame.
    pub fn push(&mut self, bytes: usize, content_bytes: usize) {
        self.frames.push(Frame {
            start: self.bytes,
            bytes: bytes as u32,
            content_start: self.content_bytes,
            content_bytes: content_bytes as u32,
        });
        self.bytes += bytes as u64;
        self.content_bytes += content_bytes as u64;
    }

    /// All of them.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Bytes of all content.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Bytes at the end of the file that are no frames.
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    /// The number of the frame with the byte at `offset` of the content.
    pub fn at(&self, offset: u64) -> Option<usize> {
        if offset >= self.content_bytes {
            return None;
        }
        // A frame without content has the place of the next one.
        self.frames.partition_point(|frame| frame.content_start <= offset).checked_sub(1)
    }

    /// The table of these frames.
    pub fn table(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + 8 * self.frames.len() + FOOTER_BYTES);
        let mut put = |word: u32| out.extend_from_slice(&word.to_le_bytes());
        put(SKIPPABLE);
        put((8 * self.frames.len() + FOOTER_BYTES) as u32);
        for frame in &self.frames {
            put(frame.bytes);
            put(frame.content_bytes);
        }
        put(self.frames.len() as u32);
        out.push(0);
        out.extend_from_slice(&SEEKABLE.to_le_bytes());
        out
    }

    /// The frames of a file, by its table, or else one after the other.
    pub fn read(file: &File) -> io::Result<FrameList> {
        let bytes = file.metadata()?.len();
        match by_table(file, bytes)? {
            Some(list) => Ok(list),
            None => by_headers(file, bytes),
        }
    }
}

/// `None`: there is no valid table.
fn by_table(file: &File, bytes: u64) -> io::Result<Option<FrameList>> {
    let mut footer = [0; FOOTER_BYTES];
    let Some(at) = bytes.checked_sub(footer.len() as u64) else { return Ok(None) };
    file.read_exact_at(&mut footer, at)?;
    let [a, b, c, d, flags, seekable @ ..] = footer;
    let count = u32::from_le_bytes([a, b, c, d]) as usize;
    let is_known = u32::from_le_bytes(seekable) == SEEKABLE && flags & RESERVED == 0;
    if !is_known || count > FRAMES_MAX {
        return Ok(None);
    }
    let entry_bytes = if flags & HAS_CHECKSUMS == 0 { 8 } else { 12 };
    let follow = count * entry_bytes + FOOTER_BYTES;
    let Some(start) = bytes.checked_sub(8 + follow as u64) else { return Ok(None) };
    let mut table = vec![0; 8 + count * entry_bytes];
    file.read_exact_at(&mut table, start)?;
    let words = |bytes: &[u8]| {
        let (words, _) = bytes.as_chunks::<4>();
        (u32::from_le_bytes(words[0]), u32::from_le_bytes(words[1]))
    };
    if words(&table) != (SKIPPABLE, follow as u32) {
        return Ok(None);
    }
    let mut list = FrameList::default();
    for entry in table[8..].chunks_exact(entry_bytes) {
        let (bytes, content_bytes) = words(entry);
        if u64::from(bytes) > FRAME_BYTES_MAX || content_bytes as usize > CONTENT_BYTES_MAX {
            return Ok(None);
        }
        list.push(bytes as usize, content_bytes as usize);
    }
    Ok((list.bytes == start).then_some(list))
}

fn by_headers(file: &File, bytes: u64) -> io::Result<FrameList> {
    let mut list = FrameList::default();
    while list.bytes < bytes && list.frames.len() < FRAMES_MAX {
        match frame_at(file, list.bytes, bytes)? {
            Some((bytes, content_bytes)) => list.push(bytes as usize, content_bytes),
            None => break,
        }
    }
    let mut magic = [0; 4];
    let is_table = list.bytes + 4 <= bytes && {
        file.read_exact_at(&mut magic, list.bytes)?;
        u32::from_le_bytes(magic) == SKIPPABLE
    };
    list.lost_bytes = if is_table { 0 } else { bytes - list.bytes };
    Ok(list)
}

/// The bytes of the frame at `start`, and of its content; `None`: there is none, or it is cut.
fn frame_at(file: &File, start: u64, end: u64) -> io::Result<Option<(u64, usize)>> {
    let mut head = [0; HEADER_BYTES];
    if start + head.len() as u64 > end {
        return Ok(None);
    }
    file.read_exact_at(&mut head, start)?;
    let [magic @ .., descriptor, a, b, c, d] = head;
    let content_bytes = u32::from_le_bytes([a, b, c, d]) as usize;
    if magic != MAGIC || descriptor != DESCRIPTOR || content_bytes > CONTENT_BYTES_MAX {
        return Ok(None);
    }
    let mut at = start + head.len() as u64;
    loop {
        let mut block = [0; 4];
        if at + 3 > end || at - start > FRAME_BYTES_MAX {
            return Ok(None);
        }
        file.read_exact_at(&mut block[..3], at)?;
        let block = u32::from_le_bytes(block);
        let (is_last, kind, size) = (block & 1 == 1, block >> 1 & 3, u64::from(block >> 3));
        // A block of one repeated byte has one byte.
        at += 3 + if kind == 1 { 1 } else { size };
        if is_last {
            // The checksum.
            at += 4;
            let is_whole = at <= end && at - start <= FRAME_BYTES_MAX;
            return Ok(is_whole.then_some((at - start, content_bytes)));
        }
    }
}
