//! Which names flows stated: by client, and by the address of the server.
//!
//! Two tables of fixed size, which hold hashes and no names:
//!
//! | key | value |
//! |---|---|
//! | network, client, port, name | the number of flows that stated it, and the last [`LAST_MAX`] of them |
//! | network, server, port, name | the clients whose flows stated it there, as a set of 64 bits |
//!
//! The port is the server's: what flows state to a web server says nothing of one for mail at its address.
//!
//! A client has one bit, so a client that repeats itself counts once, and any client can be left out
//! of a count. Two clients with one bit count as one, so counts are low above about thirty clients.
//!
//! Both tables have sets of [`WAYS`] entries. In a full set, the entry that was added first makes room.
//! So what is forgotten depends on the order of the statements only. Two names with one hash of 64 bits
//! are taken for one.
//!
//! Cost: a statement reads and writes one set of each table, a candidate of a choice reads one of each.

use larder_mem::{prefetch_lines, prefetch_slice};
use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

use super::hashes::Hashes;

/// Flows that are remembered of a client and name.
pub(crate) const LAST_MAX: usize = 4;
/// Entries of a set.
const WAYS: usize = 4;
const _: () = assert!(WAYS.is_power_of_two());

/// A name as a client, or the clients of a server, may have stated it: hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    by_client: u64,
    by_server: u64,
    /// The bit of the client.
    client: u64,
}

/// The two ends of a flow, as hashes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parties {
    client: u64,
    server: u64,
}

impl Parties {
    /// A flow of `client` to a server.
    pub fn of(hashes: &Hashes, scope: Scope, client: Addr, (server, port): (Addr, u16)) -> Parties {
        Parties {
            client: hashes.of_addr(b'c', scope, client, port),
            server: hashes.of_addr(b's', scope, server, port),
        }
    }

    /// The keys of `name`.
    pub fn keys(&self, hashes: &Hashes, name: &Name) -> Keys {
        let name = hashes.of_name(name);
        Keys {
            by_client: Hashes::joined(self.client, name),
            by_server: Hashes::joined(self.server, name),
            client: 1 << (self.client % 64),
        }
    }
}

/// A flow that stated a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowStart {
    /// Number of its first packet.
    pub flow: u64,
    /// Time of that packet, ns.
    pub start_ns: i64,
}

/// What one client stated: the number of flows, and number and time of the last ones, the last first. Those behind the
/// number of flows are unused. Plain integers, so that the memory of a new table is not touched.
type ByClient = (u64, [(u64, i64); LAST_MAX]);

/// What is known of a name that a client may mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stated {
    /// Other flows of the client that stated it.
    pub by_client: u64,
    /// The last of them.
    pub last: [Option<FlowStart>; LAST_MAX],
    /// Other clients whose flows stated it at this address.
    pub by_others: u8,
}

/// See the module.
pub(crate) struct Usage {
    clients: Sets<ByClient>,
    servers: Sets<u64>,
}

impl Usage {
    /// Half of `budget_bytes` for each table, rounded down to a power of two.
    pub fn new(budget_bytes: u64) -> Usage {
        let budget_bytes = (budget_bytes / 2) as usize;
        Usage { clients: Sets::new(budget_bytes), servers: Sets::new(budget_bytes) }
    }

    /// Fetches the memory of keys that are needed soon.
    pub fn prefetch<'a>(&self, keys: impl Iterator<Item = &'a Keys> + Clone) {
        for Keys { by_client, by_server, .. } in keys.clone() {
            self.clients.prefetch_keys(*by_client);
            self.servers.prefetch_keys(*by_server);
        }
        for Keys { by_client, by_server, .. } in keys {
            self.clients.prefetch_value(*by_client);
            self.servers.prefetch_value(*by_server);
        }
    }

    /// The flow `own` stated a name.
    pub fn add(&mut self, keys: &Keys, own: FlowStart) {
        let (flows, last) = self.clients.entry(keys.by_client);
        *flows += 1;
        last.rotate_right(1);
        last[0] = (own.flow, own.start_ns);
        *self.servers.entry(keys.by_server) |= keys.client;
    }

    /// What is known of a name, without the flow `own`, which stated it as well.
    pub fn get(&self, keys: &Keys, own: Option<u64>) -> Stated {
        let (flows, last) = self.clients.get(keys.by_client).unwrap_or_default();
        let by_client = flows.saturating_sub(u64::from(own.is_some()));
        let mut stated = Stated { by_client, ..Stated::default() };
        let used = (flows as usize).min(LAST_MAX);
        for ((flow, start_ns), place) in last[..used].iter().copied().zip(&mut stated.last) {
            *place = (Some(flow) != own).then_some(FlowStart { flow, start_ns });
        }
        let others = self.servers.get(keys.by_server).unwrap_or_default() & !keys.client;
        stated.by_others = others.count_ones() as u8;
        stated
    }
}

/// A table of sets, see the module. Keys are apart from values: most candidates of a choice were stated by nobody, and
/// only their keys are read. Those of a set are in order, the newest first; the lowest bits of each say which value is
/// its, so that values stay where they are. The key 0 marks a free entry, so a name with this hash is not remembered
/// well.
struct Sets<T> {
    keys: Vec<[u64; WAYS]>,
    values: Vec<[T; WAYS]>,
}

impl<T: Copy + Default> Sets<T> {
    /// The bits of a key that say which value is its.
    const PLACE: u64 = WAYS as u64 - 1;

    fn new(budget_bytes: usize) -> Sets<T> {
        let set_bytes = size_of::<[u64; WAYS]>() + size_of::<[T; WAYS]>();
        let sets = 1 << (budget_bytes / set_bytes).max(1).ilog2();
        Sets { keys: vec![[0; WAYS]; sets], values: vec![[T::default(); WAYS]; sets] }
    }

    /// The set of a key. The number of sets is a power of two.
    fn set(&self, key: u64) -> usize {
        (key >> WAYS.ilog2()) as usize & (self.keys.len() - 1)
    }

    /// Where the value of a key is in its set.
    fn place(&self, set: usize, key: u64) -> Option<usize> {
        let found = self.keys[set].iter().find(|known| (*known ^ key) & !Self::PLACE == 0);
        found.map(|known| (known & Self::PLACE) as usize)
    }

    /// The place that a new key of a set takes.
    fn next_place(&self, set: usize) -> usize {
        let keys = &self.keys[set];
        match keys[WAYS - 1] {
            0 => keys.iter().filter(|key| **key != 0).count(),
            oldest => (oldest & Self::PLACE) as usize,
        }
    }

    fn prefetch_keys(&self, key: u64) {
        prefetch_slice(&self.keys, self.set(key));
    }

    /// To be called when the keys are at hand.
    fn prefetch_value(&self, key: u64) {
        let set = self.set(key);
        let place = self.place(set, key).unwrap_or_else(|| self.next_place(set));
        prefetch_lines(&self.values[set], place, size_of::<T>().div_ceil(64));
    }

    fn get(&self, key: u64) -> Option<T> {
        let set = self.set(key);
        self.place(set, key).map(|place| self.values[set][place])
    }

    /// The value of a key. A new one displaces the oldest of its set.
    fn entry(&mut self, key: u64) -> &mut T {
        let set = self.set(key);
        let place = self.place(set, key).unwrap_or_else(|| {
            let place = self.next_place(set);
            self.keys[set].rotate_right(1);
            self.keys[set][0] = key & !Self::PLACE | place as u64;
            self.values[set][place] = T::default();
            place
        });
        &mut self.values[set][place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: &[u8] = b"www.shop.example";

    fn keys(client: u8, server: u8, name: &[u8]) -> Keys {
        let hashes = Hashes::new(7);
        let addr = |last| Addr::v4([10, 0, 0, last]);
        let name = Name::from_canonical(name);
        Parties::of(&hashes, Scope::NONE, addr(client), (addr(server), 443)).keys(&hashes, &name)
    }

    fn start(flow: u64) -> FlowStart {
        FlowStart { flow, start_ns: flow as i64 }
    }

    /// A client's flows count for itself, at any server; other clients count once each, at the server.
    #[test]
    fn statements_count_by_client_and_server() {
        let mut usage = Usage::new(1 << 20);
        for flow in 1..=3 {
            usage.add(&keys(1, 200, SHOP), start(flow));
        }
        let own = usage.get(&keys(1, 200, SHOP), None);
        assert_eq!((own.by_client, own.by_others), (3, 0));
        assert_eq!(own.last, [Some(start(3)), Some(start(2)), Some(start(1)), None]);
        let elsewhere = usage.get(&keys(1, 201, SHOP), None);
        assert_eq!((elsewhere.by_client, elsewhere.by_others), (3, 0));
        let other = usage.get(&keys(2, 200, SHOP), None);
        assert_eq!((other.by_client, other.by_others), (0, 1));
        assert_eq!(usage.get(&keys(2, 201, SHOP), None), Stated::default());
        assert_eq!(usage.get(&keys(1, 200, b"x.example"), None), Stated::default());
    }

    /// A flow that is judged is left out, also when its client stated the name in more flows than are kept.
    #[test]
    fn the_own_flow_is_left_out() {
        let mut usage = Usage::new(1 << 20);
        for flow in 1..=6 {
            usage.add(&keys(1, 200, SHOP), start(flow));
        }
        let without = usage.get(&keys(1, 200, SHOP), Some(5));
        assert_eq!(without.by_client, 5);
        assert_eq!(without.last, [Some(start(6)), None, Some(start(4)), Some(start(3))]);
        assert_eq!(usage.get(&keys(1, 200, SHOP), Some(1)).by_client, 5);
    }

    /// In the smallest table the oldest entries make room, and the newest are kept.
    #[test]
    fn the_oldest_is_forgotten() {
        let mut usage = Usage::new(0);
        for client in 1..=WAYS as u8 + 1 {
            usage.add(&keys(client, 200, SHOP), start(u64::from(client)));
        }
        let flows = |client| usage.get(&keys(client, 200, SHOP), None).by_client;
        assert_eq!([1, 2, WAYS as u8 + 1].map(flows), [0, 1, 1]);
    }
}
