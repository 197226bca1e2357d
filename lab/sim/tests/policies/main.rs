//! Policies against slow and obvious models, against other people's, against the bound, and the contract.

mod bound;
mod contract;
mod models;
mod oracles;
mod paper;

use std::collections::HashMap;

use larder::policy::{Entries, EntryNumber, Replacement};
use larder_sim::policy::{Kind, Visitor};

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Hit,
    /// A miss, which stored the key, and the keys that were evicted for it.
    Miss(Vec<u32>),
}

/// Entries evicted for a new one although there is room, at most.
const SURPLUS_MAX: usize = 2;

/// A cache of keys without values under a policy, one place an entry.
struct Cache<P> {
    policy: P,
    keys: Keys,
    places: HashMap<u32, EntryNumber>,
    free: Vec<EntryNumber>,
}

/// The key at each place, if any.
struct Keys(Vec<Option<u32>>);

impl Entries for Keys {
    fn is_expired(&self, _: EntryNumber) -> bool {
        false
    }

    fn key(&self, entry: EntryNumber) -> u64 {
        mix(self.0[entry as usize].expect("policies ask for entries that there are"))
    }
}

/// No two keys have the same hash.
fn mix(key: u32) -> u64 {
    let word = (u64::from(key) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ word >> 32
}

impl<P: Replacement> Cache<P> {
    fn new(policy: P, capacity: u32) -> Self {
        let keys = Keys(vec![None; capacity as usize]);
        Cache { policy, keys, places: HashMap::new(), free: (0..capacity).rev().collect() }
    }

    fn capacity(&self) -> u64 {
        self.keys.0.len() as u64
    }

    fn get(&mut self, key: u32) -> Step {
        self.request(key, false)
    }

    fn request(&mut self, key: u32, is_set: bool) -> Step {
        if let Some(&place) = self.places.get(&key) {
            if is_set {
                self.policy.updated(place)
            } else {
                self.policy.hit(place, 0)
            }
            return Step::Hit;
        }
        self.policy.arriving(mix(key));
        let mut left = Vec::new();
        if self.policy.len() >= self.capacity() {
            left.push(self.evict(None).expect("a full cache has a victim"));
        }
        for _ in 0..SURPLUS_MAX {
            if self.policy.has_surplus() {
                left.extend(self.evict(None));
            }
        }
        let place = self.free.pop().expect("one left");
        self.policy.inserted(place);
        self.keys.0[place as usize] = Some(key);
        self.places.insert(key, place);
        Step::Miss(left)
    }

    /// The key that left.
    fn evict(&mut self, except: Option<EntryNumber>) -> Option<u32> {
        let place = self.policy.evict(except, &self.keys)?;
        assert_ne!(Some(place), except, "the one excepted left");
        Some(self.vacate(place))
    }

    fn vacate(&mut self, place: EntryNumber) -> u32 {
        let key = self.keys.0[place as usize].take().expect("who leaves was there");
        self.places.remove(&key);
        self.free.push(place);
        key
    }

    fn remove(&mut self, key: u32) {
        if let Some(&place) = self.places.get(&key) {
            self.policy.removed(place);
            self.vacate(place);
        }
    }

    /// Gives a key's entry another place, if there is one.
    fn carry(&mut self, key: u32) {
        if let (Some(from), Some(to)) = (self.places.get_mut(&key), self.free.first_mut()) {
            self.policy.moved(*from, *to);
            self.keys.0[*to as usize] = self.keys.0[*from as usize].take();
            std::mem::swap(from, to);
        }
    }

    fn validate(&self) {
        self.policy.validate().unwrap();
        assert_eq!(self.policy.len(), self.places.len() as u64);
    }
}

/// Does something with a new cache under a policy.
trait Act {
    type Output;
    fn act<P: Replacement>(self, cache: Cache<P>) -> Self::Output;
}

struct Begin<A>(u32, A);

impl<A: Act> Visitor for Begin<A> {
    type Output = A::Output;
    fn visit<P: Replacement + Send>(self, policy: P) -> A::Output {
        self.1.act(Cache::new(policy, self.0))
    }
}

fn with_cache<A: Act>(kind: Kind, capacity: u32, act: A) -> A::Output {
    kind.build(capacity, 1, Begin(capacity, act)).unwrap()
}

/// Hits of a stream of lookups, each of which stores what it misses.
struct Hits<'a>(&'a [u32]);

impl Act for Hits<'_> {
    type Output = u64;
    fn act<P: Replacement>(self, mut cache: Cache<P>) -> u64 {
        let hits = self.0.iter().filter(|&&key| cache.get(key) == Step::Hit).count() as u64;
        cache.validate();
        hits
    }
}

/// A stream of lookups that the same few lines make anywhere (`oracle_libcachesim.py` has them in Python):
/// popular keys are small ones, a third of the time a scan of keys seen once or twice goes on.
fn stream(requests: usize) -> Vec<u32> {
    let mut state = 1u64;
    let mut scan = 10_000;
    let next = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = state >> 33;
        if draw.is_multiple_of(3) {
            scan += 1;
            return scan - (draw >> 2) as u32 % 2 * 700;
        }
        // The product of two even draws: small numbers are much more frequent.
        let (one, other) = (draw >> 3 & 0x3ff, draw >> 13 & 0x3ff);
        ((one * other) >> 8) as u32
    };
    (0..requests).map(next).collect()
}
