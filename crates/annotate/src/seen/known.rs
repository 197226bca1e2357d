//! The names and clients that were ever seen, by hash: each with the day of its first flow and of its
//! latest one. When the table is full, the half that was not seen for longest is removed; such a name
//! counts as new when it returns.

use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

/// Names and clients.
pub const KNOWN_MAX: usize = 1 << 16;

/// Days since 1970 of the first flow and of the latest one.
pub type Days = (u32, u32);

/// See the module.
#[derive(Debug)]
pub struct Known {
    /// Part of each hash, so that a sender of packets cannot choose a name whose hash is known.
    secret: u64,
    days: HashMap<u64, Days>,
}

impl Default for Known {
    fn default() -> Known {
        Known::with_secret(RandomState::new().hash_one(0))
    }
}

impl Known {
    /// An empty table. Hashes that were saved are of use only with the secret that they were made with.
    pub fn with_secret(secret: u64) -> Known {
        Known { secret, days: HashMap::new() }
    }

    /// The secret, to save it.
    pub fn secret(&self) -> u64 {
        self.secret
    }

    /// Adds a name or an address. True if it was not known.
    pub fn is_new(&mut self, bytes: &[u8], today: u32) -> bool {
        self.put(self.hash(bytes), (today, today))
    }

    /// The day of the first flow.
    pub fn first_day(&self, bytes: &[u8]) -> Option<u32> {
        self.days.get(&self.hash(bytes)).map(|(first, _)| *first)
    }

    /// Adds what was saved. True if it was not known.
    pub fn put(&mut self, hash: u64, (first, last): Days) -> bool {
        if let Some((known_first, known_last)) = self.days.get_mut(&hash) {
            *known_first = (*known_first).min(first);
            *known_last = (*known_last).max(last);
            return false;
        }
        if self.days.len() >= KNOWN_MAX {
            self.remove_half();
        }
        self.days.insert(hash, (first, last));
        true
    }

    /// All, in any order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, Days)> + '_ {
        self.days.iter().map(|(hash, days)| (*hash, *days))
    }

    fn remove_half(&mut self) {
        let mut days: Vec<u32> = self.days.values().map(|(_, last)| *last).collect();
        let middle = days.len() / 2;
        let median = *days.select_nth_unstable(middle).1;
        let later = self.days.values().filter(|(_, last)| *last > median).count();
        let mut equal = middle.saturating_sub(later);
        self.days.retain(|_, (_, last)| {
            *last > median
                || (*last == median && equal > 0 && {
                    equal -= 1;
                    true
                })
        });
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.secret);
        hasher.write(bytes);
        hasher.finish()
    }
}
