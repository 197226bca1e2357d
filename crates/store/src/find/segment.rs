//! A segment that is searched, closed or not.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use larder_io::mapped::Mapped;

use crate::block::Interface;
use crate::block::{self, Walked};
use crate::files::{self, Identity, Kind};
use crate::flow_names::FlowNames;
use crate::flows::Flows;
use crate::index::{self, Index};
use crate::journal;

use super::Damage;

/// Tries to open a segment: it may be closed, and its file replaced, between two looks.
const TRIES: usize = 4;

/// Bytes that are read for a block: as many as most have.
const READ_BYTES: usize = 2 << 10;

const BLOCK_BYTES_MAX: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct Opened {
    pub path: PathBuf,
    file: File,
    /// Bytes of the file when it was opened.
    pub bytes: u64,
    pub index: Index,
    /// It should have an index, and has no valid one.
    pub lacks_index: bool,
    /// It was read whole.
    pub flows: Option<Flows>,
    /// The unreadable part, as far as it was read.
    pub damage: Option<Damage>,
    mapped: Option<Mapped>,
}

impl Opened {
    /// `None`: it is deleted, or foreign.
    pub fn open(directory: &Path, number: u64, seed: u64) -> io::Result<Option<Opened>> {
        for attempt in 0..TRIES {
            let path = files::path(directory, number, Kind::Closed);
            if let Some(file) = found(File::open(&path))? {
                return Opened::open_closed(directory, number, path, file, seed);
            }
            let path = files::path(directory, number, Kind::Growing);
            let Some(file) = found(File::open(&path))? else { continue };
            // Its length first: the events of its packets are in the journal by then.
            let bytes = file.metadata()?.len();
            let journal = found(fs::read(files::path(directory, number, Kind::Journal)))?;
            if journal.is_none() && attempt + 1 < TRIES {
                continue;
            }
            return Opened::made(path, file, bytes, number, &journal.unwrap_or_default(), seed);
        }
        Ok(None)
    }

    fn open_closed(
        directory: &Path,
        number: u64,
        path: PathBuf,
        file: File,
        seed: u64,
    ) -> io::Result<Option<Opened>> {
        let bytes = file.metadata()?.len();
        match found(Index::open(&files::path(directory, number, Kind::Index)))? {
            Some(Ok(index)) if is_of(&index, &file, number, bytes)? => {
                let (lacks_index, flows, damage, mapped) = (false, None, None, None);
                Ok(Some(Opened { path, file, bytes, index, lacks_index, flows, damage, mapped }))
            }
            _ => {
                let opened = Opened::made(path, file, bytes, number, &[], seed)?;
                Ok(opened.map(|mut opened| {
                    opened.lacks_index = true;
                    opened.judge();
                    opened
                }))
            }
        }
    }

    /// Reads a segment without an index.
    fn made(
        path: PathBuf,
        file: File,
        bytes: u64,
        number: u64,
        journal: &[u8],
        seed: u64,
    ) -> io::Result<Option<Opened>> {
        let mapped = map(&file, bytes)?;
        // Its header may be missing while the journal has events of earlier packets.
        let identity = Identity::parse(octets_of(&mapped)).or_else(|| journal::identity(journal));
        let Some(identity) = identity.filter(|found| found.number == number) else {
            return Ok(None);
        };
        let (flows, index, walked) = look_through(&identity, octets_of(&mapped), journal, seed);
        let damage = damage_of(number, walked.hole_bytes(), None);
        let (lacks_index, flows) = (false, Some(flows));
        Ok(Some(Opened { path, file, bytes, index, lacks_index, flows, damage, mapped }))
    }

    /// It is closed and does not grow, so bytes at its end that are no block are damage too.
    fn judge(&mut self) {
        let number = self.index.identity.number;
        let holes = self.damage.map_or(0, |damage| damage.bytes);
        let behind = self.bytes.saturating_sub(self.index.bytes);
        self.damage = damage_of(number, holes + behind, None);
    }

    /// Reads the segment whole after its index proved damaged.
    pub fn look_through(&mut self, seed: u64) -> io::Result<()> {
        self.lacks_index = true;
        let identity = self.index.identity;
        let (flows, index, walked) = look_through(&identity, self.content()?, &[], seed);
        (self.flows, self.index) = (Some(flows), index);
        self.damage = damage_of(identity.number, walked.hole_bytes(), None);
        self.judge();
        Ok(())
    }

    /// Reads each of its packets, if that was not done.
    pub fn walk(&mut self, seed: u64) -> io::Result<()> {
        if self.flows.is_none() {
            let mut flows = Flows::new(seed);
            let walked = block::walk(self.content()?, |offset, block| {
                flows.block(offset, block);
            });
            // The index has the number of packets.
            let packets = self.index.packets.saturating_sub(flows.count);
            let bytes = walked.hole_bytes() + (self.bytes - walked.end);
            self.damage = damage_of(self.index.identity.number, bytes, Some(packets));
            self.flows = Some(flows);
        }
        Ok(())
    }

    /// The file's bytes.
    pub fn content(&mut self) -> io::Result<&[u8]> {
        if self.mapped.is_none() {
            self.mapped = map(&self.file, self.bytes)?;
        }
        Ok(octets_of(&self.mapped))
    }

    /// The bytes of the block at `offset`, as far as they exist. Few blocks are read, many are
    /// mapped: a mapped page costs more than a call, but serves all blocks in it.
    pub fn block<'a>(
        &'a mut self,
        offset: u64,
        is_sparse: bool,
        buffer: &'a mut Vec<u8>,
    ) -> io::Result<Option<&'a [u8]>> {
        if !is_sparse || self.mapped.is_some() {
            return Ok(block::whole(
                self.content()?,
                usize::try_from(offset).unwrap_or(usize::MAX),
            ));
        }
        let mut wanted = READ_BYTES;
        loop {
            buffer.resize(wanted, 0);
            let read = read_at(&self.file, buffer, offset)?;
            buffer.truncate(read);
            match block::block_len(buffer) {
                Ok(Some(len)) => return Ok(buffer.get(..len)),
                Ok(None) if read == wanted && wanted < BLOCK_BYTES_MAX => {
                    let len = block::word(buffer, 4).map_or(0, |len| len as usize);
                    wanted = len.clamp(wanted + 1, BLOCK_BYTES_MAX);
                }
                _ => return Ok(None),
            }
        }
    }

    /// The index in `all` of each of its interfaces; new ones are added to `all`.
    pub fn interfaces(&mut self, all: &mut Vec<Interface>) -> io::Result<Vec<u32>> {
        let (mut numbers, mut at, mut buffer) = (Vec::new(), 0, Vec::new());
        while let Some(found) = self.block(at, true, &mut buffer)? {
            if block::packet(found).is_some() {
                break;
            }
            if let Some(interface) = block::interface(found) {
                numbers.push(number_of(interface, all));
            }
            at += found.len() as u64;
        }
        Ok(numbers)
    }
}

/// Reads as many bytes as there are.
fn read_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<usize> {
    let mut sum = 0;
    while !buffer.is_empty() {
        match file.read_at(buffer, offset) {
            Ok(0) => break,
            Ok(read) => {
                (sum, offset) = (sum + read, offset + read as u64);
                buffer = &mut buffer[read..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sum)
}

/// The index of an interface in `all`, to which it is added if it is new.
pub(crate) fn number_of(interface: Interface, all: &mut Vec<Interface>) -> u32 {
    let number = all.iter().position(|known| *known == interface).unwrap_or(all.len());
    if number == all.len() {
        all.push(interface);
    }
    number as u32
}

/// An empty file cannot be mapped.
fn map(file: &File, bytes: u64) -> io::Result<Option<Mapped>> {
    match usize::try_from(bytes) {
        Ok(0) => Ok(None),
        bytes => Mapped::read_only(file, bytes.unwrap_or(usize::MAX)).map(Some),
    }
}

fn octets_of(mapped: &Option<Mapped>) -> &[u8] {
    mapped.as_ref().map_or(&[], Mapped::bytes)
}

/// An index belongs to a segment when both have the same identity; a segment with a damaged
/// beginning has none.
fn is_of(index: &Index, file: &File, number: u64, bytes: u64) -> io::Result<bool> {
    let mut head = [0; files::HEADER_BYTES_MAX];
    let read = read_at(file, &mut head, 0)?;
    let is_same = Identity::parse(&head[..read]).is_none_or(|found| found == index.identity);
    Ok(is_same && index.identity.number == number && index.bytes == bytes)
}

fn damage_of(segment: u64, bytes: u64, packets: Option<u64>) -> Option<Damage> {
    (bytes > 0 || packets.is_some_and(|packets| packets > 0)).then_some(Damage {
        segment,
        packets,
        bytes,
    })
}

fn look_through(
    identity: &Identity,
    bytes: &[u8],
    journal: &[u8],
    seed: u64,
) -> (Flows, Index, Walked) {
    let (mut flows, mut flow_names) = (Flows::new(seed), FlowNames::default());
    let walked = block::walk(bytes, |offset, bytes| {
        flows.block(offset, bytes);
    });
    let frames = journal::frames(journal, identity).unwrap_or_default();
    journal::events(frames).for_each(|event| flow_names.take(event));
    let events = flow_names.of_segment(identity.position, &flows);
    let bytes = index::build(identity, walked.end, &flows, &events, true);
    (flows, Index::made(bytes).expect("what was made just now is sound"), walked)
}

/// A missing file is no error.
pub(super) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
