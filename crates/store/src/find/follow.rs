//! Follows the store: finds packets as they come.
//!
//! ```text
//! older segments    as in a search
//! the last one      length of the file -> events of the journal -> blocks up to that length -> again, until it is closed
//! the next one      when the previous one is closed and was read to its end
//! ```
//!
//! Packets come in order of position, with one exception: a flow that gets its name after it began.
//! Its earlier packets in the same segment are shown when the name is known. Fragments that came
//! before the first one of their datagram are shown if their address is searched, else not.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::notes::{Asked, Notes, terms_of};
use super::places::Facts;
use super::segment::{found, number_of, open_closed};
use super::{Damage, FindOptions, Finder, Search, Summary, Visit};
use crate::FlowKey;
use crate::block::{self, Interface, PLACE_BYTES, Walker};
use crate::files::{self, Identity, Kind};
use crate::flows::Flows;
use crate::index::Index;
use crate::journal::{self, StoredEvent};
use crate::options::StoreError;
use crate::query::Query;
use crate::source::Source;

/// Interval at which the file is checked for more.
pub const POLL_MS: u64 = 50;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// A segment that is followed.
struct Tail {
    identity: Identity,
    source: Source,
    growing: PathBuf,
    /// Its events, while they are in a journal, and the bytes of an incomplete frame.
    journal: Option<File>,
    frames: Vec<u8>,
    /// The journal's header was read.
    has_header: bool,
    read: u64,
    walker: Walker,
    flows: Flows,
    /// The number of each of its interfaces among all.
    interfaces: Vec<u32>,
    /// Places that were shown.
    shown: HashSet<u32>,
}

impl Finder {
    /// Visits the existing matches and then new ones, until the visitor or `idle` stops it. `idle`
    /// is called whenever there is nothing new, before the thread sleeps for [`POLL_MS`].
    pub fn follow(
        &mut self,
        query: &Query,
        options: FindOptions,
        idle: &mut dyn FnMut() -> ControlFlow<()>,
        visit: &mut Visit<'_>,
    ) -> Result<Summary, StoreError> {
        let (before, _) = self.run_pinned(query, options, visit, false, 0)?;
        if before.is_broken_off {
            return Ok(before);
        }
        let numbers = self.numbers()?;
        let older = 0..numbers.len().saturating_sub(1);
        let mut search = self.search(&numbers, older, query, options, visit, false)?;
        search.summary.add(before);
        let mut next = numbers.last().copied().unwrap_or(0);
        let mut interfaces = std::mem::take(&mut self.interfaces);
        let mut tail: Option<Tail> = None;
        while !search.summary.is_broken_off {
            let is_over = match &mut tail {
                Some(tail) => tail
                    .read_on(&mut search, &mut interfaces)
                    .map_err(StoreError::at(&self.directory))?,
                None => true,
            };
            if is_over {
                search.summary.damaged.extend(tail.as_ref().and_then(Tail::damage));
                next = tail.take().map_or(next, |tail| tail.identity.number + 1);
                tail = self.next_tail(next, &mut search)?;
            }
            let has_more = is_over && tail.is_some();
            if !has_more && !search.summary.is_broken_off {
                if idle().is_break() {
                    break;
                }
                thread::sleep(Duration::from_millis(POLL_MS));
            }
        }
        self.interfaces = interfaces;
        Ok(search.summary)
    }

    /// The first readable segment from number `next` on.
    fn next_tail(
        &self,
        next: u64,
        search: &mut Search<'_, '_>,
    ) -> Result<Option<Tail>, StoreError> {
        for number in self.numbers()?.into_iter().filter(|number| *number >= next) {
            let tail = self.tail(number, search).map_err(StoreError::at(&self.directory))?;
            if let Some(tail) = tail {
                search.summary.segments += 1;
                return Ok(Some(tail));
            }
        }
        Ok(None)
    }

    fn tail(&self, number: u64, search: &mut Search<'_, '_>) -> io::Result<Option<Tail>> {
        let growing = files::path(&self.directory, number, Kind::Growing);
        let journal = files::path(&self.directory, number, Kind::Journal);
        // The journal first: it is deleted last.
        let journal = found(File::open(journal))?;
        let source = match found(Source::open(&growing, Kind::Growing))? {
            Some(source) => Some(source),
            None => open_closed(&self.directory, number)?.map(|(_, source)| source),
        };
        let Some(mut source) = source else { return Ok(None) };
        let identity = source.own_identity()?.filter(|found| found.number == number);
        let Some(identity) = identity else { return Ok(None) };
        if search.runs.insert(identity.run) {
            search.spans.iter_mut().for_each(|spans| spans.end_run(identity.run));
        }
        let asked = Asked { query: search.query, options: search.options, is_scan: false };
        if journal.is_none()
            && let Ok(Ok(index)) = Index::open(&files::path(&self.directory, number, Kind::Index))
            && let Ok(events) = Notes::read(&index, asked)
        {
            let named = &events.named;
            named.iter().for_each(|(term, flow)| search.spans[*term].add(*flow, identity.run));
            for spans in &mut search.spans {
                events.ends.iter().for_each(|flow| spans.limit(*flow, identity.run));
            }
        }
        Ok(Some(Tail {
            identity,
            source,
            growing,
            journal,
            frames: Vec::new(),
            has_header: false,
            read: 0,
            walker: Walker::default(),
            flows: Flows::new(self.seed),
            interfaces: Vec::new(),
            shown: HashSet::new(),
        }))
    }
}

impl Tail {
    /// The unreadable part: everything after bytes that are no block.
    fn damage(&self) -> Option<Damage> {
        let lost = self.source.lost_bytes();
        let bytes = self.read - self.walker.offset() + lost;
        let segment = self.identity.number;
        (self.walker.is_lost() || lost > 0).then_some(Damage { segment, packets: None, bytes })
    }

    /// Shows new matches; true when no more will come.
    fn read_on(
        &mut self,
        search: &mut Search<'_, '_>,
        interfaces: &mut Vec<Interface>,
    ) -> io::Result<bool> {
        // In this order: a closed file has its final length, and the packets in the file have their
        // events.
        let is_closed = fs::symlink_metadata(&self.growing).is_err();
        let bytes = self.source.bytes()?;
        self.read_events(search, interfaces)?;
        let mut buffer = vec![0; READ_BYTES];
        while self.read < bytes && !search.summary.is_broken_off {
            let wanted = usize::try_from(bytes - self.read).unwrap_or(READ_BYTES).min(READ_BYTES);
            let read = self.source.read_at(&mut buffer[..wanted], self.read)?;
            if read == 0 {
                break;
            }
            self.read += read as u64;
            self.show(&buffer[..read], search, interfaces);
        }
        Ok(is_closed)
    }

    /// Reads new events, and shows the earlier packets of the flows that they name.
    fn read_events(
        &mut self,
        search: &mut Search<'_, '_>,
        interfaces: &[Interface],
    ) -> io::Result<()> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.read_to_end(&mut self.frames)?;
        if !self.has_header {
            if self.frames.len() < journal::HEADER_BYTES {
                return Ok(());
            }
            self.frames.drain(..journal::HEADER_BYTES);
            self.has_header = true;
        }
        let mut at = 0;
        let mut named = Vec::new();
        while let Some((event, used)) = journal::next(&self.frames[at..]) {
            at += used;
            let terms: Vec<usize> = terms_of(&event, search.query, search.options).collect();
            for (term, spans) in search.spans.iter_mut().enumerate() {
                match terms.contains(&term) {
                    true => spans.add(event.span(), self.identity.run),
                    false => spans.limit(event.span(), self.identity.run),
                }
            }
            named.extend(terms.into_iter().map(|term| (term, event.clone())));
        }
        self.frames.drain(..at);
        for (term, event) in named {
            self.show_passed(term, &event, search, interfaces)?;
        }
        Ok(())
    }

    /// Shows packets of a flow that came before the name of a term.
    fn show_passed(
        &mut self,
        term: usize,
        event: &StoredEvent,
        search: &mut Search<'_, '_>,
        interfaces: &[Interface],
    ) -> io::Result<()> {
        if let Some(scope) = event.scope
            && self.flows.find(&FlowKey { scope, ..event.key }).is_none()
        {
            return Ok(());
        }
        let position = self.identity.position;
        let Some(span) = search.spans[term].of_event(event) else { return Ok(()) };
        let first = span.first.saturating_sub(position) / PLACE_BYTES;
        let start = self.flows.packets.partition_point(|(_, place)| u64::from(*place) < first);
        for &(of, place) in &self.flows.packets[start..] {
            let offset = u64::from(place) * PLACE_BYTES;
            if position + offset >= span.end {
                break;
            }
            let key = self.flows.list[of as usize].key;
            if !event.is_of(&key) || self.shown.contains(&place) {
                continue;
            }
            let mut head = [0; 8];
            self.source.read_at(&mut head, offset)?;
            let mut bytes = vec![0; block::word(&head, 4).unwrap_or(0).min(16 << 20) as usize];
            self.source.read_at(&mut bytes, offset)?;
            let at = (self.identity.number, position + offset);
            let part = search.query.part_of(block::packet(&bytes).map_or(0, |packet| packet.ts_ns));
            let facts = Facts { key: Some(&key), position: at.1, part };
            if !search.matches(facts, &mut |term| has_extra(search, &self.flows, place, term)) {
                continue;
            }
            self.shown.insert(place);
            if search.show_one(&bytes, at, &self.interfaces, interfaces).is_break() {
                search.summary.is_broken_off = true;
                break;
            }
        }
        Ok(())
    }

    /// Shows the matches in the next bytes.
    fn show(&mut self, bytes: &[u8], search: &mut Search<'_, '_>, interfaces: &mut Vec<Interface>) {
        let Tail { identity, walker, flows, interfaces: numbers, shown, .. } = self;
        walker.feed(bytes, |offset, bytes| {
            if let Some(interface) = block::interface(bytes) {
                numbers.push(number_of(interface, interfaces));
            }
            let flow = flows.block(offset, bytes);
            let place = (offset / PLACE_BYTES) as u32;
            let position = identity.position + offset;
            let Some(packet) = block::packet(bytes) else { return };
            let key = flow.map(|flow| flows.list[flow as usize].key);
            let part = search.query.part_of(packet.ts_ns);
            let facts = Facts { key: key.as_ref(), position, part };
            let is_wanted =
                search.matches(facts, &mut |term| has_extra(search, flows, place, term));
            if !is_wanted || search.summary.is_broken_off {
                return;
            }
            shown.insert(place);
            let at = (identity.number, position);
            if search.show_one(bytes, at, numbers, interfaces).is_break() {
                search.summary.is_broken_off = true;
            }
        });
    }
}

/// Whether the packet at a place has an address of a term in a header other than its flow's.
fn has_extra(search: &Search<'_, '_>, flows: &Flows, place: u32, term: usize) -> bool {
    flows.extras.of(place).any(|addr| search.query.has_address(term, addr))
}
