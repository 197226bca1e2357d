//! Files of independent zstd frames, of which any part can be read without the rest.
//!
//! ```text
//! file      frame.., seek table
//! frame     a zstd frame (RFC 8878) with its content size and a checksum; at most `CONTENT_BYTES_MAX` of content
//! seek table    a skippable frame, in the zstd seekable format (see `table`)
//! ```
//!
//! Programs that know nothing of the seek table read the file as one stream: `zstd -d` and all
//! that reads zstd.
//!
//! The encoder is ruzstd's, with a search for matches of our own (`matcher`), which is three times
//! as fast as its own and finds more. The encoder is young, so [`Encoder`] decodes each frame that it
//! made, and stores the content uncompressed in its frame if that fails. With at most one block a
//! frame, no state of the encoder passes from block to block.
//!
//! The decoder checks every claim of a frame before it allocates for it: a frame has exactly the
//! content that the table and its own header state.
//!
//! Cost: see `docs/decisions/0023-compressed-segments.md`.

mod matcher;
mod table;

use std::fmt;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, FrameCompressor};

use matcher::FrameMatcher;
pub use table::{Frame, FrameList};

/// Bytes of content in a frame that [`Encoder`] makes, at most: one block.
pub const CONTENT_BYTES: usize = 128 << 10;

/// Bytes of content of a frame that is read, at most.
pub const CONTENT_BYTES_MAX: usize = 1 << 20;

/// Bytes of the header that the encoder writes: magic number, descriptor, window.
const ENCODED_HEADER_BYTES: usize = 6;
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The descriptor of our frames: content size in four bytes, one segment, a checksum.
const DESCRIPTOR: u8 = 2 << 6 | 1 << 5 | CHECKSUM;
const CHECKSUM: u8 = 1 << 2;
const HEADER_BYTES: usize = 9;

/// The frame, or its place in the file, is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// Makes frames.
pub struct Encoder {
    frames: FrameCompressor<Cursor<Vec<u8>>, Vec<u8>, FrameMatcher>,
    decoder: Decoder,
    /// A frame, and what the decoder makes of it.
    made: Vec<u8>,
    decoded: Vec<u8>,
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder {
            frames: compressor(CompressionLevel::Fastest),
            decoder: Decoder::default(),
            made: Vec::new(),
            decoded: Vec::new(),
        }
    }
}

fn compressor(level: CompressionLevel) -> FrameCompressor<Cursor<Vec<u8>>, Vec<u8>, FrameMatcher> {
    FrameCompressor::new_with_matcher(FrameMatcher::default(), level)
}

impl Encoder {
    /// Appends a frame with this content, at most [`CONTENT_BYTES`].
    ///
    /// # Panics
    ///
    /// If there is more of it.
    pub fn frame(&mut self, content: &[u8], out: &mut Vec<u8>) {
        assert!(content.len() <= CONTENT_BYTES, "one block");
        // The encoder states impossible input by a panic. Its state is then dropped.
        let is_made =
            catch_unwind(AssertUnwindSafe(|| encode(&mut self.frames, content, &mut self.made)));
        if is_made.is_err() {
            self.frames = compressor(CompressionLevel::Fastest);
        }
        let is_sound = matches!(is_made, Ok(true)) && self.comes_back(content);
        match is_sound {
            true => out.extend_from_slice(&self.made),
            false => self.stored(content, out),
        }
    }

    /// The same, and the content is not compressed: for content that is read often.
    pub fn stored(&mut self, content: &[u8], out: &mut Vec<u8>) {
        encode(&mut compressor(CompressionLevel::Uncompressed), content, &mut self.made);
        out.extend_from_slice(&self.made);
    }

    /// True if the decoder makes this content of the frame.
    fn comes_back(&mut self, content: &[u8]) -> bool {
        self.decoded.resize(content.len(), 0);
        self.decoder.frame(&self.made, &mut self.decoded).is_ok() && self.decoded == content
    }
}

/// Replaces `out` by a frame; false if the encoder wrote another header than it does today.
fn encode(
    frames: &mut FrameCompressor<Cursor<Vec<u8>>, Vec<u8>, FrameMatcher>,
    content: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    let mut source = frames.take_source().map(Cursor::into_inner).unwrap_or_default();
    source.clear();
    source.extend_from_slice(content);
    frames.set_source(Cursor::new(source));
    let mut encoded = frames.take_drain().unwrap_or_default();
    encoded.clear();
    frames.set_drain(encoded);
    frames.compress();
    out.clear();
    let Some(encoded) = frames.drain() else { return false };
    let Some((head, blocks)) = encoded.split_first_chunk::<ENCODED_HEADER_BYTES>() else {
        return false;
    };
    // The encoder states a window and no content size; readers want to know how much there is.
    out.extend_from_slice(&MAGIC);
    out.push(DESCRIPTOR);
    out.extend_from_slice(&(content.len() as u32).to_le_bytes());
    out.extend_from_slice(blocks);
    head[..4] == MAGIC && head[4] == CHECKSUM
}

/// Decodes frames.
#[derive(Default)]
pub struct Decoder {
    frame: FrameDecoder,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

impl Decoder {
    /// Fills `out` with the content of the frame that `bytes` is, and that is as long. After an error
    /// `out` is zeros.
    pub fn frame(&mut self, bytes: &[u8], out: &mut [u8]) -> Result<(), Damaged> {
        let result = self.decode(bytes, out);
        if result.is_err() {
            out.fill(0);
        }
        result
    }

    fn decode(&mut self, mut bytes: &[u8], mut out: &mut [u8]) -> Result<(), Damaged> {
        if out.len() > CONTENT_BYTES_MAX {
            return Err(Damaged);
        }
        self.frame.set_max_window_size(CONTENT_BYTES_MAX as u64);
        self.frame.init(&mut bytes).map_err(|_| Damaged)?;
        // A block at a time: no more is decoded than was stated, and one block.
        while !self.frame.is_finished() {
            let step = BlockDecodingStrategy::UptoBlocks(1);
            self.frame.decode_blocks(&mut bytes, step).map_err(|_| Damaged)?;
            // The slice takes what it has room for: the rest can still be collected.
            self.frame.collect_to_writer(&mut out).map_err(|_| Damaged)?;
            if self.frame.can_collect() > 0 {
                return Err(Damaged);
            }
        }
        let stated = self.frame.get_checksum_from_data();
        let is_sound = out.is_empty()
            && bytes.is_empty()
            && stated.is_some()
            && stated == self.frame.get_calculated_checksum();
        if is_sound { Ok(()) } else { Err(Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;

    use super::*;

    /// Bytes of a frame besides its content, at most, if nothing can be compressed.
    const AROUND_BYTES_MAX: usize = 64;

    /// Content of several kinds: text that repeats, numbers, noise, zeros.
    fn content(seed: u64, bytes: usize) -> Vec<u8> {
        let mut random = larder_testkit::random::Random(seed);
        let mut out = Vec::with_capacity(bytes);
        while out.len() < bytes {
            match random.below(4) {
                0 => out.extend_from_slice(b"GET /index.html HTTP/1.1 Host: www.example.com "),
                1 => out.extend((0..random.below(300)).map(|number| (number / 3) as u8)),
                2 => out.extend((0..random.below(300)).map(|_| random.below(256) as u8)),
                _ => out.resize(out.len() + random.below(2000) as usize, 0),
            }
        }
        out.truncate(bytes);
        out
    }

    /// A file of frames of `sizes`, and its content.
    fn made(sizes: &[usize]) -> (File, Vec<u8>) {
        let (mut encoder, mut list) = (Encoder::default(), FrameList::default());
        let (mut file, mut whole) = (tempfile::tempfile().unwrap(), Vec::new());
        for (seed, bytes) in sizes.iter().enumerate() {
            let (content, mut frame) = (content(seed as u64, *bytes), Vec::new());
            encoder.frame(&content, &mut frame);
            assert!(frame.len() <= content.len() + AROUND_BYTES_MAX);
            list.push(frame.len(), content.len());
            file.write_all(&frame).unwrap();
            whole.extend(content);
        }
        file.write_all(&list.table()).unwrap();
        (file, whole)
    }

    /// All content of a file, damaged frames as zeros; and the number of those.
    fn read(file: &File) -> (FrameList, Vec<u8>, usize) {
        let list = FrameList::read(file).unwrap();
        let (mut decoder, mut whole, mut damaged) = (Decoder::default(), Vec::new(), 0);
        for frame in list.frames() {
            let mut bytes = vec![0; frame.bytes as usize];
            let mut content = vec![0; frame.content_bytes as usize];
            file.read_exact_at(&mut bytes, frame.start).unwrap();
            damaged += usize::from(decoder.frame(&bytes, &mut content).is_err());
            assert_eq!(whole.len() as u64, frame.content_start);
            whole.extend(content);
        }
        (list, whole, damaged)
    }

    /// What was written is read, by the table and without it; the list finds the frame of each
    /// place.
    #[test]
    fn frames_are_read_back() {
        let sizes = [1, 4096, 0, CONTENT_BYTES, CONTENT_BYTES - 1, 100_000, 5, 17, 1024];
        let (file, whole) = made(&sizes);
        let (list, found, damaged) = read(&file);
        assert!(found == whole && damaged == 0 && list.lost_bytes() == 0);
        assert_eq!(list.content_bytes(), whole.len() as u64);
        for offset in [0, 1, 4096, 4097, 200_000, whole.len() - 1] {
            let frame = list.at(offset as u64).unwrap();
            let Frame { content_start, content_bytes, .. } = list.frames()[frame];
            assert!(
                (content_start..content_start + u64::from(content_bytes))
                    .contains(&(offset as u64))
            );
        }
        assert_eq!(list.at(whole.len() as u64), None);
        // Without the end of the table.
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        let (list, found, damaged) = read(&file);
        assert!(found == whole && damaged == 0 && list.lost_bytes() == 0);
    }

    /// Content that cannot be compressed, and content of one byte, are frames as well.
    #[test]
    fn noise_and_zeros() {
        let mut random = larder_testkit::random::Random(1);
        let noise: Vec<u8> = (0..CONTENT_BYTES).map(|_| random.below(256) as u8).collect();
        for content in [&noise[..], &[0; CONTENT_BYTES], &noise[..1024], &[7; 9], b""] {
            let (mut out, mut found) = (Vec::new(), vec![0; content.len()]);
            Encoder::default().frame(content, &mut out);
            assert!(out.len() <= content.len() + AROUND_BYTES_MAX, "{}", out.len());
            assert_eq!(Decoder::default().frame(&out, &mut found), Ok(()));
            assert!(found == content);
            out.clear();
            Encoder::default().stored(content, &mut out);
            assert_eq!(Decoder::default().frame(&out, &mut found), Ok(()));
            assert!(found == content && out.len() >= content.len());
        }
    }

    /// Each byte of a small file is changed: frames that decode have their content, and no claim of
    /// another size is believed.
    #[test]
    fn each_byte_is_flipped() {
        let (file, whole) = made(&[700, 0, 900]);
        let bytes = file.metadata().unwrap().len();
        for at in 0..bytes {
            let mut right = [0];
            file.read_exact_at(&mut right, at).unwrap();
            for flip in [0x01, 0x80, 0xff] {
                file.write_all_at(&[right[0] ^ flip], at).unwrap();
                let (list, found, damaged) = read(&file);
                let is_noticed = damaged > 0 || list.lost_bytes() > 0;
                assert!(is_noticed || found == whole, "byte {at}");
            }
            file.write_all_at(&right, at).unwrap();
        }
        assert!(read(&file).1 == whole);
    }

    /// A table may claim anything: sizes that do not fit the file, or frames without end.
    #[test]
    fn claims_of_tables_are_checked() {
        let (file, whole) = made(&[700, 900]);
        let bytes = file.metadata().unwrap().len();
        for (at, claim) in [(9, u32::MAX), (9, 1 << 28), (17, u32::MAX), (21, u32::MAX), (9, 0)] {
            let mut right = [0; 4];
            file.read_exact_at(&mut right, bytes - at).unwrap();
            file.write_all_at(&u32::to_le_bytes(claim), bytes - at).unwrap();
            assert!(read(&file).1 == whole, "without the table");
            file.write_all_at(&right, bytes - at).unwrap();
        }
        for cut in 0..bytes {
            file.set_len(bytes - cut).unwrap();
            let (list, found, damaged) = read(&file);
            assert!(whole.starts_with(&found) && damaged == 0, "{cut}");
            assert!(found == whole || list.lost_bytes() > 0 || cut > 100, "{cut}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        /// Any content comes back.
        #[test]
        fn any_content(seed: u64, bytes in 0usize..CONTENT_BYTES) {
            let content = content(seed, bytes);
            let (mut out, mut found) = (Vec::new(), vec![0; bytes]);
            Encoder::default().frame(&content, &mut out);
            prop_assert_eq!(Decoder::default().frame(&out, &mut found), Ok(()));
            prop_assert!(found == content);
        }
    }
}
