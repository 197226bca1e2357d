//! The policies once more, slowly and obviously, and a driver that runs both and compares every eviction.

use std::collections::{HashMap, HashSet};

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

/// Entries by number: their keys, and which have ended.
#[derive(Default)]
struct Table {
    keys: HashMap<EntryNumber, u64>,
    ended: HashSet<EntryNumber>,
}

impl Entries for Table {
    fn is_expired(&self, entry: EntryNumber) -> bool {
        self.ended.contains(&entry)
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

/// Oldest first, `except` apart.
fn oldest(list: &[EntryNumber], except: Option<EntryNumber>) -> Option<EntryNumber> {
    list.iter().copied().find(|&entry| Some(entry) != except)
}

/// All entries in one list, those that leave first coming first.
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

/// What `recycle` keeps, in a list of departures, oldest first.
struct Gone {
    line: u64,
    tag: u64,
    stamp: u64,
    temporary: bool,
    freq: u64,
    epoch: u64,
}

#[derive(Default, Clone, Copy)]
struct Counters {
    referenced: u64,
    freq: u64,
    epoch: u64,
    seq: u64,
}

#[derive(Default)]
struct SlowPartitioned {
    entries_max: u64,
    capacity: u64,
    temporary: Vec<EntryNumber>,
    hot: Vec<EntryNumber>,
    counters: HashMap<EntryNumber, Counters>,
    gone: Vec<Gone>,
    departures: u64,
    stamp: u64,
    entered: u64,
    accesses: u64,
    epoch: u64,
    /// To hot, and with which freq.
    arrival: (bool, u64),
}

impl SlowPartitioned {
    fn new(entries_max: u64) -> Self {
        SlowPartitioned { entries_max, capacity: entries_max, ..Self::default() }
    }

    fn place(&self, key: u64) -> (u64, u64) {
        let lines = (self.entries_max * 9 / 10).max(1).div_ceil(16);
        let line = (u128::from(key) * u128::from(lines)) >> 64;
        (line as u64, (key & 0xffff).max(1))
    }

    fn aged(&self, freq: u64, epoch: u64) -> u64 {
        freq >> ((self.epoch - epoch) % 8)
    }

    fn aged_entry(&self, entry: EntryNumber) -> u64 {
        let Counters { freq, epoch, .. } = self.counters[&entry];
        self.aged(freq, epoch)
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
        self.departures += 32;
        self.stamp += self.departures / kept;
        self.departures %= kept;
        let (line, tag) = self.place(entries.key(entry));
        if self.gone.iter().filter(|gone| gone.line == line).count() == 16 {
            let oldest = self.gone.iter().position(|gone| gone.line == line).unwrap();
            self.gone.remove(oldest);
        }
        let freq = self.aged_entry(entry);
        let temporary = take(&mut self.temporary, entry);
        let (stamp, epoch) = (self.stamp, self.epoch);
        self.gone.push(Gone { line, tag, stamp, temporary, freq, epoch });
        take(&mut self.hot, entry);
        self.counters.remove(&entry);
        Some(entry)
    }

    fn promote(&mut self, entry: EntryNumber) {
        take(&mut self.temporary, entry);
        self.hot.push(entry);
        self.counters.get_mut(&entry).unwrap().referenced = 0;
    }

    fn victim(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        loop {
            let victim = oldest(&self.hot, except)?;
            let counters = self.counters.get_mut(&victim).unwrap();
            if counters.referenced == 0 || entries.is_expired(victim) {
                return Some(victim);
            }
            counters.referenced -= 1;
            take(&mut self.hot, victim);
            self.hot.push(victim);
        }
    }
}

impl Ordered for SlowPartitioned {
    fn order(&self) -> Vec<EntryNumber> {
        [&self.temporary[..], &self.hot].concat()
    }
}

impl Replacement for SlowPartitioned {
    fn len(&self) -> u64 {
        (self.temporary.len() + self.hot.len()) as u64
    }

    fn arriving(&mut self, key: u64) {
        let place = self.place(key);
        let found = self.gone.iter().rposition(|gone| (gone.line, gone.tag) == place);
        self.arrival = match found.filter(|&found| self.stamp - self.gone[found].stamp < 32) {
            None => (false, 1),
            Some(found) => {
                let gone = self.gone.remove(found);
                (gone.temporary, (self.aged(gone.freq, gone.epoch) + 1).min(60))
            }
        };
        self.count_access();
    }

    fn inserted(&mut self, entry: EntryNumber) {
        let (to_hot, freq) = self.arrival;
        self.arrival = (false, 0);
        self.entered += u64::from(!to_hot);
        if to_hot { &mut self.hot } else { &mut self.temporary }.push(entry);
        let counters = Counters { referenced: 0, freq, epoch: self.epoch, seq: self.entered };
        self.counters.insert(entry, counters);
    }

    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }

    fn hit(&mut self, entry: EntryNumber, lag: u64) {
        let old = self.counters[&entry];
        let window = (self.capacity / 10).max(1) / 4 + lag;
        if self.temporary.contains(&entry) && self.entered - old.seq < window {
            return;
        }
        let counters = Counters {
            referenced: (old.referenced + 1).min(3),
            freq: (self.aged(old.freq, old.epoch) + 1).min(60),
            epoch: self.epoch,
            ..old
        };
        self.counters.insert(entry, counters);
        self.count_access();
    }

    fn removed(&mut self, entry: EntryNumber) {
        assert!(take(&mut self.temporary, entry) || take(&mut self.hot, entry));
        self.counters.remove(&entry);
    }

    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        rename(&mut self.temporary, from, to);
        rename(&mut self.hot, from, to);
        let counters = self.counters.remove(&from).unwrap();
        self.counters.insert(to, counters);
    }

    fn evict(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        self.capacity = self.len().max(1);
        let hot_target = self.capacity - (self.capacity / 10).max(1);
        loop {
            let hot_len = self.hot.len() as u64;
            let to_hot = self.arrival.0;
            let candidate = oldest(&self.temporary, except);
            if hot_len > hot_target || candidate.is_none() || (to_hot && hot_len >= hot_target) {
                match self.victim(except, entries) {
                    Some(victim) => return self.depart(victim, entries),
                    None => candidate?,
                };
            }
            let candidate = candidate.unwrap();
            let referenced = self.counters[&candidate].referenced;
            let has_ended = entries.is_expired(candidate);
            if hot_len < hot_target {
                if !has_ended && (referenced > 0 || hot_len == 0) {
                    self.promote(candidate);
                    continue;
                }
                return self.depart(candidate, entries);
            }
            let Some(victim) = self.victim(except, entries) else {
                return self.depart(candidate, entries);
            };
            let is_worth_more =
                referenced >= 2 || self.aged_entry(candidate) > self.aged_entry(victim);
            if is_worth_more && !has_ended {
                self.depart(victim, entries);
                self.promote(candidate);
                return Some(victim);
            }
            return self.depart(candidate, entries);
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
                        Flagged::Leaves => return self.leave(entry),
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

/// Runs random operations on both and compares whom they evict and the order of all that stays.
fn compare<const N: usize, P: Replacement, M: Replacement + Ordered>(
    entries_max: u64,
    seed: u64,
    fast: &mut P,
    lists: impl Fn(&P) -> &super::list::Lists<N>,
    slow: &mut M,
) {
    let mut random = Random(seed);
    let mut table = Table::default();
    let mut numbers: HashMap<u64, EntryNumber> = HashMap::new();
    let mut free: Vec<EntryNumber> = (0..2 * entries_max as u32).collect();
    let mut evicted = 0u64;
    // How many fit follows the sizes of entries in the engine, so it drifts here.
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
                table.ended.remove(&victim);
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
                table.ended.remove(&entry);
                free.push(entry);
            }
            (Some(from), 1) => {
                let to = free.swap_remove(random.below(free.len() as u64) as usize);
                fast.moved(from, to);
                slow.moved(from, to);
                table.keys.remove(&from);
                table.keys.insert(to, key);
                numbers.insert(key, to);
                table.ended.remove(&from);
                free.push(from);
            }
            (Some(entry), 2) => _ = table.ended.insert(entry),
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
            let mut order = Vec::new();
            lists(fast).each(|entry| order.push(entry));
            assert_eq!(order, slow.order(), "seed {seed} step {step}");
        }
    }
    assert!(evicted > 2_000, "{evicted} evictions prove little");
}

const SIZES: [u64; 8] = [1, 2, 3, 7, 30, 41, 150, 600];

/// FIFO and LRU evict as lists do that are searched from end to end.
#[test]
fn lists_follow_their_models() {
    for (seed, size) in SIZES.into_iter().enumerate() {
        let numbers = 2 * size as usize;
        let mut fifo = Fifo::new(numbers).unwrap();
        let mut slow = SlowList::default();
        compare(size, seed as u64, &mut fifo, |fifo| &fifo.lists, &mut slow);
        let mut lru = Lru::new(numbers).unwrap();
        let mut slow = SlowList { renews: true, ..SlowList::default() };
        compare(size, seed as u64, &mut lru, |lru| &lru.lists, &mut slow);
    }
}

/// The partitions evict as the definition says, word for word, at every capacity, with ends of life, updates
/// that need room, and entries taken out in between.
#[test]
fn partitions_follow_their_model() {
    for (seed, size) in SIZES.into_iter().cycle().take(24).enumerate() {
        let mut fast = Partitioned::new(2 * size as usize, size).unwrap();
        let mut slow = SlowPartitioned::new(size);
        compare(size, 100 + seed as u64, &mut fast, |fast| &fast.lists, &mut slow);
    }
}

/// Algorithm 1 evicts as its listing says, whatever its open choices.
#[test]
fn paper_follows_its_model() {
    use {Flagged::*, Promotion::*};
    let mut seed = 200;
    for promotion in [Listing, SecondAccess, ThirdAccess] {
        for flagged in [Leaves, StaysOnce, ToHot, ToRecycle] {
            for borrow in [true, false] {
                for size in [1, 3, 41, 300] {
                    let rules = PaperRules { promotion, flagged, borrow, ..PaperRules::default() };
                    let mut fast = Paper::new(2 * size as usize, size, rules).unwrap();
                    let mut slow = SlowPaper { rules, capacity: size, ..SlowPaper::default() };
                    compare(size, seed, &mut fast, |fast| &fast.lists, &mut slow);
                    seed += 1;
                }
            }
        }
    }
}
