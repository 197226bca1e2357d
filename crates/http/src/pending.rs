//! Tracks URLs that are being fetched, so that an older response is not stored after a write to its
//! URL.
//!
//! ```text
//! enter()         before an origin is asked: a Ticket, which the fetch holds to its end
//! note_written()  an unsafe request to the URL succeeded, or an operator purged it
//! is_outdated()   when the response is to be stored: whether the URL was written after the fetch began
//! ```
//!
//! Only fetches of that URL see a write: the whole key finds entries, and there is one for each URL
//! that is being fetched. A hash with a random seed selects the shard, so an attacker cannot choose
//! URLs that share one.
//!
//! Invariant: an entry exists as long as one of its tickets. A fetch enters before it sends its
//! request. So a write that it does not see came before the origin got that request.
//!
//! Bounds: one entry for each fetch in flight; connections and queues bound their number. Cost: one
//! of `SHARDS` locks when a fetch begins, stores and ends.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::RandomState;
use foldhash::{HashMap, HashMapExt};
use parking_lot::Mutex;

use crate::key::Key;

const SHARDS: usize = 16;

/// The entry of a URL that is being fetched.
#[derive(Debug, Default)]
struct Entry {
    tickets: usize,
    /// The serial number of the last write; 0: none since the first ticket.
    written: u64,
}

/// URLs that are being fetched.
#[derive(Debug)]
pub struct Pending {
    shards: [Mutex<HashMap<Key, Entry>>; SHARDS],
    hasher: RandomState,
}

/// A fetch of a URL in flight.
#[derive(Debug)]
pub struct Ticket {
    pending: Arc<Pending>,
    key: Key,
    serial: u64,
}

impl Default for Pending {
    fn default() -> Pending {
        let shards = std::array::from_fn(|_| Mutex::new(HashMap::new()));
        Pending { shards, hasher: RandomState::default() }
    }
}

impl Pending {
    fn shard(&self, key: &Key) -> &Mutex<HashMap<Key, Entry>> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    /// A fetch of the URL with this primary key begins; `serial` is greater than those of all
    /// writes before.
    pub fn enter(self: &Arc<Self>, key: Key, serial: u64) -> Ticket {
        self.shard(&key).lock().entry(key).or_default().tickets += 1;
        Ticket { pending: self.clone(), key, serial }
    }

    /// The URL with this primary key was written.
    pub fn note_written(&self, key: &Key, serial: u64) {
        if let Some(entry) = self.shard(key).lock().get_mut(key) {
            entry.written = entry.written.max(serial);
        }
    }

    /// The number of URLs that are being fetched.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Ticket {
    /// True where the URL was written after the fetch began: its response may be from before.
    pub fn is_outdated(&self) -> bool {
        let shard = self.pending.shard(&self.key).lock();
        shard.get(&self.key).is_some_and(|entry| self.serial < entry.written)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut shard = self.pending.shard(&self.key).lock();
        if let Some(entry) = shard.get_mut(&self.key) {
            entry.tickets -= 1;
            if entry.tickets == 0 {
                shard.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::primary;

    /// Which URLs share a shard differs between tables: an attacker that has the program cannot
    /// choose URLs that share one.
    #[test]
    fn shards_are_not_foretold() {
        let [one, other] = [Pending::default(), Pending::default()];
        let at = |pending: &Pending, key: &Key| {
            let shard = pending.shard(key);
            pending.shards.iter().position(|it| std::ptr::eq(it, shard))
        };
        let keys: Vec<Key> = (0..100u8).map(|number| primary(&[number])).collect();
        assert!(keys.iter().any(|key| at(&one, key) != at(&other, key)));
    }

    /// Exactly the fetches of a URL that began before a write see it, however many URLs are
    /// written. No entry is left when the fetches have ended.
    #[test]
    fn only_its_own_url() {
        let pending = Arc::new(Pending::default());
        let key = |at: usize| primary(format!("a.example/{at}").as_bytes());
        let tickets: Vec<Ticket> = (0..100).map(|at| pending.enter(key(at), 1)).collect();
        (100..20_000).for_each(|at| pending.note_written(&key(at), 2));
        assert!(tickets.iter().all(|it| !it.is_outdated()));
        assert_eq!(pending.len(), 100, "nothing is remembered of what nobody fetches");
        pending.note_written(&key(7), 3);
        let later = pending.enter(key(7), 4);
        let outdated = |it: &&Ticket| it.is_outdated();
        assert_eq!(tickets.iter().filter(outdated).count(), 1);
        assert!(tickets[7].is_outdated() && !later.is_outdated());
        drop(tickets);
        assert_eq!(pending.len(), 1);
        drop(later);
        assert!(pending.is_empty());
    }
}
