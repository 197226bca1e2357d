//! A segment that is searched, closed or not.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::block::{self, Walked};
use crate::block::{Interface, PLACE_BYTES};
use crate::files::{self, Identity, Kind};
use crate::flow_names::FlowNames;
use crate::flows::Flows;
use crate::index::{self, Index};
use crate::journal;
use crate::source::{Source, Whole};

use super::Damage;

/// Tries to open a segment: it may be closed, and its file replaced, between two looks.
const TRIES: usize = 4;

/// Bytes that are read for a block: as many as most have.
const READ_BYTES: usize = 2 << 10;

const BLOCK_BYTES_MAX: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct Opened {
    pub path: PathBuf,
    source: Source,
    /// Its bytes when it was opened.
    pub bytes: u64,
    pub index: Index,
    /// It should have an index, and has no valid one, or it grows and its journal is damaged.
    pub lacks_index: bool,
    /// It was read whole.
    pub flows: Option<Flows>,
    /// The unreadable part, as far as it was read.
    pub damage: Option<Damage>,
    whole: Option<Whole>,
}

impl Opened {
    /// `None`: it is deleted, or foreign.
    pub fn open(directory: &Path, number: u64, seed: u64) -> io::Result<Option<Opened>> {
        for attempt in 0..TRIES {
            if let Some((path, source)) = open_closed(directory, number)? {
                return Opened::closed(directory, number, path, source, seed);
            }
            let path = files::path(directory, number, Kind::Growing);
            let Some(source) = found(Source::open(&path, Kind::Growing))? else { continue };
            // Its length first: the events of its packets are in the journal by then.
            let bytes = source.bytes()?;
            let journal = found(fs::read(files::path(directory, number, Kind::Journal)))?;
            if journal.is_none() && attempt + 1 < TRIES {
                continue;
            }
            return Opened::made(path, source, bytes, number, journal.as_deref(), seed);
        }
        Ok(None)
    }

    fn closed(
        directory: &Path,
        number: u64,
        path: PathBuf,
        mut source: Source,
        seed: u64,
    ) -> io::Result<Option<Opened>> {
        let bytes = source.bytes()?;
        match found(Index::open(&files::path(directory, number, Kind::Index)))? {
            Some(Ok(index)) if is_of(&index, &mut source, number, bytes)? => {
                let (lacks_index, flows, damage, whole) = (false, None, None, None);
                Ok(Some(Opened { path, source, bytes, index, lacks_index, flows, damage, whole }))
            }
            // It was deleted after it was opened: its files go one after the other.
            None if open_closed(directory, number)?.is_none() => Ok(None),
            _ => {
                let opened = Opened::made(path, source, bytes, number, None, seed)?;
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
        mut source: Source,
        bytes: u64,
        number: u64,
        journal: Option<&[u8]>,
        seed: u64,
    ) -> io::Result<Option<Opened>> {
        let whole = source.whole(bytes)?;
        // Its header may be missing while the journal has events of earlier packets.
        let identity =
            Identity::parse(whole.bytes()).or_else(|| journal.and_then(journal::identity));
        let Some(identity) = identity.filter(|found| found.number == number) else {
            return Ok(None);
        };
        let mut names = FlowNames::default();
        let is_sound = journal::read(journal, &identity, |event| names.take(event));
        let (flows, index, walked) = look_through(&identity, whole.bytes(), &names, seed);
        let damage = damage_of(number, walked.hole_bytes(), None);
        let lacks_index = index.packets > 0 && !is_sound;
        let (flows, whole) = (Some(flows), Some(whole));
        let mut opened = Opened { path, source, bytes, index, lacks_index, flows, damage, whole };
        opened.let_go();
        Ok(Some(opened))
    }

    /// It is closed and does not grow, so bytes at its end that are no block are damage too.
    fn judge(&mut self) {
        let number = self.index.identity.number;
        let holes = self.damage.map_or(0, |damage| damage.bytes);
        let behind = self.bytes.saturating_sub(self.index.bytes) + self.source.lost_bytes();
        self.damage = damage_of(number, holes + behind, None);
    }

    /// Reads the segment whole after its index proved damaged.
    pub fn look_through(&mut self, seed: u64) -> io::Result<()> {
        self.lacks_index = true;
        let identity = self.index.identity;
        let (flows, index, walked) =
            look_through(&identity, self.content()?, &FlowNames::default(), seed);
        (self.flows, self.index) = (Some(flows), index);
        self.let_go();
        self.damage = damage_of(identity.number, walked.hole_bytes(), None);
        self.judge();
        Ok(())
    }

    /// Reads each of its packets, if that was not done. A segment that was decoded for it is kept, to
    /// be shown next; see [`Opened::let_go`].
    pub fn walk(&mut self, seed: u64) -> io::Result<()> {
        if self.flows.is_none() {
            let mut flows = Flows::new(seed);
            let walked = block::walk(self.content()?, |offset, block| {
                flows.block(offset, block);
            });
            // The index has the number of packets.
            let packets = self.index.packets.saturating_sub(flows.count);
            let behind = self.bytes.saturating_sub(walked.end) + self.source.lost_bytes();
            let bytes = walked.hole_bytes() + behind;
            self.damage = damage_of(self.index.identity.number, bytes, Some(packets));
            self.flows = Some(flows);
        }
        Ok(())
    }

    /// All its bytes.
    pub fn content(&mut self) -> io::Result<&[u8]> {
        let whole = match self.whole.take() {
            Some(whole) => whole,
            None => self.source.whole(self.bytes)?,
        };
        Ok(self.whole.insert(whole).bytes())
    }

    /// Gives back the memory of a whole segment that was decoded.
    pub fn let_go(&mut self) {
        self.whole.take_if(|whole| matches!(whole, Whole::Decoded(_)));
    }

    /// The places of the blocks that will be read, in order.
    pub fn expect(&mut self, places: impl Iterator<Item = u32>) {
        let places = places.map(|place| u64::from(place) * PLACE_BYTES);
        self.source.expect(places, READ_BYTES as u64 / 2);
    }

    /// The bytes of the block at `offset`, as far as they exist. Few blocks are read, many are
    /// mapped: a mapped page costs more than a call, but serves all blocks in it. Of a compressed
    /// segment, blocks are read also if they are many: their frames are decoded once, in order.
    pub fn block<'a>(
        &'a mut self,
        offset: u64,
        is_sparse: bool,
        buffer: &'a mut Vec<u8>,
    ) -> io::Result<Option<&'a [u8]>> {
        let is_read = is_sparse || matches!(self.source, Source::Compressed(_));
        if !is_read || self.whole.is_some() {
            return Ok(block::whole(
                self.content()?,
                usize::try_from(offset).unwrap_or(usize::MAX),
            ));
        }
        // Most blocks are in one frame.
        if let Ok(Some(len)) = block::block_len(self.source.at_hand(offset)?) {
            return Ok(self.source.at_hand(offset)?.get(..len));
        }
        let mut wanted = READ_BYTES;
        loop {
            buffer.resize(wanted, 0);
            let read = self.source.read_at(buffer, offset)?;
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

/// The file of a closed segment; `None`: there is none. The compressed one is looked for first: the
/// other is deleted after it is there.
pub(super) fn open_closed(directory: &Path, number: u64) -> io::Result<Option<(PathBuf, Source)>> {
    for kind in [Kind::Compressed, Kind::Closed, Kind::Compressed] {
        let path = files::path(directory, number, kind);
        if let Some(source) = found(Source::open(&path, kind))? {
            return Ok(Some((path, source)));
        }
    }
    Ok(None)
}

/// The index of an interface in `all`, to which it is added if it is new.
pub(crate) fn number_of(interface: Interface, all: &mut Vec<Interface>) -> u32 {
    let number = all.iter().position(|known| *known == interface).unwrap_or(all.len());
    if number == all.len() {
        all.push(interface);
    }
    number as u32
}

/// An index belongs to a segment when both have the same identity; a segment with a damaged
/// beginning has none.
fn is_of(index: &Index, source: &mut Source, number: u64, bytes: u64) -> io::Result<bool> {
    let is_same = source.own_identity()?.is_none_or(|found| found == index.identity);
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
    flow_names: &FlowNames,
    seed: u64,
) -> (Flows, Index, Walked) {
    let mut flows = Flows::new(seed);
    let walked = block::walk(bytes, |offset, bytes| {
        flows.block(offset, bytes);
    });
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
