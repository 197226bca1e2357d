//! What clients of all transports may do together, and what they did.
//!
//! | limit | at the limit |
//! |---|---|
//! | connections, all and of one client (an IPv4 address, a /64) | a new one is closed before its handshake |
//! | handshake, rest of a question, stalled reader: time | the connection is closed |
//! | idle time, less as the table fills | the connection is closed, in its transport's polite way |
//! | unanswered questions of a connection | nothing more is read; HTTP/2 and QUIC tell the client so |
//! | questions that wait for a core | SERVFAIL |
//! | octets of answers that clients have not taken, all together | further answers are dropped |
//!
//! Each of them is counted. Cost: a lock a connection, relaxed atomics else.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use larder_dns::dnstap::Protocol;
use larder_dns::metrics::Gauge;
use larder_dns::streams::client_of;

/// Limits of all encrypted transports together.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once.
    pub connections_max: usize,
    /// Of those, of one client.
    pub per_client_max: u32,
    /// Questions of a connection that wait for their answers to be sent.
    pub unanswered_max: usize,
    /// Octets of answers that clients have not taken.
    pub unsent_bytes_max: usize,
    /// For a handshake.
    pub handshake: Duration,
    /// For a question, from its connection's last question or answer on.
    pub idle: Duration,
    /// For a client to take what was sent.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 4_096,
            per_client_max: 64,
            unanswered_max: 100,
            unsent_bytes_max: 64 << 20,
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(30),
            stall: Duration::from_secs(10),
        }
    }
}

/// A full table shortens patience to this part of itself.
const CROWDED_PART: u32 = 16;

/// What is counted, of each transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A connection was taken, its handshake not yet made.
    Opened,
    /// A connection was not taken: a limit.
    Refused,
    /// A handshake failed, or took too long.
    HandshakeFailed,
    /// A connection was closed because it took too long over a question, or over taking its answers.
    TimedOut,
    /// A connection or stream broke the rules of its transport.
    Violated,
    /// A question was answered with SERVFAIL because a core did not follow.
    Overloaded,
    /// An answer was dropped because clients had not taken too many others.
    Unsent,
}

const EVENTS: [(&str, &str); 7] = [
    ("encrypted_connections_opened", "Connections of encrypted transports taken"),
    ("encrypted_connections_refused", "Connections of encrypted transports not taken: a limit"),
    ("encrypted_handshakes_failed", "Handshakes that failed or took too long"),
    ("encrypted_timeouts", "Connections and requests closed because their client took too long"),
    ("encrypted_violations", "Connections and requests that broke the rules of their transport"),
    ("encrypted_overloads", "Questions answered with SERVFAIL because no core could take them"),
    ("encrypted_unsent", "Answers dropped because clients had not taken others"),
];

const PROTOCOLS: [(Protocol, &str); 3] =
    [(Protocol::Tls, "tls"), (Protocol::Https, "https"), (Protocol::Quic, "quic")];

fn place(protocol: Protocol) -> usize {
    PROTOCOLS.iter().position(|(each, _)| *each == protocol).unwrap_or(0)
}

/// Counters, by event and transport.
#[derive(Debug, Default)]
pub(crate) struct Counters([[AtomicU64; PROTOCOLS.len()]; EVENTS.len()]);

impl Counters {
    pub(crate) fn note(&self, event: Event, protocol: Protocol) {
        self.0[event as usize][place(protocol)].fetch_add(1, Relaxed);
    }

    pub(crate) fn gauges(&self) -> impl Iterator<Item = Gauge> + '_ {
        EVENTS.iter().zip(&self.0).flat_map(|(&(name, help), values)| {
            PROTOCOLS.iter().zip(values).map(move |((_, transport), value)| Gauge {
                name,
                help,
                label: Some(("transport", (*transport).to_owned())),
                value: value.load(Relaxed) as f64,
            })
        })
    }
}

/// Who may connect.
#[derive(Debug)]
pub(crate) struct Gate {
    connections_max: usize,
    per_client_max: u32,
    open: AtomicUsize,
    clients: Mutex<HashMap<IpAddr, u32>>,
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    gate: Arc<Gate>,
    client: IpAddr,
}

impl Gate {
    pub(crate) fn new(limits: &Limits) -> Gate {
        Gate {
            connections_max: limits.connections_max,
            per_client_max: limits.per_client_max,
            open: AtomicUsize::new(0),
            clients: Mutex::default(),
        }
    }

    /// A place for a connection from an address, if there is one.
    pub(crate) fn admit(self: &Arc<Gate>, address: IpAddr) -> Option<Ticket> {
        let client = client_of(address.to_canonical());
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let count = clients.get(&client).copied().unwrap_or(0);
        if count >= self.per_client_max || self.open() >= self.connections_max {
            return None;
        }
        clients.insert(client, count + 1);
        self.open.fetch_add(1, Relaxed);
        Some(Ticket { gate: self.clone(), client })
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// A time, cut as the table fills: to a 16th where it is full.
    pub(crate) fn patience(&self, whole: Duration) -> Duration {
        let share = self.open() as f64 / self.connections_max.max(1) as f64;
        whole.mul_f64((1.0 - share).clamp(1.0 / f64::from(CROWDED_PART), 1.0))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut clients = self.gate.clients.lock().unwrap_or_else(PoisonError::into_inner);
        self.gate.open.fetch_sub(1, Relaxed);
        if let Some(count) = clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places are counted over all and for each client, hosts of a /64 being one; a place that is given back is free,
    /// and who has none left is forgotten.
    #[test]
    fn places_are_counted() {
        let gate = Arc::new(Gate::new(&Limits {
            connections_max: 3,
            per_client_max: 2,
            ..Limits::default()
        }));
        let at = |text: &str| gate.admit(text.parse().unwrap());
        let first = at("2001:db8::1").unwrap();
        let second = at("2001:db8::ffff:1").unwrap();
        assert!(at("2001:db8::2").is_none(), "the third of a client");
        let other = at("192.0.2.1").unwrap();
        assert!(at("192.0.2.2").is_none(), "the fourth of all");
        assert_eq!(gate.open(), 3);
        drop(first);
        let mapped = at("::ffff:192.0.2.1").unwrap();
        assert!(at("192.0.2.9").is_none());
        drop((second, other, mapped));
        assert_eq!(gate.open(), 0);
        assert!(gate.clients.lock().unwrap().is_empty());
    }

    /// Patience falls as the table fills, and never to nothing.
    #[test]
    fn patience_falls() {
        let limits = Limits { connections_max: 4, per_client_max: 9, ..Limits::default() };
        let gate = Arc::new(Gate::new(&limits));
        let whole = Duration::from_secs(16);
        assert_eq!(gate.patience(whole), whole);
        let mut held = Vec::new();
        let mut before = whole;
        for _ in 0..4 {
            held.push(gate.admit([192, 0, 2, 1].into()).unwrap());
            assert!(gate.patience(whole) < before);
            before = gate.patience(whole);
        }
        assert_eq!(before, Duration::from_secs(1));
    }

    /// Each event is counted for its transport alone.
    #[test]
    fn events_are_counted() {
        let counters = Counters::default();
        counters.note(Event::Unsent, Protocol::Quic);
        let told: Vec<_> = counters.gauges().filter(|gauge| gauge.value > 0.0).collect();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].name, "encrypted_unsent");
        assert_eq!(told[0].label, Some(("transport", "quic".to_owned())));
        assert_eq!(counters.gauges().count(), EVENTS.len() * PROTOCOLS.len());
    }
}
