//! Decodes bodies in chunks (RFC 9112, section 7.1), in whatever pieces they come and without a
//! copy.
//!
//! ```text
//! Size -> Padding? -> Extension? -> SizeFeed -> Data -> DataReturn -> DataFeed -> Size ...
//!                                     |  (size 0)
//!                                     TrailerBegin -> TrailerName -> TrailerValue -> TrailerFeed
//!                                     TrailerFeed  -> TrailerBegin ... -> LastFeed -> End
//! ```
//!
//! Extensions are read and dropped; trailers are collected ([`Chunked::trailers`]). Only CRLF ends
//! a line: a line feed alone in an extension is a known way to smuggle requests. The decoder reads
//! nothing after an error.
//!
//! Bounds: 16 digits a size, [`EXTENSION_BYTES_MAX`] and [`TRAILER_BYTES_MAX`] a message. Cost:
//! data is borrowed; all other bytes are read one at a time, and trailers are copied.

use super::{is_token_byte, is_value_byte};

/// Most bytes of all extensions of a message: a body must not consist of them.
pub const EXTENSION_BYTES_MAX: u32 = 4 << 10;

/// Most bytes of the trailers of a message.
pub const TRAILER_BYTES_MAX: u32 = 8 << 10;

/// Most digits of a size, with leading zeros.
const SIZE_DIGITS_MAX: u8 = 16;

/// The next input that the decoder expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    /// White space before an extension, which is invalid and accepted.
    Padding,
    Extension,
    SizeFeed,
    Data,
    DataReturn,
    DataFeed,
    TrailerBegin,
    TrailerName,
    TrailerValue,
    TrailerFeed,
    LastFeed,
    End,
    Broken(BadChunk),
}

/// The decoder of one body.
#[derive(Debug, Clone)]
pub struct Chunked {
    state: State,
    /// Digits of the size so far.
    digits: u8,
    /// The size so far, then what is left of the chunk.
    left_bytes: u64,
    extension_bytes: u32,
    trailer_bytes: u32,
    trailers: Vec<u8>,
}

/// The first thing in the given bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Data, at the end of the consumed bytes.
    Data {
        /// The data; not empty.
        bytes: &'a [u8],
        /// How many bytes were read, including those before the data.
        consumed: usize,
    },
    /// No data: all bytes were read, and the decoder needs more.
    More {
        /// All of them.
        consumed: usize,
    },
    /// The body has ended; the bytes after it belong to the next message.
    End {
        /// How many bytes were read.
        consumed: usize,
    },
}

/// Why a body is invalid. Its connection cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BadChunk {
    /// An invalid size, or one that is too large.
    Size,
    /// A line that does not end in CRLF, or data that is not followed by one.
    LineEnd,
    /// Control bytes in an extension.
    Extension,
    /// More than [`EXTENSION_BYTES_MAX`].
    ExtensionsTooLong,
    /// An invalid trailer.
    Trailer,
    /// More than [`TRAILER_BYTES_MAX`].
    TrailersTooLong,
}

impl BadChunk {
    /// A word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            BadChunk::Size => "chunk-size",
            BadChunk::LineEnd => "chunk-line-end",
            BadChunk::Extension => "chunk-extension",
            BadChunk::ExtensionsTooLong => "chunk-extensions-too-long",
            BadChunk::Trailer => "trailer",
            BadChunk::TrailersTooLong => "trailers-too-long",
        }
    }
}

impl Default for Chunked {
    fn default() -> Chunked {
        Chunked::new()
    }
}

impl Chunked {
    /// Before the first chunk.
    pub const fn new() -> Chunked {
        Chunked {
            state: State::Size,
            digits: 0,
            left_bytes: 0,
            extension_bytes: 0,
            trailer_bytes: 0,
            trailers: Vec::new(),
        }
    }

    /// True once the decoder has read the end.
    pub fn has_ended(&self) -> bool {
        self.state == State::End
    }

    /// The lines of the trailer section as received, once the decoder has read the end. Each is a
    /// name, a colon, a value and CRLF.
    pub fn trailers(&self) -> &[u8] {
        if self.has_ended() { &self.trailers } else { &[] }
    }

    /// Reads the bytes that follow those consumed before, up to the end of the next data.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Piece<'a>, BadChunk> {
        let mut consumed = 0;
        loop {
            match self.state {
                State::Broken(error) => return Err(error),
                State::End => return Ok(Piece::End { consumed }),
                State::Data if consumed < bytes.len() => {
                    return Ok(self.data(&bytes[consumed..], consumed));
                }
                _ => {}
            }
            let Some(&byte) = bytes.get(consumed) else { return Ok(Piece::More { consumed }) };
            consumed += 1;
            self.state = self.after(byte).unwrap_or_else(State::Broken);
        }
    }

    /// Takes back the last `bytes` bytes of the data that was returned last. The caller passes them
    /// again with the next bytes.
    pub fn put_back(&mut self, bytes: usize) {
        if bytes > 0 {
            self.left_bytes += bytes as u64;
            self.state = State::Data;
        }
    }

    fn data<'a>(&mut self, bytes: &'a [u8], before: usize) -> Piece<'a> {
        // A count that does not fit in a usize is larger than the number of bytes.
        let count = usize::try_from(self.left_bytes).unwrap_or(usize::MAX).min(bytes.len());
        self.left_bytes -= count as u64;
        if self.left_bytes == 0 {
            self.state = State::DataReturn;
        }
        Piece::Data { bytes: &bytes[..count], consumed: before + count }
    }

    /// The state after a byte that is not data.
    fn after(&mut self, byte: u8) -> Result<State, BadChunk> {
        match self.state {
            State::Size => self.size(byte),
            State::Padding | State::Extension => self.extension(byte),
            State::SizeFeed if byte == b'\n' => {
                self.digits = 0;
                Ok(if self.left_bytes > 0 { State::Data } else { State::TrailerBegin })
            }
            State::DataReturn if byte == b'\r' => Ok(State::DataFeed),
            State::DataFeed if byte == b'\n' => Ok(State::Size),
            State::TrailerBegin | State::TrailerName | State::TrailerValue => self.trailer(byte),
            State::TrailerFeed if byte == b'\n' => {
                self.trailers.push(byte);
                Ok(State::TrailerBegin)
            }
            State::LastFeed if byte == b'\n' => Ok(State::End),
            _ => Err(BadChunk::LineEnd),
        }
    }

    fn size(&mut self, byte: u8) -> Result<State, BadChunk> {
        if let Some(digit) = char::from(byte).to_digit(16) {
            self.digits += 1;
            // The shift loses no digit: the size fits 63 bits before each shift, or it is refused.
            self.left_bytes = self.left_bytes << 4 | u64::from(digit);
            let is_fine = self.digits <= SIZE_DIGITS_MAX && self.left_bytes <= i64::MAX as u64;
            return if is_fine { Ok(State::Size) } else { Err(BadChunk::Size) };
        }
        match byte {
            _ if self.digits == 0 => Err(BadChunk::Size),
            b'\r' => Ok(State::SizeFeed),
            b';' | b' ' | b'\t' => {
                self.state = State::Padding;
                self.extension(byte)
            }
            b'\n' => Err(BadChunk::LineEnd),
            _ => Err(BadChunk::Size),
        }
    }

    fn extension(&mut self, byte: u8) -> Result<State, BadChunk> {
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSION_BYTES_MAX {
            return Err(BadChunk::ExtensionsTooLong);
        }
        match (self.state, byte) {
            (State::Padding, b' ' | b'\t') => Ok(State::Padding),
            (State::Padding, b';') => Ok(State::Extension),
            // White space after a size and no extension: some parsers end the size there.
            (State::Padding, _) => Err(BadChunk::Size),
            (_, b'\r') => Ok(State::SizeFeed),
            (_, b'\n') => Err(BadChunk::LineEnd),
            _ if is_value_byte(byte) => Ok(State::Extension),
            _ => Err(BadChunk::Extension),
        }
    }

    fn trailer(&mut self, byte: u8) -> Result<State, BadChunk> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(BadChunk::TrailersTooLong);
        }
        if (self.state, byte) != (State::TrailerBegin, b'\r') {
            self.trailers.push(byte);
        }
        match (self.state, byte) {
            (State::TrailerBegin, b'\r') => Ok(State::LastFeed),
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerValue, b'\r') => Ok(State::TrailerFeed),
            (State::TrailerBegin | State::TrailerName, _) if is_token_byte(byte) => {
                Ok(State::TrailerName)
            }
            (State::TrailerValue, _) if is_value_byte(byte) => Ok(State::TrailerValue),
            (_, b'\n') => Err(BadChunk::LineEnd),
            _ => Err(BadChunk::Trailer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All data of a body, how many bytes it took, and whether it ended. The decoder gets pieces of
    /// one size.
    fn decode(bytes: &[u8], piece_bytes: usize) -> Result<(Vec<u8>, usize, bool), BadChunk> {
        decode_with(&mut Chunked::new(), bytes, piece_bytes)
    }

    fn decode_with(
        chunked: &mut Chunked,
        bytes: &[u8],
        piece_bytes: usize,
    ) -> Result<(Vec<u8>, usize, bool), BadChunk> {
        let (mut data, mut total) = (Vec::new(), 0);
        for mut piece in bytes.chunks(piece_bytes) {
            loop {
                match chunked.next(piece)? {
                    Piece::Data { bytes, consumed } => {
                        assert!(!bytes.is_empty());
                        data.extend_from_slice(bytes);
                        (piece, total) = (&piece[consumed..], total + consumed);
                    }
                    Piece::More { consumed } => {
                        assert_eq!(consumed, piece.len());
                        total += consumed;
                        break;
                    }
                    Piece::End { consumed } => return Ok((data, total + consumed, true)),
                }
            }
        }
        Ok((data, total, false))
    }

    /// Data, extensions, padding and trailers, in pieces of every size; the bytes after the body
    /// are not consumed.
    #[test]
    fn bodies() {
        let body = b"4;a=\"b;\t\"\r\nRust\r\n00A \t;x\r\n0123456789\r\n0\r\nA: b\r\nC:\r\n\r\n";
        let all = [&body[..], b"GET /"].concat();
        for piece_bytes in 1..all.len() {
            let mut chunked = Chunked::new();
            let whole = decode_with(&mut chunked, &all, piece_bytes);
            assert_eq!(whole, Ok((b"Rust0123456789".to_vec(), body.len(), true)), "{piece_bytes}");
            assert_eq!(chunked.trailers(), b"A: b\r\nC:\r\n", "{piece_bytes}");
        }
        let mut chunked = Chunked::new();
        let unfinished = decode_with(&mut chunked, &body[..body.len() - 1], 7);
        assert_eq!(chunked.trailers(), b"", "they may go on");
        assert_eq!(unfinished, Ok((b"Rust0123456789".to_vec(), body.len() - 1, false)));
        assert_eq!(decode(b"0\r\n\r\n", 1), Ok((Vec::new(), 5, true)));
    }

    /// A size is at most that of a file, and has few digits.
    #[test]
    fn sizes() {
        let size = |text: &str| {
            let mut chunked = Chunked::new();
            chunked.next(format!("{text}\r\n").as_bytes()).map(|_| chunked.left_bytes)
        };
        assert_eq!(size("7fffffffffffffff"), Ok(i64::MAX as u64));
        assert_eq!(size("000000000000000F"), Ok(15));
        let bad = ["8000000000000000", "00000000000000001", "", "-1", "+1", "0x1", " 1", "g", ";a"];
        for bad in bad.into_iter().chain(["1g", "1 ", "1 1", "1\t", "1_0", "\r\n1"]) {
            assert_eq!(size(bad), Err(BadChunk::Size), "{bad:?}");
        }
    }

    /// Bytes other than CRLF or a field in their places, and control bytes, are refused. Nothing
    /// after them is read.
    #[test]
    fn refusals() {
        use BadChunk::{Extension, LineEnd, Trailer};
        let table: [(&[u8], BadChunk); 19] = [
            (b"1\n", LineEnd),
            (b"1\r\r", LineEnd),
            (b"1\ra", LineEnd),
            (b"1;a\n", LineEnd),
            (b"1;a\r0", LineEnd),
            (b"1;\0\r\n", Extension),
            (b"1;\x7f\r\n", Extension),
            (b"1;\x0b\r\n", Extension),
            (b"1\r\nab", LineEnd),
            (b"1\r\na\n", LineEnd),
            (b"1\r\na\rb", LineEnd),
            (b"0\r\n\n", LineEnd),
            (b"0\r\n\r\r", LineEnd),
            (b"0\r\na\r\n", Trailer),
            (b"0\r\n a: b\r\n", Trailer),
            (b"0\r\na : b\r\n", Trailer),
            (b"0\r\n: b\r\n", Trailer),
            (b"0\r\na: \0\r\n", Trailer),
            (b"0\r\na: b\nc: d\r\n", LineEnd),
        ];
        for (bytes, error) in table {
            let mut chunked = Chunked::new();
            let mut result = chunked.next(bytes);
            if let Ok(Piece::Data { bytes: data, consumed }) = result {
                assert_eq!(data, b"a");
                result = chunked.next(&bytes[consumed..]);
            }
            assert_eq!(result, Err(error), "{bytes:?}");
            assert_eq!(chunked.next(b"0\r\n\r\n"), Err(error));
        }
    }

    /// All extensions together have a limit, and so have all trailers.
    #[test]
    fn bounds() {
        let room = EXTENSION_BYTES_MAX as usize;
        let extended = |bytes: usize| {
            let chunk = "1;a\r\nx\r\n".repeat(bytes / 3);
            let last = format!("0;{}\r\n\r\n", "a".repeat(bytes % 3));
            decode((chunk + &last).as_bytes(), 1000).map(|(data, ..)| data.len())
        };
        // In "1;a\r" the three bytes after the size count, in the last chunk ";" and "\r" too.
        assert_eq!(extended(room - 2), Ok((room - 2) / 3));
        assert_eq!(extended(room - 1), Err(BadChunk::ExtensionsTooLong));
        let room = TRAILER_BYTES_MAX as usize;
        let trailed = |bytes: usize| {
            let body = format!("0\r\na:{}\r\n\r\n", "b".repeat(bytes - 4));
            decode(body.as_bytes(), 1000).map(|(.., has_ended)| has_ended)
        };
        assert_eq!(trailed(room), Ok(true));
        assert_eq!(trailed(room + 1), Err(BadChunk::TrailersTooLong));
    }
}
