//! Lines of a file, in bounded memory.
//!
//! Blocklists are fetched from others, so a file and a line may have any size. A line that is too
//! long is skipped and reported. A file that is too large is an error: half a list is worse than
//! the previous list.

use std::io::{BufRead, BufReader, Read};

use super::error::PolicyError;

/// Bytes of a file, at most: some twenty million names.
pub const FILE_BYTES_MAX: u64 = 512 << 20;

/// Bytes of a line, at most: enough for the longest TXT records that people write.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// A file that is read line by line.
pub struct Lines<'a, R> {
    file: &'a str,
    input: BufReader<std::io::Take<R>>,
    bytes_max: u64,
    line: Vec<u8>,
    number: u32,
}

/// One line.
pub struct Line<'a> {
    /// Its number, from 1.
    pub number: u32,
    /// Without its end; `None` if it is longer than [`LINE_BYTES_MAX`].
    pub text: Option<&'a [u8]>,
}

/// The problem of a line without text.
pub const LINE_TOO_LONG: &str = "the line is longer than 16 KiB";

impl<'a, R: Read> Lines<'a, R> {
    /// Reads up to `bytes_max` bytes of `input`, whose name in errors is `file`.
    pub fn new(file: &'a str, input: R, bytes_max: u64) -> Lines<'a, R> {
        let input = BufReader::with_capacity(64 << 10, input.take(bytes_max.saturating_add(1)));
        Lines { file, input, bytes_max, line: Vec::new(), number: 0 }
    }

    /// Its name in errors.
    pub fn file(&self) -> &'a str {
        self.file
    }

    /// The next line; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Line<'_>>, PolicyError> {
        self.line.clear();
        let (mut any, mut fits) = (false, true);
        loop {
            let read = match self.input.fill_buf() {
                Ok(read) => read,
                Err(source) if source.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(PolicyError::Read { file: self.file.into(), source }),
            };
            if read.is_empty() {
                break;
            }
            any = true;
            let end = read.iter().position(|&byte| byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            fits &= self.line.len() + part.len() <= LINE_BYTES_MAX;
            if fits {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                break;
            }
        }
        if self.input.get_ref().limit() == 0 {
            let (file, bytes_max) = (self.file.into(), self.bytes_max);
            return Err(PolicyError::TooLarge { file, bytes_max });
        }
        if !any {
            return Ok(None);
        }
        self.number = self.number.saturating_add(1);
        let text = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        // Some editors begin a file with a byte order mark.
        let mark = if self.number == 1 { "\u{feff}".as_bytes() } else { b"" };
        let text = text.strip_prefix(mark).unwrap_or(text);
        Ok(Some(Line { number: self.number, text: fits.then_some(text) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &[u8], bytes_max: u64) -> Result<Vec<Option<Vec<u8>>>, PolicyError> {
        let mut lines = Lines::new("list", input, bytes_max);
        let mut all = Vec::new();
        while let Some(line) = lines.next()? {
            assert_eq!(line.number as usize, all.len() + 1);
            all.push(line.text.map(<[u8]>::to_vec));
        }
        Ok(all)
    }

    /// Line ends of every system, a byte order mark, and a last line without an end are read as
    /// meant.
    #[test]
    fn ends_of_lines() {
        let lines = all(b"\xef\xbb\xbfa\r\n\nb\nlast", 100).unwrap();
        let texts: Vec<_> = lines.iter().map(|line| line.as_deref().unwrap()).collect();
        assert_eq!(texts, [b"a".as_slice(), b"", b"b", b"last"]);
        assert!(all(b"", 100).unwrap().is_empty());
    }

    /// A line that is too long is skipped, whatever its length, and the next one is read.
    #[test]
    fn long_lines() {
        let mut input = vec![b'x'; 20 * LINE_BYTES_MAX];
        input.extend_from_slice(b"\nnext\n");
        input.extend(vec![b'y'; LINE_BYTES_MAX]);
        let lines = all(&input, FILE_BYTES_MAX).unwrap();
        assert_eq!(lines[0], None);
        assert_eq!(lines[1].as_deref(), Some(b"next".as_slice()));
        assert_eq!(lines[2].as_ref().map(Vec::len), Some(LINE_BYTES_MAX), "just fits");
    }

    /// A file one byte too large is an error that names it; one that just fits is not.
    #[test]
    fn large_files() {
        assert_eq!(all(b"ab\ncd\n", 6).unwrap().len(), 2);
        let error = all(b"ab\ncd\ne", 6).unwrap_err();
        assert_eq!(error.to_string(), "list: larger than 6 bytes; split or shorten it");
    }
}
