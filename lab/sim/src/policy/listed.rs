//! Policies that keep every entry in one of `N` lists: what all of them do alike.
//!
//! A policy has its rules ([`Reference`]); the lists and a record for each entry are in [`Records`], and
//! [`Listed`] does what the simulation asks for. Rules choose a victim, which stays in its list until
//! they return.
//!
//! Bytes: 9 an entry.

use std::ops::Deref;

use larder::Error;
use larder::policy::{Entries, EntryNumber, Replacement};
use larder_mem::Region;
use larder_mem::prefetch_slice;

use super::ghosts::Ghosts;
use super::list::Lists;

/// The bits of a record that state the list; the others are the mark.
const LIST: u8 = 3;
const MARK_SHIFT: u32 = LIST.count_ones();

/// `N` lists of entries, at most 4; for each entry its list and a mark below 64.
#[derive(Debug)]
pub struct Records<const N: usize> {
    lists: Lists<N>,
    records: Region<u8>,
}

impl<const N: usize> Deref for Records<N> {
    type Target = Lists<N>;

    #[inline]
    fn deref(&self) -> &Lists<N> {
        &self.lists
    }
}

impl<const N: usize> Records<N> {
    /// The list of an entry.
    #[inline]
    pub fn list(&self, entry: EntryNumber) -> usize {
        if N == 1 { 0 } else { usize::from(self.records[entry as usize] & LIST) }
    }

    /// The mark of an entry.
    #[inline]
    pub fn mark(&self, entry: EntryNumber) -> u8 {
        self.records[entry as usize] >> MARK_SHIFT
    }

    /// Gives an entry another mark.
    #[inline]
    pub fn set_mark(&mut self, entry: EntryNumber, mark: u8) {
        let record = &mut self.records[entry as usize];
        *record = mark << MARK_SHIFT | *record & LIST;
    }

    /// Adds an entry that is in no list, behind one that is in `list` or as the oldest, with mark 0.
    #[inline]
    pub fn insert(&mut self, list: usize, entry: EntryNumber, after: Option<EntryNumber>) {
        self.lists.insert(list, entry, after);
        self.records[entry as usize] = list as u8;
    }

    /// Adds an entry that is in no list, as the newest and with mark 0.
    #[inline]
    pub fn push(&mut self, list: usize, entry: EntryNumber) {
        self.insert(list, entry, self.lists.newest(list));
    }

    /// Moves an entry to the newest end of a list, with the mark that it has.
    #[inline]
    pub fn renew(&mut self, list: usize, entry: EntryNumber) {
        self.lists.renew(self.list(entry), list, entry);
        if N > 1 {
            let record = &mut self.records[entry as usize];
            *record = *record & !LIST | list as u8;
        }
    }

    /// Moves an entry to the newest end of a list, with mark 0.
    #[inline]
    pub fn restart(&mut self, list: usize, entry: EntryNumber) {
        self.renew(list, entry);
        self.set_mark(entry, 0);
    }

    /// Takes an entry out of its list.
    #[inline]
    pub fn remove(&mut self, entry: EntryNumber) {
        self.lists.remove(self.list(entry), entry);
    }
}

/// The rules of a policy of `N` lists. Calls are those of [`Replacement`], which come from [`Listed`].
/// By default a new entry is list 0's newest, and list 0's oldest is evicted.
pub trait Reference<const N: usize> {
    /// See [`Replacement::arriving`].
    #[inline]
    fn arriving(&mut self, _records: &mut Records<N>, _key: u64) {}

    /// Puts a new entry in a list.
    #[inline]
    fn inserted(&mut self, records: &mut Records<N>, entry: EntryNumber) {
        records.push(0, entry);
    }

    /// The entry got a new value.
    #[inline]
    fn updated(&mut self, records: &mut Records<N>, entry: EntryNumber) {
        self.hit(records, entry);
    }

    /// The entry was read.
    fn hit(&mut self, records: &mut Records<N>, entry: EntryNumber);

    /// An entry is about to be taken out of its list, evicted or on request.
    #[inline]
    fn leaving(&mut self, _records: &Records<N>, _entry: EntryNumber) {}

    /// The entry has another number.
    #[inline]
    fn moved(&mut self, _from: EntryNumber, _to: EntryNumber) {}

    /// Chooses the entry to evict, other than `except`.
    #[inline]
    fn victim(
        &mut self,
        records: &mut Records<N>,
        except: Option<EntryNumber>,
        _entries: &impl Entries,
    ) -> Option<EntryNumber> {
        records.oldest(0, except)
    }

    /// See [`Replacement::has_surplus`].
    #[inline]
    fn has_surplus(&self, _records: &Records<N>) -> bool {
        false
    }

    /// See [`Replacement::upcoming`].
    #[inline]
    fn upcoming(&self, records: &Records<N>) -> [Option<EntryNumber>; 2] {
        records.oldest_two(0)
    }

    /// The keys that the policy remembers of evicted entries.
    #[inline]
    fn ghosts(&self) -> Option<&Ghosts> {
        None
    }

    /// Checks what the rules have besides the lists.
    fn validate(&self, _records: &Records<N>) -> Result<(), String> {
        Ok(())
    }
}

/// A policy of `N` lists.
#[derive(Debug)]
pub struct Listed<R, const N: usize> {
    records: Records<N>,
    rules: R,
}

impl<R: Reference<N>, const N: usize> Listed<R, N> {
    /// For entry numbers below `numbers`.
    pub(super) fn with(numbers: usize, rules: R) -> Result<Self, Error> {
        let lists = Lists::new(numbers)?;
        let records = Region::new(numbers).map_err(Error::Memory)?;
        Ok(Listed { records: Records { lists, records }, rules })
    }
}

impl<R: Reference<N>, const N: usize> Replacement for Listed<R, N> {
    #[inline]
    fn len(&self) -> u64 {
        self.records.total()
    }

    #[inline]
    fn arriving(&mut self, key: u64) {
        self.rules.arriving(&mut self.records, key);
    }

    #[inline]
    fn inserted(&mut self, entry: EntryNumber) {
        self.rules.inserted(&mut self.records, entry);
    }

    #[inline]
    fn updated(&mut self, entry: EntryNumber) {
        self.rules.updated(&mut self.records, entry);
    }

    #[inline]
    fn hit(&mut self, entry: EntryNumber, _lag: u64) {
        self.rules.hit(&mut self.records, entry);
    }

    #[inline]
    fn removed(&mut self, entry: EntryNumber) {
        self.rules.leaving(&self.records, entry);
        self.records.remove(entry);
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        let Records { lists, records } = &mut self.records;
        lists.rename(usize::from(records[from as usize] & LIST), from, to);
        records[to as usize] = records[from as usize];
        self.rules.moved(from, to);
    }

    #[inline]
    fn evict(
        &mut self,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        let victim = self.rules.victim(&mut self.records, except, entries)?;
        self.removed(victim);
        Some(victim)
    }

    #[inline]
    fn has_surplus(&self) -> bool {
        self.rules.has_surplus(&self.records)
    }

    #[inline]
    fn upcoming(&self) -> [Option<EntryNumber>; 2] {
        self.rules.upcoming(&self.records)
    }

    #[inline]
    fn prefetch(&self, entry: EntryNumber) {
        self.records.prefetch(entry);
        prefetch_slice(&self.records.records, entry as usize);
    }

    #[inline]
    fn prefetch_key(&self, key: u64) {
        if let Some(ghosts) = self.rules.ghosts() {
            ghosts.prefetch(key);
        }
    }

    fn validate(&self) -> Result<(), String> {
        self.records.validate_by(|entry| self.records.list(entry))?;
        self.rules.ghosts().map_or(Ok(()), Ghosts::validate)?;
        self.rules.validate(&self.records)
    }
}
