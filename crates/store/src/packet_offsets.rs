//! The position of a packet by its number.
//!
//! The front end counts packets; files have positions. An event names a flow by the number of its
//! first packet, which came in this batch, or a little before, or hours ago. The offsets of the
//! last [`PACKETS_MAX`] packets are kept; for older ones, the positions of those that events have
//! named ([`NAMED_MAX`] at a time), and the positions of batches.
//!
//! Without any of these, the result is a position before the packet: the flow may then include
//! packets of an earlier one with the same key in the same run.

use std::collections::{HashMap, VecDeque};

/// Packets whose offsets are kept: 4 MiB.
const PACKETS_MAX: usize = 1 << 20;

/// Parts of batches whose positions are kept.
const PIECES_MAX: usize = 1 << 16;

/// Numbers whose positions are kept because an event named them: 16 MiB.
const NAMED_MAX: usize = 1 << 19;

/// Consecutive packets of a segment.
#[derive(Debug)]
struct Piece {
    first_packet: u64,
    packets: u64,
    /// Position of its first packet.
    position: u64,
    /// Offsets from there, one a packet; empty when they are not kept any more.
    offsets: Box<[u32]>,
}

#[derive(Debug)]
pub(crate) struct PacketOffsets {
    pieces: VecDeque<Piece>,
    /// Number of pieces with offsets: the last ones.
    whole: usize,
    packets: usize,
    named: HashMap<u64, u64>,
    /// Position before all packets.
    start: u64,
    /// Position after all packets.
    end: u64,
}

impl PacketOffsets {
    pub fn new(start: u64) -> PacketOffsets {
        PacketOffsets {
            pieces: VecDeque::new(),
            whole: 0,
            packets: 0,
            named: HashMap::new(),
            start,
            end: start,
        }
    }

    /// Adds packets from number `first_packet` on: at `position`, each at its offset, up to `end`.
    pub fn push(&mut self, first_packet: u64, position: u64, offsets: Box<[u32]>, end: u64) {
        self.packets += offsets.len();
        self.end = end;
        let packets = offsets.len() as u64;
        self.pieces.push_back(Piece { first_packet, packets, position, offsets });
        self.whole += 1;
        while self.packets > PACKETS_MAX && self.whole > 1 {
            let at = self.pieces.len() - self.whole;
            self.packets -= std::mem::take(&mut self.pieces[at].offsets).len();
            self.whole -= 1;
        }
        if self.pieces.len() > PIECES_MAX {
            self.pieces.pop_front();
            self.whole = self.whole.min(self.pieces.len());
        }
    }

    /// The position of a packet; of one that was not stored, the position where it would be.
    pub fn position(&self, number: u64) -> u64 {
        if let Some(position) = self.named.get(&number) {
            return *position;
        }
        let behind = self.pieces.partition_point(|piece| piece.first_packet <= number);
        let Some(piece) = behind.checked_sub(1).and_then(|at| self.pieces.get(at)) else {
            return self.start;
        };
        let index = number - piece.first_packet;
        if index >= piece.packets {
            return self.pieces.get(behind).map_or(self.end, |next| next.position);
        }
        piece
            .offsets
            .get(index as usize)
            .map_or(piece.position, |offset| piece.position + u64::from(*offset))
    }

    /// Remembers a packet that an event names as a flow's first: other events will name it too.
    pub fn name(&mut self, number: u64) -> u64 {
        let position = self.position(number);
        if self.named.len() < NAMED_MAX {
            self.named.insert(number, position);
        }
        position
    }

    /// The flow has ended.
    pub fn forget(&mut self, number: u64) {
        self.named.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers give the positions of their packets. Between and after pieces they give the next
    /// position. Old ones are exact if they were named, and else not too late.
    #[test]
    fn numbers_have_places() {
        let mut numbers = PacketOffsets::new(50);
        assert_eq!(numbers.position(1), 50);
        numbers.push(1, 100, [0, 10, 30].into(), 160);
        numbers.push(7, 200, [0, 10].into(), 220);
        let places: Vec<u64> = (1..=10).map(|number| numbers.position(number)).collect();
        assert_eq!(places, [100, 110, 130, 200, 200, 200, 200, 210, 220, 220]);
        assert_eq!(numbers.name(2), 110);
        let many = PACKETS_MAX as u32;
        numbers.push(9, 300, (0..many).collect(), 300 + u64::from(many));
        assert_eq!((numbers.position(2), numbers.position(3)), (110, 100));
        assert_eq!(numbers.position(10), 301);
        numbers.forget(2);
        assert_eq!(numbers.position(2), 100);
    }
}
