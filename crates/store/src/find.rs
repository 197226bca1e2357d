//! Finds packets, in the process that stores them or in another, while they are written.
//!
//! ```text
//! find       names -> spans: (key, from, until) of flows that have them, from the events of all segments
//!            per segment: keys and spans -> places, by its index -> blocks, read in place
//! scan       the same spans, then all packets of all segments, one by one: slow and simple
//! follow     find up to the last segment, then the blocks as they come
//! ```
//!
//! A packet belongs to a name when its flow's key is that of an event with the name, and its
//! position is between the flow's first packet and its end. A flow without an end lasts until its
//! run ends. Roles: see [`FindOptions`].
//!
//! A packet belongs to an address when that is an end of its flow, or in one of its other headers
//! (`extras`).
//!
//! A segment without a valid index, and the one that grows, are read whole and get an index in
//! memory. A segment that is deleted meanwhile is skipped, which is no error.
//!
//! Cost: with an index, the pages that are read and the packets that are found; without, a walk of
//! the segment (45 ns a packet, 350 if each is a flow of its own).

mod capture;
mod follow;
mod notes;
mod options;
mod places;
mod segment;
mod spans;
mod summary;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use crate::block::{self, Interface, PLACE_BYTES};
use crate::files::{self, Kind, SEGMENTS};
use crate::flows::Flows;
use crate::index::Damaged;
use crate::journal::StoredEvent;
use crate::options::StoreError;
use crate::query::Query;
use notes::{Asked, OfSegment, READ_AHEAD};
use places::Place;
use segment::Opened;
use spans::Spans;

pub use capture::Writer;
pub use follow::POLL_MS;
pub use options::FindOptions;
pub(crate) use segment::number_of;
pub use summary::{Damage, PINNED, Summary, segment_name};

/// Segments without a valid index that are kept in memory between the two passes.
const MADE_MAX: usize = 8;

/// Segments in a row that a listing may miss.
const GAP_MAX: u64 = 16;

/// Packets after which a search looks whether it is still wanted.
const STOP_PACKETS: usize = 4096;

/// A segment with fewer packets to find than one in this many bytes is read, not mapped.
const SPARSE_BYTES: u64 = 16 << 10;

/// A packet that was found.
#[derive(Clone, Copy, Debug)]
pub struct FoundPacket<'a> {
    /// Its position; see the terms in the crate's header. Those of pinned packets are of their own
    /// store.
    pub position: u64,
    /// Number of its segment, with [`PINNED`] if that is one of pinned packets.
    pub segment: u64,
    /// Time of capture, ns since 1970.
    pub ts_ns: i64,
    /// Index of its interface in `interfaces`.
    pub interface: u32,
    /// All interfaces so far, of all segments; the list only grows.
    pub interfaces: &'a [Interface],
    /// Bytes on the wire.
    pub original_len: u32,
    /// The stored part of it.
    pub frame: &'a [u8],
}

impl FoundPacket<'_> {
    /// LINKTYPE_ number of the frame.
    pub fn link_type(&self) -> u16 {
        self.interfaces.get(self.interface as usize).map_or(0, |interface| interface.link_type)
    }
}

/// Called for each packet, which is borrowed for the call.
pub type Visit<'a> = dyn FnMut(FoundPacket<'_>) -> ControlFlow<()> + 'a;

/// Finds packets in a folder.
#[derive(Debug)]
pub struct Finder {
    directory: PathBuf,
    interfaces: Vec<Interface>,
    seed: u64,
    is_unwanted: Arc<AtomicBool>,
    /// See [`Finder::keep_little`].
    keeps_little: bool,
    /// Of packets that outlived their segments: see `pins`.
    pinned: Option<Box<Finder>>,
}

/// One search: the state of both ways.
struct Search<'a, 'v> {
    query: &'a Query,
    options: FindOptions,
    /// Of each term that is a name, by the term's number.
    spans: Vec<Spans>,
    /// The known beginnings of runs.
    runs: BTreeSet<u64>,
    summary: Summary,
    /// The position behind the last segment that was read.
    end: u64,
    /// A segment was deleted meanwhile.
    has_gone: bool,
    /// See [`Finder::stop_when`].
    is_unwanted: Arc<AtomicBool>,
    visit: &'a mut Visit<'v>,
}

impl Finder {
    /// Opens a folder with stored packets, pinned ones among them.
    pub fn open(directory: &Path) -> Result<Finder, StoreError> {
        let mut finder = Finder::open_alone(directory)?;
        finder.open_pinned()?;
        Ok(finder)
    }

    /// Opens the folder of pinned packets, if there is one.
    fn open_pinned(&mut self) -> Result<(), StoreError> {
        let folder = files::pinned(&self.directory);
        if self.pinned.is_none() && folder.is_dir() {
            self.pinned = match Finder::open_alone(&folder) {
                Ok(mut pinned) => {
                    pinned.stop_when(Arc::clone(&self.is_unwanted));
                    pinned.keeps_little = self.keeps_little;
                    Some(Box::new(pinned))
                }
                Err(StoreError::NoStore(_)) => None,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// The same without pinned packets.
    pub(crate) fn open_alone(directory: &Path) -> Result<Finder, StoreError> {
        if !crate::source::is_store(directory).map_err(StoreError::at(directory))? {
            return Err(StoreError::NoStore(directory.to_owned()));
        }
        let directory = directory.to_owned();
        let (interfaces, is_unwanted) = (Vec::new(), Arc::default());
        let (seed, keeps_little, pinned) = (Flows::seed(), false, None);
        Ok(Finder { directory, interfaces, seed, is_unwanted, keeps_little, pinned })
    }

    /// A search ends before the next segment once this is true, as if the visitor had stopped it.
    pub fn stop_when(&mut self, is_unwanted: Arc<AtomicBool>) {
        if let Some(pinned) = &mut self.pinned {
            pinned.stop_when(Arc::clone(&is_unwanted));
        }
        self.is_unwanted = is_unwanted;
    }

    /// Keeps no decoded segment while its packets are visited: for a visitor that may wait for long.
    /// Queries that read all packets (`not tcp`) then decode each compressed segment twice.
    pub fn keep_little(&mut self) {
        self.keeps_little = true;
        if let Some(pinned) = &mut self.pinned {
            pinned.keeps_little = true;
        }
    }

    /// Visits all matching packets, in order of position.
    pub fn find(
        &mut self,
        query: &Query,
        options: FindOptions,
        visit: &mut Visit<'_>,
    ) -> Result<Summary, StoreError> {
        self.run(query, options, visit, false)
    }

    /// The same by a look at each packet.
    pub fn scan(
        &mut self,
        query: &Query,
        options: FindOptions,
        visit: &mut Visit<'_>,
    ) -> Result<Summary, StoreError> {
        self.run(query, options, visit, true)
    }

    fn run(
        &mut self,
        query: &Query,
        options: FindOptions,
        visit: &mut Visit<'_>,
        is_scan: bool,
    ) -> Result<Summary, StoreError> {
        let oldest = self.numbers()?.first().copied();
        let (mut summary, end) = self.run_pinned(query, options, visit, is_scan, 0)?;
        if summary.is_broken_off {
            return Ok(summary);
        }
        let numbers = self.numbers()?;
        let all = 0..numbers.len();
        let search = self.search(&numbers, all, query, options, visit, is_scan)?;
        let has_gone = search.has_gone || oldest < numbers.first().copied();
        summary.add(search.summary);
        if has_gone && !summary.is_broken_off {
            // Its pinned packets may have come after the others were read.
            self.open_pinned()?;
            summary.add(self.run_pinned(query, options, visit, is_scan, end)?.0);
        }
        Ok(summary)
    }

    /// Visits the pinned packets from position `from` on, which are older than all others; returns
    /// the position behind them.
    fn run_pinned(
        &mut self,
        query: &Query,
        options: FindOptions,
        visit: &mut Visit<'_>,
        is_scan: bool,
        from: u64,
    ) -> Result<(Summary, u64), StoreError> {
        let Some(pinned) = &mut self.pinned else { return Ok((Summary::default(), from)) };
        // One list of interfaces, which only grows.
        pinned.interfaces = std::mem::take(&mut self.interfaces);
        let (mut packets, mut bytes) = (0, 0);
        let mut marked = |found: FoundPacket<'_>| {
            if found.position < from {
                return ControlFlow::Continue(());
            }
            (packets, bytes) = (packets + 1, bytes + found.frame.len() as u64);
            visit(FoundPacket { segment: found.segment | PINNED, ..found })
        };
        let numbers = pinned.numbers()?;
        let all = 0..numbers.len();
        let found = pinned.search(&numbers, all, query, options, &mut marked, is_scan);
        let found = found.map(|search| (search.summary, search.end));
        self.interfaces = std::mem::take(&mut pinned.interfaces);
        let (mut summary, end) = found?;
        (summary.packets, summary.bytes) = (packets, bytes);
        summary.damaged.iter_mut().for_each(|damage| damage.segment |= PINNED);
        summary.segments_without_index.iter_mut().for_each(|number| *number |= PINNED);
        Ok((summary, end))
    }

    /// Visits the matches in one segment; names are known from all of them.
    pub(crate) fn find_in(
        &mut self,
        number: u64,
        query: &Query,
        options: FindOptions,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let numbers = self.numbers()?;
        let Some(at) = numbers.iter().position(|of| *of == number) else { return Ok(()) };
        self.search(&numbers, at..at + 1, query, options, visit, false).map(|_| ())
    }

    /// Numbers of all segments at this time.
    fn numbers(&self) -> Result<Vec<u64>, StoreError> {
        let numbers = files::numbers(&self.directory).map_err(StoreError::at(&self.directory))?;
        let mut numbers: Vec<u64> = numbers.into_iter().collect();
        // A listing may miss a file that is renamed meanwhile under both names.
        let missed: Vec<u64> = numbers
            .windows(2)
            .filter(|pair| pair[1] - pair[0] <= GAP_MAX)
            .flat_map(|pair| pair[0] + 1..pair[1])
            .collect();
        numbers.extend(missed);
        numbers.sort_unstable();
        let is_there = |number: u64| {
            let has = |kind| files::path(&self.directory, number, kind).exists();
            SEGMENTS.into_iter().any(has)
        };
        while let Some(before) = numbers.first().and_then(|first| first.checked_sub(1))
            && is_there(before)
        {
            numbers.insert(0, before);
        }
        for _ in 0..GAP_MAX {
            let Some(next) = numbers.last().map(|last| last + 1).filter(|next| is_there(*next))
            else {
                break;
            };
            numbers.push(next);
        }
        Ok(numbers)
    }

    /// Visits the matches in these of the segments; names are known from all of them.
    fn search<'a, 'v>(
        &mut self,
        numbers: &[u64],
        shown: Range<usize>,
        query: &'a Query,
        options: FindOptions,
        visit: &'a mut Visit<'v>,
        is_scan: bool,
    ) -> Result<Search<'a, 'v>, StoreError> {
        let mut made = HashMap::new();
        let spans = match query.needs_events() {
            true => self.spans(numbers, query, options, is_scan, &mut made)?,
            false => (query.terms.iter().map(|_| Spans::new(self.seed)).collect(), BTreeSet::new()),
        };
        let (spans, runs) = spans;
        let mut search = Search {
            query,
            options,
            spans,
            runs,
            summary: Summary::default(),
            end: 0,
            has_gone: false,
            is_unwanted: Arc::clone(&self.is_unwanted),
            visit,
        };
        for number in &numbers[shown] {
            if self.is_unwanted.load(Ordering::Acquire) {
                search.summary.is_broken_off = true;
                break;
            }
            let opened = match made.remove(number) {
                Some(opened) => Some(opened),
                None => self.open_segment(*number)?,
            };
            let Some(mut opened) = opened else {
                let damage = self.unreadable(*number);
                search.has_gone |= damage.is_none();
                search.summary.damaged.extend(damage);
                continue;
            };
            search.end = opened.index.identity.position + opened.index.bytes;
            let at = StoreError::at(&opened.path);
            let places = search.places(&mut opened, is_scan, self.seed).map_err(at)?;
            if self.keeps_little {
                opened.let_go();
            }
            search.summary.segments += 1;
            if opened.lacks_index {
                search.summary.segments_without_index.push(*number);
            }
            search.summary.damaged.extend(opened.damage);
            let at = StoreError::at(&opened.path);
            if search.show(&mut opened, &places, &mut self.interfaces).map_err(at)?.is_break() {
                search.summary.is_broken_off = true;
                break;
            }
        }
        Ok(search)
    }

    /// Visits the events of these segments, if they still exist.
    pub(crate) fn events_of(
        &self,
        segments: &BTreeSet<u64>,
        visit: &mut dyn FnMut(StoredEvent),
    ) -> Result<(), StoreError> {
        for number in segments {
            if self.is_unwanted.load(Ordering::Acquire) {
                break;
            }
            if let (Some(pinned), true) = (&self.pinned, *number & PINNED != 0) {
                pinned.events_of(&BTreeSet::from([*number & !PINNED]), visit)?;
                continue;
            }
            let Some(mut opened) = self.open_segment(*number)? else { continue };
            let events = match opened.index.events() {
                Ok(events) => events,
                Err(Damaged) => {
                    opened.look_through(self.seed).map_err(StoreError::at(&opened.path))?;
                    opened.index.events().unwrap_or_default()
                }
            };
            events.into_iter().for_each(&mut *visit);
        }
        Ok(())
    }

    fn open_segment(&self, number: u64) -> Result<Option<Opened>, StoreError> {
        Opened::open(&self.directory, number, self.seed).map_err(StoreError::at(&self.directory))
    }

    /// The damage of a file whose beginning is unreadable, if it has an index or a journal. A
    /// foreign capture has neither.
    fn unreadable(&self, number: u64) -> Option<Damage> {
        let path = |kind| files::path(&self.directory, number, kind);
        let about = SEGMENTS.into_iter().find_map(|kind| fs::metadata(path(kind)).ok());
        let bytes = about?.len();
        let is_ours = path(Kind::Index).exists() || path(Kind::Journal).exists() && bytes > 0;
        is_ours.then_some(Damage { segment: number, packets: None, bytes })
    }

    /// The spans of the flows that meet each condition about names. Segments that were read whole for that are
    /// left in `made`.
    fn spans(
        &self,
        numbers: &[u64],
        query: &Query,
        options: FindOptions,
        is_scan: bool,
        made: &mut HashMap<u64, Opened>,
    ) -> Result<(Vec<Spans>, BTreeSet<u64>), StoreError> {
        let mut spans: Vec<Spans> = query.terms.iter().map(|_| Spans::new(self.seed)).collect();
        let (mut runs, mut ends) = (BTreeSet::new(), Vec::new());
        let asked = Asked { query, options, is_scan };
        thread::scope(|scope| {
            let (sender, read) = sync_channel(READ_AHEAD);
            let reads = move || self.read_notes(numbers, asked, &sender);
            let reader = thread::Builder::new().name("find-ahead".into());
            reader.spawn_scoped(scope, reads).map_err(StoreError::at(&self.directory))?;
            for segment in read {
                let OfSegment { number, notes, opened } = segment?;
                let run = opened.index.identity.run;
                runs.insert(run);
                notes.named.iter().for_each(|(term, flow)| spans[*term].add(*flow, run));
                ends.extend(notes.ends.iter().map(|flow| (*flow, run)));
                if opened.flows.is_some() && made.len() < MADE_MAX {
                    made.insert(number, opened);
                }
            }
            Ok(())
        })?;
        for of_term in &mut spans {
            of_term.end_runs(&runs);
            ends.iter().for_each(|(flow, run)| of_term.limit(*flow, *run));
        }
        Ok((spans, runs))
    }
}

impl Search<'_, '_> {
    /// Visits the packets at these places.
    fn show(
        &mut self,
        opened: &mut Opened,
        places: &[Place],
        interfaces: &mut Vec<Interface>,
    ) -> io::Result<ControlFlow<()>> {
        if places.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let numbers = opened.interfaces(interfaces)?;
        let identity = opened.index.identity;
        let is_sparse = places.len() as u64 * SPARSE_BYTES < opened.bytes;
        opened.expect(places.iter().map(|(place, _)| *place));
        let mut buffer = Vec::new();
        let mut lost = 0;
        let mut flow = ControlFlow::Continue(());
        for (at, (place, part)) in places.iter().enumerate() {
            // A packet that matches in several parts of time occurs as often.
            let is_first = at == 0 || places[at - 1].0 != *place;
            if at % STOP_PACKETS == 0 && self.is_unwanted.load(Ordering::Acquire) {
                flow = ControlFlow::Break(());
                break;
            }
            let offset = u64::from(*place) * PLACE_BYTES;
            // Damage affects only the packets that it touches: each of the others is found by its
            // own place.
            let Some(block) = opened.block(offset, is_sparse, &mut buffer)? else {
                lost += u64::from(is_first);
                continue;
            };
            let is_other =
                |packet: &block::PacketBlock<'_>| self.query.part_of(packet.ts_ns) != *part;
            if block::packet(block).is_some_and(|packet| is_other(&packet)) {
                continue;
            }
            let at = (identity.number, identity.position + offset);
            match self.show_one(block, at, &numbers, interfaces) {
                ControlFlow::Continue(is_packet) => lost += u64::from(!is_packet && is_first),
                ControlFlow::Break(()) => {
                    flow = ControlFlow::Break(());
                    break;
                }
            }
        }
        // The damage of a segment that was read whole is already counted.
        if lost > 0 && opened.damage.is_none() {
            let damage = Damage { segment: identity.number, packets: Some(lost), bytes: 0 };
            self.summary.damaged.push(damage);
        }
        Ok(flow)
    }

    /// Visits the packet of a block, if it is one; `at`: number of the segment, position.
    fn show_one(
        &mut self,
        block: &[u8],
        at: (u64, u64),
        numbers: &[u32],
        interfaces: &[Interface],
    ) -> ControlFlow<(), bool> {
        let Some(packet) = block::packet(block) else { return ControlFlow::Continue(false) };
        let Some(interface) = numbers.get(packet.interface as usize) else {
            return ControlFlow::Continue(false);
        };
        if !self.options.wants_time(packet.ts_ns) {
            return ControlFlow::Continue(true);
        }
        self.summary.packets += 1;
        self.summary.bytes += packet.frame.len() as u64;
        (self.visit)(FoundPacket {
            position: at.1,
            segment: at.0,
            ts_ns: packet.ts_ns,
            interface: *interface,
            interfaces,
            original_len: packet.original_len,
            frame: packet.frame,
        })
        .map_continue(|()| true)
    }
}
