//! Reassembles IP fragments (RFC 791 section 3.2, RFC 8200 section 4.5) in bounded memory.
//!
//! Fragments are used in two ways: to reassemble the datagram, so that a DNS response of 4 KB can
//! be read; and to find the flow of each, which only the first fragment (offset 0) states. So a
//! fragment that comes before the first is *held*: its number, time and size wait until the ports
//! are known.
//!
//! ```text
//! state of a datagram              ends by                          its held fragments
//! collecting, ports unknown        first fragment                   released by that push
//! collecting, ports known          all bytes there: Complete        none
//! dead (IPv6 overlap)              30 s, or the budget is full      as above, or orphans
//! any                              30 s, or the budget is full      orphans
//! ```
//!
//! Invariants
//! 1. Every fragment pushed is accounted exactly once: under the ports that its own push gives, in
//!    `released` of a later push, or among the orphans (then without ports).
//! 2. Pieces of a datagram never overlap: the first writer of a byte wins. No piece is past the end
//!    that the last fragment set. So all bytes are there when their count is the total.
//! 3. `used_bytes` is the sum of all datagrams' cost, and at most `limit_bytes` after each push.
//! 4. The same pushes give the same results: the hash table is never iterated.
//!
//! Overlaps: IPv4 keeps the first bytes and counts the overlap; IPv6 drops the whole datagram (RFC
//! 5722), and continues to account its fragments. A fragment with the same bytes is a duplicate and
//! ignored. A completed datagram is removed at once, since IPv4 reuses its 16-bit IDs quickly.
//!
//! Cost: a fragment is O(bytes + log pieces), also with thousands of 8-byte pieces in any order.
//! Timeouts and evictions are amortised O(1).

mod datagram;

use std::collections::{HashMap, VecDeque};

use crate::Addr;
use crate::packet::{Fragment, Packet};
use crate::scope::Scope;
use datagram::{Added, DATAGRAM_COST, Datagram};

/// How long a datagram may take from its first-seen fragment, in packet time: 30 s, as Linux has
/// it (RFC 8200 allows 60).
pub const TIMEOUT_NS: i64 = 30_000_000_000;

/// Joins fragments. Shard by (source, destination) to use several.
#[derive(Debug)]
pub struct Reassembler {
    limit_bytes: usize,
    used_bytes: usize,
    table: HashMap<Key, Datagram>,
    /// Datagrams by age. Entries of removed datagrams stay, and are dropped when they reach the
    /// front or are the majority.
    queue: VecDeque<Queued>,
    serial: u64,
    orphans: Vec<Orphan>,
    stats: Stats,
}

/// The effect of a pushed fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Source and destination port of the datagram, once its first fragment has been seen: account
    /// this fragment under them. `None`: it is held, and comes back later (invariant 1).
    pub ports: Option<(u16, u16)>,
    /// Earlier fragments of the datagram whose ports are known now, in order of arrival.
    pub released: Vec<Held>,
    /// The state of the datagram.
    pub outcome: Outcome,
}

/// The state of the datagram that a fragment belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Fragments are missing still, or this one was a duplicate.
    Incomplete,
    /// All there.
    Complete {
        /// The first fragment as though it were the whole: `ip_bytes` with all of the payload. For
        /// [`crate::packet::decode_payload`].
        outer: Packet,
        /// The IP payload.
        payload: Vec<u8>,
    },
    /// The fragment was not used. The caller accounts it all the same.
    Rejected(Reject),
}

/// Why a fragment was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// `packet.fragment` is `None`.
    NotFragment,
    /// The capture cut it.
    Truncated,
    /// It has no bytes, or is not the last and not a multiple of 8 bytes long.
    Malformed,
    /// It ends past 65,535 bytes.
    Oversize,
    /// It moves the end of the datagram, or is past it.
    Contradiction,
    /// It overlaps another in IPv6, now or earlier: the datagram is dropped (RFC 5722).
    Overlap,
    /// The datagram does not fit in the memory allowed.
    NoRoom,
}

/// A fragment whose ports were not known when it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Number of the packet, as pushed.
    pub number: u64,
    /// Time of the packet, as pushed.
    pub ts_ns: i64,
    /// Bytes of the IP packet by its header.
    pub ip_bytes: u32,
}

/// A held fragment whose datagram went without its first fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The fragment of the datagram that was seen first: addresses, protocol, tunnel.
    pub seen: Packet,
    /// The held fragment.
    pub held: Held,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams put together.
    pub completed: u64,
    /// Datagrams dropped after [`TIMEOUT_NS`].
    pub expired: u64,
    /// Datagrams dropped because the budget was full.
    pub evicted: u64,
    /// Fragments that repeated the same bytes.
    pub duplicates: u64,
    /// Fragments that overlapped others with other bytes or other bounds.
    pub overlaps: u64,
    /// Fragments that were not used, overlaps in IPv6 among them.
    pub rejected: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    src: Addr,
    dst: Addr,
    id: u32,
    /// Networks that use the same addresses use the same IDs.
    scope: Scope,
    ip_version: u8,
    /// 0 in IPv6, where only the first fragment's next header counts.
    protocol: u8,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    key: Key,
    serial: u64,
}

impl Reassembler {
    /// A reassembler that stores at most `limit_bytes` of fragments and their bookkeeping.
    pub fn new(limit_bytes: usize) -> Reassembler {
        Reassembler {
            limit_bytes,
            used_bytes: 0,
            table: HashMap::new(),
            queue: VecDeque::new(),
            serial: 0,
            orphans: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// Takes a fragment. `data` is its IP payload as captured: `data_len` bytes of the frame at
    /// `data_offset`. `number` and `ts_ns` are returned later if it is held.
    ///
    /// Call [`Reassembler::orphans`] after each push; the next push clears them.
    pub fn push(&mut self, packet: &Packet, data: &[u8], number: u64, ts_ns: i64) -> Push {
        self.orphans.clear();
        let Some(fragment) = packet.fragment else {
            return Push {
                ports: Some((packet.src_port, packet.dst_port)),
                released: Vec::new(),
                outcome: Outcome::Rejected(Reject::NotFragment),
            };
        };
        self.expire(ts_ns);
        let key = Key::of(packet, &fragment);
        let datagram = self.collect(key, packet, ts_ns);
        let cost_before = datagram.cost();

        let mut released = Vec::new();
        if fragment.offset == 0 && datagram.first.is_none() {
            datagram.first = Some(*packet);
            released = std::mem::take(&mut datagram.held);
        }
        let ports = datagram.first.map(|first| (first.src_port, first.dst_port));
        if ports.is_none() {
            datagram.held.push(Held { number, ts_ns, ip_bytes: packet.ip_bytes });
        }
        let added = datagram.add(&fragment, data, packet.ip_version);
        let cost_after = datagram.cost();
        self.used_bytes = self.used_bytes - cost_before + cost_after;

        let mut outcome = self.settle(key, added);
        self.evict();
        if matches!(outcome, Outcome::Incomplete) && !self.table.contains_key(&key) {
            self.stats.rejected += 1;
            outcome = Outcome::Rejected(Reject::NoRoom);
        }
        Push { ports, released, outcome }
    }

    /// Held fragments that the last push (or [`Reassembler::finish`]) gave up waiting for.
    pub fn orphans(&self) -> &[Orphan] {
        &self.orphans
    }

    /// Gives every datagram up, the oldest first; held fragments are then in
    /// [`Reassembler::orphans`]. For the end of the input.
    pub fn finish(&mut self) {
        self.orphans.clear();
        while self.drop_oldest() {}
    }

    /// Counts since the start.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Bytes in use, of the limit given.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// The datagram under `key`: the one being collected, or a new one if there is none, or it is
    /// too old for this packet.
    fn collect(&mut self, key: Key, packet: &Packet, ts_ns: i64) -> &mut Datagram {
        if self.table.get(&key).is_some_and(|datagram| datagram.is_expired(ts_ns)) {
            self.stats.expired += 1;
            self.remove(key);
        }
        self.table.entry(key).or_insert_with(|| {
            self.serial += 1;
            self.used_bytes += DATAGRAM_COST;
            self.queue.push_back(Queued { key, serial: self.serial });
            Datagram::new(self.serial, packet, ts_ns)
        })
    }

    /// Counts the result of [`Datagram::add`], and takes a complete datagram out.
    fn settle(&mut self, key: Key, added: Result<Added, Reject>) -> Outcome {
        let rejected = match added {
            Ok(Added::Duplicate) => {
                self.stats.duplicates += 1;
                None
            }
            Ok(Added::New { overlap }) => {
                self.stats.overlaps += u64::from(overlap);
                None
            }
            Err(reject) => {
                self.stats.overlaps += u64::from(reject == Reject::Overlap);
                self.stats.rejected += 1;
                Some(Outcome::Rejected(reject))
            }
        };
        if self.table.get(&key).is_some_and(Datagram::is_complete)
            && let Some(datagram) = self.remove(key)
            && let Some(first) = datagram.first
        {
            self.stats.completed += 1;
            let header_bytes = first.fragment.map_or(0, |fragment| fragment.data_bytes);
            let outer = Packet {
                ip_bytes: first.ip_bytes.saturating_sub(header_bytes) + datagram.present,
                ..first
            };
            return Outcome::Complete { outer, payload: datagram.into_payload() };
        }
        rejected.unwrap_or(Outcome::Incomplete)
    }

    /// Takes a datagram out of the table; fragments it still holds become orphans.
    fn remove(&mut self, key: Key) -> Option<Datagram> {
        let datagram = self.table.remove(&key)?;
        self.used_bytes -= datagram.cost();
        let seen = datagram.seen;
        self.orphans.extend(datagram.held.iter().map(|held| Orphan { seen, held: *held }));
        Some(datagram)
    }

    /// Drops datagrams that are too old. A queue entry that is not expired hides younger ones
    /// behind it, even if time went back between them; `collect` looks again.
    fn expire(&mut self, ts_ns: i64) {
        while let Some(queued) = self.queue.front() {
            match self.table.get(&queued.key) {
                Some(datagram) if datagram.serial == queued.serial => {
                    if !datagram.is_expired(ts_ns) {
                        break;
                    }
                    self.stats.expired += 1;
                    self.remove(queued.key);
                }
                _ => {}
            }
            self.queue.pop_front();
        }
        if self.queue.len() > 2 * self.table.len() + 64 {
            let table = &self.table;
            self.queue.retain(|queued| {
                table.get(&queued.key).is_some_and(|datagram| datagram.serial == queued.serial)
            });
        }
    }

    /// Drops the oldest datagrams until the limit holds (invariant 3).
    fn evict(&mut self) {
        while self.used_bytes > self.limit_bytes && self.drop_oldest() {
            self.stats.evicted += 1;
        }
    }

    /// Drops the oldest datagram; false if there is none.
    fn drop_oldest(&mut self) -> bool {
        while let Some(queued) = self.queue.pop_front() {
            let is_live = self
                .table
                .get(&queued.key)
                .is_some_and(|datagram| datagram.serial == queued.serial);
            if is_live {
                self.remove(queued.key);
                return true;
            }
        }
        false
    }
}

impl Key {
    fn of(packet: &Packet, fragment: &Fragment) -> Key {
        Key {
            src: packet.src,
            dst: packet.dst,
            id: fragment.id,
            scope: packet.scope,
            ip_version: packet.ip_version,
            protocol: if packet.ip_version == 4 { packet.protocol } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Packet, decode};

    type Maker = fn(u16, u16, bool, &[u8]) -> Vec<u8>;

    /// A raw IPv4 frame that carries `data` as a fragment of datagram `id`.
    fn v4(id: u16, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
        let word = (offset / 8) | if more { 0x2000 } else { 0 };
        let mut frame = vec![0x45, 0];
        frame.extend_from_slice(&(20 + data.len() as u16).to_be_bytes());
        frame.extend_from_slice(&id.to_be_bytes());
        frame.extend_from_slice(&word.to_be_bytes());
        frame.extend_from_slice(&[64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        frame.extend_from_slice(data);
        frame
    }

    /// The same in IPv6.
    fn v6(id: u32, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x60, 0, 0, 0];
        frame.extend_from_slice(&(8 + data.len() as u16).to_be_bytes());
        frame.extend_from_slice(&[44, 64]);
        frame.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        frame.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        frame.extend_from_slice(&[17, 0]);
        frame.extend_from_slice(&(offset | u16::from(more)).to_be_bytes());
        frame.extend_from_slice(&id.to_be_bytes());
        frame.extend_from_slice(data);
        frame
    }

    fn push(table: &mut Reassembler, frame: &[u8], number: u64, ts_ns: i64) -> Push {
        let packet: Packet = decode(101, frame).expect("a frame built here");
        let fragment = packet.fragment.expect("a fragment");
        let at = fragment.data_offset as usize;
        table.push(&packet, &frame[at..at + fragment.data_len as usize], number, ts_ns)
    }

    /// A UDP datagram's IP payload: ports 53 and 4000, then bytes that differ from place to place.
    fn udp(len: u16) -> Vec<u8> {
        let mut bytes = vec![0, 53, 0x0f, 0xa0];
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes.extend((6..len).map(|i| ((i * 7) >> 3) as u8));
        bytes
    }

    /// Last fragment first: it is held, released by the first one with its ports, and the datagram
    /// decodes as one UDP packet. Invariant 1.
    #[test]
    fn out_of_order() {
        let whole = udp(1000);
        let mut table = Reassembler::new(1 << 20);
        let makers: [Maker; 2] =
            [v4, |id, offset, more, data| v6(u32::from(id), offset, more, data)];
        for make in makers {
            let last = push(&mut table, &make(7, 800, false, &whole[800..]), 1, 10);
            assert_eq!((last.ports, last.outcome), (None, Outcome::Incomplete));
            let frame = make(7, 0, true, &whole[..800]);
            let first = push(&mut table, &frame, 2, 20);
            assert_eq!(first.ports, Some((53, 4000)));
            assert_eq!(first.released.len(), 1);
            assert_eq!((first.released[0].number, first.released[0].ts_ns), (1, 10));
            let Outcome::Complete { outer, payload } = first.outcome else {
                panic!("not complete")
            };
            assert_eq!(payload, whole);
            let packet = crate::packet::decode_payload(&outer, &payload).expect("a UDP packet");
            assert_eq!((packet.src_port, packet.dst_port), (53, 4000));
            assert_eq!((packet.payload_offset, packet.payload_len), (8, 992));
            assert_eq!(packet.ip_bytes as usize, frame.len() + 200);
            assert_eq!(packet.fragment, None);
        }
        assert_eq!((table.used_bytes(), table.stats().completed), (0, 2));
        assert!(table.orphans().is_empty());
    }

    /// In IPv4 the bytes that came first stay, and the overlap is counted; a duplicate is not one.
    /// Invariant 2.
    #[test]
    fn first_writer_wins() {
        let whole = udp(64);
        let mut table = Reassembler::new(1 << 20);
        push(&mut table, &v4(1, 0, true, &whole[..16]), 1, 0);
        push(&mut table, &v4(1, 24, true, &whole[24..32]), 2, 0);
        push(&mut table, &v4(1, 0, true, &whole[..16]), 3, 0);
        assert_eq!((table.stats().duplicates, table.stats().overlaps), (1, 0));
        let mut liar = vec![0xee; 40];
        liar[8..16].copy_from_slice(&whole[16..24]);
        liar[24..].copy_from_slice(&whole[32..48]);
        push(&mut table, &v4(1, 8, true, &liar), 4, 0);
        assert_eq!((table.stats().duplicates, table.stats().overlaps), (1, 1));
        let done = push(&mut table, &v4(1, 48, false, &whole[48..]), 5, 0);
        let Outcome::Complete { payload, .. } = done.outcome else { panic!("not complete") };
        assert_eq!(payload, whole);
    }

    /// In IPv6 an overlap ends the datagram (RFC 5722), but its fragments still learn the ports.
    #[test]
    fn overlap_kills_in_v6() {
        let whole = udp(64);
        let mut table = Reassembler::new(1 << 20);
        push(&mut table, &v6(1, 0, true, &whole[..32]), 1, 0);
        let duplicate = push(&mut table, &v6(1, 0, true, &whole[..32]), 2, 0);
        assert_eq!(duplicate.outcome, Outcome::Incomplete);
        for (number, offset) in [(3, 24), (4, 32)] {
            let frame = v6(1, offset, false, &whole[usize::from(offset)..]);
            let answer = push(&mut table, &frame, number, 0);
            assert_eq!(answer.outcome, Outcome::Rejected(Reject::Overlap));
            assert_eq!(answer.ports, Some((53, 4000)));
        }
        assert_eq!(table.stats().completed, 0);
    }

    /// Fragments that can't be are refused by kind, and the datagram they name survives them.
    #[test]
    fn refused() {
        let whole = udp(64);
        let mut table = Reassembler::new(1 << 20);
        push(&mut table, &v4(1, 0, true, &whole[..32]), 1, 0);
        let cases = [
            (v4(1, 32, true, &[0; 12]), Reject::Malformed),
            (v4(1, 32, false, &[]), Reject::Malformed),
            (v4(1, 65_528, false, &[0; 8]), Reject::Oversize),
            (v4(1, 8, false, &[0; 8]), Reject::Contradiction),
        ];
        for (frame, reject) in cases {
            let outcome = push(&mut table, &frame, 2, 0).outcome;
            assert_eq!(outcome, Outcome::Rejected(reject));
        }
        let cut = v4(1, 32, false, &whole[32..]);
        let outcome = push(&mut table, &cut[..cut.len() - 1], 3, 0).outcome;
        assert_eq!(outcome, Outcome::Rejected(Reject::Truncated));
        let outcome = push(&mut table, &cut, 4, 0).outcome;
        assert!(matches!(outcome, Outcome::Complete { payload, .. } if payload == whole));
        assert_eq!(table.stats().rejected, 5);
    }

    /// After 30 s of packet time a datagram is dropped, its fragments are orphans, and the same ID
    /// starts a new one. Invariant 1.
    #[test]
    fn timeout() {
        let whole = udp(64);
        let mut table = Reassembler::new(1 << 20);
        push(&mut table, &v4(1, 32, false, &whole[32..]), 1, 5);
        push(&mut table, &v4(2, 32, false, &whole[32..]), 2, TIMEOUT_NS + 5);
        assert!(table.orphans().is_empty());
        let late = push(&mut table, &v4(1, 0, true, &whole[..32]), 3, TIMEOUT_NS + 6);
        assert_eq!((late.ports, late.outcome), (Some((53, 4000)), Outcome::Incomplete));
        assert_eq!(table.orphans().iter().map(|o| o.held.number).collect::<Vec<_>>(), [1]);
        assert_eq!(table.stats().expired, 1);
        table.finish();
        assert_eq!(table.orphans().iter().map(|o| o.held.number).collect::<Vec<_>>(), [2]);
        assert_eq!(table.used_bytes(), 0);
    }

    /// Two tables get the same fragments of many datagrams, while time and room run out. They give
    /// the same results in the same order, though their hash tables have different layouts.
    #[test]
    fn same_pushes_same_answers() {
        let whole = udp(1024);
        let mut tables = [(); 2].map(|()| Reassembler::new(64 << 10));
        for step in 0..4_000_u64 {
            let id = (step * 7_919 % 97) as u16;
            let part = (step * 31 % 4) as u16 * 256;
            let data = &whole[usize::from(part)..][..256];
            let frame = v4(id, part, part < 768, data);
            // Time runs out first, then room.
            let ts_ns = step.min(2_000) as i64 * TIMEOUT_NS / 20;
            let [one, other] = tables.each_mut().map(|table| {
                let push = push(table, &frame, step, ts_ns);
                format!("{push:?} {:?}", table.orphans())
            });
            assert_eq!(one, other, "invariant 4: step {step}");
        }
        let [one, other] = tables.each_mut().map(|table| {
            table.finish();
            (format!("{:?}", table.orphans()), table.stats().evicted, table.stats().expired)
        });
        assert_eq!(one, other, "invariant 4");
        assert!(one.1 > 100 && one.2 > 100, "{} evicted, {} expired", one.1, one.2);
    }

    /// With any fragments, memory stays within the limit, the oldest datagrams are dropped first,
    /// and the queue does not outgrow the table. Invariant 3.
    #[test]
    fn bounded() {
        let limit = 64 << 10;
        let mut table = Reassembler::new(limit);
        let mut orphans = Vec::new();
        for i in 0..2_000_u16 {
            push(&mut table, &v4(i, 8, true, &[0; 1024]), u64::from(i), 0);
            orphans.extend(table.orphans().iter().map(|orphan| orphan.held.number));
            assert!(table.used_bytes() <= limit);
            assert!(table.queue.len() <= 2 * table.table.len() + 65);
        }
        assert_eq!(orphans.len() as u64, table.stats().evicted);
        assert!(orphans.is_sorted() && orphans.len() > 1_900);
        let mut tiny = Reassembler::new(10);
        let answer = push(&mut tiny, &v4(1, 8, true, &[0; 8]), 9, 0);
        assert_eq!(answer.outcome, Outcome::Rejected(Reject::NoRoom));
        assert_eq!((answer.ports, tiny.orphans().len()), (None, 1));
    }
}
