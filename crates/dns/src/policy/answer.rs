//! Writes responses from local data.
//!
//! Every owner is a pointer (RFC 1035, section 4.1.4) to an earlier place of its name: the
//! question, or the alias record before. ID, RD and CD are zero; the server sets those of the
//! client.

use larder_wire::dns::{HEADER_BYTES, MESSAGE_BYTES_MAX, class, rtype};

use super::records::RecordRef;

/// Where the name of the question begins.
pub const QUESTION_AT: usize = HEADER_BYTES;

/// The mailbox in a made-up SOA record, and the bytes of that record's data.
const NOBODY: &[u8; 16] = b"\x06nobody\x07invalid\0";
const SOA_BYTES: usize = 2 + NOBODY.len() + 5 * 4;

/// Response codes of local responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rcode {
    NoError = 0,
    NxDomain = 3,
    Refused = 5,
}

/// A response that is being written.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    class: u16,
}

impl<'a> Writer<'a> {
    /// Begins a response: QR and RA are set, the question is there, everything else is zero.
    pub fn new(out: &'a mut Vec<u8>, question: &[u8]) -> Writer<'a> {
        out.clear();
        out.extend_from_slice(&[0, 0, 0x80, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(question);
        let class = question.last_chunk().map_or(class::IN, |&bytes| u16::from_be_bytes(bytes));
        Writer { out, class }
    }

    /// True if the answer section has a record.
    pub fn has_answer(&self) -> bool {
        self.out[6..8] != [0, 0]
    }

    /// Sets AA and the response code.
    pub fn finish(self, is_own: bool, rcode: Rcode) {
        self.out[2] |= u8::from(is_own) << 2;
        self.out[3] |= rcode as u8;
    }

    /// Adds a record to the answer section, whose owner is at `owner_at`, and returns where its
    /// data begins. It fits, since the records of a name are bounded and few aliases are followed.
    pub fn answer(&mut self, owner_at: usize, record: RecordRef<'_>) -> usize {
        self.record(owner_at, record);
        self.count(6);
        self.out.len() - record.data.len()
    }

    /// Adds the SOA record of a negative response (RFC 2308): its data, and its TTL.
    pub fn authority(&mut self, owner_at: usize, ttl_s: u32, data: &[u8]) {
        self.record(owner_at, RecordRef { rtype: rtype::SOA, ttl_s, data });
        self.count(8);
    }

    /// The data of a SOA record made up for a zone whose name is at `zone_at`, as in RFC 6303
    /// (section 3).
    pub fn soa(zone_at: usize, minimum_s: u32) -> [u8; SOA_BYTES] {
        let mut data = [0; SOA_BYTES];
        let (names, times) = data.split_at_mut(2 + NOBODY.len());
        names[..2].copy_from_slice(&pointer(zone_at));
        names[2..].copy_from_slice(NOBODY);
        let numbers = [1, 3_600, 1_200, 604_800, minimum_s];
        for (to, number) in times.chunks_mut(4).zip(numbers) {
            to.copy_from_slice(&u32::to_be_bytes(number));
        }
        data
    }

    fn record(&mut self, owner_at: usize, record: RecordRef<'_>) {
        self.out.extend_from_slice(&pointer(owner_at));
        self.out.extend_from_slice(&record.rtype.to_be_bytes());
        self.out.extend_from_slice(&self.class.to_be_bytes());
        self.out.extend_from_slice(&record.ttl_s.to_be_bytes());
        self.out.extend_from_slice(&(record.data.len() as u16).to_be_bytes());
        self.out.extend_from_slice(record.data);
        debug_assert!(self.out.len() <= MESSAGE_BYTES_MAX);
    }

    /// Increments the count of the section at `at`.
    fn count(&mut self, at: usize) {
        let count = u16::from_be_bytes([self.out[at], self.out[at + 1]]).wrapping_add(1);
        self.out[at..at + 2].copy_from_slice(&count.to_be_bytes());
    }
}

fn pointer(at: usize) -> [u8; 2] {
    (0xc000 | at as u16).to_be_bytes()
}
