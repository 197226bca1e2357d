//! The partition and state of each entry: a record of two bytes per entry number, and a queue of
//! the few temporary entries.
//!
//! There are no links. A hand that walks the records, as in CLOCK, finds hot's victims. A ring of
//! entry numbers, oldest first, has the temporary ones, with room for an eighth of all entries. A
//! removed entry leaves a stale number in the ring. Its record shows that: it is not temporary, or
//! was inserted at another time. When an entry moves in the index, its number is searched among
//! those of its time. Compared with links this saves nine bytes per entry and some cache lines per
//! insert, and costs no hits (decision 0008).
//!
//! ```text
//! record   hot 1 | ref 2 | freq 3 | epoch 2 | seq 8      0 is absent: the freq of a temporary one is never 0
//! ```
//!
//! `seq` counts the entries inserted into the partition, in units so large that 256 of them are at
//! least twice the entries there can be. Ages are known to a unit and are right up to 255 units. If
//! a stale number meets a new entry of the same unit at the same place, the new one is taken for
//! the old one, and is evicted early by less than a unit.
//!
//! Walks over all entries may be in progress: first the temporary ones by number, then the hot
//! ones. An entry that moves from ahead of a walk to behind it is remembered for it. So a walk
//! misses no entry that stays, but may return one twice.

use std::collections::BTreeSet;
use std::ops::Range;

use larder_mem::{Memory, Region, prefetch_slice};

use super::EntryNumber;
use super::walks::{WalkId, Walks};
use crate::error::Error;

/// Records that are examined together: as many as a bucket of the index has ways.
pub(super) const GROUP: usize = 10;

pub(super) const REF_MAX: u8 = 3;
pub(super) const FREQ_MAX: u8 = 7;
/// Epochs are distinguished modulo this number.
pub(super) const EPOCHS: u8 = 4;

/// The ring has room for this part of all entries.
const RING_SHARE: u64 = 8;

/// Stale numbers passed behind an excepted entry, at most.
const BEHIND_EXCEPT_MAX: usize = 1024;

const SEQ_BITS: u32 = 8;
const HOT: u16 = 1 << 15;
const REFERENCED: u16 = 3 << 13;
const ABSENT: u16 = 0;

/// Neither hot nor absent: a word that is positive.
#[inline]
fn is_temporary(word: u16) -> bool {
    word as i16 > 0
}

/// A freq that was counted in an earlier epoch, as of now.
#[inline]
pub(super) fn aged(freq: u8, epoch: u8, now: u8) -> u8 {
    freq >> (now.wrapping_sub(epoch) % EPOCHS)
}

/// The state of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub hot: bool,
    /// Hits not yet used up, up to [`REF_MAX`].
    pub referenced: u8,
    /// Accesses, up to [`FREQ_MAX`], as of `epoch`. 0 in hot for an entry that was moved there
    /// without a hit.
    pub freq: u8,
    pub epoch: u8,
    /// [`Clock::now`] when it was inserted.
    pub seq: u8,
}

impl Record {
    #[inline]
    fn unpack(word: u16) -> Record {
        Record {
            hot: word & HOT != 0,
            referenced: (word >> 13 & 3) as u8,
            freq: (word >> 10 & 7) as u8,
            epoch: (word >> 8 & 3) as u8,
            seq: word as u8,
        }
    }

    #[inline]
    fn pack(self) -> u16 {
        u16::from(self.hot) << 15
            | u16::from(self.referenced) << 13
            | u16::from(self.freq) << 10
            | u16::from(self.epoch) << 8
            | u16::from(self.seq)
    }
}

/// Counts insertions into a partition, and computes how long ago one was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    came: u64,
    unit_log2: u32,
}

impl Clock {
    /// For a partition of at most `entries_max` entries.
    pub fn new(entries_max: u64) -> Clock {
        let span = (2 * entries_max).max(1).next_power_of_two();
        Clock { came: 0, unit_log2: span.ilog2().saturating_sub(SEQ_BITS) }
    }

    /// Counts an insertion; returns its `seq`.
    #[inline]
    pub fn tick(&mut self) -> u8 {
        self.came += 1;
        self.now()
    }

    /// The present `seq`.
    #[inline]
    pub fn now(&self) -> u8 {
        (self.came >> self.unit_log2) as u8
    }

    /// How many insertions came after the one with this `seq`, to a unit.
    #[inline]
    pub fn since(&self, seq: u8) -> u64 {
        u64::from(self.now().wrapping_sub(seq)) << self.unit_log2
    }

    /// The first and the last insertion of the latest unit with this `seq`.
    #[inline]
    fn unit_of(&self, seq: u8) -> (u64, u64) {
        let unit = (self.came >> self.unit_log2) - u64::from(self.now().wrapping_sub(seq));
        (unit << self.unit_log2, ((unit + 1) << self.unit_log2) - 1)
    }

    /// This many insertions in units, rounded up.
    #[inline]
    pub fn units(&self, arrivals: u64) -> u8 {
        let units = (arrivals + (1 << self.unit_log2) - 1) >> self.unit_log2;
        units.min(u64::from(u8::MAX)) as u8
    }

    /// [`Clock::now`] as of `ago` insertions ago.
    #[inline]
    fn back(&self, ago: u64) -> u8 {
        (self.came.wrapping_sub(ago) >> self.unit_log2) as u8
    }
}

/// The records, the queue, and the number of entries in each partition.
#[derive(Debug)]
pub(super) struct EntryStates {
    /// Whole groups; the last few are always absent.
    records: Region<u16>,
    /// Numbers of temporary entries, and stale ones: `queued` from `oldest` on, around the end.
    ring: Region<u32>,
    oldest: usize,
    queued: usize,
    /// Counts queue insertions: the last one has its present time.
    pub clock: Clock,
    temporary: u64,
    hot: u64,
    walks: Walks<Walk>,
}

/// The position of a walk in progress.
#[derive(Debug, Default)]
struct Walk {
    hot: bool,
    next: usize,
    /// Entries moved from ahead of the walk to behind it.
    aside: BTreeSet<EntryNumber>,
}

impl EntryStates {
    /// For entry numbers below `numbers` and at most `entries_max` entries at once.
    pub fn new(memory: &Memory, numbers: usize, entries_max: u64) -> Result<Self, Error> {
        let ring_len = Self::ring_len(entries_max);
        Ok(EntryStates {
            records: memory.region(Self::count(numbers)).map_err(Error::Memory)?,
            ring: memory.region(ring_len).map_err(Error::Memory)?,
            oldest: 0,
            queued: 0,
            clock: Clock::new(ring_len as u64),
            temporary: 0,
            hot: 0,
            walks: Walks::default(),
        })
    }

    /// Bytes for these numbers.
    pub fn bytes(numbers: usize, entries_max: u64) -> usize {
        Self::count(numbers) * size_of::<u16>() + Self::ring_len(entries_max) * size_of::<u32>()
    }

    fn count(numbers: usize) -> usize {
        numbers.next_multiple_of(GROUP)
    }

    fn ring_len(entries_max: u64) -> usize {
        (entries_max / RING_SHARE).max(2) as usize
    }

    /// The number of records.
    #[inline]
    pub fn numbers(&self) -> usize {
        self.records.len()
    }

    /// Entries in the hot partition.
    #[inline]
    pub fn hot(&self) -> u64 {
        self.hot
    }

    /// Entries in the temporary partition.
    #[inline]
    pub fn temporary(&self) -> u64 {
        self.temporary
    }

    /// The state of an entry that is present.
    #[inline]
    pub fn record(&self, entry: EntryNumber) -> Record {
        Record::unpack(self.records[entry as usize])
    }

    /// The state of an entry that may be absent.
    fn get(&self, place: usize) -> Option<Record> {
        let word = self.records[place];
        (word != ABSENT).then(|| Record::unpack(word))
    }

    /// Changes a record within its partition.
    #[inline]
    pub fn set(&mut self, entry: EntryNumber, record: Record) {
        self.records[entry as usize] = record.pack();
    }

    #[inline]
    fn len(&mut self, hot: bool) -> &mut u64 {
        if hot { &mut self.hot } else { &mut self.temporary }
    }

    /// Adds an entry.
    #[inline]
    pub fn add(&mut self, entry: EntryNumber, record: Record) {
        *self.len(record.hot) += 1;
        self.set(entry, record);
    }

    /// Queues an entry that becomes temporary; returns its `seq`. There must be room: see
    /// [`EntryStates::is_queue_full`].
    #[inline]
    pub fn queue(&mut self, entry: EntryNumber) -> u8 {
        assert!(self.queued < self.ring.len(), "room was made before");
        let at = self.ring_at(self.queued);
        self.ring[at] = entry;
        self.queued += 1;
        self.clock.tick()
    }

    #[inline]
    fn ring_at(&self, nth: usize) -> usize {
        let at = self.oldest + nth;
        if at < self.ring.len() { at } else { at - self.ring.len() }
    }

    /// The `nth` of the queue, if it is not stale.
    #[inline]
    fn queued(&self, nth: usize) -> Option<EntryNumber> {
        let entry = self.ring[self.ring_at(nth)];
        let seq = self.clock.back((self.queued - nth - 1) as u64);
        let word = self.records[entry as usize];
        (is_temporary(word) && word as u8 == seq).then_some(entry)
    }

    /// The position in the ring of an entry, from `near.start` to `near.end` of the queue.
    fn find_queued(&self, near: Range<usize>, entry: EntryNumber) -> Option<usize> {
        let len = self.ring.len();
        let (from, to) = (self.oldest + near.start, self.oldest + near.end);
        // Two stretches, if it goes around the end.
        let stretches = [from.min(len)..to.min(len), from.max(len) - len..to.max(len) - len];
        stretches.into_iter().find_map(|stretch| {
            let places = &self.ring[stretch.clone()];
            // Eight at a time, compared with vector instructions.
            let has_it =
                |eight: &[EntryNumber]| eight.iter().fold(false, |has, &at| has | (at == entry));
            let before = 8 * places.chunks(8).position(has_it)?;
            let within = places[before..].iter().position(|&at| at == entry)?;
            Some(stretch.start + before + within)
        })
    }

    /// True if the queue has no room, not counting stale numbers at its end.
    #[inline]
    pub fn is_queue_full(&mut self) -> bool {
        self.queued == self.ring.len() && {
            self.oldest_temporary(None);
            self.queued == self.ring.len()
        }
    }

    /// The entry that has been temporary longest, other than `except`. Drops stale numbers before
    /// it.
    #[inline]
    pub fn oldest_temporary(&mut self, except: Option<EntryNumber>) -> Option<EntryNumber> {
        while self.queued > 0 {
            match self.queued(0) {
                None => self.forget_oldest(),
                Some(entry) if Some(entry) == except => {
                    let near = self.queued.min(BEHIND_EXCEPT_MAX);
                    let next = (1..near).find_map(|nth| self.queued(nth));
                    if next.is_some() || near == self.queued {
                        return next;
                    }
                    // Only stale numbers are behind it. It is made the youngest, so that they can
                    // be dropped.
                    self.forget_oldest();
                    let (seq, record) = (self.queue(entry), self.record(entry));
                    self.set(entry, Record { seq, ..record });
                }
                entry => return entry,
            }
        }
        None
    }

    /// The entries at the end of the queue, and some places behind. They may be gone: their records
    /// are not read, because that would wait for memory.
    #[inline]
    pub fn upcoming_temporary(&self) -> [Option<EntryNumber>; 2] {
        const BEHIND: usize = 2;
        [0, BEHIND].map(|nth| (nth < self.queued).then(|| self.ring[self.ring_at(nth)]))
    }

    /// Removes an entry; returns its state.
    #[inline]
    pub fn take(&mut self, entry: EntryNumber) -> Record {
        let record = self.record(entry);
        *self.len(record.hot) -= 1;
        self.records[entry as usize] = ABSENT;
        // Most often it is the oldest. Then the next one moves to the end, where it can be
        // prefetched.
        if self.queued > 0 && self.ring[self.oldest] == entry {
            self.forget_oldest();
        }
        record
    }

    #[inline]
    fn forget_oldest(&mut self) {
        self.oldest = self.ring_at(1);
        self.queued -= 1;
    }

    /// Moves an entry to another number. A temporary one's number is searched among those of its
    /// unit.
    pub fn rename(&mut self, from: EntryNumber, to: EntryNumber) {
        let word = std::mem::replace(&mut self.records[from as usize], ABSENT);
        self.records[to as usize] = word;
        if is_temporary(word) {
            let (first, last) = self.clock.unit_of(word as u8);
            let oldest = self.clock.came - self.queued as u64 + 1;
            let near = first.saturating_sub(oldest) as usize
                ..((last + 1).saturating_sub(oldest) as usize).min(self.queued);
            let found = self.find_queued(near, from);
            self.ring[found.expect("a temporary entry is in the ring")] = to;
        }
        for walk in self.walks.each() {
            let met_later = walk.aside.remove(&from)
                || ((word & HOT != 0) == walk.hot && from as usize >= walk.next);
            if met_later && (to as usize) < walk.next {
                walk.aside.insert(to);
            }
        }
    }

    /// Of the hot entries in the group that begins at `start`, the one to evict first. Of those
    /// inserted `old` units ago or more with ref 0, that is the one of least freq, then the oldest.
    /// If there is none, it is the oldest of all.
    #[inline]
    pub fn weakest(
        &self,
        start: usize,
        (now, old, epoch): (u8, u8, u8),
        except: Option<EntryNumber>,
    ) -> Option<EntryNumber> {
        let words = self.records[start..].first_chunk::<GROUP>()?;
        // One number for each, the least of which wins. There are no branches, so all are compared
        // together.
        let mut least = u32::MAX;
        for (at, &word) in words.iter().enumerate() {
            let Record { hot, referenced, freq, epoch: of, seq } = Record::unpack(word);
            let age = now.wrapping_sub(seq);
            let class =
                if referenced == 0 && age >= old { aged(freq, of, epoch) } else { FREQ_MAX + 1 };
            let number = u32::from(class) << 16 | u32::from(u8::MAX - age) << 8 | at as u32;
            let is_other = except != Some((start + at) as EntryNumber);
            least = least.min(if hot && is_other { number } else { u32::MAX });
        }
        (least != u32::MAX).then(|| start as EntryNumber + (least & 0xff))
    }

    /// True for a hot entry without unused hits.
    #[inline]
    pub fn is_idle_hot(&self, entry: EntryNumber) -> bool {
        self.records[entry as usize] & (HOT | REFERENCED) == HOT
    }

    /// Prefetches a record.
    #[inline]
    pub fn prefetch(&self, place: usize) {
        prefetch_slice(&self.records, place);
    }

    /// Begins a walk.
    pub fn walk_start(&mut self) -> WalkId {
        self.walks.start(Walk::default())
    }

    /// Ends a walk, and drops the data recorded for it.
    pub fn walk_end(&mut self, walk: WalkId) {
        self.walks.end(walk);
    }

    /// The walk's next entry.
    pub fn walk_next(&mut self, walk: WalkId) -> Option<EntryNumber> {
        let walk = self.walks.place(walk)?;
        while let Some(entry) = walk.aside.pop_first() {
            if self.records[entry as usize] != ABSENT {
                return Some(entry);
            }
        }
        loop {
            let rest = &self.records[walk.next..];
            let is_wanted = |&word: &u16| word != ABSENT && (word & HOT != 0) == walk.hot;
            if let Some(ahead) = rest.iter().position(is_wanted) {
                let entry = walk.next + ahead;
                walk.next = entry + 1;
                return Some(entry as EntryNumber);
            }
            if walk.hot {
                walk.next = self.records.len();
                return None;
            }
            *walk = Walk { hot: true, ..Walk::default() };
        }
    }

    /// Calls `act` with every entry.
    pub fn each(&self, act: impl FnMut(EntryNumber)) {
        let places = self.records.iter().zip(0..);
        places.filter(|&(&word, _)| word != ABSENT).map(|(_, place)| place).for_each(act)
    }

    /// Checks every record; `Err` states what is wrong.
    pub fn validate(&self) -> Result<(), String> {
        let (mut temporary, mut hot) = (0, 0);
        for (place, record) in (0..self.numbers()).filter_map(|at| Some((at, self.get(at)?))) {
            if record.freq == 0 && !record.hot {
                return Err(format!("place {place} has {record:?}"));
            }
            *if record.hot { &mut hot } else { &mut temporary } += 1;
        }
        if (temporary, hot) != (self.temporary, self.hot) {
            return Err(format!("{temporary} temporary, {hot} hot; counted {self:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record has the same fields after packing into two bytes, for all values.
    #[test]
    fn records_pack() {
        for word in 0..=u16::MAX {
            assert_eq!(Record::unpack(word).pack(), word);
        }
    }

    fn states(numbers: usize) -> EntryStates {
        EntryStates::new(&Memory::new(0).unwrap(), numbers, numbers as u64).unwrap()
    }

    fn record(hot: bool) -> Record {
        Record { hot, referenced: 0, freq: 1, epoch: 0, seq: 0 }
    }

    fn arrive(states: &mut EntryStates, entry: EntryNumber) {
        assert!(!states.is_queue_full());
        let seq = states.queue(entry);
        states.add(entry, Record { seq, ..record(false) });
    }

    /// The queue returns temporary entries in order, without removed and hot ones, and moved ones
    /// in their places.
    #[test]
    fn the_queue_knows_who_is_there() {
        let mut states = states(80);
        [8, 9, 11, 13, 15].into_iter().for_each(|entry| arrive(&mut states, entry));
        assert_eq!(states.oldest_temporary(None), Some(8));
        assert_eq!(states.oldest_temporary(Some(8)), Some(9));
        states.take(9);
        states.rename(13, 20);
        states.rename(20, 21);
        assert_eq!(states.oldest_temporary(Some(8)), Some(11));
        let gone = states.take(8);
        states.add(8, Record { hot: true, ..gone });
        let mut order = Vec::new();
        while let Some(entry) = states.oldest_temporary(None) {
            order.push(entry);
            states.take(entry);
            states.validate().unwrap();
        }
        assert_eq!(order, [11, 21, 15]);
    }

    /// Behind an excepted entry, any number of stale ones is passed; then it is the youngest.
    #[test]
    fn stale_numbers_behind_an_excepted_entry() {
        let mut states = states(80_000);
        arrive(&mut states, 7);
        for entry in 100..5_000 {
            arrive(&mut states, entry);
            states.take(entry);
        }
        arrive(&mut states, 9);
        assert_eq!(states.oldest_temporary(Some(7)), Some(9));
        states.take(9);
        assert_eq!(states.oldest_temporary(Some(7)), None);
        assert_eq!((states.oldest_temporary(None), states.queued), (Some(7), 1));
        states.validate().unwrap();
    }

    /// A queue of stale numbers is not full; one of temporary entries is.
    #[test]
    fn stale_numbers_take_no_room() {
        let mut states = states(80);
        for round in 0..100 {
            arrive(&mut states, round % 80);
            states.take(round % 80);
        }
        (0..10).for_each(|entry| arrive(&mut states, entry));
        assert!(states.is_queue_full());
        states.validate().unwrap();
    }

    /// A walk returns every entry that stays, with any inserts, removals, promotions and moves
    /// meanwhile, and it ends.
    #[test]
    fn walks_keep_their_place() {
        let mut states = states(160);
        (10..20).for_each(|entry| arrive(&mut states, entry));
        (20..40).for_each(|entry| states.add(entry, record(true)));
        let walk = states.walk_start();
        let mut met = Vec::new();
        while let Some(entry) = states.walk_next(walk) {
            met.push(entry);
            match met.len() {
                3 => _ = states.take(13),
                4 => {
                    states.rename(15, 0);
                    states.rename(0, 1);
                }
                6 => {
                    states.take(17);
                    states.add(17, record(true));
                }
                // A hot one, during the pass over temporary: its turn is still to come.
                7 => states.rename(25, 2),
                15 => states.rename(30, 3),
                16 => states.rename(31, 100),
                17 => states.add(4, record(true)),
                _ => {}
            }
        }
        let moved = [13, 15, 25, 30, 31];
        for stays in (10..40).filter(|entry| !moved.contains(entry)).chain([1, 2, 3, 100]) {
            assert!(met.contains(&stays), "{stays} was missed: {met:?}");
        }
        assert!(met.len() <= 35, "{met:?}");
        states.validate().unwrap();
    }
}
