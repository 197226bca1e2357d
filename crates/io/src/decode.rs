//! Compressed captures: gzip, zstd and xz, found by their first bytes and never by their name.
//!
//! Members and frames in a row are one stream, as `cat a.gz b.gz` makes them. The decoders are
//! pure Rust and stream, so memory is a window ([`WINDOW_BYTES_MAX`]) however long the output.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest window of a compressed stream: that of `zstd --long=27`; `xz -9` needs half.
pub const WINDOW_BYTES_MAX: usize = 128 << 20;

/// The number of bytes that identify a compression.
pub const MAGIC_BYTES: usize = 6;

/// Bytes that one read of the file requests.
const READ_BYTES: usize = 128 << 10;

/// The most bytes before damage that are lost with it.
const SMALL_READ_BYTES: usize = 8 << 10;

/// A zstd block that is raw, empty and the last of its frame, and a checksum.
const LAST_BLOCK: &[u8] = &[1, 0, 0, 0, 0, 0, 0];

/// How a stream is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// The .xz format.
    Xz,
}

impl Compression {
    /// Looks at the first [`MAGIC_BYTES`] (fewer if there are no more).
    pub fn detect(head: &[u8]) -> Option<Compression> {
        match head {
            [0x1f, 0x8b, ..] => Some(Compression::Gzip),
            // A frame, or a skippable frame before it.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                Some(Compression::Zstd)
            }
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Compression::Xz),
            _ => None,
        }
    }

    /// Its name, for messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Xz => "xz",
        }
    }
}

/// Reads the first bytes of `source` and returns what decodes it; plain input passes through.
/// Blocks until those bytes are there or the source ends.
pub fn decoder(
    mut source: impl Read + Send + 'static,
) -> io::Result<(Box<dyn Read + Send>, Option<Compression>)> {
    let mut head = Vec::with_capacity(MAGIC_BYTES);
    source.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut head)?;
    let compression = Compression::detect(&head);
    let whole = Cursor::new(head).chain(source);
    let Some(kind) = compression else { return Ok((Box::new(whole), None)) };
    let whole = BufReader::with_capacity(READ_BYTES, whole);
    let reader: Box<dyn Read + Send> = match kind {
        Compression::Gzip => Box::new(SmallReads(MultiGzDecoder::new(whole))),
        Compression::Zstd => Box::new(ZstdFrames::new(whole)),
        Compression::Xz => {
            let limit_kib = (WINDOW_BYTES_MAX >> 10) as u32 * 2;
            Box::new(SmallReads(XzReader::new_mem_limit(whole, true, limit_kib)))
        }
    };
    Ok((reader, compression))
}

/// Reads little at a time from a decoder: at damage it returns an error, and bytes that it had put
/// into the caller's buffer by then are lost.
struct SmallReads<R>(R);

impl<R: Read> Read for SmallReads<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = out.len().min(SMALL_READ_BYTES);
        self.0.read(&mut out[..count])
    }
}

/// The frames of a zstd stream, one after the other; skippable ones are skipped, checksums are
/// compared. After an error nothing more is decoded.
struct ZstdFrames<R> {
    source: R,
    frame: FrameDecoder,
    state: Zstd,
    /// Why the frame is broken, while its decoded bytes are still being read.
    failure: Option<io::Error>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Zstd {
    Between,
    Inside,
    Ended,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> ZstdFrames<R> {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(WINDOW_BYTES_MAX as u64);
        ZstdFrames { source, frame, state: Zstd::Between, failure: None }
    }

    /// Reads the header of the next frame, past any skippable ones.
    fn begin_frame(&mut self) -> io::Result<Zstd> {
        use ReadFrameHeaderError::SkipFrame;
        while !self.source.fill_buf()?.is_empty() {
            match self.frame.init(&mut self.source) {
                Ok(()) => return Ok(Zstd::Inside),
                Err(FrameDecoderError::ReadFrameHeaderError(SkipFrame { length, .. })) => {
                    let mut skipped = self.source.by_ref().take(u64::from(length));
                    if io::copy(&mut skipped, &mut io::sink())? < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(Zstd::Ended)
    }

    /// Some bytes of the frame; 0 when it has ended as it should.
    fn continue_frame(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.frame.can_collect() == 0 && !self.frame.is_finished() {
            let step = || BlockDecodingStrategy::UptoBlocks(1);
            if let Err(error) = self.frame.decode_blocks(&mut self.source, step()) {
                // The decoder holds back a window of decoded bytes until the frame ends. End the
                // frame, so that they are not lost.
                self.frame.decode_blocks(LAST_BLOCK, step()).map_err(io::Error::other)?;
                self.failure = Some(io::Error::other(error));
            }
        }
        let count = self.frame.read(out)?;
        if count > 0 {
            return Ok(count);
        }
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let stated = self.frame.get_checksum_from_data();
        if stated.is_some() && stated != self.frame.get_calculated_checksum() {
            return Err(io::Error::other("the checksum of a zstd frame is wrong"));
        }
        Ok(0)
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            // After an early return with an error the state is `Ended`.
            match std::mem::replace(&mut self.state, Zstd::Ended) {
                Zstd::Ended => return Ok(0),
                Zstd::Between => self.state = self.begin_frame()?,
                Zstd::Inside => {
                    let count = self.continue_frame(out)?;
                    self.state = if count > 0 { Zstd::Inside } else { Zstd::Between };
                    if count > 0 {
                        return Ok(count);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    /// All bytes decoded from packed bytes, and how they end.
    fn unpack(packed: &[u8]) -> (Vec<u8>, io::Result<usize>) {
        let (mut reader, _) = decoder(Cursor::new(packed.to_vec())).unwrap();
        let mut out = Vec::new();
        let end = reader.read_to_end(&mut out);
        (out, end)
    }

    /// A zstd frame that is cut anywhere gives every whole block before the error, although the
    /// decoder's window is longer than all of them.
    #[test]
    fn a_cut_zstd_frame_gives_its_whole_blocks() {
        let plain: Vec<u8> = (0..600_000u32).flat_map(|n| (n / 5).to_le_bytes()).collect();
        let packed = compress_to_vec(&plain[..], CompressionLevel::Fastest);
        let (out, end) = unpack(&packed);
        assert!(out == plain && end.is_ok());
        let (mut longest, mut shortest) = (0, plain.len());
        for cut in (20..packed.len()).step_by(packed.len() / 17) {
            let (out, end) = unpack(&packed[..cut]);
            assert!(end.is_err() && plain.starts_with(&out), "cut at {cut}");
            (longest, shortest) = (longest.max(out.len()), shortest.min(out.len()));
        }
        assert!(longest > plain.len() * 3 / 4 && shortest < plain.len() / 4);
    }

    /// A wrong checksum is an error, after the bytes; so are bytes after a stream.
    #[test]
    fn a_wrong_checksum_is_reported() {
        let mut packed = compress_to_vec(&b"some bytes"[..], CompressionLevel::Fastest);
        let end = packed.len() - 1;
        packed[end] ^= 1;
        let (out, result) = unpack(&packed);
        assert_eq!(out, b"some bytes");
        assert!(result.unwrap_err().to_string().contains("checksum"));
        packed[end] ^= 1;
        packed.extend(b"rubbish");
        let (out, result) = unpack(&packed);
        assert!(out == b"some bytes" && result.is_err());
    }
}
