//! Makes the index of a segment.

use super::{
    ADDRESSES, ENDS, EXTRAS, FLOWS, HEADER_BYTES, MAGIC, NAME_BYTES, NAMELESS, NAMES, OF_EXTRAS,
    PAGE_BYTES, POSTINGS, SECTIONS, TEXTS, reversed,
};
use crate::FlowKey;
use crate::files::Identity;
use crate::flows::Flows;
use crate::journal::{self, StoredEvent};

/// The bytes of an index; `bytes`: of the segment. `is_partial`: other names of these flows may be
/// in other indexes.
pub(crate) fn build(
    identity: &Identity,
    bytes: u64,
    flows: &Flows,
    events: &[StoredEvent],
    is_partial: bool,
) -> Vec<u8> {
    let entries = entries(flows);
    let mut sections: [Vec<u8>; SECTIONS] = Default::default();
    let ends = put_addresses(&mut sections, &entries);
    let scopes = put_scopes(&mut sections[TEXTS], &entries);
    put_flows(&mut sections, flows, &entries, &ends, &scopes);
    put_names(&mut sections, events, is_partial);
    put_extras(&mut sections, flows);
    seal(identity, bytes, flows, sections)
}

/// A flow in the form for sorting: numbers next to each other, since keys are scattered in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    low: u128,
    high: u128,
    /// Ports and protocol.
    rest: u64,
    scope: u64,
    flow: u32,
}

fn entries(flows: &Flows) -> Vec<Entry> {
    let flows = flows.list.iter().enumerate().filter(|(_, flow)| flow.count > 0);
    let mut entries: Vec<Entry> = flows
        .map(|(number, flow)| {
            let FlowKey { low, high, low_port, high_port, protocol, scope } = flow.key;
            Entry {
                low: u128::from_be_bytes(low.0),
                high: u128::from_be_bytes(high.0),
                rest: u64::from(low_port) << 24 | u64::from(high_port) << 8 | u64::from(protocol),
                scope: scope.bits(),
                flow: number as u32,
            }
        })
        .collect();
    entries.sort_unstable();
    entries
}

/// The sort key of flows.
pub(super) fn order_of(key: &FlowKey) -> ([u8; 16], [u8; 16], u16, u16, u8, u64) {
    (key.low.0, key.high.0, key.low_port, key.high_port, key.protocol, key.scope.bits())
}

/// Adds the networks at the beginning of the texts, and returns them, sorted.
fn put_scopes(texts: &mut Vec<u8>, entries: &[Entry]) -> Vec<u64> {
    let mut scopes: Vec<u64> =
        entries.iter().map(|entry| entry.scope).filter(|scope| *scope != 0).collect();
    scopes.sort_unstable();
    scopes.dedup();
    scopes.iter().for_each(|scope| texts.extend_from_slice(&scope.to_le_bytes()));
    scopes
}

/// Adds the addresses, and returns the indexes of each entry's low and high end.
fn put_addresses(sections: &mut [Vec<u8>; SECTIONS], entries: &[Entry]) -> Vec<[u32; 2]> {
    let mut highs: Vec<(u128, u32)> =
        entries.iter().enumerate().map(|(at, entry)| (entry.high, at as u32)).collect();
    highs.sort_unstable();
    let mut ends = vec![[0; 2]; entries.len()];
    let (mut first, mut rest, mut number) = (0, &highs[..], 0);
    let mut of_high = Vec::new();
    loop {
        // Both lists are sorted: the addresses are the merge of the two.
        let low = entries.get(first).map(|entry| entry.low);
        let addr = match (low, rest.first().map(|(high, _)| *high)) {
            (Some(low), Some(high)) => low.min(high),
            (low, high) => match low.or(high) {
                Some(addr) => addr,
                None => return ends,
            },
        };
        let offset = sections[ENDS].len() as u32;
        let out = &mut sections[ADDRESSES];
        out.extend_from_slice(&addr.to_be_bytes());
        out.extend_from_slice(&(first as u32).to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        while entries.get(first).is_some_and(|entry| entry.low == addr) {
            ends[first][0] = number;
            first += 1;
        }
        of_high.clear();
        while let Some(((high, at), after)) = rest.split_first()
            && *high == addr
        {
            ends[*at as usize][1] = number;
            of_high.push(*at);
            rest = after;
        }
        put_list(&mut sections[ENDS], &of_high);
        number += 1;
    }
}

fn put_flows(
    sections: &mut [Vec<u8>; SECTIONS],
    flows: &Flows,
    entries: &[Entry],
    ends: &[[u32; 2]],
    scopes: &[u64],
) {
    let (starts, places) = grouped(flows);
    for (entry, [low, high]) in entries.iter().zip(ends) {
        let postings = sections[POSTINGS].len() as u32;
        let out = &mut sections[FLOWS];
        out.extend_from_slice(&low.to_le_bytes());
        out.extend_from_slice(&high.to_le_bytes());
        out.extend_from_slice(&((entry.rest >> 24) as u16).to_le_bytes());
        out.extend_from_slice(&((entry.rest >> 8) as u16).to_le_bytes());
        // A segment has fewer packets than would make the number too large.
        let scope = scopes.partition_point(|scope| *scope < entry.scope) as u32;
        let scope = if entry.scope == 0 { 0 } else { scope + 1 };
        let [first, second, third, _] = scope.to_le_bytes();
        out.extend_from_slice(&[entry.rest as u8, first, second, third]);
        out.extend_from_slice(&postings.to_le_bytes());
        let flow = entry.flow as usize;
        put_list(&mut sections[POSTINGS], &places[starts[flow]..starts[flow + 1]]);
    }
}

/// Places of all packets, flow by flow, and the start of each flow's.
fn grouped(flows: &Flows) -> (Vec<usize>, Vec<u32>) {
    let mut starts = vec![0; flows.list.len() + 1];
    for (flow, about) in flows.list.iter().enumerate() {
        starts[flow + 1] = starts[flow] + about.count as usize;
    }
    let mut next = starts.clone();
    let mut places = vec![0; flows.packets.len()];
    for &(flow, place) in &flows.packets {
        places[next[flow as usize]] = place;
        next[flow as usize] += 1;
    }
    (starts, places)
}

fn put_names(sections: &mut [Vec<u8>; SECTIONS], events: &[StoredEvent], is_partial: bool) {
    let mut names = Vec::new();
    for event in events {
        let at = sections[TEXTS].len() as u32;
        journal::put_event(&mut sections[TEXTS], event);
        names.extend(
            event.names.iter().map(|(role, name)| (reversed(name.as_bytes()), *role as u8, at)),
        );
        if event.names.is_empty() || is_partial && event.end.is_some() {
            names.push((Vec::new(), NAMELESS, at));
        }
    }
    names.sort_unstable();
    let mut before: Option<(&[u8], u32)> = None;
    for (text, role, event) in &names {
        let at = match before {
            Some((same, at)) if same == &text[..] => at,
            _ => {
                let at = sections[TEXTS].len() as u32;
                sections[TEXTS].extend_from_slice(text);
                at
            }
        };
        before = Some((text, at));
        let out = &mut sections[NAMES];
        out.extend_from_slice(&at.to_le_bytes());
        out.extend_from_slice(&(text.len() as u16).to_le_bytes());
        out.extend_from_slice(&[*role, 0]);
        out.extend_from_slice(&event.to_le_bytes());
    }
    debug_assert_eq!(sections[NAMES].len(), names.len() * NAME_BYTES);
}

fn put_extras(sections: &mut [Vec<u8>; SECTIONS], flows: &Flows) {
    for (addr, places) in flows.extras.sorted() {
        let offset = sections[OF_EXTRAS].len() as u32;
        sections[EXTRAS].extend_from_slice(&addr.0);
        sections[EXTRAS].extend_from_slice(&offset.to_le_bytes());
        put_list(&mut sections[OF_EXTRAS], &places);
    }
}

/// Joins header, sections and checksums.
fn seal(identity: &Identity, bytes: u64, flows: &Flows, sections: [Vec<u8>; SECTIONS]) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    let times = [flows.least_ns.unwrap_or(0), flows.last_ns.unwrap_or(0)].map(|ns| ns as u64);
    let about = [identity.number, identity.position, identity.run, bytes, flows.count];
    for word in about.into_iter().chain(times) {
        header.extend_from_slice(&word.to_le_bytes());
    }
    let mut at = HEADER_BYTES as u64;
    for section in &sections {
        header.extend_from_slice(&at.to_le_bytes());
        header.extend_from_slice(&(section.len() as u64).to_le_bytes());
        at += section.len() as u64;
    }
    let body: Vec<u8> = sections.concat();
    let mut checksums: Vec<u8> =
        body.chunks(PAGE_BYTES).flat_map(|page| crc32fast::hash(page).to_le_bytes()).collect();
    let crc = crc32fast::hash(&checksums);
    checksums.extend_from_slice(&crc.to_le_bytes());
    header.extend_from_slice(&at.to_le_bytes());
    header.extend_from_slice(&(checksums.len() as u64).to_le_bytes());
    let crc = crc32fast::hash(&header);
    header.extend_from_slice(&crc.to_le_bytes());
    debug_assert_eq!(header.len(), HEADER_BYTES);
    [header, body, checksums].concat()
}

/// Appends a count and the differences of an ascending list.
fn put_list(out: &mut Vec<u8>, list: &[u32]) {
    put_varint(out, list.len() as u32);
    let mut before = 0;
    for &value in list {
        put_varint(out, value - before);
        before = value;
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
