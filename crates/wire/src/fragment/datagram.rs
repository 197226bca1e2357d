//! One datagram that is being reassembled: bytes as received, and their places.
//!
//! This module keeps invariant 2 of [`super`]: pieces are disjoint, at least one byte each, and
//! none ends past `total`.

use std::collections::BTreeMap;

use super::{Held, Queued, Reject, TIMEOUT_NS};
use crate::packet::{Fragment, Packet};

/// Most bytes of a datagram's payload.
const PAYLOAD_BYTES_MAX: u32 = 65_535;

/// The cost of a datagram except its bytes: table and queue entries with their slack.
pub(super) const DATAGRAM_COST: usize = 3 * size_of::<Datagram>() + 4 * size_of::<Queued>();

/// The cost of a piece except its bytes: its share of a B-tree node, half full.
const PIECE_COST: usize = 2 * size_of::<(u32, Piece)>();

#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) serial: u64,
    pub(super) created_ns: i64,
    /// The fragment that was seen first.
    pub(super) seen: Packet,
    /// The packet at offset 0.
    pub(super) first: Option<Packet>,
    /// Bytes in order of arrival; `pieces` has their places.
    bytes: Vec<u8>,
    /// By offset in the payload.
    pieces: BTreeMap<u32, Piece>,
    /// Bytes of payload received: the sum of `pieces`.
    pub(super) present: u32,
    /// The end of the last fragment, once seen.
    total: Option<u32>,
    pub(super) held: Vec<Held>,
    /// Dropped; only its ports are used.
    dead: bool,
}

/// The place of a run of bytes in `Datagram::bytes`.
#[derive(Clone, Copy, Debug)]
struct Piece {
    at: u32,
    len: u32,
}

/// The effect of a fragment on its datagram.
pub(super) enum Added {
    Duplicate,
    New { overlap: bool },
}

impl Datagram {
    pub(super) fn new(serial: u64, seen: &Packet, created_ns: i64) -> Datagram {
        Datagram {
            serial,
            created_ns,
            seen: *seen,
            first: None,
            bytes: Vec::new(),
            pieces: BTreeMap::new(),
            present: 0,
            total: None,
            held: Vec::new(),
            dead: false,
        }
    }

    /// The charged cost.
    pub(super) fn cost(&self) -> usize {
        DATAGRAM_COST
            + self.bytes.capacity()
            + self.pieces.len() * PIECE_COST
            + self.held.capacity() * size_of::<Held>()
    }

    pub(super) fn is_expired(&self, now_ns: i64) -> bool {
        now_ns.saturating_sub(self.created_ns) > TIMEOUT_NS
    }

    pub(super) fn is_complete(&self) -> bool {
        !self.dead && self.total == Some(self.present)
    }

    /// Adds a fragment's bytes where there are none yet.
    pub(super) fn add(
        &mut self,
        fragment: &Fragment,
        data: &[u8],
        ip_version: u8,
    ) -> Result<Added, Reject> {
        if self.dead {
            return Err(Reject::Overlap);
        }
        let len = fragment.data_bytes;
        let data = data.get(..len as usize).ok_or(Reject::Truncated)?;
        if len == 0 || (fragment.more && !len.is_multiple_of(8)) {
            return Err(Reject::Malformed);
        }
        let start = u32::from(fragment.offset);
        let end = start.saturating_add(len);
        if end > PAYLOAD_BYTES_MAX {
            return Err(Reject::Oversize);
        }
        self.check_end(end, fragment.more)?;

        let gaps = self.gaps(start, end);
        let is_new = matches!(gaps[..], [gap] if gap == (start, end));
        if gaps.is_empty() && self.has_bytes(start, data) {
            return Ok(Added::Duplicate);
        }
        if !is_new && ip_version == 6 {
            self.give_up();
            return Err(Reject::Overlap);
        }
        if !fragment.more {
            self.total = Some(end);
        }
        for (from, to) in gaps {
            let piece = Piece { at: self.bytes.len() as u32, len: to - from };
            self.bytes.extend_from_slice(&data[(from - start) as usize..(to - start) as usize]);
            self.pieces.insert(from, piece);
            self.present += piece.len;
        }
        Ok(Added::New { overlap: !is_new })
    }

    /// Refuses a fragment that ends where the datagram can't (the second half of invariant 2).
    fn check_end(&self, end: u32, more: bool) -> Result<(), Reject> {
        let seen_end = self.pieces.last_key_value().map_or(0, |(from, piece)| from + piece.len);
        let sound = match (self.total, more) {
            (Some(total), true) => end < total,
            (Some(total), false) => end == total,
            (None, true) => true,
            (None, false) => end >= seen_end,
        };
        if sound { Ok(()) } else { Err(Reject::Contradiction) }
    }

    /// The parts of `start..end` that no piece covers. Pieces are at least one byte and do not
    /// overlap, so this walks at most as many as the fragment has bytes.
    fn gaps(&self, start: u32, end: u32) -> Vec<(u32, u32)> {
        let mut gaps = Vec::with_capacity(1);
        let mut cursor = start;
        for (from, piece) in self.covering(start, end) {
            if from > cursor {
                gaps.push((cursor, from));
            }
            cursor = cursor.max(from + piece.len);
        }
        if cursor < end {
            gaps.push((cursor, end));
        }
        gaps
    }

    /// The pieces that touch `start..end`, by offset.
    fn covering(&self, start: u32, end: u32) -> impl Iterator<Item = (u32, Piece)> + '_ {
        let before = self.pieces.range(..start).next_back();
        let before = before.filter(move |(from, piece)| **from + piece.len > start);
        before.into_iter().chain(self.pieces.range(start..end)).map(|(from, piece)| (*from, *piece))
    }

    /// True when `data`, all of which is covered from `start` on, repeats the bytes there.
    fn has_bytes(&self, start: u32, data: &[u8]) -> bool {
        let end = start + data.len() as u32;
        self.covering(start, end).all(|(from, piece)| {
            let (low, high) = (from.max(start), (from + piece.len).min(end));
            let at = (piece.at + (low - from)) as usize;
            let ours = self.bytes.get(at..at + (high - low) as usize);
            ours == data.get((low - start) as usize..(high - start) as usize)
        })
    }

    /// Frees the bytes; ports and held fragments stay.
    fn give_up(&mut self) {
        self.dead = true;
        self.bytes = Vec::new();
        self.pieces = BTreeMap::new();
    }

    /// The payload. Fragments that arrived in order are already sorted.
    pub(super) fn into_payload(self) -> Vec<u8> {
        if self.pieces.iter().all(|(from, piece)| *from == piece.at) {
            return self.bytes;
        }
        let mut payload = Vec::with_capacity(self.bytes.len());
        for piece in self.pieces.values() {
            let at = piece.at as usize;
            payload.extend_from_slice(&self.bytes[at..at + piece.len as usize]);
        }
        payload
    }
}
