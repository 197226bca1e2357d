//! One simulated cache: a policy, a capacity, and the requests of a trace.
//!
//! ```text
//! get, resident and alive    a hit: reported to the policy
//! get, resident and ended    a miss; with fill the value is stored again in place, else it stays until evicted
//! get, absent                a miss; with fill the key is stored
//! set, resident              the value, its size and its end are replaced in place; the policy gets an update
//! set, absent                stored
//! remove                     taken out, where resident
//! ```
//!
//! To store is what the engine does: `arriving`, evict while there is no room, up to two more while the policy
//! states that it has a surplus, `inserted` (see [`larder::policy`]). Room is counted in entries or in bytes; an
//! object larger than the whole cache is passed by and counted. Of a resident object the size is what it was
//! when stored, of a hit the bytes are those of the request.
//!
//! Where an entry lies is a number below the capacity, as the policy knows it. Kept are: the place of each key
//! (4 bytes a key of the trace), the key of each place (4), and where the trace has them the end (4) and the
//! size (4) of each place. Values there are none.
//!
//! Invariants
//! 1. `place_of[id] == place` exactly when `place` is occupied and `key_of[place] == id`.
//! 2. A place below `key_of.len()` is occupied or in `free`, never both.
//! 3. `charged` is the sum of charges of occupied places, and at most `capacity`.
//!
//! Cost: the loop is compiled for each policy, and a batch without details takes one of its own that asks for
//! neither time nor sizes. Where there are many keys, lines that a request will want are asked for [`AHEAD`]
//! requests before its turn.

use larder::policy::{Entries, EntryNumber, Replacement};
use larder_mem::prefetch_slice;

use crate::intern::{Batch, Detail};
use crate::request::{Op, TTL_NONE};
use crate::trace::random::mix;

/// Requests between asking for a line and reading it; half of it for what is found there.
pub const AHEAD: usize = 16;

/// Up to this many keys, their places stay in the cache of the processor (2 MiB), and prefetching only costs: with
/// 200,000 keys 24.6 against 16.0 ns a request for FIFO, 56 against 47 for partitioned; with 6.5 million it gains, 53
/// against 60 and 128 against 205 (medians, busy machine).
const NEAR_KEYS: usize = 1 << 19;

/// Entries that leave beyond the need, one insert, where the policy has a surplus: as in the engine.
const SURPLUS_MAX: usize = 2;

const NONE: u32 = u32::MAX;

/// What a capacity counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum By {
    /// Entries.
    #[default]
    Entries,
    /// Bytes of the objects.
    Bytes,
}

/// How requests are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// What a capacity counts.
    pub by: By,
    /// A lookup that misses stores its key. Without, only [`Op::Set`] stores.
    pub fill: bool,
}

impl Default for Rules {
    /// Entries, with fill.
    fn default() -> Rules {
        Rules { by: By::Entries, fill: true }
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Requests of any kind.
    pub requests: u64,
    /// Lookups.
    pub gets: u64,
    /// Lookups answered.
    pub hits: u64,
    /// Bytes looked up.
    pub get_bytes: u64,
    /// Bytes of lookups answered.
    pub hit_bytes: u64,
    /// Entries evicted for others.
    pub evicted: u64,
    /// Objects not stored because they are larger than the cache.
    pub bypassed: u64,
}

/// A simulated cache whose policy's type is not known: what many of them are kept as.
pub trait Replay: Send {
    /// Takes the next requests.
    fn replay(&mut self, batch: &Batch);

    /// What happened so far.
    fn counts(&self) -> Counts;
}

/// A simulated cache.
#[derive(Debug)]
pub struct Simulation<P> {
    policy: P,
    rules: Rules,
    /// In entries or bytes.
    capacity: u64,
    charged: u64,
    place_of: Vec<u32>,
    places: Places,
    free: Vec<u32>,
    counts: Counts,
}

impl<P: Replacement> Simulation<P> {
    /// `policy` is new, empty, and knows the entry numbers below `capacity` (by bytes: below the number of
    /// entries that there can be at once).
    pub fn new(policy: P, capacity: u64, rules: Rules) -> Self {
        Simulation {
            policy,
            rules,
            capacity: capacity.max(1),
            charged: 0,
            place_of: Vec::new(),
            places: Places::default(),
            free: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Looks up without details: entries, with fill, and no entry has an end.
    fn replay_plain<const PREFETCH: bool>(&mut self, ids: &[u32]) {
        let mut hits = 0;
        for (index, &id) in ids.iter().enumerate() {
            if PREFETCH {
                self.prefetch(ids, index);
            }
            match self.place_of[id as usize] {
                NONE => self.admit_plain(id),
                place => {
                    hits += 1;
                    self.policy.hit(place, 0);
                }
            }
        }
        let gets = ids.len() as u64;
        self.counts.requests += gets;
        self.counts.gets += gets;
        self.counts.get_bytes += gets;
        self.counts.hits += hits;
        self.counts.hit_bytes += hits;
    }

    /// Asks for lines of requests to come.
    #[inline(always)]
    fn prefetch(&self, ids: &[u32], index: usize) {
        if let Some(&far) = ids.get(index + AHEAD) {
            prefetch_slice(&self.place_of, far as usize);
        }
        if let Some(&near) = ids.get(index + AHEAD / 2) {
            match self.place_of[near as usize] {
                NONE => self.policy.prefetch_key(mix(u64::from(near))),
                place => self.policy.prefetch(place),
            }
        }
    }

    /// [`Self::admit`] for an entry of charge 1 where no entry has an end.
    #[inline]
    fn admit_plain(&mut self, id: u32) {
        self.policy.arriving(mix(u64::from(id)));
        // The evicted entry's place is used again, and the list of free ones is not touched.
        let mut place = None;
        let mut surplus = 0;
        while self.charged >= self.capacity || (surplus < SURPLUS_MAX && self.policy.has_surplus())
        {
            surplus += usize::from(self.charged < self.capacity);
            let Some(left) = self.policy.evict(None, &Timeless(&self.places.key_of)) else { break };
            self.place_of[self.places.key_of[left as usize] as usize] = NONE;
            self.charged -= 1;
            self.counts.evicted += 1;
            self.free.extend(place.replace(left));
        }
        let place = place.or_else(|| self.free.pop()).unwrap_or_else(|| self.places.add());
        self.places.key_of[place as usize] = id;
        self.place_of[id as usize] = place;
        self.charged += 1;
        self.policy.inserted(place);
    }

    #[inline]
    fn step(&mut self, id: u32, detail: &Detail) {
        self.places.now = detail.time_s;
        let place = self.place_of[id as usize];
        match detail.op {
            Op::Get => {
                self.counts.gets += 1;
                self.counts.get_bytes += u64::from(detail.bytes);
                if place != NONE && !self.places.is_expired(place) {
                    self.counts.hits += 1;
                    self.counts.hit_bytes += u64::from(detail.bytes);
                    self.policy.hit(place, 0);
                } else if self.rules.fill {
                    self.store(id, place, detail);
                }
            }
            Op::Set => self.store(id, place, detail),
            Op::Remove if place != NONE => self.take_out(place),
            Op::Remove => {}
        }
    }

    fn store(&mut self, id: u32, place: u32, detail: &Detail) {
        let charge = match self.rules.by {
            By::Entries => 1,
            By::Bytes => u64::from(detail.bytes),
        };
        if charge > self.capacity {
            self.counts.bypassed += 1;
            if place != NONE {
                // The old value is no longer true.
                self.take_out(place);
            }
            return;
        }
        let place = if place == NONE { self.admit(id, charge) } else { self.renew(place, charge) };
        let ends = if detail.ttl_s == TTL_NONE {
            NEVER
        } else {
            detail.time_s.saturating_add(detail.ttl_s).min(NEVER - 1)
        };
        self.places.set_ends(place, ends);
        if self.rules.by == By::Bytes {
            self.places.set_bytes(place, detail.bytes);
        }
        self.charged += charge;
    }

    /// Makes room for a new key and gives it a place.
    fn admit(&mut self, id: u32, charge: u64) -> u32 {
        self.policy.arriving(mix(u64::from(id)));
        while self.charged + charge > self.capacity && self.evict(None) {}
        for _ in 0..SURPLUS_MAX {
            if self.policy.has_surplus() {
                self.evict(None);
            }
        }
        let place = self.free.pop().unwrap_or_else(|| self.places.add());
        self.places.key_of[place as usize] = id;
        self.place_of[id as usize] = place;
        self.policy.inserted(place);
        place
    }

    /// Makes room for a new value of a resident key, and no longer charges for the old one.
    fn renew(&mut self, place: u32, charge: u64) -> u32 {
        self.charged -= self.charge_of(place);
        while self.charged + charge > self.capacity && self.evict(Some(place)) {}
        self.policy.updated(place);
        place
    }

    fn charge_of(&self, place: u32) -> u64 {
        match self.rules.by {
            By::Entries => 1,
            By::Bytes => u64::from(self.places.bytes[place as usize]),
        }
    }

    fn evict(&mut self, except: Option<EntryNumber>) -> bool {
        let Some(left) = self.policy.evict(except, &self.places) else { return false };
        self.counts.evicted += 1;
        self.vacate(left);
        true
    }

    fn take_out(&mut self, place: u32) {
        self.policy.removed(place);
        self.vacate(place);
    }

    fn vacate(&mut self, place: u32) {
        self.place_of[self.places.key_of[place as usize] as usize] = NONE;
        self.charged -= self.charge_of(place);
        self.free.push(place);
    }

    /// Walks everything; `Err` states what is wrong.
    pub fn validate(&self) -> Result<(), String> {
        self.policy.validate()?;
        let occupied = self.place_of.iter().filter(|place| **place != NONE).count();
        if occupied as u64 != self.policy.len()
            || occupied + self.free.len() != self.places.key_of.len()
        {
            return Err(format!(
                "invariant 2: {occupied} places occupied and {} free of {}; the policy knows {}",
                self.free.len(),
                self.places.key_of.len(),
                self.policy.len()
            ));
        }
        let mut is_free = vec![false; self.places.key_of.len()];
        for &place in &self.free {
            let key = self.places.key_of[place as usize];
            let is_occupied = self.place_of[key as usize] == place;
            if is_occupied || std::mem::replace(&mut is_free[place as usize], true) {
                return Err(format!("invariant 2: place {place} is free, and more"));
            }
        }
        let mut charged = 0;
        for (id, place) in self.place_of.iter().enumerate().filter(|(_, place)| **place != NONE) {
            charged += self.charge_of(*place);
            if self.places.key_of[*place as usize] as usize != id {
                return Err(format!("invariant 1: key {id} does not lie at place {place}"));
            }
        }
        if charged != self.charged || charged > self.capacity {
            return Err(format!(
                "invariant 3: {charged} charged, not {} of {}",
                self.charged, self.capacity
            ));
        }
        Ok(())
    }
}

impl<P: Replacement + Send> Replay for Simulation<P> {
    fn replay(&mut self, batch: &Batch) {
        if batch.keys > self.place_of.len() {
            self.place_of.resize(batch.keys, NONE);
        }
        let is_plain = self.rules == Rules::default() && self.places.ends.is_empty();
        if batch.details.is_empty() && is_plain {
            return match self.place_of.len() > NEAR_KEYS {
                true => self.replay_plain::<true>(&batch.ids),
                false => self.replay_plain::<false>(&batch.ids),
            };
        }
        self.counts.requests += batch.ids.len() as u64;
        if batch.details.is_empty() {
            batch.ids.iter().for_each(|&id| self.step(id, &Detail::PLAIN));
        } else {
            batch.ids.iter().zip(&batch.details).for_each(|(&id, detail)| self.step(id, detail));
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

/// The end of what has none.
const NEVER: u32 = u32::MAX;

/// What is kept of places. All but the keys is empty until the trace has it.
#[derive(Debug, Default)]
struct Places {
    key_of: Vec<u32>,
    ends: Vec<u32>,
    bytes: Vec<u32>,
    now: u32,
}

impl Places {
    /// One that was never used.
    fn add(&mut self) -> u32 {
        self.key_of.push(NONE);
        self.key_of.len() as u32 - 1
    }

    fn set_ends(&mut self, place: u32, ends: u32) {
        let place = place as usize;
        if place < self.ends.len() {
            self.ends[place] = ends;
        } else if ends != NEVER {
            self.ends.resize(place, NEVER);
            self.ends.push(ends);
        }
    }

    fn set_bytes(&mut self, place: u32, bytes: u32) {
        let place = place as usize;
        if place >= self.bytes.len() {
            self.bytes.resize(place + 1, 0);
        }
        self.bytes[place] = bytes;
    }
}

impl Entries for Places {
    #[inline]
    fn is_expired(&self, entry: EntryNumber) -> bool {
        self.ends.get(entry as usize).is_some_and(|ends| *ends != NEVER && self.now >= *ends)
    }

    #[inline]
    fn key(&self, entry: EntryNumber) -> u64 {
        mix(u64::from(self.key_of[entry as usize]))
    }

    #[inline]
    fn size(&self, entry: EntryNumber) -> u64 {
        self.bytes.get(entry as usize).map_or(1, |bytes| u64::from(*bytes))
    }
}

/// Keys of places where no entry has an end.
struct Timeless<'a>(&'a [u32]);

impl Entries for Timeless<'_> {
    #[inline]
    fn is_expired(&self, _entry: EntryNumber) -> bool {
        false
    }

    #[inline]
    fn key(&self, entry: EntryNumber) -> u64 {
        mix(u64::from(self.0[entry as usize]))
    }
}
