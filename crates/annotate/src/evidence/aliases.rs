//! Learned aliases: the name that clients mean where a lookup gave another one.
//!
//! A resolver between client and capture often holds the first names of a chain of aliases. Then
//! the capture has only the name of a CDN's host. If an address had this one name and a flow to it
//! stated another, the stated name is what this client means by it. For other clients it counts
//! once two different clients have stated it. Where the address had more names, the stated one must
//! be the head of the chain of aliases to the looked-up one (`teaches`).
//!
//! | key | value |
//! |---|---|
//! | network, client, looked-up name | the names that the client stated in its last two flows |
//! | looked-up name | up to [`MEANINGS_MAX`] stated names, each with the clients that stated it |
//!
//! A count of clients goes up when another client than the last one states the name, so one client
//! alone never reaches two. Two clients that alternate count too often, and that is harmless: more
//! than two are not told apart.
//!
//! A flow that states its name is judged without its own statement ([`Own`]). Two flows of a client
//! are remembered, so that one is left then. Once both state one name, later flows that state it are not written.
//!
//! **Most flows state the name that was looked up**, and that costs only two bits: one says that a
//! client meant the name itself, the other that some alias of it was learned. Entries are written
//! only for names with an alias. The first of them counts the name itself as if
//! [`MEANT_ITSELF`] clients had stated it, if its bit is set.
//!
//! The map is an engine of its own with first-in, first-out eviction, so that evictions do not
//! depend on the order of reads. A failed insert loses the alias, and the looked-up name counts.

use std::cmp::Reverse;

use larder::{Cache, Clock, Map, Policy, Seconds};
use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

use crate::Error;
use crate::names::Sieve;

/// Flows of a client whose statements are remembered for a looked-up name.
const FLOWS_MAX: usize = 2;
/// Stated names that one looked-up name may have, at most.
const MEANINGS_MAX: usize = 4;
/// Clients that must have stated a name before it counts for others.
const CLIENTS_MIN: u8 = 2;
/// Clients that count for the looked-up name itself, where some had stated it before any alias.
const MEANT_ITSELF: u8 = 2;
/// Bits of each sieve: 64 KiB.
const SIEVE_BITS: usize = 1 << 19;
/// Kind, network and address of a client: the part of a key before the name.
const CLIENT_KEY_BYTES: usize = 1 + 8 + 16;
/// Clients u8, hash of the last one u32, length u16.
const HEADER_BYTES: usize = 1 + 4 + 2;

/// See the module.
pub(super) struct Aliases {
    map: Map<[u8], Vec<u8>>,
    /// Looked-up names that a flow stated unchanged, and those with an alias.
    meant_itself: Sieve,
    with_alias: Sieve,
    /// Memory for the key of a look-up.
    key: Vec<u8>,
}

/// A name that clients stated where they had looked up another.
#[derive(Clone, Copy)]
struct Meaning<'a> {
    clients: u8,
    last_client: u32,
    name: &'a [u8],
}

/// A flow that is judged: its statement does not count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own<'a> {
    /// Number of its first packet.
    pub flow: u64,
    /// The name that it states.
    pub stated: &'a [u8],
}

/// The statements of a client, the last one first: flow u64, length u16, name.
struct Statements<'a>(&'a [u8]);

impl<'a> Iterator for Statements<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        let (header, rest) = self.0.split_at_checked(8 + 2)?;
        let len = usize::from(u16::from_le_bytes([header[8], header[9]]));
        let (name, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((u64::from_le_bytes(*header.first_chunk()?), name))
    }
}

/// The value of a client with one statement, and the last one of `known`.
fn stated_before(known: &[u8], flow: u64, stated: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(2 * (8 + 2 + stated.len()));
    for (flow, name) in [(flow, stated)].into_iter().chain(Statements(known).take(FLOWS_MAX - 1)) {
        value.extend_from_slice(&flow.to_le_bytes());
        value.extend_from_slice(&(name.len() as u16).to_le_bytes());
        value.extend_from_slice(name);
    }
    value
}

/// The meanings of a value.
struct Meanings<'a>(&'a [u8]);

impl<'a> Iterator for Meanings<'a> {
    type Item = Meaning<'a>;

    fn next(&mut self) -> Option<Meaning<'a>> {
        let (header, rest) = self.0.split_at_checked(HEADER_BYTES)?;
        let len = usize::from(u16::from_le_bytes([header[5], header[6]]));
        let (name, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        let last_client = u32::from_le_bytes(*header[1..].first_chunk()?);
        Some(Meaning { clients: header[0], last_client, name })
    }
}

impl Meaning<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.clients);
        out.extend_from_slice(&self.last_client.to_le_bytes());
        out.extend_from_slice(&(self.name.len() as u16).to_le_bytes());
        out.extend_from_slice(self.name);
    }
}

impl Aliases {
    pub fn new(budget_bytes: u64, seed: u64) -> Result<Aliases, Error> {
        let builder = Cache::builder()
            .budget(budget_bytes)
            .shards(1)
            .readers_max(1)
            .policy(Policy::Fifo)
            .seed(seed);
        // No entry expires, so the time of the map never moves.
        let map = Map::build(builder, Clock::manual(Seconds(0))).map_err(|error| {
            Error::Options(format!("--names-budget: {error}; give it more room"))
        })?;
        let sieve = || Sieve::new(SIEVE_BITS);
        Ok(Aliases { map, meant_itself: sieve(), with_alias: sieve(), key: Vec::new() })
    }

    /// The engine, for its hashes.
    pub fn cache(&self) -> &Cache {
        self.map.cache()
    }

    /// Learns what a flow of `client` to an address with the one name `looked_up` states.
    pub fn learn(&mut self, scope: Scope, client: Addr, looked_up: &Name, own: Own<'_>) {
        let (looked_up, Own { flow, stated }) = (looked_up.as_bytes(), own);
        let name = self.map.cache().hash(looked_up).get();
        if stated == looked_up && !self.with_alias.has(name) {
            return self.meant_itself.add(name);
        }
        self.with_alias.add(name);
        self.put_client_key(scope, client, looked_up);
        let hash = self.map.cache().hash(&self.key[..CLIENT_KEY_BYTES]).get() as u32;
        // Of two flows that stated it, any one that is judged leaves the other: a third one adds nothing.
        let value = self.map.with(&self.key[..], |known| {
            let is_known =
                Statements(known).filter(|(_, name)| *name == stated).count() == FLOWS_MAX;
            (!is_known).then(|| stated_before(known, flow, stated))
        });
        if let Some(value) = value.unwrap_or_else(|| Some(stated_before(&[], flow, stated))) {
            self.insert(value);
        }
        self.put_shared_key(looked_up);
        let value = self.map.with(&self.key[..], |known| merged(known, hash, stated));
        let value = value.unwrap_or_else(|| {
            let mut itself = Vec::new();
            if self.meant_itself.has(name) {
                Meaning { clients: MEANT_ITSELF, last_client: 0, name: looked_up }
                    .write(&mut itself);
            }
            merged(&itself, hash, stated)
        });
        if let Some(value) = value {
            self.insert(value);
        }
    }

    /// The engine refuses a value only if it has no room for it. Then nothing is learned.
    fn insert(&self, value: Vec<u8>) {
        drop(self.map.insert(&self.key[..], value));
    }

    /// The name that `client` means by `looked_up`, if it is another. What `own` taught does not
    /// count.
    pub fn alias_of(
        &mut self,
        scope: Scope,
        client: Addr,
        looked_up: &Name,
        own: Option<Own<'_>>,
    ) -> Option<Name> {
        let looked_up = looked_up.as_bytes();
        if !self.with_alias.has(self.map.cache().hash(looked_up).get()) {
            return None;
        }
        self.put_client_key(scope, client, looked_up);
        let of_others = |value: &[u8]| {
            let mut statements = Statements(value);
            let last = statements.find(|(flow, _)| own.is_none_or(|own| own.flow != *flow));
            last.map(|(_, name)| Name::from_canonical(name))
        };
        let meant = match self.map.with(&self.key[..], of_others).flatten() {
            Some(meant) => meant,
            None => {
                self.put_shared_key(looked_up);
                self.map.with(&self.key[..], |value| most_stated(value, own))??
            }
        };
        (meant.as_bytes() != looked_up).then_some(meant)
    }

    fn put_client_key(&mut self, scope: Scope, client: Addr, looked_up: &[u8]) {
        self.key.clear();
        self.key.push(b'c');
        self.key.extend_from_slice(&scope.bits().to_le_bytes());
        self.key.extend_from_slice(client.octets());
        self.key.resize(CLIENT_KEY_BYTES, 0);
        self.key.extend_from_slice(looked_up);
    }

    fn put_shared_key(&mut self, looked_up: &[u8]) {
        self.key.clear();
        self.key.push(b's');
        self.key.extend_from_slice(looked_up);
    }
}

/// The value `known` with a statement of the client `client` merged into it; `None` if it does not
/// change.
fn merged(known: &[u8], client: u32, stated: &[u8]) -> Option<Vec<u8>> {
    let mut meanings: Vec<Meaning<'_>> = Meanings(known).collect();
    match meanings.iter_mut().find(|meaning| meaning.name == stated) {
        Some(meaning) if meaning.last_client == client => return None,
        Some(meaning) => {
            meaning.clients = meaning.clients.saturating_add(1);
            meaning.last_client = client;
        }
        None => {
            // The name that the fewest clients stated makes room, the oldest of several.
            if meanings.len() == MEANINGS_MAX {
                let at = (0..MEANINGS_MAX).min_by_key(|&at| meanings[at].clients)?;
                meanings.remove(at);
            }
            meanings.push(Meaning { clients: 1, last_client: client, name: stated });
        }
    }
    let mut value = Vec::new();
    meanings.iter().for_each(|meaning| meaning.write(&mut value));
    Some(value)
}

/// The name that the most clients stated, if they are enough. The client of `own` has no other flow
/// here, so it does not count.
fn most_stated(value: &[u8], own: Option<Own<'_>>) -> Option<Name> {
    let clients = |meaning: &Meaning<'_>| {
        let is_own = own.is_some_and(|own| own.stated == meaning.name);
        meaning.clients.saturating_sub(u8::from(is_own))
    };
    // Of names that equally many clients stated, the first one that was stated.
    let most = Meanings(value).min_by_key(|meaning| Reverse(clients(meaning)))?;
    (clients(&most) >= CLIENTS_MIN).then(|| Name::from_canonical(most.name))
}
