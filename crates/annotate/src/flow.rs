//! Flows: what belongs together, who began it, and when it ended.
//!
//! A flow is a bidirectional 5-tuple, without VLAN and inside any tunnel. Its life:
//!
//! ```text
//! phase      begins with                                ends with
//! open       its first packet                           FIN from both ends, RST; idle; eviction
//! closed     both FINs or a RST                         linger (5 s) without a packet, a new SYN
//! ended      one of the above, or the end of input      its record is handed out, its slot freed
//! ```
//!
//! The table is split into [`SHARDS`] shards by the hash of the 5-tuple, a fixed number, so that
//! what happens in a shard never depends on how many workers there are. A shard has its own limit;
//! when it is full, the flow that has been idle longest ends (`evicted`). All times are packet
//! times: a shard's clock is the time of the latest packet of the input so far, moved at batch
//! edges, and never goes back.
//!
//! Invariants (checked by [`Shard::validate`])
//! 1. Every live flow is in the index exactly once and in exactly one of the three lists.
//! 2. A list is ordered by `stamp`, and `last_ns - stamp_ns` of a flow is below `RESTAMP_NS`
//!    when its packet was handled: idle order is exact to a second, without a list move a packet.
//! 3. `live <= limit`.
//!
//! Cost: one index line and one flow (three lines) a packet, both prefetched ahead.

use larder::{prefetch_lines, prefetch_slice};
use larder_wire::Addr;
use larder_wire::packet::{Packet, Tunnel};

use crate::record::{App, ConnState};

/// Shards of the flow table: fixed, so that results do not depend on the number of workers.
pub const SHARDS: usize = 64;
/// A flow is moved to its list's end when its place is older than this.
const RESTAMP_NS: i64 = 1_000_000_000;
const NONE: u32 = u32::MAX;
/// Lines of a flow that every packet touches.
const HOT_LINES: usize = 4;

/// TCP flag bits.
pub mod tcp_flag {
    #![allow(missing_docs)]
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const ACK: u8 = 0x10;
}
use tcp_flag::{ACK, FIN, RST, SYN};

/// IP protocol numbers.
pub mod protocol {
    #![allow(missing_docs)]
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ICMP6: u8 = 58;
}

/// A 5-tuple in canonical order: `low` is the lesser (address, port).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKey {
    /// The lesser end.
    pub low: Addr,
    /// The greater end.
    pub high: Addr,
    /// Port of the lesser end.
    pub low_port: u16,
    /// Port of the greater end.
    pub high_port: u16,
    /// IP protocol.
    pub protocol: u8,
}

impl FlowKey {
    /// The key of a packet, and whether its sender is the `low` end.
    #[inline]
    pub fn of(packet: &Packet) -> (FlowKey, bool) {
        let (src_port, dst_port) = ports(packet);
        let src = (u128::from_be_bytes(packet.src.0), src_port);
        let dst = (u128::from_be_bytes(packet.dst.0), dst_port);
        let protocol = packet.protocol;
        if src <= dst {
            let key = FlowKey {
                low: packet.src,
                high: packet.dst,
                low_port: src_port,
                high_port: dst_port,
                protocol,
            };
            (key, true)
        } else {
            let key = FlowKey {
                low: packet.dst,
                high: packet.src,
                low_port: dst_port,
                high_port: src_port,
                protocol,
            };
            (key, false)
        }
    }

    /// A seeded hash: folded 64x64-bit products (as wyhash), about 4 ns. The top bits choose the
    /// shard, the low 32 the place in its index.
    #[inline]
    pub fn hash(&self, seed: u64) -> u64 {
        let word = |addr: &Addr, at: usize| {
            let half = if at == 0 { addr.0.first_chunk::<8>() } else { addr.0.last_chunk::<8>() };
            u64::from_le_bytes(*half.expect("an address has sixteen octets"))
        };
        let ports = u64::from(self.low_port)
            | u64::from(self.high_port) << 16
            | u64::from(self.protocol) << 32;
        let a = fold(word(&self.low, 8) ^ seed, word(&self.high, 8) ^ 0xe703_7ed1_a0b4_28db);
        let b = fold(
            word(&self.low, 0) ^ ports.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            word(&self.high, 0) ^ 0x8ebc_6af0_9c88_c6e3,
        );
        fold(a ^ ports, b ^ seed ^ 0x5899_65cc_7537_4cc3)
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The shard of a hash.
#[inline]
pub fn shard_of(hash: u64) -> usize {
    (hash >> 58) as usize
}
const _: () = assert!(SHARDS == 1 << 6, "the top six bits of the hash choose the shard");

/// The ports of a packet's flow. ICMP has Zeek's: the sender's is the type, the receiver's the
/// counterpart type (so that a reply joins its request's flow) or the code.
#[inline]
fn ports(packet: &Packet) -> (u16, u16) {
    match packet.protocol {
        protocol::ICMP | protocol::ICMP6 => {
            let v6 = packet.protocol == protocol::ICMP6;
            let kind = packet.src_port;
            let counterpart = u8::try_from(kind)
                .ok()
                .and_then(|kind| larder_wire::community_id::icmp_counterpart(v6, kind));
            (kind, counterpart.map_or(packet.dst_port, u16::from))
        }
        _ => (packet.src_port, packet.dst_port),
    }
}

/// One packet as the flow table needs it.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Its flow.
    pub key: FlowKey,
    /// Hash of `key`.
    pub hash: u64,
    /// Capture time, ns since 1970 UTC.
    pub time_ns: i64,
    /// Number of the packet in its batch, from 1.
    pub packet: u32,
    /// Offset of the payload in the batch's bytes.
    pub payload_offset: u32,
    /// Captured payload.
    pub payload_len: u32,
    /// Payload by the headers.
    pub payload_bytes: u32,
    /// IP octets by the header.
    pub ip_bytes: u32,
    /// TCP sequence number.
    pub tcp_seq: u32,
    /// TCP window.
    pub tcp_window: u16,
    /// TCP flags.
    pub tcp_flags: u8,
    /// The sender is the key's `low` end.
    pub from_low: bool,
    /// Innermost tunnel.
    pub tunnel: Option<Tunnel>,
}

impl Event {
    /// From a decoded packet. `payload_base`: where the packet's frame begins in the batch.
    #[inline]
    pub fn of(packet: &Packet, seed: u64, number: u32, time_ns: i64, payload_base: u32) -> Event {
        let (key, from_low) = FlowKey::of(packet);
        Event {
            hash: key.hash(seed),
            key,
            time_ns,
            packet: number,
            payload_offset: payload_base + packet.payload_offset,
            payload_len: packet.payload_len,
            payload_bytes: packet.payload_bytes,
            ip_bytes: packet.ip_bytes,
            tcp_seq: packet.tcp_seq,
            tcp_window: packet.tcp_window,
            tcp_flags: packet.tcp_flags,
            from_low,
            tunnel: packet.tunnel,
        }
    }

    fn is_tcp(&self) -> bool {
        self.key.protocol == protocol::TCP
    }
}

/// TCP endpoint states with Zeek's meaning; other protocols use `Inactive` and `Established`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum EndState {
    Inactive,
    SynSent,
    Partial,
    Established,
    Closed,
    Reset,
}

/// What one end of a flow sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Packets.
    pub packets: u64,
    /// IP octets.
    pub ip_bytes: u64,
    /// Payload octets by the headers.
    pub payload_bytes: u64,
    /// TCP: octets of sequence space used after `seq_start`.
    seq_high: u64,
    seq_start: u32,
    /// TCP: octets never seen below `seq_high`.
    pub gap_bytes: u64,
    state: EndState,
    syn: bool,
    fin: bool,
}

impl Sent {
    const NOTHING: Sent = Sent {
        packets: 0,
        ip_bytes: 0,
        payload_bytes: 0,
        seq_high: 0,
        seq_start: 0,
        gap_bytes: 0,
        state: EndState::Inactive,
        syn: false,
        fin: false,
    };

    /// TCP payload by sequence numbers, as Zeek counts it.
    pub fn stream_bytes(&self) -> u64 {
        self.seq_high.saturating_sub(u64::from(self.syn) + u64::from(self.fin))
    }

    /// Sequence number of the first payload octet, where the SYN was seen.
    pub fn first_payload_seq(&self) -> Option<u32> {
        self.syn.then(|| self.seq_start.wrapping_add(1))
    }

    /// Moves the sequence space on; says whether the payload was (partly) sent before.
    fn advance(&mut self, seq: u32, len: u32, payload: u32) -> SeqStep {
        if self.state == EndState::Inactive {
            self.seq_start = seq;
        }
        let high = self.seq_start.wrapping_add(self.seq_high as u32);
        let begin = seq.wrapping_sub(high) as i32;
        let end = i64::from(begin) + i64::from(len);
        let mut step = SeqStep::Plain;
        if begin > 0 && self.seq_high > 0 {
            self.gap_bytes += begin as u64;
            step = SeqStep::Gap;
        } else if begin < 0 && payload > 0 {
            let old = u64::from(payload).min(u64::from(begin.unsigned_abs()));
            if self.gap_bytes > 0 {
                self.gap_bytes -= old.min(self.gap_bytes);
            } else if end <= 0 {
                step = SeqStep::Again;
            }
        }
        if end > 0 {
            self.seq_high += end as u64;
        }
        step
    }
}

#[derive(PartialEq, Eq)]
enum SeqStep {
    Plain,
    Gap,
    Again,
}

/// Zeek's history letters, upper case for the initiator; each letter once an end, the counted ones
/// (`c g t w`) at 1, 10, 100 ... occurrences.
#[derive(Clone, Copy, Debug)]
pub struct History {
    letters: [u8; 24],
    len: u8,
    seen: [u16; 2],
    counts: [[u32; 3]; 2],
}

/// Letters that are written once an end, each with its bit.
mod once {
    pub const SYN: (u8, u16) = (b's', 1);
    pub const SYN_ACK: (u8, u16) = (b'h', 2);
    pub const ACK: (u8, u16) = (b'a', 4);
    pub const DATA: (u8, u16) = (b'd', 8);
    pub const FIN: (u8, u16) = (b'f', 16);
    pub const RST: (u8, u16) = (b'r', 32);
    pub const INCONSISTENT: (u8, u16) = (b'i', 64);
    pub const SYN_AND_MORE: (u8, u16) = (b'q', 128);
}

/// Letters that are counted, each with its place.
mod counted {
    pub const GAP: (u8, usize) = (b'g', 0);
    pub const AGAIN: (u8, usize) = (b't', 1);
    pub const ZERO_WINDOW: (u8, usize) = (b'w', 2);
}

impl History {
    const EMPTY: History = History { letters: [0; 24], len: 0, seen: [0; 2], counts: [[0; 3]; 2] };

    fn push(&mut self, letter: u8) {
        if let Some(place) = self.letters.get_mut(usize::from(self.len)) {
            *place = letter;
            self.len += 1;
        }
    }

    #[inline]
    fn add(&mut self, (letter, bit): (u8, u16), from_source: bool) {
        let seen = &mut self.seen[usize::from(from_source)];
        if *seen & bit == 0 {
            *seen |= bit;
            self.push(if from_source { letter.to_ascii_uppercase() } else { letter });
        }
    }

    #[cold]
    fn count(&mut self, (letter, place): (u8, usize), from_source: bool) {
        let count = &mut self.counts[usize::from(from_source)][place];
        *count = count.saturating_add(1);
        if matches!(*count, 1 | 10 | 100 | 1_000 | 10_000 | 100_000 | 1_000_000) {
            self.push(if from_source { letter.to_ascii_uppercase() } else { letter });
        }
    }

    /// The initiator turned out to be the other end: Zeek writes `^` and swaps the cases.
    fn flip(&mut self) {
        self.seen.swap(0, 1);
        self.counts.swap(0, 1);
        for letter in &mut self.letters[..usize::from(self.len)] {
            *letter = if letter.is_ascii_uppercase() {
                letter.to_ascii_lowercase()
            } else {
                letter.to_ascii_uppercase()
            };
        }
        self.letters.copy_within(0..23, 1);
        self.letters[0] = b'^';
        self.len = (self.len + 1).min(24);
    }

    /// As text.
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.letters[..usize::from(self.len)]).into_owned()
    }
}

/// The three lists of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum List {
    Tcp = 0,
    Other = 1,
    Closed = 2,
}

/// A live flow. `U` is what the user of the table keeps beside it (names, heads).
///
/// The order of the fields is that of memory: what every packet touches comes first, in three
/// lines, so that a prefetch of those is enough.
#[derive(Debug)]
#[repr(C)]
pub struct Flow<U> {
    /// 5-tuple.
    pub key: FlowKey,
    /// The initiator is the key's `low` end.
    pub source_is_low: bool,
    list: List,
    /// Time of the last packet, ns.
    pub last_ns: i64,
    stamp_ns: i64,
    /// What each end sent: `[high, low]`, so that `from_low as usize` indexes it.
    sent: [Sent; 2],
    /// The user's part.
    pub user: U,
    /// Zeek's letters.
    pub history: History,
    hash: u64,
    prev: u32,
    next: u32,
    /// Time of the first packet, ns.
    pub start_ns: i64,
    /// Number of the first packet in the whole input.
    pub first_packet: u64,
    /// Innermost tunnel of the first packet.
    pub tunnel: Option<Tunnel>,
    /// Application protocol, as far as known.
    pub app: Option<App>,
    /// The first packet was TCP, and no SYN.
    pub midstream: bool,
}

impl<U> Flow<U> {
    /// The initiator's address and port.
    pub fn source(&self) -> (Addr, u16) {
        if self.source_is_low {
            (self.key.low, self.key.low_port)
        } else {
            (self.key.high, self.key.high_port)
        }
    }

    /// The responder's address and port.
    pub fn destination(&self) -> (Addr, u16) {
        if self.source_is_low {
            (self.key.high, self.key.high_port)
        } else {
            (self.key.low, self.key.low_port)
        }
    }

    /// What the initiator sent.
    pub fn sent_by_source(&self) -> &Sent {
        &self.sent[usize::from(self.source_is_low)]
    }

    /// What the responder sent.
    pub fn sent_by_destination(&self) -> &Sent {
        &self.sent[usize::from(!self.source_is_low)]
    }

    /// The state with Zeek's meaning.
    pub fn conn_state(&self) -> ConnState {
        let (o, r) = (self.sent_by_source(), self.sent_by_destination());
        match self.key.protocol {
            protocol::TCP => tcp_state(o, r),
            protocol::ICMP | protocol::ICMP6 => ConnState::OTH,
            _ => match (o.packets > 0, r.packets > 0) {
                (true, true) => ConnState::SF,
                (true, false) => ConnState::S0,
                (false, true) => ConnState::SHR,
                (false, false) => ConnState::OTH,
            },
        }
    }

    fn is_closed(&self) -> bool {
        let [a, b] = [self.sent[0].state, self.sent[1].state];
        a == EndState::Reset
            || b == EndState::Reset
            || (a == EndState::Closed && b == EndState::Closed)
    }
}

fn tcp_state(o: &Sent, r: &Sent) -> ConnState {
    use EndState::*;
    let inactive = |state| matches!(state, Inactive | Partial);
    match (o.state, r.state) {
        (SynSent, Reset) => ConnState::REJ,
        (Reset, Reset) if o.stream_bytes() == 0 && r.stream_bytes() == 0 => ConnState::REJ,
        (o, Reset) if inactive(o) => ConnState::RSTRH,
        (_, Reset) => ConnState::RSTR,
        (Reset, r) if inactive(r) => ConnState::RSTOS0,
        (Reset, _) => ConnState::RSTO,
        (Closed, Closed) => ConnState::SF,
        (Closed, r) if inactive(r) => ConnState::SH,
        (Closed, _) => ConnState::S2,
        (o, Closed) if inactive(o) => ConnState::SHR,
        (_, Closed) => ConnState::S3,
        (SynSent, Inactive) => ConnState::S0,
        (Established, Established) => ConnState::S1,
        _ => ConnState::OTH,
    }
}

/// How long flows of each list may be idle, and who began them.
#[derive(Clone, Copy, Debug)]
pub struct FlowRules {
    /// TCP, ns.
    pub tcp_ns: i64,
    /// Everything else, ns.
    pub other_ns: i64,
    /// Closed TCP, ns.
    pub linger_ns: i64,
    /// The sender of a flow's first packet began it, whatever the packet says. Wrong (rule 8).
    pub first_sender_began: bool,
}

impl FlowRules {
    fn idle_ns(&self, list: List) -> i64 {
        match list {
            List::Tcp => self.tcp_ns,
            List::Other => self.other_ns,
            List::Closed => self.linger_ns,
        }
    }
}

/// Why a flow left the table, as the table sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Leave {
    Timeout,
    Reused,
    Evicted,
    InputEnd,
}

/// What the table asks its user.
pub trait FlowUser<U> {
    /// A flow begins with `event`.
    fn begin(&mut self, flow: &mut Flow<U>, event: &Event);
    /// A packet of the flow, the first included, after the books are up to date.
    fn packet(&mut self, flow: &mut Flow<U>, event: &Event);
    /// The flow left the table. `packet`: number of the packet in the batch that ended it.
    fn end(&mut self, flow: &mut Flow<U>, closed: bool, leave: Leave, packet: u32);
}

/// One shard of the flow table.
pub struct Shard<U> {
    /// `slot + 1` in the high half, low 32 bits of the hash in the low half; 0 = empty.
    index: Vec<u64>,
    flows: Vec<Option<Flow<U>>>,
    free: Vec<u32>,
    heads: [u32; 3],
    tails: [u32; 3],
    live: usize,
    limit: usize,
    rules: FlowRules,
}

impl<U: Default> Shard<U> {
    /// An empty shard for at most `limit` flows (at least one).
    pub fn new(limit: usize, rules: FlowRules) -> Shard<U> {
        Shard {
            index: vec![0; 64],
            flows: Vec::new(),
            free: Vec::new(),
            heads: [NONE; 3],
            tails: [NONE; 3],
            live: 0,
            limit: limit.max(1),
            rules,
        }
    }

    /// Asks for the index line of `hash` to be brought near.
    #[inline]
    pub fn prefetch_index(&self, hash: u64) {
        prefetch_slice(&self.index, hash as u32 as usize & (self.index.len() - 1));
    }

    /// Asks for the flow of `hash` to be brought near; its index line should be there by now.
    #[inline]
    pub fn prefetch_flow(&self, hash: u64) {
        let mask = self.index.len() - 1;
        let entry = self.index[hash as u32 as usize & mask];
        if entry as u32 == hash as u32 && entry >> 32 != 0 {
            prefetch_lines(&self.flows, (entry >> 32) as usize - 1, HOT_LINES);
        }
    }

    fn find(&self, key: &FlowKey, hash: u64) -> Option<u32> {
        let mask = self.index.len() - 1;
        let mut at = hash as u32 as usize & mask;
        loop {
            let entry = self.index[at];
            if entry >> 32 == 0 {
                return None;
            }
            if entry as u32 == hash as u32 {
                let slot = (entry >> 32) as u32 - 1;
                if self.flow(slot).key == *key {
                    return Some(slot);
                }
            }
            at = (at + 1) & mask;
        }
    }

    fn flow(&self, slot: u32) -> &Flow<U> {
        self.flows[slot as usize].as_ref().expect("by invariant 1 an indexed slot holds a flow")
    }

    fn flow_mut(&mut self, slot: u32) -> &mut Flow<U> {
        self.flows[slot as usize].as_mut().expect("by invariant 1 an indexed slot holds a flow")
    }

    /// Takes one packet.
    #[inline]
    pub fn packet(&mut self, event: &Event, first_packet: u64, user: &mut impl FlowUser<U>) {
        let slot = match self.find(&event.key, event.hash) {
            Some(slot) if !self.is_over(slot, event) => slot,
            Some(slot) => {
                let leave =
                    if self.is_idle(slot, event.time_ns) { Leave::Timeout } else { Leave::Reused };
                self.remove(slot, leave, event.packet, user);
                self.open(event, first_packet, user)
            }
            None => self.open(event, first_packet, user),
        };
        let (restamp, close) = {
            let flow = self.flow_mut(slot);
            let was_closed = flow.list == List::Closed;
            account(flow, event);
            user.packet(flow, event);
            let close = !was_closed && flow.is_closed();
            (flow.last_ns - flow.stamp_ns >= RESTAMP_NS, close)
        };
        if close {
            self.unlink(slot);
            self.link(slot, List::Closed);
        } else if restamp {
            let list = self.flow(slot).list;
            self.unlink(slot);
            self.link(slot, list);
        }
    }

    fn is_idle(&self, slot: u32, now_ns: i64) -> bool {
        let flow = self.flow(slot);
        now_ns.saturating_sub(flow.last_ns) > self.rules.idle_ns(flow.list)
    }

    /// True when `event` cannot belong to the flow in `slot` any more: idle too long, or a SYN
    /// that opens the 5-tuple anew.
    fn is_over(&self, slot: u32, event: &Event) -> bool {
        if self.is_idle(slot, event.time_ns) {
            return true;
        }
        if !event.is_tcp() || event.tcp_flags & (SYN | ACK | RST) != SYN {
            return false;
        }
        let flow = self.flow(slot);
        let sent = &flow.sent[usize::from(event.from_low)];
        flow.is_closed() || (sent.syn && sent.seq_start != event.tcp_seq)
    }

    fn open(&mut self, event: &Event, first_packet: u64, user: &mut impl FlowUser<U>) -> u32 {
        if self.live >= self.limit {
            self.evict(event.packet, user);
        }
        if (self.live + 1) * 2 > self.index.len() {
            self.grow();
        }
        let is_tcp = event.is_tcp();
        let mut flow = Flow {
            key: event.key,
            hash: event.hash,
            last_ns: event.time_ns,
            stamp_ns: event.time_ns,
            sent: [Sent::NOTHING; 2],
            source_is_low: match self.rules.first_sender_began {
                true => event.from_low,
                false => source_is_low(event),
            },
            list: if is_tcp { List::Tcp } else { List::Other },
            prev: NONE,
            next: NONE,
            start_ns: event.time_ns,
            first_packet: first_packet + u64::from(event.packet),
            tunnel: event.tunnel,
            app: None,
            history: History::EMPTY,
            midstream: is_tcp && event.tcp_flags & SYN == 0,
            user: U::default(),
        };
        if is_tcp && flow.source_is_low != event.from_low {
            flow.history.push(b'^');
        }
        let list = flow.list;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.flows[slot as usize] = Some(flow);
                slot
            }
            None => {
                self.flows.push(Some(flow));
                self.flows.len() as u32 - 1
            }
        };
        user.begin(self.flow_mut(slot), event);
        self.index_insert(event.hash, slot);
        self.link(slot, list);
        self.live += 1;
        slot
    }

    fn index_insert(&mut self, hash: u64, slot: u32) {
        let mask = self.index.len() - 1;
        let mut at = hash as u32 as usize & mask;
        while self.index[at] >> 32 != 0 {
            at = (at + 1) & mask;
        }
        self.index[at] = u64::from(slot + 1) << 32 | u64::from(hash as u32);
    }

    fn index_remove(&mut self, hash: u64, slot: u32) {
        let mask = self.index.len() - 1;
        let wanted = u64::from(slot + 1) << 32 | u64::from(hash as u32);
        let mut hole = hash as u32 as usize & mask;
        while self.index[hole] != wanted {
            hole = (hole + 1) & mask;
        }
        // Close the hole: every later entry of the run moves back if its home allows.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.index[at];
            if entry >> 32 == 0 {
                break;
            }
            let home = entry as u32 as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.index[hole] = entry;
                hole = at;
            }
        }
        self.index[hole] = 0;
    }

    fn grow(&mut self) {
        let entries: Vec<u64> = self.index.iter().copied().filter(|e| e >> 32 != 0).collect();
        let len = self.index.len() * 2;
        self.index.clear();
        self.index.resize(len, 0);
        for entry in entries {
            self.index_insert(u64::from(entry as u32), (entry >> 32) as u32 - 1);
        }
    }

    fn link(&mut self, slot: u32, list: List) {
        let tail = self.tails[list as usize];
        let flow = self.flow_mut(slot);
        flow.list = list;
        flow.stamp_ns = flow.last_ns;
        flow.prev = tail;
        flow.next = NONE;
        if tail == NONE {
            self.heads[list as usize] = slot;
        } else {
            self.flow_mut(tail).next = slot;
        }
        self.tails[list as usize] = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let (list, prev, next) = {
            let flow = self.flow(slot);
            (flow.list as usize, flow.prev, flow.next)
        };
        match prev {
            NONE => self.heads[list] = next,
            prev => self.flow_mut(prev).next = next,
        }
        match next {
            NONE => self.tails[list] = prev,
            next => self.flow_mut(next).prev = prev,
        }
    }

    fn remove(&mut self, slot: u32, leave: Leave, packet: u32, user: &mut impl FlowUser<U>) {
        self.unlink(slot);
        let place = &mut self.flows[slot as usize];
        let flow = place.as_mut().expect("by invariant 1 an indexed slot holds a flow");
        // Where it lies: a flow is large, and each move of it is felt.
        user.end(flow, flow.list == List::Closed, leave, packet);
        let hash = flow.hash;
        *place = None;
        self.index_remove(hash, slot);
        self.free.push(slot);
        self.live -= 1;
    }

    /// Ends the flow that has been idle longest.
    fn evict(&mut self, packet: u32, user: &mut impl FlowUser<U>) {
        let longest_idle =
            self.heads.iter().copied().filter(|&head| head != NONE).min_by_key(|&head| {
                let flow = self.flow(head);
                (flow.last_ns, flow.first_packet)
            });
        if let Some(slot) = longest_idle {
            self.remove(slot, Leave::Evicted, packet, user);
        }
    }

    /// Ends every flow that has been idle too long at `now_ns`.
    pub fn expire(&mut self, now_ns: i64, packet: u32, user: &mut impl FlowUser<U>) {
        for list in [List::Tcp, List::Other, List::Closed] {
            let timeout_ns = self.rules.idle_ns(list);
            loop {
                let head = self.heads[list as usize];
                if head == NONE {
                    break;
                }
                let flow = self.flow(head);
                if now_ns.saturating_sub(flow.stamp_ns) <= timeout_ns {
                    break;
                }
                if now_ns.saturating_sub(flow.last_ns) <= timeout_ns {
                    // Its place is up to a second too early: give it the right one.
                    self.unlink(head);
                    self.link(head, list);
                } else {
                    self.remove(head, Leave::Timeout, packet, user);
                }
            }
        }
    }

    /// Ends every flow; the input is over.
    pub fn finish(&mut self, user: &mut impl FlowUser<U>) {
        for slot in 0..self.flows.len() as u32 {
            if self.flows[slot as usize].is_some() {
                self.remove(slot, Leave::InputEnd, u32::MAX, user);
            }
        }
    }

    /// Live flows.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Walks everything and panics where an invariant does not hold. For tests.
    pub fn validate(&self) {
        assert!(self.live <= self.limit, "invariant 3");
        assert_eq!(self.index.iter().filter(|&&entry| entry >> 32 != 0).count(), self.live);
        let mut linked = 0;
        for list in 0..3 {
            let (mut at, mut prev) = (self.heads[list], NONE);
            while at != NONE {
                let flow = self.flow(at);
                assert_eq!(flow.prev, prev);
                assert_eq!(flow.list as usize, list);
                assert_eq!(self.find(&flow.key, flow.hash), Some(at), "invariant 1");
                (prev, at) = (at, flow.next);
                linked += 1;
            }
            assert_eq!(self.tails[list], prev);
        }
        assert_eq!(linked, self.live, "invariant 1");
    }
}

/// Who began: the sender of the SYN; else the sender of the first packet, unless that is a SYN+ACK
/// or comes from a well-known server port to an ephemeral one.
fn source_is_low(event: &Event) -> bool {
    let (from_port, to_port) = if event.from_low {
        (event.key.low_port, event.key.high_port)
    } else {
        (event.key.high_port, event.key.low_port)
    };
    let syn = event.tcp_flags & (SYN | ACK);
    let answers = match event.key.protocol {
        protocol::TCP if syn == SYN => false,
        protocol::TCP if syn == SYN | ACK => true,
        protocol::TCP | protocol::UDP => {
            is_server_port(from_port) && !is_server_port(to_port) && to_port >= 1024
        }
        // An echo reply and its kin (Zeek's ICMP orientation follows the request).
        protocol::ICMP => matches!(from_port, 0 | 14 | 16 | 18) && to_port != from_port,
        protocol::ICMP6 => matches!(from_port, 129),
        _ => false,
    };
    event.from_low != answers
}

/// Ports on which servers answer; used only where the first packet does not say who began.
fn is_server_port(port: u16) -> bool {
    matches!(
        port,
        20..=23
            | 25
            | 43
            | 53
            | 67
            | 69
            | 80
            | 88
            | 110
            | 111
            | 119
            | 123
            | 135
            | 137
            | 139
            | 143
            | 161
            | 179
            | 389
            | 443
            | 445
            | 465
            | 514
            | 515
            | 587
            | 636
            | 853
            | 873
            | 993
            | 995
            | 1194
            | 1433
            | 1521
            | 1883
            | 3128
            | 3306
            | 3389
            | 5060
            | 5222
            | 5353
            | 5355
            | 5432
            | 5671
            | 5672
            | 5900
            | 6379
            | 6443
            | 8000
            | 8080
            | 8443
            | 8883
            | 9092
            | 9200
            | 11211
            | 27017
    )
}

fn account<U>(flow: &mut Flow<U>, event: &Event) {
    // Packet times may step back; a flow's last time does not.
    flow.last_ns = flow.last_ns.max(event.time_ns);
    if event.is_tcp() {
        account_tcp(flow, event);
    } else {
        let from_source = event.from_low == flow.source_is_low;
        if event.payload_bytes > 0 && flow.key.protocol == protocol::UDP {
            flow.history.add(once::DATA, from_source);
        }
        flow.sent[usize::from(event.from_low)].state = EndState::Established;
    }
    let sent = &mut flow.sent[usize::from(event.from_low)];
    sent.packets += 1;
    sent.ip_bytes += u64::from(event.ip_bytes);
    sent.payload_bytes += u64::from(event.payload_bytes);
}

fn account_tcp<U>(flow: &mut Flow<U>, event: &Event) {
    let flags = event.tcp_flags;
    // A SYN settles who began, also when packets of the other end came first.
    if flags & (SYN | ACK | RST) == SYN
        && event.from_low != flow.source_is_low
        && !flow.sent_by_source().syn
    {
        flow.source_is_low = event.from_low;
        flow.history.flip();
    }
    let from_source = event.from_low == flow.source_is_low;
    let history = &mut flow.history;
    let [mine, peer] = {
        let [high, low] = &mut flow.sent;
        if event.from_low { [low, high] } else { [high, low] }
    };

    if flags & (SYN | FIN | RST) != flags & SYN
        && flags & (SYN | FIN | RST) != flags & FIN
        && flags & (SYN | FIN | RST) != flags & RST
    {
        history.add(
            if flags & SYN == 0 { once::INCONSISTENT } else { once::SYN_AND_MORE },
            from_source,
        );
    }
    if flags & RST != 0 {
        history.add(once::RST, from_source);
        mine.state = EndState::Reset;
        return;
    }
    let space = event.payload_bytes + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    match mine.advance(event.tcp_seq, space, event.payload_bytes) {
        SeqStep::Plain => {}
        SeqStep::Gap => history.count(counted::GAP, from_source),
        SeqStep::Again => history.count(counted::AGAIN, from_source),
    }
    if flags & SYN != 0 {
        history.add(if flags & ACK == 0 { once::SYN } else { once::SYN_ACK }, from_source);
        mine.syn = true;
        if mine.state == EndState::Inactive {
            mine.state = EndState::SynSent;
        }
        if flags & ACK != 0 && peer.state == EndState::SynSent {
            mine.state = EndState::Established;
            peer.state = EndState::Established;
        }
    } else if mine.state == EndState::Inactive {
        mine.state = EndState::Partial;
    }
    if event.payload_bytes > 0 {
        history.add(once::DATA, from_source);
    } else if flags & (SYN | FIN | ACK) == ACK {
        history.add(once::ACK, from_source);
    }
    if event.tcp_window == 0 && flags & (SYN | FIN) == 0 {
        history.count(counted::ZERO_WINDOW, from_source);
    }
    if flags & FIN != 0 {
        history.add(once::FIN, from_source);
        mine.fin = true;
        if mine.state != EndState::Reset {
            mine.state = EndState::Closed;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const S: i64 = 1_000_000_000;

    fn rules() -> FlowRules {
        FlowRules { tcp_ns: 300 * S, other_ns: 60 * S, linger_ns: 5 * S, first_sender_began: false }
    }

    /// One end and what it sends.
    #[derive(Clone, Copy)]
    struct Talk {
        host: u8,
        port: u16,
        peer: u8,
        peer_port: u16,
    }

    fn event(talk: Talk, protocol: u8, flags: u8, time_ns: i64, packet: u32) -> Event {
        let addr = |host| Addr::v4([10, 0, 0, host]);
        let sender = (u128::from_be_bytes(addr(talk.host).0), talk.port);
        let peer = (u128::from_be_bytes(addr(talk.peer).0), talk.peer_port);
        let from_low = sender <= peer;
        let ends = ((addr(talk.host), talk.port), (addr(talk.peer), talk.peer_port));
        let (low, high) = if from_low { ends } else { (ends.1, ends.0) };
        let key =
            FlowKey { low: low.0, high: high.0, low_port: low.1, high_port: high.1, protocol };
        Event {
            hash: key.hash(7),
            key,
            time_ns,
            packet,
            payload_offset: 0,
            payload_len: 0,
            payload_bytes: 0,
            ip_bytes: 40,
            tcp_seq: 1000,
            tcp_window: 1000,
            tcp_flags: flags,
            from_low,
            tunnel: None,
        }
    }

    /// What a flow was when it ended: its source port, conn state, history, and how it left.
    type Ended = (u16, ConnState, String, Leave, u64);

    #[derive(Default)]
    struct User(Vec<Ended>);

    impl FlowUser<()> for User {
        fn begin(&mut self, _: &mut Flow<()>, _: &Event) {}
        fn packet(&mut self, _: &mut Flow<()>, _: &Event) {}
        fn end(&mut self, flow: &mut Flow<()>, _: bool, leave: Leave, _: u32) {
            let packets = flow.sent_by_source().packets + flow.sent_by_destination().packets;
            let history = flow.history.to_text();
            self.0.push((flow.source().1, flow.conn_state(), history, leave, packets));
        }
    }

    const CLIENT: Talk = Talk { host: 1, port: 50_000, peer: 2, peer_port: 443 };
    const SERVER: Talk = Talk { host: 2, port: 443, peer: 1, peer_port: 50_000 };

    fn run(steps: &[(Talk, u8, u32, u32, i64)]) -> Vec<Ended> {
        let mut shard = Shard::new(16, rules());
        let mut user = User::default();
        for (number, &(talk, flags, seq, payload, time_ns)) in steps.iter().enumerate() {
            let mut event = event(talk, protocol::TCP, flags, time_ns, number as u32 + 1);
            event.tcp_seq = seq;
            event.payload_bytes = payload;
            shard.packet(&event, 0, &mut user);
            shard.validate();
        }
        shard.finish(&mut user);
        shard.validate();
        user.0
    }

    /// Handshake, data both ways, FIN both ways: Zeek calls it SF and writes ShADadFf.
    #[test]
    fn a_whole_connection() {
        let ended = run(&[
            (CLIENT, SYN, 100, 0, 0),
            (SERVER, SYN | ACK, 900, 0, 1),
            (CLIENT, ACK, 101, 0, 2),
            (CLIENT, ACK, 101, 10, 3),
            (SERVER, ACK, 901, 0, 4),
            (SERVER, ACK, 901, 20, 5),
            (CLIENT, FIN | ACK, 111, 0, 6),
            (SERVER, FIN | ACK, 921, 0, 7),
        ]);
        let history = "ShADadFf".to_owned();
        assert_eq!(ended, [(50_000, ConnState::SF, history, Leave::InputEnd, 8)]);
    }

    /// The states that scans and broken connections leave, as Zeek names them.
    #[test]
    fn states_of_half_connections() {
        let state = |steps: &[(Talk, u8, u32, u32, i64)]| run(steps)[0].1;
        assert_eq!(state(&[(CLIENT, SYN, 1, 0, 0)]), ConnState::S0);
        let refused = [(CLIENT, SYN, 1, 0, 0), (SERVER, RST | ACK, 0, 0, 1)];
        assert_eq!(state(&refused), ConnState::REJ);
        let open = [(CLIENT, SYN, 1, 0, 0), (SERVER, SYN | ACK, 1, 0, 1)];
        assert_eq!(state(&open), ConnState::S1);
        let reset = [open[0], open[1], (CLIENT, RST, 2, 0, 2)];
        assert_eq!(state(&reset), ConnState::RSTO);
        assert_eq!(state(&[(CLIENT, ACK, 5, 1, 0)]), ConnState::OTH);
    }

    /// Whoever sent the SYN began, also when the tap saw the answer first; a server's port decides
    /// where no SYN was seen.
    #[test]
    fn who_began() {
        let answer_first = run(&[(SERVER, SYN | ACK, 1, 0, 0), (CLIENT, ACK, 2, 0, 1)]);
        assert_eq!(answer_first[0].0, 50_000);
        let middle = run(&[(SERVER, ACK, 1, 100, 0)]);
        assert_eq!(middle[0].0, 50_000);
        let syn_later = run(&[(CLIENT, ACK, 9, 0, 0), (SERVER, SYN, 1, 0, 1)]);
        assert_eq!(syn_later[0].0, 443);
    }

    /// A SYN with another sequence number opens the 5-tuple anew; a repeated SYN does not.
    #[test]
    fn ports_are_used_again() {
        let again = run(&[(CLIENT, SYN, 1, 0, 0), (CLIENT, SYN, 1, 0, S)]);
        assert_eq!(again.len(), 1);
        let anew = run(&[(CLIENT, SYN, 1, 0, 0), (CLIENT, SYN, 77, 0, S)]);
        let leaves: Vec<_> = anew.iter().map(|ended| ended.3).collect();
        assert_eq!(leaves, [Leave::Reused, Leave::InputEnd]);
    }

    /// Stream octets come from sequence numbers, across the wrap; holes are counted as missed and
    /// filled again by late segments.
    #[test]
    fn sequence_space() {
        let mut sent = Sent::NOTHING;
        let start = u32::MAX - 5;
        assert!(sent.advance(start, 10, 10) == SeqStep::Plain);
        sent.state = EndState::Partial;
        assert!(sent.advance(start.wrapping_add(20), 10, 10) == SeqStep::Gap);
        assert_eq!((sent.stream_bytes(), sent.gap_bytes), (30, 10));
        assert!(sent.advance(start.wrapping_add(10), 10, 10) == SeqStep::Plain);
        assert_eq!((sent.stream_bytes(), sent.gap_bytes), (30, 0));
        assert!(sent.advance(start.wrapping_add(10), 10, 10) == SeqStep::Again);
        assert_eq!(sent.stream_bytes(), 30);
    }

    impl FlowUser<()> for Vec<(u16, u64, Leave)> {
        fn begin(&mut self, _: &mut Flow<()>, _: &Event) {}
        fn packet(&mut self, _: &mut Flow<()>, _: &Event) {}
        fn end(&mut self, flow: &mut Flow<()>, _: bool, leave: Leave, _: u32) {
            self.push((flow.source().1, flow.sent_by_source().packets, leave));
        }
    }

    /// The shard against an obvious model: random packets of a few hundred UDP flows, a limit of
    /// 50, idle times around the timeout. The same flows live after every step, with the same
    /// counts; who is evicted has been idle longest, to the second that the lists are exact to.
    #[test]
    fn a_shard_is_what_the_model_says() {
        const LIMIT: usize = 50;
        let mut shard = Shard::new(LIMIT, rules());
        let mut model: HashMap<u16, (i64, u64)> = HashMap::new();
        let (mut now, mut random) = (0_i64, 0x5eed_u64);
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let port = 2_000 + (random >> 33) as u16 % 200;
            now += (random >> 50) as i64 % 3 * S;
            let talk = Talk { host: 1, port, peer: 2, peer_port: 9 };
            let mut ended: Vec<(u16, u64, Leave)> = Vec::new();
            shard.packet(&event(talk, protocol::UDP, 0, now, step), 0, &mut ended);
            for (ended, packets, leave) in ended {
                let (last, count) = model.remove(&ended).expect("only live flows end");
                assert_eq!(packets, count);
                match leave {
                    Leave::Timeout => assert!(ended == port && now - last > 60 * S),
                    Leave::Evicted => {
                        let longest = model.values().map(|(last, _)| *last).min();
                        assert!(last <= longest.unwrap_or(last) + S);
                    }
                    other => panic!("{other:?}"),
                }
            }
            let place = model.entry(port).or_insert((now, 0));
            *place = (now, place.1 + 1);
            if step % 64 == 0 {
                let mut expired: Vec<(u16, u64, Leave)> = Vec::new();
                shard.expire(now, step, &mut expired);
                for (port, ..) in expired {
                    let (last, _) = model.remove(&port).expect("only live flows end");
                    assert!(now - last > 60 * S);
                }
            }
            assert_eq!(shard.live(), model.len());
            if step % 256 == 0 {
                shard.validate();
            }
        }
    }
}
