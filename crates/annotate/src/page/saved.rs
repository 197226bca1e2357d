//! The file that keeps the history, and what was ever seen, over restarts.
//!
//! ```text
//! file     magic, 8 bytes | body | CRC-32 of the body, 4 bytes, little-endian
//! body     numbers (LEB128), and texts with their length before them:
//!          begun, seconds, minutes, traffic, secret, known, new names
//! ```
//!
//! The file is written next to its place and renamed, so that a reader never sees half of it. A file
//! that is damaged, or is none of larder, is not used: [`load`] says why, and the next save replaces it.
//!
//! Invariants
//! 1. No bytes of a file make this module panic, or take more memory than the tables have (tests
//!    `damage_is_reported`, `lengths_are_not_believed`).

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_io::access::Access;
use larder_wire::{Addr, Name};

use super::history::{
    History, MINUTES_MAX, NAMES_MAX, SECONDS_MAX, Sample, TRAFFIC_MAX, Timed, Traffic,
};
use crate::seen::{Known, NEW_MAX, NewName, Seen};

const MAGIC: &[u8; 8] = b"larderh1";

/// Bytes of a file, at most; a full one has about a third.
const BYTES_MAX: u64 = 32 << 20;

/// Bytes of a text: a name in the spelling of logs has up to four for each of its own.
const TEXT_BYTES_MAX: u64 = 4 << 10;

/// The content of a file.
#[derive(Debug, Default)]
pub struct Saved {
    /// When the first run began, seconds since 1970; 0: unknown.
    pub begun_s: u64,
    /// The history.
    pub history: History,
    /// Names and clients of earlier days.
    pub known: Known,
    /// Names that were new on the last day.
    pub new_names: Vec<NewName>,
}

/// Reads a file. `Ok(None)`: there is none. The error says what is wrong with it.
pub fn load(path: &Path) -> Result<Option<Saved>, String> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|error| error.to_string())?,
    };
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    parse(&bytes).map(Some)
}

/// Reads the bytes of a file.
fn parse(bytes: &[u8]) -> Result<Saved, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it is not a history of larder")?;
    let (body, sum) = rest.split_last_chunk::<4>().ok_or("it is cut short")?;
    if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
        return Err("its checksum is wrong".to_owned());
    }
    let mut input = Input(body);
    // The checksum is right, so this is another version, or a forgery.
    input.saved().ok_or_else(|| "its content is not valid".to_owned())
}

/// The bytes of a file.
pub fn bytes_of(begun_s: u64, history: &History, seen: &Seen) -> Vec<u8> {
    let mut out = Output(MAGIC.to_vec());
    out.number(begun_s);
    for samples in [&history.seconds, &history.minutes] {
        out.timed(samples, |sample, out| {
            sample.values().into_iter().for_each(|value| out.number(value));
        });
    }
    out.timed(&history.traffic, |Traffic { names, other, unnamed }, out| {
        out.number(*other);
        out.number(*unnamed);
        out.number(names.len() as u64);
        for (name, bytes) in names {
            out.text(name.as_bytes());
            out.number(*bytes);
        }
    });
    out.number(seen.known.secret());
    out.number(seen.known.iter().len() as u64);
    for (hash, (first, last)) in seen.known.iter() {
        out.0.extend_from_slice(&hash.to_le_bytes());
        out.number(first.into());
        out.number(last.into());
    }
    out.number(seen.new_names.len() as u64);
    for NewName { name, first_ns, client } in &seen.new_names {
        out.text(name.as_bytes());
        out.number(*first_ns as u64);
        out.0.extend_from_slice(&client.0);
    }
    let sum = crc32fast::hash(&out.0[MAGIC.len()..]);
    out.0.extend_from_slice(&sum.to_le_bytes());
    out.0
}

/// Writes bytes next to `path`, and renames the file.
pub fn write(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    access.create(&beside)?.write_all(bytes)?;
    fs::rename(&beside, path)
}

struct Output(Vec<u8>);

impl Output {
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn text(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Times as the distance to the time before.
    fn timed<T>(&mut self, timed: &Timed<T>, write: impl Fn(&T, &mut Output)) {
        self.number(timed.len() as u64);
        let mut before = 0;
        for (time, value) in timed {
            self.number(time - before);
            before = *time;
            write(value, self);
        }
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn saved(&mut self) -> Option<Saved> {
        let begun_s = self.number()?;
        let sample = |input: &mut Input<'_>| {
            let mut values = [0; 9];
            for value in &mut values {
                *value = input.number()?;
            }
            Some(Sample::of(values))
        };
        let seconds = self.timed(SECONDS_MAX, sample)?;
        let minutes = self.timed(MINUTES_MAX, sample)?;
        let traffic = self.timed(TRAFFIC_MAX, Input::traffic)?;
        let mut known = Known::with_secret(self.number()?);
        for _ in 0..self.number()? {
            let (hash, rest) = self.0.split_first_chunk::<8>()?;
            self.0 = rest;
            let days = (self.number()?.try_into().ok()?, self.number()?.try_into().ok()?);
            known.put(u64::from_le_bytes(*hash), days);
        }
        let mut new_names = Vec::new();
        for _ in 0..self.count(NEW_MAX)? {
            let name = Name::from_canonical(self.text()?);
            let first_ns = self.number()? as i64;
            let (client, rest) = self.0.split_first_chunk::<16>()?;
            self.0 = rest;
            new_names.push(NewName { name, first_ns, client: Addr(*client) });
        }
        let mut history = History::default();
        (history.seconds, history.minutes, history.traffic) = (seconds, minutes, traffic);
        self.0.is_empty().then_some(Saved { begun_s, history, known, new_names })
    }

    fn traffic(&mut self) -> Option<Traffic> {
        let (other, unnamed) = (self.number()?, self.number()?);
        let mut names = Vec::new();
        for _ in 0..self.count(NAMES_MAX)? {
            let name: Arc<str> = str::from_utf8(self.text()?).ok()?.into();
            names.push((name, self.number()?));
        }
        Some(Traffic { names, other, unnamed })
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn count(&mut self, max: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= max).then_some(count)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = Some(self.number()?).filter(|length| *length <= TEXT_BYTES_MAX)?;
        let (text, rest) = self.0.split_at_checked(length as usize)?;
        self.0 = rest;
        Some(text)
    }

    fn timed<T>(
        &mut self,
        length_max: usize,
        read: impl Fn(&mut Input<'a>) -> Option<T>,
    ) -> Option<Timed<T>> {
        let mut timed = Timed::new();
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
mod tests;
