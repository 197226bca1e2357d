//! Looking up: which name an address gets (docs/guide/naming.md).

use larder::{Cache, KeyHash, Proxy};
use larder_wire::{Addr, Name};

use super::candidate::{Candidate, Candidates};
use super::overlay::{Facts, Overlay};
use super::{Key, NOW};
use crate::options::Rules;
use crate::record::NameSource;

/// A worker's view of names at one batch.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Its proxy, synced to the batch's position.
    pub proxy: &'a Proxy,
    /// What the batch changed.
    pub overlay: &'a Overlay,
    /// For hashing.
    pub cache: &'a Cache,
    /// Naming rules in force.
    pub rules: Rules,
    /// What was ever learned.
    pub facts: &'a Facts,
    /// The batch.
    pub batch: u64,
}

/// A name for one end of a flow, before it is weighed against what the flow says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The name.
    pub name: Name,
    /// Where it came from.
    pub source: NameSource,
    /// When it was learned, ns since 1970 UTC.
    pub time_ns: i64,
    /// It was past its TTL at the time asked for.
    pub stale: bool,
    /// Other names for the address, best first.
    pub rivals: Vec<Name>,
}

/// What the two ends of a flow are called.
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
    /// The names of a flow from `source` to `destination`, as they were just before packet `packet`.
    pub fn ends(&self, source: Addr, destination: Addr, packet: u64, now_ns: i64) -> Ends {
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

    /// Asks for what tells whether an address may have a name.
    #[inline]
    pub fn prefetch_facts(&self, addr: Addr) {
        self.facts.named.prefetch(self.address_hash(addr));
    }

    /// The candidates of a key just before packet `packet`.
    #[inline]
    pub fn candidates(&self, key: &Key, packet: u64) -> Option<Entry<'a>> {
        self.candidates_hashed(self.cache.hash(key.as_bytes()), key, packet)
    }

    /// The same, for who has the hash already.
    #[inline]
    pub fn candidates_hashed(&self, hash: KeyHash, key: &Key, packet: u64) -> Option<Entry<'a>> {
        let bytes = key.as_bytes();
        if !self.overlay.is_empty()
            && let Some(changed) = self.overlay.get(hash.get(), bytes, packet)
        {
            return changed.map(Entry::Overlay);
        }
        self.proxy.get_hashed(hash, bytes, NOW).map(Entry::Proxy)
    }

    /// The hash of an address as [`Facts`] knows it.
    #[inline]
    pub fn address_hash(&self, addr: Addr) -> u64 {
        self.cache.hash(Key::address(addr).as_bytes()).get()
    }

    /// The name of a flow's responder (rules 1 to 5).
    pub fn destination(&self, client: Addr, addr: Addr, packet: u64, now_ns: i64) -> Option<Found> {
        let key = Key::address(addr);
        let hash = self.cache.hash(key.as_bytes());
        if !self.facts.named.may_have(hash.get()) {
            return self.host(addr, packet, now_ns);
        }
        // Named once: what is known of the pair and of the address comes from memory together.
        let pair = self.rules.has(2).then(|| {
            let key = Key::pair(client, addr);
            let hash = self.cache.hash(key.as_bytes());
            self.proxy.prefetch(hash);
            (hash, key)
        });
        self.proxy.prefetch(hash);
        if !self.facts.named.has(hash.get(), self.batch) {
            return self.host(addr, packet, now_ns);
        }
        if let Some((hash, _)) = pair {
            self.proxy.prefetch_entry(hash);
        }
        self.proxy.prefetch_entry(hash);
        let mut weighed = Weighed::new(now_ns, self.rules);
        let pair = pair.and_then(|(hash, key)| self.candidates_hashed(hash, &key, packet));
        if let Some(entry) = pair {
            for candidate in Candidates::new(&entry) {
                weighed.add(&candidate, candidate.asked, NameSource::DnsPair);
            }
        }
        if let Some(entry) = self.candidates_hashed(hash, &key, packet) {
            for candidate in Candidates::new(&entry) {
                if candidate.head.is_empty() || !self.rules.has(2) {
                    weighed.add(&candidate, candidate.asked, NameSource::DnsAddress);
                } else {
                    weighed.add(&candidate, candidate.head, NameSource::DnsChain);
                }
            }
        }
        if weighed.found.is_none() {
            return self.host(addr, packet, now_ns);
        }
        weighed.found
    }

    /// The name that a host gives itself (rule 8: all that a flow's initiator may have).
    pub fn host(&self, addr: Addr, packet: u64, now_ns: i64) -> Option<Found> {
        let mut weighed = Weighed::new(now_ns, self.rules);
        let has_said = self.facts.hosts.has(self.address_hash(addr), self.batch);
        if !has_said || !self.rules.has(8) {
            return None;
        }
        let entry = self.candidates(&Key::host(addr), packet)?;
        for candidate in Candidates::new(&entry) {
            weighed.add(&candidate, candidate.asked, candidate.teacher.source());
        }
        weighed.found
    }
}

/// An entry's value, wherever it lies.
pub enum Entry<'a> {
    /// In the engine.
    Proxy(larder::Entry<'a>),
    /// In the batch's overlay.
    Overlay(&'a [u8]),
}

impl std::ops::Deref for Entry<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Entry::Proxy(entry) => entry,
            Entry::Overlay(bytes) => bytes,
        }
    }
}

/// Candidates come in best first; the first is the name, the others are rivals.
struct Weighed {
    now_ns: i64,
    rules: Rules,
    found: Option<Found>,
}

impl Weighed {
    fn new(now_ns: i64, rules: Rules) -> Weighed {
        Weighed { now_ns, rules, found: None }
    }

    fn add(&mut self, candidate: &Candidate<'_>, name: &[u8], source: NameSource) {
        if !self.rules.has(5) && candidate.is_stale_at(self.now_ns) {
            return;
        }
        match &mut self.found {
            None => {
                self.found = Some(Found {
                    name: Name::from_canonical(name),
                    source,
                    time_ns: candidate.time_ns,
                    stale: candidate.is_stale_at(self.now_ns),
                    rivals: Vec::new(),
                });
            }
            Some(found) => {
                let known = found.name.as_bytes() == name
                    || found.rivals.iter().any(|rival| rival.as_bytes() == name);
                if !known {
                    found.rivals.push(Name::from_canonical(name));
                }
            }
        }
    }
}
