//! Simple, slow models of the policies, and a driver that compares every eviction of the two.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use larder_testkit::random::Random;

use super::*;

/// Entries by number: their keys, and which have expired.
#[derive(Default)]
struct Table {
    keys: HashMap<EntryNumber, u64>,
    expired: HashSet<EntryNumber>,
}

impl Entries for Table {
    fn is_expired(&self, entry: EntryNumber) -> bool {
        self.expired.contains(&entry)
    }

    fn key(&self, entry: EntryNumber) -> u64 {
        self.keys[&entry]
    }
}

/// All entries, in the policy's order.
trait Ordered {
    fn order(&self) -> Vec<EntryNumber>;
}

/// First in, first out: a list that is searched from end to end.
#[derive(Default)]
struct SlowFifo(Vec<EntryNumber>);

impl Ordered for SlowFifo {
    fn order(&self) -> Vec<EntryNumber> {
        self.0.clone()
    }
}

impl Replacement for SlowFifo {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn inserted(&mut self, entry: EntryNumber) {
        self.0.push(entry);
    }

    fn updated(&mut self, _: EntryNumber) {}

    fn hit(&mut self, _: EntryNumber, _: u64) {}

    fn removed(&mut self, entry: EntryNumber) {
        let place = self.0.iter().position(|&other| other == entry);
        self.0.remove(place.expect("it is there"));
    }

    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        self.0.iter_mut().filter(|entry| **entry == from).for_each(|entry| *entry = to);
    }

    fn evict(&mut self, except: Option<EntryNumber>, _: &impl Entries) -> Option<EntryNumber> {
        let victim = self.0.iter().copied().find(|&entry| Some(entry) != except)?;
        self.removed(victim);
        Some(victim)
    }

    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        [None; 2]
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// An entry of `recycle`, a list of evictions, oldest first.
struct Gone {
    line: u64,
    tag: u64,
    stamp: u64,
    temporary: bool,
    freq: u64,
    epoch: u64,
}

/// The counters of an entry.
#[derive(Clone, Copy)]
struct Counters {
    hot: bool,
    referenced: u64,
    freq: u64,
    epoch: u64,
    /// How many had been inserted into its partition, itself included.
    came: u64,
}

#[derive(Default)]
struct SlowPartitioned {
    entries_max: u64,
    capacity: u64,
    places: u32,
    entries: BTreeMap<EntryNumber, Counters>,
    /// How many were ever inserted into temporary, and into hot.
    came: [u64; 2],
    /// Entries inserted into temporary, with their count; also those that were removed since.
    queue: VecDeque<(EntryNumber, u64)>,
    /// The position of hot's hand.
    hand: u32,
    /// The victim found there.
    found: Option<EntryNumber>,
    /// Candidates that lost since it moved there.
    lost: u64,
    gone: Vec<Gone>,
    departures: u64,
    stamp: u64,
    accesses: u64,
    epoch: u64,
    /// To hot, and with which freq.
    arrival: (bool, u64),
}

impl SlowPartitioned {
    fn new(entries_max: u64) -> Self {
        let places = (2 * entries_max as u32).div_ceil(10) * 10;
        SlowPartitioned { entries_max, capacity: entries_max, places, ..Self::default() }
    }

    fn place(&self, key: u64) -> (u64, u64) {
        let lines = u128::from((self.entries_max * 9 / 10).max(16).div_ceil(21));
        (((u128::from(key) * lines) >> 64) as u64, (key & 0x1fff).max(1))
    }

    fn count(&self, hot: bool) -> u64 {
        self.entries.values().filter(|entry| entry.hot == hot).count() as u64
    }

    fn aged(&self, freq: u64, epoch: u64) -> u64 {
        freq >> ((self.epoch - epoch) % 4)
    }

    fn aged_entry(&self, entry: EntryNumber) -> u64 {
        let Counters { freq, epoch, .. } = self.entries[&entry];
        self.aged(freq, epoch)
    }

    fn queue_max(&self) -> u64 {
        (self.entries_max / 8).max(2)
    }

    /// Units such that twice the most entries of a partition are 256 of them at most.
    fn unit(&self, hot: bool) -> u64 {
        let most = if hot { self.entries_max } else { self.queue_max() };
        ((2 * most).next_power_of_two() / 256).max(1)
    }

    fn age(&self, entry: EntryNumber) -> u64 {
        let Counters { hot, came, .. } = self.entries[&entry];
        let unit = self.unit(hot);
        (self.came[usize::from(hot)] / unit - came / unit) % 256 * unit
    }

    fn is_there(&self, entry: EntryNumber, came: u64) -> bool {
        let unit = self.unit(false);
        let counters = self.entries.get(&entry).filter(|counters| !counters.hot);
        counters.is_some_and(|there| there.came / unit % 256 == came / unit % 256)
    }

    /// The temporary entries, oldest first.
    fn candidates(&self) -> Vec<EntryNumber> {
        let there = self.queue.iter().filter(|&&(entry, came)| self.is_there(entry, came));
        there.map(|&(entry, _)| entry).collect()
    }

    fn make_queue_room(&mut self) {
        self.drop_stale();
        if self.queue.len() as u64 == self.queue_max() {
            let oldest = self.candidates()[0];
            let was_hit = self.entries[&oldest].referenced > 0;
            self.promote(oldest);
            if !was_hit {
                self.entries.get_mut(&oldest).unwrap().freq = 0;
            }
            self.drop_stale();
        }
    }

    fn enqueue(&mut self, entry: EntryNumber) -> u64 {
        self.came[0] += 1;
        self.queue.push_back((entry, self.came[0]));
        self.came[0]
    }

    /// Drops numbers before the first that is not stale.
    fn drop_stale(&mut self) {
        while self.queue.front().is_some_and(|&(entry, came)| !self.is_there(entry, came)) {
            self.queue.pop_front();
        }
    }

    fn count_access(&mut self) {
        self.accesses += 1;
        if self.accesses >= 20 * self.capacity {
            self.accesses = 0;
            self.epoch += 1;
        }
    }

    fn depart(&mut self, entry: EntryNumber, entries: &impl Entries) -> Option<EntryNumber> {
        let kept = (self.capacity * 9 / 10).max(16);
        self.departures += 16;
        self.stamp += self.departures / kept;
        self.departures %= kept;
        let (line, tag) = self.place(entries.key(entry));
        if self.gone.iter().filter(|gone| gone.line == line).count() == 21 {
            let oldest = self.gone.iter().position(|gone| gone.line == line).unwrap();
            self.gone.remove(oldest);
        }
        let freq = self.aged_entry(entry);
        let temporary = !self.entries.remove(&entry).unwrap().hot;
        let (stamp, epoch) = (self.stamp, self.epoch);
        self.gone.push(Gone { line, tag, stamp, temporary, freq, epoch });
        Some(entry)
    }

    fn depart_hot(&mut self, entry: EntryNumber, entries: &impl Entries) -> Option<EntryNumber> {
        self.pass_group();
        self.depart(entry, entries)
    }

    fn depart_beaten(
        &mut self,
        candidate: EntryNumber,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        self.lost += 1;
        if self.lost < 16 {
            return self.depart(candidate, entries);
        }
        match self.found(except).or_else(|| self.weakest(except)) {
            Some(weakest) if entries.is_expired(weakest) => self.depart_hot(weakest, entries),
            _ => {
                self.pass_group();
                self.depart(candidate, entries)
            }
        }
    }

    fn pass_group(&mut self) {
        self.lost = 0;
        self.found = None;
        self.hand = (self.hand + 10) % self.places;
    }

    fn promote(&mut self, entry: EntryNumber) {
        self.came[1] += 1;
        let came = self.came[1];
        let counters = self.entries.get_mut(&entry).unwrap();
        *counters = Counters { hot: true, referenced: 0, came, ..*counters };
    }

    fn candidate(&mut self, except: Option<EntryNumber>) -> Option<EntryNumber> {
        self.drop_stale();
        self.candidates().into_iter().find(|&entry| Some(entry) != except)
    }

    /// Of the hand's group.
    fn weakest(&self, except: Option<EntryNumber>) -> Option<EntryNumber> {
        let group = self.entries.range(self.hand..self.hand + 10);
        let hot: Vec<_> = (group.filter(|&(&entry, at)| at.hot && Some(entry) != except))
            .map(|(&entry, _)| entry)
            .collect();
        let is_weak = |&&entry: &&EntryNumber| {
            self.entries[&entry].referenced == 0 && self.age(entry) >= self.count(true) / 2
        };
        let weakest = (hot.iter().filter(is_weak))
            .min_by_key(|&&entry| (self.aged_entry(entry), Reverse(self.age(entry))));
        let oldest = || hot.iter().min_by_key(|&&entry| Reverse(self.age(entry)));
        weakest.or_else(oldest).copied()
    }

    /// Still hot and without a hit.
    fn found(&self, except: Option<EntryNumber>) -> Option<EntryNumber> {
        let is_idle = |at: &Counters| at.hot && at.referenced == 0;
        let found = self.found.filter(|_| self.found != except)?;
        self.entries.get(&found).is_some_and(is_idle).then_some(found)
    }

    fn victim(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        if let Some(found) = self.found(except) {
            return Some(found);
        }
        let is_hot =
            |&(&entry, counters): &(&EntryNumber, &Counters)| counters.hot && Some(entry) != except;
        if self.entries.iter().find(is_hot).is_none() {
            // The hand went around.
            (self.lost, self.found) = (0, None);
            return None;
        }
        loop {
            if let Some(victim) = self.weakest(except) {
                let counters = self.entries.get_mut(&victim).unwrap();
                if counters.referenced == 0 || entries.is_expired(victim) {
                    self.found = Some(victim);
                    return Some(victim);
                }
                self.came[1] += 1;
                counters.referenced -= 1;
                counters.came = self.came[1];
            }
            self.pass_group();
        }
    }
}

impl Ordered for SlowPartitioned {
    fn order(&self) -> Vec<EntryNumber> {
        self.entries.keys().copied().collect()
    }
}

impl Replacement for SlowPartitioned {
    fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    fn arriving(&mut self, key: u64) {
        let place = self.place(key);
        let found = self.gone.iter().rposition(|gone| (gone.line, gone.tag) == place);
        self.arrival = match found.filter(|&found| self.stamp - self.gone[found].stamp < 16) {
            None => (false, 1),
            Some(found) => {
                let gone = self.gone.remove(found);
                (gone.temporary, (self.aged(gone.freq, gone.epoch) + 1).min(7))
            }
        };
        self.count_access();
    }

    fn inserted(&mut self, entry: EntryNumber) {
        let (hot, freq) = std::mem::take(&mut self.arrival);
        let came = if hot {
            self.came[1] += 1;
            self.came[1]
        } else {
            self.make_queue_room();
            self.enqueue(entry)
        };
        let counters = Counters { hot, referenced: 0, freq, epoch: self.epoch, came };
        self.entries.insert(entry, counters);
    }

    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }

    fn hit(&mut self, entry: EntryNumber, lag: u64) {
        let old = self.entries[&entry];
        let window = (self.capacity / 10).max(1) / 4 + lag;
        if !old.hot && self.age(entry) < window {
            return;
        }
        let counters = Counters {
            referenced: (old.referenced + 1).min(3),
            freq: (self.aged(old.freq, old.epoch) + 1).min(7),
            epoch: self.epoch,
            ..old
        };
        self.entries.insert(entry, counters);
        self.count_access();
    }

    fn removed(&mut self, entry: EntryNumber) {
        assert!(self.entries.remove(&entry).is_some());
    }

    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        let counters = self.entries.remove(&from).unwrap();
        if !counters.hot {
            let unit = self.unit(false);
            let is_it = |&&mut (entry, came): &&mut (EntryNumber, u64)| {
                entry == from && came / unit % 256 == counters.came / unit % 256
            };
            self.queue.iter_mut().find(is_it).unwrap().0 = to;
        }
        self.entries.insert(to, counters);
    }

    fn evict(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        let len = self.len().max(1);
        if len.abs_diff(self.capacity) > self.capacity / 64 {
            self.departures = self.departures.min((len * 9 / 10).max(16) - 1);
            self.capacity = len;
        }
        let hot_target = self.capacity - (self.capacity / 10).max(1);
        loop {
            let hot_len = self.count(true);
            let to_hot = self.arrival.0;
            if (hot_len > hot_target || (to_hot && hot_len >= hot_target))
                && let Some(victim) = self.victim(except, entries)
            {
                return self.depart_hot(victim, entries);
            }
            let Some(candidate) = self.candidate(except) else {
                let victim = self.victim(except, entries)?;
                return self.depart_hot(victim, entries);
            };
            let referenced = self.entries[&candidate].referenced;
            let has_ended = entries.is_expired(candidate);
            if hot_len < hot_target {
                if !has_ended && (referenced > 0 || hot_len == 0) {
                    self.promote(candidate);
                    continue;
                }
                return self.depart_beaten(candidate, except, entries);
            }
            let Some(victim) = self.victim(except, entries) else {
                return self.depart(candidate, entries);
            };
            let is_worth_more =
                referenced >= 2 || self.aged_entry(candidate) > self.aged_entry(victim);
            if is_worth_more && !has_ended {
                self.depart_hot(victim, entries);
                self.promote(candidate);
                return Some(victim);
            }
            return self.depart_beaten(candidate, except, entries);
        }
    }

    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        [None; 2]
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A policy and its model, with the entries that both have.
struct Pair<P, M> {
    fast: P,
    slow: M,
    table: Table,
    numbers: HashMap<u64, EntryNumber>,
    free: Vec<EntryNumber>,
    evicted: u64,
    step: String,
}

impl<P: Replacement, M: Replacement + Ordered> Pair<P, M> {
    /// Takes the entry's key out of the books.
    fn forget(&mut self, entry: EntryNumber) {
        self.numbers.remove(&self.table.keys.remove(&entry).expect("it is there"));
        self.table.expired.remove(&entry);
        self.free.push(entry);
    }

    fn draw_number(&mut self, random: &mut Random) -> EntryNumber {
        self.free.swap_remove(random.index(self.free.len()))
    }

    /// Both evict the same entry, if any.
    fn evict(&mut self, except: Option<EntryNumber>) -> bool {
        let victim = self.fast.evict(except, &self.table);
        assert_eq!(victim, self.slow.evict(except, &self.table), "{}", self.step);
        let Some(victim) = victim else { return false };
        self.forget(victim);
        self.evicted += 1;
        true
    }

    /// One random operation on an entry.
    fn use_entry(&mut self, entry: EntryNumber, key: u64, random: &mut Random) {
        match random.below(40) {
            0 => {
                self.fast.removed(entry);
                self.slow.removed(entry);
                self.forget(entry);
            }
            1 => {
                let to = self.draw_number(random);
                self.fast.moved(entry, to);
                self.slow.moved(entry, to);
                self.forget(entry);
                self.table.keys.insert(to, key);
                self.numbers.insert(key, to);
            }
            2 => _ = self.table.expired.insert(entry),
            3..=8 => {
                if random.below(4) == 0 {
                    self.evict(Some(entry));
                }
                self.fast.updated(entry);
                self.slow.updated(entry);
            }
            _ => {
                let lag = random.below(4) * random.below(3);
                self.fast.hit(entry, lag);
                self.slow.hit(entry, lag);
            }
        }
    }

    /// A new entry, for which room is made.
    fn insert(&mut self, key: u64, limit: u64, random: &mut Random) {
        self.fast.arriving(key);
        self.slow.arriving(key);
        while self.fast.len() >= limit && self.evict(None) {}
        let entry = self.draw_number(random);
        self.table.keys.insert(entry, key);
        self.numbers.insert(key, entry);
        self.fast.inserted(entry);
        self.slow.inserted(entry);
    }
}

/// Runs random operations on both, and compares evictions and the order of all remaining entries.
/// `LARDER_SEED` times 1000 is added to the seed, so that a long run can try others.
fn compare<P: Replacement, M: Replacement + Ordered>(
    entries_max: u64,
    seed: u64,
    fast: P,
    entries: impl Fn(&P) -> Vec<EntryNumber>,
    slow: M,
) {
    let wanted = std::env::var("LARDER_SEED").map(|seed| seed.parse::<u64>().expect("a number"));
    let seed = seed + 1000 * wanted.unwrap_or(0);
    let mut random = Random(seed);
    let mut pair = Pair {
        fast,
        slow,
        table: Table::default(),
        numbers: HashMap::new(),
        free: (0..2 * entries_max as u32).collect(),
        evicted: 0,
        step: String::new(),
    };
    // In the engine the number of entries that fit follows their sizes, so it drifts here.
    let mut limit = entries_max;
    for step in 0..20_000 {
        pair.step = format!("seed {seed} step {step}");
        if step % 500 == 0 {
            limit = entries_max - random.below(1 + entries_max / 3);
        }
        // A few names are popular, and the set of names drifts.
        let span = if random.below(3) == 0 { entries_max / 2 } else { entries_max * 4 };
        let key = Random(random.below(1 + span) + step / 50).next();
        match pair.numbers.get(&key) {
            Some(&entry) => pair.use_entry(entry, key, &mut random),
            None => pair.insert(key, limit, &mut random),
        }
        assert_eq!(pair.fast.len(), pair.slow.len());
        if step % 100 == 0 {
            pair.fast.validate().unwrap_or_else(|wrong| panic!("{}: {wrong}", pair.step));
            assert_eq!(entries(&pair.fast), pair.slow.order(), "{}", pair.step);
        }
    }
    assert!(pair.evicted > 2_000, "{} evictions prove little", pair.evicted);
}

const SIZES: [u64; 8] = [1, 2, 3, 7, 30, 41, 150, 600];

fn each_of(each: impl FnOnce(&mut dyn FnMut(EntryNumber))) -> Vec<EntryNumber> {
    let mut entries = Vec::new();
    each(&mut |entry| entries.push(entry));
    entries
}

/// FIFO evicts as a list that is searched from end to end.
#[test]
fn fifo_follows_its_model() {
    for (seed, size) in SIZES.into_iter().enumerate() {
        let entries = |fifo: &Fifo| each_of(|act| fifo.each(act));
        let fifo = Fifo::new(2 * size as usize).unwrap();
        compare(size, seed as u64, fifo, entries, SlowFifo::default());
    }
}

/// The partitions evict exactly as the definition states, at every capacity, with expiry, updates
/// that need room, and removals in between.
#[test]
fn partitions_follow_their_model() {
    for (seed, size) in SIZES.into_iter().cycle().take(24).enumerate() {
        let entries = |policy: &Partitioned| each_of(|act| policy.states.each(act));
        let policy = Partitioned::new(2 * size as usize, size).unwrap();
        compare(size, 100 + seed as u64, policy, entries, SlowPartitioned::new(size));
    }
}
