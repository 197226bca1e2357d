//! Doubly linked lists through numbers: what every reference policy is made of.
//!
//! `N` lists share one array of links, 8 bytes a number; a number is in one of them or in none, and the
//! caller knows in which. Every call is O(1). The engine has lists like these for itself; these can also be
//! entered in the middle (LFU keeps one list sorted, SIEVE's hand stands anywhere). Links of numbers in no
//! list are never read, so that a new array needs no filling.

use larder::Error;
use larder_mem::Region;
use larder_mem::prefetch_slice;

/// The number that nothing has.
pub(super) const NONE: u32 = u32::MAX;
const OLDER: usize = 0;
const NEWER: usize = 1;

#[derive(Debug, Clone, Copy)]
struct Ends {
    oldest: u32,
    newest: u32,
    len: u64,
}

/// `N` lists of numbers, oldest to newest.
#[derive(Debug)]
pub struct Lists<const N: usize> {
    /// The older and the newer neighbor of each number.
    links: Region<[u32; 2]>,
    ends: [Ends; N],
}

/// `None` for [`NONE`].
#[inline]
pub(super) fn some(number: u32) -> Option<u32> {
    (number != NONE).then_some(number)
}

impl<const N: usize> Lists<N> {
    /// For numbers below `numbers`, which is at most [`NONE`].
    pub fn new(numbers: usize) -> Result<Self, Error> {
        let links = Region::new(numbers).map_err(Error::Memory)?;
        Ok(Lists { links, ends: [Ends { oldest: NONE, newest: NONE, len: 0 }; N] })
    }

    /// How many are in a list.
    #[inline]
    pub fn len(&self, list: usize) -> u64 {
        self.ends[list].len
    }

    /// How many are in all lists.
    #[inline]
    pub fn total(&self) -> u64 {
        self.ends.iter().map(|ends| ends.len).sum()
    }

    /// A list's oldest, `except` apart.
    #[inline]
    pub fn oldest(&self, list: usize, except: Option<u32>) -> Option<u32> {
        let oldest = some(self.ends[list].oldest)?;
        if Some(oldest) == except { self.newer(oldest) } else { Some(oldest) }
    }

    /// A list's two oldest.
    #[inline]
    pub fn oldest_two(&self, list: usize) -> [Option<u32>; 2] {
        let first = self.oldest(list, None);
        [first, first.and_then(|first| self.newer(first))]
    }

    /// A list's newest.
    #[inline]
    pub fn newest(&self, list: usize) -> Option<u32> {
        some(self.ends[list].newest)
    }

    /// The next newer one in the list that a number is in.
    #[inline]
    pub fn newer(&self, number: u32) -> Option<u32> {
        some(self.links[number as usize][NEWER])
    }

    /// The next older one in the list that a number is in.
    #[inline]
    pub fn older(&self, number: u32) -> Option<u32> {
        some(self.links[number as usize][OLDER])
    }

    /// Adds a number that is in no list, as the newest.
    #[inline]
    pub fn push(&mut self, list: usize, number: u32) {
        self.insert(list, number, self.newest(list));
    }

    /// Adds a number that is in no list behind one that is in `list`, or as the oldest.
    #[inline]
    pub fn insert(&mut self, list: usize, number: u32, after: Option<u32>) {
        let ends = &mut self.ends[list];
        let newer = match after {
            None => std::mem::replace(&mut ends.oldest, number),
            Some(after) => std::mem::replace(&mut self.links[after as usize][NEWER], number),
        };
        match newer {
            NONE => ends.newest = number,
            newer => self.links[newer as usize][OLDER] = number,
        }
        self.links[number as usize] = [after.unwrap_or(NONE), newer];
        ends.len += 1;
    }

    /// Takes a number out of its list.
    #[inline]
    pub fn remove(&mut self, list: usize, number: u32) {
        let link = self.links[number as usize];
        self.join(list, link, link[NEWER], link[OLDER]);
        self.ends[list].len -= 1;
    }

    /// Moves a number to the newest end of a list, the same or another.
    #[inline]
    pub fn renew(&mut self, from: usize, to: usize, number: u32) {
        if from != to || self.ends[to].newest != number {
            self.remove(from, number);
            self.push(to, number);
        }
    }

    /// Replaces a number by another, which is in no list.
    #[inline]
    pub fn rename(&mut self, list: usize, from: u32, to: u32) {
        let link = self.links[from as usize];
        self.links[to as usize] = link;
        self.join(list, link, to, to);
    }

    /// Links the neighbors `[older, newer]` to what follows and what precedes them.
    #[inline]
    fn join(&mut self, list: usize, [older, newer]: [u32; 2], follows: u32, precedes: u32) {
        let ends = &mut self.ends[list];
        match older {
            NONE => ends.oldest = follows,
            older => self.links[older as usize][NEWER] = follows,
        }
        match newer {
            NONE => ends.newest = precedes,
            newer => self.links[newer as usize][OLDER] = precedes,
        }
    }

    /// Brings near the links of a number.
    #[inline]
    pub fn prefetch(&self, number: u32) {
        prefetch_slice(&self.links, number as usize);
    }

    /// What is in a list, oldest first.
    pub fn iter(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.oldest(list, None), |&number| self.newer(number))
    }

    /// Walks every list; `Err` states what is wrong.
    pub fn validate(&self) -> Result<(), String> {
        for (number, ends) in self.ends.iter().enumerate() {
            let (mut at, mut before, mut len) = (ends.oldest, NONE, 0);
            while at != NONE {
                len += 1;
                if self.links[at as usize][OLDER] != before || len > ends.len {
                    return Err(format!("list {number}: {at} is linked wrongly"));
                }
                (before, at) = (at, self.links[at as usize][NEWER]);
            }
            if before != ends.newest || len != ends.len {
                return Err(format!("list {number} has {len}, {} were counted", ends.len));
            }
        }
        Ok(())
    }

    /// The same, and that every number is in the list that `list_of` states.
    pub fn validate_by(&self, list_of: impl Fn(u32) -> usize) -> Result<(), String> {
        self.validate()?;
        (0..N).try_for_each(|list| match self.iter(list).find(|&entry| list_of(entry) != list) {
            None => Ok(()),
            Some(entry) => Err(format!("entry {entry} of list {list} has another one's record")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers keep their order through insertions in the middle, renames, renewals and removals at both
    /// ends, the excepted one is passed over, and one in another list is found.
    #[test]
    fn order_is_kept() {
        let mut lists = Lists::<2>::new(9).unwrap();
        (0..3).for_each(|at| lists.push(0, [3, 1, 4][at]));
        lists.insert(0, 7, Some(3));
        lists.insert(0, 8, None);
        lists.insert(0, 2, Some(4));
        assert_eq!(lists.iter(0).collect::<Vec<_>>(), [8, 3, 7, 1, 4, 2]);
        lists.rename(0, 8, 5);
        lists.rename(0, 7, 6);
        lists.rename(0, 2, 0);
        assert_eq!(lists.iter(0).collect::<Vec<_>>(), [5, 3, 6, 1, 4, 0]);
        assert_eq!((lists.oldest(0, None), lists.oldest(0, Some(5))), (Some(5), Some(3)));
        assert_eq!((lists.newest(0), lists.older(5), lists.older(0)), (Some(0), None, Some(4)));
        lists.renew(0, 0, 5);
        lists.renew(0, 1, 6);
        lists.renew(1, 1, 6);
        lists.remove(0, 5);
        lists.validate().unwrap();
        lists.validate_by(|number| usize::from(number == 6)).unwrap();
        let refusal = lists.validate_by(|_| 0).unwrap_err();
        assert_eq!(refusal, "entry 6 of list 1 has another one's record");
        assert_eq!(lists.iter(0).collect::<Vec<_>>(), [3, 1, 4, 0]);
        assert_eq!((lists.len(0), lists.len(1), lists.total()), (4, 1, 5));
        for number in [1, 3, 0, 4] {
            lists.remove(0, number);
        }
        lists.validate().unwrap();
        assert_eq!(
            (lists.oldest(0, None), lists.newest(0), lists.oldest_two(1)),
            (None, None, [Some(6), None])
        );
    }
}
