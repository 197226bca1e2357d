//! LFU in the cache: the entry with the fewest requests is evicted, of several the one idle for longest; an evicted
//! entry loses its count. An update counts as a request.
//!
//! One list sorted by count and then by the last access, so that its oldest is the next to leave. Entries of
//! one count are a group, which knows its newest entry; an access moves an entry behind the newest of the next
//! count. That makes every call O(1), as in Shah, Mitra, Matani, *An O(1) algorithm for implementing the LFU
//! cache eviction scheme* (2010), with a list for each count.
//!
//! Bytes: 20 an entry number besides the records (its group 4, groups 16: there are never more than entries).

use larder::Error;
use larder::policy::EntryNumber;
use larder_mem::Region;

use super::listed::{Listed, Records, Reference};

/// LFU. See the source's head for its rules.
pub type Lfu = Listed<Rules, 1>;

/// The rules of [`Lfu`].
#[derive(Debug)]
pub struct Rules {
    /// The group of each entry.
    group_of: Region<u32>,
    groups: Groups,
}

impl Lfu {
    /// For entry numbers below `numbers`.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        let group_of = Region::new(numbers).map_err(Error::Memory)?;
        Listed::with(numbers, Rules { group_of, groups: Groups::new(numbers)? })
    }
}

impl Rules {
    /// The group of an entry, if that is what it counts.
    #[inline]
    fn group_if(&self, entry: Option<EntryNumber>, count: u64) -> Option<u32> {
        let group = self.group_of[entry? as usize];
        (self.groups.counts[group as usize] == count).then_some(group)
    }

    /// Makes an entry the newest of a group, or of a new one that counts `count` and comes behind `after`.
    #[inline]
    fn join(
        &mut self,
        records: &mut Records<1>,
        entry: EntryNumber,
        group: Option<u32>,
        count: u64,
        after: Option<EntryNumber>,
    ) {
        let after = group.map(|group| self.groups.newest(group)).or(after);
        let group = group.unwrap_or_else(|| self.groups.make(count));
        self.groups.add(group, entry);
        records.insert(0, entry, after);
        self.group_of[entry as usize] = group;
    }
}

impl Reference<1> for Rules {
    #[inline]
    fn inserted(&mut self, records: &mut Records<1>, entry: EntryNumber) {
        let ones = self.group_if(records.oldest(0, None), 1);
        self.join(records, entry, ones, 1, None);
    }

    #[inline]
    fn hit(&mut self, records: &mut Records<1>, entry: EntryNumber) {
        let group = self.group_of[entry as usize];
        let count = self.groups.counts[group as usize] + 1;
        let newest = self.groups.newest(group);
        let next = self.group_if(records.newer(newest), count);
        if next.is_none() && self.groups.is_single(group) {
            self.groups.counts[group as usize] = count;
            return;
        }
        let after = if newest == entry { records.older(entry) } else { Some(newest) };
        self.leaving(records, entry);
        records.remove(entry);
        self.join(records, entry, next, count, after);
    }

    #[inline]
    fn leaving(&mut self, records: &Records<1>, entry: EntryNumber) {
        self.groups.take(self.group_of[entry as usize], entry, records.older(entry));
    }

    #[inline]
    fn moved(&mut self, from: EntryNumber, to: EntryNumber) {
        let group = self.group_of[from as usize];
        self.group_of[to as usize] = group;
        self.groups.rename(group, from, to);
    }

    fn validate(&self, records: &Records<1>) -> Result<(), String> {
        let (mut last, mut members, mut before) = (None, 0, 0);
        for entry in records.iter(0) {
            let group = self.group_of[entry as usize];
            let count = self.groups.counts[group as usize];
            if last != Some(group) && (members != 0 || count <= before) {
                return Err(format!("entry {entry} begins count {count} behind {before}"));
            }
            if last != Some(group) {
                members = self.groups.members[group as usize][LEN];
            }
            members -= 1;
            if (members == 0) != (self.groups.newest(group) == entry) {
                return Err(format!("entry {entry} of count {count} is not its newest"));
            }
            (last, before) = (Some(group), count);
        }
        Ok(())
    }
}

const LEN: usize = 0;
const NEWEST: usize = 1;

/// Entries of one count: how many, and the newest.
#[derive(Debug)]
struct Groups {
    counts: Region<u64>,
    /// How many, and the newest. Of a group that is free: 0, and the next free one + 1.
    members: Region<[u32; 2]>,
    /// The first free group + 1.
    free: u32,
    /// Groups that were ever made.
    used: u32,
}

impl Groups {
    fn new(groups: usize) -> Result<Self, Error> {
        Ok(Groups {
            counts: Region::new(groups).map_err(Error::Memory)?,
            members: Region::new(groups).map_err(Error::Memory)?,
            free: 0,
            used: 0,
        })
    }

    #[inline]
    fn newest(&self, group: u32) -> EntryNumber {
        self.members[group as usize][NEWEST]
    }

    #[inline]
    fn is_single(&self, group: u32) -> bool {
        self.members[group as usize][LEN] == 1
    }

    /// A group without entries.
    #[inline]
    fn make(&mut self, count: u64) -> u32 {
        let group = match self.free.checked_sub(1) {
            Some(group) => {
                self.free = self.members[group as usize][NEWEST];
                group
            }
            None => {
                self.used += 1;
                self.used - 1
            }
        };
        self.counts[group as usize] = count;
        self.members[group as usize] = [0, 0];
        group
    }

    #[inline]
    fn add(&mut self, group: u32, entry: EntryNumber) {
        let [len, newest] = &mut self.members[group as usize];
        (*len, *newest) = (*len + 1, entry);
    }

    /// Takes an entry out of its group; `older` is the one before it, which is of the group as well unless
    /// this was the only one.
    #[inline]
    fn take(&mut self, group: u32, entry: EntryNumber, older: Option<EntryNumber>) {
        let [len, newest] = &mut self.members[group as usize];
        *len -= 1;
        if *len == 0 {
            *newest = std::mem::replace(&mut self.free, group + 1);
        } else if *newest == entry
            && let Some(older) = older
        {
            *newest = older;
        }
    }

    #[inline]
    fn rename(&mut self, group: u32, from: EntryNumber, to: EntryNumber) {
        let newest = &mut self.members[group as usize][NEWEST];
        if *newest == from {
            *newest = to;
        }
    }
}
