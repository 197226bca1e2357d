//! The parallel first step: one batch of bytes becomes events, by the worker that owns their shard,
//! and a short list of *rare* packets for the name learner.
//!
//! Rare packets may teach a name or need state across flows: DNS and similar protocols, DHCP,
//! fragments, first packets to servers of encrypted DNS. All other packets are decoded once, here;
//! later only the payload of young flows is read.
//!
//! Cost: one pass over the record and packet headers, which `prefetch` brings into the CPU's cache;
//! nothing is allocated in the steady state.

mod clock;
mod prefetch;

use std::collections::BTreeMap;

use larder_io::batch::{Batch, Purpose};
use larder_wire::capture::{Capture, Step};
use larder_wire::note::{self, Note};
use larder_wire::packet::{self, Packet, Skip};
use larder_wire::scope::Scope;

use larder_mem::prefetch_lines;

use crate::flow::{Event, FlowNote, SHARDS, protocol, shard_of, tcp_flag};
use crate::names::Ends;
use crate::options::Options;
use clock::Clock;
use prefetch::Prefetcher;

/// How flows are distinguished.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keying {
    /// Seed of their hash.
    pub seed: u64,
    /// VLANs and VNIs do not distinguish flows.
    pub ignores_vlan: bool,
}

impl Keying {
    /// By the options.
    pub fn of_options(options: &Options) -> Keying {
        Keying { seed: options.seed, ignores_vlan: options.ignore_vlan }
    }

    /// The packet in the form for flows and names.
    #[inline(always)]
    pub fn of(self, mut packet: Packet) -> Packet {
        // Building a second packet would copy the first to memory.
        if self.ignores_vlan {
            packet.scope = Scope::NONE;
        }
        packet
    }
}

/// A packet for the name learner.
#[derive(Clone, Copy, Debug)]
pub struct Rare {
    /// Number in the batch, from 1.
    pub number: u32,
    /// Capture time, ns.
    pub time_ns: i64,
    /// The packet.
    pub packet: Packet,
    /// Offset of the frame in the batch's bytes.
    pub frame_offset: u32,
    /// It is one of a reduced capture.
    pub is_reduced: bool,
}

/// A moment at which idle flows end: the packets' clock has a new second.
///
/// Flows end at these moments, not at the end of a batch, so that no record depends on how the input is cut. Two
/// packets in a row must have the second, or a later one: one wrong time moves no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The second of the two packets, by its number in the batch, from 1.
    pub packet: u32,
    /// The second, ns.
    pub time_ns: i64,
    /// The records of all flows are cut.
    pub is_cut: bool,
}

/// Time between two ticks, ns.
const TICK_NS: i64 = 1_000_000_000;

impl Tick {
    /// With packet `packet`, which and whose predecessor are not earlier than `time_ns`.
    pub fn at(packet: u32, time_ns: i64) -> Tick {
        let time_ns = time_ns.div_euclid(TICK_NS).saturating_mul(TICK_NS);
        Tick { packet, time_ns, is_cut: false }
    }
}

/// A fragment that waited for the first one of its datagram.
#[derive(Debug)]
pub struct Held {
    /// Number of its packet in the input.
    pub number: u64,
    /// The names of its addresses at that time, if any: first if its sender began the flow, then if
    /// its receiver did.
    pub ends: Option<Box<[Ends; 2]>>,
}

/// The first place of one kind of damage, and its count.
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

/// The lane of a shard: saves a division per packet.
struct LaneOf([u8; SHARDS]);

impl Default for LaneOf {
    /// With one lane.
    fn default() -> LaneOf {
        LaneOf([0; SHARDS])
    }
}

impl LaneOf {
    #[inline]
    fn of(&self, hash: u64) -> usize {
        usize::from(self.0[shard_of(hash)])
    }
}

/// A decoded batch.
#[derive(Default)]
pub struct Decoded {
    /// Events of each worker's shards, in packet order.
    pub lanes: Vec<Vec<Event>>,
    lane_of: LaneOf,
    /// Packets for the name learner, in packet order.
    pub rare: Vec<Rare>,
    /// Fragments of earlier packets whose ports became known in this batch.
    pub held: Vec<Held>,
    /// Datagrams that were reassembled from fragments and may state the name of their flow.
    pub joined: Vec<u8>,
    /// Packets in the batch.
    pub packets: u32,
    /// Those of them that are read for names only.
    pub for_names: u32,
    /// Start of the first record in the batch's bytes.
    pub start: usize,
    /// Start of the record after the last.
    pub end: usize,
    /// The reader before the first record: it may have been searching.
    pub reader_before: Option<Capture>,
    /// The reader at the end.
    pub reader: Option<Capture>,
    /// Time of the first packet, ns.
    pub first_ns: Option<i64>,
    /// Latest time of a packet, ns.
    pub latest_ns: i64,
    /// The first packet that moves the clock with its predecessor, which is in an earlier batch: its number, and its
    /// time, ns. Packets of reduced captures do not move it, since their predecessors may be left out; notes say
    /// what the clock is.
    pub first_of_clock: Option<(u32, i64)>,
    /// Time of the last packet that moves the clock with its successor, ns.
    pub last_of_clock_ns: Option<i64>,
    /// The seconds that begin in the batch, each once. Before the name learner has the batch: by its own packets alone.
    pub ticks: Vec<Tick>,
    /// What captures of what comes before were reduced for.
    pub rules: Vec<note::Rules>,
    /// Damage, by kind.
    pub damaged: Counts,
    /// Sound packets of protocols that larder does not read, by kind.
    pub skipped: BTreeMap<&'static str, u64>,
}

impl Decoded {
    /// Clears all lists and keeps their memory.
    pub fn clear(&mut self, workers: usize) {
        if self.lanes.len() != workers {
            self.lanes.resize_with(workers, Vec::new);
            self.lane_of = LaneOf(std::array::from_fn(|shard| (shard % workers) as u8));
        }
        self.lanes.iter_mut().for_each(Vec::clear);
        self.rare.clear();
        self.held.clear();
        self.joined.clear();
        self.packets = 0;
        self.for_names = 0;
        self.start = 0;
        self.end = 0;
        self.reader_before = None;
        self.reader = None;
        self.first_ns = None;
        self.latest_ns = i64::MIN;
        self.first_of_clock = None;
        self.last_of_clock_ns = None;
        self.ticks.clear();
        self.rules.clear();
        self.damaged.clear();
        self.skipped.clear();
    }
}

/// Decodes the records that begin in `batch`: from the start that the batch states, or from the
/// first record that is found.
pub fn decode(batch: &Batch, workers: usize, keying: Keying, out: &mut Decoded) {
    decode_from(batch, batch.begin(), batch.capture.clone(), u32::MAX, workers, keying, out);
}

/// The same from a known start, with the reader at that place (it may still be searching), up to
/// packet `packets_max` of the batch.
pub fn decode_from(
    batch: &Batch,
    start: Option<usize>,
    capture: Capture,
    packets_max: u32,
    workers: usize,
    keying: Keying,
    out: &mut Decoded,
) {
    out.clear(workers);
    let Some(start) = start else {
        // No record begins here, as far as this worker can tell; the name learner, which knows the
        // place of the next record, decides.
        (out.start, out.end) = (usize::MAX, usize::MAX);
        return;
    };
    match batch.has_purposes {
        true => decode_records::<true>(batch, start, capture, packets_max, keying, out),
        false => decode_records::<false>(batch, start, capture, packets_max, keying, out),
    }
}

/// The loop over records. With `PURPOSES`, packets are read for several purposes; without, that costs nothing.
fn decode_records<const PURPOSES: bool>(
    batch: &Batch,
    start: usize,
    mut capture: Capture,
    packets_max: u32,
    keying: Keying,
    out: &mut Decoded,
) {
    let bytes: &[u8] = &batch.bytes;
    let (mut offset, limit) = (start, batch.limit);
    out.start = offset;
    out.reader_before = Some(capture.clone());
    let mut prefetcher = Prefetcher::new(&capture, bytes, offset, limit);
    let file = batch.file;
    // Counted here: in `out`, every packet would wait for the store of the previous one.
    let (mut packets, mut first_ns, mut latest_ns) = (0, i64::MIN, i64::MIN);
    let mut clock = Clock::default();
    while offset < limit && packets < packets_max {
        let record = match capture.record(bytes, offset) {
            Some(record) => record,
            None => match capture.next(bytes, offset, batch.at_end) {
                Step::Record(record) => record,
                Step::Meta { next_offset } => {
                    offset = next_offset;
                    continue;
                }
                Step::Damaged { kind, next_offset } => {
                    count(&mut out.damaged, kind.as_str(), file, batch.base_offset + offset as u64);
                    offset = next_offset;
                    continue;
                }
                Step::NeedMore | Step::End => break,
            },
        };
        // The next header's address is known only now: it is fetched while this packet is decoded.
        prefetch_lines(bytes, record.next_offset, 2);
        if let Some(prefetcher) = &mut prefetcher {
            prefetcher.step(offset);
        }
        let time_ns = record.ts_ns;
        if packets == 0 {
            first_ns = time_ns;
        }
        packets += 1;
        latest_ns = latest_ns.max(time_ns);
        let purpose = if PURPOSES { batch.purpose(record.interface) } else { Purpose::All };
        clock.take::<PURPOSES>(purpose, packets, time_ns, out);
        let frame_offset = record.frame_offset as u32;
        // Made only for rare packets: it must be in memory for them only.
        let seen = || Seen { frame: record.frame, number: packets, time_ns, frame_offset };
        match packet::decode_plain(record.link_type, record.frame) {
            Some(packet) if !PURPOSES => out.take(&keying.of(packet), &seen(), keying.seed),
            plain => {
                let place = (file, batch.base_offset + offset as u64);
                let odd = Odd { plain, link_type: record.link_type, purpose, place };
                out.take_odd(odd, &seen(), keying, &mut clock);
            }
        }
        offset = record.next_offset;
    }
    out.packets = packets;
    out.first_ns = (packets > 0).then_some(first_ns);
    out.latest_ns = latest_ns;
    clock.finish::<PURPOSES>(first_ns, out);
    out.end = offset;
    out.reader = Some(capture);
}

/// Place and time of a packet.
struct Seen<'a> {
    frame: &'a [u8],
    /// See [`Rare`].
    number: u32,
    time_ns: i64,
    frame_offset: u32,
}

/// A packet with more than plain headers, or that is read for names only.
struct Odd {
    plain: Option<Packet>,
    link_type: u16,
    purpose: Purpose,
    /// Its file, and the offset in it.
    place: (u32, u64),
}

impl Decoded {
    /// The same for an odd packet. It is a function of its own, so that the path of most packets stays in
    /// registers.
    #[inline(never)]
    fn take_odd(&mut self, odd: Odd, seen: &Seen<'_>, keying: Keying, clock: &mut Clock) {
        let Odd { plain, link_type, purpose, place } = odd;
        self.for_names += u32::from(purpose != Purpose::All);
        if link_type == note::LINK_TYPE
            && let Some(note) = Note::read(seen.frame)
        {
            if purpose.is_reduced() {
                self.take_note(&note, seen, keying.seed, purpose, clock);
            }
            return;
        }
        let decoded = plain.map_or_else(|| packet::decode_odd(link_type, seen.frame), Ok);
        match decoded.map(|packet| keying.of(packet)) {
            Ok(mut packet) => {
                if purpose.is_for_names() {
                    packet.scope = packet.scope.for_names();
                }
                self.take(&packet, seen, keying.seed);
                if purpose.is_reduced() {
                    self.mark_reduced(seen.number);
                }
            }
            Err(skip) => self.skip(skip, place.0, place.1),
        }
    }

    /// Marks what was just made of a packet.
    fn mark_reduced(&mut self, number: u32) {
        let lasts = self.lanes.iter_mut().filter_map(|lane| lane.last_mut());
        lasts.filter(|event| event.packet == number).for_each(|event| event.is_reduced = true);
        if let Some(rare) = self.rare.last_mut().filter(|rare| rare.number == number) {
            rare.is_reduced = true;
        }
    }

    /// Takes a note of a reduced capture.
    fn take_note(
        &mut self,
        note: &Note,
        seen: &Seen<'_>,
        seed: u64,
        purpose: Purpose,
        clock: &mut Clock,
    ) {
        let (note, mut key, time_ns) = match *note {
            Note::Begin(rules, time_ns) => {
                self.rules.extend((!purpose.is_for_names()).then_some(rules));
                return clock.first_or_later(seen.number, time_ns, self);
            }
            Note::Minute(time_ns) => return clock.tick(seen.number, time_ns, self),
            Note::End(time_ns) => return clock.last_ns = time_ns,
            Note::Open(key, time_ns) => (FlowNote::Open, key, time_ns),
            Note::Flow(key, time_ns) => (FlowNote::Last, key, time_ns),
        };
        if purpose.is_for_names() {
            key.scope = key.scope.for_names();
        }
        let event = Event::of_note(note, key, seed, seen.number, time_ns);
        self.lanes[self.lane_of.of(event.hash)].push(event);
    }

    #[inline(always)]
    fn take(&mut self, packet: &Packet, seen: &Seen<'_>, seed: u64) {
        let &Seen { frame, number, time_ns, frame_offset } = seen;
        if is_rare(packet, frame) {
            let packet = *packet;
            self.rare.push(Rare { number, time_ns, packet, frame_offset, is_reduced: false });
            if packet.fragment.is_some() {
                // Its ports may come with another fragment: the name learner makes its event.
                return;
            }
        }
        let event = Event::of(packet, seed, number, time_ns, frame_offset);
        self.lanes[self.lane_of.of(event.hash)].push(event);
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

    /// Inserts events of the name learner among those of the batch, after those of the same packet.
    pub fn inject(&mut self, mut events: Vec<Event>) {
        // Already ordered by packet; stable, since a packet may cause several.
        events.sort_by_key(|event| event.packet);
        let mut by_lane: Vec<Vec<Event>> = vec![Vec::new(); self.lanes.len()];
        for event in events {
            by_lane[self.lane_of.of(event.hash)].push(event);
        }
        for (lane, new) in self.lanes.iter_mut().zip(by_lane) {
            let Some(filler) = new.first().copied() else { continue };
            // A merge from the back: each old event moves once.
            let mut read = lane.len();
            lane.resize(read + new.len(), filler);
            let mut write = lane.len();
            for event in new.iter().rev() {
                while read > 0 && lane[read - 1].packet > event.packet {
                    read -= 1;
                    write -= 1;
                    lane[write] = lane[read];
                }
                write -= 1;
                lane[write] = *event;
            }
        }
    }
}

/// Ports whose traffic may teach a name or shows encrypted DNS, and packets that look like DNS on
/// another port. Inlined into the loop over packets, which stays in registers: a call with a
/// packet's address would store each of them.
#[inline(always)]
fn is_rare(packet: &Packet, frame: &[u8]) -> bool {
    #[inline(always)]
    fn port_teaches(port: u16) -> bool {
        matches!(port, 53 | 5353 | 5355 | 137 | 67 | 68 | 546 | 547)
    }
    if packet.fragment.is_some() {
        return true;
    }
    let (src_port, dst_port) = (packet.src_port, packet.dst_port);
    match packet.protocol {
        protocol::UDP => {
            port_teaches(src_port)
                || port_teaches(dst_port)
                || matches!(dst_port, 853 | 8853)
                || may_be_dns(frame, packet.payload_offset as usize)
        }
        protocol::TCP => {
            src_port == 53
                || dst_port == 53
                || (dst_port == 853 && packet.tcp_flags & tcp_flag::SYN != 0)
        }
        _ => false,
    }
}

/// True for a possible DNS message with one question. The number of questions rules out nearly all
/// others; the rest is examined in a function of its own.
#[inline(always)]
fn may_be_dns(frame: &[u8], at: usize) -> bool {
    let start = frame.get(at..).and_then(<[u8]>::first_chunk);
    start.is_some_and(|start| start[4..6] == [0, 1] && looks_like_dns(start))
}

/// True if these may be the first bytes of a DNS message with one question: a query without more
/// records, or a response. The bytes are next to the packet's headers; one of 10^8 random ones
/// passes.
#[cold]
fn looks_like_dns(start: &[u8; 10]) -> bool {
    const RESPONSE: u16 = 0x8000;
    /// Opcode, and the bit that must be zero.
    const UNUSUAL: u16 = 0x7840;
    /// Authoritative, truncated, recursion available, response code.
    const OF_RESPONSES: u16 = 0x068f;
    let &[_, _, flags_high, flags_low, 0, 1, answers_high, answers, authorities_high, authorities] =
        start
    else {
        return false;
    };
    let flags = u16::from_be_bytes([flags_high, flags_low]);
    if flags & UNUSUAL != 0 || answers_high != 0 || authorities_high != 0 {
        return false;
    }
    flags & RESPONSE != 0 || flags & OF_RESPONSES == 0 && answers == 0 && authorities == 0
}

#[cfg(test)]
mod tests {
    use super::looks_like_dns;

    /// Queries and responses look like DNS; other opcodes, no question or several, and queries with
    /// answers do not.
    #[test]
    fn dns_by_its_first_bytes() {
        let sound = [[7, 9, 1, 0, 0, 1, 0, 0, 0, 0], [7, 9, 0x81, 0x80, 0, 1, 0, 2, 0, 1]];
        for start in &sound {
            assert!(looks_like_dns(start));
        }
        for (at, value) in
            [(2, 0x29), (2, 5), (3, 0x40), (4, 1), (5, 0), (5, 2), (7, 1), (9, 1), (6, 1)]
        {
            let mut start = sound[0];
            start[at] = value;
            assert!(!looks_like_dns(&start), "{at} {value}");
        }
    }
}
