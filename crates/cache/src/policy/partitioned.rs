//! Three FIFO partitions: temporary for what is new, hot for what was wanted again, recycle for the keys of
//! what has left.
//!
//! The partitions are those of Shi et al. (the hybrid of FIFO and LRU: cheap, and few locks); what moves
//! between them is decided later and on more evidence, after S3-FIFO (SOSP 2023: quick demotion, a ghost
//! queue) and TinyLFU (admission by frequency). `C` is the capacity in entries, `T = max(1, C/10)` and
//! `H = C - T` what temporary and hot should hold.
//!
//! ```text
//! hit on x     x in temporary, and fewer than T/4 entries came into it since x: nothing (a second
//!              question for the same name, an answer's first packet: no sign of further interest)
//!              else ref += 1, to 3; freq = min(60, aged freq + 1)
//! x arrives    remembered as left by temporary: to hot. Else to temporary, with the freq remembered plus 1
//! make room    1. hot over H, temporary empty, or x goes to a hot that is full: hot's victim leaves
//!              else, c being temporary's oldest:
//!              2. hot below H: c to hot if it was hit or hot is empty, else it leaves
//!              3. c.ref >= 2, or aged freq of c above that of hot's victim: that one leaves, c to hot
//!              4. else c leaves; so it does at 2 and 3 if it has ended
//! victim       hot's oldest that has ended or has ref 0; those before it go round once more, ref -= 1
//! leaving      the key is remembered, with its freq and where it left from, for 0.9 C departures
//! ageing       every 20 C accesses the epoch moves on, and every freq halves
//! ```
//!
//! An access is a hit (but those that count for nothing) or an arrival. An entry moved to hot begins there
//! with ref 0.
//!
//! Record of an entry, three octets: `hot 1 | ref 2 | freq 6 | epoch 3 | seq 12`. `seq` counts arrivals in
//! temporary, in units so large that twice the entries there can be make 4096: below 2048 entries it is
//! exact, above, T/4 is known to within 2 to 4 %. An epoch's number is kept modulo 8.

use larder_mem::{Memory, Region, prefetch_slice};

use super::list::{LINK_BYTES, Lists};
use super::recycle::{Departed, Recycle};
use super::{Entries, EntryNumber, Replacement, STEPS_MAX, unmapped};
use crate::error::Error;

const TEMPORARY: usize = 0;
const HOT: usize = 1;

const REF_MAX: u8 = 3;
const FREQ_MAX: u8 = 60;
const EPOCHS: u8 = 8;
const SEQ_BITS: u32 = 12;
/// Accesses until the epoch moves on, as a multiple of the capacity.
const EPOCH_CAPACITIES: u64 = 20;

const RECORD_BYTES: usize = size_of::<Packed>();

/// A record as it lies in memory.
type Packed = [u8; 3];

/// What is kept of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Record {
    hot: bool,
    referenced: u8,
    freq: u8,
    epoch: u8,
    seq: u16,
}

impl Record {
    #[inline]
    fn unpack([a, b, c]: Packed) -> Record {
        let word = u32::from_le_bytes([a, b, c, 0]);
        Record {
            hot: word & 1 == 1,
            referenced: (word >> 1 & 3) as u8,
            freq: (word >> 3 & 63) as u8,
            epoch: (word >> 9 & 7) as u8,
            seq: (word >> 12) as u16,
        }
    }

    #[inline]
    fn pack(self) -> Packed {
        let word = u32::from(self.hot)
            | u32::from(self.referenced) << 1
            | u32::from(self.freq) << 3
            | u32::from(self.epoch) << 9
            | u32::from(self.seq) << 12;
        let [a, b, c, _] = word.to_le_bytes();
        [a, b, c]
    }
}

/// What is known of a key that is about to be stored.
#[derive(Debug, Clone, Copy, Default)]
struct Arrival {
    to_hot: bool,
    freq: u8,
}

/// Three FIFO partitions with counters. See the [module](self).
#[derive(Debug)]
pub struct Partitioned {
    pub(super) lists: Lists<2>,
    records: Region<Packed>,
    recycle: Recycle,
    /// `C`.
    capacity: u64,
    /// `T`.
    temporary_target: u64,
    /// Entries that ever came into temporary.
    temporary_seq: u64,
    seq_shift: u32,
    accesses: u64,
    epoch: u8,
    arrival: Arrival,
}

impl Partitioned {
    /// For entry numbers below `numbers` and at most `entries_max` entries at once.
    pub fn new(numbers: usize, entries_max: u64) -> Result<Self, Error> {
        Self::new_in(&unmapped()?, numbers, entries_max)
    }

    pub(super) fn new_in(memory: &Memory, numbers: usize, entries_max: u64) -> Result<Self, Error> {
        let units = (2 * entries_max).max(1).next_power_of_two();
        let mut policy = Partitioned {
            lists: Lists::new(memory, numbers)?,
            records: memory.region(numbers).map_err(Error::Memory)?,
            recycle: Recycle::new(memory, entries_max)?,
            capacity: 0,
            temporary_target: 0,
            temporary_seq: 0,
            seq_shift: units.ilog2().saturating_sub(SEQ_BITS),
            accesses: 0,
            epoch: 0,
            arrival: Arrival::default(),
        };
        policy.resize(entries_max);
        Ok(policy)
    }

    /// Octets that it takes.
    pub(super) fn bytes(numbers: usize, entries_max: u64) -> usize {
        numbers * (LINK_BYTES + RECORD_BYTES) + Recycle::bytes(entries_max)
    }

    fn resize(&mut self, entries: u64) {
        let capacity = entries.max(1);
        if capacity != self.capacity {
            self.capacity = capacity;
            self.temporary_target = (capacity / 10).max(1);
            self.recycle.resize(capacity);
        }
    }

    #[inline]
    fn record(&self, entry: EntryNumber) -> Record {
        Record::unpack(self.records[entry as usize])
    }

    #[inline]
    fn set_record(&mut self, entry: EntryNumber, record: Record) {
        self.records[entry as usize] = record.pack();
    }

    #[inline]
    fn aged(&self, freq: u8, epoch: u8) -> u8 {
        freq >> (self.epoch.wrapping_sub(epoch) % EPOCHS)
    }

    #[inline]
    fn count_access(&mut self) {
        self.accesses += 1;
        if self.accesses >= EPOCH_CAPACITIES * self.capacity {
            self.accesses = 0;
            self.epoch = (self.epoch + 1) % EPOCHS;
        }
    }

    /// `temporary_seq` as a record has it.
    #[inline]
    fn seq_now(&self) -> u16 {
        ((self.temporary_seq >> self.seq_shift) % (1 << SEQ_BITS)) as u16
    }

    /// Entries that came into temporary after one that got this `seq`.
    #[inline]
    fn entered_since(&self, seq: u16) -> u64 {
        let units = self.seq_now().wrapping_sub(seq) % (1 << SEQ_BITS);
        u64::from(units) << self.seq_shift
    }

    /// Takes an entry out of its partition and remembers its key.
    #[inline]
    fn depart(&mut self, entry: EntryNumber, entries: &impl Entries) -> Option<EntryNumber> {
        let Record { hot, freq, epoch, .. } = self.record(entry);
        self.lists.remove(usize::from(hot), entry);
        let freq = self.aged(freq, epoch);
        self.recycle
            .push(entries.key(entry), Departed { temporary: !hot, freq, epoch: self.epoch });
        Some(entry)
    }

    /// Moves temporary's entry to hot.
    #[inline]
    fn promote(&mut self, entry: EntryNumber, record: Record) {
        self.lists.renew(TEMPORARY, HOT, entry);
        self.set_record(entry, Record { hot: true, referenced: 0, ..record });
    }

    /// Who leaves hot next; those before it have gone round.
    fn victim(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
        steps: &mut u32,
    ) -> Option<EntryNumber> {
        loop {
            let oldest = self.lists.oldest(HOT, except)?;
            let record = self.record(oldest);
            if record.referenced == 0 || *steps == 0 || entries.is_expired(oldest) {
                return Some(oldest);
            }
            *steps -= 1;
            self.set_record(oldest, Record { referenced: record.referenced - 1, ..record });
            self.lists.renew(HOT, HOT, oldest);
        }
    }
}

impl Replacement for Partitioned {
    #[inline]
    fn len(&self) -> u64 {
        self.lists.total()
    }

    #[inline]
    fn arriving(&mut self, key: u64) {
        self.arrival = match self.recycle.take(key) {
            None => Arrival { to_hot: false, freq: 1 },
            Some(Departed { temporary, freq, epoch }) => {
                Arrival { to_hot: temporary, freq: (self.aged(freq, epoch) + 1).min(FREQ_MAX) }
            }
        };
        self.count_access();
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        let Arrival { to_hot, freq } = std::mem::take(&mut self.arrival);
        if !to_hot {
            self.temporary_seq += 1;
        }
        self.lists.push(usize::from(to_hot), entry);
        let seq = self.seq_now();
        self.set_record(entry, Record { hot: to_hot, referenced: 0, freq, epoch: self.epoch, seq });
    }

    #[inline]
    fn updated(&mut self, entry: EntryNumber) {
        self.hit(entry, 0);
    }

    #[inline]
    fn hit(&mut self, entry: EntryNumber, lag: u64) {
        let record = self.record(entry);
        let window = self.temporary_target / 4 + lag;
        if !record.hot && self.entered_since(record.seq) < window {
            return;
        }
        let freq = (self.aged(record.freq, record.epoch) + 1).min(FREQ_MAX);
        let referenced = (record.referenced + 1).min(REF_MAX);
        self.set_record(entry, Record { referenced, freq, epoch: self.epoch, ..record });
        self.count_access();
    }

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        self.lists.remove(usize::from(self.record(entry).hot), entry);
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        let record = self.record(from);
        self.lists.rename(usize::from(record.hot), from, to);
        self.set_record(to, record);
    }

    fn evict(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        self.resize(self.len());
        let hot_target = self.capacity - self.temporary_target;
        let mut steps = STEPS_MAX;
        loop {
            let hot_len = self.lists.len(HOT);
            let oldest = self.lists.oldest(TEMPORARY, except);
            let hot_pays = hot_len > hot_target || (self.arrival.to_hot && hot_len == hot_target);
            if (hot_pays || oldest.is_none())
                && let Some(victim) = self.victim(except, entries, &mut steps)
            {
                return self.depart(victim, entries);
            }
            let candidate = oldest?;
            let record = self.record(candidate);
            if hot_len < hot_target {
                let stays = (record.referenced > 0 || hot_len == 0)
                    && steps > 0
                    && !entries.is_expired(candidate);
                if !stays {
                    return self.depart(candidate, entries);
                }
                steps -= 1;
                self.promote(candidate, record);
                continue;
            }
            let Some(victim) = self.victim(except, entries, &mut steps) else {
                return self.depart(candidate, entries);
            };
            let rival = self.record(victim);
            // Asked last: most candidates lose anyway, and to know their end is to read another line.
            let wins = (record.referenced >= 2
                || self.aged(record.freq, record.epoch) > self.aged(rival.freq, rival.epoch))
                && !entries.is_expired(candidate);
            if !wins {
                return self.depart(candidate, entries);
            }
            self.depart(victim, entries);
            self.promote(candidate, record);
            return Some(victim);
        }
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        let hot_pays = self.lists.len(TEMPORARY) < self.temporary_target;
        self.lists.oldest_two(usize::from(hot_pays))
    }

    #[inline]
    fn prefetch(&self, entry: EntryNumber) {
        self.lists.prefetch(entry);
        prefetch_slice(&self.records, entry as usize);
    }

    #[inline]
    fn prefetch_key(&self, key: u64) {
        self.recycle.prefetch(key);
    }

    fn validate(&self) -> Result<(), String> {
        self.lists.validate()?;
        self.recycle.validate()?;
        for list in [TEMPORARY, HOT] {
            for entry in self.lists.iter(list) {
                let record = self.record(entry);
                if usize::from(record.hot) != list || record.freq > FREQ_MAX {
                    return Err(format!("entry {entry} in partition {list} has {record:?}"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record survives its three octets, whatever its fields.
    #[test]
    fn records_pack() {
        for word in (0..1u32 << 24).step_by(37) {
            let [a, b, c, _] = word.to_le_bytes();
            assert_eq!(Record::unpack([a, b, c]).pack(), [a, b, c]);
        }
    }
}
