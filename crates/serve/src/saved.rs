//! A file of numbers and texts that outlives a restart, such as the history of a page.
//!
//! ```text
//! file     magic, 8 bytes | body | CRC-32 of the body, 4 bytes, little-endian
//! body     numbers (LEB128), and texts with their length before them
//! ```
//!
//! The file is written next to its place and renamed, so that a reader never sees half of it. A file that is
//! damaged, or is another program's, is not used: [`load`] says why, and the next save replaces it.
//!
//! Invariants
//! 1. No bytes of a file make this module panic, or take more memory than the bounds that a reader states (test
//!    `lengths_are_not_believed`).

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use larder_io::access::Access;

/// Bytes of a file, at most; a full history of a page has about a third.
const BYTES_MAX: u64 = 32 << 20;

/// Bytes of a text: a name in the spelling of logs has up to four for each of its own.
const TEXT_BYTES_MAX: u64 = 4 << 10;

/// Reads a file, and its body by `read`. `Ok(None)`: there is none. The error says what is wrong with it.
pub fn load<T>(
    path: &Path,
    magic: &[u8; 8],
    read: impl FnOnce(&mut Input<'_>) -> Option<T>,
) -> Result<Option<T>, String> {
    // A pipe would keep the program waiting.
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(about) if !about.is_file() => return Err("it is no regular file".to_owned()),
        _ => {}
    }
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let taken = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    taken.map_err(|error| error.to_string())?;
    parse(&bytes, magic, read).map(Some)
}

/// Reads the bytes of a file; all of its body must be read.
pub fn parse<T>(
    bytes: &[u8],
    magic: &[u8; 8],
    read: impl FnOnce(&mut Input<'_>) -> Option<T>,
) -> Result<T, String> {
    let rest = bytes.strip_prefix(magic).ok_or("it is not a history of this program")?;
    let (body, sum) = rest.split_last_chunk::<4>().ok_or("it is cut short")?;
    if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
        return Err("its checksum is wrong".to_owned());
    }
    let mut input = Input(body);
    // The checksum is right, so this is another version, or a forgery.
    let value = read(&mut input).filter(|_| input.0.is_empty());
    value.ok_or_else(|| "its content is not valid".to_owned())
}

/// Writes bytes next to `path`, and renames the file. A link is followed first.
///
/// # Errors
/// Also for what is no such file: devices, directories, and files with other content stay as they are.
pub fn write(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    may_replace(&path, bytes)?;
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    // What an earlier run left, or a link that another user made.
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let new = &mut fs::OpenOptions::new();
    access.open(new.write(true).create_new(true), &part)?.write_all(bytes)?;
    fs::rename(&part, &path)
}

/// An error for what should not be replaced by these bytes.
fn may_replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let Ok(about) = fs::metadata(path) else { return Ok(()) };
    let refused = |what: &str| {
        let text = format!("{what}, which is not replaced; name another file");
        Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
    };
    if !about.is_file() {
        return refused("it is no regular file");
    }
    let (mut head, ours) = (Vec::new(), bytes.get(..NAME_BYTES).unwrap_or(bytes));
    fs::File::open(path)?.take(NAME_BYTES as u64).read_to_end(&mut head)?;
    match head.is_empty() || head == ours {
        true => Ok(()),
        false => refused("it has other content"),
    }
}

/// Bytes of a file's beginning that all versions of a program share.
const NAME_BYTES: usize = 7;

/// The bytes of a file that is written.
#[derive(Debug)]
pub struct Output(Vec<u8>);

impl Output {
    /// Begins a file.
    pub fn new(magic: &[u8; 8]) -> Output {
        Output(magic.to_vec())
    }

    /// Adds a number.
    pub fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Adds a text.
    pub fn text(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes(bytes);
    }

    /// Adds bytes whose number the reader knows.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Adds values with their times, as the distance to the time before.
    pub fn timed<T>(&mut self, timed: &VecDeque<(u64, T)>, write: impl Fn(&T, &mut Output)) {
        self.number(timed.len() as u64);
        let mut before = 0;
        for (time, value) in timed {
            self.number(time - before);
            before = *time;
            write(value, self);
        }
    }

    /// The bytes of the whole file.
    pub fn end(mut self) -> Vec<u8> {
        let sum = crc32fast::hash(self.0.get(8..).unwrap_or_default());
        self.0.extend_from_slice(&sum.to_le_bytes());
        self.0
    }
}

/// The body of a file that is read. `None`: it is damaged.
#[derive(Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// A number.
    pub fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.bytes()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// A number of values that follow, at most `max`.
    pub fn count(&mut self, max: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= max).then_some(count)
    }

    /// A text.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let length = Some(self.number()?).filter(|length| *length <= TEXT_BYTES_MAX)?;
        let (text, rest) = self.0.split_at_checked(length as usize)?;
        self.0 = rest;
        Some(text)
    }

    /// Bytes.
    pub fn bytes<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(bytes)
    }

    /// Values with their times.
    pub fn timed<T>(
        &mut self,
        length_max: usize,
        read: impl Fn(&mut Input<'a>) -> Option<T>,
    ) -> Option<VecDeque<(u64, T)>> {
        let mut timed = VecDeque::new();
        let mut before: u64 = 0;
        for _ in 0..self.count(length_max)? {
            let time = before.checked_add(self.number()?)?;
            // Times grow; far times would overflow elsewhere.
            if (time <= before && !timed.is_empty()) || time > u64::from(u32::MAX) * 4 {
                return None;
            }
            before = time;
            timed.push_back((time, read(self)?));
        }
        Some(timed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: &[u8; 8] = b"larder00";

    type Content = (u64, Vec<u8>, VecDeque<(u64, u64)>);

    fn bytes_of((number, text, timed): &Content) -> Vec<u8> {
        let mut out = Output::new(MAGIC);
        out.number(*number);
        out.text(text);
        out.timed(timed, |value, out| out.number(*value));
        out.end()
    }

    fn read(input: &mut Input<'_>) -> Option<Content> {
        Some((input.number()?, input.text()?.to_vec(), input.timed(9, Input::number)?))
    }

    fn content() -> Content {
        (u64::MAX, b"\xff<script>".to_vec(), (1..9).map(|at| (at * 1_000, at << 40)).collect())
    }

    /// What is written is read again, in a new file and over an old one, which only its user may read.
    #[test]
    fn files_are_read_again() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history");
        assert_eq!(load(&path, MAGIC, read), Ok(None));
        for number in [7, u64::MAX] {
            let (_, text, timed) = content();
            let content = (number, text, timed);
            write(&path, &bytes_of(&content), Access::PRIVATE).expect("written");
            assert_eq!(load(&path, MAGIC, read), Ok(Some(content)));
        }
        assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        assert!(load(&path, b"larder01", read).is_err());
        assert!(load(folder.path(), MAGIC, read).is_err());
    }

    /// Files of others stay as they are, and devices; links are followed.
    #[test]
    fn only_such_files_are_replaced() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let bytes = bytes_of(&content());
        fs::write(path("notes"), "my notes").expect("written");
        fs::create_dir(path("folder")).expect("made");
        fs::write(path("other"), "larder91 of another program").expect("written");
        drop(std::os::unix::net::UnixListener::bind(path("socket")).expect("a socket"));
        for name in ["notes", "folder", "socket", "other"] {
            let error = write(&path(name), &bytes, Access::PRIVATE).expect_err(name);
            assert!(error.to_string().contains("not replaced; name another file"), "{error}");
        }
        assert_eq!(fs::read(path("notes")).expect("read"), b"my notes");
        fs::write(path("empty"), "").expect("written");
        fs::write(path("older"), "larder09 of another version").expect("written");
        symlink(path("older"), path("link")).expect("made");
        for name in ["empty", "older", "link"] {
            write(&path(name), &bytes, Access::PRIVATE).expect(name);
        }
        assert!(fs::symlink_metadata(path("link")).expect("a link").is_symlink());
        assert!(load(&path("socket"), MAGIC, read).is_err());
        symlink(path("notes"), path("empty.part")).expect("made");
        write(&path("empty"), &bytes, Access::PRIVATE).expect("over a link");
        assert_eq!(fs::read(path("notes")).expect("read"), b"my notes");
        assert_eq!(load(&path("older"), MAGIC, read), Ok(Some(content())));
    }

    /// Invariant 1: each byte that is changed or missing is noticed; with a right checksum too, no length is believed.
    #[test]
    fn lengths_are_not_believed() {
        let bytes = bytes_of(&content());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(parse(&damaged, MAGIC, read).is_err(), "byte {at}");
            assert!(parse(&bytes[..at], MAGIC, read).is_err(), "cut at {at}");
        }
        let sealed = |body: &[u8]| {
            let sum = crc32fast::hash(body).to_le_bytes();
            parse(&[MAGIC, body, &sum].concat(), MAGIC, read).map(drop)
        };
        let wrong = Err("its content is not valid".to_owned());
        let (long, backwards) = ([0, 0xff, 0xff, 0xff, 3], [0, 0, 2, 5, 0, 0, 0]);
        // Ten values, of which a reader takes nine at most.
        let many = [&[0, 0, 10][..], &[1, 0].repeat(10)].concat();
        for body in [&[][..], &[0xff; 30], &many, &long, &backwards, &[0, 0, 10], &[0, 0, 0, 0]] {
            assert_eq!(sealed(body), wrong, "{body:?}");
        }
        assert_eq!(sealed(&[0, 0, 0]), Ok(()));
    }
}
