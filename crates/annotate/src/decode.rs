//! The parallel first half: one batch of bytes becomes events, sorted by the worker that owns their
//! shard, and a short list of *rare* packets for the edge.
//!
//! Rare is what may teach a name or needs state across flows: DNS and its kin, DHCP, fragments,
//! first packets towards encrypted DNS. Everything else is decoded once, here, and never looked at
//! again but for the payload of young flows.
//!
//! Cost: one pass over the record and packet headers; nothing allocated in the steady state.

use std::collections::BTreeMap;

use larder_io::batch::Batch;
use larder_wire::capture::{Capture, Step};
use larder_wire::packet::{self, Packet, Skip};

use crate::flow::{Event, protocol, shard_of, tcp_flag};

/// A packet for the edge.
#[derive(Clone, Copy, Debug)]
pub struct Rare {
    /// Number in the batch, from 1.
    pub number: u32,
    /// Capture time, ns.
    pub time_ns: i64,
    /// The packet.
    pub packet: Packet,
    /// Where the frame begins in the batch's bytes.
    pub frame_offset: u32,
}

/// Where damage of one kind came first, and how often it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Occurrences.
    pub count: u64,
    /// Offset of the first in the input.
    pub first_offset: u64,
    /// Input file of the first.
    pub file: u32,
}

/// Counts by kind.
pub type Counts = BTreeMap<&'static str, Count>;

/// Adds one occurrence.
pub fn count(counts: &mut Counts, kind: &'static str, file: u32, offset: u64) {
    let entry = counts.entry(kind).or_insert(Count { count: 0, first_offset: offset, file });
    entry.count += 1;
}

/// A decoded batch.
#[derive(Default)]
pub struct Decoded {
    /// Events of each worker's shards, in packet order.
    pub lanes: Vec<Vec<Event>>,
    /// Packets for the edge, in packet order.
    pub rare: Vec<Rare>,
    /// Packets in the batch.
    pub packets: u32,
    /// Where the first record began, in the batch's bytes.
    pub start: usize,
    /// Where the record after the last begins.
    pub end: usize,
    /// Time of the first packet, ns.
    pub first_ns: Option<i64>,
    /// Latest time of a packet, ns.
    pub latest_ns: i64,
    /// Damage, by kind.
    pub damaged: Counts,
    /// Sound packets that are not ours to read, by kind.
    pub skipped: BTreeMap<&'static str, u64>,
}

impl Decoded {
    /// Forgets everything and keeps the buffers.
    pub fn clear(&mut self, workers: usize) {
        self.lanes.resize_with(workers, Vec::new);
        self.lanes.iter_mut().for_each(Vec::clear);
        self.rare.clear();
        self.packets = 0;
        self.start = 0;
        self.end = 0;
        self.first_ns = None;
        self.latest_ns = i64::MIN;
        self.damaged.clear();
        self.skipped.clear();
    }
}

/// Decodes the records of `batch` that begin in it, from `start` (`None`: find the first).
pub fn decode(batch: &Batch, start: Option<usize>, workers: usize, seed: u64, out: &mut Decoded) {
    out.clear(workers);
    let bytes: &[u8] = &batch.bytes;
    let limit = batch.limit;
    let mut capture: Capture = batch.capture.clone();
    let Some(mut offset) = start.or_else(|| capture.find_record(bytes, 0).filter(|&at| at < limit))
    else {
        // No record begins here; the edge, which knows where one must, has the last word.
        out.start = usize::MAX;
        out.end = usize::MAX;
        return;
    };
    out.start = offset;
    let file = batch.file;
    while offset < limit {
        match capture.next(bytes, offset, batch.at_end) {
            Step::Record(record) => {
                out.packets += 1;
                out.first_ns.get_or_insert(record.ts_ns);
                out.latest_ns = out.latest_ns.max(record.ts_ns);
                match packet::decode(record.link_type, record.frame) {
                    Ok(packet) => {
                        let frame_offset = record.frame_offset as u32;
                        out.take(&packet, record.ts_ns, frame_offset, seed, workers);
                    }
                    Err(skip) => out.skip(skip, file, batch.base_offset + offset as u64),
                }
                offset = record.next_offset;
            }
            Step::Meta { next_offset } => offset = next_offset,
            Step::Damaged { kind, next_offset } => {
                count(&mut out.damaged, kind.as_str(), file, batch.base_offset + offset as u64);
                offset = next_offset;
            }
            Step::NeedMore | Step::End => break,
        }
    }
    out.end = offset;
}

impl Decoded {
    #[inline]
    fn take(&mut self, packet: &Packet, time_ns: i64, frame: u32, seed: u64, workers: usize) {
        let number = self.packets;
        if is_rare(packet) {
            self.rare.push(Rare { number, time_ns, packet: *packet, frame_offset: frame });
            if packet.fragment.is_some() {
                // Its ports may come with another fragment: the edge makes its event.
                return;
            }
        }
        let event = Event::of(packet, seed, number, time_ns, frame);
        let lane = if workers == 1 { 0 } else { shard_of(event.hash) % workers };
        self.lanes[lane].push(event);
    }

    #[cold]
    fn skip(&mut self, skip: Skip, file: u32, offset: u64) {
        match skip {
            Skip::UnknownLinkType(_) => *self.skipped.entry("unknown_link_type").or_default() += 1,
            Skip::NotIp(_) => *self.skipped.entry("not_ip").or_default() += 1,
            Skip::LinkTruncated => count(&mut self.damaged, "link_truncated", file, offset),
            Skip::IpTruncated => count(&mut self.damaged, "ip_truncated", file, offset),
            Skip::IpMalformed => count(&mut self.damaged, "ip_malformed", file, offset),
            Skip::TransportMalformed => {
                count(&mut self.damaged, "transport_malformed", file, offset);
            }
            Skip::TunnelMalformed => count(&mut self.damaged, "tunnel_malformed", file, offset),
            Skip::TooManyTunnels => count(&mut self.damaged, "too_many_tunnels", file, offset),
            _ => count(&mut self.damaged, "packet_malformed", file, offset),
        }
    }

    /// Forgets what came after packet `last` of the batch (`-c`).
    pub fn truncate(&mut self, last: u32) {
        self.packets = self.packets.min(last);
        for lane in &mut self.lanes {
            lane.retain(|event| event.packet <= last);
        }
        self.rare.retain(|rare| rare.number <= last);
    }
}

/// Ports whose traffic may teach a name, or shows that a client asks elsewhere.
#[inline]
fn is_rare(packet: &Packet) -> bool {
    #[inline]
    fn port_teaches(port: u16) -> bool {
        matches!(port, 53 | 5353 | 5355 | 137 | 67 | 68 | 546 | 547)
    }
    if packet.fragment.is_some() {
        return true;
    }
    match packet.protocol {
        protocol::UDP => {
            port_teaches(packet.src_port)
                || port_teaches(packet.dst_port)
                || matches!(packet.dst_port, 853 | 8853)
        }
        protocol::TCP => {
            packet.src_port == 53
                || packet.dst_port == 53
                || (packet.dst_port == 853 && packet.tcp_flags & tcp_flag::SYN != 0)
        }
        _ => false,
    }
}
