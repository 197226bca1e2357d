//! What the records of a run show, for the page: names, clients, destinations that no client looked
//! up, names that contradict lookups, and where names came from.
//!
//! The worker or the writer that makes a record notes what matters here ([`Noted`]); the writer adds
//! the notes of a batch to [`Seen`]. Runs without a page make no notes.
//!
//! ```text
//! table          key                              window               rows of a slice
//! names          name of the destination          six times 10 min     4,096, the most bytes
//! clients        address of the initiator         six times 10 min     4,096, the most bytes
//! unresolved     destination, port, protocol      24 times 1 h         1,024, the latest
//! conflicts      stated name, looked-up name      24 times 1 h         1,024, the latest
//! known          hash of a name or a client       none                 65,536, the latest day
//! ```
//!
//! Invariants
//! 1. Each table has the bound above, whatever the traffic is (test `tables_are_bounded`).
//! 2. Time is an argument: [`Seen::advance`] sets the time of the day, in which windows are measured.
//!    So a capture that is replayed faster than it was recorded has the windows of its reader.
//!
//! Cost: a record takes two to four insertions into hash tables, and no allocation for a name of up
//! to 30 bytes.

mod known;

use std::collections::VecDeque;

pub use larder_serve::recent::{Recent, Row};
use larder_wire::{Addr, Name};

pub use self::known::Known;
use crate::record::{ConflictGrade, FlowRecord, NameFlags, NameSource, UnnamedReason};

/// Clients of a name that are told apart; a name with more has at least this many.
pub const CLIENTS_MAX: usize = 16;

/// New names that are listed.
pub const NEW_MAX: usize = 500;

/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// The facts of one record.
#[derive(Clone, Debug)]
pub struct Noted {
    client: Addr,
    client_name: Option<Name>,
    server: Server,
    traffic: Traffic,
    start_ns: i64,
    name: Option<(Name, NameSource)>,
    reason: Option<UnnamedReason>,
    /// The name that a lookup gave, of another registered domain.
    looked_up: Option<Name>,
    is_unresolved: bool,
    is_nameable: bool,
}

/// A destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Its address.
    pub addr: Addr,
    /// Its port.
    pub port: u16,
    /// The IP protocol.
    pub protocol: u8,
}

/// Counts of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Records.
    pub flows: u64,
    /// IP bytes in both directions.
    pub bytes: u64,
}

impl Traffic {
    fn add(&mut self, other: Traffic) {
        self.flows += other.flows;
        self.bytes += other.bytes;
    }
}

impl Noted {
    /// Notes a record whose name is chosen. Names with a confidence below `least`, percent, are left out as in the
    /// log. `is_unresolved`: lookups are seen, and none gave its destination.
    pub fn of(record: &FlowRecord, least: u8, is_unresolved: bool) -> Noted {
        let FlowRecord { source, destination, protocol, start_ns, .. } = record;
        let known = destination.naming.as_ref();
        let naming = known.filter(|naming| naming.confidence >= least);
        let is_left_out = known.is_some() && naming.is_none();
        let contradicts = naming.is_some_and(|naming| {
            naming.conflict_grade == Some(ConflictGrade::OtherDomain)
                || naming.flags.has(NameFlags::CONFLICT)
        });
        Noted {
            client: source.addr,
            client_name: source
                .naming
                .as_ref()
                .filter(|naming| naming.confidence >= least)
                .map(|naming| naming.name.clone()),
            server: Server { addr: destination.addr, port: destination.port, protocol: *protocol },
            traffic: Traffic { flows: 1, bytes: source.ip_bytes + destination.ip_bytes },
            start_ns: *start_ns,
            name: naming.map(|naming| (naming.name.clone(), naming.source)),
            reason: match is_left_out {
                true => Some(UnnamedReason::LowConfidence),
                false => destination.unnamed_reason,
            },
            // The chosen name is the first candidate.
            looked_up: destination.candidates.get(1).filter(|_| contradicts).cloned(),
            is_unresolved,
            is_nameable: !destination.addr.is_multicast_or_broadcast(),
        }
    }
}

/// A name.
#[derive(Clone, Debug)]
pub struct NameRow {
    /// Its flows.
    pub traffic: Traffic,
    /// Where the name of the latest flow came from.
    pub source: NameSource,
    /// Clients of its flows.
    pub clients: Vec<Addr>,
}

impl Row for NameRow {
    fn weight(&self) -> u64 {
        self.traffic.bytes
    }

    fn merge(&mut self, later: NameRow) {
        self.traffic.add(later.traffic);
        self.source = later.source;
        for client in later.clients {
            add_client(&mut self.clients, client);
        }
    }
}

/// A client.
#[derive(Clone, Debug)]
pub struct ClientRow {
    /// Its flows.
    pub traffic: Traffic,
    /// Its own name, if it has one.
    pub name: Option<Name>,
}

impl Row for ClientRow {
    fn weight(&self) -> u64 {
        self.traffic.bytes
    }

    fn merge(&mut self, later: ClientRow) {
        self.traffic.add(later.traffic);
        self.name = later.name.or(self.name.take());
    }
}

/// A destination that no lookup gave, or a pair of names that contradict each other.
#[derive(Clone, Debug)]
pub struct OddRow {
    /// Its flows.
    pub traffic: Traffic,
    /// When the first flow began, and the latest; packet time.
    pub first_ns: i64,
    /// See there.
    pub last_ns: i64,
    /// The client of the latest flow.
    pub client: Addr,
    /// The destination of the latest flow.
    pub server: Server,
    /// The name that the latest flow stated.
    pub stated: Option<Name>,
}

impl Row for OddRow {
    fn weight(&self) -> u64 {
        self.last_ns.max(0) as u64
    }

    fn merge(&mut self, later: OddRow) {
        self.traffic.add(later.traffic);
        self.first_ns = self.first_ns.min(later.first_ns);
        if later.last_ns >= self.last_ns {
            let (traffic, first_ns) = (self.traffic, self.first_ns);
            *self = OddRow { traffic, first_ns, ..later };
        }
    }
}

/// A name that was seen for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewName {
    /// The name.
    pub name: Name,
    /// When its first flow began; packet time.
    pub first_ns: i64,
    /// The client of that flow.
    pub client: Addr,
}

/// See the module.
#[derive(Debug)]
pub struct Seen {
    /// By name.
    pub names: Recent<Name, NameRow>,
    /// By client.
    pub clients: Recent<Addr, ClientRow>,
    /// Destinations that no lookup gave.
    pub unresolved: Recent<Server, OddRow>,
    /// Stated names, and looked-up names of another registered domain.
    pub conflicts: Recent<(Name, Name), OddRow>,
    /// Records by the source of their name, in the order of [`NameSource::ALL`].
    pub sources: [u64; NameSource::ALL.len()],
    /// Records without a name, by reason.
    pub reasons: Vec<(UnnamedReason, u64)>,
    /// Names and clients of earlier days.
    pub known: Known,
    /// The names that are new today, the latest last.
    pub new_names: VecDeque<NewName>,
    /// The time of the day, seconds since 1970.
    now_s: u64,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            names: Recent::new(600, 6, 4_096),
            clients: Recent::new(600, 6, 4_096),
            unresolved: Recent::new(3_600, 24, 1_024),
            conflicts: Recent::new(3_600, 24, 1_024),
            sources: [0; NameSource::ALL.len()],
            reasons: Vec::new(),
            known: Known::default(),
            new_names: VecDeque::new(),
            now_s: 0,
        }
    }
}

impl Seen {
    /// Sets the time, seconds since 1970. The new names of the day before are removed.
    pub fn advance(&mut self, now_s: u64) {
        if now_s / DAY_S != self.now_s / DAY_S && self.now_s > 0 {
            self.new_names.clear();
        }
        self.now_s = now_s;
    }

    /// The day of [`Seen::advance`].
    pub fn today(&self) -> u32 {
        (self.now_s / DAY_S) as u32
    }

    /// Adds a record.
    pub fn take(&mut self, noted: Noted) {
        let Noted { client, client_name, server, traffic, start_ns, .. } = noted;
        let (now_s, today) = (self.now_s, self.today());
        let row = ClientRow { traffic, name: client_name };
        self.known.is_new(&client.0, today);
        self.clients.add(client, row, now_s);
        let odd = |stated| {
            let (first_ns, last_ns) = (start_ns, start_ns);
            OddRow { traffic, first_ns, last_ns, client, server, stated }
        };
        let stated = noted.name.as_ref().map(|(name, _)| name);
        if noted.is_unresolved {
            self.unresolved.add(server, odd(stated.cloned()), now_s);
        }
        if let (Some(stated), Some(looked_up)) = (stated, noted.looked_up) {
            self.conflicts.add((stated.clone(), looked_up), odd(Some(stated.clone())), now_s);
        }
        match (noted.name, noted.reason) {
            (Some((name, source)), _) => {
                self.sources[source as usize] += u64::from(noted.is_nameable);
                if self.known.is_new(name.as_bytes(), today) {
                    if self.new_names.len() >= NEW_MAX {
                        self.new_names.pop_front();
                    }
                    let name = name.clone();
                    self.new_names.push_back(NewName { name, first_ns: start_ns, client });
                }
                self.names.add(name, NameRow { traffic, source, clients: vec![client] }, now_s);
            }
            (None, Some(reason)) if noted.is_nameable => {
                match self.reasons.iter_mut().find(|(known, _)| *known == reason) {
                    Some((_, count)) => *count += 1,
                    // There are as many rows as reasons, at most.
                    None => self.reasons.push((reason, 1)),
                }
            }
            (None, _) => {}
        }
    }
}

fn add_client(clients: &mut Vec<Addr>, client: Addr) {
    if clients.len() < CLIENTS_MAX && !clients.contains(&client) {
        clients.push(client);
    }
}

#[cfg(test)]
mod tests;
