//! Lookups: the name that an address gets (docs/guide/naming.md).

use std::sync::atomic::Ordering;

use larder::{Cache, KeyHash, Reader};
use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

use super::candidate::{Candidate, Candidates, NameProtocol, Standing};
use super::lives::value_of;
use super::overlay::{LearnedMarks, Overlay};
use super::{Alias, CHAIN_STEPS_MAX, Key, NOW};
use crate::confidence;
use crate::options::Rules;
use crate::record::{End, NameFlags, NameSource, Naming, Origin};

/// A worker's view of names at one batch.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Its reader, synced to the batch's position.
    pub reader: &'a Reader,
    /// The changes of the batch.
    pub overlay: &'a Overlay,
    /// For hashing.
    pub cache: &'a Cache,
    /// Naming rules in force.
    pub rules: Rules,
    /// Marks of all that was ever learned.
    pub learned: &'a LearnedMarks,
    /// The network of the addresses.
    pub scope: Scope,
}

/// A name for one end of a flow, before it is compared with the names that the flow states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The name.
    pub name: Name,
    /// Where it came from.
    pub source: NameSource,
    /// When it was learned, ns since 1970 UTC.
    pub time_ns: i64,
    /// Doubts about the name: stale, ambiguous, and the flag of its standing.
    pub flags: NameFlags,
    /// Other names for the address, best first.
    pub rivals: Vec<Rival>,
    /// Which of the names lookups or the host itself support.
    pub support: Support,
}

/// Another name for an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// The name.
    pub name: Name,
    /// Where it comes from.
    pub origin: Origin,
}

impl Found {
    /// The name of an end of a flow that began at `start_ns`. `is_late`: it was learned after that.
    pub fn naming(&self, start_ns: i64, is_late: bool) -> Naming {
        let age_ns = start_ns.saturating_sub(self.time_ns).max(0);
        let mut naming = Naming {
            name: self.name.clone(),
            source: self.source,
            age_ms: if is_late { 0 } else { (age_ns / 1_000_000) as u64 },
            flags: match is_late {
                true => self.flags.without(NameFlags::STALE).with(NameFlags::LATE),
                false => self.flags,
            },
            confidence: 0,
            conflict_grade: None,
        };
        naming.confidence = confidence::before_trials(&naming, 1 + self.rivals.len());
        naming
    }

    /// Moves all names to an end of a record, the chosen one first, and where each of several comes from.
    pub(crate) fn move_names(&mut self, end: &mut End) {
        let Found { name, source, time_ns, flags, rivals, .. } = self;
        if !rivals.is_empty() {
            let flags = flags.without(NameFlags::AMBIGUOUS);
            end.origins.push(Origin { source: *source, time_ns: *time_ns, flags });
            end.origins.extend(rivals.iter().map(|rival| rival.origin));
        }
        end.candidates.push(std::mem::take(name));
        end.candidates.extend(rivals.drain(..).map(|rival| rival.name));
    }
}

/// Gives an end the name that it has for a flow that began at `start_ns`. What was learned after that is late.
pub(crate) fn give_name(end: &mut End, found: Option<Found>, start_ns: i64) {
    let Some(mut found) = found else { return };
    end.naming = Some(found.naming(start_ns, found.time_ns > start_ns));
    found.move_names(end);
}

/// Which names of a [`Found`] are supported, each by its place: the name is 0, the rivals follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Support {
    /// A lookup gave them, or the host itself stated them.
    known: u64,
    /// The lookups among them that gave them for this address.
    lookups: u64,
    /// Of those, the lookups whose query was not seen.
    one_sided: u64,
}

impl Support {
    fn add(&mut self, place: usize, candidate: &Candidate<'_>) {
        let bit = 1_u64.checked_shl(place as u32).unwrap_or(0);
        let is_lookup = candidate.is_lookup();
        match candidate.standing {
            Standing::OneSided => {
                self.one_sided |= bit & !self.known;
            }
            standing if standing.is_supported() => self.one_sided &= !bit,
            _ => return,
        }
        self.known |= bit;
        if is_lookup {
            self.lookups |= bit;
        }
    }

    /// A lookup, or the host itself, supports one of the names.
    pub fn has_any(self) -> bool {
        self.known != 0
    }

    /// Some lookup gave the address.
    pub fn has_lookup(self) -> bool {
        self.lookups != 0
    }

    /// The doubts about the stated name at `place`; none if it is known.
    pub fn doubt_of(self, place: Option<usize>) -> NameFlags {
        let bit = place.and_then(|place| 1_u64.checked_shl(place as u32)).unwrap_or(0);
        NameFlags::NONE
            .with_if(self.known & bit == 0, NameFlags::UNCONFIRMED)
            .with_if(self.one_sided & bit != 0, NameFlags::ONE_SIDED)
    }
}

/// Suffixes of names that hosts of a local network give themselves: multicast DNS (RFC 6762,
/// section 3), home networks (RFC 8375), and those that are usual in private networks (RFC 6762,
/// appendix G).
const LOCAL_SUFFIXES: [&[u8]; 8] = [
    b".local",
    b".home.arpa",
    b".lan",
    b".home",
    b".internal",
    b".intranet",
    b".private",
    b".localdomain",
];

/// True for a name that a host may give itself: one label, or below a suffix of local networks. All
/// other names belong to the owner of the domain in the DNS.
fn is_host_name(name: &[u8]) -> bool {
    !name.contains(&b'.') || LOCAL_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// The names of the two ends of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The initiator.
    pub source: Option<Found>,
    /// The responder.
    pub destination: Option<Found>,
}

impl Ends {
    /// True when neither has a name.
    pub fn is_empty(&self) -> bool {
        self.source.is_none() && self.destination.is_none()
    }
}

impl<'a> View<'a> {
    /// The same view for addresses of a network.
    #[inline]
    pub fn within(self, scope: Scope) -> View<'a> {
        View { scope, ..self }
    }

    /// The names of a flow from `source` to `destination`, as they were just before packet `packet`.
    pub fn ends(&self, source: Addr, destination: Addr, packet: u64, now_ns: i64) -> Ends {
        if self.scope.is_none() || !self.learned.of_all_networks.load(Ordering::Relaxed) {
            return self.ends_within(source, destination, packet, now_ns);
        }
        self.ends_also_of_none(source, destination, packet, now_ns)
    }

    /// The same if names without a network count in all networks.
    #[cold]
    fn ends_also_of_none(&self, source: Addr, destination: Addr, packet: u64, now_ns: i64) -> Ends {
        let ends = self.ends_within(source, destination, packet, now_ns);
        let common = self.within(Scope::NONE).ends_within(source, destination, packet, now_ns);
        let is_pair = |found: &Found| found.source == NameSource::DnsPair;
        let destination = match (ends.destination, common.destination) {
            (Some(own), Some(other)) if is_pair(&other) && !is_pair(&own) => Some(other),
            (own, other) => own.or(other),
        };
        Ends { source: ends.source.or(common.source), destination }
    }

    fn ends_within(&self, source: Addr, destination: Addr, packet: u64, now_ns: i64) -> Ends {
        Ends {
            source: match self.rules.has(8) {
                true => self.host(source, packet, now_ns),
                false => self.destination(Addr::UNSPECIFIED, source, packet, now_ns),
            },
            destination: match destination.is_multicast_or_broadcast() {
                true => None,
                false => self.destination(source, destination, packet, now_ns),
            },
        }
    }

    /// Prefetches the mark that tells whether an address may have a name.
    #[inline]
    pub fn prefetch_marks(&self, addr: Addr) {
        self.learned.named.prefetch(self.address_hash(addr));
    }

    /// The candidates of a key just before packet `packet`.
    #[inline]
    pub fn candidates(&self, key: &Key, packet: u64) -> Option<Entry<'a>> {
        self.candidates_hashed(self.cache.hash(key.as_bytes()), key, packet)
    }

    /// The same with the hash of the key.
    #[inline]
    pub fn candidates_hashed(&self, hash: KeyHash, key: &Key, packet: u64) -> Option<Entry<'a>> {
        self.entry(hash, key.as_bytes(), packet)
    }

    #[inline]
    pub(super) fn entry(&self, hash: KeyHash, key: &[u8], packet: u64) -> Option<Entry<'a>> {
        if !self.overlay.is_empty()
            && let Some(changed) = self.overlay.get(hash.get(), key, packet)
        {
            return changed.map(Entry::Overlay).filter(|entry| self.is_alive(entry, packet));
        }
        let entry = self.reader.get_hashed(hash, key, NOW).map(Entry::Reader);
        entry.filter(|entry| self.is_alive(entry, packet))
    }

    #[inline]
    fn is_alive(&self, entry: &Entry<'_>, packet: u64) -> bool {
        self.overlay.is_alive(entry.stored(), packet)
    }

    /// The hash of an address in [`LearnedMarks`].
    #[inline]
    pub fn address_hash(&self, addr: Addr) -> u64 {
        self.key_hash(addr).get()
    }

    #[inline]
    fn key_hash(&self, addr: Addr) -> KeyHash {
        Key::hash_of_address(self.cache, self.scope, addr)
    }

    /// The name of a flow's responder (rules 1 to 5).
    pub fn destination(&self, client: Addr, addr: Addr, packet: u64, now_ns: i64) -> Option<Found> {
        let hash = self.key_hash(addr);
        if !self.learned.named.may_have(hash.get()) {
            return self.host_hashed(hash, addr, packet, now_ns);
        }
        self.destination_hashed(hash, client, addr, packet, now_ns)
    }

    fn destination_hashed(
        &self,
        hash: KeyHash,
        client: Addr,
        addr: Addr,
        packet: u64,
        now_ns: i64,
    ) -> Option<Found> {
        // The address has a name: the entries of pair and address are fetched from memory together.
        let pair = self.rules.has(2).then(|| {
            let key = Key::pair(self.scope, client, addr);
            let hash = self.cache.hash(key.as_bytes());
            self.reader.prefetch(hash);
            (hash, key)
        });
        self.reader.prefetch(hash);
        if !self.learned.named.has(hash.get(), packet) {
            return self.host_hashed(hash, addr, packet, now_ns);
        }
        let key = Key::address(self.scope, addr);
        if let Some((hash, _)) = pair {
            self.reader.prefetch_entry(hash);
        }
        self.reader.prefetch_entry(hash);
        let pair = pair.and_then(|(hash, key)| self.candidates_hashed(hash, &key, packet));
        let address = self.candidates_hashed(hash, &key, packet);
        let pair = || Candidates::new(pair.as_deref().unwrap_or_default());
        let address = || Candidates::new(address.as_deref().unwrap_or_default());
        let mut weighed = Weighed::new(now_ns, self.rules);
        // Rule 9: names with a query come first, whichever client queried.
        for confirmed in [true, false] {
            let mut leaves_some = false;
            let mut is_wanted = |candidate: &Candidate<'_>| {
                let is_wanted = confirmed == (candidate.standing == Standing::Confirmed);
                leaves_some = leaves_some || !is_wanted; // `|=`: rust-lang/rust#158206
                is_wanted
            };
            for candidate in pair().filter(&mut is_wanted) {
                weighed.add(&candidate, candidate.asked, NameSource::DnsPair);
            }
            // Of a local address, the name that its host states comes before others' lookups.
            if confirmed
                && addr.is_local()
                && let Some(entry) = self.host_entry(hash, addr, packet)
            {
                for candidate in Candidates::new(&entry) {
                    if candidate.standing.is_supported() && is_host_name(candidate.asked) {
                        weighed.add(&candidate, candidate.asked, candidate.learned_from.source());
                    }
                }
            }
            for candidate in address().filter(&mut is_wanted) {
                let has_head = !candidate.head.is_empty() && self.rules.has(2);
                if !has_head || candidate.direct {
                    weighed.add(&candidate, candidate.asked, NameSource::DnsAddress);
                }
                if has_head {
                    weighed.add(&candidate, candidate.head, NameSource::DnsChain);
                    weighed.add(&candidate, candidate.asked, NameSource::DnsAddress);
                }
            }
            if !leaves_some {
                break;
            }
        }
        if weighed.found.is_none() {
            return self.host_hashed(hash, addr, packet, now_ns);
        }
        weighed.found
    }

    /// The name that a host gives itself (rule 8: all that a flow's initiator may have).
    pub fn host(&self, addr: Addr, packet: u64, now_ns: i64) -> Option<Found> {
        self.host_hashed(self.key_hash(addr), addr, packet, now_ns)
    }

    /// The same with the hash of the address.
    #[inline]
    fn host_hashed(&self, hash: KeyHash, addr: Addr, packet: u64, now_ns: i64) -> Option<Found> {
        let entry = self.host_entry(hash, addr, packet)?;
        self.host_of(&entry, addr, packet, now_ns)
    }

    fn host_of(&self, entry: &[u8], addr: Addr, packet: u64, now_ns: i64) -> Option<Found> {
        let mut weighed = Weighed::new(now_ns, self.rules);
        let mut chosen = None;
        let mut is_disputed = false;
        for candidate in Candidates::new(entry) {
            // Without rule 5 a stale name does not count.
            if !weighed.add(&candidate, candidate.asked, candidate.learned_from.source()) {
                continue;
            }
            let first = *chosen.get_or_insert(candidate);
            is_disputed |= first.standing == Standing::Leased
                && candidate.standing.is_supported()
                && first_label(candidate.asked) != first_label(first.asked);
        }
        let (mut found, first) = (weighed.found?, chosen?);
        let is_claim = match first.learned_from {
            NameProtocol::Ptr => true,
            _ => !is_host_name(first.asked) || first.standing == Standing::Claimed,
        };
        if is_claim || is_disputed {
            let confirmed = !is_disputed && self.was_looked_up(addr, first.asked, packet);
            found.flags = match confirmed {
                true => found.flags.without(NameFlags::CLAIMED),
                false => found.flags.with(NameFlags::CLAIMED),
            };
        }
        Some(found)
    }

    #[inline]
    fn host_entry(&self, hash: KeyHash, addr: Addr, packet: u64) -> Option<Entry<'a>> {
        let has_said = self.learned.hosts.has(hash.get(), packet);
        if !has_said || !self.rules.has(8) {
            return None;
        }
        self.candidates(&Key::host(self.scope, addr), packet)
    }

    /// True when a query for `name` was seen, and the response gave `addr`.
    fn was_looked_up(&self, addr: Addr, name: &[u8], packet: u64) -> bool {
        self.candidates(&Key::address(self.scope, addr), packet).is_some_and(|entry| {
            Candidates::new(&entry).any(|candidate| {
                candidate.standing == Standing::Confirmed && candidate.asked == name
            })
        })
    }

    /// True when an alias chain that was seen leads from one of `names` to `stated`, or back.
    pub fn are_joined(&self, stated: &Name, names: &[Name], packet: u64) -> bool {
        let is_one = |name: &[u8]| names.iter().any(|one| one.as_bytes() == name);
        self.has_owner(stated.as_bytes(), packet, is_one)
            || names.iter().any(|name| self.is_alias(stated, name, packet))
    }

    /// True when a chain of aliases that was seen leads from `alias` to `target`.
    pub fn is_alias(&self, alias: &Name, target: &Name, packet: u64) -> bool {
        self.has_owner(target.as_bytes(), packet, |owner| owner == alias.as_bytes())
    }

    /// True when the owner of an alias to `target`, or an owner of that one, is wanted.
    pub(super) fn has_owner(
        &self,
        target: &[u8],
        packet: u64,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let mut at = target.to_vec();
        for _ in 0..CHAIN_STEPS_MAX {
            let Some(owner) = self.owner_of(&at, packet) else { return false };
            if is_wanted(&owner) {
                return true;
            }
            at = owner;
        }
        false
    }

    /// The owner of the alias to `target`.
    fn owner_of(&self, target: &[u8], packet: u64) -> Option<Vec<u8>> {
        let key = [b"c", target].concat();
        let hash = self.cache.hash(&key);
        let entry = self.entry(hash, &key, packet)?;
        Some(Alias::read(&entry)?.owner.to_vec())
    }
}

fn first_label(name: &[u8]) -> Option<&[u8]> {
    name.split(|&byte| byte == b'.').next()
}

/// An entry's value.
pub enum Entry<'a> {
    /// In the engine.
    Reader(larder::Entry<'a>),
    /// In the batch's overlay.
    Overlay(&'a [u8]),
}

impl Entry<'_> {
    /// With its birth before it.
    fn stored(&self) -> &[u8] {
        match self {
            Entry::Reader(entry) => entry,
            Entry::Overlay(bytes) => bytes,
        }
    }
}

impl std::ops::Deref for Entry<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        value_of(self.stored())
    }
}

/// Collects candidates, best first: the first is the name, the others are rivals.
struct Weighed {
    now_ns: i64,
    rules: Rules,
    found: Option<Found>,
}

impl Weighed {
    fn new(now_ns: i64, rules: Rules) -> Weighed {
        Weighed { now_ns, rules, found: None }
    }

    /// False if the candidate does not count.
    fn add(&mut self, candidate: &Candidate<'_>, name: &[u8], source: NameSource) -> bool {
        if !self.rules.has(5) && candidate.is_stale_at(self.now_ns) {
            return false;
        }
        let is_stale = candidate.is_stale_at(self.now_ns);
        let flags = candidate.standing.flag().with_if(is_stale, NameFlags::STALE);
        let Some(found) = &mut self.found else {
            let mut support = Support::default();
            support.add(0, candidate);
            self.found = Some(Found {
                name: Name::from_canonical(name),
                source,
                time_ns: candidate.time_ns,
                flags,
                rivals: Vec::new(),
                support,
            });
            return true;
        };
        let place_of = |found: &Found| match found.name.as_bytes() == name {
            true => Some(0),
            false => Some(1 + found.rivals.iter().position(|rival| rival.name.as_bytes() == name)?),
        };
        let place = place_of(found).unwrap_or_else(|| {
            let origin = Origin { source, time_ns: candidate.time_ns, flags };
            found.rivals.push(Rival { name: Name::from_canonical(name), origin });
            found.flags = found.flags.with(NameFlags::AMBIGUOUS);
            found.rivals.len()
        });
        found.support.add(place, candidate);
        true
    }
}
