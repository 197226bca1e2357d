//! What notes of responses show: names, clients, blocked names, times of hits, and the last responses.
//!
//! ```text
//! table      key                     window               rows of a slice
//! names      name of the query       six times 10 min     4,096, the most responses
//! clients    address or network      six times 10 min     4,096, the most responses
//! blocked    name of the query       six times 10 min     4,096, the most responses
//! tail       none                    none                 100, the latest
//! ```
//!
//! Invariants
//! 1. Each table has the bound above, whatever clients send (test `tables_are_bounded`).
//!
//! Time is an argument.

use std::collections::VecDeque;
use std::net::IpAddr;

use larder_serve::durations::Durations;
use larder_serve::recent::{Recent, Row};

use super::notes::Note;
use crate::core::Source;

/// The responses that are listed.
pub const TAIL_MAX: usize = 100;

/// Clients of a name that are told apart; a name with more has at least this many.
pub const CLIENTS_MAX: usize = 16;

/// Seconds over which times of hits are counted.
const HITS_S: usize = 60;

/// A name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRow {
    /// Responses.
    pub responses: u64,
    /// Of them, those that needed the cache or an upstream: all but local ones.
    pub lookups: u64,
    /// Of these, those from the cache, also after their TTL.
    pub hits: u64,
    /// Of all, those with an error other than NXDOMAIN.
    pub failures: u64,
    /// Type and client of the latest query.
    pub qtype: u16,
    /// See there.
    pub client: IpAddr,
    /// Clients, as far as they are told apart.
    pub clients: Vec<IpAddr>,
}

impl Row for NameRow {
    fn weight(&self) -> u64 {
        self.responses
    }

    fn merge(&mut self, later: NameRow) {
        self.responses += later.responses;
        self.lookups += later.lookups;
        self.hits += later.hits;
        self.failures += later.failures;
        (self.qtype, self.client) = (later.qtype, later.client);
        for client in later.clients {
            if self.clients.len() < CLIENTS_MAX && !self.clients.contains(&client) {
                self.clients.push(client);
            }
        }
    }
}

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRow {
    /// Responses.
    pub responses: u64,
    /// Of them, those to blocked names.
    pub blocked: u64,
    /// Of them, those of NXDOMAIN.
    pub nxdomain: u64,
}

impl Row for ClientRow {
    fn weight(&self) -> u64 {
        self.responses
    }

    fn merge(&mut self, later: ClientRow) {
        self.responses += later.responses;
        self.blocked += later.blocked;
        self.nxdomain += later.nxdomain;
    }
}

/// See the module.
#[derive(Debug)]
pub struct Seen {
    /// By name in wire form.
    pub names: Recent<Box<[u8]>, NameRow>,
    /// By client.
    pub clients: Recent<IpAddr, ClientRow>,
    /// Blocked names.
    pub blocked: Recent<Box<[u8]>, NameRow>,
    /// The last responses, the latest last.
    pub tail: VecDeque<Note>,
    /// Times of hits by second, and the largest weight of a note then.
    seconds: VecDeque<(Durations, u32)>,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            names: Recent::new(600, 6, 4_096),
            clients: Recent::new(600, 6, 4_096),
            blocked: Recent::new(600, 6, 4_096),
            tail: VecDeque::new(),
            seconds: VecDeque::from([(Durations::default(), 1)]),
        }
    }
}

impl Seen {
    /// Begins a second.
    pub fn advance(&mut self) {
        self.seconds.push_back((Durations::default(), 1));
        while self.seconds.len() > HITS_S {
            self.seconds.pop_front();
        }
    }

    /// Adds a response at `now_s`.
    pub fn take(&mut self, note: Note, now_s: u64) {
        let (responses, client) = (u64::from(note.weight), note.client);
        let is_blocked = note.source == Source::Blocked;
        let of = |is: bool| if is { responses } else { 0 };
        let row = ClientRow { responses, blocked: of(is_blocked), nxdomain: of(note.rcode == 3) };
        self.clients.add(client, row, now_s);
        if let Some((hits, weight)) = self.seconds.back_mut() {
            *weight = note.weight.max(*weight);
            if note.source == Source::Hit {
                hits.note_many(note.duration_us.into(), responses);
            }
        }
        if !note.name.is_empty() {
            let row = NameRow {
                responses,
                lookups: of(!matches!(note.source, Source::Blocked | Source::Local)),
                hits: of(matches!(note.source, Source::Hit | Source::Stale)),
                failures: of(!matches!(note.rcode, 0 | 3)),
                qtype: note.qtype,
                client,
                clients: vec![client],
            };
            let table = if is_blocked { &mut self.blocked } else { &mut self.names };
            table.add(note.name.clone(), row, now_s);
        }
        if self.tail.len() >= TAIL_MAX {
            self.tail.pop_front();
        }
        self.tail.push_back(note);
    }

    /// Times of hits in the last minute.
    pub fn hits(&self) -> Durations {
        let mut sum = Durations::default();
        for (second, _) in &self.seconds {
            for (sum, value) in sum.words().zip(second.values()) {
                *sum = sum.wrapping_add(value);
            }
        }
        sum
    }

    /// The responses that a note of the last minute stands for, at most.
    pub fn weight_max(&self) -> u32 {
        self.seconds.iter().map(|(_, weight)| *weight).max().unwrap_or(1)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::dnstap::Protocol;

    /// A note of a name in wire form.
    pub fn note(name: &[u8], source: Source, weight: u32) -> Note {
        Note {
            unix_ms: 1_800_000_000_123,
            duration_us: 3,
            weight,
            client: IpAddr::from([192, 0, 2, 1]),
            qtype: 28,
            rcode: if source == Source::Blocked { 3 } else { 0 },
            source,
            protocol: Protocol::Udp,
            name: name.into(),
        }
    }

    /// Responses are counted by name, by client and by source; blocked names have their own table.
    #[test]
    fn responses_are_counted() {
        let mut seen = Seen::default();
        seen.take(note(b"\x01a\0", Source::Hit, 4), 60);
        seen.take(note(b"\x01a\0", Source::Miss, 1), 60);
        seen.take(note(b"\x01b\0", Source::Blocked, 2), 60);
        seen.take(note(b"", Source::Local, 1), 60);
        let names = seen.names.merged(60, 9);
        let NameRow { responses, lookups, hits, .. } = names[0].1;
        assert_eq!((names.len(), responses, lookups, hits), (1, 5, 5, 4));
        assert_eq!(names[0].1.clients.len(), 1);
        assert_eq!(seen.blocked.merged(60, 9)[0].1.responses, 2);
        let client = seen.clients.merged(60, 9)[0].1;
        assert_eq!(client, ClientRow { responses: 8, blocked: 2, nxdomain: 2 });
        assert_eq!((seen.hits().count(), seen.hits().quantile_us(0.5)), (4, Some(4)));
        assert_eq!((seen.tail.len(), seen.weight_max()), (4, 4));
        for _ in 0..HITS_S {
            seen.advance();
        }
        assert_eq!((seen.hits().count(), seen.weight_max()), (0, 1));
    }

    /// Invariant 1.
    #[test]
    fn tables_are_bounded() {
        let mut seen = Seen::default();
        for number in 0..60_000_u32 {
            let [_, a, b, c] = number.to_be_bytes();
            let source = if number % 2 == 0 { Source::Blocked } else { Source::Hit };
            let mut note = note(&[3, a, b, c, 0], source, 1);
            note.client = IpAddr::from([10, a, b, c]);
            seen.take(note, u64::from(number));
            assert!(seen.names.rows() <= 6 * 4_096 && seen.blocked.rows() <= 6 * 4_096);
            assert!(seen.clients.rows() <= 6 * 4_096 && seen.tail.len() <= TAIL_MAX);
        }
        let row = |client: u8| NameRow {
            responses: 1,
            lookups: 0,
            hits: 0,
            failures: 0,
            qtype: 1,
            client: IpAddr::from([10, 0, 0, client]),
            clients: vec![IpAddr::from([10, 0, 0, client])],
        };
        let mut name = row(0);
        (0..99).for_each(|client| name.merge(row(client)));
        assert_eq!((name.clients.len(), name.responses), (CLIENTS_MAX, 100));
    }
}
