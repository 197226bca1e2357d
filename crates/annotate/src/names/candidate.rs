//! The names that an address may have, as they lie in an entry, and how a new one joins them.

use crate::record::NameSource;

/// Who taught a name. Stored in entries, so the numbers are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Teacher {
    /// A unicast DNS answer.
    Dns = 0,
    /// Multicast DNS.
    Mdns = 1,
    /// LLMNR.
    Llmnr = 2,
    /// NetBIOS name service.
    Nbns = 3,
    /// DHCP.
    Dhcp = 4,
    /// A reverse lookup.
    Ptr = 5,
}

impl Teacher {
    fn from_bits(bits: u8) -> Teacher {
        match bits & 7 {
            1 => Teacher::Mdns,
            2 => Teacher::Llmnr,
            3 => Teacher::Nbns,
            4 => Teacher::Dhcp,
            5 => Teacher::Ptr,
            _ => Teacher::Dns,
        }
    }

    /// The source that a log line names for an address-wide name of this teacher.
    pub(super) fn source(self) -> NameSource {
        match self {
            Teacher::Dns => NameSource::DnsAddress,
            Teacher::Mdns => NameSource::Mdns,
            Teacher::Llmnr => NameSource::Llmnr,
            Teacher::Nbns => NameSource::Nbns,
            Teacher::Dhcp => NameSource::Dhcp,
            Teacher::Ptr => NameSource::Ptr,
        }
    }
}

/// One name that an address may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The name as asked.
    pub asked: &'a [u8],
    /// The head of the CNAME chain over several messages; empty when it is `asked`.
    pub head: &'a [u8],
    /// Time learned, ns since 1970 UTC.
    pub time_ns: i64,
    /// TTL of the answer, seconds.
    pub ttl_s: u32,
    /// Who taught it.
    pub teacher: Teacher,
    /// The question was seen, or questions are not visible.
    pub solicited: bool,
}

const SOLICITED_BIT: u8 = 0x80;
/// flags u8, ttl u32, time i64, two lengths u16.
const CANDIDATE_HEADER_BYTES: usize = 1 + 4 + 8 + 2 + 2;

impl<'a> Candidate<'a> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let flags = self.teacher as u8 | if self.solicited { SOLICITED_BIT } else { 0 };
        out.push(flags);
        out.extend_from_slice(&self.ttl_s.to_le_bytes());
        out.extend_from_slice(&self.time_ns.to_le_bytes());
        out.extend_from_slice(&(self.asked.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.head.len() as u16).to_le_bytes());
        out.extend_from_slice(self.asked);
        out.extend_from_slice(self.head);
    }

    fn read(bytes: &'a [u8]) -> Option<(Candidate<'a>, &'a [u8])> {
        let (header, rest) = bytes.split_at_checked(CANDIDATE_HEADER_BYTES)?;
        let asked_len = usize::from(u16::from_le_bytes([header[13], header[14]]));
        let head_len = usize::from(u16::from_le_bytes([header[15], header[16]]));
        let (asked, rest) = rest.split_at_checked(asked_len)?;
        let (head, rest) = rest.split_at_checked(head_len)?;
        let candidate = Candidate {
            asked,
            head,
            ttl_s: u32::from_le_bytes(*header[1..].first_chunk()?),
            time_ns: i64::from_le_bytes(*header[5..].first_chunk()?),
            teacher: Teacher::from_bits(header[0]),
            solicited: header[0] & SOLICITED_BIT != 0,
        };
        Some((candidate, rest))
    }

    /// True when the answer's TTL had run out at `now_ns`.
    pub fn is_stale_at(&self, now_ns: i64) -> bool {
        let life_ns = i64::from(self.ttl_s) * 1_000_000_000;
        now_ns.saturating_sub(self.time_ns) > life_ns
    }
}

/// The candidates of an entry's value, best first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Candidates<'a>(&'a [u8]);

impl<'a> Candidates<'a> {
    /// Over an entry's value.
    pub fn new(value: &'a [u8]) -> Candidates<'a> {
        Candidates(value)
    }
}

impl<'a> Iterator for Candidates<'a> {
    type Item = Candidate<'a>;

    fn next(&mut self) -> Option<Candidate<'a>> {
        let (candidate, rest) = Candidate::read(self.0)?;
        self.0 = rest;
        Some(candidate)
    }
}

/// How candidates of one entry are joined.
#[derive(Clone, Copy)]
pub(super) struct Merging {
    /// Most that are kept.
    pub limit: usize,
    /// Rule 3.
    pub newer_first: bool,
}

/// Writes to `out` the entry `old` with `new` learned on top.
pub(super) fn merge(old: &[u8], new: &Candidate<'_>, merging: Merging, out: &mut Vec<u8>) {
    out.clear();
    let mut left = merging.limit;
    let mut placed = false;
    for candidate in Candidates::new(old) {
        if left == 0 {
            return;
        }
        // Rule 9: what was asked for stays before what was not, and is not renewed by it.
        if !placed && merging.newer_first && (new.solicited || !candidate.solicited) {
            new.write(out);
            placed = true;
            left -= 1;
        }
        if candidate.asked == new.asked {
            if placed {
                continue;
            }
            placed = true;
        }
        if left == 0 {
            return;
        }
        candidate.write(out);
        left -= 1;
    }
    if !placed && left > 0 {
        new.write(out);
    }
}
