//! Names of the flows of a run, from all events so far.
//!
//! A flow may last over many segments, and the one with its names is deleted first. So each index
//! has the events of its segment, and again the merged events of all flows with packets in it.
//!
//! Bounds: [`FLOWS_MAX`] flows are carried over from a segment to the next; those without packets
//! for longest are forgotten (and counted). Their packets in later segments are then found by name
//! only while an older segment exists.

use std::collections::HashMap;

use crate::FlowKey;
use crate::block::PLACE_BYTES;
use crate::flows::Flows;
use crate::journal::{StoredEvent, fits};

/// Flows that are carried over: some 100 MB with names of usual lengths.
const FLOWS_MAX: usize = 1 << 18;

#[derive(Debug, Default)]
pub(crate) struct FlowNames {
    /// Flows of a key by their first packets: a client that uses a port again and again may make
    /// many flows of it in one segment.
    flows: HashMap<[u8; 37], Vec<Known>>,
    /// Flows that were not carried over.
    pub forgotten: u64,
}

#[derive(Debug)]
struct Known {
    event: StoredEvent,
    /// An event of it came with this segment.
    is_new: bool,
    /// Position of its last event or packet.
    seen: u64,
}

/// The index of the flow that begins at `first`, or its place if there is none.
fn place_of(known: &[Known], first: u64) -> Result<usize, usize> {
    known.binary_search_by_key(&first, |known| known.event.first)
}

/// The bytes of a key without its network, for maps.
pub(crate) fn key_bytes(key: &FlowKey) -> [u8; 37] {
    let mut out = [0; 37];
    out[..16].copy_from_slice(&key.low.0);
    out[16..32].copy_from_slice(&key.high.0);
    out[32..34].copy_from_slice(&key.low_port.to_le_bytes());
    out[34..36].copy_from_slice(&key.high_port.to_le_bytes());
    out[36] = key.protocol;
    out
}

impl FlowNames {
    /// Adds an event of the segment that is being written.
    pub fn take(&mut self, event: StoredEvent) {
        self.put(event, true);
    }

    /// Adds an event of an earlier segment of this run.
    pub fn remember(&mut self, event: StoredEvent) {
        self.put(event, false);
    }

    fn put(&mut self, event: StoredEvent, is_new: bool) {
        let known = self.flows.entry(key_bytes(&event.key)).or_default();
        match place_of(known, event.first) {
            Ok(at) => {
                known[at].event.add(&event);
                known[at].is_new |= is_new;
            }
            Err(at) => known.insert(at, Known { seen: event.first, event, is_new }),
        }
    }

    /// True when the segment that is being written has events.
    pub fn has_news(&self) -> bool {
        self.flows.values().flatten().any(|known| known.is_new)
    }

    /// The events for the index of a segment that begins at `position` and has these flows.
    pub fn of_segment(&self, position: u64, flows: &Flows) -> Vec<StoredEvent> {
        let mut events: Vec<StoredEvent> = self
            .flows
            .values()
            .flatten()
            .filter(|known| known.is_new)
            .map(|known| known.event.clone())
            .collect();
        for (known, _) in self.present(position, flows) {
            if !known.is_new {
                events.push(known.event.clone());
            }
        }
        events.sort_unstable_by_key(|event| (event.first, key_bytes(&event.key)));
        // An event of all networks was found in each.
        events.dedup_by_key(|event| (event.first, key_bytes(&event.key)));
        events
    }

    /// Flows that may have packets in the segment, and a position after the last of them.
    fn present<'a>(
        &'a self,
        position: u64,
        flows: &'a Flows,
    ) -> impl Iterator<Item = (&'a Known, u64)> {
        let place = move |place: u32| position + u64::from(place) * PLACE_BYTES;
        flows.list.iter().filter(|flow| flow.count > 0).flat_map(move |flow| {
            let known = self.flows.get(&key_bytes(&flow.key)).map_or(&[][..], |known| known);
            known.iter().filter_map(move |known| {
                let is_before = known.event.end.is_some_and(|end| end <= place(flow.first));
                let is_its = fits(known.event.scope, flow.key.scope);
                (is_its && !is_before && known.event.first <= place(flow.last))
                    .then_some((known, place(flow.last)))
            })
        })
    }

    /// Closes the segment, which ends at `end`.
    pub fn close(&mut self, position: u64, end: u64, flows: &Flows) {
        let seen: Vec<([u8; 37], u64, u64)> = self
            .present(position, flows)
            .map(|(known, last)| (key_bytes(&known.event.key), known.event.first, last))
            .collect();
        for (key, first, last) in seen {
            if let Some(known) = self.flows.get_mut(&key)
                && let Ok(at) = place_of(known, first)
            {
                known[at].seen = last;
            }
        }
        self.flows.retain(|_, known| {
            known.retain_mut(|known| {
                known.is_new = false;
                known.event.end.is_none_or(|ended| ended > end)
            });
            !known.is_empty()
        });
        if self.flows.len() > FLOWS_MAX {
            let latest = |known: &[Known]| known.iter().map(|known| known.seen).max();
            let mut seen: Vec<_> = self.flows.values().map(|known| latest(known)).collect();
            let excess = seen.len() - FLOWS_MAX;
            let (_, least, _) = seen.select_nth_unstable(excess);
            let least = *least;
            let before = self.flows.len();
            self.flows.retain(|_, known| latest(known) >= least);
            self.forgotten += (before - self.flows.len()) as u64;
        }
    }
}
