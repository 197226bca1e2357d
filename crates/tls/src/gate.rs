//! How many connections there may be, in all and of one client (an IPv4 address, a /64).
//!
//! Cost: a lock a connection, relaxed atomics else.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use larder_io::tcp::client_of;

/// A full table shortens patience to this part of itself.
const CROWDED_PART: u32 = 16;

/// Who may connect.
#[derive(Debug)]
pub struct Gate {
    connections_max: usize,
    per_client_max: AtomicU32,
    open: AtomicUsize,
    clients: Mutex<HashMap<IpAddr, u32>>,
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
pub struct Ticket {
    gate: Arc<Gate>,
    client: IpAddr,
}

impl Gate {
    /// For so many connections, and so many of one client.
    pub fn new(connections_max: usize, per_client_max: u32) -> Gate {
        Gate {
            connections_max,
            per_client_max: AtomicU32::new(per_client_max),
            open: AtomicUsize::new(0),
            clients: Mutex::default(),
        }
    }

    /// So many of one client from now on; who has more keeps them.
    pub fn set_per_client_max(&self, per_client_max: u32) {
        self.per_client_max.store(per_client_max, Relaxed);
    }

    /// A place for a connection from an address, if there is one.
    pub fn admit(self: &Arc<Gate>, address: IpAddr) -> Option<Ticket> {
        let client = client_of(address.to_canonical());
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let count = clients.get(&client).copied().unwrap_or(0);
        if count >= self.per_client_max.load(Relaxed) || self.open() >= self.connections_max {
            return None;
        }
        clients.insert(client, count + 1);
        self.open.fetch_add(1, Relaxed);
        Some(Ticket { gate: self.clone(), client })
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// A time, cut as the table fills: to a 16th where it is full.
    pub fn patience(&self, whole: Duration) -> Duration {
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
        let gate = Arc::new(Gate::new(3, 2));
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
        let gate = Arc::new(Gate::new(4, 9));
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
}
