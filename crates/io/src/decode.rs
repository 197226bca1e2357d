//! Compressed captures: gzip, zstd and xz, found by their first octets and never by their name.
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

/// Octets that tell the compression.
pub const MAGIC_BYTES: usize = 6;

/// Octets asked of the file at once.
const READ_BYTES: usize = 128 << 10;

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

/// Reads the first octets of `source` and returns what decodes it; plain input passes through.
/// Blocks until those octets are there or the source ends.
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
        Compression::Gzip => Box::new(MultiGzDecoder::new(whole)),
        Compression::Zstd => Box::new(ZstdFrames::new(whole)),
        Compression::Xz => {
            Box::new(XzReader::new_mem_limit(whole, true, (WINDOW_BYTES_MAX >> 10) as u32 * 2))
        }
    };
    Ok((reader, compression))
}

/// The frames of a zstd stream, one after the other; skippable ones are skipped, checksums are
/// compared. After an error nothing more is decoded.
struct ZstdFrames<R> {
    source: R,
    frame: FrameDecoder,
    state: Zstd,
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
        ZstdFrames { source, frame, state: Zstd::Between }
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

    /// Some octets of the frame; 0 when it has ended as it should.
    fn continue_frame(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.frame.can_collect() == 0 && !self.frame.is_finished() {
            self.frame
                .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(io::Error::other)?;
        }
        let count = self.frame.read(out)?;
        let stated = self.frame.get_checksum_from_data();
        if count == 0 && stated.is_some() && stated != self.frame.get_calculated_checksum() {
            return Err(io::Error::other("the checksum of a zstd frame is wrong"));
        }
        Ok(count)
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            // An early return by error leaves `Ended` behind.
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
