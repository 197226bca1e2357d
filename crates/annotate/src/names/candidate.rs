//! The candidates of an entry, and how a new one is merged.

use std::cmp::Reverse;

use crate::record::{NameFlags, NameSource};
use crate::registered::are_of_one_domain;

/// The protocol whose message gave a name. Stored in entries, so the numbers are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NameProtocol {
    /// A unicast DNS response.
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

impl NameProtocol {
    /// All protocols, each at its number.
    pub(crate) const ALL: [NameProtocol; 6] = [
        NameProtocol::Dns,
        NameProtocol::Mdns,
        NameProtocol::Llmnr,
        NameProtocol::Nbns,
        NameProtocol::Dhcp,
        NameProtocol::Ptr,
    ];

    /// The source that a log states for a name of an address.
    pub(crate) fn source(self) -> NameSource {
        match self {
            NameProtocol::Dns => NameSource::DnsAddress,
            NameProtocol::Mdns => NameSource::Mdns,
            NameProtocol::Llmnr => NameSource::Llmnr,
            NameProtocol::Nbns => NameSource::Nbns,
            NameProtocol::Dhcp => NameSource::Dhcp,
            NameProtocol::Ptr => NameSource::Ptr,
        }
    }
}

/// One name that an address may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The name as queried.
    pub asked: &'a [u8],
    /// The head of the CNAME chain over several messages; empty when it is `asked`.
    pub head: &'a [u8],
    /// Time learned, ns since 1970 UTC.
    pub time_ns: i64,
    /// TTL of the response, seconds.
    pub ttl_s: u32,
    /// The protocol of the message that gave it.
    pub learned_from: NameProtocol,
    /// What supports it.
    pub standing: Standing,
    /// Clients that queried this very name, and were not led to it by an alias. A client that
    /// queries again counts again only after another client.
    pub askers: u8,
    /// Hash of the last of them.
    pub asker: u16,
    /// It comes before its head: at least as many clients queried it directly as aliases have led
    /// to it, and the head is of another domain.
    pub direct: bool,
}

/// What supports a name. Stored in entries, so the numbers are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Standing {
    /// The response to a query that was seen; of a host: its own statement, sent from the address.
    Confirmed = 0,
    /// A DHCP server leased the address to a client that gave itself the name.
    Leased = 1,
    /// A response to a client whose queries are never seen.
    OneSided = 2,
    /// A response without a query, to a client whose queries are seen.
    Unsolicited = 3,
    /// A claim by another host, or by the reverse zone.
    Claimed = 4,
}

impl Standing {
    /// All, each at its number.
    pub(crate) const ALL: [Standing; 5] = [
        Standing::Confirmed,
        Standing::Leased,
        Standing::OneSided,
        Standing::Unsolicited,
        Standing::Claimed,
    ];

    /// True when a query, a lease or the host itself supports the name.
    pub(crate) fn is_supported(self) -> bool {
        matches!(self, Standing::Confirmed | Standing::Leased)
    }

    /// The flag that goes with the name.
    pub(super) fn flag(self) -> NameFlags {
        match self {
            Standing::Confirmed | Standing::Leased => NameFlags::NONE,
            Standing::OneSided => NameFlags::ONE_SIDED,
            Standing::Unsolicited => NameFlags::UNSOLICITED,
            Standing::Claimed => NameFlags::CLAIMED,
        }
    }
}

/// Bits of a candidate's flags: protocol, standing, direct.
const STANDING_SHIFT: u8 = 3;
const DIRECT_BIT: u8 = 0x40;
/// flags u8, ttl u32, time i64, two lengths u16, askers u8, asker u16.
const CANDIDATE_HEADER_BYTES: usize = 1 + 4 + 8 + 2 + 2 + 1 + 2;

impl<'a> Candidate<'a> {
    /// A DNS response about the name gave the address.
    pub(super) fn is_lookup(&self) -> bool {
        self.learned_from == NameProtocol::Dns
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let direct = if self.direct { DIRECT_BIT } else { 0 };
        let mut header = [0; CANDIDATE_HEADER_BYTES];
        header[0] = self.learned_from as u8 | (self.standing as u8) << STANDING_SHIFT | direct;
        header[1..5].copy_from_slice(&self.ttl_s.to_le_bytes());
        header[5..13].copy_from_slice(&self.time_ns.to_le_bytes());
        header[13..15].copy_from_slice(&(self.asked.len() as u16).to_le_bytes());
        header[15..17].copy_from_slice(&(self.head.len() as u16).to_le_bytes());
        header[17] = self.askers;
        header[18..].copy_from_slice(&self.asker.to_le_bytes());
        out.extend_from_slice(&header);
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
            learned_from: *NameProtocol::ALL.get(usize::from(header[0] & 7))?,
            standing: *Standing::ALL.get(usize::from(header[0] >> STANDING_SHIFT & 7))?,
            direct: header[0] & DIRECT_BIT != 0,
            askers: header[17],
            asker: u16::from_le_bytes([header[18], header[19]]),
        };
        Some((candidate, rest))
    }

    /// True when the response's TTL has expired at `now_ns`.
    pub fn is_stale_at(&self, now_ns: i64) -> bool {
        let life_ns = i64::from(self.ttl_s) * 1_000_000_000;
        now_ns.saturating_sub(self.time_ns) > life_ns
    }
}

/// The candidates of an entry's value, best first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Candidates<'a>(&'a [u8]);

impl<'a> Candidates<'a> {
    /// The candidates of an entry's value.
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

/// How a new candidate is merged into an entry.
#[derive(Clone, Copy)]
pub(super) struct Merging<'t> {
    /// Candidates of the entry, at most.
    pub limit: usize,
    /// Rule 3.
    pub newer_first: bool,
    /// The targets of the aliases that led from the new name to the address, each with the number
    /// of clients that aliases have led to it.
    pub targets: &'t [&'t [u8]],
    /// See `targets`.
    pub led: &'t [u8],
    /// The same number for the new name.
    pub led_here: u8,
    /// The client that queried the new name directly.
    pub asker: Option<u16>,
}

impl Merging<'_> {
    /// True when `candidate` is a name in its own right and the new name is an alias of it. Within
    /// one domain the owner of the alias owns the name too.
    fn is_target(&self, candidate: &Candidate<'_>, new: &Candidate<'_>) -> bool {
        let target = self.targets.iter().position(|target| *target == candidate.asked);
        target
            .and_then(|at| self.led.get(at))
            .is_some_and(|led| candidate.is_chosen_over(new.asked, *led))
    }
}

impl<'a> Candidate<'a> {
    /// What counts when runs are joined (`recall`): greater is better. No two candidates that differ in what is saved
    /// have the same.
    ///
    /// As in `merge`, support comes before time. The statement of a host counts more than a lease only until it
    /// expires, so it is as a lease of that time.
    pub(super) fn rank(&self) -> impl Ord + use<'a> {
        let life_ns = i64::from(self.ttl_s) * 1_000_000_000;
        let time_ns = match self.standing {
            Standing::Confirmed if !self.is_lookup() => self.time_ns.saturating_add(life_ns),
            _ => self.time_ns,
        };
        let support = (self.standing.is_supported(), time_ns, self.time_ns, self.ttl_s);
        let rest =
            (Reverse(self.standing as u8), self.askers > 0, Reverse(self.learned_from as u8));
        (support, rest, self.asked, self.head)
    }
}

impl Candidate<'_> {
    /// True when clients queried this name directly, at least as many as aliases have led to it (`led`), and the owner
    /// of an alias to it is of another domain. Within one domain the owner of the alias owns the name too.
    pub(super) fn is_chosen_over(&self, owner: &[u8], led: u8) -> bool {
        self.askers > 0 && self.askers >= led && !are_of_one_domain(self.asked, owner)
    }

    /// What [`Candidate::direct`] is with `led` clients that aliases have led here.
    pub(super) fn is_direct(&self, led: u8) -> bool {
        !self.head.is_empty() && self.is_chosen_over(self.head, led)
    }

    /// The rank of its support at a time. The statement of a host counts more than its lease only
    /// until it expires: then the address may have another owner that states nothing.
    fn rank_at(&self, now_ns: i64) -> u8 {
        match self.standing {
            Standing::Confirmed if self.is_lookup() || !self.is_stale_at(now_ns) => 2,
            Standing::Confirmed | Standing::Leased => 1,
            Standing::OneSided | Standing::Unsolicited | Standing::Claimed => 0,
        }
    }
}

/// Writes to `out` the entry `old` with `new` merged into it.
///
/// The new name comes first, with two exceptions. It comes after names of a higher rank (rule 9),
/// and it does not renew them. It comes after a name that clients queried directly and that the new
/// one is an alias of, since the owner of a zone can point an alias at any name.
pub(super) fn merge(old: &[u8], new: &Candidate<'_>, merging: Merging<'_>, out: &mut Vec<u8>) {
    out.clear();
    let mut left = merging.limit;
    let mut placed = false;
    let (mut new, mut first_place) = (*new, 0);
    // A bit for each place with the same name, so that the few names are compared only once.
    let mut same: u64 = 0;
    let bit = |at: usize| 1_u64.checked_shl(at as u32).unwrap_or(0);
    for (at, candidate) in Candidates::new(old).enumerate() {
        if candidate.asked == new.asked {
            (new.askers, new.asker) = (candidate.askers, candidate.asker);
            same |= bit(at);
        }
        if merging.is_target(&candidate, &new) {
            first_place = at + 1;
        }
    }
    if let Some(asker) = merging.asker
        && (new.askers == 0 || new.asker != asker)
    {
        (new.askers, new.asker) = (new.askers.saturating_add(1), asker);
    }
    new.direct = new.is_direct(merging.led_here);
    let rank = new.rank_at(new.time_ns);
    for (at, candidate) in Candidates::new(old).enumerate() {
        if left == 0 {
            return;
        }
        let stays = at < first_place || candidate.rank_at(new.time_ns) > rank;
        if !placed && merging.newer_first && !stays {
            new.write(out);
            placed = true;
            left -= 1;
        }
        if same & bit(at) != 0 {
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
