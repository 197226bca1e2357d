//! Makes the index of a segment.

use larder_wire::Addr;

use super::{
    ADDRESS_BYTES, ADDRESSES, ENDS, FLOW_BYTES, FLOWS, HEADER_BYTES, MAGIC, NAME_BYTES, NAMELESS,
    NAMES, PAGE_BYTES, POSTINGS, SECTIONS, TEXTS, turned,
};
use crate::FlowKey;
use crate::files::Identity;
use crate::flows::Flows;
use crate::journal::{self, StoredNote};

/// The octets of an index; `bytes`: of the segment.
pub(crate) fn build(
    identity: &Identity,
    bytes: u64,
    flows: &Flows,
    notes: &[StoredNote],
) -> Vec<u8> {
    let mut order: Vec<u32> =
        (0..flows.list.len() as u32).filter(|flow| flows.list[*flow as usize].count > 0).collect();
    order.sort_unstable_by_key(|flow| order_of(&flows.list[*flow as usize].key));
    let addresses = addresses(flows, &order);
    let mut sections: [Vec<u8>; SECTIONS] = Default::default();
    put_flows(&mut sections, flows, &order, &addresses);
    put_addresses(&mut sections, flows, &order, &addresses);
    put_names(&mut sections, notes);
    seal(identity, bytes, flows, sections)
}

/// What flows are sorted by.
pub(super) fn order_of(key: &FlowKey) -> ([u8; 16], [u8; 16], u16, u16, u8) {
    (key.low.0, key.high.0, key.low_port, key.high_port, key.protocol)
}

fn addresses(flows: &Flows, order: &[u32]) -> Vec<Addr> {
    let keys = order.iter().map(|flow| &flows.list[*flow as usize].key);
    let mut addresses: Vec<Addr> = keys.flat_map(|key| [key.low, key.high]).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn index_of(addresses: &[Addr], addr: &Addr) -> u32 {
    addresses.binary_search(addr).expect("each end of a flow is among the addresses") as u32
}

fn put_flows(sections: &mut [Vec<u8>; SECTIONS], flows: &Flows, order: &[u32], addresses: &[Addr]) {
    let (starts, places) = grouped(flows);
    for &flow in order {
        let key = &flows.list[flow as usize].key;
        let postings = sections[POSTINGS].len() as u32;
        let out = &mut sections[FLOWS];
        out.extend_from_slice(&index_of(addresses, &key.low).to_le_bytes());
        out.extend_from_slice(&index_of(addresses, &key.high).to_le_bytes());
        out.extend_from_slice(&key.low_port.to_le_bytes());
        out.extend_from_slice(&key.high_port.to_le_bytes());
        out.extend_from_slice(&[key.protocol, 0, 0, 0]);
        out.extend_from_slice(&postings.to_le_bytes());
        let range = starts[flow as usize]..starts[flow as usize + 1];
        put_list(&mut sections[POSTINGS], &places[range]);
    }
}

/// Places of all packets, flow by flow, and where each flow's begin.
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

fn put_addresses(
    sections: &mut [Vec<u8>; SECTIONS],
    flows: &Flows,
    order: &[u32],
    addresses: &[Addr],
) {
    let mut ends: Vec<(u32, u32)> = order
        .iter()
        .enumerate()
        .map(|(at, flow)| (index_of(addresses, &flows.list[*flow as usize].key.high), at as u32))
        .collect();
    ends.sort_unstable();
    let mut first = 0;
    let mut rest = &ends[..];
    for (number, addr) in addresses.iter().enumerate() {
        while order.get(first).is_some_and(|flow| flows.list[*flow as usize].key.low < *addr) {
            first += 1;
        }
        let count = rest.iter().take_while(|(addr, _)| *addr == number as u32).count();
        let (own, after) = rest.split_at(count);
        rest = after;
        let out = &mut sections[ADDRESSES];
        out.extend_from_slice(&addr.0);
        out.extend_from_slice(&(first as u32).to_le_bytes());
        let ends = sections[ENDS].len() as u32;
        sections[ADDRESSES].extend_from_slice(&ends.to_le_bytes());
        let own: Vec<u32> = own.iter().map(|(_, flow)| *flow).collect();
        put_list(&mut sections[ENDS], &own);
    }
    debug_assert_eq!(sections[ADDRESSES].len(), addresses.len() * ADDRESS_BYTES);
    debug_assert_eq!(sections[FLOWS].len(), order.len() * FLOW_BYTES);
}

fn put_names(sections: &mut [Vec<u8>; SECTIONS], notes: &[StoredNote]) {
    let mut names = Vec::new();
    for note in notes {
        let at = sections[TEXTS].len() as u32;
        journal::put_note(&mut sections[TEXTS], note);
        names.extend(
            note.names.iter().map(|(role, name)| (turned(name.as_bytes()), *role as u8, at)),
        );
        if note.names.is_empty() {
            names.push((Vec::new(), NAMELESS, at));
        }
    }
    names.sort_unstable();
    let mut before: Option<(&[u8], u32)> = None;
    for (text, role, note) in &names {
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
        out.extend_from_slice(&note.to_le_bytes());
    }
    debug_assert_eq!(sections[NAMES].len(), names.len() * NAME_BYTES);
}

/// Puts header, sections and checksums together.
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

/// Appends a count and the distances of an ascending list.
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
