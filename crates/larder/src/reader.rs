//! A reader: one core's handle for lookups, without a lock, a read-modify-write, or a write to a
//! shared cache line.
//!
//! `refresh*` shows newer entries and leaves [`Entry`]s valid. `sync*` also releases memory, and
//! the borrow checker makes sure that no `Entry` is alive then. A reader that calls neither shows
//! an unchanging state and eventually stalls the writers: sync now and then, or park.
//!
//! If the cache was built with feedback, a sync also reports reads to the policy: see `feedback`.

use std::cell::Cell;
use std::sync::Arc;

use larder_mem::{self as mem, MainView, Memory, Shard, View};
#[cfg(test)]
use larder_mem::{Slot, WAYS};

use crate::engine::State;
use crate::entry::{Entry, Lease};
use crate::error::Error;
use crate::feedback::{Feedback, Report, mark_at};
use crate::hash::KeyHash;
use crate::index::{Found, Placement, find, find_here, stage, stage_second};
use crate::lookups::OwnLookups;
use crate::per_shard::PerShard;
use crate::position::LogPosition;
use crate::shared::{Shared, with_engine};
use crate::time::{Seconds, SyncMode, Ticks, is_dead, is_expired};

/// Keys whose memory [`Reader::get_many`] fetches together.
const BATCH: usize = 32;

/// Searches of a shared index in which entries move, before a lookup takes the lock.
const SEARCHES_MAX: usize = 64;

/// How many reports ahead lines are prefetched.
const REPORT_AHEAD: usize = 8;

/// One core's handle for lookups. `Send`, not `Sync`: create one per core.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    /// A copy of the cache's own, without an indirection.
    placement: Placement,
    /// One per shard. They stand before the id, so that they are unregistered before another reader
    /// takes the id.
    shards: PerShard<ShardReader>,
    id: ReaderId,
    /// Lookups refresh first.
    immediate: bool,
    /// A copy of the cache's own.
    report_shift: Option<u32>,
    lookups: OwnLookups,
    /// When [`Reader::sync_if_due`] syncs next.
    due: Ticks,
}

/// A reader's access to one shard.
#[derive(Debug)]
struct ShardReader {
    reader: mem::Reader<State>,
    feedback: Feedback,
}

impl ShardReader {
    fn open(
        shared: &Shared,
        memory: &Memory,
        shard: &Arc<Shard<State>>,
        number: usize,
    ) -> Result<ShardReader, Error> {
        let reader = mem::Reader::register_in(memory, shard, Some(number))?;
        Ok(ShardReader { reader, feedback: Feedback::new(shared.report_shift.is_some()) })
    }

    /// Notes a read for the policy: once per epoch if the reader has a replica to mark the entry
    /// in, else if it is drawn, until the buffer is full. Writes only to this reader's own cache lines.
    #[inline(always)]
    fn note(&self, epoch_shift: u32, bucket: usize, way: usize, tag: u16) {
        let view = self.reader.view();
        if matches!(view, View::Main(_)) && !self.feedback.is_drawn() || self.feedback.is_full() {
            return;
        }
        let seen = self.reader.position().records();
        let is_news = match view {
            View::Copy(copy) => copy.mark(bucket, way, mark_at(seen, epoch_shift)),
            View::Main(_) => true,
        };
        if is_news {
            self.feedback.note(Report { bucket: bucket as u32, tag, way: way as u8, seen });
        }
    }

    /// Reports reads to the policy, unless another thread holds the lock.
    #[cold]
    fn hand_over(&self) {
        let shard = self.reader.shard();
        // A poisoned cache has no use for reports.
        let Some(Ok(mut guard)) = shard.try_lock() else { return };
        with_engine(shard, &mut guard, |engine| {
            let reports = self.feedback.take();
            for (i, report) in reports.iter().enumerate() {
                if let Some(ahead) = reports.get(i + REPORT_AHEAD) {
                    engine.prefetch_report(&ahead.get());
                }
                engine.reported(&report.get());
            }
        });
    }

    fn park(self) -> ParkedShardReader {
        ParkedShardReader { reader: self.reader.park(), feedback: self.feedback }
    }
}

/// A parked [`ShardReader`], with the reports that it has.
#[derive(Debug)]
struct ParkedShardReader {
    reader: mem::Parked<State>,
    feedback: Feedback,
}

impl ParkedShardReader {
    fn unpark(self) -> Result<ShardReader, Error> {
        Ok(ShardReader { reader: self.reader.unpark()?, feedback: self.feedback })
    }
}

/// A reader's number, the same in every shard. Dropping it frees the number.
#[derive(Debug)]
struct ReaderId {
    shared: Arc<Shared>,
    number: usize,
}

impl ReaderId {
    fn take(shared: &Arc<Shared>) -> Result<ReaderId, Error> {
        let mut taken = shared.reader_ids.lock();
        let number = taken.iter().position(|&is_taken| !is_taken).ok_or(Error::ReadersExhausted)?;
        taken[number] = true;
        Ok(ReaderId { shared: shared.clone(), number })
    }
}

impl Drop for ReaderId {
    fn drop(&mut self) {
        self.shared.reader_ids.lock()[self.number] = false;
    }
}

/// Not in the middle of a lookup, whose registers it would take.
#[inline(never)]
fn refresh(reader: &mem::Reader<State>) {
    reader.refresh();
}

#[inline(always)]
fn bump(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// A parked reader: it can't read, and does not block writers.
#[derive(Debug)]
pub struct Parked {
    shared: Arc<Shared>,
    shards: Vec<ParkedShardReader>,
    id: ReaderId,
    lookups: OwnLookups,
    due: Ticks,
}

impl Reader {
    pub(crate) fn register(shared: &Arc<Shared>) -> Result<Self, Error> {
        let id = ReaderId::take(shared)?;
        // One mapping for the replicas of all shards, so that they have huge pages.
        let copies = shared.shards.iter().map(|shard| shard.config().copy_bytes()).sum();
        let memory = Memory::new(copies).map_err(Error::Memory)?;
        let open = |shard| ShardReader::open(shared, &memory, shard, id.number);
        let shards = PerShard::new(shared.shards.iter(), open)?;
        let lookups = OwnLookups::of(&shared.lookups[id.number].0);
        Ok(Reader::new(shared.clone(), shards, id, lookups, Ticks(0)))
    }

    fn new(
        shared: Arc<Shared>,
        shards: PerShard<ShardReader>,
        id: ReaderId,
        lookups: OwnLookups,
        due: Ticks,
    ) -> Self {
        let placement = shared.placement;
        let immediate = shared.sync == SyncMode::Immediate;
        let report_shift = shared.report_shift;
        Reader { shared, placement, shards, id, immediate, report_shift, lookups, due }
    }

    /// This reader's number, as in [`Error::Stalled`] and the statistics.
    pub fn number(&self) -> usize {
        self.id.number
    }

    /// The access to a key's shard.
    #[inline(always)]
    fn shard(&self, hash: KeyHash) -> &ShardReader {
        self.shards.get(self.placement.shard(hash))
    }

    fn shard_readers(&self) -> impl Iterator<Item = &mem::Reader<State>> {
        self.shards.iter().map(|shard| &shard.reader)
    }

    /// The hash of a key, for the `_hashed` forms.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.shared.hasher.hash(key)
    }

    /// Looks a key up; an entry that has expired at `now` is a miss.
    #[inline]
    pub fn get(&self, key: &[u8], now: Seconds) -> Option<Entry<'_>> {
        self.get_hashed(self.hash(key), key, now)
    }

    /// As [`Reader::get`], for a key that is already hashed.
    #[inline(always)]
    pub fn get_hashed(&self, hash: KeyHash, key: &[u8], now: Seconds) -> Option<Entry<'_>> {
        let shard = self.shard(hash);
        let found = self.find(shard, hash, key)?;
        if is_expired(found.slot.expires(), now) {
            bump(&self.lookups.misses);
            bump(&self.lookups.expired_misses);
            return None;
        }
        Some(self.hit(shard, hash, found))
    }

    /// As [`Reader::get`], but also returns an entry that expired within the cache's
    /// [`stale`](crate::Builder::stale) window, for use until a fresh one is fetched.
    /// [`Entry::is_stale`] tells them apart.
    #[inline]
    pub fn get_stale(&self, key: &[u8], now: Seconds) -> Option<Entry<'_>> {
        self.get_stale_hashed(self.hash(key), key, now)
    }

    /// As [`Reader::get_stale`], for a key that is already hashed.
    pub fn get_stale_hashed(&self, hash: KeyHash, key: &[u8], now: Seconds) -> Option<Entry<'_>> {
        let shard = self.shard(hash);
        let found = self.find(shard, hash, key)?;
        let expires = found.slot.expires();
        if is_expired(expires, now) {
            if is_dead(expires, self.shared.stale, now) {
                bump(&self.lookups.misses);
                bump(&self.lookups.expired_misses);
                return None;
            }
            bump(&self.lookups.stale_hits);
        }
        Some(self.hit(shard, hash, found))
    }

    /// Counts a hit, and notes it if the policy wants reports.
    #[inline(always)]
    fn hit<'a>(&'a self, shard: &ShardReader, hash: KeyHash, found: Found<'a>) -> Entry<'a> {
        bump(&self.lookups.hits);
        if let Some(shift) = self.report_shift {
            let tag = self.placement.tag_word(hash);
            shard.note(shift, found.bucket, found.way, tag);
        }
        Entry { slot: found.slot }
    }

    /// As [`Reader::get`], but copies the value to `buf`, replacing its contents. On a miss returns
    /// false and leaves `buf` unchanged. Allocates only if `buf` is too short.
    #[inline]
    pub fn get_into(&self, key: &[u8], now: Seconds, buf: &mut Vec<u8>) -> bool {
        let Some(entry) = self.get(key, now) else { return false };
        buf.clear();
        buf.extend_from_slice(&entry);
        true
    }

    /// Holds an entry's bytes beyond its borrow, the reader's next sync and the entry's removal, on
    /// any thread. A value in a slot of 1 KiB or more is held in place; a smaller one is copied.
    /// Returns `None` if leases would hold more than [`crate::Builder::lease_bytes_max`].
    pub fn lease(&self, entry: &Entry<'_>) -> Option<Lease> {
        let expires = entry.slot.expires();
        let reader = &self.shard(self.hash(entry.key())).reader;
        reader.lease(&entry.slot).map(|lease| Lease { lease, expires })
    }

    /// The entry under a key, expired or not; counts a miss if there is none.
    #[inline(always)]
    fn find<'a>(&self, shard: &'a ShardReader, hash: KeyHash, key: &[u8]) -> Option<Found<'a>> {
        let reader = &shard.reader;
        if self.immediate && reader.is_behind() {
            refresh(reader);
        }
        let found = match reader.view() {
            View::Copy(copy) => find(copy, &self.placement, hash, key),
            View::Main(main) => find_in_main(reader, main, &self.placement, hash, key),
        };
        if found.is_none() {
            bump(&self.lookups.misses);
        }
        found
    }

    /// Prefetches the lines that a lookup of this hash reads first.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        let home = self.placement.home(hash);
        match self.shard(hash).reader.view() {
            View::Copy(copy) => copy.prefetch_bucket(home),
            View::Main(main) => main.prefetch_bucket(home),
        }
    }

    /// With those lines here, prefetches the entry that such a lookup most likely finds.
    #[inline]
    pub fn prefetch_entry(&self, hash: KeyHash) {
        self.stage(hash);
    }

    /// As [`Reader::prefetch_entry`]; returns true if the lookup needs the second bucket.
    #[inline(always)]
    fn stage(&self, hash: KeyHash) -> bool {
        match self.shard(hash).reader.view() {
            View::Copy(copy) => stage(copy, &self.placement, hash),
            View::Main(main) => stage_in_main(main, &self.placement, hash),
        }
    }

    /// With that bucket here, prefetches the entry.
    fn stage_second(&self, hash: KeyHash) {
        match self.shard(hash).reader.view() {
            View::Copy(copy) => stage_second(copy, &self.placement, hash),
            View::Main(main) => stage_second(main, &self.placement, hash),
        }
    }

    /// Looks many keys up together, so that their memory is fetched in parallel. Calls `each` in
    /// order, with the index of a key and the result.
    pub fn get_many<'a, K: AsRef<[u8]>>(
        &'a self,
        keys: &[K],
        now: Seconds,
        mut each: impl FnMut(usize, Option<Entry<'a>>),
    ) {
        let mut hashes = [KeyHash(0); BATCH];
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = self.hash(key.as_ref());
                self.prefetch(*hash);
            }
            let hashes = &hashes[..keys.len()];
            self.stage_all(hashes);
            for (i, (&hash, key)) in hashes.iter().zip(keys).enumerate() {
                each(batch * BATCH + i, self.get_hashed(hash, key.as_ref(), now));
            }
        }
    }

    /// As [`Reader::get_many`], for keys that are already hashed; both slices have the same length.
    pub fn get_many_hashed<'a, K: AsRef<[u8]>>(
        &'a self,
        hashes: &[KeyHash],
        keys: &[K],
        now: Seconds,
        mut each: impl FnMut(usize, Option<Entry<'a>>),
    ) {
        self.each_staged(hashes, keys, |i, hash, key| each(i, self.get_hashed(hash, key, now)));
    }

    /// As [`Reader::get_many_hashed`], but finds what [`Reader::get_stale`] finds, without a second
    /// lookup of the keys that missed.
    pub fn get_many_stale_hashed<'a, K: AsRef<[u8]>>(
        &'a self,
        hashes: &[KeyHash],
        keys: &[K],
        now: Seconds,
        mut each: impl FnMut(usize, Option<Entry<'a>>),
    ) {
        self.each_staged(hashes, keys, |i, hash, key| {
            each(i, self.get_stale_hashed(hash, key, now))
        });
    }

    /// Calls `each` with the index, hash and key of every key, in order. The memory that each lookup
    /// reads is then being fetched together with that of others.
    #[inline]
    fn each_staged<K: AsRef<[u8]>>(
        &self,
        hashes: &[KeyHash],
        keys: &[K],
        mut each: impl FnMut(usize, KeyHash, &[u8]),
    ) {
        assert_eq!(hashes.len(), keys.len(), "a hash for each key");
        for (batch, (hashes, keys)) in hashes.chunks(BATCH).zip(keys.chunks(BATCH)).enumerate() {
            hashes.iter().for_each(|&hash| self.prefetch(hash));
            self.stage_all(hashes);
            for (i, (&hash, key)) in hashes.iter().zip(keys).enumerate() {
                each(batch * BATCH + i, hash, key.as_ref());
            }
        }
    }

    /// The stages between the hash and the lookup. The home lines are being fetched; fetches the slots
    /// that they name, or the second buckets and then the slots that those name.
    #[inline]
    fn stage_all(&self, hashes: &[KeyHash]) {
        let mut second = [KeyHash(0); BATCH];
        let mut count = 0;
        for &hash in hashes {
            // Stored unconditionally, because the branch would be unpredictable.
            second[count] = hash;
            count += usize::from(self.stage(hash));
        }
        second[..count].iter().for_each(|&hash| self.stage_second(hash));
    }

    /// This reader's position in the log: it shows exactly the operations before it.
    #[inline]
    pub fn position(&self) -> LogPosition {
        LogPosition::of(self.shard_readers().map(mem::Reader::position))
    }

    /// True if writers have published more than this reader shows.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.shard_readers().any(mem::Reader::is_behind)
    }

    /// Shows everything published so far. Entries that are borrowed stay valid.
    #[inline]
    pub fn refresh(&self) -> LogPosition {
        self.refresh_to(LogPosition::END)
    }

    /// Shows exactly the operations before `position` (from [`crate::Writer::flush`]), however far
    /// the writers have run ahead, or all published ones if those are fewer. Never goes back. New
    /// expiry times from `touch` are visible at once, at any position. A reader of a cache with
    /// [`crate::IndexMode::Shared`] always shows the present.
    #[inline]
    pub fn refresh_to(&self, position: LogPosition) -> LogPosition {
        let readers = self.shard_readers().enumerate();
        LogPosition::of(readers.map(|(shard, reader)| reader.refresh_to(position.shard(shard))))
    }

    /// Refreshes, and lets writers reuse the memory that this reader protected.
    #[inline]
    pub fn sync(&mut self) -> LogPosition {
        self.sync_to(LogPosition::END)
    }

    /// As [`Reader::sync`], but not beyond `position`.
    #[inline]
    pub fn sync_to(&mut self, position: LogPosition) -> LogPosition {
        let shards = self.shards.iter_mut().enumerate();
        let now_at = LogPosition::of(shards.map(|(number, shard)| {
            let now_at = shard.reader.sync_to(position.shard(number));
            if shard.feedback.is_due() {
                shard.hand_over();
            }
            now_at
        }));
        self.publish_lookups();
        now_at
    }

    /// Syncs if the cache's [`SyncMode::Periodic`] is due, or if this reader is so far behind that
    /// it would soon stall the writers; always with [`SyncMode::Immediate`]. Returns true if it
    /// did. `now` can be any clock that does not go back; the first call syncs.
    #[inline]
    pub fn sync_if_due(&mut self, now: Ticks) -> bool {
        let due = match self.shared.sync {
            SyncMode::Immediate => true,
            SyncMode::Periodic(_) => {
                now >= self.due || self.shard_readers().any(mem::Reader::is_far_behind)
            }
        };
        if due {
            if let SyncMode::Periodic(period) = self.shared.sync {
                self.due = Ticks(now.0.saturating_add(period.0));
            }
            self.sync();
        }
        due
    }

    fn publish_lookups(&self) {
        self.shared.lookups[self.number()].0.publish(&self.lookups);
    }

    /// Lookups that found a live entry.
    pub fn hits(&self) -> u64 {
        self.lookups.hits.get()
    }

    /// Lookups that did not.
    pub fn misses(&self) -> u64 {
        self.lookups.misses.get()
    }

    /// Parks: the reader does not block writers until it is unparked.
    pub fn park(self) -> Parked {
        self.publish_lookups();
        let Reader { shared, shards, id, lookups, due, .. } = self;
        let shards = shards.into_vec().into_iter().map(ShardReader::park).collect();
        Parked { shared, shards, id, lookups, due }
    }

    /// All slots that its index leads to.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        self.shard_readers().flat_map(|reader| {
            let places =
                (0..reader.buckets()).flat_map(|bucket| (0..WAYS).map(move |way| (bucket, way)));
            places.filter_map(|(bucket, way)| reader.slot(bucket, way))
        })
    }

    /// Compares this reader's index with main's, if it shows everything. For tests.
    pub fn validate(&self) -> Result<(), String> {
        self.shard_readers().try_for_each(mem::Reader::validate)
    }
}

/// [`find`] for shared readers. Inlined, since a call of it was a sixth of a lookup's instructions
/// (`docs/decisions/0025`).
#[inline(always)]
fn find_in_main<'a>(
    reader: &mem::Reader<State>,
    main: MainView<'a>,
    placement: &Placement,
    hash: KeyHash,
    key: &[u8],
) -> Option<Found<'a>> {
    let before = main.moves();
    let found = find_here(main, placement, hash, key);
    if found.is_some() || main.is_unmoved(before) {
        return found;
    }
    find_what_moves(reader, main, placement, hash, key)
}

/// Searches again, and in the end under the lock, where nothing moves: the thread that moves an
/// entry may have been interrupted. (A poisoned shard moves nothing any more.)
#[cold]
fn find_what_moves<'a>(
    reader: &mem::Reader<State>,
    main: MainView<'a>,
    placement: &Placement,
    hash: KeyHash,
    key: &[u8],
) -> Option<Found<'a>> {
    for _ in 1..SEARCHES_MAX {
        std::hint::spin_loop();
        let before = main.moves();
        let found = find(main, placement, hash, key);
        if found.is_some() || main.is_unmoved(before) {
            return found;
        }
    }
    let _held = reader.shard().lock();
    find(main, placement, hash, key)
}

/// [`stage`] for shared readers. Not inlined, because it would double the code of the others.
#[inline(never)]
fn stage_in_main(main: MainView<'_>, placement: &Placement, hash: KeyHash) -> bool {
    stage(main, placement, hash)
}

impl Parked {
    /// Returns to a reader that shows everything published so far. Costs the changes since it was
    /// parked, at most a copy of the index.
    pub fn unpark(self) -> Result<Reader, Error> {
        let Parked { shared, shards, id, lookups, due } = self;
        let shards = PerShard::new(shards.into_iter(), ParkedShardReader::unpark)?;
        Ok(Reader::new(shared, shards, id, lookups, due))
    }
}
