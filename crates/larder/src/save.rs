//! A cache as a stream of bytes: its entries, to be loaded after a restart.
//!
//! All numbers are little-endian. A stream is a head, chunks, and an end:
//!
//! ```text
//! head    "larder\r\n" (8)  version u32 = 2  zero u32  written_at u32 (s)  CRC-32 of these 20 bytes
//! chunk   entries u32 >= 1  bytes u32  CRC-32 of number, entries, bytes and payload  payload
//! end     entries u32 = 0   bytes u32 = 8  CRC-32 likewise                            all entries u64
//! entry   key bytes u8  flags u8  value bytes u16  expires u32 (s, 0 for never)  [version u64]  key  value
//!         flag 1: the entry has a version; others are 0
//! ```
//!
//! Version 1 had neither flags nor entry versions; it is still read.
//!
//! The CRC is that of zlib and gzip. It covers the chunk's number (u32, from 0), which is not in
//! the stream, so chunks that were lost, doubled or reordered are detected. The count in the end
//! detects a stream that was cut between chunks.
//!
//! Entries are written shard by shard. Entries to be evicted first come first, so that a smaller
//! cache keeps the others. With `Fifo` that is the order of first insertion. With `Partitioned` it
//! is all of temporary before all of hot, and in each no order. An entry that moved meanwhile may
//! be written twice, which loads as an update. Expiry times are absolute. Seeds, slot numbers and
//! other internals are not written, so any cache can load what any other has saved. Loading uses
//! ordinary inserts, so a cache stays within its budget whatever the stream contains.
//!
//! A chunk is checked as a whole before any of it is inserted. [`Damage`] states the defect;
//! entries loaded before it are valid. Bounds: one chunk in memory, at most [`CHUNK_BYTES_MAX`]
//! bytes and one entry. [`Cache::iter`] walks the cache, in short lock holds. Speed, from memory
//! into a new cache (`benches/map.rs`, two shared vCPUs of an EPYC Milan, medians of three runs):
//! values of 4 KB at 1.0 to 1.9 GB/s; entries of 8 + 32 bytes at 200 to 380 ns each, as an insert.

use std::fmt;
use std::io::{self, Read, Write};

use larder_mem::VERSION_BYTES;

use crate::cache::Cache;
use crate::error::Error;
use crate::expiry::Ends;
use crate::iter::OwnedEntry;
use crate::shared::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::time::{Seconds, Ttl, is_expired};
use crate::writer::Writer;

/// The version of the format that is written. This one and earlier ones are read.
pub const SAVE_VERSION: u32 = 2;

const MAGIC: &[u8; 8] = b"larder\r\n";
const HEAD_BYTES: usize = 24;
const CHUNK_HEAD_BYTES: usize = 12;
/// For an entry without a version.
const ENTRY_HEAD_BYTES: usize = 8;
/// In format version 1.
const ENTRY_HEAD_BYTES_1: usize = 7;

/// The entry has a version.
const FLAG_VERSION: u8 = 1;

/// Size at which a chunk is closed; it is at most one entry larger.
const CHUNK_BYTES: usize = 256 << 10;

/// The largest possible payload of a chunk.
pub const CHUNK_BYTES_MAX: usize =
    CHUNK_BYTES + ENTRY_HEAD_BYTES + VERSION_BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX;

/// Why a cache was not saved, or not fully loaded.
#[derive(Debug)]
#[non_exhaustive]
pub enum SaveError {
    /// The file or stream failed, for the system's reason. An older file is unchanged.
    Io(io::Error),
    /// This is no saved cache, or one of an unknown version. Nothing was loaded.
    Foreign(&'static str),
    /// The stream is damaged from here on. The entries loaded before are valid. Delete the file, or
    /// continue with them and let the next save replace the file.
    Damaged(Damage),
    /// The cache refused an entry; earlier entries are in the cache.
    Cache(Error),
}

/// Where a saved cache is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// The chunk, from 0.
    pub chunk: u32,
    /// Entries loaded from the chunks before it.
    pub loaded: u64,
    /// The defect.
    pub what: &'static str,
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SaveError::Io(error) => write!(f, "a cache could not be saved or loaded: {error}"),
            SaveError::Foreign(what) => {
                write!(f, "{what}; nothing was loaded: start empty, or give the right file")
            }
            SaveError::Damaged(Damage { chunk, loaded, what }) => write!(
                f,
                "the saved cache is damaged in chunk {chunk}: {what}; the {loaded} entries before it \
                 were loaded; delete the file, or let the next save replace it"
            ),
            SaveError::Cache(error) => write!(f, "loading stopped: {error}"),
        }
    }
}

impl std::error::Error for SaveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SaveError::Io(error) => Some(error),
            SaveError::Cache(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for SaveError {
    fn from(error: io::Error) -> Self {
        SaveError::Io(error)
    }
}

impl From<Error> for SaveError {
    fn from(error: Error) -> Self {
        SaveError::Cache(error)
    }
}

/// The result of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Loaded {
    /// Entries inserted; later ones may have evicted some of them.
    pub entries: u64,
    /// Entries skipped because they had expired.
    pub expired: u64,
    /// Entries skipped because their values are too large for this cache.
    pub too_large: u64,
    /// When they were saved.
    pub written_at: Seconds,
}

impl Cache {
    /// Writes all entries that are live at `now` to `out`, first those to be evicted first, and
    /// returns their number. Other threads can read and write meanwhile. Each entry is as it was at
    /// one moment of the save, not all at the same moment. Writes pieces of about 256 KiB. Of a
    /// poisoned cache ([`Error::Poisoned`]) no valid save is written.
    pub fn save_to(&self, out: &mut impl Write, now: Seconds) -> io::Result<u64> {
        out.write_all(&head(now))?;
        let mut chunk = Chunk::new();
        let mut total = 0u64;
        let mut entries = self.iter(now);
        for entry in entries.by_ref() {
            chunk.push(&entry);
            total += 1;
            if chunk.bytes.len() >= CHUNK_HEAD_BYTES + CHUNK_BYTES {
                chunk.write(out)?;
            }
        }
        if chunk.entries > 0 {
            chunk.write(out)?;
        }
        // Without the end, the rest would pass for all.
        entries.was_whole().map_err(io::Error::other)?;
        chunk.bytes.extend_from_slice(&total.to_le_bytes());
        chunk.write(out)?;
        out.flush()?;
        Ok(total)
    }

    /// Inserts the entries that [`Cache::save_to`] wrote, except those that have expired at `now`.
    /// Values, expiry times and versions are as saved. An entry with a version is inserted as by
    /// [`Writer::insert_if_newer`]; other ones replace what is there. Sync or park this cache's readers
    /// before, or create them afterwards: they stall a load as they stall that number of inserts.
    pub fn load_from(&self, input: &mut impl Read, now: Seconds) -> Result<Loaded, SaveError> {
        let mut writer = self.writer();
        let loaded = load(input, now, |entry| entry.insert(&mut writer, now))?;
        writer.flush()?;
        Ok(loaded)
    }
}

/// Reads a saved cache and passes each entry that is live at `now` to `insert`.
pub(crate) fn load(
    input: &mut impl Read,
    now: Seconds,
    mut insert: impl FnMut(&Entry<'_>) -> Result<(), Error>,
) -> Result<Loaded, SaveError> {
    let (format, written_at) = read_head(input)?;
    let mut loaded = Loaded { written_at, ..Loaded::default() };
    let mut payload = Vec::new();
    let mut total = 0u64;
    for chunk in 0..u32::MAX {
        let damaged = |what| SaveError::Damaged(Damage { chunk, loaded: loaded.entries, what });
        let entries = match read_chunk(input, chunk, &mut payload) {
            Ok(entries) => entries,
            Err(Unread::Io(error)) => return Err(SaveError::Io(error)),
            Err(Unread::Damaged(what)) => return Err(damaged(what)),
        };
        if entries == 0 {
            return match <[u8; 8]>::try_from(&*payload).map(u64::from_le_bytes) {
                Ok(count) if count == total => Ok(loaded),
                _ => Err(damaged("it counts other entries than there were")),
            };
        }
        // Checks the whole chunk before any of it is inserted.
        let mut listed = Entries { bytes: &payload, format };
        if listed.by_ref().count() as u64 != u64::from(entries) || !listed.bytes.is_empty() {
            return Err(damaged("its entries do not fill it"));
        }
        total += u64::from(entries);
        for entry in (Entries { bytes: &payload, format }) {
            if is_expired(entry.expires, now) {
                loaded.expired += 1;
                continue;
            }
            match insert(&entry) {
                Ok(()) => loaded.entries += 1,
                Err(Error::ValueTooLarge { .. }) => loaded.too_large += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }
    let end = Damage { chunk: u32::MAX, loaded: loaded.entries, what: "it has no end" };
    Err(SaveError::Damaged(end))
}

fn head(now: Seconds) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&SAVE_VERSION.to_le_bytes());
    head[16..20].copy_from_slice(&now.0.to_le_bytes());
    let crc = crc32fast::hash(&head[..20]);
    head[20..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// The version of the format, and the time of the save.
fn read_head(input: &mut impl Read) -> Result<(u32, Seconds), SaveError> {
    let mut bytes = [0; HEAD_BYTES];
    match input.read_exact(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(SaveError::Foreign("the file is shorter than any saved cache"));
        }
        read => read?,
    }
    let number = |at: usize| u32_at(&bytes, at);
    if bytes[..8] != *MAGIC {
        return Err(SaveError::Foreign("the file is not a saved cache"));
    }
    if crc32fast::hash(&bytes[..20]) != number(20) {
        return Err(SaveError::Foreign("the header of the saved cache is damaged"));
    }
    if !(1..=SAVE_VERSION).contains(&number(8)) {
        return Err(SaveError::Foreign("the file has the format of another version"));
    }
    Ok((number(8), Seconds(number(16))))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

/// A chunk to be written: its head, filled in last, and its payload.
struct Chunk {
    bytes: Vec<u8>,
    entries: u32,
    number: u32,
}

impl Chunk {
    fn new() -> Self {
        let mut bytes = Vec::with_capacity(CHUNK_HEAD_BYTES + CHUNK_BYTES_MAX);
        bytes.resize(CHUNK_HEAD_BYTES, 0);
        Chunk { bytes, entries: 0, number: 0 }
    }

    fn push(&mut self, entry: &OwnedEntry) {
        let (key, value) = (entry.key(), entry.value());
        let expires = entry.expires().map_or(larder_mem::EXPIRES_NEVER, |end| end.0);
        // The limits of the engine are those of the format: 255 and 32768.
        self.bytes.push(key.len() as u8);
        let version = entry.ends().version;
        self.bytes.push(if version.is_some() { FLAG_VERSION } else { 0 });
        self.bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(&expires.to_le_bytes());
        if let Some(version) = version {
            self.bytes.extend_from_slice(&version.to_le_bytes());
        }
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries += 1;
    }

    fn write(&mut self, out: &mut impl Write) -> io::Result<()> {
        let bytes = (self.bytes.len() - CHUNK_HEAD_BYTES) as u32;
        let (head, payload) = self.bytes.split_at_mut(CHUNK_HEAD_BYTES);
        head[..4].copy_from_slice(&self.entries.to_le_bytes());
        head[4..8].copy_from_slice(&bytes.to_le_bytes());
        let crc = chunk_crc(self.number, &head[..8], payload);
        head[8..].copy_from_slice(&crc.to_le_bytes());
        out.write_all(&self.bytes)?;
        self.bytes.truncate(CHUNK_HEAD_BYTES);
        self.entries = 0;
        self.number += 1;
        Ok(())
    }
}

fn chunk_crc(number: u32, head: &[u8], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&number.to_le_bytes());
    crc.update(head);
    crc.update(payload);
    crc.finalize()
}

enum Unread {
    Io(io::Error),
    Damaged(&'static str),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Unread::Damaged("the file ends within it"),
            _ => Unread::Io(error),
        }
    }
}

/// Reads a chunk's payload and checks it; returns the number of entries that it states.
fn read_chunk(input: &mut impl Read, number: u32, payload: &mut Vec<u8>) -> Result<u32, Unread> {
    let mut head = [0; CHUNK_HEAD_BYTES];
    input.read_exact(&mut head)?;
    let bytes = u32_at(&head, 4) as usize;
    // Checked before allocating memory for it.
    if bytes > CHUNK_BYTES_MAX {
        return Err(Unread::Damaged("its stated length is impossible"));
    }
    payload.resize(bytes, 0);
    input.read_exact(payload)?;
    if chunk_crc(number, &head[..8], payload) != u32_at(&head, 8) {
        return Err(Unread::Damaged("its checksum does not match"));
    }
    Ok(u32_at(&head, 0))
}

/// An entry of a stream.
pub(crate) struct Entry<'a> {
    key: &'a [u8],
    value: &'a [u8],
    expires: u32,
    version: Option<u64>,
}

impl Entry<'_> {
    /// Stores it, with its remaining lifetime.
    pub fn insert(&self, writer: &mut Writer, now: Seconds) -> Result<(), Error> {
        let ttl = match self.expires {
            larder_mem::EXPIRES_NEVER => Ttl::FOREVER,
            expires => Ttl::seconds(expires.saturating_sub(now.0)),
        };
        let ends = Ends { expires: self.expires, version: self.version };
        match self.version {
            _ if ends.has_term() => writer.insert_ending(self.key, self.value, ends, now),
            Some(version) => writer.insert_if_newer(self.key, self.value, version, ttl, now),
            None => writer.insert(self.key, self.value, ttl, now),
        }
    }
}

/// The entries of a payload. An entry with an impossible length of key or value ends them, and
/// stays in the rest. So the rest is empty if the payload is sound.
struct Entries<'a> {
    bytes: &'a [u8],
    /// The version of the format.
    format: u32,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let (key_len, flags, head, rest) = if self.format == 1 {
            let (head, rest) = self.bytes.split_first_chunk::<ENTRY_HEAD_BYTES_1>()?;
            (head[0], 0, &head[1..], rest)
        } else {
            let (head, rest) = self.bytes.split_first_chunk::<ENTRY_HEAD_BYTES>()?;
            (head[0], head[1], &head[2..], rest)
        };
        let value_len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let (version, rest) = match flags {
            0 => (None, rest),
            FLAG_VERSION => {
                let (version, rest) = rest.split_first_chunk::<VERSION_BYTES>()?;
                (Some(u64::from_le_bytes(*version)), rest)
            }
            _ => return None,
        };
        let (key, rest) = rest.split_at_checked(usize::from(key_len))?;
        let (value, rest) = rest.split_at_checked(value_len)?;
        if key.is_empty() || value_len > VALUE_BYTES_MAX {
            return None;
        }
        self.bytes = rest;
        Some(Entry { key, value, expires: u32_at(head, 2), version })
    }
}

#[cfg(test)]
mod tests;
