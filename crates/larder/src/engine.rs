//! Main's side of the cache: applies operations, one at a time, under the shard's lock.
//!
//! An operation first reserves log room for all that it may write. If the log refuses, nothing has
//! changed. (Of entries with weights, some may have been evicted: see [`weights`].) Then the
//! operation makes room in the budget by evicting, then it places its entry.
//! Evictions depend only on the charges of live entries and on the policy, not on limbo or syncs.
//!
//! Bounds per operation: at most `charge_max_of_a_slot / 16` evictions (without weights) and one
//! displacement; two records per eviction, six for the rest.

mod room;
mod weights;

use std::cell::Cell;

use larder_mem::{Main, OwnedSlot, Shard, Slot, Stalled, TAG_BITS_LOW, WAYS, prefetch_read};

use crate::condition::When;
use crate::evicted::{Batch, Cause};
use crate::expiry::Ends;
use crate::feedback::Report;
use crate::hash::{Hasher, KeyHash};
use crate::index::{Displaced, Placement, SECOND, find, mask_bit};
use crate::lookups::Lookups;
use crate::policy::{Chosen, Entries, EntryNumber, Replacement};
use crate::time::{Seconds, is_dead};
pub(crate) use weights::{WEIGHT_BYTES, Weights};

/// Records of an operation, without its evictions, at most. Two masks, a move (two) and the entry
/// make five; a bucket conflict makes three.
pub(crate) const RECORDS_MAX: u64 = 6;

/// The limits that the budget sets. Fixed at build.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Limit of the sum of the charges of live slots.
    pub charge_max: u64,
    pub entries_max: u64,
    /// The smallest possible charge.
    pub charge_min: u64,
    /// With fewer free pages than this, sparse pages are emptied; below half, writers take few.
    pub pages_low: u32,
    /// Bytes of free slots of a class that a writer takes at a time, several small ones or one large one.
    pub spare_bytes: usize,
}

/// Counters of operations, stored at main.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub inserted: u64,
    pub updated: u64,
    pub removed: u64,
    /// Operations refused by their condition.
    pub refused: u64,
    pub evicted: u64,
    /// Of those, the ones that had expired.
    pub evicted_expired: u64,
    pub conflicts: u64,
    pub moved_slots: u64,
    pub reported: u64,
    /// Of reads without a reader.
    pub lookups: Lookups,
}

/// The engine's own state, behind the shard's lock.
#[derive(Debug)]
pub(crate) struct State {
    pub placement: Placement,
    pub hasher: Hasher,
    pub displaced: Displaced,
    pub policy: Chosen,
    pub limits: Limits,
    /// Seconds after its expiry in which an entry can still be looked up.
    pub stale: u32,
    pub counts: Counts,
    /// Operations until the next search for a page to empty, after a search that found none.
    pub drain_rest: u32,
    /// If entries have weights.
    pub weights: Option<Weights>,
    /// Copies of the entries evicted in this lock hold, if there is a listener.
    pub evicted: Option<Batch>,
    /// Removed and replaced entries are copied, too.
    pub reports_removals: bool,
}

/// Main and the engine's state together, while the lock is held.
pub(crate) struct Engine<'a> {
    pub shard: &'a Shard<State>,
    pub main: Main<'a>,
    pub state: &'a mut State,
}

impl Engine<'_> {
    /// Prefetches the lines that an operation on this hash reads first.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        let home = self.state.placement.home(hash);
        prefetch_read(self.main.bucket(home));
        self.state.policy.prefetch_key(self.state.placement.fingerprint(hash));
    }

    /// Prefetches what the policy knows of a key and of the entries in its two buckets.
    #[inline]
    pub fn prefetch_states(&self, hash: KeyHash) {
        let State { placement, policy, displaced, .. } = &*self.state;
        let home = placement.home(hash);
        policy.prefetch_key(placement.fingerprint(hash));
        displaced.prefetch(home);
        policy.prefetch(number(home, 0));
        policy.prefetch(number(placement.second(home, placement.tag_word(hash)), 0));
    }

    /// When the index lines are cached, prefetches the next: the most likely slot, or the lines
    /// that a new entry needs.
    #[inline]
    pub fn prefetch_way(&self, hash: KeyHash) {
        let State { placement, policy, displaced, .. } = &*self.state;
        let home = placement.home(hash);
        let candidates = self.main.bucket(home).matches(placement.tag_word(hash));
        if candidates != 0 {
            let way = candidates.trailing_zeros() as usize;
            self.main.prefetch_slot(home, way);
            policy.prefetch(number(home, way));
        } else if let Some(way) = self.main.bucket(home).vacant() {
            policy.prefetch(number(home, way));
        } else {
            // Most likely the second bucket of a new entry, or of a displaced one.
            prefetch_read(self.main.bucket(placement.second(home, placement.tag_word(hash))));
            displaced.prefetch(home);
        }
    }

    /// Publishes a filled slot under its key if the present entry meets the condition `when`, else
    /// frees the slot and returns false. On `Stalled`, the caller keeps the slot.
    pub fn insert(
        &mut self,
        hash: KeyHash,
        slot: OwnedSlot,
        when: When<'_>,
        now: Seconds,
    ) -> Result<bool, (Stalled, OwnedSlot)> {
        let placement = self.state.placement;
        let key = self.shard.key_of(&slot);
        let found = find(&self.main, &placement, hash, key);
        if when != When::Always
            && when.refuses(found.map(|found| found.slot), self.shard.version_of(&slot), now)
        {
            self.main.free(slot);
            self.state.counts.refused += 1;
            return Ok(false);
        }
        let found = found.map(|found| (found.bucket, found.way));
        if let Err(stalled) = self.make_lighter(&slot, found, now) {
            return Err((stalled, slot));
        }
        let charge = self.main.charge(slot.class());
        let freed = found.map_or(0, |(bucket, way)| self.main.charge_at(bucket, way));
        let evictions = self.evictions_max(charge, freed, found.is_none());
        if let Err(stalled) = self.main.reserve(2 * evictions + RECORDS_MAX) {
            return Err((stalled, slot));
        }
        if found.is_none() {
            self.state.policy.arriving(placement.fingerprint(hash));
        }
        self.make_room(charge, freed, found, now);
        match found {
            Some((bucket, way)) => {
                self.keep_copy(bucket, way, Cause::Replaced, now);
                self.subtract_weight(bucket, way);
                let tag_word = self.main.bucket(bucket).tag(way);
                self.main.put(bucket, way, tag_word, slot);
                self.add_weight(bucket, way);
                self.state.policy.updated(number(bucket, way));
                self.state.counts.updated += 1;
            }
            None => {
                self.place(hash, slot, now);
                self.state.counts.inserted += 1;
            }
        }
        self.maintain();
        Ok(true)
    }

    /// Removes an entry that meets the condition `when`; `Ok(false)` if there is none.
    pub fn remove(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        when: When<'_>,
        now: Seconds,
    ) -> Result<bool, Stalled> {
        self.main.reserve(2)?;
        let Some(found) = find(&self.main, &self.state.placement, hash, key) else {
            return Ok(false);
        };
        if when.refuses(Some(found.slot), None, now) {
            self.state.counts.refused += 1;
            return Ok(false);
        }
        let (bucket, way) = (found.bucket, found.way);
        self.keep_copy(bucket, way, Cause::Removed, now);
        self.take_out(bucket, way);
        self.state.counts.removed += 1;
        Ok(true)
    }

    /// Sets the second of expiry of an entry, if there is one; false if it has a term, which stays.
    pub fn touch(&self, hash: KeyHash, key: &[u8], expires: u32) -> bool {
        let slot = self.slot(hash, key);
        let is_refused = slot.is_some_and(|slot| Ends::of(&slot).has_term());
        slot.filter(|_| !is_refused).inspect(|slot| slot.set_expires(expires));
        !is_refused
    }

    /// Lets an entry with a time to idle stay that long from `now`, if there is one.
    pub fn prolong(&self, hash: KeyHash, key: &[u8], now: Seconds) {
        if let Some(slot) = self.slot(hash, key)
            && let Some(expires) = Ends::of(&slot).prolonged(now)
        {
            slot.set_expires(expires);
        }
    }

    /// The entry under a key.
    pub fn slot(&self, hash: KeyHash, key: &[u8]) -> Option<Slot<'_>> {
        find(&self.main, &self.state.placement, hash, key).map(|found| found.slot)
    }

    /// An upper bound for the evictions of [`Engine::make_room`].
    fn evictions_max(&self, charge: u64, freed: u64, is_new: bool) -> u64 {
        let limits = &self.state.limits;
        let live = self.main.live_charge() + charge - freed;
        // The least charge is a power of two, and a division would be measurable.
        let over = live.saturating_sub(limits.charge_max) + limits.charge_min - 1;
        let over = over >> limits.charge_min.ilog2();
        let full = is_new && self.state.policy.len() >= limits.entries_max;
        over.max(u64::from(full))
    }

    fn make_room(
        &mut self,
        charge: u64,
        freed: u64,
        updated: Option<(usize, usize)>,
        now: Seconds,
    ) {
        let Limits { charge_max, entries_max, .. } = self.state.limits;
        let updated = updated.map(|(bucket, way)| number(bucket, way));
        while self.main.live_charge() + charge - freed > charge_max
            || (updated.is_none() && self.state.policy.len() >= entries_max)
        {
            if !self.evict(updated, now) {
                break;
            }
        }
    }

    /// Evicts one entry; false if there is none but `except`. At most two records.
    fn evict(&mut self, except: Option<EntryNumber>, now: Seconds) -> bool {
        let State { policy, placement, stale, .. } = &mut *self.state;
        let seen = Seen { main: &self.main, placement, stale: *stale, now, dead: Cell::new(None) };
        let Some(victim) = policy.evict(except, &seen) else { return false };
        let cause = if seen.dead.get() == Some(victim) { Cause::Expired } else { Cause::Budget };
        let (bucket, way) = (victim as usize / WAYS, victim as usize % WAYS);
        let cause = self.keep_copy(bucket, way, cause, now);
        self.empty(bucket, way);
        self.state.counts.evicted += 1;
        self.state.counts.evicted_expired += u64::from(cause == Cause::Expired);
        self.prefetch_victims();
        true
    }

    /// Copies an entry that is about to leave, if there is a listener for it, and returns the cause.
    /// Without a listener the slot is not read, which would cost 6 % of an insert into a full table
    /// (399 to 424 ns, 1 M entries of 38 bytes, busy machine).
    fn keep_copy(&mut self, bucket: usize, way: usize, cause: Cause, now: Seconds) -> Cause {
        let mut cause = cause;
        let is_removal = matches!(cause, Cause::Removed | Cause::Replaced);
        if let Some(batch) = &mut self.state.evicted
            && (self.state.reports_removals || !is_removal)
            && let Some(slot) = self.main.slot(bucket, way)
        {
            if !is_removal && is_dead(slot.expires(), self.state.stale, now) {
                cause = Cause::Expired;
            }
            batch.push(slot.key(), slot.value(), cause);
        }
        cause
    }

    /// The next victim is most likely known: prefetches its lines while other work is done.
    #[inline]
    fn prefetch_victims(&self) {
        let State { policy, placement, displaced, .. } = &*self.state;
        let [next, after] = policy.upcoming();
        if let Some(next) = next {
            // Its bucket was prefetched while it was the second next.
            let (bucket, way) = (next as usize / WAYS, next as usize % WAYS);
            let tag_word = self.main.bucket(bucket).tag(way);
            if policy.remembers() {
                policy.prefetch_key(placement.fingerprint_at(bucket, tag_word));
            }
            if tag_word & SECOND != 0 {
                let home = placement.home_of_second(bucket, tag_word);
                prefetch_read(self.main.bucket(home));
                displaced.prefetch(home);
            }
            if self.state.evicted.is_some() {
                self.main.prefetch_slot(bucket, way);
            }
        }
        if let Some(after) = after {
            prefetch_read(self.main.bucket(after as usize / WAYS));
            policy.prefetch(after);
        }
    }

    /// Reports a read to the policy, unless the entry was removed or moved since. Writes no log.
    pub fn reported(&mut self, report: &Report) {
        let (bucket, way) = (report.bucket as usize, report.way as usize);
        if (self.main.bucket(bucket).tag(way) ^ report.tag) >> TAG_BITS_LOW == 0 {
            // A new entry takes at least one record, and two if another is evicted for it.
            let lag = self.main.position().records().saturating_sub(report.seen) / 2;
            self.state.policy.hit(number(bucket, way), lag);
            self.state.counts.reported += 1;
        }
    }

    /// Prefetches the lines that processing this report reads.
    #[inline]
    pub fn prefetch_report(&self, report: &Report) {
        prefetch_read(self.main.bucket(report.bucket as usize));
        self.state.policy.prefetch(number(report.bucket as usize, report.way as usize));
    }

    /// Removes an entry, other than by the policy's choice. At most two records.
    fn take_out(&mut self, bucket: usize, way: usize) {
        self.empty(bucket, way);
        self.state.policy.removed(number(bucket, way));
    }

    /// Empties a way. At most two records.
    fn empty(&mut self, bucket: usize, way: usize) {
        self.subtract_weight(bucket, way);
        let tag_word = self.main.bucket(bucket).tag(way);
        self.main.clear(bucket, way);
        if tag_word & SECOND != 0 {
            self.forget_displaced(self.state.placement.home_of_second(bucket, tag_word), tag_word);
        }
    }

    fn forget_displaced(&mut self, home: usize, tag_word: u16) {
        let mask = self.main.bucket(home).mask();
        let wanted = self.state.displaced.remove(home, mask_bit(tag_word), mask);
        if wanted != mask {
            self.main.set_mask(home, wanted);
        }
    }

    fn note_displaced(&mut self, home: usize, tag_word: u16) {
        let mask = self.main.bucket(home).mask();
        let wanted = self.state.displaced.add(home, mask_bit(tag_word), mask);
        if wanted != mask {
            self.main.set_mask(home, wanted);
        }
    }

    /// Finds a way for a new entry: in its home, in its second bucket, a way of home that another
    /// entry can vacate, or one of second. (Displacing from home alone left 4 conflicts in 10
    /// million inserts at 80 % load.)
    fn place(&mut self, hash: KeyHash, slot: OwnedSlot, now: Seconds) {
        let placement = self.state.placement;
        let (home, tag_word) = (placement.home(hash), placement.tag_word(hash));
        let second = placement.second(home, tag_word);
        if let Some(way) = self.main.bucket(home).vacant() {
            return self.settle(home, way, tag_word, slot);
        }
        if let Some(way) = self.main.bucket(second).vacant() {
            // The mask is first: any prefix of the log that has the entry must lead to it.
            self.note_displaced(home, tag_word);
            return self.settle(second, way, tag_word | SECOND, slot);
        }
        if let Some(way) = self.displace(home) {
            return self.settle(home, way, tag_word, slot);
        }
        if let Some(way) = self.displace(second) {
            self.note_displaced(home, tag_word);
            return self.settle(second, way, tag_word | SECOND, slot);
        }
        // Neither bucket has room, nor has any bucket that an entry of either could move to:
        // twenty-two full buckets. The hash chooses the entry to evict.
        let way = (hash.0 >> 20) as usize % WAYS;
        self.keep_copy(home, way, Cause::Conflict, now);
        self.take_out(home, way);
        self.state.counts.conflicts += 1;
        self.settle(home, way, tag_word, slot);
    }

    fn settle(&mut self, bucket: usize, way: usize, tag_word: u16, slot: OwnedSlot) {
        self.main.put(bucket, way, tag_word, slot);
        self.add_weight(bucket, way);
        self.state.policy.inserted(number(bucket, way));
    }

    /// Moves one entry of a full bucket to its own other bucket, and returns the vacated way.
    fn displace(&mut self, bucket: usize) -> Option<usize> {
        let placement = self.state.placement;
        for way in 0..WAYS {
            let tag_word = self.main.bucket(bucket).tag(way);
            let is_second = tag_word & SECOND != 0;
            let home = placement.home_of(bucket, tag_word);
            let other = if is_second { home } else { placement.second(home, tag_word) };
            let Some(room) = self.main.bucket(other).vacant() else { continue };
            if is_second {
                self.main.relocate((bucket, way), (other, room), tag_word & !SECOND);
                self.forget_displaced(home, tag_word);
            } else {
                self.note_displaced(home, tag_word);
                self.main.relocate((bucket, way), (other, room), tag_word | SECOND);
            }
            self.state.policy.moved(number(bucket, way), number(other, room));
            return Some(way);
        }
        None
    }

    /// Checks all invariants; `Err` states what is wrong.
    pub fn validate(&self) -> Result<(), String> {
        self.main.validate()?;
        self.state.policy.validate()?;
        self.validate_weights()?;
        let limits = &self.state.limits;
        if self.main.live_charge() > limits.charge_max
            || self.state.policy.len() > limits.entries_max
        {
            return Err(format!(
                "{} entries with a charge of {} are over the limits {limits:?}",
                self.state.policy.len(),
                self.main.live_charge()
            ));
        }
        let mut displaced = vec![[0u64; 16]; self.main.buckets()];
        let (mut entries, mut shard) = (0, None);
        for bucket in 0..self.main.buckets() {
            for way in 0..WAYS {
                let Some(slot) = self.main.slot(bucket, way) else { continue };
                entries += 1;
                let tag_word = self.main.bucket(bucket).tag(way);
                let hash = self.state.hasher.hash(slot.key());
                let (placement, home) =
                    (&self.state.placement, self.state.placement.home_of(bucket, tag_word));
                if tag_word & !SECOND != self.state.placement.tag_word(hash)
                    || home != placement.home(hash)
                    || *shard.get_or_insert(placement.shard(hash)) != placement.shard(hash)
                {
                    return Err(format!(
                        "bucket {bucket} way {way}: {slot:?} does not belong there"
                    ));
                }
                let found = find(&self.main, &self.state.placement, hash, slot.key());
                if found.map(|found| (found.bucket, found.way)) != Some((bucket, way)) {
                    return Err(format!("bucket {bucket} way {way}: {slot:?} is not found"));
                }
                displaced[home][mask_bit(tag_word) as usize] += u64::from(tag_word & SECOND);
            }
        }
        if entries != self.state.policy.len() {
            return Err(format!("{entries} entries, the policy knows {}", self.state.policy.len()));
        }
        let mut stranger = None;
        self.state.policy.each_entry(|entry| {
            if self.main.bucket(entry as usize / WAYS).tag(entry as usize % WAYS) == 0 {
                stranger = Some(entry);
            }
        });
        if let Some(entry) = stranger {
            return Err(format!("the policy lists entry {entry}, which is empty"));
        }
        for (bucket, actual) in displaced.iter().enumerate() {
            for (bit, &actual) in actual.iter().enumerate() {
                let count = self.state.displaced.count(bucket, bit as u32);
                let is_set = self.main.bucket(bucket).mask() >> bit & 1 == 1;
                if (count != actual && count != Displaced::MANY) || is_set != (count > 0) {
                    return Err(format!(
                        "bucket {bucket} bit {bit}: {actual} displaced, count {count}"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[inline]
fn number(bucket: usize, way: usize) -> EntryNumber {
    (bucket * WAYS + way) as EntryNumber
}

/// The part of main that a policy may see.
struct Seen<'a> {
    main: &'a Main<'a>,
    placement: &'a Placement,
    stale: u32,
    now: Seconds,
    /// The last expired entry that was found. If it is evicted, that is the cause.
    dead: Cell<Option<EntryNumber>>,
}

impl Entries for Seen<'_> {
    /// An entry that can still be looked up is not dead: `stale` is part of its lifetime.
    #[inline]
    fn is_expired(&self, entry: EntryNumber) -> bool {
        let slot = self.main.slot(entry as usize / WAYS, entry as usize % WAYS);
        let is_dead = slot.is_none_or(|slot| is_dead(slot.expires(), self.stale, self.now));
        if is_dead {
            self.dead.set(Some(entry));
        }
        is_dead
    }

    #[inline]
    fn key(&self, entry: EntryNumber) -> u64 {
        let bucket = entry as usize / WAYS;
        let tag_word = self.main.bucket(bucket).tag(entry as usize % WAYS);
        self.placement.fingerprint_at(bucket, tag_word)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::cache::Cache;
    use crate::policy::Policy;
    use crate::position::LogPosition;
    use crate::time::{Seconds, Ttl};

    const NOW: Seconds = Seconds(1);

    fn entries(cache: &Cache) -> BTreeMap<Vec<u8>, Vec<u8>> {
        cache.iter(NOW).map(|entry| (entry.key().to_vec(), entry.value().to_vec())).collect()
    }

    /// A reader stops after every single record of a full index, whose entries are displaced and
    /// evicted all the time. At each stop, every entry of the replica is found by its key. An entry
    /// that is there before and after an operation never vanishes within it.
    #[test]
    fn every_prefix_of_the_log_is_an_index() {
        for policy in [Policy::Fifo, Policy::Partitioned] {
            let builder = Cache::builder().budget(1 << 20).shards(1).readers_max(1).policy(policy);
            let cache = builder.entry_bytes_mean(4096).feedback(false).build().unwrap();
            let (mut writer, mut reader) = (cache.writer(), cache.reader().unwrap());
            let (mut stops, mut within, mut displaced) = (0u64, 0u64, 0u64);
            let mut before = entries(&cache);
            for number in 0..1_500u64 {
                let start = cache.position().unwrap().records();
                let key = (number * 7 % 3_000).to_be_bytes();
                match number % 11 {
                    10 => writer.remove(&(number * 7 % 2_000).to_be_bytes()).unwrap(),
                    _ => writer.insert(&key, &number.to_be_bytes(), Ttl::FOREVER, NOW).unwrap(),
                }
                let end = writer.flush().unwrap().records();
                let after = entries(&cache);
                for records in start + 1..=end {
                    let position = LogPosition::of([larder_mem::LogPosition::after(records)]);
                    assert_eq!(reader.refresh_to(position).records(), records);
                    stops += 1;
                    within += u64::from(records < end);
                    for slot in reader.slots() {
                        let found = reader.get(slot.key(), NOW).map(|entry| entry.value());
                        assert!(found.is_some(), "{slot:?} is not found after {records} records");
                    }
                    for (key, value) in &after {
                        let Some(old) = before.get(key) else { continue };
                        let found = reader.get(key, NOW);
                        let found = found.as_deref();
                        assert!(found == Some(value) || found == Some(old), "{key:?}: {found:?}");
                    }
                }
                reader.sync();
                displaced += (end - start).saturating_sub(2);
                before = after;
            }
            reader.validate().unwrap();
            assert!(
                stops > 1_500 && within > 500 && displaced > 50,
                "{stops} {within} {displaced}"
            );
        }
    }
}
