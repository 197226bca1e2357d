//! W-TinyLFU (Einziger, Friedman, Manes, *TinyLFU: a highly efficient cache admission policy*, ACM Transactions
//! on Storage 2017) with the parameters of Caffeine.
//!
//! `C` is the capacity: a window of 1 %, and main, four fifths of it protected. All three are LRU lists.
//!
//! ```text
//! hit          counted. In probation: to protected, whose oldest go to probation when it is too full.
//!              Else becomes its list's newest
//! x arrives    counted, to the window, whose oldest go to probation when it is too full
//! make room    the candidate is the window's oldest, the victim probation's: the candidate stays if it counts
//!              more, or if it counts above 5 and a draw of 1 in 128 says so; one of them leaves. With no
//!              candidate or no victim there is no comparison; with neither, protected's oldest leaves
//! ```
//!
//! Counts are a [`Sketch`](super::sketch::Sketch)'s, halved every `10 C` increments. Caffeine begins to count
//! when it is half full, we at once; it hashes keys of its own, we take the key's 32 lower bits.
//!
//! The window may adapt (Einziger, Eytan, Friedman, Manes, *Adaptive software cache management*, Middleware
//! 2018): after each `10 C` requests it grows or shrinks by a step, and goes on so while the hit ratio does not
//! fall. A step is `C/16` at first and loses 2 % each time; a change of 5 points in the hit ratio restores it.
//!
//! Bytes: 12 to 20 an entry besides the records.

use larder::Error;
use larder::policy::{Entries, EntryNumber};
use larder_mem::Region;

use super::listed::{Listed, Records, Reference};
use super::sketch::Sketch;
use crate::trace::random::Random;

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Increments until counts are halved and requests until the window adapts, as a multiple of the capacity.
const SAMPLE_CAPACITIES: u64 = 10;
/// A candidate that counts more than this has a chance though its victim counts as much.
const COUNT_WARM: u64 = 5;
/// One in this many.
const CHANCE: u64 = 128;

/// W-TinyLFU. See the source's head for its rules.
pub type WTinyLfu = Listed<Rules, 3>;

/// The rules of [`WTinyLfu`].
#[derive(Debug)]
pub struct Rules {
    /// What the sketch knows each entry by.
    keys: Region<u32>,
    arriving: u32,
    sketch: Sketch,
    generator: Random,
    /// `C`.
    capacity: u64,
    window_max: u64,
    protected_max: u64,
    climber: Option<Climber>,
}

impl WTinyLfu {
    /// For entry numbers below `numbers` and at most as many entries; with a window that adapts if `climbs`.
    pub fn new(numbers: usize, seed: u64, climbs: bool) -> Result<Self, Error> {
        let mut rules = Rules {
            keys: Region::new(numbers).map_err(Error::Memory)?,
            arriving: 0,
            sketch: Sketch::new(numbers)?,
            generator: Random::from_counter(seed),
            capacity: 0,
            window_max: 0,
            protected_max: 0,
            climber: climbs.then(Climber::default),
        };
        rules.resize(numbers as u64);
        Listed::with(numbers, rules)
    }
}

impl Rules {
    /// Divides another capacity, or the same one after the climber moved.
    fn resize(&mut self, capacity: u64) {
        let capacity = capacity.max(1);
        let share = |of: u64, percent: u64| of * percent / 100;
        let main = share(capacity, 99);
        let protected = share(main, 80);
        let moved = self.climber.as_ref().map_or(0.0, |climber| climber.moved * capacity as f64);
        // Between a window of one entry and no protected entry.
        let moved = (moved as i64).clamp(1 - (capacity - main) as i64, protected as i64);
        self.capacity = capacity;
        self.window_max = (capacity - main).saturating_add_signed(moved);
        self.protected_max = protected.saturating_add_signed(-moved);
    }

    /// What protected and the window hold too much goes to probation.
    #[inline]
    fn settle(&self, records: &mut Records<3>) {
        for (list, len_max) in [(PROTECTED, self.protected_max), (WINDOW, self.window_max)] {
            while records.len(list) > len_max
                && let Some(oldest) = records.oldest(list, None)
            {
                records.renew(PROBATION, oldest);
            }
        }
    }

    #[inline]
    fn count(&mut self, records: &mut Records<3>, key: u32, is_hit: bool) {
        let sample = SAMPLE_CAPACITIES * self.capacity;
        self.sketch.increment(key, sample);
        if let Some(climber) = &mut self.climber
            && climber.count(is_hit, sample)
        {
            let window_before = self.window_max;
            self.resize(self.capacity);
            // A larger window takes over what would have left next.
            for _ in window_before..self.window_max {
                let oldest = |list| records.oldest(list, None);
                let Some(entry) = oldest(PROBATION).or_else(|| oldest(PROTECTED)) else { break };
                records.renew(WINDOW, entry);
            }
            self.settle(records);
        }
    }
}

impl Reference<3> for Rules {
    #[inline]
    fn arriving(&mut self, records: &mut Records<3>, key: u64) {
        self.arriving = key as u32;
        self.count(records, self.arriving, false);
    }

    #[inline]
    fn inserted(&mut self, records: &mut Records<3>, entry: EntryNumber) {
        self.keys[entry as usize] = self.arriving;
        records.push(WINDOW, entry);
        self.settle(records);
    }

    #[inline]
    fn hit(&mut self, records: &mut Records<3>, entry: EntryNumber) {
        self.count(records, self.keys[entry as usize], true);
        match records.list(entry) {
            PROBATION => {
                records.renew(PROTECTED, entry);
                self.settle(records);
            }
            list => records.renew(list, entry),
        }
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        self.keys[to as usize] = self.keys[from as usize];
    }

    #[inline]
    fn victim(
        &mut self,
        records: &mut Records<3>,
        except: Option<EntryNumber>,
        _: &impl Entries,
    ) -> Option<EntryNumber> {
        if records.total() != self.capacity {
            self.resize(records.total());
            self.settle(records);
        }
        let candidate = records.oldest(WINDOW, except);
        let victim = records.oldest(PROBATION, except);
        let (Some(candidate), Some(victim)) = (candidate, victim) else {
            return candidate.or(victim).or_else(|| records.oldest(PROTECTED, except));
        };
        let count = |entry: EntryNumber| self.sketch.count(self.keys[entry as usize]);
        let (candidate_count, victim_count) = (count(candidate), count(victim));
        let stays = candidate_count > victim_count
            || (candidate_count > COUNT_WARM && self.generator.below(CHANCE).0 == 0);
        Some(if stays { victim } else { candidate })
    }

    #[inline]
    fn upcoming(&self, records: &Records<3>) -> [Option<EntryNumber>; 2] {
        [records.oldest(WINDOW, None), records.oldest(PROBATION, None)]
    }

    fn validate(&self, records: &Records<3>) -> Result<(), String> {
        for (list, len_max) in [(PROTECTED, self.protected_max), (WINDOW, self.window_max)] {
            if records.len(list) > len_max {
                return Err(format!("list {list} has {}, at most {len_max}", records.len(list)));
            }
        }
        Ok(())
    }
}

/// Looks for the best window, as shares of the capacity and of the requests.
#[derive(Debug)]
struct Climber {
    /// What the window has gained since the beginning.
    moved: f64,
    /// The next step.
    step: f64,
    hit_ratio: f64,
    hits: u64,
    requests: u64,
}

/// The first step, and the change in hit ratio that restores it.
const STEP: f64 = 0.0625;
const RESTART: f64 = 0.05;
const DECAY: f64 = 0.98;

impl Default for Climber {
    fn default() -> Self {
        Climber { moved: 0.0, step: -STEP, hit_ratio: 0.0, hits: 0, requests: 0 }
    }
}

impl Climber {
    /// Counts a request; true when the window has changed.
    #[inline]
    fn count(&mut self, is_hit: bool, sample: u64) -> bool {
        self.hits += u64::from(is_hit);
        self.requests += 1;
        if self.requests < sample {
            return false;
        }
        let hit_ratio = self.hits as f64 / self.requests as f64;
        let change = hit_ratio - self.hit_ratio;
        let step = if change >= 0.0 { self.step } else { -self.step };
        self.step = if change.abs() >= RESTART { STEP.copysign(step) } else { DECAY * step };
        // Neither below no window nor above all that can be protected: it would need as long to come back.
        self.moved = (self.moved + step).clamp(-0.01, 0.79);
        (self.hit_ratio, self.hits, self.requests) = (hit_ratio, 0, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use larder::policy::Replacement;
    use proptest::prelude::*;

    use super::*;

    /// W-TinyLFU asks nothing of entries.
    struct Nothing;

    impl Entries for Nothing {
        fn is_expired(&self, _: EntryNumber) -> bool {
            false
        }

        fn key(&self, _: EntryNumber) -> u64 {
            0
        }
    }

    /// Three vectors of keys, oldest first, and a sketch and a generator of its own.
    struct Model {
        capacity: usize,
        lists: [Vec<u32>; 3],
        sketch: Sketch,
        generator: Random,
    }

    impl Model {
        fn overflow(&mut self, list: usize, len_max: usize) {
            while self.lists[list].len() > len_max {
                let oldest = self.lists[list].remove(0);
                self.lists[PROBATION].push(oldest);
            }
        }

        /// The key that is evicted for a key that misses.
        fn get(&mut self, key: u32) -> Option<u32> {
            let main = self.capacity * 99 / 100;
            self.sketch.increment(key, 10 * self.capacity as u64);
            for list in [WINDOW, PROBATION, PROTECTED] {
                if let Some(position) = self.lists[list].iter().position(|&other| other == key) {
                    self.lists[list].remove(position);
                    self.lists[if list == WINDOW { WINDOW } else { PROTECTED }].push(key);
                    self.overflow(PROTECTED, main * 80 / 100);
                    return None;
                }
            }
            let mut left = None;
            if self.lists.iter().map(Vec::len).sum::<usize>() == self.capacity {
                let [window, probation, protected] = &self.lists;
                let leaves = match (window.first(), probation.first()) {
                    (Some(&candidate), Some(&victim)) => {
                        let candidate_count = self.sketch.count(candidate);
                        let stays = candidate_count > self.sketch.count(victim)
                            || (candidate_count >= 6 && self.generator.below(128).0 == 0);
                        if stays { victim } else { candidate }
                    }
                    (one, other) => *one.or(other).or(protected.first()).unwrap(),
                };
                self.lists.iter_mut().for_each(|list| list.retain(|&other| other != leaves));
                left = Some(leaves);
            }
            self.lists[WINDOW].push(key);
            self.overflow(WINDOW, self.capacity - main);
            left
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// The same keys are evicted as from three plain vectors whose comparisons the same sketch decides; above 100
        /// entries the window has several.
        #[test]
        fn three_vectors_do_the_same(
            draws in prop::collection::vec((0..60u32, 0..60u32), 0..1500),
            capacity in prop_oneof![1..40usize, 150..250usize],
        ) {
            let mut policy = WTinyLfu::new(capacity, 7, false).unwrap();
            let (sketch, generator) = (Sketch::new(capacity).unwrap(), Random::from_counter(7));
            let mut model = Model { capacity, lists: Default::default(), sketch, generator };
            let mut places: Vec<Option<u32>> = vec![None; capacity];
            for (one, other) in draws {
                let key = (one * other).wrapping_mul(0x85eb_ca6b);
                let expected = model.get(key);
                if let Some(place) = places.iter().position(|&at| at == Some(key)) {
                    policy.hit(place as u32, 0);
                    prop_assert_eq!(expected, None);
                    continue;
                }
                policy.arriving(key.into());
                let mut left = None;
                if policy.len() == capacity as u64 {
                    let victim = policy.evict(None, &Nothing).unwrap();
                    left = places[victim as usize].take();
                }
                prop_assert_eq!(left, expected);
                let place = places.iter().position(Option::is_none).unwrap();
                places[place] = Some(key);
                policy.inserted(place as u32);
                policy.validate().unwrap();
            }
        }
    }

    /// The climber goes on while hits become more, turns when they become fewer, and comes to rest.
    #[test]
    fn the_climber_turns() {
        let mut climber = Climber::default();
        let sample = |climber: &mut Climber, hits: u64| {
            let before = climber.moved;
            (0..1000).for_each(|request| _ = climber.count(request < hits, 1000));
            climber.moved - before
        };
        // From a window of 1 % it can only grow, so that it is first held at the edge.
        assert_eq!(sample(&mut climber, 500), -0.01);
        assert!(sample(&mut climber, 400) > 0.0);
        assert!(sample(&mut climber, 600) > 0.0);
        assert!(sample(&mut climber, 500) < 0.0);
        let steps = (0..200).map(|_| sample(&mut climber, 500).abs()).collect::<Vec<_>>();
        assert!(steps[199] < 0.01 && climber.moved <= 0.79, "{steps:?}");
    }
}
