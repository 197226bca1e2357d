//! What is being asked of an origin: one question for all who want the same, on whatever core.
//!
//! ```text
//! join()   nobody asks yet: leads, and starts the fetch     asked already: waits     answered already: joins what comes
//! complete()    once, by the fetch: everybody who waits is told, each on its own loop
//! close()   by the fetch, when what came is kept, or will not be
//! ```
//!
//! A fetch is nobody's: the client that led is one who waits like the others, and may leave. Where nobody waits any more, the loop that
//! fetches is told, and may give the flight up. Between landing and closing the body
//! still comes; who boards then reads it as it does.
//!
//! Invariants
//! 1. A key has one flight in the table at most, and a flight lands once. A flight has two keys at most.
//! 2. Who waits is told once, or left before.
//!
//! Bounds: [`Flights::new`] is told how many; beyond, one asks for himself. Cost: a lock of one of `SHARDS` a miss.

use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use foldhash::quality::RandomState;
use foldhash::{HashMap, HashMapExt};
use parking_lot::Mutex;

use crate::answer::Answer;
use crate::key::Key;

const SHARDS: usize = 16;

/// A client that waits, by its loop and its token there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiter {
    /// Number of the loop.
    pub loop_number: u32,
    /// The client's token there.
    pub client: u64,
}

/// What came of a flight.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// An answer for all.
    Answer(Arc<Answer>),
    /// The answer is one client's own: the others ask for themselves.
    Alone,
    /// The same because of what that client asked: others look again, unless they asked likewise.
    Own,
    /// Somebody was quicker: look once more at what is kept.
    Again,
    /// None, and what a client is told instead: a status code.
    Failed(u16),
    /// A head that says that an answer is on its way (102, 103): octets for a client, who waits on.
    Interim(Arc<[u8]>),
}

/// One question.
#[derive(Debug)]
pub struct Flight {
    key: Key,
    /// Under this it is found too.
    alias: OnceLock<Key>,
    /// The loop that fetches; `None`: it does so for nobody in particular.
    home: Option<u32>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Asked(Vec<Waiter>),
    Completed(Outcome),
}

/// What to do for a client.
#[derive(Debug)]
pub enum Join {
    /// Start the fetch, with this; the client waits for it.
    Leads(Arc<Flight>),
    /// It waits, and is told.
    Waits(Arc<Flight>),
    /// This is the answer.
    Completed(Outcome),
    /// There are too many: ask for this one.
    Full,
}

/// Who is left where a client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Others who wait, or it has landed, or is for nobody in particular.
    Others,
    /// Nobody: the fetch is this loop's.
    Nobody {
        /// Its number.
        home: u32,
    },
}

/// All questions being asked.
#[derive(Debug)]
pub struct Flights {
    shards: [Mutex<HashMap<Key, Arc<Flight>>>; SHARDS],
    shard_max: usize,
    /// Seeded at random: nobody chooses URLs that fill one shard.
    hasher: RandomState,
}

impl Flights {
    /// Room for so many.
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

    /// Wants an answer. Without a waiter: wants it to be fetched, and nobody has to be told.
    pub fn join(&self, key: &Key, waiter: Option<Waiter>) -> Join {
        let mut shard = self.shard(key).lock();
        if let Some(flight) = shard.get(key) {
            return flight.join(waiter);
        }
        if shard.len() >= self.shard_max {
            return Join::Full;
        }
        let state = Mutex::new(State::Asked(waiter.into_iter().collect()));
        let home = waiter.map(|it| it.loop_number);
        let flight = Arc::new(Flight { key: *key, alias: OnceLock::new(), home, state });
        shard.insert(*key, flight.clone());
        Join::Leads(flight)
    }

    /// True where this is being asked.
    pub fn has(&self, key: &Key) -> bool {
        self.shard(key).lock().contains_key(key)
    }

    /// Lets who wants `key` find this flight too, where there is none: when an answer came, it turned out to be a variant.
    pub fn also(&self, flight: &Arc<Flight>, key: &Key) {
        let mut shard = self.shard(key).lock();
        if *key != flight.key && !shard.contains_key(key) && flight.alias.set(*key).is_ok() {
            shard.insert(*key, flight.clone());
        }
    }

    /// Takes a flight out: who comes now finds what was kept, or asks anew.
    pub fn close(&self, flight: &Arc<Flight>) {
        for key in [Some(&flight.key), flight.alias.get()].into_iter().flatten() {
            let mut shard = self.shard(key).lock();
            if shard.get(key).is_some_and(|it| Arc::ptr_eq(it, flight)) {
                shard.remove(key);
            }
        }
    }

    /// Takes out a flight for which nobody waits; false: somebody does, or it has landed. Nobody can board it then.
    pub fn give_up(&self, flight: &Arc<Flight>) -> bool {
        let mut shard = self.shard(&flight.key).lock();
        let is_abandoned = flight.is_abandoned();
        // Only what has landed has another key.
        if is_abandoned && shard.get(&flight.key).is_some_and(|it| Arc::ptr_eq(it, flight)) {
            shard.remove(&flight.key);
        }
        is_abandoned
    }

    /// Takes whatever flight of a key out: what it brings is outdated. Who waits for it gets it all the same.
    pub fn supersede(&self, key: &Key) {
        self.shard(key).lock().remove(key);
    }

    /// Flights in the table.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Flight {
    /// What it is about.
    pub fn key(&self) -> &Key {
        &self.key
    }

    fn join(self: &Arc<Self>, waiter: Option<Waiter>) -> Join {
        match &mut *self.state.lock() {
            State::Asked(waiters) => {
                waiters.extend(waiter);
                Join::Waits(self.clone())
            }
            State::Completed(outcome) => Join::Completed(outcome.clone()),
        }
    }

    /// Who waits leaves.
    pub fn leave(&self, waiter: Waiter) -> Left {
        if let State::Asked(waiters) = &mut *self.state.lock() {
            waiters.retain(|it| *it != waiter);
            if let Some(home) = self.home.filter(|_| waiters.is_empty()) {
                return Left::Nobody { home };
            }
        }
        Left::Others
    }

    /// True where somebody has asked for it, and nobody waits any more.
    pub fn is_abandoned(&self) -> bool {
        let is_left = matches!(&*self.state.lock(), State::Asked(waiters) if waiters.is_empty());
        self.home.is_some() && is_left
    }

    /// Clients that wait.
    pub fn waiting(&self) -> usize {
        match &*self.state.lock() {
            State::Asked(waiters) => waiters.len(),
            State::Completed(_) => 0,
        }
    }

    /// How many handles of its answer's body are the flight's own, where nobody else has its answer; `None`: somebody waits for it, or
    /// has it. After [`Flights::close`] nobody gets it who has not.
    pub fn body_handles(&self) -> Option<usize> {
        match &*self.state.lock() {
            State::Asked(_) => None,
            State::Completed(Outcome::Answer(answer)) => {
                (Arc::strong_count(answer) == 1).then_some(1)
            }
            State::Completed(_) => Some(0),
        }
    }

    /// Lets go of the answer with which it landed, and of the memory of its body. After [`Flights::close`] nobody asks for it.
    pub fn let_go(&self) {
        let mut state = self.state.lock();
        if let State::Completed(outcome) = &mut *state {
            *outcome = Outcome::Alone;
        }
    }

    /// Lands: who is to be told, in the order in which they came. A second landing changes nothing and tells nobody.
    pub fn complete(&self, outcome: Outcome) -> Vec<Waiter> {
        let mut state = self.state.lock();
        match &mut *state {
            State::Asked(waiters) => {
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

    /// Which keys share a shard differs from one table to the next: nobody who knows the program can choose some that fill one.
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

    /// A flight is found under its key and one other, and under no third. Who waits when it lands
    /// is told, who left before is not, and a second landing tells nobody. Invariants 1 and 2.
    #[test]
    fn lands_once_and_tells_each_once() {
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

    /// Only a flight that somebody asked for, and for which nobody waits, can be given up: not while one waits, nor once one came
    /// again, nor when it has landed, nor what was asked for nobody. Who boards after it leads another.
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
