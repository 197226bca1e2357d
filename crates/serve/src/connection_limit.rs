//! Limits the number of connections, in all and of one client. A client is an IPv4 address, or an
//! IPv6 network of 64 bits, which belongs to one customer.
//!
//! Invariant: a connection is counted until its [`Permit`] is dropped. So the table has at most as
//! many entries as there are connections. Cost: a lock of one of `SHARDS` and a table lookup when a
//! connection begins or ends; otherwise relaxed atomics.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SHARDS: usize = 16;

/// A full table shortens patience to this part of itself.
const CROWDED_PART: u32 = 16;

/// Whom an address belongs to: IPv6 hosts choose the lower half of theirs as they like.
fn client_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
    }
}

/// Connections by client.
#[derive(Debug)]
pub struct ConnectionLimit {
    connections_max: usize,
    open: AtomicUsize,
    shards: [Mutex<HashMap<IpAddr, u32>>; SHARDS],
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    limit: Arc<ConnectionLimit>,
    client: IpAddr,
}

impl Default for ConnectionLimit {
    /// For any number in all.
    fn default() -> ConnectionLimit {
        ConnectionLimit::new(usize::MAX)
    }
}

impl ConnectionLimit {
    /// A limit for all clients together.
    pub fn new(connections_max: usize) -> ConnectionLimit {
        let (open, shards) = (AtomicUsize::new(0), std::array::from_fn(|_| Mutex::default()));
        ConnectionLimit { connections_max, open, shards }
    }

    fn shard(&self, client: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        let last = match client {
            IpAddr::V4(address) => address.octets()[3],
            // The last byte of the network.
            IpAddr::V6(address) => address.octets()[7],
        };
        self.shards[usize::from(last) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for a connection from an address, unless all permits are in use, or
    /// `per_client_max` of its client.
    pub fn admit(self: &Arc<Self>, address: IpAddr, per_client_max: u32) -> Option<Permit> {
        let client = client_of(address.to_canonical());
        let mut shard = self.shard(client);
        let count = shard.get(&client).copied().unwrap_or(0);
        let one_more = |open: usize| Some(open + 1).filter(|_| open < self.connections_max);
        if count >= per_client_max || self.open.fetch_update(Relaxed, Relaxed, one_more).is_err() {
            return None;
        }
        shard.insert(client, count + 1);
        Some(Permit { limit: self.clone(), client })
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// A time, reduced as the table fills: to a 16th where it is full.
    pub fn patience(&self, whole: Duration) -> Duration {
        let share = self.open() as f64 / self.connections_max.max(1) as f64;
        whole.mul_f64((1.0 - share).clamp(1.0 / f64::from(CROWDED_PART), 1.0))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut shard = self.limit.shard(self.client);
        self.limit.open.fetch_sub(1, Relaxed);
        if let Some(count) = shard.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Permits are counted in all and for each client; hosts of a /64 are one client. A dropped
    /// permit is free again, and the table forgets a client without permits.
    #[test]
    fn places_are_counted() {
        let limit = Arc::new(ConnectionLimit::new(4));
        let at = |text: &str| limit.admit(text.parse().unwrap(), 2);
        let first = at("2001:db8::1").unwrap();
        let second = at("2001:db8::ffff:1").unwrap();
        assert!(at("2001:db8::2").is_none(), "the third of a client");
        // Another network, and one that shares its shard.
        let others = [at("2001:db8:0:1::1").unwrap(), at("192.0.2.1").unwrap()];
        assert!(at("192.0.2.17").is_none(), "the fifth of all");
        assert_eq!(limit.open(), 4);
        drop(first);
        let mapped = at("::ffff:192.0.2.1").unwrap();
        assert!(at("192.0.2.9").is_none());
        drop(second);
        assert!(at("192.0.2.1").is_none(), "the third of a client");
        drop((others, mapped));
        assert_eq!(limit.open(), 0);
        assert!(limit.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    /// Patience falls as the table fills, and never to nothing.
    #[test]
    fn patience_falls() {
        let limit = Arc::new(ConnectionLimit::new(4));
        let whole = Duration::from_secs(16);
        assert_eq!(limit.patience(whole), whole);
        let mut held = Vec::new();
        let mut before = whole;
        for _ in 0..4 {
            held.push(limit.admit([192, 0, 2, 1].into(), 9).unwrap());
            assert!(limit.patience(whole) < before);
            before = limit.patience(whole);
        }
        assert_eq!(before, Duration::from_secs(1));
    }
}
