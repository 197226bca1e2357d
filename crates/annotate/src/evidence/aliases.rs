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
//! are remembered, so that one is left then.
//!
//! **Most flows state the name that was looked up**, and that costs only two bits: one says that a
//! client meant the name itself, the other that some alias of it was learned. Entries are written
//! only for names with an alias. The first of them counts the name itself as if
//! [`MEANT_ITSELF`] clients had stated it, if its bit is set.
//!
//! Keys are hashes; two keys with one hash of 64 bits are taken for one. The oldest entries make room.

use std::cmp::Reverse;

use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

use super::fifo::{Fifo, HeapBytes};
use super::hashes::Hashes;
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

/// See the module.
pub(super) struct Aliases {
    hashes: Hashes,
    of_clients: Fifo<Statements>,
    of_names: Fifo<Meanings>,
    /// Looked-up names that a flow stated unchanged, and those with an alias.
    meant_itself: Sieve,
    with_alias: Sieve,
}

/// A flow that is judged: its statement does not count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own<'a> {
    /// Number of its first packet.
    pub flow: u64,
    /// The name that it states.
    pub stated: &'a Name,
}

/// The flows of a client and the names that they stated, the last flow first.
#[derive(Default)]
struct Statements([Option<(u64, Name)>; FLOWS_MAX]);

impl Statements {
    fn add(&mut self, flow: u64, stated: &Name) {
        self.0.rotate_right(1);
        self.0[0] = Some((flow, stated.clone()));
    }

    /// The last name, without that of the flow `own`.
    fn last(&self, own: Option<u64>) -> Option<&Name> {
        self.0.iter().flatten().find(|(flow, _)| Some(*flow) != own).map(|(_, name)| name)
    }
}

impl HeapBytes for Statements {
    fn heap_bytes(&self) -> usize {
        self.0.iter().flatten().map(|(_, name)| name.heap_bytes()).sum()
    }
}

/// A name that clients stated where they had looked up another.
struct Meaning {
    name: Name,
    clients: u8,
    /// Hash of the last of them.
    last_client: u64,
}

/// What clients mean by a looked-up name, the first stated one first.
#[derive(Default)]
struct Meanings(Vec<Meaning>);

impl Meanings {
    /// `client` stated `stated`.
    fn add(&mut self, stated: &Name, client: u64) {
        let Meanings(all) = self;
        match all.iter_mut().find(|meaning| meaning.name == *stated) {
            Some(meaning) if meaning.last_client == client => (),
            Some(meaning) => {
                meaning.clients = meaning.clients.saturating_add(1);
                meaning.last_client = client;
            }
            None => {
                // The name that the fewest clients stated makes room, the oldest of several.
                let fewest = (0..all.len()).min_by_key(|&at| all[at].clients);
                if let Some(at) = fewest.filter(|_| all.len() == MEANINGS_MAX) {
                    all.remove(at);
                }
                all.push(Meaning { name: stated.clone(), clients: 1, last_client: client });
            }
        }
    }

    /// The name that the most clients stated, if they are enough. The client of `own` has no other flow
    /// here, so it does not count.
    fn most_stated(&self, own: Option<Own<'_>>) -> Option<&Name> {
        let clients = |meaning: &Meaning| {
            let is_own = own.is_some_and(|own| *own.stated == meaning.name);
            meaning.clients.saturating_sub(u8::from(is_own))
        };
        // Of names that equally many clients stated, the first one that was stated.
        let most = self.0.iter().min_by_key(|meaning| Reverse(clients(meaning)))?;
        (clients(most) >= CLIENTS_MIN).then_some(&most.name)
    }
}

impl HeapBytes for Meanings {
    fn heap_bytes(&self) -> usize {
        let names: usize = self.0.iter().map(|meaning| meaning.name.heap_bytes()).sum();
        self.0.capacity() * size_of::<Meaning>() + names
    }
}

impl Aliases {
    /// Half of `budget_bytes` for the clients, half for the names.
    pub fn new(budget_bytes: u64, hashes: Hashes) -> Aliases {
        let budget_bytes = (budget_bytes / 2) as usize;
        Aliases {
            hashes,
            of_clients: Fifo::new(budget_bytes),
            of_names: Fifo::new(budget_bytes),
            meant_itself: Sieve::new(SIEVE_BITS),
            with_alias: Sieve::new(SIEVE_BITS),
        }
    }

    /// Learns what a flow of `client` to an address with the one name `looked_up` states.
    pub fn learn(&mut self, scope: Scope, client: Addr, looked_up: &Name, own: Own<'_>) {
        let Own { flow, stated } = own;
        let name = self.hashes.of_name(looked_up);
        if stated == looked_up && !self.with_alias.has(name) {
            return self.meant_itself.add(name);
        }
        self.with_alias.add(name);
        let client = self.hashes.of_addr(b'a', scope, client, 0);
        self.of_clients
            .change(Hashes::joined(client, name), |statements| statements.add(flow, stated));
        let was_meant = self.meant_itself.has(name);
        self.of_names.change(name, |meanings| {
            if meanings.0.is_empty() && was_meant {
                let name = looked_up.clone();
                meanings.0.push(Meaning { name, clients: MEANT_ITSELF, last_client: 0 });
            }
            meanings.add(stated, client);
        });
    }

    /// The name that `client` means by `looked_up`, if it is another. What `own` taught does not
    /// count.
    pub fn alias_of(
        &self,
        scope: Scope,
        client: Addr,
        looked_up: &Name,
        own: Option<Own<'_>>,
    ) -> Option<Name> {
        let name = self.hashes.of_name(looked_up);
        if !self.with_alias.has(name) {
            return None;
        }
        let client = self.hashes.of_addr(b'a', scope, client, 0);
        let statements = self.of_clients.get(Hashes::joined(client, name));
        let last = statements.and_then(|statements| statements.last(own.map(|own| own.flow)));
        let meant = last.or_else(|| self.of_names.get(name)?.most_stated(own))?;
        (meant != looked_up).then(|| meant.clone())
    }
}
