//! 2Q, full version (Johnson, Shasha, *2Q: a low overhead high performance buffer management replacement
//! algorithm*, VLDB 1994).
//!
//! `C` is the capacity, `Kin = max(1, C/4)` and `Kout = max(1, C/2)` the sizes that the paper advises.
//!
//! ```text
//! hit          in Am: becomes its newest. In A1in: nothing
//! x arrives    its key is in A1out: to Am, and the key leaves A1out. Else to A1in
//! make room    A1in above Kin, or Am empty: A1in's oldest leaves, its key goes to A1out, which keeps Kout
//!              else Am's oldest leaves
//! ```
//!
//! The paper does not say whether a key leaves A1out before or after room is made; here, before.
//!
//! Bytes: 32 a ghost besides the records.

use larder::Error;
use larder::policy::{Entries, EntryNumber};

use super::ghosts::Ghosts;
use super::listed::{Listed, Records, Reference};

const A1IN: usize = 0;
const AM: usize = 1;

/// 2Q. See the source's head for its rules.
pub type TwoQueue = Listed<Rules, 2>;

/// The rules of [`TwoQueue`].
#[derive(Debug)]
pub struct Rules {
    /// A1out.
    ghosts: Ghosts,
    /// What arrives was in A1out.
    to_am: bool,
}

fn share(capacity: u64, parts: u64) -> u64 {
    (capacity / parts).max(1)
}

impl TwoQueue {
    /// For entry numbers below `numbers` and at most as many entries.
    pub fn new(numbers: usize) -> Result<Self, Error> {
        let ghosts = Ghosts::new(share(numbers as u64, 2) as usize)?;
        Listed::with(numbers, Rules { ghosts, to_am: false })
    }
}

impl Reference<2> for Rules {
    #[inline]
    fn arriving(&mut self, _: &mut Records<2>, key: u64) {
        self.to_am = self.ghosts.take(key).is_some();
    }

    #[inline]
    fn inserted(&mut self, records: &mut Records<2>, entry: EntryNumber) {
        let list = if std::mem::take(&mut self.to_am) { AM } else { A1IN };
        records.push(list, entry);
    }

    #[inline]
    fn hit(&mut self, records: &mut Records<2>, entry: EntryNumber) {
        if records.list(entry) == AM {
            records.renew(AM, entry);
        }
    }

    #[inline]
    fn victim(
        &mut self,
        records: &mut Records<2>,
        except: Option<EntryNumber>,
        entries: &impl Entries,
    ) -> Option<EntryNumber> {
        let capacity = records.total();
        let am = records.oldest(AM, except);
        if (records.len(A1IN) > share(capacity, 4) || am.is_none())
            && let Some(oldest) = records.oldest(A1IN, except)
        {
            self.ghosts.push(0, entries.key(oldest), share(capacity, 2));
            return Some(oldest);
        }
        am
    }

    #[inline]
    fn upcoming(&self, records: &Records<2>) -> [Option<EntryNumber>; 2] {
        let a1in_pays = records.len(A1IN) > share(records.total(), 4);
        records.oldest_two(if a1in_pays { A1IN } else { AM })
    }

    #[inline]
    fn ghosts(&self) -> Option<&Ghosts> {
        Some(&self.ghosts)
    }
}
