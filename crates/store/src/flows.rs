//! The flow of each packet of a segment.
//!
//! One definition serves the disk writer, a start that closes a torn segment, the scan of a segment
//! that grows, and the slow scan. A packet's flow is its innermost 5-tuple. A later fragment
//! belongs to the flow of the first fragment of its datagram if that is in the same segment, and
//! else to (addresses, protocol, ports 0). Packets that are not IP, and damaged ones, have no flow.
//!
//! A packet also has [`Extras`]: addresses in its headers that are no end of its flow. A fragment
//! that completes its datagram has those of the datagram.
//!
//! Cost: some 40 ns a packet if flows have many, and 8 bytes; a flow has 60 bytes. A packet that is
//! not plain TCP or UDP is decoded twice.

use larder_wire::fragment::{Outcome, Reassembler};
use larder_wire::packet::{self, Packet};

use crate::FlowKey;
use crate::block::{self, PLACE_BYTES, PacketBlock};
use crate::extras::Extras;
use crate::table::Table;

/// Memory of fragments of incomplete datagrams.
const FRAGMENTS_BYTES_MAX: usize = 1 << 20;

/// A flow of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub key: FlowKey,
    hash: u64,
    /// Packets of it.
    pub count: u32,
    /// Place of its first packet.
    pub first: u32,
    /// Place of its last packet.
    pub last: u32,
}

/// The flows of a segment, as far as it was read.
#[derive(Debug)]
pub(crate) struct Flows {
    /// In order of their first packets.
    pub list: Vec<Flow>,
    /// Flow and place of each packet that has a flow, in order.
    pub packets: Vec<(u32, u32)>,
    /// Places of packets that have none, in order.
    pub without_flow: Vec<u32>,
    /// Addresses of packets that are no end of their flows.
    pub extras: Extras,
    /// All packets.
    pub count: u64,
    pub first_ns: Option<i64>,
    pub last_ns: Option<i64>,
    /// The earliest time, which need not be the first packet's.
    pub least_ns: Option<i64>,
    /// Link types of the interfaces.
    links: Vec<u16>,
    /// Indexes in `list`, by key.
    table: Table,
    seed: u64,
    fragments: Option<Reassembler>,
}

impl Flows {
    /// `seed` must be secret from senders of packets; results do not depend on it.
    pub fn new(seed: u64) -> Flows {
        Flows {
            list: Vec::new(),
            packets: Vec::new(),
            without_flow: Vec::new(),
            extras: Extras::default(),
            count: 0,
            first_ns: None,
            last_ns: None,
            least_ns: None,
            links: Vec::new(),
            table: Table::default(),
            seed,
            fragments: None,
        }
    }

    /// A seed for `new`.
    pub fn seed() -> u64 {
        let mut bytes = [0; 8];
        // Without it senders may attack the table; no result depends on it.
        let _ = larder_io::random::fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Adds the block at `offset`; returns the flow of its packet, as far as it is known.
    pub fn block(&mut self, offset: u64, bytes: &[u8]) -> Option<u32> {
        let Some(found) = block::packet(bytes) else {
            if let Some(link_type) = block::link_type(bytes) {
                self.links.push(link_type);
            }
            return None;
        };
        self.count += 1;
        self.first_ns.get_or_insert(found.ts_ns);
        self.last_ns = self.last_ns.max(Some(found.ts_ns));
        self.least_ns = Some(self.least_ns.map_or(found.ts_ns, |least| least.min(found.ts_ns)));
        let place = u32::try_from(offset / PLACE_BYTES).ok()?;
        let Some(&link_type) = self.links.get(found.interface as usize) else {
            self.without_flow.push(place);
            return None;
        };
        match packet::decode_plain(link_type, found.frame) {
            Some(plain) => Some(self.put(&plain, place)),
            None => self.rare(link_type, &found, place),
        }
    }

    /// Counts a packet under its flow.
    fn put(&mut self, decoded: &Packet, place: u32) -> u32 {
        let flow = self.flow(FlowKey::of(decoded).0);
        self.add(flow, place);
        self.packets.push((flow, place));
        flow
    }

    /// For a packet that may have more addresses than two, or be a fragment, or have no flow.
    #[inline(never)]
    fn rare(&mut self, link_type: u16, found: &PacketBlock<'_>, place: u32) -> Option<u32> {
        let decoded = packet::decode(link_type, found.frame).ok();
        let ends = decoded.map(|decoded| [decoded.src, decoded.dst]);
        self.extras.take(place, ends, |visit| packet::addresses(link_type, found.frame, visit));
        let Some(mut decoded) = decoded else {
            self.without_flow.push(place);
            return None;
        };
        if decoded.fragment.is_some() {
            self.join(&mut decoded, found.frame, found.ts_ns, place);
        }
        Some(self.put(&decoded, place))
    }

    /// The number of the flow with this key, which is added if it is new.
    fn flow(&mut self, key: FlowKey) -> u32 {
        let (list, hash) = (&mut self.list, key.hash(self.seed));
        let is_it =
            |number: u32| list[number as usize].hash == hash && list[number as usize].key == key;
        let hash_of = |number: u32| list[number as usize].hash;
        let number = self.table.find_or_add(hash, list.len(), is_it, hash_of);
        if number as usize == list.len() {
            list.push(Flow { key, hash, count: 0, first: u32::MAX, last: 0 });
        }
        number
    }

    /// The number of the flow with this key, if there is one.
    pub fn find(&self, key: &FlowKey) -> Option<u32> {
        self.table.find(key.hash(self.seed), |number| self.list[number as usize].key == *key)
    }

    fn add(&mut self, flow: u32, place: u32) {
        let flow = &mut self.list[flow as usize];
        flow.count += 1;
        flow.first = flow.first.min(place);
        flow.last = flow.last.max(place);
    }

    /// Gives a fragment the ports of its datagram, and also those fragments that came before the
    /// first one.
    #[cold]
    fn join(&mut self, decoded: &mut Packet, frame: &[u8], ts_ns: i64, place: u32) {
        let Some(fragment) = decoded.fragment else { return };
        let fragments = self.fragments.get_or_insert_with(|| Reassembler::new(FRAGMENTS_BYTES_MAX));
        let start = fragment.data_offset as usize;
        let data = frame.get(start..start + fragment.data_len as usize).unwrap_or_default();
        let push = fragments.push(decoded, data, self.packets.len() as u64, ts_ns);
        let (src_port, dst_port) = push.ports.unwrap_or((0, 0));
        (decoded.src_port, decoded.dst_port) = (src_port, dst_port);
        if let Outcome::Complete { outer, payload } = &push.outcome {
            let ends = Some([outer.src, outer.dst]);
            self.extras
                .take(place, ends, |visit| packet::addresses_of_payload(outer, payload, visit));
        }
        if push.released.is_empty() {
            return;
        }
        let flow = self.flow(FlowKey::of(decoded).0);
        for held in push.released {
            let Some(packet) = self.packets.get_mut(held.number as usize) else { continue };
            let (before, place) = std::mem::replace(packet, (flow, packet.1));
            self.list[before as usize].count -= 1;
            self.add(flow, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_wire::capture::write;

    use super::*;

    fn ipv4(offset: u16, more: bool, id: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0x45, 0, 0, 20 + payload.len() as u8, 0, id];
        out.extend_from_slice(&((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
        out.extend_from_slice(&[64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        out.extend_from_slice(payload);
        out
    }

    /// Fragments belong to the flow of their first one in any order; one whose first never comes
    /// has the flow of its addresses; packets that are not IP have none; many flows are found
    /// again.
    #[test]
    fn packets_have_flows() {
        let header = [0, 80, 0, 81, 0, 40, 0, 0];
        let first: Vec<u8> = header.into_iter().chain([1; 8]).collect();
        let mut frames = vec![
            ipv4(16, true, 1, &[2; 8]),
            ipv4(0, true, 1, &first),
            ipv4(24, false, 1, &[3; 8]),
            ipv4(16, false, 2, &[2; 8]),
            vec![0x99; 30],
        ];
        for port in 0..3000u16 {
            let mut udp = vec![0, 53];
            udp.extend_from_slice(&port.to_be_bytes());
            udp.extend_from_slice(&[0, 8, 0, 0]);
            frames.push(ipv4(0, false, 0, &udp));
            frames.push(ipv4(0, false, 0, &udp));
        }
        let mut file = Vec::new();
        write::interface(&mut file, 101, 0);
        let mut flows = Flows::new(7);
        flows.block(0, &file);
        for frame in &frames {
            let offset = file.len();
            write::packet(&mut file, 0, offset as i64, frame, 99);
            flows.block(offset as u64, &file[offset..]);
        }
        let key = |index: usize| flows.list[flows.packets[index].0 as usize].key;
        let ports = |index| (key(index).low_port, key(index).high_port);
        assert_eq!(
            [ports(0), ports(1), ports(2), ports(3)],
            [(80, 81), (80, 81), (80, 81), (0, 0)]
        );
        assert_eq!(flows.count, 6005);
        assert_eq!(flows.packets.len(), 6004);
        for pair in flows.packets[4..].chunks(2) {
            assert_eq!(pair[0].0, pair[1].0);
        }
        assert!(flows.list.iter().all(|flow| flow.count > 0 || flow.key.low_port == 0));
        assert_eq!(flows.list.len(), 3002);
    }
}
