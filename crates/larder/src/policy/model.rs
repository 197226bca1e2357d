//! Simple, slow models of the policies, and a driver that compares every eviction of the two.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::*;

/// A small generator: the same numbers from the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mix(self.0)) * u128::from(limit)) >> 64) as u64
    }
}

fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

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

fn take(list: &mut Vec<EntryNumber>, entry: EntryNumber) -> bool {
    let place = list.iter().position(|&other| other == entry);
    place.inspect(|&place| _ = list.remove(place)).is_some()
}

fn rename(list: &mut [EntryNumber], from: EntryNumber, to: EntryNumber) {
    list.iter_mut().filter(|entry| **entry == from).for_each(|entry| *entry = to);
}

/// The oldest entry, other than `except`.
fn oldest(list: &[EntryNumber], except: Option<EntryNumber>) -> Option<EntryNumber> {
    list.iter().copied().find(|&entry| Some(entry) != except)
}

/// All entries, in the policy's order.
trait Ordered {
    fn order(&self) -> Vec<EntryNumber>;
}

#[derive(Default)]
struct SlowList {
    list: Vec<EntryNumber>,
    renews: bool,
}

impl Ordered for SlowList {
    fn order(&self) -> Vec<EntryNumber> {
        self.list.clone()
    }
}

impl Replacement for SlowList {
    fn len(&self) -> u64 {
        self.list.len() as u64
    }

    fn inserted(&mut self, entry: EntryNumber) {
        self.list.push(entry);
    }

    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }

    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        if self.renews {
            take(&mut self.list, entry);
            self.list.push(entry);
        }
    }

    fn removed(&mut self, entry: EntryNumber) {
        assert!(take(&mut self.list, entry));
    }

    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        rename(&mut self.list, from, to);
    }

    fn evict(&mut self, except: Option<EntryNumber>, _: &impl Entries) -> Option<EntryNumber> {
        let victim = oldest(&self.list, except)?;
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

/// What is known of an entry.
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
        let lines = (self.entries_max * 9 / 10).max(1).div_ceil(21);
        let line = (u128::from(key) * u128::from(lines)) >> 64;
        (line as u64, (key & 0x1fff).max(1))
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
        let kept = (self.capacity * 9 / 10).max(1);
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

#[derive(Default)]
struct SlowPaper {
    rules: PaperRules,
    capacity: u64,
    recycle: Vec<EntryNumber>,
    temporary: Vec<EntryNumber>,
    hot: Vec<EntryNumber>,
    flagged: HashSet<EntryNumber>,
}

impl SlowPaper {
    fn share(&self, percent: u8) -> u64 {
        (self.capacity * u64::from(percent) / 100).max(1)
    }

    fn hot_target(&self) -> u64 {
        let others =
            self.share(self.rules.temporary_percent) + self.share(self.rules.recycle_percent);
        self.capacity.saturating_sub(others).max(1)
    }

    fn heat(&mut self, entry: EntryNumber) {
        self.removed(entry);
        self.hot.push(entry);
        if !self.rules.borrow && self.hot.len() as u64 > self.hot_target() {
            self.recycle.push(self.hot.remove(0));
        }
    }

    fn access(&mut self, entry: EntryNumber, is_write: bool) {
        if self.hot.contains(&entry) {
            return;
        }
        let second = match self.rules.promotion {
            Promotion::Listing => is_write,
            Promotion::SecondAccess => false,
            Promotion::ThirdAccess => true,
        };
        if second && self.temporary.contains(&entry) && self.flagged.insert(entry) {
            return;
        }
        self.heat(entry);
    }

    fn leave(&mut self, entry: EntryNumber) -> Option<EntryNumber> {
        self.removed(entry);
        Some(entry)
    }
}

impl Ordered for SlowPaper {
    fn order(&self) -> Vec<EntryNumber> {
        [&self.recycle[..], &self.temporary, &self.hot].concat()
    }
}

impl Replacement for SlowPaper {
    fn len(&self) -> u64 {
        self.order().len() as u64
    }

    fn inserted(&mut self, entry: EntryNumber) {
        self.temporary.push(entry);
    }

    fn updated(&mut self, entry: EntryNumber) {
        self.access(entry, true);
    }

    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        self.access(entry, false);
    }

    fn removed(&mut self, entry: EntryNumber) {
        self.flagged.remove(&entry);
        let lists = [&mut self.recycle, &mut self.temporary, &mut self.hot];
        assert!(lists.into_iter().any(|list| take(list, entry)));
    }

    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        for list in [&mut self.recycle, &mut self.temporary, &mut self.hot] {
            rename(list, from, to);
        }
        if self.flagged.remove(&from) {
            self.flagged.insert(to);
        }
    }

    fn evict(&mut self, except: Option<EntryNumber>, _: &impl Entries) -> Option<EntryNumber> {
        if self.rules.borrow {
            self.capacity = self.len();
        }
        loop {
            let temporary = oldest(&self.temporary, except);
            let temporary_is_full =
                self.temporary.len() as u64 >= self.share(self.rules.temporary_percent);
            let recycle_is_over =
                self.recycle.len() as u64 > self.share(self.rules.recycle_percent);
            let hot_is_over = self.hot.len() as u64 > self.hot_target();
            match (temporary, oldest(&self.hot, except)) {
                (Some(entry), _)
                    if temporary_is_full && (self.rules.borrow || !recycle_is_over) =>
                {
                    if !self.flagged.remove(&entry) {
                        return self.leave(entry);
                    }
                    match self.rules.flagged {
                        Flagged::Evicted => return self.leave(entry),
                        Flagged::ToHot => self.heat(entry),
                        Flagged::StaysOnce => {
                            self.removed(entry);
                            self.temporary.push(entry);
                        }
                        Flagged::ToRecycle => {
                            self.removed(entry);
                            self.recycle.push(entry);
                        }
                    }
                }
                (_, Some(entry)) if hot_is_over => {
                    self.removed(entry);
                    self.recycle.push(entry);
                }
                (temporary, hot) => {
                    return self.leave(oldest(&self.recycle, except).or(temporary).or(hot)?);
                }
            }
        }
    }

    fn has_surplus(&self) -> bool {
        !self.rules.borrow
            && (self.temporary.len() as u64 >= self.share(self.rules.temporary_percent)
                || self.recycle.len() as u64 > self.share(self.rules.recycle_percent))
    }

    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        [None; 2]
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Runs random operations on both, and compares evictions and the order of all remaining entries.
/// `LARDER_SEED` times 1000 is added to the seed, so that a long run can try others.
fn compare<P: Replacement, M: Replacement + Ordered>(
    entries_max: u64,
    seed: u64,
    fast: &mut P,
    entries: impl Fn(&P) -> Vec<EntryNumber>,
    slow: &mut M,
) {
    let wanted = std::env::var("LARDER_SEED").map(|seed| seed.parse::<u64>().expect("a number"));
    let seed = seed + 1000 * wanted.unwrap_or(0);
    let mut random = Random(seed);
    let mut table = Table::default();
    let mut numbers: HashMap<u64, EntryNumber> = HashMap::new();
    let mut free: Vec<EntryNumber> = (0..2 * entries_max as u32).collect();
    let mut evicted = 0u64;
    // In the engine the number of entries that fit follows their sizes, so it drifts here.
    let mut limit = entries_max;
    for step in 0..20_000 {
        if step % 500 == 0 {
            limit = entries_max - random.below(1 + entries_max / 3);
        }
        // A few names are popular, and the set of names drifts.
        let span = if random.below(3) == 0 { entries_max / 2 } else { entries_max * 4 };
        let key = mix(random.below(1 + span) + step / 50);
        let entry = numbers.get(&key).copied();
        let mut evict = |except, fast: &mut P, slow: &mut M| {
            let victim = fast.evict(except, &table);
            assert_eq!(victim, slow.evict(except, &table), "seed {seed} step {step}");
            if let Some(victim) = victim {
                numbers.remove(&table.keys.remove(&victim).unwrap());
                table.expired.remove(&victim);
                free.push(victim);
                evicted += 1;
            }
            victim.is_some()
        };
        match (entry, random.below(40)) {
            (Some(entry), 0) => {
                fast.removed(entry);
                slow.removed(entry);
                numbers.remove(&table.keys.remove(&entry).unwrap());
                table.expired.remove(&entry);
                free.push(entry);
            }
            (Some(from), 1) => {
                let to = free.swap_remove(random.below(free.len() as u64) as usize);
                fast.moved(from, to);
                slow.moved(from, to);
                table.keys.remove(&from);
                table.keys.insert(to, key);
                numbers.insert(key, to);
                table.expired.remove(&from);
                free.push(from);
            }
            (Some(entry), 2) => _ = table.expired.insert(entry),
            (Some(entry), 3..=8) => {
                if random.below(4) == 0 {
                    evict(Some(entry), fast, slow);
                }
                fast.updated(entry);
                slow.updated(entry);
            }
            (Some(entry), _) => {
                let lag = random.below(4) * random.below(3);
                fast.hit(entry, lag);
                slow.hit(entry, lag);
            }
            (None, _) => {
                assert_eq!(fast.has_surplus(), slow.has_surplus(), "seed {seed} step {step}");
                fast.arriving(key);
                slow.arriving(key);
                while fast.len() >= limit && evict(None, fast, slow) {}
                for _ in 0..SURPLUS_MAX {
                    if fast.has_surplus() {
                        evict(None, fast, slow);
                    }
                }
                let entry = free.swap_remove(random.below(free.len() as u64) as usize);
                table.keys.insert(entry, key);
                numbers.insert(key, entry);
                fast.inserted(entry);
                slow.inserted(entry);
            }
        }
        assert_eq!(fast.len(), slow.len());
        if step % 100 == 0 {
            fast.validate().unwrap_or_else(|wrong| panic!("seed {seed} step {step}: {wrong}"));
            assert_eq!(entries(fast), slow.order(), "seed {seed} step {step}");
        }
    }
    assert!(evicted > 2_000, "{evicted} evictions prove little");
}

const SIZES: [u64; 8] = [1, 2, 3, 7, 30, 41, 150, 600];

fn listed<const N: usize>(lists: &super::list::Lists<N>) -> Vec<EntryNumber> {
    let mut entries = Vec::new();
    lists.each(|entry| entries.push(entry));
    entries
}

/// FIFO and LRU evict as lists that are searched from end to end.
#[test]
fn lists_follow_their_models() {
    for (seed, size) in SIZES.into_iter().enumerate() {
        let numbers = 2 * size as usize;
        let mut fifo = Fifo::new(numbers).unwrap();
        let mut slow = SlowList::default();
        compare(size, seed as u64, &mut fifo, |fifo| listed(&fifo.lists), &mut slow);
        let mut lru = Lru::new(numbers).unwrap();
        let mut slow = SlowList { renews: true, ..SlowList::default() };
        compare(size, seed as u64, &mut lru, |lru| listed(&lru.lists), &mut slow);
    }
}

/// The partitions evict as the definition says, word for word, at every capacity, with expiry,
/// updates that need room, and removals in between.
#[test]
fn partitions_follow_their_model() {
    for (seed, size) in SIZES.into_iter().cycle().take(24).enumerate() {
        let mut fast = Partitioned::new(2 * size as usize, size).unwrap();
        let mut slow = SlowPartitioned::new(size);
        let entries = |fast: &Partitioned| {
            let mut entries = Vec::new();
            fast.states.each(|entry| entries.push(entry));
            entries
        };
        compare(size, 100 + seed as u64, &mut fast, entries, &mut slow);
    }
}

/// Algorithm 1 evicts as its listing says, whatever its open choices.
#[test]
fn paper_follows_its_model() {
    use {Flagged::*, Promotion::*};
    let mut seed = 200;
    for promotion in [Listing, SecondAccess, ThirdAccess] {
        for flagged in [Flagged::Evicted, StaysOnce, ToHot, ToRecycle] {
            for borrow in [true, false] {
                for size in [1, 3, 41, 300] {
                    let rules = PaperRules { promotion, flagged, borrow, ..PaperRules::default() };
                    let mut fast = Paper::new(2 * size as usize, size, rules).unwrap();
                    let mut slow = SlowPaper { rules, capacity: size, ..SlowPaper::default() };
                    compare(size, seed, &mut fast, |fast| listed(&fast.lists), &mut slow);
                    seed += 1;
                }
            }
        }
    }
}
