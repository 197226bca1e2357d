//! Encodes a message again, if its records cannot stay at their offsets.
//!
//! Names are compressed with all names written before (RFC 1035, section 4.1.4), whatever their
//! case: owners, and names in the data of types that allow it (RFC 3597, section 4). The places of
//! names are in a small table by the hash of their suffixes. A full table, or a collision, costs
//! bytes of the message, never its meaning: a pointer is written only after its target was
//! compared.
//!
//! Bounds: 2 KiB, and for each name its own bytes and at most 127 table lookups.

use super::super::name::walk_name;
use super::super::rdata::layout;
use super::super::{DnsError, LABELS_MAX, Message, NAME_WIRE_BYTES_MAX, Record};
use super::Unfit;

/// Places that are remembered, a power of two.
const SLOTS: usize = 256;

/// Slots that are compared for one name.
const PROBES: usize = 4;

/// Pointers lead no further.
const POINTER_MAX: usize = 0x3fff;

/// The place of a name in the message, and its hash; place 0 is unused.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    hash: u32,
    place: u16,
}

/// Writes one message after the other; `base` bytes of the buffer are before the message.
#[derive(Debug)]
pub(super) struct Encoder {
    slots: [Slot; SLOTS],
    name: WireName,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder { slots: [Slot::default(); SLOTS], name: WireName::new() }
    }
}

impl Encoder {
    /// Begins a message, of which `out` holds header and question after `base` bytes. Pointers may
    /// lead to the question's name; the caller guarantees that it is whole.
    pub fn begin(&mut self, out: &[u8], base: usize) -> Result<(), Unfit> {
        self.slots.fill(Slot::default());
        let message = &out[base..];
        self.name.read(message, super::HEADER_BYTES)?;
        for label in 0..self.name.labels {
            let place = super::HEADER_BYTES + self.name.start(label);
            self.remember(label, place);
        }
        Ok(())
    }

    /// Appends a record of `message`, and returns the offset of its TTL in the message.
    pub fn record(
        &mut self,
        message: &Message<'_>,
        record: &Record,
        out: &mut Vec<u8>,
        base: usize,
    ) -> Result<usize, Unfit> {
        self.name(message, record.owner_offset, true, out, base)?;
        let ttl_at = out.len() - base + 4;
        let data_at = out.len() + 10;
        let fixed = record.rdata_offset - 10;
        out.extend_from_slice(&message.bytes()[fixed..record.rdata_offset]);
        match layout(message, record)? {
            None => out.extend_from_slice(message.rdata(record)),
            Some(layout) => {
                let rdata = message.rdata(record);
                out.extend_from_slice(rdata.get(..layout.before).ok_or(DnsError::RdataMalformed)?);
                let mut at = record.rdata_offset + layout.before;
                for _ in 0..layout.names {
                    at = self.name(message, at, layout.may_compress, out, base)?;
                }
                let rest = message.bytes().get(at..record.rdata_end());
                out.extend_from_slice(rest.ok_or(DnsError::RdataMalformed)?);
            }
        }
        let data_bytes = u16::try_from(out.len() - data_at).map_err(|_| Unfit::TooLong)?;
        out[data_at - 2..data_at].copy_from_slice(&data_bytes.to_be_bytes());
        Ok(ttl_at)
    }

    /// Appends the name at `offset` of `message`, and returns the offset of its end there.
    fn name(
        &mut self,
        message: &Message<'_>,
        offset: usize,
        may_compress: bool,
        out: &mut Vec<u8>,
        base: usize,
    ) -> Result<usize, Unfit> {
        let end = self.name.read(message.bytes(), offset)?;
        let known = if may_compress { self.find(&out[base..]) } else { None };
        let labels = known.map_or(self.name.labels, |(labels, _)| labels);
        if may_compress {
            for label in 0..labels {
                self.remember(label, out.len() - base + self.name.start(label));
            }
        }
        out.extend_from_slice(&self.name.bytes[..self.name.start(labels)]);
        match known {
            Some((_, place)) => out.extend_from_slice(&(0xc000 | place).to_be_bytes()),
            None => out.push(0),
        }
        Ok(end)
    }

    /// How many labels must be written before a pointer, and where that leads; the fewest.
    fn find(&self, message: &[u8]) -> Option<(usize, u16)> {
        (0..self.name.labels).find_map(|label| {
            let hash = self.name.hashes[label];
            let slot = self.probes(hash).find(|&at| {
                let Slot { hash: other, place } = self.slots[at];
                place != 0 && other == hash && self.name.stands_at(message, place, label)
            });
            slot.map(|at| (label, self.slots[at].place))
        })
    }

    /// Records that the suffix from this label on is at `place`.
    fn remember(&mut self, label: usize, place: usize) {
        let hash = self.name.hashes[label];
        let free = self.probes(hash).find(|&at| self.slots[at].place == 0);
        if let (Some(at), 1..=POINTER_MAX) = (free, place) {
            self.slots[at] = Slot { hash, place: place as u16 };
        }
    }

    fn probes(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let first = hash as usize;
        (first..first + PROBES).map(|at| at % SLOTS)
    }
}

/// A name in wire form, without pointers, with its case.
#[derive(Debug)]
struct WireName {
    bytes: [u8; NAME_WIRE_BYTES_MAX],
    labels: usize,
    /// The place of each label's length byte; then that of the root.
    starts: [u8; LABELS_MAX + 1],
    /// Hashes of the suffixes that begin with each label, in lower case.
    hashes: [u32; LABELS_MAX],
}

impl WireName {
    const fn new() -> WireName {
        WireName {
            bytes: [0; NAME_WIRE_BYTES_MAX],
            labels: 0,
            starts: [0; LABELS_MAX + 1],
            hashes: [0; LABELS_MAX],
        }
    }

    fn start(&self, label: usize) -> usize {
        usize::from(self.starts[label])
    }

    /// Reads the name at `offset`, and returns the offset of its end.
    fn read(&mut self, message: &[u8], offset: usize) -> Result<usize, DnsError> {
        self.labels = 0;
        let WireName { bytes, labels, starts, .. } = self;
        // The walk checks both bounds: 255 bytes with the root, and so 127 labels.
        let end = walk_name(message, offset, |label, length| {
            let start = usize::from(starts[*labels]);
            bytes[start] = length as u8;
            bytes[start + 1..start + 1 + length].copy_from_slice(&label[..length]);
            *labels += 1;
            starts[*labels] = (start + 1 + length) as u8;
            true
        })?;
        let mut hash = 0x811c_9dc5;
        for label in (0..self.labels).rev() {
            for &byte in &self.bytes[self.start(label)..self.start(label + 1)] {
                hash = (hash ^ u32::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0193);
            }
            // The low bits choose the slot; the product mixes the high ones better.
            hash ^= hash >> 15;
            self.hashes[label] = hash;
        }
        Ok(end)
    }

    /// True where the suffix that begins with the label of that number is also at `place` of
    /// `message`, in any case.
    fn stands_at(&self, message: &[u8], place: u16, label: usize) -> bool {
        let mut rest = &self.bytes[self.start(label)..self.start(self.labels)];
        let walked = walk_name(message, usize::from(place), |other, length| {
            let Some((&own_length, own)) = rest.split_first() else { return false };
            let is_same = usize::from(own_length) == length
                && own[..length].eq_ignore_ascii_case(&other[..length]);
            rest = own.get(length..).unwrap_or(&[]);
            is_same
        });
        walked.is_ok() && rest.is_empty()
    }
}
