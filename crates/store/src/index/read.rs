//! Reads the index of a segment, and checks each page that it reads.

use std::cell::RefCell;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::{fmt, io};

use larder_io::mapped::Mapped;
use larder_wire::Addr;
use larder_wire::scope::Scope;

use super::build::order_of;
use super::{
    ADDRESS_BYTES, ADDRESSES, ENDS, EXTRA_BYTES, EXTRAS, FLOW_BYTES, FLOWS, MAGIC,
    MAGIC_WITHOUT_EXTRAS, NAME_BYTES, NAMES, OF_EXTRAS, PAGE_BYTES, POSTINGS, SECTIONS,
    SECTIONS_WITHOUT_EXTRAS, TEXTS, header_bytes,
};
use crate::FlowKey;
use crate::block::PLACE_BYTES;
use crate::files::Identity;
use crate::journal::{self, Head, StoredEvent};

/// Bytes of a segment that places can address.
const PLACEABLE_BYTES: u64 = PLACE_BYTES << 32;

/// The index is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

type Result<T> = std::result::Result<T, Damaged>;

/// An index that was opened.
pub(crate) struct Index {
    content: Content,
    pub identity: Identity,
    /// Bytes of the segment.
    pub bytes: u64,
    pub packets: u64,
    /// The least and the greatest time of a packet.
    pub times_ns: (i64, i64),
    /// It has the addresses of packets that are no end of their flows.
    pub has_extras: bool,
    /// Bytes of its header.
    header_bytes: usize,
    sections: [Range<usize>; SECTIONS],
    checksums: Range<usize>,
    /// Pages whose checksum was right.
    checked: RefCell<Vec<bool>>,
}

/// A name of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameEntry<'a> {
    /// Its labels from the right.
    pub text: &'a [u8],
    /// It has another text than the entry before.
    pub is_new: bool,
    pub role: u8,
    /// Offset of the event.
    pub event: usize,
}

enum Content {
    Mapped(Mapped),
    Made(Vec<u8>),
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Index {
    /// Opens a file; `Ok(Err)`: it is damaged.
    pub fn open(path: &Path) -> io::Result<Result<Index>> {
        let file = File::open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        // An empty file cannot be mapped.
        if bytes == 0 {
            return Ok(Err(Damaged));
        }
        Ok(Index::of(Content::Mapped(Mapped::read_only(&file, bytes)?)))
    }

    /// An index that was just made.
    pub fn made(bytes: Vec<u8>) -> Result<Index> {
        Index::of(Content::Made(bytes))
    }

    fn of(content: Content) -> Result<Index> {
        let bytes = match &content {
            Content::Mapped(mapped) => mapped.bytes(),
            Content::Made(made) => made,
        };
        let has_extras = bytes.starts_with(MAGIC);
        if !has_extras && !bytes.starts_with(MAGIC_WITHOUT_EXTRAS) {
            return Err(Damaged);
        }
        let of_version = if has_extras { SECTIONS } else { SECTIONS_WITHOUT_EXTRAS };
        let header_bytes = header_bytes(of_version);
        let header = bytes.get(..header_bytes).ok_or(Damaged)?;
        let (head, crc) = header.split_at(header_bytes - 4);
        if crc != crc32fast::hash(head).to_le_bytes() {
            return Err(Damaged);
        }
        let long = |at: usize| {
            head.get(at..)
                .and_then(|rest| rest.first_chunk())
                .map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let range = |at: usize| {
            let start = usize::try_from(long(at)).map_err(|_| Damaged)?;
            let len = usize::try_from(long(at + 8)).map_err(|_| Damaged)?;
            let end = start.checked_add(len).filter(|end| *end <= bytes.len()).ok_or(Damaged)?;
            Ok(start..end)
        };
        let mut sections: [Range<usize>; SECTIONS] = Default::default();
        for (number, section) in sections.iter_mut().enumerate().take(of_version) {
            *section = range(64 + 16 * number)?;
        }
        let checksums = range(64 + 16 * of_version)?;
        let table = bytes.get(checksums.clone()).ok_or(Damaged)?;
        let (table, crc) = table.split_at_checked(table.len().wrapping_sub(4)).ok_or(Damaged)?;
        let body = checksums.start.checked_sub(header_bytes).ok_or(Damaged)?;
        let pages = body.div_ceil(PAGE_BYTES);
        if crc != crc32fast::hash(table).to_le_bytes() || table.len() != pages * 4 {
            return Err(Damaged);
        }
        Ok(Index {
            identity: Identity::claimed(long(8), long(16), long(24)).ok_or(Damaged)?,
            bytes: Some(long(32)).filter(|bytes| *bytes <= PLACEABLE_BYTES).ok_or(Damaged)?,
            packets: long(40),
            times_ns: (long(48) as i64, long(56) as i64),
            has_extras,
            header_bytes,
            sections,
            checksums,
            checked: RefCell::new(vec![false; pages]),
            content,
        })
    }

    /// How many flows there are.
    pub fn flows(&self) -> usize {
        self.sections[FLOWS].len() / FLOW_BYTES
    }

    /// The flow with this number.
    pub fn key(&self, flow: usize) -> Result<FlowKey> {
        let entry = self.entry::<FLOW_BYTES>(FLOWS, flow)?;
        Ok(FlowKey {
            low: self.address(word(entry, 0) as usize)?,
            high: self.address(word(entry, 4) as usize)?,
            low_port: half(entry, 8),
            high_port: half(entry, 10),
            protocol: entry[12],
            scope: self.scope(word(entry, 12) >> 8)?,
        })
    }

    /// The network with this number.
    fn scope(&self, number: u32) -> Result<Scope> {
        let Some(at) = number.checked_sub(1) else { return Ok(Scope::NONE) };
        let at = at as usize * 8;
        let bytes = self.part(TEXTS, at..at + 8)?.first_chunk().ok_or(Damaged)?;
        Scope::from_bits(u64::from_le_bytes(*bytes)).ok_or(Damaged)
    }

    /// The flows with the ends of this key, which has no network: one for each network.
    pub fn find(&self, key: &FlowKey) -> Result<Vec<(usize, Scope)>> {
        let wanted = order_of(key);
        let first = self.first(self.flows(), |flow| Ok(order_of(&self.key(flow)?) >= wanted))?;
        let mut found = Vec::new();
        for flow in first..self.flows() {
            let of_flow = self.key(flow)?;
            if of_flow.unscoped() != *key {
                break;
            }
            found.push((flow, of_flow.scope));
        }
        Ok(found)
    }

    /// Adds the places of a flow's packets to `out`.
    pub fn places(&self, flow: usize, out: &mut Vec<u32>) -> Result<()> {
        let at = word(self.entry::<FLOW_BYTES>(FLOWS, flow)?, 16) as usize;
        self.list(POSTINGS, at, out)
    }

    /// Adds the numbers of flows with an end between two addresses to `out`; some twice.
    pub fn with_address(&self, least: Addr, greatest: Addr, out: &mut Vec<u32>) -> Result<()> {
        let addresses = self.sections[ADDRESSES].len() / ADDRESS_BYTES;
        let start = self.first(addresses, |number| Ok(self.address(number)? >= least))?;
        let end = self.first(addresses, |number| Ok(self.address(number)? > greatest))?;
        if start == end {
            return Ok(());
        }
        let flow_of = |number: usize| match number < addresses {
            true => Ok(word(self.entry::<ADDRESS_BYTES>(ADDRESSES, number)?, 16)),
            false => Ok(self.flows() as u32),
        };
        let of_low = flow_of(start)?..flow_of(end)?;
        if of_low.end as usize > self.flows() {
            return Err(Damaged);
        }
        out.extend(of_low);
        for number in start..end {
            let at = word(self.entry::<ADDRESS_BYTES>(ADDRESSES, number)?, 20) as usize;
            self.list(ENDS, at, out)?;
        }
        Ok(())
    }

    /// Adds the places of packets with an address between two, other than the ends of their flows,
    /// to `out`; some twice.
    pub fn with_extra(&self, least: Addr, greatest: Addr, out: &mut Vec<u32>) -> Result<()> {
        let count = self.sections[EXTRAS].len() / EXTRA_BYTES;
        let entry = |number| self.entry::<EXTRA_BYTES>(EXTRAS, number);
        let addr = |number| entry(number)?.first_chunk().copied().map(Addr).ok_or(Damaged);
        let start = self.first(count, |number| Ok(addr(number)? >= least))?;
        for number in start..count {
            if addr(number)? > greatest {
                break;
            }
            self.list(OF_EXTRAS, word(entry(number)?, 16) as usize, out)?;
        }
        Ok(())
    }

    /// Visits the names that begin with `prefix` (labels from the right) while `visit` returns
    /// true.
    pub fn names(
        &self,
        prefix: &[u8],
        mut visit: impl FnMut(NameEntry<'_>) -> Result<bool>,
    ) -> Result<()> {
        let count = self.sections[NAMES].len() / NAME_BYTES;
        let text_of = |number| self.text(self.entry::<NAME_BYTES>(NAMES, number)?);
        let start = self.first(count, |number| Ok(text_of(number)? >= prefix))?;
        let mut last: Option<(&[u8], &[u8])> = None;
        for number in start..count {
            let entry = self.entry::<NAME_BYTES>(NAMES, number)?;
            // Each text is stored once, and its entries are neighbors.
            let same = last.filter(|(place, _)| *place == &entry[..6]);
            let text = match same {
                Some((_, text)) => text,
                None => self.text(entry)?,
            };
            last = Some((&entry[..6], text));
            let event = word(entry, 8) as usize;
            let name = NameEntry { text, is_new: same.is_none(), role: entry[6], event };
            if same.is_none() && !text.starts_with(prefix) || !visit(name)? {
                break;
            }
        }
        Ok(())
    }

    fn text(&self, entry: &[u8; NAME_BYTES]) -> Result<&[u8]> {
        let start = word(entry, 0) as usize;
        self.part(TEXTS, start..start + usize::from(half(entry, 4)))
    }

    /// The event at an offset.
    pub fn event(&self, at: usize) -> Result<StoredEvent> {
        // Its length is known only after reading: first the usual length is tried, then all bytes.
        let rest = self.sections[TEXTS].len().checked_sub(at).ok_or(Damaged)?;
        for bytes in [rest.min(1024), rest] {
            if let Some((event, _)) = journal::event(self.part(TEXTS, at..at + bytes)?) {
                return Ok(event);
            }
        }
        Err(Damaged)
    }

    /// The head of the event at an offset.
    pub fn head(&self, at: usize) -> Result<Head> {
        let rest = self.sections[TEXTS].len().checked_sub(at).ok_or(Damaged)?;
        let bytes = self.part(TEXTS, at..at + rest.min(journal::HEAD_BYTES_MAX))?;
        journal::head(bytes).ok_or(Damaged)
    }

    /// The heads of all events.
    pub fn heads(&self) -> Result<impl Iterator<Item = Result<Head>>> {
        Ok(self.places_of_events()?.into_iter().map(|at| self.head(at)))
    }

    /// All events.
    pub fn events(&self) -> Result<Vec<StoredEvent>> {
        self.places_of_events()?.into_iter().map(|at| self.event(at)).collect()
    }

    /// Offsets of all events, in order.
    fn places_of_events(&self) -> Result<Vec<usize>> {
        let names = 0..self.sections[NAMES].len() / NAME_BYTES;
        let place = |number| Ok(word(self.entry::<NAME_BYTES>(NAMES, number)?, 8) as usize);
        let mut places: Vec<usize> = names.map(place).collect::<Result<_>>()?;
        places.sort_unstable();
        places.dedup();
        Ok(places)
    }

    fn address(&self, number: usize) -> Result<Addr> {
        let entry = self.entry::<ADDRESS_BYTES>(ADDRESSES, number)?;
        entry.first_chunk().copied().map(Addr).ok_or(Damaged)
    }

    /// The first number below `count` for which `is_reached` is true; it stays true from there.
    /// `count` if there is none.
    fn first(&self, count: usize, is_reached: impl Fn(usize) -> Result<bool>) -> Result<usize> {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_reached(middle)? {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    fn entry<const BYTES: usize>(&self, section: usize, number: usize) -> Result<&[u8; BYTES]> {
        let start = number.checked_mul(BYTES).ok_or(Damaged)?;
        self.part(section, start..start + BYTES)?.first_chunk().ok_or(Damaged)
    }

    /// Bytes of a section, after a check of each page.
    fn part(&self, section: usize, range: Range<usize>) -> Result<&[u8]> {
        let within = &self.sections[section];
        if range.start > range.end || range.end > within.len() {
            return Err(Damaged);
        }
        self.checked(within.start + range.start..within.start + range.end)
    }

    fn checked(&self, range: Range<usize>) -> Result<&[u8]> {
        let bytes = self.bytes_of_file();
        if range.start < self.header_bytes || range.end > self.checksums.start {
            return Err(Damaged);
        }
        let mut checked = self.checked.borrow_mut();
        let first = (range.start - self.header_bytes) / PAGE_BYTES;
        let last = (range.end.max(range.start + 1) - 1 - self.header_bytes) / PAGE_BYTES;
        for page in first..=last {
            let Some(is_checked) = checked.get_mut(page) else { continue };
            if *is_checked {
                continue;
            }
            let start = self.header_bytes + page * PAGE_BYTES;
            let end = (start + PAGE_BYTES).min(self.checksums.start);
            let crc = word(&bytes[self.checksums.clone()], page * 4);
            if crc32fast::hash(&bytes[start..end]) != crc {
                return Err(Damaged);
            }
            *is_checked = true;
        }
        Ok(&bytes[range])
    }

    fn bytes_of_file(&self) -> &[u8] {
        match &self.content {
            Content::Mapped(mapped) => mapped.bytes(),
            Content::Made(made) => made,
        }
    }

    /// A list of ascending numbers in the form of `put_list`.
    fn list(&self, section: usize, at: usize, out: &mut Vec<u32>) -> Result<()> {
        let len = self.sections[section].len();
        let end = |bytes: usize| len.min(at.saturating_add(bytes)).max(at);
        let (count, used) = varint(self.part(section, at..end(5))?)?;
        // No number has more than five bytes; the further pages are checked once, for all later
        // reads.
        let bytes = self.part(section, at..end((count as usize).saturating_mul(5) + 5))?;
        let mut bytes = bytes.get(used..).ok_or(Damaged)?;
        let mut value = 0u32;
        for _ in 0..count {
            let (distance, used) = varint(bytes)?;
            bytes = &bytes[used..];
            value = value.checked_add(distance).ok_or(Damaged)?;
            out.push(value);
        }
        Ok(())
    }
}

/// A number, and its length.
fn varint(bytes: &[u8]) -> Result<(u32, usize)> {
    let mut value = 0u32;
    for (index, byte) in bytes.iter().take(5).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok((value, index + 1));
        }
    }
    Err(Damaged)
}

/// Of bytes that exist.
fn word(bytes: &[u8], at: usize) -> u32 {
    crate::block::word(bytes, at).unwrap_or(u32::MAX)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |half| u16::from_le_bytes([half[0], half[1]]))
}
