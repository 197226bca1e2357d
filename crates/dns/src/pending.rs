//! Queries in flight: sent to an upstream, without a response yet; and the clients that wait for
//! them.
//!
//! ```text
//! find(key)                     the query in flight with this key, if there is one
//! begin(key, question, state)   a new one; None at the limit
//! join(query, client)           one more client waits for its response; false at a limit
//! next_waiter, end              the clients that wait, in the order of their arrival; then the query is removed
//! ```
//!
//! Identical queries are coalesced: the first is sent, the others wait for its response. The
//! message of each client is stored as it arrived, since each gets a response with its own ID,
//! letter case, flags and EDNS.
//!
//! Bounds: the limits of queries, of all waiting clients, and of those of one query are given at
//! the start. At most [`MESSAGE_BYTES_KEPT`] bytes of memory stay with a slot between two uses. An
//! ID may outlive its query: it has a generation, and an ID of another generation names no query.
//!
//! Cost: a lookup in a hash table by a hash that the caller has, and a slot in each of two slabs.
//! Once the tables have grown, nothing is allocated, except for a message longer than any earlier
//! one in its slot.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes of memory that stay with a slot: most messages are shorter.
pub const MESSAGE_BYTES_KEPT: usize = 512;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// Hashes arrive mixed, and with a secret, so they are used as they are.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only u64 is hashed")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Names a query while it is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QueryId {
    slot: u32,
    generation: u32,
}

/// Generations before the count restarts.
const GENERATIONS: u32 = 1 << 28;

impl QueryId {
    /// Bits of [`QueryId::to_bits`] that are always 0, and that [`QueryId::from_bits`] ignores: the
    /// caller may use them.
    pub const SPARE_BITS: u32 = 4;

    /// The ID as a number.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// The ID of such a number; any other number names no query.
    pub fn from_bits(bits: u64) -> QueryId {
        QueryId { slot: bits as u32, generation: (bits >> 32) as u32 % GENERATIONS }
    }
}

/// Limits of queries in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Queries in flight.
    pub queries_max: u32,
    /// Clients that wait, for all queries together.
    pub waiters_max: u32,
    /// Clients that wait for one query.
    pub waiters_each_max: u32,
}

impl Default for Limits {
    /// 10,000 queries; 30,000 clients, 1,000 of them for one query.
    fn default() -> Limits {
        Limits { queries_max: 10_000, waiters_max: 30_000, waiters_each_max: 1_000 }
    }
}

#[derive(Debug)]
struct Entry<Q> {
    key: Vec<u8>,
    question: Vec<u8>,
    hash: u64,
    generation: u32,
    first: u32,
    last: u32,
    waiters: u32,
    /// The next entry with the same hash, or the next free one.
    next: u32,
    state: Option<Q>,
}

#[derive(Debug)]
struct Waiter<W> {
    who: Option<W>,
    message: Vec<u8>,
    next: u32,
}

/// A query in flight, as [`Pending::get`] returns it.
#[derive(Debug)]
pub struct InFlight<'a, S> {
    /// Its key.
    pub key: &'a [u8],
    /// Name, type and class as sent to the upstream.
    pub question: &'a [u8],
    /// The caller's state.
    pub state: S,
}

/// The queries in flight of a core. `Q` is the caller's state of a query, `W` a client that waits.
#[derive(Debug)]
pub struct Pending<Q, W> {
    limits: Limits,
    by_hash: HashMap<u64, u32, BuildHasherDefault<AsIs>>,
    entries: Vec<Entry<Q>>,
    free_entry: u32,
    waiters: Vec<Waiter<W>>,
    free_waiter: u32,
    in_flight: u32,
    waiting: u32,
}

impl<Q, W> Pending<Q, W> {
    /// No queries yet.
    pub fn new(limits: Limits) -> Pending<Q, W> {
        Pending {
            limits,
            by_hash: HashMap::default(),
            entries: Vec::new(),
            free_entry: NONE,
            waiters: Vec::new(),
            free_waiter: NONE,
            in_flight: 0,
            waiting: 0,
        }
    }

    /// Queries in flight.
    pub fn len(&self) -> usize {
        self.in_flight as usize
    }

    /// True if no query is in flight.
    pub fn is_empty(&self) -> bool {
        self.in_flight == 0
    }

    /// Clients that wait.
    pub fn waiting(&self) -> usize {
        self.waiting as usize
    }

    /// The query in flight with this key, which has this hash.
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<QueryId> {
        let mut slot = *self.by_hash.get(&hash)?;
        while slot != NONE {
            let entry = &self.entries[slot as usize];
            if entry.key == key {
                return Some(QueryId { slot, generation: entry.generation });
            }
            slot = entry.next;
        }
        None
    }

    /// Adds a query that is not in flight yet, without clients. `question` is the question sent to
    /// the upstream. `None` at the limit.
    pub fn begin(&mut self, hash: u64, key: &[u8], question: &[u8], state: Q) -> Option<QueryId> {
        if self.in_flight == self.limits.queries_max {
            return None;
        }
        let slot = match self.free_entry {
            NONE => {
                let entry = Entry {
                    key: Vec::with_capacity(key.len()),
                    question: Vec::with_capacity(question.len()),
                    hash,
                    generation: 0,
                    first: NONE,
                    last: NONE,
                    waiters: 0,
                    next: NONE,
                    state: None,
                };
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
            slot => {
                self.free_entry = self.entries[slot as usize].next;
                slot
            }
        };
        let entry = &mut self.entries[slot as usize];
        entry.key.extend_from_slice(key);
        entry.question.extend_from_slice(question);
        entry.hash = hash;
        entry.state = Some(state);
        entry.next = self.by_hash.insert(hash, slot).unwrap_or(NONE);
        let generation = entry.generation;
        self.in_flight += 1;
        Some(QueryId { slot, generation })
    }

    /// Adds a client that waits, with its message; false at a limit, or if the query has ended.
    pub fn join(&mut self, id: QueryId, who: W, message: &[u8]) -> bool {
        let Limits { waiters_max, waiters_each_max, .. } = self.limits;
        let has_room = self.waiting < waiters_max;
        let Some(entry) = self.entry_mut(id) else { return false };
        if !has_room || entry.waiters == waiters_each_max {
            return false;
        }
        entry.waiters += 1;
        let slot = match self.free_waiter {
            NONE => {
                self.waiters.push(Waiter { who: None, message: Vec::new(), next: NONE });
                self.waiters.len() as u32 - 1
            }
            slot => {
                self.free_waiter = self.waiters[slot as usize].next;
                slot
            }
        };
        let waiter = &mut self.waiters[slot as usize];
        waiter.message.extend_from_slice(message);
        waiter.who = Some(who);
        waiter.next = NONE;
        self.waiting += 1;
        let entry = &mut self.entries[id.slot as usize];
        match entry.last {
            NONE => entry.first = slot,
            last => self.waiters[last as usize].next = slot,
        }
        entry.last = slot;
        true
    }

    /// Removes the client that has waited longest, and moves its message into `message`, whose
    /// memory takes its place. `None` if no client waits.
    pub fn next_waiter(&mut self, id: QueryId, message: &mut Vec<u8>) -> Option<W> {
        let entry = self.entry_mut(id)?;
        let slot = entry.first;
        if slot == NONE {
            return None;
        }
        entry.waiters -= 1;
        let waiter = &mut self.waiters[slot as usize];
        let next = std::mem::replace(&mut waiter.next, self.free_waiter);
        let entry = &mut self.entries[id.slot as usize];
        entry.first = next;
        if next == NONE {
            entry.last = NONE;
        }
        std::mem::swap(&mut waiter.message, message);
        waiter.message.clear();
        waiter.message.shrink_to(MESSAGE_BYTES_KEPT);
        self.free_waiter = slot;
        self.waiting -= 1;
        waiter.who.take()
    }

    /// The query with this ID.
    pub fn get(&self, id: QueryId) -> Option<InFlight<'_, &Q>> {
        let entry = self.entries.get(id.slot as usize)?;
        let state = entry.state.as_ref()?;
        let found = InFlight { key: &entry.key, question: &entry.question, state };
        (entry.generation == id.generation).then_some(found)
    }

    /// Like [`Pending::get`], to change the state.
    pub fn get_mut(&mut self, id: QueryId) -> Option<InFlight<'_, &mut Q>> {
        let entry = self.entry_mut(id)?;
        let state = entry.state.as_mut()?;
        Some(InFlight { key: &entry.key, question: &entry.question, state })
    }

    /// The number of clients that wait for a query.
    pub fn waiters(&self, id: QueryId) -> usize {
        let entry = self.entries.get(id.slot as usize);
        let entry = entry.filter(|entry| entry.generation == id.generation);
        entry.map_or(0, |entry| entry.waiters as usize)
    }

    fn entry_mut(&mut self, id: QueryId) -> Option<&mut Entry<Q>> {
        let entry = self.entries.get_mut(id.slot as usize)?;
        (entry.generation == id.generation && entry.state.is_some()).then_some(entry)
    }

    /// Removes a query and all clients that still wait for it; false if it was not in flight. Its
    /// state is dropped in place: to move it would cost more than the rest of this function.
    pub fn end(&mut self, id: QueryId) -> bool {
        let Some(entry) = self.entry_mut(id) else { return false };
        entry.state = None;
        entry.generation = (entry.generation + 1) % GENERATIONS;
        entry.key.clear();
        entry.question.clear();
        let (hash, next) = (entry.hash, entry.next);
        let (first, last, waiters) = (entry.first, entry.last, entry.waiters);
        (entry.first, entry.last, entry.waiters) = (NONE, NONE, 0);
        let mut each = first;
        while each != NONE {
            let waiter = &mut self.waiters[each as usize];
            waiter.who = None;
            waiter.message.clear();
            waiter.message.shrink_to(MESSAGE_BYTES_KEPT);
            each = waiter.next;
        }
        if last != NONE {
            self.waiters[last as usize].next = self.free_waiter;
            self.free_waiter = first;
        }
        self.waiting -= waiters;
        self.unlink(hash, id.slot, next);
        self.entries[id.slot as usize].next = self.free_entry;
        self.free_entry = id.slot;
        self.in_flight -= 1;
        true
    }

    /// Removes a query from the list of its hash.
    fn unlink(&mut self, hash: u64, slot: u32, next: u32) {
        let Some(head) = self.by_hash.get_mut(&hash) else { return };
        if *head != slot {
            let mut before = *head;
            while self.entries[before as usize].next != slot {
                before = self.entries[before as usize].next;
            }
            self.entries[before as usize].next = next;
        } else if next != NONE {
            *head = next;
        } else {
            self.by_hash.remove(&hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Clients with the same query wait for one query in flight, and are returned in the order of
    /// their arrival.
    #[test]
    fn the_same_is_queried_once() {
        let mut pending: Pending<&str, u32> = Pending::new(Limits::default());
        assert_eq!(pending.find(1, b"key"), None);
        let query = pending.begin(1, b"key", b"sent", "state").unwrap();
        for who in 0..3 {
            assert!(pending.join(query, who, format!("message {who}").as_bytes()));
        }
        assert_eq!(pending.find(1, b"key"), Some(query));
        assert_eq!(pending.find(1, b"another of the same hash"), None);
        let mut message = Vec::new();
        for who in 0..3 {
            assert_eq!(pending.next_waiter(query, &mut message), Some(who));
            assert_eq!(message, format!("message {who}").as_bytes());
            message.clear();
        }
        assert_eq!(pending.next_waiter(query, &mut message), None);
        assert!(pending.end(query));
        assert!(pending.is_empty() && !pending.join(query, 9, b"late"));
        assert!(!pending.end(query), "a handle outlives its question harmlessly");
    }

    /// At each limit nothing is added, and a free slot is used again.
    #[test]
    fn limits() {
        let limits = Limits { queries_max: 2, waiters_max: 3, waiters_each_max: 2 };
        let mut pending: Pending<(), u32> = Pending::new(limits);
        let one = pending.begin(1, b"one", b"", ()).unwrap();
        let two = pending.begin(2, b"two", b"", ()).unwrap();
        assert_eq!(pending.begin(3, b"three", b"", ()), None);
        assert!(pending.join(one, 0, b"") && pending.join(one, 1, b""));
        assert!(!pending.join(one, 2, b""), "too many for one question");
        assert!(pending.join(two, 3, b""));
        assert!(!pending.join(two, 4, b""), "too many of all");
        assert!(pending.end(one));
        assert!(pending.join(two, 5, b"") && pending.begin(3, b"three", b"", ()).is_some());
        assert_eq!((pending.entries.len(), pending.waiters.len()), (2, 3));
    }

    proptest! {
        /// For any sequence of calls, also with few hashes for many keys, the result is that of a
        /// plain map.
        #[test]
        fn as_a_plain_map(steps in proptest::collection::vec((0u8..5, 0u8..12), 1..200)) {
            let limits = Limits { queries_max: 6, waiters_max: 10, waiters_each_max: 4 };
            let mut pending: Pending<u8, usize> = Pending::new(limits);
            let mut model: BTreeMap<u8, (QueryId, Vec<usize>)> = BTreeMap::new();
            let mut message = Vec::new();
            for (step, (what, key)) in steps.into_iter().enumerate() {
                let hash = u64::from(key % 3);
                let waiting: usize = model.values().map(|(_, waiters)| waiters.len()).sum();
                match (what, model.get_mut(&key)) {
                    (0 | 1, None) => {
                        let query = pending.begin(hash, &[key], &[], key);
                        prop_assert_eq!(query.is_some(), model.len() < 6);
                        query.map(|query| model.insert(key, (query, Vec::new())));
                    }
                    (0 | 1, Some((query, waiters))) => {
                        let joined = pending.join(*query, step, &[key]);
                        prop_assert_eq!(joined, waiting < 10 && waiters.len() < 4);
                        waiters.extend(joined.then_some(step));
                    }
                    (2, Some((query, waiters))) if !waiters.is_empty() => {
                        message.clear();
                        prop_assert_eq!(pending.next_waiter(*query, &mut message), Some(waiters.remove(0)));
                        prop_assert_eq!(&message, &[key]);
                    }
                    (3, Some((query, _))) => {
                        prop_assert!(pending.end(*query));
                        model.remove(&key);
                    }
                    _ => {}
                }
                for key in 0..12 {
                    let found = pending.find(u64::from(key % 3), &[key]);
                    prop_assert_eq!(found, model.get(&key).map(|(query, _)| *query));
                }
                prop_assert_eq!(pending.len(), model.len());
                let waiting: usize = model.values().map(|(_, waiters)| waiters.len()).sum();
                prop_assert_eq!(pending.waiting(), waiting);
            }
        }
    }
}
