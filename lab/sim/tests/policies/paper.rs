//! Algorithm 1 of the paper, with every choice that it leaves open, next to three lists of keys that are searched
//! from end to end, written from the listing and not from the policy.

use std::collections::HashSet;

use larder::policy::Replacement;
use larder_sim::policy::{Flagged, Kind, PaperRules, Promotion};
use larder_testkit::random::Random;

use super::models::{Model, Queue, take};
use super::{Act, Cache, SURPLUS_MAX, Step, with_cache};

#[derive(Default)]
struct Paper {
    rules: PaperRules,
    entries_max: u64,
    /// Of which the partitions are shares.
    capacity: u64,
    recycle: Queue,
    temporary: Queue,
    hot: Queue,
    flagged: HashSet<u32>,
}

/// The oldest key, other than `except`.
fn oldest(queue: &[u32], except: Option<u32>) -> Option<u32> {
    queue.iter().copied().find(|&key| Some(key) != except)
}

impl Paper {
    fn len(&self) -> u64 {
        (self.recycle.len() + self.temporary.len() + self.hot.len()) as u64
    }

    fn share(&self, percent: u8) -> u64 {
        (self.capacity * u64::from(percent) / 100).max(1)
    }

    fn hot_target(&self) -> u64 {
        let others =
            self.share(self.rules.temporary_percent) + self.share(self.rules.recycle_percent);
        self.capacity.saturating_sub(others).max(1)
    }

    fn temporary_is_full(&self) -> bool {
        self.temporary.len() as u64 >= self.share(self.rules.temporary_percent)
    }

    fn recycle_is_over(&self) -> bool {
        self.recycle.len() as u64 > self.share(self.rules.recycle_percent)
    }

    fn has_surplus(&self) -> bool {
        !self.rules.borrow && (self.temporary_is_full() || self.recycle_is_over())
    }

    fn heat(&mut self, key: u32) {
        self.remove(key);
        self.hot.push(key);
        if !self.rules.borrow && self.hot.len() as u64 > self.hot_target() {
            self.recycle.push(self.hot.remove(0));
        }
    }

    fn access(&mut self, key: u32, is_set: bool) {
        if self.hot.contains(&key) {
            return;
        }
        let second = match self.rules.promotion {
            Promotion::Listing => is_set,
            Promotion::SecondAccess => false,
            Promotion::ThirdAccess => true,
        };
        if !(second && self.temporary.contains(&key) && self.flagged.insert(key)) {
            self.heat(key);
        }
    }

    fn leave(&mut self, key: u32) -> Option<u32> {
        self.remove(key);
        Some(key)
    }

    fn evict(&mut self, except: Option<u32>) -> Option<u32> {
        if self.rules.borrow {
            self.capacity = self.len();
        }
        loop {
            let hot_is_over = self.hot.len() as u64 > self.hot_target();
            match (oldest(&self.temporary, except), oldest(&self.hot, except)) {
                (Some(key), _)
                    if self.temporary_is_full()
                        && (self.rules.borrow || !self.recycle_is_over()) =>
                {
                    if !self.flagged.remove(&key) {
                        return self.leave(key);
                    }
                    match self.rules.flagged {
                        Flagged::Evicted => return self.leave(key),
                        Flagged::ToHot => self.heat(key),
                        Flagged::StaysOnce => {
                            self.remove(key);
                            self.temporary.push(key);
                        }
                        Flagged::ToRecycle => {
                            self.remove(key);
                            self.recycle.push(key);
                        }
                    }
                }
                (_, Some(key)) if hot_is_over => {
                    self.remove(key);
                    self.recycle.push(key);
                }
                (temporary, hot) => {
                    return self.leave(oldest(&self.recycle, except).or(temporary).or(hot)?);
                }
            }
        }
    }
}

impl Model for Paper {
    fn request(&mut self, key: u32, is_set: bool) -> Step {
        if [&self.recycle, &self.temporary, &self.hot].iter().any(|queue| queue.contains(&key)) {
            self.access(key, is_set);
            return Step::Hit;
        }
        let mut left = Vec::new();
        if self.len() >= self.entries_max {
            left.extend(self.evict(None));
        }
        for _ in 0..SURPLUS_MAX {
            if self.has_surplus() {
                left.extend(self.evict(None));
            }
        }
        self.temporary.push(key);
        Step::Miss(left)
    }

    fn remove(&mut self, key: u32) {
        self.flagged.remove(&key);
        for queue in [&mut self.recycle, &mut self.temporary, &mut self.hot] {
            take(queue, key);
        }
    }
}

/// Random operations from a seed: popular keys, others that drift, removals, entries that get another place, and
/// updates that need room.
struct Compare(Paper, u64);

impl Act for Compare {
    type Output = u64;
    fn act<P: Replacement>(self, mut cache: Cache<P>) -> u64 {
        let Compare(mut model, seed) = self;
        let mut random = Random(seed);
        let mut evicted = 0;
        for step in 0..20_000u32 {
            let most = cache.capacity();
            let span = if random.below(3) == 0 { most / 2 } else { most * 4 };
            let key = random.below(1 + span) as u32 + step / 50;
            let place = cache.places.get(&key).copied();
            match (place, random.below(40)) {
                (Some(_), 0) => {
                    cache.remove(key);
                    model.remove(key);
                }
                (Some(_), 1) => cache.carry(key),
                (Some(place), 2 | 3) => {
                    let left = cache.evict(Some(place));
                    assert_eq!(left, model.evict(Some(key)), "seed {seed} step {step}");
                }
                (_, choice) => {
                    let did = cache.request(key, choice < 9);
                    assert_eq!(did, model.request(key, choice < 9), "seed {seed} step {step}");
                    if let Step::Miss(left) = did {
                        evicted += left.len() as u64;
                    }
                }
            }
            if step % 100 == 0 {
                cache.validate();
                assert_eq!(cache.places.len() as u64, model.len());
            }
        }
        evicted
    }
}

/// Algorithm 1 evicts as its listing says, whatever its open choices.
#[test]
fn paper_follows_its_model() {
    use {Flagged::*, Promotion::*};
    let mut seed = 200;
    for promotion in [Listing, SecondAccess, ThirdAccess] {
        for flagged in [Evicted, StaysOnce, ToHot, ToRecycle] {
            for borrow in [true, false] {
                for size in [1, 3, 41, 300] {
                    let rules = PaperRules { promotion, flagged, borrow, ..PaperRules::default() };
                    let entries_max = u64::from(size);
                    let model =
                        Paper { rules, entries_max, capacity: entries_max, ..Paper::default() };
                    let evicted = with_cache(Kind::Paper(rules), size, Compare(model, seed));
                    assert!(evicted > 2_000, "{evicted} evictions prove little");
                    seed += 1;
                }
            }
        }
    }
}
