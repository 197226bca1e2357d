//! Packets that outlive their segment: what a query matches is copied to a store of its own, with
//! its own budget, before the segment is deleted.
//!
//! ```text
//! the disk writer is about to delete segment N
//!   -> find (names of all segments, packets of N) -> DIR/pinned, a store of the same form
//!   -> wait until they are in its files           -> segment N is deleted
//! Finder::open(DIR)  finds in DIR/pinned first, then in DIR
//! ```
//!
//! A flow of which several segments have packets is several flows in the pinned store, one for each
//! segment, with the same names.
//!
//! Invariants
//! 1. A matching packet is deleted only after it is in a file of the pinned store, or was counted
//!    as not pinned: the disk failed, or made no progress for [`PATIENCE`].
//! 2. A packet is found once, except while its segment is being deleted, and after a kill at that
//!    moment.
//!
//! Bounds: the budget; the keys and positions of the matching packets of one segment. Cost: a
//! search of one segment, and a copy of what it finds, in the thread of the disk writer.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use larder_wire::capture::write;
use larder_wire::flow_key::FlowKey;
use larder_wire::packet;

use crate::block::Interface;
use crate::files;
use crate::find::{FindOptions, Finder, FoundPacket};
use crate::flow_event::{Batch, FlowEvent};
use crate::options::{Options, PinOptions, Reserve, StoreError};

/// Bytes of a batch, about.
const BATCH_BYTES: usize = 2 << 20;

/// Memory for packets on their way to the pinned store.
const MEMORY_BYTES: u64 = 16 << 20;

/// How long a disk may make no progress.
const PATIENCE: Duration = Duration::from_secs(10);

/// The store that takes pinned packets.
pub(crate) trait PinnedStore: fmt::Debug + Send {
    /// See [`Store`](crate::Store).
    fn append(&mut self, batch: &Batch<'_>) -> Result<(), StoreError>;
    /// See [`Store`](crate::Store).
    fn wait_for_room(&self, bytes: u64, patience: Duration) -> bool;
    /// A number that grows when packets are dropped or lost.
    fn losses(&self) -> u64;
    /// Waits until all that was appended is in files; false when something was lost since there were
    /// `losses`, or when the disk made no progress for `patience`.
    fn wait_until_written(&mut self, losses: u64, patience: Duration) -> bool;
    /// See [`Store`](crate::Store).
    fn finish(self: Box<Self>) -> Result<(), StoreError>;
}

/// Opens the store for pinned packets.
pub(crate) type OpenStore = fn(Options, &[Interface]) -> Result<Box<dyn PinnedStore>, StoreError>;

/// Copies packets. It is the disk writer's.
#[derive(Debug)]
pub(crate) struct Pins {
    pins: PinOptions,
    /// Of the pinned store.
    options: Options,
    directory: PathBuf,
    open_store: OpenStore,
    open: Option<Open>,
}

/// The pinned store, once there was something to pin.
#[derive(Debug)]
struct Open {
    store: Box<dyn PinnedStore>,
    interfaces: Vec<Interface>,
    /// The number of the next packet.
    next: u64,
}

/// What was pinned of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub packets: u64,
    /// Packets that matched and are not in a file.
    pub failed: u64,
}

/// The packets of a segment that are pinned.
#[derive(Default)]
struct Chosen {
    /// Their positions, in order.
    positions: Vec<u64>,
    /// For each flow, its packets as indexes in `positions`, and how many more there are.
    by_key: HashMap<FlowKey, Vec<u32>>,
}

impl Pins {
    /// Pins packets of the store with these options.
    pub fn new(main: &Options, open_store: OpenStore) -> Option<Pins> {
        let pins = main.pins.clone()?;
        let options = Options {
            directory: files::pinned(&main.directory),
            budget_bytes: pins.budget_bytes,
            memory_bytes: MEMORY_BYTES,
            // They were made less when they were stored.
            privacy: Default::default(),
            age: None,
            // Space is short when segments are deleted for the reserve, and pins would be deleted first.
            reserve: Reserve::default(),
            // It has seen the whole segment.
            hook: None,
            pins: None,
            ..main.clone()
        };
        let directory = main.directory.clone();
        Some(Pins { pins, options, directory, open_store, open: None })
    }

    /// Copies the matching packets of a segment.
    pub fn take(&mut self, number: u64) -> Result<Pinned, StoreError> {
        let mut finder = Finder::open_alone(&self.directory)?;
        let mut chosen = Chosen::default();
        let most = self.pins.packets_of_flow as usize;
        let mut of_flow: HashMap<FlowKey, usize> = HashMap::new();
        let mut interfaces = Vec::new();
        self.search(&mut finder, number, &mut |found| {
            let key = packet::decode(found.link_type(), found.frame).ok();
            let key = key.map(|packet| FlowKey::of(&packet).0);
            if let Some(key) = key {
                let seen = of_flow.entry(key).or_default();
                *seen += 1;
                if *seen > most {
                    return;
                }
                let index = chosen.positions.len() as u32;
                chosen.by_key.entry(key).or_default().push(index);
            }
            chosen.positions.push(found.position);
            interfaces.extend_from_slice(&found.interfaces[interfaces.len()..]);
        })?;
        if chosen.positions.is_empty() {
            return Ok(Pinned::default());
        }
        let packets = chosen.positions.len() as u64;
        let failed = |_: StoreError| Pinned { packets: 0, failed: packets };
        // An error of the pinned store is no reason to keep the segment.
        Ok(self.copy(&mut finder, number, &chosen, &interfaces).unwrap_or_else(failed))
    }

    fn search(
        &self,
        finder: &mut Finder,
        number: u64,
        visit: &mut dyn FnMut(&FoundPacket<'_>),
    ) -> Result<(), StoreError> {
        // Names that were candidates only are not those that the log shows.
        let options = FindOptions::default();
        finder.find_in(number, &self.pins.query, options, &mut |found| {
            visit(&found);
            ControlFlow::Continue(())
        })
    }

    fn copy(
        &mut self,
        finder: &mut Finder,
        number: u64,
        chosen: &Chosen,
        interfaces: &[Interface],
    ) -> Result<Pinned, StoreError> {
        let mut open = self.open(interfaces)?;
        let (first, losses) = (open.next, open.store.losses());
        let (mut begins, ends) = events(finder, number, chosen, first)?;
        begins.sort_by_key(|event| event.first_packet);
        let mut begins = begins.into_iter().peekable();
        let (mut blocks, mut offsets, mut wanted) = (Vec::new(), Vec::new(), 0);
        let mut result = Ok(());
        let mut append = |open: &mut Open, blocks: &mut Vec<u8>, offsets: &mut Vec<u32>| {
            let next = open.next + offsets.len() as u64;
            let mut events = Vec::new();
            while let Some(event) = begins.next_if(|event| event.first_packet < next) {
                events.push(event);
            }
            open.store.wait_for_room(blocks.len() as u64, PATIENCE);
            let batch = Batch { blocks, offsets, first_packet: open.next, events: &events };
            let appended = open.store.append(&batch);
            open.next = next;
            blocks.clear();
            offsets.clear();
            appended
        };
        self.search(finder, number, &mut |found| {
            if chosen.positions.get(wanted) != Some(&found.position) || result.is_err() {
                return;
            }
            wanted += 1;
            let interface = &found.interfaces[found.interface as usize];
            let own = open.interfaces.iter().position(|known| known == interface);
            offsets.push(blocks.len() as u32);
            let own = own.unwrap_or(0) as u32;
            write::packet(&mut blocks, own, found.ts_ns, found.frame, found.original_len);
            if blocks.len() >= BATCH_BYTES {
                result = append(&mut open, &mut blocks, &mut offsets);
            }
        })?;
        result?;
        append(&mut open, &mut blocks, &mut offsets)?;
        let batch = Batch { blocks: &[], offsets: &[], first_packet: open.next, events: &ends };
        open.store.append(&batch)?;
        let packets = open.next - first;
        let is_written = open.store.wait_until_written(losses, PATIENCE);
        self.open = Some(open);
        Ok(match is_written {
            true => Pinned { packets, failed: chosen.positions.len() as u64 - packets },
            false => Pinned { packets: 0, failed: packets },
        })
    }

    /// The pinned store, with all of these interfaces.
    fn open(&mut self, interfaces: &[Interface]) -> Result<Open, StoreError> {
        let mut all = match self.open.take() {
            Some(open) if interfaces.iter().all(|one| open.interfaces.contains(one)) => {
                return Ok(open);
            }
            // Its interfaces are in the headers of its segments: it begins another run.
            Some(open) => {
                open.store.finish()?;
                open.interfaces
            }
            None => Vec::new(),
        };
        for interface in interfaces {
            if !all.contains(interface) {
                all.push(interface.clone());
            }
        }
        let store = (self.open_store)(self.options.clone(), &all)?;
        Ok(Open { store, interfaces: all, next: 1 })
    }
}

/// The names of the chosen flows: events of their beginning, and of their end in this segment.
/// `first`: the number of the first packet.
fn events(
    finder: &Finder,
    number: u64,
    chosen: &Chosen,
    first: u64,
) -> Result<(Vec<FlowEvent>, Vec<FlowEvent>), StoreError> {
    let end = first + chosen.positions.len() as u64;
    let (mut begins, mut ends) = (Vec::new(), Vec::new());
    // The keys of events have no network.
    let mut by_ends: HashMap<FlowKey, Vec<(&FlowKey, &Vec<u32>)>> = HashMap::new();
    for (key, packets) in &chosen.by_key {
        by_ends.entry(key.unscoped()).or_default().push((key, packets));
    }
    finder.events_of(&BTreeSet::from([number]), &mut |event| {
        let flows = by_ends.get(&event.key).into_iter().flatten();
        for (key, packets) in flows.filter(|(key, _)| event.is_of(key)) {
            let position = |index: &u32| chosen.positions[*index as usize];
            let begin = packets.partition_point(|index| position(index) < event.first);
            let behind =
                event.end.map(|end| packets.partition_point(|index| position(index) < end));
            let behind = behind.unwrap_or(packets.len());
            if begin >= behind || event.names.is_empty() {
                continue;
            }
            let number_of =
                |at: usize| packets.get(at).map_or(end, |index| first + u64::from(*index));
            let begun = FlowEvent {
                key: **key,
                first_packet: number_of(begin),
                start_ns: event.start_ns,
                end_packet: None,
                last_ns: event.last_ns,
                source_is_low: event.source_is_low,
                names: event.names.clone(),
                choices: event.choices,
            };
            let end_packet = Some(number_of(behind));
            ends.push(FlowEvent {
                end_packet,
                names: Vec::new(),
                choices: [None; 2],
                ..begun.clone()
            });
            begins.push(begun);
        }
    })?;
    Ok((begins, ends))
}
