//! A trace's bytes: decompressed, a window at a time, cut into lines.
//!
//! ```text
//! file, pipe -> decoder -> window .............................. -> lines, records, packets
//!                          | start: not yet taken | end: room |
//! ```
//!
//! Invariants
//! 1. `start <= end <= window.len()`; what lies between was read and not taken.
//! 2. Once `ended`, nothing more is read; if the stream failed there, `failure` states how, once.
//!
//! Bounds: the window has [`WINDOW_BYTES`] and grows only if the caller asks for more and takes nothing (a capture
//! whose next record is longer). A line longer than [`LINE_BYTES_MAX`] is skipped, whatever its length.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use larder_io::decode;

use super::{Damage, Error};

/// Most bytes of a line that is looked into: a DNS answer of 64 KiB with every byte escaped.
pub const LINE_BYTES_MAX: usize = 256 << 10;

/// The byte order mark, which spreadsheets and others put before UTF-8. No text begins with it by itself.
pub const MARK: &[u8] = b"\xef\xbb\xbf";

/// Bytes of the window.
const WINDOW_BYTES: usize = 512 << 10;

const _: () = assert!(LINE_BYTES_MAX < WINDOW_BYTES, "a line that is looked into fits");

/// See the module.
pub struct TraceReader {
    reader: Box<dyn Read + Send>,
    window: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of `window[0]` in the decompressed trace.
    base: u64,
    ended: bool,
    failure: Option<String>,
}

/// What [`TraceReader::line`] found.
pub enum Line<'a> {
    /// A line without its terminator.
    Whole(&'a [u8]),
    /// A line of more than [`LINE_BYTES_MAX`] bytes, which was skipped.
    TooLong,
}

impl TraceReader {
    /// Opens a file, or standard input for `-`.
    pub fn open(path: &Path) -> Result<TraceReader, Error> {
        let name = display_name(path);
        let file = match path.as_os_str() == "-" {
            true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
            false => File::open(path),
        };
        let refused = |source| Error::Open { name: name.clone(), source };
        let file = file.map_err(refused)?;
        if file.metadata().map_err(refused)?.is_dir() {
            return Err(refused(io::ErrorKind::IsADirectory.into()));
        }
        TraceReader::decoded(file, &name)
    }

    /// What `reader` gives, decompressed if its first bytes say so; fills the window.
    pub fn decoded(reader: impl Read + Send + 'static, name: &str) -> Result<TraceReader, Error> {
        let unreadable =
            |error: io::Error| Error::Unreadable { name: name.to_owned(), why: error.to_string() };
        let (reader, _) = decode::decoder(reader).map_err(unreadable)?;
        Ok(TraceReader::of(reader))
    }

    fn of(reader: Box<dyn Read + Send>) -> TraceReader {
        let window = vec![0; WINDOW_BYTES];
        let mut trace =
            TraceReader { reader, window, start: 0, end: 0, base: 0, ended: false, failure: None };
        trace.fill();
        trace
    }

    /// What was read and not taken.
    #[inline]
    pub fn peek(&self) -> &[u8] {
        &self.window[self.start..self.end]
    }

    /// Where that begins in the decompressed trace.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Nothing more will be read.
    #[inline]
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Takes bytes from the front, as many as there are at most.
    #[inline]
    pub fn take(&mut self, count: usize) {
        self.start = self.end.min(self.start + count);
        debug_assert!(self.start <= self.end && self.end <= self.window.len(), "invariant 1");
    }

    /// Takes the [`MARK`] that a text may begin with.
    pub fn take_mark(&mut self) {
        if self.peek().starts_with(MARK) {
            self.take(MARK.len());
        }
    }

    /// Reads until the window is full or the input ends. A window full of bytes that are not taken doubles.
    pub fn fill(&mut self) {
        if self.ended {
            return;
        }
        self.window.copy_within(self.start..self.end, 0);
        self.base += self.start as u64;
        self.end -= self.start;
        self.start = 0;
        if self.end == self.window.len() {
            self.window.resize(self.end * 2, 0);
        }
        while !self.ended && self.end < self.window.len() {
            let (reader, room) = (&mut self.reader, &mut self.window[self.end..]);
            // The decoders are other people's code on hostile bytes: if one panics, its input is damaged.
            // What it left behind is not looked at again.
            let result = catch_unwind(AssertUnwindSafe(|| reader.read(room)))
                .unwrap_or_else(|_| Err(io::Error::other("the decoder failed on this input")));
            match result {
                Ok(0) => self.ended = true,
                Ok(count) => self.end += count.min(room.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    self.failure = Some(error.to_string());
                }
            }
        }
    }

    /// Reads until there are at least `count` bytes. False if the input has fewer.
    #[inline]
    pub fn want(&mut self, count: usize) -> bool {
        while self.end - self.start < count && !self.ended {
            self.fill();
        }
        self.end - self.start >= count
    }

    /// The error at the end of the input, if there was one; once.
    pub fn failure(&mut self) -> Option<String> {
        if self.ended && self.start == self.end { self.failure.take() } else { None }
    }

    /// The same, before anything was taken.
    pub fn failed_at_once(&self) -> Option<&str> {
        self.failure.as_deref().filter(|_| self.end == 0)
    }

    /// Counts a failure at the end of the input as damage.
    pub fn count_failure(&mut self, damage: &mut Damage) {
        if let Some(why) = self.failure() {
            let offset = self.offset();
            damage.add(|| format!("byte {offset}: {why}"));
        }
    }

    /// The next line without its terminator (`\n`, `\r\n`, or the end of the input); `None` at the end.
    #[inline]
    pub fn line(&mut self) -> Option<Line<'_>> {
        let found = match memchr::memchr(b'\n', self.peek()) {
            Some(at) => Some(at),
            None if self.peek().len() <= LINE_BYTES_MAX => {
                self.fill();
                memchr::memchr(b'\n', self.peek())
            }
            None => None,
        };
        let (length, taken) = match found {
            Some(at) => (at, at + 1),
            None if self.ended => (self.peek().len(), self.peek().len()),
            None => return Some(self.skip_line()),
        };
        if taken == 0 {
            return None;
        }
        let line = self.start..self.start + length;
        self.start += taken;
        if length > LINE_BYTES_MAX {
            return Some(Line::TooLong);
        }
        let line = &self.window[line];
        Some(Line::Whole(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// Takes all up to the next line's first byte.
    #[cold]
    fn skip_line(&mut self) -> Line<'static> {
        loop {
            match memchr::memchr(b'\n', self.peek()) {
                Some(at) => {
                    self.take(at + 1);
                    return Line::TooLong;
                }
                None if self.ended => {
                    self.start = self.end;
                    return Line::TooLong;
                }
                None => {
                    self.start = self.end;
                    self.fill();
                }
            }
        }
    }
}

/// A path for messages: control bytes, which a terminal would obey, are escaped.
pub fn display_name(path: &Path) -> String {
    let mut name = String::new();
    for character in path.to_string_lossy().chars() {
        match character.is_control() {
            true => name.extend(character.escape_default()),
            false => name.push(character),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes a few at a time, and an error at their end.
    struct Trickle(Vec<u8>, usize);

    impl Read for Trickle {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = (self.0.len() - self.1).min(7).min(out.len());
            if count == 0 {
                return Err(io::Error::other("cut"));
            }
            out[..count].copy_from_slice(&self.0[self.1..self.1 + count]);
            self.1 += count;
            Ok(count)
        }
    }

    fn lines(trace: &mut TraceReader) -> Vec<Option<Vec<u8>>> {
        let mut lines = Vec::new();
        while let Some(line) = trace.line() {
            lines.push(match line {
                Line::Whole(line) => Some(line.to_vec()),
                Line::TooLong => None,
            });
        }
        lines
    }

    /// Lines come out whole and in order however they arrive, an overlong one is skipped as one, also where
    /// it is many windows long, and the end states why it is one.
    #[test]
    fn lines_of_all_lengths() {
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        let longest = vec![b'y'; WINDOW_BYTES * 3 + 5];
        let just = vec![b'z'; LINE_BYTES_MAX];
        let parts: [&[u8]; 9] =
            [b"one\n\ntwo\r\n", &long, b"\n", &just, b"\n", &longest, b"\nfour\n", &longest, b""];
        let mut trace = TraceReader::of(Box::new(Trickle(parts.concat(), 0)));
        let some = |text: &[u8]| Some(text.to_vec());
        let expected =
            [some(b"one"), some(b""), some(b"two"), None, some(&just), None, some(b"four"), None];
        assert_eq!(lines(&mut trace), expected);
        let mut damage = Damage::default();
        trace.count_failure(&mut damage);
        trace.count_failure(&mut damage);
        assert_eq!(damage.first, Some(format!("byte {}: cut", parts.concat().len())));
        assert_eq!(damage.records, 1);
        assert_eq!(trace.window.len(), WINDOW_BYTES);
    }

    /// A decoder that panics is an input that is damaged.
    #[test]
    fn a_panic_is_damage() {
        struct Panics;
        impl Read for Panics {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                std::panic::resume_unwind(Box::new("without a message"))
            }
        }
        let mut trace = TraceReader::of(Box::new(Panics));
        assert!(trace.line().is_none());
        assert!(trace.failure().is_some_and(|why| why.contains("decoder")));
        trace.fill();
        assert!(trace.failure().is_none() && trace.peek().is_empty(), "invariant 2");
    }
}
