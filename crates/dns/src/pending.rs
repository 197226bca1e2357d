//! Questions that were sent upstream and are not answered yet, and who waits for them.
//!
//! ```text
//! find(key)           the question in flight with this key, if there is one
//! begin(key, sent, state)   a new one, and the question as it is sent; None at the limit
//! join(question, who) one more waits for its answer; false at a limit
//! next_waiter, end    those who wait, in the order in which they came; then the question is forgotten
//! ```
//!
//! Identical questions are merged: the first is sent, the others wait for its answer. What each
//! asked is kept as it came, since each is answered with its own ID, letters, flags and EDNS.
//!
//! Bounds: so many questions, so many waiters of all and of one question, given at the start; at
//! most [`MESSAGE_BYTES_KEPT`] octets of memory stay with a place between its users. A handle
//! outlives its question harmlessly: it has a generation, and one of another generation is no
//! question's.
//!
//! Cost: a look into a hash table by a hash that the caller has, and a place in each of two slabs.
//! Nothing is allocated once the tables have grown, but for octets longer than a place ever held.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Room for octets that stays with a place: most questions have less.
pub const MESSAGE_BYTES_KEPT: usize = 512;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// Hashes come mixed, and with a secret: they are taken as they are.
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

/// Names a question, as long as it is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Question {
    slot: u32,
    generation: u32,
}

/// Generations before they begin again.
const GENERATIONS: u32 = 1 << 28;

impl Question {
    /// Bits of [`Question::to_bits`] that are 0 always, and of [`Question::from_bits`] that do not
    /// matter: they are the caller's.
    pub const SPARE_BITS: u32 = 4;

    /// Both parts in a word, for those who can keep only that.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// What [`Question::to_bits`] made; any other word names no question.
    pub fn from_bits(bits: u64) -> Question {
        Question { slot: bits as u32, generation: (bits >> 32) as u32 % GENERATIONS }
    }
}

/// Limits of what is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Questions at once.
    pub questions_max: u32,
    /// Clients that wait, of all questions together.
    pub waiters_max: u32,
    /// Clients that wait for one question.
    pub waiters_each_max: u32,
}

impl Default for Limits {
    /// 10,000 questions; 30,000 clients, 1,000 of them for one question.
    fn default() -> Limits {
        Limits { questions_max: 10_000, waiters_max: 30_000, waiters_each_max: 1_000 }
    }
}

#[derive(Debug)]
struct Flight<Q> {
    key: Vec<u8>,
    sent: Vec<u8>,
    hash: u64,
    generation: u32,
    first: u32,
    last: u32,
    waiters: u32,
    /// The next with the same hash, or the next free one.
    next: u32,
    state: Option<Q>,
}

#[derive(Debug)]
struct Waiter<W> {
    who: Option<W>,
    message: Vec<u8>,
    next: u32,
}

/// A question in flight, as [`Pending::get`] shows it.
#[derive(Debug)]
pub struct InFlight<'a, S> {
    /// Its key.
    pub key: &'a [u8],
    /// Name, type and class as they are sent.
    pub sent: &'a [u8],
    /// What the caller keeps of it.
    pub state: S,
}

/// The questions in flight of a core: `Q` is what the caller keeps for each, `W` for each client
/// that waits.
#[derive(Debug)]
pub struct Pending<Q, W> {
    limits: Limits,
    by_hash: HashMap<u64, u32, BuildHasherDefault<AsIs>>,
    flights: Vec<Flight<Q>>,
    free_flight: u32,
    waiters: Vec<Waiter<W>>,
    free_waiter: u32,
    in_flight: u32,
    waiting: u32,
}

impl<Q, W> Pending<Q, W> {
    /// Without questions.
    pub fn new(limits: Limits) -> Pending<Q, W> {
        Pending {
            limits,
            by_hash: HashMap::default(),
            flights: Vec::new(),
            free_flight: NONE,
            waiters: Vec::new(),
            free_waiter: NONE,
            in_flight: 0,
            waiting: 0,
        }
    }

    /// Questions in flight.
    pub fn len(&self) -> usize {
        self.in_flight as usize
    }

    /// True where nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.in_flight == 0
    }

    /// Clients that wait.
    pub fn waiting(&self) -> usize {
        self.waiting as usize
    }

    /// The question in flight with this key, whose hash it is.
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<Question> {
        let mut slot = *self.by_hash.get(&hash)?;
        while slot != NONE {
            let flight = &self.flights[slot as usize];
            if flight.key == key {
                return Some(Question { slot, generation: flight.generation });
            }
            slot = flight.next;
        }
        None
    }

    /// A question that is not in flight yet, without waiters; `sent` is what the upstream is asked.
    /// `None` where as many are in flight as may be.
    pub fn begin(&mut self, hash: u64, key: &[u8], sent: &[u8], state: Q) -> Option<Question> {
        if self.in_flight == self.limits.questions_max {
            return None;
        }
        let slot = match self.free_flight {
            NONE => {
                let flight = Flight {
                    key: Vec::with_capacity(key.len()),
                    sent: Vec::with_capacity(sent.len()),
                    hash,
                    generation: 0,
                    first: NONE,
                    last: NONE,
                    waiters: 0,
                    next: NONE,
                    state: None,
                };
                self.flights.push(flight);
                self.flights.len() as u32 - 1
            }
            slot => {
                self.free_flight = self.flights[slot as usize].next;
                slot
            }
        };
        let flight = &mut self.flights[slot as usize];
        flight.key.extend_from_slice(key);
        flight.sent.extend_from_slice(sent);
        flight.hash = hash;
        flight.state = Some(state);
        flight.next = self.by_hash.insert(hash, slot).unwrap_or(NONE);
        let generation = flight.generation;
        self.in_flight += 1;
        Some(Question { slot, generation })
    }

    /// One more client waits, who asked `message`; false where a limit forbids it, or the question
    /// is over.
    pub fn join(&mut self, question: Question, who: W, message: &[u8]) -> bool {
        let Limits { waiters_max, waiters_each_max, .. } = self.limits;
        let has_room = self.waiting < waiters_max;
        let Some(flight) = self.flight_mut(question) else { return false };
        if !has_room || flight.waiters == waiters_each_max {
            return false;
        }
        flight.waiters += 1;
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
        let flight = &mut self.flights[question.slot as usize];
        match flight.last {
            NONE => flight.first = slot,
            last => self.waiters[last as usize].next = slot,
        }
        flight.last = slot;
        true
    }

    /// The first of those who wait, who then waits no longer, and what was asked; `None` when all
    /// are gone. The octets are moved into `message`, whose own memory takes their place.
    pub fn next_waiter(&mut self, question: Question, message: &mut Vec<u8>) -> Option<W> {
        let flight = self.flight_mut(question)?;
        let slot = flight.first;
        if slot == NONE {
            return None;
        }
        flight.waiters -= 1;
        let waiter = &mut self.waiters[slot as usize];
        let next = std::mem::replace(&mut waiter.next, self.free_waiter);
        let flight = &mut self.flights[question.slot as usize];
        flight.first = next;
        if next == NONE {
            flight.last = NONE;
        }
        std::mem::swap(&mut waiter.message, message);
        waiter.message.clear();
        waiter.message.shrink_to(MESSAGE_BYTES_KEPT);
        self.free_waiter = slot;
        self.waiting -= 1;
        waiter.who.take()
    }

    /// A question in flight.
    pub fn get(&self, question: Question) -> Option<InFlight<'_, &Q>> {
        let flight = self.flights.get(question.slot as usize)?;
        let state = flight.state.as_ref()?;
        let found = InFlight { key: &flight.key, sent: &flight.sent, state };
        (flight.generation == question.generation).then_some(found)
    }

    /// As [`Pending::get`], to change the state.
    pub fn get_mut(&mut self, question: Question) -> Option<InFlight<'_, &mut Q>> {
        let flight = self.flight_mut(question)?;
        let state = flight.state.as_mut()?;
        Some(InFlight { key: &flight.key, sent: &flight.sent, state })
    }

    /// How many wait for a question.
    pub fn waiters(&self, question: Question) -> usize {
        let flight = self.flights.get(question.slot as usize);
        let flight = flight.filter(|flight| flight.generation == question.generation);
        flight.map_or(0, |flight| flight.waiters as usize)
    }

    fn flight_mut(&mut self, question: Question) -> Option<&mut Flight<Q>> {
        let flight = self.flights.get_mut(question.slot as usize)?;
        (flight.generation == question.generation && flight.state.is_some()).then_some(flight)
    }

    /// Forgets a question and whoever still waits for it; false where it was not in flight. Its
    /// state is dropped where it lies: to move it would cost more than all else here.
    pub fn end(&mut self, question: Question) -> bool {
        let Some(flight) = self.flight_mut(question) else { return false };
        flight.state = None;
        flight.generation = (flight.generation + 1) % GENERATIONS;
        flight.key.clear();
        flight.sent.clear();
        let (hash, next) = (flight.hash, flight.next);
        let (first, last, waiters) = (flight.first, flight.last, flight.waiters);
        (flight.first, flight.last, flight.waiters) = (NONE, NONE, 0);
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
        self.unlink(hash, question.slot, next);
        self.flights[question.slot as usize].next = self.free_flight;
        self.free_flight = question.slot;
        self.in_flight -= 1;
        true
    }

    /// Takes a question out of those of its hash.
    fn unlink(&mut self, hash: u64, slot: u32, next: u32) {
        let Some(head) = self.by_hash.get_mut(&hash) else { return };
        if *head != slot {
            let mut before = *head;
            while self.flights[before as usize].next != slot {
                before = self.flights[before as usize].next;
            }
            self.flights[before as usize].next = next;
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

    /// Those who ask the same wait for one question and are told in the order in which they came.
    #[test]
    fn the_same_is_asked_once() {
        let mut pending: Pending<&str, u32> = Pending::new(Limits::default());
        assert_eq!(pending.find(1, b"key"), None);
        let question = pending.begin(1, b"key", b"sent", "state").unwrap();
        for who in 0..3 {
            assert!(pending.join(question, who, format!("message {who}").as_bytes()));
        }
        assert_eq!(pending.find(1, b"key"), Some(question));
        assert_eq!(pending.find(1, b"another of the same hash"), None);
        let mut message = Vec::new();
        for who in 0..3 {
            assert_eq!(pending.next_waiter(question, &mut message), Some(who));
            assert_eq!(message, format!("message {who}").as_bytes());
            message.clear();
        }
        assert_eq!(pending.next_waiter(question, &mut message), None);
        assert!(pending.end(question));
        assert!(pending.is_empty() && !pending.join(question, 9, b"late"));
        assert!(!pending.end(question), "a handle outlives its question harmlessly");
    }

    /// At each of its limits nothing is taken in, and a place that becomes free is used again.
    #[test]
    fn limits() {
        let limits = Limits { questions_max: 2, waiters_max: 3, waiters_each_max: 2 };
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
        assert_eq!((pending.flights.len(), pending.waiters.len()), (2, 3));
    }

    proptest! {
        /// Whatever is begun, joined and ended, also with few hashes for many keys, what is found
        /// is what a plain map would find.
        #[test]
        fn as_a_plain_map(steps in proptest::collection::vec((0u8..5, 0u8..12), 1..200)) {
            let limits = Limits { questions_max: 6, waiters_max: 10, waiters_each_max: 4 };
            let mut pending: Pending<u8, usize> = Pending::new(limits);
            let mut model: BTreeMap<u8, (Question, Vec<usize>)> = BTreeMap::new();
            let mut message = Vec::new();
            for (step, (what, key)) in steps.into_iter().enumerate() {
                let hash = u64::from(key % 3);
                let waiting: usize = model.values().map(|(_, waiters)| waiters.len()).sum();
                match (what, model.get_mut(&key)) {
                    (0 | 1, None) => {
                        let question = pending.begin(hash, &[key], &[], key);
                        prop_assert_eq!(question.is_some(), model.len() < 6);
                        question.map(|question| model.insert(key, (question, Vec::new())));
                    }
                    (0 | 1, Some((question, waiters))) => {
                        let joined = pending.join(*question, step, &[key]);
                        prop_assert_eq!(joined, waiting < 10 && waiters.len() < 4);
                        waiters.extend(joined.then_some(step));
                    }
                    (2, Some((question, waiters))) if !waiters.is_empty() => {
                        message.clear();
                        prop_assert_eq!(pending.next_waiter(*question, &mut message), Some(waiters.remove(0)));
                        prop_assert_eq!(&message, &[key]);
                    }
                    (3, Some((question, _))) => {
                        prop_assert!(pending.end(*question));
                        model.remove(&key);
                    }
                    _ => {}
                }
                for key in 0..12 {
                    let found = pending.find(u64::from(key % 3), &[key]);
                    prop_assert_eq!(found, model.get(&key).map(|(question, _)| *question));
                }
                prop_assert_eq!(pending.len(), model.len());
                let waiting: usize = model.values().map(|(_, waiters)| waiters.len()).sum();
                prop_assert_eq!(pending.waiting(), waiting);
            }
        }
    }
}
