//! In-flight fetches: one for all clients that want the same object, on all event loops.
//!
//! ```text
//! join()       no fetch yet: the client starts it; a fetch: the client waits; headers are there: it gets them
//! complete()   once, by the fetch: each client that waits gets the outcome, on its own event loop
//! close()      by the fetch, when the response is stored or will not be
//! ```
//!
//! No client owns a fetch: the one that started it waits like the others, and may disconnect. When
//! no client waits any more, the event loop that fetches gets a message, and may abort the fetch.
//! Between completing and closing the body still arrives; a client that joins then reads it as it
//! arrives.
//!
//! Invariants
//! 1. A key has at most one flight in the table, and a flight is completed once. A flight has at most
//!    two keys.
//! 2. A client that waits gets one outcome, or has disconnected before.
//!
//! Bounds: [`Flights::new`] gets the limit; above it, a client gets its own fetch. Cost: one of
//! `SHARDS` locks for each miss.

use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use foldhash::quality::RandomState;
use foldhash::{HashMap, HashMapExt};
use parking_lot::Mutex;

use crate::answer::Answer;
use crate::key::Key;

const SHARDS: usize = 16;

/// A client that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiter {
    /// The number of its event loop.
    pub loop_number: u32,
    /// Its token there.
    pub client: u64,
}

/// The outcome of a fetch.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// A response for all.
    Answer(Arc<Answer>),
    /// The response is for one client: the others get their own fetches.
    Alone,
    /// The same, because of a field of that client's request. The others look again, unless they
    /// sent such a field too.
    Own,
    /// Another fetch was faster: look for the stored response again.
    Again,
    /// There is no response. Clients get this status code.
    Failed(u16),
    /// An interim response (102, 103) for a client, which waits on.
    Interim(Arc<[u8]>),
}

/// One in-flight fetch.
#[derive(Debug)]
pub struct Flight {
    key: Key,
    /// Its second key.
    alias: OnceLock<Key>,
    /// The event loop that fetches; `None`: for no client in particular.
    home: Option<u32>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Requested(Vec<Waiter>),
    Completed(Outcome),
}

/// How a client joins.
#[derive(Debug)]
pub enum Join {
    /// It waits, and starts this fetch.
    Leads(Arc<Flight>),
    /// It waits.
    Waits(Arc<Flight>),
    /// It gets this now.
    Completed(Outcome),
    /// The table is full: fetch for this client alone.
    Full,
}

/// The clients that still wait after one has disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Others wait, or the fetch is completed, or is for no client in particular.
    Others,
    /// No client waits: this event loop fetches for none.
    Nobody {
        /// Its number.
        home: u32,
    },
}

/// All in-flight fetches.
#[derive(Debug)]
pub struct Flights {
    shards: [Mutex<HashMap<Key, Arc<Flight>>>; SHARDS],
    shard_max: usize,
    /// Seeded at random: an attacker cannot choose URLs that fill one shard.
    hasher: RandomState,
}

impl Flights {
    /// A table for this many fetches.
    pub fn new(flights_max: usize) -> Flights {
        let shards = std::array::from_fn(|_| Mutex::new(HashMap::new()));
        Flights {
            shards,
            shard_max: flights_max.div_ceil(SHARDS).max(1),
            hasher: RandomState::default(),
        }
    }

    fn shard(&self, key: &Key) -> &Mutex<HashMap<Key, Arc<Flight>>> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    /// Joins the fetch for a key, or starts one. Without a waiter it starts one for no client in
    /// particular.
    pub fn join(&self, key: &Key, waiter: Option<Waiter>) -> Join {
        let mut shard = self.shard(key).lock();
        if let Some(flight) = shard.get(key) {
            return flight.join(waiter);
        }
        if shard.len() >= self.shard_max {
            return Join::Full;
        }
        let state = Mutex::new(State::Requested(waiter.into_iter().collect()));
        let home = waiter.map(|it| it.loop_number);
        let flight = Arc::new(Flight { key: *key, alias: OnceLock::new(), home, state });
        shard.insert(*key, flight.clone());
        Join::Leads(flight)
    }

    /// True while there is a fetch for this key.
    pub fn has(&self, key: &Key) -> bool {
        self.shard(key).lock().contains_key(key)
    }

    /// Makes a fetch known by another key too, if that key has none. Its response turned out to be
    /// a variant.
    pub fn also(&self, flight: &Arc<Flight>, key: &Key) {
        let mut shard = self.shard(key).lock();
        if *key != flight.key && !shard.contains_key(key) && flight.alias.set(*key).is_ok() {
            shard.insert(*key, flight.clone());
        }
    }

    /// Takes a fetch out of the table. A later client finds the stored response, or starts another
    /// fetch.
    pub fn close(&self, flight: &Arc<Flight>) {
        for key in [Some(&flight.key), flight.alias.get()].into_iter().flatten() {
            let mut shard = self.shard(key).lock();
            if shard.get(key).is_some_and(|it| Arc::ptr_eq(it, flight)) {
                shard.remove(key);
            }
        }
    }

    /// Takes out a fetch for which no client waits, so that no client can join it. False: a client
    /// waits, or the fetch is completed.
    pub fn give_up(&self, flight: &Arc<Flight>) -> bool {
        let mut shard = self.shard(&flight.key).lock();
        let is_abandoned = flight.is_abandoned();
        // Only a completed fetch has another key.
        if is_abandoned && shard.get(&flight.key).is_some_and(|it| Arc::ptr_eq(it, flight)) {
            shard.remove(&flight.key);
        }
        is_abandoned
    }

    /// Takes the fetch of a key out of the table: its response is outdated. Clients that wait get
    /// it all the same.
    pub fn supersede(&self, key: &Key) {
        self.shard(key).lock().remove(key);
    }

    /// Fetches in the table.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Flight {
    /// Its key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    fn join(self: &Arc<Self>, waiter: Option<Waiter>) -> Join {
        match &mut *self.state.lock() {
            State::Requested(waiters) => {
                waiters.extend(waiter);
                Join::Waits(self.clone())
            }
            State::Completed(outcome) => Join::Completed(outcome.clone()),
        }
    }

    /// A client that waited has disconnected.
    pub fn leave(&self, waiter: Waiter) -> Left {
        if let State::Requested(waiters) = &mut *self.state.lock() {
            waiters.retain(|it| *it != waiter);
            if let Some(home) = self.home.filter(|_| waiters.is_empty()) {
                return Left::Nobody { home };
            }
        }
        Left::Others
    }

    /// True where a client started it and no client waits any more.
    pub fn is_abandoned(&self) -> bool {
        let is_left =
            matches!(&*self.state.lock(), State::Requested(waiters) if waiters.is_empty());
        self.home.is_some() && is_left
    }

    /// Clients that wait.
    pub fn waiting(&self) -> usize {
        match &*self.state.lock() {
            State::Requested(waiters) => waiters.len(),
            State::Completed(_) => 0,
        }
    }

    /// The number of handles of the response's body that the flight itself has, where no client has
    /// the response; `None`: a client waits for it, or has it. After [`Flights::close`] no other
    /// client gets it.
    pub fn body_handles(&self) -> Option<usize> {
        match &*self.state.lock() {
            State::Requested(_) => None,
            State::Completed(Outcome::Answer(answer)) => {
                (Arc::strong_count(answer) == 1).then_some(1)
            }
            State::Completed(_) => Some(0),
        }
    }

    /// Drops the response, and with it the memory of its body. The caller has called
    /// [`Flights::close`] before.
    pub fn let_go(&self) {
        let mut state = self.state.lock();
        if let State::Completed(outcome) = &mut *state {
            *outcome = Outcome::Alone;
        }
    }

    /// Completes it, and returns the clients that get the outcome, in the order in which they
    /// joined. Another call changes nothing.
    pub fn complete(&self, outcome: Outcome) -> Vec<Waiter> {
        let mut state = self.state.lock();
        match &mut *state {
            State::Requested(waiters) => {
                let waiters = std::mem::take(waiters);
                *state = State::Completed(outcome);
                waiters
            }
            State::Completed(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which keys share a shard differs between tables: an attacker that has the program cannot
    /// choose keys that fill one.
    #[test]
    fn shards_are_not_foretold() {
        let [one, other] = [Flights::new(16), Flights::new(16)];
        let at = |flights: &Flights, key: &Key| {
            let shard = flights.shard(key);
            flights.shards.iter().position(|it| std::ptr::eq(it, shard))
        };
        let keys: Vec<Key> = (0..100u8).map(|number| [number; 16]).collect();
        assert!(keys.iter().any(|key| at(&one, key) != at(&other, key)));
    }

    /// A fetch is found by its key and one other, and by no third one. A client that waits at
    /// completion gets the outcome, one that disconnected before does not, and no client gets a
    /// second outcome. Invariants 1 and 2.
    #[test]
    fn completes_once_and_notifies_each_once() {
        let flights = Flights::new(1000);
        let [key, alias, third] = [1, 2, 3].map(|number| [number; 16]);
        let waiter = |client| Waiter { loop_number: 3, client };
        let Join::Leads(flight) = flights.join(&key, Some(waiter(1))) else { panic!("leads") };
        for client in 2..5 {
            assert!(matches!(flights.join(&key, Some(waiter(client))), Join::Waits(_)));
        }
        flight.leave(waiter(2));
        assert_eq!(flight.complete(Outcome::Alone), [waiter(1), waiter(3), waiter(4)]);
        assert_eq!(flight.complete(Outcome::Again), []);
        flights.also(&flight, &alias);
        flights.also(&flight, &third);
        assert!(flights.has(&alias) && !flights.has(&third));
        for key in [&key, &alias] {
            let boarded = flights.join(key, Some(waiter(9)));
            assert!(matches!(boarded, Join::Completed(Outcome::Alone)), "{boarded:?}");
        }
        flights.close(&flight);
        assert!(flights.is_empty());
    }

    /// A fetch can be given up only if a client started it and none waits. It cannot while one
    /// waits, after another has joined, when it is completed, or when it is for no client. A client
    /// that joins afterwards starts another one.
    #[test]
    fn the_deserted_are_given_up() {
        let flights = Flights::new(16);
        let key = Key::default();
        let waiter = |client| Waiter { loop_number: 3, client };
        let leads = |waiter| match flights.join(&key, waiter) {
            Join::Leads(flight) => flight,
            other => panic!("{other:?}"),
        };
        let flight = leads(Some(waiter(1)));
        assert!(!flights.give_up(&flight), "one waits");
        assert!(matches!(flights.join(&key, Some(waiter(2))), Join::Waits(_)));
        assert_eq!(flight.leave(waiter(1)), Left::Others);
        assert_eq!(flight.leave(waiter(2)), Left::Nobody { home: 3 });
        assert!(matches!(flights.join(&key, Some(waiter(4))), Join::Waits(_)));
        assert!(!flights.give_up(&flight), "one came again");
        assert_eq!(flight.leave(waiter(4)), Left::Nobody { home: 3 });
        assert!(flights.give_up(&flight));
        assert!(flights.is_empty());

        let flight = leads(Some(waiter(5)));
        assert_eq!(flight.complete(Outcome::Alone), [waiter(5)]);
        assert_eq!(flight.leave(waiter(5)), Left::Others);
        assert!(!flights.give_up(&flight), "it has landed");
        flights.close(&flight);

        let flight = leads(None);
        assert!(!flights.give_up(&flight), "it is for nobody in particular");
        assert_eq!(flights.len(), 1);
    }
}
